/*
 * wrapper.c - an object that stands in for a function that cannot be patched.
 *
 * It is put in the function's place as an attribute, which does change identity: see patch.c.
 */
#include "patch/patch.h"
#include <stddef.h>

typedef struct wrapper_object {
    PyObject_HEAD vectorcallfunc vectorcall;
    probe_api *api;
    PyObject *weak;
    bool binds; /* as an attribute of a class it becomes a method */
} wrapper_object;

static PyObject *
wrapper_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    wrapper_object *w = (wrapper_object *)self;

    return msp_probe_call_packed(w->api, NULL, args, nargsf, kwnames);
}

static PyObject *
wrapper_get(PyObject *self, PyObject *instance, PyObject *type)
{
    (void)type;
    if (instance == NULL || !((wrapper_object *)self)->binds) {
        Py_INCREF(self);
        return self;
    }
    return PyMethod_New(self, instance);
}

/* Its attributes are those of what it stands for: __name__, __doc__, __module__, ... */
static PyObject *
wrapper_getattro(PyObject *self, PyObject *name)
{
    wrapper_object *w = (wrapper_object *)self;
    PyObject *v;

    if (PyUnicode_CompareWithASCIIString(name, "__wrapped__") == 0) {
        Py_INCREF(w->api->target);
        return w->api->target;
    }
    if (PyUnicode_CompareWithASCIIString(name, "__class__") == 0 ||
        PyUnicode_CompareWithASCIIString(name, "__reduce_ex__") == 0)
        return PyObject_GenericGetAttr(self, name);
    v = PyObject_GetAttr(w->api->target, name);
    if (v != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return v;
    PyErr_Clear(); /* of that type */
    return PyObject_GenericGetAttr(self, name);
}

/*
 * Equal to what it stands for, with its hash: torch looks whether isend is the function that a message names, programs
 * keep tables by functions.
 */
static Py_hash_t
wrapper_hash(PyObject *self)
{
    return PyObject_Hash(((wrapper_object *)self)->api->target);
}

static PyTypeObject wrapper_type;

static PyObject *
target_of(PyObject *v)
{
    return Py_TYPE(v) == &wrapper_type ? ((wrapper_object *)v)->api->target : v;
}

static PyObject *
wrapper_richcompare(PyObject *self, PyObject *other, int op)
{
    if (op != Py_EQ && op != Py_NE)
        Py_RETURN_NOTIMPLEMENTED;
    return PyObject_RichCompare(target_of(self), target_of(other), op);
}

/* Pickled and copied as what it stands for: operator.itemgetter(0)((target,)), which needs nothing of ours to be
 * loaded. */
static PyObject *
wrapper_reduce(PyObject *self, PyObject *protocol)
{
    PyObject *module = PyImport_ImportModule("operator"), *first, *result = NULL;

    (void)protocol;
    first = module == NULL ? NULL : PyObject_CallMethod(module, "itemgetter", "i", 0);
    if (first != NULL)
        result = Py_BuildValue("(O((O)))", first, ((wrapper_object *)self)->api->target);
    Py_XDECREF(first);
    Py_XDECREF(module);
    return result;
}

static PyMethodDef wrapper_methods[] = {
    {"__reduce_ex__", wrapper_reduce, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject wrapper_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.Recorded",
    .tp_basicsize = sizeof(wrapper_object),
    .tp_vectorcall_offset = offsetof(wrapper_object, vectorcall),
    .tp_weaklistoffset = offsetof(wrapper_object, weak),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = wrapper_get,
    .tp_getattro = wrapper_getattro,
    .tp_hash = wrapper_hash,
    .tp_richcompare = wrapper_richcompare,
    .tp_methods = wrapper_methods,
#if PY_VERSION_HEX >= 0x03090000
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
#else
    .tp_flags = Py_TPFLAGS_DEFAULT | _Py_TPFLAGS_HAVE_VECTORCALL,
#endif
};

PyObject *
msp_probe_wrapper(PyObject *self, PyObject *all)
{
    PyObject *target;
    const char *text;
    Py_ssize_t len;
    unsigned flags = 0;
    probe_name *name;
    wrapper_object *w;

    (void)self;
    if (!PyArg_ParseTuple(all, "Os#|I", &target, &text, &len, &flags))
        return NULL;
    if (!PyCallable_Check(target)) {
        PyErr_Format(PyExc_TypeError, "%.200s objects cannot be called", Py_TYPE(target)->tp_name);
        return NULL;
    }
    name = msp_probe_name(text, (size_t)len);
    w = name == NULL ? NULL : PyObject_New(wrapper_object, &wrapper_type);
    if (w == NULL)
        return NULL;
    w->vectorcall = wrapper_vectorcall;
    w->weak = NULL;
    w->binds =
        PyFunction_Check(target) || Py_TYPE(target) == &PyMethodDescr_Type || Py_TYPE(target) == &PyWrapperDescr_Type;
    w->api = msp_probe_new_api(target, name, flags); /* never freed, like all of them */
    if (w->api == NULL) {
        Py_DECREF(w);
        return NULL;
    }
    w->api->kind = PROBE_CALLABLE;
    return (PyObject *)w;
}

int
msp_probe_wrapper_setup(void)
{
    return PyType_Ready(&wrapper_type);
}
