/*
 * probe_tree.c - the modules of a model and their parameters, by address; and the gradients of parameters.
 *
 * start() is called for every step, and a model has hundreds of modules: Python names them once, and as long as the
 * tree is the same one, which is looked at in C (probe_shape.c), nothing is done again. Between stop() and start() the
 * addresses stay and no reference does: the model may go, and then its tree is another one.
 */
#include "probe.h"
#include "probe_map.h"
#include <string.h>

#define KEY(r, literal) msp_record_key((r), (literal), sizeof(literal) - 1)

/* ---- names ------------------------------------------------------------------------------------------------------- */

struct probe_module_name {
    probe_module shown; /* first */
    int64_t written;    /* records of its parameters' gradients in this step */
    int expected;       /* how many of its parameters get gradients */
    msp_record *record; /* those that have come and wait for the rest; NULL: none */
    const char **parts; /* their parameters' names */
    int nparts, parts_cap;
    bool overflowed; /* one of them holds inf or NaN */
    struct probe_module_name *next;
};

typedef struct probe_module_name module_name;

static module_name *names,
    **names_end = &names; /* in the order of the model; never freed: one that comes back counts on */
static PyObject *names_by_text;

/* The name with this text, made when it is new; NULL with an exception set. */
static module_name *
find_name(PyObject *text)
{
    PyObject *known, *address;
    module_name *n;
    Py_ssize_t len;
    const char *p = PyUnicode_AsUTF8AndSize(text, &len);

    if (names_by_text == NULL)
        names_by_text = PyDict_New();
    if (p == NULL || names_by_text == NULL)
        return NULL;
    known = PyDict_GetItem(names_by_text, text);
    if (known != NULL)
        return PyLong_AsVoidPtr(known);
    n = PyMem_Calloc(1, sizeof(*n) + (size_t)len + 1);
    address = n == NULL ? NULL : PyLong_FromVoidPtr(n);
    if (address == NULL || PyDict_SetItem(names_by_text, text, address) != 0) {
        Py_XDECREF(address);
        PyMem_Free(n);
        return (module_name *)PyErr_NoMemory();
    }
    Py_DECREF(address);
    n->shown.text = memcpy(n + 1, p, (size_t)len + 1);
    n->shown.len = (size_t)len;
    *names_end = n;
    names_end = &n->next;
    return n;
}

/* ---- gradients of parameters ------------------------------------------------------------------------------------- */

/* A parameter whose gradient is recorded: for which modules, under which name in each; tied weights have several. */
typedef struct target {
    module_name *module;
    char *own;
} target;

typedef struct watched {
    PyObject_HEAD target *targets;
    int n;
    PyObject *parameter; /* borrowed */
    PyObject *hooks;     /* [node, handle, ...] in this step */
    int64_t generation;  /* of the last step in which it had a hook that is not in this list */
} watched;

static void
watched_dealloc(PyObject *self)
{
    watched *w = (watched *)self;

    for (int i = 0; i < w->n; i++)
        PyMem_Free(w->targets[i].own);
    PyMem_Free(w->targets);
    Py_XDECREF(w->hooks);
    PyObject_Free(self);
}

static PyTypeObject watched_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe._core.Watched",
    .tp_basicsize = sizeof(watched),
    .tp_dealloc = watched_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* "Module.a.Linear.parameters_grad"; where gradients accumulate, the later ones of a step are numbered from 1. */
static size_t
record_name(char *out, size_t size, const module_name *n, bool numbered)
{
    static const char section[] = ".parameters_grad";
    size_t len = n->shown.len < size - 64 ? n->shown.len : size - 64;

    memcpy(out, n->shown.text, len);
    memcpy(out + len, section, sizeof(section));
    len += sizeof(section) - 1;
    if (numbered && n->written > 0) {
        out[len++] = '.';
        len += msp_probe_digits(out + len, (uint64_t)n->written);
        out[len] = '\0';
    }
    return len;
}

