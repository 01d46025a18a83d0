/*
 * module.h - what the files of the extension msprobe._core share.
 *
 * One module-state struct, one function that turns a C error into an exception, one that turns a Python object into a
 * view. Source for CPython 3.8 to 3.13: objects that need the module's state are made by functions of the module and
 * keep the module alive, since types know their module only from 3.9 on.
 */
#ifndef MSP_PY_MODULE_H
#define MSP_PY_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include "msprobe/stats.h"
#include "msprobe/metrics.h"
#include "msprobe/table.h"

enum { MSP_PY_KNOWN_TYPES = 2 };

typedef struct msp_py_state {
    PyObject *format_error, *not_found_error; /* msprobe.FormatError, msprobe.NotFoundError */
    PyTypeObject *tensor_type;
    PyTypeObject *file_type;
    PyTypeObject *stats_type;
    PyTypeObject *metrics_type;
    PyTypeObject *table_type;
    PyTypeObject *dump_type; /* mindspore/dump.c */

    /* types whose tensors were looked at, with their tables of C functions; see tensor/torch.c */
    PyTypeObject *dlpack_types[MSP_PY_KNOWN_TYPES];
    const void *dlpack_apis[MSP_PY_KNOWN_TYPES];
    unsigned dlpack_next;
    PyObject *strided; /* torch.strided, once it was needed */
    PyObject *str_dlpack_api, *str_is_neg, *str_is_conj, *str_layout, *str_is_cpu; /* attribute names, interned once */
} msp_py_state;

static inline msp_py_state *
msp_py_state_of(PyObject *module)
{
    return (msp_py_state *)PyModule_GetState(module);
}

/* Bytes from which on a call lets other Python threads run: below, giving the lock back costs more than the work. */
#define MSP_PY_UNLOCK_BYTES (256 * 1024)

/* ---- errors (error.c) ------------------------------------------------------------------------------------------- */

/* Set the exception that status and err stand for. Returns NULL, so that a caller can return it. */
PyObject *msp_py_raise(const msp_py_state *state, msp_status status, const msp_error *err);

/* ---- views of Python objects (view.c, tensor/torch.c) ------------------------------------------------------------ */

/*
 * A tensor in the memory of a Python object, and what keeps that memory alive. msp_py_view_init() makes an empty one,
 * which may be released.
 */
typedef struct msp_py_view {
    msp_tensor t;
    PyObject *owner;  /* an object made for this view: a copy on the host, a tensor without conjugate bit */
    Py_buffer buffer; /* held when has_buffer */
    void *copy;       /* elements that had to be laid out anew */
    bool has_buffer;
} msp_py_view;

/* Not `= {0}`: a view is a kilobyte, and the shape needs no zeros. */
static inline void
msp_py_view_init(msp_py_view *v)
{
    v->owner = NULL;
    v->copy = NULL;
    v->has_buffer = false;
    v->t.owner = NULL;
    v->t.release_owner = NULL;
}

/*
 * See a torch tensor, an msprobe.Tensor, or any object with the buffer protocol (numpy.ndarray, bytes, ...) as a
 * tensor. Strided memory is not copied; negative strides are. Returns 0, or -1 with an exception set.
 */
int msp_py_view_acquire(msp_py_view *v, msp_py_state *state, PyObject *obj);

void msp_py_view_release(msp_py_view *v);

static inline bool
msp_py_view_is_large(const msp_py_view *v)
{
    return v->t.numel >= MSP_PY_UNLOCK_BYTES / 16 &&
           (size_t)v->t.numel * msp_dtype_size(v->t.dtype) >= MSP_PY_UNLOCK_BYTES;
}

/* Where the memory of a tensor of PyTorch is. */
typedef enum msp_py_place {
    MSP_PY_FAILED = -1, /* it could not be told: an exception is set */
    MSP_PY_HERE,        /* in host memory, as it is described */
    MSP_PY_AWAY,        /* on another device, which may be meta */
    MSP_PY_NOWHERE,     /* it has none of its own: sparse, fake, or given back for a while */
    MSP_PY_LAZY         /* in host memory, but to be conjugated or negated */
} msp_py_place;

/* See a tensor of PyTorch as it is, without copying anything: *t is filled when it is here, and lent. */
msp_py_place msp_py_torch_look(msp_tensor *t, msp_py_state *state, PyObject *obj);

/* torch.float32 -> MSP_F32; MSP_DTYPE_NONE with an exception set. */
msp_dtype msp_py_torch_dtype(PyObject *dtype);

/* Is obj a tensor of PyTorch? 1 yes and *v is filled, 0 no, -1 with an exception set. */
int msp_py_torch_view(msp_py_view *v, msp_py_state *state, PyObject *obj);

#endif
