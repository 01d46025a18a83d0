/* layout.c - see layout.h. */
#include "compare/layout/layout.h"

#include <math.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/log.h"
#include "dump/dump_read.h"
#include "text/yaml.h"

enum { MAX_BYTES = 16 << 20, MAX_RANK = 1 << 24 };

static const char *const hows[] = {"replicate", "concat", "sum", "skip"};

const char *
msp_layout_how_text(msp_layout_how how)
{
    return hows[how];
}

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* A key that means nothing is a mistake, and would be a rule without effect. */
static msp_status
check_keys(const msp_json *v, const char *const *known, const char *what, size_t number, msp_error *err)
{
    if (msp_json_kind_of(v) != MSP_JSON_OBJECT)
        return msp_error_set(err, MSP_E_INVALID, "%s %zu must be a mapping", what, number + 1);
    for (size_t i = 0; i < msp_json_count(v); i++) {
        msp_str key = msp_json_key(v, i);
        size_t k = 0;

        while (known[k] != NULL && !msp_str_eq(key, msp_str_of(known[k])))
            k++;
        if (known[k] == NULL)
            return msp_error_set(err, MSP_E_INVALID, "%s %zu: there is no key '%.*s'", what, number + 1,
                                 (int)(key.len < 60 ? key.len : 60), key.p);
    }
    return MSP_OK;
}

