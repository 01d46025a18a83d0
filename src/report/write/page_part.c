/* page_part.c - the calls of one pair, and their rows as blocks of a page. See page.h for the format. */
#include "report/write/page_part.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/vec.h"
#include "text/json.h"
#include "report/write/page_block.h"
#include "report/write/page_flow.h"
#include "report/write/page_judge.h"
#include "report/write/page_packer.h"

enum {
    NFIELDS = 7,        /* numbers of a msp_page_result */
    LONGEST = 64 * 1024 /* bytes of a stack, of which a longer one is none, or of a module's name, which is cut */
};

typedef struct result {
    uint32_t row; /* in the page */
    float field[NFIELDS];
    uint32_t text;
} result;

struct msp_page_part {
    msp_file file;
    msp_page_rest rest;
    int64_t max_rows;

    msp_page_call *calls;
    size_t ncalls, cap_calls;
    msp_arena arena;
    msp_map names; /* of calls, then of nodes; value: its number */
    msp_str *call_names;
    msp_page_texts nodes;
    int32_t *node_parents;
    size_t cap_nodes;
    msp_page_texts stacks;
    msp_page_flow flow;

    msp_page_packer rows; /* the chunk that is being filled */
    size_t chunk;
    msp_page_kept *kept; /* all rows that are in the page */
    size_t nkept, cap_kept, nfed;

    bool own; /* the verdict is the tool's */
    result *results;
    size_t nresults, cap_results;

    msp_buf raw, packed, out;
};

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

const char *
msp_page_part_path(const msp_page_part *p)
{
    return p->rest.file != NULL ? p->rest.file : p->file.temp;
}

msp_status
msp_page_part_block(msp_page_part *p, const char *name, msp_str bytes, msp_error *err)
{
    msp_status st = msp_page_block(&p->out, &p->packed, name, bytes, err);

    return st == MSP_OK ? msp_file_write(&p->file, p->out.p, p->out.len, err) : st;
}

/* What stands in raw, which is empty afterwards. */
static msp_status
write_raw(msp_page_part *p, const char *name, msp_error *err)
{
    msp_status st = msp_buf_status(&p->raw, err);

    if (st == MSP_OK)
        st = msp_page_part_block(p, name, msp_buf_view(&p->raw), err);
    msp_buf_clear(&p->raw);
    return st;
}

