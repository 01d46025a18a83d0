/*
 * page_judge.h - what the page says of rows and calls once all of them are known: which are wrong, and which only
 * follow from that.
 */
#ifndef MSP_REPORT_PAGE_JUDGE_H
#define MSP_REPORT_PAGE_JUDGE_H

#include "report/write/page.h"

typedef struct msp_page_call {
    uint32_t first, rows; /* that are kept */
    uint32_t fed;         /* number of its first row, kept or not */
    uint32_t stack;
    int32_t parent;           /* -1: none */
    float error, input_error; /* the largest of its outputs and inputs; -1: none was measured */
    uint8_t verdict, marks;   /* until they are settled: of the rows that were not kept */
} msp_page_call;

/* A row that is in the page. */
typedef struct msp_page_kept {
    uint32_t fed;
    float error;
    uint8_t verdict, marks;
} msp_page_kept;

/*
 * A row that differs by more than anything did before the trouble began has inherited it: the trouble begins at the
 * first wrong call, or before that at a difference that comes in from outside. own: rows have the
 * verdict of the tool, which has told apart what a call adds and what it inherits. Otherwise they have that of the
 * manual's limits, and a wrong result of a call whose inputs are off already is inherited, too. A call has the worst
 * verdict of its rows.
 */
void msp_page_settle(msp_page_call *calls, size_t ncalls, msp_page_kept *rows, bool own);

#endif
