/*
 * probe_grad.c - gradients, by hooks on the autograd nodes that a call made.
 *
 * Before the call we note, for each input that requires grad, the edge on which its gradient will arrive; in-place
 * functions change grad_fn of their own argument, so it cannot be asked afterwards. After the call we walk from the
 * outputs' nodes through nodes that are newer than the call: an edge that leads to one of the noted places is a
 * boundary, and what the node puts on it in backward is this call's own contribution, to the bit, whatever else uses
 * the input. No node is added to the graph; a hook knows numbers only.
 *
 * A call that made several nodes is recorded when all of its hooks have fired, or at the end of the backward pass.
 * Where several of them contribute to one input their sum is recorded; only these gradients are kept from the first
 * hook to the last.
 */
#include "probe.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define KEY(r, literal) msp_record_key((r), (literal), sizeof(literal) - 1)

static PyObject *str_requires_grad, *str_grad_fn, *str_output_nr, *str_next_functions, *str_sequence, *str_variable,
    *str_register_hook, *str_fields;

int
msp_probe_grad_setup(PyObject *module)
{
    (void)module;
    str_requires_grad = PyUnicode_InternFromString("requires_grad");
    str_grad_fn = PyUnicode_InternFromString("grad_fn");
    str_output_nr = PyUnicode_InternFromString("output_nr");
    str_next_functions = PyUnicode_InternFromString("next_functions");
    str_sequence = PyUnicode_InternFromString("_sequence_nr");
    str_variable = PyUnicode_InternFromString("variable");
    str_register_hook = PyUnicode_InternFromString("register_hook");
    str_fields = PyUnicode_InternFromString("__dataclass_fields__");
    return PyErr_Occurred() ? -1 : 0;
}

