/* test_pool.c - promises of core/pool.h. Run under ThreadSanitizer too. */
#include "unit.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include "core/pool.h"

enum { MANY = 10000 };

/* Neither ThreadSanitizer's runtime nor qemu can start threads in a child of a threaded process: its pool runs alone.
 */
#if defined(__SANITIZE_THREAD__) || defined(MSP_TEST_EMULATED)
enum { CHILD_THREADS = 1 };
#else
enum { CHILD_THREADS = 4 };
#endif

typedef struct counts {
    _Atomic int ran[MANY];
    _Atomic int total;
} counts;

static void
count_task(size_t index, void *payload)
{
    counts *c = payload;

    atomic_fetch_add(&c->ran[index], 1);
    atomic_fetch_add(&c->total, 1);
}

static void
assert_each_once(counts *c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(c->ran[i], 1);
    assert_int_equal(c->total, n);
}

static void
every_task_runs_once(void **state)
{
    const int threads[] = {0, 1, 2, 3, 8, 10000};
    const size_t sizes[] = {0, 1, 2, 7, MANY};

    (void)state;
    for (size_t t = 0; t < 6; t++)
        for (size_t s = 0; s < 5; s++) {
            counts *c = calloc(1, sizeof(*c));

            msp_pool_run(sizes[s], threads[t], count_task, c);
            assert_each_once(c, sizes[s]);
            free(c);
        }
}

static void
one_thread_starts_none(void **state)
{
    counts *c = calloc(1, sizeof(*c));

    (void)state;
    msp_pool_shutdown();
    msp_pool_run(100, 1, count_task, c);
    assert_each_once(c, 100);
    assert_int_equal(msp_pool_threads(), 0);
    memset(c, 0, sizeof(*c));
    msp_pool_run(1, 8, count_task, c);
    assert_int_equal(msp_pool_threads(), 0); /* one task needs no help */
    memset(c, 0, sizeof(*c));
    msp_pool_run(100, 4, count_task, c);
    assert_int_equal(msp_pool_threads(), 3); /* the caller is the fourth */
    free(c);
}

typedef struct nest {
    counts inner[4];
    _Atomic pthread_t runner[4][8];
} nest;

static void
note_thread(size_t index, void *payload)
{
    struct {
        nest *n;
        size_t outer;
    } *p = payload;

    count_task(index, &p->n->inner[p->outer]);
    atomic_store(&p->n->runner[p->outer][index], pthread_self());
}

static void
run_nested(size_t index, void *payload)
{
    struct {
        nest *n;
        size_t outer;
    } p = {payload, index};

    msp_pool_run(8, 4, note_thread, &p);
    for (int i = 0; i < 8; i++)
        assert_true(pthread_equal(atomic_load(&p.n->runner[index][i]), pthread_self()));
}

static void
a_job_inside_a_job_runs_inline(void **state)
{
    nest *n = calloc(1, sizeof(*n));

    (void)state;
    msp_pool_run(4, 4, run_nested, n);
    for (int i = 0; i < 4; i++)
        assert_each_once(&n->inner[i], 8);
    free(n);
}

static void *
call_often(void *unused)
{
    counts *c = calloc(1, sizeof(*c));

    (void)unused;
    for (int round = 0; round < 50; round++) {
        memset(c, 0, sizeof(*c));
        msp_pool_run(200, 3, count_task, c);
        assert_each_once(c, 200);
    }
    free(c);
    return NULL;
}

static void
many_callers_get_their_own_results(void **state)
{
    pthread_t callers[8];

    (void)state;
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, call_often, NULL), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(callers[i], NULL);
}

static void
plain_memory_written_by_tasks_is_seen_by_the_caller(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        counts *c = calloc(1, sizeof(*c)); /* a new address each time: no synchronisation but the pool's own */

        msp_pool_run(16, 4, count_task, c);
        assert_each_once(c, 16);
        free(c);
    }
}

static void
shutdown_ends_the_threads_and_the_next_job_starts_them_again(void **state)
{
    counts *c = calloc(1, sizeof(*c));

    (void)state;
    for (int round = 0; round < 20; round++) {
        memset(c, 0, sizeof(*c));
        msp_pool_run(50, 3, count_task, c);
        assert_each_once(c, 50);
        assert_true(msp_pool_threads() >= 2);
        msp_pool_shutdown();
        assert_int_equal(msp_pool_threads(), 0);
        msp_pool_shutdown();
    }
    free(c);
}

