/*
 * origin.c - where NaN and inf come first.
 *
 * Records stand in the order in which calls ended; of backward a module stands before the calls inside it. So where the
 * first is a module's, construct.json is asked for a call inside it that made them.
 */
#include "core/alloc.h"
#include "core/file.h"
#include "core/map.h"
#include "core/path.h"
#include "look/look_parts.h"

enum { DEEPEST = 1000 };

typedef struct parents {
    msp_mapping map;
    msp_json_doc doc;
    msp_map names; /* call -> index in doc.root */
} parents;

static void
parents_release(parents *p)
{
    msp_map_release(&p->names);
    msp_json_doc_release(&p->doc);
    msp_map_close(&p->map);
}

/* A construct.json that is missing or broken tells nothing; false: no memory. */
static bool
read_parents(parents *p, const msp_look *l)
{
    msp_str dir = msp_path_dir(l->path);
    msp_buf path = {0};
    bool ok = true;

    msp_buf_str(&path, dir);
    msp_buf_text(&path, "/construct.json");
    if (!path.failed && msp_map_open(&p->map, path.p, NULL) == MSP_OK &&
        msp_json_parse(&p->doc, p->map.addr, p->map.size, NULL) == MSP_OK &&
        msp_json_kind_of(p->doc.root) == MSP_JSON_OBJECT)
        for (size_t i = 0; i < msp_json_count(p->doc.root) && ok; i++)
            ok = msp_map_put(&p->names, msp_json_key(p->doc.root, i), (int64_t)i, NULL) != NULL;
    ok &= !path.failed;
    msp_buf_release(&path);
    return ok;
}

/* A parent is a name, [name, micro step] or null. */
static msp_str
parent_of(const parents *p, msp_str name)
{
    const msp_map_entry *e = msp_map_get(&p->names, name);
    const msp_json *v = e == NULL ? NULL : msp_json_at(p->doc.root, (size_t)e->value);

    return msp_json_string(msp_json_kind_of(v) == MSP_JSON_ARRAY ? msp_json_at(v, 0) : v);
}

static bool
is_inside(const parents *p, msp_str name, msp_str module)
{
    for (int depth = 0; depth < DEEPEST && name.len > 0; depth++) {
        name = parent_of(p, name);
        if (msp_str_eq(name, module))
            return true;
    }
    return false;
}

static bool
has_it(const msp_look_row *row, bool nan)
{
    return nan ? row->nan : row->inf;
}

/* The first row with NaN, or with inf, among those of a call. SIZE_MAX: none. */
static size_t
first_of_call(const msp_look *l, size_t call, bool nan, bool given)
{
    const msp_row_api *api = &l->rows->apis[call];

    for (size_t i = api->first; i < api->first + api->count; i++) {
        bool output = l->rows->rows[i].state == STATE_OUTPUT || l->rows->rows[i].state == STATE_PARAMETERS_GRAD;
        msp_look_row row;

        msp_look_row_at(&row, l, i);
        if (has_it(&row, nan) && (output || !given))
            return i;
    }
    return SIZE_MAX;
}

static void
look_inside(msp_look_find *f, const msp_look *l, const parents *p, bool nan)
{
    msp_str module = l->rows->apis[f->call].name;

    for (size_t i = f->call + 1; i < l->rows->napis; i++) {
        msp_str name = l->rows->apis[i].name;
        msp_look_call call;
        size_t row;

        if (msp_look_is_module(name) || !is_inside(p, name, module))
            continue;
        msp_look_call_at(&call, l, i);
        row = call.bad_in ? SIZE_MAX : first_of_call(l, i, nan, true);
        if (row != SIZE_MAX) {
            f->call = i;
            f->row = row;
            return;
        }
    }
}

static bool
takes_tensors(const msp_look *l, size_t call)
{
    const msp_row_api *api = &l->rows->apis[call];

    for (size_t i = api->first; i < api->first + api->count; i++) {
        msp_look_row row;

        msp_look_row_at(&row, l, i);
        if (row.tensor && l->rows->rows[i].state == STATE_INPUT)
            return true;
    }
    return false;
}

static void
find_first(msp_look_find *f, const msp_look *l, bool nan)
{
    msp_look_call call;

    for (size_t i = 0; i < l->rows->napis; i++) {
        size_t row;

        msp_look_call_at(&call, l, i);
        if (!(nan ? call.nan : call.inf))
            continue;
        row = first_of_call(l, i, nan, false);
        f->call = i;
        f->row = row;
        f->origin = l->rows->rows[row].state == STATE_OUTPUT && !call.bad_in && takes_tensors(l, i) ? MSP_LOOK_MADE
                    : l->rows->rows[row].state == STATE_INPUT || l->rows->rows[row].state == STATE_PARAMETERS
                        ? MSP_LOOK_TAKEN
                        : MSP_LOOK_UNCLEAR;
        return;
    }
}

msp_status
msp_look_trace(msp_look *l, msp_error *err)
{
    parents p = {0};
    bool ok = true, read = false;

    for (int nan = 0; nan < 2 && ok; nan++) {
        msp_look_find *f = nan ? &l->summary.nan : &l->summary.inf;

        if (f->rows == 0)
            continue;
        find_first(f, l, nan);
        if (f->origin == MSP_LOOK_TAKEN || !msp_look_is_module(l->rows->apis[f->call].name))
            continue;
        ok = read || read_parents(&p, l);
        read = true;
        if (ok)
            look_inside(f, l, &p, nan);
    }
    parents_release(&p);
    return ok ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory");
}