/* Whether gradients are read, and not only their calls' places in construct.json. */
static bool
wants_values(void)
{
    return msp_probe.rules.backward && !msp_probe.rules.structure;
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

static bool
is_true(PyObject *obj, PyObject *attribute)
{
    PyObject *v = PyObject_GetAttr(obj, attribute);
    bool yes = v == Py_True;

    Py_XDECREF(v);
    PyErr_Clear();
    return yes;
}

static int64_t
number(PyObject *v) /* takes the reference over */
{
    int64_t n = v == NULL ? -1 : (int64_t)PyLong_AsUnsignedLongLongMask(v);

    Py_XDECREF(v);
    PyErr_Clear();
    return n;
}

static bool
is_accumulate(PyObject *node)
{
    static PyTypeObject *known; /* there is one such type, and it lives as long as torch */

    if (known == NULL && strstr(Py_TYPE(node)->tp_name, "AccumulateGrad") != NULL)
        known = Py_TYPE(node);
    return Py_TYPE(node) == known;
}

/* ---- before the call
 * -------------------------------------------------------------------------------------------------------- */

typedef struct input_edge {
    PyObject *node; /* grad_fn, or the leaf tensor itself */
    int64_t nr;
    bool leaf;
    bool reached;    /* an edge of the call's nodes leads to it */
    int position;    /* among the tensors of the arguments */
    int first;       /* position of the same tensor's first occurrence */
    int last_node;   /* number of the node that was matched with it last */
    msp_tensor like; /* a module's: type and shape */
} input_edge;

struct probe_edges {
    input_edge *items;
    int n, cap;
    int leaves;
    int positions; /* tensors seen */
    bool no_graph; /* the call makes no nodes: what it returns of its inputs is all that may have some */
    int64_t first; /* sequence number of the first node that the call will make; -1: torch has none */
};

static input_edge *
new_edge(probe_edges *e)
{
    if (e->n == e->cap) {
        int cap = e->cap == 0 ? 8 : e->cap * 2;
        input_edge *items = PyMem_Realloc(e->items, (size_t)cap * sizeof(*items));

        if (items == NULL)
            return NULL;
        e->items = items;
        e->cap = cap;
    }
    memset(&e->items[e->n], 0, sizeof(*e->items));
    return &e->items[e->n];
}

static void
find_first(const probe_edges *e, input_edge *edge)
{
    edge->first = edge->position;
    for (int i = 0; i < e->n; i++)
        if (e->items[i].node == edge->node && e->items[i].nr == edge->nr) {
            edge->first = e->items[i].first;
            return;
        }
}

static void
note_input(PyObject *t, void *payload)
{
    probe_edges *e = payload;
    int position = e->positions++;
    input_edge *edge = is_true(t, str_requires_grad) ? new_edge(e) : NULL;
    PyObject *fn;

    if (edge == NULL)
        return;
    fn = PyObject_GetAttr(t, str_grad_fn);
    if (fn == NULL) {
        PyErr_Clear();
        return;
    }
    edge->leaf = fn == Py_None;
    if (edge->leaf && e->no_graph) {
        Py_DECREF(fn); /* an optimizer's step, say: nothing will ever lead to it */
        return;
    }
    e->leaves += edge->leaf;
    if (edge->leaf) {
        Py_DECREF(fn);
        Py_INCREF(t);
        edge->node = t;
    } else {
        edge->node = fn;
        edge->nr = number(PyObject_GetAttr(t, str_output_nr));
    }
    edge->position = position;
    edge->last_node = -1;
    find_first(e, edge);
    e->n++;
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

static void
note_module_input(PyObject *t, void *payload)
{
    probe_edges *e = payload;
    int before = e->n;

    note_input(t, payload);
    if (e->n > before)
        look_like(&e->items[before].like, t);
}

probe_edges *
msp_probe_edges_before(PyObject *self, PyObject *args, PyObject *kwargs, bool module)
{
    visit_tensor *visit = module && wants_values() ? note_module_input : note_input;
    probe_edges e = {.first = -1, .no_graph = !module && !msp_probe_grad_enabled()}, *out;

    each_tensor(self, visit, &e, 0);
    each_tensor(args, visit, &e, 0);
    each_tensor(kwargs, visit, &e, 0);
    if (e.n == 0 && (e.no_graph || !msp_probe_watches()) && !module)
        return NULL; /* a module has parameters that may need gradients */
    if (msp_probe.sequence_nr != NULL)
        e.first = number(PyObject_CallNoArgs(msp_probe.sequence_nr));
    out = PyMem_Malloc(sizeof(*out));
    if (out != NULL)
        *out = e;
    else
        PyMem_Free(e.items);
    return out;
}

void
msp_probe_edges_drop(probe_edges *e)
{
    if (e == NULL)
        return;
    for (int i = 0; i < e->n; i++)
        Py_DECREF(e->items[i].node);
    PyMem_Free(e->items);
    PyMem_Free(e);
}

/* ---- the record that the hooks of one call fill
 * ------------------------------------------------------------------------------ */

typedef struct slot {
    int expected; /* how many contributions will come at most */
    int got;
    PyObject *now;      /* the only one, while the call's last hook runs, which lends it to us */
    msp_record *tokens; /* the only one, when other hooks are still to come: it is read at once and not kept */
    PyObject *kept;     /* a list of several */
    msp_tensor *zeros;  /* an input that the module does not use: what a tensor of zeros looks like, or NULL */
} slot;

typedef struct grad_call {
    PyObject_HEAD char *name;
    size_t len;
    int64_t generation;
    int64_t task; /* the backward pass in which it fired first */
    int hooks, fired;
    int passes;    /* backward passes before this one: torch runs a graph as often as it is asked to */
    int nin, nout; /* gradients that enter (per output), that leave (per input) */
    slot *in, *out;
    PyObject *parent; /* the module that the call belongs to, as it is called in forward; NULL: none */
    uint32_t stack;   /* from where the call itself was made */
    bool inside;      /* a module around it is in the list */
    bool done;
    struct grad_call *prev, *next; /* those that have fired but wait for more */
} grad_call;

static grad_call waiting = {.prev = &waiting, .next = &waiting};

static void
unlink_call(grad_call *g)
{
    if (g->next == NULL)
        return;
    g->prev->next = g->next;
    g->next->prev = g->prev;
    g->prev = g->next = NULL;
}

static void
link_call(grad_call *g)
{
    g->prev = waiting.prev;
    g->next = &waiting;
    waiting.prev->next = g;
    waiting.prev = g;
}

static void
empty_slots(slot *s, int n)
{
    for (int i = 0; s != NULL && i < n; i++) {
        msp_probe_record_put(s[i].tokens);
        s[i].tokens = NULL;
        s[i].now = NULL;
        Py_CLEAR(s[i].kept);
        s[i].got = 0;
    }
}

static void
free_slots(slot *s, int n)
{
    empty_slots(s, n);
    for (int i = 0; s != NULL && i < n; i++)
        PyMem_Free(s[i].zeros);
    PyMem_Free(s);
}

static void
grad_call_dealloc(PyObject *self)
{
    grad_call *g = (grad_call *)self;

    unlink_call(g);
    free_slots(g->in, g->nin);
    free_slots(g->out, g->nout);
    Py_XDECREF(g->parent);
    PyMem_Free(g->name);
    PyObject_Free(self);
}

static PyTypeObject grad_call_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.GradCall",
    .tp_basicsize = sizeof(grad_call),
    .tp_dealloc = grad_call_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* "Torch.exp.0.backward"; a second pass over the same graph has ".1" behind it. */
static size_t
call_name(char *out, size_t size, const grad_call *g)
{
    size_t n = g->len < size - 24 ? g->len : size - 24;

    memcpy(out, g->name, n);
    if (g->passes > 0) {
        out[n++] = '.';
        n += msp_probe_digits(out + n, (uint64_t)g->passes);
    }
    out[n] = '\0';
    return n;
}

static void
start_path(probe_path *path, const grad_call *g, const char *section, int i)
{
    path->len = call_name(path->text, 400, g);
    path->files = true;
    msp_probe_path_push(path, section, strlen(section));
    msp_probe_path_push_index(path, i);
}

/* The same where only torch can add: on another device, sparse, ... */
static bool
put_total(msp_record *r, PyObject *list, probe_path *path)
{
    PyObject *sum = msp_probe.total == NULL ? NULL : msp_probe_ask(msp_probe.total, list, NULL);

    if (sum == NULL)
        PyErr_Clear();
    else
        msp_probe_value(r, sum, path, 0);
    Py_XDECREF(sum);
    return sum != NULL;
}

/* The sum of several contributions, as autograd itself would accumulate them; false when it cannot be had. */
static bool
put_sum(msp_record *r, PyObject *list, probe_path *path)
{
    msp_tensor first, next, sum;
    size_t size;
    bool ok;
    char *data;

    if (msp_probe_tensor_view(&first, PyList_GET_ITEM(list, 0)) != 1)
        return put_total(r, list, path);
    size = msp_dtype_size(first.dtype);
    data = PyMem_Calloc((size_t)first.numel + 1, size);
    ok = data != NULL && msp_tensor_view(&sum, data, first.dtype, first.ndim, first.shape, NULL) == MSP_OK;
    for (Py_ssize_t k = 0; ok && k < PyList_GET_SIZE(list); k++) {
        ok = msp_probe_tensor_view(&next, PyList_GET_ITEM(list, k)) == 1 && next.dtype == first.dtype &&
             msp_tensor_same_shape(&first, &next);
        for (int64_t i = 0; ok && i < next.numel; i++)
            ok = msp_dtype_add(first.dtype, data + (size_t)i * size, msp_tensor_at(&next, i));
    }
    if (ok && msp_probe_memory(r, &sum, path) != 0)
        msp_probe_swallow("reading a gradient", path->text);
    PyMem_Free(data);
    PyErr_Clear();
    return ok;
}

/* One zero that is everywhere: all strides are 0. */
static void
put_zeros(msp_record *r, const msp_tensor *like, probe_path *path)
{
    static const double zero[2];
    msp_tensor view = *like;

    view.data = zero;
    memset(view.strides, 0, sizeof(view.strides));
    if (msp_probe_memory(r, &view, path) != 0)
        msp_probe_swallow("reading a gradient", path->text);
}

static void
put_slot(msp_record *r, const slot *s, probe_path *path)
{
    if (s->now != NULL)
        msp_probe_value(r, s->now, path, 0);
    else if (s->kept != NULL && PyList_GET_SIZE(s->kept) == 1)
        msp_probe_value(r, PyList_GET_ITEM(s->kept, 0), path, 0);
    else if (s->kept != NULL && put_sum(r, s->kept, path))
        return;
    else if (s->kept != NULL || (s->got == 0 && s->zeros == NULL))
        msp_record_null(r);
    else if (s->got == 0)
        put_zeros(r, s->zeros, path);
    else if (s->tokens != NULL)
        msp_record_append(r, s->tokens);
    else
        msp_record_null(r);
}

static void
put_slots(msp_record *r, const grad_call *g, const slot *s, int n, const char *section)
{
    probe_path path;

    msp_record_key(r, section, strlen(section));
    msp_record_array(r);
    for (int i = 0; i < n; i++) {
        start_path(&path, g, section, i);
        put_slot(r, &s[i], &path);
    }
    msp_record_end(r);
}

static void
note_parent(const grad_call *g)
{
    msp_record *r = msp_probe_record_get();
    char name[512], parent[512];
    size_t n = call_name(name, sizeof(name), g);
    size_t len = g->parent == NULL ? 0 : msp_probe_backward_text(parent, sizeof(parent), g->parent);

    if (r != NULL) {
        msp_record_site(r, msp_probe.unit, name, n, 0, parent, len);
        msp_probe_commit(r);
    }
    msp_probe_record_put(r);
}

static bool
selects(const grad_call *g)
{
    if (!msp_probe_in_scope())
        return false;
    return msp_probe.rules.list == NULL || g->inside || msp_probe_in_list(msp_probe.rules.list, g->name, g->len);
}

/* Fill r; true when the call made inf or NaN, *poisoned: when it got some. */
static bool
put_gradients(msp_record *r, const grad_call *g, bool *poisoned)
{
    uint64_t since = msp_probe_watch_overflow();

    if (msp_probe.rules.inputs)
        put_slots(r, g, g->in, g->nin, "input");
    *poisoned = msp_probe_saw_overflow(since);
    since = msp_probe_watch_overflow();
    if (msp_probe.rules.outputs)
        put_slots(r, g, g->out, g->nout, "output");
    return msp_probe_saw_overflow(since);
}

/* Returns true when the program is to be stopped, with an exception set. */
static bool
record_gradients(grad_call *g)
{
    msp_record *r = msp_probe_record_get();
    bool overflowed, poisoned, saved;
    uint64_t before = msp_probe.tickets;
    char name[512];
    size_t n = call_name(name, sizeof(name), g);

    if (r == NULL)
        return false;
    msp_record_begin(r, msp_probe.unit, name, n);
    msp_record_object(r);
    overflowed = put_gradients(r, g, &poisoned) | msp_probe_device_overflowed();
    if (overflowed || poisoned || !msp_probe.rules.overflow) {
        msp_record_end(r);
        msp_probe_commit_value(r);
    }
    if (msp_probe.rules.overflow && (overflowed || poisoned)) {
        msp_probe_thread.saving = true;
        put_gradients(r, g, &saved);
        msp_probe_thread.saving = false;
    } else if (msp_probe.rules.overflow) {
        msp_probe_device_forget(before);
    }
    msp_probe_record_put(r);
    return overflowed && msp_probe_overflow(name, g->stack);
}

/* All that will come in this pass has come. Returns true when the program is to be stopped, with an exception set. */
static bool
commit_grads(grad_call *g)
{
    bool stop = false;

    unlink_call(g);
    if (g->done)
        return false;
    g->done = true;
    if (g->generation == msp_probe.generation) {
        if (msp_probe.rules.construct)
            note_parent(g);
        if (wants_values() && selects(g))
            stop = record_gradients(g);
        msp_probe_scope_leave(g->name, g->len);
    }
    empty_slots(g->in, g->nin);
    empty_slots(g->out, g->nout);
    return stop;
}

static grad_call *
find_waiting(int64_t task)
{
    for (grad_call *g = waiting.next; g != &waiting; g = g->next)
        if (task == -1 || g->task == task)
            return g;
    return NULL;
}

/* Commit those that wait: of one backward pass, or of all (task -1). Python may run meanwhile and change the list. */
static void
flush(int64_t task)
{
    probe_quiet q;
    grad_call *g;

    msp_probe_enter(&q);
    while ((g = find_waiting(task)) != NULL) {
        Py_INCREF(g);
        if (commit_grads(g))
            PyErr_Clear(); /* at the end of a pass there is no call left to stop */
        Py_DECREF(g);
    }
    msp_probe_leave(&q);
}

void
msp_probe_grad_flush(void)
{
    flush(-1);
}

/* ---- the end of a backward pass
 * ------------------------------------------------------------------------------------------------ */

typedef struct end_hook {
    PyObject_HEAD int64_t task;
} end_hook;

static PyObject *
end_hook_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    if (msp_probe.live)
        flush(((end_hook *)self)->task);
    Py_RETURN_NONE;
}

static PyTypeObject end_hook_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.EndHook",
    .tp_basicsize = sizeof(end_hook),
    .tp_call = end_hook_call,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* Have the engine tell us when this pass is over: some hooks of a call never fire. */
static void
await_end(int64_t task)
{
    static __thread int64_t asked = -1;
    PyObject *done;
    end_hook *h;

    if (task == asked || task < 0 || msp_probe.queue_callback == NULL || PyType_Ready(&end_hook_type) != 0)
        return;
    asked = task;
    h = PyObject_New(end_hook, &end_hook_type);
    if (h != NULL) {
        h->task = task;
        done = PyObject_CallFunctionObjArgs(msp_probe.queue_callback, (PyObject *)h, NULL);
        Py_XDECREF(done);
        Py_DECREF(h);
    }
    PyErr_Clear();
}

static int64_t
current_task(void)
{
    return msp_probe.task_id == NULL ? -1 : number(PyObject_CallNoArgs(msp_probe.task_id));
}

/* ---- one hook
 * -------------------------------------------------------------------------------------------------------------- */

typedef struct mapping {
    int at; /* position in the tuple that the hook gets; leaving and negative: -1 - position among the entering ones */
    int slot; /* which gradient of the call that is */
} mapping;

typedef struct grad_hook {
    PyObject_HEAD grad_call *call;
    int passes; /* in how many backward passes it has fired */
    int nin, nout;
    mapping map[]; /* nin entering, then nout leaving */
} grad_hook;

static void
grad_hook_dealloc(PyObject *self)
{
    Py_XDECREF(((grad_hook *)self)->call);
    PyObject_Free(self);
}

static void
take_gradient(grad_call *g, slot *s, PyObject *tuple, int at, const char *section, int index)
{
    PyObject *v = at < PyTuple_GET_SIZE(tuple) ? PyTuple_GET_ITEM(tuple, at) : NULL;
    probe_path path;

    if (v == NULL || !msp_probe_is_tensor(v))
        return;
    s->got++;
    if (s->expected > 1 || msp_probe.rules.overflow) {
        if (s->kept == NULL)
            s->kept = PyList_New(0);
        if (s->kept == NULL || PyList_Append(s->kept, v) != 0)
            PyErr_Clear();
        return;
    }
    if (g->fired + 1 >= g->hooks) {
        s->now = v;
        return;
    }
    if (s->tokens == NULL)
        s->tokens = msp_probe_record_get();
    if (s->tokens == NULL)
        return;
    start_path(&path, g, section, index);
    s->tokens->len = 0;
    s->tokens->failed = false;
    msp_probe_value(s->tokens, v, &path, 0);
}

static void
take_gradients(const grad_hook *h, PyObject *leaving, PyObject *entering)
{
    grad_call *g = h->call;

    for (int i = 0; i < h->nin && msp_probe.rules.inputs; i++)
        take_gradient(g, &g->in[h->map[i].slot], entering, h->map[i].at, "input", h->map[i].slot);
    for (int i = h->nin; i < h->nin + h->nout && msp_probe.rules.outputs; i++)
        take_gradient(g, &g->out[h->map[i].slot], h->map[i].at < 0 ? entering : leaving,
                      h->map[i].at < 0 ? -1 - h->map[i].at : h->map[i].at, "output", h->map[i].slot);
}

/* A node that fires again begins another pass over the same graph, with a record of its own. */
static bool
begin_pass(grad_hook *h)
{
    grad_call *g = h->call;
    bool stop = false;

    if (h->passes > g->passes) {
        stop = commit_grads(g);
        g->passes++;
        g->fired = 0;
        g->done = false;
    }
    h->passes = g->passes + 1;
    if (g->fired == 0 && !stop) {
        msp_probe_scope_enter(g->name, g->len);
        g->task = current_task();
    }
    return stop;
}

static bool
fire(grad_hook *h, PyObject *leaving, PyObject *entering)
{
    grad_call *g = h->call;
    bool stop = begin_pass(h);

    if (stop || g->done)
        return stop;
    if (wants_values() && selects(g))
        take_gradients(h, leaving, entering);
    if (++g->fired >= g->hooks)
        return commit_grads(g);
    if (g->next == NULL) {
        link_call(g);
        await_end(g->task);
    }
    return false;
}

/* hook(grad_inputs, grad_outputs): what the node put on its edges, and what had arrived at it */
static PyObject *
grad_hook_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    grad_hook *h = (grad_hook *)self;
    PyObject *leaving, *entering;
    probe_quiet q;
    bool stop;

    (void)kwargs;
    if (PyTuple_GET_SIZE(args) != 2 || !msp_probe.live || h->call->generation != msp_probe.generation)
        Py_RETURN_NONE;
    leaving = PyTuple_GET_ITEM(args, 0);
    entering = PyTuple_GET_ITEM(args, 1);
    if (!PyTuple_Check(leaving) || !PyTuple_Check(entering))
        Py_RETURN_NONE; /* compiled autograd hands out something else */
    msp_probe_enter(&q);
    stop = fire(h, leaving, entering);
    msp_probe_leave(&q);
    if (stop)
        return NULL;
    PyErr_Clear();
    Py_RETURN_NONE;
}

