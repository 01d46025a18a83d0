/*
 * pair.h - what pair.c asks of the instruction sets: the metrics of one block of two tensors.
 *
 * A block is up to MSP_PAIR_BLOCK consecutive elements of both tensors, without gaps. pair.c cuts the tensors into
 * blocks and adds their results up in an order that depends on the number of elements alone. So what matters here is
 * the order inside a block, and every variant keeps it.
 */
#ifndef MSP_KERNELS_PAIR_H
#define MSP_KERNELS_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MSP_PAIR_BLOCK = 2048 }; /* for 16-bit floats twice as many: see msp_pair_view */

#define MSP_PAIR_EPS 0x1p-52 /* what both sides get where the reference is 0: numpy.finfo(float).eps */

/* What both sides of a block hold, and with it the type that relative errors are computed in. */
typedef enum msp_pair_kind {
    MSP_PAIR_F16,  /* float16 */
    MSP_PAIR_BF16, /* float32 */
    MSP_PAIR_F32,  /* float32, or float16 with the flag MSP_PAIR_HALF */
    MSP_PAIR_F64,  /* float64 */
    MSP_PAIR_VECTOR_KINDS,
    MSP_PAIR_C128 = MSP_PAIR_VECTOR_KINDS, /* these two are nobody's bottleneck: see pair_plain.h */
    MSP_PAIR_I128
} msp_pair_kind;

/*
 * What one pass over a block gives; d is n - b.
 *
 * float16 and bfloat16 are added up in float32: see precise() in pair.c.
 *
 * max_abs is exact, but float16 and bfloat16 round it to float32 where max_rel is MSP_PAIR_HALF_EXACT or more. max_rel
 * is exact but for two cases: what exceeds the range of float32 is infinite for the smaller kinds; and relative errors
 * in float16 come unrounded and, from MSP_PAIR_HALF_EXACT on, from an unrounded difference, which leaves them within
 * 2^-9 of the truth.
 */
typedef struct msp_pair_sums {
    double dot, sq_n, sq_b, sq_d;
    double rel; /* sum of |d| / |b| where b is not 0; the smaller kinds round each quotient to float32 first */
    double max_abs, max_rel;
    int64_t below_1e3, below_5e3;
    int64_t zeros; /* elements of b that are 0; counted only with MSP_PAIR_ZEROS */
} msp_pair_sums;

/* Below this n lies between b/2 and 2b, so that n - b is a float16 if n and b are. */
#define MSP_PAIR_HALF_EXACT 0.49

enum {
    MSP_PAIR_ZEROS = 1, /* b may hold zeros. The loop without this flag is shorter: see sums */
    MSP_PAIR_HALF = 2   /* MSP_PAIR_F32 only: the elements came from float16, relative errors are float16 */
};

/* The instances of one instruction set. Pointers may be unaligned; elements are finite unless said otherwise. */
typedef struct msp_pair_set {
    /*
     * The sums of a block. A NaN or an infinity makes sq_n or sq_b not finite, and a zero in b, without MSP_PAIR_ZEROS,
     * makes rel not finite: the caller looks at them afterwards, and has to ask again in another way. Nothing is
     * checked in the loops.
     */
    void (*sums[MSP_PAIR_VECTOR_KINDS])(msp_pair_sums *out, const void *n, const void *b, size_t count, unsigned flags);

    /* The sum of |d| / |b| where b is not 0, with 15 digits. */
    double (*rel_sum)(const float *n, const float *b, size_t count);

    /* The exact largest |d|, and relative error. */
    double (*max_abs)(const float *n, const float *b, size_t count);
    double (*max_rel)(const float *n, const float *b, size_t count, bool half);

    /* The first element that has the block's largest |d|, or relative error. */
    size_t (*find_abs)(const float *n, const float *b, size_t count, double abs);
    size_t (*find_rel)(const float *n, const float *b, size_t count, double rel, bool half);
    size_t (*find_abs_f64)(const double *n, const double *b, size_t count, double abs);
    size_t (*find_rel_f64)(const double *n, const double *b, size_t count, double rel);

    /* Any elements, finite or not. */
    void (*f16_to_f32)(float *dst, const void *src, size_t count);
    void (*bf16_to_f32)(float *dst, const void *src, size_t count);
} msp_pair_set;

extern const msp_pair_set msp_pair_scalar;
#if defined(__x86_64__)
extern const msp_pair_set msp_pair_avx2;
extern const msp_pair_set msp_pair_avx512;
#elif defined(__aarch64__)
extern const msp_pair_set msp_pair_neon;
#endif

#endif
