/* test_yaml.c - promises of text/yaml.h; the oracle is PyYAML (tests/data/json/yaml.json). */
#include "json_data.h"
#include "text/yaml.h"

static msp_error err;

static msp_json_doc
parse(const char *text)
{
    msp_json_doc doc;

    if (msp_yaml_parse(&doc, text, strlen(text), &err) != MSP_OK)
        fail_msg("%s: %s", text, err.message);
    return doc;
}

static void
texts_mean_what_they_mean_to_pyyaml(void **state)
{
    msp_str text;
    msp_json_doc cases = parse_data("yaml.json", &text), doc;

    (void)state;
    assert_true(msp_json_count(cases.root) > 200);
    for (size_t i = 0; i < msp_json_count(cases.root); i++) {
        const msp_json *c = msp_json_at(cases.root, i);
        msp_str yaml = msp_json_string(msp_json_get(c, "yaml")), expected = msp_json_string(msp_json_get(c, "json"));
        msp_status st = msp_yaml_parse(&doc, yaml.p, yaml.len, &err);

        if (msp_json_kind_of(msp_json_get(c, "json")) == MSP_JSON_NULL) {
            if (st == MSP_OK)
                fail_msg("%.*s: was accepted", (int)yaml.len, yaml.p);
            assert_null(doc.root);
            continue;
        }
        if (st != MSP_OK)
            fail_msg("%.*s: %s", (int)yaml.len, yaml.p, err.message);
        if (!msp_str_eq(msp_str_of(written(doc.root, -1)), expected))
            fail_msg("%.*s: %s, not %.*s", (int)yaml.len, yaml.p, written(doc.root, -1), (int)expected.len, expected.p);
        msp_json_doc_release(&doc);
    }
    msp_json_doc_release(&cases);
    msp_free((char *)text.p);
}

static void
where_we_differ_from_pyyaml_it_is_on_purpose(void **state)
{
    static const struct {
        const char *yaml, *json;
    } cases[] = {
        {"yes: 1\n12: 2\n~: 3\n1.50: 4\n", "{\"yes\": 1, \"12\": 2, \"~\": 3, \"1.50\": 4}"}, /* keys keep their text */
        {"a: 2001-12-14\n", "{\"a\": \"2001-12-14\"}"},                                       /* no dates */
        {"a: 1\na: 2\n", "{\"a\": 1, \"a\": 2}"}, /* all are seen when walking, the last one wins in get */
        {"a: =\n", "{\"a\": \"=\"}"},
        {"a: 0x_\n", "{\"a\": \"0x_\"}"},
        {"a: 0x10000000000000000\n", "{\"a\": \"0x10000000000000000\"}"}, /* other bases than ten: 64 bits */
        {"a: 18446744073709551615:0\n", "{\"a\": \"18446744073709551615:0\"}"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        msp_json_doc doc = parse(cases[i].yaml);

        assert_string_equal(written(doc.root, -1), cases[i].json);
        msp_json_doc_release(&doc);
    }
}

static void
an_empty_text_has_no_root_and_an_empty_document_is_null(void **state)
{
    msp_json_doc doc = parse("# nothing\n");

    (void)state;
    assert_null(doc.root);
    doc = parse("---\n");
    assert_non_null(doc.root);
    assert_int_equal(msp_json_kind_of(doc.root), MSP_JSON_NULL);
    msp_json_doc_release(&doc);
}

static void
numbers_can_be_asked_for(void **state)
{
    msp_json_doc doc = parse("[0x1F, -1_000, 1:30, 1_0.5, -.inf]");
    int64_t i;
    double d;

    (void)state;
    assert_true(msp_json_to_i64(msp_json_at(doc.root, 0), &i) && i == 31);
    assert_true(msp_json_to_i64(msp_json_at(doc.root, 1), &i) && i == -1000);
    assert_true(msp_json_to_i64(msp_json_at(doc.root, 2), &i) && i == 90);
    assert_true(msp_json_to_f64(msp_json_at(doc.root, 3), &d) && d == 10.5);
    assert_true(msp_json_to_f64(msp_json_at(doc.root, 4), &d) && d == -__builtin_inf());
    msp_json_doc_release(&doc);
}

static void
the_document_owns_its_text(void **state)
{
    char *text = strdup("a: [text, 12, 'quoted']\n");
    msp_json_doc doc = parse(text);

    (void)state;
    free(text);
    assert_string_equal(written(doc.root, -1), "{\"a\": [\"text\", 12, \"quoted\"]}");
    msp_json_doc_release(&doc);
}

static void
what_is_wrong_is_said_with_line_and_column(void **state)
{
    static const struct {
        const char *text, *message;
        msp_status status;
    } cases[] = {
        {"a: 1\nb: *x\n", "line 2, column 4: aliases (*name) are not understood: write the value out",
         MSP_E_UNSUPPORTED},
        {"a: 1\n---\nb: 2\n", "line 2, column 1: a second document begins; only one is expected", MSP_E_UNSUPPORTED},
        {"a: !foo 1\n",
         "line 1, column 4: only the tags !!str, !!int, !!float, !!bool, !!null, !!seq and !!map are understood",
         MSP_E_UNSUPPORTED},
        {"a: !foo [1]\n", "line 1, column 4: lists and mappings with a tag of their own are not understood",
         MSP_E_UNSUPPORTED},
        {"a: !!int x\n", "line 1, column 4: the value does not fit its tag", MSP_E_FORMAT},
        {"? [a]\n: 1\n", "line 1, column 3: a key must be a scalar, not a list or a mapping", MSP_E_UNSUPPORTED},
        {"<<: {a: 1}\n", "line 1, column 1: merge keys (<<) are not understood: write the members out",
         MSP_E_UNSUPPORTED},
        {"a: b: c\n", "line 1, column 5: mapping values are not allowed in this context", MSP_E_FORMAT},
        {"a:\n  [1, 2\n", "line 3, column 1: did not find expected ',' or ']' while parsing a flow sequence",
         MSP_E_FORMAT},
        {"a: b\n\xFF\n", "line 2, column 1 (byte 5): invalid leading UTF-8 octet", MSP_E_FORMAT},
    };
    msp_json_doc doc;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(msp_yaml_parse(&doc, cases[i].text, strlen(cases[i].text), &err), cases[i].status);
        assert_string_equal(err.message, cases[i].message);
        assert_null(doc.root);
        assert_null(doc.arena.chunk);
    }
}

