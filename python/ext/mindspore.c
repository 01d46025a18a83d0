/*
 * mindspore.c - _core.Dump: a dump in the making, for a framework whose calls are seen in Python.
 *
 * Python says what was called; here its arguments are walked, tensors measured where they lie (Tensor.data_ptr(), which
 * waits for the value) and records built and committed. A part of a record is a bytes object of tokens, so that inputs
 * are measured before the call that may change them and gradients when they arrive.
 */
#include "module.h"
#include "mindspore.h"
#include "collect/live.h"

#define MAX_DEPTH     24  /* of nested arguments; below it stands null */
#define MAX_FILE_NAME 240 /* bytes, of a tensor's file without its folder */
#define MAX_DTYPES    32

typedef struct dtype_entry {
    PyObject *object; /* mindspore.float32, ...: one object per type */
    msp_dtype dtype;
} dtype_entry;

typedef struct dump_object {
    PyObject_HEAD msp_collect *collect;
    msp_py_state *state;
    PyObject *module;
    PyTypeObject *tensor_type, *dtype_type; /* TensorPy and typing.Type */
    dtype_entry dtypes[MAX_DTYPES];
    int ndtypes;
    bool by_pointer; /* data_ptr() is there for every tensor; otherwise asnumpy(), which shares its memory */
    bool has_unit, has_crc, wants_values;
    uint32_t unit;
    char *data_dir; /* where tensors' files go; NULL: none are written */
    int threads;
    int64_t values; /* tensors measured */
    PyObject *s_shape, *s_stride, *s_dtype, *s_data_ptr, *s_is_contiguous, *s_asnumpy, *s_interface;
} dump_object;

/* What one call of part() walks with. */
typedef struct walk {
    dump_object *dump;
    msp_record r;
    char name[MAX_FILE_NAME + 64]; /* of the file of the tensor at hand; grows and shrinks with the way to it */
    size_t len;
    bool save;
    bool is_bad; /* a tensor held NaN or infinity */
    int depth;
} walk;

static bool walk_value(walk *w, PyObject *v);

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

static msp_dtype
dtype_of(dump_object *d, PyObject *object)
{
    for (int i = 0; i < d->ndtypes; i++)
        if (d->dtypes[i].object == object)
            return d->dtypes[i].dtype;
    return MSP_DTYPE_NONE;
}

static bool
read_sizes(int64_t *out, int32_t *n, PyObject *sizes)
{
    PyObject *fast = PySequence_Fast(sizes, "sizes are no sequence");
    Py_ssize_t count = fast != NULL ? PySequence_Fast_GET_SIZE(fast) : -1;

    if (count > MSP_MAX_NDIM) {
        PyErr_SetString(PyExc_ValueError, "a tensor has more than 64 dimensions");
        count = -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        out[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast, i));
    Py_XDECREF(fast);
    *n = (int32_t)count;
    return count >= 0 && !PyErr_Occurred();
}

static bool
read_shape(dump_object *d, msp_tensor *t, PyObject *obj)
{
    PyObject *shape = PyObject_GetAttr(obj, d->s_shape);
    PyObject *dtype = PyObject_GetAttr(obj, d->s_dtype);
    bool good = shape != NULL && dtype != NULL && read_sizes(t->shape, &t->ndim, shape);

    if (good) {
        t->dtype = dtype_of(d, dtype);
        t->numel = 1;
        for (int32_t i = 0; i < t->ndim; i++)
            t->numel *= t->shape[i];
    }
    Py_XDECREF(shape);
    Py_XDECREF(dtype);
    return good;
}

static void
fill_strides(msp_tensor *t)
{
    int64_t step = 1;

    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        t->strides[i] = step;
        step *= t->shape[i];
    }
}

static bool
point_by_address(dump_object *d, msp_tensor *t, PyObject *obj)
{
    PyObject *pointer = PyObject_CallMethodObjArgs(obj, d->s_data_ptr, NULL);
    PyObject *contiguous;
    int32_t n;

    if (pointer == NULL)
        return false;
    t->data = PyLong_AsVoidPtr(pointer);
    Py_DECREF(pointer);
    if (PyErr_Occurred())
        return false;
    fill_strides(t);
    contiguous = t->ndim > 1 ? PyObject_CallMethodObjArgs(obj, d->s_is_contiguous, NULL) : NULL;
    if (contiguous == Py_True || (t->ndim == 1 && t->shape[0] < 2) || t->ndim == 0) {
        Py_XDECREF(contiguous);
        return true;
    }
    if (contiguous == NULL && PyErr_Occurred())
        return false;
    Py_XDECREF(contiguous);
    contiguous = PyObject_CallMethodObjArgs(obj, d->s_stride, NULL);
    if (contiguous == NULL)
        return false;
    if (!read_sizes(t->strides, &n, contiguous) || n != t->ndim) {
        Py_DECREF(contiguous);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a tensor has other strides than dimensions");
        return false;
    }
    Py_DECREF(contiguous);
    return true;
}

