/*
 * replica.c - weights and gradients that must stay equal.
 *
 * Nothing in a dump says which ranks are replicas of each other. In the first step, those are taken together whose
 * weights agree in more than half of their elements: shards of one tensor differ in nearly all, replicas in none or,
 * where a fault has happened before, in some modules. Ranks that are alone while others are together are named; ranks
 * that are all alone hold shards.
 *
 * Gradients of replicas are equal after their reduction. Most are recorded before it: only where more than half of the
 * elements are equal on most replicas is one that differs a finding.
 */
#include "audit/audit_parts.h"

#include <stdlib.h>
#include "core/alloc.h"

/* ---- names ------------------------------------------------------------------------------------------------------- */

bool
msp_audit_give_keys(msp_map *keys, msp_audit_weights *w)
{
    for (size_t k = 0; k < w->n; k++) {
        msp_map_entry *e = msp_map_put(keys, w->names[k], (int64_t)keys->count, NULL);

        if (e == NULL)
            return false;
        w->items[k].key = e->value;
    }
    return true;
}

static msp_status
collect_keys(msp_map *keys, msp_audit_step *s, msp_error *err)
{
    for (size_t i = 0; i < s->nranks; i++)
        if (!msp_audit_give_keys(keys, &s->ranks[i].weights) || !msp_audit_give_keys(keys, &s->ranks[i].gradients))
            return msp_error_set(err, MSP_E_NOMEM, "no memory for the names of weights");
    return MSP_OK;
}

static const msp_audit_weight *
weight_of(const msp_audit_weights *w, int64_t key, size_t hint)
{
    if (hint < w->n && w->items[hint].key == key)
        return &w->items[hint];
    for (size_t k = 0; k < w->n; k++)
        if (w->items[k].key == key)
            return &w->items[k];
    return NULL;
}

/* ---- who is whose replica ---------------------------------------------------------------------------------------- */

/* True when a and b agree in more than half of the elements that both hold. */
static bool
are_alike(const msp_audit_weights *a, const msp_audit_weights *b)
{
    double same = 0, all = 0;

    for (size_t k = 0; k < a->n; k++) {
        const msp_audit_weight *w = weight_of(b, a->items[k].key, k);

        if (w != NULL) {
            all += (double)w->numel;
            same += w->digest == a->items[k].digest ? (double)w->numel : 0;
        }
    }
    return all > 0 && same * 2 > all;
}

static msp_status
find_homes(msp_audit_replicas *p, const msp_audit_step *s, msp_error *err)
{
    p->rank = msp_alloc_zero(s->nranks, sizeof(*p->rank));
    p->home = msp_alloc_zero(s->nranks, sizeof(*p->home));
    p->parted = msp_alloc_zero(s->nranks, sizeof(*p->parted));
    if (p->rank == NULL || p->home == NULL || p->parted == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "no memory for replicas");
    p->n = s->nranks;
    p->known = true;
    for (size_t i = 0; i < s->nranks; i++) {
        p->rank[i] = s->ranks[i].rank;
        p->home[i] = (int64_t)i;
        for (size_t k = 0; k < i; k++)
            if (p->home[k] == (int64_t)k && are_alike(&s->ranks[k].weights, &s->ranks[i].weights)) {
                p->home[i] = (int64_t)k;
                break;
            }
    }
    return MSP_OK;
}

