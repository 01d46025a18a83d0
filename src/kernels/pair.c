/*
 * pair.c - msp_metrics_compute(): the way of two tensors through the kernels of pair.h.
 *
 * The tensors are cut into at most MAX_CHUNKS chunks and those into blocks; where the cuts are depends on the number of
 * elements alone. A chunk adds up its blocks in order, the chunks are added up in order, and threads only decide who
 * computes which chunk: hence the same bits for any number of them.
 *
 * A block is first run through the shortest loop there is, which assumes that all is finite and no reference is 0; the
 * sums tell when that was wrong, and the block is run again. Where the largest errors stand is looked for once, at the
 * end, in the blocks that have them.
 */
#include <math.h>
#include "core/pool.h"
#include "dtype/convert.h"
#include "kernels/fpmode.h"
#include "kernels/pair_load.h"
#include "msprobe/metrics.h"

enum {
    MAX_CHUNKS = 128,       /* more than there are threads, few enough to keep their results on the stack */
    MIN_CHUNK = 32 * 1024,  /* elements: some ten microseconds */
    THREADS_FROM = 1 << 18, /* elements: waking a thread takes as long as a tenth of the work */
    EXACT_MEAN_UP_TO = 256, /* elements: with more of them, errors of 2^-25 in single quotients average out */
    DOUBLE_UP_TO = 1 << 16  /* elements: up to that many, 16-bit floats are added up in double too */
};

/* What a chunk comes to. */
typedef struct partial {
    double dot, sq_n, sq_b, sq_d, rel;
    double max_abs, max_rel;      /* -1: none yet */
    int64_t abs_block, rel_block; /* where the block begins that has it */
    int64_t below_1e3, below_5e3, zeros, inf_sign, mismatches, first_mismatch, nonfinite;
} partial;

static const partial no_elements = {.max_abs = -1,
                                    .max_rel = -1,
                                    .abs_block = -1,
                                    .rel_block = -1,
                                    .first_mismatch = -1};

typedef struct job {
    msp_pair_view view;
    bool brief;
    int64_t chunk; /* elements per chunk */
    partial parts[MAX_CHUNKS];
    msp_pair_block last; /* of a tensor that is one block: as run_chunk() left it, in scratch */
    msp_pair_scratch scratch;
} job;

static bool
is_one_block(const msp_pair_view *v)
{
    return v->numel <= v->block;
}

static void
raise_max(double *max, int64_t *where, double value, int64_t start)
{
    if (value > *max) {
        *max = value;
        *where = start;
    }
}

/* ---- one block --------------------------------------------------------------------------------------------------- */

static void
sums_of(msp_pair_sums *out, const msp_pair_view *v, const msp_pair_block *block, bool zeros)
{
    unsigned flags = block->flags | (zeros ? MSP_PAIR_ZEROS : 0);

    if (block->kind >= MSP_PAIR_VECTOR_KINDS)
        msp_pair_plain_sums(out, block->kind, block->n, block->b, block->count);
    else
        v->set->sums[block->kind](out, block->n, block->b, block->count, flags);
}

static bool
is_half(const msp_pair_block *block)
{
    return block->kind == MSP_PAIR_F16 || block->kind == MSP_PAIR_BF16;
}

/*
 * Whether float32 held the sums of a block of 16-bit floats; all of them bfloat16's matter but for the second. Below
 * 2^-110 squares that got lost in the least numbers of float32 could tell in the sum; 0 is right where nothing is not
 * 0. And where one norm is much larger than the other its rounding would drown n*b: see half_state.
 */
static bool
is_precise(const msp_pair_sums *s, size_t count)
{
    const double least = 0x1p-110;
    bool nothing = s->max_abs == 0 && s->zeros == (int64_t)count;

    return isfinite(s->sq_d) && s->sq_n <= 16 * s->sq_b && s->sq_b <= 16 * s->sq_n &&
           ((s->sq_n >= least && s->sq_b >= least) || nothing) && (s->sq_d >= least || s->max_abs == 0);
}

/*
 * The sums of a block whatever is in it. *zeros says whether to expect zeros in b; it is kept up to date, since zeros
 * come in whole regions (what ReLU or a mask leaves).
 */
static void
careful_sums(msp_pair_sums *out, msp_pair_block *block, bool *zeros, msp_pair_bad *bad, const msp_pair_view *v,
             msp_pair_scratch *s)
{
    *bad = (msp_pair_bad){0};
    if (v->numel <= DOUBLE_UP_TO)
        msp_pair_widen(block, v, s);
    sums_of(out, v, block, *zeros);
    if (!isfinite(out->sq_n + out->sq_b) && block->kind != MSP_PAIR_I128) {
        msp_pair_clean(block, bad, v, s);
        sums_of(out, v, block, true);
    } else if (!isfinite(out->rel) && !*zeros) {
        sums_of(out, v, block, true);
    }
    *zeros = out->zeros > 0;
    if (is_half(block) && !is_precise(out, block->count)) {
        msp_pair_widen(block, v, s);
        sums_of(out, v, block, true);
    }
}

