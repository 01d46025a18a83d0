/*
 * patch.c - functions are patched in place.
 *
 * Nothing is replaced: the objects that the program holds stay the same ones, and what is put into them at start() is
 * taken out at stop(). Identity, hash, pickling, early imports and torch.compile see what they saw before; stopped,
 * nothing of ours is on the call path. docs/design/collector.md tells how each kind was found out; a self-test at
 * start() proves each in the running interpreter.
 *
 * Built-in function: its m_ml points at a copy of its PyMethodDef that is the head of a probe_api, and its vectorcall
 * field (empty for METH_VARARGS|METH_KEYWORDS) at us. The copy keeps ml_meth, because hash() of a built-in is made of
 * it. Method descriptor: d_method points at a copy whose ml_meth is one of many tiny functions that each know their
 * number. Python function: see function.c. Anything else, and all of them where the self-test fails: an object
 * that stands in for it as an attribute (wrapper.c), which does change identity.
 */
#include "recording/address_map.h"
#include "call/call.h"
#include <stddef.h>
#include <string.h>

/* ---- apis by their object ---------------------------------------------------------------------------------------- */

static address_map apis; /* target -> probe_api */

probe_api *
msp_probe_find_api(PyObject *target)
{
    return map_get(&apis, target);
}

/* ---- numbered functions for method descriptors ------------------------------------------------------------------- */

enum { STUBS = 1024 };

static probe_api *stub_api[STUBS];
static int stubs_used;

static PyObject *
from_stub(int i, PyObject *self, PyObject *args, PyObject *kwargs)
{
    return msp_probe_call(stub_api[i], self, args, kwargs);
}

/* clang-format off */
#define STUB(i) \
    static PyObject *stub_##i(PyObject *s, PyObject *a, PyObject *k) { return from_stub(0x##i, s, a, k); } \
    static PyObject *stub0_##i(PyObject *s, PyObject *n) { (void)n; return from_stub(0x##i, s, NULL, NULL); }
