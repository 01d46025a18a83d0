/*
 * zip.h - ZIP archives in memory: what .pt and .xlsx files are.
 *
 * An archive is a row of entries (local header, name, extra field, data, sometimes a data descriptor), then the central
 * directory, which repeats every header with its sizes and offset, then the end record, which says where the directory
 * stands. ZIP64 adds wider fields in extra field 0x0001 and a second end record. Anything may stand in front of the
 * archive; offsets then count from where it begins.
 *
 * The directory is the truth: it is read once, and entries are found by it. Local headers are looked at when an
 * entry's data is asked for, so that opening an archive of 100,000 tensors does not touch 100,000 pages. Everything is
 * checked against the archive's size and the neighbouring entries, so data of two entries never overlaps, and what
 * all entries inflate to is bounded by the archive's size times 1032, the most that deflate can do.
 *
 * Memory: 60 bytes per entry, of which the archive itself holds at least 76.
 */
#ifndef MSP_IO_ZIP_H
#define MSP_IO_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/arena.h"
#include "core/file.h"
#include "core/str.h"
#include "msprobe/error.h"

typedef struct msp_zip_entry {
    const char *name; /* in the archive, not terminated */
    uint16_t name_len;
    uint16_t method; /* 0: stored, 8: deflated */
    uint16_t flags;
    uint32_t crc; /* zlib's CRC-32 of the data; 0 in files whose writer was told not to compute it */
    uint64_t packed, size;
    uint64_t at;    /* byte of the local header in the archive's memory */
    uint64_t limit; /* where the next entry, or the directory, begins */
} msp_zip_entry;

enum { MSP_ZIP_ENTRY_COST = sizeof(msp_zip_entry) + sizeof(uint32_t) }; /* bytes of memory */

typedef struct msp_zip {
    const unsigned char *bytes;
    size_t size;
    msp_zip_entry *entries; /* in the directory's order; walk them freely */
    size_t count;
    bool lent;         /* entries stand in somebody's arena */
    uint32_t *by_name; /* indices into entries, sorted by name when there are many; in the entries' block */
} msp_zip;

/*
 * Read the directory of the archive in size bytes at bytes, which the caller keeps alive until msp_zip_close(). Returns
 * MSP_E_FORMAT (the message says what and at which byte), MSP_E_UNSUPPORTED (split archives) or MSP_E_NOMEM; *out is
 * empty then. Two entries of one name are a MSP_E_FORMAT: readers that pick one of them can be made to disagree.
 */
MSP_CHECK msp_status msp_zip_open(msp_zip *out, const void *bytes, size_t size, msp_error *err);

/* msp_zip_open() with the entries in the caller's arena, which must live until msp_zip_close(). */
MSP_CHECK msp_status msp_zip_open_in(msp_zip *out, msp_arena *arena, const void *bytes, size_t size, msp_error *err);

/* Accepts an empty (zeroed) archive and leaves it empty. */
void msp_zip_close(msp_zip *z);

static inline msp_str
msp_zip_name(const msp_zip_entry *e)
{
    return (msp_str){e->name, e->name_len};
}

/* The entry with exactly this name, or NULL. */
const msp_zip_entry *msp_zip_find(const msp_zip *z, msp_str name);

/* The entry whose name is these n parts, or NULL: a folder and what is in it need not be joined. */
const msp_zip_entry *msp_zip_find_parts(const msp_zip *z, const msp_str *parts, size_t n);

/*
 * The packed bytes of an entry, in place: its data when method is 0. Returns MSP_E_FORMAT when the local header
 * contradicts the directory or the data does not fit, MSP_E_UNSUPPORTED for encrypted entries.
 */
MSP_CHECK msp_status msp_zip_packed(msp_str *out, const msp_zip *z, const msp_zip_entry *e, msp_error *err);

