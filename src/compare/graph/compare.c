/*
 * compare.c - one pair of static-graph folders: tensors meet by key, are measured, judged and written.
 *
 * Every tensor of both sides has a row, in the order of the keys, or of the NPU side's statistic.csv; rows are worked
 * on in blocks by the pool.
 */
#include <stdio.h>
#include <stdlib.h>
#include "compare/graph/row.h"
#include "compare/pair/outputs.h"
#include "compare/explain/suspect.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/path.h"
#include "core/pool.h"
#include "core/vec.h"

enum { BLOCK_ROWS = 256 };

typedef struct graph {
    msp_run *run;
    const msp_plan_pair *plan;
    msp_compare_pair *out;
    msp_error *err;
    bool common;
    msp_graph_items sides[2];
    msp_graph_row *rows; /* one block */
    size_t nrows;
    const msp_graph_item *(*pairs)[2]; /* all rows */
    size_t npairs, cap;
    msp_table *tables[MSP_OUTPUTS_FORMATS];
    char *paths[MSP_OUTPUTS_FORMATS];
    size_t ntables;
    int64_t first_wrong; /* row number, -1: none yet */
    int64_t cut;         /* rows of which a file was cut short while it was read */
} graph;

static msp_status
no_memory(graph *g)
{
    return msp_error_set(g->err, MSP_E_NOMEM, "out of memory");
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

static msp_status
add_pair(graph *g, const msp_graph_item *n, const msp_graph_item *b)
{
    if (!msp_vec_grow((void **)&g->pairs, &g->cap, g->npairs + 1, sizeof(*g->pairs)))
        return no_memory(g);
    g->pairs[g->npairs][0] = n;
    g->pairs[g->npairs++][1] = b;
    g->out->counts.matched += n != NULL && b != NULL;
    g->out->counts.unmatched += n != NULL && b == NULL;
    g->out->counts.bench_only += n == NULL;
    return MSP_OK;
}

static msp_status
merge_sides(graph *g)
{
    const msp_graph_items *n = &g->sides[0], *b = &g->sides[1];
    size_t i = 0, m = 0;
    msp_status st = MSP_OK;

    while (st == MSP_OK && (i < n->count || m < b->count)) {
        int order = i == n->count ? 1 : m == b->count ? -1 : msp_str_cmp(n->items[i].key, b->items[m].key);

        if (order == 0)
            st = add_pair(g, &n->items[i++], &b->items[m++]);
        else if (order < 0)
            st = add_pair(g, &n->items[i++], NULL);
        else
            /* plain folders are compared as far as the NPU side goes */
            st = g->common ? (m++, MSP_OK) : add_pair(g, NULL, &b->items[m++]);
    }
    return st;
}

/* Rows as the NPU side's table has them, then those of the bench alone. */
static int
by_place(const void *a, const void *b)
{
    const msp_graph_item *const *x = a, *const *y = b;
    size_t i = x[0] != NULL ? x[0]->place : x[1]->place, k = y[0] != NULL ? y[0]->place : y[1]->place;

    if ((x[0] == NULL) != (y[0] == NULL))
        return x[0] == NULL ? 1 : -1;
    return (i > k) - (i < k);
}

/* map_dict: keys of the NPU side that the bench calls differently. */
static void
rename_keys(graph *g)
{
    const msp_compare_options *opt = g->run->opt;

    for (size_t i = 0; i < g->sides[0].count; i++)
        for (size_t m = 0; m < opt->nmap_dict; m++)
            if (msp_str_eq(g->sides[0].items[i].key, msp_str_of(opt->map_dict[m][0])))
                g->sides[0].items[i].key = msp_str_of(opt->map_dict[m][1]);
    msp_graph_sort(&g->sides[0]);
}

static msp_status
read_sides(graph *g)
{
    msp_status st = msp_graph_read(&g->sides[0], g->plan->npu, g->plan->nnpu, g->common, g->err);

    if (st == MSP_OK)
        st = msp_graph_read(&g->sides[1], g->plan->bench, g->plan->nbench, g->common, g->err);
    if (st != MSP_OK)
        return st;
    for (int i = 0; i < 2; i++)
        if (g->sides[i].count == 0)
            return msp_error_set(g->err, MSP_E_NOT_FOUND, "%s: neither .npy files nor a statistic.csv with rows",
                                 (i == 0 ? g->plan->npu : g->plan->bench)->path);
    if (g->sides[0].statistics != g->sides[1].statistics)
        return msp_error_set(g->err, MSP_E_INVALID, "%s has statistic.csv and %s has .npy files: collect both alike",
                             g->sides[0].statistics ? g->plan->npu->path : g->plan->bench->path,
                             g->sides[0].statistics ? g->plan->bench->path : g->plan->npu->path);
    g->out->mode = g->sides[0].statistics ? MSP_MODE_STATISTICS : MSP_MODE_REAL;
    g->out->has_tensors = !g->sides[0].statistics;
    if (g->common && g->run->opt->nmap_dict > 0)
        rename_keys(g);
    st = merge_sides(g);
    if (st == MSP_OK && g->sides[0].statistics && g->npairs > 0)
        qsort(g->pairs, g->npairs, sizeof(*g->pairs), by_place);
    return st;
}

/* ---- tables -------------------------------------------------------------------------------------------------- */

/* Plain folders have the result under one name; where it is taken, the time is added. */
static char *
result_path(const graph *g, const char *ext)
{
    char *plain = g->common ? msp_plan_file(g->plan->out_dir, g->plan->stem, NULL, ext) : NULL;

    if (plain != NULL && msp_path_kind_of(plain) == MSP_PATH_NONE)
        return plain;
    msp_free(plain);
    return msp_plan_file(g->plan->out_dir, g->plan->stem, g->run->timestamp, ext);
}

static msp_status
open_tables(graph *g)
{
    const msp_outputs_format *formats = msp_outputs_formats;
    unsigned wanted = g->run->opt->formats;
    msp_table_options opt = {.total_rows = (int64_t)g->npairs, .threads = g->run->opt->threads};
    msp_column columns[MSP_GRAPH_COLUMNS];
    size_t ncolumns = msp_graph_columns(columns, g->common, g->sides[0].statistics);
    msp_status st = msp_path_make_dirs(g->plan->out_dir, g->err);

    if (wanted == 0)
        wanted = g->common ? MSP_COMPARE_CSV : MSP_COMPARE_XLSX;
    for (size_t i = 0; st == MSP_OK && i < MSP_OUTPUTS_FORMATS; i++) {
        size_t t = g->ntables;

        if ((wanted & formats[i].bit) == 0)
            continue;
        g->paths[t] = result_path(g, formats[i].ext);
        if (g->paths[t] == NULL)
            return no_memory(g);
        g->ntables++;
        st = msp_table_open(&g->tables[t], g->paths[t], formats[i].format, columns, ncolumns, &opt, g->err);
    }
    return st;
}

static msp_status
finish_tables(graph *g)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; st == MSP_OK && i < g->ntables; i++) {
        st = msp_table_finish(g->tables[i], g->err);
        if (st == MSP_OK && !msp_result_add(&g->out->files, &g->out->nfiles, msp_str_of(g->paths[i])))
            st = no_memory(g);
    }
    return st;
}