static size_t
place_of(const msp_audit_replicas *p, int64_t rank, size_t hint)
{
    if (hint < p->n && p->rank[hint] == rank)
        return hint;
    for (size_t i = 0; i < p->n; i++)
        if (p->rank[i] == rank)
            return i;
    return p->n;
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */

static msp_status
say_parted(msp_audit_step *s, const msp_audit_rank *r, const msp_audit_weights *w, size_t k, size_t same,
           const char *how, msp_error *err)
{
    msp_str name = w->names[k], module = name;
    msp_buf what = {0};
    msp_status st;

    while (module.len > 0 && module.p[module.len - 1] != '.')
        module.len--;
    module.len -= module.len > 0;
    msp_buf_printf(&what, "%s%.*s of rank %lld %s %zu other replica%s%s", w == &r->gradients ? "the gradient " : "",
                   (int)(name.len < 200 ? name.len : 200), name.p, (long long)r->rank, how, same, same == 1 ? "" : "s",
                   same == 1 ? "" : ", which are equal");
    st = msp_buf_status(&what, err);
    if (st == MSP_OK)
        st = msp_audit_add(s, MSP_AUDIT_REPLICAS, r, module, (int64_t)w->items[k].record, (msp_str){0}, what.p, err);
    msp_buf_release(&what);
    return st;
}

/* Ranks that are alone with their weights while most others are together. */
static msp_status
find_strangers(msp_audit_replicas *p, msp_audit_step *s, msp_error *err)
{
    size_t largest = 0;
    int64_t home = -1;

    for (size_t i = 0; i < p->n; i++) {
        size_t n = 0;

        for (size_t k = 0; k < p->n; k++)
            n += p->home[k] == (int64_t)i;
        if (n > largest) {
            largest = n;
            home = (int64_t)i;
        }
    }
    if (largest * 2 <= p->n || largest < 2)
        return MSP_OK;
    for (size_t i = 0; i < p->n; i++) {
        const msp_audit_weights *own = &s->ranks[i].weights, *model = &s->ranks[home].weights;
        size_t k = 0;
        msp_status st;

        if (p->home[i] == home || own->n == 0)
            continue;
        while (k + 1 < own->n) { /* the first that is not as theirs */
            const msp_audit_weight *w = weight_of(model, own->items[k].key, k);

            if (w == NULL || w->digest != own->items[k].digest)
                break;
            k++;
        }
        if (weight_of(model, own->items[k].key, k) == NULL)
            continue; /* another stage of a pipeline has other modules */
        p->parted[i] = true;
        st = say_parted(s, &s->ranks[i], own, k, largest, "differs, as most of its weights, from that of", err);
        if (st != MSP_OK)
            return st;
    }
    return MSP_OK;
}

/* ---- replicas of one home ---------------------------------------------------------------------------------------- */

/* What most replicas hold of a weight; all == 0: not counted yet. */
typedef struct ballot {
    uint64_t digest;
    size_t votes, all;
    bool is_zero;
} ballot;

typedef struct home {
    msp_audit_rank **ranks; /* those that are replicas and have not parted */
    size_t *places;         /* of theirs in msp_audit_replicas */
    size_t n;
    ballot *ballots;   /* by key */
    uint64_t *digests; /* room for those of one weight */
} home;

static const msp_audit_weights *
list_of(const msp_audit_rank *r, bool gradients)
{
    return gradients ? &r->gradients : &r->weights;
}

static int
by_digest(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* What most hold; the first one's on a tie. */
static void
count_votes(ballot *b, home *h, const msp_audit_weight *w, size_t hint, bool gradients)
{
    uint64_t first = 0;
    size_t run = 0;

    *b = (ballot){.is_zero = w->is_zero};
    for (size_t i = 0; i < h->n; i++) {
        const msp_audit_weight *theirs = weight_of(list_of(h->ranks[i], gradients), w->key, hint);

        if (theirs == NULL)
            continue;
        first = b->all == 0 ? theirs->digest : first;
        b->is_zero = b->is_zero && theirs->is_zero;
        h->digests[b->all++] = theirs->digest;
    }
    qsort(h->digests, b->all, sizeof(*h->digests), by_digest);
    for (size_t i = 0; i < b->all; i++) {
        run = i > 0 && h->digests[i] == h->digests[i - 1] ? run + 1 : 1;
        if (run > b->votes || (run == b->votes && h->digests[i] == first)) {
            b->votes = run;
            b->digest = h->digests[i];
        }
    }
}

/* Are more than half of what is there equal on most replicas, zeros left out? */
static bool
are_reduced(const home *h)
{
    const msp_audit_weights *w = &h->ranks[0]->gradients;
    double same = 0, all = 0;

    for (size_t k = 0; k < w->n; k++) {
        const ballot *b = &h->ballots[w->items[k].key];

        if (b->is_zero || b->all < 2)
            continue;
        all += (double)w->items[k].numel;
        same += b->votes * 2 > b->all ? (double)w->items[k].numel : 0;
    }
    return same * 2 > all;
}

/* The first weight, or gradient, in which each replica parts from most. */
static msp_status
find_parting(msp_audit_replicas *p, msp_audit_step *s, home *h, bool gradients, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; i < h->n; i++) {
        const msp_audit_weights *w = list_of(h->ranks[i], gradients);

        for (size_t k = 0; k < w->n; k++)
            if (h->ballots[w->items[k].key].all == 0)
                count_votes(&h->ballots[w->items[k].key], h, &w->items[k], k, gradients);
    }
    if (gradients && !are_reduced(h))
        return MSP_OK;
    for (size_t i = 0; i < h->n && st == MSP_OK; i++) {
        const msp_audit_weights *w = list_of(h->ranks[i], gradients);
        int64_t compared = 0;

        for (size_t k = 0; k < w->n && !p->parted[h->places[i]] && st == MSP_OK; k++) {
            const ballot *b = &h->ballots[w->items[k].key];

            compared += b->all > 1;
            if (b->digest == w->items[k].digest)
                continue;
            p->parted[h->places[i]] = true;
            st = say_parted(s, h->ranks[i], w, k, b->votes, "differs from that of", err);
        }
        *(gradients ? &s->result->gradients : &s->result->weights) += compared;
    }
    return st;
}

static void
gather_home(home *h, const msp_audit_replicas *p, const msp_audit_step *s, size_t number)
{
    h->n = 0;
    for (size_t i = 0; i < s->nranks; i++) {
        size_t at = place_of(p, s->ranks[i].rank, i);

        if (at == p->n || p->home[at] != (int64_t)number || p->parted[at])
            continue;
        h->ranks[h->n] = &s->ranks[i];
        h->places[h->n++] = at;
    }
}

static msp_status
compare_homes(msp_audit_replicas *p, msp_audit_step *s, size_t nkeys, msp_error *err)
{
    home h = {.ranks = msp_alloc_zero(s->nranks, sizeof(*h.ranks)),
              .places = msp_alloc_zero(s->nranks, sizeof(*h.places)),
              .digests = msp_alloc_zero(s->nranks, sizeof(*h.digests))};
    msp_status st = MSP_OK;

    if (h.ranks == NULL || h.places == NULL || h.digests == NULL)
        st = msp_error_set(err, MSP_E_NOMEM, "no memory for replicas");
    for (size_t i = 0; i < 2 * p->n && st == MSP_OK; i++) { /* of each home the weights, then the gradients */
        if (p->home[i / 2] != (int64_t)(i / 2))
            continue;
        gather_home(&h, p, s, i / 2);
        if (h.n < 2)
            continue;
        h.ballots = msp_alloc_zero(nkeys, sizeof(*h.ballots));
        st = h.ballots == NULL ? msp_error_set(err, MSP_E_NOMEM, "no memory for replicas")
                               : find_parting(p, s, &h, i % 2 == 1, err);
        msp_free(h.ballots);
    }
    msp_free(h.ranks);
    msp_free(h.places);
    msp_free(h.digests);
    return st;
}

msp_status
msp_audit_compare_replicas(msp_audit_replicas *p, msp_audit_step *s, msp_error *err)
{
    msp_map keys = {0};
    bool any = false;
    msp_status st;

    for (size_t i = 0; i < s->nranks; i++)
        any = any || s->ranks[i].weights.n > 0;
    if (!any)
        return MSP_OK;
    st = collect_keys(&keys, s, err);
    if (st == MSP_OK && !p->known) {
        st = find_homes(p, s, err);
        if (st == MSP_OK)
            st = find_strangers(p, s, err);
    }
    if (st == MSP_OK)
        st = compare_homes(p, s, keys.count, err);
    msp_map_release(&keys);
    return st;
}

void
msp_audit_replicas_release(msp_audit_replicas *p)
{
    msp_free(p->rank);
    msp_free(p->home);
    msp_free(p->parted);
    *p = (msp_audit_replicas){0};
}
