/*
 * measure.c - the numbers of one result, and its verdict.
 *
 * Both sides are read as doubles once; every number is a plain loop in the order of the elements, so that it does not
 * depend on threads. Bounds are the original tool's.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "core/alloc.h"
#include "core/locale.h"
#include "precheck/lines.h"

/* What the standards know about an element type of the device. */
typedef struct bounds {
    double small;         /* values up to this are judged by their absolute error */
    double absolute_atol; /* of the absolute standard */
    double small_atol;    /* of the benchmark standard */
    double rtol;
    double largest, infinite;     /* and from where on a number rounds to infinity */
    int mantissa, least_exponent; /* of a unit in the last place */
    double ulp_limit;
} bounds;

static bounds
bounds_of(msp_dtype t)
{
    switch (t) {
    case MSP_F16:
        return (bounds){0x1p-10, 0x1p-16, 1e-16, 0x1p-10, 65504.0, 65520.0, 10, -14, 1};
    case MSP_BF16: /* 2^-16, as the documentation has it; the original's code says 1e-16 */
        return (bounds){0x1p-10, 0x1p-16, 1e-16, 0x1p-8, 0x1.fep127, 0x1.ffp127, 7, -126, 1};
    case MSP_F64:
    case MSP_C128:
        return (bounds){0x1p-20, 0x1p-30, 0x1p-30, 0x1p-20, DBL_MAX, INFINITY, 52, -1022, 32};
    default:
        return (bounds){0x1p-20, 0x1p-30, 0x1p-30, 0x1p-20, 0x1.fffffep127, 0x1.ffffffp127, 23, -126, 32};
    }
}

static double
epsilon_of(msp_dtype bench)
{
    return bench == MSP_F64 || bench == MSP_C128 ? 0x1p-52
           : bench == MSP_F16                    ? 0x1p-10
           : bench == MSP_BF16                   ? 0x1p-8
                                                 : 0x1p-23;
}

typedef struct values {
    double *d, *b; /* device, bench */
    size_t n;
    double eps;
    bounds limit;
} values;

static void
set(msp_precheck_row *r, msp_precheck_column c, double v)
{
    r->has[c] = true;
    r->v[c] = v;
}

static void
say(msp_precheck_row *r, const char *text)
{
    size_t len = strlen(r->message);

    snprintf(r->message + len, sizeof(r->message) - len, "%s\n", text);
}

/* A complex tensor is judged as its real and imaginary parts, one behind the other. */
static size_t
parts_of(const msp_tensor *t)
{
    return msp_dtype_class_of(t->dtype) == MSP_CLASS_COMPLEX ? 2 : 1;
}

static void
load(double *out, const msp_tensor *t)
{
    size_t parts = parts_of(t);
    msp_dtype part = t->dtype == MSP_C64 ? MSP_F32 : t->dtype == MSP_C128 ? MSP_F64 : t->dtype;
    size_t size = msp_dtype_size(part), step = size * parts;
    bool dense = msp_tensor_is_contiguous(t);

    for (int64_t i = 0; i < t->numel; i++) {
        const char *p = dense ? (const char *)t->data + (size_t)i * step : msp_tensor_at(t, i);

        for (size_t k = 0; k < parts; k++)
            out[(size_t)i * parts + k] = msp_dtype_load_f64(part, p + k * size);
    }
}

/* ---- the standards ---------------------------------------------------------------------------------------------- */

static bool
both_finite(const values *x, size_t i)
{
    return isfinite(x->d[i]) && fabs(x->b[i]) < x->limit.infinite;
}

static double
relative(const values *x, size_t i)
{
    return fabs(x->d[i] - x->b[i]) / (fabs(x->b[i]) + x->eps);
}

static double
clip(double v, double largest)
{
    return v > largest ? largest : v < -largest ? -largest : v;
}

static bool
special_differs(const values *x, size_t i)
{
    double d = clip(x->d[i], x->limit.largest), b = clip(x->b[i], x->limit.largest);

    if (isnan(d) || isnan(b))
        return isnan(d) != isnan(b);
    return fabs(d - b) / (fabs(b) + x->eps) > x->limit.rtol;
}

