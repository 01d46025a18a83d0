/*
 * judge.c - rows measured and judged as ptdbg_ascend and torch_npu.hooks did.
 *
 * The numbers are the kernels'. The older rules differ from the newer in what they say where there is no number, and in
 * NaN and infinities: to them one NaN anywhere made the whole result NaN, while the kernels leave such places out. So
 * tensors that are not finite get a look at each element here.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include "compare/legacy/legacy.h"
#include "core/alloc.h"
#include "core/locale.h"
#include "core/log.h"
#include "dtype/convert.h"
#include "msprobe/metrics.h"

static const double EPSILON = 2.220446049250313e-16;

/* ---- numbers as text --------------------------------------------------------------------------------------------- */

/* A number whose sixth decimal is nowhere near a tie: half a microsecond less than printf takes. False: it is not. */
static bool
fixed_fast(char buf[MSP_FIXED_MAX], double v, size_t *len)
{
    double scaled = fabs(v) * 1e6, nearest = rint(scaled);
    char digits[MSP_INT_TEXT_MAX];
    size_t n, at = 0;
    uint64_t whole;

    /* below 2^40 the product is right to 2^-12 */
    if (!(scaled < 1e12) || fabs(fabs(scaled - nearest) - 0.5) < 0.001)
        return false;
    whole = (uint64_t)nearest;
    if (signbit(v))
        buf[at++] = '-';
    n = msp_u64_text(digits, whole / 1000000);
    memcpy(buf + at, digits, n);
    at += n;
    buf[at++] = '.';
    n = msp_u64_text(digits, 1000000 + whole % 1000000); /* a leading 1 keeps the zeros */
    memcpy(buf + at, digits + 1, n - 1);
    at += n - 1;
    buf[at] = '\0';
    *len = at;
    return true;
}

size_t
msp_legacy_fixed(char buf[MSP_FIXED_MAX], double v)
{
    size_t fast;

    if (fixed_fast(buf, v, &fast))
        return fast;
    if (isnan(v)) /* without the sign that C may print */
        return (size_t)msp_snprintf(buf, MSP_FIXED_MAX, "nan");
    return (size_t)msp_snprintf(buf, MSP_FIXED_MAX, "%.6f", v);
}

