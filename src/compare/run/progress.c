/* progress.c - what the pairs of a run have done together, and telling the caller of it now and then. */
#include "compare/run/run.h"
#include "core/clock.h"

/* With the lock held. */
static void
report_progress(msp_run *run, bool always)
{
    double now = msp_clock_seconds();

    if (run->opt->progress == NULL || (!always && now - run->last_report < 0.1))
        return;
    run->last_report = now;
    if (!run->opt->progress(&run->progress, run->opt->progress_payload))
        run->cancelled = true;
}

bool
msp_run_progress(msp_run *run, const char *phase, const char *rank, int64_t rows, int64_t bytes)
{
    pthread_mutex_lock(&run->lock);
    run->progress.phase = phase;
    run->progress.rank = rank;
    run->progress.rows_done += rows;
    run->progress.bytes_done += bytes;
    report_progress(run, false);
    pthread_mutex_unlock(&run->lock);
    return !run->cancelled;
}

bool
msp_run_tick(msp_run *run)
{
    pthread_mutex_lock(&run->lock);
    report_progress(run, false);
    pthread_mutex_unlock(&run->lock);
    return !run->cancelled;
}

void
msp_run_count(msp_run *run, int64_t bytes)
{
    pthread_mutex_lock(&run->lock);
    run->progress.bytes_done += bytes;
    pthread_mutex_unlock(&run->lock);
}

bool
msp_run_json(msp_run *run, const char *rank, int64_t bytes)
{
    pthread_mutex_lock(&run->lock);
    run->progress.json_done += bytes;
    pthread_mutex_unlock(&run->lock);
    return msp_run_progress(run, "read", rank, 0, bytes);
}

void
msp_run_json_known(msp_run *run, int64_t bytes)
{
    pthread_mutex_lock(&run->lock);
    run->progress.json_known += bytes;
    pthread_mutex_unlock(&run->lock);
}

void
msp_run_expect(msp_run *run, int64_t rows, int64_t bytes)
{
    pthread_mutex_lock(&run->lock);
    run->progress.rows_total += rows;
    run->progress.bytes_total += bytes;
    pthread_mutex_unlock(&run->lock);
}

bool
msp_run_pair_done(msp_run *run)
{
    pthread_mutex_lock(&run->lock);
    run->progress.pairs_done++;
    report_progress(run, run->progress.pairs_done == run->progress.pairs_total);
    pthread_mutex_unlock(&run->lock);
    return !run->cancelled;
}
