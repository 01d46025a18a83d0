/*
 * test_collect.c - promises of msprobe/collect.h: what was recorded survives whatever is killed.
 *
 * The program is its own writer: started with "__write RING" it does what the msprobe command does.
 */
#include "collects.h"
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include "collect/ring.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/log.h"
#include "core/path.h"
#include "text/json.h"
#include "msprobe/collect.h"

static void
the_text_is_what_python_writes(void **state)
{
    const char *dir = scratch_path("text"), *unit_dir = scratch_path("text/step0/rank0");
    msp_collect *c = open_collect(dir, false);
    uint32_t unit = open_unit(c, unit_dir), stack;
    const char *const frames[] = {"File a.py, line 3, in f, \n y = g(x)", "File b.py, line 1, in <module>, \n f(x)"};
    msp_record r = {0};
    char *text;
    size_t size;

    (void)state;
    assert_int_equal(msp_collect_stack(c, &stack, frames, 2, NULL), MSP_OK);
    commit_call(c, &r, unit, 0);
    commit_site(c, &r, unit, 0, stack);
    flush(c);
    assert_int_equal(msp_file_read(&text, &size, in_dir(unit_dir, "dump.json"), 1 << 20, NULL), MSP_OK);
    assert_string_equal(text,
                        "{\n \"task\": \"statistics\",\n \"level\": \"L1\",\n \"framework\": \"pytorch\",\n"
                        " \"dump_data_dir\": null,\n \"data\": {\n  \"Functional.relu.0.forward\": {\n"
                        "   \"input_args\": [\n    {\n     \"type\": \"torch.Tensor\",\n"
                        "     \"dtype\": \"torch.float32\",\n     \"shape\": [\n      2,\n      2\n     ],\n"
                        "     \"Max\": 0.5,\n     \"Min\": -1.0,\n     \"Mean\": 0.25,\n     \"Norm\": 2.0,\n"
                        "     \"requires_grad\": true,\n     \"md5\": \"00000abc\"\n    },\n    0\n   ]\n  }\n }\n}");
    msp_free(text);
    assert_int_equal(msp_file_read(&text, &size, in_dir(unit_dir, "stack.json"), 1 << 20, NULL), MSP_OK);
    assert_string_equal(text, "{\n \"0\": [\n  [\n   \"Functional.relu.0.forward\"\n  ],\n  [\n"
                              "   \"File a.py, line 3, in f, \\n y = g(x)\",\n"
                              "   \"File b.py, line 1, in <module>, \\n f(x)\"\n  ]\n ]\n}");
    msp_free(text);
    assert_int_equal(msp_file_read(&text, &size, in_dir(unit_dir, "construct.json"), 1 << 20, NULL), MSP_OK);
    assert_string_equal(text, "{\n \"Functional.relu.0.forward\": \"Module.a.Linear.forward.0\"\n}");
    msp_free(text);
    msp_collect_close(c);
    assert_int_equal(hidden_files(dir), 0);
    assert_int_equal(hidden_files(unit_dir), 0);
    msp_free(r.p);
}

static char *
read_unit(const char *dir, const char *name)
{
    char *text;
    size_t size;

    assert_int_equal(msp_file_read(&text, &size, in_dir(dir, name), 1 << 20, NULL), MSP_OK);
    return text;
}

static void
a_call_in_one_record_reads_as_its_value_and_its_site(void **state)
{
    const char *dir = scratch_path("one"), *apart = scratch_path("one/apart"), *together = scratch_path("one/together");
    const char *const frames[] = {"File a.py, line 3, in f, \n y = g(x)"}, *const names[] = {"dump.json", "stack.json",
                                                                                             "construct.json"};
    msp_collect *c = open_collect(dir, false);
    uint32_t units[] = {open_unit(c, apart), open_unit(c, together)}, stack;
    msp_record r = {0};

    (void)state;
    assert_int_equal(msp_collect_stack(c, &stack, frames, 1, NULL), MSP_OK);
    for (int i = 0; i < 2; i++) {
        msp_record_begin(&r, units[i], "Functional.relu.0.forward", 25);
        msp_record_object(&r);
        msp_record_key(&r, "a", 1);
        msp_record_int(&r, 7);
        msp_record_end(&r);
        if (i == 1)
            msp_record_place(&r, stack, "Module.a.Linear.forward.0", 25);
        assert_int_equal(msp_collect_commit(c, &r, NULL, NULL, NULL), MSP_OK);
    }
    commit_site(c, &r, units[0], 0, stack);
    flush(c);
    for (int i = 0; i < 3; i++) {
        char *one = read_unit(apart, names[i]), *other = read_unit(together, names[i]);

        assert_string_equal(other, one);
        assert_non_null(strstr(one, "Functional.relu.0.forward"));
        msp_free(one);
        msp_free(other);
    }
    msp_collect_close(c);
    msp_free(r.p);
}

