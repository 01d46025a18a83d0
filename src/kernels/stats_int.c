/*
 * stats_int.c - integers and bools: exact sums in 128 bits.
 *
 * The kernels see unsigned types as signed ones, y = x - flip, so that one kernel serves both; what they found is
 * shifted back here.
 */
#include <math.h>
#include "kernels/stats_job.h"

typedef __int128 wide;
typedef unsigned __int128 unsigned_wide;

void
msp_stats_int_begin(msp_int_tally *t)
{
    t->sum = 0;
    t->square = 0;
    t->rounded_square = (msp_exact_sum){0, 0};
    t->max = INT64_MIN;
    t->min = INT64_MAX;
}

static void
note_extremes(msp_int_tally *t, int64_t max, int64_t min)
{
    t->max = max > t->max ? max : t->max;
    t->min = min < t->min ? min : t->min;
}

static void
run_kernel(const msp_stats_job *j, msp_stats_ints *out, const void *p, size_t n)
{
    switch (j->plan->part) {
    case MSP_I8:
        j->kernels->i8(out, p, n, j->plan->flip);
        break;
    case MSP_I16:
        j->kernels->i16(out, p, n, j->plan->flip);
        break;
    case MSP_I32:
        j->kernels->i32(out, p, n, j->plan->flip);
        break;
    default:
        j->kernels->i64(out, p, n, j->plan->flip);
        break;
    }
}

/* Sum of x and of x * x from those of y: x = y + flip. */
static void
add_block(const msp_stats_plan *plan, msp_int_tally *t, const msp_stats_ints *b, size_t n)
{
    wide sum = b->sum, flip = (wide)plan->flip, count = (wide)n;

    if (plan->part == MSP_I64) {
        sum = sum * ((wide)1 << 32) + (wide)b->sum_lo;
        for (int i = 0; i < MSP_STATS_GROUP; i++)
            msp_exact_add(&t->rounded_square, b->square[i]);
    } else {
        t->square += ((unsigned_wide)b->square_hi << 32) + b->square_lo;
        t->square += (unsigned_wide)(2 * flip * sum + flip * flip * count);
    }
    t->sum += sum + flip * count;
    note_extremes(t, b->max, b->min);
}

static void
int_block(const msp_stats_job *j, msp_int_tally *t, msp_stats_pieces *space, int64_t start, size_t n)
{
    size_t step = msp_stats_step(j, true);
    msp_stats_ints b = {.max = INT64_MIN, .min = INT64_MAX};

    for (size_t i = 0; i < n; i += step) {
        size_t m = msp_stats_min_size(step, n - i);

        run_kernel(j, &b, msp_gather_block(&j->gather, start + (int64_t)i, (int64_t)m, space->gathered), m);
    }
    add_block(j->plan, t, &b, n);
}

static void
bool_block(const msp_stats_job *j, msp_int_tally *t, msp_stats_pieces *space, int64_t start, size_t n)
{
    size_t step = msp_stats_step(j, true);
    int64_t yes = 0;

    for (size_t i = 0; i < n; i += step) {
        size_t m = msp_stats_min_size(step, n - i);

        yes += j->kernels->count_true(msp_gather_block(&j->gather, start + (int64_t)i, (int64_t)m, space->gathered), m);
    }
    t->sum += yes;
    t->square += (unsigned_wide)yes;
    note_extremes(t, yes > 0, yes == (int64_t)n);
}

void
msp_stats_int_block(const msp_stats_job *j, msp_int_tally *t, msp_stats_pieces *space, int64_t start, size_t n)
{
    if (j->plan->family == MSP_STATS_BOOL)
        bool_block(j, t, space, start, n);
    else
        int_block(j, t, space, start, n);
}

void
msp_stats_int_merge(msp_int_tally *into, const msp_int_tally *t)
{
    into->sum += t->sum;
    into->square += t->square;
    msp_exact_merge(&into->rounded_square, &t->rounded_square);
    note_extremes(into, t->max, t->min);
}

static double
value_of(const msp_stats_plan *plan, int64_t v)
{
    return plan->flip >> 63 != 0 ? (double)(uint64_t)v : (double)v;
}

void
msp_stats_int_finish(msp_stats *out, const msp_stats_plan *plan, const msp_int_tally *t)
{
    wide n = out->count;

    out->max_int = (int64_t)((uint64_t)t->max + plan->flip);
    out->min_int = (int64_t)((uint64_t)t->min + plan->flip);
    out->max = out->max_finite = value_of(plan, out->max_int);
    out->min = out->min_finite = value_of(plan, out->min_int);
    out->mean = (double)(t->sum / n) + (double)(t->sum % n) / (double)n;
    out->norm = sqrt(plan->part == MSP_I64 ? msp_exact_value(&t->rounded_square) : (double)t->square);
}
