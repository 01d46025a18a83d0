/*
 * machine.h - the machine of a call: what functions' and modules' calls go through from their inputs to their record.
 *
 * A call is begun (msp_call_name, msp_call_begin), made by its caller, and ended (msp_call_end). What differs between
 * functions and modules is its form. A collective that goes on after it has returned is ended when its handle was
 * waited for.
 */
#ifndef MSP_PY_MACHINE_H
#define MSP_PY_MACHINE_H

#include "call/call.h"

typedef struct probe_call probe_call;

/* What calls of functions and of modules show, and how they differ in that. */
typedef struct call_form {
    void (*put_inputs)(const probe_call *c, msp_record *r);
    void (*put_outputs)(const probe_call *c, msp_record *r, PyObject *result); /* result NULL: the call has raised */
    void (*put_more)(const probe_call *c, msp_record *r);                      /* behind the outputs, or NULL */
    bool is_module;
} call_form;

/* One call, from its beginning until its record is complete. */
struct probe_call {
    const call_form *form;
    probe_api *api;                 /* the function that is called, or NULL */
    struct probe_module *named;     /* the module that is called, as it is called in the dump, or NULL */
    PyObject *module;               /* this module, lent */
    PyObject *self, *args, *kwargs; /* lent; self and kwargs may be NULL */
    probe_site site;
    int64_t number;     /* of a module's call; -1: it stands in base */
    int64_t generation; /* the step in which it began */
    uint64_t ticket;    /* the last one before the call */
    bool selected;
    bool poisoned; /* an input holds inf or NaN */
    bool saving;   /* its elements go to files just now, and nothing else is done */
    /* what is held until the record is complete; any of it may be NULL */
    msp_record *record; /* NULL: not selected */
    probe_edges *edges;
    kept_tensor *kept;                             /* overflow_check: the inputs' elements */
    kept_tensor **keep;                            /* ... where those that are read now go, or NULL */
    PyObject *held_self, *held_args, *held_kwargs; /* references, where they are wanted after the call */
    PyObject *group;                               /* of a distributed call, and which of its calls it is: a dict */
    PyObject *put_off;          /* ... and under what it waits until torch's coalescing manager makes it, or NULL */
    size_t base, len;           /* base: without direction */
    char text[PROBE_NAME_SIZE]; /* "Functional.relu.0.forward", "Module.a.Linear.forward.0" */
};

/* A call that begins in this step, under this name without direction ("Functional.relu.0", "Module.a.Linear"). */
void msp_call_name(probe_call *c, const char *base, size_t len, int64_t number);

/* Its inputs, read before it runs. */
void msp_call_begin(probe_call *c);

/* Its outputs, its record and the hooks for its gradients. result NULL: the call has raised. Returns true when the
 * program is to be stopped, with an exception set. */
bool msp_call_end(probe_call *c, PyObject *result);

/* Hold what it was called with; and let go of everything that is held, which is empty then. */
void msp_call_hold(probe_call *c);
void msp_call_let_go(probe_call *c);

/* Begin the name of a file or a value in it: "Functional.relu.0.forward.input". */
void msp_call_path(probe_path *path, const probe_call *c, const char *section);

/* handle.wait() is done. Returns true when the program is to be stopped, with an exception set. */
bool msp_call_waited_for(PyObject *handle);

/* made(put_off, handles): the calls that were put off are made. They wait for these handles, a list; empty: no more. */
PyObject *msp_call_made(PyObject *self, PyObject *args);

#endif
