/*
 * pool.c - see pool.h.
 *
 * One job at a time: its tasks are numbers handed out by an atomic counter, so a job of a thousand tasks costs two lock
 * operations per thread. A second caller, or a task that calls msp_pool_run() itself, finds the pool busy and does its
 * own work inline: correct, and what one wants when every core is taken.
 */
#include "core/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/cpu.h"
#include "core/fault.h"

enum { MAX_THREADS = 256 };

typedef struct job {
    msp_pool_task *task;
    void *payload;
    size_t count;
    _Atomic size_t next;
} job;

struct msp_pool {
    pthread_mutex_t busy; /* held by the caller whose job runs */
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t wake, idle;
    pthread_t threads[MAX_THREADS];
    int nthreads; /* started */
    int wanted;   /* how many may still join the current job */
    int working;  /* inside the current job */
    bool stopping;
    unsigned long serial; /* number of the current job */
    job *current;
    /* of a pool of one's own */
    int most; /* threads, the caller included */
    msp_pool_setup *setup;
    void *payload;
    pid_t process; /* whose threads they are */
};

static msp_pool shared = {.busy = PTHREAD_MUTEX_INITIALIZER,
                          .lock = PTHREAD_MUTEX_INITIALIZER,
                          .wake = PTHREAD_COND_INITIALIZER,
                          .idle = PTHREAD_COND_INITIALIZER};
static _Thread_local bool holds_busy; /* this thread is the caller whose job the shared pool runs */

static void
work_on_job(job *j)
{
    size_t i;

    while ((i = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->count)
        j->task(i, j->payload);
}

static void *
thread_main(void *pool)
{
    msp_pool *p = pool;
    unsigned long seen = 0;

    if (p->setup != NULL)
        p->setup(p->payload);
    pthread_mutex_lock(&p->lock);
    for (;;) {
        job *j;

        while (!p->stopping && (p->current == NULL || p->serial == seen || p->wanted == 0))
            pthread_cond_wait(&p->wake, &p->lock);
        if (p->stopping)
            break;
        seen = p->serial;
        j = p->current;
        p->wanted--;
        p->working++;
        pthread_mutex_unlock(&p->lock);
        work_on_job(j);
        pthread_mutex_lock(&p->lock);
        if (--p->working == 0)
            pthread_cond_signal(&p->idle);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void
init_pool(msp_pool *p)
{
    pthread_mutex_init(&p->busy, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->idle, NULL);
    p->nthreads = p->wanted = p->working = 0;
    p->stopping = false;
    p->current = NULL;
}

/* The parent's threads do not exist in the child: forget them, and whatever state they left the locks in. */
static void
after_fork_in_child(void)
{
    init_pool(&shared);
    if (holds_busy) /* a task forked on the caller's thread: the child is still inside msp_pool_run() */
        pthread_mutex_lock(&shared.busy);
}

static void
register_fork_handler(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

/* With lock held. Signals stay with the program's own threads. */
static void
start_threads(msp_pool *p, int want)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sigset_t all, old;

    pthread_once(&once, register_fork_handler);
    msp_signals_of_others(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (p->nthreads < want && pthread_create(&p->threads[p->nthreads], NULL, thread_main, p) == 0)
        p->nthreads++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void
work_as_caller(const msp_pool *p, job *j)
{
    if (p != &shared && j->count > 0)
        j->task(0, j->payload);
    work_on_job(j);
}

/* Of a pool of one's own task 0 is the caller's. */
static void
run_on(msp_pool *p, size_t count, int most, msp_pool_task *task, void *payload)
{
    job j = {task, payload, count, p != &shared};
    int helpers = most < MAX_THREADS ? most : MAX_THREADS;

    if ((size_t)helpers > count)
        helpers = (int)count;
    helpers--; /* the caller is one of them */
    if (helpers < 1 || pthread_mutex_trylock(&p->busy) != 0) {
        work_as_caller(p, &j);
        return;
    }
    if (p == &shared)
        holds_busy = true;
    pthread_mutex_lock(&p->lock);
    start_threads(p, helpers);
    p->current = &j;
    p->wanted = helpers < p->nthreads ? helpers : p->nthreads;
    p->serial++;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);

    work_as_caller(p, &j);

    pthread_mutex_lock(&p->lock);
    p->wanted = 0;
    p->current = NULL;
    while (p->working > 0)
        pthread_cond_wait(&p->idle, &p->lock);
    pthread_mutex_unlock(&p->lock);
    if (p == &shared)
        holds_busy = false;
    pthread_mutex_unlock(&p->busy);
}

static void
shut_down(msp_pool *p)
{
    int n;

    pthread_mutex_lock(&p->busy);
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    n = p->nthreads;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < n; i++)
        pthread_join(p->threads[i], NULL);
    pthread_mutex_lock(&p->lock);
    p->nthreads = 0;
    p->stopping = false;
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_unlock(&p->busy);
}

/* ---- the pool of the process ------------------------------------------------------------------------------------- */

void
msp_pool_run(size_t count, int max_threads, msp_pool_task *task, void *payload)
{
    run_on(&shared, count, max_threads > 0 ? max_threads : msp_cpu_count(), task, payload);
}

int
msp_pool_threads(void)
{
    int n;

    pthread_mutex_lock(&shared.lock);
    n = shared.nthreads;
    pthread_mutex_unlock(&shared.lock);
    return n;
}

void
msp_pool_shutdown(void)
{
    shut_down(&shared);
}

/* ---- a pool of one's own ----------------------------------------------------------------------------------------- */

msp_pool *
msp_pool_open(int threads, msp_pool_setup *setup, void *payload)
{
    msp_pool *p = msp_alloc_zero(1, sizeof(*p));

    if (p == NULL)
        return NULL;
    init_pool(p);
    p->most = threads;
    p->setup = setup;
    p->payload = payload;
    p->process = getpid();
    return p;
}

void
msp_pool_run_in(msp_pool *p, size_t count, msp_pool_task *task, void *payload)
{
    run_on(p, count, p->process == getpid() ? p->most : 1, task, payload);
}

void
msp_pool_close(msp_pool *p)
{
    if (p == NULL)
        return;
    if (p->process == getpid()) /* in a child there is nobody to wait for */
        shut_down(p);
    msp_free(p);
}
