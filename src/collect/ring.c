/* ring.c - see ring.h. */
#include "collect/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "core/alloc.h"

static const char MAGIC[8] = "MSPRING2";

_Static_assert(sizeof(ring_shared) <= RING_HEADER, "the shared part must fit its page");

static msp_status
set_paths(msp_ring *r, const char *path, msp_error *err)
{
    size_t len = strlen(path);
    char *text = msp_alloc(2 * len + 16, 1);

    if (text == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", path);
    memcpy(text, path, len + 1);
    r->path = text;
    r->side_path = text + len + 1;
    snprintf(r->side_path, len + 8, "%.*s.side", (int)(len - strlen(".ring")), path);
    return MSP_OK;
}

/* /proc/<pid>/stat from the parenthesis behind the name on, which may hold anything; NULL: it cannot be read. */
static char *
read_stat(char *text, size_t size, int64_t pid)
{
    char path[64];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    n = read(fd, text, size - 1);
    close(fd);
    if (n <= 0)
        return NULL;
    text[n] = '\0';
    return strrchr(text, ')');
}

bool
msp_process_is_stopped(int64_t pid)
{
    char text[1024];
    const char *p = read_stat(text, sizeof(text), pid);

    return p != NULL && p[1] != '\0' && (p[2] == 'T' || p[2] == 't');
}

uint64_t
msp_process_start(int64_t pid)
{
    char text[1024], *p = read_stat(text, sizeof(text), pid);
    unsigned long long start = 0;

    if (p == NULL || p[1] == '\0' || p[2] == 'Z' || p[2] == 'X')
        return 0; /* a zombie does nothing any more */
    for (int field = 2; field < 22 && p != NULL; field++)
        p = strchr(p + 1, ' ');
    if (p != NULL)
        start = strtoull(p, NULL, 10);
    return start;
}

/* A program without a free descriptor cannot ask when the process was started: there is one of that number, which then
 * has to do. Two writers of one ring would be worse than none. */
static bool
process_lives(int64_t pid, uint64_t start)
{
    uint64_t now;

    if (pid <= 0 || (kill((pid_t)pid, 0) != 0 && errno == ESRCH))
        return false;
    errno = 0;
    now = msp_process_start(pid);
    if (now == 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        return true;
    return start == 0 ? now != 0 : now == start;
}

bool
msp_ring_producer_lives(const msp_ring *r)
{
    return process_lives(r->shared->producer_pid, r->shared->producer_start);
}

bool
msp_ring_writer_lives(const msp_ring *r)
{
    return process_lives(atomic_load(&r->shared->writer_pid), atomic_load(&r->shared->writer_start));
}

static msp_status
map_ring(msp_ring *r, int fd, size_t size, msp_error *err)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED)
        return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot map %zu bytes", r->path, size);
    r->shared = p;
    r->data = (unsigned char *)p + RING_HEADER;
    r->mapped = size;
    r->capacity = size - RING_HEADER;
    r->watch = msp_watch_begin(p, size, MSP_WATCH_RING, &r->lost);
    if (r->watch == NULL) {
        munmap(p, size);
        r->shared = NULL;
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", r->path);
    }
    return MSP_OK;
}

bool
msp_ring_is_lost(msp_ring *r)
{
    struct stat sb;

    if (!atomic_load(&r->lost) && stat(r->path, &sb) == 0 && (uint64_t)sb.st_size < r->mapped)
        atomic_store(&r->lost, true);
    return atomic_load(&r->lost);
}

msp_status
msp_ring_lost_error(const msp_ring *r, msp_error *err)
{
    return msp_error_set(err, MSP_E_IO,
                         "%s: the file was truncated, or its disk failed, while it was in use; recording stops",
                         r->path);
}

msp_status
msp_ring_failed_error(const msp_ring *r, msp_error *err)
{
    return msp_error_set(err, MSP_E_IO, "%s", r->shared->error);
}

static void
init_shared(ring_shared *s, uint64_t capacity)
{
    s->capacity = capacity;
    s->producer_pid = getpid();
    s->producer_start = msp_process_start(getpid());
    memcpy(s->magic, MAGIC, sizeof(MAGIC)); /* last: who sees it finds the rest */
}

msp_status
msp_ring_create(msp_ring *out, const char *dir, size_t capacity, msp_error *err)
{
    static _Atomic unsigned serial;
    size_t cap = 1 << 16;
    msp_status st;
    char path[4096];
    int fd, e;

    *out = (msp_ring){.side_fd = -1};
    while (cap < capacity && cap < ((size_t)1 << 40))
        cap *= 2;
    if ((size_t)snprintf(path, sizeof(path), "%s/.msprobe-%ld-%u.ring", dir, (long)getpid(),
                         atomic_fetch_add(&serial, 1u)) >= sizeof(path))
        return msp_error_set(err, MSP_E_INVALID, "%s: path too long", dir);
    st = set_paths(out, path, err);
    if (st != MSP_OK)
        return st;
    unlink(path); /* of an earlier process with our number, or a link that somebody planted */
    unlink(out->side_path);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0) {
        st = msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot create", path);
    } else if ((e = msp_file_allocate(fd, RING_HEADER + cap)) != 0) {
        st = msp_error_set_errno(err, MSP_E_IO, e, "%s: cannot reserve %zu MiB", path, cap >> 20);
    } else {
        st = map_ring(out, fd, RING_HEADER + cap, err);
    }
    if (fd >= 0)
        close(fd);
    if (st == MSP_OK) {
        out->side_fd = open(out->side_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_APPEND | O_NOFOLLOW, 0640);
        if (out->side_fd < 0)
            st = msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot create", out->side_path);
        else
            init_shared(out->shared, cap);
    }
    if (st != MSP_OK)
        msp_ring_close(out, true);
    return st;
}

