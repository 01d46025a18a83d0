/*
 * judge.c - whose wrong call came first, and who only inherited it.
 *
 * A wrong call reaches another rank by communication that its own rank takes part in later, and goes on from there. So
 * what is wrong on a rank after such communication is inherited; what is wrong without it began there. When a call ran
 * is told by the communication that its rank had waited for before, then by what it goes before, then by its place
 * between the two.
 */
#include "compare/job/job.h"
#include "compare/job/notes.h"

#include <stdlib.h>
#include "core/alloc.h"
#include "core/vec.h"

const char *
msp_job_role_text(msp_job_role r)
{
    static const char *const texts[] = {"not compared", "clean", "first", "own", "inherited"};

    return texts[r];
}

/* A wrong call of a pair, to be put in order. */
typedef struct wrong_call {
    size_t pair;
    size_t step; /* counted from 0 */
    int after, before;
    size_t place;
} wrong_call;

typedef struct judge {
    msp_compare_result *out;
    msp_job_part *const *parts;
    wrong_call *wrong;
    size_t nwrong, cap;
} judge;

/* The pairs of one step whose order is known, by rank. */
typedef struct step {
    size_t number; /* counted from 0 */
    size_t *pairs;
    msp_order_rank *ranks;
    size_t n;
    msp_order order;
    size_t *received; /* per rank: the communication call that first brought something wrong; MSP_ORDER_NONE */
} step;

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

static void
step_release(step *s)
{
    msp_free(s->pairs);
    msp_free(s->ranks);
    msp_free(s->received);
    msp_order_release(&s->order);
}

/* Ranks go by their numbers; the pairs of a step come so already but for mixtures of named and unnamed ones. */
static void
insert_rank(step *s, size_t pair, const msp_job_part *p)
{
    size_t i = s->n++;

    for (; i > 0 && s->ranks[i - 1].rank > p->rank; i--) {
        s->ranks[i] = s->ranks[i - 1];
        s->pairs[i] = s->pairs[i - 1];
    }
    s->pairs[i] = pair;
    s->ranks[i] = (msp_order_rank){p->rank, p->ncalls > 0 ? &p->calls[0].comm : NULL, sizeof(msp_job_call), p->ncalls};
}

static msp_status
step_open(step *s, const judge *j, size_t first, size_t end, msp_error *err)
{
    s->pairs = msp_alloc(end - first, sizeof(*s->pairs));
    s->ranks = msp_alloc(end - first, sizeof(*s->ranks));
    s->received = msp_alloc(end - first, sizeof(*s->received));
    if (s->pairs == NULL || s->ranks == NULL || s->received == NULL)
        return no_memory(err);
    for (size_t i = first; i < end; i++)
        if (j->parts[i] != NULL)
            insert_rank(s, i, j->parts[i]);
    return msp_order_make(&s->order, s->ranks, s->n, err);
}

static const msp_job_spot *
spot_of(const step *s, const judge *j, size_t rank)
{
    return &j->parts[s->pairs[rank]]->wrong;
}

/* Does the rank take part in its communication call number i with something wrong? from: only what began there counts.
 */
static bool
carries_wrong(const step *s, const judge *j, size_t rank, size_t i, size_t from)
{
    const msp_job_spot *w = spot_of(s, j, rank);

    if (s->received[rank] < i)
        return true;
    return (from == MSP_ORDER_NONE || from == rank) && w->found && !w->is_weak &&
           (w->is_result ? w->before < i : w->before <= i);
}

/* What is wrong goes from rank to rank along the communication; from one rank alone, or from all that have something.
 */
