/*
 * probe_node.c - autograd's nodes, read and hooked without a Python object for each of them.
 *
 * A Python object per node costs 0.7 us, and one per gradient that a hook is shown 0.3 us more; a model's outermost
 * module alone has all nodes of the graph between its inputs and its outputs. torch exports the functions that lead
 * from a tensor to its node. From there on memory is read: a node's sequence number, its edges and its list of hooks,
 * at offsets that are searched for in sample nodes, about which Python says what must stand there. A hook is an object
 * of torch's class FunctionPostHook, made here: a pointer to a table of its virtual functions and what is ours. The
 * nodes that add gradients to a parameter's are most of what is hooked, and tell in a cheaper way: by a table of their
 * class's virtual functions in which one is ours.
 *
 * Nothing of that is promised by torch. It is used only in versions in which it was tried (selftest.py), when
 * everything was found in this process, and never where a hook may have to stop the program: C cannot throw.
 */
#include "probe_field.h"
#include "probe_grad.h"
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

/* The virtual functions of FunctionPostHook, and what stands before them. */
typedef struct hook_table {
    ptrdiff_t offset_to_top;
    const void *type_info;
    void (*destroy)(void *self);
    void (*destroy_and_free)(void *self);
    cpp_vector (*run)(void *self, cpp_vector *outputs, cpp_vector *inputs);
    void (*compiled_args)(const void *self, void *args);
} hook_table;

static struct {
    bool ready;
    PyObject *(*wrap)(const void *tensor);
    int32_t (*is_defined)(const void *tensor, bool *out);
    void *(*allocate)(size_t size);
    void (*release)(void *memory);
    int32_t (*new_undefined)(void **tensor);
    int32_t (*delete_tensor)(void *tensor);
    size_t keys;         /* in a tensor: what kinds of it there are, a set of bits */
    uint64_t plain_keys; /* those of a tensor that is nothing but memory of this machine */
} torch_node;

node_layout msp_node_layout;

/* ---- what torch is doing on this thread -------------------------------------------------------------------------- */

/* The same as the functions in msp_probe, which are Python's. */
static struct {
    bool ready;
    int64_t (*function_modes)(void);
    void *const *(*transform_state)(void); /* NULL behind it: no transform ever ran on this thread */
    const cpp_vector *(*transforms)(void);
    uint64_t (*sequence_nr)(void);
    int (*task_id)(void);
} torch_state;

bool
msp_node_tells_state(void)
{
    return torch_state.ready;
}

static int64_t
ask_number(PyObject *function)
{
    return function == NULL ? -1 : msp_probe_number(PyObject_CallNoArgs(function));
}

bool
msp_node_has_function_mode(void)
{
    if (torch_state.ready)
        return torch_state.function_modes() > 0;
    return msp_probe.modes != NULL && ask_number(PyTuple_GET_ITEM(msp_probe.modes, 0)) > 0;
}

/* The stack of transforms is not asked for before there is one: asking makes it, and from then on torch copies it each
 * time that it hands this thread's state to another. */
static bool
has_transform(void)
{
    const cpp_vector *running;

    if (*torch_state.transform_state() == NULL)
        return false;
    running = torch_state.transforms();
    return running->begin != running->end;
}

bool
msp_node_is_transforming(void)
{
    PyObject *level;

    if (torch_state.ready)
        return has_transform();
    level = msp_probe.functorch_level == NULL ? NULL : PyObject_CallNoArgs(msp_probe.functorch_level);
    Py_XDECREF(level);
    PyErr_Clear();
    return level != NULL && level != Py_None;
}

int64_t
msp_probe_next_node(void)
{
    return torch_state.ready && msp_probe.sequence_nr != NULL ? (int64_t)torch_state.sequence_nr()
                                                              : ask_number(msp_probe.sequence_nr);
}

int64_t
msp_node_task(void)
{
    return torch_state.ready ? torch_state.task_id() : ask_number(msp_probe.task_id);
}

