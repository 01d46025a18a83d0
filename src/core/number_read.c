/*
 * number_read.c - text to numbers: see number.h.
 *
 * A decimal is w * 10^k. Three ways, each where the one before does not reach:
 *   1. w and 10^|k| are both exact doubles: one multiplication or division rounds once, correctly (Clinger 1990).
 *   2. w fits 64 bits: multiply by 10^k to 128 bits and round, unless the product is too close to the middle between
 *      two doubles to tell (the idea of Eisel and Lemire, 2020). Only true ties and decimals within 2^-64 of one are.
 *   3. The rest, and digits beyond the 19th when they matter: strtod() on digits and exponent alone. Without a point
 *      the locale has no say in it.
 */
#include <stdlib.h>

#include "core/locale.h"
#include "core/number.h"
#include "core/pow10.h"

typedef unsigned __int128 u128;

enum {
    DIGITS_MAX = 19, /* always fit 64 bits */
    PLAIN_MAX = 40,  /* characters of a decimal without exponent, zeros in front of its digits included: 1e-20 and up */
    SIGNIFICANT_MAX =
        770, /* no double and no middle between two has more digits (767); what follows only breaks ties */
    EXPONENT_LIMIT = 1 << 20
};

typedef struct decimal {
    uint64_t w; /* the first DIGITS_MAX significant digits */
    int64_t k;  /* exponent of ten of w's last digit */
    bool more;  /* digits other than 0 follow that w does not have */
    bool negative;
    msp_str digits; /* all of them, with leading zeros and perhaps a point among them */
    int64_t exponent;
} decimal;

static bool
is_digit(char c)
{
    return (unsigned)(c - '0') < 10;
}

/* The digits of the exponent in [p, end), at least one and nothing else. */
static bool
scan_exponent(const char *p, const char *end, int64_t *out)
{
    bool negative = p < end && *p == '-';
    int64_t e = 0;

    if (p < end && (*p == '+' || *p == '-'))
        p++;
    if (p == end)
        return false;
    for (; p < end; p++) {
        if (!is_digit(*p))
            return false;
        if (e < INT64_MAX / 20) /* larger than any text is long; the value is 0 or infinite whatever follows */
            e = e * 10 + (*p - '0');
    }
    *out = negative ? -e : e;
    return true;
}

/* w and k of the digits that d->digits holds, when there are too many for 64 bits: take the first that count. */
static void
take_leading(decimal *d)
{
    bool fraction = false;
    int taken = 0;

    d->w = 0;
    d->k = d->exponent;
    for (size_t i = 0; i < d->digits.len; i++) {
        char c = d->digits.p[i];

        if (c == '.') {
            fraction = true;
        } else if (taken < DIGITS_MAX) {
            d->w = d->w * 10 + (unsigned)(c - '0');
            taken += d->w != 0; /* leading zeros do not count */
            d->k -= fraction;
        } else {
            d->more |= c != '0';
            d->k += !fraction;
        }
    }
}

/* The number that eight bytes of digits are, each 0 to 9, the first in the lowest. */
static inline uint64_t
eight_digits(uint64_t v)
{
    v = v * 10 + (v >> 8); /* pairs in every other byte */
    return (((v & 0x000000FF000000FFu) * 0x000F424000000064u) +
            (((v >> 16) & 0x000000FF000000FFu) * 0x0000271000000001u)) >>
           32;
}

/* Append the digits at p to *w, which wraps when they are too many; returns where they end. */
static inline const char *
scan_digits(const char *p, const char *end, uint64_t *w)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    static const uint32_t tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};

    /*
     * Eight at a time: most floats have sixteen or seventeen. How many are left at the end changes from number to
     * number, and a loop over them would guess wrong each time: they are moved up behind zeros instead.
     */
    while (end - p >= 8) {
        uint64_t v, stop;
        int n;

        memcpy(&v, p, sizeof(v));
        v ^= 0x3030303030303030u; /* digits become 0 to 9 */
        stop = (((v & 0x7F7F7F7F7F7F7F7Fu) + 0x7676767676767676u) | v) & 0x8080808080808080u;
        if (stop != 0) {
            n = __builtin_ctzll(stop) / 8;
            *w = *w * tens[n] + eight_digits(v << (56 - 8 * n) << 8);
            return p + n;
        }
        *w = *w * 100000000 + eight_digits(v);
        p += 8;
    }
