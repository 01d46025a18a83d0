/*
 * module_call.c - calls of modules (levels L0 and mix).
 *
 * Everything that runs a module's forward between its hooks goes through one function of torch's, Module._call_impl.
 * torch calls it from C in every version of the interpreter (its caller passes *args and **kwargs on), where a
 * function's vectorcall field is honoured: while we record, it leads here. Neither hooks nor attributes are set on
 * modules, and code that a compiler looks at stays as it is. A module with hooks of the program's own gets two of ours
 * among them (Python, hook_module), because what they change is to be seen; so do all of them where the field does not
 * hold.
 */
#include "call/machine.h"
#include "legacy/legacy.h"
#include "model/model.h"
#include <stddef.h>
#include <string.h>

#define KEY(r, literal) msp_record_key((r), (literal), sizeof(literal) - 1)

enum { N_HOOKS = PROBE_PARAMETERS };

static PyObject *str_dicts[PROBE_DICTS], *str_inner;

int
msp_probe_module_setup(void)
{
    static const char *const names[PROBE_DICTS] = {"_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks",
                                                   "_backward_hooks", "_parameters"};

    for (int i = 0; i < PROBE_DICTS; i++)
        str_dicts[i] = PyUnicode_InternFromString(names[i]);
    str_inner = PyUnicode_InternFromString("_orig_mod");
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- what a call looks at in its module -------------------------------------------------------------------------- */

/* One of its dicts, however the module has it; a new reference, or NULL: an older torch does not have all of them. */
static PyObject *
dict_of(PyObject *module, PyObject *own, int which)
{
    PyObject *dict = msp_probe_attribute(module, own, str_dicts[which]);

    if (dict != NULL && !PyDict_Check(dict))
        Py_CLEAR(dict);
    return dict;
}

/* ---- what a call shows ------------------------------------------------------------------------------------------- */

static void
put_inputs(const probe_call *c, msp_record *r)
{
    probe_path path;

    msp_call_path(&path, c, "input");
    msp_probe_sequence(r, "input_args", c->args, &path);
    msp_call_path(&path, c, "kwargs");
    KEY(r, "input_kwargs");
    msp_record_object(r);
    if (c->kwargs != NULL && PyDict_Check(c->kwargs))
        msp_probe_members(r, c->kwargs, &path, 0);
    msp_record_end(r);
}

/* {"weight": ..., "bias": ...} without those that the module has not. Reading a large one lets other threads run, which
 * may change the dict: what is looked at is held, and the walk ends where the dict does. */
static void
put_parameters(const probe_call *c, msp_record *r)
{
    PyObject *own = msp_probe_attributes(c->module), *of = dict_of(c->module, own, PROBE_PARAMETERS);
    PyObject *key, *p;
    probe_path path;
    Py_ssize_t len, pos = 0;
    const char *text;

    KEY(r, "parameters");
    msp_record_object(r);
    while (of != NULL && PyDict_Next(of, &pos, &key, &p)) {
        text = p == Py_None || !PyUnicode_Check(key) ? NULL : PyUnicode_AsUTF8AndSize(key, &len);
        if (text == NULL) {
            msp_probe_expect(PyExc_UnicodeEncodeError, "reading a parameter's name");
            continue;
        }
        Py_INCREF(key);
        Py_INCREF(p);
        msp_record_key(r, text, (size_t)len);
        msp_call_path(&path, c, "parameters");
        msp_probe_path_push(&path, text, (size_t)len);
        msp_probe_value(r, p, &path, 0);
        Py_DECREF(key);
        Py_DECREF(p);
    }
    msp_record_end(r);
    Py_XDECREF(own);
    Py_XDECREF(of);
}

/* Activation checkpointing ends a repetition by an exception: such a module counts as one that returned nothing. */
static void
put_outputs(const probe_call *c, msp_record *r, PyObject *result)
{
    probe_path path;

    if (result == NULL && c->site.recompute)
        result = Py_None;
    if (result == NULL)
        return;
    msp_call_path(&path, c, "output");
    msp_probe_sequence(r, "output", result, &path);
}

static const call_form module_form = {put_inputs, put_outputs, put_parameters, true};

/* A call of a module, and what was so on its thread when it began. */
typedef struct module_call {
    bool border;
    PyObject *stands_for; /* lent */
    probe_call call;
} module_call;

/* What torch.compile(module) returned stands for the module; lent, any other one is what it is. */
static PyObject *
compiled_from(PyObject *module)
{
    PyObject *inner = module;

    while (inner != NULL && strcmp(Py_TYPE(inner)->tp_name, "OptimizedModule") == 0) {
        module = inner;
        inner = PyObject_GetAttr(inner, str_inner);
        Py_XDECREF(inner); /* the module holds it */
    }
    msp_probe_expect(PyExc_AttributeError, "finding the module that was compiled");
    return inner == NULL ? module : inner;
}

/* kwargs may be NULL. */
static void
begin_module(module_call *m, probe_module *of, PyObject *called, PyObject *args, PyObject *kwargs)
{
    PyObject *module = compiled_from(called);
    probe_call *c = &m->call;
    probe_quiet q;

    m->border = msp_probe_thread.border;
    m->stands_for = msp_probe_thread.stands_for;
    msp_probe_thread.border |= module != called || msp_compiled_is_inside();
    msp_probe_thread.stands_for = module != called ? module : NULL;
    memset(c, 0, offsetof(probe_call, text));
    c->form = &module_form;
    c->named = of;
    c->module = module;
    c->args = args;
    c->kwargs = kwargs;
    msp_call_name(c, of->text, of->len, of->count++);
    msp_probe_enter(&q);
    msp_call_begin(c);
    msp_probe_leave(&q);
}

/* result is NULL when the call raised. Returns true when the program is to be stopped, with an exception set. */
static bool
end_module(module_call *m, PyObject *result, bool by_hook)
{
    probe_call *c = &m->call;
    probe_quiet q;
    bool stop;

    msp_probe_thread.border = m->border;
    msp_probe_thread.stands_for = m->stands_for;
    msp_probe_enter(&q);
    msp_probe_module_close(c->text, c->len);
    c->site = by_hook ? msp_probe_stack(0) : msp_probe_module_stack(result == NULL);
    c->site.owner = NULL; /* modules stand in modules alone */
    stop = msp_call_end(c, result);
    msp_probe_leave(&q);
    return stop;
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static PyFunctionObject *call_impl; /* torch.nn.Module._call_impl; NULL: not proven */
static vectorcallfunc call_impl_original;
static int64_t trials;
static bool trying;

/* Hooks of the program's own, on the module or on all of them. */
static bool
has_hooks(PyObject *module)
{
    PyObject *own;
    bool any = false;

    for (Py_ssize_t i = 0; msp_probe.global_hooks != NULL && i < PyTuple_GET_SIZE(msp_probe.global_hooks); i++) {
        PyObject *hooks = PyTuple_GET_ITEM(msp_probe.global_hooks, i);

        if (PyDict_Check(hooks) && PyDict_GET_SIZE(hooks) > 0)
            return true;
    }
    own = msp_probe_attributes(module);
    for (int i = 0; i < N_HOOKS && !any; i++) {
        PyObject *hooks = dict_of(module, own, i);

        any = hooks != NULL && PyDict_GET_SIZE(hooks) > 0;
        Py_XDECREF(hooks);
    }
    Py_XDECREF(own);
    return any;
}

static PyObject *
record_call(probe_module *of, PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *tuple, *kwargs, *result;
    probe_outcome o;
    module_call m;

    if (msp_probe_pack(&tuple, &kwargs, args + 1, PyVectorcall_NARGS(nargsf) - 1, kwnames) != 0)
        return NULL;
    if (msp_probe_any_fake(NULL, tuple, kwargs)) {
        result = call_impl_original(callable, args, nargsf, kwnames);
    } else {
        begin_module(&m, of, args[0], tuple, kwargs);
        o = msp_probe_set_aside(call_impl_original(callable, args, nargsf, kwnames));
        result = msp_probe_give_back(&o, end_module(&m, o.result, false));
    }
    Py_DECREF(tuple);
    Py_XDECREF(kwargs);
    return result;
}

static bool
hook_module(PyObject *module)
{
    PyObject *done = msp_probe.hook_module == NULL ? NULL : msp_probe_ask(msp_probe.hook_module, module, NULL);

    Py_XDECREF(done);
    if (done == NULL)
        msp_probe_swallow("hooking a module", Py_TYPE(module)->tp_name);
    return done != NULL;
}

/* What a call of the module is recorded as, or NULL. Of compiled code the outermost module is. */
static probe_module *
find_called(PyObject *called, bool *compiled)
{
    PyObject *module = compiled_from(called);
    probe_module *of = msp_probe_module_find(module);

    *compiled = module != called || msp_compiled_is_inside();
    if (called == msp_probe_thread.stands_for)
        return NULL;
    if (of != NULL && (*compiled ? msp_probe_thread.border : of->only_compiled))
        return NULL;
    return of;
}

/* _call_impl(module, *args, **kwargs) */
static PyObject *
call_module(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    probe_module *of = NULL;
    bool compiled = false;

    trials += trying;
    if (msp_probe.on && PyVectorcall_NARGS(nargsf) > 0)
        of = find_called(args[0], &compiled);
    if (of != NULL && compiled) /* hooks of ours might be compiled, too */
        return record_call(of, callable, args, nargsf, kwnames);
    if (of != NULL &&
        (of->hooked || has_hooks(args[0]))) /* ours find their places among those set since the last call */
        msp_probe_module_hooked(of, hook_module(args[0]) || of->hooked);
    if (of == NULL || of->hooked)
        return call_impl_original(callable, args, nargsf, kwnames);
    return record_call(of, callable, args, nargsf, kwnames);
}

void
msp_probe_modules_start(void)
{
    if (call_impl == NULL || call_impl->vectorcall == call_module)
        return;
    call_impl_original = call_impl->vectorcall;
    msp_probe_set_vectorcall(call_impl, call_module);
}

void
msp_probe_modules_stop(void)
{
    if (call_impl != NULL && call_impl->vectorcall == call_module)
        msp_probe_set_vectorcall(call_impl, call_impl_original);
}

/*
 * module_function(function, call, expected) -> bool: whether function, Module._call_impl, is gone through so often when
 * call() runs; then it is used from now on. module_function(None, None, 0): it is not.
 */
PyObject *
msp_probe_module_function(PyObject *self, PyObject *all)
{
    PyObject *function, *call, *done;
    long expected;

    (void)self;
    if (!PyArg_ParseTuple(all, "OOl", &function, &call, &expected))
        return NULL;
    msp_probe_modules_stop();
    Py_CLEAR(call_impl);
    if (!PyFunction_Check(function))
        Py_RETURN_FALSE;
    Py_INCREF(function);
    call_impl = (PyFunctionObject *)function;
    trials = 0;
    trying = true;
    msp_probe_modules_start();
    done = PyObject_CallNoArgs(call);
    msp_probe_modules_stop();
    trying = false;
    if (done == NULL)
        return NULL;
    Py_DECREF(done);
    if (trials == expected)
        Py_RETURN_TRUE;
    Py_CLEAR(call_impl);
    Py_RETURN_FALSE;
}

/* ---- calls that Python's hooks see ------------------------------------------------------------------------------- */

typedef struct call_object {
    PyObject_HEAD module_call call;
    PyObject *module, *args, *kwargs; /* references */
} call_object;

static void
call_object_dealloc(PyObject *self)
{
    Py_XDECREF(((call_object *)self)->module);
    Py_XDECREF(((call_object *)self)->args);
    Py_XDECREF(((call_object *)self)->kwargs);
    msp_call_let_go(&((call_object *)self)->call.call);
    PyObject_Free(self);
}

static PyTypeObject call_object_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.ModuleCall",
    .tp_basicsize = sizeof(call_object),
    .tp_dealloc = call_object_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* module_begin(module, args, kwargs) -> a call for module_end(); None: nothing is recorded now */
PyObject *
msp_probe_module_begin(PyObject *self, PyObject *all)
{
    PyObject *module, *args, *kwargs;
    probe_module *of;
    call_object *c;
    bool compiled;

    (void)self;
    if (!PyArg_ParseTuple(all, "OOO", &module, &args, &kwargs) || PyType_Ready(&call_object_type) != 0)
        return NULL;
    of = msp_probe.on ? find_called(module, &compiled) : NULL;
    if (of == NULL)
        Py_RETURN_NONE;
    c = PyObject_New(call_object, &call_object_type);
    if (c == NULL)
        return NULL;
    Py_INCREF(module);
    Py_INCREF(args);
    Py_INCREF(kwargs);
    c->module = module;
    c->args = args;
    c->kwargs = kwargs;
    begin_module(&c->call, of, module, args, kwargs);
    return (PyObject *)c;
}

/* module_end(call, output, raised) */
PyObject *
msp_probe_module_end(PyObject *self, PyObject *all)
{
    PyObject *call, *output;
    int raised;

    (void)self;
    if (!PyArg_ParseTuple(all, "O!Op", &call_object_type, &call, &output, &raised))
        return NULL;
    if (end_module(&((call_object *)call)->call, raised ? NULL : output, true))
        return NULL;
    Py_RETURN_NONE;
}
