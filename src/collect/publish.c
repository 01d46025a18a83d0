/* publish.c - see publish.h. */
#include "collect/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE (1 << 1)
#endif

enum { PREVIEW_MARK = '\t' };

static const msp_str NOTHING;

static msp_status
set_up(msp_publish *p, const char *path, msp_str head, msp_str tail, msp_error *err)
{
    msp_str dir = msp_path_dir(path), base = msp_path_base(path);
    size_t len = strlen(path), twin_size = len + 32;
    char *text = msp_alloc(len + 1 + twin_size + head.len, 1);

    *p = MSP_PUBLISH_NONE;
    if (text == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", path);
    memcpy(text, path, len + 1);
    p->path = text;
    p->twin = text + len + 1;
    snprintf(p->twin, twin_size, "%.*s/.%.*s.twin", (int)dir.len, dir.p, (int)base.len, base.p);
    if (head.len > 0)
        memcpy(p->twin + twin_size, head.p, head.len);
    p->head = (msp_str){p->twin + twin_size, head.len};
    p->tail = tail;
    return MSP_OK;
}

static msp_status
write_at(int fd, const char *path, uint64_t at, msp_str a, msp_str b, msp_error *err)
{
    struct iovec parts[] = {{(void *)a.p, a.len}, {(void *)b.p, b.len}};
    int e = msp_file_put(fd, parts, 2, (int64_t)at);

    return e == 0 ? MSP_OK : msp_error_set_errno(err, MSP_E_IO, e, "%s: cannot write", path);
}

msp_status
msp_publish_create(msp_publish *out, const char *path, msp_str head, msp_str tail, msp_error *err)
{
    msp_status st = set_up(out, path, head, tail, err);

    out->len = head.len;
    return st;
}

/* Where a preview begins in the first len bytes, or len. Strings have no tab in them: JSON writes it as \t. */
static msp_status
find_preview(uint64_t *out, int fd, const char *path, uint64_t len, msp_error *err)
{
    char block[1 << 16];

    *out = len;
    while (len > 0) {
        size_t n = len < sizeof(block) ? (size_t)len : sizeof(block);
        const char *mark;

        if (pread(fd, block, n, (off_t)(len - n)) != (ssize_t)n)
            return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot read", path);
        len -= n;
        mark = memrchr(block, PREVIEW_MARK, n);
        if (mark != NULL) {
            *out = len + (uint64_t)(mark - block);
            return MSP_OK;
        }
    }
    return MSP_OK;
}

msp_status
msp_publish_reopen(msp_publish *out, const char *path, msp_str tail, msp_error *err)
{
    char end[64] = {0}, last = '{';
    struct stat sb;
    msp_status st;

    st = set_up(out, path, (msp_str){0}, tail, err);
    if (st != MSP_OK)
        return st;
    unlink(out->twin); /* that writer was killed */
    out->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (out->fd < 0 || fstat(out->fd, &sb) != 0) {
        st = msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot open", path);
    } else if (tail.len > sizeof(end) || sb.st_size < (off_t)tail.len + 1 ||
               pread(out->fd, end, tail.len, sb.st_size - (off_t)tail.len) != (ssize_t)tail.len ||
               memcmp(end, tail.p, tail.len) != 0) {
        st = msp_error_set(err, MSP_E_FORMAT, "%s: does not end as a dump does", path);
    } else {
        out->end = (uint64_t)sb.st_size;
        st = find_preview(&out->len, out->fd, path, out->end - tail.len, err);
        if (st == MSP_OK && out->len > 0 && pread(out->fd, &last, 1, (off_t)out->len - 1) != 1)
            st = msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot read", path);
        out->any = last != '{';
    }
    if (st != MSP_OK)
        msp_publish_close(out);
    return st;
}

static msp_status
write_twin(msp_publish *p, uint64_t at, msp_str a, msp_str b, msp_error *err)
{
    const uint64_t end = at + a.len + b.len;

    if (p->twin_end < end)
        p->twin_end = end;
    return a.len + b.len == 0 ? MSP_OK : write_at(p->twin_fd, p->twin, at, a, b, err);
}

static void
drop_twin(msp_publish *p)
{
    if (p->twin_fd < 0)
        return;
    close(p->twin_fd);
    p->twin_fd = -1;
    p->prepared = 0;
    unlink(p->twin);
}

/*
 * Whether somebody has the file open beside us, who may be half through it. A lease that would keep others out is
 * granted only when there are none; on a file system without leases nobody knows. Who opens the file while we have it
 * makes the kernel send a signal: one that is ignored where nobody waits for it, and not SIGIO, which would end us.
 */
static bool
is_being_read(int fd)
{
    if (fcntl(fd, F_SETSIG, SIGURG) != 0)
        return false;
    if (fcntl(fd, F_SETLEASE, F_WRLCK) != 0)
        return errno == EAGAIN;
    fcntl(fd, F_SETLEASE, F_UNLCK);
    return false;
}

/* The twin, with everything that the published file has but its tail. */
static msp_status
catch_up(msp_publish *p, msp_error *err)
{
    char block[1 << 16];
    msp_str text = p->head;
    msp_status st = MSP_OK;

    if (p->was_shown && is_being_read(p->twin_fd))
        drop_twin(p);
    p->was_shown = false;
    if (p->twin_fd < 0) {
        unlink(p->twin); /* of a writer that was killed, or a link that somebody planted */
        p->twin_fd = open(p->twin, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
        p->twin_len = p->twin_end = p->prepared = 0;
        if (p->twin_fd < 0)
            return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot create", p->twin);
    }
    while (st == MSP_OK && p->twin_len < p->len) {
        if (p->fd >= 0) {
            uint64_t left = p->len - p->twin_len;
            ssize_t n = pread(p->fd, block, left < sizeof(block) ? left : sizeof(block), (off_t)p->twin_len);

            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                return msp_error_set_errno(err, MSP_E_IO, n < 0 ? errno : EIO, "%s: cannot read", p->path);
            text = (msp_str){block, (size_t)n};
        }
        st = write_twin(p, p->twin_len, text, NOTHING, err);
        p->twin_len += text.len;
    }
    return st;
}

static msp_status
append_in_place(msp_publish *p, msp_str text, msp_error *err)
{
    msp_status st = write_at(p->fd, p->path, p->len, text, p->tail, err);

    if (st != MSP_OK) {
        /* a full disk: take back what was written, so that the file ends as before */
        if (write_at(p->fd, p->path, p->len, p->tail, NOTHING, NULL) == MSP_OK &&
            ftruncate(p->fd, (off_t)(p->len + p->tail.len)) != 0)
            return st;
        return st;
    }
    p->len += text.len;
    p->end = p->len + p->tail.len;
    p->any = true;
    return MSP_OK;
}

static msp_str
not_prepared(const msp_publish *p, msp_str text)
{
    return p->prepared == 0 ? text : (msp_str){text.p + p->prepared, text.len - p->prepared};
}

/* Put text into the twin behind what is kept; what was prepared of it is there. */
static msp_status
fill_twin(msp_publish *p, msp_str text, msp_error *err)
{
    msp_status st = catch_up(p, err);
    const uint64_t end = p->twin_len + text.len + p->tail.len;
    const msp_str rest = not_prepared(p, text);

    if (st == MSP_OK)
        st = write_twin(p, p->twin_len + p->prepared, rest, p->tail, err);
    if (st != MSP_OK || p->twin_end == end)
        return st;
    if (ftruncate(p->twin_fd, (off_t)end) != 0) /* a longer preview */
        return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot write", p->twin);
    p->twin_end = end;
    return MSP_OK;
}

/*
 * Put text into the twin, and the twin in the file's place, or make the file of it; MSP_E_UNSUPPORTED, and nothing is
 * done: not here.
 */
static msp_status
show_text(msp_publish *p, msp_str text, msp_error *err)
{
    msp_status st = fill_twin(p, text, err);
    const uint64_t end = p->end;
    const int fd = p->fd;

    if (st != MSP_OK) {
        drop_twin(p);
        return st;
    }
    if ((fd < 0 ? rename(p->twin, p->path)
                : syscall(SYS_renameat2, AT_FDCWD, p->twin, AT_FDCWD, p->path, RENAME_EXCHANGE)) != 0) {
        if (fd < 0 || (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP))
            return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot put in place", p->path);
        p->no_exchange = true;
        drop_twin(p);
        return MSP_E_UNSUPPORTED;
    }
    p->fd = p->twin_fd;
    p->end = p->twin_end;
    p->twin_fd = fd;
    p->twin_end = end;
    p->was_shown = fd >= 0;
    p->prepared = 0;
    return MSP_OK;
}

void
msp_publish_prepare(msp_publish *p, msp_str text)
{
    const msp_str rest = not_prepared(p, text);

    if (p->no_exchange)
        return;
    if (catch_up(p, NULL) == MSP_OK && write_twin(p, p->twin_len + p->prepared, rest, NOTHING, NULL) == MSP_OK)
        p->prepared = text.len;
    else
        drop_twin(p); /* the append will tell why */
}

msp_status
msp_publish_append(msp_publish *p, msp_str text, msp_error *err)
{
    msp_status st = MSP_E_UNSUPPORTED;

    if (text.len == 0 && p->fd >= 0)
        return MSP_OK;
    if (!p->no_exchange)
        st = show_text(p, text, err);
    if (st == MSP_E_UNSUPPORTED)
        return append_in_place(p, text, err);
    if (st != MSP_OK)
        return st;
    p->len += text.len;
    p->any |= text.len > 0;
    return MSP_OK;
}

msp_status
msp_publish_preview(msp_publish *p, msp_str text, msp_error *err)
{
    msp_buf marked = {0};
    msp_status st;

    if (p->no_exchange || (text.len == 0 && p->fd >= 0))
        return MSP_OK;
    p->prepared = 0; /* this text is another */
    msp_buf_char(&marked, PREVIEW_MARK);
    msp_buf_str(&marked, text);
    st = msp_buf_status(&marked, err);
    if (st == MSP_OK)
        st = show_text(p, msp_buf_view(&marked), err);
    msp_buf_release(&marked);
    return st == MSP_E_UNSUPPORTED ? MSP_OK : st;
}

void
msp_publish_close(msp_publish *p)
{
    drop_twin(p);
    if (p->fd >= 0)
        close(p->fd);
    msp_free(p->path);
    *p = MSP_PUBLISH_NONE;
}
