/*
 * record.c - a tensor's record: its memory (memory.c) measured, and saved where that is wanted.
 */
#include "call/call.h"
#include "checks/checks.h"
#include "legacy/legacy.h"
#include "tensor/tensor.h"
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
        msp_stats_compute_mt(stats, t, large ? (int)msp_probe.rules.threads : 1);
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
measure_wanted(const msp_tensor *t, msp_stats *stats, uint32_t *crc)
{
    measure_large_unlocked(t, msp_probe.rules.statistics ? stats : NULL, msp_probe.rules.checksum ? crc : NULL);
}

void
msp_probe_measure(const msp_tensor *t, msp_stats *stats, uint32_t *crc)
{
    measure_large_unlocked(t, stats, crc);
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
    if (!msp_probe.rules.overflow || path->saving)
        return save_as(t, path, file, size);
    file_name(path, file, size);
    return path->keep == NULL ? 0 : msp_probe_keep(path->keep, t, file);
}

static bool
wants_file(const probe_path *path)
{
    if (!path->files || msp_probe.data_dir == NULL)
        return false;
    return msp_probe.rules.tensors || msp_probe_in_list(msp_probe.rules.tensor_list, path->text, path->len);
}

enum { NO_VALUES, STATISTICS, ELEMENTS, STATISTICS_AND_COPY };

/* A place that Python names while it describes what stands at another one, or at the same: it is read as that is. */
static void
named_by_python(probe_path *path, const char *text, size_t len)
{
    const probe_path *described = msp_probe_thread.described;

    msp_probe_path_begin(path, "", 0);
    path->len = len < sizeof(path->text) ? len : sizeof(path->text) - 1;
    memcpy(path->text, text, path->len);
    if (described != NULL) {
        path->files = described->files;
        path->saving = described->saving;
        path->keep = described->keep;
        path->no_values = described->no_values;
    }
}

/* wanted(path) -> what of a tensor that is being read is needed: see pytorch/device.py */
PyObject *
msp_probe_wanted(PyObject *self, PyObject *text)
{
    int want = STATISTICS;
    probe_path path;
    Py_ssize_t len;
    const char *p = PyUnicode_AsUTF8AndSize(text, &len);

    (void)self;
    if (p == NULL)
        return NULL;
    named_by_python(&path, p, (size_t)len);
    if (path.no_values != NULL || !msp_probe.rules.statistics)
        want = NO_VALUES;
    else if (msp_probe_is_legacy() || msp_probe.rules.checksum || path.saving ||
             (wants_file(&path) && !msp_probe.rules.overflow))
        want = ELEMENTS;
    else if (wants_file(&path) && path.keep != NULL)
        want = STATISTICS_AND_COPY;
    return PyLong_FromLong(want);
}

/* file(tensor, path) -> the name of the file to which its elements went; None: they are not wanted */
PyObject *
msp_probe_file(PyObject *self, PyObject *all)
{
    char file[sizeof(((probe_path *)0)->text) + 4];
    const char *where;
    probe_path path;
    Py_ssize_t len;
    msp_tensor view;
    PyObject *t;

    (void)self;
    if (!PyArg_ParseTuple(all, "Os#", &t, &where, &len))
        return NULL;
    named_by_python(&path, where, (size_t)len);
    if (!wants_file(&path) || !msp_probe_tensor_view(&view, t) || !msp_py_online_room(&view))
        Py_RETURN_NONE;
    if (file_now_or_later(&view, &path, file, sizeof(file)) != 0)
        return NULL;
    return PyUnicode_FromString(file);
}

/* What the rules want to know of a tensor; its elements go to their file at the same time where that is wanted now. */
static int
measure_and_file(const msp_tensor *t, probe_path *path, char *file, size_t size, msp_stats *stats, uint32_t *crc)
{
    bool wants = wants_file(path) && msp_py_online_room(t), is_complex = t->dtype == MSP_C64 || t->dtype == MSP_C128;

    if (wants && !msp_probe.rules.overflow && !msp_probe.rules.checksum && msp_probe.rules.statistics && !is_complex) {
        file_name(path, file, size);
        return save_and_measure(t, file, stats);
    }
    measure_wanted(t, stats, crc);
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

/* Most tensors are small, of an ordinary type, and nobody wants more than numbers: false, and nothing was put, for one
 * that is not. */
static bool
put_small(msp_record *r, const msp_tensor *t, const probe_path *path, const msp_tensor_note *note)
{
    const probe_rules *rules = &msp_probe.rules;
    const msp_small small = {t->dtype, t->ndim, t->shape, t->data, t->numel, note->requires_grad, rules->checksum};

    return rules->statistics && !rules->overflow && note->type == NULL && note->shape_of == NULL && !wants_file(path) &&
           msp_tensor_is_contiguous(t) && msp_record_small(r, &small);
}

/* The record of a tensor whose memory is known: the one place where they are made. */
static int
put_measured(msp_record *r, const msp_tensor *view, probe_path *path, msp_tensor_note *note, PyObject *extra)
{
    probe_thread *thread = msp_probe_here();
    char file[sizeof(path->text) + 4];
    msp_stats stats;

    file[0] = '\0'; /* it has none */
    if (path->no_values != NULL) {
        note->shape_of = view;
        note->why_no_values = path->no_values;
        msp_record_tensor(r, note);
        return 0;
    }
    if (path->saving)
        return wants_file(path) ? save_as(view, path, file, sizeof(file)) : 0;
    if (extra == NULL && put_small(r, view, path, note))
        return 0;
    if (measure_and_file(view, path, file, sizeof(file), &stats, &note->crc) != 0)
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
    note->why_no_values = path->no_values;
    if (note->ticket != 0 && wants_file(path)) {
        file_name(path, file, sizeof(file));
        note->data_name = file;
        if (copy != NULL && path->keep != NULL &&
            msp_probe_keep_object(path->keep, copy, (size_t)t->numel * msp_dtype_size(t->dtype), path) != 0)
            return -1;
    }
    return put_note(r, note, extra);
}

int
msp_probe_memory(msp_record *r, const msp_tensor *view, probe_path *path)
{
    msp_tensor_note note = {0};

    return put_measured(r, view, path, &note, NULL);
}

int
msp_probe_tensor_as(msp_record *r, PyObject *t, probe_path *path, const char *type, PyObject *grad_of, PyObject *extra,
                    PyObject *shape)
{
    msp_tensor_note note = {.type = type};
    msp_tensor view, shown;

    if (!msp_probe_own_view(&view, t)) {
        PyErr_SetString(PyExc_TypeError, "the tensor that stands for another has no plain memory");
        return -1;
    }
    if (msp_probe_requires_grad(grad_of, &note.requires_grad) != 0)
        return -1;
    if (shape != NULL) {
        shown = view;
        Py_INCREF(shape);
        shown.ndim = msp_probe_numbers(shown.shape, shape);
        if (shown.ndim < 0 || PyErr_Occurred())
            return -1;
        note.shape_of = &shown;
    }
    return put_measured(r, &view, path, &note, extra);
}

int
msp_probe_tensor(msp_record *r, PyObject *t, probe_path *path)
{
    msp_tensor_note note = {0};
    msp_tensor view;

    if (!msp_probe_tensor_view(&view, t))
        return msp_probe_odd(r, t, path, 0);
    if (msp_probe_requires_grad(t, &note.requires_grad) != 0)
        return -1;
    return put_measured(r, &view, path, &note, NULL);
}
