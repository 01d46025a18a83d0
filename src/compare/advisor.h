/* advisor.h - what the first wrong row suggests, as advisor_<time>.txt says it. */
#ifndef MSP_COMPARE_ADVISOR_H
#define MSP_COMPARE_ADVISOR_H

#include <stdint.h>
#include "core/str.h"
#include "msprobe/error.h"

/* The advice for a row of this name; for an empty name: that everything is fine. Static text. */
const char *msp_advisor_text(msp_str name);

/* Write "Line", "Suspect Nodes" and "Expert Advice" to path (0640). An empty name: NA. */
MSP_CHECK msp_status msp_advisor_write(const char *path, int64_t line, msp_str name, msp_error *err);

#endif
