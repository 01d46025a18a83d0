/* judge.h - the verdict on one row and the sentences in its Err_message. */
#ifndef MSP_COMPARE_JUDGE_H
#define MSP_COMPARE_JUDGE_H

#include "compare/judge/measure.h"

/*
 * Measure and judge one row. j->n and j->b are set by the caller, j->message is empty (its memory is reused);
 * everything else in j is filled. Real data reads the files through m. fuzzy: say so where names differ.
 */
void msp_judge_row(msp_judged *j, msp_compare_mode mode, const msp_measurer *m, bool fuzzy);

/* Accuracy Reached or Not, by the two metrics that decide it. */
msp_verdict msp_judge_accuracy(const msp_num *cosine, const msp_num *max_abs);

/* Relative error above this, as a fraction, is a Warning, and a difference in -da. */
#define MSP_JUDGE_REL_LIMIT 0.5

#endif
