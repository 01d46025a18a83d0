/*
 * test_collect.c - promises of msprobe/collect.h: what was recorded survives whatever is killed.
 *
 * The program is its own writer: started with "__write RING" it does what the msprobe command does.
 */
#include "unit.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include "collect/publish.h"
#include "collect/ring.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"
#include "json/json.h"
#include "msprobe/collect.h"

static char self[4096];

static void
sleep_ms(int ms)
{
    struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};

    nanosleep(&ts, NULL);
}

static msp_collect *
open_collect(const char *dir, bool process)
{
    msp_collect_options opt = {dir, 1 << 20, process ? self : NULL};
    msp_collect *c;
    msp_error err;

    if (msp_collect_open(&c, &opt, &err) != MSP_OK)
        fail_msg("%s", err.message);
    return c;
}

static uint32_t
open_unit(msp_collect *c, const char *dir)
{
    msp_unit_info info = {dir, MSP_UNIT_DUMP, "statistics", "L1", "pytorch", NULL};
    msp_error err;
    uint32_t unit;

    if (msp_collect_unit(c, &unit, &info, &err) != MSP_OK)
        fail_msg("%s", err.message);
    return unit;
}

static void
commit_call(msp_collect *c, msp_record *r, uint32_t unit, int n)
{
    msp_stats stats = {.count = 4, .max = n + 0.5, .min = -1, .mean = 0.25, .norm = 2};
    msp_tensor t = {.dtype = MSP_F32, .ndim = 2, .numel = 4, .shape = {2, 2}};
    msp_tensor_note note = {.shape_of = &t, .stats = &stats, .requires_grad = true, .has_crc = true, .crc = 0xabc};
    char name[64];
    int len = snprintf(name, sizeof(name), "Functional.relu.%d.forward", n);
    msp_error err;

    msp_record_begin(r, unit, name, (size_t)len);
    msp_record_object(r);
    msp_record_key(r, "input_args", 10);
    msp_record_array(r);
    msp_record_tensor(r, &note);
    msp_record_int(r, n);
    msp_record_end(r);
    msp_record_end(r);
    if (msp_collect_commit(c, r, NULL, NULL, &err) != MSP_OK)
        fail_msg("%s", err.message);
}

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

static void
commit_site(msp_collect *c, msp_record *r, uint32_t unit, int n, uint32_t stack)
{
    char name[64];
    int len = snprintf(name, sizeof(name), "Functional.relu.%d.forward", n);

    msp_record_site(r, unit, name, (size_t)len, stack, "Module.a.Linear.forward.0", 25);
    assert_int_equal(msp_collect_commit(c, r, NULL, NULL, NULL), MSP_OK);
}

static void
flush(msp_collect *c)
{
    msp_error err;

    if (msp_collect_flush(c, NULL, NULL, &err) != MSP_OK)
        fail_msg("%s", err.message);
}

/* How many members "data" (or the root) has; -1 when the file is not valid JSON. */
static int64_t
count_members(const char *path, bool data)
{
    msp_mapping map;
    msp_json_doc doc;
    msp_error err;
    int64_t n = -1;

    if (msp_map_open(&map, path, &err) != MSP_OK)
        return -1;
    if (msp_json_parse(&doc, map.addr, map.size, &err) == MSP_OK) {
        n = (int64_t)msp_json_count(data ? msp_json_get(doc.root, "data") : doc.root);
        msp_json_doc_release(&doc);
    }
    msp_map_close(&map);
    return n;
}

static const char *
in_dir(const char *dir, const char *name)
{
    static char paths[8][1024];
    static unsigned next;
    char *p = paths[next++ % 8];

    snprintf(p, sizeof(paths[0]), "%s/%s", dir, name);
    return p;
}

static int
hidden_files(const char *dir)
{
    struct dirent *e;
    DIR *d = opendir(dir);
    int n = 0;

    while (d != NULL && (e = readdir(d)) != NULL)
        n += strncmp(e->d_name, ".msprobe", 8) == 0 || strstr(e->d_name, ".twin") != NULL;
    if (d != NULL)
        closedir(d);
    return n;
}

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

/*
 * Who a process is, is told by its number and its start. qemu tells a process another start than everybody else hears,
 * so that living ones pass for dead.
 */
static void
skip_where_processes_are_strangers(void)
{
#if defined(MSP_TEST_EMULATED)
    skip();
#endif
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

static int64_t
writer_of(const char *dir)
{
    msp_dir_list list;
    int64_t pid = 0;

    assert_int_equal(msp_dir_list_read(&list, dir, NULL), MSP_OK);
    for (size_t i = 0; i < list.count; i++)
        if (msp_str_ends(msp_str_of(list.names[i]), MSP_STR(".ring"))) {
            msp_ring ring;

            if (msp_ring_open(&ring, in_dir(dir, list.names[i]), NULL) == MSP_OK) {
                pid = atomic_load(&ring.shared->writer_pid);
                msp_ring_close(&ring, false);
            }
        }
    msp_dir_list_release(&list);
    return pid;
}

static void
after_everything_is_killed_the_files_are_valid_and_a_reader_recovers_the_rest(void **state)
{
    const char *dir = scratch_path("group"), *unit_dir = scratch_path("group/step0/rank0");
    int64_t recovered = 0, before, writer;
    int fd, last, status;
    pid_t pid;

    (void)state;
    skip_where_processes_are_strangers();
    pid = start_producer(dir, unit_dir, &fd);
    wait_until_it_records(fd);
    sleep_ms(300);
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
    before = count_members(in_dir(unit_dir, "dump.json"), true);
    assert_true(before >= 0);
    assert_int_equal(msp_collect_recover(dir, &recovered, NULL), MSP_OK);
    assert_true(recovered > 0);
    assert_int_equal(count_members(in_dir(unit_dir, "dump.json"), true), before + recovered);
    assert_true(before + recovered >= last + 1);
    assert_int_equal(hidden_files(dir), 0);
    assert_int_equal(msp_collect_recover(dir, &recovered, NULL), MSP_OK); /* again: nothing to do */
    assert_int_equal(recovered, 0);
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
    umount(dir);
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

static msp_str
read_text(msp_mapping *map, const char *path)
{
    assert_int_equal(msp_map_open(map, path, NULL), MSP_OK);
    return (msp_str){map->addr, map->size};
}

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

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(the_text_is_what_python_writes),
        TEST(more_than_the_ring_holds_waits_for_the_writer_and_nothing_is_lost),
        TEST(a_record_larger_than_the_ring_arrives),
        TEST(a_late_record_stands_where_its_place_was_kept),
        TEST(statistics_that_come_late_are_put_in_before_the_record_goes),
        TEST(after_kill_9_of_the_training_process_everything_committed_is_there),
        TEST(after_everything_is_killed_the_files_are_valid_and_a_reader_recovers_the_rest),
        TEST(a_killed_writer_is_replaced_and_nothing_is_lost),
        TEST(a_full_disk_is_told_and_leaves_valid_files),
        TEST(a_forked_child_records_nothing_and_disturbs_nothing),
    };

    if (argc == 3 && strcmp(argv[1], "__write") == 0) {
        if (fork() != 0)
            _exit(0);
        return msp_collect_write(argv[2], NULL) != MSP_OK;
    }
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
