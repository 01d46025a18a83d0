/*
 * dump.c - _core.Dump: a dump in the making, for a framework whose calls are seen in Python.
 *
 * Python says what was called; here its arguments are walked, tensors measured, and records built and committed. A part
 * of a record is a bytes object of tokens, so that inputs are measured before the call that may change them and
 * gradients when they arrive.
 */
#include "types/types.h"
#include "mindspore/dump.h"
#include "stack/stack.h"

static void
wait_unlocked(bool begin, void *payload)
{
    PyThreadState **saved = payload;

    if (begin)
        *saved = PyEval_SaveThread();
    else
        PyEval_RestoreThread(*saved);
}

static bool
is_open(dump_object *d, bool with_unit)
{
    if (d->collect != NULL && (d->has_unit || !with_unit))
        return true;
    PyErr_SetString(PyExc_ValueError, "the dump is closed");
    return false;
}

static PyObject *
dump_part(PyObject *self, PyObject *args)
{
    dump_object *d = (dump_object *)self;
    walk w = {.dump = d};
    PyObject *value, *tokens, *result;
    const char *name;
    Py_ssize_t len;
    int save;

    if (!PyArg_ParseTuple(args, "s#Op:part", &name, &len, &value, &save) || !is_open(d, true))
        return NULL;
    w.len = (size_t)len < MAX_FILE_NAME ? (size_t)len : MAX_FILE_NAME;
    memcpy(w.name, name, w.len);
    for (size_t i = 0; i < w.len; i++)
        if (w.name[i] == '/')
            w.name[i] = '_';
    w.save = save != 0;
    if (!msp_py_walk_value(&w, value) || w.r.failed) {
        msp_record_release(&w.r);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    tokens = PyBytes_FromStringAndSize((const char *)w.r.p, (Py_ssize_t)w.r.len);
    msp_record_release(&w.r);
    result = tokens != NULL ? PyTuple_Pack(2, tokens, w.is_bad ? Py_True : Py_False) : NULL;
    Py_XDECREF(tokens);
    return result;
}

static bool put_tree(msp_record *r, PyObject *tree);

static bool
put_list(msp_record *r, PyObject *list)
{
    bool good = true;

    msp_record_array(r);
    for (Py_ssize_t i = 0; good && i < PyList_GET_SIZE(list); i++)
        good = put_tree(r, PyList_GET_ITEM(list, i));
    msp_record_end(r);
    return good;
}

static bool
put_dict(msp_record *r, PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    msp_record_object(r);
    while (PyDict_Next(dict, &at, &key, &value)) {
        Py_ssize_t len;
        const char *text = PyUnicode_AsUTF8AndSize(key, &len);

        if (text == NULL)
            return false;
        msp_record_key(r, text, (size_t)len);
        if (!put_tree(r, value))
            return false;
    }
    msp_record_end(r);
    return true;
}

/* Append tokens of part(), a text, null for None, or lists and dicts of these. */
static bool
put_tree(msp_record *r, PyObject *tree)
{
    bool good = true;

    if (Py_EnterRecursiveCall(" in a record"))
        return false;
    if (tree == Py_None) {
        msp_record_null(r);
    } else if (PyBytes_Check(tree)) {
        msp_record part = {.p = (unsigned char *)PyBytes_AS_STRING(tree), .len = (size_t)PyBytes_GET_SIZE(tree)};

        part.cap = part.len;
        msp_record_append(r, &part);
    } else if (PyUnicode_Check(tree)) {
        Py_ssize_t len;
        const char *text = PyUnicode_AsUTF8AndSize(tree, &len);

        good = text != NULL;
        if (good)
            msp_record_text(r, text, (size_t)len);
    } else if (PyList_Check(tree)) {
        good = put_list(r, tree);
    } else if (PyDict_Check(tree)) {
        good = put_dict(r, tree);
    } else {
        PyErr_SetString(PyExc_TypeError, "a record holds tokens, texts, None, lists and dicts");
        good = false;
    }
    Py_LeaveRecursiveCall();
    return good;
}

static PyObject *
commit_record(dump_object *d, msp_record *r)
{
    PyThreadState *saved = NULL;
    msp_error err;
    msp_status st = msp_collect_commit(d->collect, r, wait_unlocked, &saved, &err);

    msp_record_release(r);
    if (st != MSP_OK)
        return msp_py_raise(d->state, st, &err);
    Py_RETURN_NONE;
}

static PyObject *
dump_commit(PyObject *self, PyObject *args)
{
    dump_object *d = (dump_object *)self;
    const char *name, *parent;
    Py_ssize_t len, parent_len;
    unsigned int stack;
    PyObject *tree;
    msp_record r = {0};

    if (!PyArg_ParseTuple(args, "s#OIz#:commit", &name, &len, &tree, &stack, &parent, &parent_len) || !is_open(d, true))
        return NULL;
    msp_record_begin(&r, d->unit, name, (size_t)len);
    if (!put_tree(&r, tree)) {
        msp_record_release(&r);
        return NULL;
    }
    if (stack != 0 || parent != NULL)
        msp_record_place(&r, stack, parent, parent != NULL ? (size_t)parent_len : 0);
    return commit_record(d, &r);
}

static PyObject *
dump_fill(PyObject *self, PyObject *args)
{
    dump_object *d = (dump_object *)self;
    const char *name;
    Py_ssize_t len;
    unsigned int place;
    PyObject *tree;
    msp_record r = {0};

    if (!PyArg_ParseTuple(args, "Is#O:fill", &place, &name, &len, &tree) || !is_open(d, true))
        return NULL;
    msp_record_begin(&r, d->unit, name, (size_t)len);
    if (!put_tree(&r, tree)) {
        msp_record_release(&r);
        return NULL;
    }
    msp_record_fill(&r, place);
    return commit_record(d, &r);
}

static PyObject *
dump_site(PyObject *self, PyObject *args)
{
    dump_object *d = (dump_object *)self;
    const char *name, *parent;
    Py_ssize_t len, parent_len;
    unsigned int stack;
    msp_record r = {0};

    if (!PyArg_ParseTuple(args, "s#Iz#:site", &name, &len, &stack, &parent, &parent_len) || !is_open(d, true))
        return NULL;
    msp_record_site(&r, d->unit, name, (size_t)len, stack, parent, parent != NULL ? (size_t)parent_len : 0);
    return commit_record(d, &r);
}

static PyObject *
dump_reserve(PyObject *self, PyObject *unused)
{
    dump_object *d = (dump_object *)self;
    PyObject *done;
    msp_record r = {0};

    (void)unused;
    if (!is_open(d, true))
        return NULL;
    msp_record_hole(&r, d->unit, ++d->places);
    done = commit_record(d, &r);
    Py_XDECREF(done);
    return done != NULL ? PyLong_FromUnsignedLong(d->places) : NULL;
}

static PyObject *
dump_stack(PyObject *self, PyObject *frames)
{
    dump_object *d = (dump_object *)self;
    Py_ssize_t n = PyList_Check(frames) ? PyList_GET_SIZE(frames) : -1;
    const char **texts = n >= 0 ? PyMem_Malloc(((size_t)n + 1) * sizeof *texts) : NULL;
    uint32_t id = 0;
    msp_error err;
    msp_status st = MSP_OK;

    if (texts == NULL)
        return PyErr_Format(PyExc_TypeError, "frames is a list of texts");
    for (Py_ssize_t i = 0; i < n; i++)
        if ((texts[i] = PyUnicode_AsUTF8(PyList_GET_ITEM(frames, i))) == NULL)
            break;
    if (!PyErr_Occurred() && is_open(d, false))
        st = msp_collect_stack(d->collect, &id, texts, (size_t)n, &err);
    PyMem_Free((void *)texts);
    if (PyErr_Occurred())
        return NULL;
    return st != MSP_OK ? msp_py_raise(d->state, st, &err) : PyLong_FromUnsignedLong(id);
}

static PyObject *
dump_stack_key(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromUnsignedLongLong(msp_probe_stack_hash(0));
}

static PyObject *
dump_end_unit(PyObject *self, PyObject *unused)
{
    dump_object *d = (dump_object *)self;
    msp_error err;

    (void)unused;
    if (d->collect == NULL || !d->has_unit)
        Py_RETURN_NONE;
    d->has_unit = false;
    if (msp_collect_unit_close(d->collect, d->unit, &err) != MSP_OK)
        return msp_py_raise(d->state, MSP_E_IO, &err);
    Py_RETURN_NONE;
}

static PyObject *
dump_unit(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"folder", "task", "level", "shown", "data_dir", "checksum", "values", "debug", NULL};
    dump_object *d = (dump_object *)self;
    msp_unit_info info = {.framework = "mindspore"};
    PyObject *folder = NULL, *data_dir = NULL;
    int checksum, values, debug = 0;
    msp_error err;
    msp_status st;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&sszO&pp|p:unit", names, PyUnicode_FSConverter, &folder,
                                     &info.task, &info.level, &info.data_dir, PyUnicode_FSConverter, &data_dir,
                                     &checksum, &values, &debug))
        return NULL; /* which gives back what the converters made */
    if (!is_open(d, false)) {
        Py_DECREF(folder);
        Py_DECREF(data_dir);
        return NULL;
    }
    PyMem_Free(d->data_dir);
    d->data_dir = NULL;
    if (PyBytes_GET_SIZE(data_dir) > 0) {
        size_t n = (size_t)PyBytes_GET_SIZE(data_dir) + 1;

        d->data_dir = PyMem_Malloc(n);
        if (d->data_dir != NULL)
            memcpy(d->data_dir, PyBytes_AS_STRING(data_dir), n);
    }
    info.dir = PyBytes_AS_STRING(folder);
    info.kind = debug ? MSP_UNIT_DEBUG : MSP_UNIT_DUMP;
    d->has_crc = checksum != 0;
    d->wants_values = values != 0;
    st = msp_collect_unit(d->collect, &d->unit, &info, &err);
    d->has_unit = st == MSP_OK;
    Py_DECREF(folder);
    Py_DECREF(data_dir);
    if (st != MSP_OK)
        return msp_py_raise(d->state, st, &err);
    Py_RETURN_NONE;
}