static void
a_small_tensor_is_recorded_as_any_other(void **state)
{
    const float values[12] = {1.5f, -2, 0.25f, 3, 4, -0.0f, 7, 8, 9, 10, 11, 12};
    const float bad[2] = {1, INFINITY};
    const int64_t shape[2] = {3, 4}, two = 2, one = 1;
    const msp_small sums = {MSP_F32, 2, shape, values, 12, true, false},
                    crcs = {MSP_F32, 2, shape, values, 12, true, true};
    const msp_small infinite = {MSP_F32, 1, &two, bad, 2, true, false},
                    wide = {MSP_F64, 1, &one, values, 1, true, true};
    msp_record small = {0}, usual = {0};
    msp_stats stats;
    msp_tensor t;
    msp_tensor_note note = {.shape_of = &t, .stats = &stats, .requires_grad = true};

    (void)state;
    assert_int_equal(msp_tensor_view(&t, values, MSP_F32, 2, shape, NULL), MSP_OK);
    msp_stats_compute(&stats, &t);
    msp_record_tensor(&usual, &note);
    note.has_crc = true;
    note.crc = msp_crc32(&t);
    msp_record_tensor(&usual, &note);
    assert_true(msp_record_small(&small, &sums));
    assert_true(msp_record_small(&small, &crcs));
    assert_int_equal(small.len, usual.len);
    assert_memory_equal(small.p, usual.p, usual.len);
    assert_false(msp_record_small(&small, &infinite));
    assert_false(msp_record_small(&small, &wide));
    assert_int_equal(small.len, usual.len);
    msp_record_release(&small);
    msp_record_release(&usual);
}

static void
more_than_the_ring_holds_waits_for_the_writer_and_nothing_is_lost(void **state)
{
    const char *dir = scratch_path("full"), *unit_dir = scratch_path("full/step0/rank");
    msp_collect *c = open_collect(dir, true);
    uint32_t unit = open_unit(c, unit_dir);
    msp_record r = {0};

    (void)state;
    for (int n = 0; n < 30000; n++)
        commit_call(c, &r, unit, n);
    flush(c);
    assert_int_equal(count_members(in_dir(unit_dir, "dump.json"), true), 30000);
    msp_collect_close(c);
    assert_int_equal(hidden_files(dir), 0);
    msp_free(r.p);
}

static void
a_file_of_its_own_stands_beside_the_others_of_its_folder(void **state)
{
    const char *dir = scratch_path("beside"), *unit_dir = scratch_path("beside/step0/rank");
    msp_collect *c = open_collect(dir, true);
    msp_unit_info info = {unit_dir, MSP_UNIT_DEBUG, "statistics", "L1", "pytorch", NULL, "own.json", 0};
    uint32_t calls = open_unit(c, unit_dir), own;
    msp_record r = {0};
    msp_error err;

    (void)state;
    commit_call(c, &r, calls, 0);
    assert_int_equal(msp_collect_unit(c, &own, &info, &err), MSP_OK);
    commit_call(c, &r, own, 1);
    commit_call(c, &r, own, 2);
    assert_int_equal(msp_collect_unit_close(c, own, &err), MSP_OK);
    commit_call(c, &r, calls, 3);
    commit_call(c, &r, calls, 4);
    flush(c);
    assert_int_equal(count_members(in_dir(unit_dir, "own.json"), true), 2);
    assert_int_equal(count_members(in_dir(unit_dir, "dump.json"), true), 3);
    assert_int_equal(count_members(in_dir(unit_dir, "debug.json"), true), -1);
    info.file = "../up.json";
    assert_int_equal(msp_collect_unit(c, &own, &info, &err), MSP_OK); /* the writer leaves it */
    (void)!msp_collect_flush(c, NULL, NULL, &err);
    msp_collect_close(c);
    assert_int_equal(count_members(in_dir(dir, "step0/up.json"), true), -1);
    msp_free(r.p);
}

static void
a_record_larger_than_the_ring_arrives(void **state)
{
    const char *dir = scratch_path("large"), *unit_dir = scratch_path("large/step0/rank");
    msp_collect *c = open_collect(dir, false);
    uint32_t unit = open_unit(c, unit_dir);
    msp_record r = {0};

    (void)state;
    msp_record_begin(&r, unit, "big", 3);
    msp_record_array(&r);
    for (int i = 0; i < 400000; i++)
        msp_record_int(&r, i);
    msp_record_end(&r);
    assert_int_equal(msp_collect_commit(c, &r, NULL, NULL, NULL), MSP_OK);
    commit_call(c, &r, unit, 1);
    flush(c);
    assert_int_equal(count_members(in_dir(unit_dir, "dump.json"), true), 2);
    msp_collect_close(c);
    assert_int_equal(hidden_files(dir), 0);
    msp_free(r.p);
}

