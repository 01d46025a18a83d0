/* run.c - msp_compare_run(): all pairs, some beside each other, and what is said about them together. */
#include "compare/explain/answer.h"
#include "compare/graph/graph.h"
#include "compare/job/job.h"
#include "compare/layout/layout.h"
#include "compare/layout/propose.h"
#include "compare/page/page_run.h"
#include "compare/run/stamp.h"
#include "compare/share/share.h"
#include "compare/verdict/verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include "core/alloc.h"
#include "core/cpu.h"
#include "core/file.h"
#include "core/log.h"
#include "core/path.h"
#include "core/pool.h"

static double
seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- where results go -------------------------------------------------------------------------------------------- */

static bool
file_exists(const char *dir, const char *stem, const char *timestamp, const char *ext)
{
    char *path = msp_plan_file(dir, stem, timestamp, ext);
    struct stat st;
    bool there = path != NULL && lstat(path, &st) == 0;

    msp_free(path);
    return there;
}

/* Where the results of a run go. */
typedef struct places {
    const msp_plan *plan;
    const char *output_dir; /* the page's */
} places;

/* The msp_stamp_taken of a plan: no result is ever written over. */
static bool
is_taken(const char *timestamp, void *payload)
{
    const places *to = payload;
    const msp_plan *plan = to->plan;
    static const char *const exts[] = {"xlsx", "csv", "json"};

    for (size_t k = 0; k < 3; k++)
        if (file_exists(to->output_dir, "job_table", timestamp, exts[k]))
            return true;
    if (file_exists(to->output_dir, "compare_result", timestamp, "html"))
        return true;
    for (size_t i = 0; i < plan->npairs; i++) {
        const msp_plan_pair *p = &plan->pairs[i];

        for (size_t k = 0; k < 3; k++)
            if (file_exists(p->out_dir, p->stem, timestamp, exts[k]))
                return true;
        if (file_exists(p->out_dir, p->advisor_stem, timestamp, "txt"))
            return true;
    }
    return false;
}

/* Below the output directory nothing may lead out of it. */
static msp_status
check_out_dir(const char *output_dir, const char *out_dir, msp_error *err)
{
    size_t base = strlen(output_dir);
    char *path = msp_result_text(msp_str_of(out_dir));
    msp_status st = MSP_OK;
    struct stat info;

    if (path == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (size_t i = base + 1; i <= strlen(out_dir) && st == MSP_OK; i++) {
        char c = out_dir[i];

        if (c != '/' && c != '\0')
            continue;
        path[i] = '\0';
        if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
            st = msp_error_set(err, MSP_E_INVALID, "%s: a symbolic link inside the output directory is not followed",
                               path);
        path[i] = c;
    }
    msp_free(path);
    return st;
}

static msp_status
check_out_dirs(const msp_plan *plan, const char *output_dir, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; i < plan->npairs && st == MSP_OK; i++)
        st = check_out_dir(output_dir, plan->pairs[i].out_dir, err);
    return st;
}

/*
 * A second for the results that nobody else has in the output directory, nor in any folder below it that results go to:
 * another run may have been given that one.
 */
