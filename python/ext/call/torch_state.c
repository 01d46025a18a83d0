/*
 * torch_state.c - what torch is doing on this thread, asked of functions of its own, where this torch has them.
 */
#include "call/call.h"

int64_t
msp_probe_number(PyObject *v, const char *where)
{
    int64_t n = v == NULL ? -1 : (int64_t)PyLong_AsUnsignedLongLongMask(v);

    Py_XDECREF(v);
    if (PyErr_Occurred()) {
        msp_probe_swallow(where, "");
        return -1;
    }
    return n;
}

static int64_t
ask_number(PyObject *function, const char *where)
{
    return function == NULL ? -1 : msp_probe_number(PyObject_CallNoArgs(function), where);
}

bool
msp_state_has_function_mode(void)
{
    return msp_probe.modes != NULL && ask_number(PyTuple_GET_ITEM(msp_probe.modes, 0), "asking for modes") > 0;
}

bool
msp_state_is_transforming(void)
{
    PyObject *level = msp_probe.functorch_level == NULL ? NULL : PyObject_CallNoArgs(msp_probe.functorch_level);

    Py_XDECREF(level);
    if (PyErr_Occurred())
        msp_probe_swallow("asking for transforms", "");
    return level != NULL && level != Py_None;
}

bool
msp_state_grad_enabled(void)
{
    PyObject *enabled = msp_probe.grad_enabled == NULL ? NULL : PyObject_CallNoArgs(msp_probe.grad_enabled);

    Py_XDECREF(enabled);
    if (PyErr_Occurred())
        msp_probe_swallow("asking whether gradients are on", "");
    return enabled != Py_False;
}

int64_t
msp_state_next_node(void)
{
    return ask_number(msp_probe.sequence_nr, "asking for the next node's number");
}

int64_t
msp_state_backward_pass(void)
{
    return ask_number(msp_probe.task_id, "asking for the backward pass");
}
