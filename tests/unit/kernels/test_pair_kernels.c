/*
 * test_pair_kernels.c - every instruction set of this machine against the scalar one, block by block.
 *
 * Short blocks of numbers of all sizes: there a product that is fused, or added in another order, shows in the result
 * at once, where a long sum would hide it.
 */
#include "unit.h"

#include <math.h>
#include "core/cpu.h"
#include "dtype/convert.h"
#include "kernels/pair.h"

enum { MOST = 1300, ROUNDS = 1500, SECTION = 256 /* elements that are all near, or not: see fill() */ };

static uint64_t seed = 7;

static uint32_t
random_bits(void)
{
    seed = seed * 6364136223846793005 + 1442695040888963407;
    return (uint32_t)(seed >> 32);
}

/* Any sign and mantissa, and one of a few dozen exponents around 1. */
static double
random_number(int exponents)
{
    double v = 1 + random_bits() * 0x1p-32 + random_bits() * 0x1p-52;
    int exponent = (int)(random_bits() % (unsigned)exponents) - exponents / 2;

    return ldexp(random_bits() % 2 ? v : -v, exponent);
}

static const msp_pair_set *
set_of(msp_cpu_level level)
{
    switch (level) {
#if defined(__x86_64__)
    case MSP_CPU_AVX2:
        return &msp_pair_avx2;
    case MSP_CPU_AVX512:
        return &msp_pair_avx512;
#elif defined(__aarch64__)
    case MSP_CPU_NEON:
        return &msp_pair_neon;
#endif
    default:
        return &msp_pair_scalar;
    }
}

typedef struct block {
    double n[MOST], b[MOST]; /* room for elements of any kind */
    size_t count;
} block;

static void
fill(block *k, msp_pair_kind kind, bool zeros)
{
    uint16_t *hn = (uint16_t *)k->n, *hb = (uint16_t *)k->b;
    float *fn = (float *)k->n, *fb = (float *)k->b;
    bool all_near = false;

    k->count = 1 + random_bits() % (random_bits() % 4 ? 300 : MOST);
    for (size_t i = 0; i < k->count; i++) {
        double b = zeros && random_bits() % 4 == 0 ? 0 : random_number(kind == MSP_PAIR_F16 ? 24 : 40);
        double n = b * (1 + 1e-3 * random_number(8));

        if (i % SECTION == 0)
            all_near = random_bits() % 2;
        if (!all_near && random_bits() % 2)
            n = random_number(kind == MSP_PAIR_F16 ? 24 : 40);

        switch (kind) {
        case MSP_PAIR_F16:
            hn[i] = msp_f32_to_f16((float)n);
            hb[i] = msp_f32_to_f16((float)b);
            break;
        case MSP_PAIR_BF16:
            hn[i] = msp_f32_to_bf16((float)n);
            hb[i] = msp_f32_to_bf16((float)b);
            break;
        case MSP_PAIR_F32:
            fn[i] = (float)n;
            fb[i] = (float)b;
            break;
        default:
            k->n[i] = n;
            k->b[i] = b;
        }
    }
}

static void
check_sums(const msp_pair_set *set, const block *k, msp_pair_kind kind, unsigned flags)
{
    msp_pair_sums want, got;

    msp_pair_scalar.sums[kind](&want, k->n, k->b, k->count, flags);
    set->sums[kind](&got, k->n, k->b, k->count, flags);
    assert_memory_equal(&want, &got, sizeof(want));
}

/* What only float32 blocks are asked for, and whether it is found where the scalar code finds it. */
static void
check_rest(const msp_pair_set *set, const block *k, bool half)
{
    const float *n = (const float *)k->n, *b = (const float *)k->b;
    double rel = msp_pair_scalar.max_rel(n, b, k->count, half), abs;
    msp_pair_sums sums;

    msp_pair_scalar.sums[MSP_PAIR_F32](&sums, n, b, k->count, MSP_PAIR_ZEROS);
    abs = sums.max_abs;
    assert_true(set->max_rel(n, b, k->count, half) == rel);
    assert_true(set->rel_sum(n, b, k->count) == msp_pair_scalar.rel_sum(n, b, k->count));
    assert_int_equal(set->find_abs(n, b, k->count, abs), msp_pair_scalar.find_abs(n, b, k->count, abs));
    assert_int_equal(set->find_rel(n, b, k->count, rel, half), msp_pair_scalar.find_rel(n, b, k->count, rel, half));
}

