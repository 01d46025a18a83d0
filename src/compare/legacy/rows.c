/*
 * rows.c - a .pkl of ptdbg_ascend or torch_npu.hooks as rows, and its lines as groups.
 *
 * The files do not say where an operator begins. ptdbg_ascend ends a group where a line with an output is followed by
 * one without (with stacks behind each operator: where a stack is followed by something else); torch_npu.hooks ends it
 * after every output. An operator that recorded outputs only so joins the one before it, as in the original. Lines at
 * the end that never reach their output are left out, with a warning.
 *
 * Stacks stand behind their operator (mode api_stack) or before it (list and range).
 */
#include "compare/legacy/legacy.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/vec.h"
#include "dump/dump_read.h"

typedef struct reading {
    msp_legacy_file *out;
    const char *path;
    size_t size; /* of the text, without zeros at its end once they were found and told of */
    size_t cap_apis;
    size_t first;       /* row with which the open group begins */
    bool any;           /* a line of a tensor was read */
    bool any_stack;     /* and one of a stack */
    bool again;         /* with what that one told, all lines must be read again */
    bool stack_is_last; /* stacks stand behind their operator */
    bool marked;        /* the line before ends a group, unless this one goes on ending it */
    msp_json_writer stacks;
    msp_error *err;
} reading;

