/* graph.c - see graph.h. */
#include <stdlib.h>
#include "dump/graph.h"
#include "core/alloc.h"
#include "core/map.h"
#include "core/path.h"
#include "core/vec.h"
#include "report/read/table_read.h"

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

/* ---- names --------------------------------------------------------------------------------------------------- */

static bool
is_direction(msp_str s)
{
    return msp_str_eq(s, MSP_STR("input")) || msp_str_eq(s, MSP_STR("output"));
}

/* {type}.{op}.{task}.{stream}.{time}[.{n}].{input|output}[.{n}].{slot}.{format}.npy */
bool
msp_graph_name(msp_str name, msp_buf *scratch, int64_t *time)
{
    msp_str rest = name, type, op, task, stream, part, slot;
    unsigned long long t;

    if (!msp_str_ends(rest, MSP_STR(".npy")))
        return false;
    rest.len -= 4;
    type = msp_str_shift(&rest);
    op = msp_str_shift(&rest);
    task = msp_str_shift(&rest);
    stream = msp_str_shift(&rest);
    part = msp_str_shift(&rest);
    if (type.len == 0 || op.len == 0 || task.len == 0 || stream.len == 0 || !msp_str_to_u64(part, &t) || t > INT64_MAX)
        return false;
    do
        part = msp_str_shift(&rest);
    while (msp_str_is_digits(part));
    if (!is_direction(part))
        return false;
    *time = (int64_t)t;
    msp_buf_clear(scratch);
    msp_buf_printf(scratch, "%.*s.%.*s.%.*s", (int)op.len, op.p, (int)task.len, task.p, (int)part.len, part.p);
    /* two parts, slot and format, stand at the end; numbers before them belong to the input or output */
    slot = msp_str_shift(&rest);
    while (msp_str_is_digits(slot) && msp_str_find(rest, MSP_STR(".")) != NULL) {
        msp_buf_printf(scratch, ".%.*s", (int)slot.len, slot.p);
        slot = msp_str_shift(&rest);
    }
    if (slot.len == 0 || rest.len == 0)
        return false;
    msp_buf_printf(scratch, ".%.*s", (int)slot.len, slot.p);
    return true;
}

/* A plain folder's key: the file name without its last two parts between underscores. */
static bool
common_name(msp_str name, msp_buf *scratch)
{
    size_t len = name.len;

    for (int i = 0; i < 2; i++) {
        while (len > 0 && name.p[len - 1] != '_')
            len--;
        if (len == 0)
            return i > 0; /* one underscore: the key is empty */
        len--;
    }
    msp_buf_clear(scratch);
    msp_buf_add(scratch, name.p, len);
    return true;
}

/* ---- items --------------------------------------------------------------------------------------------------- */

static char *
keep_text(msp_graph_items *t, msp_str s)
{
    return msp_arena_text(&t->arena, s.p != NULL ? s.p : "", s.len);
}

static msp_graph_item *
add_item(msp_graph_items *t, msp_str key, int64_t time)
{
    char *copy = keep_text(t, key);

    if (copy == NULL || !msp_vec_grow((void **)&t->items, &t->cap, t->count + 1, sizeof(*t->items)))
        return NULL;
    t->items[t->count] =
        (msp_graph_item){.key = {copy, key.len}, .name = {copy, key.len}, .time = time, .place = t->count};
    return &t->items[t->count++];
}

/* ---- statistic.csv ------------------------------------------------------------------------------------------- */

enum {
    COL_OP = 0,
    COL_TASK,
    COL_TIME,
    COL_IO,
    COL_SLOT,
    COL_DTYPE,
    COL_SHAPE,
    COL_STATS,
    NCOLS = COL_STATS + MSP_NSTATS
};

typedef struct csv_side {
    msp_graph_items *items;
    const char *path;
    size_t at[NCOLS]; /* which field; SIZE_MAX: not there */
    msp_buf scratch;
} csv_side;

static msp_str
cell_text(const msp_cell *cells, size_t count, size_t at, msp_buf *out)
{
    const msp_cell *c = at < count ? &cells[at] : NULL;

    msp_buf_clear(out);
    if (c == NULL)
        return (msp_str){NULL, 0};
    if (c->kind == MSP_CELL_TEXT)
        return (msp_str){c->as.text.p, c->as.text.len};
    if (c->kind == MSP_CELL_INT)
        msp_buf_printf(out, "%lld", (long long)c->as.i);
    else if (c->kind == MSP_CELL_FLOAT)
        msp_buf_printf(out, "%.17g", c->as.f);
    return msp_buf_view(out);
}

