/*
 * crc32_clmul.c - CRC-32 folding with PCLMULQDQ, 128 bits at a time, and with VPCLMULQDQ, 256 bits at a time.
 *
 * Both multiply instructions start once in two cycles on AMD's cores, so the wider one is twice as fast; see crc32.c.
 */
#if defined(__x86_64__)
#include <immintrin.h>
#include "kernels/crc32.h"
#include "kernels/prefetch.h"

#define FOLD_ATTRIBUTES __attribute__((target("pclmul,sse4.1")))

typedef __m128i vec;

FOLD_ATTRIBUTES static inline vec
load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

FOLD_ATTRIBUTES static inline void
store(uint8_t *p, vec v)
{
    _mm_storeu_si128((__m128i *)p, v);
}

FOLD_ATTRIBUTES static inline vec
set(uint64_t hi, uint64_t lo)
{
    return _mm_set_epi64x((long long)hi, (long long)lo);
}

FOLD_ATTRIBUTES static inline vec
add(vec a, vec b)
{
    return _mm_xor_si128(a, b);
}

FOLD_ATTRIBUTES static inline vec
multiply(vec v, vec k)
{
    return _mm_xor_si128(_mm_clmulepi64_si128(v, k, 0x00), _mm_clmulepi64_si128(v, k, 0x11));
}

#include "kernels/crc32_fold.h"

FOLD_ATTRIBUTES uint32_t
msp_crc32_clmul(uint32_t reg, const uint8_t *p, size_t n)
{
    return crc32_fold(reg, p, n);
}

/* ---- 256 bits -------------------------------------------------------------------------------------------------- */

enum { AHEAD = 1024 }; /* bytes to prefetch ahead: from 75 % of plain reading to 90 % */

#define WIDE __attribute__((target("avx2,pclmul,vpclmulqdq")))

WIDE static inline __m256i
load_wide(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

WIDE static inline __m256i
fold_wide(__m256i v, __m256i k, __m256i next)
{
    return _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(v, k, 0x00),
                                             _mm256_clmulepi64_epi128(v, k, 0x11)),
                            next);
}

WIDE uint32_t
msp_crc32_vpclmul(uint32_t reg, const uint8_t *p, size_t n)
{
    const __m256i by1024 = _mm256_set_epi64x(0x14a7fe880, 0x1e88ef372, 0x14a7fe880, 0x1e88ef372); /* x^992, x^1056 */
    const __m256i by256 = _mm256_set_epi64x(0x15a546366, 0x0f1da05aa, 0x15a546366, 0x0f1da05aa);  /* x^224, x^288 */
    __m256i a, b, c, d;
    uint8_t rest[32];

    if (n < 256)
        return crc32_fold(reg, p, n);
    a = _mm256_xor_si256(load_wide(p), _mm256_set_epi64x(0, 0, 0, reg));
    b = load_wide(p + 32);
    c = load_wide(p + 64);
    d = load_wide(p + 96);
    for (p += 128, n -= 128; n >= 128; p += 128, n -= 128) {
        prefetch(p, AHEAD);
        prefetch(p, AHEAD + 64);
        a = fold_wide(a, by1024, load_wide(p));
        b = fold_wide(b, by1024, load_wide(p + 32));
        c = fold_wide(c, by1024, load_wide(p + 64));
        d = fold_wide(d, by1024, load_wide(p + 96));
    }
    b = fold_wide(a, by256, b);
    c = fold_wide(b, by256, c);
    d = fold_wide(c, by256, d);
    for (; n >= 32; p += 32, n -= 32)
        d = fold_wide(d, by256, load_wide(p));
    _mm256_storeu_si256((__m256i *)rest, d);
    return msp_crc32_table(msp_crc32_table(0, rest, 32), p, n);
}
#else
typedef int msp_not_x86_64;
#endif
