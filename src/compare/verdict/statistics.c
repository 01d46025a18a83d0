/*
 * statistics.c - what statistics say about each result. A difference is scaled by what its quantity can resolve: a mean
 * by the root mean square, a minimum or maximum by the largest magnitude, a norm by itself.
 */
#include "compare/verdict/alignment.h"

#include <math.h>
#include "core/alloc.h"

typedef struct stat_diff {
    bool known, nonfinite;
    double value;
} stat_diff;

static stat_diff
row_difference(const msp_rows *npu, const msp_row *n, const msp_row *b)
{
    double a[MSP_NSTATS], c[MSP_NSTATS], big, scale[MSP_NSTATS];
    int64_t numel = npu->texts[n->shape].numel;
    stat_diff out = {false, false, 0};

    for (int i = 0; i < MSP_NSTATS; i++) {
        if (!msp_val_number(&n->stats[i], &a[i]) || !msp_val_number(&b->stats[i], &c[i]))
            return out;
        out.nonfinite = out.nonfinite || isfinite(a[i]) != isfinite(c[i]);
    }
    out.known = true;
    if (out.nonfinite) {
        out.value = INFINITY;
        return out;
    }
    big = fmax(fmax(fabs(a[MSP_STAT_MAX]), fabs(a[MSP_STAT_MIN])), fmax(fabs(c[MSP_STAT_MAX]), fabs(c[MSP_STAT_MIN])));
    scale[MSP_STAT_MAX] = scale[MSP_STAT_MIN] = big;
    scale[MSP_STAT_NORM] = fmax(fabs(a[MSP_STAT_NORM]), fabs(c[MSP_STAT_NORM]));
    scale[MSP_STAT_MEAN] = numel > 0 ? scale[MSP_STAT_NORM] / sqrt((double)numel) : big;
    for (int i = 0; i < MSP_NSTATS; i++) {
        double d = fabs(a[i] - c[i]);

        if (isfinite(d) && d > 0 && scale[i] > 0)
            out.value = fmax(out.value, d / scale[i]);
    }
    return out;
}

double
msp_verdict_row_difference(const msp_rows *npu, const msp_row *n, const msp_row *b)
{
    stat_diff d = row_difference(npu, n, b);

    return d.known ? d.value : NAN;
}

bool
msp_verdict_value_key(msp_buf *out, const msp_row *row)
{
    double v[MSP_NSTATS];

    for (int i = 0; i < MSP_NSTATS; i++)
        if (!msp_val_number(&row->stats[i], &v[i]))
            return false;
    out->len = 0;
    msp_buf_add(out, v, sizeof(v));
    msp_buf_add(out, &row->dtype, sizeof(row->dtype));
    return true;
}

static const msp_row *
partner_of(const msp_evidence_source *src, size_t row)
{
    uint32_t b = src->match->bench[row];

    return b == MATCH_NONE ? NULL : &src->bench->rows[b];
}

/* Of elements where they were compared, else of statistics. */
static stat_diff
difference_of(const msp_evidence_source *src, size_t row)
{
    stat_diff d = row_difference(src->npu, &src->npu->rows[row], partner_of(src, row));

    if (src->diffs == NULL || isnan(src->diffs[row]) || d.nonfinite)
        return d;
    return (stat_diff){true, isinf(src->diffs[row]), src->diffs[row]};
}

double
msp_evidence_difference(const msp_evidence_source *src, size_t row)
{
    stat_diff d = partner_of(src, row) == NULL ? (stat_diff){false, false, 0} : difference_of(src, row);

    return d.known ? d.value : NAN;
}

/* The largest difference among the rows of a call: all of them, or those that go in. */
static double
call_difference(const msp_evidence_source *src, const msp_row_api *api, bool all)
{
    double most = 0;

    for (size_t i = api->first; i < api->first + api->count; i++)
        if (partner_of(src, i) != NULL && !src->npu->rows[i].plain && (all || src->npu->rows[i].state < STATE_OUTPUT))
            most = fmax(most, difference_of(src, i).value);
    return most;
}

