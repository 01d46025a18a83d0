/* run.h - one run over all pairs: what the pairs share, and what each of them is to do. */
#ifndef MSP_COMPARE_RUN_H
#define MSP_COMPARE_RUN_H

#include <pthread.h>
#include <stdatomic.h>
#include "compare/match/cross.h"
#include "compare/first/analyze.h"
#include "compare/match/match.h"
#include "compare/match/name_map.h"
#include "compare/rows/rows.h"
#include "core/str.h"
#include "text/json.h"

struct msp_plan;
struct msp_page_run;
struct msp_layout;

typedef struct msp_run {
    const msp_compare_options *opt;
    int threads;               /* for the whole run */
    int row_threads;           /* for the rows of one pair: 1 while pairs run beside each other */
    const char *timestamp;     /* in the names of results */
    msp_name_map *names;       /* NULL: no data_mapping */
    struct msp_page_run *page; /* NULL: none is wanted */
    const struct msp_plan *plan;
    const struct msp_layout *layout; /* NULL: every rank is compared by itself */
    const msp_cross *cross;          /* NULL: no mapping across frameworks; it wins over names */

    pthread_mutex_t lock; /* guards what is below */
    msp_compare_progress progress;
    double last_report;
    _Atomic bool cancelled;
} msp_run;

/*
 * Count what was done and tell the caller's progress function now and then. False: the run is cancelled. totals are
 * added to the totals.
 */
bool msp_run_progress(msp_run *run, const char *phase, const char *rank, int64_t rows, int64_t bytes);
/* Nothing was done, but the caller may want to cancel. */
bool msp_run_tick(msp_run *run);
/* Count bytes, and tell nobody: for threads in which the caller's function must not run. */
void msp_run_count(msp_run *run, int64_t bytes);
void msp_run_expect(msp_run *run, int64_t rows, int64_t bytes);
/* So many more bytes of JSON files were read; and the rows and tensors of so many bytes of them have been announced. */
bool msp_run_json(msp_run *run, const char *rank, int64_t bytes);
void msp_run_json_known(msp_run *run, int64_t bytes);
bool msp_run_pair_done(msp_run *run);

/* One pair of files to compare, or one that lacks a side. */
typedef struct msp_plan_pair {
    const msp_dump_place *npu, *bench; /* NULL: this side has none */
    size_t nnpu, nbench;               /* with a layout and for static graphs: places of the pair, side by side */
    msp_dump_place *joined[2];         /* with a layout: these places, whose texts are the plan's */
    char *label;                       /* "step0 rank1", "" for two files */
    char *out_dir;                     /* where its results go */
    char *stem;                        /* "compare_result_rank0" */
    char *advisor_stem;                /* "advisor_rank0" */
} msp_plan_pair;

typedef struct msp_plan {
    msp_dump_layout npu, bench;
    msp_plan_pair *pairs;
    size_t npairs;
} msp_plan;

/*
 * Find the dumps on both sides and pair them. Steps and ranks are paired in order when there are as many on both
 * sides (with a warning where their numbers differ), else by number. MSP_E_INVALID when one path is a file and the
 * other a folder.
 */
MSP_CHECK msp_status msp_plan_make(msp_plan *out, const msp_compare_options *opt, const struct msp_layout *layout,
                                   msp_error *err);
void msp_plan_release(msp_plan *p);

/* How much a pair is to read: the bytes of its JSON files. */
int64_t msp_plan_weight(const msp_plan_pair *pair);

/* "<dir>/<stem>_<time>.<ext>", or "<dir>/<stem>.<ext>" without a time (NULL); NULL when there is no memory. */
char *msp_plan_file(const char *dir, const char *stem, const char *timestamp, const char *ext);

/* What a pair leaves for the answers about all of them; NULL: nothing. */
typedef struct msp_pair_parts {
    msp_da_rank *da; /* with diff_analyze: the rank's part of the analysis, finished */
    struct msp_job_part *job;
} msp_pair_parts;

/* Compare one pair and write its results. out->status and out->error say what went wrong. */
void msp_pair_compare(msp_run *run, const msp_plan_pair *plan, msp_compare_pair *out, msp_pair_parts *parts);

/* failures.c: every pair that is left out is named, in their order and after all of them, whoever reads the result. */
void msp_run_log_failures(const msp_compare_result *out);

/* Count the failures. The first stands for the run; the pairs hold the others. */
MSP_CHECK msp_status msp_run_sum_up(msp_compare_result *out, const msp_run *run, msp_error *err);

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* A copy that msp_free() gives back; NULL when there is no memory. */
static inline char *
msp_result_text(msp_str s)
{
    return msp_str_copy(s);
}

void msp_result_release_pair(msp_compare_pair *p);

/* Append a copy of text to a list; false when there is no memory. */
bool msp_result_add(char ***list, size_t *count, msp_str text);

#endif
