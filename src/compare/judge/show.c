/* show.c - see show.h. */
#include "compare/judge/show.h"

#include <assert.h>
#include <math.h>
#include "text/pytext.h"
#include "core/locale.h"
#include "core/number.h"

/* ---- columns ----------------------------------------------------------------------------------------------------- */

static const char *const common[] = {"NPU Name",          "Bench Name",         "NPU Dtype",
                                     "Bench Dtype",       "NPU Tensor Shape",   "Bench Tensor Shape",
                                     "NPU Requires_grad", "Bench Requires_grad"};
static const char *const metrics[] =
    {"Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio"};
static const char *const differences[] = {"Max diff",       "Min diff",       "Mean diff",       "L2norm diff",
                                          "MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"};
static const char *const statistics[] = {"NPU max",   "NPU min",   "NPU mean",   "NPU l2norm",
                                         "Bench max", "Bench min", "Bench mean", "Bench l2norm"};
static const char *const end_real[] = {"Requires_grad Consistent", "Accuracy Reached or Not", "Err_message"};
static const char *const end_stats[] = {"Requires_grad Consistent", "Result", "Err_message"};
static const char *const end_md5[] = {"NPU MD5", "BENCH MD5", "Requires_grad Consistent", "Result"};
static const char *const stack_info[] = {"NPU_Stack_Info"};
static const char *const data_name[] = {"Data_Name"};

/* Wide enough for what stands in a column of a real dump; 0: the title decides. */
double
msp_show_width(const char *title)
{
    static const struct {
        const char *title;
        double width;
    } wide[] = {{"NPU Name", 52},         {"Bench Name", 52},         {"Name", 52},      {"Err_message", 60},
                {"NPU_Stack_Info", 80},   {"Data_Name", 60},          {"NPU Dtype", 18}, {"Bench Dtype", 18},
                {"NPU Tensor Shape", 22}, {"Bench Tensor Shape", 22}, {"Cosine", 16},    {"EucDist", 18},
                {"MaxAbsErr", 18},        {"MaxRelativeErr", 18},     {"NPU max", 18},   {"NPU min", 18},
                {"NPU mean", 18},         {"NPU l2norm", 18},         {"Bench max", 18}, {"Bench min", 18},
                {"Bench mean", 18},       {"Bench l2norm", 18},       {"Max diff", 18},  {"Min diff", 18},
                {"Mean diff", 18},        {"L2norm diff", 18},        {"NPU MD5", 14},   {"BENCH MD5", 14}};

    for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++)
        if (strcmp(wide[i].title, title) == 0)
            return wide[i].width;
    return 0;
}

static size_t
add_titles(msp_column *out, size_t n, const char *const *titles, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[n + i] = (msp_column){titles[i], msp_show_width(titles[i])};
    return n + count;
}

#define ADD(list) n = add_titles(out, n, list, sizeof(list) / sizeof((list)[0]))

size_t
msp_show_columns(msp_column out[SHOW_MAX_COLUMNS], msp_compare_mode mode, bool stack)
{
    size_t n = 0;

    ADD(common);
    if (mode == MSP_MODE_REAL) {
        ADD(metrics);
        ADD(statistics);
        ADD(end_real);
    } else if (mode == MSP_MODE_STATISTICS) {
        ADD(differences);
        ADD(statistics);
        ADD(end_stats);
    } else {
        ADD(end_md5);
    }
    if (stack)
        ADD(stack_info);
    if (mode == MSP_MODE_REAL)
        ADD(data_name);
    return n;
}

/* ---- cells ------------------------------------------------------------------------------------------------------- */

static msp_cell
text_cell(msp_str s)
{
    return msp_cell_text(s.p == NULL ? "" : s.p, s.len);
}

static msp_cell
word_cell(const char *word)
{
    return msp_cell_text(word, strlen(word));
}

msp_cell
msp_show_value(const msp_val *v)
{
    switch (v->kind) {
    case VAL_TEXT:
        if (msp_str_eq_nocase((msp_str){v->as.p, v->len}, MSP_STR("nan")))
            return word_cell("Nan");
        return msp_cell_text(v->as.p, v->len);
    case VAL_INT:
        return msp_cell_int(v->as.i);
    case VAL_FLOAT:
        return isnan(v->as.f) ? word_cell("Nan") : msp_cell_float(v->as.f);
    case VAL_BOOL:
        return msp_cell_bool(v->as.i != 0);
    default:
        return word_cell("None");
    }
}

static msp_cell
num_cell(const msp_num *c)
{
    return c->word != NULL ? word_cell(c->word) : msp_cell_float(c->v);
}

static msp_cell
percent_cell(char buf[40], const msp_num *c)
{
    size_t n;

    if (c->word != NULL)
        return word_cell(c->word);
    n = msp_f64_repr(buf, c->v);
    buf[n++] = '%';
    return msp_cell_text(buf, n);
}

static msp_cell
flag_cell(uint8_t flag)
{
    return word_cell(flag == FLAG_TRUE ? "True" : flag == FLAG_FALSE ? "False" : "N/A");
}

