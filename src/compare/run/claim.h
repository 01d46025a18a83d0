/* claim.h - where the results of a run go. */
#ifndef MSP_COMPARE_CLAIM_H
#define MSP_COMPARE_CLAIM_H

#include "compare/run/run.h"
#include "compare/run/stamp.h"

/* Below the output directory nothing may lead out of it: MSP_E_INVALID for a symbolic link. */
MSP_CHECK msp_status msp_run_check_out_dirs(const msp_plan *plan, const char *output_dir, msp_error *err);

/*
 * A second for the results that nobody else has in the output directory, nor in any folder below it that results go to:
 * another run may have been given that one. given: the caller's own, or NULL.
 */
MSP_CHECK msp_status msp_run_claim_stamp(msp_stamp *out, const char *output_dir, const char *given, msp_plan *plan,
                                         msp_error *err);

#endif
