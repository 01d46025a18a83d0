/* replay.h - calls that differ are run again, by whoever can (msp_compare_options.replay), and what was measured is
 * read. */
#ifndef MSP_COMPARE_VERDICT_REPLAY_H
#define MSP_COMPARE_VERDICT_REPLAY_H

#include "compare/verdict/verdict.h"
#include "dump/evidence_read.h"

typedef struct msp_verdict_replay {
    msp_measurements measured; /* what evidence points to */
    size_t calls;              /* that were asked for */
    int64_t done;              /* records (forward or backward) that were run again */
    double seconds;
    char *why_not; /* NULL: it was done, or there was nothing to do */
} msp_verdict_replay;

/*
 * Have the calls run again that differ between the runs in what they took or gave, and give list what was measured.
 * Calls that are equal on both sides need none. paths: both dump.json. Where nobody can run them, why_not says so, and
 * the evidence stays as it is. MSP_E_NOMEM, MSP_E_CANCELLED. out is to be released after the list was used, in any
 * case.
 */
MSP_CHECK msp_status msp_verdict_run_again(msp_verdict_replay *out, msp_evidence_list *list,
                                           const msp_compare_options *opt, const char *const paths[2], msp_error *err);
void msp_verdict_replay_release(msp_verdict_replay *r);

#endif
