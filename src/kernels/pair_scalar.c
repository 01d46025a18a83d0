/* pair_scalar.c - the pair metrics in plain C: the reference, and what machines without a variant of their own run. */
#define TARGET
#define SET msp_pair_scalar
#define OP  static inline /* always inlined, gcc needs minutes for this file with a sanitizer */
#define UNROLL
#include <math.h>
#include "dtype/convert.h"
#include "kernels/pair_ops.h"

typedef struct vf {
    float x[8];
} vf;

typedef struct vd {
    double x[8];
} vd;

typedef struct vh {
    double x[4];
} vh;

typedef struct vfm {
    uint8_t x[8];
} vfm, vdm;

typedef struct vfc {
    int32_t x[8];
} vfc, vdc;

typedef int64_t vsc;

/* ---- memory ------------------------------------------------------------------------------------------------------ */

OP uint16_t
half_at(const void *p, size_t i)
{
    uint16_t h;

    memcpy(&h, (const char *)p + 2 * i, sizeof(h));
    return h;
}

PARTS_1(vf, vf_load_f16, const void *, msp_f16_to_f32(half_at(a, i)))
PARTS_1(vf, vf_load_bf16, const void *, msp_bf16_to_f32(half_at(a, i)))
PARTS_1(vf, vf_load_bf16_even, const void *, msp_bf16_to_f32(half_at(a, 2 * i)))
PARTS_1(vf, vf_load_bf16_odd, const void *, msp_bf16_to_f32(half_at(a, 2 * i + 1)))

OP vf
vf_load_f32(const void *p)
{
    vf v;

    memcpy(&v, p, sizeof(v));
    return v;
}

OP void
vf_store(float *p, vf v)
{
    memcpy(p, &v, sizeof(v));
}

OP vd
vd_load(const double *p)
{
    vd v;

    memcpy(&v, p, sizeof(v));
    return v;
}

/* ---- lane by lane ------------------------------------------------------------------------------------------------ */

PARTS_1(vf, vf_set, float, a)
PARTS_1(vf, vf_abs, vf, fabsf(a.x[i]))
PARTS_1(vf, vf_round_f16, vf, msp_f16_to_f32(msp_f32_to_f16(a.x[i])))
PARTS_2(vf, vf_add, vf, a.x[i] + b.x[i])
PARTS_2(vf, vf_sub, vf, a.x[i] - b.x[i])
PARTS_2(vf, vf_mul, vf, a.x[i] * b.x[i])
PARTS_2(vf, vf_div, vf, a.x[i] / b.x[i])
PARTS_2(vf, vf_max, vf, a.x[i] > b.x[i] ? a.x[i] : b.x[i])
PARTS_2(vfm, vf_lt, vf, a.x[i] < b.x[i])
PARTS_2(vfm, vf_eq, vf, a.x[i] == b.x[i])
PARTS_3(vf, vf_madd, vf, vf, fmaf(a.x[i], b.x[i], c.x[i]))
PARTS_3(vf, vf_select, vfm, vf, a.x[i] ? b.x[i] : c.x[i])
PARTS_1(vd, vd_set, double, a)
PARTS_1(vd, vd_abs, vd, fabs(a.x[i]))
PARTS_1(vd, vd_widen, vf, (double)a.x[i])
PARTS_2(vd, vd_add, vd, a.x[i] + b.x[i])
PARTS_2(vd, vd_sub, vd, a.x[i] - b.x[i])
PARTS_2(vd, vd_mul, vd, a.x[i] * b.x[i])
PARTS_2(vd, vd_div, vd, a.x[i] / b.x[i])
PARTS_2(vd, vd_max, vd, a.x[i] > b.x[i] ? a.x[i] : b.x[i])
PARTS_2(vdm, vd_lt, vd, a.x[i] < b.x[i])
PARTS_2(vdm, vd_eq, vd, a.x[i] == b.x[i])
PARTS_3(vd, vd_madd, vd, vd, a.x[i] * b.x[i] + c.x[i])
PARTS_3(vd, vd_select, vdm, vd, a.x[i] ? b.x[i] : c.x[i])
OP_1(vd, vd_load_f32, const float *, vd_widen(vf_load_f32(a)))
PARTS_1(vh, vh_set, double, a)
PARTS_2(vh, vh_add, vh, a.x[i] + b.x[i])
PARTS_2(vh, vh_max, vh, a.x[i] > b.x[i] ? a.x[i] : b.x[i])
PARTS_1(vh, vd_fold_add, vd, a.x[i] + a.x[i + 4])
PARTS_1(vh, vd_fold_max, vd, a.x[i] > a.x[i + 4] ? a.x[i] : a.x[i + 4])

#define vf_keep(m, v) vf_select(m, v, vf_set(0))
#define vf_drop(m, v) vf_select(m, vf_set(0), v)
#define pin(v)        ((void)(v))
#define again(p)      ((void)(p))

/* ---- across lanes ------------------------------------------------------------------------------------------------ */

OP size_t
vd_first(vdm m)
{
    size_t lane = 0;

    while (lane < 8 && !m.x[lane])
        lane++;
    return lane;
}

OP_1(int, vf_any, vfm, vd_first(a) < 8)
OP_1(double, vh_total, vh, (a.x[0] + a.x[2]) + (a.x[1] + a.x[3]))

OP float
vf_top(vf v)
{
    float top = v.x[0];

    EACH_PART(v) top = v.x[i] > top ? v.x[i] : top;
    return top;
}

OP double
vh_top(vh v)
{
    double top = v.x[0];

    EACH_PART(v) top = v.x[i] > top ? v.x[i] : top;
    return top;
}

/* ---- counters ---------------------------------------------------------------------------------------------------- */

OP vfc
vfc_count(vfc c, vfm m)
{
    EACH_PART(c) c.x[i] += m.x[i];
    return c;
}

OP int64_t
vfc_total(vfc c)
{
    int64_t sum = 0;

    EACH_PART(c) sum += c.x[i];
    return sum;
}

OP vsc
vsc_count_same(vsc c, const void *p, const void *q)
{
    for (size_t i = 0; i < 16; i++)
        c += half_at(p, i) == half_at(q, i);
    return c;
}

#define vfc_zero()   ((vfc){{0}})
#define vdc_zero     vfc_zero
#define vdc_count    vfc_count
#define vdc_total    vfc_total
#define vsc_zero()   0
#define vsc_total(c) (c)

#include "kernels/pair_template.h"
