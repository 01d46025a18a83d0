/*
 * propose_both.c - a layout for two sides that both are several ranks, so that of no tensor the whole is there:
 * DTensors say what they are, of others both sides must make the same of their parts.
 */
#include "compare/layout/propose_parts.h"

#include <math.h>
#include <string.h>
#include "core/alloc.h"
#include "core/vec.h"

/* The rows of one name on all ranks: those of the NPU side, then those of the bench. */
typedef struct both_rows {
    const msp_row **rows;
    size_t n[2];
} both_rows;

/* What all ranks of a side have of a tensor, which must have one shape there. */
typedef struct side_parts {
    int64_t shape[MSP_MAX_NDIM];
    int ndim;
    double norm, mean; /* of all parts: root of the sum of squares, and the sum */
    bool equal;
} side_parts;

static bool
read_side(side_parts *out, const msp_proposer *p, const both_rows *b, int side)
{
    const size_t from = side == 0 ? 0 : b->n[0];
    const msp_row *const *rows = &b->rows[from];
    const size_t n = b->n[side];
    double square = 0, v;

    *out = (side_parts){0};
    for (size_t i = 0; i < n; i++) {
        int64_t shape[MSP_MAX_NDIM] = {0};
        int ndim;

        if (!msp_whole_shape(msp_row_shape(&p->all[from + i].rows, rows[i]), shape, &ndim) ||
            (i > 0 && (ndim != out->ndim || memcmp(shape, out->shape, sizeof(shape)) != 0)))
            return false;
        memcpy(out->shape, shape, sizeof(shape));
        out->ndim = ndim;
        if (!msp_val_number(&rows[i]->stats[MSP_STAT_NORM], &v))
            return false;
        square += v * v;
        if (!msp_val_number(&rows[i]->stats[MSP_STAT_MEAN], &v))
            return false;
        out->mean += v;
    }
    out->norm = sqrt(square);
    out->equal = msp_propose_are_equal(rows, n, MSP_STAT_NORM) && msp_propose_are_equal(rows, n, MSP_STAT_MAX) &&
                 msp_propose_are_equal(rows, n, MSP_STAT_MIN);
    return isfinite(out->norm) && isfinite(out->mean);
}

/* Do two numbers agree as they are, or each by its share? */
static void
judge_shares(msp_proposal *out, double npu, double bench, const size_t n[2], double share)
{
    out->agrees = msp_propose_is_within(npu, bench, share);
    out->is_mean = !out->agrees && msp_propose_is_within(npu / (double)n[0], bench / (double)n[1], share);
    out->agrees = out->agrees || out->is_mean;
}

/* False: nothing can be said. What differs between the ranks of one side and is nothing that is known is left out. */
static bool
judge_sides(msp_proposal *out, const msp_proposer *p, const both_rows *b)
{
    side_parts npu, bench;
    int axis = -1;

    if (!read_side(&npu, p, b, 0) || !read_side(&bench, p, b, 1) || npu.ndim != bench.ndim)
        return false;
    for (int d = 0; d < npu.ndim; d++) {
        if (npu.shape[d] == bench.shape[d])
            continue;
        if (axis >= 0 || npu.shape[d] * (int64_t)b->n[0] != bench.shape[d] * (int64_t)b->n[1])
            return false;
        axis = d;
    }
    *out = (msp_proposal){.name = msp_row_name(b->rows[0]), .how = LAYOUT_REPLICATE};
    if (axis >= 0) {
        out->how = LAYOUT_CONCAT;
        out->axis = axis;
        judge_shares(out, npu.norm, bench.norm, b->n, MSP_PROPOSE_AGREES);
    } else if (npu.equal && bench.equal) {
        out->agrees = true;
    } else {
        out->how = LAYOUT_SUM;
        judge_shares(out, npu.mean, bench.mean, b->n, MSP_PROPOSE_ADDS_UP);
        out->how = out->agrees ? LAYOUT_SUM : LAYOUT_SKIP;
        out->agrees = true;
    }
    return true;
}

