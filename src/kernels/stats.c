/* stats.c - statistics of a tensor: its type's plan, the best kernels, chunks and threads. See stats_job.h. */
#include "msprobe/stats.h"

#include <math.h>
#include "core/cpu.h"
#include "core/pool.h"
#include "kernels/fpmode.h"
#include "kernels/stats_job.h"

enum { THREADS_FROM_BYTES = 1 << 20 }; /* below, waking a thread costs more than it saves */

#define F16_INF  0x7c00
#define BF16_INF 0x7f80
#define F32_INF  0x7f800000
#define F64_INF  UINT64_C(0x7ff0000000000000)

#define FLOAT(type, shift, inf_bits)                                                        \
    {                                                                                       \
        .family = MSP_STATS_FLOAT, .part = (type), .part_shift = (shift), .inf = (inf_bits) \
    }
#define SHORT(type, shift, inf_bits)                                                                       \
    {                                                                                                      \
        .family = MSP_STATS_FLOAT, .part = (type), .part_shift = (shift), .inf = (inf_bits), .is_short = 1 \
    }
#define COMPLEX(type, shift, inf_bits)                                                                       \
    {                                                                                                        \
        .family = MSP_STATS_FLOAT, .part = (type), .part_shift = (shift), .inf = (inf_bits), .is_complex = 1 \
    }
#define FLOAT8(type, inf_bits, power, ...)                                                                           \
    {                                                                                                                \
        .family = MSP_STATS_FLOAT, .part = (type), .part_shift = 1, .inf = (inf_bits), .is_f8 = 1, .scale = (power), \
        .f8 = {                                                                                                      \
            __VA_ARGS__                                                                                              \
        }                                                                                                            \
    }
#define INT(type, shift, top_bit)                                                         \
    {                                                                                     \
        .family = MSP_STATS_INT, .part = (type), .part_shift = (shift), .flip = (top_bit) \
    }

static const msp_stats_plan plans[MSP_DTYPE_COUNT] = {
    [MSP_DTYPE_NONE] = {.family = MSP_STATS_NONE},
    [MSP_F64] = FLOAT(MSP_F64, 3, F64_INF),
    [MSP_F32] = SHORT(MSP_F32, 2, F32_INF),
    [MSP_F16] = SHORT(MSP_F16, 1, F16_INF),
    [MSP_BF16] = SHORT(MSP_BF16, 1, BF16_INF),
    /*
     * The exponents' biases are 15, 7 and 8 against float16's 15. The fourth has 16, and finite numbers where float16
     * has infinity: bfloat16, whose bias is 127, takes them.
     */
    [MSP_F8_E5M2] = FLOAT8(MSP_F16, F16_INF, 0, 8, 0, 1),
    [MSP_F8_E4M3FN] = FLOAT8(MSP_F16, F16_INF, 8, 7, 0x7f, 0x7f),
    [MSP_F8_E4M3FNUZ] = FLOAT8(MSP_F16, F16_INF, 7, 7, 0xff, 0x80),
    [MSP_F8_E5M2FNUZ] = FLOAT8(MSP_BF16, BF16_INF, 111, 5, 0xff, 0x80),
    [MSP_I8] = INT(MSP_I8, 0, 0),
    [MSP_I16] = INT(MSP_I16, 1, 0),
    [MSP_I32] = INT(MSP_I32, 2, 0),
    [MSP_I64] = INT(MSP_I64, 3, 0),
    [MSP_U8] = INT(MSP_I8, 0, 0x80),
    [MSP_U16] = INT(MSP_I16, 1, 0x8000),
    [MSP_U32] = INT(MSP_I32, 2, 0x80000000),
    [MSP_U64] = INT(MSP_I64, 3, UINT64_C(1) << 63),
    [MSP_BOOL] = {.family = MSP_STATS_BOOL, .part = MSP_BOOL},
    [MSP_C64] = COMPLEX(MSP_F32, 2, F32_INF),
    [MSP_C128] = COMPLEX(MSP_F64, 3, F64_INF),
};

static const msp_stats_kernels *
best_kernels(void)
{
    switch (msp_cpu_best()) {
#if defined(__x86_64__)
    case MSP_CPU_AVX512:
        return &msp_stats_avx512;
    case MSP_CPU_AVX2:
        return &msp_stats_avx2;
#elif defined(__aarch64__)
    case MSP_CPU_NEON:
        return &msp_stats_neon;
#endif
    default:
        return &msp_stats_scalar;
    }
}

static int64_t
first_block(const msp_stats_job *j, int64_t chunk)
{
    return j->chunks == j->blocks ? chunk : chunk * j->blocks / j->chunks;
}

/* In the mode of fpmode.h. */
static void
run_chunk(const msp_stats_job *j, int64_t chunk)
{
    int64_t end = first_block(j, chunk + 1);
    bool is_float = j->plan->family == MSP_STATS_FLOAT;
    msp_stats_tally *t = &j->tallies[chunk];
    msp_stats_pieces space;

    if (is_float)
        msp_stats_float_begin(&t->f);
    else
        msp_stats_int_begin(&t->i);
    for (int64_t b = first_block(j, chunk); b < end; b++) {
        int64_t start = b * j->block, left = j->numel - start;
        size_t n = (size_t)(left < j->block ? left : j->block);

        if (is_float)
            msp_stats_float_block(j, &t->f, &space, start, n);
        else
            msp_stats_int_block(j, &t->i, &space, start, n);
    }
}

