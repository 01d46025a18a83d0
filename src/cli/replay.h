/* replay.h - has recorded calls run again by the environment's Python (msprobe/compare.h: msp_replay_fn). */
#ifndef MSP_CLI_REPLAY_H
#define MSP_CLI_REPLAY_H

#include "msprobe/compare.h"

/* What the payload points to. */
typedef struct msp_replay_job {
    bool (*is_cancelled)(void); /* asked now and then while Python runs; NULL: never */
    int threads;                /* workers, 0: one per processor */
} msp_replay_job;

/* An msp_replay_fn. MSP_E_NOT_FOUND: there is no Python, or it has no torch or no msprobe. */
msp_status msp_replay_run(const msp_replay_request *r, void *payload, msp_error *err);

#endif
