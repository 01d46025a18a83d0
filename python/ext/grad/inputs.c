/*
 * inputs.c - before a call: the edges on which the gradients of its inputs will arrive.
 *
 * They are noted for each input that requires grad; in-place functions change grad_fn of their own argument, so it
 * cannot be asked afterwards. What becomes of them after the call: walk.c.
 */
#include "grad/gradient.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static PyObject *str_grad_fn, *str_output_nr, *str_fields;

int
msp_probe_edges_setup(void)
{
    str_grad_fn = PyUnicode_InternFromString("grad_fn");
    str_output_nr = PyUnicode_InternFromString("output_nr");
    str_fields = PyUnicode_InternFromString("__dataclass_fields__");
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- tensors in arguments and results ---------------------------------------------------------------------------- */

enum { NESTING = 8 };

/* The fields of a data class, when v is one. */
static void
each_field(PyObject *v, visit_tensor *visit, void *payload, int depth)
{
    PyObject *fields, *name, *unused, *value;
    Py_ssize_t pos = 0;

    if (!(Py_TYPE(v)->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return; /* made by C, as numbers and text are */
    fields = PyObject_GetAttr((PyObject *)Py_TYPE(v), str_fields);
    while (fields != NULL && PyDict_Check(fields) && PyDict_Next(fields, &pos, &name, &unused)) {
        value = PyObject_GetAttr(v, name);
        if (value != NULL)
            msp_probe_each_tensor(value, visit, payload, depth + 1);
        else
            msp_probe_expect(PyExc_Exception, "reading a field"); /* a property of the program's may raise anything */
        Py_XDECREF(value);
    }
    Py_XDECREF(fields);
    msp_probe_expect(PyExc_AttributeError, "looking for fields");
}

/* A list or a dict may change while fields and tensors of the program's own classes are read: its items are held. */
static void
each_in_item(PyObject *item, visit_tensor *visit, void *payload, int depth)
{
    Py_INCREF(item);
    msp_probe_each_tensor(item, visit, payload, depth + 1);
    Py_DECREF(item);
}

void
msp_probe_each_tensor(PyObject *v, visit_tensor *visit, void *payload, int depth)
{
    PyObject *key, *value;
    Py_ssize_t pos = 0;

    if (v == NULL || depth > NESTING) {
        return;
    } else if (msp_probe_is_tensor(v)) {
        visit(v, payload);
    } else if (PyTuple_Check(v)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(v); i++)
            msp_probe_each_tensor(PyTuple_GET_ITEM(v, i), visit, payload, depth + 1);
    } else if (PyList_Check(v)) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(v); i++)
            each_in_item(PyList_GET_ITEM(v, i), visit, payload, depth);
    } else if (PyDict_Check(v)) {
        while (PyDict_Next(v, &pos, &key, &value))
            each_in_item(value, visit, payload, depth);
    } else {
        each_field(v, visit, payload, depth);
    }
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

PyObject *
msp_probe_node_of(PyObject *tensor, int64_t *nr)
{
    PyObject *fn = msp_probe_tensor_attribute(tensor, str_grad_fn);

    if (fn == Py_None)
        Py_CLEAR(fn);
    if (fn != NULL)
        *nr = msp_probe_number(msp_probe_tensor_attribute(tensor, str_output_nr), "reading a tensor's node");
    /* a tensor of a subclass, or one that an in-place function has made impossible to differentiate */
    msp_probe_expect(PyExc_Exception, "reading a tensor's node");
    return fn;
}

static bool
requires_grad(PyObject *tensor)
{
    bool yes = false;

    if (msp_probe_requires_grad(tensor, &yes) != 0)
        msp_probe_expect(PyExc_Exception, "reading requires_grad"); /* of a subclass */
    return yes;
}

/* ---- before the call --------------------------------------------------------------------------------------------- */

static input_edge *
new_edge(probe_edges *e)
{
    int cap = e->more == NULL ? FEW_EDGES : e->cap;
    input_edge *more;

    if (e->n == cap) {
        more = PyMem_Realloc(e->more, (size_t)cap * 2 * sizeof(*more));
        if (more == NULL)
            return NULL;
        if (e->more == NULL)
            memcpy(more, e->few, sizeof(e->few));
        e->more = more;
        e->cap = cap * 2;
    }
    more = &items_of(e)[e->n];
    *more = (input_edge){0};
    return more;
}

static void
find_first(const probe_edges *e, input_edge *edge)
{
    edge->first = edge->position;
    for (int i = 0; i < e->n; i++) {
        const input_edge *other = &items_of(e)[i];

        if (other->node == edge->node && other->nr == edge->nr) {
            edge->first = other->first;
            return;
        }
    }
}

static void
note_input(PyObject *t, void *payload)
{
    probe_edges *e = payload;
    int position = e->positions++;
    input_edge *edge = requires_grad(t) ? new_edge(e) : NULL;

    if (edge == NULL)
        return;
    edge->node = msp_probe_node_of(t, &edge->nr);
    edge->leaf = edge->node == NULL;
    if (edge->leaf && e->no_graph)
        return; /* an optimizer's step, say: nothing will ever lead to it */
    e->leaves += edge->leaf;
    if (edge->leaf) {
        Py_INCREF(t);
        edge->node = t;
    }
    edge->position = position;
    edge->last_node = -1;
    find_first(e, edge);
    e->n++;
}

static void
note_module_input(PyObject *t, void *payload)
{
    probe_edges *e = payload;
    int before = e->n;

    note_input(t, payload);
    if (e->n > before) {
        Py_INCREF(t);
        items_of(e)[before].tensor = t;
    }
}

static void
release_edges(probe_edges *e)
{
    for (int i = 0; i < e->n; i++) {
        input_edge *edge = &items_of(e)[i];

        Py_DECREF(edge->node);
        Py_XDECREF(edge->tensor);
    }
    PyMem_Free(e->more);
}

bool
msp_probe_edges_return(const probe_edges *e, int64_t *first)
{
    *first = e == NULL ? -1 : e->first;
    return e == NULL || (e->returns && msp_state_grad_enabled());
}

probe_edges *
msp_probe_edges_before(PyObject *self, PyObject *args, PyObject *kwargs, bool module)
{
    visit_tensor *visit = module && msp_probe_wants_gradients() ? note_module_input : note_input;
    probe_edges e, *out;

    memset(&e, 0, offsetof(probe_edges, few));
    e.no_graph = !module && !msp_state_grad_enabled();
    msp_probe_each_tensor(self, visit, &e, 0);
    msp_probe_each_tensor(args, visit, &e, 0);
    e.returns = e.n > 0;
    msp_probe_each_tensor(kwargs, visit, &e, 0);
    if (e.n == 0 && (e.no_graph || !msp_probe_watches()) && !module)
        return NULL; /* a module has parameters that may need gradients */
    e.first = msp_state_next_node();
    out = PyMem_Malloc(sizeof(*out));
    if (out != NULL)
        memcpy(out, &e, e.more != NULL ? offsetof(probe_edges, few) : sizeof(e));
    else
        release_edges(&e);
    return out;
}

int
msp_probe_edges_position(const probe_edges *e, const PyObject *node, int64_t nr)
{
    for (int i = 0; i < e->n; i++) {
        const input_edge *edge = &items_of(e)[i];

        if (edge->node == node && edge->nr == nr)
            return edge->first;
    }
    return -1;
}

void
msp_probe_edges_drop(probe_edges *e)
{
    if (e != NULL)
        release_edges(e);
    PyMem_Free(e);
}
