/* prefetch.h - ask for memory before it is needed. */
#ifndef MSP_KERNELS_PREFETCH_H
#define MSP_KERNELS_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

/* What lies ahead bytes after p, which need not be there: the address is only a number until then. */
static inline __attribute__((always_inline)) void
prefetch(const void *p, size_t ahead)
{
    __builtin_prefetch((const void *)((uintptr_t)p + ahead));
}

#endif
