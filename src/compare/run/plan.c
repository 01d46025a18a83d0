/*
 * plan.c - which dump is compared with which.
 *
 * Both layouts are sorted, so groups, steps and ranks are runs of neighbours. A run of one side is paired with a run of
 * the other level by level; what finds no partner becomes a pair that lacks a side, so that it is named in the result.
 */
#include "compare/layout/layout.h"
#include "compare/run/plan_join.h"
#include "compare/run/run.h"

#include <sys/stat.h>
#include "core/alloc.h"
#include "core/log.h"
#include "core/path.h"
#include "core/vec.h"

typedef struct run_of {
    const msp_dump_place *first;
    size_t count;
} run_of;

typedef struct planner {
    msp_plan *out;
    size_t cap;
    const char *output_dir;
    bool second;        /* the rank has a pair already: its advisor's file needs a name of its own */
    const char *suffix; /* of the older tools' tables */
    bool several;       /* a rank has several of their files */
    const msp_layout *layout;
    msp_error *err;
} planner;

static msp_status
no_memory(planner *p)
{
    return msp_error_set(p->err, MSP_E_NOMEM, "out of memory while pairing the dumps");
}

char *
msp_plan_file(const char *dir, const char *stem, const char *timestamp, const char *ext)
{
    msp_buf name = {0};
    char *path;

    msp_buf_text(&name, stem);
    if (timestamp != NULL)
        msp_buf_printf(&name, "_%s", timestamp);
    msp_buf_printf(&name, ".%s", ext);
    path = name.failed ? NULL : msp_path_join(dir, name.p);
    msp_buf_release(&name);
    return path;
}

static int64_t
file_size(const msp_dump_place *p)
{
    struct stat st;

    return p != NULL && stat(p->path, &st) == 0 ? (int64_t)st.st_size : 0;
}

int64_t
msp_plan_weight(const msp_plan_pair *pair)
{
    return file_size(pair->npu) + file_size(pair->bench);
}

/* ---- one pair ---------------------------------------------------------------------------------------------------- */

static char *
finish_text(msp_buf *b)
{
    char *p;

    msp_buf_text(b, ""); /* never NULL */
    p = b->failed ? NULL : b->p != NULL ? b->p : msp_result_text(MSP_STR(""));
    if (p == NULL)
        msp_buf_release(b);
    *b = (msp_buf){0};
    return p;
}

static void
add_words(msp_buf *b, const char *const *words, size_t n, const char *separator)
{
    for (size_t i = 0; i < n; i++)
        if (words[i][0] != '\0') {
            if (b->len > 0)
                msp_buf_text(b, separator);
            msp_buf_text(b, words[i]);
        }
}

/* "rank0-rank4" of two ranks' .pkl files, and the file's own name where a rank has several. */
static void
name_legacy(msp_buf *out, const planner *p, const msp_dump_place *n, const msp_dump_place *b)
{
    msp_str file = msp_path_base((n != NULL ? n : b)->path);

    if (n != NULL && b != NULL && n->rank_name[0] != '\0' && b->rank_name[0] != '\0')
        msp_buf_printf(out, "_%s-%s", n->rank_name, b->rank_name);
    if (p->several) {
        if (msp_str_ends(file, MSP_STR(".pkl")))
            file.len -= 4;
        msp_buf_char(out, '_');
        msp_buf_str(out, file);
    }
}

static msp_status
name_legacy_pair(planner *p, msp_plan_pair *pair)
{
    msp_buf text = {0};

    msp_free(pair->stem);
    msp_free(pair->advisor_stem);
    msp_buf_text(&text, "compare_result");
    if (p->suffix[0] != '\0' && p->suffix[0] != '_')
        msp_buf_char(&text, '_');
    msp_buf_text(&text, p->suffix);
    name_legacy(&text, p, pair->npu, pair->bench);
    pair->stem = finish_text(&text);
    msp_buf_text(&text, "advisor");
    name_legacy(&text, p, pair->npu, pair->bench);
    pair->advisor_stem = finish_text(&text);
    return pair->stem == NULL || pair->advisor_stem == NULL ? no_memory(p) : MSP_OK;
}

