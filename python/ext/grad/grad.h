/*
 * grad.h - gradients of calls, as the rest of the collector sees them; what its files share: gradient.h.
 */
#ifndef MSP_PY_GRAD_H
#define MSP_PY_GRAD_H

#include "call/call.h"
#include "tensor/tensor.h"

/* Before the call: where the inputs' gradients will go. NULL when none can. */
probe_edges *msp_probe_edges_before(PyObject *self, PyObject *args, PyObject *kwargs, bool module);

/* The call whose gradients these are. */
typedef struct grad_owner {
    const char *name; /* of the record: "Functional.relu.0.backward" */
    size_t len;
    const probe_site *site; /* where the call was made */
    bool is_module; /* inputs that it does not use get a gradient of zeros, as torch's own hooks on modules show it */
} grad_owner;

/* After it: hook the nodes that the call made. Takes edges over. */
void msp_probe_edges_after(probe_edges *edges, PyObject *result, const grad_owner *owner);
void msp_probe_edges_drop(probe_edges *edges);

/* Whether gradients leave by a module's positional arguments. *first: the number of the first node that it makes. */
bool msp_probe_edges_return(const probe_edges *edges, int64_t *first);

/* A module has ended without gradients of its own, by an exception: no call inside it follows it. */
void msp_probe_edges_none(void);

/* Gradient records that wait for more of their nodes are committed as they are. */
void msp_probe_grad_flush(void);

int msp_probe_grad_setup(void);

/* A tensor's grad_fn, a new reference, and its output_nr; NULL: it has none. */
PyObject *msp_probe_node_of(PyObject *tensor, int64_t *nr);

/* node.register_hook(hook): the handle, or NULL with an exception set. */
PyObject *msp_probe_hook(PyObject *node, PyObject *hook);

/* Take out the hook that node.register_hook() gave this handle for. */
void msp_probe_unhook(PyObject *handle);

/* A step is over: its hooks are taken out of nodes that may live on. */
void msp_probe_hooks_step(void);

#endif
