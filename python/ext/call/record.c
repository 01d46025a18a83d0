/*
 * record.c - handing records over, what of them is wanted, and what becomes of errors of our own.
 */
#include "model/model.h"
#include <string.h>

#define KEY(r, literal) msp_record_key((r), (literal), sizeof(literal) - 1)

__thread probe_thread msp_probe_thread;

/* ---- unseen ------------------------------------------------------------------------------------------------------ */

static PyObject *
ask_modes(int which, PyObject *arg)
{
    PyObject *said = PyObject_CallFunctionObjArgs(PyTuple_GET_ITEM(msp_probe.modes, which), arg, NULL);

    if (said == NULL)
        msp_probe_swallow("setting the program's modes aside", "");
    return said;
}

/* What was set, to be put back; NULL: nothing is to be. */
static PyObject *
set_aside(void)
{
    PyObject *state = ask_modes(1, NULL);

    if (state != NULL)
        Py_XDECREF(ask_modes(2, PyTuple_GET_ITEM(msp_probe.modes, 3)));
    return state;
}

/* Takes the reference over. An exception that is set stays. */
static void
put_back(PyObject *state)
{
    PyObject *type, *value, *trace;

    if (state == NULL)
        return;
    PyErr_Fetch(&type, &value, &trace);
    Py_XDECREF(ask_modes(2, state));
    Py_DECREF(state);
    PyErr_Restore(type, value, trace);
}

void
msp_probe_pause(probe_quiet *q)
{
    q->state = msp_state_has_function_mode() ? set_aside() : NULL;
}

void
msp_probe_resume(probe_quiet *q)
{
    put_back(q->state);
    q->state = NULL;
    msp_probe_deliver();
}

PyObject *
msp_probe_tensor_attribute(PyObject *tensor, PyObject *name)
{
    PyObject *state, *value;

    if (msp_probe_is_plain_tensor(tensor) || msp_probe.modes == NULL ||
        PyTuple_GET_ITEM(msp_probe.modes, 3) == Py_None) /* torch 1.13 has no state in which classes are not asked */
        return PyObject_GetAttr(tensor, name);
    state = set_aside();
    value = PyObject_GetAttr(tensor, name);
    put_back(state);
    return value;
}

void
msp_probe_enter(probe_quiet *q)
{
    probe_thread *thread = msp_probe_here();

    thread->depth++;
    q->frames = msp_compiled_is_inside() ? msp_probe_set_frames(Py_None) : NULL;
    msp_probe_pause(q);
    q->transforming = thread->transforming;
    thread->transforming = msp_state_is_transforming();
}

void
msp_probe_leave(probe_quiet *q)
{
    msp_probe_resume(q);
    if (q->frames != NULL)
        msp_probe_put_frames_back(q->frames);
    msp_probe_thread.transforming = q->transforming;
    msp_probe_thread.depth--;
}

/* ---- records per thread ------------------------------------------------------------------------------------------ */

/* Gradients that wait for others have one each. */
enum { KEPT_RECORDS = 64, KEPT_BYTES = 1 << 16 };

static __thread msp_record *free_records[KEPT_RECORDS];
static __thread int nfree;

msp_record *
msp_probe_record_get(void)
{
    msp_record *r;

    if (nfree > 0) {
        r = free_records[--nfree];
        r->len = 0;
        r->failed = false;
        return r;
    }
    return PyMem_Calloc(1, sizeof(msp_record)); /* NULL is dealt with by the callers: no record then */
}

void
msp_probe_record_put(msp_record *r)
{
    if (r == NULL)
        return;
    if (nfree < KEPT_RECORDS && r->cap <= KEPT_BYTES) {
        free_records[nfree++] = r;
        return;
    }
    msp_record_release(r);
    PyMem_Free(r);
}

/* ---- handing over ------------------------------------------------------------------------------------------------ */

void
msp_probe_while_waiting(bool begin, void *payload)
{
    PyThreadState **saved = payload;

    if (begin)
        *saved = PyEval_SaveThread();
    else
        PyEval_RestoreThread(*saved);
}

void
msp_probe_commit_value(msp_record *r)
{
    msp_probe.values++;
    msp_probe_commit(r);
}

void
msp_probe_commit(msp_record *r)
{
    PyThreadState *saved = NULL;
    PyObject *done;
    msp_error err;

    if (msp_probe.collect == NULL)
        return;
    msp_probe_device_settle(r);
    if (msp_collect_commit(msp_probe.collect, r, msp_probe_while_waiting, &saved, &err) == MSP_OK) {
        msp_probe.records++;
        msp_probe_device_look();
        return;
    }
    msp_probe.on = msp_probe.live = false; /* a full disk, say: training goes on, recording does not */
    if (msp_probe.on_failure != NULL) {
        done = PyObject_CallFunction(msp_probe.on_failure, "N", msp_probe_text(err.message));
        Py_XDECREF(done);
        if (done == NULL)
            msp_probe_swallow("telling the end of recording", "");
    }
}

/* ---- overflow_check ---------------------------------------------------------------------------------------------- */

uint64_t
msp_probe_watch_overflow(void)
{
    if (msp_probe.rules.overflow)
        msp_probe_thread.overflowed = false;
    return msp_probe.tickets;
}

bool
msp_probe_saw_overflow(uint64_t ticket)
{
    return msp_probe.rules.overflow && (msp_probe_thread.overflowed || msp_probe_device_saw_overflow(ticket));
}

/* ---- what is wanted ---------------------------------------------------------------------------------------------- */

