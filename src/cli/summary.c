/*
 * summary.c - the answer to the user's question on the screen: what is wrong, since which call, why probably, and what
 * to run next. Every line fits in 80 columns but names and paths, which stay whole so that they can be copied.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "progress.h"
#include "shell.h"
#include "summary.h"
#include "terminal.h"

enum { LABEL = 14, WIDTH = 80, MANY_PAIRS = 16 };

/* ---- pieces -------------------------------------------------------------------------------------------------- */

/* "  First wrong   " */
static void
label(FILE *out, const char *text)
{
    fputs("  ", out);
    msp_term_put(out, MSP_STYLE_DIM, "%-*s", LABEL, text);
}

static const char *
plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* "12,345 rows", in a style when it is not zero. */
static void
count(FILE *out, int64_t n, const char *what, msp_style style)
{
    char buf[32];

    msp_term_put(out, n > 0 ? style : MSP_STYLE_PLAIN, "%s %s", msp_format_count(buf, n), what);
}

/* Text from a dump: safe to show, never cut. */
static void
put_safe(FILE *out, msp_style style, const char *text)
{
    size_t size = strlen(text) + 1;
    char *buf = malloc(size);

    msp_term_put(out, style, "%s", buf != NULL ? msp_text_safe(buf, size, text) : "?");
    free(buf);
}

/* ---- stack frames -------------------------------------------------------------------------------------------- */

static bool
is_library_frame(const char *frame)
{
    static const char *const marks[] = {"site-packages/", "dist-packages/", "/torch/",  "/mindspore/",
                                        "/msprobe/",      "/lib/python",    "<frozen ", "<string>"};

    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        if (strstr(frame, marks[i]) != NULL)
            return true;
    return false;
}

static const char *
user_frame(char *const *stack, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_library_frame(stack[i]))
            return stack[i];
    return n > 0 ? stack[0] : NULL;
}

static bool
ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);

    return n >= k && strcmp(text + n - k, end) == 0;
}

int64_t
msp_summary_row(const msp_compare_pair *p, int64_t *sheet)
{
    enum { ROWS_PER_SHEET = 1048500 }; /* as the manual of the tables has it: include/msprobe/table.h */
    int64_t row = p->suspect.row, total = p->counts.rows;

    *sheet = -1;
    if (total > ROWS_PER_SHEET && p->nfiles > 0 && ends_with(p->files[0], ".xlsx")) {
        int64_t sheets = (total - 1) / ROWS_PER_SHEET + 1, each = (total - 1) / sheets + 1;

        *sheet = row / each;
        row %= each;
    }
    return row + 2;
}

const char *
msp_summary_user_frame(const msp_compare_suspect *s)
{
    return user_frame(s->stack, s->nstack);
}

/* A file below the current folder, as seen from there: dumps hold whole paths, people know their own. */
static const char *
seen_from_here(const char *file)
{
    char here[4096];
    size_t n;

    if (getcwd(here, sizeof(here)) == NULL)
        return file;
    n = strlen(here);
    return n > 1 && strncmp(file, here, n) == 0 && file[n] == '/' ? file + n + 1 : file;
}

/* "File /w/train.py, line 10, in main, \n y = f(x)" -> "/w/train.py:10 in main" and "y = f(x)" below it. */
static void
put_frame(FILE *out, const char *frame)
{
    const char *file = strncmp(frame, "File ", 5) == 0 ? frame + 5 : NULL;
    const char *line = file != NULL ? strstr(file, ", line ") : NULL;
    const char *in = line != NULL ? strstr(line, ", in ") : NULL;
    const char *code = strchr(frame, '\n');
    size_t head = code != NULL ? (size_t)(code - frame) : strlen(frame);
    char text[1024];

    while (head > 0 && (frame[head - 1] == ' ' || frame[head - 1] == ','))
        head--;
    file = file != NULL ? seen_from_here(file) : NULL;
    if (in != NULL && in < frame + head)
        snprintf(text, sizeof(text), "%.*s:%.*s in %.*s", (int)(line - file), file, (int)(in - line - 7), line + 7,
                 (int)(frame + head - in - 5), in + 5);
    else
        snprintf(text, sizeof(text), "%.*s", (int)head, frame);
    label(out, "Called at");
    put_safe(out, MSP_STYLE_PLAIN, text);
    fputc('\n', out);
    if (code != NULL) {
        code += strspn(code, " \n");
        label(out, "");
        put_safe(out, MSP_STYLE_DIM, code);
        fputc('\n', out);
    }
}

