/* show.c - the tables of ptdbg_ascend and torch_npu.hooks: columns, and a judged row as cells. */
#include <math.h>
#include "compare/legacy/legacy.h"
#include "text/pytext.h"
#include "core/number.h"

/* ---- columns ----------------------------------------------------------------------------------------------------- */

typedef struct columns {
    msp_column *out;
    size_t n;
} columns;

static void
add_titles(columns *c, const char *const *titles, size_t count)
{
    for (size_t i = 0; i < count; i++)
        c->out[c->n++] = (msp_column){titles[i], msp_show_width(titles[i])};
}

#define ADD(...)                                                   \
    do {                                                           \
        static const char *const titles[] = {__VA_ARGS__};         \
        add_titles(c, titles, sizeof(titles) / sizeof(titles[0])); \
    } while (0)

static void
hooks_columns(columns *c, bool numbered)
{
    if (numbered)
        ADD("NPU Name", "Bench Name");
    else
        ADD("Name");
    ADD("NPU Tensor Dtype", "Bench Tensor Dtype", "NPU Tensor Shape", "Bench Tensor Shape", "Cosine", "RMSE", "MAPE");
}

static void
metric_columns(columns *c, const msp_legacy_look *look)
{
    ADD("Cosine", "MaxAbsErr");
    if (look->form >= MSP_LEGACY_PTDBG_3)
        ADD("MaxRelativeErr");
    if (look->form >= MSP_LEGACY_PTDBG_6)
        ADD("One Thousandth Err Ratio", "Five Thousandths Err Ratio");
}

static void
statistics_columns(columns *c, const msp_legacy_look *look)
{
    static const char *const npu[] = {"NPU max", "NPU min", "NPU mean", "NPU l2norm"};
    static const char *const bench[] = {"Bench max", "Bench min", "Bench mean", "Bench l2norm"};
    size_t n = look->norm ? 4 : 3;

    if (look->stats[0])
        add_titles(c, npu, n);
    if (look->stats[1])
        add_titles(c, bench, n);
}

static void
ptdbg_columns(columns *c, msp_compare_mode mode, const msp_legacy_look *look)
{
    ADD("NPU Name", "Bench Name", "NPU Tensor Dtype", "Bench Tensor Dtype", "NPU Tensor Shape", "Bench Tensor Shape");
    if (mode == MSP_MODE_MD5) {
        ADD("NPU MD5", "BENCH MD5", "Result");
        return;
    }
    if (mode == MSP_MODE_REAL) {
        metric_columns(c, look);
    } else {
        ADD("Max diff", "Min diff", "Mean diff");
        if (look->norm)
            ADD("L2norm diff");
    }
    statistics_columns(c, look);
    if (mode == MSP_MODE_REAL)
        ADD("Accuracy Reached or Not", "Err_message");
    else
        ADD("Result", "Err_message");
}

size_t
msp_legacy_columns(msp_column out[SHOW_MAX_COLUMNS], msp_compare_mode mode, const msp_legacy_look *look, bool stack)
{
    columns all = {out, 0}, *c = &all;

    if (look->form == MSP_LEGACY_HOOKS) {
        hooks_columns(c, look->numbered);
        return c->n;
    }
    ptdbg_columns(c, mode, look);
    if (stack)
        ADD("NPU_Stack_Info");
    return c->n;
}

/* ---- cells ------------------------------------------------------------------------------------------------------- */

/* Where the next cell goes, and room for the texts of numbers. */
typedef struct cells {
    msp_cell *at;
    char *text;
} cells;

/* Room for the texts of a row's numbers. */
static size_t
room_for(const msp_judged *j)
{
    size_t n = 0;

    for (int i = 0; i < NMETRICS; i++)
        n += j->metric[i].word != NULL ? 0 : fabs(j->metric[i].v) < 1e15 ? 32 : MSP_FIXED_MAX;
    return n + 1;
}

static void
put_text(cells *c, msp_str s)
{
    *c->at++ = msp_cell_text(s.p == NULL ? "" : s.p, s.len);
}

static void
put_word(cells *c, const char *word)
{
    put_text(c, msp_str_of(word));
}

