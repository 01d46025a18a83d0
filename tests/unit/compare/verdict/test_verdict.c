/* test_verdict.c - evidence to verdict: what is named, and what is not. */
#include "unit.h"

#include <math.h>
#include "compare/verdict/verdict.h"

enum { CALLS = 8 };

/* A run of matrix products in float32 that differ by diff each, from inputs that differ by in. */
static msp_evidence_list
make_run(msp_evidence items[CALLS], double in, double diff)
{
    static const char *const names[CALLS] = {"Torch.mm.0.forward", "Torch.mm.1.forward", "Torch.mm.2.forward",
                                             "Torch.mm.3.forward", "Torch.mm.4.forward", "Torch.mm.5.forward",
                                             "Torch.mm.6.forward", "Torch.mm.7.forward"};

    for (uint32_t i = 0; i < CALLS; i++)
        items[i] = (msp_evidence){.name = names[i],
                                  .name_len = strlen(names[i]),
                                  .call = i,
                                  .nature = {.cls = MSP_CALL_MATMUL, .family = MSP_FAMILY_PRODUCT},
                                  .bench = {names[i], strlen(names[i])},
                                  .at = MSP_STR("output.0"),
                                  .dtype = MSP_F32,
                                  .coarsest = MSP_F32,
                                  .n = 100,
                                  .diff_in = in,
                                  .diff_out = diff,
                                  .inherited = NAN,
                                  .one_type = true};
    return (msp_evidence_list){.items = items, .count = CALLS};
}

static void
classes_follow_the_name(void **state)
{
    (void)state;
    assert_int_equal(msp_verdict_class(MSP_STR("Functional.linear.0.forward")), MSP_CALL_MATMUL);
    assert_int_equal(msp_verdict_class(MSP_STR("Torch.mm.3.backward")), MSP_CALL_MATMUL);
    assert_int_equal(msp_verdict_class(MSP_STR("Torch.cat.0.forward")), MSP_CALL_MOVE);
    assert_int_equal(msp_verdict_class(MSP_STR("Functional.softmax.0.forward")), MSP_CALL_VECTOR);
}

static void
what_an_operand_is_added_to_a_product_is_no_product(void **state)
{
    (void)state;
    assert_int_equal(msp_verdict_nature(MSP_STR("Torch.baddbmm.0.backward"), MSP_STR("output.0")).cls, MSP_CALL_VECTOR);
    assert_int_equal(msp_verdict_nature(MSP_STR("Torch.baddbmm.0.backward"), MSP_STR("output.2")).cls, MSP_CALL_MATMUL);
    assert_int_equal(msp_verdict_nature(MSP_STR("Functional.linear.0.backward"), MSP_STR("output.2")).cls,
                     MSP_CALL_VECTOR);
    assert_int_equal(msp_verdict_nature(MSP_STR("Functional.bilinear.0.backward"), MSP_STR("output.2")).cls,
                     MSP_CALL_MATMUL);
    assert_int_equal(msp_verdict_nature(MSP_STR("Functional.bilinear.0.backward"), MSP_STR("output.3")).cls,
                     MSP_CALL_VECTOR);
}

/* Judges the run; named: the only suspect, NULL: there is none. */
static msp_pair_verdict
judge(msp_evidence_list *list, const char *named)
{
    msp_pair_verdict v;

    assert_int_equal(msp_verdict_rank(&v, list, NULL), MSP_OK);
    assert_int_equal(v.nsuspects, named != NULL ? 1 : 0);
    if (named != NULL)
        assert_string_equal(v.suspects[0].api, named);
    return v;
}

static void
judge_and_forget(msp_evidence_list *list, const char *named)
{
    msp_pair_verdict v = judge(list, named);

    msp_verdict_release(&v);
}

static void
equal_runs_are_identical(void **state)
{
    msp_evidence items[CALLS];
    msp_evidence_list list = make_run(items, 0, 0);
    msp_pair_verdict v;

    (void)state;
    assert_int_equal(msp_verdict_rank(&v, &list, NULL), MSP_OK);
    assert_true(v.given && v.kind == MSP_VERDICT_IDENTICAL);
    assert_int_equal(v.nsuspects, 0);
    assert_null(v.first_different);
    assert_non_null(strstr(v.sentence, "identical"));
    msp_verdict_release(&v);
}

