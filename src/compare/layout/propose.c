/* propose.c - see propose.h. */
#include "compare/layout/propose_parts.h"

#include <math.h>
#include <stdlib.h>
#include "compare/layout/stages.h"
#include "core/alloc.h"
#include "core/vec.h"

static const double EQUAL = 1e-3; /* replicas of one run differ less */

msp_status
msp_propose_no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory while a layout is proposed");
}

msp_status
msp_propose_open(msp_propose_rows *d, const msp_dump_place *place, msp_error *err)
{
    msp_status st = msp_dump_open(&d->dump, place->path, err);

    d->rank = place->rank == MSP_DUMP_NO_NUMBER ? 0 : place->rank;
    if (st != MSP_OK)
        return st;
    st = msp_rows_flatten(&d->rows, d->dump, NULL, NULL, err);
    return st == MSP_OK ? MSP_OK : msp_error_prefix(err, st, "%s: ", place->path);
}

bool
msp_propose_name_rows(msp_propose_rows *d)
{
    msp_map_release(&d->names);
    for (size_t i = 0; i < d->rows.count; i++)
        if (msp_map_put(&d->names, msp_row_name(&d->rows.rows[i]), (int64_t)i, NULL) == NULL)
            return false;
    return true;
}

void
msp_propose_release(msp_proposer *p)
{
    for (size_t i = 0; p->all != NULL && i <= p->whole; i++) {
        msp_map_release(&p->all[i].names);
        msp_rows_release(&p->all[i].rows);
        msp_dump_close(p->all[i].dump);
    }
    msp_free(p->all);
    msp_free(p->items);
    msp_free(p->patterns);
    msp_map_release(&p->known);
    msp_map_release(&p->placed);
    msp_arena_release(&p->arena);
}

/* ---- one name ---------------------------------------------------------------------------------------------------- */

bool
msp_propose_is_within(double a, double b, double share)
{
    return a == b || fabs(a - b) <= share * fmax(fabs(a), fabs(b));
}

static bool
is_near(double a, double b)
{
    return msp_propose_is_within(a, b, MSP_PROPOSE_AGREES);
}

/* One statistic of all parts and of the whole; false: one is no number. */
static bool
numbers(const msp_row *const *parts, size_t n, const msp_row *whole, int stat, double *out, double *of_whole)
{
    for (size_t i = 0; i < n; i++)
        if (!msp_val_number(&parts[i]->stats[stat], &out[i]) || !isfinite(out[i]))
            return false;
    return msp_val_number(&whole->stats[stat], of_whole) && isfinite(*of_whole);
}

/* How the norms of the parts of a concatenation make the whole's: as they are, or as a mean. */
static void
judge_concat(msp_proposal *out, const msp_row *const *parts, size_t n, const msp_row *whole, double *v)
{
    double sum = 0, norm;

    if (!numbers(parts, n, whole, MSP_STAT_NORM, v, &norm))
        return;
    for (size_t i = 0; i < n; i++)
        sum += v[i] * v[i];
    out->is_mean = !is_near(sqrt(sum), norm) && is_near(sqrt(sum) / (double)n, norm);
    out->agrees = out->is_mean || is_near(sqrt(sum), norm);
    out->is_open = norm == 0;
}

/* Replicas of one run differ in little but their rounding. */
bool
msp_propose_are_equal(const msp_row *const *parts, size_t n, int stat)
{
    double first, v;

    if (!msp_val_number(&parts[0]->stats[stat], &first))
        return false;
    for (size_t i = 1; i < n; i++)
        if (!msp_val_number(&parts[i]->stats[stat], &v) || !msp_propose_is_within(v, first, EQUAL))
            return false;
    return true;
}

static bool
replica_agrees(const msp_row *const *parts, size_t n, const msp_row *whole, double *v)
{
    double norm;

    if (!numbers(parts, n, whole, MSP_STAT_NORM, v, &norm))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_near(v[i], norm))
            return false;
    return msp_propose_are_equal(parts, n, MSP_STAT_NORM) && msp_propose_are_equal(parts, n, MSP_STAT_MAX) &&
           msp_propose_are_equal(parts, n, MSP_STAT_MIN);
}

