/*
 * legacy.c - calls as the older tools record them: ptdbg_ascend and torch_npu.hooks.
 *
 * They differ from the rest in what a call shows, not in how it is found. Inner calls are recorded too, before the
 * outer one. Arguments are read after the call, so that an in-place function shows its result as its input. Numbers
 * count on for the life of the process, whether or not anything is written. Of a call's gradients they show what enters
 * and leaves the autograd node of its first result, in that node's own order. A record is flat: a member per line of
 * the file (src/collect/lines.h).
 */
#include "call/call.h"
#include "grad/grad.h"
#include "legacy/legacy.h"
#include "tensor/tensor.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Elements of more bytes than this are written by the training process, straight from the tensor's memory. */
enum { DIRECT = 256 << 10, NESTING = 64 };

typedef enum legacy_form { FORM_NONE, FORM_PTDBG, FORM_HOOKS } legacy_form;
typedef enum legacy_stack { STACK_NONE, STACK_FIRST, STACK_LAST, STACK_ONLY } legacy_stack;

static struct {
    legacy_form form;
    legacy_stack stack;
    bool muted; /* calls are counted and nothing is written */
    bool floats_only;
    bool forward, backward;
    bool overflow;
    bool rerun;         /* a call that has overflowed is made again, by Python */
    PyObject *prefixes; /* tuple of str: names that begin with one of them; NULL: all */
    PyObject *range;    /* pair of str: prefixes of the first and the last; NULL: all */
    PyObject *ops;      /* tuple of str: names of functions, without underscores around them; NULL: all */
    PyObject *kernel;   /* str: the prefix of the call that Python makes; NULL: none */
    PyObject *found;    /* Python: (name) -> bool, an overflow is to be written, and there is a file for it; or NULL */
    bool begun, ended;  /* range */
    long long matched;
} legacy;

bool
msp_probe_is_legacy(void)
{
    return legacy.form != FORM_NONE;
}

/* ---- what is wanted ---------------------------------------------------------------------------------------------- */

static bool
begins_with(const char *name, size_t len, PyObject *prefix)
{
    Py_ssize_t n;
    const char *p = prefix == NULL ? NULL : PyUnicode_AsUTF8AndSize(prefix, &n);

    if (prefix != NULL && p == NULL)
        msp_probe_expect(PyExc_UnicodeEncodeError, "reading a prefix");
    return p != NULL && (size_t)n <= len && memcmp(name, p, (size_t)n) == 0;
}

static bool
begins_with_any(const char *name, size_t len, PyObject *prefixes)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(prefixes); i++)
        if (begins_with(name, len, PyTuple_GET_ITEM(prefixes, i)))
            return true;
    return false;
}

/* "Tensor___add___0_forward" -> "add": what stands between the prefix and the number, without underscores around it */
static size_t
bare_name(const char *name, size_t len, char *out, size_t size)
{
    const char *from = memchr(name, '_', len), *end = name + len;
    size_t n = 0;

    /* the number and the direction stand behind it, and the number of a further backward pass behind them */
    for (int parts = len > 0 && isdigit((unsigned char)name[len - 1]) ? 3 : 2; from != NULL && parts > 0; parts--)
        while (end > from && *--end != '_')
            ;
    while (from != NULL && from < end && *from == '_')
        from++;
    while (from != NULL && end > from && end[-1] == '_')
        end--;
    for (; from != NULL && from < end && n + 1 < size; from++)
        out[n++] = (char)Py_TOLOWER(*from);
    out[n] = '\0';
    return n;
}

static bool
is_op(const char *name, size_t len)
{
    char bare[256];

    bare_name(name, len, bare, sizeof(bare));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(legacy.ops); i++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(legacy.ops, i), bare) == 0)
            return true;
    return false;
}

/* From the first call that begins with the one prefix to the first that begins with the other, in the order in which
 * calls end; once only. */
static bool
in_range(const char *name, size_t len)
{
    bool first = begins_with(name, len, PyTuple_GET_ITEM(legacy.range, 0));
    bool last = begins_with(name, len, PyTuple_GET_ITEM(legacy.range, 1)), in;

    legacy.begun |= first;
    in = (legacy.begun && !legacy.ended) || first || last;
    legacy.ended |= last;
    return in;
}

