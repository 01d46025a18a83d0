/*
 * call.c - the communication calls of a record: operation, group, root or peer, and the tensors before and after.
 *
 * Which argument is which is told by the signatures of torch.distributed, whose names and places are the same in every
 * version; batch_isend_irecv is as many calls as it has messages.
 */
#include "audit/record.h"

#include <math.h>
#include "core/vec.h"

/* Where an argument stands: its place, and its name when it is given by keyword. */
typedef struct argument {
    int at; /* -1: the call has none */
    const char *name;
} argument;

#define NONE   \
    {          \
        -1, "" \
    }

typedef struct signature {
    const char *api;
    msp_audit_op op;
    argument group;
    bool any_shape; /* ranks' tensors need not have one shape */
    argument in, out, reduce, root;
} signature;

#define CALL(api, op, group, any_shape, ...)                          \
    {                                                                 \
        api, MSP_AUDIT_##op, {group, "group"}, any_shape, __VA_ARGS__ \
    }

/* clang-format off */
static const signature signatures[] = {
    CALL("all_reduce", ALL_REDUCE, 2, false, {0, "tensor"}, {0, "tensor"}, {1, "op"}, NONE),
    CALL("all_reduce_coalesced", ALL_REDUCE, 2, false, {0, "tensors"}, {0, "tensors"}, {1, "op"}, NONE),
    CALL("reduce", REDUCE, 3, false, {0, "tensor"}, {0, "tensor"}, {2, "op"}, {1, "dst"}),
    CALL("broadcast", BROADCAST, 2, false, {0, "tensor"}, {0, "tensor"}, NONE, {1, "src"}),
    CALL("all_gather", ALL_GATHER, 2, true, {1, "tensor"}, {0, "tensor_list"}, NONE, NONE),
    CALL("all_gather_into_tensor", ALL_GATHER_INTO, 2, false, {1, "input_tensor"}, {0, "output_tensor"}, NONE, NONE),
    CALL("all_gather_single", ALL_GATHER_INTO, 2, false, {1, "input_tensor"}, {0, "output_tensor"}, NONE, NONE),
    CALL("_all_gather_base", ALL_GATHER_INTO, 2, false, {1, "input_tensor"}, {0, "output_tensor"}, NONE, NONE),
    CALL("all_gather_coalesced", ALL_GATHER_LISTS, 2, false, {1, "input_tensor_list"}, {0, "output_tensor_lists"}, NONE, NONE),
    CALL("gather", GATHER, 3, false, {0, "tensor"}, {1, "gather_list"}, NONE, {2, "dst"}),
    CALL("scatter", SCATTER, 3, false, {1, "scatter_list"}, {0, "tensor"}, NONE, {2, "src"}),
    CALL("reduce_scatter", REDUCE_SCATTER, 3, true, {1, "input_list"}, {0, "output"}, {2, "op"}, NONE),
    CALL("reduce_scatter_tensor", REDUCE_SCATTER_TENSOR, 3, false, {1, "input"}, {0, "output"}, {2, "op"}, NONE),
    CALL("reduce_scatter_single", REDUCE_SCATTER_TENSOR, 3, false, {1, "input"}, {0, "output"}, {2, "op"}, NONE),
    CALL("_reduce_scatter_base", REDUCE_SCATTER_TENSOR, 3, false, {1, "input"}, {0, "output"}, {2, "op"}, NONE),
    CALL("all_to_all", ALL_TO_ALL, 2, true, {1, "input_tensor_list"}, {0, "output_tensor_list"}, NONE, NONE),
    CALL("all_to_all_single", ALL_TO_ALL_SINGLE, 4, true, {1, "input"}, {0, "output"}, NONE, NONE),
    CALL("barrier", BARRIER, 0, true, NONE, NONE, NONE, NONE),
    CALL("monitored_barrier", BARRIER, 0, true, NONE, NONE, NONE, NONE),
    CALL("send", SEND, 2, false, {0, "tensor"}, {0, "tensor"}, NONE, {1, "dst"}),
    CALL("isend", SEND, 2, false, {0, "tensor"}, {0, "tensor"}, NONE, {1, "dst"}),
    CALL("recv", RECV, 2, false, {0, "tensor"}, {0, "tensor"}, NONE, {1, "src"}),
    CALL("irecv", RECV, 2, false, {0, "tensor"}, {0, "tensor"}, NONE, {1, "src"}),
};
/* clang-format on */

/* ---- one record -------------------------------------------------------------------------------------------------- */

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

    if (a.at < 0)
        return NULL;
    if ((size_t)a.at < msp_json_count(args))
        return msp_json_at(output, (size_t)a.at);
    for (size_t i = 0; i < msp_json_count(kwargs); i++)
        if (msp_str_eq(msp_json_key(kwargs, i), msp_str_of(a.name)))
            return msp_json_at(output, msp_json_count(args) + i);
    return NULL;
}

static const char *const reduce_names[] = {"other", "SUM",  "AVG", "PRODUCT", "MAX",
                                           "MIN",   "BAND", "BOR", "BXOR",    "PREMUL_SUM"};

static msp_audit_reduce
read_reduce(const msp_json *v)
{
    msp_str text = msp_json_string(msp_json_get(v, "value"));

    if (v == NULL)
        return MSP_REDUCE_SUM;
    for (size_t i = text.len; i-- > 0;)
        if (text.p[i] == '.') {
            text = (msp_str){text.p + i + 1, text.len - i - 1};
            break;
        }
    for (int i = MSP_REDUCE_SUM; i <= MSP_REDUCE_PREMUL_SUM; i++)
        if (msp_str_eq(text, msp_str_of(reduce_names[i])))
            return (msp_audit_reduce)i;
    return MSP_REDUCE_OTHER;
}

