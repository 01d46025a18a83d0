/*
 * machine.c - what every recorded call goes through: begin, inputs, the call itself, outputs, record, gradients.
 *
 * Calls of functions (function_call.c) and of modules (model/module_call.c) differ in the values that they show. The
 * call's own result and its own exception are all that the program sees; whatever goes wrong on our side is told once
 * and marks the record.
 */
#include "call/machine.h"
#include "model/model.h"
#include <string.h>

#define KEY(r, literal) msp_record_key((r), (literal), sizeof(literal) - 1)

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* "Functional.relu.0.forward", "Module.a.Linear.backward.0" */
static size_t
write_name(char *out, const probe_call *c, bool backward)
{
    static const char sections[2][10] = {".forward", ".backward"};
    size_t n = c->base;

    if (out != c->text)
        memcpy(out, c->text, n);
    memcpy(out + n, sections[backward], sizeof(sections[0]));
    n += strlen(sections[backward]);
    if (c->number >= 0) {
        out[n++] = '.';
        n += msp_probe_digits(out + n, (uint64_t)c->number);
        out[n] = '\0';
    }
    return n;
}

void
msp_call_name(probe_call *c, const char *base, size_t len, int64_t number)
{
    c->base = len < PROBE_MODULE_NAME ? len : PROBE_MODULE_NAME;
    c->number = number;
    c->generation = msp_probe.generation;
    memcpy(c->text, base, c->base);
    c->len = write_name(c->text, c, false);
}

void
msp_call_path(probe_path *path, const probe_call *c, const char *section)
{
    msp_probe_path_begin(path, c->text, c->len);
    path->saving = c->saving;
    path->keep = c->keep;
    msp_probe_path_push(path, section, strlen(section));
}

/* ---- what is held ------------------------------------------------------------------------------------------------ */

void
msp_call_hold(probe_call *c)
{
    Py_XINCREF(c->self);
    Py_XINCREF(c->args);
    Py_XINCREF(c->kwargs);
    c->held_self = c->self;
    c->held_args = c->args;
    c->held_kwargs = c->kwargs;
}

void
msp_call_let_go(probe_call *c)
{
    msp_probe_record_put(c->record);
    msp_probe_edges_drop(c->edges);
    msp_probe_keep_drop(&c->kept);
    c->record = NULL;
    c->edges = NULL;
    Py_CLEAR(c->held_self);
    Py_CLEAR(c->held_args);
    Py_CLEAR(c->held_kwargs);
    Py_CLEAR(c->group);
    Py_CLEAR(c->put_off);
}

/* ---- before ------------------------------------------------------------------------------------------------------ */

/* Every distributed call counts in its group, also one that is not selected: the others of the group count it, too. */
static void
find_group(probe_call *c)
{
    PyObject *none = c->kwargs == NULL ? PyDict_New() : NULL, *both, *said, *group, *put_off;

    both = c->kwargs == NULL && none == NULL ? NULL : PyTuple_Pack(2, c->args, c->kwargs == NULL ? none : c->kwargs);
    said = both == NULL ? NULL : msp_probe_ask(msp_probe.group, c->api->target, both);
    if (said != NULL && said != Py_None && PyArg_ParseTuple(said, "O!O", &PyDict_Type, &group, &put_off)) {
        msp_probe_set(&c->group, group);
        msp_probe_set(&c->put_off, put_off);
    }
    if (PyErr_Occurred())
        msp_probe_swallow("finding the group of a call", c->text);
    Py_XDECREF(said);
    Py_XDECREF(none);
    Py_XDECREF(both);
}

static void
begin_record(probe_call *c)
{
    if (!msp_probe.rules.forward || msp_probe.rules.structure)
        return;
    c->record = msp_probe_record_get();
    if (c->record == NULL)
        return;
    msp_record_begin(c->record, msp_probe.unit, c->text, c->len);
    msp_record_object(c->record);
    c->ticket = msp_probe_watch_overflow();
    c->keep = msp_probe.rules.overflow ? &c->kept : NULL;
    if (msp_probe.rules.inputs)
        c->form->put_inputs(c, c->record);
    c->keep = NULL;
    c->poisoned = msp_probe_saw_overflow(c->ticket);
}

