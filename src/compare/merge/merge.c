/*
 * merge.c - see msprobe/merge.h: read the ranks' tables (all at once, on the pool), decide which metrics and which
 * ranks there are, line the rows up by name, write one sheet per metric.
 */
#include "msprobe/merge.h"

#include <stdio.h>
#include "compare/merge/rank.h"
#include "compare/run/stamp.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/path.h"
#include "core/pool.h"
#include "core/vec.h"

typedef struct merge {
    const msp_merge_options *opt;
    msp_merge_result *result;
    msp_merge_config config;
    msp_merge_files files;
    msp_merge_rank *ranks; /* of the files, in their order */
    msp_str *metrics;      /* sheets: the configuration's, or those of the first rank that can be used */
    size_t nmetrics;
    msp_str every[MSP_MERGE_MAX_METRICS]; /* where metrics points in the second case */
    size_t *used;                         /* ranks that take part: the columns */
    size_t nused;
    msp_map names; /* rows: names of all ranks, in the order of the first that has them */
} merge;

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static void
read_rank(size_t index, void *payload)
{
    merge *m = payload;
    const msp_merge_file *f = &m->files.items[index];

    msp_info("Parsing rank%llu compare result...", f->rank);
    msp_merge_rank_read(&m->ranks[index], &m->config, f->path);
}

