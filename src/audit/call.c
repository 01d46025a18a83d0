/* call.c - the communication calls and weights of one rank's dump.json. */
#include "audit/audit_parts.h"

#include <math.h>
#include <stdio.h>
#include "core/alloc.h"
#include "core/path.h"
#include "core/vec.h"
#include "dump/dump_read.h"
#include "io/tensor_file.h"
#include "msprobe/stats.h"

/* Where an argument stands: its place, and its name when it is given by keyword. */
typedef struct argument {
    int at; /* -1: the call has none */
    const char *name;
} argument;

typedef struct signature {
    const char *api;
    msp_audit_op op;
    argument in, out, reduce, root, group;
    bool shaped; /* all ranks' tensors have one shape */
} signature;

#define NO_ARG \
    {          \
        -1, "" \
    }

static const signature signatures[] = {
    {"all_reduce", MSP_AUDIT_ALL_REDUCE, {0, "tensor"}, {0, "tensor"}, {1, "op"}, NO_ARG, {2, "group"}, true},
    {"all_reduce_coalesced",
     MSP_AUDIT_ALL_REDUCE,
     {0, "tensors"},
     {0, "tensors"},
     {1, "op"},
     NO_ARG,
     {2, "group"},
     true},
    {"reduce", MSP_AUDIT_REDUCE, {0, "tensor"}, {0, "tensor"}, {2, "op"}, {1, "dst"}, {3, "group"}, true},
    {"broadcast", MSP_AUDIT_BROADCAST, {0, "tensor"}, {0, "tensor"}, NO_ARG, {1, "src"}, {2, "group"}, true},
    {"all_gather", MSP_AUDIT_ALL_GATHER, {1, "tensor"}, {0, "tensor_list"}, NO_ARG, NO_ARG, {2, "group"}, false},
    {"all_gather_into_tensor",
     MSP_AUDIT_ALL_GATHER_INTO,
     {1, "input_tensor"},
     {0, "output_tensor"},
     NO_ARG,
     NO_ARG,
     {2, "group"},
     true},
    {"_all_gather_base",
     MSP_AUDIT_ALL_GATHER_INTO,
     {1, "input_tensor"},
     {0, "output_tensor"},
     NO_ARG,
     NO_ARG,
     {2, "group"},
     true},
    {"all_gather_coalesced",
     MSP_AUDIT_ALL_GATHER_LISTS,
     {1, "input_tensor_list"},
     {0, "output_tensor_lists"},
     NO_ARG,
     NO_ARG,
     {2, "group"},
     true},
    {"gather", MSP_AUDIT_GATHER, {0, "tensor"}, {1, "gather_list"}, NO_ARG, {2, "dst"}, {3, "group"}, true},
    {"scatter", MSP_AUDIT_SCATTER, {1, "scatter_list"}, {0, "tensor"}, NO_ARG, {2, "src"}, {3, "group"}, true},
    {"reduce_scatter",
     MSP_AUDIT_REDUCE_SCATTER,
     {1, "input_list"},
     {0, "output"},
     {2, "op"},
     NO_ARG,
     {3, "group"},
     false},
    {"reduce_scatter_tensor",
     MSP_AUDIT_REDUCE_SCATTER_TENSOR,
     {1, "input"},
     {0, "output"},
     {2, "op"},
     NO_ARG,
     {3, "group"},
     true},
    {"_reduce_scatter_base",
     MSP_AUDIT_REDUCE_SCATTER_TENSOR,
     {1, "input"},
     {0, "output"},
     {2, "op"},
     NO_ARG,
     {3, "group"},
     true},
    {"all_to_all",
     MSP_AUDIT_ALL_TO_ALL,
     {1, "input_tensor_list"},
     {0, "output_tensor_list"},
     NO_ARG,
     NO_ARG,
     {2, "group"},
     false},
    {"all_to_all_single",
     MSP_AUDIT_ALL_TO_ALL_SINGLE,
     {1, "input"},
     {0, "output"},
     NO_ARG,
     NO_ARG,
     {4, "group"},
     false},
    {"send", MSP_AUDIT_SEND, {0, "tensor"}, {0, "tensor"}, NO_ARG, {1, "dst"}, {2, "group"}, true},
    {"isend", MSP_AUDIT_SEND, {0, "tensor"}, {0, "tensor"}, NO_ARG, {1, "dst"}, {2, "group"}, true},
    {"recv", MSP_AUDIT_RECV, {0, "tensor"}, {0, "tensor"}, NO_ARG, {1, "src"}, {2, "group"}, true},
    {"irecv", MSP_AUDIT_RECV, {0, "tensor"}, {0, "tensor"}, NO_ARG, {1, "src"}, {2, "group"}, true},
};

