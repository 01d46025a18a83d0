/*
 * messages.c - which receive belongs to which send.
 *
 * Between two ranks, in one group and with one tag, messages arrive in the order in which they were sent. A receive
 * from any rank takes the next message of one of the senders: of the one that sends what was received, or of the only
 * one that is left. Where neither tells, what else this rank receives in the group with the tag is left alone.
 */
#include "audit/audit_parts.h"

#include <stdlib.h>
#include "core/alloc.h"
#include "core/vec.h"

typedef struct message {
    msp_audit_rank *rank; /* who makes the call */
    msp_audit_call *call;
    int64_t to, from; /* from: -1 for any rank */
} message;

/* What one rank receives in one group with one tag: receives in the order of the calls, sends by sender and order. */
typedef struct mailbox {
    message *receives, *sends;
    size_t nreceives, nsends;
    bool any_source;
} mailbox;

/* The messages of one sender to a mailbox that have not been received. */
typedef struct queue {
    message *next;
    size_t left;
} queue;

static bool
sends(const message *m)
{
    return m->call->op == MSP_AUDIT_SEND;
}

/* ---- the messages of a step in their order ----------------------------------------------------------------------- */

static int
by_number(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int
by_text(msp_str a, msp_str b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n == 0 ? 0 : memcmp(a.p, b.p, n);

    return c != 0 ? c : (a.len > b.len) - (a.len < b.len);
}

static int
by_box(const message *a, const message *b)
{
    int c = by_number(a->to, b->to);

    c = c != 0 ? c : by_number(a->call->tag, b->call->tag);
    return c != 0 ? c : by_text(a->call->group, b->call->group);
}

/* Of one rank and in one array: pointers tell the place in the file. */
static int
by_call(const message *a, const message *b)
{
    return (a->call > b->call) - (a->call < b->call);
}

static int
by_peer(const void *x, const void *y)
{
    const message *a = x, *b = y;
    int c = by_number(a->from, b->from);

    c = c != 0 ? c : by_number(a->call->order, b->call->order);
    return c != 0 ? c : by_call(a, b);
}

static int
by_place(const void *x, const void *y)
{
    const message *a = x, *b = y;
    int c = by_box(a, b);

    c = c != 0 ? c : (int)sends(a) - (int)sends(b);
    if (c != 0)
        return c;
    return sends(a) ? by_peer(a, b) : by_call(a, b);
}

static msp_status
list_messages(message **out, size_t *n, const msp_audit_step *s, msp_error *err)
{
    size_t cap = 0;

    for (size_t i = 0; i < s->nranks; i++)
        for (size_t k = 0; k < s->ranks[i].ncalls; k++) {
            msp_audit_call *c = &s->ranks[i].calls[k];
            int64_t me = s->ranks[i].rank;
            bool is_send = c->op == MSP_AUDIT_SEND;

            if (!is_send && c->op != MSP_AUDIT_RECV)
                continue;
            if (!msp_vec_grow((void **)out, &cap, *n + 1, sizeof(**out)))
                return msp_error_set(err, MSP_E_NOMEM, "no memory for messages");
            (*out)[(*n)++] = (message){&s->ranks[i], c, is_send ? c->root : me, is_send ? me : c->root};
        }
    if (*n > 1)
        qsort(*out, *n, sizeof(**out), by_place);
    return MSP_OK;
}

/* The mailbox that begins at m, of at most n messages. Returns how many it has. */
static size_t
open_mailbox(mailbox *box, message *m, size_t n)
{
    size_t i = 0;

    *box = (mailbox){.receives = m};
    for (; i < n && by_box(m, &m[i]) == 0 && !sends(&m[i]); i++)
        box->any_source = box->any_source || m[i].from < 0;
    box->nreceives = i;
    box->sends = &m[i];
    for (; i < n && by_box(m, &m[i]) == 0; i++)
        box->nsends++;
    if (!box->any_source &&
        box->nreceives > 1) /* an unfinished call stands late in the file: its order says its place */
        qsort(box->receives, box->nreceives, sizeof(*box->receives), by_peer);
    return i;
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */

static msp_status
say(msp_audit_step *s, const message *m, msp_buf *what, msp_error *err)
{
    msp_status st = msp_buf_status(what, err);

    if (st == MSP_OK)
        st = msp_audit_add(s, MSP_AUDIT_CALLS, m->rank, m->call->name, (int64_t)m->call->record, m->call->group,
                           what->p, err);
    msp_buf_release(what);
    return st;
}

static msp_status
say_alone(msp_audit_step *s, const message *m, msp_error *err)
{
    const msp_audit_call *c = m->call;
    int shown = (int)(c->signature.len < 160 ? c->signature.len : 160);
    msp_buf what = {0};

    if (m->from < 0)
        msp_buf_printf(&what, "rank %lld waits for any rank (%.*s), and no rank sends it", (long long)m->to, shown,
                       c->signature.p);
    else
        msp_buf_printf(&what, "rank %lld %s rank %lld (%.*s), which does not %s it", (long long)m->rank->rank,
                       sends(m) ? "sends to" : "waits for", (long long)c->root, shown, c->signature.p,
                       sends(m) ? "receive" : "send");
    return say(s, m, &what, err);
}

static bool
have_same_form(const msp_audit_call *a, const msp_audit_call *b)
{
    const msp_audit_tensor *x = a->in.items, *y = b->in.items;

    return a->in.count == 0 || b->in.count == 0 || (x->dtype == y->dtype && x->numel == y->numel);
}

static msp_status
pair(msp_audit_step *s, const message *sent, const message *received, msp_error *err)
{
    const msp_audit_call *c = sent->call, *d = received->call;
    msp_buf what = {0};
    msp_audit_set *set;

    if (!have_same_form(c, d)) {
        msp_buf_printf(&what, "rank %lld receives %.*s where rank %lld sends %.*s", (long long)received->to,
                       (int)(d->signature.len < 160 ? d->signature.len : 160), d->signature.p, (long long)sent->from,
                       (int)(c->signature.len < 160 ? c->signature.len : 160), c->signature.p);
        return say(s, received, &what, err);
    }
    set = msp_audit_new_set(s, 2);
    if (set == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "no memory for messages");
    set->ranks[0] = sent->rank;
    set->calls[0] = sent->call;
    set->ranks[1] = received->rank;
    set->calls[1] = received->call;
    s->nsets++;
    return MSP_OK;
}

/* ---- one mailbox ------------------------------------------------------------------------------------------------- */

static size_t
open_queues(queue *queues, const mailbox *box)
{
    size_t n = 0;

    for (size_t i = 0; i < box->nsends; i++) {
        if (n == 0 || queues[n - 1].next->from != box->sends[i].from)
            queues[n++] = (queue){&box->sends[i], 0};
        queues[n - 1].left++;
    }
    return n;
}

static bool
holds_what_was_received(const message *sent, const message *received)
{
    return sent->call->in.count > 0 && received->call->out.count > 0 &&
           msp_audit_same_summary(sent->call->in.items, received->call->out.items);
}

/* The sender whose next message this is; NULL: none has one, or (*unknown) it cannot be told. */
static queue *
sender_of(queue *queues, size_t n, const message *received, bool *unknown)
{
    queue *only = NULL;
    size_t left = 0;

    for (size_t i = 0; i < n; i++) {
        queue *q = &queues[i];

        if (q->left == 0 || (received->from >= 0 && q->next->from != received->from))
            continue;
        if (received->from >= 0 || holds_what_was_received(q->next, received))
            return q;
        only = q;
        left++;
    }
    *unknown = left > 1;
    return left == 1 ? only : NULL;
}

/* Somebody of the group left no dump: a message that is not here may have come from there. */
static bool
lacks_a_rank(const msp_audit_step *s, const msp_audit_call *c)
{
    for (size_t i = 0; i < c->nranks; i++)
        if (msp_audit_rank_of(s, c->ranks[i]) == NULL)
            return true;
    return false;
}

static msp_status
empty_mailbox(msp_audit_step *s, const mailbox *box, queue *queues, msp_error *err)
{
    size_t n = open_queues(queues, box);
    bool unknown = false;
    msp_status st = MSP_OK;

    for (size_t i = 0; i < box->nreceives && st == MSP_OK; i++) {
        const message *m = &box->receives[i];
        queue *q = sender_of(queues, n, m, &unknown);

        if (q != NULL) {
            st = pair(s, q->next, m, err);
            q->next++;
            q->left--;
        } else if (m->from < 0 && (unknown || lacks_a_rank(s, m->call))) {
            return MSP_OK;
        } else if (m->from < 0 || msp_audit_rank_of(s, m->from) != NULL) {
            st = say_alone(s, m, err);
        }
    }
    for (size_t i = 0; i < n; i++)
        for (; queues[i].left > 0 && st == MSP_OK; queues[i].left--, queues[i].next++)
            if (msp_audit_rank_of(s, queues[i].next->to) != NULL)
                st = say_alone(s, queues[i].next, err);
    return st;
}

msp_status
msp_audit_align_messages(msp_audit_step *s, msp_error *err)
{
    message *all = NULL;
    queue *queues;
    size_t n = 0;
    msp_status st = list_messages(&all, &n, s, err);

    queues = msp_alloc_zero(n, sizeof(*queues));
    if (queues == NULL && st == MSP_OK)
        st = msp_error_set(err, MSP_E_NOMEM, "no memory for messages");
    for (size_t i = 0; i < n && st == MSP_OK;) {
        mailbox box;

        i += open_mailbox(&box, &all[i], n - i);
        st = empty_mailbox(s, &box, queues, err);
    }
    msp_free(queues);
    msp_free(all);
    return st;
}
