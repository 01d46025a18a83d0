/* test_fault.c - files that are cut short while they are mapped: zeros instead of a signal, and a word about it. */
#include "unit.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "core/file.h"
#include "core/pool.h"

enum { SIZE = 40 * 4096, KEPT = 10 * 4096 };

/* A file of ones that is large enough to be mapped. */
static const char *
ones(const char *name)
{
    static char bytes[SIZE];

    memset(bytes, 1, sizeof(bytes));
    return write_file(name, bytes, sizeof(bytes));
}

static msp_mapping
open_it(const char *path)
{
    msp_mapping m;
    msp_error err;

    if (msp_map_open(&m, path, &err) != MSP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(m.kind, MSP_MAP_MAPPED);
    return m;
}

static int64_t
sum(const msp_mapping *m)
{
    const volatile char *p = m->addr;
    int64_t n = 0;

    for (size_t i = 0; i < m->size; i++)
        n += p[i];
    return n;
}

static void
what_was_cut_off_reads_as_zeros_and_is_told_with_its_place(void **state)
{
    const char *path = ones("cut");
    msp_mapping m = open_it(path);
    msp_error err;
    char expected[512];

    (void)state;
    assert_int_equal(msp_map_check(&m, AT_FDCWD, path, &err), MSP_OK);
    assert_int_equal(truncate(path, KEPT), 0);
    assert_int_equal(sum(&m), KEPT);
    assert_int_equal(msp_map_check(&m, AT_FDCWD, path, &err), MSP_E_CHANGED);
    snprintf(expected, sizeof(expected),
             "%s: was cut short while it was read: of %d bytes those from %d on are gone; is it still being written "
             "or copied?",
             path, SIZE, KEPT);
    assert_string_equal(err.message, expected);
    assert_int_equal(truncate(path, 0), 0); /* even if nothing is left to compare with */
    assert_int_equal(msp_map_check(&m, AT_FDCWD, "/nonexistent", &err), MSP_E_CHANGED);
    msp_map_close(&m);
}

static void
a_cut_of_less_than_a_page_raises_no_signal_and_is_told_all_the_same(void **state)
{
    const char *path = ones("page");
    msp_mapping m = open_it(path);

    (void)state;
    assert_int_equal(truncate(path, SIZE - 100), 0);
    assert_int_equal(sum(&m), SIZE - 100);
    assert_int_equal(msp_map_check(&m, AT_FDCWD, path, NULL), MSP_E_CHANGED);
    msp_map_close(&m);
}

static void
a_file_that_takes_the_name_is_no_cut(void **state)
{
    const char *path = ones("replaced"), *other = write_file("other", "x", 1);
    msp_mapping m = open_it(path);

    (void)state;
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(sum(&m), SIZE);
    assert_int_equal(msp_map_check(&m, AT_FDCWD, path, NULL), MSP_OK);
    msp_map_close(&m);
}

static void
an_error_that_a_cut_led_to_is_told_as_the_cut(void **state)
{
    const char *path = ones("blame");
    msp_mapping m = open_it(path);
    msp_error err;

    (void)state;
    msp_error_set(&err, MSP_E_FORMAT, "nonsense at byte 7");
    assert_int_equal(msp_map_blame(&m, AT_FDCWD, path, MSP_E_FORMAT, &err), MSP_E_FORMAT);
    assert_string_equal(err.message, "nonsense at byte 7");
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(msp_map_blame(&m, AT_FDCWD, path, MSP_E_FORMAT, &err), MSP_E_CHANGED);
    assert_non_null(strstr(err.message, "was cut short"));
    msp_map_close(&m);
}

static void
any_number_of_mappings_is_watched(void **state)
{
    enum { MANY = 600 };
    const char *path = ones("many");
    static msp_mapping all[MANY];

    (void)state;
    for (int round = 0; round < 2; round++) { /* watches are used again */
        for (int i = 0; i < MANY; i++)
            all[i] = open_it(path);
        assert_int_equal(truncate(path, KEPT), 0);
        assert_int_equal(sum(&all[0]), KEPT);
        assert_int_equal(sum(&all[MANY - 1]), KEPT);
        for (int i = 0; i < MANY; i++)
            msp_map_close(&all[i]);
        (void)ones("many");
    }
}

static void
the_programs_handler_is_back_when_nothing_is_mapped(void **state)
{
    struct sigaction now, first;
    msp_mapping m;

    (void)state;
    sigaction(SIGBUS, NULL, &first);
    m = open_it(ones("handler"));
    sigaction(SIGBUS, NULL, &now);
    assert_true((now.sa_flags & SA_SIGINFO) != 0);
    msp_map_close(&m);
    sigaction(SIGBUS, NULL, &now);
    assert_true(now.sa_handler == first.sa_handler && now.sa_flags == first.sa_flags);
}

/* In a child, whose end by the signal is what is wanted. */
static void
a_fault_elsewhere_ends_the_program_as_it_would_without_us(void **state)
{
    const char *mine = ones("mine"), *other = ones("theirs");
    int status;
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        msp_mapping m = open_it(mine);
        int fd = open(other, O_RDONLY);
        const volatile char *p = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);

        signal(SIGBUS, SIG_DFL); /* a sanitizer's own handler would report it */
        msp_map_close(&m);
        m = open_it(mine);
        if (truncate(other, 0) == 0)
            (void)p[0];
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

static void *
read_all(void *payload)
{
    return (void *)(intptr_t)sum(payload);
}

static void
several_threads_may_meet_the_cut_at_once(void **state)
{
    enum { THREADS = 4 };
    const char *path = ones("threads");
    msp_mapping m = open_it(path);
    pthread_t t[THREADS];

    (void)state;
    assert_int_equal(truncate(path, KEPT), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, read_all, &m), 0);
    for (int i = 0; i < THREADS; i++) {
        void *got;

        pthread_join(t[i], &got);
        assert_int_equal((intptr_t)got, KEPT);
    }
    assert_int_equal(msp_map_check(&m, AT_FDCWD, path, NULL), MSP_E_CHANGED);
    msp_map_close(&m);
}

