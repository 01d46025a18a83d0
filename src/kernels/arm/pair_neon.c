/* pair_neon.c - the pair metrics with Advanced SIMD: eight floats are two registers, eight doubles four. */
#if defined(__aarch64__)
#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#define TARGET
#define OP  static inline __attribute__((always_inline))
#define SET msp_pair_neon

typedef struct vf {
    float32x4_t lo, hi;
} vf;

typedef struct vfm {
    uint32x4_t lo, hi;
} vfm, vfc;

typedef struct vd {
    float64x2_t x[4];
} vd;

typedef struct vdm {
    uint64x2_t x[4];
} vdm, vdc;

typedef struct vh {
    float64x2_t lo, hi;
} vh;

/* ---- float ------------------------------------------------------------------------------------------------------- */

OP vf
vf_make(float32x4_t lo, float32x4_t hi)
{
    vf v = {lo, hi};

    return v;
}

OP vf
vf_load_f32(const void *p)
{
    const uint8_t *bytes = p; /* loads of bytes need no alignment */

    return vf_make(vreinterpretq_f32_u8(vld1q_u8(bytes)), vreinterpretq_f32_u8(vld1q_u8(bytes + 16)));
}

OP vf
vf_load_f16(const void *p)
{
    float16x8_t h = vreinterpretq_f16_u8(vld1q_u8(p));

    return vf_make(vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h));
}

OP vf
vf_load_bf16(const void *p)
{
    uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(p));

    return vf_make(vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)),
                   vreinterpretq_f32_u32(vshll_high_n_u16(h, 16)));
}

OP void
vf_store(float *p, vf v)
{
    vst1q_u8((uint8_t *)p, vreinterpretq_u8_f32(v.lo));
    vst1q_u8((uint8_t *)p + 16, vreinterpretq_u8_f32(v.hi));
}

OP vf
vf_set(float v)
{
    return vf_make(vdupq_n_f32(v), vdupq_n_f32(v));
}

#define vf_limit vf_set

OP vf
vf_add(vf a, vf b)
{
    return vf_make(vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi));
}

OP vf
vf_sub(vf a, vf b)
{
    return vf_make(vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi));
}

OP vf
vf_mul(vf a, vf b)
{
    return vf_make(vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi));
}

OP vf
vf_div(vf a, vf b)
{
    return vf_make(vdivq_f32(a.lo, b.lo), vdivq_f32(a.hi, b.hi));
}

OP vf
vf_max(vf a, vf b)
{
    return vf_make(vmaxq_f32(a.lo, b.lo), vmaxq_f32(a.hi, b.hi));
}

OP vf
vf_abs(vf v)
{
    return vf_make(vabsq_f32(v.lo), vabsq_f32(v.hi));
}

OP vf
vf_round_f16(vf v)
{
    return vf_make(vcvt_f32_f16(vcvt_f16_f32(v.lo)), vcvt_f32_f16(vcvt_f16_f32(v.hi)));
}

OP vfm
vf_lt(vf a, vf b)
{
    vfm m = {vcltq_f32(a.lo, b.lo), vcltq_f32(a.hi, b.hi)};

    return m;
}

OP vfm
vf_eq(vf a, vf b)
{
    vfm m = {vceqq_f32(a.lo, b.lo), vceqq_f32(a.hi, b.hi)};

    return m;
}

OP vf
vf_select(vfm m, vf yes, vf no)
{
    return vf_make(vbslq_f32(m.lo, yes.lo, no.lo), vbslq_f32(m.hi, yes.hi, no.hi));
}

OP int
vf_any(vfm m)
{
    return vmaxvq_u32(vorrq_u32(m.lo, m.hi)) != 0;
}

OP float
vf_top(vf v)
{
    return vmaxvq_f32(vmaxq_f32(v.lo, v.hi));
}

OP vfc
vfc_zero(void)
{
    vfc c = {vdupq_n_u32(0), vdupq_n_u32(0)};

    return c;
}

OP vfc
vfc_count(vfc c, vfm m)
{
    vfc sum = {vsubq_u32(c.lo, m.lo), vsubq_u32(c.hi, m.hi)}; /* a lane that is set is -1 */

    return sum;
}

OP int64_t
vfc_total(vfc c)
{
    return (int64_t)vaddlvq_u32(vaddq_u32(c.lo, c.hi));
}

/* ---- double ------------------------------------------------------------------------------------------------------ */

#define EACH_PAIR for (int i = 0; i < 4; i++)

/* A function of vectors of doubles that does the same to each register. */
#define PAIRWISE_2(result, name, expression) \
    OP result name(vd a, vd b)               \
    {                                        \
        result r;                            \
                                             \
        EACH_PAIR r.x[i] = expression;       \
        return r;                            \
    }

