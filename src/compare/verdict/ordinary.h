/* ordinary.h - which precisions are ordinary for a kind of computation (the table: docs/design/verdict.md). */
#ifndef MSP_COMPARE_ORDINARY_H
#define MSP_COMPARE_ORDINARY_H

#include "msprobe/verdict.h"

/*
 * All in unit roundoffs of the type (2^-24 for float32). floor: an error that no device is asked about; cap: the most
 * that an ordinary device does, which calibration on the pair never goes beyond. limit: an alarm from so many times the
 * allowed error on (root mean square); most: likewise of the largest element.
 */
typedef struct msp_ordinary {
    double floor, cap, limit, most;
} msp_ordinary;

msp_ordinary msp_ordinary_of(msp_call_class cls, msp_dtype t);

/* The known device whose products of this type have about so many significant bits: "TF32"; NULL: none is known. */
const char *msp_ordinary_name(msp_dtype t, double bits);

#endif
