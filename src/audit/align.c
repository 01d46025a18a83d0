/*
 * align.c - which calls of a group's ranks belong together.
 *
 * Every rank makes the calls of a group in one order, which the calls' records say (in older dumps it is that of the
 * records), so the k-th call of each belongs to the k-th of the others. Where
 * they do not agree, most ranks are taken to be right, and a short look ahead decides whether the others miss a call,
 * have one too many, or made it differently; after that the walk goes on, so that one fault is told once.
 */
#include "audit/audit_parts.h"

#include <stdlib.h>
#include "core/alloc.h"
#include "core/vec.h"

enum { LOOK_AHEAD = 32 };

/* The calls of one rank in one group. */
typedef struct lane {
    msp_audit_rank *rank; /* NULL: the rank left no dump */
    int64_t number;
    msp_audit_call **calls;
    size_t n, cap, at;
    bool ended; /* it was said that this rank made fewer calls */
} lane;

typedef struct group {
    msp_str text;
    lane *lanes; /* in the group's order */
    size_t n;
} group;

static const msp_str nothing = {"", 0};

static msp_str
ahead(const lane *l, size_t by)
{
    return l->at + by < l->n ? l->calls[l->at + by]->signature : nothing;
}

/* How many calls from here l makes s; 0: it makes it now or not soon. */
static size_t
distance_to(const lane *l, msp_str s)
{
    for (size_t i = 1; s.len > 0 && i <= LOOK_AHEAD && l->at + i < l->n; i++)
        if (msp_str_eq(ahead(l, i), s))
            return i;
    return 0;
}

/* How many calls from here any of those who make wanted now makes s; 0: none does soon. Who is stuck has no next call.
 */
static size_t
distance_among(const group *g, msp_str wanted, msp_str s)
{
    size_t least = 0;

    for (size_t i = 0; i < g->n; i++) {
        size_t d =
            g->lanes[i].rank == NULL || !msp_str_eq(ahead(&g->lanes[i], 0), wanted) ? 0 : distance_to(&g->lanes[i], s);

        least = least == 0 || (d > 0 && d < least) ? d : least;
    }
    return least;
}

