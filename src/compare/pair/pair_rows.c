/* pair_rows.c - see pair.h. */
#include "compare/pair/pair.h"

#include <math.h>
#include "core/alloc.h"
#include "core/log.h"

/* ---- what the rows say ------------------------------------------------------------------------------------------- */

static bool
is_finite_stat(const msp_val *v)
{
    double d;

    return !msp_val_number(v, &d) || isfinite(d);
}

static bool
is_finite_row(const msp_row *r)
{
    return is_finite_stat(&r->stats[MSP_STAT_MAX]) && is_finite_stat(&r->stats[MSP_STAT_MIN]);
}

/* ptdbg_ascend's advisor looks past batch_norm, whose running statistics differ on their own account. */
static bool
skips_for_advice(const msp_pair *p, const msp_judged *j)
{
    return msp_pair_look(p) != NULL && msp_str_find(msp_row_name(j->n), MSP_STR("batch_norm")) != NULL;
}

/* Any difference at all, within limits or not. Texts are left out: those of a device differ in every call. */
static bool
row_differs(const msp_pair *p, const msp_judged *j)
{
    double x, y;

    if (j->b == NULL)
        return false;
    if (p->out->mode == MSP_MODE_MD5)
        return j->verdict == VERDICT_DIFFERENT && !(j->n->plain && j->n->stats[MSP_STAT_MAX].kind == VAL_TEXT);
    if (p->out->mode == MSP_MODE_REAL && !j->n->plain) {
        const msp_num *d = &j->metric[j->metric[METRIC_EUC_DIST].word == NULL ? METRIC_EUC_DIST : METRIC_MAX_ABS];

        if (j->verdict == VERDICT_NO || (d->word == NULL && d->v != 0 && !j->equal))
            return true;
    }
    for (int i = 0; i < MSP_NSTATS; i++)
        if (msp_val_number(&j->n->stats[i], &x) && msp_val_number(&j->b->stats[i], &y) && x != y &&
            !(isnan(x) && isnan(y)))
            return true;
    return false;
}

static void
note_difference(msp_pair *p, const msp_judged *j, int64_t row)
{
    if (!row_differs(p, j) || p->out->counts.differ++ > 0)
        return;
    p->out->first_differs = msp_result_text(msp_row_name(j->n));
    p->out->first_differs_row = row;
}

static void
count_row(msp_pair *p, const msp_judged *j, int64_t row)
{
    msp_compare_counts *c = &p->out->counts;
    int64_t *const by_verdict[] = {NULL,      &c->yes,     &c->no,   &c->none,     &c->shape_unmatched,
                                   &c->clean, &c->warning, &c->pass, &c->different};
    bool wrong = msp_verdict_wrong(j->verdict);
    bool nonfinite = j->b != NULL && p->out->mode != MSP_MODE_MD5 && is_finite_row(j->n) != is_finite_row(j->b);

    if (by_verdict[j->verdict] != NULL)
        ++*by_verdict[j->verdict];
    c->wrong += wrong;
    c->nonfinite += nonfinite;
    c->red += j->colour == MSP_ROW_RED;
    c->yellow += j->colour == MSP_ROW_YELLOW;
    c->unreadable += j->unreadable;
    p->with_files += j->n->file != NULL && j->b != NULL && j->b->file != NULL;
    p->out->tensor_bytes += j->bytes;
    note_difference(p, j, row);
    if (nonfinite && p->nonfinite < 0)
        p->nonfinite = row;
    if (wrong && p->advised < 0 && !skips_for_advice(p, j))
        p->advised = row;
    if (nonfinite && p->nonfinite < 0)
        p->nonfinite = row;
    if (p->suspect < 0 && (wrong || nonfinite || j->colour == MSP_ROW_RED)) {
        p->suspect = row;
        p->suspect_verdict = wrong ? msp_verdict_text(j->verdict) : nonfinite ? "nan/inf" : "red";
    }
}

/* is_print_compare_log: one line for each row that was measured. */
static void
log_metrics(const msp_judged *j)
{
    static const char *const names[NMETRICS] = {"cosine ",
                                                "euc_dist ",
                                                "max_abs_err ",
                                                "max_relative_err ",
                                                "one_thousand_err_ratio ",
                                                "five_thousand_err_ratio "};
    msp_buf text = {0};
    char number[32];

    if (!msp_log_wanted(MSP_LOG_INFO))
        return;
    for (int i = 0; i < NMETRICS; i++) {
        msp_buf_text(&text, names[i]);
        if (j->metric[i].word != NULL)
            msp_buf_text(&text, j->metric[i].word);
        else
            msp_buf_add(&text, number, msp_f64_repr(number, j->metric[i].v));
        msp_buf_text(&text, ", ");
    }
    if (!text.failed)
        msp_info("[%.*s] Compare result: %s", (int)j->n->name_len, j->n->name, text.p);
    msp_buf_release(&text);
}