static PyTypeObject grad_hook_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.GradHook",
    .tp_basicsize = sizeof(grad_hook),
    .tp_itemsize = sizeof(mapping),
    .tp_dealloc = grad_hook_dealloc,
    .tp_call = grad_hook_call,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* ---- gradients of parameters
 * ------------------------------------------------------------------------------------------------- */

typedef struct parameter_hook {
    PyObject_HEAD PyObject *parameter; /* borrowed: the node that holds us holds it */
    PyObject *watched;
    int64_t generation;
} parameter_hook;

static void
parameter_hook_dealloc(PyObject *self)
{
    Py_XDECREF(((parameter_hook *)self)->watched);
    PyObject_Free(self);
}

static PyObject *
parameter_hook_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    parameter_hook *h = (parameter_hook *)self;
    probe_quiet q;
    bool stop = false;

    (void)args;
    (void)kwargs;
    if (msp_probe.live && h->generation == msp_probe.generation) {
        msp_probe_enter(&q);
        stop = msp_probe_parameter_done(h->watched, h->parameter);
        msp_probe_leave(&q);
    }
    if (stop)
        return NULL;
    Py_RETURN_NONE;
}

static PyTypeObject parameter_hook_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.ParameterHook",
    .tp_basicsize = sizeof(parameter_hook),
    .tp_dealloc = parameter_hook_dealloc,
    .tp_call = parameter_hook_call,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static void
