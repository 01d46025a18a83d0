/*
 * probe_tensor.c - a tensor's record: its memory (probe_view.c) measured, and saved where that is wanted.
 */
#include "probe.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

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
 * gradient on to several edges. Engine and list hold these tensors, and nothing of the program runs between our hooks,
 * so that a tensor is known by torch's own address, as in probe_batch.c, where they share the whole record. Nothing
 * else is ever taken for what it was: memory can be written to without torch's knowing, and freed memory is another
 * tensor's.
 */
enum {
    MOST_SHOWN = 8,
    SHOWN_FROM = 512 /* elements: fewer are measured in the time that remembering takes */
};

typedef struct measured {
    const void *tensor;
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

static const measured *
find_measured(const void *tensor)
{
    for (int i = 0; i < remembered.n; i++)
        if (remembered.tensors[i].tensor == tensor)
            return &remembered.tensors[i];
    return NULL;
}

static void
note_measured(const void *tensor, const msp_stats *stats, uint32_t crc)
{
    if (remembered.n < MOST_SHOWN)
        remembered.tensors[remembered.n++] = (measured){tensor, *stats, crc};
}

static bool
is_large(const msp_tensor *t)
{
    return (size_t)t->numel * msp_dtype_size(t->dtype) > 1 << 16;
}

/* What of the two is wanted (NULL: not). */
static void
measure_here(const msp_tensor *t, msp_stats *stats, uint32_t *crc, bool large)
{
    if (stats != NULL)
        measure_values(t, stats, large);
    if (crc != NULL)
        *crc = msp_crc32(t);
}

/* Large tensors are read without the interpreter lock: the caller holds a reference. */
static void
measure_large_unlocked(const msp_tensor *t, msp_stats *stats, uint32_t *crc)
{
    const bool large = is_large(t);
    PyThreadState *saved = large ? PyEval_SaveThread() : NULL;

    measure_here(t, stats, crc, large);
    if (large)
        PyEval_RestoreThread(saved);
}

static void
measure(const msp_tensor *t, msp_stats *stats, uint32_t *crc)
{
    measure_large_unlocked(t, msp_probe.rules.statistics ? stats : NULL, msp_probe.rules.checksum ? crc : NULL);
}

static void
measure_shown(const void *tensor, const msp_tensor *t, msp_stats *stats, uint32_t *crc)
{
    const measured *known = find_measured(tensor);

    if (known != NULL) {
        *stats = known->stats;
        *crc = known->crc;
        return;
    }
    measure(t, stats, crc);
    note_measured(tensor, stats, *crc);
}

void
msp_probe_measure(const msp_tensor *t, msp_stats *stats)
{
    measure_large_unlocked(t, stats, NULL);
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
        PyObject *text = msp_probe_text(err.message);

        if (text != NULL)
            PyErr_SetObject(PyExc_OSError, text);
        Py_XDECREF(text);
        return -1;
    }
    return 0;
}

int
msp_probe_save_tensor(const msp_tensor *t, const char *name)
{
    return save_and_measure(t, name, NULL);
}

/* What is not the name of a file, as names of modules and of saved values need not be, is made one: without slashes,
 * not too long (in whole characters of UTF-8), and with a checksum, so that it stays a name of its own. */
static void
usable_name(const probe_path *path, char *file, size_t size)
{
    size_t most = NAME_MAX - strlen(".01234567.pt"), len = path->len < most ? path->len : most;

    while (len > 0 && len < path->len && ((unsigned char)path->text[len] & 0xc0) == 0x80)
        len--;
    snprintf(file, size, "%.*s.%08x.pt", (int)len, path->text, msp_crc32_bytes(0, path->text, path->len));
    for (char *p = file; (p = strchr(p, '/')) != NULL;)
        *p = '_';
}

