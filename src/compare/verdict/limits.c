/*
 * limits.c - how far beyond what it may be each result is, and by what sign, where the call was replayed: its own error
 * decides. What was not replayed is judged by growth.c.
 */
#include <math.h>
#include <stdlib.h>
#include "compare/verdict/ordinary.h"
#include "compare/verdict/verdict.h"
#include "core/alloc.h"

/* Recurrent layers may round between steps or not: the device's choice. */
#define RECURRENT 2.5
/* The bench is blamed where it is so many times the limit off, and the NPU a third of that at most. */
#define BENCH_OFF 3.0
/* Times that, where a host adds up a gradient in 16 bits row by row: dull, but what such hosts do. */
#define BENCH_SUMS 4.0
#define LIKELY     1.3

/* ---- replayed ---------------------------------------------------------------------------------------------------- */

/* An alarm by this sign, unless a stronger one is there. */
static void
raise_alarm(msp_evidence *e, double ratio, msp_sign sign)
{
    if (ratio <= e->ratio)
        return;
    e->ratio = ratio;
    if (ratio > 1)
        e->sign = sign;
}

/*
 * Terms that are added one after the other leave an error that grows as the root of their number: each partial sum,
 * which is as large as the root of what it holds, is rounded once. Products are measured, and 16-bit results summed up
 * in float32, but where a few terms meet in a place that an index names: they are added there as they come.
 */
static double
sum_in_line(const msp_evidence *e)
{
    enum { FEW = 64 };
    static const char *const meet[] = {"index_add", "scatter_add", "index_put"};
    static const char *const met[] = {"index_select", "gather", "embedding", "getitem", "embedding_bag", "take"};
    msp_str op = msp_verdict_operation(msp_evidence_name(e));
    bool in_place = e->nature.backward ? MSP_STR_IS_ONE_OF(op, met) : MSP_STR_IS_ONE_OF(op, meet);
    double terms = e->dtype == MSP_F32 ? e->terms : in_place ? fmin(e->terms, FEW) : 0;

    return e->nature.cls == MSP_CALL_VECTOR && terms > 1 ? 0.4 * sqrt(terms / 2) : 0;
}

/* 1 - 2 / (exp(2x) + 1), and tables of a fixed step: every result has an error of a roundoff or two of one, which is
 * much in the scale of a small one. */
static double
roundoffs_of_one(const msp_evidence *e)
{
    static const char *const bounded[] = {"tanh", "sin", "cos", "erf"};
    double inverse = e->local[1]->inverse_rms;
    bool is_bounded = !e->nature.backward && MSP_STR_IS_ONE_OF(msp_verdict_operation(msp_evidence_name(e)), bounded);

    return is_bounded && e->dtype == MSP_F32 && inverse > 0 ? fmin(2 * inverse, 1000) : 0;
}

/*
 * A variance as E[x^2] - E[x]^2, in one pass over the data, is what many devices and libraries compute. Where the mean
 * is k deviations, it has an error of k^2 roundoffs, and the result one of half of that. Its natural scale is about k
 * times the value. All of that is allowed while the result keeps half of float32's bits (k below 90); beyond that it
 * is a fault whoever computes so, for little is left of the result.
 */
static double
one_pass_variance(const msp_evidence *e)
{
    static const char *const norms[] = {"layer_norm", "batch_norm", "group_norm", "instance_norm"};
    const double half = 0x1p-12 / msp_local_roundoff(MSP_F32);
    const msp_local *b = e->local[1];
    bool is_norm = !e->nature.backward && MSP_STR_IS_ONE_OF(msp_verdict_operation(msp_evidence_name(e)), norms);
    double k = is_norm && b->value_rms > 0 ? b->scale_rms / b->value_rms : 0;

    return e->dtype == MSP_F32 && k > 0 && b->inverse_rms > 0 ? fmin(k * k / 2, half) * b->value_rms * b->inverse_rms
                                                              : 0;
}

/* A convolution in tiles (Winograd: 4 by 4 results from 6 by 6 numbers) takes differences of sums: four bits. A device
 * chooses by the size of the kernel and its stride, and so for some of its convolutions. */
