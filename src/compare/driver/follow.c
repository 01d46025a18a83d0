/* follow.c - a run in a process that works for process 0. */
#include "compare/page/page_run.h"
#include "compare/run/chosen_layout.h"
#include "compare/driver/mappings.h"
#include "compare/driver/pairs.h"
#include "compare/share/share.h"
#include "core/alloc.h"

void
msp_compare_dismiss(msp_link *link, msp_compare_result *out)
{
    if (link->rank == 0)
        msp_share_end(link, NULL, false, &out->lost);
}

/* A process that works for process 0: the same options, the time and the pairs from there. */
static msp_status
run_followed(msp_run *run, const char *output_dir, const msp_share_setup *setup, size_t *lost, msp_error *err)
{
    msp_plan plan = {.pairs = msp_alloc_zero(setup->npairs, sizeof(*plan.pairs)), .npairs = setup->npairs};
    msp_compare_result out = {.pairs = msp_alloc_zero(setup->npairs, sizeof(*out.pairs)), .npairs = setup->npairs};
    msp_run_jobs j = {run, &plan, &out, msp_alloc_zero(setup->npairs, sizeof(*j.parts)), false};
    msp_share share = {run->opt->link, run, &plan, &out, j.parts, msp_run_pairs, &j};
    msp_page_run page = {0};
    msp_status st = MSP_OK;

    run->plan = &plan;
    run->timestamp = setup->timestamp;
    if (plan.pairs == NULL || out.pairs == NULL || j.parts == NULL)
        st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (st == MSP_OK && run->opt->html && run->timestamp != NULL) {
        st = msp_page_run_open(&page, output_dir, run->timestamp, setup->npairs, err);
        run->page = &page;
    }
    if (st == MSP_OK)
        st = msp_share_follow(&share, err);
    for (size_t i = 0; i < setup->npairs && plan.pairs != NULL && j.parts != NULL; i++) {
        msp_pack_plan_release(&plan.pairs[i]);
        msp_da_rank_close(j.parts[i].da);
        msp_job_part_close(j.parts[i].job);
    }
    msp_page_run_release(&page);
    msp_free(plan.pairs);
    msp_free(j.parts);
    out.npairs = out.pairs != NULL ? out.npairs : 0;
    *lost = out.lost;
    msp_compare_result_release(&out);
    return st;
}

/* The layout of this run; where one was to be proposed, process 0 has done that. */
static msp_status
follow_layout(msp_run *run, msp_layout *layout, const char *output_dir, const char *timestamp, msp_error *err)
{
    char *path;
    msp_status st;

    run->timestamp = timestamp;
    path = msp_run_proposed_path(run, output_dir);
    st = msp_run_open_layout(run, layout, path, err);
    msp_free(path);
    return st;
}

msp_status
msp_run_follow(const msp_compare_options *opt, size_t *lost, msp_error *err)
{
    const char *output_dir = opt->output_dir != NULL ? opt->output_dir : "./output";
    msp_run_mappings mappings;
    msp_share_setup setup;
    msp_run run;
    msp_status st;

    msp_run_begin(&run, &mappings, opt);
    st = msp_share_join(&setup, opt->link, err);
    if (st == MSP_OK)
        st = msp_run_read_mappings(&run, &mappings, err);
    if (st == MSP_OK)
        st = follow_layout(&run, &mappings.layout, output_dir, setup.timestamp, err);
    if (st == MSP_OK)
        st = run_followed(&run, output_dir, &setup, lost, err);
    else if (st == MSP_E_CANCELLED)
        st = MSP_OK; /* process 0 needs no help, or says itself what is wrong */
    msp_free(setup.timestamp);
    msp_run_end(&run, &mappings);
    return st;
}
