/*
 * avx512_by_simde.h - AVX-512 on machines without it, for `make test-avx512`: included before everything else, it makes
 * a function in C of each intrinsic. They are SIMDe's, and, where its version 0.7.4 has none, ours.
 */
#ifndef MSP_TEST_AVX512_BY_SIMDE_H
#define MSP_TEST_AVX512_BY_SIMDE_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <immintrin.h>
#include <simde/x86/avx512.h>

#define EMULATED static inline __attribute__((always_inline))

EMULATED simde__m512d
emulated_cvtps_pd(__m256 v)
{
    double wide[8];
    float x[8];

    _mm256_storeu_ps(x, v);
    for (int i = 0; i < 8; i++)
        wide[i] = x[i];
    return simde_mm512_loadu_pd(wide);
}

EMULATED simde__m512
emulated_cvtph_ps(__m256i v)
{
    float wide[16];

    _mm256_storeu_ps(wide, _mm256_cvtph_ps(_mm256_castsi256_si128(v)));
    _mm256_storeu_ps(wide + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1)));
    return simde_mm512_loadu_ps(wide);
}

/* Lanes that have no bit in common. */
#define EMULATED_TESTN(name, type, lanes, mask)        \
    EMULATED mask name(simde__m512i a, simde__m512i b) \
    {                                                  \
        type x[lanes], y[lanes];                       \
        mask m = 0;                                    \
                                                       \
        simde_mm512_storeu_si512(x, a);                \
        simde_mm512_storeu_si512(y, b);                \
        for (int i = 0; i < lanes; i++)                \
            if ((x[i] & y[i]) == 0)                    \
                m |= (mask)1 << i;                     \
        return m;                                      \
    }

EMULATED_TESTN(emulated_testn_epi16, uint16_t, 32, __mmask32)
EMULATED_TESTN(emulated_testn_epi32, uint32_t, 16, __mmask16)
EMULATED_TESTN(emulated_testn_epi64, uint64_t, 8, __mmask8)

/* The largest or smallest lane. */
#define EMULATED_REDUCE(name, type, lanes, better) \
    EMULATED type name(simde__m512i v)             \
    {                                              \
        type x[lanes], best;                       \
                                                   \
        simde_mm512_storeu_si512(x, v);            \
        best = x[0];                               \
        for (int i = 1; i < lanes; i++)            \
            if (x[i] better best)                  \
                best = x[i];                       \
        return best;                               \
    }

EMULATED_REDUCE(emulated_reduce_max_epi32, int32_t, 16, >)
EMULATED_REDUCE(emulated_reduce_max_epi64, int64_t, 8, >)
EMULATED_REDUCE(emulated_reduce_max_epu32, uint32_t, 16, >)
EMULATED_REDUCE(emulated_reduce_max_epu64, uint64_t, 8, >)
EMULATED_REDUCE(emulated_reduce_min_epu32, uint32_t, 16, <)
EMULATED_REDUCE(emulated_reduce_min_epu64, uint64_t, 8, <)

#define _mm512_cvtps_pd         emulated_cvtps_pd
#define _mm512_cvtph_ps         emulated_cvtph_ps
#define _mm512_testn_epi16_mask emulated_testn_epi16
#define _mm512_testn_epi32_mask emulated_testn_epi32
#define _mm512_testn_epi64_mask emulated_testn_epi64
#define _mm512_reduce_max_epi32 emulated_reduce_max_epi32
#define _mm512_reduce_max_epi64 emulated_reduce_max_epi64
#define _mm512_reduce_max_epu32 emulated_reduce_max_epu32
#define _mm512_reduce_max_epu64 emulated_reduce_max_epu64
#define _mm512_reduce_min_epu32 emulated_reduce_min_epu32
#define _mm512_reduce_min_epu64 emulated_reduce_min_epu64

#endif
