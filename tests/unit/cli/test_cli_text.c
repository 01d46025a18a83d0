/* test_cli_text.c - what goes to the screen: widths, safe text, progress, quoting, JSON. */
#include "unit.h"
#include <math.h>
#include "jsonout.h"
#include "progress.h"
#include "shell.h"
#include "summary_parts.h"
#include "terminal.h"

static size_t
width(const char *s)
{
    return msp_text_width(s, strlen(s));
}

static void
wide_characters_take_two_columns(void **state)
{
    (void)state;
    assert_int_equal(width("abc"), 3);
    assert_int_equal(width("精度"), 4);
    assert_int_equal(width("é"), 1);
    assert_int_equal(width("e\xcc\x81"), 1); /* e and a combining accent */
    assert_int_equal(width("\xff\xfe"), 2);  /* no UTF-8: one column a byte */
    assert_int_equal(width("한국어"), 6);
    assert_int_equal(width("\xf0\x9f\x98\x80"), 2);
    assert_int_equal(width("\xed\xa0\x80"), 3); /* a surrogate is no character */
}

static void
text_is_cut_at_whole_characters(void **state)
{
    (void)state;
    assert_int_equal(msp_text_fit("精度", 6, 3), 3);
    assert_int_equal(msp_text_fit("精度", 6, 4), 6);
    assert_int_equal(msp_text_fit("abc", 3, 0), 0);
}

static void
names_from_files_cannot_move_the_cursor(void **state)
{
    char buf[64];

    (void)state;
    assert_string_equal(msp_text_safe(buf, sizeof(buf), "a\033[2Jb\rc\nd\x7f"), "a?[2Jb?c?d?");
    assert_string_equal(msp_text_safe(buf, sizeof(buf),
                                      "\xc2\x9b"
                                      "1m"),
                        "?1m");
    assert_string_equal(msp_text_safe(buf, sizeof(buf),
                                      "a\xe2\x80\xae"
                                      "b"),
                        "a?b");
    assert_string_equal(msp_text_safe(buf, sizeof(buf), "\xff精"), "?精");
    assert_string_equal(msp_text_safe(buf, 6, "精度精度"), "精");
}

static void
wrapped_text_keeps_its_width(void **state)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    (void)state;
    msp_text_wrap(f, "one two three four five six", 10, 30);
    fclose(f);
    assert_string_equal(text, "one two three four\n          five six\n");
    free(text);
}

static void
counts_bytes_and_times_read_well(void **state)
{
    char buf[32];

    (void)state;
    assert_string_equal(msp_format_count(buf, 0), "0");
    assert_string_equal(msp_format_count(buf, 999), "999");
    assert_string_equal(msp_format_count(buf, 1234567), "1,234,567");
    assert_string_equal(msp_format_count(buf, INT64_MIN), "-9,223,372,036,854,775,808");
    assert_string_equal(msp_format_bytes(buf, 17), "17 B");
    assert_string_equal(msp_format_bytes(buf, 999.6), "1.0 kB");
    assert_string_equal(msp_format_bytes(buf, 1.26e9), "1.3 GB");
    assert_string_equal(msp_format_bytes(buf, 5e15), "5000 TB");
    assert_string_equal(msp_format_seconds(buf, 7.4), "0:07");
    assert_string_equal(msp_format_seconds(buf, 3723), "1:02:03");
    assert_string_equal(msp_format_seconds(buf, INFINITY), "1000:00:00");
}

static void
progress_tells_rows_speed_and_time_left(void **state)
{
    msp_progress_state s = {.what = "rank0",
                            .rows = 12000,
                            .total_rows = 48000,
                            .bytes = 3000000000,
                            .total_bytes = 12000000000};
    char buf[128];

    (void)state;
    msp_progress_format(buf, sizeof(buf), &s, 2.5, 7.6);
    assert_string_equal(buf, "rank0  12,000 of 48,000 rows  1.2 GB/s  0:08 left");
    s = (msp_progress_state){.rows = 7};
    msp_progress_format(buf, sizeof(buf), &s, 1, -1);
    assert_string_equal(buf, "7 rows");
}

