/* test_xlsx.c - the XML that the xlsx writer makes of cells, rows and sheets. tests/python reads it with openpyxl. */
#include "tables.h"
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include "core/alloc.h"
#include "core/path.h"
#include "io/zip.h"
#include "report/write/xlsx_book.h"

static const msp_column two_columns[] = {{"name", 0}, {"value", 30}};

static msp_cell
text(const char *s)
{
    return msp_cell_text(s, strlen(s));
}

static int interruptions; /* of reserving room, still to come */

/* In place of the C library's: a signal of the program that hosts us may interrupt it. */
int
posix_fallocate(int fd, off_t offset, off_t size)
{
    if (interruptions-- > 0)
        return EINTR;
    return fallocate(fd, 0, offset, size) == 0 ? 0 : errno;
}

static msp_table *
open_book(const char *path, const msp_table_options *opt)
{
    msp_table *t;
    msp_error err;

    if (msp_table_open(&t, path, MSP_TABLE_XLSX, two_columns, 2, opt, &err) != MSP_OK)
        fail_msg("%s", err.message);
    return t;
}

static void
add_row(msp_table *t, msp_cell a, msp_cell b, msp_row_colour colour)
{
    msp_cell cells[] = {a, b};
    msp_error err;

    if (msp_table_row(t, cells, colour, &err) != MSP_OK)
        fail_msg("%s", err.message);
}

/* One part of the workbook as text, for msp_free(); NULL when there is none. */
static char *
part_of(const char *path, const char *name)
{
    const msp_zip_entry *e;
    msp_mapping map;
    char *part = NULL;
    msp_zip z;

    assert_int_equal(msp_map_open(&map, path, NULL), MSP_OK);
    assert_int_equal(msp_zip_open(&z, map.addr, map.size, NULL), MSP_OK);
    e = msp_zip_find(&z, msp_str_of(name));
    if (e != NULL)
        assert_int_equal(msp_zip_read(&part, &z, e, 1 << 24, NULL), MSP_OK);
    msp_zip_close(&z);
    msp_map_close(&map);
    return part;
}

static void
assert_part_has(const char *path, const char *name, const char *expected)
{
    char *part = part_of(path, name);

    assert_non_null(part);
    if (strstr(part, expected) == NULL)
        fail_msg("%s has no %s:\n%s", name, expected, part);
    msp_free(part);
}

static const char *
book_with_cell(msp_cell cell, msp_row_colour colour)
{
    const char *path = scratch_path("cell.xlsx");
    msp_table *t = open_book(path, NULL);

    add_row(t, cell, msp_cell_int(7), colour);
    finish(t);
    return path;
}

/* A cell of this value is written as <c r="A2"...: given here from the reference's closing quote on. */
static void
assert_cell(msp_cell cell, const char *expected)
{
    char all[512];

    snprintf(all, sizeof(all), "<row r=\"2\"><c r=\"A2\"%s<c r=\"B2\"><v>7</v></c></row>", expected);
    assert_part_has(book_with_cell(cell, MSP_ROW_PLAIN), "xl/worksheets/sheet1.xml", all);
}

static void
numbers_keep_all_their_digits(void **state)
{
    (void)state;
    assert_cell(msp_cell_float(0.1), "><v>0.1</v></c>");
    assert_cell(msp_cell_float(0.1 + 0.2), "><v>0.30000000000000004</v></c>");
    assert_cell(msp_cell_float(3), "><v>3</v></c>");
    assert_cell(msp_cell_float(-0.0), "><v>-0</v></c>");
    assert_cell(msp_cell_float(1e300), "><v>1e+300</v></c>");
    assert_cell(msp_cell_float(5e-324), "><v>5e-324</v></c>");
    assert_cell(msp_cell_int(INT64_MAX), "><v>9223372036854775807</v></c>");
    assert_cell(msp_cell_bool(true), " t=\"b\"><v>1</v></c>");
    assert_cell(msp_cell_bool(false), " t=\"b\"><v>0</v></c>");
}

static void
numbers_that_are_none_are_text(void **state)
{
    (void)state;
    assert_cell(msp_cell_float(NAN), " t=\"inlineStr\"><is><t>nan</t></is></c>");
    assert_cell(msp_cell_float(INFINITY), " t=\"inlineStr\"><is><t>inf</t></is></c>");
    assert_cell(msp_cell_float(-INFINITY), " t=\"inlineStr\"><is><t>-inf</t></is></c>");
}

