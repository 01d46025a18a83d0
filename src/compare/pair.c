/*
 * pair.c - one pair of files from end to end: read, match, then row after row measured, judged and written.
 *
 * Rows go through in blocks of whole calls. While a block is measured and judged by the pool, the block before it is
 * written, so that the tables' order is the NPU's and the writer is never waited for by more than one block. Nothing
 * but the flattened rows grows with the dump.
 */
#include <math.h>
#include <time.h>
#include "compare/advisor.h"
#include "compare/highlight.h"
#include "compare/judge.h"
#include "compare/match.h"
#include "compare/run.h"
#include "compare/show.h"
#include "compare/suspect.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/path.h"
#include "core/pool.h"

enum {
    BLOCK_ROWS = 512,            /* a block ends with the call that reaches this */
    TASK_ROWS = 32,              /* rows that one task of the pool does at least */
    LARGE_TENSOR = 4 << 20,      /* bytes: from here on one row is given all threads */
    MAX_HIGHLIGHT_ROWS = 1048500 /* Excel's limit for one sheet, as the manual counts it */
};

/* ---- one side -----------------------------------------------------------------------------------------------------
 */

typedef struct side {
    const char *path;
    msp_dump *dump;
    msp_rows rows;
    char *tensor_dir;
    msp_status status;
    msp_error err;
} side;

typedef struct block {
    size_t first, count; /* rows */
    size_t first_api, napis;
    msp_judged *judged;
    msp_shown *shown;
    size_t cap;
} block;

typedef struct pair {
    msp_run *run;
    const msp_plan_pair *plan;
    msp_compare_pair *out;
    msp_error *err;
    side sides[2];
    msp_stack *stack;
    msp_cross_pair *cross;
    char *mapping_path; /* of what -lm found */
    msp_match match;
    msp_measurer measurer;
    msp_show_rule show;
    bool highlight; /* the workbook has the form of a coloured one */
    bool colour;    /* rows are coloured: not for single values and checksums */
    bool fuzzy;
    msp_column columns[SHOW_MAX_COLUMNS];
    size_t ncolumns;
    msp_table *tables[3];
    char *paths[3];
    size_t ntables;
    size_t xlsx; /* which of them */
    msp_da_rank *da;
    block blocks[2];
    msp_status write_status; /* of the block that is written while another is judged */
    msp_error write_err;
    int64_t suspect, advised; /* row numbers, -1: none yet */
    const char *suspect_verdict;
} pair;

static msp_status
no_memory(pair *p)
{
    return msp_error_set(p->err, MSP_E_NOMEM, "out of memory");
}

static bool
tick_read(size_t bytes, void *payload)
{
    pair *p = payload;

    return msp_run_progress(p->run, "read", p->plan->label, 0, (int64_t)bytes);
}

static void
open_side(size_t i, void *payload)
{
    pair *p = payload;
    side *s = &p->sides[i];

    s->status = msp_dump_open(&s->dump, s->path, &s->err);
}

static void
flatten_side(size_t i, void *payload)
{
    pair *p = payload;
    side *s = &p->sides[i];

    s->status = msp_rows_flatten(&s->rows, s->dump, tick_read, p, &s->err);
    if (s->status != MSP_OK && s->status != MSP_E_CANCELLED)
        msp_error_prefix(&s->err, s->status, "%s: ", s->path);
}

/* Both sides at the same time; the first error in the order NPU, bench. */
static msp_status
both_sides(pair *p, msp_pool_task *task)
{
    msp_pool_run(2, p->run->row_threads, task, p);
    for (int i = 0; i < 2; i++)
        if (p->sides[i].status != MSP_OK) {
            if (p->err != NULL)
                *p->err = p->sides[i].err;
            return p->sides[i].status;
        }
    return MSP_OK;
}

static msp_status
check_tasks(pair *p)
{
    const msp_dump *n = p->sides[0].dump, *b = p->sides[1].dump;
    msp_dump_task task = msp_dump_task_of(n);

    if (strcmp(msp_dump_task_text(n), msp_dump_task_text(b)) != 0)
        return msp_error_set(p->err, MSP_E_INVALID,
                             "the tasks differ: \"%s\" in %s, \"%s\" in %s; collect both with the same task",
                             msp_dump_task_text(n), p->sides[0].path, msp_dump_task_text(b), p->sides[1].path);
    if (task == MSP_TASK_STRUCTURE)
        return msp_error_set(p->err, MSP_E_INVALID,
                             "%s: a dump of task \"structure\" holds no values; collect with task tensor or statistics",
                             p->sides[0].path);
    if (task == MSP_TASK_OTHER)
        return msp_error_set(p->err, MSP_E_INVALID,
                             "%s: Compare applies only to task is tensor or statistics, this is \"%s\"",
                             p->sides[0].path, msp_dump_task_text(n));
    return MSP_OK;
}

