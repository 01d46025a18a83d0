/*
 * local.h - the local error of a call: what it adds to its own inputs' truth, measured on one result.
 *
 * A recorded result is compared with a reference that was computed in higher precision from the very inputs that the
 * call was given. The unit of error knows cancellation: the reference is computed again from inputs that were changed
 * by a relative 2^-20 at random, and what that changes, divided by 2^-20, is together with the value itself the
 * element's natural scale. In this scale an ideal kernel makes an error of one unit roundoff of the result's type.
 */
#ifndef MSPROBE_LOCAL_H
#define MSPROBE_LOCAL_H

#include "msprobe/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MSP_LOCAL_NUDGE (1.0 / 1048576) /* relative change of the inputs for a second reference: 2^-20 */

/* What the error looks like. Noise is spread and unbiased; the others name a cause. */
typedef enum msp_error_shape {
    MSP_SHAPE_NONE = 0, /* no error worth a shape */
    MSP_SHAPE_NOISE,
    MSP_SHAPE_NONFINITE,   /* first = index, count = how many */
    MSP_SHAPE_ONE,         /* first = index */
    MSP_SHAPE_ZEROS,       /* count elements are zero from first to last where the reference is not */
    MSP_SHAPE_TAIL,        /* the last count of every period elements are wrong (period = row length) */
    MSP_SHAPE_END,         /* the last count elements are wrong */
    MSP_SHAPE_BLOCK,       /* count wrong elements, all from first to last */
    MSP_SHAPE_ROWS,        /* count whole rows of period elements are wrong, from row first to row last */
    MSP_SHAPE_FACTOR,      /* value times the reference */
    MSP_SHAPE_OFFSET,      /* value more than the reference */
    MSP_SHAPE_SHIFT,       /* element i holds the reference's element i - count */
    MSP_SHAPE_PERMUTED,    /* the reference's values in another order */
    MSP_SHAPE_TOWARD_ZERO, /* cut off instead of rounded */
    MSP_SHAPE_SIGN,        /* the sign is the other one in count elements */
    MSP_SHAPE_COUNT
} msp_error_shape;

typedef struct msp_local {
    msp_dtype dtype; /* of the recorded result */
    int64_t count;   /* elements */
    int64_t differ;  /* elements that are not the reference rounded to dtype */
    int64_t bad;     /* non-finite where the reference is finite, or the other way round */
    double rms, max; /* scaled error; elements that count in bad are left out */
    double tight;    /* largest error in an element's own scale, without the floor that keeps zeros from exploding */
    int64_t max_index;
    double bias, spread; /* signed error away from zero in ulps of dtype: mean and standard deviation */
    int64_t biased;      /* elements that this was measured on: normal, not zero */
    double away, toward; /* largest error in ulps away from zero, and toward it (both >= 0) */
    double slope;        /* of the error on the reference: recorded is about (1 + slope) times it */
    double value_rms;    /* root mean square of the reference */
    double error_rms;    /* root mean square of the unscaled error */
    double scale_rms;    /* root mean square of the natural scale */
    double inverse_rms;  /* likewise of one over it: an error of size a in all elements is a * inverse_rms in it */
    msp_error_shape shape;
    int64_t first, last, wrong, period;
    double value;
} msp_local;

/* The unit roundoff of a floating type (2^-24 for float32); 0 for exact types. */
MSP_API double msp_local_roundoff(msp_dtype t);

/*
 * Measure recorded against reference (float64, or for exact types any type). near[0] and near[1] are references from
 * changed inputs, each may be NULL. All have one shape; the references are contiguous. Returns MSP_E_INVALID when the
 * shapes differ, MSP_E_NOMEM.
 */
MSP_API MSP_CHECK msp_status msp_local_measure(msp_local *out, const msp_tensor *recorded, const msp_tensor *reference,
                                               const msp_tensor *const near[2], msp_error *err);

/* The shape of the error as a sentence without a full stop: "the last 4 of every 20 elements are zero". */
MSP_API void msp_local_describe(char *buf, size_t size, const msp_local *l);

/* Root mean square of a - b over elements that are finite on both sides; NaN where the shapes differ or there are none.
 */
MSP_API double msp_local_distance(const msp_tensor *a, const msp_tensor *b);

/* ---- evidence: measured results of calls, in a file -------------------------------------------------------------- */

/*
 * The first line is {"msprobe_evidence": 1}. Then one JSON object a line for each record (a call's forward or
 * backward):
 * {"call": its name in the NPU run, "reason": why it was not replayed or null, "results": [{"at": "output.0",
 * "inherited": what the difference between both runs' inputs makes of it, in its natural scale, "npu": {"dtype": ...,
 * ...}, "bench": {...}}]}. A side is null where it could not be measured. The order of lines means nothing: workers
 * write a file each.
 */
typedef struct msp_evidence_writer msp_evidence_writer;

MSP_API MSP_CHECK msp_status msp_evidence_create(msp_evidence_writer **out, const char *path, msp_error *err);

/* Begin a record; reason NULL: it was replayed, and its results follow. */
MSP_API MSP_CHECK msp_status msp_evidence_call(msp_evidence_writer *w, const char *name, const char *reason,
                                               msp_error *err);

/* side[0]: the NPU run's, side[1]: the bench's; each may be NULL. */
MSP_API MSP_CHECK msp_status msp_evidence_result(msp_evidence_writer *w, const char *at, const msp_local *const side[2],
                                                 double inherited, msp_error *err);

/* Write what is left and close. Accepts NULL. */
MSP_API MSP_CHECK msp_status msp_evidence_close(msp_evidence_writer *w, msp_error *err);

#ifdef __cplusplus
}
#endif
#endif
