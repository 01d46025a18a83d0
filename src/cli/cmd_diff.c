/* cmd_diff.c - msprobe diff: two tensor files side by side, without dumps around them. */
#include <math.h>
#include "show.h"

enum { MAX_THREADS = 1024, SOME_LINES = 60, MAP_LINES = 16 };

/* Tensors of both files that are compared, or one of them alone. */
typedef struct pair {
    const char *name;
    const msp_tensor *t[2]; /* NULL: this file has no tensor of the name */
} pair;

typedef struct differing {
    const msp_args *args;
    const char *path[2];
    msp_tensor_file *file[2];
    pair *pairs;
    size_t npairs;
    int threads;
    size_t different, wrong, alone; /* pairs that are not identical, not accurate, and tensors without partner */
} differing;

/* ---- which tensors ------------------------------------------------------------------------------------------- */

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

static int
by_name(const void *a, const void *b)
{
    return strcmp(((const pair *)a)->name, ((const pair *)b)->name);
}

/* Tensors of the same name meet; the order is that of the first file, then what only the second has. */
static msp_status
pair_names(differing *d, msp_error *err)
{
    size_t n = msp_tensor_file_count(d->file[0]), m = msp_tensor_file_count(d->file[1]);
    pair *sorted = calloc(m + 1, sizeof(*sorted));

    d->pairs = calloc(n + m + 1, sizeof(*d->pairs));
    if (d->pairs == NULL || sorted == NULL) {
        free(sorted);
        return no_memory(err);
    }
    for (size_t i = 0; i < m; i++)
        sorted[i] = (pair){msp_tensor_file_name(d->file[1], i), {NULL, msp_tensor_file_at(d->file[1], i)}};
    qsort(sorted, m, sizeof(*sorted), by_name);
    for (size_t i = 0; i < n; i++) {
        pair p = {msp_tensor_file_name(d->file[0], i), {msp_tensor_file_at(d->file[0], i), NULL}};
        pair *partner = bsearch(&p, sorted, m, sizeof(*sorted), by_name);

        if (partner != NULL && partner->t[0] == NULL) {
            p.t[1] = partner->t[1];
            partner->t[0] = p.t[0];
        }
        d->pairs[d->npairs++] = p;
    }
    for (size_t i = 0; i < m; i++)
        if (sorted[i].t[0] == NULL)
            d->pairs[d->npairs++] = sorted[i];
    free(sorted);
    return MSP_OK;
}

static msp_status
pair_one(differing *d, const char *name, msp_error *err)
{
    d->pairs = calloc(1, sizeof(*d->pairs));
    if (d->pairs == NULL)
        return no_memory(err);
    d->pairs[0].name = name;
    for (int side = 0; side < 2; side++) {
        size_t n = msp_tensor_file_count(d->file[side]), at = n == 1 ? 0 : msp_show_tensor_named(d->file[side], name);

        if (at == n)
            return msp_error_set(err, MSP_E_NOT_FOUND, "%s: no tensor '%.200s' among the %zu in it", d->path[side],
                                 name, n);
        d->pairs[0].t[side] = msp_tensor_file_at(d->file[side], at);
    }
    d->npairs = 1;
    return MSP_OK;
}

static msp_status
find_pairs(differing *d, const char *name, msp_error *err)
{
    for (int side = 0; side < 2; side++)
        if (msp_tensor_file_count(d->file[side]) == 0)
            return msp_error_set(err, MSP_E_NOT_FOUND, "%s: no tensor inside", d->path[side]);
    if (name != NULL)
        return pair_one(d, name, err);
    if (msp_tensor_file_count(d->file[0]) == 1 && msp_tensor_file_count(d->file[1]) == 1)
        return pair_one(d, msp_tensor_file_name(d->file[0], 0), err);
    return pair_names(d, err);
}

/* ---- for a person -------------------------------------------------------------------------------------------- */

static bool
is_wrong(const msp_look_difference *r)
{
    return !r->same_shape || r->mismatches > 0 || strcmp(r->verdict, "No") == 0;
}

