/*
 * value.c - Python values as tokens.
 *
 * The common types are written here; whatever else there is (process groups, dtypes, data classes, tensors without
 * plain memory) is turned by one Python function, probe.describe, into plain dicts, lists and scalars, which are
 * written as they are.
 */
#include "call/call.h"
#include "tensor/tensor.h"
#include <string.h>

enum { MAX_DEPTH = 400 };

#define KEY(r, literal) msp_record_key((r), (literal), sizeof(literal) - 1)

void
msp_probe_path_begin(probe_path *path, const char *text, size_t len)
{
    path->len = len < PROBE_NAME_SIZE ? len : PROBE_NAME_SIZE;
    memcpy(path->text, text, path->len);
    path->files = true;
    path->saving = false;
    path->keep = NULL;
    path->no_values = NULL;
}

void
msp_probe_path_push(probe_path *path, const char *part, size_t len)
{
    char sum[9];

    if (path->len + len + 2 > sizeof(path->text) - 64) { /* its checksum, while there is room: names of files differ */
        snprintf(sum, sizeof(sum), "%08x", msp_crc32_bytes(0, part, len));
        part = sum;
        len = 8;
    }
    if (path->len + len + 2 > sizeof(path->text))
        return; /* the record itself keeps its keys */
    path->text[path->len++] = '.';
    memcpy(path->text + path->len, part, len);
    path->len += len;
}

void
msp_probe_path_push_index(probe_path *path, Py_ssize_t i)
{
    char number[20];

    msp_probe_path_push(path, number, msp_probe_digits(number, (uint64_t)i));
}

/* Its UTF-8, lent; a text with a lone surrogate has none, and is shown as "?". */
static const char *
text_of(PyObject *s, Py_ssize_t *len)
{
    const char *p = PyUnicode_AsUTF8AndSize(s, len);

    if (p != NULL)
        return p;
    msp_probe_expect(PyExc_UnicodeEncodeError, "reading text");
    *len = 1;
    return "?";
}

static void
put_text(msp_record *r, PyObject *s)
{
    Py_ssize_t len;
    const char *p = PyUnicode_AsUTF8AndSize(s, &len);
    PyObject *escaped = NULL;

    if (p == NULL) {
        msp_probe_expect(PyExc_UnicodeEncodeError, "reading text");
        escaped = PyUnicode_AsEncodedString(s, "utf-8", "backslashreplace");
    }
    if (escaped != NULL) {
        p = PyBytes_AS_STRING(escaped);
        len = PyBytes_GET_SIZE(escaped);
    } else if (p == NULL) {
        msp_probe_swallow("reading text", "");
        p = "?";
        len = 1;
    }
    msp_record_text(r, p, (size_t)len);
    Py_XDECREF(escaped);
}

/* The text of a dict's key: a new reference, or NULL with an exception set. (PyObject_Str() looks for signals first,
 * whose handlers may raise: texts need not be asked.) */
static PyObject *
key_text(PyObject *key)
{
    if (!PyUnicode_CheckExact(key))
        return PyObject_Str(key);
    Py_INCREF(key);
    return key;
}

/* Beyond 64 bits a number is written as text: its digits, or, when there are thousands, base 16. */
static void
put_int(msp_record *r, PyObject *v)
{
    int overflow;
    long long n = PyLong_AsLongLongAndOverflow(v, &overflow);
    PyObject *digits = overflow == 0 ? NULL : PyNumber_ToBase(v, 10);

    if (overflow != 0 && digits == NULL) {
        msp_probe_expect(PyExc_ValueError, "writing a number"); /* the interpreter refuses to make that many */
        digits = PyNumber_ToBase(v, 16);
    }
    msp_probe_expect(NULL, "writing a number");
    if (overflow == 0)
        msp_record_int(r, n);
    else if (digits != NULL)
        put_text(r, digits);
    else
        msp_record_null(r);
    Py_XDECREF(digits);
}

/* ---- plain structures: written as they are ----------------------------------------------------------------------- */

