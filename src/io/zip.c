/* zip.c - reading archives; see zip.h. */
#include "io/zip.h"

#include <stdlib.h>
#include <zlib.h>
#include "core/alloc.h"
#include "io/bytes.h"
#include "msprobe/stats.h"

enum {
    LOCAL_SIZE = 30,
    CENTRAL_SIZE = 46,
    END_SIZE = 22,
    LOCATOR_SIZE = 20,
    END64_SIZE = 56,
    COMMENT_MAX = 65535,
    LINEAR_MAX = 16,
    INFLATE_RATIO = 1032, /* a match of 258 bytes takes at least 2 bits */
    FLAG_ENCRYPTED = 1,
    METHOD_STORED = 0,
    METHOD_DEFLATED = 8
};

#define SIG_LOCAL   0x04034b50u
#define SIG_CENTRAL 0x02014b50u
#define SIG_END     0x06054b50u
#define SIG_LOCATOR 0x07064b50u
#define SIG_END64   0x06064b50u

/* Where the directory stands, after the end records have been understood. */
typedef struct directory {
    uint64_t at, size, count;
    uint64_t base; /* what offsets in headers count from */
} directory;

static msp_status
find_end_record(size_t *out, const unsigned char *p, size_t size, msp_error *err)
{
    size_t lowest;

    *out = 0;
    lowest = size > END_SIZE + COMMENT_MAX ? size - END_SIZE - COMMENT_MAX : 0;

    if (size < END_SIZE)
        return msp_error_set(err, MSP_E_FORMAT, "zip: %zu bytes are too few for an archive", size);
    for (size_t at = size - END_SIZE + 1; at-- > lowest;) {
        if (load_u32(p + at) == SIG_END && at + END_SIZE + load_u16(p + at + 20) == size) {
            *out = at;
            return MSP_OK;
        }
    }
    return msp_error_set(err, MSP_E_FORMAT,
                         "zip: no end record in the last bytes: the file is cut short or no archive");
}

/* The position of the ZIP64 end record: where the locator says, or, when something stands in front, just before it. */
static msp_status
find_end64(size_t *out, const unsigned char *p, size_t locator, msp_error *err)
{
    uint64_t said = load_u64(p + locator + 8);

    if (within(said, END64_SIZE, locator) && load_u32(p + said) == SIG_END64)
        *out = said;
    else if (locator >= END64_SIZE && load_u32(p + locator - END64_SIZE) == SIG_END64)
        *out = locator - END64_SIZE;
    else
        return msp_error_set(err, MSP_E_FORMAT, "zip: no ZIP64 end record where byte %zu says", locator + 8);
    return MSP_OK;
}

static msp_status
find_directory(directory *out, const unsigned char *p, size_t size, msp_error *err)
{
    uint64_t offset, disks;
    msp_status st;
    size_t end;

    st = find_end_record(&end, p, size, err);
    if (st != MSP_OK)
        return st;
    disks = load_u16(p + end + 4) | load_u16(p + end + 6);
    out->count = load_u16(p + end + 10);
    out->size = load_u32(p + end + 12);
    offset = load_u32(p + end + 16);
    /* torch writes the ZIP64 end record even where nothing needs it: the directory then ends before that one */
    if (end >= LOCATOR_SIZE && load_u32(p + end - LOCATOR_SIZE) == SIG_LOCATOR) {
        st = find_end64(&end, p, end - LOCATOR_SIZE, err);
        if (st != MSP_OK)
            return st;
        disks = load_u32(p + end + 16) | load_u32(p + end + 20);
        out->count = load_u64(p + end + 32);
        out->size = load_u64(p + end + 40);
        offset = load_u64(p + end + 48);
    }
    if (disks != 0)
        return msp_error_set(err, MSP_E_UNSUPPORTED, "zip: archives split over several disks are not read");
    if (!within(offset, out->size, end))
        return msp_error_set(err, MSP_E_FORMAT,
                             "zip: the directory (byte %llu, %llu bytes) does not fit before byte %zu",
                             (unsigned long long)offset, (unsigned long long)out->size, end);
    out->at = end - out->size;
    out->base = out->at - offset;
    if (out->count > out->size / CENTRAL_SIZE || out->count > offset / LOCAL_SIZE)
        return msp_error_set(err, MSP_E_FORMAT,
                             "zip: %llu entries cannot stand in a directory of %llu bytes, nor before byte %llu",
                             (unsigned long long)out->count, (unsigned long long)out->size,
                             (unsigned long long)out->at);
    if (out->count > UINT32_MAX - 1)
        return msp_error_set(err, MSP_E_LIMIT, "zip: more than 2^32 entries");
    return MSP_OK;
}

