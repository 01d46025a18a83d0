/*
 * grad.h - gradients of calls, as the rest of the collector sees them.
 *
 *     inputs.c     before a call: where the gradients of its inputs will arrive
 *     walk.c       after it: which nodes are the call's, and which of their edges matter
 *     hook.c       the hooks on these nodes, and the end of a backward pass
 *     gradient.c   the record that the hooks of one call fill
 *     sum.c        several gradients that make one
 *     follow.c     calls that hand on what their module was given
 *     accumulate.c the gradients of parameters
 *
 * A node is the Python object that torch makes for an autograd node: grad_fn, and what next_functions leads to. What
 * only the files of this folder know of each other is in gradient.h.
 */
#ifndef MSP_PY_GRAD_H
#define MSP_PY_GRAD_H

#include "call/call.h"

/* ---- a call's inputs as places of the graph (inputs.c) ----------------------------------------------------------- */

/* An input that requires grad, as it was before the call: an in-place function changes its argument's grad_fn. */
typedef struct input_edge {
    PyObject *node;   /* grad_fn; of a leaf, which has none, the tensor itself */
    int64_t nr;       /* which of the node's outputs the tensor is */
    bool leaf;        /* the tensor has no node: what the call adds to its gradient goes to an AccumulateGrad node */
    bool reached;     /* an edge of the call's nodes leads to it */
    bool handed_on;   /* the call, a module's, returns it as it is beside other results */
    int position;     /* among all tensors in the arguments, those without gradients too */
    int first;        /* the position where the same tensor stands first */
    int last_node;    /* the number of the node one of whose edges was matched with it last; -1: none was */
    PyObject *tensor; /* of a module's call: the tensor, for the type and shape of a gradient of zeros; or NULL */
} input_edge;

enum { FEW_EDGES = 4 };

/* The inputs of one call that require grad. */
typedef struct probe_edges {
    input_edge *more; /* all of them when they are more than FEW_EDGES; NULL: they are in few */
    int n, cap;       /* how many they are, and for how many more has room */
    int leaves;       /* how many of them are leaves */
    int positions;    /* how many tensors there are in the arguments */
    bool returns;     /* one of the positional arguments is among them: gradients leave a module by it */
    bool no_graph;    /* the call is made under no_grad() and makes no nodes: it can only hand inputs on */
    int64_t first;    /* the number of the first node that the call will make; -1: this torch does not number nodes */
    input_edge few[FEW_EDGES];
} probe_edges;

/* Before a call: its inputs as places of the graph. NULL when no gradient can arrive, or without memory. */
probe_edges *msp_probe_edges_before(PyObject *self, PyObject *args, PyObject *kwargs, bool module);

/* Whether gradients leave a module by its positional arguments. *first: the number of the first node that it makes. */
bool msp_probe_edges_return(const probe_edges *edges, int64_t *first);

/* Let go of them; NULL is none. */
void msp_probe_edges_drop(probe_edges *edges);

/* ---- after the call (walk.c) ------------------------------------------------------------------------------------- */

/* The call whose gradients these are. */
typedef struct grad_owner {
    const char *name; /* of the record: "Functional.relu.0.backward" */
    size_t len;
    const probe_site *site; /* where the call was made */
    bool is_module; /* inputs that it does not use get a gradient of zeros, as torch's own hooks on modules show it */
} grad_owner;

/* Hook the nodes that the call made, so that its gradients are recorded when they come. Takes edges over. */
void msp_probe_edges_after(probe_edges *edges, PyObject *result, const grad_owner *owner);

/* A module has ended without gradients of its own, by an exception: no call inside it follows it. */
void msp_probe_edges_none(void);

/* ---- nodes and their hooks (inputs.c, hook.c) -------------------------------------------------------------------- */

/* A tensor's grad_fn, a new reference, and its output_nr; NULL: it has none. */
PyObject *msp_probe_node_of(PyObject *tensor, int64_t *nr);

/* node.register_hook(hook): the handle, or NULL with an exception set. And take the hook with this handle out. */
PyObject *msp_probe_hook(PyObject *node, PyObject *hook);
void msp_probe_unhook(PyObject *handle);

/* ---- the end of a step ------------------------------------------------------------------------------------------- */

/* Commit the records that wait for more of their hooks as they are. */
void msp_probe_grad_flush(void);

/* Take the hooks of the step out of nodes that may live on. */
void msp_probe_hooks_step(void);

/* Make the names of attributes that the folder asks for; -1 with an exception set. */
int msp_probe_grad_setup(void);

#endif
