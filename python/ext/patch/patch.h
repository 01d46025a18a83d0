/*
 * patch.h - torch's functions, changed in place between start() and stop() so that their calls lead to us.
 *
 *     patch.c     built-in functions, method descriptors, the slot behind Tensor.__setitem__; the self-test's part
 *     function.c  functions written in Python
 *     wrapper.c   an object that stands in for a function that cannot be patched
 *     compiled.c  code that torch.compile has compiled runs without us
 */
#ifndef MSP_PY_PATCH_H
#define MSP_PY_PATCH_H

#include "recording/recording.h"

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
    PROBE_DISTRIBUTED = 1,    /* outputs are the arguments after the call; its handle is waited for */
    PROBE_BY_CALLER = 2,      /* torch has several names for it: Python tells by which one it is called */
    PROBE_WAIT = 4,           /* waiting for a handle: completes the record of the call that made it */
    PROBE_TRIAL = 8,          /* the self-test's own: calls are counted and nothing is recorded */
    PROBE_KERNEL = 16,        /* level L2: one call of it is made by Python, which records its kernels */
    PROBE_UNINITIALISED = 32, /* its result is memory that nobody has written to yet */
    PROBE_APART = 64,         /* a compiler: not recorded, and while it runs nothing of ours is in its way */
    PROBE_FRAMES = 128,       /* its argument _frames_up says in which frame it looks for names */
    PROBE_PUTS_OFF = 256      /* its result is a context manager that puts off the collectives inside it */
};

/* What Python says about an object with several names. */
enum { PROBE_FIRST_NAME = 0, PROBE_SECOND_NAME = 1, PROBE_UNLISTED = 2 };

/* One recorded function. Never freed: bound methods made while we recorded keep pointing at it. */
typedef struct probe_api {
    PyMethodDef def;           /* first: a patched built-in finds its api through its m_ml, which points here */
    PyMethodDef *orig;         /* PROBE_BUILTIN, PROBE_METHOD*: what the object pointed at before */
    vectorcallfunc vectorcall; /* what the object's vectorcall field held before, where it has one */
    PyObject *target;          /* the function */
    probe_kind kind;
    unsigned flags;    /* PROBE_DISTRIBUTED, ... */
    probe_name *name;  /* what its calls are called and counted by; NULL: the self-test's */
    probe_name *other; /* the second name of an object that torch exports twice, or NULL */

    /* PROBE_FUNCTION in CPython 3.11 (function.c), NULL elsewhere */
    PyObject *code;       /* the function's own */
    PyObject *trampoline; /* the code that stands in its place and calls us */
    PyObject *shadow;     /* a function with its own code, by which the original is called */
    PyObject *signature;  /* what __signature__ shows meanwhile; None: the function shows its own */

    int64_t trials; /* PROBE_TRIAL: how many calls were seen */
    bool patched;   /* its calls lead to us just now */
    struct probe_api *next;
} probe_api;

/* Run the original. */
PyObject *msp_probe_invoke(probe_api *api, PyObject *self, PyObject *args, PyObject *kwargs);

/* Prepare target for patching; NULL with an exception set (TypeError: not a kind of object we patch). */
probe_api *msp_probe_prepare(PyObject *target, probe_name *name, unsigned flags);

/* What this object was prepared as, or NULL. */
probe_api *msp_probe_find_api(PyObject *target);

/* PROBE_FUNCTION (function.c): note what the function is, or -1 with an exception set; lead its calls to us, or
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
void msp_probe_patch_all(bool calls); /* false: none of those that are recorded */

/* args and kwnames of a vectorcall as a tuple and a dict (NULL without keywords), or -1 with an exception set. */
int msp_probe_pack(PyObject **tuple, PyObject **kwargs, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* A vectorcall, recorded. */
PyObject *msp_probe_call_packed(probe_api *api, PyObject *self, PyObject *const *args, size_t nargsf,
                                PyObject *kwnames);

/* Where calls of f from C lead; those from the interpreter's own bytecode may not (3.11). */
void msp_probe_set_vectorcall(PyFunctionObject *f, vectorcallfunc call);
void msp_probe_unpatch_all(void);

/* What a compiler would see of us is taken out of Python functions, and put back. */
void msp_probe_functions_out(void);
void msp_probe_functions_in(void);

/* The name with this text, made when new; NULL with an exception set. */
probe_name *msp_probe_name(const char *text, size_t len);

/* wrapper(target, name, flags): an object that stands in for target as an attribute, and records its calls
 * (wrapper.c) */
PyObject *msp_probe_wrapper(PyObject *self, PyObject *all);
int msp_probe_wrapper_setup(void);

/* ---- compiled code (compiled.c) ---------------------------------------------------------------------------------- */

/* Begin and end to tell when compiled code runs; compiled_function(function, call, expected): by this function. */
void msp_compiled_start(void);
void msp_compiled_stop(void);
PyObject *msp_compiled_function(PyObject *self, PyObject *all);

/* Call a function that is PROBE_APART. */
PyObject *msp_compiled_apart(probe_api *api, PyObject *self, PyObject *args, PyObject *kwargs);

/* Exchange the callback by which torch compiles what this thread calls: the one before, or NULL; an exception may be
 * set. */
PyObject *msp_compiled_set_callback(PyObject *callback);

/* Whether this thread runs code that torch.compile has compiled. */
bool msp_compiled_goes_on(void);

static inline bool
msp_compiled_is_inside(void)
{
    return msp_probe_thread.region == msp_probe.session && msp_compiled_goes_on();
}

#endif
