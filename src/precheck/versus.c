/*
 * versus.c - api_precision_compare: what run_ut measured on one device, judged by what it measured on another.
 *
 * Each row of the NPU's details meets the GPU's row of the same name. Which rule decides is the API's standard; ratios
 * are NPU over GPU, with a floor below the GPU's error that the type cannot resolve.
 */
#include <math.h>
#include <stdio.h>
#include "core/alloc.h"
#include "core/arena.h"
#include "core/file.h"
#include "core/locale.h"
#include "core/log.h"
#include "core/map.h"
#include "core/path.h"
#include "core/vec.h"
#include "precheck/lines.h"
#include "precheck/read.h"

enum {
    COL_BENCH = 1,
    COL_DEVICE,
    COL_SHAPE,
    COL_NUMBERS,
    COL_STATUS = COL_NUMBERS + MSP_PRECHECK_NUMBERS,
    NCOLUMNS = COL_STATUS + 2
};

typedef struct detail {
    msp_str name;
    msp_dtype device;
    bool empty, failed; /* failed: run_ut's own verdict on it is error */
    bool has[MSP_PRECHECK_NUMBERS];
    double v[MSP_PRECHECK_NUMBERS];
} detail;

typedef struct side {
    msp_arena arena;
    msp_map names; /* value: index into rows */
    detail *rows;
    size_t count, cap;
    const char *path;
} side;

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static msp_status
on_header(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    (void)cells;
    (void)payload;
    if (count < NCOLUMNS)
        return msp_error_set(err, MSP_E_FORMAT,
                             "not an accuracy_checking_details table: %zu columns of %d. Run 'msprobe run_ut' first",
                             count, (int)NCOLUMNS);
    return MSP_OK;
}

static msp_str
text_at(const msp_cell *c)
{
    return c->kind == MSP_CELL_TEXT ? (msp_str){c->as.text.p, c->as.text.len} : (msp_str){"", 0};
}

/* Numbers that a table holds as text. */
static bool
is_special(msp_str s, double *out)
{
    if (msp_str_eq(s, MSP_STR("inf")))
        *out = INFINITY;
    else if (msp_str_eq(s, MSP_STR("-inf")) || msp_str_eq(s, MSP_STR("'-inf")))
        *out = -INFINITY;
    else if (msp_str_eq(s, MSP_STR("nan")))
        *out = NAN;
    else
        return false;
    return true;
}