static bool
find_state_functions(void)
{
    void *torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);

    if (torch == NULL)
        return false;
    *(void **)&torch_state.function_modes = dlsym(torch, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv");
    *(void **)&torch_state.transform_state = dlsym(torch, "_ZN2at9functorch20functorchTLSAccessorEv");
    *(void **)&torch_state.transforms = dlsym(torch, "_ZN2at9functorch20getDynamicLayerStackEv");
    *(void **)&torch_state.sequence_nr = dlsym(torch, "_ZN2at15sequence_number4peekEv");
    *(void **)&torch_state.task_id = dlsym(torch, "_ZN5torch8autograd25get_current_graph_task_idEv");
    dlclose(torch);
    return torch_state.function_modes != NULL && torch_state.transform_state != NULL &&
           torch_state.transforms != NULL && torch_state.sequence_nr != NULL && torch_state.task_id != NULL;
}

/*
 * state(use) -> what torch itself says, for Python to compare: (number of function modes, whether in a transform, next
 * sequence number, backward pass), or None. use: whether it is asked instead of Python from now on.
 */
PyObject *
msp_probe_state(PyObject *self, PyObject *use)
{
    (void)self;
    torch_state.ready = false;
    if (!find_state_functions())
        Py_RETURN_NONE;
    torch_state.ready = use == Py_True;
    return Py_BuildValue("LNKi", (long long)torch_state.function_modes(), PyBool_FromLong(has_transform()),
                         (unsigned long long)torch_state.sequence_nr(), torch_state.task_id());
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

bool
msp_node_usable(void)
{
    return torch_node.ready && !msp_probe.rules.overflow && !msp_probe_thread.transforming;
}

bool
msp_node_is_plain(const void *handle)
{
    uint64_t keys;

    if (!torch_node.ready)
        return false;
    memcpy(&keys, *(const char *const *)handle + torch_node.keys, sizeof(keys));
    return (keys & ~torch_node.plain_keys) == 0;
}

/* ---- gradients that are lent to a hook --------------------------------------------------------------------------- */

static bool
is_defined(const void *tensor)
{
    bool yes = false;

    return torch_node.is_defined(tensor, &yes) == 0 && yes;
}

PyObject *
msp_node_wrap(const void *tensor)
{
    return torch_node.wrap(tensor);
}

const void *
msp_node_item(const void *list, int at)
{
    const cpp_vector *v = list;
    const char *tensor = v->begin + (size_t)at * sizeof(void *);

    return tensor < v->end && is_defined(tensor) ? tensor : NULL;
}

/* ---- hooks ------------------------------------------------------------------------------------------------------- */

/*
 * The engine lets go of a node when it has run, without the interpreter lock; to take the lock for each of its hooks
 * costs as much as a record. Hooks wait in this list until somebody has the lock anyway.
 */
static _Atomic(node_link *) gone;
static atomic_int ngone;

enum { MOST_GONE = 4096 };

void
msp_node_clean(void)
{
    node_link *h, *next;

    if (atomic_load_explicit(&gone, memory_order_relaxed) == NULL || msp_batch_is_working())
        return; /* notes lend hooks, and those that are being worked out are not done */
    h = atomic_exchange(&gone, NULL);
    atomic_store(&ngone, 0);
    msp_batch_work();
    for (; h != NULL; h = next) {
        next = h->then != NULL ? h->then : h->next;
        if (h->then != NULL)
            h->then->next = h->next;
        Py_DECREF(h->owner);
    }
}

static void
hook_destroy_and_free(void *self)
{
    node_link *h = self;
    PyGILState_STATE gil;

    h->next = atomic_load(&gone);
    while (!atomic_compare_exchange_weak(&gone, &h->next, h))
        ;
    if (atomic_fetch_add(&ngone, 1) >= MOST_GONE && Py_IsInitialized()) {
        gil = PyGILState_Ensure();
        msp_node_clean();
        PyGILState_Release(gil);
    }
}

/* Nobody destroys a hook without freeing it: the list of them owns it. */
static void
hook_destroy(void *self)
{
    (void)self;
}

/* The list that comes in is the engine's own, and what we return takes its place: it is handed on as it is. */
static cpp_vector
hook_run(void *self, cpp_vector *outputs, cpp_vector *inputs)
{
    cpp_vector same = *outputs;
    PyGILState_STATE gil;

    if (msp_probe.live && !msp_batch_take(self, outputs, inputs)) {
        gil = PyGILState_Ensure();
        msp_node_clean();
        msp_probe_shown_anew();
        for (node_link *h = self; h != NULL; h = h->then)
            msp_probe_grad_fire(h, outputs, inputs);
        PyGILState_Release(gil);
    }
    *outputs = (cpp_vector){0};
    return same;
}

/* Compiled autograd asks hooks what they are; it does not run ours, which would record nothing there. */
static void
hook_compiled_args(const void *self, void *args)
{
    (void)self;
    (void)args;
}

static hook_table table = {0, NULL, hook_destroy, hook_destroy_and_free, hook_run, hook_compiled_args};

static cpp_vector *
hooks_of(void *node)
{
    return (void *)((char *)node + msp_node_layout.hooks);
}

static bool
is_ours(const node_link *h)
{
    return h->functions == &table.destroy;
}

node_link *
msp_node_hooked(void *node)
{
    const cpp_vector *v = hooks_of(node);

    for (node_link *const *at = (void *)v->begin; at != (void *)v->end; at++)
        if (is_ours(*at))
            return *at;
    return NULL;
}

static bool
append(cpp_vector *v, void *item)
{
    size_t used = (size_t)(v->end - v->begin);

    if (v->end == v->limit) {
        size_t size = used == 0 ? sizeof(void *) : used * 2;
        char *bigger = torch_node.allocate(size);

        if (bigger == NULL)
            return false;
        if (used > 0)
            memcpy(bigger, v->begin, used);
        if (v->begin != NULL)
            torch_node.release(v->begin);
        *v = (cpp_vector){bigger, bigger + used, bigger + size};
    }
    memcpy(v->end, &item, sizeof(item));
    v->end += sizeof(item);
    return true;
}

bool
msp_node_hook(void *node, node_link *h)
{
    cpp_vector *v = hooks_of(node);
    node_link *last = v->end == v->begin ? NULL : ((node_link **)(void *)v->end)[-1];

    *h = (node_link){&table.destroy, NULL, NULL, h->owner};
    if (last != NULL && is_ours(last)) {
        while (last->then != NULL)
            last = last->then;
        last->then = h;
    } else if (!append(v, h)) {
        return false;
    }
    Py_INCREF(h->owner);
    return true;
}

/* ---- nodes that add to a parameter's gradient -------------------------------------------------------------------- */

enum { TABLE_HEAD = 2, MOST_FUNCTIONS = 62 }; /* before the functions: offset to top, type */

/* What AccumulateGrad::apply() is: it takes what is in the list, and returns an empty one. */
typedef cpp_vector add_function(void *node, cpp_vector *gradients);

/* Its class's virtual functions, as they are but for that one. A node leads here from the walk on that met it to the
 * first gradient that nobody records. */
static struct {
    const void *words[TABLE_HEAD + MOST_FUNCTIONS];
    add_function *original;
    void *tried; /* the node that is tried */
    bool came;   /* ... and it came here */
} adder;

static void
lead(void *node, const void *functions)
{
    atomic_store_explicit((_Atomic(const void *) *)node, functions, memory_order_relaxed);
}

/* The engine runs this without the interpreter lock, and whatever we do comes before the node's own work, which may
 * throw: what has arrived is noted, and the rest is torch's. */
static cpp_vector
add(void *node, cpp_vector *gradients)
{
    const void *variable = msp_node_variable(node);
    PyGILState_STATE gil;

    if (node == adder.tried)
        adder.came = true;
    if (!msp_probe.live) {
        lead(node, msp_node_layout.accumulate);
    } else if (!msp_batch_take_parameter(variable, gradients)) {
        gil = PyGILState_Ensure();
        msp_node_clean();
        msp_probe_shown_anew();
        msp_probe_parameter_added(variable, gradients);
        PyGILState_Release(gil);
    }
    return adder.original(node, gradients);
}

void
msp_node_watch(void *accumulate, bool watched)
{
    lead(accumulate, watched ? msp_node_layout.watched : msp_node_layout.accumulate);
}

/* The class's table, by its symbol: how long it is, and that the function stands in it once. */
static bool
copy_table(const char *symbol, add_function *original)
{
    const void *const *words = (const void *const *)(const void *)symbol;
    const ElfW(Sym) *found = NULL;
    size_t n, hits = 0;
    Dl_info info;

    if (original == NULL || dladdr1(symbol, &info, (void **)&found, RTLD_DL_SYMENT) == 0 || found == NULL)
        return false;
    n = found->st_size / sizeof(*words);
    if (n <= TABLE_HEAD || n > sizeof(adder.words) / sizeof(*words))
        return false;
    memcpy(adder.words, words, n * sizeof(*words));
    for (size_t i = TABLE_HEAD; i < n; i++)
        if (words[i] == (const void *)(uintptr_t)original) {
            adder.words[i] = (const void *)(uintptr_t)add;
            hits++;
        }
    adder.original = original;
    msp_node_layout.watched = (const char *)&adder.words[TABLE_HEAD];
    return hits == 1;
}

/* ---- proof ------------------------------------------------------------------------------------------------------- */

static bool
find_functions(void)
{
    void *torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    void *python = dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
    const char *accumulate = NULL;
    add_function *original = NULL;
    bool known = false;

    if (torch != NULL && python != NULL) {
        known = msp_meta_functions(torch);
        *(void **)&torch_node.is_defined = dlsym(torch, "aoti_torch_is_defined");
        *(void **)&torch_node.wrap = dlsym(python, "_Z16THPVariable_WrapRKN2at10TensorBaseE");
        *(void **)&torch_node.allocate = dlsym(torch, "_Znwm");
        *(void **)&torch_node.release = dlsym(torch, "_ZdlPv");
        *(void **)&torch_node.new_undefined = dlsym(torch, "aoti_torch_new_uninitialized_tensor");
        *(void **)&torch_node.delete_tensor = dlsym(torch, "aoti_torch_delete_tensor_object");
        accumulate = dlsym(torch, "_ZTVN5torch8autograd14AccumulateGradE");
        *(void **)&original = dlsym(torch, "_ZN5torch8autograd14AccumulateGrad5applyEOSt6vectorIN2at6TensorESaIS4_EE");
        table.type_info = dlsym(torch, "_ZTIN5torch8autograd16FunctionPostHookE");
    }
    if (torch != NULL)
        dlclose(torch);
    if (python != NULL)
        dlclose(python);
    if (accumulate == NULL || !copy_table(accumulate, original))
        return false;
    msp_node_layout.accumulate = accumulate + offsetof(hook_table, destroy);
    return known && torch_node.is_defined != NULL && torch_node.wrap != NULL && torch_node.allocate != NULL &&
           torch_node.release != NULL && table.type_info != NULL && torch_node.new_undefined != NULL &&
           torch_node.delete_tensor != NULL;
}

/* One tensor with a node, and what Python says about that. */
typedef struct sample {
    const char *impl;
    char *node;
    int64_t nr; /* which output of the node it is */
    size_t size;
    int64_t sequence;
    PyObject *next; /* its next_functions */
} sample;

enum { MOST_SAMPLES = 16 };

/* The node of a Python object that stands for one, which is the object's first word. */
static char *
node_behind(PyObject *object)
{
    return *(char **)((char *)object + sizeof(PyObject));
}

static bool
take_sample(sample *s, PyObject *tensor)
{
    PyObject *object = PyObject_GetAttrString(tensor, "grad_fn");
    PyObject *sequence = object == NULL ? NULL : PyObject_CallMethod(object, "_sequence_nr", NULL);
    PyObject *nr = PyObject_GetAttrString(tensor, "output_nr");
    int64_t found = -1;
    char *node = msp_node_of(tensor, &found);
    bool good = sequence != NULL && nr != NULL && node != NULL && node == node_behind(object) &&
                found == PyLong_AsLongLong(nr) && msp_node_requires_grad(msp_probe_tensor_handle(tensor));

    s->impl = *(const char **)msp_probe_tensor_handle(tensor);
    s->node = node;
    s->nr = found;
    s->size = good ? malloc_usable_size(node) : 0;
    s->sequence = good ? PyLong_AsLongLong(sequence) : -1;
    s->next = good ? PyObject_GetAttrString(object, "next_functions") : NULL;
    Py_XDECREF(object);
    Py_XDECREF(sequence);
    Py_XDECREF(nr);
    PyErr_Clear();
    return s->next != NULL && PyTuple_Check(s->next);
}

static bool
has_sequence(size_t at, const void *payload)
{
    const sample *s = payload;

    return at + sizeof(int64_t) <= s->size && memcmp(s->node + at, &s->sequence, sizeof(int64_t)) == 0;
}

static bool
has_edges(size_t at, const void *payload)
{
    const sample *s = payload;
    size_t n = (size_t)PyTuple_GET_SIZE(s->next);
    cpp_vector v;
    cpp_edge e;

    if (at + sizeof(v) > s->size)
        return false;
    memcpy(&v, s->node + at, sizeof(v));
    if (v.begin == NULL || (size_t)(v.end - v.begin) != n * sizeof(e) || v.limit < v.end)
        return false;
    for (size_t i = 0; i < n; i++) {
        PyObject *pair = PyTuple_GET_ITEM(s->next, (Py_ssize_t)i), *to = PyTuple_GET_ITEM(pair, 0);

        if (!msp_field_peek(&e, v.begin + i * sizeof(e), sizeof(e)) || (e.node == NULL) != (to == Py_None) ||
            (e.node != NULL && ((char *)e.node != node_behind(to) || e.nr != PyLong_AsLong(PyTuple_GET_ITEM(pair, 1)))))
            return false;
    }
    return true;
}

/* An AccumulateGrad node's tensor: all edges of the samples that lead to such nodes must agree. */
static bool
has_variable(size_t at, const void *payload)
{
    const sample *s = payload;

    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(s->next); i++) {
        PyObject *to = PyTuple_GET_ITEM(PyTuple_GET_ITEM(s->next, i), 0), *variable;
        const char *node = to == Py_None ? NULL : node_behind(to);
        bool good;

        if (node == NULL || !msp_node_is_accumulate(node))
            continue;
        variable = PyObject_GetAttrString(to, "variable");
        good = variable != NULL && at + sizeof(void *) <= malloc_usable_size((void *)(uintptr_t)node) &&
               memcmp(node + at, msp_probe_tensor_handle(variable), sizeof(void *)) == 0;
        Py_XDECREF(variable);
        PyErr_Clear();
        if (!good)
            return false;
    }
    return true;
}