static void
text_is_escaped_and_never_a_formula(void **state)
{
    (void)state;
    assert_cell(text("=1+1"), " t=\"inlineStr\"><is><t>=1+1</t></is></c>");
    assert_cell(text("@x"), " t=\"inlineStr\"><is><t>@x</t></is></c>");
    assert_cell(text("a<b>&\"c"), " t=\"inlineStr\"><is><t>a&lt;b&gt;&amp;\"c</t></is></c>");
    assert_cell(text("\x01\x1F\r."), " t=\"inlineStr\"><is><t>_x0001__x001F__x000D_.</t></is></c>");
    assert_cell(msp_cell_text("a\0b", 3), " t=\"inlineStr\"><is><t>a_x0000_b</t></is></c>");
    assert_cell(text("_x0041_ _x004_ _y"), " t=\"inlineStr\"><is><t>_x005F_x0041_ _x004_ _y</t></is></c>");
    assert_cell(text("\xEF\xBF\xBF"), " t=\"inlineStr\"><is><t>_xFFFF_</t></is></c>");
    assert_cell(text("tab\tnl\nx"), " t=\"inlineStr\"><is><t>tab\tnl\nx</t></is></c>");
    assert_cell(text(" x"), " t=\"inlineStr\"><is><t xml:space=\"preserve\"> x</t></is></c>");
    assert_cell(text("x\n"), " t=\"inlineStr\"><is><t xml:space=\"preserve\">x\n</t></is></c>");
    assert_cell(text("\xFF\xE4\xBD\xA0\xE4\xBD"),
                " t=\"inlineStr\"><is><t>\xEF\xBF\xBD\xE4\xBD\xA0\xEF\xBF\xBD\xEF\xBF\xBD</t></is></c>");
    assert_cell(text(""), " t=\"inlineStr\"><is><t></t></is></c>");
}

static void
an_empty_cell_is_left_out_unless_its_row_is_coloured(void **state)
{
    const msp_cell empty = {0};

    (void)state;
    assert_part_has(book_with_cell(empty, MSP_ROW_PLAIN), "xl/worksheets/sheet1.xml",
                    "<row r=\"2\"><c r=\"B2\"><v>7</v></c></row>");
    assert_part_has(book_with_cell(empty, MSP_ROW_RED), "xl/worksheets/sheet1.xml",
                    "<row r=\"2\"><c r=\"A2\" s=\"2\"/><c r=\"B2\" s=\"2\"><v>7</v></c></row>");
    assert_part_has(book_with_cell(empty, MSP_ROW_YELLOW), "xl/worksheets/sheet1.xml", "<c r=\"A2\" s=\"3\"/>");
}

static void
text_too_long_for_a_cell_is_cut_between_characters(void **state)
{
    enum { CHARS = 32768 };
    char *s = malloc(3 * CHARS), *part, *note;

    (void)state;
    for (size_t i = 0; i < CHARS; i++)
        memcpy(s + 3 * i, "\xE4\xBD\xA0", 3);
    part = part_of(book_with_cell(msp_cell_text(s, 3 * (CHARS - 1)), MSP_ROW_PLAIN), "xl/worksheets/sheet1.xml");
    assert_null(strstr(part, "cut here")); /* 32767 characters just fit, though they are 98301 bytes */
    msp_free(part);

    part = part_of(book_with_cell(msp_cell_text(s, 3 * CHARS), MSP_ROW_PLAIN), "xl/worksheets/sheet1.xml");
    note = strstr(part, "... (cut here: 32768 characters do not fit in a cell)</t>");
    assert_non_null(note);
    assert_memory_equal(note - 3, "\xE4\xBD\xA0", 3);
    msp_free(part);
    free(s);
}

static void
the_header_has_its_style_unless_told_otherwise(void **state)
{
    const msp_table_options plain = {.plain_header = true};
    const char *path = scratch_path("header.xlsx");

    (void)state;
    finish(open_book(path, NULL));
    assert_part_has(path, "xl/worksheets/sheet1.xml", "<c r=\"A1\" s=\"1\" t=\"inlineStr\"><is><t>name</t></is></c>");
    assert_part_has(path, "xl/worksheets/sheet1.xml",
                    "<col min=\"2\" max=\"2\" width=\"30.7109375\" customWidth=\"1\"/>");
    assert_part_has(path, "xl/workbook.xml", "<sheet name=\"Sheet1\" sheetId=\"1\"");
    assert_part_has(path, "xl/styles.xml", "<alignment horizontal=\"center\" vertical=\"top\"/>");
    finish(open_book(path, &plain));
    assert_part_has(path, "xl/worksheets/sheet1.xml", "<c r=\"A1\" s=\"0\" t=\"inlineStr\"><is><t>name</t></is></c>");
}