/* Write what has come. Returns true when the program is to be stopped, with an exception set. */
static bool
write_parts(module_name *n)
{
    const bool overflowed = n->overflowed;
    char name[512];

    if (n->nparts == 0)
        return false;
    if (overflowed)
        record_name(name, sizeof(name), n, true);
    if (msp_probe.has_unit && (overflowed || !msp_probe.rules.overflow)) {
        msp_record_end(n->record);
        msp_probe_commit_value(n->record);
        n->written++;
    }
    msp_probe_record_put(n->record);
    n->record = NULL;
    n->nparts = 0;
    n->overflowed = false;
    return overflowed && msp_probe_overflow(name, 0);
}

static bool
has_part(const module_name *n, const char *own)
{
    for (int i = 0; i < n->nparts; i++)
        if (strcmp(n->parts[i], own) == 0)
            return true;
    return false;
}

/* Add a gradient to the record, which is begun when it is the first. False without memory. */
static bool
add_part(module_name *n, const char *own, const msp_record *tokens)
{
    char name[512];

    if (n->nparts == n->parts_cap) {
        int cap = n->parts_cap == 0 ? 4 : n->parts_cap * 2;
        const char **parts = PyMem_Realloc(n->parts, (size_t)cap * sizeof(*parts));

        if (parts == NULL)
            return false;
        n->parts = parts;
        n->parts_cap = cap;
    }
    if (n->nparts == 0) {
        n->record = msp_probe_record_get();
        if (n->record == NULL)
            return false;
        msp_record_begin(n->record, msp_probe.unit, name, record_name(name, sizeof(name), n, true));
        msp_record_object(n->record);
    }
    n->parts[n->nparts++] = own;
    msp_record_key(n->record, own, strlen(own));
    msp_record_array(n->record);
    msp_record_append(n->record, tokens);
    msp_record_end(n->record);
    return true;
}

/* Its tokens, or NULL. They are no part of the record yet: to read a large tensor lets other threads run. */
static msp_record *
read_gradient(module_name *n, const char *own, const probe_lent *gradient)
{
    msp_record *tokens = msp_probe_record_get();
    probe_path path = {.files = true};
    uint64_t since;

    if (tokens == NULL)
        return NULL;
    path.len = record_name(path.text, 400, n, true);
    msp_probe_path_push(&path, own, strlen(own));
    tokens->len = 0;
    tokens->failed = false;
    since = msp_probe_watch_overflow();
    msp_probe_lent(tokens, gradient, &path);
    if (msp_probe_saw_overflow(since)) {
        n->overflowed = true;
        if (gradient->object != NULL)
            msp_probe_save_elements(gradient->object, &path);
    }
    return tokens;
}

/* The type of which has_no_attribute() has found that it does not know the name, and where its objects have the pointer
 * to their dict. */
static struct {
    PyTypeObject *type;
    unsigned version;
    ptrdiff_t dict;
} asked;

static bool
is_asked(PyTypeObject *type)
{
    return type == asked.type && type->tp_version_tag == asked.version &&
           PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG);
}

/* Whether nobody has set an attribute on the parameter, and its type has none of this name nor finds them in a way of
 * its own; the type is asked once for each of its versions. */
static bool
has_no_attribute(PyObject *parameter, PyObject *name)
{
    PyTypeObject *type = Py_TYPE(parameter);
    PyObject **own = _PyObject_GetDictPtr(parameter);

    if (own == NULL || *own != NULL)
        return false;
    if (is_asked(type))
        return true;
    if (type->tp_getattro != PyObject_GenericGetAttr || _PyType_Lookup(type, name) != NULL)
        return false;
    asked.type = type;
    asked.version = type->tp_version_tag;
    asked.dict = (char *)own - (char *)parameter;
    return true;
}

bool
msp_probe_parameter_is_plain(PyObject *parameter)
{
    /* not by _PyObject_GetDictPtr(), which may make the dict */
    return is_asked(Py_TYPE(parameter)) && *(PyObject **)((char *)parameter + asked.dict) == NULL;
}

