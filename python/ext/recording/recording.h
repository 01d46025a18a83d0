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

/* What is recorded, from the configuration: set by rules() (settings.c). */
typedef struct probe_rules {
    bool forward, backward; /* data_mode: calls, and their gradients */
    bool inputs, outputs;   /* data_mode: of both, what goes in and what comes out */
    bool statistics;        /* Max, Min, Mean and Norm are wanted */
    bool checksum;          /* summary_mode md5: so is the CRC-32 of the elements */
    bool structure;         /* task structure: no values, only stack.json and construct.json */
    bool tensors;           /* task tensor: the elements of all tensors go to files */
    bool overflow;          /* task overflow_check: only calls that hold inf or NaN are written, with their elements */
    bool construct;         /* levels L0 and mix: construct.json says which module a call belongs to */
    bool expand;            /* level mix: a module's name in the list stands for all that runs inside it */
    int64_t kernel;         /* level L2: the number of the call whose kernels are recorded; -1: another level */
    int64_t threads;        /* that may read a large tensor: as many as the program lets torch use; 0: one per core */
    PyObject *list;         /* tuple of str, parts of the names that are wanted; NULL: all are */
    PyObject *tensor_list;  /* tuple of str: task statistics writes files for these all the same; NULL: for none */
    PyObject *scope_begin;  /* str, the name of the call with which recording begins; NULL: with the first one */
    PyObject *scope_end;    /* str, the name of the call with which it ends; NULL: with the last one */
} probe_rules;

struct probe_name; /* patch/patch.h */
struct probe_api;

/* The one recording. What torch or Python does not have is NULL. */
typedef struct probe_state {
    /* where records go */
    msp_collect *collect; /* NULL: no recording is open */
    uint32_t unit;        /* the folder step<N>/rank<R> that is written, when has_unit */
    bool has_unit;
    char *data_dir;    /* the folder for tensors' files, dump_tensor_data; NULL: none are written */
    PyObject *owners;  /* set of str: "optimizer", "clip_grad", as far as construct.json has them in this step */
    uint32_t holes;    /* the last number given to msp_record_hole(): places kept for records that come late */
    uint64_t tickets;  /* the last number given to statistics that another device computes (tensor/device.c) */
    PyObject *pending; /* dict: a collective's handle -> the calls that wait for it (call/machine.c) */

    /* what happens now */
    bool on;            /* between start() and stop() */
    bool calls;         /* then: functions are recorded, and not modules alone */
    bool live;          /* gradients of this step are still taken: from start() to step() */
    bool in_scope;      /* the call with which the range begins was made, and the one that ends it was not */
    int64_t generation; /* the number of the step: a hook that was set in another one is dead */
    uint64_t session;   /* counts start() and stop(), so that a region of compiled code is known to be of this one */
    probe_rules rules;

    /* what was done, for the last line of the log */
    int64_t records; /* handed to the writer, of any kind */
    int64_t values;  /* of these, entries of "data" */
    int64_t made;    /* of these, calls of functions and modules and not their gradients */
    int64_t errors;  /* failures of our own */

    /* types and functions of torch's */
    PyTypeObject *tensor_type, *parameter_type;
    PyObject *sequence_nr;     /* () -> the number that the next autograd node of this thread gets */
    PyObject *task_id;         /* () -> the number of the backward pass that runs on this thread, or -1 */
    PyObject *grad_enabled;    /* () -> bool */
    PyObject *functorch_level; /* () -> what transforms (vmap, grad, ...) run on this thread; None: none */
    PyObject *queue_callback;  /* (callable): have the engine call it at the end of this backward pass */
    PyObject *set_eval_frame;  /* (callback) -> the one before: by what torch.compile sees this thread's frames */
    PyObject *modes;           /* of TorchFunctionMode, four: () -> count, () -> state, (state), the state for none */
    PyObject *global_hooks;    /* tuple of the dicts that hold hooks on all modules */

    /* functions of ours in Python */
    PyObject *trampoline;  /* (function, entry) -> (code, signature or None): patch/function.c */
    PyObject *describe;    /* (value, path) -> a structure of plain values, for what C does not know: tensor/value.c */
    PyObject *fetch;       /* () -> {ticket: statistics}, all that devices were asked for: tensor/device.c */
    PyObject *total;       /* (gradients, others or None) -> the sum of the ones without the others: grad/sum.c */
    PyObject *stack_text;  /* (frame, form) -> texts, and what kind of call it is: stack/stack.h */
    PyObject *caller;      /* (function) -> which of its names it is called by, PROBE_FIRST_NAME, ... */
    PyObject *on_error;    /* (where, name, exception, traceback): an error of ours is told in the log */
    PyObject *on_failure;  /* (text): recording has ended, the disk is full or the writer does not move */
    PyObject *is_programs; /* (exception) -> bool: a signal's handler of the program's has raised it */
    PyObject *on_overflow; /* (name, stack): inf or NaN was made; what it raises leaves the call */
    PyObject *overflow_flag; /* () -> bool: a device's own flag says that the last call made inf or NaN */
    PyObject *group;         /* (function, (args, kwargs)) -> (group, what puts the call off), or None: a collective */
    PyObject *watch;         /* (context manager, (args, kwargs)) -> one that tells when it ends */
    PyObject *on_kernel;   /* (function, args, kwargs) -> the result: Python makes the call, with what it does around */
    PyObject *on_compiled; /* (bool): compiled code begins to run, and none does any more: patch/compiled.c */
    PyObject *hook_module; /* (module): set hooks on it that call module_begin() and module_end() */
    PyObject *before, *after; /* around a call that is not recorded (call/around.c); NULL: calls are recorded */

    struct probe_name *names; /* all that calls are counted by (patch/patch.h) */
    struct probe_api *apis;   /* all functions that are recorded */
} probe_state;

