/*
 * test_stats.c - promises of msprobe/stats.h about msp_stats_compute().
 *
 * Equality, not tolerance: every instruction set, number of threads and layout must give the bits of the scalar
 * reference. Values are checked against an oracle that adds and squares exactly, in fixed point.
 */
#include "unit.h"
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include "core/alloc.h"
#include "core/cpu.h"
#include "core/pool.h"
#include "dtype/convert.h"
#include "kernels/brief.h"
#include "kernels/stats_kernel.h"
#include "msprobe/stats.h"

/* ---- data ------------------------------------------------------------------------------------------------------ */

static uint64_t random_state = 88172645463325252;

static uint64_t
random64(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * 2685821657736338717;
}

typedef enum kind {
    ANY_BITS,    /* NaN and infinities too */
    FINITE_BITS, /* of every magnitude */
    MODERATE,    /* around 1, both signs */
    POSITIVE,
    NEGATIVE,
    MANY_ZEROS,
    ALL_ZEROS,
    FEW_BAD,          /* moderate, with a NaN or an infinity here and there */
    POSITIVE_FEW_BAD, /* the infinities are negative */
    KINDS
} kind;

static void
encode(msp_dtype t, double v, void *p)
{
    float f = (float)v;
    uint16_t h;

    switch (t) {
    case MSP_F64:
    case MSP_C128:
        memcpy(p, &v, 8);
        if (t == MSP_C128)
            memcpy((char *)p + 8, &v, 8);
        break;
    case MSP_F32:
    case MSP_C64:
        memcpy(p, &f, 4);
        if (t == MSP_C64)
            memcpy((char *)p + 4, &f, 4);
        break;
    case MSP_F16:
    case MSP_BF16:
        h = t == MSP_F16 ? msp_f32_to_f16(f) : msp_f32_to_bf16(f);
        memcpy(p, &h, 2);
        break;
    default: { /* small integers; 8-bit floats get some value or other */
        int64_t i = (int64_t)v;

        memcpy(p, &i, msp_dtype_size(t));
    }
    }
}

static bool
is_finite(msp_dtype t, const void *p)
{
    if (msp_dtype_class_of(t) == MSP_CLASS_COMPLEX) {
        msp_dtype part = t == MSP_C64 ? MSP_F32 : MSP_F64;

        return isfinite(msp_dtype_load_f64(part, p)) &&
               isfinite(msp_dtype_load_f64(part, (const char *)p + msp_dtype_size(part)));
    }
    return isfinite(msp_dtype_load_f64(t, p));
}

static void
random_element(msp_dtype t, kind k, void *p)
{
    size_t size = msp_dtype_size(t);
    uint64_t bits[2] = {random64(), random64()};
    double v = (double)(int64_t)random64() * 0x1p-62;

    switch (k) {
    case ANY_BITS:
        memcpy(p, bits, size);
        if (random64() % 16 == 0 && msp_dtype_class_of(t) == MSP_CLASS_FLOAT) /* make infinities likely */
            encode(t, random64() % 2 ? INFINITY : -INFINITY, p);
        break;
    case FINITE_BITS:
        memcpy(p, bits, size);
        if (!is_finite(t, p))
            memset(p, 0, size);
        break;
    case POSITIVE:
        encode(t, fabs(v) + 0.25, p);
        break;
    case NEGATIVE:
        encode(t, -fabs(v) - 0.25, p);
        break;
    case MANY_ZEROS:
        encode(t, random64() % 3 == 0 ? v : random64() % 2 ? 0.0 : -0.0, p);
        break;
    case ALL_ZEROS:
        memset(p, 0, size);
        break;
    case FEW_BAD:
    case POSITIVE_FEW_BAD:
        v = k == FEW_BAD ? v : fabs(v) + 0.25;
        encode(t, random64() % 4096 != 0 ? v : random64() % 2 ? NAN : -INFINITY, p);
        break;
    default:
        encode(t, v * 100, p);
        break;
    }
}

static char *
random_elements(msp_dtype t, kind k, size_t n)
{
    size_t size = msp_dtype_size(t);
    char *data = malloc(n * size + 1);

    assert_non_null(data);
    for (size_t i = 0; i < n; i++)
        random_element(t, k, data + i * size);
    return data;
}

static msp_tensor
flat(msp_dtype t, const void *data, size_t n)
{
    int64_t shape = (int64_t)n;
    msp_tensor out;

    assert_int_equal(msp_tensor_view(&out, data, t, 1, &shape, NULL), MSP_OK);
    return out;
}

static msp_stats
stats_of(msp_dtype t, const void *data, size_t n)
{
    msp_tensor tensor = flat(t, data, n);
    msp_stats s;

    msp_stats_compute(&s, &tensor);
    return s;
}

/* ---- the same bits --------------------------------------------------------------------------------------------- */

