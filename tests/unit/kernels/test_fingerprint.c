/* test_fingerprint.c - what the fingerprint must tell apart, and what must not change it. */
#include "unit.h"

#include <inttypes.h>
#include "core/cpu.h"
#include "msprobe/stats.h"

enum { BYTES = 100000 };

static uint8_t bytes[BYTES];

static int
fill(void **state)
{
    uint32_t x = 1;

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        x = x * 1664525 + 1013904223;
        bytes[i] = (uint8_t)(x >> 24);
    }
    return 0;
}

static msp_fingerprint
of(const void *data, msp_dtype dtype, int32_t ndim, const int64_t *shape)
{
    msp_tensor t;

    assert_int_equal(msp_tensor_view(&t, data, dtype, ndim, shape, NULL), MSP_OK);
    return msp_fingerprint_of(&t);
}

static msp_fingerprint
of_bytes(const void *data, int64_t n)
{
    return of(data, MSP_U8, 1, &n);
}

static int
same(msp_fingerprint a, msp_fingerprint b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

/* Neither half alone may agree either: each is as good a hash as 64 bits can be. */
static int
unrelated(msp_fingerprint a, msp_fingerprint b)
{
    return a.hi != b.hi && a.lo != b.lo;
}

static int
compare(const void *a, const void *b)
{
    const msp_fingerprint *x = a, *y = b;

    if (x->hi != y->hi)
        return x->hi < y->hi ? -1 : 1;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static void
assert_all_differ(msp_fingerprint *f, size_t n)
{
    qsort(f, n, sizeof(*f), compare);
    for (size_t i = 1; i < n; i++)
        assert_true(unrelated(f[i - 1], f[i]));
}

/* Recorded from the definition in fingerprint.h, computed in another language: no machine and no later version may
 * give anything else. */
static void
known_tensors_have_known_fingerprints(void **state)
{
    static const struct {
        msp_dtype dtype;
        int32_t ndim;
        int64_t shape[2];
        const char *text;
    } known[] = {
        {MSP_U8, 1, {0}, "938876f0c7fec7540cb13febad92b446"},
        {MSP_U8, 0, {0}, "bc6e13d6f1beb16337c49be3a75e2142"},
        {MSP_F32, 2, {16, 2}, "65c56f46998a40bc6ce7bdfa97f948e8"},
        {MSP_F64, 1, {33}, "59bacb2a937e23d8aede29282be18df2"},
        {MSP_F16, 2, {123, 77}, "9b4703d4feb1eaab13aade653d114cb5"},
    };
    char text[33];

    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        msp_fingerprint_format(text, of(bytes, known[i].dtype, known[i].ndim, known[i].shape));
        assert_string_equal(text, known[i].text);
    }
}

static void
every_level_gives_the_same(void **state)
{
    (void)state;
    for (int64_t n = 0; n < BYTES; n = n < 300 ? n + 1 : n * 2 + 1) {
        msp_fingerprint best = of_bytes(bytes, n);

        for (int level = MSP_CPU_SCALAR; level < MSP_CPU_LEVELS; level++) {
            msp_cpu_limit((msp_cpu_level)level);
            assert_true(same(best, of_bytes(bytes, n)));
        }
        msp_cpu_limit(MSP_CPU_LEVELS);
    }
}

static void
strides_do_not_matter(void **state)
{
    static uint16_t copy[200 * 77];
    int64_t shape[] = {77, 200};
    msp_tensor t;

    (void)state;
    assert_int_equal(msp_tensor_view(&t, bytes, MSP_BF16, 2, shape, NULL), MSP_OK);
    t.strides[0] = 1;
    t.strides[1] = 77;
    for (int64_t i = 0; i < t.numel; i++)
        memcpy(copy + i, msp_tensor_at(&t, i), 2);
    assert_true(same(msp_fingerprint_of(&t), of(copy, MSP_BF16, 2, shape)));
}

static void
every_bit_matters_and_flips_half_of_the_result(void **state)
{
    enum { N = 500 };
    static msp_fingerprint all[8 * N + 1];
    uint8_t copy[N];
    msp_fingerprint base;
    long flipped[128] = {0};

    (void)state;
    memcpy(copy, bytes, N);
    base = all[8 * N] = of_bytes(copy, N);
    for (int bit = 0; bit < 8 * N; bit++) {
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        all[bit] = of_bytes(copy, N);
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        for (int i = 0; i < 64; i++) {
            flipped[i] += ((all[bit].lo ^ base.lo) >> i) & 1;
            flipped[64 + i] += ((all[bit].hi ^ base.hi) >> i) & 1;
        }
    }
    for (int i = 0; i < 128; i++) /* 4000 fair coins: standard deviation 32 */
        assert_in_range(flipped[i], 2000 - 5 * 32, 2000 + 5 * 32);
    assert_all_differ(all, 8 * N + 1);
}

static void
two_flipped_bits_never_cancel(void **state)
{
    enum { WORDS = 48, PAIRS = WORDS * (WORDS - 1) / 2 };
    static msp_fingerprint all[PAIRS * 9];
    static const uint64_t masks[3] = {1, 1ull << 31, 1ull << 63}; /* lowest bit, and the signs of float32 and float64 */
    uint64_t words[WORDS] = {0};
    size_t n = 0;

    (void)state;
    for (int i = 0; i < WORDS; i++)
        for (int j = i + 1; j < WORDS; j++)
            for (int m = 0; m < 9; m++) {
                words[i] ^= masks[m / 3];
                words[j] ^= masks[m % 3];
                all[n++] = of_bytes(words, sizeof(words));
                words[i] = words[j] = 0;
            }
    assert_all_differ(all, n);
}

/* Three stripes of one chain, with every subset of the sign bits of float16, and so of float32 and float64 too. */
static void
every_pattern_of_signs_differs(void **state)
{
    enum { STRIPES = 3, PATTERNS = 1 << 4 * STRIPES };
    static msp_fingerprint all[PATTERNS];
    uint16_t halves[STRIPES * 64];
    int64_t shape = STRIPES * 64;

    (void)state;
    for (int pattern = 0; pattern < PATTERNS; pattern++) {
        for (int i = 0; i < STRIPES * 64; i++)
            halves[i] = 0x3c00; /* 1 */
        for (int bit = 0; bit < 4 * STRIPES; bit++)
            halves[bit / 4 * 64 + bit % 4] ^= (uint16_t)((pattern >> bit & 1) << 15);
        all[pattern] = of(halves, MSP_F16, 1, &shape);
    }
    assert_all_differ(all, PATTERNS);
}

static void
swapped_elements_differ(void **state)
{
    enum { N = 100 }; /* more than three stripes of float32 */
    static msp_fingerprint all[N * (N - 1) / 2 + 1];
    float values[N];
    int64_t shape = N;
    size_t n = 0;

    (void)state;
    for (int i = 0; i < N; i++)
        values[i] = (float)i;
    all[n++] = of(values, MSP_F32, 1, &shape);
    for (int i = 0; i < N; i++)
        for (int j = i + 1; j < N; j++) {
            values[i] = (float)j;
            values[j] = (float)i;
            all[n++] = of(values, MSP_F32, 1, &shape);
            values[i] = (float)i;
            values[j] = (float)j;
        }
    assert_all_differ(all, n);
}

static void
swapped_stripes_differ(void **state)
{
    uint8_t copy[128 * 6];
    msp_fingerprint all[16];
    size_t n = 0;

    (void)state;
    memcpy(copy, bytes, sizeof(copy));
    all[n++] = of_bytes(copy, sizeof(copy));
    for (size_t i = 0; i < 6; i++)
        for (size_t j = i + 1; j < 6; j++) {
            memcpy(copy, bytes, sizeof(copy));
            memcpy(copy + 128 * i, bytes + 128 * j, 128);
            memcpy(copy + 128 * j, bytes + 128 * i, 128);
            all[n++] = of_bytes(copy, sizeof(copy));
        }
    assert_all_differ(all, n);
}

static void
shapes_of_the_same_bytes_differ(void **state)
{
    static const struct {
        int32_t ndim;
        int64_t shape[4];
    } shapes[] = {{1, {24}},         {2, {4, 6}},       {2, {6, 4}},       {2, {24, 1}},       {2, {1, 24}},
                  {3, {1, 24, 1}},   {3, {2, 3, 4}},    {3, {4, 3, 2}},    {4, {1, 1, 1, 24}}, {4, {24, 1, 1, 1}},
                  {4, {2, 2, 2, 3}}, {4, {3, 2, 2, 2}}, {4, {1, 2, 1, 12}}};
    msp_fingerprint all[sizeof(shapes) / sizeof(shapes[0])];

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        all[i] = of(bytes, MSP_F32, shapes[i].ndim, shapes[i].shape);
    assert_all_differ(all, sizeof(all) / sizeof(all[0]));
}

static void
types_of_the_same_bytes_differ(void **state)
{
    msp_fingerprint all[MSP_DTYPE_COUNT];
    size_t n = 0;

    (void)state;
    for (int t = MSP_F64; t < MSP_DTYPE_COUNT; t++) {
        int64_t shape = 1024 / (int64_t)msp_dtype_size((msp_dtype)t);

        all[n++] = of(bytes, (msp_dtype)t, 1, &shape);
    }
    assert_all_differ(all, n);
}

static void
zeros_of_every_length_differ(void **state)
{
    enum { N = 3000 };
    static uint8_t zeros[N];
    static msp_fingerprint all[N];

    (void)state;
    for (int64_t n = 0; n < N; n++)
        all[n] = of_bytes(zeros, n);
    assert_all_differ(all, N);
}

static void
empty_tensors_differ_by_shape_and_type(void **state)
{
    int64_t a[] = {0, 3}, b[] = {3, 0}, c[] = {0};
    msp_fingerprint all[] = {of(NULL, MSP_F32, 2, a), of(NULL, MSP_F32, 2, b), of(NULL, MSP_F32, 1, c),
                             of(NULL, MSP_F64, 1, c)};

    (void)state;
    assert_all_differ(all, 4);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(known_tensors_have_known_fingerprints),
        TEST(every_level_gives_the_same),
        TEST(strides_do_not_matter),
        TEST(every_bit_matters_and_flips_half_of_the_result),
        TEST(two_flipped_bits_never_cancel),
        TEST(every_pattern_of_signs_differs),
        TEST(swapped_elements_differ),
        TEST(swapped_stripes_differ),
        TEST(shapes_of_the_same_bytes_differ),
        TEST(types_of_the_same_bytes_differ),
        TEST(zeros_of_every_length_differ),
        TEST(empty_tensors_differ_by_shape_and_type),
    };

    return cmocka_run_group_tests(tests, fill, NULL);
}
