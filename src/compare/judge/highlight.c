/*
 * highlight.c - see highlight.h.
 *
 * Some rules set an output against each input and parameter of its call. Whether any of them fires depends on the
 * largest or smallest of the inputs only, so an output costs a handful of comparisons; only where one fires are the
 * inputs walked, to name the reasons in the order in which the inputs give rise to them.
 */
#include "compare/judge/highlight.h"

#include <math.h>

typedef enum reason {
    RED_NOT_FINITE = 0,
    RED_ABS_ERROR,
    RED_RATIO,
    RED_REL_ERROR,
    YELLOW_MAGNITUDE,
    YELLOW_RATIO,
    YELLOW_REL_ERROR,
    YELLOW_COSINE,
    YELLOW_GRAD,
    NREASONS
} reason;

static const char *
reason_sentence(reason r)
{
    switch (r) {
    case RED_NOT_FINITE:
        return "maximum or minimum is nan, -inf, or inf";
    case RED_ABS_ERROR:
        return "maximum absolute error exceeds 1e+10";
    case RED_RATIO:
        return "The input/parameter's one thousandth err ratio exceeds 0.9, while the output's is below 0.6";
    case RED_REL_ERROR:
        return "maximum relative error exceeds 0.5";
    case YELLOW_MAGNITUDE:
        return "maximum absolute error of both input/parameters and output exceed 1, with the output larger by an "
               "order of magnitude";
    case YELLOW_RATIO:
        return "The output's one thousandth err ratio decreases by more than 0.1 compared to the input/parameter's";
    case YELLOW_REL_ERROR:
        return "The output's maximum relative error exceeds 0.1, while the input/parameter's is below 0.01";
    case YELLOW_COSINE:
        return "The output's cosine decreases by more than 0.1 compared to the input/parameter's";
    default:
        return "requires_grad is inconsistent";
    }
}

static bool
is_red(reason r)
{
    return r <= RED_REL_ERROR;
}

/* The reasons of one row in the order in which they came, each once. */
typedef struct reasons {
    reason list[NREASONS];
    size_t count;
    bool has[NREASONS];
} reasons;

static void
add_reason(reasons *rs, reason r)
{
    if (!rs->has[r]) {
        rs->has[r] = true;
        rs->list[rs->count++] = r;
    }
}

/* The numbers of one row that the rules look at; NAN where there is none. */
typedef struct facts {
    bool counts; /* maxima on both sides and their difference are numbers */
    double abs_err, rel_err, ratio, cosine;
} facts;

static double
number_or_nan(const msp_num *c)
{
    return c->word == NULL ? c->v : NAN;
}

static bool
has_number(const msp_val *v, double *out)
{
    return msp_val_number(v, out) && !isnan(*out);
}

static facts
facts_of(const msp_judged *j, msp_compare_mode mode)
{
    const msp_num *err = mode == MSP_MODE_REAL ? &j->metric[METRIC_MAX_ABS] : &j->diff[MSP_STAT_MAX];
    facts f = {false, NAN, NAN, NAN, NAN};
    double npu_max, bench_max;

    f.abs_err = fabs(number_or_nan(err));
    if (j->b == NULL || isnan(f.abs_err) || !has_number(&j->n->stats[MSP_STAT_MAX], &npu_max) ||
        !has_number(&j->b->stats[MSP_STAT_MAX], &bench_max))
        return f;
    f.counts = true;
    if (mode == MSP_MODE_REAL) {
        f.rel_err = number_or_nan(&j->metric[METRIC_MAX_REL]);
        f.ratio = number_or_nan(&j->metric[METRIC_ONE_THOUSANDTH]);
        f.cosine = number_or_nan(&j->metric[METRIC_COSINE]);
    } else {
        f.rel_err = f.abs_err / fmax(0.01, fabs(bench_max)); /* the manual leaves the sign open: -2 is not tiny */
    }
    return f;
}

static bool
is_not_finite(const msp_val *v)
{
    double d;

    return msp_val_number(v, &d) && !isfinite(d);
}