/* Ten times below the largest error is a digit less; '.' no error, '!' NaN or inf on one side only. */
static char
mark_of(double error, double largest)
{
    double below;

    if (error == 0)
        return '.';
    if (!isfinite(error))
        return '!';
    below = largest > 0 ? floor(log10(largest / error)) : 0;
    return (char)('9' - (below > 8 ? 8 : below < 0 ? 0 : (int)below));
}

static void
print_map(FILE *out, const msp_look_difference *r)
{
    int64_t lines = r->map_rows < MAP_LINES ? r->map_rows : MAP_LINES;
    double largest = 0;

    for (int64_t i = 0; i < r->map_rows; i++)
        for (int64_t k = 0; k < r->map_columns; k++)
            if (isfinite(r->map[i * MSP_LOOK_MAP_COLUMNS + k]))
                largest = fmax(largest, r->map[i * MSP_LOOK_MAP_COLUMNS + k]);
    fprintf(out, "\n  Where the errors are: %lld row%s of %lld, 9 the largest, 8 a tenth, . none, ! NaN or inf\n",
            (long long)r->rows, plural_ending(r->rows), (long long)r->columns);
    for (int64_t i = 0; i < lines; i++) {
        fputs("    ", out);
        for (int64_t k = 0; k < r->map_columns; k++) {
            double worst = 0;

            for (int64_t m = i * r->map_rows / lines; m < (i + 1) * r->map_rows / lines; m++)
                worst = fmax(worst, r->map[m * MSP_LOOK_MAP_COLUMNS + k]);
            fputc(mark_of(worst, largest), out);
        }
        fputc('\n', out);
    }
}

static void
print_errors(FILE *out, const msp_look_difference *r)
{
    int first = 0, last = MSP_LOOK_ERROR_BINS - 1;

    while (first < last && r->errors[first] == 0)
        first++;
    while (last > first && r->errors[last] == 0)
        last--;
    if (r->errors[first] == 0)
        return;
    fputs("\n  Size of the errors     elements\n", out);
    for (int i = first; i <= last; i++) {
        double from = pow(10, (i - 1) / 2.0 - 12);

        if (i == 0)
            fprintf(out, "    below 1e-12      %12lld\n", (long long)r->errors[i]);
        else
            fprintf(out, "    from %-11.3g %12lld\n", from, (long long)r->errors[i]);
    }
}

static void
print_element(FILE *out, const pair *p, int64_t at, double error)
{
    char a[80], b[80];

    msp_show_index(out, p->t[0], at);
    fprintf(out, ": %s against %s", msp_show_element(a, p->t[0], at), msp_show_element(b, p->t[1], at));
    if (isfinite(error))
        fprintf(out, ", error %.6g", error);
    fputc('\n', out);
}

static void
print_elements(FILE *out, const pair *p, const msp_look_difference *r)
{
    print_label(out, "First differs");
    print_element(out, p, r->first, NAN);
    for (size_t i = 0; i < r->nworst; i++) {
        print_label(out, i == 0 ? "Worst" : "");
        print_element(out, p, r->worst[i].at, r->worst[i].error);
    }
}

static void
print_metric(FILE *out, const char *name, msp_cell c)
{
    fprintf(out, "%s ", name);
    msp_show_cell(out, c);
}

static void
print_metrics(FILE *out, const msp_look_difference *r)
{
    print_label(out, "Metrics");
    print_metric(out, "Cosine", r->cosine);
    print_metric(out, ", EucDist", r->euc_dist);
    print_metric(out, ", MaxAbsErr", r->max_abs);
    print_metric(out, ", MaxRelativeErr", r->max_rel);
    fputc('\n', out);
    print_label(out, "");
    print_metric(out, "One Thousandth Err Ratio", r->one_thousandth);
    print_metric(out, ", Five Thousandths Err Ratio", r->five_thousandths);
    fputc('\n', out);
    if (r->message[0] == '\0')
        return;
    print_label(out, "");
    put_safe(out, MSP_STYLE_YELLOW, r->message);
    fputc('\n', out);
}

