/*
 * pair.c - one pair of files from end to end: read, match, then row after row judged (blocks.c) and written
 * (outputs.c); see pair.h for the parts. Nothing but the flattened rows grows with the dump.
 */
#include "compare/pair/pair.h"
#include "compare/verdict/replay.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "compare/explain/advisor.h"
#include "compare/explain/answer.h"
#include "compare/explain/call.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/path.h"
#include "core/pool.h"

enum { MAX_HIGHLIGHT_ROWS = 1048500 }; /* Excel's limit for one sheet, as the manual counts it */

static msp_status
open_outputs(msp_pair *p)
{
    const msp_compare_options *opt = p->run->opt;
    msp_outputs_rule rule = {.dir = p->plan->out_dir,
                             .stem = p->plan->stem,
                             .timestamp = p->run->timestamp,
                             .formats = opt->formats,
                             .coloured = p->highlight,
                             .diff_analyze = opt->diff_analyze,
                             .nothing = opt->explain != NULL,
                             .rows = (int64_t)p->match.count,
                             .rank = p->out->rank,
                             .threads = opt->threads,
                             .mode = p->out->mode,
                             .sides = {&p->sides[0].rows, &p->sides[1].rows},
                             .stack = p->stack,
                             .legacy = msp_pair_look(p)};

    if (msp_pair_is_legacy(p)) {
        rule.file = msp_pair_legacy_options(p)->output_file;
        rule.formats = rule.formats == 0 || rule.file != NULL ? MSP_COMPARE_CSV : rule.formats;
        if (rule.file != NULL && msp_path_kind_of(rule.file) == MSP_PATH_FILE)
            msp_warning("%s is there already and is written over", rule.file);
    }
    return msp_outputs_open(&p->outputs, &rule, p->err);
}

/*
 * What the advisor speaks of: the row that the verdict blames or, where there is no verdict, the first beyond the
 * manual's limits; -1: none.
 */
static int64_t
advised_row(const msp_pair *p)
{
    if (!p->out->verdict.given || p->out->answer.sentence == NULL)
        return p->advised;
    return p->out->answer.blamed.found ? p->out->answer.blamed.row : -1;
}

/* What the advisor says where it names no row: the verdict, where there is one, as the first screen has it. */
static msp_advisor_pair
advised_pair(const msp_pair *p)
{
    const msp_compare_counts *c = &p->out->counts;

    if (!p->out->verdict.given || p->out->answer.sentence == NULL)
        return c->yes + c->no + c->clean + c->warning + c->pass + c->different > 0 ? MSP_ADVISOR_FINE
                                                                                   : MSP_ADVISOR_NOT_JUDGED;
    if (p->out->answer.level == MSP_ANSWER_NOT_JUDGED)
        return MSP_ADVISOR_NOT_JUDGED;
    if (p->out->answer.level == MSP_ANSWER_WRONG)
        return MSP_ADVISOR_WRONG;
    return c->wrong > 0 ? MSP_ADVISOR_WITHIN : MSP_ADVISOR_FINE;
}

static msp_status
write_advice(msp_pair *p)
{
    int64_t at = advised_row(p);
    const msp_row *row = at < 0 ? NULL : &p->sides[0].rows.rows[at];
    msp_str name = row == NULL ? (msp_str){NULL, 0} : msp_row_name(row);
    bool ptdbg = p->look.form == MSP_LEGACY_PTDBG_2 || p->look.form == MSP_LEGACY_PTDBG_3;
    const char *advice = (ptdbg ? msp_advisor_text_ptdbg : msp_advisor_text)(name, advised_pair(p));
    msp_advisor_words words = {ptdbg ? at + 2 : at, /* there the header is line 1 */
                               name, advice, msp_pair_is_legacy(p) ? NULL : p->out->answer.sentence,
                               &p->out->verdict.alignment};
    msp_status st;
    char *path;

    if (p->run->opt->compare_only || p->run->opt->diff_analyze || p->look.form == MSP_LEGACY_HOOKS)
        return MSP_OK;
    path = msp_plan_file(p->plan->out_dir, p->plan->advisor_stem, p->run->timestamp, "txt");
    p->out->advice = msp_result_text(msp_str_of(advice));
    p->out->advised = row == NULL ? NULL : msp_result_text(name);
    p->out->advised_line = words.line;
    if (path == NULL || p->out->advice == NULL || (row != NULL && p->out->advised == NULL)) {
        msp_free(path);
        return msp_pair_no_memory(p);
    }
    st = msp_advisor_write(path, &words, p->err);
    if (st == MSP_OK && !msp_result_add(&p->out->files, &p->out->nfiles, msp_str_of(path)))
        st = msp_pair_no_memory(p);
    msp_free(path);
    return st;
}

