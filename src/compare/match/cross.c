/* cross.c - names across frameworks, by API (-am), by cell (-cm) and by layer (-lm): see cross.h. */
#include <stdlib.h>
#include "compare/match/api_table.h"
#include "compare/match/cross.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/log.h"
#include "core/vec.h"
#include "text/yaml.h"

enum { MAX_YAML = 64 << 20 };

typedef enum cross_kind { CROSS_API, CROSS_CELL, CROSS_LAYER } cross_kind;

/* One entry of an api_mapping yaml: which argument of one function is which of the other. */
typedef struct api_rule {
    msp_str ms, pt;
    const msp_json *args[2], *outputs[2]; /* MindSpore, PyTorch: lists of equal length, or NULL */
} api_rule;

struct msp_cross {
    cross_kind kind;
    const char *path; /* of the yaml, NULL: the built-in rules only */
    char *text;
    msp_json_doc doc;
    api_rule *rules;
    size_t nrules, cap;
    msp_map names; /* -am: MindSpore's name to its rule; -cm: a cell's name to its member in doc */
};

struct msp_cross_pair {
    const msp_cross *cross;
    const msp_cross_sides sides;
    msp_arena arena;
    msp_str *pt;        /* -am, for each NPU call: PyTorch's name for its function; empty: the call keeps its name */
    int64_t *rule;      /* -am, for each NPU call: the yaml's rule, or MSP_CROSS_NONE */
    int64_t *partner;   /* -lm, for each NPU call: the bench's, or MSP_CROSS_NONE */
    msp_map bench_rows; /* -lm: the names that there are */
};

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

/* ---- functions ----------------------------------------------------------------------------------------------- */

msp_str
msp_cross_stem(msp_str api)
{
    msp_str none = {NULL, 0};
    size_t end = api.len, number;

    if (msp_str_ends(api, MSP_STR(".forward")))
        end -= 8;
    else if (msp_str_ends(api, MSP_STR(".backward")))
        end -= 9;
    else
        return none;
    for (number = end; number > 0 && api.p[number - 1] != '.'; number--)
        continue;
    if (number < 2 || !msp_str_is_digits((msp_str){api.p + number, end - number}))
        return none;
    return (msp_str){api.p, number - 1};
}

static int
compare_name(const void *key, const void *name)
{
    const msp_str *k = key;

    return msp_str_cmp(*k, msp_str_of(*(const char *const *)name));
}

/* A prefix replaced by another, in scratch. */
static msp_str
with_prefix(const char *prefix, msp_str rest, msp_buf *scratch)
{
    msp_buf_clear(scratch);
    msp_buf_text(scratch, prefix);
    msp_buf_str(scratch, rest);
    return msp_buf_view(scratch);
}

static msp_str
text_after(msp_str s, size_t n)
{
    return (msp_str){s.p + n, s.len - n};
}

msp_str
msp_cross_builtin(msp_str stem, msp_buf *scratch)
{
    static const struct {
        msp_str ms;
        const char *pt;
    } prefixes[] = {{{"Mint.", 5}, "Torch."},
                    {{"MintFunctional.", 15}, "Functional."},
                    {{"MintDistributed.", 16}, "Distributed."}};
    msp_str functional = MSP_STR("Functional."), name;

    for (size_t i = 0; i < sizeof(renamed_others) / sizeof(renamed_others[0]); i++)
        if (msp_str_eq(stem, msp_str_of(renamed_others[i].name)))
            return msp_str_of(renamed_others[i].is);
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (msp_str_starts(stem, prefixes[i].ms))
            return with_prefix(prefixes[i].pt, text_after(stem, prefixes[i].ms.len), scratch);
    if (!msp_str_starts(stem, functional))
        return stem;
    name = text_after(stem, functional.len);
    for (size_t i = 0; i < sizeof(renamed_functions) / sizeof(renamed_functions[0]); i++)
        if (msp_str_eq(name, msp_str_of(renamed_functions[i].name)))
            return msp_str_of(renamed_functions[i].is);
    if (bsearch(&name, torch_functions, sizeof(torch_functions) / sizeof(torch_functions[0]),
                sizeof(torch_functions[0]), compare_name) != NULL)
        return with_prefix("Torch.", name, scratch);
    return stem;
}

