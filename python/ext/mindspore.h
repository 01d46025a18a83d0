/* mindspore.h - the type _core.Dump and the function that makes one; see mindspore/dump.c. */
#ifndef MSP_PY_MINDSPORE_H
#define MSP_PY_MINDSPORE_H

#include "module.h"

/* Makes the type at import time. */
PyTypeObject *msp_py_dump_type(PyObject *module);

/* open_dump(dir, writer, tensor_type, dtype_type, dtypes, by_pointer) */
PyObject *msp_py_open_dump(PyObject *module, PyObject *args, PyObject *kwargs);

#endif
