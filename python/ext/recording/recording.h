/*
 * recording.h - the recording of this process: what every file of the collector may look at.
 *
 * There is one. It lives in a static struct and not in the module's state, because the functions that stand in for a
 * framework's own are told nothing but their arguments. Everything runs with the interpreter lock held.
 */
#ifndef MSP_PY_RECORDING_H
#define MSP_PY_RECORDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <string.h>
#include "collect/live.h"

#if PY_VERSION_HEX < 0x03090000
#define PyObject_CallNoArgs(callable) PyObject_CallObject((callable), NULL)
#define PyCFunction_CheckExact(v)     (Py_TYPE(v) == &PyCFunction_Type)
#endif

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

struct probe_name; /* patch/patch.h */
struct probe_api;

typedef struct probe_state {
    msp_collect *collect;
    uint32_t unit;
    bool has_unit;
    bool on;    /* between start() and stop() */
    bool calls; /* ... those of functions, too, and not of modules alone */
    bool live;  /* gradients of this step are still taken: until step() */
    bool in_scope;
    int64_t generation; /* the step's number, so that late gradients are told */
    probe_rules rules;
    char *data_dir;                  /* dump_tensor_data, NULL: none */
    int64_t records, values, errors; /* committed; of these, entries of "data"; failures of our own */
    int64_t made;                    /* of the entries, calls of functions and modules, not their gradients */
    PyObject *owners;                /* those that have their node in this unit's construct.json: a set, or NULL */

    PyTypeObject *tensor_type, *parameter_type;
    PyObject *trampoline;     /* Python: (function, entry) -> (code, signature or None); see patch/function.c */
    PyObject *describe;       /* Python: anything odd -> a structure of plain values */
    PyObject *fetch;          /* Python: () -> statistics that were computed on devices; see tensor/device.c */
    PyObject *total;          /* Python: (list of tensors, list of others) -> the sum of these without those */
    uint64_t tickets;         /* the last one that was given out for such statistics */
    PyObject *stack_text;     /* Python: (frame, form) -> texts, and what kind of call it is */
    PyObject *caller;         /* Python: function -> PROBE_FIRST_NAME, ... */
    PyObject *on_error;       /* Python: (where, name, exception, traceback) */
    PyObject *on_failure;     /* Python: (text), recording has ended */
    PyObject *is_programs;    /* Python: (exception) -> bool, it came out of a signal's handler */
    PyObject *on_overflow;    /* Python: (name); may raise, and what it raises leaves the call */
    PyObject *overflow_flag;  /* Python: () -> bool, a device's own flag after a call, or NULL */
    PyObject *group;          /* Python: (function, (args, kwargs)) -> (group, what puts the call off), or None */
    PyObject *watch;          /* Python: (context manager, (args, kwargs)) -> one that tells when it ends */
    PyObject *on_kernel;      /* Python: (function, args, kwargs) -> the call's result */
    PyObject *before, *after; /* Python, around a call that is not recorded: see call/around.c; NULL: calls are */
    PyObject *hook_module;    /* Python: (module): set hooks that call module_begin() and module_end() */
    PyObject *global_hooks;   /* tuple of torch's dicts of hooks on all modules, or NULL */
    PyObject *sequence_nr, *functorch_level, *task_id, *grad_enabled, *queue_callback; /* torch's own, or NULL */
    PyObject *set_eval_frame;                                                          /* torch's, or NULL */
    PyObject *on_compiled; /* Python: (bool), compiled code begins to run, and no more of it does */
    uint64_t session;      /* the number of this recording, or of the pause after it: start() and stop() count */
    PyObject *modes;       /* torch's (count, get state, set state, disabled) for TorchFunctionMode, or NULL */
    PyObject *pending;     /* dict: handle -> the call that waits for it; NULL: none yet */
    uint32_t holes;        /* the last number given to msp_record_hole() */
    struct probe_name *names;
    struct probe_api *apis;
} probe_state;

extern probe_state msp_probe;

/* Hold v, which a script has set, in the place of what is there; None and NULL: nothing. */
static inline void
msp_probe_set(PyObject **slot, PyObject *v)
{
    if (v == Py_None)
        v = NULL;
    Py_XINCREF(v);
    Py_XSETREF(*slot, v);
}

/* An input's elements, kept while its call runs (tensor/keep.c). */
typedef struct kept_tensor kept_tensor;

/* Per thread. */
typedef struct probe_thread {
    int depth;                          /* inside a recorded call: what it calls itself is not recorded */
    bool overflowed;                    /* a tensor that was read since this was reset held inf or NaN */
    const struct probe_path *described; /* what Python is asked to describe, or NULL */
    bool transforming;                  /* inside vmap, grad, ...: tensors are wrappers without memory */
    bool border;                        /* inside a compiled module that is recorded: what is in it is not */
    PyObject *stands_for; /* the module that the recorded one stands for, so that its own call is not; lent, or NULL */
    uint64_t region;      /* the recording in which it entered compiled code; 0: it is in none */
    PyObject *region_frame; /* the one that will leave it */
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

/* A call's inputs as places of the graph (grad/gradient.h). */
typedef struct probe_edges probe_edges;

/* The unit that records go to from now on, with its tensor files in data_dir (NULL: none): None, or an exception. */
PyObject *msp_probe_open_unit(const msp_unit_info *info, const char *data_dir);

/* Add the submodule probe. */
int msp_probe_add(PyObject *module);

#endif
