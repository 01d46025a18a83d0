/* suspect.h - everything there is to say about the first wrong row. */
#ifndef MSP_COMPARE_SUSPECT_H
#define MSP_COMPARE_SUSPECT_H

#include "compare/match/match.h"
#include "compare/judge/measure.h"

typedef struct msp_suspect_source {
    const msp_rows *rows[2];
    const msp_match *match;
    msp_compare_mode mode;
    const msp_stack *stack;
    const msp_measurer *measurer;
    const msp_row *row[2]; /* the second may be NULL */
    const char *verdict;
    bool fuzzy;
    const struct msp_legacy_look *legacy; /* NULL: msprobe's own rules */
} msp_suspect_source;

/*
 * Fill out, but for its row number. In real-data mode both tensors are read once more, for the element that is wrong
 * most. MSP_E_NOMEM.
 */
MSP_CHECK msp_status msp_suspect_describe(msp_compare_suspect *out, const msp_suspect_source *src, msp_error *err);

/*
 * inputs.c: compare what the row's call took, by the same measure as the row itself, and fill out->inputs, error,
 * input_error and input. A backward call takes what its forward call took, too. False: out of memory.
 */
bool msp_suspect_inputs(msp_compare_suspect *out, const msp_suspect_source *src);

/* How far two rows are apart: the norm of the difference of their elements over the larger norm or, where there are no
 * files, what their statistics say. Infinite: not finite on one side only; NaN: cannot be had. */
double msp_suspect_difference(const msp_suspect_source *src, const msp_row *n, const msp_row *b);

/* suspect.c: a number, text or other plain argument that the two scripts pass differently there. Names of devices and
 * types are left out: they differ in every call. So are numbers within 1/64 of each other: they may be computed. */
bool msp_suspect_argument_differs(const msp_suspect_source *src, size_t row);

/* "input.1: NPU 0.1, bench 0.0", with the call's name before it where whole is set. */
void msp_suspect_argument_text(msp_buf *out, const msp_suspect_source *src, size_t row, bool whole);

/* Its errors, and the element that is wrong most; nothing where the shapes differ. */
void msp_suspect_tensors(msp_compare_suspect *out, const msp_tensor *n, const msp_tensor *b, int threads);

#endif
