/*
 * arena.c - chunks that double from 4 KiB to 1 MiB, so that a small tree stays small and a large one costs few calls. A
 * block larger than a quarter of the next chunk gets a chunk of its own, and the current one goes on being filled.
 */
#include "core/arena.h"

#include <stdint.h>
#include <string.h>
#include "core/alloc.h"

enum { CHUNK_MIN = 4096, CHUNK_MAX = 1 << 20, ALIGN = 16 };

struct msp_arena_chunk {
    msp_arena_chunk *older;
    size_t size;
    _Alignas(ALIGN) char bytes[];
};

static msp_arena_chunk *
add_chunk(msp_arena *a, size_t size)
{
    msp_arena_chunk *c;

    if (size > SIZE_MAX - sizeof(*c))
        return NULL;
    c = msp_alloc(1, sizeof(*c) + size);
    if (c == NULL)
        return NULL;
    c->size = size;
    a->reserved += sizeof(*c) + size;
    return c;
}

static char *
take_room(msp_arena *a, size_t size, size_t align)
{
    uintptr_t at = ((uintptr_t)a->at + align - 1) & ~(uintptr_t)(align - 1);
    msp_arena_chunk *c;
    size_t next;

    if (a->at != NULL && at <= (uintptr_t)a->end && size <= (uintptr_t)a->end - at) {
        a->at = (char *)at + size;
        return (char *)at;
    }
    next = a->reserved < CHUNK_MIN ? CHUNK_MIN : a->reserved > CHUNK_MAX ? CHUNK_MAX : a->reserved;
    if (size > next / 4 && a->chunk != NULL) {
        c = add_chunk(a, size);
        if (c == NULL)
            return NULL;
        c->older = a->chunk->older; /* behind the current chunk */
        a->chunk->older = c;
        return c->bytes;
    }
    c = add_chunk(a, size > next ? size : next);
    if (c == NULL)
        return NULL;
    c->older = a->chunk;
    a->chunk = c;
    a->at = c->bytes + size;
    a->end = c->bytes + c->size;
    return c->bytes;
}

void *
msp_arena_alloc(msp_arena *a, size_t n, size_t size)
{
    size_t total;

    if (__builtin_mul_overflow(n, size, &total))
        return NULL;
    return take_room(a, total, ALIGN);
}

void *
msp_arena_alloc_zero(msp_arena *a, size_t n, size_t size)
{
    void *p = msp_arena_alloc(a, n, size);

    return p == NULL ? NULL : memset(p, 0, n * size);
}

char *
msp_arena_text(msp_arena *a, const char *p, size_t len)
{
    char *q = len == SIZE_MAX ? NULL : take_room(a, len + 1, 1);

    if (q == NULL)
        return NULL;
    if (len > 0)
        memcpy(q, p, len);
    q[len] = '\0';
    return q;
}

void
msp_arena_release(msp_arena *a)
{
    msp_arena_chunk *c = a->chunk;

    while (c != NULL) {
        msp_arena_chunk *older = c->older;

        msp_free(c);
        c = older;
    }
    *a = (msp_arena){0};
}