/* The sum of relative errors where that in single quotients does not do. */
static void
exact_rel_sum(msp_pair_sums *sums, msp_pair_block *block, const msp_pair_view *v, msp_pair_scratch *s)
{
    if (block->kind < MSP_PAIR_F64 && (!isfinite(sums->rel) || v->numel <= EXACT_MEAN_UP_TO)) {
        msp_pair_widen(block, v, s);
        sums->rel = v->set->rel_sum(block->n, block->b, block->count);
    }
}

/* The block's largest |d| if it exceeds floor, else anything up to floor. */
static double
exact_max_abs(const msp_pair_sums *sums, msp_pair_block *block, double floor, const msp_pair_view *v,
              msp_pair_scratch *s)
{
    if (!is_half(block) || sums->max_rel < MSP_PAIR_HALF_EXACT)
        return sums->max_abs;
    if (sums->max_abs * (1 + 0x1p-23) <= floor)
        return floor;
    msp_pair_widen(block, v, s);
    return v->set->max_abs(block->n, block->b, block->count);
}

/* The block's largest relative error if it exceeds floor, else anything up to floor. */
static double
exact_max_rel(const msp_pair_sums *sums, msp_pair_block *block, double floor, const msp_pair_view *v,
              msp_pair_scratch *s)
{
    bool half = block->kind == MSP_PAIR_F16 || (block->flags & MSP_PAIR_HALF) != 0;
    double rel = sums->max_rel;

    if (half && rel < MSP_PAIR_HALF_EXACT)
        return msp_f16_to_f32(msp_f32_to_f16((float)rel));
    if (block->kind >= MSP_PAIR_F64 || (!half && isfinite(rel)))
        return rel;
    if (rel * (1 + 0x1p-8) <= floor)
        return floor;
    msp_pair_widen(block, v, s);
    return v->set->max_rel(block->n, block->b, block->count, half);
}

static void
add_block(partial *p, const msp_pair_sums *sums, const msp_pair_bad *bad, int64_t start)
{
    p->dot += sums->dot;
    p->sq_n += sums->sq_n;
    p->sq_b += sums->sq_b;
    p->sq_d += sums->sq_d;
    p->rel += sums->rel;
    p->below_1e3 += sums->below_1e3;
    p->below_5e3 += sums->below_5e3;
    p->zeros += sums->zeros;
    p->inf_sign += bad->inf_sign;
    p->nonfinite += bad->nonfinite;
    if (bad->mismatches > 0 && p->first_mismatch < 0)
        p->first_mismatch = start + (int64_t)bad->first_mismatch;
    p->mismatches += bad->mismatches;
}

static int64_t
min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void
run_chunk(size_t index, void *payload)
{
    job *j = payload;
    const msp_pair_view *v = &j->view;
    int64_t start = (int64_t)index * j->chunk, end = min_i64(v->numel, start + j->chunk);
    partial *p = &j->parts[index];
    msp_pair_scratch own, *scratch = is_one_block(v) ? &j->scratch : &own;
    bool zeros = false;
    msp_fpmode mode;

    msp_fpmode_enter(&mode);
    *p = no_elements;
    for (; start < end; start += v->block) {
        msp_pair_block block;
        msp_pair_sums sums;
        msp_pair_bad bad;

        msp_pair_load(&block, v, scratch, start, (size_t)min_i64(v->block, end - start));
        careful_sums(&sums, &block, &zeros, &bad, v, scratch);
        if (!j->brief)
            exact_rel_sum(&sums, &block, v, scratch);
        raise_max(&p->max_abs, &p->abs_block, exact_max_abs(&sums, &block, p->max_abs, v, scratch), start);
        raise_max(&p->max_rel, &p->rel_block, exact_max_rel(&sums, &block, p->max_rel, v, scratch), start);
        add_block(p, &sums, &bad, start);
        if (is_one_block(v))
            j->last = block;
    }
    msp_fpmode_leave(&mode);
}

/* ---- all chunks -------------------------------------------------------------------------------------------------- */

