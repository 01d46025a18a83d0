/*
 * table.c - the life of a table, whatever its format: a temporary file, rows, and a rename at the end.
 *
 * The first failure is kept: every later call returns it, so that a caller who checks only msp_table_finish() still
 * learns the reason, and a table with a hole in it never reaches its final name.
 */
#include <assert.h>
#include "core/alloc.h"
#include "report/write/writer.h"

static const msp_table_kind *
kind_of(msp_table_format format)
{
    switch (format) {
    case MSP_TABLE_CSV:
        return &msp_csv_table;
    case MSP_TABLE_JSON:
        return &msp_json_table;
    case MSP_TABLE_XLSX:
        return &msp_xlsx_table;
    }
    return NULL;
}

static msp_status
remember_error(msp_table *t, msp_status st, const msp_error *e, msp_error *err)
{
    if (st == MSP_OK)
        return MSP_OK;
    if (t->failure.status == MSP_OK)
        t->failure = *e;
    if (err != NULL)
        *err = t->failure;
    return t->failure.status;
}

static msp_status
end_sheet(msp_table *t, msp_error *err)
{
    return t->kind->end_sheet != NULL ? t->kind->end_sheet(t, err) : MSP_OK;
}

static msp_status
begin_sheet(msp_table *t, const char *name, const msp_column *columns, size_t ncolumns, msp_error *err)
{
    msp_status st = MSP_OK;

    if (ncolumns == 0)
        return msp_error_set(err, MSP_E_INVALID, "%s: a table needs at least one column", t->file.path);
    if (t->sheets > 0)
        st = end_sheet(t, err);
    if (st != MSP_OK)
        return st;
    t->ncolumns = ncolumns;
    t->sheets++;
    return t->kind->begin_sheet(t, name, columns, err);
}

static msp_status
start_table(msp_table *t, const msp_column *columns, size_t ncolumns, const msp_table_options *opt, msp_error *err)
{
    msp_status st = MSP_OK;

    if (t->kind->init != NULL)
        st = t->kind->init(t, opt, err);
    if (st == MSP_OK)
        st = begin_sheet(t, opt->sheet != NULL ? opt->sheet : "Sheet1", columns, ncolumns, err);
    return st;
}

msp_status
msp_table_open(msp_table **out, const char *path, msp_table_format format, const msp_column *columns, size_t ncolumns,
               const msp_table_options *opt, msp_error *err)
{
    static const msp_table_options defaults = {0};
    const msp_table_kind *kind = kind_of(format);
    msp_status st;
    msp_table *t;

    *out = NULL;
    if (kind == NULL)
        return msp_error_set(err, MSP_E_INVALID, "%s: no table format has the number %d", path, (int)format);
    t = msp_alloc_zero(1, kind->size);
    if (t == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", path);
    t->kind = kind;
    t->file = MSP_FILE_NONE;
    st = msp_file_create(&t->file, path, 0640, err);
    if (st == MSP_OK)
        st = start_table(t, columns, ncolumns, opt != NULL ? opt : &defaults, err);
    if (st == MSP_OK)
        *out = t;
    else
        msp_table_close(t);
    return st;
}

msp_status
msp_table_row(msp_table *t, const msp_cell *cells, msp_row_colour colour, msp_error *err)
{
    msp_error e;

    assert(!t->finished);
    if (t->failure.status != MSP_OK)
        return remember_error(t, t->failure.status, &t->failure, err);
    return remember_error(t, t->kind->row(t, cells, colour, &e), &e, err);
}

static msp_status
add_lines(msp_table *t, msp_str lines, msp_error *err)
{
    msp_buf_str(&t->out, lines);
    return msp_table_flush(t, MSP_TABLE_CHUNK, err);
}

msp_status
msp_table_lines(msp_table *t, msp_str lines, msp_error *err)
{
    msp_error e;

    assert(!t->finished && t->kind == &msp_csv_table);
    if (t->failure.status != MSP_OK)
        return remember_error(t, t->failure.status, &t->failure, err);
    return remember_error(t, add_lines(t, lines, &e), &e, err);
}

msp_status
msp_table_sheet(msp_table *t, const char *name, const msp_column *columns, size_t ncolumns, msp_error *err)
{
    msp_error e;

    assert(!t->finished);
    if (t->failure.status != MSP_OK)
        return remember_error(t, t->failure.status, &t->failure, err);
    if (!t->kind->many_sheets)
        return msp_error_set(err, MSP_E_UNSUPPORTED, "%s: a csv file holds one sheet only", t->file.path);
    return remember_error(t, begin_sheet(t, name, columns, ncolumns, &e), &e, err);
}

msp_status
msp_table_finish(msp_table *t, msp_error *err)
{
    msp_status st = t->failure.status;
    msp_error e = t->failure;

    assert(!t->finished);
    if (st == MSP_OK)
        st = end_sheet(t, &e);
    if (st == MSP_OK && t->kind->end != NULL)
        st = t->kind->end(t, &e);
    if (st == MSP_OK)
        st = msp_table_flush(t, 0, &e);
    if (st == MSP_OK)
        st = msp_file_commit(&t->file, &e);
    t->finished = true;
    return remember_error(t, st, &e, err);
}

void
msp_table_close(msp_table *t)
{
    if (t == NULL)
        return;
    if (t->kind->release != NULL)
        t->kind->release(t);
    msp_file_abandon(&t->file);
    msp_buf_release(&t->out);
    msp_free(t);
}

msp_status
msp_table_flush(msp_table *t, size_t least, msp_error *err)
{
    msp_status st = msp_buf_status(&t->out, err);

    if (st != MSP_OK)
        return msp_error_prefix(err, st, "%s: ", t->file.path);
    if (t->out.len <= least)
        return MSP_OK;
    st = msp_file_write(&t->file, t->out.p, t->out.len, err);
    msp_buf_clear(&t->out);
    return st;
}
