/* test_judge.c - the manual's sections 3.4 to 3.6: verdicts and the sentences in Err_message. */
#include "unit.h"
#include <math.h>
#include "compare/judge/judge.h"

static msp_val
number(double v)
{
    return (msp_val){VAL_FLOAT, 0, {.f = v}};
}

static msp_val
text(const char *s)
{
    return (msp_val){VAL_TEXT, (uint32_t)strlen(s), {.p = s}};
}

/* Judge two rows by their statistics: the first one differs, the others are equal. */
static msp_judged
judge_stats(msp_val n, msp_val b, msp_flag n_grad, msp_flag b_grad)
{
    static msp_row rows[2];
    msp_judged j = {.n = &rows[0], .b = &rows[1]};

    for (int i = 0; i < MSP_NSTATS; i++)
        rows[0].stats[i] = rows[1].stats[i] = number(1);
    rows[0].stats[MSP_STAT_MEAN] = n;
    rows[1].stats[MSP_STAT_MEAN] = b;
    rows[0].requires_grad = (uint8_t)n_grad;
    rows[1].requires_grad = (uint8_t)b_grad;
    msp_judge_row(&j, MSP_MODE_STATISTICS, NULL, false);
    return j;
}

static void
expect_result(double n, double b, msp_verdict want)
{
    msp_judged j = judge_stats(number(n), number(b), FLAG_FALSE, FLAG_FALSE);

    assert_int_equal(j.verdict, want);
    assert_string_equal(j.message.len == 0 ? "" : j.message.p,
                        want == VERDICT_WARNING ? "Need double check api accuracy. " : "");
    msp_buf_release(&j.message);
}

static void
a_relative_error_above_one_half_is_a_warning(void **state)
{
    (void)state;
    expect_result(1.5, 1, VERDICT_CLEAN);
    expect_result(1.5000001, 1, VERDICT_WARNING);
    expect_result(0.5, 1, VERDICT_CLEAN);
    expect_result(2, 1, VERDICT_WARNING);
    expect_result(-1, -10, VERDICT_WARNING);
    expect_result(-5, -10, VERDICT_CLEAN);
    expect_result(1e-12, 1e-12, VERDICT_CLEAN);
    expect_result(2e-12, 1e-12, VERDICT_WARNING);
}

static void
against_zero_any_difference_worth_the_name_is_a_warning(void **state)
{
    (void)state;
    expect_result(0, 0, VERDICT_CLEAN);
    expect_result(1, 0, VERDICT_WARNING);
    expect_result(-1, 0, VERDICT_WARNING);
    expect_result(1e-12, 0, VERDICT_CLEAN);
}

static void
what_is_not_finite_on_one_side_only_warns(void **state)
{
    (void)state;
    expect_result(INFINITY, 1, VERDICT_WARNING);
    expect_result(1, INFINITY, VERDICT_WARNING);
    expect_result(NAN, 1, VERDICT_WARNING);
    expect_result(1, NAN, VERDICT_WARNING);
    expect_result(NAN, NAN, VERDICT_CLEAN);
    expect_result(INFINITY, INFINITY, VERDICT_CLEAN);
}

static void
differences_are_numbers_or_say_why_not(void **state)
{
    static const struct {
        msp_val n, b;
        const char *diff, *rel; /* NULL: a number */
    } cases[] = {{{VAL_FLOAT, 0, {.f = 3}}, {VAL_FLOAT, 0, {.f = 2}}, NULL, NULL},
                 {{VAL_FLOAT, 0, {.f = 3}}, {VAL_INT, 0, {.i = 0}}, NULL, "N/A"},
                 {{VAL_FLOAT, 0, {.f = 3}}, {VAL_NONE, 0, {.i = 0}}, "N/A", "N/A"},
                 {{VAL_BOOL, 0, {.i = 1}}, {VAL_BOOL, 0, {.i = 1}}, "N/A", "N/A"},
                 {{VAL_TEXT, 4, {.p = "True"}}, {VAL_TEXT, 4, {.p = "True"}}, "N/A", "N/A"},
                 {{VAL_TEXT, 1, {.p = "2"}}, {VAL_TEXT, 1, {.p = "1"}}, NULL, NULL},
                 {{VAL_TEXT, 3, {.p = "nan"}}, {VAL_FLOAT, 0, {.f = 2}}, "Nan", "Nan"}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        msp_judged j = judge_stats(cases[i].n, cases[i].b, FLAG_ABSENT, FLAG_ABSENT);
        const msp_num *d = &j.diff[MSP_STAT_MEAN], *r = &j.rel[MSP_STAT_MEAN];

        assert_true(cases[i].diff == NULL ? d->word == NULL : strcmp(d->word, cases[i].diff) == 0);
        assert_true(cases[i].rel == NULL ? r->word == NULL : strcmp(r->word, cases[i].rel) == 0);
        msp_buf_release(&j.message);
    }
}

