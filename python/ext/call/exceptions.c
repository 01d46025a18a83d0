/*
 * exceptions.c - exceptions that come up while we work.
 *
 * Those of our own are told in the log and never seen by the program; those of the program, which its handlers of
 * signals raise in whatever Python code runs, go to the program. None is cleared without a look at what it is.
 */
#include "call/call.h"
#include <string.h>

#define KEY(r, literal) msp_record_key((r), (literal), sizeof(literal) - 1)

/* ---- exceptions that come up while we work ----------------------------------------------------------------------- */

/*
 * What a signal's handler raised while Python worked for us, Ctrl-C or an exception of the program's own, is no error
 * of ours. It is held until we are done, or the program's own code runs next: raised before, it would only interrupt us
 * again. Handlers run on the main thread alone.
 */
enum { MOST_HELD = 8 };

static PyObject *settle_exception(PyObject *expected, const char *where, const char *name);

static PyObject *held_back[MOST_HELD];
static int nheld;

static int
raise_again(void *exception)
{
    PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)exception), exception);
    Py_DECREF((PyObject *)exception);
    return -1;
}

/* The interpreter raises what is held when it looks for what is pending: at the program's next instruction. */
void
msp_probe_deliver(void)
{
    int n = 0;

    while (n < nheld && Py_AddPendingCall(raise_again, held_back[n]) == 0)
        n++;
    nheld -= n;
    memmove(held_back, held_back + n, (size_t)nheld * sizeof(*held_back));
}

/* The program gets it later. Of more than it can bear at once the last is left out. */
static void
hold_back(PyObject *value)
{
    if (nheld == MOST_HELD)
        return;
    Py_INCREF(value);
    held_back[nheld++] = value;
    if (msp_probe_thread.depth == 0)
        msp_probe_deliver();
}

