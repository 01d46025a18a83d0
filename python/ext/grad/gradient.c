/*
 * gradient.c - the record that the hooks of one call fill.
 *
 * A call that made several nodes is recorded when all of its hooks have fired, or at the end of the backward pass.
 * Where several of them contribute to one input their sum is recorded (sum.c); only these gradients are kept from
 * the first hook to the last.
 */
#include "grad/gradient.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What has come of a gradient: one of the three. */
typedef struct coming {
    PyObject *lent;   /* the tensor itself, which is the only one, while the call's last hook runs */
    msp_record *read; /* its tokens: hooks are still to come, so that it was read at once and is not kept */
    grad_sum sum;     /* what is kept: it is a sum, or wanted by another call or by overflow_check */
    struct coming *next;
} coming;

/* One gradient of the call. */
typedef struct slot {
    int expected;      /* how many of its nodes may contribute to it */
    bool came;         /* one did, in this backward pass */
    bool followed;     /* another call has the same gradient (led_call) */
    coming *what;      /* what has come; NULL: nothing, or it is not read */
    msp_tensor *zeros; /* what a tensor of zeros looks like, for an input that the module does not use; or NULL */
} slot;

/* A model's calls wait for their gradients all at once, and these come one after the other: what a slot needs then is
 * had from here, and does not come cold from the memory of each call. */
static coming *idle;

static coming *
coming_of(slot *s)
{
    if (s->what == NULL && idle != NULL) {
        s->what = idle;
        idle = idle->next;
        *s->what = (coming){0};
    } else if (s->what == NULL) {
        s->what = PyMem_Calloc(1, sizeof(*s->what));
    }
    return s->what;
}

/* A call whose only gradient is one that leaves another call, the leader: it hands on what that was given. */
typedef struct led_call {
    grad_call *call;
    int slot; /* the leader's input by which it leaves */
    int own;  /* the input of the call itself */
} led_call;

/* In one piece of memory, with slots, name and parent behind the struct. */
struct grad_call {
    PyObject_VAR_HEAD char *name; /* of its record without the number of a further pass: "Torch.exp.0.backward" */
    size_t len;
    char *parent; /* the module that the call belongs to, as it is called in forward; empty: none */
    size_t parent_len;
    uint32_t stack;     /* from where the call itself was made */
    bool inside;        /* a module around it is in the list */
    int64_t generation; /* the step in which it was made */
    int nin, nout;      /* how many gradients enter, one for each output, and leave, one for each input */
    slot *in, *out;
    int hooks, fired; /* how many hooks it has, and how many of them have told in this backward pass */
    int64_t pass;     /* the number of the backward pass in which the first one fired */
    int passes;       /* how many came before: torch runs a graph as often as it is asked to */
    bool done;        /* its record of this pass is committed */
    led_call *led;    /* the calls that it leads */
    int nled;
    struct grad_call *prev, *next; /* in the list of those that have fired but wait for more; the list holds them */
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
        coming *c = s[i].what;

        s[i].came = false;
        if (c == NULL)
            continue;
        s[i].what = NULL; /* at once: what goes with the sum may be anything */
        msp_probe_record_put(c->read);
        msp_sum_clear(&c->sum);
        c->next = idle;
        idle = c;
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
    PyObject_Free(self);
}

static PyTypeObject grad_call_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.GradCall",
    .tp_basicsize = sizeof(grad_call),
    .tp_itemsize = 1,
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
    char name[PROBE_NAME_SIZE];

    msp_probe_path_begin(path, name, call_name(name, sizeof(name), g));
    msp_probe_path_push(path, section, strlen(section));
    msp_probe_path_push_index(path, i);
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
    const coming *c = s->what;

    if (c != NULL && c->lent != NULL) {
        msp_probe_value(r, c->lent, path, 0);
    } else if (c != NULL && c->read != NULL) {
        r->failed |= c->read->failed;
        msp_record_append(r, c->read);
    } else if (c != NULL && c->sum.parts != NULL) {
        msp_sum_put(r, &c->sum, path);
    } else if (!s->came && s->zeros != NULL) {
        put_zeros(r, s->zeros, path);
    } else {
        msp_record_null(r);
    }
}

