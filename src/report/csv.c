/* csv.c - tables as RFC 4180 says, with the line ends and the quoting that Python's csv module writes on Unix. */
#include "core/number.h"
#include "report/text.h"
#include "report/writer.h"

static bool
needs_quotes(msp_str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.p[i] == ',' || s.p[i] == '"' || s.p[i] == '\n' || s.p[i] == '\r')
            return true;
    return false;
}

static void
put_text(msp_buf *b, msp_str s)
{
    const char *quote;

    if (!needs_quotes(s)) {
        msp_text_add(b, s);
        return;
    }
    msp_buf_char(b, '"');
    while ((quote = memchr(s.p, '"', s.len)) != NULL) {
        size_t upto = (size_t)(quote - s.p) + 1;

        msp_text_add(b, (msp_str){s.p, upto});
        msp_buf_char(b, '"');
        s = (msp_str){s.p + upto, s.len - upto};
    }
    msp_text_add(b, s);
    msp_buf_char(b, '"');
}

static void
put_cell(msp_buf *b, const msp_cell *c)
{
    char number[32];

    switch (c->kind) {
    case MSP_CELL_EMPTY:
        break;
    case MSP_CELL_TEXT:
        put_text(b, (msp_str){c->as.text.p, c->as.text.len});
        break;
    case MSP_CELL_INT:
        msp_buf_add(b, number, msp_i64_text(number, c->as.i));
        break;
    case MSP_CELL_FLOAT:
        msp_buf_add(b, number, msp_f64_repr(number, c->as.f));
        break;
    case MSP_CELL_BOOL:
        msp_buf_text(b, c->as.b ? "True" : "False");
        break;
    }
}

/* A line that would be empty gets a pair of quotes: readers skip empty lines, and the row would be lost. */
static void
end_line(msp_table *t, size_t line_start)
{
    if (t->out.len == line_start)
        msp_buf_text(&t->out, "\"\"");
    msp_buf_char(&t->out, '\n');
}

static msp_status
csv_begin(msp_table *t, const char *name, const msp_column *columns, msp_error *err)
{
    (void)name;
    for (size_t i = 0; i < t->ncolumns; i++) {
        if (i > 0)
            msp_buf_char(&t->out, ',');
        put_text(&t->out, msp_str_of(columns[i].title));
    }
    end_line(t, 0);
    return msp_table_flush(t, MSP_TABLE_CHUNK, err);
}

static msp_status
csv_row(msp_table *t, const msp_cell *cells, msp_row_colour colour, msp_error *err)
{
    size_t line_start = t->out.len;

    (void)colour;
    for (size_t i = 0; i < t->ncolumns; i++) {
        if (i > 0)
            msp_buf_char(&t->out, ',');
        put_cell(&t->out, &cells[i]);
    }
    end_line(t, line_start);
    return msp_table_flush(t, MSP_TABLE_CHUNK, err);
}

const msp_table_kind msp_csv_table = {.size = sizeof(msp_table), .begin_sheet = csv_begin, .row = csv_row};
