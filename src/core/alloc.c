/* alloc.c - see alloc.h. Two relaxed atomics are the whole price of the seam. */
#include "core/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>

static _Atomic int64_t fail_after = -1;
static _Atomic int64_t live;

static int
may_allocate(size_t n, size_t size, size_t *total)
{
    int64_t left;

    if (__builtin_mul_overflow(n, size, total))
        return 0;
    if (*total == 0)
        *total = 1;
    left = atomic_load_explicit(&fail_after, memory_order_relaxed);
    if (left < 0)
        return 1;
    while (left > 0)
        if (atomic_compare_exchange_weak(&fail_after, &left, left - 1))
            return 1;
    return left < 0;
}

static void *
counted(void *p)
{
    if (p != NULL)
        atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return p;
}

void *
msp_alloc(size_t n, size_t size)
{
    size_t total;

    return may_allocate(n, size, &total) ? counted(malloc(total)) : NULL;
}

void *
msp_alloc_zero(size_t n, size_t size)
{
    size_t total;

    return may_allocate(n, size, &total) ? counted(calloc(1, total)) : NULL;
}

void *
msp_realloc(void *p, size_t n, size_t size)
{
    size_t total;
    void *q;

    if (!may_allocate(n, size, &total))
        return NULL;
    q = realloc(p, total);
    return p == NULL ? counted(q) : q;
}

void
msp_free(void *p)
{
    if (p != NULL)
        atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    free(p);
}

void
msp_alloc_fail_after(int64_t n)
{
    atomic_store(&fail_after, n < 0 ? -1 : n);
}

int64_t
msp_alloc_live(void)
{
    return atomic_load(&live);
}
