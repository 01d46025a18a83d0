/*
 * probe_edges.c - which autograd nodes a call made, and which of their edges carry its gradients.
 *
 * Before the call we note, for each input that requires grad, the edge on which its gradient will arrive; in-place
 * functions change grad_fn of their own argument, so it cannot be asked afterwards. After the call we walk from the
 * outputs' nodes through nodes that are newer than the call: an edge that leads to one of the noted places is a
 * boundary, and what the node puts on it in backward is this call's own contribution, to the bit, whatever else uses
 * the input. No node is added to the graph; a hook knows numbers only.
 */
#include "probe_grad.h"
#include <stdint.h>
#include <string.h>

static PyObject *str_requires_grad, *str_grad_fn, *str_output_nr, *str_next_functions, *str_sequence, *str_variable,
    *str_fields;

int
msp_probe_edges_setup(void)
{
    str_requires_grad = PyUnicode_InternFromString("requires_grad");
    str_grad_fn = PyUnicode_InternFromString("grad_fn");
    str_output_nr = PyUnicode_InternFromString("output_nr");
    str_next_functions = PyUnicode_InternFromString("next_functions");
    str_sequence = PyUnicode_InternFromString("_sequence_nr");
    str_variable = PyUnicode_InternFromString("variable");
    str_fields = PyUnicode_InternFromString("__dataclass_fields__");
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- tensors in arguments and results
 * -------------------------------------------------------------------------------------- */

typedef void visit_tensor(PyObject *tensor, void *payload);

enum { NESTING = 8 };

static void each_tensor(PyObject *v, visit_tensor *visit, void *payload, int depth);

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
            each_tensor(value, visit, payload, depth + 1);
        Py_XDECREF(value);
        PyErr_Clear();
    }
    Py_XDECREF(fields);
    PyErr_Clear();
}

static void
each_tensor(PyObject *v, visit_tensor *visit, void *payload, int depth)
{
    PyObject *key, *value;
    Py_ssize_t pos = 0;

    if (v == NULL || depth > NESTING) {
        return;
    } else if (msp_probe_is_tensor(v)) {
        visit(v, payload);
    } else if (PyTuple_Check(v)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(v); i++)
            each_tensor(PyTuple_GET_ITEM(v, i), visit, payload, depth + 1);
    } else if (PyList_Check(v)) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(v); i++)
            each_tensor(PyList_GET_ITEM(v, i), visit, payload, depth + 1);
    } else if (PyDict_Check(v)) {
        while (PyDict_Next(v, &pos, &key, &value))
            each_tensor(value, visit, payload, depth + 1);
    } else {
        each_field(v, visit, payload, depth);
    }
}

static bool
is_true(PyObject *obj, PyObject *attribute)
{
    PyObject *v = PyObject_GetAttr(obj, attribute);
    bool yes = v == Py_True;

    Py_XDECREF(v);
    PyErr_Clear();
    return yes;
}

static bool
is_accumulate(PyObject *node)
{
    static PyTypeObject *known; /* there is one such type, and it lives as long as torch */

    if (known == NULL && strstr(Py_TYPE(node)->tp_name, "AccumulateGrad") != NULL)
        known = Py_TYPE(node);
    return Py_TYPE(node) == known;
}

/* ---- before the call
 * -------------------------------------------------------------------------------------------------------- */

typedef struct input_edge {
    PyObject *node; /* grad_fn, or the leaf tensor itself */
    int64_t nr;
    bool leaf;
    bool reached;    /* an edge of the call's nodes leads to it */
    int position;    /* among the tensors of the arguments */
    int first;       /* position of the same tensor's first occurrence */
    int last_node;   /* number of the node that was matched with it last */
    msp_tensor like; /* a module's: type and shape */
} input_edge;

struct probe_edges {
    input_edge *items;
    int n, cap;
    int leaves;
    int positions; /* tensors seen */
    bool returns;  /* gradients leave by the positional arguments */
    bool no_graph; /* the call makes no nodes: what it returns of its inputs is all that may have some */
    int64_t first; /* sequence number of the first node that the call will make; -1: torch has none */
};

