/* rank.c - see rank.h. */
#include "compare/merge/rank.h"

#include <stdlib.h>
#include "core/alloc.h"
#include "core/number.h"
#include "core/vec.h"
#include "report/read/table_read.h"

static const char *const real_metrics[] = {"Cosine",
                                           "EucDist",
                                           "MaxAbsErr",
                                           "MaxRelativeErr",
                                           "One Thousandth Err Ratio",
                                           "Five Thousandths Err Ratio",
                                           "Requires_grad Consistent",
                                           NULL};
static const char *const statistics_metrics[] = {"Max diff",
                                                 "Min diff",
                                                 "Mean diff",
                                                 "L2norm diff",
                                                 "MaxRelativeErr",
                                                 "MinRelativeErr",
                                                 "MeanRelativeErr",
                                                 "NormRelativeErr",
                                                 "Requires_grad Consistent",
                                                 NULL};

/* ---- the header -------------------------------------------------------------------------------------------------- */

static msp_str
text_of(const msp_cell *c)
{
    return c->kind == MSP_CELL_TEXT ? (msp_str){c->as.text.p, c->as.text.len} : (msp_str){0};
}

/* The column with this title, under either spelling. */
static bool
find_column(const msp_cell *cells, size_t count, const char *title, size_t *out)
{
    for (size_t i = 0; i < count; i++)
        if (msp_str_eq(msp_merge_metric_name(text_of(&cells[i])), msp_str_of(title))) {
            *out = i;
            return true;
        }
    return false;
}

static void
take_metrics(msp_merge_rank *r, const msp_cell *cells, size_t count, const char *const *titles)
{
    for (; *titles != NULL; titles++)
        if (find_column(cells, count, *titles, &r->metric_column[r->nmetrics]))
            r->metrics[r->nmetrics++] = msp_str_of(*titles);
}

