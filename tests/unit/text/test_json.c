/* test_json.c - promises of text/json.h: reading and asking. */
#include <math.h>

#include "unit.h"
#include "core/alloc.h"
#include "text/json.h"

static msp_error err;

static msp_json_doc
parse(const char *text)
{
    msp_json_doc doc;

    if (msp_json_parse(&doc, text, strlen(text), &err) != MSP_OK)
        fail_msg("%s: %s", text, err.message);
    return doc;
}

static void
assert_text(msp_str s, const char *expected)
{
    assert_int_equal(s.len, strlen(expected));
    assert_memory_equal(s.p, expected, s.len);
}

static void
assert_refused(const char *text, size_t size, msp_status status, const char *message)
{
    msp_json_doc doc;

    assert_int_equal(msp_json_parse(&doc, text, size, &err), status);
    assert_string_equal(err.message, message);
    assert_null(doc.root);
    assert_null(doc.arena.chunk);
}

static void
values_have_their_kinds_and_keep_their_text(void **state)
{
    msp_json_doc doc = parse(" [null, false, true, -12, 1.50, NaN, Infinity, -Infinity, \"a\", [], {}, 1e5] ");
    static const msp_json_kind kinds[] = {MSP_JSON_NULL,   MSP_JSON_FALSE, MSP_JSON_TRUE,   MSP_JSON_INT,
                                          MSP_JSON_FLOAT,  MSP_JSON_FLOAT, MSP_JSON_FLOAT,  MSP_JSON_FLOAT,
                                          MSP_JSON_STRING, MSP_JSON_ARRAY, MSP_JSON_OBJECT, MSP_JSON_FLOAT};
    int64_t i;
    double d;

    (void)state;
    assert_int_equal(msp_json_count(doc.root), 12);
    for (size_t k = 0; k < 12; k++)
        assert_int_equal(msp_json_kind_of(msp_json_at(doc.root, k)), kinds[k]);
    assert_true(msp_json_to_i64(msp_json_at(doc.root, 3), &i));
    assert_int_equal(i, -12);
    assert_text(msp_json_number_text(msp_json_at(doc.root, 4)), "1.50");
    assert_false(msp_json_to_i64(msp_json_at(doc.root, 4), &i));
    assert_true(msp_json_to_f64(msp_json_at(doc.root, 4), &d) && d == 1.5);
    assert_true(msp_json_to_f64(msp_json_at(doc.root, 5), &d) && isnan(d));
    assert_true(msp_json_to_f64(msp_json_at(doc.root, 7), &d) && d == -INFINITY);
    assert_true(msp_json_to_f64(msp_json_at(doc.root, 3), &d) && d == -12);
    assert_null(msp_json_at(doc.root, 12));
    msp_json_doc_release(&doc);
    assert_null(doc.root);
}

static void
members_keep_their_order_and_the_last_of_equal_keys_wins(void **state)
{
    msp_json_doc doc = parse("{\"b\": 1, \"a\": {\"x\": []}, \"b\": 2}");
    int64_t i;

    (void)state;
    assert_int_equal(msp_json_count(doc.root), 3);
    assert_text(msp_json_key(doc.root, 0), "b");
    assert_text(msp_json_key(doc.root, 1), "a");
    assert_true(msp_json_to_i64(msp_json_get(doc.root, "b"), &i) && i == 2);
    assert_true(msp_json_to_i64(msp_json_at(doc.root, 0), &i) && i == 1);
    assert_int_equal(msp_json_kind_of(msp_json_get(msp_json_get(doc.root, "a"), "x")), MSP_JSON_ARRAY);
    assert_null(msp_json_get(doc.root, "c"));
    msp_json_doc_release(&doc);
}

static void
questions_about_nothing_are_answered_as_for_null(void **state)
{
    int64_t i;
    double d;

    (void)state;
    assert_int_equal(msp_json_kind_of(NULL), MSP_JSON_NULL);
    assert_int_equal(msp_json_count(NULL), 0);
    assert_null(msp_json_at(NULL, 0));
    assert_null(msp_json_get(NULL, "a"));
    assert_int_equal(msp_json_key(NULL, 0).len, 0);
    assert_int_equal(msp_json_string(NULL).len, 0);
    assert_int_equal(msp_json_number_text(NULL).len, 0);
    assert_false(msp_json_to_i64(NULL, &i) || msp_json_to_f64(NULL, &d));
}

static void
escapes_are_resolved(void **state)
{
    msp_json_doc doc = parse("[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\", \"\\u00e9\\u4e2d\\ud83d\\uDE00!\", \"\\ud800x\", "
                             "\"\\ud800\\u0041\", \"\\udc00\", \"caf\xC3\xA9\", {\"a\\u0062\": 1}]");

    (void)state;
    assert_text(msp_json_string(msp_json_at(doc.root, 0)), "\"\\/\b\f\n\r\t");
    assert_text(msp_json_string(msp_json_at(doc.root, 1)), "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80!");
    assert_text(msp_json_string(msp_json_at(doc.root, 2)), "\xEF\xBF\xBDx");
    assert_text(msp_json_string(msp_json_at(doc.root, 3)), "\xEF\xBF\xBD"
                                                           "A");
    assert_text(msp_json_string(msp_json_at(doc.root, 4)), "\xEF\xBF\xBD");
    assert_text(msp_json_string(msp_json_at(doc.root, 5)), "caf\xC3\xA9");
    assert_non_null(msp_json_get(msp_json_at(doc.root, 6), "ab"));
    msp_json_doc_release(&doc);
}