static void
check_same(const msp_stats *want, const msp_tensor *t, const char *how, int number)
{
    msp_stats got;

    memset(&got, 0x55, sizeof(got));
    msp_stats_compute_mt(&got, t, number > 0 ? number : 1);
    if (memcmp(&got, want, sizeof(got)) != 0)
        fail_msg("%s, %lld elements, %s (%s, %d): max %.17g %.17g min %.17g %.17g mean %.17g %.17g norm %.17g %.17g "
                 "zero %lld %lld subnormal %lld %lld",
                 msp_dtype_torch_name(t->dtype), (long long)t->numel, how, msp_cpu_level_name(msp_cpu_best()), number,
                 got.max, want->max, got.min, want->min, got.mean, want->mean, got.norm, want->norm,
                 (long long)got.zero, (long long)want->zero, (long long)got.subnormal, (long long)want->subnormal);
}

/* The short way has its answer for exactly those it is for, and the same bits. */
static void
check_brief(const msp_stats *want, const msp_tensor *t)
{
    const bool is_short = t->dtype == MSP_F32 || t->dtype == MSP_F16 || t->dtype == MSP_BF16;
    const bool fits = t->numel > 0 && (size_t)t->numel * msp_dtype_size(t->dtype) <= MSP_STATS_BLOCK_BYTES;
    const bool finite = want->nan + want->pos_inf + want->neg_inf == 0;
    msp_stats_four four;

    assert_int_equal(msp_stats_brief(&four, t->dtype, t->data, t->numel), is_short && fits && finite);
    if (is_short && fits && finite) {
        assert_memory_equal(&four.max, &want->max, sizeof(double));
        assert_memory_equal(&four.min, &want->min, sizeof(double));
        assert_memory_equal(&four.mean, &want->mean, sizeof(double));
        assert_memory_equal(&four.norm, &want->norm, sizeof(double));
    }
}

/* n elements of data in other layouts: odd address, every third of a larger array, columns of a matrix. */
static void
check_layouts(const msp_stats *want, msp_dtype t, const char *data, size_t n)
{
    size_t size = msp_dtype_size(t), rows = n % 7 == 0 ? 7 : n % 2 == 0 ? 2 : 1;
    char *odd = malloc(n * size + 1), *wide = malloc(3 * n * size + 1), *columns = malloc(n * size + 1);
    msp_tensor view = flat(t, odd + 1, n);

    memcpy(odd + 1, data, n * size);
    check_same(want, &view, "unaligned", 0);
    for (size_t i = 0; i < n; i++)
        memcpy(wide + 3 * i * size, data + i * size, size);
    view = flat(t, wide, n);
    view.strides[0] = 3;
    check_same(want, &view, "every third", 0);
    for (size_t i = 0; i < n; i++)
        memcpy(columns + (i % (n / rows) * rows + i / (n / rows)) * size, data + i * size, size);
    view = flat(t, columns, n);
    view.ndim = 2;
    view.shape[0] = (int64_t)rows;
    view.shape[1] = (int64_t)(n / rows);
    view.strides[0] = 1;
    view.strides[1] = (int64_t)rows;
    check_same(want, &view, "transposed", 0);
    free(odd);
    free(wide);
    free(columns);
}

static void
check_everything(msp_dtype t, kind k, size_t n)
{
    char *data = random_elements(t, k, n);
    msp_tensor tensor = flat(t, data, n);
    msp_stats want;

    msp_cpu_limit(MSP_CPU_SCALAR);
    msp_stats_compute(&want, &tensor);
    for (int level = 0; level < MSP_CPU_LEVELS; level++) {
        if (!msp_cpu_has((msp_cpu_level)level))
            continue;
        msp_cpu_limit((msp_cpu_level)level);
        check_same(&want, &tensor, "contiguous", 0);
        check_brief(&want, &tensor);
        if (n > 1 && n < 100000)
            check_layouts(&want, t, data, n);
        for (int threads = 2; threads <= 8 && n * msp_dtype_size(t) >= 1 << 20; threads += 3)
            check_same(&want, &tensor, "threads", threads);
    }
    msp_cpu_limit(MSP_CPU_LEVELS);
    free(data);
}

static const size_t edges[] = {0,   1,   2,   3,   10,  15,   16,   17,   31,   32,   33,   47,  48,
                               63,  64,  65,  255, 256, 257,  271,  272,  287,  288,  289,  511, 512,
                               513, 767, 768, 769, 777, 1000, 2047, 2048, 2049, 4095, 4096, 4097};

static void
every_instruction_set_and_layout_gives_the_same_bits(void **state)
{
    (void)state;
    for (int t = 1; t < MSP_DTYPE_COUNT; t++)
        for (int k = 0; k < KINDS; k++)
            for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++)
                if (edges[i] < 300 || (int)i % KINDS == k) /* all kinds of data at all small sizes */
                    check_everything((msp_dtype)t, (kind)k, edges[i]);
}

