/* number.c - see number.h. */
#include "core/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

size_t
msp_f64_repr(char buf[32], double v)
{
    int n = snprintf(buf, 32, "%.17g", v);

    return (size_t)n;
}

bool
msp_f64_parse(msp_str s, double *out)
{
    char text[64], *end;

    if (s.len == 0 || s.len >= sizeof(text))
        return false;
    memcpy(text, s.p, s.len);
    text[s.len] = '\0';
    *out = strtod(text, &end);
    return *end == '\0';
}
