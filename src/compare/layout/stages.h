/*
 * stages.h - the stages of a pipeline as one run.
 *
 * Each stage counts its own calls from 0 on, as the run of one rank counts all of them: the second stage's linear.0
 * comes behind the last linear of the first. So calls go on counting where those of the stages before end, within
 * each micro-batch. Where modules are numbered in their path ("Module.layers.0.Linear"), and each stage begins at 0,
 * these numbers go on likewise.
 */
#ifndef MSP_COMPARE_STAGES_H
#define MSP_COMPARE_STAGES_H

#include "compare/rows/rows.h"

/* The rows of one rank. */
typedef struct msp_stage_rows {
    msp_rows *rows;
    size_t stage; /* from 0 on */
} msp_stage_rows;

/* Rename calls and rows of the n ranks; new names are kept in arena. False: no memory. */
bool msp_stages_rename(msp_arena *arena, const msp_stage_rows *ranks, size_t n, size_t nstages, int64_t micro_batches);

/*
 * How many stages do the n ranks make, each of as many ranks that follow each other? That which makes the counts of
 * most calls add up to those of the run of one rank: 1 where all ranks make all calls, 0 where nothing fits.
 */
MSP_CHECK msp_status msp_stages_guess(size_t *nstages, const msp_rows *whole, msp_rows *const *ranks, size_t n,
                                      msp_error *err);

/*
 * Put the calls of t, which are of several stages and named as above, into the order of one run: the forward calls of
 * each stage behind those of the one before, and the backward calls of each before them. stages[i] is that of call i.
 * False: no memory.
 */
bool msp_stages_sort(msp_rows *t, const size_t *stages);

#endif
