/* csv_read.c - see table_read.h. Fields are views of the text, but for those in which two quotes stand for one. */
#include <math.h>
#include "core/alloc.h"
#include "core/arena.h"
#include "core/number.h"
#include "core/str.h"
#include "core/vec.h"
#include "report/read/table_read.h"

typedef struct csv_reader {
    const char *at, *end;
    size_t line;
    msp_cell *cells;
    size_t count, cap;
    msp_arena row; /* text of this row's fields, where it had to be copied */
} csv_reader;

static msp_cell
cell_of(msp_str s)
{
    int64_t i;
    double f;

    if (s.len == 0)
        return (msp_cell){0};
    if (msp_str_eq(s, MSP_STR("True")) || msp_str_eq(s, MSP_STR("False")))
        return msp_cell_bool(s.p[0] == 'T');
    if (msp_i64_parse(s, &i))
        return msp_cell_int(i);
    if (msp_f64_parse(s, &f) && isfinite(f))
        return msp_cell_float(f);
    return msp_cell_text(s.p, s.len);
}

static bool
at_line_end(const csv_reader *r, const char *p)
{
    return p == r->end || *p == '\n' || (*p == '\r' && p + 1 < r->end && p[1] == '\n');
}

static msp_cell
bare_field(csv_reader *r)
{
    const char *start = r->at;

    while (!at_line_end(r, r->at) && *r->at != ',')
        r->at++;
    return cell_of((msp_str){start, (size_t)(r->at - start)});
}

/* The text between two quotes, in which two are one; NULL in it when there is no memory. */
static msp_str
without_doubled(csv_reader *r, msp_str s, size_t doubled)
{
    char *copy = msp_arena_alloc(&r->row, s.len - doubled, 1);
    size_t n = 0;

    for (size_t i = 0; copy != NULL && i < s.len; i++) {
        copy[n++] = s.p[i];
        i += s.p[i] == '"';
    }
    return (msp_str){copy, n};
}

static msp_status
quoted_field(csv_reader *r, msp_cell *out, msp_error *err)
{
    size_t line = r->line, doubled = 0;
    const char *start = ++r->at;
    msp_str s;

    for (;; r->at += 2, doubled++) {
        while (r->at < r->end && *r->at != '"')
            r->line += *r->at++ == '\n';
        if (r->at == r->end)
            return msp_error_set(err, MSP_E_FORMAT, "line %zu: a quote without its end", line);
        if (r->at + 1 == r->end || r->at[1] != '"')
            break;
    }
    s = (msp_str){start, (size_t)(r->at++ - start)};
    if (doubled > 0)
        s = without_doubled(r, s, doubled);
    if (s.p == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "line %zu: out of memory", line);
    *out = msp_cell_text(s.p, s.len);
    return MSP_OK;
}

static msp_status
read_field(csv_reader *r, msp_error *err)
{
    const size_t most = msp_reader_extra() / (4 * sizeof(msp_cell)); /* a comma asks for a cell of many bytes */
    msp_status st = MSP_OK;
    msp_cell cell;

    if (r->count == most)
        return msp_error_set(err, MSP_E_LIMIT, "line %zu: more than %zu fields", r->line, most);
    if (r->at < r->end && *r->at == '"')
        st = quoted_field(r, &cell, err);
    else
        cell = bare_field(r);
    if (st != MSP_OK)
        return st;
    if (!at_line_end(r, r->at) && *r->at != ',')
        return msp_error_set(err, MSP_E_FORMAT, "line %zu: text behind a closing quote", r->line);
    if (!msp_vec_grow((void **)&r->cells, &r->cap, r->count + 1, sizeof(*r->cells)))
        return msp_error_set(err, MSP_E_NOMEM, "line %zu: out of memory", r->line);
    r->cells[r->count++] = cell;
    return MSP_OK;
}

static msp_status
read_row(csv_reader *r, msp_error *err)
{
    msp_status st;

    msp_arena_release(&r->row);
    r->count = 0;
    st = read_field(r, err);
    while (st == MSP_OK && !at_line_end(r, r->at)) {
        r->at++; /* the comma */
        st = read_field(r, err);
    }
    if (st == MSP_OK && r->at < r->end)
        r->at += *r->at == '\r' ? 2 : 1;
    r->line++;
    return st;
}

msp_status
msp_csv_read(const char *text, size_t size, const msp_table_sink *sink, msp_error *err)
{
    csv_reader r = {.at = text, .end = text + size, .line = 1};
    msp_table_row_fn *take_row = sink->header;
    msp_status st = MSP_OK;

    if (size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        r.at += 3;
    while (st == MSP_OK && r.at < r.end) {
        st = read_row(&r, err);
        if (st != MSP_OK || (r.count == 1 && r.cells[0].kind == MSP_CELL_EMPTY))
            continue; /* an empty line is no row */
        if (take_row != NULL)
            st = take_row(r.cells, r.count, sink->payload, err);
        take_row = sink->row;
    }
    msp_arena_release(&r.row);
    msp_free(r.cells);
    return st;
}