static double
tiled_convolution(const msp_evidence *e)
{
    enum { FOUR_BITS = 16 };

    return e->dtype == MSP_F32 && e->nature.family == MSP_FAMILY_CONVOLUTION ? FOUR_BITS : 0;
}

/* Root mean square that is allowed, in unit roundoffs. */
static double
allowed_of(const msp_evidence *e, const msp_ordinary *o)
{
    double bench = e->local[1]->rms / msp_local_roundoff(e->dtype);
    const double parts[] = {bench,
                            e->noise,
                            o->floor,
                            e->kept,
                            sum_in_line(e),
                            roundoffs_of_one(e),
                            one_pass_variance(e),
                            tiled_convolution(e)};
    double squares = 0, allowed;

    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        squares += parts[i] * parts[i];
    allowed = sqrt(squares);
    return e->nature.family == MSP_FAMILY_RECURRENT ? RECURRENT * allowed : allowed;
}

/* More elements, larger extremes: the limit is for a thousand. */
static double
growth_of_extremes(int64_t n)
{
    return n <= 1000 ? 1 : sqrt(log((double)n) / log(1000));
}

/* Whether the result has the type that it is judged by: steps of it mean something. */
static bool
is_rounded_to_type(const msp_evidence *e)
{
    return e->local[0]->dtype == e->dtype;
}

/* Truncation in 16-bit types shows as a bias of half a unit in the last place. */
static bool
is_biased(const msp_evidence *e)
{
    const msp_local *a = e->local[0], *b = e->local[1];
    double error = fmax(a->spread, 0.05) / sqrt((double)a->biased);

    return is_rounded_to_type(e) && e->dtype != MSP_F32 && e->dtype != MSP_F64 && a->biased >= 24 &&
           fabs(a->bias) > 0.3 && fabs(a->bias) > 8 * error && fabs(b->bias) < 0.15;
}

/*
 * Autocast rounds what a product takes, and the reference has it so: rounded operands leave nothing of one sign. Each
 * one that is cut off is 0.7 roundoffs too small on average, and so is the result.
 */
static bool
takes_cut_operands(const msp_evidence *e)
{
    double u = msp_local_roundoff(e->dtype), slope = e->local[0]->slope / u;

    return e->casts && !e->nature.backward && e->nature.family != MSP_FAMILY_NONE && e->one_type && slope < -0.6 &&
           fabs(e->local[1]->slope) < 0.15 * u && -slope * sqrt((double)e->local[0]->count) / 0.3 > 30;
}

/*
 * 16-bit results of sums in float32 are nearly all correctly rounded, and where they are not, then everywhere: a device
 * that stores partial sums in the type does so in all products. Where the bench is off in many elements itself, a few
 * more are no sign.
 */
static void
judge_rounding(msp_evidence *e)
{
    const msp_local *a = e->local[0], *b = e->local[1];
    double n = (double)a->count, u = msp_local_roundoff(e->dtype), slope = fabs(a->slope) / u;
    double share = msp_evidence_share(b), more = msp_evidence_share(a) - share;

    if (e->dtype == MSP_F32 || e->dtype == MSP_F64 || a->count < 64 || !is_rounded_to_type(e))
        return;
    if (e->peer_share >= 0 && more > 0.04 && more > share && a->differ - b->differ > 20 &&
        more > 4 * e->peer_share + 0.01)
        raise_alarm(e, 1.2, MSP_SIGN_UNLIKE);
    if (e->peer_slope >= 0 && !e->nature.backward && !e->casts && slope > 0.2 && slope > 2.5 * fabs(b->slope) / u &&
        slope > 2.5 * e->peer_slope && slope * sqrt(n) / 0.3 > 30)
        raise_alarm(e, LIKELY, MSP_SIGN_FACTOR);
    if (takes_cut_operands(e))
        raise_alarm(e, LIKELY, MSP_SIGN_OPERANDS);
    if (a->max > 4 * u && b->max < 1.5 * u && (double)a->differ < 0.01 * n && (double)b->differ < 0.01 * n)
        raise_alarm(e, LIKELY, MSP_SIGN_ELEMENT);
}

