/* blocks.c - see blocks.h. */
#include "compare/pair/blocks.h"

#include "compare/judge/ahead.h"
#include "compare/judge/highlight.h"
#include "compare/legacy/legacy.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/pool.h"
#include "core/vec.h"

enum {
    BLOCK_ROWS = 1024,      /* a block ends with the call that reaches this: its cells stay in the cache */
    TEXT_ROWS = 2048,       /* the same where no cells are kept: threads wait for each other less often */
    TASK_ROWS = 32,         /* rows that one task of the pool does at least */
    LARGE_TENSOR = 4 << 20, /* bytes: from here on one row is given all threads */
    TOLD_BYTES = 1 << 20    /* after which what was read is counted */
};

typedef struct block {
    size_t first, count; /* rows */
    size_t first_api, napis;
    msp_judged *judged;
    size_t cap;
    msp_shown *shown; /* none where texts are all that is wanted */
    size_t cap_shown;
    msp_buf *texts; /* one for each task */
    size_t ntexts, cap_texts;
} block;

typedef struct blocks {
    const msp_blocks_job *job;
    block two[2];
    msp_pool *readers; /* NULL: the pool of the process does */
    bool has_large;    /* some rows may be worth all threads each */
    msp_status status; /* of handing on, which happens beside judging */
    msp_error err;
} blocks;

static const msp_rows *
npu_rows(const blocks *s)
{
    return s->job->show.npu;
}

/* ---- one block --------------------------------------------------------------------------------------------------- */

/* Room for need items; those that are new are empty, which for all of them is zero bytes. */
static bool
reserve_items(void **items, size_t *cap, size_t need, size_t size)
{
    size_t before = *cap;

    if (!msp_vec_grow(items, cap, need, size))
        return false;
    if (*cap > before)
        memset((char *)*items + before * size, 0, (*cap - before) * size);
    return true;
}

static bool
reserve_judged(block *b, size_t rows)
{
    return reserve_items((void **)&b->judged, &b->cap, rows, sizeof(*b->judged));
}

static bool
reserve_shown(block *b, size_t rows)
{
    return reserve_items((void **)&b->shown, &b->cap_shown, rows, sizeof(*b->shown));
}

/* Room for the texts of so many tasks, each empty. */
static bool
block_texts(block *b, size_t tasks)
{
    if (!reserve_items((void **)&b->texts, &b->cap_texts, tasks, sizeof(*b->texts)))
        return false;
    for (size_t i = 0; i < tasks; i++)
        msp_buf_clear(&b->texts[i]);
    b->ntexts = tasks;
    return true;
}

static void
block_release(block *b)
{
    for (size_t i = 0; i < b->cap; i++)
        msp_buf_release(&b->judged[i].message);
    for (size_t i = 0; i < b->cap_shown; i++)
        msp_shown_release(&b->shown[i]);
    for (size_t i = 0; i < b->cap_texts; i++)
        msp_buf_release(&b->texts[i]);
    msp_free(b->texts);
    msp_free(b->judged);
    msp_free(b->shown);
}

/* The next whole calls, from api on. */
static bool
block_choose(const blocks *s, block *b, size_t api)
{
    const msp_rows *n = npu_rows(s);
    size_t most = s->job->only_texts ? TEXT_ROWS : BLOCK_ROWS;

    b->first_api = api;
    b->first = n->apis[api].first;
    b->count = 0;
    while (api < n->napis && b->count < most)
        b->count += n->apis[api++].count;
    b->napis = api - b->first_api;
    return reserve_judged(b, b->count) && (s->job->only_texts || reserve_shown(b, b->count));
}

/* The i-th row of the block, about which nothing is known yet. */
static void
begin_row(const blocks *s, block *b, size_t i)
{
    uint32_t partner = s->job->match->bench[b->first + i];
    msp_judged *j = &b->judged[i];

    j->n = &npu_rows(s)->rows[b->first + i];
    j->b = partner == MATCH_NONE ? NULL : &s->job->show.bench->rows[partner];
    j->bytes = -1; /* not judged yet */
    j->cut = NULL;
    j->equal = false;
    j->ahead[0] = j->ahead[1] = (msp_str){0};
    msp_buf_clear(&j->message);
}

/* ---- judging ----------------------------------------------------------------------------------------------------- */

static void
judge_row(const blocks *s, msp_judged *j, int threads)
{
    msp_measurer m = s->job->measurer;

    m.threads = threads;
    if (s->job->show.legacy != NULL)
        msp_legacy_judge(j, s->job->show.mode, s->job->show.legacy, &m, s->job->fuzzy);
    else
        msp_judge_row(j, s->job->show.mode, &m, s->job->fuzzy);
}

