/*
 * share.h - the pairs of a run shared out among processes (msprobe/link.h).
 *
 * Process 0 leads: it hands out pairs, largest first, to whoever asks, works itself beside that, and gathers what came
 * out. The others follow. In each process the calling thread speaks and listens, and a thread of its own works, so that
 * everybody answers at any time: who is silent for msp_link.silence seconds is dead, and what it had is done by others.
 * A pair whose process died twice is not compared: it may be what kills them.
 */
#ifndef MSP_COMPARE_SHARE_H
#define MSP_COMPARE_SHARE_H

#include "compare/share/pack.h"
#include "msprobe/link.h"

/* Compare these pairs in this process. */
typedef void msp_share_work(const size_t *pairs, size_t n, void *payload);

/* What both sides work on; all of it borrowed. A follower's plan and result have as many pairs as the leader's. */
typedef struct msp_share {
    msp_link *link;
    msp_run *run;
    msp_plan *plan;
    msp_compare_result *out;
    msp_pair_parts *parts;
    msp_share_work *work;
    void *payload;
} msp_share;

/*
 * Have these n pairs compared, which are in the order in which they are to be handed out. out->lost counts processes
 * that died. MSP_E_NOMEM.
 */
MSP_CHECK msp_status msp_share_lead(const msp_share *s, const size_t *pairs, size_t n, msp_error *err);

/*
 * Nothing, or nothing more, is to be done by the others. Adds to *lost those that do not answer; in haste nobody is
 * waited for. What they have met of the run's data mapping or layout is noted there; run may be NULL.
 */
void msp_share_end(msp_link *link, const msp_run *run, bool in_haste, size_t *lost);

/* What a follower is told first. Released with msp_free(). */
typedef struct msp_share_setup {
    char *timestamp;
    size_t npairs;
} msp_share_setup;

/* MSP_E_CANCELLED: there is nothing to do. MSP_E_IO: nobody leads. */
MSP_CHECK msp_status msp_share_join(msp_share_setup *out, msp_link *link, msp_error *err);

/* Work until the leader ends it. MSP_E_IO: the leader is gone. MSP_E_CANCELLED, MSP_E_NOMEM. */
MSP_CHECK msp_status msp_share_follow(const msp_share *s, msp_error *err);

#endif