/* ---- yaml files ---------------------------------------------------------------------------------------------- */

/* Two lists that must pair up; the older spelling without the s is accepted. */
static msp_status
read_lists(const msp_json *out[2], const msp_json *entry, const char *const keys[2][2], bool *usable, msp_error *err)
{
    for (int i = 0; i < 2; i++) {
        out[i] = msp_json_get(entry, keys[i][0]);
        if (out[i] == NULL)
            out[i] = msp_json_get(entry, keys[i][1]);
        if (msp_json_kind_of(out[i]) == MSP_JSON_NULL)
            out[i] = NULL;
        else if (msp_json_kind_of(out[i]) != MSP_JSON_ARRAY)
            return msp_error_set(err, MSP_E_INVALID, "%s must be a list of positions", keys[i][0]);
    }
    if (msp_json_count(out[0]) != msp_json_count(out[1])) {
        msp_warning("%s and %s of an api_mapping entry have different lengths: the entry is left out", keys[0][0],
                    keys[1][0]);
        *usable = false;
    }
    return MSP_OK;
}

static msp_status
add_api_rule(msp_cross *c, const msp_json *entry, msp_error *err)
{
    static const char *const args[2][2] = {{"ms_args", "ms_arg"}, {"pt_args", "pt_arg"}};
    static const char *const outputs[2][2] = {{"ms_outputs", "ms_output"}, {"pt_outputs", "pt_output"}};
    api_rule r = {.ms = msp_json_string(msp_json_get(entry, "ms_api")),
                  .pt = msp_json_string(msp_json_get(entry, "pt_api"))};
    bool usable = true;
    msp_map_entry *e;
    msp_status st;

    if (r.ms.len == 0 || r.pt.len == 0)
        return msp_error_set(err, MSP_E_INVALID,
                             "every entry needs ms_api and pt_api, such as Functional.abs and Torch.abs");
    st = read_lists(r.args, entry, args, &usable, err);
    if (st == MSP_OK)
        st = read_lists(r.outputs, entry, outputs, &usable, err);
    if (st != MSP_OK)
        return msp_error_prefix(err, st, "the entry of %.*s: ", (int)r.ms.len, r.ms.p);
    if (!usable)
        return MSP_OK;
    if (!msp_vec_grow((void **)&c->rules, &c->cap, c->nrules + 1, sizeof(*c->rules)))
        return no_memory(err);
    c->rules[c->nrules] = r;
    e = msp_map_put(&c->names, r.ms, 0, NULL);
    if (e == NULL)
        return no_memory(err);
    e->value = (int64_t)c->nrules++;
    return MSP_OK;
}

/* A list of entries, or one entry by itself. */
static msp_status
read_api_rules(msp_cross *c, msp_error *err)
{
    const msp_json *root = c->doc.root;
    msp_status st = MSP_OK;

    if (msp_json_kind_of(root) == MSP_JSON_OBJECT)
        return add_api_rule(c, root, err);
    if (msp_json_kind_of(root) != MSP_JSON_ARRAY || msp_json_count(root) == 0)
        return msp_error_set(err, MSP_E_INVALID, "must hold a list of entries with ms_api and pt_api");
    for (size_t i = 0; st == MSP_OK && i < msp_json_count(root); i++)
        st = add_api_rule(c, msp_json_at(root, i), err);
    return st;
}

static msp_status
read_cell_rules(msp_cross *c, msp_error *err)
{
    const msp_json *root = c->doc.root;

    if (msp_json_kind_of(root) != MSP_JSON_OBJECT)
        return msp_error_set(err, MSP_E_INVALID, "must hold lines \"cell.Class: module.Class\"");
    for (size_t i = 0; i < msp_json_count(root); i++) {
        msp_map_entry *e = msp_map_put(&c->names, msp_json_key(root, i), 0, NULL);

        if (e == NULL)
            return no_memory(err);
        e->value = (int64_t)i;
        if (msp_json_kind_of(msp_json_at(root, i)) != MSP_JSON_STRING)
            return msp_error_set(err, MSP_E_INVALID, "the value of %.*s must be a module's name and class",
                                 (int)msp_json_key(root, i).len, msp_json_key(root, i).p);
    }
    return MSP_OK;
}

