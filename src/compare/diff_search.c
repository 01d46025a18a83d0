/*
 * diff_search.c - which call differs first, over all ranks.
 *
 * A training step is, per rank, compute calls between communication calls. Communication calls of different ranks that
 * belong together happen at the same time, so they get the same layer: the longest chain of communication before them.
 * A compute call belongs to the layer of the communication that follows it. The first difference is then searched
 * before any communication, among the layers, and after the last communication; the first of the three that has one
 * wins, and ties are all reported.
 */
#include "compare/diff_node.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/vec.h"

/* ---- linking ranks
 * ---------------------------------------------------------------------------------------------------- */

#define NONE ((size_t)-1)

/* All communication calls of all ranks, numbered through; those that happen together are one group (union-find). */
typedef struct web {
    msp_da_rank *const *ranks;
    size_t nranks, total;
    void *memory[4];   /* what the arrays below lie in */
    size_t *base;      /* number of a rank's first node; one more than there are ranks */
    size_t *seen_from; /* per rank: the rank that is being linked has met every node before this one */
    size_t *parent, *head, *next_member, *degree, *queue;
    int *layer; /* of a group, at its root */
    bool *connected, *seen, *is_last;
} web;

static void
web_release(web *w)
{
    for (size_t i = 0; i < sizeof(w->memory) / sizeof(w->memory[0]); i++)
        msp_free(w->memory[i]);
}

static msp_status
web_init(web *w, msp_da_rank *const *ranks, size_t nranks, msp_error *err)
{
    size_t n = 0;

    for (size_t i = 0; i < nranks; i++)
        n += ranks[i]->nnodes;
    *w = (web){.ranks = ranks, .nranks = nranks, .total = n};
    w->memory[0] = msp_alloc_zero(2 * (nranks + 1), sizeof(size_t));
    w->memory[1] = msp_alloc_zero(n, 5 * sizeof(size_t));
    w->memory[2] = msp_alloc_zero(n, sizeof(int));
    w->memory[3] = msp_alloc_zero(n, 3 * sizeof(bool));
    for (int i = 0; i < 4; i++)
        if (w->memory[i] == NULL)
            return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    w->base = w->memory[0];
    w->seen_from = w->base + nranks + 1;
    w->parent = w->memory[1];
    w->head = w->parent + n;
    w->next_member = w->head + n;
    w->degree = w->next_member + n;
    w->queue = w->degree + n;
    w->layer = w->memory[2];
    w->connected = w->memory[3];
    w->seen = w->connected + n;
    w->is_last = w->seen + n;
    for (size_t i = 0; i < nranks; i++)
        w->base[i + 1] = w->base[i] + ranks[i]->nnodes;
    for (size_t i = 0; i < n; i++)
        w->parent[i] = i;
    return MSP_OK;
}

static size_t
root_of(web *w, size_t i)
{
    while (w->parent[i] != i) {
        w->parent[i] = w->parent[w->parent[i]];
        i = w->parent[i];
    }
    return i;
}

static void
join(web *w, size_t a, size_t b)
{
    w->connected[a] = w->connected[b] = true;
    a = root_of(w, a);
    b = root_of(w, b);
    if (a != b)
        w->parent[a > b ? a : b] = a < b ? a : b;
}

static msp_str
partner_api(msp_str api)
{
    static const msp_str pairs[][2] = {{{"send", 4}, {"recv", 4}},
                                       {{"isend", 5}, {"irecv", 5}},
                                       {{"send_object_list", 16}, {"recv_object_list", 16}}};

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        for (int k = 0; k < 2; k++)
            if (msp_str_eq(api, pairs[i][k]))
                return pairs[i][1 - k];
    return api;
}

static bool
is_peer(const msp_da_node *node, int64_t rank)
{
    for (size_t i = 0; i < node->npeers; i++)
        if (node->peers[i] == rank)
            return true;
    return node->npeers == 0;
}

