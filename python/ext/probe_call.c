/*
 * probe_call.c - one call: inputs, the call itself, outputs, commit.
 *
 * The function's own result and its own exception are all that the program sees. Whatever goes wrong on our side is
 * told once and marks the record.
 */
#include "probe.h"
#include <string.h>

#define KEY(r, literal) msp_record_key((r), (literal), sizeof(literal) - 1)

/* ---- what the call is -------------------------------------------------------------------------------------------- */

enum { MAX_NAME = 200 };

typedef struct call {
    probe_api *api;
    probe_name *name;
    probe_held held;
    probe_site site;
    char text[MAX_NAME + 40]; /* "Functional.relu.0.forward" */
    size_t len, base;         /* base: without the direction */
    bool selected;
    bool poisoned;   /* an input holds inf or NaN */
    uint64_t ticket; /* the last one before the call */
} call;

/*
 * A tensor that stands for one while a graph is made: torch.compile and export run functions on them, which are no
 * calls of the program.
 */
static bool
is_fake(PyObject *v)
{
    const char *name;

    if (msp_probe_is_plain_tensor(v) || !msp_probe_is_tensor(v))
        return false;
    name = strrchr(Py_TYPE(v)->tp_name, '.');
    name = name == NULL ? Py_TYPE(v)->tp_name : name + 1;
    return strcmp(name, "FakeTensor") == 0 || strcmp(name, "FunctionalTensor") == 0;
}

static bool
is_or_holds_fake(PyObject *v)
{
    return is_fake(v) || (PyList_CheckExact(v) && PyList_GET_SIZE(v) > 0 && is_fake(PyList_GET_ITEM(v, 0)));
}

bool
msp_probe_any_fake(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *key, *value;
    Py_ssize_t pos = 0;

    if (self != NULL && is_fake(self))
        return true;
    for (Py_ssize_t i = 0; args != NULL && i < PyTuple_GET_SIZE(args); i++)
        if (is_or_holds_fake(PyTuple_GET_ITEM(args, i)))
            return true;
    while (kwargs != NULL && PyDict_Next(kwargs, &pos, &key, &value))
        if (is_or_holds_fake(value))
            return true;
    return false;
}

/* An object that torch exports under several names goes by the one through which the caller reached it. */
probe_name *
msp_probe_name_of(probe_api *api)
{
    PyObject *said;
    long route;

    if (!(api->flags & PROBE_BY_CALLER) || msp_probe.caller == NULL)
        return api->name;
    said = msp_probe_ask_own(msp_probe.caller, api->target, NULL);
    route = said == NULL ? PROBE_FIRST_NAME : PyLong_AsLong(said);
    Py_XDECREF(said);
    msp_probe_drop_error();
    if (route == PROBE_UNLISTED)
        return NULL;
    return route == PROBE_SECOND_NAME && api->other != NULL ? api->other : api->name;
}

