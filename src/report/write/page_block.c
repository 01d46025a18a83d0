/* page_block.c - see page_block.h. */
#include "report/write/page_block.h"

#include <zlib.h>
#include "report/zlib_memory.h"

void
msp_page_add_planes(msp_buf *out, const void *values, size_t n, size_t size)
{
    const unsigned char *v = values;
    char *at = msp_buf_room(out, n * size);

    if (at == NULL)
        return;
    for (size_t b = 0; b < size; b++)
        for (size_t i = 0; i < n; i++)
            *at++ = (char)v[i * size + b];
    out->len += n * size;
    out->p[out->len] = '\0';
}

static void
add_base64(msp_buf *out, const unsigned char *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t len = (n + 2) / 3 * 4, i;
    char *at = msp_buf_room(out, len);

    if (at == NULL)
        return;
    for (i = 0; i + 2 < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (uint32_t)p[i + 1] << 8 | p[i + 2];

        *at++ = digits[v >> 18];
        *at++ = digits[v >> 12 & 63];
        *at++ = digits[v >> 6 & 63];
        *at++ = digits[v & 63];
    }
    if (i < n) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0);

        *at++ = digits[v >> 18];
        *at++ = digits[v >> 12 & 63];
        *at++ = i + 1 < n ? digits[v >> 6 & 63] : '=';
        *at++ = '=';
    }
    out->len += len;
    out->p[out->len] = '\0';
}

static msp_status
pack_bytes(msp_buf *out, msp_str bytes, msp_error *err)
{
    z_stream s = {.zalloc = msp_zlib_alloc, .zfree = msp_zlib_free};
    uLong most;
    char *room;
    int r;

    if (bytes.len > UINT32_MAX / 2)
        return msp_error_set(err, MSP_E_LIMIT, "a block of %zu bytes is too large for a page", bytes.len);
    /* level 1: a fifth larger than 6 and four times as fast */
    if (deflateInit2(&s, 1, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    most = deflateBound(&s, (uLong)bytes.len);
    msp_buf_clear(out);
    room = msp_buf_room(out, most);
    if (room == NULL) {
        deflateEnd(&s);
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    s.next_in = (Bytef *)(uintptr_t)bytes.p;
    s.avail_in = (uInt)bytes.len;
    s.next_out = (Bytef *)room;
    s.avail_out = (uInt)most;
    r = deflate(&s, Z_FINISH);
    out->len = s.total_out;
    deflateEnd(&s);
    return r == Z_STREAM_END ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

msp_status
msp_page_block(msp_buf *out, msp_buf *packed, const char *name, msp_str bytes, msp_error *err)
{
    msp_status st = pack_bytes(packed, bytes, err);

    if (st != MSP_OK)
        return st;
    msp_buf_clear(out);
    msp_buf_printf(out, "<script type=\"text/plain\" data-block=\"%s\">", name);
    add_base64(out, (const unsigned char *)packed->p, packed->len);
    msp_buf_text(out, "</script>\n");
    return msp_buf_status(out, err);
}