static void
every_block_comes_out_the_same(void **state)
{
    static block k;

    (void)state;
    for (int level = MSP_CPU_SCALAR + 1; level < MSP_CPU_LEVELS; level++) {
        const msp_pair_set *set = set_of((msp_cpu_level)level);

        if (!msp_cpu_has((msp_cpu_level)level))
            continue;
        for (int round = 0; round < ROUNDS; round++)
            for (int kind = 0; kind < MSP_PAIR_VECTOR_KINDS; kind++) {
                fill(&k, (msp_pair_kind)kind, round % 2);
                check_sums(set, &k, (msp_pair_kind)kind, MSP_PAIR_ZEROS);
                if (round % 2 == 0)
                    check_sums(set, &k, (msp_pair_kind)kind, 0);
                if (kind == MSP_PAIR_F32) {
                    check_sums(set, &k, MSP_PAIR_F32, MSP_PAIR_HALF | MSP_PAIR_ZEROS);
                    check_rest(set, &k, false);
                }
            }
    }
}

/* Whole chains of 16-bit floats, the elements after them and a single one go through three different loops. */
static void
counts_and_maxima_of_a_block_are_those_of_its_elements(void **state)
{
    static const size_t sizes[] = {2, 2, 4, 8};
    static block k;

    (void)state;
    for (int round = 0; round < ROUNDS / 4; round++)
        for (int kind = 0; kind < MSP_PAIR_VECTOR_KINDS; kind++) {
            msp_pair_sums sum = {0}, one, all;
            bool zeros = round % 2;

            fill(&k, (msp_pair_kind)kind, zeros);
            for (size_t i = 0; i < k.count; i++) {
                size_t at = i * sizes[kind];

                msp_pair_scalar.sums[kind](&one, (char *)k.n + at, (char *)k.b + at, 1, MSP_PAIR_ZEROS);
                sum.below_1e3 += one.below_1e3;
                sum.below_5e3 += one.below_5e3;
                sum.zeros += one.zeros;
                sum.max_abs = fmax(sum.max_abs, one.max_abs);
                sum.max_rel = fmax(sum.max_rel, one.max_rel);
            }
            msp_pair_scalar.sums[kind](&all, k.n, k.b, k.count, zeros ? MSP_PAIR_ZEROS : 0);
            assert_int_equal(all.below_1e3, sum.below_1e3);
            assert_int_equal(all.below_5e3, sum.below_5e3);
            assert_true(all.max_abs == sum.max_abs && all.max_rel == sum.max_rel);
            if (zeros)
                assert_int_equal(all.zeros, sum.zeros);
        }
}

/* Numbers that are float16, so that rounding to it is what it is in practice. */
static void
so_do_blocks_that_came_from_float16(void **state)
{
    static block k, wide;

    (void)state;
    for (int level = MSP_CPU_SCALAR + 1; level < MSP_CPU_LEVELS; level++) {
        const msp_pair_set *set = set_of((msp_cpu_level)level);

        if (!msp_cpu_has((msp_cpu_level)level))
            continue;
        for (int round = 0; round < ROUNDS; round++) {
            fill(&k, MSP_PAIR_F16, round % 2);
            wide.count = k.count;
            set->f16_to_f32((float *)wide.n, k.n, k.count);
            msp_pair_scalar.f16_to_f32((float *)wide.b, k.n, k.count);
            assert_memory_equal(wide.n, wide.b, k.count * sizeof(float));
            set->f16_to_f32((float *)wide.b, k.b, k.count);
            check_rest(set, &wide, true);
        }
    }
}

static void
every_float16_and_bfloat16_is_widened_exactly(void **state)
{
    static uint16_t all[65536];
    static float wide[65536];

    (void)state;
    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (int level = MSP_CPU_SCALAR; level < MSP_CPU_LEVELS; level++) {
        const msp_pair_set *set = set_of((msp_cpu_level)level);

        if (!msp_cpu_has((msp_cpu_level)level))
            continue;
        set->f16_to_f32(wide, all, 65536);
        for (int i = 0; i < 65536; i++)
            assert_true(wide[i] == msp_f16_to_f32(all[i]) || (isnan(wide[i]) && isnan(msp_f16_to_f32(all[i]))));
        set->bf16_to_f32(wide, all, 65535);
        for (int i = 0; i < 65535; i++)
            assert_true(wide[i] == msp_bf16_to_f32(all[i]) || (isnan(wide[i]) && isnan(msp_bf16_to_f32(all[i]))));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_block_comes_out_the_same),
        TEST(counts_and_maxima_of_a_block_are_those_of_its_elements),
        TEST(so_do_blocks_that_came_from_float16),
        TEST(every_float16_and_bfloat16_is_widened_exactly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