static void
log_columns(const msp_pair *p, const msp_judged *j, const msp_shown *s)
{
    static const char *const wanted[] = {"Max diff",       "Min diff",       "Mean diff",       "L2norm diff",
                                         "MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr",
                                         "NPU MD5",        "BENCH MD5",      "Result"};
    msp_buf text = {0};

    for (size_t i = 0; i < p->outputs.ncolumns; i++)
        for (size_t k = 0; k < sizeof(wanted) / sizeof(wanted[0]); k++)
            if (strcmp(p->outputs.columns[i].title, wanted[k]) == 0) {
                msp_buf_printf(&text, "%s ", wanted[k]);
                msp_show_cell_text(&text, s->cells[i]);
                msp_buf_text(&text, ", ");
            }
    if (!text.failed && text.len > 0)
        msp_debug("[%.*s] Compare result: %s", (int)j->n->name_len, j->n->name, text.p);
    msp_buf_release(&text);
}

/*
 * A dump of statistics has ten times the rows that one of tensors has, and none of them takes any time: there a line
 * for each is for those who ask for all details, not for every compare.json that leaves is_print_compare_log as it is.
 */
static void
log_row(const msp_pair *p, const msp_judged *j, const msp_shown *s)
{
    if (p->out->mode == MSP_MODE_REAL)
        log_metrics(j);
    else if (msp_log_wanted(MSP_LOG_DEBUG))
        log_columns(p, j, s);
}

/* Files that could not be read are opened once more for the message: judging runs in no order, and logs nothing. */
static void
why_unreadable(const msp_pair *p, const msp_judged *j, msp_error *err)
{
    msp_tensor t = {0};

    if (msp_measure_open(&t, &p->measurer, 0, j->n, err) == MSP_OK) {
        msp_tensor_release(&t);
        if (msp_measure_open(&t, &p->measurer, 1, j->b, err) == MSP_OK)
            msp_error_set(err, MSP_E_IO, "%.*s: could not be read the first time", (int)j->b->name_len, j->b->name);
    }
    msp_tensor_release(&t);
}

/* The table names every file; the log stops after a few, for thousands may be missing. Older tools have no log. */
static void
tell_unreadable(msp_pair *p, const msp_judged *j)
{
    enum { TOLD_AT_MOST = 5 };
    int64_t n = p->out->counts.unreadable;
    msp_error err;

    if (n == 1 || (n <= TOLD_AT_MOST && msp_pair_look(p) == NULL)) {
        why_unreadable(p, j, &err);
        if (n == 1)
            p->out->unreadable = msp_result_text(msp_str_of(err.message));
        if (msp_pair_look(p) == NULL)
            msp_warning("%s", err.message);
    } else if (n == TOLD_AT_MOST + 1 && msp_pair_look(p) == NULL) {
        msp_warning("more tensor files cannot be read: Err_message names them");
    }
}

void
msp_pair_note_cut(msp_pair *p, const msp_row *r, int side)
{
    msp_buf path = {0};

    if (p->cut_files++ > 0)
        return;
    msp_buf_printf(&path, "%s/%.*s", p->measurer.dirs[side], (int)r->file_len, r->file);
    p->cut_file = path.p;
    if (p->out->unreadable == NULL && path.p != NULL)
        p->out->unreadable = msp_result_text(msp_buf_view(&path));
}

/* Stacks come with the first row of a call. */
static msp_status
feed_page(msp_pair *p, const msp_judged *j, const msp_shown *s, size_t row, msp_error *err)
{
    const msp_row_api *api = &p->sides[0].rows.apis[j->n->api];
    const msp_json *frames = row == api->first && p->stack != NULL ? msp_stack_frames(p->stack, api->name) : NULL;

    return msp_page_feed_row(&p->page, j, api->name, s->cells, frames, row, err);
}

