/* lines.h - csv lines in memory of the caller's, for the files of run_ut and api_precision_compare. */
#ifndef MSP_PRECHECK_LINES_H
#define MSP_PRECHECK_LINES_H

#include "core/str.h"
#include "msprobe/precheck.h"

/* A line while it is written; len counts on where the memory ends, as snprintf() does. */
typedef struct msp_csv_line {
    char *buf;
    size_t size, len;
} msp_csv_line;

void msp_csv_line_char(msp_csv_line *l, char c);
void msp_csv_line_text(msp_csv_line *l, const char *text);

/* A field, quoted where RFC 4180 asks for it; text that a spreadsheet would run as a formula gets an apostrophe. */
void msp_csv_line_field(msp_csv_line *l, const char *text);

/* CR LF and the terminator; returns the length of the whole line. */
size_t msp_csv_line_end(msp_csv_line *l);

/* "<api>.<n>.forward.output.0" without its last three parts. */
msp_str msp_precheck_api_of(msp_str name);

#endif
