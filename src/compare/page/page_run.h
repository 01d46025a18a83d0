/*
 * page_run.h - the HTML page of a run: a part for each pair while its rows are judged, and the page when all are done.
 */
#ifndef MSP_COMPARE_PAGE_RUN_H
#define MSP_COMPARE_PAGE_RUN_H

#include "compare/judge/judged.h"
#include "compare/rows/rows.h"
#include "dump/dump_read.h"
#include "text/json.h"
#include "msprobe/compare.h"
#include "msprobe/tensor.h"
#include "report/write/page.h"

enum {
    PAGE_RUN_ROWS = 2000000, /* in a page, over all pairs: more than a browser should be given */

    /* rows of a pair whose elements are looked at, in this order */
    PAGE_LOOK_OWN = 32,    /* those that the verdict calls wrong */
    PAGE_LOOK_LIMITS = 48, /* the first beyond the manual's limits */
    PAGE_LOOK_LARGEST = 8, /* those that are off most */
    PAGE_LOOK = PAGE_LOOK_OWN + PAGE_LOOK_LIMITS + PAGE_LOOK_LARGEST
};

typedef struct msp_page_run {
    char *path;
    msp_page_part **parts; /* one per pair, NULL where nothing was compared */
    size_t nparts;
} msp_page_run;

/* What a pair notes for its part. A zeroed one, with part NULL, notes nothing. */
typedef struct msp_page_feed {
    msp_page_part *part;
    size_t beyond[PAGE_LOOK_LIMITS], nbeyond; /* rows beyond the manual's limits, the first ones */
} msp_page_feed;

/* The page will be <dir>/compare_result_<timestamp>.html. MSP_E_NOMEM. */
MSP_CHECK msp_status msp_page_run_open(msp_page_run *out, const char *dir, const char *timestamp, size_t npairs,
                                       msp_error *err);

/* A judged row: cells as in the table, frames (may be NULL) with the first row of a call. */
MSP_CHECK msp_status msp_page_feed_row(msp_page_feed *f, const msp_judged *j, msp_str call, const msp_cell *cells,
                                       const msp_json *frames, size_t row, msp_error *err);

/* All rows are in, and the pair has its verdict and answer: calls and rows of the page say the same. rows:
 * NULL where a suspect's result is its very row. */
MSP_CHECK msp_status msp_page_feed_verdict(msp_page_feed *f, const msp_compare_pair *pair, const msp_rows *rows,
                                           msp_error *err);

/* The rows whose elements are to be looked at; diffs: for each row its relative difference, NaN where there is none. */
size_t msp_page_feed_choose(const msp_page_feed *f, size_t out[PAGE_LOOK], const msp_compare_pair *pair,
                            const double *diffs, size_t nrows);

/* Parents of calls from the construct.json beside a dump.json; one that is missing or broken is no error. */
MSP_CHECK msp_status msp_page_feed_construct(msp_page_part *part, const char *json_path, msp_error *err);

/* Add what is seen in two tensors to a JSON array that is being written. */
void msp_page_elements(msp_json_writer *w, const msp_tensor *n, const msp_tensor *b, int64_t shown_row);

/* Write the page from what the pairs say, and its name into out->files. */
MSP_CHECK msp_status msp_page_run_write(msp_page_run *p, msp_compare_result *out, const msp_compare_options *opt,
                                        msp_error *err);

void msp_page_run_release(msp_page_run *p);

#endif
