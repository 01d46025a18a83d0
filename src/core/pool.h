/*
 * pool.h - one pool of pthreads for the whole library, and others for special work.
 *
 * Threads are started when first needed, and never in a child that fork() made while the parent had them: there the
 * pool starts again from nothing. The calling thread works too, so that nthreads 1 starts no thread at all. A job may
 * not start another job on the pool: it would run inline.
 */
#ifndef MSP_CORE_POOL_H
#define MSP_CORE_POOL_H

#include <stddef.h>

typedef void msp_pool_task(size_t index, void *payload);

/*
 * Call task(0..count-1, payload), each once, on up to nthreads threads (0: one per processor), and return when all are
 * done. Tasks are handed out in order. When no thread can be started the caller does all the work: this cannot fail.
 */
void msp_pool_run(size_t count, int nthreads, msp_pool_task *task, void *payload);

/* Threads of this pool that are running now, for tests. */
int msp_pool_threads(void);

/* End all threads, so that leak checkers see none. The next msp_pool_run() starts them again. */
void msp_pool_shutdown(void);

/*
 * A pool of one's own, for threads that are prepared for their work: each calls setup(payload) when it starts, the
 * calling thread does not; threads counts it, too. Task 0 runs on the calling thread, so that there is one for what
 * must not happen elsewhere. NULL when there is no memory.
 */
typedef struct msp_pool msp_pool;
typedef void msp_pool_setup(void *payload);

msp_pool *msp_pool_open(int threads, msp_pool_setup *setup, void *payload);
void msp_pool_run_in(msp_pool *p, size_t count, msp_pool_task *task, void *payload);

/* End its threads. NULL is fine. */
void msp_pool_close(msp_pool *p);

#endif