static void
a_late_record_stands_where_its_place_was_kept(void **state)
{
    const char *dir = scratch_path("late"), *unit_dir = scratch_path("late/step0/rank");
    msp_collect *c = open_collect(dir, false);
    uint32_t unit = open_unit(c, unit_dir);
    msp_record r = {0};
    size_t size;
    char *text;

    (void)state;
    for (uint32_t number = 1; number <= 3; number++) {
        msp_record_hole(&r, unit, number);
        assert_int_equal(msp_collect_commit(c, &r, NULL, NULL, NULL), MSP_OK);
    }
    for (int i = 0; i < 3; i++) {
        static const struct {
            const char *name;
            uint32_t hole;
        } late[] = {{"own", 0}, {"second", 2}, {"first", 1}};

        msp_record_begin(&r, unit, late[i].name, strlen(late[i].name));
        msp_record_fill(&r, late[i].hole);
        msp_record_null(&r);
        assert_int_equal(msp_collect_commit(c, &r, NULL, NULL, NULL), MSP_OK);
    }
    flush(c);
    msp_record_begin(&r, unit, "third", 5); /* its place is gone: the flush published what stood behind it */
    msp_record_fill(&r, 3);
    msp_record_null(&r);
    assert_int_equal(msp_collect_commit(c, &r, NULL, NULL, NULL), MSP_OK);
    flush(c);
    assert_int_equal(msp_file_read(&text, &size, in_dir(unit_dir, "dump.json"), 1 << 20, NULL), MSP_OK);
    assert_non_null(
        strstr(text, "{\n  \"first\": null,\n  \"second\": null,\n  \"own\": null,\n  \"third\": null\n }"));
    msp_free(text);
    msp_collect_close(c);
    msp_free(r.p);
}

/* A child that records until it is killed, telling through the pipe how far it came. */
static pid_t
start_producer(const char *dir, const char *unit_dir, int *progress_fd)
{
    int fds[2];
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        msp_collect *c = open_collect(dir, true);
        uint32_t unit = open_unit(c, unit_dir);
        msp_record r = {0};

        for (int n = 0;; n++) {
            commit_call(c, &r, unit, n);
            if (write(fds[1], &n, sizeof(n)) != sizeof(n))
                _exit(1);
            sleep_ms(1);
        }
    }
    close(fds[1]);
    *progress_fd = fds[0];
    return pid;
}

/* Come back when the producer has committed a few records, however slow the machine is. */
static void
wait_until_it_records(int fd)
{
    int n = 0;

    while (n < 20)
        assert_int_equal(read(fd, &n, sizeof(n)), sizeof(n));
}

