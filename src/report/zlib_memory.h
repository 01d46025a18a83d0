/* zlib_memory.h - zlib takes its memory where everybody does, so that tests can make it fail. */
#ifndef MSP_REPORT_ZLIB_MEMORY_H
#define MSP_REPORT_ZLIB_MEMORY_H

#include "core/alloc.h"

static inline void *
msp_zlib_alloc(void *unused, unsigned n, unsigned size)
{
    (void)unused;
    return msp_alloc(n, size);
}

static inline void
msp_zlib_free(void *unused, void *p)
{
    (void)unused;
    msp_free(p);
}

#endif
