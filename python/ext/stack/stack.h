/* stack.h - call stacks, made into text once. */
#ifndef MSP_PY_STACK_H
#define MSP_PY_STACK_H

#include "recording/recording.h"

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

/* What a stack without its skip innermost frames is known by: its code objects, which must be kept, and where each is.
 * Never 0. */
uint64_t msp_probe_stack_hash(int skip);

/* The text of a stack, its frames joined by line ends: a borrowed str, or NULL. */
PyObject *msp_probe_stack_by_id(uint32_t id);

/* Forget the ids: they belong to one collection. */
void msp_probe_stack_reset(void);

#endif
