/* zip_out.c - see zip_out.h. */
#include "report/write/zip_out.h"

#include <assert.h>
#include <zlib.h>
#include "core/alloc.h"
#include "core/pool.h"
#include "report/zlib_memory.h"

enum {
    BLOCK = 128 * 1024, /* small enough to share out, large enough that the 5 bytes between blocks do not matter */
    BLOCKS = 8,         /* compressed at once */
    BATCH = BLOCK * BLOCKS,
    WINDOW = 32 * 1024,                   /* deflate looks back no further */
    LEVEL = 1,                            /* on result tables: three times as fast as 6, files a sixth larger */
    BLOCK_ROOM = BLOCK + BLOCK / 8 + 256, /* above deflateBound(BLOCK) plus the flush marker */
    HINT_SIZE = 20,                       /* bytes of the extra field in the local header */
    VERSION_DEFLATE = 20,
    VERSION_ZIP64 = 45,
    DOS_DATE = (0 << 9) | (1 << 5) | 1 /* 1 January 1980: the bytes depend on the content alone */
};

typedef struct block {
    z_stream stream;
    bool ready; /* stream is initialised */
    const unsigned char *in, *dictionary;
    size_t in_len, dictionary_len;
    bool last;
    unsigned char *out;
    size_t out_len;
    uint32_t crc;
    int result; /* zlib's */
} block;

struct msp_zip_out {
    msp_file *file;
    int threads;
    uint64_t offset; /* bytes written to file */
    uint64_t zip64_from;
    msp_buf directory; /* central directory so far */
    uint64_t entries;
    bool open; /* an entry is being written */

    msp_buf name; /* of the current entry */
    uint64_t header_at, size, packed;
    uint32_t crc;

    unsigned char *text;        /* WINDOW bytes of what came before, then up to BATCH bytes waiting */
    size_t window_len, waiting; /* how much of each is filled; the window is filled from its end */
    unsigned char *packed_text;
    block blocks[BLOCKS];
};

msp_status
msp_zip_out_open(msp_zip_out **out, msp_file *file, int threads, msp_error *err)
{
    msp_zip_out *z = msp_alloc_zero(1, sizeof(*z));

    *out = NULL;
    if (z != NULL) {
        z->file = file;
        z->threads = threads;
        z->zip64_from = UINT32_MAX;
        z->text = msp_alloc(WINDOW + BATCH, 1);
        z->packed_text = msp_alloc(BLOCKS, BLOCK_ROOM);
    }
    if (z == NULL || z->text == NULL || z->packed_text == NULL) {
        msp_zip_out_close(z);
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", file->path);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        z->blocks[i].stream = (z_stream){.zalloc = msp_zlib_alloc, .zfree = msp_zlib_free};
        z->blocks[i].out = z->packed_text + i * BLOCK_ROOM;
    }
    *out = z;
    return MSP_OK;
}

void
msp_zip_out_close(msp_zip_out *z)
{
    if (z == NULL)
        return;
    for (size_t i = 0; i < BLOCKS; i++)
        if (z->blocks[i].ready)
            deflateEnd(&z->blocks[i].stream);
    msp_buf_release(&z->directory);
    msp_buf_release(&z->name);
    msp_free(z->text);
    msp_free(z->packed_text);
    msp_free(z);
}

void
msp_zip_out_zip64_from(msp_zip_out *z, uint64_t limit)
{
    z->zip64_from = limit;
}

/* ---- records: little-endian numbers in a row ------------------------------------------------------------------- */

static void
append_le(msp_buf *b, uint64_t v, size_t bytes)
{
    unsigned char le[8];

    for (size_t i = 0; i < bytes; i++)
        le[i] = (unsigned char)(v >> (8 * i));
    msp_buf_add(b, le, bytes);
}

static bool
is_zip64(const msp_zip_out *z, uint64_t v)
{
    return v >= z->zip64_from;
}

static uint64_t
or_all_ones(const msp_zip_out *z, uint64_t v)
{
    return is_zip64(z, v) ? UINT32_MAX : v;
}