static msp_status
on_row(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    side *s = payload;
    msp_str name = text_at(&cells[0]), type, shape;
    detail d = {0};
    bool fresh;

    if (count < NCOLUMNS - 1 || name.len == 0)
        return MSP_OK;
    type = text_at(&cells[COL_DEVICE]);
    shape = text_at(&cells[COL_SHAPE]);
    d.device = msp_dtype_parse(type.p, type.len);
    d.empty = d.device == MSP_DTYPE_NONE || d.device == MSP_F64 || msp_dtype_class_of(d.device) == MSP_CLASS_COMPLEX ||
              msp_str_eq(shape, MSP_STR("(0,)"));
    for (int i = 0; i < MSP_PRECHECK_NUMBERS; i++) {
        const msp_cell *c = &cells[COL_NUMBERS + i];

        d.has[i] = c->kind == MSP_CELL_FLOAT || c->kind == MSP_CELL_INT || is_special(text_at(c), &d.v[i]);
        if (c->kind != MSP_CELL_TEXT)
            d.v[i] = c->kind == MSP_CELL_FLOAT ? c->as.f : c->kind == MSP_CELL_INT ? (double)c->as.i : 0;
    }
    d.failed = msp_str_eq(text_at(&cells[COL_STATUS]), msp_str_of(msp_precheck_status_text(MSP_PRECHECK_ERROR)));
    d.name = (msp_str){msp_arena_text(&s->arena, name.p, name.len), name.len};
    if (d.name.p == NULL || !msp_vec_grow((void **)&s->rows, &s->cap, s->count + 1, sizeof(*s->rows)) ||
        msp_map_put(&s->names, d.name, (int64_t)s->count, &fresh) == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (!fresh)
        return msp_error_set(err, MSP_E_FORMAT, "%.*s is there twice", (int)name.len, name.p);
    s->rows[s->count++] = d;
    return MSP_OK;
}

static msp_status
read_side(side *s, const char *path, msp_error *err)
{
    msp_table_sink sink = {on_header, on_row, s};

    s->path = path;
    return msp_table_read(path, &sink, err);
}

static void
release_side(side *s)
{
    msp_map_release(&s->names);
    msp_arena_release(&s->arena);
    msp_free(s->rows);
}

/* ---- rules ------------------------------------------------------------------------------------------------------ */

/* The cells of a row, in the order of the table; a text of one space where there is nothing. */
enum {
    OUT_SMALL = 0,
    OUT_SMALL_OK,
    OUT_RMSE,
    OUT_RMSE_OK,
    OUT_MAX_REL,
    OUT_MAX_REL_OK,
    OUT_MEAN_REL,
    OUT_MEAN_REL_OK,
    OUT_BALANCE,
    OUT_BALANCE_OK,
    OUT_INF_NAN,
    OUT_INF_NAN_OK,
    OUT_REL,
    OUT_REL_OK,
    OUT_ABS,
    OUT_ABS_OK,
    OUT_BINARY,
    OUT_BINARY_OK,
    OUT_ULP_MEAN,
    OUT_ULP_RATE,
    OUT_ULP_RATIO,
    OUT_ULP_OK,
    OUT_THOUSANDTH,
    OUT_THOUSANDTH_OK,
    NOUT
};

typedef struct verdict {
    char cell[NOUT][32];
    msp_precheck_status status;
    bool judged; /* by at least one number */
    const char *rule;
    char message[128];
} verdict;

static void
put_number(verdict *o, int at, double v)
{
    msp_snprintf(o->cell[at], sizeof(o->cell[at]), "%.14g", v);
}

static void
put_status(verdict *o, int at, bool ok)
{
    o->judged = true;
    snprintf(o->cell[at], sizeof(o->cell[at]), "%s", ok ? "pass" : "error");
    if (!ok)
        o->status = MSP_PRECHECK_ERROR;
}

/* One number that must be zero. */
static void
must_vanish(verdict *o, int at, const detail *n, msp_precheck_column c)
{
    if (!n->has[c])
        return;
    put_number(o, at, n->v[c]);
    put_status(o, at + 1, n->v[c] == 0);
}

static double
floor_of(msp_dtype t)
{
    return t == MSP_F16 ? 0x1p-11 : t == MSP_BF16 ? 0x1p-8 : 0x1p-14;
}

/* Errors that are no numbers must be the same on both devices: 1 where they are. */
static double
ratio_of(const detail *n, const detail *g, msp_precheck_column c)
{
    double least = floor_of(n->device), gpu = fabs(g->v[c]);

    if (!isfinite(n->v[c]) || !isfinite(gpu))
        return (isnan(n->v[c]) && isnan(gpu)) || n->v[c] == g->v[c] ? 1 : INFINITY;
    return fabs(n->v[c]) / (gpu > least ? gpu : least);
}

static void
by_benchmark(verdict *o, const detail *n, const detail *g)
{
    static const struct {
        msp_precheck_column column;
        int at;
        double limit;
        bool decides;
    } rules[] = {{MSP_PRECHECK_SMALL_RATE, OUT_SMALL, 2, true},
                 {MSP_PRECHECK_RMSE, OUT_RMSE, 2, true},
                 {MSP_PRECHECK_MAX_REL, OUT_MAX_REL, 10, true},
                 {MSP_PRECHECK_MEAN_REL, OUT_MEAN_REL, 2, true},
                 {MSP_PRECHECK_BALANCE, OUT_BALANCE, 2, false}};

    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
        msp_precheck_status before = o->status;
        double ratio;

        if (!n->has[rules[i].column] || !g->has[rules[i].column])
            continue;
        ratio = ratio_of(n, g, rules[i].column);
        put_number(o, rules[i].at, ratio);
        put_status(o, rules[i].at + 1, ratio <= rules[i].limit);
        if (!rules[i].decides)
            o->status = before;
    }
}

static void
by_ulp(verdict *o, const detail *n, const detail *g)
{
    double mean = n->v[MSP_PRECHECK_ULP_MEAN], rate = n->v[MSP_PRECHECK_ULP_RATE], gpu = g->v[MSP_PRECHECK_ULP_RATE];
    double ratio = gpu > 0 ? rate / gpu : rate > 0 ? INFINITY : 1;
    bool wide = n->device == MSP_F32;

    if (!n->has[MSP_PRECHECK_ULP_MEAN] || !n->has[MSP_PRECHECK_ULP_RATE])
        return;
    put_number(o, OUT_ULP_MEAN, mean);
    put_number(o, OUT_ULP_RATE, rate);
    put_number(o, OUT_ULP_RATIO, ratio);
    put_status(o, OUT_ULP_OK,
               wide ? mean < 64 || rate < 0.05 || ratio < 1
                    : rate < 0.001 || (msp_dtype_size(n->device) > 1 && ratio < 1));
}

