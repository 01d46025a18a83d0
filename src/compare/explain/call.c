/* call.c - see call.h. */
#include "compare/explain/call.h"

#include <math.h>

#include "compare/run/run.h"
#include "core/alloc.h"

enum { MOST_ELEMENTS = 1 << 27, FOLLOWERS = 3 }; /* of larger tensors the worst element alone is looked for */

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

/* "output.0" of "Functional.relu.0.forward.output.0". */
static msp_str
short_name(const msp_rows *t, const msp_row *r)
{
    msp_str name = msp_row_name(r), api = t->apis[r->api].name;

    if (msp_str_starts(name, api) && name.len > api.len + 1)
        return (msp_str){name.p + api.len + 1, name.len - api.len - 1};
    return name;
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

/* Infinite where one side is not finite. */
static double
error_at(const msp_tensor *n, const msp_tensor *b, int64_t i)
{
    double x = msp_dtype_load_f64(n->dtype, msp_tensor_at(n, i)), y = msp_dtype_load_f64(b->dtype, msp_tensor_at(b, i));

    if (isfinite(x) && isfinite(y))
        return fabs(x - y);
    return x == y || (isnan(x) && isnan(y)) ? 0 : INFINITY;
}

/* The elements that are off most, the largest error first; of equal ones the earliest. */
static size_t
find_worst(int64_t at[MSP_EXPLAINED_WORST], const msp_tensor *n, const msp_tensor *b)
{
    double errors[MSP_EXPLAINED_WORST];
    size_t count = 0;

    for (int64_t i = 0; i < n->numel; i++) {
        double e = error_at(n, b, i);
        size_t k;

        if (!(e > 0) || (count == MSP_EXPLAINED_WORST && e <= errors[count - 1]))
            continue;
        k = count < MSP_EXPLAINED_WORST ? count++ : count - 1;
        for (; k > 0 && errors[k - 1] < e; k--) {
            errors[k] = errors[k - 1];
            at[k] = at[k - 1];
        }
        errors[k] = e;
        at[k] = i;
    }
    return count;
}

static void
describe_elements(msp_explained_row *out, const msp_suspect_source *src)
{
    msp_tensor n = {0}, b = {0};
    int64_t at[MSP_EXPLAINED_WORST];

    if (src->row[0]->file == NULL || src->row[1] == NULL || src->row[1]->file == NULL)
        return;
    if (msp_measure_open(&n, src->measurer, 0, src->row[0], NULL) == MSP_OK &&
        msp_measure_open(&b, src->measurer, 1, src->row[1], NULL) == MSP_OK && msp_tensor_same_shape(&n, &b) &&
        n.numel <= MOST_ELEMENTS) {
        out->nworst = find_worst(at, &n, &b);
        for (size_t i = 0; i < out->nworst; i++) {
            msp_tensor_unravel(&n, at[i], out->worst[i].coords);
            msp_dtype_format(out->worst[i].value[0], n.dtype, msp_tensor_at(&n, at[i]));
            msp_dtype_format(out->worst[i].value[1], b.dtype, msp_tensor_at(&b, at[i]));
        }
        out->ndim = n.ndim;
    }
    msp_tensor_release(&n);
    msp_tensor_release(&b);
}

static msp_status
describe_rows(msp_compare_explained *e, const msp_suspect_source *base, const msp_row_api *api, msp_error *err)
{
    msp_status st = MSP_OK;

    e->rows = msp_alloc_zero(api->count + 1, sizeof(*e->rows));
    if (e->rows == NULL)
        return no_memory(err);
    for (size_t i = api->first; i < api->first + api->count && st == MSP_OK; i++) {
        msp_explained_row *r = &e->rows[e->nrows++];
        msp_suspect_source src = *base;
        uint32_t partner = src.match->bench[i];

        src.row[0] = &src.rows[0]->rows[i];
        src.row[1] = partner == MATCH_NONE ? NULL : &src.rows[1]->rows[partner];
        src.verdict = "";
        r->is_input = src.row[0]->state < STATE_OUTPUT;
        r->is_plain = src.row[0]->plain;
        r->at = msp_result_text(short_name(src.rows[0], src.row[0]));
        r->about.row = (int64_t)i;
        st = r->at == NULL ? no_memory(err) : msp_suspect_describe(&r->about, &src, err);
        if (st == MSP_OK && src.mode == MSP_MODE_REAL)
            describe_elements(r, &src);
    }
    return st;
}

/* ---- neighbours -------------------------------------------------------------------------------------------------- */

static bool
same_val(const msp_val *a, const msp_val *b)
{
    double x, y;

    return msp_val_number(a, &x) && msp_val_number(b, &y) && (x == y || (isnan(x) && isnan(y)));
}

/* One value seen twice: equal type, shape and statistics, or checksum where there are none. */
static bool
is_same_value(const msp_row *a, const msp_row *b)
{
    bool known = true;

    if (a->plain || b->plain || a->dtype != b->dtype || a->shape != b->shape)
        return false;
    for (int i = 0; i < MSP_NSTATS && known; i++) {
        known = a->stats[i].kind != VAL_NONE;
        if (known && !same_val(&a->stats[i], &b->stats[i]))
            return false;
    }
    return known || (a->md5.kind == VAL_TEXT && b->md5.kind == VAL_TEXT && a->md5.len == b->md5.len &&
                     memcmp(a->md5.as.p, b->md5.as.p, a->md5.len) == 0);
}

static bool
is_module(msp_str api)
{
    return msp_str_starts(api, MSP_STR("Module.")) || msp_str_starts(api, MSP_STR("Cell."));
}

static bool
add_neighbour(msp_compare_explained *e, const msp_rows *t, size_t here, size_t there, bool before)
{
    msp_explained_neighbour *grown = msp_realloc(e->neighbours, e->nneighbours + 1, sizeof(*grown)), *n;

    if (grown == NULL)
        return false;
    e->neighbours = grown;
    n = &grown[e->nneighbours++];
    *n = (msp_explained_neighbour){.before = before,
                                   .here = msp_result_text(short_name(t, &t->rows[here])),
                                   .api = msp_result_text(t->apis[t->rows[there].api].name),
                                   .there = msp_result_text(short_name(t, &t->rows[there]))};
    return n->here != NULL && n->api != NULL && n->there != NULL;
}

/* The nearest earlier call that gave what the row is, and the next ones that take it. */
static bool
find_neighbours(msp_compare_explained *e, const msp_rows *t, const msp_row_api *api, size_t row)
{
    bool module = is_module(api->name), input = t->rows[row].state < STATE_OUTPUT;
    size_t found = 0;

    if (t->rows[row].plain || t->rows[row].state == STATE_PARAMETERS)
        return true;
    for (size_t i = input ? api->first : api->first + api->count; input ? i-- > 0 : i < t->count; i += !input) {
        const msp_row *r = &t->rows[i];

        if ((r->state < STATE_OUTPUT) == input || is_module(t->apis[r->api].name) != module ||
            !is_same_value(r, &t->rows[row]))
            continue;
        if (!add_neighbour(e, t, row, i, input))
            return false;
        if (++found == (input ? 1 : FOLLOWERS))
            break;
    }
    return true;
}

/* ---- the verdict on it ------------------------------------------------------------------------------------------- */

static bool
add_results(msp_compare_explained *e, const msp_pair_verdict *v)
{
    e->results = msp_alloc_zero(v->nresults + 1, sizeof(*e->results));
    if (e->results == NULL)
        return false;
    for (size_t i = 0; i < v->nresults; i++) {
        const msp_verdict_result *from = &v->results[i];
        msp_verdict_result *to;

        if (strcmp(from->api, e->api) != 0)
            continue;
        to = &e->results[e->nresults++];
        *to = *from;
        to->api = to->bench_api = NULL; /* the call's own */
        to->at = msp_result_text(msp_str_of(from->at));
        to->shape_text = from->shape_text == NULL ? NULL : msp_result_text(msp_str_of(from->shape_text));
        to->note = from->note == NULL ? NULL : msp_result_text(msp_str_of(from->note));
        if (to->at == NULL || (from->shape_text != NULL && to->shape_text == NULL) ||
            (from->note != NULL && to->note == NULL))
            return false;
    }
    return true;
}

static const msp_row_api *
find_api(const msp_rows *t, const char *name)
{
    for (size_t i = 0; i < t->napis; i++)
        if (msp_str_eq(t->apis[i].name, msp_str_of(name)))
            return &t->apis[i];
    return NULL;
}

/* The bench's call that the first row with a partner belongs to. */
static bool
name_partner(msp_compare_explained *e, const msp_suspect_source *src, const msp_row_api *api)
{
    for (size_t i = api->first; i < api->first + api->count; i++)
        if (src->match->bench[i] != MATCH_NONE) {
            const msp_rows *b = src->rows[1];

            e->bench_api = msp_result_text(b->apis[b->rows[src->match->bench[i]].api].name);
            return e->bench_api != NULL;
        }
    return true;
}

msp_status
msp_explain_call(msp_compare_pair *pair, const msp_suspect_source *src, const char *name, msp_error *err)
{
    msp_compare_explained *e = &pair->explained;
    const msp_row_api *api = find_api(src->rows[0], name);
    bool ok;
    msp_status st;

    if (api == NULL)
        return MSP_OK;
    e->found = true;
    e->api = msp_result_text(api->name);
    ok = e->api != NULL && name_partner(e, src, api) && add_results(e, &pair->verdict);
    st = ok ? describe_rows(e, src, api, err) : no_memory(err);
    for (size_t i = api->first; i < api->first + api->count && st == MSP_OK; i++)
        if (!find_neighbours(e, src->rows[0], api, i))
            st = no_memory(err);
    return st;
}
