/* zip_write.c - writing archives of stored entries; see zip.h. */
#include "io/zip.h"

#include <assert.h>
#include "io/bytes.h"
#include "msprobe/stats.h" /* the CRC: several times as fast as zlib's */

enum {
    LOCAL_SIZE = 30,
    VERSION_PLAIN = 20,
    VERSION_ZIP64 = 45,
    FLAG_DESCRIPTOR = 0x0008,
    FLAG_UTF8 = 0x0800,
    EXTRA_ZIP64 = 1,
    EXTRA_PADDING = 0x4246,    /* "FB", as torch names it */
    DOS_DATE = 1 << 5 | 1,     /* 1 January 1980: equal tensors give equal files */
    FLUSH_AT = 64 * 1024,      /* pending bytes */
    PIECE = 256 * 1024,        /* checksummed and written while it is in the cache */
    PADDING_MAX = 4 + 4096 + 4 /* header, bytes to align, and what is short of a header */
};

static void
add_u16(msp_buf *b, uint64_t v)
{
    unsigned char p[2];

    store_u16(p, (uint16_t)v);
    msp_buf_add(b, p, sizeof(p));
}

static void
add_u32(msp_buf *b, uint64_t v)
{
    unsigned char p[4];

    store_u32(p, (uint32_t)v);
    msp_buf_add(b, p, sizeof(p));
}

static void
add_u64(msp_buf *b, uint64_t v)
{
    add_u32(b, v);
    add_u32(b, v >> 32);
}

void
msp_zip_writer_init(msp_zip_writer *w, msp_file *file)
{
    *w = (msp_zip_writer){.file = file};
}

void
msp_zip_writer_release(msp_zip_writer *w)
{
    msp_buf_release(&w->pending);
    msp_buf_release(&w->directory);
    *w = (msp_zip_writer){0};
}

static msp_status
flush_pending(msp_zip_writer *w, msp_error *err)
{
    msp_status st = msp_buf_status(&w->pending, err);
    char *p = w->pending.p;

    if (st == MSP_OK && w->pending.len + w->lent.len > 0)
        st = msp_file_write_parts(w->file,
                                  (struct iovec[]){{p, w->lent_at},
                                                   {(void *)w->lent.p, w->lent.len},
                                                   {p + w->lent_at, w->pending.len - w->lent_at}},
                                  3, err);
    msp_buf_clear(&w->pending);
    w->lent = (msp_str){0};
    w->lent_at = 0;
    return st;
}

/* Have p written behind what is pending, without a copy, by the next flush(). */
static msp_status
lend_bytes(msp_zip_writer *w, const void *p, size_t n, msp_error *err)
{
    msp_status st = w->lent.len > 0 ? flush_pending(w, err) : MSP_OK;

    w->lent = (msp_str){p, n};
    w->lent_at = w->pending.len;
    return st;
}

/* Bytes of the padding field that let what follows it stand at a multiple of align; 0: none is needed. */
static size_t
padding_for(uint64_t at, unsigned align)
{
    size_t missing = (align - at % align) % align;

    while (missing > 0 && missing < 4) /* a field has a header of four bytes */
        missing += align;
    return missing;
}

static void
add_padding(msp_buf *b, size_t n)
{
    char zeros[PADDING_MAX] = {0};

    if (n == 0)
        return;
    add_u16(b, EXTRA_PADDING);
    add_u16(b, n - 4);
    msp_buf_add(b, zeros, n - 4);
}

/* What local and central header share, from "version needed" to the lengths of name and extra field. */
static void
add_common(msp_zip_writer *w, msp_buf *b, uint32_t crc, uint64_t size, size_t name_len, size_t extra_len)
{
    add_u16(b, w->zip64 ? VERSION_ZIP64 : VERSION_PLAIN);
    add_u16(b, FLAG_DESCRIPTOR | FLAG_UTF8);
    add_u16(b, 0); /* stored */
    add_u16(b, 0); /* time */
    add_u16(b, DOS_DATE);
    add_u32(b, crc);
    add_u32(b, w->zip64 ? UINT32_MAX : size);
    add_u32(b, w->zip64 ? UINT32_MAX : size);
    add_u16(b, name_len);
    add_u16(b, extra_len);
}

static void
add_local_header(msp_zip_writer *w, msp_str name, unsigned align)
{
    size_t extra = w->zip64 ? 20 : 0;
    size_t padding = padding_for(w->at + LOCAL_SIZE + name.len + extra, align);
    msp_buf *b = &w->pending;

    msp_buf_add(b, "PK\3\4", 4);
    add_common(w, b, 0, 0, name.len, extra + padding);
    msp_buf_str(b, name);
    if (w->zip64) { /* both sizes are 0 here: the descriptor has them */
        add_u16(b, EXTRA_ZIP64);
        add_u16(b, 16);
        add_u64(b, 0);
        add_u64(b, 0);
    }
    add_padding(b, padding);
    w->at += LOCAL_SIZE + name.len + extra + padding;
}

