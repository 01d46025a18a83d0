/* whole.c - see whole.h. */
#include "compare/layout/whole_parts.h"

#include "compare/layout/stages.h"
#include "core/alloc.h"
#include "core/path.h"
#include "core/vec.h"
#include "dump/dump_read.h"

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory while parts are put together");
}

bool
msp_whole_shape(msp_str text, int64_t shape[MSP_MAX_NDIM], int *ndim)
{
    size_t i = 1;

    *ndim = 0;
    if (text.len < 2 || text.p[0] != '[' || text.p[text.len - 1] != ']')
        return false;
    while (i < text.len - 1) {
        int64_t v = 0;
        size_t from = i;

        for (; i < text.len && text.p[i] >= '0' && text.p[i] <= '9'; i++)
            if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, text.p[i] - '0', &v))
                return false;
        if (i == from || *ndim == MSP_MAX_NDIM)
            return false;
        shape[(*ndim)++] = v;
        while (i < text.len - 1 && (text.p[i] == ',' || text.p[i] == ' '))
            i++;
    }
    return true;
}

/* ---- members ----------------------------------------------------------------------------------------------------- */

static msp_status
name_rows(msp_whole_member *m, msp_error *err)
{
    for (size_t i = 0; i < m->rows->count; i++)
        if (msp_map_put(&m->names, msp_row_name(&m->rows->rows[i]), (int64_t)i, NULL) == NULL)
            return no_memory(err);
    return MSP_OK;
}

static msp_status
open_member(msp_whole_member *m, const msp_dump_place *place, const msp_dump *lead, msp_error *err)
{
    msp_status st = msp_dump_open(&m->dump, place->path, err);

    if (st == MSP_OK && strcmp(msp_dump_task_text(m->dump), msp_dump_task_text(lead)) != 0)
        return msp_error_set(err, MSP_E_INVALID, "%s: its task is %s, that of the rank beside it is %s", place->path,
                             msp_dump_task_text(m->dump), msp_dump_task_text(lead));
    if (st == MSP_OK) {
        st = msp_rows_flatten(&m->own, m->dump, NULL, NULL, err);
        if (st != MSP_OK)
            msp_error_prefix(err, st, "%s: ", place->path);
    }
    m->rows = &m->own;
    return st;
}

static char *
tensor_dir(const char *path)
{
    msp_str dir = msp_path_dir(path);
    char *copy = msp_alloc(dir.len + 1, 1), *joined = NULL;

    if (copy != NULL) {
        memcpy(copy, dir.p, dir.len);
        copy[dir.len] = '\0';
        joined = msp_path_join(copy, "dump_tensor_data");
    }
    msp_free(copy);
    return joined;
}

static msp_status
find_stage(msp_whole *w, msp_whole_member *m, msp_error *err)
{
    m->stage = msp_layout_stage_of(w->layout, w->side, m->rank);
    if (m->stage < w->layout->nstages[w->side] || w->layout->nstages[w->side] == 0)
        return MSP_OK;
    return msp_error_set(err, MSP_E_INVALID, "the layout's stages leave out rank %lld of the %s side",
                         (long long)m->rank, w->side == 0 ? "NPU" : "bench");
}

static msp_status
open_members(msp_whole *w, const msp_dump_place *places, const msp_dump *lead, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; i < w->nmembers && st == MSP_OK; i++) {
        msp_whole_member *m = &w->members[i];

        m->rank = places[i].rank == MSP_DUMP_NO_NUMBER ? 0 : places[i].rank;
        m->path = places[i].path;
        m->dir = tensor_dir(places[i].path);
        if (m->dir == NULL)
            return no_memory(err);
        st = find_stage(w, m, err);
        if (st == MSP_OK && i > 0)
            st = open_member(m, &places[i], lead, err);
    }
    return st;
}

