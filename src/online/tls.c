/* tls.c - see tls.h. */
#include "online/tls.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "core/alloc.h"

#ifdef MSP_HAVE_TLS
#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the library ------------------------------------------------------------------------------------------------- */

#if OPENSSL_VERSION_NUMBER >= 0x30000000L
#define LIBSSL    "libssl.so.3"
#define LIBCRYPTO "libcrypto.so.3"
#else
#define LIBSSL    "libssl.so.1.1"
#define LIBCRYPTO "libcrypto.so.1.1"
#endif

/* clang-format has no order for these that it would keep */
/* clang-format off */
#define SSL_FUNCTIONS(X) \
    X(TLS_method) X(SSL_CTX_new) X(SSL_CTX_free) X(SSL_CTX_ctrl) X(SSL_CTX_set_verify) \
    X(SSL_CTX_set_cipher_list) X(SSL_CTX_use_PrivateKey_file) \
    X(SSL_CTX_use_certificate_chain_file) X(SSL_CTX_check_private_key) \
    X(SSL_CTX_load_verify_locations) X(SSL_CTX_set_options) X(SSL_CTX_set_default_passwd_cb) \
    X(SSL_new) X(SSL_free) X(SSL_set_fd) X(SSL_set_connect_state) X(SSL_set_accept_state) \
    X(SSL_get0_param) X(SSL_do_handshake) X(SSL_read_ex) X(SSL_write_ex) X(SSL_get_error) \
    X(SSL_pending) X(SSL_get_verify_result)
#define CRYPTO_FUNCTIONS(X) \
    X(ERR_get_error) X(ERR_peek_last_error) X(ERR_clear_error) X(ERR_reason_error_string) \
    X(X509_VERIFY_PARAM_set1_ip_asc) X(X509_verify_cert_error_string)
/* clang-format on */

/* A pointer for each, with the type that OpenSSL's header declares. */
#define POINTER(name) __typeof__(name) *name;
static struct {
    SSL_FUNCTIONS(POINTER) CRYPTO_FUNCTIONS(POINTER)
} lib;
static const char *missing; /* NULL: everything is there */

static void
load_function(void *handle, const char *name, void *at)
{
    void *found = handle == NULL ? NULL : dlsym(handle, name);

    if (found == NULL && missing == NULL)
        missing = name;
    memcpy(at, &found, sizeof(found)); /* C has no cast from an object to a function */
}

static void
load_library(void)
{
    void *ssl = dlopen(LIBSSL, RTLD_NOW | RTLD_LOCAL), *crypto = dlopen(LIBCRYPTO, RTLD_NOW | RTLD_LOCAL);

#define LOAD_SSL(name)    load_function(ssl, #name, &lib.name);
#define LOAD_CRYPTO(name) load_function(crypto, #name, &lib.name);
    SSL_FUNCTIONS(LOAD_SSL)
    CRYPTO_FUNCTIONS(LOAD_CRYPTO)
    if (ssl == NULL || crypto == NULL)
        missing = ssl == NULL ? LIBSSL : LIBCRYPTO;
}

struct msp_tls_side {
    SSL_CTX *ctx;
    bool server;
};

struct msp_tls {
    SSL *ssl;
    bool server;
};

/* ---- keys and certificates --------------------------------------------------------------------------------------- */

static msp_status
library_error(const char *path, const char *what, msp_error *err)
{
    const unsigned long code = lib.ERR_peek_last_error();
    const char *why = lib.ERR_reason_error_string(code);

    lib.ERR_clear_error();
    return msp_error_set(err, MSP_E_INVALID, "%s: %s: %s", path, what, why != NULL ? why : "no reason given");
}

/* Who may write to a key can be us, and who may read it, too. */
static msp_status
check_owner(const char *path, mode_t forbidden, const char *cure, msp_error *err)
{
    struct stat sb;

    if (stat(path, &sb) != 0)
        return msp_error_set_errno(err, MSP_E_INVALID, errno, "%s: tls_path needs <side>.key, <side>.crt and ca.crt",
                                   path);
    if (sb.st_uid != geteuid() && sb.st_uid != 0)
        return msp_error_set(err, MSP_E_INVALID, "%s: belongs to another user", path);
    if ((sb.st_mode & forbidden) != 0)
        return msp_error_set(err, MSP_E_INVALID, "%s: others may %s: chmod %s", path,
                             forbidden == 077 ? "read the key" : "write to it", cure);
    return MSP_OK;
}

/* A key with a password would ask for it on the terminal. */
static int
no_password(char *buf, int size, int rwflag, void *payload)
{
    (void)buf;
    (void)size;
    (void)rwflag;
    (void)payload;
    return 0;
}

