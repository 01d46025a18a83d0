/*
 * probe_grad.c - the record that the hooks of one call fill.
 *
 * A call that made several nodes is recorded when all of its hooks have fired, or at the end of the backward pass.
 * Where several of them contribute to one input their sum is recorded; only these gradients are kept from the first
 * hook to the last.
 */
#include "probe_grad.h"
#include <stdint.h>
#include <string.h>

int
msp_probe_grad_setup(PyObject *module)
{
    (void)module;
    return msp_probe_edges_setup() != 0 || msp_probe_walk_setup() != 0 || msp_probe_register_setup() != 0 ||
                   msp_probe_parameter_setup() != 0
               ? -1
               : 0;
}

/* ---- the record that the hooks of one call fill ------------------------------------------------------------------ */

typedef struct slot {
    int expected; /* how many contributions will come at most */
    int got;
    probe_lent now;     /* the only one, while the call's last hook runs, which lends it to us */
    msp_record *tokens; /* the only one, when other hooks are still to come: it is read at once and not kept */
    PyObject *kept;     /* a list of several */
    probe_copy *sum;    /* or, of those that came as copies, their sum */
    int summed;         /* how many these were */
    PyObject *own;      /* a result of a module: a list of what the module itself adds to it, using it, too; or NULL */
    msp_tensor *zeros;  /* an input that the module does not use: what a tensor of zeros looks like, or NULL */
    bool followed;      /* it is another call's, too */
} slot;

/* A call whose only gradient is one that leaves another call. */
typedef struct led_call {
    grad_call *call;
    int slot; /* the leader's */
    int own;  /* among those that leave the call */
} led_call;

struct grad_call {
    PyObject_HEAD char *name;
    size_t len;
    int64_t generation;
    int64_t task; /* the backward pass in which it fired first */
    int hooks, fired;
    int passes;    /* backward passes before this one: torch runs a graph as often as it is asked to */
    int nin, nout; /* gradients that enter (per output), that leave (per input) */
    slot *in, *out;
    char *parent; /* the module that the call belongs to, as it is called in forward; empty: none */
    size_t parent_len;
    uint32_t stack; /* from where the call itself was made */
    led_call *led;
    int nled;
    bool inside; /* a module around it is in the list */
    bool done;
    struct grad_call *prev, *next; /* those that have fired but wait for more; the list holds them */
};

static grad_call waiting = {.prev = &waiting, .next = &waiting};

static void
unlink_call(grad_call *g)
{
    if (g->next == NULL)
        return;
    g->prev->next = g->next;
    g->next->prev = g->prev;
    g->prev = g->next = NULL;
    Py_DECREF(g);
}

/* The graph may be gone before the pass is known to be over, and its hooks with it. */
static void
link_call(grad_call *g)
{
    Py_INCREF(g);
    g->prev = waiting.prev;
    g->next = &waiting;
    waiting.prev->next = g;
    waiting.prev = g;
}

static void
empty_slots(slot *s, int n)
{
    for (int i = 0; i < n; i++) {
        msp_probe_record_put(s[i].tokens);
        s[i].tokens = NULL;
        s[i].now = (probe_lent){0};
        Py_CLEAR(s[i].kept);
        Py_CLEAR(s[i].own);
        PyMem_Free(s[i].sum);
        s[i].sum = NULL;
        s[i].summed = 0;
        s[i].got = 0;
    }
}

