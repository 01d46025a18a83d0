/*
 * check.c - is the result of a collective what the operation makes of its inputs?
 *
 * Every operation is a number of claims (claim.h). Where the parts of one tensor cannot be looked at, what the records
 * say of all ranks' results together is held against what they say of all inputs together.
 */
#include "audit/claim.h"

#include <math.h>
#include <stdio.h>
#include "core/alloc.h"

typedef msp_checker checker;
typedef msp_claim claim;
typedef msp_claim_part part;

enum { COPY = MSP_CLAIM_COPY };

/* ---- claims ------------------------------------------------------------------------------------------------------ */

static bool
is_whole(const part *p)
{
    return p->count < 0 || p->count == p->tensor->numel;
}

static void
note(checker *k, int by)
{
    if (k->set->by == MSP_BY_NOTHING || by < (int)k->set->by)
        k->set->by = by;
}

/* Returns false when the claim is refuted; k->set then says how. */
static bool
check_claim(checker *k, const claim *c)
{
    msp_audit_set *set = k->set;
    bool wrong = false, whole = is_whole(&c->out);

    if (set->wrong)
        return false;
    if (c->reduce == MSP_REDUCE_OTHER)
        return true;
    for (size_t r = 0; r < c->n; r++) {
        if (isnan(c->in[r].factor)) /* not recorded */
            return true;
        whole = whole && is_whole(&c->in[r]);
    }
    if (msp_claim_by_elements(k, c, &wrong))
        note(k, MSP_BY_TENSORS);
    else if (whole && c->reduce == COPY && msp_claim_copy_by_summary(k, c, &wrong))
        note(k, c->out.tensor->md5.len > 0 ? MSP_BY_CHECKSUMS : MSP_BY_STATISTICS);
    else if (whole && c->reduce != COPY && msp_claim_reduced_by_summary(k, c, &wrong))
        note(k, MSP_BY_STATISTICS);
    if (wrong) {
        set->wrong = true;
        set->blamed = c->out.rank;
    }
    return !wrong;
}

/* A claim about all ranks' results together: what is wrong is no rank's own. */
static void
note_together(checker *k, bool known, bool wrong)
{
    if (!known)
        return;
    note(k, MSP_BY_STATISTICS);
    k->set->wrong = k->set->everybody = wrong;
    k->set->blamed = 0;
}

/* What a rank gives to a reduction. */
static part
summand_of(const checker *k, size_t rank, const msp_audit_tensor *t, int64_t at, int64_t count)
{
    part p = msp_claim_part_of(rank, t, at, count);

    p.factor = k->set->calls[rank]->reduce == MSP_REDUCE_PREMUL_SUM ? k->set->calls[rank]->factor : 1;
    return p;
}

static bool
claim_copy(checker *k, part out, part in)
{
    return check_claim(k, &(claim){out, &in, 1, COPY});
}

/* Results that must be the same on all ranks: who differs from most of the others? Returns false when one does. */
static bool
check_equal(checker *k, size_t item)
{
    msp_audit_set *set = k->set;
    size_t worst = set->n, most = 0;

    for (size_t i = 0; i < set->n; i++) { /* candidates for what most hold; usually the first is */
        size_t same = 0, other = set->n;

        if (set->calls[i] == NULL || set->calls[i]->out.count <= item)
            continue;
        for (size_t r = 0; r < set->n; r++) {
            if (set->calls[r] == NULL || set->calls[r]->out.count <= item)
                continue;
            if (claim_copy(k, msp_claim_whole_of(r, &set->calls[r]->out.items[item]),
                           msp_claim_whole_of(i, &set->calls[i]->out.items[item]))) {
                same++;
            } else {
                other = other == set->n ? r : other;
                set->wrong = false;
            }
        }
        if (other == set->n)
            return true;
        if (same > most) {
            most = same;
            worst = other;
        }
        if (same * 2 > set->n || set->n > 64)
            break;
    }
    set->wrong = worst < set->n;
    set->blamed = worst;
    return !set->wrong;
}