/* Come back when it has committed a few more than it had when this was called. */
static void
wait_for_more(int fd)
{
    int n;

    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (read(fd, &n, sizeof(n)) == sizeof(n))
        ;
    fcntl(fd, F_SETFL, 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(read(fd, &n, sizeof(n)), sizeof(n));
}

static int
last_committed(int fd)
{
    int n, last = -1;

    while (read(fd, &n, sizeof(n)) == sizeof(n))
        last = n;
    close(fd);
    return last;
}

static void
after_kill_9_of_the_training_process_everything_committed_is_there(void **state)
{
    (void)state;
    skip_where_processes_are_strangers();
    for (int round = 0; round < 3; round++) {
        char name[32], unit_name[64];
        const char *dir, *unit_dir;
        int fd, last, status;
        pid_t pid;

        snprintf(name, sizeof(name), "kill%d", round);
        snprintf(unit_name, sizeof(unit_name), "kill%d/step0/rank0", round);
        dir = scratch_path(name);
        unit_dir = scratch_path(unit_name);
        pid = start_producer(dir, unit_dir, &fd);
        wait_until_it_records(fd);
        sleep_ms(100 + 170 * round);
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        last = last_committed(fd);
        assert_true(last > 10);
        assert_true(count_members(in_dir(unit_dir, "dump.json"), true) >= 0); /* valid at once */
        for (int i = 0; i < 100 && hidden_files(dir) > 0; i++)
            sleep_ms(50);
        assert_int_equal(hidden_files(dir), 0); /* the writer has finished and cleaned up */
        assert_true(count_members(in_dir(unit_dir, "dump.json"), true) >= last + 1);
        assert_true(count_members(in_dir(unit_dir, "stack.json"), false) >= 0);
        assert_true(count_members(in_dir(unit_dir, "construct.json"), false) >= 0);
    }
}

/* Record, and kill everything while something is still in the ring; the last record that was committed. */
static int
record_and_kill_all(const char *dir, const char *unit_dir)
{
    int64_t writer;
    int fd, last, status;
    pid_t pid = start_producer(dir, unit_dir, &fd);

    wait_until_it_records(fd);
    for (int i = 0; i < 1000 && count_members(in_dir(unit_dir, "dump.json"), true) < 0; i++)
        sleep_ms(10); /* the writer has begun */
    writer = writer_of(dir);
    assert_true(writer > 0);
    kill((pid_t)writer, SIGSTOP); /* so that something stays in the ring */
    wait_for_more(fd);
    kill((pid_t)writer, SIGKILL);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    last = last_committed(fd);
    while (msp_process_start(writer) != 0)
        sleep_ms(1);
    return last;
}

static int warnings;

static void
count_warnings(msp_log_level level, const char *text, void *payload)
{
    (void)text;
    (void)payload;
    warnings += level == MSP_LOG_WARNING;
}

static void
after_everything_is_killed_the_files_are_valid_and_a_reader_recovers_the_rest(void **state)
{
    const char *dir = scratch_path("group"), *unit_dir = scratch_path("group/step0/rank0");
    int64_t recovered = 0, before, after;
    int last;

    (void)state;
    skip_where_processes_are_strangers();
    last = record_and_kill_all(dir, unit_dir);
    before = count_members(in_dir(unit_dir, "dump.json"), true);
    assert_true(before >= 0);
    assert_int_equal(msp_collect_recover(dir, &recovered, NULL), MSP_OK);
    after = count_members(in_dir(unit_dir, "dump.json"), true);
    assert_true(after > before);
    assert_true(recovered >= after - before); /* what was a preview before is recovered, too */
    assert_true(after >= last + 1);
    assert_int_equal(hidden_files(dir), 0);
    assert_int_equal(msp_collect_recover(dir, &recovered, NULL), MSP_OK); /* again: nothing to do */
    assert_int_equal(recovered, 0);
}

static void
who_hurries_the_writer_does_not_wait_for_it(void **state)
{
    const char *dir = scratch_path("hurry"), *unit_dir = scratch_path("hurry/step0/rank0");
    msp_record r = {0};
    msp_collect *c;
    uint32_t unit;

    (void)state;
    c = open_collect(dir, true);
    unit = open_unit(c, unit_dir);
    commit_call(c, &r, unit, 0);
    msp_collect_hurry(c);
    for (int i = 0; i < 1000 && count_members(in_dir(unit_dir, "dump.json"), true) < 1; i++)
        sleep_ms(1);
    assert_int_equal(count_members(in_dir(unit_dir, "dump.json"), true), 1);
    assert_int_equal(msp_collect_flush(c, NULL, NULL, NULL), MSP_OK);
    commit_call(c, &r, unit, 1);
    msp_collect_hurry(c);
    commit_call(c, &r, unit, 2); /* behind what was asked for */
    assert_int_equal(msp_collect_flush(c, NULL, NULL, NULL), MSP_OK);
    assert_int_equal(count_members(in_dir(unit_dir, "dump.json"), true), 3);
    msp_collect_close(c);
    msp_record_release(&r);
}

/* for_writer is bumped by whoever wakes it. */
static void
the_writer_dozes_when_nothing_comes_and_only_then_it_is_woken(void **state)
{
    const char *dir = scratch_path("dozes"), *unit_dir = scratch_path("dozes/step0/rank");
    msp_collect *c = open_collect(dir, true);
    msp_ring other;
    uint32_t woken;

    (void)state;
    assert_true(open_ring(&other, dir));
    for (int i = 0; i < 5000 && atomic_load(&other.shared->dozes) == 0; i++)
        sleep_ms(1);
    assert_int_equal(atomic_load(&other.shared->dozes), 1);
    woken = atomic_load(&other.shared->for_writer);
    open_unit(c, unit_dir);
    assert_int_equal(atomic_load(&other.shared->for_writer), woken + 1);
    msp_ring_close(&other, false);
    msp_collect_close(c);
    assert_int_equal(msp_ring_create(&other, dir, 4096, NULL), MSP_OK); /* with nobody at the other end */
    msp_ring_nudge(&other);
    assert_int_equal(atomic_load(&other.shared->for_writer), 0);
    atomic_store(&other.shared->dozes, 1);
    msp_ring_nudge(&other);
    assert_int_equal(atomic_load(&other.shared->for_writer), 1);
    msp_ring_close(&other, true);
}

static void
a_dump_that_was_moved_is_recovered_where_it_is(void **state)
{
    const char *dir = scratch_path("moved"), *now = scratch_path("moved_to");
    int64_t recovered = 0;
    int last;

    (void)state;
    skip_where_processes_are_strangers();
    last = record_and_kill_all(dir, scratch_path("moved/step0/rank0"));
    assert_int_equal(rename(dir, now), 0);
    assert_int_equal(msp_collect_recover(now, &recovered, NULL), MSP_OK);
    assert_true(recovered > 0);
    assert_true(count_members(in_dir(scratch_path("moved_to/step0/rank0"), "dump.json"), true) >= last + 1);
    assert_int_equal(hidden_files(now), 0);
    assert_int_equal(msp_path_kind_of(dir), MSP_PATH_NONE);
}

static void
who_recovers_a_ring_writes_nowhere_but_below_its_folder(void **state)
{
    const char *dir = scratch_path("stranger"), *elsewhere = scratch_path("elsewhere/rank0");
    int64_t recovered = 0, before;

    (void)state;
    skip_where_processes_are_strangers();
    record_and_kill_all(dir, elsewhere);
    before = count_members(in_dir(elsewhere, "dump.json"), true);
    warnings = 0;
    msp_log_set_sink(MSP_LOG_WARNING, count_warnings, NULL);
    assert_int_equal(msp_collect_recover(dir, &recovered, NULL), MSP_OK);
    msp_log_set_sink(MSP_LOG_WARNING, NULL, NULL);
    assert_int_equal(recovered, 0);
    assert_int_equal(warnings, 1);
    assert_int_equal(count_members(in_dir(elsewhere, "dump.json"), true), before);
}

static void
a_killed_writer_is_replaced_and_nothing_is_lost(void **state)
{
    const char *dir = scratch_path("revive"), *unit_dir = scratch_path("revive/step0/rank");
    msp_record r = {0};
    msp_collect *c;
    uint32_t unit;
    int64_t writer;

    (void)state;
    skip_where_processes_are_strangers();
    c = open_collect(dir, true);
    unit = open_unit(c, unit_dir);
    for (int n = 0; n < 100; n++)
        commit_call(c, &r, unit, n);
    flush(c);
    for (int n = 100; n < 200; n++)
        commit_call(c, &r, unit, n);
    writer = writer_of(dir);
    assert_true(writer > 0); /* 0 would kill this program too */
    kill((pid_t)writer, SIGKILL);
    for (int n = 200; n < 300; n++)
        commit_call(c, &r, unit, n);
    flush(c);
    assert_int_equal(count_members(in_dir(unit_dir, "dump.json"), true), 300);
    msp_collect_close(c);
    msp_free(r.p);
}

static void
a_unit_without_records_has_valid_files(void **state)
{
    const char *dir = scratch_path("empty"), *unit_dir = scratch_path("empty/step0/rank");
    msp_collect *c = open_collect(dir, false);
    uint32_t unit = open_unit(c, unit_dir);

    (void)state;
    for (int i = 0; i < 200 && count_members(in_dir(unit_dir, "construct.json"), false) < 0; i++)
        sleep_ms(10); /* nobody asks for them, and they come */
    assert_int_equal(count_members(in_dir(unit_dir, "dump.json"), true), 0);
    assert_int_equal(count_members(in_dir(unit_dir, "stack.json"), false), 0);
    assert_int_equal(count_members(in_dir(unit_dir, "construct.json"), false), 0);
    assert_int_equal(msp_collect_unit_close(c, unit, NULL), MSP_OK);
    (void)open_unit(c, scratch_path("empty/step1/rank"));
    flush(c);
    assert_int_equal(count_members(scratch_path("empty/step1/rank/dump.json"), true), 0);
    msp_collect_close(c);
}

static void
who_closes_a_unit_after_a_flush_does_not_wait_for_the_writer_again(void **state)
{
    const char *dir = scratch_path("once"), *unit_dir = scratch_path("once/step0/rank");
    msp_record r = {0};
    msp_collect *c;
    uint32_t unit;
    pid_t writer;

    (void)state;
    skip_where_processes_are_strangers();
    c = open_collect(dir, true);
    unit = open_unit(c, unit_dir);
    writer = (pid_t)writer_of(dir);
    assert_true(writer > 0);
    commit_call(c, &r, unit, 0);
    flush(c);
    kill(writer, SIGSTOP);
    alarm(30); /* waiting for a writer that does nothing would never end */
    assert_int_equal(msp_collect_unit_close(c, unit, NULL), MSP_OK);
    flush(c);
    alarm(0);
    kill(writer, SIGCONT);
    unit = open_unit(c, scratch_path("once/step1/rank")); /* there is something new again */
    commit_call(c, &r, unit, 0);
    flush(c);
    assert_int_equal(count_members(scratch_path("once/step1/rank/dump.json"), true), 1);
    msp_collect_close(c);
    msp_free(r.p);
}

static void
a_new_writer_opens_no_files_of_units_that_are_over(void **state)
{
    char dir[512];
    struct rlimit old, few;
    msp_record r = {0};
    msp_collect *c;
    int64_t writer;
    char name[64];

    (void)state;
    skip_where_processes_are_strangers();
    snprintf(dir, sizeof(dir), "%s", scratch_path("many"));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    few = (struct rlimit){40, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0); /* for the writers, too */
    c = open_collect(dir, true);
    for (int n = 0; n < 30; n++) {
        uint32_t unit;

        snprintf(name, sizeof(name), "many/step%d/rank", n);
        unit = open_unit(c, scratch_path(name));
        commit_call(c, &r, unit, n);
        if (n == 20) {
            writer = writer_of(dir);
            assert_true(writer > 0);
            kill((pid_t)writer, SIGKILL);
        }
        flush(c);
        assert_int_equal(msp_collect_unit_close(c, unit, NULL), MSP_OK);
    }
    msp_collect_close(c);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    for (int n = 0; n < 30; n++) {
        snprintf(name, sizeof(name), "many/step%d/rank/dump.json", n);
        assert_int_equal(count_members(scratch_path(name), true), 1);
    }
    msp_free(r.p);
}

/* A child that has a unit that is over, and one that its writer has not seen; it ends in pause(). */
static pid_t
start_between_units(const char *dir, const char *first, const char *second, int *ready_fd)
{
    int fds[2];
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        msp_collect *c = open_collect(dir, true);
        uint32_t unit = open_unit(c, first);
        msp_record r = {0};

        commit_call(c, &r, unit, 0);
        flush(c);
        if (msp_collect_unit_close(c, unit, NULL) != MSP_OK)
            _exit(1);
        while (units_over(dir) == 0)
            sleep_ms(1);
        kill((pid_t)writer_of(dir), SIGSTOP);
        unit = open_unit(c, second);
        commit_call(c, &r, unit, 1);
        if (write(fds[1], "", 1) != 1)
            _exit(1);
        pause();
    }
    close(fds[1]);
    *ready_fd = fds[0];
    return pid;
}

