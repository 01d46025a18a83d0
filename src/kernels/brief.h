/* brief.h - what a dump says of a tensor, for the many small ones: no more than that, in a fraction of the time. */
#ifndef MSP_KERNELS_BRIEF_H
#define MSP_KERNELS_BRIEF_H

#include <stdbool.h>
#include <stddef.h>
#include "msprobe/dtype.h"

typedef struct msp_stats_four {
    double max, min, mean, norm;
} msp_stats_four;

/*
 * Of n elements without gaps: the same bits as msp_stats_compute(). False, and *out is not set, when there are none, or
 * more than one block of them, when one is not finite, or when the type is not float32, float16 or bfloat16.
 */
bool msp_stats_brief(msp_stats_four *out, msp_dtype dtype, const void *p, int64_t n);

#endif