hook_parameter(PyObject *accumulate, PyObject *variable, PyObject *watched, PyObject *hooks)
{
    parameter_hook *h =
        PyType_Ready(&parameter_hook_type) == 0 ? PyObject_New(parameter_hook, &parameter_hook_type) : NULL;
    PyObject *handle;

    if (h == NULL)
        return;
    Py_INCREF(watched);
    h->parameter = variable;
    h->watched = watched;
    h->generation = msp_probe.generation;
    handle = PyObject_CallMethodObjArgs(accumulate, str_register_hook, (PyObject *)h, NULL);
    if (handle != NULL && PyList_Append(hooks, accumulate) == 0 && PyList_Append(hooks, handle) == 0)
        msp_probe_note_hooked(accumulate);
    Py_XDECREF(handle);
    Py_DECREF(h);
}

/*
 * AccumulateGrad nodes cannot be asked for without an operation in the graph; they are met on the walk, and hooked when
 * they belong to a watched parameter, once per step. The handle is kept, to take the hook out again, and the node:
 * torch drops it with the first graph, and the next one would get another.
 */
static void
watch_parameter(PyObject *accumulate)
{
    PyObject *variable = PyObject_GetAttr(accumulate, str_variable), *watched, *hooks = NULL;
    Py_ssize_t n;

    watched = variable == NULL ? NULL : msp_probe_watched(variable);
    if (watched != NULL)
        hooks = msp_probe_watched_hooks(watched);
    n = hooks == NULL ? 0 : PyList_GET_SIZE(hooks);
    if (hooks != NULL && (n < 2 || PyList_GET_ITEM(hooks, n - 2) != accumulate))
        hook_parameter(accumulate, variable, watched, hooks);
    Py_XDECREF(variable);
    PyErr_Clear();
}

