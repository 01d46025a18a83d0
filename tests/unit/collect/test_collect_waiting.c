/*
 * test_collect_waiting.c - promises of msprobe/collect.h about records whose statistics are still on a device: they are
 * in the files before those come, keep their place, and are lost with nobody.
 */
#include "collects.h"
#include "core/alloc.h"

/* Statistics of ticket 7 are there, those of 8 come when *payload says so, 9 is lost. */
static msp_settled
find_stats(msp_stats *out, uint64_t ticket, void *payload)
{
    *out = (msp_stats){.count = 1, .max = (double)ticket + 0.5, .min = -1, .mean = 0.25, .norm = 2, .max_int = 3};
    if (ticket == 9)
        return MSP_SETTLED_NEVER;
    return ticket == 7 || *(bool *)payload ? MSP_SETTLED_NOW : MSP_SETTLED_LATER;
}

static void
put_waiting(msp_record *r, uint64_t ticket, msp_dtype dtype)
{
    msp_tensor t = {.dtype = dtype, .ndim = 1, .numel = 4, .shape = {4}};
    msp_tensor_note note = {.shape_of = &t, .ticket = ticket, .data_name = "x.pt", .type = "mine.Tensor"};

    msp_record_tensor(r, &note);
}

/* A record that waits for ticket 8; the other tensor's statistics are there. */
static void
commit_waiting(msp_collect *c, msp_record *r, uint32_t unit, const char *name)
{
    bool all_here = false;

    msp_record_begin(r, unit, name, strlen(name));
    msp_record_array(r);
    put_waiting(r, 7, MSP_F32);
    put_waiting(r, 8, MSP_F32);
    msp_record_end(r);
    assert_false(msp_record_settle(r, find_stats, &all_here));
    assert_int_equal(msp_collect_commit(c, r, NULL, NULL, NULL), MSP_OK);
}

static bool
holds(const char *path, const char *part)
{
    msp_mapping map;
    msp_str text = read_text(&map, path);
    bool yes = memmem(text.p, text.len, part, strlen(part)) != NULL;

    msp_map_close(&map);
    return yes;
}

/* Come back when the file has that many records, however slow the machine is. */
static void
wait_for_members(const char *path, bool data, int64_t n)
{
    for (int i = 0; i < 1000 && count_members(path, data) != n; i++)
        sleep_ms(10);
    assert_int_equal(count_members(path, data), n);
}

/* One call, which is published, one that waits, and another call behind it, with their sites. */
static void
commit_three(msp_collect *c, uint32_t unit)
{
    const char *const frames[] = {"File a.py, line 3, in f"};
    msp_record r = {0};
    uint32_t stack;

    assert_int_equal(msp_collect_stack(c, &stack, frames, 1, NULL), MSP_OK);
    commit_call(c, &r, unit, 0);
    commit_site(c, &r, unit, 0, stack);
    flush(c);
    commit_waiting(c, &r, unit, "waits");
    commit_call(c, &r, unit, 1);
    commit_site(c, &r, unit, 1, stack);
    msp_free(r.p);
}

static const char not_fetched[] = "\"note\": \"statistics not fetched from the device\"";

static void
statistics_that_come_late_are_put_in_before_the_record_goes(void **state)
{
    const char *dir = scratch_path("late_stats"), *unit_dir = scratch_path("late_stats/step0/rank");
    msp_collect *c = open_collect(dir, false);
    uint32_t unit = open_unit(c, unit_dir);
    msp_record part = {0}, r = {0};
    bool all_here = false;
    msp_mapping map;
    msp_str text;

    (void)state;
    put_waiting(&part, 8, MSP_F32); /* a part that was built before */
    msp_record_begin(&r, unit, "a", 1);
    msp_record_array(&r);
    msp_record_text(&r, "text", 4);
    msp_record_int(&r, 5);
    put_waiting(&r, 7, MSP_F16);
    msp_record_append(&r, &part);
    put_waiting(&r, 9, MSP_F64);
    put_waiting(&r, 7, MSP_I32);
    msp_record_end(&r);
    assert_false(msp_record_settle(&r, find_stats, &all_here));
    all_here = true;
    assert_true(msp_record_settle(&r, find_stats, &all_here));
    assert_true(msp_record_settle(&r, find_stats, &all_here));
    assert_int_equal(msp_collect_commit(c, &r, NULL, NULL, NULL), MSP_OK);
    flush(c);
    text = read_text(&map, in_dir(unit_dir, "dump.json"));
    assert_non_null(memmem(text.p, text.len, "\"Max\": 7.5", 10));
    assert_non_null(memmem(text.p, text.len, "\"Max\": 8.5", 10));
    assert_non_null(memmem(text.p, text.len, "\"Max\": null", 11));
    assert_non_null(memmem(text.p, text.len, "\"Max\": 3.0", 10));
    msp_map_close(&map);
    msp_collect_close(c);
    msp_free(r.p);
    msp_free(part.p);
}

