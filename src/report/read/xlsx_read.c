/*
 * xlsx_read.c - see table_read.h.
 *
 * A sheet is rows of cells, <sheetData><row r="2"><c r="A2" t="s"><v>17</v></c>...</row>...</sheetData>. The kinds:
 *     <c><v>0.5</v></c>                         a number
 *     <c t="s"><v>17</v></c>                    shared string 17
 *     <c t="inlineStr"><is><t>text</t></is></c> text; t="str", "e", "d": text too, in <v>
 *     <c t="b"><v>1</v></c>                     a boolean
 * References (r=) may be left out, and then go on from the one before.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include "core/alloc.h"
#include "core/arena.h"
#include "core/number.h"
#include "core/vec.h"
#include "report/read/table_read.h"
#include "report/read/xlsx_parts.h"
#include "report/read/xlsx_strings.h"

enum {
    MAX_COLUMNS = 16384,        /* Excel's */
    MAX_ROW = 64 << 20,         /* bytes of one row's text */
    SHARED_CONSTANT = 64 << 20, /* shared strings may take this ... */
    SHARED_RATIO = 32           /* ... and this many times the file, which is more than such text compresses */
};

typedef enum cell_type { CELL_NUMBER, CELL_SHARED, CELL_TEXT, CELL_BOOL } cell_type;

typedef struct sheet {
    const msp_zip *zip;
    const msp_table_sink *sink;
    msp_xlsx_strings strings;
    bool header_seen; /* of the table; */
    bool first_row;   /* of this part of it */
    bool in_row, in_cell, in_value;
    int phonetic;
    uint64_t row_number;
    msp_cell *cells;
    size_t count, cap;
    size_t column, next_column; /* of the cell being read, and where the next one goes that does not say */
    cell_type type;
    msp_buf text; /* of the cell being read */
    bool has_text;
    msp_arena row; /* text of the row's cells */
} sheet;

static msp_status
bad_cell(const sheet *s, const char *what, msp_error *err)
{
    return msp_error_set(err, MSP_E_FORMAT, "row %" PRIu64 ", column %zu: %s", s->row_number, s->column + 1, what);
}

/* The column of a reference such as "AB12", counted from 0; MAX_COLUMNS when there is none. */
static size_t
column_of(msp_str ref)
{
    size_t column = 0, i = 0;

    for (; i < ref.len && ref.p[i] >= 'A' && ref.p[i] <= 'Z' && column <= MAX_COLUMNS; i++)
        column = column * 26 + (size_t)(ref.p[i] - 'A') + 1;
    return column == 0 || column > MAX_COLUMNS || i == ref.len ? MAX_COLUMNS : column - 1;
}

static msp_status
begin_row(sheet *s, msp_xml *x, msp_error *err)
{
    unsigned long long number = s->row_number + 1;
    msp_str value;

    if (s->in_row)
        return msp_error_set(err, MSP_E_FORMAT, "row %" PRIu64 ": a row inside a row", s->row_number);
    if (msp_xml_attribute(x, "r", &value) && (!msp_str_to_u64(value, &number) || number <= s->row_number))
        return msp_error_set(err, MSP_E_FORMAT, "the row behind row %" PRIu64 " has the number %.*s", s->row_number,
                             (int)(value.len < 30 ? value.len : 30), value.p);
    s->row_number = number;
    s->in_row = true;
    s->count = s->next_column = 0;
    msp_arena_release(&s->row);
    return MSP_OK;
}

