/*
 * machine.h - the machine of a call: what functions' and modules' calls go through from their inputs to their record.
 *
 * A call is begun (msp_call_name, msp_call_begin), made by its caller, and ended (msp_call_end). What differs between
 * functions and modules is its form. A collective that goes on after it has returned is ended when its handle was
 * waited for.
 */
#ifndef MSP_PY_MACHINE_H
#define MSP_PY_MACHINE_H

#include "grad/grad.h"

typedef struct probe_call probe_call;

/* What calls of functions and of modules show, and how they differ in that. */
typedef struct call_form {
    void (*put_inputs)(const probe_call *c, msp_record *r);
    void (*put_outputs)(const probe_call *c, msp_record *r, PyObject *result); /* result NULL: the call has raised */
    void (*put_more)(const probe_call *c, msp_record *r); /* what stands behind the outputs; NULL: nothing */
    bool is_module;
} call_form;

/* One call, from its beginning until its record is complete. Everything before text is zeroed when it begins. */
struct probe_call {
    const call_form *form;

    /* what is called, and with what: lent as long as the call runs; self and kwargs may be NULL */
    probe_api *api;             /* the function; NULL: a module is called */
    struct probe_module *named; /* the module as it is called in the dump; NULL: a function is called */
    PyObject *module;           /* the module itself, or NULL */
    PyObject *self;             /* the tensor whose method the function is */
    PyObject *args, *kwargs;

    /* what is known of it when it begins */
    probe_site site;    /* where it was made; of a module it is known at the end */
    int64_t number;     /* of a module's call, behind the direction; -1: a function's stands in base */
    int64_t generation; /* the step in which it began: it may end in another one */
    uint64_t ticket;    /* the last one before the call: later ones are for its own tensors on a device */
    bool selected;      /* list and scope let it pass */
    bool poisoned;      /* overflow_check: an input holds inf or NaN, which the call did not make */
    bool saving;        /* overflow_check: its elements go to files just now, and nothing else is done */

    /* what is held until the record is complete; any of it may be NULL */
    msp_record *record;  /* its tokens so far; NULL: it is not selected */
    probe_edges *edges;  /* its inputs as places of the graph; NULL: no gradient can arrive there */
    kept_tensor *kept;   /* overflow_check: the inputs' elements, which the call may write over */
    kept_tensor **keep;  /* where elements that are read now are kept: &kept while inputs are read */
    PyObject *held_self; /* references to what it was called with, where that is read after the call */
    PyObject *held_args, *held_kwargs;
    PyObject *group;   /* of a distributed call, a dict: its process group, and which of the group's calls it is */
    PyObject *put_off; /* what torch's coalescing manager puts it off under, until that makes it */

    size_t base, len;           /* of text: without direction and number, and in all */
    char text[PROBE_NAME_SIZE]; /* "Functional.relu.0.forward", "Module.a.Linear.forward.0" */
};

/* Name a call that begins in this step. base is without direction: "Functional.relu.0", "Module.a.Linear". */
void msp_call_name(probe_call *c, const char *base, size_t len, int64_t number);

/* Read its inputs, and note where their gradients will arrive: just before it runs. */
void msp_call_begin(probe_call *c);

/* Read its outputs, hand its record over and hook its nodes: just after it ran. result NULL: the call has raised.
 * Returns true when the program is to be stopped, with an exception set. */
bool msp_call_end(probe_call *c, PyObject *result);

/* Hold what it was called with; and let go of everything that is held, which is empty then. */
void msp_call_hold(probe_call *c);
void msp_call_let_go(probe_call *c);

/* Begin the name of a file or a value in it: "Functional.relu.0.forward.input". */
void msp_call_path(probe_path *path, const probe_call *c, const char *section);

/* handle.wait() is done: the calls that wait for it alone are completed. Returns true when the program is to be
 * stopped, with an exception set. */
bool msp_call_waited_for(PyObject *handle);

/* made(put_off, handles): the calls that were put off are made. They wait for these handles, a list; empty: no more. */
PyObject *msp_call_made(PyObject *self, PyObject *args);

#endif