static void
print_answer(FILE *out, const pair *p, const msp_look_difference *r)
{
    print_label(out, "Verdict");
    if (r->identical)
        msp_term_put(out, MSP_STYLE_GREEN, "identical to the bit");
    else if (!r->same_shape)
        msp_term_put(out, MSP_STYLE_RED, "different shapes: nothing to compare");
    else if (r->differ == 0)
        fprintf(out, "equal values, %s", r->same_type ? "different bits (+0 and -0, or NaN)" : "different types");
    else
        msp_term_put(out, is_wrong(r) ? MSP_STYLE_RED : MSP_STYLE_PLAIN,
                     "%lld of %lld elements differ; Accuracy Reached or Not: %s", (long long)r->differ,
                     (long long)p->t[0]->numel, r->verdict);
    fputc('\n', out);
    if (r->mismatches > 0) {
        print_label(out, "");
        msp_term_put(out, MSP_STYLE_RED, "%lld are NaN or inf on one side only, or infinite with the other sign",
                     (long long)r->mismatches);
        fputc('\n', out);
    }
    if (r->pattern[0] != '\0') {
        print_label(out, "Pattern");
        fprintf(out, "%s\n", r->pattern);
    }
}

static void
print_sides(FILE *out, const differing *d, const pair *p)
{
    fputc('\n', out);
    for (int side = 0; side < 2; side++) {
        print_label(out, side == 0 ? "Compared" : "with");
        put_safe(out, MSP_STYLE_PLAIN, d->path[side]);
        fprintf(out, ": %s ", msp_dtype_torch_name(p->t[side]->dtype));
        msp_show_shape(out, p->t[side]);
        fputc('\n', out);
    }
    if (p->name[0] == '\0')
        return;
    print_label(out, "Tensor");
    put_safe(out, MSP_STYLE_BOLD, p->name);
    fputc('\n', out);
}

static void
print_pair(FILE *out, const differing *d, const pair *p, const msp_look_difference *r)
{
    print_sides(out, d, p);
    print_answer(out, p, r);
    if (r->same_shape && p->t[0]->numel > 0)
        print_metrics(out, r);
    if (r->differ == 0)
        return;
    print_elements(out, p, r);
    print_errors(out, r);
    print_map(out, r);
}

/* One line of a list; the words are those of print_answer(). */
static void
print_line(FILE *out, const pair *p, const msp_look_difference *r)
{
    char number[32];

    if (r == NULL)
        msp_term_put(out, MSP_STYLE_YELLOW, "  %-10s %11s %15s  ", p->t[0] == NULL ? "only in B" : "only in A", "-",
                     "-");
    else {
        msp_term_put(out, is_wrong(r) ? MSP_STYLE_RED : MSP_STYLE_PLAIN, "  %-10s ",
                     r->identical     ? "identical"
                     : !r->same_shape ? "shape"
                     : r->differ == 0 ? "equal"
                                      : r->verdict);
        fprintf(out, "%11s ", r->same_shape ? msp_show_number(number, r->metrics.max_abs_err) : "-");
        fprintf(out, "%15s  ", r->same_shape ? msp_show_digits(number, r->metrics.cosine) : "-");
    }
    put_safe(out, MSP_STYLE_PLAIN, p->name);
    fputc('\n', out);
}

/* ---- for programs -------------------------------------------------------------------------------------------- */

static void
json_side(msp_jsonout *j, const char *key, const msp_tensor *t)
{
    if (t == NULL) {
        msp_jsonout_text(j, key, NULL);
        return;
    }
    msp_jsonout_open(j, key, '{');
    msp_jsonout_text(j, "type", msp_dtype_torch_name(t->dtype));
    msp_show_json_shape(j, "shape", t);
    msp_jsonout_close(j, '}');
}

