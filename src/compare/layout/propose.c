/* propose.c - see propose.h. */
#include "compare/layout/propose.h"

#include <math.h>
#include <stdlib.h>
#include "compare/layout/whole_parts.h"
#include "core/alloc.h"
#include "core/vec.h"

/* How far statistics may be apart to agree: two runs differ by their own noise, and what is wrong is for the
 * comparison. */
static const double AGREES = 0.1;

typedef struct dump_rows {
    msp_dump *dump;
    msp_rows rows;
    msp_map names; /* to the first row that has it */
} dump_rows;

/* What the shapes and statistics of one name say. */
typedef struct proposal {
    msp_str name;
    uint32_t pattern; /* index */
    msp_layout_how how;
    int axis;
    bool agrees;
} proposal;

/* Names that are alike but for the number of the call. */
typedef struct pattern {
    msp_str text;
    size_t rows, agreeing;
    msp_layout_how how;
    int axis;
    bool is_mixed, is_written;
} pattern;

typedef struct proposer {
    dump_rows *all; /* the parts, then the whole */
    size_t n;       /* parts */
    proposal *items;
    size_t count, cap;
    pattern *patterns;
    size_t npatterns, cap_patterns;
    msp_map known;
    msp_arena arena;
} proposer;

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory while a layout is proposed");
}

static msp_status
open_rows(dump_rows *d, const char *path, msp_error *err)
{
    msp_status st = msp_dump_open(&d->dump, path, err);

    if (st != MSP_OK)
        return st;
    st = msp_rows_flatten(&d->rows, d->dump, NULL, NULL, err);
    if (st != MSP_OK)
        return msp_error_prefix(err, st, "%s: ", path);
    for (size_t i = 0; i < d->rows.count; i++)
        if (msp_map_put(&d->names, msp_row_name(&d->rows.rows[i]), (int64_t)i, NULL) == NULL)
            return no_memory(err);
    return MSP_OK;
}

/* ---- one name ---------------------------------------------------------------------------------------------------- */

static bool
is_near(double a, double b)
{
    return a == b || fabs(a - b) <= AGREES * fmax(fabs(a), fabs(b));
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

static bool
concat_agrees(const msp_row *const *parts, size_t n, const msp_row *whole, double *v)
{
    double sum = 0, norm;

    if (!numbers(parts, n, whole, MSP_STAT_NORM, v, &norm))
        return false;
    for (size_t i = 0; i < n; i++)
        sum += v[i] * v[i];
    return is_near(sqrt(sum), norm);
}

static bool
replica_agrees(const msp_row *const *parts, size_t n, const msp_row *whole, double *v)
{
    double norm;

    if (!numbers(parts, n, whole, MSP_STAT_NORM, v, &norm))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_near(v[i], norm) || !is_near(v[i], v[0]))
            return false;
    return true;
}

/* The mean of a sum is the sum of the means; and no summand may be larger than all of them together allow. */
static bool
sum_agrees(const msp_row *const *parts, size_t n, const msp_row *whole, double *v)
{
    double sum = 0, largest = 0, mean, norm, norms = 0;

    if (!numbers(parts, n, whole, MSP_STAT_NORM, v, &norm))
        return false;
    for (size_t i = 0; i < n; i++)
        norms += v[i];
    if (norm > norms * (1 + AGREES) || !numbers(parts, n, whole, MSP_STAT_MEAN, v, &mean))
        return false;
    for (size_t i = 0; i < n; i++) {
        sum += v[i];
        largest = fmax(largest, fabs(v[i]));
    }
    return fabs(sum - mean) <= AGREES * fmax(fabs(mean), largest);
}

/* The one axis along which the parts' sizes add up to the whole's; -1: there is none. -2: all have the whole's shape.
 */
static int
axis_of(const proposer *p, const msp_row *const *parts, const msp_row *whole)
{
    const msp_rows *t = &p->all[p->n].rows;
    int64_t w[MSP_MAX_NDIM], s[MSP_MAX_NDIM], total = 0;
    int ndim, n, axis = -2;

    if (!msp_whole_shape(msp_row_shape(t, whole), w, &ndim))
        return -1;
    for (size_t i = 0; i < p->n; i++) {
        if (!msp_whole_shape(msp_row_shape(&p->all[i].rows, parts[i]), s, &n) || n != ndim)
            return -1;
        for (int d = 0; d < ndim; d++) {
            if (s[d] != w[d] && axis >= 0 && axis != d)
                return -1;
            if (s[d] != w[d])
                axis = d;
        }
    }
    for (size_t i = 0; axis >= 0 && i < p->n; i++) {
        (void)msp_whole_shape(msp_row_shape(&p->all[i].rows, parts[i]), s, &n);
        if (__builtin_add_overflow(total, s[axis], &total))
            return -1;
    }
    return axis >= 0 && total != w[axis] ? -1 : axis;
}