static msp_status
add_pair(planner *p, const msp_dump_place *n, const msp_dump_place *b)
{
    const msp_dump_place *known = n != NULL ? n : b;
    const char *label[] = {known->group, known->step_name, known->rank_name};
    const char *dir[] = {p->output_dir, known->group, known->step_name};
    const char *stem[] = {known->kind == MSP_DUMP_DEBUG ? "debug_compare_result" : "compare_result", known->rank_name};
    const char *advisor[] = {p->second ? "debug_advisor" : "advisor", known->rank_name};
    msp_plan_pair pair = {.npu = n, .bench = b};
    msp_buf text = {0};

    add_words(&text, label, 3, " ");
    pair.label = finish_text(&text);
    add_words(&text, dir, 3, "/");
    pair.out_dir = finish_text(&text);
    add_words(&text, stem, 2, "_");
    pair.stem = finish_text(&text);
    add_words(&text, advisor, 2, "_");
    pair.advisor_stem = finish_text(&text);
    if (!msp_vec_grow((void **)&p->out->pairs, &p->cap, p->out->npairs + 1, sizeof(pair))) {
        msp_free(pair.label);
        msp_free(pair.out_dir);
        msp_free(pair.stem);
        msp_free(pair.advisor_stem);
        return no_memory(p);
    }
    p->out->pairs[p->out->npairs++] = pair;
    if (pair.label == NULL || pair.out_dir == NULL || pair.stem == NULL || pair.advisor_stem == NULL)
        return no_memory(p);
    return known->kind == MSP_DUMP_LEGACY ? name_legacy_pair(p, &p->out->pairs[p->out->npairs - 1]) : MSP_OK;
}

/* ---- levels ------------------------------------------------------------------------------------------------------ */

typedef struct level {
    const char *(*name)(const msp_dump_place *p);
    int64_t (*number)(const msp_dump_place *p);
    bool by_number_first; /* equal numbers go together even where both sides have as many runs */
    msp_status (*pair)(planner *p, run_of n, run_of b);
} level;

static bool
same_item(const level *l, const msp_dump_place *a, const msp_dump_place *b)
{
    return strcmp(l->name(a), l->name(b)) == 0;
}

static size_t
run_length(const level *l, run_of places)
{
    size_t n = 0;

    while (n < places.count && same_item(l, &places.first[0], &places.first[n]))
        n++;
    return n;
}

/* The runs that places consist of; NULL when there is no memory. */
static run_of *
split_runs(const level *l, run_of places, size_t *count)
{
    run_of *runs = msp_alloc(places.count, sizeof(*runs));

    *count = 0;
    while (runs != NULL && places.count > 0) {
        size_t n = run_length(l, places);

        runs[(*count)++] = (run_of){places.first, n};
        places = (run_of){places.first + n, places.count - n};
    }
    return runs;
}

static msp_status
add_lonely(planner *p, run_of places, bool npu)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; i < places.count && st == MSP_OK; i++)
        st = add_pair(p, npu ? &places.first[i] : NULL, npu ? NULL : &places.first[i]);
    return st;
}

static bool
same_level(const level *l, const msp_dump_place *a, const msp_dump_place *b)
{
    return l->number(a) == l->number(b) && (l->number(a) != MSP_DUMP_NO_NUMBER || same_item(l, a, b));
}

static size_t
count_common(const level *l, const run_of *n, size_t nn, const run_of *b, size_t nb)
{
    size_t common = 0;

    for (size_t i = 0; i < nn; i++)
        for (size_t k = 0; k < nb; k++)
            common += same_level(l, n[i].first, b[k].first);
    return common;
}

static msp_status
pair_in_order(planner *p, const level *l, const run_of *n, const run_of *b, size_t count)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; i < count && st == MSP_OK; i++) {
        const char *x = l->name(n[i].first), *y = l->name(b[i].first);

        /* where one side is the folder of a single rank or step, its user has chosen it */
        if (l->number(n[i].first) != l->number(b[i].first) && x[0] != '\0' && y[0] != '\0')
            msp_warning("%s of the NPU side is compared with %s of the bench side: their numbers differ, they are "
                        "paired in order",
                        x, y);
        st = l->pair(p, n[i], b[i]);
    }
    return st;
}

static msp_status
pair_by_number(planner *p, const level *l, const run_of *n, size_t nn, const run_of *b, size_t nb)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; i < nn && st == MSP_OK; i++) {
        size_t k = 0;

        while (k < nb && !same_level(l, n[i].first, b[k].first))
            k++;
        st = k < nb ? l->pair(p, n[i], b[k]) : add_lonely(p, n[i], true);
    }
    for (size_t k = 0; k < nb && st == MSP_OK; k++) {
        size_t i = 0;

        while (i < nn && !same_level(l, n[i].first, b[k].first))
            i++;
        if (i == nn)
            st = add_lonely(p, b[k], false);
    }
    return st;
}