static void
put_fixed(cells *c, const msp_num *v)
{
    size_t n;

    if (v->word != NULL) {
        put_word(c, v->word);
        return;
    }
    n = msp_legacy_fixed(c->text, v->v);
    put_text(c, (msp_str){c->text, n});
    c->text += n;
}

static void
put_number(cells *c, const msp_num *v)
{
    if (v->word != NULL)
        put_word(c, v->word);
    else
        *c->at++ = msp_cell_float(v->v);
}

/* A statistic as pandas writes it: NaN is an empty cell. */
static void
put_statistic(cells *c, const msp_val *v)
{
    if (v->kind == VAL_NONE || (v->kind == VAL_FLOAT && isnan(v->as.f)))
        *c->at++ = (msp_cell){MSP_CELL_EMPTY, {{NULL, 0}}};
    else if (v->kind == VAL_FLOAT) /* nearly all are: what a function returns in memory is copied, and waited for */
        *c->at++ = msp_cell_float(v->as.f);
    else
        *c->at++ = msp_show_value(v);
}

static void
put_statistics(cells *c, const msp_legacy_look *look, const msp_row *r)
{
    for (int i = 0; i < (look->norm ? 4 : 3); i++)
        if (r == NULL)
            put_word(c, "Nan");
        else
            put_statistic(c, &r->stats[i]);
}

/* What both sides are; words where there is nobody. */
static void
put_sides(cells *c, const msp_show_rule *rule, const msp_row *n, const msp_row *b, const char *nobody)
{
    if (n == NULL)
        put_word(c, nobody);
    else
        put_text(c, msp_row_dtype(rule->npu, n));
    if (b == NULL)
        put_word(c, nobody);
    else
        put_text(c, msp_row_dtype(rule->bench, b));
    if (n == NULL)
        put_word(c, nobody);
    else
        put_text(c, msp_row_shape(rule->npu, n));
    if (b == NULL)
        put_word(c, nobody);
    else
        put_text(c, msp_row_shape(rule->bench, b));
}

/* ---- torch_npu.hooks --------------------------------------------------------------------------------------------- */

static void
put_hooks_names(cells *c, const msp_legacy_look *look, const msp_row *n, const msp_row *b)
{
    const msp_row *known = n != NULL ? n : b;

    if (!look->numbered) {
        put_text(c, msp_row_name(known));
        return;
    }
    put_text(c, n != NULL ? msp_row_name(n) : MSP_STR("N/A"));
    put_text(c, b != NULL ? msp_row_name(b) : MSP_STR("N/A"));
}

/* The original has a blank at the end of one of three such words. */
static void
put_cosine(cells *c, const msp_num *v)
{
    if (v->word != NULL && v->word[0] == 'c')
        put_word(c, "cannot be calculated ");
    else
        put_number(c, v);
}

static void
put_rmse(cells *c, const msp_num *v)
{
    if (v->word == NULL && isnan(v->v))
        *c->at++ = (msp_cell){MSP_CELL_EMPTY, {{NULL, 0}}};
    else
        put_number(c, v);
}

static void
put_percent(cells *c, const msp_num *v)
{
    size_t n;

    if (v->word != NULL) {
        put_word(c, v->word);
        return;
    }
    n = msp_f64_repr(c->text, v->v);
    c->text[n++] = '%';
    put_text(c, (msp_str){c->text, n});
    c->text += n;
}

static void
show_hooks(cells *c, const msp_show_rule *rule, const msp_judged *j)
{
    put_hooks_names(c, rule->legacy, j->n, j->b);
    put_sides(c, rule, j->n, j->b, "N/A");
    put_cosine(c, &j->metric[METRIC_COSINE]);
    put_rmse(c, &j->metric[METRIC_RMSE]);
    put_percent(c, &j->metric[METRIC_MAPE]);
}

void
msp_legacy_show_bench(msp_shown *out, const msp_show_rule *rule, const msp_row *b)
{
    cells c = {out->cells, NULL};

    put_hooks_names(&c, rule->legacy, NULL, b);
    put_sides(&c, rule, NULL, b, "N/A");
    for (int i = 0; i < 3; i++)
        put_word(&c, "unmatched");
}