/* ---- one record -------------------------------------------------------------------------------------------------- */

static msp_str
keep(msp_audit_rank *r, msp_str s)
{
    char *p = s.len == 0 ? NULL : msp_arena_text(&r->arena, s.p, s.len);

    return (msp_str){p, p == NULL ? 0 : s.len};
}

static const msp_json *
argument_of(const msp_json *record, argument a)
{
    const msp_json *v;

    if (a.at < 0)
        return NULL;
    v = msp_json_at(msp_json_get(record, "input_args"), (size_t)a.at);
    return v != NULL ? v : msp_json_get(msp_json_get(record, "input_kwargs"), a.name);
}

/* The outputs of a communication call are its arguments after the call: those by position, then those by keyword. */
static const msp_json *
argument_after(const msp_json *record, argument a)
{
    const msp_json *args = msp_json_get(record, "input_args"), *kwargs = msp_json_get(record, "input_kwargs");
    const msp_json *output = msp_json_get(record, "output");

    if ((size_t)a.at < msp_json_count(args))
        return msp_json_at(output, (size_t)a.at);
    for (size_t i = 0; i < msp_json_count(kwargs); i++)
        if (msp_str_eq(msp_json_key(kwargs, i), msp_str_of(a.name)))
            return msp_json_at(output, msp_json_count(args) + i);
    return NULL;
}

static bool
is_tensor(const msp_json *v)
{
    return msp_json_kind_of(v) == MSP_JSON_OBJECT && msp_json_get(v, "dtype") != NULL &&
           msp_json_kind_of(msp_json_get(v, "shape")) == MSP_JSON_ARRAY;
}

static void
read_tensor(msp_audit_rank *r, msp_audit_tensor *t, const msp_json *v)
{
    static const char *const names[MSP_AUDIT_NSTATS] = {"Max", "Min", "Mean", "Norm"};
    const msp_json *shape = msp_json_get(v, "shape");
    msp_str dtype = msp_json_string(msp_json_get(v, "dtype"));

    *t = (msp_audit_tensor){.dtype = msp_dtype_parse(dtype.p, dtype.len), .numel = 1, .has_stats = true};
    for (size_t i = 0; i < msp_json_count(shape); i++) {
        int64_t n = 0;

        if (!msp_json_to_i64(msp_json_at(shape, i), &n) || n < 0 || (n > 0 && t->numel > INT64_MAX / n))
            n = 0;
        t->numel *= n;
        if (i < MSP_AUDIT_MAX_DIM)
            t->shape[t->ndim++] = n;
    }
    for (int i = 0; i < MSP_AUDIT_NSTATS; i++)
        if (!msp_json_to_f64(msp_json_get(v, names[i]), &t->stat[i])) {
            t->stat[i] = NAN;
            t->has_stats = t->has_stats && i > 1; /* integers have no Mean and Norm in some generations */
        }
    t->md5 = keep(r, msp_json_string(msp_json_get(v, "md5")));
    t->data_name = keep(r, msp_json_string(msp_json_get(v, "data_name")));
}

/* How many tensors there are in v, which is one, or lists of them. */
static size_t
count_tensors(const msp_json *v)
{
    size_t n = 0;

    if (is_tensor(v))
        return 1;
    if (msp_json_kind_of(v) == MSP_JSON_ARRAY)
        for (size_t i = 0; i < msp_json_count(v); i++)
            n += count_tensors(msp_json_at(v, i));
    return n;
}

