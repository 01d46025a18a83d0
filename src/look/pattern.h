/* pattern.h - what the errors of a tensor look like. */
#ifndef MSP_LOOK_PATTERN_H
#define MSP_LOOK_PATTERN_H

#include "msprobe/tensor.h"

/* A sentence without full stop, or "" where there is none, or too many elements. Both tensors have one shape. */
MSP_CHECK msp_status msp_look_pattern(char *buf, size_t size, const msp_tensor *a, const msp_tensor *b, msp_error *err);

#endif
