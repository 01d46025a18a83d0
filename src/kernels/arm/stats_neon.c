/*
 * stats_neon.c - statistics with Advanced SIMD, which every 64-bit Arm has.
 *
 * A register holds two doubles, so the 8 + 16 lanes are twelve of the 32 registers.
 */
#if defined(__aarch64__)
#include <arm_neon.h>
#include "kernels/stats_kernel.h"

#define KERNEL_ATTRIBUTES
#define KERNEL_TABLE msp_stats_neon
#define INLINE       static inline __attribute__((always_inline))

enum { LEAST_IS_DEAR = 0 };

/* ---- lanes ----------------------------------------------------------------------------------------------------- */

typedef struct sums {
    float64x2_t sum[4], square[8]; /* lanes 2i and 2i + 1 */
} sums;

INLINE void
sums_load(sums *s, const msp_stats_floats *from)
{
    for (int i = 0; i < 4; i++)
        s->sum[i] = vld1q_f64(from->sum + 2 * i);
    for (int i = 0; i < 8; i++)
        s->square[i] = vld1q_f64(from->square + 2 * i);
}

INLINE void
sums_store(msp_stats_floats *to, const sums *s)
{
    for (int i = 0; i < 4; i++)
        vst1q_f64(to->sum + 2 * i, s->sum[i]);
    for (int i = 0; i < 8; i++)
        vst1q_f64(to->square + 2 * i, s->square[i]);
}

/* Lanes 2i, 2i+1 and 2i+8, 2i+9 of a group of floats, whose squares are exact. */
INLINE void
sums_add_pair(sums *s, int i, float64x2_t a, float64x2_t b)
{
    s->sum[i] = vaddq_f64(s->sum[i], vaddq_f64(a, b));
    s->square[i] = vfmaq_f64(s->square[i], a, a);
    s->square[i + 4] = vfmaq_f64(s->square[i + 4], b, b);
}

INLINE void
sums_add_floats(sums *s, const float *p)
{
    float32x4_t a = vld1q_f32(p), b = vld1q_f32(p + 4), c = vld1q_f32(p + 8), d = vld1q_f32(p + 12);

    sums_add_pair(s, 0, vcvt_f64_f32(vget_low_f32(a)), vcvt_f64_f32(vget_low_f32(c)));
    sums_add_pair(s, 1, vcvt_high_f64_f32(a), vcvt_high_f64_f32(c));
    sums_add_pair(s, 2, vcvt_f64_f32(vget_low_f32(b)), vcvt_f64_f32(vget_low_f32(d)));
    sums_add_pair(s, 3, vcvt_high_f64_f32(b), vcvt_high_f64_f32(d));
}

INLINE void
sums_add_doubles(sums *s, const double *p)
{
    for (int i = 0; i < 4; i++) {
        float64x2_t a = vld1q_f64(p + 2 * i), b = vld1q_f64(p + 2 * i + 8);

        s->sum[i] = vaddq_f64(s->sum[i], vaddq_f64(a, b));
        s->square[i] = vaddq_f64(s->square[i], vmulq_f64(a, a));
        s->square[i + 4] = vaddq_f64(s->square[i + 4], vmulq_f64(b, b));
    }
}

/* ---- 16-bit floats --------------------------------------------------------------------------------------------- */

typedef struct halves {
    int16x8_t signed_max;
    uint16x8_t unsigned_max, unsigned_min, zero, tiny;
} halves;

INLINE void
halves_begin(halves *h)
{
    h->signed_max = vdupq_n_s16(INT16_MIN);
    h->unsigned_max = h->zero = h->tiny = vdupq_n_u16(0);
    h->unsigned_min = vdupq_n_u16(UINT16_MAX);
}

INLINE void
halves_add(halves *h, const uint16_t *p, msp_half_kind kind, bool least)
{
    const uint16x8_t smallest_normal = vdupq_n_u16(kind == MSP_HALF_BF16 ? 0x80 : 0x400);

    (void)least;
    for (int i = 0; i < 32; i += 8) {
        uint16x8_t v = vld1q_u16(p + i), magnitude = vbicq_u16(v, vdupq_n_u16(0x8000));

        h->signed_max = vmaxq_s16(h->signed_max, vreinterpretq_s16_u16(v));
        h->unsigned_max = vmaxq_u16(h->unsigned_max, v);
        h->unsigned_min = vminq_u16(h->unsigned_min, v);
        h->zero = vsubq_u16(h->zero, vceqzq_u16(magnitude));
        h->tiny = vsubq_u16(h->tiny, vcltq_u16(magnitude, smallest_normal));
    }
}

INLINE void
halves_end(msp_stats_floats *out, const halves *h, size_t n, msp_half_kind kind, bool least)
{
    (void)kind;
    (void)least;
    (void)n;
    msp_stats_note_range(&out->range, vmaxvq_s16(h->signed_max), vmaxvq_u16(h->unsigned_max),
                         vminvq_u16(h->unsigned_min));
    out->zero += vaddlvq_u16(h->zero);
    out->tiny += vaddlvq_u16(h->tiny);
}

