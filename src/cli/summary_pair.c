/* summary_pair.c - one pair of dumps in the summary: how many rows are wrong, and all about the first of them. */
#include <math.h>
#include <unistd.h>
#include "summary_parts.h"

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

const char *
msp_summary_user_frame(char *const *stack, size_t n)
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
void
msp_summary_frame(FILE *out, const char *frame)
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

void
msp_summary_counts(FILE *out, const msp_compare_counts *c)
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

void
msp_summary_verdicts(FILE *out, const msp_compare_pair *p)
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
        fprintf(out, "within the limits, but %s the argument above\n",
                s->argument_before ? "an earlier call was given" : "for");
        return;
    }
    if (s->argument != NULL && !s->argument_before && s->dtype[0] != NULL && s->dtype[0][0] == '<') {
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

void
msp_summary_suspect(FILE *out, const msp_compare_pair *p)
{
    const msp_compare_suspect *s = &p->suspect;
    const char *frame = msp_summary_user_frame(s->stack, s->nstack);
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
        msp_summary_frame(out, frame);
}
