/*
 * test_convert.c - promises of dtype/convert.h and of the elements of msprobe/dtype.h, exhaustive over all 16-bit and
 * 8-bit floats. The oracle decodes field by field with ldexp(), and rounds by searching among all decoded values.
 */
#include "unit.h"
#include <math.h>
#include "dtype/convert.h"
#include "msprobe/dtype.h"

typedef struct format {
    msp_dtype type;
    int ebits, mbits, bias;
    int has_inf; /* exponent all ones is infinity and NaN */
    int fnuz;    /* the sign bit alone is NaN */
} format;

static const format formats[] = {
    {MSP_F16, 5, 10, 15, 1, 0},    {MSP_BF16, 8, 7, 127, 1, 0},      {MSP_F8_E4M3FN, 4, 3, 7, 0, 0},
    {MSP_F8_E5M2, 5, 2, 15, 1, 0}, {MSP_F8_E4M3FNUZ, 4, 3, 8, 0, 1}, {MSP_F8_E5M2FNUZ, 5, 2, 16, 0, 1},
};

static int
bits_of(const format *f)
{
    return 1 + f->ebits + f->mbits;
}

static int
oracle_is_nan(const format *f, unsigned v)
{
    unsigned magnitude = v & ((1u << (bits_of(f) - 1)) - 1);

    if (f->fnuz)
        return v == 1u << (bits_of(f) - 1);
    if (!f->has_inf)
        return magnitude == 0x7f;
    return magnitude >> f->mbits == (1u << f->ebits) - 1 && (magnitude & ((1u << f->mbits) - 1)) != 0;
}

/* The value that the fields spell, for everything but NaN. */
static double
oracle(const format *f, unsigned v)
{
    int sign = v >> (bits_of(f) - 1) ? -1 : 1;
    int e = (int)(v >> f->mbits) & ((1 << f->ebits) - 1);
    int m = (int)v & ((1 << f->mbits) - 1);

    if (f->has_inf && e == (1 << f->ebits) - 1)
        return sign * (double)INFINITY;
    if (e == 0)
        return sign * ldexp(m, 1 - f->bias - f->mbits);
    return sign * ldexp(m + (1 << f->mbits), e - f->bias - f->mbits);
}

static double
load(const format *f, unsigned v)
{
    uint8_t bytes[2] = {(uint8_t)v, (uint8_t)(v >> 8)};

    return msp_dtype_load_f64(f->type, bytes);
}

static void
every_narrow_float_has_the_value_that_its_fields_spell(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        const format *f = &formats[i];

        for (unsigned v = 0; v < 1u << bits_of(f); v++) {
            double got = load(f, v), want = oracle(f, v);

            if (oracle_is_nan(f, v))
                assert_true(isnan(got));
            else
                assert_true(got == want && signbit(got) == signbit(want));
        }
    }
}

static void
nan_keeps_its_sign_and_payload(void **state)
{
    (void)state;
    for (unsigned v = 0; v < 0x10000; v++) {
        if (oracle_is_nan(&formats[0], v)) {
            uint64_t want = (uint64_t)(v & 0x8000) << 48 | 0x7ff0000000000000 | (uint64_t)(v & 0x3ff) << 42;

            assert_int_equal(msp_f64_bits(load(&formats[0], v)), want);
        }
        if (oracle_is_nan(&formats[1], v)) {
            uint64_t want = (uint64_t)(v & 0x8000) << 48 | 0x7ff0000000000000 | (uint64_t)(v & 0x7f) << 45;

            assert_int_equal(msp_f64_bits(load(&formats[1], v)), want);
        }
    }
    for (unsigned v = 0; v < 0x100; v++)
        for (size_t i = 2; i < 6; i++)
            if (oracle_is_nan(&formats[i], v))
                assert_int_equal(msp_f64_bits(load(&formats[i], v)) >> 63, v >> 7);
}

static void
the_float_functions_agree_with_the_elements(void **state)
{
    (void)state;
    for (unsigned v = 0; v < 0x10000; v++) {
        assert_true(oracle_is_nan(&formats[0], v) || msp_f16_to_f32((uint16_t)v) == load(&formats[0], v));
        assert_true(oracle_is_nan(&formats[1], v) || msp_bf16_to_f32((uint16_t)v) == load(&formats[1], v));
    }
    for (unsigned v = 0; v < 0x100; v++) {
        uint8_t b = (uint8_t)v;

        assert_true(oracle_is_nan(&formats[2], v) || msp_f8_e4m3fn_to_f32(b) == load(&formats[2], v));
        assert_true(oracle_is_nan(&formats[3], v) || msp_f8_e5m2_to_f32(b) == load(&formats[3], v));
        assert_true(oracle_is_nan(&formats[4], v) || msp_f8_e4m3fnuz_to_f32(b) == load(&formats[4], v));
        assert_true(oracle_is_nan(&formats[5], v) || msp_f8_e5m2fnuz_to_f32(b) == load(&formats[5], v));
    }
}

