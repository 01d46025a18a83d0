/*
 * test_metrics.c - the pair metrics against a plain oracle in long double, and against themselves: the same bits
 * whatever the instruction set, the number of threads, the strides and the alignment.
 */
#include "unit.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include "core/cpu.h"
#include "dtype/convert.h"
#include "msprobe/metrics.h"

/* ---- data -------------------------------------------------------------------------------------------------------- */

static uint64_t seed;

static uint32_t
random_bits(void)
{
    seed = seed * 6364136223846793005 + 1442695040888963407;
    return (uint32_t)(seed >> 32);
}

/* About normal, in steps of 2^-20. */
static double
random_normal(void)
{
    double sum = -6;

    for (int i = 0; i < 12; i++)
        sum += (double)(random_bits() >> 12) * 0x1p-20;
    return sum;
}

static void
store(void *p, msp_dtype t, double v)
{
    float f = (float)v;
    uint16_t h;
    int64_t i = (int64_t)v;
    uint64_t u = v < 0 ? (uint64_t)-v : (uint64_t)v;

    switch (t) {
    case MSP_F64:
        memcpy(p, &v, 8);
        break;
    case MSP_F32:
        memcpy(p, &f, 4);
        break;
    case MSP_F16:
        h = msp_f32_to_f16(f);
        memcpy(p, &h, 2);
        break;
    case MSP_BF16:
        h = msp_f32_to_bf16(f);
        memcpy(p, &h, 2);
        break;
    case MSP_BOOL:
        *(uint8_t *)p = i & 1;
        break;
    case MSP_U8:
    case MSP_U16:
    case MSP_U32:
    case MSP_U64:
        memcpy(p, &u, msp_dtype_size(t)); /* little-endian, as all data here */
        break;
    case MSP_C64:
        memcpy(p, &f, 4);
        f = -0.5f * f;
        memcpy((char *)p + 4, &f, 4);
        break;
    case MSP_C128:
        memcpy(p, &v, 8);
        v *= -0.5;
        memcpy((char *)p + 8, &v, 8);
        break;
    case MSP_F8_E4M3FN:
    case MSP_F8_E5M2:
    case MSP_F8_E4M3FNUZ:
    case MSP_F8_E5M2FNUZ:
        *(uint8_t *)p = (uint8_t)(0x28 + (i & 0x1f)); /* some finite number */
        break;
    default:
        memcpy(p, &i, msp_dtype_size(t));
    }
}

typedef enum pattern { NEAR, NEAR_BUT_FEW, APART, RELU, WIDE_RANGE, SHIFTED, BROKEN, BIG_INTEGERS, PATTERNS } pattern;

static const char *const pattern_names[] = {"near",       "near but few", "apart",  "relu",
                                            "wide range", "shifted",      "broken", "big integers"};

/* One pair of values; integers get some dozens. */
static void
random_pair(double *n, double *b, pattern p, bool integer)
{
    static const double odd[] = {NAN, -NAN, INFINITY, -INFINITY, 0, 1};

    *b = random_normal() * (integer ? 20 : 1);
    *n = random_normal() * (integer ? 20 : 1);
    switch (p) {
    case APART:
        break;
    case NEAR_BUT_FEW:
        if (random_bits() % 700 != 0)
            *n = *b * (1 + 3e-3 * *n);
        break;
    case RELU:
        *n = fmax(0, *b + 1e-3 * *n);
        *b = fmax(0, *b);
        break;
    case WIDE_RANGE:
        *b = ldexp(*b, (int)(random_bits() % 26) - 18);
        *n = *b + ldexp(*n, (int)(random_bits() % 26) - 24);
        break;
    case SHIFTED:
        *n = *b + 0.25;
        break;
    case BROKEN:
        *n = *b * (1 + 1e-3 * *n);
        if (!integer && random_bits() % 64 == 0) {
            *n = odd[random_bits() % 6];
            *b = odd[random_bits() % 6];
        }
        break;
    case BIG_INTEGERS:
        *b = integer ? floor(ldexp(*b, 53)) : *b;
        *n = *b + (integer ? (double)(random_bits() % 5) * 4096 : 0);
        break;
    default:
        *n = *b * (1 + 3e-3 * *n);
    }
}

typedef struct pair {
    msp_tensor n, b;
    char *memory;
} pair;

static bool
has_whole_numbers(msp_dtype t)
{
    return msp_dtype_class_of(t) == MSP_CLASS_INT || msp_dtype_class_of(t) == MSP_CLASS_BOOL;
}

