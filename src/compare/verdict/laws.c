/*
 * laws.c - what must hold between the statistics of a call's inputs and results within one run, whatever the other run
 * did: a mean times the number of elements is a sum, and a copy, a sum of two tensors, the gradient of a bias or a
 * softmax leave no choice about it. The bench says whether the law applies: where it does not hold there, nothing is
 * said.
 */
#include "compare/verdict/flow.h"

#include <math.h>

/* Roundoffs of the norm: a sum of n results that are rounded one by one is off by about one, and four times that and
 * more where intermediate results are rounded, too. */
#define ROUNDINGS 16.0

typedef enum law_kind {
    LAW_NONE = 0,
    LAW_COPY,   /* the result holds what was taken */
    LAW_PARTS,  /* all results together hold all that was taken */
    LAW_ADD,    /* the sum of two tensors, which may be repeated to the result's shape */
    LAW_MEAN,   /* the mean stays */
    LAW_SUM,    /* the sum stays */
    LAW_SQUARE, /* the sum is the sum of squares of what was taken */
    LAW_ONES,   /* each row of some dimension adds up to one */
    LAW_ZERO    /* everything adds up to zero */
} law_kind;

/* Sums and norms of several tensors. */
typedef struct sums {
    double sum[2], squares[2], n, unit; /* of either side; elements, the coarsest type's roundoff */
    size_t count;
    bool broken;
    msp_tensor_pair first;
    size_t first_row;
} sums;

/* times > 0: each is repeated to so many elements. */
static void
add_tensor(sums *s, const msp_evidence_source *src, size_t row, double times)
{
    msp_tensor_pair t = msp_flow_pair(src, row);

    if (src->npu->rows[row].plain)
        return;
    s->broken = s->broken || t.one_side || t.resized;
    if (!t.known || !t.number)
        return;
    if (s->count++ == 0) {
        s->first = t;
        s->first_row = row;
    }
    for (int i = 0; i < 2; i++) {
        double repeat = times > 0 ? times / t.n : 1, norm = t.stats[i][MSP_STAT_NORM];

        s->sum[i] += t.stats[i][MSP_STAT_MEAN] * t.n * repeat;
        s->squares[i] += norm * norm * repeat;
    }
    s->n += t.n;
    s->unit = fmax(s->unit, t.unit);
}

static sums
add_all(const msp_evidence_source *src, const msp_row_api *api, bool results, double times)
{
    sums s = {0};

    for (size_t i = api->first; i < api->first + api->count; i++)
        if ((src->npu->rows[i].state >= STATE_OUTPUT) == results)
            add_tensor(&s, src, i, times);
    return s;
}

static bool
is_bias(const msp_evidence_source *src, const msp_row_api *api, size_t row, size_t nth)
{
    msp_str shape = msp_row_shape(src->npu, &src->npu->rows[row]);

    return nth > 0 && row + 1 == api->first + api->count && memchr(shape.p, ',', shape.len) == NULL;
}

static law_kind
forward_law(msp_str op)
{
    static const char *const means[] = {"mean",        "expand",     "repeat",
                                        "interpolate", "avg_pool2d", "adaptive_avg_pool2d",
                                        "avg_pool1d"},
                             *const adds[] = {"add", "iadd", "radd"};

    if (msp_flow_is_view(op))
        return LAW_COPY;
    if (msp_flow_is_parts(op))
        return LAW_PARTS;
    if (MSP_STR_IS_ONE_OF(op, adds))
        return LAW_ADD;
    if (MSP_STR_IS_ONE_OF(op, means))
        return LAW_MEAN;
    return msp_str_eq(op, MSP_STR("sum"))       ? LAW_SUM
           : msp_str_eq(op, MSP_STR("pow"))     ? LAW_SQUARE
           : msp_str_eq(op, MSP_STR("softmax")) ? LAW_ONES
                                                : LAW_NONE;
}

static law_kind
backward_law(msp_str op, bool bias, size_t nth)
{
    static const char *const biased[] = {"linear",     "conv1d",     "conv2d",    "conv3d",
                                         "layer_norm", "batch_norm", "group_norm"},
                             *const adds[] = {"add", "iadd", "radd"},
                             *const scatter[] = {"embedding", "max_pool1d", "max_pool2d", "interpolate", "index_add"},
                             *const centred[] = {"layer_norm", "batch_norm",  "group_norm",
                                                 "softmax",    "log_softmax", "cross_entropy"};

    if (msp_flow_is_view(op) && nth == 0)
        return LAW_COPY;
    if (msp_flow_is_parts(op))
        return LAW_PARTS;
    if (MSP_STR_IS_ONE_OF(op, adds) || (bias && MSP_STR_IS_ONE_OF(op, biased)) ||
        (nth == 0 && MSP_STR_IS_ONE_OF(op, scatter)))
        return LAW_SUM;
    return nth == 0 && MSP_STR_IS_ONE_OF(op, centred) ? LAW_ZERO : LAW_NONE;
}