static msp_status
claim_stamp(msp_stamp *out, const char *output_dir, const char *given, msp_plan *plan, msp_error *err)
{
    enum { MOST = 256 }; /* a descriptor is needed for each */
    places to = {plan, output_dir};
    const char *dirs[MOST];
    size_t n = 0, k;

    dirs[n++] = output_dir;
    for (size_t i = 0; i < plan->npairs && n < MOST; i++) {
        const char *dir = plan->pairs[i].out_dir;

        for (k = n; k > 0 && strcmp(dirs[k - 1], dir) != 0; k--) /* the last is the most likely */
            ;
        if (k == 0)
            dirs[n++] = dir;
    }
    return msp_stamp_claim(out, dirs, n, given, is_taken, &to, err);
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

typedef struct jobs {
    msp_run *run;
    msp_plan *plan;
    msp_compare_result *out;
    msp_pair_parts *parts; /* one per pair */
    bool ended;            /* other processes have been told that there is nothing left to do */
} jobs;

static msp_status
name_pair(msp_compare_pair *out, const msp_plan_pair *plan, msp_error *err)
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

/* What stands before a pair's error: its label, unless there is none or the error begins with it already. */
static const char *
label_before(const msp_compare_pair *pair)
{
    const char *label = pair->label != NULL ? pair->label : "";

    return pair->error != NULL && strncmp(pair->error, label, strlen(label)) == 0 ? "" : label;
}

/* Pairs side by side in the list of which the same side is not there. */
static size_t
count_lacking(const msp_compare_result *out, size_t from)
{
    const msp_compare_pair *p = &out->pairs[from];
    size_t n = 1;

    if ((p->npu_path == NULL) == (p->bench_path == NULL))
        return 1;
    while (from + n < out->npairs && (out->pairs[from + n].npu_path == NULL) == (p->npu_path == NULL) &&
           (out->pairs[from + n].bench_path == NULL) == (p->bench_path == NULL) &&
           out->pairs[from + n].status == p->status)
        n++;
    return n;
}

/*
 * Every pair that is left out is named, in their order and after all of them, whoever reads the result. The error of a
 * single pair is the run's own.
 */
static void
log_failures(const msp_compare_result *out)
{
    for (size_t i = 0, n; i < out->npairs && out->npairs > 1; i += n) {
        const msp_compare_pair *p = &out->pairs[i];
        const char *label = label_before(p);

        n = count_lacking(out, i);
        if (p->status == MSP_OK || p->error == NULL)
            continue;
        if (n > 2)
            msp_log(MSP_LOG_ERROR,
                    "%s to %s: there are no such dumps (%zu) on the %s side; the first of the other is %s", p->label,
                    out->pairs[i + n - 1].label, n, p->npu_path == NULL ? "NPU" : "bench",
                    p->npu_path != NULL ? p->npu_path : p->bench_path);
        else
            msp_log(MSP_LOG_ERROR, "%s%s%s", label, label[0] != '\0' ? ": " : "", p->error);
        n = n > 2 ? n : 1;
    }
}

static void
run_pair(size_t i, void *payload)
{
    jobs *j = payload;
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
    jobs *j;
    const size_t *pairs;
} chosen_pairs;

static void
run_chosen(size_t i, void *payload)
{
    const chosen_pairs *c = payload;

    run_pair(c->pairs[i], c->j);
}

/*
 * Many ranks: one per thread. Fewer ranks than threads: one after the other, each with all threads, so that a large
 * rank at the end does not keep a single core busy. A msp_share_work of jobs.
 */
static void
run_pairs(const size_t *pairs, size_t n, void *payload)
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

/* All pairs, here or also in other processes. */
static msp_status
run_all(jobs *j, msp_error *err)
{
    size_t n = j->plan->npairs, nreadable;
    size_t *order = msp_alloc(n, sizeof(*order));
    msp_link *link = j->run->opt->link;
    msp_share share = {link, j->run, j->plan, j->out, j->parts, run_pairs, j};
    msp_status st = MSP_OK;

    if (order == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    if (link != NULL && link->size > 1 && !msp_graph_wanted(j->run->opt)) {
        st = put_in_order(order, &nreadable, j->plan, err);
        if (st == MSP_OK)
            run_pairs(order, n - nreadable, j);
        if (st == MSP_OK && nreadable > 0)
            st = msp_share_lead(&share, order + (n - nreadable), nreadable, err);
        msp_share_end(link, j->run, j->run->cancelled, &j->out->lost);
        j->ended = true;
    } else {
        run_pairs(order, n, j);
    }
    msp_free(order);
    return st;
}

/* One analysis for each folder of results: a step is compared with itself only. */
static msp_status
analyse(jobs *j, msp_error *err)
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
judge_job(jobs *j, const char *output_dir, msp_error *err)
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

/* What is missing at the end of a file was not compared, and that is no success. */
static msp_status
cut_off(msp_compare_result *out, msp_error *err)
{
    const msp_compare_pair *first = NULL;
    int side;

    for (size_t i = 0; i < out->npairs; i++)
        if (out->pairs[i].cut[0].found || out->pairs[i].cut[1].found) {
            out->ncut++;
            if (first == NULL)
                first = &out->pairs[i];
        }
    if (first == NULL)
        return MSP_OK;
    side = first->cut[0].found ? 0 : 1;
    msp_error_set(err, MSP_E_FORMAT,
                  "%s: cut off at byte %lld: only the %lld complete records before it were compared; collect it again, "
                  "or copy it again",
                  side == 0 ? first->npu_path : first->bench_path, (long long)first->cut[side].at,
                  (long long)first->cut[side].records);
    return out->ncut == 1
               ? MSP_E_FORMAT
               : msp_error_prefix(err, MSP_E_FORMAT, "%zu pairs have a file that is cut off; the first: ", out->ncut);
}

/* The first failure stands for the run; the pairs hold the others. */
static msp_status
sum_up(msp_compare_result *out, const jobs *j, msp_error *err)
{
    const msp_compare_pair *failed = NULL;
    const char *label;

    for (size_t i = 0; i < out->npairs; i++) {
        out->bytes += out->pairs[i].tensor_bytes;
        if (out->pairs[i].status == MSP_OK)
            continue;
        out->nfailed++;
        if (failed == NULL)
            failed = &out->pairs[i];
    }
    out->bytes += j->run->progress.json_total;
    if (failed == NULL)
        return cut_off(out, err);
    if (j->run->cancelled)
        return msp_error_set(err, MSP_E_CANCELLED, "cancelled");
    if (out->npairs == 1)
        return msp_error_set(err, failed->status, "%s", failed->error != NULL ? failed->error : "out of memory");
    label = label_before(failed);
    return msp_error_set(err, failed->status, "%zu of %zu could not be compared; the first: %s%s%s", out->nfailed,
                         out->npairs, label, label[0] != '\0' ? ": " : "",
                         failed->error != NULL ? failed->error : "out of memory");
}

static msp_status
run_plan(msp_run *run, msp_plan *plan, const char *output_dir, msp_compare_result *out, msp_error *err)
{
    jobs j = {run, plan, out, msp_alloc_zero(plan->npairs, sizeof(*j.parts)), false};
    msp_status st = MSP_OK;

    out->pairs = msp_alloc_zero(plan->npairs, sizeof(*out->pairs));
    out->npairs = out->pairs != NULL ? plan->npairs : 0;
    if (out->pairs == NULL || j.parts == NULL)
        st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    run->progress.pairs_total = plan->npairs;
    for (size_t i = 0; i < plan->npairs && st == MSP_OK; i++) {
        st = name_pair(&out->pairs[i], &plan->pairs[i], err);
        if (!msp_graph_wanted(run->opt))
            run->progress.json_total += msp_plan_weight(&plan->pairs[i]);
    }
    msp_run_expect(run, 0, run->progress.json_total);
    if (st == MSP_OK) {
        st = run_all(&j, err);
        if (!run->opt->no_failure_log)
            log_failures(out);
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
        st = sum_up(out, &j, err);
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
    if (opt->npu_path == NULL || opt->npu_path[0] == '\0' || opt->bench_path == NULL || opt->bench_path[0] == '\0')
        return msp_error_set(err, MSP_E_INVALID, "two paths are needed: the NPU's dump and the bench's");
    if (opt->framework == MSP_PYTORCH && (opt->cell_mapping != NULL || opt->api_mapping != NULL))
        return msp_error_set(err, MSP_E_INVALID, "Argument -cm or -am is not supported in PyTorch framework");
    if (opt->fuzzy && (opt->data_mapping != NULL || opt->api_mapping != NULL || opt->cell_mapping != NULL ||
                       opt->layer_mapping != NULL))
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

/* The layout that opt names: "records" is that of DTensors alone, "auto" is proposed when the pairs are known. */
static msp_status
open_layout(msp_run *run, msp_layout *layout, const char *proposed, msp_error *err)
{
    const msp_compare_options *opt = run->opt;

    if (opt->layout == NULL)
        return MSP_OK;
    if (opt->data_mapping != NULL || opt->api_mapping != NULL || opt->cell_mapping != NULL ||
        opt->layer_mapping != NULL || opt->diff_analyze || msp_graph_wanted(opt))
        return msp_error_set(err, MSP_E_INVALID,
                             "a layout cannot be used together with a mapping, -da or static graphs");
    run->layout = layout;
    if (strcmp(opt->layout, "records") == 0 || (strcmp(opt->layout, "auto") == 0 && proposed == NULL))
        return MSP_OK;
    return msp_layout_load(layout, proposed != NULL ? proposed : opt->layout, err);
}

/* "<dir>/layout_<time>.yaml", what --layout auto uses; NULL: it was not asked for. */
static char *
proposed_path(const msp_run *run, const char *output_dir)
{
    bool wanted = run->opt->layout != NULL && strcmp(run->opt->layout, "auto") == 0;

    return wanted ? msp_plan_file(output_dir, "layout", run->timestamp, "yaml") : NULL;
}

static msp_status
write_text(const char *path, const msp_buf *text, msp_error *err)
{
    msp_file file = MSP_FILE_NONE;
    msp_status st = msp_file_create(&file, path, 0640, err);

    if (st == MSP_OK)
        st = msp_file_write(&file, text->p, text->len, err);
    if (st == MSP_OK)
        st = msp_file_commit(&file, err);
    msp_file_abandon(&file);
    return st;
}

/* The first pair stands for all: a model's parts are the same in every step. */
static msp_status
propose_layout(msp_run *run, msp_layout *layout, const char *output_dir, msp_compare_result *out, msp_error *err)
{
    const msp_plan_pair *p = run->plan->npairs > 0 ? &run->plan->pairs[0] : NULL;
    char *path = proposed_path(run, output_dir);
    msp_buf text = {0};
    msp_status st = MSP_OK;

    if (path == NULL)
        return MSP_OK;
    if (p == NULL || p->npu == NULL || p->bench == NULL || (p->nnpu > 1) == (p->nbench > 1))
        st = msp_error_set(err, MSP_E_INVALID,
                           "--layout auto needs one rank on one side and several on the other; here are %zu on the NPU "
                           "side and %zu on the bench side. Write a yaml with groups",
                           p != NULL ? p->nnpu : 0, p != NULL ? p->nbench : 0);
    if (st == MSP_OK)
        st = p->nnpu > 1 ? msp_layout_propose(&text, 0, p->npu, p->nnpu, p->bench, err)
                         : msp_layout_propose(&text, 1, p->bench, p->nbench, p->npu, err);
    if (st == MSP_OK)
        st = msp_path_make_dirs(output_dir, err);
    if (st == MSP_OK)
        st = write_text(path, &text, err);
    if (st == MSP_OK)
        st = open_layout(run, layout, path, err);
    if (st == MSP_OK && !msp_result_add(&out->files, &out->nfiles, msp_str_of(path)))
        st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    msp_buf_release(&text);
    msp_free(path);
    return st;
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

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
    jobs j = {run, &plan, &out, msp_alloc_zero(setup->npairs, sizeof(*j.parts)), false};
    msp_share share = {run->opt->link, run, &plan, &out, j.parts, run_pairs, &j};
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

/* Process 0 has proposed it, if it was to be. */
static msp_status
follow_layout(msp_run *run, msp_layout *layout, const char *output_dir, const char *timestamp, msp_error *err)
{
    char *path;
    msp_status st;

    run->timestamp = timestamp;
    path = proposed_path(run, output_dir);
    st = open_layout(run, layout, path, err);
    msp_free(path);
    return st;
}

static msp_status
follow(const msp_compare_options *opt, size_t *lost, msp_error *err)
{
    msp_run run = {.opt = opt, .threads = opt->threads > 0 ? opt->threads : msp_cpu_count()};
    const char *output_dir = opt->output_dir != NULL ? opt->output_dir : "./output";
    msp_share_setup setup;
    msp_name_map names = {0};
    msp_layout layout = {0};
    msp_cross *cross = NULL;
    msp_status st;

    pthread_mutex_init(&run.lock, NULL);
    run.progress.phase = "read";
    run.progress.rank = "";
    st = msp_share_join(&setup, opt->link, err);
    if (st == MSP_OK && opt->data_mapping != NULL) {
        st = msp_name_map_load(&names, opt->data_mapping, err);
        run.names = &names;
    }
    if (st == MSP_OK)
        st = msp_cross_open(&cross, opt, err);
    run.cross = cross;
    if (st == MSP_OK)
        st = follow_layout(&run, &layout, output_dir, setup.timestamp, err);
    if (st == MSP_OK)
        st = run_followed(&run, output_dir, &setup, lost, err);
    else if (st == MSP_E_CANCELLED)
        st = MSP_OK; /* process 0 needs no help, or says itself what is wrong */
    msp_free(setup.timestamp);
    msp_layout_release(&layout);
    msp_cross_close(cross);
    msp_name_map_release(&names);
    pthread_mutex_destroy(&run.lock);
    return st;
}

msp_status
msp_compare_run(msp_compare_result *out, const msp_compare_options *opt, msp_error *err)
{
    msp_compare_options chosen = *opt;
    msp_run run = {.opt = &chosen, .threads = opt->threads > 0 ? opt->threads : msp_cpu_count()};
    const char *output_dir = opt->output_dir != NULL ? opt->output_dir : "./output";
    double start = seconds_now();
    msp_name_map names = {0};
    msp_cross *cross = NULL;
    msp_stamp stamp = {0};
    msp_page_run page = {0};
    msp_layout layout = {0};
    msp_plan plan = {0};
    msp_status st;

    *out = (msp_compare_result){0};
    if (opt->link != NULL && opt->link->rank > 0)
        return follow(opt, &out->lost, err);
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
        st = open_layout(&run, &layout, NULL, err);
    if (st == MSP_OK)
        st = msp_graph_wanted(opt) ? msp_graph_plan(&plan, opt, err) : msp_plan_make(&plan, opt, run.layout, err);
    if (st == MSP_OK)
        st = check_legacy(&plan, opt, err);
    if (st == MSP_OK && opt->explain == NULL)
        st = check_out_dirs(&plan, output_dir, err);
    if (st == MSP_OK && opt->explain == NULL &&
        (opt->legacy == NULL || opt->legacy->output_file == NULL)) /* that needs no time in its name */
        st = claim_stamp(&stamp, output_dir, opt->timestamp, &plan, err);
    run.timestamp = stamp.text;
    run.plan = &plan;
    if (st == MSP_OK)
        st = propose_layout(&run, &layout, output_dir, out, err);
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
    out->seconds = seconds_now() - start;
    return st;
}
