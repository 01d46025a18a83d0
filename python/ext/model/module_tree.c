/*
 * module_tree.c - the modules of a model and their parameters, by address.
 *
 * start() is called for every step, and a model has hundreds of modules: Python names them once, and as long as the
 * tree is the same one, which is looked at in C (same_tree.c), nothing is done again. Between stop() and start() the
 * addresses stay and no reference does: the model may go, and then its tree is another one.
 */
#include "model/model.h"
#include "recording/address_map.h"
#include <string.h>

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* In the order of the model; never freed: one that comes back counts on. */
static named_module *names, **names_end = &names;
static PyObject *names_by_text;

/* The name with this text, made when it is new; NULL with an exception set. */
static named_module *
find_name(PyObject *text)
{
    PyObject *known, *address;
    named_module *n;
    Py_ssize_t len;
    const char *p = PyUnicode_AsUTF8AndSize(text, &len);

    if (names_by_text == NULL)
        names_by_text = PyDict_New();
    if (p == NULL || names_by_text == NULL)
        return NULL;
    known = PyDict_GetItemWithError(names_by_text, text);
    if (known != NULL)
        return PyLong_AsVoidPtr(known);
    if (PyErr_Occurred())
        return NULL;
    n = PyMem_Calloc(1, sizeof(*n) + (size_t)len + 1);
    address = n == NULL ? NULL : PyLong_FromVoidPtr(n);
    if (address == NULL || PyDict_SetItem(names_by_text, text, address) != 0) {
        Py_XDECREF(address);
        PyMem_Free(n);
        return (named_module *)PyErr_NoMemory();
    }
    Py_DECREF(address);
    n->shown.text = memcpy(n + 1, p, (size_t)len + 1);
    n->shown.len = (size_t)len;
    *names_end = n;
    names_end = &n->next;
    return n;
}

void
msp_probe_module_chosen(const char *name, size_t len)
{
    static const char section[] = ".backward.";
    const size_t n = sizeof(section) - 1;

    for (named_module *m = names; m != NULL; m = m->next)
        if (len > m->shown.len + n && memcmp(name, m->shown.text, m->shown.len) == 0 &&
            memcmp(name + m->shown.len, section, n) == 0)
            m->shown.chosen = msp_probe.generation + 1;
}

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

static struct {
    address_map modules;    /* -> named_module */
    address_map parameters; /* -> watched_parameter */
    held watched;           /* those of both, in the order of the model */
    address_map met;        /* parameters of an earlier tree of this step whose nodes still tell of their gradients */
    bool has_lists;         /* one of them has a list of hooks */
    bool hooked;            /* hooks that Python has set record one of the modules */
    address_map nodes;      /* those in the lists of hooks, which keep them */
    held alive;             /* both while we record: no address is used again */
    bool recording;         /* between modules_begin() and modules_end() */
    PyObject *retired;      /* a list of watched ones of an earlier tree, whose hooks are still there */
} tree;

probe_module *
msp_probe_module_find(PyObject *module)
{
    return !tree.recording ? NULL : map_get(&tree.modules, module);
}

PyObject *
msp_probe_watched(PyObject *variable)
{
    return !tree.recording ? NULL : map_get(&tree.parameters, variable);
}

bool
msp_probe_watches(void)
{
    return tree.recording && tree.parameters.used > 0;
}

PyObject *
msp_probe_watched_hooks(PyObject *w)
{
    watched_parameter *of = (watched_parameter *)w;

    if (of->hooks == NULL)
        of->hooks = PyList_New(0);
    tree.has_lists = true;
    return of->hooks;
}

bool
msp_probe_is_hooked(PyObject *node)
{
    return map_get(&tree.nodes, node) != NULL;
}

void
msp_probe_note_hooked(PyObject *node)
{
    map_put(&tree.nodes, node, node); /* without memory it is only asked for once more */
}

/* A tree of this step is replaced by another one: nodes that were met still tell of this one's parameters. */
static void
retire_parameter(watched_parameter *w)
{
    if (tree.retired == NULL)
        tree.retired = PyList_New(0);
    if (tree.retired == NULL || PyList_Append(tree.retired, (PyObject *)w) != 0) {
        msp_probe_expect(NULL, "keeping hooks of an earlier model");
        return;
    }
    if (msp_watch_is_met(w))
        map_put(&tree.met, w->parameter, w->parameter); /* without memory its gradient may be there twice */
}

