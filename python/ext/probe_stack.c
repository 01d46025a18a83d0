/*
 * probe_stack.c - call stacks, made into text once.
 *
 * A stack is known by the hash of its frames' code objects and instruction offsets: 200 ns for thirty frames, against
 * milliseconds for text with source lines. The text of a new one is made by Python (probe.stack_text), which also says
 * what kind of call it is. Code objects of known stacks are kept alive: their addresses are the keys.
 */
#include "probe.h"
#include <string.h>

#if PY_VERSION_HEX < 0x03090000
#include <frameobject.h>
#endif

/*
 * From 3.11 on frames are no objects until they are asked for, and to make one for each costs more than the rest of a
 * small call's record. In the version that this was tried in, the hash is made of the interpreter's own frames.
 */
#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000 && defined(__has_include)
#if __has_include(<internal/pycore_frame.h>)
#define HAS_OWN_FRAMES
#define Py_BUILD_CORE_MODULE
#include <internal/pycore_frame.h>
#endif
#endif

typedef struct known_stack {
    uint64_t hash; /* 0: free */
    probe_site site;
} known_stack;

static known_stack *table;
static size_t slots, used;
static PyObject *kept;         /* list of code objects */
static PyObject *texts;        /* dict: a stack's whole text -> its id: two calls on one line have the same */
static PyObject *texts_before; /* those of stacks that were forgotten last, or NULL */

/* ---- frames, in every version ------------------------------------------------------------------------------------ */

#if PY_VERSION_HEX >= 0x03090000
#define frame_of_thread() PyThreadState_GetFrame(PyThreadState_Get())
#define frame_back(f)     PyFrame_GetBack(f)
#define frame_code(f)     PyFrame_GetCode(f)
#else
static PyFrameObject *
new_reference(PyFrameObject *f)
{
    Py_XINCREF(f);
    return f;
}

static PyCodeObject *
frame_code(PyFrameObject *f)
{
    Py_INCREF(f->f_code);
    return f->f_code;
}

#define frame_of_thread() new_reference(PyThreadState_Get()->frame)
#define frame_back(f)     new_reference((f)->f_back)
#endif

#if PY_VERSION_HEX >= 0x030b0000
#define frame_lasti(f) PyFrame_GetLasti(f)
#else
#include <frameobject.h>
#define frame_lasti(f) ((f)->f_lasti)
#endif

static PyFrameObject *
frame_behind(int skip)
{
    PyFrameObject *f = frame_of_thread();

    while (f != NULL && skip-- > 0) {
        PyFrameObject *back = frame_back(f);

        Py_DECREF(f);
        f = back;
    }
    return f;
}

static uint64_t
mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
}

static uint64_t
hash_frames(int skip)
{
    PyFrameObject *f = frame_behind(skip);
    uint64_t h = 1;

    while (f != NULL) {
        PyFrameObject *back = frame_back(f);
        PyCodeObject *code = frame_code(f);

        h = mix(h, (uintptr_t)code);
        h = mix(h, (uint64_t)(unsigned)frame_lasti(f));
        Py_DECREF(code);
        Py_DECREF(f);
        f = back;
    }
    return h == 0 ? 1 : h;
}

#ifdef HAS_OWN_FRAMES
static bool own_frames; /* they have been proven */

/* The same hash. */
static uint64_t
hash_own_frames(int skip)
{
    uint64_t h = 1;

    for (_PyInterpreterFrame *f = PyThreadState_Get()->cframe->current_frame; f != NULL; f = f->previous) {
        if (_PyFrame_IsIncomplete(f) || skip-- > 0)
            continue;
        h = mix(h, (uintptr_t)f->f_code);
        h = mix(h, (uint64_t)(unsigned)(_PyInterpreterFrame_LASTI(f) * (int)sizeof(_Py_CODEUNIT)));
    }
    return h == 0 ? 1 : h;
}

static uint64_t
hash_stack(int skip)
{
    return own_frames ? hash_own_frames(skip) : hash_frames(skip);
}

PyObject *
msp_probe_frames(PyObject *self, PyObject *use)
{
    (void)self;
    own_frames = PyObject_IsTrue(use) == 1 && hash_own_frames(0) == hash_frames(0);
    return PyBool_FromLong(own_frames);
}
#else
#define hash_stack(skip) hash_frames(skip)

PyObject *
msp_probe_frames(PyObject *self, PyObject *use)
{
    (void)self, (void)use;
    Py_RETURN_NONE;
}
#endif

