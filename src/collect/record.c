/*
 * record.c - building records: what runs once per call, in the training process.
 *
 * Everything here is a copy into a buffer that is kept from call to call; text is made by the writer, in its own
 * process. A tensor is one packed token of some 80 bytes, because a call has several and their field names never
 * change.
 */
#include <stdatomic.h>
#include <string.h>
#include "collect/record.h"
#include "core/alloc.h"
#include "io/pieces.h"
#include "kernels/brief.h"

static unsigned char *
room_for(msp_record *r, size_t n)
{
    unsigned char *at;

    if (r->failed)
        return NULL;
    if (n > r->cap - r->len) {
        size_t cap = r->cap < 1024 ? 1024 : r->cap;

        while (n > cap - r->len) {
            if (cap > UINT32_MAX) {
                r->failed = true;
                return NULL;
            }
            cap *= 2;
        }
        at = msp_realloc(r->p, cap, 1);
        if (at == NULL) {
            r->failed = true;
            return NULL;
        }
        r->p = at;
        r->cap = cap;
    }
    at = r->p + r->len;
    r->len += n;
    return at;
}

static void
put_bytes(msp_record *r, const void *p, size_t n)
{
    unsigned char *at = room_for(r, n);

    if (at != NULL && n > 0)
        memcpy(at, p, n);
}

static void
put_byte(msp_record *r, unsigned char b)
{
    put_bytes(r, &b, 1);
}

/* A text behind head bytes, which are the caller's to fill in; NULL: there is no room. */
static unsigned char *
put_text_behind(msp_record *r, size_t head, const char *p, size_t len)
{
    uint32_t n = (uint32_t)len;
    unsigned char *at = NULL;

    if (len > UINT32_MAX / 2)
        r->failed = true;
    else
        at = room_for(r, head + sizeof(n) + len);
    if (at == NULL)
        return NULL;
    memcpy(at + head, &n, sizeof(n));
    memcpy(at + head + sizeof(n), p, len);
    return at;
}

static void
put_text(msp_record *r, const char *p, size_t len)
{
    put_text_behind(r, 0, p, len);
}

static void
put_token_text(msp_record *r, token kind, const char *p, size_t len)
{
    unsigned char *at = put_text_behind(r, 1, p, len);

    if (at != NULL)
        at[0] = (unsigned char)kind;
}

void
msp_record_frame(msp_record *r, frame_kind kind, uint32_t unit, uint32_t arg)
{
    frame_header h = {0, (uint16_t)kind, 0, unit, arg};

    r->len = 0;
    r->failed = false;
    put_bytes(r, &h, sizeof(h));
}

void
msp_record_frame_text(msp_record *r, const char *p, size_t len)
{
    put_text(r, p, len);
}

void
msp_record_release(msp_record *r)
{
    msp_free(r->p);
    *r = (msp_record){0};
}

void
msp_record_append(msp_record *r, const msp_record *part)
{
    r->failed |= part->failed;
    put_bytes(r, part->p, part->len);
}

void
msp_record_begin(msp_record *r, uint32_t unit, const char *name, size_t len)
{
    msp_record_frame(r, FRAME_VALUE, unit, 0);
    put_text(r, name, len);
}

void
msp_record_hole(msp_record *r, uint32_t unit, uint32_t number)
{
    msp_record_frame(r, FRAME_HOLE, unit, number);
}

void
msp_record_fill(msp_record *r, uint32_t number)
{
    if (!r->failed)
        ((frame_header *)r->p)->arg = number;
}

void
msp_record_site(msp_record *r, uint32_t unit, const char *name, size_t len, uint32_t stack, const char *parent,
                size_t parent_len)
{
    msp_record_frame(r, FRAME_SITE, unit, stack);
    put_text(r, name, len);
    put_byte(r, parent != NULL);
    put_text(r, parent == NULL ? "" : parent, parent == NULL ? 0 : parent_len);
}

void
msp_record_place(msp_record *r, uint32_t stack, const char *parent, size_t parent_len)
{
    unsigned char *at = put_text_behind(r, 2, parent == NULL ? "" : parent, parent == NULL ? 0 : parent_len);

    if (at == NULL)
        return;
    at[0] = TOKEN_SITE;
    at[1] = parent != NULL;
    ((frame_header *)r->p)->kind = FRAME_CALL;
    ((frame_header *)r->p)->arg = stack;
}

void
msp_record_object(msp_record *r)
{
    put_byte(r, TOKEN_OBJECT);
}

void
msp_record_array(msp_record *r)
{
    put_byte(r, TOKEN_ARRAY);
}

void
msp_record_end(msp_record *r)
{
    put_byte(r, TOKEN_END);
}

void
msp_record_key(msp_record *r, const char *key, size_t len)
{
    put_token_text(r, TOKEN_KEY, key, len);
}

void
msp_record_null(msp_record *r)
{
    put_byte(r, TOKEN_NULL);
}

void
msp_record_bool(msp_record *r, bool v)
{
    put_byte(r, v ? TOKEN_TRUE : TOKEN_FALSE);
}

