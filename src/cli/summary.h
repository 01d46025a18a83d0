/* summary.h - what a comparison found: for a person in 80 columns, and for programs as JSON. */
#ifndef MSP_CLI_SUMMARY_H
#define MSP_CLI_SUMMARY_H

#include <stdio.h>
#include "cli.h"
#include "jsonout.h"
#include "msprobe/compare.h"
#include "terminal.h"

typedef struct msp_summary {
    const msp_compare_options *options;
    const msp_compare_result *result;
    msp_status status; /* of the run */
    const msp_error *err;
    const msp_args *args; /* to propose the next command */
} msp_summary;

void msp_summary_print(FILE *out, const msp_summary *s);
void msp_summary_print_json(FILE *out, const msp_summary *s);
void msp_summary_job_json(msp_jsonout *j, const msp_compare_result *r); /* its member "job" */

/* frames.c: the innermost frame outside torch, and the innermost of the user's own code. NULL: there is none. */
const char *msp_summary_code_frame(char *const *stack, size_t n);
const char *msp_summary_user_frame(char *const *stack, size_t n);

/*
 * The number that stands beside a row when the pair's first table is opened in a spreadsheet: the titles are row 1.
 * *sheet: the number of its sheet ("part_<n>") where the workbook has several, else -1.
 */
int64_t msp_summary_row(const msp_compare_pair *p, int64_t row, int64_t *sheet);

/* The colour of a verdict's words. */
msp_style msp_summary_style(msp_answer_level level);

#endif