/* Two tensors of count random elements, offset bytes after aligned addresses. */
static pair
make_pair(msp_dtype tn, msp_dtype tb, int64_t count, pattern p, size_t offset)
{
    size_t size_n = msp_dtype_size(tn), size_b = msp_dtype_size(tb);
    bool integer = has_whole_numbers(tn) || has_whole_numbers(tb);
    pair pr;
    char *pb;

    if (p == BIG_INTEGERS && (size_n < 8 || size_b < 8))
        p = NEAR;
    pr.memory = malloc((size_t)count * (size_n + size_b) + 128);
    pb = pr.memory + (((size_t)count * size_n + 64) / 64 + 1) * 64 + offset - 64;
    for (int64_t i = 0; i < count; i++) {
        double n, b;

        random_pair(&n, &b, p, integer);
        store(pr.memory + offset + (size_t)i * size_n, tn, n);
        store(pb + (size_t)i * size_b, tb, b);
    }
    assert_int_equal(msp_tensor_view(&pr.n, pr.memory + offset, tn, 1, &count, NULL), MSP_OK);
    assert_int_equal(msp_tensor_view(&pr.b, pb, tb, 1, &count, NULL), MSP_OK);
    return pr;
}

/* ---- oracle ------------------------------------------------------------------------------------------------------ */

typedef long double real;

typedef struct number {
    double re, im;
} number;

static number
number_at(const msp_tensor *t, int64_t i)
{
    const char *p = msp_tensor_at(t, i);
    number x = {msp_dtype_load_f64(t->dtype, p), 0};

    if (t->dtype == MSP_C64)
        x.im = msp_dtype_load_f64(MSP_F32, p + 4);
    else if (t->dtype == MSP_C128)
        x.im = msp_dtype_load_f64(MSP_F64, p + 8);
    return x;
}

/* An integer of any width: the sign and the magnitude fit long double's or a pair's range only as __int128. */
static __int128
integer_at(const msp_tensor *t, int64_t i)
{
    uint64_t bits = 0;
    size_t size = msp_dtype_size(t->dtype);

    memcpy(&bits, msp_tensor_at(t, i), size);
    if (msp_dtype_is_signed_int(t->dtype))
        return (int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size);
    return bits;
}

static int
class_of(number x)
{
    if (isnan(x.re) || isnan(x.im))
        return 1;
    return isinf(x.re) || isinf(x.im) ? 2 : 0;
}

static double
length(number x)
{
    return (double)sqrtl((real)x.re * x.re + (real)x.im * x.im);
}

static double
rel_in_double(number n, number b)
{
    number d = {n.re - b.re, n.im - b.im};

    if (b.re == 0 && b.im == 0) {
        d = (number){(n.re + DBL_EPSILON) - DBL_EPSILON, n.im};
        b = (number){DBL_EPSILON, 0};
    }
    if (n.im == 0 && b.im == 0)
        return fabs(d.re / b.re);
    return sqrt(d.re * d.re + d.im * d.im) / sqrt(b.re * b.re + b.im * b.im);
}

static double
rel_in_float(double n, double b)
{
    volatile float x = (float)n, y = (float)b, d;

    if (y == 0) {
        x += 0x1p-52f;
        y = 0x1p-52f;
    }
    d = x - y;
    return fabsf(d / y);
}

static double
rel_in_half(double n, double b)
{
    if (b == 0)
        return n == 0 ? 0 : INFINITY;
    /* double holds the difference of two float16 exactly, and their quotient to 53 bits */
    return fabsf(msp_f16_to_f32(msp_f32_to_f16((float)(msp_f16_to_f32(msp_f32_to_f16((float)(n - b))) / b))));
}

static double
rel_of(const msp_tensor *tn, const msp_tensor *tb, number n, number b, double *limit_1, double *limit_5)
{
    bool floats = msp_dtype_class_of(tn->dtype) == MSP_CLASS_FLOAT && msp_dtype_class_of(tb->dtype) == MSP_CLASS_FLOAT;
    double r = INFINITY;

    *limit_1 = 0.001;
    *limit_5 = 0.005;
    if (tn->dtype == MSP_F16 && tb->dtype == MSP_F16) {
        *limit_1 = msp_f16_to_f32(msp_f32_to_f16(0.001f));
        *limit_5 = msp_f16_to_f32(msp_f32_to_f16(0.005f));
        r = rel_in_half(n.re, b.re);
    } else if (floats && tn->dtype != MSP_F64 && tb->dtype != MSP_F64) {
        *limit_1 = 0.001f;
        *limit_5 = 0.005f;
        r = rel_in_float(n.re, b.re);
    }
    return isinf(r) ? rel_in_double(n, b) : r;
}

typedef struct oracle {
    msp_metrics m;
    real dot, sq_n, sq_b, sq_d, rel;
} oracle;