static void
what_is_wrong_is_said_with_line_column_and_byte(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "line 1, column 1 (byte 0): expected a value, but the text ends here"},
        {" \n ", "line 2, column 2 (byte 3): expected a value, but the text ends here"},
        {"{\"a\"\n 1}", "line 2, column 2 (byte 6): expected ':' after a key, not '1'"},
        {"{a: 1}", "line 1, column 2 (byte 1): expected a key in double quotes, not 'a'"},
        {"{\"a\": 1,}", "line 1, column 9 (byte 8): expected a key in double quotes, not '}'"},
        {"[1,]", "line 1, column 4 (byte 3): expected a value, not ']'"},
        {"[1 2]", "line 1, column 4 (byte 3): expected ',' or ']' after an element, not '2'"},
        {"{\"a\": 1]", "line 1, column 8 (byte 7): expected ',' or '}' after a member, not ']'"},
        {"[1}", "line 1, column 3 (byte 2): expected ',' or ']' after an element, not '}'"},
        {"{,}", "line 1, column 2 (byte 1): expected a key in double quotes, not ','"},
        {"[,1]", "line 1, column 2 (byte 1): expected a value, not ','"},
        {"[1] x", "line 1, column 5 (byte 4): expected nothing after the end of the value, not 'x'"},
        {"\"caf\xC3\xA9\" 1", "line 1, column 8 (byte 8): expected nothing after the end of the value, not '1'"},
        {"[01]", "line 1, column 3 (byte 2): expected ',' or ']' after an element, not '1'"},
        {"-", "line 1, column 2 (byte 1): expected a digit, but the text ends here"},
        {"[1.]", "line 1, column 4 (byte 3): expected a digit, not ']'"},
        {"[.5]", "line 1, column 2 (byte 1): expected a value, not '.'"},
        {"[+1]", "line 1, column 2 (byte 1): expected a value, not '+'"},
        {"[1e]", "line 1, column 4 (byte 3): expected a digit, not ']'"},
        {"[1e+]", "line 1, column 5 (byte 4): expected a digit, not ']'"},
        {"[tru]", "line 1, column 5 (byte 4): expected null, true, false, NaN, Infinity or -Infinity, not ']'"},
        {"[-Infinite]", "line 1, column 10 (byte 9): expected null, true, false, NaN, Infinity or -Infinity, not 'e'"},
        {"[\"ab", "line 1, column 5 (byte 4): expected '\"' at the end of a string, but the text ends here"},
        {"[\"a\\x\"]", "line 1, column 5 (byte 4): expected one of \"\\/bfnrtu after a backslash, not 'x'"},
        {"[\"\\u12g4\"]", "line 1, column 7 (byte 6): expected four hexadecimal digits after \\u, not 'g'"},
        {"[\"a\tb\"]",
         "line 1, column 4 (byte 3): a control character in a string must be escaped: expected \\u00xx, not byte 0x09"},
        {"[\"a\xFF\"]",
         "line 1, column 4 (byte 3): a string is not UTF-8: expected a complete character, not byte 0xff"},
        {"[\"\xED\xA0\x80\"]",
         "line 1, column 3 (byte 2): a string is not UTF-8: expected a complete character, not byte 0xed"},
        {"[\"\xC0\x80\"]",
         "line 1, column 3 (byte 2): a string is not UTF-8: expected a complete character, not byte 0xc0"},
        {"[\"\xF4\x90\x80\x80\"]",
         "line 1, column 3 (byte 2): a string is not UTF-8: expected a complete character, not byte 0xf4"},
        {"'a'", "line 1, column 1 (byte 0): expected a value, not '''"},
        {"\xEF\xBB\xBF[x]", "line 1, column 2 (byte 4): expected a value, not 'x'"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_refused(cases[i].text, strlen(cases[i].text), MSP_E_FORMAT, cases[i].message);
    assert_refused("[\0]", 3, MSP_E_FORMAT, "line 1, column 2 (byte 1): expected a value, not byte 0x00");
}

static void
a_byte_order_mark_is_skipped(void **state)
{
    msp_json_doc doc = parse("\xEF\xBB\xBF [1]");

    (void)state;
    assert_int_equal(msp_json_count(doc.root), 1);
    msp_json_doc_release(&doc);
}

