/* inputs.h - a call's inputs as places of the graph: what inputs.c notes before a call, walk.c finds
 * after it. */
#ifndef MSP_PY_INPUTS_H
#define MSP_PY_INPUTS_H

#include "grad/gradient.h"

typedef struct input_edge {
    PyObject *node; /* grad_fn, or the leaf tensor itself */
    int64_t nr;
    bool leaf;
    bool reached;     /* an edge of the call's nodes leads to it */
    bool handed_on;   /* the call, a module's, returns it as it is, beside other results */
    int position;     /* among the tensors of the arguments */
    int first;        /* position of the same tensor's first occurrence */
    int last_node;    /* number of the node that was matched with it last */
    PyObject *tensor; /* a module's, for type and shape, or NULL */
} input_edge;

enum { FEW_EDGES = 4 };

struct probe_edges {
    input_edge *more; /* all of them, when they are many; NULL: they are in few */
    int n, cap;
    int leaves;
    int positions; /* tensors seen */
    bool returns;  /* gradients leave by the positional arguments */
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

#endif
