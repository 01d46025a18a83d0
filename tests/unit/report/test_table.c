/* test_table.c - what every table writer promises, and the exact text of csv and json. xlsx: test_xlsx.c. */
#include "tables.h"
#include "report/write/writer.h"
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"

static const msp_column two_columns[] = {{"name", 0}, {"value", 0}};

static msp_cell
text(const char *s)
{
    return msp_cell_text(s, strlen(s));
}

static size_t
files_in_scratch(void)
{
    msp_dir_list list;
    size_t n;

    assert_int_equal(msp_dir_list_read(&list, scratch_dir(), NULL), MSP_OK);
    n = list.count;
    msp_dir_list_release(&list);
    return n;
}

static msp_table *
open_table(const char *path, msp_table_format format, const msp_column *columns, size_t n, const msp_table_options *opt)
{
    msp_table *t;
    msp_error err;

    if (msp_table_open(&t, path, format, columns, n, opt, &err) != MSP_OK)
        fail_msg("%s", err.message);
    return t;
}

static void
add_row(msp_table *t, msp_cell a, msp_cell b)
{
    msp_cell cells[] = {a, b};
    msp_error err;

    if (msp_table_row(t, cells, MSP_ROW_PLAIN, &err) != MSP_OK)
        fail_msg("%s", err.message);
}

static void
assert_file_is(const char *path, const char *expected)
{
    char *bytes;
    size_t size;

    assert_int_equal(msp_file_read(&bytes, &size, path, 1 << 20, NULL), MSP_OK);
    assert_string_equal(bytes, expected);
    assert_int_equal(size, strlen(expected));
    msp_free(bytes);
    unlink(path);
}

static void
every_kind_of_cell_has_its_text_in_csv(void **state)
{
    const char *path = scratch_path("kinds.csv");
    msp_table *t = open_table(path, MSP_TABLE_CSV, two_columns, 2, NULL);

    (void)state;
    add_row(t, text("plain"), msp_cell_int(INT64_MIN));
    add_row(t, text("a,b"), msp_cell_float(0.1));
    add_row(t, text("say \"no\""), msp_cell_float(1e16));
    add_row(t, text("two\nlines"), msp_cell_float(NAN));
    add_row(t, text("cr\r"), msp_cell_float(-INFINITY));
    add_row(t, text("=1+1"), msp_cell_bool(true));
    add_row(t, (msp_cell){0}, msp_cell_bool(false));
    add_row(t, text("\xC3\xA4 \xFF \xE4\xBD"), (msp_cell){0}); /* ä, a stray byte, a cut character */
    finish(t);
    assert_file_is(path, "name,value\n"
                         "plain,-9223372036854775808\n"
                         "\"a,b\",0.1\n"
                         "\"say \"\"no\"\"\",1e+16\n"
                         "\"two\nlines\",nan\n"
                         "\"cr\r\",-inf\n"
                         "'=1+1,True\n"
                         ",False\n"
                         "\xC3\xA4 \xEF\xBF\xBD \xEF\xBF\xBD\xEF\xBF\xBD,\n");
}

/* Every byte at every place of texts of every length up to three words. */
static void
a_character_is_quoted_wherever_it_stands_in_a_csv_cell(void **state)
{
    (void)state;
    for (size_t len = 1; len <= 24; len++)
        for (size_t at = 0; at < len; at++)
            for (int c = 1; c < 256; c++) {
                char text[24], wanted[64], code[8];
                msp_cell cell = msp_cell_text(text, len);
                bool quoted = c == ',' || c == '"' || c == '\n' || c == '\r';
                bool control = (c < ' ' && c != '\n' && c != '\r' && c != '\t') || c == 0x7f;
                bool formula = at == 0 && memchr("=+-@\t\r", c, 6) != NULL;
                msp_buf line = {0};

                memset(text, 'x', len);
                text[at] = (char)c;
                snprintf(code, sizeof(code), "\\x%02x", (unsigned)c);
                snprintf(wanted, sizeof(wanted), "%s%s%.*s%s%.*s%s\n", quoted ? "\"" : "", formula ? "'" : "", (int)at,
                         text,
                         c == '"'  ? "\"\""
                         : c > 127 ? "\xEF\xBF\xBD"
                         : control ? code
                                   : (char[]){(char)c, 0},
                         (int)(len - at - 1), text + at + 1, quoted ? "\"" : "");
                msp_csv_line(&line, &cell, 1);
                assert_string_equal(line.p, wanted);
                msp_buf_release(&line);
            }
}

static void
an_empty_row_of_a_one_column_csv_is_not_an_empty_line(void **state)
{
    const char *path = scratch_path("one.csv");
    msp_table *t = open_table(path, MSP_TABLE_CSV, two_columns, 1, NULL);
    msp_cell cell = {0};

    (void)state;
    assert_int_equal(msp_table_row(t, &cell, MSP_ROW_PLAIN, NULL), MSP_OK);
    finish(t);
    assert_file_is(path, "name\n\"\"\n");
}

