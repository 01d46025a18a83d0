/* csv.c - tables as RFC 4180 says, with the line ends and the quoting that Python's csv module writes on Unix. */
#include "core/number.h"
#include "report/text.h"
#include "report/write/writer.h"

typedef uint8_t sixteen __attribute__((vector_size(16)));
typedef uint64_t two __attribute__((vector_size(16)));

#define FILL UINT64_C(0x2020202020202020)

static inline bool
any_lane(sixteen v)
{
    return (((two)v)[0] | ((two)v)[1]) != 0;
}

/* A comma or a quote, a control character (line ends among them), or one beyond ASCII? */
static inline bool
has_odd(sixteen v)
{
    return any_lane((sixteen)(v == ',') | (sixteen)(v == '"') | (sixteen)(v < 0x20) | (sixteen)(v == 0x7f) |
                    (v & 0x80));
}

/* One that quotes around the text do not do for? */
static inline bool
has_hard(sixteen v)
{
    return any_lane((sixteen)(v == '"') | (sixteen)(v < 0x20) | (sixteen)(v == 0x7f) | (v & 0x80));
}

/* Does no part of the text have such characters? Short texts are filled up with spaces. */
static inline __attribute__((always_inline)) bool
is_without(msp_str s, bool (*has)(sixteen))
{
    sixteen v;
    size_t n = s.len;
    uint32_t four[2];

    if (n >= 16) { /* the last sixteen overlap those before them */
        for (size_t i = 0; i + 16 < n; i += 16) {
            memcpy(&v, s.p + i, 16);
            if (has(v))
                return false;
        }
        memcpy(&v, s.p + n - 16, 16);
    } else if (n >= 8) { /* put together in registers: halves that were stored must not be loaded as one */
        v = (sixteen)(two){msp_load8(s.p), msp_load8(s.p + n - 8)};
    } else if (n >= 4) {
        memcpy(&four[0], s.p, 4);
        memcpy(&four[1], s.p + n - 4, 4);
        v = (sixteen)(two){four[0] | (uint64_t)four[1] << 32, FILL};
    } else if (n > 0) { /* up to three: the first, the one in the middle, the last */
        v = (sixteen)(two){(uint8_t)s.p[0] | (uint64_t)(uint8_t)s.p[n / 2] << 8 | (uint64_t)(uint8_t)s.p[n - 1] << 16 |
                               (FILL & ~UINT64_C(0xffffff)),
                           FILL};
    } else {
        return true;
    }
    return !has(v);
}

/*
 * Would a spreadsheet take the text for a formula? A sign before nothing but a number ("-5.0%", "-inf") is a number:
 * programs that read the table must find it as it is.
 */
static bool
is_formula(msp_str s)
{
    if (s.len == 0 || memchr("=+-@\t\r", s.p[0], 6) == NULL)
        return false;
    if (s.p[0] != '-' && s.p[0] != '+')
        return true;
    for (size_t i = 1; i < s.len; i++)
        if (!(s.p[i] >= '0' && s.p[i] <= '9') && memchr(".e%infa", s.p[i], 7) == NULL &&
            !(memchr("+-", s.p[i], 2) != NULL && s.p[i - 1] == 'e'))
            return true;
    return s.len == 1;
}

/* Nothing that needs quotes or another form, and nothing beyond ASCII, which might not be UTF-8. */
static inline bool
is_plain(msp_str s)
{
    return is_without(s, has_odd) && !is_formula(s);
}

static bool
needs_quotes(msp_str s)
{
    return memchr(s.p, ',', s.len) != NULL || memchr(s.p, '"', s.len) != NULL || memchr(s.p, '\n', s.len) != NULL ||
           memchr(s.p, '\r', s.len) != NULL;
}

/* Line ends and tabs stay; other control characters could command a terminal and become "\x1b". */
static bool
is_control(unsigned char c)
{
    return (c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f;
}

static void
put_hard_text(msp_buf *b, msp_str s)
{
    for (size_t i = 0, run = 0; i <= s.len; i++) {
        if (i < s.len && s.p[i] != '"' && !is_control((unsigned char)s.p[i]))
            continue;
        msp_text_add(b, (msp_str){s.p + run, i - run});
        run = i + 1;
        if (i < s.len && s.p[i] == '"')
            msp_buf_text(b, "\"\"");
        else if (i < s.len)
            msp_buf_printf(b, "\\x%02x", (unsigned)(unsigned char)s.p[i]);
    }
}

/* Text that is not plain. A formula gets an apostrophe, which spreadsheets take for "this is text". */
static void
put_odd_text(msp_buf *b, msp_str s)
{
    bool quotes = needs_quotes(s);

    if (quotes)
        msp_buf_char(b, '"');
    if (is_formula(s))
        msp_buf_char(b, '\'');
    if (is_without(s, has_hard)) /* a shape: "[2, 3]" */
        msp_buf_str(b, s);
    else
        put_hard_text(b, s);
    if (quotes)
        msp_buf_char(b, '"');
}

static void
put_text(msp_buf *b, msp_str s)
{
    if (is_plain(s))
        msp_buf_str(b, s);
    else
        put_odd_text(b, s);
}

/* The cell, behind a comma unless it is the first; written in place, with one look at the room for all of it. */
static void
put_cell(msp_buf *b, const msp_cell *c, bool first)
{
    enum { NUMBER_ROOM = 32 };
    msp_str text = c->kind == MSP_CELL_TEXT ? (msp_str){c->as.text.p, c->as.text.len} : (msp_str){0};
    size_t most = 1 + (text.len < NUMBER_ROOM ? NUMBER_ROOM : text.len);
    char *at = !b->failed && most < b->cap - b->len ? b->p + b->len : msp_buf_room(b, most);

    if (at == NULL)
        return;
    *at = ',';
    at += !first;
    switch (c->kind) {
    case MSP_CELL_EMPTY:
        break;
    case MSP_CELL_TEXT:
        if (!is_plain(text)) {
            b->len = (size_t)(at - b->p);
            put_odd_text(b, text);
            return;
        }
        if (text.len > 0)
            memcpy(at, text.p, text.len);
        at += text.len;
        break;
    case MSP_CELL_INT:
        at += msp_i64_text(at, c->as.i);
        break;
    case MSP_CELL_FLOAT:
        at += msp_f64_repr(at, c->as.f);
        break;
    case MSP_CELL_BOOL:
        memcpy(at, c->as.b ? "True" : "False", 5);
        at += c->as.b ? 4 : 5;
        break;
    }
    b->len = (size_t)(at - b->p);
    *at = '\0';
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

    for (size_t i = 0; i < ncolumns; i++)
        put_cell(out, &cells[i], i == 0);
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
