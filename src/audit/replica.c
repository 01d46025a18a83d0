/*
 * replica.c - weights and gradients that must stay equal.
 *
 * Which ranks hold a weight too is said where a DistributedDataParallel was recorded (replicas.json), and for DTensors
 * by themselves (dtensor.c). Of what nobody says it, those ranks are taken together in the first step whose weights
 * agree in more than half of their elements: shards of one tensor differ in nearly all, replicas in none or, where a
 * fault has happened before, in some modules. Ranks that are alone while others are together are named; ranks that are
 * all alone hold shards. A module that has no majority for one of its weights in the first step is in shards, as
 * experts and tensor-parallel layers are between larger ones that all ranks have: it is left out. Of two ranks that
 * differ in one module alone that one is wrong.
 *
 * Gradients of replicas are equal after their reduction. What a backward pass shows is mostly from before it, and so is
 * what a step that only accumulates has left: where an optimizer's step was not seen to take them, only if more than
 * half of the elements are equal on most replicas is one that differs a finding.
 */
#include "audit/audit_parts.h"

#include <stdlib.h>
#include "core/alloc.h"
#include "core/vec.h"

/* The four lists of a rank, in the order in which a step makes them. */
typedef enum list_kind { WEIGHTS, GRADIENTS, HELD, APPLIED, NLISTS } list_kind;

static msp_audit_weights *
list_of(msp_audit_rank *r, list_kind kind)
{
    msp_audit_weights *const lists[] = {&r->weights, &r->gradients, &r->held, &r->applied};

    return lists[kind];
}

static bool
are_gradients(list_kind kind)
{
    return kind == GRADIENTS || kind == APPLIED;
}

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

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "Module.fc.Linear.forward.0.weight" and "Module.fc.Linear.parameters_grad.weight" are "Module.fc.Linear.weight". */
static msp_str
parameter_of(msp_arena *a, msp_str name)
{
    static const char *const sections[] = {".forward.", ".parameters_grad."};
    const char *at = NULL;
    size_t first, rest = 0;
    char *text;

    for (size_t i = 0; i < 2 && at == NULL; i++) {
        at = msp_str_find(name, msp_str_of(sections[i]));
        rest = at == NULL ? 0 : (size_t)(at - name.p) + strlen(sections[i]) - 1;
    }
    if (at == NULL)
        return name;
    first = (size_t)(at - name.p);
    if (rest + 1 < name.len && is_digit(name.p[rest + 1])) /* the number of the call */
        for (rest++; rest < name.len && is_digit(name.p[rest]);)
            rest++;
    text = msp_arena_alloc(a, first + name.len - rest + 1, 1);
    if (text == NULL)
        return (msp_str){0};
    memcpy(text, name.p, first);
    memcpy(text + first, name.p + rest, name.len - rest);
    return (msp_str){text, first + name.len - rest};
}

/* What stands before the last dot. */
static msp_str
module_of(msp_str name)
{
    while (name.len > 0 && name.p[name.len - 1] != '.')
        name.len--;
    name.len -= name.len > 0;
    return name;
}

/* What the names of a step are, as numbers. */
typedef struct numbers {
    msp_map keys;       /* names of all four lists */
    msp_map parameters; /* names of parameters */
    msp_map groups;     /* ids of groups, from 1 */
    int64_t *said;      /* of one rank: the group of a parameter, 0: nobody says it */
} numbers;

static bool
is_in_group(const msp_audit_rank *r, int64_t group)
{
    for (size_t i = 0; i < r->ngroups; i++)
        if (r->groups[i] == group)
            return true;
    return false;
}

static bool
add_group(msp_audit_rank *r, int64_t group)
{
    if (!msp_vec_grow((void **)&r->groups, &r->groups_cap, r->ngroups + 1, sizeof(*r->groups)))
        return false;
    r->groups[r->ngroups++] = group;
    return true;
}