/* The reduction of item at of every rank's input list (or of its part) and each rank's result of it. */
static void
check_all_reduce(checker *k, part *in)
{
    msp_audit_set *set = k->set;
    const msp_audit_call *first = NULL;

    for (size_t r = 0; r < set->n && first == NULL; r++)
        first = set->calls[r];
    for (size_t item = 0; item < first->in.count; item++) {
        bool equal, usable = set->complete;

        for (size_t r = 0; r < set->n; r++) {
            if (set->calls[r] == NULL || set->calls[r]->in.count <= item)
                usable = false;
            else
                in[r] = summand_of(k, r, &set->calls[r]->in.items[item], 0, -1);
        }
        equal = check_equal(k, item);
        if (!equal) { /* of those that differ, who has what the inputs do not make? */
            char said[sizeof(set->what)];
            size_t blamed = set->blamed;

            memcpy(said, set->what, sizeof(said));
            set->wrong = false;
            for (size_t r = 0; usable && r < set->n; r++)
                if (set->calls[r]->out.count > item &&
                    !check_claim(k, &(claim){msp_claim_whole_of(r, &set->calls[r]->out.items[item]), in, set->n,
                                             (int)first->reduce}))
                    return;
            set->wrong = true;
            set->blamed = blamed;
            memcpy(set->what, said, sizeof(said));
            return;
        }
        for (size_t r = 0; usable && r < set->n; r++) /* all are equal: one of them stands for all */
            if (set->calls[r]->out.count > item) {
                if (!check_claim(k, &(claim){msp_claim_whole_of(r, &set->calls[r]->out.items[item]), in, set->n,
                                             (int)first->reduce}))
                    return;
                break;
            }
    }
}

static void
check_reduce(checker *k, part *in, size_t root)
{
    msp_audit_set *set = k->set;

    if (!set->complete || root >= set->n || set->calls[root]->out.count == 0)
        return;
    for (size_t r = 0; r < set->n; r++) {
        if (set->calls[r]->in.count == 0)
            return;
        in[r] = summand_of(k, r, set->calls[r]->in.items, 0, -1);
    }
    (void)check_claim(k, &(claim){msp_claim_whole_of(root, set->calls[root]->out.items), in, set->n,
                                  (int)set->calls[root]->reduce});
}

/* Parts that are on the wrong place: which rank gave what stands there? */
static void
find_owner(checker *k, part out, size_t expected)
{
    msp_audit_set *set = k->set;
    char said[sizeof(set->what)];

    memcpy(said, set->what, sizeof(said));
    for (size_t r = 0; r < set->n; r++) {
        bool same;

        if (r == expected || set->calls[r] == NULL || set->calls[r]->in.count != 1)
            continue;
        set->wrong = false;
        same = claim_copy(k, out, msp_claim_whole_of(r, set->calls[r]->in.items));
        if (same) {
            snprintf(set->what, sizeof(set->what), "part %zu of its result is what rank %lld gave, not rank %lld",
                     expected, (long long)set->ranks[r]->rank, (long long)set->ranks[expected]->rank);
            break;
        }
        memcpy(set->what, said, sizeof(said));
    }
    set->wrong = true;
    set->blamed = out.rank;
}

/* One tensor that is what all ranks gave, one behind the other, where its parts cannot be looked at. */
static void
check_joined(checker *k, size_t rank, const msp_audit_tensor *out, const part *in)
{
    msp_audit_tensor joined;
    bool wrong = false;

    if (msp_claim_joined_checksum(k, out, in, k->set->n, &wrong))
        note(k, MSP_BY_CHECKSUMS);
    else if (msp_claim_join(&joined, in, k->set->n) && msp_claim_same_elements(k, out, &joined, &wrong))
        note(k, MSP_BY_STATISTICS);
    k->set->wrong = wrong;
    k->set->blamed = rank;
}

