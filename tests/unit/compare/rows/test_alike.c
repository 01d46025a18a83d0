/* test_alike.c - a record that is read like the one before becomes the rows that its tree would become. */
#include "rows_of.h"
#include "rows_equal.h"
#include "compare/rows/alike.h"
#include "core/alloc.h"

#define LEAF(shape, max, more)                                                                                         \
    "{\n \"type\": \"torch.Tensor\",\n \"dtype\": \"torch.float32\",\n \"shape\": [\n  " shape "\n ],\n \"Max\": " max \
    ",\n \"Min\": -0.5,\n \"Mean\": 1e-05,\n \"Norm\": 12" more "\n}"

static const char *const records[] = {
    "{\"input_args\": [" LEAF("2,\n  3", "1.5",
                              ",\n \"data_name\": \"F.f.10.forward.input.0.pt\"") ", null],"
                                                                                  " \"output\": [" LEAF(
                                                                                      "7", "2",
                                                                                      ", \"requires_grad\": true, "
                                                                                      "\"md5\": \"0a1b2c3d\"") "]}",
    "{\"input_args\": [{\"type\": \"int\", \"value\": 3}, {\"type\": \"float\", \"value\": 0.5}, {\"type\": \"str\", "
    "\"value\": \"sum\"}], \"input_kwargs\": {\"src\": {\"type\": \"int\", \"value\": 1}, \"dim\": {\"type\": \"int\", "
    "\"value\": -1}}}",
    "{\"output\": [{\"class_type\": \"torch.distributed.P2POp\", \"tensor\": " LEAF(
        "4", "NaN", "") ", \"op\": \"isend\", \"peer\": 1}, [" LEAF("", "null",
                                                                    ", \"Max\": 7, \"data_name\": \"\"") "]]}",
    "{\"output\": [{\"type\": \"int\", \"md5\": \"0a1b2c3d\", \"value\": 3}, {\"type\": \"int\", \"value\": 4, "
    "\"md5\": null}, "
    "{\"md5\": 12, \"value\": 5, \"type\": \"int\"}]}",
};

enum { RECORDS = sizeof(records) / sizeof(records[0]) };

typedef struct reading {
    msp_status opened, flattened;
    msp_error err;
    msp_dump *dump;
    msp_rows rows;
} reading;

/*
 * Two records, the second of them text. The first is a model for it, or has another name, of another length, and is
 * none; what follows stands at the same place of the file either way.
 */
static char *
two_records(const char *model, const char *text, bool alike)
{
    size_t room = strlen(model) + strlen(text) + 256;
    char *all = malloc(room);

    snprintf(all, room, "{\"task\": \"statistics\", \"data\": {%s%s, \"F.f.11.forward\": %s}}",
             alike ? "\"F.f.10.forward\": " : "\"F.f.1.forward\":  ", model, text);
    return all;
}

static void
read_all(reading *r, const char *text)
{
    *r = (reading){.err = {MSP_OK, ""}};
    r->opened = msp_dump_open_text(&r->dump, text, strlen(text), "dump.json", &r->err);
    if (r->opened == MSP_OK)
        r->flattened = msp_rows_flatten(&r->rows, r->dump, NULL, NULL, &r->err);
}

static void
release(reading *r)
{
    if (r->opened == MSP_OK)
        msp_rows_release(&r->rows);
    msp_dump_close(r->dump);
}

static void
expect_same(const char *model, const char *text)
{
    char *alike = two_records(model, text, true), *alone = two_records(model, text, false);
    reading a, b;

    read_all(&a, alike);
    read_all(&b, alone);
    if (a.opened != b.opened || a.flattened != b.flattened || strcmp(a.err.message, b.err.message) != 0)
        fail_msg("%s\nafter one like it: %s\nalone: %s", text, a.err.message, b.err.message);
    if (a.opened == MSP_OK && a.flattened == MSP_OK) {
        assert_int_equal(a.rows.napis, b.rows.napis);
        assert_int_equal(a.rows.has_md5, b.rows.has_md5);
        for (size_t i = 1; i < a.rows.napis; i++)
            if (!same_call(&a.rows, &a.rows.apis[i], &b.rows, &b.rows.apis[i]))
                fail_msg("%s\nbecomes other rows after one like it", text);
    }
    release(&a);
    release(&b);
    free(alike);
    free(alone);
}

