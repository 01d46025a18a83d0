/* page_run.c - see page_run.h. The head of the page is written here: what was compared, and the verdict. */
#include "compare/page/page_run.h"

#include <math.h>
#include "compare/run/run.h"
#include "core/alloc.h"
#include "core/log.h"
#include "dump/construct.h"

msp_status
msp_page_run_open(msp_page_run *out, const char *dir, const char *timestamp, size_t npairs, msp_error *err)
{
    out->path = msp_plan_file(dir, "compare_result", timestamp, "html");
    out->parts = msp_alloc_zero(npairs, sizeof(*out->parts));
    out->nparts = npairs;
    return out->path == NULL || out->parts == NULL ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;
}

void
msp_page_run_release(msp_page_run *p)
{
    for (size_t i = 0; p->parts != NULL && i < p->nparts; i++)
        msp_page_part_close(p->parts[i]);
    msp_free(p->parts);
    msp_free(p->path);
    *p = (msp_page_run){0};
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static msp_status
add_stack(msp_page_part *part, const msp_json *frames, msp_error *err)
{
    enum { DEEPEST = 64 };
    msp_str all[DEEPEST];
    size_t n = 0;

    for (; n < DEEPEST && n < msp_json_count(frames); n++)
        all[n] = msp_json_string(msp_json_at(frames, n));
    return msp_page_part_stack(part, all, n, err);
}

msp_status
msp_page_feed_row(msp_page_feed *f, const msp_judged *j, msp_str call, const msp_cell *cells, const msp_json *frames,
                  size_t row, msp_error *err)
{
    msp_status st = msp_page_part_row(f->part, call, cells, j->colour, err);

    if (st == MSP_OK && frames != NULL)
        st = add_stack(f->part, frames, err);
    if (st == MSP_OK && (msp_verdict_wrong(j->verdict) || j->colour != MSP_ROW_PLAIN) && f->nbeyond < PAGE_LOOK_LIMITS)
        f->beyond[f->nbeyond++] = row;
    return st;
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

/* The row "call.at"; SIZE_MAX: there is none. */
static size_t
find_row(const msp_rows *rows, size_t near, const char *at)
{
    const msp_row_api *api = &rows->apis[rows->rows[near].api];

    for (size_t i = api->first; i < api->first + api->count; i++)
        if (msp_str_ends(msp_row_name(&rows->rows[i]), msp_str_of(at)))
            return i;
    return SIZE_MAX;
}

/* Suspects are results; what the runs do not begin with alike is something that a call takes. */
static void
judge_suspects(msp_page_feed *f, const msp_pair_verdict *v, const msp_rows *rows)
{
    for (size_t i = 0; i < v->nsuspects; i++) {
        const msp_verdict_suspect *s = &v->suspects[i];
        int64_t near = s->at == NULL || s->result >= v->nresults ? -1 : v->results[s->result].row;
        size_t row = near < 0 ? SIZE_MAX : rows == NULL ? (size_t)near : find_row(rows, (size_t)near, s->at);

        if (row != SIZE_MAX)
            msp_page_part_judge(f->part, row, PAGE_WRONG);
    }
}

static bool
is_gradient(const char *api)
{
    return strstr(api, ".backward") != NULL || strstr(api, ".parameters_grad") != NULL;
}

/*
 * Is the result wrong by itself? A gradient that was not run again may be off by what its forward call has kept, which
 * the rows do not show; one that was may still come from a forward call that is named.
 */
static bool
is_wrong_itself(const msp_verdict_result *r, const msp_pair_verdict *v)
{
    size_t n = strlen(r->api);

    if (!(r->ratio > 1) || r->nonfinite || (!isfinite(r->local) && is_gradient(r->api)))
        return false;
    for (size_t i = 0; i < v->nsuspects; i++) {
        const char *forward = v->suspects[i].api;

        if (n > 8 && strcmp(r->api + n - 8, "backward") == 0 && strlen(forward) == n - 1 &&
            strncmp(r->api, forward, n - 8) == 0)
            return false;
    }
    return true;
}

msp_status
msp_page_feed_verdict(msp_page_feed *f, const msp_compare_pair *pair, const msp_rows *rows, msp_error *err)
{
    const msp_pair_verdict *v = &pair->verdict;
    msp_status st = MSP_OK;

    if (!v->given || pair->answer.sentence == NULL)
        return MSP_OK;
    msp_page_part_own_verdict(f->part);
    for (size_t i = 0; i < v->nresults && st == MSP_OK; i++) {
        const msp_verdict_result *r = &v->results[i];
        const char *text = r->not_judged != NULL ? r->not_judged : r->shape_text;
        msp_page_result said = {r->ratio,   r->local,    r->local_bench, r->inherited,
                                r->diff_in, r->diff_out, r->expected,    msp_str_of(text != NULL ? text : "")};

        if (r->bench_api == NULL)
            continue;
        msp_page_part_judge(f->part, (size_t)r->row,
                            r->not_judged != NULL   ? PAGE_NOT_JUDGED
                            : is_wrong_itself(r, v) ? PAGE_WRONG
                                                    : PAGE_FINE);
        st = msp_page_part_result(f->part, (size_t)r->row, &said, err);
    }
    judge_suspects(f, v, rows);
    if (pair->answer.blamed.found)
        msp_page_part_judge(f->part, (size_t)pair->answer.blamed.row, PAGE_WRONG);
    return st;
}

/* ---- whose elements are looked at -------------------------------------------------------------------------------- */

typedef struct choice {
    const msp_page_feed *feed;
    size_t *rows, count;
} choice;

static void
add_choice(choice *c, size_t row)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->rows[i] == row)
            return;
    if (msp_page_part_shown(c->feed->part, row) >= 0)
        c->rows[c->count++] = row;
}

