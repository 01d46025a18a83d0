/*
 * gradient.h - what the files about gradients share, and nobody else.
 *
 *     inputs.c     before a call: where the gradients of its inputs will arrive
 *     walk.c       after it: which nodes are the call's, and which of their edges matter
 *     hook.c       the hooks on these nodes, and the end of a backward pass
 *     gradient.c   the record that the hooks of one call fill
 *     sum.c        several gradients that make one
 *     follow.c     calls that hand on what their module was given
 *     accumulate.c the gradients of parameters
 *
 * A node is the Python object that torch makes for it: grad_fn, and what next_functions leads to.
 */
#ifndef MSP_PY_GRADIENT_H
#define MSP_PY_GRADIENT_H

#include "model/model.h"

/* The gradients of one call: those that enter, one per output, and those that leave, one per input. */
typedef struct grad_call grad_call;

/* Of which of the two tuples that a node's hook is shown. */
typedef enum grad_shown_in { SHOWN_ENTERING, SHOWN_LEAVING } grad_shown_in;

/* What a gradient is to the call. */
typedef enum grad_use {
    GRAD_ENTERS,   /* it enters by the output of that number */
    GRAD_LEAVES,   /* it leaves by the input of that number */
    GRAD_OWN_SHARE /* what the call itself adds to the one that enters by that output, and is to be taken off again */
} grad_use;

/* One gradient that a node's hook is shown. */
typedef struct grad_mapping {
    grad_shown_in in;
    int at; /* position in that tuple */
    grad_use use;
    int slot; /* which gradient of the call that is */
} grad_mapping;

/* A hook on a node of a call, which torch calls with (grad_inputs, grad_outputs): what leaves, and what had entered. */
typedef struct grad_hook {
    PyObject_VAR_HEAD grad_call *call; /* NULL: to put it on its node has failed */
    int passes;                        /* in how many backward passes it has fired */
    grad_mapping map[];
} grad_hook;

/*
 * A call without hooks yet, or NULL. It is an object: its hooks hold it. handed_on: the
 * number of the node whose tensor it returned as it was, -1: it made nodes of its own.
 */
grad_call *msp_probe_grad_call(const grad_owner *owner, int nin, int nout, int64_t handed_on);

/* The call's input of this number gets a gradient of zeros that looks like that, when no other comes. */
void msp_probe_grad_zeros(grad_call *g, int slot, const msp_tensor *like);

/* Have the node hand over n of its gradients; older: the call did not make it. False: it cannot be hooked. */
bool msp_probe_grad_hook(grad_call *g, PyObject *node, const grad_mapping *map, int n, bool older);

/* The call has one hook more, which will tell of these gradients. */
void msp_probe_grad_expect(grad_call *g, const grad_hook *h);

/* What leaves the leader by its input number slot is what enters the call, and leaves it by its own input. False
 * without memory. */
bool msp_probe_grad_follow(grad_call *g, int own, grad_call *leader, int slot);

/* The position of the input that came from this output of the node, or -1. */
int msp_probe_edges_position(const probe_edges *edges, const PyObject *node, int64_t nr);

/*
 * The call hands on what the open module of this number was given. from: the tensor's node, or a leaf tensor itself;
 * map: the gradient that enters and the one that leaves, as the node itself would be hooked. False when that is what is
 * to be done.
 */
bool msp_probe_follow(grad_call *g, Py_ssize_t module, PyObject *from, const grad_mapping map[2]);

/* The module has ended; leader: its gradients, or NULL. */
void msp_probe_follow_end(Py_ssize_t module, const probe_edges *inputs, grad_call *leader);

/* An AccumulateGrad node was met on the walk: it is hooked when its parameter's gradient is recorded. */
void msp_probe_grad_watch(PyObject *accumulate);

int msp_probe_edges_setup(void);
int msp_probe_walk_setup(void);
int msp_probe_hook_setup(void);
int msp_probe_parameter_setup(void);

/* ---- a call's inputs as places of the graph: noted before it (inputs.c), found after it (walk.c) ------------------
 */

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

/* ---- several gradients that make one (sum.c) --------------------------------------------------------------- */

/* A sum on its way: its parts are held and added when it is written. Zeroed is empty. */
typedef struct grad_sum {
    PyObject *parts; /* a list of tensors, never an empty one, or NULL */
    PyObject *less;  /* a list of what is to be taken from the sum, or NULL */
} grad_sum;

/* One more part, and one that is to be taken from the sum. What there is no memory for is left out. */
void msp_sum_add(grad_sum *s, PyObject *v);
void msp_sum_subtract(grad_sum *s, PyObject *v);

/* What one holds becomes the other's, too. */
void msp_sum_share(grad_sum *to, const grad_sum *from);

/* The record of one that is not empty: null when it cannot be had. */
void msp_sum_put(msp_record *r, const grad_sum *s, probe_path *path);

/* Let go of everything. */
void msp_sum_clear(grad_sum *s);

/* Objects of the type can be made; it is made ready when the first one is. */
static inline bool
msp_probe_is_ready(PyTypeObject *type)
{
    return PyType_HasFeature(type, Py_TPFLAGS_READY) || PyType_Ready(type) == 0;
}

/* Whether gradients are read, and not only their calls' places in construct.json. */
static inline bool
msp_probe_wants_gradients(void)
{
    return msp_probe.rules.backward && !msp_probe.rules.structure;
}

/* A tensor in one of the tuples that a hook is shown, lent; NULL: there is no gradient in that place. */
static inline PyObject *
msp_probe_grad_item(PyObject *tuple, int at)
{
    PyObject *v = at < PyTuple_GET_SIZE(tuple) ? PyTuple_GET_ITEM(tuple, at) : NULL;

    return v != NULL && msp_probe_is_tensor(v) ? v : NULL;
}

/* Whether what the call's hooks are shown is still wanted: until the end of the step in which the call was made. */
bool msp_probe_grad_is_alive(const grad_call *g);

/*
 * What the hook of a node was shown in this backward pass goes into its call's record, which is committed when the last
 * hook has told. Returns true when the program is to be stopped, with an exception set.
 */
bool msp_probe_grad_take(grad_hook *h, PyObject *leaving, PyObject *entering, int64_t pass);

/* Have the engine tell us when this pass is over: some hooks of a call never fire. */
void msp_probe_await_end(int64_t pass);

/* Commit the calls that wait for more hooks: of one backward pass, or of all (-1). */
void msp_probe_grad_flush_pass(int64_t pass);

#endif
