/* number.h - numbers as text, the way Python writes and reads them. */
#ifndef MSP_CORE_NUMBER_H
#define MSP_CORE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>
#include "core/str.h"

/*
 * Python's repr of a float: the shortest digits that read back as the same double, with exponents where Python uses
 * them ("1e+16", "0.0001", "1e-05"); "nan", "inf", "-inf". Terminated; returns the length, at most 24. All of buf may
 * be written to.
 */
size_t msp_f64_repr(char buf[32], double v);

/*
 * The double nearest to the decimal number in s, all of it: an optional sign, digits with an optional point, an
 * optional exponent; or nan, inf, infinity in any case. False when it is none of these. Independent of the locale.
 * Ties go to the even neighbour; what is too large becomes an infinity, what is too small a zero with its sign.
 */
bool msp_f64_parse(msp_str s, double *out);

/*
 * msp_f64_parse() for the number that begins at p: returns where it ends, or NULL when it is no plain decimal of up to
 * 19 digits without exponent (most are), for which msp_f64_parse() must be asked. For long lists of numbers.
 */
const char *msp_f64_scan(const char *p, const char *end, double *out);

/*
 * The numbers of a list "1.5, -0.25, ..." in [*at, end), at most cap of them, as msp_f64_scan() reads them; the list
 * begins at `from`, which is *at or before it. Stops early wherever something else comes, or nearly nothing is left:
 * *at is then where a number begins that is not read yet. How many were read depends on the machine (0 is possible),
 * what they are does not.
 */
size_t msp_f64_scan_list(const char *from, const char **at, const char *end, double *out, size_t cap);

enum { MSP_INT_TEXT_MAX = 24 };

/* Decimal digits, terminated; return the length. All of buf may be written to. */
size_t msp_u64_text(char buf[MSP_INT_TEXT_MAX], uint64_t v);
size_t msp_i64_text(char buf[MSP_INT_TEXT_MAX], int64_t v);

/* True and *out when all of s is an optional minus and decimal digits (at least one), and fits. */
bool msp_i64_parse(msp_str s, int64_t *out);

#endif