static void
a_device_that_rounds_every_product_to_11_bits_is_no_alarm(void **state)
{
    msp_evidence items[CALLS];
    msp_evidence_list list = make_run(items, 1e-7, 1.5e-4);
    msp_pair_verdict v;

    (void)state;
    assert_int_equal(msp_verdict_rank(&v, &list, NULL), MSP_OK);
    assert_int_equal(v.nsuspects, 0);
    assert_int_equal(v.judged, CALLS);
    assert_string_equal(v.first_different, "Torch.mm.0.forward");
    assert_non_null(strstr(v.sentence, "Nothing wrong"));
    msp_verdict_release(&v);
}

static void
one_product_that_adds_more_than_the_others_is_named(void **state)
{
    msp_evidence items[CALLS];
    msp_evidence_list list = make_run(items, 1e-7, 1.5e-4);
    msp_pair_verdict v;

    (void)state;
    items[4].diff_out = 0.1;
    items[5].diff_in = 0.1; /* what it hands on is not the next one's fault */
    items[5].diff_out = 0.2;
    v = judge(&list, "Torch.mm.4.forward");
    assert_true(v.suspects[0].times > 100);
    msp_verdict_release(&v);
}

static void
one_side_that_is_not_finite_is_named_and_its_heirs_are_not(void **state)
{
    msp_evidence items[CALLS];
    msp_evidence_list list = make_run(items, 0, 0);
    msp_pair_verdict v;

    (void)state;
    for (int i = 3; i < CALLS; i++) {
        items[i].nonfinite = true;
        items[i].diff_out = INFINITY;
        items[i].diff_in = i == 3 ? 0 : INFINITY;
    }
    v = judge(&list, "Torch.mm.3.forward");
    assert_true(v.suspects[0].nonfinite);
    msp_verdict_release(&v);
}

static void
what_could_not_be_judged_is_counted(void **state)
{
    msp_evidence items[CALLS];
    msp_evidence_list list = make_run(items, 0, 0);
    msp_pair_verdict v;

    (void)state;
    items[0].not_judged = "no partner";
    items[1].one_type = false;
    assert_int_equal(msp_verdict_rank(&v, &list, NULL), MSP_OK);
    assert_int_equal(v.judged, CALLS - 1);
    assert_int_equal(v.not_judged, 1);
    assert_int_equal(v.nunjudged, 1);
    assert_string_equal(v.unjudged[0].reason, "no partner");
    assert_int_equal(v.unjudged[0].results, 1);
    assert_int_equal(v.other_type, 1);
    msp_verdict_release(&v);
}

/* ---- replayed ---------------------------------------------------------------------------------------------------- */

static msp_local locals[CALLS][2];

/* The run above, each product measured by itself: the bench rounds as float32 does, the device as told. */
static msp_evidence_list
make_replayed(msp_evidence items[CALLS], double error)
{
    msp_evidence_list list = make_run(items, 1e-7, error);

    for (int i = 0; i < CALLS; i++) {
        for (int side = 0; side < 2; side++) {
            locals[i][side] = (msp_local){.dtype = MSP_F32,
                                          .count = 100,
                                          .differ = 60,
                                          .rms = side == 0 ? error : 6e-8,
                                          .max = side == 0 ? 4 * error : 3e-7,
                                          .value_rms = 1,
                                          .scale_rms = 1};
            items[i].local[side] = &locals[i][side];
        }
        items[i].inherited = 1e-7;
        items[i].tensors = true;
    }
    return list;
}

static void
tf32_in_all_products_is_a_fact_about_the_device(void **state)
{
    msp_evidence items[CALLS];
    msp_evidence_list list = make_replayed(items, 2.5e-4);
    msp_pair_verdict v;

    (void)state;
    assert_int_equal(msp_verdict_rank(&v, &list, NULL), MSP_OK);
    assert_int_equal(v.kind, MSP_VERDICT_WITHIN);
    assert_int_equal(v.basis, MSP_BASIS_REPLAY);
    assert_int_equal(v.facts.count, 1);
    assert_string_equal(v.facts.items[0], "matmul: about 11 significant bits in 8 of 8 results, like TF32");
    msp_verdict_release(&v);
}