void
msp_call_begin(probe_call *c)
{
    const bool module = c->form->is_module;

    if (!module && (c->api->flags & PROBE_DISTRIBUTED) && msp_probe.group != NULL)
        find_group(c);
    msp_probe_scope_enter(c->text, c->len);
    if (msp_probe.rules.backward || msp_probe.rules.construct)
        c->edges = msp_probe_edges_before(c->self, c->args, c->kwargs, module);
    if (module)
        msp_probe_module_open(c->text, c->len, c->edges);
    c->selected = msp_probe_selects(c->text, c->len);
    if (c->selected)
        begin_record(c);
    if (module && msp_probe.rules.scope_begin != NULL)
        msp_call_hold(c); /* the range may begin inside it */
}

/* ---- after ------------------------------------------------------------------------------------------------------- */

/* Returns whether the outputs hold inf or NaN. */
static bool
put_outputs(const probe_call *c, msp_record *r, PyObject *result)
{
    const uint64_t since = msp_probe_watch_overflow();
    bool overflowed;

    if (msp_probe.rules.outputs)
        c->form->put_outputs(c, r, result);
    overflowed = msp_probe_saw_overflow(since);
    if (c->form->put_more != NULL)
        c->form->put_more(c, r);
    return overflowed;
}

/* The elements of a call, into files: what was kept of the inputs, and a second walk over the outputs. */
static void
save_elements(probe_call *c, PyObject *result)
{
    msp_record *scratch = msp_probe_record_get();

    msp_probe_keep_save(&c->kept);
    if (scratch == NULL)
        return;
    msp_record_begin(scratch, msp_probe.unit, c->text, c->len);
    c->saving = true;
    put_outputs(c, scratch, result);
    c->saving = false;
    msp_probe_record_put(scratch);
}

/* The original writes the first of these fields behind a function's inputs, and last for a module and in task
 * overflow_check; it has no other. */
static void
put_what_it_is(const probe_call *c, bool last)
{
    if (last != (c->form->is_module || msp_probe.rules.overflow))
        return;
    KEY(c->record, "is_recompute");
    msp_record_bool(c->record, c->site.recompute);
    if (c->group == NULL)
        return;
    KEY(c->record, "distributed");
    if (msp_probe_plain(c->record, c->group, 0) != 0)
        msp_probe_swallow("writing the group of a call", c->text);
}

/* Whether the place of the call is told apart from its record, which may come late or not at all. */
static bool
has_own_site(const probe_call *c)
{
    return c->record == NULL || msp_probe.rules.overflow ||
           (!c->form->is_module && (c->api->flags & PROBE_DISTRIBUTED) != 0);
}

/*
 * Outputs, and the record is handed over; in task overflow_check only when there is something to see. Returns true when
 * the call made inf or NaN; what others made and it was given is recorded, too, but does not count.
 */
static bool
conclude_call(probe_call *c, PyObject *result, uint32_t hole)
{
    const uint64_t since = msp_probe.tickets;
    bool overflowed = put_outputs(c, c->record, result), wanted = true;

    if (msp_probe.rules.overflow) {
        overflowed = (result != NULL || c->form->is_module) && (overflowed | msp_probe_device_overflowed());
        wanted = overflowed || c->poisoned || msp_probe_saw_overflow(since);
        if (wanted)
            save_elements(c, result);
        else
            msp_probe_device_forget(c->ticket);
    }
    if (wanted) {
        put_what_it_is(c, true);
        msp_record_end(c->record);
        if (has_own_site(c))
            msp_record_fill(c->record, hole);
        else
            msp_probe_place(c->record, &c->site);
        msp_probe_commit_value(c->record);
        msp_probe.made++;
    }
    msp_probe_record_put(c->record);
    c->record = NULL;
    return msp_probe.rules.overflow && overflowed;
}

/* ---- calls that go on after they returned ------------------------------------------------------------------------ */

