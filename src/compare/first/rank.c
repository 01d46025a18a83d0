/*
 * rank.c - one rank of the first-difference analysis: its rows become a JSON file, and of its calls it keeps the
 * communication and the first compute call that differs before each.
 */
#include <assert.h>
#include <stdlib.h>
#include "compare/first/node.h"
#include "core/alloc.h"
#include "core/number.h"
#include "core/vec.h"

enum { FLUSH_AT = 1 << 20, NO_COLUMN = -1 };

/* Relative errors above this make an output different: 50 %, as for Warning. */
static const double THRESHOLD = 0.5;

/* ---- names --------------------------------------------------------------------------------------------------- */

/* Creation without values and copies: what they hold says nothing about a computation. */
static bool
is_ignored(msp_str name)
{
    static const char *const parts[] = {"Torch.empty", "Torch.fill", "Tensor.__setitem__", "parameters_grad",
                                        "Tensor.to"};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (msp_str_has(name, parts[i]))
            return true;
    return false;
}

/* ---- cells --------------------------------------------------------------------------------------------------- */

static void
write_cell(msp_json_writer *w, const msp_cell *c)
{
    switch (c->kind) {
    case MSP_CELL_TEXT:
        msp_json_write_string(w, (msp_str){c->as.text.p, c->as.text.len});
        break;
    case MSP_CELL_INT:
        msp_json_write_i64(w, c->as.i);
        break;
    case MSP_CELL_FLOAT:
        msp_json_write_f64(w, c->as.f);
        break;
    case MSP_CELL_BOOL:
        msp_json_write_bool(w, c->as.b);
        break;
    default:
        msp_json_write_string(w, MSP_STR(""));
    }
}

/* "199.98%" above the threshold; "inf%" is, "nan%" and other texts are not. */
static bool
exceeds_threshold(const msp_cell *c)
{
    msp_str s = {c->as.text.p, c->as.text.len};
    double v;

    if (c->kind != MSP_CELL_TEXT || !msp_str_ends(s, MSP_STR("%")))
        return false;
    s.len--;
    return msp_f64_parse(s, &v) && v > THRESHOLD * 100;
}

/* Outputs 4 and 5 of the fused attention are seeds and offsets of its dropout. */
static bool
is_seed_output(const msp_da_rank *r)
{
    return msp_str_has(r->api, "npu_fusion_attention") && (r->output_rows == 4 || r->output_rows == 5);
}

static bool
row_differs(const msp_da_rank *r, const msp_da_row *row)
{
    const msp_cell *result = r->result >= 0 ? &row->cells[r->result] : NULL;

    if (r->mode == MSP_MODE_MD5)
        return result != NULL && result->kind == MSP_CELL_TEXT &&
               msp_str_eq((msp_str){result->as.text.p, result->as.text.len}, MSP_STR("Different"));
    for (int i = 0; i < MSP_NSTATS; i++)
        if (r->rel[i] >= 0 && exceeds_threshold(&row->cells[r->rel[i]]))
            return true;
    return false;
}

static msp_status
note_peers(msp_da_rank *r, const msp_da_row *row, msp_error *err)
{
    const msp_cell *value = &row->cells[r->mode == MSP_MODE_MD5 ? r->md5 : r->stat[MSP_STAT_MAX]];
    const msp_cell *name = &row->cells[r->npu_name];
    msp_comm_arg arg = {.call = r->api,
                        .name = {name->as.text.p, name->as.text.len},
                        .is_checksum = r->mode == MSP_MODE_MD5,
                        .is_number = value->kind == MSP_CELL_INT,
                        .p2p_peer = row->p2p_peer[0]};

    if (arg.is_number)
        arg.number = value->as.i;
    else if (value->kind == MSP_CELL_TEXT)
        arg.text = (msp_str){value->as.text.p, value->as.text.len};
    return msp_comm_note(&r->peers, &arg, err);
}

/* ---- writing one rank ---------------------------------------------------------------------------------------- */

static int
find_column(const msp_da_rank *r, const char *title)
{
    for (size_t i = 0; i < r->ncolumns; i++)
        if (strcmp(r->titles[i], title) == 0)
            return (int)i;
    return NO_COLUMN;
}

