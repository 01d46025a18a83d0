/* pair_plain.c - see pair_plain.h. */
#include "kernels/pair_plain.h"

#include <math.h>

/* One element's part in the metrics. */
typedef struct term {
    double dot, sq_n, sq_b, sq_d, abs, rel;
    double mean_rel; /* |d| / |b|, 0 where b is 0 */
    bool zero;
} term;

/* sqrt(x*x + y*y) without overflow on the way; hypot() is not the same on every machine. */
static double
modulus(double x, double y)
{
    double top = fmax(fabs(x), fabs(y)), scale = 1;

    if (top > 0x1p500)
        scale = 0x1p-600;
    else if (top < 0x1p-500)
        scale = 0x1p600;
    x *= scale;
    y *= scale;
    return sqrt(x * x + y * y) / scale;
}

static term
complex_term(msp_c128 n, msp_c128 b)
{
    msp_c128 d = {n.re - b.re, n.im - b.im};
    term t = {.dot = n.re * b.re + n.im * b.im,
              .sq_n = n.re * n.re + n.im * n.im,
              .sq_b = b.re * b.re + b.im * b.im,
              .sq_d = d.re * d.re + d.im * d.im,
              .abs = modulus(d.re, d.im),
              .zero = b.re == 0 && b.im == 0};

    if (t.zero)
        t.rel = modulus((n.re + MSP_PAIR_EPS) - MSP_PAIR_EPS, n.im) / MSP_PAIR_EPS;
    else
        t.rel = t.mean_rel = t.abs / modulus(b.re, b.im);
    return t;
}

/* The difference is exact; the relative error is the one of the numbers as doubles, as NumPy computes it. */
static term
integer_term(msp_i128 n, msp_i128 b)
{
    double fn = (double)n, fb = (double)b, d = (double)(n - b);
    term t = {.dot = fn * fb, .sq_n = fn * fn, .sq_b = fb * fb, .sq_d = d * d, .abs = fabs(d), .zero = b == 0};

    if (t.zero) {
        t.rel = fabs(((fn + MSP_PAIR_EPS) - MSP_PAIR_EPS) / MSP_PAIR_EPS);
    } else {
        t.rel = fabs((fn - fb) / fb);
        t.mean_rel = fabs(d / fb);
    }
    return t;
}

static term
term_at(msp_pair_kind kind, const void *n, const void *b, size_t i)
{
    if (kind == MSP_PAIR_C128)
        return complex_term(((const msp_c128 *)n)[i], ((const msp_c128 *)b)[i]);
    return integer_term(((const msp_i128 *)n)[i], ((const msp_i128 *)b)[i]);
}

void
msp_pair_plain_sums(msp_pair_sums *out, msp_pair_kind kind, const void *n, const void *b, size_t count)
{
    *out = (msp_pair_sums){0};
    for (size_t i = 0; i < count; i++) {
        term t = term_at(kind, n, b, i);

        out->dot += t.dot;
        out->sq_n += t.sq_n;
        out->sq_b += t.sq_b;
        out->sq_d += t.sq_d;
        out->rel += t.mean_rel;
        out->max_abs = fmax(out->max_abs, t.abs);
        out->max_rel = fmax(out->max_rel, t.rel);
        out->below_1e3 += t.rel < 0.001;
        out->below_5e3 += t.rel < 0.005;
        out->zeros += t.zero;
    }
}

size_t
msp_pair_plain_find_abs(msp_pair_kind kind, const void *n, const void *b, size_t count, double abs)
{
    size_t i = 0;

    while (i < count && term_at(kind, n, b, i).abs != abs)
        i++;
    return i;
}

size_t
msp_pair_plain_find_rel(msp_pair_kind kind, const void *n, const void *b, size_t count, double rel)
{
    size_t i = 0;

    while (i < count && term_at(kind, n, b, i).rel != rel)
        i++;
    return i;
}