static PyObject *
receiver(const probe_api *api, PyObject *self)
{
    /* a built-in's self is the module or class that holds it, not an argument */
    return api->kind == PROBE_BUILTIN || api->kind == PROBE_FUNCTION || api->kind == PROBE_CALLABLE ? NULL : self;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static void
start_path(probe_path *path, const call *c, const char *section)
{
    memcpy(path->text, c->text, c->len);
    path->len = c->len;
    path->files = true;
    msp_probe_path_push(path, section, strlen(section));
}

static void
put_args(msp_record *r, PyObject *self, PyObject *args, probe_path *path)
{
    size_t len = path->len;

    if (self != NULL) {
        msp_probe_path_push_index(path, 0);
        msp_probe_value(r, self, path, 0);
        path->len = len;
    }
    if (args != NULL)
        msp_probe_values(r, args, path, self != NULL, 0);
}

static void
put_inputs(const call *c, msp_record *r, PyObject *self, PyObject *args, PyObject *kwargs)
{
    probe_path path;

    start_path(&path, c, "input");
    KEY(r, "input_args");
    msp_record_array(r);
    put_args(r, self, args, &path);
    msp_record_end(r);
    start_path(&path, c, "kwargs");
    KEY(r, "input_kwargs");
    msp_record_object(r);
    if (kwargs != NULL)
        msp_probe_members(r, kwargs, &path, 0);
    msp_record_end(r);
}

/* A collective's results are its arguments, as they are after the call. */
static void
put_arguments_as_outputs(msp_record *r, PyObject *self, PyObject *args, PyObject *kwargs, probe_path *path)
{
    PyObject *values = kwargs == NULL ? NULL : PyDict_Values(kwargs);

    put_args(r, self, args, path);
    if (values != NULL)
        msp_probe_values(r, values, path, args == NULL ? 0 : PyTuple_GET_SIZE(args), 0);
    Py_XDECREF(values);
    PyErr_Clear();
}

/* `t == None` is False to the program although the method says NotImplemented: the interpreter compares identities. */
static bool
is_false_in_the_end(const call *c, PyObject *result)
{
    return result == Py_NotImplemented && strcmp(c->name->text, "Tensor.__eq__") == 0;
}

static void
put_outputs(const call *c, msp_record *r, PyObject *self, PyObject *args, PyObject *kwargs, PyObject *result)
{
    probe_path path;

    start_path(&path, c, "output");
    msp_probe_thread.no_values = c->api->flags & PROBE_UNINITIALISED ? "uninitialised memory" : NULL;
    if (c->api->flags & PROBE_DISTRIBUTED) {
        KEY(r, "output");
        msp_record_array(r);
        put_arguments_as_outputs(r, self, args, kwargs, &path);
        msp_record_end(r);
    } else {
        msp_probe_sequence(r, "output", is_false_in_the_end(c, result) ? Py_False : result, &path);
    }
    msp_probe_thread.no_values = NULL;
}

/* ---- before ------------------------------------------------------------------------------------------------------ */

/* False: the call is none of the program's, or not listed under the name by which it is made. */
static bool
identify(call *c)
{
    const int ours = c->api->trampoline != NULL ? 1 : 0; /* the trampoline's own frame */

    c->site = msp_probe_stack(ours);
    c->name = c->site.internal ? NULL : msp_probe_name_of(c->api);
    if (c->name == NULL)
        return false;
    c->base = c->name->len < MAX_NAME ? c->name->len : MAX_NAME;
    memcpy(c->text, c->name->text, c->base);
    c->text[c->base++] = '.';
    c->base += msp_probe_digits(c->text + c->base, (uint64_t)c->name->count++);
    memcpy(c->text + c->base, ".forward", sizeof(".forward"));
    c->len = c->base + strlen(".forward");
    return true;
}

static void
begin(call *c, PyObject *self, PyObject *args, PyObject *kwargs)
{
    msp_probe_scope_enter(c->text, c->len);
    if (msp_probe.rules.backward || msp_probe.rules.construct)
        c->held.edges = msp_probe_edges_before(self, args, kwargs, false);
    c->selected = msp_probe_selects(c->text, c->len);
    if (!c->selected || !msp_probe.rules.forward || msp_probe.rules.structure)
        return;
    c->held.record = msp_probe_record_get();
    if (c->held.record == NULL)
        return;
    msp_record_begin(c->held.record, msp_probe.unit, c->text, c->len);
    msp_record_object(c->held.record);
    c->ticket = msp_probe_watch_overflow();
    msp_probe_thread.keep = msp_probe.rules.overflow ? &c->held.kept : NULL;
    if (msp_probe.rules.inputs)
        put_inputs(c, c->held.record, self, args, kwargs);
    msp_probe_thread.keep = NULL;
    c->poisoned = msp_probe_saw_overflow(c->ticket);
}

/* ---- overflow ---------------------------------------------------------------------------------------------------- */

bool
msp_probe_overflow(const char *name, uint32_t stack)
{
    PyObject *done, *text = msp_probe_stack_by_id(stack);

    if (msp_probe.on_overflow == NULL)
        return false;
    done = PyObject_CallFunction(msp_probe.on_overflow, "sO", name, text == NULL ? Py_None : text);
    Py_XDECREF(done);
    return done == NULL;
}

bool
msp_probe_device_overflowed(void)
{
    PyObject *flag = msp_probe.overflow_flag == NULL ? NULL : PyObject_CallNoArgs(msp_probe.overflow_flag);
    bool yes = flag == Py_True;

    Py_XDECREF(flag);
    msp_probe_drop_error();
    return yes;
}

/* The elements of a call, into files: what was kept of the inputs, and a second walk over the outputs. */
static void
save_elements(call *c, PyObject *self, PyObject *args, PyObject *kwargs, PyObject *result)
{
    msp_record *scratch = msp_probe_record_get();

    msp_probe_keep_save(&c->held.kept);
    if (scratch == NULL)
        return;
    msp_record_begin(scratch, msp_probe.unit, c->text, c->len);
    msp_probe_thread.saving = true;
    if (msp_probe.rules.outputs && result != NULL)
        put_outputs(c, scratch, self, args, kwargs, result);
    msp_probe_thread.saving = false;
    msp_probe_record_put(scratch);
}

/* The original writes this field behind the inputs, and last in task overflow_check. */
static void
put_recompute(const call *c)
{
    KEY(c->held.record, "is_recompute");
    msp_record_bool(c->held.record, c->site.recompute);
}

/* ---- calls that go on after they returned ------------------------------------------------------------------------ */

/* A collective with a handle: what it needs to be completed when the handle was waited for. */
typedef struct pending_call {
    PyObject_HEAD call call;
    int left; /* handles that nobody waited for yet */
    uint32_t hole;
    int64_t generation;
} pending_call;

static void
pending_dealloc(PyObject *object)
{
    msp_probe_let_go(&((pending_call *)object)->call.held);
    PyObject_Free(object);
}

static PyTypeObject pending_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.PendingCall",
    .tp_basicsize = sizeof(pending_call),
    .tp_dealloc = pending_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static bool
is_handle(PyObject *v)
{
    return v != NULL && v != Py_None && !msp_probe_is_tensor(v) && PyObject_HasAttrString(v, "wait");
}

/* How many handles a result holds: it is one, or a list of them. */
static Py_ssize_t
count_handles(PyObject *result)
{
    if (result == NULL || !PyList_Check(result))
        return is_handle(result);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(result); i++)
        if (!is_handle(PyList_GET_ITEM(result, i)))
            return 0;
    return PyList_GET_SIZE(result);
}