/* What the verdict wants of a row's elements: their distance, relative to the larger norm. */
static void
keep_difference(msp_pair *p, const msp_judged *j, size_t row)
{
    const msp_num *d = &j->metric[METRIC_EUC_DIST];
    double a, b, norm;

    if (p->out->mode != MSP_MODE_REAL || j->b == NULL || d->word != NULL || j->unreadable)
        return;
    if (!msp_val_number(&j->n->stats[MSP_STAT_NORM], &a) || !msp_val_number(&j->b->stats[MSP_STAT_NORM], &b)) {
        if (msp_local_roundoff(p->sides[0].rows.texts[j->n->dtype].dtype) == 0) /* truth values: equal or not */
            p->diffs[row] = d->v != 0;
        else if (d->v == 0 || j->norm > 0) /* complex numbers have no recorded norm */
            p->diffs[row] = d->v == 0 ? 0 : d->v / j->norm;
        return;
    }
    norm = isfinite(a) && isfinite(b) ? fmax(fabs(a), fabs(b)) : j->norm; /* a mask of -inf hides no difference */
    p->diffs[row] = d->v == 0 ? 0 : norm > 0 ? d->v / norm : 1;
}

static msp_status
take_row(const msp_judged *j, const msp_shown *s, size_t row, void *payload, msp_error *err)
{
    msp_pair *p = payload;

    count_row(p, j, (int64_t)row);
    keep_difference(p, j, row);
    if (j->cut != NULL)
        msp_pair_note_cut(p, j->cut, j->cut == j->b);
    else if (j->unreadable)
        tell_unreadable(p, j);
    if (msp_pair_look(p) != NULL && j->verdict == VERDICT_UNMATCHED && !p->run->opt->compare_only)
        msp_warning("The tensor name matches but the shape or dtype does not match: %.*s", (int)j->n->name_len,
                    j->n->name);
    if (p->run->opt->log_rows && msp_pair_look(p) != NULL)
        msp_legacy_log_row(&p->look, j);
    else if (p->run->opt->log_rows)
        log_row(p, j, s);
    if (p->page.part != NULL) {
        msp_status st = feed_page(p, j, s, row, err);

        if (st != MSP_OK)
            return st;
    }
    return msp_outputs_row_no_line(&p->outputs, j, s, err);
}

static void
write_line(const msp_shown *s, msp_buf *out, void *payload)
{
    msp_pair *p = payload;

    msp_outputs_line(&p->outputs, s, out);
}

static msp_status
take_lines(msp_str lines, void *payload, msp_error *err)
{
    msp_pair *p = payload;

    return msp_outputs_lines(&p->outputs, lines, err);
}

/* ---- all rows ---------------------------------------------------------------------------------------------------- */

static msp_status
run_blocks(msp_pair *p)
{
    msp_blocks_job job = {.run = p->run,
                          .label = p->plan->label,
                          .match = &p->match,
                          .stack = p->stack,
                          .show = {p->out->mode, &p->sides[0].rows, &p->sides[1].rows, p->stack != NULL,
                                   msp_pair_look(p)},
                          .measurer = p->measurer,
                          .colour = p->colour,
                          .fuzzy = p->fuzzy,
                          .consumer = take_row,
                          .formatter = msp_outputs_wants_lines(&p->outputs) ? write_line : NULL,
                          .take_text = take_lines,
                          .only_texts =
                              msp_outputs_only_lines(&p->outputs) && !p->run->opt->log_rows && p->page.part == NULL,
                          .payload = p};

    return msp_blocks_run(&job, p->err);
}

/* torch_npu.hooks: operators that only the bench has, after all others, instead of losing them. */
static msp_status
list_bench_only(msp_pair *p)
{
    const msp_rows *bench = &p->sides[1].rows;
    msp_show_rule rule = {p->out->mode, &p->sides[0].rows, bench, false, &p->look};
    uint8_t *met = msp_alloc_zero(bench->count, 1);
    msp_judged j = {0};
    msp_shown shown = {0};
    msp_status st = met == NULL ? msp_pair_no_memory(p) : MSP_OK;

    for (size_t i = 0; st == MSP_OK && i < p->match.count; i++)
        if (p->match.bench[i] != MATCH_NONE)
            met[p->match.bench[i]] = 1;
    for (size_t i = 0; st == MSP_OK && i < bench->count; i++)
        if (!met[i]) {
            msp_legacy_show_bench(&shown, &rule, &bench->rows[i]);
            st = msp_outputs_row(&p->outputs, &j, &shown, p->err);
        }
    msp_free(met);
    return st;
}

msp_status
msp_pair_rows(msp_pair *p)
{
    msp_status st;

    p->diffs = msp_alloc(p->match.count + 1, sizeof(*p->diffs));
    if (p->diffs == NULL)
        return msp_pair_no_memory(p);
    for (size_t i = 0; i < p->match.count; i++)
        p->diffs[i] = NAN;
    st = run_blocks(p);
    if (st == MSP_OK && p->look.form == MSP_LEGACY_HOOKS)
        st = list_bench_only(p);
    return st;
}
