/*
 * parameter.c - the gradients of parameters: one record per module, which is written when all have come.
 *
 * A backward pass brings them one by one (grad/accumulate.c), in an order of its own. What has come waits in the
 * record; at the end of the step those that never came stand in it as null. Tied weights are parameters of several
 * modules, and where gradients accumulate a module has several records in a step.
 */
#include "model/model.h"
#include <string.h>

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static void
watched_dealloc(PyObject *self)
{
    watched_parameter *w = (watched_parameter *)self;

    for (int i = 0; i < w->n; i++)
        PyMem_Free(w->uses[i].own);
    PyMem_Free(w->uses);
    Py_XDECREF(w->hooks);
    PyObject_Free(self);
}

static PyTypeObject watched_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.Watched",
    .tp_basicsize = sizeof(watched_parameter),
    .tp_dealloc = watched_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

watched_parameter *
msp_watch_new(PyObject *parameter)
{
    watched_parameter *w = PyType_Ready(&watched_type) == 0 ? PyObject_New(watched_parameter, &watched_type) : NULL;

    if (w == NULL)
        return NULL;
    w->uses = NULL;
    w->n = 0;
    w->hooks = NULL;
    w->parameter = parameter;
    return w;
}

bool
msp_watch_add(watched_parameter *w, named_module *n, const char *own)
{
    parameter_use *more = PyMem_Realloc(w->uses, (size_t)(w->n + 1) * sizeof(*more));
    char *copy = PyMem_Malloc(strlen(own) + 1);

    if (more != NULL)
        w->uses = more;
    if (more == NULL || copy == NULL) {
        PyMem_Free(copy);
        return false;
    }
    strcpy(copy, own);
    w->uses[w->n++] = (parameter_use){n, copy};
    n->expected++;
    return true;
}

void
msp_watch_unhook(watched_parameter *w)
{
    for (Py_ssize_t i = 1; w->hooks != NULL && i < PyList_GET_SIZE(w->hooks); i += 2)
        msp_probe_unhook(PyList_GET_ITEM(w->hooks, i));
    Py_CLEAR(w->hooks);
}

/* ---- a module's record ------------------------------------------------------------------------------------------- */

/* "Module.a.Linear.parameters_grad"; where gradients accumulate, the later ones of a step are numbered from 1. */
static size_t
record_name(char *out, size_t size, const named_module *n, bool numbered)
{
    static const char section[] = ".parameters_grad";
    size_t len = n->shown.len < size - 64 ? n->shown.len : size - 64;

    memcpy(out, n->shown.text, len);
    memcpy(out + len, section, sizeof(section));
    len += sizeof(section) - 1;
    if (numbered && n->written > 0) {
        out[len++] = '.';
        len += msp_probe_digits(out + len, (uint64_t)n->written);
        out[len] = '\0';
    }
    return len;
}

bool
msp_watch_write(named_module *n)
{
    const bool overflowed = n->overflowed;
    char name[PROBE_NAME_SIZE];

    if (n->nparts == 0)
        return false;
    if (overflowed)
        record_name(name, sizeof(name), n, true);
    if (msp_probe.has_unit && (overflowed || !msp_probe.rules.overflow)) {
        msp_record_end(n->record);
        msp_probe_commit_value(n->record);
        n->written++;
    }
    msp_probe_record_put(n->record);
    n->record = NULL;
    n->nparts = 0;
    n->overflowed = false;
    return overflowed && msp_probe_overflow(name, 0);
}

static bool
has_part(const named_module *n, const char *own)
{
    for (int i = 0; i < n->nparts; i++)
        if (strcmp(n->parts[i], own) == 0)
            return true;
    return false;
}

/* Add a gradient to the record, which is begun when it is the first. False without memory. */
static bool
add_part(named_module *n, const char *own, const msp_record *tokens)
{
    char name[PROBE_NAME_SIZE];

    if (n->nparts == n->parts_cap) {
        int cap = n->parts_cap == 0 ? 4 : n->parts_cap * 2;
        const char **parts = PyMem_Realloc(n->parts, (size_t)cap * sizeof(*parts));

        if (parts == NULL)
            return false;
        n->parts = parts;
        n->parts_cap = cap;
    }
    if (n->nparts == 0) {
        n->record = msp_probe_record_get();
        if (n->record == NULL)
            return false;
        msp_record_begin(n->record, msp_probe.unit, name, record_name(name, sizeof(name), n, true));
        msp_record_object(n->record);
    }
    n->parts[n->nparts++] = own;
    msp_record_key(n->record, own, strlen(own));
    msp_record_array(n->record);
    msp_record_append(n->record, tokens);
    msp_record_end(n->record);
    return true;
}

