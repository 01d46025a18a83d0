/*
 * gradient.h - what the files about gradients (grad.h lists them) know of each other.
 *
 * A call's gradients are those that enter, one for each output, and those that leave, one for each input. The hooks on
 * the call's nodes bring them; the record is committed when the last hook has fired, or when the backward pass is over.
 */
#ifndef MSP_PY_GRADIENT_H
#define MSP_PY_GRADIENT_H

#include "model/model.h"

/* ---- the record of one call (gradient.c) ------------------------------------------------------------------------- */

/* The gradients of one call. It is a Python object, which its hooks hold. */
typedef struct grad_call grad_call;

/* The two tuples that torch shows to a node's hook: hook(grad_inputs, grad_outputs) has them the other way round. */
typedef enum grad_shown_in {
    SHOWN_ENTERING, /* grad_outputs: what has arrived at the node */
    SHOWN_LEAVING   /* grad_inputs: what the node puts on its edges */
} grad_shown_in;

/* What a gradient is to the call. */
typedef enum grad_use {
    GRAD_ENTERS,   /* it enters by the output of that number */
    GRAD_LEAVES,   /* it leaves by the input of that number */
    GRAD_OWN_SHARE /* what the call itself adds to the one that enters by that output, and is to be taken off again */
} grad_use;

/* One gradient that a node's hook is shown. */
typedef struct grad_mapping {
    grad_shown_in in; /* the tuple in which it stands */
    int at;           /* its position in that tuple */
    grad_use use;     /* what it is to the call */
    int slot;         /* the number of the call's output or input that it belongs to */
} grad_mapping;

/* A hook on a node of a call. */
typedef struct grad_hook {
    PyObject_VAR_HEAD grad_call *call; /* NULL: it could not be put on its node, and is dead */
    int passes;                        /* in how many backward passes it has fired */
    grad_mapping map[];                /* what of the two tuples is the call's; Py_SIZE() says how many */
} grad_hook;

/* A call without hooks yet, a new reference, or NULL without memory. handed_on: the number of the node whose tensor the
 * call returned as it was, or what stands in its place (model/model.h). */
grad_call *msp_probe_grad_call(const grad_owner *owner, int nin, int nout, int64_t handed_on);

/* The call's input of this number gets a gradient of zeros that looks like that, when no other comes. */
void msp_probe_grad_zeros(grad_call *g, int slot, const msp_tensor *like);

/* The call has one hook more, which will tell of these gradients. */
void msp_probe_grad_expect(grad_call *g, const grad_hook *h);

/* What leaves the leader by its input of that number is what enters the call, and leaves it by its own input. False
 * without memory. */
bool msp_probe_grad_follow(grad_call *g, int own, grad_call *leader, int slot);

/* Whether what the call's hooks are shown is still wanted: until the end of the step in which the call was made. */
bool msp_probe_grad_is_alive(const grad_call *g);

/*
 * What the hook of a node was shown in this backward pass goes into its call's record, which is committed when the last
 * hook has told. Returns true when the program is to be stopped, with an exception set.
 */
bool msp_probe_grad_take(grad_hook *h, PyObject *leaving, PyObject *entering, int64_t pass);

/* Commit the calls that wait for more hooks: of the backward pass with this number, or of all of them. */
enum { EVERY_PASS = -1 };
void msp_probe_grad_flush_pass(int64_t pass);

/* ---- hooks (hook.c, accumulate.c) -------------------------------------------------------------------------------- */

/* Have the node show the call n of its gradients; older: the call did not make the node, which may live on after the
 * step. False: it cannot be hooked. */
bool msp_probe_grad_hook(grad_call *g, PyObject *node, const grad_mapping *map, int n, bool older);

/* Have the engine tell us when this pass is over: some hooks of a call never fire. */
void msp_probe_await_end(int64_t pass);

/* An AccumulateGrad node was met on the walk: it is hooked when its parameter's gradient is recorded. */
void msp_probe_grad_watch(PyObject *accumulate);

/* A tensor in one of the tuples that a hook is shown, lent; NULL: there is no gradient in that place. */
static inline PyObject *
msp_probe_grad_item(PyObject *tuple, int at)
{
    PyObject *v = at < PyTuple_GET_SIZE(tuple) ? PyTuple_GET_ITEM(tuple, at) : NULL;

    return v != NULL && msp_probe_is_tensor(v) ? v : NULL;
}

/* Whether gradients are read, and not only their calls' places in construct.json. */
static inline bool
msp_probe_wants_gradients(void)
{
    return msp_probe.rules.backward && !msp_probe.rules.structure;
}

/* ---- inputs (inputs.c) ------------------------------------------------------------------------------------------- */

/* Visit all tensors in arguments or a result, in order; depth: 0. */
typedef void visit_tensor(PyObject *tensor, void *payload);
void msp_probe_each_tensor(PyObject *v, visit_tensor *visit, void *payload, int depth);

static inline input_edge *
items_of(const probe_edges *e)
{
    return e->more != NULL ? e->more : (input_edge *)e->few;
}

/* The position of the input that is this output of the node (of a leaf: this tensor, and 0); -1: none is. */
int msp_probe_edges_position(const probe_edges *edges, const PyObject *node, int64_t nr);

/* ---- calls that hand on what their module was given (follow.c) --------------------------------------------------- */

/*
 * The call hands on what the open module of this number was given. from: the tensor's node, or a leaf tensor itself;
 * map: the gradient that enters and the one that leaves, as the node would be hooked. False without memory: then the
 * node itself is to be hooked.
 */
bool msp_probe_follow(grad_call *g, Py_ssize_t module, PyObject *from, const grad_mapping map[2]);

/* The module has ended, and the calls inside it follow its gradients; leader NULL: it has none. */
void msp_probe_follow_end(Py_ssize_t module, const probe_edges *inputs, grad_call *leader);

/* ---- several gradients that make one (sum.c) --------------------------------------------------------------------- */

/* A sum on its way: its parts are held, and added when it is written. Zeroed is empty. */
typedef struct grad_sum {
    PyObject *parts; /* a list of the tensors that are added, never an empty one; NULL: none has come */
    PyObject *less;  /* a list of the tensors that are taken off the sum; NULL: there are none */
} grad_sum;

/* One more part, and one that is to be taken off the sum. What there is no memory for is left out. */
void msp_sum_add(grad_sum *s, PyObject *v);
void msp_sum_subtract(grad_sum *s, PyObject *v);

/* The parts of one become the other's, too. */
void msp_sum_share(grad_sum *to, const grad_sum *from);

/* Write the record of a sum that has parts: null when it cannot be had. */
void msp_sum_put(msp_record *r, const grad_sum *s, probe_path *path);

/* Let go of everything. */
void msp_sum_clear(grad_sum *s);

/* ---- for msp_probe_grad_setup() ---------------------------------------------------------------------------------- */

int msp_probe_edges_setup(void);
int msp_probe_walk_setup(void);
int msp_probe_hook_setup(void);
int msp_probe_parameter_setup(void);

#endif
