/*
 * probe.h - recording calls of a framework's functions: what the files probe_*.c share.
 *
 * One probe per process. It lives in a static struct and not in the module's state, because the functions that stand in
 * for a framework's own are told nothing but their arguments. Everything here runs with the interpreter lock held.
 *
 *     probe.c         the object that Python sees, and the life of a recording
 *     probe_patch.c   functions are patched in place: the objects stay the same, their insides point here
 *     probe_function.c the same for those written in Python
 *     probe_call.c    one call: inputs, the call itself, outputs, commit
 *     probe_record.c  handing records over, what of them is wanted, errors of our own
 *     probe_value.c   Python values as tokens
 *     probe_view.c    a tensor's memory, found without going through Python
 *     probe_field.c   where torch's own objects have their fields
 *     probe_tensor.c  a tensor's record: measured, and saved where that is wanted
 *     probe_device.c  tensors on another device: reduced there, fetched in batches
 *     probe_keep.c    overflow_check: inputs as they were before their call
 *     probe_stack.c   call stacks, made into text once
 *     probe_edges.c   before a call: the edges on which the gradients of its inputs will arrive
 *     probe_walk.c    after it: which autograd nodes it made, and which of their edges carry its gradients
 *     probe_grad.c    the record of a call's gradients
 *     probe_hook.c    the hooks on its nodes that fill it
 *     probe_sum.c     several gradients that make one
 *     probe_batch.c   what these hooks are shown, worked out for many of them at a time
 *     probe_parameter.c gradients of parameters
 *     probe_follow.c  gradients of calls that hand on what their module was given
 *     probe_node.c    nodes read and hooked without going through Python
 *     probe_register.c putting hooks on nodes through Python
 *     probe_module.c  calls of modules, and single values
 *     probe_parent.c  the modules that are open, and the one that a gradient belongs to
 *     probe_tree.c    the modules of a model, by address
 *     probe_watch.c   the record of the gradients that a module's parameters get
 *     probe_shape.c   whether that model is the one of the last step
 *     probe_legacy.c  calls and modules as the older tools record them
 */
#ifndef MSP_PY_PROBE_H
#define MSP_PY_PROBE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <string.h>
#include "collect/live.h"

#if PY_VERSION_HEX < 0x03090000
#define PyObject_CallNoArgs(callable) PyObject_CallObject((callable), NULL)
#define PyCFunction_CheckExact(v)     (Py_TYPE(v) == &PyCFunction_Type)
#endif

/* A name and how often it was called in this step: "Functional.relu". Shared by all objects with that name. */
typedef struct probe_name {
    char *text; /* without number and direction */
    size_t len;
    int64_t count;
    struct probe_name *next; /* all names, for step() */
} probe_name;

typedef enum probe_kind {
    PROBE_BUILTIN,       /* builtin_function_or_method */
    PROBE_METHOD,        /* method_descriptor with arguments */
    PROBE_METHOD_NOARGS, /* method_descriptor without */
    PROBE_FUNCTION,      /* a function written in Python */
    PROBE_SETITEM,       /* the slot behind Tensor.__setitem__ */
    PROBE_CALLABLE       /* anything else, called by an object that stands in for it */
} probe_kind;

enum {
    PROBE_DISTRIBUTED = 1,   /* outputs are the arguments after the call; its handle is waited for */
    PROBE_BY_CALLER = 2,     /* torch has several names for it: Python tells by which one it is called */
    PROBE_WAIT = 4,          /* waiting for a handle: completes the record of the call that made it */
    PROBE_TRIAL = 8,         /* the self-test's own: calls are counted and nothing is recorded */
    PROBE_KERNEL = 16,       /* level L2: one call of it is made by Python, which records its kernels */
    PROBE_UNINITIALISED = 32 /* its result is memory that nobody has written to yet */
};

/* What Python says about an object with several names. */
enum { PROBE_FIRST_NAME = 0, PROBE_SECOND_NAME = 1, PROBE_UNLISTED = 2 };

/* One recorded function. Never freed: bound methods made while we recorded keep pointing at it. */
typedef struct probe_api {
    PyMethodDef def;   /* first: a patched built-in finds its api through its m_ml */
    PyMethodDef *orig; /* PROBE_BUILTIN, PROBE_METHOD*: what was there */
    PyObject *target;
    probe_kind kind;
    unsigned flags;
    probe_name *name;
    probe_name *other; /* the second name of an object that torch exports twice, or NULL */
    PyObject *code, *trampoline, *shadow, *signature; /* PROBE_FUNCTION in 3.11 */
    vectorcallfunc vectorcall;                        /* what was there, where the object has such a field */
    int64_t trials;                                   /* PROBE_TRIAL: calls seen */
    bool patched;
    struct probe_api *next;
} probe_api;