static void
grad_call_dealloc(PyObject *self)
{
    grad_call *g = (grad_call *)self;

    empty_slots(g->in, g->nin);
    empty_slots(g->out, g->nout);
    for (int i = 0; i < g->nout; i++)
        PyMem_Free(g->out[i].zeros);
    for (int i = 0; i < g->nled; i++)
        Py_DECREF(g->led[i].call);
    PyMem_Free(g->led);
    PyMem_Free(g->in);
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
put_total(msp_record *r, PyObject *list, PyObject *less, probe_path *path)
{
    PyObject *sum = msp_probe.total == NULL ? NULL : msp_probe_ask(msp_probe.total, list, less);

    if (sum == NULL)
        PyErr_Clear();
    else
        msp_probe_value(r, sum, path, 0);
    Py_XDECREF(sum);
    return sum != NULL;
}

/* sum += next, element by element; false: it cannot be had. */
static bool
add_to(const msp_tensor *sum, const msp_tensor *next)
{
    const size_t size = msp_dtype_size(sum->dtype);
    char *data = (char *)(uintptr_t)sum->data;
    bool ok = next->dtype == sum->dtype && msp_tensor_same_shape(sum, next);

    if (ok && sum->dtype == MSP_F32 && msp_tensor_is_contiguous(next)) {
        for (int64_t i = 0; i < next->numel; i++)
            ((float *)data)[i] += ((const float *)next->data)[i];
        return true;
    }
    for (int64_t i = 0; ok && i < next->numel; i++)
        ok = msp_dtype_add(sum->dtype, data + (size_t)i * size, msp_tensor_at(next, i));
    return ok;
}

static bool
add_all(const msp_tensor *sum, PyObject *list)
{
    msp_tensor next;
    bool ok = true;

    for (Py_ssize_t k = 0; ok && k < PyList_GET_SIZE(list); k++)
        ok = msp_probe_tensor_view(&next, PyList_GET_ITEM(list, k)) == 1 && add_to(sum, &next);
    return ok;
}

/* A sign is the top bit of a number, or of both parts of a complex one. */
static void
negate(const msp_tensor *t)
{
    const size_t bytes = (size_t)t->numel * msp_dtype_size(t->dtype);
    const size_t step = msp_dtype_size(t->dtype) / (msp_dtype_class_of(t->dtype) == MSP_CLASS_COMPLEX ? 2 : 1);
    unsigned char *data = (unsigned char *)(uintptr_t)t->data;

    for (size_t i = step - 1; i < bytes; i += step)
        data[i] ^= 0x80;
}

static bool
view_copy(msp_tensor *view, const probe_copy *copy)
{
    return msp_tensor_view(view, copy + 1, copy->dtype, copy->ndim, copy->shape, NULL) == MSP_OK;
}

/* What the sum of several looks like: the first of them; false: only torch can read it. */
static bool
view_first(msp_tensor *first, const slot *s)
{
    if (s->sum != NULL)
        return view_copy(first, s->sum);
    return msp_probe_tensor_view(first, PyList_GET_ITEM(s->kept, 0)) == 1;
}

/* The sum of several contributions, as autograd itself would accumulate them, without those in own (NULL: none); false
 * when it cannot be had. */
static bool
put_sum(msp_record *r, const slot *s, probe_path *path)
{
    _Alignas(16) char small[4096]; /* the heap's own lists are cold here: a block from it costs more than the sum */
    msp_tensor first, sum;
    size_t n, size;
    bool ok;
    char *data;

    if (!view_first(&first, s))
        return put_total(r, s->kept, s->own, path);
    n = (size_t)first.numel;
    size = msp_dtype_size(first.dtype);
    data = n <= sizeof(small) / size ? memset(small, 0, n * size) : PyMem_Calloc(n, size);
    ok = data != NULL && msp_tensor_view(&sum, data, first.dtype, first.ndim, first.shape, NULL) == MSP_OK;
    if (ok && s->own != NULL) {
        ok = add_all(&sum, s->own);
        negate(&sum);
    }
    if (ok && s->sum != NULL)
        ok = add_to(&sum, &first);
    ok = ok && (s->kept == NULL || add_all(&sum, s->kept));
    if (ok && msp_probe.quick &&
        msp_record_small(r, sum.dtype, sum.ndim, sum.shape, sum.strides, sum.data, false, msp_probe.rules.checksum))
        ; /* as most are */
    else if (ok && msp_probe_memory(r, &sum, path) != 0)
        msp_probe_swallow("reading a gradient", path->text);
    if (data != small)
        PyMem_Free(data);
    PyErr_Clear();
    return ok;
}

/* The only one that came, as it was. */
static void
put_copy(msp_record *r, const probe_copy *copy, probe_path *path)
{
    msp_tensor view;

    if (!view_copy(&view, copy))
        msp_record_null(r);
    else if (!msp_probe.quick || !msp_record_small(r, view.dtype, view.ndim, view.shape, view.strides, view.data,
                                                   copy->requires_grad, msp_probe.rules.checksum))
        if (msp_probe_memory(r, &view, path) != 0)
            msp_probe_swallow("reading a gradient", path->text);
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
    if (msp_probe_is_lent(&s->now))
        msp_probe_lent(r, &s->now, path);
    else if (s->kept != NULL && PyList_GET_SIZE(s->kept) == 1 && s->own == NULL && s->sum == NULL)
        msp_probe_value(r, PyList_GET_ITEM(s->kept, 0), path, 0);
    else if (s->summed == 1 && s->kept == NULL && s->own == NULL)
        put_copy(r, s->sum, path);
    else if ((s->kept != NULL || s->sum != NULL) && put_sum(r, s, path))
        return;
    else if (s->kept != NULL || s->sum != NULL || (s->got == 0 && s->zeros == NULL))
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
        path.len = 0;
        if (s[i].now.tokens == NULL && (s[i].tokens == NULL || s[i].kept != NULL))
            start_path(&path, g, section, i);
        put_slot(r, &s[i], &path);
    }
    msp_record_end(r);
}

