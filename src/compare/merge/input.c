/* input.c - see input.h. */
#include "compare/merge/input.h"

#include <stdio.h>
#include <stdlib.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/log.h"
#include "core/path.h"
#include "core/vec.h"
#include "text/yaml.h"

enum { CONFIG_LIMIT = 64 << 20 };

/* ---- configuration ----------------------------------------------------------------------------------------------- */

msp_str
msp_merge_metric_name(msp_str name)
{
    /* the manual writes one title in two ways */
    if (msp_str_eq(name, MSP_STR("Five Thousandth Err Ratio")))
        return MSP_STR("Five Thousandths Err Ratio");
    return name;
}

static msp_status
check_list(const msp_json *list, const char *key, const char *path, msp_error *err)
{
    if (msp_json_kind_of(list) != MSP_JSON_ARRAY)
        return msp_error_set(err, MSP_E_INVALID, "%s: %s must be a list, one name per line after \"- \"", path, key);
    for (size_t i = 0; i < msp_json_count(list); i++)
        if (msp_json_string(msp_json_at(list, i)).len == 0)
            return msp_error_set(err, MSP_E_INVALID, "%s: item %zu of %s is not a name", path, i + 1, key);
    return MSP_OK;
}

static msp_status
no_memory(const char *path, msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", path);
}

/* "Distributed.all_reduce" selects the rows of all its calls, and not those of Distributed.all_reduce_coalesced. */
static msp_status
take_apis(msp_merge_config *c, const msp_json *list, const char *path, msp_error *err)
{
    size_t n = msp_json_count(list);
    msp_status st;

    if (list == NULL || msp_json_kind_of(list) == MSP_JSON_NULL || (msp_json_kind_of(list) == MSP_JSON_ARRAY && n == 0))
        return msp_error_set(err, MSP_E_INVALID,
                             "The APIs required to merge data were not found. %s must have a list of them under api:",
                             path);
    st = check_list(list, "api", path, err);
    if (st != MSP_OK)
        return st;
    c->apis = msp_alloc(n, sizeof(*c->apis));
    if (c->apis == NULL)
        return no_memory(path, err);
    for (size_t i = 0; i < n; i++) {
        msp_str name = msp_json_string(msp_json_at(list, i));
        char *copy = msp_arena_alloc(&c->doc.arena, name.len + 1, 1);

        if (copy == NULL)
            return no_memory(path, err);
        memcpy(copy, name.p, name.len);
        copy[name.len] = '.';
        c->apis[c->napis++] = (msp_str){copy, name.len + 1};
    }
    return MSP_OK;
}

static msp_status
take_metrics(msp_merge_config *c, const msp_json *list, const char *path, msp_error *err)
{
    size_t n = msp_json_count(list);
    msp_status st;

    if (list == NULL || msp_json_kind_of(list) == MSP_JSON_NULL)
        return MSP_OK;
    st = check_list(list, "compare_index", path, err);
    if (st != MSP_OK)
        return st;
    c->metrics = msp_alloc(n, sizeof(*c->metrics));
    if (c->metrics == NULL)
        return no_memory(path, err);
    for (size_t i = 0; i < n; i++) {
        msp_str name = msp_merge_metric_name(msp_json_string(msp_json_at(list, i)));
        bool twice = false;

        for (size_t k = 0; k < c->nmetrics; k++)
            twice = twice || msp_str_eq(c->metrics[k], name);
        if (!twice)
            c->metrics[c->nmetrics++] = name;
    }
    return MSP_OK;
}

static void
warn_of_unknown_keys(const msp_json *root, const char *path)
{
    for (size_t i = 0; i < msp_json_count(root); i++) {
        msp_str key = msp_json_key(root, i);

        if (!msp_str_eq(key, MSP_STR("api")) && !msp_str_eq(key, MSP_STR("compare_index")))
            msp_warning("%s: the key %.*s is not known here (api and compare_index are).", path, (int)key.len, key.p);
    }
}

static msp_status
take_config(msp_merge_config *c, const char *path, msp_error *err)
{
    const msp_json *root = c->doc.root;
    msp_status st;

    if (root == NULL || msp_json_kind_of(root) == MSP_JSON_NULL)
        return msp_error_set(err, MSP_E_INVALID, "%s: is empty; it must have a list of APIs under api:", path);
    if (msp_json_kind_of(root) != MSP_JSON_OBJECT)
        return msp_error_set(err, MSP_E_INVALID, "%s: must have the keys api and compare_index", path);
    warn_of_unknown_keys(root, path);
    st = take_apis(c, msp_json_get(root, "api"), path, err);
    if (st == MSP_OK)
        st = take_metrics(c, msp_json_get(root, "compare_index"), path, err);
    return st;
}