/* False: nothing can be said. */
static bool
judge(proposal *out, const proposer *p, const msp_row *const *parts, const msp_row *whole, double *room)
{
    int axis = axis_of(p, parts, whole);

    if (axis == -1)
        return false;
    *out = (proposal){.name = msp_row_name(whole), .how = LAYOUT_CONCAT, .axis = axis};
    if (axis >= 0) {
        out->agrees = concat_agrees(parts, p->n, whole, room);
        return true;
    }
    out->axis = 0;
    out->how = LAYOUT_REPLICATE;
    out->agrees = replica_agrees(parts, p->n, whole, room);
    if (!out->agrees && sum_agrees(parts, p->n, whole, room)) {
        out->how = LAYOUT_SUM;
        out->agrees = true;
    }
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

static bool
count_pattern(proposer *p, proposal *item, msp_buf *scratch)
{
    msp_map_entry *e;
    pattern *t;
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
        p->patterns[p->npatterns] = (pattern){.text = {copy, scratch->len}, .how = item->how, .axis = item->axis};
        e = msp_map_put(&p->known, p->patterns[p->npatterns].text, (int64_t)p->npatterns, NULL);
        if (e == NULL)
            return false;
        p->npatterns++;
    }
    item->pattern = (uint32_t)e->value;
    t = &p->patterns[e->value];
    t->rows++;
    t->agreeing += item->agrees;
    t->is_mixed = t->is_mixed || t->how != item->how || t->axis != item->axis;
    return true;
}

static bool
look_at_rows(proposer *p)
{
    const msp_rows *whole = &p->all[p->n].rows;
    const msp_row **parts = msp_alloc(p->n, sizeof(*parts));
    double *room = msp_alloc(p->n, sizeof(*room));
    msp_buf scratch = {0};
    bool ok = parts != NULL && room != NULL;

    for (size_t i = 0; i < whole->count && ok; i++) {
        const msp_row *w = &whole->rows[i];
        size_t found = 0;
        proposal item;

        if (whole->texts[w->dtype].dtype == MSP_DTYPE_NONE)
            continue;
        for (; found < p->n; found++) {
            const msp_map_entry *e = msp_map_get(&p->all[found].names, msp_row_name(w));

            if (e == NULL)
                break;
            parts[found] = &p->all[found].rows.rows[e->value];
        }
        if (found < p->n || parts[0]->dtensor != 0 || !judge(&item, p, parts, w, room))
            continue;
        ok = msp_vec_grow((void **)&p->items, &p->cap, p->count + 1, sizeof(*p->items));
        if (ok) {
            p->items[p->count++] = item;
            ok = count_pattern(p, &p->items[p->count - 1], &scratch);
        }
    }
    msp_buf_release(&scratch);
    msp_free(room);
    msp_free(parts);
    return ok;
}

/* ---- the yaml ---------------------------------------------------------------------------------------------------- */

/* Between double quotes, as YAML and JSON have it. */
static void
put_name(msp_buf *out, msp_str name)
{
    msp_json_writer w;

    msp_json_writer_init(&w, out, -1);
    msp_json_write_string(&w, name);
}

static void
put_rule(msp_buf *out, int side, msp_str name, msp_layout_how how, int axis)
{
    msp_buf_text(out, "  - {name: ");
    put_name(out, name);
    msp_buf_printf(out, ", how: %s", msp_layout_how_text(how));
    if (how == LAYOUT_CONCAT)
        msp_buf_printf(out, ", axis: %d", axis);
    if (side == 1)
        msp_buf_text(out, ", side: bench");
    msp_buf_text(out, "}\n");
}

static size_t
write_rules(msp_buf *out, proposer *p, int side)
{
    size_t written = 0;

    for (size_t i = 0; i < p->count; i++) {
        const proposal *item = &p->items[i];
        pattern *t = &p->patterns[item->pattern];

        if (t->is_mixed) {
            /* a row alone is believed when its numbers are, and by its shape where only one reading is left */
            if (item->agrees || item->how == LAYOUT_CONCAT) {
                put_rule(out, side, item->name, item->how, item->axis);
                written++;
            }
        } else if (!t->is_written) {
            bool believed = 2 * t->agreeing >= t->rows;

            t->is_written = true;
            written += believed;
            if (!believed)
                msp_buf_printf(out, "  # the numbers of %zu of %zu rows do not agree with it:\n  #",
                               t->rows - t->agreeing, t->rows);
            put_rule(out, side, t->text, t->how, t->axis);
        }
    }
    return written;
}

static void
release(proposer *p)
{
    for (size_t i = 0; p->all != NULL && i <= p->n; i++) {
        msp_map_release(&p->all[i].names);
        msp_rows_release(&p->all[i].rows);
        msp_dump_close(p->all[i].dump);
    }
    msp_free(p->all);
    msp_free(p->items);
    msp_free(p->patterns);
    msp_map_release(&p->known);
    msp_arena_release(&p->arena);
}

msp_status
msp_layout_propose(msp_buf *out, int side, const msp_dump_place *parts, size_t n, const msp_dump_place *whole,
                   msp_error *err)
{
    proposer p = {.all = msp_alloc_zero(n + 1, sizeof(*p.all)), .n = n};
    msp_status st = p.all == NULL ? no_memory(err) : MSP_OK;
    size_t written = 0;

    for (size_t i = 0; i <= n && st == MSP_OK; i++)
        st = open_rows(&p.all[i], i < n ? parts[i].path : whole->path, err);
    if (st == MSP_OK && !look_at_rows(&p))
        st = no_memory(err);
    if (st == MSP_OK) {
        msp_buf_printf(out, "# Proposed from the shapes and statistics of %zu ranks against one.\nparts:\n", n);
        written = write_rules(out, &p, side);
        if (written == 0)
            msp_buf_text(out, "  []\n");
        st = msp_buf_status(out, err);
    }
    if (st == MSP_OK && p.count == 0)
        st =
            msp_error_set(err, MSP_E_NOT_FOUND,
                          "no layout can be proposed: no tensor of %s has parts of the same name on all %zu ranks that "
                          "make its shape; write a yaml",
                          whole->path, n);
    release(&p);
    return st;
}