/*
 * Threads of readers have a table of descriptors of their own, and so must not run anybody else's function. One that
 * could not get it opens its files one at a time, for all such threads together would take too many of one table.
 */
static _Thread_local enum { CALLER, READER, READER_IN_SHARED_TABLE } role;

static void
become_reader(void *payload)
{
    const msp_measurer *m = payload;

    role = msp_file_own_table(m->fds, 2) ? READER : READER_IN_SHARED_TABLE;
}

static void
count_bytes(const blocks *s, int64_t bytes)
{
    if (role != CALLER)
        msp_run_count(s->job->run, bytes);
    else
        (void)msp_run_progress(s->job->run, "compare", s->job->label, 0, bytes);
}

/* Is there, by all shapes and types that rows have, a tensor that is worth all threads? */
static bool
has_large(const msp_rows *t)
{
    int64_t numel = 0, size = 0;

    for (size_t i = 0; i < t->ntexts; i++) {
        int64_t bytes = (int64_t)msp_dtype_size(t->texts[i].dtype);

        numel = t->texts[i].numel > numel ? t->texts[i].numel : numel;
        size = bytes > size ? bytes : size;
    }
    return numel > 0 && size > 0 && numel >= LARGE_TENSOR / size;
}

static bool
is_large(const blocks *s, size_t row)
{
    const msp_row *r = &npu_rows(s)->rows[row];

    return s->has_large && r->file != NULL && s->job->match->bench[row] != MATCH_NONE &&
           msp_row_bytes(npu_rows(s), r) >= LARGE_TENSOR;
}

/* Before the others: rows that are worth all threads each. */
static void
judge_large(const blocks *s, block *b)
{
    msp_run *run = s->job->run;

    for (size_t i = 0; s->has_large && i < b->count && !run->cancelled; i++)
        if (is_large(s, b->first + i)) {
            begin_row(s, b, i);
            judge_row(s, &b->judged[i], run->row_threads);
            count_bytes(s, b->judged[i].bytes);
        }
}

/* Some calls of a block, on one thread. */
typedef struct share {
    const blocks *s;
    block *b;
    size_t api, end_api;
    size_t ahead, end; /* rows of the block: from where on files have not been read ahead, and where the share ends */
    msp_buf text;
    msp_shown shown; /* the row that is being put into text, where no other place keeps it */
    _Alignas(64) char room[MSP_AHEAD_ROOM];
} share;

static void
read_ahead(share *h, size_t row)
{
    const msp_blocks_job *job = h->s->job;
    const msp_rows *sides[2] = {job->show.npu, job->show.bench};

    if (h->s->readers != NULL && role != READER_IN_SHARED_TABLE && row >= h->ahead)
        h->ahead = row + msp_ahead_read(h->room, &job->measurer, sides, &h->b->judged[row], h->end - row);
}

static void
show_row(msp_shown *out, const msp_show_rule *rule, const msp_judged *j, const msp_json *frames)
{
    if (rule->legacy != NULL)
        msp_legacy_show(out, rule, j, frames);
    else
        msp_show_row(out, rule, j, frames);
}

/* Returns how many bytes were read. */
static int64_t
judge_api(share *h, const msp_row_api *a)
{
    const blocks *s = h->s;
    size_t first = a->first - h->b->first;
    msp_judged *rows = &h->b->judged[first];
    int64_t bytes = 0;

    for (size_t i = 0; i < a->count; i++)
        if (rows[i].bytes < 0) {
            read_ahead(h, first + i);
            judge_row(s, &rows[i], 1);
            bytes += rows[i].bytes;
        }
    if (s->job->colour)
        msp_highlight_api(rows, a->count, s->job->show.mode);
    for (size_t i = 0; i < a->count; i++) {
        msp_shown *shown = s->job->only_texts ? &h->shown : &h->b->shown[first + i];

        show_row(shown, &s->job->show, &rows[i], i == 0 ? msp_stack_frames(s->job->stack, a->name) : NULL);
        if (shown->failed)
            h->text.failed = true;
        else if (s->job->formatter != NULL)
            s->job->formatter(shown, &h->text, s->job->payload);
    }
    return bytes;
}

static void
judge_share(share *h)
{
    const msp_row_api *apis = npu_rows(h->s)->apis;
    int64_t bytes = 0;

    h->ahead = apis[h->api].first - h->b->first;
    h->end = apis[h->end_api - 1].first + apis[h->end_api - 1].count - h->b->first;
    for (size_t i = h->ahead; i < h->end; i++)
        if (!is_large(h->s, h->b->first + i))
            begin_row(h->s, h->b, i);
    for (; h->api < h->end_api && !h->s->job->run->cancelled; h->api++) {
        bytes += judge_api(h, &apis[h->api]);
        if (bytes >= TOLD_BYTES || (bytes > 0 && h->api + 1 == h->end_api)) {
            count_bytes(h->s, bytes);
            bytes = 0;
        }
    }
}

