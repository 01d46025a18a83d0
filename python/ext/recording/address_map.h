/* address_map.h - the hash table of the collector: from addresses, and what is as good as one; and a list of objects
 * that are held. */
#ifndef MSP_PY_ADDRESS_MAP_H
#define MSP_PY_ADDRESS_MAP_H

#include "recording/recording.h"

/* ---- a map from addresses ---------------------------------------------------------------------------------------- */

typedef struct address_map {
    const void **keys; /* NULL: free */
    void **values;
    size_t slots, used;
} address_map;

static inline size_t
slot_of(const address_map *m, const void *key)
{
    size_t i = ((uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u >> 20 & (m->slots - 1);

    while (m->keys[i] != NULL && m->keys[i] != key)
        i = (i + 1) & (m->slots - 1);
    return i;
}

static inline void *
map_get(const address_map *m, const void *key)
{
    return m->slots == 0 ? NULL : m->values[slot_of(m, key)];
}

static inline void
map_clear(address_map *m)
{
    if (m->used > 0) {
        memset(m->keys, 0, m->slots * sizeof(*m->keys));
        memset(m->values, 0, m->slots * sizeof(*m->values));
    }
    m->used = 0;
}

static inline void
map_release(address_map *m)
{
    PyMem_Free(m->keys);
    PyMem_Free(m->values);
    *m = (address_map){0};
}

static inline bool
map_put(address_map *m, const void *key, void *value)
{
    address_map bigger = {.slots = m->slots == 0 ? 256 : m->slots * 2};
    size_t i;

    if (m->used * 2 >= m->slots) {
        bigger.keys = PyMem_Calloc(bigger.slots, sizeof(*bigger.keys));
        bigger.values = PyMem_Calloc(bigger.slots, sizeof(*bigger.values));
        if (bigger.keys == NULL || bigger.values == NULL) {
            map_release(&bigger);
            return false;
        }
        for (i = 0; i < m->slots; i++)
            if (m->keys[i] != NULL)
                map_put(&bigger, m->keys[i], m->values[i]);
        map_release(m);
        *m = bigger;
    }
    i = slot_of(m, key);
    m->used += m->keys[i] == NULL;
    m->keys[i] = key;
    m->values[i] = value;
    return true;
}

/* ---- objects that are held --------------------------------------------------------------------------------------- */

/* A list whose memory stays: a new one for each step would cost as much as looking at the tree. */
typedef struct held {
    PyObject **items;
    size_t n, cap;
} held;

static inline bool
hold(held *h, PyObject *object)
{
    size_t cap = h->cap == 0 ? 256 : h->cap * 2;
    PyObject **items;

    if (h->n == h->cap) {
        items = PyMem_Realloc(h->items, cap * sizeof(*items));
        if (items == NULL)
            return false;
        h->items = items;
        h->cap = cap;
    }
    Py_INCREF(object);
    h->items[h->n++] = object;
    return true;
}

/* A module's own Python code may run when it goes. */
static inline void
let_go(held *h)
{
    while (h->n > 0)
        Py_DECREF(h->items[--h->n]);
}

#endif