/* Around 65536 bytes, where a block ends, and around several of them. */
static void
block_edges_do_not_show(void **state)
{
    (void)state;
    for (int t = 1; t < MSP_DTYPE_COUNT; t++) {
        bool is_f8 = t >= MSP_F8_E4M3FN && t <= MSP_F8_E5M2FNUZ; /* seen with two bytes */
        size_t block = 65536 / (is_f8 ? 2 : msp_dtype_size((msp_dtype)t));

        check_everything((msp_dtype)t, FINITE_BITS, block - 1);
        check_everything((msp_dtype)t, FINITE_BITS, block);
        check_everything((msp_dtype)t, FINITE_BITS, block + 1);
        check_everything((msp_dtype)t, MODERATE, 3 * block + 5);
        check_everything((msp_dtype)t, POSITIVE, 2 * block + 32);
        check_everything((msp_dtype)t, FEW_BAD, 3 * block + 16);
        check_everything((msp_dtype)t, POSITIVE_FEW_BAD, 4 * block + 16);
    }
}

static void
threads_do_not_show(void **state)
{
    (void)state;
    for (int t = 1; t < MSP_DTYPE_COUNT; t++)
        check_everything((msp_dtype)t, t % 2 ? MODERATE : FEW_BAD, (5 << 18) / msp_dtype_size((msp_dtype)t) + 77);
    msp_pool_shutdown();
}

/* More blocks than chunks: 10 MB, all of it the same pattern, whose sums are known. */
static void
chunks_of_several_blocks_do_not_show(void **state)
{
    enum { PATTERN = 100003, TIMES = 50 };
    size_t n = (size_t)PATTERN * TIMES;
    char *halves = random_elements(MSP_F16, MODERATE, PATTERN), *bytes = random_elements(MSP_I8, ANY_BITS, PATTERN);
    char *all = malloc(n * 2);
    int64_t sum = 0;
    msp_tensor t;
    msp_stats want;

    (void)state;
    for (size_t i = 0; i < TIMES; i++)
        memcpy(all + i * PATTERN * 2, halves, PATTERN * 2);
    t = flat(MSP_F16, all, n);
    msp_cpu_limit(MSP_CPU_SCALAR);
    msp_stats_compute(&want, &t);
    msp_cpu_limit(MSP_CPU_LEVELS);
    for (int threads = 1; threads < 8; threads += 2)
        check_same(&want, &t, "threads", threads);
    for (size_t i = 0; i < 2 * TIMES; i++)
        memcpy(all + i * PATTERN, bytes, PATTERN);
    for (size_t i = 0; i < PATTERN; i++)
        sum += (int8_t)bytes[i];
    t = flat(MSP_I8, all, 2 * n);
    msp_stats_compute_mt(&want, &t, 0);
    assert_true(want.count == (int64_t)(2 * n) && want.mean == (double)sum / PATTERN);
    msp_pool_shutdown();
    free(halves);
    free(bytes);
    free(all);
}

typedef struct caller {
    pthread_t thread;
    const msp_tensor *tensor;
    msp_stats stats;
} caller;

static void *
call_often(void *payload)
{
    caller *c = payload;

    for (int i = 0; i < 5; i++)
        msp_stats_compute_mt(&c->stats, c->tensor, 2);
    return NULL;
}

static void
callers_do_not_disturb_each_other(void **state)
{
    size_t n = 400000;
    char *data = random_elements(MSP_F32, FEW_BAD, n);
    msp_tensor t = flat(MSP_F32, data, n);
    caller callers[3];
    msp_stats want;

    (void)state;
    msp_stats_compute(&want, &t);
    for (int i = 0; i < 3; i++) {
        callers[i].tensor = &t;
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(callers[i].thread, NULL);
        assert_memory_equal(&callers[i].stats, &want, sizeof(want));
    }
    msp_pool_shutdown();
    free(data);
}

static void
an_expanded_tensor_counts_its_elements_as_often_as_it_shows_them(void **state)
{
    float row[3] = {1, 2, 4};
    msp_tensor t = flat(MSP_F32, row, 3);
    msp_stats s;

    (void)state;
    t.ndim = 2;
    t.numel = 3000;
    t.shape[0] = 1000;
    t.shape[1] = 3;
    t.strides[0] = 0;
    t.strides[1] = 1;
    msp_stats_compute(&s, &t);
    assert_int_equal(s.count, 3000);
    assert_true(s.mean == 7.0 / 3 && s.norm == sqrt(21000.0) && s.max == 4 && s.min == 1);
}

/* ---- the oracle ------------------------------------------------------------------------------------------------ */

/* A number in fixed point: digits of 32 bits, the lowest worth 2^LOWEST. */
enum { LOWEST = -2176, DIGITS = 144 };

typedef struct fixed {
    int64_t digit[DIGITS];
} fixed;

static void
fixed_add(fixed *f, uint64_t mantissa, int exponent, int sign)
{
    unsigned position = (unsigned)(exponent - LOWEST);
    unsigned __int128 v = (unsigned __int128)mantissa << position % 32;

    for (unsigned i = position / 32; v != 0; i++, v >>= 32)
        f->digit[i] += sign * (int64_t)(v & UINT32_MAX);
}

