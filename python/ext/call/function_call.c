/*
 * function_call.c - calls of functions (levels L1 and mix): what they are, and what they show.
 */
#include "call/machine.h"
#include "legacy/legacy.h"
#include "model/model.h"
#include <stddef.h>
#include <string.h>

#define KEY(r, literal) msp_record_key((r), (literal), sizeof(literal) - 1)

/* ---- what the call is -------------------------------------------------------------------------------------------- */

/*
 * A tensor that stands for one while a graph is made: torch.compile and export run functions on them, which are no
 * calls of the program.
 */
static bool
is_fake(PyObject *v)
{
    const char *name;

    if (msp_probe_is_plain_tensor(v) || !msp_probe_is_tensor(v))
        return false;
    name = strrchr(Py_TYPE(v)->tp_name, '.');
    name = name == NULL ? Py_TYPE(v)->tp_name : name + 1;
    return strcmp(name, "FakeTensor") == 0 || strcmp(name, "FunctionalTensor") == 0;
}

static bool
is_or_holds_fake(PyObject *v)
{
    return is_fake(v) || (PyList_CheckExact(v) && PyList_GET_SIZE(v) > 0 && is_fake(PyList_GET_ITEM(v, 0)));
}

bool
msp_probe_any_fake(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *key, *value;
    Py_ssize_t pos = 0;

    if (self != NULL && is_fake(self))
        return true;
    for (Py_ssize_t i = 0; args != NULL && i < PyTuple_GET_SIZE(args); i++)
        if (is_or_holds_fake(PyTuple_GET_ITEM(args, i)))
            return true;
    while (kwargs != NULL && PyDict_Next(kwargs, &pos, &key, &value))
        if (is_or_holds_fake(value))
            return true;
    return false;
}

/* An object that torch exports under several names goes by the one through which the caller reached it. */
probe_name *
msp_probe_name_of(probe_api *api)
{
    PyObject *said;
    long route;

    if (!(api->flags & PROBE_BY_CALLER) || msp_probe.caller == NULL)
        return api->name;
    said = msp_probe_ask_again(msp_probe.caller, api->target, NULL);
    route = said == NULL ? PROBE_FIRST_NAME : PyLong_AsLong(said);
    Py_XDECREF(said);
    msp_probe_expect(NULL, "asking for a call's name");
    if (route == PROBE_UNLISTED)
        return NULL;
    return route == PROBE_SECOND_NAME && api->other != NULL ? api->other : api->name;
}

static PyObject *
receiver_of(const probe_api *api, PyObject *self)
{
    /* a built-in's self is the module or class that holds it, not an argument */
    return api->kind == PROBE_BUILTIN || api->kind == PROBE_FUNCTION || api->kind == PROBE_CALLABLE ? NULL : self;
}

/* ---- what it shows ----------------------------------------------------------------------------------------------- */

static void
put_args(msp_record *r, PyObject *self, PyObject *args, probe_path *path)
{
    size_t len = path->len;

    if (self != NULL) {
        msp_probe_path_push_index(path, 0);
        msp_probe_value(r, self, path, 0);
        path->len = len;
    }
    if (args != NULL)
        msp_probe_values(r, args, path, self != NULL, 0);
}

static void
put_inputs(const probe_call *c, msp_record *r)
{
    probe_path path;

    msp_call_path(&path, c, "input");
    KEY(r, "input_args");
    msp_record_array(r);
    put_args(r, c->self, c->args, &path);
    msp_record_end(r);
    msp_call_path(&path, c, "kwargs");
    KEY(r, "input_kwargs");
    msp_record_object(r);
    if (c->kwargs != NULL)
        msp_probe_members(r, c->kwargs, &path, 0);
    msp_record_end(r);
}

/* A collective's results are its arguments, as they are after the call. */
static void
put_arguments_as_outputs(const probe_call *c, msp_record *r, probe_path *path)
{
    PyObject *values = c->kwargs == NULL ? NULL : PyDict_Values(c->kwargs);

    put_args(r, c->self, c->args, path);
    if (values != NULL)
        msp_probe_values(r, values, path, c->args == NULL ? 0 : PyTuple_GET_SIZE(c->args), 0);
    Py_XDECREF(values);
    msp_probe_expect(NULL, "reading arguments");
}

