/*
 * start.c - what the runs do not begin with alike. A tensor that a forward call takes and that no earlier call has
 * given comes from outside: a weight, a statistic of a norm, data. Runs that trained apart for a step differ a little
 * in all of them; one that stands out, or all that are far apart, is a verdict of its own: no call made that
 * difference.
 */
#include <math.h>
#include <stdlib.h>
#include "compare/verdict/verdict.h"
#include "core/alloc.h"
#include "core/arena.h"

/* How far one must stand out of what three quarters of the others differ by, and of what its likes do. */
#define STANDS_OUT 16.0
#define UNLIKE     64.0
/* Runs that trained apart for a step: a thousandth is little, without likes a hundredth. */
#define APART       1e-3
#define APART_ALONE 1e-2
/* So far apart, relative to its norm, is half of everything: other weights altogether. */
#define FAR_APART 0.02

/* A result that differs between the runs. */
typedef struct given {
    uint32_t row;
    double diff;
} given;

typedef struct finder {
    const msp_evidence_source *src;
    msp_map given; /* values that calls have given or taken already */
    msp_map made;  /* values that the bench's calls have given, and the rows of ours beside them */
    msp_arena keys;
    msp_buf scratch;
    msp_start *items;
    double *least; /* for each: a difference below this is none */
    size_t count;
    uint32_t *rows;         /* for each: where it stands */
    given *given_differing; /* in the order of the run */
    size_t ngiven;
    bool differs; /* some row before this one differs */
    double unit;  /* the largest roundoff of what is computed with */
    bool failed;
} finder;

/* The entry of a value with these statistics; NULL: there is none. Views have the statistics of what they show. */
static const msp_map_entry *
find_value(finder *f, const msp_map *values, const msp_row *row)
{
    f->scratch.len = 0;
    if (!msp_verdict_value_key(&f->scratch, row) || f->scratch.failed)
        return NULL;
    return msp_map_get(values, msp_buf_view(&f->scratch));
}

/* Puts a value that find_value() has not found; without statistics it is none. */
static void
put_value(finder *f, msp_map *values, int64_t at)
{
    char *key = f->scratch.len > 0 ? msp_arena_text(&f->keys, f->scratch.p, f->scratch.len) : NULL;

    if (f->scratch.len > 0 && (key == NULL || msp_map_put(values, (msp_str){key, f->scratch.len}, at, NULL) == NULL))
        f->failed = true;
}

/* Whether a value with these statistics is known; it is from now on. */
static bool
is_known(finder *f, const msp_row *row)
{
    if (find_value(f, &f->given, row) != NULL)
        return true;
    put_value(f, &f->given, 0);
    return f->scratch.len == 0;
}

/* All elements are one number: zeros tell nothing of where they come from. */
static bool
is_constant(const msp_row *row)
{
    double high, low;

    return msp_val_number(&row->stats[MSP_STAT_MAX], &high) && msp_val_number(&row->stats[MSP_STAT_MIN], &low) &&
           high == low;
}

/*
 * The row of the result that the bench's call takes in this place, while all that came before is equal: somebody has
 * changed it since. MATCH_NONE: no recorded call has given it.
 */
static uint32_t
changed_result(finder *f, const msp_row *taken, const msp_row *bench_taken)
{
    const msp_rows *npu = f->src->npu;
    const msp_map_entry *e = f->differs || is_constant(bench_taken) ? NULL : find_value(f, &f->made, bench_taken);

    if (e == NULL || npu->texts[npu->rows[e->value].shape].numel != npu->texts[taken->shape].numel)
        return MATCH_NONE;
    return (uint32_t)e->value;
}

static msp_str
place_of(const msp_rows *rows, const msp_row *row)
{
    msp_str name = msp_row_name(row), api = rows->apis[row->api].name;

    return name.len > api.len + 1 ? (msp_str){name.p + api.len + 1, name.len - api.len - 1} : name;
}

/*
 * Weights and a norm's statistics stand behind what a call works on. What stands first may be a view that nobody
 * recorded of something that has long been computed: that counts while nothing at all has differed.
 */