PAIRWISE_2(vd, vd_add, vaddq_f64(a.x[i], b.x[i]))
PAIRWISE_2(vd, vd_sub, vsubq_f64(a.x[i], b.x[i]))
PAIRWISE_2(vd, vd_mul, vmulq_f64(a.x[i], b.x[i]))
PAIRWISE_2(vd, vd_div, vdivq_f64(a.x[i], b.x[i]))
PAIRWISE_2(vd, vd_max, vmaxq_f64(a.x[i], b.x[i]))
PAIRWISE_2(vdm, vd_lt, vcltq_f64(a.x[i], b.x[i]))
PAIRWISE_2(vdm, vd_eq, vceqq_f64(a.x[i], b.x[i]))

OP vd
vd_load(const double *p)
{
    vd v;

    EACH_PAIR v.x[i] = vreinterpretq_f64_u8(vld1q_u8((const uint8_t *)p + 16 * i));
    return v;
}

OP vd
vd_widen(vf v)
{
    vd w = {{vcvt_f64_f32(vget_low_f32(v.lo)), vcvt_high_f64_f32(v.lo), vcvt_f64_f32(vget_low_f32(v.hi)),
             vcvt_high_f64_f32(v.hi)}};

    return w;
}

OP vd
vd_load_f32(const float *p)
{
    return vd_widen(vf_load_f32(p));
}

OP vd
vd_set(double a)
{
    vd v;

    EACH_PAIR v.x[i] = vdupq_n_f64(a);
    return v;
}

OP vd
vd_madd(vd a, vd b, vd c)
{
    EACH_PAIR c.x[i] = vfmaq_f64(c.x[i], a.x[i], b.x[i]);
    return c;
}

OP vd
vd_abs(vd v)
{
    EACH_PAIR v.x[i] = vabsq_f64(v.x[i]);
    return v;
}

OP vd
vd_select(vdm m, vd yes, vd no)
{
    EACH_PAIR no.x[i] = vbslq_f64(m.x[i], yes.x[i], no.x[i]);
    return no;
}

OP size_t
vd_first(vdm m)
{
    for (size_t i = 0; i < 4; i++) {
        if (vgetq_lane_u64(m.x[i], 0) != 0)
            return 2 * i;
        if (vgetq_lane_u64(m.x[i], 1) != 0)
            return 2 * i + 1;
    }
    return 8;
}

OP double
vd_top(vd v)
{
    return vmaxvq_f64(vmaxq_f64(vmaxq_f64(v.x[0], v.x[1]), vmaxq_f64(v.x[2], v.x[3])));
}

OP vh
vh_make(float64x2_t lo, float64x2_t hi)
{
    vh v = {lo, hi};

    return v;
}

OP vh
vh_set(double v)
{
    return vh_make(vdupq_n_f64(v), vdupq_n_f64(v));
}

OP vh
vh_add(vh a, vh b)
{
    return vh_make(vaddq_f64(a.lo, b.lo), vaddq_f64(a.hi, b.hi));
}

OP vh
vh_max(vh a, vh b)
{
    return vh_make(vmaxq_f64(a.lo, b.lo), vmaxq_f64(a.hi, b.hi));
}

OP vh
vd_fold_add(vd v)
{
    return vh_add(vh_make(v.x[0], v.x[1]), vh_make(v.x[2], v.x[3]));
}

OP vh
vd_fold_max(vd v)
{
    return vh_max(vh_make(v.x[0], v.x[1]), vh_make(v.x[2], v.x[3]));
}

OP double
vh_total(vh v)
{
    return vaddvq_f64(vaddq_f64(v.lo, v.hi));
}

OP double
vh_top(vh v)
{
    return vmaxvq_f64(vmaxq_f64(v.lo, v.hi));
}

OP double
vd_total(vd v)
{
    return vh_total(vd_fold_add(v));
}

OP vdc
vdc_zero(void)
{
    vdc c;

    EACH_PAIR c.x[i] = vdupq_n_u64(0);
    return c;
}

OP vdc
vdc_count(vdc c, vdm m)
{
    EACH_PAIR c.x[i] = vsubq_u64(c.x[i], m.x[i]);
    return c;
}

OP int64_t
vdc_total(vdc c)
{
    return (int64_t)vaddvq_u64(vaddq_u64(vaddq_u64(c.x[0], c.x[1]), vaddq_u64(c.x[2], c.x[3])));
}

OP void
prefetch(const void *p, size_t ahead)
{
    __builtin_prefetch((const char *)((uintptr_t)p + ahead));
}

#include "kernels/pair_template.h"
#else
typedef int msp_not_aarch64;
#endif
