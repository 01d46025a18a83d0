/*
 * growth.c - results that were not run again: judged by how far they are apart, beside what their call took. Of
 * elements one relative distance is known; of statistics the noise that each of the four shows (flow.c), and sums that
 * must agree within one run (laws.c).
 */
#include <math.h>
#include <stdlib.h>
#include "compare/verdict/verdict.h"

enum { NTYPES = 4, ENOUGH = 3 };

static int
type_index(msp_dtype t)
{
    return t == MSP_BF16 ? 3 : t == MSP_F16 ? 2 : t == MSP_F32 ? 1 : 0;
}

/* A call that takes or gives 16 bits may compute in them, whatever the type of a result; copies are exact. */
static int
computed_in(const msp_evidence *e)
{
    return type_index(e->nature.cls == MSP_CALL_MOVE ? e->dtype : e->coarsest);
}

static int
compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* ---- by one distance --------------------------------------------------------------------------------------------- */

/* How much of its inputs' difference a call may hand on: larger gains are rare where what is known to enlarge them has
 * been counted (felt_difference). */
#define GAIN 4.0
/* Times what is explained, forward and backward. The largest of 25,000 benign results of bench/truth is half of that.
 */
static const double alarms[2] = {3.5, 5};

/* Ordinary precisions, by class and type (float64, float32, float16, bfloat16). Matrix units of float32: 11 bits
 * (TF32) at the least. */
static const double floors[MSP_CALL_NCLASSES][NTYPES] = {{0x1p-51, 0x1p-22, 0x1p-12, 0x1p-9},
                                                         {0x1p-51, 0x1p-21, 0x1p-12, 0x1p-9},
                                                         {0x1p-53, 0x1p-24, 0x1p-12, 0x1p-9}};
static const double caps[MSP_CALL_NCLASSES][NTYPES] = {{0x1p-48, 0x1p-11, 0x1p-11, 0x1p-8},
                                                       {0x1p-48, 0x1p-20, 0x1p-11, 0x1p-8},
                                                       {0x1p-53, 0x1p-24, 0x1p-12, 0x1p-9}};
/* Of a norm in float32 whose variance may be computed in one pass (limits.c), relative: by a distance half of its bits,
 * with the alarm's factor; by statistics, of which only a mean of up to 22 deviations is believed, 2^-16 in all. */
#define ONE_PASS_DISTANCE   0x1p-15
#define ONE_PASS_STATISTICS 0x1p-16

/* One distance is all there is: of the elements, of statistics that are not all numbers, or of calls that stand for
 * others. */
static bool
is_by_distance(const msp_evidence *e)
{
    return e->tensors || !e->seen.known || e->steps > 0;
}

/* What a call adds to the difference that it took, if it hands that on as it is. */
static double
grown_error(const msp_evidence *e)
{
    return e->diff_out > e->diff_in ? sqrt(e->diff_out * e->diff_out - e->diff_in * e->diff_in) : 0;
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

        if (e->not_judged == NULL && is_by_distance(e) && !e->nonfinite && (int)e->nature.cls == cls &&
            computed_in(e) == type && grown_error(e) > least)
            room[n++] = grown_error(e);
    }
    if (n < ENOUGH)
        return least;
    qsort(room, n, sizeof(*room), compare_doubles);
    middle = fmin(room[n / 2], caps[cls][type]);
    return sqrt(least * least + middle * middle);
}

/* A parameter's gradient is a sum over all that its module took, which may cancel: that of a key's bias does. */
static double
cancelled(const msp_evidence *e)
{
    enum { PART = 4 };
    bool parameter = msp_str_find(msp_evidence_name(e), MSP_STR(".parameters_grad")) != NULL;

    return parameter && e->seen.norm > 0 ? fmax(e->norm_in / e->seen.norm / PART, 1) : 1;
}

/* What the call took differs by, as far as its kind of function shows it. What was not recorded of it has gone through
 * products. */
static double
felt_difference(const msp_evidence *e, double products)
{
    double in = fmax(e->diff_in * fmax(e->seen.gain, 1) * cancelled(e), fmin(e->seen.turned, 1));

    in = e->half_known ? fmax(in, products) : in;

    return e->seen.corner && in < 1 ? sqrt(in) : in;
}

