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
    PyTypeObject *dump_type; /* mindspore.c */

    /* types whose tensors were looked at, with their tables of C functions; see torch.c */
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

/* ---- views of Python objects (view.c, torch.c) ------------------------------------------------------------------ */

/*
 * A tensor in the memory of a Python object, and what keeps that memory alive. Zero its four last members (or use
 * MSP_PY_VIEW_INIT) before the first use; releasing an empty one is allowed.
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

/* ---- types ------------------------------------------------------------------------------------------------------ */

/* Make a heap type that Python code cannot instantiate, and add it to the module under its own name. NULL on error. */
PyTypeObject *msp_py_add_type(PyObject *module, PyType_Spec *spec);

/* Each makes its type at import time. */
PyTypeObject *msp_py_tensor_type(PyObject *module);
PyTypeObject *msp_py_file_type(PyObject *module);
PyTypeObject *msp_py_stats_type(PyObject *module);
PyTypeObject *msp_py_metrics_type(PyObject *module);
PyTypeObject *msp_py_table_type(PyObject *module);

/* tensor.c: an msprobe.Tensor that takes over *t (left empty) and keeps base (may be NULL) alive. */
PyObject *msp_py_tensor_take(PyTypeObject *type, msp_tensor *t, PyObject *base);
const msp_tensor *msp_py_tensor_get(PyObject *obj);

/* The module's functions that live with a type. */
PyObject *msp_py_load(PyObject *module, PyObject *path);
PyObject *msp_py_open_file(PyObject *module, PyObject *path);
PyObject *msp_py_stats(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *msp_py_metrics(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *msp_py_open_table(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *msp_py_compare(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *msp_py_parse(PyObject *module, PyObject *args);

/* replay.c */
PyObject *msp_py_dump_records(PyObject *module, PyObject *path);
PyObject *msp_py_local_error(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *msp_py_evidence_open(PyObject *module, PyObject *path);
PyObject *msp_py_evidence_call(PyObject *module, PyObject *args);
PyObject *msp_py_evidence_result(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *msp_py_evidence_close(PyObject *module, PyObject *evidence);

/* The optional argument `threads` of a vectorcall function with npos positional arguments; -1 with an exception. */
int msp_py_threads_arg(int *threads, const char *function, Py_ssize_t npos, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);

/* precheck.c */
PyObject *msp_py_precheck_output(PyObject *module, PyObject *args);
PyObject *msp_py_precheck_result(PyObject *module, PyObject *args);
PyObject *msp_py_precheck_no_output(PyObject *module, PyObject *args);
PyObject *msp_py_precheck_name(PyObject *module, PyObject *arg);
PyObject *msp_py_precheck_headers(PyObject *module, PyObject *unused);
PyObject *msp_py_precheck_resume(PyObject *module, PyObject *args);
PyObject *msp_py_end_with(PyObject *module, PyObject *arg);

/* benchmark.c */
PyObject *msp_py_perturb(PyObject *module, PyObject *args);
PyObject *msp_py_benchmark_compare(PyObject *module, PyObject *args);
PyObject *msp_py_benchmark_judge_cpu(PyObject *module, PyObject *args);
PyObject *msp_py_benchmark_bits(PyObject *module, PyObject *args);
PyObject *msp_py_benchmark_limit(PyObject *module, PyObject *args);
PyObject *msp_py_benchmark_floor(PyObject *module, PyObject *args);
PyObject *msp_py_preheat_samples(PyObject *module, PyObject *args);
PyObject *msp_py_preheat_note(PyObject *module, PyObject *args);
PyObject *msp_py_preheat_adjust(PyObject *module, PyObject *args);
PyObject *msp_py_finding_write(PyObject *module, PyObject *args);

#endif