static void
depth_and_size_are_bounded(void **state)
{
    char text[200];
    msp_json_doc doc;

    (void)state;
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    assert_int_equal(msp_yaml_parse(&doc, text, 128, &err), MSP_OK);
    msp_json_doc_release(&doc);
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    assert_int_equal(msp_yaml_parse(&doc, text, 130, &err), MSP_E_LIMIT);
    assert_string_equal(err.message, "line 1, column 65: nested too deeply: the limit is 64");
    assert_int_equal(msp_yaml_parse(&doc, text, (64u << 20) + 1, &err), MSP_E_LIMIT);
    assert_string_equal(err.message, "a YAML text of 67108865 bytes is too large: the limit is 64 MiB");
}

static void
every_value_knows_where_it_begins(void **state)
{
    const char *text = "\xEF\xBB\xBF# caf\xC3\xA9\n\xC3\xA9: {a: \xC3\xA9\xC3\xA9, b: no}\nc:\n  - []\n  - x\n";
    msp_json_doc doc = parse(text);
    const msp_json *first = msp_json_at(doc.root, 0), *c = msp_json_get(doc.root, "c");
    size_t line, column;

    (void)state;
    msp_json_position(&doc, msp_json_get(first, "a"), text, &line, &column);
    assert_true(line == 2 && column == 8);
    msp_json_position(&doc, msp_json_get(first, "b"), text, &line, &column);
    assert_true(line == 2 && column == 15);
    msp_json_position(&doc, msp_json_at(c, 0), text, &line, &column);
    assert_true(line == 4 && column == 5);
    msp_json_position(&doc, c, text, &line, &column); /* where its first item begins */
    assert_true(line == 4 && column == 5);
    msp_json_position(&doc, msp_json_at(c, 1), text, &line, &column);
    assert_true(line == 5 && column == 5);
    msp_json_doc_release(&doc);
}

static void
every_failed_allocation_is_reported_and_nothing_leaks(void **state)
{
    static char text[20000];
    int64_t live = msp_alloc_live(), failures = 0;
    size_t size = 0;
    msp_json_doc doc;
    msp_status st;

    (void)state;
    while (size < sizeof(text) - 200)
        size += (size_t)sprintf(text + size, "- {a: 1_000, b: [0x1f, 1.5, ~], c: {}}\n- some text\n");
    do {
        msp_alloc_fail_after(failures);
        st = msp_yaml_parse(&doc, text, size, &err);
        msp_alloc_fail_after(-1);
        if (st != MSP_OK) {
            assert_int_equal(st, MSP_E_NOMEM);
            assert_null(doc.root);
            assert_int_equal(msp_alloc_live(), live);
            failures++;
        }
    } while (st != MSP_OK);
    assert_true(failures > 3);
    msp_json_doc_release(&doc);
    assert_int_equal(msp_alloc_live(), live);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(texts_mean_what_they_mean_to_pyyaml),
        TEST(where_we_differ_from_pyyaml_it_is_on_purpose),
        TEST(an_empty_text_has_no_root_and_an_empty_document_is_null),
        TEST(numbers_can_be_asked_for),
        TEST(the_document_owns_its_text),
        TEST(what_is_wrong_is_said_with_line_and_column),
        TEST(depth_and_size_are_bounded),
        TEST(every_value_knows_where_it_begins),
        TEST(every_failed_allocation_is_reported_and_nothing_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
