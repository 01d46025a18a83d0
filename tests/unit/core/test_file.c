/* test_file.c - promises of core/file.h. */
#include "unit.h"
#include <stdbool.h>
#include <pthread.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"

static size_t
files_in(const char *dir)
{
    msp_dir_list list;
    size_t n;

    assert_int_equal(msp_dir_list_read(&list, dir, NULL), MSP_OK);
    n = list.count;
    msp_dir_list_release(&list);
    return n;
}

static const char *
fresh_dir(const char *name)
{
    const char *dir = scratch_path(name);

    assert_int_equal(msp_path_make_dirs(dir, NULL), MSP_OK);
    return dir;
}

static void
a_mapped_file_shows_its_bytes(void **state)
{
    const char *path = write_file("map", "hello", 5);
    msp_mapping m;

    (void)state;
    assert_int_equal(msp_map_open(&m, path, NULL), MSP_OK);
    assert_int_equal(m.size, 5);
    assert_memory_equal(m.addr, "hello", 5);
    msp_map_close(&m);
    assert_null(m.addr);
    msp_map_close(&m);
}

static void
a_smaller_file_is_read_into_the_callers_memory(void **state)
{
    char room[11];
    int64_t live = msp_alloc_live();
    msp_mapping m;

    (void)state;
    assert_int_equal(msp_map_open_in(&m, room, sizeof(room), AT_FDCWD, write_file("fits", "0123456789", 10), NULL),
                     MSP_OK);
    assert_ptr_equal(m.addr, room);
    assert_int_equal(m.size, 10);
    assert_memory_equal(room, "0123456789", 10);
    assert_int_equal(msp_alloc_live(), live);
    msp_map_close(&m);
    assert_null(m.addr);
    assert_memory_equal(room, "0123456789", 10);

    assert_int_equal(msp_map_open_in(&m, room, sizeof(room), AT_FDCWD, write_file("does not", "0123456789x", 11), NULL),
                     MSP_OK);
    assert_int_equal(m.kind, MSP_MAP_COPIED);
    assert_memory_equal(m.addr, "0123456789x", 11);
    msp_map_close(&m);
    assert_int_equal(msp_alloc_live(), live);
}

static void
small_files_are_read_and_large_ones_mapped(void **state)
{
    static char bytes[64 * 1024 + 1];
    int64_t live = msp_alloc_live();
    msp_mapping m;

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)(i * 31 >> 3);
    for (size_t size = sizeof(bytes) - 1; size <= sizeof(bytes); size++) {
        const char *path = write_file("either", bytes, size);

        assert_int_equal(msp_map_open(&m, path, NULL), MSP_OK);
        assert_int_equal(m.kind, size < sizeof(bytes) ? MSP_MAP_COPIED : MSP_MAP_MAPPED);
        assert_int_equal(m.size, size);
        assert_memory_equal(m.addr, bytes, size);
        msp_map_close(&m);
        assert_int_equal(msp_alloc_live(), live);
    }
    msp_alloc_fail_after(0);
    assert_int_equal(msp_map_open(&m, write_file("either", bytes, 10), NULL), MSP_E_NOMEM);
    msp_alloc_fail_after(-1);
    assert_null(m.addr);
}

static int interruptions; /* of posix_fallocate(), still to come */
static bool timers_waited;

/* In place of the C library's. */
int
posix_fallocate(int fd, off_t offset, off_t size)
{
    sigset_t blocked;

    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    timers_waited = sigismember(&blocked, SIGPROF) == 1 && sigismember(&blocked, SIGBUS) == 0;
    if (interruptions-- > 0)
        return EINTR;
    return ftruncate(fd, offset + size) == 0 ? 0 : errno;
}