static void
time_left_is_what_reading_and_rows_still_take(void **state)
{
    msp_progress_state s = {.bytes = 100, .total_bytes = 400, .json = 100, .total_json = 400};

    (void)state;
    /* a quarter read in 2 seconds: 6 more, and the rows will take as long as all of the reading */
    assert_float_equal(msp_progress_left(&s, 2, 0), 14, 1e-9);
    s.row_cost = 6; /* or six times as long, as in a workbook */
    assert_float_equal(msp_progress_left(&s, 2, 0), 54, 1e-9);
    /* all read, a quarter of the rows done in 5 seconds */
    s = (msp_progress_state){.json = 400, .total_json = 400, .known_json = 400, .bytes = 400, .total_bytes = 400};
    s.rows = 12000;
    s.total_rows = 48000;
    assert_float_equal(msp_progress_left(&s, 2, 5), 15, 1e-9);
    /* one of two ranks read and done: the other takes as long */
    s = (msp_progress_state){.json = 400, .total_json = 800, .known_json = 400, .rows = 9, .total_rows = 9};
    assert_float_equal(msp_progress_left(&s, 2, 5), 7, 1e-9);
    /* tensors count by their bytes */
    s = (msp_progress_state){.json = 10, .total_json = 10, .known_json = 10, .rows = 9, .total_rows = 10};
    s.bytes = 110;
    s.total_bytes = 1010;
    assert_float_equal(msp_progress_left(&s, 1, 3), 27, 1e-9);
    /* nothing to go by */
    s = (msp_progress_state){.total_json = 10};
    assert_true(msp_progress_left(&s, 0, 0) < 0);
    s = (msp_progress_state){.rows = 7};
    assert_true(msp_progress_left(&s, 0, 1) <= 0);
}

static const char *
quoted(const char *word)
{
    static char buf[128];
    FILE *f = fmemopen(buf, sizeof(buf), "w");

    msp_shell_put(f, word);
    fputc('\0', f);
    fclose(f);
    return buf;
}

static void
words_are_quoted_only_where_a_shell_needs_it(void **state)
{
    (void)state;
    assert_string_equal(quoted("npu_dump/step0"), "npu_dump/step0");
    assert_string_equal(quoted("my dumps"), "'my dumps'");
    assert_string_equal(quoted("it's"), "'it'\\''s'");
    assert_string_equal(quoted(""), "''");
    assert_string_equal(quoted("$HOME"), "'$HOME'");
    assert_string_equal(quoted("精度"), "'精度'");
}

static void
json_is_json_whatever_the_text(void **state)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    msp_jsonout j = {.out = f};

    (void)state;
    msp_jsonout_open(&j, NULL, '{');
    msp_jsonout_text(&j, "t", "a\"\\\n\xff精");
    msp_jsonout_text(&j, "n", NULL);
    msp_jsonout_float(&j, "f", 0.1);
    msp_jsonout_float(&j, "nan", NAN);
    msp_jsonout_float(&j, "inf", -INFINITY);
    msp_jsonout_open(&j, "l", '[');
    msp_jsonout_close(&j, ']');
    msp_jsonout_bool(&j, "b", true);
    msp_jsonout_close(&j, '}');
    fclose(f);
    assert_string_equal(text, "{\n  \"t\": \"a\\\"\\\\\\u000a\\ufffd精\",\n  \"n\": null,\n  \"f\": 0.1,\n"
                              "  \"nan\": \"nan\",\n  \"inf\": \"-inf\",\n  \"l\": [],\n  \"b\": true\n}\n");
    free(text);
}

static void
a_frame_is_a_place_and_the_code_there(void **state)
{
    static const struct {
        const char *frame, *place, *code;
    } frames[] = {
        {"File /w/train.py, line 10, in main, \n y = f(x)", "/w/train.py:10 in main", "y = f(x)"},
        {"File /w/a, line 3.py, line 10, in <module>", "/w/a:3.py, line 10 in <module>", NULL},
        {"File /w/train.py, line 10, in ,\n", "File /w/train.py, line 10, in", ""},
        {"File , line , in \n\n  x", "File , line , in", "x"},
        {"train.py:3", "train.py:3", NULL},
        {"", "", NULL},
    };
    char place[64], here[4096], frame[5000];

    (void)state;
    for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
        const char *code = msp_frame_place(place, sizeof(place), frames[i].frame, true);

        assert_string_equal(place, frames[i].place);
        assert_string_equal(code != NULL ? code : "none", frames[i].code != NULL ? frames[i].code : "none");
    }
    assert_non_null(getcwd(here, sizeof(here)));
    snprintf(frame, sizeof(frame), "File %s/train.py, line 1, in f", here);
    msp_frame_place(place, sizeof(place), frame, true);
    assert_string_equal(place, "train.py:1 in f");
    msp_frame_place(place, 3, frame, false);
    assert_memory_equal(place, here, 2);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(wide_characters_take_two_columns),
        TEST(text_is_cut_at_whole_characters),
        TEST(names_from_files_cannot_move_the_cursor),
        TEST(wrapped_text_keeps_its_width),
        TEST(counts_bytes_and_times_read_well),
        TEST(progress_tells_rows_speed_and_time_left),
        TEST(time_left_is_what_reading_and_rows_still_take),
        TEST(words_are_quoted_only_where_a_shell_needs_it),
        TEST(a_frame_is_a_place_and_the_code_there),
        TEST(json_is_json_whatever_the_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
