/*
 * inputs.c - what is known about the inputs of a row's call. "Its inputs are fine" is said only where every one of them
 * was compared, by the same measure as the row, and none differs by a tenth of what the row does: a copy of something
 * that is off is off by as much, and a cosine does not see that an input was doubled.
 */
#include "compare/explain/suspect.h"

#include <math.h>

#include "compare/run/run.h"
#include "compare/verdict/verdict.h"

#define MUCH_LESS 0.1

typedef struct found {
    double worst;
    size_t worst_row;
    int64_t compared;
    bool unknown; /* one of them could not be compared */
} found;

/* The norm of the difference over that of the larger side; NaN where it cannot be had. */
static double
tensor_difference(const msp_suspect_source *src, const msp_row *n, const msp_row *b)
{
    msp_tensor x = {0}, y = {0};
    msp_metrics m;
    double d = NAN;

    if (msp_measure_open(&x, src->measurer, 0, n, NULL) == MSP_OK &&
        msp_measure_open(&y, src->measurer, 1, b, NULL) == MSP_OK &&
        msp_metrics_compute_mt(&m, &x, &y, src->measurer->threads, NULL) == MSP_OK) {
        double scale = sqrt(fmax(m.sq_n, m.sq_b));

        d = m.mismatches > 0 ? INFINITY : m.max_abs_err == 0 ? 0 : scale > 0 ? m.euc_dist / scale : m.euc_dist;
    }
    msp_tensor_release(&x);
    msp_tensor_release(&y);
    return d;
}

double
msp_suspect_difference(const msp_suspect_source *src, const msp_row *n, const msp_row *b)
{
    if (src->mode == MSP_MODE_MD5) {
        if (n->md5.kind != VAL_TEXT || b->md5.kind != VAL_TEXT)
            return NAN;
        return n->md5.len == b->md5.len && memcmp(n->md5.as.p, b->md5.as.p, n->md5.len) == 0 ? 0 : INFINITY;
    }
    if (src->mode == MSP_MODE_REAL && n->file != NULL && b->file != NULL)
        return tensor_difference(src, n, b);
    return msp_verdict_row_difference(src->rows[0], n, b);
}

/* The inputs and parameters of a call; for the forward call behind a backward one its results, too. */
static void
look_at_call(found *f, const msp_suspect_source *src, const msp_row_api *api, bool outputs)
{
    for (size_t i = api->first; i < api->first + api->count; i++) {
        const msp_row *n = &src->rows[0]->rows[i];
        double d;

        if (n->plain || (n->state >= STATE_OUTPUT && !outputs))
            continue;
        if (src->match->bench[i] == MATCH_NONE) {
            f->unknown = true;
            continue;
        }
        d = msp_suspect_difference(src, n, &src->rows[1]->rows[src->match->bench[i]]);
        if (isnan(d)) {
            f->unknown = true;
            continue;
        }
        f->compared++;
        if (d > f->worst) {
            f->worst = d;
            f->worst_row = i;
        }
    }
}

static const msp_row_api *
forward_of(const msp_suspect_source *src, const msp_row_api *api)
{
    msp_str stem = {api->name.p, api->name.len};

    if (!msp_str_ends(api->name, MSP_STR(".backward")))
        return NULL;
    stem.len -= strlen("backward");
    for (const msp_row_api *a = api; a-- > src->rows[0]->apis;)
        if (a->name.len == stem.len + strlen("forward") && msp_str_starts(a->name, stem) &&
            msp_str_ends(a->name, MSP_STR(".forward")))
            return a;
    return NULL;
}

static msp_inputs_state
state_of(const found *f, double error)
{
    if (f->worst > 0 && (isnan(error) || f->worst > MUCH_LESS * error || (isinf(f->worst) && isinf(error))))
        return MSP_INPUTS_WRONG;
    if (f->unknown || f->compared == 0)
        return MSP_INPUTS_UNKNOWN;
    return f->worst == 0 ? MSP_INPUTS_EQUAL : MSP_INPUTS_FINE;
}

bool
msp_suspect_inputs(msp_compare_suspect *out, const msp_suspect_source *src)
{
    const msp_row_api *api = &src->rows[0]->apis[src->row[0]->api], *forward = forward_of(src, api);
    found f = {0};
    msp_str name;

    out->error =
        src->row[1] == NULL || src->row[0]->plain ? NAN : msp_suspect_difference(src, src->row[0], src->row[1]);
    out->input_error = NAN;
    if (src->row[0]->state == STATE_INPUT || src->row[0]->state == STATE_PARAMETERS) {
        out->inputs = MSP_INPUTS_WRONG;
        return true;
    }
    look_at_call(&f, src, api, false);
    if (forward != NULL)
        look_at_call(&f, src, forward, true);
    out->inputs = state_of(&f, out->error);
    if (f.compared > 0)
        out->input_error = f.worst;
    if (f.worst == 0)
        return true;
    name = msp_row_name(&src->rows[0]->rows[f.worst_row]);
    if (msp_str_starts(name, api->name) && name.len > api->name.len + 1)
        name = (msp_str){name.p + api->name.len + 1, name.len - api->name.len - 1};
    out->input = msp_result_text(name);
    return out->input != NULL;
}
