/* show_tensor.c - a file of tensors: what is in it, and one tensor in numbers, histograms and first values. */
#include <math.h>
#include "show.h"

enum { BAR_WIDTH = 40, FIRST_ROWS = 4, FIRST_COLUMNS = 6, SOME_TENSORS = 60 };

typedef struct shown {
    const char *path, *name;
    const msp_tensor *t;
    msp_look_values v;
} shown;

static int
threads_of(const msp_args *args)
{
    int threads = 0;

    /* a wrong one was refused before */
    return msp_args_number(&threads, args, MSP_OPT_THREADS, "--threads", 1024, NULL) == MSP_OK ? threads : 0;
}

/* ---- for a person -------------------------------------------------------------------------------------------- */

static bool
is_whole(msp_dtype t)
{
    msp_dtype_class c = msp_dtype_class_of(t);

    return c == MSP_CLASS_INT || c == MSP_CLASS_BOOL;
}

static void
print_extreme(FILE *out, const shown *s, double v, int64_t exact)
{
    char number[32];

    if (s->t->dtype == MSP_U64)
        fprintf(out, "%llu", (unsigned long long)exact);
    else if (is_whole(s->t->dtype))
        fprintf(out, "%lld", (long long)exact);
    else
        msp_term_put(out, isfinite(v) ? MSP_STYLE_PLAIN : MSP_STYLE_RED, "%s", msp_show_number(number, v));
}

static void
print_statistics(FILE *out, const shown *s)
{
    const msp_stats *st = &s->v.stats;
    char number[32];

    print_label(out, "Statistics");
    if (st->count == 0) {
        fputs("no elements\n", out);
        return;
    }
    if (msp_dtype_class_of(s->t->dtype) != MSP_CLASS_COMPLEX) {
        fputs("max ", out);
        print_extreme(out, s, st->max, st->max_int);
        fputs(", min ", out);
        print_extreme(out, s, st->min, st->min_int);
        fputs(", ", out);
    }
    fprintf(out, "mean %s", msp_show_number(number, st->mean));
    if (msp_dtype_class_of(s->t->dtype) == MSP_CLASS_COMPLEX)
        fprintf(out, "%+.5gj", st->mean_imag);
    fprintf(out, ", norm %s\n", msp_show_number(number, st->norm));
    if (is_whole(s->t->dtype))
        return;
    print_label(out, "");
    fprintf(out, "%lld zero, %lld subnormal, ", (long long)st->zero, (long long)st->subnormal);
    msp_term_put(out, st->nan > 0 ? MSP_STYLE_RED : MSP_STYLE_PLAIN, "%lld NaN", (long long)st->nan);
    fputs(", ", out);
    msp_term_put(out, st->pos_inf + st->neg_inf > 0 ? MSP_STYLE_RED : MSP_STYLE_PLAIN, "%lld inf, %lld -inf",
                 (long long)st->pos_inf, (long long)st->neg_inf);
    if (st->first_bad >= 0) {
        fputs(", the first at ", out);
        msp_show_index(out, s->t, st->first_bad);
    }
    fputc('\n', out);
}

static void
print_bar(FILE *out, int64_t n, int64_t most)
{
    int width = most > 0 ? (int)((double)n / (double)most * BAR_WIDTH) : 0;

    if (n > 0 && width == 0)
        width = 1;
    fprintf(out, "%12lld  ", (long long)n);
    for (int i = 0; i < width; i++)
        fputc('#', out);
    fputc('\n', out);
}

static int64_t
most_of(const int64_t *v, int n)
{
    int64_t most = 0;

    for (int i = 0; i < n; i++)
        most = v[i] > most ? v[i] : most;
    return most;
}

