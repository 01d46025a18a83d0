/*
 * stats_avx512.c - statistics with AVX-512 (F, BW, DQ, VL).
 *
 * A whole group of doubles is two registers. Zeros and subnormals are told by testing the magnitude's and the
 * exponent's bits; the resulting masks are counted in general registers, which have nothing else to do.
 */
#if defined(__x86_64__)
#include "kernels/stats_kernel.h"
#include "kernels/x86/avx512.h"

#define KERNEL_ATTRIBUTES __attribute__((target(AVX512_SET "avx2,fma,f16c,bmi2,popcnt")))
#define KERNEL_TABLE      msp_stats_avx512
#define INLINE            KERNEL_ATTRIBUTES static inline __attribute__((always_inline))

enum { LEAST_IS_DEAR = 0 };

/* ---- lanes ----------------------------------------------------------------------------------------------------- */

typedef struct sums {
    __m512d sum;              /* lanes 0-7 */
    __m512d square0, square1; /* lanes 0-7, 8-15 */
} sums;

INLINE void
sums_load(sums *s, const msp_stats_floats *from)
{
    s->sum = _mm512_loadu_pd(from->sum);
    s->square0 = _mm512_loadu_pd(from->square);
    s->square1 = _mm512_loadu_pd(from->square + 8);
}

INLINE void
sums_store(msp_stats_floats *to, const sums *s)
{
    _mm512_storeu_pd(to->sum, s->sum);
    _mm512_storeu_pd(to->square, s->square0);
    _mm512_storeu_pd(to->square + 8, s->square1);
}

INLINE void
sums_add_floats(sums *s, const float *p)
{
    __m512d a = _mm512_cvtps_pd(_mm256_loadu_ps(p)), b = _mm512_cvtps_pd(_mm256_loadu_ps(p + 8));

    s->sum = _mm512_add_pd(s->sum, _mm512_add_pd(a, b));
    s->square0 = _mm512_fmadd_pd(a, a, s->square0);
    s->square1 = _mm512_fmadd_pd(b, b, s->square1);
}

INLINE void
sums_add_doubles(sums *s, const double *p)
{
    __m512d a = _mm512_loadu_pd(p), b = _mm512_loadu_pd(p + 8);

    s->sum = _mm512_add_pd(s->sum, _mm512_add_pd(a, b));
    s->square0 = _mm512_add_pd(s->square0, _mm512_mul_pd(a, a));
    s->square1 = _mm512_add_pd(s->square1, _mm512_mul_pd(b, b));
}

/* ---- 16-bit floats --------------------------------------------------------------------------------------------- */

typedef struct halves {
    __m512i signed_max, unsigned_max, unsigned_min;
    int64_t zero, tiny;
} halves;

INLINE void
halves_begin(halves *h)
{
    h->signed_max = _mm512_set1_epi16(INT16_MIN);
    h->unsigned_max = _mm512_setzero_si512();
    h->unsigned_min = _mm512_set1_epi16(-1);
    h->zero = h->tiny = 0;
}

INLINE void
halves_add(halves *h, const uint16_t *p, msp_half_kind kind, bool least)
{
    const __m512i exponent = _mm512_set1_epi16(kind == MSP_HALF_BF16 ? 0x7f80 : 0x7c00);
    __m512i v = _mm512_loadu_si512(p);

    (void)least;
    h->signed_max = _mm512_max_epi16(h->signed_max, v);
    h->unsigned_max = _mm512_max_epu16(h->unsigned_max, v);
    h->unsigned_min = _mm512_min_epu16(h->unsigned_min, v);
    h->zero += __builtin_popcount(_mm512_testn_epi16_mask(v, _mm512_set1_epi16(0x7fff)));
    h->tiny += __builtin_popcount(_mm512_testn_epi16_mask(v, exponent));
}

INLINE uint16_t
min_epu16(__m512i v)
{
    __m256i half = _mm256_min_epu16(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    __m128i quarter = _mm_min_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));

    return (uint16_t)_mm_extract_epi16(_mm_minpos_epu16(quarter), 0);
}

