/*
 * memory.c - a tensor as the collector sees it: its memory, by the one reader of tensors (torch.c), and what its
 * attributes say.
 */
#include "call/call.h"
#include "module.h"
#include "tensor/tensor.h"
#include <string.h>

static msp_py_state *state; /* the module's */
static PyObject *str_requires_grad;

int
msp_probe_view_setup(PyObject *module)
{
    state = msp_py_state_of(module);
    str_requires_grad = PyUnicode_InternFromString("requires_grad");
    return str_requires_grad == NULL ? -1 : 0;
}

bool
msp_probe_own_view(msp_tensor *view, PyObject *t)
{
    msp_py_place place;

    if (!msp_probe_is_plain_tensor(t))
        return false;
    place = msp_py_torch_look(view, state, t);
    if (place == MSP_PY_FAILED)
        msp_probe_expect(PyExc_Exception, "reading a tensor");
    return place == MSP_PY_HERE;
}

/* Inside a transform (vmap, grad, ...) tensors are wrappers, and those of other types may be anything: Python describes
 * them. So it does what the reader cannot read: quantised and nested tensors, sizes that are symbols. */
bool
msp_probe_tensor_view(msp_tensor *view, PyObject *t)
{
    return !msp_probe_thread.transforming && msp_probe_own_view(view, t);
}

int
msp_probe_requires_grad(PyObject *t, bool *yes)
{
    PyObject *v = msp_probe_tensor_attribute(t, str_requires_grad);

    *yes = v == Py_True;
    Py_XDECREF(v);
    return v == NULL ? -1 : 0;
}

int
msp_probe_numbers(int64_t *out, PyObject *tuple) /* takes the reference over */
{
    Py_ssize_t n = tuple != NULL && PyTuple_Check(tuple) ? PyTuple_GET_SIZE(tuple) : -1;

    if (n > MSP_MAX_NDIM)
        n = -1;
    for (Py_ssize_t i = 0; i < n; i++)
        out[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    Py_XDECREF(tuple);
    return (int)n;
}

int
msp_probe_tensor_shape(msp_tensor *view, PyObject *shape, PyObject *dtype)
{
    *view = (msp_tensor){0};
    Py_INCREF(shape);
    view->ndim = msp_probe_numbers(view->shape, shape);
    view->numel = 1;
    for (int i = 0; i < view->ndim; i++)
        view->numel *= view->shape[i];
    if (!PyErr_Occurred() && view->ndim < 0)
        PyErr_SetString(PyExc_TypeError, "a shape that is not known");
    if (!PyErr_Occurred())
        view->dtype = msp_py_torch_dtype(dtype);
    return PyErr_Occurred() ? -1 : 0;
}
