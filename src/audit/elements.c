/*
 * elements.c - a claim checked element by element.
 *
 * Copies are equal bit for bit. A sum of n numbers, added in any order in the tensor's own type, is within
 * (n - 1) * u * sum |x| of the exact one (u: half a unit in the last place); twice n * u is allowed here, for back ends
 * that scale first and for the double in which it is computed.
 */
#include "audit/claim.h"

#include <math.h>
#include <stdio.h>
#include "core/locale.h"
#include "msprobe/local.h"

enum { BLOCK = 1024, WIDEST = 16 };

msp_claim_part
msp_claim_part_of(size_t rank, const msp_audit_tensor *t, int64_t at, int64_t count)
{
    return (msp_claim_part){rank, t, at, count, 1};
}

msp_claim_part
msp_claim_whole_of(size_t rank, const msp_audit_tensor *t)
{
    return msp_claim_part_of(rank, t, 0, -1);
}

static int64_t
elements_of(const msp_claim_part *p)
{
    return p->count < 0 ? p->tensor->numel : p->count;
}

double
msp_claim_smallest(msp_dtype t)
{
    return t == MSP_F64 ? 0x1p-1022 : t == MSP_F32 || t == MSP_BF16 ? 0x1p-126 : t == MSP_F16 ? 0x1p-14 : 0x1p-6;
}

