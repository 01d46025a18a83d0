/*
 * flow.c - the statistics of tensors from call to call. Each of the four tells how large the errors of single elements
 * may be between the runs; the largest of what a call takes is what its results may differ by. Some calls hide that:
 * the norm of what a layer norm gives is always the same, and a mask of -1e9 leaves nothing of a maximum. So a value
 * that such a call gives keeps the noise of what it was made from, for whoever takes it: values are told by their
 * statistics.
 */
#include "compare/verdict/flow.h"

#include <math.h>
#include "core/alloc.h"
#include "core/arena.h"

typedef struct value {
    double hidden;  /* noise of an element that its statistics do not show; absolute */
    uint32_t maker; /* the last call that gave it, before views; MSP_NO_CALL: none did */
    bool chosen;    /* made by a choice that fell the other way */
} value;

/* Shapes of truth values that numbers have made which differ, and whose elements nobody knows: do they differ, too? */
typedef struct doubtful {
    uint32_t shapes[16];
    size_t count;
} doubtful;

typedef struct flow {
    const msp_evidence_source *src;
    doubtful unknown;
    msp_map calls; /* name -> number */
    msp_map known; /* statistics -> number of the value */
    msp_arena keys;
    msp_buf scratch;
    value *values;
    size_t count;
    bool as_many; /* the call has as many rows on both sides: what has no partner has another shape */
    bool failed;
} flow;

/* What a call takes. */
typedef struct taken {
    double noise, absolute; /* of an element, relative to its tensor's largest, and as it is */
    double from_forward;    /* the latter, of what the forward call of a backward call took */
    double least;     /* smallest magnitude in what the call, or its forward call, took last; 0: it has any sign */
    double spread;    /* of the forward call's first tensor: norm of what is left without its mean */
    double forward_n; /* its elements; 0: there is none */
    double gave;      /* the largest magnitude that the forward call gave */
    double big;
    double norm, n; /* of its first tensor: of a backward call the gradient that comes in */
    double turned;  /* relative noise that the function makes of the absolute one of what it takes */
    bool broken, chosen;
    const char *flipped;    /* it takes a choice that differs, or may: why its results tell nothing; NULL: no */
    uint32_t first, latest; /* who made its first tensor, and who made the one made last */
} taken;

/* ---- kinds of calls ---------------------------------------------------------------------------------------------- */

bool
msp_flow_is_view(msp_str op)
{
    static const char *const list[] = {"reshape",   "transpose", "permute", "view",    "contiguous", "flatten",
                                       "unflatten", "squeeze",   "t",       "movedim", "swapaxes",   "unsqueeze",
                                       "float",     "to",        "type_as", "flip",    "roll",       "clone"};

    return MSP_STR_IS_ONE_OF(op, list);
}

bool
msp_flow_is_parts(msp_str op)
{
    static const char *const list[] = {"chunk", "split", "unbind", "cat", "concat", "stack", "tensor_split"};

    return MSP_STR_IS_ONE_OF(op, list);
}

static bool
hands_elements_on(msp_str op)
{
    static const char *const list[] = {"expand", "repeat", "repeat_interleave", "getitem"};

    return msp_flow_is_view(op) || msp_flow_is_parts(op) || MSP_STR_IS_ONE_OF(op, list);
}

static bool
is_norm(msp_str op)
{
    static const char *const list[] = {"layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm"};

    return MSP_STR_IS_ONE_OF(op, list);
}

/* A relative error of the result is an absolute one of the input: also of an angle, whose result is one at most. */
static bool
is_exponential(msp_str op)
{
    static const char *const list[] = {"softmax", "log_softmax", "logsumexp",   "exp", "cross_entropy",
                                       "sigmoid", "exp2",        "expm1",       "sin", "cos",
                                       "polar",   "tan",         "logcumsumexp"};

    return MSP_STR_IS_ONE_OF(op, list);
}

/* An absolute error of the result is an absolute one of the input. */
static bool
is_logarithmic(msp_str op)
{
    static const char *const list[] = {"log_softmax", "logsumexp", "cross_entropy", "nll_loss", "logcumsumexp"};

    return MSP_STR_IS_ONE_OF(op, list);
}

