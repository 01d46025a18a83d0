/*
 * answer.c - from verdict, counts and rows to one sentence about a pair. The verdict judges calls by their results; a
 * difference can also come in from outside: other arguments, calls without a partner, code that was not recorded. Each
 * of these is looked for before "nothing wrong" is said.
 */
#include "compare/explain/answer.h"

#include <inttypes.h>
#include <math.h>

#include "compare/run/run.h"
#include "compare/verdict/verdict.h"
#include "core/alloc.h"

/* So much larger than every difference before it, and so large at all, must a difference be that comes in from outside:
 * noise that a sum of gradients or a slice makes larger is below both. */
#define OUTSIDE_TIMES 10
#define OUTSIDE_LEAST 0.1

const char *
msp_answer_level_text(msp_answer_level l)
{
    static const char *const texts[] = {"not judged", "identical", "nothing wrong", "wrong"};

    return texts[l];
}

const char *
msp_inputs_state_text(msp_inputs_state s)
{
    static const char *const texts[] = {"unknown", "equal", "fine", "wrong"};

    return texts[s];
}

typedef struct maker {
    msp_compare_pair *out;
    const msp_suspect_source *src;
    const msp_answer_seen *seen;
    msp_buf text;        /* the sentence */
    int64_t row;         /* that it names, -1: none */
    int64_t beside;      /* the bench's, where calls of its own stand for it; -1: its partner */
    const char *verdict; /* what its line says of it */
} maker;

static msp_str
row_name(const maker *m, int64_t row)
{
    return msp_row_name(&m->src->rows[0]->rows[row]);
}

static bool
set_level(maker *m, msp_answer_level level)
{
    m->out->answer.level = level;
    return true;
}

/* The row "api.at" of a side, -1: there is none. */
static int64_t
find_row(const msp_rows *rows, const char *api, const char *at)
{
    size_t n = strlen(api), k = strlen(at);

    for (size_t i = 0; i < rows->count; i++) {
        msp_str name = msp_row_name(&rows->rows[i]), of = rows->apis[rows->rows[i].api].name;

        if (!msp_str_eq(of, (msp_str){api, n}))
            continue;
        if (name.len == n + 1 + k && memcmp(name.p + n + 1, at, k) == 0)
            return (int64_t)i;
        if (name.len == k && memcmp(name.p, at, k) == 0)
            return (int64_t)i;
    }
    return -1;
}

/* ---- what comes in from outside ---------------------------------------------------------------------------------- */

static bool
any_output_differs(const maker *m, const msp_row_api *api)
{
    for (size_t i = api->first; i < api->first + api->count; i++) {
        const msp_row *n = &m->src->rows[0]->rows[i];

        if (n->state == STATE_OUTPUT && !n->plain && m->src->match->bench[i] != MATCH_NONE &&
            msp_verdict_row_difference(m->src->rows[0], n, &m->src->rows[1]->rows[m->src->match->bench[i]]) > 0)
            return true;
    }
    return false;
}

/* The two scripts pass something else, and what the call gives is not the same either. */
static bool
say_argument(maker *m)
{
    const msp_rows *rows = m->src->rows[0];

    if (m->src->mode == MSP_MODE_MD5)
        return false;
    for (size_t i = 0; i < rows->count; i++) {
        const msp_row_api *api = &rows->apis[rows->rows[i].api];

        if (!msp_suspect_argument_differs(m->src, i) || !any_output_differs(m, api))
            continue;
        msp_buf_printf(&m->text, "Wrong: %.*s is not given the same argument in both runs (", (int)api->name.len,
                       api->name.p);
        msp_suspect_argument_text(&m->text, m->src, i, false);
        msp_buf_text(&m->text, ")");
        for (m->row = (int64_t)i; rows->rows[m->row].state != STATE_OUTPUT; m->row++)
            ;
        m->verdict = "other argument";
        return set_level(m, MSP_ANSWER_WRONG);
    }
    return false;
}

