/*
 * replica.c - weights that must stay equal.
 *
 * Nothing in a dump says which ranks are replicas of each other. In the first step, those are taken together whose
 * weights agree in more than half of their elements: shards of one tensor differ in nearly all, replicas in none or,
 * where a fault has happened before, in some modules. Ranks that are alone while others are together are named; ranks
 * that are all alone hold shards.
 */
#include "audit/audit_parts.h"

#include "core/alloc.h"

/* Give each name its number, the same on all ranks, and leave the digests in a table [rank][key]. */
static msp_status
collect_keys(msp_map *keys, msp_audit_step *s, msp_error *err)
{
    for (size_t i = 0; i < s->nranks; i++)
        for (size_t k = 0; k < s->ranks[i].nweights; k++) {
            msp_map_entry *e = msp_map_put(keys, s->ranks[i].weight_names[k], (int64_t)keys->count, NULL);

            if (e == NULL)
                return msp_error_set(err, MSP_E_NOMEM, "no memory for the names of weights");
            s->ranks[i].weights[k].key = e->value;
        }
    return MSP_OK;
}

static const msp_audit_weight *
weight_of(const msp_audit_rank *r, int64_t key, size_t hint)
{
    if (hint < r->nweights && r->weights[hint].key == key)
        return &r->weights[hint];
    for (size_t k = 0; k < r->nweights; k++)
        if (r->weights[k].key == key)
            return &r->weights[k];
    return NULL;
}

/* True when a and b agree in more than half of the elements that both hold. */
static bool
are_alike(const msp_audit_rank *a, const msp_audit_rank *b)
{
    double same = 0, all = 0;

    for (size_t k = 0; k < a->nweights; k++) {
        const msp_audit_weight *w = weight_of(b, a->weights[k].key, k);

        if (w != NULL) {
            all += (double)w->numel;
            same += w->digest == a->weights[k].digest ? (double)w->numel : 0;
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
            if (p->home[k] == (int64_t)k && are_alike(&s->ranks[k], &s->ranks[i])) {
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

/* The value that most replicas of a home hold for this weight, and how many hold it; the first one's on a tie. */
static size_t
majority(const msp_audit_replicas *p, const msp_audit_step *s, int64_t home, const msp_audit_weight *w, size_t hint,
         uint64_t *digest, size_t *all)
{
    size_t best = 0;

    *all = 0;
    for (size_t i = 0; i < s->nranks; i++) {
        size_t at = place_of(p, s->ranks[i].rank, i), votes = 0;
        const msp_audit_weight *mine;

        if (at == p->n || p->home[at] != home || (mine = weight_of(&s->ranks[i], w->key, hint)) == NULL)
            continue;
        ++*all;
        for (size_t k = 0; k < s->nranks; k++) {
            size_t there = place_of(p, s->ranks[k].rank, k);
            const msp_audit_weight *theirs;

            if (there == p->n || p->home[there] != home)
                continue;
            theirs = weight_of(&s->ranks[k], w->key, hint);
            votes += theirs != NULL && theirs->digest == mine->digest;
        }
        if (votes > best) {
            best = votes;
            *digest = mine->digest;
        }
        if (best * 2 > s->nranks)
            break;
    }
    return best;
}

static msp_status
say_parted(msp_audit_step *s, const msp_audit_rank *r, size_t k, size_t same, const char *how, msp_error *err)
{
    msp_str name = r->weight_names[k], module = name;
    msp_buf what = {0};
    msp_status st;

    while (module.len > 0 && module.p[module.len - 1] != '.')
        module.len--;
    module.len -= module.len > 0;
    msp_buf_printf(&what, "%.*s of rank %lld %s %zu other replica%s%s", (int)(name.len < 200 ? name.len : 200), name.p,
                   (long long)r->rank, how, same, same == 1 ? "" : "s", same == 1 ? "" : ", which are equal");
    st = msp_buf_status(&what, err);
    if (st == MSP_OK)
        st = msp_audit_add(s, MSP_AUDIT_REPLICAS, r, module, (int64_t)r->weights[k].record, (msp_str){0}, what.p, err);
    msp_buf_release(&what);
    return st;
}

/* The first weight in which rank i of the step parts from its replicas. */
static msp_status
find_parting(msp_audit_replicas *p, msp_audit_step *s, size_t i, size_t at, msp_error *err)
{
    msp_audit_rank *r = &s->ranks[i];

    for (size_t k = 0; k < r->nweights; k++) {
        uint64_t digest = r->weights[k].digest;
        size_t all, same = majority(p, s, p->home[at], &r->weights[k], k, &digest, &all);

        s->result->weights += same > 1 || all > 1; /* majority() stops counting where most agree */
        if (digest != r->weights[k].digest) {
            p->parted[at] = true;
            return say_parted(s, r, k, same, "differs from that of", err);
        }
    }
    return MSP_OK;
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
        const msp_audit_rank *r = &s->ranks[i], *model = &s->ranks[home];
        size_t k = 0;
        msp_status st;

        if (p->home[i] == home || r->nweights == 0)
            continue;
        while (k + 1 < r->nweights) { /* the first that is not as theirs */
            const msp_audit_weight *w = weight_of(model, r->weights[k].key, k);

            if (w == NULL || w->digest != r->weights[k].digest)
                break;
            k++;
        }
        if (weight_of(model, r->weights[k].key, k) == NULL)
            continue; /* another stage of a pipeline has other modules */
        p->parted[i] = true;
        st = say_parted(s, r, k, largest, "differs, as most of its weights, from that of", err);
        if (st != MSP_OK)
            return st;
    }
    return MSP_OK;
}

msp_status
msp_audit_compare_replicas(msp_audit_replicas *p, msp_audit_step *s, msp_error *err)
{
    msp_map keys = {0};
    bool any = false;
    msp_status st;

    for (size_t i = 0; i < s->nranks; i++)
        any = any || s->ranks[i].nweights > 0;
    if (!any)
        return MSP_OK;
    st = collect_keys(&keys, s, err);
    if (st == MSP_OK && !p->known) {
        st = find_homes(p, s, err);
        if (st == MSP_OK)
            st = find_strangers(p, s, err);
    }
    for (size_t i = 0; st == MSP_OK && i < s->nranks; i++) {
        size_t at = place_of(p, s->ranks[i].rank, i);

        if (at < p->n && !p->parted[at])
            st = find_parting(p, s, i, at, err);
    }
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