static void
spread_wrong(step *s, const judge *j, size_t from)
{
    const msp_order *o = &s->order;

    for (size_t i = 0; i < s->n; i++)
        s->received[i] = MSP_ORDER_NONE;
    for (size_t q = 0; q < o->nsequence; q++) {
        size_t carriers = 0, one = MSP_ORDER_NONE;

        for (size_t c = o->head[o->sequence[q]]; c != MSP_ORDER_NONE; c = o->next_member[c]) {
            size_t rank = o->rank[c], i = c - o->base[rank];

            if (msp_order_call(&s->ranks[rank], i)->type != MSP_COMM_DST && carries_wrong(s, j, rank, i, from)) {
                carriers++;
                one = c;
            }
        }
        for (size_t c = o->head[o->sequence[q]]; carriers > 0 && c != MSP_ORDER_NONE; c = o->next_member[c]) {
            size_t rank = o->rank[c], i = c - o->base[rank];

            if (msp_order_call(&s->ranks[rank], i)->type != MSP_COMM_SRC && (carriers > 1 || one != c) &&
                i < s->received[rank])
                s->received[rank] = i;
        }
    }
}

static bool
is_reached(const step *s, const judge *j, size_t rank)
{
    const msp_job_spot *w = spot_of(s, j, rank);

    return s->received[rank] != MSP_ORDER_NONE &&
           (w->is_result ? s->received[rank] <= w->before : s->received[rank] < w->before);
}

/* When the wrong call of a rank ran: even numbers lie between layers of communication, odd ones in a layer. */
static wrong_call
time_of(const step *s, const judge *j, size_t rank)
{
    const msp_job_spot *w = spot_of(s, j, rank);
    const int *layer = s->order.layer + s->order.base[rank];
    size_t n = s->ranks[rank].count;
    wrong_call c = {.pair = s->pairs[rank], .step = s->number, .place = w->place};

    if (w->is_result) {
        c.after = c.before = 2 * layer[w->before] + 1;
        return c;
    }
    c.after = w->before > 0 ? 2 * layer[w->before - 1] + 2 : 0;
    c.before = w->before < n ? 2 * layer[w->before] : c.after;
    return c;
}

/* The limits of the table alone found it, and it came from nowhere. */
static void
pass_over(msp_compare_place *p)
{
    while (p->nstack > 0)
        msp_free(p->stack[--p->nstack]);
    msp_free(p->wrong);
    msp_free(p->why);
    msp_free(p->after);
    p->wrong = p->why = p->after = NULL;
    p->role = MSP_JOB_CLEAN;
}

static msp_status
note_wrong(judge *j, const step *s, size_t rank, bool inherited, msp_error *err)
{
    msp_compare_place *p = &j->out->pairs[s->pairs[rank]].place;

    if (spot_of(s, j, rank)->is_weak && !inherited && !is_reached(s, j, rank)) {
        pass_over(p);
        return MSP_OK;
    }
    p->role = inherited || is_reached(s, j, rank) ? MSP_JOB_INHERITED : MSP_JOB_OWN;
    if (p->role == MSP_JOB_INHERITED && !inherited) {
        p->through = msp_result_text(msp_str_of(j->parts[s->pairs[rank]]->calls[s->received[rank]].name));
        if (p->through == NULL)
            return no_memory(err);
    }
    if (!msp_vec_grow((void **)&j->wrong, &j->cap, j->nwrong + 1, sizeof(*j->wrong)))
        return no_memory(err);
    j->wrong[j->nwrong++] = time_of(s, j, rank);
    return MSP_OK;
}

/* Of the earliest wrong call: how many other ranks have it too, inherited it, or are wrong for reasons of their own. */
static void
count_others(judge *j, step *s)
{
    msp_compare_job *job = &j->out->job;
    const msp_compare_place *first = &j->out->pairs[job->first].place;
    size_t from = 0;

    while (s->pairs[from] != (size_t)job->first)
        from++;
    spread_wrong(s, j, from);
    for (size_t i = 0; i < s->n; i++) {
        const msp_compare_place *p = &j->out->pairs[s->pairs[i]].place;

        if (i == from || p->wrong == NULL)
            continue;
        if (is_reached(s, j, i))
            job->inherited++;
        else if (strcmp(p->wrong, first->wrong) == 0)
            job->alike++;
        else
            job->own++;
    }
}

