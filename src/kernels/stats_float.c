/* stats_float.c - floats and complex numbers: blocks with and without infinities, norms that do not overflow. */
#include <float.h>
#include <math.h>
#include <string.h>
#include "dtype/convert.h"
#include "kernels/stats_job.h"

static const msp_stats_range empty_range = {INT64_MIN, 0, UINT64_MAX};
static const double scale_of_class[MSP_RANGES] = {0x1p600, 1, 0x1p-600};

void
msp_stats_float_begin(msp_float_tally *t)
{
    const msp_exact_sum nothing = {0, 0};

    for (int i = 0; i < 2; i++) {
        t->sum[i] = t->big_sum[i] = nothing;
        t->bad[i] = (msp_stats_bad){0, 0, 0};
    }
    for (int i = 0; i < MSP_RANGES; i++)
        t->square[i] = nothing;
    t->range = empty_range;
    t->zero = t->tiny = 0;
    t->bad_piece = -1;
    t->expect_bad = false;
    t->seek_least = true;
}

static void
add_bad(msp_stats_bad *into, const msp_stats_bad *bad)
{
    into->nan += bad->nan;
    into->pos_inf += bad->pos_inf;
    into->neg_inf += bad->neg_inf;
}

static int64_t
count_bad(const msp_stats_bad *bad)
{
    return bad->nan + bad->pos_inf + bad->neg_inf;
}

static void
begin_block(msp_stats_floats *b, bool seek_least)
{
    msp_stats_clear(b->sum, 8);
    msp_stats_clear(b->square, 16);
    b->range = empty_range;
    b->zero = b->tiny = 0;
    b->seek_least = seek_least;
}

/* ---- parts of the tensor to the kernel -------------------------------------------------------------------------- */

static void
run_kernel(const msp_stats_kernels *kernels, msp_dtype part, msp_stats_floats *out, const void *p, size_t n)
{
    switch (part) {
    case MSP_F16:
        kernels->f16(out, p, n);
        break;
    case MSP_BF16:
        kernels->bf16(out, p, n);
        break;
    case MSP_F32:
        kernels->f32(out, p, n);
        break;
    default:
        kernels->f64(out, p, n);
        break;
    }
}

static void
run_clean(const msp_stats_job *j, void *dst, const void *src, size_t n, msp_stats_range *range, msp_stats_bad *bad)
{
    msp_stats_clean_fn *const clean[] = {NULL, j->kernels->clean16, j->kernels->clean32, j->kernels->clean64};

    clean[j->plan->part_shift](dst, src, n, j->plan->inf, range, bad);
}

/* n parts from part start on, without gaps and as the kernel takes them: in place or in one of the pieces. */
static const void *
fetch_parts(const msp_stats_job *j, msp_stats_pieces *space, int64_t start, size_t n)
{
    const msp_stats_plan *plan = j->plan;
    const void *p =
        msp_gather_block(&j->gather, start >> plan->is_complex, (int64_t)(n >> plan->is_complex), space->gathered);

    if (!plan->is_f8)
        return p;
    j->kernels->widen_f8((uint16_t *)space->changed, p, n, &plan->f8);
    return space->changed;
}

static void
add_as_is(const msp_stats_job *j, msp_stats_floats *out, msp_stats_pieces *space, int64_t start, size_t n)
{
    size_t step = msp_stats_step(j, true);

    for (size_t i = 0; i < n; i += step) {
        size_t m = msp_stats_min_size(step, n - i);

        run_kernel(j->kernels, j->plan->part, out, fetch_parts(j, space, start + (int64_t)i, m), m);
    }
}

/* Count what is not finite by real and imaginary parts. */
static void
count_by_part(const msp_stats_job *j, msp_stats_bad bad[2], const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        msp_stats_range unused = empty_range;
        uint64_t cleaned;

        run_clean(j, &cleaned, (const char *)p + (i << j->plan->part_shift), 1, &unused, &bad[i % 2]);
    }
}