static msp_status
take_header(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    msp_merge_rank *r = payload;
    size_t unused;

    r->use = MSP_MERGE_USED;
    if (find_column(cells, count, "NPU MD5", &unused))
        r->use = MSP_MERGE_MD5;
    else if (find_column(cells, count, "Cosine", &unused))
        take_metrics(r, cells, count, real_metrics);
    else if (find_column(cells, count, "Max diff", &unused))
        take_metrics(r, cells, count, statistics_metrics);
    else
        r->use = MSP_MERGE_UNKNOWN;
    if (r->use == MSP_MERGE_USED && !(find_column(cells, count, "NPU Name", &r->name_column) &&
                                      find_column(cells, count, "NPU max", &r->max_column[0]) &&
                                      find_column(cells, count, "Bench max", &r->max_column[1])))
        r->use = MSP_MERGE_UNKNOWN;
    if (r->use != MSP_MERGE_USED) /* nothing else in it is of interest */
        return msp_error_set(err, MSP_E_CANCELLED, "not a table to merge");
    return MSP_OK;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* A cell as Python prints what openpyxl reads from it: whole numbers without a point, booleans in words. */
static void
put_cell(msp_buf *b, const msp_cell *c)
{
    char number[32];
    size_t n;

    switch (c->kind) {
    case MSP_CELL_EMPTY:
        msp_buf_text(b, "N/A");
        break;
    case MSP_CELL_TEXT:
        msp_buf_str(b, text_of(c));
        break;
    case MSP_CELL_INT:
        msp_buf_add(b, number, msp_i64_text(number, c->as.i));
        break;
    case MSP_CELL_FLOAT:
        n = msp_f64_repr(number, c->as.f);
        msp_buf_add(b, number, n > 2 && memcmp(number + n - 2, ".0", 2) == 0 ? n - 2 : n);
        break;
    case MSP_CELL_BOOL:
        msp_buf_text(b, c->as.b ? "True" : "False");
        break;
    }
}

/* Our own tables write a metric that came out as not-a-number in lower case. */
static bool
says_nothing(const msp_cell *c)
{
    static const char *const texts[] = {"N/A", "unsupported", "Nan", "nan"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (c->kind == MSP_CELL_TEXT && msp_str_eq(text_of(c), msp_str_of(texts[i])))
            return true;
    return false;
}

static const msp_cell *
cell_at(const msp_cell *cells, size_t count, size_t i)
{
    static const msp_cell empty = {0};

    return i < count ? &cells[i] : &empty;
}

/* The cell itself, or both maxima where it holds no value; its text copied. False when there is no memory. */
static bool
keep_value(msp_merge_rank *r, msp_cell *out, const msp_cell *cells, size_t count, size_t column)
{
    const msp_cell *c = cell_at(cells, count, column);
    msp_buf text = {0};
    char *copy;

    *out = *c;
    if (says_nothing(c)) {
        msp_buf_text(&text, "NPU:");
        put_cell(&text, cell_at(cells, count, r->max_column[0]));
        msp_buf_text(&text, "  Bench:");
        put_cell(&text, cell_at(cells, count, r->max_column[1]));
    } else if (c->kind == MSP_CELL_TEXT) {
        msp_buf_str(&text, text_of(c));
    } else {
        return true;
    }
    copy = text.failed ? NULL : msp_arena_text(&r->arena, text.p, text.len);
    *out = msp_cell_text(copy, text.len);
    msp_buf_release(&text);
    return copy != NULL;
}

static bool
keep_row(msp_merge_rank *r, msp_str name, size_t api, const msp_cell *cells, size_t count)
{
    msp_cell *values = msp_arena_alloc(&r->arena, r->nmetrics, sizeof(*values));
    char *copy = msp_arena_text(&r->arena, name.p, name.len);
    bool ok = values != NULL && copy != NULL;

    for (size_t i = 0; i < r->nmetrics && ok; i++)
        ok = keep_value(r, &values[i], cells, count, r->metric_column[i]);
    if (!ok || !msp_vec_grow((void **)&r->rows, &r->cap, r->count + 1, sizeof(*r->rows)))
        return false;
    r->rows[r->count] = (msp_merge_row){{copy, name.len}, api, values};
    return msp_map_put(&r->by_name, r->rows[r->count++].name, 0, NULL) != NULL;
}

static msp_status
take_row(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    msp_merge_rank *r = payload;
    msp_str name = text_of(cell_at(cells, count, r->name_column));
    size_t api = r->config->napis;

    r->table_rows++;
    for (size_t i = r->config->napis; i-- > 0;)
        if (msp_str_find(name, r->config->apis[i]) != NULL) {
            r->found[i] = true;
            api = i;
        }
    if (api == r->config->napis || msp_map_get(&r->by_name, name) != NULL)
        return MSP_OK;
    return keep_row(r, name, api, cells, count) ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* Rows were added in the table's order: a stable sort by API, one pass per API. */
static bool
sort_rows(msp_merge_rank *r)
{
    msp_merge_row *sorted = msp_alloc(r->count, sizeof(*sorted));
    size_t n = 0;

    if (sorted == NULL)
        return false;
    for (size_t api = 0; api < r->config->napis; api++)
        for (size_t i = 0; i < r->count; i++)
            if (r->rows[i].api == api)
                sorted[n++] = r->rows[i];
    msp_free(r->rows);
    r->rows = sorted;
    for (size_t i = 0; i < r->count; i++)
        msp_map_get(&r->by_name, sorted[i].name)->value = (int64_t)i;
    return true;
}

void
msp_merge_rank_read(msp_merge_rank *out, const msp_merge_config *config, const char *path)
{
    const msp_table_sink sink = {take_header, take_row, out};
    msp_status st = MSP_OK;

    *out = (msp_merge_rank){.config = config, .use = MSP_MERGE_EMPTY};
    out->found = msp_alloc_zero(config->napis, sizeof(*out->found));
    if (out->found != NULL)
        st = msp_table_read(path, &sink, &out->error);
    if (st == MSP_OK && (out->found == NULL || !sort_rows(out)))
        st = msp_error_set(&out->error, MSP_E_NOMEM, "%s: out of memory", path);
    if (st == MSP_E_CANCELLED)
        return; /* by take_header(), which said why */
    if (st != MSP_OK)
        out->use = MSP_MERGE_FAILED;
    else if (out->table_rows == 0)
        out->use = MSP_MERGE_EMPTY;
}

void
msp_merge_rank_release(msp_merge_rank *r)
{
    msp_map_release(&r->by_name);
    msp_arena_release(&r->arena);
    msp_free(r->rows);
    msp_free(r->found);
    *r = (msp_merge_rank){0};
}

size_t
msp_merge_rank_metric(const msp_merge_rank *r, msp_str name)
{
    size_t i = 0;

    while (i < r->nmetrics && !msp_str_eq(r->metrics[i], name))
        i++;
    return i;
}