/* Rows in the i-th sheet, the header left out; -1 when there is no such sheet. */
static int
rows_in_sheet(const char *path, int i)
{
    char name[64], *part;
    int rows = -1;

    snprintf(name, sizeof(name), "xl/worksheets/sheet%d.xml", i);
    part = part_of(path, name);
    if (part == NULL)
        return -1;
    for (char *p = part; (p = strstr(p, "<row ")) != NULL; p++)
        rows++;
    msp_free(part);
    return rows;
}

static const char *
book_of_rows(int rows, const msp_table_options *opt)
{
    const char *path = scratch_path("split.xlsx");
    msp_table *t = open_book(path, opt);

    for (int i = 0; i < rows; i++)
        add_row(t, msp_cell_int(i), (msp_cell){0}, MSP_ROW_PLAIN);
    finish(t);
    return path;
}

static void
a_long_table_is_split_into_equal_parts_when_its_length_is_known(void **state)
{
    const msp_table_options known = {.sheet = "S", .rows_per_sheet = 10, .total_rows = 21};
    const msp_table_options unknown = {.sheet = "S", .rows_per_sheet = 10};
    const char *path = book_of_rows(21, &known);

    (void)state;
    assert_int_equal(rows_in_sheet(path, 1), 7);
    assert_int_equal(rows_in_sheet(path, 2), 7);
    assert_int_equal(rows_in_sheet(path, 3), 7);
    assert_int_equal(rows_in_sheet(path, 4), -1);
    assert_part_has(path, "xl/workbook.xml",
                    "<sheet name=\"part_0\" sheetId=\"1\" r:id=\"rId1\"/><sheet name=\"part_1\" sheetId=\"2\" "
                    "r:id=\"rId2\"/><sheet name=\"part_2\"");
    assert_part_has(path, "xl/worksheets/sheet2.xml", "<row r=\"2\"><c r=\"A2\"><v>7</v></c></row>");

    path = book_of_rows(21, &unknown);
    assert_int_equal(rows_in_sheet(path, 1), 10);
    assert_int_equal(rows_in_sheet(path, 2), 10);
    assert_int_equal(rows_in_sheet(path, 3), 1);

    path = book_of_rows(9, &unknown);
    assert_int_equal(rows_in_sheet(path, 2), -1);
    assert_part_has(path, "xl/workbook.xml", "<sheet name=\"S\"");
    path = book_of_rows(10, &unknown); /* as the original: the limit itself already counts as split */
    assert_int_equal(rows_in_sheet(path, 2), -1);
    assert_part_has(path, "xl/workbook.xml", "<sheet name=\"part_0\"");
}