static int
by_time(const void *a, const void *b)
{
    const wrong_call *x = a, *y = b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->after != y->after)
        return x->after < y->after ? -1 : 1;
    if (x->before != y->before)
        return x->before < y->before ? -1 : 1;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return (x->pair > y->pair) - (x->pair < y->pair);
}

/* Number the wrong calls of a step, which follow those of the steps before. */
static void
number_calls(judge *j, size_t from)
{
    if (j->nwrong > from)
        qsort(j->wrong + from, j->nwrong - from, sizeof(*j->wrong), by_time);
    for (size_t i = from; i < j->nwrong; i++) {
        const wrong_call *c = &j->wrong[i], *last = i > 0 ? c - 1 : NULL;
        bool same = last != NULL && last->step == c->step && last->after == c->after && last->before == c->before &&
                    last->place == c->place;

        j->out->pairs[c->pair].place.order = same ? j->out->pairs[last->pair].place.order : (int64_t)i + 1;
    }
}

static msp_status
judge_step(judge *j, size_t number, size_t first, size_t end, msp_error *err)
{
    bool inherited = j->out->job.first >= 0;
    size_t before = j->nwrong;
    step s = {.number = number};
    msp_status st = step_open(&s, j, first, end, err);

    if (st == MSP_OK)
        spread_wrong(&s, j, MSP_ORDER_NONE);
    for (size_t i = 0; i < s.n && st == MSP_OK; i++)
        if (spot_of(&s, j, i)->found)
            st = note_wrong(j, &s, i, inherited, err);
    if (st == MSP_OK) {
        number_calls(j, before);
        if (!inherited && j->nwrong > before) {
            j->out->job.first = (int64_t)j->wrong[before].pair;
            j->out->pairs[j->out->job.first].place.role = MSP_JOB_FIRST;
            count_others(j, &s);
        }
    }
    step_release(&s);
    return st;
}

/* ---- all steps --------------------------------------------------------------------------------------------------- */

/* What has no calls to be ordered, such as saved points, has a wrong row all the same. */
static msp_status
judge_alone(msp_compare_pair *p, const msp_job_part *part, msp_error *err)
{
    if (p->status != MSP_OK && p->place.wrong == NULL)
        p->place.role = MSP_JOB_NOT_COMPARED;
    else if (p->place.wrong == NULL && (part != NULL || !p->suspect.found))
        p->place.role = MSP_JOB_CLEAN;
    if (part != NULL || !p->suspect.found)
        return MSP_OK;
    p->place.role = MSP_JOB_OWN;
    p->place.wrong = msp_result_text(msp_str_of(p->suspect.npu_name));
    p->place.why = msp_result_text(msp_str_of(p->suspect.verdict));
    return p->place.wrong == NULL || p->place.why == NULL ? no_memory(err) : MSP_OK;
}

bool
msp_job_same_step(const msp_compare_pair *a, const msp_compare_pair *b)
{
    return msp_job_step(a) == msp_job_step(b) && strcmp(a->group, b->group) == 0;
}

msp_status
msp_job_judge(msp_compare_result *out, msp_job_part *const *parts, msp_error *err)
{
    judge j = {.out = out, .parts = parts};
    size_t first = 0, end, number = 0;
    msp_status st = MSP_OK;

    out->job.first = -1;
    for (size_t i = 0; i < out->npairs; i++)
        out->job.given = out->job.given || (out->npairs > 1 && out->pairs[i].kind == MSP_DUMP_API);
    for (size_t i = 0; i < out->npairs && st == MSP_OK; i++)
        st = judge_alone(&out->pairs[i], parts[i], err);
    for (; first < out->npairs && st == MSP_OK; first = end) {
        end = first;
        while (end < out->npairs && msp_job_same_step(&out->pairs[first], &out->pairs[end]))
            end++;
        st = judge_step(&j, number++, first, end, err);
    }
    msp_free(j.wrong);
    return st == MSP_OK && out->job.given ? msp_job_note_all(out, parts, err) : st;
}