/* The rows that are off most, nothing else being known of them. */
static void
choose_largest(choice *c, const double *diffs, size_t nrows)
{
    size_t largest[PAGE_LOOK_LARGEST], n = 0, i;

    for (size_t row = 0; row < nrows; row++) {
        if (!(diffs[row] > 0) || (n == PAGE_LOOK_LARGEST && diffs[row] <= diffs[largest[n - 1]]))
            continue;
        i = n < PAGE_LOOK_LARGEST ? n++ : n - 1;
        for (; i > 0 && diffs[largest[i - 1]] < diffs[row]; i--)
            largest[i] = largest[i - 1];
        largest[i] = row;
    }
    for (i = 0; i < n; i++)
        add_choice(c, largest[i]);
}

size_t
msp_page_feed_choose(const msp_page_feed *f, size_t out[PAGE_LOOK], const msp_compare_pair *pair, const double *diffs,
                     size_t nrows)
{
    const msp_pair_verdict *v = &pair->verdict;
    choice c = {f, out, 0};

    if (pair->answer.blamed.found)
        add_choice(&c, (size_t)pair->answer.blamed.row);
    for (size_t i = 0; i < v->nresults && c.count < PAGE_LOOK_OWN; i++)
        if (is_wrong_itself(&v->results[i], v))
            add_choice(&c, (size_t)v->results[i].row);
    for (size_t i = 0; i < f->nbeyond; i++)
        add_choice(&c, f->beyond[i]);
    choose_largest(&c, diffs, nrows);
    return c.count;
}

msp_status
msp_page_feed_construct(msp_page_part *part, const char *json_path, msp_error *err)
{
    msp_construct c;
    msp_status st = MSP_OK;

    if (!msp_construct_open_if_any(&c, json_path))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (size_t i = 0; i < c.count && st == MSP_OK; i++)
        st = msp_page_part_parent(part, msp_construct_name(&c, i), msp_construct_parent_at(&c, i), err);
    msp_construct_close(&c);
    return st;
}

/* ---- the head ---------------------------------------------------------------------------------------------------- */

static void
put_text(msp_json_writer *w, const char *key, const char *text)
{
    if (text == NULL)
        return;
    msp_json_write_key(w, msp_str_of(key));
    msp_json_write_string(w, msp_str_of(text));
}

static void
put_int(msp_json_writer *w, const char *key, int64_t v)
{
    msp_json_write_key(w, msp_str_of(key));
    msp_json_write_i64(w, v);
}

static void
put_texts(msp_json_writer *w, const char *key, char *const *texts, size_t n)
{
    msp_json_write_key(w, msp_str_of(key));
    msp_json_begin_array(w);
    for (size_t i = 0; i < n; i++)
        msp_json_write_string(w, msp_str_of(texts[i] != NULL ? texts[i] : ""));
    msp_json_end_array(w);
}