/* Where its gradients stand, in one with their record, or (NULL) alone. */
static void
note_parent(const grad_call *g, msp_record *record)
{
    char name[512], parent[512];
    size_t len = msp_probe_backward_text(parent, sizeof(parent), g->parent, g->parent_len);
    msp_record *r;

    if (record != NULL) {
        msp_record_place(record, 0, parent, len);
        return;
    }
    r = msp_probe_record_get();
    if (r != NULL) {
        msp_record_site(r, msp_probe.unit, name, call_name(name, sizeof(name), g), 0, parent, len);
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
        if (msp_probe.rules.construct && !msp_probe.rules.overflow)
            note_parent(g, r);
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

static void
lend(slot *s, const slot *from)
{
    s->now = from->now;
    Py_XINCREF(from->kept);
    Py_XSETREF(s->kept, from->kept);
    s->got = from->got;
}

static bool commit_grads(grad_call *g);

/* Those that the call leads get its gradients. Returns true when the program is to be stopped, with an exception set.
 */
static bool
commit_led(const grad_call *g)
{
    bool stop = false;

    for (int i = 0; i < g->nled && !stop; i++) {
        const led_call *l = &g->led[i];

        if (g->out[l->slot].got == 0 && msp_probe_wants_gradients())
            continue;
        lend(&l->call->in[0], &g->out[l->slot]);
        lend(&l->call->out[l->own], &g->out[l->slot]);
        l->call->passes = g->passes;
        l->call->done = false;
        msp_probe_scope_enter(l->call->name, l->call->len);
        stop = commit_grads(l->call);
    }
    return stop;
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
        const bool recorded = msp_probe_wants_gradients() && selects(g);

        if (msp_probe.rules.construct && (!recorded || msp_probe.rules.overflow))
            note_parent(g, NULL);
        if (recorded)
            stop = record_gradients(g);
        if (recorded && msp_probe.rules.scope_begin != NULL)
            msp_probe_module_chosen(g->name, g->len);
        msp_probe_scope_leave(g->name, g->len);
        stop = stop || commit_led(g);
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

/* ---- the end of a backward pass ---------------------------------------------------------------------------------- */

typedef struct end_hook {
    PyObject_HEAD int64_t task;
} end_hook;

static PyObject *
end_hook_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    msp_batch_work();
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
        if (done != NULL)
            msp_batch_begin_pass(task);
        Py_XDECREF(done);
        Py_DECREF(h);
    }
    PyErr_Clear();
}

/* ---- one hook ---------------------------------------------------------------------------------------------------- */

typedef struct grad_hook {
    hook_base base;
    grad_call *call;
    int passes; /* in how many backward passes it has fired */
    int nin, nout;
    grad_mapping map[]; /* nin entering, then nout leaving */
} grad_hook;

static void
grad_hook_dealloc(PyObject *self)
{
    Py_XDECREF(((grad_hook *)self)->call);
    PyObject_Free(self);
}

/* One of several, or of a call that may be wanted once more: it is held. */
static void
keep(PyObject **list, const probe_lent *v)
{
    PyObject *object = msp_probe_lent_object(v);

    if (*list == NULL)
        *list = PyList_New(0);
    if (*list == NULL || object == NULL || PyList_Append(*list, object) != 0)
        PyErr_Clear();
    Py_XDECREF(object);
}

/* One of several that came as a copy is added to those before it: as put_sum() would, from zero on. */
static void
keep_copy(slot *s, const probe_copy *copy)
{
    msp_tensor sum, next;

    if (s->sum == NULL) {
        s->sum = PyMem_Malloc(copy->size);
        if (s->sum != NULL)
            memcpy(s->sum, copy, copy->size);
        s->summed = s->sum != NULL;
        return;
    }
    if (!view_copy(&next, s->sum) || s->sum->size != copy->size)
        return;
    if (s->summed++ == 1) {
        probe_copy *first = s->sum;

        s->sum = PyMem_Calloc(1, copy->size);
        if (s->sum != NULL) {
            *s->sum = *copy;
            if (view_copy(&sum, s->sum))
                add_to(&sum, &next);
        }
        PyMem_Free(first);
    }
    if (s->sum != NULL && view_copy(&sum, s->sum) && view_copy(&next, copy))
        add_to(&sum, &next);
}

static void
take_gradient(grad_call *g, slot *s, probe_lent v, const char *section, int index)
{
    probe_path path;

    if (!msp_probe_is_lent(&v))
        return;
    s->got++;
    if (v.copy != NULL && s->expected > 1) {
        keep_copy(s, v.copy);
        return;
    }
    if (s->expected > 1 || s->followed || msp_probe.rules.overflow) {
        keep(&s->kept, &v);
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
    msp_probe_lent(s->tokens, &v, &path);
}

static void
take_gradients(const grad_hook *h, const grad_shown *leaving, const grad_shown *entering)
{
    grad_call *g = h->call;

    for (int i = 0; i < h->nin && msp_probe.rules.inputs; i++)
        take_gradient(g, &g->in[h->map[i].slot], msp_probe_grad_item(entering, h->map[i].at), "input", h->map[i].slot);
    for (int i = h->nin; i < h->nin + h->nout; i++) {
        int at = h->map[i].at, number = h->map[i].slot;
        probe_lent v = at < 0 ? msp_probe_grad_item(entering, -1 - at) : msp_probe_grad_item(leaving, at);

        if (number < 0 && msp_probe.rules.inputs && msp_probe_is_lent(&v))
            keep(&g->in[-1 - number].own, &v);
        else if (number >= 0 && (msp_probe.rules.outputs || g->nled > 0))
            take_gradient(g, &g->out[number], v, "output", number);
    }
}

/* A range may begin with the module that the call ends, whose own hook on the same node comes after the call's. */
static void
enter_parent(const grad_call *g)
{
    char parent[512];

    if (msp_probe.rules.scope_begin != NULL && g->parent_len > 0)
        msp_probe_scope_enter(parent, msp_probe_backward_text(parent, sizeof(parent), g->parent, g->parent_len));
}

/* A node that fires again begins another pass over the same graph, with a record of its own. */
static bool
begin_pass(grad_hook *h, int64_t task)
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
        enter_parent(g);
        msp_probe_scope_enter(g->name, g->len);
        g->task = task;
    }
    return stop;
}

