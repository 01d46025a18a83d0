/*
 * probe_register.c - putting hooks on autograd nodes.
 *
 * node.register_hook() asks a function of torch's that is written in Python, _HookMixin._register_hook(dict, hook), to
 * put the hook into the node's dict and to make a handle; that is 2 of its 2.5 us. While we record, its vectorcall
 * field leads here: hooks of ours go into the dict without a handle, all others to the original. torch calls it from
 * C, where the field is honoured in every version of the interpreter.
 */
#include "probe_grad.h"
#include <stdint.h>

static PyObject *str_register_hook;

int
msp_probe_register_setup(void)
{
    str_register_hook = PyUnicode_InternFromString("register_hook");
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *
msp_probe_hook(PyObject *node, PyObject *hook)
{
    return PyObject_CallMethodObjArgs(node, str_register_hook, hook, NULL);
}

static PyFunctionObject *registrar; /* NULL: not proven */
static vectorcallfunc registrar_original;
static int64_t registered;

static PyTypeObject trial_hook_type;

static bool
is_our_hook(PyObject *hook)
{
    return Py_TYPE(hook) == &msp_probe_grad_hook_type || Py_TYPE(hook) == &msp_probe_parameter_hook_type ||
           Py_TYPE(hook) == &trial_hook_type;
}

/* (dict or None, hook) -> (dict, handle); ours is (dict, key), and keys of torch's own count from 0 up */
static PyObject *
put_hook(PyObject *dict, PyObject *hook)
{
    PyObject *key = PyLong_FromLongLong(-1 - registered++), *handle = NULL, *result = NULL;

    if (dict == Py_None)
        dict = PyODict_New(); /* as torch has it: whoever registers next wants a weak reference to it */
    else
        Py_INCREF(dict);
    if (dict != NULL && key != NULL && PyObject_SetItem(dict, key, hook) == 0) {
        if (Py_TYPE(hook) == &msp_probe_parameter_hook_type) {
            handle = PyTuple_Pack(2, dict, key);
        } else {
            handle = Py_None; /* nobody takes the others out: they go with the graph */
            Py_INCREF(handle);
        }
    }
    if (handle != NULL)
        result = PyTuple_Pack(2, dict, handle);
    Py_XDECREF(dict);
    Py_XDECREF(key);
    Py_XDECREF(handle);
    return result;
}

void
msp_probe_unhook(PyObject *handle)
{
    PyObject *done;

    if (PyTuple_CheckExact(handle) && PyTuple_GET_SIZE(handle) == 2) {
        PyObject_DelItem(PyTuple_GET_ITEM(handle, 0), PyTuple_GET_ITEM(handle, 1));
    } else {
        done = PyObject_CallMethod(handle, "remove", NULL);
        Py_XDECREF(done);
    }
    msp_probe_drop_error();
}

static PyObject *
registrar_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (kwnames == NULL && PyVectorcall_NARGS(nargsf) == 2 && is_our_hook(args[1]))
        return put_hook(args[0], args[1]);
    return registrar_original(callable, args, nargsf, kwnames);
}

void
msp_probe_grad_start(void)
{
    if (registrar == NULL || registrar->vectorcall == registrar_vectorcall)
        return;
    registrar_original = registrar->vectorcall;
    msp_probe_set_vectorcall(registrar, registrar_vectorcall);
}

void
msp_probe_grad_stop(void)
{
    if (registrar != NULL && registrar->vectorcall == registrar_vectorcall)
        msp_probe_set_vectorcall(registrar, registrar_original);
}

static PyTypeObject trial_hook_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.TrialHook",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
};

/*
 * registrar(function, node) -> bool: whether node.register_hook() asks function, as said above; from then on it is
 * used. registrar(None, None): it is not.
 */
PyObject *
msp_probe_registrar(PyObject *self, PyObject *all)
{
    PyObject *function, *node, *hook = NULL, *handle;
    int64_t before = registered;

    (void)self;
    if (!PyArg_ParseTuple(all, "OO", &function, &node) || PyType_Ready(&trial_hook_type) != 0)
        return NULL;
    msp_probe_grad_stop();
    Py_CLEAR(registrar);
    if (!PyFunction_Check(function))
        Py_RETURN_FALSE;
    Py_INCREF(function);
    registrar = (PyFunctionObject *)function;
    msp_probe_grad_start();
    hook = PyObject_CallNoArgs((PyObject *)&trial_hook_type);
    for (int i = 0; i < 2 && hook != NULL; i++) { /* the second one finds the first one's dict */
        handle = msp_probe_hook(node, hook);
        Py_XDECREF(handle);
    }
    Py_XDECREF(hook);
    PyErr_Clear();
    msp_probe_grad_stop();
    if (registered == before + 2)
        Py_RETURN_TRUE;
    Py_CLEAR(registrar);
    Py_RETURN_FALSE;
}
