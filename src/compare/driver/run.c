/* run.c - msp_compare_run(): all pairs, some beside each other, and what is said about them together. */
#include "compare/explain/answer.h"
#include "compare/graph/graph.h"
#include "compare/job/job.h"
#include "compare/page/page_run.h"
#include "compare/run/chosen_layout.h"
#include "compare/run/claim.h"
#include "compare/driver/mappings.h"
#include "compare/driver/pairs.h"
#include "compare/share/share.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/log.h"

/* One analysis for each folder of results: a step is compared with itself only. */
static msp_status
analyse_first_differences(msp_run_jobs *j, msp_error *err)
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

/* Names of the pairs in the result, and how much there is to read. */
static msp_status
announce_pairs(msp_run_jobs *j, msp_error *err)
{
    msp_run *run = j->run;
    msp_status st = MSP_OK;

    run->progress.pairs_total = j->plan->npairs;
    for (size_t i = 0; i < j->plan->npairs && st == MSP_OK; i++) {
        st = msp_run_name_pair(&j->out->pairs[i], &j->plan->pairs[i], err);
        if (!msp_graph_wanted(run->opt))
            run->progress.json_total += msp_plan_weight(&j->plan->pairs[i]);
    }
    msp_run_expect(run, 0, run->progress.json_total);
    return st;
}

static void
log_what_was_left_out(const msp_run *run, const msp_compare_result *out)
{
    if (!run->opt->no_failure_log)
        msp_run_log_failures(out);
    if (run->names != NULL)
        msp_name_map_warn(run->names, run->opt);
    if (run->layout != NULL && !run->cancelled && strcmp(run->opt->layout, "auto") != 0)
        msp_layout_warn(run->layout, run->opt->layout);
}

/* What is said about all pairs together. */
static msp_status
conclude_run(msp_run_jobs *j, const char *output_dir, msp_error *err)
{
    msp_run *run = j->run;
    msp_status st = run->opt->diff_analyze ? analyse_first_differences(j, err) : MSP_OK;

    if (st == MSP_OK && !msp_graph_wanted(run->opt))
        st = judge_job(j, output_dir, err);
    if (st == MSP_OK)
        st = msp_answer_run(j->out, err);
    if (st == MSP_OK && run->page != NULL && !run->cancelled)
        st = msp_page_run_write(run->page, j->out, run->opt, err);
    return st == MSP_OK ? msp_run_sum_up(j->out, run, err) : st;
}

static msp_status
run_plan(msp_run *run, msp_plan *plan, const char *output_dir, msp_compare_result *out, msp_error *err)
{
    msp_run_jobs j = {run, plan, out, msp_alloc_zero(plan->npairs, sizeof(*j.parts)), false};
    msp_status st;

    out->pairs = msp_alloc_zero(plan->npairs, sizeof(*out->pairs));
    out->npairs = out->pairs != NULL ? plan->npairs : 0;
    st = out->pairs == NULL || j.parts == NULL ? msp_error_set(err, MSP_E_NOMEM, "out of memory")
                                               : announce_pairs(&j, err);
    if (st == MSP_OK) {
        st = msp_run_all(&j, err);
        log_what_was_left_out(run, out);
    }
    if (st == MSP_OK)
        st = conclude_run(&j, output_dir, err);
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

/* What a run holds from its options to its end. */
typedef struct session {
    msp_compare_options opt;
    const char *output_dir;
    msp_run run;
    msp_run_mappings mappings;
    msp_plan plan;
    msp_stamp stamp;
    msp_page_run page;
} session;

/* The plan of pairs, and where their results go. */
static msp_status
plan_pairs(session *s, msp_error *err)
{
    const msp_compare_options *opt = &s->opt;
    bool named = opt->legacy != NULL && opt->legacy->output_file != NULL; /* a name that needs no time in it */
    msp_status st =
        msp_graph_wanted(opt) ? msp_graph_plan(&s->plan, opt, err) : msp_plan_make(&s->plan, opt, s->run.layout, err);

    s->run.plan = &s->plan;
    if (st == MSP_OK)
        st = check_legacy(&s->plan, opt, err);
    if (st == MSP_OK && opt->explain == NULL)
        st = msp_run_check_out_dirs(&s->plan, s->output_dir, err);
    if (st == MSP_OK && opt->explain == NULL && !named)
        st = msp_run_claim_stamp(&s->stamp, s->output_dir, opt->timestamp, &s->plan, err);
    s->run.timestamp = s->stamp.text;
    return st;
}

static msp_status
prepare_session(session *s, msp_compare_result *out, msp_error *err)
{
    msp_status st = check_options(&s->opt, err);

    if (st == MSP_OK)
        st = msp_run_read_mappings(&s->run, &s->mappings, err);
    if (st == MSP_OK)
        st = msp_run_open_layout(&s->run, &s->mappings.layout, NULL, err);
    if (st == MSP_OK)
        st = plan_pairs(s, err);
    if (st == MSP_OK)
        st = msp_run_propose_layout(&s->run, &s->mappings.layout, s->output_dir, out, err);
    if (st == MSP_OK && s->opt.html && s->run.timestamp != NULL) {
        st = msp_page_run_open(&s->page, s->output_dir, s->run.timestamp, s->plan.npairs, err);
        s->run.page = &s->page;
    }
    return st;
}

msp_status
msp_compare_run(msp_compare_result *out, const msp_compare_options *opt, msp_error *err)
{
    session s = {.opt = *opt, .output_dir = opt->output_dir != NULL ? opt->output_dir : "./output"};
    double start = msp_clock_seconds();
    msp_status st;

    *out = (msp_compare_result){0};
    if (opt->link != NULL && opt->link->rank > 0)
        return msp_run_follow(opt, &out->lost, err);
    if (!msp_graph_wanted(opt) && msp_graph_is_dump(opt))
        s.opt.has_rank_id = s.opt.has_step_id = true; /* every one: no number is named */
    msp_run_begin(&s.run, &s.mappings, &s.opt);
    st = prepare_session(&s, out, err);
    if (st == MSP_OK)
        st = run_plan(&s.run, &s.plan, s.output_dir, out, err);
    else if (opt->link != NULL)
        msp_share_end(opt->link, NULL, false, &out->lost);
    msp_page_run_release(&s.page);
    msp_stamp_release(&s.stamp);
    msp_plan_release(&s.plan);
    msp_run_end(&s.run, &s.mappings);
    out->seconds = msp_clock_seconds() - start;
    return st;
}