/* How far the mean of the whole is from the sum of the means by a factor, and no summand may be larger than all of them
 * together allow; infinity where that is too far. */
static double
distance_from_sum(const msp_row *const *parts, size_t n, const msp_row *whole, double factor, double *v)
{
    double sum = 0, largest = 0, mean, norm, norms = 0, off;

    if (!numbers(parts, n, whole, MSP_STAT_NORM, v, &norm))
        return INFINITY;
    for (size_t i = 0; i < n; i++)
        norms += factor * v[i];
    if (norm > norms * (1 + MSP_PROPOSE_AGREES) || !numbers(parts, n, whole, MSP_STAT_MEAN, v, &mean))
        return INFINITY;
    for (size_t i = 0; i < n; i++) {
        sum += factor * v[i];
        largest = fmax(largest, factor * fabs(v[i]));
    }
    off = fabs(sum - mean);
    return off <= MSP_PROPOSE_AGREES * fmax(fabs(mean), largest) ? off : INFINITY;
}

/* A sum, or a mean: the one that is nearer. */
static void
judge_sum(msp_proposal *out, const msp_row *const *parts, size_t n, const msp_row *whole, double *v)
{
    double sum = distance_from_sum(parts, n, whole, 1, v),
           mean = distance_from_sum(parts, n, whole, 1.0 / (double)n, v);

    if (isinf(sum) && isinf(mean))
        return;
    out->how = LAYOUT_SUM;
    out->is_mean = mean < sum;
    out->is_open = isfinite(mean) && isfinite(sum);
    out->agrees = true;
}

/* The one axis along which the sizes of the parts, which begin with number first, add up to the whole's; -1: there is
 * none. -2: all have the whole's shape. */
static int
axis_of(const msp_proposer *p, const msp_row *const *parts, size_t first, size_t nparts, const msp_row *whole)
{
    const msp_rows *t = &p->all[p->whole].rows;
    int64_t w[MSP_MAX_NDIM], s[MSP_MAX_NDIM], total = 0;
    int ndim, n, axis = -2;

    if (!msp_whole_shape(msp_row_shape(t, whole), w, &ndim))
        return -1;
    for (size_t i = 0; i < nparts; i++) {
        if (!msp_whole_shape(msp_row_shape(&p->all[first + i].rows, parts[i]), s, &n) || n != ndim)
            return -1;
        for (int d = 0; d < ndim; d++) {
            if (s[d] != w[d] && axis >= 0 && axis != d)
                return -1;
            if (s[d] != w[d])
                axis = d;
        }
    }
    for (size_t i = 0; axis >= 0 && i < nparts; i++) {
        (void)msp_whole_shape(msp_row_shape(&p->all[first + i].rows, parts[i]), s, &n);
        if (__builtin_add_overflow(total, s[axis], &total))
            return -1;
    }
    return axis >= 0 && total != w[axis] ? -1 : axis;
}

/* The parts of a row: those of one stage. */
typedef struct part_rows {
    const msp_row **rows;
    double *room;
    size_t first, n; /* of the parts in the msp_proposer */
} part_rows;

/* False: nothing can be said. */
static bool
judge(msp_proposal *out, const msp_proposer *p, const part_rows *parts, const msp_row *whole)
{
    int axis = axis_of(p, parts->rows, parts->first, parts->n, whole);

    if (axis == -1)
        return false;
    *out = (msp_proposal){.name = msp_row_name(whole), .how = LAYOUT_CONCAT, .axis = axis};
    if (axis >= 0) {
        judge_concat(out, parts->rows, parts->n, whole, parts->room);
        return true;
    }
    out->axis = 0;
    out->how = LAYOUT_REPLICATE;
    out->agrees = replica_agrees(parts->rows, parts->n, whole, parts->room);
    out->is_open = out->agrees && parts->room[0] == 0; /* norms */
    if (!out->agrees && parts->n > 1)
        judge_sum(out, parts->rows, parts->n, whole, parts->room);
    return true;
}

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

