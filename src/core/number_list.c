/*
 * number_list.c - many decimals in a row: see number.h.
 *
 * torch_npu.hooks wrote tensors as text, millions of numbers like -0.33087015189408764. One by one and eight digits at
 * a time each takes 21 nanoseconds; here all digits are checked and weighed at once, in 8. The comma is looked for
 * first, so that the next number can be begun before this one is done; then digits stand where their place in the
 * number tells, counted from its end. How many there are, and the sign, are as good as random: what depends on them is
 * computed, for a wrong guess costs as much as the rest. Numbers with more digits in front of the point, with
 * exponents, or too close to the middle between two doubles are left to msp_f64_scan() and msp_f64_parse().
 */
#include "core/number.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include "core/cpu.h"

enum {
    WIDTH = 32,        /* bytes: looked at from a number's first one on, and before its comma */
    AHEAD = WIDTH + 2, /* that must be there: a comma may be the last of WIDTH, and a blank follows */
    FRACTION_MAX = 19  /* digits behind the point: 64 bits hold so many, and one in front when there are fewer */
};

#define AVX2 __attribute__((target("avx2,bmi,bmi2,lzcnt")))

/*
 * By the number of digits behind the point, n: what the one in front counts, and what it may be at most; the upper half
 * of 10^-n as in pow10.h, and the exponent of 2^63 times that, as doubles have it, less one for their first bit.
 */
static const struct {
    uint64_t weight, max, power, exponent;
} of_fraction[FRACTION_MAX + 1] = {
    /* clang-format off */
    {1, 9, 0x8000000000000000, 1085},
    {10, 9, 0xcccccccccccccccc, 1081},
    {100, 9, 0xa3d70a3d70a3d70a, 1078},
    {1000, 9, 0x83126e978d4fdf3b, 1075},
    {10000, 9, 0xd1b71758e219652b, 1071},
    {100000, 9, 0xa7c5ac471b478423, 1068},
    {1000000, 9, 0x8637bd05af6c69b5, 1065},
    {10000000, 9, 0xd6bf94d5e57a42bc, 1061},
    {100000000, 9, 0xabcc77118461cefc, 1058},
    {1000000000, 9, 0x89705f4136b4a597, 1055},
    {10000000000, 9, 0xdbe6fecebdedd5be, 1051},
    {100000000000, 9, 0xafebff0bcb24aafe, 1048},
    {1000000000000, 9, 0x8cbccc096f5088cb, 1045},
    {10000000000000, 9, 0xe12e13424bb40e13, 1041},
    {100000000000000, 9, 0xb424dc35095cd80f, 1038},
    {1000000000000000, 9, 0x901d7cf73ab0acd9, 1035},
    {10000000000000000, 9, 0xe69594bec44de15b, 1031},
    {100000000000000000, 9, 0xb877aa3236a4b449, 1028},
    {1000000000000000000, 9, 0x9392ee8e921d5d07, 1025},
    {0, 0, 0xec1e4a7db69561a5, 1021},
    /* clang-format on */
};

/* The number that the last n of the 32 bytes before `behind` are; false when one of them is no digit. */
AVX2 static inline bool
last_digits(const char *behind, size_t n, uint64_t *out)
{
    static const uint8_t is_last[WIDTH + FRACTION_MAX] = {[WIDTH] = 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
                                                          255,           255, 255, 255, 255, 255, 255, 255, 255};
    __m256i v = _mm256_sub_epi8(_mm256_loadu_si256((const __m256i *)(behind - WIDTH)), _mm256_set1_epi8('0'));
    __m256i above;
    uint64_t upper, lower;

    v = _mm256_and_si256(v, _mm256_loadu_si256((const __m256i *)(is_last + n)));
    above = _mm256_subs_epu8(v, _mm256_set1_epi8(9));
    v = _mm256_maddubs_epi16(v, _mm256_set1_epi16(0x010A));  /* 10 and 1 */
    v = _mm256_madd_epi16(v, _mm256_set1_epi32(0x00010064)); /* 100 and 1 */
    v = _mm256_packus_epi32(v, v);                           /* fours of digits in 16 bits */
    v = _mm256_madd_epi16(v, _mm256_set1_epi32(0x00012710)); /* 10000 and 1 */
    upper = (uint64_t)_mm_cvtsi128_si64(_mm256_castsi256_si128(v)) >> 32;
    lower = (uint64_t)_mm_cvtsi128_si64(_mm256_extracti128_si256(v, 1));
    *out = upper * 10000000000000000 + (uint32_t)lower * 100000000ULL + (lower >> 32);
    return _mm256_testz_si256(above, above);
}

