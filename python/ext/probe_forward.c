/*
 * probe_forward.c - a module's forward, called without the function of torch's that stands around it.
 *
 * Module._call_impl looks for hooks, asks whether the program is being traced, and calls forward with everything packed
 * anew: as much as half of what it takes to record the call. We have looked for the hooks, and torch's own function
 * tells of a trace; so forward can be called as it is, when it is a function of the module's class that nothing hides.
 * A program whose calls are observed (a profiler, a debugger) has them all, and the exception that leaves forward shows
 * torch's function among its places, as ever. Stacks that are recorded have it, too (pytorch/stacks.py).
 *
 * That is done with the torch and the interpreter that selftest.py knows, where it was tried. The older tools write
 * stacks of their own, frame by frame: for them torch's function is called.
 */
#include "probe.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static struct {
    void *const *(*tracing)(void); /* NULL behind it: nobody traces on this thread */
    char *file;                    /* and the line where torch's function calls forward; 0: we do not */
    int line;
} around;

#if PY_VERSION_HEX < 0x030c0000

/* Whether nothing but its class says what the module's forward is, and that is a function: lent, or NULL. */
static PyObject *
find_forward(PyObject *module, PyObject *own)
{
    static PyObject *name, *getter;
    PyTypeObject *type = Py_TYPE(module);
    PyObject *found;

    if (name == NULL)
        name = PyUnicode_InternFromString("forward");
    if (getter == NULL)
        getter = PyUnicode_InternFromString("__getattribute__");
    if (name == NULL || getter == NULL || PyDict_Contains(own, name) != 0 ||
        _PyType_Lookup(type, getter) != _PyType_Lookup(&PyBaseObject_Type, getter)) {
        PyErr_Clear();
        return NULL;
    }
    found = _PyType_Lookup(type, name);
    return found != NULL && PyFunction_Check(found) ? found : NULL;
}

/* The same, asked once for each version of the class: a change of it, or of those it comes from, makes another. That
 * of the module's own dict, which of->version is, was looked at before. */
static PyObject *
forward_of(probe_module *of, PyObject *module, PyObject *own)
{
    PyTypeObject *type = Py_TYPE(module);

    if (of->type != type || of->type_version != type->tp_version_tag ||
        !PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)) {
        of->forward = find_forward(module, own);
        of->type = PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type : NULL;
        of->type_version = type->tp_version_tag;
    }
    return of->forward;
}

/* Whether a profiler, a debugger or a trace is to see every call. */
static bool
is_observed(void)
{
    const PyThreadState *here = PyThreadState_Get();

    return here->c_profilefunc != NULL || here->c_tracefunc != NULL || *around.tracing() != NULL;
}

PyObject *
msp_probe_forward(probe_module *of, PyObject *module)
{
    PyObject **own;

    if (around.line == 0 || of->version == 0 || msp_probe_is_legacy())
        return NULL;
    own = _PyObject_GetDictPtr(module);
    if (own == NULL || *own == NULL || msp_probe_dict_version(*own) != of->version || is_observed())
        return NULL;
    return forward_of(of, module, *own);
}

PyObject *
msp_probe_call_forward(PyObject *forward, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *result = ((PyFunctionObject *)forward)->vectorcall(forward, args, nargsf, kwnames);

    if (result == NULL)
        _PyTraceback_Add("_call_impl", around.file, around.line);
    return result;
}

#else /* no dict has a version any more: this is never asked for */

PyObject *
msp_probe_forward(probe_module *of, PyObject *module)
{
    (void)of, (void)module;
    return NULL;
}

PyObject *
msp_probe_call_forward(PyObject *forward, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return ((PyFunctionObject *)forward)->vectorcall(forward, args, nargsf, kwnames);
}

#endif

static bool
find_tracing(void)
{
    void *torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);

    if (torch == NULL)
        return false;
    *(void **)&around.tracing = dlsym(torch, "_ZN5torch3jit6tracer15getTracingStateEv");
    dlclose(torch);
    return around.tracing != NULL;
}

/* Whether a module that returns what it is given does so when it is called in this way. */
static bool
try_forward(PyObject *module)
{
    PyObject **own = _PyObject_GetDictPtr(module), *args[2] = {module, Py_None};
    probe_module of = {.version = own == NULL ? 0 : msp_probe_dict_version(*own)};
    PyObject *forward = msp_probe_forward(&of, module), *result = NULL;

    if (forward != NULL)
        result = msp_probe_call_forward(forward, args, 2, NULL);
    Py_XDECREF(result);
    PyErr_Clear();
    return result == Py_None;
}

/*
 * forward_function(file, line, module) -> bool: whether forward is called without Module._call_impl, which calls it
 * there, from now on. module: an Identity to try that with. forward_function(None, 0, None): it is not.
 */
PyObject *
msp_probe_forward_function(PyObject *self, PyObject *all)
{
    PyObject *module;
    const char *file;
    int line;

    (void)self;
    if (!PyArg_ParseTuple(all, "ziO", &file, &line, &module))
        return NULL;
    free(around.file);
    around.file = file == NULL ? NULL : strdup(file);
    around.line = 0;
    if (around.file == NULL || !find_tracing())
        Py_RETURN_FALSE;
    around.line = line;
    if (!try_forward(module))
        around.line = 0;
    return PyBool_FromLong(around.line != 0);
}
