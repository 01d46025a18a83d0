/*
 * replay.c - what msprobe.replay needs of the C library: a dump's records, the local error of a result, and the file
 * that measurements are written to.
 */
#include "checks/checks.h"
#include "msprobe/dump.h"
#include "msprobe/local.h"

PyObject *
msp_py_dump_records(PyObject *module, PyObject *arg)
{
    msp_py_state *state = msp_py_state_of(module);
    PyObject *path, *list = NULL, *out = NULL;
    msp_dump *d = NULL;
    msp_error err;
    msp_status st;
    size_t cut;

    if (!PyUnicode_FSConverter(arg, &path))
        return NULL;
    Py_BEGIN_ALLOW_THREADS st = msp_dump_open(&d, PyBytes_AS_STRING(path), &err);
    Py_END_ALLOW_THREADS Py_DECREF(path);
    if (st != MSP_OK)
        return msp_py_raise(state, st, &err);
    list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < msp_dump_count(d); i++) {
        size_t name_len, text_len;
        const char *name = msp_dump_name(d, i, &name_len), *text = msp_dump_text(d, i, &text_len);
        PyObject *item = Py_BuildValue("(s#s#)", name, (Py_ssize_t)name_len, text, (Py_ssize_t)text_len);

        if (item == NULL || PyList_Append(list, item) != 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    if (list != NULL && msp_dump_cut(d, &cut))
        out = Py_BuildValue("(ssNn)", msp_dump_task_text(d), msp_framework_name(msp_dump_framework(d)), list,
                            (Py_ssize_t)cut);
    else if (list != NULL)
        out = Py_BuildValue("(ssNO)", msp_dump_task_text(d), msp_framework_name(msp_dump_framework(d)), list, Py_None);
    msp_dump_close(d);
    return out;
}

/* ---- evidence --------------------------------------------------------------------------------------------------- */

#define CAPSULE "msprobe._core.evidence"

static void
drop_writer(PyObject *capsule)
{
    msp_evidence_writer *w = PyCapsule_GetPointer(capsule, CAPSULE);

    if (msp_evidence_close(w, NULL) != MSP_OK)
        PyErr_Clear(); /* close() is what reports */
}

PyObject *
msp_py_evidence_open(PyObject *module, PyObject *arg)
{
    msp_evidence_writer *w;
    PyObject *path;
    msp_error err;
    msp_status st;

    if (!PyUnicode_FSConverter(arg, &path))
        return NULL;
    st = msp_evidence_create(&w, PyBytes_AS_STRING(path), &err);
    Py_DECREF(path);
    return st == MSP_OK ? PyCapsule_New(w, CAPSULE, drop_writer) : msp_py_raise(msp_py_state_of(module), st, &err);
}

PyObject *
msp_py_evidence_close(PyObject *module, PyObject *capsule)
{
    msp_evidence_writer *w = PyCapsule_GetPointer(capsule, CAPSULE);
    msp_error err;
    msp_status st;

    if (w == NULL || PyCapsule_SetDestructor(capsule, NULL) != 0)
        return NULL;
    st = msp_evidence_close(w, &err);
    if (PyCapsule_SetName(capsule, "closed") != 0)
        return NULL;
    if (st != MSP_OK)
        return msp_py_raise(msp_py_state_of(module), st, &err);
    Py_RETURN_NONE;
}

PyObject *
msp_py_evidence_call(PyObject *module, PyObject *args)
{
    PyObject *capsule;
    const char *name, *reason;
    msp_error err;
    msp_status st;

    if (!PyArg_ParseTuple(args, "Osz:evidence_call", &capsule, &name, &reason))
        return NULL;
    if (PyCapsule_GetPointer(capsule, CAPSULE) == NULL)
        return NULL;
    st = msp_evidence_call(PyCapsule_GetPointer(capsule, CAPSULE), name, reason, &err);
    if (st != MSP_OK)
        return msp_py_raise(msp_py_state_of(module), st, &err);
    Py_RETURN_NONE;
}

/* ---- measuring -------------------------------------------------------------------------------------------------- */

enum { MAX_TENSORS = 4 };

/* The local error of objects[0] against objects[1], with up to two near references. -1 with an exception. */
static int
measure(msp_local *out, msp_py_state *state, PyObject *const *objects, int n)
{
    const msp_tensor *near[2] = {NULL, NULL};
    msp_py_view views[MAX_TENSORS];
    msp_status st = MSP_OK;
    msp_error err;
    int held = 0, result = -1;

    for (; held < n; held++) {
        msp_py_view_init(&views[held]);
        if (msp_py_view_acquire(&views[held], state, objects[held]) != 0)
            goto done;
    }
    for (int i = 2; i < n; i++)
        near[i - 2] = &views[i].t;
    Py_BEGIN_ALLOW_THREADS st = msp_local_measure(out, &views[0].t, &views[1].t, near, &err);
    Py_END_ALLOW_THREADS if (st != MSP_OK) msp_py_raise(state, st, &err);
    else result = 0;
done:
    while (held > 0)
        msp_py_view_release(&views[--held]);
    return result;
}

/*
 * One side of a result: None, or (recorded, reference, *near). 1 where there was something to measure, 0 where not, -1
 * with an exception.
 */
static int
measure_side(msp_local *out, msp_py_state *state, PyObject *side)
{
    if (side == Py_None)
        return 0;
    if (!PyTuple_Check(side) || PyTuple_GET_SIZE(side) < 2 || PyTuple_GET_SIZE(side) > MAX_TENSORS) {
        PyErr_SetString(PyExc_TypeError, "a side is None or (recorded, reference, *near) with up to two near ones");
        return -1;
    }
    return measure(out, state, &PyTuple_GET_ITEM(side, 0), (int)PyTuple_GET_SIZE(side)) == 0 ? 1 : -1;
}

/* How far the references lie apart. -1 with an exception. */
static int
measure_distance(double *out, msp_py_state *state, PyObject *a, PyObject *b)
{
    msp_py_view views[2];
    int held = 0;

    *out = 0;
    if (a == b) /* the same inputs on both sides */
        return 0;
    for (; held < 2; held++) {
        msp_py_view_init(&views[held]);
        if (msp_py_view_acquire(&views[held], state, held == 0 ? a : b) != 0)
            break;
    }
    if (held == 2) {
        Py_BEGIN_ALLOW_THREADS *out = msp_local_distance(&views[0].t, &views[1].t);
        Py_END_ALLOW_THREADS
    }
    for (int i = 0; i < held; i++)
        msp_py_view_release(&views[i]);
    return held == 2 ? 0 : -1;
}

PyObject *
msp_py_evidence_result(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    msp_py_state *state = msp_py_state_of(module);
    const msp_local *sides[2] = {NULL, NULL};
    double inherited = Py_NAN;
    msp_evidence_writer *w;
    msp_local local[2];
    const char *at;
    msp_error err;

    if (nargs != 4) {
        PyErr_SetString(PyExc_TypeError, "evidence_result(evidence, at, npu, bench)");
        return NULL;
    }
    w = PyCapsule_GetPointer(args[0], CAPSULE);
    at = w != NULL ? PyUnicode_AsUTF8(args[1]) : NULL;
    if (at == NULL)
        return NULL;
    for (int i = 0; i < 2; i++) {
        int n = measure_side(&local[i], state, args[2 + i]);

        if (n < 0)
            return NULL;
        sides[i] = n > 0 ? &local[i] : NULL;
    }
    if (sides[0] != NULL && sides[1] != NULL) {
        if (measure_distance(&inherited, state, PyTuple_GET_ITEM(args[2], 1), PyTuple_GET_ITEM(args[3], 1)) != 0)
            return NULL;
        if (inherited > 0)
            inherited = local[1].scale_rms > 0 ? inherited / local[1].scale_rms : 1;
    }
    if (msp_evidence_result(w, at, sides, inherited, &err) != MSP_OK)
        return msp_py_raise(state, err.status, &err);
    Py_RETURN_NONE;
}

PyObject *
msp_py_local_error(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    char text[256];
    msp_local l;

    if (nargs < 2 || nargs > MAX_TENSORS) {
        PyErr_SetString(PyExc_TypeError, "local_error(recorded, reference, *near): up to two near ones");
        return NULL;
    }
    if (measure(&l, msp_py_state_of(module), args, (int)nargs) != 0)
        return NULL;
    msp_local_describe(text, sizeof(text), &l);
    return Py_BuildValue("{s:L,s:L,s:L,s:d,s:d,s:L,s:d,s:d,s:d,s:d,s:d,s:s,s:i}", "count", (long long)l.count, "differ",
                         (long long)l.differ, "bad", (long long)l.bad, "rms", l.rms, "max", l.max, "max_index",
                         (long long)l.max_index, "bias", l.bias, "spread", l.spread, "slope", l.slope, "value_rms",
                         l.value_rms, "error_rms", l.error_rms, "shape", text, "kind", (int)l.shape);
}
