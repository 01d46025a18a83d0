/*
 * report.h - the HTML page of an earlier comparison, made again from its tables.
 *
 * `msprobe compare` writes the page by itself; this is for results that have none: tables of another machine, of before
 * there were pages, or of the Python tools. What a table does not hold is not in the page: pictures of single elements,
 * and, unless the dump is named too, stacks (where the table has no such column) and the model's tree.
 */
#ifndef MSPROBE_REPORT_H
#define MSPROBE_REPORT_H

#include "msprobe/compare.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct msp_report_options {
    const char *result;     /* a compare_result_*.xlsx, .csv or .json, or a folder of them: then the newest of each */
    const char *dump;       /* the NPU side's dump.json or its folder, for stack.json and construct.json; NULL: none */
    const char *output_dir; /* NULL: beside the result */
} msp_report_options;

typedef struct msp_report_result {
    char *path; /* of the page */
    size_t tables, rows;
    size_t wrong;           /* rows beyond the manual's limits */
    char *sentence;         /* the verdict as compare has said it; NULL: the tables have none */
    msp_answer_level level; /* of that */
} msp_report_result;

/*
 * Make the page. MSP_E_NOT_FOUND (no such file, no table in the folder), MSP_E_FORMAT (not a result of a comparison),
 * MSP_E_IO, MSP_E_NOMEM. *out is to be released in any case.
 */
MSP_API MSP_CHECK msp_status msp_report_run(msp_report_result *out, const msp_report_options *opt, msp_error *err);

/* Accepts an empty result, and leaves it empty. */
MSP_API void msp_report_result_release(msp_report_result *r);

#ifdef __cplusplus
}
#endif
#endif
