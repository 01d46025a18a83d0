/*
 * check.c - is the result of a collective what the operation makes of its inputs?
 *
 * Every operation is a number of claims "this part of that output is the copy, or the reduction, of these parts of
 * those inputs". A claim is checked by the elements where the files are there, else by checksums (copies only), else by
 * statistics. Copies are equal bit for bit. A sum of n numbers, added in any order in the tensor's own type, is within
 * (n - 1) * u * sum |x| of the exact one (u: half a unit in the last place); twice n * u is allowed here, for back ends
 * that scale first and for the double in which it is computed.
 */
#include "audit/audit_parts.h"

#include <math.h>
#include <stdio.h>
#include "core/alloc.h"
#include "kernels/gather.h"

enum { BLOCK = 1024, COPY = -1 };

/* count elements of a rank's tensor, from at on; count -1: all of it. */
typedef struct part {
    size_t rank; /* index in the set */
    const msp_audit_tensor *tensor;
    int64_t at, count;
} part;

typedef struct claim {
    part out;
    const part *in;
    size_t n;
    int reduce; /* COPY or msp_audit_reduce */
} claim;

/* Files of the set that are open, by the record that names them. */
typedef struct open_file {
    const msp_audit_tensor *tensor;
    const msp_audit_rank *rank;
    msp_tensor view;
    bool ok;
} open_file;

typedef struct checker {
    msp_audit_set *set;
    open_file *files;
    size_t nfiles, cap;
    msp_gather *inputs; /* one per rank: those of the claim that is being checked */
} checker;

/* ---- elements ---------------------------------------------------------------------------------------------------- */

static const msp_tensor *
view_of(checker *c, const part *p)
{
    open_file *f;
    msp_error err;

    for (size_t i = 0; i < c->nfiles; i++)
        if (c->files[i].tensor == p->tensor)
            return c->files[i].ok ? &c->files[i].view : NULL;
    if (c->nfiles == c->cap)
        return NULL;
    f = &c->files[c->nfiles++];
    *f = (open_file){.tensor = p->tensor, .rank = c->set->ranks[p->rank]};
    f->ok = msp_audit_open_tensor(&f->view, c->set->ranks[p->rank], p->tensor, &err) == MSP_OK;
    if (f->ok && (f->view.numel != p->tensor->numel || f->view.dtype != p->tensor->dtype)) {
        msp_tensor_release(&f->view);
        f->ok = false;
    }
    return f->ok ? &f->view : NULL;
}

static int64_t
count_of(const part *p)
{
    return p->count < 0 ? p->tensor->numel : p->count;
}

/* Half a unit in the last place, relative. */
static double
rounding(msp_dtype t)
{
    switch (t) {
    case MSP_F64:
    case MSP_C128:
        return 0x1p-53;
    case MSP_F32:
    case MSP_C64:
        return 0x1p-24;
    case MSP_F16:
        return 0x1p-11;
    case MSP_BF16:
        return 0x1p-8;
    case MSP_F8_E4M3FN:
    case MSP_F8_E4M3FNUZ:
        return 0x1p-4;
    case MSP_F8_E5M2:
    case MSP_F8_E5M2FNUZ:
        return 0x1p-3;
    default:
        return 0;
    }
}

/* The smallest positive number of the type: below it results may be flushed to zero. */
static double
smallest(msp_dtype t)
{
    return t == MSP_F64 ? 0x1p-1022 : t == MSP_F32 || t == MSP_BF16 ? 0x1p-126 : t == MSP_F16 ? 0x1p-14 : 0x1p-6;
}