/* The record of a module, "Module.fc.Linear.backward.0", for its "Module.fc.Linear.parameters_grad"; NULL: none. */
static const msp_row_api *
module_record(const msp_evidence_source *src, const msp_map *calls, msp_str grad, const char *way, unsigned number,
              msp_buf *scratch)
{
    const char *end = msp_str_find(grad, MSP_STR(".parameters_grad"));
    msp_map_entry *e;

    msp_buf_clear(scratch);
    msp_buf_add(scratch, grad.p, end == NULL ? 0 : (size_t)(end - grad.p));
    msp_buf_printf(scratch, ".%s.%u", way, number);
    e = end == NULL || scratch->failed ? NULL : msp_map_get(calls, msp_buf_view(scratch));
    return e == NULL ? NULL : &src->npu->apis[e->value];
}

/* A parameter's gradient is a sum over all that its module took, forward and backward. */
static double
module_difference(const msp_evidence_source *src, const msp_map *calls, msp_str grad, msp_buf *scratch)
{
    const msp_row_api *f, *b;
    double most = 0;

    for (unsigned i = 0;; i++) {
        f = module_record(src, calls, grad, "forward", i, scratch);
        b = module_record(src, calls, grad, "backward", i, scratch);
        if (f == NULL && b == NULL)
            return most;
        if (f != NULL)
            most = fmax(most, call_difference(src, f, false));
        if (b != NULL)
            most = fmax(most, call_difference(src, b, false));
    }
}

const msp_row_api *
msp_evidence_forward(const msp_evidence_source *src, const msp_map *calls, msp_str name, msp_buf *scratch)
{
    msp_str stem = name;
    msp_map_entry *e;

    if (!msp_str_eq(msp_str_pop(&stem), MSP_STR("backward")))
        return NULL;
    msp_buf_clear(scratch);
    msp_buf_str(scratch, stem);
    msp_buf_text(scratch, ".forward");
    e = scratch->failed ? NULL : msp_map_get(calls, msp_buf_view(scratch));
    return e == NULL ? NULL : &src->npu->apis[e->value];
}

/* A gradient depends on what the forward call took and gave as well. */
static double
inputs_difference(const msp_evidence_source *src, const msp_map *calls, const msp_row_api *api, msp_buf *scratch)
{
    const msp_row_api *forward = msp_evidence_forward(src, calls, api->name, scratch);
    double most = call_difference(src, api, false);

    if (msp_str_find(api->name, MSP_STR(".parameters_grad")) != NULL)
        return module_difference(src, calls, api->name, scratch);
    return forward == NULL ? most : fmax(most, call_difference(src, forward, true));
}

static bool
is_float(msp_dtype t)
{
    return t == MSP_F64 || t == MSP_F32 || t == MSP_F16 || t == MSP_BF16;
}

/* A complex number is two real ones, and computed as they are. */
static msp_dtype
real_type(msp_dtype t)
{
    return t == MSP_C64 ? MSP_F32 : t == MSP_C128 ? MSP_F64 : t;
}

/* Of two types the one with fewer bits after the point: the enum is in that order. */
static msp_dtype
coarser_type(msp_dtype a, msp_dtype b)
{
    return is_float(a) && is_float(b) && b > a ? b : a;
}

/* What the tensors of a call and of its forward call tell about how it may round. */
typedef struct company {
    msp_dtype coarsest; /* of all: a part of a mixed computation is done in it */
    msp_dtype finest;   /* that goes in; MSP_DTYPE_NONE: nothing does */
    int64_t taken;      /* the most elements that go in */
} company;

static void
meet_row(company *c, const msp_evidence_source *src, size_t row)
{
    const msp_row *r = &src->npu->rows[row], *b = partner_of(src, row);
    msp_dtype type = real_type(src->npu->texts[r->dtype].dtype);
    int64_t n = src->npu->texts[r->shape].numel;

    if (r->plain || !is_float(type))
        return;
    c->coarsest = coarser_type(c->coarsest, type);
    if (b != NULL)
        c->coarsest = coarser_type(c->coarsest, real_type(src->bench->texts[b->dtype].dtype));
    if (r->state >= STATE_OUTPUT)
        return;
    if (c->finest == MSP_DTYPE_NONE || type < c->finest)
        c->finest = type;
    if (n > c->taken)
        c->taken = n;
}

/* forward may be NULL. */
static company
meet_company(const msp_evidence_source *src, const msp_row_api *api, const msp_row_api *forward)
{
    const msp_row_api *both[] = {api, forward};
    company c = {MSP_F64, MSP_DTYPE_NONE, 0};

    for (size_t k = 0; k < 2 && both[k] != NULL; k++)
        for (size_t i = both[k]->first; i < both[k]->first + both[k]->count; i++)
            meet_row(&c, src, i);
    return c;
}

