/*
 * probe_tensor.c - a tensor's memory, read without going through Python.
 *
 * torch exports C functions for compiled models (aoti_torch_*) that take the address of the tensor inside its Python
 * object; six of them cost 14 ns, the same attributes read through Python 1,030 ns. The offset of that address and the
 * functions are proved on a known tensor before they are used. Neither way may fail on purpose: a refusal throws a C++
 * exception inside torch, which costs 0.8 ms, so what has no plain memory (sparse, functorch wrappers, meta,
 * subclasses) is sorted out first and described by Python.
 */
#include "probe.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
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

/* Of a tensor that is known to be dense and in host memory: whether *out describes it. */
static bool
plain_view(msp_tensor *out, void *h)
{
    void *data;
    int64_t ndim, *sizes, *strides;
    int32_t dtype;

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

/* ---- the plain way: attributes
 * ---------------------------------------------------------------------------------------- */

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

/* How many numbers there are in a tuple of at most MSP_MAX_NDIM, -1: it is something else. */
static int
numbers_of(int64_t *out, PyObject *tuple) /* takes the reference over */
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

/* As fast_view(), a hundred times slower, for a torch without these functions. */
static int
slow_view(msp_tensor *out, PyObject *t, int64_t *offset)
{
    *out = (msp_tensor){0};
    if (is_strided_in_host_memory(t)) {
        out->ndim = numbers_of(out->shape, ask(t, str_shape, false));
        out->dtype = dtype_by_name(ask(t, str_dtype, false));
        *offset = number_of(ask(t, str_offset, true));
        out->data = (void *)(uintptr_t)number_of(ask(t, str_data_ptr, true));
        if (numbers_of(out->strides, ask(t, str_stride, true)) != out->ndim)
            out->ndim = -1;
    } else {
        out->ndim = -1;
    }
    if (PyErr_Occurred() || out->ndim < 0) {
        PyErr_Clear(); /* symbolic sizes, a subclass that refuses: Python describes it */
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
    aoti.ready = false;
    if (sample == Py_None || !find_functions() || !find_handle(sample) ||
        !fast_view(&t, msp_probe_tensor_handle(sample), &offset))
        return false;
    p = t.data;
    aoti.ready = t.dtype == MSP_F32 && t.ndim == 2 && t.shape[0] == 1 && t.shape[1] == 2 && t.strides[1] == 2 &&
                 offset == 3 && p[0] == 4.0f && p[2] == 6.0f;
    return aoti.ready;
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

/* The moduli of a complex tensor: what a dump's Max, Min and Mean of it are about. Returns false without memory. */
static bool
measure_moduli(const msp_tensor *t, msp_stats *stats)
{
    const bool wide = t->dtype == MSP_C128;
    void *moduli = PyMem_RawCalloc((size_t)t->numel + 1, wide ? sizeof(double) : sizeof(float));
    msp_tensor view;

    if (moduli == NULL)
        return false;
    for (int64_t i = 0; i < t->numel; i++) {
        const void *at = msp_tensor_at(t, i);

        if (wide)
            ((double *)moduli)[i] = hypot(((const double *)at)[0], ((const double *)at)[1]);
        else
            ((float *)moduli)[i] = hypotf(((const float *)at)[0], ((const float *)at)[1]);
    }
    if (msp_tensor_view(&view, moduli, wide ? MSP_F64 : MSP_F32, t->ndim, t->shape, NULL) == MSP_OK)
        msp_stats_compute(stats, &view);
    PyMem_RawFree(moduli);
    return true;
}

static void
measure_values(const msp_tensor *t, msp_stats *stats, bool large)
{
    if ((t->dtype != MSP_C64 && t->dtype != MSP_C128) || !measure_moduli(t, stats))
        msp_stats_compute_mt(stats, t, large ? msp_probe.rules.threads : 1);
}

/*
 * What the hooks of one node are shown is measured once: nested modules hook the same node, and a node hands one
 * gradient on to several edges. Engine and list hold these tensors, and nothing of the program runs between our hooks.
 * Nothing else is ever taken for what it was: memory can be written to without torch's knowing, and freed memory is
 * another tensor's.
 */
enum {
    MOST_SHOWN = 8,
    SHOWN_NDIM = 5,
    SHOWN_FROM = 512 /* elements: fewer are measured in the time that remembering takes */
};

typedef struct measured {
    const void *data;
    int64_t shape[SHOWN_NDIM], strides[SHOWN_NDIM];
    int32_t ndim;
    msp_dtype dtype;
    msp_stats stats;
    uint32_t crc;
} measured;

static __thread struct {
    int n;
    measured tensors[MOST_SHOWN];
} remembered;

void
msp_probe_shown_anew(void)
{
    remembered.n = 0;
}

static bool
is_same(const measured *m, const msp_tensor *t)
{
    const size_t size = (size_t)t->ndim * sizeof(int64_t);

    return m->data == t->data && m->dtype == t->dtype && m->ndim == t->ndim && memcmp(m->shape, t->shape, size) == 0 &&
           memcmp(m->strides, t->strides, size) == 0;
}

static const measured *
find_measured(const msp_tensor *t)
{
    for (int i = 0; i < remembered.n; i++)
        if (is_same(&remembered.tensors[i], t))
            return &remembered.tensors[i];
    return NULL;
}

static void
note_measured(const msp_tensor *t, const msp_stats *stats, uint32_t crc)
{
    measured *m = &remembered.tensors[remembered.n];

    if (remembered.n == MOST_SHOWN || t->ndim > SHOWN_NDIM)
        return;
    m->data = t->data;
    m->dtype = t->dtype;
    m->ndim = t->ndim;
    memcpy(m->shape, t->shape, (size_t)t->ndim * sizeof(int64_t));
    memcpy(m->strides, t->strides, (size_t)t->ndim * sizeof(int64_t));
    m->stats = *stats;
    m->crc = crc;
    remembered.n++;
}

/* Large tensors are read without the interpreter lock: the caller holds a reference. */
static void
measure(const msp_tensor *t, msp_stats *stats, uint32_t *crc)
{
    PyThreadState *saved = NULL;
    bool large = (size_t)t->numel * msp_dtype_size(t->dtype) > 1 << 16;

    if (large)
        saved = PyEval_SaveThread();
    if (msp_probe.rules.statistics)
        measure_values(t, stats, large);
    if (msp_probe.rules.checksum)
        *crc = msp_crc32(t);
    if (large)
        PyEval_RestoreThread(saved);
}

static void
measure_shown(const msp_tensor *t, msp_stats *stats, uint32_t *crc)
{
    const measured *known = find_measured(t);

    if (known != NULL) {
        *stats = known->stats;
        *crc = known->crc;
        return;
    }
    measure(t, stats, crc);
    note_measured(t, stats, *crc);
}

void
msp_probe_measure(const msp_tensor *t, msp_stats *stats)
{
    PyThreadState *saved = NULL;
    bool large = (size_t)t->numel * msp_dtype_size(t->dtype) > 1 << 16;

    if (large)
        saved = PyEval_SaveThread();
    measure_values(t, stats, large);
    if (large)
        PyEval_RestoreThread(saved);
}

static bool
full_name(char *out, size_t size, const char *file)
{
    return (size_t)snprintf(out, size, "%s/%s", msp_probe.data_dir, file) < size;
}

void
msp_probe_remove_file(const char *name)
{
    char file[4096];

    if (msp_probe.data_dir != NULL && full_name(file, sizeof(file), name))
        unlink(file);
}

/* Save its elements, and measure it (stats NULL: no) meanwhile. */
static int
save_and_measure(const msp_tensor *t, const char *name, msp_stats *stats)
{
    char file[4096];
    msp_error err;
    msp_status st;
    PyThreadState *saved;

    if (msp_probe.data_dir == NULL || !full_name(file, sizeof(file), name)) {
        PyErr_Format(PyExc_OSError, "%s: path too long", name);
        return -1;
    }
    saved = PyEval_SaveThread();
    st = msp_pt_save_measured(file, t, stats, &err);
    PyEval_RestoreThread(saved);
    if (st != MSP_OK) {
        PyErr_SetString(PyExc_OSError, err.message);
        return -1;
    }
    return 0;
}

int
msp_probe_save_tensor(const msp_tensor *t, const char *name)
{
    return save_and_measure(t, name, NULL);
}

static void
file_name(const probe_path *path, char *file, size_t size)
{
    snprintf(file, size, "%.*s.pt", (int)path->len, path->text);
}

static int
save_as(const msp_tensor *t, const probe_path *path, char *file, size_t size)
{
    file_name(path, file, size);
    return msp_probe_save_tensor(t, file);
}

/* Name the file of a value that is being read, and save the elements. Task overflow_check knows only after the call
 * whether they are wanted, and the record names the file already: until then inputs are kept. */
static int
file_now_or_later(const msp_tensor *t, const probe_path *path, char *file, size_t size)
{
    if (!msp_probe.rules.overflow || msp_probe_thread.saving)
        return save_as(t, path, file, size);
    file_name(path, file, size);
    return msp_probe_thread.keep == NULL ? 0 : msp_probe_keep(msp_probe_thread.keep, t, file);
}

static bool
wants_file(const probe_path *path)
{
    if (!path->files || msp_probe.data_dir == NULL)
        return false;
    return msp_probe.rules.tensors || msp_probe_in_list(msp_probe.rules.tensor_list, path->text, path->len);
}

enum { NO_VALUES, STATISTICS, ELEMENTS, STATISTICS_AND_COPY };

/* wanted(path) -> what of a tensor that is being read is needed: see pytorch/device.py */
PyObject *
msp_probe_wanted(PyObject *self, PyObject *text)
{
    probe_path path = {.files = true};
    int want = STATISTICS;
    Py_ssize_t len;
    const char *p = PyUnicode_AsUTF8AndSize(text, &len);

    (void)self;
    if (p == NULL)
        return NULL;
    path.len = (size_t)len < sizeof(path.text) ? (size_t)len : sizeof(path.text) - 1;
    memcpy(path.text, p, path.len);
    if (msp_probe_thread.no_values != NULL || !msp_probe.rules.statistics)
        want = NO_VALUES;
    else if (msp_probe_is_legacy() || msp_probe.rules.checksum || msp_probe_thread.saving ||
             (wants_file(&path) && !msp_probe.rules.overflow))
        want = ELEMENTS;
    else if (wants_file(&path) && msp_probe_thread.keep != NULL)
        want = STATISTICS_AND_COPY;
    return PyLong_FromLong(want);
}

/* file(tensor, path) -> the name of the file to which its elements went; None: they are not wanted */
PyObject *
msp_probe_file(PyObject *self, PyObject *all)
{
    char file[sizeof(((probe_path *)0)->text) + 4];
    probe_path path = {.files = true};
    const char *where;
    Py_ssize_t len;
    msp_tensor view;
    PyObject *t;

    (void)self;
    if (!PyArg_ParseTuple(all, "Os#", &t, &where, &len))
        return NULL;
    path.len = (size_t)len < sizeof(path.text) ? (size_t)len : sizeof(path.text) - 1;
    memcpy(path.text, where, path.len);
    if (!wants_file(&path) || msp_probe_tensor_view(&view, t) != 1)
        Py_RETURN_NONE;
    if (file_now_or_later(&view, &path, file, sizeof(file)) != 0)
        return NULL;
    return PyUnicode_FromString(file);
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

static int
requires_grad(PyObject *t, bool *yes)
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

/* What the rules want to know of a tensor; its elements go to their file at the same time where that is wanted now. */
static int
measure_and_file(const msp_tensor *t, probe_path *path, bool is_shown, char *file, size_t size, msp_stats *stats,
                 uint32_t *crc)
{
    bool wants = wants_file(path), is_complex = t->dtype == MSP_C64 || t->dtype == MSP_C128;

    if (wants && !msp_probe.rules.overflow && !msp_probe.rules.checksum && msp_probe.rules.statistics && !is_complex) {
        file_name(path, file, size);
        return save_and_measure(t, file, stats);
    }
    if (is_shown && t->numel >= SHOWN_FROM)
        measure_shown(t, stats, crc);
    else
        measure(t, stats, crc);
    return wants ? file_now_or_later(t, path, file, size) : 0;
}

/* The record of a tensor whose memory is known. is_shown: a node's hook is shown it. */
static int
put(msp_record *r, const msp_tensor *view, probe_path *path, msp_tensor_note *note, PyObject *extra, bool is_shown)
{
    probe_thread *thread = &msp_probe_thread; /* its address is a call */
    char file[sizeof(path->text) + 4];
    msp_stats stats;
    int failed = 0;

    file[0] = '\0'; /* it has none */
    if (thread->no_values != NULL) {
        note->shape_of = view;
        note->why_no_values = thread->no_values;
        msp_record_tensor(r, note);
        return 0;
    }
    if (thread->saving)
        return wants_file(path) ? save_as(view, path, file, sizeof(file)) : 0;
    if (measure_and_file(view, path, is_shown, file, sizeof(file), &stats, &note->crc) != 0)
        return -1;
    if (msp_probe.rules.overflow && stats.nan + stats.pos_inf + stats.neg_inf > 0)
        thread->overflowed = true;
    if (note->shape_of == NULL)
        note->shape_of = view;
    note->stats = msp_probe.rules.statistics ? &stats : NULL;
    note->has_crc = msp_probe.rules.checksum;
    note->data_name = file[0] == '\0' ? NULL : file;
    if (extra == NULL) {
        msp_record_tensor(r, note);
    } else {
        msp_record_tensor_open(r, note);
        failed = msp_probe_plain_members(r, extra, 0);
        msp_record_end(r);
    }
    return failed;
}

int
msp_probe_tensor_note(msp_record *r, PyObject *v, probe_path *path, msp_tensor_note *note, PyObject *copy,
                      PyObject *extra)
{
    const msp_tensor *t = note->shape_of;
    char file[sizeof(path->text) + 4];
    int failed = 0;

    if (requires_grad(v, &note->requires_grad) != 0)
        return -1;
    note->why_no_values = msp_probe_thread.no_values;
    if (note->ticket != 0 && wants_file(path)) {
        file_name(path, file, sizeof(file));
        note->data_name = file;
        if (copy != NULL && msp_probe_thread.keep != NULL &&
            msp_probe_keep_object(msp_probe_thread.keep, copy, (size_t)t->numel * msp_dtype_size(t->dtype), path) != 0)
            return -1;
    }
    extra == NULL ? msp_record_tensor(r, note) : msp_record_tensor_open(r, note);
    if (extra != NULL) {
        failed = msp_probe_plain_members(r, extra, 0);
        msp_record_end(r);
    }
    return failed;
}

int
msp_probe_tensor_shape(msp_tensor *view, PyObject *shape, PyObject *dtype)
{
    *view = (msp_tensor){0};
    Py_INCREF(shape);
    Py_INCREF(dtype);
    view->ndim = numbers_of(view->shape, shape);
    view->dtype = dtype_by_name(dtype);
    view->numel = 1;
    for (int i = 0; i < view->ndim; i++)
        view->numel *= view->shape[i];
    if (!PyErr_Occurred() && (view->ndim < 0 || view->dtype == MSP_DTYPE_NONE))
        PyErr_SetString(PyExc_TypeError, "a shape or a type of elements that is not known");
    return PyErr_Occurred() ? -1 : 0;
}

int
msp_probe_memory(msp_record *r, const msp_tensor *view, probe_path *path)
{
    msp_tensor_note note = {0};

    return put(r, view, path, &note, NULL, false);
}

int
msp_probe_tensor_as(msp_record *r, PyObject *t, probe_path *path, const char *type, PyObject *grad_of, PyObject *extra,
                    PyObject *shape)
{
    msp_tensor_note note = {.type = type};
    msp_tensor view, shown;
    bool transforming = msp_probe_thread.transforming;
    int fast;

    msp_probe_thread.transforming = false; /* Python has made this tensor outside of every transform */
    fast = msp_probe_tensor_view(&view, t);
    msp_probe_thread.transforming = transforming;
    if (fast == 0)
        PyErr_SetString(PyExc_TypeError, "the tensor that stands for another has no plain memory");
    if (fast <= 0 || requires_grad(grad_of, &note.requires_grad) != 0)
        return -1;
    if (shape != NULL) {
        shown = view;
        Py_INCREF(shape);
        shown.ndim = numbers_of(shown.shape, shape);
        if (shown.ndim < 0 || PyErr_Occurred())
            return -1;
        note.shape_of = &shown;
    }
    return put(r, &view, path, &note, extra, false);
}

int
msp_probe_tensor(msp_record *r, PyObject *t, probe_path *path)
{
    msp_tensor_note note = {0};
    msp_tensor view;
    int fast = msp_probe_tensor_view(&view, t);

    if (fast == 0)
        return msp_probe_odd(r, t, path, 0);
    if (fast < 0 || requires_grad(t, &note.requires_grad) != 0)
        return -1;
    return put(r, &view, path, &note, NULL, false);
}

int
msp_probe_tensor_at(msp_record *r, const void *handle, probe_path *path)
{
    msp_tensor_note note = {.requires_grad = msp_node_requires_grad(handle)};
    msp_tensor view;
    PyObject *t;
    int failed;

    if (msp_node_is_plain(handle) && plain_view(&view, (void *)(uintptr_t)handle))
        return put(r, &view, path, &note, NULL, true);
    t = msp_node_wrap(handle);
    failed = t == NULL ? -1 : msp_probe_tensor(r, t, path);
    Py_XDECREF(t);
    return failed;
}