void
msp_record_int(msp_record *r, int64_t v)
{
    put_byte(r, TOKEN_INT);
    put_bytes(r, &v, sizeof(v));
}

void
msp_record_float(msp_record *r, double v)
{
    put_byte(r, TOKEN_FLOAT);
    put_bytes(r, &v, sizeof(v));
}

void
msp_record_text(msp_record *r, const char *p, size_t len)
{
    put_token_text(r, TOKEN_TEXT, p, len);
}

static tensor_stats_form
stats_form(const msp_tensor_note *note)
{
    msp_dtype_class c = msp_dtype_class_of(note->shape_of->dtype);

    if (note->ticket == 0 && (note->stats == NULL || note->stats->count == 0))
        return STATS_NONE;
    if (c == MSP_CLASS_BOOL)
        return STATS_BOOL;
    if (c == MSP_CLASS_COMPLEX && (note->type == NULL || strncmp(note->type, "mindspore.", 10) != 0))
        return STATS_COMPLEX; /* MindSpore's dumps have the norm, too */
    if (c == MSP_CLASS_INT)
        return msp_dtype_is_signed_int(note->shape_of->dtype) ? STATS_SIGNED : STATS_UNSIGNED;
    return STATS_FLOAT;
}

enum { STATS_BYTES = 4 * 8 };

static void
pack_stats(unsigned char out[STATS_BYTES], tensor_stats_form form, const msp_stats *s)
{
    if (form == STATS_FLOAT || form == STATS_COMPLEX) {
        memcpy(out, &s->max, 8);
        memcpy(out + 8, &s->min, 8);
    } else {
        memcpy(out, &s->max_int, 8);
        memcpy(out + 8, &s->min_int, 8);
    }
    memcpy(out + 16, &s->mean, 8);
    memcpy(out + 24, &s->norm, 8);
}

static void
fill_in_stats(unsigned char *out, tensor_stats_form form, const msp_tensor_note *note)
{
    if (form == STATS_NONE)
        return;
    if (note->ticket == 0) {
        pack_stats(out, form, note->stats);
        return;
    }
    memset(out, 0, STATS_BYTES);
    memcpy(out, &note->ticket, sizeof(note->ticket));
}

static msp_status
put_piece(const void *p, size_t n, void *payload, msp_error *err)
{
    msp_record *r = payload;

    (void)err;
    put_bytes(r, p, n);
    return r->failed ? MSP_E_NOMEM : MSP_OK;
}

static void
put_values(msp_record *r, const msp_tensor *t)
{
    const int64_t size = t->numel * (int64_t)msp_dtype_size(t->dtype);
    msp_error err;

    put_bytes(r, &size, sizeof(size));
    if (size > 0 && !r->failed && msp_tensor_pieces(t, put_piece, r, &err) != MSP_OK)
        r->failed = true;
}

/* The texts and elements behind a tensor's token; most have none. */
static void
put_details(msp_record *r, const msp_tensor_note *note)
{
    if (note->type != NULL)
        put_text(r, note->type, strlen(note->type));
    if (note->dtype != NULL)
        put_text(r, note->dtype, strlen(note->dtype));
    if (note->data_name != NULL)
        put_text(r, note->data_name, strlen(note->data_name));
    if (note->why_no_values != NULL)
        put_text(r, note->why_no_values, strlen(note->why_no_values));
    if (note->values != NULL)
        put_values(r, note->values);
}

static void
put_tensor(msp_record *r, const msp_tensor_note *note, bool open)
{
    const msp_tensor *t = note->shape_of;
    tensor_token head = {TOKEN_TENSOR, (uint8_t)t->dtype, (uint8_t)t->ndim, (uint8_t)stats_form(note), 0, note->crc};
    size_t shape_bytes;
    unsigned char *at;

    head.flags = (note->requires_grad ? TENSOR_GRAD : 0) | (note->has_crc ? TENSOR_CRC : 0) |
                 (note->type != NULL ? TENSOR_TYPE : 0) | (note->dtype != NULL ? TENSOR_DTYPE : 0) |
                 (note->data_name != NULL ? TENSOR_FILE : 0) | (note->why_no_values != NULL ? TENSOR_WHY : 0) |
                 (open ? TENSOR_OPEN : 0) | (note->ticket != 0 ? TENSOR_WAITS : 0) |
                 (note->values != NULL ? TENSOR_VALUES : 0);
    shape_bytes = (size_t)t->ndim * sizeof(t->shape[0]);
    at = room_for(r, sizeof(head) + shape_bytes + (head.form == STATS_NONE ? 0 : STATS_BYTES));
    if (at == NULL)
        return;
    memcpy(at, &head, sizeof(head));
    for (int i = 0; i < t->ndim; i++) /* one by one: a call for a few numbers costs more */
        memcpy(at + sizeof(head) + (size_t)i * sizeof(t->shape[0]), &t->shape[i], sizeof(t->shape[0]));
    fill_in_stats(at + sizeof(head) + shape_bytes, (tensor_stats_form)head.form, note);
    if (head.flags & (TENSOR_TYPE | TENSOR_DTYPE | TENSOR_FILE | TENSOR_WHY | TENSOR_VALUES))
        put_details(r, note);
}