static int
exit_status_of(pid_t child)
{
    int status;

    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* In the child: 0 when the pool works there and started from nothing. */
static int
check_pool(void)
{
    counts *c = calloc(1, sizeof(*c));
    int bad = msp_pool_threads() != 0;

    alarm(60); /* a deadlock ends here */
    msp_pool_run(MANY, CHILD_THREADS, count_task, c);
    for (int i = 0; i < MANY; i++)
        bad |= c->ran[i] != 1;
    bad |= msp_pool_threads() != CHILD_THREADS - 1;
    msp_pool_shutdown();
    free(c);
    return bad;
}

static void
a_child_starts_its_own_threads(void **state)
{
    counts *c = calloc(1, sizeof(*c));
    pid_t child;

    (void)state;
    msp_pool_run(100, 4, count_task, c);
    child = fork();
    if (child == 0)
        _exit(check_pool());
    assert_int_equal(exit_status_of(child), 0);
    msp_pool_run(100, 4, count_task, c); /* the parent's threads are still there */
    free(c);
}

static atomic_bool stop;

static void *
keep_busy(void *unused)
{
    counts *c = calloc(1, sizeof(*c));

    (void)unused;
    while (!atomic_load(&stop)) {
        memset(c, 0, sizeof(*c));
        msp_pool_run(500, 4, count_task, c);
    }
    free(c);
    return NULL;
}

static void
a_child_made_in_the_middle_of_a_job_works(void **state)
{
    pthread_t busy;

    (void)state;
    assert_int_equal(pthread_create(&busy, NULL, keep_busy, NULL), 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();

        if (child == 0)
            _exit(check_pool());
        assert_int_equal(exit_status_of(child), 0);
    }
    atomic_store(&stop, true);
    pthread_join(busy, NULL);
}

static _Atomic pid_t task_child;

/* Helpers wait in their first task until the caller, on its own thread, has forked in one of its own. */
static void
fork_in_task(size_t index, void *payload)
{
    pthread_t *caller = payload;
    pid_t child;

    (void)index;
    if (pthread_equal(*caller, pthread_self()) && atomic_load(&task_child) == 0) {
        child = fork();
        atomic_store(&task_child, child == 0 ? -1 : child);
    }
    while (atomic_load(&task_child) == 0)
        usleep(1000);
}

/* The child is then still inside msp_pool_run(), and must come out of it with the pool free. */
static void
a_task_may_fork(void **state)
{
    pthread_t self = pthread_self();

    (void)state;
    msp_pool_run(4, 4, fork_in_task, &self);
    if (atomic_load(&task_child) == -1)
        _exit(check_pool());
    assert_int_equal(exit_status_of(atomic_load(&task_child)), 0);
}

static int
leave(void **state)
{
    (void)state;
    msp_pool_shutdown();
    return 0;
}

typedef struct prepared {
    pthread_t caller;
    _Atomic int setups, first_elsewhere, unprepared;
} prepared;

static _Thread_local bool was_set_up;

static void
prepare_thread(void *payload)
{
    prepared *p = payload;

    was_set_up = true;
    atomic_fetch_add(&p->setups, 1);
}

static void
look_at_thread(size_t index, void *payload)
{
    prepared *p = payload;
    bool caller = pthread_equal(pthread_self(), p->caller);

    atomic_fetch_add(&p->first_elsewhere, index == 0 && !caller);
    atomic_fetch_add(&p->unprepared, caller == was_set_up);
}

static void
threads_of_a_pool_of_ones_own_are_set_up_and_leave_task_0_to_the_caller(void **state)
{
    prepared seen = {.caller = pthread_self()};
    msp_pool *p = msp_pool_open(4, prepare_thread, &seen);
    counts *c = calloc(1, sizeof(*c));

    (void)state;
    assert_non_null(p);
    for (int i = 0; i < 100; i++)
        msp_pool_run_in(p, 50, look_at_thread, &seen);
    msp_pool_run_in(p, MANY, count_task, c);
    assert_each_once(c, MANY);
    memset(c, 0, sizeof(*c));
    msp_pool_run_in(p, 0, count_task, c);
    assert_int_equal(c->total, 0);
    msp_pool_run_in(p, 1, count_task, c);
    assert_each_once(c, 1);
    msp_pool_close(p);
    msp_pool_close(NULL);
    assert_int_equal(seen.setups, 3);
    assert_int_equal(seen.first_elsewhere, 0);
    assert_int_equal(seen.unprepared, 0);
    free(c);
}

static void
in_a_child_a_pool_of_ones_own_has_the_caller_alone(void **state)
{
    prepared seen = {.caller = pthread_self()};
    msp_pool *p = msp_pool_open(3, prepare_thread, &seen);
    counts *c = calloc(1, sizeof(*c));
    int status;
    pid_t pid;

    (void)state;
    msp_pool_run_in(p, 100, count_task, c);
    memset(c, 0, sizeof(*c));
    pid = fork();
    if (pid == 0) {
        msp_pool_run_in(p, 100, count_task, c);
        msp_pool_close(p);
        _exit(c->total == 100 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    msp_pool_close(p);
    free(c);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_task_runs_once),
        TEST(one_thread_starts_none),
        TEST(a_job_inside_a_job_runs_inline),
        TEST(many_callers_get_their_own_results),
        TEST(plain_memory_written_by_tasks_is_seen_by_the_caller),
        TEST(shutdown_ends_the_threads_and_the_next_job_starts_them_again),
        TEST(a_child_starts_its_own_threads),
        TEST(a_child_made_in_the_middle_of_a_job_works),
        TEST(a_task_may_fork),
        TEST(threads_of_a_pool_of_ones_own_are_set_up_and_leave_task_0_to_the_caller),
        TEST(in_a_child_a_pool_of_ones_own_has_the_caller_alone),
    };

    return cmocka_run_group_tests(tests, NULL, leave);
}