static bool
is_number(const char *from, const char *to)
{
    for (const char *c = from; c < to; c++)
        if (*c < '0' || *c > '9')
            return false;
    return to > from;
}

/* "Functional.linear.*.forward.output.0": the first part that is a number is the call's. */
static void
put_pattern(msp_buf *out, msp_str name)
{
    const char *end = name.p + name.len;
    bool done = false;

    msp_buf_clear(out);
    for (const char *at = name.p; at <= end;) {
        const char *dot = memchr(at, '.', (size_t)(end - at));
        const char *to = dot != NULL ? dot : end;

        if (!done && is_number(at, to)) {
            msp_buf_char(out, '*');
            done = true;
        } else {
            msp_buf_add(out, at, (size_t)(to - at));
        }
        if (dot == NULL)
            break;
        msp_buf_char(out, '.');
        at = dot + 1;
    }
}

bool
msp_propose_count(msp_proposer *p, msp_proposal *item, msp_buf *scratch)
{
    msp_map_entry *e;
    msp_pattern *t;
    char *copy;

    put_pattern(scratch, item->name);
    if (scratch->failed)
        return false;
    e = msp_map_get(&p->known, msp_buf_view(scratch));
    if (e == NULL) {
        copy = msp_arena_text(&p->arena, scratch->p, scratch->len);
        if (copy == NULL ||
            !msp_vec_grow((void **)&p->patterns, &p->cap_patterns, p->npatterns + 1, sizeof(*p->patterns)))
            return false;
        p->patterns[p->npatterns] = (msp_pattern){.text = {copy, scratch->len}, .how = item->how, .axis = item->axis};
        e = msp_map_put(&p->known, p->patterns[p->npatterns].text, (int64_t)p->npatterns, NULL);
        if (e == NULL)
            return false;
        p->npatterns++;
    }
    item->pattern = (uint32_t)e->value;
    t = &p->patterns[e->value];
    t->rows++;
    t->agreeing += item->agrees;
    t->is_mixed = t->is_mixed || (t->how == LAYOUT_CONCAT) != (item->how == LAYOUT_CONCAT) || t->axis != item->axis;
    if (item->agrees && (!item->is_open || t->agreeing == 1) && !t->is_decided) {
        t->how = item->how;
        t->is_mean = item->is_mean;
        t->is_decided = !item->is_open;
    } else if (item->agrees && !item->is_open) {
        t->is_mixed = t->is_mixed || t->how != item->how || t->is_mean != item->is_mean;
    }
    return true;
}

/* "[Shard(0), Replicate()] over ranks [0, 1, 2, 3]", as torch prints it. */
static void
put_placements(msp_buf *out, const msp_row_dtensor *d)
{
    static const char *const kinds[] = {"Replicate()", "Shard", "Partial()", "another placement"};

    for (int i = 0; i < d->ndim; i++) {
        msp_buf_printf(out, "%s%s", i == 0 ? "[" : ", ", kinds[d->placements[i].kind]);
        if (d->placements[i].kind == DTENSOR_SHARD)
            msp_buf_printf(out, "(%lld)", (long long)d->placements[i].dim);
    }
    msp_buf_text(out, "] over ranks ");
    for (size_t i = 0; i < d->nranks; i++)
        msp_buf_printf(out, "%s%lld", i == 0 ? "[" : ", ", (long long)d->ranks[i]);
    msp_buf_char(out, ']');
}

/* What a DTensor's record says stands in the yaml as a comment, once for names that are alike. */
static bool
note_dtensor(msp_proposer *p, const msp_rows *t, const msp_row *r, msp_buf *scratch)
{
    char *copy;

    put_pattern(scratch, msp_row_name(r));
    msp_buf_text(scratch, ": ");
    put_placements(scratch, &t->dtensors[r->dtensor - 1]);
    if (scratch->failed)
        return false;
    if (msp_map_get(&p->placed, msp_buf_view(scratch)) != NULL)
        return true;
    copy = msp_arena_text(&p->arena, scratch->p, scratch->len);
    return copy != NULL && msp_map_put(&p->placed, (msp_str){copy, scratch->len}, 0, NULL) != NULL;
}

