/*
 * merge.h - the results of many ranks side by side: one workbook, one sheet per metric, one column per rank.
 *
 *     msp_merge_options opt = {.input_dir = "out", .output_dir = "merged", .config_path = "config.yaml"};
 *     msp_merge_result res = {0};
 *     st = msp_merge_run(&res, &opt, &err);
 *     ... res.path is the workbook; res.failed says how many ranks could not be read ...
 *     msp_merge_result_release(&res);
 *
 * Nothing is printed: notes and warnings go to msp_log().
 */
#ifndef MSPROBE_MERGE_H
#define MSPROBE_MERGE_H

#include "msprobe/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All text is borrowed until msp_merge_run() returns. */
typedef struct msp_merge_options {
    const char *input_dir;   /* where compare put compare_result_rank<N>_<time>.xlsx (or .csv), two ranks at least */
    const char *output_dir;  /* made (0750) when it is not there */
    const char *config_path; /* yaml: api (a list, required), compare_index (a list; without it: all metrics) */
    const char *timestamp; /* 14 digits in the name of the result; NULL: the local time now. Where such a file is there
                              already, the next second that is free */
    int threads;           /* 0: one per processor */
} msp_merge_options;

typedef struct msp_merge_result {
    char *path;      /* multi_ranks_compare_merge_<time>.xlsx; NULL when none was written */
    size_t ranks;    /* columns in it */
    size_t left_out; /* ranks whose table could be read but not used: md5, no such metric, no data */
    size_t failed;   /* ranks whose file could not be read; each was named in a warning, the others were merged */
    size_t metrics;  /* sheets */
    size_t rows;     /* of each sheet */
} msp_merge_result;

/*
 * Merge what config_path asks for. Cells that hold no number because the metric could not be computed (N/A,
 * unsupported, Nan) show both maxima instead: "NPU:<max>  Bench:<max>"; that is also how a group row shows its ranks. A
 * rank that lacks a row leaves its cell empty.
 *
 * Returns MSP_E_NOT_FOUND (no such directory or file, fewer than two results, nothing to merge), MSP_E_FORMAT (the
 * configuration is no yaml), MSP_E_INVALID (it lacks api, or a key has the wrong type; a file in input_dir has a
 * name that compare does not write), MSP_E_IO, MSP_E_NOMEM. A rank that cannot be read is no error while others can:
 * see result.failed. out may be released in any case.
 */
MSP_API MSP_CHECK msp_status msp_merge_run(msp_merge_result *out, const msp_merge_options *opt, msp_error *err);

/* Give back what the result holds and leave it empty. */
MSP_API void msp_merge_result_release(msp_merge_result *r);

#ifdef __cplusplus
}
#endif
#endif