static bool
wants(const char *name, size_t len, bool forward)
{
    if (legacy.muted || (legacy.range != NULL && !in_range(name, len)) ||
        (legacy.prefixes != NULL && !begins_with_any(name, len, legacy.prefixes)) ||
        (legacy.ops != NULL && !is_op(name, len)))
        return false;
    legacy.matched++;
    return forward ? legacy.forward : legacy.backward;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* A tensor whose memory can be read, in the place of one whose cannot: a new reference; NULL: there is none. */
static PyObject *
plain_of(PyObject *t, const probe_path *path)
{
    PyObject *name = PyUnicode_DecodeUTF8(path->text, (Py_ssize_t)path->len, "replace"), *said, *plain = NULL;

    said = name == NULL || msp_probe.describe == NULL ? NULL : msp_probe_ask_again(msp_probe.describe, t, name);
    if (said != NULL && PyTuple_CheckExact(said) && PyTuple_GET_SIZE(said) == 5 &&
        msp_probe_is_plain_tensor(PyTuple_GET_ITEM(said, 1))) {
        plain = PyTuple_GET_ITEM(said, 1);
        Py_INCREF(plain);
    }
    if (PyErr_Occurred())
        msp_probe_swallow("reading a value", path->text);
    Py_XDECREF(name);
    Py_XDECREF(said);
    return plain;
}

/* The memory of a tensor, or of a plain one in its place (*plain, to be given back): false when there is none. */
static bool
view_of(msp_tensor *view, PyObject **plain, PyObject *t, const probe_path *path)
{
    *plain = NULL;
    if (msp_probe_tensor_view(view, t))
        return true;
    *plain = plain_of(t, path);
    return *plain != NULL && msp_probe_tensor_view(view, *plain);
}

static bool
is_wanted_tensor(const msp_tensor *t)
{
    return legacy.form == FORM_HOOKS || !legacy.floats_only ||
           (msp_dtype_class_of(t->dtype) == MSP_CLASS_FLOAT && t->ndim > 0 && t->numel > 0);
}

/* NumPy has no bfloat16 and no float8: these are stored as float32. */
static msp_status
save_wide(const char *file, const msp_tensor *t, msp_error *err)
{
    float *wide = PyMem_RawMalloc((size_t)t->numel * sizeof(*wide) + 1);
    msp_tensor view;
    msp_status st = MSP_E_NOMEM;

    for (int64_t i = 0; wide != NULL && i < t->numel; i++)
        wide[i] = (float)msp_dtype_load_f64(t->dtype, msp_tensor_at(t, i));
    if (wide != NULL)
        st = msp_tensor_view(&view, wide, MSP_F32, t->ndim, t->shape, NULL);
    if (st == MSP_OK)
        st = msp_npy_save(file, &view, err);
    PyMem_RawFree(wide);
    return st;
}

/* A large tensor's elements go to their file from here; on failure the line is there without them. */
static void
save_direct(const msp_tensor *t, const probe_path *path)
{
    msp_error err = {.message = "path too long, or out of memory"};
    msp_status st = MSP_E_NOMEM;
    PyThreadState *saved;
    char file[4096];
    int n = snprintf(file, sizeof(file), "%s/%.*s.npy", msp_probe.data_dir, (int)path->len, path->text);

    saved = PyEval_SaveThread(); /* the caller holds a reference to the tensor */
    if ((size_t)n < sizeof(file))
        st = msp_npy_save(file, t, &err);
    if (st == MSP_E_UNSUPPORTED)
        st = save_wide(file, t, &err);
    PyEval_RestoreThread(saved);
    if (st != MSP_OK) {
        PyErr_SetString(PyExc_OSError, err.message);
        msp_probe_swallow("writing a tensor", path->text);
    }
}

static void
put_memory(msp_record *r, const msp_tensor *view, probe_path *path)
{
    const size_t size = (size_t)view->numel * msp_dtype_size(view->dtype);
    msp_tensor_note note = {.shape_of = view};
    msp_stats stats;

    msp_record_key(r, path->text, path->len);
    if (legacy.form == FORM_PTDBG && !legacy.overflow) {
        msp_probe_measure(view, &stats, NULL);
        note.stats = &stats;
    }
    if (legacy.form == FORM_HOOKS || (size <= DIRECT && msp_probe.data_dir != NULL))
        note.values = view;
    else if (msp_probe.data_dir != NULL)
        save_direct(view, path);
    msp_record_tensor(r, &note);
}

static void
put_tensor(msp_record *r, PyObject *t, probe_path *path)
{
    msp_tensor view;
    PyObject *plain;

    if (view_of(&view, &plain, t, path) && is_wanted_tensor(&view))
        put_memory(r, &view, path);
    Py_XDECREF(plain);
}

static void
put_number(msp_record *r, PyObject *v, const probe_path *path)
{
    if (legacy.form == FORM_HOOKS || legacy.floats_only)
        return;
    if (PyBool_Check(v) || PyLong_Check(v) || PyFloat_Check(v)) {
        msp_record_key(r, path->text, path->len);
        msp_probe_plain(r, v, 0);
    }
}

static void
put_value(msp_record *r, PyObject *v, probe_path *path, Py_ssize_t first, int depth)
{
    size_t len = path->len;
    PyObject *items;

    if (msp_probe_is_tensor(v)) {
        put_tensor(r, v, path);
    } else if ((PyTuple_Check(v) || PyList_Check(v)) && depth < NESTING) {
        items = PySequence_Tuple(v); /* a copy: reading a tensor may run other threads */
        for (Py_ssize_t i = 0; items != NULL && i < PyTuple_GET_SIZE(items); i++) {
            msp_probe_path_push_index(path, first + i);
            put_value(r, PyTuple_GET_ITEM(items, i), path, 0, depth + 1);
            path->len = len;
        }
        Py_XDECREF(items);
        msp_probe_expect(NULL, "reading a value");
    } else {
        put_number(r, v, path);
    }
}

static void
start_path(probe_path *path, const char *name, size_t len, const char *section)
{
    char text[320];
    int n = snprintf(text, sizeof(text), "%.*s_%s", (int)len, name, section);

    msp_probe_path_begin(path, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

static void
put_section(msp_record *r, const char *name, size_t len, const char *section, PyObject *self, PyObject *value)
{
    probe_path path;

    start_path(&path, name, len, section);
    if (self != NULL) {
        size_t before = path.len;

        msp_probe_path_push_index(&path, 0);
        put_value(r, self, &path, 0, 1);
        path.len = before;
    }
    if (value != NULL)
        put_value(r, value, &path, self != NULL, 0);
}

static void
put_stack(msp_record *r, const char *name, size_t len)
{
    probe_path path;

    start_path(&path, name, len, "stack_info");
    msp_record_key(r, path.text, path.len);
    msp_record_null(r);
}

/* What one call shows, in one direction. */
typedef struct shown {
    const char *name;
    size_t len;
    uint32_t stack;
    PyObject *self, *input, *output;
    bool outputs_first;
} shown;

static void
write_call(const shown *s)
{
    msp_record *r = msp_probe_record_get();

    if (r == NULL)
        return;
    msp_record_begin(r, msp_probe.unit, s->name, s->len);
    msp_record_fill(r, s->stack);
    msp_record_object(r);
    if (legacy.stack == STACK_FIRST || legacy.stack == STACK_ONLY)
        put_stack(r, s->name, s->len);
    if (legacy.stack != STACK_ONLY && s->outputs_first)
        put_section(r, s->name, s->len, "output", NULL, s->output);
    if (legacy.stack != STACK_ONLY)
        put_section(r, s->name, s->len, "input", s->self, s->input);
    if (legacy.stack != STACK_ONLY && !s->outputs_first)
        put_section(r, s->name, s->len, "output", NULL, s->output);
    if (legacy.stack == STACK_LAST)
        put_stack(r, s->name, s->len);
    msp_record_end(r);
    msp_probe_commit_value(r);
    msp_probe_record_put(r);
}

/* ---- overflow ---------------------------------------------------------------------------------------------------- */

static bool
tensor_overflowed(PyObject *t)
{
    probe_path path = {.len = 0};
    msp_stats stats = {0};
    PyObject *plain;
    msp_tensor view;

    if (view_of(&view, &plain, t, &path))
        msp_probe_measure(&view, &stats, NULL);
    Py_XDECREF(plain);
    return stats.nan + stats.pos_inf + stats.neg_inf > 0;
}

static bool
holds_overflow(PyObject *v, int depth)
{
    bool found = false;

    if (msp_probe_is_tensor(v))
        return tensor_overflowed(v);
    if (PyFloat_Check(v))
        return PyFloat_AS_DOUBLE(v) - PyFloat_AS_DOUBLE(v) != 0; /* inf - inf is no number */
    if (PyTuple_Check(v) || PyList_Check(v))
        for (Py_ssize_t i = 0; !found && depth < NESTING && i < PySequence_Fast_GET_SIZE(v); i++)
            found = holds_overflow(PySequence_Fast_GET_ITEM(v, i), depth + 1);
    return found;
}

static bool
has_overflowed(PyObject *made)
{
    return msp_probe.overflow_flag == NULL ? made != NULL && holds_overflow(made, 0) : msp_probe_device_overflowed();
}

/* Python opens the file that the call goes to, or says that enough were written. */
static bool
begin_overflow(const char *name)
{
    PyObject *said = legacy.found == NULL ? NULL : PyObject_CallFunction(legacy.found, "s", name);
    bool yes = said == Py_True;

    Py_XDECREF(said);
    if (PyErr_Occurred())
        msp_probe_swallow("opening a file for an overflow", name);
    return yes;
}

/* Returns true when the call has overflowed and is written: msp_probe_overflow() is to be called. */
static bool
show(const shown *s, bool forward)
{
    if (!legacy.overflow) {
        if (wants(s->name, s->len, forward))
            write_call(s);
        return false;
    }
    if (legacy.muted || !has_overflowed(s->output) || !begin_overflow(s->name))
        return false;
    write_call(s);
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
    shown s = {.name = name};
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
    n = h->passes == 0 || legacy.form == FORM_HOOKS ? snprintf(name, sizeof(name), "%s", h->name)
                                                    : snprintf(name, sizeof(name), "%s_%d", h->name, h->passes);
    h->passes++;
    s.len = (size_t)n < sizeof(name) ? (size_t)n : sizeof(name) - 1;
    s.input = legacy.form == FORM_HOOKS ? leaving : entering;
    s.output = legacy.form == FORM_HOOKS ? entering : leaving;
    s.outputs_first = legacy.overflow;
    msp_probe_enter(&q);
    if (legacy.stack != STACK_NONE && !legacy.muted)
        s.stack = msp_probe_stack(0).stack;
    stop = show(&s, false) && msp_probe_overflow(name, s.stack);
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
    for (int depth = 0; v != NULL && depth < NESTING; depth++) {
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
repeat(const legacy_call *c)
{
    PyObject *unused;

    if (!legacy.rerun || c->api == NULL || msp_probe.on_kernel == NULL)
        return;
    unused = msp_probe_call_by_python(c->api, c->receiver, c->args, c->kwargs);
    if (unused == NULL)
        msp_probe_swallow("repeating a call", c->text);
    Py_XDECREF(unused);
}

/* Returns true when the program is to be stopped, with an exception set. */
static bool
after(legacy_call *c, PyObject *result)
{
    shown s = {.name = c->text, .stack = c->stack, .self = c->receiver, .input = c->args, .output = result};

    strcpy(c->text + c->len, "_forward");
    s.len = c->len + strlen("_forward");
    if (show(&s, true)) {
        repeat(c);
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
    int n = legacy.form == FORM_HOOKS ? snprintf(out, size, "%s", name->text)
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

    return legacy.kernel != NULL && !legacy.muted && msp_probe.on_kernel != NULL &&
           begins_with(forward, (size_t)n, legacy.kernel);
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
        stop = after(&c, result);
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
    stop = after(&c, output);
    msp_probe_leave(&q);
    if (stop)
        return NULL;
    Py_RETURN_NONE;
}

/* legacy_rules(form, **settings): see the struct above; form 0: calls are recorded as usual */
PyObject *
msp_probe_legacy_rules(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"form",     "stack", "muted", "floats_only", "forward", "backward", "overflow",
                            "prefixes", "range", "ops",   "kernel",      "found",   "rerun",    NULL};
    int form, stack = 0, muted = 0, floats_only = 1, forward = 1, backward = 1, overflow = 0, rerun = 0;
    PyObject *prefixes = Py_None, *range = Py_None, *ops = Py_None, *kernel = Py_None, *found = Py_None;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i|$ipppppOOOOOp", names, &form, &stack, &muted, &floats_only,
                                     &forward, &backward, &overflow, &prefixes, &range, &ops, &kernel, &found, &rerun))
        return NULL;
    if ((prefixes != Py_None && !PyTuple_Check(prefixes)) || (ops != Py_None && !PyTuple_Check(ops)) ||
        (range != Py_None && (!PyTuple_Check(range) || PyTuple_GET_SIZE(range) != 2)) ||
        (kernel != Py_None && !PyUnicode_Check(kernel))) {
        PyErr_SetString(PyExc_TypeError,
                        "prefixes and ops are tuples of str, range a pair of str, kernel a str, or None");
        return NULL;
    }
    legacy.form = (legacy_form)form;
    legacy.stack = (legacy_stack)stack;
    legacy.muted = muted;
    legacy.floats_only = floats_only;
    legacy.forward = forward;
    legacy.backward = backward;
    legacy.overflow = overflow;
    legacy.rerun = rerun;
    msp_probe_set(&legacy.prefixes, prefixes);
    msp_probe_set(&legacy.range, range);
    msp_probe_set(&legacy.ops, ops);
    msp_probe_set(&legacy.kernel, kernel);
    msp_probe_set(&legacy.found, found);
    Py_RETURN_NONE;
}

/* legacy_matched() -> how many calls the filters have let pass */
PyObject *
msp_probe_legacy_matched(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromLongLong(legacy.matched);
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