/* What is recorded, from the configuration. */
typedef struct probe_rules {
    bool forward, backward, inputs, outputs; /* data_mode */
    bool checksum;                           /* summary_mode md5 */
    bool statistics;
    bool structure; /* task structure: no values, only stack.json and construct.json */
    bool tensors;   /* task tensor: elements go to files */
    bool overflow;  /* task overflow_check: only calls that hold inf or NaN, with their elements; those that made it are
                       counted */
    bool construct; /* level mix or L0 */
    bool expand;    /* level mix: a module's name in the list stands for all that runs inside it */
    int64_t kernel; /* level L2: the number of the call, -1: none */
    int threads;    /* that may read a large tensor: as many as the program lets torch use; 0: one per core */
    PyObject *list; /* tuple of str: parts of names, or NULL */
    PyObject *tensor_list;             /* the same for files in task statistics, or NULL */
    PyObject *scope_begin, *scope_end; /* str or NULL */
} probe_rules;

typedef struct probe_state {
    msp_collect *collect;
    uint32_t unit;
    bool has_unit;
    bool on;    /* between start() and stop() */
    bool calls; /* ... those of functions, too, and not of modules alone */
    bool live;  /* gradients of this step are still taken: until step() */
    bool in_scope;
    bool quick;         /* of tensors nothing but numbers is asked for: see msp_probe_quick() */
    int64_t generation; /* the step's number, so that late gradients are told */
    probe_rules rules;
    char *data_dir;                  /* dump_tensor_data, NULL: none */
    int64_t records, values, errors; /* committed; of these, entries of "data"; failures of our own */
    PyObject *owners;                /* those that have their node in this unit's construct.json: a set, or NULL */

    PyTypeObject *tensor_type, *parameter_type;
    PyObject *trampoline;    /* Python: (function, entry) -> (code, signature or None); see probe_patch.c */
    PyObject *describe;      /* Python: anything odd -> a structure of plain values */
    PyObject *fetch;         /* Python: () -> statistics that were computed on devices; see probe_device.c */
    PyObject *total;         /* Python: (list of tensors, list of others) -> the sum of these without those */
    uint64_t tickets;        /* the last one that was given out for such statistics */
    PyObject *stack_text;    /* Python: (frame, form) -> texts, and what kind of call it is */
    PyObject *caller;        /* Python: function -> PROBE_FIRST_NAME, ... */
    PyObject *on_error;      /* Python: (where, name, exception, traceback) */
    PyObject *on_failure;    /* Python: (text), recording has ended */
    PyObject *is_programs;   /* Python: (exception) -> bool, it came out of a signal's handler */
    PyObject *on_overflow;   /* Python: (name); may raise, and what it raises leaves the call */
    PyObject *overflow_flag; /* Python: () -> bool, a device's own flag after a call, or NULL */
    PyObject *on_kernel;     /* Python: (function, args, kwargs) -> the call's result */
    PyObject *hook_module;   /* Python: (module): set hooks that call module_begin() and module_end() */
    PyObject *global_hooks;  /* tuple of torch's dicts of hooks on all modules, or NULL */
    PyObject *sequence_nr, *functorch_level, *task_id, *queue_callback; /* torch's own, or NULL */
    PyObject *set_eval_frame;                                           /* torch's, or NULL */
    PyObject *modes;   /* torch's (count, get state, set state, disabled) for TorchFunctionMode, or NULL */
    PyObject *pending; /* dict: handle -> the call that waits for it; NULL: none yet */
    uint32_t holes;    /* the last number given to msp_record_hole() */
    probe_name *names;
    probe_api *apis;
} probe_state;

extern probe_state msp_probe;

/* An input's elements, kept while its call runs (probe_keep.c). */
typedef struct kept_tensor kept_tensor;

/* Hold v, which a script has set, in the place of what is there; None and NULL: nothing. */
static inline void
msp_probe_set(PyObject **slot, PyObject *v)
{
    if (v == Py_None)
        v = NULL;
    Py_XINCREF(v);
    Py_XSETREF(*slot, v);
}

/* Per thread. */
typedef struct probe_thread {
    int depth;                 /* inside a recorded call: what it calls itself is not recorded */
    bool overflowed;           /* a tensor that was read since this was reset held inf or NaN */
    kept_tensor **keep;        /* overflow_check: where copies of what is read go, or NULL */
    uint32_t stack;            /* of the call that was looked at last, as msp_collect_stack() numbered it */
    PyObject *owner;           /* of the same call, as in its probe_site */
    bool saving;               /* elements are written to files and nothing else is done */
    const char *no_values;     /* why the values of what is read mean nothing, or NULL */
    bool transforming;         /* inside vmap, grad, ...: tensors are wrappers without memory */
    struct probe_batch *batch; /* what hooks were shown on this thread, or NULL */
} probe_thread;

extern __thread probe_thread msp_probe_thread;

/* Its address is a call, which a compiler would rather make again than keep what it said. */
static inline probe_thread *
msp_probe_here(void)
{
    probe_thread *here = &msp_probe_thread;

    __asm__("" : "+r"(here));
    return here;
}

