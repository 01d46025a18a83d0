/*
 * call.h - one call of the program's, from its inputs to its record.
 *
 *     machine.c        what calls of functions and modules go through, from their inputs to their gradients
 *     function_call.c  calls of functions
 *     around.c         Python before and after a call, which is not recorded
 *     record.c         handing records over, and what of them is wanted
 *     exceptions.c     exceptions that come up while we work
 *     torch_state.c    what torch is doing on this thread
 *
 * machine.h: the machine itself, for what makes calls.
 */
#ifndef MSP_PY_CALL_H
#define MSP_PY_CALL_H

#include "patch/patch.h"
#include "stack/stack.h"
#include "tensor/tensor.h"

/* Call the function as it would have been called without us, recording it when it is the outermost one. */
PyObject *msp_probe_call(probe_api *api, PyObject *self, PyObject *args, PyObject *kwargs);

/* True when a call made now on this thread is recorded. */
static inline bool
msp_probe_wants(void)
{
    return msp_probe.on && msp_probe_thread.depth == 0 && !msp_compiled_is_inside();
}

/*
 * Around everything that we do: what is called meanwhile is not recorded, and the program's own TorchFunctionMode does
 * not see it. While the program's function itself runs, between resume and pause, the mode is as the program set it.
 */
typedef struct probe_quiet {
    PyObject *state;  /* of the program's TorchFunctionMode, to be put back; NULL: it has none */
    PyObject *frames; /* what torch.compile looked at this thread's frames by, to be put back; NULL: it does not look */
    bool transforming; /* what the thread's flag was before: entries nest */
} probe_quiet;

void msp_probe_enter(probe_quiet *q);
void msp_probe_leave(probe_quiet *q);
void msp_probe_resume(probe_quiet *q);
void msp_probe_pause(probe_quiet *q);

/* An attribute of a tensor: a class of the program's own that has __torch_function__ is not asked. */
PyObject *msp_probe_tensor_attribute(PyObject *tensor, PyObject *name);

/*
 * An exception that came up in our own code is told in the log and never seen by the program: where we were, and the
 * name of what was recorded. One that a handler of a signal raised meanwhile is the program's, and goes to it.
 */
void msp_probe_swallow(const char *where, const char *name);

/* Clear an exception of this type, which is an answer here and no error; any other that is set, or all of them (NULL),
 * is told as msp_probe_swallow() does. */
void msp_probe_expect(PyObject *type, const char *where);

/* Whether an object has an attribute. (PyObject_HasAttr() would take any exception for an answer.) */
bool msp_probe_has(PyObject *object, const char *name, const char *where);

/* What was held for the program is raised at its next instruction. */
void msp_probe_deliver(void);

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
    if (!ours) {
        msp_probe_expect(NULL, "recording a call");
        if (o->result == NULL)
            PyErr_Restore(o->type, o->value, o->trace);
        return o->result;
    }
    Py_XDECREF(o->result);
    Py_XDECREF(o->type);
    Py_XDECREF(o->value);
    Py_XDECREF(o->trace);
    return NULL;
}

/*
 * Call a function of ours in Python with one argument or two (NULL: none); torch.compile, which looks at every frame
 * while it is on, leaves that one alone. One that may be called twice is asked again when an exception that a handler
 * of the program's raises has interrupted it.
 */
PyObject *msp_probe_ask(PyObject *callable, PyObject *first, PyObject *second);
PyObject *msp_probe_ask_again(PyObject *callable, PyObject *first, PyObject *second);

/* Exchange by what torch.compile looks at what this thread calls (None: it does not): what was there, or NULL. */
PyObject *msp_probe_set_frames(PyObject *to);

/* And put that back; it takes the reference. An exception that is set stays. */
void msp_probe_put_frames_back(PyObject *before);

/* A message as text, whatever bytes it holds. */
PyObject *msp_probe_text(const char *message);

/* Calls whose handle nobody waited for, at the end of a step (machine.c). */
void msp_probe_pending_flush(void);

/* Whether an argument is a tensor that only stands for one: a compiler's, and no call of the program. */
bool msp_probe_any_fake(PyObject *self, PyObject *args, PyObject *kwargs);

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

/* A call with Python before and after it; name NULL: it is not selected. And what these two are: around(before, after).
 */
PyObject *msp_probe_call_around(probe_api *api, PyObject *self, PyObject *receiver, PyObject *args, PyObject *kwargs,
                                const char *name, probe_quiet *q);
PyObject *msp_probe_set_around(PyObject *self, PyObject *args);

/* Let go of the interpreter lock while the library waits, and take it again; payload: a PyThreadState *. */
void msp_probe_while_waiting(bool begin, void *payload);

/* A free record for this thread, without tokens; calls nest when hooks of the program run inside others. Give it back
 * when done. */
msp_record *msp_probe_record_get(void);
void msp_probe_record_put(msp_record *r);

/* Hand a record over; a failure ends the recording and is told once. */
void msp_probe_commit(msp_record *r);
void msp_probe_commit_value(msp_record *r); /* an entry of "data" */

/* Whether list lets this name pass, alone or for the module it runs in; whether scope does now; and both. */
bool msp_probe_listed(const char *name, size_t len);
bool msp_probe_in_scope(void);
bool msp_probe_selects(const char *name, size_t len);

/* Whether a call made now runs inside a module that the list names, which stands at level mix for all that is inside
 * it. backward: the names looked for are those that modules have in backward. */
bool msp_probe_inside_listed(bool backward);

/* "Module.a.Linear.forward.0" as it is called in backward; returns its length, 0: it does not fit. */
size_t msp_probe_backward_text(char *out, size_t size, const char *name, size_t len);

/* True when one of the texts in list (a tuple of str, or NULL: no) is part of name. */
bool msp_probe_in_list(PyObject *list, const char *name, size_t len);
void msp_probe_scope_enter(const char *name, size_t len);
void msp_probe_scope_leave(const char *name, size_t len);

/* Commit where a call stands: what it belongs to, and its stack when it is selected. */
void msp_probe_note_site(const char *name, size_t len, const probe_site *site, bool selected);

/* Put where a selected call stands into its own record, which is complete. */
void msp_probe_place(msp_record *r, const probe_site *site);

/* An exception of our own becomes the field "error" of what is being recorded, and is told once. */
void msp_probe_mark(msp_record *r, const char *where, const char *name);

/* ---- what torch is doing on this thread (torch_state.c) ---------------------------------------------------------- */

/* Whether a TorchFunctionMode is on, and whether a transform (vmap, grad, ...) runs. */
bool msp_state_has_function_mode(void);
bool msp_state_is_transforming(void);

/* Whether calls made now can make nodes of a graph. */
bool msp_state_grad_enabled(void);

/* The number that the next node of this thread's graph gets, and that of the backward pass that runs; -1: there is
 * none, or this torch does not tell. */
int64_t msp_state_next_node(void);
int64_t msp_state_backward_pass(void);

/* What an attribute or a call said, as a number; -1 when it failed, which is told. Takes the reference over. */
int64_t msp_probe_number(PyObject *v, const char *where);

#endif
