/*
 * keep.c - task overflow_check: a call's inputs as they were before it.
 *
 * Whether a call's elements are wanted is known only after it, and by then it may have written over its arguments
 * (add_, relu with inplace, running statistics, ops of the program's own). So the inputs are copied, for as long as the
 * call runs; what exceeds the limit goes to its file at once, and the file is removed when it is not wanted.
 */
#include "call/call.h"
#include "tensor/tensor.h"
#include <string.h>

struct kept_tensor {
    kept_tensor *next;
    msp_tensor view;  /* of the copy behind the name; data NULL: there is none here */
    PyObject *object; /* a tensor on another device, or NULL; neither: the elements are in the file already */
    size_t bytes;
    char file[];
};

enum { MOST_BYTES = 512 << 20 }; /* held by all calls together, which is a few of them: modules nest */

static size_t held;

static void
copy_elements(char *to, const msp_tensor *t)
{
    const size_t size = msp_dtype_size(t->dtype);

    if (msp_tensor_is_contiguous(t)) {
        memcpy(to, t->data, (size_t)t->numel * size);
        return;
    }
    for (int64_t i = 0; i < t->numel; i++)
        memcpy(to + (size_t)i * size, msp_tensor_at(t, i), size);
}

/* A copy of t with room for its file's name behind the struct; NULL without memory or beyond the limit. */
static kept_tensor *
copy_of(const msp_tensor *t, size_t name_bytes)
{
    size_t bytes = (size_t)t->numel * msp_dtype_size(t->dtype), at = (name_bytes + 63) & ~(size_t)63;
    kept_tensor *k;

    if (bytes > MOST_BYTES - held)
        return NULL;
    k = PyMem_RawCalloc(1, sizeof(*k) + at + bytes);
    if (k == NULL)
        return NULL;
    copy_elements(k->file + at, t);
    if (msp_tensor_view(&k->view, k->file + at, t->dtype, t->ndim, t->shape, NULL) != MSP_OK) {
        PyMem_RawFree(k);
        return NULL;
    }
    k->bytes = bytes;
    held += bytes;
    return k;
}

int
msp_probe_keep(kept_tensor **list, const msp_tensor *t, const char *file)
{
    size_t n = strlen(file) + 1;
    kept_tensor *k = copy_of(t, n);

    if (k == NULL) {
        k = PyMem_RawCalloc(1, sizeof(*k) + n);
        if (k == NULL || msp_probe_save_tensor(t, file) != 0) {
            PyMem_RawFree(k);
            return -1;
        }
    }
    memcpy(k->file, file, n);
    k->next = *list;
    *list = k;
    return 0;
}

/* Fetch the elements and write them to their file: -1 with an exception set. */
static int
save_object(PyObject *tensor, const char *file)
{
    msp_record *scratch = msp_probe_record_get();
    probe_path path;

    if (scratch == NULL)
        return -1;
    msp_probe_path_begin(&path, file, strlen(file) - strlen(".pt"));
    path.saving = true;
    msp_probe_value(scratch, tensor, &path, 0);
    msp_probe_record_put(scratch);
    return PyErr_Occurred() ? -1 : 0;
}

int
msp_probe_keep_object(kept_tensor **list, PyObject *tensor, size_t bytes, const probe_path *path)
{
    kept_tensor *k = PyMem_RawCalloc(1, sizeof(*k) + path->len + sizeof(".pt"));

    if (k == NULL)
        return -1;
    memcpy(k->file, path->text, path->len);
    memcpy(k->file + path->len, ".pt", sizeof(".pt"));
    if (bytes > MOST_BYTES - held) {
        if (save_object(tensor, k->file) != 0) {
            PyMem_RawFree(k);
            return -1;
        }
    } else {
        Py_INCREF(tensor);
        k->object = tensor;
        k->bytes = bytes;
        held += bytes;
    }
    k->next = *list;
    *list = k;
    return 0;
}

static kept_tensor *
pop_kept(kept_tensor **list)
{
    kept_tensor *k = *list;

    *list = k->next;
    held -= k->bytes;
    return k;
}

void
msp_probe_keep_save(kept_tensor **list)
{
    while (*list != NULL) {
        kept_tensor *k = pop_kept(list);

        if ((k->view.data != NULL && msp_probe_save_tensor(&k->view, k->file) != 0) ||
            (k->object != NULL && save_object(k->object, k->file) != 0))
            msp_probe_swallow("saving a tensor", k->file);
        Py_XDECREF(k->object);
        PyMem_RawFree(k);
    }
}

void
msp_probe_keep_drop(kept_tensor **list)
{
    while (*list != NULL) {
        kept_tensor *k = pop_kept(list);

        if (k->view.data == NULL && k->object == NULL)
            msp_probe_remove_file(k->file);
        Py_XDECREF(k->object);
        PyMem_RawFree(k);
    }
}
