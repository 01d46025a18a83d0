/*
 * pow10.h - powers of ten to 128 bits, for number_print.c and number_read.c.
 *
 * One table for both directions: 667 entries, 10.4 KiB. A smaller one with every 27th power and a multiplication to
 * reach the others would lose the last bits and with them the proof that the digits are right.
 */
#ifndef MSP_CORE_POW10_H
#define MSP_CORE_POW10_H

#include <stdint.h>

enum {
    MSP_POW10_MIN = -342,
    MSP_POW10_MAX = 324,
    MSP_POW10_EXACT_MAX = 55 /* entries 0 to 55 are exact: 5^55 < 2^128 <= 5^56 */
};

/* (hi * 2^64 + lo) * 2^(floor(log2(10^k)) - 127) is 10^k rounded up to 128 bits. */
typedef struct msp_pow10 {
    uint64_t hi, lo;
} msp_pow10;

extern const msp_pow10 msp_pow10_table[MSP_POW10_MAX - MSP_POW10_MIN + 1];

/* floor(log2(10^k)) for |k| <= 1233: the constant is log2(10) * 2^19, rounded down. */
static inline int
msp_pow10_log2(int k)
{
    return (k * 1741647) >> 19;
}

#endif