msp_status
msp_ring_open(msp_ring *out, const char *path, msp_error *err)
{
    struct stat sb;
    msp_status st;
    uint64_t cap, head, tail;
    int fd;

    *out = (msp_ring){.side_fd = -1};
    if (!msp_str_ends(msp_str_of(path), MSP_STR(".ring")))
        return msp_error_set(err, MSP_E_INVALID, "%s: not the name of a ring", path);
    st = set_paths(out, path, err);
    if (st != MSP_OK)
        return st;
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &sb) != 0)
        st = msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot open", path);
    else if (!S_ISREG(sb.st_mode) || sb.st_size <= RING_HEADER)
        st = msp_error_set(err, MSP_E_FORMAT, "%s: not a ring", path);
    else
        st = map_ring(out, fd, (size_t)sb.st_size, err);
    if (fd >= 0)
        close(fd);
    if (st == MSP_OK) {
        cap = out->shared->capacity;
        head = atomic_load(&out->shared->head);
        tail = atomic_load(&out->shared->tail);
        if (memcmp(out->shared->magic, MAGIC, sizeof(MAGIC)) != 0 || cap != (uint64_t)sb.st_size - RING_HEADER ||
            (cap & (cap - 1)) != 0 || head - tail > cap || head % 8 != 0 || tail % 8 != 0)
            st = msp_error_set(err, MSP_E_FORMAT, "%s: not a ring", path);
    }
    if (st == MSP_OK) {
        out->side_fd = open(out->side_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (out->side_fd < 0)
            st = msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot open", out->side_path);
    }
    if (st != MSP_OK)
        msp_ring_close(out, false);
    return st;
}

void
msp_ring_close(msp_ring *r, bool remove)
{
    if (r->shared != NULL) {
        msp_watch_end(r->watch);
        munmap(r->shared, r->mapped);
    }
    if (r->path != NULL && r->side_fd >= 0)
        close(r->side_fd);
    if (r->path != NULL && remove) {
        unlink(r->path);
        unlink(r->side_path);
    }
    msp_free(r->path);
    *r = (msp_ring){.side_fd = -1};
}

static size_t
padded_size(size_t size)
{
    return (size + 7) & ~(size_t)7;
}

/*
 * The pages of a mapped file that were not written to lately cost a fault each. So an empty ring is used from its
 * beginning again once this much of it was: what is in flight decides how much memory is touched, not the capacity.
 */
enum { RING_WARM = 1 << 20 };

frame_header *
msp_ring_put(msp_ring *r, const void *frame, size_t size)
{
    ring_shared *s = r->shared;
    uint64_t head = atomic_load_explicit(&s->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&s->tail, memory_order_acquire);
    size_t at = (size_t)(head & (r->capacity - 1)), to_end = r->capacity - at, need = padded_size(size);
    bool restart = head == tail && at >= RING_WARM && at >= need;
    size_t skip = need > to_end || restart ? to_end : 0;

    if (head - tail > r->capacity || need + skip > r->capacity - (head - tail))
        return NULL;
    if (skip >= sizeof(frame_header))
        memset(r->data + at, 0, sizeof(frame_header)); /* FRAME_SKIP; a shorter rest needs no mark */
    at = skip > 0 ? 0 : at;
    memcpy(r->data + at, frame, size);
    atomic_store_explicit(&s->head, head + skip + need, memory_order_release);
    return (frame_header *)(r->data + at);
}

const frame_header *
msp_ring_next(const msp_ring *r, uint64_t *position, bool *bad)
{
    const ring_shared *s = r->shared;
    uint64_t head = atomic_load_explicit(&s->head, memory_order_acquire);

    while (*position != head) {
        size_t at = (size_t)(*position & (r->capacity - 1)), to_end = r->capacity - at;
        const frame_header *h = (const frame_header *)(r->data + at);

        if (to_end < sizeof(*h) || (h->kind == FRAME_SKIP && h->size == 0)) {
            *position += to_end;
            if (head - *position > r->capacity)
                break;
            continue;
        }
        if (h->size < sizeof(*h) || padded_size(h->size) > to_end || padded_size(h->size) > head - *position)
            break;
        *position += padded_size(h->size);
        return h;
    }
    *bad = *position != head;
    return NULL;
}

msp_status
msp_ring_spill_path(const msp_ring *r, char *out, size_t size, unsigned number, msp_error *err)
{
    if ((size_t)snprintf(out, size, "%s.%u.spill", r->path, number) < size)
        return MSP_OK;
    return msp_error_set(err, MSP_E_INVALID, "%s: path too long", r->path);
}

msp_status
msp_ring_side_put(msp_ring *r, const void *frame, size_t size, msp_error *err)
{
    int e = msp_file_put(r->side_fd, &(struct iovec){(void *)frame, size}, 1, -1);

    return e == 0 ? MSP_OK : msp_error_set_errno(err, MSP_E_IO, e, "%s: cannot write", r->side_path);
}

void
msp_ring_wake(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1u);
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void
msp_ring_nudge(msp_ring *r)
{
    if (atomic_load_explicit(&r->shared->dozes, memory_order_relaxed) != 0)
        msp_ring_wake(&r->shared->for_writer);
}

void
msp_ring_wait(_Atomic uint32_t *word, uint32_t seen, int ms)
{
    struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};

    syscall(SYS_futex, word, FUTEX_WAIT, seen, &ts, NULL, 0);
}