static input_edge *
new_edge(probe_edges *e)
{
    if (e->n == e->cap) {
        int cap = e->cap == 0 ? 8 : e->cap * 2;
        input_edge *items = PyMem_Realloc(e->items, (size_t)cap * sizeof(*items));

        if (items == NULL)
            return NULL;
        e->items = items;
        e->cap = cap;
    }
    memset(&e->items[e->n], 0, sizeof(*e->items));
    return &e->items[e->n];
}

static void
find_first(const probe_edges *e, input_edge *edge)
{
    edge->first = edge->position;
    for (int i = 0; i < e->n; i++)
        if (e->items[i].node == edge->node && e->items[i].nr == edge->nr) {
            edge->first = e->items[i].first;
            return;
        }
}

static void
note_input(PyObject *t, void *payload)
{
    probe_edges *e = payload;
    int position = e->positions++;
    input_edge *edge = is_true(t, str_requires_grad) ? new_edge(e) : NULL;
    PyObject *fn;

    if (edge == NULL)
        return;
    fn = PyObject_GetAttr(t, str_grad_fn);
    if (fn == NULL) {
        PyErr_Clear();
        return;
    }
    edge->leaf = fn == Py_None;
    if (edge->leaf && e->no_graph) {
        Py_DECREF(fn); /* an optimizer's step, say: nothing will ever lead to it */
        return;
    }
    e->leaves += edge->leaf;
    if (edge->leaf) {
        Py_DECREF(fn);
        Py_INCREF(t);
        edge->node = t;
    } else {
        edge->node = fn;
        edge->nr = msp_probe_number(PyObject_GetAttr(t, str_output_nr));
    }
    edge->position = position;
    edge->last_node = -1;
    find_first(e, edge);
    e->n++;
}

/* Shape and type of a tensor, whatever and wherever it is; its type is MSP_DTYPE_NONE when they cannot be had. */
static void
look_like(msp_tensor *like, PyObject *t)
{
    PyObject *shape, *dtype;

    if (msp_probe_tensor_view(like, t) == 1)
        return;
    shape = PyObject_GetAttrString(t, "shape");
    dtype = PyObject_GetAttrString(t, "dtype");
    if (shape == NULL || dtype == NULL || msp_probe_tensor_shape(like, shape, dtype) != 0)
        like->dtype = MSP_DTYPE_NONE;
    Py_XDECREF(shape);
    Py_XDECREF(dtype);
    PyErr_Clear();
}

static void
note_module_input(PyObject *t, void *payload)
{
    probe_edges *e = payload;
    int before = e->n;

    note_input(t, payload);
    if (e->n > before)
        look_like(&e->items[before].like, t);
}

int64_t
msp_probe_next_node(void)
{
    return msp_probe.sequence_nr == NULL ? -1 : msp_probe_number(PyObject_CallNoArgs(msp_probe.sequence_nr));
}

bool
msp_probe_edges_return(const probe_edges *e, int64_t *first)
{
    *first = e == NULL ? -1 : e->first;
    return e == NULL || (e->returns && msp_probe_grad_enabled());
}

probe_edges *
msp_probe_edges_before(PyObject *self, PyObject *args, PyObject *kwargs, bool module)
{
    visit_tensor *visit = module && msp_probe_wants_gradients() ? note_module_input : note_input;
    probe_edges e = {.first = -1, .no_graph = !module && !msp_probe_grad_enabled()}, *out;

    each_tensor(self, visit, &e, 0);
    each_tensor(args, visit, &e, 0);
    e.returns = e.n > 0;
    each_tensor(kwargs, visit, &e, 0);
    if (e.n == 0 && (e.no_graph || !msp_probe_watches()) && !module)
        return NULL; /* a module has parameters that may need gradients */
    e.first = msp_probe_next_node();
    out = PyMem_Malloc(sizeof(*out));
    if (out != NULL)
        *out = e;
    else
        PyMem_Free(e.items);
    return out;
}

int
msp_probe_edges_position(const probe_edges *e, PyObject *node, int64_t nr)
{
    for (int i = 0; i < e->n; i++)
        if (!e->items[i].leaf && e->items[i].node == node && e->items[i].nr == nr)
            return e->items[i].first;
    return -1;
}

