/* pair_avx512.c - the pair metrics with AVX-512: eight doubles are one register, and comparing gives bit masks. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi")))
#define OP     static inline __attribute__((always_inline)) TARGET
#define SET    msp_pair_avx512

typedef __m256 vf;
typedef __m512d vd;
typedef __m256d vh;
typedef __mmask8 vfm, vdm;
typedef __m256i vfc, vdc;

/* ---- float ------------------------------------------------------------------------------------------------------- */

OP vf
vf_load_f32(const void *p)
{
    return _mm256_loadu_ps(p);
}

OP vf
vf_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

OP vf
vf_load_bf16(const void *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}

OP void
vf_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}

OP vf
vf_set(float v)
{
    return _mm256_set1_ps(v);
}

#define vf_limit vf_set

OP vf
vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

OP vf
vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

OP vf
vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

OP vf
vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

OP vf
vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

OP vf
vf_abs(vf v)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}

OP vf
vf_round_f16(vf v)
{
    return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

OP vfm
vf_lt(vf a, vf b)
{
    return _mm256_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

OP vfm
vf_eq(vf a, vf b)
{
    return _mm256_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}

OP vf
vf_select(vfm m, vf yes, vf no)
{
    return _mm256_mask_blend_ps(m, no, yes);
}

OP int
vf_any(vfm m)
{
    return m != 0;
}

OP float
vf_top(vf v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

/* ---- counters, of floats and doubles alike ----------------------------------------------------------------------- */

OP vfc
vfc_zero(void)
{
    return _mm256_setzero_si256();
}

OP vfc
vfc_count(vfc c, vfm m)
{
    return _mm256_mask_add_epi32(c, m, c, _mm256_set1_epi32(1));
}

OP int64_t
vfc_total(vfc c)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1));

    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

#define vdc_zero  vfc_zero
#define vdc_count vfc_count
#define vdc_total vfc_total

/* ---- double ------------------------------------------------------------------------------------------------------ */

OP vd
vd_load(const double *p)
{
    return _mm512_loadu_pd(p);
}

OP vd
vd_load_f32(const float *p)
{
    return _mm512_cvtps_pd(_mm256_loadu_ps(p));
}

OP vd
vd_widen(vf v)
{
    return _mm512_cvtps_pd(v);
}

OP vd
vd_set(double v)
{
    return _mm512_set1_pd(v);
}

OP vd
vd_add(vd a, vd b)
{
    return _mm512_add_pd(a, b);
}

OP vd
vd_sub(vd a, vd b)
{
    return _mm512_sub_pd(a, b);
}

OP vd
vd_mul(vd a, vd b)
{
    return _mm512_mul_pd(a, b);
}

OP vd
vd_madd(vd a, vd b, vd c)
{
    return _mm512_fmadd_pd(a, b, c);
}

OP vd
vd_div(vd a, vd b)
{
    return _mm512_div_pd(a, b);
}

OP vd
vd_max(vd a, vd b)
{
    return _mm512_max_pd(a, b);
}

OP vd
vd_abs(vd v)
{
    return _mm512_andnot_pd(_mm512_set1_pd(-0.0), v);
}

OP vdm
vd_lt(vd a, vd b)
{
    return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ);
}

OP vdm
vd_eq(vd a, vd b)
{
    return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ);
}

OP vd
vd_select(vdm m, vd yes, vd no)
{
    return _mm512_mask_blend_pd(m, no, yes);
}

OP size_t
vd_first(vdm m)
{
    return (size_t)__builtin_ctz((unsigned)m | 1u << 8);
}

/* The two halves, lanes 0 to 3 and 4 to 7. */
OP vh
vd_lower(vd v)
{
    return _mm512_castpd512_pd256(v);
}

OP vh
vd_upper(vd v)
{
    return _mm512_extractf64x4_pd(v, 1);
}

OP vh
vh_set(double v)
{
    return _mm256_set1_pd(v);
}

OP vh
vh_add(vh a, vh b)
{
    return _mm256_add_pd(a, b);
}

OP vh
vh_max(vh a, vh b)
{
    return _mm256_max_pd(a, b);
}

OP vh
vd_fold_add(vd v)
{
    return vh_add(vd_lower(v), vd_upper(v));
}

OP vh
vd_fold_max(vd v)
{
    return vh_max(vd_lower(v), vd_upper(v));
}

OP double
vh_total(vh v)
{
    __m128d a = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));

    return _mm_cvtsd_f64(_mm_add_sd(a, _mm_unpackhi_pd(a, a)));
}

OP double
vd_total(vd v)
{
    return vh_total(vd_fold_add(v));
}

OP double
vh_top(vh v)
{
    __m128d a = _mm_max_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));

    return _mm_cvtsd_f64(_mm_max_sd(a, _mm_unpackhi_pd(a, a)));
}

OP double
vd_top(vd v)
{
    return vh_top(vd_fold_max(v));
}

OP void
prefetch(const void *p, size_t ahead)
{
    _mm_prefetch((const char *)((uintptr_t)p + ahead), _MM_HINT_T0);
}

#include "kernels/pair_template.h"
#else
typedef int msp_not_x86_64;
#endif
