/* alignment.h - what one run calls and the other does not, and what stands for what: see match/align.h. */
#ifndef MSP_COMPARE_VERDICT_ALIGNMENT_H
#define MSP_COMPARE_VERDICT_ALIGNMENT_H

#include "compare/match/align.h"
#include "compare/verdict/verdict.h"

/* Two rows, of either side, that the same value should stand in. */
typedef struct msp_replaced_end {
    uint32_t npu, bench;
    bool input;  /* it goes into the block; else it comes out */
    double diff; /* of elements, relative; NaN: not measured. Whoever has the files fills it in */
} msp_replaced_end;

/* Calls of one side that stand for calls of the other. */
typedef struct msp_replacement {
    uint32_t first[2], last[2]; /* calls of either side */
    size_t ncalls[2];
    bool products; /* there is a matrix product in it */
    size_t first_end, nends;
} msp_replacement;

typedef struct msp_replaced {
    const msp_rows *rows[2];
    msp_replacement *items; /* in the order of the run */
    size_t count;
    msp_replaced_end *ends;
    size_t nends;
} msp_replaced;

/* MSP_E_NOMEM; out is to be released in any case. */
MSP_CHECK msp_status msp_replaced_find(msp_replaced *out, const msp_alignment *a, const msp_rows *const rows[2],
                                       msp_error *err);
void msp_replaced_release(msp_replaced *b);

/* "3 more Tensor.__mul__ in the NPU run, at model.py:31". MSP_E_NOMEM. */
MSP_CHECK msp_status msp_verdict_words_alignment(msp_verdict_texts *out, const msp_alignment *a,
                                                 const msp_align_side sides[2], msp_error *err);

#endif