/* Fields that do not fit 32 bits stand in extra field 1, in this order, and only those that do not fit. */
static bool
read_zip64_extra(msp_zip_entry *e, const unsigned char *extra, size_t len)
{
    uint64_t *fields[] = {&e->size, &e->packed, &e->at};
    size_t at = 0;

    while (len - at >= 4) {
        size_t n = load_u16(extra + at + 2), used = 0;

        if (n > len - at - 4)
            break;
        if (load_u16(extra + at) != 1) {
            at += 4 + n;
            continue;
        }
        for (int i = 0; i < 3; i++) {
            if (*fields[i] != UINT32_MAX)
                continue;
            if (n - used < 8)
                return false;
            *fields[i] = load_u64(extra + at + 4 + used);
            used += 8;
        }
        return true;
    }
    return true; /* a size of exactly 2^32 - 1 needs no ZIP64 */
}

static msp_status
read_central_header(msp_zip_entry *out, uint64_t *at, const unsigned char *p, const directory *d, msp_error *err)
{
    uint64_t left = d->at + d->size - *at;
    const unsigned char *h = p + *at;
    size_t name_len, extra_len, total;

    if (left < CENTRAL_SIZE || load_u32(h) != SIG_CENTRAL)
        return msp_error_set(err, MSP_E_FORMAT, "zip: no directory entry at byte %llu", (unsigned long long)*at);
    name_len = load_u16(h + 28);
    extra_len = load_u16(h + 30);
    total = CENTRAL_SIZE + name_len + extra_len + load_u16(h + 32);
    if (total > left)
        return msp_error_set(err, MSP_E_FORMAT, "zip: the directory entry at byte %llu is cut short",
                             (unsigned long long)*at);
    *out = (msp_zip_entry){.name = (const char *)h + CENTRAL_SIZE,
                           .name_len = (uint16_t)name_len,
                           .method = load_u16(h + 10),
                           .flags = load_u16(h + 8),
                           .crc = load_u32(h + 16),
                           .packed = load_u32(h + 20),
                           .size = load_u32(h + 24),
                           .at = load_u32(h + 42)};
    if (!read_zip64_extra(out, h + CENTRAL_SIZE + name_len, extra_len))
        return msp_error_set(err, MSP_E_FORMAT, "zip: the ZIP64 field of the directory entry at byte %llu is cut short",
                             (unsigned long long)*at);
    if (!within(out->at, LOCAL_SIZE, d->at - d->base))
        return msp_error_set(err, MSP_E_FORMAT, "zip: the directory entry at byte %llu points outside the archive",
                             (unsigned long long)*at);
    out->at += d->base;
    *at += total;
    return MSP_OK;
}

static msp_status
read_directory(msp_zip *z, msp_arena *arena, const directory *d, msp_error *err)
{
    const unsigned char *bytes = z->bytes;
    msp_zip_entry *entries;
    uint64_t at = d->at;

    z->lent = arena != NULL;
    entries = z->lent ? msp_arena_alloc(arena, d->count, MSP_ZIP_ENTRY_COST) /* one block for both */
                      : msp_alloc(d->count, MSP_ZIP_ENTRY_COST);
    if (entries == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "zip: out of memory for %llu entries", (unsigned long long)d->count);
    z->entries = entries;
    z->count = d->count;
    z->by_name = (uint32_t *)(entries + d->count);
    for (size_t i = 0; i < d->count; i++) {
        msp_status st = read_central_header(&entries[i], &at, bytes, d, err);

        if (st != MSP_OK)
            return st;
    }
    if (at != d->at + d->size)
        return msp_error_set(err, MSP_E_FORMAT, "zip: %llu bytes at byte %llu of the directory belong to no entry",
                             (unsigned long long)(d->at + d->size - at), (unsigned long long)at);
    return MSP_OK;
}

