/* dtensor.c - the placement of a DTensor, as its record has it: see rows.h. */
#include "compare/rows/rows.h"
#include "core/alloc.h"
#include "core/vec.h"

/* A mesh is lists in lists of equal lengths, with the ranks innermost. False: it is not. */
static bool
read_mesh(msp_row_dtensor *d, const msp_json *v, int depth, size_t room)
{
    size_t n = msp_json_count(v);

    if (msp_json_kind_of(v) != MSP_JSON_ARRAY)
        return depth == d->ndim && d->nranks < room && msp_json_to_i64(v, &d->ranks[d->nranks]) &&
               d->ranks[d->nranks++] >= 0;
    if (depth >= d->ndim || (int64_t)n != d->sizes[depth])
        return false;
    for (size_t i = 0; i < n; i++)
        if (!read_mesh(d, msp_json_at(v, i), depth + 1, room))
            return false;
    return true;
}

static bool
measure_mesh(msp_row_dtensor *d, const msp_json *v, size_t *total)
{
    enum { MOST = 1 << 20 };

    *total = 1;
    for (d->ndim = 0; msp_json_kind_of(v) == MSP_JSON_ARRAY; v = msp_json_at(v, 0)) {
        size_t n = msp_json_count(v);

        if (n == 0 || d->ndim == DTENSOR_MAX_DIM || n > MOST / *total)
            return false;
        d->sizes[d->ndim++] = (int64_t)n;
        *total *= n;
    }
    return d->ndim > 0;
}

/* {"Shard": {"dim": 0}}, {"Partial": {"reduce_op": "sum"}} or {"Replicate": {}}. */
static void
read_placement(msp_row_dtensor *d, int i, const msp_json *v)
{
    const msp_json *shard = msp_json_get(v, "Shard"), *partial = msp_json_get(v, "Partial");

    d->placements[i].kind = DTENSOR_OTHER;
    if (shard != NULL && msp_json_to_i64(msp_json_get(shard, "dim"), &d->placements[i].dim) &&
        d->placements[i].dim >= -MSP_MAX_NDIM && d->placements[i].dim < MSP_MAX_NDIM)
        d->placements[i].kind = DTENSOR_SHARD;
    else if (partial != NULL && msp_str_eq(msp_json_string(msp_json_get(partial, "reduce_op")), MSP_STR("sum")))
        d->placements[i].kind = DTENSOR_SUM;
    else if (msp_json_get(v, "Replicate") != NULL)
        d->placements[i].kind = DTENSOR_REPLICATE;
}

static bool
same_dtensor(const msp_row_dtensor *a, const msp_row_dtensor *b)
{
    return a->ndim == b->ndim && a->nranks == b->nranks && memcmp(a->sizes, b->sizes, sizeof(a->sizes)) == 0 &&
           memcmp(a->placements, b->placements, sizeof(a->placements)) == 0 &&
           memcmp(a->ranks, b->ranks, a->nranks * sizeof(*a->ranks)) == 0;
}

bool
msp_rows_dtensor(msp_rows *t, uint16_t *out, const msp_json *mesh, const msp_json *placements)
{
    msp_row_dtensor d;
    size_t total;

    memset(&d, 0, sizeof(d)); /* with what lies between fields: they are compared as bytes */
    *out = 0;
    if (!measure_mesh(&d, mesh, &total) || msp_json_kind_of(placements) != MSP_JSON_ARRAY ||
        msp_json_count(placements) != (size_t)d.ndim || t->ndtensors + 1 >= UINT16_MAX)
        return true;
    d.ranks = msp_arena_alloc(&t->arena, total, sizeof(*d.ranks));
    if (d.ranks == NULL)
        return false;
    if (!read_mesh(&d, mesh, 0, total) || d.nranks != total)
        return true;
    for (int i = 0; i < d.ndim; i++)
        read_placement(&d, i, msp_json_at(placements, (size_t)i));
    for (size_t i = 0; i < t->ndtensors && *out == 0; i++)
        if (same_dtensor(&t->dtensors[i], &d))
            *out = (uint16_t)(i + 1);
    if (*out != 0)
        return true;
    if (!msp_vec_grow((void **)&t->dtensors, &t->cap_dtensors, t->ndtensors + 1, sizeof(*t->dtensors)))
        return false;
    t->dtensors[t->ndtensors++] = d;
    *out = (uint16_t)t->ndtensors;
    return true;
}