/* ---- counting and the first wrong row ------------------------------------------------------------------------ */

static void
count_row(graph *g, const msp_graph_row *r, size_t number)
{
    msp_compare_counts *c = &g->out->counts;

    c->rows++;
    c->yes += r->j.verdict == VERDICT_YES;
    c->no += r->j.verdict == VERDICT_NO;
    c->none += r->j.verdict == VERDICT_NONE;
    c->shape_unmatched += r->j.verdict == VERDICT_UNMATCHED;
    c->unreadable += r->j.unreadable;
    g->cut += r->cut;
    c->wrong += msp_verdict_wrong(r->j.verdict);
    g->out->tensor_bytes += r->j.bytes;
    if (msp_verdict_wrong(r->j.verdict) && g->first_wrong < 0)
        g->first_wrong = (int64_t)number;
}

static void
describe_files(msp_compare_suspect *s, const msp_graph_row *r, int threads)
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
describe_suspect(graph *g, const msp_graph_row *r)
{
    msp_compare_suspect *s = &g->out->suspect;
    bool ok = true;

    s->found = true;
    s->row = g->first_wrong;
    s->npu_name = msp_result_text(msp_graph_item_name(r->side[0], g->sides[0].statistics));
    s->bench_name = msp_result_text(msp_graph_item_name(r->side[1], g->sides[0].statistics));
    s->api = msp_result_text(r->side[0]->key);
    s->verdict = msp_result_text(msp_str_of(msp_verdict_text(r->j.verdict)));
    s->message = msp_result_text(msp_buf_view(&r->j.message));
    for (int i = 0; i < 2; i++) {
        s->dtype[i] = msp_result_text(msp_buf_view(&r->dtype[i]));
        s->shape[i] = msp_result_text(msp_buf_view(&r->shape[i]));
        ok = ok && s->dtype[i] != NULL && s->shape[i] != NULL;
    }
    if (!g->sides[0].statistics)
        describe_files(s, r, g->run->row_threads);
    for (int i = 0; g->sides[0].statistics && i < MSP_NSTATS; i++) {
        s->stats[0][i] = cell_copy(&r->stats[0][i]);
        s->stats[1][i] = cell_copy(&r->stats[1][i]);
        s->diff[i] = num_text(&r->j.diff[i], "");
        s->rel[i] = num_text(&r->j.rel[i], "%");
        ok = ok && s->stats[0][i] != NULL && s->stats[1][i] != NULL && s->diff[i] != NULL && s->rel[i] != NULL;
    }
    if (!ok || s->npu_name == NULL || s->bench_name == NULL || s->api == NULL || s->verdict == NULL ||
        s->message == NULL)
        return no_memory(g);
    return MSP_OK;
}