static void
keep_place(uint32_t number)
{
    msp_record *r = msp_probe_record_get();

    if (r == NULL)
        return;
    msp_record_hole(r, msp_probe.unit, number);
    msp_probe_commit(r);
    msp_probe_record_put(r);
}

/* Take the call over until its handles were waited for; false: it is completed now. */
static bool
postpone(call *c, PyObject *self, PyObject *args, PyObject *kwargs, PyObject *result)
{
    Py_ssize_t n = count_handles(result);
    pending_call *p;

    if (n == 0 || !(c->api->flags & PROBE_DISTRIBUTED) || !msp_probe.rules.outputs)
        return false;
    if (msp_probe.pending == NULL)
        msp_probe.pending = PyDict_New();
    if (msp_probe.pending == NULL || PyType_Ready(&pending_type) != 0 ||
        (p = PyObject_New(pending_call, &pending_type)) == NULL) {
        PyErr_Clear();
        return false;
    }
    Py_XINCREF(self);
    Py_XINCREF(args);
    Py_XINCREF(kwargs);
    p->call = *c;
    p->call.held.edges = NULL; /* they are followed when the call has returned */
    p->call.held.self = self;
    p->call.held.args = args;
    p->call.held.kwargs = kwargs;
    p->left = (int)n;
    p->hole = msp_probe.rules.overflow ? 0 : ++msp_probe.holes; /* overflow_check may not want the record at all */
    p->generation = msp_probe.generation;
    c->held.record = NULL;
    c->held.kept = NULL;
    if (p->hole != 0)
        keep_place(p->hole);
    for (Py_ssize_t i = 0; i < n; i++)
        if (PyDict_SetItem(msp_probe.pending, PyList_Check(result) ? PyList_GET_ITEM(result, i) : result,
                           (PyObject *)p) != 0)
            PyErr_Clear();
    Py_DECREF(p);
    return true;
}

/* Whether the place of the call is told apart from its record, which may come late or not at all. */
static bool
has_own_site(const call *c)
{
    return c->held.record == NULL || msp_probe.rules.overflow || (c->api->flags & PROBE_DISTRIBUTED);
}

/*
 * Outputs, and the record is handed over; in task overflow_check only when there is something to see. result NULL: the
 * call raised. Returns true when the call made inf or NaN; what others made and it was given is recorded, too, but does
 * not count.
 */
