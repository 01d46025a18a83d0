/*
 * rank.c - evidence to verdict: which results are beyond their limit, which of their calls are named, and all that is
 * to be said beside that.
 */
#include "compare/verdict/verdict.h"

#include <math.h>
#include <stdlib.h>
#include "core/alloc.h"

/* Times the limit: such a case goes before the doubtful ones. */
#define CLEAR 3.0
/* Shares of benign pairs with an alarm that are to be expected on unknown devices, by basis: what groups of bench/truth
 * showed that the limits were not chosen on (docs/verdict.md), the worst of those looked at at different times. */
static const double false_alarms[] =
    {[MSP_BASIS_STATISTICS] = 0.06, [MSP_BASIS_TENSORS] = 0.02, [MSP_BASIS_REPLAY] = 0.05};
/* Times the limit: what follows is computed from rubbish. */
#define GROSS 100.0
enum { MODEL_LEAST = 16 /* results: of fewer nothing is said about models */ };

/* ---- who is named ------------------------------------------------------------------------------------------------ */

/* A result, or something that the runs do not begin with alike. */
typedef struct candidate {
    const msp_evidence *e;
    const msp_start *start;
} candidate;

static uint32_t
call_of(const candidate *c)
{
    return c->start != NULL ? c->start->call : c->e->call;
}

static bool
is_clear(const candidate *c)
{
    return c->start != NULL || c->e->ratio > CLEAR;
}

/* Judged as a whole, where calls of functions are judged by themselves. */
static bool
is_whole(const candidate *c)
{
    return c->e != NULL && msp_evidence_is_module(c->e);
}

/* Clear cases before doubtful ones, functions before the modules around them, then the order of the run; what a call
 * takes goes before what it gives. */
static bool
goes_before(const candidate *a, const candidate *b)
{
    if (is_clear(a) != is_clear(b))
        return is_clear(a);
    if (is_whole(a) != is_whole(b))
        return is_whole(b);
    if (call_of(a) != call_of(b))
        return call_of(a) < call_of(b);
    if ((a->start != NULL) != (b->start != NULL))
        return a->start != NULL;
    return a->e != NULL && b->e != NULL && a->e->ratio > b->e->ratio;
}

static bool
is_named(const candidate *had, size_t nhad, uint32_t call)
{
    for (size_t i = 0; i < nhad; i++)
        if (call_of(&had[i]) == call)
            return true;
    return false;
}

/* A gradient is computed from what the forward call has kept: where that is wrong, its error is a consequence. */
static bool
follows_from_forward(const msp_evidence *e, const candidate *had, size_t nhad)
{
    for (size_t i = 0; e->nature.backward && i < nhad; i++) {
        const msp_evidence *f = had[i].e;

        if (f != NULL && !f->nature.backward && e->name_len == f->name_len + 1 && e->name_len > 8 &&
            memcmp(e->name, f->name, e->name_len - 8) == 0)
            return true;
    }
    return false;
}

/* The next of the suspicious, one for each call. False: there is none. */
static bool
next_suspect(candidate *out, const msp_evidence_list *list, const candidate *had, size_t nhad)
{
    candidate best = {NULL, NULL};

    for (size_t i = 0; i < list->count; i++) {
        candidate c = {&list->items[i], NULL};

        if (c.e->not_judged == NULL && c.e->ratio > 1 && !is_named(had, nhad, c.e->call) &&
            !follows_from_forward(c.e, had, nhad) && (best.e == NULL || goes_before(&c, &best)))
            best = c;
    }
    for (size_t i = 0; i < list->nstarts; i++) {
        candidate c = {NULL, &list->starts[i]};

        if (!is_named(had, nhad, c.start->call) && ((best.e == NULL && best.start == NULL) || goes_before(&c, &best)))
            best = c;
    }
    *out = best;
    return best.e != NULL || best.start != NULL;
}

