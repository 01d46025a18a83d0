/*
 * probe_view.c - a tensor's memory, read without going through Python.
 *
 * torch exports C functions for compiled models (aoti_torch_*) that take the address of the tensor inside its Python
 * object; six of them cost 14 ns, the same attributes read through Python 1,030 ns. The offset of that address and the
 * functions are proved on a known tensor before they are used. Neither way may fail on purpose: a refusal throws a C++
 * exception inside torch, which costs 0.8 ms, so what has no plain memory (sparse, functorch wrappers, meta,
 * subclasses) is sorted out first and described by Python.
 */
#include "probe.h"
#include "probe_field.h"
#include <dlfcn.h>
#include <malloc.h>
#include <string.h>

typedef int32_t ask_i64(void *tensor, int64_t *out);
typedef int32_t ask_i32(void *tensor, int32_t *out);
typedef int32_t ask_ptr(void *tensor, void **out);
typedef int32_t ask_sizes(void *tensor, int64_t **out);

static struct {
    ask_ptr *data;
    ask_i64 *dim, *offset;
    ask_sizes *sizes, *strides;
    ask_i32 *dtype, *device, *layout;
    bool (*grad_enabled)(void); /* NULL: unknown */
    int32_t cpu;
    ptrdiff_t handle; /* of the at::Tensor in the Python object */
    bool ready;
} aoti;

static PyObject *str_requires_grad, *str_is_neg, *str_is_conj, *str_shape, *str_stride, *str_dtype, *str_device,
    *str_type, *str_layout, *str_data_ptr, *str_offset;

/* torch's ScalarType numbers; they are stored in files and do not change. */
static msp_dtype
dtype_of_torch(int32_t code)
{
    static const uint8_t table[] = {
        [0] = MSP_U8,           [1] = MSP_I8,    [2] = MSP_I16,      [3] = MSP_I32,        [4] = MSP_I64,
        [5] = MSP_F16,          [6] = MSP_F32,   [7] = MSP_F64,      [9] = MSP_C64,        [10] = MSP_C128,
        [11] = MSP_BOOL,        [15] = MSP_BF16, [23] = MSP_F8_E5M2, [24] = MSP_F8_E4M3FN, [25] = MSP_F8_E5M2FNUZ,
        [26] = MSP_F8_E4M3FNUZ, [27] = MSP_U16,  [28] = MSP_U32,     [29] = MSP_U64,
    };

    return code >= 0 && (size_t)code < sizeof(table) ? (msp_dtype)table[code] : MSP_DTYPE_NONE;
}

static bool
find_functions(void)
{
    void *lib = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    int32_t (*cpu)(void);

    if (lib == NULL)
        return false;
    *(void **)&aoti.data = dlsym(lib, "aoti_torch_get_data_ptr");
    *(void **)&aoti.dim = dlsym(lib, "aoti_torch_get_dim");
    *(void **)&aoti.offset = dlsym(lib, "aoti_torch_get_storage_offset");
    *(void **)&aoti.sizes = dlsym(lib, "aoti_torch_get_sizes");
    *(void **)&aoti.strides = dlsym(lib, "aoti_torch_get_strides");
    *(void **)&aoti.dtype = dlsym(lib, "aoti_torch_get_dtype");
    *(void **)&aoti.device = dlsym(lib, "aoti_torch_get_device_type");
    *(void **)&aoti.layout = dlsym(lib, "aoti_torch_get_layout");
    *(void **)&aoti.grad_enabled = dlsym(lib, "aoti_torch_grad_mode_is_enabled");
    *(void **)&cpu = dlsym(lib, "aoti_torch_device_type_cpu");
    dlclose(lib);
    if (cpu == NULL || aoti.data == NULL || aoti.dim == NULL || aoti.offset == NULL || aoti.sizes == NULL ||
        aoti.strides == NULL || aoti.dtype == NULL || aoti.device == NULL || aoti.layout == NULL)
        return false;
    aoti.cpu = cpu();
    return true;
}

/* Where in the object the tensor's own pointer stands: it is what t._cdata says. */
static bool
find_handle(PyObject *t)
{
    PyObject *cdata = PyObject_GetAttrString(t, "_cdata");
    void *want = cdata == NULL ? NULL : PyLong_AsVoidPtr(cdata);

    Py_XDECREF(cdata);
    PyErr_Clear();
    for (ptrdiff_t off = sizeof(PyObject); want != NULL && off <= 48; off += (ptrdiff_t)sizeof(void *))
        if (off + (ptrdiff_t)sizeof(void *) <= Py_TYPE(t)->tp_basicsize && *(void **)((char *)t + off) == want) {
            aoti.handle = off;
            return true;
        }
    return false;
}

