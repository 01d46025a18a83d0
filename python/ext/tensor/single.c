/*
 * single.c - values that scripts save by name: written now, or turned into tokens now and written later.
 */
#include "call/call.h"
#include "tensor/tensor.h"
#include <stddef.h>
#include <string.h>
#include <structmember.h>

static void
start_path(probe_path *path, const char *name, size_t len)
{
    msp_probe_path_begin(path, name, len);
    if (len > path->len) /* files of two long names are not the same one */
        msp_probe_path_push(path, name + path->len, len - path->len);
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
    start_path(&path, where, (size_t)path_len);
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

/* snapshot(value, path, files=True) -> an object that stands for the value in write(); files: tensors go to files where
 * the rules say so */
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
    int files = true;

    (void)self;
    if (!PyArg_ParseTuple(all, "Os#|p", &value, &where, &len, &files) || PyType_Ready(&snapshot_type) != 0)
        return NULL;
    s = PyObject_New(snapshot, &snapshot_type);
    if (s == NULL)
        return NULL;
    s->tokens = (msp_record){0};
    s->overflowed = false;
    start_path(&path, where, (size_t)len);
    path.files = files;
    msp_probe_enter(&q);
    since = msp_probe_watch_overflow();
    msp_probe_value(&s->tokens, value, &path, 0);
    s->overflowed = msp_probe_saw_overflow(since);
    msp_probe_leave(&q);
    return (PyObject *)s;
}

void
msp_probe_write_aside(uint32_t unit, PyObject *name, PyObject *members)
{
    probe_path path;
    Py_ssize_t len;
    const char *text = PyUnicode_AsUTF8AndSize(name, &len);
    msp_record *r = text != NULL && PyDict_Check(members) ? msp_probe_record_get() : NULL;

    if (r == NULL) {
        msp_probe_expect(NULL, "writing a file beside dump.json");
        return;
    }
    start_path(&path, text, (size_t)len);
    msp_record_begin(r, unit, text, (size_t)len);
    msp_record_object(r);
    msp_probe_members(r, members, &path, 1);
    msp_record_end(r);
    msp_probe_commit(r);
    msp_probe_record_put(r);
}

void
msp_probe_save_elements(PyObject *value, probe_path *path)
{
    msp_record *scratch = msp_probe_record_get();

    if (scratch == NULL)
        return;
    path->saving = true;
    msp_probe_value(scratch, value, path, 0);
    path->saving = false;
    msp_probe_record_put(scratch);
}
