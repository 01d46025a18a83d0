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
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/path.h"
#include "online/server.h"
#include "online/share.h"

enum { POLL_MS = 100, BACKLOG = 64 };

static void
wake(msp_online_server *s)
{
    const uint64_t one = 1;

    if (write(s->wake, &one, sizeof(one)) < 0)
        return; /* it is awake */
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void
wait_for_somebody(msp_online_server *s)
{
    struct pollfd fds[MSP_SERVER_PEERS + 2];
    nfds_t n = 0;
    uint64_t count;
    int ms = POLL_MS;

    fds[n++] = (struct pollfd){s->wake, POLLIN, 0};
    if (s->listener >= 0)
        fds[n++] = (struct pollfd){s->listener, POLLIN, 0};
    for (size_t i = 0; i < s->npeers; i++) {
        const msp_server_peer *p = s->peers[i];
        const bool read = !p->leaving && (p->job == NULL || msp_server_may_read(s));

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
            msp_server_accept(s);
        for (size_t i = s->npeers; i-- > 0;) {
            err.message[0] = '\0';
            if (!msp_server_talk(s, s->peers[i], &why, &err))
                msp_server_drop(s, i, why);
        }
        if (s->folder != NULL)
            msp_server_look_into_folder(s);
        pthread_mutex_lock(&s->lock);
        for (size_t i = 0; i < s->npeers; i++)
            if (s->peers[i]->job != NULL && !s->peers[i]->job->ended)
                s->busy_ms = msp_now_ms();
        stop = s->stop;
        pthread_mutex_unlock(&s->lock);
    }
    while (s->npeers > 0)
        msp_server_drop(s, 0, NULL);
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
        msp_server_give_back_claims(s->folder);
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
        msp_server_free_entry(s->entries[i]);
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
            msp_server_forget(s->jobs[i], s->jobs[i]->kept[0].number);
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

static msp_server_entry *
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
    msp_server_entry *e = NULL;
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
    msp_server_entry *e = s->entries[i];

    unlink(e->path);
    s->waiting -= e->size;
    msp_server_free_entry(e);
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
    msp_server_entry *e;

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
    st = msp_server_add_row(s, e, row, (msp_str){details, details_len}, err);
    if (st == MSP_OK && e->in_folder) {
        msp_buf frame = {0};

        msp_server_put_verdict(&frame, e->number, (unsigned)status, row, rows);
        msp_server_answer_in_folder(s, e->job->id, e->number, &frame);
        msp_buf_release(&frame);
    } else if (st == MSP_OK) {
        st = msp_server_keep(e->job, e->number, (unsigned)status, row, rows, err);
    }
    if (st == MSP_OK)
        s->served.answered++;
    else
        msp_server_fail(s, err);
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
