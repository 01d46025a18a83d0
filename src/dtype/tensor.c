/* tensor.c - the strided view. */
#include "msprobe/tensor.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

/* Not the room for 64 sizes and strides, which nobody asks an empty tensor for: that is felt with small files. */
static void
clear_tensor(msp_tensor *t)
{
    memset(t, 0, offsetof(msp_tensor, shape));
    t->owner = NULL;
    t->release_owner = NULL;
}

void
msp_tensor_release(msp_tensor *t)
{
    if (t->release_owner != NULL)
        t->release_owner(t->owner);
    clear_tensor(t);
}

/* Product of the sizes, or -1 when it, or the bytes it stands for, do not fit an int64_t. A 0 anywhere makes it 0. */
static int64_t
count_elements(msp_dtype dtype, int32_t ndim, const int64_t *shape)
{
    int64_t n = 1, bytes;

    for (int32_t i = 0; i < ndim; i++)
        if (shape[i] == 0)
            return 0;
    for (int32_t i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(n, shape[i], &n))
            return -1;
    return __builtin_mul_overflow(n, (int64_t)msp_dtype_size(dtype), &bytes) ? -1 : n;
}

static void
set_row_major_strides(msp_tensor *t)
{
    int64_t step = 1;

    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        t->strides[i] = step;
        if (t->numel > 0) /* sizes beside a 0 may be anything: their product need not fit */
            step *= t->shape[i];
    }
}

msp_status
msp_tensor_view(msp_tensor *out, const void *data, msp_dtype dtype, int32_t ndim, const int64_t *shape, msp_error *err)
{
    clear_tensor(out);
    if (ndim < 0 || ndim > MSP_MAX_NDIM)
        return msp_error_set(err, MSP_E_INVALID, "%d dimensions: 0 to %d are possible", (int)ndim, MSP_MAX_NDIM);
    for (int32_t i = 0; i < ndim; i++)
        if (shape[i] < 0)
            return msp_error_set(err, MSP_E_INVALID, "dimension %d has the negative size %lld", (int)i,
                                 (long long)shape[i]);
    out->numel = count_elements(dtype, ndim, shape);
    if (out->numel < 0) {
        out->numel = 0;
        return msp_error_set(err, MSP_E_INVALID, "the number of elements does not fit 63 bits");
    }
    out->data = data;
    out->dtype = dtype;
    out->ndim = ndim;
    for (int32_t i = 0; i < ndim; i++)
        out->shape[i] = shape[i];
    set_row_major_strides(out);
    return MSP_OK;
}

bool
msp_tensor_is_contiguous(const msp_tensor *t)
{
    int64_t step = 1;

    if (t->numel == 0)
        return true;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        if (t->shape[i] != 1 && t->strides[i] != step)
            return false;
        step *= t->shape[i];
    }
    return true;
}

bool
msp_tensor_same_shape(const msp_tensor *a, const msp_tensor *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int32_t i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}

const void *
msp_tensor_at(const msp_tensor *t, int64_t index)
{
    int64_t offset = 0;

    assert(index >= 0 && index < t->numel);
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        offset += index % t->shape[i] * t->strides[i];
        index /= t->shape[i];
    }
    return (const char *)t->data + offset * (int64_t)msp_dtype_size(t->dtype);
}

void
msp_tensor_unravel(const msp_tensor *t, int64_t index, int64_t coords[MSP_MAX_NDIM])
{
    assert(index >= 0 && index < t->numel);
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        coords[i] = index % t->shape[i];
        index /= t->shape[i];
    }
}
