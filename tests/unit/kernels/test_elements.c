/* test_elements.c - where in a pair of tensors the errors are. */
#include <math.h>
#include "unit.h"
#include "kernels/elements.h"

static msp_tensor
view(const void *data, msp_dtype t, int32_t ndim, const int64_t *shape)
{
    msp_tensor out;

    assert_int_equal(msp_tensor_view(&out, data, t, ndim, shape, NULL), MSP_OK);
    return out;
}

static void
strided_tensors_are_read_in_row_major_order(void **state)
{
    const float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 4, 2, 5, 3, 7};
    msp_tensor n = view(a, MSP_F32, 2, (const int64_t[]){2, 3}), t = view(b, MSP_F32, 2, (const int64_t[]){2, 3});
    msp_elements e;

    (void)state;
    t.strides[0] = 1; /* b is a's transpose in memory, but for its last element */
    t.strides[1] = 2;
    msp_elements_look(&e, &n, &t);
    assert_int_equal(e.equal, 5);
    assert_int_equal(e.first, 5);
    assert_int_equal(e.worst[0].at, 5);
    assert_true(e.worst[0].err == 1);
    assert_true(e.map[1 * ELEMENTS_MAP_COLUMNS + 2] == 1);
    assert_int_equal(e.bits, 1);
}

static void
the_worst_come_largest_first_and_equal_ones_in_order(void **state)
{
    double a[20] = {0}, b[20] = {0};
    msp_elements e;
    msp_tensor n = view(a, MSP_F64, 1, (const int64_t[]){20}), t = view(b, MSP_F64, 1, (const int64_t[]){20});

    (void)state;
    for (int i = 0; i < 20; i++) {
        a[i] = i % 5;
        b[i] = 0;
    }
    msp_elements_look(&e, &n, &t);
    assert_int_equal(e.nworst, ELEMENTS_WORST);
    for (int i = 0; i < ELEMENTS_WORST; i++) {
        assert_int_equal(e.worst[i].at, i < 4 ? 4 + 5 * i : 3 + 5 * (i - 4));
        assert_true(e.worst[i].err == (i < 4 ? 4 : 3));
    }
}

static void
what_is_not_finite_on_one_side_only_is_a_mismatch(void **state)
{
    const double a[5] = {NAN, INFINITY, INFINITY, NAN, 1}, b[5] = {NAN, INFINITY, -INFINITY, 2, INFINITY};
    msp_tensor n = view(a, MSP_F64, 1, (const int64_t[]){5}), t = view(b, MSP_F64, 1, (const int64_t[]){5});
    msp_elements e;

    (void)state;
    msp_elements_look(&e, &n, &t);
    assert_int_equal(e.equal, 2);
    assert_int_equal(e.mismatches, 3);
    assert_int_equal(e.nonfinite, 5);
    assert_int_equal(e.first, 2);
}

static void
integers_of_64_bits_differ_exactly(void **state)
{
    const int64_t a[2] = {INT64_MAX, -1};
    const uint64_t b[2] = {(uint64_t)INT64_MAX - 1, UINT64_MAX};
    msp_tensor n = view(a, MSP_I64, 1, (const int64_t[]){2}), t = view(b, MSP_U64, 1, (const int64_t[]){2});
    msp_elements e;

    (void)state;
    msp_elements_look(&e, &n, &t);
    assert_int_equal(e.equal, 0);
    assert_true(e.worst[0].err == 0x1p64);
    assert_true(e.worst[1].err == 1);
    assert_int_equal(e.bits, -1);
}

static void
a_large_tensor_is_shared_out_over_the_map(void **state)
{
    enum { ROWS = 100, COLUMNS = 200 };
    float *a = calloc(ROWS * COLUMNS, sizeof(float)), *b = calloc(ROWS * COLUMNS, sizeof(float));
    msp_tensor n = view(a, MSP_F32, 2, (const int64_t[]){ROWS, COLUMNS});
    msp_tensor t = view(b, MSP_F32, 2, (const int64_t[]){ROWS, COLUMNS});
    msp_elements e;
    int marked = 0;

    (void)state;
    a[99 * COLUMNS + 199] = 2;
    a[0] = 3;
    msp_elements_look(&e, &n, &t);
    assert_int_equal(e.map_rows, ELEMENTS_MAP_ROWS);
    assert_int_equal(e.map_columns, ELEMENTS_MAP_COLUMNS);
    for (int i = 0; i < ELEMENTS_MAP_ROWS * ELEMENTS_MAP_COLUMNS; i++)
        marked += e.map[i] != 0;
    assert_int_equal(marked, 2);
    assert_true(e.map[0] == 3);
    assert_true(e.map[ELEMENTS_MAP_ROWS * ELEMENTS_MAP_COLUMNS - 1] == 2);
    free(a);
    free(b);
}

static void
tensors_without_elements_give_nothing(void **state)
{
    msp_tensor n = view("", MSP_F32, 2, (const int64_t[]){0, 3});
    msp_elements e;

    (void)state;
    msp_elements_look(&e, &n, &n);
    assert_int_equal(e.count, 0);
    assert_int_equal(e.nworst, 0);
    assert_int_equal(e.first, -1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(strided_tensors_are_read_in_row_major_order),
        TEST(the_worst_come_largest_first_and_equal_ones_in_order),
        TEST(what_is_not_finite_on_one_side_only_is_a_mismatch),
        TEST(integers_of_64_bits_differ_exactly),
        TEST(a_large_tensor_is_shared_out_over_the_map),
        TEST(tensors_without_elements_give_nothing),
    };

    return cmocka_run_group_tests_name("elements", tests, NULL, NULL);
}
