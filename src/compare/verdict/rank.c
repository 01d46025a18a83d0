/*
 * rank.c - evidence to verdict. A result is suspicious where it differs by more than its inputs' difference (times a
 * gain) and the noise of its class explain. The noise is measured on the pair itself, as a median over its calls, and
 * never taken for larger than what an ordinary device does: a fault in every matrix product must not become the rule.
 */
#include "compare/verdict/verdict.h"

#include <math.h>
#include <stdlib.h>
#include "core/alloc.h"

/* How much of its inputs' difference a call may hand on: larger gains are rare in the models measured. */
#define GAIN 6.0
/* So many calls of a class that add noise make a fact about the device. */
#define ENOUGH 3
/* Times what is explained. On 28 benign pairs of bench/truth 6 gives no alarm and 3 gives one in five. */
#define ALARM 6.0
/* Times the alarm: such a case goes before the doubtful ones. */
#define CLEAR 3.0

enum { NTYPES = 4 };

static int
type_index(msp_dtype t)
{
    return t == MSP_BF16 ? 3 : t == MSP_F16 ? 2 : t == MSP_F32 ? 1 : 0;
}

/* Ordinary precisions, by class and type (float64, float32, float16, bfloat16). Matrix units of float32: 11 bits
 * (TF32) at the least. */
static const double floors[MSP_CALL_NCLASSES][NTYPES] = {{0x1p-51, 0x1p-22, 0x1p-11, 0x1p-8},
                                                         {0x1p-51, 0x1p-22, 0x1p-11, 0x1p-8},
                                                         {0x1p-53, 0x1p-24, 0x1p-12, 0x1p-9}};
static const double caps[MSP_CALL_NCLASSES][NTYPES] = {{0x1p-48, 0x1p-11, 0x1p-10, 0x1p-7},
                                                       {0x1p-48, 0x1p-20, 0x1p-10, 0x1p-7},
                                                       {0x1p-53, 0x1p-24, 0x1p-12, 0x1p-9}};

/* What a call adds to the difference that it took, if it hands that on as it is. */
static double
added_error(const msp_evidence *e)
{
    if (!isnan(e->local))
        return e->local;
    return e->diff_out > e->diff_in ? sqrt(e->diff_out * e->diff_out - e->diff_in * e->diff_in) : 0;
}

static int
compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/*
 * The device's own noise: the median of what calls of the class add, over those that add anything beyond what they
 * took. Fewer than ENOUGH of them are single cases, which is what a fault looks like.
 */
static double
class_noise(const msp_evidence_list *list, double *room, int cls, int type)
{
    double least = floors[cls][type], middle;
    size_t n = 0;

    for (size_t i = 0; i < list->count; i++) {
        const msp_evidence *e = &list->items[i];

        if (e->not_judged == NULL && !e->nonfinite && (int)e->cls == cls && type_index(e->dtype) == type &&
            added_error(e) > least)
            room[n++] = added_error(e);
    }
    if (n < ENOUGH)
        return least;
    qsort(room, n, sizeof(*room), compare_doubles);
    middle = fmin(room[n / 2], caps[cls][type]);
    return sqrt(least * least + middle * middle);
}

/* How many times what its inputs, the noise of its class and rounding explain a result differs. */
static double
ratio_of(const msp_evidence *e)
{
    if (!isfinite(e->diff_in)) /* what it took was broken already */
        return 0;
    if (e->nonfinite)
        return INFINITY;
    return isnan(e->local) ? e->diff_out / (GAIN * e->diff_in + e->expected) : e->local / e->expected;
}

static bool
measure_ratios(msp_pair_verdict *out, msp_evidence_list *list)
{
    double noise[MSP_CALL_NCLASSES][NTYPES], *room = msp_alloc_zero(list->count + 1, sizeof(*room));

    if (room == NULL)
        return false;
    for (int c = 0; c < MSP_CALL_NCLASSES; c++) {
        for (int t = 0; t < NTYPES; t++)
            noise[c][t] = class_noise(list, room, c, t);
        out->noise[c] = noise[c][1];
    }
    for (size_t i = 0; i < list->count; i++) {
        msp_evidence *e = &list->items[i];

        if (e->not_judged != NULL)
            continue;
        e->inherited = fmin(e->diff_out, GAIN * e->diff_in);
        e->expected = noise[e->cls][type_index(e->dtype)];
        e->ratio = ratio_of(e);
    }
    msp_free(room);
    return true;
}

/* Clear cases before doubtful ones, then the order of the run. */
static bool
goes_before(const msp_evidence *a, const msp_evidence *b)
{
    bool clear_a = a->ratio > CLEAR * ALARM, clear_b = b->ratio > CLEAR * ALARM;

    return clear_a != clear_b ? clear_a : a->call != b->call ? a->call < b->call : a->slot < b->slot;
}