/* Terms of a gradient that cancel are rounded before they do; a difference is rounded once, as it comes out. */
static double
own_noise(const msp_evidence *e, double noise)
{
    return e->nature.backward ? noise * fmax(e->seen.gain, 1) : noise;
}

static bool
is_norm_of_float32(const msp_evidence *e)
{
    return e->seen.normed && e->coarsest == MSP_F32;
}

/* A sum that does not agree with the inputs' within its own run. */
static void
judge_law(msp_evidence *e)
{
    if (!(e->seen.law > 1 && e->seen.law > e->ratio))
        return;
    e->ratio = e->times = e->seen.law;
    e->sign = MSP_SIGN_LAW;
}

/* By the difference between the runs alone. */
static void
judge_distance(msp_evidence *e, double noise, double products)
{
    double in = felt_difference(e, products);

    e->inherited = fmin(e->diff_out, GAIN * in);
    e->expected = own_noise(e, e->steps > 1 ? noise * sqrt((double)e->steps) : noise);
    if (is_norm_of_float32(e))
        e->expected = fmax(e->expected, ONE_PASS_DISTANCE);
    e->told = -1;
    if (!isfinite(e->diff_in)) /* what it took was broken already */
        e->times = 0;
    else
        e->times = e->nonfinite ? INFINITY : e->diff_out / (GAIN * in + e->expected);
    e->ratio = e->times / alarms[e->nature.backward];
    if (e->ratio > 1)
        e->sign = e->nonfinite ? MSP_SIGN_NONFINITE : MSP_SIGN_GROWTH;
    judge_law(e);
}

/* A choice that fell the other way by more than the error of what it chose from. */
static void
judge_choice(msp_evidence *e)
{
    e->expected = e->flip->error;
    e->times = e->flip->times;
    e->told = -1;
    e->ratio = MSP_VERDICT_CERTAIN;
    e->sign = MSP_SIGN_CHOICE;
}

/* ---- by statistics ----------------------------------------------------------------------------------------------- */

/*
 * Times the noise of what a call took and the device's own, for each statistic: maximum, minimum, mean, norm. On 32
 * groups of bench/truth 99.9 % of the benign results stay below half of that (forward) and two thirds (backward).
 */
static const double limits[2][MSP_NSTATS] = {{3.5, 3.5, 16, 5}, {8, 8, 40, 10}};
/* Of the device's noise, what may go into one direction, as running sums of few bits do, or a norm's mean that is
 * stored in 16 bits: moves norms and means whatever the number of elements. */
static double
one_sided(const msp_evidence *e)
{
    if (e->nature.cls == MSP_CALL_MATMUL)
        return 0.5;
    return e->seen.normed && (e->coarsest == MSP_BF16 || e->coarsest == MSP_F16) ? 1 : 0.125;
}

/* The noise of products is measured; of functions and copies this is what ordinary devices do. */
static const double ordinary[MSP_CALL_NCLASSES][NTYPES] = {{0x1p-51, 0x1p-22, 0x1p-11, 0x1p-8},
                                                           {0x1p-48, 0x1p-20, 0x1p-11, 0x1p-8},
                                                           {0x1p-52, 0x1p-23, 0x1p-11, 0x1p-8}};
/* Noise of the products, by rank: where a fault is in the third product of a hundred, all behind it show its noise. */
#define PRODUCTS_QUANTILE 0.4

static bool
is_seen(const msp_evidence *e)
{
    return e->not_judged == NULL && e->seen.known && !e->seen.broken && !e->nonfinite;
}

static double
product_noise(const msp_evidence_list *list, double *room, int type)
{
    size_t n = 0;

    for (size_t i = 0; i < list->count; i++) {
        const msp_evidence *e = &list->items[i];
        const double *s = e->seen.noise;

        if (is_seen(e) && e->nature.cls == MSP_CALL_MATMUL && computed_in(e) == type)
            room[n++] = fmax(fmax(s[MSP_STAT_MAX], s[MSP_STAT_MIN]), s[MSP_STAT_NORM] / 3);
    }
    qsort(room, n, sizeof(*room), compare_doubles);
    return ordinary[MSP_CALL_MATMUL][type] +
           (n == 0 ? 0 : fmin(room[(size_t)((double)n * PRODUCTS_QUANTILE)], caps[MSP_CALL_MATMUL][type]));
}

