/*
 * stats_avx2.c - statistics with AVX2, FMA and F16C.
 *
 * What bounds the loop over 16-bit floats is the number of operations, so it uses the cheapest forms that current cores
 * have. Conversions take their operand from memory, because from a register they cost a shuffle more: that is why
 * halves are widened into a buffer. What is zero is counted in general registers from one vector of bytes, into which
 * two of 16-bit magnitudes are packed with saturation. The least element is not looked for when it cannot matter.
 */
#if defined(__x86_64__)
#include <immintrin.h>
#include "kernels/stats_kernel.h"

#define KERNEL_ATTRIBUTES __attribute__((target("avx2,fma,f16c,bmi2,popcnt")))
#define KERNEL_TABLE      msp_stats_avx2
#define INLINE            KERNEL_ATTRIBUTES static inline __attribute__((always_inline))

enum { LEAST_IS_DEAR = 1 };

/* Leave this value in its register here: gcc 12 otherwise reorders sums of several groups until registers run out. */
#define KEEP(v) __asm__("" : "+x"(v))

/* ---- lanes ----------------------------------------------------------------------------------------------------- */

typedef struct sums {
    __m256d sum0, sum1;                         /* lanes 0-3, 4-7 */
    __m256d square0, square1, square2, square3; /* lanes 0-3, 4-7, 8-11, 12-15 */
} sums;

INLINE void
sums_load(sums *s, const msp_stats_floats *from)
{
    s->sum0 = _mm256_loadu_pd(from->sum);
    s->sum1 = _mm256_loadu_pd(from->sum + 4);
    s->square0 = _mm256_loadu_pd(from->square);
    s->square1 = _mm256_loadu_pd(from->square + 4);
    s->square2 = _mm256_loadu_pd(from->square + 8);
    s->square3 = _mm256_loadu_pd(from->square + 12);
}

INLINE void
sums_store(msp_stats_floats *to, const sums *s)
{
    _mm256_storeu_pd(to->sum, s->sum0);
    _mm256_storeu_pd(to->sum + 4, s->sum1);
    _mm256_storeu_pd(to->square, s->square0);
    _mm256_storeu_pd(to->square + 4, s->square1);
    _mm256_storeu_pd(to->square + 8, s->square2);
    _mm256_storeu_pd(to->square + 12, s->square3);
}

INLINE void
sums_keep(sums *s)
{
    KEEP(s->sum0);
    KEEP(s->sum1);
    KEEP(s->square0);
    KEEP(s->square1);
    KEEP(s->square2);
    KEEP(s->square3);
}

INLINE void
sums_add_floats(sums *s, const float *p)
{
    __m256d a = _mm256_cvtps_pd(_mm_loadu_ps(p)), b = _mm256_cvtps_pd(_mm_loadu_ps(p + 8));

    s->sum0 = _mm256_add_pd(s->sum0, _mm256_add_pd(a, b));
    s->square0 = _mm256_fmadd_pd(a, a, s->square0);
    s->square2 = _mm256_fmadd_pd(b, b, s->square2);
    a = _mm256_cvtps_pd(_mm_loadu_ps(p + 4));
    b = _mm256_cvtps_pd(_mm_loadu_ps(p + 12));
    s->sum1 = _mm256_add_pd(s->sum1, _mm256_add_pd(a, b));
    s->square1 = _mm256_fmadd_pd(a, a, s->square1);
    s->square3 = _mm256_fmadd_pd(b, b, s->square3);
    sums_keep(s);
}

INLINE void
sums_add_doubles(sums *s, const double *p)
{
    __m256d a = _mm256_loadu_pd(p), b = _mm256_loadu_pd(p + 8);

    s->sum0 = _mm256_add_pd(s->sum0, _mm256_add_pd(a, b));
    s->square0 = _mm256_add_pd(s->square0, _mm256_mul_pd(a, a));
    s->square2 = _mm256_add_pd(s->square2, _mm256_mul_pd(b, b));
    a = _mm256_loadu_pd(p + 4);
    b = _mm256_loadu_pd(p + 12);
    s->sum1 = _mm256_add_pd(s->sum1, _mm256_add_pd(a, b));
    s->square1 = _mm256_add_pd(s->square1, _mm256_mul_pd(a, a));
    s->square3 = _mm256_add_pd(s->square3, _mm256_mul_pd(b, b));
}