#endif
    for (; p < end && is_digit(*p); p++)
        *w = *w * 10 + (unsigned)(*p - '0');
    return p;
}

static bool
scan_decimal(decimal *d, msp_str s)
{
    const char *p = s.p, *end = s.p + s.len, *point = NULL;
    size_t count;

    *d = (decimal){0};
    if (p < end && (*p == '-' || *p == '+'))
        d->negative = *p++ == '-';
    d->digits.p = p;
    p = scan_digits(p, end, &d->w);
    if (p < end && *p == '.') {
        point = p++;
        p = scan_digits(p, end, &d->w);
    }
    d->digits.len = (size_t)(p - d->digits.p);
    count = d->digits.len - (point != NULL);
    if (count == 0)
        return false;
    if (p < end && ((*p | 0x20) != 'e' || !scan_exponent(p + 1, end, &d->exponent)))
        return false;
    if (count > DIGITS_MAX)
        take_leading(d);
    else
        d->k = d->exponent - (point == NULL ? 0 : p - point - 1);
    return true;
}

static bool
try_exact(const decimal *d, double *out)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

    if (d->more || d->w > 1ULL << 53 || d->k < -22 || d->k > 22)
        return false;
    *out = d->k < 0 ? (double)d->w / tens[-d->k] : (double)d->w * tens[d->k];
    return true;
}

/*
 * Round w * 10^k to a double; false when 128 bits of the power cannot decide.
 *
 * The table's powers are rounded up by less than one unit, so the product is too large by less than w, which is less
 * than one unit of its upper 128 bits. Those bits, cut where the double ends, then decide in all cases but one: exactly
 * half a unit remains, and the true value may be just below it. A power that is exact leaves no doubt even then.
 */
static bool
round_product(uint64_t w, int k, double *out)
{
    const msp_pow10 *g = &msp_pow10_table[k - MSP_POW10_MIN];
    int zeros = __builtin_clzll(w), exponent, kept, drop;
    uint64_t hi, mid, low, half, rest, m, bits;
    u128 upper, lower;
    bool up;

    w <<= zeros;
    lower = (u128)w * g->lo;
    upper = (u128)w * g->hi + (uint64_t)(lower >> 64);
    hi = (uint64_t)(upper >> 64);
    mid = (uint64_t)upper;
    low = (uint64_t)lower;

    exponent = msp_pow10_log2(k) + 63 - zeros + (int)(hi >> 63); /* 2^exponent <= value < 2^(exponent + 1) */
    if (exponent > 1023) {
        *out = __builtin_inf();
        return true;
    }
    kept = exponent >= -1022 ? 53 : 53 + 1022 + exponent; /* bits of the significand: fewer for a subnormal */
    if (kept < 0) {
        *out = 0;
        return true;
    }
    drop = 63 + (int)(hi >> 63) - kept; /* 10 to 64 low bits of hi, and all of mid and low */
    half = 1ULL << (drop - 1);
    m = drop == 64 ? 0 : hi >> drop;
    rest = (hi & (half - 1)) | mid;
    up = (hi & half) != 0; /* as good as random: nothing may depend on guessing it */
    if (rest == 0 && up) {
        if (k < 0 || k > MSP_POW10_EXACT_MAX)
            return false;
        up = low != 0 || (m & 1) != 0;
    }
    m += up;
    bits = exponent >= -1022 ? ((uint64_t)(exponent + 1022) << 52) + m : m; /* m carries into the exponent by itself */
    memcpy(out, &bits, sizeof(*out));
    return true;
}

