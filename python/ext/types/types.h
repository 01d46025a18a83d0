/*
 * types.h - the types that msprobe._core gives to Python, and the functions that make their objects.
 *
 *     tensor.c       msprobe.Tensor, a tensor in a mapped file, and load()
 *     tensor_file.c  msprobe.TensorFile, the tensors of a file by name, and open()
 *     stats.c        the statistics of a tensor, and stats()
 *     metrics.c      how far two tensors are apart, and metrics()
 *     table.c        msprobe.Table, rows into a file, and open_table()
 *
 * msprobe._core.Dump, for MindSpore, stands in mindspore/dump.c. Each msp_py_..._type() makes its type at import time
 * and returns NULL with an exception set when it cannot. What the functions take and return is told where module.c
 * puts them into the module's table.
 */
#ifndef MSP_PY_TYPES_H
#define MSP_PY_TYPES_H

#include "module.h"

/* Make a heap type that Python code cannot instantiate, and add it to the module under its own name. NULL on error. */
PyTypeObject *msp_py_add_type(PyObject *module, PyType_Spec *spec);

/* ---- files of tensors -------------------------------------------------------------------------------------------- */

PyTypeObject *msp_py_tensor_type(PyObject *module);

/* An msprobe.Tensor that takes over *t (left empty) and keeps base (may be NULL) alive. */
PyObject *msp_py_tensor_take(PyTypeObject *type, msp_tensor *t, PyObject *base);

/* The tensor of an object of that type, lent. */
const msp_tensor *msp_py_tensor_get(PyObject *obj);

PyObject *msp_py_load(PyObject *module, PyObject *path);

PyTypeObject *msp_py_file_type(PyObject *module);
PyObject *msp_py_open_file(PyObject *module, PyObject *path);

/* ---- what is measured -------------------------------------------------------------------------------------------- */

PyTypeObject *msp_py_stats_type(PyObject *module);
PyObject *msp_py_stats(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

PyTypeObject *msp_py_metrics_type(PyObject *module);
PyObject *msp_py_metrics(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* The optional argument `threads` of a vectorcall function with npos positional arguments; -1 with an exception. */
int msp_py_threads_arg(int *threads, const char *function, Py_ssize_t npos, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);

/* ---- what is written --------------------------------------------------------------------------------------------- */

PyTypeObject *msp_py_table_type(PyObject *module);
PyObject *msp_py_open_table(PyObject *module, PyObject *args, PyObject *kwargs);

PyTypeObject *msp_py_dump_type(PyObject *module);
PyObject *msp_py_open_dump(PyObject *module, PyObject *args, PyObject *kwargs);

#endif