/* ---- one call (probe_call.c) ------------------------------------------------------------------------------------- */

/* Call the function as it would have been called without us, recording it when it is the outermost one. */
PyObject *msp_probe_call(probe_api *api, PyObject *self, PyObject *args, PyObject *kwargs);

/* True when a call made now on this thread is recorded. */
static inline bool
msp_probe_wants(void)
{
    return msp_probe.on && msp_probe_thread.depth == 0;
}

/*
 * Around everything that we do: what is called meanwhile is not recorded, and the program's own TorchFunctionMode does
 * not see it. While the program's function itself runs, between resume and pause, the mode is as the program set it.
 */
typedef struct probe_quiet {
    PyObject *state; /* the mode's, to be put back; NULL: there is none */
} probe_quiet;

void msp_probe_enter(probe_quiet *q);
void msp_probe_leave(probe_quiet *q);
void msp_probe_resume(probe_quiet *q);
void msp_probe_pause(probe_quiet *q);

/* What a call of the program's ended with, set aside while it is recorded: its result, or NULL and an exception. */
typedef struct probe_outcome {
    PyObject *result, *type, *value, *trace;
} probe_outcome;

static inline probe_outcome
msp_probe_set_aside(PyObject *result)
{
    probe_outcome o = {.result = result};

    if (result == NULL)
        PyErr_Fetch(&o.type, &o.value, &o.trace);
    return o;
}

/* ours: the limit of overflows is reached, and our exception is what the program gets instead. */
static inline PyObject *
msp_probe_give_back(probe_outcome *o, bool ours)
{
    if (!ours && o->result != NULL) {
        if (PyErr_Occurred())
            PyErr_Clear();
        return o->result;
    }
    if (!ours) {
        PyErr_Restore(o->type, o->value, o->trace);
        return NULL;
    }
    Py_XDECREF(o->result);
    Py_XDECREF(o->type);
    Py_XDECREF(o->value);
    Py_XDECREF(o->trace);
    return NULL;
}

/* Call Python with one argument or two; torch.compile, which looks at every frame while it is on, leaves that one
 * alone. */
PyObject *msp_probe_ask(PyObject *callable, PyObject *first, PyObject *second);

/* The same of a function that runs no code but ours: when an exception of the program's interrupts it, it is asked
 * again, and the program gets its exception afterwards. */
PyObject *msp_probe_ask_own(PyObject *callable, PyObject *first, PyObject *second);

/* PyUnicode_AsUTF8AndSize(), which need not be called for what most names are. */
static inline const char *
msp_probe_utf8(PyObject *text, Py_ssize_t *len)
{
    if (!PyUnicode_IS_COMPACT_ASCII(text))
        return PyUnicode_AsUTF8AndSize(text, len);
    *len = PyUnicode_GET_LENGTH(text);
    return (const char *)PyUnicode_DATA(text);
}

/* A message as text, whatever bytes it holds. */
PyObject *msp_probe_text(const char *message);

/* Clear the exception that is set, if any; one that the program's handler of a signal has raised goes to the program.
 * Returns whether it was such a one. */
bool msp_probe_drop_error(void);

/* Calls whose handle nobody waited for, at the end of a step. */
void msp_probe_pending_flush(void);

/* Whether an argument is a tensor that only stands for one: a compiler's, and no call of the program. */
bool msp_probe_any_fake(PyObject *self, PyObject *args, PyObject *kwargs);

/* Run the original. */
PyObject *msp_probe_invoke(probe_api *api, PyObject *self, PyObject *args, PyObject *kwargs);

/* After a call, made from that stack, whose result overflowed: true when the program is to be stopped, with the
 * exception set. */
bool msp_probe_overflow(const char *name, uint32_t stack);

/* Begin to look for inf and NaN in what is read on this thread, and ask whether there was any since. */
uint64_t msp_probe_watch_overflow(void);
bool msp_probe_saw_overflow(uint64_t since);

/* Whether the device says that something overflowed since it was last asked; false where devices have no such flag. */
bool msp_probe_device_overflowed(void);

/* The name by which the running call reached api; NULL: one that is not in the list. */
probe_name *msp_probe_name_of(probe_api *api);

/* Let Python make the call (on_kernel); receiver: the tensor whose method it is, or NULL. */
PyObject *msp_probe_call_by_python(probe_api *api, PyObject *receiver, PyObject *args, PyObject *kwargs);

/* Let go of the interpreter lock while the library waits, and take it again; payload: a PyThreadState *. */
void msp_probe_while_waiting(bool begin, void *payload);

/* Hand a record over; a failure ends the recording and is told once. */
void msp_probe_commit(msp_record *r);
void msp_probe_commit_value(msp_record *r); /* an entry of "data" */