static bool
try_product(const decimal *d, double *out)
{
    double above;

    if (d->w == 0 || d->k < MSP_POW10_MIN) {
        *out = 0; /* w < 2^64, and 2^64 * 10^-343 is less than half of the smallest double */
        return true;
    }
    if (d->k > 308) {
        *out = __builtin_inf();
        return true;
    }
    if (!round_product(d->w, (int)d->k, out))
        return false;
    if (!d->more)
        return true;
    return round_product(d->w + 1, (int)d->k, &above) && *out == above;
}

/* Digits as strtod wants them: no point, no more than can matter, a last 1 for all that was left out. */
static double
read_slowly(const decimal *d)
{
    char text[SIGNIFICANT_MAX + 32], *at = text;
    int64_t k = d->exponent;
    bool fraction = false, more = false;

    for (size_t i = 0; i < d->digits.len; i++) {
        char c = d->digits.p[i];

        if (c == '.') {
            fraction = true;
        } else if (at - text < SIGNIFICANT_MAX) {
            if (at > text || c != '0')
                *at++ = c;
            k -= fraction;
        } else {
            more |= c != '0';
            k += !fraction;
        }
    }
    if (more) {
        *at++ = '1';
        k--;
    }
    if (k > EXPONENT_LIMIT || k < -EXPONENT_LIMIT)
        k = k < 0 ? -EXPONENT_LIMIT : EXPONENT_LIMIT;
    *at++ = 'e';
    msp_i64_text(at, k);
    return strtod(text, NULL);
}

static bool
parse_word(msp_str s, double *out)
{
    bool negative = s.len > 0 && s.p[0] == '-';

    if (s.len > 0 && (s.p[0] == '-' || s.p[0] == '+')) {
        s.p++;
        s.len--;
    }
    if (msp_str_eq_nocase(s, MSP_STR("nan")))
        *out = __builtin_nan("");
    else if (msp_str_eq_nocase(s, MSP_STR("inf")) || msp_str_eq_nocase(s, MSP_STR("infinity")))
        *out = __builtin_inf();
    else
        return false;
    if (negative)
        *out = -*out;
    return true;
}

/* How many digits there are in [p, end) from the first on that is no 0. A point among them counts too. */
static ptrdiff_t
significant_digits(const char *p, const char *end)
{
    while (p < end && (*p == '0' || *p == '.'))
        p++;
    return end - p;
}

const char *
msp_f64_scan(const char *p, const char *end, double *out)
{
    bool negative = p < end && *p == '-';
    const char *digits = p + negative, *point;
    uint64_t w = 0, bits = 0;

    for (p = digits; p < end && is_digit(*p); p++)
        w = w * 10 + (unsigned)(*p - '0');
    point = p;
    if (p < end && *p == '.')
        p = scan_digits(p + 1, end, &w);
    if (p == digits || (p == point + 1 && point == digits) || (p < end && (*p | 0x20) == 'e') ||
        (p - digits - (p > point) - (*digits == '0') > DIGITS_MAX &&
         (p - digits > PLAIN_MAX || significant_digits(digits, p) > DIGITS_MAX)))
        return NULL;
    /* the second way for all: which numbers the first one would do cannot be guessed, and guessing costs more */
    if (w != 0 && !round_product(w, p > point ? (int)(1 - (p - point)) : 0, out))
        return NULL;
    if (w != 0)
        memcpy(&bits, out, sizeof(bits));
    bits |= (uint64_t)negative << 63;
    memcpy(out, &bits, sizeof(bits));
    return p;
}

bool
msp_f64_parse(msp_str s, double *out)
{
    decimal d;

    if (s.len > 0 && msp_f64_scan(s.p, s.p + s.len, out) == s.p + s.len)
        return true;
    if (!scan_decimal(&d, s))
        return parse_word(s, out);
    if (!try_exact(&d, out) && !try_product(&d, out))
        *out = read_slowly(&d);
    if (d.negative)
        *out = -*out;
    return true;
}

bool
msp_i64_parse(msp_str s, int64_t *out)
{
    bool negative = s.len > 0 && s.p[0] == '-';
    unsigned long long v;

    if (negative) {
        s.p++;
        s.len--;
    }
    if (!msp_str_to_u64(s, &v) || v > (unsigned long long)INT64_MAX + negative)
        return false;
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}