static int
plain_sequence(msp_record *r, PyObject *seq, int depth)
{
    PyObject *fast = PySequence_Fast(seq, "a sequence");
    int failed = fast == NULL ? -1 : 0;

    msp_record_array(r);
    for (Py_ssize_t i = 0; !failed && i < PySequence_Fast_GET_SIZE(fast); i++)
        failed = msp_probe_plain(r, PySequence_Fast_GET_ITEM(fast, i), depth + 1);
    msp_record_end(r);
    Py_XDECREF(fast);
    return failed;
}

int
msp_probe_plain_members(msp_record *r, PyObject *dict, int depth)
{
    PyObject *key, *value;
    Py_ssize_t pos = 0, len;
    const char *p;
    int failed = 0;

    while (!failed && PyDict_Next(dict, &pos, &key, &value)) {
        PyObject *text = key_text(key);

        if (text == NULL)
            return -1;
        p = text_of(text, &len);
        msp_record_key(r, p, (size_t)len);
        failed = msp_probe_plain(r, value, depth + 1);
        Py_DECREF(text);
    }
    return failed;
}

static int
plain_dict(msp_record *r, PyObject *dict, int depth)
{
    int failed;

    msp_record_object(r);
    failed = msp_probe_plain_members(r, dict, depth);
    msp_record_end(r);
    return failed;
}

int
msp_probe_plain(msp_record *r, PyObject *v, int depth)
{
    if (depth > MAX_DEPTH || v == Py_None)
        msp_record_null(r);
    else if (PyBool_Check(v))
        msp_record_bool(r, v == Py_True);
    else if (PyLong_Check(v))
        put_int(r, v);
    else if (PyFloat_Check(v))
        msp_record_float(r, PyFloat_AS_DOUBLE(v));
    else if (PyUnicode_Check(v))
        put_text(r, v);
    else if (PyDict_Check(v))
        return plain_dict(r, v, depth);
    else if (PyList_Check(v) || PyTuple_Check(v))
        return plain_sequence(r, v, depth);
    else
        msp_record_null(r);
    return 0;
}

/* ---- values of a call -------------------------------------------------------------------------------------------- */

/* {"type": type, "value": ...} left open behind the key "value" */
static void
begin_leaf(msp_record *r, const char *type)
{
    msp_record_object(r);
    KEY(r, "type");
    msp_record_text(r, type, strlen(type));
    KEY(r, "value");
}

/* A bound of a slice as a whole number: a new reference, or NULL when it is none. */
static PyObject *
bound_of(PyObject *v)
{
    msp_tensor view;

    if (v == Py_None)
        return NULL;
    if (!msp_probe_is_tensor(v))
        return PyNumber_Long(v);
    if (!msp_probe_tensor_view(&view, v) || view.numel != 1)
        return NULL;
    return PyLong_FromDouble(msp_dtype_load_f64(view.dtype, view.data));
}

static int
put_slice(msp_record *r, PyObject *v)
{
    PySliceObject *s = (PySliceObject *)v;
    PyObject *parts[] = {s->start, s->stop, s->step};

    begin_leaf(r, "slice");
    msp_record_array(r);
    for (int i = 0; i < 3; i++) {
        PyObject *n = bound_of(parts[i]);

        if (n != NULL)
            put_int(r, n);
        else
            msp_record_null(r);
        Py_XDECREF(n);
        msp_probe_expect(PyExc_TypeError, "reading a slice"); /* what slices something else than a tensor */
    }
    msp_record_end(r);
    msp_record_end(r);
    return 0;
}

/* True when v was one of the simple types and is written. */
static bool
put_simple(msp_record *r, PyObject *v)
{
    if (v == Py_None) {
        msp_record_null(r);
    } else if (PyBool_Check(v)) {
        begin_leaf(r, "bool");
        msp_record_bool(r, v == Py_True);
        msp_record_end(r);
    } else if (PyLong_CheckExact(v)) {
        begin_leaf(r, "int");
        put_int(r, v);
        msp_record_end(r);
    } else if (PyFloat_CheckExact(v)) {
        begin_leaf(r, "float");
        msp_record_float(r, PyFloat_AS_DOUBLE(v));
        msp_record_end(r);
    } else if (PyUnicode_CheckExact(v)) {
        begin_leaf(r, "str");
        put_text(r, v);
        msp_record_end(r);
    } else if (PySlice_Check(v)) {
        return put_slice(r, v) == 0;
    } else if (v == Py_Ellipsis) {
        begin_leaf(r, "ellipsis");
        msp_record_text(r, "...", 3);
        msp_record_end(r);
    } else {
        return false;
    }
    return true;
}

