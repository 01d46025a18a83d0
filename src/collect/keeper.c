/*
 * keeper.c - see keeper.h.
 */
#include "collect/keeper.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include "collect/writer.h"
#include "core/fault.h"
#include "core/log.h"
#include "core/process.h"

enum {
    START_MS = 5000,
    MOST_RESTARTS = 3,    /* then a thread writes */
    STALL_WARN_MS = 5000, /* a writer that does nothing for so long is told of */
    STALL_MAX_MS = 60000, /* unless the caller says otherwise: then recording ends */
    STALL_STEP_MS = 100   /* the most that one wait counts: this process may have been stopped itself */
};

static void
sleep_ms(int ms)
{
    struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};

    nanosleep(&ts, NULL);
}

static void *
thread_main(void *ring)
{
    msp_error err;

    if (msp_writer_serve(ring, NULL, &err) != MSP_OK)
        msp_warning("%s", err.message);
    return NULL;
}

static msp_status
start_thread(msp_keeper *k, msp_error *err)
{
    sigset_t all, old;
    int e;

    msp_signals_of_others(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    e = pthread_create(&k->thread, NULL, thread_main, k->ring);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e != 0)
        return msp_error_set_errno(err, MSP_E_IO, e, "cannot start a thread");
    k->has_thread = true;
    atomic_store(&k->ring->shared->writer_start, k->ring->shared->producer_start);
    atomic_store(&k->ring->shared->writer_pid, getpid());
    return MSP_OK;
}

static msp_status
start_process(msp_keeper *k, msp_error *err)
{
    int e;

    atomic_store(&k->ring->shared->writer_pid, 0);
    e = msp_process_spawn(k->path, "__write", k->ring->path);
    if (e != 0)
        return msp_error_set_errno(err, MSP_E_IO, e, "%s: cannot start", k->path);
    for (int ms = 0; ms < START_MS; ms += 2) {
        if (atomic_load(&k->ring->shared->writer_pid) != 0)
            return MSP_OK;
        sleep_ms(2);
    }
    return msp_error_set(err, MSP_E_IO, "%s: the writer did not come up within %d s", k->path, START_MS / 1000);
}

msp_status
msp_keeper_start(msp_keeper *k, msp_error *err)
{
    msp_error why;

    if (k->path != NULL) {
        if (start_process(k, &why) == MSP_OK)
            return MSP_OK;
        msp_warning("%s; a thread of this process writes the dump instead", why.message);
    }
    return start_thread(k, err);
}

bool
msp_keeper_writer_lives(const msp_keeper *k)
{
    return k->has_thread || msp_ring_writer_lives(k->ring);
}

msp_status
msp_keeper_revive(msp_keeper *k, msp_error *err)
{
    if (msp_ring_is_lost(k->ring))
        return msp_ring_lost_error(k->ring, err);
    if (atomic_load(&k->ring->shared->failed))
        return msp_ring_failed_error(k->ring, err);
    if (msp_keeper_writer_lives(k))
        return MSP_OK;
    msp_warning("the writer process is gone; starting another one");
    if (k->restarts++ >= MOST_RESTARTS)
        return start_thread(k, err);
    return msp_keeper_start(k, err);
}

msp_stall
msp_stall_begin(const msp_keeper *k)
{
    msp_stall s = {.beats = atomic_load(&k->ring->shared->beats)};

    clock_gettime(CLOCK_MONOTONIC, &s.at);
    return s;
}

static void
warn_of_stall(int64_t pid, int64_t ms_left)
{
    const long long n = pid, left = ms_left / 1000;

    if (msp_process_is_stopped(pid))
        msp_warning("the program waits for the writer of the dump, process %lld, which is stopped; "
                    "\"kill -CONT %lld\" lets it go on, and in %lld s recording ends without it",
                    n, n, left);
    else
        msp_warning("the program waits for the writer of the dump, process %lld, which has done nothing for %d s; "
                    "in %lld s recording ends without it",
                    n, STALL_WARN_MS / 1000, left);
}

msp_status
msp_stall_check(msp_stall *s, const msp_keeper *k, msp_error *err)
{
    ring_shared *shared = k->ring->shared;
    const int64_t most = k->stall_max_ms > 0 ? k->stall_max_ms : STALL_MAX_MS;
    const uint32_t beats = atomic_load(&shared->beats);
    const int64_t pid = atomic_load(&shared->writer_pid);
    struct timespec now;
    int64_t ms;

    clock_gettime(CLOCK_MONOTONIC, &now);
    ms = (now.tv_sec - s->at.tv_sec) * 1000 + (now.tv_nsec - s->at.tv_nsec) / 1000000;
    s->at = now;
    s->ms = beats != s->beats ? 0 : s->ms + (ms < STALL_STEP_MS ? ms : STALL_STEP_MS);
    s->beats = beats;
    if (s->ms >= most) {
        snprintf(shared->error, sizeof(shared->error),
                 "the writer of the dump, process %lld, has done nothing for %lld s; recording stops and the program "
                 "goes on",
                 (long long)pid, (long long)(s->ms / 1000));
        atomic_store(&shared->failed, 1);
        return msp_ring_failed_error(k->ring, err);
    }
    if (s->ms >= STALL_WARN_MS && !s->told) {
        s->told = true;
        warn_of_stall(pid, most - s->ms);
    }
    return MSP_OK;
}