static PyObject *
dump_flush(PyObject *self, PyObject *unused)
{
    dump_object *d = (dump_object *)self;
    PyThreadState *saved = NULL;
    msp_error err;
    msp_status st;

    (void)unused;
    if (d->collect == NULL)
        Py_RETURN_NONE;
    st = msp_collect_flush(d->collect, wait_unlocked, &saved, &err);
    if (st != MSP_OK)
        return msp_py_raise(d->state, st, &err);
    Py_RETURN_NONE;
}

static PyObject *
dump_note_error(PyObject *self, PyObject *text)
{
    dump_object *d = (dump_object *)self;
    const char *utf8 = PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : NULL;
    msp_error err;

    if (utf8 == NULL)
        PyErr_Clear();
    else if (d->collect != NULL && d->has_unit && msp_collect_note_error(d->collect, d->unit, utf8, &err) != MSP_OK)
        return msp_py_raise(d->state, MSP_E_IO, &err);
    Py_RETURN_NONE;
}

static PyObject *
dump_close(PyObject *self, PyObject *unused)
{
    dump_object *d = (dump_object *)self;
    msp_collect *c = d->collect;

    (void)unused;
    d->collect = NULL;
    d->has_unit = false;
    Py_BEGIN_ALLOW_THREADS msp_collect_close(c);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *
dump_values(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(((dump_object *)self)->values);
}

static void
dump_dealloc(PyObject *self)
{
    dump_object *d = (dump_object *)self;
    PyTypeObject *type = Py_TYPE(self);

    msp_collect_close(d->collect);
    PyMem_Free(d->data_dir);
    for (int i = 0; i < d->ndtypes; i++)
        Py_XDECREF(d->dtypes[i].object);
    Py_XDECREF(d->tensor_type);
    Py_XDECREF(d->dtype_type);
    Py_XDECREF(d->module);
    Py_XDECREF(d->s_shape);
    Py_XDECREF(d->s_stride);
    Py_XDECREF(d->s_dtype);
    Py_XDECREF(d->s_data_ptr);
    Py_XDECREF(d->s_asnumpy);
    Py_XDECREF(d->s_interface);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef dump_methods[] = {
    {"unit", (PyCFunction)(void (*)(void))dump_unit, METH_VARARGS | METH_KEYWORDS,
     "unit(folder, task, level, shown, data_dir, checksum, values, debug=False)\n--\n\nBegin the files of a step."},
    {"end_unit", dump_end_unit, METH_NOARGS, "end_unit()\n--\n\nNo more records for this step."},
    {"part", dump_part, METH_VARARGS,
     "part(name, value, save)\n--\n\nWalk and measure value now. Returns its tokens, and whether a tensor held NaN or\n"
     "infinity. name is the beginning of the names of its tensors' files, written when save is true."},
    {"commit", dump_commit, METH_VARARGS,
     "commit(name, tree, stack, parent)\n--\n\nRecord a call: tokens, texts, None, or lists and dicts of these."},
    {"reserve", dump_reserve, METH_NOARGS, "reserve()\n--\n\nKeep a place for a record that comes late."},
    {"fill", dump_fill, METH_VARARGS, "fill(place, name, tree)\n--\n\nThe record for which a place was kept."},
    {"site", dump_site, METH_VARARGS, "site(name, stack, parent)\n--\n\nRecord where a call was made, and no data."},
    {"stack", dump_stack, METH_O, "stack(frames)\n--\n\nThe id of a call stack."},
    {"stack_key", dump_stack_key, METH_NOARGS,
     "stack_key()\n--\n\nWhat the current call stack is known by, as long as its code objects live."},
    {"flush", dump_flush, METH_NOARGS, "flush()\n--\n\nWhat was committed is on disk when this returns."},
    {"note_error", dump_note_error, METH_O, "note_error(text)\n--\n\nAppend to dump_error_info.log."},
    {"close", dump_close, METH_NOARGS, "close()\n--\n\nFlush and end the writer."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef dump_getset[] = {
    {"values", dump_values, NULL, "How many tensors were measured.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(dump_doc, "A dump in the making, made by open_dump().");

static PyType_Slot dump_slots[] = {
    {Py_tp_doc, (void *)dump_doc},
    {Py_tp_dealloc, dump_dealloc},
    {Py_tp_methods, dump_methods},
    {Py_tp_getset, dump_getset},
    {0, NULL},
};

static PyType_Spec dump_spec = {"msprobe._core.Dump", sizeof(dump_object), 0, Py_TPFLAGS_DEFAULT, dump_slots};

PyTypeObject *
msp_py_dump_type(PyObject *module)
{
    return msp_py_add_type(module, &dump_spec);
}

/* dtypes: {mindspore.float32: "Float32", ...} */
static bool
learn_dtypes(dump_object *d, PyObject *dtypes)
{
    PyObject *object, *name;
    Py_ssize_t at = 0;

    while (PyDict_Next(dtypes, &at, &object, &name) && d->ndtypes < MAX_DTYPES) {
        Py_ssize_t len;
        const char *text = PyUnicode_AsUTF8AndSize(name, &len);

        if (text == NULL)
            return false;
        Py_INCREF(object);
        d->dtypes[d->ndtypes++] = (dtype_entry){object, msp_dtype_parse(text, (size_t)len)};
    }
    return true;
}

static bool
intern_names(dump_object *d)
{
    d->s_shape = PyUnicode_InternFromString("shape");
    d->s_stride = PyUnicode_InternFromString("stride");
    d->s_dtype = PyUnicode_InternFromString("dtype");
    d->s_data_ptr = PyUnicode_InternFromString("data_ptr");
    d->s_asnumpy = PyUnicode_InternFromString("asnumpy");
    d->s_interface = PyUnicode_InternFromString("__array_interface__");
    return !PyErr_Occurred();
}

PyObject *
msp_py_open_dump(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dir", "writer", "tensor_type", "dtype_type", "dtypes", "by_pointer", NULL};
    msp_py_state *state = msp_py_state_of(module);
    PyObject *dir, *dtypes;
    PyTypeObject *tensor_type, *dtype_type;
    msp_collect_options opt = {0};
    dump_object *d;
    int by_pointer;
    msp_error err;
    msp_status st;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&zO!O!O!p:open_dump", names, PyUnicode_FSConverter, &dir,
                                     &opt.writer_path, &PyType_Type, &tensor_type, &PyType_Type, &dtype_type,
                                     &PyDict_Type, &dtypes, &by_pointer))
        return NULL;
    d = (dump_object *)state->dump_type->tp_alloc(state->dump_type, 0);
    if (d == NULL) {
        Py_DECREF(dir);
        return NULL;
    }
    Py_INCREF(tensor_type);
    Py_INCREF(dtype_type);
    Py_INCREF(module);
    d->tensor_type = tensor_type;
    d->dtype_type = dtype_type;
    d->module = module;
    d->state = state;
    d->by_pointer = by_pointer != 0;
    opt.dir = PyBytes_AS_STRING(dir);
    st = learn_dtypes(d, dtypes) && intern_names(d) ? msp_collect_open(&d->collect, &opt, &err) : MSP_OK;
    Py_DECREF(dir);
    if (st != MSP_OK)
        msp_py_raise(state, st, &err);
    if (PyErr_Occurred())
        Py_CLEAR(d);
    return (PyObject *)d;
}