static msp_confidence
confidence_of(const msp_evidence *e)
{
    bool certain = e->sign == MSP_SIGN_NONFINITE || e->sign == MSP_SIGN_INEXACT || e->sign == MSP_SIGN_ROUNDING;

    if (certain || (msp_evidence_replayed(e) && e->ratio > CLEAR))
        return MSP_CONFIDENCE_HIGH;
    return e->ratio > CLEAR || (msp_evidence_replayed(e) && e->ratio > CLEAR / 2) ? MSP_CONFIDENCE_MEDIUM
                                                                                  : MSP_CONFIDENCE_LOW;
}

static bool
copy_name(char **out, msp_str s)
{
    *out = s.len > 0 ? msp_str_copy(s) : NULL;
    return s.len == 0 || *out != NULL;
}

static char *
shape_text(const msp_evidence *e)
{
    char text[256];

    msp_local_describe(text, sizeof(text), e->local[0]);
    return msp_str_copy(msp_str_of(text));
}

static bool
has_shape(const msp_evidence *e)
{
    /* what lies evenly on all elements has no place, though one of them may be the largest */
    return e->local[0] != NULL && e->local[0]->shape > MSP_SHAPE_NOISE && e->sign != MSP_SIGN_OPERANDS;
}

static bool
describe_result(msp_verdict_suspect *s, const msp_evidence *e, size_t number)
{
    *s = (msp_verdict_suspect){.times = e->times,
                               .ratio = e->ratio,
                               .diff_in = e->diff_in,
                               .diff_out = e->diff_out,
                               .local = e->local[0] != NULL ? e->local[0]->rms : NAN,
                               .local_bench = e->local[1] != NULL ? e->local[1]->rms : NAN,
                               .inherited = e->inherited,
                               .expected = e->expected,
                               .confidence = confidence_of(e),
                               .nonfinite = e->sign == MSP_SIGN_NONFINITE || e->sign == MSP_SIGN_BENCH_NONFINITE,
                               .shape = has_shape(e) ? e->local[0]->shape : MSP_SHAPE_NONE,
                               .result = number};
    if (has_shape(e) && (s->shape_text = shape_text(e)) == NULL)
        return false;
    return copy_name(&s->api, msp_evidence_name(e)) && copy_name(&s->bench_api, e->bench) && copy_name(&s->at, e->at) &&
           msp_verdict_words_suspect(s, e);
}

/* number: that of the first result of the call, so that whoever looks has one. */
static bool
describe_start(msp_verdict_suspect *s, const msp_start *start, size_t number)
{
    *s = (msp_verdict_suspect){.times = start->diff / fmax(start->others, 1e-300),
                               .diff_in = start->diff,
                               .diff_out = NAN,
                               .local = NAN,
                               .local_bench = NAN,
                               .inherited = NAN,
                               .expected = start->others,
                               .confidence = MSP_CONFIDENCE_HIGH,
                               .result = number};
    s->ratio = s->times = fmin(s->times, 1e6);
    return copy_name(&s->api, start->api) && copy_name(&s->bench_api, start->bench) && copy_name(&s->at, start->at) &&
           msp_verdict_words_start(s, start);
}

static size_t
first_result(const msp_evidence_list *list, uint32_t call)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].call == call)
            return i;
    return 0;
}

static bool
name_suspects(msp_pair_verdict *out, const msp_evidence_list *list)
{
    candidate had[MSP_VERDICT_SUSPECTS];
    bool ok = true;

    while (ok && out->nsuspects < MSP_VERDICT_SUSPECTS &&
           next_suspect(&had[out->nsuspects], list, had, out->nsuspects)) {
        const candidate *c = &had[out->nsuspects];
        msp_verdict_suspect *s = &out->suspects[out->nsuspects++];

        ok = c->e != NULL ? describe_result(s, c->e, (size_t)(c->e - list->items))
                          : describe_start(s, c->start, first_result(list, c->start->call));
        if (ok && c->start != NULL)
            ok = msp_verdict_add_text(&out->start, msp_str_of(s->reason));
    }
    if (out->nsuspects > 0 && had[0].start != NULL)
        out->kind = MSP_VERDICT_START;
    else if (out->nsuspects > 0)
        out->kind = MSP_VERDICT_SUSPECT;
    return ok;
}

