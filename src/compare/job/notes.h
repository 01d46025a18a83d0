/* notes.h - what is said before anything else: ranks that are missing, stopped early or made other calls. */
#ifndef MSP_COMPARE_JOB_NOTES_H
#define MSP_COMPARE_JOB_NOTES_H

#include "compare/job/job.h"

/* Of the NPU side, where it has the pair. */
static inline int64_t
msp_job_step(const msp_compare_pair *p)
{
    return p->npu_path != NULL ? p->step : p->bench_step;
}

static inline int64_t
msp_job_rank(const msp_compare_pair *p)
{
    return p->npu_path != NULL ? p->rank : p->bench_rank;
}

bool msp_job_same_step(const msp_compare_pair *a, const msp_compare_pair *b);

/* Fill out->job.notes, and the note of pairs that were not compared. MSP_E_NOMEM. */
MSP_CHECK msp_status msp_job_note_all(msp_compare_result *out, msp_job_part *const *parts, msp_error *err);

#endif