INLINE void
widen_f16(float *to, const uint16_t *p)
{
    float16x8_t a = vreinterpretq_f16_u16(vld1q_u16(p)), b = vreinterpretq_f16_u16(vld1q_u16(p + 8));

    vst1q_f32(to, vcvt_f32_f16(vget_low_f16(a)));
    vst1q_f32(to + 4, vcvt_high_f32_f16(a));
    vst1q_f32(to + 8, vcvt_f32_f16(vget_low_f16(b)));
    vst1q_f32(to + 12, vcvt_high_f32_f16(b));
}

INLINE void
widen_bf16(float *to, const uint16_t *p)
{
    const uint32x4_t upper = vdupq_n_u32(0xffff0000);

    for (int i = 0; i < 2; i++) {
        uint32x4_t v = vreinterpretq_u32_u16(vld1q_u16(p + 8 * i));

        vst1q_f32(to + 4 * i, vreinterpretq_f32_u32(vshlq_n_u32(v, 16)));
        vst1q_f32(to + 4 * i + 8, vreinterpretq_f32_u32(vandq_u32(v, upper)));
    }
}

/* ---- 32-bit floats --------------------------------------------------------------------------------------------- */

typedef struct words {
    int32x4_t signed_max;
    uint32x4_t unsigned_max, unsigned_min, zero, tiny;
} words;

INLINE void
words_begin(words *w)
{
    w->signed_max = vdupq_n_s32(INT32_MIN);
    w->unsigned_max = w->zero = w->tiny = vdupq_n_u32(0);
    w->unsigned_min = vdupq_n_u32(UINT32_MAX);
}

INLINE void
words_add(words *w, const float *p)
{
    for (int i = 0; i < 16; i += 4) {
        uint32x4_t v = vreinterpretq_u32_f32(vld1q_f32(p + i)), magnitude = vbicq_u32(v, vdupq_n_u32(0x80000000));

        w->signed_max = vmaxq_s32(w->signed_max, vreinterpretq_s32_u32(v));
        w->unsigned_max = vmaxq_u32(w->unsigned_max, v);
        w->unsigned_min = vminq_u32(w->unsigned_min, v);
        w->zero = vsubq_u32(w->zero, vceqzq_u32(magnitude));
        w->tiny = vsubq_u32(w->tiny, vcltq_u32(magnitude, vdupq_n_u32(0x800000)));
    }
}

INLINE void
words_end(msp_stats_floats *out, const words *w, size_t n)
{
    (void)n;
    msp_stats_note_range(&out->range, vmaxvq_s32(w->signed_max), vmaxvq_u32(w->unsigned_max),
                         vminvq_u32(w->unsigned_min));
    out->zero += vaddvq_u32(w->zero);
    out->tiny += vaddvq_u32(w->tiny);
}

/* ---- 64-bit floats --------------------------------------------------------------------------------------------- */

typedef struct longs {
    int64x2_t signed_max;
    uint64x2_t unsigned_max, unsigned_min, zero, tiny;
} longs;

INLINE void
longs_begin(longs *l)
{
    l->signed_max = vdupq_n_s64(INT64_MIN);
    l->unsigned_max = l->zero = l->tiny = vdupq_n_u64(0);
    l->unsigned_min = vdupq_n_u64(UINT64_MAX);
}

/* There is no 64-bit maximum: compare and select. */
INLINE void
longs_add(longs *l, const double *p)
{
    for (int i = 0; i < 16; i += 2) {
        uint64x2_t v = vreinterpretq_u64_f64(vld1q_f64(p + i));
        uint64x2_t magnitude = vandq_u64(v, vdupq_n_u64(INT64_MAX));
        int64x2_t s = vreinterpretq_s64_u64(v);

        l->signed_max = vbslq_s64(vcgtq_s64(s, l->signed_max), s, l->signed_max);
        l->unsigned_max = vbslq_u64(vcgtq_u64(v, l->unsigned_max), v, l->unsigned_max);
        l->unsigned_min = vbslq_u64(vcltq_u64(v, l->unsigned_min), v, l->unsigned_min);
        l->zero = vsubq_u64(l->zero, vceqzq_u64(magnitude));
        l->tiny = vsubq_u64(l->tiny, vcltq_u64(magnitude, vdupq_n_u64(UINT64_C(1) << 52)));
    }
}

INLINE void
longs_end(msp_stats_floats *out, const longs *l, size_t n)
{
    (void)n;
    msp_stats_note_range(&out->range, vgetq_lane_s64(l->signed_max, 0), vgetq_lane_u64(l->unsigned_max, 0),
                         vgetq_lane_u64(l->unsigned_min, 0));
    msp_stats_note_range(&out->range, vgetq_lane_s64(l->signed_max, 1), vgetq_lane_u64(l->unsigned_max, 1),
                         vgetq_lane_u64(l->unsigned_min, 1));
    out->zero += (int64_t)vaddvq_u64(l->zero);
    out->tiny += (int64_t)vaddvq_u64(l->tiny);
}

#include "kernels/stats_template.h"
#endif
