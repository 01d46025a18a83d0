/*
 * sender.c - the process between a dump that grows and the checker: see msprobe/online.h.
 *
 * One thread and one loop: look for calls that are complete, send them, take verdicts. At most WINDOW calls are on
 * their way at a time. When the connection breaks, what was not answered is sent again to whoever answers next; the
 * wait between two attempts doubles up to RETRY_MOST_MS. It ends when the training process has said so, or is gone, and
 * everything is answered; when there is no answer for linger_ms then, the rest gets rows that say so.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "collect/ring.h"
#include "core/alloc.h"
#include "core/path.h"
#include "online/conn.h"
#include "online/exchange.h"
#include "online/follow.h"

enum {
    LOOK_MS = 20,
    FOLDER_LOOK_MS = 100,
    WINDOW = MSP_EXCHANGE_CALLS,
    OUT_MOST = 1 << 20, /* bytes put ahead of the socket */
    RETRY_MS = 200,
    RETRY_MOST_MS = 5000,
    PING_MS = 2000,
    SILENT_MS = 15000,
    QUIET_MS = 2000, /* without a producer: its writer process may have something left */
    BYE_MS = 5000,
    REASON = 600
};

typedef struct sender {
    msp_share *share;
    msp_follow follow;
    unsigned char job[MSP_WIRE_JOB];
    char job_text[33];
    int64_t looked_ms, progress_ms, quiet_ms, ended_ms;
    bool last, said_end, heard_bye;
    char refused[REASON];
    size_t outstanding;
    uint64_t most; /* bytes of a call that the checker takes */
    /* over a connection */
    msp_tls_side *tls;
    msp_conn conn;
    bool welcomed;
    int64_t connect_ms;
    int retry_ms;
    msp_sent *current; /* being put into the connection */
    msp_call_parts parts;
    uint64_t at;
    /* in a folder */
    uint64_t beat;
    int64_t beat_ms, read_ms;
} sender;

