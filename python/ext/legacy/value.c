/*
 * value.c - what the older tools write of a call: a member per tensor or number, and the call stack.
 */
#include "call/call.h"
#include "legacy/legacy.h"
#include <stdio.h>
#include <string.h>

/* Elements of more bytes than this are written by the training process, straight from the tensor's memory. */
enum { DIRECT = 256 << 10 };

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

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
    return msp_legacy.form == FORM_HOOKS || !msp_legacy.floats_only ||
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
    if (msp_legacy.form == FORM_PTDBG && !msp_legacy.overflow) {
        msp_probe_measure(view, &stats, NULL);
        note.stats = &stats;
    }
    if (msp_legacy.form == FORM_HOOKS || (size <= DIRECT && msp_probe.data_dir != NULL))
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
    if (msp_legacy.form == FORM_HOOKS || msp_legacy.floats_only)
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
    } else if ((PyTuple_Check(v) || PyList_Check(v)) && depth < LEGACY_NESTING) {
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

void
msp_legacy_write(const legacy_shown *s)
{
    msp_record *r = msp_probe_record_get();

    if (r == NULL)
        return;
    msp_record_begin(r, msp_probe.unit, s->name, s->len);
    msp_record_fill(r, s->stack);
    msp_record_object(r);
    if (msp_legacy.stack == STACK_FIRST || msp_legacy.stack == STACK_ONLY)
        put_stack(r, s->name, s->len);
    if (msp_legacy.stack != STACK_ONLY && s->outputs_first)
        put_section(r, s->name, s->len, "output", NULL, s->output);
    if (msp_legacy.stack != STACK_ONLY)
        put_section(r, s->name, s->len, "input", s->self, s->input);
    if (msp_legacy.stack != STACK_ONLY && !s->outputs_first)
        put_section(r, s->name, s->len, "output", NULL, s->output);
    if (msp_legacy.stack == STACK_LAST)
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

bool
msp_legacy_holds_overflow(PyObject *v, int depth)
{
    bool found = false;

    if (msp_probe_is_tensor(v))
        return tensor_overflowed(v);
    if (PyFloat_Check(v))
        return PyFloat_AS_DOUBLE(v) - PyFloat_AS_DOUBLE(v) != 0; /* inf - inf is no number */
    if (PyTuple_Check(v) || PyList_Check(v))
        for (Py_ssize_t i = 0; !found && depth < LEGACY_NESTING && i < PySequence_Fast_GET_SIZE(v); i++)
            found = msp_legacy_holds_overflow(PySequence_Fast_GET_ITEM(v, i), depth + 1);
    return found;
}