bool
msp_probe_in_list(PyObject *list, const char *name, size_t len)
{
    for (Py_ssize_t i = 0; list != NULL && i < PyTuple_GET_SIZE(list); i++) {
        Py_ssize_t n;
        const char *part = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(list, i), &n);

        if (part == NULL)
            msp_probe_expect(PyExc_UnicodeEncodeError, "reading the list");
        else if (memmem(name, len, part, (size_t)n) != NULL)
            return true;
    }
    return false;
}

static bool
equals_name(PyObject *text, const char *name, size_t len)
{
    Py_ssize_t n;
    const char *p = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, &n);

    if (text != NULL && p == NULL)
        msp_probe_expect(PyExc_UnicodeEncodeError, "reading the range");
    return p != NULL && (size_t)n == len && memcmp(p, name, len) == 0;
}

void
msp_probe_scope_enter(const char *name, size_t len)
{
    if (equals_name(msp_probe.rules.scope_begin, name, len))
        msp_probe.in_scope = true;
}

void
msp_probe_scope_leave(const char *name, size_t len)
{
    if (equals_name(msp_probe.rules.scope_end, name, len))
        msp_probe.in_scope = false;
}

size_t
msp_probe_backward_text(char *out, size_t size, const char *name, size_t len)
{
    static const char before[] = ".forward.", after[] = ".backward.";
    const size_t nbefore = sizeof(before) - 1, nafter = sizeof(after) - 1;
    size_t head = len, tail = 0;

    if (len + sizeof(after) > size)
        return 0;
    for (size_t at = len; at >= nbefore && tail == 0; at--)
        if (memcmp(name + at - nbefore, before, nbefore) == 0) {
            head = at - nbefore;
            tail = len - at + nafter;
            memcpy(out + head, after, nafter);
            memcpy(out + head + nafter, name + at, len - at);
        }
    memcpy(out, name, head);
    out[head + tail] = '\0';
    return head + tail;
}

static bool
is_listed_module(const char *name, size_t len, bool backward)
{
    char other[PROBE_NAME_SIZE];

    if (!backward)
        return msp_probe_in_list(msp_probe.rules.list, name, len);
    return msp_probe_in_list(msp_probe.rules.list, other, msp_probe_backward_text(other, sizeof(other), name, len));
}

bool
msp_probe_inside_listed(bool backward)
{
    const char *name;
    size_t len;

    if (msp_probe.rules.list == NULL || !msp_probe.rules.expand)
        return false;
    for (Py_ssize_t i = msp_probe_open_modules(); i-- > 0;) {
        name = msp_probe_open_name(i, &len);
        if (is_listed_module(name, len, backward))
            return true;
    }
    return false;
}

bool
msp_probe_listed(const char *name, size_t len)
{
    return msp_probe.rules.list == NULL || msp_probe_in_list(msp_probe.rules.list, name, len) ||
           msp_probe_inside_listed(false);
}

bool
msp_probe_in_scope(void)
{
    return msp_probe.rules.scope_begin == NULL || msp_probe.in_scope;
}

bool
msp_probe_selects(const char *name, size_t len)
{
    return msp_probe_in_scope() && msp_probe_listed(name, len);
}

/* ---- where a call stands ----------------------------------------------------------------------------------------- */

static void
put_site(const char *name, size_t len, uint32_t stack, const char *parent, size_t parent_len)
{
    msp_record *r = msp_probe_record_get();

    if (r == NULL)
        return;
    msp_record_site(r, msp_probe.unit, name, len, stack, parent, parent_len);
    msp_probe_commit(r);
    msp_probe_record_put(r);
}

/* The owner's own node, once per unit. */
static void
note_owner(PyObject *owner, const char *text, size_t len)
{
    if (msp_probe.owners == NULL)
        msp_probe.owners = PySet_New(NULL);
    if (msp_probe.owners == NULL || PySet_Contains(msp_probe.owners, owner) != 0 ||
        PySet_Add(msp_probe.owners, owner) != 0) {
        msp_probe_expect(NULL, "noting an owner");
        return;
    }
    put_site(text, len, 0, "", 0);
}

/* Lent until the next one is asked for. */
static const char *
running_parent(bool recompute, size_t *len)
{
    static __thread char text[512];
    const char *name = msp_probe_running_parent(recompute, len);

    *len = name == NULL ? 0 : msp_probe_backward_text(text, sizeof(text), name, *len);
    return name == NULL ? "" : text;
}

/* What a call belongs to; NULL: nobody asks. */
static const char *
parent_of(const probe_site *site, size_t *len)
{
    const char *text;
    Py_ssize_t n = 0;

    *len = 0;
    if (!msp_probe.rules.construct)
        return NULL;
    if (site->owner == NULL) {
        text = msp_probe_open_name(msp_probe_open_modules() - 1, len);
        return text == NULL ? running_parent(site->recompute, len) : text;
    }
    text = PyUnicode_AsUTF8AndSize(site->owner, &n);
    *len = (size_t)n;
    if (text != NULL)
        note_owner(site->owner, text, *len);
    return text;
}

void
msp_probe_note_site(const char *name, size_t len, const probe_site *site, bool selected)
{
    uint32_t stack = selected ? site->stack : 0;
    size_t n;
    const char *text = parent_of(site, &n);

    if (stack != 0 || text != NULL)
        put_site(name, len, stack, text, n);
}

void
msp_probe_place(msp_record *r, const probe_site *site)
{
    size_t n;
    const char *text = parent_of(site, &n);

    if (site->stack != 0 || text != NULL)
        msp_record_place(r, site->stack, text, n);
}