/*
 * Can this entry be read at all? Returns what msp_zip_packed() returns, MSP_E_LIMIT when it is larger than limit,
 * MSP_E_UNSUPPORTED for methods other than stored and deflated, MSP_E_FORMAT when it promises more than deflate can
 * pack. Afterwards e->size is a number of bytes that may be allocated.
 */
MSP_CHECK msp_status msp_zip_check(const msp_zip *z, const msp_zip_entry *e, size_t limit, msp_error *err);

/*
 * Put the e->size bytes of an entry that passed msp_zip_check() at to, inflated if need be and checked against the
 * CRC-32 unless that is 0. MSP_E_FORMAT when the data is corrupt.
 */
MSP_CHECK msp_status msp_zip_read_into(void *to, const msp_zip *z, const msp_zip_entry *e, msp_error *err);

/* Both in one, into e->size bytes and one more, 0, that are given back with msp_free(). */
MSP_CHECK msp_status msp_zip_read(char **out, const msp_zip *z, const msp_zip_entry *e, size_t limit, msp_error *err);

/* MSP_E_FORMAT when data, which must be e->size bytes, does not have the entry's CRC-32 and that is not 0. */
MSP_CHECK msp_status msp_zip_check_crc(const msp_zip_entry *e, const void *data, msp_error *err);

/* ---- writing ---------------------------------------------------------------------------------------------------- */

/*
 * Writes stored entries one after the other into a file that the caller creates and commits. As torch does, the CRC
 * follows the data in a data descriptor, so that data is read once and never kept; extra field "FB" moves the data to a
 * multiple of align bytes; ZIP64 forms appear only where a size or an offset needs them.
 */
typedef struct msp_zip_writer {
    msp_file *file;
    msp_buf pending;   /* bytes not yet handed to the file: small entries become one write */
    msp_buf directory; /* central headers of the entries written so far */
    uint64_t at;       /* bytes written, pending ones included */
    uint64_t count;
    msp_str lent; /* of the caller's memory, and where in pending it belongs */
    size_t lent_at;
    uint64_t entry_at, entry_size; /* the entry being written: where its header stands, what it will hold */
    uint64_t entry_left;           /* how much of that is to come */
    size_t entry_header;           /* where its central header stands in directory */
    uint32_t crc;
    bool zip64;       /* the entry has 64-bit sizes */
    bool zip64_force; /* tests: use ZIP64 forms everywhere */
} msp_zip_writer;

void msp_zip_writer_init(msp_zip_writer *w, msp_file *file);
void msp_zip_writer_release(msp_zip_writer *w);

/* Begin an entry of size bytes whose data stands at a multiple of align, at most 4096; 1: anywhere. */
MSP_CHECK msp_status msp_zip_writer_begin(msp_zip_writer *w, msp_str name, uint64_t size, unsigned align,
                                          msp_error *err);

/* The next n bytes of the entry; together exactly size, or it is an assert. */
MSP_CHECK msp_status msp_zip_writer_data(msp_zip_writer *w, const void *p, size_t n, msp_error *err);

/*
 * msp_zip_writer_data() for bytes that stay where they are until the archive is finished: they need not be written
 * alone, and a file of a small tensor is one write.
 */
MSP_CHECK msp_status msp_zip_writer_lend(msp_zip_writer *w, const void *p, size_t n, msp_error *err);

/* msp_zip_writer_data() for a caller who sees to the entry's CRC-32 himself: it must stand in w->crc before
 * msp_zip_writer_end(). */
MSP_CHECK msp_status msp_zip_writer_raw(msp_zip_writer *w, const void *p, size_t n, msp_error *err);

/* The entry is complete. */
MSP_CHECK msp_status msp_zip_writer_end(msp_zip_writer *w, msp_error *err);

/* Write the directory and the end record. Only msp_zip_writer_release() may follow. */
MSP_CHECK msp_status msp_zip_writer_finish(msp_zip_writer *w, msp_error *err);

#endif