static msp_status
choose_mode(pair *p)
{
    bool n = p->sides[0].rows.has_md5, b = p->sides[1].rows.has_md5;
    bool real = msp_dump_task_of(p->sides[0].dump) == MSP_TASK_TENSOR;

    p->out->mode = real && !p->run->opt->diff_analyze ? MSP_MODE_REAL
                   : n && b && !real                  ? MSP_MODE_MD5
                                                      : MSP_MODE_STATISTICS;
    if (!real && n != b && p->sides[0].rows.count > 0 && p->sides[1].rows.count > 0)
        return msp_error_set(
            p->err, MSP_E_INVALID,
            "%s has checksums (summary_mode md5) and %s has not; collect both with the same summary_mode",
            p->sides[n ? 0 : 1].path, p->sides[n ? 1 : 0].path);
    return MSP_OK;
}

static msp_status
read_sides(pair *p)
{
    msp_status st = both_sides(p, open_side);

    if (st == MSP_OK)
        st = check_tasks(p);
    if (st != MSP_OK)
        return st;
    st = both_sides(p, flatten_side);
    if (st == MSP_OK)
        st = choose_mode(p);
    if (st != MSP_OK)
        return st;
    p->out->counts.apis = (int64_t)p->sides[0].rows.napis;
    if (p->sides[0].rows.count == 0)
        return msp_error_set(p->err, MSP_E_NOT_FOUND,
                             "%s: \"data\" holds no inputs or outputs: was anything collected? Check step, rank, list "
                             "and scope of the collection",
                             p->sides[0].path);
    return MSP_OK;
}

/* ---- stack and partners -------------------------------------------------------------------------------------------
 */

/* As the manual has it: a given stack_path counts with -s only; without one, what lies beside the NPU file is used. */
static msp_status
open_stack(pair *p)
{
    const msp_compare_options *opt = p->run->opt;
    msp_status st = MSP_OK;
    char *beside;

    if (opt->stack_path != NULL && p->plan->label[0] == '\0')
        return opt->stack_mode ? msp_stack_open(&p->stack, opt->stack_path, p->err) : MSP_OK;
    beside = msp_plan_beside(p->sides[0].path, "stack.json");
    if (beside == NULL)
        return no_memory(p);
    if (msp_path_kind_of(beside) == MSP_PATH_FILE)
        st = msp_stack_open(&p->stack, beside, p->err);
    else
        msp_debug("%s is not there: no NPU_Stack_Info", beside);
    msp_free(beside);
    return st;
}

/* "compare_result_rank0" of the table becomes "data_mapping_rank0" of the mapping that -lm leaves behind. */
static msp_status
name_mapping(pair *p)
{
    const char *rank = strstr(p->plan->stem, "compare_result");
    msp_buf stem = {0};
    msp_status st;

    msp_buf_text(&stem, "data_mapping");
    msp_buf_text(&stem, rank != NULL ? rank + strlen("compare_result") : "");
    p->mapping_path = stem.failed ? NULL : msp_plan_file(p->plan->out_dir, stem.p, p->run->timestamp, "yaml");
    st = p->mapping_path == NULL ? no_memory(p) : msp_path_make_dirs(p->plan->out_dir, p->err);
    msp_buf_release(&stem);
    return st;
}

/* Names across frameworks. */
static msp_status
open_cross(pair *p, msp_match_rule *rule)
{
    msp_cross_sides sides = {&p->sides[0].rows, &p->sides[1].rows, p->sides[0].path, p->sides[1].path, NULL};
    const msp_compare_options *opt = p->run->opt;
    msp_status st = MSP_OK;

    if (opt->api_mapping == NULL && opt->cell_mapping == NULL)
        st = name_mapping(p);
    else if (msp_dump_framework(p->sides[0].dump) == MSP_PYTORCH)
        return msp_error_set(p->err, MSP_E_INVALID,
                             "%s: Argument -cm or -am is not supported in PyTorch framework; use -dm",
                             p->sides[0].path);
    sides.mapping_path = p->mapping_path;
    if (st == MSP_OK)
        st = msp_cross_pair_open(&p->cross, p->run->cross, &sides, p->err);
    if (st == MSP_OK)
        msp_cross_pair_rule(p->cross, rule);
    return st;
}