static void
oracle_element(oracle *o, const msp_tensor *tn, const msp_tensor *tb, int64_t i)
{
    bool integers = has_whole_numbers(tn->dtype) && has_whole_numbers(tb->dtype);
    number n = number_at(tn, i), b = number_at(tb, i), d;
    int cn = class_of(n), cb = class_of(b);
    double r, abs, limit_1, limit_5;

    if (cn != 0 || cb != 0) {
        o->m.nonfinite++;
        o->m.inf_sign += cn == 2 && cb == 2 && (n.re != b.re || n.im != b.im);
        if (cn != cb && o->m.mismatches++ == 0)
            o->m.first_mismatch = i;
        n = b = (number){0, 0};
    }
    d = (number){n.re - b.re, n.im - b.im};
    if (integers)
        d.re = (double)(integer_at(tn, i) - integer_at(tb, i));
    r = rel_of(tn, tb, n, b, &limit_1, &limit_5);
    abs = d.im == 0 ? fabs(d.re) : length(d);
    o->dot += (real)n.re * b.re + (real)n.im * b.im;
    o->sq_n += (real)n.re * n.re + (real)n.im * n.im;
    o->sq_b += (real)b.re * b.re + (real)b.im * b.im;
    o->sq_d += (real)d.re * d.re + (real)d.im * d.im;
    if (b.re != 0 || b.im != 0) {
        o->rel += (real)abs / length(b);
        o->m.mape_count++;
    }
    if (abs > o->m.max_abs_err) {
        o->m.max_abs_err = abs;
        o->m.max_abs_index = i;
    }
    if (r > o->m.max_rel_err) {
        o->m.max_rel_err = r;
        o->m.max_rel_index = i;
    }
    o->m.below_1e3 += r < limit_1;
    o->m.below_5e3 += r < limit_5;
}

static void
assert_near(const char *what, double got, real want, real tolerance)
{
    if (!(fabsl(got - want) <= tolerance) && !(isnan(got) && isnan(want)))
        fail_msg("%s is %.17g, expected %.17Lg", what, got, want);
}

/* Many 16-bit floats are added up in float32: see test_metrics_half.c. */
static bool
is_added_up_in_float32(const pair *p)
{
    return p->n.dtype == p->b.dtype && (p->n.dtype == MSP_F16 || p->n.dtype == MSP_BF16) && p->n.numel > 65536;
}

static void
check_against_oracle(const pair *p)
{
    oracle o = {.m = {.max_abs_err = -1, .max_rel_err = -1, .first_mismatch = -1}};
    bool plain = msp_dtype_class_of(p->n.dtype) != MSP_CLASS_COMPLEX;
    real sums = is_added_up_in_float32(p) ? 0x1p-21 : 3e-14, dot = is_added_up_in_float32(p) ? 0x1p-20 : 3e-14;
    int64_t count = p->n.numel;
    msp_metrics m;
    real norms;

    for (int64_t i = 0; i < count; i++)
        oracle_element(&o, &p->n, &p->b, i);
    assert_int_equal(msp_metrics_compute(&m, &p->n, &p->b, NULL), MSP_OK);
    norms = sqrtl(o.sq_n) * sqrtl(o.sq_b);
    assert_int_equal(m.count, count);
    assert_near("dot", m.dot, o.dot, dot * norms);
    assert_near("sq_n", m.sq_n, o.sq_n, sums * o.sq_n);
    assert_near("sq_b", m.sq_b, o.sq_b, sums * o.sq_b);
    if (norms > 0)
        assert_near("cosine", m.cosine, o.dot / norms, dot);
    assert_near("euc_dist", m.euc_dist, sqrtl(o.sq_d), sums * sqrtl(o.sq_d));
    assert_near("rmse", m.rmse, sqrtl(o.sq_d / count), sums * sqrtl(o.sq_d / count));
    assert_int_equal(m.mape_count, o.m.mape_count);
    if (o.m.mape_count > 0) {
        bool wide = msp_dtype_size(p->n.dtype) == 8 || msp_dtype_size(p->b.dtype) == 8 || !plain;
        real tolerance = count <= 256 || wide ? 3e-14 : fmaxl(0x1p-24, sums);

        assert_near("mape", m.mape, o.rel / o.m.mape_count, tolerance * o.rel / o.m.mape_count);
    }
    assert_near("max_abs_err", m.max_abs_err, o.m.max_abs_err, plain ? 0 : 1e-15 * o.m.max_abs_err);
    assert_near("max_rel_err", m.max_rel_err, o.m.max_rel_err, plain ? 0 : 1e-15 * o.m.max_rel_err);
    assert_int_equal(m.max_abs_index, o.m.max_abs_index);
    assert_int_equal(m.max_rel_index, o.m.max_rel_index);
    assert_int_equal(m.below_1e3, o.m.below_1e3);
    assert_int_equal(m.below_5e3, o.m.below_5e3);
    assert_int_equal(m.inf_sign, o.m.inf_sign);
    assert_int_equal(m.mismatches, o.m.mismatches);
    assert_int_equal(m.first_mismatch, o.m.first_mismatch);
    assert_int_equal(m.nonfinite, o.m.nonfinite);
}

