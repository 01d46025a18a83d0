/* test_tensor.c - promises of the strided view in msprobe/tensor.h. */
#include "unit.h"
#include "msprobe/tensor.h"

static const int64_t shape234[] = {2, 3, 4};

static void
a_view_is_contiguous_and_row_major(void **state)
{
    int32_t data[24] = {0};
    msp_tensor t;
    int64_t at[MSP_MAX_NDIM];

    (void)state;
    assert_int_equal(msp_tensor_view(&t, data, MSP_I32, 3, shape234, NULL), MSP_OK);
    assert_int_equal(t.numel, 24);
    assert_int_equal(t.strides[0], 12);
    assert_int_equal(t.strides[1], 4);
    assert_int_equal(t.strides[2], 1);
    assert_true(msp_tensor_is_contiguous(&t));
    assert_null(t.owner);
    for (int64_t i = 0; i < 24; i++) {
        assert_ptr_equal(msp_tensor_at(&t, i), &data[i]);
        msp_tensor_unravel(&t, i, at);
        assert_int_equal(at[0] * 12 + at[1] * 4 + at[2], i);
    }
}

static void
a_transposed_and_an_expanded_view_find_their_elements(void **state)
{
    int16_t data[6] = {0};
    msp_tensor t = {.data = data, .dtype = MSP_I16, .ndim = 2, .numel = 6, .shape = {3, 2}, .strides = {1, 3}};
    msp_tensor wide = {.data = data, .dtype = MSP_I16, .ndim = 2, .numel = 6, .shape = {3, 2}, .strides = {0, 1}};

    (void)state;
    assert_false(msp_tensor_is_contiguous(&t));
    assert_ptr_equal(msp_tensor_at(&t, 0), &data[0]);
    assert_ptr_equal(msp_tensor_at(&t, 1), &data[3]);
    assert_ptr_equal(msp_tensor_at(&t, 4), &data[2]);
    assert_false(msp_tensor_is_contiguous(&wide));
    assert_ptr_equal(msp_tensor_at(&wide, 5), &data[1]);
}

static void
strides_of_single_and_empty_dimensions_do_not_matter(void **state)
{
    msp_tensor t = {.ndim = 3, .numel = 4, .shape = {1, 4, 1}, .strides = {77, 1, 0}, .dtype = MSP_F32};
    msp_tensor none = {.ndim = 2, .numel = 0, .shape = {0, 4}, .strides = {9, 9}, .dtype = MSP_F32};

    (void)state;
    assert_true(msp_tensor_is_contiguous(&t));
    assert_true(msp_tensor_is_contiguous(&none));
}

static void
a_scalar_has_one_element_and_a_zero_size_none(void **state)
{
    const int64_t empty[] = {INT64_MAX, 0, INT64_MAX};
    float v = 1;
    msp_tensor t;

    (void)state;
    assert_int_equal(msp_tensor_view(&t, &v, MSP_F32, 0, NULL, NULL), MSP_OK);
    assert_int_equal(t.numel, 1);
    assert_true(msp_tensor_is_contiguous(&t));
    assert_ptr_equal(msp_tensor_at(&t, 0), &v);
    assert_int_equal(msp_tensor_view(&t, NULL, MSP_F32, 3, empty, NULL), MSP_OK);
    assert_int_equal(t.numel, 0);
    assert_true(msp_tensor_is_contiguous(&t));
}

static void
check_refused(msp_dtype dtype, int32_t ndim, const int64_t *shape, const char *message)
{
    msp_tensor t;
    msp_error err;

    assert_int_equal(msp_tensor_view(&t, "", dtype, ndim, shape, &err), MSP_E_INVALID);
    assert_string_equal(err.message, message);
    assert_null(t.data);
    assert_int_equal(t.numel, 0);
    assert_int_equal(msp_tensor_view(&t, "", dtype, ndim, shape, NULL), MSP_E_INVALID);
}

static void
impossible_shapes_are_refused(void **state)
{
    const int64_t negative[] = {2, -1}, huge[] = {INT64_C(1) << 32, INT64_C(1) << 31}, bytes[] = {INT64_C(1) << 60};
    int64_t many[MSP_MAX_NDIM + 1] = {0};

    (void)state;
    check_refused(MSP_U8, 2, negative, "dimension 1 has the negative size -1");
    check_refused(MSP_U8, 2, huge, "the number of elements does not fit 63 bits");
    check_refused(MSP_F64, 1, bytes, "the number of elements does not fit 63 bits");
    check_refused(MSP_U8, -1, many, "-1 dimensions: 0 to 64 are possible");
    check_refused(MSP_U8, MSP_MAX_NDIM + 1, many, "65 dimensions: 0 to 64 are possible");
}

static void
same_shape_compares_every_size(void **state)
{
    const int64_t other[] = {2, 3, 5};
    msp_tensor a, b;

    (void)state;
    assert_int_equal(msp_tensor_view(&a, "", MSP_U8, 3, shape234, NULL), MSP_OK);
    assert_int_equal(msp_tensor_view(&b, "", MSP_F64, 3, shape234, NULL), MSP_OK);
    assert_true(msp_tensor_same_shape(&a, &b));
    assert_int_equal(msp_tensor_view(&b, "", MSP_U8, 3, other, NULL), MSP_OK);
    assert_false(msp_tensor_same_shape(&a, &b));
    assert_int_equal(msp_tensor_view(&b, "", MSP_U8, 2, shape234, NULL), MSP_OK);
    assert_false(msp_tensor_same_shape(&a, &b));
}

static void
count_release(void *owner)
{
    ++*(int *)owner;
}

static void
release_gives_back_the_owner_once(void **state)
{
    int released = 0;
    msp_tensor t = {.data = "", .owner = &released, .release_owner = count_release};

    (void)state;
    msp_tensor_release(&t);
    msp_tensor_release(&t);
    assert_int_equal(released, 1);
    assert_null(t.data);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_view_is_contiguous_and_row_major),
        TEST(a_transposed_and_an_expanded_view_find_their_elements),
        TEST(strides_of_single_and_empty_dimensions_do_not_matter),
        TEST(a_scalar_has_one_element_and_a_zero_size_none),
        TEST(impossible_shapes_are_refused),
        TEST(same_shape_compares_every_size),
        TEST(release_gives_back_the_owner_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