/* ---- everything that was judged ---------------------------------------------------------------------------------- */

/* Adds n results to a reason's count; *owned is the verdict's text of it. */
static bool
count_reason(msp_pair_verdict *out, const char *reason)
{
    msp_verdict_unjudged *grown;

    for (size_t i = 0; i < out->nunjudged; i++)
        if (strcmp(out->unjudged[i].reason, reason) == 0) {
            out->unjudged[i].results++;
            for (; i > 0 && out->unjudged[i].results > out->unjudged[i - 1].results; i--) {
                msp_verdict_unjudged t = out->unjudged[i];

                out->unjudged[i] = out->unjudged[i - 1];
                out->unjudged[i - 1] = t;
            }
            return true;
        }
    grown = msp_realloc(out->unjudged, out->nunjudged + 1, sizeof(*grown));
    if (grown == NULL)
        return false;
    out->unjudged = grown;
    grown[out->nunjudged] = (msp_verdict_unjudged){msp_str_copy(msp_str_of(reason)), 1};
    return grown[out->nunjudged++].reason != NULL;
}

static const char *
own_reason(const msp_pair_verdict *out, const char *reason)
{
    for (size_t i = 0; reason != NULL && i < out->nunjudged; i++)
        if (strcmp(out->unjudged[i].reason, reason) == 0)
            return out->unjudged[i].reason;
    return NULL;
}

static msp_verdict_basis
basis_of(const msp_evidence *e)
{
    return msp_evidence_replayed(e) ? MSP_BASIS_REPLAY : e->tensors ? MSP_BASIS_TENSORS : MSP_BASIS_STATISTICS;
}

static bool
take_result(msp_verdict_result *r, const msp_pair_verdict *out, const msp_evidence *e)
{
    bool judged = e->not_judged == NULL;

    *r = (msp_verdict_result){.row = (int64_t)e->row,
                              .cls = e->nature.cls,
                              .dtype = e->dtype,
                              .basis = basis_of(e),
                              .diff_in = e->diff_in,
                              .diff_out = e->diff_out,
                              .local = e->local[0] != NULL ? e->local[0]->rms : NAN,
                              .local_bench = e->local[1] != NULL ? e->local[1]->rms : NAN,
                              .inherited = judged ? e->inherited : NAN,
                              .expected = judged ? e->expected : NAN,
                              .times = judged ? e->times : NAN,
                              .ratio = judged ? e->ratio : NAN,
                              .nonfinite = e->nonfinite,
                              .one_type = e->one_type,
                              .shape = e->local[0] != NULL ? e->local[0]->shape : MSP_SHAPE_NONE,
                              .not_judged = own_reason(out, e->not_judged)};
    if (has_shape(e) && (r->shape_text = shape_text(e)) == NULL)
        return false;
    return copy_name(&r->api, msp_evidence_name(e)) && copy_name(&r->bench_api, e->bench) && copy_name(&r->at, e->at) &&
           msp_verdict_words_result(r, e);
}

static bool
take_results(msp_pair_verdict *out, const msp_evidence_list *list)
{
    out->results = msp_alloc_zero(list->count + 1, sizeof(*out->results));
    if (out->results == NULL)
        return false;
    for (size_t i = 0; i < list->count; i++)
        if (!take_result(&out->results[out->nresults++], out, &list->items[i]))
            return false;
    return true;
}

