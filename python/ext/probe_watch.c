/*
 * probe_watch.c - the gradients of parameters: one record per module, which is written when all have come.
 *
 * A backward pass brings them one by one (probe_parameter.c), in an order of its own. What has come waits in the
 * record; at the end of the step those that never came stand in it as null. Tied weights are parameters of several
 * modules, and where gradients accumulate a module has several records in a step.
 */
#include "probe_tree.h"
#include <string.h>

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static void
watched_dealloc(PyObject *self)
{
    watched *w = (watched *)self;

    for (int i = 0; i < w->n; i++)
        PyMem_Free(w->targets[i].own);
    PyMem_Free(w->targets);
    Py_XDECREF(w->hooks);
    PyObject_Free(self);
}

static PyTypeObject watched_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.Watched",
    .tp_basicsize = sizeof(watched),
    .tp_dealloc = watched_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

watched *
msp_watch_new(PyObject *parameter)
{
    watched *w = PyType_Ready(&watched_type) == 0 ? PyObject_New(watched, &watched_type) : NULL;

    if (w == NULL)
        return NULL;
    w->targets = NULL;
    w->n = 0;
    w->hooks = NULL;
    w->parameter = parameter;
    w->handle = NULL;
    w->generation = -1;
    return w;
}

bool
msp_watch_add(watched *w, module_name *n, const char *own)
{
    target *more = PyMem_Realloc(w->targets, (size_t)(w->n + 1) * sizeof(*more));
    char *copy = PyMem_Malloc(strlen(own) + 1);

    if (more != NULL)
        w->targets = more;
    if (more == NULL || copy == NULL) {
        PyMem_Free(copy);
        return false;
    }
    strcpy(copy, own);
    w->targets[w->n++] = (target){n, copy};
    n->expected++;
    return true;
}

void
msp_watch_unhook(watched *w)
{
    for (Py_ssize_t i = 1; w->hooks != NULL && i < PyList_GET_SIZE(w->hooks); i += 2)
        msp_probe_unhook(PyList_GET_ITEM(w->hooks, i));
    Py_CLEAR(w->hooks);
}

/* ---- a module's record ------------------------------------------------------------------------------------------- */

/* "Module.a.Linear.parameters_grad"; where gradients accumulate, the later ones of a step are numbered from 1. */
static size_t
record_name(char *out, size_t size, const module_name *n, bool numbered)
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
msp_watch_write(module_name *n)
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
has_part(const module_name *n, const char *own)
{
    for (int i = 0; i < n->nparts; i++)
        if (strcmp(n->parts[i], own) == 0)
            return true;
    return false;
}

/* Add a gradient to the record, which is begun when it is the first. False without memory. */
static bool
add_part(module_name *n, const char *own, const msp_record *tokens)
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
read_gradient(module_name *n, const char *own, const probe_lent *gradient)
{
    msp_record *tokens = msp_probe_record_get();
    probe_path path = {.files = true};
    uint64_t since;

    if (tokens == NULL)
        return NULL;
    path.len = record_name(path.text, PROBE_NAME_SIZE, n, true);
    msp_probe_path_push(&path, own, strlen(own));
    since = msp_probe_watch_overflow();
    msp_probe_lent(tokens, gradient, &path);
    if (msp_probe_saw_overflow(since)) {
        n->overflowed = true;
        if (gradient->object != NULL)
            msp_probe_save_elements(gradient->object, &path);
    }
    return tokens;
}

static bool
is_selected(const module_name *n)
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
take_gradient(const target *t, const probe_lent *gradient)
{
    module_name *n = t->module;
    msp_record *tokens;
    bool added;

    if (!is_selected(n))
        return false;
    if (has_part(n, t->own) && msp_watch_write(n))
        return true;
    if (gradient->tokens != NULL) {
        const msp_record known = {(unsigned char *)(uintptr_t)gradient->tokens, gradient->len, gradient->len, false};

        return add_part(n, t->own, &known) && n->nparts >= n->expected && msp_watch_write(n);
    }
    tokens = read_gradient(n, t->own, gradient);
    added = tokens != NULL && add_part(n, t->own, tokens);
    msp_probe_record_put(tokens);
    return added && n->nparts >= n->expected && msp_watch_write(n);
}