static void
judge(verdict *o, const detail *n, const detail *g)
{
    msp_str api = msp_precheck_api_of(n->name), part;
    char name[128];

    *o = (verdict){.status = MSP_PRECHECK_PASS, .rule = " "};
    for (int i = 0; i < NOUT; i++)
        snprintf(o->cell[i], sizeof(o->cell[i]), " ");
    if (n->empty) {
        o->status = MSP_PRECHECK_SKIP;
        snprintf(o->message, sizeof(o->message), "This type or shape is not judged.");
        return;
    }
    part = api;
    msp_str_shift(&part); /* Functional, Tensor, ... */
    part = msp_str_shift(&part);
    snprintf(name, sizeof(name), "%.*s", (int)part.len, part.p);
    must_vanish(o, OUT_INF_NAN, n, MSP_PRECHECK_INF_NAN_RATE); /* where it was measured, whatever the rule */
    switch (msp_precheck_standard_of(name, n->device)) {
    case MSP_PRECHECK_ABSOLUTE:
        o->rule = "绝对阈值法";
        must_vanish(o, OUT_REL, n, MSP_PRECHECK_REL_RATE);
        must_vanish(o, OUT_ABS, n, MSP_PRECHECK_ABS_RATE);
        break;
    case MSP_PRECHECK_BINARY:
        o->rule = "二进制一致法";
        must_vanish(o, OUT_BINARY, n, MSP_PRECHECK_ERROR_RATE);
        break;
    case MSP_PRECHECK_THOUSANDTH:
        o->rule = "双千指标法";
        if (n->has[MSP_PRECHECK_THOUSANDTH_SHARE]) {
            put_number(o, OUT_THOUSANDTH, n->v[MSP_PRECHECK_THOUSANDTH_SHARE]);
            put_status(o, OUT_THOUSANDTH_OK, n->v[MSP_PRECHECK_THOUSANDTH_SHARE] >= 0.999);
        }
        break;
    case MSP_PRECHECK_ULP:
        o->rule = "ULP误差比对法";
        by_ulp(o, n, g);
        break;
    case MSP_PRECHECK_BENCHMARK:
        o->rule = "标杆比对法";
        by_benchmark(o, n, g);
        break;
    }
    if (!o->judged)
        o->status = n->failed ? MSP_PRECHECK_ERROR : MSP_PRECHECK_SKIP;
    if (!o->judged)
        snprintf(o->message, sizeof(o->message), "%s",
                 n->failed ? "Nothing was measured on the device: its row is an error." : "Nothing was measured.");
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static const char details_header[] =
    "\xef\xbb\xbf"
    "API "
    "Name,小值域错误比值,小值域判定结果,均方根误差比值,均方根误差判定结果,相对误差最大值比值,相对误差最大值判定结果,"
    "相对误差平均值比值,相对误差平均值判定结果,误差均衡性比值,误差均衡性判定结果,inf/nan错误率,inf/nan判定结果,"
    "相对误差错误率,相对误差判定结果,绝对误差错误率,绝对误差判定结果,二进制一致错误率,二进制一致错误率判定结果,"
    "ULP误差平均值,ULP误差大于阈值占比,ULP误差大于阈值占比比值,ULP误差判定结果,双千指标,双千指标判定结果,比对结果,"
    "比对算法,Message\r\n";

static void
write_detail(msp_buf *out, msp_str name, const verdict *o)
{
    char text[4096], field[512];
    msp_precheck_text l = {text, sizeof(text), 0};

    snprintf(field, sizeof(field), "%.*s", (int)name.len, name.p);
    msp_precheck_text_field(&l, field);
    for (int i = 0; i < NOUT; i++) {
        msp_precheck_text_char(&l, ',');
        msp_precheck_text_text(&l, o->cell[i]);
    }
    msp_precheck_text_char(&l, ',');
    msp_precheck_text_text(&l, msp_precheck_status_text(o->status));
    msp_precheck_text_char(&l, ',');
    msp_precheck_text_text(&l, o->rule);
    msp_precheck_text_char(&l, ',');
    msp_precheck_text_field(&l, o->message);
    msp_buf_add(out, text, msp_precheck_text_end(&l));
}

/* The API whose rows are being read, until the next one begins. */
typedef struct group {
    msp_str api;
    msp_precheck_status forward, backward;
    bool has_backward;
} group;

static void
end_group(msp_buf *out, group *g, msp_precheck_versus *sum)
{
    char text[1024], name[512];
    msp_precheck_status worst = g->has_backward && g->backward > g->forward ? g->backward : g->forward;
    size_t len;

    if (g->api.len == 0)
        return;
    snprintf(name, sizeof(name), "%.*s", (int)g->api.len, g->api.p);
    len = msp_precheck_result_line(text, sizeof(text), name, g->forward, g->has_backward ? &g->backward : NULL, "");
    msp_buf_add(out, text, len < sizeof(text) ? len : sizeof(text) - 1);
    sum->apis++;
    sum->count[worst]++;
    *g = (group){0};
}

static void
add_to_group(group *g, msp_str api, msp_str name, msp_precheck_status status)
{
    msp_str rest = {name.p + api.len, name.len - api.len};

    g->api = api;
    if (msp_str_starts(rest, MSP_STR(".backward"))) {
        g->has_backward = true;
        g->backward = status > g->backward ? status : g->backward;
    } else
        g->forward = status > g->forward ? status : g->forward;
}

/* The texts of both tables; out's counts. */
static void
judge_rows(msp_buf *results, msp_buf *details, msp_precheck_versus *out, const side *npu, const side *gpu)
{
    group g = {0};

    msp_buf_text(results, msp_precheck_result_header());
    msp_buf_text(details, details_header);
    for (size_t i = 0; i < npu->count; i++) {
        const detail *n = &npu->rows[i];
        const msp_map_entry *e = msp_map_get(&gpu->names, n->name);
        msp_str api = msp_precheck_api_of(n->name);
        verdict o;

        if (e == NULL) {
            msp_warning("%.*s: %s has no such row; it is left out", (int)n->name.len, n->name.p, gpu->path);
            out->missing++;
            continue;
        }
        if (!msp_str_eq(api, g.api))
            end_group(results, &g, out);
        judge(&o, n, &gpu->rows[e->value]);
        write_detail(details, n->name, &o);
        add_to_group(&g, api, n->name, o.status);
    }
    end_group(results, &g, out);
}

msp_status
msp_precheck_compare_texts(msp_precheck_versus *out, msp_str npu_text, msp_str gpu_text, msp_error *err)
{
    side npu = {.path = "npu"}, gpu = {.path = "gpu"};
    const msp_table_sink npu_sink = {on_header, on_row, &npu}, gpu_sink = {on_header, on_row, &gpu};
    msp_buf results = {0}, details = {0};
    msp_status st = msp_csv_read(npu_text.p, npu_text.len, &npu_sink, err);

    *out = (msp_precheck_versus){0};
    if (st == MSP_OK)
        st = msp_csv_read(gpu_text.p, gpu_text.len, &gpu_sink, err);
    if (st == MSP_OK)
        judge_rows(&results, &details, out, &npu, &gpu);
    msp_buf_release(&results);
    msp_buf_release(&details);
    release_side(&npu);
    release_side(&gpu);
    return st;
}

static msp_status
write_file(const char *path, const msp_buf *text, msp_error *err)
{
    msp_file f = MSP_FILE_NONE;
    msp_status st = msp_buf_status(text, err);

    if (st == MSP_OK)
        st = msp_file_create(&f, path, 0640, err);
    if (st == MSP_OK)
        st = msp_file_write(&f, text->p, text->len, err);
    if (st == MSP_OK)
        return msp_file_commit(&f, err);
    msp_file_abandon(&f);
    return st;
}

msp_status
msp_precheck_compare(msp_precheck_versus *out, const char *npu_details, const char *gpu_details, const char *dir,
                     const char *stamp, msp_error *err)
{
    side npu = {0}, gpu = {0};
    msp_buf results = {0}, details = {0};
    msp_status st;

    *out = (msp_precheck_versus){0};
    snprintf(out->result, sizeof(out->result), "%s/api_precision_compare_result_%s.csv", dir, stamp);
    snprintf(out->details, sizeof(out->details), "%s/api_precision_compare_details_%s.csv", dir, stamp);
    st = read_side(&npu, npu_details, err);
    if (st == MSP_OK)
        st = read_side(&gpu, gpu_details, err);
    if (st == MSP_OK)
        judge_rows(&results, &details, out, &npu, &gpu);
    if (st == MSP_OK && out->apis == 0)
        st = msp_error_set(err, MSP_E_NOT_FOUND, "%s and %s have no row in common", npu_details, gpu_details);
    if (st == MSP_OK)
        st = msp_path_make_dirs(dir, err);
    if (st == MSP_OK)
        st = write_file(out->details, &details, err);
    if (st == MSP_OK)
        st = write_file(out->result, &results, err);
    msp_buf_release(&results);
    msp_buf_release(&details);
    release_side(&npu);
    release_side(&gpu);
    return st;
}