/* Rules about a row by itself that come before all others. */
static void
check_alone(reasons *rs, const msp_judged *j, double abs_err)
{
    if (is_not_finite(&j->n->stats[MSP_STAT_MAX]) || is_not_finite(&j->n->stats[MSP_STAT_MIN]))
        add_reason(rs, RED_NOT_FINITE);
    else if (abs_err > 1e10)
        add_reason(rs, RED_ABS_ERROR);
}

static bool
is_magnitude_larger(double in, double out)
{
    return in > 1 && out > 1 && out >= in && log10(out) - log10(in) >= 1;
}

/* One output against one input or parameter. */
static void
check_pair(reasons *rs, const facts *in, const facts *out, msp_compare_mode mode)
{
    if (is_magnitude_larger(in->abs_err, out->abs_err))
        add_reason(rs, YELLOW_MAGNITUDE);
    if (mode == MSP_MODE_REAL) {
        if (in->ratio > 0.9 && out->ratio < 0.6)
            add_reason(rs, RED_RATIO);
        else if (in->ratio - out->ratio > 0.1)
            add_reason(rs, YELLOW_RATIO);
    }
    if (out->rel_err > 0.1 && in->rel_err < 0.01)
        add_reason(rs, YELLOW_REL_ERROR);
    if (mode == MSP_MODE_REAL && in->cosine - out->cosine > 0.1)
        add_reason(rs, YELLOW_COSINE);
}

/* Over all inputs and parameters of a call; NAN while there is none. */
typedef struct extremes {
    facts worst_case; /* each number where it makes a rule fire most easily */
    bool any;
} extremes;

static void
widen_extremes(extremes *e, const facts *in)
{
    facts *w = &e->worst_case;

    if (!in->counts)
        return;
    if (!e->any)
        *w = (facts){true, NAN, NAN, NAN, NAN};
    e->any = true;
    /* fmin and fmax pass over NAN */
    if (in->abs_err > 1)
        w->abs_err = fmin(w->abs_err, in->abs_err);
    w->rel_err = fmin(w->rel_err, in->rel_err);
    w->ratio = fmax(w->ratio, in->ratio);
    w->cosine = fmax(w->cosine, in->cosine);
}

static bool
is_in(const msp_judged *j)
{
    return j->n->state == STATE_INPUT || j->n->state == STATE_PARAMETERS;
}

static void
check_output(reasons *rs, const msp_judged *rows, size_t n, const extremes *e, const facts *out, msp_compare_mode mode)
{
    reasons any = {0};

    if (!out->counts)
        return;
    if (mode == MSP_MODE_STATISTICS && out->rel_err > 0.5)
        add_reason(rs, RED_REL_ERROR);
    if (e->any)
        check_pair(&any, &e->worst_case, out, mode);
    if (any.count == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        facts in = facts_of(&rows[i], mode);

        if (is_in(&rows[i]) && in.counts)
            check_pair(rs, &in, out, mode);
    }
}

/* A red row tells its red reasons only. */
static void
show_reasons(msp_judged *j, const reasons *rs)
{
    bool red = false;

    for (size_t i = 0; i < rs->count; i++)
        red |= is_red(rs->list[i]);
    if (rs->count > 0)
        j->colour = red ? MSP_ROW_RED : MSP_ROW_YELLOW;
    for (size_t i = 0; i < rs->count; i++)
        if (is_red(rs->list[i]) == red) {
            if (j->message.len > 0)
                msp_buf_char(&j->message, '\n');
            msp_buf_text(&j->message, reason_sentence(rs->list[i]));
        }
}

void
msp_highlight_api(msp_judged *rows, size_t n, msp_compare_mode mode)
{
    extremes e = {0};

    for (size_t i = 0; i < n; i++)
        if (is_in(&rows[i])) {
            facts in = facts_of(&rows[i], mode);

            widen_extremes(&e, &in);
        }
    for (size_t i = 0; i < n; i++) {
        facts f = facts_of(&rows[i], mode);
        reasons rs = {0};

        check_alone(&rs, &rows[i], f.abs_err);
        if (rows[i].n->state == STATE_OUTPUT)
            check_output(&rs, rows, n, &e, &f, mode);
        if (!rows[i].consistent)
            add_reason(&rs, YELLOW_GRAD);
        show_reasons(&rows[i], &rs);
    }
}
