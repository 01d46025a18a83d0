/*
 * fuzz_pickle.c - any bytes as a pickle, with torch's rules and without. Every tensor that comes out must lie within
 * what its storage claims to have, and the pickle of one tensor that is recognised at a glance must be the tensor that
 * the machine makes of it.
 */
#include <stdint.h>
#include <string.h>
#include "io/torch_one.h"
#include "io/torch_pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_tensor(const msp_torch_tensor *t)
{
    unsigned __int128 end = t->offset + msp_dtype_size(t->dtype);

    for (int32_t i = 0; i < t->ndim; i++)
        end += (unsigned __int128)(t->shape[i] - 1) * (uint64_t)t->strides[i] * msp_dtype_size(t->dtype);
    if (t->numel > 0 && end > t->blob->need)
        __builtin_trap();
}

static void
check_value(msp_pickle_value v, int depth)
{
    const msp_pickle_value *items = v.kind == MSP_PICKLE_TUPLE ? v.as.items : NULL;
    size_t n = v.kind == MSP_PICKLE_TUPLE ? v.len : 0;

    if (v.kind == MSP_PICKLE_EMPTY)
        __builtin_trap();
    if (msp_torch_tensor_of(v) != NULL)
        check_tensor(msp_torch_tensor_of(v));
    if (v.kind == MSP_PICKLE_LIST || v.kind == MSP_PICKLE_DICT) {
        items = v.as.sequence->items;
        n = v.as.sequence->count;
    }
    for (size_t i = 0; i < n && i < 8 && depth < 4; i++)
        check_value(items[i], depth + 1);
}

static void
check_same(const msp_torch_tensor *a, const msp_torch_tensor *b)
{
    if (b == NULL || a->offset != b->offset || a->dtype != b->dtype || a->ndim != b->ndim || a->numel != b->numel ||
        a->requires_grad != b->requires_grad || a->blob->need != b->blob->need ||
        a->blob->swap_width != b->blob->swap_width || !msp_str_eq(a->blob->key, b->blob->key))
        __builtin_trap();
    if (a->ndim > 0 && (memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(*a->shape)) != 0 ||
                        memcmp(a->strides, b->strides, (size_t)a->ndim * sizeof(*a->strides)) != 0))
        __builtin_trap();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    msp_torch_one one;
    msp_torch_model model;
    msp_pickle_value v;
    msp_budget budget;
    msp_error err;
    size_t used;

    msp_budget_init(&budget, size);
    if (msp_pickle_read(&v, &used, data, size, &budget, NULL, &err) == MSP_OK)
        check_value(v, 0);
    msp_torch_model_init(&model, &budget);
    v = (msp_pickle_value){0};
    if (msp_torch_unpickle(&v, &used, &model, data, size, &err) == MSP_OK)
        check_value(v, 0);
    if (msp_torch_one_read(&one, data, size))
        check_same(&one.tensor, msp_torch_tensor_of(v));
    if (used > size)
        __builtin_trap();
    msp_torch_model_release(&model);
    msp_budget_release(&budget);
    return 0;
}
