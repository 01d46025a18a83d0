/*
 * probe_grad.h - what the files about gradients share, and nobody else.
 *
 *     probe_edges.c     before a call: where the gradients of its inputs will arrive
 *     probe_walk.c      after it: which nodes are the call's, and which of their edges matter
 *     probe_grad.c      the record that the hooks of one call fill
 *     probe_hook.c      these hooks
 *     probe_sum.c       several gradients that make one
 *     probe_parameter.c the gradients of parameters
 *     probe_follow.c    calls that hand on what their module was given
 *     probe_node.c      nodes read and hooked directly, where that was proven
 *     probe_meta.c      a tensor's node, read in the same way
 *     probe_register.c  the other way to put hooks on them
 *     probe_batch.c     what hooks that were put on nodes directly are shown, until it is worked out
 */
#ifndef MSP_PY_PROBE_GRAD_H
#define MSP_PY_PROBE_GRAD_H

#include "probe.h"

/* The gradients of one call: those that enter, one per output, and those that leave, one per input. */
typedef struct grad_call grad_call;

/* One gradient that a node's hook is shown. */
typedef struct grad_mapping {
    int at; /* position in the tuple that the hook gets; leaving and negative: -1 - position among the entering ones */
    int slot; /* which gradient of the call that is; leaving and negative: -1 - the one that enters of which it is a
                 part */
} grad_mapping;

/* What torch holds of a hook that was put on a node directly; its first word is what torch knows of it. */
typedef struct node_link {
    const void *functions;
    struct node_link *then; /* behind it, with nothing between the two: torch knows only of the first */
    struct node_link *next; /* in the list of those whose node is gone */
    PyObject *owner; /* whose memory it is: a grad_call or a parameter_hook; while it is on a node, it holds it */
} node_link;

/* A hook on a node of a call. */
typedef struct grad_hook {
    node_link link; /* first; its owner is the call */
    int passes;     /* in how many backward passes it has fired */
    int nin, nout;
    grad_mapping map[]; /* nin entering, then nout leaving */
} grad_hook;

/* Whether the link is a grad_hook's. */
bool msp_probe_is_grad_hook(const node_link *link);

extern PyTypeObject msp_probe_grad_hook_type, msp_probe_parameter_hook_type;

/*
 * A call without hooks yet, under its name in backward, or NULL. It is an object: its hooks hold it. room: for its
 * hooks, the sum of what msp_probe_grad_room() says, or less. handed_on: the number of the node whose tensor it
 * returned as it was, -1: it made nodes of its own.
 */
grad_call *msp_probe_grad_call(const char *name, size_t len, int nin, int nout, size_t room, int64_t handed_on);

/* What a hook with n mappings needs; and a hook, the call's, or NULL without memory. */
size_t msp_probe_grad_room(int n);
grad_hook *msp_probe_grad_new_hook(grad_call *g, const grad_mapping *map, int nin, int nout);

/* The call's input of this number gets a gradient of zeros that looks like that, when no other comes. */
void msp_probe_grad_zeros(grad_call *g, int slot, const msp_tensor *like);

/*
 * Have the node hand over its gradients: nin that enter it and then nout that leave it. direct: node is torch's own,
 * and not a Python object. False, perhaps with an exception set: it cannot be hooked.
 */
bool msp_probe_grad_hook(grad_call *g, void *node, bool direct, const grad_mapping *map, int nin, int nout);

/* The call has one hook more, which will tell of these gradients. */
void msp_probe_grad_expect(const grad_hook *h);

/* What leaves the leader by its input number slot is what enters the call, and leaves it by its own input. False
 * without memory. */
bool msp_probe_grad_follow(grad_call *g, int own, grad_call *leader, int slot);

/* The position of the input that came from this output of the node, or -1. */
int msp_probe_edges_position(const probe_edges *edges, const void *node, int64_t nr);

/* The call hands on what the open module of this number was given. object holds the node; map: the one gradient that
 * enters and the one that leaves, as the node itself would be hooked. False when that is what is to be done. */
bool msp_probe_follow(grad_call *g, Py_ssize_t module, void *node, bool direct, PyObject *object,
                      const grad_mapping map[2]);