static double
share(size_t part, size_t whole)
{
    return whole == 0 ? 0 : (double)part / (double)whole;
}

static void
measure_absolute(msp_precheck_row *r, const values *x)
{
    size_t special = 0, differ = 0, small = 0, small_bad = 0, normal = 0, normal_bad = 0;

    for (size_t i = 0; i < x->n; i++) {
        if (!both_finite(x, i)) {
            special++;
            differ += special_differs(x, i);
        } else if (fabs(x->b[i]) <= x->limit.small) {
            small++;
            small_bad += fabs(x->d[i] - x->b[i]) > x->limit.absolute_atol;
        } else {
            normal++;
            normal_bad += relative(x, i) > x->limit.rtol;
        }
    }
    set(r, MSP_PRECHECK_INF_NAN_RATE, share(differ, special));
    set(r, MSP_PRECHECK_REL_RATE, share(normal_bad, normal));
    set(r, MSP_PRECHECK_ABS_RATE, share(small_bad, small));
}

static void
measure_binary(msp_precheck_row *r, const values *x)
{
    size_t differ = 0;

    for (size_t i = 0; i < x->n; i++)
        differ += x->d[i] != x->b[i] && !(isnan(x->d[i]) && isnan(x->b[i]));
    set(r, MSP_PRECHECK_ERROR_RATE, share(differ, x->n));
}

/* How many bits a float8 of the original's definition has behind the point, by its exponent. */
static int
mantissa_at(const values *x, msp_dtype device, int exponent)
{
    int e = exponent < 0 ? -exponent : exponent;

    switch (device) {
    case MSP_F8_E4M3FN:
    case MSP_F8_E4M3FNUZ:
    case MSP_F8_E5M2:
    case MSP_F8_E5M2FNUZ:
        return e <= 3 ? 3 : e <= 7 ? 2 : e <= 15 ? 1 : 0;
    default:
        return x->limit.mantissa;
    }
}

static void
measure_ulp(msp_precheck_row *r, const values *x)
{
    double largest = 0, sum = 0;
    size_t count = 0, over = 0;

    for (size_t i = 0; i < x->n; i++) {
        double e;
        int exponent;

        if (!both_finite(x, i))
            continue;
        exponent = x->b[i] == 0 ? 0 : ilogb(x->b[i]);
        if (exponent < x->limit.least_exponent)
            exponent = x->limit.least_exponent;
        e = ldexp(fabs(x->d[i] - x->b[i]), mantissa_at(x, r->device, exponent) - exponent);
        largest = e > largest ? e : largest;
        sum += e;
        over += e > x->limit.ulp_limit;
        count++;
    }
    set(r, MSP_PRECHECK_ULP_MAX, largest);
    set(r, MSP_PRECHECK_ULP_MEAN, count == 0 ? 0 : sum / (double)count);
    set(r, MSP_PRECHECK_ULP_RATE, share(over, count));
}

static void
measure_benchmark(msp_precheck_row *r, const values *x)
{
    double squares = 0, largest = 0, sum = 0, n = (double)x->n, masked;
    size_t small = 0, small_bad = 0, normal = 0;
    int64_t balance = 0;

    for (size_t i = 0; i < x->n; i++) {
        double rel;

        balance += (x->d[i] > x->b[i]) - (x->d[i] < x->b[i]);
        if (!both_finite(x, i))
            continue;
        if (fabs(x->b[i]) <= x->limit.small) {
            small++;
            small_bad += fabs(x->d[i] - x->b[i]) > x->limit.small_atol;
            continue;
        }
        rel = relative(x, i);
        squares += (x->d[i] - x->b[i]) * (x->d[i] - x->b[i]);
        largest = rel > largest ? rel : largest;
        sum += rel;
        normal++;
    }
    masked = (double)(x->n - normal);
    set(r, MSP_PRECHECK_BALANCE, (double)(balance < 0 ? -balance : balance) / n);
    set(r, MSP_PRECHECK_RMSE, sqrt(squares / n * (n / (n - masked + 0.0001) + 0.0001)));
    set(r, MSP_PRECHECK_SMALL_RATE, share(small_bad, small));
    set(r, MSP_PRECHECK_MAX_REL, largest);
    set(r, MSP_PRECHECK_MEAN_REL, normal == 0 ? 0 : sum / (double)normal);
}

