/* test_table_read.c - promises of report/read/table_read.h: tables of ours, of libxlsxwriter, and of nobody in
 * particular.
 */
#include "hostile.h"
#include "tables.h"
#include <math.h>
#include <xlsxwriter.h>
#include "core/number.h"
#include "report/read/table_read.h"
#include "report/write/zip_out.h"

/* A table as text: a line per row, cells as i:1 f:0.5 s:text b:1 or -, "#" before the header. */
static msp_status
add_row(msp_buf *out, const msp_cell *cells, size_t count)
{
    char number[32];

    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            msp_buf_char(out, '|');
        switch (cells[i].kind) {
        case MSP_CELL_EMPTY:
            msp_buf_char(out, '-');
            break;
        case MSP_CELL_TEXT:
            msp_buf_text(out, "s:");
            msp_buf_add(out, cells[i].as.text.p, cells[i].as.text.len);
            break;
        case MSP_CELL_INT:
            msp_buf_printf(out, "i:%lld", (long long)cells[i].as.i);
            break;
        case MSP_CELL_FLOAT:
            msp_f64_repr(number, cells[i].as.f);
            msp_buf_printf(out, "f:%s", number);
            break;
        case MSP_CELL_BOOL:
            msp_buf_printf(out, "b:%d", cells[i].as.b);
            break;
        }
    }
    msp_buf_char(out, '\n');
    return msp_buf_status(out, NULL);
}

static msp_status
take_header(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    (void)err;
    msp_buf_char(payload, '#');
    return add_row(payload, cells, count);
}

static msp_status
take_row(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    (void)err;
    return add_row(payload, cells, count);
}

static void
assert_table(const char *path, const char *expected)
{
    msp_buf out = {0};
    const msp_table_sink sink = {take_header, take_row, &out};
    msp_error err;

    if (msp_table_read(path, &sink, &err) != MSP_OK)
        fail_msg("%s", err.message);
    assert_string_equal(out.p, expected);
    msp_buf_release(&out);
}

/* ---- workbooks --------------------------------------------------------------------------------------------------- */

typedef struct book_text {
    const char *strings, *sheet, *sheets, *relations; /* NULL: an ordinary one, or none */
    const char *second;
} book_text;

static void
add_part(msp_zip_out *z, const char *name, const char *text)
{
    if (text == NULL)
        return;
    assert_int_equal(msp_zip_out_begin(z, name, NULL), MSP_OK);
    assert_int_equal(msp_zip_out_write(z, text, strlen(text), NULL), MSP_OK);
    assert_int_equal(msp_zip_out_end(z, NULL), MSP_OK);
}

static const char *
write_book(const book_text *b)
{
    const char *path = scratch_path("hand.xlsx");
    msp_zip_out *z;
    msp_file file;

    assert_int_equal(msp_file_create(&file, path, 0640, NULL), MSP_OK);
    assert_int_equal(msp_zip_out_open(&z, &file, 0, NULL), MSP_OK);
    add_part(z, "xl/workbook.xml",
             b->sheets != NULL
                 ? b->sheets
                 : "<workbook><sheets><sheet name=\"One\" sheetId=\"1\" r:id=\"r1\"/></sheets></workbook>");
    add_part(z, "xl/_rels/workbook.xml.rels",
             b->relations != NULL
                 ? b->relations
                 : "<Relationships><Relationship Id=\"r2\" Type=\"x/worksheet\" Target=\"worksheets/b.xml\"/>"
                   "<Relationship Id=\"r3\" Type=\"x/sharedStrings\" Target=\"/xl/strings.xml\"/>"
                   "<Relationship Id=\"r1\" Type=\"x/worksheet\" Target=\"worksheets/a.xml\"/></Relationships>");
    add_part(z, "xl/strings.xml", b->strings != NULL ? b->strings : "<sst/>");
    add_part(z, "xl/worksheets/a.xml", b->sheet);
    add_part(z, "xl/worksheets/b.xml", b->second);
    assert_int_equal(msp_zip_out_finish(z, NULL), MSP_OK);
    msp_zip_out_close(z);
    assert_int_equal(msp_file_commit(&file, NULL), MSP_OK);
    return path;
}