/* Every type with itself, and mixtures of which each takes another way. */
static const msp_dtype type_pairs[][2] = {
    {MSP_F64, MSP_F64},   {MSP_F32, MSP_F32},  {MSP_F16, MSP_F16},   {MSP_BF16, MSP_BF16},
    {MSP_I8, MSP_I8},     {MSP_I16, MSP_I16},  {MSP_I32, MSP_I32},   {MSP_I64, MSP_I64},
    {MSP_U8, MSP_U8},     {MSP_U16, MSP_U16},  {MSP_U32, MSP_U32},   {MSP_U64, MSP_U64},
    {MSP_BOOL, MSP_BOOL}, {MSP_C64, MSP_C64},  {MSP_C128, MSP_C128}, {MSP_F8_E4M3FN, MSP_F8_E4M3FN},
    {MSP_F16, MSP_F32},   {MSP_F32, MSP_BF16}, {MSP_F16, MSP_BF16},  {MSP_F8_E5M2, MSP_F16},
    {MSP_F64, MSP_F32},   {MSP_BF16, MSP_F64}, {MSP_F32, MSP_I32},   {MSP_I64, MSP_F16},
    {MSP_U64, MSP_I64},   {MSP_I32, MSP_I64},  {MSP_BOOL, MSP_U8},   {MSP_F8_E5M2FNUZ, MSP_F8_E4M3FNUZ},
};

enum { TYPE_PAIRS = sizeof(type_pairs) / sizeof(type_pairs[0]) };

static void
every_type_pattern_and_length_agrees_with_the_oracle(void **state)
{
    static const int64_t counts[] = {1, 2, 7, 8, 9, 31, 33, 256, 257, 1000, 2049, 4113};

    (void)state;
    for (int t = 0; t < TYPE_PAIRS; t++)
        for (int p = 0; p < PATTERNS; p++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
                pair pr = make_pair(type_pairs[t][0], type_pairs[t][1], counts[c], (pattern)p, 0);

                check_against_oracle(&pr);
                free(pr.memory);
            }
}

static void
many_chunks_agree_with_the_oracle(void **state)
{
    static const msp_dtype types[] = {MSP_F32, MSP_F16, MSP_BF16, MSP_F64};

    (void)state;
    for (int t = 0; t < 4; t++)
        for (int p = 0; p < PATTERNS; p++) {
            pair pr = make_pair(types[t], types[t], 40003, (pattern)p, 0);

            check_against_oracle(&pr);
            free(pr.memory);
        }
}

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

static void
assert_same(const msp_metrics *a, const msp_metrics *b, const char *what, const pair *p, pattern pt)
{
    if (memcmp(a, b, sizeof(*a)) != 0)
        fail_msg("%s changes a result: %s, %s and %s, %" PRId64 " elements", what, pattern_names[pt],
                 msp_dtype_torch_name(p->n.dtype), msp_dtype_torch_name(p->b.dtype), p->n.numel);
}

static void
every_level_gives_the_same_bits(void **state)
{
    static const int64_t counts[] = {1, 13, 100, 300, 2500, 8333};

    (void)state;
    for (int t = 0; t < TYPE_PAIRS; t++)
        for (int p = 0; p < PATTERNS; p++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
                pair pr = make_pair(type_pairs[t][0], type_pairs[t][1], counts[c], (pattern)p, 0);
                msp_metrics best, other;

                assert_int_equal(msp_metrics_compute(&best, &pr.n, &pr.b, NULL), MSP_OK);
                for (int level = MSP_CPU_SCALAR; level < MSP_CPU_LEVELS; level++) {
                    msp_cpu_limit((msp_cpu_level)level);
                    assert_int_equal(msp_metrics_compute(&other, &pr.n, &pr.b, NULL), MSP_OK);
                    assert_same(&best, &other, msp_cpu_level_name((msp_cpu_level)level), &pr, (pattern)p);
                }
                msp_cpu_limit(MSP_CPU_LEVELS);
                free(pr.memory);
            }
}