/* Take those out that cannot be read, so that they are named, and the others keep their order. */
static msp_status
set_aside(planner *p, run_of *runs, size_t *count, bool npu)
{
    msp_status st = MSP_OK;
    size_t kept = 0;

    for (size_t i = 0; i < *count && st == MSP_OK; i++)
        if (runs[i].first->error != NULL)
            st = add_lonely(p, runs[i], npu);
        else
            runs[kept++] = runs[i];
    *count = kept;
    return st;
}

static msp_status
pair_level(planner *p, const level *l, run_of npu, run_of bench)
{
    size_t nn, nb;
    run_of *n = split_runs(l, npu, &nn), *b = split_runs(l, bench, &nb);
    msp_status st = n == NULL || b == NULL ? no_memory(p) : MSP_OK;

    if (st == MSP_OK && nn != nb && count_common(l, n, nn, b, nb) == 0) {
        st = set_aside(p, n, &nn, true);
        if (st == MSP_OK)
            st = set_aside(p, b, &nb, false);
    }
    if (st == MSP_OK)
        st = nn == nb && (nn == 1 || !l->by_number_first || count_common(l, n, nn, b, nb) == 0)
                 ? pair_in_order(p, l, n, b, nn)
                 : pair_by_number(p, l, n, nn, b, nb);
    msp_free(n);
    msp_free(b);
    return st;
}

/* ---- the levels, from the inside out ----------------------------------------------------------------------------- */

static const msp_dump_place *
find_kind(run_of places, msp_dump_kind kind)
{
    for (size_t i = 0; i < places.count; i++)
        if (places.first[i].kind == kind)
            return &places.first[i];
    return NULL;
}

static bool
same_file_name(const msp_dump_place *a, const msp_dump_place *b)
{
    return msp_str_eq(msp_path_base(a->path), msp_path_base(b->path));
}

static const msp_dump_place *
find_file_name(run_of places, const msp_dump_place *like)
{
    for (size_t i = 0; i < places.count; i++)
        if (same_file_name(&places.first[i], like))
            return &places.first[i];
    return NULL;
}

static void
warn_without_partner(run_of places, run_of others)
{
    for (size_t i = 0; i < places.count; i++)
        if (find_file_name(others, &places.first[i]) == NULL)
            msp_warning("%s: the other side has no file of this name, left out", places.first[i].path);
}

/* Files whose names hold a time, such as those of overflows, can only go by their order. */
static msp_status
pair_legacy_in_order(planner *p, run_of n, run_of b)
{
    msp_status st = MSP_OK;

    if (n.count != b.count) {
        st = add_lonely(p, n, true);
        return st == MSP_OK ? add_lonely(p, b, false) : st;
    }
    for (size_t i = 0; i < n.count && st == MSP_OK; i++) {
        msp_warning("%s is compared with %s: their names differ, they are paired in order", n.first[i].path,
                    b.first[i].path);
        st = add_pair(p, &n.first[i], &b.first[i]);
    }
    return st;
}

/*
 * The older tools let users name their files: one on each side go together, of several those of one name. What one side
 * lacks matters only when nothing else is there.
 */
static msp_status
pair_legacy(planner *p, run_of n, run_of b)
{
    msp_status st = MSP_OK;
    size_t common = 0;

    if (n.first->kind != b.first->kind)
        return msp_error_set(p->err, MSP_E_INVALID, "%s is of an older tool, %s is not: they cannot be compared",
                             (n.first->kind == MSP_DUMP_LEGACY ? n : b).first->path,
                             (n.first->kind == MSP_DUMP_LEGACY ? b : n).first->path);
    if (n.count == 1 && b.count == 1)
        return add_pair(p, n.first, b.first);
    p->several = true;
    for (size_t i = 0; i < n.count && st == MSP_OK; i++) {
        const msp_dump_place *partner = find_file_name(b, &n.first[i]);

        if (partner == NULL)
            continue;
        common++;
        st = add_pair(p, &n.first[i], partner);
    }
    if (st == MSP_OK && common == 0)
        st = pair_legacy_in_order(p, n, b);
    if (st == MSP_OK && common > 0) {
        warn_without_partner(n, b);
        warn_without_partner(b, n);
    }
    p->several = false;
    return st;
}

/* dump.json with dump.json, debug.json with debug.json. What one side lacks matters only when nothing else is there. */
static msp_status
pair_files(planner *p, run_of n, run_of b)
{
    static const msp_dump_kind kinds[] = {MSP_DUMP_API, MSP_DUMP_DEBUG};
    msp_status st = MSP_OK;
    bool any = false;

    if (n.first->error != NULL || b.first->error != NULL)
        return add_pair(p, n.first, b.first);
    if (n.first->kind == MSP_DUMP_LEGACY || b.first->kind == MSP_DUMP_LEGACY)
        return pair_legacy(p, n, b);
    for (size_t i = 0; i < 2 && st == MSP_OK; i++) {
        const msp_dump_place *x = find_kind(n, kinds[i]), *y = find_kind(b, kinds[i]);

        if (x != NULL && y != NULL) {
            p->second = any;
            any = true;
            st = add_pair(p, x, y);
        }
    }
    p->second = false;
    if (st != MSP_OK || any)
        return st;
    st = add_lonely(p, n, true);
    return st == MSP_OK ? add_lonely(p, b, false) : st;
}