static msp_status
load_files(SSL_CTX *ctx, const char *dir, const char *side, msp_error *err)
{
    char key[4096], cert[4096], ca[4096];
    msp_status st;

    if ((size_t)snprintf(key, sizeof(key), "%s/%s.key", dir, side) >= sizeof(key))
        return msp_error_set(err, MSP_E_INVALID, "%.100s...: the path is too long", dir);
    snprintf(cert, sizeof(cert), "%s/%s.crt", dir, side);
    snprintf(ca, sizeof(ca), "%s/ca.crt", dir);
    st = check_owner(dir, 022, "go-w", err);
    if (st == MSP_OK)
        st = check_owner(key, 077, "600", err);
    if (st == MSP_OK)
        st = check_owner(cert, 022, "go-w", err);
    if (st == MSP_OK)
        st = check_owner(ca, 022, "go-w", err);
    if (st != MSP_OK)
        return st;
    if (lib.SSL_CTX_use_certificate_chain_file(ctx, cert) != 1)
        return library_error(cert, "is not a certificate in PEM", err);
    if (lib.SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1)
        return library_error(key, "is not the key of the certificate beside it, in PEM and without a password", err);
    if (lib.SSL_CTX_check_private_key(ctx) != 1)
        return library_error(key, "is not the key of the certificate beside it", err);
    if (lib.SSL_CTX_load_verify_locations(ctx, ca, NULL) != 1)
        return library_error(ca, "is not a certificate in PEM", err);
    return MSP_OK;
}

