/* test_decisions.c - choices that fell the other way, and by how little. */
#include "unit.h"

#include <math.h>
#include "compare/verdict/decisions.h"
#include "compare/verdict/verdict.h"

enum { ROWS = 3, WIDTH = 4 };

static msp_tensor
tensor(const void *data, msp_dtype type, int64_t a, int64_t b)
{
    msp_tensor t = {.data = data, .dtype = type, .ndim = b > 0 ? 2 : 1, .shape = {a, b}, .strides = {1}};

    t.numel = b > 0 ? a * b : a;
    if (b > 0) {
        t.strides[0] = b;
        t.strides[1] = 1;
    }
    return t;
}

/* Rows to choose from; the bench's differ by noise in its second column. */
static void
make_rows(float out[ROWS * WIDTH], float noise)
{
    static const float rows[ROWS * WIDTH] = {1, 5, 5.0001f, 2, 9, 1, 0, 3, 1, 2, 3, 4};

    memcpy(out, rows, sizeof(rows));
    for (int i = 0; i < ROWS; i++)
        out[i * WIDTH + 1] += noise;
}

static msp_flip
chosen(const int64_t mine[ROWS], const int64_t other[ROWS], float noise)
{
    float n[ROWS * WIDTH], b[ROWS * WIDTH];
    msp_choice sides[2] = {{.chosen = tensor(mine, MSP_I64, ROWS, 0), .from = tensor(n, MSP_F32, ROWS, WIDTH)},
                           {.chosen = tensor(other, MSP_I64, ROWS, 0), .from = tensor(b, MSP_F32, ROWS, WIDTH)}};
    msp_flip f;

    make_rows(n, 0);
    make_rows(b, noise);
    assert_int_equal(msp_flip_measure(&f, MSP_DECIDES_POSITION, sides, -1), MSP_OK);
    return f;
}

static void
a_choice_among_near_values_is_a_flip_with_its_margin(void **state)
{
    static const int64_t mine[ROWS] = {2, 0, 3}, other[ROWS] = {1, 0, 3};
    msp_flip f = chosen(mine, other, 3e-4f);

    (void)state;
    assert_int_equal(f.flipped, 1);
    assert_int_equal(f.places, ROWS);
    assert_int_equal(f.mine, 2);
    assert_int_equal(f.other, 1);
    assert_true(fabs(f.margin - 2e-4) < 1e-6);    /* in the bench: 5.0003 and 5.0001 */
    assert_true(fabs(f.error - 3e-4 / 2) < 1e-6); /* of one in four elements */
    assert_true(fabs(f.times - f.margin / f.error) < 1e-9);
    assert_false(msp_flip_is_wrong(&f));
}

static void
a_choice_of_something_else_is_wrong_however_large_its_margin(void **state)
{
    static const int64_t mine[ROWS] = {2, 3, 3}, other[ROWS] = {2, 0, 3};
    msp_flip f = chosen(mine, other, 3e-4f);

    (void)state;
    assert_int_equal(f.flipped, 1);
    assert_true(f.margin == 6 && f.mine == 3 && f.other == 0);
    assert_true(msp_flip_is_wrong(&f));
}

static void
equal_choices_are_no_flip_and_positions_out_of_range_an_error(void **state)
{
    static const int64_t mine[ROWS] = {2, 0, 3}, outside[ROWS] = {2, 4, 3}, negative[ROWS] = {2, -1, 3};
    float rows[ROWS * WIDTH] = {0};
    msp_choice sides[2] = {{.chosen = tensor(mine, MSP_I64, ROWS, 0), .from = tensor(rows, MSP_F32, ROWS, WIDTH)},
                           {.chosen = tensor(mine, MSP_I64, ROWS, 0), .from = tensor(rows, MSP_F32, ROWS, WIDTH)}};
    msp_flip f;

    (void)state;
    make_rows(rows, 0);
    assert_int_equal(msp_flip_measure(&f, MSP_DECIDES_POSITION, sides, 1), MSP_OK);
    assert_int_equal(f.flipped, 0);
    sides[0].chosen.data = outside;
    assert_int_equal(msp_flip_measure(&f, MSP_DECIDES_POSITION, sides, 1), MSP_E_INVALID);
    sides[0].chosen.data = negative;
    assert_int_equal(msp_flip_measure(&f, MSP_DECIDES_POSITION, sides, 1), MSP_E_INVALID);
    assert_int_equal(msp_flip_measure(&f, MSP_DECIDES_POSITION, sides, 0), MSP_E_INVALID); /* other shapes */
    assert_int_equal(msp_flip_measure(&f, MSP_DECIDES_POSITION, sides, 7), MSP_E_INVALID);
}

