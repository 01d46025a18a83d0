/*
 * versus.c - api_precision_compare: what run_ut measured on one device, judged by what it measured on another.
 *
 * Each row of the NPU's details meets the GPU's row of the same name. Which rule decides is the API's standard; ratios
 * are NPU over GPU, with a floor below the GPU's error that the type cannot resolve. Columns are found by their titles,
 * and a number that a rule needs and a table does not have leaves the result without a verdict, never with a pass.
 */
#include <math.h>
#include <stdio.h>
#include "core/alloc.h"
#include "core/arena.h"
#include "core/file.h"
#include "core/locale.h"
#include "core/log.h"
#include "core/map.h"
#include "core/number.h"
#include "core/path.h"
#include "core/vec.h"
#include "precheck/lines.h"
#include "precheck/read.h"

/* run_ut's columns, in its order. */
enum {
    COL_NAME = 0,
    COL_BENCH,
    COL_DEVICE,
    COL_SHAPE,
    COL_NUMBERS,
    COL_STATUS = COL_NUMBERS + MSP_PRECHECK_NUMBERS,
    COL_MESSAGE,
    NCOLUMNS
};

typedef struct detail {
    msp_str name, message;
    msp_dtype device;
    bool empty;       /* without a type, or of shape (0,): there is no result */
    bool unsupported; /* a type that no rule knows */
    bool failed;      /* run_ut's own verdict on it is error */
    bool has[MSP_PRECHECK_NUMBERS];
    double v[MSP_PRECHECK_NUMBERS];
} detail;

typedef struct side {
    msp_arena arena;
    msp_map names; /* value: index into rows */
    detail *rows;
    size_t count, cap;
    const char *path;
    size_t column[NCOLUMNS]; /* where each of run_ut's columns is in this table; NOWHERE */
} side;

/* ---- reading ---------------------------------------------------------------------------------------------------- */

#define NOWHERE ((size_t)-1)

/* The title of one of run_ut's columns. */
static msp_str
title_of(int column)
{
    const char *p = msp_precheck_details_header() + 3; /* behind the byte order mark */

    while (column-- > 0)
        p = strchr(p, ',') + 1;
    return (msp_str){p, strcspn(p, ",\r")};
}

static msp_str
text_at(const msp_cell *c)
{
    return c->kind == MSP_CELL_TEXT ? (msp_str){c->as.text.p, c->as.text.len} : (msp_str){"", 0};
}

/* Do verdicts depend on it? */
static bool
is_needed(int column)
{
    static const msp_precheck_column unused[] = {MSP_PRECHECK_COSINE, MSP_PRECHECK_MAX_ABS, MSP_PRECHECK_HUNDREDTH,
                                                 MSP_PRECHECK_TEN_THOUSANDTH, MSP_PRECHECK_ULP_MAX};

    for (size_t i = 0; i < sizeof(unused) / sizeof(*unused); i++)
        if (column == COL_NUMBERS + (int)unused[i])
            return false;
    return column == COL_NAME || column == COL_DEVICE || (column >= COL_NUMBERS && column < COL_STATUS);
}

static msp_status
on_header(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    side *s = payload;
    msp_buf missing = {0};
    msp_status st = MSP_OK;

    for (int c = 0; c < NCOLUMNS; c++) {
        msp_str title = title_of(c);

        s->column[c] = NOWHERE;
        for (size_t i = count; i-- > 0;)
            if (msp_str_eq(text_at(&cells[i]), title))
                s->column[c] = i;
        if (s->column[c] == NOWHERE && is_needed(c))
            msp_buf_printf(&missing, "%s%.*s", missing.len > 0 ? ", " : "", (int)title.len, title.p);
    }
    if (missing.len > 0)
        st = msp_error_set(err, MSP_E_FORMAT,
                           "not an accuracy_checking_details table: it has no column %s. Run 'msprobe run_ut' first",
                           missing.p);
    msp_buf_release(&missing);
    return st;
}

/* The number of a cell; false where there is none. */
static bool
read_number(double *out, const msp_cell *c)
{
    msp_str s = text_at(c);

    if (c->kind == MSP_CELL_FLOAT || c->kind == MSP_CELL_INT)
        *out = c->kind == MSP_CELL_FLOAT ? c->as.f : (double)c->as.i;
    else {
        while (s.len > 0 && (s.p[0] == ' ' || s.p[0] == '\'')) /* "'-inf": what keeps it from being a formula */
            s = (msp_str){s.p + 1, s.len - 1};
        while (s.len > 0 && s.p[s.len - 1] == ' ')
            s.len--;
        return msp_f64_parse(s, out);
    }
    return true;
}

