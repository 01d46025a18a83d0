/*
 * device.c - tensors on another device: reduced there, fetched in batches.
 *
 * Python (pytorch/device.py) has the device compute a tensor's statistics and gives a ticket for them. The record is
 * built with the ticket in the statistics' place and committed at once, so that it is not lost with this process; the
 * writer keeps it back, and all that is behind it. One copy brings the results of some hundred tensors; they are put
 * into the records where these stand. What waits is bounded: by number, by bytes and by time.
 */
#include "call/call.h"
#include "tensor/tensor.h"
#include <math.h>
#include <string.h>
#include <time.h>

enum { MOST_TICKETS = 256, LARGE_RECORD = 1 << 20 };
static const double most_seconds = 0.5; /* so that who reads the files meanwhile sees numbers */

static struct {
    double since;      /* when the oldest of the tickets that were not fetched came */
    PyObject *results; /* dict: ticket -> (Max, Min, Mean, Norm), or None: they are lost */
    uint64_t fetched;  /* the last ticket that was given out before the last fetch */
    bool used;         /* a ticket was given out in this collection */
    bool fetching;
} queue;

static double
now_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static double
double_of(PyObject *v)
{
    double d = v == Py_None ? NAN : PyFloat_AsDouble(v);

    msp_probe_expect(NULL, "reading statistics");
    return d;
}

static int64_t
int_of(PyObject *v)
{
    return PyLong_Check(v) ? (int64_t)PyLong_AsUnsignedLongLongMask(v) : 0;
}

static PyObject *
result_of(uint64_t ticket)
{
    PyObject *key = PyLong_FromUnsignedLongLong(ticket);
    PyObject *found = key == NULL || queue.results == NULL ? NULL : PyDict_GetItemWithError(queue.results, key);

    Py_XDECREF(key);
    msp_probe_expect(NULL, "looking for statistics");
    return found;
}

static void
forget_ticket(uint64_t ticket)
{
    PyObject *key = PyLong_FromUnsignedLongLong(ticket);

    if (key == NULL || queue.results == NULL || PyDict_DelItem(queue.results, key) != 0)
        msp_probe_expect(PyExc_KeyError, "forgetting statistics");
    Py_XDECREF(key);
}

static msp_settled
find_result(msp_stats *out, uint64_t ticket, void *payload)
{
    PyObject *said = result_of(ticket);
    bool whole = said != NULL && PyTuple_Check(said) && PyTuple_GET_SIZE(said) == 4;

    (void)payload;
    if (said == NULL)
        return MSP_SETTLED_LATER;
    memset(out, 0, sizeof(*out));
    if (whole) {
        out->max = double_of(PyTuple_GET_ITEM(said, 0));
        out->min = double_of(PyTuple_GET_ITEM(said, 1));
        out->mean = double_of(PyTuple_GET_ITEM(said, 2));
        out->norm = double_of(PyTuple_GET_ITEM(said, 3));
        out->max_int = int_of(PyTuple_GET_ITEM(said, 0));
        out->min_int = int_of(PyTuple_GET_ITEM(said, 1));
    }
    forget_ticket(ticket);
    return whole ? MSP_SETTLED_NOW : MSP_SETTLED_NEVER;
}

/* At the end of a step, or where nothing more can wait: what is not here will never be. */
static msp_settled
find_or_lose_result(msp_stats *out, uint64_t ticket, void *payload)
{
    msp_settled how = find_result(out, ticket, payload);

    return how == MSP_SETTLED_LATER ? MSP_SETTLED_NEVER : how;
}

/* device.py: fetch() -> {ticket: (Max, Min, Mean, Norm) or None}: everything that was asked for until now */
static void
fetch_results(void)
{
    PyObject *said;

    if (msp_probe.fetch == NULL || queue.fetching)
        return;
    queue.fetching = true;
    queue.fetched = msp_probe.tickets;
    queue.since = now_seconds();
    said = msp_probe_ask_again(msp_probe.fetch, NULL, NULL);
    queue.fetching = false;
    if (queue.results == NULL)
        queue.results = PyDict_New();
    if (said == NULL || queue.results == NULL || PyDict_Update(queue.results, said) != 0)
        msp_probe_swallow("fetching statistics from the device", "");
    Py_XDECREF(said);
}

