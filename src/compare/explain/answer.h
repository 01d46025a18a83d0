/* answer.h - what is said about a pair and about a whole run, once, for the screen, --json, the page and the advisor.
 */
#ifndef MSP_COMPARE_ANSWER_H
#define MSP_COMPARE_ANSWER_H

#include "compare/explain/suspect.h"

/* What judging the rows one after the other saw; row numbers, -1: none. */
typedef struct msp_answer_seen {
    int64_t suspect;   /* the first beyond the manual's limits */
    int64_t nonfinite; /* the first that is NaN or infinite on one side only */
    const char *suspect_verdict;
} msp_answer_seen;

/*
 * Fill out->answer from out->verdict, out->counts and the rows. src has everything but the row. The verdict's sentence
 * is taken over where nothing contradicts it; arguments that differ, NaN on one side, and differences that no call with
 * a partner made are more than it looks at. MSP_E_NOMEM.
 */
MSP_CHECK msp_status msp_answer_make(msp_compare_pair *out, const msp_suspect_source *src, const msp_answer_seen *seen,
                                     msp_error *err);

/* notes.c: what else must be known of the pair, into out->answer.notes. False: out of memory. */
bool msp_answer_notes(msp_compare_pair *out, const msp_suspect_source *src);

/* The run's own sentence, level and pair, from its pairs. MSP_E_NOMEM. */
MSP_CHECK msp_status msp_answer_run(msp_compare_result *out, msp_error *err);

#endif