bool
msp_propose_note_dtensors(msp_proposer *p, const msp_rows *t)
{
    msp_buf scratch = {0};
    bool ok = true;

    for (size_t i = 0; i < t->count && ok; i++)
        ok = t->rows[i].dtensor == 0 || note_dtensor(p, t, &t->rows[i], &scratch);
    msp_buf_release(&scratch);
    return ok;
}

/* The rows of this name in the first stage all of whose ranks have it. */
static bool
find_parts(const msp_proposer *p, part_rows *parts, msp_str name)
{
    parts->n = p->n / p->nstages;
    for (parts->first = 0; parts->first < p->n; parts->first += parts->n) {
        size_t found = 0;

        for (; found < parts->n; found++) {
            const msp_propose_rows *d = &p->all[parts->first + found];
            const msp_map_entry *e = msp_map_get(&d->names, name);

            if (e == NULL)
                break;
            parts->rows[found] = &d->rows.rows[e->value];
        }
        if (found == parts->n)
            return true;
    }
    return false;
}

/* Where every rank is a stage of its own there is nothing to be put together. */
static bool
look_at_row(msp_proposer *p, part_rows *parts, const msp_row *whole, msp_buf *scratch)
{
    msp_proposal item;

    if (!find_parts(p, parts, msp_row_name(whole)))
        return true;
    p->seen++;
    if ((parts->rows[0]->dtensor != 0 && !p->are_meshes) || !judge(&item, p, parts, whole))
        return true;
    p->fitting += item.agrees;
    if (parts->n == 1)
        return true;
    if (!msp_vec_grow((void **)&p->items, &p->cap, p->count + 1, sizeof(*p->items)))
        return false;
    p->items[p->count++] = item;
    return msp_propose_count(p, &p->items[p->count - 1], scratch);
}

static bool
look_at_rows(msp_proposer *p)
{
    const msp_rows *whole = &p->all[p->whole].rows;
    part_rows parts = {.rows = msp_alloc(p->n, sizeof(*parts.rows)), .room = msp_alloc(p->n, sizeof(*parts.room))};
    msp_buf scratch = {0};
    bool ok = parts.rows != NULL && parts.room != NULL;

    p->seen = p->fitting = p->count = p->npatterns = 0;
    msp_map_release(&p->known);
    for (size_t i = 0; i < p->n && ok; i++)
        ok = msp_propose_name_rows(&p->all[i]);
    for (size_t i = 0; i < whole->count && ok; i++)
        if (whole->texts[whole->rows[i].dtype].dtype != MSP_DTYPE_NONE)
            ok = look_at_row(p, &parts, &whole->rows[i], &scratch);
    msp_buf_release(&scratch);
    msp_free(parts.room);
    msp_free(parts.rows);
    return ok;
}

/* ---- stages ------------------------------------------------------------------------------------------------------ */

/* The rows and calls of the parts as they were read, before their names go on counting. */
typedef struct recorded {
    msp_row *rows;
    msp_row_api *apis;
} recorded;

static bool
keep_recorded(recorded *r, const msp_rows *t)
{
    r->rows = msp_alloc(t->count, sizeof(*r->rows));
    r->apis = msp_alloc(t->napis, sizeof(*r->apis));
    if (r->rows == NULL || r->apis == NULL)
        return false;
    memcpy(r->rows, t->rows, t->count * sizeof(*r->rows));
    memcpy(r->apis, t->apis, t->napis * sizeof(*r->apis));
    return true;
}

static bool
try_micro_batches(msp_proposer *p, const recorded *before, msp_stage_rows *ranks, int64_t micro_batches)
{
    for (size_t i = 0; i < p->n; i++) {
        msp_rows *t = &p->all[i].rows;

        memcpy(t->rows, before[i].rows, t->count * sizeof(*t->rows));
        memcpy(t->apis, before[i].apis, t->napis * sizeof(*t->apis));
        ranks[i] = (msp_stage_rows){t, i / (p->n / p->nstages)};
    }
    p->micro_batches = micro_batches;
    return msp_stages_rename(&p->arena, ranks, p->n, p->nstages, micro_batches) && look_at_rows(p);
}