/* Megatron keeps the gradient that counts beside torch's own: a new reference, or NULL. */
static PyObject *
main_grad_of(PyObject *parameter)
{
    static PyObject *name;
    PyObject *own = NULL;

    if (name == NULL)
        name = PyUnicode_InternFromString("main_grad");
    if (name == NULL || has_no_attribute(parameter, name)) {
        PyErr_Clear();
        return NULL;
    }
#if PY_VERSION_HEX >= 0x030d0000
    PyObject_GetOptionalAttr(parameter, name, &own);
#else
    _PyObject_LookupAttr(parameter, name, &own);
#endif
    if (own == NULL && PyErr_Occurred())
        PyErr_Clear();
    if (own == Py_None)
        Py_CLEAR(own);
    return own;
}

void
msp_probe_module_chosen(const char *name, size_t len)
{
    static const char section[] = ".backward.";
    const size_t n = sizeof(section) - 1;

    for (module_name *m = names; m != NULL; m = m->next)
        if (len > m->shown.len + n && memcmp(name, m->shown.text, m->shown.len) == 0 &&
            memcmp(name + m->shown.len, section, n) == 0)
            m->shown.chosen = msp_probe.generation + 1;
}

static bool
is_selected(const module_name *n)
{
    char name[512];

    if (n->shown.chosen == msp_probe.generation + 1)
        return true;
    if (msp_probe.rules.list == NULL)
        return msp_probe_in_scope();
    return msp_probe_selects(name, record_name(name, sizeof(name), n, false));
}

/* For one module. Returns true when the program is to be stopped, with an exception set. */
static bool
take_gradient(const target *t, const probe_lent *gradient)
{
    module_name *n = t->module;
    msp_record *tokens;
    bool added;

    if (!is_selected(n))
        return false;
    if (has_part(n, t->own) && write_parts(n))
        return true;
    if (gradient->tokens != NULL) {
        const msp_record known = {(unsigned char *)(uintptr_t)gradient->tokens, gradient->len, gradient->len, false};

        return add_part(n, t->own, &known) && n->nparts >= n->expected && write_parts(n);
    }
    tokens = read_gradient(n, t->own, gradient);
    added = tokens != NULL && add_part(n, t->own, tokens);
    msp_probe_record_put(tokens);
    return added && n->nparts >= n->expected && write_parts(n);
}

/* A torch without numbers of backward passes, 1.13, runs the program's hooks on a parameter inside its node: what
 * arrived there is from before them. */
static bool
is_changed_inside(PyObject *parameter)
{
    PyObject *hooks;
    bool any;

    if (msp_probe.task_id != NULL)
        return false;
    hooks = PyObject_GetAttrString(parameter, "_backward_hooks");
    any = hooks != NULL && PyDict_Check(hooks) && PyDict_Size(hooks) > 0;
    Py_XDECREF(hooks);
    PyErr_Clear();
    return any;
}

bool
msp_probe_parameter_came(PyObject *w, const probe_lent *gradient)
{
    const watched *of = (const watched *)w;
    bool stop = false;

    for (int i = 0; msp_probe_is_lent(gradient) && i < of->n && !stop; i++)
        stop = take_gradient(&of->targets[i], gradient);
    if (!stop && PyErr_Occurred())
        msp_probe_swallow("reading a parameter's gradient", of->n > 0 ? of->targets[0].module->shown.text : "");
    return stop;
}

bool
msp_probe_parameter_done(PyObject *w, PyObject *parameter, const probe_lent *arrived)
{
    probe_lent gradient = {.object = main_grad_of(parameter)};
    bool stop;

    if (gradient.object == NULL && arrived != NULL && !is_changed_inside(parameter)) {
        gradient = *arrived; /* what this pass has brought, not what it has added up to */
        Py_XINCREF(gradient.object);
    } else if (gradient.object == NULL) {
        gradient.object = PyObject_GetAttrString(parameter, "grad");
    }
    if (gradient.object == Py_None)
        Py_CLEAR(gradient.object);
    stop = msp_probe_parameter_came(w, &gradient);
    Py_XDECREF(gradient.object);
    return stop;
}

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