/* The first row beyond the manual's limits, for the table's own line. */
static msp_status
describe_suspect(msp_pair *p)
{
    msp_suspect_source src = msp_pair_suspect_source(p);
    uint32_t partner;

    if (p->suspect < 0)
        return MSP_OK;
    src.match = &p->match;
    partner = p->match.bench[p->suspect];
    src.row[0] = &p->sides[0].rows.rows[p->suspect];
    src.row[1] = partner == MATCH_NONE ? NULL : &p->sides[1].rows.rows[partner];
    src.verdict = p->suspect_verdict;
    p->out->suspect.row = p->suspect;
    return msp_suspect_describe(&p->out->suspect, &src, p->err);
}

static msp_status
answer_pair(msp_pair *p)
{
    msp_suspect_source src = msp_pair_suspect_source(p);
    msp_answer_seen seen = {p->suspect, p->nonfinite, p->suspect_verdict};

    if (p->match.matched == 0)
        return MSP_OK; /* an error says why */
    return msp_answer_make(p->out, &src, &seen, p->err);
}

static msp_status
explain_row(msp_pair *p)
{
    msp_suspect_source src = msp_pair_suspect_source(p);

    return p->run->opt->explain == NULL ? MSP_OK : msp_explain_call(p->out, &src, p->run->opt->explain, p->err);
}

/* Nothing matched: say what stands on either side, so that the reason can be seen. */
static msp_status
nothing_matched(msp_pair *p)
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
size_of_side(const msp_pair *p, int i)
{
    return msp_pair_is_legacy(p) ? p->legacy[i].map.size : msp_dump_size(p->sides[i].dump);
}

/* Tell how much is to be done, now that the rows have their partners. */
static void
expect_work(msp_pair *p)
{
    const msp_rows *n = &p->sides[0].rows, *b = &p->sides[1].rows;
    int64_t bytes = 0;

    for (size_t i = 0; p->out->mode == MSP_MODE_REAL && i < p->match.count; i++)
        if (p->match.bench[i] != MATCH_NONE)
            bytes += tensor_size(n, &n->rows[i]) + tensor_size(b, &b->rows[p->match.bench[i]]);
    msp_run_expect(p->run, (int64_t)p->match.count, bytes);
    msp_run_json_known(p->run, (int64_t)(size_of_side(p, 0) + size_of_side(p, 1)));
}

static msp_status
explain_unreadable(msp_pair *p)
{
    if (p->out->counts.unreadable == 0)
        return MSP_OK;
    if (p->out->unreadable == NULL)
        return msp_pair_no_memory(p);
    if (p->out->counts.unreadable < p->with_files)
        return MSP_OK;
    return msp_error_set(p->err, MSP_E_NOT_FOUND,
                         "nothing could be compared: none of the %lld pairs of tensor files can be read. The first: "
                         "%.600s. Copy %s, or collect again",
                         (long long)p->with_files, p->out->unreadable,
                         msp_pair_is_legacy(p) ? "the folder of .npy files along with the .pkl"
                                               : "dump_tensor_data along with dump.json");
}

/* The table has what could be compared; somebody must know that files changed under it. */
static msp_status
explain_cut(msp_pair *p)
{
    if (p->cut_files == 0)
        return MSP_OK;
    if (p->cut_file == NULL)
        return msp_pair_no_memory(p);
    return msp_error_set(p->err, MSP_E_CHANGED,
                         "%s%s was cut short while it was read: is it still being written or copied? Its row says so, "
                         "the others are compared",
                         p->cut_file, p->cut_files > 1 ? " and others" : "");
}

/* dump.json, stack.json and the lines of the older tools: rows and stacks are views of them. */
static msp_status
check_sides(msp_pair *p)
{
    msp_status st = MSP_OK;

    for (int i = 0; i < 2 && st == MSP_OK; i++) {
        st = msp_dump_check(p->sides[i].dump, p->err);
        if (st == MSP_OK)
            st = msp_map_check(&p->legacy[i].map, AT_FDCWD, p->sides[i].path, p->err);
        if (st == MSP_OK)
            st = msp_whole_check(p->whole[i], p->err);
    }
    return st == MSP_OK ? msp_stack_check(p->stack, p->err) : st;
}

/* Real data of which no row has any: arguments that are no tensors, or records that were written without their files.
 * Single values may well be numbers alone. */
