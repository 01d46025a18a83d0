/*
 * statistics.c - what statistics say about each result. A difference is scaled by what its quantity can resolve: a mean
 * by the root mean square, a minimum or maximum by the largest magnitude, a norm by itself.
 */
#include "compare/verdict/verdict.h"

#include <math.h>
#include "core/alloc.h"

typedef struct stat_diff {
    bool known, nonfinite;
    double value;
} stat_diff;

static stat_diff
row_difference(const msp_rows *npu, const msp_row *n, const msp_row *b)
{
    double a[MSP_NSTATS], c[MSP_NSTATS], big, scale[MSP_NSTATS];
    int64_t numel = npu->texts[n->shape].numel;
    stat_diff out = {false, false, 0};

    for (int i = 0; i < MSP_NSTATS; i++) {
        if (!msp_val_number(&n->stats[i], &a[i]) || !msp_val_number(&b->stats[i], &c[i]))
            return out;
        out.nonfinite = out.nonfinite || isfinite(a[i]) != isfinite(c[i]);
    }
    out.known = true;
    if (out.nonfinite) {
        out.value = INFINITY;
        return out;
    }
    big = fmax(fmax(fabs(a[MSP_STAT_MAX]), fabs(a[MSP_STAT_MIN])), fmax(fabs(c[MSP_STAT_MAX]), fabs(c[MSP_STAT_MIN])));
    scale[MSP_STAT_MAX] = scale[MSP_STAT_MIN] = big;
    scale[MSP_STAT_NORM] = fmax(fabs(a[MSP_STAT_NORM]), fabs(c[MSP_STAT_NORM]));
    scale[MSP_STAT_MEAN] = numel > 0 ? scale[MSP_STAT_NORM] / sqrt((double)numel) : big;
    for (int i = 0; i < MSP_NSTATS; i++) {
        double d = fabs(a[i] - c[i]);

        if (isfinite(d) && d > 0 && scale[i] > 0)
            out.value = fmax(out.value, d / scale[i]);
    }
    return out;
}

double
msp_verdict_row_difference(const msp_rows *npu, const msp_row *n, const msp_row *b)
{
    stat_diff d = row_difference(npu, n, b);

    return d.known ? d.value : NAN;
}

bool
msp_verdict_value_key(msp_buf *out, const msp_row *row)
{
    double v[MSP_NSTATS];

    for (int i = 0; i < MSP_NSTATS; i++)
        if (!msp_val_number(&row->stats[i], &v[i]))
            return false;
    out->len = 0;
    msp_buf_add(out, v, sizeof(v));
    msp_buf_add(out, &row->dtype, sizeof(row->dtype));
    return true;
}

static const msp_row *
partner_of(const msp_evidence_source *src, size_t row)
{
    uint32_t b = src->match->bench[row];

    return b == MATCH_NONE ? NULL : &src->bench->rows[b];
}

/* Of elements where they were compared, else of statistics. */
static stat_diff
difference_of(const msp_evidence_source *src, size_t row)
{
    stat_diff d = row_difference(src->npu, &src->npu->rows[row], partner_of(src, row));

    if (src->diffs == NULL || isnan(src->diffs[row]) || d.nonfinite)
        return d;
    return (stat_diff){true, isinf(src->diffs[row]), src->diffs[row]};
}

double
msp_evidence_difference(const msp_evidence_source *src, size_t row)
{
    stat_diff d = partner_of(src, row) == NULL ? (stat_diff){false, false, 0} : difference_of(src, row);

    return d.known ? d.value : NAN;
}

/* The largest difference among the rows of a call: all of them, or those that go in. */
static double
call_difference(const msp_evidence_source *src, const msp_row_api *api, bool all)
{
    double most = 0;

    for (size_t i = api->first; i < api->first + api->count; i++)
        if (partner_of(src, i) != NULL && !src->npu->rows[i].plain && (all || src->npu->rows[i].state < STATE_OUTPUT))
            most = fmax(most, difference_of(src, i).value);
    return most;
}

/* A gradient depends on what the forward call took and gave as well. */
static double
inputs_difference(const msp_evidence_source *src, const msp_map *calls, const msp_row_api *api, msp_buf *scratch)
{
    double most = call_difference(src, api, false);
    msp_map_entry *forward;

    if (!msp_str_ends(api->name, MSP_STR(".backward")))
        return most;
    scratch->len = 0;
    msp_buf_add(scratch, api->name.p, api->name.len - 8);
    msp_buf_text(scratch, "forward");
    forward = scratch->failed ? NULL : msp_map_get(calls, msp_buf_view(scratch));
    if (forward != NULL)
        most = fmax(most, call_difference(src, &src->npu->apis[forward->value], true));
    return most;
}

static bool
is_float(msp_dtype t)
{
    return t == MSP_F64 || t == MSP_F32 || t == MSP_F16 || t == MSP_BF16;
}

/* Of two types the one with fewer bits after the point: the enum is in that order. */
static msp_dtype
coarser(msp_dtype a, msp_dtype b)
{
    return is_float(a) && is_float(b) && b > a ? b : a;
}