/* The size of the dimension over which the bench's softmax was taken, 0: none fits. */
static double
softmax_size(const msp_evidence_source *src, size_t row, double mean)
{
    msp_str shape = msp_row_shape(src->npu, &src->npu->rows[row]);

    for (size_t i = 0; i < shape.len; i++) {
        double size = 0;

        for (; i < shape.len && shape.p[i] >= '0' && shape.p[i] <= '9'; i++)
            size = size * 10 + (shape.p[i] - '0');
        if (size > 1 && fabs(mean * size - 1) < 0.05)
            return size;
    }
    return 0;
}

/* How far either side is from the law, and what roundings are measured by. False: it does not apply. */
static bool
distance_from_law(double off[2], double *scale, law_kind law, const msp_evidence_source *src, const msp_row_api *api,
                  size_t row)
{
    msp_tensor_pair out = msp_flow_pair(src, row);
    sums in = add_all(src, api, false, law == LAW_ADD ? out.n : 0), given = add_all(src, api, true, 0);
    double rows = law == LAW_ONES ? softmax_size(src, row, out.stats[1][MSP_STAT_MEAN]) : 1, repeat;

    if (in.count == 0 || in.broken || given.broken || rows == 0 || !out.known)
        return false;
    if ((law == LAW_COPY && in.first.n != out.n) || (law == LAW_PARTS && in.n != given.n) ||
        (law == LAW_ADD && in.count != 2))
        return false;
    repeat = out.n / in.first.n;
    for (int i = 0; i < 2; i++) {
        double sum = out.stats[i][MSP_STAT_MEAN] * out.n, norm = in.first.stats[i][MSP_STAT_NORM];
        double first = in.first.stats[i][MSP_STAT_MEAN] * in.first.n;

        off[i] = fabs(law == LAW_COPY || law == LAW_SUM ? sum - first
                      : law == LAW_PARTS                ? given.sum[i] - in.sum[i]
                      : law == LAW_ADD                  ? sum - in.sum[i]
                      : law == LAW_MEAN                 ? sum - first * repeat
                      : law == LAW_SQUARE               ? sum - norm * norm
                      : law == LAW_ONES                 ? sum - out.n / rows
                                                        : sum);
    }
    *scale = law == LAW_PARTS  ? sqrt(fmax(in.squares[0], in.squares[1]))
             : law == LAW_ADD  ? sqrt(out.norm * out.norm + fmax(in.squares[0], in.squares[1]))
             : law == LAW_SUM  ? out.norm + in.first.norm
             : law == LAW_MEAN ? out.norm + in.first.norm * repeat
             : law == LAW_ZERO && in.first.n == out.n
                 ? out.norm + in.first.norm /* what is taken off has errors of its own size */
                 : out.norm;
    *scale *= fmax(out.unit, in.unit);
    return isfinite(off[0]) && isfinite(off[1]);
}

void
msp_law_check(msp_seen *out, const msp_evidence_source *src, const msp_row_api *api, size_t row, size_t nth)
{
    msp_str op = msp_verdict_operation(api->name);
    bool backward = msp_str_ends(api->name, MSP_STR(".backward"));
    law_kind law = backward ? backward_law(op, is_bias(src, api, row, nth), nth) : forward_law(op);
    double off[2], scale, change;

    if (law == LAW_NONE || !distance_from_law(off, &scale, law, src, api, row) || !(off[1] <= ROUNDINGS * scale) ||
        scale <= 0)
        return;
    out->law = off[0] / (ROUNDINGS * scale + 4 * off[1]);
    out->law_off = out->norm > 0 ? off[0] / out->norm : 0;
    change = fmax(fmax(out->noise[MSP_STAT_MAX], out->noise[MSP_STAT_MIN]), out->noise[MSP_STAT_NORM]) * out->big;
    out->holds = law <= LAW_ADD && ROUNDINGS * scale + 4 * off[1] < change && out->law < 1;
}