static bool
fire(grad_hook *h, const grad_shown *leaving, const grad_shown *entering, int64_t task)
{
    grad_call *g = h->call;
    bool stop = begin_pass(h, task);

    if (stop || g->done)
        return stop;
    if (msp_probe_wants_gradients() && (selects(g) || g->nled > 0))
        take_gradients(h, leaving, entering);
    if (++g->fired >= g->hooks)
        return commit_grads(g);
    if (g->next == NULL) {
        link_call(g);
        if (msp_node_task() == g->task)
            await_end(g->task);
    }
    return false;
}

/* hook(grad_inputs, grad_outputs): what the node put on its edges, and what had arrived at it */
static PyObject *
grad_hook_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    grad_hook *h = (grad_hook *)self;
    grad_shown leaving = {0}, entering = {0};
    probe_quiet q;
    bool stop;

    (void)kwargs;
    if (PyTuple_GET_SIZE(args) != 2 || !msp_probe.live || h->call->generation != msp_probe.generation)
        Py_RETURN_NONE;
    leaving.tuple = PyTuple_GET_ITEM(args, 0);
    entering.tuple = PyTuple_GET_ITEM(args, 1);
    if (!PyTuple_Check(leaving.tuple) || !PyTuple_Check(entering.tuple))
        Py_RETURN_NONE; /* compiled autograd hands out something else */
    msp_probe_enter(&q);
    stop = fire(h, &leaving, &entering, msp_node_task());
    msp_probe_leave(&q);
    if (stop)
        return NULL;
    PyErr_Clear();
    Py_RETURN_NONE;
}