/*
 * A collective that is not done when it returns: what it needs to be completed when its handle was waited for. Inside
 * torch's coalescing manager it is not even made: it is put off under an object of ours, and is given the manager's
 * handles where that ends.
 */
typedef struct pending_call {
    PyObject_HEAD probe_call call;
    int left;          /* handles that nobody waited for yet */
    long long changes; /* of its tensors, when it returned */
    uint32_t hole;
} pending_call;

static void
pending_dealloc(PyObject *object)
{
    msp_call_let_go(&((pending_call *)object)->call);
    PyObject_Free(object);
}

static PyTypeObject pending_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.PendingCall",
    .tp_basicsize = sizeof(pending_call),
    .tp_dealloc = pending_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static bool
is_handle(PyObject *v)
{
    PyObject *wait = v == NULL || v == Py_None || msp_probe_is_tensor(v) ? NULL : PyObject_GetAttrString(v, "wait");

    if (PyErr_Occurred() &&
        PyErr_ExceptionMatches(PyExc_ValueError)) /* so torch refuses it for a call that is put off */
        PyErr_Clear();
    msp_probe_expect(PyExc_AttributeError, "looking for a handle");
    Py_XDECREF(wait);
    return wait != NULL;
}

/* How many handles a result holds: it is one, or a list of them. */
static Py_ssize_t
count_handles(PyObject *result)
{
    if (result == NULL || !PyList_Check(result))
        return is_handle(result);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(result); i++)
        if (!is_handle(PyList_GET_ITEM(result, i)))
            return 0;
    return PyList_GET_SIZE(result);
}

static void
keep_place(uint32_t number)
{
    msp_record *r = msp_probe_record_get();

    if (r == NULL)
        return;
    msp_record_hole(r, msp_probe.unit, number);
    msp_probe_commit(r);
    msp_probe_record_put(r);
}

/* The call waits for this handle, too. */
static void
wait_for(pending_call *p, PyObject *handle)
{
    PyObject *calls = PyDict_GetItemWithError(msp_probe.pending, handle), *more = NULL;

    p->left++;
    if (calls == NULL && !PyErr_Occurred())
        calls = more = PyList_New(0);
    if (calls == NULL || PyList_Append(calls, (PyObject *)p) != 0 ||
        (more != NULL && PyDict_SetItem(msp_probe.pending, handle, more) != 0))
        msp_probe_swallow("waiting for a handle", p->call.text);
    Py_XDECREF(more);
}

/* The calls that wait for this handle wait for it no more: a list, or NULL. */
static PyObject *
take_waiting(PyObject *handle)
{
    PyObject *calls =
        msp_probe.pending == NULL || handle == NULL ? NULL : PyDict_GetItemWithError(msp_probe.pending, handle);

    Py_XINCREF(calls);
    if (calls != NULL)
        PyDict_DelItem(msp_probe.pending, handle);
    msp_probe_expect(NULL, "looking for a handle");
    for (Py_ssize_t i = 0; calls != NULL && i < PyList_GET_SIZE(calls); i++)
        ((pending_call *)PyList_GET_ITEM(calls, i))->left--;
    return calls;
}

/* How many changes of a tensor, or of those in a list or dict, torch has counted; where it cannot tell, none. */
static long long
count_changes(PyObject *v)
{
    long long n = 0;

    if (v == NULL || v == Py_None)
        return 0;
    if (msp_probe_is_tensor(v)) {
        PyObject *name = PyUnicode_InternFromString("_version");
        PyObject *version = name == NULL ? NULL : msp_probe_tensor_attribute(v, name);

        n = version == NULL ? 0 : PyLong_AsLongLong(version);
        Py_XDECREF(version);
        Py_XDECREF(name);
        msp_probe_expect(PyExc_Exception, "counting changes of a tensor"); /* one of inference mode */
    } else if (PyDict_Check(v)) {
        PyObject *item;

        for (Py_ssize_t pos = 0; PyDict_Next(v, &pos, NULL, &item);)
            n += count_changes(item);
    } else if (PyList_Check(v) || PyTuple_Check(v)) {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); i++)
            n += count_changes(PySequence_Fast_GET_ITEM(v, i));
    }
    return n;
}

