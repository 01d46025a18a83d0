/*
 * torch.c - tensors of PyTorch, without linking to it.
 *
 * From 2.10 on a tensor's type offers a table of C functions (DLPack 1.2's exchange API); one call fills a struct that
 * points at the tensor's own sizes and strides, in some thirty nanoseconds. Older releases are asked through their
 * Python methods. The table's layout is a published binary interface; the part we use is declared here.
 *
 * Both ways refuse what has no memory to read (meta, sparse, fake tensors), copy what lies on a device, and materialise
 * the two lazy bits: x.conj() and x.conj().imag only mark their memory as conjugated or negated.
 */
#include "module.h"

/* ---- DLPack's structs ------------------------------------------------------------------------------------------- */

enum { DL_MAJOR = 1, DL_CPU = 1 };

typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* strides in elements, NULL when contiguous */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_exchange_api {
    struct {
        uint32_t major, minor;
    } version;
    const struct dl_exchange_api *previous;
    void (*allocate)(void);
    void (*managed_from_object)(void);
    void (*managed_to_object)(void);
    int (*tensor_from_object)(void *object, dl_tensor *out); /* may be NULL */
} dl_exchange_api;

static msp_dtype
dtype_of_dlpack(unsigned code, unsigned bits)
{
    static const msp_dtype signed_int[] = {MSP_I8, MSP_I16, MSP_I32, MSP_I64};
    static const msp_dtype unsigned_int[] = {MSP_U8, MSP_U16, MSP_U32, MSP_U64};
    unsigned log = bits == 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : bits == 64 ? 3 : 4;

    switch (code) {
    case 0:
        return log < 4 ? signed_int[log] : MSP_DTYPE_NONE;
    case 1:
        return log < 4 ? unsigned_int[log] : MSP_DTYPE_NONE;
    case 2:
        return bits == 32 ? MSP_F32 : bits == 64 ? MSP_F64 : bits == 16 ? MSP_F16 : MSP_DTYPE_NONE;
    case 4:
        return bits == 16 ? MSP_BF16 : MSP_DTYPE_NONE;
    case 5:
        return bits == 64 ? MSP_C64 : bits == 128 ? MSP_C128 : MSP_DTYPE_NONE;
    case 6:
        return bits == 8 ? MSP_BOOL : MSP_DTYPE_NONE;
    case 10:
        return MSP_F8_E4M3FN;
    case 11:
        return MSP_F8_E4M3FNUZ;
    case 12:
        return MSP_F8_E5M2;
    case 13:
        return MSP_F8_E5M2FNUZ;
    default:
        return MSP_DTYPE_NONE;
    }
}

/* ---- the C way -------------------------------------------------------------------------------------------------- */

/* The function table of a type, looked up once for as long as tensors of the same type come. NULL: it has none. */
static const dl_exchange_api *
exchange_api(msp_py_state *state, PyTypeObject *type)
{
    const dl_exchange_api *api = NULL;
    PyObject *capsule;

    if (type == state->dlpack_type)
        return state->dlpack_api;
    capsule = PyObject_GetAttr((PyObject *)type, state->str_dlpack_api);
    if (capsule != NULL) {
        api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api"); /* static in the framework */
        Py_DECREF(capsule);
    }
    PyErr_Clear();
    while (api != NULL && (api->version.major != DL_MAJOR || api->tensor_from_object == NULL))
        api = api->previous;
    if (api != NULL) {
        Py_INCREF(type);
        Py_XSETREF(state->dlpack_type, type);
        state->dlpack_api = api;
    }
    return api;
}

static int
fill_from_dlpack(msp_py_view *v, const dl_tensor *d)
{
    msp_tensor *t = &v->t;

    t->dtype = d->dtype.lanes == 1 ? dtype_of_dlpack(d->dtype.code, d->dtype.bits) : MSP_DTYPE_NONE;
    if (t->dtype == MSP_DTYPE_NONE || d->ndim > MSP_MAX_NDIM)
        return -1;
    t->data = (const char *)d->data + d->byte_offset;
    t->ndim = d->ndim;
    t->requires_grad = false;
    t->numel = 1;
    for (int i = d->ndim - 1; i >= 0; i--) {
        t->shape[i] = d->shape[i];
        t->strides[i] = d->strides != NULL ? d->strides[i] : t->numel;
        t->numel *= d->shape[i];
    }
    return 0;
}