/* The samples have one hook of Python's each; its class is known by the name in its type's description. */
static bool
has_hooks(size_t at, const void *payload)
{
    static const char name[] = "N5torch8autograd18PyFunctionPostHookE";
    const sample *s = payload;
    const char *hook, *functions, *info, *text;
    char found[sizeof(name)];
    cpp_vector v;

    if (at + sizeof(v) > s->size)
        return false;
    memcpy(&v, s->node + at, sizeof(v));
    return v.begin != NULL && v.end - v.begin == sizeof(void *) && msp_field_peek(&hook, v.begin, sizeof(hook)) &&
           msp_field_peek(&functions, hook, sizeof(functions)) &&
           msp_field_peek(&info, functions - sizeof(void *), sizeof(info)) &&
           msp_field_peek(&text, info + sizeof(void *), sizeof(text)) && msp_field_peek(found, text, sizeof(found)) &&
           memcmp(found, name, sizeof(name)) == 0;
}

/* A tensor, and what Python says its keys are. */
typedef struct kind_sample {
    const char *impl;
    uint64_t keys;
} kind_sample;

static bool
has_keys(size_t at, const void *payload)
{
    const kind_sample *s = payload;

    return at + sizeof(s->keys) <= malloc_usable_size((void *)(uintptr_t)s->impl) &&
           memcmp(s->impl + at, &s->keys, sizeof(s->keys)) == 0;
}