/* v and v * v for finite v. */
static void
fixed_add_both(fixed *sum, fixed *square, double v)
{
    int exponent;
    uint64_t m = (uint64_t)ldexp(frexp(fabs(v), &exponent), 53);
    unsigned __int128 mm = (unsigned __int128)m * m;

    if (v == 0)
        return;
    exponent -= 53;
    fixed_add(sum, m, exponent, v < 0 ? -1 : 1);
    fixed_add(square, (uint64_t)mm, 2 * exponent, 1);
    fixed_add(square, (uint64_t)(mm >> 64), 2 * exponent + 64, 1);
}

static long double
fixed_value(fixed *f)
{
    int sign = 1, top = DIGITS - 1;
    long double v = 0;

    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i + 1 < DIGITS; i++) { /* carry */
            int64_t carry = f->digit[i] >> 32;

            f->digit[i] -= carry * (INT64_C(1) << 32);
            f->digit[i + 1] += carry;
        }
        if (f->digit[DIGITS - 1] >= 0)
            break;
        sign = -1;
        for (int i = 0; i < DIGITS; i++)
            f->digit[i] = -f->digit[i];
    }
    while (top > 0 && f->digit[top] == 0)
        top--;
    for (int i = top; i >= 0 && i > top - 4; i--)
        v += ldexpl((long double)f->digit[i], LOWEST + 32 * i);
    return sign * v;
}

static double
smallest_normal(msp_dtype t)
{
    switch (t) {
    case MSP_F64:
        return DBL_MIN;
    case MSP_F32:
    case MSP_BF16:
        return FLT_MIN;
    case MSP_F8_E4M3FN:
        return 0x1p-6;
    case MSP_F8_E4M3FNUZ:
        return 0x1p-7;
    case MSP_F8_E5M2FNUZ:
        return 0x1p-15;
    default:
        return 0x1p-14;
    }
}

typedef struct truth {
    long double mean, norm, mean_magnitude;
    double max, min;
    int64_t nan, pos_inf, neg_inf, zero, subnormal, first_bad;
} truth;

static int
is_above(double a, double b) /* with -0 below +0 */
{
    return a > b || (a == b && signbit(b) && !signbit(a));
}

/* n numbers of a type that is not complex, from its bytes. Sums are over the finite ones. */
static truth
find_truth(msp_dtype t, const char *data, size_t n)
{
    fixed sum = {{0}}, square = {{0}};
    truth out = {.max = -INFINITY, .min = INFINITY, .first_bad = -1};

    for (size_t i = 0; i < n; i++) {
        double v = msp_dtype_load_f64(t, data + i * msp_dtype_size(t));

        out.nan += isnan(v) != 0;
        out.pos_inf += v == INFINITY;
        out.neg_inf += v == -INFINITY;
        out.zero += v == 0;
        out.subnormal += v != 0 && fabs(v) < smallest_normal(t);
        if (!isfinite(v)) {
            out.first_bad = out.first_bad < 0 ? (int64_t)i : out.first_bad;
            continue;
        }
        out.max = is_above(v, out.max) ? v : out.max;
        out.min = is_above(out.min, v) ? v : out.min;
        out.mean_magnitude += fabsl(v) / n;
        fixed_add_both(&sum, &square, v);
    }
    out.mean = fixed_value(&sum) / n;
    out.norm = sqrtl(fixed_value(&square));
    return out;
}

static void
check_close(msp_dtype t, double got, long double want, long double scale)
{
    if (!(fabsl(got - want) <= 2e-14L * scale))
        fail_msg("%s: %.20g where %.20Lg is true", msp_dtype_torch_name(t), got, want);
}

static void
check_truth(msp_dtype t, kind k, size_t n)
{
    char *data = random_elements(t, k, n);
    truth want = find_truth(t, data, n);
    msp_stats s = stats_of(t, data, n);
    bool is_float = msp_dtype_class_of(t) == MSP_CLASS_FLOAT;

    assert_int_equal(s.count, n);
    assert_int_equal(s.nan, want.nan);
    assert_int_equal(s.pos_inf, want.pos_inf);
    assert_int_equal(s.neg_inf, want.neg_inf);
    assert_int_equal(s.zero, is_float ? want.zero : 0);
    assert_int_equal(s.subnormal, is_float ? want.subnormal : 0);
    assert_int_equal(s.first_bad, want.first_bad);
    if (want.nan + want.pos_inf + want.neg_inf < (int64_t)n) {
        assert_memory_equal(&s.max_finite, &want.max, 8);
        assert_memory_equal(&s.min_finite, &want.min, 8);
    } else {
        assert_true(isnan(s.max_finite) && isnan(s.min_finite));
    }
    if (want.nan > 0) {
        assert_true(isnan(s.max) && isnan(s.min) && isnan(s.mean) && isnan(s.norm));
    } else if (want.pos_inf + want.neg_inf == 0) {
        assert_memory_equal(&s.max, &want.max, 8);
        assert_memory_equal(&s.min, &want.min, 8);
        check_close(t, s.mean, want.mean, want.mean_magnitude);
        if (want.norm > DBL_MAX)
            assert_true(s.norm == INFINITY);
        else
            check_close(t, s.norm, want.norm, want.norm);
    }
    free(data);
}

