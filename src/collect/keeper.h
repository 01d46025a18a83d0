/*
 * keeper.h - the producer's care for its writer: it is started, replaced when somebody kills it, and told of when it
 * stands still.
 *
 * The writer is a process of its own; where none can be started, a thread of this one. Everything here is called by one
 * thread at a time.
 */
#ifndef MSP_COLLECT_KEEPER_H
#define MSP_COLLECT_KEEPER_H

#include <pthread.h>
#include <time.h>
#include "collect/ring.h"

typedef struct msp_keeper {
    msp_ring *ring;
    char *path;       /* of the msprobe command; NULL: a thread writes */
    int stall_max_ms; /* how long the writer may stand still while somebody waits for it; 0: 60 s */
    int restarts;
    bool has_thread;
    pthread_t thread; /* when it has one */
} msp_keeper;

MSP_CHECK msp_status msp_keeper_start(msp_keeper *k, msp_error *err);

/* Start another writer when this one is gone, which goes on where it stopped. An error when recording has failed. */
MSP_CHECK msp_status msp_keeper_revive(msp_keeper *k, msp_error *err);

bool msp_keeper_writer_lives(const msp_keeper *k);

/* How long the writer has shown no sign of life to somebody who waits for it. */
typedef struct msp_stall {
    uint32_t beats; /* as they were last seen */
    struct timespec at;
    int64_t ms;
    bool told;
} msp_stall;

msp_stall msp_stall_begin(const msp_keeper *k);

/*
 * A writer that somebody has stopped, or that hangs in a write to a dead file server, is told of once. When it stands
 * still for too long recording fails for good: the program must not wait for ever. What is in the ring stays there for
 * the writer, should it go on, or for a reader. To be called at least each hundred milliseconds.
 */
MSP_CHECK msp_status msp_stall_check(msp_stall *s, const msp_keeper *k, msp_error *err);

#endif
