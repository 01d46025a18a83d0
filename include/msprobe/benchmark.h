/*
 * benchmark.h - an API against itself: inputs are changed a little, it runs again, and two results are compared.
 *
 * The numbers are those of msprobe 8.3 (task free_benchmark), over all elements of a result. No function here is
 * random, uses threads, or keeps anything.
 */
#ifndef MSPROBE_BENCHMARK_H
#define MSPROBE_BENCHMARK_H

#include "msprobe/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- changing inputs -------------------------------------------------------------------------------------------- */

typedef enum msp_perturbation {
    MSP_PERTURB_NOISE, /* a small constant of the type is added, and at least one unit in the last place */
    MSP_PERTURB_BIT,   /* the last bit is the other one, of normal numbers */
    MSP_PERTURB_SWAP,  /* first and last change places: elements of a vector, else [0][0] and [-1][-1] */
    MSP_PERTURB_ULP    /* one unit in the last place up or down, of all numbers but zeros */
} msp_perturbation;

/* The perturbation of a pert_mode ("add_noise", "bit_noise", "change_value"), or of "one_ulp". False: another word. */
MSP_API bool msp_perturbation_parse(msp_perturbation *out, const char *word);

/*
 * Change the elements of t, whose memory is written to and must be t's alone: no two elements may share it. NaN,
 * infinities, and what the perturbation leaves out stay as they are, and no number becomes infinite or NaN. *changed
 * (NULL: not wanted) is how many elements are others now: 0 when there is nothing to change.
 *
 * salt 0: noise goes up everywhere. Another one chooses for each element, always alike, whether it goes up or down: of
 * two inputs that are both moved up, what cancels out in `a - b` would stay hidden. MSP_PERTURB_ULP always chooses.
 *
 * Real and imaginary parts of complex numbers are changed alike. Returns MSP_E_UNSUPPORTED for other types.
 */
MSP_API MSP_CHECK msp_status msp_perturb(const msp_tensor *t, msp_perturbation how, uint32_t salt, int64_t *changed,
                                         msp_error *err);

/* ---- comparing results ------------------------------------------------------------------------------------------ */

/* The largest quotient of an element and its other self that is no finding: 1.002 for float16, 1.004 for bfloat16,
 * 1.0002 for all others. */
MSP_API double msp_benchmark_limit(msp_dtype t);

/*
 * msp_benchmark_limit() where noise was added to that many inputs, the narrowest of type in: a result may move as far
 * as its inputs were moved together and be rounded once. For float32 and wider types that is less than
 * msp_benchmark_limit(out), which stands; one unit in the last place of bfloat16 is more.
 */
MSP_API double msp_benchmark_noise_limit(msp_dtype out, msp_dtype in, int inputs);

/* What elements are raised to before they are divided, so that noise around zero counts for nothing: forward the root
 * of the type's noise, backward 0.001. */
MSP_API double msp_benchmark_floor(msp_dtype t, bool backward);

typedef struct msp_benchmark_ratio {
    double ratio;  /* the largest quotient, at least 1; inf: an element is NaN or infinite on one side only */
    bool flips;    /* two elements clearly have different signs */
    int64_t index; /* row-major, of the first element with the ratio, or that flips; -1: there are none */
} msp_benchmark_ratio;

/*
 * Compare a result with that of the second run; floor is that of msp_benchmark_floor() for the second one's type. Any
 * types; complex numbers are compared by their parts, elements that are NaN on both sides, or the same infinity, are
 * equal. Returns MSP_E_INVALID when the shapes differ.
 */
MSP_API MSP_CHECK msp_status msp_benchmark_compare(msp_benchmark_ratio *out, const msp_tensor *first,
                                                   const msp_tensor *second, double floor, msp_error *err);

/* Whether that is too far. */
MSP_API bool msp_benchmark_differs(const msp_benchmark_ratio *r, double limit);

/*
 * A result against the CPU's in higher precision (fuzz_device "cpu"): *consistent when no small element (below 1) is
 * off by more than the type's absolute bound, no other by more than its relative one, and the errors' mean is at most
 * 1e-4, or what rounding alone may bring to so few elements. Non-finite on one side only is inconsistent.
 */
MSP_API MSP_CHECK msp_status msp_benchmark_judge_cpu(bool *consistent, const msp_tensor *actual,
                                                     const msp_tensor *golden, msp_error *err);

/* How many bits of a result an input's last bit leaves standing. */
typedef struct msp_benchmark_bits {
    double kept;  /* of the whole: -log2 of the changes' norm over the result's; at most type, at least 0 */
    double worst; /* the same of the element that keeps least */
    int type;     /* significant bits of the result's type: 24 for float32; 0: not a floating type */
} msp_benchmark_bits;

/* first: the result; second: that from inputs changed by MSP_PERTURB_ULP. Returns MSP_E_INVALID for other shapes. */
MSP_API MSP_CHECK msp_status msp_benchmark_bits_kept(msp_benchmark_bits *out, const msp_tensor *first,
                                                     const msp_tensor *second, msp_error *err);

/* ---- preheating ------------------------------------------------------------------------------------------------- */

/*
 * Whether the k-th of an API's total calls in a step (from 1) is run on the CPU as well. Of each step as many as are
 * needed to see all calls in preheat_step steps, at most max_sample.
 */
MSP_API bool msp_preheat_samples(int64_t total, int64_t preheat_step, int64_t max_sample, int64_t step, int64_t k);

/* How many that are in a step. */
MSP_API int64_t msp_preheat_quota(int64_t total, int64_t preheat_step, int64_t max_sample);

/* What is known of one API's results of one type. */
typedef struct msp_preheat {
    double threshold;         /* what its ratio is held against */
    bool learned;             /* and that it will not change again */
    double max_good, min_bad; /* ratios of sampled calls that the CPU found right, and wrong; 0: none yet */
} msp_preheat;

#define MSP_PREHEAT_FIRST 2.05 /* the threshold until something was learned */

/* Note a sampled call. */
MSP_API void msp_preheat_note(msp_preheat *p, double ratio, bool consistent);

/* At the end of a step's samples: the threshold from what was noted, never below least (msp_benchmark_limit()). */
MSP_API void msp_preheat_adjust(msp_preheat *p, double least);

/* ---- findings --------------------------------------------------------------------------------------------------- */

typedef struct msp_finding {
    long rank, step;
    const char *mode, *stage, *api; /* "add_noise", "forward", "Torch.mul.0.forward" */
    const msp_tensor *output;       /* type and shape are told */
    int64_t output_index;           /* -1: the result is no tuple or list */
    msp_benchmark_ratio ratio;
    const msp_benchmark_bits *bits; /* NULL: not known */
} msp_finding;

/*
 * Append a row to the csv file at path (free_benchmark.csv, columns as documented), with the title row first when the
 * file is new: one write, which is taken back when the disk is full, so that the file is valid at any time.
 */
MSP_API MSP_CHECK msp_status msp_finding_write(const char *path, const msp_finding *f, msp_error *err);

/* Append a row to free_benchmark_bits.csv: the bits that the result keeps; f->bits must be there. Otherwise as
 * msp_finding_write(). */
MSP_API MSP_CHECK msp_status msp_finding_write_bits(const char *path, const msp_finding *f, msp_error *err);

#ifdef __cplusplus
}
#endif
#endif