/* The number that its text with six decimals stands for. */
static double
rounded6(double v)
{
    char text[MSP_FIXED_MAX];
    double out = v;

    (void)msp_f64_parse((msp_str){text, msp_legacy_fixed(text, v)}, &out);
    return out;
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static msp_num
word_of(const char *text, double v)
{
    return (msp_num){text, v};
}

static msp_num
number_of(double v)
{
    return (msp_num){NULL, v};
}

static void
all_words(msp_judged *j, const char *text)
{
    for (int i = 0; i < NMETRICS; i++)
        j->metric[i] = word_of(text, NAN);
}

static void
set_message(msp_judged *j, const char *text)
{
    msp_buf_text(&j->message, text);
}

/* The largest |n - b|, NaN when there is one. For tensors that are not finite. */
static double
plain_max_abs(const msp_tensor *n, const msp_tensor *b)
{
    double max = 0;

    for (int64_t i = 0; i < n->numel; i++) {
        double d =
            fabs(msp_dtype_load_f64(n->dtype, msp_tensor_at(n, i)) - msp_dtype_load_f64(b->dtype, msp_tensor_at(b, i)));

        if (isnan(d))
            return NAN;
        max = d > max ? d : max;
    }
    return max;
}

static bool
are_equal(const msp_metrics *r)
{
    return r->mismatches == 0 && r->inf_sign == 0 && r->max_abs_err == 0;
}

/* ---- ptdbg_ascend 2.3 -------------------------------------------------------------------------------------------- */

/* The difference of two numbers is rounded to their own type there, where both have the same. */
static double
scalar_error(const msp_tensor *n, const msp_tensor *b)
{
    double d = fabs(msp_dtype_load_f64(n->dtype, n->data) - msp_dtype_load_f64(b->dtype, b->data));

    if (n->dtype == MSP_F32 && b->dtype == MSP_F32)
        return (float)d;
    return d;
}

static void
judge_scalar(msp_judged *j, const msp_tensor *n, const msp_tensor *b)
{
    double d = scalar_error(n, b);
    bool differs = n->dtype == MSP_BOOL && d != 0;

    j->metric[METRIC_COSINE] = differs ? word_of("0", 0) : word_of("1", 1);
    j->metric[METRIC_MAX_ABS] = number_of(d);
    set_message(j, "This is type of scalar data, can not compare.");
}

static void
judge_cosine(msp_judged *j, const msp_metrics *r)
{
    bool npu_zero = sqrt(r->sq_n) <= EPSILON, bench_zero = sqrt(r->sq_b) <= EPSILON;
    msp_num *out = &j->metric[METRIC_COSINE];
    double v;

    *out = word_of("Nan", NAN);
    if (r->count == 1) {
        *out = word_of("1.000000", 1);
        set_message(j, "This tensor is scalar.");
    } else if (r->nonfinite > 0 || (isnan(r->cosine) && npu_zero == bench_zero)) {
        set_message(j, "Cannot compare by Cosine Similarity, the dump data has NaN.");
    } else if (npu_zero != bench_zero) {
        set_message(j, npu_zero ? "Cannot compare by Cosine Similarity, All the data is Zero in npu dump data."
                                : "Cannot compare by Cosine Similarity, All the data is Zero in Bench dump data.");
    } else {
        v = rounded6(r->cosine);
        *out = v > 0.99999 ? word_of("1.0", 1) : number_of(v);
    }
}

/* By the texts that the table shows; an error of NaN is not above any limit. */
static msp_verdict
verdict_2(const msp_judged *j)
{
    const msp_num *cosine = &j->metric[METRIC_COSINE], *max_abs = &j->metric[METRIC_MAX_ABS];

    if (cosine->word != NULL && cosine->word[0] == 's')
        return VERDICT_UNMATCHED;
    if (isnan(cosine->v) || (max_abs->word != NULL && isnan(max_abs->v)))
        return VERDICT_NONE;
    return cosine->v < 0.99 && rounded6(max_abs->v) > 0.001 ? VERDICT_NO : VERDICT_YES;
}

static void
judge_2(msp_judged *j, const msp_measurer *m, const msp_tensor *n, const msp_tensor *b)
{
    msp_metrics r;

    if (n->numel == 0) {
        j->metric[METRIC_COSINE] = word_of("1", 1);
        j->metric[METRIC_MAX_ABS] = word_of("0", 0);
        set_message(j, "This is empty data, can not compare.");
        return;
    }
    if (msp_metrics_brief(&r, n, b, m->threads, NULL) != MSP_OK) { /* the only way for it to fail */
        all_words(j, "shape unmatched");
        set_message(j, "Shape of NPU and bench Tensor do not match. Skipped.");
        return;
    }
    if (n->ndim == 0) {
        judge_scalar(j, n, b);
        return;
    }
    if (n->dtype != b->dtype)
        set_message(j, "Dtype of NPU and bench Tensor do not match.");
    judge_cosine(j, &r);
    j->equal = are_equal(&r);
    j->metric[METRIC_MAX_ABS] = number_of(r.nonfinite == 0 ? r.max_abs_err : plain_max_abs(n, b));
}

/* ---- 3.x to 6.0 -------------------------------------------------------------------------------------------------- */

/* The words that those versions had for tensors of one element or none. */
static void
judge_3(msp_judged *j, const msp_measurer *m, const msp_tensor *n, const msp_tensor *b)
{
    msp_measure_opened(m, j, n, b);
    if (n->numel == 0) {
        j->metric[METRIC_MAX_ABS] = j->metric[METRIC_MAX_REL] = number_of(0);
    } else if (n->ndim == 0 && msp_tensor_same_shape(n, b)) {
        msp_buf_clear(&j->message);
        set_message(j, "This is type of scalar data, can not compare.");
        j->metric[METRIC_ONE_THOUSANDTH] = j->metric[METRIC_FIVE_THOUSANDTHS] = word_of("Nan", NAN);
    } else if (n->numel == 1 && j->metric[METRIC_COSINE].word != NULL && j->metric[METRIC_COSINE].word[0] == 'u') {
        msp_buf_clear(&j->message);
        set_message(j, "This tensor is scalar.");
    }
}

/* ---- torch_npu.hooks --------------------------------------------------------------------------------------------- */

/* Sum and mean with every zero and NaN in them, as NumPy has it. For tensors with a place that the kernels leave out.
 */
static void
plain_errors(const msp_tensor *n, const msp_tensor *b, double *rmse, double *mape)
{
    const double *x = n->data, *y = b->data;
    double squares = 0, relative = 0;

    for (int64_t i = 0; i < n->numel; i++) {
        double d = x[i] - y[i];

        squares += d * d;
        relative += fabs(d / y[i]);
    }
    *rmse = sqrt(squares / (double)n->numel);
    *mape = relative / (double)n->numel;
}

static bool
same_shape(const msp_judged *j, const msp_legacy_look *look)
{
    return msp_str_eq(msp_row_shape(look->npu, j->n), msp_row_shape(look->bench, j->b));
}

static void
judge_values(msp_judged *j, const msp_legacy_look *look, const msp_measurer *m, const msp_tensor *n,
             const msp_tensor *b)
{
    msp_metrics r;
    double rmse, mape;

    if (!same_shape(j, look)) {
        all_words(j, "cannot be calculated");
        return;
    }
    if (n->numel == 0 && b->numel == 0) {
        j->metric[METRIC_COSINE] = j->metric[METRIC_RMSE] = j->metric[METRIC_MAPE] = word_of("empty", NAN);
        return;
    }
    if (msp_metrics_brief(&r, n, b, m->threads, NULL) != MSP_OK) {
        all_words(j, "cannot be calculated");
        return;
    }
    j->equal = are_equal(&r);
    rmse = r.euc_dist / sqrt((double)r.count); /* to the last bit what the original has */
    mape = r.mape;
    if (r.nonfinite > 0 || r.mape_count < r.count)
        plain_errors(n, b, r.nonfinite == 0 ? &(double){0} : &rmse, &mape);
    /* the kernels call two vectors of zeros equal; here a vector of zeros has no direction */
    j->metric[METRIC_COSINE] = number_of(r.nonfinite > 0 || r.sq_n == 0 || r.sq_b == 0 ? NAN : r.cosine);
    j->metric[METRIC_RMSE] = number_of(rmse);
    j->metric[METRIC_MAPE] = number_of(rint(mape * 100 * 1e4) / 1e4);
    if (isinf(mape) || fabs(mape) > 1e9) /* no decimals left to round */
        j->metric[METRIC_MAPE].v = mape * 100;
}

/* ---- a row ------------------------------------------------------------------------------------------------------- */

static const char *
missing_file(const msp_measurer *m, const msp_row *r, int side, msp_buf *path)
{
    msp_buf_printf(path, "%s/%.*s", m->dirs[side] != NULL ? m->dirs[side] : ".", (int)r->file_len, r->file);
    return path->failed ? "" : path->p;
}

/* The original's sentence for a missing file; the reader's own for one that is there. */
static void
cannot_read(msp_judged *j, const msp_measurer *m, int side, const msp_error *err)
{
    msp_buf path = {0};

    j->unreadable = true;
    if (err->status == MSP_E_CHANGED)
        j->cut = side == 0 ? j->n : j->b;
    all_words(j, m->values ? "cannot be calculated" : "Nan");
    if (err->status == MSP_E_NOT_FOUND && !m->values)
        msp_buf_printf(&j->message, "Dump file:%s not found", missing_file(m, side == 0 ? j->n : j->b, side, &path));
    else
        msp_buf_printf(&j->message, "%s", err->message);
    msp_buf_release(&path);
}

static void
judge_tensors(msp_judged *j, const msp_legacy_look *look, const msp_measurer *m)
{
    msp_tensor n, b;
    msp_error err;

    if (msp_measure_take(&n, m, 0, j, &err) != MSP_OK) {
        cannot_read(j, m, 0, &err);
        return;
    }
    if (msp_measure_take(&b, m, 1, j, &err) != MSP_OK) {
        cannot_read(j, m, 1, &err);
    } else {
        j->bytes = n.numel * (int64_t)msp_dtype_size(n.dtype) + b.numel * (int64_t)msp_dtype_size(b.dtype);
        if (look->form == MSP_LEGACY_PTDBG_2)
            judge_2(j, m, &n, &b);
        else if (look->form == MSP_LEGACY_HOOKS)
            judge_values(j, look, m, &n, &b);
        else
            judge_3(j, m, &n, &b);
        if (msp_measure_note_cut(m, j, &n, &b)) {
            msp_error_set(&err, MSP_E_CHANGED, "Dump file was cut short while it was read");
            msp_buf_clear(&j->message);
            cannot_read(j, m, j->cut == j->b, &err);
        }
        msp_tensor_release(&b);
    }
    msp_tensor_release(&n);
}

static void
judge_real(msp_judged *j, const msp_legacy_look *look, const msp_measurer *m, bool fuzzy)
{
    bool hooks = look->form == MSP_LEGACY_HOOKS;

    if (j->b == NULL) {
        all_words(j, hooks ? "unmatched" : "Nan");
        set_message(j, "No bench data matched.");
    } else {
        judge_tensors(j, look, m);
        if (fuzzy && !msp_str_eq(msp_row_name(j->n), msp_row_name(j->b)))
            set_message(j, " Fuzzy matching data, the comparison accuracy may be affected.");
    }
    if (hooks)
        j->verdict = VERDICT_NONE;
    else
        j->verdict = look->form == MSP_LEGACY_PTDBG_2
                         ? verdict_2(j)
                         : msp_judge_accuracy(&j->metric[METRIC_COSINE], &j->metric[METRIC_MAX_ABS]);
    if (j->b == NULL || j->unreadable)
        j->verdict = VERDICT_NONE;
}

void
msp_legacy_judge(msp_judged *j, msp_compare_mode mode, const msp_legacy_look *look, const msp_measurer *m, bool fuzzy)
{
    if (mode != MSP_MODE_REAL) {
        msp_judge_row(j, mode, m, fuzzy);
        return;
    }
    j->consistent = true;
    j->unreadable = false;
    j->colour = MSP_ROW_PLAIN;
    j->bytes = 0;
    for (int i = 0; i < NMETRICS; i++)
        j->metric[i] = word_of("Nan", NAN);
    judge_real(j, look, m, fuzzy);
}

void
msp_legacy_log_row(const msp_legacy_look *look, const msp_judged *j)
{
    char text[2][MSP_FIXED_MAX];
    const msp_num *c[2] = {&j->metric[METRIC_COSINE], &j->metric[METRIC_MAX_ABS]};

    if (look->form == MSP_LEGACY_HOOKS)
        return;
    for (int i = 0; i < 2; i++)
        if (c[i]->word == NULL)
            msp_legacy_fixed(text[i], c[i]->v);
    msp_info("start comapre: %.*s", (int)j->n->name_len, j->n->name); /* as the original spells it */
    msp_info("[%.*s] Compare result: cosine %s, max_abs_err %s, %s", (int)j->n->name_len, j->n->name,
             c[0]->word != NULL ? c[0]->word : text[0], c[1]->word != NULL ? c[1]->word : text[1],
             j->message.len > 0 ? j->message.p : "");
}