/* ---- 16-bit floats --------------------------------------------------------------------------------------------- */

typedef struct halves {
    __m256i signed_max, unsigned_max, unsigned_min;
    uint64_t zero, normal; /* normal: of float16, twice their number */
} halves;

INLINE void
halves_begin(halves *h)
{
    h->signed_max = _mm256_set1_epi16(INT16_MIN);
    h->unsigned_max = _mm256_setzero_si256();
    h->unsigned_min = _mm256_set1_epi16(-1);
    h->zero = h->normal = 0;
}

/* How many bytes have their top bit set. */
INLINE uint64_t
count_bytes(__m256i v)
{
    return (uint64_t)__builtin_popcount((unsigned)_mm256_movemask_epi8(v));
}

INLINE void
halves_add(halves *h, const uint16_t *p, msp_half_kind kind, bool least)
{
    const __m256i magnitude = _mm256_set1_epi16(0x7fff);
    __m256i a = _mm256_loadu_si256((const __m256i *)p), b = _mm256_loadu_si256((const __m256i *)(p + 16)), packed;

    h->signed_max = _mm256_max_epi16(_mm256_max_epi16(h->signed_max, a), b);
    h->unsigned_max = _mm256_max_epu16(_mm256_max_epu16(h->unsigned_max, a), b);
    if (least)
        h->unsigned_min = _mm256_min_epu16(_mm256_min_epu16(h->unsigned_min, a), b);
    a = _mm256_and_si256(a, magnitude);
    b = _mm256_and_si256(b, magnitude);
    packed = _mm256_packus_epi16(a, b); /* 255 for all that is larger */
    h->zero += count_bytes(_mm256_cmpeq_epi8(packed, _mm256_setzero_si256()));
    if (kind == MSP_HALF_BF16) { /* the smallest normal is 0x80: the top bit of the byte tells */
        h->normal += count_bytes(packed);
    } else {
        const __m256i largest_subnormal = _mm256_set1_epi16(0x3ff);

        h->normal += count_bytes(_mm256_cmpgt_epi16(a, largest_subnormal));
        h->normal += count_bytes(_mm256_cmpgt_epi16(b, largest_subnormal));
    }
}

INLINE uint16_t
min_epu16(__m256i v)
{
    __m128i half = _mm_min_epu16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

    return (uint16_t)_mm_extract_epi16(_mm_minpos_epu16(half), 0);
}

INLINE void
halves_end(msp_stats_floats *out, const halves *h, size_t n, msp_half_kind kind, bool least)
{
    /* largest = ~least of ~v; signed numbers are ordered like unsigned ones once their top bit is flipped */
    const __m256i ones = _mm256_set1_epi16(-1), all_but_sign = _mm256_set1_epi16(INT16_MAX);
    uint16_t flipped = (uint16_t)~min_epu16(_mm256_xor_si256(h->signed_max, all_but_sign));
    uint16_t unsigned_max = (uint16_t)~min_epu16(_mm256_xor_si256(h->unsigned_max, ones));
    int16_t signed_max = (int16_t)(flipped ^ 0x8000);

    msp_stats_note_range(&out->range, signed_max, unsigned_max, least ? min_epu16(h->unsigned_min) : UINT64_MAX);
    out->zero += (int64_t)h->zero;
    out->tiny += (int64_t)(n - (kind == MSP_HALF_BF16 ? h->normal : h->normal / 2));
    if (h->zero > 0 || (signed_max >= 0 && unsigned_max >= 0x8000))
        out->seek_least = false;
}

INLINE void
widen_f16(float *to, const uint16_t *p)
{
    _mm256_store_ps(to, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)));
    _mm256_store_ps(to + 8, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8))));
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
    __m256i signed_max, unsigned_max, unsigned_min;
    uint64_t zero, normal;
} words;

INLINE void
words_begin(words *w)
{
    w->signed_max = _mm256_set1_epi32(INT32_MIN);
    w->unsigned_max = _mm256_setzero_si256();
    w->unsigned_min = _mm256_set1_epi32(-1);
    w->zero = w->normal = 0;
}

