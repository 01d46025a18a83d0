/*
 * collect.c - the producer's side: units, commits, and waiting for the writer (keeper.c).
 *
 * The hot path is msp_collect_commit(): one lock that nobody contends (the interpreter has a lock of its own), one copy
 * into the ring, no system call. The writer looks into the ring by itself; it is woken by a new unit, and by who waits
 * for it.
 */
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include "collect/keeper.h"
#include "collect/record.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/path.h"
#include "core/vec.h"

enum {
    RING_DEFAULT = 32 << 20,
    WAIT_MS = 10,      /* for the writer; it is woken again then */
    CHECK_MS = 100,    /* of waiting, between two looks whether it lives */
    LOOK_COMMITS = 64, /* between two looks at the clock */
    LOOK_MS = 250,     /* between two looks at the writer while nobody waits for it */
    HELD_UP_SHARE = 8  /* of the ring: the rest is for who records while statistics are fetched */
};

static const uint64_t NEVER = UINT64_MAX;

/* A frame in the ring that has no statistics yet: the writer does not go past it. */
typedef struct waiting_frame {
    frame_header *frame;
    uint64_t end; /* the position behind it */
} waiting_frame;

struct msp_collect {
    /* taken alone, or inside lock: a thread that waits for room in the ring holds that, and needs what this guards */
    pthread_mutex_t waiting_lock;
    waiting_frame *waiting; /* in the order of their places */
    size_t nwaiting, waiting_cap;

    pthread_mutex_t lock; /* guards everything below and the producer's end of the ring */
    msp_ring ring;
    msp_keeper keeper;
    unsigned generation; /* of the process that opened it: see forks */
    uint32_t units, stacks, tickets;
    uint64_t published; /* while the head stands there, everything is; or NEVER */
    uint64_t asked;     /* while it stands there, the newest ticket asks for everything */
    unsigned spills;
    unsigned commits;    /* since the clock was looked at for the writer's sake */
    struct timespec met; /* when the writer was last looked at */
    msp_record scratch;
};

/* How often this process was made by a fork: cheaper to ask than getpid(), which is a system call, for each record. */
static unsigned forks;

static void
count_fork(void)
{
    forks++;
}

static void
watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

static bool
is_owner(const msp_collect *c)
{
    return c->generation == forks;
}

