/*
 * model.h - modules: their calls, those that are open, and the tree that they make.
 *
 *     module_call.c   calls of modules (levels L0 and mix)
 *     open_modules.c  the modules that are open, and the one that a gradient belongs to
 *     module_tree.c   the modules of a model and their parameters, by address
 *     same_tree.c     whether that model is the one of the last step
 *     parameter.c     the record of the gradients that a module's parameters get
 */
#ifndef MSP_PY_MODEL_H
#define MSP_PY_MODEL_H

#include "grad/grad.h"

/* ---- calls (module_call.c) --------------------------------------------------------------------------------------- */

PyObject *msp_probe_module_begin(PyObject *self, PyObject *all);
PyObject *msp_probe_module_end(PyObject *self, PyObject *all);
int msp_probe_module_setup(void);
int msp_probe_tree_setup(void);

/* While we record, Module._call_impl leads to us, where that was proven: module_function(function, call, expected). */
void msp_probe_modules_start(void);
void msp_probe_modules_stop(void);
PyObject *msp_probe_module_function(PyObject *self, PyObject *all);

/* ---- the open modules (open_modules.c) --------------------------------------------------------------------------- */

/* A module's call begins, and ends. inputs may be NULL. */
void msp_probe_module_open(const char *name, size_t len, const probe_edges *inputs);
void msp_probe_module_close(const char *name, size_t len);

/* What a call hands on, where it is not the tensor of a node, whose number says so: its nodes are its own, or the
 * tensor is a leaf. */
enum { MSP_PROBE_OWN_NODES = -1, MSP_PROBE_LEAF = -2 };

/*
 * The module that the gradients of a call made now belong to, by its name in forward, or NULL; lent until the next
 * module opens or closes. owner: what stands for the module (probe_site). handed_on: the number of the node whose
 * tensor the call returned as it was, or one of the two above.
 */
const char *msp_probe_gradient_parent(int64_t handed_on, PyObject *owner, size_t *len);

/* The module, by its name in forward, whose gradients pass where a program's own code runs in backward; NULL: it does
 * not, or outside all modules. Lent as above. recompute: the call repeats a forward. */
const char *msp_probe_running_parent(bool recompute, size_t *len);

/* The open module that was given what a call hands on, by its number from the outermost, 0; -1: none was. */
Py_ssize_t msp_probe_given_to(int64_t handed_on);

/* How many modules are open; the name of one of them, lent as above, from the outermost, 0; NULL: at is -1. */
Py_ssize_t msp_probe_open_modules(void);
const char *msp_probe_open_name(Py_ssize_t at, size_t *len);

/* ---- the modules of a model (module_tree.c, parameter.c, same_tree.c) -------------------------------------------- */

/* The dicts of a module that each call looks at: four of hooks, and this one. */
enum { PROBE_PARAMETERS = 4, PROBE_DICTS };

/* A module as it is called in the dump. */
typedef struct probe_module {
    const char *text; /* "Module.a.Linear" */
    size_t len;
    int64_t count;      /* how often it was called in this step */
    bool hooked;        /* hooks that Python has set record it, and not the call of Module._call_impl */
    bool only_compiled; /* of its calls, those that torch.compile has compiled are recorded */
    int64_t chosen;     /* 1 + the last step in which list or scope have chosen its gradients; 0: none has */
} probe_module;

/* Whether the models, and how they are recorded, are as they were the last time; and forget that. What they consist of
 * is held in alive, and what that held is let go. */
struct held;
bool msp_probe_shape_is_same(PyObject *models, long how, struct held *alive);
void msp_probe_shape_forget(void);

/* The module when its calls are recorded, or NULL. */
probe_module *msp_probe_module_find(PyObject *module);

/* Gradients of a module, "Module.a.Linear.backward.0", are recorded: so are those of its parameters, also where they
 * come after the range has ended. */
void msp_probe_module_chosen(const char *name, size_t len);

/* From now on to modules_end() hooks that Python has set record it, or not. */
void msp_probe_module_hooked(probe_module *of, bool hooked);

/* A module's dict (NULL: it has none), and an attribute that a module sets on itself, or NULL; new references.
 * nn.Module has no slots and hides none: asking its dict first is three times as fast. */