/* Calls before the row of which nothing has a partner: the nearest ones. */
static void
say_without_partner(maker *m, int64_t row, const char *before)
{
    enum { MOST = 3 };
    const msp_rows *rows = m->src->rows[0];
    uint32_t at[MOST];
    size_t n = 0;

    for (uint32_t a = rows->rows[row].api; a-- > 0 && n < MOST;) {
        bool met = rows->apis[a].count == 0;

        for (size_t i = rows->apis[a].first; i < rows->apis[a].first + rows->apis[a].count && !met; i++)
            met = m->src->match->bench[i] != MATCH_NONE;
        if (!met)
            at[n++] = a;
    }
    for (size_t i = n; i-- > 0;)
        msp_buf_printf(&m->text, "%s%.*s", i == n - 1 ? before : ", ", (int)rows->apis[at[i]].name.len,
                       rows->apis[at[i]].name.p);
}

static void
say_values(maker *m, int64_t row)
{
    const msp_row *n = &m->src->rows[0]->rows[row], *b = &m->src->rows[1]->rows[m->src->match->bench[row]];
    int stat = MSP_STAT_MAX;
    double x, y;

    for (int i = MSP_STAT_MIN; i >= MSP_STAT_MAX; i--) /* the one that shows it */
        if (msp_val_number(&n->stats[i], &x) && msp_val_number(&b->stats[i], &y) && isfinite(x) != isfinite(y))
            stat = i;
    if (!msp_val_number(&n->stats[stat], &x) || !msp_val_number(&b->stats[stat], &y))
        return;
    msp_buf_printf(&m->text, " (%s: NPU %.6g, bench %.6g)", stat == MSP_STAT_MAX ? "maximum" : "minimum", x, y);
}

static bool
say_nonfinite(maker *m)
{
    if (m->seen->nonfinite < 0)
        return false;
    m->row = m->seen->nonfinite;
    m->verdict = "NaN or inf on one side only";
    msp_buf_printf(&m->text, "Wrong: NaN or inf on one side only, first in %.*s", (int)row_name(m, m->row).len,
                   row_name(m, m->row).p);
    say_values(m, m->row);
    if (m->src->rows[0]->rows[m->row].state < STATE_OUTPUT)
        say_without_partner(m, m->row, "; without partner before it: ");
    return set_level(m, MSP_ANSWER_WRONG);
}

/* Positions and truth values, where choices fell the other way: that they differ is known already. */
static bool
is_choice(const maker *m, const msp_row *r)
{
    return m->out->verdict.flips.count > 0 && msp_local_roundoff(m->src->rows[0]->texts[r->dtype].dtype) == 0;
}

/*
 * A gradient that comes in is the sum over all who took the value, which no call has given. Where such a sum cancels it
 * consists of rounding errors, and differs altogether: 64 roundoffs of the largest gradient before it are generous.
 */
static bool
is_cancelled_gradient(const maker *m, const msp_row *r)
{
    const msp_rows *rows = m->src->rows[0];
    double own, norm, most = 0;

    if (!msp_str_ends(rows->apis[r->api].name, MSP_STR(".backward")) || !msp_val_number(&r->stats[MSP_STAT_NORM], &own))
        return false;
    for (size_t i = 0; i < rows->apis[r->api].first; i++)
        if (rows->rows[i].state == STATE_OUTPUT &&
            msp_str_ends(rows->apis[rows->rows[i].api].name, MSP_STR(".backward")) &&
            msp_val_number(&rows->rows[i].stats[MSP_STAT_NORM], &norm) && isfinite(norm))
            most = fmax(most, norm);
    return own < 64 * msp_local_roundoff(rows->texts[r->dtype].dtype) * most;
}