static void
put_suspect(msp_json_writer *w, const msp_compare_suspect *s)
{
    msp_json_write_key(w, MSP_STR("suspect"));
    msp_json_begin_object(w);
    put_text(w, "name", s->npu_name);
    put_text(w, "bench_name", s->bench_name);
    put_text(w, "call", s->api);
    put_text(w, "verdict", s->verdict);
    put_text(w, "message", s->message);
    put_text(w, "inputs", msp_inputs_state_text(s->inputs));
    put_text(w, "argument", s->argument);
    put_texts(w, "stack", s->stack, s->nstack);
    put_texts(w, "dtype", s->dtype, 2);
    put_texts(w, "shape", s->shape, 2);
    if (s->has_worst) {
        msp_json_write_key(w, MSP_STR("worst"));
        msp_json_begin_object(w);
        msp_json_write_key(w, MSP_STR("index"));
        msp_json_begin_array(w);
        for (int32_t i = 0; i < s->worst_ndim; i++)
            msp_json_write_i64(w, s->worst_coords[i]);
        msp_json_end_array(w);
        put_text(w, "npu", s->worst_value[0]);
        put_text(w, "bench", s->worst_value[1]);
        msp_json_end_object(w);
    }
    msp_json_end_object(w);
}

/* The verdict's suspects after the first, which "suspect" is. */
static void
put_next_suspects(msp_json_writer *w, const msp_pair_verdict *v)
{
    msp_json_write_key(w, MSP_STR("then"));
    msp_json_begin_array(w);
    for (size_t i = 1; i < v->nsuspects; i++) {
        msp_json_begin_object(w);
        put_text(w, "call", v->suspects[i].api);
        put_text(w, "reason", v->suspects[i].reason);
        msp_json_end_object(w);
    }
    msp_json_end_array(w);
}

static void
put_counts(msp_json_writer *w, const msp_compare_counts *c)
{
    msp_json_write_key(w, MSP_STR("counts"));
    msp_json_begin_object(w);
    put_int(w, "rows", c->rows);
    put_int(w, "matched", c->matched);
    put_int(w, "unmatched", c->unmatched);
    put_int(w, "bench_only", c->bench_only);
    put_int(w, "wrong", c->wrong);
    put_int(w, "nonfinite", c->nonfinite);
    put_int(w, "unreadable", c->unreadable);
    put_int(w, "not_judged", c->none);
    msp_json_end_object(w);
}

static void
put_bins(msp_json_writer *w, const msp_page_part *part)
{
    const msp_page_rest *rest = msp_page_part_rest(part);

    msp_json_write_key(w, MSP_STR("bins"));
    msp_json_begin_array(w);
    for (size_t i = 0; i < PAGE_BINS; i++) {
        float e = rest->bins[i].error;

        msp_json_write_f64(w, isinf(e) ? 1e38 : e);
        msp_json_write_i64(w, rest->bins[i].verdict);
        msp_json_write_i64(w, rest->bins[i].marks);
    }
    msp_json_end_array(w);
    put_int(w, "calls", (int64_t)rest->calls);
    put_int(w, "shown_rows", rest->rows);
}

static void
put_pair(msp_json_writer *w, const msp_compare_pair *p, const msp_page_part *part)
{
    msp_json_begin_object(w);
    put_text(w, "label", p->label);
    put_int(w, "step", p->step);
    put_int(w, "rank", p->rank);
    put_text(w, "npu", p->npu_path);
    put_text(w, "bench", p->bench_path);
    put_text(w, "mode", msp_compare_mode_text(p->mode));
    put_text(w, "error", p->error);
    put_counts(w, &p->counts);
    if (part != NULL)
        put_bins(w, part);
    if (p->answer.blamed.found)
        put_suspect(w, &p->answer.blamed);
    else if (p->answer.sentence == NULL &&
             p->suspect.found) /* a page made from tables: their limits are all there is */
        put_suspect(w, &p->suspect);
    if (p->answer.sentence != NULL)
        put_text(w, "sentence", p->answer.sentence);
    put_texts(w, "notes", p->answer.notes, p->answer.nnotes);
    put_next_suspects(w, &p->verdict);
    put_texts(w, "files", p->files, p->nfiles);
    msp_json_end_object(w);
}