void
msp_probe_edges_drop(probe_edges *e)
{
    if (e == NULL)
        return;
    for (int i = 0; i < e->n; i++)
        Py_DECREF(e->items[i].node);
    PyMem_Free(e->items);
    PyMem_Free(e);
}

/* ---- after the call
 * ----------------------------------------------------------------------------------------------------------- */

/* A node of the call, and which of its edges matter. */
typedef struct walked {
    PyObject *node;
    PyObject *next;    /* its next_functions, once it was followed */
    grad_mapping *map; /* entering first */
    int nin, nout, cap;
} walked;

typedef struct walk {
    const probe_edges *edges;
    walked *nodes;
    int n, cap;
    int *index; /* hash of the node's address -> number + 1 */
    int slots;
    bool failed;
} walk;

static int *
find_node(walk *w, PyObject *node)
{
    int i = (int)(((uintptr_t)node >> 4) * 0x9E3779B1u) & (w->slots - 1);

    while (w->index[i] != 0 && w->nodes[w->index[i] - 1].node != node)
        i = (i + 1) & (w->slots - 1);
    return &w->index[i];
}

static bool
grow_walk(walk *w)
{
    int cap = w->cap == 0 ? 16 : w->cap * 2;
    walked *nodes = PyMem_Realloc(w->nodes, (size_t)cap * sizeof(*nodes));
    int *index = PyMem_Calloc((size_t)cap * 4, sizeof(*index));

    if (nodes != NULL)
        w->nodes = nodes;
    if (nodes == NULL || index == NULL) {
        PyMem_Free(index);
        w->failed = true;
        return false;
    }
    PyMem_Free(w->index);
    w->index = index;
    w->slots = cap * 4;
    w->cap = cap;
    for (int i = 0; i < w->n; i++)
        *find_node(w, w->nodes[i].node) = i + 1;
    return true;
}

/* The number of this node, noted when it is new (*added); -1 when there is no memory. */
static int
note_node(walk *w, PyObject *node, bool *added)
{
    int *at;

    *added = false;
    if (w->n == w->cap && !grow_walk(w))
        return -1;
    at = find_node(w, node);
    if (*at == 0) {
        Py_INCREF(node);
        w->nodes[w->n] = (walked){.node = node};
        *at = ++w->n;
        *added = true;
    }
    return *at - 1;
}

static void
add_mapping(walk *w, int node, bool entering, int at, int slot_number)
{
    walked *k = &w->nodes[node];

    if (k->nin + k->nout == k->cap) {
        int cap = k->cap == 0 ? 4 : k->cap * 2;
        grad_mapping *map = PyMem_Realloc(k->map, (size_t)cap * sizeof(*map));

        if (map == NULL) {
            w->failed = true;
            return;
        }
        k->map = map;
        k->cap = cap;
    }
    if (entering) {
        memmove(k->map + k->nin + 1, k->map + k->nin, (size_t)k->nout * sizeof(*k->map));
        k->map[k->nin++] = (grad_mapping){at, slot_number};
    } else {
        k->map[k->nin + k->nout++] = (grad_mapping){at, slot_number};
    }
}

static bool
is_known(const walk *w, PyObject *node)
{
    for (int i = 0; i < w->edges->n; i++)
        if (w->edges->items[i].node == node)
            return true;
    return false;
}

/* A torch without sequence numbers cannot tell: the inputs' edges are the only boundary, and a composite function has
 * few nodes. */
enum { MOST_NODES = 64 };

/* They count up as nodes are made. */
static int64_t
node_number(PyObject *node)
{
    return msp_probe_number(PyObject_CallMethodObjArgs(node, str_sequence, NULL));
}

static bool
is_new(const walk *w, PyObject *node)
{
    if (is_accumulate(node))
        return false;
    if (w->edges->first < 0)
        return w->n < MOST_NODES && !is_known(w, node);
    return node_number(node) >= w->edges->first;
}

/* The input to which this edge of node number n leads, or NULL. One tensor in two places gets each of a node's edges
 * once. */
