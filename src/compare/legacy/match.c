/* match.c - which group of lines meets which: see legacy.h. */
#include "compare/legacy/legacy.h"
#include "core/alloc.h"

/* ---- names ------------------------------------------------------------------------------------------------------- */

static msp_str
without_number(msp_str name)
{
    const char *at = name.len > 0 ? memchr(name.p, '_', name.len) : NULL;

    return at == NULL ? name : (msp_str){at + 1, (size_t)(name.p + name.len - at - 1)};
}

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The number before "_forward" or "_backward" goes; dots of 6.0 are taken for underscores. */
static msp_str
without_call_number(msp_str name, msp_buf *scratch)
{
    static const msp_str words[] = {MSP_STR("forward"), MSP_STR("backward")};
    const char *at = NULL;
    size_t from;

    for (int i = 0; i < 2 && at == NULL; i++)
        at = msp_str_find(name, words[i]);
    if (at == NULL || at - name.p < 3)
        return name;
    from = (size_t)(at - name.p) - 1;
    while (from > 0 && is_digit(name.p[from - 1]))
        from--;
    msp_buf_clear(scratch);
    msp_buf_add(scratch, name.p, from);
    msp_buf_add(scratch, at, (size_t)(name.p + name.len - at));
    return msp_buf_view(scratch);
}

/* The name as matching sees it: without the running number of the 2023 form and, fuzzy, without the call's number. */
static msp_str
name_to_match(msp_str name, bool numbered, bool fuzzy, msp_buf *scratch)
{
    if (numbered)
        name = without_number(name);
    return fuzzy ? without_call_number(name, scratch) : name;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* One text for each kind of group; equal texts have equal numbers. */
typedef struct keys {
    msp_map ids;
    msp_arena texts;
    msp_buf text, scratch;
} keys;

/* Floats of 16 and 32 bits are one type when shapes and types must agree. */
static msp_str
dtype_class(const msp_rows *t, const msp_row *r)
{
    msp_dtype d = t->texts[r->dtype].dtype;

    return d == MSP_F32 || d == MSP_F16 || d == MSP_BF16 ? MSP_STR("float") : msp_row_dtype(t, r);
}

static void
put_group(keys *k, const msp_rows *t, const msp_row_api *group, const msp_legacy_match_rule *rule, bool numbered)
{
    msp_buf_clear(&k->text);
    for (size_t i = group->first; i < group->first + group->count; i++) {
        const msp_row *r = &t->rows[i];

        msp_buf_str(&k->text, name_to_match(msp_row_name(r), numbered, rule->fuzzy, &k->scratch));
        msp_buf_char(&k->text, '\n');
        if (rule->shapes) {
            msp_buf_str(&k->text, dtype_class(t, r));
            msp_buf_str(&k->text, msp_row_shape(t, r));
            msp_buf_char(&k->text, '\n');
        }
    }
}

static bool
group_id(keys *k, uint32_t *out)
{
    msp_map_entry *e = msp_map_get(&k->ids, msp_buf_view(&k->text));
    char *copy;

    if (k->text.failed || k->scratch.failed)
        return false;
    if (e == NULL) {
        copy = msp_arena_text(&k->texts, k->text.p, k->text.len);
        e = copy == NULL ? NULL : msp_map_put(&k->ids, (msp_str){copy, k->text.len}, (int64_t)k->ids.count, NULL);
    }
    if (e == NULL)
        return false;
    *out = (uint32_t)e->value;
    return true;
}

/* The numbers of all groups; NULL when there is no memory. */
static uint32_t *
group_ids(keys *k, const msp_rows *t, const msp_legacy_match_rule *rule, bool numbered)
{
    uint32_t *ids = msp_alloc(t->napis, sizeof(*ids));

    for (size_t i = 0; ids != NULL && i < t->napis; i++) {
        put_group(k, t, &t->apis[i], rule, numbered);
        if (!group_id(k, &ids[i])) {
            msp_free(ids);
            ids = NULL;
        }
    }
    return ids;
}

static void
keys_release(keys *k)
{
    msp_map_release(&k->ids);
    msp_arena_release(&k->texts);
    msp_buf_release(&k->text);
    msp_buf_release(&k->scratch);
}

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory while matching operators");
}

/* ---- partners ---------------------------------------------------------------------------------------------------- */

static void
pair_rows(msp_match *out, const msp_rows *npu, const msp_rows *bench, const uint32_t *partner)
{
    for (size_t i = 0; i < npu->napis; i++) {
        const msp_row_api *n = &npu->apis[i];

        for (size_t k = 0; k < n->count; k++)
            out->bench[n->first + k] =
                partner[i] == MATCH_NONE ? MATCH_NONE : (uint32_t)(bench->apis[partner[i]].first + k);
        out->matched += partner[i] == MATCH_NONE ? 0 : n->count;
    }
    out->bench_only = bench->count - out->matched;
}

static bool
same_row(const msp_rows *npu, const msp_row *n, const msp_rows *bench, const msp_row *b, bool shapes)
{
    return msp_str_eq(msp_row_name(n), msp_row_name(b)) &&
           (!shapes || (msp_str_eq(dtype_class(npu, n), dtype_class(bench, b)) &&
                        msp_str_eq(msp_row_shape(npu, n), msp_row_shape(bench, b))));
}

/* Two runs of one model: the same groups in the same order, each meets its like, and no key is needed to see that. */
static bool
same_groups(const msp_rows *npu, const msp_rows *bench, bool shapes)
{
    if (npu->napis != bench->napis)
        return false;
    for (size_t i = 0; i < npu->napis; i++) {
        const msp_row_api *n = &npu->apis[i], *b = &bench->apis[i];

        if (n->count != b->count)
            return false;
        for (size_t k = 0; k < n->count; k++)
            if (!same_row(npu, &npu->rows[n->first + k], bench, &bench->rows[b->first + k], shapes))
                return false;
    }
    return true;
}

/* Walk along both files by the keys of their groups. */
static msp_status
walk_groups(uint32_t *partner, const msp_rows *npu, const msp_rows *bench, const msp_legacy_match_rule *rule,
            msp_error *err)
{
    keys k = {0};
    uint32_t *nids = group_ids(&k, npu, rule, rule->numbered[0]), *bids = group_ids(&k, bench, rule, rule->numbered[1]);
    msp_match_sequence n = {nids, npu->napis}, b = {bids, bench->napis};
    msp_status st = nids == NULL || bids == NULL ? no_memory(err) : msp_match_walk(partner, &n, &b, k.ids.count, err);

    msp_free(nids);
    msp_free(bids);
    keys_release(&k);
    return st;
}

msp_status
msp_legacy_match(msp_match *out, const msp_rows *npu, const msp_rows *bench, const msp_legacy_match_rule *rule,
                 msp_error *err)
{
    uint32_t *partner = msp_alloc(npu->napis, sizeof(*partner));
    msp_status st = MSP_OK;

    *out = (msp_match){.bench = msp_alloc(npu->count, sizeof(uint32_t)), .count = npu->count};
    if (partner == NULL || out->bench == NULL)
        st = no_memory(err);
    else if (same_groups(npu, bench, rule->shapes))
        for (size_t i = 0; i < npu->napis; i++)
            partner[i] = (uint32_t)i;
    else
        st = walk_groups(partner, npu, bench, rule, err);
    if (st == MSP_OK)
        pair_rows(out, npu, bench, partner);
    msp_free(partner);
    return st;
}
