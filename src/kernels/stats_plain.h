/*
 * stats_plain.h - the parts of the statistics kernels that are plain loops: the compiler turns them into SIMD code.
 *
 * Included by each instance after it has defined KERNEL_ATTRIBUTES (its target attribute, or nothing). Reductions are
 * over integers, where order does not matter, or have 16 lanes. Narrow counters and accumulators make the loops
 * vectorise; MSP_STATS_BLOCK_BYTES keeps them from overflowing.
 */
#include <stdint.h>
#include <string.h>
#include "dtype/convert.h"
#include "kernels/stats_kernel.h"

/* Elements at any address. */
typedef int16_t any_i16 __attribute__((aligned(1), may_alias));
typedef int32_t any_i32 __attribute__((aligned(1), may_alias));
typedef int64_t any_i64 __attribute__((aligned(1), may_alias));
typedef uint16_t any_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t any_u32 __attribute__((aligned(1), may_alias));
typedef uint64_t any_u64 __attribute__((aligned(1), may_alias));

static inline void
widen_range(msp_stats_ints *out, int64_t max, int64_t min)
{
    out->max = max > out->max ? max : out->max;
    out->min = min < out->min ? min : out->min;
}

KERNEL_ATTRIBUTES static void
plain_i8(msp_stats_ints *out, const void *p, size_t n, uint64_t flip)
{
    const int8_t *x = p;
    int8_t max = INT8_MIN, min = INT8_MAX;
    int32_t sum = 0, square = 0; /* 2^16 elements of at most 2^14 each */

    for (size_t i = 0; i < n; i++) {
        int8_t v = (int8_t)(x[i] ^ (int8_t)flip);

        max = v > max ? v : max;
        min = v < min ? v : min;
    }
    for (size_t i = 0; i < n; i++) {
        int16_t v = (int8_t)(x[i] ^ (int8_t)flip);

        sum += v;
        square += v * v;
    }
    out->sum += sum;
    out->square_lo += (uint32_t)square;
    widen_range(out, max, min);
}

KERNEL_ATTRIBUTES static void
plain_i16(msp_stats_ints *out, const void *p, size_t n, uint64_t flip)
{
    const any_i16 *x = p;
    int16_t max = INT16_MIN, min = INT16_MAX;
    int32_t sum = 0;                       /* 2^15 elements of at most 2^15 */
    uint32_t square_lo = 0, square_hi = 0; /* 16 bits of each square, so that 32 are enough */

    for (size_t i = 0; i < n; i++) {
        int16_t v = (int16_t)(x[i] ^ (int16_t)flip);

        max = v > max ? v : max;
        min = v < min ? v : min;
    }
    for (size_t i = 0; i < n; i++) {
        int16_t v = (int16_t)(x[i] ^ (int16_t)flip);
        uint32_t square = (uint32_t)(v * v);

        sum += v;
        square_lo += square & UINT16_MAX;
        square_hi += square >> 16;
    }
    out->sum += sum;
    out->square_lo += square_lo + ((uint64_t)square_hi << 16);
    widen_range(out, max, min);
}

KERNEL_ATTRIBUTES static void
plain_i32(msp_stats_ints *out, const void *p, size_t n, uint64_t flip)
{
    const any_i32 *x = p;
    int32_t max = INT32_MIN, min = INT32_MAX;
    int64_t sum = 0;
    uint64_t lo = 0, hi = 0;

    for (size_t i = 0; i < n; i++) {
        int32_t v = x[i] ^ (int32_t)(uint32_t)flip;
        uint64_t square = (uint64_t)((int64_t)v * v);

        max = v > max ? v : max;
        min = v < min ? v : min;
        sum += v;
        lo += square & UINT32_MAX;
        hi += square >> 32;
    }
    out->sum += sum;
    out->square_lo += lo;
    out->square_hi += hi;
    widen_range(out, max, min);
}

/*
 * 64-bit integers as unsigned numbers z: signed ones plus 2^63.
 *
 * The value of z - offset, rounded once to the nearest double. Both halves are put where a double's mantissa is, under
 * exponents that make them whole numbers of 1 and of 2^32: there is no instruction for this before AVX-512. offset is 0
 * or 2^63.
 */
static inline double
value_i64(uint64_t z, double offset)
{
    double upper = msp_f64_from_bits(z >> 32 | msp_f64_bits(0x1p84)) - (0x1p84 + offset);
    double lower = msp_f64_from_bits((z & UINT32_MAX) | msp_f64_bits(0x1p52)) - 0x1p52;

    return upper + lower;
}

KERNEL_ATTRIBUTES static void
squares_i64(double out[16], const any_u64 *x, size_t n, uint64_t to_unsigned)
{
    const double offset = to_unsigned != 0 ? 0x1p63 : 0;
    double square[16];
    size_t i;

    memcpy(square, out, sizeof(square));
    for (i = 0; i + 16 <= n; i += 16)
        for (size_t j = 0; j < 16; j++) {
            double d = value_i64(x[i + j] ^ to_unsigned, offset);

            square[j] += d * d;
        }
    for (size_t j = 0; i + j < n; j++) {
        double d = value_i64(x[i + j] ^ to_unsigned, offset);

        square[j] += d * d;
    }
    memcpy(out, square, sizeof(square));
}

