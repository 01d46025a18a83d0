/*
 * hook.c - the hooks on the nodes of a call, and the one at the end of a backward pass.
 */
#include "grad/gradient.h"
#include <stddef.h>
#include <string.h>

static PyObject *str_register_hook, *str_remove;

int
msp_probe_hook_setup(void)
{
    str_register_hook = PyUnicode_InternFromString("register_hook");
    str_remove = PyUnicode_InternFromString("remove");
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *
msp_probe_hook(PyObject *node, PyObject *hook)
{
    return PyObject_CallMethodObjArgs(node, str_register_hook, hook, NULL);
}

void
msp_probe_unhook(PyObject *handle)
{
    PyObject *done = PyObject_CallMethodObjArgs(handle, str_remove, NULL);

    if (done == NULL)
        msp_probe_swallow("taking a hook out", "");
    Py_XDECREF(done);
}

/* ---- the end of a backward pass ---------------------------------------------------------------------------------- */

typedef struct end_hook {
    PyObject_HEAD int64_t pass;
} end_hook;

/* Where only modules are recorded, nothing comes behind a step's backward pass, mostly: its files can be written while
 * the optimizer is at work, and stop() has less to wait for. */
static void
hurry_once(void)
{
    static int64_t generation = -1;

    if (msp_probe.calls || !msp_probe.rules.construct || msp_probe.collect == NULL ||
        generation == msp_probe.generation)
        return;
    generation = msp_probe.generation;
    msp_collect_hurry(msp_probe.collect);
}

static PyObject *
end_hook_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    if (msp_probe.live) {
        msp_probe_grad_flush_pass(((end_hook *)self)->pass);
        hurry_once();
    }
    Py_RETURN_NONE;
}

static PyTypeObject end_hook_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.EndHook",
    .tp_basicsize = sizeof(end_hook),
    .tp_call = end_hook_call,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

void
msp_probe_await_end(int64_t pass)
{
    static __thread int64_t asked = -1;
    PyObject *done;
    end_hook *h;

    if (pass == asked || pass < 0 || msp_probe.queue_callback == NULL || PyType_Ready(&end_hook_type) != 0)
        return;
    asked = pass;
    h = PyObject_New(end_hook, &end_hook_type);
    if (h != NULL) {
        h->pass = pass;
        done = PyObject_CallFunctionObjArgs(msp_probe.queue_callback, (PyObject *)h, NULL);
        Py_XDECREF(done);
        Py_DECREF(h);
    }
    if (PyErr_Occurred())
        msp_probe_swallow("waiting for the end of backward", "");
}

/* ---- one hook ---------------------------------------------------------------------------------------------------- */

static void
grad_hook_dealloc(PyObject *self)
{
    Py_XDECREF(((grad_hook *)self)->call);
    PyObject_Free(self);
}

/* hook(grad_inputs, grad_outputs): what the node put on its edges, and what had arrived at it */
static PyObject *
grad_hook_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    grad_hook *h = (grad_hook *)self;
    probe_quiet q;
    bool stop;

    (void)kwargs;
    if (PyTuple_GET_SIZE(args) != 2 || h->call == NULL || !msp_probe_grad_is_alive(h->call))
        Py_RETURN_NONE;
    if (!PyTuple_Check(PyTuple_GET_ITEM(args, 0)) || !PyTuple_Check(PyTuple_GET_ITEM(args, 1)))
        Py_RETURN_NONE; /* compiled autograd hands out something else */
    msp_probe_enter(&q);
    stop = msp_probe_grad_take(h, PyTuple_GET_ITEM(args, 0), PyTuple_GET_ITEM(args, 1), msp_state_backward_pass());
    if (!stop && PyErr_Occurred())
        msp_probe_swallow("taking a gradient", "");
    msp_probe_leave(&q);
    if (stop)
        return NULL;
    Py_RETURN_NONE;
}

static PyTypeObject grad_hook_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.GradHook",
    .tp_basicsize = offsetof(grad_hook, map),
    .tp_itemsize = sizeof(grad_mapping),
    .tp_dealloc = grad_hook_dealloc,
    .tp_call = grad_hook_call,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static grad_hook *
new_grad_hook(grad_call *g, const grad_mapping *map, int n)
{
    grad_hook *h = PyType_Ready(&grad_hook_type) == 0 ? PyObject_NewVar(grad_hook, &grad_hook_type, n) : NULL;

    if (h == NULL)
        return NULL;
    Py_INCREF(g);
    h->call = g;
    h->passes = 0;
    memcpy(h->map, map, (size_t)n * sizeof(*map));
    return h;
}

/* A hook that an exception has kept from its node, or perhaps not, is dead. */
static void
abandon_hook(grad_hook *h)
{
    Py_CLEAR(h->call);
    msp_probe_swallow("hooking a node", "");
}

/* Handles of hooks on nodes that are older than their call: such a node may be kept, and be hooked in every step. */
static PyObject *on_older;

static void
keep_for_step(PyObject *handle)
{
    if (on_older == NULL)
        on_older = PyList_New(0);
    if (on_older == NULL || PyList_Append(on_older, handle) != 0)
        msp_probe_swallow("hooking a node", "");
}

void
msp_probe_hooks_step(void)
{
    PyObject *handles = on_older;

    on_older = NULL;
    for (Py_ssize_t i = 0; handles != NULL && i < PyList_GET_SIZE(handles); i++)
        msp_probe_unhook(PyList_GET_ITEM(handles, i));
    Py_XDECREF(handles);
}

bool
msp_probe_grad_hook(grad_call *g, PyObject *node, const grad_mapping *map, int n, bool older)
{
    PyObject *handle = NULL;

    for (int i = 0; i < 2 && handle == NULL; i++) { /* register_hook() is Python code, which a signal may interrupt */
        grad_hook *h = new_grad_hook(g, map, n);

        handle = h == NULL ? NULL : msp_probe_hook(node, (PyObject *)h);
        if (handle != NULL)
            msp_probe_grad_expect(g, h);
        else if (h != NULL)
            abandon_hook(h);
        Py_XDECREF(h);
    }
    if (handle != NULL && older)
        keep_for_step(handle);
    Py_XDECREF(handle);
    return handle != NULL;
}

int
msp_probe_grad_setup(void)
{
    return msp_probe_edges_setup() != 0 || msp_probe_walk_setup() != 0 || msp_probe_hook_setup() != 0 ||
                   msp_probe_parameter_setup() != 0
               ? -1
               : 0;
}