static int
show(msp_str s)
{
    return (int)(s.len < 160 ? s.len : 160);
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */

/* Do most ranks of its group wait in this call? */
static bool
is_waited_in(const msp_audit_step *s, const msp_audit_call *c)
{
    size_t n = 0;

    for (size_t i = 0; i < s->nranks; i++) {
        const msp_audit_rank *r = &s->ranks[i];
        const msp_audit_call *last = r->is_stuck ? &r->calls[r->ncalls - 1] : NULL;

        n += last != NULL && msp_str_eq(last->group, c->group) && msp_str_eq(last->signature, c->signature);
    }
    return n * 2 > c->nranks;
}

/* A call of this rank with the same signature that met nobody in another group: it was made in the wrong one. */
static const msp_audit_call *
made_elsewhere(const msp_audit_step *s, const lane *l, const group *g, msp_str signature)
{
    for (size_t i = 0; i < l->rank->ncalls; i++) {
        const msp_audit_call *c = &l->rank->calls[i];

        if (msp_str_eq(c->signature, signature) && !msp_str_eq(c->group, g->text) && c->nranks > 0 &&
            c->out.count == 0 && !is_waited_in(s, c))
            return c;
    }
    return NULL;
}

static msp_audit_finding *
last_finding(msp_audit_step *s)
{
    return &s->result->findings[s->result->nfindings - 1];
}

/* In the job it belongs where the others make the call; who makes another one there comes before who makes none. */
static msp_status
say_missing(msp_audit_step *s, const group *g, const lane *l, const lane *model, msp_str wanted, msp_error *err)
{
    const msp_audit_call *here = l->at < l->n ? l->calls[l->at] : NULL, *last = l->n > 0 ? l->calls[l->n - 1] : NULL;
    const msp_audit_call *other = made_elsewhere(s, l, g, wanted);
    const msp_audit_call *theirs = model->calls[model->at];
    const msp_audit_call *at = other != NULL ? other : here != NULL ? here : last;
    msp_buf what = {0};
    msp_status st;

    if (other != NULL)
        msp_buf_printf(&what,
                       "rank %lld makes %.*s in group %.*s, the others of %.*s make it there (%.*s on rank %lld)",
                       (long long)l->number, show(wanted), wanted.p, show(other->group), other->group.p, show(g->text),
                       g->text.p, show(theirs->name), theirs->name.p, (long long)model->number);
    else
        msp_buf_printf(&what, "rank %lld does not make %.*s (%.*s on rank %lld)", (long long)l->number, show(wanted),
                       wanted.p, show(theirs->name), theirs->name.p, (long long)model->number);
    if (other == NULL && here != NULL)
        msp_buf_printf(&what, "; its next call in the group is %.*s", show(here->name), here->name.p);
    else if (other == NULL && last != NULL)
        msp_buf_printf(&what, "; its last call in the group is %.*s", show(last->name), last->name.p);
    else if (other == NULL)
        msp_buf_text(&what, "; it makes no call in the group");
    if (other == NULL && here == NULL && (last == NULL || !msp_str_eq(last->name, l->rank->last)))
        msp_buf_printf(&what, ", its last record %.*s", show(l->rank->last), l->rank->last.p);
    st = msp_buf_status(&what, err);
    if (st == MSP_OK) /* without a call of its own, the stack of who waits for it is shown */
        st = msp_audit_add(s, MSP_AUDIT_CALLS, at != NULL ? l->rank : model->rank, at != NULL ? at->name : theirs->name,
                           (int64_t)(at != NULL ? at->record : theirs->record), g->text, what.p, err);
    if (st == MSP_OK) {
        last_finding(s)->rank = l->number;
        last_finding(s)->place = 2 * (int64_t)theirs->record + (other == NULL && here == NULL);
        last_finding(s)->inherited = other == NULL && here == NULL && l->rank->is_stuck;
    }
    msp_buf_release(&what);
    return st;
}

static msp_status
say_call(msp_audit_step *s, const group *g, const lane *l, const char *how, msp_str wanted,
         const msp_audit_call *theirs, msp_error *err)
{
    const msp_audit_call *c = l->calls[l->at];
    msp_buf what = {0};
    msp_status st;

    msp_buf_printf(&what, "rank %lld makes %.*s%s%.*s", (long long)l->number, show(c->signature), c->signature.p, how,
                   show(wanted), wanted.p);
    st = msp_buf_status(&what, err);
    if (st == MSP_OK)
        st = msp_audit_add(s, MSP_AUDIT_CALLS, l->rank, c->name, (int64_t)c->record, g->text, what.p, err);
    if (st == MSP_OK && theirs != NULL)
        last_finding(s)->place = 2 * (int64_t)theirs->record;
    msp_buf_release(&what);
    return st;
}

/* The call is one too many, unless another rank of the group is stuck and comes to make it no more. */
static msp_status
say_extra(msp_audit_step *s, const group *g, const lane *l, msp_error *err)
{
    msp_status st = say_call(s, g, l, ", which no other rank of the group makes", nothing, NULL, err);

    for (size_t i = 0; i < g->n && st == MSP_OK; i++)
        if (g->lanes[i].rank != NULL && g->lanes[i].at >= g->lanes[i].n && g->lanes[i].rank->is_stuck)
            last_finding(s)->inherited = true;
    return st;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* What most ranks do next; on a tie, what the first of them does. NULL: nobody has a call left. */
static const lane *
most_common(const group *g)
{
    const lane *best = NULL;
    size_t votes = 0;

    for (size_t i = 0; i < g->n; i++) {
        size_t n = 0;

        if (g->lanes[i].rank == NULL)
            continue;
        for (size_t k = 0; k < g->n; k++)
            n += g->lanes[k].rank != NULL && msp_str_eq(ahead(&g->lanes[i], 0), ahead(&g->lanes[k], 0));
        if (best == NULL || n > votes || (n == votes && best->at >= best->n)) {
            best = &g->lanes[i];
            votes = n;
        }
        if (votes * 2 > g->n)
            break;
    }
    return best;
}

/* Does this rank go on as most do behind its next call, with as many calls as they have? Then it makes that one in the
 * place of theirs. */
static bool
goes_on(const lane *l, const lane *model)
{
    return l->n - l->at == model->n - model->at && msp_str_eq(ahead(l, 1), ahead(model, 1));
}

/* One rank does not do what most do: say why, and bring it back where that is possible. True: it takes part. */
static msp_status
bring_back(msp_audit_step *s, const group *g, lane *l, const lane *model, bool *takes_part, msp_error *err)
{
    msp_str wanted = ahead(model, 0), made = ahead(l, 0);
    size_t extra = distance_to(l, wanted), missing = distance_among(g, wanted, made);
    msp_status st = MSP_OK;

    *takes_part = false;
    if (wanted.len == 0) { /* most have no call left */
        st = say_extra(s, g, l, err);
        l->at++;
    } else if (made.len == 0) {
        if (!l->ended)
            st = say_missing(s, g, l, model, wanted, err);
        l->ended = true;
    } else if (extra == 1 && missing == 1) {
        msp_audit_call *first = l->calls[l->at];

        st = say_call(s, g, l, " first, the others ", wanted, model->calls[model->at], err);
        l->calls[l->at] = l->calls[l->at + 1];
        l->calls[l->at + 1] = first;
        *takes_part = true;
    } else if (missing > 0 && (extra == 0 || missing <= extra)) {
        st = say_missing(s, g, l, model, wanted, err);
    } else if (extra > 0 && !goes_on(l, model)) {
        for (; extra > 0 && st == MSP_OK; extra--, l->at++)
            st = say_extra(s, g, l, err);
        *takes_part = true;
    } else {
        st = say_call(s, g, l, ", the others ", wanted, model->calls[model->at], err);
        l->at++;
    }
    return st;
}

msp_audit_set *
msp_audit_new_set(msp_audit_step *s, size_t n)
{
    msp_audit_set *set;

    if (!msp_vec_grow((void **)&s->sets, &s->sets_cap, s->nsets + 1, sizeof(*s->sets)))
        return NULL;
    set = &s->sets[s->nsets];
    *set = (msp_audit_set){.n = n, .step = s->step, .complete = true};
    set->ranks = msp_arena_alloc_zero(&s->arena, n, sizeof(*set->ranks));
    set->calls = msp_arena_alloc_zero(&s->arena, n, sizeof(*set->calls));
    return set->ranks == NULL || set->calls == NULL ? NULL : set;
}

static msp_status
walk_group(msp_audit_step *s, group *g, msp_error *err)
{
    const lane *model;

    while ((model = most_common(g)) != NULL) {
        msp_str wanted = ahead(model, 0);
        msp_audit_set *set;
        bool any = false;

        for (size_t i = 0; i < g->n; i++)
            any = any || (g->lanes[i].rank != NULL && g->lanes[i].at < g->lanes[i].n);
        if (!any)
            return MSP_OK;
        set = msp_audit_new_set(s, g->n);
        if (set == NULL)
            return msp_error_set(err, MSP_E_NOMEM, "no memory for the calls of a group");
        for (size_t i = 0; i < g->n; i++) {
            lane *l = &g->lanes[i];
            bool takes_part = l->rank != NULL && msp_str_eq(ahead(l, 0), wanted);

            if (l->rank != NULL && !takes_part) {
                msp_status st = bring_back(s, g, l, model, &takes_part, err);

                if (st != MSP_OK)
                    return st;
            }
            if (takes_part && l->at < l->n) {
                set->ranks[i] = l->rank;
                set->calls[i] = l->calls[l->at];
            }
        }
        for (size_t i = 0; i < g->n; i++) { /* only now: model is one of them, and findings look at it */
            set->complete = set->complete && set->calls[i] != NULL;
            g->lanes[i].at += set->calls[i] != NULL;
        }
        if (wanted.len > 0)
            s->nsets++;
    }
    return MSP_OK;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static msp_status
open_group(msp_audit_step *s, group *g, const msp_audit_call *c, msp_error *err)
{
    g->n = c->nranks > 0 ? c->nranks : s->nranks;
    g->lanes = msp_arena_alloc_zero(&s->arena, g->n, sizeof(*g->lanes));
    if (g->lanes == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "no memory for a group");
    for (size_t i = 0; i < g->n; i++) {
        g->lanes[i].number = c->nranks > 0 ? c->ranks[i] : s->ranks[i].rank;
        g->lanes[i].rank = msp_audit_rank_of(s, g->lanes[i].number);
    }
    return MSP_OK;
}

/* A group without argument is all ranks: in dumps that do not say so, it has the text that the whole list has. */
static msp_status
name_world(msp_audit_step *s, msp_error *err)
{
    msp_buf text = {0};
    msp_status st;
    char *p;

    for (size_t i = 0; i < s->nranks; i++)
        msp_buf_printf(&text, "%s%lld", i == 0 ? "[" : ", ", (long long)s->ranks[i].rank);
    msp_buf_char(&text, ']');
    st = msp_buf_status(&text, err);
    p = st == MSP_OK ? msp_arena_text(&s->arena, text.p, text.len) : NULL;
    for (size_t i = 0; p != NULL && i < s->nranks; i++)
        for (size_t k = 0; k < s->ranks[i].ncalls; k++)
            if (s->ranks[i].calls[k].group.len == 0)
                s->ranks[i].calls[k].group = (msp_str){p, text.len};
    msp_buf_release(&text);
    return p == NULL && st == MSP_OK ? msp_error_set(err, MSP_E_NOMEM, "no memory for a group") : st;
}

static bool
is_message(const msp_audit_call *c)
{
    return c->op == MSP_AUDIT_SEND || c->op == MSP_AUDIT_RECV;
}

static msp_status
fill_group(group *g, msp_audit_rank *r, msp_audit_call *c, msp_error *err)
{
    for (size_t i = 0; i < g->n; i++) {
        lane *l = &g->lanes[i];

        if (l->rank != r)
            continue;
        if (!msp_vec_grow((void **)&l->calls, &l->cap, l->n + 1, sizeof(*l->calls)))
            return msp_error_set(err, MSP_E_NOMEM, "no memory for the calls of a group");
        l->calls[l->n++] = c;
        return MSP_OK;
    }
    return MSP_OK; /* a rank that does not belong to the group: torch ignores such a call */
}

static int
by_order(const void *a, const void *b)
{
    const msp_audit_call *x = *(msp_audit_call *const *)a, *y = *(msp_audit_call *const *)b;

    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return (x > y) - (x < y); /* both are of one rank */
}

/* A call that nobody has waited for until the step's end stands last in the file. Its order says where it belongs. */
static void
put_in_order(lane *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->calls[i]->order < 0)
            return;
    if (l->n > 1)
        qsort(l->calls, l->n, sizeof(*l->calls), by_order);
}

static msp_status
align_groups(msp_audit_step *s, msp_error *err)
{
    msp_map map = {0};
    group *groups = NULL;
    size_t n = 0, cap = 0;
    msp_status st = MSP_OK;

    for (size_t i = 0; st == MSP_OK && i < s->nranks; i++)
        for (size_t k = 0; st == MSP_OK && k < s->ranks[i].ncalls; k++) {
            msp_audit_call *c = &s->ranks[i].calls[k];
            msp_map_entry *e;
            bool added = false;

            if (is_message(c))
                continue;
            e = msp_map_put(&map, c->group, (int64_t)n, &added);
            if (e == NULL || !msp_vec_grow((void **)&groups, &cap, n + 1, sizeof(*groups)))
                st = msp_error_set(err, MSP_E_NOMEM, "no memory for groups");
            else if (added) {
                groups[n] = (group){.text = c->group};
                st = open_group(s, &groups[n++], c, err);
            }
            if (st == MSP_OK)
                st = fill_group(&groups[e->value], &s->ranks[i], c, err);
        }
    for (size_t i = 0; st == MSP_OK && i < n; i++) {
        for (size_t k = 0; k < groups[i].n; k++)
            put_in_order(&groups[i].lanes[k]);
        st = walk_group(s, &groups[i], err);
    }
    s->result->groups = n > s->result->groups ? n : s->result->groups;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < groups[i].n; k++)
            msp_free(groups[i].lanes[k].calls);
    msp_free(groups);
    msp_map_release(&map);
    return st;
}

msp_status
msp_audit_align(msp_audit_step *s, msp_error *err)
{
    msp_status st = name_world(s, err);

    if (st == MSP_OK)
        st = align_groups(s, err);
    return st == MSP_OK ? msp_audit_align_messages(s, err) : st;
}