static msp_status
read_layer_rules(msp_cross *c, msp_error *err)
{
    const msp_json *root = c->doc.root;

    if (msp_json_kind_of(root) != MSP_JSON_OBJECT)
        return msp_error_set(err, MSP_E_INVALID, "must hold, for each class, lines \"layer: layer\"");
    for (size_t i = 0; i < msp_json_count(root); i++) {
        const msp_json *lines = msp_json_at(root, i);
        bool fine = msp_json_kind_of(lines) == MSP_JSON_OBJECT;

        for (size_t k = 0; fine && k < msp_json_count(lines); k++)
            fine = msp_json_kind_of(msp_json_at(lines, k)) == MSP_JSON_STRING;
        if (!fine)
            return msp_error_set(err, MSP_E_INVALID, "below %.*s there must be lines \"layer: layer\"",
                                 (int)msp_json_key(root, i).len, msp_json_key(root, i).p);
    }
    return MSP_OK;
}

static msp_status
read_yaml(msp_cross *c, msp_error *err)
{
    size_t size;
    msp_status st = msp_file_read(&c->text, &size, c->path, MAX_YAML, err);

    if (st != MSP_OK)
        return st;
    st = msp_yaml_parse(&c->doc, c->text, size, err);
    if (st == MSP_OK)
        st = c->kind == CROSS_API    ? read_api_rules(c, err)
             : c->kind == CROSS_CELL ? read_cell_rules(c, err)
                                     : read_layer_rules(c, err);
    if (st != MSP_OK)
        msp_error_prefix(err, st, "%s: ", c->path);
    return st;
}

msp_status
msp_cross_open(msp_cross **out, const msp_compare_options *opt, msp_error *err)
{
    const char *given = opt->api_mapping != NULL    ? opt->api_mapping
                        : opt->cell_mapping != NULL ? opt->cell_mapping
                                                    : opt->layer_mapping;
    msp_cross *c;
    msp_status st = MSP_OK;

    *out = NULL;
    if (given == NULL)
        return MSP_OK;
    c = msp_alloc_zero(1, sizeof(*c));
    if (c == NULL)
        return no_memory(err);
    c->kind = opt->api_mapping != NULL ? CROSS_API : opt->cell_mapping != NULL ? CROSS_CELL : CROSS_LAYER;
    c->path = given[0] != '\0' ? given : NULL;
    if (c->path != NULL)
        st = read_yaml(c, err);
    if (st != MSP_OK) {
        msp_cross_close(c);
        return st;
    }
    *out = c;
    return MSP_OK;
}

void
msp_cross_close(msp_cross *c)
{
    if (c == NULL)
        return;
    msp_map_release(&c->names);
    msp_free(c->rules);
    msp_json_doc_release(&c->doc);
    msp_free(c->text);
    msp_free(c);
}

/* ---- one pair: functions ------------------------------------------------------------------------------------- */

/* The functions that the bench calls; a rule that names another one does not apply. */
static msp_status
collect_bench_functions(msp_map *out, const msp_rows *bench, msp_error *err)
{
    for (size_t i = 0; i < bench->napis; i++) {
        msp_str stem = msp_cross_stem(bench->apis[i].name);

        if (stem.len > 0 && msp_map_put(out, stem, 0, NULL) == NULL)
            return no_memory(err);
    }
    return MSP_OK;
}

/* Calls of one function share one text, so that a million calls cost no million names. */
static msp_status
builtin_of(msp_str *out, msp_cross_pair *p, msp_map *known, msp_str stem, msp_buf *scratch, msp_error *err)
{
    bool added;
    msp_map_entry *e = msp_map_put(known, stem, 0, &added);
    msp_str name;
    char *copy;

    if (e == NULL)
        return no_memory(err);
    if (added) {
        name = msp_cross_builtin(stem, scratch);
        copy = msp_arena_text(&p->arena, name.p, name.len);
        if (scratch->failed || copy == NULL)
            return no_memory(err);
        e->value = (int64_t)(intptr_t)copy;
    }
    *out = msp_str_of((const char *)(intptr_t)e->value);
    return MSP_OK;
}