/* The module has ended; leader: its gradients, or NULL. */
void msp_probe_follow_end(Py_ssize_t module, const probe_edges *inputs, grad_call *leader);

/* An AccumulateGrad node was met on the walk: it is hooked when its parameter's gradient is recorded. */
void msp_probe_grad_watch(void *accumulate, bool direct);

/* A hook that was put on a node directly: what the node put on its edges, and what had arrived, lists of torch's. */
void msp_probe_grad_fire(node_link *hook, const void *leaving, const void *entering);

/* ---- the same later (probe_batch.c) ------------------------------------------------------------------------------ */

typedef struct probe_batch probe_batch;
typedef struct probe_shown probe_shown;

/* Note what the hooks of one node are shown, without the interpreter lock. False: they must be run now. */
bool msp_batch_take(const node_link *first, const void *leaving, const void *entering);

/* ... each of them the tensors that it will ask for, by msp_batch_note(): a copy, or only its record. */
bool msp_probe_grad_note(probe_batch *b, const grad_hook *h, const void *leaving, const void *entering);

/* The same for the one gradient that comes for this parameter. */
bool msp_batch_take_parameter(const void *variable, const void *gradients);
bool msp_batch_note(probe_batch *b, bool entering, int at, const void *handle, bool copy);

/* ... and run the hook with what was noted. */
void msp_probe_grad_work(grad_hook *h, const probe_shown *shown, int64_t task);
void msp_probe_parameter_work(const void *variable, const probe_shown *shown);
probe_lent msp_batch_item(const probe_shown *of, bool entering, int at);

/* The end of this backward pass will be told of: what its hooks are shown on this thread may wait until then. */
void msp_batch_begin_pass(int64_t task);

/* node.register_hook(hook): a handle for msp_probe_unhook(), or NULL with an exception set. */
PyObject *msp_probe_hook(PyObject *node, PyObject *hook);

/* ---- nodes without Python objects (probe_node.c): torch's own, lent while their graph is there ------------------- */

/* A tensor's grad_fn (NULL: none) and output_nr (probe_meta.c). */
void *msp_node_of(PyObject *tensor, int64_t *nr);

/* Find what torch has there: functions; then, after that, offsets, in which all of these samples agree. */
typedef struct meta_sample {
    const char *impl; /* what stands at a tensor's handle */
    const void *node; /* its grad_fn; NULL: it is a leaf that requires grad */
    uint32_t nr;      /* its output_nr */
} meta_sample;

bool msp_meta_functions(void *torch);
bool msp_meta_find(const meta_sample *samples, int n);

/* Where a node has what, in bytes; and what the first word of an AccumulateGrad node is, and of one that is watched. */
typedef struct node_layout {
    const char *accumulate, *watched;
    size_t sequence, edges, hooks, variable;
} node_layout;

extern node_layout msp_node_layout;

/* std::vector of libstdc++ and libc++ */
typedef struct cpp_vector {
    char *begin, *end, *limit;
} cpp_vector;

typedef struct cpp_edge {
    void *node;
    uint32_t nr;
} cpp_edge;

static inline bool
msp_node_is_accumulate(const void *node)
{
    const char *first = *(const char *const *)node;

    return first == msp_node_layout.accumulate || first == msp_node_layout.watched;
}

static inline bool
msp_node_is_watched(const void *accumulate)
{
    return *(const char *const *)accumulate == msp_node_layout.watched;
}

static inline int64_t
msp_node_sequence(const void *node)
{
    return *(const int64_t *)((const char *)node + msp_node_layout.sequence);
}

/* next_functions: how many there are, and one of them; NULL: that input needs no gradient. */
static inline int
msp_node_edges(const void *node)
{
    const cpp_vector *v = (const void *)((const char *)node + msp_node_layout.edges);

    return (int)((size_t)(v->end - v->begin) / sizeof(cpp_edge));
}

static inline void *
msp_node_edge(const void *node, int i, int64_t *nr)
{
    const cpp_vector *v = (const void *)((const char *)node + msp_node_layout.edges);
    const cpp_edge *e = (const cpp_edge *)v->begin + i;

    *nr = e->nr;
    return e->node;
}

