/*
 * alignment.c - calls that only one of both runs makes: what is said of them, and where one stands for another (matmul,
 * softmax, matmul for scaled_dot_product_attention) what can be compared: what goes into the block and what comes out.
 */
#include "compare/verdict/alignment.h"

#include <math.h>
#include <stdlib.h>
#include "core/alloc.h"

enum {
    BLOCK_CALLS = 64,  /* of either side: more is no block but another model */
    BLOCK_INPUTS = 64, /* that come from outside of it */
    MOST_TEXTS = 20,
    MOST_NAMES = 6 /* of calls in one sentence */
};

/* ---- ends of blocks ---------------------------------------------------------------------------------------------- */

typedef struct outside {
    uint32_t rows[BLOCK_INPUTS];
    size_t count;
} outside;

static bool
is_same_value(const msp_rows *t, uint32_t a, uint32_t b)
{
    const msp_row *x = &t->rows[a], *y = &t->rows[b];

    if (x->dtype != y->dtype || x->shape != y->shape)
        return false;
    for (int i = 0; i < MSP_NSTATS; i++) {
        double p, q;

        if (!msp_val_number(&x->stats[i], &p) || !msp_val_number(&y->stats[i], &q) || p != q)
            return false;
    }
    return true;
}

/* Has the value been taken already, or made by a call of the block before this one? */
static bool
is_known(const msp_rows *t, const outside *had, const uint32_t *calls, size_t before, uint32_t row)
{
    for (size_t i = 0; i < had->count; i++)
        if (is_same_value(t, had->rows[i], row))
            return true;
    for (size_t c = 0; c < before; c++) {
        const msp_row_api *api = &t->apis[calls[c]];

        for (size_t i = api->first; i < api->first + api->count; i++)
            if (t->rows[i].state == STATE_OUTPUT && is_same_value(t, (uint32_t)i, row))
                return true;
    }
    return false;
}

/* What the calls take that none of them has made. */
static void
find_outside(outside *out, const msp_rows *t, const uint32_t *calls, size_t n)
{
    out->count = 0;
    for (size_t c = 0; c < n; c++) {
        const msp_row_api *api = &t->apis[calls[c]];

        for (size_t i = api->first; i < api->first + api->count && out->count < BLOCK_INPUTS; i++)
            if (!t->rows[i].plain && t->rows[i].state < STATE_OUTPUT &&
                msp_local_roundoff(t->texts[t->rows[i].dtype].dtype) > 0 && !is_known(t, out, calls, c, (uint32_t)i))
                out->rows[out->count++] = (uint32_t)i;
    }
}

static bool
may_meet(const msp_replaced *b, uint32_t npu, uint32_t bench)
{
    const msp_rows *n = b->rows[0], *m = b->rows[1];

    return msp_str_eq(msp_row_shape(n, &n->rows[npu]), msp_row_shape(m, &m->rows[bench])) &&
           msp_match_dtypes(msp_row_dtype(n, &n->rows[npu]), msp_row_dtype(m, &m->rows[bench]), false);
}

static bool
add_end(msp_replaced *b, uint32_t npu, uint32_t bench, bool input)
{
    msp_replaced_end *grown = msp_realloc(b->ends, b->nends + 1, sizeof(*grown));

    if (grown == NULL)
        return false;
    b->ends = grown;
    grown[b->nends++] = (msp_replaced_end){npu, bench, input, NAN};
    return true;
}

/* The order in which both sides take q, k and v may differ: what is most alike goes together. */
static bool
pair_inputs(msp_replaced *b, const outside *n, outside *m)
{
    for (size_t i = 0; i < n->count; i++) {
        size_t best = SIZE_MAX;
        double least = INFINITY;

        for (size_t k = 0; k < m->count; k++) {
            double d;

            if (m->rows[k] == MATCH_NONE || !may_meet(b, n->rows[i], m->rows[k]))
                continue;
            d = msp_verdict_row_difference(b->rows[0], &b->rows[0]->rows[n->rows[i]], &b->rows[1]->rows[m->rows[k]]);
            if (d < least || best == SIZE_MAX) {
                best = k;
                least = d;
            }
        }
        if (best == SIZE_MAX)
            continue;
        if (!add_end(b, n->rows[i], m->rows[best], true))
            return false;
        m->rows[best] = MATCH_NONE;
    }
    return true;
}

