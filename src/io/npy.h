/* npy.h - what reader and writer of .npy share. */
#ifndef MSP_IO_NPY_H
#define MSP_IO_NPY_H

#include "core/str.h"
#include "msprobe/tensor.h"

/* "f4" for float32, ...; NULL for types that NumPy lacks. */
const char *msp_npy_code(msp_dtype t);

/* Append what stands before the elements of t, whose type NumPy must have; its strides do not matter. */
void msp_npy_header(msp_buf *b, const msp_tensor *t);

#endif