static void
settle_records(msp_settle_find *how)
{
    if (msp_probe.collect != NULL)
        msp_collect_settle(msp_probe.collect, how, NULL);
}

void
msp_probe_device_flush(void)
{
    probe_quiet q;

    if (!queue.used)
        return;
    msp_probe_enter(&q);
    fetch_results();
    settle_records(find_result);
    msp_probe_leave(&q);
}

void
msp_probe_device_end(void)
{
    msp_probe_device_flush();
    settle_records(find_or_lose_result);
    Py_CLEAR(queue.results);
}

void
msp_probe_device_settle(msp_record *r)
{
    if (!queue.used || msp_record_settle(r, find_result, NULL))
        return;
    if (r->len > LARGE_RECORD) { /* larger ones do not go through the ring, and cannot be completed later */
        msp_probe_device_flush();
        (void)msp_record_settle(r, find_result, NULL);
    }
}

static bool
is_held_up(void)
{
    return msp_probe.collect != NULL && msp_collect_is_held_up(msp_probe.collect);
}

void
msp_probe_device_look(void)
{
    bool old = queue.fetched != msp_probe.tickets && now_seconds() - queue.since > most_seconds;

    if (!queue.used || (!old && !is_held_up()))
        return;
    msp_probe_device_flush();
    if (!queue.fetching && is_held_up()) /* it would fill the ring, and we would wait for ourselves */
        settle_records(find_or_lose_result);
}

void
msp_probe_device_reset(void)
{
    queue.used = false;
    Py_CLEAR(queue.results);
}

/* ---- overflow_check ---------------------------------------------------------------------------------------------- */

static bool
is_bad(PyObject *v)
{
    return PyFloat_Check(v) && !isfinite(PyFloat_AS_DOUBLE(v));
}

bool
msp_probe_device_saw_overflow(uint64_t since)
{
    bool yes = false;

    if (!queue.used || since == msp_probe.tickets)
        return false;
    fetch_results();
    for (uint64_t t = since + 1; t <= msp_probe.tickets; t++) {
        PyObject *said = result_of(t);

        if (said != NULL && PyTuple_Check(said))
            yes |= is_bad(PyTuple_GET_ITEM(said, 0)) || is_bad(PyTuple_GET_ITEM(said, 1));
    }
    return yes;
}

void
msp_probe_device_forget(uint64_t since)
{
    for (uint64_t t = since + 1; queue.used && t <= msp_probe.tickets; t++)
        forget_ticket(t);
}

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

/* said: ("waiting", ticket, a copy or None, type, further fields, shape, dtype), what describe() tells of v */
int
msp_probe_device_put(msp_record *r, PyObject *v, PyObject *said, probe_path *path)
{
    PyObject *ticket = PyTuple_GET_ITEM(said, 1), *copy = PyTuple_GET_ITEM(said, 2), *type = PyTuple_GET_ITEM(said, 3);
    PyObject *extra = PyTuple_GET_ITEM(said, 4), *shape = PyTuple_GET_ITEM(said, 5);
    msp_tensor_note note = {.ticket = PyLong_AsUnsignedLongLong(ticket)};
    msp_tensor view;

    if (PyErr_Occurred())
        return -1;
    if (msp_probe_tensor_shape(&view, shape, PyTuple_GET_ITEM(said, 6)) != 0)
        return -1;
    if (note.ticket != 0) {
        if (msp_probe.tickets == queue.fetched)
            queue.since = now_seconds();
        msp_probe.tickets = note.ticket;
        queue.used = true;
    }
    note.shape_of = &view;
    note.type = PyUnicode_Check(type) ? PyUnicode_AsUTF8(type) : NULL;
    if (msp_probe.tickets - queue.fetched >= MOST_TICKETS)
        msp_probe_device_flush();
    return msp_probe_tensor_note(r, v, path, &note, copy == Py_None ? NULL : copy, extra == Py_None ? NULL : extra);
}