/* As add_as_is(), without the parts that are not finite; *t learns about those. Returns how many there were. */
static int64_t
add_cleaned(const msp_stats_job *j, msp_stats_floats *out, msp_float_tally *t, msp_stats_pieces *space, int64_t start,
            size_t n)
{
    size_t step = msp_stats_step(j, false);
    int64_t found = 0;

    for (size_t i = 0; i < n; i += step) {
        size_t m = msp_stats_min_size(step, n - i);
        const void *p = fetch_parts(j, space, start + (int64_t)i, m);
        char *clean = p == space->changed ? space->gathered : space->changed;
        msp_stats_range range = out->range;
        bool seek_least = out->seek_least;
        msp_stats_bad bad = {0, 0, 0};
        int64_t here;

        run_clean(j, clean, p, m, &range, &bad);
        here = count_bad(&bad);
        run_kernel(j->kernels, j->plan->part, out, clean, m);
        out->range = range; /* the zeros that stand for others are no extremes, and are not counted */
        out->seek_least = seek_least;
        out->zero -= here;
        out->tiny -= here;
        if (here > 0 && t->bad_piece < 0)
            t->bad_piece = start + (int64_t)i;
        if (here > 0 && j->plan->is_complex)
            count_by_part(j, t->bad, p, m);
        else
            add_bad(&t->bad[0], &bad);
        found += here;
    }
    return found;
}

/* Sums of float64 parts times factor, without those that are not finite. */
static void
add_scaled(const msp_stats_job *j, msp_stats_floats *out, msp_stats_pieces *space, int64_t start, size_t n,
           double factor)
{
    size_t step = msp_stats_step(j, false);

    for (size_t i = 0; i < n; i += step) {
        size_t m = msp_stats_min_size(step, n - i);
        msp_stats_range unused = empty_range;
        msp_stats_bad ignored = {0, 0, 0};

        run_clean(j, space->changed, fetch_parts(j, space, start + (int64_t)i, m), m, &unused, &ignored);
        j->kernels->scale((double *)space->changed, m, factor);
        run_kernel(j->kernels, j->plan->part, out, space->changed, m);
    }
}

/* ---- blocks ----------------------------------------------------------------------------------------------------- */

/* The bits of the largest magnitude. */
static uint64_t
largest_magnitude(const msp_stats_range *r, const msp_stats_plan *plan)
{
    uint64_t sign = UINT64_C(1) << ((8 << plan->part_shift) - 1);
    uint64_t positive = r->signed_max > 0 ? (uint64_t)r->signed_max : 0;
    uint64_t negative = r->unsigned_max >= sign ? r->unsigned_max - sign : 0;

    return positive > negative ? positive : negative;
}

/* Which scale keeps the squares of a block in range. */
static msp_stats_range_class
class_of(const msp_stats_plan *plan, const msp_stats_range *r)
{
    uint64_t magnitude = largest_magnitude(r, plan);

    if (plan->part != MSP_F64 || magnitude == 0)
        return MSP_RANGE_MIDDLE;
    if (magnitude > msp_f64_bits(0x1p480))
        return MSP_RANGE_BIG;
    return magnitude < msp_f64_bits(0x1p-480) ? MSP_RANGE_SMALL : MSP_RANGE_MIDDLE;
}

typedef struct block_sums {
    double even, odd, square; /* of the even and of the odd parts; of all squares */
} block_sums;

/* Lanes in a fixed tree. */
static block_sums
fold_lanes(const msp_stats_floats *b)
{
    const double *s = b->sum;
    double eight[8], four[4];

    for (int i = 0; i < 8; i++)
        eight[i] = b->square[i] + b->square[i + 8];
    for (int i = 0; i < 4; i++)
        four[i] = eight[i] + eight[i + 4];
    return (block_sums){(s[0] + s[4]) + (s[2] + s[6]), (s[1] + s[5]) + (s[3] + s[7]),
                        (four[0] + four[2]) + (four[1] + four[3])};
}

/* One of a block's sums: as it is unless it is so large that the sum of many such blocks might overflow. */
static void
add_sum(msp_exact_sum *sum, msp_exact_sum *big_sum, double plain, double scaled)
{
    if (fabs(plain) <= 0x1p960) /* false when it overflowed, whatever came of that */
        msp_exact_add(sum, plain);
    else
        msp_exact_add(big_sum, scaled);
}

static void
add_block_sums(const msp_stats_job *j, msp_float_tally *t, const msp_stats_floats *b, msp_stats_pieces *space,
               int64_t start, size_t n)
{
    msp_stats_range_class class_ = class_of(j->plan, &b->range);
    block_sums plain = fold_lanes(b), scaled = plain;

    if (class_ != MSP_RANGE_MIDDLE) {
        msp_stats_floats again;

        begin_block(&again, false);
        add_scaled(j, &again, space, start, n, scale_of_class[class_]);
        scaled = fold_lanes(&again);
    }
    add_sum(&t->sum[0], &t->big_sum[0], plain.even, scaled.even);
    add_sum(&t->sum[1], &t->big_sum[1], plain.odd, scaled.odd);
    msp_exact_add(&t->square[class_], scaled.square);
}