/* Into how many micro-batches were the calls of the stages divided? That number with which most rows agree. */
static bool
look_at_stages(msp_proposer *p)
{
    enum { MOST = 64 };
    recorded *before = msp_alloc_zero(p->n, sizeof(*before));
    msp_stage_rows *ranks = msp_alloc_zero(p->n, sizeof(*ranks));
    int64_t best = 1;
    size_t most = 0;
    bool ok = before != NULL && ranks != NULL, all = false;

    for (size_t i = 0; i < p->n && ok; i++)
        ok = keep_recorded(&before[i], &p->all[i].rows);
    for (int64_t m = 1; m <= MOST && ok && !all; m++) {
        ok = try_micro_batches(p, before, ranks, m);
        best = p->fitting > most ? m : best;
        most = p->fitting > most ? p->fitting : most;
        all = ok && p->fitting == p->seen && p->seen > 0;
    }
    if (ok && p->micro_batches != best)
        ok = try_micro_batches(p, before, ranks, best);
    for (size_t i = 0; before != NULL && i < p->n; i++) {
        msp_free(before[i].rows);
        msp_free(before[i].apis);
    }
    msp_free(before);
    msp_free(ranks);
    return ok;
}

/* ---- meshes ------------------------------------------------------------------------------------------------------ */

/* The ranks of DTensors' meshes, where they are several apart from each other: data parallel replicas with shards each.
 */
typedef struct meshes {
    size_t *of; /* by number of the part: the first part of its mesh */
    size_t n;   /* meshes */
    msp_whole **wholes;
    msp_layout layout; /* without a rule */
} meshes;

static size_t
part_of_rank(const msp_proposer *p, int64_t rank)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->all[i].rank == rank)
            return i;
    return p->n;
}

/* Meshes that share a rank are one. */
static bool
find_meshes(meshes *m, const msp_proposer *p)
{
    m->of = msp_alloc(p->n, sizeof(*m->of));
    m->wholes = msp_alloc_zero(p->n, sizeof(*m->wholes));
    if (m->of == NULL || m->wholes == NULL)
        return false;
    for (size_t i = 0; i < p->n; i++)
        m->of[i] = i;
    for (size_t i = 0; i < p->n; i++)
        for (size_t d = 0; d < p->all[i].rows.ndtensors; d++)
            for (size_t r = 0; r < p->all[i].rows.dtensors[d].nranks; r++) {
                size_t k = part_of_rank(p, p->all[i].rows.dtensors[d].ranks[r]);
                size_t first = k < p->n && m->of[k] < m->of[i] ? m->of[k] : m->of[i];
                size_t last = k < p->n && m->of[k] > m->of[i] ? m->of[k] : m->of[i];

                for (size_t j = 0; j < p->n; j++)
                    m->of[j] = m->of[j] == last ? first : m->of[j];
            }
    for (size_t i = 0; i < p->n; i++)
        m->n += m->of[i] == i;
    return true;
}

/* The parts become what the ranks of each mesh put together, as their records say. */
static msp_status
join_meshes(msp_proposer *p, meshes *m, int side, const msp_dump_place *parts, msp_error *err)
{
    msp_dump_place *places = msp_alloc(p->n, sizeof(*places));
    msp_status st = places == NULL ? msp_propose_no_memory(err) : MSP_OK;
    size_t kept = 0;

    for (size_t i = 0; i < p->n && st == MSP_OK; i++) {
        size_t n = 0;

        for (size_t k = i; k < p->n && m->of[i] == i; k++)
            if (m->of[k] == i)
                places[n++] = parts[k];
        if (n > 0)
            st = msp_whole_open(&m->wholes[i], &m->layout, side, places, n, p->all[i].dump, &p->all[i].rows, err);
    }
    for (size_t i = 0; i < p->n && st == MSP_OK; i++)
        if (m->of[i] == i) {
            msp_propose_rows swap = p->all[kept];

            p->all[kept++] = p->all[i];
            p->all[i] = swap;
        }
    if (st == MSP_OK) {
        p->are_meshes = true;
        p->whole = p->n;
        p->n = kept;
    }
    msp_free(places);
    return st;
}

