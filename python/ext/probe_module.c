/*
 * probe_module.c - calls of modules (levels L0 and mix), and single values.
 *
 * Everything that runs a module's forward between its hooks goes through one function of torch's, Module._call_impl.
 * torch calls it from C in every version of the interpreter (its caller passes *args and **kwargs on), where a
 * function's vectorcall field is honoured: while we record, it leads here. Neither hooks nor attributes are set on
 * modules, and code that a compiler looks at stays as it is. A module with hooks of the program's own gets two of ours
 * among them (Python, hook_module), because what they change is to be seen; so do all of them where the field does not
 * hold.
 */
#include "probe.h"
#include <stddef.h>
#include <string.h>
#include <structmember.h>

#define KEY(r, literal) msp_record_key((r), (literal), sizeof(literal) - 1)

enum { N_HOOKS = PROBE_PARAMETERS };

static PyObject *str_dicts[PROBE_DICTS];

int
msp_probe_module_setup(void)
{
    static const char *const names[PROBE_DICTS] = {"_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks",
                                                   "_backward_hooks", "_parameters"};

    for (int i = 0; i < PROBE_DICTS; i++)
        str_dicts[i] = PyUnicode_InternFromString(names[i]);
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- what a call looks at in its module -------------------------------------------------------------------------- */

#if PY_VERSION_HEX < 0x030c0000
#define version_of(dict) (((PyDictObject *)(dict))->ma_version_tag)
#else
#define version_of(dict) UINT64_C(0) /* is not kept any more: they are looked up for each call */
#endif

static bool versions; /* they have been proven */

PyObject *
msp_probe_version(PyObject *self, PyObject *dict)
{
    (void)self;
    return PyLong_FromUnsignedLongLong(PyDict_Check(dict) ? version_of(dict) : 0);
}

bool
msp_probe_has_versions(void)
{
    return versions;
}

uint64_t
msp_probe_dict_version(PyObject *dict)
{
    return dict != NULL && PyDict_Check(dict) ? version_of(dict) : 0;
}

PyObject *
msp_probe_versions(PyObject *self, PyObject *use)
{
    (void)self;
    versions = PyObject_IsTrue(use) == 1;
    return PyBool_FromLong(versions);
}

/* Whether of->dicts are the module's, lent, by its own dict. That is looked into when it has changed, which its version
 * tells: no two dicts have the same, nor has one before and after a change (PEP 509). */
static bool
find_dicts(probe_module *of, PyObject *own)
{
    bool all = own != NULL;

    if (all && of->version != 0 && of->version == version_of(own))
        return true;
    for (int i = 0; i < PROBE_DICTS && all; i++) {
        of->dicts[i] = PyDict_GetItemWithError(own, str_dicts[i]);
        all = of->dicts[i] != NULL && PyDict_Check(of->dicts[i]);
    }
    if (!all)
        PyErr_Clear();
    of->version = all && versions ? version_of(own) : 0;
    of->type = NULL;
    return all;
}

/* One of them, however the module has it; a new reference, or NULL: an older torch does not have all of them. */
static PyObject *
dict_of(probe_module *of, PyObject *module, PyObject *own, int which)
{
    PyObject *dict;

    if (find_dicts(of, own)) {
        Py_INCREF(of->dicts[which]);
        return of->dicts[which];
    }
    dict = msp_probe_attribute(module, own, str_dicts[which]);
    if (dict != NULL && !PyDict_Check(dict))
        Py_CLEAR(dict);
    return dict;
}

typedef struct module_call {
    probe_held held; /* args, kwargs: where their values may be wanted after the call (scope) */
    probe_site site;
    PyObject *module; /* lent */
    probe_module *of;
    char name[PROBE_NAME_SIZE];
    size_t base, len; /* base: "Module.a.Linear" */
    int64_t number;
    int64_t generation;
    uint64_t ticket; /* the last one before the call */
    bool poisoned;   /* an input holds inf or NaN */
} module_call;

/* "Module.a.Linear.forward.0", "Module.a.Linear.backward.0" */
static size_t
write_name(char *out, const module_call *m, bool backward)
{
    static const char sections[2][10] = {".forward.", ".backward."}; /* the one is a character longer */
    size_t n = m->base;

    if (out != m->name)
        memcpy(out, m->name, n);
    memcpy(out + n, sections[backward], sizeof(sections[0]));
    n += strlen(".forward.") + backward;
    n += msp_probe_digits(out + n, (uint64_t)m->number);
    out[n] = '\0';
    return n;
}

static void
start_path(probe_path *path, const char *name, size_t len, const char *section)
{
    path->len = len < PROBE_NAME_SIZE ? len : PROBE_NAME_SIZE;
    memcpy(path->text, name, path->len);
    path->files = true;
    if (len > path->len) /* of a saved value, which may have any: files of two of them are not the same one */
        msp_probe_path_push(path, name + path->len, len - path->len);
    if (section != NULL)
        msp_probe_path_push(path, section, strlen(section));
}

static void
put_members(msp_record *r, const char *key, PyObject *dict, probe_path *path)
{
    msp_record_key(r, key, strlen(key));
    msp_record_object(r);
    if (dict != NULL && PyDict_Check(dict))
        msp_probe_members(r, dict, path, 0);
    msp_record_end(r);
}

/* ---- before ------------------------------------------------------------------------------------------------------ */

static void
put_inputs(const module_call *m, msp_record *r, PyObject *args, PyObject *kwargs)
{
    probe_path path;

    if (!msp_probe_quick_sequence(r, "input_args", strlen("input_args"), args)) {
        start_path(&path, m->name, m->len, "input");
        msp_probe_sequence(r, "input_args", args, &path);
    }
    if (kwargs != NULL)
        start_path(&path, m->name, m->len, "kwargs");
    put_members(r, "input_kwargs", kwargs, &path);
}

static void
begin_record(module_call *m, PyObject *args, PyObject *kwargs)
{
    m->held.record = msp_probe_record_get();
    if (m->held.record == NULL)
        return;
    msp_record_begin(m->held.record, msp_probe.unit, m->name, m->len);
    msp_record_object(m->held.record);
    m->ticket = msp_probe_watch_overflow();
    msp_probe_thread.keep = msp_probe.rules.overflow ? &m->held.kept : NULL;
    if (msp_probe.rules.inputs)
        put_inputs(m, m->held.record, args, kwargs);
    msp_probe_thread.keep = NULL;
    m->poisoned = msp_probe_saw_overflow(m->ticket);
}

static bool
wants_record(const module_call *m)
{
    return msp_probe.rules.forward && !msp_probe.rules.structure && msp_probe_listed(m->name, m->len);
}

/* kwargs may be NULL. */
static void
begin(module_call *m, probe_module *of, PyObject *module, PyObject *args, PyObject *kwargs)
{
    probe_quiet q;

    m->held = (probe_held){0};
    m->site = (probe_site){0};
    m->poisoned = false;
    m->module = module;
    m->of = of;
    m->base = of->len < PROBE_MODULE_NAME ? of->len : PROBE_MODULE_NAME;
    m->number = of->count++;
    m->generation = msp_probe.generation;
    memcpy(m->name, of->text, m->base);
    m->len = write_name(m->name, m, false);
    msp_probe_enter(&q);
    msp_probe_scope_enter(m->name, m->len);
    if (msp_probe.rules.backward || msp_probe.rules.construct)
        m->held.edges = msp_probe_edges_before(NULL, args, kwargs, true);
    msp_probe_module_open(m->name, m->len, m->held.edges);
    if (wants_record(m) && msp_probe_in_scope())
        begin_record(m, args, kwargs);
    if (msp_probe.rules.scope_begin != NULL) {
        Py_INCREF(args);
        Py_XINCREF(kwargs);
        m->held.args = args;
        m->held.kwargs = kwargs;
    }
    msp_probe_leave(&q);
}

/* ---- after ------------------------------------------------------------------------------------------------------- */

/* {"weight": ..., "bias": ...} without those that the module has not. Reading a large one lets other threads run, which
 * may change the dict: what is looked at is held, and the walk ends where the dict does. */
static void
put_parameters(const module_call *m, msp_record *r)
{
    PyObject *own = msp_probe_attributes(m->module), *of = dict_of(m->of, m->module, own, PROBE_PARAMETERS);
    PyObject *key, *p;
    probe_path path;
    Py_ssize_t len, pos = 0;
    const char *text;

    KEY(r, "parameters");
    msp_record_object(r);
    while (of != NULL && PyDict_Next(of, &pos, &key, &p)) {
        text = p == Py_None || !PyUnicode_Check(key) ? NULL : msp_probe_utf8(key, &len);
        if (text == NULL)
            continue;
        Py_INCREF(key);
        Py_INCREF(p);
        msp_record_key(r, text, (size_t)len);
        if (!msp_probe_quick_value(r, p)) {
            start_path(&path, m->name, m->len, "parameters");
            msp_probe_path_push(&path, text, (size_t)len);
            msp_probe_value(r, p, &path, 0);
        }
        Py_DECREF(key);
        Py_DECREF(p);
    }
    msp_record_end(r);
    Py_XDECREF(own);
    Py_XDECREF(of);
    if (PyErr_Occurred())
        PyErr_Clear();
}

/* Activation checkpointing ends a repetition by an exception: such a module counts as one that returned nothing. */
static void
put_outputs(const module_call *m, msp_record *r, PyObject *output, bool *overflowed)
{
    uint64_t since = msp_probe_watch_overflow();
    probe_path path;

    if (output == NULL && m->site.recompute)
        output = Py_None;
    if (output != NULL && msp_probe.rules.outputs && !msp_probe_quick_sequence(r, "output", strlen("output"), output)) {
        start_path(&path, m->name, m->len, "output");
        msp_probe_sequence(r, "output", output, &path);
    }
    *overflowed = msp_probe_saw_overflow(since);
    put_parameters(m, r);
}

static void
save_elements(module_call *m, PyObject *output)
{
    msp_record *scratch = msp_probe_record_get();
    bool unused;

    msp_probe_keep_save(&m->held.kept);
    if (scratch == NULL)
        return;
    msp_probe_thread.saving = true;
    msp_record_begin(scratch, msp_probe.unit, m->name, m->len);
    put_outputs(m, scratch, output, &unused);
    msp_probe_thread.saving = false;
    msp_probe_record_put(scratch);
}

/* Returns true when the program is to be stopped, with an exception set. */
static bool
end_record(module_call *m, PyObject *output)
{
    uint64_t since = msp_probe.tickets;
    bool overflowed;

    put_outputs(m, m->held.record, output, &overflowed);
    overflowed |= msp_probe_device_overflowed();
    if (msp_probe.rules.overflow && !overflowed && !msp_probe_saw_overflow(since) && !m->poisoned) {
        msp_probe_device_forget(m->ticket);
        return false;
    }
    if (msp_probe.rules.overflow)
        save_elements(m, output);
    KEY(m->held.record, "is_recompute");
    msp_record_bool(m->held.record, m->site.recompute);
    msp_record_end(m->held.record);
    if (!msp_probe.rules.overflow)
        msp_probe_place(m->held.record, &m->site);
    msp_probe_commit_value(m->held.record);
    return msp_probe.rules.overflow && overflowed && msp_probe_overflow(m->name, m->site.stack);
}

/* A range is looked at when the module ends: one that began before it gets its inputs read now. */
static bool
finish(module_call *m, PyObject *output)
{
    bool selected;

    if (m->generation != msp_probe.generation || !msp_probe.live)
        return false;
    selected = msp_probe_selects(m->name, m->len);
    if (selected && m->held.record == NULL && m->held.args != NULL && wants_record(m))
        begin_record(m, m->held.args, m->held.kwargs);
    if (!selected || m->held.record == NULL || msp_probe.rules.overflow)
        msp_probe_note_site(m->name, m->len, &m->site, selected);
    return selected && m->held.record != NULL && end_record(m, output);
}

/* Whether the list names the module's backward, or one around it: what runs in it is recorded, too (level mix). */
static bool
is_listed_backward(const char *name, size_t len)
{
    return msp_probe_inside_listed(true) ||
           (msp_probe.rules.expand && msp_probe_in_list(msp_probe.rules.list, name, len));
}

/* output is NULL when the call raised. Returns true when the program is to be stopped, with an exception set. */
static bool
end(module_call *m, PyObject *output, bool by_hook)
{
    char backward[PROBE_NAME_SIZE];
    probe_quiet q;
    size_t len;
    bool stop;

    msp_probe_enter(&q);
    msp_probe_module_close(m->name, m->len);
    m->site = by_hook ? msp_probe_stack(0) : msp_probe_module_stack(output == NULL);
    m->site.owner = msp_probe_thread.owner = NULL; /* modules stand in modules alone */
    stop = finish(m, output);
    msp_probe_scope_leave(m->name, m->len);
    if (!stop && output != NULL && m->held.edges != NULL) {
        len = write_name(backward, m, true);
        if (msp_probe.rules.list != NULL && is_listed_backward(backward, len))
            msp_probe_module_chosen(backward, len);
        msp_probe_edges_after(m->held.edges, output, backward, len, true);
        m->held.edges = NULL;
    }
    msp_probe_let_go(&m->held);
    msp_probe_leave(&q);
    return stop;
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static PyFunctionObject *call_impl; /* torch.nn.Module._call_impl; NULL: not proven */
static vectorcallfunc call_impl_original;
static int64_t trials;
static bool trying;

/* Hooks of the program's own, on the module or on all of them. */
static bool
has_hooks(probe_module *of, PyObject *module)
{
    PyObject *own;
    bool any = false;

    for (Py_ssize_t i = 0; msp_probe.global_hooks != NULL && i < PyTuple_GET_SIZE(msp_probe.global_hooks); i++) {
        PyObject *hooks = PyTuple_GET_ITEM(msp_probe.global_hooks, i);

        if (PyDict_Check(hooks) && PyDict_GET_SIZE(hooks) > 0)
            return true;
    }
    own = msp_probe_attributes(module);
    for (int i = 0; i < N_HOOKS && !any; i++) {
        PyObject *hooks = dict_of(of, module, own, i);

        any = hooks != NULL && PyDict_GET_SIZE(hooks) > 0;
        Py_XDECREF(hooks);
    }
    Py_XDECREF(own);
    return any;
}

static PyObject *
record_call(probe_module *of, PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *tuple, *kwargs, *result, *forward = msp_probe_forward(of, args[0]);
    probe_outcome o;
    module_call m;

    if (msp_probe_pack(&tuple, &kwargs, args + 1, PyVectorcall_NARGS(nargsf) - 1, kwnames) != 0)
        return NULL;
    if (msp_probe_any_fake(NULL, tuple, kwargs)) {
        result = call_impl_original(callable, args, nargsf, kwnames);
    } else {
        begin(&m, of, args[0], tuple, kwargs);
        o = msp_probe_set_aside(forward != NULL ? msp_probe_call_forward(forward, args, nargsf, kwnames)
                                                : call_impl_original(callable, args, nargsf, kwnames));
        result = msp_probe_give_back(&o, end(&m, o.result, false));
    }
    Py_DECREF(tuple);
    Py_XDECREF(kwargs);
    return result;
}

static bool
hook_module(PyObject *module)
{
    PyObject *done = msp_probe.hook_module == NULL ? NULL : msp_probe_ask(msp_probe.hook_module, module, NULL);

    Py_XDECREF(done);
    if (done == NULL)
        msp_probe_swallow("hooking a module", Py_TYPE(module)->tp_name);
    return done != NULL;
}

/* _call_impl(module, *args, **kwargs) */
static PyObject *
call_module(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    probe_module *of = NULL;

    trials += trying;
    if (msp_probe.on && PyVectorcall_NARGS(nargsf) > 0)
        of = msp_probe_module_find(args[0]);
    if (of != NULL && !of->hooked && has_hooks(of, args[0]))
        msp_probe_module_hooked(of, hook_module(args[0]));
    if (of == NULL || of->hooked)
        return call_impl_original(callable, args, nargsf, kwnames);
    return record_call(of, callable, args, nargsf, kwnames);
}

void
msp_probe_modules_start(void)
{
    if (call_impl == NULL || call_impl->vectorcall == call_module)
        return;
    call_impl_original = call_impl->vectorcall;
    msp_probe_set_vectorcall(call_impl, call_module);
}

void
msp_probe_modules_stop(void)
{
    if (call_impl != NULL && call_impl->vectorcall == call_module)
        msp_probe_set_vectorcall(call_impl, call_impl_original);
}

/*
 * module_function(function, call, expected) -> bool: whether function, Module._call_impl, is gone through so often when
 * call() runs; then it is used from now on. module_function(None, None, 0): it is not.
 */
PyObject *
msp_probe_module_function(PyObject *self, PyObject *all)
{
    PyObject *function, *call, *done;
    long expected;

    (void)self;
    if (!PyArg_ParseTuple(all, "OOl", &function, &call, &expected))
        return NULL;
    msp_probe_modules_stop();
    Py_CLEAR(call_impl);
    if (!PyFunction_Check(function))
        Py_RETURN_FALSE;
    Py_INCREF(function);
    call_impl = (PyFunctionObject *)function;
    trials = 0;
    trying = true;
    msp_probe_modules_start();
    done = PyObject_CallNoArgs(call);
    msp_probe_modules_stop();
    trying = false;
    if (done == NULL)
        return NULL;
    Py_DECREF(done);
    if (trials == expected)
        Py_RETURN_TRUE;
    Py_CLEAR(call_impl);
    Py_RETURN_FALSE;
}

/* ---- calls that Python's hooks see ------------------------------------------------------------------------------- */

typedef struct call_object {
    PyObject_HEAD module_call call;
} call_object;

static void
call_object_dealloc(PyObject *self)
{
    msp_probe_let_go(&((call_object *)self)->call.held);
    PyObject_Free(self);
}

static PyTypeObject call_object_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.ModuleCall",
    .tp_basicsize = sizeof(call_object),
    .tp_dealloc = call_object_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* module_begin(module, args, kwargs) -> a call for module_end(); None: nothing is recorded now */
PyObject *
msp_probe_module_begin(PyObject *self, PyObject *all)
{
    PyObject *module, *args, *kwargs;
    probe_module *of;
    call_object *c;

    (void)self;
    if (!PyArg_ParseTuple(all, "OOO", &module, &args, &kwargs) || PyType_Ready(&call_object_type) != 0)
        return NULL;
    of = msp_probe.on ? msp_probe_module_find(module) : NULL;
    if (of == NULL)
        Py_RETURN_NONE;
    c = PyObject_New(call_object, &call_object_type);
    if (c == NULL)
        return NULL;
    begin(&c->call, of, module, args, kwargs);
    Py_INCREF(module);
    c->call.held.self = module;
    return (PyObject *)c;
}

/* module_end(call, output, raised) */
PyObject *
msp_probe_module_end(PyObject *self, PyObject *all)
{
    PyObject *call, *output;
    int raised;

    (void)self;
    if (!PyArg_ParseTuple(all, "O!Op", &call_object_type, &call, &output, &raised))
        return NULL;
    if (end(&((call_object *)call)->call, raised ? NULL : output, true))
        return NULL;
    Py_RETURN_NONE;
}

/* ---- single values ----------------------------------------------------------------------------------------------- */

/* reserve() -> a number: the place where the record stands that write() gets with that number */
PyObject *
msp_probe_reserve(PyObject *self, PyObject *unused)
{
    msp_record *r = msp_probe.has_unit ? msp_probe_record_get() : NULL;

    (void)self;
    (void)unused;
    if (r == NULL)
        return PyLong_FromLong(0);
    msp_record_hole(r, msp_probe.unit, ++msp_probe.holes);
    msp_probe_commit(r);
    msp_probe_record_put(r);
    return PyLong_FromUnsignedLong(msp_probe.holes);
}

/* write(name, value, path, place=0): one member of "data" with this value */
PyObject *
msp_probe_write(PyObject *self, PyObject *all)
{
    PyObject *value;
    probe_path path;
    Py_ssize_t len, path_len;
    const char *name, *where;
    unsigned long place = 0;
    probe_quiet q;
    msp_record *r;

    (void)self;
    if (!PyArg_ParseTuple(all, "s#Os#|k", &name, &len, &value, &where, &path_len, &place))
        return NULL;
    if (!msp_probe.has_unit || (r = msp_probe_record_get()) == NULL)
        Py_RETURN_NONE;
    msp_probe_enter(&q);
    start_path(&path, where, (size_t)path_len, NULL);
    msp_record_begin(r, msp_probe.unit, name, (size_t)len);
    msp_record_fill(r, (uint32_t)place);
    msp_probe_value(r, value, &path, 0);
    msp_probe_commit_value(r);
    msp_probe_record_put(r);
    msp_probe_leave(&q);
    Py_RETURN_NONE;
}

/* ---- snapshots: a value as it is now, to be written later -------------------------------------------------------- */

typedef struct snapshot {
    PyObject_HEAD msp_record tokens;
    char overflowed;
} snapshot;

static PyMemberDef snapshot_members[] = {
    {"overflowed", T_BOOL, offsetof(snapshot, overflowed), READONLY,
     "whether the value holds inf or NaN (task overflow_check)"},
    {NULL, 0, 0, 0, NULL},
};

static void
snapshot_dealloc(PyObject *self)
{
    msp_record_release(&((snapshot *)self)->tokens);
    PyObject_Free(self);
}

static PyTypeObject snapshot_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.Snapshot",
    .tp_basicsize = sizeof(snapshot),
    .tp_dealloc = snapshot_dealloc,
    .tp_members = snapshot_members,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

bool
msp_probe_put_snapshot(msp_record *r, PyObject *v)
{
    if (Py_TYPE(v) != &snapshot_type)
        return false;
    msp_record_append(r, &((snapshot *)v)->tokens);
    return true;
}

/* snapshot(value, path) -> an object that stands for the value in write() */
PyObject *
msp_probe_snapshot(PyObject *self, PyObject *all)
{
    PyObject *value;
    Py_ssize_t len;
    const char *where;
    probe_path path;
    probe_quiet q;
    uint64_t since;
    snapshot *s;

    (void)self;
    if (!PyArg_ParseTuple(all, "Os#", &value, &where, &len) || PyType_Ready(&snapshot_type) != 0)
        return NULL;
    s = PyObject_New(snapshot, &snapshot_type);
    if (s == NULL)
        return NULL;
    s->tokens = (msp_record){0};
    s->overflowed = false;
    start_path(&path, where, (size_t)len, NULL);
    msp_probe_enter(&q);
    since = msp_probe_watch_overflow();
    msp_probe_value(&s->tokens, value, &path, 0);
    s->overflowed = msp_probe_saw_overflow(since);
    msp_probe_leave(&q);
    return (PyObject *)s;
}

void
msp_probe_save_elements(PyObject *value, probe_path *path)
{
    msp_record *scratch = msp_probe_record_get();

    if (scratch == NULL)
        return;
    msp_probe_thread.saving = true;
    scratch->len = 0;
    msp_probe_value(scratch, value, path, 0);
    msp_probe_thread.saving = false;
    msp_probe_record_put(scratch);
}