static int put_any(msp_record *r, PyObject *v, probe_path *path, int depth);

/* What cannot be read stands there with its type and the reason; everything around it is recorded as usual. */
static void
put_unreadable(msp_record *r, const char *type, const probe_path *path)
{
    char name[sizeof(path->text) + 1];

    memcpy(name, path->text, path->len);
    name[path->len] = '\0';
    msp_record_object(r);
    KEY(r, "type");
    msp_record_text(r, type, strlen(type));
    KEY(r, "value");
    msp_record_null(r);
    msp_probe_mark(r, "reading a value", name);
    msp_record_end(r);
}

static void
put_guarded(msp_record *r, PyObject *v, probe_path *path, int depth, bool odd)
{
    size_t before = r->len;

    if ((odd ? msp_probe_odd(r, v, path, depth) : put_any(r, v, path, depth)) == 0)
        return;
    r->len = before;
    put_unreadable(r, msp_probe_is_tensor(v) ? "torch.Tensor" : Py_TYPE(v)->tp_name, path);
}

void
msp_probe_value(msp_record *r, PyObject *v, probe_path *path, int depth)
{
    if (!put_simple(r, v))
        put_guarded(r, v, path, depth, false);
}

void
msp_probe_values(msp_record *r, PyObject *seq, probe_path *path, Py_ssize_t first, int depth)
{
    size_t len = path->len;
    bool tuple = PyTuple_Check(seq);

    for (Py_ssize_t i = 0; i < (tuple ? PyTuple_GET_SIZE(seq) : PyList_GET_SIZE(seq)); i++) {
        PyObject *item = tuple ? PyTuple_GET_ITEM(seq, i) : PyList_GET_ITEM(seq, i);

        Py_INCREF(item); /* a list may change while a tensor in it is read */
        msp_probe_path_push_index(path, first + i);
        msp_probe_value(r, item, path, depth);
        path->len = len;
        Py_DECREF(item);
    }
}

/* torch's own results of several tensors have names for them, too, but no _fields: they are lists. */
static bool
has_fields(PyObject *v)
{
    return PyTuple_Check(v) && !PyTuple_CheckExact(v) &&
           msp_probe_has((PyObject *)Py_TYPE(v), "_fields", "looking for a result's fields");
}

void
msp_probe_sequence(msp_record *r, const char *key, PyObject *v, probe_path *path)
{
    msp_record_key(r, key, strlen(key));
    if (has_fields(v)) {
        msp_probe_value(r, v, path, 0);
        return;
    }
    msp_record_array(r);
    if (PyTuple_Check(v)) {
        msp_probe_values(r, v, path, 0, 0);
    } else {
        msp_probe_path_push_index(path, 0);
        msp_probe_value(r, v, path, 0);
    }
    msp_record_end(r);
}

/* What stands under these two names is a device or a type even when it is written as text. */
static bool
is_device_or_dtype(const char *key, PyObject *value)
{
    return value != Py_None && (strcmp(key, "device") == 0 || strcmp(key, "dtype") == 0);
}

void
msp_probe_members(msp_record *r, PyObject *dict, probe_path *path, int depth)
{
    PyObject *items = PyDict_Items(dict); /* a copy: reading a tensor may run other threads */
    size_t len = path->len;
    Py_ssize_t n;
    const char *p;

    for (Py_ssize_t i = 0; items != NULL && i < PyList_GET_SIZE(items); i++) {
        PyObject *pair = PyList_GET_ITEM(items, i), *value = PyTuple_GET_ITEM(pair, 1);
        PyObject *text = key_text(PyTuple_GET_ITEM(pair, 0));

        if (text == NULL) {
            msp_probe_swallow("a key of a dict", "");
            continue;
        }
        p = text_of(text, &n);
        msp_record_key(r, p, (size_t)n);
        msp_probe_path_push(path, p, (size_t)n);
        if (is_device_or_dtype(p, value))
            put_guarded(r, value, path, depth, true);
        else
            msp_probe_value(r, value, path, depth);
        path->len = len;
        Py_DECREF(text);
    }
    Py_XDECREF(items);
    msp_probe_expect(NULL, "reading a dict");
}

