/* pair_avx2.c - the pair metrics with AVX2, FMA and F16C: eight floats are one register, eight doubles two. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define TARGET __attribute__((target("avx2,fma,f16c,bmi")))
#define OP     static inline __attribute__((always_inline)) TARGET
#define SET    msp_pair_avx2

typedef __m256 vf, vfm;
typedef __m256i vfc;
typedef struct vd {
    __m256d lo, hi;
} vd, vdm;
typedef __m256d vh;
typedef struct vdc {
    __m256i lo, hi;
} vdc;

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

/* All eight into both halves, and from there each into the upper half of its lane: one shuffle and no shift. */
OP vf
vf_load_bf16(const void *p)
{
    const __m256i places = _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7, /* 0 to 3 */
                                            -1, -1, 8, 9, -1, -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15);
    __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(p));

    return _mm256_castsi256_ps(_mm256_shuffle_epi8(twice, places));
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

/* gcc would make two instructions of a comparison with a number that it knows. */
OP vf
vf_limit(float v)
{
    __m256 limit = _mm256_set1_ps(v);

    __asm__("" : "+x"(limit));
    return limit;
}

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

/* Floats that are not negative have the order of the integers that look like them, and those have twice the units. */
OP vf
vf_max(vf a, vf b)
{
    return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
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
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_castps_si256(b), _mm256_castps_si256(a)));
}

OP vfm
vf_eq(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}

OP vf
vf_select(vfm m, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, m);
}

OP int
vf_any(vfm m)
{
    return _mm256_movemask_ps(m) != 0;
}

OP float
vf_top(vf v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

OP vfc
vfc_zero(void)
{
    return _mm256_setzero_si256();
}

OP vfc
vfc_count(vfc c, vfm m)
{
    return _mm256_sub_epi32(c, _mm256_castps_si256(m)); /* a lane that is set is -1 */
}

OP int64_t
vfc_total(vfc c)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1));

    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

/* ---- double ------------------------------------------------------------------------------------------------------ */

OP vd
vd_make(__m256d lo, __m256d hi)
{
    vd v = {lo, hi};

    return v;
}

OP vd
vd_load(const double *p)
{
    return vd_make(_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4));
}

OP vd
vd_load_f32(const float *p)
{
    return vd_make(_mm256_cvtps_pd(_mm_loadu_ps(p)), _mm256_cvtps_pd(_mm_loadu_ps(p + 4)));
}

OP vd
vd_widen(vf v)
{
    return vd_make(_mm256_cvtps_pd(_mm256_castps256_ps128(v)), _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
}

OP vd
vd_set(double v)
{
    return vd_make(_mm256_set1_pd(v), _mm256_set1_pd(v));
}

OP vd
vd_add(vd a, vd b)
{
    return vd_make(_mm256_add_pd(a.lo, b.lo), _mm256_add_pd(a.hi, b.hi));
}

OP vd
vd_sub(vd a, vd b)
{
    return vd_make(_mm256_sub_pd(a.lo, b.lo), _mm256_sub_pd(a.hi, b.hi));
}

OP vd
vd_mul(vd a, vd b)
{
    return vd_make(_mm256_mul_pd(a.lo, b.lo), _mm256_mul_pd(a.hi, b.hi));
}

OP vd
vd_madd(vd a, vd b, vd c)
{
    return vd_make(_mm256_fmadd_pd(a.lo, b.lo, c.lo), _mm256_fmadd_pd(a.hi, b.hi, c.hi));
}

OP vd
vd_div(vd a, vd b)
{
    return vd_make(_mm256_div_pd(a.lo, b.lo), _mm256_div_pd(a.hi, b.hi));
}

OP vd
vd_max(vd a, vd b)
{
    return vd_make(_mm256_max_pd(a.lo, b.lo), _mm256_max_pd(a.hi, b.hi));
}

OP vd
vd_abs(vd v)
{
    const __m256d sign = _mm256_set1_pd(-0.0);

    return vd_make(_mm256_andnot_pd(sign, v.lo), _mm256_andnot_pd(sign, v.hi));
}

OP vdm
vd_lt(vd a, vd b)
{
    return vd_make(_mm256_cmp_pd(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_pd(a.hi, b.hi, _CMP_LT_OQ));
}

OP vdm
vd_eq(vd a, vd b)
{
    return vd_make(_mm256_cmp_pd(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_pd(a.hi, b.hi, _CMP_EQ_OQ));
}

OP vd
vd_select(vdm m, vd yes, vd no)
{
    return vd_make(_mm256_blendv_pd(no.lo, yes.lo, m.lo), _mm256_blendv_pd(no.hi, yes.hi, m.hi));
}

OP size_t
vd_first(vdm m)
{
    unsigned bits = (unsigned)_mm256_movemask_pd(m.lo) | (unsigned)_mm256_movemask_pd(m.hi) << 4;

    return (size_t)__builtin_ctz(bits | 1u << 8);
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
    return vh_add(v.lo, v.hi);
}

OP vh
vd_fold_max(vd v)
{
    return vh_max(v.lo, v.hi);
}

OP double
vh_total(vh v)
{
    __m128d a = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));

    return _mm_cvtsd_f64(_mm_add_sd(a, _mm_unpackhi_pd(a, a)));
}

OP double
vh_top(vh v)
{
    __m128d a = _mm_max_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));

    return _mm_cvtsd_f64(_mm_max_sd(a, _mm_unpackhi_pd(a, a)));
}

OP double
vd_total(vd v)
{
    return vh_total(vd_fold_add(v));
}

OP double
vd_top(vd v)
{
    return vh_top(vd_fold_max(v));
}

OP vdc
vdc_zero(void)
{
    vdc c = {_mm256_setzero_si256(), _mm256_setzero_si256()};

    return c;
}

OP vdc
vdc_count(vdc c, vdm m)
{
    vdc sum = {_mm256_sub_epi64(c.lo, _mm256_castpd_si256(m.lo)), _mm256_sub_epi64(c.hi, _mm256_castpd_si256(m.hi))};

    return sum;
}

OP int64_t
vdc_total(vdc c)
{
    __m256i a = _mm256_add_epi64(c.lo, c.hi);
    __m128i b = _mm_add_epi64(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));

    return _mm_cvtsi128_si64(b) + _mm_extract_epi64(b, 1);
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