static void
add_central_header(msp_zip_writer *w, msp_str name, uint64_t size)
{
    bool far = w->entry_at >= UINT32_MAX || w->zip64_force;
    size_t extra = (w->zip64 ? 16 : 0) + (far ? 8 : 0);
    msp_buf *b = &w->directory;

    w->entry_header = b->len;
    msp_buf_add(b, "PK\1\2", 4);
    add_u16(b, VERSION_ZIP64);
    add_common(w, b, 0, size, name.len, extra > 0 ? extra + 4 : 0);
    add_u16(b, 0); /* comment */
    add_u16(b, 0); /* disk */
    add_u16(b, 0); /* attributes */
    add_u32(b, 0);
    add_u32(b, far ? UINT32_MAX : w->entry_at);
    msp_buf_str(b, name);
    if (extra > 0) {
        add_u16(b, EXTRA_ZIP64);
        add_u16(b, extra);
    }
    if (w->zip64) {
        add_u64(b, size);
        add_u64(b, size);
    }
    if (far)
        add_u64(b, w->entry_at);
}

msp_status
msp_zip_writer_begin(msp_zip_writer *w, msp_str name, uint64_t size, unsigned align, msp_error *err)
{
    msp_status st = MSP_OK;

    assert(w->entry_left == 0 && align >= 1 && align <= 4096 && name.len <= UINT16_MAX);
    w->zip64 = size >= UINT32_MAX || w->zip64_force;
    w->entry_at = w->at;
    w->entry_size = w->entry_left = size;
    w->crc = 0;
    add_local_header(w, name, align);
    add_central_header(w, name, size);
    if (w->pending.len >= FLUSH_AT)
        st = flush_pending(w, err);
    return st;
}

msp_status
msp_zip_writer_data(msp_zip_writer *w, const void *p, size_t n, msp_error *err)
{
    const unsigned char *at = p;
    msp_status st = MSP_OK;

    assert(n <= w->entry_left);
    w->entry_left -= n;
    w->at += n;
    if (n < FLUSH_AT) {
        w->crc = msp_crc32_bytes(w->crc, at, n);
        msp_buf_add(&w->pending, at, n);
        return w->pending.len >= FLUSH_AT ? flush_pending(w, err) : MSP_OK;
    }
    while (st == MSP_OK && n > 0) {
        size_t piece = n < PIECE ? n : PIECE;

        w->crc = msp_crc32_bytes(w->crc, at, piece);
        st = lend_bytes(w, at, piece, err);
        if (st == MSP_OK)
            st = flush_pending(w, err);
        at += piece;
        n -= piece;
    }
    return st;
}

msp_status
msp_zip_writer_raw(msp_zip_writer *w, const void *p, size_t n, msp_error *err)
{
    msp_status st = lend_bytes(w, p, n, err);

    assert(n <= w->entry_left);
    w->entry_left -= n;
    w->at += n;
    return st == MSP_OK ? flush_pending(w, err) : st;
}

msp_status
msp_zip_writer_lend(msp_zip_writer *w, const void *p, size_t n, msp_error *err)
{
    if (n < FLUSH_AT)
        return msp_zip_writer_data(w, p, n, err);
    assert(n <= w->entry_left);
    w->entry_left -= n;
    w->at += n;
    w->crc = msp_crc32_bytes(w->crc, p, n);
    return lend_bytes(w, p, n, err);
}

msp_status
msp_zip_writer_end(msp_zip_writer *w, msp_error *err)
{
    msp_buf *b = &w->pending;

    assert(w->entry_left == 0);
    if (w->directory.failed)
        return msp_buf_status(&w->directory, err);
    store_u32(w->directory.p + w->entry_header + 16, w->crc);
    msp_buf_add(b, "PK\7\10", 4);
    add_u32(b, w->crc);
    if (w->zip64) {
        add_u64(b, w->entry_size);
        add_u64(b, w->entry_size);
    } else {
        add_u32(b, w->entry_size);
        add_u32(b, w->entry_size);
    }
    w->at += w->zip64 ? 24 : 16;
    w->count++;
    return MSP_OK;
}

/* The ZIP64 end record and the locator that points to it. */
static void
add_end64(msp_zip_writer *w, uint64_t directory_size)
{
    msp_buf *b = &w->pending;

    msp_buf_add(b, "PK\6\6", 4);
    add_u64(b, 44); /* bytes of this record that follow */
    add_u16(b, VERSION_ZIP64);
    add_u16(b, VERSION_ZIP64);
    add_u32(b, 0); /* disks */
    add_u32(b, 0);
    add_u64(b, w->count);
    add_u64(b, w->count);
    add_u64(b, directory_size);
    add_u64(b, w->at);
    msp_buf_add(b, "PK\6\7", 4);
    add_u32(b, 0);
    add_u64(b, w->at + directory_size);
    add_u32(b, 1);
}

msp_status
msp_zip_writer_finish(msp_zip_writer *w, msp_error *err)
{
    msp_status st = msp_buf_status(&w->directory, err);
    uint64_t size = w->directory.len;
    bool zip64 = w->zip64_force || w->count >= UINT16_MAX || size >= UINT32_MAX || w->at >= UINT32_MAX;
    msp_buf *b = &w->pending;

    if (st != MSP_OK)
        return st;
    msp_buf_str(b, msp_buf_view(&w->directory));
    if (zip64)
        add_end64(w, size);
    msp_buf_add(b, "PK\5\6", 4);
    add_u32(b, 0); /* disks */
    add_u16(b, zip64 ? UINT16_MAX : w->count);
    add_u16(b, zip64 ? UINT16_MAX : w->count);
    add_u32(b, zip64 ? UINT32_MAX : size);
    add_u32(b, zip64 ? UINT32_MAX : w->at);
    add_u16(b, 0); /* comment */
    return flush_pending(w, err);
}
