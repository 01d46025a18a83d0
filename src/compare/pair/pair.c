/*
 * pair.c - one pair of files from end to end: read, match, then row after row judged (blocks.c) and written
 * (outputs.c); see pair.h for the parts. Nothing but the flattened rows grows with the dump.
 */
#include "compare/pair/pair.h"
#include "compare/verdict/verdict.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "compare/explain/advisor.h"
#include "compare/explain/suspect.h"
#include "core/alloc.h"
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

static msp_status
advise(msp_pair *p)
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
        return msp_pair_no_memory(p);
    }
    st = msp_advisor_write(path, line, name, advice, p->err);
    if (st == MSP_OK && !msp_result_add(&p->out->files, &p->out->nfiles, msp_str_of(path)))
        st = msp_pair_no_memory(p);
    msp_free(path);
    return st;
}

static msp_status
describe_suspect(msp_pair *p)
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
                               .legacy = msp_pair_look(p)};
    p->out->suspect.row = p->suspect;
    return msp_suspect_describe(&p->out->suspect, &src, p->err);
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

/* The elements of the rows that were chosen, as far as their files can still be read. */
static msp_status
look_at_elements(msp_pair *p)
{
    enum { BUDGET = 64 * 1024 * 1024 }; /* elements: less than a second */
    int64_t left = BUDGET;
    msp_buf text = {0};
    msp_json_writer w;
    msp_status st;

    msp_page_feed_end(&p->page);
    msp_json_writer_init(&w, &text, -1);
    msp_json_begin_array(&w);
    for (size_t i = 0; i < p->page.nlooked && p->out->mode == MSP_MODE_REAL; i++) {
        size_t row = p->page.looked[i].row;
        msp_tensor n = {0}, b = {0};

        if (msp_measure_open(&n, &p->measurer, 0, &p->sides[0].rows.rows[row], NULL) == MSP_OK &&
            msp_measure_open(&b, &p->measurer, 1, &p->sides[1].rows.rows[p->match.bench[row]], NULL) == MSP_OK &&
            n.numel <= left) {
            left -= n.numel;
            msp_page_elements(&w, &n, &b, p->page.looked[i].shown);
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

/* Checksums say nothing of sizes, and the rows of older tools and saved points are no calls of this form. */
static msp_status
give_verdict(msp_pair *p)
{
    msp_evidence_list list = {0};
    msp_status st = MSP_OK;

    if (p->out->mode == MSP_MODE_MD5 || p->plan->npu->kind != MSP_DUMP_API)
        return MSP_OK;
    st = msp_evidence_from_rows(&list, &p->sides[0].rows, &p->sides[1].rows, &p->match, p->err);
    if (st == MSP_OK)
        st = msp_verdict_rank(&p->out->verdict, &list, p->err);
    msp_evidence_release(&list);
    return st;
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
        st = end_page(p);
    if (st == MSP_OK)
        st = msp_outputs_finish(&p->outputs, &p->out->files, &p->out->nfiles, p->err);
    if (st == MSP_OK && p->mapping_path != NULL &&
        !msp_result_add(&p->out->files, &p->out->nfiles, msp_str_of(p->mapping_path)))
        st = msp_pair_no_memory(p);
    if (st == MSP_OK)
        st = advise(p);
    if (st == MSP_OK)
        st = describe_suspect(p);
    if (st == MSP_OK)
        st = give_verdict(p);
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
        return msp_plan_beside(p->sides[i].path, "dump_tensor_data");
    return given != NULL && p->plan->label[0] == '\0' ? msp_result_text(msp_str_of(given))
                                                      : msp_legacy_data_dir(p->sides[i].path);
}

static msp_status
prepare(msp_pair *p)
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
    p->suspect = p->advised = -1;
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
release(msp_pair *p)
{
    msp_outputs_close(&p->outputs);
    msp_page_part_close(p->page.part);
    msp_pool_run(2, p->run->row_threads, release_side, p);
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
    msp_pair p = {.run = run, .plan = plan, .out = out, .err = &err, .measurer.fds = {-1, -1}};
    double start = seconds_now();

    out->status = prepare(&p);
    if (out->status == MSP_OK)
        out->status = msp_pair_read(&p);
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