static msp_status
read_ranks(msp_arena *arena, int64_t **out, size_t *n, const msp_json *v, const char *what, size_t number,
           msp_error *err)
{
    *n = msp_json_count(v);
    if (msp_json_kind_of(v) != MSP_JSON_ARRAY || *n == 0)
        return msp_error_set(err, MSP_E_INVALID, "%s %zu: ranks are a list of numbers, such as [0, 1]", what,
                             number + 1);
    *out = msp_arena_alloc(arena, *n, sizeof(**out));
    if (*out == NULL)
        return no_memory(err);
    for (size_t i = 0; i < *n; i++) {
        if (!msp_json_to_i64(msp_json_at(v, i), &(*out)[i]) || (*out)[i] < 0 || (*out)[i] > MAX_RANK)
            return msp_error_set(err, MSP_E_INVALID, "%s %zu: ranks are numbers from 0 on", what, number + 1);
        for (size_t k = 0; k < i; k++)
            if ((*out)[k] == (*out)[i])
                return msp_error_set(err, MSP_E_INVALID, "%s %zu: rank %lld stands twice in the list", what, number + 1,
                                     (long long)(*out)[i]);
    }
    return MSP_OK;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static msp_status
read_how(msp_layout_rule *r, const msp_json *v, size_t number, msp_error *err)
{
    msp_str how = msp_json_string(msp_json_get(v, "how"));

    for (size_t i = 0; i < sizeof(hows) / sizeof(hows[0]); i++)
        if (msp_str_eq(how, msp_str_of(hows[i]))) {
            r->how = (msp_layout_how)i;
            return MSP_OK;
        }
    return msp_error_set(err, MSP_E_INVALID, "part %zu: 'how' is concat, sum, replicate or skip", number + 1);
}

static msp_status
read_side(msp_layout_rule *r, const msp_json *v, size_t number, msp_error *err)
{
    const msp_json *side = msp_json_get(v, "side");
    msp_str text = msp_json_string(side);

    if (side == NULL || msp_str_eq(text, MSP_STR("npu")))
        return MSP_OK;
    r->side = 1;
    return msp_str_eq(text, MSP_STR("bench"))
               ? MSP_OK
               : msp_error_set(err, MSP_E_INVALID, "part %zu: 'side' is npu or bench", number + 1);
}

static msp_status
read_axis(msp_layout_rule *r, const msp_json *v, size_t number, msp_error *err)
{
    const msp_json *axis = msp_json_get(v, "axis");
    int64_t n;

    if (r->how != LAYOUT_CONCAT)
        return axis == NULL ? MSP_OK
                            : msp_error_set(err, MSP_E_INVALID, "part %zu: only concat has an axis", number + 1);
    if (axis == NULL || !msp_json_to_i64(axis, &n) || n < -64 || n > 63)
        return msp_error_set(err, MSP_E_INVALID, "part %zu: concat needs an 'axis', such as 0 or -1", number + 1);
    r->axis = (int)n;
    return MSP_OK;
}

/* By which each part is multiplied: a mean over n ranks is the sum of their parts by 1/n. */
static msp_status
read_factor(msp_layout_rule *r, const msp_json *v, size_t number, msp_error *err)
{
    const msp_json *factor = msp_json_get(v, "factor");

    r->factor = 1;
    if (factor == NULL)
        return MSP_OK;
    if (r->how != LAYOUT_CONCAT && r->how != LAYOUT_SUM)
        return msp_error_set(err, MSP_E_INVALID, "part %zu: only concat and sum have a factor", number + 1);
    if (!msp_json_to_f64(factor, &r->factor) || !(r->factor > 0) || !isfinite(r->factor))
        return msp_error_set(err, MSP_E_INVALID, "part %zu: 'factor' is a number above 0, such as 0.5", number + 1);
    return MSP_OK;
}

static msp_status
read_rule(msp_layout *l, const msp_json *v, size_t number, msp_error *err)
{
    static const char *const known[] = {"name", "how", "axis", "factor", "ranks", "side", NULL};
    msp_layout_rule *r = &l->rules[number];
    msp_status st = check_keys(v, known, "part", number, err);
    msp_str name = st == MSP_OK ? msp_json_string(msp_json_get(v, "name")) : (msp_str){0};
    char *copy;

    if (st != MSP_OK)
        return st;
    if (name.len == 0)
        return msp_error_set(err, MSP_E_INVALID, "part %zu: 'name' is a pattern such as \"*.q_proj.*.output.*\"",
                             number + 1);
    copy = msp_arena_text(&l->arena, name.p, name.len);
    if (copy == NULL)
        return no_memory(err);
    r->pattern = (msp_str){copy, name.len};
    st = read_how(r, v, number, err);
    if (st == MSP_OK)
        st = read_side(r, v, number, err);
    if (st == MSP_OK)
        st = read_axis(r, v, number, err);
    if (st == MSP_OK)
        st = read_factor(r, v, number, err);
    if (st == MSP_OK && msp_json_get(v, "ranks") != NULL)
        st = read_ranks(&l->arena, &r->ranks, &r->nranks, msp_json_get(v, "ranks"), "part", number, err);
    return st;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static msp_status
read_group(msp_layout *l, const msp_json *v, size_t number, msp_error *err)
{
    static const char *const known[] = {"npu", "bench", NULL};
    msp_layout_group *g = &l->groups[number];
    msp_status st = check_keys(v, known, "group", number, err);

    for (int side = 0; side < 2 && st == MSP_OK; side++)
        st = read_ranks(&l->arena, &g->ranks[side], &g->n[side], msp_json_get(v, known[side]), "group", number, err);
    return st;
}

/* A rank can only be compared once. */
static msp_status
check_groups(const msp_layout *l, msp_error *err)
{
    for (size_t a = 0; a < l->ngroups; a++)
        for (size_t b = 0; b < a; b++)
            for (int side = 0; side < 2; side++)
                for (size_t i = 0; i < l->groups[a].n[side]; i++)
                    for (size_t k = 0; k < l->groups[b].n[side]; k++)
                        if (l->groups[a].ranks[side][i] == l->groups[b].ranks[side][k])
                            return msp_error_set(err, MSP_E_INVALID, "rank %lld of the %s side stands in two groups",
                                                 (long long)l->groups[a].ranks[side][i], side == 0 ? "NPU" : "bench");
    return MSP_OK;
}

/* ---- stages ------------------------------------------------------------------------------------------------------ */

static msp_status
read_stages_of(msp_layout *l, int side, const msp_json *v, msp_error *err)
{
    enum { MOST_STAGES = 4096 };
    size_t n = msp_json_count(v);

    if (msp_json_kind_of(v) != MSP_JSON_ARRAY || n == 0 || n > MOST_STAGES)
        return msp_error_set(err, MSP_E_INVALID, "'stages' of a side are a list of lists of ranks, such as [[0], [1]]");
    l->stages[side] = msp_arena_alloc_zero(&l->arena, n, sizeof(*l->stages[side]));
    if (l->stages[side] == NULL)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        msp_layout_stage *s = &l->stages[side][i];
        msp_status st = read_ranks(&l->arena, &s->ranks, &s->n, msp_json_at(v, i), "stage", i, err);

        for (size_t k = 0; k < s->n && st == MSP_OK; k++)
            if (msp_layout_stage_of(l, side, s->ranks[k]) < l->nstages[side])
                st = msp_error_set(err, MSP_E_INVALID, "stage %zu: rank %lld stands in another one, too", i + 1,
                                   (long long)s->ranks[k]);
        if (st != MSP_OK)
            return st;
        l->nstages[side]++;
    }
    return MSP_OK;
}

static msp_status
read_stages(msp_layout *l, const msp_json *v, msp_error *err)
{
    static const char *const known[] = {"npu", "bench", "micro_batches", NULL};
    const msp_json *parts = msp_json_get(v, "micro_batches");
    msp_status st = MSP_OK;

    l->micro_batches = 1;
    if (v == NULL)
        return MSP_OK;
    if (check_keys(v, known, "stages", 0, err) != MSP_OK)
        return msp_error_set(err, MSP_E_INVALID, "'stages' are a mapping with 'npu', 'bench' and 'micro_batches'");
    if (parts != NULL && (!msp_json_to_i64(parts, &l->micro_batches) || l->micro_batches < 1))
        return msp_error_set(err, MSP_E_INVALID, "stages: 'micro_batches' is a number from 1 on");
    for (int side = 0; side < 2 && st == MSP_OK; side++)
        if (msp_json_get(v, known[side]) != NULL)
            st = read_stages_of(l, side, msp_json_get(v, known[side]), err);
    return st;
}

size_t
msp_layout_stage_of(const msp_layout *l, int side, int64_t rank)
{
    for (size_t i = 0; i < l->nstages[side]; i++)
        for (size_t k = 0; k < l->stages[side][i].n; k++)
            if (l->stages[side][i].ranks[k] == rank)
                return i;
    return l->nstages[side];
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static msp_status
sort_rules(msp_layout *l, msp_error *err)
{
    l->others = msp_arena_alloc(&l->arena, l->nrules + 1, sizeof(*l->others));
    if (l->others == NULL)
        return no_memory(err);
    for (size_t i = 0; i < l->nrules; i++) {
        msp_str name = l->rules[i].pattern;

        if (memchr(name.p, '*', name.len) != NULL || memchr(name.p, '?', name.len) != NULL || l->rules[i].side != 0)
            l->others[l->nothers++] = i;
        else if (msp_map_put(&l->exact, name, (int64_t)i, NULL) == NULL)
            return no_memory(err);
    }
    return MSP_OK;
}

static msp_status
read_root(msp_layout *l, const msp_json *root, msp_error *err)
{
    static const char *const known[] = {"parts", "groups", "stages", NULL};
    enum { MOST_MEMBERS = 4096 };
    const msp_json *parts = msp_json_get(root, "parts"), *groups = msp_json_get(root, "groups");
    msp_status st = check_keys(root, known, "layout", 0, err);

    if (st != MSP_OK)
        return msp_error_set(err, MSP_E_INVALID, "a layout has 'parts', 'groups' and 'stages', and nothing else");
    if ((parts != NULL && msp_json_kind_of(parts) != MSP_JSON_ARRAY) ||
        (groups != NULL && msp_json_kind_of(groups) != MSP_JSON_ARRAY))
        return msp_error_set(err, MSP_E_INVALID, "'parts' and 'groups' are lists");
    l->rules = msp_arena_alloc_zero(&l->arena, msp_json_count(parts) + 1, sizeof(*l->rules));
    l->groups = msp_arena_alloc_zero(&l->arena, msp_json_count(groups) + 1, sizeof(*l->groups));
    l->used = msp_arena_alloc_zero(&l->arena, msp_json_count(parts) + 1, sizeof(*l->used));
    if (l->rules == NULL || l->groups == NULL || l->used == NULL)
        return no_memory(err);
    if (msp_json_count(groups) > MOST_MEMBERS)
        return msp_error_set(err, MSP_E_LIMIT, "more than %d groups", MOST_MEMBERS);
    for (; l->nrules < msp_json_count(parts) && st == MSP_OK; l->nrules++)
        st = read_rule(l, msp_json_at(parts, l->nrules), l->nrules, err);
    for (; l->ngroups < msp_json_count(groups) && st == MSP_OK; l->ngroups++)
        st = read_group(l, msp_json_at(groups, l->ngroups), l->ngroups, err);
    if (st == MSP_OK)
        st = read_stages(l, msp_json_get(root, "stages"), err);
    if (st == MSP_OK)
        st = sort_rules(l, err);
    return st == MSP_OK ? check_groups(l, err) : st;
}

msp_status
msp_layout_parse(msp_layout *out, const char *text, size_t size, msp_error *err)
{
    msp_json_doc doc;
    msp_status st;

    *out = (msp_layout){0};
    st = msp_yaml_parse(&doc, text, size, err);
    if (st == MSP_OK)
        st = read_root(out, doc.root, err);
    msp_json_doc_release(&doc);
    return st;
}

msp_status
msp_layout_load(msp_layout *out, const char *path, msp_error *err)
{
    char *text = NULL;
    size_t size;
    msp_status st;

    *out = (msp_layout){0};
    st = msp_dump_check_owner(path, err);
    if (st == MSP_OK)
        st = msp_file_read(&text, &size, path, MAX_BYTES, err);
    if (st != MSP_OK)
        return st;
    st = msp_layout_parse(out, text, size, err);
    msp_free(text);
    return st == MSP_OK ? MSP_OK : msp_error_prefix(err, st, "%s: ", path);
}

void
msp_layout_release(msp_layout *l)
{
    msp_map_release(&l->exact);
    msp_arena_release(&l->arena);
    *l = (msp_layout){0};
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* With one star to go back to this takes at most the product of both lengths. */
static bool
fits(msp_str pattern, msp_str name)
{
    size_t p = 0, n = 0, star = SIZE_MAX, from = 0;

    while (n < name.len) {
        if (p < pattern.len && pattern.p[p] == '*') {
            star = p++;
            from = n;
        } else if (p < pattern.len && (pattern.p[p] == '?' || pattern.p[p] == name.p[n])) {
            p++;
            n++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            n = ++from;
        } else {
            return false;
        }
    }
    while (p < pattern.len && pattern.p[p] == '*')
        p++;
    return p == pattern.len;
}

static const msp_layout_rule *
find(const msp_layout *l, int side, msp_str name)
{
    const msp_map_entry *e = l->nrules > 0 ? msp_map_get(&l->exact, name) : NULL;
    size_t first = e != NULL ? (size_t)e->value : SIZE_MAX;

    if (e != NULL && l->rules[first].side != side && l->rules[first].how != LAYOUT_SKIP)
        first = SIZE_MAX;
    for (size_t i = 0; i < l->nothers && l->others[i] < first; i++) {
        const msp_layout_rule *r = &l->rules[l->others[i]];

        if ((r->side == side || r->how == LAYOUT_SKIP) && fits(r->pattern, name))
            return r;
    }
    return first != SIZE_MAX ? &l->rules[first] : NULL;
}

const msp_layout_rule *
msp_layout_find(const msp_layout *l, int side, msp_str name)
{
    const msp_layout_rule *r = find(l, side, name);

    if (r != NULL)
        atomic_store_explicit(&l->used[r - l->rules], 1, memory_order_relaxed);
    return r;
}

void
msp_layout_warn(const msp_layout *l, const char *path)
{
    enum { SHOWN = 5 };
    size_t unused = 0;

    for (size_t i = 0; i < l->nrules; i++)
        if (!l->used[i] && unused++ < SHOWN)
            msp_warning("%s: part %zu (%.*s) is the rule of no row", path, i + 1,
                        (int)(l->rules[i].pattern.len < 200 ? l->rules[i].pattern.len : 200), l->rules[i].pattern.p);
    if (unused > SHOWN)
        msp_warning("%s: so are %zu more parts", path, unused - SHOWN);
}