msp_status
msp_page_part_open(msp_page_part **out, const char *beside, const msp_column *columns, size_t ncolumns,
                   int64_t max_rows, msp_error *err)
{
    msp_page_part *p = msp_alloc_zero(1, sizeof(*p));
    uint32_t id;
    msp_status st;

    *out = NULL;
    if (p == NULL)
        return no_memory(err);
    p->file = MSP_FILE_NONE;
    p->max_rows = max_rows;
    st = !msp_page_packer_init(&p->rows, columns, ncolumns) ||
                 !msp_page_texts_add(&p->stacks, MSP_STR("[]"), SIZE_MAX, &id)
             ? no_memory(err)
             : msp_file_create(&p->file, beside, 0640, err);
    if (st == MSP_OK)
        *out = p;
    else
        msp_page_part_close(p);
    return st;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static bool
is_gradient(msp_str call)
{
    return msp_str_find(call, MSP_STR(".backward")) != NULL || msp_str_ends(call, MSP_STR(".parameters_grad"));
}

static bool
begin_call(msp_page_part *p, msp_str name)
{
    size_t cap = p->cap_calls;
    char *copy;

    if (p->ncalls > 0 && msp_str_eq(p->call_names[p->ncalls - 1], name))
        return true;
    if (!msp_vec_grow((void **)&p->calls, &p->cap_calls, p->ncalls + 1, sizeof(*p->calls)))
        return false;
    if (p->cap_calls != cap) {
        msp_str *names = msp_realloc(p->call_names, p->cap_calls, sizeof(*names));

        if (names == NULL)
            return false;
        p->call_names = names;
    }
    copy = msp_arena_text(&p->arena, name.len > 0 ? name.p : "", name.len);
    if (copy == NULL)
        return false;
    p->call_names[p->ncalls] = (msp_str){copy, name.len};
    p->calls[p->ncalls] = (msp_page_call){.first = (uint32_t)p->nkept,
                                          .fed = (uint32_t)p->nfed,
                                          .parent = -1,
                                          .error = -1,
                                          .input_error = -1,
                                          .marks = is_gradient(name) ? PAGE_MARK_BACKWARD : 0};
    return msp_map_put(&p->names, p->call_names[p->ncalls], (int64_t)p->ncalls, NULL) != NULL && ++p->ncalls > 0;
}

static void
note_row(msp_page_call *c, const msp_page_kept *row)
{
    float *to = (row->marks & PAGE_MARK_OUTPUT) != 0 ? &c->error : &c->input_error;

    if (row->error > *to)
        *to = row->error;
    c->marks |= row->marks;
}

static msp_status
flush_chunk(msp_page_part *p, msp_error *err)
{
    char name[32];

    if (p->rows.filled == 0)
        return MSP_OK;
    msp_page_packer_pack(&p->rows, &p->raw);
    snprintf(name, sizeof(name), "rows%zu", p->chunk++);
    return write_raw(p, name, err);
}

/* The part of a row's name behind the call's. */
static msp_str
rest_of(msp_str name, msp_str call)
{
    if (msp_str_starts(name, call) && name.len > call.len + 1)
        return (msp_str){name.p + call.len + 1, name.len - call.len - 1};
    return name;
}

/* By what the row says itself. */
static msp_page_kept
look_at(const msp_page_part *p, msp_str call, msp_str rest, const msp_cell *cells, msp_row_colour colour)
{
    bool nonfinite = msp_page_row_nonfinite(&p->rows.roles, cells);
    bool output = msp_str_starts(rest, MSP_STR("output")) || msp_str_starts(rest, MSP_STR("parameters_grad")) ||
                  msp_str_ends(call, MSP_STR(".parameters_grad"));
    msp_page_kept row = {.fed = (uint32_t)p->nfed,
                         .error = -1,
                         .verdict = (uint8_t)msp_page_row_verdict(&p->rows.roles, cells, nonfinite)};

    if (row.verdict != PAGE_UNMATCHED)
        row.error = msp_page_row_error(&p->rows.roles, cells, nonfinite);
    row.marks = (uint8_t)((nonfinite ? PAGE_MARK_NONFINITE : 0) | (output ? PAGE_MARK_OUTPUT : 0) |
                          (row.verdict == PAGE_WRONG ? PAGE_MARK_LIMIT : 0) |
                          (colour == MSP_ROW_RED      ? PAGE_MARK_RED
                           : colour == MSP_ROW_YELLOW ? PAGE_MARK_YELLOW
                                                      : 0));
    return row;
}

/* Is a page with as many rows better off with this one? */
static bool
is_worth_keeping(const msp_page_part *p, const msp_page_kept *row)
{
    bool telling = row->verdict == PAGE_WRONG || (row->marks & (PAGE_MARK_RED | PAGE_MARK_YELLOW)) != 0;

    return p->nkept < (size_t)p->max_rows || (telling && p->nkept < 2 * (size_t)p->max_rows);
}

msp_status
msp_page_part_row(msp_page_part *p, msp_str name, const msp_cell *cells, msp_row_colour colour, msp_error *err)
{
    msp_str rest = rest_of(msp_page_cell_text(msp_page_cell(&p->rows.roles, cells, PAGE_ROLE_NAME)), name);
    msp_page_kept row = look_at(p, name, rest, cells, colour);
    msp_page_call *c;
    uint32_t number;

    if (!begin_call(p, name))
        return no_memory(err);
    number = (uint32_t)p->ncalls - 1;
    c = &p->calls[number];
    p->nfed++;
    note_row(c, &row);
    if (!msp_page_flow_note(&p->flow, msp_page_row_fingerprint(&p->rows.roles, cells), number,
                            (row.marks & PAGE_MARK_OUTPUT) != 0))
        return no_memory(err);
    if (!is_worth_keeping(p, &row)) {
        c->marks |= PAGE_MARK_NO_ROWS;
        c->verdict = row.verdict > c->verdict ? row.verdict : c->verdict;
        return MSP_OK;
    }
    if (!msp_page_packer_add_row(&p->rows, number, rest, cells) ||
        !msp_vec_grow((void **)&p->kept, &p->cap_kept, p->nkept + 1, sizeof(*p->kept)))
        return no_memory(err);
    p->kept[p->nkept++] = row;
    c->rows++;
    return p->rows.filled == PAGE_CHUNK ? flush_chunk(p, err) : MSP_OK;
}

size_t
msp_page_part_calls(const msp_page_part *p)
{
    return p->ncalls;
}

msp_status
msp_page_part_stack(msp_page_part *p, const msp_str *frames, size_t n, msp_error *err)
{
    msp_json_writer w;
    bool ok = true;

    if (n == 0 || p->ncalls == 0)
        return MSP_OK;
    msp_json_writer_init(&w, &p->raw, -1);
    msp_json_begin_array(&w);
    for (size_t i = 0; i < n; i++)
        msp_json_write_string(&w, frames[i]);
    msp_json_end_array(&w);
    ok = !p->raw.failed;
    if (ok && p->raw.len <= LONGEST)
        ok = msp_page_texts_add(&p->stacks, msp_buf_view(&p->raw), SIZE_MAX, &p->calls[p->ncalls - 1].stack);
    msp_buf_clear(&p->raw);
    return ok ? MSP_OK : no_memory(err);
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

/* The number of a call or node, a new node where there is none; -1: no memory. */
static int32_t
node_of(msp_page_part *p, msp_str name)
{
    msp_map_entry *e = msp_map_get(&p->names, name);
    size_t before = p->nodes.map.count;
    uint32_t id;

    if (e != NULL)
        return (int32_t)e->value;
    if (!msp_vec_grow((void **)&p->node_parents, &p->cap_nodes, before + 1, sizeof(*p->node_parents)) ||
        !msp_page_texts_add(&p->nodes, name, LONGEST, &id))
        return -1;
    if (p->nodes.map.count > before)
        p->node_parents[id] = -1;
    e = msp_map_put(&p->names, p->nodes.map.entries[id].key, (int64_t)(p->ncalls + id), NULL);
    return e == NULL ? -1 : (int32_t)(p->ncalls + id);
}

msp_status
msp_page_part_parent(msp_page_part *p, msp_str name, msp_str parent, msp_error *err)
{
    int32_t child = node_of(p, name), up;

    if (child < 0)
        return no_memory(err);
    if (parent.len == 0)
        return MSP_OK;
    up = node_of(p, parent);
    if (up < 0)
        return no_memory(err);
    if ((size_t)child < p->ncalls)
        p->calls[child].parent = up;
    else
        p->node_parents[child - (int32_t)p->ncalls] = up;
    return MSP_OK;
}

/* ---- the tool's own verdict -------------------------------------------------------------------------------------- */

static uint8_t
without_limits(uint8_t verdict)
{
    return verdict == PAGE_WRONG ? PAGE_FINE : verdict;
}

void
msp_page_part_own_verdict(msp_page_part *p)
{
    p->own = true;
    for (size_t i = 0; i < p->nkept; i++)
        p->kept[i].verdict = without_limits(p->kept[i].verdict);
    for (size_t i = 0; i < p->ncalls; i++)
        p->calls[i].verdict = without_limits(p->calls[i].verdict);
}

int64_t
msp_page_part_shown(const msp_page_part *p, size_t row)
{
    size_t low = 0, high = p->nkept;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (p->kept[middle].fed < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low < p->nkept && p->kept[low].fed == row ? (int64_t)low : -1;
}

static msp_page_call *
call_of(msp_page_part *p, size_t row)
{
    size_t low = 0, high = p->ncalls;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (p->calls[middle].fed <= row)
            low = middle;
        else
            high = middle;
    }
    return &p->calls[low];
}

void
msp_page_part_judge(msp_page_part *p, size_t row, msp_page_verdict verdict)
{
    int64_t shown = msp_page_part_shown(p, row);

    if (shown >= 0)
        p->kept[shown].verdict = (uint8_t)verdict;
    else if (row < p->nfed && verdict > call_of(p, row)->verdict)
        call_of(p, row)->verdict = (uint8_t)verdict;
}

msp_status
msp_page_part_result(msp_page_part *p, size_t row, const msp_page_result *r, msp_error *err)
{
    int64_t shown = msp_page_part_shown(p, row);
    result *to;

    if (shown < 0)
        return MSP_OK;
    if (!msp_vec_grow((void **)&p->results, &p->cap_results, p->nresults + 1, sizeof(*p->results)))
        return no_memory(err);
    to = &p->results[p->nresults];
    *to = (result){(uint32_t)shown,
                   {(float)r->ratio, (float)r->local, (float)r->local_bench, (float)r->inherited, (float)r->diff_in,
                    (float)r->diff_out, (float)r->expected},
                   0};
    if (!msp_page_texts_add(&p->rows.texts, r->text, PAGE_MAX_TEXT, &to->text))
        return no_memory(err);
    p->nresults++;
    return MSP_OK;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* One field of every item of an array as byte planes. */
#define ADD_FIELD(items, count, type, member)                   \
    do {                                                        \
        type *all = msp_alloc((count) + 1, sizeof(type));       \
        if (all == NULL) {                                      \
            p->raw.failed = true;                               \
            break;                                              \
        }                                                       \
        for (size_t i = 0; i < (count); i++)                    \
            all[i] = (items)[i].member;                         \
        msp_page_add_planes(&p->raw, all, count, sizeof(type)); \
        msp_free(all);                                          \
    } while (0)

static msp_status
write_calls(msp_page_part *p, msp_error *err)
{
    ADD_FIELD(p->calls, p->ncalls, uint32_t, first);
    ADD_FIELD(p->calls, p->ncalls, uint32_t, rows);
    ADD_FIELD(p->calls, p->ncalls, float, error);
    ADD_FIELD(p->calls, p->ncalls, float, input_error);
    ADD_FIELD(p->calls, p->ncalls, uint32_t, stack);
    ADD_FIELD(p->calls, p->ncalls, int32_t, parent);
    ADD_FIELD(p->calls, p->ncalls, uint8_t, verdict);
    ADD_FIELD(p->calls, p->ncalls, uint8_t, marks);
    return write_raw(p, "calls", err);
}

static msp_status
write_judged(msp_page_part *p, msp_error *err)
{
    ADD_FIELD(p->kept, p->nkept, uint8_t, verdict);
    ADD_FIELD(p->kept, p->nkept, uint8_t, marks);
    return write_raw(p, "judged", err);
}

static msp_status
write_results(msp_page_part *p, msp_error *err)
{
    ADD_FIELD(p->results, p->nresults, uint32_t, row);
    for (size_t k = 0; k < NFIELDS; k++)
        ADD_FIELD(p->results, p->nresults, float, field[k]);
    ADD_FIELD(p->results, p->nresults, uint32_t, text);
    return write_raw(p, "results", err);
}

static msp_status
write_call_names(msp_page_part *p, msp_error *err)
{
    msp_json_writer w;

    msp_json_writer_init(&w, &p->raw, -1);
    msp_json_begin_array(&w);
    for (size_t i = 0; i < p->ncalls; i++)
        msp_json_write_string(&w, p->call_names[i]);
    msp_json_end_array(&w);
    return write_raw(p, "names", err);
}

static msp_status
write_texts(msp_page_part *p, const char *name, const msp_page_texts *texts, msp_error *err)
{
    msp_page_texts_write(texts, &p->raw);
    return write_raw(p, name, err);
}

static msp_status
write_percent(msp_page_part *p, msp_error *err)
{
    msp_page_packer_write_percent(&p->rows, &p->raw);
    return write_raw(p, "percent", err);
}

/* {"names": [...], "parents": [...]} */
static msp_status
write_nodes(msp_page_part *p, msp_error *err)
{
    msp_buf_text(&p->raw, "{\"names\":");
    msp_page_texts_write(&p->nodes, &p->raw);
    msp_buf_text(&p->raw, ",\"parents\":[");
    for (size_t i = 0; i < p->nodes.map.count; i++)
        msp_buf_printf(&p->raw, "%s%d", i > 0 ? "," : "", (int)p->node_parents[i]);
    msp_buf_text(&p->raw, "]}");
    return write_raw(p, "nodes", err);
}

/* What only rows need: a run may have a part for each of a thousand ranks before the page is written. */
static void
release_work(msp_page_part *p)
{
    msp_page_packer_release(&p->rows);
    msp_page_flow_release(&p->flow);
    msp_page_texts_release(&p->stacks);
    msp_page_texts_release(&p->nodes);
    msp_map_release(&p->names);
    msp_buf_release(&p->raw);
    msp_buf_release(&p->packed);
    msp_buf_release(&p->out);
    msp_free(p->kept);
    msp_free(p->results);
    msp_free(p->node_parents);
    p->kept = NULL;
    p->results = NULL;
    p->node_parents = NULL;
}

static void
release_calls(msp_page_part *p)
{
    msp_arena_release(&p->arena);
    msp_free(p->calls);
    msp_free(p->call_names);
    p->calls = NULL;
    p->call_names = NULL;
}

static void
take_bins(msp_page_part *p)
{
    msp_page_bin *bins = p->rest.bins;

    for (size_t i = 0; i < PAGE_BINS; i++)
        bins[i] = (msp_page_bin){.error = -1};
    for (size_t i = 0; i < p->ncalls; i++) {
        const msp_page_call *c = &p->calls[i];
        msp_page_bin *b = &bins[i * PAGE_BINS / p->ncalls];

        if (c->error > b->error)
            b->error = c->error;
        if (c->verdict > b->verdict)
            b->verdict = c->verdict;
        b->marks |= c->marks;
    }
}

/* Take out what the page's head says of the part, and give everything else back. */
static msp_status
reduce_part(msp_page_part *p, msp_error *err)
{
    msp_page_rest *r = &p->rest;
    const msp_str *name = NULL;

    take_bins(p);
    r->rows = (int64_t)p->nkept;
    r->calls = p->ncalls;
    r->largest = -1;
    for (size_t i = 0; i < p->ncalls; i++)
        if (p->calls[i].error > r->largest) {
            r->largest = p->calls[i].error;
            name = &p->call_names[i];
        }
    if (name != NULL && (r->largest_call = msp_str_copy(*name)) == NULL)
        return no_memory(err);
    r->file = msp_str_copy(msp_str_of(p->file.temp));
    if (r->file == NULL)
        return no_memory(err);
    release_calls(p);
    return MSP_OK;
}

static msp_status
write_blocks(msp_page_part *p, msp_error *err)
{
    msp_status st = flush_chunk(p, err);

    if (st == MSP_OK)
        st = write_calls(p, err);
    if (st == MSP_OK)
        st = write_judged(p, err);
    if (st == MSP_OK)
        st = write_results(p, err);
    if (st == MSP_OK)
        st = write_call_names(p, err);
    if (st == MSP_OK)
        st = write_nodes(p, err);
    if (st == MSP_OK)
        st = msp_page_part_block(p, "columns", msp_buf_view(&p->rows.titles), err);
    if (st == MSP_OK)
        st = write_percent(p, err);
    if (st == MSP_OK)
        st = write_texts(p, "texts", &p->rows.texts, err);
    if (st == MSP_OK)
        st = write_texts(p, "stacks", &p->stacks, err);
    return st == MSP_OK ? msp_page_part_block(p, "edges", msp_buf_view(&p->flow.edges), err) : st;
}

msp_status
msp_page_part_finish(msp_page_part *p, msp_error *err)
{
    msp_status st;

    msp_page_settle(p->calls, p->ncalls, p->kept, p->own);
    st = write_blocks(p, err);
    if (st == MSP_OK) {
        int failed = close(p->file.fd);

        p->file.fd = -1;
        if (failed != 0)
            st = msp_file_cannot_write(p->file.path, errno, err);
    }
    if (st == MSP_OK)
        st = reduce_part(p, err);
    release_work(p);
    return st;
}

const msp_page_rest *
msp_page_part_rest(const msp_page_part *p)
{
    return &p->rest;
}

msp_status
msp_page_part_adopt(msp_page_part **out, msp_page_rest *rest_take, msp_error *err)
{
    msp_page_part *p = *out = msp_alloc_zero(1, sizeof(*p));

    if (p == NULL)
        return no_memory(err);
    p->file = MSP_FILE_NONE;
    p->rest = *rest_take;
    *rest_take = (msp_page_rest){0};
    p->nkept = (size_t)p->rest.rows;
    return MSP_OK;
}

static void
release_rest(msp_page_rest *r)
{
    msp_free(r->file);
    msp_free(r->largest_call);
    *r = (msp_page_rest){0};
}

void
msp_page_part_leave(msp_page_part *p)
{
    if (p == NULL)
        return;
    release_rest(&p->rest);
    msp_free(p->file.path);
    p->file = MSP_FILE_NONE;
    msp_page_part_close(p);
}

int64_t
msp_page_part_rows(const msp_page_part *p)
{
    return (int64_t)p->nkept;
}

void
msp_page_part_close(msp_page_part *p)
{
    if (p == NULL)
        return;
    if (p->file.path == NULL && p->rest.file != NULL)
        unlink(p->rest.file); /* adopted */
    msp_file_abandon(&p->file);
    release_rest(&p->rest);
    release_work(p);
    release_calls(p);
    msp_free(p);
}