static bool
fits(const msp_da_node *node, int64_t rank, const msp_da_node *other)
{
    msp_da_type wanted = node->type == MSP_DA_SRC ? MSP_DA_DST : node->type == MSP_DA_DST ? MSP_DA_SRC : MSP_DA_LINK;

    return other->type == wanted && is_peer(other, rank) && msp_str_eq(other->api, partner_api(node->api)) &&
           msp_str_eq(other->direction, node->direction);
}

/* The first call on the other rank that fits and that this rank has not met yet. */
static void
link_with_rank(web *w, size_t rank, size_t i, size_t other)
{
    const msp_da_node *node = &w->ranks[rank]->nodes[i];
    size_t *from = &w->seen_from[other];

    while (*from < w->ranks[other]->nnodes && w->seen[w->base[other] + *from])
        (*from)++;
    for (size_t k = *from; k < w->ranks[other]->nnodes; k++) {
        size_t at = w->base[other] + k;

        /* a collective call that a lower rank has linked is complete: this one's group is another one */
        if (w->seen[at] || (node->type == MSP_DA_LINK && w->connected[at]))
            continue;
        if (!fits(node, w->ranks[rank]->rank, &w->ranks[other]->nodes[k]))
            continue;
        w->seen[at] = true;
        join(w, w->base[rank] + i, at);
        return;
    }
}

static void
link_rank(web *w, size_t rank)
{
    const msp_da_rank *r = w->ranks[rank];

    memset(w->seen, 0, w->total * sizeof(*w->seen));
    memset(w->seen_from, 0, w->nranks * sizeof(*w->seen_from));
    for (size_t i = 0; i < r->nnodes; i++) {
        if (r->nodes[i].type == MSP_DA_LINK && w->connected[w->base[rank] + i])
            continue;
        for (size_t other = rank + 1; other < w->nranks; other++)
            if (is_peer(&r->nodes[i], w->ranks[other]->rank))
                link_with_rank(w, rank, i, other);
    }
}

/* ---- layers
 * ------------------------------------------------------------------------------------------------------------ */

/* Thread the members of each group through next_member, from head on. */
static void
thread_groups(web *w)
{
    for (size_t i = 0; i < w->total; i++)
        w->head[i] = NONE;
    for (size_t i = 0; i < w->total; i++) {
        size_t root = root_of(w, i);

        w->next_member[i] = w->head[root];
        w->head[root] = i;
    }
}

/* The group of the call that follows on the same rank, or NONE. */
static size_t
next_group(web *w, size_t i)
{
    return w->is_last[i] ? NONE : root_of(w, i + 1);
}

static void
count_predecessors(web *w)
{
    for (size_t rank = 0; rank < w->nranks; rank++)
        if (w->base[rank + 1] > w->base[rank])
            w->is_last[w->base[rank + 1] - 1] = true;
    for (size_t i = 0; i < w->total; i++) {
        size_t next = next_group(w, i);

        if (next != NONE)
            w->degree[next]++;
    }
}

/* Calls that were linked across each other have no order: they get the place they have in their rank. */
static void
place_unordered(web *w)
{
    for (size_t rank = 0; rank < w->nranks; rank++) {
        for (size_t i = w->base[rank]; i < w->base[rank + 1]; i++) {
            size_t group = root_of(w, i);
            int place = (int)(i - w->base[rank]);

            if (w->degree[group] > 0 && w->layer[group] < place)
                w->layer[group] = place;
        }
    }
}

/* Longest chains, by Kahn's algorithm: a group is placed when everything before all its members is. */
static void
assign_layers(web *w)
{
    size_t at = 0, end = 0;

    thread_groups(w);
    count_predecessors(w);
    for (size_t i = 0; i < w->total; i++)
        if (root_of(w, i) == i && w->degree[i] == 0)
            w->queue[end++] = i;
    while (at < end) {
        size_t group = w->queue[at++];

        for (size_t i = w->head[group]; i != NONE; i = w->next_member[i]) {
            size_t next = next_group(w, i);

            if (next == NONE)
                continue;
            if (w->layer[next] < w->layer[group] + 1)
                w->layer[next] = w->layer[group] + 1;
            if (--w->degree[next] == 0)
                w->queue[end++] = next;
        }
    }
    place_unordered(w);
}