PyObject *msp_probe_attributes(PyObject *module);
PyObject *msp_probe_attribute(PyObject *module, PyObject *own, PyObject *name);

/* Whether gradients of parameters are recorded; the object that stands for this one's, or NULL: its are not. */
bool msp_probe_watches(void);
PyObject *msp_probe_watched(PyObject *variable);

/* Its list [node, handle, ...] of the hooks in this step, or NULL without memory. */
PyObject *msp_probe_watched_hooks(PyObject *watched);

/* Nodes that have their hook in this step. */
bool msp_probe_is_hooked(PyObject *node);
void msp_probe_note_hooked(PyObject *node);

/* Whether the program keeps a gradient of its own beside torch's, which is the one that counts. */
bool msp_probe_has_main_grad(PyObject *parameter);

/* A backward pass has brought the parameter's gradient (*arrived, or NULL); arrived NULL: it is what the parameter has.
 * Returns true when the program is to be stopped, with an exception set. */
bool msp_probe_parameter_done(PyObject *watched, PyObject *parameter, PyObject *const *arrived);

PyObject *msp_probe_modules_begin(PyObject *self, PyObject *all);
PyObject *msp_probe_modules_end(PyObject *self, PyObject *unused);
PyObject *msp_probe_modules_forget(PyObject *self, PyObject *unused);
PyObject *msp_probe_module_add(PyObject *self, PyObject *all);
PyObject *msp_probe_module_remove(PyObject *self, PyObject *module);
PyObject *msp_probe_module_known(PyObject *self, PyObject *module);
PyObject *msp_probe_parameter_add(PyObject *self, PyObject *all);
PyObject *msp_probe_py_parameter_done(PyObject *self, PyObject *all);
PyObject *msp_probe_modules_called(PyObject *self, PyObject *unused);
PyObject *msp_probe_modules_step(PyObject *self, PyObject *unused);

/* ---- names and parameters: module_tree.c and parameter.c alone --------------------------------------------------- */

/* A module of the dump, and what has come of its parameters' gradients. */
typedef struct named_module {
    probe_module shown; /* first, so that one is the other */
    int expected;       /* how many of its parameters get gradients */
    int64_t written;    /* how many records of its parameters' gradients this step has */
    msp_record *record; /* the gradients that have come, and wait for the rest; NULL: none has */
    const char **parts; /* the names of the parameters whose gradients these are */
    int nparts, parts_cap;
    bool overflowed; /* one of them holds inf or NaN */
    struct named_module *next;
} named_module;

/* A module that a parameter is one of, and what it is called there; tied weights have several. */
typedef struct parameter_use {
    named_module *module;
    char *own; /* "weight" */
} parameter_use;

/* What stands for a parameter whose gradient is recorded. */
typedef struct watched_parameter {
    PyObject_HEAD parameter_use *uses;
    int n;
    PyObject *parameter; /* lent: the model holds it while we record */
    PyObject *hooks;     /* a list [AccumulateGrad node, handle, ...] of the hooks in this step; NULL: there are none */
} watched_parameter;

/* One for the parameter, with no module yet: a new reference, or NULL with an exception set. */
watched_parameter *msp_watch_new(PyObject *parameter);

/* Its gradient is one of this module's, under its own name there. False without memory. */
bool msp_watch_add(watched_parameter *w, named_module *n, const char *own);

/* Whether a node tells of its gradients in this step. */
static inline bool
msp_watch_is_met(const watched_parameter *w)
{
    return w->hooks != NULL && PyList_GET_SIZE(w->hooks) > 0;
}

/* Take its hooks out. */
void msp_watch_unhook(watched_parameter *w);

/* Write what has come for the module. Returns true when the program is to be stopped, with an exception set. */
bool msp_watch_write(named_module *n);

/* Whether a module that was called waits for gradients of its parameters, or has got none. */
static inline bool
msp_watch_lacks(const named_module *n)
{
    return n->nparts > 0 || (n->written == 0 && n->shown.count > 0 && n->expected > 0);
}

/* A parameter of a module that was called stands as null where no gradient came for it, in inference, too. null: the
 * tokens of one. */
void msp_watch_add_missing(const watched_parameter *w, const msp_record *null);

#endif