static void
keep_codes(PyFrameObject *top)
{
    PyFrameObject *f = top;

    if (kept == NULL)
        kept = PyList_New(0);
    Py_INCREF(f);
    while (f != NULL) {
        PyFrameObject *back = frame_back(f);
        PyCodeObject *code = frame_code(f);

        if (kept == NULL || PyList_Append(kept, (PyObject *)code) != 0)
            PyErr_Clear();
        Py_DECREF(code);
        Py_DECREF(f);
        f = back;
    }
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static known_stack *
find(uint64_t hash)
{
    size_t i = hash & (slots - 1);

    while (table[i].hash != 0 && table[i].hash != hash)
        i = (i + 1) & (slots - 1);
    return &table[i];
}

static bool
make_room(void)
{
    size_t old_slots = slots;
    known_stack *old = table, *bigger;

    if (slots > 0 && used * 2 < slots)
        return true;
    bigger = PyMem_Calloc(slots == 0 ? 1024 : slots * 2, sizeof(*bigger));
    if (bigger == NULL)
        return false;
    table = bigger;
    slots = slots == 0 ? 1024 : slots * 2;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i].hash != 0)
            *find(old[i].hash) = old[i];
    PyMem_Free(old);
    return true;
}

/* Some 60 MB of texts and code objects. A step with more distinct stacks makes texts anew, so that it is well above
 * what models have: hundreds, or some thousands where they recurse. A program that makes code while it runs has any
 * number, and a step of it need not end. */
enum { MOST_STACKS = 1 << 15 };

/* Code may be freed from here on, and its address be used again: no stack is known by it any more. */
static void
forget_stacks(void)
{
    PyMem_Free(table);
    table = NULL;
    slots = used = 0;
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
            PyErr_Clear();
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
    PyObject *id = PyDict_GetItem(texts, text);

    return id != NULL || texts_before == NULL ? id : PyDict_GetItem(texts_before, text);
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
    PyErr_Clear();
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
intern(PyObject *text)
{
    Py_INCREF(text);
    PyUnicode_InternInPlace(&text);
    return text;
}

/* What is described: a call, a module that has returned, a module that has raised. */
typedef enum stack_form { FRAMES, MODULE, RAISED } stack_form;

/* probe.stack_text(frame, form) -> ([text, ...], is_recompute, owner, is_internal); the forms: pytorch/stacks.py */
static probe_site
describe_stack(PyFrameObject *top, stack_form of)
{
    static const char *const names[] = {"frames", "module", "raised"};
    PyObject *form = PyUnicode_FromString(msp_probe_is_legacy() ? "parts" : names[of]);
    PyObject *said = msp_probe.stack_text == NULL || form == NULL
                         ? NULL
                         : msp_probe_ask_own(msp_probe.stack_text, (PyObject *)top, form);
    probe_site site = {0};

    if (said != NULL && PyTuple_Check(said) && PyTuple_GET_SIZE(said) == 4 && PyList_Check(PyTuple_GET_ITEM(said, 0))) {
        site.recompute = PyTuple_GET_ITEM(said, 1) == Py_True;
        site.internal = PyTuple_GET_ITEM(said, 3) == Py_True;
        if (PyUnicode_Check(PyTuple_GET_ITEM(said, 2)))
            site.owner = intern(PyTuple_GET_ITEM(said, 2));
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
learn(uint64_t hash, int skip, stack_form of)
{
    PyFrameObject *top = frame_behind(skip);
    probe_site site = {0};
    known_stack *k;

    if (top == NULL)
        return site;
    site = describe_stack(top, of);
    if (used >= MOST_STACKS)
        forget_stacks();
    keep_codes(top);
    Py_DECREF(top);
    if (!make_room()) /* they may have been forgotten meanwhile */
        return site;
    k = find(hash);
    if (k->hash == 0) {
        *k = (known_stack){hash, site};
        used++;
    }
    return k->site;
}

static probe_site
look_up(int skip, stack_form of)
{
    probe_site site = {0};
    uint64_t hash = hash_stack(skip) ^ (of * 0x5bd1e995u);

    hash += hash == 0;
    if (make_room())
        site = find(hash)->hash != 0 ? find(hash)->site : learn(hash, skip, of);
    msp_probe_thread.stack = site.stack;
    msp_probe_thread.owner = site.owner;
    return site;
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
