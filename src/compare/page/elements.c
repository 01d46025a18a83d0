/*
 * elements.c - where in a tensor the errors are: how large, at which magnitudes, in which rows and columns.
 *
 * One pass over both tensors. Only the rows that a pair chose come here, so this adds little to a comparison.
 */
#include <math.h>
#include "compare/page/page_run.h"
#include "kernels/gather.h"
#include "msprobe/dtype.h"

enum {
    HIST_BINS = 42, /* half decades from 1e-12, one more on either side */
    MAG_BINS = 22,  /* decades of the bench from 1e-12, one more on either side */
    MAP_ROWS = 32,
    MAP_COLUMNS = 64,
    NWORST = 8,
    BLOCK = 4096
};

typedef struct looks {
    int64_t equal, mismatches, nonfinite;
    int64_t hist[HIST_BINS];
    int64_t mag_count[MAG_BINS];
    double mag_sum[MAG_BINS], mag_max[MAG_BINS];
    double map[MAP_ROWS * MAP_COLUMNS];
    int64_t rows, columns, map_rows, map_columns;
    struct {
        int64_t at;
        double err;
    } worst[NWORST];
    int nworst;
} looks;

static int
bin_of(double v, double per_decade, int bins)
{
    double b = (log10(v) + 12) * per_decade + 1;

    return b < 0 ? 0 : b >= bins ? bins - 1 : (int)b;
}

static void
note_worst(looks *l, int64_t at, double err)
{
    int i;

    if (l->nworst == NWORST && err <= l->worst[NWORST - 1].err)
        return;
    i = l->nworst < NWORST ? l->nworst++ : NWORST - 1;
    for (; i > 0 && l->worst[i - 1].err < err; i--)
        l->worst[i] = l->worst[i - 1];
    l->worst[i].at = at;
    l->worst[i].err = err;
}

static void
note_element(looks *l, int64_t at, double n, double b)
{
    double err = fabs(n - b), *cell;

    if (!isfinite(n) || !isfinite(b)) {
        l->nonfinite++;
        if (n == b || (isnan(n) && isnan(b)))
            return;
        l->mismatches++;
        err = INFINITY;
    } else if (err == 0) {
        l->equal++;
    } else {
        l->hist[bin_of(err, 2, HIST_BINS)]++;
    }
    if (isfinite(err) && b != 0) {
        int m = bin_of(fabs(b), 1, MAG_BINS);
        double rel = err / fabs(b);

        l->mag_count[m]++;
        l->mag_sum[m] += rel;
        if (rel > l->mag_max[m])
            l->mag_max[m] = rel;
    }
    if (err == 0)
        return;
    note_worst(l, at, err);
    cell =
        &l->map[at / l->columns * l->map_rows / l->rows * MAP_COLUMNS + at % l->columns * l->map_columns / l->columns];
    if (err > *cell)
        *cell = err;
}

static void
shape_map(looks *l, const msp_tensor *t)
{
    l->columns = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    if (t->ndim == 1 && l->columns > MAP_COLUMNS) /* a line of one row shows little */
        l->columns = MAP_COLUMNS;
    l->rows = (t->numel + l->columns - 1) / l->columns;
    l->map_rows = l->rows < MAP_ROWS ? l->rows : MAP_ROWS;
    l->map_columns = l->columns < MAP_COLUMNS ? l->columns : MAP_COLUMNS;
}

static void
look(looks *l, const msp_tensor *n, const msp_tensor *b)
{
    size_t size[2] = {msp_dtype_size(n->dtype), msp_dtype_size(b->dtype)};
    _Alignas(16) unsigned char room[2][BLOCK * 16];
    msp_gather g[2];

    msp_gather_init(&g[0], n);
    msp_gather_init(&g[1], b);
    for (int64_t at = 0; at < n->numel; at += BLOCK) {
        int64_t count = n->numel - at < BLOCK ? n->numel - at : BLOCK;
        const unsigned char *x = msp_gather_block(&g[0], at, count, room[0]);
        const unsigned char *y = msp_gather_block(&g[1], at, count, room[1]);

        for (int64_t i = 0; i < count; i++)
            note_element(l, at + i, msp_dtype_load_f64(n->dtype, x + (size_t)i * size[0]),
                         msp_dtype_load_f64(b->dtype, y + (size_t)i * size[1]));
    }
}