static void
requires_grad_that_differs_is_said(void **state)
{
    msp_judged j = judge_stats(number(3), number(1), FLAG_TRUE, FLAG_FALSE);

    (void)state;
    assert_false(j.consistent);
    assert_string_equal(j.message.p, "Need double check api accuracy. Requires_grad inconsistent. ");
    msp_buf_release(&j.message);
    j = judge_stats(number(1), number(1), FLAG_TRUE, FLAG_ABSENT);
    assert_false(j.consistent);
    msp_buf_release(&j.message);
    j = judge_stats(number(1), number(1), FLAG_ABSENT, FLAG_ABSENT);
    assert_true(j.consistent);
    msp_buf_release(&j.message);
}

static void
a_row_without_partner_has_no_verdict(void **state)
{
    msp_row row = {.requires_grad = FLAG_FALSE};
    msp_judged j = {.n = &row};

    (void)state;
    msp_judge_row(&j, MSP_MODE_STATISTICS, NULL, false);
    assert_string_equal(msp_verdict_text(j.verdict), "N/A");
    assert_string_equal(j.message.p, "No bench data matched.Requires_grad inconsistent. ");
    msp_buf_clear(&j.message);
    msp_judge_row(&j, MSP_MODE_MD5, NULL, false);
    assert_string_equal(msp_verdict_text(j.verdict), "N/A");
    msp_judge_row(&j, MSP_MODE_REAL, NULL, false);
    assert_string_equal(msp_verdict_text(j.verdict), "None");
    assert_string_equal(j.message.p, "Requires_grad inconsistent. NPU does not have data file.");
    msp_buf_release(&j.message);
}

static void
checksums_are_equal_or_not(void **state)
{
    msp_row rows[2] = {{.md5 = text("00ff00ff")}, {.md5 = text("00ff00ff")}};
    msp_judged j = {.n = &rows[0], .b = &rows[1]};

    (void)state;
    msp_judge_row(&j, MSP_MODE_MD5, NULL, false);
    assert_string_equal(msp_verdict_text(j.verdict), "Pass");
    rows[1].md5 = text("00ff00fe");
    msp_judge_row(&j, MSP_MODE_MD5, NULL, false);
    assert_string_equal(msp_verdict_text(j.verdict), "Different");
    rows[0].md5 = rows[1].md5 = (msp_val){0}; /* None on both sides */
    msp_judge_row(&j, MSP_MODE_MD5, NULL, false);
    assert_string_equal(msp_verdict_text(j.verdict), "Pass");
    msp_buf_release(&j.message);
}

static void
accuracy_follows_cosine_and_the_largest_error(void **state)
{
    static const struct {
        msp_num cosine, max_abs;
        const char *want;
    } cases[] = {{{NULL, 1}, {NULL, 0}, "Yes"},           {{NULL, 0.989}, {NULL, 0.0011}, "No"},
                 {{NULL, 0.989}, {NULL, 0.001}, "Yes"},   {{NULL, 0.99}, {NULL, 0.9}, "Yes"},
                 {{NULL, 0.899}, {NULL, 0}, "No"},        {{NULL, 1}, {NULL, 1.01}, "No"},
                 {{NULL, 1}, {NULL, 1}, "Yes"},           {{"N/A", 0}, {"N/A", 0}, "No"},
                 {{"unsupported", 0}, {NULL, 0}, "None"}, {{"shape unmatched", 0}, {"shape unmatched", 0}, "Unmatched"},
                 {{"Nan", 0}, {NULL, 0.5}, "Yes"},        {{"Nan", 0}, {NULL, 2}, "No"}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(msp_verdict_text(msp_judge_accuracy(&cases[i].cosine, &cases[i].max_abs)), cases[i].want);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_relative_error_above_one_half_is_a_warning),
        TEST(against_zero_any_difference_worth_the_name_is_a_warning),
        TEST(what_is_not_finite_on_one_side_only_warns),
        TEST(differences_are_numbers_or_say_why_not),
        TEST(requires_grad_that_differs_is_said),
        TEST(a_row_without_partner_has_no_verdict),
        TEST(checksums_are_equal_or_not),
        TEST(accuracy_follows_cosine_and_the_largest_error),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
