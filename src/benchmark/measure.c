/*
 * measure.c - how far two results are apart.
 *
 * Elements are read as doubles, a block at a time, in row-major order. Every number here is a maximum, a count, or a
 * sum in that order, so that it does not depend on the machine. Blocks whose bytes are equal are not looked at.
 */
#include <math.h>
#include <string.h>
#include "benchmark/form.h"
#include "dtype/convert.h"
#include "kernels/gather.h"
#include "msprobe/benchmark.h"

enum { BLOCK = 512 }; /* elements; two doubles for a complex one */

/* ---- blocks ----------------------------------------------------------------------------------------------------- */

typedef struct side {
    msp_gather gather;
    msp_dtype part; /* the type of a number: that of the parts of complex elements */
    int parts;
    const void *raw;
    double v[2 * BLOCK];
    char copy[16 * BLOCK];
} side;

static void
open_side(side *s, const msp_tensor *t)
{
    msp_gather_init(&s->gather, t);
    s->parts = msp_dtype_class_of(t->dtype) == MSP_CLASS_COMPLEX ? 2 : 1;
    s->part = t->dtype == MSP_C64 ? MSP_F32 : t->dtype == MSP_C128 ? MSP_F64 : t->dtype;
}

#define CONVERT(type, expression)                         \
    for (int64_t i = 0; i < n; i++) {                     \
        type x;                                           \
                                                          \
        memcpy(&x, p + (size_t)i * sizeof(x), sizeof(x)); \
        s->v[i] = (expression);                           \
    }                                                     \
    break

static void
to_doubles(side *s, int64_t n)
{
    const char *p = s->raw;
    size_t size = msp_dtype_size(s->part);

    switch (s->part) {
    case MSP_F64:
        memcpy(s->v, p, (size_t)n * sizeof(double));
        break;
    case MSP_F32:
        CONVERT(float, (double)x);
    case MSP_BF16:
        CONVERT(uint16_t, (double)msp_bf16_to_f32(x));
    case MSP_F16:
        CONVERT(uint16_t, (double)msp_f16_to_f32(x));
    default:
        for (int64_t i = 0; i < n; i++)
            s->v[i] = msp_dtype_load_f64(s->part, p + (size_t)i * size);
    }
}

/* The next block of both: how many numbers it has, 0 when their bytes are equal. */
static int64_t
load_block(side *a, side *b, int64_t start, int64_t count)
{
    a->raw = msp_gather_block(&a->gather, start, count, a->copy);
    b->raw = msp_gather_block(&b->gather, start, count, b->copy);
    if (a->part == b->part && a->parts == b->parts &&
        memcmp(a->raw, b->raw, (size_t)count * msp_dtype_size(a->part) * (size_t)a->parts) == 0)
        return 0;
    to_doubles(a, count * a->parts);
    to_doubles(b, count * b->parts);
    return count * a->parts;
}

/* ---- the ratio -------------------------------------------------------------------------------------------------- */

/* Whether a number is NaN, or infinite, on one side and something else on the other. Opposite infinities have a sign
 * that tells. */
static inline bool
is_one_sided(double a, double b)
{
    return isfinite(a) && isfinite(b) ? false
           : isnan(a) || isnan(b)     ? isnan(a) != isnan(b)
                                      : isfinite(a) || isfinite(b);
}

/* Of two numbers the larger magnitude over the smaller. A NaN that both sides have makes 0, which is no maximum. */
static inline double
quotient(double a, double b, double floor)
{
    double x = fmax(fabs(a), floor), y = fmax(fabs(b), floor), r = x > y ? x / y : y / x;

    return isnan(a) || isnan(r) ? 1 : r;
}

static void
note_element(msp_benchmark_ratio *out, double a, double b, double floor, int64_t index)
{
    double r = is_one_sided(a, b) ? INFINITY : quotient(a, b, floor);

    if (!out->flips && (a * b < -floor * floor || r > out->ratio))
        out->index = index;
    out->flips = out->flips || a * b < -floor * floor;
    out->ratio = r > out->ratio ? r : out->ratio;
}

