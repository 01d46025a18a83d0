/* precheck.c - what msprobe.precheck needs of the C library: a result measured, judged and written as a line. */
#include "module.h"
#include "msprobe/precheck.h"

enum { LINE_MAX_BYTES = 4096 };

/* precheck_output(name, api, device, bench) -> (status, line) */
PyObject *
msp_py_precheck_output(PyObject *module, PyObject *args)
{
    msp_py_state *state = msp_py_state_of(module);
    const char *name, *api;
    PyObject *device, *bench, *out = NULL;
    msp_py_view d, b;
    msp_precheck_row row;
    msp_status st;
    msp_error err;

    if (!PyArg_ParseTuple(args, "ssOO:precheck_output", &name, &api, &device, &bench))
        return NULL;
    msp_py_view_init(&d);
    msp_py_view_init(&b);
    if (msp_py_view_acquire(&d, state, device) == 0 && msp_py_view_acquire(&b, state, bench) == 0) {
        Py_BEGIN_ALLOW_THREADS;
        st = msp_precheck_measure(&row, api, &d.t, &b.t, &err);
        Py_END_ALLOW_THREADS;
        if (st != MSP_OK)
            msp_py_raise(state, st, &err);
        else {
            char line[LINE_MAX_BYTES];
            size_t len = msp_precheck_details_line(line, sizeof(line), name, &row);

            out = Py_BuildValue("(iy#)", (int)row.status, line,
                                (Py_ssize_t)(len < sizeof(line) ? len : sizeof(line) - 1));
        }
    }
    msp_py_view_release(&d);
    msp_py_view_release(&b);
    return out;
}

/* precheck_result(api, forward, backward or None, message) -> line */
PyObject *
msp_py_precheck_result(PyObject *module, PyObject *args)
{
    const char *api, *message;
    char line[LINE_MAX_BYTES];
    msp_precheck_status backward = MSP_PRECHECK_SKIP;
    PyObject *back;
    int forward;
    size_t len;

    (void)module;
    if (!PyArg_ParseTuple(args, "siOs:precheck_result", &api, &forward, &back, &message))
        return NULL;
    if (back != Py_None)
        backward = (msp_precheck_status)PyLong_AsLong(back);
    if (PyErr_Occurred())
        return NULL;
    if (forward < 0 || forward > MSP_PRECHECK_ERROR || (int)backward < 0 || backward > MSP_PRECHECK_ERROR) {
        PyErr_SetString(PyExc_ValueError, "there is no such status");
        return NULL;
    }
    len = msp_precheck_result_line(line, sizeof(line), api, (msp_precheck_status)forward,
                                   back == Py_None ? NULL : &backward, message);
    return PyBytes_FromStringAndSize(line, (Py_ssize_t)(len < sizeof(line) ? len : sizeof(line) - 1));
}

/* precheck_headers() -> (result, details) */
PyObject *
msp_py_precheck_headers(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return Py_BuildValue("(yy)", msp_precheck_result_header(), msp_precheck_details_header());
}

static void
add_name(const char *name, size_t len, void *payload)
{
    PyObject *text = PyUnicode_DecodeUTF8(name, (Py_ssize_t)len, "replace");

    if (text == NULL || PySet_Add(payload, text) != 0)
        PyErr_Clear(); /* no memory for a name: its API is run once more */
    Py_XDECREF(text);
}

/* precheck_resume(result_path, details_path) -> set of names that are done */
PyObject *
msp_py_precheck_resume(PyObject *module, PyObject *args)
{
    PyObject *result, *details, *names = NULL;
    msp_status st;
    msp_error err;

    if (!PyArg_ParseTuple(args, "O&O&:precheck_resume", PyUnicode_FSConverter, &result, PyUnicode_FSConverter,
                          &details))
        return NULL;
    names = PySet_New(NULL);
    if (names != NULL) {
        st = msp_precheck_resume(PyBytes_AS_STRING(result), PyBytes_AS_STRING(details), add_name, names, &err);
        if (st != MSP_OK) {
            Py_CLEAR(names);
            msp_py_raise(msp_py_state_of(module), st, &err);
        }
    }
    Py_DECREF(result);
    Py_DECREF(details);
    return names;
}