static void
narrowing_gives_back_every_value_it_came_from(void **state)
{
    (void)state;
    for (unsigned v = 0; v < 0x10000; v++) {
        assert_int_equal(msp_f32_to_f16(msp_f32_from_bits(msp_f16_to_f32_bits((uint16_t)v))), v);
        assert_int_equal(msp_f32_to_bf16(msp_bf16_to_f32((uint16_t)v)), v);
    }
}

/* The nearest of all finite values, ties to the even code; infinity from half a step above the largest on. */
static unsigned
oracle_round(const format *f, double v)
{
    unsigned lo = 0, hi = (((1u << f->ebits) - 1) << f->mbits) - 1; /* the largest finite code */
    unsigned sign = signbit(v) ? 1u << (bits_of(f) - 1) : 0;
    double limit = oracle(f, hi) + (oracle(f, hi) - oracle(f, hi - 1)) / 2;

    v = fabs(v);
    if (v >= limit)
        return sign | (hi + 1);
    if (v >= oracle(f, hi))
        return sign | hi;
    while (hi - lo > 1) {
        unsigned mid = (lo + hi) / 2;

        if (oracle(f, mid) <= v)
            lo = mid;
        else
            hi = mid;
    }
    if (v - oracle(f, lo) == oracle(f, hi) - v)
        return sign | (lo & 1 ? hi : lo);
    return sign | (v - oracle(f, lo) < oracle(f, hi) - v ? lo : hi);
}

static void
check_rounding(float v)
{
    assert_int_equal(msp_f32_to_f16(v), oracle_round(&formats[0], v));
    assert_int_equal(msp_f32_to_bf16(v), oracle_round(&formats[1], v));
}

static void
narrowing_rounds_to_nearest_even(void **state)
{
    uint32_t random = 1;

    (void)state;
    for (unsigned v = 0; v < 0x7c00; v++) { /* every half-way point of float16 and its two neighbours */
        double a = oracle(&formats[0], v), b = v == 0x7bff ? 65536 : oracle(&formats[0], v + 1);
        float middle = (float)((a + b) / 2);

        check_rounding(middle);
        check_rounding(nextafterf(middle, INFINITY));
        check_rounding(nextafterf(-middle, INFINITY));
    }
    for (int i = 0; i < 20000; i++) {
        float v;

        random = random * 1664525 + 1013904223;
        v = msp_f32_from_bits(random ^ random >> 15);
        if (!isnan(v) && !isinf(v))
            check_rounding(v);
    }
    check_rounding(0.0f);
    check_rounding(-0.0f);
    check_rounding(0x1p-149f);
    check_rounding(0x1.fffffep127f);
    assert_int_equal(msp_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(msp_f32_to_bf16(INFINITY), 0x7f80);
}

static void
a_nan_never_narrows_to_infinity(void **state)
{
    (void)state;
    for (uint32_t payload = 1; payload < 1u << 23; payload <<= 1) {
        float v = msp_f32_from_bits(0xff800000 | payload);

        assert_true(oracle_is_nan(&formats[0], msp_f32_to_f16(v)) && msp_f32_to_f16(v) & 0x8000);
        assert_true(oracle_is_nan(&formats[1], msp_f32_to_bf16(v)) && msp_f32_to_bf16(v) & 0x8000);
    }
}

static void
float32_widens_exactly_with_subnormals_and_payloads(void **state)
{
    uint32_t random = 7;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        float v;

        random = random * 1664525 + 1013904223;
        v = msp_f32_from_bits(i % 4 ? random : random & 0x807fffff);
        if (!isnan(v))
            assert_int_equal(msp_f64_bits(msp_f32_to_f64(msp_f32_bits(v))), msp_f64_bits((double)v));
    }
    assert_int_equal(msp_f64_bits(msp_f32_to_f64(0x7f800001)), 0x7ff0000020000000);
    assert_int_equal(msp_f64_bits(msp_f32_to_f64(0xffc12345)), 0xfff82468a0000000);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_narrow_float_has_the_value_that_its_fields_spell),
        TEST(nan_keeps_its_sign_and_payload),
        TEST(the_float_functions_agree_with_the_elements),
        TEST(narrowing_gives_back_every_value_it_came_from),
        TEST(narrowing_rounds_to_nearest_even),
        TEST(a_nan_never_narrows_to_infinity),
        TEST(float32_widens_exactly_with_subnormals_and_payloads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
