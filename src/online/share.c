/*
 * share.c - the training process's side: see share.h and msprobe/online.h.
 *
 * msp_online_room() is called once for each tensor: an addition and a comparison while there is room. Without room it
 * waits, unless waiting is known to be of no use: nothing that is complete is on its way (everything waits for its
 * gradients), the sender is gone, the checker has refused, or the whole bound was waited away already and nothing has
 * been answered since.
 */
#include "online/share.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/log.h"
#include "core/path.h"
#include "core/process.h"
#include "collect/ring.h"
#include "online/conn.h"
#include "online/tls.h"

enum {
    WAIT_MS = 2,
    STEP_MOST_MS = 100,   /* the most that one wait counts: this process may have been stopped itself */
    HELD_MS = 1000,       /* in which the sender must have found something to send */
    SENDER_LOOK_MS = 200, /* between two looks whether the sender is there */
    STARTS_MOST = 4,      /* senders one after the other; from then on one every AGAIN_MS */
    AGAIN_MS = 60000,
    START_MS = 5000
};

struct msp_online {
    msp_share *share;
    int fd, journal;
    char *program;
    pid_t owner;
    pthread_mutex_t lock; /* of what follows */
    int64_t waited_ms;    /* in this step */
    uint64_t gave_up_at;  /* freed, when the bound had been waited away; UINT64_MAX: it was not */
    uint64_t starts;
    int64_t started_ms; /* the last of them */
};

/* ---- both sides -------------------------------------------------------------------------------------------------- */

bool
msp_share_lives(int64_t pid, uint64_t start)
{
    return pid > 0 && start != 0 && msp_process_start(pid) == start;
}

/* Texts are short and rare: who wants one while the other writes tries again; a killed writer is not waited for. */
static void
lock_text(msp_share *s)
{
    for (int i = 0; i < 1000 && atomic_exchange(&s->trouble_lock, 1) != 0; i++)
        nanosleep(&(struct timespec){0, 10000}, NULL);
}

void
msp_share_tell(msp_share *s, const char *text)
{
    lock_text(s);
    snprintf(s->trouble, sizeof(s->trouble), "%s", text);
    atomic_store(&s->trouble_lock, 0);
}

void
msp_share_trouble(msp_share *s, char out[MSP_SHARE_TROUBLE])
{
    lock_text(s);
    memcpy(out, s->trouble, MSP_SHARE_TROUBLE);
    out[MSP_SHARE_TROUBLE - 1] = '\0';
    atomic_store(&s->trouble_lock, 0);
}

static msp_status
check_connection(const msp_online_address *a, bool server, msp_error *err)
{
    msp_tls_side *side;
    msp_status st;

    if (a->host == NULL || a->port < (server ? 0 : 1) || a->port > 65535)
        return msp_error_set(err, MSP_E_INVALID,
                             "online run_ut needs nfs_path, or host and port (1 to 65535) of the checking process");
    if (a->tls == NULL) {
        if (msp_host_is_here(a->host))
            return MSP_OK;
        return msp_error_set(err, MSP_E_INVALID,
                             "host is %s, another machine, and without tls_path only 127.0.0.1 is allowed: name a "
                             "folder with %s.key, %s.crt and ca.crt in tls_path",
                             a->host, server ? "server" : "client", server ? "server" : "client");
    }
    st = msp_tls_side_open(&side, a->tls, server, err);
    if (st == MSP_OK)
        msp_tls_side_close(side);
    return st;
}

