/*
 * xlsx.c - tables as Excel workbooks: rows become XML, XML becomes a zip entry, nothing is kept.
 *
 * A workbook is a zip archive. Each sheet is an entry "xl/worksheets/sheet<n>.xml":
 *     <worksheet><cols>widths</cols><sheetData><row r="1"><c r="A1" s="style" t="type">value</c>...</row>...
 * Text is written where it stands (t="inlineStr") and not in the workbook's table of shared strings, which would have
 * to be kept until the end; numbers and booleans are <v>; text is never a formula because a formula is another element.
 * The remaining parts of the workbook are added at the end, when the sheets and their names are known: xlsx_book.h.
 */
#include <math.h>
#include <stdio.h>
#include "core/alloc.h"
#include "core/number.h"
#include "core/vec.h"
#include "report/text.h"
#include "report/write/writer.h"
#include "report/write/xlsx_book.h"
#include "report/write/zip_out.h"

enum {
    ROWS_PER_SHEET = 1048500, /* where the original tool splits */
    EXCEL_ROWS = 1048576,     /* in one sheet, the header among them */
    EXCEL_COLUMNS = 16384,
    EXCEL_CELL_UNITS = 32767, /* UTF-16 units of text in one cell */
    EXCEL_COLUMN_WIDTH = 255,
    CUT_NOTE_ROOM = 64, /* for the note at the end of a text that was cut */
    XML_CHUNK = 64 * 1024
};

typedef struct xlsx_table {
    msp_table base;
    msp_zip_out *zip;
    msp_xlsx_style header_style;
    int64_t rows_per_sheet; /* a table splits when it reaches this */
    int64_t part_rows;      /* rows of one part of the first table, when it is known how many will come */

    char *table_name;    /* of the table being written, in one or more parts */
    msp_column *columns; /* of it, with titles of our own */
    char (*letters)[4];  /* "A", "B", ... "XFD" */
    size_t parts;        /* of this table, begun */
    int64_t rows;        /* in this part, without the header */

    char **names; /* of the sheets of all tables that are complete */
    size_t count, cap;
} xlsx_table;

/* ---- cells ------------------------------------------------------------------------------------------------------ */

static bool
is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* "_x0041_" in a text would be read as the escape of 'A'. */
static bool
looks_like_escape(const char *p, const char *end)
{
    return end - p >= 7 && p[1] == 'x' && is_hex(p[2]) && is_hex(p[3]) && is_hex(p[4]) && is_hex(p[5]) && p[6] == '_';
}

/* What stands for a character that cannot be written as it is; false when it can. */
static bool
put_special(msp_buf *b, uint32_t c, const char *p, const char *end)
{
    switch (c) {
    case '&':
        msp_buf_text(b, "&amp;");
        return true;
    case '<':
        msp_buf_text(b, "&lt;");
        return true;
    case '>':
        msp_buf_text(b, "&gt;");
        return true;
    case '\t':
    case '\n':
        return false;
    case '_':
        if (!looks_like_escape(p, end))
            return false;
        msp_buf_text(b, "_x005F_");
        return true;
    }
    /* XML 1.0 has no form for these; a bare \r it would turn into \n. Excel has its own escape. */
    if (c < 0x20 || c == 0xFFFE || c == 0xFFFF) {
        msp_buf_printf(b, "_x%04X_", (unsigned)c);
        return true;
    }
    return false;
}

static bool
is_simple(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '&' && c != '<' && c != '>' && c != '_';
}

static void
put_escaped(msp_buf *b, msp_str s)
{
    const char *p = s.p, *end = s.p + s.len;

    while (p < end) {
        const char *run = p;
        size_t len;
        uint32_t c;

        while (p < end && is_simple((unsigned char)*p))
            p++;
        if (p > run)
            msp_buf_add(b, run, (size_t)(p - run));
        if (p == end)
            return;
        c = msp_text_next(p, end, &len);
        if (!put_special(b, c, p, end))
            msp_text_put(b, c);
        p += len;
    }
}

/* How many bytes of s make up at most this many UTF-16 units, whole characters only; *total gets the units of all. */
static size_t
prefix_of_units(msp_str s, size_t units, size_t *total)
{
    const char *p = s.p, *end = s.p + s.len;
    size_t keep = 0, len;

    for (*total = 0; p < end; p += len) {
        *total += msp_text_next(p, end, &len) > 0xFFFF ? 2 : 1;
        if (*total <= units)
            keep = (size_t)(p - s.p) + len;
    }
    return keep;
}

