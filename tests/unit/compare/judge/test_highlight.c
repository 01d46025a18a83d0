/* test_highlight.c - the manual's section 3.3: which rows are red or yellow, and what their messages say. */
#include "rows_of.h"
#include "compare/judge/highlight.h"

/* One row of a call, with what the rules look at. */
typedef struct given {
    msp_row_state state;
    const char *npu_max, *bench_max;                  /* as JSON; bench NULL: no partner */
    double abs_err, rel_err, ratio_loss, cosine_loss; /* NAN: no number; 0: nothing wrong */
    bool inconsistent;
} given;

static msp_val
val_of_text(const char *text)
{
    msp_val v = {VAL_FLOAT, 0, {.f = 0}};

    if (text == NULL || strcmp(text, "null") == 0)
        return (msp_val){0};
    if (text[0] == '"')
        return (msp_val){VAL_TEXT, (uint32_t)strlen(text) - 2, {.p = text + 1}};
    v.as.f = strtod(text, NULL);
    return v;
}

static msp_num
num_of(double v)
{
    return v != v ? (msp_num){"Nan", 0} : (msp_num){NULL, v};
}

static struct {
    msp_row n[8], b[8];
    msp_judged rows[8];
    size_t count;
} call;

static void
begin(void)
{
    for (size_t i = 0; i < 8; i++)
        msp_buf_release(&call.rows[i].message);
    memset(&call, 0, sizeof(call));
}

static void
add_row(given g)
{
    size_t i = call.count++;
    msp_judged *j = &call.rows[i];

    call.n[i] = (msp_row){.state = (uint8_t)g.state};
    call.n[i].stats[MSP_STAT_MAX] = val_of_text(g.npu_max);
    call.n[i].stats[MSP_STAT_MIN] = val_of_text("0");
    call.b[i].stats[MSP_STAT_MAX] = val_of_text(g.bench_max);
    j->n = &call.n[i];
    j->b = g.bench_max == NULL ? NULL : &call.b[i];
    j->consistent = !g.inconsistent;
    j->diff[MSP_STAT_MAX] = j->metric[METRIC_MAX_ABS] = num_of(g.abs_err);
    j->metric[METRIC_MAX_REL] = num_of(g.rel_err);
    j->metric[METRIC_ONE_THOUSANDTH] = num_of(1 - g.ratio_loss);
    j->metric[METRIC_COSINE] = num_of(1 - g.cosine_loss);
}

static void
expect(msp_compare_mode mode, size_t row, msp_row_colour colour, const char *message)
{
    msp_highlight_api(call.rows, call.count, mode);
    assert_int_equal(call.rows[row].colour, colour);
    assert_string_equal(call.rows[row].message.p == NULL ? "" : call.rows[row].message.p, message);
}

#define FINE .npu_max = "1", .bench_max = "1"
#define IN                         \
    (given)                        \
    {                              \
        .state = STATE_INPUT, FINE \
    }

static const char not_finite[] = "maximum or minimum is nan, -inf, or inf";
static const char magnitude[] = "maximum absolute error of both input/parameters and output exceed 1, with the output "
                                "larger by an order of magnitude";

static void
rows_that_are_fine_stay_plain(void **state)
{
    (void)state;
    begin();
    add_row(IN);
    add_row((given){.state = STATE_OUTPUT, FINE});
    expect(MSP_MODE_REAL, 1, MSP_ROW_PLAIN, "");
    expect(MSP_MODE_STATISTICS, 1, MSP_ROW_PLAIN, "");
}

static void
nan_and_infinities_are_red_wherever_they_stand(void **state)
{
    static const char *const maxima[] = {"nan", "inf", "-inf", "\"NaN\"", "\"-inf\""};

    (void)state;
    for (size_t i = 0; i < 5; i++)
        for (int mode = MSP_MODE_REAL; mode <= MSP_MODE_STATISTICS; mode++) {
            begin();
            add_row((given){.state = STATE_INPUT, .npu_max = maxima[i], .bench_max = "1", .abs_err = 0.0 / 0.0});
            expect((msp_compare_mode)mode, 0, MSP_ROW_RED, not_finite);
        }
    begin();
    add_row((given){.state = STATE_INPUT, .npu_max = "1", .bench_max = "nan", .abs_err = 0.0 / 0.0});
    expect(MSP_MODE_REAL, 0, MSP_ROW_PLAIN, "");
}