/* How many words have their top bit set. */
INLINE uint64_t
count_words(__m256i v)
{
    return (uint64_t)__builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(v)));
}

INLINE void
words_add(words *w, const float *p)
{
    const __m256i largest_subnormal = _mm256_set1_epi32(0x7fffff);

    for (int i = 0; i < 16; i += 8) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(p + i));
        __m256i magnitude = _mm256_and_si256(v, _mm256_set1_epi32(INT32_MAX));

        w->signed_max = _mm256_max_epi32(w->signed_max, v);
        w->unsigned_max = _mm256_max_epu32(w->unsigned_max, v);
        w->unsigned_min = _mm256_min_epu32(w->unsigned_min, v);
        w->zero += count_words(_mm256_cmpeq_epi32(magnitude, _mm256_setzero_si256()));
        w->normal += count_words(_mm256_cmpgt_epi32(magnitude, largest_subnormal));
    }
}

INLINE void
words_end(msp_stats_floats *out, const words *w, size_t n)
{
    int32_t signed_max[8];
    uint32_t unsigned_max[8], unsigned_min[8];

    _mm256_storeu_si256((__m256i *)signed_max, w->signed_max);
    _mm256_storeu_si256((__m256i *)unsigned_max, w->unsigned_max);
    _mm256_storeu_si256((__m256i *)unsigned_min, w->unsigned_min);
    for (int i = 0; i < 8; i++)
        msp_stats_note_range(&out->range, signed_max[i], unsigned_max[i], unsigned_min[i]);
    out->zero += (int64_t)w->zero;
    out->tiny += (int64_t)(n - w->normal);
}

/* ---- 64-bit floats --------------------------------------------------------------------------------------------- */

typedef struct longs {
    __m256i signed_max;
    __m256i flipped_max, flipped_min; /* top bit flipped: as signed integers they are ordered like unsigned ones */
    uint64_t zero, normal;
} longs;

INLINE void
longs_begin(longs *l)
{
    l->signed_max = l->flipped_max = _mm256_set1_epi64x(INT64_MIN);
    l->flipped_min = _mm256_set1_epi64x(INT64_MAX);
    l->zero = l->normal = 0;
}

INLINE __m256i
max_epi64(__m256i a, __m256i b)
{
    return _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b));
}

INLINE __m256i
min_epi64(__m256i a, __m256i b)
{
    return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b));
}

INLINE uint64_t
count_longs(__m256i v)
{
    return (uint64_t)__builtin_popcount((unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(v)));
}

INLINE void
longs_add(longs *l, const double *p)
{
    const __m256i sign = _mm256_set1_epi64x(INT64_MIN);
    const __m256i largest_subnormal = _mm256_set1_epi64x((INT64_C(1) << 52) - 1);

    for (int i = 0; i < 16; i += 4) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(p + i));
        __m256i flipped = _mm256_xor_si256(v, sign), magnitude = _mm256_andnot_si256(sign, v);

        l->signed_max = max_epi64(l->signed_max, v);
        l->flipped_max = max_epi64(l->flipped_max, flipped);
        l->flipped_min = min_epi64(l->flipped_min, flipped);
        l->zero += count_longs(_mm256_cmpeq_epi64(magnitude, _mm256_setzero_si256()));
        l->normal += count_longs(_mm256_cmpgt_epi64(magnitude, largest_subnormal));
    }
}

INLINE void
longs_end(msp_stats_floats *out, const longs *l, size_t n)
{
    const __m256i sign = _mm256_set1_epi64x(INT64_MIN);
    int64_t signed_max[4];
    uint64_t unsigned_max[4], unsigned_min[4];

    _mm256_storeu_si256((__m256i *)signed_max, l->signed_max);
    _mm256_storeu_si256((__m256i *)unsigned_max, _mm256_xor_si256(l->flipped_max, sign));
    _mm256_storeu_si256((__m256i *)unsigned_min, _mm256_xor_si256(l->flipped_min, sign));
    for (int i = 0; i < 4; i++)
        msp_stats_note_range(&out->range, signed_max[i], unsigned_max[i], unsigned_min[i]);
    out->zero += (int64_t)l->zero;
    out->tiny += (int64_t)(n - l->normal);
}

#include "kernels/stats_template.h"
#endif
