/*
 * torch_one.h - the pickle of one plain tensor, recognised at a glance.
 *
 * A dump is thousands of files with one tensor each, and torch.save() writes all of them with the same opcodes; only
 * names, numbers and the marks of its memory differ. Running such a pickle on the machine of pickle.h takes longer than
 * everything else that is done with a small file.
 */
#ifndef MSP_IO_TORCH_ONE_H
#define MSP_IO_TORCH_ONE_H

#include <stdint.h>
#include "core/str.h"
#include "msprobe/tensor.h"

/* What the pickle says; nothing of it is checked yet. Texts are views of it. */
typedef struct msp_torch_one {
    msp_str storage, key; /* "FloatStorage", "0" */
    int64_t storage_numel, offset;
    uint32_t nshape, nstrides;
    int64_t shape[MSP_MAX_NDIM], strides[MSP_MAX_NDIM];
    bool requires_grad;
    size_t used; /* bytes up to its end */
} msp_torch_one;

/*
 * False when the pickle is anything but
 *   _rebuild_tensor_v2(storage("storage", torch.<class>, key, location, numel), offset, sizes, strides, bool,
 *                      OrderedDict())
 * in the opcodes of protocol 2; then *out is not to be used.
 */
bool msp_torch_one_read(msp_torch_one *out, const void *bytes, size_t size);

#endif
