/* test_flatten.c - which rows a record becomes, and what they hold. */
#include "rows_of.h"
#include "text/pytext.h"
#include "core/alloc.h"

static void
expect_names(const char *records, const char *const *names, size_t n)
{
    test_rows t = rows_of(records);

    for (size_t i = 0; i < n && i < t.rows.count; i++) {
        msp_str name = msp_row_name(&t.rows.rows[i]);

        if (!msp_str_eq(name, msp_str_of(names[i])))
            fail_msg("row %zu is %.*s, not %s", i, (int)name.len, name.p, names[i]);
    }
    assert_int_equal(t.rows.count, n);
    rows_free(&t);
}

#define EXPECT_NAMES(records, ...)                                      \
    do {                                                                \
        static const char *const names[] = {__VA_ARGS__};               \
        expect_names(records, names, sizeof(names) / sizeof(names[0])); \
    } while (0)

/* One row: "name dtype shape requires_grad max md5". */
static void
expect_row(const char *records, size_t i, const char *want)
{
    static const char *const grads[] = {"N/A", "False", "True"};
    test_rows t = rows_of(records);
    const msp_row *r = &t.rows.rows[i];
    msp_str dtype = msp_row_dtype(&t.rows, r), shape = msp_row_shape(&t.rows, r);
    char got[512];

    assert_true(i < t.rows.count);
    snprintf(got, sizeof(got), "%.*s|%.*s|%.*s|%s|%s|%s", (int)r->name_len, r->name, (int)dtype.len, dtype.p,
             (int)shape.len, shape.p, grads[r->requires_grad], cell_of(&r->stats[0]),
             r->md5.kind == VAL_NONE ? "N/A" : cell_of(&r->md5));
    assert_string_equal(got, want);
    rows_free(&t);
}

/* One argument of F.f.0.forward, as its only row. */
static void
expect_leaf(const char *leaf, const char *want)
{
    char records[1024];

    snprintf(records, sizeof(records), "\"F.f.0.forward\": {\"input_args\": [%s]}", leaf);
    expect_row(records, 0, want);
}

static void
names_follow_the_path_through_lists_and_dicts(void **state)
{
    (void)state;
    EXPECT_NAMES(
        "\"F.f.0.forward\": {\"input_args\": [" TENSOR(1) ", [" TENSOR(1) ", {\"k\": " TENSOR(
            1) "}]],"
               "\"input_kwargs\": {\"ceil_mode\": {\"type\": \"bool\", \"value\": false}}, \"output\": [" TENSOR(
                   1) "]}",
        "F.f.0.forward.input.0", "F.f.0.forward.input.1.0", "F.f.0.forward.input.1.1.k",
        "F.f.0.forward.input.ceil_mode", "F.f.0.forward.output.0");
}

static void
inputs_come_first_then_parameters_then_outputs(void **state)
{
    (void)state;
    EXPECT_NAMES("\"Module.m.forward.0\": {\"output\": [" TENSOR(1) "], \"parameters\": {\"w\": " TENSOR(
                     1) "},"
                        "\"input_args\": [" TENSOR(1) "], \"is_recompute\": false}",
                 "Module.m.forward.0.input.0", "Module.m.forward.0.parameters.w", "Module.m.forward.0.output.0");
}

static void
empty_values_and_bare_scalars_give_no_row_and_null_gives_one(void **state)
{
    (void)state;
    EXPECT_NAMES("\"F.f.0.forward\": {\"input_args\": [[], {}, \"\", 0, 7, \"text\", true, null]}",
                 "F.f.0.forward.input.7");
}

static void
a_file_gives_its_row_its_name(void **state)
{
    (void)state;
    EXPECT_NAMES(
        "\"F.f.0.forward\": {\"input_kwargs\": {\"mask\": {\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\","
        "\"shape\": [1], \"data_name\": \"F.f.0.forward.kwargs.mask.pt\"}},"
        "\"output\": [{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": [], \"data_name\": \"\"}]}",
        "F.f.0.forward.kwargs.mask", "F.f.0.forward.output.0");
}

static void
gradients_of_parameters_have_no_list_index(void **state)
{
    (void)state;
    EXPECT_NAMES("\"Module.m.parameters_grad\": {\"w\": [" TENSOR(
                     1) "]}, \"Module.m.parameters_grad.1\": {\"w\": [" TENSOR(1) "]}",
                 "Module.m.parameters_grad.w", "Module.m.parameters_grad.1.w");
}

