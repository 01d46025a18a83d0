/* pair_avx2.c - the pair metrics with AVX2, FMA and F16C: eight floats are one register, eight doubles two. */
#if defined(__x86_64__)
#define TARGET __attribute__((target("avx2,fma,f16c,bmi")))
#define SET    msp_pair_avx2
#include "kernels/x86/pair_x86.h"

typedef __m256 vfm;

typedef struct vd {
    __m256d x[2];
} vd, vdm;

typedef struct vdc {
    __m256i x[2];
} vdc;

/* ---- float ------------------------------------------------------------------------------------------------------- */

/* Floats that are not negative have the order of the integers that look like them, and those have twice the units. */
OP_2(vf, vf_max, vf, _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a), _mm256_castps_si256(b))))
OP_2(vfm, vf_lt, vf, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_castps_si256(b), _mm256_castps_si256(a))))
OP_2(vfm, vf_eq, vf, _mm256_cmp_ps(a, b, _CMP_EQ_OQ))
OP_1(int, vf_any, vfm, _mm256_movemask_ps(a) != 0)

OP vf
vf_select(vfm m, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, m);
}

OP vf
vf_keep(vfm m, vf v)
{
    return _mm256_and_ps(m, v);
}

OP vf
vf_drop(vfm m, vf v)
{
    return _mm256_andnot_ps(m, v);
}

OP vfc
vfc_count(vfc c, vfm m)
{
    return _mm256_sub_epi32(c, _mm256_castps_si256(m)); /* a lane that is set is -1 */
}

/* ---- double ------------------------------------------------------------------------------------------------------ */

PARTS_1(vd, vd_load, const double *, _mm256_loadu_pd(a + 4 * i))
PARTS_1(vd, vd_load_f32, const float *, _mm256_cvtps_pd(_mm_loadu_ps(a + 4 * i)))
PARTS_1(vd, vd_widen, vf, _mm256_cvtps_pd(i == 0 ? _mm256_castps256_ps128(a) : _mm256_extractf128_ps(a, 1)))
PARTS_1(vd, vd_set, double, _mm256_set1_pd(a))
PARTS_1(vd, vd_abs, vd, _mm256_andnot_pd(_mm256_set1_pd(-0.0), a.x[i]))
PARTS_2(vd, vd_add, vd, _mm256_add_pd(a.x[i], b.x[i]))
PARTS_2(vd, vd_sub, vd, _mm256_sub_pd(a.x[i], b.x[i]))
PARTS_2(vd, vd_mul, vd, _mm256_mul_pd(a.x[i], b.x[i]))
PARTS_2(vd, vd_div, vd, _mm256_div_pd(a.x[i], b.x[i]))
PARTS_2(vd, vd_max, vd, _mm256_max_pd(a.x[i], b.x[i]))
PARTS_2(vdm, vd_lt, vd, _mm256_cmp_pd(a.x[i], b.x[i], _CMP_LT_OQ))
PARTS_2(vdm, vd_eq, vd, _mm256_cmp_pd(a.x[i], b.x[i], _CMP_EQ_OQ))
PARTS_3(vd, vd_madd, vd, vd, _mm256_fmadd_pd(a.x[i], b.x[i], c.x[i]))
PARTS_3(vd, vd_select, vdm, vd, _mm256_blendv_pd(c.x[i], b.x[i], a.x[i]))
OP_1(vh, vd_fold_add, vd, vh_add(a.x[0], a.x[1]))
OP_1(vh, vd_fold_max, vd, vh_max(a.x[0], a.x[1]))

OP size_t
vd_first(vdm m)
{
    unsigned bits = (unsigned)_mm256_movemask_pd(m.x[0]) | (unsigned)_mm256_movemask_pd(m.x[1]) << 4;

    return (size_t)__builtin_ctz(bits | 1u << 8);
}

OP vdc
vdc_zero(void)
{
    return (vdc){{_mm256_setzero_si256(), _mm256_setzero_si256()}};
}

OP vdc
vdc_count(vdc c, vdm m)
{
    EACH_PART(c) c.x[i] = _mm256_sub_epi64(c.x[i], _mm256_castpd_si256(m.x[i]));
    return c;
}

OP int64_t
vdc_total(vdc c)
{
    __m256i a = _mm256_add_epi64(c.x[0], c.x[1]);
    __m128i b = _mm_add_epi64(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));

    return _mm_cvtsi128_si64(b) + _mm_extract_epi64(b, 1);
}

#include "kernels/pair_template.h"
#else
typedef int msp_not_x86_64;
#endif
