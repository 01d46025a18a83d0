/* suspect.c - see suspect.h. */
#include "compare/explain/suspect.h"

#include <math.h>

#include "compare/judge/judge.h"
#include "compare/legacy/legacy.h"
#include "compare/run/run.h"
#include "compare/judge/show.h"
#include "core/alloc.h"
#include "core/number.h"

static char *
cell_text(msp_cell c)
{
    msp_buf text = {0};
    char *copy;

    msp_show_cell_text(&text, c);
    copy = text.failed ? NULL : msp_result_text(msp_buf_view(&text));
    msp_buf_release(&text);
    return copy;
}

/* Texts of the two rows; the bench's are N/A where there is none. */
static bool
describe_side(msp_compare_suspect *out, const msp_suspect_source *src, int side)
{
    const msp_row *r = src->row[side];
    bool ok = true;

    out->dtype[side] = msp_result_text(r == NULL ? MSP_STR("N/A") : msp_row_dtype(src->rows[side], r));
    out->shape[side] = msp_result_text(r == NULL ? MSP_STR("N/A") : msp_row_shape(src->rows[side], r));
    ok = out->dtype[side] != NULL && out->shape[side] != NULL;
    if (src->mode == MSP_MODE_MD5) {
        out->md5[side] =
            r == NULL || r->md5.kind == VAL_NONE ? msp_result_text(MSP_STR("N/A")) : cell_text(msp_show_value(&r->md5));
        return ok && out->md5[side] != NULL;
    }
    for (int i = 0; i < MSP_NSTATS; i++) {
        out->stats[side][i] = r == NULL ? msp_result_text(MSP_STR("N/A")) : cell_text(msp_show_value(&r->stats[i]));
        ok = ok && out->stats[side][i] != NULL;
    }
    return ok;
}

static bool
describe_differences(msp_compare_suspect *out, const msp_judged *j)
{
    bool ok = true;

    for (int i = 0; i < MSP_NSTATS; i++) {
        char percent[40];
        size_t n = 0;

        out->diff[i] = j->diff[i].word != NULL ? msp_result_text(msp_str_of(j->diff[i].word))
                                               : cell_text(msp_cell_float(j->diff[i].v));
        if (j->rel[i].word == NULL) {
            n = msp_f64_repr(percent, j->rel[i].v);
            percent[n++] = '%';
        }
        out->rel[i] = msp_result_text(j->rel[i].word != NULL ? msp_str_of(j->rel[i].word) : (msp_str){percent, n});
        ok = ok && out->diff[i] != NULL && out->rel[i] != NULL;
    }
    return ok;
}

void
msp_suspect_tensors(msp_compare_suspect *out, const msp_tensor *n, const msp_tensor *b, int threads)
{
    int64_t at;

    if (msp_metrics_compute_mt(&out->metrics, n, b, threads, NULL) != MSP_OK)
        return;
    out->has_metrics = true;
    at = out->metrics.mismatches > 0 ? out->metrics.first_mismatch : out->metrics.max_abs_index;
    if (at < 0)
        return;
    out->has_worst = true;
    out->worst_index = at;
    out->worst_ndim = n->ndim;
    msp_tensor_unravel(n, at, out->worst_coords);
    msp_dtype_format(out->worst_value[0], n->dtype, msp_tensor_at(n, at));
    msp_dtype_format(out->worst_value[1], b->dtype, msp_tensor_at(b, at));
}

static void
describe_tensors(msp_compare_suspect *out, const msp_suspect_source *src)
{
    msp_tensor n = {0}, b = {0};

    if (src->row[0]->file == NULL || src->row[1] == NULL || src->row[1]->file == NULL)
        return;
    if (msp_measure_open(&n, src->measurer, 0, src->row[0], NULL) == MSP_OK &&
        msp_measure_open(&b, src->measurer, 1, src->row[1], NULL) == MSP_OK)
        msp_suspect_tensors(out, &n, &b, src->measurer->threads);
    if (out->has_metrics && (msp_measure_is_cut(src->measurer, 0, src->row[0], &n) ||
                             msp_measure_is_cut(src->measurer, 1, src->row[1], &b)))
        out->has_metrics = out->has_worst = false;
    msp_tensor_release(&n);
    msp_tensor_release(&b);
}

/* The same text in both tables: 1 and 1.0 are not the same to every function, but to a person they are. */
static bool
same_value(const msp_val *a, const msp_val *b)
{
    double x, y;

    if (msp_val_number(a, &x) && msp_val_number(b, &y))
        return x == y || (isnan(x) && isnan(y));
    if (a->kind != b->kind)
        return false;
    return a->kind == VAL_TEXT ? a->len == b->len && memcmp(a->as.p, b->as.p, a->len) == 0 : a->as.i == b->as.i;
}

/* "npu:0", "cuda", "torch.bfloat16": where and in which type a run computes is its own affair. */
static bool
names_a_place(const msp_val *v)
{
    static const char *const starts[] = {"npu", "cuda", "cpu", "gpu", "xpu", "mps",    "meta",
                                         "NPU", "CUDA", "CPU", "GPU", "MPS", "Ascend", "torch."};
    msp_str text = {v->as.p, v->len};

    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
        if (msp_str_starts(text, msp_str_of(starts[i])))
            return true;
    return false;
}

static bool
is_passed_differently(const msp_suspect_source *src, size_t row, bool texts)
{
    const msp_row *n = &src->rows[0]->rows[row], *b;

    if (n->state != STATE_INPUT || !n->plain || src->match->bench[row] == MATCH_NONE)
        return false;
    b = &src->rows[1]->rows[src->match->bench[row]];
    return b->plain && n->stats[MSP_STAT_MAX].kind != VAL_NONE &&
           (texts || (n->stats[MSP_STAT_MAX].kind != VAL_TEXT && b->stats[MSP_STAT_MAX].kind != VAL_TEXT)) &&
           !same_value(&n->stats[MSP_STAT_MAX], &b->stats[MSP_STAT_MAX]);
}

