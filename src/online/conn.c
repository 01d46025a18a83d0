/* conn.c - see conn.h. */
#include "online/conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    TURN = 1 << 20,         /* bytes that are read before others have their turn */
    KEEP_AT_MOST = 1 << 18, /* of used-up bytes before those that follow are moved to the front */
    READ_AT_ONCE = 1 << 16
};

int64_t
msp_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool
msp_host_is_here(const char *host)
{
    struct in_addr a;

    return inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127;
}

static void
set_up(msp_conn *c, int fd)
{
    const int yes = 1;

    *c = MSP_CONN_NONE;
    c->fd = fd;
    c->heard_ms = c->said_ms = msp_now_ms();
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

msp_status
msp_conn_connect(msp_conn *out, const char *host, int port, msp_tls_side *side, msp_error *err)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    msp_status st = MSP_OK;
    int fd;

    *out = MSP_CONN_NONE;
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1)
        return msp_error_set(err, MSP_E_INVALID, "host is \"%s\"; it must be an IPv4 address such as 127.0.0.1", host);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return msp_error_set_errno(err, MSP_E_IO, errno, "cannot make a socket");
    set_up(out, fd);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0) {
        if (errno == EINPROGRESS)
            out->connecting = true;
        else
            st = msp_error_set_errno(err, MSP_E_IO, errno, "%s:%d", host, port);
    }
    if (st == MSP_OK && side != NULL)
        st = msp_tls_begin(&out->tls, side, fd, host, err);
    if (st != MSP_OK)
        msp_conn_close(out);
    return st;
}

msp_status
msp_conn_accept(msp_conn *out, int fd, msp_tls_side *side, msp_error *err)
{
    msp_status st = MSP_OK;

    set_up(out, fd);
    if (side != NULL)
        st = msp_tls_begin(&out->tls, side, fd, NULL, err);
    if (st != MSP_OK)
        msp_conn_close(out);
    return st;
}

void
msp_conn_close(msp_conn *c)
{
    msp_tls_end(c->tls);
    if (c->fd >= 0)
        close(c->fd);
    msp_buf_release(&c->in);
    msp_buf_release(&c->out);
    *c = MSP_CONN_NONE;
}

size_t
msp_conn_waiting(const msp_conn *c)
{
    return c->out.len - c->out_at;
}

short
msp_conn_events(const msp_conn *c, bool read)
{
    short events = 0;

    if (c->connecting)
        return POLLOUT;
    if (read)
        events |= c->read_wants == MSP_TLS_WRITE ? POLLOUT : POLLIN;
    if (msp_conn_waiting(c) > 0)
        events |= c->write_wants == MSP_TLS_READ ? POLLIN : POLLOUT;
    return events;
}

static msp_status
end_connecting(msp_conn *c, msp_error *err)
{
    struct pollfd p = {c->fd, POLLOUT, 0};
    socklen_t len = sizeof(int);
    int e = 0;

    if (poll(&p, 1, 0) <= 0)
        return MSP_OK;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &e, &len) != 0)
        e = errno;
    if (e != 0)
        return msp_error_set_errno(err, MSP_E_IO, e, "cannot connect");
    c->connecting = false;
    c->heard_ms = msp_now_ms();
    return MSP_OK;
}

static msp_status
read_some(msp_conn *c, void *p, size_t n, size_t *done, bool *over, msp_error *err)
{
    ssize_t got;

    if (c->tls != NULL)
        return msp_tls_read(c->tls, p, n, done, &c->read_wants, over, err);
    *done = 0;
    got = recv(c->fd, p, n, 0);
    if (got > 0)
        *done = (size_t)got;
    else if (got == 0)
        *over = true;
    else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        return msp_error_set_errno(err, MSP_E_IO, errno, "the connection broke");
    return MSP_OK;
}

static msp_status
read_all(msp_conn *c, msp_error *err)
{
    size_t turn = 0, done = 1;
    bool over = false;
    msp_status st = MSP_OK;

    if (c->in_at == c->in.len) {
        msp_buf_clear(&c->in);
        c->in_at = 0;
    } else if (c->in_at > KEEP_AT_MOST) {
        memmove(c->in.p, c->in.p + c->in_at, c->in.len - c->in_at);
        c->in.len -= c->in_at;
        c->in_at = 0;
    }
    while (st == MSP_OK && turn < TURN && !over) {
        char *room = msp_buf_room(&c->in, READ_AT_ONCE);

        if (room == NULL)
            return msp_error_set(err, MSP_E_NOMEM, "out of memory");
        st = read_some(c, room, READ_AT_ONCE, &done, &over, err);
        if (done == 0)
            break;
        c->in.len += done;
        turn += done;
    }
    if (turn > 0)
        c->heard_ms = msp_now_ms();
    /* what came before the end is used first */
    return st == MSP_OK && over && turn == 0 ? msp_error_set(err, MSP_E_IO, "the peer has closed the connection") : st;
}

static msp_status
write_some(msp_conn *c, const void *p, size_t n, size_t *done, msp_error *err)
{
    ssize_t put;

    if (c->tls != NULL)
        return msp_tls_write(c->tls, p, n, done, &c->write_wants, err);
    *done = 0;
    put = send(c->fd, p, n, MSG_NOSIGNAL);
    if (put > 0)
        *done = (size_t)put;
    else if (put < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        return msp_error_set_errno(err, MSP_E_IO, errno, "the connection broke");
    return MSP_OK;
}

static msp_status
write_all(msp_conn *c, msp_error *err)
{
    msp_status st = MSP_OK;
    size_t done = 1;

    while (st == MSP_OK && msp_conn_waiting(c) > 0 && done > 0) {
        st = write_some(c, c->out.p + c->out_at, msp_conn_waiting(c), &done, err);
        c->out_at += done;
        if (done > 0)
            c->said_ms = msp_now_ms();
    }
    if (c->out_at == c->out.len) {
        msp_buf_clear(&c->out);
        c->out_at = 0;
    }
    return st;
}

msp_status
msp_conn_pump(msp_conn *c, bool read, msp_error *err)
{
    msp_status st = c->connecting ? end_connecting(c, err) : MSP_OK;

    if (st != MSP_OK || c->connecting)
        return st;
    st = msp_buf_status(&c->out, err);
    if (st == MSP_OK)
        st = write_all(c, err);
    if (st == MSP_OK && read)
        st = read_all(c, err);
    return st;
}

bool
msp_conn_next(msp_conn *c, msp_wire_frame *out, msp_status *st, msp_error *err)
{
    size_t used = 0;

    *st = msp_wire_parse(out, &used, c->in.p + c->in_at, c->in.len - c->in_at, err);
    if (*st != MSP_OK || used == 0)
        return false;
    c->in_at += used;
    return true;
}