static msp_status
explain_no_files(msp_pair *p)
{
    if (p->out->mode != MSP_MODE_REAL || p->plan->npu->kind != MSP_DUMP_API || p->match.matched == 0 ||
        p->with_files > 0)
        return MSP_OK;
    return msp_error_set(p->err, MSP_E_NOT_FOUND,
                         "nothing could be compared: of the %zu rows of %s that have a partner none has a tensor file "
                         "(data_name) on both sides. Collect again with task tensor, or compare the statistics with "
                         "-da",
                         p->match.matched, p->sides[0].path);
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static msp_status
begin_page(msp_pair *p)
{
    msp_page_run *page = p->run->page;

    /* -da writes JSON of its own, and the older tools' tables are theirs */
    if (page == NULL || p->run->opt->diff_analyze || msp_pair_is_legacy(p))
        return MSP_OK;
    return msp_page_part_open(&p->page.part, page->path, p->outputs.columns, p->outputs.ncolumns,
                              PAGE_RUN_ROWS / (int64_t)page->nparts, p->err);
}

static void
note_cuts(msp_pair *p, size_t row, const msp_tensor *n, const msp_tensor *b)
{
    const msp_row *rows[2] = {&p->sides[0].rows.rows[row], &p->sides[1].rows.rows[p->match.bench[row]]};

    if (msp_measure_is_cut(&p->measurer, 0, rows[0], n))
        msp_pair_note_cut(p, rows[0], 0);
    else if (msp_measure_is_cut(&p->measurer, 1, rows[1], b))
        msp_pair_note_cut(p, rows[1], 1);
}

static bool
has_files(const msp_pair *p, size_t row)
{
    uint32_t partner = p->match.bench[row];

    return p->sides[0].rows.rows[row].file != NULL && partner != MATCH_NONE &&
           p->sides[1].rows.rows[partner].file != NULL;
}

/* The elements of the rows that were chosen, as far as their files can still be read. */
static msp_status
look_at_elements(msp_pair *p)
{
    enum { BUDGET = 64 * 1024 * 1024 }; /* elements: less than a second */
    size_t chosen[PAGE_LOOK], n_chosen;
    int64_t left = BUDGET;
    msp_buf text = {0};
    msp_json_writer w;
    msp_status st;

    n_chosen =
        p->out->mode == MSP_MODE_REAL ? msp_page_feed_choose(&p->page, chosen, p->out, p->diffs, p->match.count) : 0;
    msp_json_writer_init(&w, &text, -1);
    msp_json_begin_array(&w);
    for (size_t i = 0; i < n_chosen; i++) {
        size_t row = chosen[i];
        msp_tensor n = {0}, b = {0};

        if (!has_files(p, row))
            continue;
        if (msp_measure_open(&n, &p->measurer, 0, &p->sides[0].rows.rows[row], NULL) == MSP_OK &&
            msp_measure_open(&b, &p->measurer, 1, &p->sides[1].rows.rows[p->match.bench[row]], NULL) == MSP_OK &&
            n.numel <= left) {
            left -= n.numel;
            msp_page_elements(&w, &n, &b, msp_page_part_shown(p->page.part, row));
            note_cuts(p, row, &n, &b);
        }
        msp_tensor_release(&n);
        msp_tensor_release(&b);
    }
    msp_json_end_array(&w);
    st = msp_buf_status(&text, p->err);
    if (st == MSP_OK)
        st = msp_page_part_block(p->page.part, "elements", msp_buf_view(&text), p->err);
    msp_buf_release(&text);
    return st;
}

static msp_status
end_page(msp_pair *p)
{
    msp_status st;

    if (p->page.part == NULL)
        return MSP_OK;
    st = msp_page_feed_verdict(&p->page, p->out, &p->sides[0].rows, p->err);
    if (st == MSP_OK)
        st = look_at_elements(p);
    if (st == MSP_OK)
        st = msp_page_feed_construct(p->page.part, p->sides[0].path, p->err);
    if (st == MSP_OK)
        st = msp_page_part_finish(p->page.part, p->err);
    if (st == MSP_OK) {
        p->run->page->parts[p->plan - p->run->plan->pairs] = p->page.part;
        p->page.part = NULL;
    }
    return st;
}

/* Why the calls of this pair are not run again; NULL: they can be. Static text. */
static const char *
no_replay(const msp_pair *p)
{
    if (p->out->mode != MSP_MODE_REAL)
        return "these are dumps of statistics";
    if (p->out->framework[0] != MSP_PYTORCH || p->out->framework[1] != MSP_PYTORCH)
        return "calls are run again with PyTorch, and not both dumps are of PyTorch";
    if (p->whole[0] != NULL || p->whole[1] != NULL)
        return "a side is put together from several ranks, whose calls are run with their own parts";
    return p->run->opt->replay == NULL ? "it was not asked for" : NULL;
}

static msp_status
judge_evidence(msp_pair *p, msp_evidence_list *list, msp_verdict_replay *replay)
{
    const char *const paths[2] = {p->sides[0].path, p->sides[1].path};
    const char *why = no_replay(p);
    msp_status st = MSP_OK;

    if (why == NULL) {
        if (!msp_run_progress(p->run, "replay", p->plan->label, 0, 0))
            return msp_error_set(p->err, MSP_E_CANCELLED, "cancelled");
        st = msp_verdict_run_again(replay, list, p->run->opt, paths, p->err);
        why = replay->why_not;
    }
    if (st == MSP_OK)
        st = msp_verdict_rank(&p->out->verdict, list, p->err);
    if (st != MSP_OK)
        return st;
    p->out->verdict.alignment = p->alignment;
    p->alignment = (msp_verdict_texts){0};
    p->out->verdict.realigned = p->realigned;
    p->out->verdict.replayed = replay->done;
    p->out->verdict.replay_seconds = replay->seconds;
    p->out->verdict.no_replay = why == NULL ? NULL : msp_result_text(msp_str_of(why));
    return why != NULL && p->out->verdict.no_replay == NULL ? msp_pair_no_memory(p) : MSP_OK;
}

/* Checksums say nothing of sizes, and the rows of older tools and saved points are no calls of this form. */
static msp_status
give_verdict(msp_pair *p)
{
    msp_evidence_source src = msp_pair_evidence_source(p);
    msp_evidence_list list = {0};
    msp_verdict_replay replay = {0};
    msp_status st = MSP_OK;

    if (p->out->mode == MSP_MODE_MD5 || p->plan->npu->kind != MSP_DUMP_API)
        return MSP_OK;
    st = msp_evidence_from_rows(&list, &src, p->err);
    if (st == MSP_OK)
        st = msp_evidence_see(&list, &src, p->err);
    if (st == MSP_OK)
        st = msp_evidence_find_start(&list, &src, p->err);
    if (st == MSP_OK)
        st = judge_evidence(p, &list, &replay);
    msp_evidence_release(&list);
    msp_verdict_replay_release(&replay);
    return st;
}

/* What the answer for all ranks needs of this one. */
static msp_status
find_place(msp_pair *p)
{
    msp_job_source src = {.rows = {&p->sides[0].rows, &p->sides[1].rows},
                          .match = msp_pair_verdict_match(p),
                          .stack = p->stack,
                          .pair = p->out,
                          .suspect = p->suspect,
                          .nonfinite = p->nonfinite};

    return p->plan->npu->kind != MSP_DUMP_API ? MSP_OK : msp_job_part_make(&p->job, &p->out->place, &src, p->err);
}

static msp_status
compare_rows(msp_pair *p)
{
    msp_status st = msp_pair_match(p);

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
        st = begin_page(p);
    if (st == MSP_OK)
        st = msp_pair_rows(p);
    if (st == MSP_OK)
        st = msp_pair_align(p);
    if (st == MSP_OK)
        st = msp_pair_decisions(p);
    if (st == MSP_OK)
        st = give_verdict(p);
    if (st == MSP_OK)
        st = describe_suspect(p);
    if (st == MSP_OK)
        st = answer_pair(p);
    if (st == MSP_OK)
        st = end_page(p);
    if (st == MSP_OK)
        st = explain_row(p);
    if (st == MSP_OK)
        st = msp_outputs_verdict_sheet(&p->outputs, p->out, p->err);
    if (st == MSP_OK)
        st = check_sides(p);
    if (st == MSP_OK)
        st = msp_outputs_finish(&p->outputs, &p->out->files, &p->out->nfiles, p->err);
    if (st == MSP_OK)
        st = msp_outputs_verdict_file(&p->outputs, p->out, &p->out->files, &p->out->nfiles, p->err);
    if (st == MSP_OK && p->mapping_path != NULL &&
        !msp_result_add(&p->out->files, &p->out->nfiles, msp_str_of(p->mapping_path)))
        st = msp_pair_no_memory(p);
    if (st == MSP_OK)
        st = write_advice(p);
    if (st == MSP_OK)
        st = find_place(p);
    if (st == MSP_OK)
        st = check_sides(p);
    if (st == MSP_OK)
        st = explain_cut(p);
    if (st == MSP_OK)
        st = explain_unreadable(p);
    if (st == MSP_OK)
        st = explain_no_files(p);
    if (st == MSP_OK && p->match.matched == 0)
        st = nothing_matched(p);
    return st;
}

/* A folder of our own that others may not even enter (collectors make such) needs no look at every file in it. */
static void
open_tensor_dir(msp_pair *p, int i)
{
    int fd = open(p->sides[i].tensor_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat st;

    p->measurer.dirs[i] = p->sides[i].tensor_dir;
    p->measurer.fds[i] = fd;
    p->measurer.open_to_all[i] =
        fd >= 0 && (fstat(fd, &st) != 0 || st.st_uid != geteuid() || (st.st_mode & S_IXOTH) != 0);
}

static char *
tensor_dir_of(const msp_pair *p, int i)
{
    const msp_legacy_options *opt = msp_pair_legacy_options(p);
    const char *given = i == 0 ? opt->npu_dir : opt->bench_dir;

    if (!msp_pair_is_legacy(p))
        return msp_path_beside(p->sides[i].path, "dump_tensor_data");
    return given != NULL && p->plan->label[0] == '\0' ? msp_result_text(msp_str_of(given))
                                                      : msp_legacy_data_dir(p->sides[i].path);
}

static msp_status
prepare_sides(msp_pair *p)
{
    const msp_compare_options *opt = p->run->opt;

    for (int i = 0; i < 2; i++) {
        p->sides[i].owner = p;
        p->sides[i].path = (i == 0 ? p->plan->npu : p->plan->bench)->path;
        p->sides[i].tensor_dir = tensor_dir_of(p, i);
        if (p->sides[i].tensor_dir == NULL)
            return msp_pair_no_memory(p);
        open_tensor_dir(p, i);
    }
    p->fuzzy = opt->fuzzy && p->run->names == NULL && p->run->cross == NULL;
    p->highlight = opt->highlight && !opt->diff_analyze;
    p->suspect = p->advised = p->nonfinite = -1;
    return MSP_OK;
}

static void
release_side(size_t i, void *payload)
{
    msp_pair *p = payload;

    msp_rows_release(&p->sides[i].rows);
    msp_dump_close(p->sides[i].dump);
    msp_legacy_release(&p->legacy[i]);
    msp_free(p->sides[i].tensor_dir);
    if (p->measurer.fds[i] >= 0)
        close(p->measurer.fds[i]);
}

/* Giving back what a large text was mapped to takes as long as finding its lines: both sides at the same time. */
static void
release_pair(msp_pair *p)
{
    msp_outputs_close(&p->outputs);
    msp_page_part_close(p->page.part);
    msp_pool_run(2, p->run->row_threads, release_side, p);
    for (int i = 0; i < 2; i++)
        msp_whole_close(p->whole[i]);
    msp_match_release(&p->match);
    msp_match_release(&p->aligned);
    msp_replaced_release(&p->replaced);
    msp_verdict_texts_release(&p->alignment);
    msp_free(p->moved);
    msp_free(p->flips);
    msp_cross_pair_close(p->cross);
    msp_free(p->mapping_path);
    msp_free(p->diffs);
    msp_free(p->cut_file);
    msp_stack_close(p->own_stack);
}

void
msp_pair_compare(msp_run *run, const msp_plan_pair *plan, msp_compare_pair *out, msp_pair_parts *parts)
{
    msp_error err = {MSP_OK, ""};
    msp_pair p = {.run = run, .plan = plan, .out = out, .err = &err, .measurer.fds = {-1, -1}};
    double start = msp_clock_seconds();

    out->status = prepare_sides(&p);
    if (out->status == MSP_OK)
        out->status = msp_pair_read(&p);
    if (out->status == MSP_OK)
        out->status = compare_rows(&p);
    if (out->status != MSP_OK && out->status != MSP_E_CANCELLED && check_sides(&p) != MSP_OK)
        out->status = MSP_E_CHANGED; /* whatever else it led to */
    if (out->status != MSP_OK)
        out->error = msp_result_text(msp_str_of(err.message));
    if (out->status == MSP_OK || out->status == MSP_E_NOT_FOUND) {
        parts->da = p.outputs.da;
        p.outputs.da = NULL;
    }
    parts->job = p.job;
    release_pair(&p);
    out->seconds = msp_clock_seconds() - start;
}
