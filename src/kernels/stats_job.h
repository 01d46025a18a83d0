/*
 * stats_job.h - statistics above the kernels: how a type is looked at, and what blocks add up to.
 *
 * A tensor is cut into blocks of MSP_STATS_BLOCK_BYTES and those into at most MSP_STATS_MAX_CHUNKS chunks, by its type
 * and number of elements alone. Each block's sums are added to its chunk's in order, and the chunks' in order, with the
 * rounding errors of these additions kept: whoever works on which chunk, the bits are the same, and of the error only
 * what happens inside a block remains.
 */
#ifndef MSP_KERNELS_STATS_JOB_H
#define MSP_KERNELS_STATS_JOB_H

#include <stdbool.h>
#include "kernels/brief.h"
#include "kernels/gather.h"
#include "kernels/stats_kernel.h"
#include "msprobe/stats.h"

enum {
    MSP_STATS_MAX_CHUNKS = 128,
    MSP_STATS_PIECE_BYTES = 16384 /* what is gathered, cleaned or widened at a time */
};

/* ---- types ----------------------------------------------------------------------------------------------------- */

typedef enum msp_stats_family { MSP_STATS_NONE, MSP_STATS_FLOAT, MSP_STATS_INT, MSP_STATS_BOOL } msp_stats_family;

/* How a type is looked at. A part is an element, or half of a complex one. */
typedef struct msp_stats_plan {
    msp_stats_family family;
    msp_dtype part;     /* type of a part as the kernel sees it */
    uint8_t part_shift; /* log2 of the bytes of a part as the kernel sees it */
    uint8_t is_complex; /* two parts per element */
    uint8_t is_f8;      /* parts are widened to 16 bits */
    uint8_t is_short;   /* of fewer than 64 bits, and neither of those: one block needs little */
    uint8_t scale;      /* the kernel sees values divided by 2^scale */
    msp_stats_f8 f8;    /* how they are widened */
    uint64_t inf;       /* bits of +infinity as the kernel sees it */
    uint64_t flip;      /* unsigned integers: their top bit */
} msp_stats_plan;

/* ---- sums over blocks ------------------------------------------------------------------------------------------ */

/* A sum and what rounding took from it. */
typedef struct msp_exact_sum {
    double value, error;
} msp_exact_sum;

static inline void
msp_exact_add(msp_exact_sum *s, double v)
{
    double sum = s->value + v;
    double part = sum - s->value;

    s->error += (s->value - (sum - part)) + (v - part); /* exact whichever of the two is larger */
    s->value = sum;
}

static inline void
msp_exact_merge(msp_exact_sum *into, const msp_exact_sum *s)
{
    msp_exact_add(into, s->value);
    into->error += s->error;
}

static inline double
msp_exact_value(const msp_exact_sum *s)
{
    return s->value + s->error;
}

/*
 * Squares of float64 overflow or vanish long before norms do. A block whose largest magnitude is outside 2^-480..2^480
 * is added up again with its elements scaled by a power of two, and kept apart from the others until the end.
 */
typedef enum msp_stats_range_class {
    MSP_RANGE_SMALL,
    MSP_RANGE_MIDDLE,
    MSP_RANGE_BIG,
    MSP_RANGES
} msp_stats_range_class;

typedef struct msp_float_tally {
    msp_exact_sum sum[2];     /* of even and of odd parts: real and imaginary ones when complex */
    msp_exact_sum big_sum[2]; /* of blocks where it would overflow, scaled as MSP_RANGE_BIG */
    msp_exact_sum square[MSP_RANGES];
    msp_stats_range range; /* of the finite elements */
    msp_stats_bad bad[2];  /* by real and imaginary parts when complex, else all in [0] */
    int64_t zero, tiny;
    int64_t bad_piece; /* where the first piece starts that has something not finite, in parts; -1 when there is none */
    bool expect_bad;   /* the block before had some: do not try without cleaning first */
    bool seek_least;   /* the kernel's */
} msp_float_tally;

typedef struct msp_int_tally {
    __int128 sum;
    unsigned __int128 square;
    msp_exact_sum rounded_square; /* 64-bit types */
    int64_t max, min;
} msp_int_tally;

typedef union msp_stats_tally {
    msp_float_tally f;
    msp_int_tally i;
} msp_stats_tally;

/* ---- a tensor's work ------------------------------------------------------------------------------------------- */

typedef struct msp_stats_job {
    const msp_stats_plan *plan;
    const msp_stats_kernels *kernels;
    int64_t numel, block, blocks, chunks; /* block: in elements */
    msp_stats_tally *tallies;             /* one per chunk */
    msp_gather gather;
} msp_stats_job;

/* Room for consecutive parts that cannot be used in place. */
typedef struct msp_stats_pieces {
    _Alignas(64) char gathered[MSP_STATS_PIECE_BYTES];
    _Alignas(64) char changed[MSP_STATS_PIECE_BYTES];
} msp_stats_pieces;

/* How many parts to take at a time: a whole block where it can be used in place. */
static inline size_t
msp_stats_step(const msp_stats_job *j, bool in_place)
{
    in_place = in_place && j->gather.ndim == 0 && !j->plan->is_f8;
    return (size_t)(in_place ? MSP_STATS_BLOCK_BYTES : MSP_STATS_PIECE_BYTES) >> j->plan->part_shift;
}

static inline size_t
msp_stats_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Begin a tally; add n elements from index start on to it; add a later chunk's; turn it into the result. */
void msp_stats_float_begin(msp_float_tally *t);
void msp_stats_float_block(const msp_stats_job *j, msp_float_tally *t, msp_stats_pieces *space, int64_t start,
                           size_t n);
void msp_stats_float_merge(msp_float_tally *into, const msp_float_tally *t);
void msp_stats_float_finish(msp_stats *out, const msp_stats_job *j, const msp_float_tally *t);

/* All of a real tensor of 16 or 32 bits that is one block without gaps; false: something in it is not finite, and
 * nothing was done. The first with the block's own sums in *b. */
bool msp_stats_float_brief(msp_stats_four *out, msp_stats_floats *b, const msp_stats_plan *plan,
                           const msp_stats_kernels *kernels, const void *p, size_t n);
bool msp_stats_float_one_block(msp_stats *out, const msp_stats_plan *plan, const msp_stats_kernels *kernels,
                               const void *p, size_t n);

void msp_stats_int_begin(msp_int_tally *t);
void msp_stats_int_block(const msp_stats_job *j, msp_int_tally *t, msp_stats_pieces *space, int64_t start, size_t n);
void msp_stats_int_merge(msp_int_tally *into, const msp_int_tally *t);
void msp_stats_int_finish(msp_stats *out, const msp_stats_plan *plan, const msp_int_tally *t);

#endif