static void
values_are_what_exact_arithmetic_gives(void **state)
{
    static const size_t sizes[] = {1, 5, 16, 100, 1000, 10007};

    (void)state;
    for (int t = 1; t < MSP_C64; t++)
        for (int k = 0; k < KINDS; k++)
            for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
                check_truth((msp_dtype)t, (kind)k, sizes[i]);
    for (int t = 1; t < MSP_C64; t++)
        check_truth((msp_dtype)t, FINITE_BITS, 70001);
}

static void
every_narrow_float_alone_is_its_own_statistics(void **state)
{
    static const msp_dtype types[] = {MSP_F16, MSP_BF16, MSP_F8_E4M3FN, MSP_F8_E5M2, MSP_F8_E4M3FNUZ, MSP_F8_E5M2FNUZ};

    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        for (unsigned bits = 0; bits < (i < 2 ? 0x10000u : 0x100u); bits++) {
            uint8_t raw[2] = {(uint8_t)bits, (uint8_t)(bits >> 8)};
            double v = msp_dtype_load_f64(types[i], raw);
            msp_stats s = stats_of(types[i], raw, 1);

            if (isnan(v)) {
                assert_true(isnan(s.max) && isnan(s.norm) && s.nan == 1);
                continue;
            }
            assert_memory_equal(&s.max, &v, 8);
            assert_memory_equal(&s.min, &v, 8);
            assert_true(s.mean == v && s.norm == fabs(v));
            assert_int_equal(s.subnormal, v != 0 && fabs(v) < smallest_normal(types[i]));
            assert_int_equal(s.zero, v == 0);
            assert_int_equal(s.first_bad, isinf(v) ? 0 : -1);
        }
}

/* Whole numbers add up without rounding, in any order: then the result is the exact one. */
static void
sums_that_need_no_rounding_are_exact(void **state)
{
    size_t n = 100003;
    float *f = malloc(n * sizeof(*f));
    int64_t sum = 0, square = 0;
    msp_stats s;

    (void)state;
    for (size_t i = 0; i < n; i++) {
        int64_t v = (int64_t)(random64() % 20001) - 10000;

        f[i] = (float)v;
        sum += v;
        square += v * v;
    }
    s = stats_of(MSP_F32, f, n);
    assert_true(s.mean == (double)sum / (double)n);
    assert_true(s.norm == sqrt((double)square));
    free(f);
}

/* ---- special values -------------------------------------------------------------------------------------------- */

static void
an_empty_tensor_has_nan_and_norm_zero(void **state)
{
    (void)state;
    for (int t = 1; t < MSP_DTYPE_COUNT; t++) {
        msp_stats s = stats_of((msp_dtype)t, NULL, 0);
        bool is_complex = msp_dtype_class_of((msp_dtype)t) == MSP_CLASS_COMPLEX;

        assert_int_equal(s.count, 0);
        assert_true(isnan(s.max) && isnan(s.min) && isnan(s.mean) && isnan(s.max_finite) && isnan(s.min_finite));
        assert_true(s.norm == 0 && s.max_int == 0 && s.min_int == 0);
        assert_true(is_complex ? isnan(s.mean_imag) : s.mean_imag == 0);
        assert_int_equal(s.first_bad, -1);
    }
}

static void
an_unknown_type_has_no_elements(void **state)
{
    msp_tensor t = {.numel = 3, .ndim = 1, .shape = {3}, .strides = {1}, .data = "abc"};
    msp_stats s;

    (void)state;
    msp_stats_compute(&s, &t);
    assert_true(s.count == 0 && isnan(s.max));
    t.dtype = (msp_dtype)99;
    msp_stats_compute(&s, &t);
    assert_true(s.count == 0 && isnan(s.max));
}

static void
minus_zero_is_below_zero(void **state)
{
    float mixed[] = {0.0f, -0.0f}, back[] = {-0.0f, 0.0f}, negative[] = {-0.0f, -0.0f}, below[] = {-1, -0.0f};
    msp_stats s;

    (void)state;
    s = stats_of(MSP_F32, mixed, 2);
    assert_true(!signbit(s.max) && signbit(s.min) && s.zero == 2);
    s = stats_of(MSP_F32, back, 2);
    assert_true(!signbit(s.max) && signbit(s.min));
    s = stats_of(MSP_F32, negative, 2);
    assert_true(signbit(s.max) && signbit(s.min) && s.max == 0);
    s = stats_of(MSP_F32, below, 2);
    assert_true(s.max == 0 && signbit(s.max) && s.min == -1);
}