static msp_cell *
add_common(msp_cell *c, const msp_show_rule *rule, const msp_judged *j)
{
    const msp_row *n = j->n, *b = j->b;

    *c++ = text_cell(msp_row_name(n));
    *c++ = b == NULL ? word_cell("N/A") : text_cell(msp_row_name(b));
    *c++ = text_cell(msp_row_dtype(rule->npu, n));
    *c++ = b == NULL ? word_cell("N/A") : text_cell(msp_row_dtype(rule->bench, b));
    *c++ = text_cell(msp_row_shape(rule->npu, n));
    *c++ = b == NULL ? word_cell("N/A") : text_cell(msp_row_shape(rule->bench, b));
    *c++ = flag_cell(n->requires_grad);
    *c++ = b == NULL ? word_cell("N/A") : flag_cell(b->requires_grad);
    return c;
}

static msp_cell *
add_statistics(msp_cell *c, const msp_judged *j)
{
    for (int i = 0; i < MSP_NSTATS; i++)
        *c++ = msp_show_value(&j->n->stats[i]);
    for (int i = 0; i < MSP_NSTATS; i++)
        *c++ = j->b == NULL ? word_cell("N/A") : msp_show_value(&j->b->stats[i]);
    return c;
}

static msp_cell
checksum_cell(const msp_val *v)
{
    return v->kind == VAL_NONE ? word_cell("N/A") : msp_show_value(v);
}

static msp_cell *
add_stack(msp_cell *c, msp_shown *out, const msp_json *frames)
{
    msp_buf_clear(&out->stack);
    if (frames == NULL) {
        *c++ = word_cell("N/A");
        return c;
    }
    msp_py_str(&out->stack, frames);
    *c++ = text_cell(msp_buf_view(&out->stack));
    return c;
}

/* ['npu.pt', 'bench.pt'], with -1 for no file and N/A for no partner. */
static msp_cell *
add_files(msp_cell *c, msp_shown *out, const msp_judged *j)
{
    msp_buf *t = &out->files;

    msp_buf_clear(t);
    msp_buf_char(t, '[');
    msp_py_repr_text(t, j->n->file == NULL ? MSP_STR("-1") : msp_row_file(j->n));
    msp_buf_text(t, ", ");
    msp_py_repr_text(t, j->b == NULL ? MSP_STR("N/A") : j->b->file == NULL ? MSP_STR("-1") : msp_row_file(j->b));
    msp_buf_char(t, ']');
    *c++ = text_cell(msp_buf_view(t));
    return c;
}

void
msp_show_row(msp_shown *out, const msp_show_rule *rule, const msp_judged *j, const msp_json *frames)
{
    msp_cell *c = add_common(out->cells, rule, j);

    assert(rule->legacy == NULL); /* msp_legacy_show() is for those */
    if (rule->mode == MSP_MODE_REAL) {
        for (int i = 0; i < NMETRICS; i++)
            *c++ = num_cell(&j->metric[i]);
        c = add_statistics(c, j);
    } else if (rule->mode == MSP_MODE_STATISTICS) {
        for (int i = 0; i < MSP_NSTATS; i++)
            *c++ = num_cell(&j->diff[i]);
        for (int i = 0; i < MSP_NSTATS; i++)
            *c++ = percent_cell(out->percent[i], &j->rel[i]);
        c = add_statistics(c, j);
    } else {
        *c++ = checksum_cell(&j->n->md5);
        *c++ = j->b == NULL ? word_cell("N/A") : checksum_cell(&j->b->md5);
    }
    *c++ = msp_cell_bool(j->consistent);
    *c++ = word_cell(msp_verdict_text(j->verdict));
    if (rule->mode != MSP_MODE_MD5)
        *c++ = text_cell(msp_buf_view(&j->message));
    if (rule->stack)
        c = add_stack(c, out, frames);
    if (rule->mode == MSP_MODE_REAL)
        c = add_files(c, out, j);
    out->failed = out->stack.failed || out->files.failed || j->message.failed;
}

void
msp_shown_release(msp_shown *s)
{
    msp_buf_release(&s->stack);
    msp_buf_release(&s->files);
}

void
msp_show_cell_text(msp_buf *out, msp_cell c)
{
    char number[32];

    switch (c.kind) {
    case MSP_CELL_TEXT:
        msp_buf_add(out, c.as.text.p, c.as.text.len);
        break;
    case MSP_CELL_INT:
        msp_buf_printf(out, "%lld", (long long)c.as.i);
        break;
    case MSP_CELL_FLOAT:
        msp_buf_add(out, number, msp_f64_repr(number, c.as.f));
        break;
    case MSP_CELL_BOOL:
        msp_buf_text(out, c.as.b ? "True" : "False");
        break;
    default:
        break;
    }
}

msp_cell
msp_show_as_text(msp_cell c)
{
    static const char *const words[] = {"inf\t", "-inf\t", "nan\t"};

    if (c.kind == MSP_CELL_BOOL)
        return word_cell(c.as.b ? "True" : "False");
    if (c.kind == MSP_CELL_FLOAT && isinf(c.as.f))
        return word_cell(words[c.as.f < 0]);
    /* dumps of some generations have them as text already */
    for (size_t i = 0; c.kind == MSP_CELL_TEXT && i < sizeof(words) / sizeof(words[0]); i++)
        if (msp_str_eq((msp_str){c.as.text.p, c.as.text.len}, (msp_str){words[i], strlen(words[i]) - 1}))
            return word_cell(words[i]);
    return c;
}
