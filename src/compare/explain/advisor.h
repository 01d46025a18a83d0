/* advisor.h - what the first wrong row suggests, as advisor_<time>.txt says it. */
#ifndef MSP_COMPARE_ADVISOR_H
#define MSP_COMPARE_ADVISOR_H

#include <stdint.h>
#include "core/str.h"
#include "msprobe/error.h"

/*
 * The advice for the first wrong row, by its name. An empty name: there is none, and everything is fine if any row was
 * judged at all. Static text.
 */
const char *msp_advisor_text(msp_str name, bool any_judged);

/* The same from ptdbg_ascend up to 4.0, which knew nothing of operators whose results vary. */
const char *msp_advisor_text_ptdbg(msp_str name, bool any_judged);

/* Write "Line", "Suspect Nodes" and "Expert Advice" to path (0640). An empty name: NA. */
MSP_CHECK msp_status msp_advisor_write(const char *path, int64_t line, msp_str name, const char *advice,
                                       msp_error *err);

#endif