static void
any_number_of_threads_gives_the_same_bits(void **state)
{
    static const msp_dtype types[] = {MSP_F32, MSP_F16, MSP_BF16, MSP_F64, MSP_I64, MSP_C64};

    (void)state;
    for (int t = 0; t < 6; t++)
        for (int p = RELU; p < PATTERNS; p += BROKEN - RELU) {
            pair pr = make_pair(types[t], types[t], 270007, (pattern)p, 0);
            msp_metrics one, other;

            assert_int_equal(msp_metrics_compute(&one, &pr.n, &pr.b, NULL), MSP_OK);
            for (int threads = 2; threads <= 6; threads += 2) {
                assert_int_equal(msp_metrics_compute_mt(&other, &pr.n, &pr.b, threads, NULL), MSP_OK);
                assert_same(&one, &other, "the number of threads", &pr, (pattern)p);
            }
            free(pr.memory);
        }
}

static void
what_tables_show_is_the_same_without_the_rest(void **state)
{
    static const int64_t counts[] = {1, 100, 2500};

    (void)state;
    for (int t = 0; t < TYPE_PAIRS; t++)
        for (int p = 0; p < PATTERNS; p++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
                pair pr = make_pair(type_pairs[t][0], type_pairs[t][1], counts[c], (pattern)p, 0);
                bool doubles = pr.n.dtype == MSP_F64 && pr.b.dtype == MSP_F64;
                msp_metrics all, brief;

                assert_int_equal(msp_metrics_compute(&all, &pr.n, &pr.b, NULL), MSP_OK);
                assert_int_equal(msp_metrics_brief(&brief, &pr.n, &pr.b, 2, NULL), MSP_OK);
                assert_true(brief.max_abs_index == -1 && brief.max_rel_index == -1);
                if (!doubles) /* torch_npu.hooks shows it of these */
                    brief.mape = all.mape;
                brief.max_abs_index = all.max_abs_index;
                brief.max_rel_index = all.max_rel_index;
                assert_same(&all, &brief, "leaving out the places", &pr, (pattern)p);
                free(pr.memory);
            }
}

static void
alignment_does_not_matter(void **state)
{
    (void)state;
    for (int t = 0; t < TYPE_PAIRS; t++) {
        msp_metrics aligned, other;

        for (size_t offset = 0; offset < 5; offset++) {
            pair pr;

            seed = 99;
            pr = make_pair(type_pairs[t][0], type_pairs[t][1], 777, BROKEN, offset);
            assert_int_equal(msp_metrics_compute(&other, &pr.n, &pr.b, NULL), MSP_OK);
            if (offset == 0)
                aligned = other;
            assert_same(&aligned, &other, "alignment", &pr, BROKEN);
            free(pr.memory);
        }
    }
}

/* The transpose of t in memory of its own. */
static msp_tensor
transposed_copy(const msp_tensor *t, int64_t rows, int64_t columns, char *memory)
{
    size_t size = msp_dtype_size(t->dtype);
    int64_t shape[] = {rows, columns};
    msp_tensor r;

    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            memcpy(memory + (size_t)(j * rows + i) * size, msp_tensor_at(t, i * columns + j), size);
    assert_int_equal(msp_tensor_view(&r, memory, t->dtype, 2, shape, NULL), MSP_OK);
    r.strides[0] = 1;
    r.strides[1] = rows;
    return r;
}

static void
strides_do_not_matter(void **state)
{
    static char memory[2][16 * 150 * 61];
    int64_t shape[] = {150, 61};

    (void)state;
    for (int t = 0; t < TYPE_PAIRS; t++) {
        pair pr = make_pair(type_pairs[t][0], type_pairs[t][1], 150 * 61, BROKEN, 0);
        msp_tensor n = transposed_copy(&pr.n, 150, 61, memory[0]), b = transposed_copy(&pr.b, 150, 61, memory[1]);
        msp_metrics want, got;

        assert_int_equal(msp_tensor_view(&pr.n, pr.n.data, pr.n.dtype, 2, shape, NULL), MSP_OK);
        assert_int_equal(msp_tensor_view(&pr.b, pr.b.data, pr.b.dtype, 2, shape, NULL), MSP_OK);
        assert_int_equal(msp_metrics_compute(&want, &pr.n, &pr.b, NULL), MSP_OK);
        assert_int_equal(msp_metrics_compute(&got, &n, &b, NULL), MSP_OK);
        assert_same(&want, &got, "transposing both", &pr, BROKEN);
        assert_int_equal(msp_metrics_compute(&got, &n, &pr.b, NULL), MSP_OK);
        assert_same(&want, &got, "transposing one", &pr, BROKEN);
        free(pr.memory);
    }
}