/* Blocks of one sign after blocks that decide an extreme, and the other way round. */
static void
extremes_are_found_in_whatever_block_they_are(void **state)
{
    enum { BLOCK = 32768 };
    static const uint16_t fills[] = {0x3c00, 0xbc00, 0x0000, 0x8000}; /* 1, -1, 0, -0 */
    uint16_t *h = malloc(3 * BLOCK * sizeof(*h));

    (void)state;
    for (int i = 0; i < 4 * 4 * 4; i++) {
        double max = -INFINITY, min = INFINITY;
        msp_stats s;

        for (int b = 0; b < 3; b++) {
            uint16_t fill = fills[(i >> 2 * b) % 4], other = fill ^ 0x0123; /* of the same sign */
            double v = msp_f16_to_f32(fill), w = msp_f16_to_f32(other);

            for (int k = 0; k < BLOCK; k++)
                h[b * BLOCK + k] = fill;
            h[b * BLOCK + 1000 + b] = other;
            max = is_above(v, max) ? v : max;
            max = is_above(w, max) ? w : max;
            min = is_above(min, v) ? v : min;
            min = is_above(min, w) ? w : min;
        }
        s = stats_of(MSP_F16, h, 3 * BLOCK);
        assert_memory_equal(&s.max, &max, 8);
        assert_memory_equal(&s.min, &min, 8);
    }
    free(h);
}

static void
infinities_reach_the_results_they_belong_to(void **state)
{
    float up[] = {1, INFINITY, 2}, down[] = {1, 3, -INFINITY}, both[] = {INFINITY, -INFINITY}, alone[] = {-INFINITY};
    msp_stats s;

    (void)state;
    s = stats_of(MSP_F32, up, 3);
    assert_true(s.max == INFINITY && s.min == 1 && s.mean == INFINITY && s.norm == INFINITY);
    assert_true(s.max_finite == 2 && s.min_finite == 1 && s.first_bad == 1 && s.pos_inf == 1);
    s = stats_of(MSP_F32, down, 3);
    assert_true(s.max == 3 && s.min == -INFINITY && s.mean == -INFINITY && s.first_bad == 2 && s.neg_inf == 1);
    s = stats_of(MSP_F32, both, 2);
    assert_true(s.max == INFINITY && s.min == -INFINITY && isnan(s.mean) && s.norm == INFINITY && s.nan == 0);
    s = stats_of(MSP_F32, alone, 1);
    assert_true(s.max == -INFINITY && s.min == -INFINITY && isnan(s.max_finite));
}

static void
a_nan_makes_all_four_nan_and_is_located(void **state)
{
    size_t n = 50000;
    float *f = calloc(n, sizeof(*f));
    msp_tensor columns;
    msp_stats s;

    (void)state;
    f[33333] = NAN;
    f[40000] = INFINITY;
    s = stats_of(MSP_F32, f, n);
    assert_true(isnan(s.max) && isnan(s.min) && isnan(s.mean) && isnan(s.norm));
    assert_true(s.nan == 1 && s.pos_inf == 1 && s.first_bad == 33333 && s.zero == (int64_t)n - 2);
    assert_true(s.max_finite == 0 && s.min_finite == 0);
    columns = flat(MSP_F32, f, n); /* 500 x 100, transposed: element (333, 33) of 500 rows becomes (33, 333) */
    columns.ndim = 2;
    columns.shape[0] = 100;
    columns.shape[1] = 500;
    columns.strides[0] = 1;
    columns.strides[1] = 100;
    msp_stats_compute(&s, &columns);
    assert_int_equal(s.first_bad, 400); /* the infinity: (400, 0) becomes (0, 400) */
    free(f);
}

/* The result does not depend on the sign and payload of the NaN that went in. */
static void
nan_results_are_one_nan(void **state)
{
    uint32_t a[] = {0x7fc00000, 0x3f800000}, b[] = {0xffc12345, 0x3f800000}, c[] = {0x7f800001, 0x3f800000};
    msp_stats sa = stats_of(MSP_F32, a, 2), sb = stats_of(MSP_F32, b, 2), sc = stats_of(MSP_F32, c, 2);

    (void)state;
    assert_memory_equal(&sa, &sb, sizeof(sa));
    assert_memory_equal(&sa, &sc, sizeof(sa));
}

static void
norms_and_means_of_float64_do_not_overflow_or_vanish(void **state)
{
    double huge[] = {1e300, -1e300, 1e300, 1e300}, tiny[] = {3e-200, 4e-200}, least[] = {0x1p-1074, 0},
           mixed[] = {1e300, 1, 1e-300}, largest[] = {DBL_MAX, DBL_MAX, DBL_MAX};
    double *many = malloc(20000 * sizeof(*many));
    msp_stats s;

    (void)state;
    s = stats_of(MSP_F64, huge, 4);
    assert_true(s.norm == 2e300 && s.mean == 5e299);
    s = stats_of(MSP_F64, tiny, 2);
    assert_true(fabs(s.norm - 5e-200) < 1e-215 && s.mean == (3e-200 + 4e-200) / 2);
    s = stats_of(MSP_F64, least, 2);
    assert_true(s.norm == 0x1p-1074 && s.subnormal == 1);
    s = stats_of(MSP_F64, mixed, 3);
    assert_true(s.norm == 1e300 && s.max == 1e300 && s.min == 1e-300);
    s = stats_of(MSP_F64, largest, 3);
    assert_true(s.mean == DBL_MAX && s.norm == INFINITY); /* the norm is not finite */
    for (int i = 0; i < 20000; i++)
        many[i] = i < 10000 ? 1e-170 : 1e-3; /* small blocks, then others */
    s = stats_of(MSP_F64, many, 20000);
    assert_true(fabs(s.norm - 0.1) < 1e-15);
    for (int i = 0; i < 20000; i++)
        many[i] = i < 10000 ? 0x1.8p1023 : -0x1.8p1023;
    s = stats_of(MSP_F64, many, 20000);
    assert_true(s.mean == 0);
    free(many);
}