static void
one_product_of_8_bits_among_them_is_named_with_its_own_error(void **state)
{
    msp_evidence items[CALLS];
    msp_evidence_list list = make_replayed(items, 2.5e-4);
    msp_pair_verdict v;

    (void)state;
    locals[3][0].rms = 2e-3;
    locals[3][0].max = 8e-3;
    v = judge(&list, "Torch.mm.3.forward");
    assert_true(v.suspects[0].local == 2e-3 && v.suspects[0].inherited == 1e-7);
    assert_non_null(strstr(v.sentence, "this call adds 0.002, it inherited 1e-07"));
    msp_verdict_release(&v);
}

static void
products_beyond_what_any_ordinary_device_does_are_an_alarm_even_if_all_are(void **state)
{
    msp_evidence items[CALLS];
    msp_evidence_list list = make_replayed(items, 5e-3);
    msp_pair_verdict v;

    (void)state;
    assert_int_equal(msp_verdict_rank(&v, &list, NULL), MSP_OK);
    assert_int_equal(v.kind, MSP_VERDICT_SUSPECT);
    assert_string_equal(v.suspects[0].api, "Torch.mm.0.forward");
    assert_int_equal(v.suspicious, CALLS);
    msp_verdict_release(&v);
}

static void
what_a_call_inherits_is_not_its_fault(void **state)
{
    msp_evidence items[CALLS];
    msp_evidence_list list = make_replayed(items, 6e-8);

    (void)state;
    for (int i = 0; i < CALLS; i++) {
        items[i].diff_in = items[i].diff_out = 0.5;
        items[i].inherited = 0.5;
    }
    judge_and_forget(&list, NULL);
}

static void
a_copy_that_is_not_exact_is_named(void **state)
{
    msp_evidence items[CALLS];
    msp_evidence_list list = make_replayed(items, 6e-8);
    msp_pair_verdict v;

    (void)state;
    items[5].nature = (msp_call_nature){.cls = MSP_CALL_MOVE};
    locals[5][0].differ = 1;
    locals[5][1].differ = 0;
    v = judge(&list, "Torch.mm.5.forward");
    assert_int_equal(v.suspects[0].confidence, MSP_CONFIDENCE_HIGH);
    assert_non_null(strstr(v.suspects[0].reason, "must be exact, and 1 of 100 elements are not"));
    msp_verdict_release(&v);
}

/* All calls are functions; the first is named, and the second is its gradient. */
static msp_evidence_list
make_functions(msp_evidence items[CALLS], const char *forward, const char *backward)
{
    const double u = msp_local_roundoff(MSP_F32), errors[2] = {8 * u, 30 * u};
    const char *const names[2] = {forward, backward};
    msp_evidence_list list = make_replayed(items, u);

    for (int i = 0; i < CALLS; i++)
        items[i].nature = (msp_call_nature){.cls = MSP_CALL_VECTOR};
    for (int i = 0; i < 2; i++) {
        items[i].name = names[i];
        items[i].name_len = strlen(names[i]);
        items[i].nature = msp_verdict_nature(msp_str_of(names[i]), MSP_STR("output.0"));
        locals[i][0].rms = errors[i];
        locals[i][0].max = 2 * errors[i];
    }
    return list;
}

static void
a_gradient_computed_from_the_result_has_its_error_too(void **state)
{
    msp_evidence items[CALLS];
    msp_evidence_list list = make_functions(items, "Torch.rsqrt.0.forward", "Torch.rsqrt.0.backward");

    (void)state;
    judge_and_forget(&list, NULL);
    list = make_functions(items, "Functional.gelu.0.forward", "Functional.gelu.0.backward");
    judge_and_forget(&list, "Functional.gelu.0.backward");
}

/* Two runs of functions in which the second call has an error of so many roundoffs. */
static size_t
count_named(const char *name, const char *at, double roundoffs, void (*explain)(msp_evidence *, msp_local *))
{
    msp_evidence items[CALLS];
    msp_evidence_list list = make_functions(items, "Functional.gelu.0.forward", name);
    msp_pair_verdict v;
    size_t named;

    items[1].nature = msp_verdict_nature(msp_str_of(name), msp_str_of(at));
    locals[1][0].rms = roundoffs * msp_local_roundoff(MSP_F32);
    locals[1][0].max = 2 * locals[1][0].rms;
    if (explain != NULL)
        explain(&items[1], locals[1]);
    assert_int_equal(msp_verdict_rank(&v, &list, NULL), MSP_OK);
    named = v.nsuspects;
    if (named > 0)
        assert_string_equal(v.suspects[0].api, name);
    msp_verdict_release(&v);
    return named;
}

