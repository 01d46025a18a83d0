/* look.c - see msprobe/look.h: open, hand out, close. */
#include <math.h>
#include "compare/judge/show.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/path.h"
#include "look/look_parts.h"

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

/* A stack.json that is missing is none; one that is wrong is said, and the rest is shown. */
static msp_status
open_stack(msp_look *l, msp_error *err)
{
    msp_str dir = msp_path_dir(l->path);
    msp_buf path = {0};
    msp_status st;
    msp_error why;

    msp_buf_str(&path, dir);
    msp_buf_text(&path, "/stack.json");
    st = msp_buf_status(&path, err);
    if (st == MSP_OK && msp_path_kind_of(path.p) == MSP_PATH_FILE && msp_stack_open(&l->stack, path.p, &why) != MSP_OK)
        msp_warning("%s; shown without stacks", why.message);
    msp_buf_release(&path);
    return st;
}

static msp_status
open_json(msp_look *l, msp_error *err)
{
    msp_look_summary *s = &l->summary;
    msp_status st = msp_dump_open(&l->dump, l->path, err);

    if (st == MSP_OK)
        st = open_stack(l, err);
    if (st == MSP_OK && (st = msp_rows_flatten(&l->own, l->dump, NULL, NULL, err)) != MSP_OK)
        msp_error_prefix(err, st, "%s: ", l->path);
    if (st != MSP_OK)
        return st;
    l->rows = &l->own;
    s->task = msp_dump_task_text(l->dump);
    s->level = msp_dump_level(l->dump);
    s->framework = msp_dump_framework(l->dump);
    s->size = msp_dump_size(l->dump);
    s->cut = msp_dump_cut(l->dump, &s->cut_at);
    s->has_stack = l->stack != NULL;
    return MSP_OK;
}

static msp_status
open_legacy(msp_look *l, msp_error *err)
{
    msp_look_summary *s = &l->summary;
    msp_status st = msp_legacy_open(&l->legacy, l->path, err);

    if (st != MSP_OK)
        return st;
    l->rows = &l->legacy.rows;
    s->task = l->legacy.hooks ? "torch_npu.hooks" : "ptdbg_ascend";
    s->level = "";
    s->framework = MSP_PYTORCH;
    s->size = l->legacy.map.size;
    s->cut = l->legacy.cut;
    s->cut_at = l->legacy.map.size;
    s->has_stack = l->legacy.stack != NULL;
    return MSP_OK;
}

msp_status
msp_look_open(msp_look **out, const msp_dump_place *place, msp_error *err)
{
    msp_look *l;
    msp_status st;

    *out = NULL;
    if (place->error != NULL)
        return msp_error_set(err, MSP_E_NOT_FOUND, "%s", place->error);
    l = msp_alloc_zero(1, sizeof(*l));
    if (l == NULL || (l->path = msp_str_copy(msp_str_of(place->path))) == NULL) {
        msp_look_close(l);
        return no_memory(err);
    }
    l->summary.path = l->path;
    l->summary.kind = place->kind;
    st = place->kind == MSP_DUMP_LEGACY ? open_legacy(l, err) : open_json(l, err);
    if (st == MSP_OK)
        st = msp_look_sum_up(l, err);
    if (st == MSP_OK)
        st = msp_look_trace(l, err);
    if (st != MSP_E_NOMEM && msp_look_check(l, err) != MSP_OK)
        st = MSP_E_CHANGED;
    if (st != MSP_OK) {
        msp_look_close(l);
        return st;
    }
    *out = l;
    return MSP_OK;
}

msp_status
msp_look_check(const msp_look *l, msp_error *err)
{
    msp_status st =
        l->dump != NULL ? msp_dump_check(l->dump, err) : msp_map_check(&l->legacy.map, AT_FDCWD, l->path, err);

    return st == MSP_OK ? msp_stack_check(l->stack, err) : st;
}

void
msp_look_close(msp_look *l)
{
    if (l == NULL)
        return;
    msp_rows_release(&l->own);
    msp_stack_close(l->stack);
    msp_dump_close(l->dump);
    msp_legacy_release(&l->legacy);
    msp_buf_release(&l->frame);
    msp_free(l->summary.types);
    msp_free(l->summary.kinds);
    msp_free(l->path);
    msp_free(l);
}

const msp_look_summary *
msp_look_summary_of(const msp_look *l)
{
    return &l->summary;
}

/* ---- rows and calls ---------------------------------------------------------------------------------------------- */

/* "[2, 3]" of a tensor without statistics is all the same a tensor. */
static bool
is_tensor(const msp_rows *t, const msp_row *r)
{
    return t->texts[r->dtype].dtype != MSP_DTYPE_NONE || r->file != NULL;
}

