/*
 * kernel.h - dumps of MindSpore's static graphs: folders of .npy files, or of statistic.csv, one per rank and step.
 *
 * Two ways. Kernels (compare.json has rank_id or step_id): the lowest folders below each path, such as
 * rank_0/Net/0/<step>, hold {type}.{op}.{task}.{stream}.{time}.{input|output}...npy; tensors meet under op, task,
 * input or output and slot, the k-th in time with the k-th. Plain folders ("common": true): the folder trees are walked
 * side by side, and tensors meet under their file name without its last two parts.
 */
#ifndef MSP_COMPARE_KERNEL_H
#define MSP_COMPARE_KERNEL_H

#include "compare/run.h"

/* True when opt asks for one of the two ways. */
bool msp_kernel_wanted(const msp_compare_options *opt);

/*
 * Find the folders on both sides and pair them: pairs[i].npu is the first of pairs[i].nnpu neighbouring places, each a
 * folder. MSP_E_NOT_FOUND when a path, or any folder with numbers below it, is missing.
 */
MSP_CHECK msp_status msp_kernel_plan(msp_plan *out, const msp_compare_options *opt, msp_error *err);

/* Compare one pair, as msp_pair_compare() does. */
void msp_kernel_compare(msp_run *run, const msp_plan_pair *plan, msp_compare_pair *out);

/* ---- parts --------------------------------------------------------------------------------------------------- */

/* One tensor on one side. */
typedef struct msp_kernel_item {
    msp_str key;
    msp_str name; /* the key as its own side calls it, which map_dict does not change */
    int64_t time;
    size_t index;     /* how many of the same key come before it */
    const char *path; /* its .npy, or the statistic.csv that lists it */
    msp_str dtype, shape;
    msp_cell stats[MSP_NSTATS]; /* of statistic.csv */
} msp_kernel_item;

typedef struct msp_kernel_items {
    msp_arena arena;
    msp_kernel_item *items; /* sorted by key, then time */
    size_t count, cap;
    bool statistics; /* from statistic.csv */
} msp_kernel_items;

/* The items of n folders. */
MSP_CHECK msp_status msp_kernel_read(msp_kernel_items *out, const msp_dump_place *places, size_t n, bool common,
                                     msp_error *err);
void msp_kernel_items_release(msp_kernel_items *t);

/* Put the items in order again after keys were changed, and count those of each key. */
void msp_kernel_sort(msp_kernel_items *t);

/*
 * "MatMul.Default_x-op0.0.0.1794790643130200.input.0.DefaultFormat.Float32.npy": the key in scratch and the time.
 * False when the name is none of these.
 */
bool msp_kernel_name(msp_str name, msp_buf *scratch, int64_t *time);

#endif
