/* outputs.c - see outputs.h. */
#include "compare/pair/outputs.h"
#include "compare/pair/verdict_table.h"

#include "compare/legacy/legacy.h"
#include "compare/run/run.h"
#include "compare/run/stamp.h"
#include "core/alloc.h"
#include "core/path.h"
#include "report/write/writer.h"

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

/* The name of the next file, owned by o. */
static msp_status
add_path(msp_outputs *o, const char *ext, msp_error *err)
{
    char *path = o->rule.file != NULL ? msp_result_text(msp_str_of(o->rule.file))
                                      : msp_plan_file(o->rule.dir, o->rule.stem, o->rule.timestamp, ext);

    if (path == NULL)
        return no_memory(err);
    o->paths[o->count++] = path;
    return MSP_OK;
}

static msp_status
open_table(msp_outputs *o, msp_table_format format, const char *ext, msp_error *err)
{
    msp_table_options opt = {.total_rows = o->rule.rows, .threads = o->rule.threads};
    size_t i = o->count;
    msp_status st = add_path(o, ext, err);

    if (st != MSP_OK)
        return st;
    if (format == MSP_TABLE_CSV)
        o->csv = i;
    if (format == MSP_TABLE_XLSX)
        o->xlsx = i;
    return msp_table_open(&o->tables[i], o->paths[i], format, o->columns, o->ncolumns, &opt, err);
}

static msp_status
open_tables(msp_outputs *o, msp_error *err)
{
    const msp_outputs_format *formats = msp_outputs_formats;
    unsigned wanted = o->rule.formats != 0 ? o->rule.formats : MSP_COMPARE_XLSX;
    msp_status st = MSP_OK;

    for (size_t i = 0; i < 3 && st == MSP_OK; i++)
        if ((wanted & formats[i].bit) != 0)
            st = open_table(o, formats[i].format, formats[i].ext, err);
    return st;
}

static msp_status
open_analysis(msp_outputs *o, msp_error *err)
{
    msp_status st = add_path(o, "json", err);

    return st != MSP_OK
               ? st
               : msp_da_rank_open(&o->da, o->paths[0], o->rule.mode, o->rule.rank, o->columns, o->ncolumns, err);
}

msp_status
msp_outputs_open(msp_outputs *out, const msp_outputs_rule *rule, msp_error *err)
{
    msp_status st;

    *out = (msp_outputs){.rule = *rule, .xlsx = SIZE_MAX, .csv = SIZE_MAX};
    out->ncolumns = rule->legacy != NULL
                        ? msp_legacy_columns(out->columns, rule->mode, rule->legacy, rule->stack != NULL)
                        : msp_show_columns(out->columns, rule->mode, rule->stack != NULL);
    if (rule->nothing)
        return MSP_OK;
    st = rule->file != NULL ? MSP_OK : msp_path_make_dirs(rule->dir, err);
    if (st == MSP_OK)
        st = rule->diff_analyze ? open_analysis(out, err) : open_tables(out, err);
    return msp_stamp_advise(err, st);
}

/* The frames as texts, on the first row of a call; NULL when there are none. */
static msp_status
frames_of(const msp_outputs *o, const msp_row *row, msp_str **out, size_t *n, msp_error *err)
{
    const msp_row_api *api = &o->rule.sides[0]->apis[row->api];
    const msp_json *frames = NULL;

    *out = NULL;
    *n = 0;
    if (row == &o->rule.sides[0]->rows[api->first])
        frames = msp_stack_frames(o->rule.stack, api->name);
    if (frames == NULL)
        return MSP_OK;
    *n = msp_json_count(frames);
    *out = msp_alloc(*n, sizeof(**out));
    if (*out == NULL)
        return no_memory(err);
    for (size_t i = 0; i < *n; i++)
        (*out)[i] = msp_json_string(msp_json_at(frames, i));
    return MSP_OK;
}

static msp_status
write_da_row(msp_outputs *o, const msp_judged *j, const msp_cell *cells, msp_error *err)
{
    const msp_row *rows[2] = {j->n, j->b};
    msp_da_row row = {.api = o->rule.sides[0]->apis[j->n->api].name,
                      .state = msp_str_of(msp_row_state_text(j->n->state)),
                      .cells = cells};
    msp_str *stack;
    msp_status st = frames_of(o, j->n, &stack, &row.nstack, err);

    if (st != MSP_OK)
        return st;
    row.stack = stack;
    for (int i = 0; i < 2; i++)
        if (rows[i] != NULL && rows[i]->p2p > 0) {
            row.p2p_op[i] = o->rule.sides[i]->p2p[rows[i]->p2p - 1].op;
            row.p2p_peer[i] = o->rule.sides[i]->p2p[rows[i]->p2p - 1].peer;
        }
    st = msp_da_rank_row(o->da, &row, err);
    msp_free(stack);
    return st;
}

