/* test_match.c - which rows meet. */
#include "rows_of.h"
#include "compare/match/match.h"
#include "core/alloc.h"

/* A record "name": {"input_args": [tensor of this type and shape]}. */
#define CALL_AS(name, dtype, shape) \
    "\"" name "\": {\"input_args\": [{\"type\": \"torch.Tensor\", \"dtype\": \"" dtype "\", \"shape\": " shape "}]}"
#define CALL(name) CALL_AS(name, "torch.float32", "[2]")

typedef msp_status match_fn(msp_match *, const msp_rows *, const msp_rows *, const msp_match_rule *, msp_error *);

/* Each NPU row's partner by number, "-" for none: "0 1 - 2". */
static void
expect_match(match_fn *match, const msp_match_rule *rule, const char *npu, const char *bench, const char *want)
{
    test_rows n = rows_of(npu), b = rows_of(bench);
    char got[256] = "";
    size_t matched = 0;
    msp_match m;

    assert_int_equal(match(&m, &n.rows, &b.rows, rule, NULL), MSP_OK);
    for (size_t i = 0; i < m.count; i++) {
        char one[16] = "-";

        if (m.bench[i] != MATCH_NONE) {
            snprintf(one, sizeof(one), "%u", m.bench[i]);
            matched++;
        }
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s", i > 0 ? " " : "", one);
    }
    assert_string_equal(got, want);
    assert_int_equal(m.matched, matched);
    msp_match_release(&m);
    rows_free(&n);
    rows_free(&b);
}

static const msp_match_rule strict = {0};

static void
expect_strict(const char *npu, const char *bench, const char *want)
{
    expect_match(msp_match_rows, &strict, npu, bench, want);
}

static void
expect_fuzzy(const char *npu, const char *bench, const char *want)
{
    expect_match(msp_match_rows_fuzzy, &strict, npu, bench, want);
}

static void
equal_names_meet_in_any_order(void **state)
{
    (void)state;
    expect_strict(CALL("a") "," CALL("b") "," CALL("c"), CALL("a") "," CALL("c") "," CALL("b"), "0 2 1");
    expect_strict(CALL("a") "," CALL("x"), CALL("b") "," CALL("a"), "1 -");
}

static void
another_shape_is_no_partner(void **state)
{
    (void)state;
    expect_strict(CALL_AS("a", "torch.float32", "[2, 3]") "," CALL("b"),
                  CALL_AS("a", "torch.float32", "[3, 2]") "," CALL("b"), "- 1");
}

static void
floats_of_16_and_32_bits_meet_and_other_types_do_not(void **state)
{
    (void)state;
    expect_strict(CALL_AS("a", "torch.float32", "[]"), CALL_AS("a", "torch.bfloat16", "[]"), "0");
    expect_strict(CALL_AS("a", "torch.float16", "[]"), CALL_AS("a", "torch.float32", "[]"), "0");
    expect_strict(CALL_AS("a", "torch.float32", "[]"), CALL_AS("a", "torch.float64", "[]"), "-");
    expect_strict(CALL_AS("a", "torch.int32", "[]"), CALL_AS("a", "torch.int64", "[]"), "-");
    expect_strict(CALL_AS("a", "Float16", "[]"), CALL_AS("a", "BFloat16", "[]"), "0");
    expect_strict(CALL_AS("a", "Float32", "[]"), CALL_AS("a", "torch.float32", "[]"), "-");
}

static void
across_frameworks_the_kind_of_number_decides(void **state)
{
    static const msp_match_rule cross = {.cross_framework = true};

    (void)state;
    expect_match(msp_match_rows, &cross, CALL_AS("a", "Float32", "[]"), CALL_AS("a", "torch.float64", "[]"), "0");
    expect_match(msp_match_rows, &cross, CALL_AS("a", "Int64", "[]"), CALL_AS("a", "torch.float32", "[]"), "-");
}

static void
of_several_with_one_name_the_kth_meets_the_kth(void **state)
{
    static const char npu[] = "\"a\": {\"input_args\": [" TENSOR(1) "], \"input\": [" TENSOR(2) "]}," CALL("b");
    static const char bench[] = CALL("b") ",\"a\": {\"input_args\": [" TENSOR(1) "], \"input\": [" TENSOR(2) "]}";

    (void)state;
    expect_strict(npu, bench, "1 2 0");
}

static void
gradients_with_and_without_a_zero_are_the_same(void **state)
{
    static const char plain[] = "\"M.parameters_grad\": {\"w\": [" TENSOR(1) "]}";
    static const char numbered[] = "\"M.parameters_grad.0\": {\"w\": [" TENSOR(1) "]}";
    static const char second[] = "\"M.parameters_grad.1\": {\"w\": [" TENSOR(1) "]}";
    char both[512];

    (void)state;
    expect_strict(plain, numbered, "0");
    expect_strict(numbered, plain, "0");
    expect_strict(plain, second, "-");
    /* where both spellings are there each meets its own */
    snprintf(both, sizeof(both), "%s, %s", plain, numbered);
    expect_strict(numbered, both, "1");
}

static msp_str
to_b(const msp_rows *npu, const msp_row *row, msp_buf *scratch, void *ctx)
{
    (void)npu;
    (void)row;
    (void)scratch;
    return *(msp_str *)ctx;
}

