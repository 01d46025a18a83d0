/* lines.h - csv lines in memory of the caller's, for the files of run_ut and api_precision_compare. */
#ifndef MSP_PRECHECK_LINES_H
#define MSP_PRECHECK_LINES_H

#include "core/str.h"
#include "msprobe/precheck.h"

/* Ends the message of a result whose cosine says nothing. */
#define MSP_PRECHECK_NOISE "this is rounding noise."

/* A line while it is written; len counts on where the memory ends, as snprintf() does. */
typedef struct msp_precheck_text {
    char *buf;
    size_t size, len;
} msp_precheck_text;

/* A field, quoted where RFC 4180 asks for it; text that a spreadsheet would run as a formula gets an apostrophe. */
void msp_precheck_text_field(msp_precheck_text *l, const char *text);

/* The call whose result it is: "Torch.max.0" of "Torch.max.0.forward.output.0.1". */
msp_str msp_precheck_api_of(msp_str name);

#endif
