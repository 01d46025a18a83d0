/*
 * job.h - one answer for all ranks: which of their wrong calls came first, and which of them only inherited it.
 *
 * A pair hands in its part when it is done: its communication calls and where among them its first wrong call stands
 * (about 100 bytes for each communication call, whatever else the rank did). When all pairs are through, the parts of a
 * step are ordered by their communication (first/order.h), and the table of the job is written.
 */
#ifndef MSP_COMPARE_JOB_H
#define MSP_COMPARE_JOB_H

#include "compare/first/order.h"
#include "compare/match/match.h"
#include "compare/run/run.h"

typedef struct msp_job_call {
    msp_comm_call comm; /* views into name */
    const char *name;
} msp_job_call;

/* Where a call stands in its rank. */
typedef struct msp_job_spot {
    bool found;
    size_t before;  /* communication calls before it */
    size_t place;   /* calls since the last of them */
    bool is_result; /* it is the communication call number `before`, which was given nothing wrong itself */
    bool is_weak;   /* its inputs explain it: it counts where they came from another rank, and is passed over else */
} msp_job_spot;

typedef struct msp_job_part {
    int64_t rank;
    msp_arena arena;
    msp_job_call *calls;
    size_t ncalls, cap;
    msp_job_spot wrong;
} msp_job_part;

/* What a pair knows of itself when its rows are judged. */
typedef struct msp_job_source {
    const msp_rows *rows[2];
    const msp_match *match;
    const msp_stack *stack;
    const msp_compare_pair *pair; /* rank, mode, suspect, verdict */
    int64_t suspect, nonfinite;   /* rows, -1: none */
} msp_job_source;

/* Fill place, but for what takes other ranks to know, and *out, for msp_job_part_close(). MSP_E_NOMEM. */
MSP_CHECK msp_status msp_job_part_make(msp_job_part **out, msp_compare_place *place, const msp_job_source *src,
                                       msp_error *err);
void msp_job_part_close(msp_job_part *p);

/*
 * Give every pair its role and order, and out->job its answer. parts has one entry per pair, NULL where nothing is
 * known of the order. MSP_E_NOMEM.
 */
MSP_CHECK msp_status msp_job_judge(msp_compare_result *out, msp_job_part *const *parts, msp_error *err);

/* Write job_table_<time> in every format that opt asks for, and add the names to out->files. */
MSP_CHECK msp_status msp_job_write(msp_compare_result *out, const msp_compare_options *opt, const char *dir,
                                   const char *timestamp, msp_error *err);

#endif