static const char *
rank_name(const msp_dump_place *p)
{
    return p->rank_name;
}

static int64_t
rank_number(const msp_dump_place *p)
{
    return p->rank;
}

/* One group of the layout (NULL: all ranks) as one pair. */
static msp_status
pair_group(planner *p, run_of n, run_of b, const msp_layout_group *g)
{
    msp_dump_place *joined[2] = {NULL, NULL};
    size_t count[2] = {0, 0};
    msp_plan_pair *pair;
    msp_status st = msp_plan_join(&joined[0], &count[0], n.first, n.count, g != NULL ? g->ranks[0] : NULL,
                                  g != NULL ? g->n[0] : 0, "NPU", p->err);

    if (st == MSP_OK)
        st = msp_plan_join(&joined[1], &count[1], b.first, b.count, g != NULL ? g->ranks[1] : NULL,
                           g != NULL ? g->n[1] : 0, "bench", p->err);
    if (st == MSP_OK)
        st = add_pair(p, &joined[0][0], &joined[1][0]);
    if (st != MSP_OK) {
        msp_free(joined[0]);
        msp_free(joined[1]);
        return st;
    }
    pair = &p->out->pairs[p->out->npairs - 1];
    pair->nnpu = count[0];
    pair->nbench = count[1];
    pair->joined[0] = joined[0];
    pair->joined[1] = joined[1];
    return MSP_OK;
}

static msp_status
pair_by_layout(planner *p, run_of n, run_of b)
{
    msp_status st = MSP_OK;

    if (p->layout->ngroups == 0)
        return pair_group(p, n, b, NULL);
    for (size_t i = 0; i < p->layout->ngroups && st == MSP_OK; i++)
        st = pair_group(p, n, b, &p->layout->groups[i]);
    return st;
}

static msp_status
pair_ranks(planner *p, run_of n, run_of b)
{
    static const level ranks = {rank_name, rank_number, false, pair_files};

    if (p->layout != NULL)
        return pair_by_layout(p, n, b);
    return pair_level(p, &ranks, n, b);
}

static const char *
step_name(const msp_dump_place *p)
{
    return p->step_name;
}

static int64_t
step_number(const msp_dump_place *p)
{
    return p->step;
}

static msp_status
pair_steps(planner *p, run_of n, run_of b)
{
    static const level steps = {step_name, step_number, true, pair_ranks};

    return pair_level(p, &steps, n, b);
}

static const char *
group_name(const msp_dump_place *p)
{
    return p->group;
}

/* graph and pynative have names only */
static int64_t
group_number(const msp_dump_place *p)
{
    return p->group[0] == '\0' ? MSP_DUMP_NO_NUMBER : p->group[0];
}

static msp_status
pair_groups(planner *p, run_of n, run_of b)
{
    static const level groups = {group_name, group_number, true, pair_steps};

    return pair_level(p, &groups, n, b);
}

/* ---- both sides -------------------------------------------------------------------------------------------------- */

static void
warn_strays(const msp_dump_layout *l)
{
    enum { SHOWN = 5 };

    for (size_t i = 0; i < l->nstrays && i < SHOWN; i++)
        msp_warning("%s: no part of a dump, left out", l->strays[i]);
    if (l->nstrays > SHOWN)
        msp_warning("%zu more names beside the dumps are no part of them, left out", l->nstrays - SHOWN);
}

static msp_status
check_kinds(const msp_compare_options *opt, msp_error *err)
{
    msp_path_kind n = msp_path_kind_of(opt->npu_path), b = msp_path_kind_of(opt->bench_path);

    if (n == MSP_PATH_OTHER || b == MSP_PATH_OTHER)
        return msp_error_set(err, MSP_E_IO, "%s: is a device or pipe, not a regular file",
                             n == MSP_PATH_OTHER ? opt->npu_path : opt->bench_path);
    if (n != MSP_PATH_NONE && b != MSP_PATH_NONE && n != b)
        return msp_error_set(err, MSP_E_INVALID,
                             "The npu_path and bench_path need to be of the same type. %s is a %s, %s is a %s",
                             opt->npu_path, n == MSP_PATH_DIR ? "folder" : "file", opt->bench_path,
                             b == MSP_PATH_DIR ? "folder" : "file");
    return MSP_OK;
}