static void
a_mean_is_not_outside_what_it_is_a_mean_of(void **state)
{
    double f[1000];
    msp_stats s;

    (void)state;
    for (size_t n = 1; n <= 1000; n++) {
        f[n - 1] = 0.1;
        s = stats_of(MSP_F64, f, n);
        assert_true(s.mean == 0.1);
    }
}

static void
integers_are_added_exactly(void **state)
{
    int64_t big[] = {INT64_MAX, INT64_MAX, INT64_MAX - 3}, low[] = {INT64_MIN, INT64_MIN, -1};
    uint64_t wide[] = {UINT64_MAX, 0, UINT64_MAX, 1};
    int64_t near[] = {(INT64_C(1) << 53) + 1, -(INT64_C(1) << 53), 1};
    msp_stats s;

    (void)state;
    s = stats_of(MSP_I64, big, 3);
    assert_true(s.max_int == INT64_MAX && s.min_int == INT64_MAX - 3 && s.mean == 9223372036854775806.0);
    s = stats_of(MSP_I64, low, 3);
    assert_true(s.min_int == INT64_MIN && s.max_int == -1 && s.min == -9223372036854775808.0 && s.max == -1);
    s = stats_of(MSP_U64, wide, 4);
    assert_true((uint64_t)s.max_int == UINT64_MAX && s.min_int == 0 && s.max == 18446744073709551616.0);
    assert_true(s.mean == 9223372036854775807.75);
    assert_true(s.norm == sqrt(2.0) * 18446744073709551616.0);
    s = stats_of(MSP_I64, near, 3);
    assert_true(s.mean == 2.0 / 3);
}

static void
extremes_of_every_integer_width_are_kept(void **state)
{
    int8_t i8[] = {-128, 127, 5};
    uint8_t u8[] = {255, 0, 7};
    int16_t i16[] = {-32768, 32767, 1};
    uint16_t u16[] = {65535, 1, 65535};
    int32_t i32[] = {INT32_MIN, INT32_MAX, 0};
    uint32_t u32[] = {UINT32_MAX, UINT32_MAX, 1};
    msp_stats s;

    (void)state;
    s = stats_of(MSP_I8, i8, 3);
    assert_true(s.max_int == 127 && s.min_int == -128 && s.mean == 4.0 / 3 && s.norm == sqrt(16384 + 16129 + 25));
    s = stats_of(MSP_U8, u8, 3);
    assert_true(s.max_int == 255 && s.min_int == 0 && s.mean == 262.0 / 3 && s.norm == sqrt(65025 + 49));
    s = stats_of(MSP_I16, i16, 3);
    assert_true(s.max == 32767 && s.min == -32768 && s.mean == 0 && s.norm == sqrt(2147418114.0));
    s = stats_of(MSP_U16, u16, 3);
    assert_true(s.max == 65535 && s.min == 1 && s.norm == sqrt(2 * 65535.0 * 65535.0 + 1));
    s = stats_of(MSP_I32, i32, 3);
    assert_true(s.max_int == INT32_MAX && s.min_int == INT32_MIN && s.mean == -1.0 / 3);
    s = stats_of(MSP_U32, u32, 3);
    assert_true(s.max_int == UINT32_MAX && s.min_int == 1 && s.mean == 8589934591.0 / 3);
}

static void
bool_counts_as_zero_and_one_whatever_the_byte(void **state)
{
    uint8_t some[] = {0, 1, 2, 255}, none[] = {0, 0}, all[] = {1, 7};
    msp_stats s;

    (void)state;
    s = stats_of(MSP_BOOL, some, 4);
    assert_true(s.mean == 0.75 && s.norm == sqrt(3) && s.max_int == 1 && s.min_int == 0 && s.max == 1 && s.min == 0);
    s = stats_of(MSP_BOOL, none, 2);
    assert_true(s.mean == 0 && s.max_int == 0 && s.min_int == 0);
    s = stats_of(MSP_BOOL, all, 2);
    assert_true(s.mean == 1 && s.max_int == 1 && s.min_int == 1);
}

