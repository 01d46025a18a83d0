/* form.h - what changing a float's last bits needs to know of its type. */
#ifndef MSP_BENCHMARK_FORM_H
#define MSP_BENCHMARK_FORM_H

#include "msprobe/dtype.h"

/* Magnitudes are bit patterns without the sign: for them the order of the numbers is that of the integers. */
typedef struct float_form {
    int bytes;          /* of a part; 0: not a floating type */
    int parts;          /* 2 for complex numbers */
    int digits;         /* significant bits, the hidden one included */
    uint64_t nonfinite; /* the first magnitude that is no number */
    uint64_t normal;    /* the smallest normal number's */
    uint64_t noisy;     /* noise is added to what is larger */
    uint64_t doubled;   /* up to this one the noise is two units in the last place and not one; 16 bits and fewer */
    double noise;       /* the constant; its root is noisy as a number */
} float_form;

const float_form *msp_float_form(msp_dtype t);

#endif