/* " The largest error is 1.2e-05, of Functional.linear.3.forward (rank1)."; the result is that pair. */
static size_t
say_largest(msp_buf *text, const msp_page_run *page, const msp_compare_result *r)
{
    const msp_page_rest *most = NULL;
    size_t pair = 0;

    for (size_t i = 0; i < page->nparts; i++) {
        const msp_page_rest *rest = page->parts[i] != NULL ? msp_page_part_rest(page->parts[i]) : NULL;

        if (rest != NULL && rest->largest_call != NULL && (most == NULL || rest->largest > most->largest)) {
            most = rest;
            pair = i;
        }
    }
    if (most != NULL && most->largest == 0)
        msp_buf_text(text, " Every error that was measured is 0.");
    else if (most != NULL) {
        msp_buf_printf(text, " The largest error is %.2g relative to the bench, of %s", (double)most->largest,
                       most->largest_call);
        if (r->npairs > 1)
            msp_buf_printf(text, " (%s)", r->pairs[pair].label);
        msp_buf_char(text, '.');
    }
    return pair;
}

/* A page that is made from tables has no verdict but their limits'. */
static size_t
say_tables(msp_buf *text, const msp_page_run *page, const msp_compare_result *r, bool *wrong)
{
    const msp_compare_pair *first = NULL;
    size_t bad_pairs = 0, pair = 0;

    for (size_t i = 0; i < r->npairs; i++) {
        bad_pairs += r->pairs[i].suspect.found;
        if (first == NULL && r->pairs[i].suspect.found) {
            first = &r->pairs[i];
            pair = i;
        }
    }
    *wrong = first != NULL;
    if (first == NULL && r->nfailed == r->npairs) {
        msp_buf_text(text, "Nothing could be compared.");
        return 0;
    }
    if (first == NULL) {
        msp_buf_text(text, "No row is beyond the manual's limits.");
        return say_largest(text, page, r);
    }
    msp_buf_printf(text, "%s is the first call with a row beyond the manual's limits", first->suspect.api);
    if (first->label[0] != '\0' && r->npairs > 1)
        msp_buf_printf(text, " (%s; so have %zu of %zu tables)", first->label, bad_pairs, r->npairs);
    msp_buf_char(text, '.');
    return pair;
}

/* The sentence that the screen shows. */
static void
put_verdict(msp_json_writer *w, const msp_page_run *page, const msp_compare_result *r)
{
    bool bad = r->sentence != NULL && r->level == MSP_ANSWER_WRONG;
    int64_t wrong = 0, unmatched = 0;
    msp_buf text = {0};
    size_t pair = r->told;
    bool open = r->nfailed > 0;

    for (size_t i = 0; i < r->npairs; i++) {
        wrong += r->pairs[i].counts.wrong;
        unmatched += r->pairs[i].counts.unmatched;
    }
    if (r->sentence != NULL)
        msp_buf_printf(&text, "%s.", r->sentence);
    else
        pair = say_tables(&text, page, r, &bad);
    open = open || unmatched > 0 || (r->sentence != NULL && r->level == MSP_ANSWER_NOT_JUDGED);
    msp_json_write_key(w, MSP_STR("verdict"));
    msp_json_begin_object(w);
    put_text(w, "level", bad ? "wrong" : open ? "open" : "fine");
    put_text(w, "text", text.failed ? "" : text.p);
    put_int(w, "pair", (int64_t)pair);
    put_int(w, "wrong", wrong);
    msp_json_end_object(w);
    msp_buf_release(&text);
}

msp_status
msp_page_run_write(msp_page_run *p, msp_compare_result *out, const msp_compare_options *opt, msp_error *err)
{
    msp_buf head = {0};
    msp_json_writer w;
    msp_status st;
    bool any = false;

    for (size_t i = 0; i < p->nparts; i++)
        any |= p->parts[i] != NULL;
    if (!any)
        return MSP_OK;
    msp_json_writer_init(&w, &head, -1);
    msp_json_begin_object(&w);
    put_int(&w, "format", 2);
    put_text(&w, "npu", opt->npu_path);
    put_text(&w, "bench", opt->bench_path);
    put_verdict(&w, p, out);
    msp_json_write_key(&w, MSP_STR("pairs"));
    msp_json_begin_array(&w);
    for (size_t i = 0; i < out->npairs; i++)
        put_pair(&w, &out->pairs[i], p->parts[i]);
    msp_json_end_array(&w);
    msp_json_end_object(&w);
    st = msp_buf_status(&head, err);
    if (st == MSP_OK)
        st = msp_page_write(p->path, msp_buf_view(&head), p->parts, p->nparts, err);
    msp_buf_release(&head);
    if (st == MSP_OK && !msp_result_add(&out->files, &out->nfiles, msp_str_of(p->path)))
        st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    return st;
}