/* all_gather and gather: out[j] is what rank j gave; one tensor: its j-th part. */
static void
check_gather(checker *k, part *in, size_t to, bool one_tensor)
{
    msp_audit_set *set = k->set;
    const msp_audit_call *mine = set->calls[to];
    int64_t at = 0;
    bool all = true;

    if (mine == NULL || mine->out.count == 0)
        return;
    for (size_t r = 0; r < set->n && !set->wrong; r++) {
        const msp_audit_tensor *t =
            set->calls[r] == NULL || set->calls[r]->in.count == 0 ? NULL : set->calls[r]->in.items;
        part out;

        if (t == NULL || (!one_tensor && r >= mine->out.count) ||
            (one_tensor && t->numel > mine->out.items[0].numel - at)) {
            all = false;
            break;
        }
        in[r] = msp_claim_whole_of(r, t);
        out = one_tensor ? msp_claim_part_of(to, mine->out.items, at, t->numel)
                         : msp_claim_whole_of(to, &mine->out.items[r]);
        at += t->numel;
        if (!claim_copy(k, out, in[r]))
            find_owner(k, out, r);
    }
    if (one_tensor && all && !set->wrong && set->by != MSP_BY_TENSORS)
        check_joined(k, to, mine->out.items, in);
}

/* all_gather_coalesced: of every rank as many tensors as each gives. */
static void
check_gather_lists(checker *k)
{
    msp_audit_set *set = k->set;

    for (size_t to = 0; set->complete && to < set->n; to++)
        for (size_t r = 0; r < set->n && set->calls[to]->out.count == set->n * set->calls[r]->in.count; r++)
            for (size_t i = 0; i < set->calls[r]->in.count && !set->wrong; i++)
                (void)claim_copy(k, msp_claim_whole_of(to, &set->calls[to]->out.items[r * set->calls[r]->in.count + i]),
                                 msp_claim_whole_of(r, &set->calls[r]->in.items[i]));
}

/* All ranks' results together are the reduction of all inputs. */
static void
check_scattered(checker *k, part *in)
{
    msp_audit_set *set = k->set;
    part *out = msp_alloc_zero(set->n, sizeof(*out));
    msp_audit_tensor joined;
    bool wrong = false, known = out != NULL;

    for (size_t r = 0; known && r < set->n; r++) {
        const msp_audit_call *c = set->calls[r];

        known = c->in.count == 1 && c->out.count == 1 && c->reduce != MSP_REDUCE_OTHER && !isnan(c->factor);
        if (!known)
            break;
        in[r] = summand_of(k, r, c->in.items, 0, -1);
        out[r] = msp_claim_whole_of(r, c->out.items);
    }
    known = known && msp_claim_join(&joined, out, set->n);
    for (size_t r = 0; known && r < set->n; r++)
        known = in[r].tensor->numel == joined.numel && in[r].tensor->dtype == joined.dtype;
    if (known) {
        claim c = {msp_claim_whole_of(0, &joined), in, set->n, (int)set->calls[0]->reduce};

        known = msp_claim_reduced_by_summary(k, &c, &wrong);
        note_together(k, known, wrong);
    }
    msp_free(out);
}

/* reduce_scatter: rank p's result is the reduction of everybody's p-th item, or p-th part. */
static void
check_reduce_scatter(checker *k, part *in, bool one_tensor)
{
    msp_audit_set *set = k->set;

    for (size_t p = 0; set->complete && p < set->n && !set->wrong; p++) {
        const msp_audit_call *mine = set->calls[p];
        bool usable = mine->out.count > 0;

        for (size_t r = 0; usable && r < set->n; r++) {
            const msp_audit_list *l = &set->calls[r]->in;
            int64_t n = mine->out.items[0].numel;

            if (one_tensor && l->count == 1 && l->items[0].numel / (int64_t)set->n == n &&
                l->items[0].numel % (int64_t)set->n == 0)
                in[r] = summand_of(k, r, l->items, n * (int64_t)p, n);
            else if (!one_tensor && l->count == set->n)
                in[r] = summand_of(k, r, &l->items[p], 0, -1);
            else
                usable = false;
        }
        if (usable)
            (void)check_claim(k, &(claim){msp_claim_whole_of(p, mine->out.items), in, set->n, (int)mine->reduce});
    }
    if (one_tensor && set->complete && !set->wrong && set->by == MSP_BY_NOTHING)
        check_scattered(k, in);
}

/* Rows of size row behind each other, as many as splits says: where do those at p begin, and how many elements are
 * they? */
