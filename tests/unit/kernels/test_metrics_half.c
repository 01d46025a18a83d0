/*
 * test_metrics_half.c - how precise the metrics of many 16-bit floats are, which are added up in float32.
 *
 * Numbers that are made to be rounded in one direction, or to leave the range of float32 when squared, against sums in
 * long double. What is exact in any case is tested in test_metrics.c.
 */
#include "unit.h"

#include <math.h>
#include "core/cpu.h"
#include "dtype/convert.h"
#include "msprobe/metrics.h"

enum { COUNT = 100001 }; /* some blocks and an odd rest, more than are added up in double */

typedef long double real;
typedef double sequence(int i);

static uint16_t n_bits[COUNT], b_bits[COUNT];

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static double
thirds(int i)
{
    (void)i;
    return 1 / 3.0;
}

static double
alternating(int i)
{
    return i % 2 ? -1.5 : 1.25;
}

/* Squares that are each lost beside what stands in the sum already, in every lane. */
static double
one_and_crumbs(int i)
{
    return i % 128 < 16 ? 1 : 0x1.68p-13;
}

/* Sums of chains that are lost beside the sum of the chains before. */
static double
one_and_a_block_of_crumbs(int i)
{
    return i % 4096 < 16 ? 1 : 0x1.68p-15;
}

static double
of_all_sizes(int i)
{
    return ldexp(1 + i % 97 / 100.0, i % 24 - 12);
}

static double
small_gradients(int i)
{
    return 1e-25 * (1 + i % 50);
}

static double
squares_at_the_end_of_the_range(int i)
{
    return 1e-19 * (1 + i % 50);
}

static double
huge(int i)
{
    return 1e30 * (1 + i % 50);
}

static double
huge_among_small(int i)
{
    return i % 5000 == 77 ? 3e20 : i * 1e-6;
}