static void
add_chunk(partial *sum, const partial *p)
{
    sum->dot += p->dot;
    sum->sq_n += p->sq_n;
    sum->sq_b += p->sq_b;
    sum->sq_d += p->sq_d;
    sum->rel += p->rel;
    raise_max(&sum->max_abs, &sum->abs_block, p->max_abs, p->abs_block);
    raise_max(&sum->max_rel, &sum->rel_block, p->max_rel, p->rel_block);
    sum->below_1e3 += p->below_1e3;
    sum->below_5e3 += p->below_5e3;
    sum->zeros += p->zeros;
    sum->inf_sign += p->inf_sign;
    sum->nonfinite += p->nonfinite;
    if (sum->first_mismatch < 0)
        sum->first_mismatch = p->first_mismatch;
    sum->mismatches += p->mismatches;
}

/* A block once more, as the functions that look for exact values want it. clean: it may not be finite. */
static void
reload_block(msp_pair_block *block, const msp_pair_view *v, msp_pair_scratch *s, int64_t start, bool clean)
{
    msp_pair_bad bad;

    msp_pair_load(block, v, s, start, (size_t)min_i64(v->block, v->numel - start));
    if (clean && block->kind != MSP_PAIR_I128)
        msp_pair_clean(block, &bad, v, s);
    else
        msp_pair_widen(block, v, s);
}

static size_t
find_abs(const msp_pair_view *v, const msp_pair_block *k, double abs)
{
    if (k->kind >= MSP_PAIR_VECTOR_KINDS)
        return msp_pair_plain_find_abs(k->kind, k->n, k->b, k->count, abs);
    if (k->kind == MSP_PAIR_F64)
        return v->set->find_abs_f64(k->n, k->b, k->count, abs);
    return v->set->find_abs(k->n, k->b, k->count, abs);
}

static size_t
find_rel(const msp_pair_view *v, const msp_pair_block *k, double rel)
{
    if (k->kind >= MSP_PAIR_VECTOR_KINDS)
        return msp_pair_plain_find_rel(k->kind, k->n, k->b, k->count, rel);
    if (k->kind == MSP_PAIR_F64)
        return v->set->find_rel_f64(k->n, k->b, k->count, rel);
    return v->set->find_rel(k->n, k->b, k->count, rel, (k->flags & MSP_PAIR_HALF) != 0);
}

static void
find_indices(msp_metrics *out, const partial *sum, job *j)
{
    const msp_pair_view *v = &j->view;
    msp_pair_block *block = &j->last;

    if (is_one_block(v))
        msp_pair_widen(block, v, &j->scratch);
    else
        reload_block(block, v, &j->scratch, sum->abs_block, sum->nonfinite > 0);
    out->max_abs_index = sum->abs_block + (int64_t)find_abs(v, block, sum->max_abs);
    if (sum->rel_block != sum->abs_block)
        reload_block(block, v, &j->scratch, sum->rel_block, sum->nonfinite > 0);
    out->max_rel_index = sum->rel_block + (int64_t)find_rel(v, block, sum->max_rel);
}

/* ---- sums beyond the range of a double --------------------------------------------------------------------------- */

/* Factors that bring n, b and d into the middle of the range, and the sums with them. */
typedef struct scaled {
    double n, b, d;
    double dot, sq_n, sq_b, sq_d;
} scaled;

/* Squares of float64 overflow from 1e154 on and lose digits below 1e-154, while norms and distances do not. */
static bool
needs_scaling(const partial *p, const msp_pair_view *v)
{
    return (v->kind == MSP_PAIR_F64 || v->kind == MSP_PAIR_C128) &&
           (!isfinite(p->sq_n) || !isfinite(p->sq_b) || !isfinite(p->sq_d) ||
            (p->max_abs > 0 && p->max_abs < 0x1p-480));
}

static void
add_scaled(scaled *t, const double *n, const double *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double x = n[i] * t->n, y = b[i] * t->b, d = (n[i] - b[i]) * t->d;

        t->dot += x * y;
        t->sq_n += x * x;
        t->sq_b += y * y;
        t->sq_d += d * d;
    }
}

/* A second pass, for tensors that nobody should have. Complex numbers are twice as many doubles here. */
static scaled
scaled_sums(const partial *p, const msp_pair_view *v)
{
    scaled t = {.n = isfinite(p->sq_n) ? 1 : 0x1p-600, .b = isfinite(p->sq_b) ? 1 : 0x1p-600, .d = 1};
    msp_pair_scratch scratch;

    if (!isfinite(p->sq_d))
        t.d = 0x1p-600;
    else if (p->max_abs < 0x1p-480)
        t.d = 0x1p600;
    for (int64_t start = 0; start < v->numel; start += v->block) {
        msp_pair_block k;

        reload_block(&k, v, &scratch, start, true);
        add_scaled(&t, k.n, k.b, k.kind == MSP_PAIR_C128 ? 2 * k.count : k.count);
    }
    return t;
}