static void
has_4000_terms(msp_evidence *e, msp_local *sides)
{
    (void)sides;
    e->terms = 4000;
}

static void
has_small_elements(msp_evidence *e, msp_local *sides)
{
    (void)e;
    sides[1].inverse_rms = 20;
}

/* As far from zero as so many deviations: that is its natural scale. */
static void
set_mean(msp_local *side, double deviations)
{
    side->value_rms = 1;
    side->scale_rms = deviations;
    side->inverse_rms = 2 / deviations;
}

static void
has_a_mean_of_12_deviations(msp_evidence *e, msp_local *sides)
{
    (void)e;
    set_mean(&sides[1], 12);
}

static void
has_a_mean_of_1000_deviations(msp_evidence *e, msp_local *sides)
{
    (void)e;
    set_mean(&sides[1], 1000);
}

/* Four thousand terms added one after the other leave more than a few roundoffs. */
static void
a_long_sum_may_be_added_up_in_any_order(void **state)
{
    (void)state;
    assert_int_equal(count_named("Functional.linear.0.backward", "output.2", 25, NULL), 1);
    assert_int_equal(count_named("Functional.linear.0.backward", "output.2", 25, has_4000_terms), 0);
}

/* Of a small result of tanh the roundoff of one is a large part, and some formulas leave it. */
static void
a_function_bounded_by_one_may_be_off_by_roundoffs_of_one(void **state)
{
    (void)state;
    assert_int_equal(count_named("Torch.tanh.0.forward", "output.0", 50, NULL), 1);
    assert_int_equal(count_named("Torch.tanh.0.forward", "output.0", 50, has_small_elements), 0);
    assert_int_equal(count_named("Torch.sigmoid.0.forward", "output.0", 50, has_small_elements), 1);
}

/* E[x^2] - E[x]^2 is what many devices compute, until the result has lost half of its bits. */
static void
a_variance_may_be_computed_in_one_pass_while_half_of_the_bits_are_left(void **state)
{
    const char *norm = "Functional.layer_norm.0.forward";

    (void)state;
    assert_int_equal(count_named(norm, "output.0", 25, NULL), 1);
    assert_int_equal(count_named(norm, "output.0", 25, has_a_mean_of_12_deviations), 0);
    assert_int_equal(count_named("Functional.rms_norm.0.forward", "output.0", 25, has_a_mean_of_12_deviations), 1);
    assert_int_equal(count_named(norm, "output.0", 500, has_a_mean_of_1000_deviations), 1);
}

static void
a_convolution_may_be_computed_in_tiles_and_a_product_may_not(void **state)
{
    (void)state;
    assert_int_equal(count_named("Functional.conv2d.0.forward", "output.0", 25, NULL), 0);
    assert_int_equal(count_named("Functional.linear.0.forward", "output.0", 25, NULL), 1);
    assert_int_equal(count_named("Functional.conv2d.0.forward", "output.0", 100, NULL), 1);
}

/* A gradient of a float32 weight, from a call that computes in bfloat16: a bench that does so, too, is not wrong. */
static void
a_bench_that_computes_in_16_bits_is_right_where_the_call_takes_them(void **state)
{
    msp_evidence items[CALLS];
    msp_evidence_list list = make_functions(items, "Functional.gelu.0.forward", "Functional.layer_norm.0.backward");
    msp_pair_verdict v;

    (void)state;
    locals[1][0].rms = locals[1][0].max = 0;
    locals[1][1].rms = 3e-3;
    assert_int_equal(msp_verdict_rank(&v, &list, NULL), MSP_OK);
    assert_int_equal(v.nsuspects, 1);
    assert_non_null(strstr(v.sentence, "it is the bench that is wrong"));
    msp_verdict_release(&v);
    items[1].coarsest = MSP_BF16;
    judge_and_forget(&list, NULL);
}

