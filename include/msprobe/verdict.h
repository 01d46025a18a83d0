/*
 * verdict.h - the tool's own answer about a pair of runs: which call is to blame, and how sure that is.
 *
 * Evidence is one result (one output tensor) of one call. Who measures (statistics, tensors, replay) fills a list of
 * it; ranking turns the list into a verdict. The manual's columns have no part in it.
 */
#ifndef MSPROBE_VERDICT_H
#define MSPROBE_VERDICT_H

#include "msprobe/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a call does to its elements, and so how exact it must be. */
typedef enum msp_call_class {
    MSP_CALL_MATMUL = 0, /* matrix products, convolutions, attention, recurrent layers */
    MSP_CALL_VECTOR,     /* everything else that computes */
    MSP_CALL_MOVE,       /* copies, views, gathers: exact */
    MSP_CALL_NCLASSES
} msp_call_class;

/* How the errors lie in a tensor. Statistics cannot tell: MSP_SHAPE_UNKNOWN. */
typedef enum msp_error_shape {
    MSP_SHAPE_UNKNOWN = 0,
    MSP_SHAPE_SPREAD,  /* like noise */
    MSP_SHAPE_TAIL,    /* the last elements, of the tensor or of every row */
    MSP_SHAPE_BLOCK,   /* neighbouring elements or rows */
    MSP_SHAPE_ELEMENT, /* a single one */
    MSP_SHAPE_FACTOR,
    MSP_SHAPE_OFFSET,
    MSP_SHAPE_SHIFT,
    MSP_SHAPE_SIGN
} msp_error_shape;

/* One result of one call. Differences and errors are relative: 1e-3 is a thousandth of the result's own scale. */
typedef struct msp_evidence {
    const char *name; /* of the call, borrowed: "Functional.relu.0.forward"; not terminated */
    size_t name_len;
    uint32_t call, slot; /* position of the call in the run, of the result in the call */
    bool backward;
    msp_call_class cls;
    msp_dtype dtype; /* the coarser of both sides */
    int64_t n;       /* elements, -1: unknown */
    double diff_in;  /* largest difference among what the call took */
    double diff_out; /* of the result between the runs */
    double local;    /* what the call adds itself; NaN: not measured, and diff_out with diff_in decide */
    double inherited, expected, ratio; /* filled by ranking: ratio is the local error over the expected one */
    bool nonfinite;                    /* NaN or inf on one side only */
    bool one_type;                     /* both sides have the same element type */
    msp_error_shape shape;
    const char *shape_text; /* sentence, borrowed, NULL: none */
    const char *not_judged; /* why; static text, NULL: judged */
} msp_evidence;

enum { MSP_VERDICT_SUSPECTS = 3 };

typedef struct msp_verdict_suspect {
    char *api;
    char *reason; /* one sentence */
    double ratio, diff_in, diff_out, expected;
    bool nonfinite;
} msp_verdict_suspect;

typedef struct msp_pair_verdict {
    bool given; /* false: nothing was judged, or the dumps are not of a kind that is */
    char *sentence;
    msp_verdict_suspect suspects[MSP_VERDICT_SUSPECTS]; /* most likely first */
    size_t nsuspects;
    int64_t judged, not_judged;      /* results of calls */
    int64_t other_type;              /* results whose types differ on both sides */
    bool identical;                  /* all that was judged has the same statistics */
    double largest;                  /* times the expected error, over all judged results */
    char *largest_at;                /* its call, NULL: none */
    char *first_different;           /* the first call with any difference, NULL: none */
    double noise[MSP_CALL_NCLASSES]; /* the device's own, as measured on the pair */
} msp_pair_verdict;

#ifdef __cplusplus
}
#endif
#endif