msp_status
msp_online_check_address(const msp_online_address *a, bool server, msp_error *err)
{
    if (a->folder == NULL)
        return check_connection(a, server, err);
    if (msp_path_kind_of(a->folder) != MSP_PATH_DIR || access(a->folder, R_OK | W_OK | X_OK) != 0)
        return msp_error_set(err, MSP_E_INVALID, "nfs_path is %s; it must be a folder that both sides can write to",
                             a->folder);
    return MSP_OK;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static msp_status
make_page(msp_online *o, msp_error *err)
{
    o->fd = memfd_create("msprobe-online", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (o->fd < 0 || ftruncate(o->fd, sizeof(msp_share)) != 0 ||
        fcntl(o->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
        return msp_error_set_errno(err, MSP_E_IO, errno, "cannot make shared memory");
    o->share = mmap(NULL, sizeof(msp_share), PROT_READ | PROT_WRITE, MAP_SHARED, o->fd, 0);
    if (o->share == MAP_FAILED) {
        o->share = NULL;
        return msp_error_set_errno(err, MSP_E_IO, errno, "cannot map shared memory");
    }
    return MSP_OK;
}

static msp_status
copy(char *out, size_t size, const char *text, msp_error *err)
{
    if ((size_t)snprintf(out, size, "%s", text == NULL ? "" : text) >= size)
        return msp_error_set(err, MSP_E_INVALID, "%.80s...: too long", text);
    return MSP_OK;
}

/* The sender works in a folder of its own. */
static msp_status
copy_path(char *out, const char *path, msp_error *err)
{
    char here[MSP_SHARE_PATH];

    if (path == NULL || path[0] == '/')
        return copy(out, MSP_SHARE_PATH, path, err);
    if (getcwd(here, sizeof(here)) == NULL)
        return msp_error_set_errno(err, MSP_E_IO, errno, "cannot tell the current folder");
    if ((size_t)snprintf(out, MSP_SHARE_PATH, "%s/%s", here, path) >= MSP_SHARE_PATH)
        return msp_error_set(err, MSP_E_INVALID, "%.80s...: too long", path);
    return MSP_OK;
}

static msp_status
fill_page(msp_share *s, const msp_online_options *opt, msp_error *err)
{
    const time_t now = time(NULL);
    char name[64];
    struct tm t;
    msp_status st = copy_path(s->folder, opt->address.folder, err);

    if (st == MSP_OK)
        st = copy_path(s->tls, opt->address.tls, err);
    if (st == MSP_OK)
        st = copy(s->host, sizeof(s->host), opt->address.host, err);
    if (st == MSP_OK)
        st = copy_path(s->journal, opt->dir, err);
    snprintf(name, sizeof(name), "/.msprobe-online-%ld", (long)getpid());
    if (st == MSP_OK && strlen(s->journal) + strlen(name) >= sizeof(s->journal))
        st = msp_error_set(err, MSP_E_INVALID, "%.80s...: too long", opt->dir);
    if (st != MSP_OK)
        return st;
    strcat(s->journal, name);
    localtime_r(&now, &t);
    strftime(s->stamp, sizeof(s->stamp), "%Y%m%d%H%M%S", &t);
    s->port = opt->address.port;
    s->forward_only = opt->forward_only;
    s->wait_ms = opt->wait_ms;
    s->linger_ms = opt->linger_ms;
    s->rank = opt->rank;
    s->limit = opt->limit;
    s->producer = getpid();
    s->producer_start = msp_process_start(getpid());
    memcpy(s->magic, MSP_SHARE_MAGIC, sizeof(s->magic));
    return MSP_OK;
}

static msp_status
start_sender(msp_online *o, msp_error *err)
{
    char path[64];
    int e;

    snprintf(path, sizeof(path), "/proc/%ld/fd/%d", (long)getpid(), o->fd);
    atomic_store(&o->share->sender, 0);
    o->starts++;
    o->started_ms = msp_now_ms();
    e = msp_process_spawn(o->program, "__online", path);
    if (e != 0)
        return msp_error_set_errno(err, MSP_E_IO, e, "%s: cannot start", o->program);
    for (int ms = 0; ms < START_MS; ms += WAIT_MS) {
        if (atomic_load(&o->share->sender) != 0)
            return MSP_OK;
        nanosleep(&(struct timespec){0, WAIT_MS * 1000000L}, NULL);
    }
    return msp_error_set(err, MSP_E_IO, "%s: the sender did not come up within %d s", o->program, START_MS / 1000);
}

static void
let_go(msp_online *o)
{
    if (o->share != NULL)
        munmap(o->share, sizeof(*o->share));
    if (o->fd >= 0)
        close(o->fd);
    if (o->journal >= 0)
        close(o->journal);
    pthread_mutex_destroy(&o->lock);
    msp_free(o->program);
    msp_free(o);
}

msp_status
msp_online_open(msp_online **out, const msp_online_options *opt, msp_error *err)
{
    msp_status st = msp_online_check_address(&opt->address, false, err);
    msp_online *o;

    *out = NULL;
    if (st != MSP_OK)
        return st;
    o = msp_alloc_zero(1, sizeof(*o));
    if (o == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    o->fd = o->journal = -1;
    o->owner = getpid();
    o->gave_up_at = UINT64_MAX;
    pthread_mutex_init(&o->lock, NULL);
    o->program = msp_path_join("", opt->program);
    st = o->program == NULL ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : make_page(o, err);
    if (st == MSP_OK)
        st = fill_page(o->share, opt, err);
    if (st == MSP_OK)
        st = msp_path_make_dirs(opt->dir, err);
    if (st == MSP_OK) {
        o->journal = open(o->share->journal, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
        if (o->journal < 0)
            st = msp_error_set_errno(err, MSP_E_IO, errno, "%s", o->share->journal);
    }
    if (st == MSP_OK)
        st = start_sender(o, err);
    if (st != MSP_OK) {
        if (o->journal >= 0)
            unlink(o->share->journal);
        let_go(o);
        return st;
    }
    *out = o;
    return MSP_OK;
}

/* ---- room -------------------------------------------------------------------------------------------------------- */

bool
msp_online_has_room(const msp_online *o, uint64_t n)
{
    const uint64_t there = atomic_load_explicit(&o->share->bytes, memory_order_relaxed);

    return there <= o->share->limit && n <= o->share->limit - there;
}

static bool
take_room(msp_online *o, uint64_t n)
{
    if (!msp_online_has_room(o, n))
        return false;
    atomic_fetch_add(&o->share->bytes, n); /* of two threads at once one may go beyond the bound by a tensor */
    return true;
}

static bool
sender_lives(const msp_online *o)
{
    return msp_share_lives(atomic_load(&o->share->sender), atomic_load(&o->share->sender_start));
}

/* Whether more waiting can help; ms is how long this wait has taken. */
static bool
may_wait(msp_online *o, uint64_t n, int64_t ms)
{
    const msp_share *s = o->share;
    const uint32_t state = atomic_load(&s->state);

    if (n > s->limit || state == MSP_ONLINE_REFUSED || state == MSP_ONLINE_DONE || o->waited_ms >= s->wait_ms)
        return false;
    if (o->gave_up_at == atomic_load(&s->freed))
        return false;
    return ms < HELD_MS || atomic_load(&s->on_the_way) > 0;
}

static void
note_wait(msp_online *o, int64_t ms)
{
    msp_share *s = o->share;

    o->waited_ms += ms;
    atomic_fetch_add(&s->waited_ms, (uint64_t)ms);
    if ((uint64_t)o->waited_ms > atomic_load(&s->longest_ms))
        atomic_store(&s->longest_ms, (uint64_t)o->waited_ms);
    if (o->waited_ms >= s->wait_ms)
        o->gave_up_at = atomic_load(&s->freed);
}

bool
msp_online_room(msp_online *o, uint64_t n)
{
    int64_t ms = 0, last, now, looked = 0;
    bool good = take_room(o, n), lives = true;

    if (good || o->owner != getpid())
        return good;
    pthread_mutex_lock(&o->lock);
    last = msp_now_ms();
    while (!(good = take_room(o, n)) && lives && may_wait(o, n, ms)) {
        nanosleep(&(struct timespec){0, WAIT_MS * 1000000L}, NULL);
        now = msp_now_ms();
        if (now > last) {
            int64_t step = now - last < STEP_MOST_MS ? now - last : STEP_MOST_MS;

            ms += step;
            note_wait(o, step);
            last = now;
        }
        if (ms - looked >= SENDER_LOOK_MS) {
            lives = sender_lives(o);
            looked = ms;
        }
    }
    if (!good)
        atomic_fetch_add(&o->share->left_out, 1);
    pthread_mutex_unlock(&o->lock);
    return good;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static msp_status
note(msp_online *o, const char *text, size_t len, msp_error *err)
{
    if (write(o->journal, text, len) != (ssize_t)len)
        return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot write", o->share->journal);
    return MSP_OK;
}

msp_status
msp_online_step_begin(msp_online *o, const char *dir, uint64_t step, msp_error *err)
{
    char path[MSP_SHARE_PATH], line[MSP_SHARE_PATH + 64];
    msp_status st = copy_path(path, dir, err);
    int n;

    if (st != MSP_OK)
        return st;
    if (strchr(path, '\n') != NULL)
        return msp_error_set(err, MSP_E_INVALID, "dump_path has a line break in it, which online_run_ut cannot use");
    pthread_mutex_lock(&o->lock);
    o->waited_ms = 0;
    pthread_mutex_unlock(&o->lock);
    n = snprintf(line, sizeof(line), "begin %llu %s\n", (unsigned long long)step, path);
    return note(o, line, (size_t)n, err);
}

msp_status
msp_online_step_end(msp_online *o, msp_error *err)
{
    return note(o, "end\n", 4, err);
}

void
msp_online_count(const msp_online *o, msp_online_counts *out)
{
    msp_share *s = o->share;

    *out = (msp_online_counts){.state = (msp_online_state)atomic_load(&s->state),
                               .lives = sender_lives(o),
                               .found = atomic_load(&s->found),
                               .answered = atomic_load(&s->answered),
                               .not_sent = atomic_load(&s->not_sent),
                               .left_out = atomic_load(&s->left_out),
                               .waited_ms = atomic_load(&s->waited_ms),
                               .longest_ms = atomic_load(&s->longest_ms),
                               .waiting_bytes = atomic_load(&s->bytes),
                               .connections = atomic_load(&s->connections),
                               .starts = o->starts,
                               .sender = atomic_load(&s->sender)};
    for (int i = 0; i <= MSP_PRECHECK_ERROR; i++)
        out->status[i] = atomic_load(&s->status[i]);
    msp_share_trouble(s, out->trouble);
}

static void
revive(msp_online *o)
{
    msp_error err;

    if (o->owner != getpid() || sender_lives(o) || atomic_load(&o->share->state) == MSP_ONLINE_DONE)
        return;
    msp_warning("online_run_ut: the sender is gone; starting another one");
    if (start_sender(o, &err) != MSP_OK)
        msp_warning("online_run_ut: %s", err.message);
}

void
msp_online_revive(msp_online *o)
{
    if (o->starts < STARTS_MOST || msp_now_ms() - o->started_ms >= AGAIN_MS)
        revive(o);
}

void
msp_online_close(msp_online *o, msp_online_counts *out)
{
    int64_t until;

    if (o == NULL)
        return;
    if (o->owner == getpid()) {
        atomic_store(&o->share->closing, 1);
        revive(o); /* what the last one has left is sent, or has rows that say why not */
        until = msp_now_ms() + o->share->wait_ms;
        while (atomic_load(&o->share->state) != MSP_ONLINE_DONE && msp_now_ms() < until && sender_lives(o))
            nanosleep(&(struct timespec){0, WAIT_MS * 1000000L}, NULL);
        if (out != NULL)
            msp_online_count(o, out);
    }
    let_go(o);
}
