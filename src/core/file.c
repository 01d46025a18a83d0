/* file.c - see file.h. */
#include "core/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/locale.h"

enum { TEMP_BASE_MAX = 255 - 40 }; /* of the 255 bytes of a name, what the largest numbers and ".tmp" leave */

static msp_status
open_path(int *out, int dir, const char *path, msp_error *err)
{
    *out = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*out < 0)
        return msp_error_set_errno(err, errno == ENOENT ? MSP_E_NOT_FOUND : MSP_E_IO, errno, "%s: cannot open", path);
    return MSP_OK;
}

/* What fd is, which must be a regular file. */
static msp_status
regular_file(struct stat *out, int fd, const char *path, msp_error *err)
{
    if (fstat(fd, out) != 0)
        return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot stat", path);
    if (!S_ISREG(out->st_mode))
        return msp_error_set(err, MSP_E_IO, "%s: is %s, not a regular file", path,
                             S_ISDIR(out->st_mode) ? "a directory" : "a device or pipe");
    return MSP_OK;
}

/* Up to this size reading is faster than mapping: measured, 9 against 15 microseconds at 64 KiB, equal at 256 KiB. */
enum { READ_AT_MOST = 64 * 1024 };

/* n bytes from the file's start; *got is less when the file is shorter now than it was. */
static msp_status
read_start(char *p, size_t n, size_t *got, int fd, const char *path, msp_error *err)
{
    for (*got = 0; *got < n;) {
        ssize_t k = pread(fd, p + *got, n - *got, (off_t)*got);

        if (k < 0 && errno != EINTR)
            return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot read at byte %zu", path, *got);
        if (k == 0)
            break; /* what is there is what counts */
        if (k > 0)
            *got += (size_t)k;
    }
    return MSP_OK;
}

/*
 * A file smaller than the caller's room is read in one call that needs no size: of a regular file read() gives less
 * than it was asked for only at the end. *out stays empty when it is larger, or cannot be read: then the slower ways
 * find out why.
 */
static void
read_tiny(msp_mapping *out, void *room, size_t room_size, int fd)
{
    ssize_t k = room_size == 0 ? 0 : pread(fd, room, room_size, 0);

    if (k > 0 && (size_t)k < room_size)
        *out = (msp_mapping){.addr = room, .size = (size_t)k, .kind = MSP_MAP_LENT};
}

/*
 * Read a small file; *out stays empty when it is none, or cannot be read. lseek() tells the size in half the time of
 * fstat(), and fails or says 0 for pipes and devices; a directory cannot be read.
 */