/* By what PREMUL_SUM multiplies its input; NaN: the record does not say. */
static double
read_factor(const msp_json *v)
{
    double factor;

    return msp_json_to_f64(msp_json_get(v, "factor"), &factor) ? factor : NAN;
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
        c->ranks = msp_audit_read_ints(r, msp_json_get(said, "group_ranks"), &c->nranks);
        if (!msp_json_to_i64(msp_json_get(said, "root"), &c->root))
            (void)msp_json_to_i64(msp_json_get(said, "peer"), &c->root);
        c->is_told = c->ranks != NULL;
        c->coalesced = msp_json_kind_of(msp_json_get(said, "coalesced")) == MSP_JSON_TRUE;
        r->has_order = r->has_order || c->is_told;
    }
    if (c->ranks == NULL)
        c->ranks = msp_audit_read_ints(r, msp_json_get(group, "group_ranks"), &c->nranks);
    for (size_t i = 0; i < c->nranks; i++)
        msp_buf_printf(&text, "%s%lld", i == 0 ? "[" : ", ", (long long)c->ranks[i]);
    if (c->nranks > 0)
        msp_buf_char(&text, ']');
    if (number > 0)
        msp_buf_printf(&text, " (group %lld of these ranks)", (long long)number + 1);
    c->group = msp_audit_keep(r, msp_buf_view(&text));
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
        msp_buf_printf(&text, " %s", reduce_names[c->reduce]);
    if (l->count > 1)
        msp_buf_printf(&text, " %zu tensors", l->count);
    if (l->count > 0) {
        const msp_audit_tensor *t = &l->items[0];
        const char *type = msp_dtype_torch_name(t->dtype);

        msp_buf_printf(&text, " %s", strncmp(type, "torch.", 6) == 0 ? type + 6 : type);
        if (!s->any_shape) {
            msp_buf_text(&text, " [");
            for (int i = 0; i < t->ndim; i++)
                msp_buf_printf(&text, "%s%lld", i == 0 ? "" : ", ", (long long)t->shape[i]);
            msp_buf_char(&text, ']');
        }
    }
    if (s->root.at >= 0 && c->op != MSP_AUDIT_SEND && c->op != MSP_AUDIT_RECV)
        msp_buf_printf(&text, " %s %lld", s->root.name, (long long)c->root);
    c->signature = msp_audit_keep(r, msp_buf_view(&text));
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
    static const signature one[] = {CALL("isend", SEND, -1, false, NONE, NONE, NONE, NONE),
                                    CALL("irecv", RECV, -1, false, NONE, NONE, NONE, NONE)};
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
        (void)msp_audit_read_int(msp_json_get(op, "peer"), &c->root);
        (void)msp_audit_read_int(msp_json_get(op, "tag"), &c->tag);
        c->is_finished = after != NULL;
        read_group(r, c, msp_json_at(said, i), NULL);
        if (!msp_audit_read_tensors(r, &c->in, msp_json_get(op, "tensor")) ||
            !msp_audit_read_tensors(r, &c->out, msp_json_get(msp_json_at(after, i), "tensor")))
            return false;
        c->before = c->in;
        write_signature(r, c, &one[kind]);
        r->ncalls++;
    }
    return true;
}

bool
msp_audit_read_calls(msp_audit_rank *r, msp_str name, msp_str api, size_t at, const msp_json *record)
{
    const signature *s = NULL;
    msp_audit_call *c;

    if (msp_str_eq(api, MSP_STR("batch_isend_irecv")))
        return read_batch(r, msp_audit_keep(r, name), at, record);
    for (size_t i = 0; i < sizeof(signatures) / sizeof(signatures[0]) && s == NULL; i++)
        if (msp_str_eq(api, msp_str_of(signatures[i].api)))
            s = &signatures[i];
    if (s == NULL)
        return true;
    if (!grow_calls(r))
        return false;
    c = &r->calls[r->ncalls];
    *c = (msp_audit_call){.op = s->op, .record = at, .name = msp_audit_keep(r, name), .root = -1};
    c->is_finished = msp_json_get(record, "output") != NULL;
    read_group(r, c, msp_json_get(record, "distributed"), argument_of(record, s->group));
    c->reduce = read_reduce(argument_of(record, s->reduce));
    c->factor = c->reduce == MSP_REDUCE_PREMUL_SUM ? read_factor(argument_of(record, s->reduce)) : 1;
    if (s->root.at >= 0 && c->root < 0 && !msp_audit_read_int(argument_of(record, s->root), &c->root) &&
        c->op != MSP_AUDIT_RECV)
        c->root = 0; /* gather's and scatter's default */
    if (c->op == MSP_AUDIT_SEND || c->op == MSP_AUDIT_RECV)
        (void)msp_audit_read_int(argument_of(record, (argument){3, "tag"}), &c->tag);
    if (c->op == MSP_AUDIT_ALL_TO_ALL_SINGLE) {
        c->out_splits =
            msp_audit_read_ints(r, argument_of(record, (argument){2, "output_split_sizes"}), &c->nout_splits);
        c->in_splits = msp_audit_read_ints(r, argument_of(record, (argument){3, "input_split_sizes"}), &c->nin_splits);
    }
    if (!msp_audit_read_tensors(r, &c->in, argument_of(record, s->in)) ||
        !msp_audit_read_tensors(r, &c->out, argument_after(record, s->out)))
        return false;
    c->before = c->in;
    if (s->out.at != s->in.at && !msp_audit_read_tensors(r, &c->before, argument_of(record, s->out)))
        return false;
    write_signature(r, c, s);
    r->ncalls++;
    return true;
}
