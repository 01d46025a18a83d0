/*
 * legacy.h - calls and modules as the older tools record them: ptdbg_ascend and torch_npu.hooks.
 *
 *     legacy.c  calls, their gradients, and what Python sets
 *     filter.c  which of them are written
 *     value.c   what is written of one
 *
 * They differ from the rest in what a call shows, not in how it is found. Inner calls are recorded too, before the
 * outer one. Arguments are read after the call, so that an in-place function shows its result as its input. Numbers
 * count on for the life of the process, whether or not anything is written. Of a call's gradients they show what enters
 * and leaves the autograd node of its first result, in that node's own order. A record is flat: a member per line of
 * the file (src/collect/lines.h).
 */
#ifndef MSP_PY_LEGACY_H
#define MSP_PY_LEGACY_H

#include "patch/patch.h"

/* Whether calls are recorded so, and not as usual. */
bool msp_probe_is_legacy(void);

/* Make a call, and record it. receiver: the tensor whose method it is, or NULL. */
PyObject *msp_probe_legacy_call(probe_api *api, PyObject *self, PyObject *receiver, PyObject *args, PyObject *kwargs);

/* Functions for Python: see legacy.c. */
PyObject *msp_probe_legacy_module(PyObject *self, PyObject *all);
PyObject *msp_probe_legacy_rules(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *msp_probe_legacy_unit(PyObject *self, PyObject *args);
PyObject *msp_probe_legacy_matched(PyObject *self, PyObject *unused);

/* ---- what the files of this folder share ---------------------------------------------------------------------------
 */

/* Which of the tools. */
enum { FORM_NONE, FORM_PTDBG, FORM_HOOKS };

/* Where the call stack stands in a record. */
enum { STACK_NONE, STACK_FIRST, STACK_LAST, STACK_ONLY };

/* How deep lists in lists are followed. */
enum { LEGACY_NESTING = 64 };

/* What is recorded: set by legacy_rules(). */
typedef struct legacy_settings {
    int64_t form;       /* FORM_NONE: calls are recorded as usual */
    int64_t stack;      /* STACK_NONE, ... */
    bool muted;         /* calls are counted and nothing is written */
    bool floats_only;   /* of tensors those of floating types that have dimensions and elements, and no numbers */
    bool forward;       /* calls are written */
    bool backward;      /* ... and their gradients */
    bool overflow;      /* only calls that made inf or NaN are written */
    bool rerun;         /* Python makes such a call again, for the device's own dump */
    PyObject *prefixes; /* tuple of str: only names that begin with one of them; NULL: all */
    PyObject *range;    /* pair of str: what the first and the last name begin with; NULL: all */
    PyObject *ops;      /* tuple of str: only these functions, named without underscores around them; NULL: all */
    PyObject *kernel;   /* str: what the name of the call that Python makes begins with; NULL: none */
    PyObject *found;    /* Python: (name) -> bool, an overflow is to be written and there is a file for it; or NULL */
} legacy_settings;

extern legacy_settings msp_legacy;

/* What one call shows, in one direction. */
typedef struct legacy_shown {
    const char *name; /* "Torch_relu_0_forward" */
    size_t len;
    uint32_t stack;           /* the number of its call stack; 0: none */
    PyObject *self;           /* the tensor whose method was called, which is the first input; or NULL */
    PyObject *input, *output; /* arguments and result, or gradients */
    bool outputs_first;       /* the outputs stand before the inputs */
} legacy_shown;

/* Whether the name begins so; prefix NULL: no. */
bool msp_legacy_begins_with(const char *name, size_t len, PyObject *prefix);

/* Whether a call of this name is written. Asked once for each: it counts what passes. */
bool msp_legacy_wants(const char *name, size_t len, bool forward);
int64_t msp_legacy_count(void);

/* Write the record of a call, and whether a value, or a list in it, holds inf or NaN. */
void msp_legacy_write(const legacy_shown *s);
bool msp_legacy_holds_overflow(PyObject *v, int depth);

#endif