/* ---- one pair ------------------------------------------------------------------------------------------------ */

static void
put_counts(FILE *out, const msp_compare_counts *c)
{
    label(out, "Rows");
    count(out, c->rows, "in all, ", MSP_STYLE_PLAIN);
    count(out, c->matched, "matched", MSP_STYLE_PLAIN);
    if (c->unmatched > 0) {
        fputs(", ", out);
        count(out, c->unmatched, "without partner", MSP_STYLE_YELLOW);
    }
    if (c->bench_only > 0) {
        fputs(", ", out);
        count(out, c->bench_only, "in bench only", MSP_STYLE_YELLOW);
    }
    fputc('\n', out);
}

static void
put_verdicts(FILE *out, const msp_compare_pair *p)
{
    const msp_compare_counts *c = &p->counts;

    label(out, "Verdict");
    if (p->kind == MSP_DUMP_LEGACY && c->none == c->rows)
        fputs("none: see the table's numbers", out); /* torch_npu.hooks has no limits */
    else if (c->wrong == 0)
        msp_term_put(out, MSP_STYLE_GREEN, "no wrong row");
    else
        count(out, c->wrong, c->wrong == 1 ? "wrong row" : "wrong rows", MSP_STYLE_RED);
    if (c->shape_unmatched > 0) {
        fputs(", ", out);
        count(out, c->shape_unmatched, "of another shape", MSP_STYLE_YELLOW);
    }
    if (c->unreadable > 0) {
        fputs(", ", out);
        count(out, c->unreadable, "unreadable", MSP_STYLE_RED);
    }
    if (c->red > 0 || c->yellow > 0) {
        fputs(" (", out);
        count(out, c->red, "red, ", MSP_STYLE_RED);
        count(out, c->yellow, "yellow)", MSP_STYLE_YELLOW);
    }
    fputc('\n', out);
}

/* Six digits say enough on a screen; the table has all of them. */
static void
put_real_errors(FILE *out, const msp_metrics *m)
{
    double n = m->count > 0 ? (double)m->count : 1;

    label(out, "Errors");
    fprintf(out, "Cosine %.6g, MaxAbsErr %.6g, MaxRelativeErr %.6g\n", m->cosine, m->max_abs_err, m->max_rel_err);
    label(out, "");
    fprintf(out, "%.4g%% of the elements within 0.001, %.4g%% within 0.005\n", 100 * (double)m->below_1e3 / n,
            100 * (double)m->below_5e3 / n);
    if (m->mismatches > 0) {
        char buf[32];

        label(out, "");
        fprintf(out, "%s element%s NaN or inf on one side only\n", msp_format_count(buf, m->mismatches),
                plural(m->mismatches));
    }
}

/* A cell's number in six digits; other cells ("N/A", "Nan", "inf%") as they are. */
static void
put_cell(FILE *out, const char *cell, const char *unit)
{
    char *end;
    double v = cell != NULL ? strtod(cell, &end) : 0;

    if (cell == NULL || cell[0] == '\0')
        fputs("-", out);
    else if (strcmp(end, unit) == 0 && isfinite(v))
        fprintf(out, "%.6g%s", v, unit);
    else
        put_safe(out, MSP_STYLE_PLAIN, cell);
}