/* The input of a call that differs most, and by how much. */
static int64_t
worst_input(const maker *m, const char *api, double *by)
{
    const msp_rows *rows = m->src->rows[0];
    double worst = -1;
    int64_t row = -1;

    for (size_t i = 0; i < rows->count; i++) {
        const msp_row *n = &rows->rows[i];
        double d;

        if (n->plain || n->state >= STATE_OUTPUT || m->src->match->bench[i] == MATCH_NONE || is_choice(m, n) ||
            !msp_str_eq(rows->apis[n->api].name, msp_str_of(api)))
            continue;
        d = msp_verdict_row_difference(rows, n, &m->src->rows[1]->rows[m->src->match->bench[i]]);
        if (d > worst && !is_cancelled_gradient(m, n)) {
            worst = d;
            row = (int64_t)i;
        }
    }
    *by = worst;
    return row;
}

/*
 * What a forward call takes has been given by a call before it, or the run began with it: then it was looked at beside
 * all else that the run began with (verdict/start.c). Only calls that one run makes alone can come between.
 */
static bool
may_be_from_outside(const maker *m, const char *api)
{
    const msp_match *match = m->src->match;

    return match->matched < match->count || match->bench_only > 0 ||
           msp_str_ends(msp_str_of(api), MSP_STR(".backward"));
}

/* A call takes something that is off by far more than anything that was compared before it. */
static bool
say_from_outside(maker *m)
{
    const msp_pair_verdict *v = &m->out->verdict;
    double most = 0, by;

    for (size_t i = 0; i < v->nresults; i++) {
        const msp_verdict_result *r = &v->results[i];

        if (may_be_from_outside(m, r->api) && isfinite(r->diff_in) && r->diff_in > OUTSIDE_LEAST &&
            r->diff_in > OUTSIDE_TIMES * most && (m->row = worst_input(m, r->api, &by)) >= 0 && by > OUTSIDE_LEAST &&
            by > OUTSIDE_TIMES * most) {
            msp_buf_printf(&m->text,
                           "Wrong: what %s takes differs by %.2g, and no result of a call before it that has a partner "
                           "differs by more than %.2g",
                           r->api, by, most);
            say_without_partner(m, m->row, "; without partner before it: ");
            m->verdict = "differs from outside";
            return set_level(m, MSP_ANSWER_WRONG);
        }
        if (isfinite(r->diff_out))
            most = fmax(most, r->diff_out);
    }
    return false;
}

static void
put_within_limits(msp_buf *text, int64_t rows)
{
    if (rows == 1)
        msp_buf_text(text, "Nothing wrong: the row that was judged is within the manual's limits");
    else
        msp_buf_printf(text, "Nothing wrong: all %" PRId64 " rows that were judged are within the manual's limits",
                       rows);
}

/* ---- the verdict, and what stands in for it ---------------------------------------------------------------------- */

static bool
say_suspect(maker *m)
{
    const msp_pair_verdict *v = &m->out->verdict;
    const msp_verdict_suspect *s = &v->suspects[0];
    const msp_row_api *api;

    m->row = v->nsuspects > 0 ? find_row(m->src->rows[0], s->api, s->at) : -1;
    if (m->row >= 0 && s->bench_api != NULL && m->src->match->bench[m->row] == MATCH_NONE)
        m->beside = find_row(m->src->rows[1], s->bench_api, s->at);
    m->verdict = v->nsuspects > 0 && s->nonfinite ? "NaN or inf on one side only" : "suspect";
    if (v->kind == MSP_VERDICT_START) {
        msp_buf_printf(&m->text, "Wrong: %s", v->sentence);
        return set_level(m, MSP_ANSWER_WRONG);
    }
    if (v->kind != MSP_VERDICT_SUSPECT)
        return false;
    api = m->row < 0 ? NULL : &m->src->rows[0]->apis[m->src->rows[0]->rows[m->row].api];
    for (size_t i = api == NULL ? 0 : api->first; api != NULL && i < api->first + api->count; i++)
        if (msp_suspect_argument_differs(m->src, i)) {
            msp_buf_printf(&m->text, "Wrong: %s is not given the same argument in both runs (", s->api);
            msp_suspect_argument_text(&m->text, m->src, i, false);
            msp_buf_text(&m->text, ")");
            return set_level(m, MSP_ANSWER_WRONG);
        }
    msp_buf_printf(&m->text, "Wrong: %s", v->sentence);
    return set_level(m, MSP_ANSWER_WRONG);
}

