/*
 * conn.h - one connection of online run_ut: frames in, frames out, over a socket that never blocks, with or without
 * TLS.
 *
 * One thread owns a connection. What is put waits in a buffer until the socket takes it; a reader that does not ask for
 * more lets the peer's own buffers fill up, which is how a checker slows a sender down.
 */
#ifndef MSP_ONLINE_CONN_H
#define MSP_ONLINE_CONN_H

#include <poll.h>
#include <stdint.h>
#include "online/tls.h"
#include "online/wire.h"

typedef struct msp_conn {
    int fd; /* -1: closed */
    bool connecting;
    msp_tls *tls; /* NULL: plain */
    msp_buf in, out;
    size_t in_at, out_at;     /* what is used up */
    msp_tls_want write_wants; /* what the last write waited for; TLS may have to read first */
    msp_tls_want read_wants;
    int64_t heard_ms, said_ms; /* when bytes came, and went, last */
} msp_conn;

#define MSP_CONN_NONE ((msp_conn){.fd = -1})

/* Milliseconds of a clock that only goes forward. */
int64_t msp_now_ms(void);

/* An address as text is IPv4, and on this machine when it begins with 127. */
bool msp_host_is_here(const char *host);

/* Begin to connect; side NULL: without TLS. MSP_E_IO, MSP_E_INVALID. */
MSP_CHECK msp_status msp_conn_connect(msp_conn *out, const char *host, int port, msp_tls_side *side, msp_error *err);

/* Take over an accepted socket. */
MSP_CHECK msp_status msp_conn_accept(msp_conn *out, int fd, msp_tls_side *side, msp_error *err);

/* Close it; accepts MSP_CONN_NONE. */
void msp_conn_close(msp_conn *c);

/* What poll() has to look for, when this side wants to read or only to write what waits. */
short msp_conn_events(const msp_conn *c, bool read);

/* Bytes that wait for being sent. */
size_t msp_conn_waiting(const msp_conn *c);

/* Move bytes both ways, as far as they go now. MSP_E_IO: the connection is over; MSP_E_INVALID: see tls.h. */
MSP_CHECK msp_status msp_conn_pump(msp_conn *c, bool read, msp_error *err);

/* The next whole frame; false: there is none yet, or *st says what is wrong. It is valid until the next pump. */
bool msp_conn_next(msp_conn *c, msp_wire_frame *out, msp_status *st, msp_error *err);

#endif
