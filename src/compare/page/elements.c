/* elements.c - what msp_elements_look() sees of a row's two tensors, as JSON for the page. */
#include <math.h>
#include "compare/page/page_run.h"
#include "kernels/elements.h"
#include "msprobe/dtype.h"

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
write_magnitudes(msp_json_writer *w, const msp_elements *l)
{
    msp_json_write_key(w, MSP_STR("mag"));
    msp_json_begin_array(w);
    for (int i = 0; i < ELEMENTS_MAG_BINS; i++) {
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
shade_of_error(double err)
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
write_map(msp_json_writer *w, const msp_elements *l)
{
    int64_t size[4] = {l->rows, l->columns, l->map_rows, l->map_columns};

    write_counts(w, "map_size", size, 4);
    msp_json_write_key(w, MSP_STR("map"));
    msp_json_begin_array(w);
    for (int64_t r = 0; r < l->map_rows; r++)
        for (int64_t c = 0; c < l->map_columns; c++)
            msp_json_write_i64(w, shade_of_error(l->map[r * ELEMENTS_MAP_COLUMNS + c]));
    msp_json_end_array(w);
}

static void
write_worst(msp_json_writer *w, const msp_elements *l, const msp_tensor *n, const msp_tensor *b)
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

void
msp_page_elements(msp_json_writer *w, const msp_tensor *n, const msp_tensor *b, int64_t shown_row)
{
    msp_elements l;

    if (n->numel == 0 || !msp_tensor_same_shape(n, b) || msp_dtype_size(n->dtype) > 16 || msp_dtype_size(b->dtype) > 16)
        return;
    msp_elements_look(&l, n, b);
    msp_json_begin_object(w);
    msp_json_write_key(w, MSP_STR("row"));
    msp_json_write_i64(w, shown_row);
    msp_json_write_key(w, MSP_STR("count"));
    msp_json_write_i64(w, n->numel);
    msp_json_write_key(w, MSP_STR("equal"));
    msp_json_write_i64(w, l.equal);
    msp_json_write_key(w, MSP_STR("mismatches"));
    msp_json_write_i64(w, l.mismatches);
    write_counts(w, "hist", l.hist, ELEMENTS_HIST_BINS);
    write_magnitudes(w, &l);
    write_map(w, &l);
    write_worst(w, &l, n, b);
    msp_json_end_object(w);
}