static void
put_local_header(const msp_zip_out *z, msp_buf *b)
{
    bool large = is_zip64(z, z->size) || is_zip64(z, z->packed);

    append_le(b, 0x04034B50, 4);
    append_le(b, large ? VERSION_ZIP64 : VERSION_DEFLATE, 2);
    append_le(b, 0, 2);
    append_le(b, Z_DEFLATED, 2);
    append_le(b, 0, 2);
    append_le(b, DOS_DATE, 2);
    append_le(b, z->crc, 4);
    append_le(b, large ? UINT32_MAX : z->packed, 4);
    append_le(b, large ? UINT32_MAX : z->size, 4);
    append_le(b, z->name.len, 2);
    append_le(b, HINT_SIZE, 2);
    msp_buf_str(b, msp_buf_view(&z->name));
    append_le(b, large ? 0x0001 : 0xA220, 2);
    append_le(b, HINT_SIZE - 4, 2);
    if (large) {
        append_le(b, z->size, 8);
        append_le(b, z->packed, 8);
    } else {
        append_le(b, 0xA028, 2); /* the hint's signature, then padding */
        append_le(b, 0, 6);
        append_le(b, 0, 8);
    }
}

static void
put_directory_record(msp_zip_out *z)
{
    bool size = is_zip64(z, z->size), packed = is_zip64(z, z->packed), at = is_zip64(z, z->header_at);
    size_t fields = 8 * ((size_t)size + packed + at);
    msp_buf *b = &z->directory;

    append_le(b, 0x02014B50, 4);
    append_le(b, 3 << 8 | 45, 2); /* made on Unix */
    append_le(b, fields > 0 ? VERSION_ZIP64 : VERSION_DEFLATE, 2);
    append_le(b, 0, 2);
    append_le(b, Z_DEFLATED, 2);
    append_le(b, 0, 2);
    append_le(b, DOS_DATE, 2);
    append_le(b, z->crc, 4);
    append_le(b, or_all_ones(z, z->packed), 4);
    append_le(b, or_all_ones(z, z->size), 4);
    append_le(b, z->name.len, 2);
    append_le(b, fields > 0 ? fields + 4 : 0, 2);
    append_le(b, 0, 2); /* comment */
    append_le(b, 0, 2); /* disk */
    append_le(b, 0, 2);
    append_le(b, 0100644u << 16, 4);
    append_le(b, or_all_ones(z, z->header_at), 4);
    msp_buf_str(b, msp_buf_view(&z->name));
    if (fields > 0) {
        append_le(b, 0x0001, 2);
        append_le(b, fields, 2);
    }
    if (size)
        append_le(b, z->size, 8);
    if (packed)
        append_le(b, z->packed, 8);
    if (at)
        append_le(b, z->header_at, 8);
}

static void
put_end(const msp_zip_out *z, msp_buf *b)
{
    uint64_t at = z->offset, len = z->directory.len;

    if (is_zip64(z, at) || is_zip64(z, len) || z->entries >= UINT16_MAX) {
        append_le(b, 0x06064B50, 4);
        append_le(b, 44, 8); /* what follows in this record */
        append_le(b, 3 << 8 | 45, 2);
        append_le(b, VERSION_ZIP64, 2);
        append_le(b, 0, 4);
        append_le(b, 0, 4);
        append_le(b, z->entries, 8);
        append_le(b, z->entries, 8);
        append_le(b, len, 8);
        append_le(b, at, 8);
        append_le(b, 0x07064B50, 4); /* locator */
        append_le(b, 0, 4);
        append_le(b, at + len, 8);
        append_le(b, 1, 4);
    }
    append_le(b, 0x06054B50, 4);
    append_le(b, 0, 4);
    append_le(b, z->entries >= UINT16_MAX ? UINT16_MAX : z->entries, 2);
    append_le(b, z->entries >= UINT16_MAX ? UINT16_MAX : z->entries, 2);
    append_le(b, or_all_ones(z, len), 4);
    append_le(b, or_all_ones(z, at), 4);
    append_le(b, 0, 2);
}

/* ---- compression ------------------------------------------------------------------------------------------------ */