/* ---- ptdbg_ascend ------------------------------------------------------------------------------------------------ */

static void
put_metrics(cells *c, const msp_legacy_look *look, const msp_judged *j)
{
    static const int order[] = {METRIC_COSINE, METRIC_MAX_ABS, METRIC_MAX_REL, METRIC_ONE_THOUSANDTH,
                                METRIC_FIVE_THOUSANDTHS};
    size_t n = look->form == MSP_LEGACY_PTDBG_2 ? 2 : look->form == MSP_LEGACY_PTDBG_3 ? 3 : 5;

    for (size_t i = 0; i < n; i++)
        if (look->form == MSP_LEGACY_PTDBG_6)
            put_number(c, &j->metric[order[i]]);
        else
            put_fixed(c, &j->metric[order[i]]);
}

static void
put_checksums(cells *c, const msp_judged *j)
{
    const msp_row *rows[2] = {j->n, j->b};

    for (int i = 0; i < 2; i++)
        if (rows[i] == NULL || rows[i]->md5.kind == VAL_NONE)
            put_word(c, "N/A");
        else
            *c->at++ = msp_show_value(&rows[i]->md5);
}

static void
put_stack(cells *c, msp_shown *out, const msp_json *frames)
{
    msp_buf_clear(&out->stack);
    if (frames != NULL)
        msp_py_str(&out->stack, frames);
    put_text(c, msp_buf_view(&out->stack));
}

static void
show_ptdbg(cells *c, msp_shown *out, const msp_show_rule *rule, const msp_judged *j, const msp_json *frames)
{
    const msp_legacy_look *look = rule->legacy;
    const char *nobody = rule->mode == MSP_MODE_REAL ? "Nan" : "N/A";

    put_text(c, msp_row_name(j->n));
    put_text(c, j->b != NULL ? msp_row_name(j->b) : msp_str_of(nobody));
    put_sides(c, rule, j->n, j->b, nobody);
    if (rule->mode == MSP_MODE_MD5) {
        put_checksums(c, j);
    } else if (rule->mode == MSP_MODE_REAL) {
        put_metrics(c, look, j);
    } else {
        for (int i = 0; i < (look->norm ? 4 : 3); i++)
            put_number(c, &j->diff[i]);
    }
    if (rule->mode != MSP_MODE_MD5 && look->stats[0])
        put_statistics(c, look, j->n);
    if (rule->mode != MSP_MODE_MD5 && look->stats[1])
        put_statistics(c, look, j->b);
    put_word(c, j->verdict == VERDICT_NONE ? "Nan" : msp_verdict_text(j->verdict));
    if (rule->mode != MSP_MODE_MD5)
        put_text(c, msp_buf_view(&j->message));
    if (rule->stack)
        put_stack(c, out, frames);
}

void
msp_legacy_show(msp_shown *out, const msp_show_rule *rule, const msp_judged *j, const msp_json *frames)
{
    cells c = {out->cells, NULL};

    msp_buf_clear(&out->files);
    c.text = msp_buf_room(&out->files, room_for(j));
    out->failed = c.text == NULL || j->message.failed;
    if (out->failed)
        return;
    if (rule->legacy->form == MSP_LEGACY_HOOKS)
        show_hooks(&c, rule, j);
    else
        show_ptdbg(&c, out, rule, j, frames);
    out->failed = out->stack.failed;
}

void
msp_legacy_frame(msp_buf *out, const msp_json *frame)
{
    if (msp_json_kind_of(frame) != MSP_JSON_ARRAY) {
        msp_buf_str(out, msp_json_string(frame));
        return;
    }
    msp_buf_text(out, "File ");
    msp_py_str(out, msp_json_at(frame, 0));
    msp_buf_text(out, ", line ");
    msp_py_str(out, msp_json_at(frame, 1));
    msp_buf_text(out, ", in ");
    msp_py_str(out, msp_json_at(frame, 2));
    msp_buf_text(out, ", \n ");
    if (msp_json_kind_of(msp_json_at(frame, 3)) == MSP_JSON_STRING)
        msp_py_str(out, msp_json_at(frame, 3));
}