#define STUB4(i)  STUB(i##0) STUB(i##1) STUB(i##2) STUB(i##3) STUB(i##4) STUB(i##5) STUB(i##6) STUB(i##7) \
                  STUB(i##8) STUB(i##9) STUB(i##a) STUB(i##b) STUB(i##c) STUB(i##d) STUB(i##e) STUB(i##f)
#define STUB8(i)  STUB4(i##0) STUB4(i##1) STUB4(i##2) STUB4(i##3) STUB4(i##4) STUB4(i##5) STUB4(i##6) STUB4(i##7) \
                  STUB4(i##8) STUB4(i##9) STUB4(i##a) STUB4(i##b) STUB4(i##c) STUB4(i##d) STUB4(i##e) STUB4(i##f)
STUB8(0) STUB8(1) STUB8(2) STUB8(3)

#define ROW(fn, i)  fn##i##0, fn##i##1, fn##i##2, fn##i##3, fn##i##4, fn##i##5, fn##i##6, fn##i##7, \
                   fn##i##8, fn##i##9, fn##i##a, fn##i##b, fn##i##c, fn##i##d, fn##i##e, fn##i##f
#define PAGE(fn, i) ROW(fn, i##0), ROW(fn, i##1), ROW(fn, i##2), ROW(fn, i##3), ROW(fn, i##4), ROW(fn, i##5), ROW(fn, i##6), ROW(fn, i##7), \
                   ROW(fn, i##8), ROW(fn, i##9), ROW(fn, i##a), ROW(fn, i##b), ROW(fn, i##c), ROW(fn, i##d), ROW(fn, i##e), ROW(fn, i##f)
static PyCFunctionWithKeywords const stubs[STUBS] = {PAGE(stub_, 0), PAGE(stub_, 1), PAGE(stub_, 2), PAGE(stub_, 3)};
static PyCFunction const stubs0[STUBS] = {PAGE(stub0_, 0), PAGE(stub0_, 1), PAGE(stub0_, 2), PAGE(stub0_, 3)};
/* clang-format on */

/* ---- vectorcall forms -------------------------------------------------------------------------------------------- */

int
msp_probe_pack(PyObject **tuple, PyObject **kwargs, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    *kwargs = NULL;
    *tuple = PyTuple_New(nargs);
    if (*tuple == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < nargs; i++) {
        Py_INCREF(args[i]);
        PyTuple_SET_ITEM(*tuple, i, args[i]);
    }
    if (kwnames == NULL || PyTuple_GET_SIZE(kwnames) == 0)
        return 0;
    *kwargs = PyDict_New();
    for (Py_ssize_t i = 0; *kwargs != NULL && i < PyTuple_GET_SIZE(kwnames); i++)
        if (PyDict_SetItem(*kwargs, PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) != 0)
            Py_CLEAR(*kwargs);
    if (*kwargs != NULL)
        return 0;
    Py_CLEAR(*tuple);
    return -1;
}

PyObject *
msp_probe_call_packed(probe_api *api, PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *tuple, *kwargs, *result;

    if (msp_probe_pack(&tuple, &kwargs, args, PyVectorcall_NARGS(nargsf), kwnames) != 0)
        return NULL;
    result = msp_probe_call(api, self, tuple, kwargs);
    Py_DECREF(tuple);
    Py_XDECREF(kwargs);
    return result;
}

static PyObject *
vectorcall_builtin(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyCFunctionObject *f = (PyCFunctionObject *)callable;

    return msp_probe_call_packed((probe_api *)f->m_ml, f->m_self, args, nargsf, kwnames);
}

/* The original through its own vectorcall, which the function object itself no longer leads to. */
static PyObject *
invoke_vectorcall(probe_api *api, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t nargs = PyTuple_GET_SIZE(args), nkw = kwargs == NULL ? 0 : PyDict_GET_SIZE(kwargs), pos = 0;
    PyObject **stack = PyMem_New(PyObject *, nargs + nkw + 1), *names = nkw > 0 ? PyTuple_New(nkw) : NULL, *key, *value;
    PyObject *result = NULL;
    Py_ssize_t n = nargs;

    if (stack != NULL && (nkw == 0 || names != NULL)) {
        memcpy(stack, &PyTuple_GET_ITEM(args, 0), (size_t)nargs * sizeof(*stack));
        while (nkw > 0 && PyDict_Next(kwargs, &pos, &key, &value)) {
            Py_INCREF(key);
            PyTuple_SET_ITEM(names, n - nargs, key);
            stack[n++] = value;
        }
        result = api->vectorcall(api->target, stack, (size_t)nargs, names);
    } else {
        PyErr_NoMemory();
    }
    PyMem_Free(stack);
    Py_XDECREF(names);
    return result;
}

/* ---- the slot behind Tensor.__setitem__ -------------------------------------------------------------------------- */

static objobjargproc setitem_original;
static probe_api *setitem_api;

/* t[key] = value, and del t[key] with value NULL */
static int
set_item(PyObject *self, PyObject *key, PyObject *value)
{
    PyObject *args, *result;

    if (value == NULL || (!msp_probe_wants() && !(setitem_api->flags & PROBE_TRIAL)))
        return setitem_original(self, key, value);
    args = PyTuple_Pack(2, key, value);
    if (args == NULL)
        return -1;
    result = msp_probe_call(setitem_api, self, args, NULL);
    Py_DECREF(args);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static PyObject *
invoke_setitem(PyObject *self, PyObject *args)
{
    if (setitem_original(self, PyTuple_GET_ITEM(args, 0), PyTuple_GET_ITEM(args, 1)) != 0)
        return NULL;
    Py_RETURN_NONE;
}

static int
prepare_setitem(probe_api *api)
{
    PyMappingMethods *m = msp_probe.tensor_type == NULL ? NULL : msp_probe.tensor_type->tp_as_mapping;

    if (m == NULL || m->mp_ass_subscript == NULL || setitem_api != NULL) {
        PyErr_SetString(PyExc_TypeError, "only Tensor.__setitem__ is a slot that can be recorded");
        return -1;
    }
    setitem_original = m->mp_ass_subscript;
    setitem_api = api;
    return 0;
}

static PyObject *str_subclasses;

/* Exchange the pointer in a type and in all that inherited it. */
static void
exchange_slot(PyTypeObject *type, objobjargproc from, objobjargproc to)
{
    PyObject *below = PyObject_CallMethodObjArgs((PyObject *)type, str_subclasses, NULL);

    if (type->tp_as_mapping != NULL && type->tp_as_mapping->mp_ass_subscript == from)
        type->tp_as_mapping->mp_ass_subscript = to;
    for (Py_ssize_t i = 0; below != NULL && i < PyList_GET_SIZE(below); i++)
        exchange_slot((PyTypeObject *)PyList_GET_ITEM(below, i), from, to);
    Py_XDECREF(below);
    msp_probe_expect(NULL, "patching Tensor.__setitem__");
}

static bool
patch_setitem(probe_api *api)
{
    (void)api;
    exchange_slot(msp_probe.tensor_type, setitem_original, set_item);
    return true;
}

static void
unpatch_setitem(probe_api *api)
{
    (void)api;
    exchange_slot(msp_probe.tensor_type, set_item, setitem_original);
}

/* ---- preparing --------------------------------------------------------------------------------------------------- */

static int
prepare_builtin(probe_api *api)
{
    PyCFunctionObject *f = (PyCFunctionObject *)api->target;

    /* without a vectorcall of its own the arguments go to ml_meth as a tuple and a dict */
    if (f->vectorcall == NULL && (f->m_ml->ml_flags & ~(METH_CLASS | METH_STATIC)) != (METH_VARARGS | METH_KEYWORDS)) {
        PyErr_Format(PyExc_TypeError, "%s: a built-in function of another calling convention", f->m_ml->ml_name);
        return -1;
    }
    api->orig = f->m_ml;
    api->def = *f->m_ml;
    api->vectorcall = f->vectorcall;
    return 0;
}

static int
prepare_method(probe_api *api)
{
    PyMethodDescrObject *d = (PyMethodDescrObject *)api->target;
    int flags = d->d_method->ml_flags;

    if (flags != (METH_VARARGS | METH_KEYWORDS) && flags != METH_NOARGS) {
        PyErr_Format(PyExc_TypeError, "%s: a method of another calling convention", d->d_method->ml_name);
        return -1;
    }
    if (stubs_used == STUBS) {
        PyErr_Format(PyExc_RuntimeError, "more than %d methods in the list of APIs", STUBS);
        return -1;
    }
    api->kind = flags == METH_NOARGS ? PROBE_METHOD_NOARGS : PROBE_METHOD;
    api->orig = d->d_method;
    api->def = *d->d_method;
    api->def.ml_meth = flags == METH_NOARGS ? stubs0[stubs_used] : (PyCFunction)(void (*)(void))stubs[stubs_used];
    stub_api[stubs_used++] = api;
    return 0;
}

static int
prepare_api(probe_api *api)
{
    if (PyCFunction_CheckExact(api->target)) {
        api->kind = PROBE_BUILTIN;
        return prepare_builtin(api);
    }
    if (Py_TYPE(api->target) == &PyMethodDescr_Type) {
        api->kind = PROBE_METHOD;
        return prepare_method(api);
    }
    if (PyFunction_Check(api->target)) {
        api->kind = PROBE_FUNCTION;
        return msp_function_prepare(api);
    }
    if (Py_TYPE(api->target) == &PyWrapperDescr_Type) {
        api->kind = PROBE_SETITEM;
        return prepare_setitem(api);
    }
    PyErr_Format(PyExc_TypeError, "%.200s objects cannot be recorded", Py_TYPE(api->target)->tp_name);
    return -1;
}

probe_api *
msp_probe_new_api(PyObject *target, probe_name *name, unsigned flags)
{
    probe_api *api = PyMem_Calloc(1, sizeof(*api));

    if (api == NULL)
        return (probe_api *)PyErr_NoMemory();
    Py_INCREF(target);
    api->target = target;
    api->name = name;
    api->flags = flags;
    return api;
}

static void
free_api(probe_api *api)
{
    Py_DECREF(api->target);
    PyMem_Free(api);
}

probe_api *
msp_probe_prepare(PyObject *target, probe_name *name, unsigned flags)
{
    probe_api *api = msp_probe_find_api(target);

    if (api != NULL)
        return api; /* the same object under another name: the caller decides what to do with that */
    api = msp_probe_new_api(target, name, flags);
    if (api == NULL)
        return NULL;
    if (prepare_api(api) != 0) {
        free_api(api);
        return NULL;
    }
    if (!map_put(&apis, target, api))
        return (probe_api *)PyErr_NoMemory(); /* a prepared one is not freed: a numbered function may lead to it */
    api->next = msp_probe.apis;
    msp_probe.apis = api;
    return api;
}

/* ---- in and out -------------------------------------------------------------------------------------------------- */

static bool
patch_api(probe_api *api)
{
    PyCFunctionObject *f = (PyCFunctionObject *)api->target;
    PyMethodDescrObject *d = (PyMethodDescrObject *)api->target;

    switch (api->kind) {
    case PROBE_BUILTIN:
        if (f->m_ml != api->orig || f->vectorcall != api->vectorcall)
            return false; /* somebody else is in there: leave it alone */
        f->m_ml = &api->def;
        f->vectorcall = vectorcall_builtin;
        return true;
    case PROBE_METHOD:
    case PROBE_METHOD_NOARGS:
        if (d->d_method != api->orig)
            return false;
        d->d_method = &api->def;
        return true;
    case PROBE_FUNCTION:
        return msp_function_patch(api);
    case PROBE_SETITEM:
        return patch_setitem(api);
    case PROBE_CALLABLE:
        return false; /* an attribute: Python puts it there */
    }
    return false;
}

/* Only what is still ours is put back. */
static void
unpatch_api(probe_api *api)
{
    PyCFunctionObject *f = (PyCFunctionObject *)api->target;
    PyMethodDescrObject *d = (PyMethodDescrObject *)api->target;

    switch (api->kind) {
    case PROBE_BUILTIN:
        if (f->m_ml == &api->def) {
            f->vectorcall = api->vectorcall;
            f->m_ml = api->orig;
        }
        break;
    case PROBE_METHOD:
    case PROBE_METHOD_NOARGS:
        if (d->d_method == &api->def)
            d->d_method = api->orig;
        break;
    case PROBE_FUNCTION:
        msp_function_unpatch(api);
        break;
    case PROBE_SETITEM:
        unpatch_setitem(api);
        break;
    case PROBE_CALLABLE:
        break;
    }
}

void
msp_probe_patch_all(bool calls)
{
    for (probe_api *a = msp_probe.apis; a != NULL; a = a->next)
        if (!a->patched && (calls || (a->flags & PROBE_APART)))
            a->patched = patch_api(a);
}

void
msp_probe_unpatch_all(void)
{
    for (probe_api *a = msp_probe.apis; a != NULL; a = a->next) {
        if (a->patched)
            unpatch_api(a);
        a->patched = false;
    }
}

void
msp_probe_functions_out(void)
{
    for (probe_api *a = msp_probe.apis; a != NULL; a = a->next)
        if (a->patched && a->trampoline != NULL)
            msp_function_unpatch(a);
}

void
msp_probe_functions_in(void)
{
    for (probe_api *a = msp_probe.apis; a != NULL; a = a->next)
        if (a->patched && a->trampoline != NULL)
            a->patched = msp_function_patch(a);
}

/* ---- calling the original ---------------------------------------------------------------------------------------- */

PyObject *
msp_probe_invoke(probe_api *api, PyObject *self, PyObject *args, PyObject *kwargs)
{
    switch (api->kind) {
    case PROBE_BUILTIN:
        if (api->vectorcall != NULL)
            return invoke_vectorcall(api, args, kwargs);
        /* fall through */
    case PROBE_METHOD:
        return ((PyCFunctionWithKeywords)(void (*)(void))api->orig->ml_meth)(self, args, kwargs);
    case PROBE_METHOD_NOARGS:
        return api->orig->ml_meth(self, NULL);
    case PROBE_FUNCTION:
        return api->shadow == NULL ? invoke_vectorcall(api, args, kwargs) : PyObject_Call(api->shadow, args, kwargs);
    case PROBE_SETITEM:
        return invoke_setitem(self, args);
    case PROBE_CALLABLE:
        return PyObject_Call(api->target, args, kwargs);
    }
    Py_RETURN_NONE;
}

/* ---- the self-test's part ---------------------------------------------------------------------------------------- */

PyObject *
msp_probe_trial(PyObject *self, PyObject *all)
{
    PyObject *target, *call, *done;
    probe_api *api;

    (void)self;
    if (!PyArg_ParseTuple(all, "OO", &target, &call))
        return NULL;
    api = msp_probe_find_api(target) == NULL ? msp_probe_new_api(target, NULL, PROBE_TRIAL) : NULL;
    if (api == NULL || prepare_api(api) != 0 || !map_put(&apis, target, api)) {
        msp_probe_expect(PyExc_TypeError, "trying to patch");
        return PyLong_FromLong(-1);
    }
    api->patched = patch_api(api);
    done = PyObject_CallNoArgs(call);
    if (api->patched)
        unpatch_api(api);
    api->flags |= PROBE_TRIAL;
    map_put(&apis, target, NULL);
    if (setitem_api == api)
        setitem_api = NULL;
    if (done == NULL)
        return NULL;
    Py_DECREF(done);
    return PyLong_FromLongLong(api->patched ? api->trials : -1);
}

/* What the self-test patches: sample(*args, **kwargs) -> (args, kwargs), and the same as methods of Sample. */
static PyObject *
echo_arguments(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)self;
    return PyTuple_Pack(2, args, kwargs == NULL ? Py_None : kwargs);
}

static PyObject *
sample_nothing(PyObject *self, PyObject *unused)
{
    (void)unused;
    Py_INCREF(self);
    return self;
}

static PyMethodDef sample_methods[] = {
    {"echo", (PyCFunction)(void (*)(void))echo_arguments, METH_VARARGS | METH_KEYWORDS, NULL},
    {"nothing", sample_nothing, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject sample_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.Sample",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = sample_methods,
    .tp_new = PyType_GenericNew,
};

static PyMethodDef sample_function = {"sample", (PyCFunction)(void (*)(void))echo_arguments,
                                      METH_VARARGS | METH_KEYWORDS, NULL};

int
msp_probe_patch_setup(PyObject *module)
{
    PyObject *sample;

    str_subclasses = PyUnicode_InternFromString("__subclasses__");
    if (str_subclasses == NULL || PyType_Ready(&sample_type) != 0 || msp_function_setup() != 0 ||
        msp_probe_wrapper_setup() != 0)
        return -1;
    sample = PyCFunction_New(&sample_function, NULL);
    if (sample == NULL || PyModule_AddObject(module, "sample", sample) != 0) {
        Py_XDECREF(sample);
        return -1;
    }
    Py_INCREF(&sample_type);
    return PyModule_AddObject(module, "Sample", (PyObject *)&sample_type);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

probe_name *
msp_probe_name(const char *text, size_t len)
{
    probe_name *n = msp_probe.names;

    while (n != NULL && (n->len != len || memcmp(n->text, text, len) != 0))
        n = n->next;
    if (n != NULL)
        return n;
    n = PyMem_Calloc(1, sizeof(*n) + len + 1);
    if (n == NULL)
        return (probe_name *)PyErr_NoMemory();
    n->text = (char *)(n + 1);
    memcpy(n->text, text, len);
    n->len = len;
    n->next = msp_probe.names;
    msp_probe.names = n;
    return n;
}
