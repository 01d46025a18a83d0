/*
 * verdict.h - the tool's own answer about a pair of runs: which call is to blame, how sure that is, and what it rests
 * on.
 *
 * The manual's columns have no part in it. msp_compare_run() fills one msp_pair_verdict for each pair of dumps with
 * calls (not for checksums, single values, static graphs and the older tools' files: `given` is false there).
 * Everything is owned by the result and given back with it. All numbers are errors relative to the result's own scale:
 * 1e-3 is a thousandth. NaN: not measured. Texts are sentences without a full stop and without a newline, in English.
 */
#ifndef MSPROBE_VERDICT_H
#define MSPROBE_VERDICT_H

#include "msprobe/dtype.h"
#include "msprobe/local.h"

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

/* "matmul", "vector", "move". */
MSP_API const char *msp_call_class_text(msp_call_class c);

typedef enum msp_verdict_kind {
    MSP_VERDICT_NONE = 0,  /* nothing could be judged; `sentence` and `unjudged` say why */
    MSP_VERDICT_IDENTICAL, /* everything that was judged is equal, to the bit or in all its statistics */
    MSP_VERDICT_WITHIN,    /* differences, all of them within rounding */
    MSP_VERDICT_SUSPECT,   /* a call makes a difference that rounding does not explain: suspects[0] */
    MSP_VERDICT_START,     /* the runs do not start from the same weights or data: `start`. Suspects may follow */
    MSP_VERDICT_MODELS     /* too few calls have a partner: these are different models, or different levels */
} msp_verdict_kind;

/* "none", "identical", "within rounding", "suspect", "different start", "different models". */
MSP_API const char *msp_verdict_kind_text(msp_verdict_kind k);

/* What a result was judged by; later ones tell more. */
typedef enum msp_verdict_basis {
    MSP_BASIS_STATISTICS = 0, /* maximum, minimum, mean, norm */
    MSP_BASIS_TENSORS,        /* elements of both sides beside each other */
    MSP_BASIS_REPLAY          /* elements, and the call run again in higher precision on each side's own inputs */
} msp_verdict_basis;

/* "statistics", "tensors", "replay". */
MSP_API const char *msp_verdict_basis_text(msp_verdict_basis b);

typedef enum msp_confidence {
    MSP_CONFIDENCE_LOW = 0, /* just beyond the limit, or by statistics alone */
    MSP_CONFIDENCE_MEDIUM,
    MSP_CONFIDENCE_HIGH /* three times the limit and more, and measured by itself */
} msp_confidence;

/* "low", "medium", "high". */
MSP_API const char *msp_confidence_text(msp_confidence c);

typedef struct msp_verdict_texts {
    char **items;
    size_t count;
} msp_verdict_texts;

/*
 * One result (one output tensor, or one gradient) of one call, judged or not: the evidence that the verdict was made
 * from. Results stand in the order of the run.
 */
typedef struct msp_verdict_result {
    char *api;       /* the NPU side's call: "Functional.relu.0.forward" */
    char *bench_api; /* its partner, NULL: none */
    char *at;        /* which of its results: "output.0", "input.0" of a backward call in older dumps */
    int64_t row;     /* of the table, from 0 */
    msp_call_class cls;
    msp_dtype dtype; /* the coarser of both sides */
    msp_verdict_basis basis;
    double diff_in, diff_out;  /* between the runs: the largest among what the call took; of this result */
    double local, local_bench; /* what the call adds itself, in either run; NaN: not replayed */
    double inherited;          /* what the difference of its inputs makes of this result; NaN: unknown */
    double expected;           /* error that this kind of call may have on this device */
    double times;              /* error over the expected error. NaN: not judged */
    double ratio;              /* error over what is allowed: above 1 is an alarm. NaN: not judged */
    bool nonfinite;            /* NaN or inf on one side only */
    bool one_type;             /* both sides have the same element type */
    msp_error_shape shape;     /* how the error lies in the tensor; MSP_SHAPE_NONE: not looked at */
    char *shape_text;          /* "the last 4 of every 20 elements are zero"; NULL: none */
    char *note;             /* what its numbers mean here: that it is a choice which fell the other way, that the bench
                               makes no such call, what it stands for; NULL: nothing more */
    const char *not_judged; /* why not, one of `unjudged`; NULL: judged */
} msp_verdict_result;

enum { MSP_VERDICT_SUSPECTS = 3 };

typedef struct msp_verdict_suspect {
    char *api;                 /* the NPU side's call */
    char *bench_api;           /* its partner, NULL: none */
    char *at;                  /* the result that gave it away: "output.0" */
    char *reason;              /* the sentence: "this call adds 3e-2, it inherited 1e-7, rounding explains 6e-4" */
    msp_verdict_texts reasons; /* more of them, each by itself; may be empty */
    char *shape_text; /* how the error lies: "exactly twice the expected value"; NULL: not looked at, or like noise */
    msp_error_shape shape;
    msp_confidence confidence;
    double local, local_bench, inherited, expected, times, ratio; /* as in msp_verdict_result */
    double diff_in, diff_out;
    bool nonfinite;
    size_t result; /* number of its msp_verdict_result */
} msp_verdict_suspect;

/* Why results were not judged, and how many for that reason. */
typedef struct msp_verdict_unjudged {
    char *reason; /* "random: its numbers cannot be read off the results" */
    int64_t results;
} msp_verdict_unjudged;

typedef struct msp_pair_verdict {
    bool given; /* false: this kind of dump has no verdict, and nothing below is set */
    msp_verdict_kind kind;
    char *sentence; /* the verdict in one sentence */

    msp_verdict_suspect suspects[MSP_VERDICT_SUSPECTS]; /* most likely first */
    size_t nsuspects;
    int64_t suspicious; /* calls beyond the limit, also those not named */

    int64_t judged, not_judged;     /* results of calls */
    int64_t judged_calls;           /* calls of which at least one result was judged */
    msp_verdict_unjudged *unjudged; /* most frequent first */
    size_t nunjudged;

    int64_t other_type; /* results whose element types differ on both sides */
    char *types;        /* which: "float32 in the NPU run, bfloat16 in the bench"; NULL: none differ */

    double largest;   /* the largest error over the expected error, of all that was judged: "largest 3.1x ..." */
    char *largest_at; /* its call, NULL: none */

    char *first_different; /* the first call with any difference, NULL: none. Chronology, not blame */

    msp_verdict_texts start; /* what differs before any call has computed: weights, data; first the most telling */
    msp_verdict_texts facts; /* of the device: "matmul: about 11 significant bits in 48 of 48 calls, like TF32" */
    msp_verdict_texts flips; /* discrete decisions that fell the other way within the noise */
    msp_verdict_texts
        alignment;            /* calls that only one side has: "3 more Tensor.__mul__ in the NPU run, at model.py:31" */
    int64_t realigned;        /* rows of the NPU run that the verdict pairs with another row than the table does */
    msp_verdict_texts untold; /* what this evidence cannot tell, with the config that could */

    msp_verdict_basis basis; /* the best that was used */
    int64_t replayed;        /* calls that were run again, on both sides */
    double replay_seconds;   /* how long that took, 0: not done */
    char *no_replay;         /* why replay was not used: "this is a dump of statistics"; NULL: it was */
    double false_alarms;     /* share of benign pairs with any alarm, as measured for this basis (docs/verdict.md) */
    double noise[MSP_CALL_NCLASSES]; /* the device's own, as measured on the pair */

    msp_verdict_result *results; /* all of them, in the order of the run; none where several pairs were compared */
    size_t nresults;
} msp_pair_verdict;

#ifdef __cplusplus
}
#endif
#endif