/* Whether list lets this name pass, alone or for the module it runs in; whether scope does now; and both. */
bool msp_probe_listed(const char *name, size_t len);
bool msp_probe_in_scope(void);
bool msp_probe_selects(const char *name, size_t len);

/* At level mix a module's name in the list stands for everything inside it; the same with the names that modules have
 * in backward. */
bool msp_probe_inside_listed(bool backward);

/* "Module.a.Linear.forward.0" as it is called in backward; returns its length, 0: it does not fit. */
size_t msp_probe_backward_text(char *out, size_t size, const char *name, size_t len);

/* True when one of the texts in list (a tuple of str, or NULL: no) is part of name. */
bool msp_probe_in_list(PyObject *list, const char *name, size_t len);
void msp_probe_scope_enter(const char *name, size_t len);
void msp_probe_scope_leave(const char *name, size_t len);

/* An exception in our own code: told, cleared, and never seen by the program. */
void msp_probe_swallow(const char *where, const char *name);

/* Commit where a call stands: what it belongs to, and its stack when it is selected. */
struct probe_site;
void msp_probe_note_site(const char *name, size_t len, const struct probe_site *site, bool selected);

/* The same in one with the record of a selected call, which is complete. */
void msp_probe_place(msp_record *r, const struct probe_site *site);

/* An exception of our own becomes the field "error" of what is being recorded, and is told once. */
void msp_probe_mark(msp_record *r, const char *where, const char *name);

/* What is held of a call, a function's or a module's, until its record is complete; any of it may be NULL. */
typedef struct probe_held {
    msp_record *record; /* NULL: not selected */
    struct probe_edges *edges;
    kept_tensor *kept;              /* overflow_check: the inputs' elements */
    PyObject *self, *args, *kwargs; /* references */
} probe_held;

/* Give all of it back; it is empty then. */
void msp_probe_let_go(probe_held *held);

/* A free record for this thread, without tokens; calls nest when hooks of the program run inside others. Give it back
 * when done. */
msp_record *msp_probe_record_get(void);
void msp_probe_record_put(msp_record *r);

/* ---- values (probe_value.c, probe_tensor.c) ---------------------------------------------------------------------- */

/* Where in a record we are, for names of tensor files: "Torch.cat.0.forward.input.0.1". Text is appended and cut back.
 */
/* The longest name of a module ("Module.a.Linear"; longer ones are made shorter when they are told to us, by
 * pytorch/modules.py), and a buffer for it with direction and numbers. */
enum { PROBE_MODULE_NAME = 1000, PROBE_NAME_SIZE = PROBE_MODULE_NAME + 72 };

typedef struct probe_path {
    char text[PROBE_NAME_SIZE + 128];
    size_t len;
    bool files; /* tensors go to files */
} probe_path;

/* The number in decimal, at most 20 characters and no end mark; returns how many. (printf takes 100 ns for it.) */
static inline size_t
msp_probe_digits(char *out, uint64_t n)
{
    char text[20];
    size_t at = sizeof(text);

    do
        text[--at] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    memcpy(out, text + at, sizeof(text) - at);
    return sizeof(text) - at;
}

void msp_probe_path_push(probe_path *path, const char *part, size_t len);
void msp_probe_path_push_index(probe_path *path, Py_ssize_t i);

/* One value, whatever it is; one that cannot be read is marked as such. */
void msp_probe_value(msp_record *r, PyObject *v, probe_path *path, int depth);

/* Arguments, or a result: the items of a tuple, the fields of a named one, anything else, a list too, as the only item.
 */
void msp_probe_sequence(msp_record *r, const char *key, PyObject *v, probe_path *path);

/* The same of what nearly all arguments and results are, one small tensor or a tuple of such, and that needs no path.
 * False, and nothing was written: it is something else. */
bool msp_probe_quick_value(msp_record *r, PyObject *v);
bool msp_probe_quick_sequence(msp_record *r, const char *key, size_t len, PyObject *v);

/* Several: the items of a tuple or list (numbered from first), the members of a dict. */
void msp_probe_values(msp_record *r, PyObject *seq, probe_path *path, Py_ssize_t first, int depth);
void msp_probe_members(msp_record *r, PyObject *dict, probe_path *path, int depth);

/* A value that only Python can describe; and a structure of plain values, written as it is. */
int msp_probe_odd(msp_record *r, PyObject *v, probe_path *path, int depth);
int msp_probe_plain(msp_record *r, PyObject *v, int depth);
int msp_probe_plain_members(msp_record *r, PyObject *dict, int depth);

/*
 * The record of tensor t with another type's text (NULL: the usual), requires_grad of grad_of, further plain fields (a
 * dict, NULL: none), and another shape (a tuple of int, NULL: its own).
 */
int msp_probe_tensor_as(msp_record *r, PyObject *t, probe_path *path, const char *type, PyObject *grad_of,
                        PyObject *extra, PyObject *shape);