#if defined(__x86_64__)
static void
flushing_subnormals_does_not_matter(void **state)
{
    float n[3] = {1e-40f, 3e-45f, 1}, b[3] = {2e-40f, 3e-45f, 1};
    int64_t shape = 3;
    unsigned mode = _mm_getcsr();
    msp_tensor tn, tb;
    msp_metrics want, got;

    (void)state;
    assert_int_equal(msp_tensor_view(&tn, n, MSP_F32, 1, &shape, NULL), MSP_OK);
    assert_int_equal(msp_tensor_view(&tb, b, MSP_F32, 1, &shape, NULL), MSP_OK);
    assert_int_equal(msp_metrics_compute(&want, &tn, &tb, NULL), MSP_OK);
    assert_true(want.max_abs_err > 0);
    _mm_setcsr(mode | 0x8040);
    assert_int_equal(msp_metrics_compute(&got, &tn, &tb, NULL), MSP_OK);
    assert_int_equal(_mm_getcsr() & 0x8040, 0x8040);
    _mm_setcsr(mode);
    assert_memory_equal(&want, &got, sizeof(want));
}
#endif

/* ---- single promises --------------------------------------------------------------------------------------------- */

static msp_metrics
compare(msp_dtype t, const void *n, const void *b, int64_t count)
{
    msp_tensor tn, tb;
    msp_metrics m;

    assert_int_equal(msp_tensor_view(&tn, n, t, 1, &count, NULL), MSP_OK);
    assert_int_equal(msp_tensor_view(&tb, b, t, 1, &count, NULL), MSP_OK);
    assert_int_equal(msp_metrics_compute(&m, &tn, &tb, NULL), MSP_OK);
    return m;
}

static void
no_elements_have_no_errors(void **state)
{
    msp_metrics m = compare(MSP_F32, NULL, NULL, 0);

    (void)state;
    assert_int_equal(m.count, 0);
    assert_true(m.cosine == 1 && m.euc_dist == 0 && m.max_abs_err == 0 && m.max_rel_err == 0);
    assert_true(isnan(m.mape) && isnan(m.rmse));
    assert_int_equal(m.max_abs_index, -1);
    assert_int_equal(m.max_rel_index, -1);
    assert_int_equal(m.first_mismatch, -1);
}

static void
shapes_must_agree(void **state)
{
    float data[6] = {0};
    int64_t a[] = {2, 3}, b[] = {3, 2}, c[] = {6};
    msp_tensor ta, tb, tc;
    msp_metrics m;
    msp_error err;

    (void)state;
    assert_int_equal(msp_tensor_view(&ta, data, MSP_F32, 2, a, NULL), MSP_OK);
    assert_int_equal(msp_tensor_view(&tb, data, MSP_F32, 2, b, NULL), MSP_OK);
    assert_int_equal(msp_tensor_view(&tc, data, MSP_F32, 1, c, NULL), MSP_OK);
    assert_int_equal(msp_metrics_compute(&m, &ta, &tb, &err), MSP_E_INVALID);
    assert_string_equal(err.message, "shapes differ: dimension 0 has 2 and 3 elements");
    assert_int_equal(msp_metrics_compute(&m, &ta, &tc, &err), MSP_E_INVALID);
    assert_string_equal(err.message, "shapes differ: 2 and 1 dimensions");
    tc.dtype = MSP_DTYPE_NONE;
    assert_int_equal(msp_metrics_compute(&m, &tc, &tc, &err), MSP_E_INVALID);
}

static void
scalars_are_one_element(void **state)
{
    double n = 3, b = 2;
    msp_tensor tn, tb;
    msp_metrics m;

    (void)state;
    assert_int_equal(msp_tensor_view(&tn, &n, MSP_F64, 0, NULL, NULL), MSP_OK);
    assert_int_equal(msp_tensor_view(&tb, &b, MSP_F64, 0, NULL, NULL), MSP_OK);
    assert_int_equal(msp_metrics_compute(&m, &tn, &tb, NULL), MSP_OK);
    assert_true(m.count == 1 && m.max_abs_err == 1 && m.max_rel_err == 0.5 && m.max_abs_index == 0);
}

/* The largest errors stand twice: far apart, in other chunks, and in the padded rest. */
static void
the_first_of_several_largest_errors_is_named(void **state)
{
    enum { N = 100001 };
    static float n[N], b[N];
    static const int places[][2] = {{0, 1}, {7, 8}, {100, 4000}, {2047, 2048}, {33000, 66000}, {99999, N - 1}};

    (void)state;
    for (int i = 0; i < N; i++)
        n[i] = b[i] = 1;
    for (size_t k = 0; k < sizeof(places) / sizeof(places[0]); k++) {
        msp_metrics m;

        for (int side = 0; side < 2; side++)
            n[places[k][side]] = 2;
        m = compare(MSP_F32, n, b, N);
        assert_int_equal(m.max_abs_index, places[k][0]);
        assert_int_equal(m.max_rel_index, places[k][0]);
        for (int side = 0; side < 2; side++)
            n[places[k][side]] = 1;
    }
}