/* The calls of a pipeline's stages get the names that they have in one run. rows: the first member's. */
static msp_status
name_calls(msp_whole *w, msp_rows *rows, msp_error *err)
{
    const msp_layout *l = w->layout;
    msp_stage_rows *ranks;
    bool ok;

    if (l->nstages[w->side] < 2 && l->micro_batches < 2)
        return MSP_OK;
    ranks = msp_alloc_zero(w->nmembers, sizeof(*ranks));
    for (size_t i = 0; ranks != NULL && i < w->nmembers; i++)
        ranks[i] = (msp_stage_rows){i > 0 ? &w->members[i].own : rows, w->members[i].stage};
    ok = ranks != NULL && msp_stages_rename(&w->arena, ranks, w->nmembers, l->nstages[w->side] + 1, l->micro_batches);
    msp_free(ranks);
    return ok ? MSP_OK : no_memory(err);
}

const msp_row *
msp_whole_row_of(const msp_whole_member *m, msp_str name)
{
    const msp_map_entry *e = msp_map_get(&m->names, name);

    return e != NULL ? &m->rows->rows[e->value] : NULL;
}

msp_whole_member *
msp_whole_member_of(msp_whole *w, int64_t rank)
{
    for (size_t i = 0; i < w->nmembers; i++)
        if (w->members[i].rank == rank)
            return &w->members[i];
    return NULL;
}

/* ---- one row ----------------------------------------------------------------------------------------------------- */

/* The parts of a row while it is put together. */
typedef struct gathering {
    const msp_row **rows;
    size_t n;
    int64_t shape[MSP_MAX_NDIM];
    int ndim;
} gathering;

static const char *
say(msp_whole *w, const char *format, ...)
{
    msp_buf text = {0};
    va_list args;
    char *copy;

    va_start(args, format);
    msp_buf_vprintf(&text, format, args);
    va_end(args);
    copy = text.failed ? NULL : msp_arena_text(&w->arena, text.p, text.len);
    msp_buf_release(&text);
    return copy != NULL ? copy : "out of memory";
}

static bool
add_part(msp_whole *w, gathering *g, uint32_t member, const msp_row *r)
{
    msp_str file = {r->file, r->file_len};

    if (!msp_vec_grow((void **)&w->parts, &w->cap_parts, w->nparts + 1, sizeof(*w->parts)))
        return false;
    w->parts[w->nparts++] = (msp_whole_part){.member = member, .file = r->file != NULL ? file : (msp_str){0}};
    g->rows[g->n++] = r;
    return true;
}

/* The parts in their order; a member that lacks one is a note, and what is asked for cannot be done. */
static bool
collect_parts(msp_whole *w, gathering *g, msp_recipe *how, size_t stage, msp_str name)
{
    size_t n = how->ranks != NULL ? how->nranks : w->nmembers;

    for (size_t i = 0; i < n; i++) {
        msp_whole_member *m = how->ranks != NULL ? msp_whole_member_of(w, how->ranks[i]) : &w->members[i];
        const msp_row *r = m != NULL ? msp_whole_row_of(m, name) : NULL;

        if (how->ranks == NULL && m->stage != stage)
            continue;
        if (r == NULL && how->how != LAYOUT_REPLICATE && how->note == NULL)
            how->note = say(w, "rank %lld has no part of it", (long long)(m != NULL ? m->rank : how->ranks[i]));
        if (r != NULL && !add_part(w, g, (uint32_t)(m - w->members), r))
            return false;
    }
    return true;
}

/* The how-many-th along an axis a part is, of those that the cuts along it make. */
static size_t
line_of(const msp_recipe *how, size_t part, size_t n, int axis)
{
    size_t line = 0, behind = n;

    for (int k = 0; k < how->ncuts; k++) {
        const size_t size = how->cuts[k].n > 0 ? how->cuts[k].n : n;

        behind /= size;
        if (how->cuts[k].axis == axis)
            line = line * size + part / behind % size;
    }
    return line;
}

/* Places along one axis: parts of one line have one size there, and a line begins where those before it end. */
static void
place_along(gathering *g, msp_recipe *how, int axis, const int64_t (*shapes)[MSP_MAX_NDIM],
            int64_t (*starts)[MSP_MAX_NDIM])
{
    const size_t n = g->n / how->sums;
    int64_t at = 0, size;
    size_t seen = 0;

    for (size_t line = 0; seen < g->n && how->note == NULL; line++) {
        size = -1;
        for (size_t i = 0; i < g->n && how->note == NULL; i++) {
            if (line_of(how, i % n, n, axis) != line)
                continue;
            seen++;
            if (size >= 0 && shapes[i][axis] != size)
                how->note = "the shapes of its parts do not go together";
            size = shapes[i][axis];
            starts[i][axis] = at;
        }
        if (size > 0 && __builtin_add_overflow(at, size, &at))
            how->note = "its shape is too large";
    }
    g->shape[axis] = at;
}

