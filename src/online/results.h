/*
 * results.h - the two csv files of one step and rank while verdicts come in, on either side.
 *
 * Rows are appended as they come, a call's details before its result, so that a kill costs at most the last line. When
 * the step is complete the rows are put into the order of the dump: the file is written anew and renamed into place.
 */
#ifndef MSP_ONLINE_RESULTS_H
#define MSP_ONLINE_RESULTS_H

#include "core/map.h"
#include "core/str.h"
#include "msprobe/precheck.h"

typedef struct msp_results {
    char *result, *details; /* paths */
    int result_fd, details_fd;
    struct results_row {
        uint64_t number;
        char *text; /* the result line, and details behind it */
        size_t result_len, details_len;
    } * rows;
    size_t nrows, cap;
    bool continued; /* earlier rows are in the files only: the order stays as it is */
} msp_results;

#define MSP_RESULTS_NONE ((msp_results){.result_fd = -1, .details_fd = -1})

/*
 * Begin the files in dir, or go on with them: then known is called with the name of each call that has a row. suffix
 * comes behind the stamp in the names, "" or "_rank0". MSP_E_IO, MSP_E_FORMAT, MSP_E_NOMEM.
 */
MSP_CHECK msp_status msp_results_open(msp_results *out, const char *dir, const char *stamp, const char *suffix,
                                      msp_precheck_name_fn *known, void *payload, msp_error *err);

/* number gives the row its place. */
MSP_CHECK msp_status msp_results_add(msp_results *r, uint64_t number, msp_str result, msp_str details, msp_error *err);

/* Put the rows in order, and close. r is empty afterwards, whatever happened. */
MSP_CHECK msp_status msp_results_finish(msp_results *r, msp_error *err);

/* Close without that. */
void msp_results_close(msp_results *r);

#endif
