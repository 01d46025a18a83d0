/*
 * verdict.h - evidence and its ranking. msp_evidence_from_rows() measures by statistics; whoever knows more about a
 * result (its tensors, a replay) sets local, shape and shape_text of its entry before msp_verdict_rank().
 */
#ifndef MSP_COMPARE_VERDICT_H
#define MSP_COMPARE_VERDICT_H

#include "compare/match/match.h"
#include "compare/rows/rows.h"
#include "msprobe/verdict.h"

typedef struct msp_evidence_list {
    msp_evidence *items; /* in the order of the run */
    size_t count;
} msp_evidence_list;

/* By the API's name alone: "Functional.linear.0.forward" is a matrix product. */
msp_call_class msp_verdict_class(msp_str api);

/*
 * One entry for each output row of the NPU side. Names point into npu, which must outlive the list. MSP_E_NOMEM; the
 * list is to be released in any case.
 */
MSP_CHECK msp_status msp_evidence_from_rows(msp_evidence_list *out, const msp_rows *npu, const msp_rows *bench,
                                            const msp_match *match, msp_error *err);
void msp_evidence_release(msp_evidence_list *list);

/* Fill inherited, expected and ratio of every entry, and the verdict. MSP_E_NOMEM. */
MSP_CHECK msp_status msp_verdict_rank(msp_pair_verdict *out, msp_evidence_list *list, msp_error *err);
void msp_verdict_release(msp_pair_verdict *v);

#endif
