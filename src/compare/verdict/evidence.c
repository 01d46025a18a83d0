/*
 * evidence.c - what statistics say about each result. A difference is scaled by what its quantity can resolve: a mean
 * by the root mean square, a minimum or maximum by the largest magnitude, a norm by itself.
 */
#include "compare/verdict/verdict.h"

#include <math.h>
#include "core/alloc.h"

static bool
name_has_any(msp_str op, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (msp_str_find(op, msp_str_of(words[i])) != NULL)
            return true;
    return false;
}

/* "linear" of "Functional.linear.0.forward". */
static msp_str
operation_of(msp_str api)
{
    const char *dot = memchr(api.p, '.', api.len), *end;
    msp_str op = api;

    if (dot == NULL)
        return api;
    op = (msp_str){dot + 1, api.len - (size_t)(dot + 1 - api.p)};
    end = memchr(op.p, '.', op.len);
    if (end != NULL)
        op.len = (size_t)(end - op.p);
    return op;
}

msp_call_class
msp_verdict_class(msp_str api)
{
    static const char *const matmul[] = {"linear", "matmul", "conv",   "attention", "lstm", "gru", "rnn", "bmm",
                                         "addmm",  "einsum", "Linear", "Conv",      "LSTM", "GRU", "RNN"};
    static const char *const move[] = {"reshape", "transpose", "permute",     "view",    "cat",         "stack",
                                       "chunk",   "split",     "gather",      "expand",  "flatten",     "contiguous",
                                       "getitem", "where",     "masked_fill", "squeeze", "index_select"};
    msp_str op = operation_of(api);

    if (msp_str_eq(op, MSP_STR("mm")) || name_has_any(op, matmul, sizeof(matmul) / sizeof(matmul[0])))
        return MSP_CALL_MATMUL;
    return name_has_any(op, move, sizeof(move) / sizeof(move[0])) ? MSP_CALL_MOVE : MSP_CALL_VECTOR;
}

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

static const msp_row *
partner_of(const msp_match *match, const msp_rows *bench, size_t row)
{
    return match->bench[row] == MATCH_NONE ? NULL : &bench->rows[match->bench[row]];
}

/* The largest difference among the rows of a call: all of them, or those that go in. */
static double
call_difference(const msp_rows *npu, const msp_rows *bench, const msp_match *match, const msp_row_api *api, bool all)
{
    double most = 0;

    for (size_t i = api->first; i < api->first + api->count; i++) {
        const msp_row *b = partner_of(match, bench, i);

        if (b == NULL || (!all && npu->rows[i].state >= STATE_OUTPUT))
            continue;
        most = fmax(most, row_difference(npu, &npu->rows[i], b).value);
    }
    return most;
}

/* A gradient depends on what the forward call took and gave as well. */
static double
inputs_difference(const msp_rows *npu, const msp_rows *bench, const msp_match *match, const msp_map *calls,
                  const msp_row_api *api, msp_buf *scratch)
{
    double most = call_difference(npu, bench, match, api, false);
    msp_map_entry *forward;

    if (!msp_str_ends(api->name, MSP_STR(".backward")))
        return most;
    scratch->len = 0;
    msp_buf_add(scratch, api->name.p, api->name.len - 8);
    msp_buf_text(scratch, "forward");
    forward = scratch->failed ? NULL : msp_map_get(calls, msp_buf_view(scratch));
    if (forward != NULL)
        most = fmax(most, call_difference(npu, bench, match, &npu->apis[forward->value], true));
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
inputs_norm(const msp_rows *npu, const msp_rows *bench, const msp_match *match, const msp_row_api *api)
{
    double most = 0, v;

    for (size_t i = api->first; i < api->first + api->count; i++) {
        const msp_row *b = partner_of(match, bench, i);

        if (b != NULL && npu->rows[i].state < STATE_OUTPUT && msp_val_number(&b->stats[MSP_STAT_NORM], &v) &&
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

static void
fill_evidence(msp_evidence *e, const msp_rows *npu, const msp_rows *bench, const msp_row *n, const msp_row *b)
{
    stat_diff d;

    e->dtype = npu->texts[n->dtype].dtype;
    e->n = npu->texts[n->shape].numel;
    e->local = NAN;
    if (b == NULL) {
        e->not_judged = "no partner";
        return;
    }
    e->one_type = bench->texts[b->dtype].dtype == e->dtype;
    e->dtype = coarser(e->dtype, bench->texts[b->dtype].dtype);
    d = row_difference(npu, n, b);
    e->diff_out = d.value;
    e->nonfinite = d.nonfinite;
    if (!d.known)
        e->not_judged = "no statistics";
    else if (!is_float(e->dtype) && !d.nonfinite)
        e->not_judged = "no floating-point numbers";
}

static msp_status
collect_evidence(msp_evidence_list *out, const msp_rows *npu, const msp_rows *bench, const msp_match *match,
                 const msp_map *calls, msp_error *err)
{
    msp_buf scratch = {0};
    bool failed;

    for (size_t a = 0; a < npu->napis; a++) {
        const msp_row_api *api = &npu->apis[a];
        double in = inputs_difference(npu, bench, match, calls, api, &scratch);
        double norm_in = inputs_norm(npu, bench, match, api);
        uint32_t slot = 0;

        for (size_t i = api->first; i < api->first + api->count; i++) {
            msp_evidence *e = &out->items[out->count];

            if (npu->rows[i].state < STATE_OUTPUT)
                continue;
            *e = (msp_evidence){.name = api->name.p,
                                .name_len = api->name.len,
                                .call = (uint32_t)a,
                                .slot = slot++,
                                .backward = msp_str_ends(api->name, MSP_STR(".backward")),
                                .cls = msp_verdict_class(api->name),
                                .diff_in = in};
            fill_evidence(e, npu, bench, &npu->rows[i], partner_of(match, bench, i));
            if (e->not_judged == NULL && !e->nonfinite &&
                cancels(&npu->rows[i], partner_of(match, bench, i), norm_in, e->dtype))
                e->not_judged = "cancels to rounding";
            out->count++;
        }
    }
    failed = scratch.failed;
    msp_buf_release(&scratch);
    return failed ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;
}

msp_status
msp_evidence_from_rows(msp_evidence_list *out, const msp_rows *npu, const msp_rows *bench, const msp_match *match,
                       msp_error *err)
{
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
        st = collect_evidence(out, npu, bench, match, &calls, err);
    msp_map_release(&calls);
    return st;
}

void
msp_evidence_release(msp_evidence_list *list)
{
    msp_free(list->items);
    *list = (msp_evidence_list){0};
}