static void
blocks_are_given_whatever_signals_come(void **state)
{
    int fd = open(write_text("blocks", "abc"), O_RDWR | O_CLOEXEC);
    sigset_t blocked;

    (void)state;
    interruptions = 2;
    assert_int_equal(msp_file_allocate(fd, 4096), 0);
    assert_int_equal(interruptions, -1);
    assert_true(timers_waited);
    assert_int_equal(lseek(fd, 0, SEEK_END), 4096);
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    assert_false(sigismember(&blocked, SIGPROF));
    assert_int_equal(msp_file_allocate(-1, 4096), EBADF);
    close(fd);
}

static void
an_empty_file_maps_to_nothing(void **state)
{
    const char *path = write_file("empty", "", 0);
    char *bytes;
    size_t size = 9;
    msp_mapping m;

    (void)state;
    assert_int_equal(msp_map_open(&m, path, NULL), MSP_OK);
    assert_null(m.addr);
    assert_int_equal(m.size, 0);
    msp_map_close(&m);
    assert_int_equal(msp_file_read(&bytes, &size, path, 0, NULL), MSP_OK);
    assert_int_equal(size, 0);
    assert_string_equal(bytes, "");
    msp_free(bytes);
}

static void
what_is_no_regular_file_is_refused_with_its_path(void **state)
{
    const char *fifo = scratch_path("fifo"), *missing = scratch_path("missing");
    msp_mapping m;
    msp_error err;
    char *bytes;
    size_t size;

    (void)state;
    assert_int_equal(msp_map_open(&m, scratch_dir(), &err), MSP_E_IO);
    assert_non_null(strstr(err.message, scratch_dir()));
    assert_non_null(strstr(err.message, "is a directory"));
    assert_null(m.addr);
    assert_int_equal(msp_map_open(&m, missing, &err), MSP_E_NOT_FOUND);
    assert_non_null(strstr(err.message, missing));
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(msp_map_open(&m, fifo, &err), MSP_E_IO); /* and does not wait for a writer */
    assert_non_null(strstr(err.message, "a device or pipe"));
    assert_int_equal(msp_file_read(&bytes, &size, fifo, 100, &err), MSP_E_IO);
    assert_null(bytes);
    assert_int_equal(msp_file_read(&bytes, &size, missing, 100, &err), MSP_E_NOT_FOUND);
}

static void
reading_keeps_to_its_limit_and_terminates(void **state)
{
    const char *path = write_file("limit", "12345", 5);
    msp_error err;
    char *bytes;
    size_t size;

    (void)state;
    assert_int_equal(msp_file_read(&bytes, &size, path, 5, &err), MSP_OK);
    assert_int_equal(size, 5);
    assert_string_equal(bytes, "12345");
    msp_free(bytes);
    assert_int_equal(msp_file_read(&bytes, &size, path, 4, &err), MSP_E_LIMIT);
    assert_null(bytes);
    msp_alloc_fail_after(0);
    assert_int_equal(msp_file_read(&bytes, &size, path, 5, &err), MSP_E_NOMEM);
    msp_alloc_fail_after(-1);
}