/* The largest norm among what a call took, on the bench. */
static double
inputs_norm(const msp_evidence_source *src, const msp_row_api *api)
{
    double most = 0, v;

    for (size_t i = api->first; i < api->first + api->count; i++) {
        const msp_row *b = partner_of(src, i);

        if (b != NULL && src->npu->rows[i].state < STATE_OUTPUT && msp_val_number(&b->stats[MSP_STAT_NORM], &v) &&
            isfinite(v))
            most = fmax(most, v);
    }
    return most;
}

/*
 * A sum that cancels, such as the gradient of a bias before a batch norm, consists of rounding errors: 64 roundings of
 * its terms are a generous bound for that.
 */
static bool
cancels(const msp_row *n, const msp_row *b, double norm_in, msp_dtype type)
{
    double unit = type == MSP_BF16 ? 0x1p-8 : type == MSP_F16 ? 0x1p-11 : type == MSP_F32 ? 0x1p-24 : 0x1p-53, x, y;

    return msp_val_number(&n->stats[MSP_STAT_NORM], &x) && msp_val_number(&b->stats[MSP_STAT_NORM], &y) &&
           fmax(fabs(x), fabs(y)) < 64 * unit * norm_in;
}

/* "output.0" of "Functional.relu.0.forward.output.0". */
static msp_str
result_of(const msp_rows *rows, const msp_row *row)
{
    msp_str name = msp_row_name(row), api = rows->apis[row->api].name;

    if (name.len <= api.len + 1 || memcmp(name.p, api.p, api.len) != 0)
        return name;
    return (msp_str){name.p + api.len + 1, name.len - api.len - 1};
}

static void
fill_evidence(msp_evidence *e, const msp_evidence_source *src, size_t row, double norm_in)
{
    const msp_row *n = &src->npu->rows[row], *b = partner_of(src, row);
    stat_diff d;

    e->dtype = e->types[0] = e->types[1] = src->npu->texts[n->dtype].dtype;
    e->n = src->npu->texts[n->shape].numel;
    e->inherited = NAN;
    e->row = row;
    if (b == NULL) {
        e->not_judged = "no partner";
        return;
    }
    e->bench = src->bench->apis[b->api].name;
    e->types[1] = src->bench->texts[b->dtype].dtype;
    e->one_type = e->types[1] == e->dtype;
    e->dtype = coarser(e->dtype, e->types[1]);
    d = difference_of(src, row);
    e->diff_out = d.value;
    e->nonfinite = d.nonfinite;
    e->tensors = src->diffs != NULL && !isnan(src->diffs[row]);
    if (!d.known)
        e->not_judged = "no statistics";
    else if (!is_float(e->dtype) && !d.nonfinite)
        e->not_judged = "no floating-point numbers";
    else if (!d.nonfinite && e->nature.sums && cancels(n, b, norm_in, e->dtype))
        e->not_judged = "cancels to rounding";
}

static msp_status
collect_evidence(msp_evidence_list *out, const msp_evidence_source *src, const msp_map *calls, msp_error *err)
{
    msp_buf scratch = {0};
    bool failed;

    for (size_t a = 0; a < src->npu->napis; a++) {
        const msp_row_api *api = &src->npu->apis[a];
        double in = inputs_difference(src, calls, api, &scratch), norm_in = inputs_norm(src, api);
        uint32_t slot = 0;

        for (size_t i = api->first; i < api->first + api->count; i++) {
            msp_evidence *e = &out->items[out->count];

            if (src->npu->rows[i].state < STATE_OUTPUT)
                continue;
            *e = (msp_evidence){.name = api->name.p,
                                .name_len = api->name.len,
                                .call = (uint32_t)a,
                                .slot = slot++,
                                .diff_in = in};
            e->at = result_of(src->npu, &src->npu->rows[i]);
            e->nature = msp_verdict_nature(api->name, e->at);
            fill_evidence(e, src, i, norm_in);
            if (e->nature.hands_on && e->nature.backward && e->slot > 0 && e->not_judged == NULL)
                e->not_judged = "a gradient of the call before";
            if (e->nature.chance && e->not_judged == NULL)
                e->not_judged = "random: its numbers depend on chance";
            out->count++;
        }
    }
    failed = scratch.failed;
    msp_buf_release(&scratch);
    return failed ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;
}

msp_status
msp_evidence_from_rows(msp_evidence_list *out, const msp_evidence_source *src, msp_error *err)
{
    const msp_rows *npu = src->npu;
    msp_map calls = {0};
    msp_status st = MSP_OK;
    bool added;

    *out = (msp_evidence_list){0};
    out->items = msp_alloc_zero(npu->count + 1, sizeof(*out->items));
    if (out->items == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (size_t a = 0; a < npu->napis && st == MSP_OK; a++)
        if (msp_map_put(&calls, npu->apis[a].name, (int64_t)a, &added) == NULL)
            st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (st == MSP_OK)
        st = collect_evidence(out, src, &calls, err);
    msp_map_release(&calls);
    return st;
}

void
msp_evidence_release(msp_evidence_list *list)
{
    msp_free(list->items);
    msp_free(list->starts);
    *list = (msp_evidence_list){0};
}
