/* test_json_write.c - promises of text/json.h: the writer's text is Python's. */
#include <math.h>

#include "json_data.h"

static void
text_is_what_python_writes_with_every_indent(void **state)
{
    static const char *const indents[] = {"-1", "0", "1", "2", "4"};
    msp_str text;
    msp_json_doc cases = parse_data("writer.json", &text), doc;

    (void)state;
    assert_true(msp_json_count(cases.root) > 20);
    for (size_t i = 0; i < msp_json_count(cases.root); i++) {
        const msp_json *c = msp_json_at(cases.root, i);
        msp_str from = msp_json_string(msp_json_get(c, "text"));

        assert_int_equal(msp_json_parse(&doc, from.p, from.len, NULL), MSP_OK);
        for (size_t k = 0; k < 5; k++) {
            msp_str expected = msp_json_string(msp_json_get(msp_json_get(c, "written"), indents[k]));
            const char *ours = written(doc.root, atoi(indents[k]));

            assert_int_equal(strlen(ours), expected.len);
            assert_memory_equal(ours, expected.p, expected.len);
        }
        msp_json_doc_release(&doc);
    }
    msp_json_doc_release(&cases);
    msp_free((char *)text.p);
}

static void
write_everything(msp_json_writer *w)
{
    msp_json_begin_object(w);
    msp_json_write_key(w, MSP_STR("null"));
    msp_json_write_null(w);
    msp_json_write_key(w, MSP_STR("bools"));
    msp_json_begin_array(w);
    msp_json_write_bool(w, true);
    msp_json_write_bool(w, false);
    msp_json_end_array(w);
    msp_json_write_key(w, MSP_STR("ints"));
    msp_json_begin_array(w);
    msp_json_write_i64(w, INT64_MIN);
    msp_json_write_u64(w, UINT64_MAX);
    msp_json_begin_object(w);
    msp_json_end_object(w);
    msp_json_end_array(w);
    msp_json_write_key(w, MSP_STR("floats"));
    msp_json_begin_array(w);
    msp_json_write_f64(w, 1);
    msp_json_write_f64(w, -0.0);
    msp_json_write_f64(w, 1e-7);
    msp_json_write_f64(w, NAN);
    msp_json_write_f64(w, INFINITY);
    msp_json_write_f64(w, -INFINITY);
    msp_json_end_array(w);
    msp_json_write_key(w, MSP_STR("text"));
    msp_json_write_string(w, MSP_STR("a\"\xE4\xB8\xAD"));
    msp_json_end_object(w);
}

/* A character is written the same way alone and at any place of a longer text. */
static void
what_must_be_escaped_is_found_at_every_place(void **state)
{
    msp_buf alone = {0}, b = {0};
    msp_json_writer w;

    (void)state;
    for (int c = 0; c < 0x80; c++)
        for (size_t at = 0; at < 20; at++) {
            char text[] = "abcdefghijklmnopqrst", want[64];

            text[at] = (char)c;
            msp_buf_clear(&alone);
            msp_json_writer_init(&w, &alone, -1);
            msp_json_write_string(&w, (msp_str){text + at, 1});
            snprintf(want, sizeof(want), "\"%.*s%.*s%s\"", (int)at, text, (int)alone.len - 2, alone.p + 1,
                     text + at + 1);
            msp_buf_clear(&b);
            msp_json_writer_init(&w, &b, -1);
            msp_json_write_string(&w, (msp_str){text, 20});
            assert_string_equal(b.p, want);
            assert_int_equal(alone.len == 3, c >= ' ' && c < 0x7F && c != '"' && c != '\\');
        }
    msp_buf_release(&alone);
    msp_buf_release(&b);
}

static void
a_document_is_written_piece_by_piece(void **state)
{
    msp_json_writer w;
    msp_buf b = {0};

    (void)state;
    msp_json_writer_init(&w, &b, -1);
    write_everything(&w);
    assert_string_equal(b.p, "{\"null\": null, \"bools\": [true, false], \"ints\": [-9223372036854775808, "
                             "18446744073709551615, {}], \"floats\": [1.0, -0.0, 1e-07, NaN, Infinity, -Infinity], "
                             "\"text\": \"a\\\"\\u4e2d\"}");
    msp_buf_clear(&b);
    msp_json_writer_init(&w, &b, 1);
    write_everything(&w);
    assert_string_equal(b.p, "{\n \"null\": null,\n \"bools\": [\n  true,\n  false\n ],\n \"ints\": [\n"
                             "  -9223372036854775808,\n  18446744073709551615,\n  {}\n ],\n \"floats\": [\n  1.0,\n"
                             "  -0.0,\n  1e-07,\n  NaN,\n  Infinity,\n  -Infinity\n ],\n"
                             " \"text\": \"a\\\"\\u4e2d\"\n}");
    msp_buf_release(&b);
}

static void
bytes_that_are_not_utf8_become_the_replacement_character(void **state)
{
    msp_json_writer w;
    msp_buf b = {0};

    (void)state;
    msp_json_writer_init(&w, &b, -1);
    msp_json_write_string(&w, (msp_str){"a\xFFz\xE4\xB8\0\xED\xA0\x80\xF0", 10});
    assert_string_equal(b.p, "\"a\\ufffdz\\ufffd\\ufffd\\u0000\\ufffd\\ufffd\\ufffd\\ufffd\"");
    msp_buf_release(&b);
}

static void
a_caller_may_flush_at_any_time(void **state)
{
    msp_json_writer w;
    msp_buf b = {0};

    (void)state;
    msp_json_writer_init(&w, &b, 1);
    msp_json_begin_array(&w);
    msp_json_write_i64(&w, 1);
    assert_string_equal(b.p, "[\n 1");
    msp_buf_clear(&b);
    msp_json_write_i64(&w, 2);
    msp_json_end_array(&w);
    assert_string_equal(b.p, ",\n 2\n]");
    msp_buf_release(&b);
}

static void
a_failed_allocation_is_remembered_by_the_buffer(void **state)
{
    int64_t live = msp_alloc_live(), failures = 0;
    bool failed;

    (void)state;
    do {
        msp_json_writer w;
        msp_buf b = {0};

        msp_alloc_fail_after(failures);
        msp_json_writer_init(&w, &b, 4);
        msp_json_begin_array(&w);
        for (int i = 0; i < 100; i++)
            write_everything(&w);
        msp_json_end_array(&w);
        msp_alloc_fail_after(-1);
        failed = b.failed;
        failures += failed;
        assert_int_equal(msp_buf_status(&b, NULL), failed ? MSP_E_NOMEM : MSP_OK);
        msp_buf_release(&b);
        assert_int_equal(msp_alloc_live(), live);
    } while (failed);
    assert_true(failures > 5);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(text_is_what_python_writes_with_every_indent),
        TEST(what_must_be_escaped_is_found_at_every_place),
        TEST(a_document_is_written_piece_by_piece),
        TEST(bytes_that_are_not_utf8_become_the_replacement_character),
        TEST(a_caller_may_flush_at_any_time),
        TEST(a_failed_allocation_is_remembered_by_the_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