static bool
is_outside(const finder *f, const msp_row *r)
{
    bool first = msp_str_ends(msp_row_name(r), MSP_STR(".input.0"));

    return r->state == STATE_PARAMETERS || !f->differs ||
           (!first && (r->requires_grad == FLAG_TRUE ||
                       msp_str_find(f->src->npu->apis[r->api].name, MSP_STR("batch_norm")) != NULL));
}

static void
take_input(finder *f, size_t row, uint32_t call)
{
    const msp_rows *npu = f->src->npu;
    const msp_row *r = &npu->rows[row];
    double u = msp_local_roundoff(npu->texts[r->dtype].dtype), diff = msp_evidence_difference(f->src, row);
    uint32_t partner = f->src->match->bench[row], changed;
    bool weights = r->state == STATE_PARAMETERS || r->requires_grad == FLAG_TRUE;
    /* what a call works on and a gradient goes through was computed: by calls that were not recorded */
    bool computed = weights && r->state != STATE_PARAMETERS && msp_str_ends(msp_row_name(r), MSP_STR(".input.0"));

    if (partner == MATCH_NONE || u == 0 || isnan(diff) || npu->texts[r->shape].numel < 1 || is_known(f, r) ||
        !is_outside(f, r))
        return;
    changed = changed_result(f, r, &f->src->bench->rows[partner]);
    f->items[f->count] = (msp_start){.call = call,
                                     .api = npu->apis[r->api].name,
                                     .bench = f->src->bench->apis[f->src->bench->rows[partner].api].name,
                                     .at = place_of(npu, r),
                                     .diff = diff,
                                     .weights = weights && !computed};
    if (changed != MATCH_NONE)
        f->items[f->count].changed = msp_row_name(&npu->rows[changed]);
    f->rows[f->count] = (uint32_t)row;
    f->least[f->count++] = fmax(computed && changed == MATCH_NONE ? APART_ALONE : 0, u < 0x1p-20 ? 64 * u : 2 * u);
}

/* Weights of float32 that began at zero are what gradients have made of them: apart by what these are rounded by. */
static void
widen_limits(finder *f)
{
    for (size_t i = 0; i < f->count; i++)
        f->least[i] = fmax(f->least[i], 2 * f->unit);
}

static void
note_result(finder *f, size_t row)
{
    const msp_rows *npu = f->src->npu;
    double unit = msp_local_roundoff(npu->texts[npu->rows[row].dtype].dtype);
    double diff = msp_evidence_difference(f->src, row);
    uint32_t partner = f->src->match->bench[row];

    (void)is_known(f, &npu->rows[row]);
    if (partner != MATCH_NONE && find_value(f, &f->made, &f->src->bench->rows[partner]) == NULL)
        put_value(f, &f->made, (int64_t)row);
    f->unit = fmax(f->unit, unit);
    if (diff > 0)
        f->given_differing[f->ngiven++] = (given){(uint32_t)row, diff};
}

static void
walk_calls(finder *f)
{
    const msp_rows *npu = f->src->npu;

    for (size_t a = 0; a < npu->napis && !f->failed; a++) {
        const msp_row_api *api = &npu->apis[a];

        if (msp_str_find(api->name, MSP_STR(".forward")) == NULL)
            continue;
        for (size_t i = api->first; i < api->first + api->count; i++) {
            if (npu->rows[i].state == STATE_INPUT || npu->rows[i].state == STATE_PARAMETERS)
                take_input(f, i, (uint32_t)a);
            else
                note_result(f, i);
            f->differs = f->differs || msp_evidence_difference(f->src, i) > 0;
        }
    }
}

static int
compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The same place of the same function: all biases of layer norms begin near zero, and differ more than weights do. */
static bool
is_alike(const msp_start *a, const msp_start *b)
{
    return msp_str_eq(a->at, b->at) && msp_str_eq(msp_verdict_operation(a->api), msp_verdict_operation(b->api));
}

/*
 * What one must exceed beside its likes. Where most is equal on both sides they say all; where the runs trained apart
 * all of them differ, and gradients that cancel make some differ more.
 */
static double
limit_of_likes(const finder *f, const msp_start *s, double common, double *room)
{
    size_t n = 0;

    for (size_t i = 0; i < f->count; i++)
        if (&f->items[i] != s && is_alike(&f->items[i], s))
            room[n++] = f->items[i].diff;
    qsort(room, n, sizeof(*room), compare_doubles);
    if (n == 0)
        return common > 0 ? fmax(APART_ALONE, UNLIKE * common) : 0;
    return fmax(common > 0 ? APART : 0, UNLIKE * room[n / 2]);
}

