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

/* n * size bytes, not initialised; NULL when that overflows or there is no memory. 0 bytes give a pointer to free. */
void *msp_alloc(size_t n, size_t size);

/* The same, zeroed. */
void *msp_alloc_zero(size_t n, size_t size);

/* Resize to n * size bytes; on failure returns NULL and p stays valid. p may be NULL. */
void *msp_realloc(void *p, size_t n, size_t size);

/* Accepts NULL. */
void msp_free(void *p);

/*
 * Tests: let the next n allocations succeed and every later one fail; a negative n ends that. Process-wide.
 */
void msp_alloc_fail_after(int64_t n);

/* Tests: blocks handed out and not yet freed, counted since the process started. */
int64_t msp_alloc_live(void);

#endif