/* model with n bytes at `at` replaced. */
static void
expect_same_with(const char *model, size_t at, size_t n, const char *by)
{
    size_t room = strlen(model) + strlen(by) + 1;
    char *text = malloc(room);

    snprintf(text, room, "%.*s%s%s", (int)at, model, by, model + at + n);
    expect_same(model, text);
    free(text);
}

static void
any_byte_of_it_may_be_another(void **state)
{
    static const char bytes[] = "\"\\}],01.-e \x01\xc3x";

    (void)state;
    for (size_t k = 0; k < RECORDS; k++)
        for (size_t at = 0; records[k][at] != '\0'; at++) {
            expect_same_with(records[k], at, 1, "");
            for (const char *b = bytes; *b != '\0'; b++) {
                char by[] = {*b, '\0'};

                expect_same_with(records[k], at, 1, by);
                if (strchr("\"0 ", *b) != NULL)
                    expect_same_with(records[k], at, 0, by);
            }
        }
}

/* Where a value begins that may be different, and its length. */
static size_t
value_at(const char *text, size_t at)
{
    size_t n = 0;

    if (at < 2 || (text[at - 1] != ' ' && text[at - 1] != '[' && text[at - 1] != '"'))
        return 0;
    while (text[at + n] != '\0' && strchr(",]}\n\"", text[at + n]) == NULL)
        n++;
    return n;
}

static void
any_value_of_it_may_be_another(void **state)
{
    static const char *const values[] = {"0",
                                         "-0",
                                         "0.0",
                                         "-0.0",
                                         "1",
                                         "-1",
                                         "05",
                                         "-05",
                                         "00",
                                         "5.",
                                         ".5",
                                         "-.5",
                                         "-",
                                         "+1",
                                         "1e5",
                                         "1E-400",
                                         "1e",
                                         "1e+",
                                         "1.5e3",
                                         "1e999",
                                         "9223372036854775807",
                                         "9223372036854775808",
                                         "-9223372036854775809",
                                         "12345678901234567890123",
                                         "0.1234567890123456789012345",
                                         "179769313486231580793e289",
                                         "1-1",
                                         "1.2.3",
                                         "NaN",
                                         "Infinity",
                                         "-Infinity",
                                         "nan",
                                         "null",
                                         "true",
                                         "[]",
                                         "{}",
                                         "\"1\"",
                                         "2,  3",
                                         "2, 3",
                                         "2,\n  3",
                                         "torch.float32",
                                         "torch.float64",
                                         "Float32",
                                         "",
                                         "\\u0061",
                                         "a\\nb",
                                         "\xc3\xa4",
                                         "\xff",
                                         "a.b.pt",
                                         "noext",
                                         ".pt",
                                         "/",
                                         "1 ",
                                         " 1",
                                         "00000000"};

    (void)state;
    for (size_t k = 0; k < RECORDS; k++)
        for (size_t at = 0; records[k][at] != '\0'; at++)
            for (size_t i = 0; value_at(records[k], at) > 0 && i < sizeof(values) / sizeof(values[0]); i++)
                expect_same_with(records[k], at, value_at(records[k], at), values[i]);
}