static double
mostly_zero(int i)
{
    return i < 20000 || i % 1000 != 0 ? 0 : 1e-6;
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

static uint16_t
to_bits(msp_dtype t, double v)
{
    return t == MSP_F16 ? msp_f32_to_f16((float)v) : msp_f32_to_bf16((float)v);
}

static double
from_bits(msp_dtype t, uint16_t h)
{
    return t == MSP_F16 ? msp_f16_to_f32(h) : msp_bf16_to_f32(h);
}

/* b is the sequence, n is b times a factor, with another error in every third element. */
static void
make(msp_dtype t, sequence *value, double factor)
{
    for (int i = 0; i < COUNT; i++) {
        b_bits[i] = to_bits(t, value(i));
        n_bits[i] = to_bits(t, value(i) * factor * (i % 3 == 0 ? 1.01 : 1));
    }
}

static void
assert_near(const char *what, double got, real want, real tolerance)
{
    if (!(fabsl(got - want) <= tolerance))
        fail_msg("%s is %.17g, expected %.17Lg: off by %.3Lg of what is allowed", what, got, want,
                 fabsl(got - want) / tolerance);
}

static msp_metrics
compute(msp_dtype t)
{
    int64_t count = COUNT;
    msp_tensor n, b;
    msp_metrics m;

    assert_int_equal(msp_tensor_view(&n, n_bits, t, 1, &count, NULL), MSP_OK);
    assert_int_equal(msp_tensor_view(&b, b_bits, t, 1, &count, NULL), MSP_OK);
    assert_int_equal(msp_metrics_compute(&m, &n, &b, NULL), MSP_OK);
    return m;
}

static void
check_levels(msp_dtype t, const msp_metrics *best)
{
    for (int level = MSP_CPU_SCALAR; level < MSP_CPU_LEVELS; level++) {
        msp_metrics other;

        msp_cpu_limit((msp_cpu_level)level);
        other = compute(t);
        msp_cpu_limit(MSP_CPU_LEVELS);
        assert_memory_equal(best, &other, sizeof(other));
    }
}

/* sums: how far they may be from the truth, as a share of it; dot: of the product of the norms. */
static void
check(msp_dtype t, real sums, real dot)
{
    real nb = 0, nn = 0, bb = 0, dd = 0, rel = 0, norms;
    msp_metrics m = compute(t);

    for (int i = 0; i < COUNT; i++) {
        real n = from_bits(t, n_bits[i]), b = from_bits(t, b_bits[i]);

        nb += n * b;
        nn += n * n;
        bb += b * b;
        dd += (n - b) * (n - b);
        rel += b != 0 ? fabsl((n - b) / b) : 0;
    }
    norms = sqrtl(nn) * sqrtl(bb);
    assert_near("dot", m.dot, nb, dot * norms);
    assert_near("sq_n", m.sq_n, nn, sums * nn);
    assert_near("sq_b", m.sq_b, bb, sums * bb);
    assert_near("euc_dist", m.euc_dist, sqrtl(dd), sums * sqrtl(dd));
    assert_near("rmse", m.rmse, sqrtl(dd / COUNT), sums * sqrtl(dd / COUNT));
    assert_near("mape", m.mape, rel / m.mape_count, fmaxl(sums, 0x1p-24) * rel / m.mape_count);
    if (nn > 1e-30 && bb > 1e-30)
        assert_near("cosine", m.cosine, nb / norms, 2 * dot);
    check_levels(t, &m);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static const real sums_within = 0x1p-18, dot_within = 0x1p-16, as_in_double = 3e-14;

static void
sums_of_constructed_numbers_are_within_what_the_header_says(void **state)
{
    static sequence *const all[] = {thirds,       alternating,      one_and_crumbs, one_and_a_block_of_crumbs,
                                    of_all_sizes, huge_among_small, mostly_zero};
    static const double factors[] = {1, -1, 1.5, 0, 0.3, 1e-3};

    (void)state;
    for (int v = 0; v < 7; v++)
        for (int f = 0; f < 6; f++) {
            make(MSP_BF16, all[v], factors[f]);
            check(MSP_BF16, sums_within, dot_within);
            if (all[v] == huge_among_small)
                continue; /* beyond float16 */
            make(MSP_F16, all[v], factors[f]);
            check(MSP_F16, sums_within, dot_within);
        }
}

static void
squares_beyond_float32_are_added_up_in_double(void **state)
{
    static sequence *const all[] = {small_gradients, huge};

    (void)state;
    for (int v = 0; v < 2; v++)
        for (double factor = 1e-3; factor < 10; factor += 1.1) {
            make(MSP_BF16, all[v], factor);
            check(MSP_BF16, as_in_double, as_in_double);
        }
    for (double factor = 0.5; factor < 2; factor += 0.3) {
        make(MSP_BF16, squares_at_the_end_of_the_range, factor);
        check(MSP_BF16, sums_within, dot_within);
    }
}

static void
tensors_of_different_scale_are_added_up_in_double(void **state)
{
    (void)state;
    for (double factor = 1e-6; factor < 0.1; factor *= 10) {
        make(MSP_BF16, of_all_sizes, factor);
        check(MSP_BF16, as_in_double, as_in_double);
        make(MSP_BF16, of_all_sizes, 1 / factor);
        check(MSP_BF16, as_in_double, as_in_double);
    }
}

static void
nearly_equal_tensors_have_a_cosine_of_many_digits(void **state)
{
    static sequence *const all[] = {thirds, alternating, of_all_sizes};

    (void)state;
    for (int v = 0; v < 3; v++) {
        msp_metrics m;
        real nb = 0, nn = 0, bb = 0;

        make(MSP_F16, all[v], 1);
        for (int i = 0; i < COUNT; i++) {
            real n = from_bits(MSP_F16, n_bits[i]), b = from_bits(MSP_F16, b_bits[i]);

            nb += n * b;
            nn += n * n;
            bb += b * b;
        }
        m = compute(MSP_F16);
        assert_near("cosine", m.cosine, nb / sqrtl(nn * bb), 1e-4 * (1 - nb / sqrtl(nn * bb)));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sums_of_constructed_numbers_are_within_what_the_header_says),
        TEST(squares_beyond_float32_are_added_up_in_double),
        TEST(tensors_of_different_scale_are_added_up_in_double),
        TEST(nearly_equal_tensors_have_a_cosine_of_many_digits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
