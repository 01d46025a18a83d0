/*
 * follow.c - gradients of calls that hand on what their module was given.
 *
 * Such a call has no node of its own, and the tensor's node gathers what all users of the tensor send back, those
 * outside the module included: x.to(dtype) in a norm, beside a residual connection. What came by way of the call is
 * what leaves the module by that input. It is taken from the module's gradients, which are hooked when the module has
 * ended.
 */
#include "grad/gradient.h"

typedef struct follower {
    grad_call *call;
    PyObject *from;      /* the node of the tensor that is handed on; of a leaf the tensor itself */
    grad_mapping map[2]; /* what enters the call, what leaves it */
    Py_ssize_t module;   /* number of the module among the open ones */
} follower;

static __thread follower *pending;
static __thread int n_pending, cap_pending;

static follower *
new_follower(void)
{
    if (n_pending == cap_pending) {
        int cap = cap_pending == 0 ? 4 : cap_pending * 2;
        follower *items = PyMem_Realloc(pending, (size_t)cap * sizeof(*items));

        if (items == NULL)
            return NULL;
        pending = items;
        cap_pending = cap;
    }
    return &pending[n_pending];
}

bool
msp_probe_follow(grad_call *g, Py_ssize_t module, PyObject *from, const grad_mapping map[2])
{
    follower *f = map[0].slot == 0 ? new_follower() : NULL;

    if (f == NULL)
        return false;
    Py_INCREF(g);
    Py_INCREF(from);
    *f = (follower){g, from, {map[0], map[1]}, module};
    n_pending++;
    return true;
}

static void
settle_follower(follower *f, const probe_edges *inputs, grad_call *leader)
{
    int position = leader == NULL ? -1 : msp_probe_edges_position(inputs, f->from, f->map[0].at);

    if ((position < 0 || !msp_probe_grad_follow(f->call, f->map[1].slot, leader, position)) &&
        !msp_probe_is_tensor(f->from)) /* a leaf cannot be hooked */
        msp_probe_grad_hook(f->call, f->from, f->map, 2, true);
    Py_DECREF(f->call);
    Py_DECREF(f->from);
}

void
msp_probe_follow_end(Py_ssize_t module, const probe_edges *inputs, grad_call *leader)
{
    while (n_pending > 0 && pending[n_pending - 1].module >= module) {
        follower f = pending[--n_pending];

        settle_follower(&f, inputs, f.module == module ? leader : NULL);
    }
    if (n_pending == 0 && cap_pending > 0) {
        PyMem_Free(pending);
        pending = NULL;
        cap_pending = 0;
    }
}