/* The shapes of all parts. */
static void
read_shapes(msp_whole *w, gathering *g, msp_recipe *how, int64_t (*shapes)[MSP_MAX_NDIM])
{
    msp_whole_part *parts = &w->parts[w->nparts - g->n];

    for (size_t i = 0; i < g->n && how->note == NULL; i++) {
        const msp_rows *t = w->members[parts[i].member].rows;
        int ndim;

        if (!msp_whole_shape(msp_row_shape(t, g->rows[i]), shapes[i], &ndim)) {
            how->note = "a part has no shape";
            return;
        }
        parts[i].numel = t->texts[g->rows[i]->shape].numel;
        g->ndim = i == 0 ? ndim : g->ndim;
        if (ndim != g->ndim ||
            !msp_str_eq(msp_row_dtype(t, g->rows[i]), msp_row_dtype(w->members[parts[0].member].rows, g->rows[0])))
            how->note = "its parts have different types or numbers of dimensions";
    }
}

static void
check_axes(msp_whole *w, const gathering *g, msp_recipe *how)
{
    for (int k = 0; k < how->ncuts && how->note == NULL; k++) {
        const int64_t axis = how->cuts[k].axis;

        how->cuts[k].axis = axis < 0 ? axis + g->ndim : axis;
        if (how->cuts[k].axis < 0 || how->cuts[k].axis >= g->ndim)
            how->note = say(w, "it has no axis %lld", (long long)axis);
    }
}

/* The whole's shape from those of the parts, and each part's place in it. False: no memory. */
static bool
join_shapes(msp_whole *w, gathering *g, msp_recipe *how)
{
    msp_whole_part *parts = &w->parts[w->nparts - g->n];
    int64_t(*shapes)[MSP_MAX_NDIM] = msp_alloc_zero(g->n, sizeof(*shapes));
    int64_t(*starts)[MSP_MAX_NDIM] = msp_alloc_zero(g->n, sizeof(*starts));
    bool ok = shapes != NULL && starts != NULL;

    if (ok)
        read_shapes(w, g, how, shapes);
    if (ok && how->note == NULL)
        check_axes(w, g, how);
    for (int d = 0; ok && d < g->ndim && how->note == NULL; d++)
        place_along(g, how, d, shapes, starts);
    for (size_t i = 0; ok && i < g->n && how->note == NULL; i++) {
        int64_t *start = msp_arena_alloc(&w->arena, (size_t)g->ndim + 1, sizeof(*start));

        ok = start != NULL;
        if (ok)
            memcpy(start, starts[i], (size_t)g->ndim * sizeof(*start));
        parts[i].start = start;
    }
    msp_free(shapes);
    msp_free(starts);
    return ok;
}

/* Replicas must be the same, by checksums where there are any. */
static void
check_replicas(msp_whole *w, const gathering *g, msp_recipe *how)
{
    const msp_whole_part *parts = &w->parts[w->nparts - g->n];

    for (size_t i = 1; i < g->n && how->note == NULL; i++) {
        const msp_row *a = g->rows[0], *b = g->rows[i];
        bool same = true;
        double x, y;

        if (a->md5.kind == VAL_TEXT && b->md5.kind == VAL_TEXT)
            same = a->md5.len == b->md5.len && memcmp(a->md5.as.p, b->md5.as.p, a->md5.len) == 0;
        for (int k = 0; k < MSP_NSTATS && same; k++)
            if (msp_val_number(&a->stats[k], &x) && msp_val_number(&b->stats[k], &y))
                same = x == y || (x != x && y != y);
        if (!same)
            how->note = say(w, "the replicas on ranks %lld and %lld are not equal",
                            (long long)w->members[parts[0].member].rank, (long long)w->members[parts[i].member].rank);
    }
}