/*
 * The record of a tensor that is small and plain in every respect, while no more than numbers is asked for
 * (msp_probe.quick). False, and nothing was written: it is not. Without the interpreter lock.
 */
bool msp_probe_quick(msp_record *r, const void *handle);

/* Recording begins: the rules decide whether no more is asked for. */
void msp_probe_quick_start(void);

/* The memory of a tensor: 1 and *view, 0 when it has none that can be read plainly, -1 with an exception set. */
int msp_probe_tensor_view(msp_tensor *view, PyObject *t);

/* The same of a tensor without a Python object; false: it has none, or it takes one to read it. */
bool msp_probe_handle_view(msp_tensor *view, const void *handle);

/* Its requires_grad, or -1 with an exception set. */
int msp_probe_requires_grad(PyObject *t, bool *yes);

/* How many numbers there are in a tuple of at most MSP_MAX_NDIM, -1: it is something else. Takes the reference over. */
int msp_probe_numbers(int64_t *out, PyObject *tuple);

/* The record of memory that stands for a tensor without requires_grad, or -1 with an exception set. */
int msp_probe_memory(msp_record *r, const msp_tensor *view, probe_path *path);

/* A tensor on another device: what describe() says about v in the form ("waiting", ...), or -1 with an exception set.
 */
int msp_probe_device_put(msp_record *r, PyObject *v, PyObject *said, probe_path *path);

/* Its record: elements of copy (may be NULL) are kept where inputs are, and further plain fields (NULL: none) follow.
 */
int msp_probe_tensor_note(msp_record *r, PyObject *v, probe_path *path, msp_tensor_note *note, PyObject *copy,
                          PyObject *extra);

/* Shape (a tuple) and type (torch.float32) of a tensor without memory here, or -1 with an exception set. */
int msp_probe_tensor_shape(msp_tensor *view, PyObject *shape, PyObject *dtype);

/* Put into a record what of its statistics has come; and after it was committed, see whether the rest is to be fetched.
 */
void msp_probe_device_settle(msp_record *r);
void msp_probe_device_look(void);

/* Fetch everything and put it into the records that wait; the same at the end of a step; and forget everything. */
void msp_probe_device_flush(void);
void msp_probe_device_end(void);
void msp_probe_device_reset(void);

/* overflow_check: whether a tensor on a device that was read since that ticket holds inf or NaN; its results are not
 * wanted. */
bool msp_probe_device_saw_overflow(uint64_t since);
void msp_probe_device_forget(uint64_t since);

/* Write elements to a file of that name in dump_tensor_data, or -1 with an exception set; and remove it again. */
int msp_probe_save_tensor(const msp_tensor *t, const char *file);
void msp_probe_remove_file(const char *file);

/*
 * Keep a tensor's elements under the name of their file until they are saved or dropped; both empty the list. -1 with
 * an exception set: they can be held neither in memory nor on disk.
 */
int msp_probe_keep(kept_tensor **list, const msp_tensor *t, const char *file);

/* The same with a tensor on another device, which stays there until it is saved. */
int msp_probe_keep_object(kept_tensor **list, PyObject *tensor, size_t bytes, const probe_path *path);
void msp_probe_keep_save(kept_tensor **list);
void msp_probe_keep_drop(kept_tensor **list);

/* The statistics of a tensor; a large one is read without the interpreter lock. */
void msp_probe_measure(const msp_tensor *t, msp_stats *stats);

/* A tensor, or -1 with an exception set. */
int msp_probe_tensor(msp_record *r, PyObject *t, probe_path *path);

/* True when v is a tensor of torch, subclasses included. */
static inline bool
msp_probe_is_tensor(PyObject *v)
{
    return Py_TYPE(v) == msp_probe.tensor_type || Py_TYPE(v) == msp_probe.parameter_type ||
           (msp_probe.tensor_type != NULL && PyObject_TypeCheck(v, msp_probe.tensor_type));
}

/* True for a plain tensor, whose memory may be read the fast way. */
static inline bool
msp_probe_is_plain_tensor(PyObject *v)
{
    return Py_TYPE(v) == msp_probe.tensor_type || Py_TYPE(v) == msp_probe.parameter_type;
}

/* Whether calls made now can make nodes of a graph: false only where that is known. */
bool msp_probe_grad_enabled(void);

/* Where torch's own tensor stands in the Python object; whether that is known. */
void *msp_probe_tensor_handle(PyObject *t);
bool msp_probe_tensor_is_fast(void);

/* A tensor that is not ours: a Python object, or torch's own, by its handle, or the tokens of its record, which was
 * made before; everything is NULL where there is none. */
typedef struct probe_lent {
    PyObject *object;
    const void *handle;
    const unsigned char *tokens;
    size_t len;
    const struct probe_copy *copy; /* of its elements, beside tokens or alone: see probe_batch.c */
} probe_lent;

static inline bool
msp_probe_is_lent(const probe_lent *lent)
{
    return lent->object != NULL || lent->handle != NULL || lent->tokens != NULL || lent->copy != NULL;
}