static void
run_chunk_on_pool(size_t index, void *payload)
{
    msp_fpmode mode;

    msp_fpmode_enter(&mode);
    run_chunk(payload, (int64_t)index);
    msp_fpmode_leave(&mode);
}

static void
run_chunks(msp_stats_job *j, int nthreads)
{
    if (nthreads == 1)
        for (int64_t c = 0; c < j->chunks; c++)
            run_chunk(j, c);
    else
        msp_pool_run((size_t)j->chunks, nthreads, run_chunk_on_pool, j);
}

static void
finish_stats(msp_stats *out, const msp_stats_job *j)
{
    msp_stats_tally *total = &j->tallies[0];

    if (j->plan->family == MSP_STATS_FLOAT) {
        for (int64_t c = 1; c < j->chunks; c++)
            msp_stats_float_merge(&total->f, &j->tallies[c].f);
        msp_stats_float_finish(out, j, &total->f);
    } else {
        for (int64_t c = 1; c < j->chunks; c++)
            msp_stats_int_merge(&total->i, &j->tallies[c].i);
        msp_stats_int_finish(out, j->plan, &total->i);
    }
}

/* Cut the tensor. */
static void
begin_job(msp_stats_job *j, const msp_stats_plan *plan, const msp_tensor *t, msp_stats_tally *tallies)
{
    j->plan = plan;
    j->kernels = best_kernels();
    j->numel = t->numel;
    j->block = MSP_STATS_BLOCK_BYTES >> (plan->part_shift + plan->is_complex);
    j->blocks = t->numel <= j->block ? 1 : (t->numel - 1) / j->block + 1;
    j->chunks = j->blocks < MSP_STATS_MAX_CHUNKS ? j->blocks : MSP_STATS_MAX_CHUNKS;
    j->tallies = tallies;
    msp_gather_init(&j->gather, t);
}

/* What an empty tensor has. Field by field: gcc's way to fill such a struct takes longer than a small tensor. */
static void
begin_stats(msp_stats *out, bool is_complex)
{
    out->count = 0;
    out->max = out->min = out->mean = out->max_finite = out->min_finite = NAN;
    out->norm = 0;
    out->mean_imag = is_complex ? NAN : 0;
    out->max_int = out->min_int = 0;
    out->nan = out->pos_inf = out->neg_inf = out->zero = out->subnormal = 0;
    out->first_bad = -1;
}

/* Apart from compute(), because what it has on the stack is more than a cache holds. */
static __attribute__((noinline)) void
compute_blocks(msp_stats *out, const msp_stats_plan *plan, const msp_tensor *t, int nthreads)
{
    msp_stats_tally tallies[MSP_STATS_MAX_CHUNKS];
    msp_stats_job j;

    begin_job(&j, plan, t, tallies);
    if (t->numel * (int64_t)msp_dtype_size(t->dtype) < THREADS_FROM_BYTES)
        nthreads = 1;
    run_chunks(&j, nthreads);
    finish_stats(out, &j);
}

/* Most tensors of a small model are one block; then *out is complete. */
static bool
compute_one_block(msp_stats *out, const msp_stats_plan *plan, const msp_tensor *t)
{
    if (!plan->is_short || t->numel > MSP_STATS_BLOCK_BYTES >> plan->part_shift || t->numel == 0 ||
        !msp_tensor_is_contiguous(t))
        return false;
    return msp_stats_float_one_block(out, plan, best_kernels(), t->data, (size_t)t->numel);
}

static void
compute_stats(msp_stats *out, const msp_tensor *t, int nthreads)
{
    const msp_stats_plan *plan = &plans[(unsigned)t->dtype < MSP_DTYPE_COUNT ? t->dtype : MSP_DTYPE_NONE];
    msp_fpmode mode;

    msp_fpmode_enter(&mode);
    if (!compute_one_block(out, plan, t)) {
        begin_stats(out, plan->is_complex);
        if (plan->family != MSP_STATS_NONE && t->numel > 0) {
            out->count = t->numel;
            compute_blocks(out, plan, t, nthreads);
        }
    }
    msp_fpmode_leave(&mode);
}

bool
msp_stats_brief(msp_stats_four *out, msp_dtype dtype, const void *p, int64_t n)
{
    const msp_stats_plan *plan = &plans[(unsigned)dtype < MSP_DTYPE_COUNT ? dtype : MSP_DTYPE_NONE];
    msp_stats_floats b;
    msp_fpmode mode;
    bool done;

    if (!plan->is_short || n <= 0 || n > MSP_STATS_BLOCK_BYTES >> plan->part_shift)
        return false;
    msp_fpmode_enter(&mode);
    done = msp_stats_float_brief(out, &b, plan, best_kernels(), p, (size_t)n);
    msp_fpmode_leave(&mode);
    return done;
}

void
msp_stats_compute(msp_stats *out, const msp_tensor *t)
{
    compute_stats(out, t, 1);
}

void
msp_stats_compute_mt(msp_stats *out, const msp_tensor *t, int nthreads)
{
    compute_stats(out, t, nthreads < 0 ? 1 : nthreads);
}