static void
print_values(FILE *out, const shown *s)
{
    const msp_look_values *v = &s->v;
    int64_t most = most_of(v->bins, MSP_LOOK_BINS);
    double step = v->high / MSP_LOOK_BINS - v->low / MSP_LOOK_BINS;

    if (s->t->dtype == MSP_BOOL && s->t->numel > 0) {
        print_label(out, "");
        fprintf(out, "%lld True\n", (long long)lrint(v->stats.mean * (double)v->stats.count));
    }
    if (!(v->high > v->low) || s->t->dtype == MSP_BOOL)
        return;
    fputs("\n  Values from                 elements\n", out);
    for (int i = 0; i < MSP_LOOK_BINS; i++) {
        fprintf(out, "  %12.4g .. %-10.4g", v->low + step * i,
                i + 1 < MSP_LOOK_BINS ? v->low + step * (i + 1) : v->high);
        print_bar(out, v->bins[i], most);
    }
}

static void
print_decades(FILE *out, const msp_look_values *v)
{
    int64_t most = most_of(v->decades, MSP_LOOK_DECADES);
    int first = 0, last = MSP_LOOK_DECADES - 1;

    while (first < last && v->decades[first] == 0)
        first++;
    while (last > first && v->decades[last] == 0)
        last--;
    if (most == 0 || first == last)
        return;
    fputs("\n  Magnitude from              elements (zeroes left out)\n", out);
    for (int i = first; i <= last; i++) {
        int decade = MSP_LOOK_FIRST_DECADE + i - 1;

        if (i == 0)
            fprintf(out, "  %12s    1e%-8d", "below", decade + 1);
        else
            fprintf(out, "  %9s1e%-3d.. 1e%-8d", "", decade, decade + 1);
        print_bar(out, v->decades[i], most);
    }
}

/* All digits are in --json. */
static void
print_element(FILE *out, const msp_tensor *t, int64_t at)
{
    char text[80];

    if (msp_dtype_class_of(t->dtype) == MSP_CLASS_FLOAT)
        fprintf(out, " %12.6g", msp_dtype_load_f64(t->dtype, msp_tensor_at(t, at)));
    else
        fprintf(out, " %12s", msp_show_element(text, t, at));
}

/* The first rows of the last dimension, as many as are easily read. */
static void
print_first(FILE *out, const msp_tensor *t)
{
    int64_t columns = t->ndim > 0 ? t->shape[t->ndim - 1] : 1, rows = columns > 0 ? t->numel / columns : 0;

    if (t->numel == 0)
        return;
    fputs("\n  First values\n", out);
    for (int64_t r = 0; r < rows && r < FIRST_ROWS; r++) {
        fputs("  ", out);
        if (t->ndim > 1) {
            msp_show_index(out, t, r * columns);
            fputs("  ", out);
        }
        for (int64_t c = 0; c < columns && c < FIRST_COLUMNS; c++)
            print_element(out, t, r * columns + c);
        fputs(columns > FIRST_COLUMNS ? " ...\n" : "\n", out);
    }
    if (rows > FIRST_ROWS)
        fputs("  ...\n", out);
}

static void
print_head(FILE *out, const shown *s)
{
    char bytes[32], n[32];

    fputc('\n', out);
    print_label(out, "File");
    put_safe(out, MSP_STYLE_BOLD, s->path);
    fputc('\n', out);
    if (s->name[0] != '\0') {
        print_label(out, "Tensor");
        put_safe(out, MSP_STYLE_BOLD, s->name);
        fputc('\n', out);
    }
    print_label(out, "Type");
    fprintf(out, "%s, shape ", msp_dtype_torch_name(s->t->dtype));
    msp_show_shape(out, s->t);
    fprintf(out, ", %s element%s, %s%s%s\n", msp_format_count(n, s->t->numel), plural_ending(s->t->numel),
            msp_format_bytes(bytes, (double)s->t->numel * (double)msp_dtype_size(s->t->dtype)),
            msp_tensor_is_contiguous(s->t) ? "" : ", strided", s->t->requires_grad ? ", requires grad" : "");
}

static void
print_tensor(FILE *out, const shown *s)
{
    print_head(out, s);
    print_statistics(out, s);
    print_values(out, s);
    if (!is_whole(s->t->dtype))
        print_decades(out, &s->v);
    print_first(out, s->t);
}