static double
largest(msp_dtype t)
{
    return t == MSP_F64    ? 0x1.fffffffffffffp1023
           : t == MSP_F32  ? 0x1.fffffep127
           : t == MSP_BF16 ? 0x1.fep127
           : t == MSP_F16  ? 65504
                           : 448;
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
    else if (reduce == MSP_REDUCE_SUM || reduce == MSP_REDUCE_AVG)
        s->total += x;
    else if (reduce == MSP_REDUCE_PRODUCT)
        s->total *= x;
    else if (reduce == MSP_REDUCE_MAX)
        s->total = isnan(x) || x > s->total ? x : s->total;
    else
        s->total = isnan(x) || x < s->total ? x : s->total;
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

static bool
float_fits(const sums *s, int reduce, msp_dtype t, double got, size_t n)
{
    double scale = reduce == MSP_REDUCE_AVG ? 1.0 / (double)n : 1.0, want = s->total * scale;
    double bound = 2.0 * (double)n * rounding(t) * (reduce == MSP_REDUCE_PRODUCT ? fabs(want) : s->magnitude * scale);

    if (isnan(want))
        return isnan(got);
    if (reduce == MSP_REDUCE_MAX || reduce == MSP_REDUCE_MIN)
        return got == want || isnan(got) != 0; /* how NaN is passed on is the back end's choice */
    if (!isfinite(got))                        /* a partial sum may have left the type's range */
        return !isfinite(want) || s->magnitude > largest(t) / 2 || reduce == MSP_REDUCE_PRODUCT;
    return fabs(got - want) <= bound + (double)n * smallest(t);
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

static void
say_element(char *what, size_t size, const claim *c, int64_t i, const void *got, const sums *s)
{
    msp_dtype t = c->out.tensor->dtype;
    char mine[80] = "?";
    double want = s->total * (c->reduce == MSP_REDUCE_AVG ? 1.0 / (double)c->n : 1.0);

    msp_dtype_format(mine, t, got);
    if (msp_dtype_class_of(t) == MSP_CLASS_FLOAT)
        snprintf(what, size, "element %lld of its result is %s, the inputs make %.9g", (long long)(c->out.at + i), mine,
                 want);
    else
        snprintf(what, size, "element %lld of its result is %s, the inputs make %lld", (long long)(c->out.at + i), mine,
                 (long long)s->bits);
}

/* Blocks of at most BLOCK elements of one claim, element by element. False: a file is not there. */
static bool
check_elements(checker *k, const claim *c, bool *wrong, char *what, size_t size)
{
    msp_dtype t = c->out.tensor->dtype;
    size_t width = msp_dtype_size(t);
    const msp_tensor *out = view_of(k, &c->out);
    int64_t count = count_of(&c->out);
    bool is_float = msp_dtype_class_of(t) == MSP_CLASS_FLOAT;
    char mine[BLOCK * 16], theirs[BLOCK * 16];
    sums all[BLOCK];
    msp_gather g;

    if (out == NULL || width == 0 || width > 16 || (c->reduce != COPY && width > 8))
        return false;
    for (size_t r = 0; r < c->n; r++) {
        const msp_tensor *view = view_of(k, &c->in[r]);

        if (view == NULL || c->in[r].tensor->dtype != t || count_of(&c->in[r]) != count)
            return false;
        msp_gather_init(&k->inputs[r], view);
    }
    msp_gather_init(&g, out);
    for (int64_t i = 0; i < count && !*wrong; i += BLOCK) {
        int64_t n = count - i < BLOCK ? count - i : BLOCK;
        const char *got;

        got = msp_gather_block(&g, c->out.at + i, n, mine);
        for (size_t r = 0; r < c->n; r++) {
            const char *in;

            in = msp_gather_block(&k->inputs[r], c->in[r].at + i, n, theirs);
            if (c->reduce == COPY) {
                for (int64_t e = 0; e < n && !*wrong; e++)
                    if (memcmp(got + (size_t)e * width, in + (size_t)e * width, width) != 0) {
                        char a[80] = "?", b[80] = "?";

                        *wrong = true;
                        msp_dtype_format(a, t, got + (size_t)e * width);
                        msp_dtype_format(b, t, in + (size_t)e * width);
                        snprintf(what, size, "element %lld of its result is %s, rank %lld gave %s",
                                 (long long)(c->out.at + i + e), a, (long long)k->set->ranks[c->in[r].rank]->rank, b);
                    }
                continue;
            }
            for (int64_t e = 0; e < n; e++)
                if (is_float)
                    take_float(&all[e], c->reduce, msp_dtype_load_f64(t, in + (size_t)e * width), r == 0);
                else
                    take_int(&all[e], c->reduce, t, in + (size_t)e * width, r == 0);
        }
        for (int64_t e = 0; c->reduce != COPY && e < n && !*wrong; e++) {
            const void *p = got + (size_t)e * width;

            if (is_float ? !float_fits(&all[e], c->reduce, t, msp_dtype_load_f64(t, p), c->n)
                         : !int_fits(&all[e], c->reduce, t, p, c->n)) {
                *wrong = true;
                say_element(what, size, c, i + e, p, &all[e]);
            }
        }
    }
    return true;
}

/* ---- checksums and statistics ------------------------------------------------------------------------------------ */

static bool
is_whole(const part *p)
{
    return p->count < 0 || p->count == p->tensor->numel;
}

static bool
same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static const char *const stat_names[MSP_AUDIT_NSTATS] = {"Max", "Min", "Mean", "Norm"};

static bool
check_copy(const checker *k, const claim *c, bool *wrong, char *what, size_t size)
{
    const msp_audit_tensor *a = c->out.tensor, *b = c->in[0].tensor;
    long long from = (long long)k->set->ranks[c->in[0].rank]->rank;

    if (a->md5.len > 0 && b->md5.len > 0) {
        *wrong = !msp_str_eq(a->md5, b->md5);
        if (*wrong)
            snprintf(what, size, "the checksum of its result is %.*s, that of what rank %lld gave %.*s",
                     (int)a->md5.len, a->md5.p, from, (int)b->md5.len, b->md5.p);
        return true;
    }
    if (!a->has_stats || !b->has_stats)
        return false;
    for (int i = 0; i < MSP_AUDIT_NSTATS && !*wrong; i++)
        if (!same_number(a->stat[i], b->stat[i])) {
            *wrong = true;
            snprintf(what, size, "%s of its result is %.9g, that of what rank %lld gave %.9g", stat_names[i],
                     a->stat[i], from, b->stat[i]);
        }
    return true;
}

/*
 * What statistics say of a reduction: the mean of a sum is the sum of the means, its norm is at most the sum of the
 * norms, a maximum's maximum is the maximum of the maxima. Statistics are taken to be accurate to a float32's rounding
 * for each doubling of the elements, which covers how the older tools computed them.
 */
static bool
check_reduced(const claim *c, bool *wrong, char *what, size_t size)
{
    const msp_audit_tensor *out = c->out.tensor;
    double mean = 0, norm = 0, max = -INFINITY, min = INFINITY, n = (double)c->n, bound;
    double numel = (double)(out->numel > 0 ? out->numel : 1), u = rounding(out->dtype);

    if (!out->has_stats)
        return false;
    for (size_t r = 0; r < c->n; r++) {
        const msp_audit_tensor *t = c->in[r].tensor;

        if (!t->has_stats)
            return false;
        mean += t->stat[2];
        norm += t->stat[3];
        max = t->stat[0] > max ? t->stat[0] : max;
        min = t->stat[1] < min ? t->stat[1] : min;
    }
    if (c->reduce == MSP_REDUCE_MAX || c->reduce == MSP_REDUCE_MIN) {
        int i = c->reduce == MSP_REDUCE_MAX ? 0 : 1;
        double want = i == 0 ? max : min;

        *wrong = isfinite(want) && isfinite(out->stat[i]) && out->stat[i] != want;
        if (*wrong)
            snprintf(what, size, "%s of its result is %.9g, the inputs make %.9g", stat_names[i], out->stat[i], want);
        return true;
    }
    if (c->reduce != MSP_REDUCE_SUM && c->reduce != MSP_REDUCE_AVG)
        return false;
    if (c->reduce == MSP_REDUCE_AVG) {
        mean /= n;
        norm /= n;
    }
    u = u > 0x1p-24 ? u : 0x1p-24;
    bound = 4 * (n + log2(numel) + 1) * u * norm / sqrt(numel) + n * smallest(out->dtype);
    if (!isfinite(mean) || !isfinite(norm) || !isfinite(out->stat[2]) || !isfinite(out->stat[3]))
        return isfinite(mean) == isfinite(out->stat[2]); /* integers, or overflow: nothing is known */
    if (fabs(out->stat[2] - mean) > bound) {
        *wrong = true;
        snprintf(what, size, "Mean of its result is %.9g, the inputs make %.9g", out->stat[2], mean);
    } else if (out->stat[3] > norm * (1 + 4 * (n + log2(numel) + 1) * u) + n * smallest(out->dtype)) {
        *wrong = true;
        snprintf(what, size, "Norm of its result is %.9g, the inputs make at most %.9g", out->stat[3], norm);
    }
    return true;
}

/* One tensor that is the concatenation of the inputs, by statistics: Max, Min and Norm follow from theirs. */
static bool
check_joined(const part *out, const part *in, size_t n, bool *wrong, char *what, size_t size)
{
    double want[MSP_AUDIT_NSTATS] = {-INFINITY, INFINITY, 0, 0};
    const msp_audit_tensor *t = out->tensor;

    for (size_t r = 0; r < n; r++) {
        const double *s = in[r].tensor->stat;

        if (!in[r].tensor->has_stats || !isfinite(s[0]) || !isfinite(s[1]))
            return false;
        want[0] = s[0] > want[0] ? s[0] : want[0];
        want[1] = s[1] < want[1] ? s[1] : want[1];
        want[3] += s[3] * s[3];
    }
    want[3] = sqrt(want[3]);
    if (!t->has_stats)
        return false;
    for (int i = 0; i < 2 && !*wrong; i++)
        if (t->stat[i] != want[i]) {
            *wrong = true;
            snprintf(what, size, "%s of its result is %.9g, the parts make %.9g", stat_names[i], t->stat[i], want[i]);
        }
    if (!*wrong && isfinite(want[3]) && fabs(t->stat[3] - want[3]) > 1e-5 * want[3]) {
        *wrong = true;
        snprintf(what, size, "Norm of its result is %.9g, the parts make %.9g", t->stat[3], want[3]);
    }
    return true;
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

static void
note(checker *k, int by)
{
    if (k->set->by == MSP_BY_NOTHING || by < (int)k->set->by)
        k->set->by = by;
}

/* Returns false when the claim is refuted; k->set then says how. */
static bool
check_claim(checker *k, const claim *c)
{
    msp_audit_set *set = k->set;
    bool wrong = false, whole = is_whole(&c->out);

    if (set->wrong)
        return false;
    if (c->reduce == MSP_REDUCE_OTHER)
        return true;
    for (size_t r = 0; r < c->n; r++)
        whole = whole && is_whole(&c->in[r]);
    if (check_elements(k, c, &wrong, set->what, sizeof(set->what)))
        note(k, MSP_BY_TENSORS);
    else if (whole && c->reduce == COPY && check_copy(k, c, &wrong, set->what, sizeof(set->what)))
        note(k, c->out.tensor->md5.len > 0 ? MSP_BY_CHECKSUMS : MSP_BY_STATISTICS);
    else if (whole && c->reduce != COPY && check_reduced(c, &wrong, set->what, sizeof(set->what)))
        note(k, MSP_BY_STATISTICS);
    if (wrong) {
        set->wrong = true;
        set->blamed = c->out.rank;
    }
    return !wrong;
}

static part
whole_of(size_t rank, const msp_audit_tensor *t)
{
    return (part){rank, t, 0, -1};
}

static bool
claim_copy(checker *k, part out, part in)
{
    return check_claim(k, &(claim){out, &in, 1, COPY});
}

/* Results that must be the same on all ranks: who differs from most of the others? Returns false when one does. */
static bool
check_equal(checker *k, size_t item)
{
    msp_audit_set *set = k->set;
    size_t worst = set->n, most = 0;

    for (size_t i = 0; i < set->n; i++) { /* candidates for what most hold; usually the first is */
        size_t same = 0, other = set->n;

        if (set->calls[i] == NULL || set->calls[i]->out.count <= item)
            continue;
        for (size_t r = 0; r < set->n; r++) {
            if (set->calls[r] == NULL || set->calls[r]->out.count <= item)
                continue;
            if (claim_copy(k, whole_of(r, &set->calls[r]->out.items[item]),
                           whole_of(i, &set->calls[i]->out.items[item]))) {
                same++;
            } else {
                other = other == set->n ? r : other;
                set->wrong = false;
            }
        }
        if (other == set->n)
            return true;
        if (same > most) {
            most = same;
            worst = other;
        }
        if (same * 2 > set->n || set->n > 64)
            break;
    }
    set->wrong = worst < set->n;
    set->blamed = worst;
    return !set->wrong;
}

/* Nobody waited, or the calls were coalesced: every rank still has its input. */
static bool
is_not_there_yet(const msp_audit_set *set)
{
    bool all = true, differ = false;

    for (size_t r = 0; r < set->n; r++) {
        const msp_audit_tensor *a, *b;

        if (set->calls[r] == NULL || set->calls[r]->out.count == 0 || set->calls[r]->in.count == 0)
            continue;
        a = set->calls[r]->in.items;
        b = set->calls[r]->out.items;
        for (int i = 0; i < MSP_AUDIT_NSTATS; i++)
            all = all && same_number(a->stat[i], b->stat[i]);
        differ = differ || b->stat[0] != 0 || b->stat[1] != 0;
        all = all && msp_str_eq(a->md5, b->md5);
    }
    return all && differ;
}

/* The reduction of item at of every rank's input list (or of its part) and each rank's result of it. */
static void
check_all_reduce(checker *k, part *in)
{
    msp_audit_set *set = k->set;
    const msp_audit_call *first = NULL;

    for (size_t r = 0; r < set->n && first == NULL; r++)
        first = set->calls[r];
    if ((first->reduce == MSP_REDUCE_SUM || first->reduce == MSP_REDUCE_PRODUCT) && set->n > 1 && is_not_there_yet(set))
        return;
    for (size_t item = 0; item < first->in.count; item++) {
        bool equal, usable = set->complete;

        for (size_t r = 0; r < set->n; r++) {
            if (set->calls[r] == NULL || set->calls[r]->in.count <= item)
                usable = false;
            else
                in[r] = whole_of(r, &set->calls[r]->in.items[item]);
        }
        equal = check_equal(k, item);
        if (!equal) { /* of those that differ, who has what the inputs do not make? */
            char said[sizeof(set->what)];
            size_t blamed = set->blamed;

            memcpy(said, set->what, sizeof(said));
            set->wrong = false;
            for (size_t r = 0; usable && r < set->n; r++)
                if (set->calls[r]->out.count > item &&
                    !check_claim(k, &(claim){whole_of(r, &set->calls[r]->out.items[item]), in, set->n,
                                             (int)first->reduce}))
                    return;
            set->wrong = true;
            set->blamed = blamed;
            memcpy(set->what, said, sizeof(said));
            return;
        }
        for (size_t r = 0; usable && r < set->n; r++) /* all are equal: one of them stands for all */
            if (set->calls[r]->out.count > item) {
                if (!check_claim(k, &(claim){whole_of(r, &set->calls[r]->out.items[item]), in, set->n,
                                             (int)first->reduce}))
                    return;
                break;
            }
    }
}

static void
check_reduce(checker *k, part *in, size_t root)
{
    msp_audit_set *set = k->set;

    if (!set->complete || root >= set->n || set->calls[root]->out.count == 0)
        return;
    for (size_t r = 0; r < set->n; r++) {
        if (set->calls[r]->in.count == 0)
            return;
        in[r] = whole_of(r, set->calls[r]->in.items);
    }
    (void)check_claim(k,
                      &(claim){whole_of(root, set->calls[root]->out.items), in, set->n, (int)set->calls[root]->reduce});
}

/* Parts that are on the wrong place: which rank gave what stands there? */
static void
find_owner(checker *k, part out, size_t expected)
{
    msp_audit_set *set = k->set;
    char said[sizeof(set->what)];

    memcpy(said, set->what, sizeof(said));
    for (size_t r = 0; r < set->n; r++) {
        bool same;

        if (r == expected || set->calls[r] == NULL || set->calls[r]->in.count != 1)
            continue;
        set->wrong = false;
        same = claim_copy(k, out, whole_of(r, set->calls[r]->in.items));
        if (same) {
            snprintf(set->what, sizeof(set->what), "part %zu of its result is what rank %lld gave, not rank %lld",
                     expected, (long long)set->ranks[r]->rank, (long long)set->ranks[expected]->rank);
            break;
        }
        memcpy(set->what, said, sizeof(said));
    }
    set->wrong = true;
    set->blamed = out.rank;
}

/* all_gather and gather: out[j] is what rank j gave; one tensor: its j-th part. */
static void
check_gather(checker *k, part *in, size_t to, bool one_tensor)
{
    msp_audit_set *set = k->set;
    const msp_audit_call *mine = set->calls[to];
    int64_t at = 0;
    bool all = true;

    if (mine == NULL || mine->out.count == 0)
        return;
    for (size_t r = 0; r < set->n && !set->wrong; r++) {
        const msp_audit_tensor *t =
            set->calls[r] == NULL || set->calls[r]->in.count == 0 ? NULL : set->calls[r]->in.items;
        part out;

        if (t == NULL || (!one_tensor && r >= mine->out.count) ||
            (one_tensor && at + t->numel > mine->out.items[0].numel)) {
            all = false;
            break;
        }
        in[r] = whole_of(r, t);
        out = one_tensor ? (part){to, mine->out.items, at, t->numel} : whole_of(to, &mine->out.items[r]);
        at += t->numel;
        if (!claim_copy(k, out, in[r]))
            find_owner(k, out, r);
    }
    if (one_tensor && all && !set->wrong && set->by == MSP_BY_NOTHING) {
        part out = whole_of(to, mine->out.items);
        bool wrong = false;

        if (check_joined(&out, in, set->n, &wrong, set->what, sizeof(set->what)))
            note(k, MSP_BY_STATISTICS);
        set->wrong = wrong;
        set->blamed = to;
    }
}

/* reduce_scatter: rank p's result is the reduction of everybody's p-th item, or p-th part. */
static void
check_reduce_scatter(checker *k, part *in, bool one_tensor)
{
    msp_audit_set *set = k->set;

    for (size_t p = 0; set->complete && p < set->n && !set->wrong; p++) {
        const msp_audit_call *mine = set->calls[p];
        bool usable = mine->out.count > 0;

        for (size_t r = 0; usable && r < set->n; r++) {
            const msp_audit_list *l = &set->calls[r]->in;
            int64_t n = mine->out.items[0].numel;

            if (one_tensor && l->count == 1 && l->items[0].numel == n * (int64_t)set->n)
                in[r] = (part){r, l->items, n * (int64_t)p, n};
            else if (!one_tensor && l->count == set->n)
                in[r] = whole_of(r, &l->items[p]);
            else
                usable = false;
        }
        if (usable)
            (void)check_claim(k, &(claim){whole_of(p, mine->out.items), in, set->n, (int)mine->reduce});
    }
}

static int64_t
split_at(const int64_t *splits, size_t n, size_t p, int64_t row)
{
    int64_t at = 0;

    for (size_t i = 0; i < p && i < n; i++)
        at += splits[i] * row;
    return at;
}

/* all_to_all: what rank p gets from rank r is what r has for p. */
static void
check_all_to_all(checker *k, bool one_tensor)
{
    msp_audit_set *set = k->set;

    for (size_t p = 0; set->complete && p < set->n && !set->wrong; p++)
        for (size_t r = 0; r < set->n && !set->wrong; r++) {
            const msp_audit_call *to = set->calls[p], *from = set->calls[r];
            part out, in;

            if (!one_tensor) {
                if (to->out.count != set->n || from->in.count != set->n)
                    return;
                out = whole_of(p, &to->out.items[r]);
                in = whole_of(r, &from->in.items[p]);
            } else {
                const msp_audit_tensor *a = to->out.items, *b = from->in.items;
                int64_t rows = (int64_t)set->n, row;

                if (to->out.count != 1 || from->in.count != 1 || a->numel == 0 || b->numel == 0)
                    return;
                if (to->out_splits != NULL && from->in_splits != NULL && to->nout_splits == set->n &&
                    from->nin_splits == set->n && a->ndim > 0 && b->ndim > 0) {
                    row = a->numel / a->shape[0];
                    out = (part){p, a, split_at(to->out_splits, set->n, r, row), to->out_splits[r] * row};
                    in = (part){r, b, split_at(from->in_splits, set->n, p, row), from->in_splits[p] * row};
                    if (out.count < 0 || in.count < 0 || out.at < 0 || in.at < 0 || out.at > a->numel - out.count ||
                        in.at > b->numel - in.count)
                        return;
                } else if (to->out_splits == NULL && from->in_splits == NULL) {
                    row = a->numel / rows;
                    out = (part){p, a, row * (int64_t)r, row};
                    in = (part){r, b, b->numel / rows * (int64_t)p, b->numel / rows};
                } else {
                    continue;
                }
            }
            (void)claim_copy(k, out, in);
        }
}

static void
check_broadcast(checker *k, size_t root)
{
    msp_audit_set *set = k->set;

    for (size_t r = 0; r < set->n && !set->wrong; r++)
        if (root < set->n && set->calls[root] != NULL && set->calls[root]->in.count > 0 && set->calls[r] != NULL &&
            set->calls[r]->out.count > 0)
            (void)claim_copy(k, whole_of(r, set->calls[r]->out.items), whole_of(root, set->calls[root]->in.items));
}

static void
check_scatter(checker *k, size_t root)
{
    msp_audit_set *set = k->set;

    for (size_t r = 0; r < set->n && !set->wrong; r++)
        if (root < set->n && set->calls[root] != NULL && set->calls[root]->in.count == set->n &&
            set->calls[r] != NULL && set->calls[r]->out.count > 0)
            (void)claim_copy(k, whole_of(r, set->calls[r]->out.items), whole_of(root, &set->calls[root]->in.items[r]));
}

static void
run_check(checker *k, part *in, const msp_audit_call *any)
{
    msp_audit_set *set = k->set;
    size_t root = set->n;

    for (size_t r = 0; r < set->n; r++)
        if (set->ranks[r] != NULL && set->ranks[r]->rank == any->root)
            root = r;
    switch (any->op) {
    case MSP_AUDIT_ALL_REDUCE:
        check_all_reduce(k, in);
        break;
    case MSP_AUDIT_REDUCE:
        check_reduce(k, in, root);
        break;
    case MSP_AUDIT_BROADCAST:
        check_broadcast(k, root);
        break;
    case MSP_AUDIT_ALL_GATHER:
    case MSP_AUDIT_ALL_GATHER_INTO:
        for (size_t r = 0; r < set->n && !set->wrong; r++)
            check_gather(k, in, r, any->op == MSP_AUDIT_ALL_GATHER_INTO);
        break;
    case MSP_AUDIT_GATHER:
        if (root < set->n)
            check_gather(k, in, root, false);
        break;
    case MSP_AUDIT_SCATTER:
        check_scatter(k, root);
        break;
    case MSP_AUDIT_REDUCE_SCATTER:
        check_reduce_scatter(k, in, false);
        break;
    case MSP_AUDIT_REDUCE_SCATTER_TENSOR:
        check_reduce_scatter(k, in, true);
        break;
    case MSP_AUDIT_ALL_TO_ALL:
        check_all_to_all(k, false);
        break;
    case MSP_AUDIT_ALL_TO_ALL_SINGLE:
        check_all_to_all(k, true);
        break;
    case MSP_AUDIT_SEND: /* the sender's set[0], the receiver's set[1] */
        if (set->calls[0]->in.count > 0 && set->calls[1]->out.count > 0)
            (void)claim_copy(k, whole_of(1, set->calls[1]->out.items), whole_of(0, set->calls[0]->in.items));
        break;
    default:
        break;
    }
}

/* What was read of a file that was cut short proves nothing. */
static void
note_cut(checker *k, const open_file *f)
{
    if (!msp_audit_is_cut(&f->view, f->rank, f->tensor))
        return;
    k->set->lost = f->tensor;
    k->set->loser = f->rank;
    k->set->wrong = false;
    k->set->by = MSP_BY_NOTHING;
}

void
msp_audit_check(msp_audit_set *set)
{
    checker k = {.set = set};
    const msp_audit_call *any = NULL;
    part *in = msp_alloc_zero(set->n, sizeof(*in));

    for (size_t r = 0; r < set->n; r++) {
        if (set->calls[r] == NULL)
            continue;
        any = any == NULL ? set->calls[r] : any;
        k.cap += set->calls[r]->in.count + set->calls[r]->out.count;
    }
    k.files = msp_alloc_zero(k.cap, sizeof(*k.files));
    k.inputs = msp_alloc_zero(set->n, sizeof(*k.inputs));
    if (in != NULL && k.inputs != NULL && k.files != NULL && any != NULL)
        run_check(&k, in, any);
    for (size_t i = 0; i < k.nfiles; i++)
        if (k.files[i].ok) {
            note_cut(&k, &k.files[i]);
            msp_tensor_release(&k.files[i].view);
        }
    msp_free(k.files);
    msp_free(k.inputs);
    msp_free(in);
}
