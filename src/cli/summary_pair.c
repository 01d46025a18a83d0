/* summary_pair.c - one pair of dumps in the summary: what was judged, and all about the row that is blamed. */
#include <math.h>
#include "summary_parts.h"

static bool
ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);

    return n >= k && strcmp(text + n - k, end) == 0;
}

int64_t
msp_summary_row(const msp_compare_pair *p, int64_t row, int64_t *sheet)
{
    enum { ROWS_PER_SHEET = 1048500 }; /* as the manual of the tables has it: include/msprobe/table.h */
    int64_t total = p->counts.rows;

    *sheet = -1;
    if (total > ROWS_PER_SHEET && p->nfiles > 0 && ends_with(p->files[0], ".xlsx")) {
        int64_t sheets = (total - 1) / ROWS_PER_SHEET + 1, each = (total - 1) / sheets + 1;

        *sheet = row / each;
        row %= each;
    }
    return row + 2;
}

/* "row 6", "row 6 of sheet part_1". */
static void
put_row_number(FILE *out, const msp_compare_pair *p, int64_t row)
{
    int64_t sheet, n = msp_summary_row(p, row, &sheet);
    char buf[32];

    fprintf(out, "row %s", msp_format_count(buf, n));
    if (sheet >= 0)
        fprintf(out, " of sheet part_%lld", (long long)sheet);
}

void
msp_summary_counts(FILE *out, const msp_compare_counts *c)
{
    print_label(out, "Rows");
    print_count(out, c->rows, "in all, ", MSP_STYLE_PLAIN);
    print_count(out, c->matched, "matched", MSP_STYLE_PLAIN);
    if (c->unmatched > 0) {
        fputs(", ", out);
        print_count(out, c->unmatched, "without partner", MSP_STYLE_YELLOW);
    }
    if (c->bench_only > 0) {
        fputs(", ", out);
        print_count(out, c->bench_only, "in bench only", MSP_STYLE_YELLOW);
    }
    fputc('\n', out);
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

/* How much the verdict rests on: results, calls, what was not judged and why. */
void
msp_summary_judged(FILE *out, const msp_compare_pair *p)
{
    const msp_pair_verdict *v = &p->verdict;
    char text[1024], a[32], b[32];
    size_t n;

    if (!v->given)
        return;
    n = (size_t)snprintf(text, sizeof(text), "%s result%s of %s call%s by %s", msp_format_count(a, v->judged),
                         plural_ending(v->judged), msp_format_count(b, v->judged_calls), plural_ending(v->judged_calls),
                         msp_verdict_basis_text(v->basis));
    if (v->replayed > 0)
        n += (size_t)snprintf(text + n, sizeof(text) - n, " (%s calls run again in %.2f s)",
                              msp_format_count(a, v->replayed), v->replay_seconds);
    if (v->not_judged > 0)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "; %s not: ", msp_format_count(a, v->not_judged));
    for (size_t i = 0; i < v->nunjudged && i < 4 && n < sizeof(text) - 128; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%.100s (%s)", i > 0 ? ", " : "", v->unjudged[i].reason,
                              msp_format_count(a, v->unjudged[i].results));
    put_sentence(out, "Judged", MSP_STYLE_PLAIN, text);
    if (p->has_tensors && v->basis != MSP_BASIS_REPLAY && v->no_replay != NULL) {
        snprintf(text, sizeof(text), "no call was run again: %.400s", v->no_replay);
        put_sentence(out, "", MSP_STYLE_PLAIN, text);
    }
    for (size_t i = 0; i < v->untold.count && i < 2; i++)
        put_sentence(out, i == 0 ? "Not told" : "", MSP_STYLE_PLAIN, v->untold.items[i]);
}

void
msp_summary_notes(FILE *out, const msp_compare_pair *p)
{
    for (size_t i = 0; i < p->answer.nnotes; i++)
        put_sentence(out, i == 0 ? "Note" : "", MSP_STYLE_YELLOW, p->answer.notes[i]);
}

/* What the manual's limits say, under its own name: they know neither rounding nor what a call was given. */
void
msp_summary_table(FILE *out, const msp_compare_pair *p)
{
    const msp_compare_counts *c = &p->counts;
    const struct {
        int64_t n;
        const char *what;
    } parts[] = {{c->no, "No"},
                 {c->warning, "Warning"},
                 {c->different, "Different"},
                 {c->shape_unmatched, "of another shape"},
                 {c->unreadable, "unreadable"},
                 {c->red, "red"},
                 {c->yellow, "yellow"}};
    const char *before = ": ";
    char buf[32];

    print_label(out, "Table");
    if (c->wrong == 0)
        fputs("no row beyond the manual's limits", out);
    else
        fprintf(out, "%s row%s beyond the manual's limits", msp_format_count(buf, c->wrong), plural_ending(c->wrong));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (parts[i].n > 0) {
            fprintf(out, "%s%s %s", before, msp_format_count(buf, parts[i].n), parts[i].what);
            before = ", ";
        }
    fputc('\n', out);
    if (!p->suspect.found || (p->answer.blamed.found && p->answer.blamed.row == p->suspect.row))
        return;
    print_label(out, "");
    fputs("first in ", out);
    put_row_number(out, p, p->suspect.row);
    fputs(": ", out);
    put_safe(out, MSP_STYLE_PLAIN, p->suspect.npu_name);
    fputc('\n', out);
}

