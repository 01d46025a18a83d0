/*
 * arena.h - many small blocks that are freed together: parse trees, names, tables of pointers.
 *
 * A zeroed msp_arena is an empty one. Blocks are aligned to 16 bytes (msp_arena_alloc) or not at all (msp_arena_text).
 * Not thread-safe.
 */
#ifndef MSP_CORE_ARENA_H
#define MSP_CORE_ARENA_H

#include <stddef.h>

typedef struct msp_arena_chunk msp_arena_chunk;

typedef struct msp_arena {
    msp_arena_chunk *chunk; /* the newest; it links to the older ones */
    char *at, *end;         /* free part of it */
    size_t reserved;        /* bytes taken from the allocator */
} msp_arena;

/* Let an empty arena use size bytes of the caller's memory, usually a stack's, before it takes any of its own. */
static inline void
msp_arena_lend(msp_arena *a, void *p, size_t size)
{
    a->at = p;
    a->end = a->at + size;
}

/* n * size bytes, not initialised; NULL when there is no memory. */
void *msp_arena_alloc(msp_arena *a, size_t n, size_t size);

/* n * size zero bytes; NULL when there is no memory. */
void *msp_arena_alloc_zero(msp_arena *a, size_t n, size_t size);

/* A copy of len bytes with a terminator after them; NULL when there is no memory. */
char *msp_arena_text(msp_arena *a, const char *p, size_t len);

/* Free everything; the arena is empty and usable afterwards. */
void msp_arena_release(msp_arena *a);

#endif