/* The call goes on as one that is pending; NULL: it cannot. */
static pending_call *
take_over(probe_call *c)
{
    pending_call *p = NULL;

    if (msp_probe.pending == NULL)
        msp_probe.pending = PyDict_New();
    if (msp_probe.pending != NULL && PyType_Ready(&pending_type) == 0)
        p = PyObject_New(pending_call, &pending_type);
    if (p == NULL) {
        msp_probe_swallow("waiting for a handle", c->text);
        return NULL;
    }
    msp_call_hold(c);
    p->call = *c;
    p->call.edges = NULL; /* they are followed when the call has returned */
    p->left = 0;
    p->changes = count_changes(c->held_args) + count_changes(c->held_kwargs);
    p->hole = msp_probe.rules.overflow ? 0 : ++msp_probe.holes; /* overflow_check may not want the record at all */
    c->record = NULL;
    c->kept = NULL;
    c->held_self = c->held_args = c->held_kwargs = c->group = c->put_off = NULL;
    if (p->hole != 0)
        keep_place(p->hole);
    return p;
}

/* Take the call over until its handles were waited for, or it is made at last; false: it is completed now. */
static bool
postpone_call(probe_call *c, PyObject *result)
{
    Py_ssize_t n = c->form->is_module || !(c->api->flags & PROBE_DISTRIBUTED) ? 0 : count_handles(result);
    PyObject *put_off = n == 0 && result != NULL ? c->put_off : NULL;
    pending_call *p;

    if ((n == 0 && put_off == NULL) || !msp_probe.rules.outputs || (p = take_over(c)) == NULL)
        return false;
    if (put_off != NULL)
        wait_for(p, put_off);
    for (Py_ssize_t i = 0; i < n; i++)
        wait_for(p, PyList_Check(result) ? PyList_GET_ITEM(result, i) : result);
    Py_DECREF(p);
    return true;
}

/* Returns true when the program is to be stopped, with an exception set. */
static bool
complete_call(pending_call *p, bool waited)
{
    probe_call *c = &p->call;
    bool stop;
    probe_quiet q;

    if (c->record == NULL || c->generation != msp_probe.generation || !msp_probe.has_unit)
        return false;
    msp_probe_enter(&q);
    if (!waited) {
        KEY(c->record, "note");
        msp_record_text(c->record, "nobody waited for its handle in this step", 41);
    }
    stop = conclude_call(c, waited ? Py_None : NULL, p->hole) && msp_probe_overflow(c->text, c->site.stack);
    msp_probe_leave(&q);
    return stop;
}

bool
msp_call_waited_for(PyObject *handle)
{
    PyObject *calls = take_waiting(handle);
    bool stop = false;

    for (Py_ssize_t i = 0; calls != NULL && !stop && i < PyList_GET_SIZE(calls); i++) {
        pending_call *p = (pending_call *)PyList_GET_ITEM(calls, i);

        stop = p->left == 0 && complete_call(p, true);
    }
    Py_XDECREF(calls);
    return stop;
}

PyObject *
msp_call_made(PyObject *self, PyObject *args)
{
    PyObject *put_off, *handles, *calls;
    bool stop = false;

    (void)self;
    if (!PyArg_ParseTuple(args, "OO!", &put_off, &PyList_Type, &handles))
        return NULL;
    calls = take_waiting(put_off);
    for (Py_ssize_t i = 0; calls != NULL && !stop && i < PyList_GET_SIZE(calls); i++) {
        pending_call *p = (pending_call *)PyList_GET_ITEM(calls, i);

        for (Py_ssize_t k = 0; k < PyList_GET_SIZE(handles); k++)
            wait_for(p, PyList_GET_ITEM(handles, k));
        stop = p->left == 0 && complete_call(p, true);
    }
    Py_XDECREF(calls);
    if (stop)
        return NULL;
    Py_RETURN_NONE;
}

