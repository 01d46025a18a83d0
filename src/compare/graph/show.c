/* show.c - the columns of static graphs, and a row as its cells. */
#include "compare/graph/row.h"
#include "compare/judge/show.h"
#include "text/pytext.h"

/* ---- columns ------------------------------------------------------------------------------------------------- */

/* clang-format off */
static const char *const base_columns[] = {
    "NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape",
    "NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm",
    "Accuracy Reached or Not", "Err_message"};
static const char *const metric_columns[] = {
    "Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio"};
static const char *const statistic_columns[] = {
    "Max diff", "Min diff", "Mean diff", "L2norm diff",
    "MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr", "NPU CSV File", "Bench CSV File"};
static const char *const common_columns[] = {
    "Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape",
    "Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio",
    "NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm",
    "Accuracy Reached or Not", "Err_message", "Data_Name"};
/* clang-format on */

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static size_t
add_columns(msp_column *out, size_t n, const char *const *titles, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[n + i] = (msp_column){titles[i], msp_show_width(titles[i])};
    return n + count;
}

size_t
msp_graph_columns(msp_column out[MSP_GRAPH_COLUMNS], bool common, bool statistics)
{
    size_t n;

    if (common)
        return add_columns(out, 0, common_columns, COUNT(common_columns));
    n = add_columns(out, 0, base_columns, COUNT(base_columns));
    if (statistics)
        return add_columns(out, n, statistic_columns, COUNT(statistic_columns));
    return add_columns(out, n, metric_columns, COUNT(metric_columns));
}

/* ---- cells --------------------------------------------------------------------------------------------------- */

static msp_cell
text_cell(msp_str s)
{
    return s.len > 0 ? msp_cell_text(s.p, s.len) : (msp_cell){0};
}

static msp_cell
num_cell(const msp_num *c)
{
    return c->word != NULL ? text_cell(msp_str_of(c->word)) : msp_cell_float(c->v);
}

static msp_cell
percent_cell(msp_graph_row *r, int i)
{
    size_t n;

    if (r->j.rel[i].word != NULL)
        return text_cell(msp_str_of(r->j.rel[i].word));
    n = msp_f64_repr(r->percent[i], r->j.rel[i].v);
    r->percent[i][n++] = '%';
    return msp_cell_text(r->percent[i], n);
}

msp_str
msp_graph_item_name(const msp_graph_item *item, bool statistics)
{
    if (item == NULL)
        return (msp_str){NULL, 0};
    return statistics ? item->key : msp_str_of(item->path);
}

static msp_cell *
put_stats(msp_cell *c, const msp_graph_row *r)
{
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < MSP_NSTATS; i++)
            *c++ = r->stats[s][i];
    return c;
}

static void
show_graph(msp_graph_row *r, msp_cell *c, bool statistics)
{
    for (int s = 0; s < 2; s++)
        *c++ = text_cell(msp_graph_item_name(r->side[s], statistics));
    for (int s = 0; s < 2; s++)
        *c++ = text_cell(msp_buf_view(&r->dtype[s]));
    for (int s = 0; s < 2; s++)
        *c++ = text_cell(msp_buf_view(&r->shape[s]));
    c = put_stats(c, r);
    *c++ = text_cell(msp_str_of(msp_verdict_text(r->j.verdict)));
    *c++ = text_cell(msp_buf_view(&r->j.message));
    if (!statistics) {
        for (int i = 0; i < NMETRICS; i++)
            *c++ = num_cell(&r->j.metric[i]);
        return;
    }
    for (int i = 0; i < MSP_NSTATS; i++)
        *c++ = num_cell(&r->j.diff[i]);
    for (int i = 0; i < MSP_NSTATS; i++)
        *c++ = percent_cell(r, i);
    for (int s = 0; s < 2; s++)
        *c++ = r->side[s] != NULL ? text_cell(msp_str_of(r->side[s]->path)) : (msp_cell){0};
}

static void
show_common(msp_graph_row *r, msp_cell *c)
{
    msp_buf_clear(&r->name);
    msp_buf_printf(&r->name, "%.*s_%zu", (int)r->side[0]->name.len, r->side[0]->name.p, r->side[0]->index);
    *c++ = text_cell(msp_buf_view(&r->name));
    for (int s = 0; s < 2; s++)
        *c++ = text_cell(msp_buf_view(&r->dtype[s]));
    for (int s = 0; s < 2; s++)
        *c++ = text_cell(msp_buf_view(&r->shape[s]));
    for (int i = 0; i < NMETRICS; i++)
        *c++ = num_cell(&r->j.metric[i]);
    c = put_stats(c, r);
    *c++ = text_cell(msp_str_of(msp_verdict_text(r->j.verdict)));
    *c++ = text_cell(msp_buf_view(&r->j.message));
    msp_buf_clear(&r->files);
    msp_buf_char(&r->files, '[');
    for (int s = 0; s < 2; s++) {
        msp_buf_text(&r->files, s > 0 ? ", " : "");
        msp_py_repr_text(&r->files, r->side[s] != NULL ? msp_str_of(r->side[s]->path) : MSP_STR("N/A"));
    }
    msp_buf_char(&r->files, ']');
    *c++ = text_cell(msp_buf_view(&r->files));
}

bool
msp_graph_show(msp_cell out[MSP_GRAPH_COLUMNS], msp_graph_row *r, bool common, bool statistics)
{
    if (common)
        show_common(r, out);
    else
        show_graph(r, out, statistics);
    return !(r->name.failed || r->files.failed || r->j.message.failed || r->dtype[0].failed || r->dtype[1].failed ||
             r->shape[0].failed || r->shape[1].failed);
}