/* ---- blocks -------------------------------------------------------------------------------------------------- */

static void
judge_row(size_t i, void *payload)
{
    graph *g = payload;
    msp_graph_row *r = &g->rows[i];

    if (g->sides[0].statistics)
        msp_graph_judge_statistics(r);
    else
        msp_graph_judge_files(r, g->common);
}

static msp_status
write_row(graph *g, msp_graph_row *r, size_t number)
{
    msp_cell cells[MSP_GRAPH_COLUMNS];
    msp_status st = MSP_OK;

    if (!msp_graph_show(cells, r, g->common, g->sides[0].statistics))
        return no_memory(g);
    for (size_t i = 0; st == MSP_OK && i < g->ntables; i++)
        st = msp_table_row(g->tables[i], cells, MSP_ROW_PLAIN, g->err);
    if (st == MSP_OK)
        count_row(g, r, number);
    if (st == MSP_OK && g->first_wrong == (int64_t)number)
        st = describe_suspect(g, r);
    return st;
}

static msp_status
compare_block(graph *g, size_t first)
{
    size_t n = g->npairs - first < BLOCK_ROWS ? g->npairs - first : BLOCK_ROWS;
    int64_t bytes = g->out->tensor_bytes;
    msp_status st = MSP_OK;

    for (size_t i = 0; i < n; i++)
        msp_graph_row_begin(&g->rows[i], g->pairs[first + i]);
    msp_pool_run(n, g->run->row_threads, judge_row, g);
    for (size_t i = 0; st == MSP_OK && i < n; i++)
        st = write_row(g, &g->rows[i], first + i);
    if (st == MSP_OK && !msp_run_progress(g->run, "compare", g->plan->label, (int64_t)n, g->out->tensor_bytes - bytes))
        st = msp_error_set(g->err, MSP_E_CANCELLED, "cancelled");
    return st;
}

static msp_status
compare_rows(graph *g)
{
    msp_status st = open_tables(g);

    g->nrows = g->npairs < BLOCK_ROWS ? g->npairs : BLOCK_ROWS;
    g->rows = msp_alloc_zero(g->nrows, sizeof(*g->rows));
    if (st == MSP_OK && g->rows == NULL)
        st = no_memory(g);
    msp_run_expect(g->run, (int64_t)g->npairs, 0);
    for (size_t i = 0; st == MSP_OK && i < g->npairs; i += BLOCK_ROWS)
        st = compare_block(g, i);
    if (st == MSP_OK)
        st = finish_tables(g);
    if (st == MSP_OK && g->cut > 0)
        st = msp_error_set(g->err, MSP_E_CHANGED,
                           "tensor files of %lld rows were cut short while they were read: are they still being "
                           "written or copied? The others are compared",
                           (long long)g->cut);
    if (st == MSP_OK && g->out->counts.matched == 0)
        st = msp_error_set(g->err, MSP_E_NOT_FOUND,
                           "no tensor of %s has a partner in %s: are both of the same model and step?",
                           g->plan->npu->path, g->plan->bench->path);
    return st;
}

static void
release_graph(graph *g)
{
    for (size_t i = 0; i < 3; i++) {
        msp_table_close(g->tables[i]);
        msp_free(g->paths[i]);
    }
    for (size_t i = 0; g->rows != NULL && i < g->nrows; i++)
        msp_graph_row_release(&g->rows[i]);
    msp_free(g->rows);
    msp_free(g->pairs);
    msp_graph_items_release(&g->sides[0]);
    msp_graph_items_release(&g->sides[1]);
}

void
msp_graph_compare(msp_run *run, const msp_plan_pair *plan, msp_compare_pair *out)
{
    msp_error err = {MSP_OK, ""};
    graph g = {.run = run, .plan = plan, .out = out, .err = &err, .common = run->opt->common, .first_wrong = -1};
    double start = msp_clock_seconds();

    out->status = read_sides(&g);
    if (out->status == MSP_OK)
        out->status = compare_rows(&g);
    if (out->status != MSP_OK)
        out->error = msp_result_text(msp_str_of(err.message));
    release_graph(&g);
    out->seconds = msp_clock_seconds() - start;
}
