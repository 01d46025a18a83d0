/*
 * local.c - the local error of one result, and what it looks like.
 *
 * One thread, elements in row-major order: the same bits everywhere. Two passes: the first finds every element's
 * natural scale, the second the errors in it. Then the shape, from the scaled errors alone, where they are more than
 * noise.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/alloc.h"
#include "core/locale.h"
#include "msprobe/local.h"

enum { MAX_SHIFT = 4, MIN_CUT = 24 /* elements from which on cutting off is told from rounding */ };

/* Digits of the significand, the hidden one included, and the exponent of the smallest normal number. */
static int
digits_of(msp_dtype t, int *least)
{
    *least = -126;
    switch (t) {
    case MSP_F64:
    case MSP_C128:
        *least = -1022;
        return 53;
    case MSP_F32:
    case MSP_C64:
        return 24;
    case MSP_F16:
        *least = -14;
        return 11;
    case MSP_BF16:
        return 8;
    case MSP_F8_E4M3FN:
    case MSP_F8_E4M3FNUZ:
        *least = -6;
        return 4;
    case MSP_F8_E5M2:
    case MSP_F8_E5M2FNUZ:
        *least = -14;
        return 3;
    default:
        return 0;
    }
}

double
msp_local_roundoff(msp_dtype t)
{
    int least, digits = digits_of(t, &least);

    return digits == 0 ? 0 : ldexp(1, -digits);
}

typedef struct work {
    int64_t n;
    const double *want;          /* the reference */
    double *got, *scale, *error; /* error: scaled and absolute; -1 where an element is left out */
    double floor;                /* scales are at least this */
    int digits, least;
    double normal; /* twice the smallest normal number of the type */
} work;

static void
load_f64(double *out, const msp_tensor *t)
{
    const char *p = t->data;
    size_t size = msp_dtype_size(t->dtype);

    if (t->dtype == MSP_F64 && msp_tensor_is_contiguous(t)) {
        if (t->numel > 0)
            memcpy(out, p, (size_t)t->numel * sizeof(double));
        return;
    }
    if (msp_tensor_is_contiguous(t))
        for (int64_t i = 0; i < t->numel; i++)
            out[i] = msp_dtype_load_f64(t->dtype, p + (size_t)i * size);
    else
        for (int64_t i = 0; i < t->numel; i++)
            out[i] = msp_dtype_load_f64(t->dtype, msp_tensor_at(t, i));
}

/* The elements of a reference as they are, or copied to room. */
static const double *
elements_of(double *room, const msp_tensor *t)
{
    if (t->dtype == MSP_F64 && msp_tensor_is_contiguous(t) && ((uintptr_t)t->data & 7) == 0)
        return t->data;
    load_f64(room, t);
    return room;
}

/* fmax() of two numbers, without a call for each element. */
static inline double
larger(double a, double b)
{
    return b > a ? b : a;
}

/* 2 to the power of e, for normal numbers. */
static double
power_of_two(int e)
{
    uint64_t bits = (uint64_t)(e + 1023) << 52;
    double v;

    if (e < -1022 || e > 1023)
        return ldexp(1, e);
    memcpy(&v, &bits, sizeof(v));
    return v;
}

/* One step of the type at v. */
static double
ulp_at(const work *w, double v)
{
    uint64_t bits;
    int e;

    memcpy(&bits, &v, sizeof(bits));
    e = (int)(bits >> 52 & 0x7ff) - 1023;
    return power_of_two((e < w->least ? w->least : e) - (w->digits - 1));
}

/* ---- scale ------------------------------------------------------------------------------------------------------ */

/* What the nudged inputs change, squared and divided by the nudge, averaged over the references that there are. */
static void
add_changes(work *w, const msp_tensor *const near[2])
{
    int rounds = (near[0] != NULL) + (near[1] != NULL);
    const double *changed;

    for (int k = 0; k < 2; k++) {
        if (near[k] == NULL)
            continue;
        changed = elements_of(w->error, near[k]);
        for (int64_t i = 0; i < w->n; i++) {
            double change = (changed[i] - w->want[i]) / MSP_LOCAL_NUDGE;

            if (isfinite(change))
                w->scale[i] += change * change / rounds;
        }
    }
}

