/*
 * probe_batch.c - what hooks on nodes are shown: read at once, worked out for many of them at a time.
 *
 * The engine runs hooks without the interpreter lock, each among thousands of instructions of torch's. To take the lock
 * for each, and to bring all the code that makes a record of a gradient into a cache that torch has just filled, costs
 * more than the record itself: of 260 cache lines of code that a hook ran, 200 were for that. So a hook that was put on
 * a node directly only measures the tensors that it will be asked for, without the lock, and notes them here. The notes
 * are worked out in their order, many at a time, before anybody could see the difference. Memory is read while the hook
 * runs: what a tensor holds then is what is recorded.
 *
 * Notes are worked out
 * - when there are MOST_NOTES, and before anything else is recorded on their thread: the order of records stays;
 * - at the end of the backward pass, at stop(), step() and flush();
 * - by a thread of ours when they have waited for two ticks, because the program sits in one operation: who is killed
 *   then loses nothing that is older than a second.
 *
 * A hook that needs more than numbers (a file to write, Python to describe a tensor, a large tensor to be kept) is run
 * at once, with the lock, after the notes before it.
 */
#include "probe_grad.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum {
    MOST_NOTES = 64, /* more make no difference that can be measured */
    MOST_ITEMS = 4 * MOST_NOTES,
    TICK_MS = 200
};

/* A tensor that a hook was shown. */
typedef struct shown_item {
    const void *tensor; /* torch's own, to know it again within one node */
    uint32_t from, end; /* its tokens, or where its copy begins */
    int at;
    bool entering;
    bool is_copy;
} shown_item;

typedef struct shown_note {
    grad_hook *hook; /* lent: msp_node_clean() has the notes worked out before it frees hooks; NULL: no hook, but ... */
    const void *variable; /* the parameter for which it came */
    int64_t task;
    int first, end; /* items */
} shown_note;

typedef struct notes {
    int n, nitems;
    msp_record tokens, copies;
    shown_note notes[MOST_NOTES];
    shown_item items[MOST_ITEMS];
} notes;

/* Per thread that runs backward passes; never freed, but used again when the thread has ended. */
struct probe_batch {
    pthread_mutex_t lock;
    atomic_bool owned;
    atomic_int noted;       /* how many notes there are in filling */
    notes *filling, *spare; /* spare: of whoever works out */
    int node;               /* the first item of the node that is being noted */
    unsigned tick;          /* when the first note came */
    int64_t task;           /* the backward pass whose end we asked to be told of */
    probe_batch *next;
};

static _Atomic(probe_batch *) batches;
static atomic_bool usable;
static atomic_uint ticks;

/* ---- noting, without the interpreter lock ------------------------------------------------------------------------ */

static pthread_key_t owner_key; /* its destructor tells of the end of a thread */
static pthread_once_t owner_once = PTHREAD_ONCE_INIT;

static void
owner_ends(void *batch)
{
    atomic_store(&((probe_batch *)batch)->owned, false);
}

static void
make_key(void)
{
    pthread_key_create(&owner_key, owner_ends);
}

static probe_batch *
new_batch(void)
{
    probe_batch *b = calloc(1, sizeof(*b));

    if (b != NULL) {
        b->filling = calloc(1, sizeof(notes));
        b->spare = calloc(1, sizeof(notes));
    }
    if (b == NULL || b->filling == NULL || b->spare == NULL) {
        if (b != NULL) {
            free(b->filling);
            free(b->spare);
        }
        free(b);
        return NULL;
    }
    pthread_mutex_init(&b->lock, NULL);
    atomic_store(&b->owned, true);
    b->next = atomic_load(&batches);
    while (!atomic_compare_exchange_weak(&batches, &b->next, b))
        ;
    return b;
}

/* One that a thread left behind, worked out, or a new one; NULL without memory. */
static probe_batch *
find_batch(void)
{
    probe_batch *b;

    pthread_once(&owner_once, make_key);
    for (b = atomic_load(&batches); b != NULL; b = b->next) {
        bool nobody = false;

        if (atomic_load(&b->noted) == 0 && atomic_compare_exchange_strong(&b->owned, &nobody, true))
            break;
    }
    if (b == NULL)
        b = new_batch();
    if (b != NULL) {
        b->task = -1;
        pthread_setspecific(owner_key, b);
    }
    return b;
}

