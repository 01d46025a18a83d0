/*
 * pair.c - one pair of files from end to end: read, match, then row after row judged (blocks.c) and written
 * (outputs.c). Nothing but the flattened rows grows with the dump.
 */
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "compare/advisor.h"
#include "compare/blocks.h"
#include "compare/legacy.h"
#include "compare/outputs.h"
#include "compare/run.h"
#include "compare/suspect.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/path.h"
#include "core/pool.h"

enum { MAX_HIGHLIGHT_ROWS = 1048500 }; /* Excel's limit for one sheet, as the manual counts it */

/* ---- one side ---------------------------------------------------------------------------------------------------- */

typedef struct side {
    struct pair *owner;
    const char *path;
    size_t told;    /* bytes of the file that were counted as read */
    msp_dump *dump; /* NULL for a file of the older tools */
    msp_rows rows;
    char *tensor_dir;
    msp_status status;
    msp_error err;
} side;

typedef struct pair {
    msp_run *run;
    const msp_plan_pair *plan;
    msp_compare_pair *out;
    msp_error *err;
    side sides[2];
    const msp_stack *stack;
    msp_stack *own_stack;
    msp_legacy_file legacy[2]; /* files of the older tools; their rows are the sides' */
    msp_legacy_look look;      /* set when form is */
    msp_cross_pair *cross;
    char *mapping_path; /* of what -lm found */
    msp_match match;
    msp_measurer measurer;
    atomic_int told; /* for measurer */
    msp_outputs outputs;
    bool highlight; /* the workbook has the form of a coloured one */
    bool colour;    /* rows are coloured: not for single values and checksums */
    bool fuzzy;
    int64_t suspect, advised, unreadable; /* row numbers, -1: none yet */
    int64_t with_files;                   /* rows with a tensor file on both sides */
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
    side *s = payload;

    s->told += bytes;
    return msp_run_json(s->owner->run, s->owner->plan->label, (int64_t)bytes);
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

    s->status = msp_rows_flatten(&s->rows, s->dump, tick_read, s, &s->err);
    if (s->status == MSP_OK) /* names and what stands around the records */
        (void)tick_read(msp_dump_size(s->dump) - s->told, s);
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

    p->out->has_tensors = real;
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

/* ---- files of ptdbg_ascend and torch_npu.hooks ------------------------------------------------------------------- */

static bool
is_legacy(const pair *p)
{
    return p->plan->npu->kind == MSP_DUMP_LEGACY;
}

static const msp_legacy_options *
legacy_options(const pair *p)
{
    static const msp_legacy_options defaults = {.form = MSP_LEGACY_AUTO};

    return p->run->opt->legacy != NULL ? p->run->opt->legacy : &defaults;
}

/* NULL for msprobe's own dumps. */
static const msp_legacy_look *
legacy_look(const pair *p)
{
    return p->look.form == MSP_LEGACY_AUTO ? NULL : &p->look;
}

static void
open_legacy_side(size_t i, void *payload)
{
    pair *p = payload;
    side *s = &p->sides[i];
    msp_legacy_file *f = &p->legacy[i];

    s->status = msp_legacy_open(f, s->path, &s->err);
    s->rows = f->rows;
    f->rows = (msp_rows){0};
    if (s->status == MSP_OK && !tick_read(f->map.size, s))
        s->status = msp_error_set(&s->err, MSP_E_CANCELLED, "cancelled");
}

static msp_status
read_legacy_sides(pair *p)
{
    const msp_legacy_options *opt = legacy_options(p);
    bool has_dir = opt->npu_dir != NULL || opt->bench_dir != NULL || p->measurer.fds[0] >= 0 || p->measurer.fds[1] >= 0;
    msp_status st;

    if (p->run->opt->diff_analyze || p->run->names != NULL || p->run->cross != NULL)
        return msp_error_set(p->err, MSP_E_INVALID, "%s: -da and mappings are not for dumps of the older tools",
                             p->sides[0].path);
    st = both_sides(p, open_legacy_side);
    if (st != MSP_OK)
        return st;
    st = msp_legacy_choose(&p->look, &p->out->mode, p->legacy, has_dir, opt->form, p->err);
    if (st != MSP_OK)
        return msp_error_prefix(p->err, st, "%s and %s: ", p->sides[0].path, p->sides[1].path);
    p->look.npu = &p->sides[0].rows;
    p->look.bench = &p->sides[1].rows;
    p->measurer.values = p->look.form == MSP_LEGACY_HOOKS;
    p->out->has_tensors = p->out->mode == MSP_MODE_REAL;
    p->out->framework[0] = p->out->framework[1] = MSP_PYTORCH;
    p->out->counts.apis = (int64_t)p->sides[0].rows.napis;
    if (p->sides[0].rows.count == 0)
        return msp_error_set(p->err, MSP_E_NOT_FOUND, "%s: holds no tensors: was anything dumped?", p->sides[0].path);
    return MSP_OK;
}

static msp_status
match_legacy(pair *p)
{
    msp_legacy_match_rule rule = {.fuzzy = p->fuzzy,
                                  .shapes = legacy_options(p)->shape_flag || p->look.form == MSP_LEGACY_PTDBG_3 ||
                                            p->look.form == MSP_LEGACY_PTDBG_6,
                                  .numbered = {p->legacy[0].numbered, p->legacy[1].numbered}};

    return msp_legacy_match(&p->match, &p->sides[0].rows, &p->sides[1].rows, &rule, p->err);
}

/* torch_npu.hooks: operators that only the bench has, after all others, instead of losing them. */
static msp_status
list_bench_only(pair *p)
{
    const msp_rows *bench = &p->sides[1].rows;
    msp_show_rule rule = {p->out->mode, &p->sides[0].rows, bench, false, &p->look};
    uint8_t *met = msp_alloc_zero(bench->count, 1);
    msp_judged j = {0};
    msp_shown shown = {0};
    msp_status st = met == NULL ? no_memory(p) : MSP_OK;

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

/* ---- both kinds -------------------------------------------------------------------------------------------------- */

static msp_status
read_sides(pair *p)
{
    msp_status st;

    if (is_legacy(p))
        return read_legacy_sides(p);
    st = both_sides(p, open_side);
    if (st == MSP_OK)
        st = check_tasks(p);
    if (st != MSP_OK)
        return st;
    st = both_sides(p, flatten_side);
    if (st == MSP_OK)
        st = choose_mode(p);
    for (int i = 0; i < 2; i++)
        p->out->framework[i] = msp_dump_framework(p->sides[i].dump);
    if (st != MSP_OK)
        return st;
    for (int i = 0; i < 2; i++) {
        size_t at;

        p->out->cut[i].found = msp_dump_cut(p->sides[i].dump, &at);
        p->out->cut[i].at = (int64_t)at;
        p->out->cut[i].records = (int64_t)msp_dump_count(p->sides[i].dump);
    }
    p->out->counts.apis = (int64_t)p->sides[0].rows.napis;
    if (p->sides[0].rows.count == 0)
        return msp_error_set(p->err, MSP_E_NOT_FOUND,
                             "%s: \"data\" holds no inputs or outputs: was anything collected? Check step, rank, list "
                             "and scope of the collection",
                             p->sides[0].path);
    return MSP_OK;
}

/* ---- stack and partners ------------------------------------------------------------------------------------------ */

static msp_status
open_stack_file(pair *p, const char *path)
{
    msp_status st = msp_stack_open(&p->own_stack, path, p->err);

    p->stack = p->own_stack;
    return st;
}

/* As the manual has it: a given stack_path counts with -s only; without one, what lies beside the NPU file is used. */
static msp_status
open_stack(pair *p)
{
    const msp_compare_options *opt = p->run->opt;
    msp_status st = MSP_OK;
    char *beside;

    if (is_legacy(p)) {
        p->stack = legacy_options(p)->no_stack ? NULL : p->legacy[0].stack;
        return MSP_OK;
    }
    if (opt->stack_path != NULL && p->plan->label[0] == '\0')
        return opt->stack_mode ? open_stack_file(p, opt->stack_path) : MSP_OK;
    beside = msp_plan_beside(p->sides[0].path, "stack.json");
    if (beside == NULL)
        return no_memory(p);
    if (msp_path_kind_of(beside) == MSP_PATH_FILE)
        st = open_stack_file(p, beside);
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
    msp_framework nf = p->out->framework[0], bf = p->out->framework[1];
    msp_match_rule rule = {.cross_framework = nf != bf && nf != MSP_FRAMEWORK_UNKNOWN && bf != MSP_FRAMEWORK_UNKNOWN};
    msp_status st;

    if (is_legacy(p)) {
        st = match_legacy(p);
    } else if (p->run->cross != NULL) {
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
skips_for_advice(const pair *p, const msp_judged *j)
{
    return legacy_look(p) != NULL && msp_str_find(msp_row_name(j->n), MSP_STR("batch_norm")) != NULL;
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
    if (j->unreadable && p->unreadable < 0)
        p->unreadable = row;
    p->with_files += j->n->file != NULL && j->b != NULL && j->b->file != NULL;
    p->out->tensor_bytes += j->bytes;
    if (wrong && p->advised < 0 && !skips_for_advice(p, j))
        p->advised = row;
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
log_columns(const pair *p, const msp_judged *j, const msp_shown *s)
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
log_row(const pair *p, const msp_judged *j, const msp_shown *s)
{
    if (p->out->mode == MSP_MODE_REAL)
        log_metrics(j);
    else if (msp_log_wanted(MSP_LOG_DEBUG))
        log_columns(p, j, s);
}

static msp_status
take_row(const msp_judged *j, const msp_shown *s, size_t row, void *payload, msp_error *err)
{
    pair *p = payload;

    count_row(p, j, (int64_t)row);
    if (legacy_look(p) != NULL && j->verdict == VERDICT_UNMATCHED && !p->run->opt->compare_only)
        msp_warning("The tensor name matches but the shape or dtype does not match: %.*s", (int)j->n->name_len,
                    j->n->name);
    if (p->run->opt->log_rows && legacy_look(p) != NULL)
        msp_legacy_log_row(&p->look, j);
    else if (p->run->opt->log_rows)
        log_row(p, j, s);
    return msp_outputs_row_no_line(&p->outputs, j, s, err);
}

static void
write_line(const msp_shown *s, msp_buf *out, void *payload)
{
    pair *p = payload;

    msp_outputs_line(&p->outputs, s, out);
}

static msp_status
take_lines(msp_str lines, void *payload, msp_error *err)
{
    pair *p = payload;

    return msp_outputs_lines(&p->outputs, lines, err);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static msp_status
open_outputs(pair *p)
{
    const msp_compare_options *opt = p->run->opt;
    msp_outputs_rule rule = {.dir = p->plan->out_dir,
                             .stem = p->plan->stem,
                             .timestamp = p->run->timestamp,
                             .formats = opt->formats,
                             .coloured = p->highlight,
                             .diff_analyze = opt->diff_analyze,
                             .rows = (int64_t)p->match.count,
                             .rank = p->out->rank,
                             .threads = opt->threads,
                             .mode = p->out->mode,
                             .sides = {&p->sides[0].rows, &p->sides[1].rows},
                             .stack = p->stack,
                             .legacy = legacy_look(p)};

    if (is_legacy(p)) {
        rule.file = legacy_options(p)->output_file;
        rule.formats = rule.formats == 0 || rule.file != NULL ? MSP_COMPARE_CSV : rule.formats;
        if (rule.file != NULL && msp_path_kind_of(rule.file) == MSP_PATH_FILE)
            msp_warning("%s is there already and is written over", rule.file);
    }
    return msp_outputs_open(&p->outputs, &rule, p->err);
}

static msp_status
run_blocks(pair *p)
{
    msp_blocks_job job = {.run = p->run,
                          .label = p->plan->label,
                          .match = &p->match,
                          .stack = p->stack,
                          .show = {p->out->mode, &p->sides[0].rows, &p->sides[1].rows, p->stack != NULL,
                                   legacy_look(p)},
                          .measurer = p->measurer,
                          .colour = p->colour,
                          .fuzzy = p->fuzzy,
                          .consumer = take_row,
                          .formatter = msp_outputs_wants_lines(&p->outputs) ? write_line : NULL,
                          .take_text = take_lines,
                          .payload = p};

    return msp_blocks_run(&job, p->err);
}

static msp_status
advise(pair *p)
{
    const msp_row *row = p->advised < 0 ? NULL : &p->sides[0].rows.rows[p->advised];
    msp_str name = row == NULL ? (msp_str){NULL, 0} : msp_row_name(row);
    const msp_compare_counts *c = &p->out->counts;
    bool any_judged = c->yes + c->no + c->clean + c->warning + c->pass + c->different > 0;
    bool ptdbg = p->look.form == MSP_LEGACY_PTDBG_2 || p->look.form == MSP_LEGACY_PTDBG_3;
    const char *advice = ptdbg ? msp_advisor_text_ptdbg(name, any_judged) : msp_advisor_text(name, any_judged);
    int64_t line = ptdbg ? p->advised + 2 : p->advised; /* there the header is line 1 */
    msp_status st;
    char *path;

    if (p->run->opt->compare_only || p->run->opt->diff_analyze || p->look.form == MSP_LEGACY_HOOKS)
        return MSP_OK;
    path = msp_plan_file(p->plan->out_dir, p->plan->advisor_stem, p->run->timestamp, "txt");
    p->out->advice = msp_result_text(msp_str_of(advice));
    p->out->advised = row == NULL ? NULL : msp_result_text(name);
    p->out->advised_line = line;
    if (path == NULL || p->out->advice == NULL || (row != NULL && p->out->advised == NULL)) {
        msp_free(path);
        return no_memory(p);
    }
    st = msp_advisor_write(path, line, name, advice, p->err);
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
                               .fuzzy = p->fuzzy,
                               .legacy = legacy_look(p)};
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

/* Bytes of the tensor behind a row; 0 when it has no file or its size is not known. */
static int64_t
tensor_size(const msp_rows *t, const msp_row *r)
{
    int64_t numel = t->texts[r->shape].numel, bytes;

    if (r->file == NULL || numel < 0 ||
        __builtin_mul_overflow(numel, (int64_t)msp_dtype_size(t->texts[r->dtype].dtype), &bytes))
        return 0;
    return bytes;
}

static size_t
size_of_side(const pair *p, int i)
{
    return is_legacy(p) ? p->legacy[i].map.size : msp_dump_size(p->sides[i].dump);
}

/* Tell how much is to be done, now that the rows have their partners. */
static void
expect_work(pair *p)
{
    const msp_rows *n = &p->sides[0].rows, *b = &p->sides[1].rows;
    int64_t bytes = 0;

    for (size_t i = 0; p->out->mode == MSP_MODE_REAL && i < p->match.count; i++)
        if (p->match.bench[i] != MATCH_NONE)
            bytes += tensor_size(n, &n->rows[i]) + tensor_size(b, &b->rows[p->match.bench[i]]);
    msp_run_expect(p->run, (int64_t)p->match.count, bytes);
    msp_run_json_known(p->run, (int64_t)(size_of_side(p, 0) + size_of_side(p, 1)));
}

/* The first file that could not be read is opened once more for its message: judging runs in no order. */
static msp_status
explain_unreadable(pair *p)
{
    const msp_row *n, *b;
    msp_tensor t = {0};
    msp_error err;

    if (p->unreadable < 0)
        return MSP_OK;
    n = &p->sides[0].rows.rows[p->unreadable];
    b = &p->sides[1].rows.rows[p->match.bench[p->unreadable]];
    if (msp_measure_open(&t, &p->measurer, 0, n, &err) == MSP_OK) {
        msp_tensor_release(&t);
        if (msp_measure_open(&t, &p->measurer, 1, b, &err) == MSP_OK)
            msp_error_set(&err, MSP_E_IO, "%.*s: could not be read the first time", (int)b->name_len, b->name);
    }
    msp_tensor_release(&t);
    p->out->unreadable = msp_result_text(msp_str_of(err.message));
    if (p->out->unreadable == NULL)
        return no_memory(p);
    if (p->out->counts.unreadable < p->with_files)
        return MSP_OK;
    return msp_error_set(p->err, MSP_E_NOT_FOUND,
                         "nothing could be compared: none of the %lld pairs of tensor files can be read. The first: "
                         "%.600s. Copy %s, or collect again",
                         (long long)p->with_files, p->out->unreadable,
                         is_legacy(p) ? "the folder of .npy files along with the .pkl"
                                      : "dump_tensor_data along with dump.json");
}

static msp_status
compare_rows(pair *p)
{
    msp_status st = open_stack(p);

    if (st == MSP_OK)
        st = match_rows(p);
    if (st != MSP_OK)
        return st;
    expect_work(p);
    if (p->highlight && p->match.count > MAX_HIGHLIGHT_ROWS) {
        msp_warning("%zu rows are more than one sheet holds: rows are not coloured", p->match.count);
        p->highlight = false;
    }
    p->colour = p->highlight && p->out->kind == MSP_DUMP_API && p->out->mode != MSP_MODE_MD5;
    st = open_outputs(p);
    if (st == MSP_OK)
        st = run_blocks(p);
    if (st == MSP_OK && p->look.form == MSP_LEGACY_HOOKS)
        st = list_bench_only(p);
    if (st == MSP_OK)
        st = msp_outputs_finish(&p->outputs, &p->out->files, &p->out->nfiles, p->err);
    if (st == MSP_OK && p->mapping_path != NULL &&
        !msp_result_add(&p->out->files, &p->out->nfiles, msp_str_of(p->mapping_path)))
        st = no_memory(p);
    if (st == MSP_OK)
        st = advise(p);
    if (st == MSP_OK)
        st = describe_suspect(p);
    if (st == MSP_OK)
        st = explain_unreadable(p);
    if (st == MSP_OK && p->match.matched == 0)
        st = nothing_matched(p);
    return st;
}

/* A folder of our own that others may not even enter (collectors make such) needs no look at every file in it. */
static void
open_tensor_dir(pair *p, int i)
{
    int fd = open(p->sides[i].tensor_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat st;

    p->measurer.dirs[i] = p->sides[i].tensor_dir;
    p->measurer.fds[i] = fd;
    p->measurer.open_to_all[i] =
        fd >= 0 && (fstat(fd, &st) != 0 || st.st_uid != geteuid() || (st.st_mode & S_IXOTH) != 0);
}

static char *
tensor_dir_of(const pair *p, int i)
{
    const msp_legacy_options *opt = legacy_options(p);
    const char *given = i == 0 ? opt->npu_dir : opt->bench_dir;

    if (!is_legacy(p))
        return msp_plan_beside(p->sides[i].path, "dump_tensor_data");
    return given != NULL && p->plan->label[0] == '\0' ? msp_result_text(msp_str_of(given))
                                                      : msp_legacy_data_dir(p->sides[i].path);
}

static msp_status
prepare(pair *p)
{
    const msp_compare_options *opt = p->run->opt;

    for (int i = 0; i < 2; i++) {
        p->sides[i].owner = p;
        p->sides[i].path = (i == 0 ? p->plan->npu : p->plan->bench)->path;
        p->sides[i].tensor_dir = tensor_dir_of(p, i);
        if (p->sides[i].tensor_dir == NULL)
            return no_memory(p);
        open_tensor_dir(p, i);
    }
    p->measurer.told = &p->told;
    p->fuzzy = opt->fuzzy && p->run->names == NULL && p->run->cross == NULL;
    p->highlight = opt->highlight && !opt->diff_analyze;
    p->suspect = p->advised = p->unreadable = -1;
    return MSP_OK;
}

static void
release(pair *p)
{
    msp_outputs_close(&p->outputs);
    for (int i = 0; i < 2; i++) {
        msp_rows_release(&p->sides[i].rows);
        msp_dump_close(p->sides[i].dump);
        msp_legacy_release(&p->legacy[i]);
        msp_free(p->sides[i].tensor_dir);
        if (p->measurer.fds[i] >= 0)
            close(p->measurer.fds[i]);
    }
    msp_match_release(&p->match);
    msp_cross_pair_close(p->cross);
    msp_free(p->mapping_path);
    msp_stack_close(p->own_stack);
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
    pair p = {.run = run, .plan = plan, .out = out, .err = &err, .measurer.fds = {-1, -1}};
    double start = seconds_now();

    out->status = prepare(&p);
    if (out->status == MSP_OK)
        out->status = read_sides(&p);
    if (out->status == MSP_OK)
        out->status = compare_rows(&p);
    if (out->status != MSP_OK)
        out->error = msp_result_text(msp_str_of(err.message));
    if (da != NULL && (out->status == MSP_OK || out->status == MSP_E_NOT_FOUND)) {
        *da = p.outputs.da;
        p.outputs.da = NULL;
    }
    release(&p);
    out->seconds = seconds_now() - start;
}