static bool
is_blank(msp_str s)
{
    return strspn(s.len > 0 ? s.p : "", " ") >= s.len;
}

static msp_status
on_row(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    side *s = payload;
    msp_cell cell[NCOLUMNS] = {0};
    msp_str name, type, message;
    detail d = {0};
    bool fresh;

    for (int c = 0; c < NCOLUMNS; c++)
        if (s->column[c] < count)
            cell[c] = cells[s->column[c]];
    name = text_at(&cell[COL_NAME]);
    type = text_at(&cell[COL_DEVICE]);
    message = text_at(&cell[COL_MESSAGE]);
    if (name.len == 0)
        return MSP_OK;
    d.device = msp_dtype_parse(type.p, type.len);
    d.empty = is_blank(type) || msp_str_eq(text_at(&cell[COL_SHAPE]), MSP_STR("(0,)"));
    d.unsupported = d.device == MSP_F64 || msp_dtype_class_of(d.device) == MSP_CLASS_COMPLEX;
    for (int i = 0; i < MSP_PRECHECK_NUMBERS; i++)
        d.has[i] = read_number(&d.v[i], &cell[COL_NUMBERS + i]);
    d.failed = msp_str_eq(text_at(&cell[COL_STATUS]), msp_str_of(msp_precheck_status_text(MSP_PRECHECK_ERROR)));
    d.name = (msp_str){msp_arena_text(&s->arena, name.p, name.len), name.len};
    d.message = (msp_str){msp_arena_text(&s->arena, message.p, message.len), message.len};
    if (d.name.p == NULL || d.message.p == NULL ||
        !msp_vec_grow((void **)&s->rows, &s->cap, s->count + 1, sizeof(*s->rows)) ||
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

/* The numbers of a row, in the order of the table. */
enum {
    OUT_SMALL = 0,
    OUT_RMSE,
    OUT_MAX_REL,
    OUT_MEAN_REL,
    OUT_BALANCE,
    OUT_INF_NAN,
    OUT_REL,
    OUT_ABS,
    OUT_BINARY,
    OUT_ULP_MEAN,
    OUT_ULP_RATE,
    OUT_ULP_RATIO,
    OUT_THOUSANDTH,
    NOUT
};

typedef struct verdict {
    bool has[NOUT];
    double v[NOUT];
    msp_precheck_status is[NOUT]; /* SKIP: no verdict on this number */
    msp_precheck_status status;
    const char *rule;
    msp_buf message;
    msp_buf missing; /* titles of numbers that the rule needs */
} verdict;

static void
put_number(verdict *o, int at, double v)
{
    o->has[at] = true;
    o->v[at] = v;
}

/* complaint: what the message says where it is not ok. */
static void
put_status(verdict *o, int at, bool ok, const char *complaint)
{
    o->is[at] = ok ? MSP_PRECHECK_PASS : MSP_PRECHECK_ERROR;
    if (ok)
        return;
    o->status = MSP_PRECHECK_ERROR;
    msp_buf_printf(&o->message, "ERROR: %s\n", complaint);
}

/* Is the number there? Otherwise it is noted as missing. gpu may be NULL: the NPU's is enough. */
static bool
measured(verdict *o, const detail *n, const detail *g, msp_precheck_column c)
{
    msp_str title = title_of(COL_NUMBERS + (int)c);

    if (n->has[c] && (g == NULL || g->has[c]))
        return true;
    msp_buf_printf(&o->missing, "%s%.*s%s", o->missing.len > 0 ? ", " : "", (int)title.len, title.p,
                   n->has[c] ? " (GPU)" : "");
    return false;
}

/* One number that must be zero. */
static void
must_vanish(verdict *o, int at, const detail *n, msp_precheck_column c, const char *complaint)
{
    if (!measured(o, n, NULL, c))
        return;
    put_number(o, at, n->v[c]);
    put_status(o, at, n->v[c] == 0, complaint);
}

static double
floor_of(msp_dtype t)
{
    return t == MSP_F16 ? 0x1p-11 : t == MSP_BF16 ? 0x1p-8 : 0x1p-14;
}

/* Errors that are no numbers have no ratio, and must be the same on both devices: *same. */
static double
ratio_of(verdict *o, bool *same, const detail *n, const detail *g, msp_precheck_column c)
{
    double least = floor_of(n->device), npu = n->v[c], gpu = g->v[c];
    msp_str title = title_of(COL_NUMBERS + (int)c);

    *same = true;
    if (isfinite(npu) && isfinite(gpu))
        return fabs(npu) / (fabs(gpu) > least ? fabs(gpu) : least);
    *same = (isnan(npu) && isnan(gpu)) || npu == gpu;
    msp_buf_printf(&o->message, "%.*s%s\n", (int)title.len, title.p, *same ? "同为同号inf或nan" : "inf或nan不一致");
    return NAN;
}

static void
by_benchmark(verdict *o, const detail *n, const detail *g)
{
    static const struct {
        msp_precheck_column column;
        int at;
        double limit;
        const char *complaint; /* NULL: it does not decide */
    } rules[] = {{MSP_PRECHECK_SMALL_RATE, OUT_SMALL, 2, "小值域错误比值超过阈值"},
                 {MSP_PRECHECK_RMSE, OUT_RMSE, 2, "均方根误差比值超过阈值"},
                 {MSP_PRECHECK_MAX_REL, OUT_MAX_REL, 10, "相对误差最大值比值超过阈值"},
                 {MSP_PRECHECK_MEAN_REL, OUT_MEAN_REL, 2, "相对误差平均值比值超过阈值"},
                 {MSP_PRECHECK_BALANCE, OUT_BALANCE, 2, NULL}};
    bool ok[sizeof(rules) / sizeof(*rules)], there[sizeof(rules) / sizeof(*rules)];

    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
        there[i] = measured(o, n, g, rules[i].column);
        if (!there[i])
            continue;
        put_number(o, rules[i].at, ratio_of(o, &ok[i], n, g, rules[i].column));
        ok[i] = ok[i] && !(o->v[rules[i].at] > rules[i].limit);
    }
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++)
        if (there[i] && rules[i].complaint != NULL)
            put_status(o, rules[i].at, ok[i], rules[i].complaint);
        else if (there[i])
            o->is[rules[i].at] = ok[i] ? MSP_PRECHECK_PASS : MSP_PRECHECK_ERROR;
}