bool
msp_suspect_argument_differs(const msp_suspect_source *src, size_t row)
{
    const msp_val *n = &src->rows[0]->rows[row].stats[MSP_STAT_MAX], *b;
    double x, y;

    if (!is_passed_differently(src, row, true))
        return false;
    b = &src->rows[1]->rows[src->match->bench[row]].stats[MSP_STAT_MAX];
    if (n->kind == VAL_TEXT && b->kind == VAL_TEXT && names_a_place(n) && names_a_place(b))
        return false;
    return !((n->kind == VAL_FLOAT || b->kind == VAL_FLOAT) && msp_val_number(n, &x) && msp_val_number(b, &y) &&
             fabs(x - y) <= fmax(fabs(x), fabs(y)) / 64);
}

/* The first such row, or to. */
static size_t
find_argument(const msp_suspect_source *src, size_t from, size_t to, bool texts)
{
    while (from < to && !is_passed_differently(src, from, texts))
        from++;
    return from;
}

void
msp_suspect_argument_text(msp_buf *out, const msp_suspect_source *src, size_t row, bool whole)
{
    const msp_row *n = &src->rows[0]->rows[row];
    msp_str name = msp_row_name(n), api = src->rows[0]->apis[n->api].name;

    if (!whole && msp_str_starts(name, api) && name.len > api.len + 1)
        name = (msp_str){name.p + api.len + 1, name.len - api.len - 1};
    msp_buf_str(out, name);
    msp_buf_text(out, ": NPU ");
    msp_show_cell_text(out, msp_show_value(&n->stats[MSP_STAT_MAX]));
    msp_buf_text(out, ", bench ");
    msp_show_cell_text(out, msp_show_value(&src->rows[1]->rows[src->match->bench[row]].stats[MSP_STAT_MAX]));
}

/*
 * The first such argument: often it is the whole answer. Where the call has none an earlier one may: what it did need
 * not have passed the limits before.
 */
static bool
describe_argument(msp_compare_suspect *out, const msp_suspect_source *src)
{
    const msp_row_api *api = &src->rows[0]->apis[src->row[0]->api];
    size_t end = api->first + api->count, row = find_argument(src, api->first, end, true);
    msp_buf text = {0};

    if (row == end) {
        row = find_argument(src, 0, api->first, false);
        if (row == api->first)
            return true;
        out->argument_before = true;
    }
    msp_suspect_argument_text(&text, src, row, out->argument_before);
    out->argument = text.failed ? NULL : msp_result_text(msp_buf_view(&text));
    msp_buf_release(&text);
    return out->argument != NULL;
}

/* Nobody calls a gradient: what is told is where its forward call was made. */
static const msp_json *
frames_of(const msp_suspect_source *src, msp_str api)
{
    const msp_json *frames = msp_stack_frames(src->stack, api);
    const char *back = msp_str_find(api, MSP_STR(".backward"));
    msp_buf forward = {0};

    if (frames != NULL || back == NULL)
        return frames;
    msp_buf_printf(&forward, "%.*s.forward%.*s", (int)(back - api.p), api.p, (int)(api.p + api.len - back - 9),
                   back + 9);
    if (!forward.failed)
        frames = msp_stack_frames(src->stack, msp_buf_view(&forward));
    msp_buf_release(&forward);
    return frames;
}

static bool
describe_stack(msp_compare_suspect *out, const msp_suspect_source *src)
{
    const msp_json *frames = frames_of(src, src->rows[0]->apis[src->row[0]->api].name);
    msp_buf frame = {0};
    bool ok = true;

    for (size_t i = 0; i < msp_json_count(frames) && ok; i++) {
        msp_buf_clear(&frame);
        msp_legacy_frame(&frame, msp_json_at(frames, i));
        ok = !frame.failed && msp_result_add(&out->stack, &out->nstack, msp_buf_view(&frame));
    }
    msp_buf_release(&frame);
    return ok;
}

msp_status
msp_suspect_describe(msp_compare_suspect *out, const msp_suspect_source *src, msp_error *err)
{
    msp_judged j = {.n = src->row[0], .b = src->row[1]};
    bool ok;

    out->found = true;
    out->npu_name = msp_result_text(msp_row_name(src->row[0]));
    out->bench_name = msp_result_text(src->row[1] == NULL ? MSP_STR("N/A") : msp_row_name(src->row[1]));
    out->api = msp_result_text(src->rows[0]->apis[src->row[0]->api].name);
    out->verdict = msp_result_text(msp_str_of(src->verdict));
    if (src->legacy != NULL)
        msp_legacy_judge(&j, src->mode, src->legacy, src->measurer, src->fuzzy);
    else
        msp_judge_row(&j, src->mode, src->measurer, src->fuzzy);
    out->message = msp_result_text(msp_buf_view(&j.message));
    ok = out->npu_name != NULL && out->bench_name != NULL && out->api != NULL && out->verdict != NULL &&
         out->message != NULL && !j.message.failed && describe_side(out, src, 0) && describe_side(out, src, 1) &&
         (src->mode != MSP_MODE_STATISTICS || describe_differences(out, &j)) && describe_argument(out, src) &&
         describe_stack(out, src) && msp_suspect_inputs(out, src);
    if (src->mode == MSP_MODE_REAL)
        describe_tensors(out, src);
    msp_buf_release(&j.message);
    return ok ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory");
}