/* Elements of the nth floating-point tensor that goes into a call, 0: there is none. */
static double
elements_taken(const msp_rows *npu, const msp_row_api *api, size_t nth)
{
    for (size_t i = api->first; i < api->first + api->count; i++) {
        const msp_row *r = &npu->rows[i];

        if (r->state < STATE_OUTPUT && !r->plain && is_float(npu->texts[r->dtype].dtype) && nth-- == 0)
            return (double)npu->texts[r->shape].numel;
    }
    return 0;
}

/* About how many terms each element of a product sums up: (m, k) by (k, n) gives (m, n), and a gradient is the product
 * of what came in with the other operand. 0: not known. */
static double
product_length(const msp_rows *npu, const msp_row_api *api, const msp_row_api *forward, const msp_evidence *e)
{
    bool second = msp_str_ends(e->at, MSP_STR(".1"));
    double a, b;

    if (e->nature.cls != MSP_CALL_MATMUL || e->n <= 0 || (e->nature.backward && forward == NULL))
        return 0;
    a = elements_taken(npu, api, 0);
    b = e->nature.backward ? elements_taken(npu, forward, second ? 0 : 1) : elements_taken(npu, api, 1);
    return sqrt(a * b / (double)e->n);
}

/* The largest norm among what a call took, on the bench. */
static double
inputs_norm(const msp_evidence_source *src, const msp_row_api *api)
{
    double most = 0, v;

    for (size_t i = api->first; i < api->first + api->count; i++) {
        const msp_row *b = partner_of(src, i);

        if (b != NULL && src->npu->rows[i].state < STATE_OUTPUT && msp_val_number(&b->stats[MSP_STAT_NORM], &v) &&
            isfinite(v))
            most = fmax(most, v);
    }
    return most;
}

/*
 * A sum that cancels, such as the gradient of a bias before a batch norm, consists of rounding errors: 64 roundings of
 * its terms are a generous bound for that. Terms of 16 bits are added in float32, so there 4 are: 64 would be a quarter
 * of the norm, which many a result has that is just small.
 */
static bool
cancels_to_rounding(const msp_row *n, const msp_row *b, double norm_in, msp_dtype type)
{
    double x, y, roundings = type == MSP_F32 || type == MSP_F64 ? 64 : 4;

    return msp_val_number(&n->stats[MSP_STAT_NORM], &x) && msp_val_number(&b->stats[MSP_STAT_NORM], &y) &&
           fmax(fabs(x), fabs(y)) < roundings * msp_local_roundoff(type) * norm_in;
}

/* "output.0" of "Functional.relu.0.forward.output.0". */
static msp_str
result_of(const msp_rows *rows, const msp_row *row)
{
    msp_str name = msp_row_name(row), api = rows->apis[row->api].name;

    if (name.len <= api.len + 1 || memcmp(name.p, api.p, api.len) != 0)
        return name;
    return (msp_str){name.p + api.len + 1, name.len - api.len - 1};
}