/* The same tensor, noted by a hook before this one on the same node: nothing of the program's ran between them. */
static const shown_item *
find_read(const probe_batch *b, const void *tensor)
{
    const notes *f = b->filling;

    for (int i = b->node; i < f->nitems; i++)
        if (f->items[i].tensor == tensor && !f->items[i].is_copy)
            return &f->items[i];
    return NULL;
}

bool
msp_batch_note(probe_batch *b, bool entering, int at, const void *handle, bool copy)
{
    notes *f = b->filling;
    const void *tensor = *(const void *const *)handle;
    const shown_item *same = copy ? NULL : find_read(b, tensor);
    shown_item *item = &f->items[f->nitems];

    if (f->nitems == MOST_ITEMS)
        return false;
    *item = (shown_item){.tensor = tensor, .at = at, .entering = entering, .is_copy = copy};
    if (copy) {
        if (!msp_probe_copy(&f->copies, &item->from, handle))
            return false;
    } else if (same != NULL) {
        item->from = same->from;
        item->end = same->end;
    } else {
        item->from = (uint32_t)f->tokens.len;
        if (!msp_probe_read_unlocked(&f->tokens, handle))
            return false;
        item->end = (uint32_t)f->tokens.len;
    }
    f->nitems++;
    return true;
}

static bool
note_hook(probe_batch *b, const node_link *link, int64_t task, const void *leaving, const void *entering)
{
    notes *f = b->filling;
    shown_note *note = &f->notes[f->n];
    grad_hook *hook = (grad_hook *)(uintptr_t)link;

    if (f->n == MOST_NOTES || !msp_probe_is_grad_hook(link))
        return false; /* a parameter's tells what Python has to look for */
    *note = (shown_note){hook, NULL, task, f->nitems, f->nitems};
    if (!msp_probe_grad_note(b, hook, leaving, entering))
        return false;
    note->end = f->nitems;
    f->n++;
    return true;
}

static void
note_time(probe_batch *b)
{
    b->tick = atomic_load_explicit(&ticks, memory_order_relaxed);
}

static bool
note_gradient(probe_batch *b, int64_t task, const void *variable, const void *tensor)
{
    notes *f = b->filling;
    const int first = f->nitems;
    const size_t tokens = f->tokens.len;

    if (f->n == MOST_NOTES)
        return false;
    b->node = first;
    if (!msp_batch_note(b, true, 0, tensor, false)) {
        f->tokens.len = tokens;
        f->tokens.failed = false;
        return false;
    }
    if (f->n == 0)
        note_time(b);
    f->notes[f->n++] = (shown_note){NULL, variable, task, first, f->nitems};
    return true;
}

/* All hooks of one node, or none. */
static bool
note_node(probe_batch *b, const node_link *first, int64_t task, const void *leaving, const void *entering)
{
    notes *f = b->filling;
    const int n = f->n;
    const size_t tokens = f->tokens.len, copies = f->copies.len;

    b->node = f->nitems;
    for (const node_link *h = first; h != NULL; h = h->then)
        if (!note_hook(b, h, task, leaving, entering)) {
            f->n = n;
            f->nitems = b->node;
            f->tokens.len = tokens;
            f->copies.len = copies;
            f->tokens.failed = f->copies.failed = false;
            return false;
        }
    if (n == 0)
        note_time(b);
    return true;
}

static void work_unlocked(void);

/* This thread's, locked, when hooks of this pass are noted; NULL: they are run at once, as the first one of a pass is,
 * which asks to be told of the end. */
static probe_batch *
enter(int64_t *task)
{
    probe_batch *b = msp_probe_thread.batch;

    if (b == NULL || !atomic_load_explicit(&usable, memory_order_relaxed))
        return NULL;
    *task = msp_node_task();
    if (*task < 0 || b->task != *task)
        return NULL;
    pthread_mutex_lock(&b->lock);
    return b;
}