/* Divides only where an element is beyond what was found so far, which is seldom: a division takes as long as all the
 * rest. What is not finite is never "within". */
static void
compare_block(msp_benchmark_ratio *out, const double *a, const double *b, int64_t n, double floor, int64_t base,
              int parts)
{
    const double below = -floor * floor;
    double most = out->ratio;

    for (int64_t i = 0; i < n; i++) {
        const double p = fabs(a[i]), q = fabs(b[i]), x = p < floor ? floor : p, y = q < floor ? floor : q;
        const bool within =
            (x <= most * y) & (y <= most * x) & (a[i] * b[i] >= below) & (x < INFINITY) & (y < INFINITY);

        if (within)
            continue;
        note_element(out, a[i], b[i], floor, base + i / parts);
        most = out->ratio;
    }
}

static msp_status
check_shapes(const msp_tensor *a, const msp_tensor *b, msp_error *err)
{
    bool complex_a = msp_dtype_class_of(a->dtype) == MSP_CLASS_COMPLEX;
    bool complex_b = msp_dtype_class_of(b->dtype) == MSP_CLASS_COMPLEX;

    if (!msp_tensor_same_shape(a, b))
        return msp_error_set(err, MSP_E_INVALID, "the results have different shapes");
    if (complex_a != complex_b)
        return msp_error_set(err, MSP_E_INVALID, "only one of the results is complex");
    return MSP_OK;
}

msp_status
msp_benchmark_compare(msp_benchmark_ratio *out, const msp_tensor *first, const msp_tensor *second, double floor,
                      msp_error *err)
{
    msp_status st = check_shapes(first, second, err);
    side a, b;

    *out = (msp_benchmark_ratio){.ratio = 1, .index = -1};
    if (st != MSP_OK)
        return st;
    open_side(&a, first);
    open_side(&b, second);
    for (int64_t start = 0; start < first->numel; start += BLOCK) {
        int64_t count = first->numel - start < BLOCK ? first->numel - start : BLOCK;
        int64_t n = load_block(&a, &b, start, count);

        compare_block(out, a.v, b.v, n, floor, start, a.parts);
    }
    return MSP_OK;
}

bool
msp_benchmark_differs(const msp_benchmark_ratio *r, double limit)
{
    return r->flips || !(r->ratio <= limit);
}

double
msp_benchmark_limit(msp_dtype t)
{
    return t == MSP_F16 ? 1.002 : t == MSP_BF16 ? 1.004 : 1.0002;
}

/* How far noise moves a number of this type at most, relative to it; 0 where that is next to nothing. */
static double
step_of(msp_dtype t)
{
    const float_form *f = msp_float_form(t);

    return f->bytes == 0 || f->bytes > 2 ? 0 : ldexp(f->doubled > 0 ? 2 : 1, 1 - f->digits);
}

double
msp_benchmark_noise_limit(msp_dtype out, msp_dtype in, int inputs)
{
    const float_form *f = msp_float_form(out);
    double limit = msp_benchmark_limit(out), rounding = f->bytes > 0 && f->bytes <= 2 ? ldexp(1, 1 - f->digits) : 0;
    double moved = 1 + inputs * step_of(in) + rounding;

    return moved > limit ? moved : limit;
}

double
msp_benchmark_floor(msp_dtype t, bool backward)
{
    const float_form *f = msp_float_form(t);

    return backward ? 1e-3 : sqrt(f->bytes > 0 ? f->noise : 1e-8);
}

/* ---- against the CPU -------------------------------------------------------------------------------------------- */

/* For errors of small elements, and for relative ones. */
static double
cpu_bound_of(msp_dtype t)
{
    return t == MSP_F16 ? 0x1p-11 : t == MSP_BF16 ? 0x1p-8 : 0x1p-14;
}

/* The original's 1e-4 for the mean error; where correct rounding alone may bring more, three standard deviations of the
 * mean of so many rounding errors. */