static void
fill_evidence(msp_evidence *e, const msp_evidence_source *src, size_t row, double norm_in)
{
    const msp_row *n = &src->npu->rows[row], *b = partner_of(src, row);
    stat_diff d;

    e->types[0] = e->types[1] = src->npu->texts[n->dtype].dtype;
    e->dtype = real_type(e->types[0]);
    e->n = src->npu->texts[n->shape].numel;
    e->inherited = NAN;
    e->row = row;
    if (b == NULL) {
        e->diff_in = e->diff_out = NAN;
        e->one_type = true;
        e->not_judged = "no partner";
        return;
    }
    e->bench = src->bench->apis[b->api].name;
    e->types[1] = src->bench->texts[b->dtype].dtype;
    e->one_type = e->types[1] == e->types[0];
    e->dtype = coarser_type(e->dtype, real_type(e->types[1]));
    d = difference_of(src, row);
    e->diff_out = d.value;
    e->nonfinite = d.nonfinite;
    e->tensors = src->diffs != NULL && !isnan(src->diffs[row]);
    if (!d.known)
        e->not_judged = "no statistics";
    else if (!is_float(e->dtype) && !d.nonfinite)
        e->not_judged = "no floating-point numbers";
    else if (!d.nonfinite && e->nature.sums && cancels_to_rounding(n, b, norm_in, e->dtype))
        e->not_judged = "cancels to rounding";
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static bool
is_discrete(const msp_rows *t, const msp_row *r)
{
    msp_dtype d = t->texts[r->dtype].dtype;

    return !r->plain && d != MSP_DTYPE_NONE && msp_local_roundoff(d) == 0 && d != MSP_C64 && d != MSP_C128;
}

static const msp_flip *
flip_of(const msp_evidence_source *src, const msp_row_api *api, size_t *next)
{
    const msp_flip *worst = NULL;

    while (*next < src->nflips && src->flips[*next].row < api->first)
        ++*next;
    for (size_t i = *next; i < src->nflips && src->flips[i].row < api->first + api->count; i++)
        if (worst == NULL || src->flips[i].flip.miss > worst->miss)
            worst = &src->flips[i].flip;
    return worst;
}

/* ---- calls that stand for others --------------------------------------------------------------------------------- */

static stat_diff
end_difference(const msp_evidence_source *src, const msp_replaced_end *end)
{
    stat_diff d = row_difference(src->npu, &src->npu->rows[end->npu], &src->bench->rows[end->bench]);

    return isnan(end->diff) || d.nonfinite ? d : (stat_diff){true, isinf(end->diff), end->diff};
}

/* The largest difference among what goes into the block; NaN: nothing that does could be compared. */
static double
taken_difference(const msp_evidence_source *src, const msp_replacement *r)
{
    double most = NAN;

    for (size_t i = r->first_end; i < r->first_end + r->nends; i++) {
        const msp_replaced_end *end = &src->replaced->ends[i];
        stat_diff d = end_difference(src, end);

        if (end->input && d.known)
            most = fmax(most, d.value);
    }
    return most;
}

static void
fill_replaced(msp_evidence *e, const msp_evidence_source *src, const msp_replacement *r, const msp_replaced_end *end)
{
    const msp_row *n = &src->npu->rows[end->npu], *b = &src->bench->rows[end->bench];
    stat_diff d = end_difference(src, end);
    double in = taken_difference(src, r);
    msp_str api = src->npu->apis[r->last[0]].name;

    *e = (msp_evidence){.name = api.p,
                        .name_len = api.len,
                        .bench = src->bench->apis[r->last[1]].name,
                        .at = result_of(src->npu, n),
                        .call = r->last[0],
                        .slot = UINT32_MAX,
                        .nature.cls = r->products ? MSP_CALL_MATMUL : MSP_CALL_VECTOR,
                        .types = {src->npu->texts[n->dtype].dtype, src->bench->texts[b->dtype].dtype},
                        .n = src->npu->texts[n->shape].numel,
                        .diff_in = in,
                        .diff_out = d.value,
                        .tensors = !isnan(end->diff),
                        .nonfinite = d.nonfinite,
                        .inherited = NAN,
                        .instead = {src->npu->apis[r->first[0]].name, src->bench->apis[r->first[1]].name},
                        .steps = r->ncalls[0] > r->ncalls[1] ? r->ncalls[0] : r->ncalls[1]};
    e->dtype = e->coarsest = coarser_type(e->types[0], e->types[1]);
    e->one_type = e->types[0] == e->types[1];
    if (!d.known)
        e->not_judged = "no statistics";
    else if (!is_float(e->dtype))
        e->not_judged = "no floating-point numbers";
    else if (isnan(in))
        e->not_judged = "nothing that these calls take has a partner";
}

/* The results of a block, after those of its last call. */
static void
add_replaced(msp_evidence_list *out, const msp_evidence_source *src, size_t *next, uint32_t call)
{
    const msp_replaced *all = src->replaced;

    while (all != NULL && *next < all->count && all->items[*next].last[0] < call)
        ++*next;
    if (all == NULL || *next == all->count || all->items[*next].last[0] != call)
        return;
    for (size_t i = 0; i < all->items[*next].nends; i++) {
        const msp_replaced_end *end = &all->ends[all->items[*next].first_end + i];

        if (!end->input)
            fill_replaced(&out->items[out->count++], src, &all->items[*next], end);
    }
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* What all results of a call have in common. */
typedef struct call_facts {
    const msp_row_api *api, *forward; /* forward: of a backward call; NULL: none was recorded */
    uint32_t number;
    double in, norm_in; /* as diff_in and norm_in of evidence */
    const msp_flip *flip;
    company company;
} call_facts;

/* Why nothing can be said about a result whose difference is known; NULL: it can. */
static const char *
excuse_of(const msp_evidence *e)
{
    bool step = msp_decision_of(msp_verdict_operation(msp_evidence_name(e))) == MSP_DECIDES_STEP;

    if (step && e->diff_in > 0 && e->diff_out > 0)
        return "a step, which the least difference may turn over";
    if (e->nature.hands_on && e->nature.backward && e->slot > 0)
        return "a gradient of the call before";
    return e->nature.chance ? "random: its numbers depend on chance" : NULL;
}

static void
fill_result(msp_evidence *e, const msp_evidence_source *src, const call_facts *c, size_t row, uint32_t slot)
{
    msp_str name = c->api->name;

    *e = (msp_evidence){.name = name.p,
                        .name_len = name.len,
                        .at = result_of(src->npu, &src->npu->rows[row]),
                        .call = c->number,
                        .slot = slot,
                        .diff_in = c->in,
                        .norm_in = c->norm_in,
                        .flip = c->flip,
                        .chose = is_discrete(src->npu, &src->npu->rows[row])};
    e->nature = msp_verdict_nature(name, e->at);
    fill_evidence(e, src, row, c->norm_in);
    e->nature.rounds_once = e->nature.rounds_once && is_float(e->types[0]); /* a complex product is four */
    e->coarsest = coarser_type(e->dtype, c->company.coarsest);
    e->casts = is_float(c->company.finest) && coarser_type(c->company.finest, e->dtype) != c->company.finest;
    e->half_known = e->nature.backward && c->forward == NULL && msp_str_ends(name, MSP_STR(".backward"));
    e->terms = e->n > 0 ? (double)c->company.taken / (double)e->n : 0;
    e->length = product_length(src->npu, c->api, c->forward, e);
    if (e->flip != NULL && e->chose && !e->nonfinite)
        e->not_judged = msp_flip_is_wrong(e->flip) ? NULL : "a choice that fell the other way within the error";
    if (e->not_judged == NULL)
        e->not_judged = excuse_of(e);
}

static msp_status
collect_evidence(msp_evidence_list *out, const msp_evidence_source *src, const msp_map *calls, msp_error *err)
{
    msp_buf scratch = {0};
    size_t next = 0, next_flip = 0; /* of the blocks, of the choices */
    bool failed;

    for (uint32_t a = 0; a < src->npu->napis; a++) {
        const msp_row_api *api = &src->npu->apis[a];
        const msp_row_api *forward = msp_evidence_forward(src, calls, api->name, &scratch);
        const msp_row_api *gave = module_record(src, calls, api->name, "backward", 0, &scratch);
        call_facts c = {.api = api,
                        .forward = forward,
                        .number = a,
                        .in = inputs_difference(src, calls, api, &scratch),
                        .norm_in = inputs_norm(src, gave != NULL ? gave : api),
                        .flip = flip_of(src, api, &next_flip),
                        .company = meet_company(src, api, forward)};
        uint32_t slot = 0;

        for (size_t i = api->first; i < api->first + api->count; i++)
            if (src->npu->rows[i].state >= STATE_OUTPUT)
                fill_result(&out->items[out->count++], src, &c, i, slot++);
        add_replaced(out, src, &next, a);
    }
    failed = scratch.failed;
    msp_buf_release(&scratch);
    return failed ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;
}

msp_status
msp_evidence_from_rows(msp_evidence_list *out, const msp_evidence_source *src, msp_error *err)
{
    const msp_rows *npu = src->npu;
    msp_map calls = {0};
    msp_status st = MSP_OK;
    bool added;

    *out = (msp_evidence_list){0};
    out->items =
        msp_alloc_zero(npu->count + (src->replaced != NULL ? src->replaced->nends : 0) + 1, sizeof(*out->items));
    if (out->items == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (size_t a = 0; a < npu->napis && st == MSP_OK; a++)
        if (msp_map_put(&calls, npu->apis[a].name, (int64_t)a, &added) == NULL)
            st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (st == MSP_OK)
        st = collect_evidence(out, src, &calls, err);
    msp_map_release(&calls);
    return st;
}

void
msp_evidence_release(msp_evidence_list *list)
{
    msp_free(list->items);
    msp_free(list->starts);
    *list = (msp_evidence_list){0};
}