static void
put_statistic_errors(FILE *out, const msp_compare_suspect *s)
{
    static const char *const names[MSP_NSTATS] = {"max", "min", "mean", "l2norm"};

    for (int i = 0; i < MSP_NSTATS; i++) {
        if (s->stats[0][i] == NULL)
            continue;
        label(out, i == 0 ? "Errors" : "");
        fprintf(out, "%-7s NPU ", names[i]);
        put_cell(out, s->stats[0][i], "");
        fputs(", bench ", out);
        put_cell(out, s->stats[1][i], "");
        fputs(", off by ", out);
        put_cell(out, s->rel[i], "%");
        fputc('\n', out);
    }
}

static void
put_errors(FILE *out, const msp_compare_pair *p)
{
    const msp_compare_suspect *s = &p->suspect;

    if (s->has_metrics)
        put_real_errors(out, &s->metrics);
    else if (p->mode == MSP_MODE_STATISTICS)
        put_statistic_errors(out, s);
    else if (s->md5[0] != NULL) {
        label(out, "Checksums");
        fprintf(out, "NPU %s, bench %s\n", s->md5[0], s->md5[1] != NULL ? s->md5[1] : "-");
    }
}

static void
put_worst(FILE *out, const msp_compare_suspect *s)
{
    if (!s->has_worst)
        return;
    label(out, "Worst element");
    fputc('[', out);
    for (int32_t i = 0; i < s->worst_ndim; i++)
        fprintf(out, "%s%lld", i > 0 ? ", " : "", (long long)s->worst_coords[i]);
    fprintf(out, "]: NPU %s, bench %s\n", s->worst_value[0], s->worst_value[1]);
}

/* A number or a text that the two scripts pass differently explains more than tensors do. */
static void
put_argument(FILE *out, const msp_compare_suspect *s)
{
    if (s->argument == NULL)
        return;
    label(out, "Argument");
    put_safe(out, MSP_STYLE_YELLOW, s->argument);
    fputc('\n', out);
}

static void
put_inputs(FILE *out, const msp_compare_suspect *s)
{
    label(out, "Its inputs");
    if (s->argument != NULL && s->inputs == MSP_INPUTS_FINE) {
        fputs("within the limits, but for the argument above\n", out);
        return;
    }
    if (s->argument != NULL && s->dtype[0] != NULL && s->dtype[0][0] == '<') {
        fputs("the argument itself differs: the two scripts pass other values\n", out);
        return;
    }
    if (s->inputs == MSP_INPUTS_FINE)
        fputs("still fine: this call makes the difference\n", out);
    else if (s->inputs == MSP_INPUTS_WRONG)
        fputs("already wrong: the difference comes from before\n", out);
    else
        fputs("could not be judged\n", out);
}

static void
put_suspect(FILE *out, const msp_compare_pair *p)
{
    const msp_compare_suspect *s = &p->suspect;
    const char *frame = msp_summary_user_frame(s);
    int64_t sheet;
    char buf[32];

    fputc('\n', out);
    label(out, "First wrong");
    put_safe(out, MSP_STYLE_BOLD, s->npu_name);
    fputc('\n', out);
    label(out, "");
    if (p->label[0] != '\0')
        fprintf(out, "%s, ", p->label);
    fprintf(out, "row %s", msp_format_count(buf, msp_summary_row(p, &sheet)));
    if (sheet >= 0)
        fprintf(out, " of sheet part_%lld", (long long)sheet);
    fprintf(out, ": %s", s->verdict);
    if (s->dtype[0] != NULL && s->shape[0] != NULL)
        fprintf(out, ", %s %s", s->dtype[0], s->shape[0]);
    fputc('\n', out);
    if (s->bench_name != NULL && strcmp(s->bench_name, s->npu_name) != 0) {
        label(out, "");
        fputs("against ", out);
        put_safe(out, MSP_STYLE_PLAIN, s->bench_name);
        fputc('\n', out);
    }
    put_errors(out, p);
    put_worst(out, s);
    put_argument(out, s);
    if (p->kind != MSP_DUMP_DEBUG) /* a saved point has none */
        put_inputs(out, s);
    if (frame != NULL)
        put_frame(out, frame);
}