static void
note_bad(msp_look_row *out, const msp_val *v)
{
    double x;

    if (!msp_val_number(v, &x))
        return;
    out->nan |= isnan(x) != 0;
    out->inf |= isinf(x) != 0;
}

/* Maximum and minimum of a tensor's elements are what tells; a mean or a norm may overflow by itself. */
static void
find_bad(msp_look_row *out, const msp_rows *t, const msp_row *r)
{
    bool complex = msp_dtype_class_of(t->texts[r->dtype].dtype) == MSP_CLASS_COMPLEX;

    if (!out->tensor || t->texts[r->shape].numel == 0)
        return;
    note_bad(out, &r->stats[complex ? MSP_STAT_NORM : MSP_STAT_MAX]);
    note_bad(out, &r->stats[complex ? MSP_STAT_NORM : MSP_STAT_MIN]);
}

static msp_cell
value_cell(const msp_val *v)
{
    return v->kind == VAL_NONE ? (msp_cell){0} : v->kind == VAL_FLOAT ? msp_cell_float(v->as.f) : msp_show_value(v);
}

void
msp_look_row_at(msp_look_row *out, const msp_look *l, size_t row)
{
    const msp_rows *t = l->rows;
    const msp_row *r = &t->rows[row];

    *out = (msp_look_row){.name = msp_look_text_of(msp_row_name(r)),
                          .dtype = msp_look_text_of(msp_row_dtype(t, r)),
                          .shape = msp_look_text_of(msp_row_shape(t, r)),
                          .section = msp_row_state_text(r->state),
                          .grad = r->requires_grad == FLAG_TRUE    ? "True"
                                  : r->requires_grad == FLAG_FALSE ? "False"
                                                                   : NULL,
                          .bytes = msp_row_bytes(t, r),
                          .tensor = is_tensor(t, r)};
    if (!l->legacy.hooks) /* there the values themselves stand in its place */
        out->file = msp_look_text_of(msp_row_file(r));
    for (int i = 0; i < MSP_NSTATS; i++)
        out->stats[i] = value_cell(&r->stats[i]);
    if (t->has_md5)
        out->checksum = value_cell(&r->md5);
    find_bad(out, t, r);
}

static bool
is_given(const msp_row *r)
{
    return r->state == STATE_OUTPUT || r->state == STATE_PARAMETERS_GRAD;
}

/* The norm of a tensor of floats, when it is finite. */
static double
norm_of(const msp_rows *t, const msp_row *r)
{
    msp_dtype_class c = msp_dtype_class_of(t->texts[r->dtype].dtype);
    double v;

    if ((c != MSP_CLASS_FLOAT && c != MSP_CLASS_COMPLEX) || !msp_val_number(&r->stats[MSP_STAT_NORM], &v))
        return NAN;
    return isfinite(v) ? v : NAN;
}

void
msp_look_call_at(msp_look_call *out, const msp_look *l, size_t call)
{
    const msp_row_api *api = &l->rows->apis[call];

    *out = (msp_look_call){.name = msp_look_text_of(api->name),
                           .first = api->first,
                           .rows = api->count,
                           .module = msp_look_is_module(api->name),
                           .backward = msp_look_is_backward(api->name),
                           .norm_in = NAN,
                           .norm_out = NAN};
    for (size_t i = api->first; i < api->first + api->count; i++) {
        const msp_row *r = &l->rows->rows[i];
        msp_look_row row;
        double *norm = is_given(r) ? &out->norm_out : &out->norm_in;

        msp_look_row_at(&row, l, i);
        out->tensors += row.tensor;
        out->bytes += row.tensor && row.bytes > 0 ? row.bytes : 0;
        out->nan |= row.nan;
        out->inf |= row.inf;
        *(is_given(r) ? &out->bad_out : &out->bad_in) |= row.nan || row.inf;
        *norm = fmax(*norm, norm_of(l->rows, r));
    }
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

static const msp_json *
frames_of(const msp_look *l, size_t call)
{
    return msp_stack_frames(l->dump != NULL ? l->stack : l->legacy.stack, l->rows->apis[call].name);
}

int64_t
msp_look_depth(const msp_look *l, size_t call)
{
    const msp_json *frames = frames_of(l, call);

    return frames == NULL ? -1 : (int64_t)msp_json_count(frames);
}

const char *
msp_look_frame(msp_look *l, size_t call, size_t i)
{
    msp_buf_clear(&l->frame);
    msp_legacy_frame(&l->frame, msp_json_at(frames_of(l, call), i));
    msp_buf_char(&l->frame, '\0');
    return l->frame.failed ? NULL : l->frame.p;
}

void
msp_look_free(void *p)
{
    msp_free(p);
}