static void
merge_range(msp_stats_range *into, const msp_stats_range *r)
{
    msp_stats_note_range(into, r->signed_max, r->unsigned_max, r->unsigned_min);
}

void
msp_stats_float_block(const msp_stats_job *j, msp_float_tally *t, msp_stats_pieces *space, int64_t start, size_t n)
{
    const msp_stats_plan *plan = j->plan;
    msp_stats_floats b;

    start <<= plan->is_complex; /* parts from here on */
    n <<= plan->is_complex;
    begin_block(&b, t->seek_least);
    if (!t->expect_bad)
        add_as_is(j, &b, space, start, n);
    if (t->expect_bad || largest_magnitude(&b.range, plan) >= plan->inf) {
        begin_block(&b, t->seek_least);
        t->expect_bad = add_cleaned(j, &b, t, space, start, n) > 0;
    }
    merge_range(&t->range, &b.range);
    t->zero += b.zero;
    t->tiny += b.tiny;
    t->seek_least = b.seek_least;
    add_block_sums(j, t, &b, space, start, n);
}

/* ---- results ---------------------------------------------------------------------------------------------------- */

void
msp_stats_float_merge(msp_float_tally *into, const msp_float_tally *t)
{
    for (int i = 0; i < 2; i++) {
        msp_exact_merge(&into->sum[i], &t->sum[i]);
        msp_exact_merge(&into->big_sum[i], &t->big_sum[i]);
        add_bad(&into->bad[i], &t->bad[i]);
    }
    for (int i = 0; i < MSP_RANGES; i++)
        msp_exact_merge(&into->square[i], &t->square[i]);
    merge_range(&into->range, &t->range);
    into->zero += t->zero;
    into->tiny += t->tiny;
    if (into->bad_piece < 0)
        into->bad_piece = t->bad_piece;
}

/* The mean of n numbers of which some are not finite, from the sum of the others. */
static double
mean_of(const msp_exact_sum *sum, const msp_exact_sum *big_sum, const msp_stats_bad *bad, int64_t n)
{
    const double up = scale_of_class[MSP_RANGE_SMALL], down = scale_of_class[MSP_RANGE_BIG];
    double big = msp_exact_value(big_sum), mean;

    if (bad->nan > 0 || (bad->pos_inf > 0 && bad->neg_inf > 0))
        return NAN;
    if (bad->pos_inf + bad->neg_inf > 0)
        return bad->pos_inf > 0 ? INFINITY : -INFINITY;
    if (big == 0)
        return msp_exact_value(sum) / (double)n;
    mean = (big + msp_exact_value(sum) * down) / (double)n * up;
    return mean > DBL_MAX ? DBL_MAX : mean < -DBL_MAX ? -DBL_MAX : mean; /* rounding must not make it infinite */
}

static double
norm_of(const msp_exact_sum square[MSP_RANGES])
{
    const double up = scale_of_class[MSP_RANGE_SMALL], down = scale_of_class[MSP_RANGE_BIG];
    double small = msp_exact_value(&square[MSP_RANGE_SMALL]), middle = msp_exact_value(&square[MSP_RANGE_MIDDLE]);
    double big = msp_exact_value(&square[MSP_RANGE_BIG]);

    if (big > 0)
        return sqrt(big + middle * down * down) * up;
    if (middle > 0)
        return sqrt(middle + small * down * down);
    return sqrt(small) * down;
}

static double
value_of_bits(msp_dtype part, uint64_t bits)
{
    switch (part) {
    case MSP_F16:
        return msp_f16_to_f32((uint16_t)bits);
    case MSP_BF16:
        return msp_bf16_to_f32((uint16_t)bits);
    case MSP_F32:
        return msp_f32_from_bits((uint32_t)bits);
    default:
        return msp_f64_from_bits(bits);
    }
}

/* Extremes and mean of a type that has an order. unit is what the kernel took for 1. */
static void
finish_real(msp_stats *out, const msp_stats_plan *plan, const msp_float_tally *t, const msp_stats_bad *bad, double unit)
{
    msp_exact_sum sum = t->sum[0], big_sum = t->big_sum[0];
    bool some_finite = count_bad(bad) < out->count;

    msp_exact_merge(&sum, &t->sum[1]);
    msp_exact_merge(&big_sum, &t->big_sum[1]);
    out->mean = mean_of(&sum, &big_sum, bad, out->count) * unit;
    if (some_finite) {
        out->max_finite = value_of_bits(plan->part, msp_stats_max_bits(&t->range)) * unit;
        out->min_finite = value_of_bits(plan->part, msp_stats_min_bits(&t->range, 8 << plan->part_shift)) * unit;
        if (count_bad(bad) == 0) /* rounding must not put the mean outside */
            out->mean = out->mean > out->max_finite   ? out->max_finite
                        : out->mean < out->min_finite ? out->min_finite
                                                      : out->mean;
    }
    if (bad->nan == 0) {
        out->max = bad->pos_inf > 0 ? INFINITY : some_finite ? out->max_finite : -INFINITY;
        out->min = bad->neg_inf > 0 ? -INFINITY : some_finite ? out->min_finite : INFINITY;
    }
}