static void
what_an_earlier_run_left_in_the_place_of_a_new_unit_is_not_continued(void **state)
{
    const char *dir = scratch_path("earlier"), *first = scratch_path("earlier/step0/rank");
    const char *second = scratch_path("earlier/step1/rank");
    const char *old = "{\n \"data\": {\n  \"a\": 1,\n  \"b\": 2\n }\n}";
    int64_t recovered = 0, writer;
    int fd, status;
    pid_t pid;
    char byte;

    (void)state;
    skip_where_processes_are_strangers();
    assert_int_equal(msp_path_make_dirs(second, NULL), MSP_OK);
    write_file("earlier/step1/rank/dump.json", old, strlen(old));
    pid = start_between_units(dir, first, second, &fd);
    assert_int_equal(read(fd, &byte, 1), 1);
    close(fd);
    writer = writer_of(dir);
    assert_true(writer > 0);
    kill(pid, SIGKILL);
    kill((pid_t)writer, SIGKILL);
    waitpid(pid, &status, 0);
    while (msp_process_start(writer) != 0)
        sleep_ms(1);
    assert_int_equal(count_members(in_dir(second, "dump.json"), true), 2);
    warnings = 0;
    msp_log_set_sink(MSP_LOG_WARNING, count_warnings, NULL);
    assert_int_equal(msp_collect_recover(dir, &recovered, NULL), MSP_OK);
    msp_log_set_sink(MSP_LOG_WARNING, NULL, NULL);
    assert_int_equal(warnings, 0); /* that unit 0 is closed was read a second time: no damage */
    assert_int_equal(recovered, 1);
    assert_int_equal(count_members(in_dir(first, "dump.json"), true), 1);
    assert_int_equal(count_members(in_dir(second, "dump.json"), true), 1);
}

