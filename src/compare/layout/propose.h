/*
 * propose.h - a layout from the dumps themselves: --layout auto.
 *
 * One side is of one rank and has every tensor whole. Of the parts of the same name on the other side's ranks the
 * shapes say what they can be: sizes along one axis that add up are a concatenation, the whole's own shape is a replica
 * or a summand. Statistics (of real data those of the records too) decide between the latter two, and must agree with
 * what is proposed in most rows of a pattern before it becomes a rule. Names that differ in the number of the call
 * alone are one pattern where all of them are put together in the same way; else each has a rule of its own.
 *
 * Ranks among which the calls of the whole are divided are the stages of a pipeline (stages.h). DTensors need no rule:
 * what their records say stands in the yaml as comments. Where both sides are in parts, and have DTensors, other
 * tensors are what both sides make the same of: replicas, concatenations along the axis in which their sizes differ,
 * summands; what differs between the ranks of a side and is none of these is left out.
 */
#ifndef MSP_COMPARE_PROPOSE_H
#define MSP_COMPARE_PROPOSE_H

#include "compare/rows/rows.h"

/*
 * Append to out the yaml for the dumps of both sides, NPU and bench, of which one is of several ranks. Errors as of
 * msp_rows_flatten(); MSP_E_NOT_FOUND when nothing can be said of any row, MSP_E_INVALID when both sides are of several
 * ranks, and not both have DTensors.
 */
MSP_CHECK msp_status msp_layout_propose(msp_buf *out, const msp_dump_place *const places[2], const size_t n[2],
                                        msp_error *err);

#endif
