/*
 * tensor.c - msprobe.Tensor: a read-only view of a tensor in a mapped file.
 *
 * Speaks the buffer protocol, so that memoryview(t) and numpy.asarray(t) see the file's own pages. bfloat16 and float8
 * have no format letter there: their elements appear as unsigned integers of the same size.
 */
#include "types/types.h"

typedef struct tensor_object {
    PyObject_HEAD msp_tensor t;
    PyObject *base; /* what else must live as long, or NULL */
    Py_ssize_t byte_strides[MSP_MAX_NDIM];
} tensor_object;

PyObject *
msp_py_tensor_take(PyTypeObject *type, msp_tensor *t, PyObject *base)
{
    tensor_object *self = (tensor_object *)type->tp_alloc(type, 0);

    if (self == NULL)
        return NULL;
    self->t = *t;
    *t = (msp_tensor){0};
    Py_XINCREF(base);
    self->base = base;
    for (int i = 0; i < self->t.ndim; i++)
        self->byte_strides[i] = (Py_ssize_t)(self->t.strides[i] * (int64_t)msp_dtype_size(self->t.dtype));
    return (PyObject *)self;
}

const msp_tensor *
msp_py_tensor_get(PyObject *obj)
{
    return &((tensor_object *)obj)->t;
}

static void
tensor_dealloc(PyObject *obj)
{
    tensor_object *self = (tensor_object *)obj;
    PyTypeObject *type = Py_TYPE(obj);

    msp_tensor_release(&self->t);
    Py_XDECREF(self->base);
    type->tp_free(obj);
    Py_DECREF(type);
}

/* ---- attributes ------------------------------------------------------------------------------------------------- */

static PyObject *
tuple_of_ints(const int64_t *values, int n)
{
    PyObject *tuple = PyTuple_New(n);

    for (int i = 0; tuple != NULL && i < n; i++) {
        PyObject *item = PyLong_FromLongLong(values[i]);

        if (item == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, item);
    }
    return tuple;
}

/* Without "torch." in front: what NumPy calls it too, where NumPy has such a type. */
static const char *
plain_dtype_name(msp_dtype dtype)
{
    const char *name = msp_dtype_torch_name(dtype);
    const char *dot = strchr(name, '.');

    return dot != NULL ? dot + 1 : name;
}

static PyObject *
get_dtype(PyObject *obj, void *payload)
{
    (void)payload;
    return PyUnicode_FromString(plain_dtype_name(msp_py_tensor_get(obj)->dtype));
}

static PyObject *
get_shape(PyObject *obj, void *payload)
{
    const msp_tensor *t = msp_py_tensor_get(obj);

    (void)payload;
    return tuple_of_ints(t->shape, t->ndim);
}

static PyObject *
get_strides(PyObject *obj, void *payload)
{
    const msp_tensor *t = msp_py_tensor_get(obj);

    (void)payload;
    return tuple_of_ints(t->strides, t->ndim);
}

static PyObject *
get_requires_grad(PyObject *obj, void *payload)
{
    (void)payload;
    return PyBool_FromLong(msp_py_tensor_get(obj)->requires_grad);
}

static PyObject *
get_numel(PyObject *obj, void *payload)
{
    (void)payload;
    return PyLong_FromLongLong(msp_py_tensor_get(obj)->numel);
}

static PyObject *
get_contiguous(PyObject *obj, void *payload)
{
    (void)payload;
    return PyBool_FromLong(msp_tensor_is_contiguous(msp_py_tensor_get(obj)));
}

static PyObject *
tensor_repr(PyObject *obj)
{
    const msp_tensor *t = msp_py_tensor_get(obj);
    PyObject *shape = tuple_of_ints(t->shape, t->ndim);
    PyObject *text;

    if (shape == NULL)
        return NULL;
    text = PyUnicode_FromFormat("<msprobe.Tensor %s %R>", plain_dtype_name(t->dtype), shape);
    Py_DECREF(shape);
    return text;
}

