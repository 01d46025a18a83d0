/*
 * test_json_recover.c - what msp_json_parse_recover() keeps of a text that was cut.
 *
 * The oracle is a scanner of its own: it knows quotes and brackets and nothing else, and says for each value of the
 * whole text where it ends.
 */
#include "json_data.h"

static msp_error err;

typedef struct span {
    size_t from, to;
    int depth; /* members of the root have 1 */
    bool number, key;
} span;

typedef struct spans {
    span items[8192];
    size_t n;
} spans;

static size_t
end_of_scalar(const char *t, size_t at)
{
    if (t[at] != '"')
        return at + strcspn(t + at, ",:]} \n\t\r");
    for (at++; t[at] != '"'; at++)
        at += t[at] == '\\';
    return at + 1;
}

/* Every value and key of a well-formed text, in the order in which they begin. */
static void
scan(spans *out, const char *t)
{
    size_t open[64];
    int depth = 0;

    out->n = 0;
    for (size_t at = 0; t[at] != '\0';) {
        span *s = &out->items[out->n];

        assert_true(out->n < 8192 && depth < 64);
        if (t[at] == '{' || t[at] == '[') {
            *s = (span){at, 0, depth, false, false};
            open[depth++] = out->n++;
            at++;
        } else if (t[at] == '}' || t[at] == ']') {
            out->items[open[--depth]].to = ++at;
        } else if (strchr(", :\n", t[at]) != NULL) {
            at++;
        } else {
            *s = (span){at, end_of_scalar(t, at), depth, t[at] != '"' && strchr("tfnNI", t[at]) == NULL, false};
            at = s->to;
            if (t[s->from] == '-' && t[s->to - 1] == 'y')
                s->number = false; /* -Infinity */
            s->key = t[s->from] == '"' && t[at] == ':';
            out->n++;
        }
    }
}

/* Recover a copy of exactly this size, so that a sanitizer sees a byte read too far; *copy must live as long. */
static msp_json_doc
recover(const char *text, size_t size, int keep_depth, char **copy)
{
    msp_json_doc doc;

    *copy = msp_alloc(size, 1);
    memcpy(*copy, text, size);
    if (msp_json_parse_recover(&doc, *copy, size, keep_depth, &err) != MSP_OK)
        fail_msg("cut at byte %zu: %s", size, err.message);
    return doc;
}

static size_t
leaves(const msp_json *v)
{
    size_t n = 0;

    if (msp_json_kind_of(v) != MSP_JSON_ARRAY && msp_json_kind_of(v) != MSP_JSON_OBJECT)
        return v != NULL;
    for (size_t i = 0; i < msp_json_count(v); i++)
        n += leaves(msp_json_at(v, i));
    return n;
}

/* What is kept is a beginning of the whole: all but the last item of each container equal. */
static bool
begins(const msp_json *part, const msp_json *whole)
{
    size_t n = msp_json_count(part);

    if (msp_json_kind_of(part) != msp_json_kind_of(whole) || n > msp_json_count(whole))
        return false;
    if (n == 0)
        return msp_json_count(whole) > 0 || values_equal(part, whole);
    for (size_t i = 0; i < n; i++) {
        const msp_json *a = msp_json_at(part, i), *b = msp_json_at(whole, i);

        if (!msp_str_eq(msp_json_key(part, i), msp_json_key(whole, i)) ||
            !(i + 1 < n ? values_equal(a, b) : begins(a, b)))
            return false;
    }
    return true;
}

static bool
complete_at(const span *s, size_t cut)
{
    return s->to < cut || (s->to == cut && !s->number);
}

static size_t
complete_leaves(const spans *all, const char *text, size_t cut)
{
    size_t n = 0;

    for (size_t i = 0; i < all->n; i++)
        n += !all->items[i].key && strchr("{[", text[all->items[i].from]) == NULL && complete_at(&all->items[i], cut);
    return n;
}

/* The number of members at this depth whose last byte is in front of the cut. */
static size_t
complete_members(const spans *all, size_t cut, size_t from, int depth)
{
    size_t n = 0;

    for (size_t i = 0; i < all->n; i++) {
        const span *s = &all->items[i];

        n += s->from >= from && s->depth == depth && !s->key && complete_at(s, cut);
    }
    return n;
}