/* ---- many pairs ---------------------------------------------------------------------------------------------- */

const msp_compare_pair *
msp_summary_first(const msp_compare_result *r)
{
    const msp_compare_pair *first = NULL;

    for (size_t i = 0; i < r->npairs; i++) {
        const msp_compare_pair *p = &r->pairs[i];

        if (p->suspect.found &&
            (first == NULL || p->step < first->step || (p->step == first->step && p->suspect.row < first->suspect.row)))
            first = p;
    }
    return first;
}

/* Widths for the table of pairs: labels may be long ("pynative step10 rank127"). */
static int
label_width(const msp_compare_result *r)
{
    size_t w = 4;

    for (size_t i = 0; i < r->npairs; i++) {
        size_t n = msp_text_width(r->pairs[i].label, strlen(r->pairs[i].label));

        w = n > w ? n : w;
    }
    return (int)w;
}

/* The error of a pair, which may begin with the label that stands in front of it here. */
static const char *
without_label(const msp_compare_pair *p)
{
    size_t n = strlen(p->label);

    return n > 0 && strncmp(p->error, p->label, n) == 0 && p->error[n] == ':' ? p->error + n + 2 : p->error;
}

static void
put_pair_line(FILE *out, const msp_compare_pair *p, int width)
{
    char rows[32], matched[32], wrong[32];
    bool wrong_rows = p->counts.wrong > 0;

    fprintf(out, "  %-*s ", width, p->label);
    if (p->status != MSP_OK) {
        msp_term_put(out, MSP_STYLE_RED, "failed: ");
        put_safe(out, MSP_STYLE_PLAIN, p->error != NULL ? without_label(p) : msp_status_text(p->status));
    } else {
        fprintf(out, "%9s %9s ", msp_format_count(rows, p->counts.rows), msp_format_count(matched, p->counts.matched));
        msp_term_put(out, wrong_rows ? MSP_STYLE_RED : MSP_STYLE_GREEN, "%7s",
                     msp_format_count(wrong, p->counts.wrong));
        fputs("  ", out);
        put_safe(out, MSP_STYLE_PLAIN, p->suspect.found ? p->suspect.npu_name : "-");
    }
    fputc('\n', out);
}

/* A thousand ranks do not fit on a screen: the first ones, then those with something to say, up to a limit. */
static void
put_pairs(FILE *out, const msp_compare_result *r)
{
    int width = label_width(r);
    size_t shown = 0;

    fprintf(out, "  ");
    msp_term_put(out, MSP_STYLE_DIM, "%-*s %9s %9s %7s  %s", width, "", "rows", "matched", "wrong", "first wrong");
    fputc('\n', out);
    for (size_t i = 0; i < r->npairs; i++) {
        bool speaks = r->pairs[i].status != MSP_OK || r->pairs[i].counts.wrong > 0;

        if (shown >= 4 * MANY_PAIRS || (shown >= MANY_PAIRS && !speaks))
            continue;
        put_pair_line(out, &r->pairs[i], width);
        shown++;
    }
    if (shown < r->npairs)
        fprintf(out, "  and %zu more; all of them with --json\n", r->npairs - shown);
}

/* ---- what could not be compared ---------------------------------------------------------------------------------- */

static void
put_cut(FILE *out, const msp_compare_pair *p, int side)
{
    char records[32];

    if (!p->cut[side].found)
        return;
    label(out, "Cut off");
    put_safe(out, MSP_STYLE_RED, side == 0 ? p->npu_path : p->bench_path);
    fputc('\n', out);
    label(out, "");
    fprintf(out, "%s complete record%s of it %s compared; collect or copy it again\n",
            msp_format_count(records, p->cut[side].records), plural(p->cut[side].records),
            p->cut[side].records == 1 ? "was" : "were");
}