static msp_status
map_functions(msp_cross_pair *p, msp_map *known, const msp_map *bench, msp_buf *scratch, msp_error *err)
{
    const msp_rows *npu = p->sides.npu;
    msp_status st = MSP_OK;

    for (size_t i = 0; st == MSP_OK && i < npu->napis; i++) {
        msp_str stem = msp_cross_stem(npu->apis[i].name);
        msp_map_entry *e = stem.len > 0 ? msp_map_get(&p->cross->names, stem) : NULL;

        p->rule[i] = MSP_CROSS_NONE;
        if (e != NULL && msp_map_get(bench, p->cross->rules[e->value].pt) != NULL) {
            p->rule[i] = e->value;
            p->pt[i] = p->cross->rules[e->value].pt;
        } else if (stem.len > 0) {
            st = builtin_of(&p->pt[i], p, known, stem, scratch, err);
        }
    }
    return st;
}

static msp_status
open_functions(msp_cross_pair *p, msp_error *err)
{
    size_t n = p->sides.npu->napis;
    msp_map bench = {0}, known = {0};
    msp_buf scratch = {0};
    msp_status st;

    p->pt = msp_arena_alloc_zero(&p->arena, n, sizeof(*p->pt));
    p->rule = msp_arena_alloc(&p->arena, n, sizeof(*p->rule));
    if (p->pt == NULL || p->rule == NULL)
        return no_memory(err);
    st = collect_bench_functions(&bench, p->sides.bench, err);
    if (st == MSP_OK)
        st = map_functions(p, &known, &bench, &scratch, err);
    msp_buf_release(&scratch);
    msp_map_release(&known);
    msp_map_release(&bench);
    return st;
}

/* The other list's entry at the place where this one holds the position; NULL when it does not. */
static const msp_json *
paired_position(const msp_json *const lists[2], msp_str position)
{
    for (size_t i = 0; i < msp_json_count(lists[0]); i++) {
        const msp_json *v = msp_json_at(lists[0], i);
        msp_str text = msp_json_kind_of(v) == MSP_JSON_STRING ? msp_json_string(v) : msp_json_number_text(v);

        if (msp_str_eq(text, position))
            return msp_json_at(lists[1], i);
    }
    return NULL;
}

static void
add_position(msp_buf *out, const msp_json *v)
{
    msp_buf_str(out, msp_json_kind_of(v) == MSP_JSON_STRING ? msp_json_string(v) : msp_json_number_text(v));
}

/*
 * ".0.forward.input.2.x" under a rule: the position after input or output is replaced; a position that the rule leaves
 * out has no partner. A gradient that comes into the backward call belongs to an output of the forward one, and one
 * that leaves it to an input. Arguments that have names keep them.
 */
static bool
add_with_rule(msp_buf *out, const api_rule *r, msp_str rest)
{
    bool backward = msp_str_find(rest, MSP_STR(".backward.")) != NULL;
    const char *input = msp_str_find(rest, MSP_STR(".input.")), *output = msp_str_find(rest, MSP_STR(".output."));
    const msp_json *const *lists = (input != NULL) != backward ? r->args : r->outputs;
    const char *at = input != NULL ? input + 7 : output != NULL ? output + 8 : NULL, *end = rest.p + rest.len;
    size_t len = 0;
    const msp_json *to;

    if (at == NULL || lists[0] == NULL) {
        msp_buf_str(out, rest);
        return true;
    }
    while (at + len < end && at[len] != '.')
        len++;
    to = paired_position(lists, (msp_str){at, len});
    if (to == NULL && msp_str_is_digits((msp_str){at, len}))
        return false;
    msp_buf_add(out, rest.p, (size_t)(at - rest.p));
    if (to != NULL)
        add_position(out, to);
    else
        msp_buf_add(out, at, len);
    msp_buf_add(out, at + len, (size_t)(end - at) - len);
    return true;
}