static void
fill_tensors(msp_audit_rank *r, msp_audit_list *l, const msp_json *v)
{
    if (is_tensor(v))
        read_tensor(r, &l->items[l->count++], v);
    else if (msp_json_kind_of(v) == MSP_JSON_ARRAY)
        for (size_t i = 0; i < msp_json_count(v); i++)
            fill_tensors(r, l, msp_json_at(v, i));
}

static bool
read_tensors(msp_audit_rank *r, msp_audit_list *l, const msp_json *v)
{
    size_t n = count_tensors(v);

    *l = (msp_audit_list){0};
    if (n == 0)
        return true;
    l->items = msp_arena_alloc_zero(&r->arena, n, sizeof(*l->items));
    if (l->items == NULL)
        return false;
    fill_tensors(r, l, v);
    return true;
}

static msp_audit_reduce
read_reduce(const msp_json *v)
{
    static const char *const names[] = {"", "SUM", "AVG", "PRODUCT", "MAX", "MIN", "BAND", "BOR", "BXOR"};
    msp_str text = msp_json_string(msp_json_get(v, "value"));

    if (v == NULL)
        return MSP_REDUCE_SUM;
    for (size_t i = text.len; i-- > 0;)
        if (text.p[i] == '.') {
            text = (msp_str){text.p + i + 1, text.len - i - 1};
            break;
        }
    for (int i = MSP_REDUCE_SUM; i <= MSP_REDUCE_BXOR; i++)
        if (msp_str_eq(text, msp_str_of(names[i])))
            return (msp_audit_reduce)i;
    return MSP_REDUCE_OTHER;
}

static const char *
reduce_text(msp_audit_reduce r)
{
    static const char *const names[] = {"other", "SUM", "AVG", "PRODUCT", "MAX", "MIN", "BAND", "BOR", "BXOR"};

    return names[r];
}

/* A plain number, or a record of one. */
static bool
read_int(const msp_json *v, int64_t *out)
{
    return msp_json_to_i64(v, out) || msp_json_to_i64(msp_json_get(v, "value"), out);
}

static int64_t *
read_ints(msp_audit_rank *r, const msp_json *v, size_t *n)
{
    const msp_json *list = msp_json_kind_of(v) == MSP_JSON_OBJECT ? msp_json_get(v, "value") : v;
    size_t count = msp_json_kind_of(list) == MSP_JSON_ARRAY ? msp_json_count(list) : 0;
    int64_t *all = count == 0 ? NULL : msp_arena_alloc_zero(&r->arena, count, sizeof(*all));

    *n = 0;
    for (size_t i = 0; all != NULL && i < count; i++)
        if (!read_int(msp_json_at(list, i), &all[(*n)++])) {
            *n = 0;
            return NULL;
        }
    return all;
}

/* Of several groups with the same ranks, all but the first have a number behind a dot: "2a3070ce.1". */
static int64_t
number_of_group(const msp_json *said)
{
    msp_str id = msp_json_string(msp_json_get(said, "group_id"));
    int64_t n = 0;

    size_t i = 0;

    while (i < id.len && id.p[i] != '.')
        i++;
    while (++i < id.len && id.p[i] >= '0' && id.p[i] <= '9' && n < INT32_MAX)
        n = 10 * n + (id.p[i] - '0');
    return n;
}

/*
 * The group: said, the call's "distributed", says it for every call ({"group_ranks": [...], "group_id": "2a3070ce",
 * "order": 7}), and who is its root or the other end of a message; in dumps without it the argument says it, and no
 * argument means all ranks.
 */
static void
read_group(msp_audit_rank *r, msp_audit_call *c, const msp_json *said, const msp_json *group)
{
    const int64_t number = number_of_group(said);
    msp_buf text = {0};

    c->order = -1;
    if (msp_json_kind_of(said) == MSP_JSON_OBJECT) {
        (void)msp_json_to_i64(msp_json_get(said, "order"), &c->order);
        c->ranks = read_ints(r, msp_json_get(said, "group_ranks"), &c->nranks);
        if (!msp_json_to_i64(msp_json_get(said, "root"), &c->root))
            (void)msp_json_to_i64(msp_json_get(said, "peer"), &c->root);
        r->has_order = r->has_order || c->ranks != NULL;
    }
    if (c->ranks == NULL)
        c->ranks = read_ints(r, msp_json_get(group, "group_ranks"), &c->nranks);
    for (size_t i = 0; i < c->nranks; i++)
        msp_buf_printf(&text, "%s%lld", i == 0 ? "[" : ", ", (long long)c->ranks[i]);
    if (c->nranks > 0)
        msp_buf_char(&text, ']');
    if (number > 0)
        msp_buf_printf(&text, " (group %lld of these ranks)", (long long)number + 1);
    c->group = keep(r, msp_buf_view(&text));
    msp_buf_release(&text);
}