msp_status
msp_tls_side_open(msp_tls_side **out, const char *dir, bool server, msp_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    msp_tls_side *s;
    msp_status st;

    *out = NULL;
    pthread_once(&once, load_library);
    if (missing != NULL)
        return msp_error_set(err, MSP_E_UNSUPPORTED, "tls_path needs OpenSSL, and %s was not found: install libssl",
                             missing);
    s = msp_alloc_zero(1, sizeof(*s));
    if (s == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    lib.ERR_clear_error();
    s->server = server;
    s->ctx = lib.SSL_CTX_new(lib.TLS_method());
    if (s->ctx == NULL) {
        msp_free(s);
        return library_error(dir, "OpenSSL cannot begin", err);
    }
    lib.SSL_CTX_ctrl(s->ctx, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, NULL);
    lib.SSL_CTX_ctrl(s->ctx, SSL_CTRL_MODE, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, NULL);
    lib.SSL_CTX_set_options(s->ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
    lib.SSL_CTX_set_default_passwd_cb(s->ctx, no_password);
    lib.SSL_CTX_set_verify(s->ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    st = lib.SSL_CTX_set_cipher_list(s->ctx, "ECDHE+AESGCM:DHE+AESGCM:ECDHE+CHACHA20") == 1
             ? load_files(s->ctx, dir, server ? "server" : "client", err)
             : library_error(dir, "OpenSSL has none of the ciphers", err);
    if (st != MSP_OK) {
        msp_tls_side_close(s);
        return st;
    }
    *out = s;
    return MSP_OK;
}

void
msp_tls_side_close(msp_tls_side *s)
{
    if (s != NULL)
        lib.SSL_CTX_free(s->ctx);
    msp_free(s);
}

/* ---- a connection ------------------------------------------------------------------------------------------------ */

msp_status
msp_tls_begin(msp_tls **out, msp_tls_side *side, int fd, const char *host, msp_error *err)
{
    msp_tls *t = msp_alloc_zero(1, sizeof(*t));

    *out = NULL;
    if (t == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    lib.ERR_clear_error();
    t->server = side->server;
    t->ssl = lib.SSL_new(side->ctx);
    if (t->ssl == NULL || lib.SSL_set_fd(t->ssl, fd) != 1 ||
        (!side->server && lib.X509_VERIFY_PARAM_set1_ip_asc(lib.SSL_get0_param(t->ssl), host) != 1)) {
        msp_tls_end(t);
        return library_error(host != NULL ? host : "TLS", "cannot begin", err);
    }
    if (side->server)
        lib.SSL_set_accept_state(t->ssl);
    else
        lib.SSL_set_connect_state(t->ssl);
    *out = t;
    return MSP_OK;
}

void
msp_tls_end(msp_tls *t)
{
    if (t != NULL && t->ssl != NULL)
        lib.SSL_free(t->ssl);
    msp_free(t);
}

/* What a function of OpenSSL that did not succeed means. */
static msp_status
judge(msp_tls *t, int result, msp_tls_want *want, bool *over, msp_error *err)
{
    const int saved = errno, code = lib.SSL_get_error(t->ssl, result);
    const char *peer = t->server ? "the sender" : "the checker", *why;
    const long verified = lib.SSL_get_verify_result(t->ssl);

    if (code == SSL_ERROR_WANT_READ || code == SSL_ERROR_WANT_WRITE) {
        *want = code == SSL_ERROR_WANT_READ ? MSP_TLS_READ : MSP_TLS_WRITE;
        return MSP_OK;
    }
    if (code == SSL_ERROR_ZERO_RETURN) {
        *over = true;
        return MSP_OK;
    }
    if (verified != X509_V_OK) {
        lib.ERR_clear_error();
        return msp_error_set(err, MSP_E_INVALID, "the certificate of %s was not accepted: %s", peer,
                             lib.X509_verify_cert_error_string(verified));
    }
    if (code == SSL_ERROR_SSL) {
        const unsigned long last = lib.ERR_peek_last_error();

        why = lib.ERR_reason_error_string(last);
        lib.ERR_clear_error();
#ifdef SSL_R_UNEXPECTED_EOF_WHILE_READING
        if (ERR_GET_REASON(last) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
            return msp_error_set(err, MSP_E_IO, "%s has closed the connection", peer);
#endif
        return msp_error_set(err, MSP_E_INVALID, "TLS with %s failed: %s", peer, why != NULL ? why : "no reason given");
    }
    lib.ERR_clear_error();
    if (saved == 0)
        return msp_error_set(err, MSP_E_IO, "%s has closed the connection", peer);
    return msp_error_set_errno(err, MSP_E_IO, saved, "the connection to %s", peer);
}

msp_status
msp_tls_read(msp_tls *t, void *p, size_t n, size_t *done, msp_tls_want *want, bool *over, msp_error *err)
{
    int result;

    *done = 0;
    *want = MSP_TLS_NOTHING;
    lib.ERR_clear_error();
    errno = 0;
    result = lib.SSL_read_ex(t->ssl, p, n, done);
    return result == 1 ? MSP_OK : judge(t, result, want, over, err);
}

msp_status
msp_tls_write(msp_tls *t, const void *p, size_t n, size_t *done, msp_tls_want *want, msp_error *err)
{
    bool over = false;
    msp_status st = MSP_OK;
    int result;

    *done = 0;
    *want = MSP_TLS_NOTHING;
    lib.ERR_clear_error();
    errno = 0;
    result = lib.SSL_write_ex(t->ssl, p, n, done);
    if (result != 1)
        st = judge(t, result, want, &over, err);
    return st == MSP_OK && over ? msp_error_set(err, MSP_E_IO, "the peer has ended the connection") : st;
}

bool
msp_tls_has_more(const msp_tls *t)
{
    return lib.SSL_pending(t->ssl) > 0;
}

#else /* built without OpenSSL's headers */

msp_status
msp_tls_side_open(msp_tls_side **out, const char *dir, bool server, msp_error *err)
{
    (void)server;
    *out = NULL;
    return msp_error_set(err, MSP_E_UNSUPPORTED, "%s: this msprobe was built without TLS: build it with libssl-dev",
                         dir);
}

void
msp_tls_side_close(msp_tls_side *s)
{
    (void)s;
}

msp_status
msp_tls_begin(msp_tls **out, msp_tls_side *side, int fd, const char *host, msp_error *err)
{
    (void)side;
    (void)fd;
    (void)host;
    *out = NULL;
    return msp_error_set(err, MSP_E_UNSUPPORTED, "this msprobe was built without TLS");
}

void
msp_tls_end(msp_tls *t)
{
    (void)t;
}

msp_status
msp_tls_read(msp_tls *t, void *p, size_t n, size_t *done, msp_tls_want *want, bool *over, msp_error *err)
{
    (void)t;
    (void)p;
    (void)n;
    (void)over;
    *done = 0;
    *want = MSP_TLS_NOTHING;
    return msp_error_set(err, MSP_E_UNSUPPORTED, "this msprobe was built without TLS");
}

msp_status
msp_tls_write(msp_tls *t, const void *p, size_t n, size_t *done, msp_tls_want *want, msp_error *err)
{
    (void)t;
    (void)p;
    (void)n;
    *done = 0;
    *want = MSP_TLS_NOTHING;
    return msp_error_set(err, MSP_E_UNSUPPORTED, "this msprobe was built without TLS");
}

bool
msp_tls_has_more(const msp_tls *t)
{
    (void)t;
    return false;
}
#endif