static void
single_values_are_flattened_under_their_own_name(void **state)
{
    (void)state;
    EXPECT_NAMES("\"x.0.debug\": {\"a\": " TENSOR(1) ", \"b\": [" TENSOR(1) "]}, \"y_grad.0.debug\": null",
                 "x.0.debug.a", "x.0.debug.b.0", "y_grad.0.debug");
}

static void
tensors_keep_what_the_dump_says(void **state)
{
    (void)state;
    expect_leaf("{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": [2, 3], \"Max\": 1.5,"
                "\"requires_grad\": true, \"md5\": \"aca16a6a\"}",
                "F.f.0.forward.input.0|torch.float32|[2, 3]|True|1.5|aca16a6a");
    expect_leaf("{\"type\": \"torch.Tensor\", \"dtype\": \"torch.bool\", \"shape\": [], \"Max\": true,"
                "\"requires_grad\": false}",
                "F.f.0.forward.input.0|torch.bool|[]|False|True|00000000");
    expect_leaf(
        "{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": [0], \"Max\": null, \"md5\": null}",
        "F.f.0.forward.input.0|torch.float32|[0]|N/A|None|N/A");
    expect_leaf("{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"Max\": NaN}",
                "F.f.0.forward.input.0|torch.float32|None|N/A|Nan|00000000");
}

static void
keys_of_other_generations_are_passed_over(void **state)
{
    (void)state;
    expect_leaf("{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": [1], \"Max\": Infinity,"
                "\"Max_except_inf_nan\": 3.0, \"device_mesh\": [0, 1], \"placements\": [{\"Shard\": {\"dim\": 0}}]}",
                "F.f.0.forward.input.0|torch.float32|[1]|N/A|inf|00000000");
}

static void
values_that_are_no_tensors_repeat_themselves(void **state)
{
    (void)state;
    expect_leaf("{\"type\": \"int\", \"value\": 3}", "F.f.0.forward.input.0|<class 'int'>|[]|N/A|3|6dd28e9b");
    expect_leaf("{\"type\": \"float\", \"value\": 0.5}", "F.f.0.forward.input.0|<class 'float'>|[]|N/A|0.5|869ef18d");
    expect_leaf("{\"type\": \"bool\", \"value\": false}", "F.f.0.forward.input.0|<class 'bool'>|[]|N/A|FALSE|ea0c4734");
    expect_leaf("{\"type\": \"str\", \"value\": \"mean\"}", "F.f.0.forward.input.0|<class 'str'>|[]|N/A|mean|70f8efb0");
    expect_leaf("{\"type\": \"int\", \"value\": null}",
                "F.f.0.forward.input.0|<class 'NoneType'>|[]|N/A|None|dfa2aff1");
    expect_leaf("{\"type\": \"torch.memory_format\", \"format\": \"contiguous_format\"}",
                "F.f.0.forward.input.0|<class 'NoneType'>|[]|N/A|None|00000000");
    expect_leaf("{\"type\": \"torch.Size\", \"value\": [2, 3]}",
                "F.f.0.forward.input.0|torch.Size|[2, 3]|N/A|None|3f72ac6e");
    expect_leaf("{\"type\": \"slice\", \"value\": [null, 5, null]}",
                "F.f.0.forward.input.0|slice|(3,)|N/A|None|1a6c569b");
    expect_leaf("{\"type\": \"ellipsis\", \"value\": \"...\"}", "F.f.0.forward.input.0|ellipsis|[]|N/A|...|1a43b61b");
    expect_leaf("{\"type\": \"torch.ProcessGroup\", \"group_ranks\": [0, 1], \"group_id\": \"x\"}",
                "F.f.0.forward.input.0|torch.ProcessGroup|[]|N/A|[0, 1]|[0, 1]");
}

static void
arguments_that_name_a_rank_are_text(void **state)
{
    (void)state;
    expect_row("\"D.b.0.forward\": {\"input_kwargs\": {\"src\": {\"type\": \"int\", \"value\": 0}}}", 0,
               "D.b.0.forward.input.src|int|[]|N/A|0|0");
}

