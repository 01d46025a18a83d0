/* flow.h - what statistics say of a tensor on both sides, and which calls only arrange or choose elements. */
#ifndef MSP_COMPARE_FLOW_H
#define MSP_COMPARE_FLOW_H

#include "compare/verdict/verdict.h"

/* One tensor on both sides. */
typedef struct msp_tensor_pair {
    bool known;    /* it has statistics on both sides, and they are of as many elements */
    bool number;   /* floating point */
    bool one_side; /* NaN or inf on one side only */
    bool differs;
    bool resized, alone;            /* the shapes differ; it has no partner */
    double stats[2][MSP_NSTATS];    /* of the NPU and of the bench */
    double noise[MSP_NSTATS], most; /* as in msp_seen, and the largest */
    double big, norm, n, unit;      /* unit: roundoff of the type */
} msp_tensor_pair;

msp_tensor_pair msp_flow_pair(const msp_evidence_source *src, size_t row);

/* Gives the elements that it takes as they are, in another shape or order. */
bool msp_flow_is_view(msp_str op);

/* Takes or gives several tensors, and together they hold the same elements. */
bool msp_flow_is_parts(msp_str op);

/* laws.c: fills law, law_off and holds of a result. nth: which of the call's nfloats results in floating point. */
void msp_law_check(msp_seen *out, const msp_evidence_source *src, const msp_row_api *api, size_t row, size_t nth);

#endif