static PyGetSetDef tensor_getset[] = {
    {"dtype", get_dtype, NULL, "Element type: 'float32', 'bfloat16', 'float8_e4m3fn', ...", NULL},
    {"shape", get_shape, NULL, "Sizes of the dimensions.", NULL},
    {"strides", get_strides, NULL, "Distance between neighbours of each dimension, in elements.", NULL},
    {"requires_grad", get_requires_grad, NULL, "Whether the tensor was saved as one that requires a gradient.", NULL},
    {"numel", get_numel, NULL, "Number of elements.", NULL},
    {"is_contiguous", get_contiguous, NULL, "Whether the elements lie without gaps in row-major order.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* ---- the buffer protocol ---------------------------------------------------------------------------------------- */

static const char *
format_of(msp_dtype dtype)
{
    switch (dtype) {
    case MSP_F64:
        return "d";
    case MSP_F32:
        return "f";
    case MSP_F16:
        return "e";
    case MSP_I8:
        return "b";
    case MSP_I16:
        return "h";
    case MSP_I32:
        return "i";
    case MSP_I64:
        return "q";
    case MSP_BF16:
    case MSP_U16:
        return "H";
    case MSP_U32:
        return "I";
    case MSP_U64:
        return "Q";
    case MSP_BOOL:
        return "?";
    case MSP_C64:
        return "Zf";
    case MSP_C128:
        return "Zd";
    default:
        return "B";
    }
}

static int
tensor_getbuffer(PyObject *obj, Py_buffer *out, int flags)
{
    static char nothing; /* an empty buffer still has an address */
    tensor_object *self = (tensor_object *)obj;
    msp_tensor *t = &self->t;

    out->obj = NULL;
    if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE) {
        PyErr_SetString(PyExc_BufferError, "the file behind this tensor is not written to");
        return -1;
    }
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !msp_tensor_is_contiguous(t)) {
        PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous");
        return -1;
    }
    out->buf = t->data != NULL ? (void *)t->data : &nothing;
    out->itemsize = (Py_ssize_t)msp_dtype_size(t->dtype);
    out->len = (Py_ssize_t)t->numel * out->itemsize;
    out->readonly = 1;
    out->format = (flags & PyBUF_FORMAT) == PyBUF_FORMAT ? (char *)format_of(t->dtype) : NULL;
    out->ndim = t->ndim;
    out->shape = (flags & PyBUF_ND) == PyBUF_ND ? (Py_ssize_t *)t->shape : NULL;
    out->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->byte_strides : NULL;
    out->suboffsets = NULL;
    out->internal = NULL;
    Py_INCREF(obj);
    out->obj = obj;
    return 0;
}

PyDoc_STRVAR(tensor_doc,
             "A tensor in a file: a read-only view of the mapped bytes.\n\n"
             "memoryview(t) and numpy.asarray(t) see the elements without a copy; bfloat16 and float8 appear\n"
             "there as unsigned integers. Made by msprobe.load() and msprobe.open().");

static PyType_Slot tensor_slots[] = {
    {Py_tp_doc, (void *)tensor_doc},
    {Py_tp_dealloc, tensor_dealloc},
    {Py_tp_repr, tensor_repr},
    {Py_tp_getset, tensor_getset},
#if PY_VERSION_HEX >= 0x03090000
    {Py_bf_getbuffer, tensor_getbuffer},
#endif
    {0, NULL},
};

static PyType_Spec tensor_spec = {"msprobe._core.Tensor", sizeof(tensor_object), 0, Py_TPFLAGS_DEFAULT, tensor_slots};

PyTypeObject *
msp_py_tensor_type(PyObject *module)
{
    PyTypeObject *type = msp_py_add_type(module, &tensor_spec);

#if PY_VERSION_HEX < 0x03090000
    if (type != NULL) /* 3.8 knows no buffer slots in a spec */
        type->tp_as_buffer->bf_getbuffer = tensor_getbuffer;
#endif
    return type;
}

PyObject *
msp_py_load(PyObject *module, PyObject *path)
{
    msp_py_state *state = msp_py_state_of(module);
    PyObject *bytes, *result;
    msp_tensor t;
    msp_error err;
    msp_status st;

    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    Py_BEGIN_ALLOW_THREADS st = msp_tensor_open(&t, PyBytes_AS_STRING(bytes), &err);
    Py_END_ALLOW_THREADS Py_DECREF(bytes);
    if (st != MSP_OK)
        return msp_py_raise(state, st, &err);
    result = msp_py_tensor_take(state->tensor_type, &t, NULL);
    msp_tensor_release(&t);
    return result;
}