static void
a_point_to_point_operation_is_the_row_of_its_tensor(void **state)
{
    test_rows t = rows_of("\"D.batch_isend_irecv.0.forward\": {\"input_args\": [[{\"class_type\": "
                          "\"torch.distributed.P2POp\", \"tensor\": " TENSOR(2) ", \"op\": \"isend\", \"peer\": 1}]]}");

    (void)state;
    assert_int_equal(t.rows.count, 1);
    assert_int_equal(t.rows.rows[0].p2p, 1);
    assert_memory_equal(t.rows.p2p[0].op.p, "isend", 5);
    assert_memory_equal(t.rows.p2p[0].peer.p, "1", 1);
    rows_free(&t);
}

static void
a_checksum_anywhere_is_noticed(void **state)
{
    test_rows t = rows_of("\"F.f.0.forward\": {\"input_args\": [" TENSOR(
        1) "], \"output\": [[[{\"type\": \"torch.Tensor\","
           "\"dtype\": \"torch.int8\", \"shape\": [1], \"md5\": \"00\"}]]]}");

    (void)state;
    assert_true(t.rows.has_md5);
    rows_free(&t);
    t = rows_of("\"F.f.0.forward\": {\"input_args\": [" TENSOR(1) "]}");
    assert_false(t.rows.has_md5);
    rows_free(&t);
}

/* Types and shapes that come again are not put together anew; none may be taken for another. */
static void
every_type_and_shape_is_its_own_whatever_came_before(void **state)
{
    static const char *const dtypes[] = {"torch.float32", "torch.float16", "torch.int64", "torch.bool"};
    msp_buf records = {0};
    test_rows t;
    size_t row = 0;

    (void)state;
    msp_buf_text(&records, "\"F.f.0.forward\": {\"input_args\": [");
    for (int i = 0; i < 200; i++)
        msp_buf_printf(&records,
                       "%s{\"type\": \"torch.Tensor\", \"dtype\": \"%s\", \"shape\": [%d%s%d]},"
                       "{\"type\": \"torch.Tensor\", \"dtype\": \"%s\", \"shape\": [%d]}",
                       i == 0 ? "" : ",", dtypes[i % 4], i % 40, i % 3 == 0 ? "," : ",  ", i % 7, dtypes[i / 2 % 4],
                       10 * (i % 40) + i % 7);
    msp_buf_text(&records, "]}");
    t = rows_of(records.p);
    assert_int_equal(t.rows.count, 400);
    for (int i = 0; i < 400; i++, row++) {
        const msp_row *r = &t.rows.rows[row];
        int k = i / 2, a = k % 40, b = k % 7;
        char want[64];

        snprintf(want, sizeof(want), i % 2 == 0 ? "[%d, %d]" : "[%d]", i % 2 == 0 ? a : 10 * a + b, b);
        assert_true(msp_str_eq(msp_row_shape(&t.rows, r), msp_str_of(want)));
        assert_int_equal(t.rows.texts[r->shape].numel, i % 2 == 0 ? a * b : 10 * a + b);
        assert_true(msp_str_eq(msp_row_dtype(&t.rows, r), msp_str_of(dtypes[i % 2 == 0 ? k % 4 : k / 2 % 4])));
    }
    rows_free(&t);
    msp_buf_release(&records);
}

static void
wrong_leaves_are_named(void **state)
{
    msp_status st;
    msp_error err;
    test_rows t = rows_of_checked("\"F.f.0.forward\": {\"input_args\": [{\"type\": \"torch.Tensor\", \"dtype\": "
                                  "\"torch.float32\", \"shape\": \"2\"}]}",
                                  &st, &err);

    (void)state;
    assert_int_equal(st, MSP_E_FORMAT);
    assert_string_equal(err.message, "F.f.0.forward: \"shape\" of F.f.0.forward.input.0 must be a list");
    rows_free(&t);
    t = rows_of_checked("\"F.f.0.forward\": {\"output\": [{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\","
                        "\"shape\": [], \"requires_grad\": \"True\"}]}",
                        &st, &err);
    assert_int_equal(st, MSP_E_FORMAT);
    assert_string_equal(err.message,
                        "F.f.0.forward: \"requires_grad\" of F.f.0.forward.output.0 must be true or false");
    rows_free(&t);
}

static void
values_that_nest_too_deep_are_refused(void **state)
{
    char records[2000] = "\"F.f.0.forward\": {\"input_args\": ";
    size_t n = strlen(records);
    msp_status st;
    msp_error err;
    test_rows t;

    (void)state;
    memset(records + n, '[', 450);
    memset(records + n + 450, ']', 450);
    strcpy(records + n + 900, "}");
    t = rows_of_checked(records, &st, &err);
    assert_int_equal(st, MSP_E_LIMIT);
    rows_free(&t);
}