static void
a_record_that_waits_is_shown_and_keeps_its_place_when_its_statistics_come(void **state)
{
    const char *dir = scratch_path("shown"), *unit_dir = scratch_path("shown/step0/rank");
    char path[1024];
    msp_collect *c;
    uint32_t unit;
    bool all_here = true;
    msp_record r = {0};
    msp_mapping map;
    msp_str text;

    (void)state;
    skip_where_processes_are_strangers();
    c = open_collect(dir, true);
    unit = open_unit(c, unit_dir);
    snprintf(path, sizeof(path), "%s", in_dir(unit_dir, "dump.json"));
    commit_three(c, unit);
    wait_for_members(path, true, 3);
    wait_for_members(in_dir(unit_dir, "construct.json"), false, 2);
    assert_true(count_members(in_dir(unit_dir, "stack.json"), false) >= 1);
    assert_true(holds(path, not_fetched));
    assert_true(holds(path, "\"Max\": 7.5"));
    commit_call(c, &r, unit, 2); /* the preview grows */
    wait_for_members(path, true, 4);
    msp_collect_settle(c, find_stats, &all_here);
    flush(c);
    text = read_text(&map, path);
    assert_null(memmem(text.p, text.len, not_fetched, strlen(not_fetched)));
    assert_null(memchr(text.p, '\t', text.len));
    assert_non_null(memmem(text.p, text.len, "\"Max\": 8.5", 10));
    assert_true(memmem(text.p, text.len, "relu.0", 6) < memmem(text.p, text.len, "waits", 5));
    assert_true(memmem(text.p, text.len, "waits", 5) < memmem(text.p, text.len, "relu.1", 6));
    msp_map_close(&map);
    assert_int_equal(count_members(path, true), 4);
    assert_int_equal(count_members(in_dir(unit_dir, "construct.json"), false), 2);
    msp_collect_close(c);
    msp_free(r.p);
}

/* In a process of its own, which says when it is done and then does nothing, as one that waits for a device. */
static pid_t
start_waiting(const char *dir, const char *unit_dir)
{
    int ends[2];
    char done;
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        msp_collect *c = open_collect(dir, true);

        commit_three(c, open_unit(c, unit_dir));
        if (write(ends[1], "", 1) != 1)
            _exit(1);
        alarm(120); /* should the test end before it kills us */
        pause();
        _exit(1);
    }
    assert_int_equal(read(ends[0], &done, 1), 1);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static void
after_kill_9_records_without_statistics_and_those_behind_them_are_there(void **state)
{
    (void)state;
    skip_where_processes_are_strangers();
    for (int round = 0; round < 2; round++) {
        const char *dir = scratch_path(round ? "gone1" : "gone0");
        const char *unit_dir = scratch_path(round ? "gone1/step0/rank" : "gone0/step0/rank");
        pid_t pid = start_waiting(dir, unit_dir);
        int status;

        if (round == 1)
            wait_for_members(in_dir(unit_dir, "dump.json"), true, 3); /* killed while a preview is shown */
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        for (int i = 0; i < 1000 && hidden_files(dir) > 0; i++)
            sleep_ms(10);
        assert_int_equal(hidden_files(dir), 0);
        assert_int_equal(count_members(in_dir(unit_dir, "dump.json"), true), 3);
        assert_true(holds(in_dir(unit_dir, "dump.json"), not_fetched));
        assert_int_equal(count_members(in_dir(unit_dir, "construct.json"), false), 2);
    }
}