static msp_status
copy_columns(msp_da_rank *r, const msp_column *columns, size_t n, msp_error *err)
{
    static const char *const rels[] = {"MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"};
    static const char *const stats[] = {"NPU max", "NPU min", "NPU mean", "NPU l2norm"};

    r->titles = msp_arena_alloc(&r->arena, n, sizeof(*r->titles));
    for (size_t i = 0; r->titles != NULL && i < n; i++) {
        r->titles[i] = msp_arena_text(&r->arena, columns[i].title, strlen(columns[i].title));
        if (r->titles[i] == NULL)
            r->titles = NULL;
    }
    if (r->titles == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    r->ncolumns = n;
    r->npu_name = find_column(r, "NPU Name");
    r->result = find_column(r, "Result");
    r->stack = find_column(r, "NPU_Stack_Info");
    r->md5 = find_column(r, "NPU MD5");
    for (int i = 0; i < MSP_NSTATS; i++) {
        r->rel[i] = find_column(r, rels[i]);
        r->stat[i] = find_column(r, stats[i]);
    }
    assert(r->npu_name >= 0 && (r->mode == MSP_MODE_MD5 ? r->md5 : r->stat[0]) >= 0);
    return MSP_OK;
}

msp_status
msp_da_rank_open(msp_da_rank **out, const char *path, msp_compare_mode mode, int64_t rank, const msp_column *columns,
                 size_t ncolumns, msp_error *err)
{
    msp_da_rank *r = msp_alloc_zero(1, sizeof(*r));
    msp_status st;

    *out = NULL;
    if (r == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    r->file = MSP_FILE_NONE;
    r->mode = mode;
    r->given = rank;
    r->rank = rank == MSP_DUMP_NO_NUMBER ? 0 : rank;
    r->path = msp_arena_text(&r->arena, path, strlen(path));
    st = r->path == NULL ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : copy_columns(r, columns, ncolumns, err);
    if (st == MSP_OK)
        st = msp_file_create(&r->file, path, 0640, err);
    if (st != MSP_OK) {
        msp_da_rank_close(r);
        return st;
    }
    msp_json_writer_init(&r->json, &r->buf, 4);
    msp_json_begin_object(&r->json);
    *out = r;
    return MSP_OK;
}

static msp_status
flush_text(msp_da_rank *r, size_t at, msp_error *err)
{
    msp_status st = msp_buf_status(&r->buf, err);

    if (st == MSP_OK && r->buf.len >= at) {
        st = msp_file_write(&r->file, r->buf.p, r->buf.len, err);
        r->written += r->buf.len;
        msp_buf_clear(&r->buf);
    }
    return st;
}

/* An operation of a batch of messages and the rank that it speaks to, which is a number in the dump and stays one. */
static void
write_pair(msp_json_writer *w, const char *const keys[2], const msp_str values[2])
{
    for (int i = 0; i < 2; i++) {
        unsigned long long number;

        msp_json_write_key(w, msp_str_of(keys[i]));
        if (msp_str_to_u64(values[i], &number) && number <= INT32_MAX)
            msp_json_write_i64(w, (int64_t)number);
        else
            msp_json_write_string(w, values[i].len > 0 ? values[i] : MSP_STR("None"));
    }
}

static void
write_stack(msp_json_writer *w, const msp_da_row *row)
{
    if (row->stack == NULL) {
        msp_json_write_string(w, MSP_STR("N/A"));
        return;
    }
    msp_json_begin_array(w);
    for (size_t i = 0; i < row->nstack; i++)
        msp_json_write_string(w, row->stack[i]);
    msp_json_end_array(w);
}

static void
write_row(msp_da_rank *r, const msp_da_row *row)
{
    static const char *const ops[2] = {"NPU P2POp op", "Bench P2POp op"};
    static const char *const peers[2] = {"NPU P2POp peer", "Bench P2POp peer"};
    msp_json_writer *w = &r->items;

    msp_json_begin_object(w);
    for (size_t i = 0; i < r->ncolumns; i++) {
        msp_json_write_key(w, msp_str_of(r->titles[i]));
        if ((int)i == r->stack)
            write_stack(w, row);
        else
            write_cell(w, &row->cells[i]);
    }
    msp_json_write_key(w, MSP_STR("state"));
    msp_json_write_string(w, row->state);
    msp_json_write_key(w, MSP_STR("api_origin_name"));
    msp_json_write_string(w, row->api);
    write_pair(w, ops, row->p2p_op);
    write_pair(w, peers, row->p2p_peer);
    msp_json_end_object(w);
}

/* Shorter names ("x.y.debug") are no calls. */
static msp_status
begin_call(msp_da_rank *r, msp_str api, msp_error *err)
{
    char *copy = msp_arena_text(&r->arena, api.p, api.len);

    if (copy == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    r->api = (msp_str){copy, api.len};
    r->open = true;
    r->wanted = msp_str_count(api, '.') >= 3;
    r->same = true;
    r->comm = msp_comm_is(api);
    r->ignored = is_ignored(api);
    r->output_rows = 0;
    msp_comm_peers_reset(&r->peers);
    msp_buf_clear(&r->rows);
    msp_json_writer_init(&r->items, &r->rows, 4);
    r->items.depth = 3; /* as deep as it stands in the file: call, op_items, row */
    return MSP_OK;
}

static msp_status
add_node(msp_da_rank *r, msp_da_op op, msp_error *err)
{
    msp_da_node *node;

    if (!msp_vec_grow((void **)&r->nodes, &r->cap, r->nnodes + 1, sizeof(*r->nodes)))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    node = &r->nodes[r->nnodes++];
    *node = (msp_da_node){.op = op, .before = r->gap, .same = r->same};
    node->op.sub_layer = MSP_DA_LAST_IN_LAYER; /* it receives what all the compute calls of its layer made */
    r->gap = (msp_da_op){.len = 0};
    r->ordinal = 0;
    return msp_comm_finish(&node->comm, &r->peers, r->api, r->rank, &r->arena, err);
}

static msp_status
note_call(msp_da_rank *r, msp_da_op op, msp_error *err)
{
    if (r->comm)
        return add_node(r, op, err);
    if (r->ignored)
        return MSP_OK;
    op.sub_layer = r->ordinal++;
    if (!r->same && r->gap.len == 0)
        r->gap = op;
    return MSP_OK;
}

static msp_status
end_call(msp_da_rank *r, msp_error *err)
{
    msp_da_op op = {.name = r->api};
    msp_status st;

    if (!r->open)
        return MSP_OK;
    r->open = false;
    if (!r->wanted)
        return MSP_OK;
    st = msp_buf_status(&r->rows, err);
    if (st != MSP_OK)
        return st;
    msp_json_write_key(&r->json, r->api);
    op.offset = r->written + r->buf.len;
    msp_json_begin_object(&r->json);
    msp_json_write_key(&r->json, MSP_STR("is_same"));
    msp_json_write_bool(&r->json, r->same);
    msp_json_write_key(&r->json, MSP_STR("op_items"));
    msp_json_begin_array(&r->json);
    msp_buf_add(&r->buf, r->rows.p, r->rows.len);
    r->json.first = r->rows.len == 0;
    msp_json_end_array(&r->json);
    msp_json_end_object(&r->json);
    op.len = r->written + r->buf.len - op.offset;
    st = note_call(r, op, err);
    return st == MSP_OK ? flush_text(r, FLUSH_AT, err) : st;
}

msp_status
msp_da_rank_row(msp_da_rank *r, const msp_da_row *row, msp_error *err)
{
    msp_status st = MSP_OK;

    if (!r->open || !msp_str_eq(r->api, row->api)) {
        st = end_call(r, err);
        if (st == MSP_OK)
            st = begin_call(r, row->api, err);
        if (st != MSP_OK)
            return st;
    }
    if (!r->wanted)
        return MSP_OK;
    write_row(r, row);
    if (msp_str_eq(row->state, MSP_STR("output"))) {
        if (!is_seed_output(r) && row_differs(r, row))
            r->same = false;
        r->output_rows++;
    } else if (r->comm && msp_str_eq(row->state, MSP_STR("input"))) {
        st = note_peers(r, row, err);
    }
    return st;
}

msp_status
msp_da_rank_finish(msp_da_rank *r, msp_error *err)
{
    msp_status st = end_call(r, err);

    if (st != MSP_OK)
        return st;
    msp_json_end_object(&r->json);
    st = flush_text(r, 0, err);
    return st == MSP_OK ? msp_file_commit(&r->file, err) : st;
}

void
msp_da_rank_close(msp_da_rank *r)
{
    if (r == NULL)
        return;
    msp_file_abandon(&r->file);
    msp_buf_release(&r->buf);
    msp_buf_release(&r->rows);
    msp_comm_peers_release(&r->peers);
    msp_free(r->nodes);
    msp_arena_release(&r->arena);
    msp_free(r);
}
