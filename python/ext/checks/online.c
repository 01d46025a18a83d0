/*
 * online.c - online run_ut for Python: the training process's side, of which there is one, and the checker's server.
 *
 * Whatever may take time runs without the GIL.
 */
#include "checks/checks.h"
#include "types/types.h"
#include "msprobe/online.h"

/* ---- the training process ---------------------------------------------------------------------------------------- */

static msp_online *online; /* NULL: it is off */

bool
msp_py_online_room(const msp_tensor *t)
{
    const uint64_t n = (uint64_t)t->numel * msp_dtype_size(t->dtype);
    msp_online *o = online;
    bool good;

    if (o == NULL)
        return true;
    if (msp_online_has_room(o, n))
        return msp_online_room(o, n);
    Py_BEGIN_ALLOW_THREADS;
    good = msp_online_room(o, n);
    Py_END_ALLOW_THREADS;
    return good;
}

static PyObject *
counts_dict(const msp_online_counts *c)
{
    static const char *const states[] = {"connecting", "connected", "refused", "done"};

    return Py_BuildValue("{s:s,s:N,s:K,s:K,s:K,s:(KKKK),s:K,s:K,s:K,s:K,s:K,s:K,s:L,s:N}", "state", states[c->state],
                         "lives", PyBool_FromLong(c->lives), "found", (unsigned long long)c->found, "answered",
                         (unsigned long long)c->answered, "not_sent", (unsigned long long)c->not_sent, "status",
                         (unsigned long long)c->status[MSP_PRECHECK_SKIP],
                         (unsigned long long)c->status[MSP_PRECHECK_PASS],
                         (unsigned long long)c->status[MSP_PRECHECK_WARNING],
                         (unsigned long long)c->status[MSP_PRECHECK_ERROR], "left_out", (unsigned long long)c->left_out,
                         "waited_ms", (unsigned long long)c->waited_ms, "longest_ms", (unsigned long long)c->longest_ms,
                         "waiting_bytes", (unsigned long long)c->waiting_bytes, "connections",
                         (unsigned long long)c->connections, "starts", (unsigned long long)c->starts, "sender",
                         (long long)c->sender, "trouble",
                         PyUnicode_DecodeUTF8(c->trouble, (Py_ssize_t)strlen(c->trouble), "replace"));
}

/* Paths and host are None or text; the empty text is None too. */
static const char *
text_or_null(const char *text)
{
    return text == NULL || text[0] == '\0' ? NULL : text;
}

PyObject *
msp_py_online_open(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dir", "program", "rank",    "folder",    "host",         "port",
                            "tls", "limit",   "wait_ms", "linger_ms", "forward_only", NULL};
    msp_online_options opt = {0};
    const char *folder, *host, *tls;
    unsigned long long rank, limit;
    int forward_only;
    msp_error err;
    msp_status st;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ssKzzizKiip:online_open", names, &opt.dir, &opt.program, &rank,
                                     &folder, &host, &opt.address.port, &tls, &limit, &opt.wait_ms, &opt.linger_ms,
                                     &forward_only))
        return NULL;
    if (online != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "online run_ut has begun already");
        return NULL;
    }
    opt.address.folder = text_or_null(folder);
    opt.address.host = text_or_null(host);
    opt.address.tls = text_or_null(tls);
    opt.rank = rank;
    opt.limit = limit;
    opt.forward_only = forward_only != 0;
    Py_BEGIN_ALLOW_THREADS;
    st = msp_online_open(&online, &opt, &err);
    Py_END_ALLOW_THREADS;
    if (st != MSP_OK)
        return msp_py_raise(msp_py_state_of(module), st, &err);
    Py_RETURN_NONE;
}

PyObject *
msp_py_online_begin(PyObject *module, PyObject *args)
{
    unsigned long long step;
    const char *dir;
    msp_error err;
    msp_status st;

    if (!PyArg_ParseTuple(args, "sK:online_begin", &dir, &step))
        return NULL;
    if (online == NULL)
        Py_RETURN_NONE;
    Py_BEGIN_ALLOW_THREADS;
    msp_online_revive(online);
    st = msp_online_step_begin(online, dir, step, &err);
    Py_END_ALLOW_THREADS;
    if (st != MSP_OK)
        return msp_py_raise(msp_py_state_of(module), st, &err);
    Py_RETURN_NONE;
}

PyObject *
msp_py_online_end(PyObject *module, PyObject *unused)
{
    msp_error err;

    (void)unused;
    if (online != NULL && msp_online_step_end(online, &err) != MSP_OK)
        return msp_py_raise(msp_py_state_of(module), err.status, &err);
    Py_RETURN_NONE;
}

PyObject *
msp_py_online_counts(PyObject *module, PyObject *unused)
{
    msp_online_counts c;

    (void)module;
    (void)unused;
    if (online == NULL)
        Py_RETURN_NONE;
    msp_online_count(online, &c);
    return counts_dict(&c);
}