static bool
leave(probe_batch *b, bool noted)
{
    const bool full = b->filling->n == MOST_NOTES;

    atomic_store_explicit(&b->noted, b->filling->n, memory_order_relaxed);
    pthread_mutex_unlock(&b->lock);
    if (noted && full && !msp_batch_is_working())
        work_unlocked();
    return noted;
}

bool
msp_batch_take(const node_link *first, const void *leaving, const void *entering)
{
    int64_t task;
    probe_batch *b = enter(&task);

    return b != NULL && leave(b, note_node(b, first, task, leaving, entering));
}

bool
msp_batch_take_parameter(const void *variable, const void *gradients)
{
    const void *tensor = msp_node_item(gradients, 0);
    int64_t task;
    probe_batch *b = tensor == NULL ? NULL : enter(&task);

    if (b == NULL)
        return tensor == NULL;
    return leave(b, note_gradient(b, task, variable, tensor));
}

/* ---- working out, with it ---------------------------------------------------------------------------------------- */

struct probe_shown {
    const shown_item *items;
    int n;
    const unsigned char *tokens, *copies;
};

/* One gradient may have been asked for in both ways. */
probe_lent
msp_batch_item(const probe_shown *of, bool entering, int at)
{
    probe_lent lent = {0};

    for (int i = 0; i < of->n; i++) {
        const shown_item *item = &of->items[i];

        if (item->at != at || item->entering != entering)
            continue;
        if (item->is_copy) {
            lent.copy = (const probe_copy *)(const void *)(of->copies + item->from);
        } else {
            lent.tokens = of->tokens + item->from;
            lent.len = item->end - item->from;
        }
    }
    return lent;
}

static void
work_out(const notes *f)
{
    for (int i = 0; i < f->n; i++) {
        const shown_note *note = &f->notes[i];
        const probe_shown shown = {f->items + note->first, note->end - note->first, f->tokens.p, f->copies.p};

        if (note->hook != NULL)
            msp_probe_grad_work(note->hook, &shown, note->task);
        else
            msp_probe_parameter_work(note->variable, &shown);
    }
}

static notes *
take_notes(probe_batch *b)
{
    notes *f;

    pthread_mutex_lock(&b->lock);
    f = b->filling;
    b->filling = b->spare;
    b->spare = f;
    atomic_store_explicit(&b->noted, 0, memory_order_relaxed);
    pthread_mutex_unlock(&b->lock);
    return f;
}

/* One at a time, so that no later notes overtake earlier ones while those wait for the writer. Who waits for that does
 * not hold the interpreter lock, which whoever works out may need. */
static pthread_mutex_t at_work = PTHREAD_MUTEX_INITIALIZER;
static __thread bool working; /* Python code of ours runs meanwhile, and may come here again */

bool
msp_batch_is_working(void)
{
    return working;
}

static atomic_bool busy; /* somebody works out, or is about to: what comes after it has to wait */

static void
work(void)
{
    PyObject *type, *value, *trace;
    probe_quiet q;

    working = true;
    PyErr_Fetch(&type, &value, &trace);
    msp_probe_enter(&q);
    for (probe_batch *b = atomic_load(&batches); b != NULL; b = b->next) {
        notes *f = take_notes(b);

        work_out(f);
        f->n = f->nitems = 0;
        f->tokens.len = f->copies.len = 0;
    }
    msp_probe_leave(&q);
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
    working = false;
}

static void
work_unlocked(void)
{
    PyGILState_STATE gil;

    pthread_mutex_lock(&at_work);
    atomic_store(&busy, true);
    gil = PyGILState_Ensure();
    work();
    PyGILState_Release(gil);
    atomic_store(&busy, false);
    pthread_mutex_unlock(&at_work);
}

static bool
has_notes(void)
{
    for (probe_batch *b = atomic_load(&batches); b != NULL; b = b->next)
        if (atomic_load(&b->noted) > 0)
            return true;
    return false;
}

