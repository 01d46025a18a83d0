/* probe_edges.h - a call's inputs as places of the graph: what probe_edges.c notes before a call, probe_walk.c finds
 * after it. */
#ifndef MSP_PY_PROBE_EDGES_H
#define MSP_PY_PROBE_EDGES_H

#include "probe_grad.h"

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

static inline input_edge *
items_of(const probe_edges *e)
{
    return e->more != NULL ? e->more : (input_edge *)e->few;
}

/* All tensors in arguments or a result, in order; depth: 0. */
typedef void visit_tensor(PyObject *tensor, void *payload);
void msp_probe_each_tensor(PyObject *v, visit_tensor *visit, void *payload, int depth);

/* A tensor's grad_fn and output_nr; NULL: it has none. direct: torch's own, otherwise a new reference to the Python
 * object that stands for it. */
void *msp_probe_node_of(PyObject *tensor, bool direct, int64_t *nr);

/* Torch's own are not held: they live as long as the graph, and a sequence number tells one from a later one. */
static inline void
hold_node(void *node, bool direct)
{
    if (!direct)
        Py_INCREF((PyObject *)node);
}

static inline void
drop_node(void *node, bool direct)
{
    if (!direct)
        Py_XDECREF((PyObject *)node);
}

#endif