/* A module computes whatever its class does: at the least as exactly as products. */
static double
noise_of(const msp_evidence *e, const double products[NTYPES])
{
    int type = computed_in(e);

    return e->nature.cls == MSP_CALL_MATMUL || msp_evidence_is_module(e) ? products[type]
                                                                         : ordinary[e->nature.cls][type];
}

static double
root_mean_square(const msp_evidence *e)
{
    return e->seen.norm / sqrt((double)e->n);
}

/* A statistic's noise as a difference relative to what it can resolve. */
static double
as_difference(const msp_evidence *e, int stat, double noise)
{
    return stat == MSP_STAT_MEAN   ? noise * e->seen.norm / (double)e->n / root_mean_square(e)
           : stat == MSP_STAT_NORM ? noise * e->seen.big / e->seen.norm
                                   : noise;
}

/* What it took has gone through products, where it differs: four numbers may show less noise than all elements have,
 * and what was computed in a coarser type keeps that one's noise. */
static void
judge_statistics(msp_evidence *e, double noise, double products)
{
    const msp_seen *s = &e->seen;
    double least = e->half_known || (s->taken > 0 && e->nature.cls == MSP_CALL_MOVE) ? products : 0;
    double base = (fmax(s->taken, least) + own_noise(e, noise)) * cancelled(e), side = one_sided(e) * noise;
    double one_pass = is_norm_of_float32(e) ? ONE_PASS_STATISTICS : 0; /* a factor on whole rows, whose mean is none */

    for (int i = 0; i < MSP_NSTATS; i++) {
        double times = limits[e->nature.backward][i], room = base;

        if (i == MSP_STAT_MEAN)
            room += side * sqrt((double)e->n) / times;
        else if (i == MSP_STAT_NORM)
            room += (side + one_pass) * s->norm / s->big / times;
        else
            room += one_pass / times;
        if (s->noise[i] / (times * room) < e->ratio && e->ratio > 0)
            continue;
        e->told = i;
        e->ratio = s->noise[i] / (times * room);
        e->times = s->noise[i] / room;
        e->diff_out = as_difference(e, i, s->noise[i]);
        e->expected = as_difference(e, i, room);
    }
    e->inherited = fmin(e->diff_out, as_difference(e, e->told, limits[e->nature.backward][e->told] * s->taken));
    if (e->ratio > 1)
        e->sign = MSP_SIGN_GROWTH;
    judge_law(e);
}

/* ---- whose fault it is ------------------------------------------------------------------------------------------- */

/* Results of one call that are judged by statistics, from first on. */
static size_t
end_of_call(const msp_evidence_list *list, size_t first)
{
    size_t end = first + 1;

    while (end < list->count && list->items[end].call == list->items[first].call)
        end++;
    return end;
}

static bool
is_suspicious(const msp_evidence *e)
{
    return e->not_judged == NULL && !e->tensors && !msp_evidence_replayed(e) && e->ratio > 1;
}

/*
 * Whether a call is cleared by its own numbers. Its sums hold, and still it gives something else: what it took has the
 * same statistics, but not the same elements in the same places. Or several results that are computed one by one (the
 * gradients of a product) are all off: then what they have in common is, the gradient that came in.
 */
static bool
is_cleared(const msp_evidence_list *list, size_t first, size_t end)
{
    bool holds = true, products;
    size_t off = 0;
    int64_t size = -1;
    double most = 0;
    const msp_evidence *e = &list->items[first];

    products = e->nature.backward &&
               (e->nature.family == MSP_FAMILY_PRODUCT || e->nature.family == MSP_FAMILY_CONVOLUTION) &&
               msp_str_find(msp_evidence_name(e), MSP_STR("matmul")) == NULL;
    for (size_t i = first; i < end; i++) {
        e = &list->items[i];
        if (!is_suspicious(e))
            continue;
        if (e->sign != MSP_SIGN_GROWTH)
            return false;
        holds = holds && e->seen.holds;
        most = fmax(most, e->ratio);
        off += e->n != size;
        size = e->n;
    }
    return (holds && off > 0) || (products && off >= 2 && most > 2);
}