/* How many folders of a level were walked through, and in *first and *named the first and the one of this name. */
static size_t
count_folders(const msp_dump_layout *l, const char *(*name)(const msp_dump_place *p), msp_str wanted,
              const char **first, const char **named)
{
    const char *last = "";
    size_t n = 0;

    *first = *named = NULL;
    for (size_t i = 0; i < l->count; i++) {
        const char *here = name(&l->places[i]);

        if (here[0] == '\0' || strcmp(here, last) == 0 || l->places[i].error != NULL)
            continue;
        last = here;
        n++;
        if (*first == NULL)
            *first = here;
        if (msp_str_eq(msp_str_of(here), wanted))
            *named = here;
    }
    return n;
}

/*
 * "npu/step0" against "bench", which holds several steps: nobody can say which of them is meant. One folder too many or
 * too few on the way to a single one does no harm.
 */
static msp_status
check_level(const msp_plan *plan, const msp_compare_options *opt, const char *what,
            const char *(*name)(const msp_dump_place *p), msp_error *err)
{
    const char *paths[] = {opt->npu_path, opt->bench_path}, *first[2], *named[2];
    size_t n[2];

    n[0] = count_folders(&plan->npu, name, msp_path_base(paths[1]), &first[0], &named[0]);
    n[1] = count_folders(&plan->bench, name, msp_path_base(paths[0]), &first[1], &named[1]);
    for (int many = 0; many < 2; many++) {
        const char *inside = named[many] != NULL ? named[many] : first[many];
        msp_str dir = {paths[many], strlen(paths[many])};

        while (dir.len > 1 && dir.p[dir.len - 1] == '/')
            dir.len--;
        if (n[many] > 1 && n[1 - many] == 0)
            return msp_error_set(err, MSP_E_INVALID,
                                 "the two paths are of different levels: %s holds %zu %ss, %s is inside one. Name the "
                                 "same level on both sides: %.*s/%s and %s",
                                 paths[many], n[many], what, paths[1 - many], (int)dir.len, dir.p, inside,
                                 paths[1 - many]);
    }
    return MSP_OK;
}

msp_status
msp_plan_make(msp_plan *out, const msp_compare_options *opt, const msp_layout *layout, msp_error *err)
{
    planner p = {.out = out,
                 .output_dir = opt->output_dir != NULL ? opt->output_dir : "./output",
                 .suffix = opt->legacy != NULL && opt->legacy->suffix != NULL ? opt->legacy->suffix : "",
                 .layout = layout,
                 .err = err};
    msp_status st = check_kinds(opt, err);

    *out = (msp_plan){0};
    if (st == MSP_OK && strchr(p.suffix, '/') != NULL)
        st = msp_error_set(err, MSP_E_INVALID, "the suffix \"%s\" must not hold a /", p.suffix);
    if (st == MSP_OK)
        st = msp_dump_find(&out->npu, opt->npu_path, err);
    if (st == MSP_OK)
        st = msp_dump_find(&out->bench, opt->bench_path, err);
    if (st != MSP_OK)
        return st;
    warn_strays(&out->npu);
    warn_strays(&out->bench);
    if (msp_path_kind_of(opt->npu_path) == MSP_PATH_FILE && out->npu.places[0].kind != out->bench.places[0].kind &&
        out->npu.places[0].kind != MSP_DUMP_LEGACY && out->bench.places[0].kind != MSP_DUMP_LEGACY)
        return msp_error_set(err, MSP_E_INVALID, "%s and %s: both must be dump.json, or both debug.json", opt->npu_path,
                             opt->bench_path);
    st = check_level(out, opt, "step", step_name, err);
    if (st == MSP_OK && layout == NULL)
        st = check_level(out, opt, "rank", rank_name, err);
    if (st != MSP_OK)
        return st;
    return pair_groups(&p, (run_of){out->npu.places, out->npu.count}, (run_of){out->bench.places, out->bench.count});
}

void
msp_plan_release(msp_plan *p)
{
    for (size_t i = 0; i < p->npairs; i++) {
        msp_free(p->pairs[i].label);
        msp_free(p->pairs[i].out_dir);
        msp_free(p->pairs[i].stem);
        msp_free(p->pairs[i].advisor_stem);
        msp_free(p->pairs[i].joined[0]);
        msp_free(p->pairs[i].joined[1]);
    }
    msp_free(p->pairs);
    msp_dump_layout_release(&p->npu);
    msp_dump_layout_release(&p->bench);
    *p = (msp_plan){0};
}
