/*
 * order.c - see order.h. Calls that happen together are found from the lowest rank on: its partner on another rank is
 * the first call there that fits and has not been met yet.
 */
#include "compare/first/order.h"

#include "core/alloc.h"
#include "core/map.h"
#include "core/vec.h"

/* ---- all ranks together -------------------------------------------------------------------------------------- */

/* The calls of one rank that could be each other's substitute: same function, direction, role and group. */
typedef struct chain {
    size_t head;   /* the first of them; next_alike leads on */
    size_t cursor; /* the next that `reader` may meet */
    size_t reader; /* the rank whose calls are being linked */
} chain;

/* All communication calls of all ranks, numbered through; those that happen together are one group (union-find). */
typedef struct web {
    const msp_order_rank *ranks; /* sorted by number */
    size_t nranks, total;
    size_t *base, *parent, *head, *next_member, *queue; /* the order's own */
    size_t nqueue;
    int *layer; /* of a group, at its root */
    void *memory[2];
    size_t *degree, *next_alike;
    bool *connected, *is_last;
    msp_map *kinds; /* per rank: what its calls are, to their chain */
    chain *chains;
    size_t nchains, chains_cap;
    msp_arena texts;
} web;

static void
web_release(web *w)
{
    for (size_t i = 0; w->kinds != NULL && i < w->nranks; i++)
        msp_map_release(&w->kinds[i]);
    for (size_t i = 0; i < sizeof(w->memory) / sizeof(w->memory[0]); i++)
        msp_free(w->memory[i]);
    msp_free(w->kinds);
    msp_free(w->chains);
    msp_arena_release(&w->texts);
}

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

