/* measure.c - one row of static graphs: its two tensors, or their lines of statistic.csv, measured and judged.
 */
#include <math.h>
#include "compare/judge/judge.h"
#include "compare/graph/row.h"
#include "core/log.h"
#include "io/tensor_file.h"
#include "msprobe/stats.h"

void
msp_graph_row_begin(msp_graph_row *r, const msp_graph_item *const sides[2])
{
    r->side[0] = sides[0];
    r->side[1] = sides[1];
    r->j.unreadable = r->cut = false;
    r->j.bytes = 0;
    msp_buf_clear(&r->j.message);
    for (int s = 0; s < 2; s++) {
        msp_buf_clear(&r->dtype[s]);
        msp_buf_clear(&r->shape[s]);
        for (int i = 0; i < MSP_NSTATS; i++)
            r->stats[s][i] = (msp_cell){0};
        r->stats_row[s] = (msp_row){0};
    }
}

void
msp_graph_row_release(msp_graph_row *r)
{
    msp_buf_release(&r->j.message);
    for (int s = 0; s < 2; s++) {
        msp_buf_release(&r->dtype[s]);
        msp_buf_release(&r->shape[s]);
    }
    msp_buf_release(&r->name);
    msp_buf_release(&r->files);
}

/* ---- tensors ------------------------------------------------------------------------------------------------- */

/* "float32": NumPy's name. */
static void
put_dtype(msp_buf *out, msp_dtype t)
{
    const char *name = msp_dtype_torch_name(t), *dot = strchr(name, '.');

    msp_buf_clear(out);
    msp_buf_text(out, dot != NULL ? dot + 1 : name);
}

/* "(2, 3)", "(3,)", "()": a Python tuple. */
static void
put_shape(msp_buf *out, const msp_tensor *t)
{
    msp_buf_clear(out);
    msp_buf_char(out, '(');
    for (int32_t i = 0; i < t->ndim; i++)
        msp_buf_printf(out, i > 0 ? ", %lld" : "%lld", (long long)t->shape[i]);
    msp_buf_text(out, t->ndim == 1 ? ",)" : ")");
}

static void
describe_tensor(msp_graph_row *r, int side, const msp_tensor *t)
{
    msp_dtype_class c = msp_dtype_class_of(t->dtype);
    msp_stats s;

    put_dtype(&r->dtype[side], t->dtype);
    put_shape(&r->shape[side], t);
    if (t->numel == 0)
        return;
    msp_stats_compute(&s, t);
    r->stats[side][MSP_STAT_MAX] = msp_cell_float(s.max);
    r->stats[side][MSP_STAT_MIN] = msp_cell_float(s.min);
    if (c == MSP_CLASS_INT && t->dtype != MSP_U64) {
        r->stats[side][MSP_STAT_MAX] = msp_cell_int(s.max_int);
        r->stats[side][MSP_STAT_MIN] = msp_cell_int(s.min_int);
    } else if (c == MSP_CLASS_BOOL) {
        r->stats[side][MSP_STAT_MAX] = msp_cell_bool(s.max_int != 0);
        r->stats[side][MSP_STAT_MIN] = msp_cell_bool(s.min_int != 0);
    }
    r->stats[side][MSP_STAT_MEAN] = msp_cell_float(s.mean);
    r->stats[side][MSP_STAT_NORM] = msp_cell_float(s.norm);
}

static void
no_metrics(msp_judged *j)
{
    for (int i = 0; i < NMETRICS; i++)
        j->metric[i] = (msp_num){"", 0};
}

/* Why two tensors of kernels are not compared, in the original's words; false when they can be. */
static bool
refuse_tensors(msp_buf *why, const msp_tensor *n, const msp_tensor *b)
{
    size_t before = why->len;

    if (n->numel == 0 || b->numel == 0) {
        msp_buf_text(why, "This is empty data, can not compare.\n");
        return true;
    }
    if (n->ndim == 0 || b->ndim == 0)
        msp_buf_text(why, "This is type of scalar data, can not compare.\n");
    if (!msp_tensor_same_shape(n, b))
        msp_buf_text(why, "Shape of NPU and bench Tensor do not match.\n");
    if (n->dtype != b->dtype)
        msp_buf_text(why, "Dtype of NPU and bench Tensor do not match. Skipped.\n");
    return why->len > before;
}

static void
judge_opened(msp_graph_row *r, const msp_tensor *n, const msp_tensor *b, bool common)
{
    msp_measurer m = {.threads = 1};

    describe_tensor(r, 0, n);
    describe_tensor(r, 1, b);
    if (!common && refuse_tensors(&r->j.message, n, b)) {
        no_metrics(&r->j);
        r->j.verdict = VERDICT_CLEAN;
        return;
    }
    msp_measure_opened(&m, &r->j, n, b);
    if (!common && r->j.message.len > 0)
        msp_buf_char(&r->j.message, '\n'); /* as every message of kernels */
    r->j.verdict = msp_judge_accuracy(&r->j.metric[METRIC_COSINE], &r->j.metric[METRIC_MAX_ABS]);
}