PyObject *
msp_py_online_close(PyObject *module, PyObject *unused)
{
    msp_online *o = online;
    msp_online_counts c = {0};

    (void)module;
    (void)unused;
    if (o == NULL)
        Py_RETURN_NONE;
    online = NULL;
    Py_BEGIN_ALLOW_THREADS;
    msp_online_close(o, &c);
    Py_END_ALLOW_THREADS;
    return counts_dict(&c);
}

/* ---- the checker ------------------------------------------------------------------------------------------------- */

#define CAPSULE "msprobe._core.online_server"

enum { RANKS_MOST = 4096 };

static void
drop_server(PyObject *capsule)
{
    msp_online_server_close(PyCapsule_GetPointer(capsule, CAPSULE));
}

/* How many ranks there are in a sequence of numbers; -1 with an exception. */
static Py_ssize_t
read_ranks(uint64_t *out, PyObject *sequence)
{
    PyObject *fast = PySequence_Fast(sequence, "ranks is to be a list of numbers");
    Py_ssize_t n = fast == NULL ? -1 : PySequence_Fast_GET_SIZE(fast);

    if (n > RANKS_MOST) {
        PyErr_Format(PyExc_ValueError, "rank_list has %zd ranks; at most %d are allowed", n, RANKS_MOST);
        n = -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        out[i] = PyLong_AsUnsignedLongLong(PySequence_Fast_GET_ITEM(fast, i));
        if (PyErr_Occurred())
            n = -1;
    }
    Py_XDECREF(fast);
    return n;
}

PyObject *
msp_py_online_serve(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dir", "stamp", "ranks", "folder", "host", "port", "tls", "limit", "idle_ms", NULL};
    uint64_t ranks[RANKS_MOST];
    msp_online_serving opt = {.ranks = ranks};
    const char *folder, *host, *tls;
    unsigned long long limit;
    msp_online_server *server = NULL;
    PyObject *list;
    Py_ssize_t n;
    msp_error err;
    msp_status st;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ssOzzizKi:online_serve", names, &opt.dir, &opt.stamp, &list,
                                     &folder, &host, &opt.address.port, &tls, &limit, &opt.idle_ms))
        return NULL;
    n = read_ranks(ranks, list);
    if (n < 0)
        return NULL;
    opt.nranks = (size_t)n;
    opt.address.folder = text_or_null(folder);
    opt.address.host = text_or_null(host);
    opt.address.tls = text_or_null(tls);
    opt.limit = limit;
    Py_BEGIN_ALLOW_THREADS;
    st = msp_online_serve(&server, &opt, &err);
    Py_END_ALLOW_THREADS;
    if (st != MSP_OK)
        return msp_py_raise(msp_py_state_of(module), st, &err);
    return PyCapsule_New(server, CAPSULE, drop_server);
}

