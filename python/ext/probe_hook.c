/*
 * probe_hook.c - the hooks on the nodes of a call, and the one at the end of a backward pass.
 *
 * A hook is run in one of three ways: by Python with tuples of tensors, by the engine with lists of its own
 * (probe_node.c), or later, with what was noted when the engine ran it (probe_batch.c). All of them tell the call's
 * record (probe_grad.c) what the node was shown.
 */
#include "probe_grad.h"
#include <string.h>

/* ---- the end of a backward pass ---------------------------------------------------------------------------------- */

typedef struct end_hook {
    PyObject_HEAD int64_t task;
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
    msp_batch_work();
    if (msp_probe.live) {
        msp_probe_grad_flush_pass(((end_hook *)self)->task);
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
msp_probe_await_end(int64_t task)
{
    static __thread int64_t asked = -1;
    PyObject *done;
    end_hook *h;

    if (task == asked || task < 0 || msp_probe.queue_callback == NULL || PyType_Ready(&end_hook_type) != 0)
        return;
    asked = task;
    h = PyObject_New(end_hook, &end_hook_type);
    if (h != NULL) {
        h->task = task;
        done = PyObject_CallFunctionObjArgs(msp_probe.queue_callback, (PyObject *)h, NULL);
        if (done != NULL)
            msp_batch_begin_pass(task);
        Py_XDECREF(done);
        Py_DECREF(h);
    }
    PyErr_Clear();
}

/* ---- one hook ---------------------------------------------------------------------------------------------------- */

/* What Python holds of a hook; it holds the call, whose the hook is. */
typedef struct hook_object {
    PyObject_HEAD grad_hook *hook;
} hook_object;

static void
grad_hook_dealloc(PyObject *self)
{
    Py_DECREF(((hook_object *)self)->hook->link.owner);
    PyObject_Free(self);
}

/* hook(grad_inputs, grad_outputs): what the node put on its edges, and what had arrived at it */
static PyObject *
grad_hook_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    grad_hook *h = ((hook_object *)self)->hook;
    grad_shown leaving = {0}, entering = {0};
    probe_quiet q;
    bool stop;

    (void)kwargs;
    if (PyTuple_GET_SIZE(args) != 2 || !msp_probe_grad_is_alive(h))
        Py_RETURN_NONE;
    leaving.tuple = PyTuple_GET_ITEM(args, 0);
    entering.tuple = PyTuple_GET_ITEM(args, 1);
    if (!PyTuple_Check(leaving.tuple) || !PyTuple_Check(entering.tuple))
        Py_RETURN_NONE; /* compiled autograd hands out something else */
    msp_probe_enter(&q);
    stop = msp_probe_grad_take(h, &leaving, &entering, msp_node_task());
    msp_probe_leave(&q);
    if (stop)
        return NULL;
    PyErr_Clear();
    Py_RETURN_NONE;
}

PyTypeObject msp_probe_grad_hook_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.GradHook",
    .tp_basicsize = sizeof(hook_object),
    .tp_dealloc = grad_hook_dealloc,
    .tp_call = grad_hook_call,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static bool
hook_by_python(PyObject *node, grad_hook *h)
{
    hook_object *o =
        msp_probe_is_ready(&msp_probe_grad_hook_type) ? PyObject_New(hook_object, &msp_probe_grad_hook_type) : NULL;
    PyObject *handle;

    if (o == NULL)
        return false;
    Py_INCREF(h->link.owner);
    o->hook = h;
    handle = msp_probe_hook(node, (PyObject *)o);
    Py_XDECREF(handle);
    Py_DECREF(o);
    return handle != NULL;
}

bool
msp_probe_grad_hook(grad_call *g, void *node, bool direct, const grad_mapping *map, int nin, int nout)
{
    grad_hook *h = msp_probe_grad_new_hook(g, map, nin, nout);

    if (h == NULL || !(direct ? msp_node_hook(node, &h->link) : hook_by_python(node, h)))
        return false;
    msp_probe_grad_expect(h);
    return true;
}

/* ---- the same on a node directly, and later ---------------------------------------------------------------------- */

static void
fire_directly(grad_hook *h, const grad_shown *leaving, const grad_shown *entering)
{
    probe_quiet q;

    if (!msp_probe_grad_is_alive(h))
        return;
    msp_probe_enter(&q);
    msp_probe_grad_take(h, leaving, entering, msp_node_task());
    msp_probe_leave(&q);
}

void
msp_probe_grad_fire(node_link *hook, const void *leaving, const void *entering)
{
    const grad_shown out = {.list = leaving}, in = {.list = entering};

    msp_probe_await_end(msp_node_task());
    if (msp_probe_is_grad_hook(hook))
        fire_directly((grad_hook *)hook, &out, &in);
    else
        msp_probe_parameter_fire(hook->owner, &in);
    if (PyErr_Occurred())
        PyErr_Clear();
}

void
msp_probe_grad_work(grad_hook *h, const probe_shown *shown, int64_t task)
{
    const grad_shown leaving = {.noted = shown}, entering = {.noted = shown, .entering = true};

    if (msp_probe_grad_is_alive(h))
        msp_probe_grad_take(h, &leaving, &entering, task);
    if (PyErr_Occurred())
        PyErr_Clear();
}

int
msp_probe_grad_setup(PyObject *module)
{
    (void)module;
    return msp_probe_edges_setup() != 0 || msp_probe_walk_setup() != 0 || msp_probe_register_setup() != 0 ||
                   msp_probe_parameter_setup() != 0
               ? -1
               : 0;
}