static void
drop_exception(PyObject *type, PyObject *value, PyObject *trace)
{
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

/* The exception that is set, as an object with its traceback; none is set any more. */
static void
fetch_exception(PyObject **type, PyObject **value, PyObject **trace)
{
    PyErr_Fetch(type, value, trace);
    PyErr_NormalizeException(type, value, trace);
    if (*value != NULL && *trace != NULL)
        PyException_SetTraceback(*value, *trace);
}

/* is_programs() of core/signals.py, which has nothing that could fail: what interrupts it is a handler's exception. */
static bool
ask_whose(PyObject *value)
{
    PyObject *said = NULL, *type, *other, *trace;

    for (int i = 0; i < MOST_HELD && said == NULL; i++) {
        said = PyObject_CallFunctionObjArgs(msp_probe.is_programs, value, NULL);
        if (said == NULL) {
            fetch_exception(&type, &other, &trace);
            hold_back(other);
            drop_exception(type, other, trace);
        }
    }
    Py_XDECREF(said);
    return said == Py_True;
}

/* Whether a handler of the program's has raised it. One without a traceback has not been through any Python code. */
static bool
is_programs(PyObject *value, PyObject *trace)
{
    bool yes;

    if (!PyErr_GivenExceptionMatches(value, PyExc_Exception))
        return true;
    if (trace == NULL || msp_probe.is_programs == NULL)
        return false;
    msp_probe_thread.depth++; /* what interrupts the question is held until it is answered */
    yes = ask_whose(value);
    msp_probe_thread.depth--;
    return yes;
}

/* Tell Python about an exception of our own; returns its text (a new reference) or NULL. */
static PyObject *
tell_python(const char *where, const char *name, PyObject *value, PyObject *trace)
{
    PyObject *text = PyUnicode_FromFormat("%s: %S", Py_TYPE(value)->tp_name, value), *done;

    if (text == NULL)
        Py_XDECREF(settle_exception(NULL, NULL, NULL)); /* a signal's handler may have raised while the text was made */
    msp_probe.errors++;
    if (msp_probe.on_error == NULL)
        return text;
    done = PyObject_CallFunction(msp_probe.on_error, "ssOO", where, name, value, trace == NULL ? Py_None : trace);
    if (done == NULL)
        Py_XDECREF(settle_exception(NULL, NULL, NULL));
    Py_XDECREF(done);
    return text;
}

/*
 * Every exception that comes up in our code ends here. The program's go to the program; those of the expected type
 * (NULL: none is) are an answer; the others are told, in words of the log: where we were, and the name of what was
 * recorded. where NULL: that has failed already. Returns the text of what was told (a new reference) or NULL.
 */
static PyObject *
settle_exception(PyObject *expected, const char *where, const char *name)
{
    PyObject *type, *value, *trace, *text = NULL;

    fetch_exception(&type, &value, &trace);
    if (value != NULL && is_programs(value, trace)) {
        hold_back(value);
    } else if (value != NULL && (expected == NULL || !PyErr_GivenExceptionMatches(value, expected))) {
        if (where != NULL) {
            text = tell_python(where, name, value, trace);
        } else {
            PyErr_Restore(type, value, trace);
            PyErr_WriteUnraisable(NULL);
            return NULL;
        }
    }
    drop_exception(type, value, trace);
    return text;
}

void
msp_probe_swallow(const char *where, const char *name)
{
    Py_XDECREF(settle_exception(NULL, where, name));
}

void
msp_probe_expect(PyObject *type, const char *where)
{
    if (PyErr_Occurred())
        Py_XDECREF(settle_exception(type, where, ""));
}

bool
msp_probe_has(PyObject *object, const char *name, const char *where)
{
    PyObject *value = PyObject_GetAttrString(object, name);

    if (value == NULL)
        msp_probe_expect(PyExc_AttributeError, where);
    Py_XDECREF(value);
    return value != NULL;
}

void
msp_probe_mark(msp_record *r, const char *where, const char *name)
{
    PyObject *text = settle_exception(NULL, where, name);
    Py_ssize_t len = (Py_ssize_t)strlen(where);
    const char *p = text == NULL ? where : PyUnicode_AsUTF8AndSize(text, &len);

    if (p == NULL) { /* a lone surrogate in it cannot be UTF-8 */
        msp_probe_expect(PyExc_UnicodeEncodeError, "telling an error");
        p = where;
        len = (Py_ssize_t)strlen(where);
    }
    KEY(r, "error");
    msp_record_text(r, p, (size_t)len);
    Py_XDECREF(text);
}

PyObject *
msp_probe_text(const char *message)
{
    return PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "backslashreplace");
}

/* ---- asking Python ----------------------------------------------------------------------------------------------- */

/* torch.compile looks at every frame while it is on; ours it is to leave alone. */
PyObject *
msp_probe_set_frames(PyObject *to)
{
    PyObject *before = msp_compiled_set_callback(to);

    if (before == NULL && PyErr_Occurred())
        msp_probe_swallow("keeping a compiler away", "");
    return before;
}

void
msp_probe_put_frames_back(PyObject *before)
{
    PyObject *type, *value, *trace;

    PyErr_Fetch(&type, &value, &trace);
    Py_XDECREF(msp_probe_set_frames(before));
    PyErr_Restore(type, value, trace);
    Py_DECREF(before);
}

PyObject *
msp_probe_ask(PyObject *callable, PyObject *first, PyObject *second)
{
    PyObject *before = msp_probe_set_frames(Py_None), *said;

    said = PyObject_CallFunctionObjArgs(callable, first, second, NULL);
    if (before != NULL && before != Py_None)
        msp_probe_put_frames_back(before);
    else
        Py_XDECREF(before);
    return said;
}

PyObject *
msp_probe_ask_again(PyObject *callable, PyObject *first, PyObject *second)
{
    PyObject *said = msp_probe_ask(callable, first, second), *type, *value, *trace;

    if (said != NULL)
        return said;
    fetch_exception(&type, &value, &trace);
    if (value == NULL || !is_programs(value, trace)) {
        PyErr_Restore(type, value, trace);
        return NULL;
    }
    msp_probe_thread.depth++; /* what has come is held until the second time is over */
    hold_back(value);
    said = msp_probe_ask(callable, first, second);
    msp_probe_thread.depth--;
    drop_exception(type, value, trace);
    return said;
}
