/*
 * collects.h - what tests of msprobe/collect.h share.
 *
 * A test program is its own writer: started with "__write RING" it does what the msprobe command does.
 */
#ifndef MSP_TESTS_COLLECTS_H
#define MSP_TESTS_COLLECTS_H

#include "unit.h"
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include "collect/ring.h"
#include "core/file.h"
#include "core/path.h"
#include "text/json.h"
#include "collect/live.h"

static char collect_self[4096];

static inline void
sleep_ms(int ms)
{
    struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};

    nanosleep(&ts, NULL);
}

static inline msp_collect *
open_collect(const char *dir, bool process)
{
    msp_collect_options opt = {dir, 1 << 20, process ? collect_self : NULL};
    msp_collect *c;
    msp_error err;

    if (msp_collect_open(&c, &opt, &err) != MSP_OK)
        fail_msg("%s", err.message);
    return c;
}

static inline uint32_t
open_unit(msp_collect *c, const char *dir)
{
    msp_unit_info info = {dir, MSP_UNIT_DUMP, "statistics", "L1", "pytorch", NULL};
    msp_error err;
    uint32_t unit;

    if (msp_collect_unit(c, &unit, &info, &err) != MSP_OK)
        fail_msg("%s", err.message);
    return unit;
}

static inline void
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

static inline void
commit_site(msp_collect *c, msp_record *r, uint32_t unit, int n, uint32_t stack)
{
    char name[64];
    int len = snprintf(name, sizeof(name), "Functional.relu.%d.forward", n);

    msp_record_site(r, unit, name, (size_t)len, stack, "Module.a.Linear.forward.0", 25);
    assert_int_equal(msp_collect_commit(c, r, NULL, NULL, NULL), MSP_OK);
}

static inline void
flush(msp_collect *c)
{
    msp_error err;

    if (msp_collect_flush(c, NULL, NULL, &err) != MSP_OK)
        fail_msg("%s", err.message);
}

/* How many members "data" (or the root) has; -1 when the file is not valid JSON. */
static inline int64_t
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

static inline const char *
in_dir(const char *dir, const char *name)
{
    static char paths[8][1024];
    static unsigned next;
    char *p = paths[next++ % 8];

    snprintf(p, sizeof(paths[0]), "%s/%s", dir, name);
    return p;
}

static inline int
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

/*
 * Who a process is, is told by its number and its start. qemu tells a process another start than everybody else hears,
 * so that living ones pass for dead.
 */
static inline void
skip_where_processes_are_strangers(void)
{
#if defined(MSP_TEST_EMULATED)
    skip();
#endif
}

/* The ring in dir; false: there is none. */
static inline bool
open_ring(msp_ring *ring, const char *dir)
{
    msp_dir_list list;
    bool found = false;

    assert_int_equal(msp_dir_list_read(&list, dir, NULL), MSP_OK);
    for (size_t i = 0; i < list.count && !found; i++)
        found = msp_str_ends(msp_str_of(list.names[i]), MSP_STR(".ring")) &&
                msp_ring_open(ring, in_dir(dir, list.names[i]), NULL) == MSP_OK;
    msp_dir_list_release(&list);
    return found;
}

/* What the ring in dir says: the process that writes, and how many units are over. */
static inline int64_t
ask_ring(const char *dir, uint32_t *over)
{
    int64_t pid = 0;
    msp_ring ring;

    *over = 0;
    if (open_ring(&ring, dir)) {
        pid = atomic_load(&ring.shared->writer_pid);
        *over = atomic_load(&ring.shared->over);
        msp_ring_close(&ring, false);
    }
    return pid;
}

static inline int64_t
writer_of(const char *dir)
{
    uint32_t over;

    return ask_ring(dir, &over);
}

static inline uint32_t
units_over(const char *dir)
{
    uint32_t over;

    (void)ask_ring(dir, &over);
    return over;
}

static inline msp_str
read_text(msp_mapping *map, const char *path)
{
    assert_int_equal(msp_map_open(map, path, NULL), MSP_OK);
    return (msp_str){map->addr, map->size};
}

#define run_collect_tests(argc, argv, tests)                \
    (collect_is_writer(argc, argv) ? collect_write(argv[2]) \
                                   : cmocka_run_group_tests(tests, collect_find_self, remove_scratch))

static inline bool
collect_is_writer(int argc, char **argv)
{
    return argc == 3 && strcmp(argv[1], "__write") == 0;
}

static inline int
collect_write(const char *ring)
{
    if (fork() != 0)
        _exit(0);
    return msp_collect_write(ring, NULL) != MSP_OK;
}

static inline int
collect_find_self(void **state)
{
    (void)state;
    return readlink("/proc/self/exe", collect_self, sizeof(collect_self) - 1) < 0;
}

#endif
