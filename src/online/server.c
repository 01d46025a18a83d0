/*
 * server.c - the checker's side: see msprobe/online.h.
 *
 * A thread owns the connections and the shared folder: what arrives becomes a file of its own (a claimed one, in a
 * folder) and an entry that msp_online_next() hands out. msp_online_answer() writes the rows and leaves the verdict
 * with the job, from where the thread sends it; it is forgotten when the sender has acknowledged it, so that a sender
 * whose connection broke in between is answered without checking again.
 *
 * When calls of more than the bound wait, the thread reads nothing more: TCP, or the folder's fixed number of files,
 * then lets the senders wait. A peer costs this process a connection and what the bound allows, whatever it sends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/arena.h"
#include "core/file.h"
#include "core/path.h"
#include "core/vec.h"
#include "online/conn.h"
#include "online/exchange.h"
#include "online/results.h"
#include "online/share.h"

enum {
    PEERS_MOST = 256,
    JOBS_MOST = 4096,
    KEPT_MOST = 1024, /* verdicts of a job that wait for being acknowledged; more than a sender has on its way */
    NEWS_MOST = 64,
    HELLO_MS = 10000,
    SILENT_MS = 30000,
    PING_MS = 2000,
    POLL_MS = 100,
    BACKLOG = 64
};

typedef struct kept_verdict {
    uint64_t number;
    msp_buf frame;
    bool sent; /* over the job's present connection */
} kept_verdict;

/* A sender, which may come over several connections one after the other. */
typedef struct job {
    char id[33];
    uint64_t rank;
    bool ended, connected;
    kept_verdict *kept;
    size_t nkept, cap;
} job;

typedef struct entry {
    uint64_t id, number, step, size;
    job *job;
    bool taken, in_folder;
    char *path, *name;
} entry;

typedef struct result_files {
    uint64_t rank, step;
    msp_results results;
    char *result, *details;
    msp_map names;
    msp_arena text;
} result_files;

typedef struct peer {
    msp_conn conn;
    char from[32];
    job *job;
    int64_t since_ms;
    bool leaving;               /* once everything is sent */
    uint64_t number, size, got; /* of the call that comes in */
    bool in_call, known;        /* known: it was sent before */
    int fd;
    char *path;
} peer;

struct msp_online_server {
    pthread_mutex_t lock; /* of everything but listener, tls, peers and alive */
    pthread_cond_t news_come;
    pthread_t thread;
    bool has_thread, stop, failed;
    msp_error failure;
    char *dir, *folder, *incoming;
    char stamp[16];
    uint64_t *ranks;
    size_t nranks;
    uint64_t limit, waiting; /* bytes */
    int idle_ms;
    int64_t busy_ms; /* when somebody was there last */
    int wake;
    uint64_t ids;
    entry **entries; /* in the order in which they came */
    size_t nentries, entries_cap;
    job **jobs;
    size_t njobs, jobs_cap;
    result_files **files;
    size_t nfiles, files_cap;
    char news[NEWS_MOST][512];
    size_t news_at, nnews;
    msp_online_served served;
    /* the thread's */
    int listener;
    msp_tls_side *tls;
    peer *peers[PEERS_MOST];
    size_t npeers;
    uint64_t beat;
    int64_t beat_ms;
};

/* ---- what is told ------------------------------------------------------------------------------------------------ */

static void tell(msp_online_server *s, const char *format, ...) MSP_PRINTF(2, 3);

static void
tell(msp_online_server *s, const char *format, ...)
{
    va_list args;

    if (s->nnews == NEWS_MOST)
        return; /* who reads them is far behind; the counts go on */
    va_start(args, format);
    vsnprintf(s->news[(s->news_at + s->nnews++) % NEWS_MOST], sizeof(s->news[0]), format, args);
    va_end(args);
    pthread_cond_broadcast(&s->news_come);
}

bool
msp_online_server_news(msp_online_server *s, char line[512])
{
    bool any;

    pthread_mutex_lock(&s->lock);
    any = s->nnews > 0;
    if (any) {
        memcpy(line, s->news[s->news_at], 512);
        s->news_at = (s->news_at + 1) % NEWS_MOST;
        s->nnews--;
    }
    pthread_mutex_unlock(&s->lock);
    return any;
}

static void
fail(msp_online_server *s, const msp_error *err)
{
    if (!s->failed)
        s->failure = *err;
    s->failed = true;
    pthread_cond_broadcast(&s->news_come);
}

static void
wake(msp_online_server *s)
{
    const uint64_t one = 1;

    if (write(s->wake, &one, sizeof(one)) < 0)
        return; /* it is awake */
}

/* ---- jobs and entries -------------------------------------------------------------------------------------------- */

static bool
is_selected(const msp_online_server *s, uint64_t rank)
{
    for (size_t i = 0; i < s->nranks; i++)
        if (s->ranks[i] == rank)
            return true;
    return false;
}

/* NULL: no memory, or too many. */
static job *
job_of(msp_online_server *s, const char *id, uint64_t rank)
{
    job *j;

    for (size_t i = 0; i < s->njobs; i++)
        if (strcmp(s->jobs[i]->id, id) == 0)
            return s->jobs[i]->rank == rank ? s->jobs[i] : NULL;
    if (s->njobs == JOBS_MOST || !msp_vec_grow((void **)&s->jobs, &s->jobs_cap, s->njobs + 1, sizeof(*s->jobs)))
        return NULL;
    j = msp_alloc_zero(1, sizeof(*j));
    if (j == NULL)
        return NULL;
    snprintf(j->id, sizeof(j->id), "%s", id);
    j->rank = rank;
    return s->jobs[s->njobs++] = j;
}

