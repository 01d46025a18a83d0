/* wire.c - see wire.h. */
#include "online/wire.h"

#include <string.h>
#include "msprobe/stats.h"

static const char MAGIC[4] = {'M', 'S', 'P', 'O'};

static uint64_t
load(const unsigned char *p, int bytes)
{
    uint64_t v = 0;

    for (int i = bytes; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static void
store(unsigned char *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

msp_status
msp_wire_parse(msp_wire_frame *out, size_t *used, const void *bytes, size_t size, msp_error *err)
{
    const unsigned char *p = bytes;
    size_t n, seen = size < sizeof(MAGIC) ? size : sizeof(MAGIC);

    *used = 0;
    *out = (msp_wire_frame){0};
    if (size > 0 && memcmp(p, MAGIC, seen) != 0)
        return msp_error_set(err, MSP_E_FORMAT, "the peer does not speak the protocol of online run_ut");
    if (size < MSP_WIRE_HEADER)
        return MSP_OK;
    if (p[4] != MSP_WIRE_VERSION)
        return msp_error_set(err, MSP_E_FORMAT, "the peer speaks version %d of the protocol, this side version %d",
                             p[4], MSP_WIRE_VERSION);
    n = (size_t)load(p + 8, 4);
    if (p[5] == 0 || p[5] >= MSP_WIRE_KINDS || load(p + 6, 2) != 0 || n > MSP_WIRE_MOST)
        return msp_error_set(err, MSP_E_FORMAT, "a damaged frame: kind %d, %zu bytes", p[5], n);
    if (size - MSP_WIRE_HEADER < n)
        return MSP_OK;
    if (msp_crc32_bytes(0, p + MSP_WIRE_HEADER, n) != load(p + 12, 4))
        return msp_error_set(err, MSP_E_FORMAT, "a damaged frame: its checksum is wrong");
    out->kind = (msp_wire_kind)p[5];
    out->payload = (msp_str){(const char *)p + MSP_WIRE_HEADER, n};
    *used = MSP_WIRE_HEADER + n;
    return MSP_OK;
}

msp_wire_reader
msp_wire_read(msp_str payload)
{
    const unsigned char *p = (const unsigned char *)payload.p;

    return (msp_wire_reader){p, payload.len > 0 ? p + payload.len : p, false};
}

const void *
msp_wire_bytes(msp_wire_reader *r, size_t n)
{
    const unsigned char *p = r->p;

    if (r->bad || (size_t)(r->end - r->p) < n) {
        r->bad = true;
        return NULL;
    }
    r->p = n > 0 ? p + n : p;
    return p;
}

uint64_t
msp_wire_u(msp_wire_reader *r, int bytes)
{
    const unsigned char *p = msp_wire_bytes(r, (size_t)bytes);

    return p == NULL ? 0 : load(p, bytes);
}

msp_str
msp_wire_text(msp_wire_reader *r)
{
    size_t n = (size_t)msp_wire_u(r, 4);
    const char *p = msp_wire_bytes(r, n);

    return r->bad ? (msp_str){"", 0} : (msp_str){p, n};
}

bool
msp_wire_is_whole(const msp_wire_reader *r)
{
    return !r->bad && r->p == r->end;
}

static msp_status
wrong_payload(const char *what, msp_error *err)
{
    return msp_error_set(err, MSP_E_FORMAT, "a damaged frame: %s has a length of its own", what);
}

msp_status
msp_wire_read_hello(msp_wire_hello *out, msp_str payload, msp_error *err)
{
    msp_wire_reader r = msp_wire_read(payload);
    const void *job;

    *out = (msp_wire_hello){0};
    out->lowest = (unsigned)msp_wire_u(&r, 2);
    out->highest = (unsigned)msp_wire_u(&r, 2);
    job = msp_wire_bytes(&r, MSP_WIRE_JOB);
    if (job != NULL)
        memcpy(out->job, job, MSP_WIRE_JOB);
    out->rank = msp_wire_u(&r, 8);
    out->program = msp_wire_text(&r);
    return msp_wire_is_whole(&r) ? MSP_OK : wrong_payload("a greeting", err);
}

msp_status
msp_wire_read_verdict(msp_wire_verdict *out, msp_str payload, msp_error *err)
{
    msp_wire_reader r = msp_wire_read(payload);

    *out = (msp_wire_verdict){0};
    out->number = msp_wire_u(&r, 8);
    out->status = (unsigned)msp_wire_u(&r, 1);
    out->result = msp_wire_text(&r);
    out->details = msp_wire_text(&r);
    return msp_wire_is_whole(&r) ? MSP_OK : wrong_payload("a verdict", err);
}

msp_status
msp_wire_read_numbers(uint64_t *out, int n, msp_str payload, msp_error *err)
{
    msp_wire_reader r = msp_wire_read(payload);

    for (int i = 0; i < n; i++)
        out[i] = msp_wire_u(&r, 8);
    return msp_wire_is_whole(&r) ? MSP_OK : wrong_payload("a message", err);
}

void
msp_wire_put_u(msp_buf *b, uint64_t v, int bytes)
{
    unsigned char p[8];

    store(p, v, bytes);
    msp_buf_add(b, p, (size_t)bytes);
}

void
msp_wire_put_text(msp_buf *b, msp_str s)
{
    msp_wire_put_u(b, s.len, 4);
    msp_buf_str(b, s);
}

size_t
msp_wire_begin(msp_buf *b, msp_wire_kind kind)
{
    size_t begin = b->len;

    msp_buf_add(b, MAGIC, sizeof(MAGIC));
    msp_wire_put_u(b, MSP_WIRE_VERSION, 1);
    msp_wire_put_u(b, kind, 1);
    msp_wire_put_u(b, 0, 2);
    msp_wire_put_u(b, 0, 8);
    return begin;
}

void
msp_wire_end(msp_buf *b, size_t begin)
{
    unsigned char *p;
    size_t n;

    if (b->failed)
        return;
    p = (unsigned char *)b->p + begin;
    n = b->len - begin - MSP_WIRE_HEADER;
    store(p + 8, n, 4);
    store(p + 12, msp_crc32_bytes(0, p + MSP_WIRE_HEADER, n), 4);
}

void
msp_wire_put_numbers(msp_buf *b, msp_wire_kind kind, const uint64_t *numbers, int n)
{
    size_t begin = msp_wire_begin(b, kind);

    for (int i = 0; i < n; i++)
        msp_wire_put_u(b, numbers[i], 8);
    msp_wire_end(b, begin);
}
