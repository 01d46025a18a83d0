/* run.c - msp_compare_run(): all pairs, some beside each other, and what is said about them together. */
#include "compare/explain/answer.h"
#include "compare/graph/graph.h"
#include "compare/job/job.h"
#include "compare/page/page_run.h"
#include "compare/run/chosen_layout.h"
#include "compare/run/claim.h"
#include "compare/driver/pairs.h"
#include "compare/share/share.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/cpu.h"
#include "core/log.h"

/* One analysis for each folder of results: a step is compared with itself only. */
static msp_status
analyse(msp_run_jobs *j, msp_error *err)
{
    size_t n = j->plan->npairs, first = 0, found = 0;
    msp_da_rank **da = msp_alloc(n, sizeof(*da));
    msp_status st = da == NULL ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;

    while (first < n && st == MSP_OK) {
        const char *dir = j->plan->pairs[first].out_dir;
        size_t end = first, ranks = 0;

        for (; end < n && strcmp(j->plan->pairs[end].out_dir, dir) == 0; end++) {
            da[end] = j->parts[end].da;
            ranks += da[end] != NULL;
        }
        if (ranks > 0) {
            (void)msp_run_progress(j->run, "analyse", j->plan->pairs[first].label, 0, 0);
            st = msp_da_run(j->out, &da[first], end - first, dir, err);
            for (; found < j->out->nfirst; found++)
                j->out->first[found].step = j->out->pairs[first].step;
        }
        first = end;
    }
    msp_free(da);
    return st;
}

