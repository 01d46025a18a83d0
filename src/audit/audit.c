/* audit.c - see msprobe/audit.h: one step after the other, its ranks read and its sets checked in parallel. */
#include "audit/audit_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include "core/alloc.h"
#include "core/path.h"
#include "core/pool.h"
#include "core/vec.h"

const char *
msp_audit_kind_text(msp_audit_kind k)
{
    static const char *const words[] = {"rank", "calls", "values", "replicas"};

    return words[k];
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */

/* Without stack.json, or when it cannot be read, a finding has no stack: that is no reason to say nothing. */
static void
read_stack(msp_audit_finding *f, const msp_audit_rank *r, msp_str call)
{
    msp_str dir = msp_path_dir(r->place->path);
    msp_stack *stack = NULL;
    msp_buf path = {0};
    msp_error err;
    int64_t depth;

    msp_buf_str(&path, dir);
    msp_buf_text(&path, "/stack.json");
    if (!path.failed && msp_stack_open(&stack, path.p, &err) == MSP_OK &&
        (depth = msp_stack_depth(stack, call.p, call.len)) > 0) {
        f->stack = msp_alloc_zero((size_t)depth, sizeof(*f->stack));
        for (int64_t i = 0; f->stack != NULL && i < depth; i++) {
            msp_str frame = {0};

            frame.p = msp_stack_frame(stack, call.p, call.len, (size_t)i, &frame.len);
            f->stack[f->nstack] = msp_str_copy(frame);
            f->nstack += f->stack[f->nstack] != NULL;
        }
    }
    msp_stack_close(stack);
    msp_buf_release(&path);
}

msp_status
msp_audit_add(msp_audit_step *s, msp_audit_kind kind, const msp_audit_rank *r, msp_str call, int64_t record,
              msp_str group, const char *what, msp_error *err)
{
    msp_audit_result *res = s->result;
    msp_audit_finding *f;

    if (!msp_vec_grow((void **)&res->findings, &res->cap, res->nfindings + 1, sizeof(*res->findings)))
        return msp_error_set(err, MSP_E_NOMEM, "no memory for findings");
    f = &res->findings[res->nfindings];
    *f = (msp_audit_finding){.kind = kind, .step = s->step, .rank = r != NULL ? r->rank : -1, .record = record};
    f->place = 2 * record;
    f->call = msp_str_copy(call);
    f->group = msp_str_copy(group);
    f->what = msp_str_copy(msp_str_of(what));
    res->nfindings++;
    if (f->call == NULL || f->group == NULL || f->what == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "no memory for findings");
    if (r != NULL && call.len > 0)
        read_stack(f, r, call);
    return MSP_OK;
}

/* Findings of one kind come in the order of the job: by place in the ranks' files, then by rank. */
static int
by_place(const void *a, const void *b)
{
    const msp_audit_finding *x = a, *y = b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static void
release_finding(msp_audit_finding *f)
{
    for (size_t k = 0; k < f->nstack; k++)
        msp_free(f->stack[k]);
    msp_free(f->stack);
    msp_free(f->call);
    msp_free(f->group);
    msp_free(f->what);
}

/* Of the findings from first on: who only waits for another rank is not told beside what that rank does. */
static void
drop_inherited(msp_audit_result *r, size_t first)
{
    size_t kept = first;
    bool any = false;

    for (size_t i = first; i < r->nfindings; i++)
        any = any || !r->findings[i].inherited;
    for (size_t i = first; i < r->nfindings && any; i++)
        if (r->findings[i].inherited)
            release_finding(&r->findings[i]);
        else
            r->findings[kept++] = r->findings[i];
    r->nfindings = any ? kept : r->nfindings;
}

msp_audit_rank *
msp_audit_rank_of(const msp_audit_step *s, int64_t number)
{
    size_t low = 0, high = s->nranks; /* sorted by number */

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (s->ranks[middle].rank < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->nranks && s->ranks[low].rank == number ? &s->ranks[low] : NULL;
}

/* ---- ranks that are missing or stopped -----------------------------------------------------------------------------
 */

static msp_status
say_absent(msp_audit_step *s, int64_t rank, const char *why, msp_error *err)
{
    msp_buf what = {0};
    msp_status st;

    msp_buf_printf(&what, "rank %lld %s", (long long)rank, why);
    st = msp_buf_status(&what, err);
    if (st == MSP_OK)
        st = msp_audit_add(s, MSP_AUDIT_RANK, NULL, (msp_str){0}, -1, (msp_str){0}, what.p, err);
    if (st == MSP_OK)
        s->result->findings[s->result->nfindings - 1].rank = rank;
    msp_buf_release(&what);
    return st;
}

/* Groups name ranks that left nothing. Each is said once. */
static msp_status
find_absent(msp_audit_step *s, msp_error *err)
{
    int64_t *said = NULL;
    size_t nsaid = 0, cap = 0;
    msp_status st = MSP_OK;

    for (size_t i = 0; st == MSP_OK && i < s->nranks; i++)
        for (size_t k = 0; st == MSP_OK && k < s->ranks[i].ncalls; k++) {
            const msp_audit_call *c = &s->ranks[i].calls[k];

            for (size_t g = 0; st == MSP_OK && g < c->nranks; g++) {
                bool known = msp_audit_rank_of(s, c->ranks[g]) != NULL;

                for (size_t n = 0; n < nsaid && !known; n++)
                    known = said[n] == c->ranks[g];
                if (known)
                    continue;
                if (!msp_vec_grow((void **)&said, &cap, nsaid + 1, sizeof(*said)))
                    st = msp_error_set(err, MSP_E_NOMEM, "no memory for ranks");
                else {
                    said[nsaid++] = c->ranks[g];
                    st = say_absent(s, c->ranks[g], "belongs to the job and left no dump of this step", err);
                }
            }
        }
    msp_free(said);
    return st;
}

/* Calls of a group that a rank is no member of: its dump is another job's, which was copied beside these. */
static msp_status
find_strangers(msp_audit_step *s, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; st == MSP_OK && i < s->nranks; i++) {
        const msp_audit_rank *r = &s->ranks[i];
        bool said = false;

        for (size_t k = 0; st == MSP_OK && k < r->ncalls && !said; k++) {
            const msp_audit_call *c = &r->calls[k];
            char what[256];

            said = c->is_told;
            for (size_t g = 0; g < c->nranks && said; g++)
                said = c->ranks[g] != r->rank;
            if (!said)
                continue;
            snprintf(what, sizeof(what),
                     "rank %lld makes calls of group %.*s, to which it does not belong: is its dump of another job?",
                     (long long)r->rank, (int)(c->group.len < 120 ? c->group.len : 120), c->group.p);
            st = msp_audit_add(s, MSP_AUDIT_RANK, r, c->name, (int64_t)c->record, c->group, what, err);
        }
    }
    return st;
}

static msp_status
find_stopped(msp_audit_step *s, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; st == MSP_OK && i < s->nranks; i++) {
        msp_audit_rank *r = &s->ranks[i];
        msp_buf what = {0};

        if (!r->cut)
            continue;
        msp_buf_printf(&what, "rank %lld stopped early: its dump.json ends after %zu records, the last is %.*s",
                       (long long)r->rank, r->records, (int)(r->last.len < 200 ? r->last.len : 200),
                       r->last.p == NULL ? "" : r->last.p);
        st = msp_buf_status(&what, err);
        if (st == MSP_OK)
            st = msp_audit_add(s, MSP_AUDIT_RANK, r, r->last, (int64_t)r->records - 1, (msp_str){0}, what.p, err);
        msp_buf_release(&what);
    }
    return st;
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

static void
read_rank(size_t i, void *payload)
{
    msp_audit_step *s = payload;

    s->ranks[i].status = msp_audit_rank_read(&s->ranks[i], &s->ranks[i].err);
}

static void
check_set(size_t i, void *payload)
{
    msp_audit_step *s = payload;

    msp_audit_check(&s->sets[i]);
}

static bool
has_no_result(const msp_audit_set *set)
{
    return set->calls[0] != NULL && set->calls[0]->op == MSP_AUDIT_BARRIER;
}

static msp_status
tell_sets(msp_audit_step *s, msp_error *err)
{
    msp_audit_result *r = s->result;
    msp_status st = MSP_OK;

    for (size_t i = 0; st == MSP_OK && i < s->nsets; i++) {
        const msp_audit_set *set = &s->sets[i];

        r->matched += set->complete;
        r->by_tensors += set->complete && set->by == MSP_BY_TENSORS;
        r->by_statistics += set->complete && set->by == MSP_BY_STATISTICS;
        r->by_checksums += set->complete && set->by == MSP_BY_CHECKSUMS;
        r->unchecked += set->complete && set->by == MSP_BY_NOTHING && !has_no_result(set);
        if (set->wrong) {
            const msp_audit_call *c = set->calls[set->blamed];
            msp_buf what = {0};

            msp_buf_printf(&what, "%.*s on ", (int)(c->signature.len < 160 ? c->signature.len : 160), c->signature.p);
            if (set->everybody)
                msp_buf_printf(&what, "all %zu ranks of its group: %s", set->n, set->what);
            else
                msp_buf_printf(&what, "rank %lld: %s", (long long)set->ranks[set->blamed]->rank, set->what);
            st = msp_buf_status(&what, err);
            if (st == MSP_OK)
                st = msp_audit_add(s, MSP_AUDIT_VALUES, set->ranks[set->blamed], c->name, (int64_t)c->record, c->group,
                                   what.p, err);
            msp_buf_release(&what);
        }
    }
    return st;
}

msp_status
msp_audit_judge_step(msp_audit_step *s, msp_audit_replicas *replicas, msp_error *err)
{
    const size_t first = s->result->nfindings;
    msp_status st, lost = MSP_OK;

    for (size_t i = 0; i < s->nranks; i++) {
        msp_audit_rank *r = &s->ranks[i];

        r->is_stuck = r->ncalls > 0 && !r->calls[r->ncalls - 1].is_finished;
        s->result->calls += (int64_t)r->ncalls;
        s->result->has_order = s->result->has_order || r->has_order;
    }
    st = find_absent(s, err);
    if (st == MSP_OK)
        st = find_strangers(s, err);
    if (st == MSP_OK)
        st = find_stopped(s, err);
    if (st == MSP_OK)
        st = msp_audit_align(s, err);
    drop_inherited(s->result, first);
    if (st == MSP_OK) {
        msp_pool_run(s->nsets, s->threads, check_set, s);
        for (size_t i = 0; i < s->nsets && lost == MSP_OK; i++)
            if (s->sets[i].lost != NULL)
                lost = msp_audit_cut_error(s->sets[i].loser, s->sets[i].lost->data_name, err);
        st = tell_sets(s, err);
    }
    if (st == MSP_OK)
        st = msp_audit_compare_replicas(replicas, s, err);
    if (st == MSP_OK)
        st = msp_audit_compare_dtensors(s, err);
    return st == MSP_OK ? lost : st;
}

/* The first error of a rank, or of what is said of all; the others are audited all the same. */
static msp_status
audit_step(msp_audit_step *s, msp_audit_replicas *replicas, msp_error *err)
{
    msp_status st = MSP_OK, judged;
    msp_error one;

    msp_pool_run(s->nranks, s->threads, read_rank, s);
    for (size_t i = 0; i < s->nranks && st == MSP_OK; i++) {
        st = s->ranks[i].status;
        one = s->ranks[i].err;
    }
    if (st == MSP_OK)
        return msp_audit_judge_step(s, replicas, err);
    if (err != NULL)
        *err = one;
    judged = st == MSP_E_NOMEM ? MSP_OK : msp_audit_judge_step(s, replicas, NULL);
    return judged == MSP_E_NOMEM ? msp_error_set(err, judged, "no memory for the audit") : st;
}

/* ---- the job ----------------------------------------------------------------------------------------------------- */

/* Places of one step, the unreadable ones said as findings. */
static msp_status
open_step(msp_audit_step *s, const msp_dump_place *places, size_t n, msp_error *err)
{
    s->ranks = msp_alloc_zero(n, sizeof(*s->ranks));
    if (s->ranks == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "no memory for %zu ranks", n);
    for (size_t i = 0; i < n; i++) {
        if (places[i].kind != MSP_DUMP_API || places[i].rank == MSP_DUMP_NO_NUMBER)
            continue;
        if (places[i].error != NULL) {
            msp_status st = say_absent(s, places[i].rank, "left a folder without a dump.json", err);

            if (st != MSP_OK)
                return st;
            continue;
        }
        if (s->nranks > 0 && s->ranks[s->nranks - 1].rank == places[i].rank)
            continue;
        s->ranks[s->nranks].place = &places[i];
        s->ranks[s->nranks++].rank = places[i].rank;
    }
    return MSP_OK;
}

static void
close_step(msp_audit_step *s)
{
    for (size_t i = 0; i < s->nranks; i++)
        msp_audit_rank_release(&s->ranks[i]);
    msp_free(s->ranks);
    msp_free(s->sets);
    msp_arena_release(&s->arena);
}

/* Nothing to check and nothing found: that is no clean job. */
static bool
has_nothing(const msp_audit_result *r)
{
    return r->nfindings == 0 && r->calls == 0 && r->weights == 0 && r->gradients == 0 && r->replicated == 0;
}

msp_status
msp_audit_run(msp_audit_result *out, const msp_audit_options *opt, msp_error *err)
{
    msp_dump_layout layout = {0};
    msp_audit_replicas replicas = {0};
    msp_status st, first = MSP_OK;
    msp_error one;

    *out = (msp_audit_result){0};
    st = msp_dump_find(&layout, opt->path, err);
    for (size_t i = 0, n; st == MSP_OK && i < layout.count; i += n) {
        msp_audit_step s = {.result = out, .step = layout.places[i].step, .threads = opt->threads};

        for (n = 1; i + n < layout.count && layout.places[i + n].step == s.step &&
                    strcmp(layout.places[i + n].group, layout.places[i].group) == 0;)
            n++;
        st = open_step(&s, &layout.places[i], n, err);
        if (st == MSP_OK && s.nranks > 0) {
            msp_status this_one = audit_step(&s, &replicas, &one);

            out->steps++;
            out->ranks = s.nranks > out->ranks ? s.nranks : out->ranks;
            if (this_one != MSP_OK && first == MSP_OK) {
                first = this_one;
                if (err != NULL)
                    *err = one;
            }
        }
        close_step(&s);
    }
    if (st == MSP_OK && out->ranks == 0)
        st = msp_error_set(err, MSP_E_INVALID,
                           "%s: no dump.json in a folder with a rank's number; the audit needs the ranks of a job",
                           opt->path);
    else if (st == MSP_OK && first == MSP_OK && has_nothing(out))
        first = msp_error_set(err, MSP_E_INVALID,
                              "%s: nothing could be checked: there are no communication calls (Distributed.*), no "
                              "weights of replicas and no replicated DTensors of several ranks",
                              opt->path);
    if (out->nfindings > 1)
        qsort(out->findings, out->nfindings, sizeof(*out->findings), by_place);
    msp_audit_replicas_release(&replicas);
    msp_dump_layout_release(&layout);
    return st != MSP_OK ? st : first;
}

void
msp_audit_result_release(msp_audit_result *r)
{
    for (size_t i = 0; i < r->nfindings; i++)
        release_finding(&r->findings[i]);
    msp_free(r->findings);
    *r = (msp_audit_result){0};
}