static void
an_absolute_error_above_1e10_is_red(void **state)
{
    (void)state;
    begin();
    add_row((given){.state = STATE_INPUT, .npu_max = "2e10", .bench_max = "1", .abs_err = -2e10});
    expect(MSP_MODE_STATISTICS, 0, MSP_ROW_RED, "maximum absolute error exceeds 1e+10");
    begin();
    add_row((given){.state = STATE_INPUT, .npu_max = "1e10", .bench_max = "1", .abs_err = 1e10});
    expect(MSP_MODE_REAL, 0, MSP_ROW_PLAIN, "");
}

static void
a_ratio_that_falls_from_above_90_to_below_60_percent_is_red(void **state)
{
    (void)state;
    begin();
    add_row(IN);
    add_row((given){.state = STATE_OUTPUT, FINE, .ratio_loss = 0.41});
    expect(MSP_MODE_REAL, 1, MSP_ROW_RED,
           "The input/parameter's one thousandth err ratio exceeds 0.9, while the output's is below 0.6");
    assert_int_equal(call.rows[0].colour, MSP_ROW_PLAIN);
}

static void
a_ratio_that_falls_by_more_than_a_tenth_is_yellow(void **state)
{
    (void)state;
    begin();
    add_row((given){.state = STATE_PARAMETERS, FINE});
    add_row((given){.state = STATE_OUTPUT, FINE, .ratio_loss = 0.4});
    expect(MSP_MODE_REAL, 1, MSP_ROW_YELLOW,
           "The output's one thousandth err ratio decreases by more than 0.1 compared to the input/parameter's");
    begin();
    add_row(IN);
    add_row((given){.state = STATE_OUTPUT, FINE, .ratio_loss = 0.1});
    expect(MSP_MODE_REAL, 1, MSP_ROW_PLAIN, "");
}

static void
a_cosine_that_falls_by_more_than_a_tenth_is_yellow(void **state)
{
    (void)state;
    begin();
    add_row(IN);
    add_row((given){.state = STATE_OUTPUT, FINE, .cosine_loss = 0.2});
    expect(MSP_MODE_REAL, 1, MSP_ROW_YELLOW,
           "The output's cosine decreases by more than 0.1 compared to the input/parameter's");
}

static void
an_error_ten_times_larger_than_the_inputs_is_yellow(void **state)
{
    (void)state;
    for (int mode = MSP_MODE_REAL; mode <= MSP_MODE_STATISTICS; mode++) {
        begin();
        add_row((given){.state = STATE_INPUT, FINE, .abs_err = 2, .rel_err = 0.02});
        add_row((given){.state = STATE_OUTPUT, .npu_max = "1e3", .bench_max = "1e3", .abs_err = 20, .rel_err = 0.02});
        call.b[0].stats[MSP_STAT_MAX] = val_of_text("100");
        expect((msp_compare_mode)mode, 1, MSP_ROW_YELLOW, magnitude);
        begin();
        add_row((given){.state = STATE_INPUT, FINE, .abs_err = 1, .rel_err = 0.02});
        add_row((given){.state = STATE_OUTPUT, .npu_max = "1e3", .bench_max = "1e3", .abs_err = 20, .rel_err = 0.02});
        call.b[0].stats[MSP_STAT_MAX] = val_of_text("50");
        expect((msp_compare_mode)mode, 1, MSP_ROW_PLAIN, "");
    }
}

static void
a_maximum_off_by_more_than_half_is_red_in_statistics(void **state)
{
    (void)state;
    begin();
    add_row((given){.state = STATE_OUTPUT, .npu_max = "2", .bench_max = "1", .abs_err = 1});
    expect(MSP_MODE_STATISTICS, 0, MSP_ROW_RED, "maximum relative error exceeds 0.5"); /* needs no input */
    /* the divisor is at least 0.01 */
    begin();
    add_row((given){.state = STATE_OUTPUT, .npu_max = "0.004", .bench_max = "0", .abs_err = 0.004});
    expect(MSP_MODE_STATISTICS, 0, MSP_ROW_PLAIN, "");
    begin();
    add_row((given){.state = STATE_OUTPUT, .npu_max = "1", .bench_max = "0", .abs_err = 1});
    expect(MSP_MODE_STATISTICS, 0, MSP_ROW_RED, "maximum relative error exceeds 0.5");
    /* of a negative maximum its size counts: a log_softmax that is a little off is fine */
    begin();
    add_row((given){.state = STATE_OUTPUT, .npu_max = "-2.02", .bench_max = "-2", .abs_err = 0.02});
    expect(MSP_MODE_STATISTICS, 0, MSP_ROW_PLAIN, "");
    /* inputs are not marked by this rule */
    begin();
    add_row((given){.state = STATE_INPUT, .npu_max = "2", .bench_max = "1", .abs_err = 1});
    expect(MSP_MODE_STATISTICS, 0, MSP_ROW_PLAIN, "");
}