msp_status
msp_collect_open(msp_collect **out, const msp_collect_options *opt, msp_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    msp_collect *c = msp_alloc_zero(1, sizeof(*c));
    msp_status st;

    *out = NULL;
    if (c == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    c->ring.side_fd = -1;
    c->asked = NEVER;
    c->keeper = (msp_keeper){.ring = &c->ring, .stall_max_ms = opt->stall_ms};
    pthread_once(&once, watch_forks);
    c->generation = forks;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->waiting_lock, NULL);
    st = msp_path_make_dirs(opt->dir, err);
    if (st == MSP_OK && opt->writer_path != NULL) {
        c->keeper.path = msp_path_join("", opt->writer_path);
        if (c->keeper.path == NULL)
            st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    if (st == MSP_OK)
        st = msp_ring_create(&c->ring, opt->dir, opt->ring_bytes > 0 ? opt->ring_bytes : RING_DEFAULT, err);
    if (st == MSP_OK)
        st = msp_keeper_start(&c->keeper, err);
    if (st != MSP_OK) {
        msp_ring_close(&c->ring, true);
        pthread_mutex_destroy(&c->lock);
        pthread_mutex_destroy(&c->waiting_lock);
        msp_free(c->keeper.path);
        msp_free(c);
        return st;
    }
    *out = c;
    return MSP_OK;
}

/*
 * Who waits calls back first, so that an interpreter can let go of its lock, and again when our own lock is free:
 * holding the one while waiting for the other would be a deadlock between two threads that record.
 */
typedef struct waiter {
    void (*call)(bool begin, void *payload);
    void *payload;
    bool waiting;
} waiter;

static void
begin_wait(waiter *w)
{
    if (w->call != NULL && !w->waiting)
        w->call(true, w->payload);
    w->waiting = true;
}

static void
enter_lock(msp_collect *c, waiter *w)
{
    if (pthread_mutex_trylock(&c->lock) == 0)
        return;
    begin_wait(w);
    pthread_mutex_lock(&c->lock);
}

static void
leave_lock(msp_collect *c, waiter *w)
{
    pthread_mutex_unlock(&c->lock);
    if (w->call != NULL && w->waiting)
        w->call(false, w->payload);
    w->waiting = false;
}

typedef bool condition(msp_collect *c, const void *arg);

/* Wait, inside the lock, until cond holds; the writer is woken and its health looked at. */
static msp_status
wait_for(msp_collect *c, condition *cond, const void *arg, waiter *w, msp_error *err)
{
    ring_shared *s = c->ring.shared;
    uint32_t seen = atomic_load(&s->for_producer); /* before cond is asked: what comes after that is heard */
    msp_status st = MSP_OK;
    int waited = 0;
    msp_stall idle = msp_stall_begin(&c->keeper);

    while (st == MSP_OK && !cond(c, arg)) {
        begin_wait(w);
        if (atomic_load(&c->ring.lost))
            return msp_ring_lost_error(&c->ring, err);
        if (atomic_load(&s->failed))
            return msp_ring_failed_error(&c->ring, err);
        msp_ring_wake(&s->for_writer);
        msp_ring_wait(&s->for_producer, seen, WAIT_MS);
        waited = atomic_load(&s->for_producer) == seen ? waited + WAIT_MS : 0;
        if (waited >= CHECK_MS) {
            st = msp_keeper_revive(&c->keeper, err);
            waited = 0;
        }
        if (st == MSP_OK)
            st = msp_stall_check(&idle, &c->keeper, err);
        seen = atomic_load(&s->for_producer);
    }
    return st;
}

static bool
put_frame(msp_collect *c, const void *record)
{
    const msp_record *r = record;
    frame_header *at;
    bool waits = ((const frame_header *)r->p)->waits != 0;

    if (!waits)
        return msp_ring_put(&c->ring, r->p, r->len) != NULL;
    pthread_mutex_lock(&c->waiting_lock);
    if (!msp_vec_grow((void **)&c->waiting, &c->waiting_cap, c->nwaiting + 1, sizeof(*c->waiting)))
        ((frame_header *)r->p)->waits = 0; /* without memory to remember it by, it gets no statistics */
    at = msp_ring_put(&c->ring, r->p, r->len);
    if (at != NULL && at->waits != 0)
        c->waiting[c->nwaiting++] = (waiting_frame){at, atomic_load(&c->ring.shared->head)};
    pthread_mutex_unlock(&c->waiting_lock);
    return at != NULL;
}

void
msp_collect_settle(msp_collect *c, msp_settle_find *find, void *payload)
{
    size_t left = 0;

    if (!is_owner(c))
        return;
    pthread_mutex_lock(&c->waiting_lock);
    for (size_t i = 0; i < c->nwaiting; i++) {
        frame_header *h = c->waiting[i].frame;
        msp_record in_ring = {(unsigned char *)h, h->size, h->size, false};

        if (!msp_record_settle(&in_ring, find, payload))
            c->waiting[left++] = c->waiting[i];
    }
    c->nwaiting = left;
    pthread_mutex_unlock(&c->waiting_lock);
}

static msp_settled
find_nothing(msp_stats *out, uint64_t ticket, void *payload)
{
    (void)out;
    (void)ticket;
    (void)payload;
    return MSP_SETTLED_NEVER;
}

bool
msp_collect_is_held_up(msp_collect *c)
{
    uint64_t head = atomic_load_explicit(&c->ring.shared->head, memory_order_relaxed);
    bool much;

    if (!is_owner(c))
        return false;
    pthread_mutex_lock(&c->waiting_lock);
    much = c->nwaiting > 0 && head - c->waiting[0].end > c->ring.capacity / HELD_UP_SHARE;
    pthread_mutex_unlock(&c->waiting_lock);
    return much;
}

/* A frame that the ring can never hold with room to spare goes through a file of its own. */
static msp_status
spill_record(msp_collect *c, msp_record *r, msp_error *err)
{
    char path[4096];
    msp_file f = MSP_FILE_NONE;
    msp_status st;
    const unsigned number = c->spills++;

    st = msp_ring_spill_path(&c->ring, path, sizeof(path), number, err);
    if (st != MSP_OK)
        return st;
    st = msp_file_create(&f, path, 0640, err);
    if (st == MSP_OK)
        st = msp_file_write(&f, r->p, r->len, err);
    if (st != MSP_OK) {
        msp_file_abandon(&f);
        return st;
    }
    st = msp_file_commit(&f, err);
    msp_record_frame(r, FRAME_SPILL, 0, number);
    return st;
}

static msp_status
seal_record(msp_record *r, msp_error *err)
{
    if (r->failed || r->len < sizeof(frame_header) || r->len > UINT32_MAX)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory for a record");
    ((frame_header *)r->p)->size = (uint32_t)r->len;
    return MSP_OK;
}

/*
 * A program that records for long and waits for nothing sees to it that somebody writes: whoever killed the writer may
 * kill the program next, and what is then older than a second is to be in the files.
 */
static msp_status
look_after_writer(msp_collect *c, waiter *w, msp_error *err)
{
    struct timespec now;
    msp_status st = MSP_OK;

    c->commits = 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((now.tv_sec - c->met.tv_sec) * 1000 + (now.tv_nsec - c->met.tv_nsec) / 1000000 < LOOK_MS)
        return MSP_OK;
    c->met = now;
    if (!msp_keeper_writer_lives(&c->keeper)) {
        begin_wait(w);
        st = msp_keeper_revive(&c->keeper, err);
    }
    return st;
}

static bool
is_published(msp_collect *c)
{
    return atomic_load_explicit(&c->ring.shared->head, memory_order_relaxed) == c->published;
}

/* Put a sealed record into the ring, inside the lock. */
static msp_status
put_record(msp_collect *c, msp_record *r, waiter *w, msp_error *err)
{
    msp_status st = MSP_OK;

    if (atomic_load_explicit(&c->ring.shared->failed, memory_order_relaxed))
        return msp_ring_failed_error(&c->ring, err);
    if (atomic_load_explicit(&c->ring.lost, memory_order_relaxed))
        return msp_ring_lost_error(&c->ring, err);
    if (r->len > c->ring.capacity / 4 && (st = spill_record(c, r, err)) == MSP_OK)
        st = seal_record(r, err);
    if (st == MSP_OK && !put_frame(c, r))
        st = wait_for(c, put_frame, r, w, err);
    return st;
}

msp_status
msp_collect_commit(msp_collect *c, msp_record *r, void (*wait)(bool, void *), void *payload, msp_error *err)
{
    waiter w = {wait, payload, false};
    msp_status st = seal_record(r, err);

    if (st != MSP_OK)
        return st;
    if (!is_owner(c))
        return MSP_OK; /* a forked child: data-loader workers record nothing */
    enter_lock(c, &w);
    st = put_record(c, r, &w, err);
    if (st == MSP_OK && ++c->commits == LOOK_COMMITS)
        st = look_after_writer(c, &w, err);
    leave_lock(c, &w);
    r->len = 0;
    return st;
}

static msp_status
put_side(msp_collect *c, msp_record *r, msp_error *err)
{
    msp_status st = seal_record(r, err);

    return st != MSP_OK ? st : msp_ring_side_put(&c->ring, r->p, r->len, err);
}

/* The path from the ring's folder on; NULL: it is not below that. The folder may be given with more than one slash
 * behind it. */
static const char *
from_home(const msp_collect *c, const char *path)
{
    const size_t n = msp_path_dir(c->ring.path).len;

    if (strncmp(path, c->ring.path, n) != 0 || (path[n] != '/' && path[n] != '\0'))
        return NULL;
    path += n;
    path += strspn(path, "/");
    return *path == '\0' ? "." : path;
}

/* A dump that was moved is recovered where it is: paths are given from the ring on, where all of them can be. */
static uint32_t
place_unit(const msp_collect *c, const msp_unit_info *info, const char **dir, const char **data_dir)
{
    const bool writes_data = info->kind != MSP_UNIT_DUMP && info->kind != MSP_UNIT_DEBUG && *data_dir[0] != '\0';
    const char *near_dir = from_home(c, *dir), *near_data = writes_data ? from_home(c, *data_dir) : *data_dir;

    if (near_dir == NULL || near_data == NULL)
        return 0;
    *dir = near_dir;
    *data_dir = near_data;
    return UNIT_AT_HOME;
}

msp_status
msp_collect_unit(msp_collect *c, uint32_t *unit, const msp_unit_info *info, msp_error *err)
{
    char mark[24];
    const char *texts[] = {info->dir,
                           info->task,
                           info->level,
                           info->framework,
                           info->data_dir == NULL ? "" : info->data_dir,
                           info->file == NULL ? "" : info->file,
                           mark};
    uint32_t arg = (uint32_t)info->kind | (info->data_dir == NULL ? UNIT_NO_DATA_DIR : 0);
    msp_record *r = &c->scratch;
    msp_status st;

    arg |= place_unit(c, info, &texts[0], &texts[4]);
    snprintf(mark, sizeof(mark), "%lld", (long long)info->mark);
    pthread_mutex_lock(&c->lock);
    msp_record_frame(r, FRAME_UNIT, c->units, arg);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        msp_record_frame_text(r, texts[i], strlen(texts[i]));
    st = put_side(c, r, err);
    if (st == MSP_OK) {
        *unit = c->units++;
        c->published = NEVER;
        msp_ring_nudge(&c->ring);
    }
    pthread_mutex_unlock(&c->lock);
    return st;
}

msp_status
msp_collect_unit_close(msp_collect *c, uint32_t unit, msp_error *err)
{
    waiter w = {NULL, NULL, false};
    msp_record r = {0};
    bool nothing_new;
    msp_status st;

    msp_record_frame(&r, FRAME_CLOSE, unit, 0);
    st = seal_record(&r, err);
    if (st == MSP_OK && is_owner(c)) {
        enter_lock(c, &w);
        nothing_new = is_published(c);
        st = put_record(c, &r, &w, err);
        if (nothing_new)
            c->published = atomic_load(&c->ring.shared->head); /* who flushes after this need not wait for it */
        leave_lock(c, &w);
    }
    msp_record_release(&r);
    return st;
}

msp_status
msp_collect_stack(msp_collect *c, uint32_t *id, const char *const *frames, size_t nframes, msp_error *err)
{
    msp_record *r = &c->scratch;
    msp_status st;

    pthread_mutex_lock(&c->lock);
    msp_record_frame(r, FRAME_STACK, 0, c->stacks + 1);
    for (size_t i = 0; i < nframes; i++)
        msp_record_frame_text(r, frames[i], strlen(frames[i]));
    st = put_side(c, r, err);
    if (st == MSP_OK)
        *id = ++c->stacks;
    pthread_mutex_unlock(&c->lock);
    return st;
}

msp_status
msp_collect_note_error(msp_collect *c, uint32_t unit, const char *text, msp_error *err)
{
    msp_record r = {0};
    msp_status st;

    msp_record_frame(&r, FRAME_ERROR, unit, 0);
    msp_record_frame_text(&r, text, strlen(text));
    st = msp_collect_commit(c, &r, NULL, NULL, err);
    msp_record_release(&r);
    return st;
}

static bool
ticket_is_flushed(msp_collect *c, const void *ticket)
{
    return (int32_t)(atomic_load(&c->ring.shared->flushed) - *(const uint32_t *)ticket) >= 0;
}

/* Ask the writer to publish everything, inside the lock. */
static msp_status
ask_for_all(msp_collect *c, waiter *w, msp_error *err)
{
    msp_record r = {0};
    msp_status st;

    msp_record_frame(&r, FRAME_FLUSH, 0, ++c->tickets);
    st = seal_record(&r, err);
    if (st == MSP_OK)
        st = put_record(c, &r, w, err);
    c->asked = atomic_load(&c->ring.shared->head);
    msp_record_release(&r);
    return st;
}

/* Have everything that is committed published, and wait until it is. */
static msp_status
flush_ring(msp_collect *c, waiter *w, msp_error *err)
{
    msp_status st = MSP_OK;
    uint32_t ticket;

    if (c->asked != atomic_load(&c->ring.shared->head))
        st = ask_for_all(c, w, err);
    ticket = c->tickets;
    if (st == MSP_OK)
        st = wait_for(c, ticket_is_flushed, &ticket, w, err);
    if (st == MSP_OK)
        c->published = atomic_load(&c->ring.shared->head);
    return st;
}

static bool
has_room(msp_collect *c)
{
    const ring_shared *s = c->ring.shared;

    return atomic_load(&s->head) - atomic_load(&s->tail) < c->ring.capacity / 2;
}

void
msp_collect_hurry(msp_collect *c)
{
    waiter w = {NULL, NULL, false};
    msp_error err;

    if (!is_owner(c) || pthread_mutex_trylock(&c->lock) != 0)
        return;
    if (!is_published(c) && has_room(c) && ask_for_all(c, &w, &err) == MSP_OK)
        msp_ring_nudge(&c->ring);
    pthread_mutex_unlock(&c->lock);
}

msp_status
msp_collect_flush(msp_collect *c, void (*wait)(bool, void *), void *payload, msp_error *err)
{
    waiter w = {wait, payload, false};
    msp_status st = MSP_OK;

    if (!is_owner(c))
        return MSP_OK;
    enter_lock(c, &w);
    msp_collect_settle(c, find_nothing, NULL); /* what waits would stand before the frame that asks to be reached */
    if (msp_ring_is_lost(&c->ring))
        st = msp_ring_lost_error(&c->ring, err);
    else if (atomic_load(&c->ring.shared->failed))
        st = msp_ring_failed_error(&c->ring, err);
    else if (!is_published(c))
        st = flush_ring(c, &w, err);
    leave_lock(c, &w);
    return st;
}

static bool
writer_is_done(msp_collect *c, const void *unused)
{
    (void)unused;
    return atomic_load(&c->ring.shared->done) != 0;
}

void
msp_collect_close(msp_collect *c)
{
    waiter w = {NULL, NULL, false};
    bool told;
    msp_error err;

    if (c == NULL)
        return;
    if (is_owner(c)) {
        enter_lock(c, &w);
        told = atomic_load(&c->ring.lost) || atomic_load(&c->ring.shared->failed); /* to who recorded or flushed */
        atomic_store(&c->ring.shared->closing, 1);
        msp_ring_wake(&c->ring.shared->for_writer);
        if (wait_for(c, writer_is_done, NULL, &w, &err) != MSP_OK && !told)
            msp_warning("%s", err.message);
        leave_lock(c, &w);
        if (c->keeper.has_thread)
            pthread_join(c->keeper.thread, NULL);
        /* after a failure the ring keeps what could not be written, unless there is nothing left of it */
        msp_ring_close(&c->ring, msp_ring_is_lost(&c->ring) || atomic_load(&c->ring.shared->done) != 0);
    }
    msp_record_release(&c->scratch);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->waiting_lock);
    msp_free(c->waiting);
    msp_free(c->keeper.path);
    msp_free(c);
}