static void
forget_tree(void)
{
    for (size_t i = 0; i < tree.watched.n; i++)
        retire_parameter((watched_parameter *)tree.watched.items[i]);
    let_go(&tree.watched);
    for (named_module *n = names; n != NULL; n = n->next)
        n->expected = 0;
    map_release(&tree.parameters);
    map_release(&tree.modules);
}

/*
 * modules_begin(models, how) -> bool: whether the models, a list of modules, and how they are recorded, any number, are
 * as they were the last time, so that everything about them is known. Otherwise module_add() and parameter_add()
 * follow.
 */
PyObject *
msp_probe_modules_begin(PyObject *self, PyObject *all)
{
    PyObject *models;
    probe_quiet q;
    long how;
    bool same;

    (void)self;
    if (!PyArg_ParseTuple(all, "O!l", &PyList_Type, &models, &how))
        return NULL;
    msp_probe_enter(&q); /* what is asked of parameters is not for the program's own modes */
    same = msp_probe_shape_is_same(models, how, &tree.alive);
    msp_probe_leave(&q);
    tree.recording = true;
    if (!same)
        forget_tree();
    return PyBool_FromLong(same);
}

/* modules_end(): recording is over; nothing of the model is held any more. modules_forget(): not even what it was. */
PyObject *
msp_probe_modules_end(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    for (size_t i = 0; tree.hooked && i < tree.modules.slots; i++)
        if (tree.modules.values[i] != NULL)
            ((probe_module *)tree.modules.values[i])->hooked = false;
    tree.recording = tree.hooked = false;
    let_go(&tree.alive);
    Py_RETURN_NONE;
}

PyObject *
msp_probe_modules_forget(PyObject *self, PyObject *unused)
{
    msp_probe_modules_end(self, unused);
    Py_DECREF(Py_None);
    forget_tree();
    msp_probe_shape_forget();
    Py_RETURN_NONE;
}

void
msp_probe_module_hooked(probe_module *of, bool hooked)
{
    of->hooked = hooked;
    tree.hooked |= hooked;
}

/* module_add(module, name, hooked, only_compiled=False): record its calls under this name; hooked: Python's hooks on it
 * do; only_compiled: those of its calls that torch.compile has compiled */
PyObject *
msp_probe_module_add(PyObject *self, PyObject *all)
{
    PyObject *module, *text;
    named_module *n;
    int hooked, only_compiled = 0;

    (void)self;
    if (!PyArg_ParseTuple(all, "OUp|p", &module, &text, &hooked, &only_compiled))
        return NULL;
    n = find_name(text);
    if (n == NULL)
        return NULL;
    tree.recording = true;
    if (!hold(&tree.alive, module) || !map_put(&tree.modules, module, n))
        return PyErr_NoMemory();
    n->shown.only_compiled = only_compiled;
    msp_probe_module_hooked(&n->shown, hooked);
    Py_RETURN_NONE;
}

/* module_remove(module): its calls are recorded no more */
PyObject *
msp_probe_module_remove(PyObject *self, PyObject *module)
{
    (void)self;
    if (map_get(&tree.modules, module) != NULL)
        tree.modules.values[slot_of(&tree.modules, module)] = NULL;
    Py_RETURN_NONE;
}

/* module_known(module) -> bool: whether its calls are recorded, wherever they are made */
PyObject *
msp_probe_module_known(PyObject *self, PyObject *module)
{
    const probe_module *of;

    (void)self;
    of = msp_probe_module_find(module);
    return PyBool_FromLong(of != NULL && !of->only_compiled);
}

/* The one that stands for the parameter, made when it is new; NULL without memory. */
static watched_parameter *
watch_parameter(PyObject *parameter)
{
    watched_parameter *w = map_get(&tree.parameters, parameter);
    bool added;

    if (w != NULL)
        return w;
    w = msp_watch_new(parameter);
    added = w != NULL && hold(&tree.watched, (PyObject *)w) && map_put(&tree.parameters, parameter, w);
    Py_XDECREF(w);
    return added ? w : NULL;
}