void
msp_graph_judge_files(msp_graph_row *r, bool common)
{
    msp_tensor t[2] = {{0}, {0}};
    bool opened[2] = {false, false};
    msp_error err;

    for (int i = 0; i < 2; i++) {
        opened[i] = r->side[i] != NULL && msp_tensor_open(&t[i], r->side[i]->path, &err) == MSP_OK;
        if (r->side[i] == NULL) {
            no_metrics(&r->j);
            msp_buf_text(&r->j.message, "Dump file is not ndarray.\n");
            r->j.verdict = VERDICT_CLEAN;
        } else if (!opened[i]) {
            msp_warning("%s", err.message);
            no_metrics(&r->j);
            msp_buf_printf(&r->j.message, "Dump file: %s not found or read failed.\n", r->side[i]->path);
            r->j.unreadable = true;
            r->cut = err.status == MSP_E_CHANGED;
            r->j.verdict = VERDICT_NONE;
        }
    }
    if (opened[0] && opened[1])
        judge_opened(r, &t[0], &t[1], common);
    for (int i = 0; i < 2; i++)
        if (opened[i] && msp_tensor_check_at(&t[i], AT_FDCWD, r->side[i]->path, &err) != MSP_OK) {
            msp_warning("%s", err.message);
            no_metrics(&r->j);
            msp_buf_printf(&r->j.message, "Dump file: %s not found or read failed.\n", r->side[i]->path);
            r->j.unreadable = r->cut = true;
            r->j.verdict = VERDICT_NONE;
        }
    for (int i = 0; i < 2; i++) {
        if (opened[i] && !opened[1 - i])
            describe_tensor(r, i, &t[i]);
        msp_tensor_release(&t[i]);
    }
}

/* ---- statistic.csv ------------------------------------------------------------------------------------------- */

static msp_val
val_of(const msp_cell *c)
{
    msp_val v = {.kind = VAL_NONE};

    if (c->kind == MSP_CELL_INT) {
        v.kind = VAL_INT;
        v.as.i = c->as.i;
    } else if (c->kind == MSP_CELL_FLOAT) {
        v.kind = VAL_FLOAT;
        v.as.f = c->as.f;
    } else if (c->kind == MSP_CELL_TEXT) {
        v.kind = VAL_TEXT;
        v.as.p = c->as.text.p;
        v.len = (uint32_t)c->as.text.len;
    }
    return v;
}

static void
take_statistics(msp_graph_row *r, int side)
{
    const msp_graph_item *item = r->side[side];

    if (item == NULL)
        return;
    msp_buf_str(&r->dtype[side], item->dtype);
    msp_buf_str(&r->shape[side], item->shape);
    for (int i = 0; i < MSP_NSTATS; i++) {
        r->stats[side][i] = item->stats[i];
        r->stats_row[side].stats[i] = val_of(&item->stats[i]);
    }
}

static bool
refuse_statistics(msp_buf *why, const msp_graph_row *r)
{
    size_t before = why->len;

    if (r->side[0] == NULL || r->side[1] == NULL) {
        msp_buf_text(why, "Dump file not found.\n");
        return true;
    }
    if (r->shape[0].len == 0 || r->shape[1].len == 0)
        msp_buf_text(why, "This is type of scalar data, can not compare.\n");
    else if (!msp_str_eq(msp_buf_view(&r->shape[0]), msp_buf_view(&r->shape[1])))
        msp_buf_text(why, "Tensor shapes do not match.\n");
    if (!msp_str_eq(msp_buf_view(&r->dtype[0]), msp_buf_view(&r->dtype[1])))
        msp_buf_text(why, "Dtype of NPU and bench Tensor do not match. Skipped.\n");
    return why->len > before;
}

/* The difference of the maxima against the larger of them. */
static msp_verdict
judge_maxima(const msp_graph_row *r)
{
    double n, b;

    if (!msp_val_number(&r->stats_row[0].stats[MSP_STAT_MAX], &n) ||
        !msp_val_number(&r->stats_row[1].stats[MSP_STAT_MAX], &b))
        return VERDICT_NONE;
    if (isnan(n) || isnan(b))
        return isnan(n) && isnan(b) ? VERDICT_YES : VERDICT_NO;
    if (isinf(n) || isinf(b))
        return n == b ? VERDICT_YES : VERDICT_NO;
    return fabs(n - b) / (fmax(fabs(n), fabs(b)) + 1e-10) <= MSP_JUDGE_REL_LIMIT ? VERDICT_YES : VERDICT_NO;
}

void
msp_graph_judge_statistics(msp_graph_row *r)
{
    take_statistics(r, 0);
    take_statistics(r, 1);
    for (int i = 0; i < MSP_NSTATS; i++)
        r->j.diff[i] = r->j.rel[i] = (msp_num){"", 0};
    if (refuse_statistics(&r->j.message, r)) {
        r->j.verdict = VERDICT_CLEAN;
        return;
    }
    r->j.n = &r->stats_row[0];
    r->j.b = &r->stats_row[1];
    msp_measure_stats(&r->j);
    r->j.verdict = judge_maxima(r);
}
