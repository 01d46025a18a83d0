/*
 * torch_pickle.h - what the names in a torch file's pickle mean, and nothing else.
 *
 * torch.save() writes a tensor as a call of one of a few rebuild functions with a storage, an offset, sizes and
 * strides. The storage is a persistent id ("storage", class, key, location, number of elements); its bytes stand
 * elsewhere in the file under that key. The rules here turn such a pickle into a tree whose leaves are
 * msp_torch_tensor; every tensor is checked against the number of elements its storage claims, so that who finds the
 * bytes only has to find that many.
 *
 * Everything is built in the budget's arena; texts are views of the pickle.
 */
#ifndef MSP_IO_TORCH_PICKLE_H
#define MSP_IO_TORCH_PICKLE_H

#include "core/map.h"
#include "io/pickle.h"
#include "msprobe/tensor.h"

/* The bytes under one key. The reader of the file fills in data and size. */
typedef struct msp_torch_blob {
    struct msp_torch_blob *next; /* in order of appearance */
    msp_str key;
    msp_dtype dtype;     /* of the first storage that named it; MSP_U8 for an untyped one */
    uint64_t need;       /* bytes that the storages say it has */
    unsigned swap_width; /* bytes per number as its tensors see it, 0: no tensor yet, 1: nothing to swap */
    const void *data;
    size_t size;
} msp_torch_blob;

typedef struct msp_torch_tensor {
    msp_torch_blob *blob;
    uint64_t offset; /* of the first element, in bytes */
    msp_dtype dtype;
    int32_t ndim;
    bool requires_grad;
    int64_t numel;
    const int64_t *shape, *strides;
    msp_tensor *view; /* for the reader of the file: made when first needed */
} msp_torch_tensor;

typedef struct msp_torch_model {
    msp_budget *budget;
    msp_torch_blob *blobs, **blobs_end;
    size_t nblobs;
    msp_map keys; /* key -> msp_torch_blob; empty while there are few */
} msp_torch_model;

void msp_torch_model_init(msp_torch_model *m, msp_budget *budget);
void msp_torch_model_release(msp_torch_model *m);

/*
 * Run a pickle with these rules; see msp_pickle_read(). A name that is not on the list is MSP_E_UNSUPPORTED, and the
 * message gives it; so are tensors that have no plain bytes: sparse, quantized, nested, meta.
 */
MSP_CHECK msp_status msp_torch_unpickle(msp_pickle_value *out, size_t *used, msp_torch_model *m, const void *bytes,
                                        size_t size, msp_error *err);

/* The blob under this key, or NULL. */
msp_torch_blob *msp_torch_blob_of(const msp_torch_model *m, msp_str key);

/*
 * A remembered text can be used again for two bytes: what is looked at each time must be short, or the time that a file
 * takes grows with the square of its size. torch's keys are numbers.
 */
enum { MSP_TORCH_KEY_MAX = 256 };

/*
 * Put t, whose blob, dtype, sizes and strides (none negative) are set, at element offset of a storage of have elements
 * at the blob's beginning: sets numel and t->offset, and tells the blob how wide its numbers are. MSP_E_FORMAT when it
 * does not fit, MSP_E_LIMIT when it repeats its elements too often.
 */
MSP_CHECK msp_status msp_torch_place(msp_torch_tensor *t, uint64_t offset, uint64_t have, msp_error *err);

/* The type of a storage class of module torch, "FloatStorage", ...; MSP_DTYPE_NONE when it has none, or is unknown. */
msp_dtype msp_torch_storage_dtype(msp_str name);

/* "FloatStorage" for float32, ...; NULL for types that have no storage class of their own. */
const char *msp_torch_storage_name(msp_dtype t);

/* The tensor in v, or NULL when v is something else. */
msp_torch_tensor *msp_torch_tensor_of(msp_pickle_value v);

#endif
