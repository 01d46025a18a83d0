/*
 * stats_template.h - the statistics kernels of one instruction set.
 *
 * The instance defines, before it includes this file:
 *
 *     KERNEL_ATTRIBUTES                        its target attribute
 *     KERNEL_TABLE                             the name of its msp_stats_kernels
 *     sums                                     the 8 + 16 lanes of msp_stats_floats in registers, with
 *       sums_load, sums_store                    from and to the tally,
 *       sums_add_floats, sums_add_doubles        one group of 16 from memory
 *     halves                                   extremes and counts of 16-bit floats in registers, with
 *       halves_begin, halves_add, halves_end     32 elements at a time
 *     words, words_begin, words_add, words_end of 32-bit floats, 16 elements at a time
 *     longs, longs_begin, longs_add, longs_end of 64-bit floats, 16 elements at a time
 *     LEAST_IS_DEAR                            1: a loop that does not look for the least element is worth having
 *     widen_f16, widen_bf16                    a group as float32, in the group's order
 *
 * No address is aligned by promise but that of the widened floats. Data are prefetched far ahead: the loops keep so
 * many operations in flight that the hardware's prefetchers alone would leave a third of the memory bandwidth unused.
 * Not those of small tensors: what stands behind one is somebody else's, and would only push the program's own data
 * out.
 */
#include <string.h>
#include "kernels/prefetch.h"
#include "kernels/stats_kernel.h"
#include "kernels/stats_plain.h"

enum {
    CHUNK = 256,          /* 16-bit floats widened ahead of their use: L1 holds them, and stores are done when read */
    PREFETCH_AHEAD = 4096 /* bytes; from 2048 on it makes no difference */
};

#define KERNEL_INLINE KERNEL_ATTRIBUTES static inline __attribute__((always_inline))

KERNEL_INLINE size_t
how_far_ahead(size_t bytes)
{
    return bytes < PREFETCH_AHEAD ? 0 : PREFETCH_AHEAD;
}

/* Note 32 elements and widen them. */
KERNEL_INLINE void
take_halves(halves *h, float *wide, const uint16_t *p, msp_half_kind kind, bool least)
{
    halves_add(h, p, kind, least);
    if (kind == MSP_HALF_BF16) {
        widen_bf16(wide, p);
        widen_bf16(wide + 16, p + 16);
    } else {
        widen_f16(wide, p);
        widen_f16(wide + 16, p + 16);
    }
}

/* While one chunk is added up the next one is widened: neither waits for the other. n is a multiple of CHUNK. */
KERNEL_INLINE void
half_chunks(sums *s, halves *h, const uint16_t *p, size_t n, msp_half_kind kind, bool least)
{
    _Alignas(64) float buffers[2][CHUNK];
    float *now = buffers[0], *next = buffers[1];

    for (size_t j = 0; j < CHUNK; j += 32)
        take_halves(h, now + j, p + j, kind, least);
    for (size_t i = CHUNK; i < n; i += CHUNK) {
        float *done = now;

        for (size_t j = 0; j < CHUNK; j += 32) {
            prefetch(p + i + j, PREFETCH_AHEAD);
            take_halves(h, next + j, p + i + j, kind, least);
            sums_add_floats(s, now + j);
            sums_add_floats(s, now + j + 16);
        }
        now = next;
        next = done;
    }
    for (size_t j = 0; j < CHUNK; j += 16)
        sums_add_floats(s, now + j);
}

KERNEL_INLINE void
half_kernel(msp_stats_floats *out, const uint16_t *p, size_t n, msp_half_kind kind, bool least)
{
    size_t whole = n / CHUNK * CHUNK, i = whole;
    sums s;
    halves h;

    sums_load(&s, out);
    halves_begin(&h);
    if (whole > 0)
        half_chunks(&s, &h, p, whole, kind, least);
    for (; i + 32 <= n; i += 32) {
        _Alignas(64) float wide[32];

        take_halves(&h, wide, p + i, kind, least);
        sums_add_floats(&s, wide);
        sums_add_floats(&s, wide + 16);
    }
    halves_end(out, &h, i, kind, least);
    sums_store(out, &s);
    if (i < n)
        (kind == MSP_HALF_BF16 ? msp_stats_scalar.bf16 : msp_stats_scalar.f16)(out, p + i, n - i);
}

KERNEL_ATTRIBUTES static void
kernel_f16(msp_stats_floats *out, const void *p, size_t n)
{
    if (LEAST_IS_DEAR && !out->seek_least)
        half_kernel(out, p, n, MSP_HALF_F16, false);
    else
        half_kernel(out, p, n, MSP_HALF_F16, true);
}

KERNEL_ATTRIBUTES static void
kernel_bf16(msp_stats_floats *out, const void *p, size_t n)
{
    if (LEAST_IS_DEAR && !out->seek_least)
        half_kernel(out, p, n, MSP_HALF_BF16, false);
    else
        half_kernel(out, p, n, MSP_HALF_BF16, true);
}

KERNEL_ATTRIBUTES static void
kernel_f32(msp_stats_floats *out, const void *p, size_t n)
{
    const size_t ahead = how_far_ahead(n * sizeof(float));
    const float *x = p;
    size_t i;
    sums s;
    words w;

    sums_load(&s, out);
    words_begin(&w);
    for (i = 0; i + 16 <= n; i += 16) {
        prefetch(x + i, ahead);
        words_add(&w, x + i);
        sums_add_floats(&s, x + i);
    }
    words_end(out, &w, i);
    sums_store(out, &s);
    if (i < n)
        msp_stats_scalar.f32(out, x + i, n - i);
}

KERNEL_ATTRIBUTES static void
kernel_f64(msp_stats_floats *out, const void *p, size_t n)
{
    const size_t ahead = how_far_ahead(n * sizeof(double));
    const double *x = p;
    size_t i;
    sums s;
    longs l;

    sums_load(&s, out);
    longs_begin(&l);
    for (i = 0; i + 16 <= n; i += 16) {
        prefetch(x + i, ahead);
        prefetch(x + i + 8, ahead);
        longs_add(&l, x + i);
        sums_add_doubles(&s, x + i);
    }
    longs_end(out, &l, i);
    sums_store(out, &s);
    if (i < n)
        msp_stats_scalar.f64(out, x + i, n - i);
}

const msp_stats_kernels KERNEL_TABLE = {
    .f16 = kernel_f16,
    .bf16 = kernel_bf16,
    .f32 = kernel_f32,
    .f64 = kernel_f64,
    PLAIN_KERNELS,
};