/* Where a tensor has its keys: kinds is a list of (tensor, number), and the first tensor is a plain one. */
static bool
find_keys(PyObject *kinds)
{
    kind_sample samples[MOST_SAMPLES];
    const Py_ssize_t n = PyList_GET_SIZE(kinds);

    if (n < 2 || n > MOST_SAMPLES)
        return false;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *pair = PyList_GET_ITEM(kinds, i);

        samples[i].impl = *(char **)msp_probe_tensor_handle(PyTuple_GET_ITEM(pair, 0));
        samples[i].keys = PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(pair, 1));
    }
    torch_node.plain_keys = samples[0].keys;
    return msp_field_find(&torch_node.keys, &(field_samples){samples, sizeof(*samples), (int)n}, sizeof(void *),
                          TENSOR_BYTES, has_keys);
}

/* Where nodes have everything that is read of them. */
static bool
find_layout(const sample *samples, int n)
{
    const field_samples all = {samples, sizeof(*samples), n};
    const size_t step = sizeof(void *), end = n > 0 ? samples[0].size : 0;

    return msp_field_find(&msp_node_layout.sequence, &all, step, end, has_sequence) &&
           msp_field_find(&msp_node_layout.edges, &all, step, end, has_edges) &&
           msp_field_find(&msp_node_layout.variable, &all, step, end, has_variable) &&
           msp_field_find(&msp_node_layout.hooks, &all, step, end, has_hooks);
}

