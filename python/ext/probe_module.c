/*
 * probe_module.c - modules (levels L0 and mix), and single values.
 *
 * A module's call is two calls of ours, from hooks that Python sets: begin() before the module's forward and end()
 * behind it.
 */
#include "probe.h"
#include <stddef.h>
#include <string.h>
#include <structmember.h>

#define KEY(r, literal) msp_record_key((r), (literal), sizeof(literal) - 1)

typedef struct module_call {
    PyObject_HEAD msp_record record;
    bool has_record;
    probe_edges *edges;
    probe_site site;
    char *name;
    size_t len;
    int64_t generation;
    uint64_t ticket;         /* the last one before the call */
    bool poisoned;           /* an input holds inf or NaN */
    kept_tensor *kept;       /* overflow_check: the inputs' elements */
    PyObject *args, *kwargs; /* kept where their values may be wanted after the call: scope */
} module_call;

static void
module_call_dealloc(PyObject *self)
{
    module_call *m = (module_call *)self;

    msp_record_release(&m->record);
    msp_probe_edges_drop(m->edges);
    msp_probe_keep_drop(&m->kept);
    Py_XDECREF(m->args);
    Py_XDECREF(m->kwargs);
    PyMem_Free(m->name);
    PyObject_Free(self);
}

static PyTypeObject module_call_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.ModuleCall",
    .tp_basicsize = sizeof(module_call),
    .tp_dealloc = module_call_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static void
start_path(probe_path *path, const char *name, size_t len, const char *section)
{
    path->len = len < 400 ? len : 400;
    memcpy(path->text, name, path->len);
    path->files = true;
    if (section != NULL)
        msp_probe_path_push(path, section, strlen(section));
}

