/*
 * same_tree.c - whether the modules and parameters of a model are those of the last time.
 *
 * Everything that makes a tree what it is, is noted in the order of a walk: addresses, types, the names of children and
 * parameters, what needs gradients. That is a microsecond for three modules, and start() does it for every step.
 */
#include "model/model.h"
#include "recording/address_map.h"
#include <string.h>

static PyObject *str_compiled, *str_parameters, *str_modules;

int
msp_probe_tree_setup(void)
{
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
        msp_probe_expect(PyExc_AttributeError, "reading a module");
    return own;
}

PyObject *
msp_probe_attribute(PyObject *module, PyObject *own, PyObject *name)
{
    PyObject *value = own == NULL ? NULL : PyDict_GetItemWithError(own, name);

    Py_XINCREF(value);
    if (value == NULL && !PyErr_Occurred())
        value = PyObject_GetAttr(module, name);
    if (value == NULL)
        msp_probe_expect(PyExc_AttributeError, "reading a module");
    return value;
}

/* ---- a walk ------------------------------------------------------------------------------------------------------ */

typedef struct shape {
    uintptr_t *items;
    size_t n, cap;
    held alive;
    address_map seen; /* modules that were met */
    bool failed;
} shape;

static shape last;  /* the tree, without anything held */
static shape spare; /* memory of the last comparison, for the next one */

static void
note_word(shape *s, uintptr_t v)
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
needs_gradient(shape *s, PyObject *p)
{
    bool yes = false;

    if (msp_probe_requires_grad(p, &yes) != 0) {
        msp_probe_expect(PyExc_Exception, "reading requires_grad"); /* of a subclass */
        s->failed = true;
    }
    return yes;
}

/* Whether torch.compile has the module: it sets this on the module itself. */
static bool
is_compiled(PyObject *own)
{
    PyObject *value = own == NULL ? NULL : PyDict_GetItemWithError(own, str_compiled);

    return value != NULL && value != Py_None;
}

static void
note_parameters(shape *s, PyObject *parameters)
{
    PyObject *key, *p;
    Py_ssize_t pos = 0;

    while (PyDict_Next(parameters, &pos, &key, &p)) {
        if (p == Py_None)
            continue;
        s->failed |= !hold(&s->alive, p);
        note_word(s, (uintptr_t)PyObject_Hash(
                         key)); /* first: what is asked next may run Python code, and change the dict */
        note_word(s, (uintptr_t)p | needs_gradient(s, p));
    }
}

static void
note_module(shape *s, PyObject *module, int depth)
{
    PyObject *own, *parameters, *children, *key, *child;
    Py_ssize_t pos = 0;

    note_word(s, (uintptr_t)module);
    if (s->failed || module == Py_None || map_get(&s->seen, module) != NULL || depth > 200)
        return;
    s->failed |= !map_put(&s->seen, module, module) || !hold(&s->alive, module);
    own = msp_probe_attributes(module);
    parameters = msp_probe_attribute(module, own, str_parameters);
    children = msp_probe_attribute(module, own, str_modules);
    note_word(s, (uintptr_t)Py_TYPE(module) | is_compiled(own));
    if (parameters != NULL && PyDict_Check(parameters))
        note_parameters(s, parameters);
    while (children != NULL && PyDict_Check(children) && PyDict_Next(children, &pos, &key, &child)) {
        note_word(s, (uintptr_t)PyObject_Hash(key));
        note_module(s, child, depth + 1);
    }
    note_word(s, 0);
    Py_XDECREF(own);
    Py_XDECREF(parameters);
    Py_XDECREF(children);
    if (PyErr_Occurred()) { /* a key that cannot be hashed */
        msp_probe_swallow("looking at a model", "");
        s->failed = true;
    }
}

static void
free_shape(shape *s)
{
    PyMem_Free(s->items);
    map_release(&s->seen);
}

static bool
is_same(PyObject *models, long how, held *alive)
{
    shape s = spare;
    bool same;

    spare = (shape){0}; /* a module's own Python code may let another thread in */
    s.alive = *alive;
    note_word(&s, (uintptr_t)how);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(models); i++)
        note_module(&s, PyList_GET_ITEM(models, i), 0);
    same = !s.failed && s.n == last.n && memcmp(s.items, last.items, s.n * sizeof(*s.items)) == 0;
    *alive = s.alive;
    map_clear(&s.seen);
    free_shape(&spare); /* another thread's */
    spare = last;       /* its memory */
    spare.n = 0;
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

    if (alive->n > 0) { /* start() again, without stop() */
        before = *alive;
        *alive = (held){0};
    }
    same = is_same(models, how, alive);
    let_go(&before);
    PyMem_Free(before.items);
    return same;
}

void
msp_probe_shape_forget(void)
{
    last.n = 0;
}
