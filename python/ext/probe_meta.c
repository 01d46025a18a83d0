/*
 * probe_meta.c - what a tensor itself says about autograd: whether it requires grad, and which node made it.
 *
 * torch exports functions for that, and each of them calls three others; a call of a module asks for two tensors and
 * their places, and so much code has to come into a cache that torch has just filled. A tensor that is no view has the
 * answers in a record of its own, of a class that is known by its table of virtual functions: they are read there, at
 * offsets that are searched for in samples (probe_node.c). For views, whose node may have to be made first, the
 * functions are asked. Where an offset is not found, no node is read directly.
 */
#include "probe_field.h"
#include "probe_grad.h"
#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>
#include <string.h>

enum { TABLE_HEAD = 2 * sizeof(void *) }; /* what stands before a table's functions */

static struct {
    void **(*grad_fn)(const void *tensor);
    int64_t (*output_nr)(const void *tensor);
    bool (*requires_grad)(const void *impl);
    const char *kind;           /* the first word of the record of a tensor that is no view */
    bool ready;                 /* the offsets are known: */
    size_t record;              /* in a tensor: its record */
    size_t node, nr, is_wanted; /* in the record: the node, the number of its output, whether a leaf requires grad */
} meta;

bool
msp_meta_functions(void *torch)
{
    const char *table = dlsym(torch, "_ZTVN5torch8autograd12AutogradMetaE");

    meta.ready = false;
    *(void **)&meta.grad_fn = dlsym(torch, "_ZNK2at10TensorBase7grad_fnEv");
    *(void **)&meta.output_nr = dlsym(torch, "_ZNK2at10TensorBase9output_nrEv");
    *(void **)&meta.requires_grad = dlsym(torch, "_ZNK3c1010TensorImpl13requires_gradEv");
    meta.kind = table == NULL ? NULL : table + TABLE_HEAD;
    return meta.grad_fn != NULL && meta.output_nr != NULL && meta.requires_grad != NULL;
}

/* A tensor's record, NULL: it has none, or *ask: only the functions know. */
static const char *
record_of(const void *handle, bool *ask)
{
    const char *record = meta.ready ? *(const char *const *)(*(const char *const *)handle + meta.record) : NULL;

    *ask = !meta.ready || (record != NULL && *(const char *const *)record != meta.kind);
    return record;
}

void *
msp_node_of(PyObject *tensor, int64_t *nr)
{
    const void *handle = msp_probe_tensor_handle(tensor);
    bool ask;
    const char *record = record_of(handle, &ask);
    void *node;

    if (!ask && record == NULL)
        return NULL;
    node = ask ? *meta.grad_fn(handle) : *(void *const *)(record + meta.node);
    if (node != NULL)
        *nr = ask ? meta.output_nr(handle) : (int64_t) * (const uint32_t *)(record + meta.nr);
    return node;
}

bool
msp_node_requires_grad(const void *handle)
{
    bool ask;
    const char *record = record_of(handle, &ask);

    if (ask)
        return meta.requires_grad(*(void *const *)handle);
    return record != NULL && (*(const bool *)(record + meta.is_wanted) || *(void *const *)(record + meta.node) != NULL);
}

/* ---- proof ------------------------------------------------------------------------------------------------------- */

static bool
has_record(size_t at, const void *payload)
{
    const meta_sample *s = payload;
    const char *record, *kind;

    if (at + sizeof(record) > malloc_usable_size((void *)(uintptr_t)s->impl))
        return false;
    memcpy(&record, s->impl + at, sizeof(record));
    return record != NULL && msp_field_peek(&kind, record, sizeof(kind)) && kind == meta.kind;
}

/* The record of a sample, when it has so many bytes; NULL: it does not. */
static const char *
record_with(const meta_sample *s, size_t size)
{
    const char *record = *(const char *const *)(s->impl + meta.record);

    return size <= malloc_usable_size((void *)(uintptr_t)record) ? record : NULL;
}

static bool
has_node(size_t at, const void *payload)
{
    const meta_sample *s = payload;
    const char *record = record_with(s, at + sizeof(s->node));

    return record != NULL && memcmp(record + at, &s->node, sizeof(s->node)) == 0;
}

static bool
has_nr(size_t at, const void *payload)
{
    const meta_sample *s = payload;
    const char *record = record_with(s, at + sizeof(s->nr));

    return record != NULL && memcmp(record + at, &s->nr, sizeof(s->nr)) == 0;
}

/* Only leaves have it set. */
static bool
has_wanted(size_t at, const void *payload)
{
    const meta_sample *s = payload;
    const char *record = record_with(s, at + 1);

    return record != NULL && record[at] == (s->node == NULL);
}

bool
msp_meta_find(const meta_sample *samples, int n)
{
    const field_samples all = {samples, sizeof(*samples), n};

    meta.ready = meta.kind != NULL && msp_field_find(&meta.record, &all, sizeof(void *), TENSOR_BYTES, has_record) &&
                 msp_field_find(&meta.node, &all, sizeof(void *), TENSOR_BYTES, has_node) &&
                 msp_field_find(&meta.nr, &all, sizeof(uint32_t), TENSOR_BYTES, has_nr) &&
                 msp_field_find(&meta.is_wanted, &all, 1, TENSOR_BYTES, has_wanted);
    return meta.ready;
}