/* A place in the flattened tensor, and one dimension of a kept one. */
static void
positions_count_in_the_whole_tensor_or_along_any_dimension(void **state)
{
    static const int64_t flat[2] = {2, 1}, columns[2][WIDTH] = {{1, 0, 0, 2}, {1, 0, 0, 1}};
    float rows[ROWS * WIDTH] = {0};
    msp_choice sides[2] = {{.from = tensor(rows, MSP_F32, ROWS, WIDTH)}, {.from = tensor(rows, MSP_F32, ROWS, WIDTH)}};
    msp_flip f;

    (void)state;
    make_rows(rows, 0);
    for (int i = 0; i < 2; i++)
        sides[i].chosen = tensor(&flat[i], MSP_I64, 1, 0);
    assert_int_equal(msp_flip_measure(&f, MSP_DECIDES_POSITION, sides, INT64_MIN), MSP_OK);
    assert_int_equal(f.flipped, 1);
    assert_true(fabs(f.margin - 1e-4) < 1e-6);
    for (int i = 0; i < 2; i++)
        sides[i].chosen = tensor(columns[i], MSP_I64, 1, WIDTH);
    assert_int_equal(msp_flip_measure(&f, MSP_DECIDES_POSITION, sides, 0), MSP_OK);
    assert_int_equal(f.flipped, 1);
    assert_true(f.margin == 1); /* 4 and 3 in the last column */
}

static void
a_comparison_turns_over_where_both_values_are_near(void **state)
{
    static const float n[4] = {1, 2, 3, 4}, b[4] = {1, 2.0002f, 3, 4};
    static const uint8_t mine[4] = {0, 0, 1, 1}, other[4] = {0, 1, 1, 1}, wrong[4] = {0, 0, 1, 0};
    msp_choice sides[2] = {{.chosen = tensor(mine, MSP_BOOL, 4, 0), .from = tensor(n, MSP_F32, 4, 0), .value = 2.0001},
                           {.chosen = tensor(other, MSP_BOOL, 4, 0),
                            .from = tensor(b, MSP_F32, 4, 0),
                            .value = 2.0001}};
    msp_flip f;

    (void)state;
    assert_int_equal(msp_flip_measure(&f, MSP_DECIDES_ORDER, sides, INT64_MIN), MSP_OK);
    assert_int_equal(f.flipped, 1);
    assert_true(fabs(f.margin - 1e-4) < 1e-6 && fabs(f.times - 1) < 0.01);
    assert_false(msp_flip_is_wrong(&f));
    sides[0].chosen.data = wrong;
    assert_int_equal(msp_flip_measure(&f, MSP_DECIDES_ORDER, sides, INT64_MIN), MSP_OK);
    assert_true(f.flipped == 2 && msp_flip_is_wrong(&f));
}

static void
operands_of_an_order_are_broadcast(void **state)
{
    static const float column[ROWS] = {4, 2, 3}, row[WIDTH] = {1, 2, 3, 4};
    uint8_t truth[2][ROWS * WIDTH];
    msp_choice sides[2];
    msp_flip f;

    (void)state;
    for (int i = 0; i < ROWS * WIDTH; i++)
        truth[0][i] = truth[1][i] = column[i / WIDTH] > row[i % WIDTH];
    truth[0][6] = 1; /* 2 > 3 */
    for (int i = 0; i < 2; i++)
        sides[i] = (msp_choice){tensor(truth[i], MSP_BOOL, ROWS, WIDTH), tensor(column, MSP_F32, ROWS, 1),
                                tensor(row, MSP_F32, WIDTH, 0), 0};
    assert_int_equal(msp_flip_measure(&f, MSP_DECIDES_ORDER, sides, INT64_MIN), MSP_OK);
    assert_true(f.flipped == 1 && f.margin == 1 && msp_flip_is_wrong(&f));
    sides[0].than = sides[1].than = tensor(row, MSP_F32, ROWS, 0);
    assert_int_equal(msp_flip_measure(&f, MSP_DECIDES_ORDER, sides, INT64_MIN), MSP_E_INVALID);
}

static void
operations_that_choose_are_known_by_their_names(void **state)
{
    (void)state;
    assert_int_equal(msp_decision_of(msp_verdict_operation(MSP_STR("Torch.argmax.0.forward"))), MSP_DECIDES_POSITION);
    assert_int_equal(msp_decision_of(msp_verdict_operation(MSP_STR("Tensor.topk.1.forward"))), MSP_DECIDES_POSITION);
    assert_int_equal(msp_decision_of(msp_verdict_operation(MSP_STR("Tensor.__gt__.1.forward"))), MSP_DECIDES_ORDER);
    assert_int_equal(msp_decision_of(msp_verdict_operation(MSP_STR("Torch.round.1.forward"))), MSP_DECIDES_STEP);
    assert_int_equal(msp_decision_of(msp_verdict_operation(MSP_STR("Torch.matmul.1.forward"))), MSP_DECIDES_NOTHING);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_choice_among_near_values_is_a_flip_with_its_margin),
        TEST(a_choice_of_something_else_is_wrong_however_large_its_margin),
        TEST(equal_choices_are_no_flip_and_positions_out_of_range_an_error),
        TEST(positions_count_in_the_whole_tensor_or_along_any_dimension),
        TEST(a_comparison_turns_over_where_both_values_are_near),
        TEST(operands_of_an_order_are_broadcast),
        TEST(operations_that_choose_are_known_by_their_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