static void
set_state(sender *s, msp_online_state state)
{
    atomic_store(&s->share->state, (uint32_t)state);
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

static msp_str
span_of(const char *p, size_t len)
{
    return (msp_str){p == NULL ? "" : p, p == NULL ? 0 : len};
}

/* A row that says why there is no verdict. */
static msp_status
give_up(sender *s, msp_unit_calls *u, msp_sent *c, const char *why, msp_error *err)
{
    char line[2048], name[MSP_CALL_NAME + 1], reason[REASON + 32];
    const msp_precheck_status none = MSP_PRECHECK_SKIP;
    size_t n;

    snprintf(name, sizeof(name), "%.*s", (int)c->name.len, c->name.p);
    snprintf(reason, sizeof(reason), "FAILED: not checked: %s", why);
    n = msp_precheck_result_line(line, sizeof(line), name, MSP_PRECHECK_SKIP, c->backward != NULL ? &none : NULL,
                                 reason);
    if (n >= sizeof(line))
        n = sizeof(line) - 1;
    atomic_fetch_add(&s->share->not_sent, 1);
    return msp_follow_done(&s->follow, u, c, (msp_str){line, n}, (msp_str){"", 0}, err);
}

/* Give up all calls that are not done; a connection in the middle of one ends with it. */
static msp_status
give_up_all(sender *s, const char *why, msp_error *err)
{
    msp_unit_calls *u;
    msp_status st = MSP_OK;
    msp_sent *c;

    if (s->current != NULL) {
        msp_conn_close(&s->conn);
        msp_call_release(&s->parts);
        s->current = NULL;
        s->welcomed = false;
    }
    while (st == MSP_OK && ((c = msp_follow_first(&s->follow, MSP_CALL_READY, &u)) != NULL ||
                            (c = msp_follow_first(&s->follow, MSP_CALL_SENT, &u)) != NULL))
        st = give_up(s, u, c, why, err);
    s->outstanding = 0;
    return st;
}

static msp_status
build_with(msp_call_parts *out, const sender *s, const msp_unit_calls *u, const msp_sent *c, const char *why,
           msp_error *err)
{
    char *dir = msp_path_join(u->dir, "dump_tensor_data");
    const msp_call_head head = {.number = c->number,
                                .step = u->step,
                                .rank = s->share->rank,
                                .name = c->name,
                                .reason = span_of(why, why == NULL ? 0 : strlen(why)),
                                .forward = span_of(c->forward, c->forward_len),
                                .backward = span_of(c->backward, c->backward_len)};
    msp_status st = dir == NULL ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;

    if (st == MSP_OK)
        st = msp_call_build(out, &head, dir, c->files, why == NULL ? c->nfiles : 0, err);
    msp_free(dir);
    return st;
}

/* With its tensors or, where that is not possible, with the reason. */
static msp_status
build(msp_call_parts *out, sender *s, msp_unit_calls *u, msp_sent *c, msp_error *err)
{
    char why[REASON];
    msp_error reason;
    msp_status st;

    if (c->lacks != NULL)
        return build_with(out, s, u, c, c->lacks, err);
    st = build_with(out, s, u, c, NULL, &reason);
    if (st == MSP_OK && out->size <= s->most)
        return MSP_OK;
    if (st == MSP_OK) {
        snprintf(why, sizeof(why), "it has %llu bytes, and the checker takes %llu", (unsigned long long)out->size,
                 (unsigned long long)s->most);
        msp_call_release(out);
    } else {
        snprintf(why, sizeof(why), "%.*s", REASON - 1, reason.message);
    }
    return build_with(out, s, u, c, why, err);
}

/* A row of a peer's may be wrong, but not anything: one line of the call, or lines about its results. */
static bool
is_row_of(msp_str row, msp_str name)
{
    return row.len > name.len + 2 && memcmp(row.p, name.p, name.len) == 0 && row.p[name.len] == ',' &&
           memcmp(row.p + row.len - 2, "\r\n", 2) == 0 && memchr(row.p, '\0', row.len) == NULL;
}

static msp_status
take_verdict(sender *s, msp_str payload, msp_error *err)
{
    msp_wire_verdict v;
    msp_unit_calls *u;
    msp_sent *c;
    char why[REASON];
    msp_status st = msp_wire_read_verdict(&v, payload, err);

    if (st != MSP_OK)
        return st;
    c = msp_follow_find(&s->follow, v.number, &u);
    if (c == NULL || c->state != MSP_CALL_SENT)
        return MSP_OK; /* answered twice: it was sent twice */
    s->outstanding--;
    s->progress_ms = msp_now_ms();
    if (v.result.len == 0) {
        snprintf(why, sizeof(why), "%.*s", (int)(v.details.len < 400 ? v.details.len : 400), v.details.p);
        return give_up(s, u, c, why, err);
    }
    if (v.status > MSP_PRECHECK_ERROR || !is_row_of(v.result, c->name) ||
        (v.details.len > 0 && memchr(v.details.p, '\0', v.details.len) != NULL))
        return give_up(s, u, c, "the checker's answer is no row of this call", err);
    atomic_fetch_add(&s->share->answered, 1);
    atomic_fetch_add(&s->share->status[v.status], 1);
    return msp_follow_done(&s->follow, u, c, v.result, v.details, err);
}

static void
refuse(sender *s, msp_str why)
{
    char text[REASON];

    snprintf(text, sizeof(text), "the checker has refused: %.*s", (int)(why.len < 400 ? why.len : 400), why.p);
    snprintf(s->refused, sizeof(s->refused), "%s", text);
    msp_share_tell(s->share, text);
    set_state(s, MSP_ONLINE_REFUSED);
}

/* What was on its way and not answered is ready again. */
static void
take_back(sender *s)
{
    msp_unit_calls *u;
    msp_sent *c;

    while ((c = msp_follow_first(&s->follow, MSP_CALL_SENT, &u)) != NULL)
        c->state = MSP_CALL_READY;
    s->outstanding = 0;
    s->current = NULL;
    msp_call_release(&s->parts);
}

/* ---- a connection ------------------------------------------------------------------------------------------------ */

static void
lose(sender *s, const char *why)
{
    char text[REASON];

    msp_conn_close(&s->conn);
    take_back(s);
    s->connect_ms = msp_now_ms() + s->retry_ms;
    s->retry_ms = 2 * s->retry_ms < RETRY_MOST_MS ? 2 * s->retry_ms : RETRY_MOST_MS;
    s->welcomed = false;
    if (s->refused[0] != '\0' || s->heard_bye)
        return;
    snprintf(text, sizeof(text), "%s:%d: %.500s", s->share->host, s->share->port, why);
    msp_share_tell(s->share, text);
    set_state(s, MSP_ONLINE_CONNECTING);
}

static void
begin_connection(sender *s)
{
    static const char program[] = "msprobe";
    msp_error err;
    size_t begin;

    if (msp_conn_connect(&s->conn, s->share->host, s->share->port, s->tls, &err) != MSP_OK) {
        lose(s, err.message);
        return;
    }
    begin = msp_wire_begin(&s->conn.out, MSP_WIRE_HELLO);
    msp_wire_put_u(&s->conn.out, MSP_WIRE_VERSION, 2);
    msp_wire_put_u(&s->conn.out, MSP_WIRE_VERSION, 2);
    msp_buf_add(&s->conn.out, s->job, sizeof(s->job));
    msp_wire_put_u(&s->conn.out, s->share->rank, 8);
    msp_wire_put_text(&s->conn.out, msp_str_of(program));
    msp_wire_end(&s->conn.out, begin);
}

static msp_status
take_welcome(sender *s, msp_str payload, msp_error *err)
{
    msp_status st = msp_wire_read_numbers(&s->most, 1, payload, err);

    if (st != MSP_OK || s->welcomed)
        return st;
    s->welcomed = true;
    s->retry_ms = RETRY_MS;
    s->progress_ms = msp_now_ms();
    atomic_fetch_add(&s->share->connections, 1);
    msp_share_tell(s->share, "");
    set_state(s, MSP_ONLINE_CONNECTED);
    return MSP_OK;
}

static msp_status
take_frame(sender *s, const msp_wire_frame *f, msp_error *err)
{
    msp_status st = MSP_OK;
    uint64_t number;

    switch (f->kind) {
    case MSP_WIRE_WELCOME:
        return take_welcome(s, f->payload, err);
    case MSP_WIRE_REFUSED:
        refuse(s, f->payload.len > 4 ? (msp_str){f->payload.p + 4, f->payload.len - 4} : f->payload);
        return MSP_OK;
    case MSP_WIRE_VERDICT:
        if (f->payload.len < 8)
            break;
        st = take_verdict(s, f->payload, err);
        if (st == MSP_OK) {
            msp_wire_reader r = msp_wire_read(f->payload);

            number = msp_wire_u(&r, 8);
            msp_wire_put_numbers(&s->conn.out, MSP_WIRE_ACK, &number, 1);
        }
        return st;
    case MSP_WIRE_PING:
        return MSP_OK;
    case MSP_WIRE_BYE:
        s->heard_bye = true;
        return MSP_OK;
    default:
        break;
    }
    return msp_error_set(err, MSP_E_FORMAT, "the checker has sent a frame of kind %d that it should not", (int)f->kind);
}

/* Put calls into the connection, as far ahead of it as is allowed. */
static msp_status
fill(sender *s, msp_error *err)
{
    msp_buf *out = &s->conn.out;
    msp_status st = MSP_OK;
    msp_unit_calls *u;
    const void *p;
    size_t n, begin;

    while (st == MSP_OK && msp_conn_waiting(&s->conn) < OUT_MOST) {
        if (s->current == NULL) {
            s->current = s->outstanding < WINDOW ? msp_follow_first(&s->follow, MSP_CALL_READY, &u) : NULL;
            if (s->current == NULL)
                return MSP_OK;
            st = build(&s->parts, s, u, s->current, err);
            if (st != MSP_OK)
                return st;
            s->at = 0;
            msp_wire_put_numbers(out, MSP_WIRE_CALL, (uint64_t[]){s->current->number, s->parts.size}, 2);
        }
        n = msp_call_span(&s->parts, s->at, MSP_WIRE_PIECE, &p);
        if (n > 0) {
            begin = msp_wire_begin(out, MSP_WIRE_DATA);
            msp_buf_add(out, p, n);
            msp_wire_end(out, begin);
            s->at += n;
        }
        if (s->at == s->parts.size) {
            s->current->state = MSP_CALL_SENT;
            s->outstanding++;
            s->current = NULL;
            msp_call_release(&s->parts);
        }
        st = msp_buf_status(out, err);
    }
    return st;
}

static msp_status
talk(sender *s, msp_error *err)
{
    msp_status st = msp_conn_pump(&s->conn, true, err);
    msp_wire_frame f;

    while (st == MSP_OK && s->refused[0] == '\0' && msp_conn_next(&s->conn, &f, &st, err))
        st = take_frame(s, &f, err);
    if (st == MSP_OK && s->welcomed)
        st = fill(s, err);
    if (st == MSP_OK && msp_now_ms() - s->conn.said_ms > PING_MS && msp_conn_waiting(&s->conn) == 0)
        msp_wire_put_numbers(&s->conn.out, MSP_WIRE_PING, NULL, 0);
    if (st == MSP_OK && msp_now_ms() - s->conn.heard_ms > SILENT_MS)
        st = msp_error_set(err, MSP_E_IO, "the checker has said nothing for %d s", SILENT_MS / 1000);
    return st == MSP_OK ? msp_conn_pump(&s->conn, false, err) : st;
}

/* Fails only for what a new connection does not mend: no memory, or a csv file that cannot be written. */
static msp_status
tick_connection(sender *s, int ms, msp_error *err)
{
    struct pollfd p = {.fd = s->conn.fd};
    msp_status st;

    if (s->conn.fd < 0) {
        if (s->refused[0] == '\0' && !s->heard_bye && msp_now_ms() >= s->connect_ms)
            begin_connection(s);
        else
            poll(NULL, 0, ms);
        return MSP_OK;
    }
    p.events = msp_conn_events(&s->conn, true);
    if (s->conn.tls == NULL || s->conn.connecting || !msp_tls_has_more(s->conn.tls))
        poll(&p, 1, ms);
    st = talk(s, err);
    if (st == MSP_E_NOMEM)
        return st;
    if (st != MSP_OK || s->refused[0] != '\0')
        lose(s, st == MSP_OK ? "refused" : err->message);
    return MSP_OK;
}

/* ---- a folder ---------------------------------------------------------------------------------------------------- */

static msp_status
path_of(const sender *s, char *out, uint64_t number, const char *ending, msp_error *err)
{
    return msp_exchange_path(out, MSP_SHARE_PATH, s->share->folder, s->job_text, number, ending, err);
}

static void
look_for_checker(sender *s)
{
    char path[MSP_SHARE_PATH + 32], *text = NULL;
    const int64_t now = msp_now_ms();
    uint64_t numbers[2];
    msp_wire_frame f;

    snprintf(path, sizeof(path), "%s/checker.alive", s->share->folder);
    if (msp_exchange_get_frame(&f, &text, path, NULL) == MSP_OK && f.kind == MSP_WIRE_ALIVE &&
        msp_wire_read_numbers(numbers, 2, f.payload, NULL) == MSP_OK && numbers[0] != s->beat) {
        if (s->beat != 0 && !s->welcomed) { /* seen to change: one that died leaves its file behind */
            s->welcomed = true;
            s->progress_ms = now;
            atomic_fetch_add(&s->share->connections, 1);
            msp_share_tell(s->share, "");
            set_state(s, MSP_ONLINE_CONNECTED);
        }
        s->beat = numbers[0];
        s->most = numbers[1];
        s->beat_ms = now;
    }
    msp_free(text);
    if (now - s->beat_ms <= MSP_EXCHANGE_SILENT_MS)
        return;
    s->beat_ms = now;
    s->welcomed = false;
    snprintf(path, sizeof(path), "no checker is at work in %.400s", s->share->folder);
    msp_share_tell(s->share, path);
    if (s->refused[0] == '\0')
        set_state(s, MSP_ONLINE_CONNECTING);
}

static msp_status
read_answer(sender *s, uint64_t number, msp_error *err)
{
    char path[MSP_SHARE_PATH], *text = NULL;
    msp_wire_frame f;
    msp_status st = path_of(s, path, number, "verdict", err), read;

    if (st != MSP_OK)
        return st;
    read = msp_exchange_get_frame(&f, &text, path, err);
    if (read == MSP_OK && f.kind == MSP_WIRE_VERDICT)
        st = take_verdict(s, f.payload, err);
    else if (read == MSP_OK && f.kind == MSP_WIRE_REFUSED)
        refuse(s, f.payload.len > 4 ? (msp_str){f.payload.p + 4, f.payload.len - 4} : f.payload);
    msp_free(text);
    unlink(path);
    if (read == MSP_OK && st != MSP_E_FORMAT)
        return st;
    /* a damaged answer: the call goes there again */
    if (read == MSP_E_NOMEM || st == MSP_E_NOMEM)
        return MSP_E_NOMEM;
    msp_unit_calls *u;
    msp_sent *c = msp_follow_find(&s->follow, number, &u);

    if (c != NULL && c->state == MSP_CALL_SENT) {
        c->state = MSP_CALL_READY;
        s->outstanding--;
    }
    return MSP_OK;
}

static msp_status
read_answers(sender *s, msp_error *err)
{
    msp_dir_list names;
    msp_status st = msp_dir_list_read(&names, s->share->folder, err);

    if (st != MSP_OK) {
        msp_share_tell(s->share, err->message);
        return st == MSP_E_NOMEM ? st : MSP_OK;
    }
    for (size_t i = 0; i < names.count && st == MSP_OK; i++) {
        msp_exchange_name n = msp_exchange_parse(names.names[i]);

        if (n.kind == MSP_FILE_VERDICT && strcmp(n.job, s->job_text) == 0)
            st = read_answer(s, n.number, err);
    }
    msp_dir_list_release(&names);
    return st;
}

static msp_status
put_calls(sender *s, msp_error *err)
{
    char path[MSP_SHARE_PATH];
    msp_unit_calls *u;
    msp_status st = MSP_OK;
    msp_sent *c;

    while (st == MSP_OK && s->outstanding < WINDOW && (c = msp_follow_first(&s->follow, MSP_CALL_READY, &u)) != NULL) {
        msp_call_parts parts = {0};

        st = build(&parts, s, u, c, err);
        if (st == MSP_OK)
            st = path_of(s, path, c->number, "call", err);
        if (st == MSP_OK && msp_exchange_put_call(path, &parts, err) != MSP_OK) {
            msp_share_tell(s->share, err->message); /* a full disk, a server that is away: tried again */
            msp_call_release(&parts);
            return MSP_OK;
        }
        msp_call_release(&parts);
        if (st == MSP_OK) {
            c->state = MSP_CALL_SENT;
            s->outstanding++;
        }
    }
    return st;
}

static msp_status
tick_folder(sender *s, int ms, msp_error *err)
{
    msp_status st = MSP_OK;

    poll(NULL, 0, ms);
    if (msp_now_ms() - s->read_ms < FOLDER_LOOK_MS)
        return MSP_OK;
    s->read_ms = msp_now_ms();
    look_for_checker(s);
    st = read_answers(s, err);
    return st == MSP_OK && s->welcomed && s->refused[0] == '\0' ? put_calls(s, err) : st;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static bool
in_folder(const sender *s)
{
    return s->share->folder[0] != '\0';
}

/* Tell the checker something that has no answer; what cannot be told now it does without. */
static void
say(sender *s, msp_wire_kind kind, uint64_t number)
{
    const int n = kind == MSP_WIRE_STEP;
    char path[MSP_SHARE_PATH];
    msp_buf frame = {0};

    if (!in_folder(s)) {
        if (s->welcomed)
            msp_wire_put_numbers(&s->conn.out, kind, &number, n);
        return;
    }
    msp_wire_put_numbers(&frame, kind, &number, n);
    if (path_of(s, path, n == 1 ? number : UINT64_MAX, n == 1 ? "step" : "end", NULL) == MSP_OK)
        (void)!msp_exchange_put_frame(path, &frame, NULL);
    msp_buf_release(&frame);
}

/* Nobody records any more: the program has said so, or it is gone and its writer has nothing left. */
static bool
is_last(sender *s)
{
    const int64_t now = msp_now_ms();

    if (atomic_load(&s->share->closing) != 0)
        return true;
    if (msp_share_lives(s->share->producer, s->share->producer_start)) {
        s->quiet_ms = 0;
        return false;
    }
    if (s->quiet_ms == 0)
        s->quiet_ms = now;
    return now - s->quiet_ms >= QUIET_MS;
}

static msp_status
look(sender *s, msp_error *err)
{
    msp_status st = MSP_OK;
    uint64_t step;

    if (msp_now_ms() - s->looked_ms < LOOK_MS)
        return MSP_OK;
    if (!s->last && is_last(s)) {
        s->last = true;
        s->progress_ms = msp_now_ms(); /* the time that is left begins */
    }
    st = msp_follow_look(&s->follow, s->last, err);
    while (st == MSP_OK && msp_follow_finish(&s->follow, &step, &st, err))
        say(s, MSP_WIRE_STEP, step);
    s->looked_ms = msp_now_ms();
    return st;
}

/* True when there is nothing left to do. */
static bool
is_over(sender *s, msp_status *st, msp_error *err)
{
    char why[REASON], trouble[MSP_SHARE_TROUBLE];

    if (!s->last)
        return false;
    if (s->follow.nunits > 0) {
        if (msp_now_ms() - s->progress_ms >= s->share->linger_ms) {
            msp_share_trouble(s->share, trouble);
            snprintf(why, sizeof(why), "no checker answered within %d s after the training had ended%s%s",
                     (int)s->share->linger_ms / 1000, trouble[0] != '\0' ? ": " : "", trouble);
            *st = give_up_all(s, why, err);
        }
        return false;
    }
    if (!s->said_end) {
        s->said_end = true;
        s->ended_ms = msp_now_ms();
        say(s, MSP_WIRE_END, 0);
    }
    return in_folder(s) || s->heard_bye || s->conn.fd < 0 || msp_now_ms() - s->ended_ms > BYE_MS;
}

static msp_status
run(sender *s, msp_error *err)
{
    msp_status st = MSP_OK;

    while (st == MSP_OK) {
        st = look(s, err);
        if (st == MSP_OK && s->refused[0] != '\0')
            st = give_up_all(s, s->refused, err);
        if (st == MSP_OK && is_over(s, &st, err))
            break;
        if (st == MSP_OK)
            st = in_folder(s) ? tick_folder(s, LOOK_MS, err) : tick_connection(s, LOOK_MS, err);
    }
    return st;
}

static msp_status
map_page(msp_share **out, const char *path, msp_error *err)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat sb;
    msp_share *s;

    *out = NULL;
    if (fd < 0)
        return msp_error_set_errno(err, MSP_E_IO, errno, "%s", path);
    if (fstat(fd, &sb) != 0 || sb.st_size != sizeof(*s)) {
        close(fd);
        return msp_error_set(err, MSP_E_FORMAT, "%s: not what a training process shares", path);
    }
    s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (s == MAP_FAILED)
        return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot map", path);
    if (memcmp(s->magic, MSP_SHARE_MAGIC, sizeof(s->magic)) != 0) {
        munmap(s, sizeof(*s));
        return msp_error_set(err, MSP_E_FORMAT, "%s: not what a training process shares", path);
    }
    *out = s;
    return MSP_OK;
}

msp_status
msp_online_send(const char *path, msp_error *err)
{
    sender s = {.conn = MSP_CONN_NONE, .retry_ms = RETRY_MS, .most = UINT64_MAX};
    msp_status st = map_page(&s.share, path, err);

    if (st != MSP_OK)
        return st;
    signal(SIGPIPE, SIG_IGN); /* of OpenSSL's writes; this process is ours alone */
    if (getrandom(s.job, sizeof(s.job), 0) != sizeof(s.job))
        st = msp_error_set_errno(err, MSP_E_IO, errno, "no random numbers");
    msp_exchange_job_text(s.job_text, s.job);
    if (st == MSP_OK)
        st = msp_follow_open(&s.follow, s.share, err);
    if (st == MSP_OK && s.share->tls[0] != '\0' && !in_folder(&s))
        st = msp_tls_side_open(&s.tls, s.share->tls, false, err);
    atomic_store(&s.share->sender_start, msp_process_start(getpid()));
    atomic_store(&s.share->sender, getpid());
    s.beat_ms = msp_now_ms();
    if (st == MSP_OK)
        st = run(&s, err);
    if (st == MSP_OK)
        unlink(s.share->journal);
    if (st != MSP_OK && err != NULL)
        msp_share_tell(s.share, err->message);
    set_state(&s, s.refused[0] != '\0' ? MSP_ONLINE_REFUSED : MSP_ONLINE_DONE);
    msp_conn_close(&s.conn);
    msp_call_release(&s.parts);
    msp_tls_side_close(s.tls);
    msp_follow_close(&s.follow);
    munmap(s.share, sizeof(*s.share));
    return st;
}