/* ---- the search
 * ------------------------------------------------------------------------------------------------------- */

static msp_status
add_found(msp_da_findings *f, size_t rank, const msp_da_op *op, int layer, msp_error *err)
{
    if (!msp_vec_grow((void **)&f->items, &f->cap, f->count + 1, sizeof(*f->items)))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    f->items[f->count++] = (msp_da_found){rank, op, layer};
    return MSP_OK;
}

/* Compute calls before a rank's first communication; a rank without any is all before. */
static msp_status
search_before(msp_da_findings *f, msp_da_rank *const *ranks, size_t n, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; st == MSP_OK && i < n; i++) {
        const msp_da_op *op = ranks[i]->nnodes > 0 ? &ranks[i]->nodes[0].before : &ranks[i]->gap;

        if (op->len > 0)
            st = add_found(f, i, op, 0, err);
    }
    return st;
}

static msp_status
search_after(msp_da_findings *f, msp_da_rank *const *ranks, size_t n, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; st == MSP_OK && i < n; i++)
        if (ranks[i]->nnodes > 0 && ranks[i]->gap.len > 0)
            st = add_found(f, i, &ranks[i]->gap, 0, err);
    return st;
}

/* Keep what is first: (layer, place in it); ties stay. */
static msp_status
offer(msp_da_findings *f, size_t rank, const msp_da_op *op, int layer, msp_error *err)
{
    if (op->len == 0)
        return MSP_OK;
    if (f->count > 0) {
        const msp_da_found *best = &f->items[0];

        if (layer > best->layer || (layer == best->layer && op->sub_layer > best->op->sub_layer))
            return MSP_OK;
        if (layer < best->layer || op->sub_layer < best->op->sub_layer)
            f->count = 0;
    }
    return add_found(f, rank, op, layer, err);
}

static msp_status
search_layers(msp_da_findings *f, web *w, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t rank = 0; rank < w->nranks; rank++) {
        const msp_da_rank *r = w->ranks[rank];

        for (size_t i = 0; st == MSP_OK && i < r->nnodes; i++) {
            int layer = w->layer[root_of(w, w->base[rank] + i)];

            st = offer(f, rank, &r->nodes[i].before, layer, err);
            if (st == MSP_OK && !r->nodes[i].same)
                st = offer(f, rank, &r->nodes[i].op, layer, err);
        }
    }
    return st;
}

static msp_status
search_during(msp_da_findings *f, msp_da_rank *const *ranks, size_t n, msp_error *err)
{
    web w;
    msp_status st = web_init(&w, ranks, n, err);

    for (size_t i = 0; st == MSP_OK && i < n; i++)
        link_rank(&w, i);
    if (st == MSP_OK) {
        assign_layers(&w);
        st = search_layers(f, &w, err);
    }
    web_release(&w);
    return st;
}

msp_status
msp_da_search(msp_da_findings *f, const char **stage, msp_da_rank *const *ranks, size_t n, msp_error *err)
{
    static const struct {
        const char *name;
        msp_status (*run)(msp_da_findings *f, msp_da_rank *const *ranks, size_t n, msp_error *err);
    } stages[] = {{"before", search_before}, {"during", search_during}, {"after", search_after}};
    msp_status st = MSP_OK;

    for (size_t i = 0; st == MSP_OK && f->count == 0 && i < sizeof(stages) / sizeof(stages[0]); i++) {
        msp_info("Start searching diff node %s communication.", stages[i].name);
        st = stages[i].run(f, ranks, n, err);
        *stage = stages[i].name;
    }
    return st;
}