static int
compare_at(const void *a, const void *b, void *payload)
{
    const msp_zip_entry *e = payload;
    uint64_t x = e[*(const uint32_t *)a].at, y = e[*(const uint32_t *)b].at;

    return (x > y) - (x < y);
}

/* As most archives are; the sort would not notice. */
static bool
is_in_order(const msp_zip *z)
{
    for (size_t i = 1; i < z->count; i++)
        if (z->entries[i - 1].at > z->entries[i].at)
            return false;
    return true;
}

static int
compare_name(const void *a, const void *b, void *payload)
{
    const msp_zip_entry *e = payload;

    return msp_str_cmp(msp_zip_name(&e[*(const uint32_t *)a]), msp_zip_name(&e[*(const uint32_t *)b]));
}

typedef int index_compare(const void *a, const void *b, void *payload);

static void
sort_index(msp_zip *z, index_compare *compare)
{
    for (size_t i = 0; i < z->count; i++)
        z->by_name[i] = (uint32_t)i;
    qsort_r(z->by_name, z->count, sizeof(*z->by_name), compare, z->entries);
}

/* Let every entry know where the next one begins. by_name serves as scratch. */
static msp_status
set_limits(msp_zip *z, uint64_t end, msp_error *err)
{
    bool in_order = is_in_order(z);

    if (!in_order)
        sort_index(z, compare_at);
    for (size_t i = z->count; i-- > 0;) {
        msp_zip_entry *e = &z->entries[in_order ? i : z->by_name[i]];

        e->limit = end;
        end = e->at;
        if (e->packed > e->limit - e->at || e->limit - e->at - e->packed < LOCAL_SIZE)
            return msp_error_set(err, MSP_E_FORMAT, "zip: the entry at byte %llu (%llu bytes) overlaps what follows it",
                                 (unsigned long long)e->at, (unsigned long long)e->packed);
    }
    return MSP_OK;
}

/* Is the name what the parts are together, len bytes? */
static bool
has_name(const msp_zip_entry *e, const msp_str *parts, size_t n, size_t len)
{
    const char *p = e->name;

    if (e->name_len != len)
        return false;
    for (size_t i = 0; i < n; p += parts[i++].len)
        if (parts[i].len > 0 && memcmp(p, parts[i].p, parts[i].len) != 0)
            return false;
    return true;
}

/* Few names are compared each with each: their lengths mostly tell them apart, and no order is needed. */
static const msp_zip_entry *
find_linear(const msp_zip_entry *e, size_t count, const msp_str *parts, size_t n, size_t len)
{
    for (size_t i = 0; i < count; i++)
        if (has_name(&e[i], parts, n, len))
            return &e[i];
    return NULL;
}

static msp_status
index_names(msp_zip *z, msp_error *err)
{
    const msp_zip_entry *twin = NULL;

    if (z->count <= LINEAR_MAX) {
        for (size_t i = 1; i < z->count && twin == NULL; i++) {
            msp_str name = msp_zip_name(&z->entries[i]);

            twin = find_linear(z->entries, i, &name, 1, name.len);
        }
    } else {
        sort_index(z, compare_name);
        for (size_t i = 1; i < z->count && twin == NULL; i++)
            if (compare_name(&z->by_name[i - 1], &z->by_name[i], z->entries) == 0)
                twin = &z->entries[z->by_name[i]];
    }
    if (twin != NULL)
        return msp_error_set(err, MSP_E_FORMAT, "zip: two entries have the name '%.*s'", twin->name_len, twin->name);
    return MSP_OK;
}

msp_status
msp_zip_open(msp_zip *out, const void *bytes, size_t size, msp_error *err)
{
    return msp_zip_open_in(out, NULL, bytes, size, err);
}

