/*
 * open_modules.c - the modules that are open, and the one that a gradient belongs to (construct.json).
 *
 * A call belongs to the innermost open module. In backward no calls nest; there the original opens a module when a
 * gradient arrives for its result, and closes it when one leaves by its positional arguments. Backward runs the nodes
 * from the last one made to the first, so what is open when a call's gradients pass can be told in forward:
 *
 * - A module whose positional arguments need no gradient (token numbers, or everything is given by keyword) is closed
 *   as soon as it is opened: what is inside belongs to the module around it.
 * - A call without a node of its own hands on a tensor, and belongs where that tensor's node does: outside a module
 * that was given the tensor, inside one that has returned it.
 *
 * A program's own code can run in backward, too: backward() of an autograd.Function, hooks, a forward that is repeated
 * for its activations. What that calls belongs to the module in which the node was made that runs just then; so the
 * nodes of modules that have ended are remembered until the step is over.
 */
#include "model/model.h"
#include <string.h>

enum {
    MOST_RETURNED = 8,  /* that have ended beside one another: what is handed on comes from one of the last */
    MOST_PAST = 1 << 16 /* of one step: thousands of modules, and tens of forwards before their backward */
};

typedef struct open_module {
    int64_t first; /* number of the first node that it makes; -1: torch has none */
    bool returns;  /* gradients leave it by its positional arguments */
    size_t len;
    char name[PROBE_NAME_SIZE];
} open_module;

typedef struct ended_module {
    int64_t first, end; /* its nodes */
    Py_ssize_t depth;   /* how many modules were open around it */
    size_t len;
    char name[PROBE_NAME_SIZE];
} ended_module;

/* No Python objects: each call of a module comes by here twice. */
typedef struct modules_here {
    open_module *opened; /* innermost last */
    Py_ssize_t n_opened, cap_opened;
    unsigned first_ended, n_ended;
    ended_module ended[MOST_RETURNED]; /* the last ones, in a circle */
} modules_here;

static __thread modules_here modules;

/* What has ended in this step, on whatever thread: a device's gradients pass on another one. Those around a module end
 * after it, so the first whose nodes hold a number is the innermost. Under the interpreter lock. */
typedef struct ended_nodes {
    int64_t first, end;
    size_t at, len; /* of the name in texts */
} ended_nodes;

static struct {
    ended_nodes *all;
    size_t n, cap;
    char *texts;
    size_t used, size;
    int64_t generation;
} past;

/* Its address is a call, which a compiler would rather make again than keep what it said. */
static modules_here *
find_here(void)
{
    modules_here *here = &modules;

    __asm__("" : "+r"(here));
    return here;
}

static ended_module *
ended_at(modules_here *here, unsigned i)
{
    return &here->ended[(here->first_ended + i) % MOST_RETURNED];
}

Py_ssize_t
msp_probe_open_modules(void)
{
    return modules.n_opened;
}

const char *
msp_probe_open_name(Py_ssize_t at, size_t *len)
{
    const open_module *m;

    if (at < 0)
        return NULL;
    m = &modules.opened[at];
    *len = m->len;
    return m->name;
}

void
msp_probe_module_open(const char *name, size_t len, const probe_edges *inputs)
{
    modules_here *here = find_here();
    Py_ssize_t cap = here->cap_opened == 0 ? 16 : here->cap_opened * 2;
    open_module *m;

    if (here->n_opened == here->cap_opened) {
        m = PyMem_Realloc(here->opened, (size_t)cap * sizeof(*m));
        if (m == NULL)
            return;
        here->opened = m;
        here->cap_opened = cap;
    }
    m = &here->opened[here->n_opened++];
    m->returns = msp_probe_edges_return(inputs, &m->first);
    m->len = len < PROBE_NAME_SIZE ? len : PROBE_NAME_SIZE - 1;
    memcpy(m->name, name, m->len);
}

/* room for one more; false: there is no memory, and what is called in backward has no parent */
static bool
make_room_for(size_t len)
{
    const size_t cap = past.cap == 0 ? 64 : past.cap * 2, size = past.size == 0 ? 4096 : past.size * 2;
    void *p;

    if (past.n == past.cap) {
        p = PyMem_Realloc(past.all, cap * sizeof(*past.all));
        if (p == NULL)
            return false;
        past.all = p;
        past.cap = cap;
    }
    if (past.size - past.used < len) { /* a name is shorter than the first size, and so than any that was added */
        p = PyMem_Realloc(past.texts, size);
        if (p == NULL)
            return false;
        past.texts = p;
        past.size = size;
    }
    return true;
}

/* A program that goes on without step() has any number of them: the older half is forgotten. */
static void
forget_oldest(void)
{
    const size_t n = past.n / 2, bytes = past.all[n].at;

    past.n -= n;
    past.used -= bytes;
    memmove(past.all, past.all + n, past.n * sizeof(*past.all));
    memmove(past.texts, past.texts + bytes, past.used);
    for (size_t i = 0; i < past.n; i++)
        past.all[i].at -= bytes;
}

