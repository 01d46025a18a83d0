/*
 * stats.h - what one pass over one tensor tells, and its checksums.
 *
 * Same bits for the same elements on every CPU, instruction set and number of threads, contiguous or strided.
 */
#ifndef MSPROBE_STATS_H
#define MSPROBE_STATS_H

#include "msprobe/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * max, min, mean and norm are what torch's max(), min(), mean() and norm() mean mathematically, accumulated in double:
 * a NaN among the elements makes all four NaN, fp16 does not overflow, int64 is summed exactly. bool counts as 0 and 1.
 * Complex tensors have mean (of the real parts, and imaginary parts in mean_imag; a NaN in one leaves the other) and
 * norm; their max and min are NaN. +0 is above -0. The norm is finite wherever the true one is, and the mean lies
 * between min and max. An empty tensor has count 0 and NaN in all four, norm 0.
 */
typedef struct msp_stats {
    int64_t count; /* elements looked at */
    double max, min, mean, norm;
    double mean_imag;         /* complex only, else 0 */
    int64_t max_int, min_int; /* exact extremes of integer and bool tensors (uint64: the bits of a uint64_t), else 0 */
    double max_finite;        /* extremes of the finite elements; NaN when there are none */
    double min_finite;
    int64_t nan, pos_inf, neg_inf, zero, subnormal; /* float and complex (an element counts once per part) */
    int64_t first_bad;                              /* row-major index of the first NaN or inf, -1 when there is none */
} msp_stats;

/*
 * Statistics of t. Never fails, never allocates, calls no thread: a few microseconds for small tensors. t->data must
 * hold what t describes.
 */
MSP_API void msp_stats_compute(msp_stats *out, const msp_tensor *t);

/* msp_stats_compute(), to the bit, on up to nthreads threads of the library's pool when the tensor is large; 0: one per
 * core. */
MSP_API void msp_stats_compute_mt(msp_stats *out, const msp_tensor *t, int nthreads);

/* CRC-32 (zlib's, ISO 3309) of the elements' bytes in row-major order: dump.json's "md5" field is its 8 hex digits. */
MSP_API uint32_t msp_crc32(const msp_tensor *t);

/* CRC-32 of plain bytes, continuing from crc (0 to begin). Same result as zlib's crc32(). */
MSP_API uint32_t msp_crc32_bytes(uint32_t crc, const void *p, size_t n);

/*
 * A 128-bit fingerprint of dtype, shape and elements in order: equal tensors have equal fingerprints on every machine;
 * it is not cryptographic.
 */
typedef struct msp_fingerprint {
    uint64_t hi, lo;
} msp_fingerprint;

/* Never fails, never allocates. t->data must hold what t describes. */
MSP_API msp_fingerprint msp_fingerprint_of(const msp_tensor *t);

/* 32 lower-case hex digits and a terminator. */
MSP_API void msp_fingerprint_format(char buf[33], msp_fingerprint f);

#ifdef __cplusplus
}
#endif
#endif
