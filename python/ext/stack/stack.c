/*
 * stack.c - call stacks, made into text once.
 *
 * A stack is known by the hash of its frames' code objects and instruction offsets: 200 ns for thirty frames, against
 * milliseconds for text with source lines. The text of a new one is made by Python (probe.stack_text), which also says
 * what kind of call it is. Code objects of known stacks are kept alive: their addresses are the keys.
 */
#include "recording/address_map.h"
#include "call/call.h"
#include "legacy/legacy.h"
#include <string.h>

static address_map sites;      /* hash of a stack -> probe_site */
static PyObject *kept;         /* list of code objects */
static PyObject *texts;        /* dict: a stack's whole text -> its id: two calls on one line have the same */
static PyObject *texts_before; /* those of stacks that were forgotten last, or NULL */

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static PyFrameObject *
frame_behind(int skip)
{
    PyFrameObject *f = msp_frame_of_thread();

    while (f != NULL && skip-- > 0)
        f = msp_frame_leave(f);
    return f;
}

static uint64_t
mix_hash(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
}

uint64_t
msp_probe_stack_hash(int skip)
{
    PyFrameObject *f = frame_behind(skip);
    uint64_t h = 1;

    for (; f != NULL; f = msp_frame_leave(f)) {
        PyCodeObject *code = msp_frame_code(f);

        h = mix_hash(h, (uintptr_t)code);
        h = mix_hash(h, (uint64_t)(unsigned)msp_frame_lasti(f));
        Py_DECREF(code);
    }
    return h == 0 ? 1 : h;
}