/* Index of the first element that is not finite, which is in the piece that starts at part start. */
static int64_t
find_bad(const msp_stats_job *j, int64_t start)
{
    const msp_stats_plan *plan = j->plan;
    int64_t left = (j->numel << plan->is_complex) - start;
    size_t size = (size_t)1 << plan->part_shift, n = msp_stats_min_size((size_t)left, msp_stats_step(j, false));
    msp_stats_pieces space;
    const char *p = fetch_parts(j, &space, start, n);

    for (size_t i = 0; i < n; i++, p += size) {
        uint64_t bits = 0;

        memcpy(&bits, p, size); /* both of our architectures are little-endian */
        if ((bits & (UINT64_MAX >> (65 - 8 * size))) >= plan->inf)
            return (start + (int64_t)i) >> plan->is_complex;
    }
    return -1;
}

void
msp_stats_float_finish(msp_stats *out, const msp_stats_job *j, const msp_float_tally *t)
{
    const msp_stats_plan *plan = j->plan;
    double unit = msp_f64_from_bits((uint64_t)(1023 + plan->scale) << 52);
    msp_stats_bad bad = t->bad[0];

    add_bad(&bad, &t->bad[1]);
    out->nan = bad.nan;
    out->pos_inf = bad.pos_inf;
    out->neg_inf = bad.neg_inf;
    out->zero = t->zero;
    out->subnormal = t->tiny - t->zero;
    if (t->bad_piece >= 0)
        out->first_bad = find_bad(j, t->bad_piece);
    out->norm = bad.nan > 0 ? NAN : count_bad(&bad) > 0 ? INFINITY : norm_of(t->square) * unit;
    if (plan->is_complex) {
        out->mean = mean_of(&t->sum[0], &t->big_sum[0], &t->bad[0], out->count);
        out->mean_imag = mean_of(&t->sum[1], &t->big_sum[1], &t->bad[1], out->count);
    } else {
        finish_real(out, plan, t, &bad, unit);
    }
}

/* msp_stats_float() without what one block of finite numbers does not need: the bits are the same, in a third of the
 * time. */
bool
msp_stats_float_brief(msp_stats_four *out, msp_stats_floats *b, const msp_stats_plan *plan,
                      const msp_stats_kernels *kernels, const void *p, size_t n)
{
    msp_exact_sum sum = {0, 0};
    block_sums sums;
    double mean;

    begin_block(b, true);
    run_kernel(kernels, plan->part, b, p, n);
    if (largest_magnitude(&b->range, plan) >= plan->inf)
        return false;
    sums = fold_lanes(b);
    msp_exact_add(&sum, sums.even);
    msp_exact_add(&sum, sums.odd);
    mean = msp_exact_value(&sum) / (double)n;
    out->max = value_of_bits(plan->part, msp_stats_max_bits(&b->range));
    out->min = value_of_bits(plan->part, msp_stats_min_bits(&b->range, 8 << plan->part_shift));
    out->mean = mean > out->max ? out->max : mean < out->min ? out->min : mean;
    out->norm = sqrt(sums.square);
    return true;
}

bool
msp_stats_float_one_block(msp_stats *out, const msp_stats_plan *plan, const msp_stats_kernels *kernels, const void *p,
                          size_t n)
{
    msp_stats_floats b;
    msp_stats_four four;

    if (!msp_stats_float_brief(&four, &b, plan, kernels, p, n))
        return false;
    out->count = (int64_t)n;
    out->max = out->max_finite = four.max;
    out->min = out->min_finite = four.min;
    out->mean = four.mean;
    out->norm = four.norm;
    out->mean_imag = 0;
    out->max_int = out->min_int = 0;
    out->nan = out->pos_inf = out->neg_inf = 0;
    out->zero = b.zero;
    out->subnormal = b.tiny - b.zero;
    out->first_bad = -1;
    return true;
}