/* ---- registering
 * ---------------------------------------------------------------------------------------------------------- */

/*
 * node.register_hook() asks a function of torch's that is written in Python, _HookMixin._register_hook(dict, hook), to
 * put the hook into the node's dict and to make a handle; that is 2 of its 2.5 us. While we record, its vectorcall
 * field leads here: hooks of ours go into the dict without a handle, all others to the original. torch calls it from
 * C, where the field is honoured in every version of the interpreter.
 */
static PyFunctionObject *registrar; /* NULL: not proven */
static vectorcallfunc registrar_original;
static int64_t registered;

static PyTypeObject trial_hook_type;

static bool
is_our_hook(PyObject *hook)
{
    return Py_TYPE(hook) == &grad_hook_type || Py_TYPE(hook) == &parameter_hook_type ||
           Py_TYPE(hook) == &trial_hook_type;
}

/* (dict or None, hook) -> (dict, handle); ours is (dict, key), and keys of torch's own count from 0 up */
static PyObject *
put_hook(PyObject *dict, PyObject *hook)
{
    PyObject *key = PyLong_FromLongLong(-1 - registered++), *handle = NULL, *result = NULL;

    if (dict == Py_None)
        dict = PyODict_New(); /* as torch has it: whoever registers next wants a weak reference to it */
    else
        Py_INCREF(dict);
    if (dict != NULL && key != NULL && PyObject_SetItem(dict, key, hook) == 0) {
        if (Py_TYPE(hook) == &parameter_hook_type) {
            handle = PyTuple_Pack(2, dict, key);
        } else {
            handle = Py_None; /* nobody takes the others out: they go with the graph */
            Py_INCREF(handle);
        }
    }
    if (handle != NULL)
        result = PyTuple_Pack(2, dict, handle);
    Py_XDECREF(dict);
    Py_XDECREF(key);
    Py_XDECREF(handle);
    return result;
}

