/*
 * fingerprint.h - the 128-bit fingerprint's algorithm and its inner loop's variants.
 *
 * What is hashed: the elements' bytes in row-major order, padded with zeros to a multiple of 128, as little-endian
 * 64-bit words; then dtype, number of dimensions and every size. Since the sizes give the number of bytes, the padding
 * is not ambiguous. All arithmetic is modulo 2^64.
 *
 * 1. Sixteen chains. Word i of each stripe of 16 words goes into chain i, whose state is a[i], begun with KEYS[i], and
 *    b[i], begun with 0:
 *        x    = a[i] + word
 *        a[i] = (x ^ x >> 29) * 0x9e3779b1
 *        b[i] = b[i] + (x mod 2^32) * (x >> 32)
 *    For a given state the step of a is a bijection of the word (the multiplier is odd), so one changed word always
 *    changes a[i]. Where a later word brings a[i] back to what it was, b[i], the sum of products of all states on the
 *    way, still holds the difference. A product, since a plain sum of states does not see pairs of sign flips: a
 *    difference in the highest bit alone passes through additions and multiplications unchanged. The shift is no
 *    multiple of 16, so that sign bits of neighbouring elements do not meet in it. Chains are independent and a step
 *    needs three 32-bit multiplications, so that AVX2 takes 128 bytes in about eleven cycles.
 *
 * 2. Folding. Header words, then a[0], b[0], a[1], ... are absorbed into two words by the step
 *        lo = mix(lo + w);  hi = mix(hi ^ (rotate(lo, 32) + w * ODD))
 *    with mix(x): x ^= x >> 32; x *= ODD_1; x ^= x >> 29; x *= ODD_2; x ^= x >> 32.
 *
 * The order of elements matters within a chain because the step is not commutative, across chains because they begin
 * differently and are folded in order. Not cryptographic: whoever wants a collision can make one.
 */
#ifndef MSP_KERNELS_FINGERPRINT_H
#define MSP_KERNELS_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

enum { MSP_FP_CHAINS = 16, MSP_FP_STRIPE = 8 * MSP_FP_CHAINS };

#define MSP_FP_MULTIPLIER 0x9e3779b1u /* 2^32 / golden ratio, a prime: no pattern in its bits */

typedef struct msp_fp_state {
    uint64_t a[MSP_FP_CHAINS], b[MSP_FP_CHAINS];
} msp_fp_state;

/* Absorb whole stripes. The variants give the same result. */
typedef void msp_fp_fn(msp_fp_state *s, const uint8_t *p, size_t stripes);

#if defined(__x86_64__)
void msp_fp_absorb_avx2(msp_fp_state *s, const uint8_t *p, size_t stripes);
#endif

#endif