static void
depth_is_bounded(void **state)
{
    static char text[2 * MSP_JSON_MAX_DEPTH + 2];
    msp_json_doc doc;

    (void)state;
    memset(text, '[', MSP_JSON_MAX_DEPTH);
    memset(text + MSP_JSON_MAX_DEPTH, ']', MSP_JSON_MAX_DEPTH);
    assert_int_equal(msp_json_parse(&doc, text, 2 * MSP_JSON_MAX_DEPTH, &err), MSP_OK);
    msp_json_doc_release(&doc);
    memset(text, '[', sizeof(text));
    assert_refused(text, sizeof(text), MSP_E_LIMIT,
                   "line 1, column 1025 (byte 1024): nested too deeply (the limit is 1024): expected a simple value, "
                   "not '['");
    assert_int_equal(msp_json_parse_recover(&doc, text, sizeof(text), 0, &err), MSP_E_LIMIT);
}

static void
assert_position(const char *text, const msp_json_doc *doc, const msp_json *v, size_t line, size_t column)
{
    size_t l, c;

    msp_json_position(doc, v, text, &l, &c);
    assert_int_equal(l, line);
    assert_int_equal(c, column);
}

static void
every_value_knows_where_it_begins(void **state)
{
    const char *text = "{\n \"a\\n\": [ {\"\xC3\xA9\": [1, \"x\\ty\"]}, [] ],\n \"b\": {},\n \"c\": true\n}";
    msp_json_doc doc = parse(text);
    const msp_json *a = msp_json_at(doc.root, 0), *inner = msp_json_at(a, 0), *list = msp_json_at(inner, 0);

    (void)state;
    assert_position(text, &doc, doc.root, 1, 1);
    assert_position(text, &doc, a, 2, 9);
    assert_position(text, &doc, inner, 2, 11);
    assert_position(text, &doc, list, 2, 17);
    assert_position(text, &doc, msp_json_at(list, 0), 2, 18);
    assert_position(text, &doc, msp_json_at(list, 1), 2, 21);
    assert_position(text, &doc, msp_json_at(a, 1), 2, 31);
    assert_position(text, &doc, msp_json_get(doc.root, "b"), 3, 7);
    assert_position(text, &doc, msp_json_get(doc.root, "c"), 4, 7);
    msp_json_doc_release(&doc);
}

static void
every_failed_allocation_is_reported_and_nothing_leaks(void **state)
{
    static char text[200000];
    int64_t live = msp_alloc_live();
    size_t size = 0;
    int64_t failures = 0;
    msp_json_doc doc;
    msp_status st;

    (void)state;
    text[size++] = '[';
    while (size < sizeof(text) - 100)
        size += (size_t)sprintf(text + size, "{\"key\\n\": [1, 2.5, \"text\"], \"other\": {}}, ");
    size += (size_t)sprintf(text + size, "null]");
    do {
        msp_alloc_fail_after(failures);
        st = msp_json_parse(&doc, text, size, &err);
        msp_alloc_fail_after(-1);
        if (st != MSP_OK) {
            assert_int_equal(st, MSP_E_NOMEM);
            assert_non_null(strstr(err.message, "out of memory"));
            assert_null(doc.root);
            assert_int_equal(msp_alloc_live(), live);
            failures++;
        }
    } while (st != MSP_OK);
    assert_true(failures > 5);
    msp_json_doc_release(&doc);
    assert_int_equal(msp_alloc_live(), live);
}

static void
a_small_document_in_lent_memory_takes_no_other(void **state)
{
    _Alignas(16) char room[1024];
    static const char text[] = "[\"a\", 1, [2, [3]], {\"k\": 4}]";
    static char long_text[4096];
    int64_t live = msp_alloc_live(), v;
    msp_json_doc doc;
    size_t n = 0;

    (void)state;
    assert_int_equal(msp_json_parse_in(&doc, room, sizeof(room), text, sizeof(text) - 1, NULL), MSP_OK);
    assert_int_equal(msp_alloc_live(), live);
    assert_true(msp_json_to_i64(msp_json_get(msp_json_at(doc.root, 3), "k"), &v) && v == 4);
    msp_json_doc_release(&doc);
    /* more than the lent memory and the stack hold */
    for (int i = 0; i < 1000; i++)
        n += (size_t)snprintf(long_text + n, sizeof(long_text) - n, "%c%d", i == 0 ? '[' : ',', i % 100);
    long_text[n++] = ']';
    assert_int_equal(msp_json_parse_in(&doc, room, sizeof(room), long_text, n, NULL), MSP_OK);
    assert_int_equal(msp_json_count(doc.root), 1000);
    for (size_t i = 0; i < 1000; i++)
        assert_true(msp_json_to_i64(msp_json_at(doc.root, i), &v) && v == (int64_t)(i % 100));
    msp_json_doc_release(&doc);
    assert_int_equal(msp_alloc_live(), live);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_small_document_in_lent_memory_takes_no_other),
        TEST(values_have_their_kinds_and_keep_their_text),
        TEST(members_keep_their_order_and_the_last_of_equal_keys_wins),
        TEST(questions_about_nothing_are_answered_as_for_null),
        TEST(escapes_are_resolved),
        TEST(what_is_wrong_is_said_with_line_column_and_byte),
        TEST(a_byte_order_mark_is_skipped),
        TEST(depth_is_bounded),
        TEST(every_value_knows_where_it_begins),
        TEST(every_failed_allocation_is_reported_and_nothing_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
