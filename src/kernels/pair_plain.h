/*
 * pair_plain.h - blocks of complex numbers, and of integers too large for a double: one element at a time, the same
 * code on every machine.
 */
#ifndef MSP_KERNELS_PAIR_PLAIN_H
#define MSP_KERNELS_PAIR_PLAIN_H

#include "kernels/pair.h"

__extension__ typedef __int128 msp_i128; /* holds every int64_t, every uint64_t and their differences */

typedef struct msp_c128 {
    double re, im;
} msp_c128;

/* As msp_pair_set's sums with MSP_PAIR_ZEROS; both maxima are exact. kind is MSP_PAIR_C128 or MSP_PAIR_I128. */
void msp_pair_plain_sums(msp_pair_sums *out, msp_pair_kind kind, const void *n, const void *b, size_t count);

size_t msp_pair_plain_find_abs(msp_pair_kind kind, const void *n, const void *b, size_t count, double abs);
size_t msp_pair_plain_find_rel(msp_pair_kind kind, const void *n, const void *b, size_t count, double rel);

#endif
