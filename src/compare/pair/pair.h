/*
 * pair.h - one pair of files while it is compared, for pair.c and its parts: pair_read.c reads both sides, pair_match.c
 * finds partners, pair_rows.c judges and writes rows. What a part needs of the one before stands in this struct.
 */
#ifndef MSP_COMPARE_PAIR_H
#define MSP_COMPARE_PAIR_H

#include "compare/pair/blocks.h"
#include "compare/explain/suspect.h"
#include "compare/job/job.h"
#include "compare/legacy/legacy.h"
#include "compare/page/page_run.h"
#include "compare/pair/outputs.h"
#include "compare/run/run.h"
#include "compare/verdict/alignment.h"

typedef struct msp_pair_side {
    struct msp_pair *owner;
    const char *path;
    size_t told;    /* bytes of the file that were counted as read */
    msp_dump *dump; /* NULL for a file of the older tools */
    msp_rows rows;
    char *tensor_dir;
    msp_status status;
    msp_error err;
} msp_pair_side;

typedef struct msp_pair {
    msp_run *run;
    const msp_plan_pair *plan;
    msp_compare_pair *out;
    msp_error *err;
    msp_pair_side sides[2];
    const msp_stack *stack;
    msp_stack *own_stack;
    msp_legacy_file legacy[2]; /* files of the older tools; their rows are the sides' */
    msp_legacy_look look;      /* set when form is */
    msp_cross_pair *cross;
    char *mapping_path;          /* of what -lm found */
    msp_match match;             /* the table's */
    msp_match aligned;           /* the verdict's; empty: the table's do */
    msp_replaced replaced;       /* calls that stand for others */
    msp_verdict_texts alignment; /* what is said of calls that one side alone makes */
    uint32_t *moved;             /* rows whose elements are to be compared with another partner than the table's */
    size_t nmoved;
    msp_row_flip *flips; /* choices that fell the other way */
    size_t nflips;
    int64_t realigned; /* rows that have another partner */
    msp_measurer measurer;
    msp_whole *whole[2]; /* sides of several ranks; NULL: one */
    msp_outputs outputs;
    msp_page_feed page;
    bool highlight; /* the workbook has the form of a coloured one */
    bool colour;    /* rows are coloured: not for single values and checksums */
    bool fuzzy;
    int64_t suspect, advised, nonfinite; /* row numbers, -1: none yet */
    int64_t with_files;                  /* rows with a tensor file on both sides */
    int64_t cut_files;                   /* of tensors, that were cut short while they were read */
    char *cut_file;                      /* the first of them */
    const char *suspect_verdict;
    double *diffs; /* of each NPU row: relative difference of its elements, NaN where they were not compared */
    msp_job_part *job;
} msp_pair;

static inline bool
msp_pair_is_legacy(const msp_pair *p)
{
    return p->plan->npu->kind == MSP_DUMP_LEGACY;
}

static inline const msp_legacy_options *
msp_pair_legacy_options(const msp_pair *p)
{
    static const msp_legacy_options defaults = {.form = MSP_LEGACY_AUTO};

    return p->run->opt->legacy != NULL ? p->run->opt->legacy : &defaults;
}

/* NULL for msprobe's own dumps. */
static inline const msp_legacy_look *
msp_pair_look(const msp_pair *p)
{
    return p->look.form == MSP_LEGACY_AUTO ? NULL : &p->look;
}

static inline msp_status
msp_pair_no_memory(msp_pair *p)
{
    return msp_error_set(p->err, MSP_E_NOMEM, "out of memory");
}

/* Open and flatten both sides, and find out what kind of comparison it is. */
MSP_CHECK msp_status msp_pair_read(msp_pair *p);

/* The call stack, and a partner for each row; tells how many there are. */
MSP_CHECK msp_status msp_pair_match(msp_pair *p);

/* The verdict's partners, where the table's are not to be trusted; what changes with them is measured again. */
MSP_CHECK msp_status msp_pair_align(msp_pair *p);

/* Measure the choices that fell the other way, by the verdict's partners. */
MSP_CHECK msp_status msp_pair_decisions(msp_pair *p);

static inline const msp_match *
msp_pair_verdict_match(const msp_pair *p)
{
    return p->realigned > 0 ? &p->aligned : &p->match;
}

static inline msp_evidence_source
msp_pair_evidence_source(const msp_pair *p)
{
    return (msp_evidence_source){.npu = &p->sides[0].rows,
                                 .bench = &p->sides[1].rows,
                                 .match = msp_pair_verdict_match(p),
                                 .diffs = p->diffs,
                                 .replaced = &p->replaced,
                                 .flips = p->flips,
                                 .nflips = p->nflips};
}

/* All that explaining needs but for the row; with the verdict's partners. */
static inline msp_suspect_source
msp_pair_suspect_source(msp_pair *p)
{
    return (msp_suspect_source){.rows = {&p->sides[0].rows, &p->sides[1].rows},
                                .match = msp_pair_verdict_match(p),
                                .mode = p->out->mode,
                                .stack = p->stack,
                                .measurer = &p->measurer,
                                .fuzzy = p->fuzzy,
                                .legacy = msp_pair_look(p)};
}

/* A tensor file of a row (of the bench: side 1) was cut short while it was read. */
void msp_pair_note_cut(msp_pair *p, const msp_row *r, int side);

/* Judge and write every row into the outputs, which are open; counts, and notes the first that is wrong. */
MSP_CHECK msp_status msp_pair_rows(msp_pair *p);

#endif