static void
write_signature(msp_audit_rank *r, msp_audit_call *c, const signature *s)
{
    const msp_audit_list *l = c->op == MSP_AUDIT_SCATTER || c->op == MSP_AUDIT_RECV ? &c->out : &c->in;
    msp_buf text = {0};

    if (l->count == 0)
        l = &c->in;
    msp_buf_text(&text, s->api);
    if (s->reduce.at >= 0)
        msp_buf_printf(&text, " %s", reduce_text(c->reduce));
    if (l->count > 1)
        msp_buf_printf(&text, " %zu tensors", l->count);
    if (l->count > 0) {
        const msp_audit_tensor *t = &l->items[0];
        const char *type = msp_dtype_torch_name(t->dtype);

        msp_buf_printf(&text, " %s", strncmp(type, "torch.", 6) == 0 ? type + 6 : type);
        if (s->shaped) {
            msp_buf_text(&text, " [");
            for (int i = 0; i < t->ndim; i++)
                msp_buf_printf(&text, "%s%lld", i == 0 ? "" : ", ", (long long)t->shape[i]);
            msp_buf_char(&text, ']');
        }
    }
    if (s->root.at >= 0 && c->op != MSP_AUDIT_SEND && c->op != MSP_AUDIT_RECV)
        msp_buf_printf(&text, " %s %lld", s->root.name, (long long)c->root);
    c->signature = keep(r, msp_buf_view(&text));
    msp_buf_release(&text);
}

static bool
grow_calls(msp_audit_rank *r)
{
    return msp_vec_grow((void **)&r->calls, &r->calls_cap, r->ncalls + 1, sizeof(*r->calls));
}

/* The messages of batch_isend_irecv: each P2POp is a call of its own. */
static bool
read_batch(msp_audit_rank *r, msp_str name, size_t at, const msp_json *record)
{
    static const signature one[] = {{"isend", MSP_AUDIT_SEND, NO_ARG, NO_ARG, NO_ARG, NO_ARG, NO_ARG, true},
                                    {"irecv", MSP_AUDIT_RECV, NO_ARG, NO_ARG, NO_ARG, NO_ARG, NO_ARG, true}};
    const msp_json *before = argument_of(record, (argument){0, "p2p_op_list"});
    const msp_json *after = argument_after(record, (argument){0, "p2p_op_list"});
    const msp_json *said = msp_json_get(msp_json_get(record, "distributed"), "messages");

    for (size_t i = 0; i < msp_json_count(before); i++) {
        const msp_json *op = msp_json_at(before, i);
        msp_str word = msp_json_string(msp_json_get(op, "op"));
        int kind = msp_str_eq(word, MSP_STR("irecv")) || msp_str_eq(word, MSP_STR("recv"));
        msp_audit_call *c;

        if (msp_json_kind_of(op) != MSP_JSON_OBJECT || !grow_calls(r))
            return msp_json_kind_of(op) != MSP_JSON_OBJECT;
        c = &r->calls[r->ncalls];
        *c = (msp_audit_call){.op = one[kind].op, .record = at, .name = name, .root = -1};
        (void)read_int(msp_json_get(op, "peer"), &c->root);
        (void)read_int(msp_json_get(op, "tag"), &c->tag);
        read_group(r, c, msp_json_at(said, i), NULL);
        if (!read_tensors(r, &c->in, msp_json_get(op, "tensor")) ||
            !read_tensors(r, &c->out, msp_json_get(msp_json_at(after, i), "tensor")))
            return false;
        write_signature(r, c, &one[kind]);
        r->ncalls++;
    }
    return true;
}

