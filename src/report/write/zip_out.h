/*
 * zip_out.h - a zip archive written front to back, with deflate spread over the thread pool.
 *
 * An entry's text is cut into blocks of fixed size that are compressed independently (each with the 32 KiB before it
 * as dictionary) and joined at byte boundaries, so the archive has the same bytes whatever the number of threads.
 * Sizes and checksum are patched into the local header when the entry ends: no data descriptors, which some readers of
 * xlsx dislike. The header keeps 20 bytes free (Open Packaging's growth hint, 0xA220), which become the zip64 field of
 * an entry that passes 4 GiB and is ignored otherwise. Memory: about 5 MiB, however large the entries are.
 */
#ifndef MSP_REPORT_ZIP_OUT_H
#define MSP_REPORT_ZIP_OUT_H

#include "core/file.h"
#include "core/str.h"

typedef struct msp_zip_out msp_zip_out;

/* Write into file, which stays the caller's and must be empty, with so many threads (0: one per processor). */
MSP_CHECK msp_status msp_zip_out_open(msp_zip_out **out, msp_file *file, int threads, msp_error *err);

/* Begin an entry. The one before it must have ended. name is copied. */
MSP_CHECK msp_status msp_zip_out_begin(msp_zip_out *z, const char *name, msp_error *err);
MSP_CHECK msp_status msp_zip_out_write(msp_zip_out *z, const void *p, size_t n, msp_error *err);
MSP_CHECK msp_status msp_zip_out_end(msp_zip_out *z, msp_error *err);

/* Write the central directory. The file is complete then; committing it is the caller's part. */
MSP_CHECK msp_status msp_zip_out_finish(msp_zip_out *z, msp_error *err);

/* Free z. Accepts NULL. */
void msp_zip_out_close(msp_zip_out *z);

/* Tests: sizes and offsets from this value on take the zip64 form; the default is 0xFFFFFFFF, as the format says. */
void msp_zip_out_zip64_from(msp_zip_out *z, uint64_t limit);

#endif
