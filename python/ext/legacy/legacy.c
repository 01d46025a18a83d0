/*
 * legacy.c - calls as the older tools record them, their gradients, and what Python sets. How they differ: legacy.h.
 */
#include "call/call.h"
#include "grad/grad.h"
#include "legacy/legacy.h"
#include <stdio.h>
#include <string.h>

legacy_settings msp_legacy;

bool
msp_probe_is_legacy(void)
{
    return msp_legacy.form != FORM_NONE;
}

/* ---- overflow ---------------------------------------------------------------------------------------------------- */

static bool
has_overflowed(PyObject *made)
{
    return msp_probe.overflow_flag == NULL ? made != NULL && msp_legacy_holds_overflow(made, 0)
                                           : msp_probe_device_overflowed();
}

/* Python opens the file that the call goes to, or says that enough were written. */
static bool
begin_overflow(const char *name)
{
    PyObject *said = msp_legacy.found == NULL ? NULL : PyObject_CallFunction(msp_legacy.found, "s", name);
    bool yes = said == Py_True;

    Py_XDECREF(said);
    if (PyErr_Occurred())
        msp_probe_swallow("opening a file for an overflow", name);
    return yes;
}

/* Returns true when the call has overflowed and is written: msp_probe_overflow() is to be called. */
static bool
show_call(const legacy_shown *s, bool forward)
{
    if (!msp_legacy.overflow) {
        if (msp_legacy_wants(s->name, s->len, forward))
            msp_legacy_write(s);
        return false;
    }
    if (msp_legacy.muted || !has_overflowed(s->output) || !begin_overflow(s->name))
        return false;
    msp_legacy_write(s);
    return true;
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

typedef struct node_hook {
    PyObject_VAR_HEAD int passes; /* in how many backward passes it has fired */
    int64_t generation;
    char name[]; /* "Torch_relu_0_backward" */
} node_hook;

/* hook(grad_inputs, grad_outputs): what the node put on its edges, and what had arrived at it */
static PyObject *
node_hook_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    node_hook *h = (node_hook *)self;
    char name[320];
    legacy_shown s = {.name = name};
    PyObject *leaving, *entering;
    probe_quiet q;
    bool stop;
    int n;

    (void)kwargs;
    if (PyTuple_GET_SIZE(args) != 2 || !msp_probe.live || h->generation != msp_probe.generation)
        Py_RETURN_NONE;
    leaving = PyTuple_GET_ITEM(args, 0);
    entering = PyTuple_GET_ITEM(args, 1);
    if (!PyTuple_Check(leaving) || !PyTuple_Check(entering))
        Py_RETURN_NONE;
    /* a second pass over the same graph has names of its own: files are not overwritten */
    n = h->passes == 0 || msp_legacy.form == FORM_HOOKS ? snprintf(name, sizeof(name), "%s", h->name)
                                                        : snprintf(name, sizeof(name), "%s_%d", h->name, h->passes);
    h->passes++;
    s.len = (size_t)n < sizeof(name) ? (size_t)n : sizeof(name) - 1;
    s.input = msp_legacy.form == FORM_HOOKS ? leaving : entering;
    s.output = msp_legacy.form == FORM_HOOKS ? entering : leaving;
    s.outputs_first = msp_legacy.overflow;
    msp_probe_enter(&q);
    if (msp_legacy.stack != STACK_NONE && !msp_legacy.muted)
        s.stack = msp_probe_stack(0).stack;
    stop = show_call(&s, false) && msp_probe_overflow(name, s.stack);
    if (!stop)
        msp_probe_expect(NULL, "taking a gradient");
    msp_probe_leave(&q);
    if (stop)
        return NULL;
    Py_RETURN_NONE;
}

static PyTypeObject node_hook_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.NodeHook",
    .tp_basicsize = sizeof(node_hook),
    .tp_itemsize = 1,
    .tp_call = node_hook_call,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static PyObject *
first_tensor(PyObject *v)
{
    for (int depth = 0; v != NULL && depth < LEGACY_NESTING; depth++) {
        if (msp_probe_is_tensor(v))
            return v;
        if (PyDict_Check(v)) {
            PyObject *key, *value;
            Py_ssize_t pos = 0;

            while (PyDict_Next(v, &pos, &key, &value))
                if (msp_probe_is_tensor(value))
                    return value;
            return NULL;
        }
        if ((!PyTuple_Check(v) && !PyList_Check(v)) || PySequence_Fast_GET_SIZE(v) == 0)
            return NULL;
        v = PySequence_Fast_GET_ITEM(v, 0);
    }
    return NULL;
}