static void
print_list_line(FILE *out, const msp_tensor *t, const char *name)
{
    char max[32], min[32], mean[32], norm[32];
    msp_stats st;

    msp_stats_compute_mt(&st, t, 0);
    fprintf(out, "  %11s %11s %11s %11s  %s ", msp_show_number(max, st.max), msp_show_number(min, st.min),
            msp_show_number(mean, st.mean), msp_show_number(norm, st.norm), msp_dtype_torch_name(t->dtype));
    msp_show_shape(out, t);
    fputs("  ", out);
    put_safe(out, st.nan + st.pos_inf + st.neg_inf > 0 ? MSP_STYLE_RED : MSP_STYLE_PLAIN, name);
    if (st.nan + st.pos_inf + st.neg_inf > 0)
        msp_term_put(out, MSP_STYLE_RED, "  %lld NaN, %lld inf", (long long)st.nan,
                     (long long)(st.pos_inf + st.neg_inf));
    fputc('\n', out);
}

static void
print_list(FILE *out, const char *path, const msp_tensor_file *f, bool all)
{
    size_t n = msp_tensor_file_count(f), lines = all || n <= SOME_TENSORS ? n : SOME_TENSORS;
    double bytes = 0;
    char text[32];

    for (size_t i = 0; i < n; i++)
        bytes += (double)msp_tensor_file_at(f, i)->numel * (double)msp_dtype_size(msp_tensor_file_at(f, i)->dtype);
    fputc('\n', out);
    print_label(out, "File");
    put_safe(out, MSP_STYLE_BOLD, path);
    fprintf(out, "\n");
    print_label(out, "Tensors");
    fprintf(out, "%zu, %s\n\n  %11s %11s %11s %11s\n", n, msp_format_bytes(text, bytes), "max", "min", "mean", "norm");
    for (size_t i = 0; i < lines; i++)
        print_list_line(out, msp_tensor_file_at(f, i), msp_tensor_file_name(f, i));
    if (lines < n)
        fprintf(out, "  ... and %zu tensors more (--all lists them)\n", n - lines);
    fputs("\n  msprobe show FILE TENSOR shows one of them with its histogram\n", out);
}

/* ---- for programs -------------------------------------------------------------------------------------------- */

static void
json_extreme(msp_jsonout *j, const char *key, const shown *s, double v, int64_t exact)
{
    char text[32];

    if (s->t->dtype == MSP_U64 && exact < 0) { /* beyond what programs read as a whole number */
        snprintf(text, sizeof(text), "%llu", (unsigned long long)exact);
        msp_jsonout_text(j, key, text);
    } else if (is_whole(s->t->dtype)) {
        msp_jsonout_int(j, key, exact);
    } else {
        msp_jsonout_float(j, key, v);
    }
}

static void
json_histograms(msp_jsonout *j, const msp_look_values *v)
{
    msp_jsonout_open(j, "histogram", '{');
    msp_jsonout_float(j, "low", v->low);
    msp_jsonout_float(j, "high", v->high);
    msp_jsonout_ints(j, "counts", v->bins, MSP_LOOK_BINS);
    msp_jsonout_close(j, '}');
    msp_jsonout_open(j, "magnitudes", '{');
    msp_jsonout_int(j, "first_decade", MSP_LOOK_FIRST_DECADE);
    msp_jsonout_ints(j, "counts", v->decades, MSP_LOOK_DECADES);
    msp_jsonout_close(j, '}');
}

