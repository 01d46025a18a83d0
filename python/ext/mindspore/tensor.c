/*
 * tensor.c - MindSpore's tensors, measured where they lie.
 *
 * The memory is found through Tensor.data_ptr(), which waits for the value, or through asnumpy(), which shares it.
 */
#include "mindspore/dump.h"
#include "tensor/tensor.h"

msp_dtype
msp_py_dtype_of(dump_object *d, PyObject *object)
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
        t->dtype = msp_py_dtype_of(d, dtype);
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
    PyObject *pointer = PyObject_CallMethodObjArgs(obj, d->s_data_ptr, NULL), *strides;
    int32_t n;
    bool good;

    if (pointer == NULL)
        return false;
    t->data = PyLong_AsVoidPtr(pointer);
    Py_DECREF(pointer);
    if (PyErr_Occurred())
        return false;
    if (t->numel < 2) {
        fill_strides(t);
        return true;
    }
    strides = PyObject_CallMethodObjArgs(obj, d->s_stride, NULL);
    good = strides != NULL && read_sizes(t->strides, &n, strides);
    Py_XDECREF(strides);
    if (good && n != t->ndim) {
        PyErr_SetString(PyExc_ValueError, "a tensor has other strides than dimensions");
        good = false;
    }
    return good;
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

static bool
put_tensor(walk *w, const msp_tensor *t)
{
    char file[MAX_FILE_NAME + 8];
    msp_tensor_note note = {.type = "mindspore.Tensor", .shape_of = t};
    msp_stats s;
    uint32_t crc = 0;

    msp_probe_measure(t, &s, w->dump->has_crc ? &crc : NULL);
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

bool
msp_py_walk_tensor(walk *w, PyObject *obj)
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
