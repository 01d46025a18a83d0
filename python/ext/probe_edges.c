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
#include <stddef.h>
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

/* ---- nodes: torch's own where they are read directly, otherwise the Python objects that stand for them
 * ---------------------------- */

static bool
requires_grad(PyObject *tensor, bool direct)
{
    PyObject *v;

    if (direct)
        return msp_node_requires_grad(msp_probe_tensor_handle(tensor));
    v = PyObject_GetAttr(tensor, str_requires_grad);
    Py_XDECREF(v);
    PyErr_Clear();
    return v == Py_True;
}

/* A tensor's grad_fn and output_nr; NULL: it has none. A Python object is a new reference. */
static void *
node_of(PyObject *tensor, bool direct, int64_t *nr)
{
    PyObject *fn;

    if (direct)
        return msp_node_of(tensor, nr);
    fn = PyObject_GetAttr(tensor, str_grad_fn);
    if (fn == Py_None)
        Py_CLEAR(fn);
    if (fn != NULL)
        *nr = msp_probe_number(PyObject_GetAttr(tensor, str_output_nr));
    PyErr_Clear();
    return fn;
}

/* Torch's own are not held: they live as long as the graph, and a sequence number tells one from a later one. */
static void
hold(void *node, bool direct)
{
    if (!direct)
        Py_INCREF((PyObject *)node);
}

static void
drop(void *node, bool direct)
{
    if (!direct)
        Py_XDECREF((PyObject *)node);
}

static bool
is_accumulate(void *node, bool direct)
{
    static PyTypeObject *known; /* there is one such type, and it lives as long as torch */

    if (direct)
        return msp_node_is_accumulate(node);
    if (known == NULL && strstr(Py_TYPE(node)->tp_name, "AccumulateGrad") != NULL)
        known = Py_TYPE(node);
    return Py_TYPE(node) == known;
}

static int64_t
sequence_of(void *node, bool direct)
{
    return direct ? msp_node_sequence(node) : msp_probe_number(PyObject_CallMethodObjArgs(node, str_sequence, NULL));
}

/* Whether this is the tensor for which the AccumulateGrad node is there. */
static bool
accumulates_into(void *accumulate, bool direct, PyObject *tensor)
{
    PyObject *variable;

    if (direct)
        return msp_node_variable(accumulate) == *(void **)msp_probe_tensor_handle(tensor);
    variable = PyObject_GetAttr(accumulate, str_variable);
    Py_XDECREF(variable);
    PyErr_Clear();
    return variable == tensor;
}

/* ---- before the call
 * -------------------------------------------------------------------------------------------------------- */

typedef struct input_edge {
    void *node; /* grad_fn, or the leaf tensor itself, which is held */
    int64_t nr;
    int64_t sequence; /* of a node that is not held */
    bool leaf;
    bool reached;     /* an edge of the call's nodes leads to it */
    int position;     /* among the tensors of the arguments */
    int first;        /* position of the same tensor's first occurrence */
    int last_node;    /* number of the node that was matched with it last */
    PyObject *tensor; /* a module's: held, for type and shape */
} input_edge;

enum { FEW_EDGES = 4 };

struct probe_edges {
    input_edge *more; /* all of them, when they are many; NULL: they are in few */
    int n, cap;
    int leaves;
    int positions; /* tensors seen */
    bool returns;  /* gradients leave by the positional arguments */
    bool direct;   /* nodes are torch's own */
    bool no_graph; /* the call makes no nodes: what it returns of its inputs is all that may have some */
    int64_t first; /* sequence number of the first node that the call will make; -1: torch has none */
    input_edge few[FEW_EDGES];
};

static input_edge *
items_of(const probe_edges *e)
{
    return e->more != NULL ? e->more : (input_edge *)e->few;
}

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
    input_edge *edge = requires_grad(t, e->direct) ? new_edge(e) : NULL;

    if (edge == NULL)
        return;
    edge->node = node_of(t, e->direct, &edge->nr);
    edge->leaf = edge->node == NULL;
    if (edge->leaf && e->no_graph)
        return; /* an optimizer's step, say: nothing will ever lead to it */
    e->leaves += edge->leaf;
    if (edge->leaf) {
        Py_INCREF(t);
        edge->node = t;
    } else if (e->direct) {
        edge->sequence = msp_node_sequence(edge->node);
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
release(probe_edges *e)
{
    for (int i = 0; i < e->n; i++) {
        input_edge *edge = &items_of(e)[i];

        drop(edge->node, e->direct && !edge->leaf);
        Py_XDECREF(edge->tensor);
    }
    PyMem_Free(e->more);
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
    probe_edges e, *out;

    memset(&e, 0, offsetof(probe_edges, few));
    e.no_graph = !module && !msp_probe_grad_enabled();
    e.direct = msp_probe.sequence_nr != NULL && msp_node_usable();
    each_tensor(self, visit, &e, 0);
    each_tensor(args, visit, &e, 0);
    e.returns = e.n > 0;
    each_tensor(kwargs, visit, &e, 0);
    if (e.n == 0 && (e.no_graph || !msp_probe_watches()) && !module)
        return NULL; /* a module has parameters that may need gradients */
    e.first = msp_probe_next_node();
    out = PyMem_Malloc(sizeof(*out));
    if (out != NULL)
        memcpy(out, &e, e.more != NULL ? offsetof(probe_edges, few) : sizeof(e));
    else
        release(&e);
    return out;
}

int
msp_probe_edges_position(const probe_edges *e, const void *node, int64_t nr)
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
        release(e);
    PyMem_Free(e);
}

