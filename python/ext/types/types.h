/*
 * types.h - the types that msprobe._core gives to Python, and the functions that make their objects.
 *
 *     tensor.c       msprobe.Tensor, a tensor in a mapped file, and load()
 *     tensor_file.c  msprobe.TensorFile, the tensors of a file by name, and open()
 *     stats.c        the statistics of a tensor, and stats()
 *     metrics.c      how far two tensors are apart, and metrics()
 *     table.c        msprobe.Table, rows into a file, and open_table()
 *
 * msprobe._core.Dump, for MindSpore, stands in mindspore/dump.c. Each msp_py_..._type() makes its type when the module
 * is imported and returns NULL with an exception set when it cannot. Python cannot make objects of these types; the
 * functions beside them do, as module.c tells Python's users, and keep the module alive by the type. All of them see
 * tensors of PyTorch, NumPy and our own alike (msp_py_view_acquire).
 */
#ifndef MSP_PY_TYPES_H
#define MSP_PY_TYPES_H

#include "module.h"

/* Make a heap type that Python code cannot instantiate, and add it to the module under its own name. NULL on error. */
PyTypeObject *msp_py_add_type(PyObject *module, PyType_Spec *spec);

/* ---- files of tensors -------------------------------------------------------------------------------------------- */

/* A tensor in a file that is mapped: its elements are read where they lie, by the buffer protocol or as an array of
 * NumPy's, and the mapping lives as long as somebody holds one. */
PyTypeObject *msp_py_tensor_type(PyObject *module);

/* An msprobe.Tensor that takes over *t (left empty) and keeps base (may be NULL) alive. */
PyObject *msp_py_tensor_take(PyTypeObject *type, msp_tensor *t, PyObject *base);

/* The tensor of an object of that type, lent. */
const msp_tensor *msp_py_tensor_get(PyObject *obj);

/* load(path): the one tensor of a file. */
PyObject *msp_py_load(PyObject *module, PyObject *path);

/* A file with any number of tensors, as a mapping from their names: open(path). Each is made when it is asked for. */
PyTypeObject *msp_py_file_type(PyObject *module);
PyObject *msp_py_open_file(PyObject *module, PyObject *path);

/* ---- what is measured -------------------------------------------------------------------------------------------- */

/* What one pass over a tensor finds, whose numbers become Python's when they are read: stats(tensor, threads=0). */
PyTypeObject *msp_py_stats_type(PyObject *module);
PyObject *msp_py_stats(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* How far one tensor is from another, by all of compare's measures: metrics(n, b, threads=0). */
PyTypeObject *msp_py_metrics_type(PyObject *module);
PyObject *msp_py_metrics(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* The optional argument `threads` of a vectorcall function with npos positional arguments; -1 with an exception. */
int msp_py_threads_arg(int *threads, const char *function, Py_ssize_t npos, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);

/* ---- what is written --------------------------------------------------------------------------------------------- */

/* Rows into a csv, xlsx or JSON file, which is whole when it is closed: open_table(path, columns). */
PyTypeObject *msp_py_table_type(PyObject *module);
PyObject *msp_py_open_table(PyObject *module, PyObject *args, PyObject *kwargs);

/* A dump in the making whose calls Python sees, MindSpore's: open_dump(dir, ...). */
PyTypeObject *msp_py_dump_type(PyObject *module);
PyObject *msp_py_open_dump(PyObject *module, PyObject *args, PyObject *kwargs);

#endif
