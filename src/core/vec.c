/* vec.c - see vec.h. */
#include "core/vec.h"

#include <stdint.h>
#include "core/alloc.h"

bool
msp_vec_grow(void **items, size_t *cap, size_t need, size_t size)
{
    size_t want;
    void *p;

    if (need <= *cap)
        return true;
    want = *cap + *cap / 2;
    if (want < need)
        want = need;
    if (want < 8)
        want = 8;
    p = msp_realloc(*items, want, size);
    if (p == NULL)
        return false;
    *items = p;
    *cap = want;
    return true;
}