static kept_verdict *
kept_of(const job *j, uint64_t number)
{
    for (size_t i = 0; i < j->nkept; i++)
        if (j->kept[i].number == number)
            return &j->kept[i];
    return NULL;
}

static void
forget_verdict(job *j, uint64_t number)
{
    kept_verdict *k = kept_of(j, number);

    if (k == NULL)
        return;
    msp_buf_release(&k->frame);
    memmove(k, k + 1, (size_t)(j->kept + j->nkept - (k + 1)) * sizeof(*k));
    j->nkept--;
}

static void
put_verdict(msp_buf *b, uint64_t number, unsigned status, msp_str result, msp_str details)
{
    size_t begin = msp_wire_begin(b, MSP_WIRE_VERDICT);

    msp_wire_put_u(b, number, 8);
    msp_wire_put_u(b, status, 1);
    msp_wire_put_text(b, result);
    msp_wire_put_text(b, details);
    msp_wire_end(b, begin);
}

static msp_status
keep_verdict(job *j, uint64_t number, unsigned status, msp_str result, msp_str details, msp_error *err)
{
    kept_verdict k = {.number = number};

    if (j->nkept == KEPT_MOST)
        forget_verdict(j, j->kept[0].number);
    put_verdict(&k.frame, number, status, result, details);
    if (k.frame.failed || !msp_vec_grow((void **)&j->kept, &j->cap, j->nkept + 1, sizeof(*j->kept))) {
        msp_buf_release(&k.frame);
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    j->kept[j->nkept++] = k;
    return MSP_OK;
}

static bool
is_waiting(const msp_online_server *s, const job *j, uint64_t number)
{
    for (size_t i = 0; i < s->nentries; i++)
        if (s->entries[i]->job == j && s->entries[i]->number == number)
            return true;
    return false;
}

static void
free_entry(entry *e)
{
    msp_free(e->path);
    msp_free(e->name);
    msp_free(e);
}

/* Put a call that has arrived whole into the queue; path is taken. False, and why: it is none, and the file is gone. */
static bool
add_entry(msp_online_server *s, job *j, uint64_t number, char *path_take, bool in_folder, msp_error *why)
{
    msp_online_call call;
    entry *e = msp_alloc_zero(1, sizeof(*e));
    struct stat sb;
    bool good = e != NULL && msp_online_call_open(&call, path_take, why) == MSP_OK;

    if (!good) {
        if (e == NULL)
            msp_error_set(why, MSP_E_NOMEM, "out of memory");
        unlink(path_take);
        msp_free(e);
        msp_free(path_take);
        return false;
    }
    e->path = path_take;
    e->name = msp_alloc(call.name.len + 1, 1);
    good = e->name != NULL && call.number == number && call.rank == j->rank && call.step <= INT64_MAX &&
           stat(path_take, &sb) == 0 &&
           msp_vec_grow((void **)&s->entries, &s->entries_cap, s->nentries + 1, sizeof(*s->entries));
    if (good) {
        memcpy(e->name, call.name.p, call.name.len);
        e->name[call.name.len] = '\0';
        e->id = ++s->ids;
        e->number = number;
        e->step = call.step;
        e->size = (uint64_t)sb.st_size;
        e->job = j;
        e->in_folder = in_folder;
        s->waiting += e->size;
        s->entries[s->nentries++] = e;
        s->served.calls++;
        pthread_cond_broadcast(&s->news_come);
    } else {
        msp_error_set(why, MSP_E_FORMAT, "a damaged call: it is not the one that was announced");
        unlink(path_take);
        free_entry(e);
    }
    msp_online_call_release(&call);
    return good;
}

/* ---- result files ------------------------------------------------------------------------------------------------ */

static void
ignore_name(const char *name, size_t len, void *payload)
{
    (void)name;
    (void)len;
    (void)payload;
}

static msp_status
open_results(msp_online_server *s, result_files *f, msp_error *err)
{
    char step[32], suffix[32], *dir;
    msp_status st;

    snprintf(step, sizeof(step), "step%llu", (unsigned long long)f->step);
    snprintf(suffix, sizeof(suffix), "_rank%llu", (unsigned long long)f->rank);
    dir = msp_path_join(s->dir, step);
    if (dir == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    st = msp_results_open(&f->results, dir, s->stamp, suffix, ignore_name, NULL, err);
    msp_free(dir);
    if (st != MSP_OK)
        return st;
    f->result = msp_path_join("", f->results.result);
    f->details = msp_path_join("", f->results.details);
    return f->result != NULL && f->details != NULL ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

static msp_status
files_of(result_files **out, msp_online_server *s, uint64_t rank, uint64_t step, msp_error *err)
{
    result_files *f;

    for (size_t i = 0; i < s->nfiles; i++)
        if (s->files[i]->rank == rank && s->files[i]->step == step) {
            *out = s->files[i];
            return MSP_OK;
        }
    f = msp_alloc_zero(1, sizeof(*f));
    if (f == NULL || !msp_vec_grow((void **)&s->files, &s->files_cap, s->nfiles + 1, sizeof(*s->files))) {
        msp_free(f);
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    *f = (result_files){.rank = rank, .step = step, .results = MSP_RESULTS_NONE};
    s->files[s->nfiles++] = *out = f;
    return MSP_OK;
}

/* A call that comes twice, because its sender was started anew, has one row. */
static msp_status
add_row(msp_online_server *s, const entry *e, msp_str result, msp_str details, msp_error *err)
{
    result_files *f;
    msp_status st = files_of(&f, s, e->job->rank, e->step, err);
    const char *name;
    bool added = false;

    if (st != MSP_OK)
        return st;
    name = msp_arena_text(&f->text, e->name, strlen(e->name));
    if (name == NULL || msp_map_put(&f->names, msp_str_of(name), 0, &added) == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (!added)
        return MSP_OK;
    if (f->results.result_fd < 0)
        st = open_results(s, f, err);
    return st == MSP_OK ? msp_results_add(&f->results, e->number, result, details, err) : st;
}

static void
end_step(msp_online_server *s, uint64_t rank, uint64_t step)
{
    msp_error err;

    for (size_t i = 0; i < s->nentries; i++)
        if (s->entries[i]->job->rank == rank && s->entries[i]->step == step)
            return; /* of a sender before this one */
    for (size_t i = 0; i < s->nfiles; i++)
        if (s->files[i]->rank == rank && s->files[i]->step == step &&
            msp_results_finish(&s->files[i]->results, &err) != MSP_OK)
            fail(s, &err);
}

static int
by_step(const void *a, const void *b)
{
    const result_files *x = *(result_files *const *)a, *y = *(result_files *const *)b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

bool
msp_online_server_file(msp_online_server *s, size_t i, char result[4096], char details[4096])
{
    bool any;

    pthread_mutex_lock(&s->lock);
    if (s->nfiles > 1)
        qsort(s->files, s->nfiles, sizeof(*s->files), by_step);
    any = i < s->nfiles && s->files[i]->details != NULL;
    if (any) {
        snprintf(result, 4096, "%s", s->files[i]->result);
        snprintf(details, 4096, "%s", s->files[i]->details);
    }
    pthread_mutex_unlock(&s->lock);
    return any;
}

/* ---- connections, in the thread ---------------------------------------------------------------------------------- */

static void
drop_call(peer *p)
{
    if (p->fd >= 0)
        close(p->fd);
    if (p->path != NULL)
        unlink(p->path);
    msp_free(p->path);
    p->fd = -1;
    p->path = NULL;
    p->in_call = false;
}

static void
drop_peer(msp_online_server *s, size_t i, const char *why)
{
    peer *p = s->peers[i];

    drop_call(p);
    msp_conn_close(&p->conn);
    pthread_mutex_lock(&s->lock);
    s->busy_ms = msp_now_ms();
    if (p->job != NULL) {
        p->job->connected = false;
        if (!p->job->ended && why != NULL)
            tell(s, "rank %llu (%s) is gone: %s; it may come back", (unsigned long long)p->job->rank, p->from, why);
    } else if (why != NULL) {
        s->served.refused++;
        tell(s, "a connection from %s was refused: %s", p->from, why);
    }
    pthread_mutex_unlock(&s->lock);
    msp_free(p);
    s->peers[i] = s->peers[--s->npeers];
}

static void
accept_peer(msp_online_server *s)
{
    struct sockaddr_in from;
    socklen_t len = sizeof(from);
    int fd = accept4(s->listener, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    msp_error err;
    peer *p;

    if (fd < 0)
        return;
    p = s->npeers < PEERS_MOST ? msp_alloc_zero(1, sizeof(*p)) : NULL;
    if (p == NULL) {
        close(fd);
        return;
    }
    if (msp_conn_accept(&p->conn, fd, s->tls, &err) != MSP_OK) {
        msp_free(p);
        return;
    }
    p->fd = -1;
    p->since_ms = msp_now_ms();
    inet_ntop(AF_INET, &from.sin_addr, p->from, sizeof(p->from));
    s->peers[s->npeers++] = p;
    pthread_mutex_lock(&s->lock);
    s->served.connections++;
    pthread_mutex_unlock(&s->lock);
}

static void
send_refusal(peer *p, const char *why)
{
    size_t begin = msp_wire_begin(&p->conn.out, MSP_WIRE_REFUSED);

    msp_wire_put_text(&p->conn.out, msp_str_of(why));
    msp_wire_end(&p->conn.out, begin);
    p->leaving = true;
}

static void
name_ranks(const msp_online_server *s, char *out, size_t size)
{
    size_t len = 0;

    for (size_t i = 0; i < s->nranks && len < size; i++)
        len += (size_t)snprintf(out + len, size - len, "%s%llu", i > 0 ? ", " : "", (unsigned long long)s->ranks[i]);
}

static void
say_unselected(const msp_online_server *s, uint64_t rank, char *out, size_t size)
{
    char ranks[200] = "";

    name_ranks(s, ranks, sizeof(ranks));
    snprintf(out, size, "rank %llu is not in the checker's rank_list [%s]", (unsigned long long)rank, ranks);
}

static msp_status
take_hello(msp_online_server *s, peer *p, msp_str payload, msp_error *err)
{
    msp_wire_hello h;
    char id[33], why[400];
    msp_status st = msp_wire_read_hello(&h, payload, err);

    if (st != MSP_OK)
        return st;
    if (p->job != NULL)
        return msp_error_set(err, MSP_E_FORMAT, "it has greeted twice");
    msp_exchange_job_text(id, h.job);
    if (h.lowest > MSP_WIRE_VERSION || h.highest < MSP_WIRE_VERSION) {
        snprintf(why, sizeof(why), "the checker speaks version %d of the protocol", MSP_WIRE_VERSION);
        send_refusal(p, why);
    } else if (!is_selected(s, h.rank)) {
        say_unselected(s, h.rank, why, sizeof(why));
        send_refusal(p, why);
        pthread_mutex_lock(&s->lock);
        s->served.refused++;
        tell(s, "refused: %s", why);
        pthread_mutex_unlock(&s->lock);
    } else {
        pthread_mutex_lock(&s->lock);
        p->job = job_of(s, id, h.rank);
        if (p->job != NULL) {
            p->job->connected = true;
            for (size_t i = 0; i < p->job->nkept; i++)
                p->job->kept[i].sent = false;
        }
        pthread_mutex_unlock(&s->lock);
        if (p->job == NULL)
            send_refusal(p, "the checker has too many senders");
        else
            msp_wire_put_numbers(&p->conn.out, MSP_WIRE_WELCOME, &s->limit, 1);
    }
    for (size_t i = 0; i < s->npeers && p->job != NULL; i++)
        if (s->peers[i] != p && s->peers[i]->job == p->job) {
            s->peers[i]->job = NULL; /* its connection broke and it has not heard yet */
            s->peers[i]->leaving = true;
        }
    return MSP_OK;
}

static msp_status
begin_call(msp_online_server *s, peer *p, msp_str payload, msp_error *err)
{
    uint64_t numbers[2];
    msp_status st = msp_wire_read_numbers(numbers, 2, payload, err);
    char name[64];

    if (st != MSP_OK)
        return st;
    if (p->in_call || numbers[1] == 0 || numbers[1] > s->limit)
        return msp_error_set(err, MSP_E_FORMAT, "a call of %llu bytes, which was not allowed",
                             (unsigned long long)numbers[1]);
    p->number = numbers[0];
    p->size = numbers[1];
    p->got = 0;
    p->in_call = true;
    pthread_mutex_lock(&s->lock);
    p->known = is_waiting(s, p->job, p->number) || kept_of(p->job, p->number) != NULL;
    snprintf(name, sizeof(name), "%llu.call", (unsigned long long)++s->ids);
    pthread_mutex_unlock(&s->lock);
    if (p->known)
        return MSP_OK;
    p->path = msp_path_join(s->incoming, name);
    if (p->path == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    p->fd = open(p->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return p->fd >= 0 ? MSP_OK : msp_file_cannot_write(p->path, errno, err);
}

static void
end_call(msp_online_server *s, peer *p)
{
    char *path = p->path;
    msp_error why;
    bool good;

    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
    p->path = NULL;
    p->in_call = false;
    if (p->known)
        return;
    pthread_mutex_lock(&s->lock);
    good = add_entry(s, p->job, p->number, path, false, &why);
    pthread_mutex_unlock(&s->lock);
    if (!good)
        put_verdict(&p->conn.out, p->number, MSP_PRECHECK_SKIP, (msp_str){"", 0}, msp_str_of(why.message));
}

static msp_status
take_data(msp_online_server *s, peer *p, msp_str payload, msp_error *err)
{
    struct iovec part = {(void *)payload.p, payload.len};
    int e = 0;

    if (!p->in_call || payload.len == 0 || payload.len > p->size - p->got)
        return msp_error_set(err, MSP_E_FORMAT, "data that belongs to no call");
    if (!p->known)
        e = msp_file_put(p->fd, &part, 1, -1);
    if (e != 0) {
        msp_status st = msp_file_cannot_write(p->path, e, err);

        pthread_mutex_lock(&s->lock);
        fail(s, err);
        pthread_mutex_unlock(&s->lock);
        return st;
    }
    p->got += payload.len;
    if (p->got == p->size)
        end_call(s, p);
    return MSP_OK;
}

static msp_status
take_number(msp_online_server *s, peer *p, const msp_wire_frame *f, msp_error *err)
{
    uint64_t number;
    msp_status st = msp_wire_read_numbers(&number, 1, f->payload, err);

    if (st != MSP_OK)
        return st;
    pthread_mutex_lock(&s->lock);
    if (f->kind == MSP_WIRE_ACK)
        forget_verdict(p->job, number);
    else
        end_step(s, p->job->rank, number);
    pthread_mutex_unlock(&s->lock);
    return MSP_OK;
}

static msp_status
take_frame(msp_online_server *s, peer *p, const msp_wire_frame *f, msp_error *err)
{
    if (f->kind == MSP_WIRE_HELLO)
        return take_hello(s, p, f->payload, err);
    if (p->job == NULL)
        return msp_error_set(err, MSP_E_FORMAT, "it has not greeted");
    switch (f->kind) {
    case MSP_WIRE_CALL:
        return begin_call(s, p, f->payload, err);
    case MSP_WIRE_DATA:
        return take_data(s, p, f->payload, err);
    case MSP_WIRE_ACK:
    case MSP_WIRE_STEP:
        return take_number(s, p, f, err);
    case MSP_WIRE_PING:
        return MSP_OK;
    case MSP_WIRE_END:
        pthread_mutex_lock(&s->lock);
        p->job->ended = true;
        pthread_cond_broadcast(&s->news_come);
        pthread_mutex_unlock(&s->lock);
        msp_wire_put_numbers(&p->conn.out, MSP_WIRE_BYE, NULL, 0);
        return MSP_OK;
    default:
        return msp_error_set(err, MSP_E_FORMAT, "a frame of kind %d, which a sender does not send", (int)f->kind);
    }
}

static bool
may_read(msp_online_server *s)
{
    bool room;

    pthread_mutex_lock(&s->lock);
    room = s->waiting < s->limit;
    pthread_mutex_unlock(&s->lock);
    return room;
}

static void
put_verdicts(msp_online_server *s, peer *p)
{
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; p->job != NULL && i < p->job->nkept; i++)
        if (!p->job->kept[i].sent) {
            msp_buf_str(&p->conn.out, msp_buf_view(&p->job->kept[i].frame));
            p->job->kept[i].sent = true;
        }
    pthread_mutex_unlock(&s->lock);
}

/* False: it is over, and *why (NULL: nothing to tell). */
static bool
serve_peer(msp_online_server *s, peer *p, const char **why, msp_error *err)
{
    const bool read = !p->leaving && (p->job == NULL || may_read(s));
    const int64_t now = msp_now_ms();
    msp_status st = msp_conn_pump(&p->conn, read, err);
    msp_wire_frame f;

    *why = err->message;
    while (st == MSP_OK && !p->leaving && (p->job == NULL || may_read(s)) && msp_conn_next(&p->conn, &f, &st, err))
        st = take_frame(s, p, &f, err);
    if (st != MSP_OK)
        return false;
    put_verdicts(s, p);
    if (p->job == NULL && !p->leaving && now - p->since_ms > HELLO_MS) {
        *why = "it has not greeted";
        return false;
    }
    if (p->leaving && now - p->conn.said_ms > HELLO_MS) {
        *why = NULL;
        return false;
    }
    if (p->job != NULL && read && now - p->conn.heard_ms > SILENT_MS) {
        *why = "it has said nothing for 30 s";
        return false;
    }
    if (p->job != NULL && now - p->conn.said_ms > PING_MS && msp_conn_waiting(&p->conn) == 0)
        msp_wire_put_numbers(&p->conn.out, MSP_WIRE_PING, NULL, 0);
    st = msp_conn_pump(&p->conn, false, err);
    *why = p->leaving ? NULL : err->message;
    return st == MSP_OK && !(p->leaving && msp_conn_waiting(&p->conn) == 0);
}

/* ---- the folder, in the thread ----------------------------------------------------------------------------------- */

static void
answer_in_folder(msp_online_server *s, const char *id, uint64_t number, const msp_buf *frame)
{
    char path[4096];
    msp_error err;

    if (msp_exchange_path(path, sizeof(path), s->folder, id, number, "verdict", &err) != MSP_OK ||
        msp_exchange_put_frame(path, frame, &err) != MSP_OK)
        tell(s, "%s", err.message);
}

/* Claim a call and look at it. */
static void
claim(msp_online_server *s, const msp_exchange_name *n)
{
    char from[4096], to[4096], why[400];
    msp_online_call call;
    msp_error err;
    msp_buf frame = {0};
    char *path;
    job *j = NULL;

    if (msp_exchange_path(from, sizeof(from), s->folder, n->job, n->number, "call", &err) != MSP_OK ||
        msp_exchange_path(to, sizeof(to), s->folder, n->job, n->number, "claimed", &err) != MSP_OK ||
        rename(from, to) != 0)
        return; /* somebody else was faster */
    if (msp_online_call_open(&call, to, &err) != MSP_OK) {
        put_verdict(&frame, n->number, MSP_PRECHECK_SKIP, (msp_str){"", 0}, msp_str_of(err.message));
    } else if (!is_selected(s, call.rank)) {
        size_t begin = msp_wire_begin(&frame, MSP_WIRE_REFUSED);

        say_unselected(s, call.rank, why, sizeof(why));
        msp_wire_put_text(&frame, msp_str_of(why));
        msp_wire_end(&frame, begin);
        if (s->served.refused++ == 0)
            tell(s, "refused: %s", why);
    } else {
        j = job_of(s, n->job, call.rank);
    }
    msp_online_call_release(&call);
    path = msp_path_join("", to);
    if (j != NULL && path != NULL && add_entry(s, j, n->number, path, true, &err))
        return;
    if (frame.len == 0)
        put_verdict(&frame, n->number, MSP_PRECHECK_SKIP, (msp_str){"", 0}, msp_str_of(err.message));
    answer_in_folder(s, n->job, n->number, &frame);
    msp_buf_release(&frame);
    unlink(to);
}

static void
take_message(msp_online_server *s, const msp_exchange_name *n, const char *file)
{
    char path[4096], *text = NULL;
    msp_wire_frame f;
    msp_error err;
    bool good;

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", s->folder, file) >= sizeof(path))
        return;
    good = msp_exchange_get_frame(&f, &text, path, &err) == MSP_OK;
    unlink(path);
    for (size_t i = 0; good && i < s->njobs; i++) {
        job *j = s->jobs[i];

        if (strcmp(j->id, n->job) != 0)
            continue;
        if (f.kind == MSP_WIRE_END)
            j->ended = true;
        else if (f.kind == MSP_WIRE_STEP)
            end_step(s, j->rank, n->number);
    }
    msp_free(text);
    if (!good)
        tell(s, "%s", err.message);
    pthread_cond_broadcast(&s->news_come);
}

static void
beat(msp_online_server *s)
{
    char path[4096];
    msp_buf frame = {0};
    msp_error err;

    if (msp_now_ms() - s->beat_ms < MSP_EXCHANGE_BEAT_MS)
        return;
    s->beat_ms = msp_now_ms();
    msp_wire_put_numbers(&frame, MSP_WIRE_ALIVE, (uint64_t[]){++s->beat, s->limit}, 2);
    snprintf(path, sizeof(path), "%s/checker.alive", s->folder);
    if (msp_exchange_put_frame(path, &frame, &err) != MSP_OK) {
        pthread_mutex_lock(&s->lock);
        tell(s, "%s", err.message);
        pthread_mutex_unlock(&s->lock);
    }
    msp_buf_release(&frame);
}

static void
serve_folder(msp_online_server *s)
{
    msp_dir_list names;

    beat(s);
    if (msp_dir_list_read(&names, s->folder, NULL) != MSP_OK)
        return;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < names.count; i++) {
        msp_exchange_name n = msp_exchange_parse(names.names[i]);

        if (n.kind == MSP_FILE_CALL && s->waiting < s->limit)
            claim(s, &n);
        else if (n.kind == MSP_FILE_STEP || n.kind == MSP_FILE_END)
            take_message(s, &n, names.names[i]);
        if (n.kind != MSP_FILE_OTHER && n.kind != MSP_FILE_VERDICT)
            s->busy_ms = msp_now_ms();
    }
    pthread_mutex_unlock(&s->lock);
    msp_dir_list_release(&names);
}

/* What a checker before this one had claimed, and not answered. */
static void
give_back_claims(const char *folder)
{
    msp_dir_list names;
    char from[4096], to[4096];

    if (msp_dir_list_read(&names, folder, NULL) != MSP_OK)
        return;
    for (size_t i = 0; i < names.count; i++) {
        msp_exchange_name n = msp_exchange_parse(names.names[i]);

        if (n.kind == MSP_FILE_CLAIMED &&
            msp_exchange_path(from, sizeof(from), folder, n.job, n.number, "claimed", NULL) == MSP_OK &&
            msp_exchange_path(to, sizeof(to), folder, n.job, n.number, "call", NULL) == MSP_OK && rename(from, to) != 0)
            continue; /* gone already */
    }
    msp_dir_list_release(&names);
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void
wait_for_somebody(msp_online_server *s)
{
    struct pollfd fds[PEERS_MOST + 2];
    nfds_t n = 0;
    uint64_t count;
    int ms = POLL_MS;

    fds[n++] = (struct pollfd){s->wake, POLLIN, 0};
    if (s->listener >= 0)
        fds[n++] = (struct pollfd){s->listener, POLLIN, 0};
    for (size_t i = 0; i < s->npeers; i++) {
        const peer *p = s->peers[i];
        const bool read = !p->leaving && (p->job == NULL || may_read(s));

        if (read && p->conn.tls != NULL && msp_tls_has_more(p->conn.tls))
            ms = 0;
        fds[n] = (struct pollfd){p->conn.fd, msp_conn_events(&p->conn, read), 0};
        if (fds[n].events == 0)
            fds[n].fd = -1; /* poll() would come back at once for one that has hung up and is not read from */
        n++;
    }
    poll(fds, n, ms);
    if ((fds[0].revents & POLLIN) != 0 && read(s->wake, &count, sizeof(count)) < 0)
        return; /* somebody has taken it */
}

static void *
thread_main(void *payload)
{
    msp_online_server *s = payload;
    const char *why;
    bool stop = false;
    msp_error err;

    while (!stop) {
        wait_for_somebody(s);
        if (s->listener >= 0)
            accept_peer(s);
        for (size_t i = s->npeers; i-- > 0;) {
            err.message[0] = '\0';
            if (!serve_peer(s, s->peers[i], &why, &err))
                drop_peer(s, i, why);
        }
        if (s->folder != NULL)
            serve_folder(s);
        pthread_mutex_lock(&s->lock);
        for (size_t i = 0; i < s->npeers; i++)
            if (s->peers[i]->job != NULL && !s->peers[i]->job->ended)
                s->busy_ms = msp_now_ms();
        stop = s->stop;
        pthread_mutex_unlock(&s->lock);
    }
    while (s->npeers > 0)
        drop_peer(s, 0, NULL);
    return NULL;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static msp_status
listen_on(msp_online_server *s, const msp_online_address *a, msp_error *err)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)a->port)};
    socklen_t len = sizeof(at);
    const int yes = 1;

    if (inet_pton(AF_INET, a->host, &at.sin_addr) != 1)
        return msp_error_set(err, MSP_E_INVALID, "host is \"%s\"; it must be an IPv4 address such as 127.0.0.1",
                             a->host);
    if (a->tls != NULL) {
        msp_status st = msp_tls_side_open(&s->tls, a->tls, true, err);

        if (st != MSP_OK)
            return st;
    }
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->listener < 0)
        return msp_error_set_errno(err, MSP_E_IO, errno, "cannot make a socket");
    setsockopt(s->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(s->listener, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(s->listener, BACKLOG) != 0 ||
        getsockname(s->listener, (struct sockaddr *)&at, &len) != 0)
        return msp_error_set_errno(err, MSP_E_IO, errno, "cannot listen on %s:%d", a->host, a->port);
    s->served.port = ntohs(at.sin_port);
    return MSP_OK;
}

static void
empty_incoming(const char *dir)
{
    msp_dir_list names;
    char *path;

    if (msp_dir_list_read(&names, dir, NULL) != MSP_OK)
        return;
    for (size_t i = 0; i < names.count; i++) {
        path = msp_path_join(dir, names.names[i]);
        if (path != NULL)
            unlink(path);
        msp_free(path);
    }
    msp_dir_list_release(&names);
    rmdir(dir);
}

/* Folders of checkers that were killed. */
static void
remove_stale(const char *dir)
{
    msp_dir_list names;
    char *path;

    if (msp_dir_list_read(&names, dir, NULL) != MSP_OK)
        return;
    for (size_t i = 0; i < names.count; i++) {
        long pid = strncmp(names.names[i], ".online-", 8) == 0 ? strtol(names.names[i] + 8, NULL, 10) : 0;

        if (pid <= 0 || kill((pid_t)pid, 0) == 0 || errno != ESRCH)
            continue;
        path = msp_path_join(dir, names.names[i]);
        if (path != NULL)
            empty_incoming(path);
        msp_free(path);
    }
    msp_dir_list_release(&names);
}

static msp_status
make_incoming(msp_online_server *s, msp_error *err)
{
    char name[64];
    msp_status st = msp_path_make_dirs(s->dir, err);

    if (st != MSP_OK)
        return st;
    remove_stale(s->dir);
    snprintf(name, sizeof(name), ".online-%ld", (long)getpid());
    s->incoming = msp_path_join(s->dir, name);
    if (s->incoming == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (mkdir(s->incoming, 0700) != 0 && errno != EEXIST)
        return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot be made", s->incoming);
    return MSP_OK;
}

static msp_status
prepare(msp_online_server *s, const msp_online_serving *opt, msp_error *err)
{
    msp_status st = MSP_OK;

    s->dir = msp_path_join("", opt->dir);
    s->folder = opt->address.folder == NULL ? NULL : msp_path_join("", opt->address.folder);
    s->ranks = msp_alloc(opt->nranks, sizeof(*s->ranks));
    s->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (s->dir == NULL || s->ranks == NULL || (s->folder == NULL && opt->address.folder != NULL))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (s->wake < 0)
        return msp_error_set_errno(err, MSP_E_IO, errno, "cannot make an eventfd");
    memcpy(s->ranks, opt->ranks, opt->nranks * sizeof(*s->ranks));
    s->nranks = opt->nranks;
    s->limit = opt->limit;
    s->idle_ms = opt->idle_ms;
    s->busy_ms = msp_now_ms();
    s->beat = (uint64_t)time(NULL) << 16; /* not where one before us stood */
    s->beat_ms = msp_now_ms() - MSP_EXCHANGE_BEAT_MS;
    snprintf(s->stamp, sizeof(s->stamp), "%s", opt->stamp);
    st = make_incoming(s, err);
    if (st == MSP_OK && s->folder == NULL)
        st = listen_on(s, &opt->address, err);
    if (st == MSP_OK && s->folder != NULL)
        give_back_claims(s->folder);
    return st;
}

msp_status
msp_online_serve(msp_online_server **out, const msp_online_serving *opt, msp_error *err)
{
    msp_status st = msp_online_check_address(&opt->address, true, err);
    msp_online_server *s;
    sigset_t all, old;
    int e;

    *out = NULL;
    if (st != MSP_OK)
        return st;
    s = msp_alloc_zero(1, sizeof(*s));
    if (s == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->news_come, NULL);
    s->listener = s->wake = -1;
    st = prepare(s, opt, err);
    if (st == MSP_OK) {
        sigfillset(&all); /* the program's handlers run in its own threads; a broken pipe is an error of write() here */
        pthread_sigmask(SIG_SETMASK, &all, &old);
        e = pthread_create(&s->thread, NULL, thread_main, s);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        s->has_thread = e == 0;
        if (e != 0)
            st = msp_error_set_errno(err, MSP_E_IO, e, "cannot start a thread");
    }
    if (st != MSP_OK) {
        msp_online_server_close(s);
        return st;
    }
    *out = s;
    return MSP_OK;
}

void
msp_online_server_close(msp_online_server *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread) {
        wake(s);
        pthread_join(s->thread, NULL);
    }
    for (size_t i = 0; i < s->nentries; i++)
        free_entry(s->entries[i]);
    for (size_t i = 0; i < s->nfiles; i++) {
        if (s->files[i]->results.result_fd >= 0)
            (void)!msp_results_finish(&s->files[i]->results, NULL);
        msp_free(s->files[i]->result);
        msp_free(s->files[i]->details);
        msp_map_release(&s->files[i]->names);
        msp_arena_release(&s->files[i]->text);
        msp_free(s->files[i]);
    }
    for (size_t i = 0; i < s->njobs; i++) {
        while (s->jobs[i]->nkept > 0)
            forget_verdict(s->jobs[i], s->jobs[i]->kept[0].number);
        msp_free(s->jobs[i]->kept);
        msp_free(s->jobs[i]);
    }
    if (s->incoming != NULL)
        empty_incoming(s->incoming);
    if (s->listener >= 0)
        close(s->listener);
    if (s->wake >= 0)
        close(s->wake);
    msp_tls_side_close(s->tls);
    msp_free(s->entries);
    msp_free(s->files);
    msp_free(s->jobs);
    msp_free(s->ranks);
    msp_free(s->dir);
    msp_free(s->folder);
    msp_free(s->incoming);
    pthread_cond_destroy(&s->news_come);
    pthread_mutex_destroy(&s->lock);
    msp_free(s);
}

/* ---- work and answers -------------------------------------------------------------------------------------------- */

static size_t
count_ended(const msp_online_server *s)
{
    size_t n = 0;

    for (size_t r = 0; r < s->nranks; r++) {
        bool any = false, all = true;

        for (size_t i = 0; i < s->njobs; i++)
            if (s->jobs[i]->rank == s->ranks[r]) {
                any |= s->jobs[i]->ended;
                all &= s->jobs[i]->ended || !s->jobs[i]->connected; /* a new sender after one that died */
            }
        n += any && all;
    }
    return n;
}

static bool
is_over(msp_online_server *s)
{
    if (s->nentries > 0)
        return false;
    if (count_ended(s) == s->nranks)
        return true;
    s->served.idle = s->idle_ms > 0 && msp_now_ms() - s->busy_ms >= s->idle_ms;
    return s->served.idle;
}

static entry *
first_waiting(const msp_online_server *s)
{
    for (size_t i = 0; i < s->nentries; i++)
        if (!s->entries[i]->taken)
            return s->entries[i];
    return NULL;
}

static struct timespec
in_ms(int ms)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

msp_status
msp_online_next(msp_online_server *s, msp_online_work *out, int ms, msp_error *err)
{
    const struct timespec until = in_ms(ms);
    msp_status st = MSP_OK;
    entry *e = NULL;
    int waited = 0;

    pthread_mutex_lock(&s->lock);
    while (st == MSP_OK && (e = first_waiting(s)) == NULL) {
        if (s->failed) {
            *err = s->failure;
            st = s->failure.status;
        } else if (is_over(s)) {
            st = msp_error_set(err, MSP_E_CANCELLED, "everything is checked");
        } else if (waited != 0 || s->nnews > 0) {
            st = msp_error_set(err, MSP_E_NOT_FOUND, "nothing to check now");
        } else {
            waited = pthread_cond_timedwait(&s->news_come, &s->lock, &until);
        }
    }
    if (st == MSP_OK) {
        e->taken = true;
        out->id = e->id;
        snprintf(out->path, sizeof(out->path), "%s", e->path);
        snprintf(out->name, sizeof(out->name), "%s", e->name);
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

static void
remove_entry(msp_online_server *s, size_t i)
{
    entry *e = s->entries[i];

    unlink(e->path);
    s->waiting -= e->size;
    free_entry(e);
    memmove(s->entries + i, s->entries + i + 1, (s->nentries - i - 1) * sizeof(*s->entries));
    s->nentries--;
}

msp_status
msp_online_answer(msp_online_server *s, uint64_t id, msp_precheck_status status, const char *result, size_t result_len,
                  const char *details, size_t details_len, msp_error *err)
{
    msp_str row = {result, result_len}, rows = {details, details_len};
    msp_status st = MSP_OK;
    size_t i = 0;
    entry *e;

    if (result_len + details_len + 1024 > MSP_WIRE_MOST)
        rows.len = 0; /* thousands of results: the verdict counts */
    pthread_mutex_lock(&s->lock);
    while (i < s->nentries && s->entries[i]->id != id)
        i++;
    if (i == s->nentries) {
        pthread_mutex_unlock(&s->lock);
        return msp_error_set(err, MSP_E_INVALID, "no call of this number is being checked");
    }
    e = s->entries[i];
    st = add_row(s, e, row, (msp_str){details, details_len}, err);
    if (st == MSP_OK && e->in_folder) {
        msp_buf frame = {0};

        put_verdict(&frame, e->number, (unsigned)status, row, rows);
        answer_in_folder(s, e->job->id, e->number, &frame);
        msp_buf_release(&frame);
    } else if (st == MSP_OK) {
        st = keep_verdict(e->job, e->number, (unsigned)status, row, rows, err);
    }
    if (st == MSP_OK)
        s->served.answered++;
    else
        fail(s, err);
    remove_entry(s, i);
    pthread_mutex_unlock(&s->lock);
    wake(s);
    return st;
}

void
msp_online_server_count(msp_online_server *s, msp_online_served *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->served;
    out->ended = count_ended(s);
    out->lost = 0;
    for (size_t i = 0; i < s->njobs; i++)
        out->lost += !s->jobs[i]->ended && !s->jobs[i]->connected;
    pthread_mutex_unlock(&s->lock);
}
