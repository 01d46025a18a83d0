/* budget.c - see budget.h. */
#include "io/budget.h"

#include <stdint.h>
#include "core/alloc.h"

/* A quarter stays for the last chunks of two arenas, zlib's window, and what is on the heap whatever the file is. */
void
msp_budget_init(msp_budget *b, size_t file_size)
{
    *b = (msp_budget){.left = &b->own};
    if (__builtin_add_overflow(msp_reader_extra() / 4 * 3, file_size, &b->own))
        b->own = SIZE_MAX;
}

void
msp_budget_join(msp_budget *b, msp_budget *other)
{
    *b = (msp_budget){.left = other->left};
}

void
msp_budget_release(msp_budget *b)
{
    msp_arena_release(&b->arena);
    *b = (msp_budget){0};
}

msp_status
msp_budget_spend(msp_budget *b, size_t n, size_t size, msp_error *err)
{
    size_t total;

    if (__builtin_mul_overflow(n, size, &total) || total > *b->left)
        return msp_error_set(err, MSP_E_LIMIT, "describing its content takes more memory than a file of this size may");
    *b->left -= total;
    return MSP_OK;
}

msp_status
msp_budget_alloc(void **out, msp_budget *b, size_t n, size_t size, msp_error *err)
{
    msp_status st = msp_budget_spend(b, n, size, err);

    if (st == MSP_OK)
        st = msp_budget_spend(b, 1, -(n * size) % 16, err); /* what aligning it costs */

    *out = NULL;
    if (st != MSP_OK)
        return st;
    *out = msp_arena_alloc_zero(&b->arena, n, size);
    return *out != NULL ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory for %zu bytes", n * size);
}

size_t
msp_budget_grown(size_t cap, size_t need)
{
    size_t want = cap + cap / 2;

    return want < need ? need : want;
}