/* Near a tie or a corner the gradient takes another way altogether. */
static bool
chooses_elements(msp_str op)
{
    static const char *const list[] = {"relu",       "relu6",      "leaky_relu", "amax", "amin",    "max",
                                       "min",        "max_pool1d", "max_pool2d", "abs",  "maximum", "minimum",
                                       "max_pool3d", "hardtanh",   "clamp",      "sort", "topk"};

    return MSP_STR_IS_ONE_OF(op, list);
}

/*
 * Near zero these functions make much of little: by how much the relative noise of the largest element grows for the
 * smallest, as a power of how much smaller that is. 0: another function.
 */
static double
power_at_zero(msp_str op)
{
    static const char *const once[] = {"log", "log2", "log10", "div", "true_divide", "truediv", "reciprocal", "rsqrt"};

    return MSP_STR_IS_ONE_OF(op, once) ? 1 : msp_str_eq(op, MSP_STR("sqrt")) ? 0.5 : 0;
}

static bool
is_addition(msp_str op)
{
    static const char *const list[] = {"add", "sub", "iadd", "isub", "radd", "rsub"};

    return MSP_STR_IS_ONE_OF(op, list);
}

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

static void
measure_noise(msp_tensor_pair *t)
{
    const double *a = t->stats[0], *b = t->stats[1];

    for (int i = 0; i <= MSP_STAT_MIN; i++)
        if (isfinite(a[i]) && isfinite(b[i]))
            t->big = fmax(t->big, fmax(fabs(a[i]), fabs(b[i])));
    if (isfinite(a[MSP_STAT_NORM]) && isfinite(b[MSP_STAT_NORM]))
        t->norm = fmax(a[MSP_STAT_NORM], b[MSP_STAT_NORM]);
    for (int i = 0; i < MSP_NSTATS; i++) {
        double d = isfinite(a[i]) && isfinite(b[i]) ? fabs(a[i] - b[i]) : 0;

        t->differs = t->differs || d > 0;
        if (i == MSP_STAT_MEAN)
            t->noise[i] = t->norm > 0 ? d * t->n / t->norm : 0;
        else
            t->noise[i] = t->big > 0 ? d / t->big : 0;
        t->most = fmax(t->most, t->noise[i]);
    }
    if (t->number && t->differs) /* what differs at all was rounded otherwise */
        t->most = fmax(t->most, t->unit / 2);
}