extern probe_state msp_probe;

/* Hold v in the place of what is there; None and NULL: nothing. */
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

/* What is so on this thread. */
typedef struct probe_thread {
    int depth;                          /* how often our own code is entered: what it calls is not recorded */
    bool overflowed;                    /* a tensor that was read since this was reset holds inf or NaN */
    bool transforming;                  /* inside vmap, grad, ...: tensors are wrappers without memory */
    bool border;                        /* inside a compiled module that is recorded: what is in it is not */
    const struct probe_path *described; /* the place of the value that Python is asked to describe, or NULL */
    PyObject *stands_for;   /* the module inside the compiled one whose call is recorded, lent: its own call is not */
    uint64_t region;        /* the session in which the thread entered compiled code; 0: it is in none */
    PyObject *region_frame; /* the frame that entered, and will leave */
} probe_thread;

extern __thread probe_thread msp_probe_thread;

/* For functions that use it more than once: to find a thread's variable takes a call, which the compiler would repeat.
 */
static inline probe_thread *
msp_probe_here(void)
{
    probe_thread *here = &msp_probe_thread;

    __asm__("" : "+r"(here));
    return here;
}

/* The unit that records go to from now on, with its tensor files in data_dir (NULL: none): None, or an exception. */
PyObject *msp_probe_open_unit(const msp_unit_info *info, const char *data_dir);

/* ---- what Python sets by keyword (settings.c) -------------------------------------------------------------------- */

/* One keyword argument, and where its value goes: one of the four places is not NULL. */
typedef struct probe_setting {
    const char *name;
    bool *flag;
    int64_t *number;
    PyObject **tuple;  /* None and a tuple may be set, nothing else */
    PyObject **object; /* ... or anything; a reference is held, NULL for None */
    int64_t initial;   /* of a flag or number that is not given; tuples and objects are NULL then */
} probe_setting;

/* Set all of them. -1 with an exception: a keyword that is none of them, or a value of the wrong type. */
int msp_probe_take_settings(const probe_setting *settings, size_t n, PyObject *kwargs);

PyObject *msp_probe_setup(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *msp_probe_set_rules(PyObject *self, PyObject *args, PyObject *kwargs);

/* Add the submodule probe. */
int msp_probe_add(PyObject *module);

#endif
