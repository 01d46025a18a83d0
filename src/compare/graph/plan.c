/* plan.c - which folders of static-graph dumps are compared with which: see graph.h. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "compare/graph/graph.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/path.h"
#include "core/vec.h"

enum { MAX_DEPTH = 10 };

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory while looking for dumps");
}

bool
msp_graph_wanted(const msp_compare_options *opt)
{
    return opt->framework != MSP_PYTORCH && (opt->has_rank_id || opt->has_step_id || opt->common);
}

/* ---- walking ------------------------------------------------------------------------------------------------- */

typedef struct walker {
    const msp_compare_options *opt;
    msp_dump_layout *out;
    size_t cap;
    size_t root_len; /* of the path that was given */
    msp_error *err;
} walker;

/* The number after "rank_" in a part of a path, or of a part that is a number by itself; -1 when there is none. */
static int64_t
part_number(msp_str part, msp_str prefix)
{
    unsigned long long n;

    if (!msp_str_starts(part, prefix))
        return -1;
    part.p += prefix.len;
    part.len -= prefix.len;
    return msp_str_to_u64(part, &n) && n <= INT32_MAX ? (int64_t)n : -1;
}

static bool
is_rank_folder(msp_str name)
{
    return part_number(name, MSP_STR("rank_")) >= 0;
}

/* rank_<N> with an underscore: dumps of calls have rank<N>. A dump of calls in a folder of that name stays one. */
static bool
has_rank_folder(const char *path)
{
    msp_dir_list names = {0};
    bool found = is_rank_folder(msp_path_base(path));

    if (msp_path_kind_of(path) != MSP_PATH_DIR || msp_dir_list_read(&names, path, NULL) != MSP_OK)
        return false;
    for (size_t i = 0; i < names.count; i++) {
        char *child = is_rank_folder(msp_str_of(names.names[i])) ? msp_path_join(path, names.names[i]) : NULL;

        found = found || (child != NULL && msp_path_kind_of(child) == MSP_PATH_DIR);
        msp_free(child);
        if (strcmp(names.names[i], "dump.json") == 0 || msp_str_starts(msp_str_of(names.names[i]), MSP_STR("step"))) {
            found = false;
            break;
        }
    }
    msp_dir_list_release(&names);
    return found;
}

bool
msp_graph_is_dump(const msp_compare_options *opt)
{
    return opt->framework != MSP_PYTORCH && opt->npu_path != NULL && opt->bench_path != NULL &&
           has_rank_folder(opt->npu_path) && has_rank_folder(opt->bench_path);
}

/* The n-th part of a path from its end, 0 being the last. */
static msp_str
path_part(const char *path, size_t n)
{
    const char *end = path + strlen(path), *p = end;

    for (;;) {
        while (p > path && p[-1] != '/')
            p--;
        if (n == 0 || p == path)
            return n == 0 ? (msp_str){p, (size_t)(end - p)} : (msp_str){NULL, 0};
        n--;
        end = --p;
    }
}

/* rank_<N> where there is one, else a number three or two folders above the step. */
static int64_t
rank_of(const char *path)
{
    msp_str none = {NULL, 0};
    int64_t rank;

    for (size_t i = 1; path_part(path, i).p != NULL; i++) {
        rank = part_number(path_part(path, i), MSP_STR("rank_"));
        if (rank >= 0)
            return rank;
    }
    rank = part_number(path_part(path, 3), none);
    return rank >= 0 ? rank : part_number(path_part(path, 2), none);
}

static bool
is_chosen(int64_t n, const int64_t *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == n)
            return true;
    return count == 0;
}

static char *
numbered_name(const char *word, int64_t n)
{
    char buf[48];

    snprintf(buf, sizeof(buf), "%s%lld", word, (long long)n);
    return msp_result_text(msp_str_of(buf));
}

static msp_status
add_place(walker *w, const char *path, int64_t rank, int64_t step, char *step_name_take, char *rank_name_take)
{
    msp_dump_place p = {.rank = rank, .step = step, .step_name = step_name_take, .rank_name = rank_name_take};

    p.path = msp_result_text(msp_str_of(path));
    p.group = msp_result_text(MSP_STR(""));
    if (p.path == NULL || p.group == NULL || p.step_name == NULL || p.rank_name == NULL ||
        !msp_vec_grow((void **)&w->out->places, &w->cap, w->out->count + 1, sizeof(p))) {
        msp_free(p.path);
        msp_free(p.group);
        msp_free(p.step_name);
        msp_free(p.rank_name);
        return no_memory(w->err);
    }
    w->out->places[w->out->count++] = p;
    return MSP_OK;
}

/* A lowest folder: its own name is the step. */
static msp_status
add_graph_folder(walker *w, const char *path)
{
    char *real = realpath(path, NULL);
    int64_t step = real == NULL ? -1 : part_number(path_part(real, 0), (msp_str){NULL, 0});
    int64_t rank = real == NULL ? -1 : rank_of(real);

    free(real);
    if (step < 0 || rank < 0 || !is_chosen(rank, w->opt->rank_id, w->opt->nrank_id) ||
        !is_chosen(step, w->opt->step_id, w->opt->nstep_id))
        return MSP_OK;
    return add_place(w, path, rank, step, numbered_name("step", step), numbered_name("rank", rank));
}

/* A folder with .npy files: its path below the root is its name. */
static msp_status
add_common_folder(walker *w, const char *path)
{
    const char *rel = path + w->root_len;

    while (*rel == '/')
        rel++;
    return add_place(w, path, MSP_DUMP_NO_NUMBER, MSP_DUMP_NO_NUMBER, msp_result_text(msp_str_of(rel)),
                     msp_result_text(MSP_STR("")));
}

