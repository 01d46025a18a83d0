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

/* Exactly eight digits. Halves first: the next two digits need not wait for the division that gave the last two. */
static void
put_eight(char *to, uint32_t v)
{
    uint32_t high = v / 10000, low = v % 10000;

    memcpy(to, pairs + high / 100 * 2, 2);
    memcpy(to + 2, pairs + high % 100 * 2, 2);
    memcpy(to + 4, pairs + low / 100 * 2, 2);
    memcpy(to + 6, pairs + low % 100 * 2, 2);
}

enum { DIGITS_ROOM = 20 };

/* Digits without a terminator; DIGITS_ROOM bytes are written, whatever their number. */
static size_t
put_digits(char *buf, uint64_t v)
{
    char text[2 * DIGITS_ROOM] = {0}, *end = text + DIGITS_ROOM, *at = end;
    uint32_t first;

    for (; v >= 100000000; v /= 100000000) {
        at -= 8;
        put_eight(at, (uint32_t)(v % 100000000));
    }
    for (first = (uint32_t)v; first >= 10; first /= 100) {
        at -= 2;
        memcpy(at, pairs + first % 100 * 2, 2);
    }
    if (first > 0 || at == end)
        *--at = (char)('0' + first);
    memcpy(buf, at, DIGITS_ROOM);
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
    e = e < 0 ? -e : e;
    *p = (char)('0' + e / 100);
    p += e >= 100;
    memcpy(p, pairs + e % 100 * 2, 2);
    return p + 2;
}

enum { DIGITS_MOST = 17 };

/* A copy of a fixed size is two moves, one of n bytes a call: what lies behind the digits is copied, too. */
static char *
put_some(char *p, const char *digits, int n)
{
    memcpy(p, digits, DIGITS_MOST);
    return p + n;
}

/*
 * Lay out n digits (of 2 * DIGITS_ROOM bytes) whose point stands behind the first `point` of them, as Python's repr
 * does. With what put_some() writes too much it is 31 bytes at most: they are the caller's own, for bytes that are
 * stored in one place and loaded at once for another have to be waited for.
 */
static char *
put_decimal(char *p, const char *digits, int n, int point)
{
    bool scientific = point <= -4 || point > 16;
    int whole = scientific ? 1 : point; /* digits in front of the point */

    if (whole <= 0) {
        memcpy(p, "0.000", 5);
        return put_some(p + 2 - whole, digits, n);
    }
    p = put_some(p, digits, n < whole ? n : whole);
    if (whole >= n) {
        p = put_zeros(p, whole - n);
        if (!scientific) {
            *p++ = '.';
            *p++ = '0';
        }
    } else {
        *p++ = '.';
        if (whole > DIGITS_MOST - 8)
            memcpy(p, digits + whole, 8); /* so near the end of the room that 17 would leave it */
        else
            put_some(p, digits + whole, n - whole);
        p += n - whole;
    }
    return scientific ? put_exponent(p, point - 1) : p;
}

static char *
put_finite(char *p, uint64_t bits)
{
    char digits[2 * DIGITS_ROOM] = {0};
    decimal d = to_decimal(bits);
    int n = (int)put_digits(digits, d.digits);

    return put_decimal(p, digits, n, n + d.exponent);
}

size_t
msp_f64_repr(char buf[32], double v)
{
    bool negative = signbit(v) && !isnan(v);
    uint64_t bits;
    char *end;

    buf[0] = '-';
    if (isfinite(v) && v != 0) {
        memcpy(&bits, &v, sizeof(bits));
        end = put_finite(buf + negative, bits & ~(1ULL << 63));
        *end = '\0';
        return (size_t)(end - buf);
    }
    memcpy(buf + negative, isnan(v) ? "nan" : isinf(v) ? "inf" : "0.0", 4);
    return 3 + (size_t)negative;
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

    buf[0] = '-'; /* the room is enough for it and DIGITS_ROOM */
    n += put_digits(buf + n, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
    buf[n] = '\0';
    return n;
}
