/* test_gather.c - blocks of a strided tensor are its elements in row-major order. */
#include "unit.h"

#include "kernels/gather.h"

/* A view of 2, 4 ... byte elements whose value is their own position in memory. */
static msp_tensor
strided(const void *data, msp_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    msp_tensor t;

    assert_int_equal(msp_tensor_view(&t, data, dtype, ndim, shape, NULL), MSP_OK);
    memcpy(t.strides, strides, (size_t)ndim * sizeof(*strides));
    return t;
}

/* Every block of every length against msp_tensor_at(). */
static void
check_all_blocks(const msp_tensor *t)
{
    size_t size = msp_dtype_size(t->dtype);
    char buf[4096];
    msp_gather g;

    msp_gather_init(&g, t);
    for (int64_t start = 0; start < t->numel; start++) {
        for (int64_t count = 1; start + count <= t->numel; count++) {
            const char *p = msp_gather_block(&g, start, count, buf);

            for (int64_t i = 0; i < count; i++)
                assert_memory_equal(p + (size_t)i * size, msp_tensor_at(t, start + i), size);
        }
    }
}

static void
layouts_of_every_element_size_give_row_major_blocks(void **state)
{
    static const struct {
        int32_t ndim;
        int64_t shape[4], strides[4];
    } layouts[] = {
        {1, {7}, {3}},                    /* every third */
        {2, {5, 4}, {1, 5}},              /* transposed */
        {2, {5, 4}, {9, 1}},              /* rows with gaps */
        {2, {3, 6}, {0, 1}},              /* expanded rows */
        {2, {6, 3}, {1, 0}},              /* expanded columns */
        {3, {2, 3, 4}, {24, 4, 1}},       /* inner two dimensions continue each other */
        {3, {2, 3, 4}, {12, 4, 2}},       /* none does */
        {4, {2, 1, 3, 2}, {1, 99, 4, 2}}, /* a size of 1 has any stride */
        {4, {2, 3, 2, 2}, {1, 2, 6, 12}}, /* fully reversed */
        {3, {1, 4, 1}, {5, 1, 7}},        /* contiguous in disguise */
    };
    static const msp_dtype types[] = {MSP_U8, MSP_F16, MSP_F32, MSP_I64, MSP_C128};
    char memory[16 * 128];

    (void)state;
    for (size_t i = 0; i < sizeof(memory); i++)
        memory[i] = (char)(i * 37 + (i >> 8));
    for (size_t l = 0; l < sizeof(layouts) / sizeof(layouts[0]); l++) {
        for (size_t d = 0; d < sizeof(types) / sizeof(types[0]); d++) {
            msp_tensor t = strided(memory, types[d], layouts[l].ndim, layouts[l].shape, layouts[l].strides);

            check_all_blocks(&t);
        }
    }
}

static void
contiguous_blocks_are_not_copied(void **state)
{
    float memory[60] = {0};
    int64_t shape[] = {3, 4, 5};
    msp_tensor t;
    msp_gather g;

    (void)state;
    assert_int_equal(msp_tensor_view(&t, memory, MSP_F32, 3, shape, NULL), MSP_OK);
    msp_gather_init(&g, &t);
    assert_ptr_equal(msp_gather_block(&g, 7, 50, NULL), memory + 7);
}

static void
a_block_inside_one_row_is_not_copied(void **state)
{
    float memory[60] = {0};
    int64_t shape[] = {3, 8}, strides[] = {20, 1};
    msp_tensor t = strided(memory, MSP_F32, 2, shape, strides);
    msp_gather g;

    (void)state;
    msp_gather_init(&g, &t);
    assert_ptr_equal(msp_gather_block(&g, 8 + 2, 6, NULL), memory + 20 + 2);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(layouts_of_every_element_size_give_row_major_blocks),
        TEST(contiguous_blocks_are_not_copied),
        TEST(a_block_inside_one_row_is_not_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
