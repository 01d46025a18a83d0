/*
 * probe_field.c - see probe_field.h.
 *
 * What looks like the field in one object may be chance; what does in all of several different ones, in one place only,
 * is the field. Where two places would do nothing is read: the caller has another way.
 */
#include "probe_field.h"
#include <stdint.h>
#include <sys/uio.h>
#include <unistd.h>

static bool
have_all(size_t at, const field_samples *in, field_test *has)
{
    for (int i = 0; i < in->n; i++)
        if (!has(at, (const char *)in->items + (size_t)i * in->size))
            return false;
    return true;
}

bool
msp_field_find(size_t *out, const field_samples *in, size_t step, size_t end, field_test *has)
{
    int places = 0;

    for (size_t at = 0; at < end; at += step)
        if (have_all(at, in, has)) {
            *out = at;
            places++;
        }
    return places == 1;
}

bool
msp_field_peek(void *out, const void *address, size_t size)
{
    struct iovec here = {out, size}, there = {(void *)(uintptr_t)address, size};

    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)size;
}