/* Its record; and a new reference to the Python object that stands for it, or NULL with an exception set. */
void msp_probe_lent(msp_record *r, const probe_lent *lent, probe_path *path);
PyObject *msp_probe_lent_object(const probe_lent *lent);

/* The same, or -1 with an exception set. It is one that a node's hook is shown, and measured once; anew: since the last
 * one something of the program may have run. */
void msp_probe_shown_anew(void);
int msp_probe_tensor_at(msp_record *r, const void *handle, probe_path *path);

/* The same without the interpreter lock; false: it takes Python to read it. */
bool msp_probe_read_unlocked(msp_record *r, const void *handle);

/* The elements of a small tensor without gaps, as they were: behind this, from which the next one is aligned. */
typedef struct probe_copy {
    msp_dtype dtype;
    int32_t ndim;
    bool requires_grad;
    size_t size; /* of all, in bytes */
    int64_t shape[5];
} probe_copy;

/* Append one to into, and say where it begins. False: the tensor is none of those. Without the interpreter lock. */
bool msp_probe_copy(msp_record *into, uint32_t *from, const void *handle);

/* fields(tensors): see probe_view.c */
PyObject *msp_probe_fields(PyObject *self, PyObject *tensors);

/* Find torch's C functions, and prove on a tensor that they tell the truth; false: the slow way is used. */
bool msp_probe_tensor_setup(PyObject *sample);

/* ---- stacks (probe_stack.c) -------------------------------------------------------------------------------------- */

typedef struct probe_site {
    uint32_t stack;  /* 0: it cannot be had */
    bool recompute;  /* the call repeats a forward for activation checkpointing */
    bool internal;   /* made by torch's own machinery (a compiler, autograd's glue), not by the program */
    PyObject *owner; /* "optimizer", "clip_grad" or NULL: what stands for the module; kept by the stack's entry */
} probe_site;

/* The current call stack without its skip innermost frames. */
probe_site msp_probe_stack(int skip);

/* The current call stack as a hook of the module sees it that is about to return, or that has raised. */
probe_site msp_probe_module_stack(bool raised);

/* The text of a stack, its frames joined by line ends: a borrowed str, or NULL. */
PyObject *msp_probe_stack_by_id(uint32_t id);

/* Forget the ids: they belong to one collection. */
void msp_probe_stack_reset(void);

/*
 * frames(use): whether stacks are told apart by the interpreter's own frames from now on, which is refused when the
 * current stack looks another way through frame objects. None: this interpreter's are not read.
 */
PyObject *msp_probe_frames(PyObject *self, PyObject *use);

/* ---- gradients (probe_edges.c, probe_walk.c, probe_grad.c, probe_register.c) ------------------------------------- */

typedef struct probe_edges probe_edges;

/* Before the call: where the inputs' gradients will go. NULL when none can. */
probe_edges *msp_probe_edges_before(PyObject *self, PyObject *args, PyObject *kwargs, bool module);

/*
 * After it: hook the nodes that the call made. Takes edges over (may be NULL). name: the record's,
 * "Functional.relu.0.backward". module: inputs that the call does not use get a gradient of zeros, as torch's own hooks
 * on modules show it.
 */
void msp_probe_edges_after(probe_edges *edges, PyObject *result, const char *name, size_t len, bool module);
void msp_probe_edges_drop(probe_edges *edges);

/* Whether gradients leave by a module's positional arguments. *first: the number of the first node that it makes. */
bool msp_probe_edges_return(const probe_edges *edges, int64_t *first);

/* The number that the next node of this thread's graph gets; -1 when this torch does not tell. */
int64_t msp_probe_next_node(void);

/* Gradient records that wait for more of their nodes are committed as they are. */
void msp_probe_grad_flush(void);

int msp_probe_grad_setup(PyObject *module);

/* While we record, hooks are registered the short way, where it was proven: registrar(function, node). */
void msp_probe_grad_start(void);
void msp_probe_grad_stop(void);
PyObject *msp_probe_registrar(PyObject *self, PyObject *all);

/* What hooks were shown and is not a record yet becomes one: everything, or, before something else is recorded, what
 * this thread's were shown. */
void msp_batch_work(void);
void msp_batch_work_own(void);

/* Whether this thread is doing that. */
bool msp_batch_is_working(void);

/* Recording begins: the rules decide whether hooks are worked out later. Nothing is recorded any more; and in a child
 * of fork(). */
void msp_batch_start(void);
void msp_batch_end(void);
void msp_batch_forked(void);

/* nodes(tensors), state(use): see probe_node.c */
PyObject *msp_probe_nodes(PyObject *self, PyObject *tensors);
PyObject *msp_probe_state(PyObject *self, PyObject *use);

/* Free the hooks whose nodes are gone. */
void msp_node_clean(void);

