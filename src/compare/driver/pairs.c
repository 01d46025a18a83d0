/* pairs.c - see pairs.h. */
#include "compare/driver/pairs.h"

#include <stdlib.h>
#include "compare/graph/graph.h"
#include "compare/share/share.h"
#include "compare/verdict/verdict.h"
#include "core/alloc.h"
#include "core/pool.h"

msp_status
msp_run_name_pair(msp_compare_pair *out, const msp_plan_pair *plan, msp_error *err)
{
    const msp_dump_place *n = plan->npu, *b = plan->bench, *known = n != NULL ? n : b;

    out->kind = known->kind;
    out->step = n != NULL ? n->step : MSP_DUMP_NO_NUMBER;
    out->rank = n != NULL ? n->rank : MSP_DUMP_NO_NUMBER;
    out->bench_step = b != NULL ? b->step : MSP_DUMP_NO_NUMBER;
    out->bench_rank = b != NULL ? b->rank : MSP_DUMP_NO_NUMBER;
    out->group = msp_result_text(msp_str_of(known->group));
    out->label = msp_result_text(msp_str_of(plan->label));
    out->npu_path = n == NULL ? NULL : msp_result_text(msp_str_of(n->path));
    out->bench_path = b == NULL ? NULL : msp_result_text(msp_str_of(b->path));
    if (out->group == NULL || out->label == NULL || (n != NULL && out->npu_path == NULL) ||
        (b != NULL && out->bench_path == NULL))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    return MSP_OK;
}

static void
lacks_a_side(msp_compare_pair *out, const msp_plan_pair *plan)
{
    msp_buf text = {0};

    msp_buf_printf(&text, "%s: there is no such dump on the %s side (the other is %s)",
                   plan->label[0] != '\0' ? plan->label : msp_dump_kind_file(out->kind),
                   plan->npu == NULL ? "NPU" : "bench", (plan->npu != NULL ? plan->npu : plan->bench)->path);
    out->status = MSP_E_NOT_FOUND;
    out->error = msp_result_text(msp_buf_view(&text));
    msp_buf_release(&text);
}

/* The error of a folder that could not be read, on either side; NULL when both could. */
static const char *
folder_error(const msp_plan_pair *plan)
{
    if (plan->npu != NULL && plan->npu->error != NULL)
        return plan->npu->error;
    return plan->bench != NULL ? plan->bench->error : NULL;
}

static void
folder_failed(msp_compare_pair *out, const char *why)
{
    out->status = MSP_E_NOT_FOUND;
    out->error = msp_result_text(msp_str_of(why));
}

static void
run_pair(size_t i, void *payload)
{
    msp_run_jobs *j = payload;
    const msp_plan_pair *plan = &j->plan->pairs[i];
    msp_compare_pair *out = &j->out->pairs[i];
    const char *why = folder_error(plan);

    if (j->run->cancelled)
        out->status = MSP_E_CANCELLED;
    else if (why != NULL)
        folder_failed(out, why);
    else if (plan->npu == NULL || plan->bench == NULL)
        lacks_a_side(out, plan);
    else if (msp_graph_wanted(j->run->opt))
        msp_graph_compare(j->run, plan, out);
    else
        msp_pair_compare(j->run, plan, out, &j->parts[i]);
    if (j->plan->npairs > 1) /* what is said about all of them does not look at single results */
        msp_verdict_forget_results(&out->verdict);
    (void)msp_run_pair_done(j->run);
}

/* Some of the pairs. */
typedef struct chosen_pairs {
    msp_run_jobs *j;
    const size_t *pairs;
} chosen_pairs;

static void
run_chosen(size_t i, void *payload)
{
    const chosen_pairs *c = payload;

    run_pair(c->pairs[i], c->j);
}

void
msp_run_pairs(const size_t *pairs, size_t n, void *payload)
{
    chosen_pairs chosen = {payload, pairs};
    msp_run *run = chosen.j->run;

    if (n > 1 && n >= (size_t)run->threads) {
        run->row_threads = 1;
        msp_pool_run(n, run->threads, run_chosen, &chosen);
        return;
    }
    run->row_threads = run->threads;
    for (size_t i = 0; i < n; i++)
        run_chosen(i, &chosen);
}

static bool
can_be_read(const msp_plan_pair *p)
{
    return p->npu != NULL && p->bench != NULL && folder_error(p) == NULL;
}

typedef struct weighed {
    size_t pair;
    int64_t weight;
} weighed;

static int
by_weight(const void *a, const void *b)
{
    const weighed *x = a, *y = b;

    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return (x->pair > y->pair) - (x->pair < y->pair);
}

/* Pairs in this order: those that nothing is to be read of, then by their size, the largest first. */
static msp_status
put_in_order(size_t *out, size_t *nreadable, const msp_plan *plan, msp_error *err)
{
    weighed *all = msp_alloc(plan->npairs, sizeof(*all));

    *nreadable = 0;
    if (all == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (size_t i = 0; i < plan->npairs; i++) {
        bool readable = can_be_read(&plan->pairs[i]);

        all[i] = (weighed){i, readable ? msp_plan_weight(&plan->pairs[i]) : INT64_MAX};
        *nreadable += readable;
    }
    qsort(all, plan->npairs, sizeof(*all), by_weight);
    for (size_t i = 0; i < plan->npairs; i++)
        out[i] = all[i].pair;
    msp_free(all);
    return MSP_OK;
}

msp_status
msp_run_all(msp_run_jobs *j, msp_error *err)
{
    size_t n = j->plan->npairs, nreadable;
    size_t *order = msp_alloc(n, sizeof(*order));
    msp_link *link = j->run->opt->link;
    msp_share share = {link, j->run, j->plan, j->out, j->parts, msp_run_pairs, j};
    msp_status st = MSP_OK;

    if (order == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    if (link != NULL && link->size > 1 && !msp_graph_wanted(j->run->opt)) {
        st = put_in_order(order, &nreadable, j->plan, err);
        if (st == MSP_OK)
            msp_run_pairs(order, n - nreadable, j);
        if (st == MSP_OK && nreadable > 0)
            st = msp_share_lead(&share, order + (n - nreadable), nreadable, err);
        msp_share_end(link, j->run, j->run->cancelled, &j->out->lost);
        j->ended = true;
    } else {
        msp_run_pairs(order, n, j);
    }
    msp_free(order);
    return st;
}
