/* config.c - compare.json: which two dumps, and a few switches. */
#include "compare/run/run.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/log.h"

enum { MAX_BYTES = 64 << 20 };

/* The manual's own example has "# ..." after a value: blanks instead, so that positions in messages stay right. */
static void
blank_comments(char *text, size_t n)
{
    bool in_string = false;

    for (size_t i = 0; i < n; i++) {
        if (in_string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            in_string = !in_string;
        else if (!in_string && text[i] == '#')
            while (i < n && text[i] != '\n')
                text[i++] = ' ';
    }
}

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

/* other is what the manual's functions call the key: who copies it from there is understood. */
static msp_status
read_path(char **out, const msp_json *root, const char *key, const char *other, bool required, msp_error *err)
{
    const msp_json *v = msp_json_get(root, key) != NULL ? msp_json_get(root, key) : msp_json_get(root, other);
    msp_str text = msp_json_string(v);

    if (v != NULL && msp_json_kind_of(v) != MSP_JSON_STRING && msp_json_kind_of(v) != MSP_JSON_NULL)
        return msp_error_set(err, MSP_E_INVALID, "%s must be a path in quotes", key);
    if (text.len == 0 && required)
        return msp_error_set(err, MSP_E_INVALID, "Missing %s in input configuration file, please check!%s", key,
                             msp_json_get(root, "data") != NULL
                                 ? " This is a dump itself: compare two of them with msprobe compare NPU BENCH"
                                 : "");
    if (text.len == 0)
        return MSP_OK;
    if (memchr(text.p, '\0', text.len) != NULL)
        return msp_error_set(err, MSP_E_INVALID, "%s holds a zero byte", key);
    *out = msp_result_text(text);
    return *out == NULL ? no_memory(err) : MSP_OK;
}

static msp_status
read_bool(bool *out, const msp_json *root, const char *key, msp_error *err)
{
    const msp_json *v = msp_json_get(root, key);
    msp_json_kind kind = msp_json_kind_of(v);

    if (v == NULL)
        return MSP_OK;
    if (kind != MSP_JSON_TRUE && kind != MSP_JSON_FALSE)
        return msp_error_set(err, MSP_E_INVALID, "%s must be true or false", key);
    *out = kind == MSP_JSON_TRUE;
    return MSP_OK;
}

/* A list of whole numbers, 0 or more; an empty one means all. */
static msp_status
read_numbers(int64_t **out, size_t *n, bool *has, const msp_json *root, const char *key, msp_error *err)
{
    const msp_json *v = msp_json_get(root, key);

    if (v == NULL || msp_json_kind_of(v) == MSP_JSON_NULL)
        return MSP_OK;
    if (msp_json_kind_of(v) != MSP_JSON_ARRAY)
        return msp_error_set(err, MSP_E_INVALID, "%s must be a list of numbers", key);
    *has = true;
    *out = msp_alloc(msp_json_count(v), sizeof(**out));
    if (*out == NULL)
        return no_memory(err);
    for (*n = 0; *n < msp_json_count(v); (*n)++)
        if (!msp_json_to_i64(msp_json_at(v, *n), &(*out)[*n]) || (*out)[*n] < 0)
            return msp_error_set(err, MSP_E_INVALID, "%s must be a list of numbers, 0 or more", key);
    return MSP_OK;
}

static msp_status
read_map_dict(msp_compare_config *c, const msp_json *root, msp_error *err)
{
    const msp_json *v = msp_json_get(root, "map_dict");
    size_t n = msp_json_count(v);

    if (v == NULL || msp_json_kind_of(v) == MSP_JSON_NULL)
        return MSP_OK;
    if (msp_json_kind_of(v) != MSP_JSON_OBJECT)
        return msp_error_set(err, MSP_E_INVALID, "map_dict must be an object of names");
    c->map_dict = msp_alloc_zero(n, sizeof(*c->map_dict));
    if (c->map_dict == NULL)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        if (msp_json_kind_of(msp_json_at(v, i)) != MSP_JSON_STRING)
            return msp_error_set(err, MSP_E_INVALID, "map_dict must be an object of names");
        c->nmap_dict = i + 1;
        c->map_dict[i][0] = msp_result_text(msp_json_key(v, i));
        c->map_dict[i][1] = msp_result_text(msp_json_string(msp_json_at(v, i)));
        if (c->map_dict[i][0] == NULL || c->map_dict[i][1] == NULL)
            return no_memory(err);
    }
    return MSP_OK;
}