/* More names than there are places for models: each gets the rows that it gets alone. */
static void
calls_of_all_names_become_their_own_rows(void **state)
{
    enum { CALLS = 1500 };
    msp_buf all = {0};
    reading a;

    (void)state;
    msp_buf_text(&all, "{\"task\": \"statistics\", \"data\": {");
    for (int i = 0; i < CALLS; i++)
        msp_buf_printf(&all, "%s\"%c.%.*s%c%s\": %s", i == 0 ? "" : ", ", 'A' + i % 26, i % 7, "aaaaaaa",
                       'a' + i / 26 % 26,
                       i % 3 == 0   ? ".parameters_grad.src"
                       : i % 3 == 1 ? ".parameters_grad.abc"
                                    : ".f",
                       i % 3 == 2 ? records[1] : "{\"type\": \"int\", \"value\": 1}");
    msp_buf_text(&all, "}}");
    read_all(&a, all.p);
    assert_int_equal(a.flattened, MSP_OK);
    for (size_t i = 0; i < a.rows.napis; i++) {
        msp_str name = a.rows.apis[i].name, text = msp_dump_record_text(a.dump, i);
        char one[1024];
        reading b;

        snprintf(one, sizeof(one), "{\"task\": \"statistics\", \"data\": {\"%.*s\": %.*s}}", (int)name.len, name.p,
                 (int)text.len, text.p);
        read_all(&b, one);
        if (!same_call(&a.rows, &a.rows.apis[i], &b.rows, &b.rows.apis[0]))
            fail_msg("%.*s becomes other rows after others", (int)name.len, name.p);
        release(&b);
    }
    release(&a);
    msp_buf_release(&all);
}

/* ---- and it is read so ------------------------------------------------------------------------------------------- */

/* Rows of two calls; those of the second are forgotten again. */
static test_rows
first_of_two(const char *first, const char *second)
{
    char both[1024];
    test_rows t;

    snprintf(both, sizeof(both), "%s, %s", first, second);
    t = rows_of(both);
    t.rows.count = t.rows.apis[1].first;
    return t;
}

static void
note(msp_alike *a, const test_rows *t, msp_alike_part part, const char *before, const char *text)
{
    const char *at = msp_str_find(msp_dump_record_text(t->dump, 0), msp_str_of(before));

    assert_non_null(at);
    msp_alike_note(a, 0, part, (msp_str){at + strlen(before), strlen(text)});
}

static bool
read_second(msp_alike *a, test_rows *t, int how)
{
    return msp_alike_read(a, &t->rows, 1, how, msp_dump_record_text(t->dump, 1));
}

static void
rows_of_a_model_get_other_names_and_values(void **state)
{
    test_rows t = first_of_two("\"F.f.1.forward\": {\"output\": [" TENSOR(1.25) "]}",
                               "\"F.f.2.forward\": {\"output\": [" TENSOR(-7) "]}");
    msp_alike *a = calloc(1, sizeof(*a));

    (void)state;
    assert_false(read_second(a, &t, 0)); /* nothing is known yet */
    note(a, &t, (msp_alike_part)0, "Max\": ", "1.25");
    msp_alike_learn(a, &t.rows, 0, 0, msp_dump_record_text(t.dump, 0));
    assert_false(read_second(a, &t, 1)); /* walked in another way */
    assert_true(read_second(a, &t, 0));
    assert_int_equal(t.rows.count, 2);
    assert_int_equal(t.rows.rows[1].api, 1);
    assert_string_equal(t.rows.rows[1].name, "F.f.2.forward.output.0");
    assert_string_equal(cell_of(&t.rows.rows[1].stats[0]), "-7");
    assert_string_equal(cell_of(&t.rows.rows[0].stats[0]), "1.25");
    free(a);
    rows_free(&t);
}