static bool
look_at_both(msp_proposer *p, const both_rows *b)
{
    const msp_rows *first = &p->all[0].rows;
    msp_buf scratch = {0};
    bool ok = true;

    for (size_t i = 0; i < p->n && ok; i++)
        ok = msp_propose_name_rows(&p->all[i]) && msp_propose_note_dtensors(p, &p->all[i].rows);
    for (size_t i = 0; i < first->count && ok; i++) {
        size_t found = 0;
        msp_proposal item;

        for (; found < p->n; found++) {
            const msp_map_entry *e = msp_map_get(&p->all[found].names, msp_row_name(&first->rows[i]));

            b->rows[found] = e != NULL ? &p->all[found].rows.rows[e->value] : NULL;
            if (e == NULL || b->rows[found]->dtensor != 0)
                break;
        }
        if (found < p->n || first->texts[first->rows[i].dtype].dtype == MSP_DTYPE_NONE || !judge_sides(&item, p, b))
            continue;
        ok = msp_vec_grow((void **)&p->items, &p->cap, p->count + 1, sizeof(*p->items));
        if (ok) {
            p->items[p->count++] = item;
            ok = msp_propose_count(p, &p->items[p->count - 1], &scratch);
        }
    }
    msp_buf_release(&scratch);
    return ok;
}

/* Rules for both sides: a mean has its own number of parts on each, and what is left out is so on both. */
static size_t
write_both(msp_buf *out, msp_proposer *p, const size_t n[2])
{
    size_t written = 0;

    for (int side = 0; side < 2; side++) {
        p->n = n[side];
        for (size_t i = 0; i < p->npatterns; i++)
            p->patterns[i].is_written = side == 1 && p->patterns[i].how == LAYOUT_SKIP && !p->patterns[i].is_mixed;
        for (size_t i = 0; i < p->count && side == 1; i++)
            p->items[i].agrees = p->items[i].agrees && p->items[i].how != LAYOUT_SKIP;
        written += msp_propose_write_rules(out, p, side);
    }
    return written;
}

msp_status
msp_propose_both(msp_buf *out, const msp_dump_place *const places[2], const size_t n[2], msp_error *err)
{
    const size_t all = n[0] + n[1];
    msp_proposer p = {.all = msp_alloc_zero(all, sizeof(*p.all)), .n = all, .whole = all - 1, .nstages = 1};
    both_rows b = {.rows = msp_alloc_zero(all, sizeof(*b.rows)), .n = {n[0], n[1]}};
    msp_status st = p.all == NULL || b.rows == NULL ? msp_propose_no_memory(err) : MSP_OK;

    for (size_t i = 0; i < all && st == MSP_OK; i++)
        st = msp_propose_open(&p.all[i], i < n[0] ? &places[0][i] : &places[1][i - n[0]], err);
    if (st == MSP_OK && (p.all[0].rows.ndtensors == 0 || p.all[n[0]].rows.ndtensors == 0))
        st = msp_error_set(err, MSP_E_INVALID,
                           "--layout auto needs one rank on one side and several on the other; here are %zu on the NPU "
                           "side and %zu on the bench side, and not on both sides DTensors, which say what they are. "
                           "Write a yaml with groups",
                           n[0], n[1]);
    if (st == MSP_OK && !look_at_both(&p, &b))
        st = msp_propose_no_memory(err);
    if (st == MSP_OK) {
        msp_buf_printf(out, "# Proposed from the shapes and statistics of %zu ranks against %zu.\n", n[0], n[1]);
        msp_propose_write_dtensors(out, &p);
        msp_buf_text(out, "parts:\n");
        if (write_both(out, &p, n) == 0)
            msp_buf_text(out, "  []\n");
        st = msp_buf_status(out, err);
    }
    msp_free(b.rows);
    msp_propose_release(&p);
    return st;
}
