/* csv.c - tables as RFC 4180 says, with the line ends and the quoting that Python's csv module writes on Unix. */
#include "core/number.h"
#include "report/text.h"
#include "report/writer.h"

/* A bit in every byte of w that is c; other bytes above the lowest such one may have it too. */
static uint64_t
bytes_equal(uint64_t w, char c)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t x = w ^ ones * (unsigned char)c;

    return (x - ones) & ~x;
}

/* Neither of the four characters that need quotes, nor anything beyond ASCII, which might not be UTF-8. */
static bool
is_plain(msp_str s)
{
    const uint64_t tops = 0x8080808080808080u;
    uint64_t w, odd = 0;
    size_t i = 0;

    for (; i + 8 <= s.len; i += 8) {
        memcpy(&w, s.p + i, 8);
        odd |= w | bytes_equal(w, ',') | bytes_equal(w, '"') | bytes_equal(w, '\n') | bytes_equal(w, '\r');
    }
    if (i < s.len) {
        w = 0;
        memcpy(&w, s.p + i, s.len - i);
        odd |= w | bytes_equal(w, ',') | bytes_equal(w, '"') | bytes_equal(w, '\n') | bytes_equal(w, '\r');
    }
    return (odd & tops) == 0;
}

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

    if (is_plain(s)) {
        msp_buf_str(b, s);
        return;
    }
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
end_line(msp_buf *out, size_t line_start)
{
    if (out->len == line_start)
        msp_buf_text(out, "\"\"");
    msp_buf_char(out, '\n');
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
    end_line(&t->out, 0);
    return msp_table_flush(t, MSP_TABLE_CHUNK, err);
}

void
msp_csv_line(msp_buf *out, const msp_cell *cells, size_t ncolumns)
{
    size_t line_start = out->len;

    for (size_t i = 0; i < ncolumns; i++) {
        if (i > 0)
            msp_buf_char(out, ',');
        put_cell(out, &cells[i]);
    }
    end_line(out, line_start);
}

static msp_status
csv_row(msp_table *t, const msp_cell *cells, msp_row_colour colour, msp_error *err)
{
    (void)colour;
    msp_csv_line(&t->out, cells, t->ncolumns);
    return msp_table_flush(t, MSP_TABLE_CHUNK, err);
}

const msp_table_kind msp_csv_table = {.size = sizeof(msp_table), .begin_sheet = csv_begin, .row = csv_row};