static bool
conclude(call *c, PyObject *self, PyObject *args, PyObject *kwargs, PyObject *result, uint32_t hole)
{
    bool overflowed = false, wanted = true;
    uint64_t ticket = msp_probe_watch_overflow();

    if (result != NULL && msp_probe.rules.outputs)
        put_outputs(c, c->held.record, self, args, kwargs, result);
    if (msp_probe.rules.overflow) {
        overflowed = result != NULL && (msp_probe_saw_overflow(ticket) | msp_probe_device_overflowed());
        wanted = overflowed || c->poisoned;
        if (wanted)
            save_elements(c, self, args, kwargs, result);
        else
            msp_probe_device_forget(c->ticket);
        put_recompute(c);
    }
    if (wanted) {
        msp_record_end(c->held.record);
        if (has_own_site(c))
            msp_record_fill(c->held.record, hole);
        else
            msp_probe_place(c->held.record, &c->site);
        msp_probe_commit_value(c->held.record);
    }
    msp_probe_record_put(c->held.record);
    c->held.record = NULL;
    return overflowed;
}

/* Returns true when the program is to be stopped, with an exception set. */
static bool
complete(pending_call *p, bool waited)
{
    call *c = &p->call;
    bool stop;
    probe_quiet q;

    if (c->held.record == NULL || p->generation != msp_probe.generation || !msp_probe.has_unit)
        return false;
    msp_probe_enter(&q);
    if (!waited) {
        KEY(c->held.record, "note");
        msp_record_text(c->held.record, "nobody waited for its handle in this step", 41);
    }
    stop = conclude(c, c->held.self, c->held.args, c->held.kwargs, waited ? Py_None : NULL, p->hole) &&
           msp_probe_overflow(c->text, c->site.stack);
    msp_probe_leave(&q);
    return stop;
}

/* handle.wait() is done. Returns true when the program is to be stopped, with an exception set. */
static bool
waited_for(PyObject *handle)
{
    pending_call *p = NULL;
    bool stop = false;

    if (msp_probe.pending != NULL && handle != NULL)
        p = (pending_call *)PyDict_GetItem(msp_probe.pending, handle);
    if (p == NULL)
        return false;
    Py_INCREF(p);
    if (PyDict_DelItem(msp_probe.pending, handle) != 0)
        PyErr_Clear();
    if (--p->left == 0)
        stop = complete(p, true);
    Py_DECREF(p);
    return stop;
}

static bool
is_complete(PyObject *handle)
{
    PyObject *said = PyObject_CallMethod(handle, "is_completed", NULL);
    bool yes = said == Py_True;

    Py_XDECREF(said);
    PyErr_Clear();
    return yes;
}

void
msp_probe_pending_flush(void)
{
    PyObject *left = msp_probe.pending, *handle, *p;
    Py_ssize_t pos = 0;

    msp_probe.pending = NULL;
    while (left != NULL && PyDict_Next(left, &pos, &handle, &p))
        if (complete((pending_call *)p, is_complete(handle)))
            PyErr_Clear(); /* the step is over: there is no call left to stop */
    Py_XDECREF(left);
}

/* ---- after ------------------------------------------------------------------------------------------------------- */

/* Returns true when the call made inf or NaN. */
static bool
finish_record(call *c, PyObject *self, PyObject *args, PyObject *kwargs, PyObject *result)
{
    if (!msp_probe.rules.overflow)
        put_recompute(c);
    return !postpone(c, self, args, kwargs, result) && conclude(c, self, args, kwargs, result, 0);
}

/* Where a call's nodes are found: its result, or, when it returns nothing, as `t[i] = v` does, the tensor it wrote to.
 */
static PyObject *
differentiable(PyObject *self, PyObject *args, PyObject *result)
{
    if (result != Py_None)
        return result;
    if (self == NULL && args != NULL && PyTuple_Check(args) && PyTuple_GET_SIZE(args) > 0)
        self = PyTuple_GET_ITEM(args, 0);
    return self != NULL && msp_probe_is_tensor(self) ? self : result;
}