static bool
is_complete(PyObject *handle)
{
    PyObject *said = PyObject_CallMethod(handle, "is_completed", NULL);
    bool yes = said == Py_True;

    Py_XDECREF(said);
    msp_probe_expect(PyExc_Exception, "asking whether a collective is over"); /* some back ends cannot tell */
    return yes;
}

/* Is the call over, and what it has left as it was then? Who has its future may have gone on with it. */
static bool
has_its_result(const pending_call *p, bool done)
{
    return done && count_changes(p->call.held_args) + count_changes(p->call.held_kwargs) == p->changes;
}

void
msp_probe_pending_flush(void)
{
    PyObject *left = msp_probe.pending, *handle, *calls;
    Py_ssize_t pos = 0;

    msp_probe.pending = NULL;
    while (left != NULL && PyDict_Next(left, &pos, &handle, &calls)) {
        const bool done = is_complete(handle);

        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(calls); i++) {
            pending_call *p = (pending_call *)PyList_GET_ITEM(calls, i);

            if (complete_call(p, has_its_result(p, done)))
                msp_probe_expect(PyExc_Exception, "the limit of overflows"); /* there is no call left to stop */
        }
    }
    Py_XDECREF(left);
}

/* ---- the end of the call ----------------------------------------------------------------------------------------- */

/* A range is looked at again when a module ends: one that began before it gets its inputs read now. */
static void
select_again(probe_call *c)
{
    c->selected = msp_probe_selects(c->text, c->len);
    if (c->selected && c->record == NULL && c->held_args != NULL)
        begin_record(c);
    if (!c->selected) {
        msp_probe_record_put(c->record);
        c->record = NULL;
    }
}

/* Returns true when the program is to be stopped, with an exception set. */
static bool
finish_record(probe_call *c, PyObject *result)
{
    if (c->form->is_module)
        select_again(c);
    if (has_own_site(c))
        msp_probe_note_site(c->text, c->len, &c->site, c->selected);
    if (c->record == NULL)
        return false;
    put_what_it_is(c, false);
    return !postpone_call(c, result) && conclude_call(c, result, 0) && msp_probe_overflow(c->text, c->site.stack);
}

/* Whether the list names the module's backward, or one around it: what runs in it is recorded, too (level mix). */
static bool
is_listed_backward(const char *name, size_t len)
{
    return msp_probe_inside_listed(true) ||
           (msp_probe.rules.expand && msp_probe_in_list(msp_probe.rules.list, name, len));
}

/* Where a call's nodes are found: its result, or, when it returns nothing, as `t[i] = v` does, the tensor it wrote to.
 */
static PyObject *
differentiable_of(const probe_call *c, PyObject *result)
{
    PyObject *written = c->self;

    if (result != Py_None || c->form->is_module)
        return result;
    if (written == NULL && c->args != NULL && PyTuple_Check(c->args) && PyTuple_GET_SIZE(c->args) > 0)
        written = PyTuple_GET_ITEM(c->args, 0);
    return written != NULL && msp_probe_is_tensor(written) ? written : result;
}

static void
follow_gradients(probe_call *c, PyObject *result)
{
    char backward[PROBE_NAME_SIZE];
    const grad_owner owner = {backward, write_name(backward, c, true), &c->site, c->form->is_module};
    probe_edges *edges = c->edges;

    c->edges = NULL;
    if (owner.is_module && msp_probe.rules.list != NULL && is_listed_backward(backward, owner.len))
        msp_probe_module_chosen(backward, owner.len);
    msp_probe_edges_after(edges, differentiable_of(c, result), &owner);
}

bool
msp_call_end(probe_call *c, PyObject *result)
{
    bool stop = false;

    if (c->generation == msp_probe.generation && msp_probe.live)
        stop = finish_record(c, result);
    msp_probe_scope_leave(c->text, c->len);
    if (!stop && result != NULL && c->edges != NULL)
        follow_gradients(c, result);
    else if (c->form->is_module)
        msp_probe_edges_none();
    msp_call_let_go(c);
    return stop;
}
