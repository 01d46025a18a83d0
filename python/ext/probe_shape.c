/*
 * probe_shape.c - whether the modules and parameters of a model are those of the last time.
 *
 * Everything that makes a tree what it is, is noted in the order of a walk: addresses, types, the names of children and
 * parameters, what needs gradients. To walk through a model's dicts costs a microsecond for three modules, and start()
 * does it for every step. Where the interpreter keeps versions of dicts (PEP 509, proven at start()) the dicts of each
 * module are only asked whether they have changed: parents come first, and an unchanged dict holds what it held, so
 * that no address is followed that may be another object's.
 */
#include "probe.h"
#include "probe_map.h"
#include <string.h>

static PyObject *str_requires_grad, *str_compiled, *str_parameters, *str_modules;

int
msp_probe_tree_setup(void)
{
    str_requires_grad = PyUnicode_InternFromString("requires_grad");
    str_compiled = PyUnicode_InternFromString("_compiled_call_impl");
    str_parameters = PyUnicode_InternFromString("_parameters");
    str_modules = PyUnicode_InternFromString("_modules");
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *
msp_probe_attributes(PyObject *module)
{
    PyObject *own = PyObject_GenericGetDict(module, NULL);

    if (own == NULL)
        PyErr_Clear();
    return own;
}

PyObject *
msp_probe_attribute(PyObject *module, PyObject *own, PyObject *name)
{
    PyObject *value = own == NULL ? NULL : PyDict_GetItemWithError(own, name);

    Py_XINCREF(value);
    if (value == NULL) {
        PyErr_Clear();
        value = PyObject_GetAttr(module, name);
        if (value == NULL)
            PyErr_Clear();
    }
    return value;
}

/* ---- a walk ------------------------------------------------------------------------------------------------------ */

/* A module that was met, and the versions that its dicts had. */
typedef struct met_module {
    PyObject *module;
    PyTypeObject *type;
    PyObject *parameters, *children; /* its dicts */
    uint64_t own, of_parameters, of_children;
    size_t end; /* of its parameters among those of all */
    bool compiled;
} met_module;

typedef struct met_parameter {
    PyObject *parameter;
    const void *handle; /* what stands at it */
    bool needs;         /* a gradient */
} met_parameter;

typedef struct shape {
    uintptr_t *items;
    size_t n, cap;
    held alive;
    address_map seen; /* modules that were met */
    met_module *modules;
    met_parameter *parameters;
    size_t nmodules, nparameters, modules_cap, parameters_cap;
    bool failed;
    bool versioned; /* the dicts tell by their versions whether all that is the same */
} shape;

static shape last;  /* the tree, without anything held */
static shape spare; /* memory of the last comparison, for the next one */

static void
note(shape *s, uintptr_t v)
{
    if (s->n == s->cap) {
        size_t cap = s->cap == 0 ? 1024 : s->cap * 2;
        uintptr_t *items = PyMem_Realloc(s->items, cap * sizeof(*items));

        if (items == NULL) {
            s->failed = true;
            return;
        }
        s->items = items;
        s->cap = cap;
    }
    s->items[s->n++] = v;
}

static bool
needs_gradient(PyObject *p)
{
    PyObject *needs;

    if (msp_node_usable() && msp_probe_is_plain_tensor(p))
        return msp_node_requires_grad(msp_probe_tensor_handle(p));
    needs = PyObject_GetAttr(p, str_requires_grad);
    Py_XDECREF(needs);
    return needs == Py_True;
}

/* Room for one more of size bytes; NULL: there is none, and the walk goes on without. */
static void *
one_more(void **items, size_t *n, size_t *cap, size_t size)
{
    void *more;

    if (*n == *cap) {
        more = PyMem_Realloc(*items, (*cap == 0 ? 256 : *cap * 2) * size);
        if (more == NULL)
            return NULL;
        *items = more;
        *cap = *cap == 0 ? 256 : *cap * 2;
    }
    return (char *)*items + (*n)++ * size;
}

static void
meet_parameter(shape *s, PyObject *p, bool needs)
{
    met_parameter *met = one_more((void **)&s->parameters, &s->nparameters, &s->parameters_cap, sizeof(*met));

    if (met != NULL && msp_probe_tensor_is_fast() && msp_probe_is_plain_tensor(p))
        *met = (met_parameter){p, *(void **)msp_probe_tensor_handle(p), needs};
    else
        s->versioned = false;
}

/* Whether torch.compile has the module. An instance that it was not asked to compile has the class's None, which an
 * older torch does not have: what a look at the type cannot tell is asked for. */
static bool
is_compiled(PyObject *module, PyObject *own)
{
    PyObject *value = own == NULL ? NULL : PyDict_GetItemWithError(own, str_compiled);
    bool yes;

    if (value == NULL && _PyType_Lookup(Py_TYPE(module), str_compiled) == Py_None)
        return false;
    value = msp_probe_attribute(module, own, str_compiled);
    yes = value != NULL && value != Py_None;
    Py_XDECREF(value);
    return yes;
}

static void
meet_module(shape *s, PyObject *module, PyObject *own, PyObject *parameters, PyObject *children)
{
    met_module *met = one_more((void **)&s->modules, &s->nmodules, &s->modules_cap, sizeof(*met));
    const uint64_t version = msp_probe_dict_version(own);

    if (met != NULL && version != 0 && parameters != NULL && children != NULL &&
        PyDict_GetItemWithError(own, str_parameters) == parameters &&
        PyDict_GetItemWithError(own, str_modules) == children)
        *met = (met_module){module,
                            Py_TYPE(module),
                            parameters,
                            children,
                            version,
                            msp_probe_dict_version(parameters),
                            msp_probe_dict_version(children),
                            s->nparameters,
                            is_compiled(module, own)};
    else
        s->versioned = false;
}

static void
note_parameters(shape *s, PyObject *parameters)
{
    PyObject *key, *p;
    Py_ssize_t pos = 0;

    while (PyDict_Next(parameters, &pos, &key, &p)) {
        bool needs;

        if (p == Py_None)
            continue;
        needs = needs_gradient(p);
        meet_parameter(s, p, needs);
        note(s, (uintptr_t)p | needs);
        if (msp_probe_tensor_is_fast())
            note(s, (uintptr_t) * (void **)msp_probe_tensor_handle(p));
        note(s, (uintptr_t)PyObject_Hash(key));
        s->failed |= !hold(&s->alive, p);
    }
}

static void
note_module(shape *s, PyObject *module, int depth)
{
    PyObject *own, *parameters, *children, *key, *child;
    Py_ssize_t pos = 0;

    note(s, (uintptr_t)module);
    if (s->failed || module == Py_None || map_get(&s->seen, module) != NULL || depth > 200)
        return;
    s->failed |= !map_put(&s->seen, module, module) || !hold(&s->alive, module);
    own = msp_probe_attributes(module);
    parameters = msp_probe_attribute(module, own, str_parameters);
    children = msp_probe_attribute(module, own, str_modules);
    note(s, (uintptr_t)Py_TYPE(module) | is_compiled(module, own));
    if (parameters != NULL && PyDict_Check(parameters))
        note_parameters(s, parameters);
    meet_module(s, module, own, parameters, children);
    while (children != NULL && PyDict_Check(children) && PyDict_Next(children, &pos, &key, &child)) {
        note(s, (uintptr_t)PyObject_Hash(key));
        note_module(s, child, depth + 1);
    }
    note(s, 0);
    Py_XDECREF(own);
    Py_XDECREF(parameters);
    Py_XDECREF(children);
    s->failed |= PyErr_Occurred() != NULL;
    PyErr_Clear();
}

/* ---- the same, by versions --------------------------------------------------------------------------------------- */

/* The module has other attributes than before; are those that matter the same? */
static bool
has_same_dicts(met_module *met, PyObject *own)
{
    if (PyDict_GetItemWithError(own, str_parameters) != met->parameters ||
        PyDict_GetItemWithError(own, str_modules) != met->children || is_compiled(met->module, own) != met->compiled) {
        PyErr_Clear();
        return false;
    }
    met->own = msp_probe_dict_version(own);
    return true;
}

static bool
is_same_module(met_module *met)
{
    PyObject *own = msp_probe_attributes(met->module);
    bool same = own != NULL && Py_TYPE(met->module) == met->type &&
                (msp_probe_dict_version(own) == met->own || has_same_dicts(met, own)) &&
                msp_probe_dict_version(met->parameters) == met->of_parameters &&
                msp_probe_dict_version(met->children) == met->of_children;

    Py_XDECREF(own);
    return same;
}

static bool
is_same_parameter(const met_parameter *met)
{
    return *(void **)msp_probe_tensor_handle(met->parameter) == met->handle &&
           msp_probe_is_plain_tensor(met->parameter) && needs_gradient(met->parameter) == met->needs;
}

/* Hold everything in alive while it is looked at; false: something is different, or cannot be told. */
static bool
is_same_by_versions(PyObject *models, long how, held *alive)
{
    size_t at = 0;

    if (!last.versioned || last.n < 2 || PyList_GET_SIZE(models) != 1 || last.items[0] != (uintptr_t)how ||
        last.items[1] != (uintptr_t)PyList_GET_ITEM(models, 0))
        return false;
    for (size_t i = 0; i < last.nmodules; i++) {
        if (!hold(alive, last.modules[i].module) || !is_same_module(&last.modules[i]))
            return false;
        for (; at < last.modules[i].end; at++)
            if (!hold(alive, last.parameters[at].parameter) || !is_same_parameter(&last.parameters[at]))
                return false;
    }
    return true;
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

static void
free_shape(shape *s)
{
    PyMem_Free(s->items);
    PyMem_Free(s->modules);
    PyMem_Free(s->parameters);
    map_release(&s->seen);
}

static bool
is_same_by_walk(PyObject *models, long how, held *alive)
{
    shape s = spare;
    bool same;

    spare = (shape){0}; /* a module's own Python code may let another thread in */
    s.alive = *alive;
    s.versioned = msp_probe_has_versions();
    note(&s, (uintptr_t)how);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(models); i++)
        note_module(&s, PyList_GET_ITEM(models, i), 0);
    same = !s.failed && s.n == last.n && memcmp(s.items, last.items, s.n * sizeof(*s.items)) == 0;
    *alive = s.alive;
    map_clear(&s.seen);
    free_shape(&spare); /* another thread's */
    spare = last;       /* its memory */
    spare.n = spare.nmodules = spare.nparameters = 0;
    spare.seen = s.seen;
    last = s;
    last.alive = (held){0};
    last.seen = (address_map){0};
    if (s.failed)
        last.n = 0;
    return same;
}

bool
msp_probe_shape_is_same(PyObject *models, long how, struct held *alive)
{
    held before = {0};
    bool same;

    if (alive->n > 0) {
        before = *alive;
        *alive = (held){0};
    }
    same = is_same_by_versions(models, how, alive);
    if (!same) {
        let_go(alive);
        same = is_same_by_walk(models, how, alive);
    }
    let_go(&before);
    PyMem_Free(before.items);
    return same;
}

void
msp_probe_shape_forget(void)
{
    last.n = 0;
}