static msp_status
read_small(msp_mapping *out, int fd, const char *path, msp_error *err)
{
    off_t end = lseek(fd, 0, SEEK_END);
    size_t size;
    char *p;

    if (end <= 0 || end > READ_AT_MOST)
        return MSP_OK;
    p = msp_alloc((size_t)end, 1);
    if (p == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory for %zu bytes", path, (size_t)end);
    if (read_start(p, (size_t)end, &size, fd, path, NULL) == MSP_OK && size > 0)
        *out = (msp_mapping){.addr = p, .size = size, .kind = MSP_MAP_COPIED};
    else
        msp_free(p);
    return MSP_OK;
}

static msp_map_hook *opened;
static void *opened_payload;

static msp_status
map_large(msp_mapping *out, int fd, const char *path, msp_error *err)
{
    struct stat file;
    size_t size;
    void *addr;
    msp_watch *watch;
    msp_status st = regular_file(&file, fd, path, err);

    if (st != MSP_OK || file.st_size == 0)
        return st;
    size = (size_t)file.st_size;
    addr = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (addr == MAP_FAILED)
        return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot map %zu bytes", path, size);
    watch = msp_watch_begin(addr, size, MSP_WATCH_READ, NULL);
    if (watch == NULL) {
        munmap(addr, size);
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", path);
    }
    *out = (msp_mapping){.addr = addr,
                         .size = size,
                         .kind = MSP_MAP_MAPPED,
                         .watch = watch,
                         .device = file.st_dev,
                         .inode = file.st_ino};
    if (opened != NULL)
        opened(path, opened_payload);
    return MSP_OK;
}

void
msp_map_on_open(msp_map_hook *hook, void *payload)
{
    opened = hook;
    opened_payload = payload;
}

msp_status
msp_map_open(msp_mapping *out, const char *path, msp_error *err)
{
    return msp_map_open_in(out, NULL, 0, AT_FDCWD, path, err);
}

msp_status
msp_map_open_in(msp_mapping *out, void *room, size_t room_size, int dir, const char *path, msp_error *err)
{
    msp_status st;
    int fd;

    *out = (msp_mapping){0};
    st = open_path(&fd, dir, path, err);
    if (st != MSP_OK)
        return st;
    read_tiny(out, room, room_size, fd);
    if (out->addr == NULL)
        st = read_small(out, fd, path, err);
    if (st == MSP_OK && out->addr == NULL)
        st = map_large(out, fd, path, err);
    close(fd);
    return st;
}

/*
 * A fault tells that a page was gone when it was touched; the file's size tells of what is less than a page. Another
 * file that took the name meanwhile is none of ours.
 */
msp_status
msp_map_check(const msp_mapping *m, int dir, const char *path, msp_error *err)
{
    size_t from = msp_watch_lost_from(m->watch);
    struct stat now;
    bool same;

    if (m->addr == NULL || m->kind != MSP_MAP_MAPPED)
        return MSP_OK;
    same = fstatat(dir, path, &now, 0) == 0 && now.st_dev == m->device && now.st_ino == m->inode;
    if (same && (uint64_t)now.st_size < m->size && (uint64_t)now.st_size < from)
        from = (size_t)now.st_size;
    if (from == SIZE_MAX)
        return MSP_OK;
    return msp_error_set(err, MSP_E_CHANGED,
                         "%s: was cut short while it was read: of %zu bytes those from %zu on are gone; is it still "
                         "being written or copied?",
                         path, m->size, from);
}

msp_status
msp_map_blame(const msp_mapping *m, int dir, const char *path, msp_status st, msp_error *err)
{
    msp_status cut = st == MSP_E_CANCELLED || st == MSP_E_NOMEM ? MSP_OK : msp_map_check(m, dir, path, err);

    return cut != MSP_OK ? cut : st;
}

void
msp_map_close(msp_mapping *m)
{
    msp_watch_end(m->watch);
    if (m->kind == MSP_MAP_COPIED)
        msp_free((void *)m->addr);
    else if (m->kind == MSP_MAP_MAPPED && m->addr != NULL) {
        madvise((void *)m->addr, m->size, MADV_DONTNEED); /* several threads at a time can; munmap() is one by one */
        munmap((void *)m->addr, m->size);
    }
    *m = (msp_mapping){0};
}

bool
msp_file_own_table(const int *keep, size_t n)
{
#ifdef CLOSE_RANGE_UNSHARE
    int highest = STDERR_FILENO;

    for (size_t i = 0; i < n; i++)
        highest = keep[i] > highest ? keep[i] : highest;
    /* unshare() does the same, but is forbidden in many containers */
    if (close_range((unsigned)highest + 1, UINT_MAX, CLOSE_RANGE_UNSHARE) != 0)
        return false;
    for (int from = STDERR_FILENO + 1, next; from <= highest; from = next + 1) {
        next = highest;
        for (size_t i = 0; i < n; i++)
            if (keep[i] >= from && keep[i] < next)
                next = keep[i];
        if (next > from)
            (void)close_range((unsigned)from, (unsigned)next - 1, 0);
    }
    return true;
#else
    (void)keep, (void)n;
    return false;
#endif
}

/* Neighbours are closed by one call: the lowest free descriptor is always the next, so most are. */
static void
close_all(const int *fds, size_t n)
{
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && fds[end] == fds[end - 1] + 1;)
            end++;
#ifdef CLOSE_RANGE_UNSHARE
        if (close_range((unsigned)fds[i], (unsigned)fds[end - 1], 0) == 0)
            continue;
#endif
        for (size_t k = i; k < end; k++)
            close(fds[k]);
    }
}

