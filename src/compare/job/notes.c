/* notes.c - see notes.h. Ranks about which the same is to be said share a line. */
#include "compare/job/notes.h"

#include <stdlib.h>
#include "core/alloc.h"
#include "core/map.h"
#include "core/vec.h"

enum { NAMED = 6 }; /* ranks in a line; the others are counted */

typedef struct line {
    char *text;
    msp_buf labels;
    size_t count;
} line;

typedef struct lines {
    line *items;
    size_t count, cap;
    msp_map known; /* text to index */
} lines;

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

static msp_status
add_line(lines *all, const char *label, const char *text, msp_error *err)
{
    msp_map_entry *e = msp_map_get(&all->known, msp_str_of(text));
    line *l;

    if (e == NULL) {
        if (!msp_vec_grow((void **)&all->items, &all->cap, all->count + 1, sizeof(*all->items)))
            return no_memory(err);
        l = &all->items[all->count];
        *l = (line){.text = msp_result_text(msp_str_of(text))};
        if (l->text == NULL)
            return no_memory(err);
        all->count++;
        e = msp_map_put(&all->known, msp_str_of(l->text), (int64_t)all->count - 1, NULL);
        if (e == NULL)
            return no_memory(err);
    }
    l = &all->items[e->value];
    if (l->count++ < NAMED)
        msp_buf_printf(&l->labels, "%s%s", l->count > 1 ? ", " : "", label);
    return msp_buf_status(&l->labels, err);
}

static msp_status
hand_over(msp_compare_job *job, lines *all, msp_error *err)
{
    msp_buf text = {0};
    bool ok = true;

    for (size_t i = 0; i < all->count && ok; i++) {
        const line *l = &all->items[i];

        msp_buf_clear(&text);
        msp_buf_str(&text, msp_buf_view(&l->labels));
        if (l->count > NAMED)
            msp_buf_printf(&text, " and %zu more", l->count - NAMED);
        msp_buf_printf(&text, ": %s", l->text);
        ok = !text.failed && msp_result_add(&job->notes, &job->nnotes, msp_buf_view(&text));
    }
    msp_buf_release(&text);
    return ok ? MSP_OK : no_memory(err);
}

static void
lines_release(lines *all)
{
    for (size_t i = 0; i < all->count; i++) {
        msp_free(all->items[i].text);
        msp_buf_release(&all->items[i].labels);
    }
    msp_free(all->items);
    msp_map_release(&all->known);
}

/* ---- one pair ---------------------------------------------------------------------------------------------------- */

static void
describe_pair(msp_buf *out, const msp_compare_pair *p)
{
    if (p->npu_path == NULL || p->bench_path == NULL)
        msp_buf_printf(out, "missing on the %s side", p->npu_path == NULL ? "NPU" : "bench");
    for (int side = 0; side < 2; side++)
        if (p->cut[side].found)
            msp_buf_printf(out, "%sthe %s side's file is cut off after %lld records", out->len > 0 ? "; " : "",
                           side == 0 ? "NPU" : "bench", (long long)p->cut[side].records);
    if (p->place.note != NULL)
        msp_buf_printf(out, "%s%s", out->len > 0 ? "; " : "", p->place.note);
}

/* The error of a pair stands in the table; the lines name what is missing or ends early. */
static msp_status
note_pair(lines *all, msp_compare_pair *p, msp_error *err)
{
    msp_buf text = {0};
    msp_status st = MSP_OK;

    describe_pair(&text, p);
    if (text.len > 0)
        st = add_line(all, p->label, text.p, err);
    if (text.len == 0 && p->status != MSP_OK)
        msp_buf_text(&text, p->error != NULL ? p->error : msp_status_text(p->status));
    if (st == MSP_OK && text.len > 0) {
        msp_free(p->place.note);
        p->place.note = text.failed ? NULL : msp_result_text(msp_buf_view(&text));
        st = p->place.note == NULL ? no_memory(err) : MSP_OK;
    }
    msp_buf_release(&text);
    return st;
}

/* ---- ranks of which there is no trace on either side ------------------------------------------------------------- */

static int
by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static bool
has_number(const int64_t *sorted, size_t n, int64_t v)
{
    return n > 0 && bsearch(&v, sorted, n, sizeof(v), by_number) != NULL;
}

/* Numbers of ranks, each once. */
typedef struct ranks {
    int64_t *items;
    size_t count, cap;
} ranks;

static bool
add_rank(ranks *r, int64_t v)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->items[i] == v)
            return true;
    if (!msp_vec_grow((void **)&r->items, &r->cap, r->count + 1, sizeof(*r->items)))
        return false;
    r->items[r->count++] = v;
    return true;
}

