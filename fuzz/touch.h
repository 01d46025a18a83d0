/* touch.h - read the corners of every tensor in a file, so that a sanitizer sees a view that leaves its memory. */
#ifndef MSP_FUZZ_TOUCH_H
#define MSP_FUZZ_TOUCH_H

#include <string.h>
#include "msprobe/tensor.h"

static inline void
touch_tensor(const msp_tensor *t)
{
    volatile double sum = 0;
    int64_t far = t->numel > 4096 ? t->numel / 64 : 1;

    if (t->ndim < 0 || t->ndim > MSP_MAX_NDIM || t->numel < 0 || msp_dtype_size(t->dtype) == 0)
        __builtin_trap();
    for (int64_t i = 0; i < t->numel; i += far)
        sum += msp_dtype_load_f64(t->dtype, msp_tensor_at(t, i));
    if (t->numel > 0)
        sum += msp_dtype_load_f64(t->dtype, msp_tensor_at(t, t->numel - 1));
    (void)sum;
}

/* Parse, touch and close. An error must say something. */
static inline void
touch_file(const void *data, size_t size)
{
    msp_tensor_file *f;
    msp_error err = {0};
    volatile size_t length = 0;

    if (msp_tensor_file_parse(&f, data, size, &err) != MSP_OK) {
        if (err.message[0] == '\0' || err.status == MSP_OK)
            __builtin_trap();
        return;
    }
    for (size_t i = 0; i < msp_tensor_file_count(f); i++) {
        length += strlen(msp_tensor_file_name(f, i));
        touch_tensor(msp_tensor_file_at(f, i));
    }
    (void)length;
    msp_tensor_file_close(f);
}

#endif
