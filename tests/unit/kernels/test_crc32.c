/* test_crc32.c - every variant of the CRC against zlib's. */
#include "unit.h"

#include <zlib.h>
#include "core/cpu.h"
#include "kernels/crc32.h"
#include "msprobe/stats.h"

enum { BYTES = 3 << 16 };

static uint8_t bytes[BYTES + 64];

static int
fill(void **state)
{
    uint32_t x = 12345;

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        x = x * 1664525 + 1013904223;
        bytes[i] = (uint8_t)(x >> 24);
    }
    return 0;
}

static void
check_variant(msp_crc32_fn *variant)
{
    /* every length around the widths of the folds, at every alignment */
    for (size_t n = 0; n <= 600; n++)
        for (size_t at = 0; at < 33; at += 4)
            assert_int_equal(~variant(~0u, bytes + at, n), crc32(0, bytes + at, (uInt)n));
    /* long ones, continued at places that suit no vector */
    for (size_t cut = 1; cut < BYTES; cut = cut * 3 + 1)
        assert_int_equal(~variant(variant(~0u, bytes, cut), bytes + cut, BYTES - cut), crc32(0, bytes, BYTES));
}

static void
tables_agree_with_zlib(void **state)
{
    (void)state;
    check_variant(msp_crc32_table);
}

static void
every_level_of_this_machine_agrees_with_zlib(void **state)
{
    (void)state;
    for (int level = MSP_CPU_SCALAR; level <= MSP_CPU_LEVELS; level++) {
        msp_cpu_limit((msp_cpu_level)level);
        check_variant(msp_crc32_best());
    }
    msp_cpu_limit(MSP_CPU_LEVELS);
}

static void
carry_less_multiplication_agrees_with_zlib(void **state)
{
    (void)state;
    if (!msp_cpu_has_clmul())
        skip();
#if defined(__x86_64__)
    check_variant(msp_crc32_clmul);
#elif defined(__aarch64__)
    check_variant(msp_crc32_pmull);
#endif
}

static void
scalar_level_uses_no_special_instruction(void **state)
{
    (void)state;
    msp_cpu_limit(MSP_CPU_SCALAR);
    assert_ptr_equal(msp_crc32_best(), msp_crc32_table);
    msp_cpu_limit(MSP_CPU_LEVELS);
}

static void
bytes_continue_from_a_crc_as_zlibs_do(void **state)
{
    (void)state;
    assert_int_equal(msp_crc32_bytes(0, "123456789", 9), 0xcbf43926); /* the check value of every CRC catalogue */
    assert_int_equal(msp_crc32_bytes(0, "", 0), 0);
    assert_int_equal(msp_crc32_bytes(msp_crc32_bytes(0, bytes, 1000), bytes + 1000, 1), crc32(0, bytes, 1001));
}

static void
a_tensor_is_its_bytes_in_row_major_order(void **state)
{
    static uint8_t transposed[300 * 100 * 4];
    int64_t shape[] = {300, 100};
    msp_tensor t;

    (void)state;
    assert_int_equal(msp_tensor_view(&t, bytes + 1, MSP_F32, 2, shape, NULL), MSP_OK);
    assert_int_equal(msp_crc32(&t), crc32(0, bytes + 1, 300 * 100 * 4));

    t.strides[0] = 1;
    t.strides[1] = 300;
    for (int64_t i = 0; i < t.numel; i++)
        memcpy(transposed + 4 * i, msp_tensor_at(&t, i), 4);
    assert_int_equal(msp_crc32(&t), crc32(0, transposed, sizeof(transposed)));
}

static void
an_empty_tensor_has_the_crc_of_no_bytes(void **state)
{
    int64_t shape[] = {4, 0};
    msp_tensor t;

    (void)state;
    assert_int_equal(msp_tensor_view(&t, NULL, MSP_F64, 2, shape, NULL), MSP_OK);
    assert_int_equal(msp_crc32(&t), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tables_agree_with_zlib),
        TEST(every_level_of_this_machine_agrees_with_zlib),
        TEST(carry_less_multiplication_agrees_with_zlib),
        TEST(scalar_level_uses_no_special_instruction),
        TEST(bytes_continue_from_a_crc_as_zlibs_do),
        TEST(a_tensor_is_its_bytes_in_row_major_order),
        TEST(an_empty_tensor_has_the_crc_of_no_bytes),
    };

    return cmocka_run_group_tests(tests, fill, NULL);
}
