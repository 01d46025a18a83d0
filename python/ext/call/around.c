/*
 * around.c - Python around a selected call: what is done before it, and what becomes of its result.
 *
 * around(before, after): before((name, flags, function, receiver, args, kwargs)) is told "Torch.mul.0.forward",
 * the flags of add(), the function, the tensor whose method it is (None: there is none), and what it is called with
 * (args and kwargs may be None). It returns None, and that was all, or a state; the call is made as without us, and
 * after(state, result) returns what the program gets. A call that raises has no `after`; what these two raise is told
 * and the program's own result stands.
 */
#include "call/call.h"

/* Nothing is recorded then: calls are only counted, selected and shown. */
PyObject *
msp_probe_set_around(PyObject *self, PyObject *args)
{
    PyObject *before, *after;

    (void)self;
    if (!PyArg_ParseTuple(args, "OO:around", &before, &after))
        return NULL;
    msp_probe_set(&msp_probe.before, before);
    msp_probe_set(&msp_probe.after, after);
    Py_RETURN_NONE;
}

static PyObject *
or_none(PyObject *v)
{
    return v == NULL ? Py_None : v;
}

/* NULL: there is nothing to do after the call. */
static PyObject *
ask_before(const probe_api *api, const char *name, PyObject *receiver, PyObject *args, PyObject *kwargs)
{
    PyObject *seen =
        Py_BuildValue("(sIOOOO)", name, api->flags, api->target, or_none(receiver), or_none(args), or_none(kwargs));
    PyObject *state = seen == NULL ? NULL : msp_probe_ask(msp_probe.before, seen, NULL);

    Py_XDECREF(seen);
    if (state == NULL)
        msp_probe_swallow("preparing a second run", name);
    else if (state == Py_None)
        Py_CLEAR(state);
    return state;
}

/* Takes the call's result over; returns what stands in its place. */
static PyObject *
ask_after(const char *name, PyObject *state, PyObject *result)
{
    PyObject *other = msp_probe_ask(msp_probe.after, state, result);

    if (other == NULL) {
        msp_probe_swallow("a second run", name);
        return result;
    }
    Py_DECREF(result);
    return other;
}

PyObject *
msp_probe_call_around(probe_api *api, PyObject *self, PyObject *receiver, PyObject *args, PyObject *kwargs,
                      const char *name, probe_quiet *q)
{
    PyObject *state = name == NULL ? NULL : ask_before(api, name, receiver, args, kwargs), *result;

    msp_probe_resume(q);
    result = msp_probe_invoke(api, self, args, kwargs);
    if (state == NULL)
        return result;
    if (result != NULL) {
        msp_probe_pause(q);
        result = ask_after(name, state, result);
    }
    Py_DECREF(state);
    return result;
}
