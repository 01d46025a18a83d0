/*
 * tensor.h - a typed, strided view of memory, and the files such views come from.
 *
 * A tensor borrows or owns what its data points into; msp_tensor_release() gives back whatever it owns and accepts an
 * empty tensor. Views are never aligned by promise: a .pt file may place float64 at an odd address.
 */
#ifndef MSPROBE_TENSOR_H
#define MSPROBE_TENSOR_H

#include "msprobe/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MSP_MAX_NDIM 64 /* torch and NumPy 2 both stop here */

typedef struct msp_tensor {
    const void *data; /* the element at index 0,0,...; NULL when there is none */
    msp_dtype dtype;
    int32_t ndim; /* 0: a scalar */
    bool requires_grad;
    int64_t numel; /* product of shape */
    int64_t shape[MSP_MAX_NDIM];
    int64_t strides[MSP_MAX_NDIM]; /* in elements; may be 0 (expanded), never negative */
    void *owner;                   /* what keeps data alive, or NULL when borrowed */
    void (*release_owner)(void *owner);
} msp_tensor;

/* Give back what the tensor owns and leave it empty. Accepts an empty (zeroed) tensor. */
MSP_API void msp_tensor_release(msp_tensor *t);

/*
 * Describe contiguous memory that the caller keeps alive. Returns MSP_E_INVALID for ndim outside 0..MSP_MAX_NDIM, a
 * negative size, or a product that overflows.
 */
MSP_API MSP_CHECK msp_status msp_tensor_view(msp_tensor *out, const void *data, msp_dtype dtype, int32_t ndim,
                                             const int64_t *shape, msp_error *err);

/* True when the elements lie without gaps in row-major order, so that numel * size bytes from data are all of it. */
MSP_API bool msp_tensor_is_contiguous(const msp_tensor *t);

/* True when ndim and every size agree. */
MSP_API bool msp_tensor_same_shape(const msp_tensor *a, const msp_tensor *b);

/* Address of the element with this row-major index. index must be below numel. */
MSP_API const void *msp_tensor_at(const msp_tensor *t, int64_t index);

/* Turn a row-major index into coordinates, ndim of them. */
MSP_API void msp_tensor_unravel(const msp_tensor *t, int64_t index, int64_t coords[MSP_MAX_NDIM]);

/* ---- files ---------------------------------------------------------------------------------------------------- */

/*
 * Open the one tensor in the file at path: .npy, .pt (zip or legacy) or .safetensors, recognised by content, not by
 * name.
 *
 * The file is mapped, not read: *out is a view that owns the mapping (release it with msp_tensor_release()). Only small
 * files, data in the other byte order, and tensors stored compressed, are copied. All that is taken is never more than
 * the file's size plus 256 MiB.
 *
 * Returns MSP_E_IO (cannot open or map), MSP_E_FORMAT (the message says what and at which byte), MSP_E_UNSUPPORTED (a
 * type or layout we do not read), MSP_E_LIMIT (describing the content would take more memory than the file's size plus
 * a constant), MSP_E_NOT_FOUND (no such file, or no tensor inside), MSP_E_INVALID (more than one tensor: use
 * msp_tensor_file). On failure *out is empty. The message starts with the path. No pickle is ever executed.
 */
MSP_API MSP_CHECK msp_status msp_tensor_open(msp_tensor *out, const char *path, msp_error *err);

/* msp_tensor_open() for a file that must be of this format: MSP_E_FORMAT for the others. */
MSP_API MSP_CHECK msp_status msp_npy_open(msp_tensor *out, const char *path, msp_error *err);
MSP_API MSP_CHECK msp_status msp_pt_open(msp_tensor *out, const char *path, msp_error *err);

/*
 * A file that holds any number of tensors: .safetensors, or a .pt of a (nested) dict, list or tuple of tensors, whose
 * names are then joined with dots ("model.layers.0.weight"). A single tensor has the name "".
 */
typedef struct msp_tensor_file msp_tensor_file;
struct msp_stats;

/* Returns what msp_tensor_open() does, but for the number of tensors: none is no error. On failure *out is NULL. */
MSP_API MSP_CHECK msp_status msp_tensor_file_open(msp_tensor_file **out, const char *path, msp_error *err);

/* As above from memory that the caller keeps alive until msp_tensor_file_close(); this is what the fuzz targets call.
 */
MSP_API MSP_CHECK msp_status msp_tensor_file_parse(msp_tensor_file **out, const void *bytes, size_t size,
                                                   msp_error *err);

/* How many tensors there are. */
MSP_API size_t msp_tensor_file_count(const msp_tensor_file *f);

/* The i-th tensor's name and view; both are owned by f and live until msp_tensor_file_close(). */
MSP_API const char *msp_tensor_file_name(const msp_tensor_file *f, size_t i);
MSP_API const msp_tensor *msp_tensor_file_at(const msp_tensor_file *f, size_t i);

/*
 * MSP_E_CHANGED when the file was cut short since it was opened, by this path: elements that were read meanwhile may be
 * zeros.
 */
MSP_API MSP_CHECK msp_status msp_tensor_file_check(const msp_tensor_file *f, const char *path, msp_error *err);

/* Accepts NULL. */
MSP_API void msp_tensor_file_close(msp_tensor_file *f);

/*
 * Write t to path: whole or not at all (a temporary file beside it, renamed at the end), mode 0640. A .pt so written is
 * read by torch.load(weights_only=True) from torch 1.13 on (float8 and uint16/32/64: by those that have the type);
 * strided tensors are written contiguous, requires_grad is not written, equal tensors give equal files. Types that the
 * format lacks (.npy: bfloat16 and float8) give MSP_E_UNSUPPORTED.
 */
MSP_API MSP_CHECK msp_status msp_pt_save(const char *path, const msp_tensor *t, msp_error *err);
MSP_API MSP_CHECK msp_status msp_npy_save(const char *path, const msp_tensor *t, msp_error *err);

/*
 * msp_pt_save(), and the statistics of t (stats.h) in *stats (NULL: not wanted) when it succeeds. Of a large tensor one
 * thread writes the elements while others read them: the file's checksum and the statistics are ready before they are.
 */
MSP_API MSP_CHECK msp_status msp_pt_save_measured(const char *path, const msp_tensor *t, struct msp_stats *stats,
                                                  msp_error *err);

#ifdef __cplusplus
}
#endif
#endif