static void
by_ulp(verdict *o, const detail *n, const detail *g)
{
    double mean = n->v[MSP_PRECHECK_ULP_MEAN], rate = n->v[MSP_PRECHECK_ULP_RATE], ratio;
    bool has_mean = measured(o, n, g, MSP_PRECHECK_ULP_MEAN), has_rate = measured(o, n, g, MSP_PRECHECK_ULP_RATE);
    bool same_mean, same_rate, ok;

    if (!has_mean || !has_rate)
        return;
    (void)ratio_of(o, &same_mean, n, g, MSP_PRECHECK_ULP_MEAN);
    ratio = ratio_of(o, &same_rate, n, g, MSP_PRECHECK_ULP_RATE);
    put_number(o, OUT_ULP_MEAN, mean);
    put_number(o, OUT_ULP_RATE, rate);
    put_number(o, OUT_ULP_RATIO, ratio);
    ok = n->device == MSP_F32 ? mean < 64 || rate < 0.05 || ratio < 1
                              : rate < 0.001 || (msp_dtype_size(n->device) > 1 && ratio < 1);
    put_status(o, OUT_ULP_RATIO, same_mean && same_rate && ok, "ULP误差不满足标准");
}

/* The name that the standards know: "linear" of "Functional.linear.0", "linalg.norm" of "Torch.linalg.norm.0". False:
 * api is no call's name. */
static bool
function_of(char *buf, size_t size, msp_str api)
{
    msp_str rest = api;

    msp_str_shift(&rest);
    msp_str_pop(&rest);
    snprintf(buf, size, "%.*s", (int)rest.len, rest.p);
    return rest.len > 0;
}