/* The k-th result of one goes with the k-th of the other, where they have one shape. */
static bool
pair_outputs(msp_replaced *b, uint32_t npu, uint32_t bench)
{
    const msp_row_api *n = &b->rows[0]->apis[npu], *m = &b->rows[1]->apis[bench];
    size_t k = m->first;

    for (size_t i = n->first; i < n->first + n->count; i++) {
        if (b->rows[0]->rows[i].state != STATE_OUTPUT || b->rows[0]->rows[i].plain)
            continue;
        while (k < m->first + m->count && (b->rows[1]->rows[k].state != STATE_OUTPUT || b->rows[1]->rows[k].plain))
            k++;
        if (k == m->first + m->count)
            return true;
        if (may_meet(b, (uint32_t)i, (uint32_t)k) && !add_end(b, (uint32_t)i, (uint32_t)k, false))
            return false;
        k++;
    }
    return true;
}

static bool
add_block(msp_replaced *b, const msp_alignment *a, const msp_align_gap *g)
{
    const uint32_t *calls[2] = {a->order[0] + g->first[0], a->order[1] + g->first[1]};
    msp_replacement block = {.first_end = b->nends};
    outside in[2];

    for (int side = 0; side < 2; side++) {
        block.first[side] = calls[side][0];
        block.last[side] = calls[side][g->count[side] - 1];
        block.ncalls[side] = g->count[side];
        find_outside(&in[side], b->rows[side], calls[side], g->count[side]);
        for (size_t i = 0; i < g->count[side]; i++)
            block.products |= msp_verdict_class(b->rows[side]->apis[calls[side][i]].name) == MSP_CALL_MATMUL;
    }
    if (!pair_inputs(b, &in[0], &in[1]) || !pair_outputs(b, block.last[0], block.last[1]))
        return false;
    block.nends = b->nends - block.first_end;
    b->items[b->count++] = block;
    return true;
}