static msp_str
api_key(const msp_rows *npu, const msp_row *row, msp_buf *scratch, void *ctx)
{
    const msp_cross_pair *p = ctx;
    msp_str name = msp_row_name(row), stem = msp_cross_stem(npu->apis[row->api].name);
    msp_str pt = p->pt[row->api], rest;

    if (pt.len == 0 || !msp_str_starts(name, stem))
        return name;
    rest = text_after(name, stem.len);
    msp_buf_str(scratch, pt);
    if (p->rule[row->api] == MSP_CROSS_NONE)
        msp_buf_str(scratch, rest);
    else if (!add_with_rule(scratch, &p->cross->rules[p->rule[row->api]], rest))
        return (msp_str){NULL, 0};
    return msp_buf_view(scratch);
}

/* ---- one pair: cells ----------------------------------------------------------------------------------------- */

/* Where the part after cell and class begins: ".forward.", ".backward." or ".parameters_grad.". */
static const char *
find_direction(msp_str name)
{
    static const msp_str marks[] = {{".forward.", 9}, {".backward.", 10}, {".parameters_grad.", 17}};

    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        const char *at = msp_str_find(name, marks[i]);

        if (at != NULL)
            return at;
    }
    return msp_str_ends(name, MSP_STR(".parameters_grad")) ? name.p + name.len - 16 : NULL;
}

static msp_str
cell_key(const msp_rows *npu, const msp_row *row, msp_buf *scratch, void *ctx)
{
    const msp_cross_pair *p = ctx;
    msp_str name = msp_row_name(row), cell = MSP_STR("Cell."), part;
    const char *end = find_direction(name);
    msp_map_entry *e;

    (void)npu;
    if (end == NULL)
        return (msp_str){NULL, 0};
    if (!msp_str_starts(name, cell))
        return name;
    part = (msp_str){name.p + cell.len, end > name.p + cell.len ? (size_t)(end - name.p) - cell.len : 0};
    e = msp_map_get(&p->cross->names, part);
    msp_buf_text(scratch, "Module.");
    msp_buf_str(scratch, e != NULL ? msp_json_string(msp_json_at(p->cross->doc.root, (size_t)e->value)) : part);
    msp_buf_add(scratch, part.p + part.len, (size_t)(name.p + name.len - part.p) - part.len);
    return msp_buf_view(scratch);
}

/* ---- one pair: layers ---------------------------------------------------------------------------------------- */

static msp_str
layer_key(const msp_rows *npu, const msp_row *row, msp_buf *scratch, void *ctx)
{
    const msp_cross_pair *p = ctx;
    msp_str name = msp_row_name(row), api = npu->apis[row->api].name;
    int64_t partner = p->partner[row->api];

    if (partner == MSP_CROSS_NONE || !msp_str_starts(name, api))
        return (msp_str){NULL, 0};
    msp_buf_str(scratch, p->sides.bench->apis[partner].name);
    msp_buf_str(scratch, text_after(name, api.len));
    return msp_buf_view(scratch);
}

/* A name as a yaml scalar: plain where it is harmless, else between single quotes. */
static void
add_scalar(msp_buf *out, msp_str s)
{
    bool plain = s.len > 0 && ((s.p[0] | 32) >= 'a' && (s.p[0] | 32) <= 'z');

    for (size_t i = 0; plain && i < s.len; i++)
        plain = (s.p[i] >= '0' && s.p[i] <= '9') || ((s.p[i] | 32) >= 'a' && (s.p[i] | 32) <= 'z') || s.p[i] == '_' ||
                s.p[i] == '.' || s.p[i] == '/';
    if (plain) {
        msp_buf_str(out, s);
        return;
    }
    msp_buf_char(out, '\'');
    for (size_t i = 0; i < s.len; i++) {
        if (s.p[i] == '\'')
            msp_buf_char(out, '\'');
        msp_buf_char(out, s.p[i]);
    }
    msp_buf_char(out, '\'');
}