static msp_status
match_rows(pair *p)
{
    const msp_rows *n = &p->sides[0].rows, *b = &p->sides[1].rows;
    msp_framework nf = msp_dump_framework(p->sides[0].dump), bf = msp_dump_framework(p->sides[1].dump);
    msp_match_rule rule = {.cross_framework = nf != bf && nf != MSP_FRAMEWORK_UNKNOWN && bf != MSP_FRAMEWORK_UNKNOWN};
    msp_status st;

    if (p->run->cross != NULL) {
        st = open_cross(p, &rule);
        if (st == MSP_OK)
            st = msp_match_rows(&p->match, n, b, &rule, p->err);
    } else if (p->run->names != NULL) {
        rule.key = msp_name_map_key;
        rule.key_ctx = (void *)p->run->names;
        rule.ignore_shape = rule.ignore_dtype = true;
        st = msp_match_rows(&p->match, n, b, &rule, p->err);
    } else if (p->fuzzy) {
        st = msp_match_rows_fuzzy(&p->match, n, b, &rule, p->err);
    } else {
        st = msp_match_rows(&p->match, n, b, &rule, p->err);
    }
    p->out->counts.rows = (int64_t)p->match.count;
    p->out->counts.matched = (int64_t)p->match.matched;
    p->out->counts.unmatched = (int64_t)(p->match.count - p->match.matched);
    p->out->counts.bench_only = (int64_t)p->match.bench_only;
    return st;
}

/* ---- tables -------------------------------------------------------------------------------------------------------
 */

static msp_status
open_table(pair *p, msp_table_format format, const char *ext)
{
    msp_table_options opt = {.total_rows = (int64_t)p->match.count};
    size_t i = p->ntables;

    if (format == MSP_TABLE_XLSX && p->highlight) {
        opt.sheet = "Sheet";
        opt.plain_header = true;
    }
    p->paths[i] = msp_plan_file(p->plan->out_dir, p->plan->stem, p->run->timestamp, ext);
    if (p->paths[i] == NULL)
        return no_memory(p);
    p->ntables++;
    if (format == MSP_TABLE_XLSX)
        p->xlsx = i;
    return msp_table_open(&p->tables[i], p->paths[i], format, p->columns, p->ncolumns, &opt, p->err);
}

static msp_status
open_outputs(pair *p)
{
    static const struct {
        unsigned bit;
        msp_table_format format;
        const char *ext;
    } formats[] = {{MSP_COMPARE_XLSX, MSP_TABLE_XLSX, "xlsx"},
                   {MSP_COMPARE_CSV, MSP_TABLE_CSV, "csv"},
                   {MSP_COMPARE_JSON, MSP_TABLE_JSON, "json"}};
    unsigned wanted = p->run->opt->formats != 0 ? p->run->opt->formats : MSP_COMPARE_XLSX;
    msp_status st = msp_path_make_dirs(p->plan->out_dir, p->err);

    p->ncolumns = msp_show_columns(p->columns, p->out->mode, p->stack != NULL);
    p->xlsx = SIZE_MAX;
    if (st == MSP_OK && p->run->opt->diff_analyze) {
        p->paths[0] = msp_plan_file(p->plan->out_dir, p->plan->stem, p->run->timestamp, "json");
        return p->paths[0] == NULL
                   ? no_memory(p)
                   : msp_da_rank_open(&p->da, p->paths[0], p->out->mode, p->out->rank, p->columns, p->ncolumns, p->err);
    }
    for (size_t i = 0; i < 3 && st == MSP_OK; i++)
        if ((wanted & formats[i].bit) != 0)
            st = open_table(p, formats[i].format, formats[i].ext);
    return st;
}