static void
put_long_text(msp_buf *b, msp_str s)
{
    size_t total, keep = prefix_of_units(s, EXCEL_CELL_UNITS, &total);

    if (total > EXCEL_CELL_UNITS)
        keep = prefix_of_units(s, EXCEL_CELL_UNITS - CUT_NOTE_ROOM, &total);
    put_escaped(b, (msp_str){s.p, keep});
    if (keep < s.len)
        msp_buf_printf(b, "... (cut here: %zu characters do not fit in a cell)", total);
}

static bool
is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void
put_text(msp_buf *b, msp_str s)
{
    bool keep_space = s.len > 0 && (is_space(s.p[0]) || is_space(s.p[s.len - 1]));

    msp_buf_text(b, keep_space ? " t=\"inlineStr\"><is><t xml:space=\"preserve\">" : " t=\"inlineStr\"><is><t>");
    if (s.len <= EXCEL_CELL_UNITS)
        put_escaped(b, s);
    else
        put_long_text(b, s);
    msp_buf_text(b, "</t></is></c>");
}

static void
put_digits(msp_buf *b, const char *digits, size_t n)
{
    msp_buf_text(b, "><v>");
    msp_buf_add(b, digits, n);
    msp_buf_text(b, "</v></c>");
}

/* Digits that read back as the same number. "1.0" loses its ".0": a cell has no integers, and others write "1". */
static void
put_number(msp_buf *b, double v)
{
    char text[32];
    size_t n = msp_f64_repr(text, v);

    if (!isfinite(v)) {
        put_text(b, (msp_str){text, n});
        return;
    }
    if (n > 2 && memcmp(text + n - 2, ".0", 2) == 0)
        n -= 2;
    put_digits(b, text, n);
}