void
msp_probe_unhook(PyObject *handle)
{
    PyObject *done;

    if (PyTuple_CheckExact(handle) && PyTuple_GET_SIZE(handle) == 2) {
        PyObject_DelItem(PyTuple_GET_ITEM(handle, 0), PyTuple_GET_ITEM(handle, 1));
    } else {
        done = PyObject_CallMethod(handle, "remove", NULL);
        Py_XDECREF(done);
    }
    PyErr_Clear();
}

static PyObject *
registrar_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (kwnames == NULL && PyVectorcall_NARGS(nargsf) == 2 && is_our_hook(args[1]))
        return put_hook(args[0], args[1]);
    return registrar_original(callable, args, nargsf, kwnames);
}

void
msp_probe_grad_start(void)
{
    if (registrar == NULL || registrar->vectorcall == registrar_vectorcall)
        return;
    registrar_original = registrar->vectorcall;
    msp_probe_set_vectorcall(registrar, registrar_vectorcall);
}

void
msp_probe_grad_stop(void)
{
    if (registrar != NULL && registrar->vectorcall == registrar_vectorcall)
        msp_probe_set_vectorcall(registrar, registrar_original);
}

static PyTypeObject trial_hook_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.TrialHook",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
};

/*
 * registrar(function, node) -> bool: whether node.register_hook() asks function, as said above; from then on it is
 * used. registrar(None, None): it is not.
 */
PyObject *
msp_probe_registrar(PyObject *self, PyObject *all)
{
    PyObject *function, *node, *hook = NULL, *handle;
    int64_t before = registered;

    (void)self;
    if (!PyArg_ParseTuple(all, "OO", &function, &node) || PyType_Ready(&trial_hook_type) != 0)
        return NULL;
    msp_probe_grad_stop();
    Py_CLEAR(registrar);
    if (!PyFunction_Check(function))
        Py_RETURN_FALSE;
    Py_INCREF(function);
    registrar = (PyFunctionObject *)function;
    msp_probe_grad_start();
    hook = PyObject_CallNoArgs((PyObject *)&trial_hook_type);
    for (int i = 0; i < 2 && hook != NULL; i++) { /* the second one finds the first one's dict */
        handle = PyObject_CallMethodObjArgs(node, str_register_hook, hook, NULL);
        Py_XDECREF(handle);
    }
    Py_XDECREF(hook);
    PyErr_Clear();
    msp_probe_grad_stop();
    if (registered == before + 2)
        Py_RETURN_TRUE;
    Py_CLEAR(registrar);
    Py_RETURN_FALSE;
}

/* ---- after the call
 * ----------------------------------------------------------------------------------------------------------- */

/* A node of the call, and which of its edges matter. */
typedef struct walked {
    PyObject *node;
    PyObject *next; /* its next_functions, once it was followed */
    mapping *map;   /* entering first */
    int nin, nout, cap;
} walked;

typedef struct walk {
    const probe_edges *edges;
    walked *nodes;
    int n, cap;
    int *index; /* hash of the node's address -> number + 1 */
    int slots;
    bool failed;
} walk;

static int *
find_node(walk *w, PyObject *node)
{
    int i = (int)(((uintptr_t)node >> 4) * 0x9E3779B1u) & (w->slots - 1);

    while (w->index[i] != 0 && w->nodes[w->index[i] - 1].node != node)
        i = (i + 1) & (w->slots - 1);
    return &w->index[i];
}

static bool
grow_walk(walk *w)
{
    int cap = w->cap == 0 ? 16 : w->cap * 2;
    walked *nodes = PyMem_Realloc(w->nodes, (size_t)cap * sizeof(*nodes));
    int *index = PyMem_Calloc((size_t)cap * 4, sizeof(*index));

    if (nodes != NULL)
        w->nodes = nodes;
    if (nodes == NULL || index == NULL) {
        PyMem_Free(index);
        w->failed = true;
        return false;
    }
    PyMem_Free(w->index);
    w->index = index;
    w->slots = cap * 4;
    w->cap = cap;
    for (int i = 0; i < w->n; i++)
        *find_node(w, w->nodes[i].node) = i + 1;
    return true;
}

/* The number of this node, noted when it is new (*added); -1 when there is no memory. */
static int
note_node(walk *w, PyObject *node, bool *added)
{
    int *at;

    *added = false;
    if (w->n == w->cap && !grow_walk(w))
        return -1;
    at = find_node(w, node);
    if (*at == 0) {
        Py_INCREF(node);
        w->nodes[w->n] = (walked){.node = node};
        *at = ++w->n;
        *added = true;
    }
    return *at - 1;
}

static void
add_mapping(walk *w, int node, bool entering, int at, int slot_number)
{
    walked *k = &w->nodes[node];

    if (k->nin + k->nout == k->cap) {
        int cap = k->cap == 0 ? 4 : k->cap * 2;
        mapping *map = PyMem_Realloc(k->map, (size_t)cap * sizeof(*map));

        if (map == NULL) {
            w->failed = true;
            return;
        }
        k->map = map;
        k->cap = cap;
    }
    if (entering) {
        memmove(k->map + k->nin + 1, k->map + k->nin, (size_t)k->nout * sizeof(*k->map));
        k->map[k->nin++] = (mapping){at, slot_number};
    } else {
        k->map[k->nin + k->nout++] = (mapping){at, slot_number};
    }
}