static void
release_meshes(meshes *m, size_t n)
{
    for (size_t i = 0; m->wholes != NULL && i < n; i++)
        msp_whole_close(m->wholes[i]);
    msp_free(m->wholes);
    msp_free(m->of);
    msp_layout_release(&m->layout);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static msp_status
look_at_all(msp_proposer *p, meshes *m, int side, const msp_dump_place *parts, msp_error *err)
{
    const size_t n = p->n;
    msp_status st = MSP_OK;
    bool ok = true;

    for (size_t i = 0; i < n && ok; i++)
        ok = msp_propose_note_dtensors(p, &p->all[i].rows);
    if (ok && p->nstages > 1)
        return look_at_stages(p) ? MSP_OK : msp_propose_no_memory(err);
    ok = ok && find_meshes(m, p);
    if (ok && m->n > 1 && m->n < n)
        st = join_meshes(p, m, side, parts, err);
    if (st == MSP_OK && (!ok || !look_at_rows(p)))
        st = msp_propose_no_memory(err);
    return st;
}

static msp_status
guess_stages(msp_proposer *p, msp_error *err)
{
    msp_rows **ranks = msp_alloc_zero(p->n, sizeof(*ranks));
    msp_status st = ranks == NULL ? msp_propose_no_memory(err) : MSP_OK;

    for (size_t i = 0; i < p->n && st == MSP_OK; i++)
        ranks[i] = &p->all[i].rows;
    if (st == MSP_OK)
        st = msp_stages_guess(&p->nstages, &p->all[p->whole].rows, ranks, p->n, err);
    p->nstages = p->nstages > 0 ? p->nstages : 1;
    msp_free(ranks);
    return st;
}

/* Several parts of which a whole is there. */
static msp_status
propose_parts(msp_buf *out, int side, const msp_dump_place *parts, size_t n, const msp_dump_place *whole,
              msp_error *err)
{
    msp_proposer p = {.all = msp_alloc_zero(n + 1, sizeof(*p.all)), .n = n, .whole = n, .micro_batches = 1};
    meshes m = {0};
    msp_status st = p.all == NULL ? msp_propose_no_memory(err) : MSP_OK;

    for (size_t i = 0; i <= n && st == MSP_OK; i++)
        st = msp_propose_open(&p.all[i], i < n ? &parts[i] : whole, err);
    if (st == MSP_OK)
        st = guess_stages(&p, err);
    if (st == MSP_OK)
        st = look_at_all(&p, &m, side, parts, err);
    if (st == MSP_OK) {
        msp_buf_printf(out, "# Proposed from the shapes and statistics of %zu ranks against one.\n", n);
        msp_propose_write_dtensors(out, &p);
        if (p.nstages > 1)
            msp_propose_write_stages(out, &p, side);
        msp_buf_text(out, "parts:\n");
        if (msp_propose_write_skipped(out, &p) + msp_propose_write_rules(out, &p, side) == 0)
            msp_buf_text(out, "  []\n");
        st = msp_buf_status(out, err);
    }
    if (st == MSP_OK && p.count == 0 && p.placed.count == 0 && (p.nstages == 1 || p.fitting == 0))
        st =
            msp_error_set(err, MSP_E_NOT_FOUND,
                          "no layout can be proposed: no tensor of %s has parts of the same name on all %zu ranks that "
                          "make its shape; write a yaml",
                          whole->path, n);
    release_meshes(&m, n);
    msp_propose_release(&p);
    return st;
}

msp_status
msp_layout_propose(msp_buf *out, const msp_dump_place *const places[2], const size_t n[2], msp_error *err)
{
    if (n[0] > 1 && n[1] > 1)
        return msp_propose_both(out, places, n, err);
    return n[0] > 1 ? propose_parts(out, 0, places[0], n[0], places[1], err)
                    : propose_parts(out, 1, places[1], n[1], places[0], err);
}
