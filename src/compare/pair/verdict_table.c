/*
 * verdict_table.c - see verdict_table.h.
 *
 * Column Item says what a row is: "verdict" (one, its sentence in Text), "note" (what must be known beside it), "calls"
 * (that one run alone makes, or that stand for others),
 * "suspect 1" to "suspect 3", and "result" for each result of a call that was judged or not, in the order of the run.
 * Errors are relative to the result's own scale; Over Limit above 1 is an alarm. What is not known is empty.
 */
#include "compare/pair/verdict_table.h"

#include <math.h>
#include <stdlib.h>
#include "core/alloc.h"
#include "core/str.h"

static const msp_column columns[] = {{"Item", 11},          {"Call", 42},          {"Bench Call", 42},
                                     {"Result", 12},        {"Text", 70},          {"Class", 9},
                                     {"Type", 10},          {"Judged By", 11},     {"Difference In", 0},
                                     {"Difference Out", 0}, {"Local Error", 0},    {"Bench Local Error", 0},
                                     {"Inherited", 0},      {"Expected", 0},       {"Times Expected", 0},
                                     {"Over Limit", 0},     {"Shape of Error", 40}};

enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

static msp_cell
text_cell(const char *text)
{
    return text == NULL ? (msp_cell){0} : msp_cell_text(text, strlen(text));
}

static msp_cell
number_cell(double v)
{
    return isnan(v) ? (msp_cell){0} : msp_cell_float(v);
}

static msp_status
write_sentence(msp_table *t, const char *item, const char *text, bool wrong, msp_error *err)
{
    msp_cell cells[COLUMNS] = {text_cell(item), {0}, {0}, {0}, text_cell(text)};

    return msp_table_row(t, cells, wrong ? MSP_ROW_RED : MSP_ROW_PLAIN, err);
}

static msp_status
write_suspect(msp_table *t, const msp_verdict_suspect *s, size_t number, msp_error *err)
{
    static const char *const items[MSP_VERDICT_SUSPECTS] = {"suspect 1", "suspect 2", "suspect 3"};
    msp_cell cells[COLUMNS] = {text_cell(items[number]),
                               text_cell(s->api),
                               text_cell(s->bench_api),
                               text_cell(s->at),
                               text_cell(s->reason),
                               {0},
                               {0},
                               {0},
                               number_cell(s->diff_in),
                               number_cell(s->diff_out),
                               number_cell(s->local),
                               number_cell(s->local_bench),
                               number_cell(s->inherited),
                               number_cell(s->expected),
                               number_cell(s->times),
                               number_cell(s->ratio),
                               text_cell(s->shape_text)};

    return msp_table_row(t, cells, number == 0 ? MSP_ROW_RED : MSP_ROW_PLAIN, err);
}

static msp_status
write_result(msp_table *t, const msp_verdict_result *r, msp_error *err)
{
    const char *why = r->nonfinite                               ? "NaN or inf on one side only"
                      : r->note != NULL || r->not_judged == NULL ? r->note
                                                                 : r->not_judged;
    msp_cell cells[COLUMNS] = {text_cell("result"),
                               text_cell(r->api),
                               text_cell(r->bench_api),
                               text_cell(r->at),
                               text_cell(why),
                               text_cell(msp_call_class_text(r->cls)),
                               text_cell(msp_dtype_torch_name(r->dtype)),
                               text_cell(r->not_judged == NULL ? msp_verdict_basis_text(r->basis) : NULL),
                               number_cell(r->diff_in),
                               number_cell(r->diff_out),
                               number_cell(r->local),
                               number_cell(r->local_bench),
                               number_cell(r->inherited),
                               number_cell(r->expected),
                               number_cell(r->times),
                               number_cell(r->ratio),
                               text_cell(r->shape_text)};

    return msp_table_row(t, cells, MSP_ROW_PLAIN, err);
}

static int
larger_first(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

/* The ratio above which results are shown, so that no more than most of them are; NaN: all are. False: no memory. */
static bool
least_ratio(const msp_pair_verdict *v, size_t most, double *out)
{
    double *ratios = v->nresults <= most ? NULL : msp_alloc(v->nresults, sizeof(*ratios));

    *out = NAN;
    if (v->nresults <= most)
        return true;
    if (ratios == NULL)
        return false;
    for (size_t i = 0; i < v->nresults; i++)
        ratios[i] = isnan(v->results[i].ratio) ? -1 : v->results[i].ratio;
    qsort(ratios, v->nresults, sizeof(*ratios), larger_first);
    *out = ratios[most];
    msp_free(ratios);
    return true;
}

static msp_status
write_rows(msp_table *t, const msp_compare_pair *p, size_t most, msp_error *err)
{
    const msp_pair_verdict *v = &p->verdict;
    double least;
    msp_status st = write_sentence(t, "verdict", p->answer.sentence, p->answer.level == MSP_ANSWER_WRONG, err);

    if (!least_ratio(v, most, &least))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (size_t i = 0; i < p->answer.nnotes && st == MSP_OK; i++)
        st = write_sentence(t, "note", p->answer.notes[i], false, err);
    for (size_t i = 0; i < v->alignment.count && st == MSP_OK; i++)
        st = write_sentence(t, "calls", v->alignment.items[i], false, err);
    for (size_t i = 0; i < v->nsuspects && st == MSP_OK; i++)
        st = write_suspect(t, &v->suspects[i], i, err);
    for (size_t i = 0; i < v->nresults && st == MSP_OK; i++)
        if (isnan(least) || v->results[i].ratio > least)
            st = write_result(t, &v->results[i], err);
    if (st == MSP_OK && !isnan(least))
        st = write_sentence(t, "note",
                            "only the results nearest to the limit are shown; --format json writes all of them", false,
                            err);
    return st;
}

msp_status
msp_verdict_sheet(msp_table *table, const msp_compare_pair *p, size_t most, msp_error *err)
{
    msp_status st = msp_table_sheet(table, "Verdict", columns, COLUMNS, err);

    return st == MSP_OK ? write_rows(table, p, most, err) : st;
}

msp_status
msp_verdict_file(const char *path, const msp_compare_pair *p, msp_error *err)
{
    msp_table *t = NULL;
    msp_status st = msp_table_open(&t, path, MSP_TABLE_JSON, columns, COLUMNS, NULL, err);

    if (st == MSP_OK)
        st = write_rows(t, p, SIZE_MAX, err);
    if (st == MSP_OK)
        st = msp_table_finish(t, err);
    msp_table_close(t);
    return st;
}
