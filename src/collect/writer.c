/*
 * writer.c - see writer.h.
 *
 * Text is made while the program goes on: who waits at the end of a step waits for little more than its files. While
 * records come the writer looks for them each millisecond; the longer none come, the more seldom.
 *
 * Nothing leaves the ring before its text is published. Text is published when somebody waits for it, when a quarter of
 * a second has passed, when 4 MiB wait, or when the ring is half full: often enough that a record is never older than a
 * second outside the files, and rarely enough that small records do not cost a rename each. The files of a new unit are
 * made sooner, but not at once: a step that is over by then is written in one go (publish.h).
 *
 * Two things hold that up: a place that is kept for a late record, for two seconds at most, and a record whose
 * statistics are still on a device, for as long as the producer lives. Meanwhile the files show what is held up as a
 * preview (publish.h), which the next publishing replaces.
 */
#include "collect/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "collect/unit.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/path.h"
#include "core/vec.h"

enum {
    PUBLISH_MS = 250,
    FIRST_MS = 50, /* after a unit was opened */
    HOLE_MS = 2000,
    BUSY_MS = 1,      /* between two looks into the ring */
    QUIET_LOOKS = 64, /* that find nothing, before the time between them grows */
    IDLE_MS = 50,
    LIFE_CHECK_MS = 200,
    PENDING_MAX = 4 << 20,
    SIDE_MAX = 1 << 30,
    STACKS_MAX = 16 << 20 /* bytes of their bodies: thousands of models' */
};

typedef struct writer {
    msp_ring *ring;
    uint64_t read;   /* the ring's position behind the newest frame that was taken in */
    bool held_up;    /* the frame at read waits for its statistics */
    uint64_t shown;  /* the ring's head at the last preview; 0: the files show none */
    uint32_t ticket; /* of the newest flush that was taken in and not yet answered; 0: none */

    msp_unit **units; /* by their numbers; NULL: closed */
    size_t nunits, units_cap;
    size_t pending;            /* how many bytes of text wait in them */
    bool unpublished;          /* something was taken in since the last publishing */
    struct timespec published; /* when that was, or a preview */
    struct timespec opened;    /* when the first of the units without files was opened */

    unit_stack *stacks; /* by their ids, which count from 1 */
    size_t nstacks, stacks_cap;
    msp_arena side;   /* bodies of the stacks, as far as they are not forgotten */
    size_t side_size; /* how many bytes these have */
    uint64_t side_at; /* how much of the side file is read */

    int pause;       /* milliseconds until the next look into the ring */
    int quiet;       /* how many looks have found nothing, one after the other */
    int64_t records; /* how many were taken in */
    int64_t damaged; /* how many were left out */
} writer;

static int64_t
ms_since(const struct timespec *then)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - then->tv_sec) * 1000 + (now.tv_nsec - then->tv_nsec) / 1000000;
}

/* The unit with this number while it is open, or NULL. */
static msp_unit *
unit_of(const writer *w, size_t number)
{
    return number < w->nunits ? w->units[number] : NULL;
}

static void
forget_unit(writer *w, size_t number)
{
    if (w->units[number] != NULL)
        msp_unit_close(w->units[number]);
    msp_free(w->units[number]);
    w->units[number] = NULL;
}

static void
close_unit(writer *w, size_t number)
{
    _Atomic uint32_t *over = &w->ring->shared->over;

    forget_unit(w, number);
    while (*over < w->nunits && w->units[*over] == NULL)
        atomic_fetch_add(over, 1u);
}

static bool
has_json(const msp_unit *u)
{
    return u != NULL && u->lines.fd < 0;
}

static bool
is_same_file(const msp_unit *a, const msp_unit *b)
{
    return has_json(a) && has_json(b) && strcmp(a->data.path, b->data.path) == 0;
}

/* A file that comes again is begun anew: who had it is done with it, or would take away the new one. */
static void
close_others(writer *w, size_t number)
{
    const msp_unit *last = w->units[number];

    for (size_t i = w->ring->shared->over; i < number; i++)
        if (is_same_file(w->units[i], last))
            close_unit(w, i);
}