static input_edge *
boundary(walk *w, int n, PyObject *target, int64_t nr)
{
    PyObject *variable = NULL;
    input_edge *hit = NULL;

    if (w->edges->leaves > 0 && is_accumulate(target)) {
        variable = PyObject_GetAttr(target, str_variable);
        PyErr_Clear();
    }
    for (int i = 0; i < w->edges->n; i++) {
        input_edge *e = &w->edges->items[i];
        bool same = e->leaf ? variable != NULL && e->node == variable : e->node == target && e->nr == nr;

        if (!same)
            continue;
        if (hit == NULL)
            hit = e;
        if (e->last_node != n) {
            hit = e;
            break;
        }
    }
    if (hit != NULL) {
        hit->last_node = n;
        hit->reached = true;
    }
    Py_XDECREF(variable);
    return hit;
}

/* The node's next_functions, or NULL; the walk keeps them. */
static PyObject *
next_of(walk *w, int n)
{
    walked *k = &w->nodes[n];

    if (k->next == NULL)
        k->next = PyObject_GetAttr(k->node, str_next_functions);
    if (k->next != NULL && !PyTuple_Check(k->next))
        Py_CLEAR(k->next);
    PyErr_Clear();
    return k->next;
}

/* Follow the edges of one node; nodes of the call that are met for the first time are appended to w->nodes. */
static void
follow(walk *w, int n)
{
    PyObject *next = next_of(w, n);

    if (next == NULL)
        return;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(next) && !w->failed; i++) {
        PyObject *pair = PyTuple_GET_ITEM(next, i), *target;
        input_edge *e;
        bool added;

        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2)
            continue;
        target = PyTuple_GET_ITEM(pair, 0);
        if (target == Py_None)
            continue;
        if (msp_probe_watches() && is_accumulate(target) && !msp_probe_is_hooked(target))
            msp_probe_grad_watch(target);
        e = boundary(w, n, target, PyLong_AsLongLong(PyTuple_GET_ITEM(pair, 1)));
        if (e != NULL)
            add_mapping(w, n, false, (int)i, e->position);
        else if (is_new(w, target))
            note_node(w, target, &added);
    }
}

/* The input that a call without a node of its own hands on gets what arrives for the output. */
static void
pass_through(walk *w, int node, int64_t nr)
{
    for (int i = 0; i < w->edges->n; i++) {
        const input_edge *e = &w->edges->items[i];

        if (!e->leaf && e->node == w->nodes[node].node && e->nr == nr) {
            add_mapping(w, node, false, -1 - (int)nr, e->position);
            return;
        }
    }
}

typedef struct outputs {
    walk *walk;
    int n; /* tensors in the result */
    bool any;
    bool through;      /* the call made no node: it handed its input on, as to() and dropout without effect do */
    int64_t handed_on; /* ... of the node with this number; -1: no, or the call of a module */
    Py_ssize_t given;  /* ... which this open module was given; -1: none */
} outputs;

static void
note_output(PyObject *t, void *payload)
{
    outputs *o = payload;
    int index = o->n++, node;
    PyObject *fn = PyObject_GetAttr(t, str_grad_fn);
    bool new = fn != NULL &&fn != Py_None && !o->through &&is_new(o->walk, fn), added;
    int64_t nr;

    if (new || (fn != NULL && fn != Py_None && !o->through && index == 0)) {
        o->through = !new;
        node = note_node(o->walk, fn, &added);
        nr = msp_probe_number(PyObject_GetAttr(t, str_output_nr));
        if (node >= 0)
            add_mapping(o->walk, node, true, (int)nr, index);
        if (node >= 0 && o->through)
            pass_through(o->walk, node, nr);
        o->any = true;
    }
    Py_XDECREF(fn);
    PyErr_Clear();
}

/* In a function of several nodes, which of them belongs to which place of a tensor that is there twice cannot be told:
 * their sum stands in the first. */
static void
merge_same_tensors(walk *w)
{
    int *first;

    if (w->n < 2 || w->edges->positions == 0)
        return;
    first = PyMem_New(int, w->edges->positions);
    if (first == NULL)
        return;
    for (int i = 0; i < w->edges->positions; i++)
        first[i] = i;
    for (int i = 0; i < w->edges->n; i++)
        first[w->edges->items[i].position] = w->edges->items[i].first;
    for (int i = 0; i < w->n; i++)
        for (int j = w->nodes[i].nin; j < w->nodes[i].nin + w->nodes[i].nout; j++)
            w->nodes[i].map[j].slot = first[w->nodes[i].map[j].slot];
    PyMem_Free(first);
}