static msp_status
on_header(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    static const char *const titles[NCOLS] = {"Op Name",   "Task ID",   "Timestamp",   "IO",
                                              "Slot",      "Data Type", "Shape",       "Max Value",
                                              "Min Value", "Avg Value", "L2Norm Value"};
    csv_side *s = payload;

    for (size_t k = 0; k < NCOLS; k++) {
        s->at[k] = SIZE_MAX;
        for (size_t i = 0; i < count; i++)
            if (cells[i].kind == MSP_CELL_TEXT &&
                msp_str_eq((msp_str){cells[i].as.text.p, cells[i].as.text.len}, msp_str_of(titles[k])))
                s->at[k] = i;
        if (s->at[k] == SIZE_MAX && k <= COL_SLOT)
            return msp_error_set(err, MSP_E_FORMAT, "has no column \"%s\"", titles[k]);
    }
    return MSP_OK;
}

static msp_cell
keep_cell(msp_graph_items *t, const msp_cell *cells, size_t count, size_t at, bool *failed)
{
    msp_cell c = at < count ? cells[at] : (msp_cell){0};
    char *copy;

    if (c.kind != MSP_CELL_TEXT)
        return c;
    copy = keep_text(t, (msp_str){c.as.text.p, c.as.text.len});
    *failed = *failed || copy == NULL;
    return copy != NULL ? msp_cell_text(copy, c.as.text.len) : (msp_cell){0};
}

/* MindSpore writes a truth value as a word, and null where an empty tensor has no number: 1, 0 and 0, as in 8.3. */
static msp_cell
keep_number(msp_graph_items *t, const msp_cell *cells, size_t count, size_t at, bool *failed)
{
    msp_cell c = keep_cell(t, cells, count, at, failed);

    if (c.kind == MSP_CELL_BOOL)
        return (msp_cell){.kind = MSP_CELL_INT, .as.i = c.as.b};
    if (c.kind == MSP_CELL_TEXT && msp_str_eq((msp_str){c.as.text.p, c.as.text.len}, MSP_STR("null")))
        return (msp_cell){.kind = MSP_CELL_INT, .as.i = 0};
    return c;
}

static msp_status
on_row(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    csv_side *s = payload;
    msp_buf part = {0};
    msp_graph_item *item;
    int64_t time = 0;
    bool failed = false;

    msp_buf_clear(&s->scratch);
    for (size_t k = COL_OP; k <= COL_SLOT; k++) {
        if (k == COL_TIME)
            continue;
        if (k > COL_OP)
            msp_buf_char(&s->scratch, '.');
        msp_buf_str(&s->scratch, cell_text(cells, count, s->at[k], &part));
    }
    if (s->at[COL_TIME] < count && cells[s->at[COL_TIME]].kind == MSP_CELL_INT)
        time = cells[s->at[COL_TIME]].as.i;
    item = s->scratch.failed || part.failed ? NULL : add_item(s->items, msp_buf_view(&s->scratch), time);
    if (item != NULL) {
        msp_str dtype = cell_text(cells, count, s->at[COL_DTYPE], &part), shape;
        char *copy = keep_text(s->items, dtype);

        item->path = s->path;
        item->dtype = msp_str_of(copy);
        shape = cell_text(cells, count, s->at[COL_SHAPE], &part);
        failed = copy == NULL;
        copy = keep_text(s->items, shape);
        item->shape = msp_str_of(copy);
        failed = failed || copy == NULL;
        for (int i = 0; i < MSP_NSTATS; i++)
            item->stats[i] = keep_number(s->items, cells, count, s->at[COL_STATS + i], &failed);
    }
    msp_buf_release(&part);
    return item == NULL || failed ? no_memory(err) : MSP_OK;
}

static msp_status
read_statistics(msp_graph_items *out, const char *path, msp_error *err)
{
    csv_side side = {.items = out};
    msp_table_sink sink = {on_header, on_row, &side};
    msp_status st;

    side.path = keep_text(out, msp_str_of(path));
    if (side.path == NULL)
        return no_memory(err);
    st = msp_table_read(path, &sink, err);
    msp_buf_release(&side.scratch);
    return st;
}

/* ---- folders ------------------------------------------------------------------------------------------------- */

/* mapping.csv: file names that were too long, and what they stand for. */
typedef struct renames {
    msp_graph_items *items;
    msp_map map; /* value: the name, as a pointer */
} renames;