/*
 * The bits of the double nearest to w * 10^-n, w at most 19 digits. False, once in 256 times, when the lower half of
 * the power, which is not looked at here, might carry into the bits that decide: see round_product() in number_read.c.
 */
AVX2 static inline bool
round_quickly(uint64_t w, size_t n, uint64_t *bits)
{
    uint64_t zeros = _lzcnt_u64(w);
    uint64_t hi = (uint64_t)((unsigned __int128)(w << (zeros & 63)) * of_fraction[n].power >> 64), top = hi >> 63;
    uint64_t m = (hi >> (9 + top)) + 1; /* 53 bits and one more, by which they are rounded */
    uint64_t exponent = of_fraction[n].exponent - zeros + top;

    *bits = w == 0 ? 0 : (exponent << 52) + (m >> 1);
    return ((hi + 1) & 0x1FE) != 0 || w == 0;
}

/* The number at p, of whose text WIDTH bytes before its end can be read; NULL when it is not of the usual kind. */
AVX2 static inline const char *
scan_usual(const char *p, double *out)
{
    __m256i commas = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)p), _mm256_set1_epi8(','));
    size_t len = _tzcnt_u32((unsigned)_mm256_movemask_epi8(commas));
    uint64_t negative = *p == '-', bits, w;
    size_t n = len - negative - 2;
    uint16_t two;
    uint64_t lead;

    memcpy(&two, p + negative, 2);
    lead = (uint64_t)two - ('0' + ('.' << 8)); /* more than any digit when there is no point behind it */
    if (n - 1 >= FRACTION_MAX || lead > of_fraction[n].max || p[len + 1] != ' ')
        return NULL;
    if (!last_digits(p + len, n, &w) || !round_quickly(lead * of_fraction[n].weight + w, n, &bits))
        return NULL;
    bits |= negative << 63;
    memcpy(out, &bits, sizeof(bits));
    return p + len + 2;
}

/* At least AHEAD bytes are there. No function is called in here, so that the constants stay in registers. */
AVX2 static double *
scan_all_usual(const char **at, const char *end, double *out, const double *out_end)
{
    const char *p = *at, *last = end - AHEAD, *next;

    for (; out < out_end && p <= last && (next = scan_usual(p, out)) != NULL; p = next)
        out++;
    *at = p;
    return out;
}

AVX2 static size_t
scan_avx2(const char *from, const char **at, const char *end, double *out, size_t cap)
{
    const char *p = *at, *behind;
    double *v = out;

    while (v < out + cap && end - p >= AHEAD) {
        if (p - from >= WIDTH) {
            v = scan_all_usual(&p, end, v, out + cap);
            if (v == out + cap || end - p < AHEAD)
                break;
        }
        behind = msp_f64_scan(p, end, v);
        if (behind == NULL || end - behind <= 2 || behind[0] != ',' || behind[1] != ' ')
            break;
        p = behind + 2;
        v++;
    }
    *at = p;
    return (size_t)(v - out);
}

#endif

size_t
msp_f64_scan_list(const char *from, const char **at, const char *end, double *out, size_t cap)
{
#if defined(__x86_64__)
    if (msp_cpu_best() >= MSP_CPU_AVX2)
        return scan_avx2(from, at, end, out, cap);
#endif
    (void)from, (void)at, (void)end, (void)out, (void)cap;
    return 0;
}