bool
msp_probe_grad_enabled(void)
{
    return !aoti.ready || aoti.grad_enabled == NULL || aoti.grad_enabled();
}

void *
msp_probe_tensor_handle(PyObject *t)
{
    return (char *)t + aoti.handle;
}

bool
msp_probe_tensor_is_fast(void)
{
    return aoti.ready;
}

/* ---- fields of a tensor, where they were found ------------------------------------------------------------------- */

/*
 * The five functions take a quarter of what the record of a small tensor does. What they tell stands in torch's tensor
 * (c10::TensorImpl) and its storage, at offsets that are searched for in samples (selftest.py), by what they say.
 */
static struct {
    bool ready;
    size_t sizes; /* how many; then room for five, and for their strides */
    size_t offset, dtype, storage;
    size_t data; /* in the storage */
} fields;

enum { OWN_NDIM = 5 /* more of them stand elsewhere */ };

static bool
has_own_sizes(const void *h)
{
    return *(const uint64_t *)(*(const char *const *)h + fields.sizes) <= OWN_NDIM;
}

/* Of one that has; false: its memory was given back for a while (FSDP), or its type is not known. */
static bool
field_view(msp_tensor *out, const void *h)
{
    const char *impl = *(const char *const *)h, *storage = *(const char *const *)(impl + fields.storage);
    const int64_t *sizes = (const int64_t *)(impl + fields.sizes), *strides = sizes + 1 + OWN_NDIM;
    const char *data = storage == NULL ? NULL : *(const char *const *)(storage + fields.data);

    out->dtype = dtype_of_torch(*(const uint16_t *)(impl + fields.dtype));
    out->ndim = (int32_t)sizes[0];
    out->numel = 1;
    for (int i = 0; i < out->ndim; i++) {
        out->shape[i] = sizes[1 + i];
        out->strides[i] = strides[i];
        out->numel *= sizes[1 + i];
    }
    if (data != NULL)
        data += *(const int64_t *)(impl + fields.offset) * (int64_t)msp_dtype_size(out->dtype);
    out->data = data;
    out->owner = NULL;
    out->release_owner = NULL;
    return out->dtype != MSP_DTYPE_NONE && (data != NULL || out->numel == 0);
}

/* The same of one without gaps, lent; false: it has some, or nothing is known of it. */
static bool
small_view(msp_small *out, const void *h)
{
    const char *impl = *(const char *const *)h, *storage = *(const char *const *)(impl + fields.storage);
    const int64_t *sizes = (const int64_t *)(impl + fields.sizes), *strides = sizes + 1 + OWN_NDIM;
    const int64_t offset = *(const int64_t *)(impl + fields.offset);
    const char *data = storage == NULL ? NULL : *(const char *const *)(storage + fields.data);

    out->dtype = dtype_of_torch(*(const uint16_t *)(impl + fields.dtype));
    out->ndim = (int32_t)sizes[0];
    out->shape = sizes + 1;
    out->numel = 1;
    for (int i = out->ndim; i-- > 0;) {
        if (out->shape[i] != 1 && strides[i] != out->numel)
            return false;
        out->numel *= out->shape[i];
    }
    if (offset != 0 && data != NULL)
        data += offset * (int64_t)msp_dtype_size(out->dtype);
    out->data = data;
    return data != NULL;
}

/* Of a tensor that is known to be dense and in host memory: whether *out describes it. */
static bool
plain_view(msp_tensor *out, void *h)
{
    void *data;
    int64_t ndim, *sizes, *strides;
    int32_t dtype;

    if (fields.ready && has_own_sizes(h))
        return field_view(out, h);
    if (aoti.dim(h, &ndim) != 0 || ndim > MSP_MAX_NDIM || aoti.dtype(h, &dtype) != 0 || aoti.data(h, &data) != 0 ||
        aoti.sizes(h, &sizes) != 0 || aoti.strides(h, &strides) != 0)
        return false;
    out->dtype = dtype_of_torch(dtype);
    out->ndim = (int32_t)ndim;
    out->numel = 1;
    for (int i = 0; i < out->ndim; i++) {
        out->shape[i] = sizes[i];
        out->strides[i] = strides[i];
        out->numel *= sizes[i];
    }
    out->data = data;
    out->owner = NULL;
    out->release_owner = NULL;
    return out->dtype != MSP_DTYPE_NONE && (data != NULL || out->numel == 0);
}