static msp_status
no_memory(reading *r)
{
    return msp_error_set(r->err, MSP_E_NOMEM, "%s: out of memory", r->path);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static bool
close_group(reading *r)
{
    msp_rows *t = &r->out->rows;
    msp_row_api *api;

    if (t->count == r->first)
        return true;
    if (!msp_vec_grow((void **)&t->apis, &r->cap_apis, t->napis + 1, sizeof(*t->apis)))
        return false;
    api = &t->apis[t->napis];
    *api = (msp_row_api){.name = msp_legacy_call(msp_row_name(&t->rows[r->first])),
                         .first = r->first,
                         .count = t->count - r->first};
    for (size_t i = r->first; i < t->count; i++)
        t->rows[i].api = (uint32_t)t->napis;
    t->napis++;
    r->first = t->count;
    return true;
}

static bool
has_output(msp_str name)
{
    return msp_str_find(name, MSP_STR("output")) != NULL;
}

/* A line that has its place after the marker of the group before it begins a new one. */
static bool
begin_line(reading *r, bool marks)
{
    bool ok = !r->marked || marks || close_group(r);

    r->marked = marks;
    return ok;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static bool
name_row(msp_rows *t, msp_row *row, msp_str name, bool with_file, bool output)
{
    char *copy = name.len > UINT32_MAX - 8 ? NULL : msp_arena_alloc(&t->arena, name.len + 5, 1);

    if (copy == NULL)
        return false;
    memcpy(copy, name.p != NULL ? name.p : "", name.len);
    memcpy(copy + name.len, ".npy", 5);
    row->name = copy;
    row->name_len = (uint32_t)name.len;
    if (with_file) {
        row->file = copy;
        row->file_len = row->name_len + 4;
    }
    row->state = output ? STATE_OUTPUT : STATE_INPUT;
    return true;
}

static bool
fill_tensor(reading *r, msp_row *row, const msp_legacy_line *line)
{
    msp_legacy_file *f = r->out;
    bool stats = line->stats != NULL && line->step <= 100;

    if (!r->any) {
        f->has_stats = stats;
        f->has_norm = msp_json_count(line->stats) > 3;
    }
    for (size_t i = 0; stats && i < MSP_NSTATS && i < msp_json_count(line->stats); i++)
        if (!msp_rows_value(&f->rows, &row->stats[i], msp_json_at(line->stats, i)))
            return false;
    if (msp_json_kind_of(line->checksum) == MSP_JSON_STRING) {
        f->has_md5 = true;
        return msp_rows_value(&f->rows, &row->md5, line->checksum);
    }
    return true;
}

static bool
is_numbered(msp_str name)
{
    size_t i = 0;

    while (i < name.len && name.p[i] >= '0' && name.p[i] <= '9')
        i++;
    return i > 0 && i < name.len && name.p[i] == '_';
}

static msp_status
fill_values(reading *r, msp_row *row, const msp_legacy_line *line)
{
    if (!r->any) {
        r->out->hooks = true;
        r->out->numbered = is_numbered(line->name);
    }
    if (line->values.len > UINT32_MAX)
        return msp_error_set(r->err, MSP_E_LIMIT, "%s: line %zu: more than 4 GiB of values", r->path, line->number);
    row->file = line->values.p;
    row->file_len = (uint32_t)line->values.len;
    return MSP_OK;
}

/* Each line of a tensor is a row, so that the one which this is like is too. */
static void
fill_like(const msp_rows *t, msp_row *row, const msp_legacy_line *line)
{
    const msp_row *like = &t->rows[line->like];

    row->dtype = like->dtype;
    row->shape = like->shape;
    row->md5 = like->md5;
    for (size_t i = 0; i < line->nnumbers; i++)
        row->stats[i] = (msp_val){VAL_FLOAT, 0, {.f = line->numbers[i]}};
}

static bool
fill_row(reading *r, msp_row *row, const msp_legacy_line *line)
{
    if (line->like != LEGACY_NONE) {
        fill_like(&r->out->rows, row, line);
        return true;
    }
    return msp_rows_texts(&r->out->rows, row, line->dtype, line->shape) &&
           (line->kind == LEGACY_VALUES || fill_tensor(r, row, line));
}

static msp_status
add_row(reading *r, const msp_legacy_line *line)
{
    msp_rows *t = &r->out->rows;
    bool hooks = line->kind == LEGACY_VALUES, output = has_output(line->name);
    msp_row *row;
    msp_status st = MSP_OK;

    if (r->any && hooks != r->out->hooks)
        return msp_error_set(r->err, MSP_E_FORMAT,
                             "%s: line %zu: a line of %s in a file of %s; did two tools write to one file?", r->path,
                             line->number, hooks ? "torch_npu.hooks" : "ptdbg_ascend",
                             hooks ? "ptdbg_ascend" : "torch_npu.hooks");
    row = begin_line(r, !r->stack_is_last && output) ? msp_rows_new(t) : NULL;
    if (row == NULL || !name_row(t, row, line->name, !hooks, output) || !fill_row(r, row, line))
        return no_memory(r);
    if (hooks)
        st = fill_values(r, row, line);
    r->any = true;
    t->count++;
    if (st == MSP_OK && hooks && r->marked) {
        r->marked = false;
        return close_group(r) ? MSP_OK : no_memory(r);
    }
    return st;
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

static msp_status
add_stack(reading *r, const msp_legacy_line *line)
{
    if (!begin_line(r, r->stack_is_last))
        return no_memory(r);
    msp_json_write_key(&r->stacks, msp_legacy_call(line->name));
    msp_json_write_value(&r->stacks, line->frames);
    return msp_buf_status(&r->out->stack_text, r->err);
}

/* The first stack that stands beside a line of its own call tells. Errors are for the real reading to report. */
static bool
stacks_are_last(const char *text, size_t size, const char *path)
{
    msp_legacy_reader r = {.text = text, .size = size, .path = path, .quiet = true};
    msp_buf before = {0}, stack = {0};
    msp_legacy_line line;
    bool more, last = true;

    while (msp_legacy_next(&r, &line, &more, NULL) == MSP_OK && more) {
        msp_str call = msp_legacy_call(line.name);

        if (line.kind != LEGACY_STACK && stack.len > 0 && msp_str_eq(msp_buf_view(&stack), call)) {
            last = false;
            break;
        }
        if (line.kind == LEGACY_STACK && msp_str_eq(msp_buf_view(&before), call))
            break;
        msp_buf_clear(&stack);
        msp_buf_clear(&before);
        msp_buf_str(line.kind == LEGACY_STACK ? &stack : &before, call);
    }
    msp_buf_release(&before);
    msp_buf_release(&stack);
    msp_legacy_reader_release(&r);
    return last;
}

static msp_status
open_stacks(reading *r)
{
    msp_legacy_file *f = r->out;
    msp_status st;

    msp_json_end_object(&r->stacks);
    st = msp_buf_status(&f->stack_text, r->err);
    if (st == MSP_OK && f->stack_text.len > 2)
        st = msp_stack_open_text(&f->stack, f->stack_text.p, f->stack_text.len, r->err);
    return st;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static void
drop_open_group(reading *r)
{
    msp_rows *t = &r->out->rows;

    r->out->left_out = t->count - r->first;
    if (r->out->left_out > 0)
        msp_warning("%s: the last %zu tensors belong to a call whose %s is missing; they are left out", r->path,
                    r->out->left_out, r->stack_is_last ? "stack" : "output");
    t->count = r->first;
}

/* Room for about as many rows as the first line promises, but no more than a large file needs anyway. */
static bool
expect_rows(reading *r, size_t lines)
{
    enum { AT_MOST = 1 << 16 };
    msp_rows *t = &r->out->rows;
    size_t n = lines < AT_MOST ? lines : AT_MOST;

    return n == 0 || msp_vec_grow((void **)&t->rows, &t->cap, n, sizeof(*t->rows));
}

static bool
begin_rows(reading *r)
{
    msp_rows_release(&r->out->rows);
    r->cap_apis = r->first = 0;
    r->any = r->marked = false;
    return msp_rows_begin(&r->out->rows);
}

/*
 * Which order stacks have is asked at the first of them: most files have none, and looking for one would take as long
 * as reading the lines.
 */
static void
first_stack(reading *r, const char *text)
{
    r->any_stack = true;
    r->stack_is_last = r->again = !r->out->hooks && stacks_are_last(text, r->size, r->path);
}

static msp_status
read_lines(reading *r, const char *text)
{
    msp_legacy_known known[LEGACY_KNOWN] = {{{0}, 0}};
    msp_legacy_reader reader = {.text = text, .size = r->size, .path = r->path, .known = known};
    msp_legacy_line line;
    msp_status st;
    bool more;

    r->again = false;
    while ((st = msp_legacy_next(&reader, &line, &more, r->err)) == MSP_OK && more) {
        if (line.kind == LEGACY_STACK && !r->any_stack)
            first_stack(r, text);
        if (!r->any && !expect_rows(r, r->size / (line.text.len + 1)))
            st = no_memory(r);
        if (st == MSP_OK && !r->again)
            st = line.kind == LEGACY_STACK ? add_stack(r, &line) : add_row(r, &line);
        if (st != MSP_OK || r->again)
            break;
    }
    r->size = reader.size;
    r->out->cut |= reader.cut;
    msp_legacy_reader_release(&reader);
    return st;
}

msp_status
msp_legacy_open_text(msp_legacy_file *out, const char *text, size_t size, const char *path, msp_error *err)
{
    reading r = {.out = out, .path = path, .size = size, .err = err};
    msp_status st;

    msp_json_writer_init(&r.stacks, &out->stack_text, -1);
    msp_json_begin_object(&r.stacks);
    do
        st = begin_rows(&r) ? read_lines(&r, text) : no_memory(&r);
    while (st == MSP_OK && r.again);
    if (st == MSP_OK && r.marked && !close_group(&r))
        st = no_memory(&r);
    if (st == MSP_OK)
        st = open_stacks(&r);
    if (st != MSP_OK)
        return st;
    drop_open_group(&r);
    out->rows.has_md5 = out->has_md5;
    if (size == 0)
        return msp_error_set(err, MSP_E_FORMAT, "%s: the file is empty: was the process stopped before it wrote?",
                             path);
    return MSP_OK;
}

msp_status
msp_legacy_open(msp_legacy_file *out, const char *path, msp_error *err)
{
    msp_status st = msp_dump_check_owner(path, err);

    *out = (msp_legacy_file){0};
    if (st == MSP_OK)
        st = msp_map_open(&out->map, path, err);
    return st == MSP_OK ? msp_legacy_open_text(out, out->map.addr, out->map.size, path, err) : st;
}

void
msp_legacy_release(msp_legacy_file *f)
{
    msp_rows_release(&f->rows);
    msp_stack_close(f->stack);
    msp_buf_release(&f->stack_text);
    msp_map_close(&f->map);
    *f = (msp_legacy_file){0};
}

/* ---- two files --------------------------------------------------------------------------------------------------- */

msp_status
msp_legacy_choose(msp_legacy_look *out, msp_compare_mode *mode, const msp_legacy_file files[2], bool has_dir,
                  msp_legacy_form wanted, msp_error *err)
{
    const msp_legacy_file *n = &files[0], *b = &files[1];

    if (n->hooks != b->hooks)
        return msp_error_set(err, MSP_E_INVALID, "one file is of ptdbg_ascend, the other of torch_npu.hooks");
    *out = (msp_legacy_look){.form = wanted,
                             .stats = {n->has_stats, b->has_stats},
                             .norm = n->has_norm || b->has_norm,
                             .numbered = n->numbered || b->numbered};
    *mode = MSP_MODE_REAL;
    if (n->hooks)
        out->form = MSP_LEGACY_HOOKS;
    else if (wanted == MSP_LEGACY_AUTO || wanted == MSP_LEGACY_HOOKS)
        out->form = out->norm ? MSP_LEGACY_PTDBG_6 : MSP_LEGACY_PTDBG_2;
    out->norm = out->norm && out->form == MSP_LEGACY_PTDBG_6;
    if (n->hooks || has_dir)
        return MSP_OK;
    if (n->has_md5 != b->has_md5)
        return msp_error_set(err, MSP_E_INVALID, "one file has checksums and the other has not; dump both in one mode");
    *mode = n->has_md5 ? MSP_MODE_MD5 : MSP_MODE_STATISTICS;
    if (!n->has_md5 && (!n->has_stats || !b->has_stats))
        return msp_error_set(err, MSP_E_NOT_FOUND,
                             "there are neither .npy files nor statistics to compare by: the folder of .npy files must "
                             "lie beside the .pkl, under its name");
    return MSP_OK;
}

char *
msp_legacy_data_dir(const char *path)
{
    msp_str s = msp_str_of(path);
    char *out;

    if (msp_str_ends(s, MSP_STR(".pkl")))
        s.len -= 4;
    out = msp_alloc(s.len + 1, 1);
    if (out != NULL) {
        memcpy(out, s.p, s.len);
        out[s.len] = '\0';
    }
    return out;
}
