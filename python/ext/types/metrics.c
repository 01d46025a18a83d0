/* metrics.c - msprobe.metrics() and its result. */
#include <stddef.h>
#include "types/types.h"

typedef struct metrics_object {
    PyObject_HEAD msp_metrics m;
} metrics_object;

static void
metrics_dealloc(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);

    type->tp_free(obj);
    Py_DECREF(type);
}

#define AT(member) offsetof(metrics_object, m.member)

static PyMemberDef metrics_members[] = {
    {"count", T_LONGLONG, AT(count), READONLY, "Number of elements compared."},
    {"cosine", T_DOUBLE, AT(cosine), READONLY, "Cosine of the angle between the tensors."},
    {"euc_dist", T_DOUBLE, AT(euc_dist), READONLY, "Euclidean distance."},
    {"max_abs_err", T_DOUBLE, AT(max_abs_err), READONLY, "Largest absolute error."},
    {"max_abs_index", T_LONGLONG, AT(max_abs_index), READONLY, "Row-major index where it is; -1: no elements."},
    {"max_rel_err", T_DOUBLE, AT(max_rel_err), READONLY, "Largest relative error."},
    {"max_rel_index", T_LONGLONG, AT(max_rel_index), READONLY, "Row-major index where it is; -1: no elements."},
    {"below_1e3", T_LONGLONG, AT(below_1e3), READONLY, "Elements whose relative error is below 0.001."},
    {"below_5e3", T_LONGLONG, AT(below_5e3), READONLY, "Elements whose relative error is below 0.005."},
    {"rmse", T_DOUBLE, AT(rmse), READONLY, "Root of the mean squared error."},
    {"mape", T_DOUBLE, AT(mape), READONLY, "Mean of |n-b| / |b| where b is not 0; NaN when there is no such b."},
    {"mape_count", T_LONGLONG, AT(mape_count), READONLY, "How many elements enter mape."},
    {"inf_sign", T_LONGLONG, AT(inf_sign), READONLY, "Positions with infinities of different sign."},
    {"mismatches", T_LONGLONG, AT(mismatches), READONLY, "Positions where only one side is NaN, or infinite."},
    {"first_mismatch", T_LONGLONG, AT(first_mismatch), READONLY, "Row-major index of the first of them; -1: none."},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *
metrics_repr(PyObject *obj)
{
    const msp_metrics *m = &((metrics_object *)obj)->m;
    PyObject *numbers = Py_BuildValue("(Ldddddd)", (long long)m->count, m->cosine, m->euc_dist, m->max_abs_err,
                                      m->max_rel_err, m->rmse, m->mape);
    PyObject *format, *text = NULL;

    if (numbers == NULL)
        return NULL;
    format = PyUnicode_FromString("Metrics(count=%d, cosine=%r, euc_dist=%r, max_abs_err=%r, max_rel_err=%r, rmse=%r, "
                                  "mape=%r)");
    if (format != NULL)
        text = PyUnicode_Format(format, numbers);
    Py_XDECREF(format);
    Py_DECREF(numbers);
    return text;
}

PyDoc_STRVAR(metrics_doc, "How far two tensors are apart. Made by msprobe.metrics().");

static PyType_Slot metrics_slots[] = {
    {Py_tp_doc, (void *)metrics_doc},
    {Py_tp_dealloc, metrics_dealloc},
    {Py_tp_repr, metrics_repr},
    {Py_tp_members, metrics_members},
    {0, NULL},
};

static PyType_Spec metrics_spec = {"msprobe._core.Metrics", sizeof(metrics_object), 0, Py_TPFLAGS_DEFAULT,
                                   metrics_slots};

PyTypeObject *
msp_py_metrics_type(PyObject *module)
{
    return msp_py_add_type(module, &metrics_spec);
}

static msp_status
compute(msp_metrics *out, const msp_py_view *n, const msp_py_view *b, int threads, msp_error *err)
{
    msp_status st;

    if (!msp_py_view_is_large(n))
        return msp_metrics_compute(out, &n->t, &b->t, err);
    Py_BEGIN_ALLOW_THREADS st = msp_metrics_compute_mt(out, &n->t, &b->t, threads, err);
    Py_END_ALLOW_THREADS return st;
}

/* A new result for two acquired views. */
static PyObject *
metrics_of(const msp_py_state *state, const msp_py_view *n, const msp_py_view *b, int threads)
{
    metrics_object *self = (metrics_object *)state->metrics_type->tp_alloc(state->metrics_type, 0);
    msp_error err;
    msp_status st;

    if (self == NULL)
        return NULL;
    st = compute(&self->m, n, b, threads, &err);
    if (st != MSP_OK) {
        Py_DECREF(self);
        return msp_py_raise(state, st, &err);
    }
    return (PyObject *)self;
}

PyObject *
msp_py_metrics(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    msp_py_state *state = msp_py_state_of(module);
    msp_py_view n, b;
    PyObject *result;
    int threads;

    if (msp_py_threads_arg(&threads, "metrics", 2, args, nargs, kwnames) != 0)
        return NULL;
    if (msp_py_view_acquire(&n, state, args[0]) != 0)
        return NULL;
    if (msp_py_view_acquire(&b, state, args[1]) != 0) {
        msp_py_view_release(&n);
        return NULL;
    }
    result = metrics_of(state, &n, &b, threads);
    msp_py_view_release(&n);
    msp_py_view_release(&b);
    return result;
}