/* The same of any. */
static bool
fast_view(msp_tensor *out, void *h, int64_t *offset)
{
    int32_t layout, device;

    return aoti.layout(h, &layout) == 0 && layout == 0 && aoti.device(h, &device) == 0 && device == aoti.cpu &&
           plain_view(out, h) && aoti.offset(h, offset) == 0;
}

/* ---- the plain way: attributes ----------------------------------------------------------------------------------- */

static PyObject *
ask(PyObject *t, PyObject *name, bool call)
{
    return call ? PyObject_CallMethodObjArgs(t, name, NULL) : PyObject_GetAttr(t, name);
}

static bool
text_is(PyObject *v, const char *text) /* takes the reference over */
{
    PyObject *s = v == NULL ? NULL : PyObject_Str(v);
    bool yes = s != NULL && PyUnicode_CompareWithASCIIString(s, text) == 0;

    Py_XDECREF(s);
    Py_XDECREF(v);
    return yes;
}

static int64_t
number_of(PyObject *v) /* takes the reference over */
{
    int64_t n = v == NULL ? -1 : PyLong_AsLongLong(v);

    Py_XDECREF(v);
    return n;
}

int
msp_probe_numbers(int64_t *out, PyObject *tuple) /* takes the reference over */
{
    Py_ssize_t n = tuple != NULL && PyTuple_Check(tuple) ? PyTuple_GET_SIZE(tuple) : -1;

    if (n > MSP_MAX_NDIM)
        n = -1;
    for (Py_ssize_t i = 0; i < n; i++)
        out[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    Py_XDECREF(tuple);
    return (int)n;
}

static msp_dtype
dtype_by_name(PyObject *dtype) /* takes the reference over */
{
    PyObject *s = dtype == NULL ? NULL : PyObject_Str(dtype);
    Py_ssize_t len;
    const char *p = s == NULL ? NULL : PyUnicode_AsUTF8AndSize(s, &len);
    msp_dtype t = p == NULL ? MSP_DTYPE_NONE : msp_dtype_parse(p, (size_t)len);

    Py_XDECREF(s);
    Py_XDECREF(dtype);
    return t;
}

static bool
is_strided_in_host_memory(PyObject *t)
{
    PyObject *device = ask(t, str_device, false);
    bool yes = device != NULL && text_is(ask(device, str_type, false), "cpu") &&
               text_is(ask(t, str_layout, false), "torch.strided");

    Py_XDECREF(device);
    return yes;
}

/* What its attributes say; false, perhaps with an exception set: they do not. Nothing is asked when one is set. */
static bool
ask_for_view(msp_tensor *out, PyObject *t, int64_t *offset)
{
    int64_t data;

    *out = (msp_tensor){0};
    if (!is_strided_in_host_memory(t))
        return false;
    out->ndim = msp_probe_numbers(out->shape, ask(t, str_shape, false));
    if (out->ndim < 0 || PyErr_Occurred())
        return false;
    out->dtype = dtype_by_name(ask(t, str_dtype, false));
    if (PyErr_Occurred())
        return false;
    *offset = number_of(ask(t, str_offset, true));
    if (PyErr_Occurred())
        return false;
    data = number_of(ask(t, str_data_ptr, true));
    out->data = (void *)(uintptr_t)data;
    return !PyErr_Occurred() && msp_probe_numbers(out->strides, ask(t, str_stride, true)) == out->ndim &&
           !PyErr_Occurred();
}

/* As fast_view(), a hundred times slower, for a torch without these functions. Python runs meanwhile, and what a
 * handler of the program's raises there is the program's: then the tensor is asked again. */
static int
slow_view(msp_tensor *out, PyObject *t, int64_t *offset)
{
    bool known = ask_for_view(out, t, offset);

    if (!known && msp_probe_drop_error())
        known = ask_for_view(out, t, offset);
    if (!known) {
        msp_probe_drop_error(); /* symbolic sizes, a subclass that refuses: Python describes it */
        return 0;
    }
    out->numel = 1;
    for (int i = 0; i < out->ndim; i++)
        out->numel *= out->shape[i];
    return out->dtype != MSP_DTYPE_NONE && (out->data != NULL || out->numel == 0);
}

static void
intern_names(void)
{
    str_requires_grad = PyUnicode_InternFromString("requires_grad");
    str_is_neg = PyUnicode_InternFromString("is_neg");
    str_is_conj = PyUnicode_InternFromString("is_conj");
    str_shape = PyUnicode_InternFromString("shape");
    str_stride = PyUnicode_InternFromString("stride");
    str_dtype = PyUnicode_InternFromString("dtype");
    str_device = PyUnicode_InternFromString("device");
    str_type = PyUnicode_InternFromString("type");
    str_layout = PyUnicode_InternFromString("layout");
    str_data_ptr = PyUnicode_InternFromString("data_ptr");
    str_offset = PyUnicode_InternFromString("storage_offset");
}

bool
msp_probe_tensor_setup(PyObject *sample)
{
    const float *p;
    msp_tensor t;
    int64_t offset;

    if (str_requires_grad == NULL)
        intern_names();
    /* sample is torch.tensor([[1., 2., 3.], [4., 5., 6.]])[1:, ::2]: everything about it is known */
    aoti.ready = fields.ready = false;
    if (sample == Py_None || !find_functions() || !find_handle(sample) ||
        !fast_view(&t, msp_probe_tensor_handle(sample), &offset))
        return false;
    p = t.data;
    aoti.ready = t.dtype == MSP_F32 && t.ndim == 2 && t.shape[0] == 1 && t.shape[1] == 2 && t.strides[1] == 2 &&
                 offset == 3 && p[0] == 4.0f && p[2] == 6.0f;
    return aoti.ready;
}

/* What the functions say of a sample, and where it stands. */
typedef struct field_sample {
    msp_tensor view;
    int64_t offset;
    int32_t dtype;
    const char *impl, *data; /* data: of the storage */
    size_t size;             /* of impl */
} field_sample;

enum { MOST_FIELD_SAMPLES = 16 };

static bool
has_sizes(size_t at, const void *sample)
{
    const field_sample *s = sample;
    const int64_t n = s->view.ndim;
    const size_t bytes = (size_t)n * sizeof(int64_t);

    return at + (1 + 2 * OWN_NDIM) * sizeof(int64_t) <= s->size && memcmp(s->impl + at, &n, sizeof(n)) == 0 &&
           memcmp(s->impl + at + sizeof(n), s->view.shape, bytes) == 0 &&
           memcmp(s->impl + at + (1 + OWN_NDIM) * sizeof(n), s->view.strides, bytes) == 0;
}

static bool
has_offset(size_t at, const void *sample)
{
    const field_sample *s = sample;

    return at + sizeof(s->offset) <= s->size && memcmp(s->impl + at, &s->offset, sizeof(s->offset)) == 0;
}

static bool
has_dtype(size_t at, const void *sample)
{
    const field_sample *s = sample;
    const uint16_t code = (uint16_t)s->dtype;

    return at + sizeof(code) <= s->size && memcmp(s->impl + at, &code, sizeof(code)) == 0;
}

/* at: in the tensor, and behind that in its storage */
enum { STORAGE_WORDS = 16 };

static bool
has_storage(size_t at, const void *sample)
{
    const field_sample *s = sample;
    const size_t in_storage = at % STORAGE_WORDS * sizeof(void *);
    const char *storage, *data;

    at = at / STORAGE_WORDS * sizeof(void *);
    if (at + sizeof(void *) > s->size)
        return false;
    memcpy(&storage, s->impl + at, sizeof(storage));
    return msp_field_peek(&data, storage + in_storage, sizeof(data)) && data == s->data;
}

static bool
take_field_sample(field_sample *s, PyObject *t)
{
    void *h = msp_probe_tensor_handle(t);

    if (!msp_probe_is_plain_tensor(t) || !fast_view(&s->view, h, &s->offset) || aoti.dtype(h, &s->dtype) != 0 ||
        s->view.ndim > OWN_NDIM)
        return false;
    s->impl = *(const char **)h;
    s->data = (const char *)s->view.data - s->offset * (int64_t)msp_dtype_size(s->view.dtype);
    s->size = malloc_usable_size((void *)(uintptr_t)s->impl);
    return true;
}

/*
 * fields(tensors) -> bool: whether tensors are read by their fields from now on. tensors: a list of plain ones that
 * differ in everything. fields([]): they are not.
 */
PyObject *
msp_probe_fields(PyObject *self, PyObject *tensors)
{
    field_sample samples[MOST_FIELD_SAMPLES];
    field_samples all = {samples, sizeof(*samples), 0};
    size_t both = 0;

    (void)self;
    fields.ready = false;
    if (!PyList_Check(tensors) || !aoti.ready)
        Py_RETURN_FALSE;
    while (all.n < MOST_FIELD_SAMPLES && all.n < PyList_GET_SIZE(tensors) &&
           take_field_sample(&samples[all.n], PyList_GET_ITEM(tensors, all.n)))
        all.n++;
    if (all.n < 4 || all.n != PyList_GET_SIZE(tensors))
        Py_RETURN_FALSE;
    fields.ready = msp_field_find(&fields.sizes, &all, 8, TENSOR_BYTES, has_sizes) &&
                   msp_field_find(&fields.offset, &all, 8, TENSOR_BYTES, has_offset) &&
                   msp_field_find(&fields.dtype, &all, 2, TENSOR_BYTES, has_dtype) &&
                   msp_field_find(&both, &all, 1, TENSOR_BYTES / sizeof(void *) * STORAGE_WORDS, has_storage);
    fields.storage = both / STORAGE_WORDS * sizeof(void *);
    fields.data = both % STORAGE_WORDS * sizeof(void *);
    return PyBool_FromLong(fields.ready);
}

/*
 * x.conj() and x.conj().imag only mark their memory as conjugated or negated. A negated view is a view of complex
 * numbers: it has gaps, or one element that does not stand at the storage's beginning; only then torch is asked.
 */
static bool
may_be_lazy(const msp_tensor *t, int64_t offset)
{
    if (t->dtype == MSP_C64 || t->dtype == MSP_C128)
        return true;
    if (t->dtype != MSP_F32 && t->dtype != MSP_F64 && t->dtype != MSP_F16)
        return false;
    return t->numel <= 1 ? offset != 0 : !msp_tensor_is_contiguous(t);
}

static int
ask_bit(PyObject *t, PyObject *method)
{
    PyObject *r = PyObject_CallMethodObjArgs(t, method, NULL);
    int yes = r == NULL ? -1 : PyObject_IsTrue(r);

    Py_XDECREF(r);
    return yes;
}

static int
is_lazy(PyObject *t, const msp_tensor *view, int64_t offset)
{
    int neg;

    if (!may_be_lazy(view, offset))
        return 0;
    neg = ask_bit(t, str_is_neg);
    return neg != 0 ? neg : ask_bit(t, str_is_conj);
}

int
msp_probe_tensor_view(msp_tensor *view, PyObject *t)
{
    int64_t offset;
    int lazy;

    if (!msp_probe_is_plain_tensor(t) || msp_probe_thread.transforming)
        return 0;
    if (aoti.ready && msp_node_is_plain(msp_probe_tensor_handle(t)))
        return plain_view(view, msp_probe_tensor_handle(t));
    if (!(aoti.ready ? fast_view(view, msp_probe_tensor_handle(t), &offset) : slow_view(view, t, &offset)))
        return 0;
    lazy = is_lazy(t, view, offset);
    return lazy < 0 ? -1 : !lazy;
}

int
msp_probe_requires_grad(PyObject *t, bool *yes)
{
    PyObject *v;

    if (msp_node_usable()) {
        *yes = msp_node_requires_grad(msp_probe_tensor_handle(t));
        return 0;
    }
    v = PyObject_GetAttr(t, str_requires_grad);
    *yes = v == Py_True;
    Py_XDECREF(v);
    return v == NULL ? -1 : 0;
}

int
msp_probe_tensor_shape(msp_tensor *view, PyObject *shape, PyObject *dtype)
{
    *view = (msp_tensor){0};
    Py_INCREF(shape);
    Py_INCREF(dtype);
    view->ndim = msp_probe_numbers(view->shape, shape);
    view->dtype = dtype_by_name(dtype);
    view->numel = 1;
    for (int i = 0; i < view->ndim; i++)
        view->numel *= view->shape[i];
    if (!PyErr_Occurred() && (view->ndim < 0 || view->dtype == MSP_DTYPE_NONE))
        PyErr_SetString(PyExc_TypeError, "a shape or a type of elements that is not known");
    return PyErr_Occurred() ? -1 : 0;
}

void
msp_probe_quick_start(void)
{
    const probe_rules *r = &msp_probe.rules;

    msp_probe.quick =
        msp_node_usable() && r->statistics && !r->overflow && msp_probe.data_dir == NULL && !msp_probe_is_legacy();
}

bool
msp_probe_quick(msp_record *r, const void *handle)
{
    msp_small t;

    if (!fields.ready || !msp_node_is_plain(handle) || !has_own_sizes(handle) || !small_view(&t, handle))
        return false;
    t.requires_grad = msp_node_requires_grad(handle);
    t.has_crc = msp_probe.rules.checksum;
    return msp_record_small(r, &t);
}

bool
msp_probe_handle_view(msp_tensor *view, const void *handle)
{
    return msp_node_is_plain(handle) && plain_view(view, (void *)(uintptr_t)handle);
}
