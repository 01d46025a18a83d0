/*
 * probe_grad.h - what the files about gradients share, and nobody else.
 *
 *     probe_edges.c     before a call and after it: which nodes are the call's, and which of their edges matter
 *     probe_grad.c      the record that the hooks of one call fill, and the gradients of parameters
 *     probe_follow.c    calls that hand on what their module was given
 *     probe_register.c  putting hooks on nodes
 */
#ifndef MSP_PY_PROBE_GRAD_H
#define MSP_PY_PROBE_GRAD_H

#include "probe.h"

/* The gradients of one call: those that enter, one per output, and those that leave, one per input. */
typedef struct grad_call grad_call;

/* One gradient that a node's hook is shown. */
typedef struct grad_mapping {
    int at; /* position in the tuple that the hook gets; leaving and negative: -1 - position among the entering ones */
    int slot; /* which gradient of the call that is */
} grad_mapping;

extern PyTypeObject msp_probe_grad_hook_type, msp_probe_parameter_hook_type;

/* A call without hooks yet, under its name in backward, or NULL. It is an object: its hooks hold it. handed_on: the
 * number of the node whose tensor it returned as it was, -1: it made nodes of its own. */
grad_call *msp_probe_grad_call(const char *name, size_t len, int nin, int nout, int64_t handed_on);

/* The call's input of this number gets a gradient of zeros that looks like that, when no other comes. */
void msp_probe_grad_zeros(grad_call *g, int slot, const msp_tensor *like);

/* Have the node hand over its gradients: nin that enter it and then nout that leave it. False with an exception set. */
bool msp_probe_grad_hook(grad_call *g, PyObject *node, const grad_mapping *map, int nin, int nout);

/* What leaves the leader by its input number slot is what enters the call, and leaves it by its own input. False
 * without memory. */
bool msp_probe_grad_follow(grad_call *g, int own, grad_call *leader, int slot);

/* The position of the input that came from this output of the node, or -1. */
int msp_probe_edges_position(const probe_edges *edges, PyObject *node, int64_t nr);

/* The call hands on what the open module of this number was given; map: how the node itself would be hooked. False when
 * that is what is to be done. */
bool msp_probe_follow(grad_call *g, Py_ssize_t module, PyObject *node, const grad_mapping *map, int nin, int nout);

/* The module has ended; leader: its gradients, or NULL. */
void msp_probe_follow_end(Py_ssize_t module, const probe_edges *inputs, grad_call *leader);

/* An AccumulateGrad node was met on the walk: it is hooked when its parameter's gradient is recorded. */
void msp_probe_grad_watch(PyObject *accumulate);

/* node.register_hook(hook): a handle for msp_probe_unhook(), or NULL with an exception set. */
PyObject *msp_probe_hook(PyObject *node, PyObject *hook);

int msp_probe_edges_setup(void);
int msp_probe_register_setup(void);

/* Whether gradients are read, and not only their calls' places in construct.json. */
static inline bool
msp_probe_wants_gradients(void)
{
    return msp_probe.rules.backward && !msp_probe.rules.structure;
}

/* What an attribute or a call said, as a number; -1 when it failed. Takes the reference over. */
static inline int64_t
msp_probe_number(PyObject *v)
{
    int64_t n = v == NULL ? -1 : (int64_t)PyLong_AsUnsignedLongLongMask(v);

    Py_XDECREF(v);
    PyErr_Clear();
    return n;
}

#endif