static void
further_sheets_have_columns_of_their_own(void **state)
{
    const msp_table_options opt = {.sheet = "Max diff", .rows_per_sheet = 2};
    const msp_column three[] = {{"a", 0}, {"b", 0}, {"c", 0}};
    const msp_cell cells[] = {msp_cell_int(1), msp_cell_int(2), msp_cell_int(3)};
    const char *path = scratch_path("sheets.xlsx");
    msp_table *t = open_book(path, &opt);

    (void)state;
    add_row(t, msp_cell_int(1), msp_cell_int(2), MSP_ROW_PLAIN);
    assert_int_equal(msp_table_sheet(t, "a/b", three, 3, NULL), MSP_OK);
    assert_int_equal(msp_table_row(t, cells, MSP_ROW_PLAIN, NULL), MSP_OK);
    assert_int_equal(msp_table_sheet(t, "max DIFF", three, 3, NULL), MSP_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(msp_table_row(t, cells, MSP_ROW_PLAIN, NULL), MSP_OK);
    finish(t);
    assert_part_has(path, "xl/workbook.xml", "<sheet name=\"Max diff\"");
    assert_part_has(path, "xl/workbook.xml", "<sheet name=\"a_b\"");
    assert_part_has(path, "xl/workbook.xml", "<sheet name=\"max DIFF_part_0\"");
    assert_part_has(path, "xl/workbook.xml", "<sheet name=\"max DIFF_part_1\"");
    assert_part_has(path, "xl/worksheets/sheet2.xml", "<c r=\"C2\"><v>3</v></c>");
    assert_int_equal(rows_in_sheet(path, 4), 1);
    assert_int_equal(rows_in_sheet(path, 5), -1);
}

static void
assert_sheet_name(const char *wanted, const char *expected)
{
    char *const taken[] = {"Taken"};
    msp_buf out = {0};

    msp_xlsx_sheet_name(&out, msp_str_of(wanted), "", taken, 1);
    assert_string_equal(out.p, expected);
    msp_buf_release(&out);
}

static void
sheet_names_are_made_valid(void **state)
{
    (void)state;
    assert_sheet_name("plain", "plain");
    assert_sheet_name("", "Sheet");
    assert_sheet_name("a[b]c:d*e?f/g\\h\n", "a_b_c_d_e_f_g_h_");
    assert_sheet_name("'quoted'", "_quoted_");
    assert_sheet_name("it's", "it's");
    assert_sheet_name("history", "history_2");
    assert_sheet_name("TAKEN", "TAKEN_2");
    assert_sheet_name("1234567890123456789012345678901234", "1234567890123456789012345678901");
    assert_sheet_name("123456789012345678901234567890\xF0\x9F\x98\x80", "123456789012345678901234567890");
    assert_sheet_name("bad \xFF", "bad \xEF\xBF\xBD");
}

static void
columns_beyond_excels_are_refused(void **state)
{
    enum { MANY = 16385 };
    msp_column *columns = malloc(MANY * sizeof(*columns));
    const char *path = scratch_path("wide.xlsx");
    msp_cell *cells = malloc(MANY * sizeof(*cells));
    msp_error err;
    msp_table *t;

    (void)state;
    for (size_t i = 0; i < MANY; i++) {
        columns[i] = (msp_column){"c", 0};
        cells[i] = msp_cell_int((int64_t)i);
    }
    assert_int_equal(msp_table_open(&t, path, MSP_TABLE_XLSX, columns, MANY, NULL, &err), MSP_E_LIMIT);
    assert_int_equal(msp_table_open(&t, path, MSP_TABLE_XLSX, columns, MANY - 1, NULL, &err), MSP_OK);
    assert_int_equal(msp_table_row(t, cells, MSP_ROW_PLAIN, &err), MSP_OK);
    finish(t);
    assert_part_has(path, "xl/worksheets/sheet1.xml", "<c r=\"XFD2\"><v>16383</v></c></row>");
    assert_part_has(path, "xl/worksheets/sheet1.xml", "<c r=\"AA2\"><v>26</v></c>");
    assert_part_has(path, "xl/worksheets/sheet1.xml", "<c r=\"ZZ2\"><v>701</v></c>");
    free(columns);
    free(cells);
}

/* The rows fit and the rest of the workbook does not: libxlsxwriter must not be the one who finds out. */
static void
a_disk_that_fills_up_at_the_very_end_is_said(void **state)
{
    const struct rlimit small = {8192, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    msp_dir_list list;
    msp_table *t;
    msp_error err;

    (void)state;
    remove_scratch(NULL);
    assert_int_equal(msp_path_make_dirs(scratch_dir(), NULL), MSP_OK);
    signal(SIGXFSZ, SIG_IGN);
    t = open_book(scratch_path("end.xlsx"), NULL);
    add_row(t, msp_cell_int(1), msp_cell_int(2), MSP_ROW_PLAIN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(msp_table_finish(t, &err), MSP_E_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    msp_table_close(t);
    assert_non_null(strstr(err.message, "end.xlsx: cannot write: File too large"));
    assert_int_equal(msp_dir_list_read(&list, scratch_dir(), NULL), MSP_OK);
    assert_int_equal(list.count, 0);
    msp_dir_list_release(&list);
}

static void
a_signal_while_room_is_reserved_does_no_harm(void **state)
{
    msp_table *t = open_book(scratch_path("signal.xlsx"), NULL);

    (void)state;
    interruptions = 2;
    assert_int_equal(msp_table_finish(t, NULL), MSP_OK);
    assert_int_equal(interruptions, -1);
    msp_table_close(t);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_signal_while_room_is_reserved_does_no_harm),
        TEST(numbers_keep_all_their_digits),
        TEST(numbers_that_are_none_are_text),
        TEST(text_is_escaped_and_never_a_formula),
        TEST(an_empty_cell_is_left_out_unless_its_row_is_coloured),
        TEST(text_too_long_for_a_cell_is_cut_between_characters),
        TEST(the_header_has_its_style_unless_told_otherwise),
        TEST(a_long_table_is_split_into_equal_parts_when_its_length_is_known),
        TEST(further_sheets_have_columns_of_their_own),
        TEST(sheet_names_are_made_valid),
        TEST(columns_beyond_excels_are_refused),
        TEST(a_disk_that_fills_up_at_the_very_end_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, stop_pool_and_remove_scratch);
}