static msp_status
on_rename(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    renames *r = payload;
    msp_buf part = {0};
    char *from, *to;
    msp_map_entry *e;

    if (count < 2)
        return MSP_OK;
    from = keep_text(r->items, cell_text(cells, count, 0, &part));
    to = keep_text(r->items, cell_text(cells, count, 1, &part));
    msp_buf_release(&part);
    if (from == NULL || to == NULL)
        return no_memory(err);
    e = msp_map_put(&r->map, msp_str_of(from), 0, NULL);
    if (e == NULL)
        return no_memory(err);
    e->value = (int64_t)(intptr_t)to;
    return MSP_OK;
}

static msp_status
read_renames(renames *r, const char *dir, msp_error *err)
{
    msp_table_sink sink = {NULL, on_rename, r};
    char *path = msp_path_join(dir, "mapping.csv");
    msp_status st = path == NULL ? no_memory(err) : MSP_OK;

    if (st == MSP_OK && msp_path_kind_of(path) == MSP_PATH_FILE)
        st = msp_table_read(path, &sink, err);
    msp_free(path);
    return st;
}

static msp_status
add_file(msp_graph_items *out, const char *dir, const char *name, const renames *r, bool common, msp_buf *scratch,
         msp_error *err)
{
    msp_map_entry *e = msp_map_get(&r->map, msp_str_of(name));
    msp_str known = e != NULL ? msp_str_of((const char *)(intptr_t)e->value) : msp_str_of(name);
    msp_graph_item *item;
    int64_t time = 0;
    char *path;

    msp_buf_clear(scratch);
    if (!msp_str_ends(msp_str_of(name), MSP_STR(".npy")) ||
        !(common ? common_name(known, scratch) : msp_graph_name(known, scratch, &time)))
        return MSP_OK;
    item = scratch->failed ? NULL : add_item(out, msp_buf_view(scratch), time);
    path = msp_path_join(dir, name);
    if (item != NULL && path != NULL)
        item->path = keep_text(out, msp_str_of(path));
    msp_free(path);
    return item == NULL || item->path == NULL ? no_memory(err) : MSP_OK;
}

/* .npy files, or without any statistic.csv. */
static msp_status
read_folder(msp_graph_items *out, const char *dir, bool common, msp_error *err)
{
    msp_dir_list names = {0};
    renames r = {.items = out};
    msp_buf scratch = {0};
    size_t before = out->count;
    char *csv = msp_path_join(dir, "statistic.csv");
    msp_status st = csv == NULL ? no_memory(err) : msp_dir_list_read(&names, dir, err);

    if (st == MSP_OK && !common)
        st = read_renames(&r, dir, err);
    for (size_t i = 0; st == MSP_OK && i < names.count; i++)
        st = add_file(out, dir, names.names[i], &r, common, &scratch, err);
    if (st == MSP_OK && out->count == before && !common && msp_path_kind_of(csv) == MSP_PATH_FILE) {
        out->statistics = true;
        st = read_statistics(out, csv, err);
    }
    msp_free(csv);
    msp_buf_release(&scratch);
    msp_map_release(&r.map);
    msp_dir_list_release(&names);
    return st;
}

static int
by_key(const void *a, const void *b)
{
    const msp_graph_item *x = a, *y = b;
    int order = msp_str_cmp(x->key, y->key);

    if (order != 0)
        return order;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index); /* as they were found */
}

void
msp_graph_sort(msp_graph_items *t)
{
    for (size_t i = 0; i < t->count; i++)
        t->items[i].index = i;
    if (t->count > 0)
        qsort(t->items, t->count, sizeof(*t->items), by_key);
    for (size_t i = 0; i < t->count; i++) {
        bool again = i > 0 && msp_str_eq(t->items[i - 1].key, t->items[i].key);

        t->items[i].index = again ? t->items[i - 1].index + 1 : 0;
    }
}

msp_status
msp_graph_read(msp_graph_items *out, const msp_dump_place *places, size_t n, bool common, msp_error *err)
{
    msp_status st = MSP_OK;

    *out = (msp_graph_items){0};
    for (size_t i = 0; st == MSP_OK && i < n; i++)
        st = read_folder(out, places[i].path, common, err);
    if (st == MSP_OK)
        msp_graph_sort(out);
    return st;
}

void
msp_graph_items_release(msp_graph_items *t)
{
    msp_free(t->items);
    msp_arena_release(&t->arena);
    *t = (msp_graph_items){0};
}
