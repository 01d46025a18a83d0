/*
 * settings.c - what Python tells the recording once: torch's functions and our own, and what is recorded.
 */
#include "recording/recording.h"

static int
take_setting(const probe_setting *s, PyObject *v)
{
    int yes;

    if (s->flag != NULL) {
        yes = v == NULL ? (int)s->initial : PyObject_IsTrue(v);
        *s->flag = yes > 0;
        return yes < 0 ? -1 : 0;
    }
    if (s->number != NULL) {
        *s->number = v == NULL ? s->initial : PyLong_AsLongLong(v);
        return PyErr_Occurred() ? -1 : 0;
    }
    if (s->tuple != NULL && v != NULL && v != Py_None && !PyTuple_Check(v)) {
        PyErr_Format(PyExc_TypeError, "%s is a tuple or None, not %.200s", s->name, Py_TYPE(v)->tp_name);
        return -1;
    }
    msp_probe_set(s->tuple != NULL ? s->tuple : s->object, v);
    return 0;
}

int
msp_probe_take_settings(const probe_setting *settings, size_t n, PyObject *kwargs)
{
    Py_ssize_t known = 0;

    for (size_t i = 0; i < n; i++) {
        PyObject *v = kwargs == NULL ? NULL : PyDict_GetItemString(kwargs, settings[i].name);

        known += v != NULL;
        if (take_setting(&settings[i], v) != 0)
            return -1;
    }
    if (kwargs == NULL || PyDict_GET_SIZE(kwargs) == known)
        return 0;
    PyErr_Format(PyExc_TypeError, "one of these settings is not known: %R", kwargs);
    return -1;
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* setup(tensor, parameter, **callbacks): torch's types, and what is asked of torch and of Python, see probe_state */
PyObject *
msp_probe_setup(PyObject *self, PyObject *args, PyObject *kwargs)
{
#define OBJECT(field)                              \
    {                                              \
        .name = #field, .object = &msp_probe.field \
    }
#define TUPLE(field)                              \
    {                                             \
        .name = #field, .tuple = &msp_probe.field \
    }
    static const probe_setting callbacks[] = {
        OBJECT(sequence_nr),    OBJECT(task_id),     OBJECT(grad_enabled), OBJECT(functorch_level),
        OBJECT(queue_callback), TUPLE(modes),        TUPLE(global_hooks),  OBJECT(set_eval_frame),
        OBJECT(trampoline),     OBJECT(describe),    OBJECT(fetch),        OBJECT(total),
        OBJECT(stack_text),     OBJECT(caller),      OBJECT(on_error),     OBJECT(on_failure),
        OBJECT(is_programs),    OBJECT(on_overflow), OBJECT(group),        OBJECT(overflow_flag),
        OBJECT(hook_module),    OBJECT(on_compiled), OBJECT(watch),        OBJECT(on_kernel),
    };
    PyObject *tensor, *parameter;

    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!", &PyType_Type, &tensor, &PyType_Type, &parameter) ||
        msp_probe_take_settings(callbacks, COUNT(callbacks), kwargs) != 0)
        return NULL;
    msp_probe_set((PyObject **)&msp_probe.tensor_type, tensor);
    msp_probe_set((PyObject **)&msp_probe.parameter_type, parameter);
    Py_RETURN_NONE;
}

/* rules(**settings): see probe_rules; scope is a pair of names */
PyObject *
msp_probe_set_rules(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static PyObject *scope;
#define FLAG(field, first)                                                 \
    {                                                                      \
        .name = #field, .flag = &msp_probe.rules.field, .initial = (first) \
    }
#define NUMBER(field, first)                                                 \
    {                                                                        \
        .name = #field, .number = &msp_probe.rules.field, .initial = (first) \
    }
    static const probe_setting rules[] = {
        FLAG(forward, true),
        FLAG(backward, true),
        FLAG(inputs, true),
        FLAG(outputs, true),
        FLAG(statistics, true),
        FLAG(checksum, false),
        FLAG(structure, false),
        FLAG(tensors, false),
        FLAG(overflow, false),
        FLAG(construct, false),
        FLAG(expand, false),
        NUMBER(kernel, -1),
        NUMBER(threads, 0),
        {.name = "list", .tuple = &msp_probe.rules.list},
        {.name = "tensor_list", .tuple = &msp_probe.rules.tensor_list},
        {.name = "scope", .tuple = &scope},
    };

    (void)self;
    if (!PyArg_ParseTuple(args, "") || msp_probe_take_settings(rules, COUNT(rules), kwargs) != 0)
        return NULL;
    if (scope != NULL && PyTuple_GET_SIZE(scope) != 2) {
        PyErr_SetString(PyExc_TypeError, "scope is a pair of names, or None");
        return NULL;
    }
    msp_probe_set(&msp_probe.rules.scope_begin, scope == NULL ? NULL : PyTuple_GET_ITEM(scope, 0));
    msp_probe_set(&msp_probe.rules.scope_end, scope == NULL ? NULL : PyTuple_GET_ITEM(scope, 1));
    msp_probe.in_scope = false;
    Py_RETURN_NONE;
}
