/*
 * walk.c - after a call: which autograd nodes it made, and which of their edges carry its gradients.
 *
 * We walk from the outputs' nodes through nodes that are newer than the call: an edge that leads to one of the places
 * noted before it is a boundary, and what the node puts on it in backward is this call's own contribution, to the bit,
 * whatever else uses the input. No node is added to the graph; a hook knows numbers only.
 */
#include "recording/address_map.h"
#include "grad/gradient.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static PyObject *str_next_functions, *str_sequence, *str_variable, *str_shape, *str_dtype;

int
msp_probe_walk_setup(void)
{
    str_next_functions = PyUnicode_InternFromString("next_functions");
    str_sequence = PyUnicode_InternFromString("_sequence_nr");
    str_variable = PyUnicode_InternFromString("variable");
    str_shape = PyUnicode_InternFromString("shape");
    str_dtype = PyUnicode_InternFromString("dtype");
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static inline bool
is_accumulate(PyObject *node)
{
    static PyTypeObject *known; /* there is one such type, and it lives as long as torch */

    if (known == NULL && strstr(Py_TYPE(node)->tp_name, "AccumulateGrad") != NULL)
        known = Py_TYPE(node);
    return Py_TYPE(node) == known;
}

static inline int64_t
sequence_of(PyObject *node)
{
    return msp_probe_number(PyObject_CallMethodObjArgs(node, str_sequence, NULL), "reading a node's number");
}

/* Whether this is the tensor for which the AccumulateGrad node is there. */
static bool
accumulates_into(PyObject *accumulate, const PyObject *tensor)
{
    PyObject *variable = PyObject_GetAttr(accumulate, str_variable);

    Py_XDECREF(variable);
    if (variable == NULL)
        msp_probe_swallow("reading a node's parameter", "");
    return variable == tensor;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

enum { FEW_NODES = 12, FEW_MAPPINGS = 4 };

/* A node of the call, and which of its edges matter. */
typedef struct walked {
    PyObject *node;
    PyObject *next;     /* its next_functions, once it was followed, or NULL */
    bool is_input;      /* of a tensor that the module hands on: what is behind it is none of the module's */
    grad_mapping *more; /* all of them, when they are many; NULL: they are in few */
    int n, cap;
    grad_mapping few[FEW_MAPPINGS];
} walked;

/* Most calls make few nodes: a table, and memory that is not on the stack, is for those that make many. */
typedef struct walk {
    const probe_edges *edges;
    walked *nodes;
    int n, cap;
    address_map index; /* node -> number + 1; empty: they are looked through */
    bool failed;
    walked few[FEW_NODES];
} walk;

static void
start_walk(walk *w, const probe_edges *edges)
{
    memset(w, 0, offsetof(walk, few));
    w->edges = edges;
    w->nodes = w->few;
    w->cap = FEW_NODES;
}

static grad_mapping *
map_of(const walked *k)
{
    return k->more != NULL ? k->more : (grad_mapping *)k->few;
}

/* The number of this node, -1: it is new. */
static int
find_node(walk *w, const void *node)
{
    if (w->index.used > 0)
        return (int)(intptr_t)map_get(&w->index, node) - 1;
    for (int i = w->n; i-- > 0;)
        if (w->nodes[i].node == node)
            return i;
    return -1;
}

static bool
grow_walk(walk *w)
{
    const bool is_first = w->nodes == w->few;
    int cap = w->cap * 2;
    walked *nodes = PyMem_Realloc(is_first ? NULL : w->nodes, (size_t)cap * sizeof(*nodes));

    w->failed = nodes == NULL;
    if (w->failed)
        return false;
    if (is_first)
        memcpy(nodes, w->few, sizeof(w->few));
    w->nodes = nodes;
    w->cap = cap;
    for (int i = 0; is_first && i < w->n && !w->failed; i++)
        w->failed = !map_put(&w->index, nodes[i].node, (void *)(intptr_t)(i + 1));
    return !w->failed;
}

/* The number of this node, noted when it is new; -1 when there is no memory. */
static int
note_node(walk *w, PyObject *node)
{
    int known = find_node(w, node);

    if (known >= 0 || (w->n == w->cap && !grow_walk(w)))
        return known;
    Py_INCREF(node);
    w->nodes[w->n] = (walked){.node = node};
    if (w->index.used > 0)
        w->failed |= !map_put(&w->index, node, (void *)(intptr_t)(w->n + 1));
    return w->n++;
}

static void
add_mapping(walk *w, int node, grad_mapping mapping)
{
    walked *k = &w->nodes[node];
    int cap = k->more == NULL ? FEW_MAPPINGS : k->cap;
    grad_mapping *map;

    if (k->n == cap) {
        map = PyMem_Realloc(k->more, (size_t)cap * 2 * sizeof(*map));
        if (map == NULL) {
            w->failed = true;
            return;
        }
        if (k->more == NULL)
            memcpy(map, k->few, sizeof(k->few));
        k->more = map;
        k->cap = cap * 2;
    }
    map_of(k)[k->n++] = mapping;
}

static bool
is_known(const walk *w, const void *node)
{
    for (int i = 0; i < w->edges->n; i++)
        if (items_of(w->edges)[i].node == node)
            return true;
    return false;
}

/* A torch without sequence numbers cannot tell: the inputs' edges are the only boundary, and a composite function has
 * few nodes. */
enum { MOST_NODES = 64 };

/* Of a node that is no AccumulateGrad node. */
static inline bool
is_new(const walk *w, PyObject *node)
{
    if (w->edges->first < 0)
        return w->n < MOST_NODES && !is_known(w, node);
    return sequence_of(node) >= w->edges->first;
}

static bool
leads_to(const input_edge *e, PyObject *target, bool accumulate, int64_t nr)
{
    if (e->leaf)
        return accumulate && accumulates_into(target, e->node);
    return e->node == target && e->nr == nr;
}

/* The input to which this edge of node number n leads, or NULL. One tensor in two places gets each of a node's edges
 * once. */
static input_edge *
input_at_edge(walk *w, int n, PyObject *target, bool accumulate, int64_t nr)
{
    input_edge *hit = NULL;

    for (int i = 0; i < w->edges->n; i++) {
        input_edge *e = &items_of(w->edges)[i];

        if (!leads_to(e, target, accumulate, nr))
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
    return hit;
}

/* How many edges the node has; the walk keeps its next_functions. */
static int
count_edges(walk *w, int n)
{
    walked *k = &w->nodes[n];

    if (k->next == NULL)
        k->next = PyObject_GetAttr(k->node, str_next_functions);
    if (k->next == NULL)
        msp_probe_swallow("reading a node's edges", "");
    return k->next == NULL || !PyTuple_Check(k->next) ? 0 : (int)PyTuple_GET_SIZE(k->next);
}

/* Where one of the edges that were counted leads, lent; NULL: nowhere. */
static inline PyObject *
edge_of(const walk *w, int n, int i, int64_t *nr)
{
    PyObject *pair = PyTuple_GET_ITEM(w->nodes[n].next, i);

    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 || PyTuple_GET_ITEM(pair, 0) == Py_None)
        return NULL;
    *nr = PyLong_AsLongLong(PyTuple_GET_ITEM(pair, 1));
    return PyTuple_GET_ITEM(pair, 0);
}

/* Whether an edge to this node, which is no AccumulateGrad node, can be a boundary. */
static inline bool
may_be_input(const walk *w, const void *target)
{
    const input_edge *items = items_of(w->edges);

    for (int i = 0; i < w->edges->n; i++)
        if (items[i].node == target)
            return true;
    return false;
}

/* Follow the edges of one node; nodes of the call that are met for the first time are appended to w->nodes. */
static void
follow_edges(walk *w, int n)
{
    const bool watches = msp_probe_watches();
    const int count = count_edges(w, n);

    for (int i = 0; i < count && !w->failed; i++) {
        int64_t nr = 0;
        PyObject *target = edge_of(w, n, i, &nr);
        const bool accumulate = target != NULL && is_accumulate(target);
        input_edge *e = NULL;

        if (target == NULL)
            continue;
        if (watches && accumulate)
            msp_probe_grad_watch(target);
        if (accumulate ? w->edges->leaves > 0 : may_be_input(w, target))
            e = input_at_edge(w, n, target, accumulate, nr);
        if (e != NULL && e->handed_on)
            continue; /* the tensor's node shows the sum of this and of what comes by the output */
        if (e != NULL)
            add_mapping(w, n, (grad_mapping){SHOWN_LEAVING, i, GRAD_LEAVES, e->position});
        else if (!accumulate && is_new(w, target))
            note_node(w, target);
    }
}

/* The input that is this output of a node, or NULL. */
static input_edge *
input_of(const walk *w, const PyObject *node, int64_t nr)
{
    for (int i = 0; i < w->edges->n; i++) {
        input_edge *e = &items_of(w->edges)[i];

        if (!e->leaf && e->node == node && e->nr == nr)
            return e;
    }
    return NULL;
}

/* An input that is handed on gets what arrives for the output. */
static void
pass_through(walk *w, int node, int64_t nr)
{
    const input_edge *e = input_of(w, w->nodes[node].node, nr);

    if (e != NULL)
        add_mapping(w, node, (grad_mapping){SHOWN_ENTERING, (int)nr, GRAD_LEAVES, e->position});
}

/* The result of the call, as it is walked through. */
typedef struct outputs {
    walk *walk;
    int n;           /* how many tensors it has so far */
    PyObject *first; /* the first of them, lent */
    bool any;        /* a node is to be hooked */
    bool module;     /* the call is a module's, which may hand on some of its inputs and make nodes for other results */
    bool through;    /* the call made no node: it handed its input on, as to() and dropout without effect do */
    int leaf;        /* the position among the inputs of the leaf that the first result is; -1: it is none */
    int64_t handed_on; /* what a function handed on: the number of a node, or as model.h says */
    Py_ssize_t given;  /* the open module that was given what is handed on; -1: none was */
} outputs;

/* The position of this leaf among the inputs, -1: it is none of them. */
static int
leaf_position(const probe_edges *e, const PyObject *tensor)
{
    return e->leaves > 0 ? msp_probe_edges_position(e, tensor, 0) : -1;
}

/* A module's output that is one of its inputs. */
static bool
note_handed_on(outputs *o, PyObject *fn, int64_t nr, int index)
{
    input_edge *e = o->module ? input_of(o->walk, fn, nr) : NULL;
    int node = e == NULL ? -1 : note_node(o->walk, fn);

    if (node < 0)
        return false;
    add_mapping(o->walk, node, (grad_mapping){SHOWN_ENTERING, (int)nr, GRAD_ENTERS, index});
    if (!e->handed_on)
        pass_through(o->walk, node, nr);
    e->handed_on = e->reached = o->walk->nodes[node].is_input = o->any = true;
    return true;
}

static void
note_output(PyObject *t, void *payload)
{
    outputs *o = payload;
    int index = o->n++, node;
    int64_t nr = 0;
    PyObject *fn = msp_probe_node_of(t, &nr);
    bool new = fn != NULL && !o->through && !is_accumulate(fn) && is_new(o->walk, fn);

    if (index == 0) {
        o->first = t;
        o->leaf = fn == NULL ? leaf_position(o->walk->edges, t) : -1;
    }
    if (fn != NULL && !new &&note_handed_on(o, fn, nr, index)) {
        Py_DECREF(fn);
        return;
    }
    if (new || (fn != NULL && !o->through && index == 0)) {
        o->through = !new;
        node = note_node(o->walk, fn);
        if (node >= 0)
            add_mapping(o->walk, node, (grad_mapping){SHOWN_ENTERING, (int)nr, GRAD_ENTERS, index});
        if (node >= 0 && o->through)
            pass_through(o->walk, node, nr);
        o->any = true;
    }
    Py_XDECREF(fn);
}

static bool
has_same_tensors(const probe_edges *e)
{
    for (int i = 0; i < e->n; i++)
        if (items_of(e)[i].first != items_of(e)[i].position)
            return true;
    return false;
}

/* In a function of several nodes, which of them belongs to which place of a tensor that is there twice cannot be told:
 * their sum stands in the first. */
static void
merge_same_tensors(walk *w)
{
    int *first;

    if (w->n < 2 || !has_same_tensors(w->edges))
        return;
    first = PyMem_New(int, w->edges->positions);
    if (first == NULL)
        return;
    for (int i = 0; i < w->edges->positions; i++)
        first[i] = i;
    for (int i = 0; i < w->edges->n; i++)
        first[items_of(w->edges)[i].position] = items_of(w->edges)[i].first;
    for (int i = 0; i < w->n; i++)
        for (int j = 0; j < w->nodes[i].n; j++)
            if (map_of(&w->nodes[i])[j].use == GRAD_LEAVES)
                map_of(&w->nodes[i])[j].slot = first[map_of(&w->nodes[i])[j].slot];
    PyMem_Free(first);
}

static int
count_contributions(const walk *w, int slot_number)
{
    int n = 0;

    for (int i = 0; i < w->n; i++)
        for (int j = 0; j < w->nodes[i].n; j++)
            n += map_of(&w->nodes[i])[j].use == GRAD_LEAVES && map_of(&w->nodes[i])[j].slot == slot_number;
    return n;
}

/* Whether what the node puts on this edge is recorded alone, as the gradient of an input. */
static bool
is_recorded_alone(const walk *w, const walked *k, int at)
{
    for (int i = 0; i < k->n; i++) {
        const grad_mapping *m = &map_of(k)[i];

        if (m->in == SHOWN_LEAVING && m->at == at && m->use == GRAD_LEAVES && count_contributions(w, m->slot) == 1)
            return true;
    }
    return false;
}

/*
 * What the node of the first output hands on inside a composite function, or past it, is recorded behind the inputs'
 * gradients: it is all that the original shows of such a call. Not so of a module: what leaves it beside its inputs'
 * gradients are those of its parameters, which have a record. Returns how many there are.
 */
static int
add_inner_edges(walk *w)
{
    int extra = 0, count = w->n == 0 ? 0 : count_edges(w, 0);
    int64_t nr;

    for (int i = 0; i < count; i++)
        if (edge_of(w, 0, i, &nr) != NULL && !is_recorded_alone(w, &w->nodes[0], i))
            add_mapping(w, 0, (grad_mapping){SHOWN_LEAVING, i, GRAD_LEAVES, w->edges->positions + extra++});
    return extra;
}

static bool
needs_gradient(const probe_edges *e, int position)
{
    for (int i = 0; i < e->n; i++)
        if (items_of(e)[i].position == position)
            return true;
    return false;
}

/*
 * The nodes of cat(), stack() and the like make gradients for all of their inputs, also for those that need none: where
 * the last node has an edge for each input, one that leads nowhere tells of such a gradient, or of none.
 */
static void
add_unneeded(walk *w)
{
    const int positions = w->edges->positions;
    int64_t nr;

    if (w->n == 0 || w->edges->n == positions || count_edges(w, 0) != positions)
        return;
    for (int i = 0; i < positions; i++)
        if (edge_of(w, 0, i, &nr) == NULL && !needs_gradient(w->edges, i))
            add_mapping(w, 0, (grad_mapping){SHOWN_LEAVING, i, GRAD_LEAVES, i});
}

/* Which gradient that enters the call arrives at this output of a node; -1: none. */
static int
entering_at(walk *w, const void *node, int64_t nr)
{
    int known = find_node(w, node);

    for (int i = 0; known >= 0 && i < w->nodes[known].n; i++) {
        const grad_mapping *m = &map_of(&w->nodes[known])[i];

        if (m->use == GRAD_ENTERS && m->at == nr)
            return m->slot;
    }
    return -1;
}

/*
 * A result that the module itself uses, too, such as the state of an LSTM cell: autograd adds the module's own part to
 * what arrives from outside. The nodes that make it are noted, so that it can be taken off again.
 */
static void
add_own_uses(walk *w)
{
    for (int n = 0; n < w->n; n++) {
        int count = w->nodes[n].is_input ? 0 : count_edges(w, n);

        for (int i = 0; i < count && !w->failed; i++) {
            int64_t nr = 0;
            PyObject *target = edge_of(w, n, i, &nr);
            int slot_number = target == NULL ? -1 : entering_at(w, target, nr);

            if (slot_number >= 0)
                add_mapping(w, n, (grad_mapping){SHOWN_LEAVING, i, GRAD_OWN_SHARE, slot_number});
        }
    }
}

/* Shape and type of a tensor, whatever and wherever it is; its type is MSP_DTYPE_NONE when they cannot be had. */
static void
look_like(msp_tensor *like, PyObject *t)
{
    PyObject *shape, *dtype;

    if (msp_probe_tensor_view(like, t))
        return;
    like->dtype = MSP_DTYPE_NONE;
    shape = msp_probe_tensor_attribute(t, str_shape);
    dtype = shape == NULL ? NULL : msp_probe_tensor_attribute(t, str_dtype);
    if (dtype == NULL || msp_probe_tensor_shape(like, shape, dtype) != 0) {
        like->dtype = MSP_DTYPE_NONE;
        msp_probe_expect(PyExc_Exception, "reading a tensor's shape"); /* of a subclass */
    }
    Py_XDECREF(shape);
    Py_XDECREF(dtype);
}

/* Inputs of a module to which no edge leads get a gradient of zeros. */
static void
expect_zeros(grad_call *g, const probe_edges *edges)
{
    msp_tensor like;

    for (int i = 0; i < edges->n; i++) {
        const input_edge *e = &items_of(edges)[i];

        if (e->reached || e->first != e->position || e->tensor == NULL)
            continue;
        look_like(&like, e->tensor);
        if (like.dtype != MSP_DTYPE_NONE)
            msp_probe_grad_zeros(g, e->position, &like);
    }
}

/* The gradient of a call that hands on what its module was given is taken when the module has ended. */
static bool
follow_module(const walk *w, const outputs *o, grad_call *g)
{
    const walked *first = &w->nodes[0];

    return first->n == 2 && map_of(first)[0].use == GRAD_ENTERS && map_of(first)[1].use == GRAD_LEAVES &&
           msp_probe_follow(g, o->given, first->node, map_of(first));
}

/* A leaf that a call hands on has no node: nothing else can be said of the call. */
static grad_call *
follow_leaf(const walk *w, const outputs *o, const grad_owner *owner)
{
    const grad_mapping map[2] = {{SHOWN_ENTERING, 0, GRAD_ENTERS, 0}, {SHOWN_LEAVING, 0, GRAD_LEAVES, o->leaf}};
    grad_call *g = msp_probe_grad_call(owner, o->n, w->edges->positions, o->handed_on);

    if (g != NULL)
        msp_probe_follow(g, o->given, o->first, map);
    return g;
}

static grad_call *
make_call(const walk *w, const outputs *o, int extra, const grad_owner *owner)
{
    grad_call *g = msp_probe_grad_call(owner, o->n, w->edges->positions + extra, o->handed_on);

    if (g == NULL || (o->given >= 0 && follow_module(w, o, g)))
        return g;
    for (int i = 0; i < w->n; i++)
        if (w->nodes[i].n > 0)
            msp_probe_grad_hook(g, w->nodes[i].node, map_of(&w->nodes[i]), w->nodes[i].n,
                                o->through || w->nodes[i].is_input);
    if (owner->is_module && msp_probe_wants_gradients())
        expect_zeros(g, w->edges);
    return g;
}

static void
free_walk(walk *w)
{
    for (int i = 0; i < w->n; i++) {
        Py_DECREF(w->nodes[i].node);
        Py_XDECREF(w->nodes[i].next);
        if (w->nodes[i].more != NULL)
            PyMem_Free(w->nodes[i].more);
    }
    if (w->nodes != w->few)
        PyMem_Free(w->nodes);
    map_release(&w->index);
}

void
msp_probe_edges_none(void)
{
    msp_probe_follow_end(msp_probe_open_modules(), NULL, NULL);
}

void
msp_probe_edges_after(probe_edges *edges, PyObject *result, const grad_owner *owner)
{
    const bool module = owner->is_module;
    walk w;
    outputs o = {.walk = &w, .leaf = -1, .handed_on = MSP_PROBE_OWN_NODES, .module = module};
    grad_call *g = NULL;
    int extra;

    start_walk(&w, edges);
    msp_probe_each_tensor(result, note_output, &o, 0);
    for (int i = 0; o.any && !o.through && i < w.n && !w.failed; i++)
        if (!w.nodes[i].is_input)
            follow_edges(&w, i);
    merge_same_tensors(&w);
    if (o.leaf >= 0 && !module)
        o.handed_on = MSP_PROBE_LEAF;
    else if (o.through && !module && w.n > 0)
        o.handed_on = sequence_of(w.nodes[0].node); /* MSP_PROBE_OWN_NODES where this torch does not number them */
    o.given = msp_probe_given_to(o.handed_on);
    extra = o.given < 0 && !module ? add_inner_edges(&w) : 0;
    if (!module && !o.through && msp_probe_wants_gradients())
        add_unneeded(&w);
    if (module && o.n > 1 && !o.through && msp_probe_wants_gradients())
        add_own_uses(&w);
    if (o.any && !w.failed)
        g = make_call(&w, &o, extra, owner);
    else if (o.leaf >= 0 && o.given >= 0)
        g = follow_leaf(&w, &o, owner);
    if (module)
        msp_probe_follow_end(msp_probe_open_modules(), edges, g);
    if (PyErr_Occurred())
        msp_probe_swallow("hooking the gradients", owner->name);
    Py_XDECREF(g);
    free_walk(&w);
    msp_probe_edges_drop(edges);
}