static bool
read_call(msp_audit_rank *r, msp_str name, msp_str api, size_t at, const msp_json *record)
{
    const signature *s = NULL;
    msp_audit_call *c;

    if (msp_str_eq(api, MSP_STR("batch_isend_irecv")))
        return read_batch(r, keep(r, name), at, record);
    for (size_t i = 0; i < sizeof(signatures) / sizeof(signatures[0]) && s == NULL; i++)
        if (msp_str_eq(api, msp_str_of(signatures[i].api)))
            s = &signatures[i];
    if (s == NULL)
        return true;
    if (!grow_calls(r))
        return false;
    c = &r->calls[r->ncalls];
    *c = (msp_audit_call){.op = s->op, .record = at, .name = keep(r, name), .root = -1};
    read_group(r, c, msp_json_get(record, "distributed"), argument_of(record, s->group));
    c->reduce = read_reduce(argument_of(record, s->reduce));
    if (s->root.at >= 0 && c->root < 0 && !read_int(argument_of(record, s->root), &c->root) && c->op != MSP_AUDIT_RECV)
        c->root = 0; /* gather's and scatter's default */
    if (c->op == MSP_AUDIT_SEND || c->op == MSP_AUDIT_RECV)
        (void)read_int(argument_of(record, (argument){3, "tag"}), &c->tag);
    if (c->op == MSP_AUDIT_ALL_TO_ALL_SINGLE) {
        c->out_splits = read_ints(r, argument_of(record, (argument){2, "output_split_sizes"}), &c->nout_splits);
        c->in_splits = read_ints(r, argument_of(record, (argument){3, "input_split_sizes"}), &c->nin_splits);
    }
    if (!read_tensors(r, &c->in, argument_of(record, s->in)) ||
        !read_tensors(r, &c->out, argument_after(record, s->out)))
        return false;
    write_signature(r, c, s);
    r->ncalls++;
    return true;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static uint64_t
absorb(uint64_t h, const void *p, size_t n)
{
    const unsigned char *b = p;

    for (size_t i = 0; i < n; i++) /* FNV-1a: equal values, equal digest; nobody gains by a collision here */
        h = (h ^ b[i]) * 0x100000001b3u;
    return h;
}

static uint64_t
digest_of(msp_audit_rank *r, const msp_audit_tensor *t)
{
    uint64_t h = 0xcbf29ce484222325u;
    msp_tensor whole;
    msp_error err;

    h = absorb(h, &t->dtype, sizeof(t->dtype));
    h = absorb(h, t->shape, sizeof(t->shape[0]) * (size_t)t->ndim);
    h = absorb(h, t->md5.p, t->md5.len);
    h = t->has_stats ? absorb(h, t->stat, sizeof(t->stat)) : h;
    if (t->data_name.len > 0 && msp_audit_open_tensor(&whole, r, t, &err) == MSP_OK) {
        msp_fingerprint f = msp_fingerprint_of(&whole);

        h = absorb(h, &f, sizeof(f));
        if (msp_audit_is_cut(&whole, r, t))
            r->lost = keep(r, t->data_name);
        msp_tensor_release(&whole);
    }
    return h;
}

static bool
read_weights(msp_audit_rank *r, msp_str name, size_t at, const msp_json *parameters)
{
    for (size_t i = 0; i < msp_json_count(parameters); i++) {
        const msp_json *v = msp_json_at(parameters, i);
        msp_audit_tensor t;
        msp_buf text = {0};

        if (!is_tensor(v))
            continue;
        read_tensor(r, &t, v);
        if (!t.has_stats && t.md5.len == 0 && t.data_name.len == 0)
            continue;
        if (!msp_vec_grow((void **)&r->weights, &r->weights_cap, r->nweights + 1, sizeof(*r->weights)) ||
            !msp_vec_grow((void **)&r->weight_names, &r->names_cap, r->nweights + 1, sizeof(*r->weight_names)))
            return false;
        msp_buf_str(&text, name);
        msp_buf_char(&text, '.');
        msp_buf_str(&text, msp_json_key(parameters, i));
        r->weight_names[r->nweights] = keep(r, msp_buf_view(&text));
        msp_buf_release(&text);
        r->weights[r->nweights++] = (msp_audit_weight){.digest = digest_of(r, &t), .numel = t.numel, .record = at};
    }
    return true;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static msp_status
read_record(msp_audit_rank *r, const msp_dump *d, size_t i, msp_error *err)
{
    char room[16384];
    msp_json_doc doc = {0};
    msp_str name = {0}, rest, kind;
    bool ok = true;
    msp_status st;

    name.p = msp_dump_name(d, i, &name.len);
    rest = name;
    kind = msp_str_shift(&rest);
    if (!msp_str_eq(kind, MSP_STR("Distributed")) &&
        msp_str_find(msp_dump_record_text(d, i), MSP_STR("\"parameters\"")) == NULL)
        return MSP_OK;
    st = msp_dump_record(d, i, &doc, room, sizeof(room), err);
    if (st == MSP_OK && msp_str_eq(kind, MSP_STR("Distributed")))
        ok = read_call(r, name, msp_str_shift(&rest), i, doc.root);
    else if (st == MSP_OK)
        ok = read_weights(r, name, i, msp_json_get(doc.root, "parameters"));
    msp_json_doc_release(&doc);
    return ok ? st : msp_error_set(err, MSP_E_NOMEM, "no memory for the calls of rank %lld", (long long)r->rank);
}

msp_status
msp_audit_rank_read(msp_audit_rank *r, msp_error *err)
{
    msp_dump *d = NULL;
    msp_status st = msp_dump_open(&d, r->place->path, err);
    msp_str last = {0};

    if (st != MSP_OK)
        return st;
    r->records = msp_dump_count(d);
    r->cut = msp_dump_cut(d, NULL);
    for (size_t i = 0; st == MSP_OK && i < r->records; i++)
        st = read_record(r, d, i, err);
    if (r->records > 0)
        last.p = msp_dump_name(d, r->records - 1, &last.len);
    r->last = keep(r, last);
    if (st == MSP_OK && r->lost.len > 0)
        st = msp_audit_cut_error(r, r->lost, err);
    if (msp_dump_check(d, err) != MSP_OK)
        st = MSP_E_CHANGED;
    msp_dump_close(d);
    return st;
}

void
msp_audit_rank_release(msp_audit_rank *r)
{
    msp_free(r->calls);
    msp_free(r->weights);
    msp_free(r->weight_names);
    msp_arena_release(&r->arena);
    *r = (msp_audit_rank){0};
}

static void
path_of(msp_buf *path, const msp_audit_rank *r, msp_str file)
{
    msp_str dir = msp_path_dir(r->place->path);

    msp_buf_str(path, dir);
    msp_buf_text(path, "/dump_tensor_data/");
    msp_buf_str(path, file);
}

bool
msp_audit_is_cut(const msp_tensor *view, const msp_audit_rank *r, const msp_audit_tensor *t)
{
    msp_buf path = {0};
    bool cut;

    path_of(&path, r, t->data_name);
    cut = !path.failed && msp_tensor_check_at(view, AT_FDCWD, path.p, NULL) != MSP_OK;
    msp_buf_release(&path);
    return cut;
}

msp_status
msp_audit_cut_error(const msp_audit_rank *r, msp_str file, msp_error *err)
{
    msp_buf path = {0};
    msp_status st;

    path_of(&path, r, file);
    st = msp_error_set(err, MSP_E_CHANGED, "%s: was cut short while it was read: is it still being written or copied?",
                       path.failed ? "" : path.p);
    msp_buf_release(&path);
    return st;
}

msp_status
msp_audit_open_tensor(msp_tensor *out, const msp_audit_rank *r, const msp_audit_tensor *t, msp_error *err)
{
    msp_buf path = {0};
    msp_status st;

    *out = (msp_tensor){0};
    if (t->data_name.len == 0 || memchr(t->data_name.p, '/', t->data_name.len) != NULL)
        return msp_error_set(err, MSP_E_NOT_FOUND, "no file is recorded");
    path_of(&path, r, t->data_name);
    st = msp_buf_status(&path, err);
    if (st == MSP_OK)
        st = msp_tensor_open(out, path.p, err);
    msp_buf_release(&path);
    return st;
}