static void
a_mapped_name_ignores_shape_and_type_and_may_serve_several(void **state)
{
    msp_str name = MSP_STR("b.input.0");
    msp_match_rule rule = {.key = to_b, .key_ctx = &name, .ignore_shape = true, .ignore_dtype = true};

    (void)state;
    expect_match(msp_match_rows, &rule, CALL("x") "," CALL("y"), CALL("a") "," CALL_AS("b", "torch.int64", "[7]"),
                 "1 1");
    name = (msp_str){NULL, 0};
    expect_match(msp_match_rows, &rule, CALL("a"), CALL("a"), "-");
}

static void
fuzzy_names_lose_the_part_before_the_direction(void **state)
{
    static const struct {
        const char *name, *want;
    } cases[] = {{"Functional.relu.3.forward.input.0", "Functional.relu.forward.input.0"},
                 {"Functional.relu.3.backward.input.0", "Functional.relu.backward.input.0"},
                 {"Module.a.fc.Linear.forward.0.input.0", "Module.a.fc.forward.0.input.0"},
                 {"Functional.multi_head_attention_forward.0.forward.input.0",
                  "Functional.multi_head_attention_forward.forward.input.0"},
                 {"Module.m.parameters_grad.w", "Module.m.parameters_grad.w"},
                 {"forward.input", "forward.input"}};
    msp_buf b = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        msp_str got = msp_match_fuzzy_name(msp_str_of(cases[i].name), &b);

        assert_true(msp_str_eq(got, msp_str_of(cases[i].want)));
    }
    msp_buf_release(&b);
}

static void
fuzzy_matching_goes_by_order(void **state)
{
    (void)state;
    expect_fuzzy(CALL("F.relu.0.forward") "," CALL("F.relu.1.forward"),
                 CALL("F.relu.1.forward") "," CALL("F.relu.2.forward"), "0 1");
    /* a call more on one side is left out where the order shows it */
    expect_fuzzy(CALL("F.relu.0.forward") "," CALL("F.linear.0.forward") "," CALL("F.relu.1.forward"),
                 CALL("F.linear.0.forward") "," CALL("F.relu.0.forward"), "- 0 1");
    expect_fuzzy(CALL("F.linear.0.forward") "," CALL("F.relu.0.forward"),
                 CALL("F.gelu.0.forward") "," CALL("F.linear.0.forward") "," CALL("F.relu.1.forward"), "1 2");
}

static void
fuzzy_matching_loses_nobody_when_the_order_differs(void **state)
{
    (void)state;
    expect_fuzzy(CALL("T.a.0.forward") "," CALL("T.z.0.forward"), CALL("T.z.0.forward") "," CALL("T.a.0.forward"),
                 "1 0");
    expect_fuzzy(CALL("T.c.0.forward") "," CALL("T.b.0.forward") "," CALL("T.a.0.forward"),
                 CALL("T.a.0.forward") "," CALL("T.b.0.forward") "," CALL("T.c.0.forward"), "2 1 0");
}

static void
fuzzy_matching_respects_shape_and_type(void **state)
{
    (void)state;
    expect_fuzzy(CALL_AS("T.a.0.forward", "torch.float32", "[3]"), CALL_AS("T.a.1.forward", "torch.float32", "[4]"),
                 "-");
    expect_fuzzy(CALL_AS("T.a.0.forward", "torch.int8", "[3]"), CALL_AS("T.a.1.forward", "torch.float32", "[3]"), "-");
}

static void
bench_rows_without_partner_are_counted(void **state)
{
    test_rows n = rows_of(CALL("a")), b = rows_of(CALL("a") "," CALL("b") "," CALL("c"));
    msp_match m;

    (void)state;
    assert_int_equal(msp_match_rows(&m, &n.rows, &b.rows, &strict, NULL), MSP_OK);
    assert_int_equal(m.bench_only, 2);
    msp_match_release(&m);
    rows_free(&n);
    rows_free(&b);
}

static void
no_failing_allocation_leaks(void **state)
{
    static match_fn *const fns[] = {msp_match_rows, msp_match_rows_fuzzy};
    test_rows n =
        rows_of(CALL("F.b.0.forward") "," CALL("F.a.0.forward") ",\"M.parameters_grad\": {\"w\": [" TENSOR(1) "]}");
    test_rows b =
        rows_of(CALL("F.a.0.forward") "," CALL("F.b.1.forward") ",\"M.parameters_grad.0\": {\"w\": [" TENSOR(1) "]}");
    int64_t live = msp_alloc_live();

    (void)state;
    for (int k = 0; k < 2; k++) {
        msp_status st = MSP_E_NOMEM;

        for (int64_t i = 0; st != MSP_OK && i < 1000; i++) {
            msp_match m;

            msp_alloc_fail_after(i);
            st = fns[k](&m, &n.rows, &b.rows, &strict, NULL);
            msp_alloc_fail_after(-1);
            msp_match_release(&m);
            assert_int_equal(msp_alloc_live(), live);
        }
        assert_int_equal(st, MSP_OK);
    }
    rows_free(&n);
    rows_free(&b);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(equal_names_meet_in_any_order),
        TEST(another_shape_is_no_partner),
        TEST(floats_of_16_and_32_bits_meet_and_other_types_do_not),
        TEST(across_frameworks_the_kind_of_number_decides),
        TEST(of_several_with_one_name_the_kth_meets_the_kth),
        TEST(gradients_with_and_without_a_zero_are_the_same),
        TEST(a_mapped_name_ignores_shape_and_type_and_may_serve_several),
        TEST(fuzzy_names_lose_the_part_before_the_direction),
        TEST(fuzzy_matching_goes_by_order),
        TEST(fuzzy_matching_loses_nobody_when_the_order_differs),
        TEST(fuzzy_matching_respects_shape_and_type),
        TEST(bench_rows_without_partner_are_counted),
        TEST(no_failing_allocation_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
