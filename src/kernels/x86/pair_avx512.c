/* pair_avx512.c - the pair metrics with AVX-512: eight doubles are one register, and comparing gives bit masks. */
#if defined(__x86_64__)
#include "kernels/x86/avx512.h"

#define TARGET __attribute__((target(AVX512_SET "avx2,fma,f16c,bmi")))
#define SET    msp_pair_avx512
#include "kernels/x86/pair_x86.h"

typedef __m512d vd;
typedef __mmask8 vfm, vdm;
typedef __m256i vdc;

/* ---- float ------------------------------------------------------------------------------------------------------- */

OP_2(vf, vf_max, vf, _mm256_max_ps(a, b))
OP_2(vfm, vf_lt, vf, _mm256_cmp_ps_mask(a, b, _CMP_LT_OQ))
OP_2(vfm, vf_eq, vf, _mm256_cmp_ps_mask(a, b, _CMP_EQ_OQ))
OP_1(int, vf_any, vfm, a != 0)

OP vf
vf_select(vfm m, vf yes, vf no)
{
    return _mm256_mask_blend_ps(m, no, yes);
}

OP vf
vf_keep(vfm m, vf v)
{
    return _mm256_maskz_mov_ps(m, v);
}

OP vf
vf_drop(vfm m, vf v)
{
    return _mm256_mask_mov_ps(v, m, _mm256_setzero_ps());
}

OP vfc
vfc_count(vfc c, vfm m)
{
    return _mm256_mask_add_epi32(c, m, c, _mm256_set1_epi32(1));
}

/* ---- double ------------------------------------------------------------------------------------------------------ */

OP_1(vd, vd_load, const double *, _mm512_loadu_pd(a))
OP_1(vd, vd_load_f32, const float *, _mm512_cvtps_pd(_mm256_loadu_ps(a)))
OP_1(vd, vd_widen, vf, _mm512_cvtps_pd(a))
OP_1(vd, vd_set, double, _mm512_set1_pd(a))
OP_1(vd, vd_abs, vd, _mm512_andnot_pd(_mm512_set1_pd(-0.0), a))
OP_2(vd, vd_add, vd, _mm512_add_pd(a, b))
OP_2(vd, vd_sub, vd, _mm512_sub_pd(a, b))
OP_2(vd, vd_mul, vd, _mm512_mul_pd(a, b))
OP_2(vd, vd_div, vd, _mm512_div_pd(a, b))
OP_2(vd, vd_max, vd, _mm512_max_pd(a, b))
OP_2(vdm, vd_lt, vd, _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ))
OP_2(vdm, vd_eq, vd, _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ))
OP_1(size_t, vd_first, vdm, (size_t)__builtin_ctz((unsigned)a | 1u << 8))
OP_1(vh, vd_fold_add, vd, vh_add(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1)))
OP_1(vh, vd_fold_max, vd, vh_max(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1)))

OP vd
vd_madd(vd a, vd b, vd c)
{
    return _mm512_fmadd_pd(a, b, c);
}

OP vd
vd_select(vdm m, vd yes, vd no)
{
    return _mm512_mask_blend_pd(m, no, yes);
}

#define vdc_zero  vfc_zero
#define vdc_count vfc_count
#define vdc_total vfc_total

#include "kernels/pair_template.h"
#else
typedef int msp_not_x86_64;
#endif