PyTypeObject msp_probe_grad_hook_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.GradHook",
    .tp_basicsize = sizeof(grad_hook),
    .tp_itemsize = sizeof(grad_mapping),
    .tp_dealloc = grad_hook_dealloc,
    .tp_call = grad_hook_call,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* ---- setting hooks ----------------------------------------------------------------------------------------------- */

grad_call *
msp_probe_grad_call(const char *name, size_t len, int nin, int nout, int64_t handed_on)
{
    grad_call *g = PyType_Ready(&grad_call_type) == 0 ? PyObject_New(grad_call, &grad_call_type) : NULL;
    size_t parent_len = 0;
    const char *parent = msp_probe_gradient_parent(handed_on, &parent_len);

    if (g == NULL)
        return NULL;
    memset((char *)g + sizeof(PyObject), 0, sizeof(*g) - sizeof(PyObject));
    g->generation = msp_probe.generation;
    g->stack = msp_probe_thread.stack;
    g->inside = msp_probe_inside_listed(true);
    g->in = PyMem_Calloc((size_t)(nin + nout) * sizeof(slot) + len + 1 + parent_len, 1); /* and all that is behind it */
    if (g->in == NULL) {
        Py_DECREF(g);
        return NULL;
    }
    g->out = g->in + nin;
    g->name = memcpy(g->out + nout, name, len);
    g->len = len;
    g->parent = g->name + len + 1;
    g->parent_len = parent_len;
    if (parent != NULL)
        memcpy(g->parent, parent, parent_len);
    g->nin = nin;
    g->nout = nout;
    return g;
}

void
msp_probe_grad_zeros(grad_call *g, int number, const msp_tensor *like)
{
    slot *s = &g->out[number];

    s->zeros = PyMem_Malloc(sizeof(*s->zeros));
    if (s->zeros != NULL)
        *s->zeros = *like;
}

static void
expect(grad_call *g, const grad_hook *h)
{
    g->hooks++;
    for (int i = 0; i < h->nin; i++)
        g->in[h->map[i].slot].expected++;
    for (int i = h->nin; i < h->nin + h->nout; i++)
        (h->map[i].slot < 0 ? &g->in[-1 - h->map[i].slot] : &g->out[h->map[i].slot])->expected++;
}

static bool
hook_object(PyObject *node, PyObject *hook)
{
    PyObject *handle = msp_probe_hook(node, hook);

    Py_XDECREF(handle);
    return handle != NULL;
}