static void
keep_codes(PyFrameObject *top)
{
    PyFrameObject *f = top;

    if (kept == NULL)
        kept = PyList_New(0);
    Py_INCREF(f);
    for (; f != NULL; f = msp_frame_leave(f)) {
        PyCodeObject *code = msp_frame_code(f);

        if (kept == NULL || PyList_Append(kept, (PyObject *)code) != 0)
            msp_probe_expect(PyExc_MemoryError, "keeping a stack's code");
        Py_DECREF(code);
    }
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* A hash stands for an address: 60 bits of it do not meet by chance. */
static const void *
key_of(uint64_t hash)
{
    return (const void *)(uintptr_t)hash;
}

/* Some 60 MB of texts and code objects. A step with more distinct stacks makes texts anew, so that it is well above
 * what models have: hundreds, or some thousands where they recurse. A program that makes code while it runs has any
 * number, and a step of it need not end. */
enum { MOST_STACKS = 1 << 15 };

/* Code may be freed from here on, and its address be used again: no stack is known by it any more. */
static void
forget_stacks(void)
{
    for (size_t i = 0; i < sites.slots; i++)
        PyMem_Free(sites.values[i]);
    map_release(&sites);
    Py_CLEAR(kept);
    Py_XSETREF(texts_before, texts);
    texts = NULL;
}

void
msp_probe_stack_reset(void)
{
    forget_stacks();
    Py_CLEAR(texts_before);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static uint32_t
hand_over(PyObject *frames)
{
    Py_ssize_t n = PyList_GET_SIZE(frames);
    const char **lines = PyMem_New(const char *, n + 1);
    uint32_t id = 0;
    msp_error err;

    for (Py_ssize_t i = 0; lines != NULL && i < n; i++) {
        lines[i] = PyUnicode_AsUTF8(PyList_GET_ITEM(frames, i));
        if (lines[i] == NULL) {
            msp_probe_expect(PyExc_UnicodeEncodeError, "the call stack");
            lines[i] = "?";
        }
    }
    if (lines != NULL && msp_probe.collect != NULL) { /* somebody may wait for room in the ring, and need the lock */
        Py_BEGIN_ALLOW_THREADS;
        if (msp_collect_stack(msp_probe.collect, &id, lines, (size_t)n, &err) != MSP_OK)
            id = 0;
        Py_END_ALLOW_THREADS;
    }
    PyMem_Free(lines);
    return id;
}

static PyObject *
known_text(PyObject *text)
{
    PyObject *id = PyDict_GetItemWithError(texts, text);

    return id != NULL || texts_before == NULL ? id : PyDict_GetItemWithError(texts_before, text);
}

static uint32_t
register_stack(PyObject *frames)
{
    PyObject *separator = PyUnicode_FromString("\n"), *text, *id = NULL;
    uint32_t n = 0;

    text = separator == NULL ? NULL : PyUnicode_Join(separator, frames);
    if (texts == NULL)
        texts = PyDict_New();
    if (text != NULL && texts != NULL)
        id = known_text(text);
    n = id != NULL ? (uint32_t)PyLong_AsUnsignedLong(id) : hand_over(frames);
    id = PyLong_FromUnsignedLong(n);
    if (id != NULL && text != NULL && texts != NULL)
        PyDict_SetItem(texts, text, id);
    Py_XDECREF(id);
    Py_XDECREF(separator);
    Py_XDECREF(text);
    msp_probe_expect(NULL, "the call stack");
    return n;
}

static PyObject *
text_by_id(PyObject *among, uint32_t id)
{
    PyObject *text, *number;
    Py_ssize_t pos = 0;

    while (id != 0 && among != NULL && PyDict_Next(among, &pos, &text, &number))
        if (PyLong_AsUnsignedLong(number) == id)
            return text;
    return NULL;
}

PyObject *
msp_probe_stack_by_id(uint32_t id)
{
    PyObject *text = text_by_id(texts, id);

    return text != NULL ? text : text_by_id(texts_before, id);
}

/* One object per owner, for ever: there are two of them. */
static PyObject *
intern_text(PyObject *text)
{
    Py_INCREF(text);
    PyUnicode_InternInPlace(&text);
    return text;
}

/* What is described: a call, a module that has returned, a module that has raised. */
typedef enum stack_form { FRAMES, MODULE, RAISED } stack_form;

static probe_site
describe_stack(PyFrameObject *top, stack_form of)
{
    static const char *const names[] = {"frames", "module", "raised"};
    PyObject *form = PyUnicode_FromString(msp_probe_is_legacy() ? "parts" : names[of]);
    PyObject *said = msp_probe.stack_text == NULL || form == NULL
                         ? NULL
                         : msp_probe_ask_again(msp_probe.stack_text, (PyObject *)top, form);
    probe_site site = {0};

    if (said != NULL && PyTuple_Check(said) && PyTuple_GET_SIZE(said) == 4 && PyList_Check(PyTuple_GET_ITEM(said, 0))) {
        site.recompute = PyTuple_GET_ITEM(said, 1) == Py_True;
        site.internal = PyTuple_GET_ITEM(said, 3) == Py_True;
        if (PyUnicode_Check(PyTuple_GET_ITEM(said, 2)))
            site.owner = intern_text(PyTuple_GET_ITEM(said, 2));
        if (!site.internal)
            site.stack = register_stack(PyTuple_GET_ITEM(said, 0));
    } else if (PyErr_Occurred()) {
        msp_probe_swallow("the call stack", "");
    }
    Py_XDECREF(said);
    Py_XDECREF(form);
    return site;
}

/* A stack that was not seen before. Python runs meanwhile, and may come here. */
static probe_site
learn_stack(uint64_t hash, int skip, stack_form of)
{
    PyFrameObject *top = frame_behind(skip);
    probe_site site = {0}, *known;

    if (top == NULL)
        return site;
    site = describe_stack(top, of);
    if (sites.used >= MOST_STACKS)
        forget_stacks();
    keep_codes(top);
    Py_DECREF(top);
    known = map_get(&sites, key_of(hash));
    if (known != NULL)
        return *known;
    known = PyMem_Malloc(sizeof(*known));
    if (known != NULL)
        *known = site;
    if (known != NULL && !map_put(&sites, key_of(hash), known))
        PyMem_Free(known);
    return site;
}

static probe_site
look_up(int skip, stack_form of)
{
    uint64_t hash = msp_probe_stack_hash(skip) ^ (of * 0x5bd1e995u);
    const probe_site *known;

    hash += hash == 0;
    known = map_get(&sites, key_of(hash));
    return known != NULL ? *known : learn_stack(hash, skip, of);
}

probe_site
msp_probe_stack(int skip)
{
    return look_up(skip, FRAMES);
}

probe_site
msp_probe_module_stack(bool raised)
{
    return look_up(0, raised ? RAISED : MODULE);
}