msp_status
msp_replaced_find(msp_replaced *out, const msp_alignment *a, const msp_rows *const rows[2], msp_error *err)
{
    bool ok;

    *out = (msp_replaced){.rows = {rows[0], rows[1]}};
    out->items = msp_alloc_zero(a->ngaps + 1, sizeof(*out->items));
    ok = out->items != NULL;
    for (size_t i = 0; i < a->ngaps && ok; i++) {
        const msp_align_gap *g = &a->gaps[i];

        if (g->count[0] > 0 && g->count[1] > 0 && g->count[0] <= BLOCK_CALLS && g->count[1] <= BLOCK_CALLS)
            ok = add_block(out, a, g);
    }
    return ok ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

void
msp_replaced_release(msp_replaced *b)
{
    msp_free(b->items);
    msp_free(b->ends);
    *b = (msp_replaced){0};
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

typedef struct teller {
    const msp_alignment *a;
    const msp_align_side *sides;
    bool layers;    /* modules count: both sides have them */
    msp_map groups; /* sentence without its number: how many */
    msp_arena texts;
    msp_buf scratch;
} teller;

static bool
is_layer(msp_str api)
{
    return msp_str_starts(api, MSP_STR("Module.")) || msp_str_starts(api, MSP_STR("Cell."));
}

static bool
has_layers(const msp_rows *t)
{
    for (size_t i = 0; i < t->napis; i++)
        if (is_layer(t->apis[i].name))
            return true;
    return false;
}

static msp_str
api_of(const teller *t, int side, size_t position)
{
    return t->sides[side].rows->apis[t->a->order[side][position]].name;
}

/* ", at model.py:31": the innermost line that is not torch's own. */
static void
write_place(teller *t, int side, msp_str api)
{
    const msp_json *frames = msp_stack_frames(t->sides[side].stack, api);

    for (size_t i = 0; i < msp_json_count(frames); i++) {
        msp_str frame = msp_json_string(msp_json_at(frames, i));
        const char *line = msp_str_find(frame, MSP_STR(", line ")), *in = msp_str_find(frame, MSP_STR(", in ")), *name;

        if (line == NULL || in == NULL || in < line || msp_frame_is_machinery(frame.p, frame.len))
            continue;
        for (name = line; name > frame.p && name[-1] != '/' && name[-1] != ' ';)
            name--;
        msp_buf_printf(&t->scratch, ", at %.*s:%.*s", (int)(line - name), name, (int)(in - line - 7), line + 7);
        return;
    }
}

/* One more of the sentence that stands in scratch. */
static bool
count_sentence(teller *t)
{
    msp_map_entry *e = t->scratch.failed ? NULL : msp_map_get(&t->groups, msp_buf_view(&t->scratch));
    const char *copy;

    if (e != NULL) {
        e->value++;
        return true;
    }
    copy = t->scratch.failed ? NULL : msp_arena_text(&t->texts, t->scratch.p, t->scratch.len);
    return copy != NULL && msp_map_put(&t->groups, (msp_str){copy, t->scratch.len}, 1, NULL) != NULL;
}

static bool
tell_more(teller *t, int side, const msp_align_gap *g)
{
    for (size_t i = g->first[side]; i < g->first[side] + g->count[side]; i++) {
        msp_str api = api_of(t, side, i), function = msp_align_function(api);

        if (is_layer(api) && !t->layers)
            continue;
        msp_buf_clear(&t->scratch);
        msp_buf_printf(&t->scratch, "more %.*s in the %s", (int)function.len, function.p,
                       side == 0 ? "NPU run" : "bench");
        write_place(t, side, api);
        if (!count_sentence(t))
            return false;
    }
    return true;
}

static void
write_functions(teller *t, int side, const msp_align_gap *g)
{
    for (size_t i = 0; i < g->count[side] && i < MOST_NAMES; i++) {
        msp_str function = msp_align_function(api_of(t, side, g->first[side] + i));

        msp_buf_printf(&t->scratch, "%s%.*s", i > 0 ? ", " : "", (int)function.len, function.p);
    }
    if (g->count[side] > MOST_NAMES)
        msp_buf_printf(&t->scratch, " and %zu more", g->count[side] - MOST_NAMES);
}

static bool
tell_replaced(teller *t, const msp_align_gap *g)
{
    msp_buf_clear(&t->scratch);
    msp_buf_text(&t->scratch, "the NPU run calls ");
    write_functions(t, 0, g);
    msp_buf_text(&t->scratch, " where the bench calls ");
    write_functions(t, 1, g);
    write_place(t, 0, api_of(t, 0, g->first[0] + g->count[0] - 1));
    return count_sentence(t);
}

static bool
is_told(const teller *t, int side, const msp_align_gap *g)
{
    bool told = t->layers;

    for (size_t i = 0; i < g->count[side] && !told; i++)
        told = !is_layer(api_of(t, side, g->first[side] + i));
    return told && g->count[side] > 0;
}

static bool
add_texts(teller *t, msp_verdict_texts *out)
{
    msp_buf b = {0};

    for (size_t i = 0; i < t->groups.count; i++) {
        const msp_map_entry *e = &t->groups.entries[i];
        bool more = msp_str_starts(e->key, MSP_STR("more "));

        if (i == MOST_TEXTS) {
            msp_buf_printf(&b, "and %zu more kinds of calls that only one run makes", t->groups.count - i);
            return msp_verdict_add_take(out, &b);
        }
        if (more)
            msp_buf_printf(&b, "%lld ", (long long)e->value);
        msp_buf_str(&b, e->key);
        if (!more && e->value > 1)
            msp_buf_printf(&b, ", %lld times", (long long)e->value);
        if (!msp_verdict_add_take(out, &b))
            return false;
    }
    return true;
}

msp_status
msp_verdict_words_alignment(msp_verdict_texts *out, const msp_alignment *a, const msp_align_side sides[2],
                            msp_error *err)
{
    teller t = {.a = a, .sides = sides, .layers = has_layers(sides[0].rows) && has_layers(sides[1].rows)};
    bool ok = true;

    for (size_t i = 0; i < a->ngaps && ok; i++) {
        const msp_align_gap *g = &a->gaps[i];

        if (is_told(&t, 0, g) && is_told(&t, 1, g))
            ok = tell_replaced(&t, g);
        else
            ok = tell_more(&t, 0, g) && tell_more(&t, 1, g);
    }
    ok = ok && add_texts(&t, out);
    msp_map_release(&t.groups);
    msp_arena_release(&t.texts);
    msp_buf_release(&t.scratch);
    return ok ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory");
}
