/* exchange.c - see exchange.h. */
#include "online/exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "core/alloc.h"
#include "core/file.h"

enum { SPAN = 8 << 20 };

void
msp_exchange_job_text(char out[33], const unsigned char job[MSP_WIRE_JOB])
{
    for (int i = 0; i < MSP_WIRE_JOB; i++)
        snprintf(out + 2 * i, 3, "%02x", job[i]);
}

msp_exchange_name
msp_exchange_parse(const char *name)
{
    static const char *const endings[] = {"", ".call", ".claimed", ".verdict", ".step", ".end"};
    msp_exchange_name out = {.number = UINT64_MAX};
    const char *p = name + 32;
    char *end;

    if (strlen(name) < 36 || strspn(name, "0123456789abcdef") != 32)
        return out;
    memcpy(out.job, name, 32);
    if (*p == '-') {
        if (p[1] < '0' || p[1] > '9')
            return out;
        out.number = strtoull(p + 1, &end, 10);
        p = end;
    }
    for (int i = MSP_FILE_CALL; i <= MSP_FILE_END; i++)
        if (strcmp(p, endings[i]) == 0 && (out.number == UINT64_MAX) == (i == MSP_FILE_END))
            out.kind = i;
    return out;
}

msp_status
msp_exchange_path(char *out, size_t size, const char *folder, const char *job, uint64_t number, const char *ending,
                  msp_error *err)
{
    size_t n;

    if (number == UINT64_MAX)
        n = (size_t)snprintf(out, size, "%s/%s.%s", folder, job, ending);
    else
        n = (size_t)snprintf(out, size, "%s/%s-%" PRIu64 ".%s", folder, job, number, ending);
    return n < size ? MSP_OK : msp_error_set(err, MSP_E_INVALID, "%.80s...: the path is too long", folder);
}

static msp_status
finish(msp_file *f, msp_status st, msp_error *err)
{
    if (st == MSP_OK)
        return msp_file_commit(f, err);
    msp_file_abandon(f);
    return st;
}

msp_status
msp_exchange_put_call(const char *path, const msp_call_parts *call, msp_error *err)
{
    msp_file f = MSP_FILE_NONE;
    msp_status st = msp_file_create(&f, path, 0640, err);
    const void *p;
    size_t n;

    for (uint64_t at = 0; st == MSP_OK && (n = msp_call_span(call, at, SPAN, &p)) > 0; at += n)
        st = msp_file_write(&f, p, n, err);
    return finish(&f, st, err);
}

msp_status
msp_exchange_put_frame(const char *path, const msp_buf *frame, msp_error *err)
{
    msp_file f = MSP_FILE_NONE;
    msp_status st = msp_buf_status(frame, err);

    if (st == MSP_OK)
        st = msp_file_create(&f, path, 0640, err);
    if (st == MSP_OK)
        st = msp_file_write(&f, frame->p, frame->len, err);
    return finish(&f, st, err);
}

msp_status
msp_exchange_get_frame(msp_wire_frame *out, char **text, const char *path, msp_error *err)
{
    size_t size, used = 0;
    msp_status st = msp_file_read(text, &size, path, MSP_WIRE_HEADER + MSP_WIRE_MOST, err);

    if (st != MSP_OK)
        return st;
    st = msp_wire_parse(out, &used, *text, size, err);
    if (st == MSP_OK && used != size)
        st = msp_error_set(err, MSP_E_FORMAT, "not one whole frame");
    if (st != MSP_OK) {
        msp_error_prefix(err, st, "%s: ", path);
        msp_free(*text);
        *text = NULL;
    }
    return st;
}
