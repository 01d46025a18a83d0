/* test_dump_read.c - promises of msprobe/dump.h about dump.json and stack.json. */
#include "unit.h"
#include "hostile.h"
#include "core/str.h"
#include "dump/dump_read.h"
#include "dump/scan.h"

static const char good[] =
    "{\n \"task\": \"statistics\", \"level\": \"L1\", \"framework\": \"pytorch\", \"dump_data_dir\": null,\n"
    " \"data\": {\n  \"Torch.add.0.forward\": {\"input_args\": [{\"type\": \"int\", \"value\": 3}]},\n"
    "  \"Torch.\\u00e4\\\"x.1.forward\": {\"output\": [null, \"}{\\\"\"]},\n  \"Torch.mul.0.forward\": null\n }\n}";

static msp_dump *
open_text(const char *text, size_t n)
{
    msp_dump *d = NULL;
    msp_error err;

    if (msp_dump_open(&d, write_file("dump.json", text, n), &err) != MSP_OK)
        fail_msg("%s", err.message);
    return d;
}

static void
refused(const char *text, const char *message)
{
    msp_dump *d;
    msp_error err;

    assert_int_equal(msp_dump_open(&d, write_file("dump.json", text, strlen(text)), &err), MSP_E_FORMAT);
    assert_null(d);
    if (strstr(err.message, message) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", message, err.message);
    assert_non_null(strstr(err.message, "dump.json"));
}

static void
the_top_level_is_read_and_records_keep_their_order(void **state)
{
    msp_dump *d = open_text(good, sizeof(good) - 1);
    size_t len;
    const char *name;

    (void)state;
    assert_int_equal(msp_dump_task_of(d), MSP_TASK_STATISTICS);
    assert_string_equal(msp_dump_level(d), "L1");
    assert_int_equal(msp_dump_framework(d), MSP_PYTORCH);
    assert_int_equal(msp_dump_count(d), 3);
    name = msp_dump_name(d, 0, &len);
    assert_int_equal(len, 19);
    assert_memory_equal(name, "Torch.add.0.forward", len);
    assert_false(msp_dump_cut(d, NULL));
    assert_int_equal(msp_dump_size(d), sizeof(good) - 1);
    msp_dump_close(d);
}

static void
escapes_in_names_are_resolved(void **state)
{
    msp_dump *d = open_text(good, sizeof(good) - 1);
    size_t len;
    const char *name = msp_dump_name(d, 1, &len);

    (void)state;
    assert_memory_equal(name, "Torch.\xc3\xa4\"x.1.forward", len);
    msp_dump_close(d);
}

static void
a_record_is_parsed_when_asked_for(void **state)
{
    msp_dump *d = open_text(good, sizeof(good) - 1);
    msp_json_doc doc;
    msp_str text;

    (void)state;
    assert_int_equal(msp_dump_record(d, 1, &doc, NULL, 0, NULL), MSP_OK);
    text = msp_json_string(msp_json_at(msp_json_get(doc.root, "output"), 1));
    assert_int_equal(text.len, 3);
    assert_memory_equal(text.p, "}{\"", 3);
    msp_json_doc_release(&doc);
    assert_int_equal(msp_dump_record(d, 2, &doc, NULL, 0, NULL), MSP_OK);
    assert_int_equal(msp_json_kind_of(doc.root), MSP_JSON_NULL);
    msp_json_doc_release(&doc);
    msp_dump_close(d);
}

/* As in a Python dict. Cut off, the records before the cut are joined too. */
static void
a_name_that_comes_again_keeps_its_first_place_and_its_last_value(void **state)
{
    enum { NAMES = 500 };
    msp_buf text = {0};

    (void)state;
    msp_buf_text(&text, "{\"task\": \"tensor\", \"data\": {\"first\": -1");
    for (int i = 0; i < 3 * NAMES; i++) /* each of them three times, once with an escape */
        msp_buf_printf(&text, ", \"%s%d\": %d", i / NAMES == 1 ? "\\u006e" : "n", i % NAMES * 7 % NAMES, i);
    msp_buf_text(&text, ", \"last\": 0}}");
    for (size_t cut = 0; cut < 2; cut++) {
        msp_dump *d = open_text(text.p, text.len - cut);

        assert_int_equal(msp_dump_cut(d, NULL), cut);
        assert_int_equal(msp_dump_count(d), NAMES + 2);
        for (size_t i = 0; i < NAMES; i++) {
            char want[32];
            size_t len;
            const char *name = msp_dump_name(d, i + 1, &len);
            msp_str value = msp_dump_record_text(d, i + 1);

            snprintf(want, sizeof(want), "n%zu", i * 7 % NAMES);
            assert_true(msp_str_eq((msp_str){name, len}, msp_str_of(want)));
            snprintf(want, sizeof(want), "%zu", 2 * NAMES + i);
            assert_true(msp_str_eq(value, msp_str_of(want)));
        }
        msp_dump_close(d);
    }
    msp_buf_release(&text);
}

static void
a_record_that_is_no_json_is_told_with_its_place_in_the_file(void **state)
{
    static const char text[] = "{\"task\": \"tensor\",\n\"data\": {\n\"a\": {\"input\": [1, 2 3]}\n}}";
    msp_dump *d = open_text(text, sizeof(text) - 1);
    msp_json_doc doc;
    msp_error err;

    (void)state;
    assert_int_equal(msp_dump_record(d, 0, &doc, NULL, 0, &err), MSP_E_FORMAT);
    assert_non_null(strstr(err.message, "line 3"));
    msp_dump_close(d);
}

static void
files_that_are_no_dump_are_refused_with_the_reason(void **state)
{
    (void)state;
    refused("", "the file is empty");
    refused("{not json", "line 1");
    refused("[1]", "must be a JSON object");
    refused("{\"level\": \"L1\", \"data\": {}}", "has no \"task\"");
    refused("{\"task\": \"\", \"data\": {}}", "has no \"task\"");
    refused("{\"task\": \"statistics\"}", "has no \"data\"");
    refused("{\"task\": \"statistics\", \"data\": [1]}", "\"data\" must be an object");
    refused("{\"task\": \"statistics\", \"data\": {}} x", "line 1");
}

static void
a_missing_file_is_not_found(void **state)
{
    msp_dump *d;
    msp_error err;

    (void)state;
    assert_int_equal(msp_dump_open(&d, scratch_path("nowhere/dump.json"), &err), MSP_E_NOT_FOUND);
    assert_null(d);
}

static size_t
end_of(const char *text)
{
    return (size_t)(strstr(good, text) - good) + strlen(text);
}

/* However much is missing: no crash, and every record that is complete counts. */
static void
a_file_cut_anywhere_is_used_up_to_its_last_complete_record(void **state)
{
    const size_t data = end_of("\"data\": {"), first = end_of("\"value\": 3}]}"), second = end_of("}{\\\"\"]}");
    const size_t third = end_of("forward\": null"); /* and one byte more: "nul" may go on */

    (void)state;
    for (size_t n = 1; n < sizeof(good) - 1; n++) {
        msp_dump *d;
        size_t at;
        msp_status st = msp_dump_open(&d, write_file("dump.json", good, n), NULL);

        assert_int_equal(st, n < data ? MSP_E_FORMAT : MSP_OK);
        if (st != MSP_OK)
            continue;
        assert_true(msp_dump_cut(d, &at));
        assert_true(at <= n);
        assert_int_equal(msp_dump_count(d), (n >= first) + (n >= second) + (n > third));
        msp_dump_close(d);
    }
}

static void
zeroes_at_the_end_count_as_a_cut(void **state)
{
    char text[sizeof(good) + 99];
    msp_dump *d;

    (void)state;
    memset(text, 0, sizeof(text));
    memcpy(text, good, sizeof(good) - 20);
    d = open_text(text, sizeof(text));
    assert_true(msp_dump_cut(d, NULL));
    assert_int_equal(msp_dump_count(d), 2);
    msp_dump_close(d);
}

static void
of_two_records_with_one_name_the_last_counts_in_the_first_place(void **state)
{
    static const char text[] = "{\"data\": {\"a\": 1, \"b\": 2, \"a\": 3}, \"task\": \"tensor\"}";
    msp_dump *d = open_text(text, sizeof(text) - 1);
    msp_json_doc doc;
    int64_t v;

    (void)state;
    assert_int_equal(msp_dump_count(d), 2);
    assert_int_equal(msp_dump_record(d, 0, &doc, NULL, 0, NULL), MSP_OK);
    assert_true(msp_json_to_i64(doc.root, &v));
    assert_int_equal(v, 3);
    msp_json_doc_release(&doc);
    msp_dump_close(d);
}

static void
older_files_tell_their_framework_by_their_types(void **state)
{
    static const char ms[] = "{\"task\": \"tensor\", \"data\": {\"a\": {\"type\": \"int\"}, \"b\": {\"type\": "
                             "\"mindspore.Tensor\"}}}";
    static const char pt[] = "{\"task\": \"tensor\", \"data\": {\"a\": {\"type\":\"torch.Tensor\"}}}";
    static const char none[] = "{\"task\": \"tensor\", \"data\": {}}";
    msp_dump *d = open_text(ms, sizeof(ms) - 1);

    (void)state;
    assert_int_equal(msp_dump_framework(d), MSP_MINDSPORE);
    msp_dump_close(d);
    d = open_text(pt, sizeof(pt) - 1);
    assert_int_equal(msp_dump_framework(d), MSP_PYTORCH);
    msp_dump_close(d);
    d = open_text(none, sizeof(none) - 1);
    assert_int_equal(msp_dump_framework(d), MSP_FRAMEWORK_UNKNOWN);
    msp_dump_close(d);
}

static msp_status
scan_all(const void *p, size_t size)
{
    msp_dump_scan s;
    msp_status st = msp_dump_scan_text(&s, p, size, NULL);
    size_t bytes = 0;

    if (st != MSP_OK)
        return st;
    for (size_t i = 0; i < s.count; i++)
        for (size_t k = 0; k < s.spans[i].value.len; k++)
            bytes += (unsigned char)s.spans[i].value.p[k];
    msp_dump_scan_release(&s);
    return bytes == 0 && size > 1000 ? MSP_E_FORMAT : MSP_OK;
}

static void
the_scan_survives_every_cut_and_every_flipped_bit(void **state)
{
    char text[sizeof(good)];

    (void)state;
    for (size_t n = 0; n < sizeof(good); n++)
        (void)parse_copy(scan_all, good, n);
    for (size_t bit = 0; bit < 8 * (sizeof(good) - 1); bit++) {
        memcpy(text, good, sizeof(good));
        text[bit / 8] ^= (char)(1 << bit % 8);
        (void)parse_copy(scan_all, text, sizeof(good) - 1);
    }
}

/* Long records, with everything in their strings that could be taken for an end, at every place in a block. */
static void
records_end_where_they_end_whatever_their_strings_hold(void **state)
{
    static const char *const pieces[] =
        {"\"}}]]\"", "\"\\\"}\\\\\"", "[[1, {\"a\": []}]]", "\"{[\\\\\\\"[\"", "{\"k\": \"\\\\\"}", "\"\"",
         "3.25e-7",  "   null"};
    msp_buf text = {0};

    (void)state;
    for (size_t shift = 0; shift < 130; shift++) {
        uint32_t seed = (uint32_t)shift * 2654435761u + 1;
        msp_dump *d;

        msp_buf_clear(&text);
        msp_buf_text(&text, "{\"task\": \"tensor\", \"data\": {");
        for (size_t i = 0; i < shift; i++)
            msp_buf_char(&text, ' ');
        for (size_t r = 0; r < 5; r++) {
            msp_buf_printf(&text, "%s\"r%zu\": [", r > 0 ? ", " : "", r);
            for (size_t i = 0; i < 60; i++) {
                seed = seed * 1664525u + 1013904223u;
                msp_buf_printf(&text, "%s%s", i > 0 ? "," : "", pieces[seed >> 29]);
            }
            msp_buf_char(&text, ']');
        }
        msp_buf_text(&text, "}}");
        d = open_text(text.p, text.len);
        assert_int_equal(msp_dump_count(d), 5);
        assert_false(msp_dump_cut(d, NULL));
        for (size_t r = 0; r < 5; r++) {
            msp_json_doc doc;

            assert_int_equal(msp_dump_record(d, r, &doc, NULL, 0, NULL), MSP_OK);
            assert_int_equal(msp_json_count(doc.root), 60);
            msp_json_doc_release(&doc);
        }
        msp_dump_close(d);
    }
    msp_buf_release(&text);
}

static void
no_failing_allocation_leaks(void **state)
{
    const char *path = write_file("dump.json", good, sizeof(good) - 1);
    int64_t live = msp_alloc_live();
    msp_status st = MSP_E_NOMEM;

    (void)state;
    for (int64_t n = 0; st != MSP_OK && n < 1000; n++) {
        msp_dump *d;

        msp_alloc_fail_after(n);
        st = msp_dump_open(&d, path, NULL);
        msp_alloc_fail_after(-1);
        msp_dump_close(d);
        assert_int_equal(msp_alloc_live(), live);
    }
    assert_int_equal(st, MSP_OK);
}

/* ---- stack.json -------------------------------------------------------------------------------------------------- */

static msp_stack *
open_stack(const char *text)
{
    msp_stack *s = NULL;
    msp_error err;

    if (msp_stack_open(&s, write_file("stack.json", text, strlen(text)), &err) != MSP_OK)
        fail_msg("%s", err.message);
    return s;
}

static void
both_forms_of_stack_json_give_the_same_frames(void **state)
{
    static const char *const texts[] =
        {"{\"0\": [[\"a\", \"b\"], [\"f1\", \"f2\"]], \"1\": [[\"c\"], [\"f3\"]], \"2\": 5}",
         "{\"a\": [\"f1\", \"f2\"], \"b\": [\"f1\", \"f2\"], \"c\": [\"f3\"]}"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        msp_stack *s = open_stack(texts[i]);
        size_t len;

        assert_int_equal(msp_stack_depth(s, "b", 1), 2);
        assert_memory_equal(msp_stack_frame(s, "b", 1, 1, &len), "f2", 2);
        assert_int_equal(len, 2);
        assert_int_equal(msp_stack_depth(s, "c", 1), 1);
        assert_int_equal(msp_stack_depth(s, "d", 1), -1);
        msp_stack_close(s);
    }
}

static void
an_empty_stack_json_has_no_frames(void **state)
{
    msp_stack *s = open_stack("{}");

    (void)state;
    assert_int_equal(msp_stack_depth(s, "a", 1), -1);
    msp_stack_close(s);
    s = open_stack("");
    assert_int_equal(msp_stack_depth(s, "a", 1), -1);
    msp_stack_close(s);
    assert_int_equal(msp_stack_depth(NULL, "a", 1), -1);
}

static void
a_stack_json_of_another_kind_is_refused(void **state)
{
    msp_stack *s;
    msp_error err;

    (void)state;
    assert_int_equal(msp_stack_open(&s, write_file("stack.json", "[]", 2), &err), MSP_E_FORMAT);
    assert_null(s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_top_level_is_read_and_records_keep_their_order),
        TEST(escapes_in_names_are_resolved),
        TEST(a_record_is_parsed_when_asked_for),
        TEST(a_name_that_comes_again_keeps_its_first_place_and_its_last_value),
        TEST(a_record_that_is_no_json_is_told_with_its_place_in_the_file),
        TEST(files_that_are_no_dump_are_refused_with_the_reason),
        TEST(a_missing_file_is_not_found),
        TEST(a_file_cut_anywhere_is_used_up_to_its_last_complete_record),
        TEST(zeroes_at_the_end_count_as_a_cut),
        TEST(of_two_records_with_one_name_the_last_counts_in_the_first_place),
        TEST(older_files_tell_their_framework_by_their_types),
        TEST(the_scan_survives_every_cut_and_every_flipped_bit),
        TEST(records_end_where_they_end_whatever_their_strings_hold),
        TEST(no_failing_allocation_leaks),
        TEST(both_forms_of_stack_json_give_the_same_frames),
        TEST(an_empty_stack_json_has_no_frames),
        TEST(a_stack_json_of_another_kind_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