/* The tensor of an AccumulateGrad node, as *msp_probe_tensor_handle() is one. */
static inline const void *
msp_node_variable(const void *accumulate)
{
    return *(const void *const *)((const char *)accumulate + msp_node_layout.variable);
}

/* Have an AccumulateGrad node tell msp_batch_take_parameter(), or msp_probe_parameter_added(), what comes for its
 * tensor, before it is added; or not. */
void msp_node_watch(void *accumulate, bool watched);

/* Have msp_probe_grad_fire() called for the node, with this link, which is on no other and has its owner; and the first
 * such link of a node, or NULL. */
bool msp_node_hook(void *node, node_link *h);
node_link *msp_node_hooked(void *node);

/* An item of a list that such a hook is shown: a tensor's handle, NULL: there is none. */
const void *msp_node_item(const void *list, int at);

int msp_probe_edges_setup(void);
int msp_probe_walk_setup(void);
int msp_probe_register_setup(void);
int msp_probe_parameter_setup(void);

/* ---- several gradients that make one (probe_sum.c) --------------------------------------------------------------- */

/*
 * A sum on its way. Contributions that come as copies are added up at once, since copies are lent; the others are held
 * and added when the sum is written. Zeroed is empty.
 */
typedef struct grad_sum {
    PyObject *held;   /* a list of tensors, never an empty one, or NULL */
    probe_copy *copy; /* what the copies come to, or NULL */
    int copies;       /* how many there were */
    PyObject *less;   /* a list of what is to be taken from the sum, or NULL */
} grad_sum;

/* Whether nothing was added, whatever is to be taken from it. */
static inline bool
msp_sum_is_empty(const grad_sum *s)
{
    return s->held == NULL && s->copy == NULL;
}

/* One more contribution, and one that is to be taken from the sum. What there is no memory for is left out. */
void msp_sum_add(grad_sum *s, const probe_lent *v);
void msp_sum_subtract(grad_sum *s, const probe_lent *v);

/* What one holds becomes the other's, too; copies, of which calls that share gradients have none, do not. */
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

/* What a hook is shown: a tuple, a list of torch's own, or what was noted of that. */
typedef struct grad_shown {
    PyObject *tuple;
    const void *list;
    const probe_shown *noted;
    bool entering; /* with noted: which of the two lists */
} grad_shown;

/* Nothing when there is no gradient in that place. */
static inline probe_lent
msp_probe_grad_item(const grad_shown *of, int at)
{
    PyObject *v;

    if (of->noted != NULL)
        return msp_batch_item(of->noted, of->entering, at);
    if (of->tuple == NULL)
        return (probe_lent){.handle = msp_node_item(of->list, at)};
    v = at < PyTuple_GET_SIZE(of->tuple) ? PyTuple_GET_ITEM(of->tuple, at) : NULL;
    return (probe_lent){.object = v != NULL && msp_probe_is_tensor(v) ? v : NULL};
}

/* Whether what the hook is shown is still wanted: until the end of the step in which its call was made. */
bool msp_probe_grad_is_alive(const grad_hook *h);

/*
 * What the hook of a node was shown in this backward pass goes into its call's record, which is committed when the last
 * hook has told. Returns true when the program is to be stopped, with an exception set.
 */
bool msp_probe_grad_take(grad_hook *h, const grad_shown *leaving, const grad_shown *entering, int64_t task);

/* Have the engine tell us when this pass is over: some hooks of a call never fire. */
void msp_probe_await_end(int64_t task);

/* Commit the calls that wait for more hooks: of one backward pass, or of all (task -1). */
void msp_probe_grad_flush_pass(int64_t task);

/* A hook on an AccumulateGrad node was shown a gradient. Returns true when the program is to be stopped, with an
 * exception set. */
bool msp_probe_parameter_fire(PyObject *hook, const grad_shown *entering);

/* A node that is watched was given the gradient in this list, and will add it to its tensor's. */
void msp_probe_parameter_added(const void *variable, const void *gradients);

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