static msp_status
read_ranks(merge *m, msp_error *err)
{
    m->ranks = msp_alloc_zero(m->files.count, sizeof(*m->ranks));
    m->used = msp_alloc(m->files.count, sizeof(*m->used));
    if (m->ranks == NULL || m->used == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", m->opt->input_dir);
    msp_pool_run(m->files.count, m->opt->threads, read_rank, m);
    return MSP_OK;
}

/* ---- who takes part ---------------------------------------------------------------------------------------------- */

/* The metrics asked for that this rank's table does not have, as a list in braces; empty when it has them all. */
static void
list_missing(const merge *m, const msp_merge_rank *r, msp_buf *out)
{
    for (size_t i = 0; i < m->nmetrics; i++)
        if (msp_merge_rank_metric(r, m->metrics[i]) == r->nmetrics) {
            msp_buf_text(out, out->len == 0 ? "{'" : ", '");
            msp_buf_str(out, m->metrics[i]);
            msp_buf_char(out, '\'');
        }
    if (out->len > 0)
        msp_buf_char(out, '}');
}

static void
choose_metrics(merge *m, const msp_merge_rank *first)
{
    for (size_t i = 0; i < first->nmetrics; i++)
        m->every[i] = first->metrics[i];
    m->metrics = m->every;
    m->nmetrics = first->nmetrics;
}

static void
warn_of_apis(const merge *m, const msp_merge_rank *r, unsigned long long rank)
{
    for (size_t i = 0; i < m->config.napis; i++) {
        msp_str api = m->config.apis[i];

        if (!r->found[i])
            msp_warning("%.*s not found in rank%llu compare result.", (int)api.len - 1, api.p, rank);
    }
}

static void
leave_out(merge *m, unsigned long long rank, const char *why)
{
    m->result->left_out++;
    msp_warning("%s rank%llu compare result, please check! The compare result will not be shown in merged result.", why,
                rank);
}

static bool
has_all_metrics(merge *m, const msp_merge_rank *r, unsigned long long rank)
{
    msp_buf missing = {0};
    bool ok;

    list_missing(m, r, &missing);
    ok = missing.len == 0;
    if (!ok) {
        m->result->left_out++;
        msp_warning(
            "Compare indexes in rank%llu compare result are not consistent with those in other compare results or "
            "with compare_index, please check!",
            rank);
        msp_warning("The compare result will not be shown in merged result.");
        msp_warning("The invalid compare indexes: %s", missing.p);
    }
    msp_buf_release(&missing);
    return ok;
}

static void
admit_rank(merge *m, size_t index)
{
    const msp_merge_rank *r = &m->ranks[index];
    unsigned long long rank = m->files.items[index].rank;

    switch (r->use) {
    case MSP_MERGE_FAILED:
        m->result->failed++;
        msp_warning("%s", r->error.message);
        return;
    case MSP_MERGE_UNKNOWN:
        leave_out(m, rank, "A valid dump task can not be identified from");
        return;
    case MSP_MERGE_MD5:
        leave_out(m, rank, "There are checksums (md5) and no metrics in");
        return;
    case MSP_MERGE_EMPTY:
        leave_out(m, rank, "There is no data in");
        return;
    case MSP_MERGE_USED:
        break;
    }
    if (m->nmetrics == 0)
        choose_metrics(m, r);
    if (!has_all_metrics(m, r, rank))
        return;
    warn_of_apis(m, r, rank);
    m->used[m->nused++] = index;
}

static msp_status
admit_ranks(merge *m, msp_error *err)
{
    m->metrics = m->config.metrics;
    m->nmetrics = m->config.nmetrics;
    for (size_t i = 0; i < m->files.count; i++) {
        if (m->ranks[i].use == MSP_MERGE_FAILED && m->ranks[i].error.status == MSP_E_NOMEM)
            return msp_error_set(err, MSP_E_NOMEM, "%s", m->ranks[i].error.message);
        admit_rank(m, i);
    }
    return MSP_OK;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static msp_status
join_rows(merge *m, msp_error *err)
{
    for (size_t u = 0; u < m->nused; u++) {
        const msp_merge_rank *r = &m->ranks[m->used[u]];

        for (size_t i = 0; i < r->count; i++)
            if (msp_map_put(&m->names, r->rows[i].name, 0, NULL) == NULL)
                return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", m->opt->input_dir);
    }
    if (m->names.count > 0)
        return MSP_OK;
    msp_warning("Nothing to merge.");
    return msp_error_set(err, MSP_E_NOT_FOUND, "Nothing to merge: %s",
                         m->nused == 0 ? "no rank's compare result has the metrics asked for"
                                       : "no compare result has a row of the APIs asked for");
}

static msp_status
write_row(const merge *m, msp_table *t, size_t row, msp_str metric, msp_cell *cells, msp_error *err)
{
    msp_str name = m->names.entries[row].key;

    cells[0] = msp_cell_text(name.p, name.len);
    for (size_t u = 0; u < m->nused; u++) {
        const msp_merge_rank *r = &m->ranks[m->used[u]];
        const msp_map_entry *e = msp_map_get(&r->by_name, name);

        cells[u + 1] = e == NULL ? (msp_cell){0} : r->rows[e->value].values[msp_merge_rank_metric(r, metric)];
    }
    return msp_table_row(t, cells, MSP_ROW_PLAIN, err);
}

static msp_status
write_sheets(const merge *m, msp_table *t, const msp_column *columns, msp_cell *cells, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; i < m->nmetrics && st == MSP_OK; i++) {
        if (i > 0) {
            char name[64];

            snprintf(name, sizeof(name), "%.*s", (int)m->metrics[i].len, m->metrics[i].p);
            st = msp_table_sheet(t, name, columns, m->nused + 1, err);
        }
        for (size_t row = 0; row < m->names.count && st == MSP_OK; row++)
            st = write_row(m, t, row, m->metrics[i], cells, err);
    }
    return st;
}

static msp_status
write_table(const merge *m, const char *path, const msp_column *columns, msp_cell *cells, msp_error *err)
{
    char first[64];
    const msp_table_options opt = {.sheet = first, .total_rows = (int64_t)m->names.count, .threads = m->opt->threads};
    msp_table *t;
    msp_status st;

    snprintf(first, sizeof(first), "%.*s", (int)m->metrics[0].len, m->metrics[0].p);
    st = msp_table_open(&t, path, MSP_TABLE_XLSX, columns, m->nused + 1, &opt, err);
    if (st == MSP_OK)
        st = write_sheets(m, t, columns, cells, err);
    if (st == MSP_OK)
        st = msp_table_finish(t, err);
    msp_table_close(t);
    return st;
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

static char *
result_path(const msp_merge_options *opt, const char *stamp)
{
    char name[80];

    snprintf(name, sizeof(name), "multi_ranks_compare_merge_%s.xlsx", stamp);
    return msp_path_join(opt->output_dir, name);
}

/* The msp_stamp_taken of these options. */
static bool
is_taken(const char *stamp, void *payload)
{
    char *path = result_path(payload, stamp);
    bool taken = path != NULL && msp_path_kind_of(path) != MSP_PATH_NONE;

    msp_free(path);
    return taken;
}

static msp_status
write_result(merge *m, const char *stamp, msp_error *err)
{
    msp_column *columns = msp_alloc(m->nused + 1, sizeof(*columns));
    msp_cell *cells = msp_alloc(m->nused + 1, sizeof(*cells));
    char(*titles)[32] = msp_alloc(m->nused, sizeof(*titles));
    char *path = result_path(m->opt, stamp);
    msp_status st = MSP_OK;

    if (columns == NULL || cells == NULL || titles == NULL || path == NULL) {
        st = msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", m->opt->output_dir);
        goto done;
    }
    columns[0] = (msp_column){"NPU Name", 60};
    for (size_t u = 0; u < m->nused; u++) {
        snprintf(titles[u], sizeof(titles[u]), "rank%llu", m->files.items[m->used[u]].rank);
        columns[u + 1] = (msp_column){titles[u], 24};
    }
    st = write_table(m, path, columns, cells, err);
    if (st != MSP_OK)
        goto done;
    msp_info("The compare results of the multi-ranks are merged and saved in: %s.", path);
    m->result->path = path;
    m->result->ranks = m->nused;
    m->result->metrics = m->nmetrics;
    m->result->rows = m->names.count;
    path = NULL;
done:
    msp_free(columns);
    msp_free(cells);
    msp_free(titles);
    msp_free(path);
    return st;
}

static void
release_merge(merge *m)
{
    for (size_t i = 0; i < m->files.count && m->ranks != NULL; i++)
        msp_merge_rank_release(&m->ranks[i]);
    msp_free(m->ranks);
    msp_free(m->used);
    msp_map_release(&m->names);
    msp_merge_files_release(&m->files);
    msp_merge_config_release(&m->config);
}

msp_status
msp_merge_run(msp_merge_result *out, const msp_merge_options *opt, msp_error *err)
{
    merge m = {.opt = opt, .result = out};
    msp_stamp stamp = {0};
    msp_status st;

    *out = (msp_merge_result){0};
    st = msp_stamp_check(opt->timestamp, err);
    if (st == MSP_OK)
        st = msp_merge_config_load(&m.config, opt->config_path, err);
    if (st == MSP_OK)
        st = msp_merge_files_find(&m.files, opt->input_dir, err);
    if (st == MSP_OK)
        st = read_ranks(&m, err);
    if (st == MSP_OK)
        st = admit_ranks(&m, err);
    if (st == MSP_OK)
        st = join_rows(&m, err);
    if (st == MSP_OK)
        st = msp_stamp_claim(&stamp, &opt->output_dir, 1, opt->timestamp, is_taken, (void *)opt, err);
    if (st == MSP_OK)
        st = write_result(&m, stamp.text, err);
    msp_stamp_release(&stamp);
    release_merge(&m);
    return st;
}

void
msp_merge_result_release(msp_merge_result *r)
{
    msp_free(r->path);
    *r = (msp_merge_result){0};
}
