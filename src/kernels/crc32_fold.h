/*
 * crc32_fold.h - CRC-32 by carry-less multiplication; a template over 128-bit vectors.
 *
 * A CRC is the remainder of the message, read as a polynomial over GF(2), modulo P. Replacing 128 bits of the message
 * that lie d bits before other 128 by their product with x^d mod P, added to those other bits, leaves the remainder as
 * it is. So four accumulators swallow 64 bytes per step, each multiplied by x^512; at the end they are folded into one,
 * and those 16 bytes go through the tables like any other message.
 *
 * The two halves of an accumulator are multiplied separately, by x^(d+32) and x^(d-32) mod P. Bit order is reflected as
 * the CRC's is, which is where the 32 comes from, and the constants are the reflected remainders shifted left by one.
 *
 * The including file defines
 *   vec                           a 128-bit vector
 *   load(p)  store(p, v)          unaligned
 *   set(hi, lo)  add(a, b)        two 64-bit halves; exclusive or
 *   multiply(v, k)                low half of v times low half of k, plus high half times high half (128 bits)
 *   FOLD_ATTRIBUTES               target attributes of the functions below
 */
#include "kernels/crc32.h"

FOLD_ATTRIBUTES static inline uint32_t
crc32_fold(uint32_t reg, const uint8_t *p, size_t n)
{
    const vec by512 = set(0x1c6e41596, 0x154442bd4); /* x^480, x^544 */
    const vec by128 = set(0x0ccaa009e, 0x1751997d0); /* x^96,  x^160 */
    vec a, b, c, d;
    uint8_t rest[16];

    if (n < 64)
        return msp_crc32_table(reg, p, n);
    a = add(load(p), set(0, reg));
    b = load(p + 16);
    c = load(p + 32);
    d = load(p + 48);
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        a = add(multiply(a, by512), load(p));
        b = add(multiply(b, by512), load(p + 16));
        c = add(multiply(c, by512), load(p + 32));
        d = add(multiply(d, by512), load(p + 48));
    }
    b = add(multiply(a, by128), b);
    c = add(multiply(b, by128), c);
    d = add(multiply(c, by128), d);
    for (; n >= 16; p += 16, n -= 16)
        d = add(multiply(d, by128), load(p));
    store(rest, d);
    return msp_crc32_table(msp_crc32_table(0, rest, 16), p, n);
}
