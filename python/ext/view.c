/* view.c - any Python object that holds elements, seen as a tensor: dispatch, and the buffer protocol. */
#include "types/types.h"

/* ---- element types of the struct module ------------------------------------------------------------------------- */

static msp_dtype
signed_of_size(Py_ssize_t size)
{
    switch (size) {
    case 1:
        return MSP_I8;
    case 2:
        return MSP_I16;
    case 4:
        return MSP_I32;
    case 8:
        return MSP_I64;
    default:
        return MSP_DTYPE_NONE;
    }
}

static msp_dtype
unsigned_of_size(Py_ssize_t size)
{
    switch (size) {
    case 1:
        return MSP_U8;
    case 2:
        return MSP_U16;
    case 4:
        return MSP_U32;
    case 8:
        return MSP_U64;
    default:
        return MSP_DTYPE_NONE;
    }
}

/* The size decides between the letters: 'l' has 4 or 8 bytes, depending on what stands before it. */
static msp_dtype
dtype_of_format(const char *format, Py_ssize_t itemsize)
{
    if (format == NULL)
        return MSP_U8;
    if (*format == '@' || *format == '=' || *format == '<' || *format == '|')
        format++;
    else if (*format == '>' || *format == '!')
        return itemsize == 1 ? dtype_of_format(format + 1, itemsize) : MSP_DTYPE_NONE;
    if (strcmp(format, "Zf") == 0)
        return MSP_C64;
    if (strcmp(format, "Zd") == 0)
        return MSP_C128;
    if (format[0] == '\0' || format[1] != '\0')
        return MSP_DTYPE_NONE;
    switch (format[0]) {
    case 'e':
        return MSP_F16;
    case 'f':
        return MSP_F32;
    case 'd':
        return MSP_F64;
    case '?':
        return MSP_BOOL;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
        return signed_of_size(itemsize);
    case 'c':
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
        return unsigned_of_size(itemsize);
    default:
        return MSP_DTYPE_NONE;
    }
}

/* ---- the buffer protocol ---------------------------------------------------------------------------------------- */

static bool
strides_fit(const Py_buffer *b)
{
    for (int i = 0; i < b->ndim; i++) {
        if (b->strides[i] < 0 || b->strides[i] % b->itemsize != 0)
            return false;
    }
    return b->suboffsets == NULL;
}

/* Negative strides, or fields of a record: lay the elements out anew. */
static int
copy_elements(msp_py_view *v)
{
    v->copy = PyMem_Malloc(v->buffer.len > 0 ? (size_t)v->buffer.len : 1);
    if (v->copy == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (PyBuffer_ToContiguous(v->copy, &v->buffer, v->buffer.len, 'C') != 0)
        return -1;
    v->t.data = v->copy;
    return 0;
}

static int
describe_buffer(msp_py_view *v, msp_py_state *state)
{
    const Py_buffer *b = &v->buffer;
    int64_t shape[MSP_MAX_NDIM];
    msp_dtype dtype = dtype_of_format(b->format, b->itemsize);
    msp_error err;
    msp_status st;

    if (dtype == MSP_DTYPE_NONE) {
        PyErr_Format(PyExc_TypeError, "elements of format '%s' are not supported", b->format);
        return -1;
    }
    if (b->ndim > MSP_MAX_NDIM) {
        PyErr_Format(PyExc_ValueError, "%d dimensions; at most %d are supported", b->ndim, MSP_MAX_NDIM);
        return -1;
    }
    for (int i = 0; i < b->ndim; i++)
        shape[i] = b->shape[i];
    st = msp_tensor_view(&v->t, b->buf, dtype, b->ndim, shape, &err);
    if (st != MSP_OK) {
        msp_py_raise(state, st, &err);
        return -1;
    }
    if (!strides_fit(b))
        return copy_elements(v);
    for (int i = 0; i < b->ndim; i++)
        v->t.strides[i] = b->strides[i] / b->itemsize;
    return 0;
}

static int
buffer_view(msp_py_view *v, msp_py_state *state, PyObject *obj)
{
    if (PyObject_GetBuffer(obj, &v->buffer, PyBUF_FULL_RO) != 0)
        return -1;
    v->has_buffer = true;
    return describe_buffer(v, state);
}

/* ---- dispatch --------------------------------------------------------------------------------------------------- */

static int
acquire(msp_py_view *v, msp_py_state *state, PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    int found;

    if (type == state->tensor_type) {
        v->t = *msp_py_tensor_get(obj);
        v->t.owner = NULL; /* borrowed: obj outlives the view */
        v->t.release_owner = NULL;
        return 0;
    }
    if (PyObject_CheckBuffer(obj))
        return buffer_view(v, state, obj);
    found = msp_py_torch_view(v, state, obj);
    if (found != 0)
        return found > 0 ? 0 : -1;
    PyErr_Format(PyExc_TypeError,
                 "expected a torch.Tensor, an msprobe.Tensor or an object with the buffer protocol, such as "
                 "numpy.ndarray; got %.200s",
                 type->tp_name);
    return -1;
}

int
msp_py_view_acquire(msp_py_view *v, msp_py_state *state, PyObject *obj)
{
    msp_py_view_init(v);
    if (acquire(v, state, obj) == 0)
        return 0;
    msp_py_view_release(v);
    return -1;
}

void
msp_py_view_release(msp_py_view *v)
{
    if (v->has_buffer)
        PyBuffer_Release(&v->buffer);
    if (v->copy != NULL)
        PyMem_Free(v->copy);
    Py_CLEAR(v->owner);
    v->copy = NULL;
    v->has_buffer = false;
}