/* The first result of a call that is judged by what is seen of it. */
static msp_evidence *
result_of_call(const msp_evidence_list *list, uint32_t call)
{
    size_t low = 0, high = list->count;

    while (low < high) { /* results stand in the order of calls */
        size_t middle = low + (high - low) / 2;

        if (list->items[middle].call < call)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = low; i < list->count && list->items[i].call == call; i++)
        if (list->items[i].not_judged == NULL && !list->items[i].tensors && !msp_evidence_replayed(&list->items[i]))
            return &list->items[i];
    return NULL;
}

static void
pass_on(const msp_evidence_list *list)
{
    for (size_t first = 0, end; first < list->count; first = end) {
        msp_evidence *most = NULL, *target;

        end = end_of_call(list, first);
        for (size_t i = first; i < end; i++)
            if (is_suspicious(&list->items[i]) && (most == NULL || list->items[i].ratio > most->ratio))
                most = &list->items[i];
        if (most == NULL || most->seen.maker == MSP_NO_CALL || !is_cleared(list, first, end))
            continue;
        target = result_of_call(list, most->seen.maker);
        if (target == NULL || target->call >= most->call)
            continue;
        if (target->ratio < most->ratio) {
            target->ratio = most->ratio;
            target->times = most->times;
            target->sign = MSP_SIGN_ORDER;
            target->shown = most;
        }
        for (size_t i = first; i < end; i++)
            if (is_suspicious(&list->items[i])) {
                list->items[i].ratio = 1;
                list->items[i].sign = MSP_SIGN_NONE;
            }
    }
}

/* What a forward call has kept for its gradients may show more clearly in them. */
static void
blame_forward(const msp_evidence_list *list, const double *gradients)
{
    enum { CLEARLY = 3 };

    for (size_t i = 0; i < list->count; i++) {
        msp_evidence *e = &list->items[i];
        double worst;

        if (e->not_judged != NULL || msp_evidence_replayed(e) || e->nature.backward || !(e->ratio > 0.4))
            continue;
        worst = gradients[i];
        if (worst <= CLEARLY || worst <= e->ratio)
            continue;
        if (e->ratio <= 1)
            e->sign = MSP_SIGN_SAVED;
        e->ratio = worst;
    }
}

/* Of the coarsest type that the run computes in. */
static double
largest_noise(const msp_evidence_list *list, const double products[NTYPES])
{
    double most = 0;

    for (size_t i = 0; i < list->count; i++)
        if (is_seen(&list->items[i]))
            most = fmax(most, products[computed_in(&list->items[i])]);
    return most;
}

static bool
any_by_distance(const msp_evidence_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (is_by_distance(&list->items[i]))
            return true;
    return false;
}

bool
msp_verdict_judge_growth(msp_evidence_list *list, double noise[MSP_CALL_NCLASSES], double *room)
{
    double grown[MSP_CALL_NCLASSES][NTYPES], products[NTYPES], most;

    for (int t = 0; t < NTYPES; t++) {
        products[t] = product_noise(list, room, t);
        for (int c = 0; c < MSP_CALL_NCLASSES; c++)
            grown[c][t] = class_noise(list, room, c, t);
    }
    most = largest_noise(list, products);
    for (int c = 0; c < MSP_CALL_NCLASSES; c++)
        noise[c] = any_by_distance(list) ? grown[c][1] : c == MSP_CALL_MATMUL ? products[1] : ordinary[c][1];
    for (size_t i = 0; i < list->count; i++) {
        msp_evidence *e = &list->items[i];

        if (e->not_judged != NULL || msp_evidence_replayed(e))
            continue;
        if (e->chose && e->flip != NULL)
            judge_choice(e);
        else if (is_by_distance(e) || e->nonfinite || e->seen.broken)
            judge_distance(e, grown[msp_evidence_is_module(e) ? MSP_CALL_MATMUL : e->nature.cls][computed_in(e)],
                           products[computed_in(e)]);
        else
            judge_statistics(e, noise_of(e, products), most);
    }
    pass_on(list);
    if (!msp_evidence_worst_gradients(room, list))
        return false;
    blame_forward(list, room);
    return true;
}