void
msp_summary_first_differs(FILE *out, const msp_compare_pair *p)
{
    if (p->first_differs == NULL || (p->answer.blamed.found && p->answer.blamed.row == p->first_differs_row))
        return;
    print_label(out, "Differs first");
    put_safe(out, MSP_STYLE_PLAIN, p->first_differs);
    fputs(", ", out);
    put_row_number(out, p, p->first_differs_row);
    fputc('\n', out);
}

/* ---- the row that is blamed -------------------------------------------------------------------------------------- */

static const msp_verdict_suspect *
suspect_of(const msp_compare_pair *p)
{
    const msp_pair_verdict *v = &p->verdict;

    return v->nsuspects > 0 && p->answer.blamed.api != NULL && strcmp(v->suspects[0].api, p->answer.blamed.api) == 0
               ? &v->suspects[0]
               : NULL;
}

/* What the verdict says of its first suspect beyond its sentence. */
static void
put_reasons(FILE *out, const msp_pair_verdict *v, const msp_verdict_suspect *s)
{
    char text[160];

    if (s->shape_text != NULL)
        put_sentence(out, "The error", MSP_STYLE_PLAIN, s->shape_text);
    for (size_t i = 0; i < s->reasons.count && i < 3; i++)
        put_sentence(out, i == 0 ? "Because" : "", MSP_STYLE_PLAIN, s->reasons.items[i]);
    snprintf(text, sizeof(text), "%s; by %s %.0f %% of pairs of runs without a fault have an alarm",
             msp_confidence_text(s->confidence), msp_verdict_basis_text(v->basis), 100 * v->false_alarms);
    put_sentence(out, "Confidence", MSP_STYLE_PLAIN, text);
}

static void
put_next_suspects(FILE *out, const msp_pair_verdict *v)
{
    for (size_t i = 1; i < v->nsuspects; i++) {
        print_label(out, i == 1 ? "Then" : "");
        put_safe(out, MSP_STYLE_PLAIN, v->suspects[i].api);
        fputc('\n', out);
        put_sentence(out, "", MSP_STYLE_PLAIN, v->suspects[i].reason);
    }
}

/* The advisor's text about the suspect, as the manual wants it on the screen and in advisor_{time}.txt: a line each. */
static void
put_expert_advice(FILE *out, const msp_compare_pair *p)
{
    char *text = p->advice == NULL || p->advised == NULL ? NULL : strdup(p->advice), *rest;
    const char *title = "Expert Advice";

    for (char *line = text == NULL ? NULL : strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        put_sentence(out, title, MSP_STYLE_PLAIN, line);
        title = "";
    }
    free(text);
}

void
msp_summary_blamed(FILE *out, const msp_compare_pair *p)
{
    const msp_compare_suspect *s = &p->answer.blamed;
    const msp_verdict_suspect *v = suspect_of(p);

    fputc('\n', out);
    print_label(out, "Suspect");
    put_safe(out, MSP_STYLE_BOLD, s->npu_name);
    fputc('\n', out);
    print_label(out, "");
    if (p->label[0] != '\0')
        fprintf(out, "%s, ", p->label);
    put_row_number(out, p, s->row);
    if (s->dtype[0] != NULL && s->shape[0] != NULL) {
        fputs(": ", out);
        put_safe(out, MSP_STYLE_PLAIN, s->dtype[0]);
        fputc(' ', out);
        put_safe(out, MSP_STYLE_PLAIN, s->shape[0]);
    }
    fputc('\n', out);
    if (s->bench_name != NULL && strcmp(s->bench_name, s->npu_name) != 0) {
        print_label(out, "");
        fputs("against ", out);
        put_safe(out, MSP_STYLE_PLAIN, s->bench_name);
        fputc('\n', out);
    }
    if (v != NULL)
        put_reasons(out, &p->verdict, v);
    msp_summary_errors(out, p, s);
    msp_summary_frames(out, s->stack, s->nstack);
    put_expert_advice(out, p);
    put_next_suspects(out, &p->verdict);
}