static void
a_full_disk_is_told_and_leaves_valid_files(void **state)
{
    const char *dir = scratch_path("disk");
    char unit_dir[600];
    msp_record r = {0};
    msp_error err = {0};
    msp_status st = MSP_OK;
    msp_collect *c;
    uint32_t unit;
    int64_t n;

    (void)state;
    mkdir(dir, 0750);
    if (mount("tmpfs", dir, "tmpfs", 0, "size=3m") != 0)
        skip();
    snprintf(unit_dir, sizeof(unit_dir), "%s/step0/rank", dir);
    c = open_collect(dir, true);
    unit = open_unit(c, unit_dir);
    for (int i = 0; i < 100000 && st == MSP_OK; i++) {
        msp_record_begin(&r, unit, "x", 1);
        msp_record_text(&r, "some text", 9);
        st = msp_collect_commit(c, &r, NULL, NULL, &err);
    }
    if (st == MSP_OK)
        st = msp_collect_flush(c, NULL, NULL, &err);
    assert_int_equal(st, MSP_E_IO);
    assert_non_null(strstr(err.message, "No space left on device"));
    n = count_members(in_dir(unit_dir, "dump.json"), true);
    msp_collect_close(c);
    assert_true(n >= 0);
    msp_free(r.p);
    umount2(dir, MNT_DETACH); /* the writer may not be gone yet */
}

static void
a_disk_that_is_full_before_the_first_publishing_has_valid_files(void **state)
{
    const char *dir = scratch_path("fuller");
    char unit_dir[600];
    msp_record r = {0};
    msp_error err = {0};
    msp_collect *c;
    uint32_t unit;

    (void)state;
    mkdir(dir, 0750);
    if (mount("tmpfs", dir, "tmpfs", 0, "size=1600k") != 0)
        skip();
    snprintf(unit_dir, sizeof(unit_dir), "%s/step0/rank", dir);
    c = open_collect(dir, true);
    unit = open_unit(c, unit_dir);
    for (int n = 0; n < 2000; n++)
        commit_call(c, &r, unit, n);
    assert_int_equal(msp_collect_flush(c, NULL, NULL, &err), MSP_E_IO);
    /* none, unless the writer was quicker than this program with the first of them */
    assert_in_range(count_members(in_dir(unit_dir, "dump.json"), true), 0, 1999);
    assert_int_equal(count_members(in_dir(unit_dir, "stack.json"), false), 0);
    assert_in_range(count_members(in_dir(unit_dir, "construct.json"), false), 0, 1999);
    msp_collect_close(c);
    msp_free(r.p);
    umount2(dir, MNT_DETACH); /* the writer may not be gone yet */
}