static double
share_below(const values *x, double bound)
{
    size_t count = 0;

    for (size_t i = 0; i < x->n; i++)
        count += (isnan(x->d[i]) && isnan(x->b[i])) || x->d[i] == x->b[i] || relative(x, i) < bound;
    return share(count, x->n);
}

/* ---- the verdict ------------------------------------------------------------------------------------------------ */

/* Words of the original's messages, which other programs read. */
#define OFF_ERROR    ", consider as error, skip other check and set to SPACE."
#define OFF_WARNING  ", consider as warning, skip other check and set to SPACE."
#define CLOSE_ENOUGH ", consider as pass, skip other check and set to SPACE."

static double
largest_of(const double *v, size_t n)
{
    double m = 0;

    for (size_t i = 0; i < n; i++)
        if (isfinite(v[i]) && fabs(v[i]) > m)
            m = fabs(v[i]);
    return m;
}

/* Cosine of the finite elements, scaled so that no square overflows. False: there is nothing to judge by it. */
static bool
cosine(msp_precheck_row *r, const values *x, double *out)
{
    const double nothing = r->device == MSP_F16 ? 0x1p-23 : DBL_EPSILON; /* two of float16's smallest numbers */
    double a = largest_of(x->d, x->n), b = largest_of(x->b, x->n), dot = 0, dd = 0, bb = 0;

    if (x->n == 1) {
        say(r, "All the data in device dump data is scalar. Please refer to other compare algorithms.");
        return false;
    }
    if (a <= nothing && b <= nothing) {
        say(r, "All the data in device and bench outputs are zero.");
        return false;
    }
    say(r, a == 0   ? "All the data is zero in device dump data."
           : b == 0 ? "All the data is zero in bench dump data."
                    : "");
    *out = 0;
    if (a == 0 || b == 0)
        return true;
    for (size_t i = 0; i < x->n; i++) {
        double d = x->d[i] / a, v = x->b[i] / b;

        if (!isfinite(d) || !isfinite(v))
            continue;
        dot += d * v;
        dd += d * d;
        bb += v * v;
    }
    *out = dd > 0 && bb > 0 ? dot / (sqrt(dd) * sqrt(bb)) : 0;
    if (*out > 1)
        *out = 1;
    return true;
}

/* How many elements are finite on one side only, or infinite with another sign. What the type rounds to infinity is
 * infinite. */
static size_t
count_one_sided(const values *x)
{
    size_t count = 0;

    for (size_t i = 0; i < x->n; i++) {
        double b = fabs(x->b[i]) >= x->limit.infinite ? copysign(INFINITY, x->b[i]) : x->b[i];

        if (isfinite(x->d[i]) && isfinite(b))
            continue;
        count += isnan(x->d[i]) || isnan(b) ? isnan(x->d[i]) != isnan(b) : x->d[i] != b;
    }
    return count;
}

static double
largest_error(const values *x)
{
    double m = 0;

    for (size_t i = 0; i < x->n; i++)
        if (both_finite(x, i) && fabs(x->d[i] - x->b[i]) > m)
            m = fabs(x->d[i] - x->b[i]);
    return m;
}