/* Those of the model itself have been. */
static void
types_and_shapes_must_have_been_met(void **state)
{
#define CALL(number, dtype, shape)                                                                \
    "\"F.f." #number ".forward\": {\"output\": [{\"type\": \"torch.Tensor\", \"dtype\": \"" dtype \
    "\", \"shape\": [" shape "]}]}"
    static const char model[] = CALL(1, "torch.float16", "2");
    test_rows t[] = {first_of_two(model, CALL(2, "torch.float16", "2")),
                     first_of_two(model, CALL(2, "torch.float64", "25"))};
#undef CALL
    msp_alike *a = calloc(2, sizeof(*a));
    msp_str dtype = MSP_STR("torch.float64"), shape = MSP_STR("25");

    (void)state;
    for (int i = 0; i < 2; i++) {
        note(&a[i], &t[i], ALIKE_DTYPE, "dtype\": \"", "torch.float16");
        note(&a[i], &t[i], ALIKE_SHAPE, "shape\": [", "2");
        msp_alike_learn(&a[i], &t[i].rows, 0, 0, msp_dump_record_text(t[i].dump, 0));
        assert_int_equal(read_second(&a[i], &t[i], 0), i == 0);
    }
    assert_int_equal(t[0].rows.rows[1].dtype, t[0].rows.rows[0].dtype);
    assert_int_equal(t[0].rows.rows[1].shape, t[0].rows.rows[0].shape);
    *msp_recent_of(a[1].dtypes, dtype) = (msp_recent){dtype, 77};
    assert_false(read_second(&a[1], &t[1], 0));
    *msp_recent_of(a[1].shapes, shape) = (msp_recent){shape, 78};
    assert_true(read_second(&a[1], &t[1], 0));
    assert_int_equal(t[1].rows.rows[1].dtype, 77);
    assert_int_equal(t[1].rows.rows[1].shape, 78);
    free(a);
    rows_free(&t[0]);
    rows_free(&t[1]);
}

/* The last part of such a name may say that its value is a rank. */
static void
a_row_that_is_called_like_its_call_is_no_model(void **state)
{
    test_rows t = first_of_two("\"a.1.debug\": " TENSOR(1), "\"a.2.debug\": " TENSOR(1));
    msp_alike *a = calloc(1, sizeof(*a));

    (void)state;
    msp_alike_learn(a, &t.rows, 0, 0, msp_dump_record_text(t.dump, 0));
    assert_false(read_second(a, &t, 0));
    free(a);
    rows_free(&t);
}

static void
a_record_with_too_many_places_is_no_model(void **state)
{
    test_rows t = first_of_two("\"F.f.1.forward\": {\"output\": [" TENSOR(1) "]}",
                               "\"F.f.2.forward\": {\"output\": [" TENSOR(1) "]}");
    msp_alike *a = calloc(1, sizeof(*a));

    (void)state;
    for (int i = 0; i <= ALIKE_PLACES; i++)
        note(a, &t, (msp_alike_part)0, "Max\": ", "1");
    msp_alike_learn(a, &t.rows, 0, 0, msp_dump_record_text(t.dump, 0));
    assert_false(read_second(a, &t, 0));
    msp_alike_learn(a, &t.rows, 0, 0, msp_dump_record_text(t.dump, 0)); /* the next one without any */
    assert_true(read_second(a, &t, 0));
    free(a);
    rows_free(&t);
}

static void
no_memory_is_told(void **state)
{
    char *text = two_records(records[1], records[1], true);
    msp_status st = MSP_E_NOMEM;
    int64_t live = msp_alloc_live();

    (void)state;
    for (int64_t n = 0; st != MSP_OK && n < 1000; n++) {
        msp_dump *d;
        msp_rows rows;

        assert_int_equal(msp_dump_open_text(&d, text, strlen(text), "dump.json", NULL), MSP_OK);
        msp_alloc_fail_after(n);
        st = msp_rows_flatten(&rows, d, NULL, NULL, NULL);
        msp_alloc_fail_after(-1);
        assert_true(st == MSP_OK || st == MSP_E_NOMEM);
        msp_rows_release(&rows);
        msp_dump_close(d);
    }
    assert_int_equal(st, MSP_OK);
    assert_int_equal(msp_alloc_live(), live);
    free(text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(any_byte_of_it_may_be_another),
        TEST(any_value_of_it_may_be_another),
        TEST(calls_of_all_names_become_their_own_rows),
        TEST(rows_of_a_model_get_other_names_and_values),
        TEST(types_and_shapes_must_have_been_met),
        TEST(a_row_that_is_called_like_its_call_is_no_model),
        TEST(a_record_with_too_many_places_is_no_model),
        TEST(no_memory_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
