/*
 * alloc.h - the one seam through which all memory comes.
 *
 * Sizes are multiplied with an overflow check here, so that no caller does it. Tests make the n-th allocation fail with
 * msp_alloc_fail_after() and so walk every out-of-memory path. All functions may be called from any thread.
 */
#ifndef MSP_CORE_ALLOC_H
#define MSP_CORE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/*
 * No reader of a file takes more memory than the file's size plus this. A few bytes can ask for much more ("[0,0,0,..."
 * for a tree of twenty times its size), so readers count what they take and end in MSP_E_LIMIT; what stands in real
 * files is far from it. tests/unit/core/test_memory.c measures them; a workbook's texts have a limit of their own
 * (table_read.h).
 */
size_t msp_reader_extra(void); /* 256 MiB */

/* Tests: another constant, at least 16 MiB; 0 is the usual one. */
void msp_reader_extra_set(size_t bytes);

/* n * size bytes, not initialised; NULL when that overflows or there is no memory. 0 bytes give a pointer to free. */
void *msp_alloc(size_t n, size_t size);

/* n * size zero bytes; NULL as with msp_alloc(). */
void *msp_alloc_zero(size_t n, size_t size);

/* Resize to n * size bytes; on failure returns NULL and p stays valid. p may be NULL. */
void *msp_realloc(void *p, size_t n, size_t size);

/* Accepts NULL. */
void msp_free(void *p);

/*
 * Tests: let the next n allocations succeed and every later one fail; a negative n ends that. Process-wide.
 */
void msp_alloc_fail_after(int64_t n);

/* Tests: call tell once, in place of the failure, when n allocations have succeeded: a point that no clock decides. */
void msp_alloc_tell_after(int64_t n, void (*tell)(void *payload), void *payload);

/* Tests: blocks handed out and not yet freed, counted since the process started. */
int64_t msp_alloc_live(void);

/*
 * Tests: from msp_alloc_meter_start() on, the bytes that are handed out are summed up; msp_alloc_meter_stop() says how
 * many were out at the same time at most, and ends it. Blocks from before the start must not be freed in between.
 * Process-wide.
 */
void msp_alloc_meter_start(void);
int64_t msp_alloc_meter_stop(void);

#endif