/* ---- result ------------------------------------------------------------------------------------------------------ */

static double
cosine_of(double dot, double norm_n, double norm_b)
{
    const double nothing = 0x1p-52; /* numpy.finfo(float).eps */

    if (norm_n <= nothing && norm_b <= nothing)
        return 1;
    if (norm_n <= nothing || norm_b <= nothing)
        return NAN;
    return dot / (norm_n * norm_b);
}

static void
fill_metrics(msp_metrics *out, const partial *p, const msp_pair_view *v)
{
    scaled t = {1, 1, 1, p->dot, p->sq_n, p->sq_b, p->sq_d};

    if (needs_scaling(p, v))
        t = scaled_sums(p, v);
    out->count = v->numel;
    out->dot = t.dot / t.n / t.b;
    out->sq_n = p->sq_n;
    out->sq_b = p->sq_b;
    out->cosine = cosine_of(t.dot, sqrt(t.sq_n), sqrt(t.sq_b));
    out->euc_dist = sqrt(t.sq_d) / t.d;
    out->rmse = sqrt(t.sq_d / (double)v->numel) / t.d;
    out->max_abs_err = p->max_abs;
    out->max_rel_err = p->max_rel;
    out->below_1e3 = p->below_1e3;
    out->below_5e3 = p->below_5e3;
    out->mape_count = v->numel - p->zeros;
    out->mape = out->mape_count > 0 ? p->rel / (double)out->mape_count : NAN;
    out->inf_sign = p->inf_sign;
    out->mismatches = p->mismatches;
    out->first_mismatch = p->first_mismatch;
    out->nonfinite = p->nonfinite;
}

static msp_status
check_tensors(const msp_tensor *n, const msp_tensor *b, msp_error *err)
{
    if (msp_dtype_size(n->dtype) == 0 || msp_dtype_size(b->dtype) == 0)
        return msp_error_set(err, MSP_E_INVALID, "a tensor has no element type");
    if (n->ndim != b->ndim)
        return msp_error_set(err, MSP_E_INVALID, "shapes differ: %d and %d dimensions", (int)n->ndim, (int)b->ndim);
    for (int32_t i = 0; i < n->ndim; i++)
        if (n->shape[i] != b->shape[i])
            return msp_error_set(err, MSP_E_INVALID, "shapes differ: dimension %d has %lld and %lld elements", (int)i,
                                 (long long)n->shape[i], (long long)b->shape[i]);
    return MSP_OK;
}

static msp_status
compute_metrics(msp_metrics *out, const msp_tensor *n, const msp_tensor *b, int nthreads, bool brief, msp_error *err)
{
    msp_status st = check_tensors(n, b, err);
    partial sum = no_elements;
    msp_fpmode mode;
    int64_t chunks;
    job j;

    *out = (msp_metrics){.cosine = 1,
                         .max_abs_index = -1,
                         .max_rel_index = -1,
                         .rmse = NAN,
                         .mape = NAN,
                         .first_mismatch = -1};
    if (st != MSP_OK || n->numel == 0)
        return st;
    msp_pair_view_init(&j.view, n, b);
    j.brief = brief;
    chunks = (n->numel - 1) / MIN_CHUNK + 1;
    if (chunks > MAX_CHUNKS)
        chunks = MAX_CHUNKS;
    j.chunk = ((n->numel - 1) / chunks / MSP_PAIR_BLOCK + 1) * MSP_PAIR_BLOCK;
    chunks = (n->numel - 1) / j.chunk + 1;
    msp_pool_run((size_t)chunks, n->numel < THREADS_FROM ? 1 : nthreads, run_chunk, &j);

    msp_fpmode_enter(&mode);
    for (int64_t i = 0; i < chunks; i++)
        add_chunk(&sum, &j.parts[i]);
    fill_metrics(out, &sum, &j.view);
    if (!brief)
        find_indices(out, &sum, &j);
    else if (j.view.kind < MSP_PAIR_F64)
        out->mape = NAN;
    msp_fpmode_leave(&mode);
    return MSP_OK;
}

msp_status
msp_metrics_compute_mt(msp_metrics *out, const msp_tensor *n, const msp_tensor *b, int nthreads, msp_error *err)
{
    return compute_metrics(out, n, b, nthreads, false, err);
}

msp_status
msp_metrics_compute(msp_metrics *out, const msp_tensor *n, const msp_tensor *b, msp_error *err)
{
    return compute_metrics(out, n, b, 1, false, err);
}

msp_status
msp_metrics_brief(msp_metrics *out, const msp_tensor *n, const msp_tensor *b, int nthreads, msp_error *err)
{
    return compute_metrics(out, n, b, nthreads, true, err);
}