static void
complex_numbers_have_means_and_a_norm(void **state)
{
    float c[] = {3, 4, 1, -2}, nan[] = {1, NAN, 3, 4}, inf[] = {INFINITY, 1, -0.0f, 0};
    double wide[] = {1e300, 1e-300, 1e300, 1e-300};
    msp_stats s;

    (void)state;
    s = stats_of(MSP_C64, c, 2);
    assert_true(s.count == 2 && s.mean == 2 && s.mean_imag == 1 && s.norm == sqrt(30));
    assert_true(isnan(s.max) && isnan(s.min) && isnan(s.max_finite));
    s = stats_of(MSP_C64, nan, 2);
    assert_true(s.mean == 2 && isnan(s.mean_imag) && isnan(s.norm) && s.nan == 1 && s.first_bad == 0);
    s = stats_of(MSP_C64, inf, 2);
    assert_true(s.mean == INFINITY && s.mean_imag == 0.5 && s.norm == INFINITY && s.zero == 2 && s.pos_inf == 1);
    s = stats_of(MSP_C128, wide, 2);
    assert_true(s.mean == 1e300 && s.mean_imag == 1e-300 && s.norm == sqrt(2) * 1e300);
}

/* ---- surroundings ---------------------------------------------------------------------------------------------- */

static void
the_threads_floating_point_mode_does_not_matter(void **state)
{
    size_t n = 40000;
    char *f32 = random_elements(MSP_F32, FINITE_BITS, n), *f64 = random_elements(MSP_F64, FINITE_BITS, n);
    float tiny[] = {0x1p-149f, 0x1p-140f};
    msp_stats want32 = stats_of(MSP_F32, f32, n), want64 = stats_of(MSP_F64, f64, n), want = stats_of(MSP_F32, tiny, 2);
    msp_stats got32, got64, got;

    (void)state;
    fesetround(FE_UPWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040); /* flush subnormals, read and written */
#endif
    got32 = stats_of(MSP_F32, f32, n);
    got64 = stats_of(MSP_F64, f64, n);
    got = stats_of(MSP_F32, tiny, 2);
    assert_int_equal(fegetround(), FE_UPWARD);
    fesetround(FE_TONEAREST);
#if defined(__x86_64__)
    assert_int_equal(_mm_getcsr() & 0x8040, 0x8040);
    _mm_setcsr(_mm_getcsr() & ~0x8040u);
#endif
    assert_memory_equal(&got32, &want32, sizeof(got32));
    assert_memory_equal(&got64, &want64, sizeof(got64));
    assert_memory_equal(&got, &want, sizeof(got));
    assert_true(want.max > 0 && want.norm > 0);
    free(f32);
    free(f64);
}

/* The kernel reads no byte outside the tensor: an exact heap block, which AddressSanitizer watches. */
static void
nothing_outside_the_tensor_is_read(void **state)
{
    (void)state;
    for (int t = 1; t < MSP_DTYPE_COUNT; t++)
        for (size_t n = 1; n < 300; n += 13) {
            size_t size = msp_dtype_size((msp_dtype)t);
            char *p = malloc(n * size);

            memset(p, 0x11, n * size);
            assert_int_equal(stats_of((msp_dtype)t, p, n).count, n);
            free(p);
        }
}

static void
nothing_is_allocated(void **state)
{
    size_t n = 50000;
    char *data = random_elements(MSP_F64, ANY_BITS, n);
    msp_stats s;

    (void)state;
    msp_alloc_fail_after(0);
    s = stats_of(MSP_F64, data, n);
    msp_alloc_fail_after(-1);
    assert_int_equal(s.count, n);
    free(data);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_instruction_set_and_layout_gives_the_same_bits),
        TEST(block_edges_do_not_show),
        TEST(threads_do_not_show),
        TEST(chunks_of_several_blocks_do_not_show),
        TEST(callers_do_not_disturb_each_other),
        TEST(an_expanded_tensor_counts_its_elements_as_often_as_it_shows_them),
        TEST(values_are_what_exact_arithmetic_gives),
        TEST(every_narrow_float_alone_is_its_own_statistics),
        TEST(sums_that_need_no_rounding_are_exact),
        TEST(an_empty_tensor_has_nan_and_norm_zero),
        TEST(an_unknown_type_has_no_elements),
        TEST(minus_zero_is_below_zero),
        TEST(extremes_are_found_in_whatever_block_they_are),
        TEST(infinities_reach_the_results_they_belong_to),
        TEST(a_nan_makes_all_four_nan_and_is_located),
        TEST(nan_results_are_one_nan),
        TEST(norms_and_means_of_float64_do_not_overflow_or_vanish),
        TEST(a_mean_is_not_outside_what_it_is_a_mean_of),
        TEST(integers_are_added_exactly),
        TEST(extremes_of_every_integer_width_are_kept),
        TEST(bool_counts_as_zero_and_one_whatever_the_byte),
        TEST(complex_numbers_have_means_and_a_norm),
        TEST(the_threads_floating_point_mode_does_not_matter),
        TEST(nothing_outside_the_tensor_is_read),
        TEST(nothing_is_allocated),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
