/*
 * value.c - the arguments and results of a call as tokens of a record.
 */
#include "mindspore/dump.h"

#define MAX_DEPTH 24 /* of nested arguments; below it stands null */

/* Put "type" and "value" of an object that is neither a container nor a tensor. */
static void
put_leaf(walk *w, const char *type, size_t len)
{
    msp_record_object(&w->r);
    msp_record_key(&w->r, "type", 4);
    msp_record_text(&w->r, type, len);
    msp_record_key(&w->r, "value", 5);
}

static bool
put_text(walk *w, PyObject *text)
{
    PyObject *bytes = PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");

    if (bytes == NULL)
        return false;
    msp_record_text(&w->r, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    Py_DECREF(bytes);
    return true;
}

/* Beyond 64 bits as a double, and beyond that null. */
static void
put_int(walk *w, PyObject *v)
{
    int overflow;
    long long n = PyLong_AsLongLongAndOverflow(v, &overflow);
    double d = overflow != 0 ? PyLong_AsDouble(v) : 0;

    if (overflow == 0)
        msp_record_int(&w->r, n);
    else if (d == -1.0 && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        msp_record_null(&w->r);
    } else
        msp_record_float(&w->r, d);
}

static bool
walk_int(walk *w, PyObject *v)
{
    put_leaf(w, "int", 3);
    put_int(w, v);
    msp_record_end(&w->r);
    return true;
}

static bool
walk_slice(walk *w, PyObject *v)
{
    PySliceObject *s = (PySliceObject *)v;
    PyObject *parts[3] = {s->start, s->stop, s->step};

    put_leaf(w, "slice", 5);
    msp_record_array(&w->r);
    for (int i = 0; i < 3; i++) {
        if (PyLong_Check(parts[i]))
            put_int(w, parts[i]);
        else
            msp_record_null(&w->r);
    }
    msp_record_end(&w->r);
    msp_record_end(&w->r);
    return true;
}

static bool
walk_dtype(walk *w, PyObject *v)
{
    PyObject *text = PyObject_Str(v);
    const char *name = msp_dtype_mindspore_name(msp_py_dtype_of(w->dump, v));
    bool good = text != NULL;

    if (good) {
        put_leaf(w, "mindspore.dtype", 15);
        if (name != NULL)
            msp_record_text(&w->r, name, strlen(name));
        else
            good = put_text(w, text);
        msp_record_end(&w->r);
    }
    Py_XDECREF(text);
    return good;
}

static bool
walk_plain(walk *w, PyObject *v)
{
    bool good = true;

    if (v == Py_None || v == Py_Ellipsis) {
        msp_record_null(&w->r);
    } else if (PyBool_Check(v)) {
        put_leaf(w, "bool", 4);
        msp_record_bool(&w->r, v == Py_True);
        msp_record_end(&w->r);
    } else if (PyLong_Check(v)) {
        good = walk_int(w, v);
    } else if (PyFloat_Check(v)) {
        put_leaf(w, "float", 5);
        msp_record_float(&w->r, PyFloat_AS_DOUBLE(v));
        msp_record_end(&w->r);
    } else if (PyUnicode_Check(v)) {
        put_leaf(w, "str", 3);
        good = put_text(w, v);
        msp_record_end(&w->r);
    } else if (PySlice_Check(v)) {
        good = walk_slice(w, v);
    } else if (PyObject_TypeCheck(v, w->dump->dtype_type)) {
        good = walk_dtype(w, v);
    } else {
        msp_record_null(&w->r);
    }
    return good;
}

/* ---- containers ------------------------------------------------------------------------------------------------- */

/* The way to an element, in the name of its file: ".<step>". Returns the length before, for way_back. */
static size_t
way_to(walk *w, const char *step)
{
    size_t before = w->len;
    int n = snprintf(w->name + w->len, sizeof w->name - w->len, ".%s", step);

    w->len = n < 0 || w->len + (size_t)n >= sizeof w->name ? sizeof w->name - 1 : w->len + (size_t)n;
    for (size_t i = before; i < w->len; i++)
        if (w->name[i] == '/')
            w->name[i] = '_';
    return before;
}

static bool
walk_sequence(walk *w, PyObject *v)
{
    PyObject *fast = PySequence_Fast(v, "no sequence");
    bool good = fast != NULL;

    msp_record_array(&w->r);
    for (Py_ssize_t i = 0; good && i < PySequence_Fast_GET_SIZE(fast); i++) {
        char step[24];
        size_t before;

        snprintf(step, sizeof step, "%zd", i);
        before = way_to(w, step);
        good = msp_py_walk_value(w, PySequence_Fast_GET_ITEM(fast, i));
        w->len = before;
    }
    msp_record_end(&w->r);
    Py_XDECREF(fast);
    return good;
}

static bool
walk_dict(walk *w, PyObject *v)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    bool good = true;

    msp_record_object(&w->r);
    while (good && PyDict_Next(v, &at, &key, &value)) {
        PyObject *text = PyObject_Str(key);
        PyObject *bytes = text != NULL ? PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace") : NULL;

        good = bytes != NULL;
        if (good) {
            size_t before = way_to(w, PyBytes_AS_STRING(bytes));

            msp_record_key(&w->r, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
            good = msp_py_walk_value(w, value);
            w->len = before;
        }
        Py_XDECREF(text);
        Py_XDECREF(bytes);
    }
    msp_record_end(&w->r);
    return good;
}

bool
msp_py_walk_value(walk *w, PyObject *v)
{
    bool good;

    if (PyObject_TypeCheck(v, w->dump->tensor_type))
        return msp_py_walk_tensor(w, v);
    if (!PyTuple_Check(v) && !PyList_Check(v) && !PyDict_Check(v))
        return walk_plain(w, v);
    if (w->depth >= MAX_DEPTH) {
        msp_record_null(&w->r);
        return true;
    }
    w->depth++;
    good = PyDict_Check(v) ? walk_dict(w, v) : walk_sequence(w, v);
    w->depth--;
    return good;
}