static void
add_mapping_line(msp_buf *out, msp_str name, msp_str to)
{
    bool is_long = name.len > 1000; /* yaml bounds a plain key at 1024 characters */

    if (is_long)
        msp_buf_text(out, "? ");
    add_scalar(out, name);
    msp_buf_text(out, is_long ? "\n: " : ": ");
    add_scalar(out, to);
    msp_buf_char(out, '\n');
}

static msp_status
write_lines(msp_file *f, msp_cross_pair *p, msp_buf *out, msp_buf *scratch, msp_error *err)
{
    const msp_rows *npu = p->sides.npu;
    msp_status st = MSP_OK;

    for (size_t i = 0; st == MSP_OK && i <= npu->count; i++) {
        if (i < npu->count) {
            msp_str key;

            msp_buf_clear(scratch);
            key = layer_key(npu, &npu->rows[i], scratch, p);
            if (key.len == 0 || msp_map_get(&p->bench_rows, key) == NULL)
                key = MSP_STR("N/A");
            add_mapping_line(out, msp_row_name(&npu->rows[i]), key);
        }
        if (scratch->failed || out->failed)
            return no_memory(err);
        if (out->len >= 1 << 20 || i == npu->count) {
            st = msp_file_write(f, out->p, out->len, err);
            msp_buf_clear(out);
        }
    }
    return st;
}

/* What was found is written down, so that a user can correct it and give it back with -dm. */
static msp_status
write_mapping(msp_cross_pair *p, msp_error *err)
{
    const msp_rows *bench = p->sides.bench;
    msp_buf out = {0}, scratch = {0};
    msp_file f = MSP_FILE_NONE;
    msp_status st = MSP_OK;

    for (size_t i = 0; i < bench->count; i++)
        if (msp_map_put(&p->bench_rows, msp_row_name(&bench->rows[i]), 0, NULL) == NULL)
            return no_memory(err);
    if (p->sides.mapping_path != NULL) {
        st = msp_file_create(&f, p->sides.mapping_path, 0640, err);
        if (st == MSP_OK)
            st = write_lines(&f, p, &out, &scratch, err);
        if (st == MSP_OK)
            st = msp_file_commit(&f, err);
    }
    msp_file_abandon(&f);
    msp_buf_release(&scratch);
    msp_buf_release(&out);
    msp_map_release(&p->bench_rows);
    p->bench_rows = (msp_map){0};
    return st;
}

static msp_status
open_layers(msp_cross_pair *p, msp_error *err)
{
    msp_status st;

    p->partner = msp_arena_alloc(&p->arena, p->sides.npu->napis, sizeof(*p->partner));
    if (p->partner == NULL)
        return no_memory(err);
    st = msp_cross_layers(p->partner, &p->sides, p->cross->doc.root, err);
    return st == MSP_OK ? write_mapping(p, err) : st;
}

/* ---- one pair ------------------------------------------------------------------------------------------------ */

msp_status
msp_cross_pair_open(msp_cross_pair **out, const msp_cross *c, const msp_cross_sides *sides, msp_error *err)
{
    msp_cross_pair *p = msp_alloc_zero(1, sizeof(*p));
    msp_status st = MSP_OK;

    *out = NULL;
    if (p == NULL)
        return no_memory(err);
    memcpy(p, &(msp_cross_pair){.cross = c, .sides = *sides}, sizeof(*p));
    if (c->kind == CROSS_API)
        st = open_functions(p, err);
    else if (c->kind == CROSS_LAYER)
        st = open_layers(p, err);
    if (st != MSP_OK) {
        msp_cross_pair_close(p);
        return st;
    }
    *out = p;
    return MSP_OK;
}

void
msp_cross_pair_close(msp_cross_pair *p)
{
    if (p == NULL)
        return;
    msp_map_release(&p->bench_rows);
    msp_arena_release(&p->arena);
    msp_free(p);
}

void
msp_cross_pair_rule(const msp_cross_pair *p, msp_match_rule *rule)
{
    static msp_match_key *const keys[] = {api_key, cell_key, layer_key};

    rule->key = keys[p->cross->kind];
    rule->key_ctx = (void *)p;
    if (p->cross->kind == CROSS_LAYER)
        rule->ignore_shape = rule->ignore_dtype = true;
}
