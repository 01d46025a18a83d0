/*
 * json.c - tables as one object: {"columns": [...], "rows": [[...], ...]}, a row per line.
 *
 * The first sheet's members stand at the top, where a reader of an ordinary result expects them. Further sheets follow
 * in a list: {"columns": ..., "rows": ..., "name": "first", "sheets": [{"name": ..., "columns": ..., "rows": ...}]}.
 */
#include <math.h>
#include "core/alloc.h"
#include "text/json.h"
#include "report/write/writer.h"

typedef struct json_table {
    msp_table base;
    char *first_name;
    bool any_row; /* in the current sheet */
} json_table;

static void
put_cell(msp_json_writer *w, const msp_cell *c)
{
    switch (c->kind) {
    case MSP_CELL_EMPTY:
        msp_json_write_null(w);
        break;
    case MSP_CELL_TEXT:
        msp_json_write_string(w, (msp_str){c->as.text.p, c->as.text.len});
        break;
    case MSP_CELL_INT:
        msp_json_write_i64(w, c->as.i);
        break;
    case MSP_CELL_FLOAT: {
        char text[32];

        if (isfinite(c->as.f))
            msp_json_write_f64(w, c->as.f);
        else
            msp_json_write_string(w, (msp_str){text, msp_f64_repr(text, c->as.f)});
        break;
    }
    case MSP_CELL_BOOL:
        msp_json_write_bool(w, c->as.b);
        break;
    }
}

static void
put_string(msp_buf *b, const char *text)
{
    msp_json_writer w;

    msp_json_writer_init(&w, b, -1);
    msp_json_write_string(&w, msp_str_of(text));
}

static void
put_columns(msp_table *t, const msp_column *columns)
{
    msp_json_writer w;

    msp_buf_text(&t->out, "\"columns\": ");
    msp_json_writer_init(&w, &t->out, -1);
    msp_json_begin_array(&w);
    for (size_t i = 0; i < t->ncolumns; i++)
        msp_json_write_string(&w, msp_str_of(columns[i].title));
    msp_json_end_array(&w);
    msp_buf_text(&t->out, ",\n\"rows\": [");
}

static msp_status
begin_first(json_table *j, const char *name, msp_error *err)
{
    j->first_name = msp_str_copy(msp_str_of(name));
    if (j->first_name == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", j->base.file.path);
    msp_buf_char(&j->base.out, '{');
    return MSP_OK;
}

static void
begin_further(json_table *j, const char *name)
{
    msp_buf *b = &j->base.out;

    if (j->base.sheets == 2) {
        msp_buf_text(b, ",\n\"name\": ");
        put_string(b, j->first_name);
        msp_buf_text(b, ",\n\"sheets\": [\n");
    } else {
        msp_buf_text(b, ",\n");
    }
    msp_buf_text(b, "{\"name\": ");
    put_string(b, name);
    msp_buf_text(b, ",\n");
}

static msp_status
json_begin(msp_table *t, const char *name, const msp_column *columns, msp_error *err)
{
    json_table *j = (json_table *)t;

    if (t->sheets == 1) {
        msp_status st = begin_first(j, name, err);

        if (st != MSP_OK)
            return st;
    } else {
        begin_further(j, name);
    }
    put_columns(t, columns);
    j->any_row = false;
    return msp_table_flush(t, MSP_TABLE_CHUNK, err);
}

static msp_status
json_row(msp_table *t, const msp_cell *cells, msp_row_colour colour, msp_error *err)
{
    json_table *j = (json_table *)t;
    msp_json_writer w;

    (void)colour;
    msp_buf_text(&t->out, j->any_row ? ",\n" : "\n");
    j->any_row = true;
    msp_json_writer_init(&w, &t->out, -1);
    msp_json_begin_array(&w);
    for (size_t i = 0; i < t->ncolumns; i++)
        put_cell(&w, &cells[i]);
    msp_json_end_array(&w);
    return msp_table_flush(t, MSP_TABLE_CHUNK, err);
}

static msp_status
json_end_sheet(msp_table *t, msp_error *err)
{
    msp_buf_text(&t->out, t->sheets > 1 ? "]}" : "]");
    return msp_table_flush(t, MSP_TABLE_CHUNK, err);
}

static msp_status
json_end(msp_table *t, msp_error *err)
{
    msp_buf_text(&t->out, t->sheets > 1 ? "]}\n" : "}\n");
    return msp_table_flush(t, MSP_TABLE_CHUNK, err);
}

static void
json_release(msp_table *t)
{
    msp_free(((json_table *)t)->first_name);
}

const msp_table_kind msp_json_table = {.size = sizeof(json_table),
                                       .many_sheets = true,
                                       .begin_sheet = json_begin,
                                       .row = json_row,
                                       .end_sheet = json_end_sheet,
                                       .end = json_end,
                                       .release = json_release};