bool
msp_probe_grad_hook(grad_call *g, void *node, bool direct, const grad_mapping *map, int nin, int nout)
{
    grad_hook *h = PyType_Ready(&msp_probe_grad_hook_type) == 0
                       ? PyObject_NewVar(grad_hook, &msp_probe_grad_hook_type, nin + nout)
                       : NULL;
    bool done;

    if (h == NULL)
        return false;
    Py_INCREF(g);
    h->call = g;
    h->passes = 0;
    h->nin = nin;
    h->nout = nout;
    memcpy(h->map, map, (size_t)(nin + nout) * sizeof(*map));
    done = direct ? msp_node_hook(node, &h->base) : hook_object(node, (PyObject *)h);
    if (done)
        expect(g, h);
    Py_DECREF(h);
    return done;
}

bool
msp_probe_grad_follow(grad_call *g, int own, grad_call *leader, int number)
{
    led_call *led = PyMem_Realloc(leader->led, (size_t)(leader->nled + 1) * sizeof(*led));

    if (led == NULL)
        return false;
    leader->led = led;
    Py_INCREF(g);
    led[leader->nled++] = (led_call){g, number, own};
    leader->out[number].followed = true;
    return true;
}

/* ---- hooks that were put on nodes directly ----------------------------------------------------------------------- */

static void
fire_directly(grad_hook *h, const grad_shown *leaving, const grad_shown *entering)
{
    probe_quiet q;

    if (!msp_probe.live || h->call->generation != msp_probe.generation)
        return;
    msp_probe_enter(&q);
    fire(h, leaving, entering, msp_node_task());
    msp_probe_leave(&q);
}

void
msp_probe_grad_fire(PyObject *hook, const void *leaving, const void *entering)
{
    const grad_shown out = {.list = leaving}, in = {.list = entering};

    await_end(msp_node_task());
    if (Py_TYPE(hook) == &msp_probe_grad_hook_type)
        fire_directly((grad_hook *)hook, &out, &in);
    else
        msp_probe_parameter_fire(hook, &in);
    if (PyErr_Occurred())
        PyErr_Clear();
}

/* ---- the same, worked out later ---------------------------------------------------------------------------------- */

static bool
is_alive(const grad_hook *h)
{
    return msp_probe.live && h->call->generation == msp_probe.generation;
}

/* What the hook will ask for: as take_gradients() does. Where other calls or other hooks have a part in it, it is not
 * for this way, but for several contributions to one sum, which are kept. */
bool
msp_probe_grad_note(probe_batch *b, PyObject *hook, const void *leaving, const void *entering)
{
    const grad_hook *h = (const grad_hook *)hook;
    const grad_call *g = h->call;

    if (!is_alive(h) || !msp_probe_wants_gradients())
        return true;
    if (g->nled > 0)
        return false;
    for (int i = 0; i < h->nin + h->nout; i++) {
        const bool enters = i < h->nin, shown_entering = enters || h->map[i].at < 0;
        const int at = h->map[i].at < 0 ? -1 - h->map[i].at : h->map[i].at;
        const void *tensor;

        if (h->map[i].slot < 0)
            return false;
        if (!(enters ? msp_probe.rules.inputs : msp_probe.rules.outputs))
            continue;
        tensor = msp_node_item(shown_entering ? entering : leaving, at);
        if (tensor != NULL &&
            !msp_batch_note(b, shown_entering, at, tensor, (enters ? g->in : g->out)[h->map[i].slot].expected > 1))
            return false;
    }
    return true;
}

void
msp_probe_grad_work(PyObject *hook, const probe_shown *shown, int64_t task)
{
    const grad_shown leaving = {.noted = shown}, entering = {.noted = shown, .entering = true};

    if (is_alive((grad_hook *)hook))
        fire((grad_hook *)hook, &leaving, &entering, task);
    if (PyErr_Occurred())
        PyErr_Clear();
}