static void
every_kind_of_cell_has_its_value_in_json(void **state)
{
    const char *path = scratch_path("kinds.json");
    msp_table *t = open_table(path, MSP_TABLE_JSON, two_columns, 2, NULL);

    (void)state;
    add_row(t, text("a\"b\n"), msp_cell_int(-5));
    add_row(t, text("\xC3\xA4"), msp_cell_float(2.0));
    add_row(t, (msp_cell){0}, msp_cell_float(INFINITY));
    add_row(t, msp_cell_bool(true), msp_cell_float(NAN));
    finish(t);
    assert_file_is(path, "{\"columns\": [\"name\", \"value\"],\n\"rows\": [\n"
                         "[\"a\\\"b\\n\", -5],\n"
                         "[\"\\u00e4\", 2.0],\n"
                         "[null, \"inf\"],\n"
                         "[true, \"nan\"]]}\n");
}

static void
a_table_without_rows_is_still_a_table(void **state)
{
    const char *csv = scratch_path("none.csv"), *json = scratch_path("none.json");

    (void)state;
    finish(open_table(csv, MSP_TABLE_CSV, two_columns, 2, NULL));
    finish(open_table(json, MSP_TABLE_JSON, two_columns, 2, NULL));
    assert_file_is(csv, "name,value\n");
    assert_file_is(json, "{\"columns\": [\"name\", \"value\"],\n\"rows\": []}\n");
}

static void
further_sheets_of_a_json_table_stand_in_a_list(void **state)
{
    const char *path = scratch_path("sheets.json");
    const msp_table_options opt = {.sheet = "first"};
    const msp_column other = {"x", 0};
    msp_table *t = open_table(path, MSP_TABLE_JSON, two_columns, 2, &opt);
    msp_cell cell = msp_cell_int(1);

    (void)state;
    add_row(t, text("a"), msp_cell_int(0));
    assert_int_equal(msp_table_sheet(t, "second", &other, 1, NULL), MSP_OK);
    assert_int_equal(msp_table_row(t, &cell, MSP_ROW_PLAIN, NULL), MSP_OK);
    assert_int_equal(msp_table_sheet(t, "third", &other, 1, NULL), MSP_OK);
    finish(t);
    assert_file_is(path, "{\"columns\": [\"name\", \"value\"],\n\"rows\": [\n[\"a\", 0]],\n"
                         "\"name\": \"first\",\n\"sheets\": [\n"
                         "{\"name\": \"second\",\n\"columns\": [\"x\"],\n\"rows\": [\n[1]]},\n"
                         "{\"name\": \"third\",\n\"columns\": [\"x\"],\n\"rows\": []}]}\n");
}

static void
a_second_sheet_in_csv_is_refused_and_the_first_goes_on(void **state)
{
    const char *path = scratch_path("single.csv");
    msp_table *t = open_table(path, MSP_TABLE_CSV, two_columns, 2, NULL);
    msp_error err;

    (void)state;
    assert_int_equal(msp_table_sheet(t, "more", two_columns, 2, &err), MSP_E_UNSUPPORTED);
    add_row(t, text("a"), msp_cell_int(0));
    finish(t);
    assert_file_is(path, "name,value\na,0\n");
}

static void
a_finished_file_has_mode_0640_and_replaces_what_was_there(void **state)
{
    mode_t old = umask(022);

    (void)state;
    for (msp_table_format f = MSP_TABLE_CSV; f <= MSP_TABLE_JSON; f++) {
        const char *path = write_file("mode", "old", 3);
        struct stat st;

        finish(open_table(path, f, two_columns, 2, NULL));
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0640);
        assert_int_not_equal(st.st_size, 3);
        unlink(path);
    }
    umask(old);
    assert_int_equal(files_in_scratch(), 0);
}

static void
an_unfinished_table_leaves_nothing_and_keeps_the_old_file(void **state)
{
    (void)state;
    for (msp_table_format f = MSP_TABLE_CSV; f <= MSP_TABLE_JSON; f++) {
        const char *path = write_file("kept", "old", 3);
        msp_table *t = open_table(path, f, two_columns, 2, NULL);

        add_row(t, text("a"), msp_cell_int(0));
        msp_table_close(t);
        assert_file_is(path, "old");
        assert_int_equal(files_in_scratch(), 0);
    }
}

