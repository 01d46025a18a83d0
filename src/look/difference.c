/* difference.c - two tensors: judged as compare judges them, and where their errors are. */
#include <stdio.h>
#include <string.h>
#include "compare/judge/judge.h"
#include "compare/judge/show.h"
#include "kernels/elements.h"
#include "look/pattern.h"
#include "msprobe/look.h"

_Static_assert((int)MSP_LOOK_WORST == (int)ELEMENTS_WORST && (int)MSP_LOOK_ERROR_BINS == (int)ELEMENTS_HIST_BINS &&
                   (int)MSP_LOOK_MAP_ROWS == (int)ELEMENTS_MAP_ROWS &&
                   (int)MSP_LOOK_MAP_COLUMNS == (int)ELEMENTS_MAP_COLUMNS,
               "the public header promises what the kernel gives");

static msp_cell
cell_of(const msp_num *n)
{
    return n->word != NULL ? msp_cell_text(n->word, strlen(n->word)) : msp_cell_float(n->v);
}

/* As compare does with the two files of a row. */
static msp_status
judge_tensors(msp_look_difference *out, const msp_tensor *a, const msp_tensor *b, int nthreads, msp_error *err)
{
    msp_judged j = {0};
    msp_measurer m = {.threads = nthreads};
    msp_status st;

    msp_measure_opened(&m, &j, a, b);
    out->cosine = cell_of(&j.metric[METRIC_COSINE]);
    out->euc_dist = cell_of(&j.metric[METRIC_EUC_DIST]);
    out->max_abs = cell_of(&j.metric[METRIC_MAX_ABS]);
    out->max_rel = cell_of(&j.metric[METRIC_MAX_REL]);
    out->one_thousandth = cell_of(&j.metric[METRIC_ONE_THOUSANDTH]);
    out->five_thousandths = cell_of(&j.metric[METRIC_FIVE_THOUSANDTHS]);
    out->verdict = msp_verdict_text(msp_judge_accuracy(&j.metric[METRIC_COSINE], &j.metric[METRIC_MAX_ABS]));
    snprintf(out->message, sizeof(out->message), "%s", j.message.len > 0 ? j.message.p : "");
    st = msp_buf_status(&j.message, err);
    msp_buf_release(&j.message);
    return st;
}

static void
take_elements(msp_look_difference *out, const msp_elements *e)
{
    out->differ = e->count - e->equal;
    out->bits = e->bits;
    out->mismatches = e->mismatches;
    out->first = e->first;
    out->rows = e->rows;
    out->columns = e->columns;
    out->map_rows = e->map_rows;
    out->map_columns = e->map_columns;
    out->nworst = (size_t)e->nworst;
    for (int i = 0; i < e->nworst; i++) {
        out->worst[i].at = e->worst[i].at;
        out->worst[i].error = e->worst[i].err;
    }
    memcpy(out->errors, e->hist, sizeof(out->errors));
    memcpy(out->map, e->map, sizeof(out->map));
}

msp_status
msp_look_at_two(msp_look_difference *out, const msp_tensor *a, const msp_tensor *b, int nthreads, msp_error *err)
{
    msp_elements e;
    msp_status st;

    memset(out, 0, sizeof(*out));
    out->first = -1;
    out->bits = -1;
    out->same_shape = msp_tensor_same_shape(a, b);
    out->same_type = a->dtype == b->dtype;
    st = judge_tensors(out, a, b, nthreads, err);
    if (st != MSP_OK || !out->same_shape)
        return st;
    st = msp_metrics_compute_mt(&out->metrics, a, b, nthreads, err);
    if (st != MSP_OK)
        return st;
    msp_elements_look(&e, a, b);
    take_elements(out, &e);
    out->identical = out->same_type && e.bits == 0;
    return out->differ == 0 ? MSP_OK : msp_look_pattern(out->pattern, sizeof(out->pattern), a, b, err);
}
