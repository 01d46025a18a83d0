/*
 * vec.h - a growing array of fixed-size items, and the growth rule for arrays that keep their own type.
 *
 * Typed use, which is what most callers want:
 *     row *rows = NULL; size_t n = 0, cap = 0;
 *     if (!msp_vec_grow((void **)&rows, &cap, n + 1, sizeof(*rows))) ... out of memory ...
 *     rows[n++] = r;
 */
#ifndef MSP_CORE_VEC_H
#define MSP_CORE_VEC_H

#include <stdbool.h>
#include <stddef.h>

/* Make room for at least need items of this size, growing by half; false when there is no memory (*items stays valid).
 */
bool msp_vec_grow(void **items, size_t *cap, size_t need, size_t size);

#endif
