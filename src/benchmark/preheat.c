/*
 * preheat.c - an API's own threshold, learned from calls that ran on the CPU as well.
 *
 * The rules are the original tool's: of a step's calls some are sampled; a ratio that the CPU found right and that is
 * beyond the threshold doubles its distance from 1, one that stays below halves it, and a ratio that the CPU found
 * wrong bounds it for good. But it is never halved to less than what the CPU found right: the last step of preheating
 * would otherwise leave a threshold that good calls exceed.
 */
#include "msprobe/benchmark.h"

int64_t
msp_preheat_quota(int64_t total, int64_t preheat_step, int64_t max_sample)
{
    int64_t needed = preheat_step <= 0 ? 0 : total / preheat_step + (total % preheat_step != 0);

    return needed < max_sample ? needed : max_sample;
}

bool
msp_preheat_samples(int64_t total, int64_t preheat_step, int64_t max_sample, int64_t step, int64_t k)
{
    int64_t quota = msp_preheat_quota(total, preheat_step, max_sample);

    if (total <= 0 || k < 1 || k > total)
        return false;
    for (int64_t i = 0; i < quota; i++) {
        int64_t chosen = (preheat_step * i + step) % total;

        if ((chosen == 0 ? total : chosen) == k)
            return true;
    }
    return false;
}

void
msp_preheat_note(msp_preheat *p, double ratio, bool consistent)
{
    if (consistent && ratio > p->max_good)
        p->max_good = ratio;
    if (!consistent && (p->min_bad == 0 || ratio < p->min_bad))
        p->min_bad = ratio;
}

static double
smaller(double a, double b)
{
    return a < b ? a : b;
}

void
msp_preheat_adjust(msp_preheat *p, double least)
{
    if (p->learned || (p->max_good == 0 && p->min_bad == 0))
        return;
    if (p->min_bad == 0) {
        p->threshold = p->max_good > p->threshold ? 1 + (p->threshold - 1) * 2 : 1 + (p->threshold - 1) / 2;
        if (p->threshold < p->max_good)
            p->threshold = p->max_good;
    } else if (p->max_good == 0 || p->min_bad > p->max_good) {
        p->threshold = smaller(p->min_bad, p->threshold);
        p->learned = true;
    }
    if (p->threshold < least)
        p->threshold = least;
}