static msp_status
write_row(msp_outputs *o, bool csv, const msp_judged *j, const msp_shown *s, msp_error *err)
{
    msp_cell coloured[SHOW_MAX_COLUMNS];
    msp_status st = MSP_OK;

    if (o->da != NULL)
        return write_da_row(o, j, s->cells, err);
    for (size_t i = 0; i < o->count && st == MSP_OK; i++) {
        const msp_cell *cells;

        if (i == o->csv && !csv)
            continue;
        cells = s->cells;
        if (i == o->xlsx && o->rule.coloured) {
            for (size_t k = 0; k < o->ncolumns; k++)
                coloured[k] = msp_show_as_text(s->cells[k]);
            cells = coloured;
        }
        st = msp_table_row(o->tables[i], cells, j->colour, err);
    }
    return st;
}

msp_status
msp_outputs_row(msp_outputs *o, const msp_judged *j, const msp_shown *s, msp_error *err)
{
    return write_row(o, true, j, s, err);
}

msp_status
msp_outputs_row_no_line(msp_outputs *o, const msp_judged *j, const msp_shown *s, msp_error *err)
{
    return write_row(o, false, j, s, err);
}

bool
msp_outputs_wants_lines(const msp_outputs *o)
{
    return o->csv != SIZE_MAX;
}

bool
msp_outputs_only_lines(const msp_outputs *o)
{
    return o->csv == 0 && o->count == 1;
}

void
msp_outputs_line(const msp_outputs *o, const msp_shown *s, msp_buf *out)
{
    msp_csv_line(out, s->cells, o->ncolumns);
}

msp_status
msp_outputs_lines(msp_outputs *o, msp_str lines, msp_error *err)
{
    return msp_table_lines(o->tables[o->csv], lines, err);
}

static bool
has_verdict(const msp_outputs *o, const msp_compare_pair *p)
{
    return p->answer.sentence != NULL && o->da == NULL && o->rule.legacy == NULL;
}

msp_status
msp_outputs_verdict_sheet(msp_outputs *o, const msp_compare_pair *p, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; has_verdict(o, p) && i < o->count && st == MSP_OK; i++)
        if (i != o->csv)
            st = msp_verdict_sheet(o->tables[i], p, i == o->xlsx ? VERDICT_SHEET_RESULTS : SIZE_MAX, err);
    return st;
}

/* "<dir>/verdict_rank0_<time>.json" beside "<dir>/compare_result_rank0_<time>.csv". */
msp_status
msp_outputs_verdict_file(const msp_outputs *o, const msp_compare_pair *p, char ***files, size_t *nfiles, msp_error *err)
{
    const char *rest = strstr(o->rule.stem, "compare_result");
    msp_buf stem = {0};
    char *path;
    msp_status st;

    if (!has_verdict(o, p) || o->csv == SIZE_MAX)
        return MSP_OK;
    msp_buf_printf(&stem, "%.*sverdict%s", rest == NULL ? 0 : (int)(rest - o->rule.stem), o->rule.stem,
                   rest == NULL ? "" : rest + strlen("compare_result"));
    path = stem.failed ? NULL : msp_plan_file(o->rule.dir, stem.p, o->rule.timestamp, "json");
    msp_buf_release(&stem);
    if (path == NULL)
        return no_memory(err);
    st = msp_verdict_file(path, p, err);
    if (st == MSP_OK && !msp_result_add(files, nfiles, msp_str_of(path)))
        st = no_memory(err);
    msp_free(path);
    return st;
}

msp_status
msp_outputs_finish(msp_outputs *o, char ***files, size_t *nfiles, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; i < o->count && st == MSP_OK; i++) {
        st = o->da != NULL ? msp_da_rank_finish(o->da, err) : msp_table_finish(o->tables[i], err);
        if (st == MSP_OK && !msp_result_add(files, nfiles, msp_str_of(o->paths[i])))
            st = no_memory(err);
    }
    return st;
}

void
msp_outputs_close(msp_outputs *o)
{
    for (size_t i = 0; i < o->count; i++) {
        msp_table_close(o->tables[i]);
        msp_free(o->paths[i]);
    }
    msp_da_rank_close(o->da);
    *o = (msp_outputs){0};
}