static bool
is_known(const walk *w, PyObject *node)
{
    for (int i = 0; i < w->edges->n; i++)
        if (w->edges->items[i].node == node)
            return true;
    return false;
}

/* A torch without sequence numbers cannot tell: the inputs' edges are the only boundary, and a composite function has
 * few nodes. */
enum { MOST_NODES = 64 };

static bool
is_new(const walk *w, PyObject *node)
{
    if (is_accumulate(node))
        return false;
    if (w->edges->first < 0)
        return w->n < MOST_NODES && !is_known(w, node);
    return number(PyObject_CallMethodObjArgs(node, str_sequence, NULL)) >= w->edges->first;
}

/* The input to which this edge of node number n leads, or NULL. One tensor in two places gets each of a node's edges
 * once. */
static input_edge *
boundary(walk *w, int n, PyObject *target, int64_t nr)
{
    PyObject *variable = NULL;
    input_edge *hit = NULL;

    if (w->edges->leaves > 0 && is_accumulate(target)) {
        variable = PyObject_GetAttr(target, str_variable);
        PyErr_Clear();
    }
    for (int i = 0; i < w->edges->n; i++) {
        input_edge *e = &w->edges->items[i];
        bool same = e->leaf ? variable != NULL && e->node == variable : e->node == target && e->nr == nr;

        if (!same)
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
    Py_XDECREF(variable);
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

/* Follow the edges of one node; nodes of the call that are met for the first time are appended to w->nodes. */
static void
follow(walk *w, int n)
{
    PyObject *next = next_of(w, n);

    if (next == NULL)
        return;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(next) && !w->failed; i++) {
        PyObject *pair = PyTuple_GET_ITEM(next, i), *target;
        input_edge *e;
        bool added;

        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2)
            continue;
        target = PyTuple_GET_ITEM(pair, 0);
        if (target == Py_None)
            continue;
        if (msp_probe_watches() && is_accumulate(target) && !msp_probe_is_hooked(target))
            watch_parameter(target);
        e = boundary(w, n, target, PyLong_AsLongLong(PyTuple_GET_ITEM(pair, 1)));
        if (e != NULL)
            add_mapping(w, n, false, (int)i, e->position);
        else if (is_new(w, target))
            note_node(w, target, &added);
    }
}

/* The input that a call without a node of its own hands on gets what arrives for the output. */
static void
pass_through(walk *w, int node, int64_t nr)
{
    for (int i = 0; i < w->edges->n; i++) {
        const input_edge *e = &w->edges->items[i];

        if (!e->leaf && e->node == w->nodes[node].node && e->nr == nr) {
            add_mapping(w, node, false, -1 - (int)nr, e->position);
            return;
        }
    }
}

typedef struct outputs {
    walk *walk;
    int n; /* tensors in the result */
    bool any;
    bool through; /* the call made no node: it handed its input on, as to() and dropout without effect do */
} outputs;

static void
note_output(PyObject *t, void *payload)
{
    outputs *o = payload;
    int index = o->n++, node;
    PyObject *fn = PyObject_GetAttr(t, str_grad_fn);
    bool new = fn != NULL &&fn != Py_None && !o->through &&is_new(o->walk, fn), added;
    int64_t nr;

    if (new || (fn != NULL && fn != Py_None && !o->through && index == 0)) {
        o->through = !new;
        node = note_node(o->walk, fn, &added);
        nr = number(PyObject_GetAttr(t, str_output_nr));
        if (node >= 0)
            add_mapping(o->walk, node, true, (int)nr, index);
        if (node >= 0 && o->through)
            pass_through(o->walk, node, nr);
        o->any = true;
    }
    Py_XDECREF(fn);
    PyErr_Clear();
}

/* In a function of several nodes, which of them belongs to which place of a tensor that is there twice cannot be told:
 * their sum stands in the first. */
static void
merge_same_tensors(walk *w)
{
    int *first;

    if (w->n < 2 || w->edges->positions == 0)
        return;
    first = PyMem_New(int, w->edges->positions);
    if (first == NULL)
        return;
    for (int i = 0; i < w->edges->positions; i++)
        first[i] = i;
    for (int i = 0; i < w->edges->n; i++)
        first[w->edges->items[i].position] = w->edges->items[i].first;
    for (int i = 0; i < w->n; i++)
        for (int j = w->nodes[i].nin; j < w->nodes[i].nin + w->nodes[i].nout; j++)
            w->nodes[i].map[j].slot = first[w->nodes[i].map[j].slot];
    PyMem_Free(first);
}

static int
count_contributions(const walk *w, int slot_number)
{
    int n = 0;

    for (int i = 0; i < w->n; i++)
        for (int j = w->nodes[i].nin; j < w->nodes[i].nin + w->nodes[i].nout; j++)
            n += w->nodes[i].map[j].slot == slot_number;
    return n;
}

/* Whether what the node puts on this edge is recorded alone, as the gradient of an input. */
static bool
is_recorded_alone(const walk *w, const walked *k, int at)
{
    for (int i = k->nin; i < k->nin + k->nout; i++)
        if (k->map[i].at == at && count_contributions(w, k->map[i].slot) == 1)
            return true;
    return false;
}