static msp_status
finish_outputs(pair *p)
{
    msp_status st = MSP_OK;

    if (p->da != NULL) {
        st = msp_da_rank_finish(p->da, p->err);
        if (st == MSP_OK && !msp_result_add(&p->out->files, &p->out->nfiles, msp_str_of(p->paths[0])))
            st = no_memory(p);
    }
    for (size_t i = 0; i < p->ntables && st == MSP_OK; i++) {
        st = msp_table_finish(p->tables[i], p->err);
        if (st == MSP_OK && !msp_result_add(&p->out->files, &p->out->nfiles, msp_str_of(p->paths[i])))
            st = no_memory(p);
    }
    if (st == MSP_OK && p->mapping_path != NULL &&
        !msp_result_add(&p->out->files, &p->out->nfiles, msp_str_of(p->mapping_path)))
        st = no_memory(p);
    return st;
}

/* ---- blocks: judge ------------------------------------------------------------------------------------------------
 */

static bool
block_reserve(block *b, size_t rows)
{
    msp_judged *judged;
    msp_shown *shown;

    if (rows <= b->cap)
        return true;
    judged = msp_realloc(b->judged, rows, sizeof(*judged));
    if (judged == NULL)
        return false;
    b->judged = judged;
    shown = msp_realloc(b->shown, rows, sizeof(*shown));
    if (shown == NULL)
        return false;
    b->shown = shown;
    for (size_t i = b->cap; i < rows; i++) {
        judged[i] = (msp_judged){0};
        shown[i] = (msp_shown){0};
    }
    b->cap = rows;
    return true;
}

static void
block_release(block *b)
{
    for (size_t i = 0; i < b->cap; i++) {
        msp_buf_release(&b->judged[i].message);
        msp_shown_release(&b->shown[i]);
    }
    msp_free(b->judged);
    msp_free(b->shown);
}

/* The next whole calls, from api on. */
static bool
block_fill(pair *p, block *b, size_t api)
{
    const msp_rows *n = &p->sides[0].rows;

    b->first_api = api;
    b->first = api < n->napis ? n->apis[api].first : n->count;
    b->count = 0;
    while (api < n->napis && b->count < BLOCK_ROWS)
        b->count += n->apis[api++].count;
    b->napis = api - b->first_api;
    if (!block_reserve(b, b->count))
        return false;
    for (size_t i = 0; i < b->count; i++) {
        uint32_t partner = p->match.bench[b->first + i];

        b->judged[i].n = &n->rows[b->first + i];
        b->judged[i].b = partner == MATCH_NONE ? NULL : &p->sides[1].rows.rows[partner];
        b->judged[i].bytes = -1; /* not judged yet */
        msp_buf_clear(&b->judged[i].message);
    }
    return true;
}

static void
judge(pair *p, msp_judged *j, int threads)
{
    msp_measurer m = p->measurer;

    m.threads = threads;
    msp_judge_row(j, p->out->mode, &m, p->fuzzy);
    if (j->bytes > 0)
        (void)msp_run_progress(p->run, "compare", p->plan->label, 0, j->bytes);
}

static bool
is_large(const pair *p, const msp_judged *j)
{
    const msp_rows *t = &p->sides[0].rows;
    int64_t numel = t->texts[j->n->shape].numel;

    return j->n->file != NULL && j->b != NULL &&
           numel * (int64_t)msp_dtype_size(t->texts[j->n->dtype].dtype) >= LARGE_TENSOR;
}

/* Before the others: rows that are worth all threads each. */
static void
judge_large(pair *p, block *b)
{
    if (p->out->mode != MSP_MODE_REAL || p->run->row_threads == 1)
        return;
    for (size_t i = 0; i < b->count && !p->run->cancelled; i++)
        if (is_large(p, &b->judged[i]))
            judge(p, &b->judged[i], p->run->row_threads);
}

static void
judge_api(pair *p, block *b, size_t api)
{
    const msp_row_api *a = &p->sides[0].rows.apis[api];
    msp_judged *rows = &b->judged[a->first - b->first];

    for (size_t i = 0; i < a->count; i++)
        if (rows[i].bytes < 0)
            judge(p, &rows[i], 1);
    if (p->colour)
        msp_highlight_api(rows, a->count, p->out->mode);
    for (size_t i = 0; i < a->count; i++)
        msp_show_row(&b->shown[a->first - b->first + i], &p->show, &rows[i],
                     i == 0 ? msp_stack_frames(p->stack, a->name) : NULL);
}

/* ---- blocks: write ------------------------------------------------------------------------------------------------
 */

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