static bool
intern_shape(msp_rows *t, msp_row *r, const gathering *g)
{
    msp_buf text = {0};
    int64_t numel = 1;
    bool ok;

    msp_buf_char(&text, '[');
    for (int i = 0; i < g->ndim; i++) {
        msp_buf_printf(&text, "%s%lld", i > 0 ? ", " : "", (long long)g->shape[i]);
        if (__builtin_mul_overflow(numel, g->shape[i], &numel))
            numel = -1;
    }
    msp_buf_char(&text, ']');
    ok = !text.failed && msp_rows_intern(t, msp_buf_view(&text), &r->shape);
    if (ok)
        t->texts[r->shape].numel = numel;
    msp_buf_release(&text);
    return ok;
}

/* The row keeps its place, and says of its tensor what the parts make of it. */
static bool
join_parts(msp_whole *w, msp_rows *t, msp_row *r, const gathering *g)
{
    msp_whole_row *whole = &w->rows[w->nrows - 1];

    if (!intern_shape(t, r, g) || !msp_whole_statistics(w, t, r, whole, g->rows, g->shape, g->ndim))
        return false;
    for (size_t i = 0; i < g->n; i++)
        if (g->rows[i]->file == NULL)
            r->file = NULL;
    return true;
}

/* One part alone stands for the row: the first replica, or the row itself where its parts do not go together. */
static bool
keep_one(msp_whole *w, msp_row *r, gathering *g, uint32_t member, const msp_recipe *how)
{
    size_t first = w->nparts - g->n;

    w->nparts = first;
    if (how->note == NULL && g->n > 0) {
        w->nparts = first + 1;
        memcpy(r->stats, g->rows[0]->stats, sizeof(r->stats));
        r->md5 = g->rows[0]->md5;
        r->file = g->rows[0]->file;
        r->file_len = g->rows[0]->file_len;
        return true;
    }
    g->n = 0;
    return add_part(w, g, member, r);
}

static bool
add_whole(msp_whole *w, msp_row *r, size_t first, const msp_recipe *how)
{
    if (!msp_vec_grow((void **)&w->rows, &w->cap_rows, w->nrows + 1, sizeof(*w->rows)))
        return false;
    w->rows[w->nrows++] = (msp_whole_row){how->how, how->factor, how->sums, first, w->nparts - first, how->note};
    r->whole = (uint32_t)w->nrows;
    return true;
}

/* A tensor's row of a member, as the layout or its record says. What nobody asks for stays as it is. */
static bool
put_together(msp_whole *w, msp_rows *t, msp_row *r, uint32_t member, msp_recipe *how)
{
    gathering g = {0};
    size_t first = w->nparts;
    bool ok;

    msp_recipe_find(how, w, &w->members[member], r);
    if (t->texts[r->dtype].dtype == MSP_DTYPE_NONE || how->how == LAYOUT_SKIP || (!how->asked && member == 0))
        return true;
    g.rows = msp_alloc((how->ranks != NULL ? how->nranks : w->nmembers) + 1, sizeof(*g.rows));
    ok = g.rows != NULL;
    if (ok && how->asked && how->note == NULL)
        ok = collect_parts(w, &g, how, w->members[member].stage, msp_row_name(r));
    if (ok && how->note == NULL && g.n > 0 && how->how != LAYOUT_REPLICATE)
        ok = join_shapes(w, &g, how);
    if (ok && how->how == LAYOUT_REPLICATE)
        check_replicas(w, &g, how);
    if (ok && (how->note != NULL || g.n == 0 || how->how == LAYOUT_REPLICATE)) {
        bool odd = how->note != NULL && how->how == LAYOUT_REPLICATE && g.n > 1; /* replicas that are not equal */
        const char *note = how->note;

        how->note = odd ? NULL : note;
        ok = keep_one(w, r, &g, member, how);
        how->note = note;
        how->how = LAYOUT_REPLICATE;
        ok = ok && add_whole(w, r, first, how);
    } else if (ok) {
        ok = add_whole(w, r, first, how) && join_parts(w, t, r, &g);
    }
    msp_free(g.rows);
    return ok;
}

/* ---- all rows ---------------------------------------------------------------------------------------------------- */

