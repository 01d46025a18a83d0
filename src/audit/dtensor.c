/*
 * dtensor.c - DTensors say of themselves which ranks hold the same values: those of the mesh that stand at one place of
 * every dimension but the replicated ones. What a redistribution, a linear of shards or any other call has left there
 * is compared between them, although DTensor's own collectives are no recorded calls.
 */
#include "audit/record.h"

#include <stdlib.h>
#include "core/alloc.h"
#include "core/vec.h"

enum { MAX_MESH = 4, MAX_RANKS = 1 << 16 };

/* The record's name, which stands before the place of a tensor in it. */
static msp_str
before_colon(msp_str s)
{
    const char *colon = s.len == 0 ? NULL : memchr(s.p, ':', s.len);

    return colon == NULL ? s : (msp_str){s.p, (size_t)(colon - s.p)};
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* A mesh by its sizes, and its ranks in row-major order. */
typedef struct mesh {
    int ndim;
    int64_t size[MAX_MESH];
    int64_t *ranks;
    size_t n, cap;
    bool failed;
} mesh;

/* [0, 1], or lists of lists of one size. */
static bool
read_mesh(mesh *m, const msp_json *v, int depth)
{
    int64_t number;

    if (msp_json_kind_of(v) != MSP_JSON_ARRAY) {
        if (depth != m->ndim || m->n >= MAX_RANKS || !msp_json_to_i64(v, &number))
            return false;
        m->failed = !msp_vec_grow((void **)&m->ranks, &m->cap, m->n + 1, sizeof(*m->ranks));
        if (!m->failed)
            m->ranks[m->n++] = number;
        return !m->failed;
    }
    if (depth == MAX_MESH || msp_json_count(v) == 0 ||
        (depth < m->ndim && m->size[depth] != (int64_t)msp_json_count(v)))
        return false;
    if (depth == m->ndim)
        m->size[m->ndim++] = (int64_t)msp_json_count(v);
    for (size_t i = 0; i < msp_json_count(v); i++)
        if (!read_mesh(m, msp_json_at(v, i), depth + 1))
            return false;
    return true;
}

/* At which place of dimension d does rank number i of the mesh stand? */
static int64_t
place_in(const mesh *m, size_t i, int d)
{
    int64_t behind = 1;

    for (int k = d + 1; k < m->ndim; k++)
        behind *= m->size[k];
    return (int64_t)i / behind % m->size[d];
}

/* "[0, 1]": the ranks that hold what this one holds; empty: it is alone, or not of the mesh. */
static void
write_group(msp_buf *out, const mesh *m, const msp_json *placements, int64_t me)
{
    size_t at = 0, members = 0;

    while (at < m->n && m->ranks[at] != me)
        at++;
    if (at == m->n || msp_json_count(placements) != (size_t)m->ndim)
        return;
    for (size_t i = 0; i < m->n; i++) {
        bool same = true;

        for (int d = 0; d < m->ndim; d++)
            same = same && (msp_json_get(msp_json_at(placements, (size_t)d), "Replicate") != NULL ||
                            place_in(m, i, d) == place_in(m, at, d));
        if (same)
            msp_buf_printf(out, "%s%lld", members++ == 0 ? " on ranks [" : ", ", (long long)m->ranks[i]);
    }
    msp_buf_char(out, ']');
    if (members < 2)
        msp_buf_clear(out);
}

static bool
add_dtensor(msp_audit_rank *r, msp_str place, size_t at, const msp_json *v)
{
    mesh m = {0};
    msp_buf group = {0}, name = {0};
    bool ok = true;

    if (read_mesh(&m, msp_json_get(v, "device_mesh"), 0))
        write_group(&group, &m, msp_json_get(v, "placements"), r->rank);
    if (group.len > 0) {
        msp_buf_str(&name, place);
        msp_buf_str(&name, msp_buf_view(&group));
        ok = msp_audit_add_weight(r, &r->replicated, msp_buf_view(&name), at, v);
    }
    ok = ok && !m.failed && !group.failed && !name.failed;
    msp_free(m.ranks);
    msp_buf_release(&group);
    msp_buf_release(&name);
    return ok;
}

/* place becomes "Functional.relu.0.forward: input.0". */
static bool
walk(msp_audit_rank *r, msp_buf *place, size_t at, const msp_json *v)
{
    size_t before = place->len;
    bool ok = true;

    if (msp_audit_is_tensor(v))
        return msp_json_get(v, "placements") == NULL || add_dtensor(r, msp_buf_view(place), at, v);
    for (size_t i = 0; i < msp_json_count(v) && ok; i++) {
        msp_str key = msp_json_kind_of(v) == MSP_JSON_OBJECT ? msp_json_key(v, i) : (msp_str){0};

        msp_buf_text(place, before == 0 || place->p[before - 1] == ' ' ? "" : ".");
        if (key.p == NULL)
            msp_buf_printf(place, "%zu", i);
        else if (!msp_str_eq(key, MSP_STR("input_args")) && !msp_str_eq(key, MSP_STR("input_kwargs")))
            msp_buf_str(place, (msp_str){key.p, key.len < 200 ? key.len : 200});
        else
            msp_buf_text(place, "input");
        ok = !place->failed && walk(r, place, at, msp_json_at(v, i));
        place->len = before;
    }
    return ok;
}

bool
msp_audit_read_dtensors(msp_audit_rank *r, msp_str name, size_t at, const msp_json *record)
{
    msp_buf place = {0};
    bool ok;

    msp_buf_str(&place, before_colon(name));
    msp_buf_text(&place, ": ");
    ok = walk(r, &place, at, record);
    msp_buf_release(&place);
    return ok;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* What one rank holds of a replicated tensor. */
typedef struct copy {
    int64_t key;
    size_t rank, k;
    uint64_t digest;
} copy;

static int
by_key(const void *a, const void *b)
{
    const copy *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The digest that most of n copies hold, the first one's on a tie, and how many do. */
static size_t
most_common(uint64_t *digest, const copy *c, size_t n)
{
    size_t best = 0;

    for (size_t i = 0; i < n && best * 2 <= n; i++) {
        size_t votes = 0;

        for (size_t k = 0; k < n; k++)
            votes += c[k].digest == c[i].digest;
        if (votes > best) {
            best = votes;
            *digest = c[i].digest;
        }
    }
    return best;
}

static msp_status
say_copy(msp_audit_step *s, const msp_audit_rank *r, size_t k, size_t same, msp_error *err)
{
    msp_str name = r->replicated.names[k], call = before_colon(name);
    msp_str place = {name.p + call.len + 2, name.len - call.len - 2};
    msp_buf what = {0};
    msp_status st;

    msp_buf_printf(&what, "the replicated DTensor %.*s of %.*s is another one on rank %lld than on %zu other%s",
                   (int)(place.len < 200 ? place.len : 200), place.p, (int)(call.len < 200 ? call.len : 200), call.p,
                   (long long)r->rank, same, same == 1 ? "" : "s");
    st = msp_buf_status(&what, err);
    if (st == MSP_OK)
        st = msp_audit_add(s, MSP_AUDIT_REPLICAS, r, call, (int64_t)r->replicated.items[k].record, (msp_str){0}, what.p,
                           err);
    msp_buf_release(&what);
    return st;
}

/* Of each rank the first copy that is another one than most hold: first[rank], SIZE_MAX for none. */
static void
find_first(size_t *first, size_t *same, const copy *c, size_t n, msp_audit_result *result)
{
    for (size_t i = 0, end; i < n; i = end) {
        uint64_t digest = 0;
        size_t votes;

        for (end = i + 1; end < n && c[end].key == c[i].key;)
            end++;
        if (end - i < 2)
            continue;
        result->replicated += (int64_t)(end - i);
        votes = most_common(&digest, &c[i], end - i);
        for (size_t k = i; k < end; k++)
            if (c[k].digest != digest && c[k].k < first[c[k].rank]) {
                first[c[k].rank] = c[k].k;
                same[c[k].rank] = votes;
            }
    }
}

msp_status
msp_audit_compare_dtensors(msp_audit_step *s, msp_error *err)
{
    msp_map keys = {0};
    copy *all = NULL;
    size_t n = 0, cap = 0, *first = msp_alloc_zero(s->nranks, sizeof(*first)),
           *same = msp_alloc_zero(s->nranks, sizeof(*same));
    msp_status st = first == NULL || same == NULL ? MSP_E_NOMEM : MSP_OK;

    for (size_t i = 0; i < s->nranks && st == MSP_OK; i++) {
        msp_audit_weights *w = &s->ranks[i].replicated;

        first[i] = SIZE_MAX;
        if (!msp_audit_give_keys(&keys, w) || !msp_vec_grow((void **)&all, &cap, n + w->n, sizeof(*all)))
            st = MSP_E_NOMEM;
        for (size_t k = 0; k < w->n && st == MSP_OK; k++)
            all[n++] = (copy){w->items[k].key, i, k, w->items[k].digest};
    }
    if (st == MSP_OK && n > 1)
        qsort(all, n, sizeof(*all), by_key);
    if (st == MSP_OK)
        find_first(first, same, all, n, s->result);
    else
        msp_error_set(err, st, "no memory for replicated tensors");
    for (size_t i = 0; i < s->nranks && st == MSP_OK; i++)
        if (first[i] != SIZE_MAX)
            st = say_copy(s, &s->ranks[i], first[i], same[i], err);
    msp_map_release(&keys);
    msp_free(all);
    msp_free(first);
    msp_free(same);
    return st;
}
