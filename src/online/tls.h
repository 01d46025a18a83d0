/*
 * tls.h - TLS 1.2 and later by OpenSSL, for connections that leave this machine.
 *
 * libssl is loaded when a folder of certificates is named, and not before: the command and the extension do not depend
 * on it, and a training process never has it in memory, because the sender is another one.
 *
 * The folder holds <side>.key and <side>.crt, side being "client" or "server", and ca.crt, which both sides'
 * certificates must be signed by. The checker asks every sender for its certificate; the sender asks for one that names
 * the address it has connected to. A key that others may read is refused.
 */
#ifndef MSP_ONLINE_TLS_H
#define MSP_ONLINE_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include "msprobe/error.h"

typedef struct msp_tls_side msp_tls_side; /* one side's key and what it trusts */
typedef struct msp_tls msp_tls;           /* one connection */

/* Load keys and certificates from dir and check them. MSP_E_INVALID says which file is wrong, and how. */
MSP_CHECK msp_status msp_tls_side_open(msp_tls_side **out, const char *dir, bool server, msp_error *err);
void msp_tls_side_close(msp_tls_side *s); /* accepts NULL */

/* Begin TLS on a connected socket that does not block; host is the address whose certificate is expected (client). */
MSP_CHECK msp_status msp_tls_begin(msp_tls **out, msp_tls_side *side, int fd, const char *host, msp_error *err);
void msp_tls_end(msp_tls *t); /* accepts NULL; the socket stays open */

typedef enum msp_tls_want { MSP_TLS_NOTHING = 0, MSP_TLS_READ, MSP_TLS_WRITE } msp_tls_want;

/*
 * Read or write up to n bytes, shaking hands first; *done is how many, and *want what to wait for when that is 0.
 * *over: the peer has ended the connection. MSP_E_INVALID: the peer was not accepted, or did not accept this side:
 * trying again is of no use before somebody changes a file. MSP_E_IO: the connection broke.
 */
MSP_CHECK msp_status msp_tls_read(msp_tls *t, void *p, size_t n, size_t *done, msp_tls_want *want, bool *over,
                                  msp_error *err);
MSP_CHECK msp_status msp_tls_write(msp_tls *t, const void *p, size_t n, size_t *done, msp_tls_want *want,
                                   msp_error *err);

/* Bytes that were received and not read yet, which poll() does not know of. */
bool msp_tls_has_more(const msp_tls *t);

#endif