void
msp_batch_work(void)
{
    PyThreadState *saved;

    if (working || (!has_notes() && !atomic_load(&busy)))
        return;
    if (pthread_mutex_trylock(&at_work) != 0) {
        saved = PyEval_SaveThread();
        pthread_mutex_lock(&at_work);
        PyEval_RestoreThread(saved);
    }
    atomic_store(&busy, true);
    work();
    atomic_store(&busy, false);
    pthread_mutex_unlock(&at_work);
}

void
msp_batch_work_own(void)
{
    if (atomic_load_explicit(&msp_probe_thread.batch->noted, memory_order_relaxed) > 0 ||
        atomic_load_explicit(&busy, memory_order_relaxed))
        msp_batch_work();
}

/* ---- the clock --------------------------------------------------------------------------------------------------- */

static pthread_mutex_t clock_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t clock_stops = PTHREAD_COND_INITIALIZER;
static pthread_t clock_thread;
static bool clock_runs;

static bool
is_old(void)
{
    unsigned now = atomic_load(&ticks);
    bool any = false;

    for (probe_batch *b = atomic_load(&batches); b != NULL && !any; b = b->next) {
        pthread_mutex_lock(&b->lock);
        any = b->filling->n > 0 && now - b->tick >= 2;
        pthread_mutex_unlock(&b->lock);
    }
    return any;
}

static void *
run_clock(void *unused)
{
    struct timespec until;

    (void)unused;
    pthread_mutex_lock(&clock_lock);
    while (clock_runs) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += TICK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&clock_stops, &clock_lock, &until);
        atomic_fetch_add(&ticks, 1u);
        if (clock_runs && is_old()) {
            pthread_mutex_unlock(&clock_lock);
            work_unlocked();
            pthread_mutex_lock(&clock_lock);
        }
    }
    pthread_mutex_unlock(&clock_lock);
    return NULL;
}

static bool
start_clock(void)
{
    sigset_t every, before;

    if (clock_runs)
        return true;
    clock_runs = true;
    sigfillset(&every); /* the program's signals are for its own threads */
    pthread_sigmask(SIG_SETMASK, &every, &before);
    clock_runs = pthread_create(&clock_thread, NULL, run_clock, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return clock_runs;
}

void
msp_batch_begin_pass(int64_t task)
{
    probe_thread *here = msp_probe_here();

    if (!atomic_load(&usable))
        return; /* it may be that msp_batch_end() waits for the clock now */
    if (here->batch == NULL)
        here->batch = find_batch();
    if (here->batch != NULL && start_clock())
        here->batch->task = task;
}

/* Nothing that the rules ask for is more than numbers, or changes from one hook to the next. */
static bool
may_wait(void)
{
    const probe_rules *r = &msp_probe.rules;

    return msp_node_usable() && msp_node_tells_state() && !r->overflow && r->list == NULL && r->scope_begin == NULL &&
           msp_probe.data_dir == NULL && msp_probe.queue_callback != NULL && msp_probe.collect != NULL &&
           !msp_probe_is_legacy();
}

void
msp_batch_start(void)
{
    atomic_store(&usable, may_wait());
}

void
msp_batch_end(void)
{
    bool ran;

    atomic_store(&usable, false);
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&clock_lock);
    ran = clock_runs;
    clock_runs = false;
    pthread_cond_signal(&clock_stops);
    pthread_mutex_unlock(&clock_lock);
    if (ran)
        pthread_join(clock_thread, NULL);
    Py_END_ALLOW_THREADS;
}

void
msp_batch_forked(void)
{
    atomic_store(&usable, false);
    clock_runs = false;
    pthread_mutex_init(&clock_lock, NULL);
    pthread_cond_init(&clock_stops, NULL);
    pthread_mutex_init(&at_work, NULL);
    atomic_store(&busy, false);
    for (probe_batch *b = atomic_load(&batches); b != NULL; b = b->next) {
        pthread_mutex_init(&b->lock, NULL);
        atomic_store(&b->noted, 0);
        b->filling->n = b->spare->n = 0; /* the parent's; what they hold is left alone */
        b->filling->nitems = b->spare->nitems = 0;
    }
}