static msp_status
web_init(web *w, msp_order *out, const msp_order_rank *ranks, size_t nranks, msp_error *err)
{
    size_t n = 0;

    for (size_t i = 0; i < nranks; i++)
        n += ranks[i].count;
    *w = (web){.ranks = ranks, .nranks = nranks, .total = n};
    out->memory[0] = msp_alloc_zero(nranks + 1 + 5 * n, sizeof(size_t));
    out->memory[1] = msp_alloc_zero(n, sizeof(*out->layer));
    w->memory[0] = msp_alloc_zero(n, 2 * sizeof(size_t));
    w->memory[1] = msp_alloc_zero(n, 2 * sizeof(bool));
    w->kinds = msp_alloc_zero(nranks, sizeof(*w->kinds));
    if (out->memory[0] == NULL || out->memory[1] == NULL || w->memory[0] == NULL || w->memory[1] == NULL ||
        w->kinds == NULL)
        return no_memory(err);
    out->nranks = nranks;
    out->total = n;
    out->base = w->base = out->memory[0];
    out->rank = w->base + nranks + 1;
    out->group = w->parent = out->rank + n;
    out->head = w->head = w->parent + n;
    out->next_member = w->next_member = w->head + n;
    out->sequence = w->queue = w->next_member + n;
    out->layer = w->layer = out->memory[1];
    w->degree = w->memory[0];
    w->next_alike = w->degree + n;
    w->connected = w->memory[1];
    w->is_last = w->connected + n;
    for (size_t i = 0; i < nranks; i++)
        w->base[i + 1] = w->base[i] + ranks[i].count;
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
join_nodes(web *w, size_t a, size_t b)
{
    w->connected[a] = w->connected[b] = true;
    a = root_of(w, a);
    b = root_of(w, b);
    if (a != b)
        w->parent[a > b ? a : b] = a < b ? a : b;
}

/* ---- what a call is, and what its partner must be ------------------------------------------------------------ */

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
is_collective(const msp_comm_call *node)
{
    return node->type == MSP_COMM_LINK && !node->point_to_point;
}

/* What a call is, as text; of the partner that it looks for when partner is set. */
static void
put_kind(msp_buf *out, const msp_comm_call *node, bool partner)
{
    msp_str api = partner ? partner_api(node->api) : node->api;
    bool source = (node->type == MSP_COMM_SRC) != partner;

    msp_buf_clear(out);
    msp_buf_printf(out, "%.*s %.*s ", (int)api.len, api.p, (int)node->direction.len, node->direction.p);
    if (is_collective(node))
        msp_buf_printf(out, "%zu %016llx", node->npeers, (unsigned long long)node->hash);
    else if (node->type == MSP_COMM_LINK)
        msp_buf_text(out, "p2p");
    else
        msp_buf_text(out, source ? "src" : "dst");
}

static msp_status
add_chain(web *w, size_t rank, msp_str kind, size_t node, msp_error *err)
{
    char *copy = msp_arena_text(&w->texts, kind.p, kind.len);

    if (copy == NULL || !msp_vec_grow((void **)&w->chains, &w->chains_cap, w->nchains + 1, sizeof(*w->chains)) ||
        msp_map_put(&w->kinds[rank], (msp_str){copy, kind.len}, (int64_t)w->nchains, NULL) == NULL)
        return no_memory(err);
    w->chains[w->nchains++] = (chain){.head = node, .reader = MSP_ORDER_NONE};
    return MSP_OK;
}

/* Thread the calls of a rank by what they are; from the last to the first, so that chains run in order. */
static msp_status
thread_rank(web *w, size_t rank, msp_buf *scratch, msp_error *err)
{
    for (size_t i = w->ranks[rank].count; i-- > 0;) {
        size_t at = w->base[rank] + i;
        msp_map_entry *e;
        msp_status st;

        put_kind(scratch, msp_order_call(&w->ranks[rank], i), false);
        if (scratch->failed)
            return no_memory(err);
        w->next_alike[at] = MSP_ORDER_NONE;
        e = msp_map_get(&w->kinds[rank], msp_buf_view(scratch));
        if (e != NULL) {
            w->next_alike[at] = w->chains[e->value].head;
            w->chains[e->value].head = at;
            continue;
        }
        st = add_chain(w, rank, msp_buf_view(scratch), at, err);
        if (st != MSP_OK)
            return st;
    }
    return MSP_OK;
}

/* ---- linking ranks ------------------------------------------------------------------------------------------- */

static bool
is_peer(const msp_comm_call *node, int64_t rank)
{
    size_t low = 0, high = node->npeers;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (node->peers[middle] == rank)
            return true;
        if (node->peers[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return node->npeers == 0;
}

/*
 * The first call on the other rank that fits and that this rank has not met yet. What is passed over does not know this
 * rank, or was linked from a lower one, and that will not change: the cursor never has to go back.
 */
static void
link_with_rank(web *w, size_t rank, size_t i, size_t other, msp_buf *scratch)
{
    const msp_comm_call *node = msp_order_call(&w->ranks[rank], i);
    msp_map_entry *e = msp_map_get(&w->kinds[other], msp_buf_view(scratch));
    chain *c = e != NULL ? &w->chains[e->value] : NULL;

    if (c == NULL)
        return;
    if (c->reader != rank) {
        c->reader = rank;
        c->cursor = c->head;
    }
    while (c->cursor != MSP_ORDER_NONE) {
        size_t at = c->cursor;
        bool taken = is_collective(node) && w->connected[at];

        c->cursor = w->next_alike[at];
        if (taken || !is_peer(msp_order_call(&w->ranks[other], at - w->base[other]), w->ranks[rank].rank))
            continue;
        join_nodes(w, w->base[rank] + i, at);
        return;
    }
}

static size_t
index_of_rank(const web *w, int64_t number)
{
    size_t low = 0, high = w->nranks;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (w->ranks[middle].rank < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < w->nranks && w->ranks[low].rank == number ? low : MSP_ORDER_NONE;
}

/* Lower ranks have looked for this one already. */
static void
link_node(web *w, size_t rank, size_t i, msp_buf *scratch)
{
    const msp_comm_call *node = msp_order_call(&w->ranks[rank], i);

    for (size_t other = rank + 1; node->npeers == 0 && other < w->nranks; other++)
        link_with_rank(w, rank, i, other, scratch);
    for (size_t k = 0; k < node->npeers; k++) {
        size_t other = index_of_rank(w, node->peers[k]);

        if (other != MSP_ORDER_NONE && other > rank)
            link_with_rank(w, rank, i, other, scratch);
    }
}

static msp_status
link_rank(web *w, size_t rank, msp_buf *scratch, msp_error *err)
{
    const msp_order_rank *r = &w->ranks[rank];

    for (size_t i = 0; i < r->count; i++) {
        /* the lowest rank of a group has linked all of it */
        if (is_collective(msp_order_call(r, i)) && w->connected[w->base[rank] + i])
            continue;
        put_kind(scratch, msp_order_call(r, i), true);
        if (scratch->failed)
            return no_memory(err);
        link_node(w, rank, i, scratch);
    }
    return MSP_OK;
}

static msp_status
link_ranks(web *w, msp_error *err)
{
    msp_buf scratch = {0};
    msp_status st = MSP_OK;

    for (size_t i = 0; st == MSP_OK && i < w->nranks; i++)
        st = thread_rank(w, i, &scratch, err);
    for (size_t i = 0; st == MSP_OK && i < w->nranks; i++)
        st = link_rank(w, i, &scratch, err);
    msp_buf_release(&scratch);
    return st;
}

/* ---- layers -------------------------------------------------------------------------------------------------- */

/* Thread the members of each group through next_member, from head on. */
static void
thread_groups(web *w)
{
    for (size_t i = 0; i < w->total; i++)
        w->head[i] = MSP_ORDER_NONE;
    for (size_t i = 0; i < w->total; i++) {
        size_t root = root_of(w, i);

        w->next_member[i] = w->head[root];
        w->head[root] = i;
    }
}

/* The group of the call that follows on the same rank, or MSP_ORDER_NONE. */
static size_t
next_group(web *w, size_t i)
{
    return w->is_last[i] ? MSP_ORDER_NONE : root_of(w, i + 1);
}

static void
count_predecessors(web *w)
{
    for (size_t rank = 0; rank < w->nranks; rank++)
        if (w->base[rank + 1] > w->base[rank])
            w->is_last[w->base[rank + 1] - 1] = true;
    for (size_t i = 0; i < w->total; i++) {
        size_t next = next_group(w, i);

        if (next != MSP_ORDER_NONE)
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

        for (size_t i = w->head[group]; i != MSP_ORDER_NONE; i = w->next_member[i]) {
            size_t next = next_group(w, i);

            if (next == MSP_ORDER_NONE)
                continue;
            if (w->layer[next] < w->layer[group] + 1)
                w->layer[next] = w->layer[group] + 1;
            if (--w->degree[next] == 0)
                w->queue[end++] = next;
        }
    }
    w->nqueue = end;
    place_unordered(w);
}

/* The answer as calls see it: every one of them has its group and its layer. */
static void
hand_out(msp_order *out, web *w)
{
    for (size_t i = 0; i < w->total; i++)
        w->parent[i] = root_of(w, i);
    out->nsequence = w->nqueue;
    for (size_t i = 0; i < w->total; i++)
        if (w->parent[i] == i && w->degree[i] > 0)
            out->sequence[out->nsequence++] = i;
    for (size_t i = 0; i < w->total; i++)
        out->layer[i] = out->layer[w->parent[i]];
    for (size_t rank = 0; rank < w->nranks; rank++)
        for (size_t i = w->base[rank]; i < w->base[rank + 1]; i++)
            out->rank[i] = rank;
}

msp_status
msp_order_make(msp_order *out, const msp_order_rank *ranks, size_t nranks, msp_error *err)
{
    web w;
    msp_status st;

    *out = (msp_order){0};
    st = web_init(&w, out, ranks, nranks, err);
    if (st == MSP_OK)
        st = link_ranks(&w, err);
    if (st == MSP_OK) {
        assign_layers(&w);
        hand_out(out, &w);
    }
    web_release(&w);
    return st;
}

void
msp_order_release(msp_order *o)
{
    msp_free(o->memory[0]);
    msp_free(o->memory[1]);
    *o = (msp_order){0};
}