/* `t == None` is False to the program although the method says NotImplemented: the interpreter compares identities. */
static bool
is_false_in_the_end(const probe_call *c, PyObject *result)
{
    return result == Py_NotImplemented && strncmp(c->text, "Tensor.__eq__.", strlen("Tensor.__eq__.")) == 0;
}

static void
put_outputs(const probe_call *c, msp_record *r, PyObject *result)
{
    probe_path path;

    if (result == NULL)
        return;
    msp_call_path(&path, c, "output");
    path.no_values = c->api->flags & PROBE_UNINITIALISED ? "uninitialised memory" : NULL;
    if (c->api->flags & PROBE_DISTRIBUTED) {
        KEY(r, "output");
        msp_record_array(r);
        put_arguments_as_outputs(c, r, &path);
        msp_record_end(r);
    } else {
        msp_probe_sequence(r, "output", is_false_in_the_end(c, result) ? Py_False : result, &path);
    }
}

static const call_form function_form = {put_inputs, put_outputs, NULL, false};

enum { MAX_NAME = 200 };

/* False: the call is none of the program's, or not listed under the name by which it is made. */
static bool
identify_call(probe_call *c, probe_api *api, PyObject *self, PyObject *args, PyObject *kwargs)
{
    const int ours = api->trampoline != NULL ? 1 : 0; /* the trampoline's own frame */
    const probe_site site = msp_probe_stack(ours);
    probe_name *name = site.internal ? NULL : msp_probe_name_of(api);
    char base[MAX_NAME + 24];
    size_t n;

    if (name == NULL)
        return false;
    memset(c, 0, offsetof(probe_call, text));
    c->form = &function_form;
    c->api = api;
    c->self = self;
    c->args = args;
    c->kwargs = kwargs;
    c->site = site;
    n = name->len < MAX_NAME ? name->len : MAX_NAME;
    memcpy(base, name->text, n);
    base[n++] = '.';
    n += msp_probe_digits(base + n, (uint64_t)name->count++);
    msp_call_name(c, base, n, -1);
    return true;
}

/* ---- overflow ---------------------------------------------------------------------------------------------------- */

bool
msp_probe_overflow(const char *name, uint32_t stack)
{
    PyObject *done, *text = msp_probe_stack_by_id(stack);

    if (msp_probe.on_overflow == NULL)
        return false;
    done = PyObject_CallFunction(msp_probe.on_overflow, "sO", name, text == NULL ? Py_None : text);
    Py_XDECREF(done);
    return done == NULL;
}

