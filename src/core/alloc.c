/* alloc.c - see alloc.h. Three relaxed atomics are the whole price of the seam. */
#include "core/alloc.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

static _Atomic int64_t fail_after = -1;
static _Atomic int64_t live;
static _Atomic bool metering;
static _Atomic int64_t metered, peak;
static _Atomic size_t reader_extra;
static void (*_Atomic teller)(void *payload);
static void *teller_payload;

static bool
meter_runs(void)
{
    return atomic_load_explicit(&metering, memory_order_relaxed);
}

/* The meter sees what the system's allocator gave, which is a little more than was asked for. */
static void
meter_bytes(int64_t bytes)
{
    int64_t now = atomic_fetch_add(&metered, bytes) + bytes, highest = atomic_load(&peak);

    while (now > highest && !atomic_compare_exchange_weak(&peak, &highest, now))
        ;
}

/* True when somebody only wanted to know. */
static bool
is_told(void)
{
    void (*tell)(void *) = atomic_exchange(&teller, NULL);

    if (tell == NULL)
        return false;
    atomic_store(&fail_after, -1);
    tell(teller_payload);
    return true;
}

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
    return left < 0 || is_told();
}

static void *
count_block(void *p)
{
    if (p != NULL)
        atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    if (meter_runs())
        meter_bytes((int64_t)malloc_usable_size(p));
    return p;
}

void *
msp_alloc(size_t n, size_t size)
{
    size_t total;

    return may_allocate(n, size, &total) ? count_block(malloc(total)) : NULL;
}

void *
msp_alloc_zero(size_t n, size_t size)
{
    size_t total;

    return may_allocate(n, size, &total) ? count_block(calloc(1, total)) : NULL;
}

void *
msp_realloc(void *p, size_t n, size_t size)
{
    size_t total, before;
    void *q;

    if (!may_allocate(n, size, &total))
        return NULL;
    if (p == NULL)
        return count_block(malloc(total));
    before = meter_runs() ? malloc_usable_size(p) : 0;
    q = realloc(p, total);
    if (q != NULL && meter_runs())
        meter_bytes((int64_t)malloc_usable_size(q) - (int64_t)before);
    return q;
}

void
msp_free(void *p)
{
    if (p != NULL)
        atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    if (meter_runs())
        meter_bytes(-(int64_t)malloc_usable_size(p));
    free(p);
}

void
msp_alloc_fail_after(int64_t n)
{
    atomic_store(&fail_after, n < 0 ? -1 : n);
}

void
msp_alloc_tell_after(int64_t n, void (*tell)(void *payload), void *payload)
{
    teller_payload = payload;
    atomic_store(&teller, tell);
    msp_alloc_fail_after(n);
}

int64_t
msp_alloc_live(void)
{
    return atomic_load(&live);
}

size_t
msp_reader_extra(void)
{
    size_t set = atomic_load_explicit(&reader_extra, memory_order_relaxed);

    return set != 0 ? set : (size_t)256 << 20;
}

void
msp_reader_extra_set(size_t bytes)
{
    atomic_store(&reader_extra, bytes);
}

void
msp_alloc_meter_start(void)
{
    atomic_store(&metered, 0);
    atomic_store(&peak, 0);
    atomic_store(&metering, true);
}

int64_t
msp_alloc_meter_stop(void)
{
    atomic_store(&metering, false);
    return atomic_load(&peak);
}