static int
put_any(msp_record *r, PyObject *v, probe_path *path, int depth)
{
    if (msp_probe_put_snapshot(r, v))
        return 0;
    if (msp_probe_is_tensor(v))
        return msp_probe_tensor(r, v, path);
    if (depth > MAX_DEPTH) {
        msp_record_null(r);
        return 0;
    }
    if (PyTuple_CheckExact(v) || PyList_CheckExact(v)) {
        msp_record_array(r);
        msp_probe_values(r, v, path, 0, depth + 1);
        msp_record_end(r);
        return 0;
    }
    if (PyDict_CheckExact(v)) {
        msp_record_object(r);
        msp_probe_members(r, v, path, depth + 1);
        msp_record_end(r);
        return 0;
    }
    return msp_probe_odd(r, v, path, depth);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static PyObject *
ask_python(PyObject *v, const probe_path *path)
{
    const probe_path *before = msp_probe_thread.described;
    PyObject *name, *said;

    if (msp_probe.describe == NULL)
        Py_RETURN_NONE;
    name = PyUnicode_DecodeUTF8(path->text, (Py_ssize_t)path->len, "replace");
    msp_probe_thread.described = path; /* for what it asks: wanted() and file() */
    said = name == NULL ? NULL : msp_probe_ask_again(msp_probe.describe, v, name);
    msp_probe_thread.described = before;
    Py_XDECREF(name);
    return said;
}

/*
 * probe.describe(v, path) says what it is: a structure of plain values, to be written as it is; or a tuple that begins
 * with how to go on:
 *     ("items", list)                         a sequence of a kind of its own
 *     ("members", dict)                       a mapping of a kind of its own
 *     ("tensor", plain, type, extra, shape)   a tensor to be read instead, the type's text, further fields (a dict or
 *                                             None), and the shape to be shown (a tuple; None: its own)
 *     ("waiting", ticket, copy, type, extra, shape, dtype)
 *                                             statistics that come later: see device.c
 */
int
msp_probe_odd(msp_record *r, PyObject *v, probe_path *path, int depth)
{
    PyObject *said = ask_python(v, path), *second, *type, *extra, *shape;
    int failed = 0;

    if (said == NULL)
        return -1;
    second = PyTuple_CheckExact(said) && PyTuple_GET_SIZE(said) > 1 ? PyTuple_GET_ITEM(said, 1) : NULL;
    if (second == NULL) {
        failed = msp_probe_plain(r, said, depth);
    } else if (PyTuple_GET_SIZE(said) == 7) {
        failed = msp_probe_device_put(r, v, said, path);
    } else if (PyTuple_GET_SIZE(said) == 5 && msp_probe_is_plain_tensor(second)) {
        type = PyTuple_GET_ITEM(said, 2);
        extra = PyTuple_GET_ITEM(said, 3);
        shape = PyTuple_GET_ITEM(said, 4);
        failed = msp_probe_tensor_as(r, second, path, PyUnicode_Check(type) ? PyUnicode_AsUTF8(type) : NULL, v,
                                     extra == Py_None ? NULL : extra, shape == Py_None ? NULL : shape);
    } else if (PyDict_CheckExact(second)) {
        msp_record_object(r);
        msp_probe_members(r, second, path, depth + 1);
        msp_record_end(r);
    } else if (PyList_CheckExact(second)) {
        msp_record_array(r);
        msp_probe_values(r, second, path, 0, depth + 1);
        msp_record_end(r);
    } else {
        msp_record_null(r);
    }
    Py_DECREF(said);
    return failed;
}