static bool
say_models(maker *m)
{
    if (m->out->verdict.kind != MSP_VERDICT_MODELS)
        return false;
    msp_buf_printf(&m->text, "Not judged: %s", m->out->verdict.sentence);
    return set_level(m, MSP_ANSWER_NOT_JUDGED);
}

/* Checksums and older dumps: the table's own words are all there is. */
static bool
say_table(maker *m)
{
    const msp_compare_counts *c = &m->out->counts;
    bool sums = m->src->mode == MSP_MODE_MD5;

    m->row = m->seen->suspect;
    m->verdict = m->seen->suspect_verdict;
    if (m->row < 0)
        return false;
    if (sums)
        msp_buf_printf(&m->text,
                       "Wrong: %" PRId64 " of %" PRId64 " checksums differ, first that of %.*s; a checksum cannot tell "
                       "rounding from a fault",
                       c->different, c->matched, (int)row_name(m, m->row).len, row_name(m, m->row).p);
    else
        msp_buf_printf(&m->text, "Wrong: %" PRId64 " of %" PRId64 " rows are beyond the manual's limits, first %.*s",
                       c->wrong > c->nonfinite ? c->wrong : c->nonfinite, c->matched, (int)row_name(m, m->row).len,
                       row_name(m, m->row).p);
    return set_level(m, MSP_ANSWER_WRONG);
}

/* Real data of which nothing could be read: statistics that agree are no answer to what was asked. */
static bool
say_unreadable(maker *m)
{
    const msp_compare_counts *c = &m->out->counts;

    if (m->src->mode != MSP_MODE_REAL || c->unreadable == 0 || c->yes + c->no > 0)
        return false;
    msp_buf_text(&m->text, "Not judged: no tensor file could be read");
    return set_level(m, MSP_ANSWER_NOT_JUDGED);
}

/* All rows that have a partner are equal. */
static bool
say_identical(maker *m)
{
    const msp_compare_counts *c = &m->out->counts;
    static const char *const what[] = {"Identical to the bit: all", "Identical to the bit: the statistics of all",
                                       "Identical: the checksums of all"};

    const msp_match *match = m->src->match; /* not the table's, where the runs do not make the same calls */
    bool differ = m->out->verdict.realigned > 0 ? m->out->first_differs != NULL : c->differ > 0;

    if (differ || match->matched == 0 || c->unreadable > 0 || c->other_type > 0)
        return false;
    msp_buf_printf(&m->text, "%s %zu rows%s", what[m->src->mode], match->matched,
                   match->matched < match->count ? " that have a partner" : "");
    return set_level(m, MSP_ANSWER_IDENTICAL);
}

static bool
say_within(maker *m)
{
    const msp_pair_verdict *v = &m->out->verdict;

    if (v->given && (v->kind == MSP_VERDICT_WITHIN || (v->kind == MSP_VERDICT_IDENTICAL && v->realigned > 0))) {
        msp_buf_text(&m->text, v->sentence);
        return set_level(m, MSP_ANSWER_WITHIN);
    }
    if (v->given && v->kind == MSP_VERDICT_IDENTICAL) {
        msp_buf_printf(&m->text,
                       "Nothing wrong: the statistics of all %" PRId64
                       " results that were judged are equal; other differences, in %" PRId64
                       " rows, are within the manual's limits",
                       v->judged, m->out->counts.differ);
        return set_level(m, MSP_ANSWER_WITHIN);
    }
    if (v->given) {
        msp_buf_printf(&m->text, "Not judged: %s", v->sentence);
        return set_level(m, MSP_ANSWER_NOT_JUDGED);
    }
    if (m->src->mode != MSP_MODE_MD5 && m->out->counts.yes + m->out->counts.clean > 0) {
        put_within_limits(&m->text, m->out->counts.yes + m->out->counts.clean);
        return set_level(m, MSP_ANSWER_WITHIN);
    }
    msp_buf_text(&m->text, "Not judged: see the table's numbers and Err_message");
    return set_level(m, MSP_ANSWER_NOT_JUDGED);
}