/* A single reference may hardly move an element by chance: its neighbours speak for it, too. */
static void
smooth_errors(work *w)
{
    double before = 0;

    for (int64_t i = 0; i < w->n; i++) {
        double here = w->scale[i], after = i + 1 < w->n ? w->scale[i + 1] : 0;

        w->scale[i] = larger(here, larger(before, after) / 4);
        before = here;
    }
}

static void
find_scale(msp_local *l, work *w, const msp_tensor *const near[2])
{
    double sum = 0;
    int64_t finite = 0;

    memset(w->scale, 0, (size_t)w->n * sizeof(double));
    add_changes(w, near);
    if (near[0] != NULL && near[1] == NULL)
        smooth_errors(w);
    for (int64_t i = 0; i < w->n; i++) {
        double v = isfinite(w->want[i]) ? w->want[i] : 0, s = w->scale[i] + v * v;

        w->scale[i] = sqrt(s);
        sum += s;
        finite += isfinite(w->want[i]) != 0;
    }
    l->scale_rms = finite > 0 ? sqrt(sum / (double)finite) : 0;
    w->floor = 0.1 * l->scale_rms;
}

/* ---- measures --------------------------------------------------------------------------------------------------- */

typedef struct sums {
    double scaled, inverse, squares, cross, want, bias, bias2, offset, offset2;
    int64_t used;
} sums;

/* Many devices give zero for numbers below the smallest normal one of float32, which bfloat16 shares. */
static bool
is_flushed(const work *w, int64_t i)
{
    return w->got[i] == 0 && w->least == -126 && fabs(w->want[i]) < 0.5 * w->normal;
}

static void
measure_one(msp_local *l, work *w, sums *s, int64_t i)
{
    double e = is_flushed(w, i) ? 0 : w->got[i] - w->want[i], scale, scaled, step, signed_ulps;

    w->error[i] = -1;
    if (!isfinite(w->got[i]) || !isfinite(w->want[i])) {
        bool same = isnan(w->got[i]) ? isnan(w->want[i]) : w->got[i] == w->want[i];

        /* a reference that is finite only because it has more range than the type */
        same = same || (isinf(w->got[i]) && w->digits > 0 && fabs(w->want[i]) >= ldexp(1, w->digits == 11 ? 16 : 128));
        if (!same && l->bad++ == 0)
            l->first = i;
        l->differ += !same;
        return;
    }
    scale = larger(w->scale[i], w->floor);
    scaled = e == 0 ? 0 : scale > 0 ? fabs(e) / scale : 1;
    l->tight = larger(l->tight, e == 0 ? 0 : w->scale[i] > 0 ? fabs(e) / w->scale[i] : INFINITY);
    w->error[i] = scaled;
    s->scaled += scaled * scaled;
    s->inverse += scale > 0 ? 1 / (scale * scale) : 0;
    s->squares += e * e;
    s->cross += e * w->want[i];
    s->want += w->want[i] * w->want[i];
    s->offset += e;
    s->offset2 += e * e;
    s->used++;
    if (scaled > l->max || l->max_index < 0) {
        l->max = scaled;
        l->max_index = i;
    }
    if (w->digits == 0) {
        l->differ += e != 0;
        return;
    }
    step = ulp_at(w, w->want[i]);
    l->differ += fabs(e) > step * 0.500001;
    if (w->want[i] == 0 || fabs(w->want[i]) < w->normal)
        return;
    signed_ulps = (w->want[i] > 0 ? e : -e) / step;
    s->bias += signed_ulps;
    s->bias2 += signed_ulps * signed_ulps;
    l->away = larger(l->away, signed_ulps);
    l->toward = larger(l->toward, -signed_ulps);
    l->biased++;
}

