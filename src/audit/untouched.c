/* untouched.c - results that are what stood in their place before the call. */
#include "audit/claim.h"

#include <stdio.h>

/* Is what rank r has as its result what stood there before the call? */
static bool
is_untouched(msp_checker *k, size_t r)
{
    const msp_audit_call *c = k->set->calls[r];

    for (size_t i = 0; i < c->out.count; i++) {
        msp_claim_part before;
        bool differs = false;

        if (i >= c->before.count || c->before.items[i].numel != c->out.items[i].numel)
            return false;
        before = msp_claim_whole_of(r, &c->before.items[i]);
        if (!msp_claim_by_elements(k, &(msp_claim){msp_claim_whole_of(r, &c->out.items[i]), &before, 1, MSP_CLAIM_COPY},
                                   &differs))
            differs = !msp_audit_same_summary(&c->out.items[i], &c->before.items[i]);
        if (differs)
            return false;
    }
    return c->out.count > 0;
}

/* The root of a broadcast has its result from the start. */
static bool
are_all_untouched(msp_checker *k)
{
    const msp_audit_set *set = k->set;

    for (size_t r = 0; r < set->n; r++) {
        const msp_audit_call *c = set->calls[r];

        if (c != NULL && c->out.count > 0 && c->root != set->ranks[r]->rank && !is_untouched(k, r))
            return false;
    }
    return true;
}

void
msp_claim_look_for_nothing_done(msp_checker *k, const msp_audit_call *any)
{
    msp_audit_set *set = k->set;
    bool has_one_result = any->op == MSP_AUDIT_REDUCE || any->op == MSP_AUDIT_GATHER || any->op == MSP_AUDIT_SEND;
    char said[MSP_AUDIT_WHAT];
    bool one, all;

    if (!set->wrong)
        return;
    memcpy(said, set->what, sizeof(said)); /* looking writes there */
    one = is_untouched(k, set->blamed);
    all = one && !has_one_result && are_all_untouched(k);
    memcpy(set->what, said, sizeof(said));
    if (!one)
        return;
    if (has_one_result ? any->is_told : !all) {
        size_t have = strlen(said);

        snprintf(set->what + have, sizeof(set->what) - have, "; it is what stood there before the call");
    } else if (any->is_told) {
        set->everybody = true;
        snprintf(set->what, sizeof(set->what), "the call did nothing: every result is what stood there before");
    } else {
        set->wrong = false;
        set->by = MSP_BY_NOTHING;
    }
}