/* On this thread: whether a TorchFunctionMode is on, whether a transform (vmap, grad, ...) runs, and the backward pass
 * (-1: none, or unknown). */
bool msp_node_has_function_mode(void);
bool msp_node_is_transforming(void);
int64_t msp_node_task(void);

/* Whether the three take no interpreter lock. */
bool msp_node_tells_state(void);

/* Whether nodes and gradients are asked for directly now. */
bool msp_node_usable(void);

/* Of a tensor, when they are: requires_grad; whether its memory is all there is to it (no subclass, no wrapper, no
 * other device, nothing conjugated or negated; false when they are not); the Python object that stands for it. */
bool msp_node_requires_grad(const void *handle);
bool msp_node_is_plain(const void *handle);
PyObject *msp_node_wrap(const void *handle);

/* Take out the hook that node.register_hook() gave this handle for. */
void msp_probe_unhook(PyObject *handle);

/* ---- modules and single values (probe_module.c), as functions for Python ----------------------------------------- */

PyObject *msp_probe_module_begin(PyObject *self, PyObject *all);
PyObject *msp_probe_module_end(PyObject *self, PyObject *all);
PyObject *msp_probe_write(PyObject *self, PyObject *all);
PyObject *msp_probe_reserve(PyObject *self, PyObject *unused);
PyObject *msp_probe_snapshot(PyObject *self, PyObject *all);
PyObject *msp_probe_file(PyObject *self, PyObject *all);
PyObject *msp_probe_wanted(PyObject *self, PyObject *path);

int msp_probe_module_setup(void);
int msp_probe_tree_setup(void);

/* While we record, Module._call_impl leads to us, where that was proven: module_function(function, call, expected). */
void msp_probe_modules_start(void);
void msp_probe_modules_stop(void);
PyObject *msp_probe_module_function(PyObject *self, PyObject *all);

/* The elements of a value whose record names their files already (task overflow_check). */
void msp_probe_save_elements(PyObject *value, probe_path *path);

/* A value that was turned into tokens earlier (snapshot()): appended; false when v is none. */
bool msp_probe_put_snapshot(msp_record *r, PyObject *v);

/* ---- the older tools (probe_legacy.c) ---------------------------------------------------------------------------- */

