/*
 * crc32_pmull.c - CRC-32 folding with PMULL.
 *
 * Folding needs one multiplication per 8 bytes and no result for four accumulators in turn, where the CRC32
 * instructions wait for each other; both extensions came to Arm's server cores together.
 */
#if defined(__aarch64__)
#include <arm_neon.h>
#include "kernels/crc32.h"

#define FOLD_ATTRIBUTES __attribute__((target("+crypto")))

typedef uint64x2_t vec;

FOLD_ATTRIBUTES static inline vec
load(const uint8_t *p)
{
    return vreinterpretq_u64_u8(vld1q_u8(p));
}

FOLD_ATTRIBUTES static inline void
store(uint8_t *p, vec v)
{
    vst1q_u8(p, vreinterpretq_u8_u64(v));
}

FOLD_ATTRIBUTES static inline vec
set(uint64_t hi, uint64_t lo)
{
    return vcombine_u64(vcreate_u64(lo), vcreate_u64(hi));
}

FOLD_ATTRIBUTES static inline vec
add(vec a, vec b)
{
    return veorq_u64(a, b);
}

FOLD_ATTRIBUTES static inline vec
multiply(vec v, vec k)
{
    poly128_t lo = vmull_p64((poly64_t)vgetq_lane_u64(v, 0), (poly64_t)vgetq_lane_u64(k, 0));
    poly128_t hi = vmull_high_p64(vreinterpretq_p64_u64(v), vreinterpretq_p64_u64(k));

    return veorq_u64(vreinterpretq_u64_p128(lo), vreinterpretq_u64_p128(hi));
}

#include "kernels/crc32_fold.h"

FOLD_ATTRIBUTES uint32_t
msp_crc32_pmull(uint32_t reg, const uint8_t *p, size_t n)
{
    return crc32_fold(reg, p, n);
}
#else
typedef int msp_not_aarch64;
#endif