KERNEL_ATTRIBUTES static void
plain_i64(msp_stats_ints *out, const void *p, size_t n, uint64_t flip)
{
    const any_u64 *x = p;
    const uint64_t top = UINT64_C(1) << 63, to_unsigned = flip ^ top;
    int64_t max = INT64_MIN, min = INT64_MAX;
    uint64_t lower = 0, upper = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t z = x[i] ^ to_unsigned;
        int64_t y = (int64_t)(z ^ top);

        max = y > max ? y : max;
        min = y < min ? y : min;
        lower += z & UINT32_MAX;
        upper += z >> 32;
    }
    squares_i64(out->square, x, n, to_unsigned);
    out->sum += (int64_t)upper - ((int64_t)n << 31); /* y = z - 2^63 */
    out->sum_lo += lower;
    widen_range(out, max, min);
}

#define CLEAN(name, unsigned_t, signed_t, any_t, lowest)                                          \
    KERNEL_ATTRIBUTES static void name(void *dst, const void *src, size_t n, uint64_t inf_bits,   \
                                       msp_stats_range *range, msp_stats_bad *bad)                \
    {                                                                                             \
        const any_t *restrict x = src;                                                            \
        unsigned_t *restrict y = dst;                                                             \
        const unsigned_t sign = (unsigned_t)(lowest), inf = (unsigned_t)inf_bits;                 \
        unsigned_t nan = 0, pos = 0, neg = 0, unsigned_max = 0, unsigned_min = (unsigned_t)~0ull; \
        signed_t signed_max = (lowest);                                                           \
                                                                                                  \
        for (size_t i = 0; i < n; i++) {                                                          \
            unsigned_t v = x[i], magnitude = (unsigned_t)(v & ~sign);                             \
            unsigned_t hide = magnitude >= inf ? (unsigned_t)~0ull : 0;                           \
            unsigned_t low = (unsigned_t)(v | hide), high = (unsigned_t)(v & ~hide);              \
            signed_t top = (signed_t)(high | (hide & sign));                                      \
                                                                                                  \
            nan = (unsigned_t)(nan + (magnitude > inf));                                          \
            pos = (unsigned_t)(pos + (v == inf));                                                 \
            neg = (unsigned_t)(neg + (v == (unsigned_t)(inf | sign)));                            \
            signed_max = top > signed_max ? top : signed_max;                                     \
            unsigned_max = high > unsigned_max ? high : unsigned_max;                             \
            unsigned_min = low < unsigned_min ? low : unsigned_min;                               \
            y[i] = high;                                                                          \
        }                                                                                         \
        msp_stats_note_range(range, signed_max, unsigned_max, unsigned_min);                      \
        bad->nan += (int64_t)nan;                                                                 \
        bad->pos_inf += (int64_t)pos;                                                             \
        bad->neg_inf += (int64_t)neg;                                                             \
    }

CLEAN(plain_clean16, uint16_t, int16_t, any_u16, INT16_MIN)
CLEAN(plain_clean32, uint32_t, int32_t, any_u32, INT32_MIN)
CLEAN(plain_clean64, uint64_t, int64_t, any_u64, INT64_MIN)
#undef CLEAN

KERNEL_ATTRIBUTES static void
plain_scale(double *p, size_t n, double factor)
{
    for (size_t i = 0; i < n; i++)
        p[i] *= factor;
}

KERNEL_ATTRIBUTES static int64_t
plain_count_true(const void *p, size_t n)
{
    const uint8_t *x = p;
    uint32_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += x[i] != 0;
    return count;
}

KERNEL_ATTRIBUTES static void
plain_widen_f8(uint16_t *restrict dst, const void *src, size_t n, const msp_stats_f8 *how)
{
    const uint8_t *restrict x = src;
    const uint16_t factor = (uint16_t)(1 << how->shift), mask = how->nan_mask, code = how->nan_code;

    for (size_t i = 0; i < n; i++) {
        uint16_t b = x[i];
        uint16_t wide = (uint16_t)((b & 0x80) << 8 | (uint16_t)((b & 0x7f) * factor));

        dst[i] = (b & mask) == code ? 0x7fff : wide;
    }
}

/* Their places in a table of kernels. */
#define PLAIN_KERNELS                                                                                         \
    .i8 = plain_i8, .i16 = plain_i16, .i32 = plain_i32, .i64 = plain_i64, .clean16 = plain_clean16,           \
    .clean32 = plain_clean32, .clean64 = plain_clean64, .scale = plain_scale, .count_true = plain_count_true, \
    .widen_f8 = plain_widen_f8