/* Its tokens, or NULL. They are no part of the record yet: to read a large tensor lets other threads run. */
static msp_record *
read_gradient(named_module *n, const char *own, PyObject *gradient)
{
    msp_record *tokens = msp_probe_record_get();
    probe_path path = {.files = true};
    uint64_t since;

    if (tokens == NULL)
        return NULL;
    path.len = record_name(path.text, PROBE_NAME_SIZE, n, true);
    msp_probe_path_push(&path, own, strlen(own));
    since = msp_probe_watch_overflow();
    msp_probe_value(tokens, gradient, &path, 0);
    if (msp_probe_saw_overflow(since)) {
        n->overflowed = true;
        msp_probe_save_elements(gradient, &path);
    }
    return tokens;
}

static bool
is_selected(const named_module *n)
{
    char name[PROBE_NAME_SIZE];

    if (n->shown.chosen == msp_probe.generation + 1)
        return true;
    if (msp_probe.rules.list == NULL)
        return msp_probe_in_scope();
    return msp_probe_selects(name, record_name(name, sizeof(name), n, false));
}

/* For one module. Returns true when the program is to be stopped, with an exception set. */
static bool
take_gradient(const parameter_use *u, PyObject *gradient)
{
    named_module *n = u->module;
    msp_record *tokens;
    bool added;

    if (!is_selected(n))
        return false;
    if (has_part(n, u->own) && msp_watch_write(n))
        return true;
    tokens = read_gradient(n, u->own, gradient);
    added = tokens != NULL && add_part(n, u->own, tokens);
    msp_probe_record_put(tokens);
    return added && n->nparts >= n->expected && msp_watch_write(n);
}

/* Returns true when the program is to be stopped, with an exception set. */
static bool
parameter_came(const watched_parameter *of, PyObject *gradient)
{
    bool stop = false;

    for (int i = 0; i < of->n && !stop; i++)
        stop = take_gradient(&of->uses[i], gradient);
    if (!stop && PyErr_Occurred())
        msp_probe_swallow("reading a parameter's gradient", of->n > 0 ? of->uses[0].module->shown.text : "");
    return stop;
}

void
msp_watch_add_missing(const watched_parameter *w, const msp_record *null)
{
    for (int i = 0; i < w->n; i++) {
        named_module *n = w->uses[i].module;

        if (msp_watch_lacks(n) && (n->nparts > 0 || is_selected(n)) && !has_part(n, w->uses[i].own))
            add_part(n, w->uses[i].own, null);
    }
}

/* ---- the gradient that counts ------------------------------------------------------------------------------------ */

/* Megatron keeps the gradient that counts beside torch's own: a new reference, or NULL. */
static PyObject *
main_grad_of(PyObject *parameter)
{
    PyObject *name = PyUnicode_InternFromString("main_grad"), *own = NULL;

    if (name != NULL)
#if PY_VERSION_HEX >= 0x030d0000
        PyObject_GetOptionalAttr(parameter, name, &own);
#else
        _PyObject_LookupAttr(parameter, name, &own);
#endif
    Py_XDECREF(name);
    if (own == Py_None)
        Py_CLEAR(own);
    msp_probe_expect(PyExc_Exception, "reading main_grad"); /* a property may raise anything */
    return own;
}

bool
msp_probe_has_main_grad(PyObject *parameter)
{
    PyObject *own = main_grad_of(parameter);

    Py_XDECREF(own);
    return own != NULL;
}

/* A torch without numbers of backward passes, 1.13, runs the program's hooks on a parameter inside its node: what
 * arrived there is from before them. */
static bool
is_changed_inside(PyObject *parameter)
{
    PyObject *hooks;
    bool any;

    if (msp_probe.task_id != NULL)
        return false;
    hooks = PyObject_GetAttrString(parameter, "_backward_hooks");
    if (hooks == NULL)
        msp_probe_swallow("reading a parameter's hooks", "");
    any = hooks != NULL && PyDict_Check(hooks) && PyDict_GET_SIZE(hooks) > 0;
    Py_XDECREF(hooks);
    return any;
}

/* A new reference, or NULL. */
static PyObject *
grad_of(PyObject *parameter)
{
    PyObject *name = PyUnicode_InternFromString("grad");
    PyObject *gradient = name == NULL ? NULL : msp_probe_tensor_attribute(parameter, name);

    Py_XDECREF(name);
    if (gradient == NULL)
        msp_probe_swallow("reading a parameter's gradient", "");
    return gradient;
}

bool
msp_probe_parameter_done(PyObject *w, PyObject *parameter, PyObject *const *arrived)
{
    PyObject *gradient = main_grad_of(parameter);
    bool stop;

    if (gradient == NULL && arrived != NULL && !is_changed_inside(parameter)) {
        gradient = *arrived; /* what this pass has brought, not what it has added up to */
        Py_XINCREF(gradient);
    } else if (gradient == NULL) {
        gradient = grad_of(parameter);
    }
    if (gradient == Py_None)
        Py_CLEAR(gradient);
    stop = gradient != NULL && parameter_came((const watched_parameter *)w, gradient);
    Py_XDECREF(gradient);
    return stop;
}