/* Call the hook that a sample has as the engine would: what it is given is two empty lists. */
static bool
call_hook(const sample *s)
{
    const cpp_vector *v = hooks_of(s->node);
    void *hook = *(void **)v->begin;
    const hook_table *functions = (void *)(*(char **)hook - offsetof(hook_table, destroy));
    cpp_vector outputs = {0}, inputs = {0}, result;

    result = functions->run(hook, &outputs, &inputs);
    return !PyErr_Occurred() && result.begin == result.end;
}

/* An AccumulateGrad node to which one of a sample's edges leads, or NULL. */
static void *
find_accumulate(const sample *s)
{
    for (int i = 0; i < msp_node_edges(s->node); i++) {
        int64_t nr;
        void *to = msp_node_edge(s->node, i, &nr);

        if (to != NULL && msp_node_is_accumulate(to))
            return to;
    }
    return NULL;
}

/* Have such a node add as the engine would: nothing, and it comes through us. */
static bool
call_adder(const sample *s)
{
    void *node = find_accumulate(s), *nothing = NULL;
    const bool live = msp_probe.live;
    cpp_vector gradients, result = {0};

    if (node == NULL || torch_node.new_undefined(&nothing) != 0)
        return false;
    gradients = (cpp_vector){nothing, (char *)nothing + sizeof(void *), (char *)nothing + sizeof(void *)};
    msp_node_watch(node, true);
    adder.tried = node;
    adder.came = msp_probe.live = false;
    for (size_t i = TABLE_HEAD; i < sizeof(adder.words) / sizeof(*adder.words); i++)
        if (adder.words[i] == (const void *)(uintptr_t)add)
            result =
                (*(add_function *const *)(*(const char **)node + (i - TABLE_HEAD) * sizeof(void *)))(node, &gradients);
    adder.tried = NULL;
    msp_probe.live = live;
    torch_node.delete_tensor(nothing);
    return adder.came && result.begin == result.end && *(const char **)node == msp_node_layout.accumulate;
}