/* ---- after the call
 * ----------------------------------------------------------------------------------------------------------- */

enum { FEW_NODES = 12, FEW_MAPPINGS = 4 };

/* A node of the call, and which of its edges matter. */
typedef struct walked {
    void *node;
    PyObject *next;     /* its next_functions, once it was followed; NULL with torch's own */
    grad_mapping *more; /* entering first; NULL: they are in few */
    int nin, nout, cap;
    grad_mapping few[FEW_MAPPINGS];
} walked;

/* Most calls make few nodes: a table, and memory that is not on the stack, is for those that make many. */
typedef struct walk {
    const probe_edges *edges;
    walked *nodes;
    int n, cap;
    int *index; /* hash of the node's address -> number + 1; NULL: they are looked through */
    int slots;
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

static int *
find_slot(walk *w, const void *node)
{
    int i = (int)(((uintptr_t)node >> 4) * 0x9E3779B1u) & (w->slots - 1);

    while (w->index[i] != 0 && w->nodes[w->index[i] - 1].node != node)
        i = (i + 1) & (w->slots - 1);
    return &w->index[i];
}

/* The number of this node, -1: it is new. */
static int
find_node(walk *w, const void *node)
{
    if (w->index != NULL)
        return *find_slot(w, node) - 1;
    for (int i = w->n; i-- > 0;)
        if (w->nodes[i].node == node)
            return i;
    return -1;
}

static bool
grow_walk(walk *w)
{
    int cap = w->cap * 2;
    walked *nodes = PyMem_Realloc(w->nodes == w->few ? NULL : w->nodes, (size_t)cap * sizeof(*nodes));
    int slots = 64;

    if (nodes != NULL && w->nodes == w->few)
        memcpy(nodes, w->few, sizeof(w->few));
    if (nodes != NULL)
        w->nodes = nodes;
    while (slots < cap * 2)
        slots *= 2;
    PyMem_Free(w->index);
    w->index = PyMem_Calloc((size_t)slots, sizeof(*w->index));
    w->failed = nodes == NULL || w->index == NULL;
    if (w->failed)
        return false;
    w->slots = slots;
    w->cap = cap;
    for (int i = 0; i < w->n; i++)
        *find_slot(w, w->nodes[i].node) = i + 1;
    return true;
}

/* The number of this node, noted when it is new; -1 when there is no memory. */
static int
note_node(walk *w, void *node)
{
    int known = find_node(w, node);

    if (known >= 0 || (w->n == w->cap && !grow_walk(w)))
        return known;
    hold(node, w->edges->direct);
    w->nodes[w->n] = (walked){.node = node};
    if (w->index != NULL)
        *find_slot(w, node) = w->n + 1;
    return w->n++;
}

static void
add_mapping(walk *w, int node, bool entering, int at, int slot_number)
{
    walked *k = &w->nodes[node];
    int cap = k->more == NULL ? FEW_MAPPINGS : k->cap;
    grad_mapping *map = map_of(k);

    if (k->nin + k->nout == cap) {
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
    if (entering) {
        memmove(map + k->nin + 1, map + k->nin, (size_t)k->nout * sizeof(*map));
        map[k->nin++] = (grad_mapping){at, slot_number};
    } else {
        map[k->nin + k->nout++] = (grad_mapping){at, slot_number};
    }
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

static bool
is_new(const walk *w, void *node)
{
    if (is_accumulate(node, w->edges->direct))
        return false;
    if (w->edges->first < 0)
        return w->n < MOST_NODES && !is_known(w, node);
    return sequence_of(node, w->edges->direct) >= w->edges->first;
}

static bool
leads_to(const walk *w, const input_edge *e, void *target, bool accumulate, int64_t nr)
{
    if (e->leaf)
        return accumulate && accumulates_into(target, w->edges->direct, e->node);
    return e->node == target && e->nr == nr && (!w->edges->direct || msp_node_sequence(target) == e->sequence);
}

/* The input to which this edge of node number n leads, or NULL. One tensor in two places gets each of a node's edges
 * once. */
static input_edge *
boundary(walk *w, int n, void *target, int64_t nr)
{
    bool accumulate = w->edges->leaves > 0 && is_accumulate(target, w->edges->direct);
    input_edge *hit = NULL;

    for (int i = 0; i < w->edges->n; i++) {
        input_edge *e = &items_of(w->edges)[i];

        if (!leads_to(w, e, target, accumulate, nr))
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

static int
count_edges(walk *w, int n)
{
    PyObject *next;

    if (w->edges->direct)
        return msp_node_edges(w->nodes[n].node);
    next = next_of(w, n);
    return next == NULL ? 0 : (int)PyTuple_GET_SIZE(next);
}

/* Where one of the node's edges leads, NULL: nowhere. */
static void *
edge_of(walk *w, int n, int i, int64_t *nr)
{
    PyObject *pair;

    if (w->edges->direct)
        return msp_node_edge(w->nodes[n].node, i, nr);
    pair = PyTuple_GET_ITEM(w->nodes[n].next, i);
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 || PyTuple_GET_ITEM(pair, 0) == Py_None)
        return NULL;
    *nr = PyLong_AsLongLong(PyTuple_GET_ITEM(pair, 1));
    return PyTuple_GET_ITEM(pair, 0);
}

/* Follow the edges of one node; nodes of the call that are met for the first time are appended to w->nodes. */
static void
follow(walk *w, int n)
{
    const bool direct = w->edges->direct;
    int count = count_edges(w, n);

    for (int i = 0; i < count && !w->failed; i++) {
        int64_t nr = 0;
        void *target = edge_of(w, n, i, &nr);
        input_edge *e;

        if (target == NULL)
            continue;
        if (msp_probe_watches() && is_accumulate(target, direct))
            msp_probe_grad_watch(target, direct);
        e = boundary(w, n, target, nr);
        if (e != NULL)
            add_mapping(w, n, false, i, e->position);
        else if (is_new(w, target))
            note_node(w, target);
    }
}

/* The input that a call without a node of its own hands on gets what arrives for the output. */
static void
pass_through(walk *w, int node, int64_t nr)
{
    for (int i = 0; i < w->edges->n; i++) {
        const input_edge *e = &items_of(w->edges)[i];

        if (!e->leaf && e->node == w->nodes[node].node && e->nr == nr) {
            add_mapping(w, node, false, -1 - (int)nr, e->position);
            return;
        }
    }
}

typedef struct outputs {
    walk *walk;
    int n;           /* tensors in the result */
    PyObject *first; /* of them, lent */
    bool any;
    bool through;      /* the call made no node: it handed its input on, as to() and dropout without effect do */
    int64_t handed_on; /* ... of the node with this number, or a leaf; -1: no, or the call of a module */
    Py_ssize_t given;  /* ... which this open module was given; -1: none */
    int leaf;          /* ... position among the inputs of the leaf that it is; -1: it is none */
} outputs;

/* The position of this leaf among the inputs, -1: it is none of them. */
static int
leaf_position(const probe_edges *e, const PyObject *tensor)
{
    return e->leaves > 0 ? msp_probe_edges_position(e, tensor, 0) : -1;
}

static void
note_output(PyObject *t, void *payload)
{
    outputs *o = payload;
    const bool direct = o->walk->edges->direct;
    int index = o->n++, node;
    int64_t nr = 0;
    void *fn = node_of(t, direct, &nr);
    bool new = fn != NULL && !o->through &&is_new(o->walk, fn);

    if (index == 0) {
        o->first = t;
        o->leaf = fn == NULL ? leaf_position(o->walk->edges, t) : -1;
    }
    if (new || (fn != NULL && !o->through && index == 0)) {
        o->through = !new;
        node = note_node(o->walk, fn);
        if (node >= 0)
            add_mapping(o->walk, node, true, (int)nr, index);
        if (node >= 0 && o->through)
            pass_through(o->walk, node, nr);
        o->any = true;
    }
    drop(fn, direct);
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
        for (int j = w->nodes[i].nin; j < w->nodes[i].nin + w->nodes[i].nout; j++)
            map_of(&w->nodes[i])[j].slot = first[map_of(&w->nodes[i])[j].slot];
    PyMem_Free(first);
}

static int
count_contributions(const walk *w, int slot_number)
{
    int n = 0;

    for (int i = 0; i < w->n; i++)
        for (int j = w->nodes[i].nin; j < w->nodes[i].nin + w->nodes[i].nout; j++)
            n += map_of(&w->nodes[i])[j].slot == slot_number;
    return n;
}

/* Whether what the node puts on this edge is recorded alone, as the gradient of an input. */
static bool
is_recorded_alone(const walk *w, const walked *k, int at)
{
    for (int i = k->nin; i < k->nin + k->nout; i++)
        if (map_of(k)[i].at == at && count_contributions(w, map_of(k)[i].slot) == 1)
            return true;
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
            add_mapping(w, 0, false, i, w->edges->positions + extra++);
    return extra;
}

/* Which gradient that enters the call arrives at this output of a node; -1: none. */
static int
entering_at(walk *w, const void *node, int64_t nr)
{
    int known = find_node(w, node);

    for (int i = 0; known >= 0 && i < w->nodes[known].nin; i++)
        if (map_of(&w->nodes[known])[i].at == nr)
            return map_of(&w->nodes[known])[i].slot;
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
        int count = count_edges(w, n);

        for (int i = 0; i < count && !w->failed; i++) {
            int64_t nr = 0;
            void *target = edge_of(w, n, i, &nr);
            int slot_number = target == NULL ? -1 : entering_at(w, target, nr);

            if (slot_number >= 0)
                add_mapping(w, n, false, i, -1 - slot_number);
        }
    }
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

/* The gradient of a call that hands on what its module was given is taken when the module has ended; the node is held
 * until then. */
static bool
follow_module(const walk *w, const outputs *o, grad_call *g)
{
    const walked *first = &w->nodes[0];
    PyObject *object = w->edges->direct ? PyObject_GetAttr(o->first, str_grad_fn) : (PyObject *)first->node;
    bool done;

    if (!w->edges->direct)
        Py_INCREF(object);
    PyErr_Clear();
    done = object != NULL && first->nin == 1 && first->nout == 1 &&
           msp_probe_follow(g, o->given, first->node, w->edges->direct, object, map_of(first));
    Py_XDECREF(object);
    return done;
}

/* The same for a leaf: it has no node, so that nothing else can be said of the call. */
static grad_call *
follow_leaf(const walk *w, const outputs *o, const char *name, size_t len)
{
    const grad_mapping map[2] = {{0, 0}, {0, o->leaf}};
    grad_call *g = msp_probe_grad_call(name, len, o->n, w->edges->positions, o->handed_on);

    if (g != NULL)
        msp_probe_follow(g, o->given, o->first, false, o->first, map);
    return g;
}

static grad_call *
make_call(const walk *w, const outputs *o, int extra, const char *name, size_t len, bool module)
{
    grad_call *g = msp_probe_grad_call(name, len, o->n, w->edges->positions + extra, o->handed_on);

    if (g != NULL && o->given >= 0 && follow_module(w, o, g))
        return g;
    for (int i = 0; g != NULL && i < w->n; i++)
        if (w->nodes[i].nin + w->nodes[i].nout > 0)
            msp_probe_grad_hook(g, w->nodes[i].node, w->edges->direct, map_of(&w->nodes[i]), w->nodes[i].nin,
                                w->nodes[i].nout);
    if (g != NULL && module && msp_probe_wants_gradients())
        expect_zeros(g, w->edges);
    return g;
}

static void
free_walk(walk *w)
{
    for (int i = 0; i < w->n; i++) {
        drop(w->nodes[i].node, w->edges->direct);
        Py_XDECREF(w->nodes[i].next);
        PyMem_Free(w->nodes[i].more);
    }
    if (w->nodes != w->few)
        PyMem_Free(w->nodes);
    PyMem_Free(w->index);
}

void
msp_probe_edges_after(probe_edges *edges, PyObject *result, const char *name, size_t len, bool module)
{
    walk w;
    outputs o = {.walk = &w, .leaf = -1};
    grad_call *g = NULL;
    int extra;

    start_walk(&w, edges);
    each_tensor(result, note_output, &o, 0);
    for (int i = 0; o.any && !o.through && i < w.n && !w.failed; i++)
        follow(&w, i);
    merge_same_tensors(&w);
    o.handed_on = o.through && !module && w.n > 0 ? sequence_of(w.nodes[0].node, edges->direct) : -1;
    if (o.leaf >= 0 && !module)
        o.handed_on = MSP_PROBE_LEAF;
    o.given = msp_probe_given_to(o.handed_on);
    extra = o.given < 0 && !module ? add_inner_edges(&w) : 0;
    if (module && o.n > 1 && !o.through && msp_probe_wants_gradients())
        add_own_uses(&w);
    if (o.any && !w.failed)
        g = make_call(&w, &o, extra, name, len, module);
    else if (o.leaf >= 0 && o.given >= 0)
        g = follow_leaf(&w, &o, name, len);
    if (module)
        msp_probe_follow_end(msp_probe_open_modules(), edges, g);
    if (PyErr_Occurred())
        msp_probe_swallow("hooking the gradients", name);
    Py_XDECREF(g);
    free_walk(&w);
    msp_probe_edges_drop(edges);
}
