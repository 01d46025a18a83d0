/* elements.c - see elements.h. */
#include "kernels/elements.h"

#include <math.h>
#include <string.h>
#include "kernels/gather.h"
#include "msprobe/dtype.h"

enum { BLOCK = 4096, WIDEST = 16 };

static int
bin_of(double v, double per_decade, int bins)
{
    double b = (log10(v) + 12) * per_decade + 1;

    return b < 0 ? 0 : b >= bins ? bins - 1 : (int)b;
}

static void
note_worst(msp_elements *l, int64_t at, double err)
{
    int i;

    if (l->nworst == ELEMENTS_WORST && err <= l->worst[ELEMENTS_WORST - 1].err)
        return;
    i = l->nworst < ELEMENTS_WORST ? l->nworst++ : ELEMENTS_WORST - 1;
    for (; i > 0 && l->worst[i - 1].err < err; i--)
        l->worst[i] = l->worst[i - 1];
    l->worst[i].at = at;
    l->worst[i].err = err;
}

static void
note_error(msp_elements *l, int64_t at, double err)
{
    int64_t row = at / l->columns * l->map_rows / l->rows, column = at % l->columns * l->map_columns / l->columns;
    double *cell = &l->map[row * ELEMENTS_MAP_COLUMNS + column];

    if (l->first < 0)
        l->first = at;
    note_worst(l, at, err);
    if (err > *cell)
        *cell = err;
}

/* size: |b|, 0 where it is not finite. */
static void
note_element(msp_elements *l, int64_t at, double err, double size)
{
    if (err == 0)
        l->equal++;
    else if (isfinite(err))
        l->hist[bin_of(err, 2, ELEMENTS_HIST_BINS)]++;
    else
        l->mismatches++;
    if (isfinite(err) && size > 0) {
        int m = bin_of(size, 1, ELEMENTS_MAG_BINS);
        double rel = err / size;

        l->mag_count[m]++;
        l->mag_sum[m] += rel;
        if (rel > l->mag_max[m])
            l->mag_max[m] = rel;
    }
    if (err != 0)
        note_error(l, at, err);
}

static double
part_error(double n, double b)
{
    if (isfinite(n) && isfinite(b))
        return fabs(n - b);
    return n == b || (isnan(n) && isnan(b)) ? 0 : INFINITY;
}

static void
look_at_numbers(msp_elements *l, int64_t at, double n, double b)
{
    bool finite = isfinite(n) && isfinite(b);

    l->nonfinite += !finite;
    note_element(l, at, part_error(n, b), finite ? fabs(b) : 0);
}

static double
imaginary_part(msp_dtype t, const unsigned char *p)
{
    return msp_dtype_class_of(t) != MSP_CLASS_COMPLEX
               ? 0
               : msp_dtype_load_f64(t == MSP_C64 ? MSP_F32 : MSP_F64, p + msp_dtype_size(t) / 2);
}

static void
look_at_complex(msp_elements *l, int64_t at, const msp_dtype t[2], const unsigned char *x, const unsigned char *y)
{
    double n[2] = {msp_dtype_load_f64(t[0], x), imaginary_part(t[0], x)};
    double b[2] = {msp_dtype_load_f64(t[1], y), imaginary_part(t[1], y)};
    bool finite = isfinite(n[0]) && isfinite(n[1]) && isfinite(b[0]) && isfinite(b[1]);

    l->nonfinite += !finite;
    note_element(l, at, hypot(part_error(n[0], b[0]), part_error(n[1], b[1])), finite ? hypot(b[0], b[1]) : 0);
}

/* Sign and magnitude of a 64-bit integer. */
static void
load_long(msp_dtype t, const unsigned char *p, bool *negative, uint64_t *size)
{
    memcpy(size, p, sizeof(*size));
    *negative = t == MSP_I64 && *size >> 63 != 0;
    if (*negative)
        *size = 0 - *size;
}

static void
look_at_longs(msp_elements *l, int64_t at, const msp_dtype t[2], const unsigned char *x, const unsigned char *y)
{
    bool minus[2];
    uint64_t v[2];
    double err;

    load_long(t[0], x, &minus[0], &v[0]);
    load_long(t[1], y, &minus[1], &v[1]);
    if (minus[0] != minus[1])
        err = (double)v[0] + (double)v[1];
    else
        err = (double)(v[0] > v[1] ? v[0] - v[1] : v[1] - v[0]);
    note_element(l, at, err, (double)v[1]);
}

static bool
is_long(msp_dtype t)
{
    return t == MSP_I64 || t == MSP_U64;
}

static void
count_bits(msp_elements *l, const unsigned char *x, const unsigned char *y, int64_t count, size_t size)
{
    if (l->bits < 0 || memcmp(x, y, (size_t)count * size) == 0)
        return;
    for (int64_t i = 0; i < count; i++)
        l->bits += memcmp(x + (size_t)i * size, y + (size_t)i * size, size) != 0;
}

static void
look_at_block(msp_elements *l, int64_t at, int64_t count, const msp_dtype t[2], const unsigned char *x,
              const unsigned char *y)
{
    size_t size[2] = {msp_dtype_size(t[0]), msp_dtype_size(t[1])};
    bool longs = is_long(t[0]) && is_long(t[1]);
    bool complex = msp_dtype_class_of(t[0]) == MSP_CLASS_COMPLEX || msp_dtype_class_of(t[1]) == MSP_CLASS_COMPLEX;

    count_bits(l, x, y, count, size[0]);
    for (int64_t i = 0; i < count; i++, x += size[0], y += size[1]) {
        if (longs)
            look_at_longs(l, at + i, t, x, y);
        else if (complex)
            look_at_complex(l, at + i, t, x, y);
        else
            look_at_numbers(l, at + i, msp_dtype_load_f64(t[0], x), msp_dtype_load_f64(t[1], y));
    }
}

static void
shape_map(msp_elements *l, const msp_tensor *t)
{
    l->columns = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    if (t->ndim == 1 && l->columns > ELEMENTS_MAP_COLUMNS) /* a line of one row shows little */
        l->columns = ELEMENTS_MAP_COLUMNS;
    l->rows = (t->numel + l->columns - 1) / l->columns;
    l->map_rows = l->rows < ELEMENTS_MAP_ROWS ? l->rows : ELEMENTS_MAP_ROWS;
    l->map_columns = l->columns < ELEMENTS_MAP_COLUMNS ? l->columns : ELEMENTS_MAP_COLUMNS;
}

void
msp_elements_look(msp_elements *out, const msp_tensor *n, const msp_tensor *b)
{
    const msp_dtype types[2] = {n->dtype, b->dtype};
    _Alignas(16) unsigned char room[2][BLOCK * WIDEST];
    msp_gather g[2];

    memset(out, 0, sizeof(*out));
    out->count = n->numel;
    out->first = -1;
    out->bits = n->dtype == b->dtype ? 0 : -1;
    if (n->numel == 0)
        return;
    shape_map(out, n);
    msp_gather_init(&g[0], n);
    msp_gather_init(&g[1], b);
    for (int64_t at = 0; at < n->numel; at += BLOCK) {
        int64_t count = n->numel - at < BLOCK ? n->numel - at : BLOCK;
        const unsigned char *x = msp_gather_block(&g[0], at, count, room[0]);
        const unsigned char *y = msp_gather_block(&g[1], at, count, room[1]);

        look_at_block(out, at, count, types, x, y);
    }
}
