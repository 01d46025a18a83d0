/* publish.c - see publish.h. */
#include "collect/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE (1 << 1)
#endif

enum { PREVIEW_MARK = '\t' };

static msp_status
set_paths(msp_publish *p, const char *path, msp_error *err)
{
    msp_str dir = msp_path_dir(path), base = msp_path_base(path);
    size_t len = strlen(path);
    char *text = msp_alloc(2 * len + 32, 1);

    if (text == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", path);
    memcpy(text, path, len + 1);
    p->path = text;
    p->twin = text + len + 1;
    snprintf(p->twin, len + 31, "%.*s/.%.*s.twin", (int)dir.len, dir.p, (int)base.len, base.p);
    return MSP_OK;
}

static msp_status
write_at(int fd, const char *path, uint64_t at, msp_str a, msp_str b, msp_error *err)
{
    struct iovec parts[2] = {{(void *)a.p, a.len}, {(void *)b.p, b.len}};
    struct iovec *v = parts;
    int n = 2;

    while (n > 0) {
        ssize_t k = pwritev(fd, v, n, (off_t)at);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot write", path);
        at += (uint64_t)k;
        while (n > 0 && (size_t)k >= v->iov_len) {
            k -= (ssize_t)v->iov_len;
            v++;
            n--;
        }
        if (n > 0) {
            v->iov_base = (char *)v->iov_base + k;
            v->iov_len -= (size_t)k;
        }
    }
    return MSP_OK;
}

msp_status
msp_publish_create(msp_publish *out, const char *path, msp_str head, msp_str tail, msp_error *err)
{
    msp_file f = MSP_FILE_NONE;
    msp_status st;

    *out = MSP_PUBLISH_NONE;
    st = msp_file_create(&f, path, 0640, err);
    if (st == MSP_OK)
        st = msp_file_write(&f, head.p, head.len, err);
    if (st == MSP_OK)
        st = msp_file_write(&f, tail.p, tail.len, err);
    if (st != MSP_OK) {
        msp_file_abandon(&f);
        return st;
    }
    st = msp_file_commit(&f, err);
    return st == MSP_OK ? msp_publish_reopen(out, path, tail, err) : st;
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

    *out = MSP_PUBLISH_NONE;
    st = set_paths(out, path, err);
    if (st != MSP_OK)
        return st;
    out->tail = tail;
    out->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (out->fd < 0 || fstat(out->fd, &sb) != 0) {
        st = msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot open", path);
    } else if (tail.len > sizeof(end) || sb.st_size < (off_t)tail.len + 1 ||
               pread(out->fd, end, tail.len, sb.st_size - (off_t)tail.len) != (ssize_t)tail.len ||
               memcmp(end, tail.p, tail.len) != 0) {
        st = msp_error_set(err, MSP_E_FORMAT, "%s: does not end as a dump does", path);
    } else {
        st = find_preview(&out->len, out->fd, path, (uint64_t)sb.st_size - tail.len, err);
        if (st == MSP_OK && out->len > 0 && pread(out->fd, &last, 1, (off_t)out->len - 1) != 1)
            st = msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot read", path);
        out->any = last != '{';
    }
    if (st != MSP_OK)
        msp_publish_close(out);
    return st;
}

/* The twin, with everything that the published file has but its tail. */
static msp_status
catch_up(msp_publish *p, msp_error *err)
{
    char block[1 << 16];

    if (p->twin_fd < 0) {
        p->twin_fd = open(p->twin, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
        p->twin_len = 0;
        if (p->twin_fd < 0)
            return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot create", p->twin);
    }
    while (p->twin_len < p->len) {
        uint64_t left = p->len - p->twin_len;
        ssize_t n = pread(p->fd, block, left < sizeof(block) ? left : sizeof(block), (off_t)p->twin_len);
        msp_status st;

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return msp_error_set_errno(err, MSP_E_IO, n < 0 ? errno : EIO, "%s: cannot read", p->path);
        st = write_at(p->twin_fd, p->twin, p->twin_len, (msp_str){block, (size_t)n}, (msp_str){0}, err);
        if (st != MSP_OK)
            return st;
        p->twin_len += (uint64_t)n;
    }
    return MSP_OK;
}

static void
drop_twin(msp_publish *p)
{
    if (p->twin_fd >= 0)
        close(p->twin_fd);
    p->twin_fd = -1;
    if (p->path != NULL)
        unlink(p->twin);
}

static msp_status
append_in_place(msp_publish *p, msp_str text, msp_error *err)
{
    msp_status st = write_at(p->fd, p->path, p->len, text, p->tail, err);

    if (st != MSP_OK) {
        /* a full disk: take back what was written, so that the file ends as before */
        if (write_at(p->fd, p->path, p->len, p->tail, (msp_str){0}, NULL) == MSP_OK &&
            ftruncate(p->fd, (off_t)(p->len + p->tail.len)) != 0)
            return st;
        return st;
    }
    p->len += text.len;
    p->any = true;
    return MSP_OK;
}

/* Put text into the twin behind what is kept, and exchange the two; MSP_E_UNSUPPORTED, and nothing is done: not here.
 */
static msp_status
show(msp_publish *p, msp_str text, msp_error *err)
{
    msp_status st = catch_up(p, err);
    int fd;

    if (st == MSP_OK)
        st = write_at(p->twin_fd, p->twin, p->twin_len, text, p->tail, err);
    if (st == MSP_OK &&
        ftruncate(p->twin_fd, (off_t)(p->twin_len + text.len + p->tail.len)) != 0) /* a longer preview */
        st = msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot write", p->twin);
    if (st != MSP_OK) {
        drop_twin(p);
        return st;
    }
    if (syscall(SYS_renameat2, AT_FDCWD, p->path, AT_FDCWD, p->twin, RENAME_EXCHANGE) != 0) {
        if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
            return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot put in place", p->path);
        p->no_exchange = true;
        drop_twin(p);
        return MSP_E_UNSUPPORTED;
    }
    fd = p->twin_fd;
    p->twin_fd = p->fd;
    p->fd = fd;
    return MSP_OK;
}

msp_status
msp_publish_append(msp_publish *p, msp_str text, msp_error *err)
{
    msp_status st = MSP_E_UNSUPPORTED;

    if (text.len == 0)
        return MSP_OK;
    if (!p->no_exchange)
        st = show(p, text, err);
    if (st == MSP_E_UNSUPPORTED)
        return append_in_place(p, text, err);
    if (st != MSP_OK)
        return st;
    p->len += text.len;
    p->any = true;
    return MSP_OK;
}

msp_status
msp_publish_preview(msp_publish *p, msp_str text, msp_error *err)
{
    msp_buf marked = {0};
    msp_status st;

    if (text.len == 0 || p->no_exchange)
        return MSP_OK;
    msp_buf_char(&marked, PREVIEW_MARK);
    msp_buf_str(&marked, text);
    st = msp_buf_status(&marked, err);
    if (st == MSP_OK)
        st = show(p, msp_buf_view(&marked), err);
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