static void
a_file_appears_when_it_is_committed(void **state)
{
    const char *dir = fresh_dir("commit");
    char path[600], *bytes;
    struct stat st;
    msp_file f;
    size_t size;

    (void)state;
    snprintf(path, sizeof(path), "%s/out", dir);
    umask(022);
    assert_int_equal(msp_file_create(&f, path, 0640, NULL), MSP_OK);
    assert_int_equal(msp_file_write(&f, "0123456789", 10, NULL), MSP_OK);
    assert_int_equal(msp_file_patch(&f, 3, "xyz", 3, NULL), MSP_OK);
    assert_int_equal(msp_file_write(&f, "!", 1, NULL), MSP_OK);
    assert_int_equal(msp_path_kind_of(path), MSP_PATH_NONE);
    assert_int_equal(msp_file_commit(&f, NULL), MSP_OK);
    assert_int_equal(f.fd, -1);
    assert_null(f.path);
    assert_int_equal(files_in(dir), 1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(msp_file_read(&bytes, &size, path, 100, NULL), MSP_OK);
    assert_string_equal(bytes, "012xyz6789!");
    msp_free(bytes);
    msp_file_abandon(&f);
    assert_int_equal(files_in(dir), 1);
}

static void
a_file_is_saved_whole_or_not_at_all(void **state)
{
    const char *dir = fresh_dir("save");
    int64_t live = msp_alloc_live();
    char path[600], *text;
    msp_error err;
    size_t size;

    (void)state;
    snprintf(path, sizeof(path), "%s/out", dir);
    assert_int_equal(msp_file_save(path, "whole", 5, 0640, &err), MSP_OK);
    assert_int_equal(msp_file_read(&text, &size, path, 100, &err), MSP_OK);
    assert_string_equal(text, "whole");
    msp_free(text);
    snprintf(path, sizeof(path), "%s/none/out", dir);
    assert_int_equal(msp_file_save(path, "whole", 5, 0640, &err), MSP_E_IO);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(files_in(dir), 1);
    assert_int_equal(msp_alloc_live(), live);
}

static void
an_abandoned_file_leaves_nothing(void **state)
{
    const char *dir = fresh_dir("abandon");
    int64_t live = msp_alloc_live();
    msp_file f, none = MSP_FILE_NONE;
    char path[600];

    (void)state;
    snprintf(path, sizeof(path), "%s/out", dir);
    assert_int_equal(msp_file_create(&f, path, 0640, NULL), MSP_OK);
    assert_int_equal(files_in(dir), 1);
    msp_file_abandon(&f);
    msp_file_abandon(&f);
    msp_file_abandon(&none);
    assert_int_equal(files_in(dir), 0);
    assert_int_equal(msp_alloc_live(), live);
}

/* Another process's leavings with the name that would be next must not stop us. */
static void
a_stale_temporary_file_is_stepped_over(void **state)
{
    const char *dir = fresh_dir("stale");
    char path[600], next[700];
    unsigned serial;
    msp_file f;

    (void)state;
    snprintf(path, sizeof(path), "%s/out", dir);
    assert_int_equal(msp_file_create(&f, path, 0640, NULL), MSP_OK);
    assert_int_equal(sscanf(f.temp + strlen(path), ".%*d.%u.tmp", &serial), 1);
    msp_file_abandon(&f);
    for (unsigned i = 1; i <= 3; i++) {
        FILE *stale;

        snprintf(next, sizeof(next), "%s.%ld.%u.tmp", path, (long)getpid(), serial + i);
        stale = fopen(next, "w");
        assert_non_null(stale);
        fclose(stale);
    }
    assert_int_equal(msp_file_create(&f, path, 0640, NULL), MSP_OK);
    assert_int_equal(msp_file_commit(&f, NULL), MSP_OK);
    assert_int_equal(files_in(dir), 4);
}

static void
the_longest_name_that_a_file_may_have_can_be_written(void **state)
{
    const char *dir = fresh_dir("long");
    char path[900], name[256];
    msp_error err;
    msp_file f;

    (void)state;
    memset(name, 'n', 255);
    name[255] = '\0';
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (msp_file_create(&f, path, 0640, &err) != MSP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(msp_file_commit(&f, NULL), MSP_OK);
    assert_int_equal(msp_path_kind_of(path), MSP_PATH_FILE);
    assert_int_equal(files_in(dir), 1);
}

static void
a_place_that_cannot_be_written_is_named(void **state)
{
    const char *path = scratch_path("no/such/dir/out");
    const char *taken = fresh_dir("taken");
    int64_t live = msp_alloc_live();
    msp_error err;
    msp_file f;

    (void)state;
    assert_int_equal(msp_file_create(&f, path, 0640, &err), MSP_E_IO);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(f.fd, -1);
    assert_int_equal(msp_file_create(&f, taken, 0640, &err), MSP_OK); /* a directory has the name */
    assert_int_equal(msp_file_commit(&f, &err), MSP_E_IO);
    assert_non_null(strstr(err.message, "cannot put in place"));
    assert_int_equal(f.fd, -1);
    msp_alloc_fail_after(0);
    assert_int_equal(msp_file_create(&f, path, 0640, &err), MSP_E_NOMEM);
    msp_alloc_fail_after(-1);
    assert_int_equal(msp_alloc_live(), live);
}

static void
a_full_disk_is_an_error_with_the_path(void **state)
{
    const struct rlimit small = {1000, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    const char *dir = fresh_dir("full");
    static char bytes[2000];
    char path[600];
    msp_error err;
    msp_file f;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    snprintf(path, sizeof(path), "%s/out", dir);
    assert_int_equal(msp_file_create(&f, path, 0640, NULL), MSP_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(msp_file_write(&f, bytes, sizeof(bytes), &err), MSP_E_IO);
    assert_non_null(strstr(err.message, path));
    assert_non_null(strstr(err.message, strerror(EFBIG)));
    assert_int_equal(msp_file_patch(&f, 990, bytes, 20, &err), MSP_E_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    msp_file_abandon(&f);
    assert_int_equal(files_in(dir), 0);
}

static void
reserved_blocks_are_there_and_change_nothing(void **state)
{
    const uint64_t size = 4 << 20;
    const char *dir = fresh_dir("reserved");
    struct stat sb;
    char path[600];
    bool can;
    msp_file f;

    (void)state;
    snprintf(path, sizeof(path), "%s/out", dir);
    assert_int_equal(msp_file_create(&f, path, 0640, NULL), MSP_OK);
    can = fallocate(f.fd, FALLOC_FL_KEEP_SIZE, 0, 4096) == 0; /* not every file system has it */
    assert_int_equal(msp_file_reserve(&f, size, NULL), MSP_OK);
    assert_int_equal(fstat(f.fd, &sb), 0);
    assert_int_equal(sb.st_size, 0);
    assert_true(!can || (uint64_t)sb.st_blocks * 512 >= size);
    assert_int_equal(msp_file_write(&f, "hello", 5, NULL), MSP_OK);
    assert_int_equal(msp_file_commit(&f, NULL), MSP_OK);
    assert_int_equal(stat(path, &sb), 0);
    assert_int_equal(sb.st_size, 5);
}

/* On a small disk of its own: the blocks that there are, are taken before the answer comes, and others would miss them.
 */
static void
more_than_the_disk_has_cannot_be_reserved(void **state)
{
    const char *dir = fresh_dir("small_disk");
    char path[600];
    msp_error err;
    msp_file f;

    (void)state;
    if (mount("tmpfs", dir, "tmpfs", 0, "size=3m") != 0)
        skip();
    snprintf(path, sizeof(path), "%s/out", dir);
    assert_int_equal(msp_file_create(&f, path, 0640, NULL), MSP_OK);
    assert_int_equal(msp_file_reserve(&f, 4 << 20, &err), MSP_E_IO);
    assert_non_null(strstr(err.message, "No space left on device; free some space"));
    assert_int_equal(msp_file_reserve(&f, 2 << 20, &err), MSP_OK);
    msp_file_abandon(&f);
    umount(dir);
}

static void
only_a_full_disk_comes_with_advice(void **state)
{
    msp_error err;

    (void)state;
    assert_int_equal(msp_file_cannot_write("out/x.csv", ENOSPC, &err), MSP_E_IO);
    assert_string_equal(err.message,
                        "out/x.csv: cannot write: No space left on device; free some space there, or write "
                        "to another directory");
    assert_int_equal(msp_file_cannot_write("out/x.csv", EIO, &err), MSP_E_IO);
    assert_string_equal(err.message, "out/x.csv: cannot write: Input/output error");
    assert_int_equal(msp_file_cannot_write("out/x.csv", ENOSPC, NULL), MSP_E_IO);
}

typedef struct table {
    int kept[2], other; /* descriptors of the process */
    int made;           /* of the thread */
    bool own, sees[3];
} table;

static void *
take_table(void *payload)
{
    table *t = payload;

    t->own = msp_file_own_table(t->kept, 2);
    t->sees[0] = fcntl(t->kept[0], F_GETFD) >= 0;
    t->sees[1] = fcntl(t->kept[1], F_GETFD) >= 0;
    t->sees[2] = fcntl(t->other, F_GETFD) >= 0;
    t->made = dup(STDERR_FILENO);
    return NULL;
}

static void
a_thread_can_have_descriptors_of_its_own(void **state)
{
    const char *dir = scratch_dir();
    table t = {.made = -1};
    pthread_t thread;

    (void)state;
    t.kept[1] = open(dir, O_RDONLY | O_CLOEXEC); /* the lower one is not first, and one lies between them */
    t.other = open(dir, O_RDONLY | O_CLOEXEC);
    t.kept[0] = open(dir, O_RDONLY | O_CLOEXEC);
    assert_true(t.kept[1] > STDERR_FILENO && t.other > t.kept[1] && t.kept[0] > t.other);
    assert_int_equal(pthread_create(&thread, NULL, take_table, &t), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(t.sees[0] && t.sees[1]);
    assert_int_equal(t.sees[2], !t.own); /* an old kernel leaves it as it was */
    assert_true(fcntl(t.kept[0], F_GETFD) >= 0 && fcntl(t.kept[1], F_GETFD) >= 0 && fcntl(t.other, F_GETFD) >= 0);
    if (t.own)
        assert_true(t.made <= t.other); /* which is free there */
    close(t.kept[0]);
    close(t.kept[1]);
    close(t.other);
}

static int
open_descriptors(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* What read_small() makes of the file of this name in dir, beside two others, in a room of so many bytes. */
static size_t
read_beside(int dir, const char *name, char *room, size_t room_size)
{
    char others[2][16] = {"small", "small"};
    msp_small_file files[] = {{dir, others[0], sizeof(others[0]), 9},
                              {dir, room, room_size, 9},
                              {dir, others[1], sizeof(others[1]), 9}};

    snprintf(room, room_size, "%s", name);
    msp_file_read_small(files, 3);
    assert_int_equal(files[0].size, 5);
    assert_memory_equal(others[0], "bytes", 5);
    assert_int_equal(files[2].size, 5);
    return files[1].size;
}

static void
small_files_are_read_together_and_those_that_cannot_be_are_left(void **state)
{
    int dir, hole, other, before;
    char room[64];

    (void)state;
    write_file("small", "bytes", 5);
    write_file("exact", "0123456789", 10);
    write_file("none", "", 0);
    dir = open(scratch_dir(), O_RDONLY | O_CLOEXEC);
    before = open_descriptors();
    assert_int_equal(read_beside(dir, "exact", room, 11), 10);
    assert_memory_equal(room, "0123456789", 10);
    assert_int_equal(read_beside(dir, "exact", room, 10), 0); /* there might be more of it */
    assert_int_equal(read_beside(dir, "none", room, sizeof(room)), 0);
    assert_int_equal(read_beside(dir, "missing", room, sizeof(room)), 0);
    assert_int_equal(read_beside(dir, ".", room, sizeof(room)), 0);
    assert_int_equal(open_descriptors(), before);

    /* a descriptor of somebody else's between those of the files */
    hole = dup(dir);
    other = dup(dir);
    close(hole);
    assert_int_equal(read_beside(dir, "exact", room, 11), 10);
    assert_true(fcntl(other, F_GETFD) >= 0);
    assert_int_equal(open_descriptors(), before + 1);
    close(other);
    close(dir);
    msp_file_read_small(NULL, 0);
}

/* Reading is no reason to write: thousands of files would each have their inode written. */
static void
small_files_are_read_without_a_trace_or_by_whom_does_not_own_them(void **state)
{
    const struct timespec long_ago[2] = {{1000000000, 0}, {1100000000, 0}};
    int dir = open(scratch_dir(), O_RDONLY | O_CLOEXEC);
    char room[64];
    struct stat st;

    (void)state;
    write_file("small", "bytes", 5);
    write_file("exact", "0123456789", 10);
    assert_int_equal(utimensat(dir, "exact", long_ago, 0), 0);
    assert_int_equal(read_beside(dir, "exact", room, 11), 10);
    assert_int_equal(fstatat(dir, "exact", &st, 0), 0);
    assert_int_equal(st.st_atim.tv_sec, long_ago[0].tv_sec);
    if (geteuid() == 0) { /* as somebody else, who may read them */
        assert_int_equal(fstat(dir, &st), 0);
        assert_int_equal(fchmod(dir, 0755), 0);
        assert_int_equal(fchmodat(dir, "small", 0644, 0) | fchmodat(dir, "exact", 0644, 0), 0);
        assert_int_equal(seteuid(65534), 0);
        assert_int_equal(read_beside(dir, "exact", room, 11), 10);
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(fchmod(dir, st.st_mode & 07777), 0);
    }
    close(dir);
}

static void
ignore(int signal)
{
    (void)signal;
}

/* A pipe that is read slowly takes part of what it is given, and a signal interrupts who waits for room. */
static void
parts_that_are_taken_in_bits_arrive_whole(void **state)
{
    static char sent[3][70000];
    struct iovec parts[] = {{sent[0], sizeof(sent[0])}, {NULL, 0}, {sent[1], 1}, {sent[2], sizeof(sent[2])}, {NULL, 0}};
    const struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    struct sigaction act = {.sa_handler = ignore}, old;
    int fds[2], status;
    pid_t reader;

    (void)state;
    for (size_t i = 0; i < sizeof(sent); i++)
        ((char *)sent)[i] = (char)(i % 251);
    assert_int_equal(pipe(fds), 0);
    reader = fork();
    if (reader == 0) {
        static char got[sizeof(sent)];
        size_t n = 0;
        ssize_t k;

        close(fds[1]);
        while ((k = read(fds[0], got + n, 3000)) > 0) {
            n += (size_t)k;
            usleep(300);
        }
        _exit(n != sizeof(sent[0]) + 1 + sizeof(sent[2]) || memcmp(got, sent[0], sizeof(sent[0])) != 0 ||
              got[sizeof(sent[0])] != sent[1][0] || memcmp(got + sizeof(sent[0]) + 1, sent[2], sizeof(sent[2])) != 0);
    }
    close(fds[0]);
    sigaction(SIGALRM, &act, &old);
    setitimer(ITIMER_REAL, &often, NULL);
    assert_int_equal(msp_file_put(fds[1], parts, 5, -1), 0);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &old, NULL);
    close(fds[1]);
    assert_int_equal(waitpid(reader, &status, 0), reader);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(parts_that_are_taken_in_bits_arrive_whole),
        TEST(a_mapped_file_shows_its_bytes),
        TEST(a_smaller_file_is_read_into_the_callers_memory),
        TEST(small_files_are_read_and_large_ones_mapped),
        TEST(small_files_are_read_together_and_those_that_cannot_be_are_left),
        TEST(small_files_are_read_without_a_trace_or_by_whom_does_not_own_them),
        TEST(blocks_are_given_whatever_signals_come),
        TEST(an_empty_file_maps_to_nothing),
        TEST(what_is_no_regular_file_is_refused_with_its_path),
        TEST(reading_keeps_to_its_limit_and_terminates),
        TEST(a_file_appears_when_it_is_committed),
        TEST(a_file_is_saved_whole_or_not_at_all),
        TEST(an_abandoned_file_leaves_nothing),
        TEST(a_stale_temporary_file_is_stepped_over),
        TEST(the_longest_name_that_a_file_may_have_can_be_written),
        TEST(a_place_that_cannot_be_written_is_named),
        TEST(a_full_disk_is_an_error_with_the_path),
        TEST(reserved_blocks_are_there_and_change_nothing),
        TEST(more_than_the_disk_has_cannot_be_reserved),
        TEST(only_a_full_disk_comes_with_advice),
        TEST(a_thread_can_have_descriptors_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