/* Which rank went wrong first, and the table that says so. */
static msp_status
judge_job(msp_run_jobs *j, const char *output_dir, msp_error *err)
{
    msp_job_part **parts;
    msp_status st;

    if (j->run->cancelled)
        return MSP_OK;
    parts = msp_alloc(j->plan->npairs, sizeof(*parts));
    if (parts == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (size_t i = 0; i < j->plan->npairs; i++)
        parts[i] = j->parts[i].job;
    st = msp_job_judge(j->out, parts, err);
    if (st == MSP_OK && j->out->job.given && j->run->opt->explain == NULL)
        st = msp_job_write(j->out, j->run->opt, output_dir, j->run->timestamp, err);
    msp_free(parts);
    return st;
}

static msp_status
run_plan(msp_run *run, msp_plan *plan, const char *output_dir, msp_compare_result *out, msp_error *err)
{
    msp_run_jobs j = {run, plan, out, msp_alloc_zero(plan->npairs, sizeof(*j.parts)), false};
    msp_status st = MSP_OK;

    out->pairs = msp_alloc_zero(plan->npairs, sizeof(*out->pairs));
    out->npairs = out->pairs != NULL ? plan->npairs : 0;
    if (out->pairs == NULL || j.parts == NULL)
        st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    run->progress.pairs_total = plan->npairs;
    for (size_t i = 0; i < plan->npairs && st == MSP_OK; i++) {
        st = msp_run_name_pair(&out->pairs[i], &plan->pairs[i], err);
        if (!msp_graph_wanted(run->opt))
            run->progress.json_total += msp_plan_weight(&plan->pairs[i]);
    }
    msp_run_expect(run, 0, run->progress.json_total);
    if (st == MSP_OK) {
        st = msp_run_all(&j, err);
        if (!run->opt->no_failure_log)
            msp_run_log_failures(out);
        if (run->names != NULL)
            msp_name_map_warn(run->names, run->opt);
        if (run->layout != NULL && !run->cancelled && strcmp(run->opt->layout, "auto") != 0)
            msp_layout_warn(run->layout, run->opt->layout);
        if (st == MSP_OK && run->opt->diff_analyze)
            st = analyse(&j, err);
    }
    if (st == MSP_OK && !msp_graph_wanted(run->opt))
        st = judge_job(&j, output_dir, err);
    if (st == MSP_OK)
        st = msp_answer_run(out, err);
    if (st == MSP_OK && run->page != NULL && !run->cancelled)
        st = msp_page_run_write(run->page, out, run->opt, err);
    if (st == MSP_OK)
        st = msp_run_sum_up(out, run, err);
    if (run->opt->link != NULL && !j.ended)
        msp_share_end(run->opt->link, NULL, false, &out->lost);
    for (size_t i = 0; i < plan->npairs && j.parts != NULL; i++) {
        msp_da_rank_close(j.parts[i].da);
        msp_job_part_close(j.parts[i].job);
    }
    msp_free(j.parts);
    return st;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static msp_status
check_options(const msp_compare_options *opt, msp_error *err)
{
    bool maps = opt->data_mapping != NULL || opt->api_mapping != NULL || opt->cell_mapping != NULL ||
                opt->layer_mapping != NULL;

    if (opt->npu_path == NULL || opt->npu_path[0] == '\0' || opt->bench_path == NULL || opt->bench_path[0] == '\0')
        return msp_error_set(err, MSP_E_INVALID, "two paths are needed: the NPU's dump and the bench's");
    if (opt->framework == MSP_PYTORCH && (opt->cell_mapping != NULL || opt->api_mapping != NULL))
        return msp_error_set(err, MSP_E_INVALID, "Argument -cm or -am is not supported in PyTorch framework");
    if (opt->layout != NULL && (maps || opt->diff_analyze || msp_graph_wanted(opt)))
        return msp_error_set(err, MSP_E_INVALID,
                             "a layout cannot be used together with a mapping, -da or static graphs");
    if (opt->fuzzy && maps)
        msp_warning("fuzzy matching has no effect together with a mapping");
    return MSP_OK;
}

/* What only the older tools' tables have is not left out in silence. */
static msp_status
check_legacy(const msp_plan *plan, const msp_compare_options *opt, msp_error *err)
{
    bool legacy = plan->npu.count > 0 && plan->npu.places[0].kind == MSP_DUMP_LEGACY;
    bool suffix = opt->legacy != NULL && opt->legacy->suffix != NULL && opt->legacy->suffix[0] != '\0';
    bool shape = opt->legacy != NULL && opt->legacy->shape_flag;

    if (legacy || (!suffix && !shape))
        return MSP_OK;
    return msp_error_set(err, MSP_E_INVALID,
                         "%s is no dump of ptdbg_ascend or torch_npu.hooks, to which alone %s applies; leave it out",
                         opt->npu_path, suffix ? "a suffix" : "shape matching");
}

msp_status
msp_compare_run(msp_compare_result *out, const msp_compare_options *opt, msp_error *err)
{
    msp_compare_options chosen = *opt;
    msp_run run = {.opt = &chosen, .threads = opt->threads > 0 ? opt->threads : msp_cpu_count()};
    const char *output_dir = opt->output_dir != NULL ? opt->output_dir : "./output";
    double start = msp_clock_seconds();
    msp_name_map names = {0};
    msp_cross *cross = NULL;
    msp_stamp stamp = {0};
    msp_page_run page = {0};
    msp_layout layout = {0};
    msp_plan plan = {0};
    msp_status st;

    *out = (msp_compare_result){0};
    if (opt->link != NULL && opt->link->rank > 0)
        return msp_run_follow(opt, &out->lost, err);
    pthread_mutex_init(&run.lock, NULL);
    run.progress.phase = "read";
    run.progress.rank = "";
    if (!msp_graph_wanted(opt) && msp_graph_is_dump(opt))
        chosen.has_rank_id = chosen.has_step_id = true; /* every one: no number is named */
    opt = &chosen;
    st = check_options(opt, err);
    if (st == MSP_OK && opt->data_mapping != NULL) {
        st = msp_name_map_load(&names, opt->data_mapping, err);
        run.names = &names;
    }
    if (st == MSP_OK)
        st = msp_cross_open(&cross, opt, err);
    run.cross = cross;
    if (st == MSP_OK)
        st = msp_run_open_layout(&run, &layout, NULL, err);
    if (st == MSP_OK)
        st = msp_graph_wanted(opt) ? msp_graph_plan(&plan, opt, err) : msp_plan_make(&plan, opt, run.layout, err);
    if (st == MSP_OK)
        st = check_legacy(&plan, opt, err);
    if (st == MSP_OK && opt->explain == NULL)
        st = msp_run_check_out_dirs(&plan, output_dir, err);
    if (st == MSP_OK && opt->explain == NULL &&
        (opt->legacy == NULL || opt->legacy->output_file == NULL)) /* that needs no time in its name */
        st = msp_run_claim_stamp(&stamp, output_dir, opt->timestamp, &plan, err);
    run.timestamp = stamp.text;
    run.plan = &plan;
    if (st == MSP_OK)
        st = msp_run_propose_layout(&run, &layout, output_dir, out, err);
    if (st == MSP_OK && opt->html && run.timestamp != NULL) {
        st = msp_page_run_open(&page, output_dir, run.timestamp, plan.npairs, err);
        run.page = &page;
    }
    if (st == MSP_OK)
        st = run_plan(&run, &plan, output_dir, out, err);
    else if (opt->link != NULL)
        msp_share_end(opt->link, NULL, false, &out->lost);
    msp_layout_release(&layout);
    msp_page_run_release(&page);
    msp_stamp_release(&stamp);
    msp_plan_release(&plan);
    msp_cross_close(cross);
    msp_name_map_release(&names);
    pthread_mutex_destroy(&run.lock);
    out->seconds = msp_clock_seconds() - start;
    return st;
}