static bool
stop(size_t bytes, void *payload)
{
    (void)bytes;
    (void)payload;
    return false;
}

static void
reading_can_be_cancelled(void **state)
{
    test_rows t = rows_of("\"F.f.0.forward\": {\"input_args\": [" TENSOR(1) "]}");

    (void)state;
    msp_rows_release(&t.rows);
    assert_int_equal(msp_rows_flatten(&t.rows, t.dump, stop, NULL, NULL), MSP_E_CANCELLED);
    rows_free(&t);
}

static void
no_failing_allocation_leaks(void **state)
{
    test_rows t = rows_of(
        "\"F.f.0.forward\": {\"input_args\": [" TENSOR(1) ", {\"type\": \"str\", \"value\": \"a\\\"b\"}],"
                                                          "\"output\": [null, {\"type\": \"int\", \"value\": 3}]}");
    int64_t live;
    msp_status st = MSP_E_NOMEM;

    (void)state;
    msp_rows_release(&t.rows);
    live = msp_alloc_live();
    for (int64_t n = 0; st != MSP_OK && n < 1000; n++) {
        msp_alloc_fail_after(n);
        st = msp_rows_flatten(&t.rows, t.dump, NULL, NULL, NULL);
        msp_alloc_fail_after(-1);
        msp_rows_release(&t.rows);
        assert_int_equal(msp_alloc_live(), live);
    }
    assert_int_equal(st, MSP_OK);
    rows_free(&t);
}

static void
text_is_quoted_as_python_does(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] =
        {{"a", "'a'"},        {"it's", "\"it's\""},       {"'\"", "'\\'\"'"},      {"a\nb\\", "'a\\nb\\\\'"},
         {"\x01", "'\\x01'"}, {"\xc3\xa4", "'\xc3\xa4'"}, {"\xc2\xa0", "'\\xa0'"}, {"\xe2\x80\xa8", "'\\u2028'"},
         {"", "''"}};
    msp_buf b = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        msp_buf_clear(&b);
        msp_py_repr_text(&b, msp_str_of(cases[i].text));
        assert_string_equal(b.p, cases[i].want);
    }
    msp_buf_release(&b);
}

/* A character is quoted the same way alone and at any place of a longer text. */
static void
what_must_be_escaped_is_found_at_every_place(void **state)
{
    msp_buf alone = {0}, b = {0};

    (void)state;
    for (int c = 1; c < 0x80; c++)
        for (size_t at = 0; at < 20; at++) {
            char text[] = "abcdefghijklmnopqrst", want[64];

            text[at] = (char)c;
            msp_buf_clear(&alone);
            msp_py_repr_text(&alone, (msp_str){text + at, 1});
            snprintf(want, sizeof(want), "%c%.*s%.*s%s%c", alone.p[0], (int)at, text, (int)alone.len - 2, alone.p + 1,
                     text + at + 1, alone.p[0]);
            msp_buf_clear(&b);
            msp_py_repr_text(&b, msp_str_of(text));
            assert_string_equal(b.p, want);
        }
    msp_buf_release(&alone);
    msp_buf_release(&b);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(names_follow_the_path_through_lists_and_dicts),
        TEST(inputs_come_first_then_parameters_then_outputs),
        TEST(empty_values_and_bare_scalars_give_no_row_and_null_gives_one),
        TEST(a_file_gives_its_row_its_name),
        TEST(gradients_of_parameters_have_no_list_index),
        TEST(single_values_are_flattened_under_their_own_name),
        TEST(tensors_keep_what_the_dump_says),
        TEST(keys_of_other_generations_are_passed_over),
        TEST(values_that_are_no_tensors_repeat_themselves),
        TEST(arguments_that_name_a_rank_are_text),
        TEST(a_point_to_point_operation_is_the_row_of_its_tensor),
        TEST(a_checksum_anywhere_is_noticed),
        TEST(every_type_and_shape_is_its_own_whatever_came_before),
        TEST(wrong_leaves_are_named),
        TEST(values_that_nest_too_deep_are_refused),
        TEST(reading_can_be_cancelled),
        TEST(no_failing_allocation_leaks),
        TEST(text_is_quoted_as_python_does),
        TEST(what_must_be_escaped_is_found_at_every_place),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
