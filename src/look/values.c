/* values.c - one tensor: statistics, and histograms by value and by magnitude. */
#include <math.h>
#include <string.h>
#include "kernels/gather.h"
#include "msprobe/look.h"

enum { BLOCK = 4096, WIDEST = 16 };

static double
modulus(msp_dtype t, const unsigned char *p)
{
    msp_dtype part = t == MSP_C64 ? MSP_F32 : MSP_F64;

    return hypot(msp_dtype_load_f64(part, p), msp_dtype_load_f64(part, p + msp_dtype_size(part)));
}

static double
load_one(msp_dtype t, const unsigned char *p)
{
    return msp_dtype_class_of(t) == MSP_CLASS_COMPLEX ? modulus(t, p) : msp_dtype_load_f64(t, p);
}

static int
bin_of(const msp_look_values *v, double x)
{
    double range = v->high - v->low, share = (x - v->low) / range;

    if (isinf(range)) /* more than a double holds */
        share = (x / 2 - v->low / 2) / (v->high / 2 - v->low / 2);
    /* neither where all are equal, nor where the program flushes such small differences to zero */
    return share >= 1 ? MSP_LOOK_BINS - 1 : share > 0 ? (int)(share * MSP_LOOK_BINS) : 0;
}

static void
note_value(msp_look_values *out, double v)
{
    double decade;

    if (!isfinite(v))
        return;
    out->bins[bin_of(out, v)]++;
    if (v == 0)
        return;
    decade = floor(log10(fabs(v))) - MSP_LOOK_FIRST_DECADE + 1;
    out->decades[decade < 0 ? 0 : decade >= MSP_LOOK_DECADES ? MSP_LOOK_DECADES - 1 : (int)decade]++;
}

/* The finite moduli of a complex tensor have extremes of their own. */
static void
note_range(msp_look_values *out, double v)
{
    if (!isfinite(v))
        return;
    out->low = fmin(out->low, v);
    out->high = fmax(out->high, v);
}

static void
walk_values(msp_look_values *out, const msp_tensor *t, void (*note)(msp_look_values *out, double v))
{
    _Alignas(16) unsigned char room[BLOCK * WIDEST];
    size_t size = msp_dtype_size(t->dtype);
    msp_gather g;

    msp_gather_init(&g, t);
    for (int64_t at = 0; at < t->numel; at += BLOCK) {
        int64_t count = t->numel - at < BLOCK ? t->numel - at : BLOCK;
        const unsigned char *p = msp_gather_block(&g, at, count, room);

        for (int64_t i = 0; i < count; i++)
            note(out, load_one(t->dtype, p + (size_t)i * size));
    }
}

void
msp_look_at_tensor(msp_look_values *out, const msp_tensor *t, int nthreads)
{
    msp_dtype_class c = msp_dtype_class_of(t->dtype);

    memset(out, 0, sizeof(*out));
    msp_stats_compute_mt(&out->stats, t, nthreads);
    out->low = out->high = NAN;
    if (t->numel == 0)
        return;
    out->low = c == MSP_CLASS_FLOAT ? out->stats.min_finite : out->stats.min;
    out->high = c == MSP_CLASS_FLOAT ? out->stats.max_finite : out->stats.max;
    if (c == MSP_CLASS_COMPLEX) {
        out->low = out->high = NAN;
        walk_values(out, t, note_range);
    }
    walk_values(out, t, note_value);
}