static void
wrong_arguments_are_refused(void **state)
{
    msp_table *t;
    msp_error err;

    (void)state;
    assert_int_equal(msp_table_open(&t, scratch_path("x"), MSP_TABLE_CSV, two_columns, 0, NULL, &err), MSP_E_INVALID);
    assert_null(t);
    assert_int_equal(msp_table_open(&t, scratch_path("x"), (msp_table_format)99, two_columns, 2, NULL, &err),
                     MSP_E_INVALID);
    assert_int_equal(msp_table_open(&t, scratch_path("no/such/x"), MSP_TABLE_XLSX, two_columns, 2, NULL, &err),
                     MSP_E_IO);
    assert_non_null(strstr(err.message, "no/such/x"));
    assert_int_equal(files_in_scratch(), 0);
    msp_table_close(NULL);
}

/* Rows until the writer fails, which it must before the end; the status of the first failure. */
static msp_status
write_until_failure(const char *path, msp_table_format f, msp_error *err)
{
    msp_table *t = open_table(path, f, two_columns, 2, NULL);
    msp_status st = MSP_OK;

    srand(1);
    for (int i = 0; i < 200000 && st == MSP_OK; i++) {
        msp_cell cells[] = {msp_cell_int(rand()), msp_cell_float(rand() / 3.0)};

        st = msp_table_row(t, cells, MSP_ROW_RED, err);
    }
    if (st != MSP_OK) { /* the reason stays */
        msp_error again;
        msp_cell cells[2] = {{0}};

        assert_int_equal(msp_table_row(t, cells, MSP_ROW_PLAIN, &again), st);
        assert_string_equal(again.message, err->message);
        assert_int_equal(msp_table_sheet(t, "s", two_columns, 2, &again), st);
        assert_int_equal(msp_table_finish(t, &again), st);
        assert_string_equal(again.message, err->message);
    } else {
        st = msp_table_finish(t, err);
    }
    msp_table_close(t);
    return st;
}

static void
a_full_disk_is_said_and_leaves_nothing(void **state)
{
    const struct rlimit small = {100000, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    for (msp_table_format f = MSP_TABLE_CSV; f <= MSP_TABLE_JSON; f++) {
        const char *path = scratch_path("full");
        msp_error err;

        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        assert_int_equal(write_until_failure(path, f, &err), MSP_E_IO);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
        assert_non_null(strstr(err.message, path));
        assert_non_null(strstr(err.message, "File too large"));
        assert_int_equal(files_in_scratch(), 0);
    }
}

static msp_status
write_small(const char *path, msp_table_format f)
{
    const msp_table_options opt = {.sheet = "one", .rows_per_sheet = 3};
    msp_cell cells[] = {text("a < b"), msp_cell_float(0.1)};
    msp_table *t;
    msp_status st = msp_table_open(&t, path, f, two_columns, 2, &opt, NULL);

    for (int i = 0; i < 4 && st == MSP_OK; i++)
        st = msp_table_row(t, cells, MSP_ROW_YELLOW, NULL);
    if (st == MSP_OK && f != MSP_TABLE_CSV)
        st = msp_table_sheet(t, "two", two_columns, 2, NULL);
    if (st == MSP_OK)
        st = msp_table_finish(t, NULL);
    msp_table_close(t);
    return st;
}

static void
whichever_allocation_fails_nothing_is_left(void **state)
{
    (void)state;
    for (msp_table_format f = MSP_TABLE_CSV; f <= MSP_TABLE_JSON; f++) {
        const char *path = scratch_path("nomem");
        int64_t live = msp_alloc_live();
        msp_status st = MSP_E_NOMEM;

        for (int64_t n = 0; st != MSP_OK; n++) {
            assert_true(n < 10000);
            msp_alloc_fail_after(n);
            st = write_small(path, f);
            msp_alloc_fail_after(-1);
            assert_int_equal(msp_alloc_live(), live);
            if (st != MSP_OK) {
                assert_int_equal(st, MSP_E_NOMEM);
                assert_int_equal(files_in_scratch(), 0);
            }
        }
        assert_int_equal(files_in_scratch(), 1);
        unlink(path);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_kind_of_cell_has_its_text_in_csv),
        TEST(a_character_is_quoted_wherever_it_stands_in_a_csv_cell),
        TEST(an_empty_row_of_a_one_column_csv_is_not_an_empty_line),
        TEST(every_kind_of_cell_has_its_value_in_json),
        TEST(a_table_without_rows_is_still_a_table),
        TEST(further_sheets_of_a_json_table_stand_in_a_list),
        TEST(a_second_sheet_in_csv_is_refused_and_the_first_goes_on),
        TEST(a_finished_file_has_mode_0640_and_replaces_what_was_there),
        TEST(an_unfinished_table_leaves_nothing_and_keeps_the_old_file),
        TEST(wrong_arguments_are_refused),
        TEST(a_full_disk_is_said_and_leaves_nothing),
        TEST(whichever_allocation_fails_nothing_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, stop_pool_and_remove_scratch);
}