/* Differences that round to the same float32 but are not the same. */
static void
the_largest_difference_is_exact(void **state)
{
    float n[3] = {1, 1 + 0x1p-23f, 1}, b[3] = {-0x1p-30f, -0x1p-31f, -0x1p-29f};
    msp_metrics m;

    (void)state;
    n[1] = 1;
    m = compare(MSP_F32, n, b, 3);
    assert_true(m.max_abs_err == 1 + 0x1p-29);
    assert_int_equal(m.max_abs_index, 2);
}

/*
 * Two float16 pairs, in blocks of their own. Unrounded, the second one's relative error is below the first one's; with
 * difference and quotient rounded to float16 it is above.
 */
static void
rounding_to_float16_decides_which_relative_error_is_largest(void **state)
{
    enum { N = 5000, FIRST = 100, SECOND = 4000 };
    static uint16_t n[N], b[N];
    msp_metrics m;

    (void)state;
    for (int i = 0; i < N; i++)
        n[i] = b[i] = 0x3c00;
    n[FIRST] = 0x34e2;
    b[FIRST] = 0x3aac;
    m = compare(MSP_F16, n, b, N);
    assert_true(m.max_rel_err == 0.63427734375 && m.max_rel_index == FIRST);
    n[SECOND] = 0x3caf;
    b[SECOND] = 0x4267;
    m = compare(MSP_F16, n, b, N);
    assert_true(m.max_rel_err == 0.634765625 && m.max_rel_index == SECOND);
}

static void
a_relative_error_beyond_float32_is_found(void **state)
{
    float n[300], b[300];
    msp_metrics m;

    (void)state;
    for (int i = 0; i < 300; i++)
        n[i] = b[i] = 1;
    n[100] = 1e30f;
    b[100] = 1e-30f;
    m = compare(MSP_F32, n, b, 300);
    assert_true(m.max_rel_err == ((double)1e30f - (double)1e-30f) / (double)1e-30f);
    assert_int_equal(m.max_rel_index, 100);
}

/* All mantissas with their neighbours, where what counts as 0.001 or 0.005 is decided: subnormal, smallest, 1, largest.
 */
static void
all_16_bit_mantissas_and_their_neighbours_agree_with_the_oracle(void **state)
{
    static const struct {
        msp_dtype type;
        int mantissas, exponents[4];
    } cases[] = {{MSP_F16, 1024, {0, 1, 15, 30}}, {MSP_BF16, 128, {0, 1, 127, 254}}};
    static uint16_t n[8 * 1024], b[8 * 1024];

    (void)state;
    for (int c = 0; c < 2; c++)
        for (int step = -12; step <= 12; step++) {
            int64_t count = 8 * cases[c].mantissas;
            pair p;

            for (int i = 0; i < count; i++) {
                int m = cases[c].mantissas;

                b[i] = (uint16_t)((i / (4 * m)) << 15 | (cases[c].exponents[i / m % 4] * m + i % m));
                n[i] = (uint16_t)(b[i] + step);
            }
            assert_int_equal(msp_tensor_view(&p.n, n, cases[c].type, 1, &count, NULL), MSP_OK);
            assert_int_equal(msp_tensor_view(&p.b, b, cases[c].type, 1, &count, NULL), MSP_OK);
            check_against_oracle(&p);
        }
}

/* In the last elements of a block, which go another way than all before them. */
static void
bfloat16_near_a_zero_is_below_a_thousandth(void **state)
{
    uint16_t n[13], b[13];
    msp_metrics m;

    (void)state;
    for (int i = 0; i < 13; i++)
        n[i] = b[i] = 0x3f80;
    n[11] = msp_f32_to_bf16(1e-25f);
    b[11] = 0;
    m = compare(MSP_BF16, n, b, 13);
    assert_int_equal(m.below_1e3, 13);
    assert_int_equal(m.mape_count, 12);
}

/* Quotients that are powers of two: their sum is exact in double, while float32 loses the small ones beside a large. */
static void
the_mean_relative_error_is_summed_in_double(void **state)
{
    enum { N = 100000 };
    static float n[N], b[N];
    msp_metrics m;

    (void)state;
    for (int i = 0; i < N; i++) {
        b[i] = 1024;
        n[i] = i % 256 == 0 ? 0x1p30f + 1024 : 1025;
    }
    m = compare(MSP_F32, n, b, N);
    assert_true(m.mape == (391 * 0x1p20 + (N - 391) * 0x1p-10) / N);
}

