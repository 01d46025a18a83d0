/*
 * kernel_compare.c - one pair of static-graph folders: tensors meet by key, are measured, judged and written.
 *
 * Every tensor of both sides has a row, in the order of the keys; rows are worked on in blocks by the pool.
 */
#include <math.h>
#include <stdio.h>
#include <time.h>
#include "compare/judge.h"
#include "compare/kernel.h"
#include "compare/outputs.h"
#include "compare/pytext.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/path.h"
#include "core/pool.h"
#include "core/vec.h"
#include "msprobe/stats.h"

enum { BLOCK_ROWS = 256, MAX_COLUMNS = 26, LARGE_BYTES = 4 << 20 };

typedef struct kernel_row {
    const msp_kernel_item *side[2]; /* NULL: this side has none */
    msp_judged j;
    msp_row stats_row[2]; /* statistic.csv: the numbers, for the measurer */
    msp_buf dtype[2], shape[2];
    msp_cell stats[2][MSP_NSTATS];
    char percent[MSP_NSTATS][40];
    msp_buf name, files;
} kernel_row;

typedef struct kernel {
    msp_run *run;
    const msp_plan_pair *plan;
    msp_compare_pair *out;
    msp_error *err;
    bool common;
    msp_kernel_items sides[2];
    kernel_row *rows; /* one block */
    size_t nrows;
    const msp_kernel_item *(*pairs)[2]; /* all rows */
    size_t npairs, cap;
    msp_table *tables[MSP_OUTPUTS_FORMATS];
    char *paths[MSP_OUTPUTS_FORMATS];
    size_t ntables;
    int64_t first_wrong; /* row number, -1: none yet */
} kernel;

