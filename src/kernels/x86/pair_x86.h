/* pair_x86.h - what the pair metrics with AVX2 and with AVX-512 have in common: eight floats, four doubles. */
#ifndef MSP_KERNELS_X86_PAIR_X86_H
#define MSP_KERNELS_X86_PAIR_X86_H

#include <immintrin.h>
#include "kernels/pair_ops.h"

typedef __m256 vf;
typedef __m256d vh;
typedef __m256i vfc, vsc;

OP_1(vf, vf_load_f32, const void *, _mm256_loadu_ps(a))
OP_1(vf, vf_load_f16, const void *, _mm256_cvtph_ps(_mm_loadu_si128(a)))
OP_1(vf, vf_set, float, _mm256_set1_ps(a))
OP_1(vf, vf_abs, vf, _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff))))
OP_1(vf, vf_round_f16, vf, _mm256_cvtph_ps(_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT)))
OP_2(vf, vf_add, vf, _mm256_add_ps(a, b))
OP_2(vf, vf_sub, vf, _mm256_sub_ps(a, b))
OP_2(vf, vf_mul, vf, _mm256_mul_ps(a, b))
OP_2(vf, vf_div, vf, _mm256_div_ps(a, b))
OP_1(vh, vh_set, double, _mm256_set1_pd(a))
OP_2(vh, vh_add, vh, _mm256_add_pd(a, b))
OP_2(vh, vh_max, vh, _mm256_max_pd(a, b))

/* All eight into both halves, and from there each into the upper half of its lane: one shuffle and no shift. */
OP vf
vf_load_bf16(const void *p)
{
    const __m256i places = _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7, /* 0 to 3 */
                                            -1, -1, 8, 9, -1, -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15);
    __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(p));

    return _mm256_castsi256_ps(_mm256_shuffle_epi8(twice, places));
}

OP_1(vf, vf_load_bf16_even, const void *, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(a), 16)))
OP_1(vf, vf_load_bf16_odd, const void *,
     _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(a), _mm256_set1_epi32(-0x10000))))

OP void
vf_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}

OP vf
vf_madd(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

#define pin(v)   __asm__ volatile("" : "+x"(v))
#define again(p) __asm__("" : "+r"(p))

OP float
vf_top(vf v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
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

/* ---- counters ---------------------------------------------------------------------------------------------------- */

OP vfc
vfc_zero(void)
{
    return _mm256_setzero_si256();
}

OP int64_t
vfc_total(vfc c)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1));

    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

#define vsc_zero vfc_zero

OP vsc
vsc_count_same(vsc c, const void *p, const void *q)
{
    return _mm256_sub_epi16(c, _mm256_cmpeq_epi16(_mm256_loadu_si256(p), _mm256_loadu_si256(q)));
}

OP_1(int64_t, vsc_total, vsc, vfc_total(_mm256_madd_epi16(a, _mm256_set1_epi16(1))))

#endif