static void
warn_unknown(const msp_json *root, const char *path)
{
    static const char *const known[] = {"npu_path",        "bench_path", "stack_path",     "npu_json_path",
                                        "bench_json_path", "rank_id",    "step_id",        "common",
                                        "stack_json_path", "map_dict",   "parallel_merge", "is_print_compare_log"};

    for (size_t i = 0; i < msp_json_count(root); i++) {
        msp_str key = msp_json_key(root, i);
        bool found = false;

        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
            found |= msp_str_eq(key, msp_str_of(known[k]));
        if (!found)
            msp_warning("%s: the key \"%.*s\" is unknown and has no effect", path, (int)key.len, key.p);
    }
}

static msp_status
read_config(msp_compare_config *out, const msp_json *root, const char *path, msp_error *err)
{
    msp_status st;

    if (msp_json_kind_of(root) != MSP_JSON_OBJECT)
        return msp_error_set(err, MSP_E_FORMAT, "input_param should be dict, please check!");
    warn_unknown(root, path);
    st = read_path(&out->npu_path, root, "npu_path", "npu_json_path", true, err);
    if (st == MSP_OK)
        st = read_path(&out->bench_path, root, "bench_path", "bench_json_path", true, err);
    if (st == MSP_OK)
        st = read_path(&out->stack_path, root, "stack_path", "stack_json_path", false, err);
    if (st == MSP_OK)
        st = read_bool(&out->is_print_compare_log, root, "is_print_compare_log", err);
    if (st == MSP_OK)
        st = read_bool(&out->common, root, "common", err);
    if (st == MSP_OK)
        st = read_numbers(&out->rank_id, &out->nrank_id, &out->has_rank_id, root, "rank_id", err);
    if (st == MSP_OK)
        st = read_numbers(&out->step_id, &out->nstep_id, &out->has_step_id, root, "step_id", err);
    return st == MSP_OK ? read_map_dict(out, root, err) : st;
}

msp_status
msp_compare_config_load(msp_compare_config *out, const char *path, msp_error *err)
{
    msp_json_doc doc = {0};
    char *text = NULL;
    size_t size;
    msp_status st;

    *out = (msp_compare_config){.is_print_compare_log = true};
    st = msp_dump_check_owner(path, err);
    if (st == MSP_OK)
        st = msp_file_read(&text, &size, path, MAX_BYTES, err);
    if (st != MSP_OK)
        return st;
    blank_comments(text, size);
    st = msp_json_parse(&doc, text, size, err);
    if (st == MSP_OK)
        st = read_config(out, doc.root, path, err);
    if (st != MSP_OK) {
        msp_error_prefix(err, st, "%s: ", path);
        msp_compare_config_release(out);
    }
    msp_json_doc_release(&doc);
    msp_free(text);
    return st;
}

void
msp_compare_config_release(msp_compare_config *c)
{
    for (size_t i = 0; i < c->nmap_dict; i++) {
        msp_free(c->map_dict[i][0]);
        msp_free(c->map_dict[i][1]);
    }
    msp_free(c->map_dict);
    msp_free(c->npu_path);
    msp_free(c->bench_path);
    msp_free(c->stack_path);
    msp_free(c->rank_id);
    msp_free(c->step_id);
    *c = (msp_compare_config){0};
}

void
msp_compare_options_init(msp_compare_options *opt)
{
    *opt = (msp_compare_options){.framework = MSP_PYTORCH};
}

void
msp_compare_config_apply(msp_compare_options *opt, const msp_compare_config *c)
{
    opt->npu_path = c->npu_path;
    opt->bench_path = c->bench_path;
    opt->stack_path = c->stack_path;
    opt->log_rows = c->is_print_compare_log;
    opt->common = c->common;
    opt->has_rank_id = c->has_rank_id;
    opt->has_step_id = c->has_step_id;
    opt->rank_id = c->rank_id;
    opt->step_id = c->step_id;
    opt->nrank_id = c->nrank_id;
    opt->nstep_id = c->nstep_id;
    opt->map_dict = (const char *const(*)[2])c->map_dict;
    opt->nmap_dict = c->nmap_dict;
}
