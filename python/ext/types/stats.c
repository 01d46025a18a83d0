/* stats.c - msprobe.stats() and its result: the struct itself; numbers become Python objects when they are read. */
#include <stddef.h>
#include "types/types.h"

typedef struct stats_object {
    PyObject_HEAD msp_stats s;
    msp_dtype dtype;
} stats_object;

static void
stats_dealloc(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);

    type->tp_free(obj);
    Py_DECREF(type);
}

/* An extreme as the element it is: exact for 64-bit integers, True or False for bool. */
static PyObject *
extreme(const stats_object *self, double as_float, int64_t as_int)
{
    msp_dtype_class class = msp_dtype_class_of(self->dtype);

    if (self->s.count == 0 || (class != MSP_CLASS_INT && class != MSP_CLASS_BOOL))
        return PyFloat_FromDouble(as_float);
    if (class == MSP_CLASS_BOOL)
        return PyBool_FromLong(as_int != 0);
    if (self->dtype == MSP_U64)
        return PyLong_FromUnsignedLongLong((uint64_t)as_int);
    return PyLong_FromLongLong(as_int);
}

static PyObject *
get_max(PyObject *obj, void *payload)
{
    const stats_object *self = (stats_object *)obj;

    (void)payload;
    return extreme(self, self->s.max, self->s.max_int);
}

static PyObject *
get_min(PyObject *obj, void *payload)
{
    const stats_object *self = (stats_object *)obj;

    (void)payload;
    return extreme(self, self->s.min, self->s.min_int);
}

static PyObject *
get_mean(PyObject *obj, void *payload)
{
    const stats_object *self = (stats_object *)obj;

    (void)payload;
    if (msp_dtype_class_of(self->dtype) == MSP_CLASS_COMPLEX)
        return PyComplex_FromDoubles(self->s.mean, self->s.mean_imag);
    return PyFloat_FromDouble(self->s.mean);
}

static PyGetSetDef stats_getset[] = {
    {"max", get_max, NULL, "Largest element; NaN when one is NaN, and for complex and empty tensors.", NULL},
    {"min", get_min, NULL, "Smallest element; NaN when one is NaN, and for complex and empty tensors.", NULL},
    {"mean", get_mean, NULL, "Mean, accumulated in double.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define AT(member) offsetof(stats_object, s.member)

static PyMemberDef stats_members[] = {
    {"count", T_LONGLONG, AT(count), READONLY, "Number of elements."},
    {"norm", T_DOUBLE, AT(norm), READONLY, "L2 norm, accumulated in double."},
    {"max_finite", T_DOUBLE, AT(max_finite), READONLY, "Largest finite element; NaN when there is none."},
    {"min_finite", T_DOUBLE, AT(min_finite), READONLY, "Smallest finite element; NaN when there is none."},
    {"nan", T_LONGLONG, AT(nan), READONLY, "How many elements are NaN."},
    {"pos_inf", T_LONGLONG, AT(pos_inf), READONLY, "How many are +inf."},
    {"neg_inf", T_LONGLONG, AT(neg_inf), READONLY, "How many are -inf."},
    {"zero", T_LONGLONG, AT(zero), READONLY, "How many are 0 or -0."},
    {"subnormal", T_LONGLONG, AT(subnormal), READONLY, "How many are subnormal."},
    {"first_bad", T_LONGLONG, AT(first_bad), READONLY, "Row-major index of the first NaN or inf; -1: none."},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *
stats_repr(PyObject *obj)
{
    const msp_stats *s = &((stats_object *)obj)->s;
    PyObject *max = get_max(obj, NULL), *min = get_min(obj, NULL), *mean = get_mean(obj, NULL);
    PyObject *norm = PyFloat_FromDouble(s->norm);
    PyObject *text = NULL;

    if (max != NULL && min != NULL && mean != NULL && norm != NULL)
        text = PyUnicode_FromFormat("Stats(count=%lld, max=%R, min=%R, mean=%R, norm=%R, nan=%lld, pos_inf=%lld, "
                                    "neg_inf=%lld, zero=%lld, subnormal=%lld)",
                                    (long long)s->count, max, min, mean, norm, (long long)s->nan, (long long)s->pos_inf,
                                    (long long)s->neg_inf, (long long)s->zero, (long long)s->subnormal);
    Py_XDECREF(max);
    Py_XDECREF(min);
    Py_XDECREF(mean);
    Py_XDECREF(norm);
    return text;
}

PyDoc_STRVAR(stats_doc, "What one pass over a tensor tells. Made by msprobe.stats().");

static PyType_Slot stats_slots[] = {
    {Py_tp_doc, (void *)stats_doc}, {Py_tp_dealloc, stats_dealloc}, {Py_tp_repr, stats_repr},
    {Py_tp_getset, stats_getset},   {Py_tp_members, stats_members}, {0, NULL},
};

static PyType_Spec stats_spec = {"msprobe._core.Stats", sizeof(stats_object), 0, Py_TPFLAGS_DEFAULT, stats_slots};

PyTypeObject *
msp_py_stats_type(PyObject *module)
{
    return msp_py_add_type(module, &stats_spec);
}

static void
compute(msp_stats *out, const msp_py_view *v, int threads)
{
    if (msp_py_view_is_large(v)) {
        Py_BEGIN_ALLOW_THREADS msp_stats_compute_mt(out, &v->t, threads);
        Py_END_ALLOW_THREADS
    } else {
        msp_stats_compute(out, &v->t);
    }
}

PyObject *
msp_py_stats(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    msp_py_state *state = msp_py_state_of(module);
    stats_object *self;
    msp_py_view v;
    int threads;

    if (msp_py_threads_arg(&threads, "stats", 1, args, nargs, kwnames) != 0)
        return NULL;
    if (msp_py_view_acquire(&v, state, args[0]) != 0)
        return NULL;
    self = (stats_object *)state->stats_type->tp_alloc(state->stats_type, 0);
    if (self != NULL) {
        self->dtype = v.t.dtype;
        compute(&self->s, &v, threads);
    }
    msp_py_view_release(&v);
    return (PyObject *)self;
}