msp_status
msp_merge_config_load(msp_merge_config *out, const char *path, msp_error *err)
{
    char *text;
    size_t size;
    msp_status st;

    *out = (msp_merge_config){0};
    st = msp_file_read(&text, &size, path, CONFIG_LIMIT, err);
    if (st != MSP_OK)
        return st;
    st = msp_yaml_parse(&out->doc, text, size, err);
    if (st != MSP_OK)
        st = msp_error_prefix(err, st, "%s: ", path);
    else
        st = take_config(out, path, err);
    msp_free(text);
    if (st != MSP_OK)
        msp_merge_config_release(out);
    return st;
}

void
msp_merge_config_release(msp_merge_config *c)
{
    msp_json_doc_release(&c->doc);
    msp_free(c->apis);
    msp_free(c->metrics);
    *c = (msp_merge_config){0};
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

typedef enum name_kind {
    NAME_NOT_OURS, /* neither .xlsx nor a rank's .csv: of no interest */
    NAME_RANK,     /* compare_result_rank3_20260101000000.xlsx */
    NAME_BARE,     /* compare_result_rank_20260101000000.xlsx: a run without rank numbers */
    NAME_OTHER,    /* another file that compare or merge_result writes */
    NAME_FOREIGN
} name_kind;

/* Take this text, or at least one digit, from the front of s. */
static bool
take_prefix(msp_str *s, msp_str text)
{
    if (!msp_str_starts(*s, text))
        return false;
    *s = (msp_str){s->p + text.len, s->len - text.len};
    return true;
}

static msp_str
take_digits(msp_str *s)
{
    msp_str digits = {s->p, 0};

    while (digits.len < s->len && s->p[digits.len] >= '0' && s->p[digits.len] <= '9')
        digits.len++;
    *s = (msp_str){s->p + digits.len, s->len - digits.len};
    return digits;
}

/* "_20260101000000", perhaps with "_2" behind it, and nothing else: into stamp. */
static bool
take_stamp(msp_str s, char stamp[32])
{
    msp_str digits, more = MSP_STR("0");

    if (!take_prefix(&s, MSP_STR("_")) || (digits = take_digits(&s)).len != 14)
        return false;
    if (s.len > 0 && (!take_prefix(&s, MSP_STR("_")) || (more = take_digits(&s)).len == 0 || more.len > 9))
        return false;
    snprintf(stamp, 32, "%.14s_%09d", digits.p, atoi(more.p));
    return s.len == 0;
}

static name_kind
classify_name(msp_str name, unsigned long long *rank, char stamp[32])
{
    bool xlsx = msp_str_ends(name, MSP_STR(".xlsx")), csv = msp_str_ends(name, MSP_STR(".csv"));
    msp_str s = {name.p, name.len - (xlsx ? 5 : csv ? 4 : 0)}, digits;
    name_kind otherwise = xlsx ? NAME_FOREIGN : NAME_NOT_OURS;

    if ((!xlsx && !csv) || msp_str_starts(name, MSP_STR(".")) || msp_str_starts(name, MSP_STR("~$")) ||
        msp_str_starts(name, MSP_STR("job_table_")))
        return NAME_NOT_OURS; /* "~$" is Excel's lock on a file that is open */
    if (take_prefix(&s, MSP_STR("debug_")) || take_prefix(&s, MSP_STR("multi_ranks_compare_merge")))
        return xlsx ? NAME_OTHER : NAME_NOT_OURS;
    if (!take_prefix(&s, MSP_STR("compare_result")))
        return otherwise;
    if (take_stamp(s, stamp))
        return xlsx ? NAME_OTHER : NAME_NOT_OURS; /* of a single card */
    if (!take_prefix(&s, MSP_STR("_rank")))
        return otherwise;
    digits = take_digits(&s);
    if (take_prefix(&s, MSP_STR("-rank")))
        take_digits(&s);
    if (!take_stamp(s, stamp))
        return otherwise;
    if (digits.len == 0)
        return NAME_BARE;
    return msp_str_to_u64(digits, rank) ? NAME_RANK : otherwise;
}

/* Keep the newest of each rank; of a workbook and a csv of one moment the workbook, which has the kinds of its cells.
 */
static msp_status
add_file(msp_merge_files *f, size_t *cap, const char *dir, const char *name, unsigned long long rank, const char *stamp,
         msp_error *err)
{
    char *path = msp_path_join(dir, name);
    msp_merge_file *old = NULL;
    int newer;

    if (path == NULL || !msp_vec_grow((void **)&f->items, cap, f->count + 1, sizeof(*f->items))) {
        msp_free(path);
        return no_memory(dir, err);
    }
    for (size_t i = 0; i < f->count; i++)
        if (f->items[i].rank == rank)
            old = &f->items[i];
    if (old == NULL) {
        old = &f->items[f->count++];
        *old = (msp_merge_file){path, rank, ""};
        snprintf(old->stamp, sizeof(old->stamp), "%s", stamp);
        return MSP_OK;
    }
    newer = strcmp(stamp, old->stamp);
    if (newer != 0)
        msp_warning("rank%llu has more than one compare result; %s is merged.", rank, newer > 0 ? path : old->path);
    if (newer > 0 || (newer == 0 && msp_str_ends(msp_str_of(name), MSP_STR(".xlsx")))) {
        msp_free(old->path);
        old->path = path;
        snprintf(old->stamp, sizeof(old->stamp), "%s", stamp);
    } else {
        msp_free(path);
    }
    return MSP_OK;
}

static int
by_rank(const void *a, const void *b)
{
    unsigned long long x = ((const msp_merge_file *)a)->rank, y = ((const msp_merge_file *)b)->rank;

    return (x > y) - (x < y);
}

static msp_status
take_name(msp_merge_files *f, size_t *cap, const char *dir, const char *name, msp_error *err)
{
    unsigned long long rank = 0;
    char stamp[32];

    switch (classify_name(msp_str_of(name), &rank, stamp)) {
    case NAME_NOT_OURS:
        break;
    case NAME_RANK:
        return add_file(f, cap, dir, name, rank, stamp, err);
    case NAME_BARE:
        msp_warning("%s is the result of a single rank, which needs no merging; it is left out.", name);
        break;
    case NAME_OTHER:
        msp_warning("%s is not the compare result of a rank; it is left out.", name);
        break;
    case NAME_FOREIGN:
        return msp_error_set(
            err, MSP_E_INVALID,
            "Wrong compare result name: %s/%s is not called compare_result_rank<N>_<time>.xlsx; move it "
            "elsewhere",
            dir, name);
    }
    return MSP_OK;
}

/* A comparison of several steps leaves a folder for each: the first of them, or NULL. */
static const char *
first_step(const msp_dir_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (strncmp(list->names[i], "step", 4) == 0)
            return list->names[i];
    return NULL;
}

static msp_status
too_few(const msp_merge_files *found, const char *dir, const msp_dir_list *list, msp_error *err)
{
    const char *step = found->count == 0 ? first_step(list) : NULL;

    if (step != NULL)
        return msp_error_set(
            err, MSP_E_NOT_FOUND,
            "%s: compare results of no rank here, but folders of steps: merge one of them, as -i %s/%s", dir, dir,
            step);
    return msp_error_set(
        err, MSP_E_NOT_FOUND,
        "%s: compare results of %s rank, and merging needs two: give the output directory of a compare "
        "over several ranks",
        dir, found->count == 0 ? "no" : "one");
}

msp_status
msp_merge_files_find(msp_merge_files *out, const char *dir, msp_error *err)
{
    msp_dir_list list;
    size_t cap = 0;
    msp_status st;

    *out = (msp_merge_files){0};
    st = msp_dir_list_read(&list, dir, err);
    if (st != MSP_OK)
        return st;
    for (size_t i = 0; i < list.count && st == MSP_OK; i++)
        st = take_name(out, &cap, dir, list.names[i], err);
    if (st == MSP_OK && out->count < 2)
        st = too_few(out, dir, &list, err);
    msp_dir_list_release(&list);
    if (st == MSP_OK)
        qsort(out->items, out->count, sizeof(*out->items), by_rank);
    else
        msp_merge_files_release(out);
    return st;
}

void
msp_merge_files_release(msp_merge_files *f)
{
    for (size_t i = 0; i < f->count; i++)
        msp_free(f->items[i].path);
    msp_free(f->items);
    *f = (msp_merge_files){0};
}