/* parameter_add(parameter, module's name, own name): record its gradient with those of the module's others */
PyObject *
msp_probe_parameter_add(PyObject *self, PyObject *all)
{
    PyObject *parameter, *text;
    const char *own;
    named_module *n;
    watched_parameter *w;

    (void)self;
    if (!PyArg_ParseTuple(all, "OUs", &parameter, &text, &own))
        return NULL;
    n = find_name(text);
    w = n == NULL ? NULL : watch_parameter(parameter);
    if (w == NULL || !msp_watch_add(w, n, own))
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* parameter_done(parameter, gradient): its gradient is there, and no node of a graph could tell; without the gradient
 * it is what the parameter has */
PyObject *
msp_probe_py_parameter_done(PyObject *self, PyObject *all)
{
    PyObject *parameter, *gradient = NULL;
    probe_quiet q;
    watched_parameter *w;
    bool stop;

    (void)self;
    if (!PyArg_ParseTuple(all, "O|O", &parameter, &gradient))
        return NULL;
    w = map_get(&tree.parameters, parameter);
    if (w == NULL || !msp_probe.live || msp_watch_is_met(w) || map_get(&tree.met, parameter) != NULL)
        Py_RETURN_NONE;
    Py_INCREF(w);
    msp_probe_enter(&q);
    stop = msp_probe_parameter_done((PyObject *)w, parameter, gradient == NULL ? NULL : &gradient);
    msp_probe_leave(&q);
    Py_DECREF(w);
    if (stop)
        return NULL;
    Py_RETURN_NONE;
}

/* modules_called() -> names that were called in this step */
PyObject *
msp_probe_modules_called(PyObject *self, PyObject *unused)
{
    PyObject *list = PyList_New(0), *text;

    (void)self;
    (void)unused;
    for (named_module *n = names; list != NULL && n != NULL; n = n->next) {
        if (n->shown.count == 0)
            continue;
        text = PyUnicode_FromFormat("%s.forward.0", n->shown.text);
        if (text == NULL || PyList_Append(list, text) != 0)
            Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

static bool
any_lacks(void)
{
    const named_module *n = names;

    while (n != NULL && !msp_watch_lacks(n))
        n = n->next;
    return n != NULL;
}

static void
complete_parts(void)
{
    msp_record *null = any_lacks() ? msp_probe_record_get() : NULL;

    if (null == NULL)
        return;
    msp_record_null(null);
    for (size_t i = 0; i < tree.watched.n; i++)
        msp_watch_add_missing((watched_parameter *)tree.watched.items[i], null);
    msp_probe_record_put(null);
}

/*
 * modules_step(): what waits is written, hooks on parameters go, numbers begin anew. A module some of whose parameters
 * had no gradient is written only here: when it overflowed, and that stops the program, the exception comes at the end.
 */
PyObject *
msp_probe_modules_step(PyObject *self, PyObject *unused)
{
    PyObject *retired = tree.retired, *type = NULL, *value = NULL, *trace = NULL;
    probe_quiet q;

    (void)self;
    (void)unused;
    msp_probe_enter(&q);
    complete_parts();
    for (named_module *n = names; n != NULL; n = n->next) {
        if (n->nparts > 0 && msp_watch_write(n)) {
            if (type == NULL)
                PyErr_Fetch(&type, &value, &trace);
            else
                msp_probe_expect(PyExc_Exception, "the limit of overflows"); /* one is enough to stop the program */
        }
        n->written = n->shown.count = 0;
    }
    msp_probe_leave(&q);
    for (size_t i = 0; tree.has_lists && i < tree.watched.n; i++)
        msp_watch_unhook((watched_parameter *)tree.watched.items[i]);
    tree.has_lists = false;
    map_release(&tree.nodes);
    map_clear(&tree.met);
    tree.retired = NULL;
    for (Py_ssize_t i = 0; retired != NULL && i < PyList_GET_SIZE(retired); i++)
        msp_watch_unhook((watched_parameter *)PyList_GET_ITEM(retired, i));
    Py_XDECREF(retired);
    if (type != NULL) {
        PyErr_Restore(type, value, trace);
        return NULL;
    }
    Py_RETURN_NONE;
}
