/* number.h - numbers as text, the way Python writes and reads them. */
#ifndef MSP_CORE_NUMBER_H
#define MSP_CORE_NUMBER_H

#include <stdbool.h>
#include "core/str.h"

/*
 * Python's repr of a float: the shortest digits that read back as the same double, with exponents where Python uses
 * them ("1e+16", "0.0001", "1e-05"); "nan", "inf", "-inf". Terminated; returns the length, at most 24.
 */
size_t msp_f64_repr(char buf[32], double v);

/*
 * The double nearest to the decimal number in s, all of it: an optional sign, digits with an optional point, an
 * optional exponent; or nan, inf, infinity in any case. False when it is none of these. Independent of the locale.
 */
bool msp_f64_parse(msp_str s, double *out);

#endif