static void
remember_nodes(const open_module *m, int64_t end)
{
    if (past.generation != msp_probe.generation) {
        past.generation = msp_probe.generation;
        past.n = past.used = 0;
    }
    if (past.n == MOST_PAST)
        forget_oldest();
    if (end == m->first || !make_room_for(m->len))
        return;
    past.all[past.n++] = (ended_nodes){m->first, end, past.used, m->len};
    memcpy(past.texts + past.used, m->name, m->len);
    past.used += m->len;
}

static void
note_ended(modules_here *here, Py_ssize_t at)
{
    const open_module *m = &here->opened[at];
    ended_module *e;

    while (here->n_ended > 0 && ended_at(here, here->n_ended - 1)->depth > at)
        here->n_ended--; /* those inside it: what they returned is now its own */
    if (!m->returns || m->first < 0)
        return;
    if (here->n_ended == MOST_RETURNED) {
        here->first_ended++;
        here->n_ended--;
    }
    e = ended_at(here, here->n_ended++);
    e->first = m->first;
    e->end = msp_state_next_node();
    remember_nodes(m, e->end);
    e->depth = at;
    e->len = m->len;
    memcpy(e->name, m->name, m->len);
}

/* Whatever a raised exception left above the module goes with it. */
void
msp_probe_module_close(const char *name, size_t len)
{
    modules_here *here = find_here();

    for (Py_ssize_t i = here->n_opened; i-- > 0;)
        if (here->opened[i].len == len && memcmp(here->opened[i].name, name, len) == 0) {
            here->n_opened = i;
            if (msp_probe.rules.construct)
                note_ended(here, i);
            return;
        }
}

/* The innermost module that is open in backward, below this depth; -1: none. */
static Py_ssize_t
returning_below(const modules_here *here, Py_ssize_t n)
{
    while (n > 0 && !here->opened[n - 1].returns)
        n--;
    return n - 1;
}

static const ended_module *
returned_by(modules_here *here, int64_t node)
{
    for (unsigned i = here->n_ended; i-- > 0;) {
        const ended_module *e = ended_at(here, i);

        if (e->depth == here->n_opened && e->first <= node && node < e->end)
            return e;
    }
    return NULL;
}

Py_ssize_t
msp_probe_given_to(int64_t handed_on)
{
    modules_here *here;
    Py_ssize_t at;

    if (handed_on == MSP_PROBE_OWN_NODES)
        return -1;
    here = find_here();
    at = returning_below(here, here->n_opened);
    return at < 0 || handed_on >= here->opened[at].first || returned_by(here, handed_on) != NULL ? -1 : at;
}

const char *
msp_probe_gradient_parent(int64_t handed_on, PyObject *owner, size_t *len)
{
    modules_here *here;
    const ended_module *from;
    Py_ssize_t given;

    if (!msp_probe.rules.construct)
        return NULL;
    if (owner != NULL)
        return PyUnicode_AsUTF8AndSize(owner, (Py_ssize_t *)len);
    here = find_here();
    from = returned_by(here, handed_on);
    if (from != NULL) {
        *len = from->len;
        return from->name;
    }
    given = msp_probe_given_to(handed_on);
    return msp_probe_open_name(returning_below(here, given >= 0 ? given : here->n_opened), len);
}

/* ---- what a program calls in backward ---------------------------------------------------------------------------- */

/* The number of the node that runs on this thread; -1: none does, or it has none, as those of parameters. own: whether
 * it is an autograd.Function of Python's. */
static int64_t
running_node(bool *own)
{
    static PyObject *ask;
    PyObject *torch, *node = NULL, *number = NULL;
    int64_t n = -1;

    if (ask == NULL) {
        torch = PyImport_ImportModule("torch._C");
        ask = torch == NULL ? NULL : PyObject_GetAttrString(torch, "_current_autograd_node"); /* from 2.1 on */
        Py_XDECREF(torch);
    }
    if (ask != NULL)
        node = PyObject_CallNoArgs(ask);
    if (node != NULL && node != Py_None)
        number = PyObject_CallMethod(node, "_sequence_nr", NULL);
    if (number != NULL)
        n = (int64_t)PyLong_AsUnsignedLongLongMask(number);                /* the highest of all where it has none */
    msp_probe_expect(PyExc_AttributeError, "asking for the running node"); /* torch 1.13 and 2.0 do not tell */
    *own = number != NULL && msp_probe_has((PyObject *)Py_TYPE(node), "saved_tensors", "asking for the running node");
    Py_XDECREF(number);
    Py_XDECREF(node);
    return n < 0 ? -1 : n;
}

/* A hook on a module's result is called before the gradient is in the module, whose last node that is: unless the node
 * runs itself, because it is the program's, or needs what has to be repeated. */
const char *
msp_probe_running_parent(bool recompute, size_t *len)
{
    int64_t node, beyond;
    size_t low = 0, high = past.n;
    bool own;

    if (past.n == 0 || past.generation != msp_probe.generation || msp_state_backward_pass() < 0)
        return NULL;
    node = running_node(&own);
    beyond = own || recompute ? node : node + 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (past.all[middle].end <= beyond)
            low = middle + 1;
        else
            high = middle;
    }
    while (low < past.n && past.all[low].first > node)
        low++;
    if (node < 0 || low == past.n)
        return NULL;
    *len = past.all[low].len;
    return past.texts + past.all[low].at;
}
