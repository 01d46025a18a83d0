/*
 * pair_decisions.c - choices that fell the other way (verdict/decisions.h), as far as the tensors are there: which rows
 * they are, and what was chosen from.
 */
#include "compare/pair/pair.h"

#include "core/alloc.h"

/* ---- arguments --------------------------------------------------------------------------------------------------- */

/* The input row of a call with this name behind it, ".input.1"; or NULL. */
static const msp_row *
find_input(const msp_rows *t, const msp_row_api *api, const char *at)
{
    for (size_t i = api->first; i < api->first + api->count; i++)
        if (t->rows[i].state == STATE_INPUT && msp_str_ends(msp_row_name(&t->rows[i]), msp_str_of(at)))
            return &t->rows[i];
    return NULL;
}

/* The dimension that the call was given; INT64_MIN: none. */
static int64_t
dimension_of(const msp_rows *t, const msp_row_api *api, msp_str op)
{
    bool third = msp_str_eq(op, MSP_STR("topk")) || msp_str_eq(op, MSP_STR("kthvalue"));
    const msp_row *r = find_input(t, api, ".input.dim");

    if (r == NULL)
        r = find_input(t, api, third ? ".input.2" : ".input.1");
    return r != NULL && r->plain && r->stats[MSP_STAT_MAX].kind == VAL_INT ? r->stats[MSP_STAT_MAX].as.i : INT64_MIN;
}

/* ---- one result -------------------------------------------------------------------------------------------------- */

static bool
open_row(msp_tensor *out, const msp_pair *p, int side, const msp_row *r)
{
    return r != NULL && r->file != NULL && msp_measure_open(out, &p->measurer, side, r, NULL) == MSP_OK;
}

static void
close_choice(msp_choice *c)
{
    msp_tensor_release(&c->chosen);
    msp_tensor_release(&c->from);
    msp_tensor_release(&c->than);
}

static bool
open_choice(msp_choice *c, const msp_pair *p, int side, const msp_row *chosen, msp_decision what)
{
    const msp_rows *t = &p->sides[side].rows;
    const msp_row_api *api = &t->apis[chosen->api];
    const msp_row *than = what == MSP_DECIDES_ORDER ? find_input(t, api, ".input.1") : NULL;

    if (what == MSP_DECIDES_ORDER && than == NULL)
        than = find_input(t, api, ".input.other");
    if (what == MSP_DECIDES_ORDER &&
        (than == NULL ||
         (than->plain ? !msp_val_number(&than->stats[MSP_STAT_MAX], &c->value) : !open_row(&c->than, p, side, than))))
        return false;
    return open_row(&c->chosen, p, side, chosen) && open_row(&c->from, p, side, find_input(t, api, ".input.0"));
}

static bool
measure_flip(msp_flip *out, const msp_pair *p, uint32_t row, msp_decision what)
{
    const msp_rows *t = &p->sides[0].rows;
    const msp_row *n = &t->rows[row], *b = &p->sides[1].rows.rows[msp_pair_verdict_match(p)->bench[row]];
    const msp_row_api *api = &t->apis[n->api];
    msp_choice sides[2] = {{.value = 0}, {.value = 0}};
    bool ok = open_choice(&sides[0], p, 0, n, what) && open_choice(&sides[1], p, 1, b, what) &&
              msp_flip_measure(out, what, sides, dimension_of(t, api, msp_verdict_operation(api->name))) == MSP_OK;

    close_choice(&sides[0]);
    close_choice(&sides[1]);
    return ok && out->flipped > 0;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* A result that is positions or truth values, with files, and that is not known to be equal. */
static bool
may_have_flipped(const msp_pair *p, uint32_t row)
{
    const msp_row *r = &p->sides[0].rows.rows[row];
    uint32_t partner = msp_pair_verdict_match(p)->bench[row];
    msp_dtype t = p->sides[0].rows.texts[r->dtype].dtype;

    return r->state == STATE_OUTPUT && r->file != NULL && partner != MATCH_NONE &&
           p->sides[1].rows.rows[partner].file != NULL && msp_local_roundoff(t) == 0 && p->diffs[row] != 0;
}

msp_status
msp_pair_decisions(msp_pair *p)
{
    const msp_rows *t = &p->sides[0].rows;

    if (p->out->mode != MSP_MODE_REAL || p->plan->npu->kind != MSP_DUMP_API)
        return MSP_OK;
    for (size_t a = 0; a < t->napis; a++) {
        msp_decision what = msp_decision_of(msp_verdict_operation(t->apis[a].name));

        if ((what != MSP_DECIDES_POSITION && what != MSP_DECIDES_ORDER) ||
            !msp_str_ends(t->apis[a].name, MSP_STR(".forward")))
            continue;
        for (size_t i = t->apis[a].first; i < t->apis[a].first + t->apis[a].count; i++) {
            msp_row_flip f = {.row = (uint32_t)i}, *grown;

            if (!may_have_flipped(p, f.row) || !measure_flip(&f.flip, p, f.row, what))
                continue;
            grown = msp_realloc(p->flips, p->nflips + 1, sizeof(*grown));
            if (grown == NULL)
                return msp_pair_no_memory(p);
            p->flips = grown;
            p->flips[p->nflips++] = f;
        }
    }
    return MSP_OK;
}
