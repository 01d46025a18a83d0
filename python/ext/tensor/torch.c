/*
 * torch.c - tensors of PyTorch, without linking to it: the one reader of them, for the functions and for the collector.
 *
 * From 2.10 on a tensor's type offers a table of C functions (DLPack 1.2's exchange API); one call fills a struct that
 * points at the tensor's own sizes and strides, in some thirty nanoseconds. Older releases are asked through their
 * Python methods. The table's layout is a published binary interface; the part we use is declared here.
 *
 * A refusal of the table throws a C++ exception inside torch, which takes 0.8 ms. So what has no plain memory is sorted
 * out by two attributes first, which take 50 ns each: sparse tensors by their layout, those of other devices and meta
 * ones by not being on the CPU. A fake tensor gives no address. x.conj() and x.conj().imag only mark their memory as
 * conjugated or negated, and the table does not tell.
 */
#include "module.h"

/* ---- DLPack's structs ------------------------------------------------------------------------------------------- */

enum { DL_MAJOR = 1, DL_CPU = 1 };
#define DL_CAPSULE "dlpack_exchange_api"

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

/* ---- by the table ------------------------------------------------------------------------------------------------ */

/* 1 and a new reference in *out, 0: the object has no such attribute, -1 on error. */
static int
optional_attribute(PyObject **out, PyObject *obj, PyObject *name)
{
    *out = PyObject_GetAttr(obj, name);
    if (*out != NULL)
        return 1;
    if (!PyErr_ExceptionMatches(PyExc_AttributeError))
        return -1;
    PyErr_Clear(); /* of that type */
    return 0;
}

/* The function table of a type, NULL in *out: it has none. -1 on error. */
static int
find_exchange_api(const dl_exchange_api **out, const msp_py_state *state, PyTypeObject *type)
{
    const dl_exchange_api *api = NULL;
    PyObject *capsule;
    int found = optional_attribute(&capsule, (PyObject *)type, state->str_dlpack_api);

    if (found > 0 && PyCapsule_IsValid(capsule, DL_CAPSULE))
        api = PyCapsule_GetPointer(capsule, DL_CAPSULE); /* static in the framework */
    Py_XDECREF(capsule);
    while (api != NULL && (api->version.major != DL_MAJOR || api->tensor_from_object == NULL))
        api = api->previous;
    *out = api;
    return found < 0 ? -1 : 0;
}

/* find_exchange_api(), which is asked once for the last two types: torch.Tensor and Parameter take turns. */
static int
exchange_api(const dl_exchange_api **out, msp_py_state *state, PyTypeObject *type)
{
    unsigned at;

    for (int i = 0; i < MSP_PY_KNOWN_TYPES; i++)
        if (type == state->dlpack_types[i]) {
            *out = state->dlpack_apis[i];
            return 0;
        }
    if (find_exchange_api(out, state, type) != 0)
        return -1;
    at = state->dlpack_next++ % MSP_PY_KNOWN_TYPES;
    Py_INCREF(type);
    Py_XSETREF(state->dlpack_types[at], type);
    state->dlpack_apis[at] = *out;
    return 0;
}

/* False: elements of a type that the table cannot name. */
static bool
fill_from_dlpack(msp_tensor *t, const dl_tensor *d)
{
    t->dtype = d->dtype.lanes == 1 ? dtype_of_dlpack(d->dtype.code, d->dtype.bits) : MSP_DTYPE_NONE;
    if (t->dtype == MSP_DTYPE_NONE || d->ndim > MSP_MAX_NDIM)
        return false;
    t->data = (const char *)d->data + d->byte_offset;
    t->ndim = d->ndim;
    t->numel = 1;
    for (int i = d->ndim - 1; i >= 0; i--) {
        t->shape[i] = d->shape[i];
        t->strides[i] = d->strides != NULL ? d->strides[i] : t->numel;
        t->numel *= d->shape[i];
    }
    return true;
}

/* ---- by Python methods ------------------------------------------------------------------------------------------- */

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