double
msp_claim_largest(msp_dtype t)
{
    return t == MSP_F64    ? 0x1.fffffffffffffp1023
           : t == MSP_F32  ? 0x1.fffffep127
           : t == MSP_BF16 ? 0x1.fep127
           : t == MSP_F16  ? 65504
                           : 448;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* What the elements of a claim are made of: a complex number is two floats, which are added apart. */
typedef struct component {
    msp_dtype type;
    size_t width;
    int64_t per_element;
    bool is_float;
} component;

static component
component_of(msp_dtype t)
{
    if (msp_dtype_class_of(t) == MSP_CLASS_COMPLEX) {
        msp_dtype half = t == MSP_C128 ? MSP_F64 : MSP_F32;

        return (component){half, msp_dtype_size(half), 2, true};
    }
    return (component){t, msp_dtype_size(t), 1, msp_dtype_class_of(t) == MSP_CLASS_FLOAT};
}

static uint64_t
load_bits(const void *p, size_t size)
{
    uint64_t v = 0;

    memcpy(&v, p, size < 8 ? size : 8); /* little-endian, as all machines that this is built for */
    return v;
}

static int64_t
load_int(msp_dtype t, const void *p)
{
    uint64_t v = load_bits(p, msp_dtype_size(t));
    int unused = 64 - 8 * (int)msp_dtype_size(t);

    return msp_dtype_is_signed_int(t) ? (int64_t)(v << unused) >> unused : (int64_t)v;
}

/* One element of a reduction. */
typedef struct sums {
    double total, magnitude; /* floats: the exact result and the sum of magnitudes */
    uint64_t bits;           /* integers */
} sums;

static void
take_float(sums *s, int reduce, double x, bool first)
{
    s->magnitude = first ? fabs(x) : reduce == MSP_REDUCE_PRODUCT ? s->magnitude : s->magnitude + fabs(x);
    if (first)
        s->total = x;
    else if (reduce == MSP_REDUCE_SUM || reduce == MSP_REDUCE_AVG || reduce == MSP_REDUCE_PREMUL_SUM)
        s->total += x;
    else if (reduce == MSP_REDUCE_PRODUCT)
        s->total *= x;
    else /* of the numbers; magnitude says whether there was a NaN among them */
        s->total = reduce == MSP_REDUCE_MAX ? fmax(s->total, x) : fmin(s->total, x);
}

static void
take_int(sums *s, int reduce, msp_dtype t, const void *p, bool first)
{
    int64_t x = load_int(t, p), y = (int64_t)s->bits;
    bool less = t == MSP_U64 ? (uint64_t)x < (uint64_t)y : x < y;

    if (first)
        s->bits = (uint64_t)x;
    else if (reduce == MSP_REDUCE_SUM || reduce == MSP_REDUCE_AVG)
        s->bits += (uint64_t)x;
    else if (reduce == MSP_REDUCE_PRODUCT)
        s->bits *= (uint64_t)x;
    else if (reduce == MSP_REDUCE_MAX || reduce == MSP_REDUCE_MIN)
        s->bits = less == (reduce == MSP_REDUCE_MIN) ? (uint64_t)x : s->bits;
    else if (reduce == MSP_REDUCE_BAND)
        s->bits &= (uint64_t)x;
    else if (reduce == MSP_REDUCE_BOR)
        s->bits |= (uint64_t)x;
    else
        s->bits ^= (uint64_t)x;
}

static void
take(sums *s, const msp_claim *c, const component *is, const void *p, size_t rank)
{
    if (is->is_float)
        take_float(s, c->reduce, msp_dtype_load_f64(is->type, p) * c->in[rank].factor, rank == 0);
    else
        take_int(s, c->reduce, is->type, p, rank == 0);
}

static bool
float_fits(const sums *s, int reduce, msp_dtype t, double got, size_t n)
{
    double scale = reduce == MSP_REDUCE_AVG ? 1.0 / (double)n : 1.0, want = s->total * scale;
    double size = reduce == MSP_REDUCE_PRODUCT ? fabs(want) : s->magnitude * scale;
    double bound = 2.0 * (double)n * msp_local_roundoff(t) * size;

    if (reduce == MSP_REDUCE_MAX || reduce == MSP_REDUCE_MIN) /* what NaN makes of a maximum is the back end's choice */
        return got == want || isnan(s->magnitude);
    if (isnan(want))
        return isnan(got);
    if (!isfinite(got)) /* a partial sum may have left the type's range */
        return !isfinite(want) || s->magnitude > msp_claim_largest(t) / 2 || reduce == MSP_REDUCE_PRODUCT;
    return fabs(got - want) <= bound + (double)n * msp_claim_smallest(t);
}

static bool
int_fits(const sums *s, int reduce, msp_dtype t, const void *p, size_t n)
{
    int unused = 64 - 8 * (int)msp_dtype_size(t);

    if (reduce == MSP_REDUCE_AVG) {
        int64_t got = load_int(t, p), want = (int64_t)s->bits / (int64_t)n;

        return got - want <= 1 && want - got <= 1;
    }
    if (msp_dtype_class_of(t) == MSP_CLASS_BOOL)
        return (load_bits(p, 1) != 0) == (s->bits != 0);
    return load_bits(p, msp_dtype_size(t)) << unused == s->bits << unused;
}

static bool
fits(const sums *s, const msp_claim *c, const component *is, const void *p)
{
    return is->is_float ? float_fits(s, c->reduce, is->type, msp_dtype_load_f64(is->type, p), c->n)
                        : int_fits(s, c->reduce, is->type, p, c->n);
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */

static void
say_sum(msp_audit_set *set, const msp_claim *c, const component *is, int64_t at, const void *got, const sums *s)
{
    long long i = (long long)(c->out.at + at / is->per_element);
    const char *which = is->per_element == 1 ? "" : at % 2 == 0 ? "the real part of " : "the imaginary part of ";
    char mine[80] = "?";

    msp_dtype_format(mine, is->type, got);
    if (is->is_float)
        msp_snprintf(set->what, sizeof(set->what), "%selement %lld of its result is %s, the inputs make %.9g", which, i,
                     mine, s->total * (c->reduce == MSP_REDUCE_AVG ? 1.0 / (double)c->n : 1.0));
    else
        snprintf(set->what, sizeof(set->what), "element %lld of its result is %s, the inputs make %lld", i, mine,
                 (long long)s->bits);
}

static void
say_copy(msp_audit_set *set, const msp_claim *c, int64_t at, const void *got, const void *given)
{
    char mine[80] = "?", theirs[80] = "?";

    msp_dtype_format(mine, c->out.tensor->dtype, got);
    msp_dtype_format(theirs, c->out.tensor->dtype, given);
    snprintf(set->what, sizeof(set->what), "element %lld of its result is %s, rank %lld gave %s",
             (long long)(c->out.at + at), mine, (long long)set->ranks[c->in[0].rank]->rank, theirs);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static const msp_tensor *
view_of(msp_checker *k, const msp_claim_part *p)
{
    msp_claim_file *f;
    msp_error err;

    for (size_t i = 0; i < k->nfiles; i++)
        if (k->files[i].tensor == p->tensor)
            return k->files[i].ok ? &k->files[i].view : NULL;
    if (k->nfiles == k->cap)
        return NULL;
    f = &k->files[k->nfiles++];
    *f = (msp_claim_file){.tensor = p->tensor, .rank = k->set->ranks[p->rank]};
    f->ok = msp_audit_open_tensor(&f->view, k->set->ranks[p->rank], p->tensor, &err) == MSP_OK;
    if (f->ok && (f->view.numel != p->tensor->numel || f->view.dtype != p->tensor->dtype)) {
        msp_tensor_release(&f->view);
        f->ok = false;
    }
    return f->ok ? &f->view : NULL;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static bool
copy_is_wrong(msp_checker *k, const msp_claim *c, int64_t at, int64_t n, const char *got, const char *given)
{
    size_t width = msp_dtype_size(c->out.tensor->dtype);
    int64_t e = 0;

    if (memcmp(got, given, (size_t)n * width) == 0)
        return false;
    while (memcmp(got + (size_t)e * width, given + (size_t)e * width, width) == 0)
        e++;
    say_copy(k->set, c, at + e, got + (size_t)e * width, given + (size_t)e * width);
    return true;
}

/* A block of n elements from at on. room: for one block of one input. */
static bool
sum_is_wrong(msp_checker *k, const msp_claim *c, int64_t at, int64_t n, const char *got, void *room)
{
    component is = component_of(c->out.tensor->dtype);
    sums all[BLOCK];

    for (size_t r = 0; r < c->n; r++) {
        const char *in = msp_gather_block(&k->inputs[r], c->in[r].at + at, n, room);

        for (int64_t e = 0; e < n * is.per_element; e++)
            take(&all[e], c, &is, in + (size_t)e * is.width, r);
    }
    for (int64_t e = 0; e < n * is.per_element; e++)
        if (!fits(&all[e], c, &is, got + (size_t)e * is.width)) {
            say_sum(k->set, c, &is, at * is.per_element + e, got + (size_t)e * is.width, &all[e]);
            return true;
        }
    return false;
}

/* Do take() and fits() know what this reduction makes of this type? */
static bool
is_known(int reduce, msp_dtype t)
{
    msp_dtype_class class = msp_dtype_class_of(t);

    if (class == MSP_CLASS_COMPLEX) /* only these treat the two parts apart */
        return reduce == MSP_CLAIM_COPY || reduce == MSP_REDUCE_SUM || reduce == MSP_REDUCE_AVG ||
               reduce == MSP_REDUCE_PREMUL_SUM;
    return reduce != MSP_REDUCE_PREMUL_SUM || class == MSP_CLASS_FLOAT;
}

bool
msp_claim_by_elements(msp_checker *k, const msp_claim *c, bool *wrong)
{
    msp_dtype t = c->out.tensor->dtype;
    size_t width = msp_dtype_size(t);
    const msp_tensor *out = view_of(k, &c->out);
    int64_t count = elements_of(&c->out), step = BLOCK / component_of(t).per_element;
    char mine[BLOCK * WIDEST], theirs[BLOCK * WIDEST];
    msp_gather g;

    if (out == NULL || width == 0 || width > WIDEST || !is_known(c->reduce, t))
        return false;
    for (size_t r = 0; r < c->n; r++) {
        const msp_tensor *view = view_of(k, &c->in[r]);

        if (view == NULL || c->in[r].tensor->dtype != t || elements_of(&c->in[r]) != count)
            return false;
        msp_gather_init(&k->inputs[r], view);
    }
    msp_gather_init(&g, out);
    for (int64_t i = 0; i < count && !*wrong; i += step) {
        int64_t n = count - i < step ? count - i : step;
        const char *got = msp_gather_block(&g, c->out.at + i, n, mine);

        *wrong = c->reduce == MSP_CLAIM_COPY
                     ? copy_is_wrong(k, c, i, n, got, msp_gather_block(&k->inputs[0], c->in[0].at + i, n, theirs))
                     : sum_is_wrong(k, c, i, n, got, theirs);
    }
    return true;
}
