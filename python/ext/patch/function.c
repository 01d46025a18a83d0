/*
 * function.c - functions written in Python, patched in place.
 *
 * Their vectorcall field leads to us in every version but 3.11: that one inlines calls from bytecode without looking at
 * the field. There __code__ is exchanged for a trampoline that calls us, made in Python (msp_probe.trampoline), and a
 * shadow of the function, with the code that it had, is what the original is called by.
 */
#include "call/call.h"

void
msp_probe_set_vectorcall(PyFunctionObject *f, vectorcallfunc call)
{
#if PY_VERSION_HEX >= 0x030c0000
    PyFunction_SetVectorcall(f, call);
#else
    f->vectorcall = call;
#endif
}

#if PY_VERSION_HEX < 0x030b0000 || PY_VERSION_HEX >= 0x030c0000

/* ---- by the vectorcall field ------------------------------------------------------------------------------------- */

static PyObject *
vectorcall_function(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    probe_api *api = msp_probe_find_api(callable);

    if (!msp_probe_wants() && !(api->flags & PROBE_TRIAL))
        return api->vectorcall(callable, args, nargsf, kwnames);
    return msp_probe_call_packed(api, NULL, args, nargsf, kwnames);
}

int
msp_function_prepare(probe_api *api)
{
    api->vectorcall = ((PyFunctionObject *)api->target)->vectorcall;
    return 0;
}

bool
msp_function_patch(probe_api *api)
{
    PyFunctionObject *f = (PyFunctionObject *)api->target;

    api->vectorcall = f->vectorcall;
    msp_probe_set_vectorcall(f, vectorcall_function);
    return true;
}

void
msp_function_unpatch(probe_api *api)
{
    PyFunctionObject *f = (PyFunctionObject *)api->target;

    if (f->vectorcall != vectorcall_function)
        return;
    msp_probe_set_vectorcall(f, api->vectorcall);
}

int
msp_function_setup(void)
{
    return 0;
}

#else

/* ---- by a trampoline --------------------------------------------------------------------------------------------- */

/* Names that are used for hundreds of objects in every step; the interpreter's cache of types' attributes keeps the
 * text that it was asked with last. */
static PyObject *str_code, *str_signature;

/* The object in the trampoline's constants: called as C(args, kwargs). */
typedef struct entry_object {
    PyObject_HEAD probe_api *api;
} entry_object;

static PyObject *
entry_call(PyObject *self, PyObject *args, PyObject *unused)
{
    (void)unused;
    return msp_probe_call(((entry_object *)self)->api, NULL, PyTuple_GET_ITEM(args, 0), PyTuple_GET_ITEM(args, 1));
}

static PyTypeObject entry_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.Entry",
    .tp_basicsize = sizeof(entry_object),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_call = entry_call,
};

/*
 * (code for target that calls entry, its signature or None), made in Python: code objects differ from version to
 * version, code.replace() does not.
 */
static PyObject *
make_trampoline(PyObject *target, probe_api *api)
{
    entry_object *entry = PyObject_New(entry_object, &entry_type);
    PyObject *made = NULL;

    if (entry == NULL)
        return NULL;
    entry->api = api;
    if (msp_probe.trampoline == NULL)
        PyErr_SetString(PyExc_RuntimeError, "no maker of trampolines is set");
    else
        made = PyObject_CallFunctionObjArgs(msp_probe.trampoline, target, entry, NULL);
    Py_DECREF(entry);
    if (made != NULL &&
        (!PyTuple_Check(made) || PyTuple_GET_SIZE(made) != 2 || !PyCode_Check(PyTuple_GET_ITEM(made, 0)))) {
        PyErr_SetString(PyExc_TypeError, "a trampoline must be a code object and a signature");
        Py_CLEAR(made);
    }
    return made;
}

/* A function with the same code, defaults and closure, so that calling it is calling the original. */
static PyObject *
make_shadow(PyFunctionObject *f)
{
    PyObject *shadow = PyFunction_NewWithQualName(f->func_code, f->func_globals, f->func_qualname);

    if (shadow == NULL)
        return NULL;
    if (PyFunction_SetDefaults(shadow, f->func_defaults == NULL ? Py_None : f->func_defaults) != 0 ||
        PyFunction_SetClosure(shadow, f->func_closure == NULL ? Py_None : f->func_closure) != 0) {
        Py_DECREF(shadow);
        return NULL;
    }
    Py_XINCREF(f->func_kwdefaults);
    Py_XSETREF(((PyFunctionObject *)shadow)->func_kwdefaults, f->func_kwdefaults);
    return shadow;
}

/* Setting __code__ through the attribute tells the interpreter's caches about it. */
static bool
set_code(PyObject *function, PyObject *code)
{
    if (PyObject_SetAttr(function, str_code, code) == 0)
        return true;
    msp_probe_swallow("patching a function", "");
    return false;
}

/* jit.script looks at the signature of what it compiles, and the trampoline has none. */
static void
set_signature(probe_api *api, bool there)
{
    if (api->signature == Py_None)
        return;
    if (there ? PyObject_SetAttr(api->target, str_signature, api->signature)
              : PyObject_DelAttr(api->target, str_signature))
        msp_probe_expect(PyExc_AttributeError, "showing a function's signature");
}

int
msp_function_prepare(probe_api *api)
{
    PyFunctionObject *f = (PyFunctionObject *)api->target;
    PyObject *shadow = make_shadow(f), *made = shadow == NULL ? NULL : make_trampoline(api->target, api);

    if (made == NULL) {
        Py_XDECREF(shadow);
        return -1;
    }
    Py_INCREF(f->func_code);
    Py_INCREF(PyTuple_GET_ITEM(made, 0));
    Py_INCREF(PyTuple_GET_ITEM(made, 1));
    Py_XSETREF(api->code, f->func_code);
    Py_XSETREF(api->shadow, shadow);
    Py_XSETREF(api->trampoline, PyTuple_GET_ITEM(made, 0));
    Py_XSETREF(api->signature, PyTuple_GET_ITEM(made, 1));
    Py_DECREF(made);
    return 0;
}

bool
msp_function_patch(probe_api *api)
{
    /* another tool, or our own removal of dropout, may have given it other code since */
    if (((PyFunctionObject *)api->target)->func_code != api->code && msp_function_prepare(api) != 0) {
        msp_probe_swallow("patching a function", api->name == NULL ? "" : api->name->text);
        return false;
    }
    if (!set_code(api->target, api->trampoline))
        return false;
    set_signature(api, true);
    return true;
}

void
msp_function_unpatch(probe_api *api)
{
    if (((PyFunctionObject *)api->target)->func_code == api->trampoline)
        set_code(api->target, api->code);
    set_signature(api, false);
}

int
msp_function_setup(void)
{
    str_code = PyUnicode_InternFromString("__code__");
    str_signature = PyUnicode_InternFromString("__signature__");
    return PyErr_Occurred() || PyType_Ready(&entry_type) != 0 ? -1 : 0;
}

#endif