bool
msp_probe_parameter_came(PyObject *w, const probe_lent *gradient)
{
    const watched *of = (const watched *)w;
    bool stop = false;

    for (int i = 0; msp_probe_is_lent(gradient) && i < of->n && !stop; i++)
        stop = take_gradient(&of->targets[i], gradient);
    if (!stop && PyErr_Occurred())
        msp_probe_swallow("reading a parameter's gradient", of->n > 0 ? of->targets[0].module->shown.text : "");
    return stop;
}

void
msp_watch_add_missing(const watched *w, const msp_record *null)
{
    for (int i = 0; i < w->n; i++) {
        module_name *n = w->targets[i].module;

        if (msp_watch_lacks(n) && (n->nparts > 0 || is_selected(n)) && !has_part(n, w->targets[i].own))
            add_part(n, w->targets[i].own, null);
    }
}

/* ---- the gradient that counts ------------------------------------------------------------------------------------ */

/* The type of which has_no_attribute() has found that it does not know the name, and where its objects have the pointer
 * to their dict. */
static struct {
    PyTypeObject *type;
    unsigned version;
    ptrdiff_t dict;
} asked;

static bool
is_asked(PyTypeObject *type)
{
    return type == asked.type && type->tp_version_tag == asked.version &&
           PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG);
}

/* NULL without memory. */
static PyObject *
main_grad_name(void)
{
    static PyObject *name;

    if (name == NULL)
        name = PyUnicode_InternFromString("main_grad");
    if (name == NULL)
        PyErr_Clear();
    return name;
}

/* Whether nobody has set an attribute on the parameter, and its type has none of this name nor finds them in a way of
 * its own; the type is asked once for each of its versions. */
static bool
has_no_attribute(PyObject *parameter, PyObject *name)
{
    PyTypeObject *type = Py_TYPE(parameter);
    PyObject **own = _PyObject_GetDictPtr(parameter);

    if (own == NULL || *own != NULL)
        return false;
    if (is_asked(type))
        return true;
    if (type->tp_getattro != PyObject_GenericGetAttr || _PyType_Lookup(type, name) != NULL)
        return false;
    asked.type = type;
    asked.version = type->tp_version_tag;
    asked.dict = (char *)own - (char *)parameter;
    return true;
}

bool
msp_probe_parameter_is_plain(PyObject *parameter)
{
    PyObject *name = main_grad_name();

    if (is_asked(Py_TYPE(parameter)))
        return *(PyObject **)((char *)parameter + asked.dict) == NULL;
    return name == NULL || has_no_attribute(parameter, name);
}

/* Megatron keeps the gradient that counts beside torch's own: a new reference, or NULL. */
static PyObject *
main_grad_of(PyObject *parameter)
{
    PyObject *name = main_grad_name(), *own = NULL;

    if (name == NULL || msp_probe_parameter_is_plain(parameter))
        return NULL;
#if PY_VERSION_HEX >= 0x030d0000
    PyObject_GetOptionalAttr(parameter, name, &own);
#else
    _PyObject_LookupAttr(parameter, name, &own);
#endif
    if (own == NULL && PyErr_Occurred())
        PyErr_Clear();
    if (own == Py_None)
        Py_CLEAR(own);
    return own;
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
    any = hooks != NULL && PyDict_Check(hooks) && PyDict_Size(hooks) > 0;
    Py_XDECREF(hooks);
    PyErr_Clear();
    return any;
}

bool
msp_probe_parameter_done(PyObject *w, PyObject *parameter, const probe_lent *arrived)
{
    probe_lent gradient = {.object = main_grad_of(parameter)};
    bool stop;

    if (gradient.object == NULL && arrived != NULL && !is_changed_inside(parameter)) {
        gradient = *arrived; /* what this pass has brought, not what it has added up to */
        Py_XINCREF(gradient.object);
    } else if (gradient.object == NULL) {
        gradient.object = PyObject_GetAttrString(parameter, "grad");
    }
    if (gradient.object == Py_None)
        Py_CLEAR(gradient.object);
    stop = msp_probe_parameter_came(w, &gradient);
    Py_XDECREF(gradient.object);
    return stop;
}