static bool
split_at(part *out, const int64_t *splits, size_t p, int64_t row)
{
    out->at = out->count = 0;
    for (size_t i = 0; i <= p; i++) {
        out->at += out->count;
        if (row == 0 || splits[i] < 0 || splits[i] > (out->tensor->numel - out->at) / row)
            return false;
        out->count = splits[i] * row;
    }
    return true;
}

/* The parts of one tensor that rank p gets from rank r. False: the records do not say which. */
static bool
find_parts(const msp_audit_set *set, size_t p, size_t r, part *out, part *in)
{
    const msp_audit_call *to = set->calls[p], *from = set->calls[r];
    const msp_audit_tensor *a = to->out.items, *b = from->in.items;
    int64_t n = (int64_t)set->n;

    if (to->out.count != 1 || from->in.count != 1 || (to->out_splits == NULL) != (from->in_splits == NULL))
        return false;
    *out = msp_claim_part_of(p, a, a->numel / n * (int64_t)r, a->numel / n);
    *in = msp_claim_part_of(r, b, b->numel / n * (int64_t)p, b->numel / n);
    if (to->out_splits != NULL) {
        int64_t row = a->ndim > 0 && a->shape[0] > 0 ? a->numel / a->shape[0] : 0;

        if (to->nout_splits != set->n || from->nin_splits != set->n || !split_at(out, to->out_splits, r, row) ||
            !split_at(in, from->in_splits, p, row))
            return false;
    }
    return out->count > 0 && out->count == in->count;
}

/* All ranks' results together hold what all of them gave. */
static void
check_exchanged(checker *k, part *in)
{
    msp_audit_set *set = k->set;
    part *out = msp_alloc_zero(set->n, sizeof(*out));
    msp_audit_tensor given, got;
    bool wrong = false, known = out != NULL;

    for (size_t r = 0; known && r < set->n; r++) {
        known = set->calls[r]->in.count == 1 && set->calls[r]->out.count == 1;
        if (!known)
            break;
        in[r] = msp_claim_whole_of(r, set->calls[r]->in.items);
        out[r] = msp_claim_whole_of(r, set->calls[r]->out.items);
    }
    known = known && msp_claim_join(&given, in, set->n) && msp_claim_join(&got, out, set->n) &&
            msp_claim_same_elements(k, &got, &given, &wrong);
    note_together(k, known, wrong);
    msp_free(out);
}

/* all_to_all: what rank p gets from rank r is what r has for p. */
static void
check_all_to_all(checker *k, part *in, bool one_tensor)
{
    msp_audit_set *set = k->set;

    for (size_t p = 0; set->complete && p < set->n && !set->wrong; p++)
        for (size_t r = 0; r < set->n && !set->wrong; r++) {
            const msp_audit_call *to = set->calls[p], *from = set->calls[r];
            part given, got;

            if (one_tensor) {
                if (find_parts(set, p, r, &got, &given))
                    (void)claim_copy(k, got, given);
            } else if (to->out.count == set->n && from->in.count == set->n) {
                (void)claim_copy(k, msp_claim_whole_of(p, &to->out.items[r]),
                                 msp_claim_whole_of(r, &from->in.items[p]));
            }
        }
    if (one_tensor && set->complete && !set->wrong && set->by == MSP_BY_NOTHING)
        check_exchanged(k, in);
}

static void
check_broadcast(checker *k, size_t root)
{
    msp_audit_set *set = k->set;

    for (size_t r = 0; r < set->n && !set->wrong; r++)
        if (root < set->n && set->calls[root] != NULL && set->calls[root]->in.count > 0 && set->calls[r] != NULL &&
            set->calls[r]->out.count > 0)
            (void)claim_copy(k, msp_claim_whole_of(r, set->calls[r]->out.items),
                             msp_claim_whole_of(root, set->calls[root]->in.items));
}

static void
check_scatter(checker *k, size_t root)
{
    msp_audit_set *set = k->set;

    for (size_t r = 0; r < set->n && !set->wrong; r++)
        if (root < set->n && set->calls[root] != NULL && set->calls[root]->in.count == set->n &&
            set->calls[r] != NULL && set->calls[r]->out.count > 0)
            (void)claim_copy(k, msp_claim_whole_of(r, set->calls[r]->out.items),
                             msp_claim_whole_of(root, &set->calls[root]->in.items[r]));
}