/* ---- handing on, beside judging ---------------------------------------------------------------------------------- */

static void
hand_on(blocks *s, const block *b)
{
    const msp_blocks_job *job = s->job;

    for (size_t i = 0; i < b->ntexts && s->status == MSP_OK; i++)
        if (b->texts[i].failed)
            s->status = msp_error_set(&s->err, MSP_E_NOMEM, "out of memory");
    for (size_t i = 0; i < b->count && s->status == MSP_OK; i++)
        s->status =
            job->consumer(&b->judged[i], job->only_texts ? NULL : &b->shown[i], b->first + i, job->payload, &s->err);
    for (size_t i = 0; job->formatter != NULL && i < b->ntexts && s->status == MSP_OK; i++)
        s->status = job->take_text(msp_buf_view(&b->texts[i]), job->payload, &s->err);
    if (s->status == MSP_OK && !msp_run_progress(job->run, "compare", job->label, (int64_t)b->count, 0))
        s->status = msp_error_set(&s->err, MSP_E_CANCELLED, "cancelled");
}

typedef struct stage {
    blocks *s;
    block *now;          /* to be judged, NULL: nothing left */
    const block *before; /* to be handed on, NULL: nothing yet */
    size_t tasks, apis_per_task;
} stage;

/* Task 0 hands on, so that it begins first, and on the calling thread where there are readers; the others judge. */
static void
stage_task(size_t i, void *payload)
{
    stage *g = payload;
    size_t end = i * g->apis_per_task;
    share h;

    if (i == 0) {
        if (g->before != NULL)
            hand_on(g->s, g->before);
        return;
    }
    h.s = g->s;
    h.b = g->now;
    h.api = g->now->first_api + (i - 1) * g->apis_per_task;
    h.end_api = g->now->first_api + (end < g->now->napis ? end : g->now->napis);
    h.text = g->now->texts[i - 1]; /* on this thread's stack: neighbours in one cache line would slow each other down */
    h.shown = (msp_shown){0};
    judge_share(&h);
    g->now->texts[i - 1] = h.text;
    msp_shown_release(&h.shown);
}

static bool
run_stage(blocks *s, block *now, const block *before)
{
    stage g = {s, now, before, 0, 1};

    if (now != NULL) {
        judge_large(s, now);
        g.tasks = now->count / TASK_ROWS + 1;
        g.apis_per_task = (now->napis + g.tasks - 1) / g.tasks;
        g.tasks = (now->napis + g.apis_per_task - 1) / g.apis_per_task;
        if (!block_texts(now, g.tasks))
            return false;
    }
    if (s->readers != NULL)
        msp_pool_run_in(s->readers, 1 + g.tasks, stage_task, &g);
    else
        msp_pool_run(1 + g.tasks, s->job->run->row_threads, stage_task, &g);
    return true;
}

static msp_status
run_all(blocks *s)
{
    const block *before = NULL;
    size_t api = 0, turn = 0;

    while (api < npu_rows(s)->napis && s->status == MSP_OK && !s->job->run->cancelled) {
        block *b = &s->two[turn++ % 2];

        if (!block_choose(s, b, api) || !run_stage(s, b, before))
            return msp_error_set(&s->err, MSP_E_NOMEM, "out of memory");
        api += b->napis;
        before = b;
    }
    if (s->job->run->cancelled)
        return msp_error_set(&s->err, MSP_E_CANCELLED, "cancelled");
    if (s->status == MSP_OK)
        (void)run_stage(s, NULL, before); /* needs no memory */
    return s->status;
}

msp_status
msp_blocks_run(const msp_blocks_job *job, msp_error *err)
{
    blocks s = {.job = job, .status = MSP_OK};
    msp_status st;

    s.has_large = job->show.mode == MSP_MODE_REAL && job->run->row_threads > 1 && has_large(job->show.npu);
    if (job->show.mode == MSP_MODE_REAL && !job->measurer.values && job->run->row_threads > 1)
        s.readers = msp_pool_open(job->run->row_threads, become_reader, (void *)&job->measurer);
    st = run_all(&s);
    msp_pool_close(s.readers);
    if (st != MSP_OK && err != NULL)
        *err = s.err;
    block_release(&s.two[0]);
    block_release(&s.two[1]);
    return st;
}