msp_dtype
msp_py_torch_dtype(PyObject *dtype)
{
    /* types of elements are few objects that live as long as torch; to make their text takes a microsecond */
    static struct {
        PyObject *object;
        msp_dtype dtype;
    } known[32];
    const size_t most = sizeof(known) / sizeof(known[0]);
    size_t n = 0;
    PyObject *name;
    msp_dtype found;
    const char *text;
    Py_ssize_t len;

    for (; n < most && known[n].object != NULL; n++)
        if (known[n].object == dtype)
            return known[n].dtype;
    name = PyObject_Str(dtype);
    text = name == NULL ? NULL : PyUnicode_AsUTF8AndSize(name, &len);
    found = text == NULL ? MSP_DTYPE_NONE : msp_dtype_parse(text, (size_t)len);
    if (text != NULL && found == MSP_DTYPE_NONE)
        PyErr_Format(PyExc_TypeError, "elements of type %s are not supported", text);
    Py_XDECREF(name);
    if (found != MSP_DTYPE_NONE && n < most) {
        Py_INCREF(dtype);
        known[n].object = dtype;
        known[n].dtype = found;
    }
    return found;
}

static int
dtype_from_attribute(msp_tensor *t, PyObject *obj)
{
    PyObject *dtype = PyObject_GetAttrString(obj, "dtype");

    t->dtype = dtype == NULL ? MSP_DTYPE_NONE : msp_py_torch_dtype(dtype);
    Py_XDECREF(dtype);
    return t->dtype == MSP_DTYPE_NONE ? -1 : 0;
}

