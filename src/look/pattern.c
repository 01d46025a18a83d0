/* pattern.c - see pattern.h. Measured as the local error of a replayed call is: msprobe/local.h. */
#include "look/pattern.h"

#include "msprobe/local.h"

enum { PATTERN_MAX = 1 << 22 }; /* elements: it takes 40 bytes for each */

msp_status
msp_look_pattern(char *buf, size_t size, const msp_tensor *a, const msp_tensor *b, msp_error *err)
{
    const msp_tensor *const near[2] = {NULL, NULL};
    msp_local l;
    msp_status st;

    buf[0] = '\0';
    if (msp_dtype_class_of(a->dtype) != MSP_CLASS_FLOAT || msp_dtype_class_of(b->dtype) != MSP_CLASS_FLOAT ||
        a->numel > PATTERN_MAX)
        return MSP_OK;
    st = msp_local_measure(&l, a, b, near, err);
    if (st == MSP_OK && l.shape != MSP_SHAPE_NONE)
        msp_local_describe(buf, size, &l);
    return st;
}