static int
count_contributions(const walk *w, int slot_number)
{
    int n = 0;

    for (int i = 0; i < w->n; i++)
        for (int j = w->nodes[i].nin; j < w->nodes[i].nin + w->nodes[i].nout; j++)
            n += w->nodes[i].map[j].slot == slot_number;
    return n;
}

/* Whether what the node puts on this edge is recorded alone, as the gradient of an input. */
static bool
is_recorded_alone(const walk *w, const walked *k, int at)
{
    for (int i = k->nin; i < k->nin + k->nout; i++)
        if (k->map[i].at == at && count_contributions(w, k->map[i].slot) == 1)
            return true;
    return false;
}

/*
 * What the node of the first output hands on inside a composite function, or past it, is recorded behind the inputs'
 * gradients: it is all that the original shows of such a call. Returns how many there are.
 */
static int
add_inner_edges(walk *w)
{
    PyObject *next = w->n == 0 ? NULL : next_of(w, 0);
    int extra = 0;

    for (Py_ssize_t i = 0; next != NULL && i < PyTuple_GET_SIZE(next); i++) {
        PyObject *pair = PyTuple_GET_ITEM(next, i);

        if (PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2 && PyTuple_GET_ITEM(pair, 0) != Py_None &&
            !is_recorded_alone(w, &w->nodes[0], (int)i))
            add_mapping(w, 0, false, (int)i, w->edges->positions + extra++);
    }
    return extra;
}

/* Inputs of a module to which no edge leads get a gradient of zeros. */
static void
expect_zeros(grad_call *g, const probe_edges *edges)
{
    for (int i = 0; i < edges->n; i++) {
        const input_edge *e = &edges->items[i];

        if (!e->reached && e->first == e->position && e->like.dtype != MSP_DTYPE_NONE)
            msp_probe_grad_zeros(g, e->position, &e->like);
    }
}

static grad_call *
make_call(const walk *w, const outputs *o, int extra, const char *name, size_t len, bool module)
{
    grad_call *g = msp_probe_grad_call(name, len, o->n, w->edges->positions + extra, o->handed_on);
    const walked *first = &w->nodes[0];

    if (g != NULL && o->given >= 0 && msp_probe_follow(g, o->given, first->node, first->map, first->nin, first->nout))
        return g;
    for (int i = 0; g != NULL && i < w->n; i++)
        if (w->nodes[i].nin + w->nodes[i].nout > 0)
            msp_probe_grad_hook(g, w->nodes[i].node, w->nodes[i].map, w->nodes[i].nin, w->nodes[i].nout);
    if (g != NULL && module && msp_probe_wants_gradients())
        expect_zeros(g, w->edges);
    return g;
}

static void
free_walk(walk *w)
{
    for (int i = 0; i < w->n; i++) {
        Py_DECREF(w->nodes[i].node);
        Py_XDECREF(w->nodes[i].next);
        PyMem_Free(w->nodes[i].map);
    }
    PyMem_Free(w->nodes);
    PyMem_Free(w->index);
}

void
msp_probe_edges_after(probe_edges *edges, PyObject *result, const char *name, size_t len, bool module)
{
    walk w = {.edges = edges};
    outputs o = {.walk = &w};
    grad_call *g = NULL;
    int extra;

    each_tensor(result, note_output, &o, 0);
    for (int i = 0; o.any && !o.through && i < w.n && !w.failed; i++)
        follow(&w, i);
    merge_same_tensors(&w);
    o.handed_on = o.through && !module && w.n > 0 ? node_number(w.nodes[0].node) : -1;
    o.given = msp_probe_given_to(o.handed_on);
    extra = o.given < 0 ? add_inner_edges(&w) : 0;
    if (o.any && !w.failed)
        g = make_call(&w, &o, extra, name, len, module);
    if (module)
        msp_probe_follow_end(msp_probe_open_modules(), edges, g);
    if (PyErr_Occurred())
        msp_probe_swallow("hooking the gradients", name);
    Py_XDECREF(g);
    free_walk(&w);
    msp_probe_edges_drop(edges);
}
