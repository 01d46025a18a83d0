/*
 * tensor_file.h - what the readers of the three formats fill in.
 *
 * A reader gets (pointer, size) and adds a name and a view for every tensor. Views point into the bytes; where that is
 * impossible (compressed, other byte order) they point into a copy that the file keeps.
 */
#ifndef MSP_IO_TENSOR_FILE_H
#define MSP_IO_TENSOR_FILE_H

#include "core/file.h"
#include "core/str.h"
#include "io/budget.h"
#include "msprobe/tensor.h"

typedef struct msp_tensor_item {
    const char *name;
    const msp_tensor *tensor;
} msp_tensor_item;

/*
 * A file of one small tensor is one block of memory: its bytes, the view and the name stand in the handle. At the price
 * of an open(), a read() and a close(), three microseconds, seven allocations are felt.
 */
struct msp_tensor_file {
    msp_mapping map;   /* empty when the caller keeps the bytes */
    msp_budget budget; /* names and views */
    msp_tensor_item *items;
    size_t count, cap;
    void **copies; /* given back with msp_free() */
    size_t ncopies, copies_cap;
    msp_tensor_item first;        /* where items points while there is one */
    _Alignas(16) char lent[1280]; /* the budget's first memory: one view and a short name */
    _Alignas(16) char room[];     /* of files that are opened: where map reads a small one to */
};

/* As msp_tensor_open(), for a path that begins at the directory open as dir; messages start with that path. */
MSP_CHECK msp_status msp_tensor_open_at(msp_tensor *out, int dir, const char *name, msp_error *err);

/*
 * MSP_E_CHANGED when the file that a tensor was opened from, by this name in the directory open as dir, was cut short
 * since: elements that were read meanwhile may be zeros.
 */
MSP_CHECK msp_status msp_tensor_check_at(const msp_tensor *t, int dir, const char *name, msp_error *err);

/* The one tensor of a file of any format whose bytes are in memory, and stay there as long as *out is used. */
MSP_CHECK msp_status msp_tensor_parse(msp_tensor *out, const void *bytes, size_t size, msp_error *err);

/* The readers, by content. Each is given a file without items; on failure what it has added does not matter. */
MSP_CHECK msp_status msp_npy_parse(msp_tensor_file *f, const void *bytes, size_t size, msp_error *err);
MSP_CHECK msp_status msp_pt_parse(msp_tensor_file *f, const void *bytes, size_t size, msp_error *err);
MSP_CHECK msp_status msp_safetensors_parse(msp_tensor_file *f, const void *bytes, size_t size, msp_error *err);

/*
 * A .npy file whose elements can be used where they are needs nothing but the view. False, and *out is anything, when
 * it is another file, or a wrong one: the reader says why.
 */
bool msp_npy_borrow(msp_tensor *out, const void *bytes, size_t size);

/* Does it begin as the format does? */
bool msp_npy_is(const void *bytes, size_t size);
bool msp_pt_is(const void *bytes, size_t size);
bool msp_safetensors_is(const void *bytes, size_t size);

/* An empty view that lives as long as the file, for the reader to fill in. */
MSP_CHECK msp_status msp_tensor_file_new_view(msp_tensor **out, msp_tensor_file *f, msp_error *err);

/* Put a tensor at the end. The name is copied; one that holds a 0 byte is a MSP_E_FORMAT. */
MSP_CHECK msp_status msp_tensor_file_add(msp_tensor_file *f, msp_str name, const msp_tensor *t, msp_error *err);

/* n bytes that live as long as the file. */
MSP_CHECK msp_status msp_tensor_file_copy_room(void **out, msp_tensor_file *f, size_t n, msp_error *err);

/* Copy n bytes and turn round every number of width bytes on the way; what is left at the end stays as it is. */
void msp_swap_copy(void *to, const void *from, size_t n, unsigned width);

#endif
