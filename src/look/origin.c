/*
 * origin.c - where NaN and inf come first.
 *
 * Records stand in the order in which calls ended; of backward a module stands before the calls inside it. So where the
 * first is a module's, construct.json is asked for a call inside it that made them.
 */
#include "dump/construct.h"
#include "look/look_parts.h"

enum { DEEPEST = 1000 };

static bool
is_inside(const msp_construct *c, msp_str name, msp_str module)
{
    for (int depth = 0; depth < DEEPEST && name.len > 0; depth++) {
        name = msp_construct_parent(c, name);
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
look_inside(msp_look_find *f, const msp_look *l, const msp_construct *c, bool nan)
{
    msp_str module = l->rows->apis[f->call].name;

    for (size_t i = f->call + 1; i < l->rows->napis; i++) {
        msp_str name = l->rows->apis[i].name;
        msp_look_call call;
        size_t row;

        if (msp_look_is_module(name) || !is_inside(c, name, module))
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
    msp_construct c = {0};
    bool ok = true, read = false;

    for (int nan = 0; nan < 2 && ok; nan++) {
        msp_look_find *f = nan ? &l->summary.nan : &l->summary.inf;

        if (f->rows == 0)
            continue;
        find_first(f, l, nan);
        if (f->origin == MSP_LOOK_TAKEN || !msp_look_is_module(l->rows->apis[f->call].name))
            continue;
        ok = read || msp_construct_open_if_any(&c, l->path);
        read = true;
        if (ok)
            look_inside(f, l, &c, nan);
    }
    msp_construct_close(&c);
    return ok ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory");
}