static void
assert_rows(const char *rows, const char *strings, const char *expected)
{
    char sheet[4096];

    snprintf(sheet, sizeof(sheet),
             "<worksheet><cols><col/></cols><sheetData>%s</sheetData><x><t>no</t></x></worksheet>", rows);
    assert_table(write_book(&(book_text){.sheet = sheet, .strings = strings}), expected);
}

static void
assert_refused(const book_text *b, msp_status status, const char *message)
{
    const char *path = write_book(b);
    msp_buf out = {0};
    const msp_table_sink sink = {take_header, take_row, &out};
    msp_error err = {0};

    assert_int_equal(msp_table_read(path, &sink, &err), status);
    if (strstr(err.message, message) == NULL || strstr(err.message, path) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", message, err.message);
    msp_buf_release(&out);
}

static void
assert_rows_refused(const char *rows, const char *message)
{
    char sheet[4096];

    snprintf(sheet, sizeof(sheet), "<worksheet><sheetData>%s</sheetData></worksheet>", rows);
    assert_refused(&(book_text){.sheet = sheet}, MSP_E_FORMAT, message);
}

static void
write_kinds(const char *path, msp_table_format format)
{
    const msp_column columns[] = {{"name", 0}, {"value", 0}, {"more", 0}};
    const msp_cell rows[][3] = {
        {msp_cell_text("a", 1), msp_cell_int(-5), msp_cell_bool(true)},
        {msp_cell_text("x, \"y\"\n<&>", 10), msp_cell_float(0.1), {0}},
        {{0}, msp_cell_float(1e300), msp_cell_bool(false)},
        {msp_cell_text("", 0), msp_cell_float(NAN), msp_cell_text("N/A", 3)},
        {msp_cell_text("\x01 _x0041_ \r", 11), msp_cell_int(INT64_MAX), {0}},
    };
    msp_table *t;

    assert_int_equal(msp_table_open(&t, path, format, columns, 3, NULL, NULL), MSP_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(msp_table_row(t, rows[i], MSP_ROW_RED, NULL), MSP_OK);
    assert_int_equal(msp_table_finish(t, NULL), MSP_OK);
    msp_table_close(t);
}

static void
our_own_tables_come_back(void **state)
{
    const char *xlsx = scratch_path("kinds.xlsx"), *csv = scratch_path("kinds.csv");

    (void)state;
    write_kinds(xlsx, MSP_TABLE_XLSX);
    assert_table(xlsx, "#s:name|s:value|s:more\ns:a|i:-5|b:1\ns:x, \"y\"\n<&>|f:0.1\n-|f:1e+300|b:0\n"
                       "s:|s:nan|s:N/A\ns:\x01 _x0041_ \r|i:9223372036854775807\n");
    write_kinds(csv, MSP_TABLE_CSV);
    assert_table(csv, "#s:name|s:value|s:more\ns:a|i:-5|b:1\ns:x, \"y\"\n<&>|f:0.1|-\n-|f:1e+300|b:0\n"
                      "-|s:nan|s:N/A\ns:\\x01 _x0041_ \r|i:9223372036854775807|-\n");
}

static void
a_split_table_comes_back_as_one(void **state)
{
    const msp_table_options opt = {.rows_per_sheet = 2};
    const msp_column column = {"n", 0};
    const char *path = scratch_path("split.xlsx");
    msp_table *t;

    (void)state;
    assert_int_equal(msp_table_open(&t, path, MSP_TABLE_XLSX, &column, 1, &opt, NULL), MSP_OK);
    for (int i = 0; i < 5; i++) {
        msp_cell cell = msp_cell_int(i);

        assert_int_equal(msp_table_row(t, &cell, MSP_ROW_PLAIN, NULL), MSP_OK);
    }
    assert_int_equal(msp_table_sheet(t, "other", &column, 1, NULL), MSP_OK);
    assert_int_equal(msp_table_finish(t, NULL), MSP_OK);
    msp_table_close(t);
    assert_table(path, "#s:n\ni:0\ni:1\ni:2\ni:3\ni:4\n");
}

static void
shared_strings_of_libxlsxwriter_come_back(void **state)
{
    const char *path = scratch_path("lxw.xlsx");
    lxw_workbook *book = workbook_new(path);
    lxw_worksheet *sheet = workbook_add_worksheet(book, "First");

    (void)state;
    worksheet_write_string(sheet, 0, 0, "head", NULL);
    worksheet_write_string(sheet, 0, 2, "\xE4\xBD\xA0 <&> ", NULL);
    worksheet_write_string(sheet, 1, 0, "head", NULL);
    worksheet_write_number(sheet, 1, 1, 0.1, NULL);
    worksheet_write_boolean(sheet, 5, 1, 1, NULL);
    worksheet_write_formula_num(sheet, 6, 0, "=1+1", NULL, 2);
    worksheet_write_string(sheet, 7, 0, "a\x02", NULL);
    worksheet_write_string(workbook_add_worksheet(book, "Second"), 0, 0, "no", NULL);
    assert_int_equal(workbook_close(book), LXW_NO_ERROR);
    assert_table(path, "#s:head|-|s:\xE4\xBD\xA0 <&> \ns:head|f:0.1\n-|b:1\ni:2\ns:a\x02\n");
}

static void
every_form_of_a_cell_is_read(void **state)
{
    msp_buf wide = {0};

    (void)state;
    assert_rows("<row><c><v>1</v></c><c/><c t='n'><v>2.5</v></c></row>", NULL, "#i:1|-|f:2.5\n");
    assert_rows("<row r='3'><c r='B3' t='str'><f>A1</f><v>x</v></c><c t='e'><v>#N/A</v></c></row>", NULL,
                "#-|s:x|s:#N/A\n");
    assert_rows("<row/><row><c t='inlineStr'><is><r><t>a</t></r><rPh><t>no</t></rPh><r><t> b</t></r></is></c></row>",
                NULL, "#s:a b\n");
    assert_rows(
        "<row><c t='s'><v>1</v></c><c t='s'><v>0</v></c></row><row><c t='b'><v>0</v></c></row>",
        "<sst><si><r><t>ru</t></r><r><t>n</t></r></si><si><t>one</t><phoneticPr/><rPh><t>no</t></rPh></si></sst>",
        "#s:one|s:run\nb:0\n");
    assert_rows("<row><c t='s'><v>0</v></c></row>", "<x:sst xmlns:x='u'><x:si><x:t>p</x:t></x:si></x:sst>", "#s:p\n");
    assert_rows("<row><c t='inlineStr'><is><t>_x0041__x005F_x0041_ _xD800_ _x00zz_</t></is></c></row>", NULL,
                "#s:A_x0041_ \xEF\xBF\xBD _x00zz_\n");
    for (int i = 0; i < 16383; i++)
        msp_buf_text(&wide, i == 0 ? "#-|" : "-|");
    msp_buf_text(&wide, "f:1e-05\n");
    assert_rows("<row><c r='XFD1'><v>1e-5</v></c></row>", NULL, wide.p);
    msp_buf_release(&wide);
}

static void
malformed_sheets_are_refused(void **state)
{
    (void)state;
    assert_rows_refused("<row><c t='s'><v>0</v></c></row>", "no shared string has this number");
    assert_rows_refused("<row><c t='s'><v>-1</v></c></row>", "row 1, column 1: no shared string has this number");
    assert_rows_refused("<row><c><v>1x</v></c></row>", "a number that is none");
    assert_rows_refused("<row><c><v>inf</v></c></row>", "a number that is none");
    assert_rows_refused("<row><c t='b'><v>2</v></c></row>", "a boolean that is neither 0 nor 1");
    assert_rows_refused("<row><c t='zz'><v>2</v></c></row>", "unknown type");
    assert_rows_refused("<row><c r='B1'/><c r='A1'/></row>", "out of its place");
    assert_rows_refused("<row><c r='XFE1'/></row>", "out of its place");
    assert_rows_refused("<row><c r='1'/></row>", "out of its place");
    assert_rows_refused("<row><c r='AAAAAAAAAAAAAAAAAAAAA1'/></row>", "out of its place");
    assert_rows_refused("<c/>", "a cell outside a row");
    assert_rows_refused("<row><c><c/></c></row>", "a cell outside a row");
    assert_rows_refused("<row><row/></row>", "a row inside a row");
    assert_rows_refused("<row r='5'/><row r='5'/>", "the row behind row 5 has the number 5");
    assert_rows_refused("<row r='x'/>", "has the number x");
}

static void
malformed_workbooks_are_refused(void **state)
{
    (void)state;
    assert_refused(&(book_text){0}, MSP_E_FORMAT, "the workbook has no part xl/worksheets/a.xml");
    assert_refused(&(book_text){.sheets = "<workbook><sheet r:id='r1'/></workbook>"}, MSP_E_FORMAT, "without a name");
    assert_refused(&(book_text){.sheets = "<workbook><sheet name='a'/></workbook>"}, MSP_E_FORMAT, "has no relation");
    assert_refused(&(book_text){.sheets = "<workbook><sheet name='a' r:id='zz'/></workbook>"}, MSP_E_FORMAT,
                   "does not say which part its sheet a is");
    assert_refused(&(book_text){.strings = "<sst><si>", .sheet = "<s/>"}, MSP_E_FORMAT, "xl/strings.xml: ");
    assert_refused(&(book_text){.sheet = "<!DOCTYPE x><s/>"}, MSP_E_UNSUPPORTED, "document type");
}

/* 80 MB of strings in 80 kB of archive. */
static void
shared_strings_may_not_eat_the_memory(void **state)
{
    enum { ONE = 1000000 };
    const char *path = scratch_path("bomb.xlsx");
    char *text = malloc(ONE);
    msp_buf out = {0};
    const msp_table_sink sink = {take_header, take_row, &out};
    msp_error err;
    msp_zip_out *z;
    msp_file file;

    (void)state;
    memset(text, 'x', ONE);
    assert_int_equal(msp_file_create(&file, path, 0640, NULL), MSP_OK);
    assert_int_equal(msp_zip_out_open(&z, &file, 0, NULL), MSP_OK);
    add_part(z, "xl/_rels/workbook.xml.rels", "<r><Relationship Type='/sharedStrings' Target='s.xml'/></r>");
    assert_int_equal(msp_zip_out_begin(z, "xl/s.xml", NULL), MSP_OK);
    assert_int_equal(msp_zip_out_write(z, "<sst>", 5, NULL), MSP_OK);
    for (int i = 0; i < 80; i++) {
        assert_int_equal(msp_zip_out_write(z, "<si><t>", 7, NULL), MSP_OK);
        assert_int_equal(msp_zip_out_write(z, text, ONE, NULL), MSP_OK);
        assert_int_equal(msp_zip_out_write(z, "</t></si>", 9, NULL), MSP_OK);
    }
    assert_int_equal(msp_zip_out_write(z, "</sst>", 6, NULL), MSP_OK);
    assert_int_equal(msp_zip_out_end(z, NULL), MSP_OK);
    assert_int_equal(msp_zip_out_finish(z, NULL), MSP_OK);
    msp_zip_out_close(z);
    assert_int_equal(msp_file_commit(&file, NULL), MSP_OK);
    assert_int_equal(msp_table_read(path, &sink, &err), MSP_E_LIMIT);
    assert_non_null(strstr(err.message, "bytes of shared strings"));
    free(text);
}

static msp_status
read_xlsx_once(const void *p, size_t size)
{
    msp_buf out = {0};
    const msp_table_sink sink = {take_header, take_row, &out};
    msp_status st = msp_xlsx_read(p, size, &sink, NULL);

    msp_buf_release(&out);
    return st;
}

static void
any_damage_to_a_workbook_is_survived(void **state)
{
    const char *path = write_book(&(book_text){
        .strings = "<sst><si><t>one &amp; two</t></si></sst>",
        .sheet =
            "<w><row r='1'><c r='A1' t='s'><v>0</v></c></row><row><c><v>1.5</v></c><c t='b'><v>1</v></c></row></w>"});
    char *bytes;
    size_t size;

    (void)state;
    assert_int_equal(msp_file_read(&bytes, &size, path, 1 << 20, NULL), MSP_OK);
    assert_every_cut_fails(read_xlsx_once, bytes, size, size);
    assert_true(flip_every_bit(read_xlsx_once, bytes, size) > size);
    fail_every_allocation(read_xlsx_once, bytes, size);
    msp_free(bytes);
}

/* ---- csv --------------------------------------------------------------------------------------------------------- */

static void
assert_csv(const char *text, const char *expected)
{
    assert_table(write_file("hand.csv", text, strlen(text)), expected);
}

static void
csv_of_others_is_read_too(void **state)
{
    (void)state;
    assert_csv("\xEF\xBB\xBF"
               "a,b\r\n1,\"x\r\ny\"\r\n\r\n\"\",2.5",
               "#s:a|s:b\ni:1|s:x\r\ny\ns:|f:2.5\n");
    assert_csv("a", "#s:a\n");
    assert_csv("\n\na,\n,\n", "#s:a|-\n-|-\n");
    assert_csv("a\rb,\"\"\"\"\n", "#s:a\rb|s:\"\n");
    assert_csv("\"1\",1e5,-0,inf,True,true,99999999999999999999\n", "#s:1|f:100000.0|i:0|s:inf|b:1|s:true|f:1e+20\n");
}

static void
malformed_csv_is_refused_with_its_line(void **state)
{
    const struct {
        const char *text, *message;
    } bad[] = {{"a\nb,\"c\n\n", "line 2: a quote without its end"},
               {"a\n\"b\nc\"d\n", "line 3: text behind a closing quote"},
               {"\"", "line 1: a quote without its end"}};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        msp_buf out = {0};
        const msp_table_sink sink = {take_header, take_row, &out};
        msp_error err;

        assert_int_equal(msp_csv_read(bad[i].text, strlen(bad[i].text), &sink, &err), MSP_E_FORMAT);
        assert_string_equal(err.message, bad[i].message);
        msp_buf_release(&out);
    }
}

static msp_status
read_csv_once(const void *p, size_t size)
{
    msp_buf out = {0};
    const msp_table_sink sink = {take_header, take_row, &out};
    msp_status st = msp_csv_read(p, size, &sink, NULL);

    msp_buf_release(&out);
    return st;
}

static void
any_damage_to_csv_is_survived(void **state)
{
    const char *text = "a,\"b\"\"c\",1.5\r\n\"x\ny\",True,\n";

    (void)state;
    assert_int_equal(parse_copy(read_csv_once, text, 0), MSP_OK);
    flip_every_bit(read_csv_once, text, strlen(text));
    fail_every_allocation(read_csv_once, text, strlen(text));
}

static msp_status
refuse(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    (void)cells;
    (void)count;
    (void)payload;
    return msp_error_set(err, MSP_E_CANCELLED, "enough");
}

static void
the_sink_may_stop_the_reading(void **state)
{
    const char *path = write_file("stop.csv", "a\nb\n", 4);
    msp_buf out = {0};
    const msp_table_sink sink = {take_header, refuse, &out};
    msp_error err;

    (void)state;
    assert_int_equal(msp_table_read(path, &sink, &err), MSP_E_CANCELLED);
    assert_int_equal(msp_table_read(write_book(&(book_text){.sheet = "<w><row><c><v>1</v></c></row><row><c><v>2</v></c>"
                                                                     "</row></w>"}),
                                    &sink, &err),
                     MSP_E_CANCELLED);
    assert_string_equal(out.p, "#s:a\n#i:1\n");
    msp_buf_release(&out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(our_own_tables_come_back),
        TEST(a_split_table_comes_back_as_one),
        TEST(shared_strings_of_libxlsxwriter_come_back),
        TEST(every_form_of_a_cell_is_read),
        TEST(malformed_sheets_are_refused),
        TEST(malformed_workbooks_are_refused),
        TEST(shared_strings_may_not_eat_the_memory),
        TEST(any_damage_to_a_workbook_is_survived),
        TEST(csv_of_others_is_read_too),
        TEST(malformed_csv_is_refused_with_its_line),
        TEST(any_damage_to_csv_is_survived),
        TEST(the_sink_may_stop_the_reading),
    };

    return cmocka_run_group_tests(tests, NULL, stop_pool_and_remove_scratch);
}