/* ---- the Python way --------------------------------------------------------------------------------------------- */

static int
int_from_call(int64_t *out, PyObject *obj, const char *method)
{
    PyObject *r = PyObject_CallMethod(obj, method, NULL);

    if (r == NULL)
        return -1;
    *out = PyLong_AsLongLong(r);
    Py_DECREF(r);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Copy a tuple of ints; its length must be t->ndim unless that is still -1. Takes over the reference. */
static int
ints_from_tuple(msp_tensor *t, int64_t *out, PyObject *tuple)
{
    Py_ssize_t n;

    if (tuple == NULL)
        return -1;
    n = PyTuple_Check(tuple) ? PyTuple_GET_SIZE(tuple) : -1;
    if (n < 0 || n > MSP_MAX_NDIM || (t->ndim >= 0 && n != t->ndim)) {
        PyErr_SetString(PyExc_ValueError, "the tensor has no shape that can be read");
        n = -1;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        out[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    t->ndim = (int32_t)n;
    Py_DECREF(tuple);
    return n < 0 || PyErr_Occurred() ? -1 : 0;
}

static int
dtype_from_attribute(msp_tensor *t, PyObject *obj)
{
    PyObject *dtype = PyObject_GetAttrString(obj, "dtype");
    PyObject *name = dtype != NULL ? PyObject_Str(dtype) : NULL;
    Py_ssize_t len = 0;
    const char *text = name != NULL ? PyUnicode_AsUTF8AndSize(name, &len) : NULL;

    if (text != NULL) {
        t->dtype = msp_dtype_parse(text, (size_t)len);
        if (t->dtype == MSP_DTYPE_NONE)
            PyErr_Format(PyExc_TypeError, "elements of type %s are not supported", text);
    }
    Py_XDECREF(dtype);
    Py_XDECREF(name);
    return PyErr_Occurred() ? -1 : 0;
}

static int
fill_from_methods(msp_py_view *v, PyObject *obj)
{
    msp_tensor *t = &v->t;
    int64_t address;

    t->ndim = -1;
    t->requires_grad = false;
    if (dtype_from_attribute(t, obj) != 0 || int_from_call(&address, obj, "data_ptr") != 0 ||
        ints_from_tuple(t, t->shape, PyObject_GetAttrString(obj, "shape")) != 0 ||
        ints_from_tuple(t, t->strides, PyObject_CallMethod(obj, "stride", NULL)) != 0)
        return -1;
    t->data = (const void *)(uintptr_t)address;
    t->numel = 1;
    for (int i = 0; i < t->ndim; i++)
        t->numel *= t->shape[i];
    return 0;
}

/* ---- both ------------------------------------------------------------------------------------------------------- */

/* 1 when obj.method() is true, 0 when it is not or there is no such method, -1 on error. */
static int
ask(PyObject *obj, PyObject *method)
{
#if PY_VERSION_HEX >= 0x03090000
    PyObject *r = PyObject_CallMethodNoArgs(obj, method);
#else
    PyObject *r = PyObject_CallMethodObjArgs(obj, method, NULL);
#endif
    int yes;

    if (r == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    yes = PyObject_IsTrue(r);
    Py_DECREF(r);
    return yes;
}

/* obj.method(), with obj's reference taken over; NULL when obj is NULL or the call fails. */
static PyObject *
call_take(PyObject *obj, const char *method)
{
    PyObject *result = obj != NULL ? PyObject_CallMethod(obj, method, NULL) : NULL;

    Py_XDECREF(obj);
    return result;
}

/* A host tensor without lazy bits and gradient, kept alive by the view. */
static PyObject *
materialised(msp_py_view *v, PyObject *obj)
{
    PyObject *copy = PyObject_CallMethod(obj, "detach", NULL);

    copy = call_take(call_take(call_take(copy, "cpu"), "resolve_conj"), "resolve_neg");
    Py_XSETREF(v->owner, copy);
    return copy;
}

/* Frameworks answer with a page of text; its first line says enough. */
static int
no_memory_to_read(void)
{
    PyObject *type, *value, *trace;
    PyObject *text = NULL;
    const char *why = NULL;

    PyErr_Fetch(&type, &value, &trace);
    if (value != NULL)
        text = PyObject_Str(value);
    if (text != NULL)
        why = PyUnicode_AsUTF8(text);
    PyErr_Clear();
    if (why != NULL && why[0] != '\0')
        PyErr_Format(PyExc_ValueError, "the tensor has no memory that can be read: %.*s", (int)strcspn(why, "\n"), why);
    else
        PyErr_SetString(PyExc_ValueError, "the tensor has no memory that can be read");
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    Py_XDECREF(text);
    return -1;
}

/* torch 1.13 raises where a newer one has an answer: sparse tensors have no address, meta ones cannot be copied. */
static int
refused(void)
{
    return PyErr_ExceptionMatches(PyExc_RuntimeError) ? no_memory_to_read() : -1;
}

/* 1 when obj lies on a device, 0 when on the host, -1 on error. */
static int
is_away(PyObject *obj)
{
    PyObject *device = PyObject_GetAttrString(obj, "device");
    PyObject *type = device != NULL ? PyObject_GetAttrString(device, "type") : NULL;
    int yes = type != NULL && PyUnicode_Check(type) ? PyUnicode_CompareWithASCIIString(type, "cpu") != 0 : -1;

    Py_XDECREF(device);
    Py_XDECREF(type);
    return yes;
}

enum filled { FILLED = 0, AWAY = 1, FAILED = -1 };

/* Describe obj in v->t, if it lies on the host. */
static enum filled
fill(msp_py_view *v, const dl_exchange_api *api, PyObject *obj)
{
    dl_tensor d;
    int away;

    if (api != NULL) {
        if (api->tensor_from_object(obj, &d) != 0)
            return no_memory_to_read();
        if (d.device.type != DL_CPU)
            return AWAY;
        if (fill_from_dlpack(v, &d) == 0)
            return FILLED;
    }
    away = is_away(obj);
    if (away != 0)
        return away;
    return fill_from_methods(v, obj) == 0 ? FILLED : FAILED;
}

/* The two bits exist for complex numbers and, from their imaginary parts, for floats. */
static int
has_lazy_bit(const msp_py_state *state, const msp_tensor *t, PyObject *obj)
{
    int yes = 0;

    switch (msp_dtype_class_of(t->dtype)) {
    case MSP_CLASS_COMPLEX:
        yes = ask(obj, state->str_is_conj);
        if (yes == 0)
            yes = ask(obj, state->str_is_neg);
        break;
    case MSP_CLASS_FLOAT:
        yes = ask(obj, state->str_is_neg);
        break;
    default:
        break;
    }
    return yes;
}

int
msp_py_torch_view(msp_py_view *v, msp_py_state *state, PyObject *obj)
{
    const dl_exchange_api *api = exchange_api(state, Py_TYPE(obj));
    enum filled how;
    int lazy = 0;

    if (api == NULL && (!PyObject_HasAttrString(obj, "data_ptr") || !PyObject_HasAttrString(obj, "stride")))
        return 0;
    how = fill(v, api, obj);
    if (how == FILLED)
        lazy = has_lazy_bit(state, &v->t, obj);
    if (how == FAILED || lazy < 0)
        return refused();
    if (how == AWAY || lazy > 0) {
        obj = materialised(v, obj);
        how = obj != NULL ? fill(v, api, obj) : FAILED;
        if (how == FAILED)
            return refused();
    }
    if (how == AWAY || (v->t.data == NULL && v->t.numel > 0)) /* meta tensors stay away, fake ones have no address */
        return no_memory_to_read();
    return 1;
}