/* online_next(server, ms) -> (id, name, path), None: nothing came, False: it is over */
PyObject *
msp_py_online_next(PyObject *module, PyObject *args)
{
    msp_online_server *server;
    msp_online_work work;
    PyObject *capsule;
    msp_error err;
    msp_status st;
    int ms;

    if (!PyArg_ParseTuple(args, "Oi:online_next", &capsule, &ms))
        return NULL;
    server = PyCapsule_GetPointer(capsule, CAPSULE);
    if (server == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    st = msp_online_next(server, &work, ms, &err);
    Py_END_ALLOW_THREADS;
    if (st == MSP_E_NOT_FOUND)
        Py_RETURN_NONE;
    if (st == MSP_E_CANCELLED)
        Py_RETURN_FALSE;
    if (st != MSP_OK)
        return msp_py_raise(msp_py_state_of(module), st, &err);
    return Py_BuildValue("(KNN)", (unsigned long long)work.id,
                         PyUnicode_DecodeUTF8(work.name, (Py_ssize_t)strlen(work.name), "replace"),
                         PyUnicode_DecodeFSDefault(work.path));
}

PyObject *
msp_py_online_answer(PyObject *module, PyObject *args)
{
    const char *result, *details;
    Py_ssize_t result_len, details_len;
    unsigned long long id;
    msp_online_server *server;
    PyObject *capsule;
    msp_error err;
    msp_status st;
    int status;

    if (!PyArg_ParseTuple(args, "OKiy#y#:online_answer", &capsule, &id, &status, &result, &result_len, &details,
                          &details_len))
        return NULL;
    server = PyCapsule_GetPointer(capsule, CAPSULE);
    if (server == NULL)
        return NULL;
    if (status < MSP_PRECHECK_SKIP || status > MSP_PRECHECK_ERROR) {
        PyErr_SetString(PyExc_ValueError, "there is no such status");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    st = msp_online_answer(server, id, (msp_precheck_status)status, result, (size_t)result_len, details,
                           (size_t)details_len, &err);
    Py_END_ALLOW_THREADS;
    if (st != MSP_OK)
        return msp_py_raise(msp_py_state_of(module), st, &err);
    Py_RETURN_NONE;
}

/* Append to a list what make() gives, which is taken over. */
static int
append(PyObject *list, PyObject *item)
{
    int failed = list == NULL || item == NULL || PyList_Append(list, item) != 0;

    Py_XDECREF(item);
    return failed;
}

PyObject *
msp_py_online_served(PyObject *module, PyObject *capsule)
{
    msp_online_server *server = PyCapsule_GetPointer(capsule, CAPSULE);
    char line[512], result[4096], details[4096];
    PyObject *news, *files;
    msp_online_served c;

    (void)module;
    if (server == NULL)
        return NULL;
    news = PyList_New(0);
    files = PyList_New(0);
    while (news != NULL && msp_online_server_news(server, line))
        if (append(news, PyUnicode_DecodeUTF8(line, (Py_ssize_t)strlen(line), "replace")) != 0)
            Py_CLEAR(news);
    for (size_t i = 0; files != NULL && msp_online_server_file(server, i, result, details); i++)
        if (append(files,
                   Py_BuildValue("(NN)", PyUnicode_DecodeFSDefault(result), PyUnicode_DecodeFSDefault(details))) != 0)
            Py_CLEAR(files);
    msp_online_server_count(server, &c);
    if (news == NULL || files == NULL) {
        Py_XDECREF(news);
        Py_XDECREF(files);
        return NULL;
    }
    return Py_BuildValue("{s:i,s:K,s:K,s:K,s:K,s:K,s:K,s:N,s:N,s:N}", "port", c.port, "connections",
                         (unsigned long long)c.connections, "refused", (unsigned long long)c.refused, "calls",
                         (unsigned long long)c.calls, "answered", (unsigned long long)c.answered, "ended",
                         (unsigned long long)c.ended, "lost", (unsigned long long)c.lost, "idle",
                         PyBool_FromLong(c.idle), "news", news, "files", files);
}

PyObject *
msp_py_online_stop(PyObject *module, PyObject *capsule)
{
    msp_online_server *server = PyCapsule_GetPointer(capsule, CAPSULE);

    (void)module;
    if (server == NULL || PyCapsule_SetDestructor(capsule, NULL) != 0 || PyCapsule_SetName(capsule, "closed") != 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    msp_online_server_close(server);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

#define CALL_CAPSULE "msprobe._core.online_call"

static void
drop_call(PyObject *capsule)
{
    msp_online_call *call = PyCapsule_GetPointer(capsule, CALL_CAPSULE);

    msp_online_call_release(call);
    PyMem_Free(call);
}

static PyObject *
text_of(msp_online_text t)
{
    return PyUnicode_DecodeUTF8(t.p, (Py_ssize_t)t.len, "replace");
}

/* {name: Tensor}; each keeps the whole call alive. */
static PyObject *
tensors_of(const msp_py_state *state, const msp_online_call *call, PyObject *capsule)
{
    PyObject *dict = PyDict_New();

    for (size_t i = 0; dict != NULL && i < call->ntensors; i++) {
        msp_tensor t = call->tensors[i].view;
        PyObject *name = text_of(call->tensors[i].name), *value = msp_py_tensor_take(state->tensor_type, &t, capsule);

        if (name == NULL || value == NULL || PyDict_SetItem(dict, name, value) != 0)
            Py_CLEAR(dict);
        Py_XDECREF(name);
        Py_XDECREF(value);
    }
    return dict;
}

/* online_call(path) -> (name, step, rank, reason, forward, backward, {name: Tensor}) */
PyObject *
msp_py_online_call(PyObject *module, PyObject *path)
{
    const msp_py_state *state = msp_py_state_of(module);
    PyObject *bytes, *capsule, *out = NULL;
    msp_online_call *call;
    msp_error err;
    msp_status st;

    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    call = PyMem_Malloc(sizeof(*call));
    if (call == NULL) {
        Py_DECREF(bytes);
        return PyErr_NoMemory();
    }
    st = msp_online_call_open(call, PyBytes_AS_STRING(bytes), &err);
    Py_DECREF(bytes);
    if (st != MSP_OK) {
        PyMem_Free(call);
        return msp_py_raise(state, st, &err);
    }
    capsule = PyCapsule_New(call, CALL_CAPSULE, drop_call);
    if (capsule == NULL) {
        msp_online_call_release(call);
        PyMem_Free(call);
        return NULL;
    }
    out = Py_BuildValue("(NKKNNNN)", text_of(call->name), (unsigned long long)call->step,
                        (unsigned long long)call->rank, text_of(call->reason), text_of(call->forward),
                        text_of(call->backward), tensors_of(state, call, capsule));
    Py_DECREF(capsule);
    return out;
}
