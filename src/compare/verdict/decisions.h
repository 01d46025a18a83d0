/*
 * decisions.h - choices: which element is largest, which is greater. Where two values are nearly equal the least noise
 * turns a choice over, and what follows from it is as far off as from a fault. So a choice that fell the other way is
 * measured by its margin: how far apart the competing values are, beside the error of what was chosen from.
 */
#ifndef MSP_COMPARE_DECISIONS_H
#define MSP_COMPARE_DECISIONS_H

#include "compare/rows/rows.h"
#include "msprobe/local.h"

typedef enum msp_decision {
    MSP_DECIDES_NOTHING = 0,
    MSP_DECIDES_POSITION, /* argmax, topk, sort: positions along a dimension */
    MSP_DECIDES_ORDER,    /* greater, equal: of two values each */
    MSP_DECIDES_STEP      /* round, sign: between two steps; told, not measured */
} msp_decision;

/* By the operation's name (msp_verdict_operation): "argmax". */
msp_decision msp_decision_of(msp_str operation);

/* Roundoffs of a value within which two values are one: which of them is meant is the device's choice. */
#define MSP_DECISION_TIE 8.0

typedef struct msp_flip {
    msp_decision what;
    int64_t flipped, places; /* elements of the result: that fell the other way; all */
    int64_t measured;        /* flips of which the values were compared, the rest is as large as these or unknown */
    int64_t mine, other;     /* positions: what either run chose where the margin is largest */
    double margin,
        error;    /* of the flip that is largest beside the error: in the bench; of the values, between the runs */
    double times; /* margin over error */
    double own;   /* the largest margin in the NPU's own values, in roundoffs of the values */
    double miss;  /* what the error of the values does not explain, in roundoffs of the values */
} msp_flip;

/* It is a choice that nothing but rounding explains: what was chosen differs by more than what it was chosen from. */
static inline bool
msp_flip_is_wrong(const msp_flip *f)
{
    return f->miss > MSP_DECISION_TIE;
}

/* One side of a choice. For positions `than` is empty; of an order than.data NULL means that `value` stands for it. */
typedef struct msp_choice {
    msp_tensor chosen; /* the result: positions, or truth values */
    msp_tensor from, than;
    double value;
} msp_choice;

/*
 * Compare what both sides (0: NPU, 1: bench) chose. dim: along which positions count; INT64_MIN: the last one, or all
 * elements as one where the result has none. MSP_E_INVALID where the shapes do not go together, or positions are out of
 * range; all work together is bounded: of very many flips the first are measured.
 */
MSP_CHECK msp_status msp_flip_measure(msp_flip *out, msp_decision what, const msp_choice sides[2], int64_t dim);

#endif