/* One rank's: which group of replicas each weight and gradient belongs to, as the rank says of its parameters. */
static bool
number_rank(numbers *n, msp_audit_step *s, msp_audit_rank *r)
{
    for (int l = 0; l < NLISTS; l++) {
        msp_audit_weights *w = list_of(r, (list_kind)l);

        if (!msp_audit_give_keys(&n->keys, w))
            return false;
        for (size_t k = 0; k < w->n; k++) {
            msp_str name = parameter_of(&s->arena, w->names[k]);
            msp_map_entry *e =
                name.p == NULL ? NULL : msp_map_put(&n->parameters, name, (int64_t)n->parameters.count, NULL);

            if (e == NULL)
                return false;
            w->items[k].parameter = e->value;
        }
    }
    msp_free(n->said);
    n->said = msp_alloc_zero(n->parameters.count + 1, sizeof(*n->said));
    if (n->said == NULL)
        return false;
    for (size_t k = 0; k < r->held.n; k++) {
        const msp_audit_weight *w = &r->held.items[k];
        msp_map_entry *e =
            w->group.len == 0 ? NULL : msp_map_put(&n->groups, w->group, (int64_t)n->groups.count + 1, NULL);

        n->said[w->parameter] = e == NULL ? 0 : e->value;
        if (e != NULL && !is_in_group(r, e->value) && !add_group(r, e->value))
            return false;
    }
    for (int l = 0; l < NLISTS; l++) {
        msp_audit_weights *w = list_of(r, (list_kind)l);

        for (size_t k = 0; k < w->n; k++)
            w->items[k].said = n->said[w->items[k].parameter];
    }
    return true;
}

static const msp_audit_weight *
weight_of(const msp_audit_weights *w, const msp_audit_weight *like, size_t hint)
{
    if (hint < w->n && w->items[hint].key == like->key)
        return w->items[hint].said == like->said ? &w->items[hint] : NULL;
    for (size_t k = 0; k < w->n; k++)
        if (w->items[k].key == like->key)
            return w->items[k].said == like->said ? &w->items[k] : NULL;
    return NULL;
}

/* ---- who is whose replica ---------------------------------------------------------------------------------------- */

/* True when a and b agree in more than half of the elements that both hold. */
static bool
are_alike(const msp_audit_weights *a, const msp_audit_weights *b)
{
    double same = 0, all = 0;

    for (size_t k = 0; k < a->n; k++) {
        const msp_audit_weight *w = a->items[k].said != 0 ? NULL : weight_of(b, &a->items[k], k);

        if (w != NULL) {
            all += (double)w->numel;
            same += w->digest == a->items[k].digest ? (double)w->numel : 0;
        }
    }
    return all > 0 && same * 2 > all;
}

/* By which list replicas are found: what the modules were called with, or what an optimizer has. */
static list_kind
first_list(const msp_audit_step *s)
{
    for (size_t i = 0; i < s->nranks; i++)
        if (s->ranks[i].weights.n > 0)
            return WEIGHTS;
    return HELD;
}

static msp_status
find_homes(msp_audit_replicas *p, const msp_audit_step *s, list_kind by, msp_error *err)
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
            if (p->home[k] == (int64_t)k && are_alike(list_of(&s->ranks[k], by), list_of(&s->ranks[i], by))) {
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

/* What replicas.json says stands behind all records of the step, and in none of them. */
static void
put_behind(msp_audit_finding *f, const msp_audit_rank *r)
{
    f->place = 2 * ((int64_t)r->records + f->record);
    f->record = -1;
}

static msp_status
say_parted(msp_audit_step *s, msp_audit_rank *r, list_kind kind, size_t k, size_t same, const char *how, msp_error *err)
{
    static const char *const kinds[] = {"", "the gradient ", "", "the gradient "};
    const msp_audit_weights *w = list_of(r, kind);
    msp_str name = w->names[k], module = module_of(name);
    msp_buf what = {0};
    msp_status st;

    msp_buf_printf(&what, "%s%.*s of rank %lld %s %zu other replica%s%s", kinds[kind],
                   (int)(name.len < 200 ? name.len : 200), name.p, (long long)r->rank, how, same, same == 1 ? "" : "s",
                   same == 1 ? "" : ", which are equal");
    st = msp_buf_status(&what, err);
    if (st == MSP_OK)
        st = msp_audit_add(s, MSP_AUDIT_REPLICAS, r, module, (int64_t)w->items[k].record, (msp_str){0}, what.p, err);
    if (st == MSP_OK && kind >= HELD)
        put_behind(&s->result->findings[s->result->nfindings - 1], r);
    msp_buf_release(&what);
    return st;
}

/* Ranks that are alone with their weights while most others are together. */
static msp_status
find_strangers(msp_audit_replicas *p, msp_audit_step *s, list_kind by, msp_error *err)
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
        const msp_audit_weights *own = list_of(&s->ranks[i], by), *model = list_of(&s->ranks[home], by);
        size_t k = 0;
        msp_status st;

        if (p->home[i] == home || own->n == 0)
            continue;
        while (k + 1 < own->n) { /* the first that is not as theirs */
            const msp_audit_weight *w = weight_of(model, &own->items[k], k);

            if (w == NULL || (w->digest != own->items[k].digest && w->said == 0))
                break;
            k++;
        }
        if (own->items[k].said != 0 || weight_of(model, &own->items[k], k) == NULL)
            continue; /* another stage of a pipeline has other modules */
        p->parted[i] = true;
        st = say_parted(s, &s->ranks[i], by, k, largest, "differs, as most of its weights, from that of", err);
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
    bool has_sizes; /* of several sizes, as shards are */
} ballot;

