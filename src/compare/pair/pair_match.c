/* pair_match.c - see pair.h. */
#include "compare/pair/pair.h"

#include "core/alloc.h"
#include "core/log.h"
#include "core/path.h"

/* ---- the call stack ---------------------------------------------------------------------------------------------- */

static msp_status
open_stack_file(msp_pair *p, const char *path)
{
    msp_status st = msp_stack_open(&p->own_stack, path, p->err);

    p->stack = p->own_stack;
    return st;
}

/* As the manual has it: a given stack_path counts with -s only; without one, what lies beside the NPU file is used. */
static msp_status
open_stack(msp_pair *p)
{
    const msp_compare_options *opt = p->run->opt;
    msp_status st = MSP_OK;
    char *beside;

    if (msp_pair_is_legacy(p)) {
        p->stack = msp_pair_legacy_options(p)->no_stack ? NULL : p->legacy[0].stack;
        return MSP_OK;
    }
    if (opt->stack_path != NULL && p->plan->label[0] == '\0')
        return opt->stack_mode ? open_stack_file(p, opt->stack_path) : MSP_OK;
    if (p->whole[0] != NULL) {
        st = msp_whole_stacks(&p->own_stack, p->whole[0], &p->sides[0].rows, p->err);
        p->stack = p->own_stack;
        return st;
    }
    beside = msp_path_beside(p->sides[0].path, "stack.json");
    if (beside == NULL)
        return msp_pair_no_memory(p);
    if (msp_path_kind_of(beside) == MSP_PATH_FILE)
        st = open_stack_file(p, beside);
    else
        msp_debug("%s is not there: no NPU_Stack_Info", beside);
    msp_free(beside);
    return st;
}

/* ---- partners ---------------------------------------------------------------------------------------------------- */

static msp_status
match_legacy(msp_pair *p)
{
    msp_legacy_match_rule rule = {.fuzzy = p->fuzzy,
                                  .shapes = msp_pair_legacy_options(p)->shape_flag ||
                                            p->look.form == MSP_LEGACY_PTDBG_3 || p->look.form == MSP_LEGACY_PTDBG_6,
                                  .numbered = {p->legacy[0].numbered, p->legacy[1].numbered}};

    return msp_legacy_match(&p->match, &p->sides[0].rows, &p->sides[1].rows, &rule, p->err);
}

/* "compare_result_rank0" of the table becomes "data_mapping_rank0" of the mapping that -lm leaves behind. */
static msp_status
name_mapping(msp_pair *p)
{
    const char *rank = strstr(p->plan->stem, "compare_result");
    msp_buf stem = {0};
    msp_status st;

    msp_buf_text(&stem, "data_mapping");
    msp_buf_text(&stem, rank != NULL ? rank + strlen("compare_result") : "");
    p->mapping_path = stem.failed ? NULL : msp_plan_file(p->plan->out_dir, stem.p, p->run->timestamp, "yaml");
    st = p->mapping_path == NULL ? msp_pair_no_memory(p) : msp_path_make_dirs(p->plan->out_dir, p->err);
    msp_buf_release(&stem);
    return st;
}

/* Names across frameworks. */
static msp_status
open_cross(msp_pair *p, msp_match_rule *rule)
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
find_partners(msp_pair *p)
{
    const msp_rows *n = &p->sides[0].rows, *b = &p->sides[1].rows;
    msp_framework nf = p->out->framework[0], bf = p->out->framework[1];
    msp_match_rule rule = {.cross_framework = nf != bf && nf != MSP_FRAMEWORK_UNKNOWN && bf != MSP_FRAMEWORK_UNKNOWN};
    msp_status st;

    if (msp_pair_is_legacy(p)) {
        st = match_legacy(p);
    } else if (p->run->cross != NULL) {
        st = open_cross(p, &rule);
        if (st == MSP_OK)
            st = msp_match_rows(&p->match, n, b, &rule, p->err);
    } else if (p->run->names != NULL) {
        rule.key = msp_name_map_key;
        rule.key_ctx = p->run->names;
        rule.ignore_shape = rule.ignore_dtype = true;
        st = msp_match_rows(&p->match, n, b, &rule, p->err);
        if (st == MSP_OK)
            msp_name_map_note(p->run->names, n, &p->match);
    } else if (p->fuzzy) {
        st = msp_match_rows_fuzzy(&p->match, n, b, &rule, p->err);
    } else {
        st = msp_match_rows(&p->match, n, b, &rule, p->err);
    }
    return st;
}

msp_status
msp_pair_match(msp_pair *p)
{
    msp_status st = open_stack(p);

    if (st != MSP_OK)
        return st;
    st = find_partners(p);
    p->out->counts.rows = (int64_t)p->match.count;
    p->out->counts.matched = (int64_t)p->match.matched;
    p->out->counts.unmatched = (int64_t)(p->match.count - p->match.matched);
    p->out->counts.bench_only = (int64_t)p->match.bench_only;
    return st;
}