static void
by_rule(verdict *o, const char *function, const detail *n, const detail *g)
{
    msp_precheck_standard standard = msp_precheck_standard_of(function, n->device);

    if (standard == MSP_PRECHECK_ABSOLUTE || n->has[MSP_PRECHECK_INF_NAN_RATE]) /* ours measures it for every rule */
        must_vanish(o, OUT_INF_NAN, n, MSP_PRECHECK_INF_NAN_RATE, "inf/nan错误率超过阈值");
    switch (standard) {
    case MSP_PRECHECK_ABSOLUTE:
        o->rule = "绝对阈值法";
        must_vanish(o, OUT_REL, n, MSP_PRECHECK_REL_RATE, "相对误差错误率超过阈值");
        must_vanish(o, OUT_ABS, n, MSP_PRECHECK_ABS_RATE, "绝对误差错误率超过阈值");
        break;
    case MSP_PRECHECK_BINARY:
        o->rule = "二进制一致法";
        must_vanish(o, OUT_BINARY, n, MSP_PRECHECK_ERROR_RATE, "二进制一致错误率超过阈值");
        break;
    case MSP_PRECHECK_THOUSANDTH:
        o->rule = "双千指标法";
        if (!measured(o, n, NULL, MSP_PRECHECK_THOUSANDTH_SHARE))
            break;
        put_number(o, OUT_THOUSANDTH, n->v[MSP_PRECHECK_THOUSANDTH_SHARE]);
        put_status(o, OUT_THOUSANDTH, n->v[MSP_PRECHECK_THOUSANDTH_SHARE] >= 0.999, "双千指标不达标");
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
}

#define INVALID_NAME "The API name %.*s is invalid."

/* g: NULL where the name is none that run_ut writes. */
static void
judge(verdict *o, const detail *n, const detail *g, const char *function)
{
    *o = (verdict){.status = MSP_PRECHECK_PASS, .rule = " "};
    if (g == NULL) {
        o->status = MSP_PRECHECK_SKIP;
        msp_buf_printf(&o->message, INVALID_NAME, (int)n->name.len, n->name.p);
        return;
    }
    if (n->empty || n->unsupported) {
        o->status = MSP_PRECHECK_SKIP;
        msp_buf_str(&o->message, n->message);
        return;
    }
    by_rule(o, function, n, g);
    if (o->missing.len == 0)
        return;
    if (o->status != MSP_PRECHECK_ERROR)
        o->status = n->failed ? MSP_PRECHECK_ERROR : MSP_PRECHECK_SKIP;
    msp_buf_printf(&o->message, "Not measured: %s%s", o->missing.p != NULL ? o->missing.p : "",
                   n->failed ? "; run_ut calls it an error" : "");
}

static void
release_verdict(verdict *o)
{
    msp_buf_release(&o->message);
    msp_buf_release(&o->missing);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static const char results_header[] = "\xef\xbb\xbf"
                                     "API Name,Forward Test Success,Backward Test Success,Message\r\n";
static const char details_header[] =
    "\xef\xbb\xbf"
    "API "
    "Name,小值域错误比值,小值域判定结果,均方根误差比值,均方根误差判定结果,相对误差最大值比值,相对误差最大值判定结果,"
    "相对误差平均值比值,相对误差平均值判定结果,误差均衡性比值,误差均衡性判定结果,inf/nan错误率,inf/nan判定结果,"
    "相对误差错误率,相对误差判定结果,绝对误差错误率,绝对误差判定结果,二进制一致错误率,二进制一致错误率判定结果,"
    "ULP误差平均值,ULP误差大于阈值占比,ULP误差大于阈值占比比值,ULP误差判定结果,双千指标,双千指标判定结果,比对结果,"
    "比对算法,Message\r\n";

/* A field of any length: written twice, the first time to know how long it is. */
static void
add_field(msp_buf *out, msp_str text)
{
    char *field = msp_str_copy(text);
    msp_precheck_text l = {NULL, 0, 0};
    char *room;

    if (field == NULL) {
        out->failed = true;
        return;
    }
    msp_precheck_text_field(&l, field);
    room = msp_buf_room(out, l.len + 1);
    if (room != NULL) {
        l = (msp_precheck_text){room, l.len + 1, 0};
        msp_precheck_text_field(&l, field);
        out->len += l.len;
        room[l.len] = '\0';
    }
    msp_free(field);
}

static void
write_detail(msp_buf *out, msp_str name, const verdict *o)
{
    char number[400];

    add_field(out, name);
    for (int i = 0; i < NOUT; i++) {
        msp_snprintf(number, sizeof(number), isnan(o->v[i]) ? "nan" : "%.14f", o->v[i]);
        msp_buf_printf(out, ",%s", o->has[i] ? number : " ");
        if (i != OUT_ULP_MEAN && i != OUT_ULP_RATE) /* the ratio's verdict is theirs, too */
            msp_buf_printf(out, ",%s", o->is[i] != MSP_PRECHECK_SKIP ? msp_precheck_status_text(o->is[i]) : " ");
    }
    msp_buf_printf(out, ",%s,%s,", msp_precheck_status_text(o->status), o->rule);
    add_field(out, msp_buf_view(&o->message));
    msp_buf_text(out, "\r\n");
}

/* An API: the worst of its results, wherever in the table they are. */
typedef struct group {
    msp_str api, skipped; /* skipped: why its last result without a verdict has none */
    msp_precheck_status forward, backward;
    bool has_forward, has_backward, supported, valid;
} group;

typedef struct groups {
    msp_map names; /* value: index into items */
    group *items;
    size_t count, cap;
    bool failed; /* no memory */
} groups;

static void
add_to_group(groups *all, msp_str api, const detail *n, msp_precheck_status status, bool valid)
{
    msp_str rest = {n->name.p + api.len, n->name.len - api.len};
    bool fresh, backward = msp_str_starts(rest, MSP_STR(".backward"));
    const msp_map_entry *e = msp_map_put(&all->names, api, (int64_t)all->count, &fresh);
    group *g;

    if (e == NULL || (fresh && !msp_vec_grow((void **)&all->items, &all->cap, all->count + 1, sizeof(*g)))) {
        all->failed = true;
        return;
    }
    g = &all->items[e->value];
    if (fresh) {
        *g = (group){.api = api};
        all->count++;
    }
    g->supported |= !n->unsupported;
    g->has_forward |= !backward || !valid;
    g->has_backward |= backward || !valid;
    if (backward)
        g->backward = status > g->backward ? status : g->backward;
    else
        g->forward = status > g->forward ? status : g->forward;
    if (status == MSP_PRECHECK_SKIP && !backward)
        g->skipped = n->message;
    g->valid |= valid;
}

/* What the API's row says: why there is no verdict, or what to think of when there is an error. */
static void
add_note(msp_buf *out, const group *g)
{
    char function[128];

    if (!g->valid)
        msp_buf_printf(out, INVALID_NAME, (int)g->api.len, g->api.p);
    else if (!g->supported)
        msp_buf_text(out, "This data type does not support benchmark compare.");
    else if (g->forward == MSP_PRECHECK_SKIP)
        msp_buf_str(out, g->skipped);
    else if (g->forward == MSP_PRECHECK_ERROR && function_of(function, sizeof(function), g->api) &&
             strcmp(function, "topk") == 0)
        msp_buf_text(out, "在npu上，topk的入参sorted=False时不生效，会返回有序tensor，而cpu上会返回无序tensor。 "
                          "如果topk精度不达标，请检查是否是该原因导致的。");
}

static void
write_groups(msp_buf *out, const groups *all, msp_precheck_versus *sum)
{
    for (size_t i = 0; i < all->count; i++) {
        const group *g = &all->items[i];
        msp_precheck_status worse = g->backward > g->forward ? g->backward : g->forward;
        bool none = !g->supported; /* the original says so of both directions */
        msp_buf note = {0};

        add_field(out, g->api);
        msp_buf_printf(out, ",%s,%s,", g->has_forward || none ? msp_precheck_status_text(g->forward) : " ",
                       g->has_backward || none ? msp_precheck_status_text(g->backward) : " ");
        add_note(&note, g);
        add_field(out, msp_buf_view(&note));
        out->failed |= note.failed;
        msp_buf_release(&note);
        msp_buf_text(out, "\r\n");
        sum->apis++;
        sum->count[worse]++;
        if (worse == MSP_PRECHECK_ERROR && sum->nerrors < MSP_PRECHECK_WORST)
            snprintf(sum->errors[sum->nerrors++], sizeof(sum->errors[0]), "%.*s", (int)g->api.len, g->api.p);
    }
}

/* The texts of both tables; out's counts. */
static msp_status
judge_rows(msp_buf *results, msp_buf *details, msp_precheck_versus *out, const side *npu, const side *gpu,
           msp_error *err)
{
    groups all = {0};
    size_t partners = 0;
    bool failed;

    msp_buf_text(results, results_header);
    msp_buf_text(details, details_header);
    for (size_t i = 0; i < npu->count; i++) {
        const detail *n = &npu->rows[i];
        const msp_map_entry *e = msp_map_get(&gpu->names, n->name);
        msp_str api = msp_precheck_api_of(n->name);
        char function[128];
        bool valid = api.len < n->name.len && function_of(function, sizeof(function), api);
        verdict o;

        partners += e != NULL;
        if (e == NULL && valid) {
            msp_warning("%.*s: %s has no such row; it is left out", (int)n->name.len, n->name.p, gpu->path);
            out->missing++;
            continue;
        }
        judge(&o, n, valid ? &gpu->rows[e->value] : NULL, function);
        write_detail(details, n->name, &o);
        add_to_group(&all, api, n, o.status, valid);
        all.failed |= o.message.failed || o.missing.failed;
        release_verdict(&o);
    }
    if (partners < gpu->count)
        msp_warning("%s has %zu rows that %s has not; they are left out", gpu->path, gpu->count - partners, npu->path);
    write_groups(results, &all, out);
    failed = all.failed;
    msp_map_release(&all.names);
    msp_free(all.items);
    return failed ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;
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
        st = judge_rows(&results, &details, out, &npu, &gpu, err);
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
        st = judge_rows(&results, &details, out, &npu, &gpu, err);
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