static void
run_check(checker *k, part *in, const msp_audit_call *any)
{
    msp_audit_set *set = k->set;
    size_t root = set->n;

    for (size_t r = 0; r < set->n; r++)
        if (set->ranks[r] != NULL && set->ranks[r]->rank == any->root)
            root = r;
    switch (any->op) {
    case MSP_AUDIT_ALL_REDUCE:
        check_all_reduce(k, in);
        break;
    case MSP_AUDIT_REDUCE:
        check_reduce(k, in, root);
        break;
    case MSP_AUDIT_BROADCAST:
        check_broadcast(k, root);
        break;
    case MSP_AUDIT_ALL_GATHER:
    case MSP_AUDIT_ALL_GATHER_INTO:
        for (size_t r = 0; r < set->n && !set->wrong; r++)
            check_gather(k, in, r, any->op == MSP_AUDIT_ALL_GATHER_INTO);
        break;
    case MSP_AUDIT_ALL_GATHER_LISTS:
        check_gather_lists(k);
        break;
    case MSP_AUDIT_GATHER:
        if (root < set->n)
            check_gather(k, in, root, false);
        break;
    case MSP_AUDIT_SCATTER:
        check_scatter(k, root);
        break;
    case MSP_AUDIT_REDUCE_SCATTER:
        check_reduce_scatter(k, in, false);
        break;
    case MSP_AUDIT_REDUCE_SCATTER_TENSOR:
        check_reduce_scatter(k, in, true);
        break;
    case MSP_AUDIT_ALL_TO_ALL:
        check_all_to_all(k, in, false);
        break;
    case MSP_AUDIT_ALL_TO_ALL_SINGLE:
        check_all_to_all(k, in, true);
        break;
    case MSP_AUDIT_SEND: /* the sender's set[0], the receiver's set[1] */
        if (set->calls[0]->in.count > 0 && set->calls[1]->out.count > 0)
            (void)claim_copy(k, msp_claim_whole_of(1, set->calls[1]->out.items),
                             msp_claim_whole_of(0, set->calls[0]->in.items));
        break;
    default:
        break;
    }
}

/* A call of a coalesced group is done when the group ends, and was recorded before. */
static bool
is_coalesced(const msp_audit_set *set)
{
    for (size_t r = 0; r < set->n; r++)
        if (set->calls[r] != NULL && set->calls[r]->coalesced)
            return true;
    return false;
}

/* What was read of a file that was cut short proves nothing. */
static void
note_cut(checker *k, const msp_claim_file *f)
{
    if (!msp_audit_is_cut(&f->view, f->rank, f->tensor))
        return;
    k->set->lost = f->tensor;
    k->set->loser = f->rank;
    k->set->wrong = false;
    k->set->by = MSP_BY_NOTHING;
}

void
msp_audit_check(msp_audit_set *set)
{
    checker k = {.set = set};
    const msp_audit_call *any = NULL;
    part *in = msp_alloc_zero(set->n, sizeof(*in));

    for (size_t r = 0; r < set->n; r++) {
        if (set->calls[r] == NULL)
            continue;
        any = any == NULL ? set->calls[r] : any;
        k.cap += set->calls[r]->in.count + set->calls[r]->out.count + set->calls[r]->before.count;
    }
    k.files = msp_alloc_zero(k.cap, sizeof(*k.files));
    k.inputs = msp_alloc_zero(set->n, sizeof(*k.inputs));
    if (in != NULL && k.inputs != NULL && k.files != NULL && any != NULL && !is_coalesced(set)) {
        run_check(&k, in, any);
        msp_claim_look_for_nothing_done(&k, any);
    }
    for (size_t i = 0; i < k.nfiles; i++)
        if (k.files[i].ok) {
            note_cut(&k, &k.files[i]);
            msp_tensor_release(&k.files[i].view);
        }
    msp_free(k.files);
    msp_free(k.inputs);
    msp_free(in);
}
