/*
 * summary.c - a claim checked by what the records say of whole tensors: checksums, else Max, Min, Mean and Norm.
 *
 * Of a copy everything is equal. Of a sum the mean is the sum of the means, the norm at most the sum of the norms, Max
 * at most the sum of the Max; of a maximum Max is the largest. Statistics are taken to be accurate to a float32's
 * rounding for each doubling of the elements, which covers how the older tools computed them.
 */
#include "audit/claim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>
#include "core/locale.h"
#include "msprobe/local.h"

static const char *const stat_names[MSP_AUDIT_NSTATS] = {"Max", "Min", "Mean", "Norm"};

static bool
same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

bool
msp_audit_same_summary(const msp_audit_tensor *a, const msp_audit_tensor *b)
{
    bool summed = a->md5.len > 0 && b->md5.len > 0;

    if (a->dtype != b->dtype || a->numel != b->numel || (!summed && (!a->has_stats || !b->has_stats)))
        return false;
    for (int i = 0; i < MSP_AUDIT_NSTATS; i++)
        if (!same_number(a->stat[i], b->stat[i]))
            return false;
    return !summed || msp_str_eq(a->md5, b->md5);
}

static void
say_stat(const msp_checker *k, int stat, double got, const char *how, double want)
{
    msp_snprintf(k->set->what, sizeof(k->set->what), "%s of its result is %.9g, %s %.9g", stat_names[stat], got, how,
                 want);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

bool
msp_claim_copy_by_summary(const msp_checker *k, const msp_claim *c, bool *wrong)
{
    const msp_audit_tensor *a = c->out.tensor, *b = c->in[0].tensor;
    long long from = (long long)k->set->ranks[c->in[0].rank]->rank;

    if (a->md5.len > 0 && b->md5.len > 0) {
        *wrong = !msp_str_eq(a->md5, b->md5);
        if (*wrong)
            snprintf(k->set->what, sizeof(k->set->what),
                     "the checksum of its result is %.*s, that of what rank %lld gave %.*s",
                     (int)(a->md5.len < 64 ? a->md5.len : 64), a->md5.p, from, (int)(b->md5.len < 64 ? b->md5.len : 64),
                     b->md5.p);
        return true;
    }
    if (!a->has_stats || !b->has_stats)
        return false;
    for (int i = 0; i < MSP_AUDIT_NSTATS && !*wrong; i++)
        if (!same_number(a->stat[i], b->stat[i])) {
            char how[64];

            *wrong = true;
            snprintf(how, sizeof(how), "that of what rank %lld gave", from);
            say_stat(k, i, a->stat[i], how, b->stat[i]);
        }
    return true;
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

/* What the inputs allow the sum of them to be, and how far it may be off. */
typedef struct range {
    double max, min, mean, norm, least_norm; /* NaN: not recorded */
    double off;                              /* for one element */
} range;

static range
add_up(const msp_claim *c)
{
    range all = {0};
    double largest = 0, size = 0, u = msp_local_roundoff(c->out.tensor->dtype);

    for (size_t r = 0; r < c->n; r++) {
        const double *s = c->in[r].tensor->stat, f = c->in[r].factor;

        all.max += f * s[f < 0 ? MSP_AUDIT_MIN : MSP_AUDIT_MAX];
        all.min += f * s[f < 0 ? MSP_AUDIT_MAX : MSP_AUDIT_MIN];
        all.mean += f * s[MSP_AUDIT_MEAN];
        all.norm += fabs(f) * s[MSP_AUDIT_NORM];
        largest = fmax(largest, fabs(f) * s[MSP_AUDIT_NORM]);
        size += fabs(f) * fmax(fabs(s[MSP_AUDIT_MAX]), fabs(s[MSP_AUDIT_MIN]));
    }
    all.least_norm = 2 * largest - all.norm; /* of the sum of two numbers, the others stand against the largest */
    all.off = 2 * (double)c->n * fmax(u, 0x1p-24) * size + (double)c->n * msp_claim_smallest(c->out.tensor->dtype);
    if (c->reduce == MSP_REDUCE_AVG) {
        double n = (double)c->n;

        all = (range){all.max / n, all.min / n, all.mean / n, all.norm / n, all.least_norm / n, all.off / n};
    }
    return all;
}

/* Sums of integers wrap, those of floats become infinite: then nothing follows from the inputs. */
static bool
may_overflow(msp_dtype t, const range *all)
{
    double bits = 8 * (double)msp_dtype_size(t);

    if (msp_dtype_class_of(t) == MSP_CLASS_FLOAT)
        return fmax(fabs(all->max), fabs(all->min)) > msp_claim_largest(t) / 2;
    if (msp_dtype_class_of(t) != MSP_CLASS_INT)
        return true;
    if (msp_dtype_is_signed_int(t))
        return all->max >= exp2(bits - 1) || all->min < -exp2(bits - 1);
    return all->max >= exp2(bits) || all->min < 0;
}

static bool
check_sum(const msp_checker *k, const msp_claim *c, bool *wrong)
{
    const msp_audit_tensor *out = c->out.tensor;
    const range all = add_up(c);
    double numel = (double)(out->numel > 0 ? out->numel : 1), u = fmax(msp_local_roundoff(out->dtype), 0x1p-24);
    double loose = 4 * ((double)c->n + log2(numel) + 1) * u, tiny = (double)c->n * msp_claim_smallest(out->dtype);
    double one = c->reduce == MSP_REDUCE_AVG && msp_local_roundoff(out->dtype) == 0 ? 1 : 0; /* integers are cut off */
    const double *got = out->stat;

    if (!isfinite(all.max) || !isfinite(all.min) || !isfinite(got[MSP_AUDIT_MAX]) || !isfinite(got[MSP_AUDIT_MIN]) ||
        may_overflow(out->dtype, &all))
        return false;
    *wrong = true;
    if (got[MSP_AUDIT_MAX] > all.max + all.off + one)
        say_stat(k, MSP_AUDIT_MAX, got[MSP_AUDIT_MAX], "the inputs make at most", all.max);
    else if (got[MSP_AUDIT_MIN] < all.min - all.off - one)
        say_stat(k, MSP_AUDIT_MIN, got[MSP_AUDIT_MIN], "the inputs make at least", all.min);
    else if (isfinite(all.mean) && isfinite(got[MSP_AUDIT_MEAN]) && isfinite(all.norm) &&
             fabs(got[MSP_AUDIT_MEAN] - all.mean) > loose * all.norm / sqrt(numel) + tiny + one)
        say_stat(k, MSP_AUDIT_MEAN, got[MSP_AUDIT_MEAN], "the inputs make", all.mean);
    else if (isfinite(all.norm) && got[MSP_AUDIT_NORM] > all.norm * (1 + loose) + (tiny + one) * sqrt(numel))
        say_stat(k, MSP_AUDIT_NORM, got[MSP_AUDIT_NORM], "the inputs make at most", all.norm);
    else if (isfinite(all.norm) && got[MSP_AUDIT_NORM] < all.least_norm - loose * all.norm - (tiny + one) * sqrt(numel))
        say_stat(k, MSP_AUDIT_NORM, got[MSP_AUDIT_NORM], "the inputs make at least", all.least_norm);
    else
        *wrong = false;
    return true;
}

static bool
check_largest(const msp_checker *k, const msp_claim *c, bool *wrong)
{
    int i = c->reduce == MSP_REDUCE_MAX ? MSP_AUDIT_MAX : MSP_AUDIT_MIN;
    double want = c->in[0].tensor->stat[i], got = c->out.tensor->stat[i];

    for (size_t r = 0; r < c->n; r++) {
        double theirs = c->in[r].tensor->stat[i];

        if (isnan(theirs)) /* its numbers, of which the largest may be one, are not known */
            return false;
        want = i == MSP_AUDIT_MAX ? fmax(want, theirs) : fmin(want, theirs);
    }
    *wrong = isfinite(want) && got != want;
    if (*wrong)
        say_stat(k, i, got, "the inputs make", want);
    return true;
}

bool
msp_claim_reduced_by_summary(const msp_checker *k, const msp_claim *c, bool *wrong)
{
    if (!c->out.tensor->has_stats)
        return false;
    for (size_t r = 0; r < c->n; r++)
        if (!c->in[r].tensor->has_stats)
            return false;
    switch (c->reduce) {
    case MSP_REDUCE_MAX:
    case MSP_REDUCE_MIN:
        return check_largest(k, c, wrong);
    case MSP_REDUCE_SUM:
    case MSP_REDUCE_AVG:
    case MSP_REDUCE_PREMUL_SUM:
        return check_sum(k, c, wrong);
    default:
        return false;
    }
}

/* ---- parts of one tensor ----------------------------------------------------------------------------------------- */

bool
msp_claim_join(msp_audit_tensor *out, const msp_claim_part *parts, size_t n)
{
    double mean = 0, square = 0;

    *out = (msp_audit_tensor){.dtype = parts[0].tensor->dtype, .has_stats = true, .stat = {-INFINITY, INFINITY, 0, 0}};
    for (size_t r = 0; r < n; r++) {
        const msp_audit_tensor *t = parts[r].tensor;

        if (t->numel == 0)
            continue;
        if (!t->has_stats || !isfinite(t->stat[MSP_AUDIT_MAX]) || !isfinite(t->stat[MSP_AUDIT_MIN]) ||
            t->dtype != out->dtype || t->numel > INT64_MAX - out->numel)
            return false;
        out->stat[MSP_AUDIT_MAX] = fmax(out->stat[MSP_AUDIT_MAX], t->stat[MSP_AUDIT_MAX]);
        out->stat[MSP_AUDIT_MIN] = fmin(out->stat[MSP_AUDIT_MIN], t->stat[MSP_AUDIT_MIN]);
        mean += t->stat[MSP_AUDIT_MEAN] * (double)t->numel;
        square += t->stat[MSP_AUDIT_NORM] * t->stat[MSP_AUDIT_NORM];
        out->numel += t->numel;
    }
    out->stat[MSP_AUDIT_MEAN] = mean / (double)out->numel;
    out->stat[MSP_AUDIT_NORM] = sqrt(square);
    return out->numel > 0;
}

bool
msp_claim_same_elements(const msp_checker *k, const msp_audit_tensor *out, const msp_audit_tensor *in, bool *wrong)
{
    const double *got = out->stat, *want = in->stat, size = want[MSP_AUDIT_NORM] / sqrt((double)in->numel);

    if (!out->has_stats || !in->has_stats || out->numel != in->numel)
        return false;
    *wrong = true;
    if (got[MSP_AUDIT_MAX] != want[MSP_AUDIT_MAX])
        say_stat(k, MSP_AUDIT_MAX, got[MSP_AUDIT_MAX], "the parts make", want[MSP_AUDIT_MAX]);
    else if (got[MSP_AUDIT_MIN] != want[MSP_AUDIT_MIN])
        say_stat(k, MSP_AUDIT_MIN, got[MSP_AUDIT_MIN], "the parts make", want[MSP_AUDIT_MIN]);
    else if (isfinite(size) && fabs(got[MSP_AUDIT_NORM] - want[MSP_AUDIT_NORM]) > 1e-5 * want[MSP_AUDIT_NORM])
        say_stat(k, MSP_AUDIT_NORM, got[MSP_AUDIT_NORM], "the parts make", want[MSP_AUDIT_NORM]);
    else if (isfinite(size) && fabs(got[MSP_AUDIT_MEAN] - want[MSP_AUDIT_MEAN]) > 1e-5 * size)
        say_stat(k, MSP_AUDIT_MEAN, got[MSP_AUDIT_MEAN], "the parts make", want[MSP_AUDIT_MEAN]);
    else
        *wrong = false;
    return true;
}

/* Eight hex digits. */
static bool
read_checksum(unsigned long *out, msp_str text)
{
    char hex[9] = "", *end = hex;

    if (text.len != 8)
        return false;
    memcpy(hex, text.p, 8);
    *out = strtoul(hex, &end, 16);
    return *end == '\0';
}

bool
msp_claim_joined_checksum(const msp_checker *k, const msp_audit_tensor *out, const msp_claim_part *parts, size_t n,
                          bool *wrong)
{
    unsigned long got, part, want = 0;

    if (!read_checksum(&got, out->md5))
        return false;
    for (size_t r = 0; r < n; r++) {
        const msp_audit_tensor *t = parts[r].tensor;
        int64_t width = (int64_t)msp_dtype_size(t->dtype);

        if (!read_checksum(&part, t->md5) || width == 0 || t->dtype != out->dtype || t->numel > INT64_MAX / width)
            return false;
        want = crc32_combine(want, part, (z_off_t)(t->numel * width));
    }
    *wrong = got != want;
    if (*wrong)
        snprintf(k->set->what, sizeof(k->set->what), "the checksum of its result is %08lx, the parts make %08lx", got,
                 want);
    return true;
}