static void
put_unreadable(FILE *out, const msp_compare_pair *p)
{
    char rows[32];

    if (p->unreadable == NULL || p->status != MSP_OK)
        return;
    label(out, "Unreadable");
    put_safe(out, MSP_STYLE_RED, p->unreadable);
    fputc('\n', out);
    label(out, "");
    fprintf(out, "%s row%s could not be compared: see Err_message; collect again or copy\n",
            msp_format_count(rows, p->counts.unreadable), plural(p->counts.unreadable));
    label(out, "");
    fputs("dump_tensor_data again\n", out);
}

static void
put_gaps(FILE *out, const msp_compare_result *r)
{
    size_t shown = 0;

    for (size_t i = 0; i < r->npairs && shown < MANY_PAIRS; i++) {
        const msp_compare_pair *p = &r->pairs[i];

        if (!p->cut[0].found && !p->cut[1].found && p->unreadable == NULL)
            continue;
        shown++;
        if (r->npairs > 1) {
            label(out, "");
            fprintf(out, "%s:\n", p->label);
        }
        put_cut(out, p, 0);
        put_cut(out, p, 1);
        put_unreadable(out, p);
    }
}

/* ---- first-difference analysis ------------------------------------------------------------------------------- */

/* "step1 rank0, before communication": what of it there is. */
static void
put_first_place(FILE *out, const msp_compare_first *f)
{
    bool step = f->step != MSP_DUMP_NO_NUMBER, rank = f->rank != MSP_DUMP_NO_NUMBER;

    if (!step && !rank)
        return;
    label(out, "");
    if (step)
        fprintf(out, "step%lld%s", (long long)f->step, rank ? " " : "");
    if (rank)
        fprintf(out, "rank%lld, %s communication", (long long)f->rank, f->stage);
    fputc('\n', out);
}

/* The analysis looks at the outputs of calls: what else is wrong must not sound like nothing. */
static void
put_no_difference(FILE *out, const msp_compare_result *r)
{
    bool points = true;
    int64_t wrong = 0;
    char rows[32];

    for (size_t i = 0; i < r->npairs; i++) {
        points = points && r->pairs[i].kind == MSP_DUMP_DEBUG;
        wrong += r->pairs[i].counts.wrong;
    }
    label(out, "Verdict");
    if (points)
        msp_term_put(out, MSP_STYLE_YELLOW, "saved points are no calls: nothing to analyse; leave out -da");
    else if (wrong > 0)
        msp_term_put(out, MSP_STYLE_YELLOW, "no call's output differs, but %s row%s: leave out -da to see",
                     msp_format_count(rows, wrong), wrong == 1 ? " does" : "s do");
    else
        msp_term_put(out, MSP_STYLE_GREEN, "no call differs");
    fputc('\n', out);
}

static void
put_first_differences(FILE *out, const msp_summary *s)
{
    const msp_compare_result *r = s->result;

    fputc('\n', out);
    if (r->nfirst == 0) {
        put_no_difference(out, r);
        return;
    }
    for (size_t i = 0; i < r->nfirst && i < MANY_PAIRS; i++) {
        const msp_compare_first *f = &r->first[i];
        const char *frame = user_frame(f->stack, f->nstack);

        label(out, i == 0 ? "Differs first" : "");
        put_safe(out, MSP_STYLE_BOLD, f->op_name);
        fputc('\n', out);
        put_first_place(out, f);
        if (frame != NULL)
            put_frame(out, frame);
    }
}

/* ---- what there is now, and what to do next ------------------------------------------------------------------ */

static void
put_file(FILE *out, size_t *n, size_t total, const char *path)
{
    if (*n < MANY_PAIRS) {
        label(out, *n == 0 ? "Written" : "");
        put_safe(out, MSP_STYLE_PLAIN, path);
        fputc('\n', out);
    } else if (*n == MANY_PAIRS) {
        label(out, "");
        fprintf(out, "and %zu more files\n", total - *n);
    }
    (*n)++;
}

