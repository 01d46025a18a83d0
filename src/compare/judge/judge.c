/* judge.c - see judge.h. Thresholds and sentences are the manual's. */
#include "compare/judge/judge.h"

#include <math.h>

/* The cells are equal: a row without partner has N/A there. */
static bool
grads_agree(const msp_row *n, const msp_row *b)
{
    return n->requires_grad == (b == NULL ? FLAG_ABSENT : b->requires_grad);
}

/* ---- real data --------------------------------------------------------------------------------------------------- */

static bool
is_word(const msp_num *c, const char *word)
{
    return c->word != NULL && strcmp(c->word, word) == 0;
}

msp_verdict
msp_judge_accuracy(const msp_num *cosine, const msp_num *max_abs)
{
    double c, a;

    if (is_word(cosine, "shape unmatched"))
        return VERDICT_UNMATCHED;
    if (is_word(cosine, "N/A") || is_word(max_abs, "N/A"))
        return VERDICT_NO;
    if (!msp_num_value(cosine, &c) || !msp_num_value(max_abs, &a))
        return VERDICT_NONE;
    if (c < 0.99 && a > 0.001)
        return VERDICT_NO;
    return c < 0.9 || a > 1 ? VERDICT_NO : VERDICT_YES;
}

static void
judge_real(msp_judged *j, const msp_measurer *m, bool fuzzy)
{
    if (!j->consistent)
        msp_buf_text(&j->message, "Requires_grad inconsistent. ");
    else if (j->b == NULL)
        msp_buf_text(&j->message, "No bench data matched.");
    msp_measure_tensors(m, j);
    if (fuzzy && j->b != NULL && !msp_str_eq(msp_row_name(j->n), msp_row_name(j->b)))
        msp_buf_text(&j->message, " Fuzzy matching data, the comparison accuracy may be affected.");
    j->verdict = msp_judge_accuracy(&j->metric[METRIC_COSINE], &j->metric[METRIC_MAX_ABS]);
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

/*
 * A relative error to a bench value of 0 has no number; what is left is whether the difference is one at all. 1e-10 is
 * the original's bound for that.
 */
static bool
exceeds_limit(const msp_num *diff, const msp_num *rel)
{
    if (diff->word != NULL)
        return false;
    if (rel->word != NULL)
        return fabs(diff->v) > 1e-10;
    return rel->v > MSP_JUDGE_REL_LIMIT * 100;
}

/* A statistic that is a number on one side and NaN or infinite on the other. */
static bool
is_one_sided(const msp_val *npu, const msp_val *bench)
{
    double n, b;

    return msp_val_number(npu, &n) && msp_val_number(bench, &b) && isfinite(n) != isfinite(b);
}

static void
judge_stats(msp_judged *j)
{
    bool warn = false;

    if (j->b == NULL) {
        for (int i = 0; i < MSP_NSTATS; i++)
            j->diff[i] = j->rel[i] = (msp_num){"N/A", 0};
        j->verdict = VERDICT_NA;
        msp_buf_text(&j->message, "No bench data matched.");
    } else {
        msp_measure_stats(j);
        for (int i = 0; i < MSP_NSTATS; i++)
            warn |= exceeds_limit(&j->diff[i], &j->rel[i]) || is_one_sided(&j->n->stats[i], &j->b->stats[i]);
        j->verdict = warn ? VERDICT_WARNING : VERDICT_CLEAN;
        if (warn)
            msp_buf_text(&j->message, "Need double check api accuracy. ");
    }
    if (!j->consistent)
        msp_buf_text(&j->message, "Requires_grad inconsistent. ");
}

/* ---- md5 --------------------------------------------------------------------------------------------------------- */

static msp_str
checksum_text(const msp_val *v)
{
    return v->kind == VAL_TEXT ? (msp_str){v->as.p, v->len} : MSP_STR("N/A");
}

/* A whole whose checksum does not follow from those of its parts. */
static bool
is_unknown(const msp_row *r)
{
    return r->whole != 0 && msp_str_eq(checksum_text(&r->md5), MSP_STR("N/A"));
}

/* How the tensors were put together, as far as that matters. */
static void
tell_parts(msp_judged *j, const msp_measurer *m)
{
    const msp_row *rows[2] = {j->n, j->b};

    for (int side = 0; m != NULL && side < 2; side++) {
        const char *note =
            rows[side] != NULL && m->whole[side] != NULL ? msp_whole_note(m->whole[side], rows[side]) : NULL;

        if (note != NULL)
            msp_buf_printf(&j->message, "%sLayout, %s side: %s.", j->message.len > 0 ? " " : "",
                           side == 0 ? "NPU" : "bench", note);
    }
}

static void
judge_md5(msp_judged *j)
{
    if (j->b == NULL || is_unknown(j->n) || is_unknown(j->b))
        j->verdict = VERDICT_NA;
    else
        j->verdict =
            msp_str_eq(checksum_text(&j->n->md5), checksum_text(&j->b->md5)) ? VERDICT_PASS : VERDICT_DIFFERENT;
}

void
msp_judge_row(msp_judged *j, msp_compare_mode mode, const msp_measurer *m, bool fuzzy)
{
    j->consistent = grads_agree(j->n, j->b);
    j->unreadable = false;
    j->cut = NULL;
    j->colour = MSP_ROW_PLAIN;
    j->bytes = 0;
    switch (mode) {
    case MSP_MODE_REAL:
        judge_real(j, m, fuzzy);
        break;
    case MSP_MODE_STATISTICS:
        judge_stats(j);
        break;
    case MSP_MODE_MD5:
        judge_md5(j);
        break;
    }
    tell_parts(j, m);
}