/* Only the owner may leave the time of the last access alone, which the kernel would have to write down for each. */
static int
open_untouched(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOATIME);

    return fd < 0 && errno == EPERM ? openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : fd;
}

void
msp_file_read_small(msp_small_file *files, size_t n)
{
    int fds[MSP_SMALL_FILES], open_fds[MSP_SMALL_FILES];
    size_t nopened = 0;

    assert(n <= MSP_SMALL_FILES);
    for (size_t i = 0; i < n; i++) {
        files[i].size = 0;
        fds[i] = open_untouched(files[i].dir, files[i].room);
        if (fds[i] >= 0)
            open_fds[nopened++] = fds[i];
    }
    for (size_t i = 0; i < n; i++) {
        ssize_t k = fds[i] < 0 ? 0 : pread(fds[i], files[i].room, files[i].room_size, 0);

        if (k > 0 && (size_t)k < files[i].room_size)
            files[i].size = (size_t)k;
    }
    close_all(open_fds, nopened);
}

msp_status
msp_file_read(char **out, size_t *size, const char *path, size_t limit, msp_error *err)
{
    size_t n, got = 0;
    struct stat file;
    msp_status st;
    char *p = NULL;
    int fd;

    *out = NULL;
    *size = 0;
    st = open_path(&fd, AT_FDCWD, path, err);
    if (st != MSP_OK)
        return st;
    st = regular_file(&file, fd, path, err);
    n = st == MSP_OK ? (size_t)file.st_size : 0;
    if (st == MSP_OK && n > limit)
        st = msp_error_set(err, MSP_E_LIMIT, "%s: %zu bytes, more than the %zu allowed here", path, n, limit);
    if (st == MSP_OK && (p = msp_alloc(n + 1, 1)) == NULL)
        st = msp_error_set(err, MSP_E_NOMEM, "%s: out of memory for %zu bytes", path, n);
    if (st == MSP_OK)
        st = read_start(p, n, &got, fd, path, err);
    close(fd);
    if (st != MSP_OK) {
        msp_free(p);
        return st;
    }
    p[got] = '\0';
    *out = p;
    *size = got;
    return MSP_OK;
}

/*
 * The temporary name is the final one with a number at its end; a long one is cut, because the final name may already
 * be as long as a name can be. A file that is there belongs to a process of the same number that died: try the next.
 */
static int
create_temp(char *temp, size_t size, const char *path, unsigned mode)
{
    static _Atomic unsigned serial;
    const char *slash = strrchr(path, '/');
    size_t dir = slash == NULL ? 0 : (size_t)(slash - path) + 1, base = strlen(path) - dir;
    int fd;

    if (base > TEMP_BASE_MAX)
        base = TEMP_BASE_MAX;
    do {
        snprintf(temp, size, "%.*s.%ld.%u.tmp", (int)(dir + base), path, (long)getpid(), atomic_fetch_add(&serial, 1u));
        fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    } while (fd < 0 && errno == EEXIST);
    return fd;
}