static void
a_forked_child_records_nothing_and_disturbs_nothing(void **state)
{
    const char *dir = scratch_path("fork"), *unit_dir = scratch_path("fork/step0/rank");
    msp_collect *c = open_collect(dir, false);
    uint32_t unit = open_unit(c, unit_dir);
    msp_record r = {0};
    int status;
    pid_t pid;

    (void)state;
    commit_call(c, &r, unit, 0);
    pid = fork();
    if (pid == 0) {
        commit_call(c, &r, unit, 1);
        msp_collect_close(c);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    flush(c);
    assert_int_equal(count_members(in_dir(unit_dir, "dump.json"), true), 1);
    msp_collect_close(c);
    msp_free(r.p);
}

/* The path of the only hidden file in dir that ends so. */
static const char *
hidden_path(const char *dir, const char *end)
{
    static char path[1024];
    msp_dir_list list;

    path[0] = '\0';
    assert_int_equal(msp_dir_list_read(&list, dir, NULL), MSP_OK);
    for (size_t i = 0; i < list.count; i++)
        if (msp_str_ends(msp_str_of(list.names[i]), msp_str_of(end)))
            snprintf(path, sizeof(path), "%s/%s", dir, list.names[i]);
    msp_dir_list_release(&list);
    assert_true(path[0] != '\0');
    return path;
}

/* Commit until it fails, as it must before so many; what is said then. */
static msp_status
commit_until_it_fails(msp_collect *c, uint32_t unit, msp_error *err)
{
    msp_record r = {0};
    msp_status st = MSP_OK;

    for (int n = 0; n < 1000000 && st == MSP_OK; n++) {
        msp_record_begin(&r, unit, "Torch.sin.0.forward", 19);
        msp_record_int(&r, n);
        st = msp_collect_commit(c, &r, NULL, NULL, err);
    }
    msp_record_release(&r);
    return st;
}

static void
a_ring_that_somebody_truncates_ends_recording_and_not_the_program(void **state)
{
    (void)state;
    skip_where_processes_are_strangers();
    for (int round = 0; round < 3; round++) {
        const off_t sizes[] = {0, RING_HEADER, RING_HEADER + 65536};
        char name[32];
        msp_error err = {0};
        msp_record r = {0};
        const char *dir;
        msp_collect *c;
        uint32_t unit;

        snprintf(name, sizeof(name), "truncated%d", round);
        dir = scratch_path(name);
        c = open_collect(dir, round != 1); /* a process writes, or a thread */
        unit = open_unit(c, in_dir(dir, "step0/rank"));
        commit_call(c, &r, unit, 0);
        flush(c);
        assert_int_equal(truncate(hidden_path(dir, ".ring"), sizes[round]), 0);
        assert_int_equal(commit_until_it_fails(c, unit, &err), MSP_E_IO);
        assert_non_null(strstr(err.message, ".ring: the file was truncated"));
        assert_int_equal(msp_collect_flush(c, NULL, NULL, &err), MSP_E_IO);
        msp_collect_close(c);
        for (int i = 0; i < 1000 && hidden_files(dir) > 0; i++)
            sleep_ms(10); /* the writer may still be about to leave */
        assert_int_equal(hidden_files(dir), 0);
        assert_true(count_members(in_dir(dir, "step0/rank/dump.json"), true) >= 1);
        msp_record_release(&r);
    }
}

static volatile sig_atomic_t others_faults;

static void
count_fault(int number)
{
    others_faults += number == SIGBUS;
}

static void
a_bus_error_elsewhere_is_the_programs_own(void **state)
{
    struct sigaction theirs = {.sa_handler = count_fault}, now;
    msp_collect *c;

    (void)state;
    others_faults = 0;
    assert_int_equal(sigaction(SIGBUS, &theirs, NULL), 0);
    c = open_collect(scratch_path("bus"), false);
    raise(SIGBUS);
    assert_int_equal(others_faults, 1);
    msp_collect_close(c);
    assert_int_equal(sigaction(SIGBUS, NULL, &now), 0);
    assert_true(now.sa_handler == count_fault); /* and is back */
    signal(SIGBUS, SIG_DFL);
}

static char last_warning[1024];

static void
keep_warning(msp_log_level level, const char *text, void *payload)
{
    (void)payload;
    if (level == MSP_LOG_WARNING) {
        warnings++;
        snprintf(last_warning, sizeof(last_warning), "%s", text);
    }
}

static void
a_writer_that_is_stopped_is_told_of_once_and_then_recording_ends(void **state)
{
    const char *dir = scratch_path("stopped");
    msp_collect_options opt = {dir, 1 << 16, collect_self, 5200};
    msp_error err = {0};
    msp_collect *c;
    uint32_t unit;
    char who[64];
    pid_t writer;

    (void)state;
    skip_where_processes_are_strangers();
    assert_int_equal(msp_collect_open(&c, &opt, NULL), MSP_OK);
    unit = open_unit(c, in_dir(dir, "step0/rank"));
    flush(c);
    writer = (pid_t)writer_of(dir);
    assert_true(writer > 0);
    snprintf(who, sizeof(who), "process %d", (int)writer);
    warnings = 0;
    msp_log_set_sink(MSP_LOG_WARNING, keep_warning, NULL);
    kill(writer, SIGSTOP);
    assert_int_equal(commit_until_it_fails(c, unit, &err), MSP_E_IO);
    assert_non_null(strstr(err.message, who));
    assert_non_null(strstr(err.message, "recording stops"));
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(last_warning, who));
    assert_non_null(strstr(last_warning, "kill -CONT"));
    msp_collect_close(c); /* does not wait for it either */
    msp_log_set_sink(MSP_LOG_WARNING, NULL, NULL);
    kill(writer, SIGCONT);
    for (int i = 0; i < 1000 && hidden_files(dir) > 0; i++)
        sleep_ms(10);
    assert_int_equal(hidden_files(dir), 0); /* it has written what it had */
    assert_true(count_members(in_dir(dir, "step0/rank/dump.json"), true) > 0);
}

