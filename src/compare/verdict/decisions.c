/* decisions.c - see decisions.h. */
#include "compare/verdict/decisions.h"

#include <math.h>

enum { MOST_STEPS = 1 << 26 }; /* elements that are looked at for one result: a second at most */

msp_decision
msp_decision_of(msp_str op)
{
    static const char *const positions[] = {"argmax",   "argmin", "argsort", "topk",  "sort",   "max",       "min",
                                            "kthvalue", "median", "mode",    "msort", "cummax", "nanmedian", "cummin"};
    static const char *const orders[] = {"lt",    "le",       "gt",      "ge",         "eq",
                                         "ne",    "less",     "greater", "less_equal", "greater_equal",
                                         "equal", "not_equal"};

    static const char *const steps[] = {"round",     "floor",        "ceil",     "trunc", "fix",
                                        "sign",      "sgn",          "int",      "long",  "floor_divide",
                                        "bucketize", "searchsorted", "heaviside"};

    if (MSP_STR_IS_ONE_OF(op, steps))
        return MSP_DECIDES_STEP;
    if (MSP_STR_IS_ONE_OF(op, positions))
        return MSP_DECIDES_POSITION;
    return MSP_STR_IS_ONE_OF(op, orders) ? MSP_DECIDES_ORDER : MSP_DECIDES_NOTHING;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

static double
value_at(const msp_tensor *t, int64_t i)
{
    return msp_dtype_load_f64(t->dtype, msp_tensor_at(t, i));
}

/* How to find the elements among which one place of a result chose. */
typedef struct lane {
    int64_t start, step, count; /* row-major indices */
} lane;

typedef struct chooser {
    const msp_choice *sides;
    int32_t dim; /* of `from`; -1: all elements are one */
    bool kept;   /* the result has that dimension, too */
    double unit; /* roundoff of the values */
    int64_t steps;
} chooser;

/* The dimension along which positions count: what is left of the shape must be the result's. */
static bool
find_dimension(chooser *c, int64_t dim)
{
    const msp_tensor *from = &c->sides[0].from, *out = &c->sides[0].chosen;
    int32_t d = dim == INT64_MIN ? from->ndim - 1 : (int32_t)(dim < 0 ? dim + from->ndim : dim);

    if (dim == INT64_MIN && out->numel == 1 && from->numel > 1) {
        c->dim = -1;
        return true;
    }
    if (d < 0 || d >= from->ndim || (out->ndim != from->ndim && out->ndim != from->ndim - 1))
        return false;
    c->dim = d;
    c->kept = out->ndim == from->ndim;
    for (int32_t i = 0, k = 0; i < from->ndim; i++) {
        if (i == d && !c->kept)
            continue;
        if (i != d && out->shape[k] != from->shape[i])
            return false;
        k++;
    }
    return true;
}

static lane
lane_of(const chooser *c, int64_t place)
{
    const msp_tensor *from = &c->sides[0].from, *out = &c->sides[0].chosen;
    int64_t coords[MSP_MAX_NDIM], start = 0, step = 1;

    if (c->dim < 0)
        return (lane){0, 1, from->numel};
    msp_tensor_unravel(out, place, coords);
    for (int32_t i = 0, k = 0; i < from->ndim; i++) {
        bool along = i == c->dim;

        start = start * from->shape[i] + (along ? 0 : coords[k]);
        k += !along || c->kept;
    }
    for (int32_t i = c->dim + 1; i < from->ndim; i++)
        step *= from->shape[i];
    return (lane){start, step, from->shape[c->dim]};
}

/* ---- margins ----------------------------------------------------------------------------------------------------- */

/* The two competing values of either side, and how far the sides are apart in what was chosen from. */
typedef struct contest {
    double mine[2], other[2]; /* by side: of what the NPU chose, of what the bench chose; of an order: its operands */
    double apart;             /* the most that the choice can have moved */
} contest;

static void
take_contest(msp_flip *f, const chooser *c, const contest *t, double moved, int64_t mine, int64_t other, double typical)
{
    double margin = fabs(t->mine[1] - t->other[1]), own = fabs(t->mine[0] - t->other[0]), scale, error, unit = c->unit;

    scale = fmax(fmax(fabs(t->mine[0]), fabs(t->other[0])), fmax(fabs(t->mine[1]), fabs(t->other[1])));
    if (!isfinite(scale))
        return;
    scale *= unit;
    error = fmax(typical, scale);
    f->measured++;
    f->own = fmax(f->own, scale > 0 ? own / scale : 0);
    if (moved > t->apart)
        f->miss = fmax(f->miss, scale > 0 ? (moved - t->apart) / scale : 0);
    if (f->measured == 1 || (error > 0 ? margin / error : 0) > f->times) {
        f->times = error > 0 ? margin / error : 0;
        f->margin = margin;
        f->error = error;
        f->mine = mine;
        f->other = other;
    }
}

/*
 * The k-th largest of many values moves by no more than the values do: what either run chose may differ by as much as
 * the two lanes, and not by more.
 */
static msp_status
measure_position(msp_flip *f, chooser *c, int64_t place, double typical)
{
    const msp_tensor *n = &c->sides[0].from, *b = &c->sides[1].from;
    double mine = value_at(&c->sides[0].chosen, place), other = value_at(&c->sides[1].chosen, place);
    lane l = lane_of(c, place);
    contest t = {.apart = 0};
    int64_t p, q;

    if (!(mine >= 0 && mine < (double)l.count && other >= 0 && other < (double)l.count))
        return MSP_E_INVALID;
    p = l.start + (int64_t)mine * l.step;
    q = l.start + (int64_t)other * l.step;
    for (int64_t i = 0; i < l.count; i++) {
        double d = fabs(value_at(n, l.start + i * l.step) - value_at(b, l.start + i * l.step));

        if (d > t.apart)
            t.apart = d;
    }
    c->steps -= l.count;
    t.mine[0] = value_at(n, p);
    t.other[0] = value_at(n, q);
    t.mine[1] = value_at(b, p);
    t.other[1] = value_at(b, q);
    take_contest(f, c, &t, fabs(t.mine[0] - t.other[1]), (int64_t)mine, (int64_t)other, typical);
    return MSP_OK;
}

/* The element of an operand that stands at a place of the result, as shapes are broadcast. */
static double
operand_at(const msp_tensor *t, double value, const msp_tensor *out, int64_t place)
{
    int64_t coords[MSP_MAX_NDIM], at = 0;

    if (t->data == NULL)
        return value;
    msp_tensor_unravel(out, place, coords);
    for (int32_t i = 0; i < t->ndim; i++)
        at = at * t->shape[i] + (t->shape[i] == 1 ? 0 : coords[out->ndim - t->ndim + i]);
    return value_at(t, at);
}

static bool
can_be_broadcast(const msp_tensor *t, const msp_tensor *out)
{
    bool ok = t->data == NULL || t->ndim <= out->ndim;

    for (int32_t i = 0; t->data != NULL && ok && i < t->ndim; i++)
        ok = t->shape[i] == 1 || t->shape[i] == out->shape[out->ndim - t->ndim + i];
    return ok;
}

/* A comparison turns over where the difference of both operands changes its sign: it moved by more than it was. */
static void
measure_order(msp_flip *f, chooser *c, int64_t place, double typical)
{
    contest t;
    double was, moved;

    for (int side = 0; side < 2; side++) {
        const msp_choice *s = &c->sides[side];

        t.mine[side] = operand_at(&s->from, 0, &s->chosen, place);
        t.other[side] = operand_at(&s->than, s->value, &s->chosen, place);
    }
    c->steps--;
    was = t.mine[1] - t.other[1];
    moved = fabs((t.mine[0] - t.other[0]) - was);
    t.apart = moved;
    take_contest(f, c, &t, fabs(was), 0, 0, typical);
}

/* ---- all places -------------------------------------------------------------------------------------------------- */

/* The error of the values as root mean square: what the runs differ by in them. */
static double
typical_error(const msp_choice sides[2])
{
    double d = msp_local_distance(&sides[0].from, &sides[1].from), e = 0;

    if (sides[0].than.data != NULL && sides[1].than.data != NULL)
        e = msp_local_distance(&sides[0].than, &sides[1].than);
    return sqrt((isfinite(d) ? d * d : 0) + (isfinite(e) ? e * e : 0));
}

static double
unit_of(const msp_choice sides[2])
{
    double u = fmax(msp_local_roundoff(sides[0].from.dtype), msp_local_roundoff(sides[1].from.dtype));

    return u > 0 ? u : 0x1p-53;
}

static bool
go_together(chooser *c, msp_decision what, int64_t dim)
{
    const msp_choice *s = c->sides;

    if (!msp_tensor_same_shape(&s[0].chosen, &s[1].chosen) || !msp_tensor_same_shape(&s[0].from, &s[1].from))
        return false;
    if (what == MSP_DECIDES_POSITION)
        return find_dimension(c, dim);
    for (int side = 0; side < 2; side++)
        if (!can_be_broadcast(&s[side].from, &s[side].chosen) || !can_be_broadcast(&s[side].than, &s[side].chosen))
            return false;
    return true;
}

msp_status
msp_flip_measure(msp_flip *out, msp_decision what, const msp_choice sides[2], int64_t dim)
{
    chooser c = {.sides = sides, .unit = unit_of(sides), .steps = MOST_STEPS};
    msp_status st = MSP_OK;
    double typical;

    *out = (msp_flip){.what = what, .places = sides[0].chosen.numel};
    if (!go_together(&c, what, dim))
        return MSP_E_INVALID;
    typical = typical_error(sides);
    for (int64_t i = 0; i < out->places && st == MSP_OK; i++) {
        if (value_at(&sides[0].chosen, i) == value_at(&sides[1].chosen, i))
            continue;
        out->flipped++;
        if (c.steps <= 0)
            continue;
        if (what == MSP_DECIDES_POSITION)
            st = measure_position(out, &c, i, typical);
        else
            measure_order(out, &c, i, typical);
    }
    return st;
}