static void
json_element(msp_jsonout *j, const char *key, const pair *p, int64_t at, const double *error)
{
    char text[80];

    msp_jsonout_open(j, key, '{');
    msp_show_json_index(j, "index", p->t[0], at);
    msp_jsonout_text(j, "a", msp_show_element(text, p->t[0], at));
    msp_jsonout_text(j, "b", msp_show_element(text, p->t[1], at));
    if (error != NULL)
        msp_jsonout_float(j, "error", *error);
    msp_jsonout_close(j, '}');
}

static void
json_map(msp_jsonout *j, const msp_look_difference *r)
{
    msp_jsonout_open(j, "map", '[');
    for (int64_t i = 0; i < r->map_rows; i++) {
        msp_jsonout_open(j, NULL, '[');
        for (int64_t k = 0; k < r->map_columns; k++)
            msp_jsonout_float(j, NULL, r->map[i * MSP_LOOK_MAP_COLUMNS + k]);
        msp_jsonout_close(j, ']');
    }
    msp_jsonout_close(j, ']');
}

static void
json_where(msp_jsonout *j, const pair *p, const msp_look_difference *r)
{
    json_element(j, "first", p, r->first, NULL);
    msp_jsonout_open(j, "worst", '[');
    for (size_t i = 0; i < r->nworst; i++)
        json_element(j, NULL, p, r->worst[i].at, &r->worst[i].error);
    msp_jsonout_close(j, ']');
    msp_jsonout_open(j, "errors", '[');
    for (int i = 0; i < MSP_LOOK_ERROR_BINS; i++)
        msp_jsonout_int(j, NULL, r->errors[i]);
    msp_jsonout_close(j, ']');
    json_map(j, r);
    msp_jsonout_text(j, "pattern", r->pattern[0] != '\0' ? r->pattern : NULL);
}

static void
json_pair(msp_jsonout *j, const pair *p, const msp_look_difference *r)
{
    msp_jsonout_open(j, NULL, '{');
    msp_jsonout_text(j, "name", p->name);
    json_side(j, "a", p->t[0]);
    json_side(j, "b", p->t[1]);
    if (r != NULL) {
        msp_jsonout_bool(j, "identical", r->identical);
        msp_jsonout_text(j, "verdict", r->verdict);
        msp_jsonout_text(j, "message", r->message);
        msp_show_json_cell(j, "cosine", r->cosine);
        msp_show_json_cell(j, "euc_dist", r->euc_dist);
        msp_show_json_cell(j, "max_abs_err", r->max_abs);
        msp_show_json_cell(j, "max_relative_err", r->max_rel);
        msp_show_json_cell(j, "one_thousandth_err_ratio", r->one_thousandth);
        msp_show_json_cell(j, "five_thousandths_err_ratio", r->five_thousandths);
        msp_jsonout_int(j, "differ", r->differ);
        msp_jsonout_int(j, "mismatches", r->mismatches);
    }
    if (r != NULL && r->differ > 0)
        json_where(j, p, r);
    msp_jsonout_close(j, '}');
}

/* ---- all pairs ----------------------------------------------------------------------------------------------- */

static msp_status
show_difference(differing *d, size_t i, msp_jsonout *j, msp_error *err)
{
    const pair *p = &d->pairs[i];
    bool both = p->t[0] != NULL && p->t[1] != NULL, all = msp_args_has(d->args, MSP_OPT_ALL);
    msp_look_difference *r = both ? malloc(sizeof(*r)) : NULL;
    msp_status st = MSP_OK;

    if (both)
        st = r == NULL ? no_memory(err) : msp_look_at_two(r, p->t[0], p->t[1], d->threads, err);
    if (st == MSP_OK) {
        d->alone += !both;
        d->different += both && !r->identical;
        d->wrong += both && is_wrong(r);
        if (j != NULL)
            json_pair(j, p, r);
        else if (msp_args_has(d->args, MSP_OPT_QUIET))
            ;
        else if (d->npairs == 1)
            print_pair(stdout, d, p, r);
        else if (all || i < SOME_LINES || !both || is_wrong(r))
            print_line(stdout, p, r);
    }
    free(r);
    return st;
}

