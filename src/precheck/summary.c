/* summary.c - what the two files of run_ut say together, for the terminal. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "core/str.h"
#include "precheck/lines.h"
#include "precheck/read.h"

enum { COL_COSINE = 4, COL_MAX_ABS = 5, COL_MAX_REL = 13, COL_STATUS = 21, COL_MESSAGE = 22 };

static msp_str
text_at(const msp_cell *cells, size_t count, size_t i)
{
    if (i >= count || cells[i].kind != MSP_CELL_TEXT)
        return (msp_str){"", 0};
    return (msp_str){cells[i].as.text.p, cells[i].as.text.len};
}

static double
number_at(const msp_cell *cells, size_t count, size_t i)
{
    if (i < count && cells[i].kind == MSP_CELL_FLOAT)
        return cells[i].as.f;
    return i < count && cells[i].kind == MSP_CELL_INT ? (double)cells[i].as.i : NAN;
}

static msp_precheck_status
status_of(msp_str s)
{
    for (int i = MSP_PRECHECK_PASS; i <= MSP_PRECHECK_ERROR; i++)
        if (msp_str_eq(s, msp_str_of(msp_precheck_status_text((msp_precheck_status)i))))
            return (msp_precheck_status)i;
    return MSP_PRECHECK_SKIP;
}

static msp_status
on_header(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    (void)cells;
    (void)payload;
    return count >= 3 ? MSP_OK : msp_error_set(err, MSP_E_FORMAT, "not a table of run_ut: too few columns");
}

static msp_status
on_result(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    msp_precheck_summary *s = payload;
    msp_precheck_status f = status_of(text_at(cells, count, 1)), b = status_of(text_at(cells, count, 2));
    msp_str name = text_at(cells, count, 0), why = text_at(cells, count, 3);
    bool failed;

    (void)err;
    s->apis++;
    s->count[f > b ? f : b]++;
    failed = msp_str_starts(why, MSP_STR("FAILED: "));
    s->failed += failed;
    if (!failed && (f > MSP_PRECHECK_SKIP || b > MSP_PRECHECK_SKIP))
        return MSP_OK;
    if ((failed && s->failed == 1) || (s->skipped[0] == '\0' && !msp_str_starts(why, MSP_STR("API "))))
        snprintf(s->skipped, sizeof(s->skipped), "%.*s: %.*s", (int)name.len, name.p, (int)why.len, why.p);
    return MSP_OK;
}

/* How bad a result is among those of one status. What may be noise comes last. */
static double
badness(double cosine, double max_abs, bool noise)
{
    if (noise)
        return 0;
    return isnan(cosine) ? (isnan(max_abs) ? INFINITY : max_abs) : 1 - cosine;
}

static msp_status
on_details(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    msp_precheck_summary *s = payload;
    msp_precheck_status status = status_of(text_at(cells, count, COL_STATUS));
    msp_str name = text_at(cells, count, 0);
    double c = number_at(cells, count, COL_COSINE), a = number_at(cells, count, COL_MAX_ABS);
    bool noise = msp_str_find(text_at(cells, count, COL_MESSAGE), MSP_STR(MSP_PRECHECK_NOISE)) != NULL;
    double bad = badness(c, a, noise);
    size_t at = s->nworst;

    (void)err;
    if (status < MSP_PRECHECK_WARNING)
        return MSP_OK;
    while (at > 0 &&
           (s->worst[at - 1].status < status || (s->worst[at - 1].status == status && s->worst[at - 1].badness < bad)))
        at--;
    if (at == MSP_PRECHECK_WORST)
        return MSP_OK;
    if (s->nworst < MSP_PRECHECK_WORST)
        s->nworst++;
    memmove(&s->worst[at + 1], &s->worst[at], (s->nworst - 1 - at) * sizeof(s->worst[0]));
    snprintf(s->worst[at].name, sizeof(s->worst[at].name), "%.*s", (int)name.len, name.p);
    s->worst[at].status = status;
    s->worst[at].badness = bad;
    s->worst[at].cosine = c;
    s->worst[at].max_abs = a;
    s->worst[at].max_rel = number_at(cells, count, COL_MAX_REL);
    return MSP_OK;
}

void
msp_precheck_summary_sinks(msp_table_sink *results, msp_table_sink *details, msp_precheck_summary *sum)
{
    *results = (msp_table_sink){on_header, on_result, sum};
    *details = (msp_table_sink){on_header, on_details, sum};
}

msp_status
msp_precheck_summarise(msp_precheck_summary *sum, const char *result_path, const char *details_path, msp_error *err)
{
    msp_table_sink results, details;
    msp_status st;

    msp_precheck_summary_sinks(&results, &details, sum);
    st = msp_table_read(result_path, &results, err);
    return st == MSP_OK ? msp_table_read(details_path, &details, err) : st;
}
