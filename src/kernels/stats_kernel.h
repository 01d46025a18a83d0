/*
 * stats_kernel.h - what the statistics kernels of every instruction set do, to the bit.
 *
 * A kernel looks at one run of elements without gaps (at most MSP_STATS_BLOCK_BYTES) and adds to a tally in memory.
 * Runs of one block follow each other; all but the last have a multiple of 16 elements, so that lanes stay in step.
 *
 * Floats: elements are taken in groups of 16, the last group filled up with zeros, and converted to double exactly as
 * d[0..15] (bfloat16: first the eight even ones, then the eight odd ones, as shifting and masking 32-bit words gives
 * them). Each group does
 *
 *     sum[j] += d[j] + d[j + 8]        j in 0..7
 *     square[j] += d[j] * d[j]         j in 0..15
 *
 * with every operation rounded on its own (for float32 and narrower the product is exact, so a fused multiply-add may
 * be used there, and only there). Even lanes of float32 and float64 hold the even elements: the real parts of complex
 * numbers. Extremes and counts come from the bits, as integers: IEEE floats of one sign are ordered like their bits.
 * Three extremes say all (see msp_stats_max_bits): the largest as signed integers, the largest and the least as
 * unsigned. They also tell whether there was any infinity or NaN; a block that has some is done again with those
 * replaced by +0 (clean16 and its wider forms), so that the common case does not pay for them.
 *
 * Integers: exact sums; order does not matter. Unsigned types come as signed ones with their top bit flipped.
 */
#ifndef MSP_KERNELS_STATS_KERNEL_H
#define MSP_KERNELS_STATS_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum msp_half_kind { MSP_HALF_F16, MSP_HALF_BF16 } msp_half_kind;

enum {
    MSP_STATS_GROUP = 16,
    MSP_STATS_BLOCK_BYTES = 65536 /* small enough to stay in a cache while a block is done again */
};

/* The bits of extremes: see above. Neutral: INT64_MIN, 0, UINT64_MAX. */
typedef struct msp_stats_range {
    int64_t signed_max; /* sign-extended from the element's width */
    uint64_t unsigned_max;
    uint64_t unsigned_min; /* may be too large where both signs occur: nobody needs it then */
} msp_stats_range;

typedef struct msp_stats_floats {
    double sum[8];
    double square[16];
    msp_stats_range range;
    int64_t zero; /* +0 and -0 */
    int64_t tiny; /* subnormal or zero */
    /*
     * Set by the caller for a tensor's first run, and handed from run to run. A kernel may clear it once a run has both
     * signs, or a zero: what follows cannot be the least of one sign then, and need not be searched for it.
     */
    bool seek_least;
} msp_stats_floats;

typedef struct msp_stats_ints {
    int64_t sum;
    uint64_t square_lo; /* sum of squares: square_hi * 2^32 + square_lo */
    uint64_t square_hi;
    double square[16]; /* 64-bit types only, whose squares are rounded: lanes as for floats */
    uint64_t sum_lo;   /* 64-bit types only: low 32 bits of the elements; sum then holds the rest, divided by 2^32 */
    int64_t max, min;
} msp_stats_ints;

/* What a cleaned run held besides finite numbers. */
typedef struct msp_stats_bad {
    int64_t nan, pos_inf, neg_inf;
} msp_stats_bad;

typedef void msp_stats_float_fn(msp_stats_floats *out, const void *p, size_t n);
typedef void msp_stats_int_fn(msp_stats_ints *out, const void *p, size_t n, uint64_t flip);

/*
 * Copy n elements, NaN and infinities replaced by +0; count those in *bad and add the extremes of the others to *range.
 * inf holds the bits of +infinity.
 */
typedef void msp_stats_clean_fn(void *dst, const void *src, size_t n, uint64_t inf, msp_stats_range *range,
                                msp_stats_bad *bad);

/*
 * How an 8-bit float becomes a 16-bit one of the same sign, exponent field and mantissa, its value divided by a power
 * of two that the caller knows: sign << 8 | magnitude << shift, but a NaN where (byte & nan_mask) == nan_code.
 */
typedef struct msp_stats_f8 {
    uint8_t shift, nan_mask, nan_code;
} msp_stats_f8;

typedef struct msp_stats_kernels {
    msp_stats_float_fn *f16, *bf16, *f32, *f64;
    msp_stats_int_fn *i8, *i16, *i32, *i64;
    msp_stats_clean_fn *clean16, *clean32, *clean64;
    void (*scale)(double *p, size_t n, double factor);
    int64_t (*count_true)(const void *p, size_t n); /* bytes that are not 0 */
    void (*widen_f8)(uint16_t *dst, const void *src, size_t n, const msp_stats_f8 *how);
} msp_stats_kernels;

extern const msp_stats_kernels msp_stats_scalar;
#if defined(__x86_64__)
extern const msp_stats_kernels msp_stats_avx2;
extern const msp_stats_kernels msp_stats_avx512;
#elif defined(__aarch64__)
extern const msp_stats_kernels msp_stats_neon;
#endif

/* Zero n doubles, n even. A plain loop becomes "rep stos" with gcc 12, whose start alone takes longer than all this. */
static inline void
msp_stats_clear(double *p, int n)
{
    for (int i = 0; i < n; i += 2) {
        p[i] = p[i + 1] = 0;
        __asm__ volatile("" : : "r"(p) : "memory");
    }
}

static inline void
msp_stats_note_range(msp_stats_range *r, int64_t signed_max, uint64_t unsigned_max, uint64_t unsigned_min)
{
    r->signed_max = signed_max > r->signed_max ? signed_max : r->signed_max;
    r->unsigned_max = unsigned_max > r->unsigned_max ? unsigned_max : r->unsigned_max;
    r->unsigned_min = unsigned_min < r->unsigned_min ? unsigned_min : r->unsigned_min;
}

/* The bits of the largest and of the smallest float of a range that is not empty, width bits wide; -0 is below +0. */
static inline uint64_t
msp_stats_max_bits(const msp_stats_range *r)
{
    return r->signed_max >= 0 ? (uint64_t)r->signed_max : r->unsigned_min;
}

static inline uint64_t
msp_stats_min_bits(const msp_stats_range *r, int width)
{
    return r->unsigned_max >> (width - 1) != 0 ? r->unsigned_max : r->unsigned_min;
}

#endif
