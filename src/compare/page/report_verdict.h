/* report_verdict.h - the verdict that compare has written beside a table's rows, read back: verdict_table.h. */
#ifndef MSP_COMPARE_REPORT_VERDICT_H
#define MSP_COMPARE_REPORT_VERDICT_H

#include "core/arena.h"
#include "core/map.h"
#include "msprobe/compare.h"
#include "report/read/table_read.h"

typedef struct msp_report_verdict {
    msp_compare_pair *out; /* whose verdict and answer are filled */
    size_t cap;            /* of out->verdict.results */
    msp_map rows;          /* "call.result" -> number in out->verdict.results */
    size_t cap_unjudged;   /* of out->verdict.unjudged */
    msp_map reasons;       /* text -> number in it */
    msp_arena arena;
    struct {
        int item, call, bench, result, text, in, out, local, bench_local, inherited, expected, ratio, shape;
    } at; /* columns, -1: none */
} msp_report_verdict;

/* Where its rows go: the sink of a table's reader. */
msp_table_sink msp_report_verdict_sink(msp_report_verdict *v);

/* A row of the table, from 0; is it the first suspect's? */
bool msp_report_verdict_row(msp_report_verdict *v, msp_str name, int64_t row);

/* All rows were seen: results of which the table has no row are left out. */
void msp_report_verdict_end(msp_report_verdict *v);

void msp_report_verdict_release(msp_report_verdict *v);

#endif