msp_tensor_pair
msp_flow_pair(const msp_evidence_source *src, size_t row)
{
    const msp_row *r = &src->npu->rows[row];
    uint32_t partner = src->match->bench[row];
    const msp_row *b = partner == MATCH_NONE ? NULL : &src->bench->rows[partner];
    int64_t n = src->npu->texts[r->shape].numel;
    msp_tensor_pair t = {0};

    t.alone = b == NULL && !r->plain;
    if (b == NULL || r->plain)
        return t;
    t.resized = !msp_str_eq(msp_row_shape(src->npu, r), msp_row_shape(src->bench, b));
    for (int i = 0; i < MSP_NSTATS; i++) {
        if (!msp_val_number(&r->stats[i], &t.stats[0][i]) || !msp_val_number(&b->stats[i], &t.stats[1][i]))
            return t;
        t.one_side = t.one_side || isfinite(t.stats[0][i]) != isfinite(t.stats[1][i]);
    }
    t.known = n > 0 && !t.resized;
    t.n = (double)n;
    t.unit = fmax(msp_local_roundoff(src->npu->texts[r->dtype].dtype),
                  msp_local_roundoff(src->bench->texts[b->dtype].dtype));
    t.number = t.unit > 0;
    measure_noise(&t);
    return t;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* What is known of a row's value; NULL: it has no statistics, or there is no memory. */
static value *
value_of(flow *f, size_t row)
{
    msp_map_entry *entry;
    char *key;

    if (!msp_verdict_value_key(&f->scratch, &f->src->npu->rows[row]))
        return NULL;
    entry = f->scratch.failed ? NULL : msp_map_get(&f->known, msp_buf_view(&f->scratch));
    if (entry == NULL && !f->scratch.failed) {
        key = msp_arena_text(&f->keys, f->scratch.p, f->scratch.len);
        if (key != NULL)
            entry = msp_map_put(&f->known, (msp_str){key, f->scratch.len}, (int64_t)f->count, NULL);
        if (entry != NULL)
            f->values[f->count++] = (value){0, MSP_NO_CALL, false};
    }
    f->failed = f->failed || entry == NULL;
    return entry == NULL ? NULL : &f->values[entry->value];
}

/* ---- what a call takes ------------------------------------------------------------------------------------------- */

static uint32_t
later_call(uint32_t a, uint32_t b)
{
    return a == MSP_NO_CALL ? b : b == MSP_NO_CALL || a > b ? a : b;
}

/* Of the smallest element, where all have one sign; else 0. */
static double
least_magnitude(const msp_tensor_pair *t)
{
    double least = INFINITY;

    for (int i = 0; i < 2; i++) {
        double low = t->stats[i][MSP_STAT_MIN], high = t->stats[i][MSP_STAT_MAX];

        least = fmin(least, low > 0 ? low : high < 0 ? -high : 0);
    }
    return isfinite(least) ? least : 0;
}

static bool
is_discrete(const flow *f, size_t row)
{
    const msp_row *r = &f->src->npu->rows[row];
    msp_dtype d = f->src->npu->texts[r->dtype].dtype;

    return !r->plain && d != MSP_DTYPE_NONE && msp_local_roundoff(d) == 0;
}

/* What a choice has made of numbers that differ, where that cannot be seen. */
static void
note_doubtful(flow *f, const msp_row_api *api)
{
    if (msp_decision_of(msp_verdict_operation(api->name)) == MSP_DECIDES_NOTHING)
        return;
    for (size_t i = api->first; i < api->first + api->count; i++)
        if (f->src->npu->rows[i].state == STATE_OUTPUT && is_discrete(f, i) &&
            isnan(msp_evidence_difference(f->src, i)))
            f->unknown.shapes[f->unknown.count++ % 16] = f->src->npu->rows[i].shape;
}

static bool
is_doubtful(const doubtful *d, uint32_t shape)
{
    for (size_t i = 0; i < d->count && i < 16; i++)
        if (d->shapes[i] == shape)
            return true;
    return false;
}

/* Positions or truth values that differ between the runs, or may: why what takes them tells nothing; NULL: no. */
static const char *
flip_in(const flow *f, size_t row)
{
    double diff;

    if (!is_discrete(f, row) || f->src->match->bench[row] == MATCH_NONE)
        return NULL;
    diff = msp_evidence_difference(f->src, row);
    if (isnan(diff) && is_doubtful(&f->unknown, f->src->npu->rows[row].shape))
        return "it takes a choice of which statistics do not tell whether it fell the other way";
    return diff > 0 ? "it takes a choice that fell the other way" : NULL;
}

static void
take_row(taken *in, flow *f, size_t row, bool forward)
{
    msp_tensor_pair t = msp_flow_pair(f->src, row);
    const value *v = t.known ? value_of(f, row) : NULL;
    double hidden, absolute;
    bool input = f->src->npu->rows[row].state < STATE_OUTPUT;

    if (input && in->flipped == NULL)
        in->flipped = flip_in(f, row);
    in->chosen = in->chosen || t.resized || (t.alone && f->as_many);
    in->broken = in->broken || t.one_side;
    if (v == NULL || t.one_side)
        return;
    in->chosen = in->chosen || (!t.number && t.big > 0 && (t.differs || v->chosen));
    if (!t.number)
        return;
    hidden = v->hidden;
    absolute = fmax(fmax(t.noise[MSP_STAT_MAX], t.noise[MSP_STAT_MIN]), t.differs ? t.unit / 2 : 0) * t.big;
    absolute = fmax(absolute, hidden);
    in->noise = fmax(in->noise, fmax(t.most, t.big > 0 ? hidden / t.big : 0));
    if (input)
        in->least = least_magnitude(&t);
    if (forward && input && in->forward_n == 0) {
        double mean = t.stats[0][MSP_STAT_MEAN];

        in->forward_n = t.n;
        in->spread = sqrt(fmax(0, t.norm * t.norm - t.n * mean * mean));
    }
    if (forward && !input)
        in->gave = fmax(in->gave, t.big);
    if (forward && input)
        in->from_forward = fmax(in->from_forward, absolute);
    if (forward)
        return;
    if (in->n == 0) {
        in->norm = t.norm;
        in->n = t.n;
    }
    in->absolute = fmax(in->absolute, absolute);
    in->big = fmax(in->big, t.big);
    if (in->latest == MSP_NO_CALL && in->first == MSP_NO_CALL)
        in->first = v->maker;
    in->latest = later_call(in->latest, v->maker);
}

static bool
has_as_many(const flow *f, const msp_row_api *api)
{
    for (size_t i = api->first; i < api->first + api->count; i++) {
        uint32_t partner = f->src->match->bench[i];

        if (partner != MATCH_NONE)
            return f->src->bench->apis[f->src->bench->rows[partner].api].count == api->count;
    }
    return true;
}

static taken
take_inputs(flow *f, const msp_row_api *api, msp_str op)
{
    taken in = {.first = MSP_NO_CALL, .latest = MSP_NO_CALL};
    const msp_row_api *forward = msp_evidence_forward(f->src, &f->calls, api->name, &f->scratch);
    double absolute;

    f->failed = f->failed || f->scratch.failed;
    f->as_many = has_as_many(f, api);
    for (size_t i = api->first; i < api->first + api->count; i++)
        if (f->src->npu->rows[i].state < STATE_OUTPUT)
            take_row(&in, f, i, false);
    for (size_t i = 0; forward != NULL && i < forward->count; i++)
        take_row(&in, f, forward->first + i, true);
    absolute = forward != NULL ? in.from_forward : in.absolute;
    if (is_exponential(op))
        in.turned = fmin(absolute, 1);
    if (power_at_zero(op) > 0 && in.least > 0) /* the absolute noise, of the smallest element */
        in.turned = fmin(pow(absolute / in.least, power_at_zero(op)), 1);
    in.noise = fmax(in.noise, in.turned);
    return in;
}

/* ---- what it gives ----------------------------------------------------------------------------------------------- */

/* Relative to what may have cancelled. */
static double
noise_of_logarithm(const taken *in, const msp_tensor_pair *t, msp_str op, bool backward)
{
    return !backward && is_logarithmic(op) && t->big > 0 ? (in->absolute + 4 * t->unit * in->big) / t->big : 0;
}

static double
noise_of_result(const taken *in, const msp_tensor_pair *t, msp_str op, bool backward)
{
    if (backward &&
        chooses_elements(op)) /* a share of the elements, and of the energy, that is as large as the noise */
        return fmax(in->noise, fmin(sqrt(in->noise), 1));
    return fmax(in->noise, noise_of_logarithm(in, t, op, backward));
}

/* Noise that the result keeps where its statistics do not show it. */
static double
hidden_in_result(const taken *in, double noise, const msp_tensor_pair *t, msp_str op, bool move, bool backward)
{
    if (in->chosen)
        return t->big;
    if (is_norm(op) || (backward && chooses_elements(op)))
        return fmin(noise, 1) * t->big;
    if (backward)
        return move || is_addition(op) ? fmin(noise, 1) * t->big : 0;
    return move || is_addition(op) ? in->absolute : 0;
}

static void
give_row(flow *f, const msp_row_api *api, const taken *in, size_t row, uint32_t maker, double *noise)
{
    msp_str op = msp_verdict_operation(api->name);
    bool backward = msp_str_ends(api->name, MSP_STR(".backward"));
    msp_tensor_pair t = msp_flow_pair(f->src, row);
    value *v = value_of(f, row);

    *noise = noise_of_result(in, &t, op, backward);
    if (v == NULL)
        return;
    v->maker = maker;
    v->chosen = v->chosen || (in->chosen && !t.number);
    if (t.known && t.number)
        v->hidden = fmax(v->hidden, hidden_in_result(in, *noise, &t, op, msp_verdict_is_move(op), backward));
}

/*
 * Terms may cancel while their noise stays: of a gradient that is summed up, as that of a bias; of a softmax's, of
 * which a mean is taken off; of a difference.
 */
static double
amplification(const taken *in, const msp_evidence *e, const msp_tensor_pair *t)
{
    enum { PART = 4, MOST = 1000 }; /* a few times that is within the limit */
    static const char *const centred[] = {"softmax", "log_softmax"};
    msp_str op = msp_verdict_operation(msp_evidence_name(e));
    bool norm_gradient = e->nature.backward && is_norm(op) && t->n == in->forward_n && in->spread > 0;
    double norm = in->norm;
    bool summed = e->nature.backward && e->nature.cls == MSP_CALL_VECTOR && t->n < in->n;
    bool cancels = e->nature.backward ? summed || MSP_STR_IS_ONE_OF(op, centred) : is_addition(op);

    if (e->nature.backward && msp_str_eq(op, MSP_STR("softmax")) &&
        in->gave > 0) /* times the result, then a mean off */
        norm *= fmin(in->gave, 1);
    if (norm_gradient) /* divided by the deviation; then its mean and its part along the result are taken off */
        norm *= sqrt(in->forward_n) / in->spread;
    return (cancels || norm_gradient) && t->norm > 0 ? fmin(fmax(norm / t->norm / PART, 1), MOST) : 1;
}

static void
see_result(flow *f, msp_evidence *e, const taken *in, double noise)
{
    msp_tensor_pair t = msp_flow_pair(f->src, e->row);
    msp_str op = msp_verdict_operation(msp_evidence_name(e));

    e->seen = (msp_seen){.known = t.known && t.number && !t.one_side && t.big > 0 && t.norm > 0,
                         .chosen = in->chosen || t.resized,
                         .broken = in->broken,
                         .big = t.big,
                         .norm = t.norm,
                         .law = -1,
                         .normed = is_norm(op),
                         .maker = in->latest,
                         .gain = amplification(in, e, &t),
                         .turned = fmax(in->turned, noise_of_logarithm(in, &t, op, e->nature.backward)),
                         .corner = e->nature.backward && chooses_elements(op)};
    e->seen.taken = noise * e->seen.gain;
    memcpy(e->seen.noise, t.noise, sizeof(t.noise));
    if (e->not_judged == NULL && !e->nonfinite && !e->chose)
        e->not_judged = in->flipped;
    if (e->not_judged == NULL && !e->nonfinite && !e->tensors && e->seen.chosen)
        e->not_judged = "indices, masks or shapes that it took are others";
    if (e->nature.backward && (e->nature.family == MSP_FAMILY_PRODUCT || e->nature.family == MSP_FAMILY_CONVOLUTION))
        e->seen.maker = in->first;
}

static void
walk_call(flow *f, msp_evidence_list *list, size_t *next, uint32_t number)
{
    const msp_row_api *api = &f->src->npu->apis[number];
    msp_str op = msp_verdict_operation(api->name);
    taken in = take_inputs(f, api, op);
    uint32_t maker = hands_elements_on(op) && in.latest != MSP_NO_CALL ? in.latest : number;
    size_t nth = 0;

    if (in.noise > 0)
        note_doubtful(f, api);
    for (size_t i = api->first; i < api->first + api->count && !f->failed; i++) {
        double noise;
        msp_evidence *e;

        if (f->src->npu->rows[i].state < STATE_OUTPUT)
            continue;
        give_row(f, api, &in, i, maker, &noise);
        while (*next < list->count && list->items[*next].row < i)
            ++*next;
        e = *next < list->count && list->items[*next].row == i ? &list->items[*next] : NULL;
        if (e == NULL)
            continue;
        see_result(f, e, &in, noise);
        if (e->seen.known)
            msp_law_check(&e->seen, f->src, api, i, nth++);
    }
}

msp_status
msp_evidence_see(msp_evidence_list *list, const msp_evidence_source *src, msp_error *err)
{
    flow f = {.src = src, .values = msp_alloc_zero(src->npu->count + 1, sizeof(value))};
    size_t next = 0;

    f.failed = f.values == NULL;
    for (size_t a = 0; a < src->npu->napis && !f.failed; a++)
        f.failed = msp_map_put(&f.calls, src->npu->apis[a].name, (int64_t)a, NULL) == NULL;
    for (size_t a = 0; a < src->npu->napis && !f.failed; a++)
        walk_call(&f, list, &next, (uint32_t)a);
    msp_map_release(&f.calls);
    msp_map_release(&f.known);
    msp_arena_release(&f.keys);
    msp_buf_release(&f.scratch);
    msp_free(f.values);
    return f.failed ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;
}