/* Rows that the layout skips are taken out; the calls stay. */
static void
drop_skipped(const msp_whole *w, msp_rows *t)
{
    size_t kept = 0;

    for (size_t a = 0; a < t->napis; a++) {
        size_t from = t->apis[a].first, end = from + t->apis[a].count;

        t->apis[a].first = kept;
        for (size_t i = from; i < end; i++) {
            const msp_layout_rule *rule = msp_layout_find(w->layout, w->side, msp_row_name(&t->rows[i]));

            if (rule == NULL || rule->how != LAYOUT_SKIP)
                t->rows[kept++] = t->rows[i];
        }
        t->apis[a].count = kept - t->apis[a].first;
    }
    t->count = kept;
}

/* A call that only this member has, such as those of its stage of a pipeline, behind all others. */
static bool
append_call(msp_whole *w, msp_rows *t, uint32_t member, const msp_row_api *api)
{
    const msp_rows *from = w->members[member].rows;
    msp_row_api *grown = msp_realloc(t->apis, t->napis + 1, sizeof(*t->apis));
    msp_row_api *to;

    if (grown == NULL)
        return false;
    t->apis = grown;
    to = &t->apis[t->napis++];
    *to = (msp_row_api){.name = api->name, .recorded = api->recorded, .first = t->count, .member = member};
    for (size_t i = api->first; i < api->first + api->count; i++) {
        const msp_row *r = &from->rows[i];
        msp_row *copy = msp_rows_new(t);

        if (copy == NULL)
            return false;
        *copy = *r;
        copy->api = (uint32_t)(t->napis - 1);
        copy->p2p = 0;
        if (!msp_rows_intern(t, from->texts[r->dtype].text, &copy->dtype) ||
            !msp_rows_intern(t, from->texts[r->shape].text, &copy->shape))
            return false;
        t->texts[copy->dtype].dtype = from->texts[r->dtype].dtype;
        t->texts[copy->shape].numel = from->texts[r->shape].numel;
        t->count++;
        to->count++;
    }
    return true;
}

/* The stages' calls stand in the order of one run. */
static bool
sort_calls(const msp_whole *w, msp_rows *t)
{
    size_t *stages = msp_alloc(t->napis, sizeof(*stages));
    bool ok = stages != NULL;

    for (size_t i = 0; ok && i < t->napis; i++)
        stages[i] = w->members[t->apis[i].member].stage;
    ok = ok && msp_stages_sort(t, stages);
    msp_free(stages);
    return ok;
}

static msp_status
append_others(msp_whole *w, msp_rows *t, msp_recipe *how, msp_error *err)
{
    msp_map seen = {0};
    bool ok = true;

    for (size_t i = 0; ok && i < t->napis; i++)
        ok = msp_map_put(&seen, t->apis[i].name, 0, NULL) != NULL;
    for (size_t m = 1; ok && m < w->nmembers; m++)
        for (size_t i = 0; ok && i < w->members[m].rows->napis; i++) {
            const msp_row_api *api = &w->members[m].rows->apis[i];
            size_t first = t->count;
            bool added = false;

            ok = msp_map_put(&seen, api->name, 0, &added) != NULL;
            if (!ok || !added)
                continue;
            ok = append_call(w, t, (uint32_t)m, api);
            for (size_t k = first; ok && k < t->count; k++) {
                ok = put_together(w, t, &t->rows[k], (uint32_t)m, how);
                t->rows[k].dtensor = 0; /* it counts those of its own dump */
            }
        }
    msp_map_release(&seen);
    return ok ? MSP_OK : no_memory(err);
}

/* The first member's rows as they were: those that are put together change under its name. */
static msp_status
keep_rows(msp_whole *w, msp_rows *before, const msp_rows *rows, msp_error *err)
{
    msp_status st = MSP_OK;

    *before = *rows;
    before->rows = msp_arena_alloc(&w->arena, rows->count + 1, sizeof(*before->rows));
    if (before->rows == NULL)
        return no_memory(err);
    memcpy(before->rows, rows->rows, rows->count * sizeof(*before->rows));
    w->members[0].rows = before;
    for (size_t i = 0; i < w->nmembers && st == MSP_OK; i++)
        st = name_rows(&w->members[i], err);
    return st;
}