static void
put_value(msp_buf *b, const msp_cell *c)
{
    char number[MSP_INT_TEXT_MAX];

    switch (c->kind) {
    case MSP_CELL_EMPTY:
        msp_buf_text(b, "/>");
        break;
    case MSP_CELL_TEXT:
        put_text(b, (msp_str){c->as.text.p, c->as.text.len});
        break;
    case MSP_CELL_INT:
        put_digits(b, number, msp_i64_text(number, c->as.i));
        break;
    case MSP_CELL_FLOAT:
        put_number(b, c->as.f);
        break;
    case MSP_CELL_BOOL:
        msp_buf_text(b, c->as.b ? " t=\"b\"><v>1</v></c>" : " t=\"b\"><v>0</v></c>");
        break;
    }
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static msp_status
flush_rows(xlsx_table *x, size_t least, msp_error *err)
{
    msp_buf *b = &x->base.out;
    msp_status st = msp_buf_status(b, err);

    if (st != MSP_OK)
        return msp_error_prefix(err, st, "%s: ", x->base.file.path);
    if (b->len <= least)
        return MSP_OK;
    st = msp_zip_out_write(x->zip, b->p, b->len, err);
    msp_buf_clear(b);
    return st;
}

static void
put_row(xlsx_table *x, int64_t number, const msp_cell *cells, msp_xlsx_style style)
{
    msp_buf *b = &x->base.out;
    char digits[MSP_INT_TEXT_MAX];
    size_t len = msp_i64_text(digits, number);
    const char s[] = {'"', ' ', 's', '=', '"', (char)('0' + style), '"'};

    msp_buf_text(b, "<row r=\"");
    msp_buf_add(b, digits, len);
    msp_buf_text(b, "\">");
    for (size_t i = 0; i < x->base.ncolumns; i++) {
        if (cells[i].kind == MSP_CELL_EMPTY && style == MSP_XLSX_PLAIN)
            continue;
        msp_buf_text(b, "<c r=\"");
        msp_buf_text(b, x->letters[i]);
        msp_buf_add(b, digits, len);
        msp_buf_add(b, s, style == MSP_XLSX_PLAIN ? 1 : sizeof(s)); /* the style, or just the quote */
        put_value(b, &cells[i]);
    }
    msp_buf_text(b, "</row>");
}

static void
put_header(xlsx_table *x)
{
    /* the cells of a header go one by one: there may be 16,384 of them, and a row like any other needs an array */
    msp_buf *b = &x->base.out;

    msp_buf_text(b, "<row r=\"1\">");
    for (size_t i = 0; i < x->base.ncolumns; i++) {
        msp_buf_printf(b, "<c r=\"%s1\" s=\"%d\"", x->letters[i], (int)x->header_style);
        put_text(b, msp_str_of(x->columns[i].title));
    }
    msp_buf_text(b, "</row>");
}

static void
put_widths(xlsx_table *x)
{
    msp_buf *b = &x->base.out;

    msp_buf_text(b, "<cols>");
    for (size_t i = 0; i < x->base.ncolumns; i++)
        msp_buf_printf(b, "<col min=\"%zu\" max=\"%zu\" width=\"%d.7109375\" customWidth=\"1\"/>", i + 1, i + 1,
                       (int)x->columns[i].width);
    msp_buf_text(b, "</cols>");
}

/* ---- sheets ----------------------------------------------------------------------------------------------------- */

static msp_status
begin_part(xlsx_table *x, msp_error *err)
{
    size_t number = x->count + ++x->parts;
    char entry[64];
    msp_status st;

    snprintf(entry, sizeof(entry), "xl/worksheets/sheet%zu.xml", number);
    st = msp_zip_out_begin(x->zip, entry, err);
    x->rows = 0;
    msp_buf_printf(&x->base.out,
                   "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n"
                   "<worksheet xmlns=\"http://schemas.openxmlformats.org/spreadsheetml/2006/main\">"
                   "<sheetViews><sheetView %sworkbookViewId=\"0\"><pane ySplit=\"1\" "
                   "topLeftCell=\"A2\" activePane=\"bottomLeft\" "
                   "state=\"frozen\"/></sheetView></sheetViews><sheetFormatPr defaultRowHeight=\"15\"/>",
                   number == 1 ? "tabSelected=\"1\" " : "");
    put_widths(x);
    msp_buf_text(&x->base.out, "<sheetData>");
    put_header(x);
    return st;
}

static msp_status
end_part(xlsx_table *x, msp_error *err)
{
    msp_status st;

    msp_buf_printf(&x->base.out, "</sheetData><autoFilter ref=\"A1:%s%lld\"/></worksheet>",
                   x->letters[x->base.ncolumns - 1], (long long)x->rows + 1);
    st = flush_rows(x, 0, err);
    if (st == MSP_OK)
        st = msp_zip_out_end(x->zip, err);
    return st;
}

static msp_status
add_name(xlsx_table *x, const char *wanted, const char *suffix, msp_error *err)
{
    msp_buf name = {0};

    msp_xlsx_sheet_name(&name, msp_str_of(wanted), suffix, x->names, x->count);
    if (name.failed || !msp_vec_grow((void **)&x->names, &x->cap, x->count + 1, sizeof(*x->names))) {
        msp_buf_release(&name);
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", x->base.file.path);
    }
    x->names[x->count++] = name.p;
    return MSP_OK;
}

/* Only now is it known whether the table needed more than one sheet, and so what its sheets are called. */
static msp_status
name_parts(xlsx_table *x, msp_error *err)
{
    bool split = x->parts > 1 || x->rows >= x->rows_per_sheet;
    bool first = x->count == 0;
    size_t parts = x->parts;
    msp_status st = MSP_OK;

    if (!split)
        st = add_name(x, x->table_name, "", err);
    for (size_t i = 0; split && i < parts && st == MSP_OK; i++) {
        char suffix[32];

        snprintf(suffix, sizeof(suffix), first ? "_%zu" : "_part_%zu", i);
        st = add_name(x, first ? "part" : x->table_name, suffix, err);
    }
    x->parts = 0;
    return st;
}

static void
forget_table(xlsx_table *x)
{
    if (x->columns != NULL)
        for (size_t i = 0; i < x->base.ncolumns; i++)
            msp_free((char *)x->columns[i].title);
    msp_free(x->columns);
    msp_free(x->letters);
    msp_free(x->table_name);
    x->columns = NULL;
    x->letters = NULL;
    x->table_name = NULL;
}

static msp_status
xlsx_end_sheet(msp_table *t, msp_error *err)
{
    xlsx_table *x = (xlsx_table *)t;
    msp_status st = end_part(x, err);

    if (st == MSP_OK)
        st = name_parts(x, err);
    forget_table(x);
    x->part_rows = x->rows_per_sheet; /* total_rows spoke of the first table */
    return st;
}

static void
column_letters(char out[4], size_t index)
{
    char reversed[4];
    size_t n = 0;

    for (index++; index > 0; index = (index - 1) / 26)
        reversed[n++] = (char)('A' + (index - 1) % 26);
    for (size_t i = 0; i < n; i++)
        out[i] = reversed[n - 1 - i];
    out[n] = '\0';
}

/* Excel's own default is 8.43; a title gets two characters of air. */
static double
width_of(const msp_column *c)
{
    double width = c->width > 0 ? c->width : (double)strlen(c->title) + 2;

    return width < 8 ? 8 : width > EXCEL_COLUMN_WIDTH ? EXCEL_COLUMN_WIDTH : width;
}

static msp_status
remember_table(xlsx_table *x, const char *name, const msp_column *columns, msp_error *err)
{
    size_t n = x->base.ncolumns;
    bool ok;

    x->columns = msp_alloc_zero(n, sizeof(*x->columns));
    x->letters = msp_alloc(n, sizeof(*x->letters));
    x->table_name = msp_str_copy(msp_str_of(name));
    ok = x->columns != NULL && x->letters != NULL && x->table_name != NULL;
    for (size_t i = 0; i < n && ok; i++) {
        x->columns[i] = (msp_column){msp_str_copy(msp_str_of(columns[i].title)), width_of(&columns[i])};
        column_letters(x->letters[i], i);
        ok = x->columns[i].title != NULL;
    }
    return ok ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", x->base.file.path);
}

static msp_status
xlsx_begin(msp_table *t, const char *name, const msp_column *columns, msp_error *err)
{
    xlsx_table *x = (xlsx_table *)t;
    msp_status st = MSP_OK;

    if (t->ncolumns > EXCEL_COLUMNS)
        return msp_error_set(err, MSP_E_LIMIT, "%s: %zu columns, and Excel has %d: write csv instead", t->file.path,
                             t->ncolumns, EXCEL_COLUMNS);
    st = remember_table(x, name, columns, err);
    if (st == MSP_OK)
        st = begin_part(x, err);
    return st;
}

static msp_xlsx_style
style_of(msp_row_colour colour)
{
    switch (colour) {
    case MSP_ROW_RED:
        return MSP_XLSX_RED;
    case MSP_ROW_YELLOW:
        return MSP_XLSX_YELLOW;
    case MSP_ROW_PLAIN:
        break;
    }
    return MSP_XLSX_PLAIN;
}

static msp_status
xlsx_row(msp_table *t, const msp_cell *cells, msp_row_colour colour, msp_error *err)
{
    xlsx_table *x = (xlsx_table *)t;
    msp_status st = MSP_OK;

    if (x->rows == x->part_rows) {
        st = end_part(x, err);
        if (st == MSP_OK)
            st = begin_part(x, err);
        if (st != MSP_OK)
            return st;
    }
    x->rows++;
    put_row(x, x->rows + 1, cells, style_of(colour));
    return flush_rows(x, XML_CHUNK, err);
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

static msp_status
xlsx_init(msp_table *t, const msp_table_options *opt, msp_error *err)
{
    xlsx_table *x = (xlsx_table *)t;
    int64_t most = opt->rows_per_sheet > 0 ? opt->rows_per_sheet : ROWS_PER_SHEET;

    x->rows_per_sheet = most < EXCEL_ROWS ? most : EXCEL_ROWS - 1;
    x->part_rows = x->rows_per_sheet;
    if (opt->total_rows > x->rows_per_sheet) {
        int64_t parts = (opt->total_rows - 1) / x->rows_per_sheet + 1;

        x->part_rows = (opt->total_rows - 1) / parts + 1;
    }
    x->header_style = opt->plain_header ? MSP_XLSX_PLAIN : MSP_XLSX_HEADER;
    return msp_zip_out_open(&x->zip, &t->file, opt->threads, err);
}

static msp_status
xlsx_end(msp_table *t, msp_error *err)
{
    xlsx_table *x = (xlsx_table *)t;
    msp_status st = msp_xlsx_book_write(x->zip, t->file.path, x->names, x->count, err);

    if (st == MSP_OK)
        st = msp_zip_out_finish(x->zip, err);
    return st;
}

static void
xlsx_release(msp_table *t)
{
    xlsx_table *x = (xlsx_table *)t;

    forget_table(x);
    for (size_t i = 0; i < x->count; i++)
        msp_free(x->names[i]);
    msp_free(x->names);
    msp_zip_out_close(x->zip);
}

const msp_table_kind msp_xlsx_table = {.size = sizeof(xlsx_table),
                                       .many_sheets = true,
                                       .init = xlsx_init,
                                       .begin_sheet = xlsx_begin,
                                       .row = xlsx_row,
                                       .end_sheet = xlsx_end_sheet,
                                       .end = xlsx_end,
                                       .release = xlsx_release};