static int
fill_from_methods(msp_tensor *t, PyObject *obj)
{
    int64_t address;

    t->ndim = -1;
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

/* ---- where its memory is ----------------------------------------------------------------------------------------- */

/* torch.strided, lent; NULL: there is no torch in this process, perhaps with an exception set. */
static PyObject *
strided_layout(msp_py_state *state)
{
    PyObject *name, *torch;

    if (state->strided != NULL)
        return state->strided;
    name = PyUnicode_FromString("torch");
    torch = name == NULL ? NULL : PyImport_GetModule(name);
    if (torch != NULL)
        state->strided = PyObject_GetAttrString(torch, "strided");
    Py_XDECREF(torch);
    Py_XDECREF(name);
    return state->strided;
}

static msp_py_place
place_by_device(PyObject *obj)
{
    PyObject *device = PyObject_GetAttrString(obj, "device");
    PyObject *type = device != NULL ? PyObject_GetAttrString(device, "type") : NULL;
    msp_py_place place = MSP_PY_FAILED;

    if (type != NULL && PyUnicode_Check(type))
        place = PyUnicode_CompareWithASCIIString(type, "cpu") == 0 ? MSP_PY_HERE : MSP_PY_AWAY;
    if (place == MSP_PY_FAILED && !PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "the tensor's device has no type");
    Py_XDECREF(device);
    Py_XDECREF(type);
    return place;
}

static msp_py_place
place_of(msp_py_state *state, PyObject *obj)
{
    PyObject *layout, *is_cpu;
    int found = optional_attribute(&layout, obj, state->str_layout);
    const bool strided = found != 1 || layout == strided_layout(state);

    if (found == 1)
        Py_DECREF(layout);
    if (found < 0 || PyErr_Occurred())
        return MSP_PY_FAILED;
    if (!strided)
        return MSP_PY_NOWHERE;
    found = optional_attribute(&is_cpu, obj, state->str_is_cpu);
    if (found <= 0)
        return found < 0 ? MSP_PY_FAILED : place_by_device(obj);
    Py_DECREF(is_cpu);
    return is_cpu == Py_True ? MSP_PY_HERE : MSP_PY_AWAY;
}

/* ---- conjugated and negated memory ------------------------------------------------------------------------------- */

/* 1 when obj.method() is true, 0 when it is not or there is no such method, -1 on error. */
static int
ask_flag(PyObject *obj, PyObject *method)
{
    PyObject *r = PyObject_CallMethodObjArgs(obj, method, NULL);
    int yes;

    if (r == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear(); /* of that type */
        return 0;
    }
    yes = PyObject_IsTrue(r);
    Py_DECREF(r);
    return yes;
}

/* Complex numbers may be conjugated. A negated view is one of their imaginary parts: it has gaps, or one element. */
static int
has_lazy_bit(const msp_py_state *state, const msp_tensor *t, PyObject *obj)
{
    const msp_dtype_class class = msp_dtype_class_of(t->dtype);
    int yes = 0;

    if (class == MSP_CLASS_COMPLEX)
        yes = ask_flag(obj, state->str_is_conj);
    if (yes == 0 &&
        (class == MSP_CLASS_COMPLEX || (class == MSP_CLASS_FLOAT && (t->numel <= 1 || !msp_tensor_is_contiguous(t)))))
        yes = ask_flag(obj, state->str_is_neg);
    return yes;
}

/* ---- the reader -------------------------------------------------------------------------------------------------- */

static msp_py_place
fill_tensor(msp_tensor *t, msp_py_state *state, PyObject *obj)
{
    const dl_exchange_api *api;
    dl_tensor d;

    if (exchange_api(&api, state, Py_TYPE(obj)) != 0)
        return MSP_PY_FAILED;
    if (api != NULL) {
        if (api->tensor_from_object(obj, &d) != 0)
            return MSP_PY_FAILED;
        if (d.device.type != DL_CPU)
            return MSP_PY_AWAY;
        if (fill_from_dlpack(t, &d))
            return MSP_PY_HERE;
    }
    return fill_from_methods(t, obj) == 0 ? MSP_PY_HERE : MSP_PY_FAILED;
}

msp_py_place
msp_py_torch_look(msp_tensor *t, msp_py_state *state, PyObject *obj)
{
    msp_py_place place = place_of(state, obj);
    int lazy;

    t->owner = NULL;
    t->release_owner = NULL;
    t->requires_grad = false;
    if (place == MSP_PY_HERE)
        place = fill_tensor(t, state, obj);
    if (place != MSP_PY_HERE)
        return place;
    if (t->data == NULL && t->numel > 0) /* a fake tensor, or one whose memory was given back for a while (FSDP) */
        return MSP_PY_NOWHERE;
    lazy = has_lazy_bit(state, t, obj);
    return lazy < 0 ? MSP_PY_FAILED : lazy > 0 ? MSP_PY_LAZY : MSP_PY_HERE;
}

/* ---- for the functions: what is not here is brought here --------------------------------------------------------- */

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

/* Frameworks answer with a page of text; its first line says enough. What fails meanwhile is raised instead. */
static int
no_memory_to_read(void)
{
    PyObject *type, *value, *trace, *text;
    const char *why;

    PyErr_Fetch(&type, &value, &trace);
    text = value == NULL ? PyUnicode_FromString("") : PyObject_Str(value);
    why = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    if (why != NULL && why[0] != '\0')
        PyErr_Format(PyExc_ValueError, "the tensor has no memory that can be read: %.*s", (int)strcspn(why, "\n"), why);
    else if (why != NULL)
        PyErr_SetString(PyExc_ValueError, "the tensor has no memory that can be read");
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    Py_XDECREF(text);
    return -1;
}

/* Whether it can be asked for its memory as a tensor: 1, 0, or -1 on error. */
static int
is_tensor(msp_py_state *state, PyObject *obj)
{
    static const char *const methods[] = {"data_ptr", "stride"};
    const dl_exchange_api *api;
    int found = exchange_api(&api, state, Py_TYPE(obj)) == 0 ? 1 : -1;

    for (int i = 0; i < 2 && found > 0 && api == NULL; i++) {
        PyObject *name = PyUnicode_FromString(methods[i]), *method = NULL;

        found = name == NULL ? -1 : optional_attribute(&method, obj, name);
        Py_XDECREF(method);
        Py_XDECREF(name);
    }
    return found;
}

int
msp_py_torch_view(msp_py_view *v, msp_py_state *state, PyObject *obj)
{
    msp_py_place place;
    int found = is_tensor(state, obj);

    if (found <= 0)
        return found;
    place = msp_py_torch_look(&v->t, state, obj);
    if (place == MSP_PY_AWAY || place == MSP_PY_LAZY) {
        obj = materialised(v, obj);
        place = obj != NULL ? msp_py_torch_look(&v->t, state, obj) : MSP_PY_FAILED;
    }
    if (place == MSP_PY_HERE)
        return 1;
    if (place == MSP_PY_FAILED && !PyErr_ExceptionMatches(PyExc_RuntimeError) &&
        !PyErr_ExceptionMatches(PyExc_BufferError))
        return -1;
    return no_memory_to_read();
}