static msp_status
begin_cell(sheet *s, msp_xml *x, msp_error *err)
{
    static const struct {
        const char *name;
        cell_type type;
    } types[] = {{"n", CELL_NUMBER}, {"s", CELL_SHARED}, {"inlineStr", CELL_TEXT}, {"str", CELL_TEXT},
                 {"b", CELL_BOOL},   {"e", CELL_TEXT},   {"d", CELL_TEXT}};
    msp_str value;
    size_t i = 0;

    s->column = s->next_column;
    if (!s->in_row || s->in_cell)
        return bad_cell(s, "a cell outside a row", err);
    if (msp_xml_attribute(x, "r", &value))
        s->column = column_of(value);
    if (s->column >= MAX_COLUMNS || s->column < s->next_column)
        return bad_cell(s, "a cell out of its place", err);
    s->type = CELL_NUMBER;
    if (msp_xml_attribute(x, "t", &value)) {
        while (i < sizeof(types) / sizeof(types[0]) && !msp_str_eq(value, msp_str_of(types[i].name)))
            i++;
        if (i == sizeof(types) / sizeof(types[0]))
            return bad_cell(s, "a cell of an unknown type", err);
        s->type = types[i].type;
    }
    s->in_cell = true;
    s->has_text = false;
    msp_buf_clear(&s->text);
    return MSP_OK;
}

static msp_status
number_cell(const sheet *s, msp_cell *out, msp_error *err)
{
    msp_str text = msp_buf_view(&s->text);
    int64_t i;
    double f;

    if (msp_i64_parse(text, &i))
        *out = msp_cell_int(i);
    else if (msp_f64_parse(text, &f) && isfinite(f))
        *out = msp_cell_float(f);
    else
        return bad_cell(s, "a number that is none", err);
    return MSP_OK;
}

