/*
 * accumulate.c - AccumulateGrad nodes: the gradients of parameters, as a backward pass brings them.
 *
 * What comes is taken before the node adds it: hooks of the program's own, which run when it has been added, may write
 * over it. Where such a hook makes the gradient that counts (main_grad) it is taken afterwards. What becomes of it:
 * model/parameter.c.
 */
#include "grad/gradient.h"

static PyObject *str_variable, *str_register_prehook;

int
msp_probe_parameter_setup(void)
{
    str_variable = PyUnicode_InternFromString("variable");
    str_register_prehook = PyUnicode_InternFromString("register_prehook");
    return PyErr_Occurred() ? -1 : 0;
}

typedef struct parameter_hook {
    PyObject_HEAD PyObject *parameter; /* borrowed: the node that holds us holds it; NULL: the hook is dead */
    PyObject *watched;
    int64_t generation;
} parameter_hook;

static void
parameter_hook_dealloc(PyObject *self)
{
    Py_XDECREF(((parameter_hook *)self)->watched);
    PyObject_Free(self);
}

/* prehook(grad_outputs), hook(grad_inputs, grad_outputs): the node was given a gradient */
static PyObject *
parameter_hook_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    const parameter_hook *h = (const parameter_hook *)self;
    PyObject *arrived = NULL; /* compiled autograd does not tell */
    probe_quiet q;
    bool told, stop;

    (void)kwargs;
    if (!msp_probe.live || h->parameter == NULL || h->generation != msp_probe.generation)
        Py_RETURN_NONE;
    told = PyTuple_GET_SIZE(args) > 0 && PyTuple_Check(PyTuple_GET_ITEM(args, PyTuple_GET_SIZE(args) - 1));
    if (told)
        arrived = msp_probe_grad_item(PyTuple_GET_ITEM(args, PyTuple_GET_SIZE(args) - 1), 0);
    msp_probe_enter(&q);
    stop = msp_probe_parameter_done(h->watched, h->parameter, told ? &arrived : NULL);
    msp_probe_leave(&q);
    if (stop)
        return NULL;
    Py_RETURN_NONE;
}

static PyTypeObject parameter_hook_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.ParameterHook",
    .tp_basicsize = sizeof(parameter_hook),
    .tp_dealloc = parameter_hook_dealloc,
    .tp_call = parameter_hook_call,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static parameter_hook *
new_parameter_hook(PyObject *parameter, PyObject *watched)
{
    parameter_hook *h =
        PyType_Ready(&parameter_hook_type) == 0 ? PyObject_New(parameter_hook, &parameter_hook_type) : NULL;

    if (h == NULL)
        return NULL;
    Py_INCREF(watched);
    h->parameter = parameter;
    h->watched = watched;
    h->generation = msp_probe.generation;
    return h;
}

/* Whether what a hook before the node is shown is what counts. An older torch, which has no numbers of backward passes
 * either, runs the program's hooks on a parameter behind it. */
static bool
is_told_before(PyObject *accumulate, PyObject *variable)
{
    static int has_prehooks = -1;

    if (has_prehooks < 0)
        has_prehooks = msp_probe_has((PyObject *)Py_TYPE(accumulate), "register_prehook", "hooking a parameter");
    return has_prehooks && msp_probe.task_id != NULL && !msp_probe_has_main_grad(variable);
}

/* The handle, or NULL with an exception set. */
static PyObject *
put_hook(PyObject *accumulate, PyObject *variable, PyObject *hook)
{
    if (is_told_before(accumulate, variable))
        return PyObject_CallMethodObjArgs(accumulate, str_register_prehook, hook, NULL);
    return msp_probe_hook(accumulate, hook);
}

/* False, perhaps with an exception set. */
static bool
hook_parameter(PyObject *accumulate, PyObject *variable, PyObject *watched, PyObject *hooks)
{
    parameter_hook *h = new_parameter_hook(variable, watched);
    PyObject *handle = h == NULL ? NULL : put_hook(accumulate, variable, (PyObject *)h);
    bool done = handle != NULL && PyList_Append(hooks, accumulate) == 0 && PyList_Append(hooks, handle) == 0;

    if (done)
        msp_probe_note_hooked(accumulate);
    else if (h != NULL)
        h->parameter = NULL; /* it may be on the node all the same */
    Py_XDECREF(handle);
    Py_XDECREF(h);
    return done;
}

/*
 * AccumulateGrad nodes cannot be asked for without an operation in the graph; they are met on the walk, and hooked when
 * they belong to a watched parameter, once per step. The handle is kept, to take the hook out again, and the node:
 * torch drops it with the first graph, and the next one would get another.
 */
void
msp_probe_grad_watch(PyObject *accumulate)
{
    PyObject *variable, *watched, *hooks;
    Py_ssize_t n;

    if (msp_probe_is_hooked(accumulate))
        return;
    variable = PyObject_GetAttr(accumulate, str_variable);
    watched = variable == NULL ? NULL : msp_probe_watched(variable);
    hooks = watched == NULL ? NULL : msp_probe_watched_hooks(watched);
    n = hooks == NULL ? 0 : PyList_GET_SIZE(hooks);
    if (hooks != NULL && (n < 2 || PyList_GET_ITEM(hooks, n - 2) != accumulate))
        for (int i = 0; i < 2 && !hook_parameter(accumulate, variable, watched, hooks); i++)
            msp_probe_expect(NULL, "hooking a parameter"); /* a signal may have interrupted it: once more */
    Py_XDECREF(variable);
    msp_probe_expect(NULL, "hooking a parameter");
}
