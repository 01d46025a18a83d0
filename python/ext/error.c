/* error.c - the one place where a status of the library becomes a Python exception. */
#include "module.h"

static PyObject *
exception_of(const msp_py_state *state, msp_status status)
{
    switch (status) {
    case MSP_E_NOMEM:
        return PyExc_MemoryError;
    case MSP_E_IO:
    case MSP_E_CHANGED:
        return PyExc_OSError;
    case MSP_E_FORMAT:
    case MSP_E_UNSUPPORTED:
    case MSP_E_LIMIT:
        return state->format_error;
    case MSP_E_INVALID:
        return PyExc_ValueError;
    case MSP_E_NOT_FOUND:
        return state->not_found_error;
    case MSP_OK:
    case MSP_E_CANCELLED:
        break;
    }
    return PyExc_RuntimeError;
}

PyObject *
msp_py_raise(const msp_py_state *state, msp_status status, const msp_error *err)
{
    PyObject *type = exception_of(state, status);
    const char *text = err != NULL && err->message[0] != '\0' ? err->message : msp_status_text(status);
    PyObject *message;

    if (PyErr_Occurred()) /* a callback into Python failed: its own exception says more */
        return NULL;
    /* file names in messages need not be UTF-8 */
    message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
    if (message != NULL) {
        PyErr_SetObject(type, message);
        Py_DECREF(message);
    }
    return NULL;
}