/* A call that takes or gives 16 bits may compute in them, whatever the type of this result. */
static void
judge_bench(msp_evidence *e)
{
    msp_ordinary o = msp_ordinary_of(e->nature.cls, e->coarsest);
    double u = msp_local_roundoff(e->coarsest), own = e->local[0]->rms / u, bench = e->local[1]->rms / u;
    double most = BENCH_OFF * o.limit * sqrt(o.cap * o.cap + o.floor * o.floor);

    if (e->nature.backward && e->nature.cls == MSP_CALL_VECTOR && (e->coarsest == MSP_BF16 || e->coarsest == MSP_F16))
        most *= BENCH_SUMS;
    if (e->one_type && !msp_evidence_is_alone(e) && bench > most && own < bench / 3)
        raise_alarm(e, bench / most, MSP_SIGN_BENCH);
}

static void
judge_error(msp_evidence *e)
{
    const msp_local *a = e->local[0], *b = e->local[1];
    msp_ordinary o = msp_ordinary_of(e->nature.cls, e->dtype);
    double u = msp_local_roundoff(e->dtype), allowed = allowed_of(e, &o), rms = a->rms / u, max = a->max / u;

    e->expected = allowed * u;
    e->times = rms / allowed;
    raise_alarm(e, rms / (o.limit * allowed), MSP_SIGN_ERROR);
    raise_alarm(e, max / (growth_of_extremes(a->count) * fmax(o.most * allowed, 3 * b->max / u)), MSP_SIGN_ELEMENT);
    if (is_biased(e))
        raise_alarm(e, LIKELY, MSP_SIGN_BIAS);
    if (a->shape == MSP_SHAPE_TOWARD_ZERO && b->shape != MSP_SHAPE_TOWARD_ZERO)
        raise_alarm(e, LIKELY, MSP_SIGN_CUT);
    if (e->nature.rounds_once && e->one_type && a->count >= 32 && b->differ == 0 && a->differ > 0)
        raise_alarm(e, MSP_VERDICT_CERTAIN, MSP_SIGN_ROUNDING);
    judge_rounding(e);
    judge_bench(e);
}

/* A choice among values that are one but for their last bits: which is meant is the device's affair. */
static bool
is_tie(const msp_evidence *e)
{
    return e->flip != NULL && e->flip->measured > 0 && e->flip->own <= MSP_DECISION_TIE &&
           e->flip->measured == e->flip->flipped;
}

static void
judge_replayed(msp_evidence *e)
{
    const msp_local *a = e->local[0], *b = e->local[1];
    bool exact = msp_local_roundoff(a->dtype) == 0 || e->nature.cls == MSP_CALL_MOVE;

    e->expected = e->times = e->ratio = 0;
    if (a->bad > 0 && b->bad == 0)
        raise_alarm(e, INFINITY, MSP_SIGN_NONFINITE);
    else if (b->bad > 0 && a->bad == 0 && !msp_evidence_is_alone(e))
        raise_alarm(e, INFINITY, MSP_SIGN_BENCH_NONFINITE);
    else if (exact && a->differ > 0 && b->differ == 0 && !is_tie(e))
        raise_alarm(e, MSP_VERDICT_CERTAIN, MSP_SIGN_INEXACT);
    else if (!exact)
        judge_error(e);
    if (e->sign != MSP_SIGN_ERROR)
        e->times = fmax(e->times, e->ratio);
}

/* "Functional.relu.0." of its forward and its backward call. */
static msp_str
stem_of(const msp_evidence *e)
{
    size_t end = e->nature.backward ? 8 : 7; /* "backward", "forward" */

    return (msp_str){e->name, e->name_len > end ? e->name_len - end : 0};
}

/* The first result of each forward call, by its stem. */
static bool
map_forward(msp_map *calls, const msp_evidence_list *list)
{
    bool ok = true;

    for (size_t i = 0; i < list->count && ok; i++)
        if (!list->items[i].nature.backward)
            ok = msp_map_put(calls, stem_of(&list->items[i]), (int64_t)i, NULL) != NULL;
    return ok;
}

