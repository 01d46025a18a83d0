/*
 * measure_tensors.c - the six metrics of two tensor files.
 *
 * The kernels give unrounded numbers; here they become what the table shows, with the words and sentences for tensors
 * that cannot be compared.
 */
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include "compare/judge/measure.h"
#include "text/pytext.h"
#include "core/alloc.h"
#include "dtype/convert.h"
#include "dump/legacy.h"
#include "io/tensor_file.h"
#include "dump/dump_read.h"
#include "msprobe/metrics.h"

static const double EPSILON = 2.220446049250313e-16;

static void
all_metrics(msp_judged *j, const char *word, const char *why)
{
    for (int i = 0; i < NMETRICS; i++)
        j->metric[i] = (msp_num){word, 0};
    msp_buf_text(&j->message, why);
}

/* Twelve decimals, as the table shows. Beyond 2^52 / 10^12 a double has none left to round. */
static double
round_as_shown(double v)
{
    return fabs(v) < 4503.0 ? rint(v * 1e12) / 1e12 : v;
}

/* The largest number of the type in which the relative errors of two tensors are shown. */
static double
largest_of_type(const msp_tensor *n, const msp_tensor *b)
{
    if (msp_dtype_class_of(n->dtype) != MSP_CLASS_FLOAT || msp_dtype_class_of(b->dtype) != MSP_CLASS_FLOAT ||
        n->dtype == MSP_F64 || b->dtype == MSP_F64)
        return DBL_MAX;
    return n->dtype == MSP_F16 && b->dtype == MSP_F16 ? 65504.0 : FLT_MAX;
}

/* In that type it is infinite when it, or the difference on the way to it, does not fit. */
static double
shown_rel(const msp_metrics *m, const msp_tensor *n, const msp_tensor *b)
{
    double largest = largest_of_type(n, b);

    return m->max_rel_err > largest || m->max_abs_err > largest ? INFINITY : m->max_rel_err;
}

static void
set_max_errors(msp_judged *j, double abs_err, double rel_err)
{
    j->metric[METRIC_MAX_ABS] = (msp_num){NULL, round_as_shown(abs_err)};
    j->metric[METRIC_MAX_REL] = (msp_num){NULL, round_as_shown(rel_err)};
    if (isnan(abs_err)) {
        j->metric[METRIC_MAX_ABS].word = "Nan";
        msp_buf_text(&j->message, "Cannot compare by MaxAbsError, the data contains nan/inf/-inf in dump data.");
    }
    if (isnan(rel_err)) {
        j->metric[METRIC_MAX_REL].word = "Nan";
        msp_buf_text(&j->message, "Cannot compare by MaxRelativeError, the data contains nan/inf/-inf in dump data.");
    }
}

static void
set_cosine(msp_judged *j, const msp_metrics *m)
{
    bool npu_zero = sqrt(m->sq_n) <= EPSILON, bench_zero = sqrt(m->sq_b) <= EPSILON;
    msp_num *out = &j->metric[METRIC_COSINE];

    if (m->count == 1) {
        *out = (msp_num){"unsupported", 0};
        msp_buf_text(&j->message, "This is a 1-d tensor of length 1.");
    } else if (npu_zero != bench_zero) {
        *out = (msp_num){"Nan", 0};
        msp_buf_printf(&j->message, "Cannot compare by Cosine Similarity, All the data is Zero in %s dump data.",
                       npu_zero ? "npu" : "Bench");
    } else if (isnan(m->cosine)) {
        *out = (msp_num){"Nan", 0};
        msp_buf_text(&j->message, "Cannot compare by Cosine Similarity, the dump data has NaN.");
    } else {
        double v = round_as_shown(m->cosine);

        *out = (msp_num){NULL, v > 0.9999 ? rint(v * 1e6) / 1e6 : v};
    }
}

static void
set_metrics(msp_judged *j, const msp_metrics *m, const msp_tensor *n, const msp_tensor *b)
{
    set_cosine(j, m);
    j->norm = sqrt(fmax(m->sq_n, m->sq_b));
    j->metric[METRIC_EUC_DIST] = (msp_num){NULL, m->euc_dist};
    set_max_errors(j, m->max_abs_err, shown_rel(m, n, b));
    j->metric[METRIC_ONE_THOUSANDTH] = (msp_num){NULL, round_as_shown((double)m->below_1e3 / (double)m->count)};
    j->metric[METRIC_FIVE_THOUSANDTHS] = (msp_num){NULL, round_as_shown((double)m->below_5e3 / (double)m->count)};
}

/* Two numbers of narrow types are subtracted in the wider of these, as the original does. */
static double
scalar_difference(const msp_tensor *n, const msp_tensor *b, double x, double y, double exact)
{
    double largest = largest_of_type(n, b);
    float f = (float)x - (float)y;

    if (largest == DBL_MAX)
        return exact;
    return fabs((double)(largest == FLT_MAX ? f : msp_f16_to_f32(msp_f32_to_f16(f))));
}