static void
print_totals(const differing *d)
{
    printf("\n  %zu tensors: %zu differ, %zu of them wrong, %zu in one file only\n"
           "  msprobe diff A B TENSOR shows where in one of them the errors are\n",
           d->npairs, d->different, d->wrong, d->alone);
}

static msp_status
compare_all(differing *d, msp_error *err)
{
    bool json = msp_args_has(d->args, MSP_OPT_JSON), quiet = msp_args_has(d->args, MSP_OPT_QUIET);
    msp_jsonout j = {.out = stdout, .first = true};
    msp_status st = MSP_OK;

    if (json) {
        msp_jsonout_open(&j, NULL, '{');
        msp_jsonout_int(&j, "version", 1);
        msp_jsonout_text(&j, "kind", "diff");
        msp_jsonout_text(&j, "a", d->path[0]);
        msp_jsonout_text(&j, "b", d->path[1]);
        msp_jsonout_open(&j, "tensors", '[');
    } else if (d->npairs > 1 && !quiet) {
        printf("\n  %-10s %11s %15s  tensor\n", "", "MaxAbsErr", "Cosine");
    }
    for (size_t i = 0; i < d->npairs && st == MSP_OK; i++)
        st = show_difference(d, i, json ? &j : NULL, err);
    if (json) {
        msp_jsonout_close(&j, ']');
        msp_jsonout_int(&j, "different", (int64_t)d->different);
        msp_jsonout_int(&j, "wrong", (int64_t)d->wrong);
        msp_jsonout_int(&j, "in_one_file_only", (int64_t)d->alone);
        msp_jsonout_close(&j, '}');
    } else if (d->npairs > 1 && !quiet) {
        print_totals(d);
    }
    return st;
}

static msp_exit_code
exit_code(const differing *d)
{
    const char *what = msp_args_get(d->args, MSP_OPT_FAIL_ON, "");

    if (strcmp(what, "any") == 0 && d->different + d->alone > 0)
        return MSP_EXIT_DIFFERENT;
    return strcmp(what, "no") == 0 && d->wrong > 0 ? MSP_EXIT_DIFFERENT : MSP_EXIT_OK;
}

static msp_status
open_side(differing *d, int side, msp_error *err)
{
    if (msp_look_is_dump(d->path[side]))
        return msp_error_set(err, MSP_E_INVALID, "%s: a dump, no tensor file; msprobe compare A B compares dumps",
                             d->path[side]);
    return msp_tensor_file_open(&d->file[side], d->path[side], err);
}

msp_exit_code
msp_cmd_diff(const msp_args *args)
{
    differing d = {.args = args};
    msp_exit_code code;
    msp_status st;
    msp_error err;

    st = args->noperands < 2 ? msp_error_set(&err, MSP_E_INVALID, "give two tensor files: .pt, .npy or .safetensors")
                             : msp_args_number(&d.threads, args, MSP_OPT_THREADS, "--threads", MAX_THREADS, &err);
    if (st != MSP_OK)
        return msp_cli_usage(args->command, &err);
    d.path[0] = args->operands[0];
    d.path[1] = args->operands[1];
    for (int side = 0; side < 2 && st == MSP_OK; side++)
        st = open_side(&d, side, &err);
    if (st == MSP_OK)
        st = find_pairs(&d, args->noperands > 2 ? args->operands[2] : NULL, &err);
    if (st == MSP_OK)
        st = compare_all(&d, &err);
    for (int side = 0; side < 2 && st == MSP_OK; side++)
        st = msp_tensor_file_check(d.file[side], d.path[side], &err);
    code = st == MSP_OK ? exit_code(&d) : msp_cli_fail(st, &err);
    free(d.pairs);
    msp_tensor_file_close(d.file[0]);
    msp_tensor_file_close(d.file[1]);
    return code;
}