static void
write_counts(msp_json_writer *w, const char *key, const int64_t *v, size_t n)
{
    msp_json_write_key(w, msp_str_of(key));
    msp_json_begin_array(w);
    for (size_t i = 0; i < n; i++)
        msp_json_write_i64(w, v[i]);
    msp_json_end_array(w);
}

static void
write_magnitudes(msp_json_writer *w, const looks *l)
{
    msp_json_write_key(w, MSP_STR("mag"));
    msp_json_begin_array(w);
    for (int i = 0; i < MAG_BINS; i++) {
        msp_json_begin_array(w);
        msp_json_write_i64(w, l->mag_count[i]);
        msp_json_write_f64(w, l->mag_count[i] == 0 ? 0 : l->mag_sum[i] / (double)l->mag_count[i]);
        msp_json_write_f64(w, isfinite(l->mag_max[i]) ? l->mag_max[i] : 1e308);
        msp_json_end_array(w);
    }
    msp_json_end_array(w);
}

/* 0: equal; 1 to 254: a tenth of a decade and less from 1e-12 to 1e8; 255: NaN or inf on one side. */
static int64_t
shade(double err)
{
    double v;

    if (err == 0)
        return 0;
    if (!isfinite(err))
        return 255;
    v = 1 + (log10(err) + 12) / 20 * 253;
    return v < 1 ? 1 : v > 254 ? 254 : (int64_t)v;
}

static void
write_map(msp_json_writer *w, const looks *l)
{
    int64_t size[4] = {l->rows, l->columns, l->map_rows, l->map_columns};

    write_counts(w, "map_size", size, 4);
    msp_json_write_key(w, MSP_STR("map"));
    msp_json_begin_array(w);
    for (int64_t r = 0; r < l->map_rows; r++)
        for (int64_t c = 0; c < l->map_columns; c++)
            msp_json_write_i64(w, shade(l->map[r * MAP_COLUMNS + c]));
    msp_json_end_array(w);
}

static void
write_worst(msp_json_writer *w, const looks *l, const msp_tensor *n, const msp_tensor *b)
{
    msp_json_write_key(w, MSP_STR("worst"));
    msp_json_begin_array(w);
    for (int i = 0; i < l->nworst; i++) {
        int64_t at = l->worst[i].at, coords[MSP_MAX_NDIM];
        char value[2][80];

        msp_tensor_unravel(n, at, coords);
        msp_dtype_format(value[0], n->dtype, msp_tensor_at(n, at));
        msp_dtype_format(value[1], b->dtype, msp_tensor_at(b, at));
        msp_json_begin_array(w);
        msp_json_begin_array(w);
        for (int k = 0; k < n->ndim; k++)
            msp_json_write_i64(w, coords[k]);
        msp_json_end_array(w);
        msp_json_write_string(w, msp_str_of(value[0]));
        msp_json_write_string(w, msp_str_of(value[1]));
        msp_json_write_f64(w, isfinite(l->worst[i].err) ? l->worst[i].err : -1);
        msp_json_end_array(w);
    }
    msp_json_end_array(w);
}

static bool
same_shape(const msp_tensor *n, const msp_tensor *b)
{
    if (n->ndim != b->ndim || n->numel != b->numel)
        return false;
    for (int i = 0; i < n->ndim; i++)
        if (n->shape[i] != b->shape[i])
            return false;
    return true;
}

void
msp_page_elements(msp_json_writer *w, const msp_tensor *n, const msp_tensor *b, int64_t shown_row)
{
    looks l = {0};

    if (n->numel == 0 || !same_shape(n, b) || msp_dtype_size(n->dtype) > 16 || msp_dtype_size(b->dtype) > 16)
        return;
    shape_map(&l, n);
    look(&l, n, b);
    msp_json_begin_object(w);
    msp_json_write_key(w, MSP_STR("row"));
    msp_json_write_i64(w, shown_row);
    msp_json_write_key(w, MSP_STR("count"));
    msp_json_write_i64(w, n->numel);
    msp_json_write_key(w, MSP_STR("equal"));
    msp_json_write_i64(w, l.equal);
    msp_json_write_key(w, MSP_STR("mismatches"));
    msp_json_write_i64(w, l.mismatches);
    write_counts(w, "hist", l.hist, HIST_BINS);
    write_magnitudes(w, &l);
    write_map(w, &l);
    write_worst(w, &l, n, b);
    msp_json_end_object(w);
}
