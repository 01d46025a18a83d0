/*
 * stack.h - call stacks: where a call was made, as a number that stands for its text.
 *
 * What a stack is called by is a hash of its frames' code objects and instruction offsets. The text of one that was not
 * seen before is made by Python, probe.stack_text(frame, form) -> (texts, is_recompute, owner, is_internal):
 *     form          "frames": of a call of a function; "module", "raised": of a module that has returned or raised, as
 *                   the original shows it; "parts": as the older tools do
 *     texts         a list of str, a frame each, innermost first
 *     the others    as in probe_site
 */
#ifndef MSP_PY_STACK_H
#define MSP_PY_STACK_H

#include "recording/recording.h"
#if PY_VERSION_HEX < 0x030b0000
#include <frameobject.h>
#endif

/* Where a call was made. */
typedef struct probe_site {
    uint32_t stack;  /* the number of its stack in this recording; 0: its text cannot be had, or is not wanted */
    bool recompute;  /* the call repeats a forward, for activation checkpointing */
    bool internal;   /* torch's own machinery has made it (a compiler, autograd's glue), not the program */
    PyObject *owner; /* what the call belongs to instead of a module, "optimizer" or "clip_grad", kept; or NULL */
} probe_site;

/* Where the call is made that runs now; skip: so many of the innermost frames are ours. */
probe_site msp_probe_stack(int skip);

/* Where the module is called that is about to return, or has raised: as a hook on the module would see it. */
probe_site msp_probe_module_stack(bool raised);

/* What a stack without its skip innermost frames is known by: its code objects, which must be kept, and where each is.
 * Never 0. */
uint64_t msp_probe_stack_hash(int skip);

/* The text of a stack, its frames joined by line ends, lent; NULL: there is none, or it was forgotten. */
PyObject *msp_probe_stack_by_id(uint32_t id);

/* Forget all numbers: they belong to one recording. */
void msp_probe_stack_reset(void);

/* ---- frames, in every version: new references ----------------------------------------------------------------------
 */

#if PY_VERSION_HEX >= 0x03090000
#define msp_frame_of_thread() PyThreadState_GetFrame(PyThreadState_Get())
#define msp_frame_back(f)     PyFrame_GetBack(f)
#define msp_frame_code(f)     PyFrame_GetCode(f)
#else
static inline PyFrameObject *
msp_new_frame_reference(PyFrameObject *f)
{
    Py_XINCREF(f);
    return f;
}

static inline PyCodeObject *
msp_frame_code(PyFrameObject *f)
{
    Py_INCREF(f->f_code);
    return f->f_code;
}

#define msp_frame_of_thread() msp_new_frame_reference(PyThreadState_Get()->frame)
#define msp_frame_back(f)     msp_new_frame_reference((f)->f_back)
#endif

/* Where in the frame's code the call stands. */
#if PY_VERSION_HEX >= 0x030b0000
#define msp_frame_lasti(f) PyFrame_GetLasti(f)
#else
#define msp_frame_lasti(f) ((f)->f_lasti)
#endif

/* The frame behind this one, whose reference is taken over. */
static inline PyFrameObject *
msp_frame_leave(PyFrameObject *f)
{
    PyFrameObject *back = msp_frame_back(f);

    Py_DECREF(f);
    return back;
}

#endif