static msp_precheck_status
judge_shares(msp_precheck_row *r, const values *x)
{
    bool half = r->device == MSP_F16 || r->device == MSP_BF16 || msp_dtype_size(r->device) == 1;

    if (half) {
        set(r, MSP_PRECHECK_HUNDREDTH, share_below(x, 0.01));
        if (!(r->v[MSP_PRECHECK_HUNDREDTH] > 0.99)) {
            say(r, "Relative error is greater than 0.01" OFF_ERROR);
            return MSP_PRECHECK_ERROR;
        }
    }
    set(r, MSP_PRECHECK_THOUSANDTH_SHARE, share_below(x, 0.001));
    if (r->v[MSP_PRECHECK_THOUSANDTH_SHARE] > 0.999) {
        if (half) {
            say(r, "Relative error is less than 0.001" CLOSE_ENOUGH);
            return MSP_PRECHECK_PASS;
        }
    } else {
        say(r, half ? "Relative error is greater than 0.001" OFF_WARNING
                    : "Relative error is greater than 0.001" OFF_ERROR);
        return half ? MSP_PRECHECK_WARNING : MSP_PRECHECK_ERROR;
    }
    set(r, MSP_PRECHECK_TEN_THOUSANDTH, share_below(x, 0.0001));
    if (r->v[MSP_PRECHECK_TEN_THOUSANDTH] > 0.9999) {
        say(r, "Relative error is less than 0.0001, consider as pass.");
        return MSP_PRECHECK_PASS;
    }
    say(r, "Relative error is greater than 0.0001" OFF_WARNING);
    return MSP_PRECHECK_WARNING;
}

/* The cosine of two noises is any number: the verdict stays the original's, but nobody should look for a fault there.
 */
static void
say_what_may_be_noise(msp_precheck_row *r, const values *x)
{
    double error = largest_error(x);
    char text[160];

    if (!(error < 0.001))
        return;
    msp_snprintf(
        text, sizeof(text),
        "The largest error is %.2g: where exact results are 0, as in sums that cancel, this is rounding noise.", error);
    say(r, text);
}

static msp_precheck_status
judge_floats(msp_precheck_row *r, const values *x)
{
    size_t one_sided = count_one_sided(x);
    double c;

    if (one_sided > 0) {
        char text[96];

        snprintf(text, sizeof(text), "%zu elements are NaN or inf on one side only.", one_sided);
        say(r, text);
        if (!r->has[MSP_PRECHECK_INF_NAN_RATE]) /* most standards have no such number: it is there where it decides */
            set(r, MSP_PRECHECK_INF_NAN_RATE, share(one_sided, x->n));
        return MSP_PRECHECK_ERROR;
    }
    if (cosine(r, x, &c)) {
        set(r, MSP_PRECHECK_COSINE, c);
        if (!(c > 0.99)) {
            say(r, "Cosine similarity is less than 0.99" OFF_ERROR);
            say_what_may_be_noise(r, x);
            return MSP_PRECHECK_ERROR;
        }
    }
    set(r, MSP_PRECHECK_MAX_ABS, largest_error(x));
    if (r->v[MSP_PRECHECK_MAX_ABS] < 0.001) {
        say(r, "Max abs error is less than 0.001" CLOSE_ENOUGH);
        return MSP_PRECHECK_PASS;
    }
    return judge_shares(r, x);
}

/* Random: how many elements were dropped must agree, not which. */
static msp_precheck_status
judge_dropout(msp_precheck_row *r, const values *x)
{
    size_t d = 0, b = 0;

    for (size_t i = 0; i < x->n; i++) {
        d += x->d[i] == 0;
        b += x->b[i] == 0;
    }
    if (x->n < 100 || share(d > b ? d - b : b - d, x->n) < 0.1)
        return MSP_PRECHECK_PASS;
    say(r, "The number of dropped elements differs by more than a tenth.");
    return MSP_PRECHECK_ERROR;
}

static void
measure_by_standard(msp_precheck_row *r, const values *x)
{
    switch (r->standard) {
    case MSP_PRECHECK_ABSOLUTE:
        measure_absolute(r, x);
        break;
    case MSP_PRECHECK_BINARY:
        measure_binary(r, x);
        break;
    case MSP_PRECHECK_ULP:
        measure_ulp(r, x);
        break;
    case MSP_PRECHECK_THOUSANDTH:
        set(r, MSP_PRECHECK_THOUSANDTH_SHARE, share_below(x, 0.001));
        break;
    case MSP_PRECHECK_BENCHMARK:
        measure_benchmark(r, x);
        break;
    }
}