/* Returns true when the program is to be stopped, with an exception set. */
static bool
end(call *c, PyObject *self, PyObject *args, PyObject *kwargs, PyObject *result)
{
    bool stop = false;

    if (has_own_site(c))
        msp_probe_note_site(c->text, c->len, &c->site, c->selected);
    if (c->held.record != NULL && finish_record(c, self, args, kwargs, result))
        stop = msp_probe_overflow(c->text, c->site.stack);
    msp_probe_scope_leave(c->text, c->len);
    if (!stop && result != NULL && c->held.edges != NULL) {
        strcpy(c->text + c->base, ".backward");
        msp_probe_thread.stack = c->site.stack;
        msp_probe_thread.owner = c->site.owner;
        msp_probe_edges_after(c->held.edges, differentiable(self, args, result), c->text, c->base + strlen(".backward"),
                              false);
        c->held.edges = NULL;
    }
    msp_probe_let_go(&c->held);
    return stop;
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static PyObject *
call_wait(probe_api *api, PyObject *self, PyObject *args, PyObject *kwargs)
{
    probe_outcome o = msp_probe_set_aside(msp_probe_invoke(api, self, args, kwargs));

    return msp_probe_give_back(&o, args != NULL && PyTuple_GET_SIZE(args) > 0 && waited_for(PyTuple_GET_ITEM(args, 0)));
}

static PyObject *
with_receiver(PyObject *self, PyObject *args)
{
    Py_ssize_t n = args == NULL ? 0 : PyTuple_GET_SIZE(args), shift = self != NULL;
    PyObject *all = PyTuple_New(n + shift);

    if (all != NULL && self != NULL) {
        Py_INCREF(self);
        PyTuple_SET_ITEM(all, 0, self);
    }
    for (Py_ssize_t i = 0; all != NULL && i < n; i++) {
        Py_INCREF(PyTuple_GET_ITEM(args, i));
        PyTuple_SET_ITEM(all, i + shift, PyTuple_GET_ITEM(args, i));
    }
    return all;
}

PyObject *
msp_probe_call_by_python(probe_api *api, PyObject *who, PyObject *args, PyObject *kwargs)
{
    PyObject *all = with_receiver(who, args), *named = kwargs == NULL ? PyDict_New() : kwargs, *result;

    Py_XINCREF(kwargs);
    result = all == NULL || named == NULL
                 ? NULL
                 : PyObject_CallFunctionObjArgs(msp_probe.on_kernel, api->target, all, named, NULL);
    Py_XDECREF(all);
    Py_XDECREF(named);
    return result;
}

/* Level L2: Python makes the chosen call, with what it does around it; all others run as they are. */
static PyObject *
call_kernel(probe_api *api, PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *result;
    probe_name *name;
    probe_quiet q;

    if (!msp_probe_wants())
        return msp_probe_invoke(api, self, args, kwargs);
    msp_probe_enter(&q);
    msp_probe_resume(&q);
    name = msp_probe_name_of(api);
    if (name != api->name || name->count++ != msp_probe.rules.kernel || msp_probe.on_kernel == NULL)
        result = msp_probe_invoke(api, self, args, kwargs);
    else
        result = msp_probe_call_by_python(api, receiver(api, self), args, kwargs);
    msp_probe_leave(&q);
    return result;
}

PyObject *
msp_probe_call(probe_api *api, PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *who = receiver(api, self), *result;
    call c = {.api = api};
    probe_outcome o;
    probe_quiet q;

    if (api->flags & PROBE_WAIT)
        return call_wait(api, self, args, kwargs);
    if (api->flags & PROBE_KERNEL)
        return call_kernel(api, self, args, kwargs);
    if (api->flags & PROBE_TRIAL)
        api->trials++;
    else if (msp_probe_wants() && !msp_probe_any_fake(who, args, kwargs)) {
        if (msp_probe_is_legacy())
            return msp_probe_legacy_call(api, self, who, args, kwargs);
        msp_probe_enter(&q);
        if (identify(&c))
            goto recorded;
        msp_probe_leave(&q);
    }
    return msp_probe_invoke(api, self, args, kwargs);
recorded:
    begin(&c, who, args, kwargs);
    msp_probe_resume(&q);
    o = msp_probe_set_aside(msp_probe_invoke(api, self, args, kwargs));
    msp_probe_pause(&q);
    result = msp_probe_give_back(&o, end(&c, who, args, kwargs, o.result));
    msp_probe_leave(&q);
    return result;
}