static void
put_files(FILE *out, const msp_compare_result *r)
{
    size_t total = r->nfiles, n = 0;

    for (size_t i = 0; i < r->npairs; i++)
        total += r->pairs[i].nfiles;
    if (total > 0)
        fputc('\n', out);
    for (size_t i = 0; i < r->nfiles; i++)
        put_file(out, &n, total, r->files[i]);
    for (size_t i = 0; i < r->npairs; i++)
        for (size_t k = 0; k < r->pairs[i].nfiles; k++)
            put_file(out, &n, total, r->pairs[i].files[k]);
}

/* What the user asked for is kept; how it is to be told is not, nor the analysis when the rows are wanted instead. */
static bool
is_kept(const msp_opt *o, bool analyze)
{
    return o->id != MSP_OPT_INPUT && o->id != MSP_OPT_JSON && o->id != MSP_OPT_FAIL_ON &&
           (analyze || o->id != MSP_OPT_DIFF_ANALYZE);
}

/* The command that was given, with one more option; without analyze, -da is taken out. */
static void
put_command(FILE *out, const msp_summary *s, bool analyze, const char *more)
{
    const char *input = msp_args_get(s->args, MSP_OPT_INPUT, NULL);
    const char *framework = msp_args_get(s->args, MSP_OPT_FRAMEWORK, NULL);

    label(out, "Next");
    fputs("msprobe ", out);
    if (framework != NULL)
        fprintf(out, "-f %s ", framework);
    fputs(input != NULL ? "compare -i" : "compare", out);
    for (size_t i = 0; i < (input != NULL ? 1 : s->args->noperands); i++) {
        fputc(' ', out);
        msp_shell_put(out, input != NULL ? input : s->args->operands[i]);
    }
    for (size_t i = 0; i < msp_opts_compare.count; i++) {
        const msp_opt *o = &msp_opts_compare.opts[i];
        const char *value = msp_args_get(s->args, o->id, NULL);

        if (!msp_args_has(s->args, o->id) || !is_kept(o, analyze))
            continue;
        fprintf(out, " %s", o->brief != NULL ? o->brief : o->name);
        if (value != NULL) {
            fputc(' ', out);
            msp_shell_put(out, value);
        }
    }
    fprintf(out, " %s\n", more);
}

/* "Functional.relu.0" of "Functional.relu.0.forward": what the collector's "list" wants. */
static void
put_redump_advice(FILE *out, const msp_summary *s, const msp_compare_suspect *suspect)
{
    const msp_compare_result *r = s->result;
    const char *api = r->nfirst > 0 ? r->first[0].op_name : suspect->api != NULL ? suspect->api : suspect->npu_name;

    label(out, "Next");
    fputs("dump its tensors in both runs and compare again (config.json):\n", out);
    label(out, "");
    fputs("\"task\": \"tensor\",\n", out);
    label(out, "");
    fputs("\"tensor\": {\"list\": [\"", out);
    put_safe(out, MSP_STYLE_PLAIN, api);
    fputs("\"]}\n", out);
}

/* Older dumps have their stacks and statistics in one file. */
static void
put_parse_command(FILE *out, const msp_compare_pair *p)
{
    label(out, "Next");
    fputs("msprobe parse ", out);
    msp_shell_put(out, p->npu_path);
    fputc(' ', out);
    msp_shell_put(out, p->suspect.api != NULL ? p->suspect.api : p->suspect.npu_name);
    fputc('\n', out);
}

/* Saved points stand in no order of calls: there is no analysis of them, and no colours. */
static void
put_debug_advice(FILE *out, const msp_compare_pair *p)
{
    if (p->has_tensors)
        return;
    label(out, "Next");
    fputs("save the tensors in both runs and compare again (config.json):\n", out);
    label(out, "");
    fputs("\"task\": \"tensor\"\n", out);
}