/* Ranks that hold the same weights, by their own word or, group 0, by what they held in the first step. */
typedef struct home {
    int64_t group;
    msp_audit_rank **ranks; /* those that are replicas and have not parted */
    size_t *places;         /* of theirs in msp_audit_replicas */
    size_t n;
    ballot *ballots;   /* by key */
    uint64_t *digests; /* room for those of one weight */
    const numbers *numbers;
    const msp_map *shards; /* modules that are left out where nobody says who holds them */
} home;

static int
by_digest(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* What most hold; the first one's on a tie. */
static void
count_votes(ballot *b, home *h, const msp_audit_weight *w, size_t hint, list_kind kind)
{
    uint64_t first = 0;
    size_t run = 0;

    *b = (ballot){.is_zero = w->is_zero};
    for (size_t i = 0; i < h->n; i++) {
        const msp_audit_weight *theirs = weight_of(list_of(h->ranks[i], kind), w, hint);

        if (theirs == NULL)
            continue;
        first = b->all == 0 ? theirs->digest : first;
        b->is_zero = b->is_zero && theirs->is_zero;
        b->has_sizes = b->has_sizes || theirs->numel != w->numel;
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

static msp_str
module_of_weight(const home *h, const msp_audit_weight *w)
{
    return module_of(h->numbers->parameters.entries[w->parameter].key);
}

/* The ballot of a weight that is compared in this home, NULL: it is not. */
static ballot *
ballot_of(const home *h, const msp_audit_weight *w)
{
    if (w->said != h->group || (h->group == 0 && msp_map_get(h->shards, module_of_weight(h, w)) != NULL))
        return NULL;
    return h->ballots[w->key].has_sizes ? NULL : &h->ballots[w->key];
}

static void
count_all_votes(home *h, size_t nkeys, list_kind kind)
{
    memset(h->ballots, 0, nkeys * sizeof(*h->ballots));
    for (size_t i = 0; i < h->n; i++) {
        const msp_audit_weights *w = list_of(h->ranks[i], kind);

        for (size_t k = 0; k < w->n; k++) {
            ballot *b = ballot_of(h, &w->items[k]);

            if (b != NULL && b->all == 0)
                count_votes(b, h, &w->items[k], k, kind);
        }
    }
}

/* Were these gradients reduced? Those that an optimizer took, by replicas that say so; others where more than half of
 * what is there is equal on most, zeros left out. */
static bool
are_reduced(const home *h, list_kind kind)
{
    const msp_audit_weights *w = list_of(h->ranks[0], kind);
    double same = 0, all = 0;
    bool taken = kind == APPLIED && h->group > 0;

    for (size_t k = 0; k < w->n; k++) {
        const ballot *b = ballot_of(h, &w->items[k]);

        taken = taken && (b == NULL || w->items[k].is_applied);
        if (b == NULL || b->is_zero || b->all < 2)
            continue;
        all += (double)w->items[k].numel;
        same += b->votes * 2 > b->all ? (double)w->items[k].numel : 0;
    }
    return taken || same * 2 > all;
}

/* The first weight, or gradient, in which each replica parts from most. */
static msp_status
find_parting(msp_audit_replicas *p, msp_audit_step *s, home *h, list_kind kind, msp_error *err)
{
    msp_status st = MSP_OK;

    if (are_gradients(kind) && !are_reduced(h, kind))
        return MSP_OK;
    for (size_t i = 0; i < h->n && st == MSP_OK; i++) {
        const msp_audit_weights *w = list_of(h->ranks[i], kind);
        int64_t compared = 0;

        for (size_t k = 0; k < w->n && !p->parted[h->places[i]] && st == MSP_OK; k++) {
            const ballot *b = ballot_of(h, &w->items[k]);

            compared += b != NULL && b->all > 1;
            if (b == NULL || b->digest == w->items[k].digest)
                continue;
            p->parted[h->places[i]] = true;
            st = say_parted(s, h->ranks[i], kind, k, b->votes, "differs from that of", err);
        }
        *(are_gradients(kind) ? &s->result->gradients : &s->result->weights) += compared;
    }
    return st;
}

/* ---- homes ------------------------------------------------------------------------------------------------------- */

/* The ranks of h->group; of group 0 those whose first is this one. */
static void
gather_home(home *h, const msp_audit_replicas *p, msp_audit_step *s, size_t first)
{
    h->n = 0;
    for (size_t i = 0; i < s->nranks; i++) {
        size_t at = place_of(p, s->ranks[i].rank, i);

        if (at == p->n || p->parted[at] ||
            (h->group > 0 ? !is_in_group(&s->ranks[i], h->group) : p->home[at] != (int64_t)first))
            continue;
        h->ranks[h->n] = &s->ranks[i];
        h->places[h->n++] = at;
    }
}

/* In the first step: modules that have no majority for one of their weights. */
static bool
find_shards(msp_audit_replicas *p, const home *h, list_kind by)
{
    msp_map found = {0};
    bool ok = true;

    for (size_t i = 0; i < h->n && ok; i++) {
        const msp_audit_weights *w = list_of(h->ranks[i], by);

        for (size_t k = 0; k < w->n && ok; k++) {
            const ballot *b = ballot_of(h, &w->items[k]);

            if (b != NULL && !w->items[k].is_constant && b->all > 1 && b->votes * 2 <= b->all)
                ok = msp_map_put(&found, module_of_weight(h, &w->items[k]), 0, NULL) != NULL;
        }
    }
    for (size_t i = 0; i < found.count && ok && (h->n > 2 || found.count > 1); i++) {
        msp_str name = found.entries[i].key;
        char *kept = msp_arena_text(&p->arena, name.p, name.len);

        ok = kept != NULL && msp_map_put(&p->shards, (msp_str){kept, name.len}, 0, NULL) != NULL;
    }
    msp_map_release(&found);
    return ok;
}

/* ---- stages that began alike --------------------------------------------------------------------------------------
 */

static bool
sends_to_another(const home *h, size_t of)
{
    const msp_audit_rank *r = h->ranks[of];

    for (size_t k = 0; k < r->ncalls; k++)
        for (size_t i = 0; i < h->n && r->calls[k].op == MSP_AUDIT_SEND; i++)
            if (i != of && r->calls[k].root == h->ranks[i]->rank)
                return true;
    return false;
}

/* The stages of a pipeline may begin with the same weights, where all have one seed: these hand messages to each other,
 * and no majority holds most of their weights any more. */
static bool
are_stages(const home *h, list_kind kind)
{
    const msp_audit_weights *w = list_of(h->ranks[0], kind);
    double own = 0, all = 0;
    bool speak = false;

    for (size_t k = 0; k < w->n; k++) {
        const ballot *b = ballot_of(h, &w->items[k]);

        if (b == NULL || b->all < 2)
            continue;
        all += (double)w->items[k].numel;
        own += b->votes * 2 <= b->all ? (double)w->items[k].numel : 0;
    }
    for (size_t i = 0; i < h->n && own * 2 > all && !speak; i++)
        speak = sends_to_another(h, i);
    return speak;
}

/* Only those are still together that hold the same now. */
static void
split_home(msp_audit_replicas *p, const home *h, list_kind kind)
{
    for (size_t i = 0; i < h->n; i++) {
        int64_t *mine = &p->home[h->places[i]];

        *mine = (int64_t)h->places[i];
        for (size_t k = 0; k < i; k++)
            if (p->home[h->places[k]] == (int64_t)h->places[k] &&
                are_alike(list_of(h->ranks[k], kind), list_of(h->ranks[i], kind))) {
                *mine = (int64_t)h->places[k];
                break;
            }
    }
}

static msp_status
compare_home(msp_audit_replicas *p, msp_audit_step *s, home *h, size_t first, msp_error *err)
{
    const size_t nkeys = h->numbers->keys.count;
    msp_status st = MSP_OK;

    for (int l = 0; l < NLISTS && st == MSP_OK; l++) {
        gather_home(h, p, s, first);
        if (h->n < 2)
            continue;
        count_all_votes(h, nkeys, (list_kind)l);
        if (h->group == 0 && !are_gradients((list_kind)l) && are_stages(h, (list_kind)l)) {
            split_home(p, h, (list_kind)l);
            gather_home(h, p, s, first);
            count_all_votes(h, nkeys, (list_kind)l);
        }
        if (p->is_first && h->group == 0 && !are_gradients((list_kind)l) && !find_shards(p, h, (list_kind)l))
            return msp_error_set(err, MSP_E_NOMEM, "no memory for replicas");
        st = find_parting(p, s, h, (list_kind)l, err);
    }
    return st;
}

static msp_status
compare_homes(msp_audit_replicas *p, msp_audit_step *s, const numbers *n, msp_error *err)
{
    home h = {.ranks = msp_alloc_zero(s->nranks, sizeof(*h.ranks)),
              .places = msp_alloc_zero(s->nranks, sizeof(*h.places)),
              .digests = msp_alloc_zero(s->nranks, sizeof(*h.digests)),
              .ballots = msp_alloc_zero(n->keys.count + 1, sizeof(*h.ballots)),
              .numbers = n,
              .shards = &p->shards};
    msp_status st = MSP_OK;

    if (h.ranks == NULL || h.places == NULL || h.digests == NULL || h.ballots == NULL)
        st = msp_error_set(err, MSP_E_NOMEM, "no memory for replicas");
    for (size_t i = 1; i <= n->groups.count && st == MSP_OK; i++) {
        h.group = (int64_t)i;
        st = compare_home(p, s, &h, 0, err);
    }
    h.group = 0;
    for (size_t i = 0; i < p->n && st == MSP_OK; i++)
        if (p->home[i] == (int64_t)i)
            st = compare_home(p, s, &h, i, err);
    msp_free(h.ranks);
    msp_free(h.places);
    msp_free(h.digests);
    msp_free(h.ballots);
    return st;
}

msp_status
msp_audit_compare_replicas(msp_audit_replicas *p, msp_audit_step *s, msp_error *err)
{
    numbers n = {0};
    bool any = false, ok = true;
    msp_status st = MSP_OK;

    for (size_t i = 0; i < s->nranks; i++)
        any = any || s->ranks[i].weights.n > 0 || s->ranks[i].held.n > 0;
    if (!any)
        return MSP_OK;
    for (size_t i = 0; i < s->nranks && ok; i++)
        ok = number_rank(&n, s, &s->ranks[i]);
    if (!ok)
        st = msp_error_set(err, MSP_E_NOMEM, "no memory for the names of weights");
    p->is_first = !p->known;
    if (st == MSP_OK && !p->known) {
        st = find_homes(p, s, first_list(s), err);
        if (st == MSP_OK)
            st = find_strangers(p, s, first_list(s), err);
    }
    if (st == MSP_OK)
        st = compare_homes(p, s, &n, err);
    msp_map_release(&n.keys);
    msp_map_release(&n.parameters);
    msp_map_release(&n.groups);
    msp_free(n.said);
    return st;
}

void
msp_audit_replicas_release(msp_audit_replicas *p)
{
    msp_free(p->rank);
    msp_free(p->home);
    msp_free(p->parted);
    msp_map_release(&p->shards);
    msp_arena_release(&p->arena);
    *p = (msp_audit_replicas){0};
}