static void
put_slots(msp_record *r, const grad_call *g, const slot *s, int n, const char *section, bool saving)
{
    probe_path path;

    msp_record_key(r, section, strlen(section));
    msp_record_array(r);
    for (int i = 0; i < n; i++) {
        start_path(&path, g, section, i);
        path.saving = saving;
        put_slot(r, &s[i], &path);
    }
    msp_record_end(r);
}

/* Where its gradients stand, in one with their record, or (NULL) alone. */
static void
note_parent(const grad_call *g, msp_record *record)
{
    char name[PROBE_NAME_SIZE], parent[PROBE_NAME_SIZE];
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
selects_call(const grad_call *g)
{
    if (!msp_probe_in_scope())
        return false;
    return msp_probe.rules.list == NULL || g->inside || msp_probe_in_list(msp_probe.rules.list, g->name, g->len);
}

/* Fill r, or save elements; true when the call made inf or NaN, *poisoned: when it got some. */
static bool
put_gradients(msp_record *r, const grad_call *g, bool saving, bool *poisoned)
{
    uint64_t since = msp_probe_watch_overflow();

    if (msp_probe.rules.inputs)
        put_slots(r, g, g->in, g->nin, "input", saving);
    *poisoned = msp_probe_saw_overflow(since);
    since = msp_probe_watch_overflow();
    if (msp_probe.rules.outputs)
        put_slots(r, g, g->out, g->nout, "output", saving);
    return msp_probe_saw_overflow(since);
}

/* Returns true when the program is to be stopped, with an exception set. */
static bool
record_gradients(grad_call *g)
{
    msp_record *r = msp_probe_record_get();
    bool overflowed, poisoned, saved;
    uint64_t before = msp_probe.tickets;
    char name[PROBE_NAME_SIZE];
    size_t n = call_name(name, sizeof(name), g);

    if (r == NULL)
        return false;
    msp_record_begin(r, msp_probe.unit, name, n);
    msp_record_object(r);
    overflowed = put_gradients(r, g, false, &poisoned) | msp_probe_device_overflowed();
    if (overflowed || poisoned || !msp_probe.rules.overflow) {
        msp_record_end(r);
        if (msp_probe.rules.construct && !msp_probe.rules.overflow)
            note_parent(g, r);
        msp_probe_commit_value(r);
    }
    if (msp_probe.rules.overflow && (overflowed || poisoned)) {
        put_gradients(r, g, true, &saved);
    } else if (msp_probe.rules.overflow) {
        msp_probe_device_forget(before);
    }
    msp_probe_record_put(r);
    return overflowed && msp_probe_overflow(name, g->stack);
}

/* A gradient that leaves two calls is held. */
static void
share_gradient(slot *s, const slot *from)
{
    s->came = from->came;
    if (from->what != NULL && coming_of(s) != NULL)
        msp_sum_share(&s->what->sum, &from->what->sum);
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

        if (!g->out[l->slot].came && msp_probe_wants_gradients())
            continue;
        share_gradient(&l->call->in[0], &g->out[l->slot]);
        share_gradient(&l->call->out[l->own], &g->out[l->slot]);
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
        const bool recorded = msp_probe_wants_gradients() && selects_call(g);

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
find_waiting(int64_t pass)
{
    for (grad_call *g = waiting.next; g != &waiting; g = g->next)
        if (pass == EVERY_PASS || g->pass == pass)
            return g;
    return NULL;
}

/* Python may run meanwhile and change the list. */
void
msp_probe_grad_flush_pass(int64_t pass)
{
    probe_quiet q;
    grad_call *g;

    msp_probe_enter(&q);
    while ((g = find_waiting(pass)) != NULL) {
        Py_INCREF(g);
        if (commit_grads(g))
            msp_probe_expect(PyExc_Exception, "the limit of overflows"); /* there is no call left to stop */
        Py_DECREF(g);
    }
    msp_probe_leave(&q);
}

void
msp_probe_grad_flush(void)
{
    msp_probe_grad_flush_pass(EVERY_PASS);
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

grad_call *
msp_probe_grad_call(const grad_owner *owner, int nin, int nout, int64_t handed_on)
{
    size_t parent_len = 0;
    const char *parent = msp_probe_gradient_parent(handed_on, owner->site->owner, &parent_len);
    const size_t head = sizeof(grad_call) + (size_t)(nin + nout) * sizeof(slot);
    const size_t len = owner->len, behind = head - sizeof(grad_call) + len + 1 + parent_len;
    grad_call *g =
        PyType_Ready(&grad_call_type) == 0 ? PyObject_NewVar(grad_call, &grad_call_type, (Py_ssize_t)behind) : NULL;

    if (g == NULL)
        return NULL;
    memset((char *)g + sizeof(PyVarObject), 0, head - sizeof(PyVarObject));
    g->generation = msp_probe.generation;
    g->stack = owner->site->stack;
    g->inside = msp_probe_inside_listed(true);
    g->in = (slot *)(g + 1);
    g->out = g->in + nin;
    g->name = memcpy((char *)g + head, owner->name, len);
    g->name[len] = '\0';
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

void
msp_probe_grad_expect(grad_call *g, const grad_hook *h)
{
    g->hooks++;
    for (Py_ssize_t i = 0; i < Py_SIZE(h); i++)
        (h->map[i].use == GRAD_LEAVES ? g->out : g->in)[h->map[i].slot].expected++;
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

/* ---- what its hooks are shown ------------------------------------------------------------------------------------ */

bool
msp_probe_grad_is_alive(const grad_call *g)
{
    return msp_probe.live && g->generation == msp_probe.generation;
}

/* Its tokens now: it is gone when the call is recorded. */
static void
read_now(coming *c, PyObject *v, probe_path *path)
{
    msp_probe_record_put(c->read);
    c->read = msp_probe_record_get();
    if (c->read != NULL)
        msp_probe_value(c->read, v, path, 0);
}

static void
take_gradient(grad_call *g, slot *s, PyObject *v, const char *section, int index)
{
    probe_path path;

    if (v == NULL || coming_of(s) == NULL)
        return;
    s->came = true;
    if (s->expected > 1 || s->followed || msp_probe.rules.overflow) { /* which may want it again, to save it */
        msp_sum_add(&s->what->sum, v);
    } else if (g->fired + 1 >= g->hooks) {
        s->what->lent = v;
    } else {
        start_path(&path, g, section, index);
        read_now(s->what, v, &path);
    }
}

static void
take_gradients(grad_call *g, const grad_hook *h, PyObject *leaving, PyObject *entering)
{
    for (Py_ssize_t i = 0; i < Py_SIZE(h); i++) {
        const grad_mapping *m = &h->map[i];
        PyObject *v = msp_probe_grad_item(m->in == SHOWN_ENTERING ? entering : leaving, m->at);

        if (m->use == GRAD_LEAVES && (msp_probe.rules.outputs || g->nled > 0))
            take_gradient(g, &g->out[m->slot], v, "output", m->slot);
        else if (m->use == GRAD_ENTERS && msp_probe.rules.inputs)
            take_gradient(g, &g->in[m->slot], v, "input", m->slot);
        else if (m->use == GRAD_OWN_SHARE && msp_probe.rules.inputs && v != NULL && coming_of(&g->in[m->slot]) != NULL)
            msp_sum_subtract(&g->in[m->slot].what->sum, v);
    }
}

/* A range may begin with the module that the call ends, whose own hook on the same node comes after the call's. */
static void
enter_parent(const grad_call *g)
{
    char parent[PROBE_NAME_SIZE];

    if (msp_probe.rules.scope_begin != NULL && g->parent_len > 0)
        msp_probe_scope_enter(parent, msp_probe_backward_text(parent, sizeof(parent), g->parent, g->parent_len));
}

/* A node that fires again begins another pass over the same graph, with a record of its own. */
static bool
begin_pass(grad_hook *h, int64_t pass)
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
        g->pass = pass;
    }
    return stop;
}

bool
msp_probe_grad_take(grad_hook *h, PyObject *leaving, PyObject *entering, int64_t pass)
{
    grad_call *g = h->call;
    bool stop = begin_pass(h, pass);

    if (stop || g->done)
        return stop;
    if (msp_probe_wants_gradients() && (selects_call(g) || g->nled > 0))
        take_gradients(g, h, leaving, entering);
    if (++g->fired >= g->hooks)
        return commit_grads(g);
    if (g->next == NULL) {
        link_call(g);
        msp_probe_await_end(g->pass);
    }
    return false;
}
