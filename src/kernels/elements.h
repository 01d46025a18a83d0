/*
 * elements.h - where in a tensor the errors are: how large, at which magnitudes, in which rows and columns.
 *
 * One pass over both tensors, one thread, no memory of its own. For the few tensors that somebody looks at.
 */
#ifndef MSP_KERNELS_ELEMENTS_H
#define MSP_KERNELS_ELEMENTS_H

#include "msprobe/tensor.h"

enum {
    ELEMENTS_HIST_BINS = 42, /* half decades of the error from 1e-12, one more on either side */
    ELEMENTS_MAG_BINS = 22,  /* decades of the bench from 1e-12, one more on either side */
    ELEMENTS_MAP_ROWS = 32,
    ELEMENTS_MAP_COLUMNS = 64,
    ELEMENTS_WORST = 8
};

/*
 * The error of an element is |n - b|: of integers formed exactly, of complex numbers a modulus, infinite where one side
 * only is NaN or infinite, or the infinities have different signs.
 */
typedef struct msp_elements {
    int64_t count, equal;
    int64_t mismatches; /* errors that are infinite */
    int64_t nonfinite;  /* elements that are NaN or infinite on any side */
    int64_t bits;       /* elements whose bytes differ; -1: the types differ */
    int64_t first;      /* row-major index of the first error, -1: none */
    int64_t hist[ELEMENTS_HIST_BINS];
    int64_t
        mag_count[ELEMENTS_MAG_BINS]; /* finite elements whose bench is not 0; sum and maximum: of |error / bench| */
    double mag_sum[ELEMENTS_MAG_BINS], mag_max[ELEMENTS_MAG_BINS];
    int64_t rows, columns, map_rows, map_columns; /* the last dimension lies across; the map shares them out equally */
    double map[ELEMENTS_MAP_ROWS * ELEMENTS_MAP_COLUMNS]; /* largest error; a row takes ELEMENTS_MAP_COLUMNS places */
    struct {
        int64_t at;
        double err;
    } worst[ELEMENTS_WORST]; /* largest first, then the first */
    int nworst;
} msp_elements;

/* Both tensors have one shape. Those without elements give zeroes. */
void msp_elements_look(msp_elements *out, const msp_tensor *n, const msp_tensor *b);

#endif