static void
a_dump_cut_at_any_byte_keeps_every_complete_value(void **state)
{
    msp_str text;
    msp_json_doc whole = parse_data("dump.json", &text);
    spans *all = calloc(1, sizeof(*all));

    (void)state;
    scan(all, text.p);
    for (size_t cut = 0; cut <= text.len; cut++) {
        char *copy;
        msp_json_doc doc = recover(text.p, cut, 0, &copy);

        assert_int_equal(doc.cut, cut < text.len);
        assert_true(doc.cut_at <= cut);
        assert_int_equal(leaves(doc.root), complete_leaves(all, text.p, cut));
        assert_true(doc.root == NULL ? cut == 0 : begins(doc.root, whole.root));
        msp_json_doc_release(&doc);
        msp_free(copy);
    }
    free(all);
    msp_json_doc_release(&whole);
    msp_free((char *)text.p);
}

static void
a_dump_cut_at_any_byte_keeps_every_complete_record(void **state)
{
    msp_str text;
    msp_json_doc whole = parse_data("dump.json", &text);
    const msp_json *records = msp_json_get(whole.root, "data");
    size_t data = (size_t)(strstr(text.p, "\"data\": {") - text.p);
    spans *all = calloc(1, sizeof(*all));

    (void)state;
    scan(all, text.p);
    assert_true(msp_json_count(records) > 10);
    for (size_t cut = 0; cut <= text.len; cut++) {
        char *copy;
        msp_json_doc doc = recover(text.p, cut, 2, &copy);
        const msp_json *kept = msp_json_get(doc.root, "data");

        assert_int_equal(msp_json_count(kept), complete_members(all, cut, data, 2));
        for (size_t i = 0; i < msp_json_count(kept); i++) {
            assert_true(msp_str_eq(msp_json_key(kept, i), msp_json_key(records, i)));
            assert_int_equal(leaves(msp_json_at(kept, i)), leaves(msp_json_at(records, i)));
        }
        if (msp_json_count(kept) > 0) { /* the last is where it can go wrong */
            size_t last = msp_json_count(kept) - 1;

            assert_true(values_equal(msp_json_at(kept, last), msp_json_at(records, last)));
        }
        msp_json_doc_release(&doc);
        msp_free(copy);
    }
    free(all);
    msp_json_doc_release(&whole);
    msp_free((char *)text.p);
}

static void
what_is_kept_and_where_it_ends(void **state)
{
    static const struct {
        const char *text;
        int keep_depth;
        const char *kept; /* NULL: nothing */
        size_t cut_at;
    } cases[] = {
        {"", 0, NULL, 0},
        {"  ", 0, NULL, 0},
        {"\xEF\xBB", 0, NULL, 0},
        {"\"ab", 0, NULL, 0},
        {"tr", 0, NULL, 0},
        {"-", 0, NULL, 0},
        {"[", 0, "[]", 1},
        {"[1", 0, "[]", 1},
        {"[1 ", 0, "[1]", 3},
        {"[1,", 0, "[1]", 3},
        {"[1, 2", 0, "[1]", 4},
        {"[1, -", 0, "[1]", 4},
        {"[1.5e", 0, "[]", 1},
        {"[NaN", 0, "[NaN]", 4},
        {"[1, Infin", 0, "[1]", 4},
        {"[true", 0, "[true]", 5},
        {"[\"a\"", 0, "[\"a\"]", 4},
        {"[\"a\\", 0, "[]", 1},
        {"[\"a\\u00", 0, "[]", 1},
        {"[\"a\xC3", 0, "[]", 1},
        {"{\"a\": 1, \"b\"", 0, "{\"a\": 1}", 9},
        {"{\"a\": 1, \"b\": ", 0, "{\"a\": 1}", 9},
        {"{\"a\": 1, \"b\": 2", 0, "{\"a\": 1}", 9},
        {"{\"a\": 1, \"b\\n\": 2", 0, "{\"a\": 1}", 9},
        {"{\"a\": 1, \"b\": {\"c\": 2", 0, "{\"a\": 1, \"b\": {}}", 15},
        {"{\"a\": 1, \"b\": {\"c\": 2,", 0, "{\"a\": 1, \"b\": {\"c\": 2}}", 22},
        {"{\"a\": 1, \"b\": {\"c\": 2,", 1, "{\"a\": 1}", 9},
        {"{\"d\": {\"a\": {\"x\": 1}, \"b\": {\"x\": [", 2, "{\"d\": {\"a\": {\"x\": 1}}}", 22},
        {"{\"d\": {\"a\": {\"x\": 1}, \"b\": {\"x\": [", 3, "{\"d\": {\"a\": {\"x\": 1}, \"b\": {}}}", 28},
        {"{\"d\": {\"a\": {\"x\": 1}, \"b\": {\"x\": 1}", 2, "{\"d\": {\"a\": {\"x\": 1}, \"b\": {\"x\": 1}}}", 35},
        {"[[1], [2, [3", 1, "[[1]]", 6},
        {"[[1], [2, [3", 2, "[[1], [2]]", 10},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        msp_json_doc doc;
        const char *t = cases[i].text;

        assert_int_equal(msp_json_parse_recover(&doc, t, strlen(t), cases[i].keep_depth, &err), MSP_OK);
        assert_true(doc.cut);
        if (doc.cut_at != cases[i].cut_at)
            fail_msg("%s: cut at %zu", t, doc.cut_at);
        if (cases[i].kept == NULL)
            assert_null(doc.root);
        else
            assert_string_equal(written(doc.root, -1), cases[i].kept);
        msp_json_doc_release(&doc);
    }
}

