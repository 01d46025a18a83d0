/*
 * summary.c - the answer to the user's question on the screen: what is wrong, since which call, why probably, and what
 * to run next. Every line fits in 80 columns but names and paths, which stay whole so that they can be copied.
 */
#include "summary_parts.h"

enum { MANY_PAIRS = 16 };

/* ---- many pairs ---------------------------------------------------------------------------------------------- */

/* The pair that the verdict on the whole run speaks of, if it blames one of its rows; else NULL. */
static const msp_compare_pair *
blamed_pair(const msp_compare_result *r)
{
    const msp_compare_pair *p = r->sentence != NULL ? &r->pairs[r->told] : NULL;

    return p != NULL && p->answer.blamed.found ? p : NULL;
}

msp_style
msp_summary_style(msp_answer_level level)
{
    static const msp_style styles[] = {MSP_STYLE_YELLOW, MSP_STYLE_GREEN, MSP_STYLE_GREEN, MSP_STYLE_RED};

    return styles[level];
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

/* Pairs that stand beside each other and lack the same side are one line. */
static size_t
count_lacking(const msp_compare_result *r, size_t from)
{
    const msp_compare_pair *p = &r->pairs[from];
    size_t n = 1;

    if ((p->npu_path == NULL) == (p->bench_path == NULL))
        return 1;
    while (from + n < r->npairs && (r->pairs[from + n].npu_path == NULL) == (p->npu_path == NULL) &&
           (r->pairs[from + n].bench_path == NULL) == (p->bench_path == NULL))
        n++;
    return n;
}

static void
put_failed(FILE *out, const msp_compare_result *r, size_t at, size_t n, int width)
{
    const msp_compare_pair *p = &r->pairs[at];

    fprintf(out, "  %-*s ", width, p->label);
    msp_term_put(out, MSP_STYLE_RED, "not compared: ");
    if (n > 1)
        fprintf(out, "only on the %s side, and so are the next %zu up to %s", p->npu_path != NULL ? "NPU" : "bench",
                n - 1, r->pairs[at + n - 1].label);
    else
        put_safe(out, MSP_STYLE_PLAIN, p->error != NULL ? without_label(p) : msp_status_text(p->status));
    fputc('\n', out);
}

static void
put_pair_line(FILE *out, const msp_compare_pair *p, int width)
{
    char rows[32], matched[32];

    fprintf(out, "  %-*s %9s %9s  ", width, p->label, msp_format_count(rows, p->counts.rows),
            msp_format_count(matched, p->counts.matched));
    msp_term_put(out, msp_summary_style(p->answer.level), "%-13s", msp_answer_level_text(p->answer.level));
    fputs("  ", out);
    put_safe(out, MSP_STYLE_PLAIN, p->answer.blamed.found ? p->answer.blamed.npu_name : "-");
    fputc('\n', out);
}

/* A thousand ranks do not fit on a screen: the first ones, then those with something to say, up to a limit. */
static void
put_pairs(FILE *out, const msp_compare_result *r)
{
    int width = label_width(r);
    size_t shown = 0, told = 0;

    fprintf(out, "  ");
    msp_term_put(out, MSP_STYLE_DIM, "%-*s %9s %9s  %-13s  %s", width, "", "rows", "matched", "verdict", "suspect");
    fputc('\n', out);
    for (size_t i = 0, n; i < r->npairs; i += n) {
        const msp_compare_pair *p = &r->pairs[i];
        bool speaks = p->status != MSP_OK || p->answer.level == MSP_ANSWER_WRONG;

        n = count_lacking(r, i);
        if (shown >= 4 * MANY_PAIRS || (shown >= MANY_PAIRS && !speaks))
            continue;
        if (p->status != MSP_OK)
            put_failed(out, r, i, n, width);
        else
            put_pair_line(out, p, width);
        shown++;
        told += n;
    }
    if (told < r->npairs)
        fprintf(out, "  and %zu more; all of them with --json\n", r->npairs - told);
}

/* Notes of a pair that are not said for all ranks together already. */
static size_t
count_notes(const msp_compare_pair *p)
{
    return p->answer.nnotes - (p->place.note != NULL ? p->answer.npartners : 0);
}

static bool
say_the_same(const msp_compare_pair *a, const msp_compare_pair *b)
{
    size_t n = count_notes(a);

    if (count_notes(b) != n)
        return false;
    for (size_t k = 0; k < n; k++)
        if (strcmp(a->answer.notes[k], b->answer.notes[k]) != 0)
            return false;
    return true;
}

/* What is to be known of each pair; pairs of which there is the same to say are told once. */
static void
put_notes(FILE *out, const msp_compare_result *r)
{
    size_t shown = 0;

    for (size_t i = 0, same; i < r->npairs && shown < MANY_PAIRS; i += same) {
        const msp_compare_pair *p = &r->pairs[i];

        same = 1;
        if (count_notes(p) == 0)
            continue;
        while (i + same < r->npairs && say_the_same(p, &r->pairs[i + same]))
            same++;
        print_label(out, shown++ == 0 ? "Note" : "");
        if (same > 1)
            fprintf(out, "%s to %s:\n", p->label, r->pairs[i + same - 1].label);
        else
            fprintf(out, "%s:\n", p->label);
        for (size_t k = 0; k < count_notes(p); k++)
            put_sentence(out, "", MSP_STYLE_YELLOW, p->answer.notes[k]);
    }
}

/* ---- what could not be compared ---------------------------------------------------------------------------------- */

static void
put_cut(FILE *out, const msp_compare_pair *p, int side)
{
    char records[32];

    if (!p->cut[side].found)
        return;
    print_label(out, "Cut off");
    put_safe(out, MSP_STYLE_RED, side == 0 ? p->npu_path : p->bench_path);
    fputc('\n', out);
    print_label(out, "");
    fprintf(out, "%s complete record%s of it %s compared; collect or copy it again\n",
            msp_format_count(records, p->cut[side].records), plural_ending(p->cut[side].records),
            p->cut[side].records == 1 ? "was" : "were");
}

static void
put_unreadable(FILE *out, const msp_compare_pair *p)
{
    char rows[32];

    if (p->unreadable == NULL || p->status != MSP_OK)
        return;
    print_label(out, "Unreadable");
    put_safe(out, MSP_STYLE_RED, p->unreadable);
    fputc('\n', out);
    print_label(out, "");
    fprintf(out, "%s row%s could not be compared: see Err_message; collect again or copy\n",
            msp_format_count(rows, p->counts.unreadable), plural_ending(p->counts.unreadable));
    print_label(out, "");
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
            print_label(out, "");
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
    print_label(out, "");
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
    print_label(out, "Analysis");
    if (points)
        msp_term_put(out, MSP_STYLE_YELLOW, "saved points are no calls: nothing to analyse; leave out -da");
    else if (r->nfailed > 0)
        msp_term_put(out, MSP_STYLE_YELLOW, "none: only %zu of %zu pairs could be compared", r->npairs - r->nfailed,
                     r->npairs);
    else if (wrong > 0)
        msp_term_put(out, MSP_STYLE_YELLOW, "no call's output differs, but %s row%s: leave out -da to see",
                     msp_format_count(rows, wrong), wrong == 1 ? " does" : "s do");
    else
        msp_term_put(out, MSP_STYLE_GREEN, "no call differs by the manual's limits");
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

        print_label(out, i == 0 ? "Analysis" : "");
        put_safe(out, MSP_STYLE_BOLD, f->op_name);
        fputc('\n', out);
        if (i == 0) {
            print_label(out, "");
            fputs("the first that differs by the manual's limits for statistics\n", out);
        }
        put_first_place(out, f);
        msp_summary_frames(out, f->stack, f->nstack);
    }
}

