/*
 * stats_scalar.c - the statistics kernels without SIMD: the reference for all others, and what does their last few
 * elements.
 */
#include <string.h>
#include "dtype/convert.h"
#include "kernels/stats_kernel.h"

#define KERNEL_ATTRIBUTES
#include "kernels/stats_plain.h"

/* What the bits of elements tell; kept out of memory, where each update would wait for the one before. */
typedef struct bit_facts {
    msp_stats_range range;
    int64_t zero, tiny;
} bit_facts;

/* An element's bits, sign at bit width - 1; floats below smallest_normal are subnormal or zero. */
static inline void
note_bits(bit_facts *facts, uint64_t bits, int width, uint64_t smallest_normal)
{
    uint64_t magnitude = bits & ~(UINT64_C(1) << (width - 1));
    int64_t as_signed = (int64_t)(bits << (64 - width)) >> (64 - width);

    msp_stats_note_range(&facts->range, as_signed, bits, bits);
    facts->zero += magnitude == 0;
    facts->tiny += magnitude < smallest_normal;
}

static inline void
add_group(msp_stats_floats *out, const double d[16])
{
    for (int j = 0; j < 8; j++)
        out->sum[j] += d[j] + d[j + 8];
    for (int j = 0; j < 16; j++)
        out->square[j] += d[j] * d[j];
}

/* slot(j): where the group's j-th element goes. */
#define FLOAT_KERNEL(name, raw_t, width, smallest_normal, to_double, slot) \
    static void name(msp_stats_floats *out, const void *p, size_t n)       \
    {                                                                      \
        const any_##raw_t *x = p;                                          \
        bit_facts facts = {out->range, out->zero, out->tiny};              \
                                                                           \
        for (size_t i = 0; i < n; i += 16) {                               \
            size_t m = n - i < 16 ? n - i : 16;                            \
            double d[16];                                                  \
                                                                           \
            msp_stats_clear(d, 16);                                        \
            for (size_t j = 0; j < m; j++) {                               \
                note_bits(&facts, x[i + j], width, smallest_normal);       \
                d[slot(j)] = to_double(x[i + j]);                          \
            }                                                              \
            add_group(out, d);                                             \
        }                                                                  \
        out->range = facts.range;                                          \
        out->zero = facts.zero;                                            \
        out->tiny = facts.tiny;                                            \
    }

#define IN_ORDER(j)    (j)
#define EVENS_FIRST(j) ((j) / 2 + (j) % 2 * 8)

FLOAT_KERNEL(scalar_f16, u16, 16, 0x400, msp_f16_to_f32, IN_ORDER)
FLOAT_KERNEL(scalar_bf16, u16, 16, 0x80, msp_bf16_to_f32, EVENS_FIRST)
FLOAT_KERNEL(scalar_f32, u32, 32, 0x800000, msp_f32_from_bits, IN_ORDER)
FLOAT_KERNEL(scalar_f64, u64, 64, UINT64_C(1) << 52, msp_f64_from_bits, IN_ORDER)

const msp_stats_kernels msp_stats_scalar = {
    .f16 = scalar_f16,
    .bf16 = scalar_bf16,
    .f32 = scalar_f32,
    .f64 = scalar_f64,
    PLAIN_KERNELS,
};