static msp_status
note_absent(lines *all, const msp_compare_pair *like, int64_t rank, const char *witness, msp_error *err)
{
    msp_buf label = {0}, text = {0};
    msp_status st;

    if (msp_job_step(like) != MSP_DUMP_NO_NUMBER)
        msp_buf_printf(&label, "step%lld ", (long long)msp_job_step(like));
    msp_buf_printf(&label, "rank%lld", (long long)rank);
    msp_buf_printf(&text, "missing on both sides: %s", witness);
    st = label.failed || text.failed ? no_memory(err) : add_line(all, label.p, text.p, err);
    msp_buf_release(&label);
    msp_buf_release(&text);
    return st;
}

/* Ranks that a call of the part speaks to, and that are not there. Calls share their lists. */
static msp_status
find_absent(lines *all, ranks *seen, const int64_t *there, size_t n, const msp_compare_pair *p,
            const msp_job_part *part, msp_error *err)
{
    const int64_t *last = NULL;
    msp_status st = MSP_OK;

    for (size_t i = 0; i < part->ncalls && st == MSP_OK; i++) {
        const msp_comm_call *c = &part->calls[i].comm;

        for (size_t k = 0; c->peers != last && k < c->npeers && st == MSP_OK; k++) {
            size_t before = seen->count;
            msp_buf text = {0};

            if (has_number(there, n, c->peers[k]) || seen->count >= 1000)
                continue;
            if (!add_rank(seen, c->peers[k]))
                return no_memory(err);
            if (seen->count == before)
                continue;
            msp_buf_printf(&text, "%s of %s speaks to it", part->calls[i].name, p->label);
            st = text.failed ? no_memory(err) : note_absent(all, p, c->peers[k], text.p, err);
            msp_buf_release(&text);
        }
        last = c->peers;
    }
    return st;
}

/* Ranks that a step lacks though the run has them in another. */
static msp_status
find_skipped(lines *all, ranks *seen, const int64_t *there, size_t n, const msp_compare_pair *first, const int64_t *run,
             size_t nrun, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; i < nrun && st == MSP_OK; i++) {
        if ((i > 0 && run[i] == run[i - 1]) || has_number(there, n, run[i]))
            continue;
        if (!add_rank(seen, run[i]))
            return no_memory(err);
        st = note_absent(all, first, run[i], "another step has it", err);
    }
    return st;
}

static msp_status
note_step(lines *all, const msp_compare_pair *pairs, msp_job_part *const *parts, size_t n, const int64_t *run,
          size_t nrun, msp_error *err)
{
    int64_t *there = msp_alloc(n, sizeof(*there));
    size_t nthere = 0;
    ranks seen = {0};
    msp_status st = MSP_OK;

    if (there == NULL)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        int64_t rank = msp_job_rank(&pairs[i]);

        if (rank != MSP_DUMP_NO_NUMBER)
            there[nthere++] = rank;
    }
    if (nthere > 0)
        qsort(there, nthere, sizeof(*there), by_number);
    if (nthere > 0) /* folders without numbers: a single rank */
        st = find_skipped(all, &seen, there, nthere, &pairs[0], run, nrun, err);
    for (size_t i = 0; i < n && nthere > 1 && st == MSP_OK; i++)
        if (parts[i] != NULL)
            st = find_absent(all, &seen, there, nthere, &pairs[i], parts[i], err);
    msp_free(seen.items);
    msp_free(there);
    return st;
}

msp_status
msp_job_note_all(msp_compare_result *out, msp_job_part *const *parts, msp_error *err)
{
    int64_t *run = msp_alloc(out->npairs, sizeof(*run));
    size_t nrun = 0, end;
    lines all = {0};
    msp_status st = run == NULL ? no_memory(err) : MSP_OK;

    for (size_t i = 0; i < out->npairs && st == MSP_OK; i++) {
        if (msp_job_rank(&out->pairs[i]) != MSP_DUMP_NO_NUMBER)
            run[nrun++] = msp_job_rank(&out->pairs[i]);
        st = note_pair(&all, &out->pairs[i], err);
    }
    if (st == MSP_OK)
        qsort(run, nrun, sizeof(*run), by_number);
    for (size_t i = 0; i < out->npairs && st == MSP_OK; i = end) {
        end = i;
        while (end < out->npairs && msp_job_same_step(&out->pairs[i], &out->pairs[end]))
            end++;
        st = note_step(&all, &out->pairs[i], &parts[i], end - i, run, nrun, err);
    }
    if (st == MSP_OK)
        st = hand_over(&out->job, &all, err);
    lines_release(&all);
    msp_free(run);
    return st;
}