static void
compress_block(size_t index, void *payload)
{
    block *b = &((block *)payload)[index];
    z_stream *s = &b->stream;

    b->result = b->ready ? deflateReset(s) : deflateInit2(s, LEVEL, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    if (b->result != Z_OK)
        return;
    b->ready = true;
    if (b->dictionary_len > 0)
        deflateSetDictionary(s, b->dictionary, (uInt)b->dictionary_len);
    s->next_in = (unsigned char *)b->in;
    s->avail_in = (uInt)b->in_len;
    s->next_out = b->out;
    s->avail_out = BLOCK_ROOM;
    b->result = deflate(s, b->last ? Z_FINISH : Z_SYNC_FLUSH);
    assert(b->result != Z_OK || (s->avail_in == 0 && s->avail_out > 0));
    b->out_len = BLOCK_ROOM - s->avail_out;
    b->crc = (uint32_t)crc32(0, b->in, (uInt)b->in_len);
}

/* Share out what waits: returns the number of blocks. The end of an entry is a block too, if need be an empty one. */
static size_t
cut_into_blocks(msp_zip_out *z, bool last)
{
    const unsigned char *start = z->text + WINDOW;
    size_t n = 0;

    for (size_t at = 0; at < z->waiting || (last && n == 0); at += BLOCK, n++) {
        block *b = &z->blocks[n];
        size_t before = at + z->window_len;

        b->in = start + at;
        b->in_len = z->waiting - at < BLOCK ? z->waiting - at : BLOCK;
        b->dictionary_len = before < WINDOW ? before : WINDOW;
        b->dictionary = b->in - b->dictionary_len;
        b->last = last && at + BLOCK >= z->waiting;
    }
    return n;
}

static msp_status
write_out(msp_zip_out *z, const void *p, size_t n, msp_error *err)
{
    msp_status st = msp_file_write(z->file, p, n, err);

    if (st == MSP_OK)
        z->offset += n;
    return st;
}

/* Keep the last WINDOW bytes of the text as the dictionary of what comes next. */
static void
slide_window(msp_zip_out *z)
{
    size_t have = z->window_len + z->waiting;
    size_t keep = have < WINDOW ? have : WINDOW;

    memmove(z->text + WINDOW - keep, z->text + WINDOW + z->waiting - keep, keep);
    z->window_len = keep;
    z->waiting = 0;
}

static msp_status
flush_window(msp_zip_out *z, bool last, msp_error *err)
{
    size_t n = cut_into_blocks(z, last);
    msp_status st = MSP_OK;

    msp_pool_run(n, z->threads, compress_block, z->blocks);
    for (size_t i = 0; i < n && st == MSP_OK; i++) {
        block *b = &z->blocks[i];

        if (b->result != Z_OK && b->result != Z_STREAM_END)
            return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", z->file->path);
        st = write_out(z, b->out, b->out_len, err);
        z->crc = (uint32_t)crc32_combine(z->crc, b->crc, (long)b->in_len);
        z->size += b->in_len;
        z->packed += b->out_len;
    }
    slide_window(z);
    return st;
}

/* ---- entries ---------------------------------------------------------------------------------------------------- */

static msp_status
write_record(msp_zip_out *z, msp_buf *record, msp_error *err)
{
    msp_status st = msp_buf_status(record, err);

    if (st == MSP_OK)
        st = write_out(z, record->p, record->len, err);
    msp_buf_release(record);
    return st;
}

msp_status
msp_zip_out_begin(msp_zip_out *z, const char *name, msp_error *err)
{
    msp_buf record = {0};

    assert(!z->open);
    z->open = true;
    z->header_at = z->offset;
    z->size = z->packed = 0;
    z->crc = 0;
    z->window_len = 0;
    msp_buf_clear(&z->name);
    msp_buf_text(&z->name, name);
    put_local_header(z, &record);
    record.failed |= z->name.failed;
    return write_record(z, &record, err);
}

msp_status
msp_zip_out_write(msp_zip_out *z, const void *p, size_t n, msp_error *err)
{
    const char *at = p;

    assert(z->open);
    while (n > 0) {
        size_t room = BATCH - z->waiting, take = n < room ? n : room;

        memcpy(z->text + WINDOW + z->waiting, at, take);
        z->waiting += take;
        at += take;
        n -= take;
        if (z->waiting == BATCH) {
            msp_status st = flush_window(z, false, err);

            if (st != MSP_OK)
                return st;
        }
    }
    return MSP_OK;
}

msp_status
msp_zip_out_end(msp_zip_out *z, msp_error *err)
{
    msp_status st = flush_window(z, true, err);
    msp_buf header = {0};

    assert(z->open);
    z->open = false;
    if (st != MSP_OK)
        return st;
    put_local_header(z, &header);
    put_directory_record(z);
    z->entries++;
    header.failed |= z->directory.failed;
    st = msp_buf_status(&header, err);
    if (st == MSP_OK)
        st = msp_file_patch(z->file, z->header_at, header.p, header.len, err);
    msp_buf_release(&header);
    return st;
}

msp_status
msp_zip_out_finish(msp_zip_out *z, msp_error *err)
{
    msp_status st = msp_buf_status(&z->directory, err);
    msp_buf end = {0};

    assert(!z->open);
    put_end(z, &end);
    if (st == MSP_OK)
        st = write_out(z, z->directory.p, z->directory.len, err);
    if (st != MSP_OK) {
        msp_buf_release(&end);
        return st;
    }
    return write_record(z, &end, err);
}
