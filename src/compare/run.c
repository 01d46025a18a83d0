/* run.c - msp_compare_run(): all pairs, some beside each other, and what is said about them together. */
#include "compare/graph/graph.h"
#include "compare/page/page_run.h"
#include "compare/run/stamp.h"

#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include "core/alloc.h"
#include "core/cpu.h"
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
    const msp_plan *plan;
    msp_compare_result *out;
    msp_da_rank **da; /* one per pair; NULL without diff_analyze */
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

/* Every pair that is left out is named, whoever reads the result. */
static void
log_failure(const msp_compare_pair *out)
{
    const char *label = label_before(out);

    msp_log(MSP_LOG_ERROR, "%s%s%s", label, label[0] != '\0' ? ": " : "", out->error);
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
        msp_pair_compare(j->run, plan, out, j->da == NULL ? NULL : &j->da[i]);
    /* the error of a single pair is the run's own */
    if (out->status != MSP_OK && out->error != NULL && j->plan->npairs > 1)
        log_failure(out);
    (void)msp_run_pair_done(j->run);
}

/*
 * Many ranks: one per thread. Fewer ranks than threads: one after the other, each with all threads, so that a large
 * rank at the end does not keep a single core busy.
 */
static void
run_pairs(jobs *j)
{
    msp_run *run = j->run;
    size_t n = j->plan->npairs;

    if (n > 1 && n >= (size_t)run->threads) {
        run->row_threads = 1;
        msp_pool_run(n, run->threads, run_pair, j);
        return;
    }
    run->row_threads = run->threads;
    for (size_t i = 0; i < n; i++)
        run_pair(i, j);
}

/* One analysis for each folder of results: a step is compared with itself only. */
static msp_status
analyse(jobs *j, msp_error *err)
{
    size_t n = j->plan->npairs, first = 0, found = 0;
    msp_status st = MSP_OK;

    while (j->da != NULL && first < n && st == MSP_OK) {
        const char *dir = j->plan->pairs[first].out_dir;
        size_t end = first, ranks = 0;

        for (; end < n && strcmp(j->plan->pairs[end].out_dir, dir) == 0; end++)
            ranks += j->da[end] != NULL;
        if (ranks > 0) {
            (void)msp_run_progress(j->run, "analyse", j->plan->pairs[first].label, 0, 0);
            st = msp_da_run(j->out, &j->da[first], end - first, dir, err);
            for (; found < j->out->nfirst; found++)
                j->out->first[found].step = j->out->pairs[first].step;
        }
        first = end;
    }
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

static int64_t
file_size(const msp_dump_place *p)
{
    struct stat st;

    return p != NULL && stat(p->path, &st) == 0 ? (int64_t)st.st_size : 0;
}

static msp_status
run_plan(msp_run *run, const msp_plan *plan, msp_compare_result *out, msp_error *err)
{
    jobs j = {run, plan, out, NULL};
    msp_status st = MSP_OK;

    out->pairs = msp_alloc_zero(plan->npairs, sizeof(*out->pairs));
    if (out->pairs == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    out->npairs = plan->npairs;
    if (run->opt->diff_analyze) {
        j.da = msp_alloc_zero(plan->npairs, sizeof(*j.da));
        if (j.da == NULL)
            return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    run->progress.pairs_total = plan->npairs;
    for (size_t i = 0; i < plan->npairs && st == MSP_OK; i++) {
        st = name_pair(&out->pairs[i], &plan->pairs[i], err);
        if (!msp_graph_wanted(run->opt))
            run->progress.json_total += file_size(plan->pairs[i].npu) + file_size(plan->pairs[i].bench);
    }
    msp_run_expect(run, 0, run->progress.json_total);
    if (st == MSP_OK) {
        run_pairs(&j);
        if (run->names != NULL)
            msp_name_map_warn(run->names, run->opt);
        st = analyse(&j, err);
    }
    if (st == MSP_OK && run->page != NULL && !run->cancelled)
        st = msp_page_run_write(run->page, out, run->opt, err);
    if (st == MSP_OK)
        st = sum_up(out, &j, err);
    for (size_t i = 0; j.da != NULL && i < plan->npairs; i++)
        msp_da_rank_close(j.da[i]);
    msp_free(j.da);
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

msp_status
msp_compare_run(msp_compare_result *out, const msp_compare_options *opt, msp_error *err)
{
    msp_run run = {.opt = opt, .threads = opt->threads > 0 ? opt->threads : msp_cpu_count()};
    const char *output_dir = opt->output_dir != NULL ? opt->output_dir : "./output";
    double start = seconds_now();
    msp_name_map names = {0};
    msp_cross *cross = NULL;
    msp_stamp stamp = {0};
    msp_page_run page = {0};
    msp_plan plan = {0};
    msp_status st;

    *out = (msp_compare_result){0};
    pthread_mutex_init(&run.lock, NULL);
    run.progress.phase = "read";
    run.progress.rank = "";
    st = check_options(opt, err);
    if (st == MSP_OK && opt->data_mapping != NULL) {
        st = msp_name_map_load(&names, opt->data_mapping, err);
        run.names = &names;
    }
    if (st == MSP_OK)
        st = msp_cross_open(&cross, opt, err);
    run.cross = cross;
    if (st == MSP_OK)
        st = msp_graph_wanted(opt) ? msp_graph_plan(&plan, opt, err) : msp_plan_make(&plan, opt, err);
    if (st == MSP_OK)
        st = check_legacy(&plan, opt, err);
    if (st == MSP_OK)
        st = check_out_dirs(&plan, output_dir, err);
    if (st == MSP_OK && (opt->legacy == NULL || opt->legacy->output_file == NULL)) /* that needs no time in its name */
        st = claim_stamp(&stamp, output_dir, opt->timestamp, &plan, err);
    run.timestamp = stamp.text;
    run.plan = &plan;
    if (st == MSP_OK && opt->html && run.timestamp != NULL) {
        st = msp_page_run_open(&page, output_dir, run.timestamp, plan.npairs, err);
        run.page = &page;
    }
    if (st == MSP_OK)
        st = run_plan(&run, &plan, out, err);
    msp_page_run_release(&page);
    msp_stamp_release(&stamp);
    msp_plan_release(&plan);
    msp_cross_close(cross);
    msp_name_map_release(&names);
    pthread_mutex_destroy(&run.lock);
    out->seconds = seconds_now() - start;
    return st;
}
