/*
 * align.h - which call of one run stands for which call of the other, where one of them makes calls that the other does
 * not.
 *
 * Calls are numbered as they come, so that after one call more every later number of that function means another call.
 * Here both streams of forward calls are laid beside each other by what the calls are: name without number, shapes, the
 * code that makes them and the module they stand in; then by less, in what is still between two calls that have met. A
 * backward call goes with its forward call. What is left over has no partner, and where both sides have something left
 * over between the same neighbours one stands for the other (a block that was replaced).
 */
#ifndef MSP_COMPARE_ALIGN_H
#define MSP_COMPARE_ALIGN_H

#include "compare/match/match.h"

typedef struct msp_align_side {
    const msp_rows *rows;
    const msp_stack *stack; /* NULL: not known */
    const msp_str *modules; /* the module that each call stands in, empty: none; NULL: not known */
} msp_align_side;

/* Forward calls without partner between the same neighbours, as positions in msp_alignment.order. */
typedef struct msp_align_gap {
    size_t first[2], count[2]; /* of either side; one count may be 0 */
} msp_align_gap;

typedef struct msp_alignment {
    uint32_t *partner;  /* of every NPU call, or MATCH_NONE */
    uint32_t *order[2]; /* the forward calls of either side, as they come */
    size_t ncalls[2];
    bool *met[2]; /* for each of these: it has a partner */
    msp_align_gap *gaps;
    size_t ngaps;
} msp_alignment;

/* Time and memory grow with the rows (msp_sequence_align). MSP_E_NOMEM; out is to be released in any case. */
MSP_CHECK msp_status msp_align_calls(msp_alignment *out, const msp_align_side sides[2], msp_error *err);
void msp_alignment_release(msp_alignment *a);

/* The rows of calls that go together, by their places in the call and their shapes. ctx: an msp_align_names. */
typedef struct msp_align_names {
    const msp_alignment *alignment;
    const msp_rows *bench;
} msp_align_names;

msp_str msp_align_key(const msp_rows *npu, const msp_row *row, msp_buf *scratch, void *ctx);

/* "Functional.linear" of "Functional.linear.3.forward", "Module.fc.Linear" of "Module.fc.Linear.forward.0". */
msp_str msp_align_function(msp_str api);

#endif
