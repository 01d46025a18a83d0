/* page_flow.c - see page_flow.h. */
#include "report/write/page_flow.h"

#include <string.h>
#include "core/alloc.h"

static msp_page_producer *
slot_of(msp_page_producer *table, size_t cap, uint64_t key)
{
    size_t i = (size_t)(key >> 7) & (cap - 1);

    while (table[i].key != 0 && table[i].key != key)
        i = (i + 1) & (cap - 1);
    return &table[i];
}

static bool
reserve_producer(msp_page_flow *f)
{
    size_t cap = f->cap == 0 ? 1024 : f->cap * 2;
    msp_page_producer *table;

    if (f->count * 4 < f->cap * 3)
        return true;
    table = msp_alloc_zero(cap, sizeof(*table));
    if (table == NULL)
        return false;
    for (size_t i = 0; i < f->cap; i++)
        if (f->producers[i].key != 0)
            *slot_of(table, cap, f->producers[i].key) = f->producers[i];
    msp_free(f->producers);
    f->producers = table;
    f->cap = cap;
    return true;
}

/* The same two calls one after the other are one edge: a call may take several parts of what another gave. */
static void
add_edge(msp_page_flow *f, uint32_t from, uint32_t to)
{
    uint32_t edge[2] = {from, to};

    if (f->edges.len == 0 || memcmp(edge, f->last, sizeof(edge)) != 0)
        msp_buf_add(&f->edges, edge, sizeof(edge));
    memcpy(f->last, edge, sizeof(edge));
}

bool
msp_page_flow_note(msp_page_flow *f, uint64_t key, uint32_t call, bool output)
{
    msp_page_producer *s;

    if (key == 0)
        return true;
    if (!reserve_producer(f))
        return false;
    s = slot_of(f->producers, f->cap, key);
    if (output) {
        f->count += s->key == 0;
        *s = (msp_page_producer){key, call};
    } else if (s->key == key && s->call != call) {
        add_edge(f, s->call, call);
    }
    return !f->edges.failed;
}

void
msp_page_flow_release(msp_page_flow *f)
{
    msp_free(f->producers);
    msp_buf_release(&f->edges);
    *f = (msp_page_flow){0};
}