static void
count_row(pair *p, const msp_judged *j, int64_t row)
{
    msp_compare_counts *c = &p->out->counts;
    int64_t *const by_verdict[] = {NULL,      &c->yes,     &c->no,   &c->none,     &c->shape_unmatched,
                                   &c->clean, &c->warning, &c->pass, &c->different};
    bool wrong = msp_verdict_wrong(j->verdict);
    bool nonfinite = j->b != NULL && p->out->mode != MSP_MODE_MD5 && !is_finite_row(j->n) && is_finite_row(j->b);

    if (by_verdict[j->verdict] != NULL)
        ++*by_verdict[j->verdict];
    c->wrong += wrong;
    c->nonfinite += nonfinite;
    c->red += j->colour == MSP_ROW_RED;
    c->yellow += j->colour == MSP_ROW_YELLOW;
    c->unreadable += j->unreadable;
    p->out->tensor_bytes += j->bytes;
    if (wrong && p->advised < 0)
        p->advised = row;
    if (p->suspect < 0 && (wrong || nonfinite || j->colour == MSP_ROW_RED)) {
        p->suspect = row;
        p->suspect_verdict = wrong ? msp_verdict_text(j->verdict) : nonfinite ? "nan/inf" : "red";
    }
}

static void
log_row(const pair *p, const msp_judged *j)
{
    static const char *const names[NMETRICS] =
        {"cosine", "euc_dist", "max_abs_err", "max_relative_err", "one_thousand_err_ratio", "five_thousand_err_ratio"};
    msp_buf text = {0};
    char number[32];

    if (p->out->mode != MSP_MODE_REAL)
        return;
    for (int i = 0; i < NMETRICS; i++) {
        if (j->metric[i].word == NULL)
            msp_f64_repr(number, j->metric[i].v);
        msp_buf_printf(&text, "%s %s, ", names[i], j->metric[i].word != NULL ? j->metric[i].word : number);
    }
    msp_info("[%.*s] Compare result: %s", (int)j->n->name_len, j->n->name, text.p == NULL ? "" : text.p);
    msp_buf_release(&text);
}

static msp_status
write_da_row(pair *p, const msp_judged *j, const msp_cell *cells)
{
    const msp_rows *sides[2] = {&p->sides[0].rows, &p->sides[1].rows};
    const msp_row *rows[2] = {j->n, j->b};
    const msp_row_api *api = &sides[0]->apis[j->n->api];
    msp_da_row row = {.api = api->name, .state = msp_str_of(msp_row_state_text(j->n->state)), .cells = cells};
    const msp_json *frames = NULL;
    msp_str *stack = NULL;
    msp_status st = MSP_OK;

    for (int i = 0; i < 2; i++)
        if (rows[i] != NULL && rows[i]->p2p > 0) {
            row.p2p_op[i] = sides[i]->p2p[rows[i]->p2p - 1].op;
            row.p2p_peer[i] = sides[i]->p2p[rows[i]->p2p - 1].peer;
        }
    if (j->n == &sides[0]->rows[api->first])
        frames = msp_stack_frames(p->stack, api->name);
    if (frames != NULL) {
        row.nstack = msp_json_count(frames);
        stack = msp_alloc(row.nstack, sizeof(*stack));
        if (stack == NULL)
            return no_memory(p);
        for (size_t i = 0; i < row.nstack; i++)
            stack[i] = msp_json_string(msp_json_at(frames, i));
        row.stack = stack;
    }
    st = msp_da_rank_row(p->da, &row, &p->write_err);
    msp_free(stack);
    return st;
}

static msp_status
write_row(pair *p, const msp_judged *j, const msp_shown *s)
{
    msp_cell coloured[SHOW_MAX_COLUMNS];
    msp_status st = s->failed ? msp_error_set(&p->write_err, MSP_E_NOMEM, "out of memory") : MSP_OK;

    if (st == MSP_OK && p->da != NULL)
        st = write_da_row(p, j, s->cells);
    for (size_t i = 0; i < p->ntables && st == MSP_OK; i++) {
        const msp_cell *cells = s->cells;

        if (i == p->xlsx && p->highlight) {
            for (size_t k = 0; k < p->ncolumns; k++)
                coloured[k] = msp_show_as_text(s->cells[k]);
            cells = coloured;
        }
        st = msp_table_row(p->tables[i], cells, j->colour, &p->write_err);
    }
    return st;
}