static void
measure_all(msp_local *l, work *w, sums *s)
{
    for (int64_t i = 0; i < w->n; i++)
        measure_one(l, w, s, i);
    if (s->used > 0) {
        l->rms = sqrt(s->scaled / (double)s->used);
        l->inverse_rms = sqrt(s->inverse / (double)s->used);
        l->error_rms = sqrt(s->squares / (double)s->used);
        l->value_rms = sqrt(s->want / (double)s->used);
        l->slope = s->want > 0 ? s->cross / s->want : 0;
    }
    if (l->biased > 0) {
        l->bias = s->bias / (double)l->biased;
        l->spread = sqrt(larger(0, s->bias2 / (double)l->biased - l->bias * l->bias));
    }
}

/* ---- shape ------------------------------------------------------------------------------------------------------ */

static int
by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The middle one of n values, which are put into another order (Hoare's selection). */
static double
middle_of(double *v, int64_t n)
{
    int64_t low = 0, high = n - 1, middle = n / 2;

    while (low < high) {
        double pivot = v[low + (high - low) / 2];
        int64_t i = low, k = high;

        while (i <= k) {
            while (v[i] < pivot)
                i++;
            while (v[k] > pivot)
                k--;
            if (i <= k) {
                double t = v[i];

                v[i++] = v[k];
                v[k--] = t;
            }
        }
        if (middle <= k)
            high = k;
        else if (middle >= i)
            low = i;
        else
            break;
    }
    return v[middle];
}

/* Cut off: every error goes toward zero by less than a step, evenly. A rounded result is as often away from it. */
static bool
is_cut_off(const msp_local *l)
{
    return l->biased >= MIN_CUT && l->away < 0.01 && l->toward > 0.8 && l->toward < 1.01 && l->bias < -0.3 &&
           l->bias > -0.7;
}

/* True when the errors are a constant factor on the reference, or a constant offset, and nothing else. */
static bool
is_uniform(msp_local *l, const work *w, const sums *s, double limit)
{
    double mean = s->offset / (double)s->used, rest = s->squares - l->slope * s->cross;

    if (s->used < 2 || l->rms < limit)
        return false;
    if (s->want > 0 && fabs(l->slope) > 1e-9 && rest < 0.02 * s->squares) {
        l->shape = MSP_SHAPE_FACTOR;
        l->value = 1 + l->slope;
        return true;
    }
    if (s->offset2 / (double)s->used - mean * mean < 0.01 * mean * mean && w->n > 3) {
        l->shape = MSP_SHAPE_OFFSET;
        l->value = mean;
        return true;
    }
    return false;
}

/* got[i] is want[i - shift] for (nearly) all i. */
static bool
is_shifted(const work *w, int shift)
{
    int64_t agree = 0, different = 0;

    for (int64_t i = shift; i < w->n; i++) {
        agree += fabs(w->got[i] - w->want[i - shift]) <= 1e-2 * fmax(w->scale[i], w->floor);
        different += w->want[i] != w->want[i - shift];
    }
    return agree >= (w->n - shift) * 9 / 10 && different > w->n / 2;
}

static bool
is_permuted(work *w, double *room)
{
    double *sorted = room, *other = w->scale; /* the scales are not needed any more */
    double sum = 0, total = 0;

    memcpy(sorted, w->got, (size_t)w->n * sizeof(double));
    memcpy(other, w->want, (size_t)w->n * sizeof(double));
    qsort(sorted, (size_t)w->n, sizeof(double), by_value);
    qsort(other, (size_t)w->n, sizeof(double), by_value);
    for (int64_t i = 0; i < w->n; i++) {
        sum += (sorted[i] - other[i]) * (sorted[i] - other[i]);
        total += other[i] * other[i];
    }
    return sum < 1e-4 * total;
}

/* Where the wrong elements lie: in the last columns, at the end, in whole rows, in a block. */
static void
place_wrong_elements(msp_local *l, const work *w, double limit)
{
    int64_t row = l->period, rows = row > 0 ? w->n / row : 0, left = row, full = 0, zeros = 0, flipped = 0;
    int64_t first_row = -1, last_row = -1, touched = 0;

    l->first = l->last = -1;
    for (int64_t r = 0; r < rows; r++) {
        int64_t here = 0;

        for (int64_t c = 0; c < row; c++) {
            int64_t i = r * row + c;

            if (w->error[i] <= limit)
                continue;
            here++;
            left = c < left ? c : left;
            l->first = l->first < 0 ? i : l->first;
            l->last = i;
            zeros += w->got[i] == 0;
            flipped += fabs(w->got[i] + w->want[i]) <= 0.05 * fabs(w->want[i]);
        }
        if (here > 0) {
            first_row = first_row < 0 ? r : first_row;
            last_row = r;
            touched++;
            full += here >= row - row / 8;
        }
        l->wrong += here;
    }
    l->value = zeros == l->wrong ? 0 : 1; /* 0: the wrong elements are zero */
    if (l->wrong == 1) {
        l->shape = MSP_SHAPE_ONE;
    } else if (rows > 1 && left > 0 && touched >= rows - rows / 8 && l->wrong * 4 >= rows * (row - left) * 3) {
        l->shape = MSP_SHAPE_TAIL;
        l->wrong = row - left;
    } else if (l->wrong < w->n * 3 / 4 && l->last == w->n - 1 && l->wrong * 8 >= (l->last - l->first + 1) * 7) {
        l->shape = MSP_SHAPE_END;
    } else if (rows > 1 && full == touched && touched < rows * 3 / 4 && touched == last_row - first_row + 1) {
        l->shape = MSP_SHAPE_ROWS;
        l->first = first_row;
        l->last = last_row;
        l->wrong = touched;
    } else if (l->wrong < w->n / 2 && l->wrong * 2 >= l->last - l->first + 1) {
        l->shape = zeros == l->wrong ? MSP_SHAPE_ZEROS : MSP_SHAPE_BLOCK;
    } else if (flipped * 8 >= l->wrong * 7) {
        l->shape = MSP_SHAPE_SIGN;
    }
}

static void
find_shape(msp_local *l, work *w, const sums *s, double *room)
{
    double u = msp_local_roundoff(l->dtype), limit, median;

    if (l->bad > 0) {
        l->shape = MSP_SHAPE_NONFINITE;
        l->wrong = l->bad;
        return;
    }
    if (is_cut_off(l)) {
        l->shape = MSP_SHAPE_TOWARD_ZERO;
        return;
    }
    if (l->differ == 0)
        return;
    l->shape = MSP_SHAPE_NOISE;
    if (l->max <= 8 * u || is_uniform(l, w, s, 8 * u))
        return;
    memcpy(room, w->error, (size_t)w->n * sizeof(double));
    median = middle_of(room, w->n);
    /* far above noise, and far below what is wrong: an element that should be small is hardly wrong when it is zero */
    limit = fmax(fmax(8 * u, l->max / 200), fmin(8 * median, l->max / 2));
    if (limit < l->max)
        place_wrong_elements(l, w, limit);
    if (l->shape != MSP_SHAPE_NOISE || l->rms < 0.05)
        return;
    for (int k = 1; k <= MAX_SHIFT && l->shape == MSP_SHAPE_NOISE; k++)
        if (w->n > 4 * k && is_shifted(w, k)) {
            l->shape = MSP_SHAPE_SHIFT;
            l->wrong = k;
        }
    if (l->shape == MSP_SHAPE_NOISE && w->n > 3 && is_permuted(w, room))
        l->shape = MSP_SHAPE_PERMUTED;
}

msp_status
msp_local_measure(msp_local *out, const msp_tensor *recorded, const msp_tensor *reference,
                  const msp_tensor *const near[2], msp_error *err)
{
    work w = {.n = recorded->numel};
    sums s = {0};
    double *room;

    *out = (msp_local){.dtype = recorded->dtype, .count = recorded->numel, .max_index = -1, .first = -1, .last = -1};
    if (!msp_tensor_same_shape(recorded, reference))
        return msp_error_set(err, MSP_E_INVALID, "the recorded result and its reference differ in shape");
    for (int k = 0; k < 2; k++)
        if (near[k] != NULL && !msp_tensor_same_shape(reference, near[k]))
            return msp_error_set(err, MSP_E_INVALID, "the references differ in shape");
    if (w.n == 0)
        return MSP_OK;
    room = msp_alloc((size_t)w.n, 5 * sizeof(double));
    if (room == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory for %lld elements", (long long)w.n);
    w.got = room + w.n;
    w.scale = room + 3 * w.n;
    w.error = room + 4 * w.n;
    w.digits = digits_of(recorded->dtype, &w.least);
    w.normal = ldexp(1, w.least + 1);
    out->period = recorded->ndim > 0 ? recorded->shape[recorded->ndim - 1] : 1;
    load_f64(w.got, recorded);
    w.want = elements_of(room + 2 * w.n, reference);
    find_scale(out, &w, near);
    measure_all(out, &w, &s);
    find_shape(out, &w, &s, room);
    msp_free(room);
    return MSP_OK;
}

double
msp_local_distance(const msp_tensor *a, const msp_tensor *b)
{
    size_t size[2] = {msp_dtype_size(a->dtype), msp_dtype_size(b->dtype)};
    double sum = 0;
    int64_t used = 0;
    bool plain;

    if (!msp_tensor_same_shape(a, b))
        return NAN;
    plain = msp_tensor_is_contiguous(a) && msp_tensor_is_contiguous(b);
    for (int64_t i = 0; i < a->numel; i++) {
        const void *x = plain ? (const char *)a->data + (size_t)i * size[0] : msp_tensor_at(a, i);
        const void *y = plain ? (const char *)b->data + (size_t)i * size[1] : msp_tensor_at(b, i);
        double d = msp_dtype_load_f64(a->dtype, x) - msp_dtype_load_f64(b->dtype, y);

        if (!isfinite(d))
            continue;
        sum += d * d;
        used++;
    }
    return used > 0 ? sqrt(sum / (double)used) : NAN;
}

void
msp_local_describe(char *buf, size_t size, const msp_local *l)
{
    const char *are = l->value == 0 ? "are zero" : "are wrong";
    long long wrong = (long long)l->wrong, first = (long long)l->first, last = (long long)l->last;

    switch (l->shape) {
    case MSP_SHAPE_NONFINITE:
        snprintf(buf, size,
                 "%lld of %lld elements are not finite where they should be, or the other way round, the "
                 "first at %lld",
                 wrong, (long long)l->count, first);
        break;
    case MSP_SHAPE_ONE:
        snprintf(buf, size, "one element is wrong: number %lld", first);
        break;
    case MSP_SHAPE_ZEROS:
        snprintf(buf, size, "%lld elements are zero, from %lld to %lld", wrong, first, last);
        break;
    case MSP_SHAPE_TAIL:
        snprintf(buf, size, "the last %lld of every %lld elements %s", wrong, (long long)l->period, are);
        break;
    case MSP_SHAPE_END:
        snprintf(buf, size, "the last %lld elements %s", wrong, are);
        break;
    case MSP_SHAPE_BLOCK:
        snprintf(buf, size, "%lld elements are wrong, all from %lld to %lld", wrong, first, last);
        break;
    case MSP_SHAPE_ROWS:
        snprintf(buf, size, "rows %lld to %lld %s", first, last, are);
        break;
    case MSP_SHAPE_FACTOR:
        msp_snprintf(buf, size, "%.6g times the expected value", l->value);
        break;
    case MSP_SHAPE_OFFSET:
        msp_snprintf(buf, size, "%.6g more than expected, everywhere", l->value);
        break;
    case MSP_SHAPE_SHIFT:
        snprintf(buf, size, "every element holds what belongs %lld before it", wrong);
        break;
    case MSP_SHAPE_PERMUTED:
        snprintf(buf, size, "the right values in another order");
        break;
    case MSP_SHAPE_TOWARD_ZERO:
        snprintf(buf, size, "cut off instead of rounded: every error goes toward zero");
        break;
    case MSP_SHAPE_SIGN:
        snprintf(buf, size, "the sign is the other one in %lld of %lld elements", wrong, (long long)l->count);
        break;
    case MSP_SHAPE_NOISE:
        msp_snprintf(buf, size, "spread like rounding, about %.3g of an element's size", l->rms);
        break;
    default:
        snprintf(buf, size, "exact");
    }
}
