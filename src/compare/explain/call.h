/* call.h - everything that two dumps know of one call. */
#ifndef MSP_COMPARE_EXPLAIN_CALL_H
#define MSP_COMPARE_EXPLAIN_CALL_H

#include "compare/explain/suspect.h"

/*
 * Fill pair->explained with the call named name, from the rows (src has everything but the row) and the pair's verdict;
 * explained.found stays false where the NPU side has no such call. In real-data mode every tensor of the call is read.
 * MSP_E_NOMEM.
 */
MSP_CHECK msp_status msp_explain_call(msp_compare_pair *pair, const msp_suspect_source *src, const char *name,
                                      msp_error *err);

#endif
