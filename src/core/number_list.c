/*
 * number_list.c - many decimals in a row: see number.h.
 *
 * torch_npu.hooks wrote tensors as text, millions of numbers like -0.33087015189408764. One by one and eight digits at
 * a time each takes 21 nanoseconds; here sixteen digits are found, checked and weighed at once, in 14. How many digits
 * there are, and the sign, are as good as random: what depends on them is computed, for a wrong guess costs as much as
 * the rest. Numbers with more digits in front of the point, with exponents, or too close to the middle between two
 * doubles are left to msp_f64_scan() and msp_f64_parse().
 */
#include "core/number.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include "core/cpu.h"
#include "core/pow10.h"

enum {
    LOOKED_AT = 40, /* bytes: sign, digit, point, 32 of which the digits are the first, a comma and a space */
    FRACTION_MAX = 18
};

#define AVX2 __attribute__((target("avx2,bmi,bmi2,lzcnt")))

/* The number that the first n of sixteen digits are, each a byte of 0 to 9; n is at most 16. */
AVX2 static inline uint64_t
first_digits(__m128i digits, size_t n)
{
    static const uint8_t behind_zeros[32] = {128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
                                             128, 128, 128, 128, 128, 0,   1,   2,   3,   4,   5,
                                             6,   7,   8,   9,   10,  11,  12,  13,  14,  15};
    __m128i v = _mm_shuffle_epi8(digits, _mm_loadu_si128((const __m128i *)(behind_zeros + n)));
    uint64_t halves;

    v = _mm_maddubs_epi16(v, _mm_set1_epi16(0x010A));  /* 10 and 1 */
    v = _mm_madd_epi16(v, _mm_set1_epi32(0x00010064)); /* 100 and 1 */
    v = _mm_packus_epi32(v, v);                        /* fours of digits in 16 bits */
    v = _mm_madd_epi16(v, _mm_set1_epi32(0x00012710)); /* 10000 and 1 */
    halves = (uint64_t)_mm_cvtsi128_si64(v);
    return (uint32_t)halves * 100000000ULL + (halves >> 32);
}

/*
 * The bits of the double nearest to w * 10^-n, w at most 19 digits. False, once in 256 times, when the lower half of
 * the power, which is not looked at here, might carry into the bits that decide: see round_product() in number_read.c.
 */
AVX2 static inline bool
round_quickly(uint64_t w, size_t n, uint64_t *bits)
{
    int k = -(int)n, zeros = (int)_lzcnt_u64(w | 1);
    uint64_t hi = (uint64_t)((unsigned __int128)(w << zeros) * msp_pow10_table[k - MSP_POW10_MIN].hi >> 64);
    unsigned top = (unsigned)(hi >> 63);
    uint64_t m = hi >> (9 + top); /* 53 bits and one more */
    uint64_t exponent = (uint64_t)(msp_pow10_log2(k) + 63 - zeros + (int)top + 1022);

    *bits = w == 0 ? 0 : (exponent << 52) + (m >> 1) + (m & 1);
    return ((hi + 1) & 0x1FF) > 1 || w == 0;
}

/* What the digits of a number with so many behind the point are worth: the one before it, the first 16, two more. */
static const struct {
    uint64_t of_lead;
    uint32_t of_16, of_17th, of_18th;
} weight[FRACTION_MAX + 1] = {{1, 1, 0, 0},
                              {10, 1, 0, 0},
                              {100, 1, 0, 0},
                              {1000, 1, 0, 0},
                              {10000, 1, 0, 0},
                              {100000, 1, 0, 0},
                              {1000000, 1, 0, 0},
                              {10000000, 1, 0, 0},
                              {100000000, 1, 0, 0},
                              {1000000000, 1, 0, 0},
                              {10000000000, 1, 0, 0},
                              {100000000000, 1, 0, 0},
                              {1000000000000, 1, 0, 0},
                              {10000000000000, 1, 0, 0},
                              {100000000000000, 1, 0, 0},
                              {1000000000000000, 1, 0, 0},
                              {10000000000000000, 1, 0, 0},
                              {100000000000000000, 10, 1, 0},
                              {1000000000000000000, 100, 10, 1}};

/* The number at p; returns where it ends, or NULL when it is not of the usual kind. */
AVX2 static inline const char *
scan_usual(const char *p, double *out)
{
    uint64_t negative = *p == '-', bits, w;
    const char *f = p + negative + 2;
    uint64_t lead = (uint64_t)(unsigned char)f[-2] - '0';
    __m256i v = _mm256_sub_epi8(_mm256_loadu_si256((const __m256i *)f), _mm256_set1_epi8('0'));
    unsigned digits = (unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(v, _mm256_set1_epi8(9)), v));
    size_t n = _tzcnt_u32(~digits);

    if (lead > 9 || f[-1] != '.' || n - 1 >= FRACTION_MAX)
        return NULL;
    w = first_digits(_mm256_castsi256_si128(v), n < 16 ? n : 16) * weight[n].of_16 +
        (uint64_t)((unsigned char)f[16] - '0') * weight[n].of_17th +
        (uint64_t)((unsigned char)f[17] - '0') * weight[n].of_18th;
    if (!round_quickly(lead * weight[n].of_lead + w, n, &bits))
        return NULL;
    bits |= negative << 63;
    memcpy(out, &bits, sizeof(bits));
    return f + n;
}

AVX2 static size_t
scan_avx2(const char **at, const char *end, double *out, size_t cap)
{
    const char *p = *at;
    size_t n = 0;

    for (; n < cap && end - p >= LOOKED_AT; n++) {
        const char *behind = scan_usual(p, &out[n]);

        if (behind == NULL)
            behind = msp_f64_scan(p, end, &out[n]);
        if (behind == NULL || end - behind <= 2 || behind[0] != ',' || behind[1] != ' ')
            break;
        p = behind + 2;
    }
    *at = p;
    return n;
}

#endif

size_t
msp_f64_scan_list(const char **at, const char *end, double *out, size_t cap)
{
#if defined(__x86_64__)
    if (msp_cpu_best() >= MSP_CPU_AVX2)
        return scan_avx2(at, end, out, cap);
#endif
    (void)at, (void)end, (void)out, (void)cap;
    return 0;
}