static void
file_name(const probe_path *path, char *file, size_t size)
{
    if (path->len > NAME_MAX - strlen(".pt") || memchr(path->text, '/', path->len) != NULL)
        usable_name(path, file, size);
    else
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

/* What the rules want to know of a tensor; its elements go to their file at the same time where that is wanted now. */
static int
measure_and_file(const msp_tensor *t, probe_path *path, const void *shown, char *file, size_t size, msp_stats *stats,
                 uint32_t *crc)
{
    bool wants = wants_file(path), is_complex = t->dtype == MSP_C64 || t->dtype == MSP_C128;

    if (wants && !msp_probe.rules.overflow && !msp_probe.rules.checksum && msp_probe.rules.statistics && !is_complex) {
        file_name(path, file, size);
        return save_and_measure(t, file, stats);
    }
    if (shown != NULL && t->numel >= SHOWN_FROM)
        measure_shown(shown, t, stats, crc);
    else
        measure(t, stats, crc);
    return wants ? file_now_or_later(t, path, file, size) : 0;
}

/* extra: further plain fields, or NULL. */
static int
put_note(msp_record *r, const msp_tensor_note *note, PyObject *extra)
{
    int failed;

    if (extra == NULL) {
        msp_record_tensor(r, note);
        return 0;
    }
    msp_record_tensor_open(r, note);
    failed = msp_probe_plain_members(r, extra, 0);
    msp_record_end(r);
    return failed;
}

/* The record of a tensor whose memory is known. shown: torch's own, where a node's hook is shown it, or NULL. */
static int
put(msp_record *r, const msp_tensor *view, probe_path *path, msp_tensor_note *note, PyObject *extra, const void *shown)
{
    probe_thread *thread = msp_probe_here();
    char file[sizeof(path->text) + 4];
    msp_stats stats;

    file[0] = '\0'; /* it has none */
    if (thread->no_values != NULL) {
        note->shape_of = view;
        note->why_no_values = thread->no_values;
        msp_record_tensor(r, note);
        return 0;
    }
    if (thread->saving)
        return wants_file(path) ? save_as(view, path, file, sizeof(file)) : 0;
    if (measure_and_file(view, path, shown, file, sizeof(file), &stats, &note->crc) != 0)
        return -1;
    if (msp_probe.rules.overflow && stats.nan + stats.pos_inf + stats.neg_inf > 0)
        thread->overflowed = true;
    if (note->shape_of == NULL)
        note->shape_of = view;
    note->stats = msp_probe.rules.statistics ? &stats : NULL;
    note->has_crc = msp_probe.rules.checksum;
    note->data_name = file[0] == '\0' ? NULL : file;
    return put_note(r, note, extra);
}

int
msp_probe_tensor_note(msp_record *r, PyObject *v, probe_path *path, msp_tensor_note *note, PyObject *copy,
                      PyObject *extra)
{
    const msp_tensor *t = note->shape_of;
    char file[sizeof(path->text) + 4];

    if (msp_probe_requires_grad(v, &note->requires_grad) != 0)
        return -1;
    note->why_no_values = msp_probe_thread.no_values;
    if (note->ticket != 0 && wants_file(path)) {
        file_name(path, file, sizeof(file));
        note->data_name = file;
        if (copy != NULL && msp_probe_thread.keep != NULL &&
            msp_probe_keep_object(msp_probe_thread.keep, copy, (size_t)t->numel * msp_dtype_size(t->dtype), path) != 0)
            return -1;
    }
    return put_note(r, note, extra);
}

int
msp_probe_memory(msp_record *r, const msp_tensor *view, probe_path *path)
{
    msp_tensor_note note = {0};

    return put(r, view, path, &note, NULL, NULL);
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
    if (fast <= 0 || msp_probe_requires_grad(grad_of, &note.requires_grad) != 0)
        return -1;
    if (shape != NULL) {
        shown = view;
        Py_INCREF(shape);
        shown.ndim = msp_probe_numbers(shown.shape, shape);
        if (shown.ndim < 0 || PyErr_Occurred())
            return -1;
        note.shape_of = &shown;
    }
    return put(r, &view, path, &note, extra, NULL);
}

int
msp_probe_tensor(msp_record *r, PyObject *t, probe_path *path)
{
    msp_tensor_note note = {0};
    msp_tensor view;
    int fast = msp_probe_tensor_view(&view, t);

    if (fast == 0)
        return msp_probe_odd(r, t, path, 0);
    if (fast < 0 || msp_probe_requires_grad(t, &note.requires_grad) != 0)
        return -1;
    return put(r, &view, path, &note, NULL, NULL);
}

bool
msp_probe_copy(msp_record *into, uint32_t *from, const void *handle)
{
    const size_t align = 16;
    probe_copy *copy;
    msp_tensor view;
    size_t bytes;

    if (!msp_probe_handle_view(&view, handle) || is_large(&view) || view.ndim > 5 || !msp_tensor_is_contiguous(&view))
        return false;
    bytes = (size_t)view.numel * msp_dtype_size(view.dtype);
    *from = (uint32_t)((into->len + align - 1) / align * align);
    if (!msp_record_reserve(into, *from + sizeof(*copy) + bytes - into->len))
        return false;
    copy = (probe_copy *)(void *)(into->p + *from);
    *copy = (probe_copy){.dtype = view.dtype, .ndim = view.ndim, .size = sizeof(*copy) + bytes};
    copy->requires_grad = msp_node_requires_grad(handle);
    memcpy(copy->shape, view.shape, (size_t)view.ndim * sizeof(*view.shape));
    if (bytes > 0)
        memcpy(copy + 1, view.data, bytes);
    return true;
}

bool
msp_probe_read_unlocked(msp_record *r, const void *handle)
{
    msp_tensor_note note = {.requires_grad = msp_node_requires_grad(handle), .has_crc = msp_probe.rules.checksum};
    msp_stats stats;
    msp_tensor view;

    if (msp_probe.quick && msp_probe_quick(r, handle))
        return !r->failed;
    if (!msp_probe_handle_view(&view, handle))
        return false;
    note.shape_of = &view;
    note.stats = msp_probe.rules.statistics ? &stats : NULL;
    measure_here(&view, msp_probe.rules.statistics ? &stats : NULL, note.has_crc ? &note.crc : NULL, is_large(&view));
    msp_record_tensor(r, &note);
    return !r->failed;
}

int
msp_probe_tensor_at(msp_record *r, const void *handle, probe_path *path)
{
    msp_tensor_note note = {.requires_grad = msp_node_requires_grad(handle)};
    msp_tensor view;
    PyObject *t;
    int failed;

    if (msp_probe_handle_view(&view, handle))
        return put(r, &view, path, &note, NULL, *(const void *const *)handle);
    t = msp_node_wrap(handle);
    failed = t == NULL ? -1 : msp_probe_tensor(r, t, path);
    Py_XDECREF(t);
    return failed;
}