/* ---- all of it ---------------------------------------------------------------------------------------------- */

static void
put_file(FILE *out, size_t *n, size_t total, const char *path)
{
    if (*n < MANY_PAIRS) {
        print_label(out, *n == 0 ? "Written" : "");
        put_safe(out, MSP_STYLE_PLAIN, path);
        fputc('\n', out);
    } else if (*n == MANY_PAIRS) {
        print_label(out, "");
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

static void
put_head(FILE *out, const msp_summary *s)
{
    const msp_compare_result *r = s->result;
    char bytes[32];

    fputc('\n', out);
    print_label(out, "Compared");
    if (r->npairs == 1) {
        put_safe(out, MSP_STYLE_PLAIN, r->pairs[0].npu_path != NULL ? r->pairs[0].npu_path : "-");
        fputc('\n', out);
        print_label(out, "with");
        put_safe(out, MSP_STYLE_PLAIN, r->pairs[0].bench_path != NULL ? r->pairs[0].bench_path : "-");
        fputc('\n', out);
        print_label(out, "by");
        fprintf(out, "%s, ", msp_compare_mode_text(r->pairs[0].mode));
    } else {
        put_safe(out, MSP_STYLE_PLAIN, s->options->npu_path);
        fputc('\n', out);
        print_label(out, "with");
        put_safe(out, MSP_STYLE_PLAIN, s->options->bench_path);
        fputc('\n', out);
        print_label(out, "by");
        fprintf(out, "%s, %zu pairs, ", msp_compare_mode_text(r->pairs[0].mode), r->npairs);
    }
    fprintf(out, "%s in %.2f s\n", msp_format_bytes(bytes, (double)r->bytes), r->seconds);
    if (s->options->diff_analyze && r->pairs[0].has_tensors) {
        print_label(out, "");
        fputs("-da looks at statistics alone; leave it out to compare the tensors\n", out);
    }
}

static void
put_one_pair(FILE *out, const msp_summary *s)
{
    const msp_compare_pair *p = &s->result->pairs[0];

    msp_summary_counts(out, &p->counts);
    msp_summary_notes(out, p);
    if (s->result->sentence != NULL) {
        fputc('\n', out);
        put_sentence(out, "Verdict", msp_summary_style(s->result->level), s->result->sentence);
        msp_summary_judged(out, p);
    }
    msp_summary_first_differs(out, p);
    if (!s->options->diff_analyze && (p->kind != MSP_DUMP_LEGACY || p->counts.none < p->counts.rows))
        msp_summary_table(out, p); /* torch_npu.hooks has no limits */
}

static void
put_many_pairs(FILE *out, const msp_summary *s)
{
    const msp_compare_result *r = s->result;

    msp_summary_job(out, r);
    fputc('\n', out);
    put_pairs(out, r);
    put_notes(out, r);
    if (r->sentence == NULL)
        return;
    fputc('\n', out);
    put_sentence(out, "Verdict", msp_summary_style(r->level), r->sentence);
    msp_summary_judged(out, &r->pairs[r->told]);
    msp_summary_first_differs(out, &r->pairs[r->told]);
}

void
msp_summary_print(FILE *out, const msp_summary *s)
{
    const msp_compare_result *r = s->result;
    const msp_compare_pair *first = blamed_pair(r);

    if (r->npairs == 0 || (r->npairs == 1 && r->pairs[0].status != MSP_OK && r->pairs[0].nfiles == 0))
        return; /* the error says it all */
    put_head(out, s);
    if (r->npairs == 1 && r->pairs[0].status == MSP_OK)
        put_one_pair(out, s);
    else if (r->npairs > 1)
        put_many_pairs(out, s);
    put_gaps(out, r);
    if (s->options->diff_analyze)
        put_first_differences(out, s);
    if (first != NULL)
        msp_summary_blamed(out, first);
    put_files(out, r);
    msp_summary_next(out, s, first);
}