/*
 * What the node of the first output hands on inside a composite function, or past it, is recorded behind the inputs'
 * gradients: it is all that the original shows of such a call. Returns how many there are.
 */
static int
add_inner_edges(walk *w)
{
    PyObject *next = w->n == 0 ? NULL : next_of(w, 0);
    int extra = 0;

    for (Py_ssize_t i = 0; next != NULL && i < PyTuple_GET_SIZE(next); i++) {
        PyObject *pair = PyTuple_GET_ITEM(next, i);

        if (PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2 && PyTuple_GET_ITEM(pair, 0) != Py_None &&
            !is_recorded_alone(w, &w->nodes[0], (int)i))
            add_mapping(w, 0, false, (int)i, w->edges->positions + extra++);
    }
    return extra;
}

/* The innermost open module. */
static PyObject *
open_parent(void)
{
    PyObject *open = msp_probe_thread.modules, *parent;

    if (!msp_probe.rules.construct || open == NULL || PyList_GET_SIZE(open) == 0)
        return NULL;
    parent = PyList_GET_ITEM(open, PyList_GET_SIZE(open) - 1);
    Py_INCREF(parent);
    return parent;
}

static void
expect(grad_call *g, const walk *w)
{
    for (int i = 0; i < w->n; i++) {
        const walked *k = &w->nodes[i];

        g->hooks += k->nin + k->nout > 0;
        for (int j = 0; j < k->nin; j++)
            g->in[k->map[j].slot].expected++;
        for (int j = k->nin; j < k->nin + k->nout; j++)
            g->out[k->map[j].slot].expected++;
    }
}

/* Inputs of a module to which no edge leads get a gradient of zeros. */
static void
expect_zeros(grad_call *g, const probe_edges *edges)
{
    for (int i = 0; i < edges->n; i++) {
        const input_edge *e = &edges->items[i];
        slot *s = &g->out[e->position];

        if (e->reached || e->first != e->position || e->like.dtype == MSP_DTYPE_NONE)
            continue;
        s->zeros = PyMem_Malloc(sizeof(*s->zeros));
        if (s->zeros != NULL)
            *s->zeros = e->like;
    }
}

static grad_call *
make_call(const walk *w, int nout, int extra, const char *name, size_t len, bool module)
{
    grad_call *g = PyObject_New(grad_call, &grad_call_type);

    if (g == NULL)
        return NULL;
    memset((char *)g + sizeof(PyObject), 0, sizeof(*g) - sizeof(PyObject));
    g->generation = msp_probe.generation;
    g->stack = msp_probe_thread.stack;
    g->parent = open_parent();
    g->inside = msp_probe_inside_listed(true);
    g->name = PyMem_Malloc(len + 1);
    g->in = PyMem_Calloc((size_t)nout + 1, sizeof(slot));
    g->out = PyMem_Calloc((size_t)(w->edges->positions + extra) + 1, sizeof(slot));
    if (g->name == NULL || g->in == NULL || g->out == NULL) {
        Py_DECREF(g);
        return NULL;
    }
    memcpy(g->name, name, len);
    g->name[len] = '\0';
    g->len = len;
    g->nin = nout;
    g->nout = w->edges->positions + extra;
    expect(g, w);
    if (module && wants_values())
        expect_zeros(g, w->edges);
    return g;
}

static bool
hook_node(const walked *k, grad_call *g)
{
    grad_hook *h = PyObject_NewVar(grad_hook, &grad_hook_type, k->nin + k->nout);
    PyObject *handle;

    if (h == NULL)
        return false;
    Py_INCREF(g);
    h->call = g;
    h->passes = 0;
    h->nin = k->nin;
    h->nout = k->nout;
    memcpy(h->map, k->map, (size_t)(k->nin + k->nout) * sizeof(*k->map));
    handle = PyObject_CallMethodObjArgs(k->node, str_register_hook, (PyObject *)h, NULL);
    Py_DECREF(h);
    Py_XDECREF(handle);
    return handle != NULL;
}

static void
free_walk(walk *w)
{
    for (int i = 0; i < w->n; i++) {
        Py_DECREF(w->nodes[i].node);
        Py_XDECREF(w->nodes[i].next);
        PyMem_Free(w->nodes[i].map);
    }
    PyMem_Free(w->nodes);
    PyMem_Free(w->index);
}

void
msp_probe_edges_after(probe_edges *edges, PyObject *result, const char *name, size_t len, bool module)
{
    walk w = {.edges = edges};
    outputs o = {&w, 0, false, false};
    grad_call *g = NULL;
    int extra;

    each_tensor(result, note_output, &o, 0);
    for (int i = 0; o.any && !o.through && i < w.n && !w.failed; i++)
        follow(&w, i);
    merge_same_tensors(&w);
    extra = add_inner_edges(&w);
    if (o.any && !w.failed && PyType_Ready(&grad_call_type) == 0 && PyType_Ready(&grad_hook_type) == 0)
        g = make_call(&w, o.n, extra, name, len, module);
    for (int i = 0; g != NULL && i < w.n; i++)
        if (w.nodes[i].nin + w.nodes[i].nout > 0 && !hook_node(&w.nodes[i], g))
            g->hooks--;
    if (PyErr_Occurred())
        msp_probe_swallow("hooking the gradients", name);
    Py_XDECREF(g);
    free_walk(&w);
    msp_probe_edges_drop(edges);
}
