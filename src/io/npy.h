/* npy.h - what reader and writer of .npy share. */
#ifndef MSP_IO_NPY_H
#define MSP_IO_NPY_H

#include "msprobe/dtype.h"

/* "f4" for float32, ...; NULL for types that NumPy lacks. */
const char *msp_npy_code(msp_dtype t);

#endif