static void
after_everything_is_killed_a_preview_is_not_taken_for_what_was_kept(void **state)
{
    const char *dir = scratch_path("all"), *unit_dir = scratch_path("all/step0/rank");
    int64_t recovered = 0, writer;
    int status;
    pid_t pid;

    (void)state;
    skip_where_processes_are_strangers();
    pid = start_waiting(dir, unit_dir);
    wait_for_members(in_dir(unit_dir, "dump.json"), true, 3);
    writer = writer_of(dir);
    kill((pid_t)writer, SIGKILL);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    while (msp_process_start(writer) != 0)
        sleep_ms(1);
    assert_true(holds(in_dir(unit_dir, "dump.json"), "\t"));
    assert_int_equal(msp_collect_recover(dir, &recovered, NULL), MSP_OK);
    assert_int_equal(recovered, 2);
    assert_int_equal(count_members(in_dir(unit_dir, "dump.json"), true), 3); /* none of them twice */
    assert_int_equal(count_members(in_dir(unit_dir, "construct.json"), false), 2);
    assert_false(holds(in_dir(unit_dir, "dump.json"), "\t"));
    assert_int_equal(hidden_files(dir), 0);
}

static void
a_flush_gives_up_what_still_waits(void **state)
{
    const char *dir = scratch_path("given_up"), *unit_dir = scratch_path("given_up/step0/rank");
    msp_collect *c = open_collect(dir, false);
    bool all_here = true;

    (void)state;
    commit_three(c, open_unit(c, unit_dir));
    flush(c);
    assert_int_equal(count_members(in_dir(unit_dir, "dump.json"), true), 3);
    assert_true(holds(in_dir(unit_dir, "dump.json"), "\"Max\": null"));
    msp_collect_settle(c, find_stats, &all_here); /* too late, and told to nobody */
    msp_collect_close(c);
}

static void
much_that_is_held_up_is_told(void **state)
{
    const char *dir = scratch_path("much"), *unit_dir = scratch_path("much/step0/rank");
    msp_collect *c = open_collect(dir, false);
    uint32_t unit = open_unit(c, unit_dir);
    bool all_here = true;
    msp_record r = {0};
    int n = 0;

    (void)state;
    assert_false(msp_collect_is_held_up(c));
    commit_waiting(c, &r, unit, "waits");
    assert_false(msp_collect_is_held_up(c));
    while (!msp_collect_is_held_up(c)) /* long before the ring of 1 MiB is full, which would be the end of this test */
        commit_call(c, &r, unit, n++);
    msp_collect_settle(c, find_stats, &all_here);
    assert_false(msp_collect_is_held_up(c));
    flush(c);
    assert_int_equal(count_members(in_dir(unit_dir, "dump.json"), true), n + 1);
    msp_collect_close(c);
    msp_free(r.p);
}

static void
without_memory_to_remember_it_a_record_goes_without_statistics(void **state)
{
    const char *dir = scratch_path("no_memory"), *unit_dir = scratch_path("no_memory/step0/rank");
    msp_collect *c = open_collect(dir, true);
    uint32_t unit = open_unit(c, unit_dir);
    bool all_here = false;
    msp_record r = {0};

    (void)state;
    msp_record_begin(&r, unit, "waits", 5);
    put_waiting(&r, 8, MSP_F32);
    assert_false(msp_record_settle(&r, find_stats, &all_here));
    flush(c); /* a writer that is a thread has its memory for the unit then */
    msp_alloc_fail_after(0);
    assert_int_equal(msp_collect_commit(c, &r, NULL, NULL, NULL), MSP_OK);
    msp_alloc_fail_after(-1);
    flush(c);
    assert_true(holds(in_dir(unit_dir, "dump.json"), not_fetched));
    msp_collect_close(c);
    msp_free(r.p);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(statistics_that_come_late_are_put_in_before_the_record_goes),
        TEST(a_record_that_waits_is_shown_and_keeps_its_place_when_its_statistics_come),
        TEST(after_kill_9_records_without_statistics_and_those_behind_them_are_there),
        TEST(after_everything_is_killed_a_preview_is_not_taken_for_what_was_kept),
        TEST(a_flush_gives_up_what_still_waits),
        TEST(much_that_is_held_up_is_told),
        TEST(without_memory_to_remember_it_a_record_goes_without_statistics),
    };

    return run_collect_tests(argc, argv, tests);
}
