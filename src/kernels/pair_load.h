/*
 * pair_load.h - two tensors as blocks that the kernels take: gathered, of one kind, and finite.
 */
#ifndef MSP_KERNELS_PAIR_LOAD_H
#define MSP_KERNELS_PAIR_LOAD_H

#include "kernels/gather.h"
#include "kernels/pair_plain.h"

/* Two tensors of one shape. Read-only once made, so that threads share it. */
typedef struct msp_pair_view {
    const msp_pair_set *set;
    msp_gather n, b;
    msp_dtype n_type, b_type;
    msp_pair_kind kind; /* of every block, but that MSP_PAIR_I128 is only a block that needs it, else MSP_PAIR_F64 */
    int64_t numel;
    int64_t block; /* elements per block: half of the usual where one has 16 bytes, twice where it has 2 */
} msp_pair_view;

/* Memory for one block: as it was gathered, and as it was converted. */
typedef struct msp_pair_scratch {
    _Alignas(64) char raw_n[8 * MSP_PAIR_BLOCK];
    _Alignas(64) char raw_b[8 * MSP_PAIR_BLOCK];
    _Alignas(64) char n[8 * MSP_PAIR_BLOCK];
    _Alignas(64) char b[8 * MSP_PAIR_BLOCK];
} msp_pair_scratch;

typedef struct msp_pair_block {
    msp_pair_kind kind;
    unsigned flags; /* MSP_PAIR_HALF where it says so */
    const void *n, *b;
    size_t count;
} msp_pair_block;

/* What is not finite in a block. */
typedef struct msp_pair_bad {
    int64_t nonfinite; /* all such positions */
    int64_t inf_sign, mismatches;
    size_t first_mismatch; /* only with mismatches > 0 */
} msp_pair_bad;

void msp_pair_view_init(msp_pair_view *v, const msp_tensor *n, const msp_tensor *b);

/* The block of count elements from start on; what it points to lives in the tensors or in s. */
void msp_pair_load(msp_pair_block *out, const msp_pair_view *v, msp_pair_scratch *s, int64_t start, size_t count);

/* Turn a block of float16 or bfloat16 into one of float32, which the exact functions take; others stay as they are. */
void msp_pair_widen(msp_pair_block *block, const msp_pair_view *v, msp_pair_scratch *s);

/*
 * Copy a block of floats or complex numbers into s, with 0 on both sides where either is not finite, and say what was
 * found. 16-bit floats are widened on the way.
 */
void msp_pair_clean(msp_pair_block *block, msp_pair_bad *out, const msp_pair_view *v, msp_pair_scratch *s);

#endif
