/*
 * calibrate.c - the device's own noise, measured on the pair itself. A device that computes all its products with 11
 * bits is no fault, and one product with 8 bits among them is: so a call may add what the others of its kind add, but
 * never more than ordinary devices do (ordinary.c). Without that cap a fault in every product would become the rule.
 */
#include <math.h>
#include <stdlib.h>
#include "compare/verdict/ordinary.h"
#include "compare/verdict/verdict.h"
#include "core/alloc.h"

enum {
    ENOUGH = 3,          /* results of a kind that say something about the device */
    ENOUGH_PRODUCTS = 7, /* of which one may be unlike the others */
    LEAST_COUNT = 64,    /* elements of a result that is compared with its peers */
    PEER_COUNT = 256     /* elements from which on a share of them means something */
};

/* Of products a part may be exact (a bias's gradient is not, but a small one is): two fifths and more tell the device.
 * Functions differ more, and their cap is tight: four fifths. */
static const double quantile[MSP_CALL_NCLASSES] = {0.4, 0.8, 0.8};

typedef struct member {
    uint64_t group;
    double value;
    msp_evidence *e;
} member;

static int
by_group(const void *a, const void *b)
{
    const member *x = a, *y = b;

    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

/* Equal inputs and equal results on both sides: it was not run again, and adds nothing to the bench's error. */
static bool
is_equal(const msp_evidence *e)
{
    return e->tensors && e->diff_in == 0 && e->diff_out == 0;
}

static bool
is_measured(const msp_evidence *e)
{
    if (msp_evidence_replayed(e) && e->local[0]->scale_rms == 0) /* zeros from zeros say nothing about a device */
        return false;
    return (msp_evidence_replayed(e) || is_equal(e)) && e->not_judged == NULL && msp_local_roundoff(e->dtype) > 0 &&
           e->nature.cls != MSP_CALL_MOVE;
}

static double
added_error(const msp_evidence *e)
{
    double a, b, u = msp_local_roundoff(e->dtype);

    if (!msp_evidence_replayed(e) || u == 0)
        return 0;
    a = e->local[0]->rms;
    b = e->local[1]->rms;
    return isfinite(a) && isfinite(b) && a > b ? sqrt(a * a - b * b) / u : 0;
}

/* The value at this share of a group, of which only calls up to one count where enough of them are. */
static double
quantile_of(const member *m, size_t n, double at, uint32_t until)
{
    size_t early = 0, wanted;

    for (size_t i = 0; i < n; i++)
        early += m[i].e->call <= until;
    if (early < ENOUGH)
        return m[(size_t)((double)n * at)].value;
    wanted = (size_t)((double)early * at);
    for (size_t i = 0; i < n; i++)
        if (m[i].e->call <= until && wanted-- == 0)
            return m[i].value;
    return 0;
}

static int
by_length(const void *a, const void *b)
{
    const member *x = a, *y = b;

    return (x->e->length > y->e->length) - (x->e->length < y->e->length);
}

/*
 * Running sums of few bits are off by more the longer they are: by the root of that, beside what the middle one of the
 * products sums up. Twice is the most.
 */
static void
lengthen_noise(member *m, size_t n, double noise, double cap)
{
    enum { MOST = 2 };
    double middle;

    qsort(m, n, sizeof(*m), by_length);
    middle = m[n / 2].e->length;
    for (size_t i = 0; i < n; i++) {
        double grows = middle > 0 ? fmin(fmax(sqrt(m[i].e->length / middle), 1), MOST) : 1;

        m[i].e->noise = fmax(m[i].e->noise, fmin(noise * grows, cap));
    }
}

/* Each group's quantile, capped, becomes its members' noise where that is more than they have. */
static void
spread_noise(member *m, size_t n, double at, uint32_t until)
{
    for (size_t first = 0, end; first < n; first = end) {
        msp_ordinary o = msp_ordinary_of(m[first].e->nature.cls, m[first].e->dtype);
        double noise;

        for (end = first + 1; end < n && m[end].group == m[first].group; end++)
            ;
        if (end - first < ENOUGH)
            continue;
        noise = fmin(quantile_of(m + first, end - first, at, until), o.cap);
        lengthen_noise(m + first, end - first, noise, o.cap);
    }
}

/* Groups are told apart by type and a number. */
static uint64_t
group_of(const msp_evidence *e, uint64_t number)
{
    return (uint64_t)e->dtype << 48 | number;
}

typedef struct kinds {
    msp_map names;
    msp_arena texts;
    msp_buf scratch;
    bool failed;
} kinds;

/* A number for the operation, its direction and which result it is; without place: for the first two. */
static uint64_t
kind_of(kinds *k, const msp_evidence *e, bool place)
{
    msp_str op = msp_verdict_operation(msp_evidence_name(e));
    msp_map_entry *entry;
    char *key;

    k->scratch.len = 0;
    msp_buf_printf(&k->scratch, "%.*s %d %.*s", (int)op.len, op.p, e->nature.backward, place ? (int)e->at.len : 0,
                   place ? e->at.p : "");
    entry = k->scratch.failed ? NULL : msp_map_get(&k->names, msp_buf_view(&k->scratch));
    if (entry == NULL && !k->scratch.failed) {
        key = msp_arena_text(&k->texts, k->scratch.p, k->scratch.len);
        if (key != NULL)
            entry = msp_map_put(&k->names, (msp_str){key, k->scratch.len}, (int64_t)k->names.count + 1, NULL);
    }
    k->failed = k->failed || entry == NULL;
    return entry == NULL ? 0 : (uint64_t)entry->value;
}

typedef enum grouping { BY_CLASS, BY_FAMILY, BY_KIND } grouping;

static size_t
gather_members(member *m, const msp_evidence_list *list, grouping how, msp_call_class cls, kinds *k)
{
    size_t n = 0;

    for (size_t i = 0; i < list->count; i++) {
        msp_evidence *e = &list->items[i];

        if (!is_measured(e) || e->nature.cls != cls)
            continue;
        m[n++] = (member){group_of(e, how == BY_CLASS    ? 0
                                      : how == BY_FAMILY ? e->nature.family
                                                         : kind_of(k, e, true)),
                          e->added, e};
    }
    qsort(m, n, sizeof(*m), by_group);
    return n;
}

/* ---- what the others of a kind do -------------------------------------------------------------------------------- */

static double
share_of(const msp_evidence *e)
{
    return msp_evidence_replayed(e) ? msp_evidence_share(e->local[0]) - msp_evidence_share(e->local[1]) : 0;
}

static double
slope_of(const msp_evidence *e)
{
    return msp_evidence_replayed(e) ? fabs(e->local[0]->slope) / msp_local_roundoff(e->dtype) : 0;
}

/* What e is not to be compared with: its own call, or, of products, those of its own size, for a fault may be in a
 * kernel that all of them use. */
static int64_t
company_of(const msp_evidence *e)
{
    return e->nature.cls == MSP_CALL_MATMUL ? e->n : (int64_t)e->call;
}

/* The largest value in a group, its company, and the largest of another company. */
typedef struct top {
    double first, second; /* -1: none */
    int64_t company;
} top;

static top
find_top(const member *m, size_t n, double (*value)(const msp_evidence *))
{
    top t = {-1, -1, -1};

    for (size_t i = 0; i < n; i++)
        if (m[i].e->n >= PEER_COUNT && value(m[i].e) > t.first) {
            t.first = value(m[i].e);
            t.company = company_of(m[i].e);
        }
    for (size_t i = 0; i < n; i++)
        if (m[i].e->n >= PEER_COUNT && company_of(m[i].e) != t.company)
            t.second = fmax(t.second, value(m[i].e));
    return t;
}

/* Long sums may be split, and the parts rounded: one that is longer than all of another company has no peers. */
static bool
is_longest(const member *m, size_t n, const msp_evidence *e)
{
    double others = 0;

    for (size_t i = 0; i < n; i++)
        if (m[i].e->n >= PEER_COUNT && company_of(m[i].e) != company_of(e))
            others = fmax(others, m[i].e->length);
    return e->length > others;
}

static size_t
gather_peers(member *m, const msp_evidence_list *list, kinds *k)
{
    size_t n = 0;

    for (size_t i = 0; i < list->count; i++) {
        msp_evidence *e = &list->items[i];

        e->peer_share = e->peer_slope = -1;
        if (is_measured(e) && e->n >= LEAST_COUNT && (e->local[0] == NULL || e->local[0]->dtype == e->dtype))
            m[n++] = (member){group_of(e, e->nature.cls == MSP_CALL_MATMUL ? 0 : kind_of(k, e, true)), 0, e};
    }
    qsort(m, n, sizeof(*m), by_group);
    return n;
}

/* Products are compared with all products, functions with the same result of the same function. */
static void
compare_peers(const msp_evidence_list *list, member *m, kinds *k)
{
    size_t n = gather_peers(m, list, k);

    for (size_t first = 0, end; first < n; first = end) {
        size_t enough = m[first].e->nature.cls == MSP_CALL_MATMUL ? ENOUGH_PRODUCTS : 2;
        top shares, slopes;

        for (end = first + 1; end < n && m[end].group == m[first].group; end++)
            ;
        if (end - first < enough)
            continue;
        shares = find_top(m + first, end - first, share_of);
        slopes = find_top(m + first, end - first, slope_of);
        for (size_t i = first; i < end; i++) {
            m[i].e->peer_share = company_of(m[i].e) == shares.company ? shares.second : shares.first;
            if (is_longest(m + first, end - first, m[i].e))
                m[i].e->peer_share = -1;
            m[i].e->peer_slope = company_of(m[i].e) == slopes.company ? slopes.second : slopes.first;
        }
    }
}

msp_status
msp_verdict_calibrate(msp_evidence_list *list, uint32_t until, msp_error *err)
{
    member *m = msp_alloc_zero(list->count + 1, sizeof(*m));
    kinds k = {0};
    bool ok = m != NULL;

    for (size_t i = 0; i < list->count; i++)
        list->items[i].added = added_error(&list->items[i]), list->items[i].noise = 0;
    for (int c = 0; ok && c < MSP_CALL_MOVE; c++) {
        spread_noise(m, gather_members(m, list, BY_CLASS, c, &k), quantile[c], until);
        spread_noise(m, gather_members(m, list, c == MSP_CALL_MATMUL ? BY_FAMILY : BY_KIND, c, &k), 0.4, until);
    }
    if (ok)
        compare_peers(list, m, &k);
    ok = ok && !k.failed;
    msp_map_release(&k.names);
    msp_arena_release(&k.texts);
    msp_buf_release(&k.scratch);
    msp_free(m);
    return ok ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory");
}