static msp_status
add_unit(writer *w, const frame_header *h, msp_error *err)
{
    const ring_shared *s = w->ring->shared;
    const size_t number = w->nunits; /* units are numbered from 0 in the order of the side file */
    msp_unit *u;
    msp_status st;

    if (!msp_vec_grow((void **)&w->units, &w->units_cap, number + 1, sizeof(*w->units)))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    w->units[w->nunits++] = NULL;
    if (number < atomic_load(&s->over))
        return MSP_OK;
    u = msp_alloc(1, sizeof(*u));
    if (u == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (number == atomic_load(&s->made))
        clock_gettime(CLOCK_MONOTONIC, &w->opened);
    w->unpublished = true;
    st = msp_unit_open(u, h, w->ring, number < atomic_load(&s->made), err);
    if (st != MSP_OK) {
        msp_free(u);
        return st;
    }
    w->units[number] = u;
    close_others(w, number);
    return MSP_OK;
}

static msp_status
add_stack(writer *w, const frame_header *h, msp_error *err)
{
    size_t size = h->size - sizeof(*h);
    char *body = msp_arena_text(&w->side, (const char *)(h + 1), size);

    if (body == NULL || !msp_vec_grow((void **)&w->stacks, &w->stacks_cap, w->nstacks + 1, sizeof(*w->stacks)))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    w->stacks[w->nstacks++] = (unit_stack){(const unsigned char *)body, size, w->side_at - size};
    w->side_size += size;
    return MSP_OK;
}

/* A program that makes code while it runs has any number of stacks. Once nothing waits that belongs to them, their
 * bodies are left to the side file. */
static void
forget_stacks(writer *w)
{
    if (w->side_size <= STACKS_MAX)
        return;
    msp_arena_release(&w->side);
    w->side_size = 0;
    for (size_t i = 0; i < w->nstacks; i++)
        w->stacks[i].body = NULL;
}

/* The body of a stack that was forgotten, which a frame asks for; when it cannot be had, the stack has no frames. */
static void
remember_stack(writer *w, const frame_header *h)
{
    unit_stack *s = h->arg > 0 && h->arg <= w->nstacks ? &w->stacks[h->arg - 1] : NULL;
    char *body;

    if (s == NULL || s->body != NULL)
        return;
    body = msp_arena_alloc(&w->side, s->size, 1);
    if (body != NULL && pread(w->ring->side_fd, body, s->size, (off_t)s->at) == (ssize_t)s->size) {
        s->body = (const unsigned char *)body;
        w->side_size += s->size;
    }
}

/* Read one frame of the side file; *more is false at its end, or before a frame that is still being written. */
static msp_status
read_side_frame(writer *w, bool *more, msp_error *err)
{
    frame_header head, *h;
    struct stat sb;
    msp_status st;
    int fd = w->ring->side_fd;

    *more = false;
    if (pread(fd, &head, sizeof(head), (off_t)w->side_at) != (ssize_t)sizeof(head))
        return MSP_OK;
    if (head.size < sizeof(head) || head.size > SIDE_MAX)
        return msp_error_set(err, MSP_E_FORMAT, "%s: damaged at byte %llu", w->ring->side_path,
                             (unsigned long long)w->side_at);
    if (fstat(fd, &sb) != 0 || (uint64_t)sb.st_size < w->side_at + head.size)
        return MSP_OK;
    h = msp_alloc(head.size, 1);
    if (h == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (pread(fd, h, head.size, (off_t)w->side_at) != (ssize_t)head.size) {
        msp_free(h);
        return MSP_OK;
    }
    w->side_at += head.size;
    *more = true;
    st = h->kind == FRAME_UNIT ? add_unit(w, h, err) : h->kind == FRAME_STACK ? add_stack(w, h, err) : MSP_OK;
    msp_free(h);
    return st;
}

static msp_status
read_side(writer *w, msp_error *err)
{
    msp_status st;
    bool more;

    do
        st = read_side_frame(w, &more, err);
    while (st == MSP_OK && more);
    return st;
}

static msp_status
publish_units(writer *w, msp_error *err)
{
    ring_shared *s = w->ring->shared;
    msp_status st = MSP_OK;

    for (size_t i = s->over; i < w->nunits && st == MSP_OK; i++)
        if (w->units[i] != NULL)
            st = msp_unit_publish(w->units[i], w->stacks, w->nstacks, err);
    if (st != MSP_OK)
        return st;
    atomic_store(&s->made, (uint32_t)w->nunits); /* before tail: who comes after us must not make them anew then */
    atomic_store_explicit(&s->tail, w->read, memory_order_release);
    if (w->ticket != 0)
        atomic_store(&s->flushed, w->ticket);
    msp_ring_wake(&s->for_producer);
    w->ticket = 0;
    w->pending = 0;
    w->unpublished = false;
    w->shown = 0; /* the preview is gone */
    forget_stacks(w);
    clock_gettime(CLOCK_MONOTONIC, &w->published);
    return MSP_OK;
}

/* The frame that h says is in a file, to be given back with msp_free(), NULL: it is damaged; path is the file's. */
static msp_status
read_spilled(frame_header **out, char *path, size_t path_size, const msp_ring *ring, const frame_header *h,
             msp_error *err)
{
    frame_header *frame;
    msp_status st;
    size_t size;
    char *text;

    *out = NULL;
    st = msp_ring_spill_path(ring, path, path_size, h->arg, err);
    if (st == MSP_OK)
        st = msp_file_read(&text, &size, path, UINT32_MAX, err);
    if (st != MSP_OK)
        return st;
    frame = (frame_header *)text;
    if (size < sizeof(*frame) || frame->size != size || frame->kind == FRAME_SPILL)
        msp_free(text);
    else
        *out = frame;
    return MSP_OK;
}

static msp_status take_in(writer *w, const frame_header *h, msp_error *err);

static msp_status
take_in_spilled(writer *w, const frame_header *h, msp_error *err)
{
    char path[4096];
    frame_header *frame;
    msp_status st = read_spilled(&frame, path, sizeof(path), w->ring, h, err);

    if (st != MSP_OK)
        return st;
    if (frame == NULL)
        w->damaged++;
    else
        st = take_in(w, frame, err);
    msp_free(frame);
    if (st == MSP_OK)
        st = publish_units(w, err);
    if (st == MSP_OK)
        unlink(path); /* not before its text is safe */
    return st;
}

static bool
is_value(const frame_header *h)
{
    return h->kind == FRAME_VALUE || h->kind == FRAME_CALL;
}

static msp_status
take_in(writer *w, const frame_header *h, msp_error *err)
{
    msp_status st = MSP_OK;
    msp_unit *u;
    size_t before;

    if (h->kind == FRAME_FLUSH) {
        w->ticket = h->arg;
        return MSP_OK;
    }
    if (h->kind == FRAME_SPILL)
        return take_in_spilled(w, h, err);
    if (h->unit >= w->nunits || ((is_value(h) || h->kind == FRAME_SITE) && h->arg > w->nstacks))
        st = read_side(w, err);
    if (st != MSP_OK)
        return st;
    u = unit_of(w, h->unit);
    if (u == NULL) {
        w->damaged += h->kind != FRAME_CLOSE; /* which an earlier writer may have obeyed, and died */
        return MSP_OK;
    }
    w->records += is_value(h);
    if (h->kind == FRAME_CLOSE) {
        if (!msp_unit_is_published(u)) /* mostly it is, and the next unit, which waits for its files, is left alone */
            st = publish_units(w, err);
        if (st == MSP_OK)
            close_unit(w, h->unit);
        return st;
    }
    remember_stack(w, h);
    before = msp_unit_pending(u);
    st = msp_unit_add(u, h, w->stacks, w->nstacks, &w->damaged, err);
    w->pending += msp_unit_pending(u) - before;
    return st;
}

/* A record that belongs before others may still come. */
static bool
has_open_hole(const writer *w)
{
    for (size_t i = w->ring->shared->over; i < w->nunits; i++) {
        const msp_unit *u = w->units[i];

        if (u != NULL && u->nholes > 0 && (u->debug || ms_since(&u->hole_since) < HOLE_MS))
            return true;
    }
    return false;
}

/* The next frame, NULL: there is none, or it waits for its statistics and we are not told to take it all the same. */
static const frame_header *
next_frame(writer *w, bool all, bool *bad)
{
    uint64_t at = w->read;
    const frame_header *h = msp_ring_next(w->ring, &at, bad);

    w->held_up = h != NULL && !all && msp_frame_waits(h);
    if (w->held_up)
        return NULL;
    w->read = at;
    return h;
}

/* Take in what is there, publishing on the way when it is much. */
static msp_status
read_ring(writer *w, bool all, msp_error *err)
{
    const uint64_t half = w->ring->capacity / 2;
    const frame_header *h;
    msp_status st = MSP_OK;
    bool bad = false;

    while (st == MSP_OK && (h = next_frame(w, all, &bad)) != NULL) {
        st = take_in(w, h, err);
        w->unpublished = true;
        if (st == MSP_OK &&
            (w->ticket != 0 || w->pending > PENDING_MAX || w->read - atomic_load(&w->ring->shared->tail) > half))
            st = publish_units(w, err);
    }
    if (st == MSP_OK && bad)
        return msp_error_set(err, MSP_E_FORMAT, "%s: damaged at position %llu", w->ring->path,
                             (unsigned long long)w->read);
    return st;
}

/* A frame that is held up, for a preview: those that only do something are for later. */
static msp_status
peek_frame(writer *w, msp_unit *more, size_t first, const frame_header *h, msp_error *err)
{
    frame_header *spilled = NULL;
    msp_status st = MSP_OK;
    int64_t damaged = 0;
    char path[4096];

    if (h->kind == FRAME_SPILL) {
        st = read_spilled(&spilled, path, sizeof(path), w->ring, h, err);
        h = spilled;
    }
    if (st == MSP_OK && h != NULL && h->unit >= first && unit_of(w, h->unit) != NULL &&
        (is_value(h) || h->kind == FRAME_SITE || h->kind == FRAME_HOLE)) {
        remember_stack(w, h);
        st = msp_unit_add(&more[h->unit - first], h, w->stacks, w->nstacks, &damaged, err);
    }
    msp_free(spilled);
    return st;
}

/* Show everything that is held up, as it is now. */
static msp_status
preview_units(writer *w, msp_error *err)
{
    const size_t first = atomic_load(&w->ring->shared->over), n = w->nunits > first ? w->nunits - first : 0;
    uint64_t at = w->read;
    msp_unit *more = msp_alloc(n, sizeof(*more)), *u;
    const frame_header *h;
    msp_status st = MSP_OK;
    bool bad = false;

    if (more == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        more[i] = msp_unit_without_files(w->units[first + i] != NULL && w->units[first + i]->debug);
    w->shown = atomic_load(&w->ring->shared->head);
    while (st == MSP_OK && (h = msp_ring_next(w->ring, &at, &bad)) != NULL)
        st = peek_frame(w, more, first, h, err);
    for (size_t i = 0; i < n; i++) {
        u = w->units[first + i];
        if (st == MSP_OK && u != NULL)
            st = msp_unit_preview(u, &more[i], w->stacks, w->nstacks, err);
        msp_unit_close(&more[i]);
    }
    msp_free(more);
    clock_gettime(CLOCK_MONOTONIC, &w->published);
    return st;
}

static bool
is_due(const writer *w)
{
    const bool none_shown = w->shown == 0 && atomic_load(&w->ring->shared->made) < w->nunits;

    return ms_since(&w->published) >= PUBLISH_MS || (none_shown && ms_since(&w->opened) >= FIRST_MS);
}

/* Bring the files up to date, as far as that is due. */
static msp_status
show_files(writer *w, bool last, msp_error *err)
{
    bool hole = !last && has_open_hole(w), due = last || is_due(w);
    msp_status st = MSP_OK;

    if (w->unpublished && due && !hole)
        st = publish_units(w, err);
    if (st == MSP_OK && (w->held_up || hole) && due && w->shown != atomic_load(&w->ring->shared->head))
        st = preview_units(w, err);
    return st;
}

/* Sleep until the next look; before: what the last one had read of ring and side file. */
static void
sleep_until_look(writer *w, uint64_t before, uint32_t seen)
{
    ring_shared *s = w->ring->shared;

    w->quiet = w->read + w->side_at != before ? 0 : w->quiet + 1;
    if (w->quiet <= QUIET_LOOKS)
        w->pause = BUSY_MS;
    else
        w->pause = w->pause < IDLE_MS / 2 ? 2 * w->pause : IDLE_MS;
    atomic_store_explicit(&s->dozes, w->pause > BUSY_MS, memory_order_relaxed);
    msp_ring_wait(&s->for_writer, seen, w->pause);
}

static msp_status
serve_ring(writer *w, msp_error *err)
{
    ring_shared *s = w->ring->shared;
    int64_t since_check = 0;
    msp_status st = MSP_OK;

    while (st == MSP_OK) {
        uint32_t seen = atomic_load(&s->for_writer);
        uint64_t before = w->read + w->side_at;
        bool last = atomic_load(&s->closing) != 0;

        atomic_fetch_add_explicit(&s->beats, 1u, memory_order_relaxed);
        if (atomic_load_explicit(&w->ring->lost, memory_order_relaxed))
            return msp_ring_lost_error(w->ring, err);
        if (!last && since_check >= LIFE_CHECK_MS) {
            last = !msp_ring_producer_lives(w->ring);
            since_check = 0;
        }
        st = read_side(w, err);
        if (st == MSP_OK)
            st = read_ring(w, last, err); /* after last was read: nothing can come behind it */
        if (st == MSP_OK)
            st = show_files(w, last, err);
        if (st != MSP_OK || last)
            break;
        for (size_t i = s->over; i < w->nunits; i++)
            if (w->units[i] != NULL)
                msp_unit_prepare(w->units[i]);
        sleep_until_look(w, before, seen);
        since_check += w->pause;
    }
    return st;
}

msp_status
msp_writer_serve(msp_ring *r, int64_t *records, msp_error *err)
{
    writer w = {.ring = r, .read = atomic_load(&r->shared->tail)};
    msp_error local = {0};
    msp_status st;

    clock_gettime(CLOCK_MONOTONIC, &w.published);
    st = serve_ring(&w, &local);
    if (st != MSP_OK) {
        snprintf(r->shared->error, sizeof(r->shared->error), "%s", local.message);
        atomic_store(&r->shared->failed, 1);
        if (err != NULL)
            *err = local;
    } else {
        atomic_store(&r->shared->done, 1);
    }
    msp_ring_wake(&r->shared->for_producer);
    if (w.damaged > 0)
        msp_warning("%s: %lld damaged records were left out", r->path, (long long)w.damaged);
    if (records != NULL)
        *records = w.records;
    for (size_t i = 0; i < w.nunits; i++)
        forget_unit(&w, i);
    msp_free(w.units);
    msp_free(w.stacks);
    msp_arena_release(&w.side);
    return st;
}

/* The program's own descriptors, and whatever leaked into it, are not ours to keep open. */
static void
close_inherited(void)
{
    if (close_range(3, ~0U, 0) == 0)
        return;
    for (int fd = 3; fd < 65536; fd++)
        close(fd);
}

msp_status
msp_collect_write(const char *ring_path, msp_error *err)
{
    msp_ring ring;
    msp_status st;

    close_inherited();
    st = msp_ring_open(&ring, ring_path, err);
    if (st != MSP_OK)
        return st;
    atomic_store(&ring.shared->writer_start, msp_process_start(getpid()));
    atomic_store(&ring.shared->writer_pid, getpid());
    st = msp_writer_serve(&ring, NULL, err);
    msp_ring_close(&ring, st == MSP_OK); /* after a failure the ring keeps what could not be written */
    return st;
}

static bool
nobody_serves(const msp_ring *r)
{
    return !msp_ring_writer_lives(r) && !msp_ring_producer_lives(r);
}

static msp_status
recover_ring(const char *path, int64_t *recovered, msp_error *err)
{
    msp_ring ring;
    int64_t n = 0;
    msp_status st = msp_ring_open(&ring, path, err);

    if (st != MSP_OK)
        return st;
    if (!nobody_serves(&ring)) {
        msp_ring_close(&ring, false);
        return MSP_OK;
    }
    ring.foreign = true;
    atomic_store(&ring.shared->failed, 0);
    atomic_store(&ring.shared->closing, 1);
    st = msp_writer_serve(&ring, &n, err);
    *recovered += n;
    msp_ring_close(&ring, st == MSP_OK);
    return st;
}

static msp_status
recover_dir(const char *dir, int64_t *recovered, msp_error *err)
{
    msp_dir_list list;
    msp_status st = MSP_OK;
    msp_error why;

    if (msp_dir_list_read(&list, dir, NULL) != MSP_OK)
        return MSP_OK; /* not ours to look into: then there is no ring of ours either */
    for (size_t i = 0; i < list.count && st == MSP_OK; i++) {
        msp_str name = msp_str_of(list.names[i]);
        char *path;

        if (!msp_str_starts(name, MSP_STR(".msprobe-")) || !msp_str_ends(name, MSP_STR(".ring")))
            continue;
        path = msp_path_join(dir, list.names[i]);
        if (path == NULL)
            st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
        else
            st = recover_ring(path, recovered, &why);
        msp_free(path);
        if (st != MSP_OK && st != MSP_E_NOMEM) {
            msp_warning("%s; the dump lacks what that ring still holds", why.message);
            st = MSP_OK;
        }
    }
    msp_dir_list_release(&list);
    return st;
}

msp_status
msp_collect_recover(const char *path, int64_t *recovered, msp_error *err)
{
    char at[PATH_MAX];
    msp_status st = MSP_OK;

    *recovered = 0;
    if (realpath(path, at) == NULL)
        return MSP_OK;
    /* <dump>/step0/rank0/dump.json: the ring is three folders above at most */
    for (int i = 0; i < 4 && st == MSP_OK && at[1] != '\0'; i++) {
        st = recover_dir(at, recovered, err);
        at[msp_path_dir(at).len] = '\0';
    }
    if (*recovered > 0)
        msp_info("%s: %lld records were taken from what a killed process left", path, (long long)*recovered);
    return st;
}
