/*
 * probe_parent.c - the modules that are open, and the one that a gradient belongs to (construct.json).
 *
 * A call belongs to the innermost open module. In backward no calls nest; there the original opens a module when a
 * gradient arrives for its result, and closes it when one leaves by its positional arguments. Backward runs the nodes
 * from the last one made to the first, so what is open when a call's gradients pass can be told in forward:
 *
 * - A module whose positional arguments need no gradient (token numbers, or everything is given by keyword) is closed
 *   as soon as it is opened: what is inside belongs to the module around it.
 * - A call without a node of its own hands on a tensor, and belongs where that tensor's node does: outside a module
 * that was given the tensor, inside one that has returned it.
 */
#include "probe.h"
#include <string.h>

enum {
    MOST_RETURNED = 8, /* that have ended beside one another: what is handed on comes from one of the last */
    NAME_SIZE = 448,
};

typedef struct open_module {
    int64_t first; /* number of the first node that it makes; -1: torch has none */
    bool returns;  /* gradients leave it by its positional arguments */
    size_t len;
    char name[NAME_SIZE];
} open_module;

typedef struct ended_module {
    int64_t first, end; /* its nodes */
    Py_ssize_t depth;   /* how many modules were open around it */
    size_t len;
    char name[NAME_SIZE];
} ended_module;

/* No Python objects: each call of a module comes by here twice. */
static __thread open_module *opened; /* innermost last */
static __thread Py_ssize_t n_opened, cap_opened;
static __thread ended_module ended[MOST_RETURNED]; /* the last ones, in a circle */
static __thread unsigned first_ended, n_ended;

static ended_module *
ended_at(unsigned i)
{
    return &ended[(first_ended + i) % MOST_RETURNED];
}

Py_ssize_t
msp_probe_open_modules(void)
{
    return n_opened;
}

const char *
msp_probe_open_name(Py_ssize_t at, size_t *len)
{
    if (at < 0)
        return NULL;
    *len = opened[at].len;
    return opened[at].name;
}

void
msp_probe_module_open(const char *name, size_t len, const probe_edges *inputs)
{
    Py_ssize_t cap = cap_opened == 0 ? 16 : cap_opened * 2;
    open_module *m;

    if (n_opened == cap_opened) {
        m = PyMem_Realloc(opened, (size_t)cap * sizeof(*m));
        if (m == NULL)
            return;
        opened = m;
        cap_opened = cap;
    }
    m = &opened[n_opened++];
    m->returns = msp_probe_edges_return(inputs, &m->first);
    m->len = len < NAME_SIZE ? len : NAME_SIZE - 1;
    memcpy(m->name, name, m->len);
}

static void
note_ended(const open_module *m, Py_ssize_t at)
{
    ended_module *e;

    while (n_ended > 0 && ended_at(n_ended - 1)->depth > at)
        n_ended--; /* those inside it: what they returned is now its own */
    if (!m->returns || m->first < 0)
        return;
    if (n_ended == MOST_RETURNED) {
        first_ended++;
        n_ended--;
    }
    e = ended_at(n_ended++);
    e->first = m->first;
    e->end = msp_probe_next_node();
    e->depth = at;
    e->len = m->len;
    memcpy(e->name, m->name, m->len);
}

/* Whatever a raised exception left above the module goes with it. */
void
msp_probe_module_close(const char *name, size_t len)
{
    for (Py_ssize_t i = n_opened; i-- > 0;)
        if (opened[i].len == len && memcmp(opened[i].name, name, len) == 0) {
            n_opened = i;
            if (msp_probe.rules.construct)
                note_ended(&opened[i], i);
            return;
        }
}

/* The innermost module that is open in backward, below this depth; -1: none. */
static Py_ssize_t
returning_below(Py_ssize_t n)
{
    while (n > 0 && !opened[n - 1].returns)
        n--;
    return n - 1;
}

static const ended_module *
returned_by(int64_t node)
{
    for (unsigned i = n_ended; i-- > 0;) {
        const ended_module *e = ended_at(i);

        if (e->depth == n_opened && e->first <= node && node < e->end)
            return e;
    }
    return NULL;
}

Py_ssize_t
msp_probe_given_to(int64_t node)
{
    Py_ssize_t at = node == -1 ? -1 : returning_below(n_opened);

    if (at < 0 || node >= opened[at].first || returned_by(node) != NULL)
        return -1;
    return at;
}

const char *
msp_probe_gradient_parent(int64_t handed_on, size_t *len)
{
    const ended_module *from = handed_on < 0 ? NULL : returned_by(handed_on);
    Py_ssize_t given;

    if (!msp_probe.rules.construct)
        return NULL;
    if (from != NULL) {
        *len = from->len;
        return from->name;
    }
    given = msp_probe_given_to(handed_on);
    return msp_probe_open_name(returning_below(given >= 0 ? given : n_opened), len);
}