/* Tensors with nodes, and the leaf to which the first node leads. */
static bool
find_meta(const sample *samples, int n)
{
    const void *accumulate = find_accumulate(&samples[0]);
    meta_sample all[MOST_SAMPLES + 1];

    for (int i = 0; i < n; i++)
        all[i] = (meta_sample){samples[i].impl, samples[i].node, (uint32_t)samples[i].nr};
    all[n] = (meta_sample){msp_node_variable(accumulate), NULL, 0};
    return msp_meta_find(all, n + 1);
}

/*
 * nodes(tensors, kinds) -> bool: whether nodes are read and hooked directly from now on. tensors: a list of results,
 * whose nodes have one hook each; calling it must not fail. kinds: see above. Without arguments: they are not.
 */
PyObject *
msp_probe_nodes(PyObject *self, PyObject *all)
{
    PyObject *tensors = NULL, *kinds = NULL;
    sample samples[MOST_SAMPLES];
    int n = 0;

    (void)self;
    torch_node.ready = false;
    if (!PyArg_ParseTuple(all, "|O!O!", &PyList_Type, &tensors, &PyList_Type, &kinds))
        return NULL;
    if (kinds == NULL || !msp_probe_tensor_is_fast() || !find_functions())
        Py_RETURN_FALSE;
    while (n < MOST_SAMPLES && n < PyList_GET_SIZE(tensors) && take_sample(&samples[n], PyList_GET_ITEM(tensors, n)))
        n++;
    torch_node.ready = n == PyList_GET_SIZE(tensors) && find_layout(samples, n) && find_keys(kinds) &&
                       call_hook(&samples[0]) && call_adder(&samples[0]) && find_meta(samples, n);
    for (int i = 0; i < n; i++)
        Py_DECREF(samples[i].next);
    PyErr_Clear();
    return PyBool_FromLong(torch_node.ready);
}