/* Tensors without dimensions have errors only; where a side is not finite they follow from arithmetic. */
static void
set_scalar(msp_judged *j, const msp_metrics *m, const msp_tensor *n, const msp_tensor *b)
{
    double x = msp_dtype_load_f64(n->dtype, n->data), y = msp_dtype_load_f64(b->dtype, b->data);
    double abs_err = scalar_difference(n, b, x, y, m->max_abs_err), rel_err = shown_rel(m, n, b);

    for (int i = 0; i < NMETRICS; i++)
        j->metric[i] = (msp_num){"unsupported", 0};
    msp_buf_text(&j->message, "This is type of 0-d tensor, can not calculate 'Cosine', 'EucDist', 'One Thousandth Err "
                              "Ratio' and 'Five Thousandths Err Ratio'. ");
    if (!isfinite(x) || !isfinite(y)) {
        abs_err = fabs(x - y);
        rel_err = fabs((x - y) / y);
    }
    set_max_errors(j, abs_err, rel_err);
}

/* bfloat16 and the 8-bit floats are compared as float32, so against it they are no other type. */
static msp_dtype
compared_as(msp_dtype t)
{
    return msp_dtype_class_of(t) == MSP_CLASS_FLOAT && t != MSP_F64 && t != MSP_F16 ? MSP_F32 : t;
}

/* The metrics of both, in words where they say nothing; n and b need no data unless they are scalars. */
static void
tell_metrics(msp_judged *j, const msp_metrics *r, const msp_tensor *n, const msp_tensor *b)
{
    if (n->ndim == 0) {
        set_scalar(j, r, n, b);
        return;
    }
    if (r->mismatches > 0) {
        all_metrics(j, "N/A", "The Position of inf or nan in NPU and bench Tensor do not match.");
        return;
    }
    if (compared_as(n->dtype) != compared_as(b->dtype))
        msp_buf_text(&j->message, "Dtype of NPU and bench Tensor do not match.");
    set_metrics(j, r, n, b);
}

void
msp_measure_opened(const msp_measurer *m, msp_judged *j, const msp_tensor *n, const msp_tensor *b)
{
    msp_metrics r;

    j->bytes = n->numel * (int64_t)msp_dtype_size(n->dtype) + b->numel * (int64_t)msp_dtype_size(b->dtype);
    if (n->numel == 0) {
        all_metrics(j, "unsupported", "This is empty data, can not compare.");
        return;
    }
    if (msp_metrics_brief(&r, n, b, m->threads, NULL) != MSP_OK) { /* the only way for it to fail */
        all_metrics(j, "shape unmatched", "Shape of NPU and bench Tensor do not match. Skipped.");
        return;
    }
    tell_metrics(j, &r, n, b);
}

static msp_status
check_owner(int fd, const char *dir, const char *name, msp_error *err)
{
    struct stat info;
    msp_buf path = {0};
    msp_status st;

    /* looked at from the folder that is open: the walk to it costs more */
    if (fd >= 0 && fstatat(fd, name, &info, 0) == 0 && (info.st_mode & S_IWOTH) == 0)
        return MSP_OK;
    msp_buf_printf(&path, "%s/%s", dir, name);
    st = msp_buf_status(&path, err);
    if (st == MSP_OK)
        st = msp_dump_check_owner(path.p, err);
    msp_buf_release(&path);
    return st;
}

msp_status
msp_measure_open(msp_tensor *out, const msp_measurer *m, int side, const msp_row *r, msp_error *err)
{
    char name[NAME_MAX + 1];
    msp_status st;

    if (r->whole != 0)
        return msp_whole_tensor(out, m->whole[side], r, err);
    if (m->values)
        return msp_legacy_open_values(out, msp_row_file(r), err);
    /* a name with a slash would lead out of the dump */
    if (r->file_len >= sizeof(name) || memchr(r->file, '/', r->file_len) != NULL)
        return msp_error_set(err, MSP_E_INVALID, "%.*s: no name of a file in dump_tensor_data", (int)r->file_len,
                             r->file);
    memcpy(name, r->file, r->file_len);
    name[r->file_len] = '\0';
    if (m->open_to_all[side] && (st = check_owner(m->fds[side], m->dirs[side], name, err)) != MSP_OK)
        return st;
    st = m->fds[side] < 0 ? msp_error_set(err, MSP_E_NOT_FOUND, "%s: cannot open the folder", name)
                          : msp_tensor_open_at(out, m->fds[side], name, err);
    return st == MSP_OK ? MSP_OK : msp_error_prefix(err, st, "%s/", m->dirs[side]);
}

msp_status
msp_measure_take(msp_tensor *out, const msp_measurer *m, int side, const msp_judged *j, msp_error *err)
{
    const msp_row *r = side == 0 ? j->n : j->b;
    msp_status st;

    if (j->ahead[side].len == 0 || r->whole != 0)
        return msp_measure_open(out, m, side, r, err);
    st = msp_tensor_parse(out, j->ahead[side].p, j->ahead[side].len, err);
    return st == MSP_OK ? MSP_OK : msp_error_prefix(err, st, "%s/%.*s: ", m->dirs[side], (int)r->file_len, r->file);
}

