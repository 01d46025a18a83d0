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
    MOST_OPEN = 256,   /* modules inside one another; for deeper ones the plain rule holds */
    MOST_RETURNED = 8, /* that have ended beside one another: what is handed on comes from one of the last */
    NAME_SIZE = 448,
};

typedef struct open_module {
    int64_t first; /* number of the first node that it makes; -1: torch has none */
    bool returns;  /* gradients leave it by its positional arguments */
} open_module;

typedef struct ended_module {
    char name[NAME_SIZE];
    int64_t first, end; /* its nodes */
    Py_ssize_t depth;   /* how many modules were open around it */
} ended_module;

static __thread open_module opened[MOST_OPEN]; /* beside msp_probe_thread.modules, their names */
static __thread ended_module ended[MOST_RETURNED];
static __thread int n_ended;

Py_ssize_t
msp_probe_open_modules(void)
{
    return msp_probe_thread.modules == NULL ? 0 : PyList_GET_SIZE(msp_probe_thread.modules);
}

void
msp_probe_module_open(const char *name, size_t len, const probe_edges *inputs)
{
    PyObject *text = PyUnicode_DecodeUTF8(name, (Py_ssize_t)len, "replace");
    Py_ssize_t at = msp_probe_open_modules();

    if (msp_probe_thread.modules == NULL)
        msp_probe_thread.modules = PyList_New(0);
    if (text == NULL || msp_probe_thread.modules == NULL || PyList_Append(msp_probe_thread.modules, text) != 0)
        PyErr_Clear();
    else if (at < MOST_OPEN)
        opened[at].returns = msp_probe_edges_return(inputs, &opened[at].first);
    Py_XDECREF(text);
}

static void
note_ended(const char *name, Py_ssize_t at)
{
    while (n_ended > 0 && ended[n_ended - 1].depth > at)
        n_ended--; /* those inside it: what they returned is now its own */
    if (at >= MOST_OPEN || !opened[at].returns || opened[at].first < 0 || strlen(name) >= NAME_SIZE)
        return;
    if (n_ended == MOST_RETURNED)
        memmove(ended, ended + 1, (size_t)--n_ended * sizeof(*ended));
    strcpy(ended[n_ended].name, name);
    ended[n_ended].first = opened[at].first;
    ended[n_ended].end = msp_probe_next_node();
    ended[n_ended++].depth = at;
}

/* Whatever a raised exception left above the module goes with it. */
void
msp_probe_module_close(const char *name)
{
    PyObject *open = msp_probe_thread.modules;
    Py_ssize_t n = msp_probe_open_modules();

    for (Py_ssize_t i = n; i-- > 0;)
        if (PyUnicode_CompareWithASCIIString(PyList_GET_ITEM(open, i), name) == 0) {
            PyList_SetSlice(open, i, n, NULL);
            if (msp_probe.rules.construct)
                note_ended(name, i);
            return;
        }
}

/* The innermost module that is open in backward, below this depth; -1: none. */
static Py_ssize_t
returning_below(Py_ssize_t n)
{
    while (n > 0 && n <= MOST_OPEN && !opened[n - 1].returns)
        n--;
    return n - 1;
}

static const ended_module *
returned_by(int64_t node)
{
    for (int i = n_ended; i-- > 0;)
        if (ended[i].depth == msp_probe_open_modules() && ended[i].first <= node && node < ended[i].end)
            return &ended[i];
    return NULL;
}

Py_ssize_t
msp_probe_given_to(int64_t node)
{
    Py_ssize_t at = returning_below(msp_probe_open_modules());

    if (node == -1 || at < 0 || at >= MOST_OPEN || node >= opened[at].first || returned_by(node) != NULL)
        return -1;
    return at;
}

PyObject *
msp_probe_gradient_parent(int64_t handed_on)
{
    const ended_module *from = handed_on < 0 ? NULL : returned_by(handed_on);
    Py_ssize_t given = msp_probe_given_to(handed_on);
    Py_ssize_t at = returning_below(given >= 0 ? given : msp_probe_open_modules());
    PyObject *name;

    if (!msp_probe.rules.construct)
        return NULL;
    if (from != NULL)
        return PyUnicode_FromString(from->name);
    if (at < 0)
        return NULL;
    name = PyList_GET_ITEM(msp_probe_thread.modules, at);
    Py_INCREF(name);
    return name;
}