INLINE void
halves_end(msp_stats_floats *out, const halves *h, size_t n, msp_half_kind kind, bool least)
{
    /* largest = ~least of ~v; signed numbers are ordered like unsigned ones once their top bit is flipped */
    const __m512i ones = _mm512_set1_epi16(-1), all_but_sign = _mm512_set1_epi16(INT16_MAX);
    uint16_t flipped = (uint16_t)~min_epu16(_mm512_xor_si512(h->signed_max, all_but_sign));
    uint16_t unsigned_max = (uint16_t)~min_epu16(_mm512_xor_si512(h->unsigned_max, ones));

    (void)kind;
    (void)least;
    (void)n;
    msp_stats_note_range(&out->range, (int16_t)(flipped ^ 0x8000), unsigned_max, min_epu16(h->unsigned_min));
    out->zero += h->zero;
    out->tiny += h->tiny;
}

INLINE void
widen_f16(float *to, const uint16_t *p)
{
    _mm512_store_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)));
}

INLINE void
widen_bf16(float *to, const uint16_t *p)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)p);

    _mm256_store_si256((__m256i *)to, _mm256_slli_epi32(v, 16));
    _mm256_store_si256((__m256i *)(to + 8), _mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000)));
}

/* ---- 32-bit floats --------------------------------------------------------------------------------------------- */

typedef struct words {
    __m512i signed_max, unsigned_max, unsigned_min;
    int64_t zero, tiny;
} words;

INLINE void
words_begin(words *w)
{
    w->signed_max = _mm512_set1_epi32(INT32_MIN);
    w->unsigned_max = _mm512_setzero_si512();
    w->unsigned_min = _mm512_set1_epi32(-1);
    w->zero = w->tiny = 0;
}

INLINE void
words_add(words *w, const float *p)
{
    __m512i v = _mm512_loadu_si512(p);

    w->signed_max = _mm512_max_epi32(w->signed_max, v);
    w->unsigned_max = _mm512_max_epu32(w->unsigned_max, v);
    w->unsigned_min = _mm512_min_epu32(w->unsigned_min, v);
    w->zero += __builtin_popcount(_mm512_testn_epi32_mask(v, _mm512_set1_epi32(INT32_MAX)));
    w->tiny += __builtin_popcount(_mm512_testn_epi32_mask(v, _mm512_set1_epi32(0x7f800000)));
}

INLINE void
words_end(msp_stats_floats *out, const words *w, size_t n)
{
    (void)n;
    msp_stats_note_range(&out->range, _mm512_reduce_max_epi32(w->signed_max), _mm512_reduce_max_epu32(w->unsigned_max),
                         _mm512_reduce_min_epu32(w->unsigned_min));
    out->zero += w->zero;
    out->tiny += w->tiny;
}

/* ---- 64-bit floats --------------------------------------------------------------------------------------------- */

typedef struct longs {
    __m512i signed_max, unsigned_max, unsigned_min;
    int64_t zero, tiny;
} longs;

INLINE void
longs_begin(longs *l)
{
    l->signed_max = _mm512_set1_epi64(INT64_MIN);
    l->unsigned_max = _mm512_setzero_si512();
    l->unsigned_min = _mm512_set1_epi64(-1);
    l->zero = l->tiny = 0;
}

INLINE void
longs_add(longs *l, const double *p)
{
    for (int i = 0; i < 16; i += 8) {
        __m512i v = _mm512_loadu_si512(p + i);

        l->signed_max = _mm512_max_epi64(l->signed_max, v);
        l->unsigned_max = _mm512_max_epu64(l->unsigned_max, v);
        l->unsigned_min = _mm512_min_epu64(l->unsigned_min, v);
        l->zero += __builtin_popcount(_mm512_testn_epi64_mask(v, _mm512_set1_epi64(INT64_MAX)));
        l->tiny += __builtin_popcount(_mm512_testn_epi64_mask(v, _mm512_set1_epi64(0x7ff0000000000000)));
    }
}

INLINE void
longs_end(msp_stats_floats *out, const longs *l, size_t n)
{
    (void)n;
    msp_stats_note_range(&out->range, _mm512_reduce_max_epi64(l->signed_max), _mm512_reduce_max_epu64(l->unsigned_max),
                         _mm512_reduce_min_epu64(l->unsigned_min));
    out->zero += l->zero;
    out->tiny += l->tiny;
}

#include "kernels/stats_template.h"
#endif
