/*
 * graph.h - dumps of MindSpore's static graphs: folders of .npy files, or of statistic.csv, one per rank and step.
 *
 * Two ways. Kernels (compare.json has rank_id or step_id): the lowest folders below each path, such as
 * rank_0/Net/0/<step>, hold {type}.{op}.{task}.{stream}.{time}.{input|output}...npy; tensors meet under op, task,
 * input or output and slot, the k-th in time with the k-th. Plain folders ("common": true): the folder trees are walked
 * side by side, and tensors meet under their file name without its last two parts.
 */
#ifndef MSP_COMPARE_GRAPH_H
#define MSP_COMPARE_GRAPH_H

#include "compare/run/run.h"
#include "dump/graph.h"

/* True when opt asks for one of the two ways. */
bool msp_graph_wanted(const msp_compare_options *opt);

/* True when both paths are folders as MindSpore's engine lays them out: rank_<N>, or folders of that name below. */
bool msp_graph_is_dump(const msp_compare_options *opt);

/*
 * Find the folders on both sides and pair them: pairs[i].npu is the first of pairs[i].nnpu neighbouring places, each a
 * folder. MSP_E_NOT_FOUND when a path, or any folder with numbers below it, is missing.
 */
MSP_CHECK msp_status msp_graph_plan(msp_plan *out, const msp_compare_options *opt, msp_error *err);

/* Compare one pair, as msp_pair_compare() does. */
void msp_graph_compare(msp_run *run, const msp_plan_pair *plan, msp_compare_pair *out);

#endif