static msp_status
describe_row(maker *m, msp_error *err)
{
    msp_suspect_source src = *m->src;
    uint32_t partner;

    if (m->row < 0)
        return MSP_OK;
    partner = src.match->bench[m->row];
    src.row[0] = &src.rows[0]->rows[m->row];
    src.row[1] = partner != MATCH_NONE ? &src.rows[1]->rows[partner]
                 : m->beside >= 0      ? &src.rows[1]->rows[m->beside]
                                       : NULL;
    src.verdict = m->verdict;
    m->out->answer.blamed.row = m->row;
    return msp_suspect_describe(&m->out->answer.blamed, &src, err);
}

/* Has the tool a verdict of its own? Statistics that agree say nothing of elements that the table finds beyond its
 * limits, and where no result could be judged the table is all there is. */
static bool
is_judged(const msp_compare_pair *p)
{
    const msp_pair_verdict *v = &p->verdict;

    if (!v->given || (v->kind == MSP_VERDICT_NONE && p->counts.wrong > 0))
        return false;
    return !(v->kind == MSP_VERDICT_IDENTICAL && v->realigned == 0 && p->mode == MSP_MODE_REAL && p->counts.no > 0);
}

msp_status
msp_answer_make(msp_compare_pair *out, const msp_suspect_source *src, const msp_answer_seen *seen, msp_error *err)
{
    maker m = {.out = out, .src = src, .seen = seen, .row = -1, .beside = -1};
    bool judged = is_judged(out), said;

    if (!msp_answer_notes(out, src))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    said = judged ? say_models(&m) || say_suspect(&m) || say_argument(&m) || say_nonfinite(&m) || say_from_outside(&m)
                  : say_table(&m);
    if (!said) {
        m.row = -1;
        (void)(say_unreadable(&m) || say_identical(&m) || say_within(&m));
    }
    out->answer.sentence = m.text.failed ? NULL : msp_result_text(msp_buf_view(&m.text));
    msp_buf_release(&m.text);
    if (out->answer.sentence == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    return describe_row(&m, err);
}

/* A pair that was compared by rules of its own (static graphs). */
static bool
answer_by_counts(msp_compare_pair *p)
{
    const msp_compare_counts *c = &p->counts;
    msp_buf text = {0};

    if (p->status != MSP_OK || p->answer.sentence != NULL)
        return true;
    p->answer.blamed = p->suspect;
    p->suspect = (msp_compare_suspect){0};
    p->answer.level = c->wrong > 0           ? MSP_ANSWER_WRONG
                      : c->matched > c->none ? MSP_ANSWER_WITHIN
                                             : MSP_ANSWER_NOT_JUDGED;
    if (c->wrong > 0)
        msp_buf_printf(&text, "Wrong: %" PRId64 " of %" PRId64 " rows are beyond the manual's limits", c->wrong,
                       c->matched);
    else if (p->answer.level == MSP_ANSWER_WITHIN)
        put_within_limits(&text, c->matched - c->none);
    else
        msp_buf_text(&text, "Not judged: see the table's numbers and Err_message");
    p->answer.sentence = text.failed ? NULL : msp_result_text(msp_buf_view(&text));
    msp_buf_release(&text);
    return p->answer.sentence != NULL;
}

/* ---- the whole run ----------------------------------------------------------------------------------------------- */

/* Where in its run the pair's blamed row stands; pairs of an earlier step go first. */
static bool
goes_before(const msp_compare_pair *a, const msp_compare_pair *b)
{
    if (a->answer.level != b->answer.level)
        return a->answer.level > b->answer.level;
    if (a->answer.level != MSP_ANSWER_WRONG)
        return a->verdict.given && b->verdict.given && a->verdict.largest > b->verdict.largest;
    if (a->step != b->step)
        return a->step < b->step;
    return a->answer.blamed.found && (!b->answer.blamed.found || a->answer.blamed.row < b->answer.blamed.row);
}

static void
say_run(msp_buf *text, const msp_compare_result *r, const msp_compare_pair *first, size_t same, size_t compared)
{
    int64_t judged = 0, rows = 0;

    for (size_t i = 0; i < r->npairs; i++) {
        judged += r->pairs[i].verdict.judged;
        rows += r->pairs[i].counts.matched;
    }
    if (first->answer.level == MSP_ANSWER_WRONG)
        msp_buf_printf(text, "%s (%s; %zu of %zu pairs are wrong)", first->answer.sentence, first->label, same,
                       compared);
    else if (first->answer.level == MSP_ANSWER_IDENTICAL)
        msp_buf_printf(text, "%s %" PRId64 " rows with a partner in %zu pairs",
                       first->mode == MSP_MODE_REAL         ? "Identical to the bit: all"
                       : first->mode == MSP_MODE_STATISTICS ? "Identical to the bit: the statistics of all"
                                                            : "Identical: the checksums of all",
                       rows, compared);
    else if (first->answer.level == MSP_ANSWER_WITHIN && first->verdict.largest_at != NULL)
        msp_buf_printf(text,
                       "Nothing wrong in %zu pairs: %" PRId64
                       " results within rounding, largest %.2gx the expected error at %s (%s)",
                       compared, judged, first->verdict.largest, first->verdict.largest_at, first->label);
    else
        msp_buf_printf(text, "%s (%s and %zu more)", first->answer.sentence, first->label, same - 1);
}

/* A run is as good as its worst pair; of those that are not wrong one that was not judged speaks. */
static msp_answer_level
run_level(const msp_compare_result *r)
{
    msp_answer_level level = MSP_ANSWER_IDENTICAL;

    for (size_t i = 0; i < r->npairs; i++) {
        msp_answer_level l = r->pairs[i].answer.level;

        if (r->pairs[i].answer.sentence == NULL)
            continue;
        if (l == MSP_ANSWER_WRONG)
            return l;
        if (l == MSP_ANSWER_NOT_JUDGED || level == MSP_ANSWER_NOT_JUDGED)
            level = MSP_ANSWER_NOT_JUDGED;
        else if (l > level)
            level = l;
    }
    return level;
}

msp_status
msp_answer_run(msp_compare_result *out, msp_error *err)
{
    const msp_compare_pair *first = NULL;
    size_t same = 0, compared = 0;
    msp_buf text = {0};

    for (size_t i = 0; i < out->npairs; i++)
        if (!answer_by_counts(&out->pairs[i]))
            return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    out->level = run_level(out);
    for (size_t i = 0; i < out->npairs; i++) {
        const msp_compare_pair *p = &out->pairs[i];

        if (p->answer.sentence == NULL)
            continue;
        compared++;
        if (p->answer.level != out->level)
            continue;
        same++;
        if (first == NULL || goes_before(p, first))
            first = p;
    }
    if (first == NULL) {
        out->level = MSP_ANSWER_NOT_JUDGED;
        return MSP_OK;
    }
    if (out->job.given && out->job.first >= 0 && out->pairs[out->job.first].answer.level == MSP_ANSWER_WRONG)
        first = &out->pairs[out->job.first]; /* by the order that communication gives */
    out->told = (size_t)(first - out->pairs);
    if (compared == 1 && out->npairs == 1)
        msp_buf_text(&text, first->answer.sentence);
    else
        say_run(&text, out, first, same, compared);
    out->sentence = text.failed ? NULL : msp_result_text(msp_buf_view(&text));
    msp_buf_release(&text);
    return out->sentence == NULL ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;
}