msp_status
msp_file_create(msp_file *out, const char *path, unsigned mode, msp_error *err)
{
    size_t len = strlen(path);
    char *text = msp_alloc(2 * len + 64, 1); /* one block: path, then temp */

    *out = MSP_FILE_NONE;
    if (text == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", path);
    memcpy(text, path, len + 1);
    out->path = text;
    out->temp = text + len + 1;
    out->fd = create_temp(out->temp, len + 63, path, mode);
    if (out->fd < 0) {
        msp_status st = msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot create", path);

        msp_free(text);
        *out = MSP_FILE_NONE;
        return st;
    }
    return MSP_OK;
}

msp_status
msp_file_cannot_write(const char *path, int errnum, msp_error *err)
{
    if (errnum != ENOSPC && errnum != EDQUOT)
        return msp_error_set_errno(err, MSP_E_IO, errnum, "%s: cannot write", path);
    return msp_error_set(err, MSP_E_IO, "%s: cannot write: %s; free some space there, or write to another directory",
                         path, msp_errno_text(errnum));
}

enum { RESERVE_FROM = 1 << 19 }; /* below, the call costs what it saves */

msp_status
msp_file_reserve(msp_file *f, uint64_t size, msp_error *err)
{
    if (size < RESERVE_FROM || size > INT64_MAX || fallocate(f->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)size) == 0)
        return MSP_OK;
    /* anything else: a file system that cannot reserve, and writing will tell what there is to tell */
    return errno == ENOSPC || errno == EDQUOT ? msp_file_cannot_write(f->path, errno, err) : MSP_OK;
}

int
msp_file_allocate(int fd, uint64_t size)
{
    sigset_t others, before;
    int e;

    msp_signals_of_others(&others);
    pthread_sigmask(SIG_BLOCK, &others, &before);
    do
        e = posix_fallocate(fd, 0, (off_t)size);
    while (e == EINTR);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}

int
msp_file_put(int fd, struct iovec *parts, int n, int64_t offset)
{
    for (;;) {
        ssize_t k;

        for (; n > 0 && parts->iov_len == 0; n--)
            parts++;
        if (n == 0)
            return 0;
        k = offset < 0 ? writev(fd, parts, n) : pwritev(fd, parts, n, (off_t)offset);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? errno : ENOSPC;
        offset += offset < 0 ? 0 : k;
        for (size_t left = (size_t)k, taken; left > 0; left -= taken) {
            taken = left < parts->iov_len ? left : parts->iov_len;
            parts->iov_base = (char *)parts->iov_base + taken;
            parts->iov_len -= taken;
            if (parts->iov_len == 0) {
                parts++;
                n--;
            }
        }
    }
}

msp_status
msp_file_write_parts(msp_file *f, struct iovec *parts, int n, msp_error *err)
{
    int e = msp_file_put(f->fd, parts, n, -1);

    return e == 0 ? MSP_OK : msp_file_cannot_write(f->path, e, err);
}

msp_status
msp_file_write(msp_file *f, const void *p, size_t n, msp_error *err)
{
    return msp_file_write_parts(f, &(struct iovec){(void *)p, n}, 1, err);
}

msp_status
msp_file_patch(msp_file *f, uint64_t offset, const void *p, size_t n, msp_error *err)
{
    int e = msp_file_put(f->fd, &(struct iovec){(void *)p, n}, 1, (int64_t)offset);

    return e == 0 ? MSP_OK : msp_file_cannot_write(f->path, e, err);
}

msp_status
msp_file_commit(msp_file *f, msp_error *err)
{
    msp_status st = MSP_OK;

    if (close(f->fd) != 0)
        st = msp_file_cannot_write(f->path, errno, err);
    f->fd = -1;
    if (st == MSP_OK && rename(f->temp, f->path) != 0)
        st = msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot put in place", f->path);
    if (st != MSP_OK)
        unlink(f->temp);
    msp_free(f->path);
    *f = MSP_FILE_NONE;
    return st;
}

void
msp_file_abandon(msp_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    if (f->path != NULL) {
        unlink(f->temp);
        msp_free(f->path);
    }
    *f = MSP_FILE_NONE;
}

msp_status
msp_file_save(const char *path, const void *p, size_t n, unsigned mode, msp_error *err)
{
    msp_file f = MSP_FILE_NONE;
    msp_status st = msp_file_create(&f, path, mode, err);

    if (st == MSP_OK)
        st = msp_file_write(&f, p, n, err);
    if (st == MSP_OK)
        st = msp_file_commit(&f, err);
    msp_file_abandon(&f);
    return st;
}