static void
json_tensor(msp_jsonout *j, const shown *s)
{
    const msp_stats *st = &s->v.stats;
    char text[80];

    msp_jsonout_open(j, NULL, '{');
    msp_jsonout_text(j, "name", s->name);
    msp_jsonout_text(j, "type", msp_dtype_torch_name(s->t->dtype));
    msp_show_json_shape(j, "shape", s->t);
    msp_jsonout_int(j, "elements", s->t->numel);
    msp_jsonout_bool(j, "requires_grad", s->t->requires_grad);
    json_extreme(j, "max", s, st->max, st->max_int);
    json_extreme(j, "min", s, st->min, st->min_int);
    msp_jsonout_float(j, "mean", st->mean);
    msp_jsonout_float(j, "norm", st->norm);
    msp_jsonout_int(j, "nan", st->nan);
    msp_jsonout_int(j, "inf", st->pos_inf);
    msp_jsonout_int(j, "minus_inf", st->neg_inf);
    msp_jsonout_int(j, "zero", st->zero);
    msp_jsonout_int(j, "subnormal", st->subnormal);
    if (st->first_bad >= 0)
        msp_show_json_index(j, "first_not_finite", s->t, st->first_bad);
    else
        msp_jsonout_text(j, "first_not_finite", NULL);
    json_histograms(j, &s->v);
    msp_jsonout_open(j, "first_values", '[');
    for (int64_t i = 0; i < s->t->numel && i < FIRST_ROWS * FIRST_COLUMNS; i++)
        msp_jsonout_text(j, NULL, msp_show_element(text, s->t, i));
    msp_jsonout_close(j, ']');
    msp_jsonout_close(j, '}');
}

static void
json_file(const msp_args *args, const char *path, const msp_tensor_file *f, size_t from, size_t to)
{
    msp_jsonout j = {.out = stdout, .first = true};

    msp_jsonout_open(&j, NULL, '{');
    msp_jsonout_int(&j, "version", 1);
    msp_jsonout_text(&j, "kind", "tensors");
    msp_jsonout_text(&j, "path", path);
    msp_jsonout_open(&j, "tensors", '[');
    for (size_t i = from; i < to; i++) {
        shown s = {.path = path, .name = msp_tensor_file_name(f, i), .t = msp_tensor_file_at(f, i)};

        msp_look_at_tensor(&s.v, s.t, threads_of(args));
        json_tensor(&j, &s);
    }
    msp_jsonout_close(&j, ']');
    msp_jsonout_close(&j, '}');
}

/* ---- one file ------------------------------------------------------------------------------------------------ */

static msp_status
choose_tensors(size_t *from, size_t *to, const msp_tensor_file *f, const char *path, const char *name, msp_error *err)
{
    msp_nearest near = {.word = name};

    *from = 0;
    *to = msp_tensor_file_count(f);
    if (*to == 0)
        return msp_error_set(err, MSP_E_NOT_FOUND, "%s: no tensor inside", path);
    if (name == NULL)
        return MSP_OK;
    *from = msp_show_tensor_named(f, name);
    if (*from < *to) {
        *to = *from + 1;
        return MSP_OK;
    }
    for (size_t i = 0; i < *to; i++)
        msp_nearest_offer(&near, msp_tensor_file_name(f, i));
    if (near.best != NULL)
        return msp_error_set(err, MSP_E_NOT_FOUND, "%s: no tensor '%.200s' in it; did you mean '%.200s'?", path, name,
                             near.best);
    return msp_error_set(err, MSP_E_NOT_FOUND, "%s: no tensor '%.200s' among the %zu in it, which begin with '%.200s'",
                         path, name, *to, msp_tensor_file_name(f, 0));
}

msp_exit_code
msp_show_tensor_file(const msp_args *args, const char *path, const char *name)
{
    msp_tensor_file *f;
    size_t from = 0, to = 0;
    msp_error err;
    msp_status st = msp_tensor_file_open(&f, path, &err);

    if (st == MSP_OK)
        st = choose_tensors(&from, &to, f, path, name, &err);
    if (st == MSP_OK && msp_args_has(args, MSP_OPT_JSON)) {
        json_file(args, path, f, from, to);
    } else if (st == MSP_OK && to - from > 1) {
        print_list(stdout, path, f, msp_args_has(args, MSP_OPT_ALL));
    } else if (st == MSP_OK) {
        shown s = {.path = path, .name = msp_tensor_file_name(f, from), .t = msp_tensor_file_at(f, from)};

        msp_look_at_tensor(&s.v, s.t, threads_of(args));
        print_tensor(stdout, &s);
    }
    if (st == MSP_OK)
        st = msp_tensor_file_check(f, path, &err);
    msp_tensor_file_close(f);
    return st == MSP_OK ? MSP_EXIT_OK : msp_cli_fail(st, &err);
}