/* The next of the suspicious, one for each call. last NULL: the first. */
static const msp_evidence *
next_suspect(const msp_evidence_list *list, const msp_evidence *const *had, size_t nhad)
{
    const msp_evidence *best = NULL;

    for (size_t i = 0; i < list->count; i++) {
        const msp_evidence *e = &list->items[i];
        bool again = e->not_judged != NULL || !(e->ratio > ALARM);

        for (size_t k = 0; k < nhad && !again; k++)
            again = had[k]->call == e->call;
        if (!again && (best == NULL || goes_before(e, best)))
            best = e;
    }
    return best;
}

static char *
text_of(const char *p, size_t n)
{
    char *t = msp_alloc_zero(n + 1, 1);

    if (t != NULL)
        memcpy(t, p, n);
    return t;
}

static char *
take_text(msp_buf *b)
{
    char *t = b->failed ? NULL : text_of(b->p, b->len);

    msp_buf_release(b);
    return t;
}

static bool
describe(msp_verdict_suspect *s, const msp_evidence *e)
{
    msp_buf b = {0};

    *s = (msp_verdict_suspect){.ratio = e->ratio,
                               .diff_in = e->diff_in,
                               .diff_out = e->diff_out,
                               .expected = e->expected,
                               .nonfinite = e->nonfinite};
    if (e->nonfinite)
        msp_buf_printf(&b, "its result %u is NaN or inf on one side only, and what it took is not", e->slot);
    else
        msp_buf_printf(&b, "its result %u differs by %.2g where its inputs differ by %.2g and rounding explains %.2g",
                       e->slot, e->diff_out, e->diff_in, e->expected);
    s->api = text_of(e->name, e->name_len);
    s->reason = take_text(&b);
    return s->api != NULL && s->reason != NULL;
}

static bool
take_counts(msp_pair_verdict *out, const msp_evidence_list *list)
{
    const msp_evidence *largest = NULL, *first = NULL;

    for (size_t i = 0; i < list->count; i++) {
        const msp_evidence *e = &list->items[i];

        out->other_type += e->not_judged == NULL && !e->one_type;
        *(e->not_judged == NULL ? &out->judged : &out->not_judged) += 1;
        if (e->not_judged != NULL)
            continue;
        if (largest == NULL || e->ratio > largest->ratio)
            largest = e;
        if (first == NULL && (e->diff_out > 0 || e->diff_in > 0))
            first = e;
    }
    out->given = out->judged > 0;
    out->identical = out->given && first == NULL;
    if (largest != NULL) {
        out->largest = largest->ratio;
        out->largest_at = text_of(largest->name, largest->name_len);
    }
    if (first != NULL)
        out->first_different = text_of(first->name, first->name_len);
    return (largest == NULL || out->largest_at != NULL) && (first == NULL || out->first_different != NULL);
}

static bool
write_sentence(msp_pair_verdict *v)
{
    msp_buf b = {0};

    if (v->nsuspects > 0)
        msp_buf_printf(&b, "%s: %s", v->suspects[0].api, v->suspects[0].reason);
    else if (!v->given)
        msp_buf_text(&b, "no result could be judged");
    else if (v->identical)
        msp_buf_printf(&b, "Nothing wrong: the statistics of %lld results are identical to the bit",
                       (long long)v->judged);
    else
        msp_buf_printf(&b, "Nothing wrong: %lld results within rounding, largest %.2gx the expected error at %s",
                       (long long)v->judged, v->largest, v->largest_at);
    v->sentence = take_text(&b);
    return v->sentence != NULL;
}

msp_status
msp_verdict_rank(msp_pair_verdict *out, msp_evidence_list *list, msp_error *err)
{
    const msp_evidence *had[MSP_VERDICT_SUSPECTS], *next;
    bool ok;

    *out = (msp_pair_verdict){0};
    ok = measure_ratios(out, list) && take_counts(out, list);
    while (ok && out->nsuspects < MSP_VERDICT_SUSPECTS && (next = next_suspect(list, had, out->nsuspects)) != NULL) {
        had[out->nsuspects] = next;
        ok = describe(&out->suspects[out->nsuspects++], next);
    }
    if (ok && write_sentence(out))
        return MSP_OK;
    msp_verdict_release(out);
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

void
msp_verdict_release(msp_pair_verdict *v)
{
    for (size_t i = 0; i < v->nsuspects; i++) {
        msp_free(v->suspects[i].api);
        msp_free(v->suspects[i].reason);
    }
    msp_free(v->sentence);
    msp_free(v->largest_at);
    msp_free(v->first_different);
    *v = (msp_pair_verdict){0};
}