/* Hook the node of the first result; base is the call's name without its direction. */
static void
hook_node(PyObject *result, const char *base, size_t len)
{
    PyObject *t = first_tensor(result), *node, *handle = NULL;
    node_hook *h;
    int64_t nr;

    node = t == NULL ? NULL : msp_probe_node_of(t, &nr);
    if (node != NULL && PyType_Ready(&node_hook_type) == 0) {
        h = PyObject_NewVar(node_hook, &node_hook_type, (Py_ssize_t)(len + sizeof("_backward")));
        if (h != NULL) {
            h->passes = 0;
            h->generation = msp_probe.generation;
            memcpy(h->name, base, len);
            strcpy(h->name + len, "_backward");
            handle = msp_probe_hook(node, (PyObject *)h);
            Py_DECREF(h);
        }
    }
    Py_XDECREF(node);
    Py_XDECREF(handle);
    if (PyErr_Occurred())
        msp_probe_swallow("hooking the gradients", base);
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

/* One call of a function or a module. */
typedef struct legacy_call {
    probe_api *api; /* NULL: a module */
    PyObject *receiver, *args, *kwargs;
    uint32_t stack;
    size_t len;     /* of the name without its direction */
    char text[288]; /* room for the direction is kept */
} legacy_call;

enum { NAME_ROOM = sizeof(((legacy_call *)0)->text) - sizeof("_backward") };

/* The device's own dump of a call that has overflowed: Python makes it again, with it switched on. */
static void
repeat_call(const legacy_call *c)
{
    PyObject *unused;

    if (!msp_legacy.rerun || c->api == NULL || msp_probe.on_kernel == NULL)
        return;
    unused = msp_probe_call_by_python(c->api, c->receiver, c->args, c->kwargs);
    if (unused == NULL)
        msp_probe_swallow("repeating a call", c->text);
    Py_XDECREF(unused);
}

/* Returns true when the program is to be stopped, with an exception set. */
static bool
end_call(legacy_call *c, PyObject *result)
{
    legacy_shown s = {.name = c->text, .stack = c->stack, .self = c->receiver, .input = c->args, .output = result};

    strcpy(c->text + c->len, "_forward");
    s.len = c->len + strlen("_forward");
    if (show_call(&s, true)) {
        repeat_call(c);
        if (msp_probe_overflow(c->text, c->stack))
            return true;
    }
    c->text[c->len] = '\0';
    hook_node(result, c->text, c->len);
    return false;
}

static size_t
call_name(char *out, size_t size, probe_name *name)
{
    int n = msp_legacy.form == FORM_HOOKS ? snprintf(out, size, "%s", name->text)
                                          : snprintf(out, size, "%s_%lld", name->text, (long long)name->count);

    name->count++;
    return (size_t)n < size ? (size_t)n : size - 1;
}

/* The chosen call of mode "acl" is made by Python, which switches the device's own dump on around it. */
static bool
is_kernel_call(const legacy_call *c)
{
    char forward[sizeof(c->text)];
    int n = snprintf(forward, sizeof(forward), "%.*s_forward", (int)c->len, c->text);

    return msp_legacy.kernel != NULL && !msp_legacy.muted && msp_probe.on_kernel != NULL &&
           msp_legacy_begins_with(forward, (size_t)n, msp_legacy.kernel);
}

PyObject *
msp_probe_legacy_call(probe_api *api, PyObject *self, PyObject *receiver, PyObject *args, PyObject *kwargs)
{
    legacy_call c = {.api = api, .receiver = receiver, .args = args, .kwargs = kwargs};
    PyObject *result;
    probe_outcome o;
    probe_name *name;
    probe_site site;
    probe_quiet q;
    bool stop = false;

    msp_probe_enter(&q);
    site = msp_probe_stack(api->trampoline != NULL ? 1 : 0);
    c.stack = site.stack;
    name = site.internal ? NULL : msp_probe_name_of(api);
    c.len = name == NULL ? 0 : call_name(c.text, NAME_ROOM, name);
    msp_probe_resume(&q);
    if (name != NULL && is_kernel_call(&c)) {
        result = msp_probe_call_by_python(api, receiver, args, kwargs);
    } else {
        msp_probe_thread.depth--; /* what the function calls is recorded, too */
        result = msp_probe_invoke(api, self, args, kwargs);
        msp_probe_thread.depth++;
    }
    o = msp_probe_set_aside(result);
    msp_probe_pause(&q);
    if (name != NULL && result != NULL && msp_probe.on)
        stop = end_call(&c, result);
    result = msp_probe_give_back(&o, stop);
    msp_probe_leave(&q);
    return result;
}

/* ---- for Python -------------------------------------------------------------------------------------------------- */

/* legacy_module(name, args, output): a module has run */
PyObject *
msp_probe_legacy_module(PyObject *self, PyObject *all)
{
    legacy_call c = {0};
    PyObject *output;
    const char *name;
    Py_ssize_t len;
    probe_quiet q;
    bool stop;

    (void)self;
    if (!PyArg_ParseTuple(all, "s#OO", &name, &len, &c.args, &output))
        return NULL;
    if (!msp_probe_wants())
        Py_RETURN_NONE;
    c.len = (size_t)len < NAME_ROOM ? (size_t)len : NAME_ROOM;
    memcpy(c.text, name, c.len);
    msp_probe_enter(&q);
    stop = end_call(&c, output);
    msp_probe_leave(&q);
    if (stop)
        return NULL;
    Py_RETURN_NONE;
}

/* legacy_rules(form, **settings): see legacy_settings; form 0: calls are recorded as usual */
PyObject *
msp_probe_legacy_rules(PyObject *self, PyObject *args, PyObject *kwargs)
{
#define FLAG(field, first)                                            \
    {                                                                 \
        .name = #field, .flag = &msp_legacy.field, .initial = (first) \
    }
#define TUPLE(field)                               \
    {                                              \
        .name = #field, .tuple = &msp_legacy.field \
    }
#define OBJECT(field)                               \
    {                                               \
        .name = #field, .object = &msp_legacy.field \
    }
    static const probe_setting settings[] = {
        {.name = "stack", .number = &msp_legacy.stack},
        FLAG(muted, false),
        FLAG(floats_only, true),
        FLAG(forward, true),
        FLAG(backward, true),
        FLAG(overflow, false),
        FLAG(rerun, false),
        TUPLE(prefixes),
        TUPLE(range),
        TUPLE(ops),
        OBJECT(kernel),
        OBJECT(found),
    };
    int form;

    (void)self;
    if (!PyArg_ParseTuple(args, "i", &form) ||
        msp_probe_take_settings(settings, sizeof(settings) / sizeof(settings[0]), kwargs) != 0)
        return NULL;
    if (msp_legacy.range != NULL && PyTuple_GET_SIZE(msp_legacy.range) != 2) {
        Py_CLEAR(msp_legacy.range);
        PyErr_SetString(PyExc_TypeError, "range is a pair of names, or None");
        return NULL;
    }
    msp_legacy.form = form;
    Py_RETURN_NONE;
}

/* legacy_matched() -> how many calls the filters have let pass */
PyObject *
msp_probe_legacy_matched(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromLongLong(msp_legacy_count());
}

/* legacy_unit(form, dir, file, data_dir, mark): the file that records go to from now on; the one before is complete */
PyObject *
msp_probe_legacy_unit(PyObject *self, PyObject *args)
{
    msp_unit_info info = {.task = "", .level = "", .framework = "pytorch"};
    long long mark;
    msp_error err;
    int form;

    (void)self;
    if (!PyArg_ParseTuple(args, "isszL", &form, &info.dir, &info.file, &info.data_dir, &mark))
        return NULL;
    info.kind = form == FORM_HOOKS ? MSP_UNIT_HOOKS : MSP_UNIT_PTDBG;
    info.mark = mark;
    if (msp_probe.has_unit && msp_probe.collect != NULL &&
        msp_collect_unit_close(msp_probe.collect, msp_probe.unit, &err) != MSP_OK)
        msp_probe.has_unit = false; /* the writer has failed: the next call says so */
    return msp_probe_open_unit(&info, info.data_dir);
}