static void
large_doubles_do_not_overflow_what_is_finite(void **state)
{
    double n[4] = {3e200, 1e200, -2e200, 1}, b[4] = {3e200, 2e200, -2e200, 1};
    msp_metrics m = compare(MSP_F64, n, b, 4);

    (void)state;
    assert_near("cosine", m.cosine, 15.0L / (sqrtl(14) * sqrtl(17)), 1e-15);
    assert_near("euc_dist", m.euc_dist, 1e200, 1e185);
    assert_near("rmse", m.rmse, 5e199, 1e185);
    assert_true(isinf(m.sq_n) && isinf(m.sq_b) && isinf(m.dot));
    n[0] = DBL_MAX;
    b[0] = -DBL_MAX;
    m = compare(MSP_F64, n, b, 4);
    assert_true(isinf(m.euc_dist) && isinf(m.max_abs_err) && isinf(m.max_rel_err));
    assert_int_equal(m.max_abs_index, 0);
    assert_near("cosine", m.cosine, -1, 1e-15);
}

static void
small_doubles_do_not_underflow(void **state)
{
    double n[3] = {3e-200, 5e-300, 0}, b[3] = {0, 5e-300, 4e-200};
    msp_metrics m = compare(MSP_F64, n, b, 3);

    (void)state;
    assert_near("euc_dist", m.euc_dist, 5e-200, 1e-215);
    assert_true(m.cosine == 1);
}

static void
complex_numbers_are_compared_as_such(void **state)
{
    double n[] = {3, 4, 1, 1, 1e300, 1e300, 0, 1}, b[] = {0, 0, 1, 2, 1e300, 1e300, 0, 1};
    float bad_n[] = {NAN, 0, INFINITY, 1, INFINITY, 1, 1, INFINITY, 1, 1};
    float bad_b[] = {1, NAN, INFINITY, 2, -INFINITY, 1, 1, 1, 1, 1};
    msp_metrics m = compare(MSP_C128, n, b, 4);

    (void)state;
    assert_true(m.max_abs_err == 5 && m.max_abs_index == 0);
    assert_near("max_rel_err", m.max_rel_err, 5 / (real)DBL_EPSILON, 1);
    assert_near("euc_dist", m.euc_dist, sqrtl(26), 1e-15);
    assert_near("mape", m.mape, 1 / sqrtl(5) / 3, 1e-15);
    assert_int_equal(m.mape_count, 3);
    m = compare(MSP_C64, bad_n, bad_b, 5);
    assert_int_equal(m.mismatches, 1);
    assert_int_equal(m.first_mismatch, 3);
    assert_int_equal(m.inf_sign, 1);
    assert_true(m.max_abs_err == 0);
}

static void
integers_beyond_double_differ_exactly(void **state)
{
    int64_t n[] = {INT64_MAX, (1ll << 60) + 1, INT64_MIN}, b[] = {INT64_MAX - 1, 1ll << 60, INT64_MAX};
    msp_metrics m = compare(MSP_I64, n, b, 2);

    (void)state;
    assert_true(m.max_abs_err == 1 && m.max_abs_index == 0);
    assert_true(m.max_rel_err == 0);
    for (int bits = 53; bits < 63; bits++) { /* odd numbers from here on are no doubles */
        n[0] = (1ll << bits) + 1;
        b[0] = 1ll << bits;
        m = compare(MSP_I64, n, b, 1);
        assert_true(m.max_abs_err == 1 && m.euc_dist == 1);
    }
    m = compare(MSP_I64, n, b, 3);
    assert_true(m.max_abs_err == 0x1p64 && m.max_abs_index == 2);
}

int
main(void)
{
    const struct CMUnitTest tests[] =
    { TEST(every_type_pattern_and_length_agrees_with_the_oracle),
      TEST(many_chunks_agree_with_the_oracle),
      TEST(every_level_gives_the_same_bits),
      TEST(any_number_of_threads_gives_the_same_bits),
      TEST(what_tables_show_is_the_same_without_the_rest),
      TEST(alignment_does_not_matter),
      TEST(strides_do_not_matter),
#if defined(__x86_64__)
      TEST(flushing_subnormals_does_not_matter),
#endif
      TEST(no_elements_have_no_errors),
      TEST(shapes_must_agree),
      TEST(scalars_are_one_element),
      TEST(the_first_of_several_largest_errors_is_named),
      TEST(the_largest_difference_is_exact),
      TEST(rounding_to_float16_decides_which_relative_error_is_largest),
      TEST(a_relative_error_beyond_float32_is_found),
      TEST(all_16_bit_mantissas_and_their_neighbours_agree_with_the_oracle),
      TEST(bfloat16_near_a_zero_is_below_a_thousandth),
      TEST(the_mean_relative_error_is_summed_in_double),
      TEST(large_doubles_do_not_overflow_what_is_finite),
      TEST(small_doubles_do_not_underflow),
      TEST(complex_numbers_are_compared_as_such),
      TEST(integers_beyond_double_differ_exactly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