static void
a_relative_error_that_appears_in_the_output_is_yellow_in_both_modes(void **state)
{
    static const char text[] = "The output's maximum relative error exceeds 0.1, while the input/parameter's is below "
                               "0.01";

    (void)state;
    begin();
    add_row(IN);
    add_row((given){.state = STATE_OUTPUT, FINE, .rel_err = 0.2});
    expect(MSP_MODE_REAL, 1, MSP_ROW_YELLOW, text);
    begin();
    add_row(IN);
    add_row((given){.state = STATE_OUTPUT, .npu_max = "1.2", .bench_max = "1", .abs_err = 0.2});
    expect(MSP_MODE_STATISTICS, 1, MSP_ROW_YELLOW, text);
    begin();
    add_row((given){.state = STATE_INPUT, FINE, .rel_err = 0.05, .abs_err = 0.05});
    add_row((given){.state = STATE_OUTPUT, .npu_max = "1.2", .bench_max = "1", .abs_err = 0.2, .rel_err = 0.2});
    expect(MSP_MODE_STATISTICS, 1, MSP_ROW_PLAIN, "");
    expect(MSP_MODE_REAL, 1, MSP_ROW_PLAIN, "");
}

static void
an_inconsistent_requires_grad_is_yellow_on_every_row(void **state)
{
    (void)state;
    begin();
    add_row((given){.state = STATE_INPUT, .npu_max = "1", .inconsistent = true});
    expect(MSP_MODE_STATISTICS, 0, MSP_ROW_YELLOW, "requires_grad is inconsistent");
}

static void
a_reason_appears_once_and_red_rows_tell_red_reasons_only(void **state)
{
    (void)state;
    begin();
    add_row(IN);
    add_row(IN);
    add_row((given){.state = STATE_PARAMETERS, FINE});
    add_row((
        given){.state = STATE_OUTPUT, FINE, .ratio_loss = 0.9, .cosine_loss = 0.9, .rel_err = 9, .inconsistent = true});
    msp_buf_text(&call.rows[3].message, "Requires_grad inconsistent. ");
    expect(MSP_MODE_REAL, 3, MSP_ROW_RED,
           "Requires_grad inconsistent. \n"
           "The input/parameter's one thousandth err ratio exceeds 0.9, while the output's is below 0.6");
}

static void
rows_without_numbers_are_not_set_against_others(void **state)
{
    (void)state;
    begin();
    add_row((given){.state = STATE_INPUT, .npu_max = "null", .bench_max = "null"});
    add_row((given){.state = STATE_OUTPUT, FINE, .ratio_loss = 0.9, .cosine_loss = 0.9});
    expect(MSP_MODE_REAL, 1, MSP_ROW_PLAIN, "");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rows_that_are_fine_stay_plain),
        TEST(nan_and_infinities_are_red_wherever_they_stand),
        TEST(an_absolute_error_above_1e10_is_red),
        TEST(a_ratio_that_falls_from_above_90_to_below_60_percent_is_red),
        TEST(a_ratio_that_falls_by_more_than_a_tenth_is_yellow),
        TEST(a_cosine_that_falls_by_more_than_a_tenth_is_yellow),
        TEST(an_error_ten_times_larger_than_the_inputs_is_yellow),
        TEST(a_maximum_off_by_more_than_half_is_red_in_statistics),
        TEST(a_relative_error_that_appears_in_the_output_is_yellow_in_both_modes),
        TEST(an_inconsistent_requires_grad_is_yellow_on_every_row),
        TEST(a_reason_appears_once_and_red_rows_tell_red_reasons_only),
        TEST(rows_without_numbers_are_not_set_against_others),
    };
    int failed = cmocka_run_group_tests(tests, NULL, remove_scratch);

    begin();
    return failed;
}
