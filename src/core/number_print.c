/*
 * number_print.c - numbers to text: see number.h.
 *
 * Doubles are printed with Raffaele Giulietti's Schubfach ("The Schubfach way to render doubles", 2020): all decimal
 * numbers of a given length that read back as v lie between v's two rounding boundaries, so it is enough to know where
 * those and v itself fall on a decimal scale that is fine enough to hold at least one candidate and coarse enough to
 * hold few. Three 64x128-bit products answer that exactly. The alternative, snprintf with 15, 16 and 17 digits until
 * one reads back, costs 1.1 to 2 microseconds instead of 50 nanoseconds (bench_json), and a dump has millions of them.
 */
#include <math.h>

#include "core/number.h"
#include "core/pow10.h"

typedef unsigned __int128 u128;

typedef struct decimal {
    uint64_t digits;
    int exponent; /* the value is digits * 10^exponent */
} decimal;

/* g * c / 2^128, with the last bit set when the true quotient is not a whole number ("rounded to odd"). */
static uint64_t
scaled(const msp_pow10 *g, uint64_t c)
{
    uint64_t low = (uint64_t)((u128)g->lo * c >> 64);
    u128 sum = (u128)g->hi * c + low;

    /* g is rounded up: a fraction of 0 or 1 unit is no fraction at all */
    return (uint64_t)(sum >> 64) | ((uint64_t)sum > 1);
}

/* The shortest decimal that reads back as c * 2^q; of several the nearest, of two equally near the even one. */
static decimal
shortest(uint64_t c, int q, bool lower_is_closer)
{
    bool odd = c & 1; /* the boundaries themselves round to an even v only */
    /* floor(log10(2^q)), or of 3/4 2^q: the constants are log10(2) and log10(4/3), times 2^22 */
    int k = (q * 1262611 - (lower_is_closer ? 524031 : 0)) >> 22;
    int h = q + msp_pow10_log2(-k) + 1;
    const msp_pow10 *g = &msp_pow10_table[-k - MSP_POW10_MIN];
    uint64_t low = scaled(g, (4 * c - 2 + lower_is_closer) << h) + odd;
    uint64_t mid = scaled(g, 4 * c << h);
    uint64_t high = scaled(g, (4 * c + 2) << h) - odd;
    uint64_t s = mid / 4, tens = s / 10;
    bool down, up;

    if (s >= 10) {
        down = low <= 40 * tens;
        up = 40 * tens + 40 <= high;
        if (down != up)
            return (decimal){tens + up, k + 1};
    }
    down = low <= 4 * s;
    up = 4 * s + 4 <= high;
    if (down == up)
        up = mid > 4 * s + 2 || (mid == 4 * s + 2 && (s & 1));
    return (decimal){s + up, k};
}

static decimal
to_decimal(uint64_t bits)
{
    uint64_t fraction = bits & ((1ULL << 52) - 1);
    int exponent = (int)(bits >> 52 & 0x7FF);
    decimal d;

    if (exponent == 0)
        d = shortest(fraction, -1074, false);
    else
        d = shortest(fraction | 1ULL << 52, exponent - 1075, fraction == 0 && exponent > 1);
    while (d.digits % 10 == 0) {
        d.digits /= 10;
        d.exponent++;
    }
    return d;
}

static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                            "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                            "8081828384858687888990919293949596979899";

/* Digits without a terminator. */
static size_t
put_digits(char *buf, uint64_t v)
{
    char text[20], *end = text + sizeof(text), *at = end;

    while (v >= 10) {
        at -= 2;
        memcpy(at, pairs + v % 100 * 2, 2);
        v /= 100;
    }
    if (v > 0 || at == end)
        *--at = (char)('0' + v);
    memcpy(buf, at, (size_t)(end - at));
    return (size_t)(end - at);
}

static char *
put_zeros(char *p, int n)
{
    memset(p, '0', (size_t)n);
    return p + n;
}

static char *
put_exponent(char *p, int e)
{
    *p++ = 'e';
    *p++ = e < 0 ? '-' : '+';
    if (e < 0)
        e = -e;
    if (e < 10)
        *p++ = '0';
    return p + put_digits(p, (uint64_t)e);
}

/* Lay out n digits whose point stands behind the first `point` of them, as Python's repr does. */
static char *
put_decimal(char *p, const char *digits, int n, int point)
{
    bool scientific = point <= -4 || point > 16;
    int whole = scientific ? 1 : point; /* digits in front of the point */

    if (whole <= 0) {
        *p++ = '0';
        *p++ = '.';
        p = put_zeros(p, -whole);
        memcpy(p, digits, (size_t)n);
        return p + n;
    }
    if (whole >= n) {
        memcpy(p, digits, (size_t)n);
        p = put_zeros(p + n, whole - n);
        if (!scientific) {
            *p++ = '.';
            *p++ = '0';
        }
    } else {
        memcpy(p, digits, (size_t)whole);
        p += whole;
        *p++ = '.';
        memcpy(p, digits + whole, (size_t)(n - whole));
        p += n - whole;
    }
    return scientific ? put_exponent(p, point - 1) : p;
}

size_t
msp_f64_repr(char buf[32], double v)
{
    char digits[20], *p = buf;
    uint64_t bits;
    decimal d;
    int n;

    if (isnan(v)) {
        memcpy(buf, "nan", 4);
        return 3;
    }
    memcpy(&bits, &v, sizeof(bits));
    if (bits >> 63)
        *p++ = '-';
    if (isinf(v)) {
        memcpy(p, "inf", 3);
        p += 3;
    } else if (v == 0) {
        memcpy(p, "0.0", 3);
        p += 3;
    } else {
        d = to_decimal(bits);
        n = (int)put_digits(digits, d.digits);
        p = put_decimal(p, digits, n, n + d.exponent);
    }
    *p = '\0';
    return (size_t)(p - buf);
}

size_t
msp_u64_text(char buf[MSP_INT_TEXT_MAX], uint64_t v)
{
    size_t n = put_digits(buf, v);

    buf[n] = '\0';
    return n;
}

size_t
msp_i64_text(char buf[MSP_INT_TEXT_MAX], int64_t v)
{
    size_t n = v < 0;

    buf[0] = '-';
    n += put_digits(buf + n, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
    buf[n] = '\0';
    return n;
}
