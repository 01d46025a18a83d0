/*
 * metrics.h - how far two tensors are apart: one pass over both.
 *
 * Same bits for the same elements on every CPU, instruction set and number of threads, contiguous or strided. Nothing
 * is rounded here; what is shown to users is rounded where it is shown.
 */
#ifndef MSPROBE_METRICS_H
#define MSPROBE_METRICS_H

#include "msprobe/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * n is the examined tensor ("NPU"), b the reference ("bench"). Unless said otherwise elements are converted to double
 * exactly; the difference of two integers is formed exactly first; complex numbers are compared as the numbers they are
 * (|n-b| is a modulus, n*b is n times the conjugate of b, and dot its real part).
 *
 * Non-finite elements. Where both sides are NaN, or both are infinite, the position enters every sum as 0 on both sides
 * (an infinity of the other sign is counted in inf_sign too). Where only one side is NaN, or only one is infinite, it
 * is a mismatch: counted, located, and entered as 0 on both sides as well.
 *
 * Relative error of one element, r = |(n - b) / b|, is computed in the type that NumPy's promotion gives the two
 * tensors, with bfloat16 and float8 taken as float32 and everything that is not a float as float64: float16, float32 or
 * float64, each of the two operations rounded to that type. Where b is 0 both sides get 2.220446049250313e-16 added
 * first, in at least float32, so that n == b == 0 gives 0. Where the rounding to that type overflows to infinity the
 * double result stands instead. The limits 0.001 and 0.005 are rounded to that type too, as NumPy does.
 *
 * Sums are accumulated in double and are within 1e-12 of their value, dot within 1e-12 of the product of the norms.
 *
 * With one exception: two tensors of float16, or of bfloat16, of more than 65536 elements are added up in float32 in
 * parts of up to 4096 elements, and those in double. Sums, euc_dist, rmse and mape are then within 2^-18 (4e-6) of
 * their value, dot within 2^-16 of the product of the norms, whatever the numbers are. Rounding errors that do not all
 * go one way cancel out: for 10^5 random numbers it is some 3e-8, for 10^6 some 1e-8, for 10^8 some 1e-9. The cosine of
 * tensors that are nearly equal keeps more digits. Parts whose squares leave the range of float32, or whose norms
 * differ by more than a factor of four, are added up in double. Maxima, indices and counts are exact.
 *
 * For float64 and complex128 the squares of numbers beyond 1e154 exceed its range: then sq_n and sq_b, and dot if it
 * must, are infinite, while cosine, euc_dist and rmse are computed from scaled numbers.
 */
typedef struct msp_metrics {
    int64_t count;          /* elements compared, mismatches included */
    double dot, sq_n, sq_b; /* sums of n*b, n*n, b*b */
    double cosine;      /* dot / (sqrt(sq_n) * sqrt(sq_b)); 1 when both norms are <= 2.22e-16, NaN when only one is */
    double euc_dist;    /* sqrt of the sum of (n-b)^2 */
    double max_abs_err; /* largest |n-b|, 0 for no elements */
    int64_t max_abs_index; /* row-major index of the first element that has it, -1 for no elements */
    double max_rel_err;
    int64_t max_rel_index;
    int64_t below_1e3;  /* elements whose relative error is < 0.001 */
    int64_t below_5e3;  /* elements whose relative error is < 0.005 */
    double rmse;        /* sqrt of the mean of (n-b)^2; NaN for no elements */
    double mape;        /* mean of |n-b| / |b| over the elements with b != 0, as a fraction; NaN when there are none.
                           Summed in double but for the exception above. With more than 256 floats of at most 32 bits
                           each quotient is rounded to float32 first, which leaves the mean within 2^-24 of the truth,
                           and in practice much nearer since these errors cancel out: 1e-10 for a million elements;
                           else fifteen digits */
    int64_t mape_count; /* how many those are */
    int64_t inf_sign;   /* positions where both sides are infinite with different signs */
    int64_t mismatches; /* positions where one side is NaN, or infinite, and the other is not */
    int64_t first_mismatch; /* row-major index of the first of them, -1 when there is none */
    int64_t nonfinite;      /* positions where any side is NaN or infinite */
} msp_metrics;

/*
 * Compare two tensors of equal shape; dtypes may differ. Never allocates. Returns MSP_E_INVALID when the shapes differ.
 */
MSP_API MSP_CHECK msp_status msp_metrics_compute(msp_metrics *out, const msp_tensor *n, const msp_tensor *b,
                                                 msp_error *err);

/* msp_metrics_compute(), to the bit, on up to nthreads threads of the library's pool when the tensors are large; 0: one
 * per core. */
MSP_API MSP_CHECK msp_status msp_metrics_compute_mt(msp_metrics *out, const msp_tensor *n, const msp_tensor *b,
                                                    int nthreads, msp_error *err);

/*
 * msp_metrics_compute_mt() for tables, which show neither where the largest errors stand nor mape: the indices are -1,
 * and mape is NaN but for float64. With small tensors these take as long as all the rest.
 */
MSP_API MSP_CHECK msp_status msp_metrics_brief(msp_metrics *out, const msp_tensor *n, const msp_tensor *b, int nthreads,
                                               msp_error *err);

#ifdef __cplusplus
}
#endif
#endif