/* *keep is what owns the memory: an array that shares it, or a contiguous copy of a view. */
static bool
point_by_array(dump_object *d, msp_tensor *t, PyObject *obj, PyObject **keep)
{
    PyObject *array = PyObject_CallMethodObjArgs(obj, d->s_asnumpy, NULL);
    PyObject *interface = array != NULL ? PyObject_GetAttr(array, d->s_interface) : NULL;
    PyObject *data = interface != NULL ? PyDict_GetItemString(interface, "data") : NULL;
    PyObject *strides = interface != NULL ? PyDict_GetItemString(interface, "strides") : NULL;
    bool good = data != NULL && PyTuple_Check(data) && PyTuple_GET_SIZE(data) == 2;

    if (good) {
        t->data = PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0));
        fill_strides(t);
        good = !PyErr_Occurred();
    } else if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "asnumpy() gives no array");
    }
    if (good && strides != NULL && strides != Py_None) {
        int64_t size = (int64_t)msp_dtype_size(t->dtype);
        int32_t n;

        good = read_sizes(t->strides, &n, strides) && n == t->ndim;
        for (int32_t i = 0; good && i < n; i++) {
            good = t->strides[i] >= 0 && t->strides[i] % size == 0;
            t->strides[i] /= size;
        }
        if (!good && !PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "an array has strides that are not read");
    }
    Py_XDECREF(interface);
    *keep = array;
    return good;
}

static bool
save_tensor(walk *w, const msp_tensor *t)
{
    size_t dir = strlen(w->dump->data_dir), n = dir + w->len + 6;
    char *path = PyMem_Malloc(n + 1);
    msp_error err;
    msp_status st;

    if (path == NULL) {
        PyErr_NoMemory();
        return false;
    }
    snprintf(path, n + 1, "%s/%.*s.npy", w->dump->data_dir, (int)w->len, w->name);
    st = msp_npy_save(path, t, &err);
    PyMem_Free(path);
    if (st != MSP_OK)
        msp_py_raise(w->dump->state, st, &err);
    return st == MSP_OK;
}