bool
msp_probe_device_overflowed(void)
{
    PyObject *flag = msp_probe.overflow_flag == NULL ? NULL : PyObject_CallNoArgs(msp_probe.overflow_flag);
    bool yes = flag == Py_True;

    Py_XDECREF(flag);
    msp_probe_expect(NULL, "asking the device for overflows");
    return yes;
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static PyObject *
call_wait(probe_api *api, PyObject *self, PyObject *args, PyObject *kwargs)
{
    probe_outcome o = msp_probe_set_aside(msp_probe_invoke(api, self, args, kwargs));

    return msp_probe_give_back(&o, args != NULL && PyTuple_GET_SIZE(args) > 0 &&
                                       msp_call_waited_for(PyTuple_GET_ITEM(args, 0)));
}

/* What torch's coalescing manager makes of the collectives inside it is known where it ends. */
static PyObject *
call_manager(probe_api *api, PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *manager = msp_probe_invoke(api, self, args, kwargs), *call, *watched;

    if (manager == NULL || msp_probe.watch == NULL || !msp_probe_wants())
        return manager;
    call = Py_BuildValue("(OO)", args, kwargs == NULL ? Py_None : kwargs);
    watched = call == NULL ? NULL : msp_probe_ask_again(msp_probe.watch, manager, call);
    Py_XDECREF(call);
    if (watched == NULL) {
        msp_probe_swallow("watching a context manager", api->name->text);
        return manager;
    }
    Py_DECREF(manager);
    return watched;
}

static PyObject *
with_receiver(PyObject *self, PyObject *args)
{
    Py_ssize_t n = args == NULL ? 0 : PyTuple_GET_SIZE(args), shift = self != NULL;
    PyObject *all = PyTuple_New(n + shift);

    if (all != NULL && self != NULL) {
        Py_INCREF(self);
        PyTuple_SET_ITEM(all, 0, self);
    }
    for (Py_ssize_t i = 0; all != NULL && i < n; i++) {
        Py_INCREF(PyTuple_GET_ITEM(args, i));
        PyTuple_SET_ITEM(all, i + shift, PyTuple_GET_ITEM(args, i));
    }
    return all;
}

PyObject *
msp_probe_call_by_python(probe_api *api, PyObject *who, PyObject *args, PyObject *kwargs)
{
    PyObject *all = with_receiver(who, args), *named = kwargs == NULL ? PyDict_New() : kwargs, *result;

    Py_XINCREF(kwargs);
    result = all == NULL || named == NULL
                 ? NULL
                 : PyObject_CallFunctionObjArgs(msp_probe.on_kernel, api->target, all, named, NULL);
    Py_XDECREF(all);
    Py_XDECREF(named);
    return result;
}

/* Level L2: Python makes the chosen call, with what it does around it; all others run as they are. */
static PyObject *
call_kernel(probe_api *api, PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *result;
    probe_name *name;
    probe_quiet q;

    if (!msp_probe_wants())
        return msp_probe_invoke(api, self, args, kwargs);
    msp_probe_enter(&q);
    msp_probe_resume(&q);
    name = msp_probe_name_of(api);
    if (name != api->name || name->count++ != msp_probe.rules.kernel || msp_probe.on_kernel == NULL)
        result = msp_probe_invoke(api, self, args, kwargs);
    else
        result = msp_probe_call_by_python(api, receiver_of(api, self), args, kwargs);
    msp_probe_leave(&q);
    return result;
}

/* A trampoline is a frame more between the function and its caller. */
static PyObject *
call_apart(probe_api *api, PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *all = NULL, *up, *result;

    if (!(api->flags & PROBE_FRAMES) || api->trampoline == NULL || PyTuple_GET_SIZE(args) > 2)
        return msp_compiled_apart(api, self, args, kwargs);
    all = kwargs == NULL ? PyDict_New() : PyDict_Copy(kwargs);
    up = all == NULL ? NULL : PyDict_GetItemString(all, "_frames_up");
    up = all == NULL ? NULL : PyLong_FromLong((up == NULL ? 0 : PyLong_AsLong(up)) + 1);
    if (up == NULL || PyErr_Occurred() || PyDict_SetItemString(all, "_frames_up", up) != 0)
        result = NULL;
    else
        result = msp_compiled_apart(api, self, args, all);
    Py_XDECREF(up);
    Py_XDECREF(all);
    return result;
}

PyObject *
msp_probe_call(probe_api *api, PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *who = receiver_of(api, self), *result;
    probe_call c;
    probe_outcome o;
    probe_quiet q;

    if (api->flags & PROBE_APART)
        return call_apart(api, self, args, kwargs);
    if (api->flags & PROBE_WAIT)
        return call_wait(api, self, args, kwargs);
    if (api->flags & PROBE_PUTS_OFF)
        return call_manager(api, self, args, kwargs);
    if (api->flags & PROBE_KERNEL)
        return call_kernel(api, self, args, kwargs);
    if (api->flags & PROBE_TRIAL)
        api->trials++;
    else if (msp_probe_wants() && !msp_probe_any_fake(who, args, kwargs)) {
        if (msp_probe_is_legacy())
            return msp_probe_legacy_call(api, self, who, args, kwargs);
        msp_probe_enter(&q);
        if (identify_call(&c, api, who, args, kwargs))
            goto recorded;
        msp_probe_leave(&q);
    }
    return msp_probe_invoke(api, self, args, kwargs);
recorded:
    if (msp_probe.before != NULL) {
        result =
            msp_probe_call_around(api, self, who, args, kwargs, msp_probe_selects(c.text, c.len) ? c.text : NULL, &q);
        msp_probe_leave(&q);
        return result;
    }
    msp_call_begin(&c);
    msp_probe_resume(&q);
    o = msp_probe_set_aside(msp_probe_invoke(api, self, args, kwargs));
    msp_probe_pause(&q);
    result = msp_probe_give_back(&o, msp_call_end(&c, o.result));
    msp_probe_leave(&q);
    return result;
}