bool msp_probe_is_legacy(void);
PyObject *msp_probe_legacy_call(probe_api *api, PyObject *self, PyObject *receiver, PyObject *args, PyObject *kwargs);
PyObject *msp_probe_legacy_module(PyObject *self, PyObject *all);
PyObject *msp_probe_legacy_rules(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *msp_probe_legacy_unit(PyObject *self, PyObject *args);
PyObject *msp_probe_legacy_matched(PyObject *self, PyObject *unused);

/* The unit that records go to from now on, with its tensor files in data_dir (NULL: none): None, or an exception. */
PyObject *msp_probe_open_unit(const msp_unit_info *info, const char *data_dir);
/* ---- the open modules (probe_parent.c) --------------------------------------------------------------------------- */

/* A module's call begins, and ends. inputs may be NULL. */
void msp_probe_module_open(const char *name, size_t len, const probe_edges *inputs);
void msp_probe_module_close(const char *name, size_t len);

/* In place of a node's number: the tensor is a leaf, and has no node. */
#define MSP_PROBE_LEAF INT64_C(-2)

/*
 * The module that the gradients of a call made now belong to, by its name in forward, or NULL; lent until the next
 * module opens or closes. handed_on: the number of the node whose tensor the call returned as it was; -1: it made nodes
 * of its own.
 */
const char *msp_probe_gradient_parent(int64_t handed_on, size_t *len);

/* The module, by its name in forward, whose gradients pass where a program's own code runs in backward; NULL: it does
 * not, or outside all modules. Lent as above. recompute: the call repeats a forward. */
const char *msp_probe_running_parent(bool recompute, size_t *len);

/* The open module that was given a tensor of this node, by its number from the outermost, 0; -1: none was. */
Py_ssize_t msp_probe_given_to(int64_t node);

/* How many modules are open; the name of one of them, lent as above, from the outermost, 0; NULL: at is -1. */
Py_ssize_t msp_probe_open_modules(void);
const char *msp_probe_open_name(Py_ssize_t at, size_t *len);

/* ---- the modules of a model (probe_tree.c, probe_watch.c) -------------------------------------------------------- */

/* The dicts of a module that each call looks at: four of hooks, and this one. */
enum { PROBE_PARAMETERS = 4, PROBE_DICTS };

/* A module as it is called in the dump. */
typedef struct probe_module {
    const char *text; /* "Module.a.Linear" */
    size_t len;
    int64_t count;    /* calls in this step */
    bool hooked;      /* hooks that Python has set record it */
    int64_t chosen;   /* the step after the one in which list or scope have chosen its gradients */
    uint64_t version; /* of the module's own dict when it had these; 0: it is to be asked */
    PyObject *dicts[PROBE_DICTS];
    PyTypeObject *type; /* the module's, when it had this forward, and its version; NULL: it is to be asked */
    unsigned type_version;
    PyObject *forward; /* NULL: it is called as torch does */
} probe_module;

/*
 * What is to be called for the module, which has no hooks, with the same arguments as Module._call_impl; NULL: that
 * itself. of->dicts have just been found. And the call (probe_forward.c).
 */
PyObject *msp_probe_forward(probe_module *of, PyObject *module);
PyObject *msp_probe_call_forward(PyObject *forward, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *msp_probe_forward_function(PyObject *self, PyObject *all);

/* version(dict): a number that no other dict has, nor this one after a change; 0: this interpreter keeps none. */
PyObject *msp_probe_version(PyObject *self, PyObject *dict);

/* versions(use): whether a module's dicts are looked up only when the version of its own has changed. */
PyObject *msp_probe_versions(PyObject *self, PyObject *use);

/* Whether the models, and how they are recorded, are as they were the last time; and forget that. What they consist of
 * is held in alive, and what that held is let go. */
struct held;
bool msp_probe_shape_is_same(PyObject *models, long how, struct held *alive);
void msp_probe_shape_forget(void);

/* Whether dicts have versions that may be relied on, and that of one; 0: it has none. */
bool msp_probe_has_versions(void);
uint64_t msp_probe_dict_version(PyObject *dict);

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

/* The same by what stands at its handle, and the parameter itself. */
PyObject *msp_probe_watched_by_handle(const void *variable, PyObject **parameter);

/* The same when a node that is watched directly tells of it: in this step, be it of an earlier tree. */
PyObject *msp_probe_watched_now(const void *variable, PyObject **parameter);

/* Its node tells of it in this step, by nothing that somebody would have to take out. */
void msp_probe_watched_directly(PyObject *watched);
bool msp_probe_is_watched_directly(PyObject *watched);

/* Its list [node, handle, ...] of the hooks in this step, or NULL without memory. */
PyObject *msp_probe_watched_hooks(PyObject *watched);

/* Nodes that have their hook in this step. */
bool msp_probe_is_hooked(PyObject *node);
void msp_probe_note_hooked(PyObject *node);

/* A backward pass has brought the parameter's gradient; arrived NULL: it is what the parameter has. Returns true when
 * the program is to be stopped, with an exception set. */
bool msp_probe_parameter_done(PyObject *watched, PyObject *parameter, const probe_lent *arrived);

/* The same with the gradient that counts. */
bool msp_probe_parameter_came(PyObject *watched, const probe_lent *gradient);

/* Whether what its node is shown is known to be the gradient that counts. */
bool msp_probe_parameter_is_plain(PyObject *parameter);

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

/* ---- patching (probe_patch.c) ------------------------------------------------------------------------------------ */

/* Prepare target for patching; NULL with an exception set (TypeError: not a kind of object we patch). */
probe_api *msp_probe_prepare(PyObject *target, probe_name *name, unsigned flags);

/* What this object was prepared as, or NULL. */
probe_api *msp_probe_find_api(PyObject *target);

/* PROBE_FUNCTION (probe_function.c): note what the function is, or -1 with an exception set; lead its calls to us, or
 * false: it is left alone; put back what is still ours. */
int msp_function_prepare(probe_api *api);
bool msp_function_patch(probe_api *api);
void msp_function_unpatch(probe_api *api);
int msp_function_setup(void);

/* An api of no kind yet, in no table; NULL with an exception set. */
probe_api *msp_probe_new_api(PyObject *target, probe_name *name, unsigned flags);

/* trial(target, call) -> how often a call of target went through us while call() ran, -1: it cannot be patched */
PyObject *msp_probe_trial(PyObject *self, PyObject *all);
int msp_probe_patch_setup(PyObject *module);
void msp_probe_patch_all(void);

/* args and kwnames of a vectorcall as a tuple and a dict (NULL without keywords), or -1 with an exception set. */
int msp_probe_pack(PyObject **tuple, PyObject **kwargs, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* A vectorcall, recorded. */
PyObject *msp_probe_call_packed(probe_api *api, PyObject *self, PyObject *const *args, size_t nargsf,
                                PyObject *kwnames);

/* Where calls of f from C lead; those from the interpreter's own bytecode may not (3.11). */
void msp_probe_set_vectorcall(PyFunctionObject *f, vectorcallfunc call);
void msp_probe_unpatch_all(void);

/* The name with this text, made when new; NULL with an exception set. */
probe_name *msp_probe_name(const char *text, size_t len);

/* wrapper(target, name, flags): an object that stands in for target as an attribute, and records its calls
 * (probe_wrapper.c) */
PyObject *msp_probe_wrapper(PyObject *self, PyObject *all);
int msp_probe_wrapper_setup(void);

/* Add the submodule probe. */
int msp_probe_add(PyObject *module);

#endif