static bool
take_counts(msp_pair_verdict *out, const msp_evidence_list *list)
{
    const msp_evidence *largest = NULL, *first = NULL;
    uint32_t judged_call = UINT32_MAX, suspicious_call = UINT32_MAX;

    for (size_t i = 0; i < list->count; i++) {
        const msp_evidence *e = &list->items[i];

        out->other_type += e->not_judged == NULL && !e->one_type;
        *(e->not_judged == NULL ? &out->judged : &out->not_judged) += 1;
        if (first == NULL && e->bench.len > 0 && (e->diff_out > 0 || e->diff_in > 0))
            first = e;
        if (e->not_judged != NULL) {
            if (!count_reason(out, e->not_judged))
                return false;
            continue;
        }
        if (basis_of(e) > out->basis)
            out->basis = basis_of(e);
        out->judged_calls += e->call != judged_call;
        judged_call = e->call;
        if (e->ratio > 1) {
            out->suspicious += e->call != suspicious_call;
            suspicious_call = e->call;
        }
        if (largest == NULL || e->times > largest->times)
            largest = e;
    }
    out->given = true;
    if (largest != NULL)
        out->largest = largest->times;
    return (largest == NULL || copy_name(&out->largest_at, msp_evidence_name(largest))) &&
           (first == NULL || copy_name(&out->first_different, msp_evidence_name(first)));
}

static const char *
type_name(msp_dtype t)
{
    const char *name = msp_dtype_torch_name(t), *dot = strrchr(name, '.');

    return dot != NULL ? dot + 1 : name;
}

static bool
take_types(msp_pair_verdict *out, const msp_evidence_list *list)
{
    msp_buf b = {0};

    for (size_t i = 0; i < list->count; i++) {
        const msp_evidence *e = &list->items[i];

        if (e->not_judged != NULL || e->one_type)
            continue;
        msp_buf_printf(&b, "%s in the NPU run, %s in the bench", type_name(e->types[0]), type_name(e->types[1]));
        out->types = msp_verdict_take(&b);
        return out->types != NULL;
    }
    return true;
}

static void
choose_kind(msp_pair_verdict *v, const msp_evidence_list *list)
{
    int64_t alone = 0;

    for (size_t i = 0; i < list->count; i++)
        alone += list->items[i].bench.len == 0;
    if (list->count >= MODEL_LEAST && (double)alone > MSP_OTHER_MODEL * (double)list->count)
        v->kind = MSP_VERDICT_MODELS;
    else if (v->kind == MSP_VERDICT_NONE && v->judged > 0)
        v->kind = v->first_different == NULL ? MSP_VERDICT_IDENTICAL : MSP_VERDICT_WITHIN;
}

/* What comes after a gross fault works on its rubbish, and says nothing about the device: the call before it. */
static uint32_t
last_sound_call(const msp_evidence_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const msp_evidence *e = &list->items[i];

        if (e->not_judged == NULL && e->ratio > GROSS && e->call > 0)
            return e->call - 1;
    }
    return UINT32_MAX;
}

static bool
judge_all(msp_pair_verdict *out, msp_evidence_list *list, msp_error *err)
{
    uint32_t sound;

    if (msp_verdict_calibrate(list, UINT32_MAX, err) != MSP_OK || msp_verdict_limits(list, out->noise, err) != MSP_OK)
        return false;
    sound = last_sound_call(list);
    return sound == UINT32_MAX ||
           (msp_verdict_calibrate(list, sound, err) == MSP_OK && msp_verdict_limits(list, out->noise, err) == MSP_OK);
}

msp_status
msp_verdict_rank(msp_pair_verdict *out, msp_evidence_list *list, msp_error *err)
{
    bool ok;

    *out = (msp_pair_verdict){.basis = MSP_BASIS_STATISTICS};
    ok = judge_all(out, list, err) && take_counts(out, list) && take_results(out, list) && take_types(out, list) &&
         name_suspects(out, list);
    if (ok)
        choose_kind(out, list);
    out->false_alarms = false_alarms[out->basis];
    if (ok && msp_verdict_words_facts(out, list) && msp_verdict_words_flips(out, list) &&
        msp_verdict_words_sentence(out))
        return MSP_OK;
    msp_verdict_release(out);
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}
