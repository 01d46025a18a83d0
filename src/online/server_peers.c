/* server_peers.c - the checker's connections: greetings, calls that come in, verdicts that go out. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"
#include "online/server.h"

enum { HELLO_MS = 10000, SILENT_MS = 30000, PING_MS = 2000, HELLO_MOST = 1 << 16 };

static void
drop_call(msp_server_peer *p)
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

void
msp_server_drop(msp_online_server *s, size_t i, const char *why)
{
    msp_server_peer *p = s->peers[i];

    drop_call(p);
    msp_conn_close(&p->conn);
    pthread_mutex_lock(&s->lock);
    s->busy_ms = msp_now_ms();
    if (p->job != NULL) {
        p->job->connected = false;
        if (!p->job->ended && why != NULL)
            msp_server_tell(s, "rank %llu (%s) is gone: %s; it may come back", (unsigned long long)p->job->rank,
                            p->from, why);
    } else if (why != NULL) {
        s->served.refused++;
        msp_server_tell(s, "a connection from %s was refused: %s", p->from, why);
    }
    pthread_mutex_unlock(&s->lock);
    msp_free(p);
    s->peers[i] = s->peers[--s->npeers];
}

/* Who holds a place without having greeted makes room for others: the one that does so longest. */
static void
make_room(msp_online_server *s)
{
    size_t oldest = s->npeers;

    for (size_t i = 0; i < s->npeers; i++)
        if (s->peers[i]->job == NULL && (oldest == s->npeers || s->peers[i]->since_ms < s->peers[oldest]->since_ms))
            oldest = i;
    if (s->npeers == MSP_SERVER_PEERS && oldest < s->npeers)
        msp_server_drop(s, oldest, "it has not greeted, and others want to come in");
}

void
msp_server_accept(msp_online_server *s)
{
    struct sockaddr_in from;
    socklen_t len = sizeof(from);
    int fd = accept4(s->listener, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    msp_error err;
    msp_server_peer *p;

    if (fd < 0)
        return;
    make_room(s);
    p = s->npeers < MSP_SERVER_PEERS ? msp_alloc_zero(1, sizeof(*p)) : NULL;
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
send_refusal(msp_server_peer *p, const char *why)
{
    size_t begin = msp_wire_begin(&p->conn.out, MSP_WIRE_REFUSED);

    msp_wire_put_text(&p->conn.out, msp_str_of(why));
    msp_wire_end(&p->conn.out, begin);
    p->leaving = true;
}

static msp_status
take_hello(msp_online_server *s, msp_server_peer *p, msp_str payload, msp_error *err)
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
    } else if (!msp_server_selects(s, h.rank)) {
        msp_server_say_unselected(s, h.rank, why, sizeof(why));
        send_refusal(p, why);
        pthread_mutex_lock(&s->lock);
        s->served.refused++;
        msp_server_tell(s, "refused: %s", why);
        pthread_mutex_unlock(&s->lock);
    } else {
        pthread_mutex_lock(&s->lock);
        p->job = msp_server_job_of(s, id, h.rank);
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
begin_call(msp_online_server *s, msp_server_peer *p, msp_str payload, msp_error *err)
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
    p->known = msp_server_is_waiting(s, p->job, p->number) || msp_server_kept(p->job, p->number) != NULL;
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
end_call(msp_online_server *s, msp_server_peer *p)
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
    good = msp_server_add(s, p->job, p->number, path, false, &why);
    pthread_mutex_unlock(&s->lock);
    if (!good)
        msp_server_put_verdict(&p->conn.out, p->number, MSP_PRECHECK_SKIP, (msp_str){"", 0}, msp_str_of(why.message));
}

static msp_status
take_data(msp_online_server *s, msp_server_peer *p, msp_str payload, msp_error *err)
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
        msp_server_fail(s, err);
        pthread_mutex_unlock(&s->lock);
        return st;
    }
    p->got += payload.len;
    if (p->got == p->size)
        end_call(s, p);
    return MSP_OK;
}

static msp_status
take_number(msp_online_server *s, msp_server_peer *p, const msp_wire_frame *f, msp_error *err)
{
    uint64_t number;
    msp_status st = msp_wire_read_numbers(&number, 1, f->payload, err);

    if (st != MSP_OK)
        return st;
    pthread_mutex_lock(&s->lock);
    if (f->kind == MSP_WIRE_ACK)
        msp_server_forget(p->job, number);
    else
        msp_server_end_step(s, p->job->rank, number);
    pthread_mutex_unlock(&s->lock);
    return MSP_OK;
}

static msp_status
take_frame(msp_online_server *s, msp_server_peer *p, const msp_wire_frame *f, msp_error *err)
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

bool
msp_server_may_read(msp_online_server *s)
{
    bool room;

    pthread_mutex_lock(&s->lock);
    room = s->waiting < s->limit;
    pthread_mutex_unlock(&s->lock);
    return room;
}

static void
put_verdicts(msp_online_server *s, msp_server_peer *p)
{
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; p->job != NULL && i < p->job->nkept; i++)
        if (!p->job->kept[i].sent) {
            msp_buf_str(&p->conn.out, msp_buf_view(&p->job->kept[i].frame));
            p->job->kept[i].sent = true;
        }
    pthread_mutex_unlock(&s->lock);
}

bool
msp_server_talk(msp_online_server *s, msp_server_peer *p, const char **why, msp_error *err)
{
    const bool read = !p->leaving && (p->job == NULL || msp_server_may_read(s));
    const int64_t now = msp_now_ms();
    msp_status st = msp_conn_pump(&p->conn, read, err);
    msp_wire_frame f;

    *why = err->message;
    while (st == MSP_OK && !p->leaving && (p->job == NULL || msp_server_may_read(s)) &&
           msp_conn_next(&p->conn, &f, &st, err))
        st = take_frame(s, p, &f, err);
    if (st != MSP_OK)
        return false;
    put_verdicts(s, p);
    if (p->job == NULL && !p->leaving && p->conn.in.len - p->conn.in_at > HELLO_MOST) {
        *why = "its greeting does not end";
        return false;
    }
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