/* .npy has no bfloat16: such a tensor is saved as float32, which holds every value of it. */
static bool
save_as_float(walk *w, const msp_tensor *t)
{
    msp_tensor wide = *t;
    float *copy = PyMem_Malloc((size_t)(t->numel > 0 ? t->numel : 1) * sizeof(float));
    bool good;

    if (copy == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (int64_t i = 0; i < t->numel; i++)
        copy[i] = (float)msp_dtype_load_f64(t->dtype, msp_tensor_at(t, i));
    wide.data = copy;
    wide.dtype = MSP_F32;
    fill_strides(&wide);
    good = save_tensor(w, &wide);
    PyMem_Free(copy);
    return good;
}

static void
measure(walk *w, msp_stats *s, uint32_t *crc, const msp_tensor *t)
{
    msp_stats_compute_mt(s, t, w->dump->threads);
    if (w->dump->has_crc)
        *crc = msp_crc32(t);
}

static bool
put_tensor(walk *w, const msp_tensor *t)
{
    char file[MAX_FILE_NAME + 8];
    msp_tensor_note note = {.type = "mindspore.Tensor", .shape_of = t};
    msp_stats s;
    uint32_t crc = 0;

    if (t->numel > 65536) {
        Py_BEGIN_ALLOW_THREADS measure(w, &s, &crc, t);
        Py_END_ALLOW_THREADS
    } else {
        measure(w, &s, &crc, t);
    }
    w->dump->values++;
    w->is_bad = w->is_bad || s.nan > 0 || s.pos_inf > 0 || s.neg_inf > 0;
    note.dtype = msp_dtype_mindspore_name(t->dtype);
    note.stats = &s;
    note.has_crc = w->dump->has_crc;
    note.crc = crc;
    if (w->save && w->dump->data_dir != NULL && w->len < MAX_FILE_NAME) {
        bool wide = t->dtype == MSP_BF16;

        if (!(wide ? save_as_float(w, t) : save_tensor(w, t)))
            return false;
        snprintf(file, sizeof file, "%.*s.npy", (int)w->len, w->name);
        note.data_name = file;
        if (wide) {
            msp_record_tensor_open(&w->r, &note);
            msp_record_key(&w->r, "note", 4);
            msp_record_text(&w->r, "saved as Float32", 16);
            msp_record_end(&w->r);
            return true;
        }
    }
    msp_record_tensor(&w->r, &note);
    return true;
}

static bool
walk_tensor(walk *w, PyObject *obj)
{
    PyObject *keep = NULL;
    msp_tensor t = {0};
    bool good = read_shape(w->dump, &t, obj);

    if (good && (t.dtype == MSP_DTYPE_NONE || t.numel == 0 || !w->dump->wants_values)) {
        msp_tensor_note note = {.type = "mindspore.Tensor", .shape_of = &t, .dtype = msp_dtype_mindspore_name(t.dtype)};

        if (t.dtype == MSP_DTYPE_NONE)
            note.why_no_values = "a type that is not read";
        msp_record_tensor(&w->r, &note);
        return true;
    }
    if (good && w->dump->by_pointer)
        good = point_by_address(w->dump, &t, obj);
    if (good && t.data == NULL)
        good = point_by_array(w->dump, &t, obj, &keep);
    if (good && t.data == NULL) {
        PyErr_SetString(PyExc_ValueError, "a tensor has no memory");
        good = false;
    }
    good = good && put_tensor(w, &t);
    Py_XDECREF(keep);
    return good;
}

/* ---- other values ----------------------------------------------------------------------------------------------- */

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

static bool
walk_int(walk *w, PyObject *v)
{
    int overflow;
    long long n = PyLong_AsLongLongAndOverflow(v, &overflow);

    if (n == -1 && PyErr_Occurred())
        return false;
    put_leaf(w, "int", 3);
    if (overflow != 0)
        msp_record_float(&w->r, PyLong_AsDouble(v));
    else
        msp_record_int(&w->r, n);
    PyErr_Clear(); /* a number too large for a double */
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
        long long n = PyLong_Check(parts[i]) ? PyLong_AsLongLong(parts[i]) : 0;

        if (PyLong_Check(parts[i]) && !PyErr_Occurred())
            msp_record_int(&w->r, n);
        else
            msp_record_null(&w->r);
        PyErr_Clear();
    }
    msp_record_end(&w->r);
    msp_record_end(&w->r);
    return true;
}

static bool
walk_dtype(walk *w, PyObject *v)
{
    PyObject *text = PyObject_Str(v);
    const char *name = msp_dtype_mindspore_name(dtype_of(w->dump, v));
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
        good = walk_value(w, PySequence_Fast_GET_ITEM(fast, i));
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
            good = walk_value(w, value);
            w->len = before;
        }
        Py_XDECREF(text);
        Py_XDECREF(bytes);
    }
    msp_record_end(&w->r);
    return good;
}