static void
read_failed(msp_judged *j)
{
    j->unreadable = true;
    all_metrics(j, "unsupported", "Dump file: [");
    msp_py_repr_text(&j->message, msp_row_file(j->n));
    msp_buf_text(&j->message, ", ");
    msp_py_repr_text(&j->message, msp_row_file(j->b));
    msp_buf_text(&j->message, "] not found or read failed.");
}

bool
msp_measure_is_cut(const msp_measurer *m, int side, const msp_row *r, const msp_tensor *t)
{
    char name[NAME_MAX + 1];

    if (m->values || r->whole != 0)
        return false; /* parts are looked at when they are put together */
    snprintf(name, sizeof(name), "%.*s", (int)r->file_len, r->file);
    return msp_tensor_check_at(t, m->fds[side], name, NULL) != MSP_OK;
}

bool
msp_measure_note_cut(const msp_measurer *m, msp_judged *j, const msp_tensor *n, const msp_tensor *b)
{
    j->cut = msp_measure_is_cut(m, 0, j->n, n) ? j->n : msp_measure_is_cut(m, 1, j->b, b) ? j->b : NULL;
    return j->cut != NULL;
}

/* One side in parts, each of which is compared with its place in the other: no copy is made. */
static void
measure_parts(const msp_measurer *m, msp_judged *j, int side)
{
    const msp_row *row = side == 0 ? j->n : j->b;
    msp_tensor other, like;
    msp_metrics r;
    msp_status st = msp_measure_take(&other, m, 1 - side, j, NULL);

    if (st != MSP_OK) {
        j->cut = st != MSP_E_CHANGED ? NULL : side == 0 ? j->b : j->n;
        read_failed(j);
        return;
    }
    st = msp_whole_metrics(&r, &like, m->whole[side], row, side, &other, m->threads, NULL);
    if (st == MSP_E_CHANGED)
        j->cut = row;
    else if (msp_measure_is_cut(m, 1 - side, side == 0 ? j->b : j->n, &other)) {
        j->cut = side == 0 ? j->b : j->n;
        st = MSP_E_CHANGED;
    }
    if (st == MSP_E_INVALID)
        all_metrics(j, "shape unmatched", "Shape of NPU and bench Tensor do not match. Skipped.");
    else if (st != MSP_OK)
        read_failed(j);
    else if (like.numel == 0)
        all_metrics(j, "unsupported", "This is empty data, can not compare.");
    else
        tell_metrics(j, &r, side == 0 ? &like : &other, side == 0 ? &other : &like);
    if (st == MSP_OK)
        j->bytes =
            like.numel * (int64_t)msp_dtype_size(like.dtype) + other.numel * (int64_t)msp_dtype_size(other.dtype);
    msp_tensor_release(&other);
}

static void
measure_files(const msp_measurer *m, msp_judged *j)
{
    msp_tensor n, b;
    msp_status st;

    for (int side = 0; side < 2; side++)
        if (m->whole[side] != NULL && msp_whole_has_slices(m->whole[side], side == 0 ? j->n : j->b)) {
            measure_parts(m, j, side);
            return;
        }
    st = msp_measure_take(&n, m, 0, j, NULL);
    if (st != MSP_OK) {
        j->cut = st == MSP_E_CHANGED ? j->n : NULL;
        read_failed(j);
        return;
    }
    st = msp_measure_take(&b, m, 1, j, NULL);
    if (st != MSP_OK) {
        j->cut = st == MSP_E_CHANGED ? j->b : NULL;
        read_failed(j);
    } else {
        msp_measure_opened(m, j, &n, &b);
        if (msp_measure_note_cut(m, j, &n, &b)) {
            msp_buf_clear(&j->message);
            read_failed(j);
        }
        msp_tensor_release(&b);
    }
    msp_tensor_release(&n);
}

/* Numbers, texts, lists and None have a checksum of their text, None excepted; 1 and 1.0 are the same to a person. */
static bool
same_plain(const msp_row *n, const msp_row *b)
{
    double x, y;

    if (msp_val_number(&n->stats[MSP_STAT_MAX], &x) && msp_val_number(&b->stats[MSP_STAT_MAX], &y))
        return x == y || (isnan(x) && isnan(y));
    return n->md5.kind == b->md5.kind &&
           (n->md5.kind != VAL_TEXT || (n->md5.len == b->md5.len && memcmp(n->md5.as.p, b->md5.as.p, n->md5.len) == 0));
}

void
msp_measure_tensors(const msp_measurer *m, msp_judged *j)
{
    if (j->n->plain && j->b != NULL && j->b->plain)
        all_metrics(j, "unsupported",
                    same_plain(j->n, j->b) ? "No tensor but a plain value, the same on both sides."
                                           : "No tensor but a plain value, another one on either side.");
    else if (j->n->plain)
        all_metrics(j, "unsupported", "No tensor but a plain value.");
    else if (j->n->file == NULL)
        all_metrics(j, "unsupported", "NPU does not have data file.");
    else if (j->b == NULL)
        all_metrics(j, "unsupported", "Bench api/module unmatched.");
    else if (j->b->file == NULL)
        all_metrics(j, "unsupported", "Bench does not have data file.");
    else
        measure_files(m, j);
}