static msp_status
no_memory(kernel *k)
{
    return msp_error_set(k->err, MSP_E_NOMEM, "out of memory");
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

static msp_status
add_pair(kernel *k, const msp_kernel_item *n, const msp_kernel_item *b)
{
    if (!msp_vec_grow((void **)&k->pairs, &k->cap, k->npairs + 1, sizeof(*k->pairs)))
        return no_memory(k);
    k->pairs[k->npairs][0] = n;
    k->pairs[k->npairs++][1] = b;
    k->out->counts.matched += n != NULL && b != NULL;
    k->out->counts.unmatched += n != NULL && b == NULL;
    k->out->counts.bench_only += n == NULL;
    return MSP_OK;
}

static msp_status
merge_sides(kernel *k)
{
    const msp_kernel_items *n = &k->sides[0], *b = &k->sides[1];
    size_t i = 0, m = 0;
    msp_status st = MSP_OK;

    while (st == MSP_OK && (i < n->count || m < b->count)) {
        int order = i == n->count ? 1 : m == b->count ? -1 : msp_str_cmp(n->items[i].key, b->items[m].key);

        if (order == 0)
            st = add_pair(k, &n->items[i++], &b->items[m++]);
        else if (order < 0)
            st = add_pair(k, &n->items[i++], NULL);
        else
            /* plain folders are compared as far as the NPU side goes */
            st = k->common ? (m++, MSP_OK) : add_pair(k, NULL, &b->items[m++]);
    }
    return st;
}

/* map_dict: keys of the NPU side that the bench calls differently. */
static void
rename_keys(kernel *k)
{
    const msp_compare_options *opt = k->run->opt;

    for (size_t i = 0; i < k->sides[0].count; i++)
        for (size_t m = 0; m < opt->nmap_dict; m++)
            if (msp_str_eq(k->sides[0].items[i].key, msp_str_of(opt->map_dict[m][0])))
                k->sides[0].items[i].key = msp_str_of(opt->map_dict[m][1]);
    msp_kernel_sort(&k->sides[0]);
}

static msp_status
read_sides(kernel *k)
{
    msp_status st = msp_kernel_read(&k->sides[0], k->plan->npu, k->plan->nnpu, k->common, k->err);

    if (st == MSP_OK)
        st = msp_kernel_read(&k->sides[1], k->plan->bench, k->plan->nbench, k->common, k->err);
    if (st != MSP_OK)
        return st;
    for (int i = 0; i < 2; i++)
        if (k->sides[i].count == 0)
            return msp_error_set(k->err, MSP_E_NOT_FOUND, "%s: neither .npy files nor a statistic.csv with rows",
                                 (i == 0 ? k->plan->npu : k->plan->bench)->path);
    if (k->sides[0].statistics != k->sides[1].statistics)
        return msp_error_set(k->err, MSP_E_INVALID, "%s has statistic.csv and %s has .npy files: collect both alike",
                             k->sides[0].statistics ? k->plan->npu->path : k->plan->bench->path,
                             k->sides[0].statistics ? k->plan->bench->path : k->plan->npu->path);
    k->out->mode = k->sides[0].statistics ? MSP_MODE_STATISTICS : MSP_MODE_REAL;
    k->out->has_tensors = !k->sides[0].statistics;
    if (k->common && k->run->opt->nmap_dict > 0)
        rename_keys(k);
    return merge_sides(k);
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
describe_tensor(kernel_row *r, int side, const msp_tensor *t, int threads)
{
    msp_dtype_class c = msp_dtype_class_of(t->dtype);
    msp_stats s;

    put_dtype(&r->dtype[side], t->dtype);
    put_shape(&r->shape[side], t);
    if (t->numel == 0)
        return;
    msp_stats_compute_mt(&s, t, threads);
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
judge_opened(kernel *k, kernel_row *r, const msp_tensor *n, const msp_tensor *b, int threads)
{
    msp_measurer m = {.threads = threads};

    describe_tensor(r, 0, n, threads);
    describe_tensor(r, 1, b, threads);
    if (!k->common && refuse_tensors(&r->j.message, n, b)) {
        no_metrics(&r->j);
        r->j.verdict = VERDICT_CLEAN;
        return;
    }
    msp_measure_opened(&m, &r->j, n, b);
    r->j.verdict = msp_judge_accuracy(&r->j.metric[METRIC_COSINE], &r->j.metric[METRIC_MAX_ABS]);
}

static void
judge_files(kernel *k, kernel_row *r, int threads)
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
            r->j.verdict = VERDICT_NONE;
        }
    }
    if (opened[0] && opened[1])
        judge_opened(k, r, &t[0], &t[1], threads);
    for (int i = 0; i < 2; i++) {
        if (opened[i] && !opened[1 - i])
            describe_tensor(r, i, &t[i], threads);
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
take_statistics(kernel_row *r, int side)
{
    const msp_kernel_item *item = r->side[side];

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
refuse_statistics(msp_buf *why, const kernel_row *r)
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
judge_maxima(const kernel_row *r)
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

static void
judge_statistics(kernel_row *r)
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

/* ---- one row ------------------------------------------------------------------------------------------------- */

static void
row_begin(kernel_row *r, const msp_kernel_item *const sides[2])
{
    r->side[0] = sides[0];
    r->side[1] = sides[1];
    r->j.unreadable = false;
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

static void
judge_row(size_t i, void *payload)
{
    kernel *k = payload;
    kernel_row *r = &k->rows[i];

    if (k->sides[0].statistics)
        judge_statistics(r);
    else
        judge_files(k, r, 1);
}

/* ---- tables -------------------------------------------------------------------------------------------------- */

/* clang-format off */
static const char *const base_columns[] = {
    "NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape",
    "NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm",
    "Accuracy Reached or Not", "Err_message"};
static const char *const metric_columns[] = {
    "Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio"};
static const char *const statistic_columns[] = {
    "Max diff", "Min diff", "Mean diff", "L2norm diff",
    "MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr", "NPU CSV File", "Bench CSV File"};
static const char *const common_columns[] = {
    "Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape",
    "Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio",
    "NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm",
    "Accuracy Reached or Not", "Err_message", "Data_Name"};
/* clang-format on */

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static size_t
add_columns(msp_column *out, size_t n, const char *const *titles, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[n + i] = (msp_column){titles[i], 0};
    return n + count;
}

static size_t
columns_of(const kernel *k, msp_column out[MAX_COLUMNS])
{
    size_t n;

    if (k->common)
        return add_columns(out, 0, common_columns, COUNT(common_columns));
    n = add_columns(out, 0, base_columns, COUNT(base_columns));
    if (k->sides[0].statistics)
        return add_columns(out, n, statistic_columns, COUNT(statistic_columns));
    return add_columns(out, n, metric_columns, COUNT(metric_columns));
}

/* Plain folders have the result under one name; where it is taken, the time is added. */
static char *
result_path(const kernel *k, const char *ext)
{
    char *plain = k->common ? msp_plan_file(k->plan->out_dir, k->plan->stem, NULL, ext) : NULL;

    if (plain != NULL && msp_path_kind_of(plain) == MSP_PATH_NONE)
        return plain;
    msp_free(plain);
    return msp_plan_file(k->plan->out_dir, k->plan->stem, k->run->timestamp, ext);
}

static msp_status
open_tables(kernel *k)
{
    const msp_outputs_format *formats = msp_outputs_formats;
    unsigned wanted = k->run->opt->formats;
    msp_table_options opt = {.total_rows = (int64_t)k->npairs, .threads = k->run->opt->threads};
    msp_column columns[MAX_COLUMNS];
    size_t ncolumns = columns_of(k, columns);
    msp_status st = msp_path_make_dirs(k->plan->out_dir, k->err);

    if (wanted == 0)
        wanted = k->common ? MSP_COMPARE_CSV : MSP_COMPARE_XLSX;
    for (size_t i = 0; st == MSP_OK && i < MSP_OUTPUTS_FORMATS; i++) {
        size_t t = k->ntables;

        if ((wanted & formats[i].bit) == 0)
            continue;
        k->paths[t] = result_path(k, formats[i].ext);
        if (k->paths[t] == NULL)
            return no_memory(k);
        k->ntables++;
        st = msp_table_open(&k->tables[t], k->paths[t], formats[i].format, columns, ncolumns, &opt, k->err);
    }
    return st;
}

static msp_status
finish_tables(kernel *k)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; st == MSP_OK && i < k->ntables; i++) {
        st = msp_table_finish(k->tables[i], k->err);
        if (st == MSP_OK && !msp_result_add(&k->out->files, &k->out->nfiles, msp_str_of(k->paths[i])))
            st = no_memory(k);
    }
    return st;
}

static msp_cell
text_cell(msp_str s)
{
    return s.len > 0 ? msp_cell_text(s.p, s.len) : (msp_cell){0};
}

static msp_cell
num_cell(const msp_num *c)
{
    return c->word != NULL ? text_cell(msp_str_of(c->word)) : msp_cell_float(c->v);
}

static msp_cell
percent_cell(kernel_row *r, int i)
{
    size_t n;

    if (r->j.rel[i].word != NULL)
        return text_cell(msp_str_of(r->j.rel[i].word));
    n = msp_f64_repr(r->percent[i], r->j.rel[i].v);
    r->percent[i][n++] = '%';
    return msp_cell_text(r->percent[i], n);
}

static msp_str
item_name(const kernel *k, const msp_kernel_item *item)
{
    if (item == NULL)
        return (msp_str){NULL, 0};
    return k->sides[0].statistics ? item->key : msp_str_of(item->path);
}

static msp_cell *
put_stats(msp_cell *c, const kernel_row *r)
{
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < MSP_NSTATS; i++)
            *c++ = r->stats[s][i];
    return c;
}

static void
show_kernel(const kernel *k, kernel_row *r, msp_cell *c)
{
    for (int s = 0; s < 2; s++)
        *c++ = text_cell(item_name(k, r->side[s]));
    for (int s = 0; s < 2; s++)
        *c++ = text_cell(msp_buf_view(&r->dtype[s]));
    for (int s = 0; s < 2; s++)
        *c++ = text_cell(msp_buf_view(&r->shape[s]));
    c = put_stats(c, r);
    *c++ = text_cell(msp_str_of(msp_verdict_text(r->j.verdict)));
    *c++ = text_cell(msp_buf_view(&r->j.message));
    if (!k->sides[0].statistics) {
        for (int i = 0; i < NMETRICS; i++)
            *c++ = num_cell(&r->j.metric[i]);
        return;
    }
    for (int i = 0; i < MSP_NSTATS; i++)
        *c++ = num_cell(&r->j.diff[i]);
    for (int i = 0; i < MSP_NSTATS; i++)
        *c++ = percent_cell(r, i);
    for (int s = 0; s < 2; s++)
        *c++ = r->side[s] != NULL ? text_cell(msp_str_of(r->side[s]->path)) : (msp_cell){0};
}

static void
show_common(kernel_row *r, msp_cell *c)
{
    msp_buf_clear(&r->name);
    msp_buf_printf(&r->name, "%.*s_%zu", (int)r->side[0]->name.len, r->side[0]->name.p, r->side[0]->index);
    *c++ = text_cell(msp_buf_view(&r->name));
    for (int s = 0; s < 2; s++)
        *c++ = text_cell(msp_buf_view(&r->dtype[s]));
    for (int s = 0; s < 2; s++)
        *c++ = text_cell(msp_buf_view(&r->shape[s]));
    for (int i = 0; i < NMETRICS; i++)
        *c++ = num_cell(&r->j.metric[i]);
    c = put_stats(c, r);
    *c++ = text_cell(msp_str_of(msp_verdict_text(r->j.verdict)));
    *c++ = text_cell(msp_buf_view(&r->j.message));
    msp_buf_clear(&r->files);
    msp_buf_char(&r->files, '[');
    for (int s = 0; s < 2; s++) {
        msp_buf_text(&r->files, s > 0 ? ", " : "");
        msp_py_repr_text(&r->files, r->side[s] != NULL ? msp_str_of(r->side[s]->path) : MSP_STR("N/A"));
    }
    msp_buf_char(&r->files, ']');
    *c++ = text_cell(msp_buf_view(&r->files));
}

/* ---- counting and the first wrong row ------------------------------------------------------------------------ */

static void
count_row(kernel *k, const kernel_row *r, size_t number)
{
    msp_compare_counts *c = &k->out->counts;

    c->rows++;
    c->yes += r->j.verdict == VERDICT_YES;
    c->no += r->j.verdict == VERDICT_NO;
    c->none += r->j.verdict == VERDICT_NONE;
    c->shape_unmatched += r->j.verdict == VERDICT_UNMATCHED;
    c->unreadable += r->j.unreadable;
    c->wrong += msp_verdict_wrong(r->j.verdict);
    k->out->tensor_bytes += r->j.bytes;
    if (msp_verdict_wrong(r->j.verdict) && k->first_wrong < 0)
        k->first_wrong = (int64_t)number;
}

static void
describe_worst(msp_compare_suspect *s, const kernel_row *r, int threads)
{
    msp_tensor n = {0}, b = {0};

    if (msp_tensor_open(&n, r->side[0]->path, NULL) == MSP_OK &&
        msp_tensor_open(&b, r->side[1]->path, NULL) == MSP_OK &&
        msp_metrics_compute_mt(&s->metrics, &n, &b, threads, NULL) == MSP_OK) {
        int64_t at = s->metrics.mismatches > 0 ? s->metrics.first_mismatch : s->metrics.max_abs_index;

        s->has_metrics = true;
        if (at >= 0) {
            s->has_worst = true;
            s->worst_index = at;
            s->worst_ndim = n.ndim;
            msp_tensor_unravel(&n, at, s->worst_coords);
            msp_dtype_format(s->worst_value[0], n.dtype, msp_tensor_at(&n, at));
            msp_dtype_format(s->worst_value[1], b.dtype, msp_tensor_at(&b, at));
        }
    }
    msp_tensor_release(&n);
    msp_tensor_release(&b);
}

static char *
num_text(const msp_num *c, const char *unit)
{
    char buf[40];
    size_t n;

    if (c->word != NULL)
        return msp_result_text(msp_str_of(c->word));
    n = msp_f64_repr(buf, c->v);
    snprintf(buf + n, sizeof(buf) - n, "%s", unit);
    return msp_result_text(msp_str_of(buf));
}

static char *
cell_copy(const msp_cell *c)
{
    msp_num v = {NULL, c->kind == MSP_CELL_INT ? (double)c->as.i : c->kind == MSP_CELL_FLOAT ? c->as.f : 0};

    if (c->kind == MSP_CELL_TEXT)
        return msp_result_text((msp_str){c->as.text.p, c->as.text.len});
    return num_text(&v, "");
}

static msp_status
describe_suspect(kernel *k, const kernel_row *r)
{
    msp_compare_suspect *s = &k->out->suspect;
    bool ok = true;

    s->found = true;
    s->row = k->first_wrong;
    s->npu_name = msp_result_text(item_name(k, r->side[0]));
    s->bench_name = msp_result_text(item_name(k, r->side[1]));
    s->api = msp_result_text(r->side[0]->key);
    s->verdict = msp_result_text(msp_str_of(msp_verdict_text(r->j.verdict)));
    s->message = msp_result_text(msp_buf_view(&r->j.message));
    for (int i = 0; i < 2; i++) {
        s->dtype[i] = msp_result_text(msp_buf_view(&r->dtype[i]));
        s->shape[i] = msp_result_text(msp_buf_view(&r->shape[i]));
        ok = ok && s->dtype[i] != NULL && s->shape[i] != NULL;
    }
    if (!k->sides[0].statistics)
        describe_worst(s, r, k->run->row_threads);
    for (int i = 0; k->sides[0].statistics && i < MSP_NSTATS; i++) {
        s->stats[0][i] = cell_copy(&r->stats[0][i]);
        s->stats[1][i] = cell_copy(&r->stats[1][i]);
        s->diff[i] = num_text(&r->j.diff[i], "");
        s->rel[i] = num_text(&r->j.rel[i], "%");
        ok = ok && s->stats[0][i] != NULL && s->stats[1][i] != NULL && s->diff[i] != NULL && s->rel[i] != NULL;
    }
    if (!ok || s->npu_name == NULL || s->bench_name == NULL || s->api == NULL || s->verdict == NULL ||
        s->message == NULL)
        return no_memory(k);
    return MSP_OK;
}

/* ---- blocks -------------------------------------------------------------------------------------------------- */

static msp_status
write_row(kernel *k, kernel_row *r, size_t number)
{
    msp_cell cells[MAX_COLUMNS];
    msp_status st = MSP_OK;

    if (k->common)
        show_common(r, cells);
    else
        show_kernel(k, r, cells);
    if (r->name.failed || r->files.failed || r->j.message.failed || r->dtype[0].failed || r->dtype[1].failed ||
        r->shape[0].failed || r->shape[1].failed)
        return no_memory(k);
    for (size_t i = 0; st == MSP_OK && i < k->ntables; i++)
        st = msp_table_row(k->tables[i], cells, MSP_ROW_PLAIN, k->err);
    if (st == MSP_OK)
        count_row(k, r, number);
    if (st == MSP_OK && k->first_wrong == (int64_t)number)
        st = describe_suspect(k, r);
    return st;
}

static msp_status
compare_block(kernel *k, size_t first)
{
    size_t n = k->npairs - first < BLOCK_ROWS ? k->npairs - first : BLOCK_ROWS;
    int64_t bytes = k->out->tensor_bytes;
    msp_status st = MSP_OK;

    for (size_t i = 0; i < n; i++)
        row_begin(&k->rows[i], k->pairs[first + i]);
    msp_pool_run(n, k->run->row_threads, judge_row, k);
    for (size_t i = 0; st == MSP_OK && i < n; i++)
        st = write_row(k, &k->rows[i], first + i);
    if (st == MSP_OK && !msp_run_progress(k->run, "compare", k->plan->label, (int64_t)n, k->out->tensor_bytes - bytes))
        st = msp_error_set(k->err, MSP_E_CANCELLED, "cancelled");
    return st;
}

static msp_status
compare_rows(kernel *k)
{
    msp_status st = open_tables(k);

    k->nrows = k->npairs < BLOCK_ROWS ? k->npairs : BLOCK_ROWS;
    k->rows = msp_alloc_zero(k->nrows, sizeof(*k->rows));
    if (st == MSP_OK && k->rows == NULL)
        st = no_memory(k);
    msp_run_expect(k->run, (int64_t)k->npairs, 0);
    for (size_t i = 0; st == MSP_OK && i < k->npairs; i += BLOCK_ROWS)
        st = compare_block(k, i);
    if (st == MSP_OK)
        st = finish_tables(k);
    if (st == MSP_OK && k->out->counts.matched == 0)
        st = msp_error_set(k->err, MSP_E_NOT_FOUND,
                           "no tensor of %s has a partner in %s: are both of the same model and step?",
                           k->plan->npu->path, k->plan->bench->path);
    return st;
}

static void
release(kernel *k)
{
    for (size_t i = 0; i < 3; i++) {
        msp_table_close(k->tables[i]);
        msp_free(k->paths[i]);
    }
    for (size_t i = 0; k->rows != NULL && i < k->nrows; i++) {
        msp_buf_release(&k->rows[i].j.message);
        for (int s = 0; s < 2; s++) {
            msp_buf_release(&k->rows[i].dtype[s]);
            msp_buf_release(&k->rows[i].shape[s]);
        }
        msp_buf_release(&k->rows[i].name);
        msp_buf_release(&k->rows[i].files);
    }
    msp_free(k->rows);
    msp_free(k->pairs);
    msp_kernel_items_release(&k->sides[0]);
    msp_kernel_items_release(&k->sides[1]);
}

static double
seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void
msp_kernel_compare(msp_run *run, const msp_plan_pair *plan, msp_compare_pair *out)
{
    msp_error err = {MSP_OK, ""};
    kernel k = {.run = run, .plan = plan, .out = out, .err = &err, .common = run->opt->common, .first_wrong = -1};
    double start = seconds_now();

    out->status = read_sides(&k);
    if (out->status == MSP_OK)
        out->status = compare_rows(&k);
    if (out->status != MSP_OK)
        out->error = msp_result_text(msp_str_of(err.message));
    release(&k);
    out->seconds = seconds_now() - start;
}
