/* measure_stats.c - differences of the statistics that the dumps hold. */
#include <math.h>
#include "compare/judge/measure.h"

static void
measure_one(msp_num *diff, msp_num *rel, const msp_val *npu, const msp_val *bench)
{
    double n, b, d;

    if (!msp_val_number(npu, &n) || !msp_val_number(bench, &b)) {
        *diff = *rel = (msp_num){"N/A", 0};
        return;
    }
    d = n - b;
    if (isnan(d)) {
        *diff = *rel = (msp_num){"Nan", 0};
        return;
    }
    *diff = (msp_num){NULL, d};
    *rel = b == 0 ? (msp_num){"N/A", 0} : (msp_num){NULL, fabs(d / b * 100)};
}

void
msp_measure_stats(msp_judged *j)
{
    for (int i = 0; i < MSP_NSTATS; i++)
        measure_one(&j->diff[i], &j->rel[i], &j->n->stats[i], &j->b->stats[i]);
}