/* A device that rounds on the way does so in all calls; where most of a gradient is zero, few elements show it. */
static void
zeros_are_no_elements_that_are_rounded_well(void **state)
{
    const double u = msp_local_roundoff(MSP_BF16);
    msp_evidence items[CALLS];
    msp_evidence_list list = make_functions(items, "Functional.gelu.0.backward", "Functional.gelu.1.backward");

    (void)state;
    for (int i = 0; i < CALLS; i++) {
        items[i].dtype = items[i].coarsest = MSP_BF16;
        items[i].n = 1000;
        for (int side = 0; side < 2; side++) {
            bool rounds = i < 2 && side == 0;
            int64_t elements = i == 1 ? 60 : 1000;

            locals[i][side] = (msp_local){.dtype = MSP_BF16,
                                          .count = 1000,
                                          .biased = elements,
                                          .differ = rounds ? elements * 36 / 100 : 0,
                                          .rms = rounds ? 0.6 * u : 0.4 * u,
                                          .max = u,
                                          .value_rms = 1,
                                          .scale_rms = 1};
        }
    }
    judge_and_forget(&list, NULL);
    locals[1][0].differ = 0; /* this one is rounded well */
    judge_and_forget(&list, "Functional.gelu.0.backward");
}

static void
weights_that_differ_go_before_the_calls_that_take_them(void **state)
{
    msp_evidence items[CALLS];
    msp_evidence_list list = make_replayed(items, 6e-8);
    msp_start start = {.call = 2,
                       .api = MSP_STR("Torch.mm.2.forward"),
                       .at = MSP_STR("input.1"),
                       .diff = 0.1,
                       .weights = true};
    msp_pair_verdict v;

    (void)state;
    locals[4][0].rms = 1;
    list.starts = &start;
    list.nstarts = 1;
    assert_int_equal(msp_verdict_rank(&v, &list, NULL), MSP_OK);
    assert_int_equal(v.kind, MSP_VERDICT_START);
    assert_int_equal(v.nsuspects, 2);
    assert_non_null(
        strstr(v.sentence, "do not start from the same weights: Torch.mm.2.forward.input.1 differs by 0.1"));
    assert_string_equal(v.suspects[1].api, "Torch.mm.4.forward");
    msp_verdict_release(&v);
}

static void
a_value_that_somebody_changed_between_two_calls_is_told_as_that(void **state)
{
    msp_evidence items[CALLS];
    msp_evidence_list list = make_replayed(items, 6e-8);
    msp_start start = {.call = 2,
                       .api = MSP_STR("Torch.mm.2.forward"),
                       .at = MSP_STR("input.0"),
                       .diff = 0.1,
                       .changed = MSP_STR("Torch.mm.1.forward.output.0")};
    msp_pair_verdict v;

    (void)state;
    list.starts = &start;
    list.nstarts = 1;
    assert_int_equal(msp_verdict_rank(&v, &list, NULL), MSP_OK);
    assert_string_equal(v.sentence, "Torch.mm.1.forward.output.0 was changed before Torch.mm.2.forward took it as "
                                    "input.0, by code that is not recorded: it differs by 0.1");
    msp_verdict_release(&v);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(classes_follow_the_name),
        TEST(what_an_operand_is_added_to_a_product_is_no_product),
        TEST(equal_runs_are_identical),
        TEST(a_device_that_rounds_every_product_to_11_bits_is_no_alarm),
        TEST(one_product_that_adds_more_than_the_others_is_named),
        TEST(one_side_that_is_not_finite_is_named_and_its_heirs_are_not),
        TEST(what_could_not_be_judged_is_counted),
        TEST(tf32_in_all_products_is_a_fact_about_the_device),
        TEST(one_product_of_8_bits_among_them_is_named_with_its_own_error),
        TEST(products_beyond_what_any_ordinary_device_does_are_an_alarm_even_if_all_are),
        TEST(what_a_call_inherits_is_not_its_fault),
        TEST(a_copy_that_is_not_exact_is_named),
        TEST(a_gradient_computed_from_the_result_has_its_error_too),
        TEST(a_long_sum_may_be_added_up_in_any_order),
        TEST(a_function_bounded_by_one_may_be_off_by_roundoffs_of_one),
        TEST(a_variance_may_be_computed_in_one_pass_while_half_of_the_bits_are_left),
        TEST(a_convolution_may_be_computed_in_tiles_and_a_product_may_not),
        TEST(a_bench_that_computes_in_16_bits_is_right_where_the_call_takes_them),
        TEST(zeros_are_no_elements_that_are_rounded_well),
        TEST(weights_that_differ_go_before_the_calls_that_take_them),
        TEST(a_value_that_somebody_changed_between_two_calls_is_told_as_that),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
