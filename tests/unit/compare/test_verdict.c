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
                                  .cls = MSP_CALL_MATMUL,
                                  .dtype = MSP_F32,
                                  .n = 100,
                                  .diff_in = in,
                                  .diff_out = diff,
                                  .local = NAN,
                                  .one_type = true};
    return (msp_evidence_list){items, CALLS};
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
equal_runs_are_identical(void **state)
{
    msp_evidence items[CALLS];
    msp_evidence_list list = make_run(items, 0, 0);
    msp_pair_verdict v;

    (void)state;
    assert_int_equal(msp_verdict_rank(&v, &list, NULL), MSP_OK);
    assert_true(v.given && v.identical);
    assert_int_equal(v.nsuspects, 0);
    assert_null(v.first_different);
    assert_non_null(strstr(v.sentence, "identical to the bit"));
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
    assert_int_equal(msp_verdict_rank(&v, &list, NULL), MSP_OK);
    assert_int_equal(v.nsuspects, 1);
    assert_string_equal(v.suspects[0].api, "Torch.mm.4.forward");
    assert_true(v.suspects[0].ratio > 100);
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
    assert_int_equal(msp_verdict_rank(&v, &list, NULL), MSP_OK);
    assert_int_equal(v.nsuspects, 1);
    assert_string_equal(v.suspects[0].api, "Torch.mm.3.forward");
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
    assert_int_equal(v.other_type, 1);
    msp_verdict_release(&v);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(classes_follow_the_name),
        TEST(equal_runs_are_identical),
        TEST(a_device_that_rounds_every_product_to_11_bits_is_no_alarm),
        TEST(one_product_that_adds_more_than_the_others_is_named),
        TEST(one_side_that_is_not_finite_is_named_and_its_heirs_are_not),
        TEST(what_could_not_be_judged_is_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