static msp_precheck_status
judge(msp_precheck_row *r, const char *api, const values *x)
{
    if (strstr(api, "dropout") != NULL)
        return judge_dropout(r, x);
    if (r->device == MSP_F64 ||
        msp_dtype_class_of(r->device) == MSP_CLASS_COMPLEX) /* no second device is expected to be as exact */
        snprintf(r->message, sizeof(r->message), "The data type %s is not supported for new precision standard.",
                 msp_dtype_torch_name(r->device));
    else
        measure_by_standard(r, x);
    return judge_floats(r, x);
}

static bool
is_whole(msp_dtype t)
{
    return msp_dtype_class_of(t) == MSP_CLASS_INT || msp_dtype_class_of(t) == MSP_CLASS_BOOL;
}

/* An integer to its last bit, which a double may not hold; a uint64 as the int64 of the same bits. */
static int64_t
whole_at(const msp_tensor *t, int64_t i)
{
    const void *p = msp_tensor_at(t, i);
    int64_t v;

    if (t->dtype != MSP_I64 && t->dtype != MSP_U64)
        return (int64_t)msp_dtype_load_f64(t->dtype, p);
    memcpy(&v, p, sizeof(v));
    return v;
}

static msp_precheck_status
judge_whole(msp_precheck_row *r, const msp_tensor *device, const msp_tensor *bench)
{
    size_t differ = 0;
    char text[128];

    for (int64_t i = 0; i < device->numel; i++)
        differ += whole_at(device, i) != whole_at(bench, i);
    set(r, MSP_PRECHECK_ERROR_RATE, share(differ, (size_t)device->numel));
    snprintf(text, sizeof(text), "Compare algorithm is not supported for %s data. Only judged by Error Rate.",
             msp_dtype_torch_name(device->dtype) + strlen("torch."));
    say(r, text);
    return differ == 0 ? MSP_PRECHECK_PASS : MSP_PRECHECK_ERROR;
}

static void
write_shape(char *out, size_t size, const msp_tensor *t)
{
    size_t at = (size_t)snprintf(out, size, "(");

    for (int i = 0; i < t->ndim && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%lld", i > 0 ? ", " : "", (long long)t->shape[i]);
    if (at < size)
        snprintf(out + at, size - at, "%s)", t->ndim == 1 ? "," : "");
}

/* Why the two cannot be compared, or NULL. */
static const char *
refusal(const msp_tensor *device, const msp_tensor *bench)
{
    msp_dtype_class d = msp_dtype_class_of(device->dtype), b = msp_dtype_class_of(bench->dtype);

    if (!msp_tensor_same_shape(device, bench))
        return "The shapes differ.";
    if ((d == MSP_CLASS_COMPLEX) != (b == MSP_CLASS_COMPLEX) || (d == MSP_CLASS_FLOAT) != (b == MSP_CLASS_FLOAT))
        return "The types cannot be compared.";
    return NULL;
}

msp_status
msp_precheck_measure(msp_precheck_row *out, const char *api, const msp_tensor *device, const msp_tensor *bench,
                     msp_error *err)
{
    const char *why = refusal(device, bench);
    size_t n = (size_t)device->numel * parts_of(device);
    values x = {.n = n, .eps = epsilon_of(bench->dtype), .limit = bounds_of(device->dtype)};

    *out = (msp_precheck_row){.bench = bench->dtype, .device = device->dtype};
    out->standard = msp_precheck_standard_of(api, device->dtype);
    write_shape(out->shape, sizeof(out->shape), device);
    if (why != NULL) {
        out->status = MSP_PRECHECK_ERROR;
        say(out, why);
        return MSP_OK;
    }
    if (n == 0) {
        say(out, "There are no elements to compare.");
        return MSP_OK;
    }
    if (is_whole(device->dtype) && is_whole(bench->dtype)) {
        out->status = judge_whole(out, device, bench);
        return MSP_OK;
    }
    x.d = msp_alloc(n, sizeof(*x.d));
    x.b = msp_alloc(n, sizeof(*x.b));
    if (x.d == NULL || x.b == NULL) {
        msp_free(x.d);
        msp_free(x.b);
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    load(x.d, device);
    load(x.b, bench);
    out->status = judge(out, api, &x);
    msp_free(x.d);
    msp_free(x.b);
    return MSP_OK;
}