static void
put_sequence(msp_record *r, const char *key, PyObject *v, probe_path *path)
{
    msp_record_key(r, key, strlen(key));
    msp_record_array(r);
    if (PyTuple_Check(v) || PyList_Check(v)) {
        msp_probe_values(r, v, path, 0, 0);
    } else {
        msp_probe_path_push_index(path, 0);
        msp_probe_value(r, v, path, 0);
    }
    msp_record_end(r);
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

/* ---- the open modules
 * ------------------------------------------------------------------------------------------------ */

static int
push_module(PyObject *name)
{
    if (msp_probe_thread.modules == NULL)
        msp_probe_thread.modules = PyList_New(0);
    return msp_probe_thread.modules == NULL ? -1 : PyList_Append(msp_probe_thread.modules, name);
}

/* Take the module's name off the open ones, and whatever a raised exception left above it. */
static void
pop_module(const char *name)
{
    PyObject *open = msp_probe_thread.modules;
    Py_ssize_t n = open == NULL ? 0 : PyList_GET_SIZE(open);

    for (Py_ssize_t i = n; i-- > 0;)
        if (PyUnicode_CompareWithASCIIString(PyList_GET_ITEM(open, i), name) == 0) {
            PyList_SetSlice(open, i, n, NULL);
            return;
        }
}

/* ---- before
 * ------------------------------------------------------------------------------------------------------------ */

static void
put_inputs(const module_call *m, msp_record *r, PyObject *args, PyObject *kwargs)
{
    probe_path path;

    start_path(&path, m->name, m->len, "input");
    put_sequence(r, "input_args", args, &path);
    start_path(&path, m->name, m->len, "kwargs");
    put_members(r, "input_kwargs", kwargs, &path);
}

static void
begin_record(module_call *m, PyObject *args, PyObject *kwargs)
{
    m->has_record = true;
    msp_record_begin(&m->record, msp_probe.unit, m->name, m->len);
    msp_record_object(&m->record);
    m->ticket = msp_probe_watch_overflow();
    msp_probe_thread.keep = msp_probe.rules.overflow ? &m->kept : NULL;
    if (msp_probe.rules.inputs)
        put_inputs(m, &m->record, args, kwargs);
    msp_probe_thread.keep = NULL;
    m->poisoned = msp_probe_saw_overflow(m->ticket);
}

static module_call *
new_call(PyObject *name)
{
    module_call *m;
    Py_ssize_t len;
    const char *text = PyUnicode_AsUTF8AndSize(name, &len);

    if (text == NULL || PyType_Ready(&module_call_type) != 0)
        return NULL;
    m = PyObject_New(module_call, &module_call_type);
    if (m == NULL)
        return NULL;
    memset((char *)m + sizeof(PyObject), 0, sizeof(*m) - sizeof(PyObject));
    m->name = PyMem_Malloc((size_t)len + 1);
    if (m->name == NULL) {
        Py_DECREF(m);
        return (module_call *)PyErr_NoMemory();
    }
    memcpy(m->name, text, (size_t)len + 1);
    m->len = (size_t)len;
    m->generation = msp_probe.generation;
    return m;
}

static bool
wants_record(const module_call *m)
{
    return msp_probe.rules.forward && !msp_probe.rules.structure && msp_probe_listed(m->name, m->len);
}

/* module_begin(name, args, kwargs) -> a call for module_end(); None: nothing is recorded now */
PyObject *
msp_probe_module_begin(PyObject *self, PyObject *all)
{
    PyObject *name, *args, *kwargs;
    module_call *m;
    probe_quiet q;

    (void)self;
    if (!PyArg_ParseTuple(all, "UOO", &name, &args, &kwargs))
        return NULL;
    if (!msp_probe.on)
        Py_RETURN_NONE;
    m = new_call(name);
    if (m == NULL)
        return NULL;
    msp_probe_enter(&q);
    msp_probe_scope_enter(m->name, m->len);
    if (msp_probe.rules.backward || msp_probe.rules.construct)
        m->edges = msp_probe_edges_before(NULL, args, kwargs, true);
    if (push_module(name) != 0)
        PyErr_Clear();
    if (wants_record(m) && msp_probe_in_scope())
        begin_record(m, args, kwargs);
    if (msp_probe.rules.scope_begin != NULL) {
        Py_INCREF(args);
        Py_INCREF(kwargs);
        m->args = args;
        m->kwargs = kwargs;
    }
    msp_probe_leave(&q);
    return (PyObject *)m;
}

/* ---- after
 * --------------------------------------------------------------------------------------------------------------- */

static void
put_outputs(const module_call *m, msp_record *r, PyObject *output, PyObject *parameters, bool *overflowed)
{
    uint64_t since = msp_probe_watch_overflow();
    probe_path path;

    if (output != NULL && msp_probe.rules.outputs) {
        start_path(&path, m->name, m->len, "output");
        put_sequence(r, "output", output, &path);
    }
    *overflowed = msp_probe_saw_overflow(since);
    if (msp_probe.rules.inputs) {
        start_path(&path, m->name, m->len, "parameters");
        put_members(r, "parameters", parameters, &path);
    }
}

static void
save_elements(module_call *m, PyObject *output, PyObject *parameters)
{
    msp_record *scratch = msp_probe_record_get();
    bool unused;

    msp_probe_keep_save(&m->kept);
    if (scratch == NULL)
        return;
    msp_probe_thread.saving = true;
    msp_record_begin(scratch, msp_probe.unit, m->name, m->len);
    put_outputs(m, scratch, output, parameters, &unused);
    msp_probe_thread.saving = false;
    msp_probe_record_put(scratch);
}

/* Returns true when the program is to be stopped, with an exception set. */
static bool
end_record(module_call *m, PyObject *output, PyObject *parameters)
{
    uint64_t since = msp_probe.tickets;
    bool overflowed;

    put_outputs(m, &m->record, output, parameters, &overflowed);
    overflowed |= msp_probe_device_overflowed();
    if (msp_probe.rules.overflow && !overflowed && !msp_probe_saw_overflow(since) && !m->poisoned) {
        msp_probe_device_forget(m->ticket);
        return false;
    }
    if (msp_probe.rules.overflow)
        save_elements(m, output, parameters);
    KEY(&m->record, "is_recompute");
    msp_record_bool(&m->record, m->site.recompute);
    msp_record_end(&m->record);
    msp_probe_commit_value(&m->record);
    return msp_probe.rules.overflow && overflowed && msp_probe_overflow(m->name, m->site.stack);
}

/* A range is looked at when the module ends: one that began before it gets its inputs read now. */
static bool
finish(module_call *m, PyObject *output, PyObject *parameters)
{
    bool selected;

    if (m->generation != msp_probe.generation || !msp_probe.live)
        return false;
    selected = msp_probe_selects(m->name, m->len);
    msp_probe_note_site(m->name, m->len, &m->site, selected);
    if (selected && !m->has_record && m->args != NULL && wants_record(m))
        begin_record(m, m->args, m->kwargs);
    return selected && m->has_record && end_record(m, output, parameters);
}

/* module_end(call, output, parameters, backward_name, raised) */
PyObject *
msp_probe_module_end(PyObject *self, PyObject *all)
{
    PyObject *call, *output, *parameters, *backward;
    module_call *m;
    Py_ssize_t len;
    const char *name;
    probe_quiet q;
    int raised;
    bool stop;

    (void)self;
    if (!PyArg_ParseTuple(all, "O!OOUp", &module_call_type, &call, &output, &parameters, &backward, &raised))
        return NULL;
    m = (module_call *)call;
    name = PyUnicode_AsUTF8AndSize(backward, &len);
    if (name == NULL)
        return NULL;
    msp_probe_enter(&q);
    pop_module(m->name);
    m->site = msp_probe_stack(0);
    stop = finish(m, raised ? NULL : output, parameters);
    m->has_record = false;
    msp_probe_scope_leave(m->name, m->len);
    if (!stop && !raised && m->edges != NULL)
        msp_probe_edges_after(m->edges, output, name, (size_t)len, true);
    else
        msp_probe_edges_drop(m->edges);
    m->edges = NULL;
    msp_probe_leave(&q);
    if (stop)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- single values
 * ---------------------------------------------------------------------------------------------------------- */

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

/* ---- snapshots: a value as it is now, to be written later
 * --------------------------------------------------------------------- */

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

/* save(value, path): task overflow_check: write the elements of a value whose record names their files */
PyObject *
msp_probe_save(PyObject *self, PyObject *all)
{
    msp_record *scratch;
    PyObject *value;
    Py_ssize_t len;
    const char *where;
    probe_path path;
    probe_quiet q;

    (void)self;
    if (!PyArg_ParseTuple(all, "Os#", &value, &where, &len))
        return NULL;
    scratch = msp_probe_record_get();
    if (scratch != NULL) {
        start_path(&path, where, (size_t)len, NULL);
        msp_probe_enter(&q);
        msp_probe_thread.saving = true;
        scratch->len = 0;
        msp_probe_value(scratch, value, &path, 0);
        msp_probe_thread.saving = false;
        msp_probe_leave(&q);
    }
    msp_probe_record_put(scratch);
    Py_RETURN_NONE;
}

/* selects(name) -> bool: whether scope and list let a record of this name pass now */
PyObject *
msp_probe_py_selects(PyObject *self, PyObject *name)
{
    Py_ssize_t len;
    const char *text = PyUnicode_AsUTF8AndSize(name, &len);

    (void)self;
    if (text == NULL)
        return NULL;
    return PyBool_FromLong(msp_probe_selects(text, (size_t)len));
}