static void
links_that_somebody_planted_are_replaced_and_not_followed(void **state)
{
    const char *dir = scratch_path("planted"), *unit_dir = scratch_path("planted/step0/rank");
    const char *names[] = {".dump.json.twin", ".stack.json.twin", ".construct.json.twin"};
    char victim[1024], side[1024];
    struct stat sb;
    msp_record r = {0};
    msp_collect *c;
    uint32_t unit;

    (void)state;
    snprintf(victim, sizeof(victim), "%s", write_file("victim", "precious", 8));
    assert_int_equal(msp_path_make_dirs(unit_dir, NULL), MSP_OK);
    for (unsigned n = 0; n < 1000; n++) { /* whichever number the ring gets in this process */
        snprintf(side, sizeof(side), "%s/.msprobe-%ld-%u.side", dir, (long)getpid(), n);
        assert_int_equal(symlink(victim, side), 0);
    }
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(symlink(victim, in_dir(unit_dir, names[i])), 0);
    c = open_collect(dir, true);
    unit = open_unit(c, unit_dir);
    for (int n = 0; n < 3; n++) {
        commit_call(c, &r, unit, n);
        flush(c);
    }
    msp_collect_close(c);
    assert_int_equal(count_members(in_dir(unit_dir, "dump.json"), true), 3);
    assert_int_equal(stat(victim, &sb), 0);
    assert_int_equal(sb.st_size, 8);
    msp_record_release(&r);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(the_text_is_what_python_writes),
        TEST(a_call_in_one_record_reads_as_its_value_and_its_site),
        TEST(a_small_tensor_is_recorded_as_any_other),
        TEST(more_than_the_ring_holds_waits_for_the_writer_and_nothing_is_lost),
        TEST(a_file_of_its_own_stands_beside_the_others_of_its_folder),
        TEST(a_record_larger_than_the_ring_arrives),
        TEST(a_late_record_stands_where_its_place_was_kept),
        TEST(after_kill_9_of_the_training_process_everything_committed_is_there),
        TEST(a_ring_that_somebody_truncates_ends_recording_and_not_the_program),
        TEST(a_bus_error_elsewhere_is_the_programs_own),
        TEST(a_writer_that_is_stopped_is_told_of_once_and_then_recording_ends),
        TEST(links_that_somebody_planted_are_replaced_and_not_followed),
        TEST(after_everything_is_killed_the_files_are_valid_and_a_reader_recovers_the_rest),
        TEST(who_hurries_the_writer_does_not_wait_for_it),
        TEST(the_writer_dozes_when_nothing_comes_and_only_then_it_is_woken),
        TEST(a_dump_that_was_moved_is_recovered_where_it_is),
        TEST(who_recovers_a_ring_writes_nowhere_but_below_its_folder),
        TEST(a_killed_writer_is_replaced_and_nothing_is_lost),
        TEST(a_unit_without_records_has_valid_files),
        TEST(who_closes_a_unit_after_a_flush_does_not_wait_for_the_writer_again),
        TEST(a_new_writer_opens_no_files_of_units_that_are_over),
        TEST(what_an_earlier_run_left_in_the_place_of_a_new_unit_is_not_continued),
        TEST(a_full_disk_is_told_and_leaves_valid_files),
        TEST(a_disk_that_is_full_before_the_first_publishing_has_valid_files),
        TEST(a_forked_child_records_nothing_and_disturbs_nothing),
    };

    return run_collect_tests(argc, argv, tests);
}