/* Nothing in its statistics speaks against it that part is one of whole. */
static bool
may_be_part(const msp_rows *npu, const msp_row *part, const msp_row *whole)
{
    double p[MSP_NSTATS], w[MSP_NSTATS];

    if (part->dtype != whole->dtype || npu->texts[part->shape].numel > npu->texts[whole->shape].numel)
        return false;
    for (int i = 0; i < MSP_NSTATS; i++)
        if (!msp_val_number(&part->stats[i], &p[i]) || !msp_val_number(&whole->stats[i], &w[i]))
            return false;
    return p[MSP_STAT_MAX] <= w[MSP_STAT_MAX] && p[MSP_STAT_MIN] >= w[MSP_STAT_MIN] &&
           p[MSP_STAT_NORM] <= w[MSP_STAT_NORM] * (1 + 1e-6);
}

/*
 * What stands where weights may stand can be a part of something computed, taken by an index that nobody recorded: then
 * it differs as what it is a part of does.
 */
static bool
may_be_computed(const finder *f, size_t at)
{
    enum { AS_MUCH = 8 };
    const msp_rows *npu = f->src->npu;
    const msp_row *part = &npu->rows[f->rows[at]];

    if (part->state == STATE_PARAMETERS)
        return false;
    for (size_t i = 0; i < f->ngiven && f->given_differing[i].row < f->rows[at]; i++)
        if (f->items[at].diff < AS_MUCH * f->given_differing[i].diff &&
            may_be_part(npu, part, &npu->rows[f->given_differing[i].row]))
            return true;
    return false;
}

/* Keeps those that stand out, or all that are far apart where half of them are. */
static bool
keep_outstanding(finder *f)
{
    double *sorted = msp_alloc_zero(f->count + 1, sizeof(*sorted)), *limits = f->least, common, middle;
    size_t kept = 0;

    if (sorted == NULL)
        return false;
    for (size_t i = 0; i < f->count; i++)
        sorted[i] = f->items[i].diff;
    qsort(sorted, f->count, sizeof(*sorted), compare_doubles);
    middle = f->count > 0 ? sorted[f->count / 2] : 0;
    common = f->count > 0 ? sorted[f->count * 3 / 4] : 0;
    for (size_t i = 0; i < f->count; i++) {
        limits[i] = middle > FAR_APART ? FAR_APART : fmax(STANDS_OUT * common, limits[i]);
        if (middle <= FAR_APART && f->items[i].diff > limits[i])
            limits[i] = fmax(limits[i], limit_of_likes(f, &f->items[i], common, sorted));
    }
    for (size_t i = 0; i < f->count; i++) {
        if (!(f->items[i].diff > limits[i]) || may_be_computed(f, i))
            continue;
        f->items[kept] = f->items[i];
        f->items[kept++].others = middle > FAR_APART ? 0 : common;
    }
    f->count = kept;
    msp_free(sorted);
    return true;
}

msp_status
msp_evidence_find_start(msp_evidence_list *list, const msp_evidence_source *src, msp_error *err)
{
    finder f = {.src = src};
    bool ok;

    f.items = msp_alloc_zero(src->npu->count + 1, sizeof(*f.items));
    f.least = msp_alloc_zero(src->npu->count + 1, sizeof(*f.least));
    f.rows = msp_alloc_zero(src->npu->count + 1, sizeof(*f.rows));
    f.given_differing = msp_alloc_zero(src->npu->count + 1, sizeof(*f.given_differing));
    ok = f.items != NULL && f.least != NULL && f.rows != NULL && f.given_differing != NULL;
    if (ok) {
        walk_calls(&f);
        widen_limits(&f);
        ok = !f.failed && !f.scratch.failed && keep_outstanding(&f);
    }
    msp_map_release(&f.given);
    msp_map_release(&f.made);
    msp_arena_release(&f.keys);
    msp_buf_release(&f.scratch);
    msp_free(f.least);
    msp_free(f.rows);
    msp_free(f.given_differing);
    if (!ok) {
        msp_free(f.items);
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    list->starts = f.items;
    list->nstarts = f.count;
    return MSP_OK;
}