static void
write_block(pair *p, const block *b)
{
    for (size_t i = 0; i < b->count && p->write_status == MSP_OK; i++) {
        count_row(p, &b->judged[i], (int64_t)(b->first + i));
        if (p->run->opt->log_rows)
            log_row(p, &b->judged[i]);
        p->write_status = write_row(p, &b->judged[i], &b->shown[i]);
    }
    if (p->write_status == MSP_OK && !msp_run_progress(p->run, "compare", p->plan->label, (int64_t)b->count, 0))
        p->write_status = msp_error_set(&p->write_err, MSP_E_CANCELLED, "cancelled");
}

/* ---- blocks: both at once -----------------------------------------------------------------------------------------
 */

typedef struct stage {
    pair *p;
    block *judged;              /* to be judged, NULL: nothing left */
    const block *judged_before; /* to be written, NULL: nothing yet */
    size_t tasks, apis_per_task;
} stage;

/* Task 0 writes, so that it begins first; the others judge. */
static void
stage_task(size_t i, void *payload)
{
    stage *s = payload;
    size_t end;

    if (i == 0) {
        if (s->judged_before != NULL)
            write_block(s->p, s->judged_before);
        return;
    }
    end = i * s->apis_per_task < s->judged->napis ? i * s->apis_per_task : s->judged->napis;
    for (size_t api = (i - 1) * s->apis_per_task; api < end && !s->p->run->cancelled; api++)
        judge_api(s->p, s->judged, s->judged->first_api + api);
}

static void
run_stage(pair *p, block *judged, const block *before)
{
    stage s = {p, judged, before, 0, 1};

    if (judged != NULL) {
        judge_large(p, judged);
        s.tasks = judged->count / TASK_ROWS + 1;
        s.apis_per_task = (judged->napis + s.tasks - 1) / s.tasks;
        s.tasks = (judged->napis + s.apis_per_task - 1) / s.apis_per_task;
    }
    msp_pool_run(1 + s.tasks, p->run->row_threads, stage_task, &s);
}

