/*
 * search.c - which call differs first, over all ranks.
 *
 * A training step is, per rank, compute calls between communication calls. Communication calls of different ranks that
 * belong together happen at the same time, so they get the same layer: the longest chain of communication before them.
 * A compute call belongs to the layer of the communication that follows it. The first difference is then searched
 * before any communication, among the layers, and after the last communication; the first of the three that has one
 * wins, and ties are all reported.
 */
#include "compare/first/node.h"
#include "compare/first/order.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/vec.h"

/* ---- the search ---------------------------------------------------------------------------------------------- */

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
offer_difference(msp_da_findings *f, size_t rank, const msp_da_op *op, int layer, msp_error *err)
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
search_layers(msp_da_findings *f, msp_da_rank *const *ranks, const msp_order *o, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t rank = 0; rank < o->nranks; rank++) {
        const msp_da_rank *r = ranks[rank];

        for (size_t i = 0; st == MSP_OK && i < r->nnodes; i++) {
            int layer = o->layer[o->base[rank] + i];

            st = offer_difference(f, rank, &r->nodes[i].before, layer, err);
            if (st == MSP_OK && !r->nodes[i].same)
                st = offer_difference(f, rank, &r->nodes[i].op, layer, err);
        }
    }
    return st;
}

static msp_status
search_during(msp_da_findings *f, msp_da_rank *const *ranks, size_t n, msp_error *err)
{
    msp_order_rank *all = msp_alloc(n, sizeof(*all));
    msp_order o = {0};
    msp_status st = MSP_OK;

    if (all == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        all[i] = (msp_order_rank){ranks[i]->rank, ranks[i]->nnodes > 0 ? &ranks[i]->nodes[0].comm : NULL,
                                  sizeof(msp_da_node), ranks[i]->nnodes};
    st = msp_order_make(&o, all, n, err);
    if (st == MSP_OK)
        st = search_layers(f, ranks, &o, err);
    msp_order_release(&o);
    msp_free(all);
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