typedef struct two_readers {
    pthread_barrier_t barrier;
    msp_mapping maps[2];
    int64_t sums[2];
} two_readers;

static void
read_own(size_t i, void *payload)
{
    two_readers *r = payload;

    pthread_barrier_wait(&r->barrier); /* both tasks run, so one of them is a thread of the pool's */
    r->sums[i] = sum(&r->maps[i]);
}

static void
threads_of_the_pool_meet_a_cut_as_any_other(void **state)
{
    const char *path = ones("pool");
    two_readers r;

    (void)state;
    pthread_barrier_init(&r.barrier, NULL, 2);
    for (int i = 0; i < 2; i++)
        r.maps[i] = open_it(path);
    assert_int_equal(truncate(path, KEPT), 0);
    msp_pool_run(2, 2, read_own, &r);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(r.sums[i], KEPT);
        msp_map_close(&r.maps[i]);
    }
    pthread_barrier_destroy(&r.barrier);
}

static void *
open_and_close(void *payload)
{
    for (int i = 0; i < 200; i++) {
        msp_mapping m;

        if (msp_map_open(&m, payload, NULL) != MSP_OK || sum(&m) != SIZE)
            return payload;
        msp_map_close(&m);
    }
    return NULL;
}

static void
others_come_and_go_while_a_cut_is_met(void **state)
{
    char whole[512];
    const char *path = ones("between");
    pthread_t t[2];

    (void)state;
    snprintf(whole, sizeof(whole), "%s", ones("whole"));
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, open_and_close, whole), 0);
    for (int i = 0; i < 50; i++) {
        msp_mapping m = open_it(path);

        assert_int_equal(truncate(path, KEPT), 0);
        assert_int_equal(sum(&m), KEPT);
        msp_map_close(&m);
        (void)ones("between");
    }
    for (int i = 0; i < 2; i++) {
        void *failed;

        pthread_join(t[i], &failed);
        assert_null(failed);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_cut_off_reads_as_zeros_and_is_told_with_its_place),
        TEST(a_cut_of_less_than_a_page_raises_no_signal_and_is_told_all_the_same),
        TEST(a_file_that_takes_the_name_is_no_cut),
        TEST(an_error_that_a_cut_led_to_is_told_as_the_cut),
        TEST(any_number_of_mappings_is_watched),
        TEST(the_programs_handler_is_back_when_nothing_is_mapped),
        TEST(a_fault_elsewhere_ends_the_program_as_it_would_without_us),
        TEST(several_threads_may_meet_the_cut_at_once),
        TEST(threads_of_the_pool_meet_a_cut_as_any_other),
        TEST(others_come_and_go_while_a_cut_is_met),
    };

    return cmocka_run_group_tests_name("fault", tests, NULL, remove_scratch);
}