/*
 * The gradient of 1/sqrt(x) is the third power of the result: an error of the device's formula stands in it three
 * times, though nothing is wrong with it. Where that error is beyond its limit, the forward call is named for it.
 */
static bool
note_kept(const msp_evidence_list *list)
{
    enum { MOST_POWER = 3 };
    msp_map calls = {0};
    bool ok = map_forward(&calls, list);

    for (size_t i = 0; i < list->count && ok; i++) {
        msp_evidence *e = &list->items[i];
        const msp_map_entry *first =
            e->nature.backward && e->nature.from_result ? msp_map_get(&calls, stem_of(e)) : NULL;
        const msp_local *forward = first != NULL ? list->items[first->value].local[0] : NULL;

        e->kept = forward != NULL ? MOST_POWER * forward->rms / msp_local_roundoff(e->dtype) : 0;
        if (!isfinite(e->kept))
            e->kept = 0;
    }
    msp_map_release(&calls);
    return ok;
}

bool
msp_evidence_worst_gradients(double *out, const msp_evidence_list *list)
{
    msp_map calls = {0};
    bool ok = map_forward(&calls, list);

    for (size_t i = 0; i < list->count; i++)
        out[i] = 0;
    for (size_t i = 0; i < list->count && ok; i++) {
        const msp_evidence *e = &list->items[i];
        const msp_map_entry *first = msp_map_get(&calls, stem_of(e));

        if (first != NULL && e->nature.backward && e->not_judged == NULL)
            out[first->value] = fmax(out[first->value], e->ratio);
    }
    for (size_t i = 0; i < list->count && ok; i++) {
        const msp_map_entry *first = msp_map_get(&calls, stem_of(&list->items[i]));

        if (first != NULL && !list->items[i].nature.backward)
            out[i] = out[first->value];
    }
    msp_map_release(&calls);
    return ok;
}

/*
 * A loss is one number, in which little can be seen: it is remarkable below its limit already, where it is further off
 * than rounding it correctly leaves, and than the bench's.
 */
static bool
is_remarkable(const msp_evidence *e)
{
    enum { FEW = 32 };
    double own = e->local[0]->rms;

    if (e->local[0]->count > FEW)
        return e->ratio > 1;
    return e->ratio > 0.4 && own > msp_local_roundoff(e->dtype) && own > 1.5 * e->local[1]->rms;
}

/* What goes wrong in a forward call shows in its gradients, too, which are computed from what it has kept, and there it
 * may be clearer. */
static void
blame_forward(msp_evidence_list *list, const double *gradients)
{

    for (size_t i = 0; i < list->count; i++) {
        msp_evidence *e = &list->items[i];
        double worst;

        if (!msp_evidence_replayed(e) || e->nature.backward || e->not_judged != NULL || e->name_len < 8 ||
            !is_remarkable(e))
            continue;
        worst = gradients[i];
        if (worst <= 1 || worst <= e->ratio)
            continue;
        if (e->ratio <= 1)
            e->sign = MSP_SIGN_SAVED;
        e->ratio = worst;
    }
}

msp_status
msp_verdict_limits(msp_evidence_list *list, double noise[MSP_CALL_NCLASSES], msp_error *err)
{
    double *room = msp_alloc_zero(list->count + 1, sizeof(*room));
    bool ok = room != NULL && note_kept(list);

    for (size_t i = 0; i < list->count && ok; i++) {
        msp_evidence *e = &list->items[i];

        e->sign = MSP_SIGN_NONE;
        e->expected = e->times = e->ratio = 0;
        if (e->not_judged == NULL && msp_evidence_replayed(e))
            judge_replayed(e);
    }
    ok = ok && msp_evidence_worst_gradients(room, list);
    if (ok) {
        blame_forward(list, room);
        ok = msp_verdict_judge_growth(list, noise, room);
    }
    msp_free(room);
    return ok ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory");
}