static msp_status
join_members(msp_whole *w, msp_rows *rows, msp_error *err)
{
    size_t count = rows->count;
    msp_recipe *how = msp_alloc(2, sizeof(*how)); /* the other one is room for one mesh of several */
    msp_rows before;
    msp_status st = how == NULL ? no_memory(err) : keep_rows(w, &before, rows, err);

    for (size_t i = 0; i < count && st == MSP_OK; i++) {
        before.texts = rows->texts; /* they grow with new shapes */
        before.ntexts = rows->ntexts;
        if (!put_together(w, rows, &rows->rows[i], 0, how))
            st = no_memory(err);
    }
    if (st == MSP_OK)
        st = append_others(w, rows, how, err);
    msp_free(how);
    w->members[0].rows = NULL;
    return st;
}

msp_status
msp_whole_open(msp_whole **out, const msp_layout *layout, int side, const msp_dump_place *places, size_t n,
               const msp_dump *lead, msp_rows *rows, msp_error *err)
{
    msp_whole *w = *out = msp_alloc_zero(1, sizeof(*w));
    msp_status st;

    if (w == NULL)
        return no_memory(err);
    w->layout = layout;
    w->side = side;
    w->members = msp_alloc_zero(n, sizeof(*w->members));
    if (w->members == NULL)
        return no_memory(err);
    w->nmembers = n;
    st = open_members(w, places, lead, err);
    if (st == MSP_OK)
        st = name_calls(w, rows, err);
    if (st == MSP_OK)
        st = join_members(w, rows, err);
    if (st == MSP_OK)
        drop_skipped(w, rows);
    if (st == MSP_OK && layout->nstages[side] > 1 && !sort_calls(w, rows))
        st = no_memory(err);
    return st;
}

void
msp_whole_close(msp_whole *w)
{
    if (w == NULL)
        return;
    for (size_t i = 0; w->members != NULL && i < w->nmembers; i++) {
        msp_whole_member *m = &w->members[i];

        msp_map_release(&m->names);
        msp_rows_release(&m->own);
        msp_stack_close(m->stack);
        msp_dump_close(m->dump);
        msp_free(m->dir);
    }
    msp_free(w->members);
    msp_free(w->rows);
    msp_free(w->parts);
    msp_arena_release(&w->arena);
    msp_free(w);
}

/* ---- call stacks ------------------------------------------------------------------------------------------------- */

static msp_status
open_stacks(bool *any, msp_whole *w, msp_error *err)
{
    *any = false;
    for (size_t i = 0; i < w->nmembers; i++) {
        msp_whole_member *m = &w->members[i];
        char *path = msp_path_beside(m->path, "stack.json");
        msp_status st = path == NULL ? no_memory(err) : MSP_OK;

        if (st == MSP_OK && m->stack == NULL && msp_path_kind_of(path) == MSP_PATH_FILE)
            st = msp_stack_open(&m->stack, path, err);
        msp_free(path);
        if (st != MSP_OK)
            return st;
        *any = *any || m->stack != NULL;
    }
    return MSP_OK;
}

msp_status
msp_whole_stacks(msp_stack **out, msp_whole *w, const msp_rows *t, msp_error *err)
{
    bool any;
    msp_status st = open_stacks(&any, w, err);

    *out = NULL;
    if (st != MSP_OK || !any)
        return st;
    st = msp_stack_gather(out, t->napis, err);
    for (size_t i = 0; i < t->napis && st == MSP_OK; i++) {
        const msp_row_api *api = &t->apis[i];
        msp_str name = api->recorded.len > 0 ? api->recorded : api->name;

        if (!msp_stack_put(*out, api->name, w->members[api->member].stack, name))
            st = no_memory(err);
    }
    if (st == MSP_OK)
        return MSP_OK;
    msp_stack_close(*out);
    *out = NULL;
    return st;
}

msp_status
msp_whole_check(const msp_whole *w, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; w != NULL && i < w->nmembers && st == MSP_OK; i++) {
        if (w->members[i].dump != NULL)
            st = msp_dump_check(w->members[i].dump, err);
        if (st == MSP_OK)
            st = msp_stack_check(w->members[i].stack, err);
    }
    return st;
}

const char *
msp_whole_note(const msp_whole *w, const msp_row *r)
{
    return r->whole != 0 ? w->rows[r->whole - 1].note : NULL;
}
