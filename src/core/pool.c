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
#include "core/cpu.h"

enum { MAX_THREADS = 256 };

typedef struct job {
    msp_pool_task *task;
    void *payload;
    size_t count;
    _Atomic size_t next;
} job;

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER; /* held by the caller whose job runs */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards everything below */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
static pthread_t threads[MAX_THREADS];
static int nthreads; /* started */
static int wanted;   /* how many may still join the current job */
static int working;  /* inside the current job */
static bool stopping;
static unsigned long serial; /* number of the current job */
static job *current;
static _Thread_local bool holds_busy; /* this thread is the caller whose job runs */

static void
work(job *j)
{
    size_t i;

    while ((i = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->count)
        j->task(i, j->payload);
}

static void *
thread_main(void *unused)
{
    unsigned long seen = 0;

    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        job *j;

        while (!stopping && (current == NULL || serial == seen || wanted == 0))
            pthread_cond_wait(&wake, &lock);
        if (stopping)
            break;
        seen = serial;
        j = current;
        wanted--;
        working++;
        pthread_mutex_unlock(&lock);
        work(j);
        pthread_mutex_lock(&lock);
        if (--working == 0)
            pthread_cond_signal(&idle);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* The parent's threads do not exist in the child: forget them, and whatever state they left the locks in. */
static void
after_fork_in_child(void)
{
    pthread_mutex_init(&busy, NULL);
    if (holds_busy) /* a task forked on the caller's thread: the child is still inside msp_pool_run() */
        pthread_mutex_lock(&busy);
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&wake, NULL);
    pthread_cond_init(&idle, NULL);
    nthreads = wanted = working = 0;
    stopping = false;
    current = NULL;
}

static void
register_fork_handler(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

/* With lock held. Signals stay with the program's own threads. */
static void
start_threads(int want)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sigset_t all, old;

    pthread_once(&once, register_fork_handler);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (nthreads < want && pthread_create(&threads[nthreads], NULL, thread_main, NULL) == 0)
        nthreads++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void
msp_pool_run(size_t count, int max_threads, msp_pool_task *task, void *payload)
{
    job j = {task, payload, count, 0};
    int helpers = max_threads > 0 ? max_threads : msp_cpu_count();

    if (helpers > MAX_THREADS)
        helpers = MAX_THREADS;
    if ((size_t)helpers > count)
        helpers = (int)count;
    helpers--; /* the caller is one of them */
    if (helpers < 1 || pthread_mutex_trylock(&busy) != 0) {
        work(&j);
        return;
    }
    holds_busy = true;
    pthread_mutex_lock(&lock);
    start_threads(helpers);
    current = &j;
    wanted = helpers < nthreads ? helpers : nthreads;
    serial++;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);

    work(&j);

    pthread_mutex_lock(&lock);
    wanted = 0;
    current = NULL;
    while (working > 0)
        pthread_cond_wait(&idle, &lock);
    pthread_mutex_unlock(&lock);
    holds_busy = false;
    pthread_mutex_unlock(&busy);
}

int
msp_pool_threads(void)
{
    int n;

    pthread_mutex_lock(&lock);
    n = nthreads;
    pthread_mutex_unlock(&lock);
    return n;
}

void
msp_pool_shutdown(void)
{
    int n;

    pthread_mutex_lock(&busy);
    pthread_mutex_lock(&lock);
    stopping = true;
    n = nthreads;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_lock(&lock);
    nthreads = 0;
    stopping = false;
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&busy);
}