static struct {
    address_map modules;    /* -> module_name */
    address_map parameters; /* -> watched */
    address_map handles;    /* of the parameters -> watched */
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

PyObject *
msp_probe_watched_by_handle(const void *variable, PyObject **parameter)
{
    watched *w = !tree.recording ? NULL : map_get(&tree.handles, variable);

    if (w != NULL)
        *parameter = w->parameter;
    return (PyObject *)w;
}

void
msp_probe_watched_directly(PyObject *w)
{
    ((watched *)w)->generation = msp_probe.generation;
}

bool
msp_probe_watches(void)
{
    return tree.recording && tree.parameters.used > 0;
}

PyObject *
msp_probe_watched_hooks(PyObject *w)
{
    watched *of = (watched *)w;

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

/* Whether a node tells of its gradients in this step. */
static bool
is_met(const watched *w)
{
    return w->generation == msp_probe.generation || (w->hooks != NULL && PyList_GET_SIZE(w->hooks) > 0);
}

static void
forget(void)
{
    if (tree.retired == NULL)
        tree.retired = PyList_New(0);
    for (size_t i = 0; i < tree.watched.n; i++) {
        const watched *w = (const watched *)tree.watched.items[i];

        if (is_met(w))
            map_put(&tree.met, w->parameter, w->parameter); /* without memory its gradient may be there twice */
        if (tree.retired == NULL || PyList_Append(tree.retired, tree.watched.items[i]) != 0)
            PyErr_Clear();
    }
    let_go(&tree.watched);
    for (module_name *n = names; n != NULL; n = n->next)
        n->expected = 0;
    map_release(&tree.parameters);
    map_release(&tree.handles);
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
    long how;
    bool same;

    (void)self;
    if (!PyArg_ParseTuple(all, "O!l", &PyList_Type, &models, &how))
        return NULL;
    same = msp_probe_shape_is_same(models, how, &tree.alive);
    tree.recording = true;
    if (!same)
        forget();
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
    forget();
    msp_probe_shape_forget();
    Py_RETURN_NONE;
}

void
msp_probe_module_hooked(probe_module *of, bool hooked)
{
    of->hooked = hooked;
    tree.hooked |= hooked;
}

/* module_add(module, name, hooked): record its calls under this name; hooked: Python's hooks on it do */
PyObject *
msp_probe_module_add(PyObject *self, PyObject *all)
{
    PyObject *module, *text;
    module_name *n;
    int hooked;

    (void)self;
    if (!PyArg_ParseTuple(all, "OUp", &module, &text, &hooked))
        return NULL;
    n = find_name(text);
    if (n == NULL)
        return NULL;
    tree.recording = true;
    if (!hold(&tree.alive, module) || !map_put(&tree.modules, module, n))
        return PyErr_NoMemory();
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

/* module_known(module) -> bool: whether its calls are recorded */
PyObject *
msp_probe_module_known(PyObject *self, PyObject *module)
{
    (void)self;
    return PyBool_FromLong(msp_probe_module_find(module) != NULL);
}

static bool
add_target(watched *w, module_name *n, const char *own)
{
    target *more = PyMem_Realloc(w->targets, (size_t)(w->n + 1) * sizeof(*more));
    char *copy = PyMem_Malloc(strlen(own) + 1);

    if (more != NULL)
        w->targets = more;
    if (more == NULL || copy == NULL) {
        PyMem_Free(copy);
        return false;
    }
    strcpy(copy, own);
    w->targets[w->n++] = (target){n, copy};
    n->expected++;
    return true;
}

/* parameter_add(parameter, module's name, own name): record its gradient with those of the module's others */
PyObject *
msp_probe_parameter_add(PyObject *self, PyObject *all)
{
    PyObject *parameter, *text;
    const char *own;
    module_name *n;
    watched *w;
    bool added;

    (void)self;
    if (!PyArg_ParseTuple(all, "OUs", &parameter, &text, &own) || PyType_Ready(&watched_type) != 0)
        return NULL;
    n = find_name(text);
    w = n == NULL ? NULL : map_get(&tree.parameters, parameter);
    if (n != NULL && w == NULL) {
        w = PyObject_New(watched, &watched_type);
        if (w == NULL)
            return NULL;
        w->targets = NULL;
        w->n = 0;
        w->hooks = NULL;
        w->parameter = parameter;
        w->generation = -1;
        added =
            hold(&tree.watched, (PyObject *)w) && map_put(&tree.parameters, parameter, w) &&
            (!msp_probe_tensor_is_fast() || map_put(&tree.handles, *(void **)msp_probe_tensor_handle(parameter), w));
        Py_DECREF(w);
        if (!added)
            return PyErr_NoMemory();
    }
    if (n == NULL || !add_target(w, n, own))
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* parameter_done(parameter, gradient): its gradient is there, and no node of a graph could tell; without the gradient
 * it is what the parameter has */
PyObject *
msp_probe_py_parameter_done(PyObject *self, PyObject *all)
{
    PyObject *parameter, *gradient = NULL;
    probe_lent arrived = {0};
    probe_quiet q;
    watched *w;
    bool stop;

    (void)self;
    if (!PyArg_ParseTuple(all, "O|O", &parameter, &gradient))
        return NULL;
    w = map_get(&tree.parameters, parameter);
    if (w == NULL || !msp_probe.live || is_met(w) || map_get(&tree.met, parameter) != NULL)
        Py_RETURN_NONE;
    arrived.object = gradient;
    Py_INCREF(w);
    msp_probe_enter(&q);
    stop = msp_probe_parameter_done((PyObject *)w, parameter, gradient == NULL ? NULL : &arrived);
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
    for (module_name *n = names; list != NULL && n != NULL; n = n->next) {
        if (n->shown.count == 0)
            continue;
        text = PyUnicode_FromFormat("%s.forward.0", n->shown.text);
        if (text == NULL || PyList_Append(list, text) != 0)
            Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

static void
remove_hooks(watched *w)
{
    for (Py_ssize_t i = 1; w->hooks != NULL && i < PyList_GET_SIZE(w->hooks); i += 2)
        msp_probe_unhook(PyList_GET_ITEM(w->hooks, i));
    Py_CLEAR(w->hooks);
}

/* Whether a module that was called waits for gradients of its parameters, or has got none. */
static bool
lacks_gradients(const module_name *n)
{
    return n->nparts > 0 || (n->written == 0 && n->shown.count > 0 && n->expected > 0);
}

static bool
any_lacks_gradients(void)
{
    const module_name *n = names;

    while (n != NULL && !lacks_gradients(n))
        n = n->next;
    return n != NULL;
}

/* A parameter of a module that was called stands as null where no gradient came for it, in inference, too. */
static void
add_missing(const watched *w, const msp_record *null)
{
    for (int i = 0; i < w->n; i++) {
        module_name *n = w->targets[i].module;

        if (lacks_gradients(n) && (n->nparts > 0 || is_selected(n)) && !has_part(n, w->targets[i].own))
            add_part(n, w->targets[i].own, null);
    }
}

static void
complete_parts(void)
{
    msp_record *null = any_lacks_gradients() ? msp_probe_record_get() : NULL;

    if (null == NULL)
        return;
    null->len = 0;
    null->failed = false;
    msp_record_null(null);
    for (size_t i = 0; i < tree.watched.n; i++)
        add_missing((watched *)tree.watched.items[i], null);
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
    msp_batch_work();
    msp_probe_enter(&q);
    complete_parts();
    for (module_name *n = names; n != NULL; n = n->next) {
        if (write_parts(n) && type == NULL)
            PyErr_Fetch(&type, &value, &trace);
        PyErr_Clear();
        n->written = n->shown.count = 0;
    }
    msp_probe_leave(&q);
    msp_node_clean();
    for (size_t i = 0; tree.has_lists && i < tree.watched.n; i++)
        remove_hooks((watched *)tree.watched.items[i]);
    tree.has_lists = false;
    map_release(&tree.nodes);
    map_clear(&tree.met);
    tree.retired = NULL;
    for (Py_ssize_t i = 0; retired != NULL && i < PyList_GET_SIZE(retired); i++)
        remove_hooks((watched *)PyList_GET_ITEM(retired, i));
    Py_XDECREF(retired);
    if (type != NULL) {
        PyErr_Restore(type, value, trace);
        return NULL;
    }
    Py_RETURN_NONE;
}