static bool
has_mapping(const msp_compare_options *opt)
{
    return opt->data_mapping != NULL || opt->api_mapping != NULL || opt->cell_mapping != NULL ||
           opt->layer_mapping != NULL;
}

/* A fifth of the rows is more than the few calls that only one device has. */
static bool
many_without_partner(const msp_compare_result *r)
{
    int64_t unmatched = 0, rows = 0;

    for (size_t i = 0; i < r->npairs; i++) {
        unmatched += r->pairs[i].counts.unmatched;
        rows += r->pairs[i].counts.rows;
    }
    return unmatched * 5 > rows;
}

static void
put_next(FILE *out, const msp_summary *s, const msp_compare_pair *first)
{
    const msp_compare_result *r = s->result;
    const msp_framework *f = r->pairs[0].framework;

    if (s->options->has_rank_id || s->options->has_step_id || s->options->common)
        return; /* static graphs: there is no other way to look at them */
    if (many_without_partner(r) && !has_mapping(s->options) && f[0] == MSP_MINDSPORE && f[1] == MSP_PYTORCH)
        put_command(out, s, true, "-lm");
    else if (many_without_partner(r) && !has_mapping(s->options) && !s->options->fuzzy)
        put_command(out, s, true, "-f");
    else if (first == NULL)
        return;
    else if (first->kind == MSP_DUMP_DEBUG)
        put_debug_advice(out, first);
    else if (first->kind == MSP_DUMP_LEGACY)
        put_parse_command(out, first);
    else if (r->npairs > 1 && !s->options->diff_analyze)
        put_command(out, s, true, "-da");
    else if (!first->has_tensors)
        put_redump_advice(out, s, &first->suspect);
    else if (s->options->diff_analyze || !s->options->highlight)
        put_command(out, s, false, "-hl");
}

static void
put_head(FILE *out, const msp_summary *s)
{
    const msp_compare_result *r = s->result;
    char bytes[32];

    fputc('\n', out);
    label(out, "Compared");
    if (r->npairs == 1) {
        put_safe(out, MSP_STYLE_PLAIN, r->pairs[0].npu_path != NULL ? r->pairs[0].npu_path : "-");
        fputc('\n', out);
        label(out, "with");
        put_safe(out, MSP_STYLE_PLAIN, r->pairs[0].bench_path != NULL ? r->pairs[0].bench_path : "-");
        fputc('\n', out);
        label(out, "by");
        fprintf(out, "%s, ", msp_compare_mode_text(r->pairs[0].mode));
    } else {
        put_safe(out, MSP_STYLE_PLAIN, s->options->npu_path);
        fputc('\n', out);
        label(out, "with");
        put_safe(out, MSP_STYLE_PLAIN, s->options->bench_path);
        fputc('\n', out);
        label(out, "by");
        fprintf(out, "%s, %zu pairs, ", msp_compare_mode_text(r->pairs[0].mode), r->npairs);
    }
    fprintf(out, "%s in %.2f s\n", msp_format_bytes(bytes, (double)r->bytes), r->seconds);
}

void
msp_summary_print(FILE *out, const msp_summary *s)
{
    const msp_compare_result *r = s->result;
    const msp_compare_pair *first = msp_summary_first(r);

    if (r->npairs == 0 || (r->npairs == 1 && r->pairs[0].status != MSP_OK && r->pairs[0].nfiles == 0))
        return; /* the error says it all */
    put_head(out, s);
    if (r->npairs == 1 && r->pairs[0].status == MSP_OK) {
        put_counts(out, &r->pairs[0].counts);
        put_verdicts(out, &r->pairs[0]);
    } else if (r->npairs > 1) {
        fputc('\n', out);
        put_pairs(out, r);
    }
    put_gaps(out, r);
    if (s->options->diff_analyze)
        put_first_differences(out, s);
    else if (first != NULL)
        put_suspect(out, first);
    put_files(out, r);
    put_next(out, s, first);
}