static bool
walk_value(walk *w, PyObject *v)
{
    bool good;

    if (PyObject_TypeCheck(v, w->dump->tensor_type))
        return walk_tensor(w, v);
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

/* ---- methods ---------------------------------------------------------------------------------------------------- */

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
    if (!walk_value(&w, value) || w.r.failed) {
        msp_record_release(&w.r);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    tokens = PyBytes_FromStringAndSize((const char *)w.r.p, (Py_ssize_t)w.r.len);
    msp_record_release(&w.r);
    result = tokens != NULL ? PyTuple_Pack(2, tokens, w.is_bad ? Py_True : Py_False) : NULL;
    Py_XDECREF(tokens);
    return result;
}

/* Append the tokens of part(), or null for None. */
static bool
put_tokens(msp_record *r, PyObject *tokens)
{
    msp_record part = {0};

    if (tokens == Py_None) {
        msp_record_null(r);
        return true;
    }
    if (!PyBytes_Check(tokens)) {
        PyErr_SetString(PyExc_TypeError, "a member is a key and tokens");
        return false;
    }
    part.p = (unsigned char *)PyBytes_AS_STRING(tokens);
    part.len = part.cap = (size_t)PyBytes_GET_SIZE(tokens);
    msp_record_append(r, &part);
    return true;
}

/* Append a member: its key, and the tokens of part() or a list of them, which becomes an array. */
static bool
put_member(msp_record *r, PyObject *member)
{
    PyObject *tokens;
    const char *text;
    Py_ssize_t len;
    bool good = true;

    if (!PyTuple_Check(member) || PyTuple_GET_SIZE(member) != 2) {
        PyErr_SetString(PyExc_TypeError, "a member is a key and tokens");
        return false;
    }
    text = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(member, 0), &len);
    if (text == NULL)
        return false;
    msp_record_key(r, text, (size_t)len);
    tokens = PyTuple_GET_ITEM(member, 1);
    if (!PyList_Check(tokens))
        return put_tokens(r, tokens);
    msp_record_array(r);
    for (Py_ssize_t i = 0; good && i < PyList_GET_SIZE(tokens); i++)
        good = put_tokens(r, PyList_GET_ITEM(tokens, i));
    msp_record_end(r);
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
    PyObject *members;
    msp_record r = {0};

    if (!PyArg_ParseTuple(args, "s#OIz#:commit", &name, &len, &members, &stack, &parent, &parent_len))
        return NULL;
    if (!is_open(d, true))
        return NULL;
    if (members == Py_None) { /* structure: where it was called, and no data */
        msp_record_site(&r, d->unit, name, (size_t)len, stack, parent, parent != NULL ? (size_t)parent_len : 0);
        return commit_record(d, &r);
    }
    if (!PyTuple_Check(members) && !PyList_Check(members)) {
        PyErr_SetString(PyExc_TypeError, "members is a list");
        return NULL;
    }
    msp_record_begin(&r, d->unit, name, (size_t)len);
    msp_record_object(&r);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(members); i++) {
        if (!put_member(&r, PySequence_Fast_GET_ITEM(members, i))) {
            msp_record_release(&r);
            return NULL;
        }
    }
    msp_record_end(&r);
    if (stack != 0 || parent != NULL)
        msp_record_place(&r, stack, parent, parent != NULL ? (size_t)parent_len : 0);
    return commit_record(d, &r);
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
    static char *names[] = {"folder", "task", "level", "shown", "data_dir", "checksum", "values", NULL};
    dump_object *d = (dump_object *)self;
    msp_unit_info info = {.kind = MSP_UNIT_DUMP, .framework = "mindspore"};
    PyObject *folder, *data_dir = NULL;
    int checksum, values;
    msp_error err;
    msp_status st;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&sszO&pp:unit", names, PyUnicode_FSConverter, &folder, &info.task,
                                     &info.level, &info.data_dir, PyUnicode_FSConverter, &data_dir, &checksum, &values))
        return NULL;
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
    Py_XDECREF(d->s_is_contiguous);
    Py_XDECREF(d->s_asnumpy);
    Py_XDECREF(d->s_interface);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef dump_methods[] = {
    {"unit", (PyCFunction)(void (*)(void))dump_unit, METH_VARARGS | METH_KEYWORDS,
     "unit(folder, task, level, shown, data_dir, checksum, values)\n--\n\nBegin the files of a step."},
    {"end_unit", dump_end_unit, METH_NOARGS, "end_unit()\n--\n\nNo more records for this step."},
    {"part", dump_part, METH_VARARGS,
     "part(name, value, save)\n--\n\nWalk and measure value now. Returns its tokens, and whether a tensor held NaN or\n"
     "infinity. name is the beginning of the names of its tensors' files, written when save is true."},
    {"commit", dump_commit, METH_VARARGS,
     "commit(name, members, stack, parent)\n--\n\nRecord a call: members are (key, tokens) pairs, or None: no data."},
    {"stack", dump_stack, METH_O, "stack(frames)\n--\n\nThe id of a call stack."},
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
    d->s_is_contiguous = PyUnicode_InternFromString("is_contiguous");
    d->s_asnumpy = PyUnicode_InternFromString("asnumpy");
    d->s_interface = PyUnicode_InternFromString("__array_interface__");
    return !PyErr_Occurred();
}

PyObject *
msp_py_open_dump(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dir", "writer", "tensor_type", "dtype_type", "dtypes", "by_pointer", "threads", NULL};
    msp_py_state *state = msp_py_state_of(module);
    PyObject *dir, *dtypes;
    PyTypeObject *tensor_type, *dtype_type;
    msp_collect_options opt = {0};
    dump_object *d;
    int by_pointer, threads;
    msp_error err;
    msp_status st;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&zO!O!O!pi:open_dump", names, PyUnicode_FSConverter, &dir,
                                     &opt.writer_path, &PyType_Type, &tensor_type, &PyType_Type, &dtype_type,
                                     &PyDict_Type, &dtypes, &by_pointer, &threads))
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
    d->threads = threads;
    opt.dir = PyBytes_AS_STRING(dir);
    st = learn_dtypes(d, dtypes) && intern_names(d) ? msp_collect_open(&d->collect, &opt, &err) : MSP_OK;
    Py_DECREF(dir);
    if (st != MSP_OK)
        msp_py_raise(state, st, &err);
    if (PyErr_Occurred())
        Py_CLEAR(d);
    return (PyObject *)d;
}