static double
balance_bound_of(msp_dtype t, double n)
{
    double rounding = 3 * ldexp(1, -msp_float_form(t)->digits) / sqrt(3 * n);

    return msp_float_form(t)->bytes > 0 && rounding > 1e-4 ? rounding : 1e-4;
}

typedef struct cpu_errors {
    double absolute, relative, sum;
    bool one_sided;
} cpu_errors;

static void
judge_block(cpu_errors *e, const double *actual, const double *golden, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double a = actual[i], g = golden[i], diff = a - g;

        if (!isfinite(a) || !isfinite(g)) {
            e->one_sided = e->one_sided || is_one_sided(a, g) || (!isnan(a) && a != g);
            continue;
        }
        if (fabs(a) < 1)
            e->absolute = fmax(e->absolute, fabs(diff));
        else
            e->relative = fmax(e->relative, fabs(diff) / fabs(g));
        e->sum += diff / (fabs(g) >= 1 ? fabs(g) : 1);
    }
}

msp_status
msp_benchmark_judge_cpu(bool *consistent, const msp_tensor *actual, const msp_tensor *golden, msp_error *err)
{
    double bound = cpu_bound_of(actual->dtype), n = (double)actual->numel;
    msp_status st = check_shapes(actual, golden, err);
    cpu_errors e = {0};
    side a, g;

    *consistent = true;
    if (st != MSP_OK || actual->numel == 0)
        return st;
    open_side(&a, actual);
    open_side(&g, golden);
    for (int64_t start = 0; start < actual->numel; start += BLOCK) {
        int64_t count = actual->numel - start < BLOCK ? actual->numel - start : BLOCK;

        judge_block(&e, a.v, g.v, load_block(&a, &g, start, count));
    }
    n *= a.parts;
    *consistent = !e.one_sided && e.absolute <= bound && e.relative <= bound &&
                  fabs(e.sum) / n <= balance_bound_of(actual->dtype, n);
    return MSP_OK;
}

/* ---- bits kept -------------------------------------------------------------------------------------------------- */

typedef struct bit_sums {
    double change, value; /* of squares */
    double worst;         /* the largest change of an element, relative to it */
} bit_sums;

static void
add_changes(bit_sums *s, const double *a, const double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double diff = fabs(a[i] - b[i]), p = fabs(a[i]), q = fabs(b[i]), size = p > q ? p : q;

        if (!(size < INFINITY)) {
            s->worst = is_one_sided(a[i], b[i]) || a[i] == -b[i] ? INFINITY : s->worst;
            continue;
        }
        s->change += diff * diff;
        if (diff > s->worst * size)
            s->worst = diff / size;
    }
}

/* The result's own norm takes every element, also of blocks that nothing has changed in. */
static void
add_values(bit_sums *s, side *a, int64_t n)
{
    to_doubles(a, n);
    for (int64_t i = 0; i < n; i++)
        s->value += fabs(a->v[i]) < INFINITY ? a->v[i] * a->v[i] : 0;
}

static double
bits_of(double relative, int type)
{
    double bits = relative > 0 ? -log2(relative) : type;

    return bits > type ? type : bits > 0 ? bits : 0;
}

msp_status
msp_benchmark_bits_kept(msp_benchmark_bits *out, const msp_tensor *first, const msp_tensor *second, msp_error *err)
{
    msp_status st = check_shapes(first, second, err);
    bit_sums s = {0};
    side a, b;

    *out = (msp_benchmark_bits){.type = msp_float_form(first->dtype)->digits};
    if (st != MSP_OK)
        return st;
    open_side(&a, first);
    open_side(&b, second);
    for (int64_t start = 0; start < first->numel; start += BLOCK) {
        int64_t count = first->numel - start < BLOCK ? first->numel - start : BLOCK;

        add_changes(&s, a.v, b.v, load_block(&a, &b, start, count));
        add_values(&s, &a, count * a.parts);
    }
    out->kept = isinf(s.worst) ? 0 : bits_of(s.value > 0 ? sqrt(s.change / s.value) : s.change, out->type);
    out->worst = bits_of(s.worst, out->type);
    return MSP_OK;
}
