/*
 * kernel_compare.c - one pair of static-graph folders: tensors meet by key, are measured, judged and written.
 *
 * Every tensor of both sides has a row, in the order of the keys; rows are worked on in blocks by the pool.
 */
#include <stdio.h>
#include <time.h>
#include "compare/kernel_row.h"
#include "compare/outputs.h"
#include "compare/suspect.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/path.h"
#include "core/pool.h"
#include "core/vec.h"

enum { BLOCK_ROWS = 256 };

typedef struct kernel {
    msp_run *run;
    const msp_plan_pair *plan;
    msp_compare_pair *out;
    msp_error *err;
    bool common;
    msp_kernel_items sides[2];
    msp_kernel_row *rows; /* one block */
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

/* ---- tables -------------------------------------------------------------------------------------------------- */

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
    msp_column columns[MSP_KERNEL_COLUMNS];
    size_t ncolumns = msp_kernel_columns(columns, k->common, k->sides[0].statistics);
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

/* ---- counting and the first wrong row ------------------------------------------------------------------------ */

static void
count_row(kernel *k, const msp_kernel_row *r, size_t number)
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
describe_files(msp_compare_suspect *s, const msp_kernel_row *r, int threads)
{
    msp_tensor n = {0}, b = {0};

    if (msp_tensor_open(&n, r->side[0]->path, NULL) == MSP_OK && msp_tensor_open(&b, r->side[1]->path, NULL) == MSP_OK)
        msp_suspect_tensors(s, &n, &b, threads);
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
describe_suspect(kernel *k, const msp_kernel_row *r)
{
    msp_compare_suspect *s = &k->out->suspect;
    bool ok = true;

    s->found = true;
    s->row = k->first_wrong;
    s->npu_name = msp_result_text(msp_kernel_item_name(r->side[0], k->sides[0].statistics));
    s->bench_name = msp_result_text(msp_kernel_item_name(r->side[1], k->sides[0].statistics));
    s->api = msp_result_text(r->side[0]->key);
    s->verdict = msp_result_text(msp_str_of(msp_verdict_text(r->j.verdict)));
    s->message = msp_result_text(msp_buf_view(&r->j.message));
    for (int i = 0; i < 2; i++) {
        s->dtype[i] = msp_result_text(msp_buf_view(&r->dtype[i]));
        s->shape[i] = msp_result_text(msp_buf_view(&r->shape[i]));
        ok = ok && s->dtype[i] != NULL && s->shape[i] != NULL;
    }
    if (!k->sides[0].statistics)
        describe_files(s, r, k->run->row_threads);
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

static void
judge_row(size_t i, void *payload)
{
    kernel *k = payload;
    msp_kernel_row *r = &k->rows[i];

    if (k->sides[0].statistics)
        msp_kernel_judge_statistics(r);
    else
        msp_kernel_judge_files(r, k->common);
}

static msp_status
write_row(kernel *k, msp_kernel_row *r, size_t number)
{
    msp_cell cells[MSP_KERNEL_COLUMNS];
    msp_status st = MSP_OK;

    if (!msp_kernel_show(cells, r, k->common, k->sides[0].statistics))
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
        msp_kernel_row_begin(&k->rows[i], k->pairs[first + i]);
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
    for (size_t i = 0; k->rows != NULL && i < k->nrows; i++)
        msp_kernel_row_release(&k->rows[i]);
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