static void
a_whole_text_is_not_cut(void **state)
{
    static const char *const texts[] = {"12", "\"a\"", "[1]", " {} \n", "{\"a\": [1, {}]}", "null"};

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        msp_json_doc doc, same;

        assert_int_equal(msp_json_parse_recover(&doc, texts[i], strlen(texts[i]), 1, &err), MSP_OK);
        assert_int_equal(msp_json_parse(&same, texts[i], strlen(texts[i]), &err), MSP_OK);
        assert_false(doc.cut);
        assert_true(values_equal(doc.root, same.root));
        msp_json_doc_release(&doc);
        msp_json_doc_release(&same);
    }
}

static void
zero_bytes_at_the_end_count_as_the_cut(void **state)
{
    msp_json_doc doc;

    (void)state;
    assert_int_equal(msp_json_parse_recover(&doc, "[1, 2, 3\0\0\0\0", 12, 0, &err), MSP_OK);
    assert_true(doc.cut);
    assert_string_equal(written(doc.root, -1), "[1, 2]");
    msp_json_doc_release(&doc);
    assert_int_equal(msp_json_parse_recover(&doc, "[1, 2]\n\0\0", 9, 0, &err), MSP_OK);
    assert_false(doc.cut);
    msp_json_doc_release(&doc);
}

static void
what_is_wrong_before_the_end_is_an_error_still(void **state)
{
    static const char *const texts[] = {"[1 2",    "{\"a\" 1", "[tru ", "[1] [", "{1",
                                        "[\"a\nb", "[1,]",     "[01",   "]",     "[\"\\x"};
    msp_json_doc doc;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(msp_json_parse_recover(&doc, texts[i], strlen(texts[i]), 0, &err), MSP_E_FORMAT);
        assert_null(doc.root);
        assert_false(doc.cut);
    }
}

static void
a_failed_allocation_is_an_error_here_too(void **state)
{
    msp_str text = read_data("dump.json");
    int64_t live = msp_alloc_live(), failures = 0;
    msp_json_doc doc;
    msp_status st;

    (void)state;
    do {
        msp_alloc_fail_after(failures);
        st = msp_json_parse_recover(&doc, text.p, text.len - 100, 2, &err);
        msp_alloc_fail_after(-1);
        if (st != MSP_OK) {
            assert_int_equal(st, MSP_E_NOMEM);
            assert_false(doc.cut);
            failures++;
        }
    } while (st != MSP_OK);
    assert_true(failures > 1);
    msp_json_doc_release(&doc);
    assert_int_equal(msp_alloc_live(), live);
    msp_free((char *)text.p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_dump_cut_at_any_byte_keeps_every_complete_value),
        TEST(a_dump_cut_at_any_byte_keeps_every_complete_record),
        TEST(what_is_kept_and_where_it_ends),
        TEST(a_whole_text_is_not_cut),
        TEST(zero_bytes_at_the_end_count_as_the_cut),
        TEST(what_is_wrong_before_the_end_is_an_error_still),
        TEST(a_failed_allocation_is_an_error_here_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