msp_status
msp_zip_open_in(msp_zip *out, msp_arena *arena, const void *bytes, size_t size, msp_error *err)
{
    directory d = {0};
    msp_status st;

    *out = (msp_zip){.bytes = bytes, .size = size};
    st = find_directory(&d, bytes, size, err);
    if (st == MSP_OK)
        st = read_directory(out, arena, &d, err);
    if (st == MSP_OK)
        st = set_limits(out, d.at, err);
    if (st == MSP_OK)
        st = index_names(out, err);
    if (st != MSP_OK)
        msp_zip_close(out);
    return st;
}

void
msp_zip_close(msp_zip *z)
{
    if (!z->lent)
        msp_free(z->entries);
    *z = (msp_zip){0};
}

/* The order of a name and of what the parts are together, as msp_str_cmp() has it. */
static int
compare_parts(msp_str name, const msp_str *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t len = parts[i].len < name.len ? parts[i].len : name.len;
        int c = msp_str_cmp((msp_str){name.p, len}, parts[i]);

        if (c != 0)
            return c;
        name.p += len;
        name.len -= len;
    }
    return name.len > 0;
}

const msp_zip_entry *
msp_zip_find_parts(const msp_zip *z, const msp_str *parts, size_t n)
{
    size_t lo = 0, hi = z->count, len = 0;

    if (z->count <= LINEAR_MAX) {
        for (size_t i = 0; i < n; i++)
            len += parts[i].len;
        return find_linear(z->entries, z->count, parts, n, len);
    }
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const msp_zip_entry *e = &z->entries[z->by_name[mid]];
        int c = compare_parts(msp_zip_name(e), parts, n);

        if (c == 0)
            return e;
        if (c > 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

const msp_zip_entry *
msp_zip_find(const msp_zip *z, msp_str name)
{
    return msp_zip_find_parts(z, &name, 1);
}

msp_status
msp_zip_packed(msp_str *out, const msp_zip *z, const msp_zip_entry *e, msp_error *err)
{
    const unsigned char *h = z->bytes + e->at;
    uint64_t data;

    *out = (msp_str){0};
    if (load_u32(h) != SIG_LOCAL)
        return msp_error_set(err, MSP_E_FORMAT, "zip: no entry at byte %llu, where the directory says '%.*s' is",
                             (unsigned long long)e->at, e->name_len, e->name);
    if ((e->flags | load_u16(h + 6)) & FLAG_ENCRYPTED)
        return msp_error_set(err, MSP_E_UNSUPPORTED, "zip: '%.*s' is encrypted", e->name_len, e->name);
    data = e->at + LOCAL_SIZE + load_u16(h + 26) + load_u16(h + 28);
    if (load_u16(h + 26) != e->name_len || load_u16(h + 8) != e->method || !within(data, e->packed, e->limit) ||
        memcmp(h + LOCAL_SIZE, e->name, e->name_len) != 0)
        return msp_error_set(err, MSP_E_FORMAT, "zip: the header at byte %llu contradicts the directory's '%.*s'",
                             (unsigned long long)e->at, e->name_len, e->name);
    if (e->method == METHOD_STORED && e->packed != e->size)
        return msp_error_set(err, MSP_E_FORMAT, "zip: '%.*s' is stored as it is, but with two different sizes",
                             e->name_len, e->name);
    *out = (msp_str){(const char *)z->bytes + data, e->packed};
    return MSP_OK;
}

static void *
zlib_alloc(void *payload, unsigned n, unsigned size)
{
    (void)payload;
    return msp_alloc(n, size);
}

static void
zlib_free(void *payload, void *p)
{
    (void)payload;
    msp_free(p);
}

/* zlib counts in unsigned int: what is longer goes through in pieces. */
static void
next_piece(unsigned *piece, size_t *left)
{
    if (*piece == 0) {
        *piece = *left < (1u << 30) ? (unsigned)*left : 1u << 30;
        *left -= *piece;
    }
}

static msp_status
inflate_all(char *out, size_t size, msp_str packed, msp_error *err)
{
    z_stream s = {.zalloc = zlib_alloc, .zfree = zlib_free};
    size_t in_left = packed.len, out_left = size;
    int code;

    if (inflateInit2(&s, -MAX_WBITS) != Z_OK)
        return msp_error_set(err, MSP_E_NOMEM, "zip: out of memory for inflating");
    s.next_in = (unsigned char *)packed.p;
    s.next_out = (unsigned char *)out;
    do {
        next_piece(&s.avail_in, &in_left);
        next_piece(&s.avail_out, &out_left);
        code = inflate(&s, Z_NO_FLUSH);
    } while (code == Z_OK && (s.avail_in > 0 || in_left > 0 || s.avail_out == 0));
    out_left += s.avail_out;
    inflateEnd(&s);
    if (code == Z_MEM_ERROR)
        return msp_error_set(err, MSP_E_NOMEM, "zip: out of memory for inflating");
    if (code != Z_STREAM_END || out_left > 0)
        return msp_error_set(err, MSP_E_FORMAT, "zip: corrupt deflate data, %zu of %zu bytes came out", size - out_left,
                             size);
    return MSP_OK;
}

msp_status
msp_zip_check(const msp_zip *z, const msp_zip_entry *e, size_t limit, msp_error *err)
{
    msp_str packed;
    msp_status st = msp_zip_packed(&packed, z, e, err);

    if (st != MSP_OK)
        return st;
    if (e->method != METHOD_STORED && e->method != METHOD_DEFLATED)
        return msp_error_set(err, MSP_E_UNSUPPORTED, "zip: '%.*s' is compressed with method %u; only deflate is read",
                             e->name_len, e->name, e->method);
    if (e->size > limit)
        return msp_error_set(err, MSP_E_LIMIT, "zip: '%.*s' has %llu bytes, more than the %zu allowed here",
                             e->name_len, e->name, (unsigned long long)e->size, limit);
    if (e->method == METHOD_DEFLATED && e->size / INFLATE_RATIO > packed.len)
        return msp_error_set(err, MSP_E_FORMAT,
                             "zip: '%.*s' promises %llu bytes out of %zu, more than deflate can pack", e->name_len,
                             e->name, (unsigned long long)e->size, packed.len);
    return MSP_OK;
}

msp_status
msp_zip_read_into(void *to, const msp_zip *z, const msp_zip_entry *e, msp_error *err)
{
    msp_str packed;
    msp_status st = msp_zip_packed(&packed, z, e, err);

    if (st != MSP_OK)
        return st;
    if (e->method != METHOD_STORED)
        st = inflate_all(to, e->size, packed, err);
    else if (packed.len > 0)
        memcpy(to, packed.p, packed.len);
    return st == MSP_OK ? msp_zip_check_crc(e, to, err) : st;
}

msp_status
msp_zip_read(char **out, const msp_zip *z, const msp_zip_entry *e, size_t limit, msp_error *err)
{
    msp_status st = msp_zip_check(z, e, limit, err);
    char *p;

    *out = NULL;
    if (st != MSP_OK)
        return st;
    p = e->size == SIZE_MAX ? NULL : msp_alloc(e->size + 1, 1);
    if (p == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "zip: out of memory for the %llu bytes of '%.*s'",
                             (unsigned long long)e->size, e->name_len, e->name);
    st = msp_zip_read_into(p, z, e, err);
    if (st != MSP_OK) {
        msp_free(p);
        return st;
    }
    p[e->size] = '\0';
    *out = p;
    return MSP_OK;
}

msp_status
msp_zip_check_crc(const msp_zip_entry *e, const void *data, msp_error *err)
{
    uint32_t crc;

    if (e->crc == 0) /* torch.serialization.set_crc32_options(False) */
        return MSP_OK;
    crc = msp_crc32_bytes(0, data, e->size);
    if (crc != e->crc)
        return msp_error_set(err, MSP_E_FORMAT, "zip: '%.*s' is damaged: CRC-32 %08x instead of %08x", e->name_len,
                             e->name, crc, e->crc);
    return MSP_OK;
}
