/* pairs.h - the pairs of a run, beside each other or one after the other, here or in other processes too. */
#ifndef MSP_COMPARE_DRIVER_PAIRS_H
#define MSP_COMPARE_DRIVER_PAIRS_H

#include "compare/run/run.h"

typedef struct msp_run_jobs {
    msp_run *run;
    msp_plan *plan;
    msp_compare_result *out;
    msp_pair_parts *parts; /* one per pair */
    bool ended;            /* other processes have been told that there is nothing left to do */
} msp_run_jobs;

/* What a pair is called, and its paths. */
MSP_CHECK msp_status msp_run_name_pair(msp_compare_pair *out, const msp_plan_pair *plan, msp_error *err);

/*
 * Many ranks: one per thread. Fewer ranks than threads: one after the other, each with all threads, so that a large
 * rank at the end does not keep a single core busy. A msp_share_work of jobs.
 */
void msp_run_pairs(const size_t *pairs, size_t n, void *payload);

/* All pairs, here or also in other processes. */
MSP_CHECK msp_status msp_run_all(msp_run_jobs *j, msp_error *err);

/* follow.c: what msp_compare_run() does in a process that is not the first. *lost: as out->lost. */
MSP_CHECK msp_status msp_run_follow(const msp_compare_options *opt, size_t *lost, msp_error *err);

#endif
