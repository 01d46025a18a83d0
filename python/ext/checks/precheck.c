/* precheck.c - what msprobe.precheck needs of the C library: a result measured, judged and written as a line. */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "checks/checks.h"
#include "msprobe/precheck.h"

typedef size_t write_function(char *buf, size_t size, const void *what);

/* The bytes that write() makes of what, however many they are. */
static PyObject *
bytes_written(write_function *write, const void *what)
{
    size_t len = write(NULL, 0, what);
    char *buf = PyMem_Malloc(len + 1);
    PyObject *out = NULL;

    if (buf == NULL)
        return PyErr_NoMemory();
    write(buf, len + 1, what);
    out = PyBytes_FromStringAndSize(buf, (Py_ssize_t)len);
    PyMem_Free(buf);
    return out;
}

typedef struct details {
    const char *name;
    msp_precheck_row row;
} details;

static size_t
write_details(char *buf, size_t size, const void *what)
{
    const details *d = what;

    return msp_precheck_details_line(buf, size, d->name, &d->row);
}

/* precheck_output(name, api, device, bench) -> (status, line) */
PyObject *
msp_py_precheck_output(PyObject *module, PyObject *args)
{
    msp_py_state *state = msp_py_state_of(module);
    const char *api;
    PyObject *device, *bench, *out = NULL;
    details line;
    msp_py_view d, b;
    msp_status st;
    msp_error err;

    if (!PyArg_ParseTuple(args, "ssOO:precheck_output", &line.name, &api, &device, &bench))
        return NULL;
    msp_py_view_init(&d);
    msp_py_view_init(&b);
    if (msp_py_view_acquire(&d, state, device) == 0 && msp_py_view_acquire(&b, state, bench) == 0) {
        Py_BEGIN_ALLOW_THREADS;
        st = msp_precheck_measure(&line.row, api, &d.t, &b.t, &err);
        Py_END_ALLOW_THREADS;
        if (st != MSP_OK)
            msp_py_raise(state, st, &err);
        else
            out = Py_BuildValue("(iN)", (int)line.row.status, bytes_written(write_details, &line));
    }
    msp_py_view_release(&d);
    msp_py_view_release(&b);
    return out;
}

/* precheck_no_output(name, message) -> line */
PyObject *
msp_py_precheck_no_output(PyObject *module, PyObject *args)
{
    const char *message;
    details line = {.row = {.status = MSP_PRECHECK_SKIP}};

    (void)module;
    if (!PyArg_ParseTuple(args, "ss:precheck_no_output", &line.name, &message))
        return NULL;
    snprintf(line.row.message, sizeof(line.row.message), "%s", message);
    return bytes_written(write_details, &line);
}

typedef struct result {
    const char *api, *message;
    msp_precheck_status forward, backward;
    bool has_backward;
} result;

static size_t
write_result(char *buf, size_t size, const void *what)
{
    const result *r = what;

    return msp_precheck_result_line(buf, size, r->api, r->forward, r->has_backward ? &r->backward : NULL, r->message);
}

/* precheck_result(api, forward, backward or None, message) -> line */
PyObject *
msp_py_precheck_result(PyObject *module, PyObject *args)
{
    PyObject *back;
    long forward, backward = MSP_PRECHECK_SKIP;
    result r;

    (void)module;
    if (!PyArg_ParseTuple(args, "slOs:precheck_result", &r.api, &forward, &back, &r.message))
        return NULL;
    if (back != Py_None)
        backward = PyLong_AsLong(back);
    if (PyErr_Occurred())
        return NULL;
    if (forward < 0 || forward > MSP_PRECHECK_ERROR || backward < 0 || backward > MSP_PRECHECK_ERROR) {
        PyErr_SetString(PyExc_ValueError, "there is no such status");
        return NULL;
    }
    r.forward = (msp_precheck_status)forward;
    r.backward = (msp_precheck_status)backward;
    r.has_backward = back != Py_None;
    return bytes_written(write_result, &r);
}

static size_t
write_name(char *buf, size_t size, const void *what)
{
    return msp_precheck_name_written(buf, size, what);
}

/* precheck_name(name) -> the name as precheck_resume() gives it */
PyObject *
msp_py_precheck_name(PyObject *module, PyObject *arg)
{
    const char *name = PyUnicode_AsUTF8(arg);

    (void)module;
    return name == NULL ? NULL : bytes_written(write_name, name);
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
    PyObject *text = PyBytes_FromStringAndSize(name, (Py_ssize_t)len);

    if (text == NULL || PySet_Add(payload, text) != 0)
        PyErr_Clear(); /* no memory for a name: its API is run once more */
    Py_XDECREF(text);
}

/* precheck_resume(result_path, details_path) -> set of the APIs that are done, as precheck_name() writes them */
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

/* end_with(pid): this process ends when its parent, pid, does, however that happens. */
PyObject *
msp_py_end_with(PyObject *module, PyObject *arg)
{
    long parent = PyLong_AsLong(arg);

    (void)module;
    if (PyErr_Occurred())
        return NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)parent)
        _exit(1); /* it has ended already */
    Py_RETURN_NONE;
}
