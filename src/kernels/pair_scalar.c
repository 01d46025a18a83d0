/* pair_scalar.c - the pair metrics in plain C: the reference, and what machines without a variant of their own run. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "dtype/convert.h"

#define TARGET
#define OP  static inline
#define SET msp_pair_scalar

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

#define EACH_LANE for (int i = 0; i < 8; i++)

/* A function of one type's vectors that does the same to each lane. */
#define LANEWISE_2(result, name, type, expression) \
    OP result name(type a, type b)                 \
    {                                              \
        result r;                                  \
                                                   \
        EACH_LANE r.x[i] = expression;             \
        return r;                                  \
    }

#define LANEWISE_1(result, name, type, expression) \
    OP result name(type a)                         \
    {                                              \
        result r;                                  \
                                                   \
        EACH_LANE r.x[i] = expression;             \
        return r;                                  \
    }

LANEWISE_2(vf, vf_add, vf, a.x[i] + b.x[i])
LANEWISE_2(vf, vf_sub, vf, a.x[i] - b.x[i])
LANEWISE_2(vf, vf_mul, vf, a.x[i] * b.x[i])
LANEWISE_2(vf, vf_div, vf, a.x[i] / b.x[i])
LANEWISE_2(vf, vf_max, vf, a.x[i] > b.x[i] ? a.x[i] : b.x[i])
LANEWISE_2(vfm, vf_lt, vf, a.x[i] < b.x[i])
LANEWISE_2(vfm, vf_eq, vf, a.x[i] == b.x[i])
LANEWISE_1(vf, vf_abs, vf, fabsf(a.x[i]))
LANEWISE_1(vf, vf_round_f16, vf, msp_f16_to_f32(msp_f32_to_f16(a.x[i])))
LANEWISE_2(vd, vd_add, vd, a.x[i] + b.x[i])
LANEWISE_2(vd, vd_sub, vd, a.x[i] - b.x[i])
LANEWISE_2(vd, vd_mul, vd, a.x[i] * b.x[i])
LANEWISE_2(vd, vd_div, vd, a.x[i] / b.x[i])
LANEWISE_2(vd, vd_max, vd, a.x[i] > b.x[i] ? a.x[i] : b.x[i])
LANEWISE_2(vdm, vd_lt, vd, a.x[i] < b.x[i])
LANEWISE_2(vdm, vd_eq, vd, a.x[i] == b.x[i])
LANEWISE_1(vd, vd_abs, vd, fabs(a.x[i]))
LANEWISE_1(vd, vd_widen, vf, (double)a.x[i])

/* ---- memory ------------------------------------------------------------------------------------------------------ */

OP vf
vf_load_f32(const void *p)
{
    vf v;

    memcpy(&v, p, sizeof(v));
    return v;
}

OP vf
vf_load_f16(const void *p)
{
    uint16_t h[8];
    vf v;

    memcpy(h, p, sizeof(h));
    EACH_LANE v.x[i] = msp_f16_to_f32(h[i]);
    return v;
}

OP vf
vf_load_bf16(const void *p)
{
    uint16_t h[8];
    vf v;

    memcpy(h, p, sizeof(h));
    EACH_LANE v.x[i] = msp_bf16_to_f32(h[i]);
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

OP vd
vd_load_f32(const float *p)
{
    return vd_widen(vf_load_f32(p));
}

OP void
prefetch(const void *p, size_t ahead)
{
    (void)p;
    (void)ahead;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

OP vf
vf_set(float a)
{
    vf v;

    EACH_LANE v.x[i] = a;
    return v;
}

#define vf_limit vf_set

OP vd
vd_set(double a)
{
    vd v;

    EACH_LANE v.x[i] = a;
    return v;
}

OP vd
vd_madd(vd a, vd b, vd c)
{
    return vd_add(vd_mul(a, b), c);
}

OP vf
vf_select(vfm m, vf yes, vf no)
{
    EACH_LANE no.x[i] = m.x[i] ? yes.x[i] : no.x[i];
    return no;
}

OP vd
vd_select(vdm m, vd yes, vd no)
{
    EACH_LANE no.x[i] = m.x[i] ? yes.x[i] : no.x[i];
    return no;
}

OP size_t
vd_first(vdm m)
{
    size_t lane = 0;

    while (lane < 8 && !m.x[lane])
        lane++;
    return lane;
}

OP int
vf_any(vfm m)
{
    return vd_first(m) < 8;
}

OP float
vf_top(vf v)
{
    float top = v.x[0];

    EACH_LANE top = v.x[i] > top ? v.x[i] : top;
    return top;
}

OP double
vd_top(vd v)
{
    double top = v.x[0];

    EACH_LANE top = v.x[i] > top ? v.x[i] : top;
    return top;
}

#define EACH_HALF for (int i = 0; i < 4; i++)

OP vh
vh_set(double a)
{
    vh v;

    EACH_HALF v.x[i] = a;
    return v;
}

OP vh
vh_add(vh a, vh b)
{
    EACH_HALF a.x[i] += b.x[i];
    return a;
}

OP vh
vh_max(vh a, vh b)
{
    EACH_HALF a.x[i] = b.x[i] > a.x[i] ? b.x[i] : a.x[i];
    return a;
}

OP vh
vd_fold_add(vd v)
{
    vh h;

    EACH_HALF h.x[i] = v.x[i] + v.x[i + 4];
    return h;
}

OP vh
vd_fold_max(vd v)
{
    vh h;

    EACH_HALF h.x[i] = v.x[i] > v.x[i + 4] ? v.x[i] : v.x[i + 4];
    return h;
}

OP double
vh_total(vh v)
{
    return (v.x[0] + v.x[2]) + (v.x[1] + v.x[3]);
}

OP double
vh_top(vh v)
{
    double top = v.x[0];

    EACH_HALF top = v.x[i] > top ? v.x[i] : top;
    return top;
}

OP double
vd_total(vd v)
{
    return vh_total(vd_fold_add(v));
}

OP vfc
vfc_zero(void)
{
    vfc c = {{0}};

    return c;
}

OP vfc
vfc_count(vfc c, vfm m)
{
    EACH_LANE c.x[i] += m.x[i];
    return c;
}

OP int64_t
vfc_total(vfc c)
{
    int64_t sum = 0;

    EACH_LANE sum += c.x[i];
    return sum;
}

#define vdc_zero  vfc_zero
#define vdc_count vfc_count
#define vdc_total vfc_total

#include "kernels/pair_template.h"
