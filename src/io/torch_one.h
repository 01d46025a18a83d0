/*
 * torch_one.h - the pickle of one plain tensor, recognised at a glance.
 *
 * A dump is thousands of files with one tensor each, and torch.save() writes all of them with the same opcodes; only
 * names, numbers and the marks of its memory differ. Running such a pickle on the machine of pickle.h takes longer than
 * everything else that is done with a small file.
 */
#ifndef MSP_IO_TORCH_ONE_H
#define MSP_IO_TORCH_ONE_H

#include "io/torch_pickle.h"

/* The tensor and its storage, as the machine would make them; the key is a view of the pickle. */
typedef struct msp_torch_one {
    msp_torch_tensor tensor;
    msp_torch_blob blob;
    int64_t shape[MSP_MAX_NDIM], strides[MSP_MAX_NDIM];
} msp_torch_one;

/*
 * False when the pickle is anything but
 *   _rebuild_tensor_v2(storage("storage", torch.<class>, key, location, numel), offset, sizes, strides, bool,
 *                      OrderedDict())
 * in the opcodes of protocol 2, or something is wrong with what it says: then the machine can tell what, and *out is
 * not to be used. *out points into itself: it must not move.
 */
bool msp_torch_one_read(msp_torch_one *out, const void *bytes, size_t size);

#endif
