/*
 * module_tree.h - what the files about a model's modules share, and nobody else.
 *
 *     module_tree.c   the modules and their parameters, by address
 *     parameter.c  the record of the gradients that a module's parameters get
 */
#ifndef MSP_PY_MODULE_TREE_H
#define MSP_PY_MODULE_TREE_H

#include "model/model.h"

typedef struct module_name {
    probe_module shown; /* first */
    int64_t written;    /* records of its parameters' gradients in this step */
    int expected;       /* how many of its parameters get gradients */
    msp_record *record; /* those that have come and wait for the rest; NULL: none */
    const char **parts; /* their parameters' names */
    int nparts, parts_cap;
    bool overflowed; /* one of them holds inf or NaN */
    struct module_name *next;
} module_name;

/* A parameter whose gradient is recorded: for which modules, under which name in each; tied weights have several. */
typedef struct target {
    module_name *module;
    char *own;
} target;

typedef struct watched {
    PyObject_HEAD target *targets;
    int n;
    PyObject *parameter; /* borrowed */
    PyObject *hooks;     /* a list [node, handle, ...] in this step, or NULL */
} watched;

/* One for the parameter, with no module yet: a new reference, or NULL with an exception set. */
watched *msp_watch_new(PyObject *parameter);

/* Its gradient is one of this module's, under its own name there. False without memory. */
bool msp_watch_add(watched *w, module_name *n, const char *own);

/* Whether a node tells of its gradients in this step. */
static inline bool
msp_watch_is_met(const watched *w)
{
    return w->hooks != NULL && PyList_GET_SIZE(w->hooks) > 0;
}

/* Take its hooks out. */
void msp_watch_unhook(watched *w);

/* Write what has come for the module. Returns true when the program is to be stopped, with an exception set. */
bool msp_watch_write(module_name *n);

/* Whether a module that was called waits for gradients of its parameters, or has got none. */
static inline bool
msp_watch_lacks(const module_name *n)
{
    return n->nparts > 0 || (n->written == 0 && n->shown.count > 0 && n->expected > 0);
}

/* A parameter of a module that was called stands as null where no gradient came for it, in inference, too. null: the
 * tokens of one. */
void msp_watch_add_missing(const watched *w, const msp_record *null);

#endif
