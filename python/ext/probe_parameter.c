/*
 * probe_parameter.c - AccumulateGrad nodes: the gradients of parameters, as a backward pass brings them.
 *
 * What becomes of them: probe_watch.c.
 */
#include "probe_grad.h"

static PyObject *str_variable;

int
msp_probe_parameter_setup(void)
{
    str_variable = PyUnicode_InternFromString("variable");
    return str_variable == NULL ? -1 : 0;
}

typedef struct parameter_hook {
    PyObject_HEAD node_link link;
    PyObject *parameter; /* borrowed: the node that holds us holds it */
    PyObject *watched;
    int64_t generation;
} parameter_hook;

static void
parameter_hook_dealloc(PyObject *self)
{
    Py_XDECREF(((parameter_hook *)self)->watched);
    PyObject_Free(self);
}

/* A node of one input was given a gradient. Returns true when the program is to be stopped, with an exception set. */
bool
msp_probe_parameter_fire(PyObject *hook, const grad_shown *entering)
{
    const parameter_hook *h = (const parameter_hook *)hook;
    bool told = entering->tuple != NULL || entering->list != NULL; /* not by compiled autograd */
    probe_lent arrived = {0};
    probe_quiet q;
    bool stop;

    if (!msp_probe.live || h->generation != msp_probe.generation)
        return false;
    if (told)
        arrived = msp_probe_grad_item(entering, 0);
    msp_probe_enter(&q);
    stop = msp_probe_parameter_done(h->watched, h->parameter, told ? &arrived : NULL);
    msp_probe_leave(&q);
    return stop;
}

void
msp_probe_parameter_work(const void *variable, const probe_shown *shown)
{
    const probe_lent arrived = msp_batch_item(shown, true, 0);
    PyObject *unused, *watched = msp_probe.live ? msp_probe_watched_now(variable, &unused) : NULL;

    if (watched != NULL)
        msp_probe_parameter_came(watched, &arrived);
    if (PyErr_Occurred())
        PyErr_Clear();
}

void
msp_probe_parameter_added(const void *variable, const void *gradients)
{
    const probe_lent arrived = {.handle = msp_node_item(gradients, 0)};
    PyObject *parameter, *watched = msp_probe.live ? msp_probe_watched_now(variable, &parameter) : NULL;
    probe_quiet q;

    if (watched == NULL)
        return;
    msp_probe_await_end(msp_node_task());
    Py_INCREF(watched);
    msp_probe_enter(&q);
    msp_probe_parameter_done(watched, parameter, &arrived);
    msp_probe_leave(&q);
    Py_DECREF(watched);
    if (PyErr_Occurred())
        PyErr_Clear();
}

static PyObject *
parameter_hook_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    grad_shown entering = {0};

    (void)kwargs;
    if (PyTuple_GET_SIZE(args) == 2 && PyTuple_Check(PyTuple_GET_ITEM(args, 1)))
        entering.tuple = PyTuple_GET_ITEM(args, 1);
    if (msp_probe_parameter_fire(self, &entering))
        return NULL;
    Py_RETURN_NONE;
}

PyTypeObject msp_probe_parameter_hook_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.ParameterHook",
    .tp_basicsize = sizeof(parameter_hook),
    .tp_dealloc = parameter_hook_dealloc,
    .tp_call = parameter_hook_call,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static parameter_hook *
new_parameter_hook(PyObject *parameter, PyObject *watched)
{
    parameter_hook *h = msp_probe_is_ready(&msp_probe_parameter_hook_type)
                            ? PyObject_New(parameter_hook, &msp_probe_parameter_hook_type)
                            : NULL;

    if (h == NULL)
        return NULL;
    Py_INCREF(watched);
    h->parameter = parameter;
    h->watched = watched;
    h->generation = msp_probe.generation;
    h->link.owner = (PyObject *)h;
    return h;
}

static void
hook_parameter(PyObject *accumulate, PyObject *variable, PyObject *watched, PyObject *hooks)
{
    parameter_hook *h = new_parameter_hook(variable, watched);
    PyObject *handle;

    if (h == NULL)
        return;
    handle = msp_probe_hook(accumulate, (PyObject *)h);
    if (handle != NULL && PyList_Append(hooks, accumulate) == 0 && PyList_Append(hooks, handle) == 0)
        msp_probe_note_hooked(accumulate);
    Py_XDECREF(handle);
    Py_DECREF(h);
}

/*
 * AccumulateGrad nodes cannot be asked for without an operation in the graph; they are met on the walk, and hooked when
 * they belong to a watched parameter, once per step. The handle is kept, to take the hook out again, and the node:
 * torch drops it with the first graph, and the next one would get another.
 */
static void
watch_object(PyObject *accumulate)
{
    PyObject *variable, *watched, *hooks = NULL;
    Py_ssize_t n;

    if (msp_probe_is_hooked(accumulate))
        return;
    variable = PyObject_GetAttr(accumulate, str_variable);
    watched = variable == NULL ? NULL : msp_probe_watched(variable);
    if (watched != NULL)
        hooks = msp_probe_watched_hooks(watched);
    n = hooks == NULL ? 0 : PyList_GET_SIZE(hooks);
    if (hooks != NULL && (n < 2 || PyList_GET_ITEM(hooks, n - 2) != accumulate))
        hook_parameter(accumulate, variable, watched, hooks);
    Py_XDECREF(variable);
    PyErr_Clear();
}

/*
 * A hook that was put on the node directly goes with it; where a node outlives its graph, as those do that a
 * distributed model holds, the next step finds the hook and uses it. False without memory.
 */
static bool
hook_node(void *accumulate, PyObject *parameter, PyObject *watched)
{
    const node_link *known = msp_node_hooked(accumulate);
    parameter_hook *h = known == NULL ? NULL : (parameter_hook *)known->owner;
    bool done;

    if (h != NULL) {
        Py_INCREF(watched);
        Py_XSETREF(h->watched, watched);
        h->parameter = parameter;
        h->generation = msp_probe.generation;
        return true;
    }
    h = new_parameter_hook(parameter, watched);
    done = h != NULL && msp_node_hook(accumulate, &h->link);
    Py_XDECREF(h);
    return done;
}

/* Where hooks of the program's may make the gradient that counts, it takes a hook, which comes behind them. */
static void
watch_node(void *accumulate)
{
    PyObject *parameter, *watched = msp_probe_watched_by_handle(msp_node_variable(accumulate), &parameter);
    bool plain;

    if (watched == NULL || (msp_node_is_watched(accumulate) && msp_probe_is_watched_directly(watched)))
        return; /* or it was met before in this step */
    plain = msp_probe_parameter_is_plain(parameter);
    msp_node_watch(accumulate, plain);
    if (plain || hook_node(accumulate, parameter, watched))
        msp_probe_watched_directly(watched);
    else
        PyErr_Clear();
}

void
msp_probe_grad_watch(void *accumulate, bool direct)
{
    if (direct)
        watch_node(accumulate);
    else
        watch_object(accumulate);
}