static bool
is_npy(const char *name)
{
    return msp_str_ends(msp_str_of(name), MSP_STR(".npy"));
}

static msp_status
walk_folder(walker *w, const char *path, int depth)
{
    msp_dir_list names = {0};
    bool folders = false, npy = false;
    msp_status st = depth > MAX_DEPTH
                        ? msp_error_set(w->err, MSP_E_LIMIT, "%s: more than %d folders deep", path, MAX_DEPTH)
                        : msp_dir_list_read(&names, path, w->err);

    for (size_t i = 0; st == MSP_OK && i < names.count; i++) {
        char *child = msp_path_join(path, names.names[i]);

        if (child == NULL) {
            st = no_memory(w->err);
        } else if (msp_path_kind_of(child) == MSP_PATH_DIR) {
            folders = true;
            st = walk_folder(w, child, depth + 1);
        } else {
            npy = npy || is_npy(names.names[i]);
        }
        msp_free(child);
    }
    msp_dir_list_release(&names);
    if (st != MSP_OK)
        return st;
    if (w->opt->common)
        return npy ? add_common_folder(w, path) : MSP_OK;
    return folders ? MSP_OK : add_graph_folder(w, path);
}

/* ---- pairing ------------------------------------------------------------------------------------------------- */

static int
by_place(const void *a, const void *b)
{
    const msp_dump_place *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return msp_str_cmp_natural(msp_str_of(x->step_name), msp_str_of(y->step_name));
}

/* Neighbours that by_place() finds equal. */
static size_t
run_length(const msp_dump_layout *l, size_t first)
{
    size_t n = 1;

    while (first + n < l->count && by_place(&l->places[first], &l->places[first + n]) == 0)
        n++;
    return n;
}

static msp_status
find_dumps(msp_dump_layout *out, const char *path, const msp_compare_options *opt, msp_error *err)
{
    walker w = {.opt = opt, .out = out, .root_len = strlen(path), .err = err};
    msp_status st;

    if (msp_path_kind_of(path) == MSP_PATH_NONE)
        return msp_error_set(err, MSP_E_NOT_FOUND, "%s: there is no such path", path);
    if (msp_path_kind_of(path) != MSP_PATH_DIR)
        return msp_error_set(err, MSP_E_INVALID, "%s: the dump of a static graph is a folder", path);
    st = walk_folder(&w, path, 0);
    if (st != MSP_OK)
        return st;
    if (out->count == 0)
        return msp_error_set(err, MSP_E_NOT_FOUND,
                             opt->common ? "%s: there is no folder with .npy files below it"
                                         : "%s: there is no folder rank_<N>/.../<step> below it that rank_id and "
                                           "step_id select",
                             path);
    qsort(out->places, out->count, sizeof(*out->places), by_place);
    return MSP_OK;
}

static msp_status
add_pair(msp_plan *plan, size_t *cap, msp_plan_pair pair, const msp_compare_options *opt, msp_error *err)
{
    const msp_dump_place *known = pair.npu != NULL ? pair.npu : pair.bench;
    const char *dir = opt->output_dir != NULL ? opt->output_dir : "./output";
    msp_buf label = {0}, stem = {0};

    if (opt->common) {
        msp_buf_text(&label, known->step_name);
        msp_buf_text(&stem, "result");
        pair.out_dir = msp_path_join(dir, known->step_name);
    } else {
        msp_buf_printf(&label, "%s %s", known->rank_name, known->step_name);
        msp_buf_printf(&stem, "compare_result_%lld_%lld", (long long)known->rank, (long long)known->step);
        pair.out_dir = msp_result_text(msp_str_of(dir));
    }
    pair.label = label.failed ? NULL : msp_result_text(msp_buf_view(&label));
    pair.stem = stem.failed ? NULL : msp_result_text(msp_buf_view(&stem));
    pair.advisor_stem = msp_result_text(MSP_STR("advisor"));
    msp_buf_release(&label);
    msp_buf_release(&stem);
    if (!msp_vec_grow((void **)&plan->pairs, cap, plan->npairs + 1, sizeof(pair))) {
        msp_free(pair.label);
        msp_free(pair.out_dir);
        msp_free(pair.stem);
        msp_free(pair.advisor_stem);
        return no_memory(err);
    }
    plan->pairs[plan->npairs++] = pair;
    return pair.label == NULL || pair.out_dir == NULL || pair.stem == NULL || pair.advisor_stem == NULL ? no_memory(err)
                                                                                                        : MSP_OK;
}

msp_status
msp_graph_plan(msp_plan *out, const msp_compare_options *opt, msp_error *err)
{
    msp_status st;
    size_t i = 0, k = 0, cap = 0;

    *out = (msp_plan){0};
    st = find_dumps(&out->npu, opt->npu_path, opt, err);
    if (st == MSP_OK)
        st = find_dumps(&out->bench, opt->bench_path, opt, err);
    while (st == MSP_OK && (i < out->npu.count || k < out->bench.count)) {
        int order = i == out->npu.count     ? 1
                    : k == out->bench.count ? -1
                                            : by_place(&out->npu.places[i], &out->bench.places[k]);
        msp_plan_pair pair = {0};

        if (order <= 0) {
            pair.npu = &out->npu.places[i];
            pair.nnpu = run_length(&out->npu, i);
            i += pair.nnpu;
        }
        if (order >= 0) {
            pair.bench = &out->bench.places[k];
            pair.nbench = run_length(&out->bench, k);
            k += pair.nbench;
        }
        st = add_pair(out, &cap, pair, opt, err);
    }
    return st;
}