static msp_status
run_blocks(pair *p)
{
    const block *before = NULL;
    size_t api = 0, turn = 0;

    p->write_status = MSP_OK;
    while (api < p->sides[0].rows.napis && p->write_status == MSP_OK && !p->run->cancelled) {
        block *b = &p->blocks[turn++ % 2];

        if (!block_fill(p, b, api))
            return no_memory(p);
        api += b->napis;
        run_stage(p, b, before);
        before = b;
    }
    if (p->run->cancelled)
        return msp_error_set(p->err, MSP_E_CANCELLED, "cancelled");
    if (p->write_status == MSP_OK)
        run_stage(p, NULL, before);
    if (p->write_status != MSP_OK && p->err != NULL)
        *p->err = p->write_err;
    return p->write_status;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------
 */

static msp_status
advise(pair *p)
{
    const msp_row *row = p->advised < 0 ? NULL : &p->sides[0].rows.rows[p->advised];
    msp_str name = row == NULL ? (msp_str){NULL, 0} : msp_row_name(row);
    msp_status st;
    char *path;

    if (p->run->opt->compare_only || p->run->opt->diff_analyze)
        return MSP_OK;
    path = msp_plan_file(p->plan->out_dir, p->plan->advisor_stem, p->run->timestamp, "txt");
    p->out->advice = msp_result_text(msp_str_of(msp_advisor_text(name)));
    if (path == NULL || p->out->advice == NULL) {
        msp_free(path);
        return no_memory(p);
    }
    st = msp_advisor_write(path, p->advised, name, p->err);
    if (st == MSP_OK && !msp_result_add(&p->out->files, &p->out->nfiles, msp_str_of(path)))
        st = no_memory(p);
    msp_free(path);
    return st;
}

static msp_status
describe_suspect(pair *p)
{
    uint32_t partner;
    msp_suspect_source src;

    if (p->suspect < 0)
        return MSP_OK;
    partner = p->match.bench[p->suspect];
    src = (msp_suspect_source){.rows = {&p->sides[0].rows, &p->sides[1].rows},
                               .match = &p->match,
                               .mode = p->out->mode,
                               .stack = p->stack,
                               .measurer = &p->measurer,
                               .row = {&p->sides[0].rows.rows[p->suspect],
                                       partner == MATCH_NONE ? NULL : &p->sides[1].rows.rows[partner]},
                               .verdict = p->suspect_verdict,
                               .fuzzy = p->fuzzy};
    p->out->suspect.row = p->suspect;
    return msp_suspect_describe(&p->out->suspect, &src, p->err);
}

/* Nothing matched: say what stands on either side, so that the reason can be seen. */
static msp_status
nothing_matched(pair *p)
{
    const msp_rows *n = &p->sides[0].rows, *b = &p->sides[1].rows;
    msp_str a = n->apis[n->rows[0].api].name, c;

    if (b->count == 0)
        return msp_error_set(p->err, MSP_E_NOT_FOUND,
                             "no row matched: %s holds no inputs or outputs: was anything collected?",
                             p->sides[1].path);
    c = b->apis[b->rows[0].api].name;
    return msp_error_set(
        p->err, MSP_E_NOT_FOUND,
        "no row matched: none of the %zu rows of %s has a partner of the same name and shape among the "
        "%zu of %s. The first calls are %.*s and %.*s. Are both of the same model and level? -f matches "
        "calls with other numbers, -dm by a list of names",
        n->count, p->sides[0].path, b->count, p->sides[1].path, (int)a.len, a.p, (int)c.len, c.p);
}

static msp_status
compare_rows(pair *p)
{
    msp_status st = open_stack(p);

    if (st == MSP_OK)
        st = match_rows(p);
    if (st != MSP_OK)
        return st;
    msp_run_expect(p->run, (int64_t)p->match.count, 0);
    if (p->highlight && p->match.count > MAX_HIGHLIGHT_ROWS) {
        msp_warning("%zu rows are more than one sheet holds: rows are not coloured", p->match.count);
        p->highlight = false;
    }
    p->colour = p->highlight && p->out->kind == MSP_DUMP_API && p->out->mode != MSP_MODE_MD5;
    st = open_outputs(p);
    p->show = (msp_show_rule){p->out->mode, &p->sides[0].rows, &p->sides[1].rows, p->stack != NULL};
    if (st == MSP_OK)
        st = run_blocks(p);
    if (st == MSP_OK)
        st = finish_outputs(p);
    if (st == MSP_OK)
        st = advise(p);
    if (st == MSP_OK)
        st = describe_suspect(p);
    if (st == MSP_OK && p->match.matched == 0)
        st = nothing_matched(p);
    return st;
}

static msp_status
prepare(pair *p)
{
    const msp_compare_options *opt = p->run->opt;

    for (int i = 0; i < 2; i++) {
        p->sides[i].path = (i == 0 ? p->plan->npu : p->plan->bench)->path;
        p->sides[i].tensor_dir = msp_plan_beside(p->sides[i].path, "dump_tensor_data");
        if (p->sides[i].tensor_dir == NULL)
            return no_memory(p);
        p->measurer.dirs[i] = p->sides[i].tensor_dir;
    }
    p->fuzzy = opt->fuzzy && p->run->names == NULL && p->run->cross == NULL;
    p->highlight = opt->highlight && !opt->diff_analyze;
    p->suspect = p->advised = -1;
    return MSP_OK;
}

static void
release(pair *p)
{
    for (size_t i = 0; i < 3; i++) {
        msp_table_close(p->tables[i]);
        msp_free(p->paths[i]);
    }
    for (int i = 0; i < 2; i++) {
        block_release(&p->blocks[i]);
        msp_rows_release(&p->sides[i].rows);
        msp_dump_close(p->sides[i].dump);
        msp_free(p->sides[i].tensor_dir);
    }
    msp_match_release(&p->match);
    msp_cross_pair_close(p->cross);
    msp_free(p->mapping_path);
    msp_stack_close(p->stack);
}

static double
seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void
msp_pair_compare(msp_run *run, const msp_plan_pair *plan, msp_compare_pair *out, msp_da_rank **da)
{
    msp_error err = {MSP_OK, ""};
    pair p = {.run = run, .plan = plan, .out = out, .err = &err};
    double start = seconds_now();

    out->status = prepare(&p);
    if (out->status == MSP_OK)
        out->status = read_sides(&p);
    if (out->status == MSP_OK)
        out->status = compare_rows(&p);
    if (out->status != MSP_OK)
        out->error = msp_result_text(msp_str_of(err.message));
    if (da != NULL && p.da != NULL && (out->status == MSP_OK || out->status == MSP_E_NOT_FOUND))
        *da = p.da;
    else
        msp_da_rank_close(p.da);
    release(&p);
    out->seconds = seconds_now() - start;
}
