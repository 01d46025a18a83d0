/* pair_neon.c - the pair metrics with Advanced SIMD: eight floats are two registers, eight doubles four. */
#if defined(__aarch64__)
#define TARGET
#define SET msp_pair_neon
#include <arm_neon.h>
#include "kernels/pair_ops.h"

typedef struct vf {
    float32x4_t x[2];
} vf;

typedef struct vfm {
    uint32x4_t x[2];
} vfm, vfc;

typedef struct vsc {
    uint16x8_t x[2];
} vsc;

typedef struct vd {
    float64x2_t x[4];
} vd;

typedef struct vdm {
    uint64x2_t x[4];
} vdm, vdc;

typedef struct vh {
    float64x2_t x[2];
} vh;

/* Loads of bytes need no alignment. */
OP_1(uint8x16_t, load, const void *, vld1q_u8(a))

/* ---- float ------------------------------------------------------------------------------------------------------- */

PARTS_1(vf, vf_load_f32, const void *, vreinterpretq_f32_u8(load((const char *)a + 16 * i)))
PARTS_1(vf, vf_load_bf16_even, const char *,
        vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u8(load(a + 16 * i)), 16)))
PARTS_1(vf, vf_load_bf16_odd, const char *,
        vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u8(load(a + 16 * i)), vdupq_n_u32(0xffff0000))))
PARTS_1(vf, vf_set, float, vdupq_n_f32(a))
PARTS_1(vf, vf_abs, vf, vabsq_f32(a.x[i]))
PARTS_1(vf, vf_round_f16, vf, vcvt_f32_f16(vcvt_f16_f32(a.x[i])))
PARTS_2(vf, vf_add, vf, vaddq_f32(a.x[i], b.x[i]))
PARTS_2(vf, vf_sub, vf, vsubq_f32(a.x[i], b.x[i]))
PARTS_2(vf, vf_mul, vf, vmulq_f32(a.x[i], b.x[i]))
PARTS_2(vf, vf_div, vf, vdivq_f32(a.x[i], b.x[i]))
PARTS_2(vf, vf_max, vf, vmaxq_f32(a.x[i], b.x[i]))
PARTS_2(vfm, vf_lt, vf, vcltq_f32(a.x[i], b.x[i]))
PARTS_2(vfm, vf_eq, vf, vceqq_f32(a.x[i], b.x[i]))
PARTS_3(vf, vf_madd, vf, vf, vfmaq_f32(c.x[i], a.x[i], b.x[i]))
PARTS_3(vf, vf_select, vfm, vf, vbslq_f32(a.x[i], b.x[i], c.x[i]))
OP_1(int, vf_any, vfm, vmaxvq_u32(vorrq_u32(a.x[0], a.x[1])) != 0)
OP_1(float, vf_top, vf, vmaxvq_f32(vmaxq_f32(a.x[0], a.x[1])))

OP vf
vf_load_f16(const void *p)
{
    float16x8_t h = vreinterpretq_f16_u8(load(p));

    return (vf){{vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)}};
}

OP vf
vf_load_bf16(const void *p)
{
    uint16x8_t h = vreinterpretq_u16_u8(load(p));

    return (vf){
        {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)), vreinterpretq_f32_u32(vshll_high_n_u16(h, 16))}};
}

OP void
vf_store(float *p, vf v)
{
    EACH_PART(v) vst1q_u8((uint8_t *)p + 16 * i, vreinterpretq_u8_f32(v.x[i]));
}

#define vf_keep(m, v) vf_select(m, v, vf_set(0))
#define vf_drop(m, v) vf_select(m, vf_set(0), v)
#define pin(v)        ((void)(v))
#define again(p)      ((void)(p))

/* ---- double ------------------------------------------------------------------------------------------------------ */

PARTS_1(vd, vd_load, const double *, vreinterpretq_f64_u8(load((const char *)a + 16 * i)))
PARTS_1(vd, vd_widen, vf, i % 2 == 0 ? vcvt_f64_f32(vget_low_f32(a.x[i / 2])) : vcvt_high_f64_f32(a.x[i / 2]))
OP_1(vd, vd_load_f32, const float *, vd_widen(vf_load_f32(a)))
PARTS_1(vd, vd_set, double, vdupq_n_f64(a))
PARTS_1(vd, vd_abs, vd, vabsq_f64(a.x[i]))
PARTS_2(vd, vd_add, vd, vaddq_f64(a.x[i], b.x[i]))
PARTS_2(vd, vd_sub, vd, vsubq_f64(a.x[i], b.x[i]))
PARTS_2(vd, vd_mul, vd, vmulq_f64(a.x[i], b.x[i]))
PARTS_2(vd, vd_div, vd, vdivq_f64(a.x[i], b.x[i]))
PARTS_2(vd, vd_max, vd, vmaxq_f64(a.x[i], b.x[i]))
PARTS_2(vdm, vd_lt, vd, vcltq_f64(a.x[i], b.x[i]))
PARTS_2(vdm, vd_eq, vd, vceqq_f64(a.x[i], b.x[i]))
PARTS_3(vd, vd_madd, vd, vd, vfmaq_f64(c.x[i], a.x[i], b.x[i]))
PARTS_3(vd, vd_select, vdm, vd, vbslq_f64(a.x[i], b.x[i], c.x[i]))
PARTS_1(vh, vh_set, double, vdupq_n_f64(a))
PARTS_2(vh, vh_add, vh, vaddq_f64(a.x[i], b.x[i]))
PARTS_2(vh, vh_max, vh, vmaxq_f64(a.x[i], b.x[i]))
PARTS_1(vh, vd_fold_add, vd, vaddq_f64(a.x[i], a.x[i + 2]))
PARTS_1(vh, vd_fold_max, vd, vmaxq_f64(a.x[i], a.x[i + 2]))
OP_1(double, vh_total, vh, vaddvq_f64(vaddq_f64(a.x[0], a.x[1])))
OP_1(double, vh_top, vh, vmaxvq_f64(vmaxq_f64(a.x[0], a.x[1])))

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

/* ---- counters: a lane that is set is -1 -------------------------------------------------------------------------- */

PARTS_2(vfc, vfc_count, vfc, vsubq_u32(a.x[i], b.x[i]))
PARTS_2(vdc, vdc_count, vdc, vsubq_u64(a.x[i], b.x[i]))
OP_1(int64_t, vfc_total, vfc, (int64_t)vaddlvq_u32(vaddq_u32(a.x[0], a.x[1])))
OP_1(int64_t, vsc_total, vsc, (int64_t)vaddlvq_u16(vaddq_u16(a.x[0], a.x[1])))
OP_1(int64_t, vdc_total, vdc, (int64_t)vaddvq_u64(vaddq_u64(vaddq_u64(a.x[0], a.x[1]), vaddq_u64(a.x[2], a.x[3]))))

#define vfc_zero() ((vfc){{vdupq_n_u32(0), vdupq_n_u32(0)}})
#define vsc_zero() ((vsc){{vdupq_n_u16(0), vdupq_n_u16(0)}})
#define vdc_zero() ((vdc){{vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0)}})

OP vsc
vsc_count_same(vsc c, const char *p, const char *q)
{
    EACH_PART(c)
    c.x[i] =
        vsubq_u16(c.x[i], vceqq_u16(vreinterpretq_u16_u8(load(p + 16 * i)), vreinterpretq_u16_u8(load(q + 16 * i))));
    return c;
}

#include "kernels/pair_template.h"
#else
typedef int msp_not_aarch64;
#endif