void
msp_record_tensor(msp_record *r, const msp_tensor_note *note)
{
    put_tensor(r, note, false);
}

void
msp_record_tensor_open(msp_record *r, const msp_tensor_note *note)
{
    put_tensor(r, note, true);
}

bool
msp_record_small(msp_record *r, const msp_small *t)
{
    tensor_token head = {TOKEN_TENSOR, (uint8_t)t->dtype, (uint8_t)t->ndim, STATS_FLOAT, 0, 0};
    msp_stats_four four;
    unsigned char *at;

    if (!msp_stats_brief(&four, t->dtype, t->data, t->numel))
        return false;
    at = room_for(r, sizeof(head) + (size_t)t->ndim * sizeof(t->shape[0]) + STATS_BYTES);
    if (at == NULL)
        return true; /* the record has failed */
    head.flags = (t->requires_grad ? TENSOR_GRAD : 0) | (t->has_crc ? TENSOR_CRC : 0);
    if (t->has_crc)
        head.crc = msp_crc32_bytes(0, t->data, (size_t)t->numel * msp_dtype_size(t->dtype));
    memcpy(at, &head, sizeof(head));
    at += sizeof(head);
    for (int32_t i = 0; i < t->ndim; i++, at += sizeof(t->shape[0]))
        memcpy(at, &t->shape[i], sizeof(t->shape[0]));
    _Static_assert(sizeof(four) == STATS_BYTES, "the four stand there as pack_stats() has them");
    memcpy(at, &four, sizeof(four));
    return true;
}

/* ---- statistics that come later ---------------------------------------------------------------------------------- */

/* How many bytes a text takes at p: its length, and itself. */
static size_t
text_bytes(const unsigned char *p)
{
    uint32_t n;

    memcpy(&n, p, sizeof(n));
    return sizeof(n) + n;
}

static size_t
tensor_bytes(const unsigned char *p)
{
    size_t n = sizeof(tensor_token);
    tensor_token head;

    memcpy(&head, p, sizeof(head));
    n += (size_t)head.ndim * 8 + (head.form == STATS_NONE ? 0 : STATS_BYTES);
    for (uint32_t flag = TENSOR_TYPE; flag <= TENSOR_WHY; flag *= 2)
        if (head.flags & flag)
            n += text_bytes(p + n);
    if (head.flags & TENSOR_VALUES) {
        uint64_t size;

        memcpy(&size, p + n, sizeof(size));
        n += sizeof(size) + size;
    }
    return n;
}

static size_t
token_bytes(const unsigned char *p)
{
    switch (*p) {
    case TOKEN_INT:
    case TOKEN_FLOAT:
        return 9;
    case TOKEN_TEXT:
    case TOKEN_KEY:
        return 1 + text_bytes(p + 1);
    case TOKEN_TENSOR:
        return tensor_bytes(p);
    case TOKEN_SITE:
        return 2 + text_bytes(p + 2);
    default:
        return 1;
    }
}

/* False: this tensor has to wait. */
static bool
settle_tensor(unsigned char *p, msp_settle_find *find, void *payload)
{
    unsigned char *at;
    tensor_token head;
    uint64_t ticket;
    msp_settled how;
    msp_stats stats;

    memcpy(&head, p, sizeof(head));
    if (!(head.flags & TENSOR_WAITS))
        return true;
    at = p + sizeof(head) + (size_t)head.ndim * 8;
    memcpy(&ticket, at, sizeof(ticket));
    how = find(&stats, ticket, payload);
    if (how == MSP_SETTLED_LATER)
        return false;
    if (how == MSP_SETTLED_NOW)
        pack_stats(at, (tensor_stats_form)head.form, &stats);
    else
        p[offsetof(tensor_token, form)] = STATS_LOST;
    atomic_thread_fence(memory_order_release); /* it may stand in the ring, and we may be killed: the flag goes last */
    head.flags &= ~(uint32_t)TENSOR_WAITS;
    memcpy(p + offsetof(tensor_token, flags), &head.flags, sizeof(head.flags));
    return true;
}

bool
msp_record_settle(msp_record *r, msp_settle_find *find, void *payload)
{
    frame_header *h = (frame_header *)r->p;
    bool all = true;
    size_t at;

    if (r->failed || r->len < sizeof(*h) || (h->kind != FRAME_VALUE && h->kind != FRAME_CALL))
        return true;
    at = sizeof(*h) + text_bytes(r->p + sizeof(*h));
    for (; at < r->len; at += token_bytes(r->p + at))
        if (r->p[at] == TOKEN_TENSOR)
            all &= settle_tensor(r->p + at, find, payload);
    __atomic_store_n(&h->waits, !all, __ATOMIC_RELEASE);
    return all;
}
