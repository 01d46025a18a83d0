/* online.h - the collector's question to online run_ut: may this tensor be written to its file? */
#ifndef MSP_PY_ONLINE_H
#define MSP_PY_ONLINE_H

#include "module.h"

/* True without online run_ut. Waits for room without the GIL, as long as its bound allows; false: leave it out. */
bool msp_py_online_room(const msp_tensor *t);

PyObject *msp_py_online_open(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *msp_py_online_begin(PyObject *module, PyObject *args);
PyObject *msp_py_online_end(PyObject *module, PyObject *unused);
PyObject *msp_py_online_counts(PyObject *module, PyObject *unused);
PyObject *msp_py_online_close(PyObject *module, PyObject *unused);

PyObject *msp_py_online_serve(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *msp_py_online_next(PyObject *module, PyObject *args);
PyObject *msp_py_online_answer(PyObject *module, PyObject *args);
PyObject *msp_py_online_served(PyObject *module, PyObject *server);
PyObject *msp_py_online_stop(PyObject *module, PyObject *server);
PyObject *msp_py_online_call(PyObject *module, PyObject *path);

#endif