static msp_status
text_cell(sheet *s, msp_cell *out, msp_error *err)
{
    char *copy;

    msp_xlsx_unescape(&s->text);
    if (s->row.reserved + s->text.len > MAX_ROW)
        return msp_error_set(err, MSP_E_LIMIT, "row %" PRIu64 ": more than %d bytes", s->row_number, MAX_ROW);
    copy = s->text.failed ? NULL : msp_arena_text(&s->row, s->text.p, s->text.len);
    if (copy == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    *out = msp_cell_text(copy, s->text.len);
    return MSP_OK;
}

static msp_status
shared_cell(const sheet *s, msp_cell *out, msp_error *err)
{
    unsigned long long i;

    if (!msp_str_to_u64(msp_buf_view(&s->text), &i) || i >= s->strings.count)
        return bad_cell(s, "no shared string has this number", err);
    *out = msp_cell_text(s->strings.items[i].p, s->strings.items[i].len);
    return MSP_OK;
}

static msp_status
cell_value(sheet *s, msp_cell *out, msp_error *err)
{
    *out = (msp_cell){0};
    if (!s->has_text)
        return MSP_OK;
    switch (s->type) {
    case CELL_NUMBER:
        return s->text.len == 0 ? MSP_OK : number_cell(s, out, err);
    case CELL_SHARED:
        return shared_cell(s, out, err);
    case CELL_BOOL:
        if (!msp_str_eq(msp_buf_view(&s->text), MSP_STR("1")) && !msp_str_eq(msp_buf_view(&s->text), MSP_STR("0")))
            return bad_cell(s, "a boolean that is neither 0 nor 1", err);
        *out = msp_cell_bool(s->text.p[0] == '1');
        return MSP_OK;
    case CELL_TEXT:
        return text_cell(s, out, err);
    }
    return MSP_OK;
}

static msp_status
end_cell(sheet *s, msp_error *err)
{
    msp_cell cell;
    msp_status st = cell_value(s, &cell, err);

    s->in_cell = s->in_value = false;
    s->next_column = s->column + 1;
    if (st != MSP_OK || cell.kind == MSP_CELL_EMPTY)
        return st;
    if (!msp_vec_grow((void **)&s->cells, &s->cap, s->column + 1, sizeof(*s->cells)))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    while (s->count < s->column)
        s->cells[s->count++] = (msp_cell){0};
    s->cells[s->count++] = cell;
    return MSP_OK;
}

static msp_status
end_row(sheet *s, msp_error *err)
{
    const msp_table_sink *sink = s->sink;
    bool first = s->first_row;

    s->in_row = false;
    if (s->count == 0)
        return MSP_OK;
    s->first_row = false;
    if (!first)
        return sink->row(s->cells, s->count, sink->payload, err);
    if (s->header_seen || sink->header == NULL)
        return MSP_OK;
    s->header_seen = true;
    return sink->header(s->cells, s->count, sink->payload, err);
}

static msp_status
begin_element(sheet *s, msp_xml *x, msp_error *err)
{
    if (msp_str_eq(x->name, MSP_STR("row")))
        return begin_row(s, x, err);
    if (msp_str_eq(x->name, MSP_STR("c")))
        return begin_cell(s, x, err);
    if (msp_str_eq(x->name, MSP_STR("rPh")))
        s->phonetic++;
    else if (s->in_cell && s->phonetic == 0 && (msp_str_eq(x->name, MSP_STR("v")) || msp_str_eq(x->name, MSP_STR("t"))))
        s->in_value = s->has_text = true;
    return MSP_OK;
}

static msp_status
end_element(sheet *s, msp_xml *x, msp_error *err)
{
    if (msp_str_eq(x->name, MSP_STR("row")))
        return end_row(s, err);
    if (msp_str_eq(x->name, MSP_STR("c")))
        return end_cell(s, err);
    if (msp_str_eq(x->name, MSP_STR("rPh")))
        s->phonetic--;
    s->in_value = false;
    return MSP_OK;
}

static msp_status
read_event(msp_xml *x, msp_xml_event event, void *payload, msp_error *err)
{
    sheet *s = payload;

    switch (event) {
    case MSP_XML_START:
        return begin_element(s, x, err);
    case MSP_XML_END:
        return end_element(s, x, err);
    case MSP_XML_TEXT:
        return s->in_value ? msp_xlsx_text_add(&s->text, x->text, err) : MSP_OK;
    case MSP_XML_DONE:
        break;
    }
    return MSP_OK;
}

/* The sheet of this name ("": the first), its rows into the sink; *found is its name, "" when there is none. */
static msp_status
read_part(sheet *s, const char *name, char found[64], msp_error *err)
{
    msp_buf part = {0};
    msp_status st = msp_xlsx_sheet_part(&part, found, s->zip, name, err);

    s->first_row = true;
    s->row_number = 0;
    if (st == MSP_OK && part.len > 0)
        st = msp_xlsx_walk(s->zip, msp_buf_view(&part), read_event, s, err);
    msp_buf_release(&part);
    return st;
}

static msp_status
read_parts(sheet *s, msp_error *err)
{
    char found[64];
    msp_status st = read_part(s, "", found, err);
    bool more = strcmp(found, "part_0") == 0;

    for (unsigned n = 1; st == MSP_OK && more; n++) {
        char name[64];

        snprintf(name, sizeof(name), "part_%u", n);
        st = read_part(s, name, found, err);
        more = found[0] != '\0';
    }
    return st;
}

/* name: NULL for the first sheet and what goes on with it. */
static msp_status
read_workbook(const void *bytes, size_t size, const char *name, const msp_table_sink *sink, msp_error *err)
{
    char found[64];
    msp_zip zip = {0};
    sheet s = {.zip = &zip, .sink = sink};
    msp_status st = msp_zip_open(&zip, bytes, size, err);

    if (st == MSP_OK)
        st = msp_xlsx_strings_read(&s.strings, &zip, SHARED_CONSTANT + SHARED_RATIO * size, err);
    if (st == MSP_OK)
        st = name == NULL ? read_parts(&s, err) : read_part(&s, name, found, err);
    msp_arena_release(&s.row);
    msp_buf_release(&s.text);
    msp_free(s.cells);
    msp_xlsx_strings_release(&s.strings);
    msp_zip_close(&zip);
    return st;
}

msp_status
msp_xlsx_read(const void *bytes, size_t size, const msp_table_sink *sink, msp_error *err)
{
    return read_workbook(bytes, size, NULL, sink, err);
}

msp_status
msp_xlsx_read_sheet(const void *bytes, size_t size, const char *name, const msp_table_sink *sink, msp_error *err)
{
    return read_workbook(bytes, size, name, sink, err);
}
