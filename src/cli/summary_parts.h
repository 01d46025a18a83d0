/* summary_parts.h - what the files of the summary for a person share. */
#ifndef MSP_CLI_SUMMARY_PARTS_H
#define MSP_CLI_SUMMARY_PARTS_H

#include <stdlib.h>
#include <string.h>
#include "progress.h"
#include "shell.h"
#include "summary.h"
#include "terminal.h"

enum { SUMMARY_LABEL = 14 };

/* summary_pair.c: what one pair came to, its first wrong row, and a frame of a stack. */
void msp_summary_counts(FILE *out, const msp_compare_counts *c);
void msp_summary_verdicts(FILE *out, const msp_compare_pair *p);
void msp_summary_suspect(FILE *out, const msp_compare_pair *p);
void msp_summary_frame(FILE *out, const char *frame);

/* summary_next.c: the command or the setting that tells more. first may be NULL: nothing is wrong. */
void msp_summary_next(FILE *out, const msp_summary *s, const msp_compare_pair *first);

/* "  First wrong   " */
static inline void
label(FILE *out, const char *text)
{
    fputs("  ", out);
    msp_term_put(out, MSP_STYLE_DIM, "%-*s", SUMMARY_LABEL, text);
}

static inline const char *
plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* "12,345 rows", in a style when it is not zero. */
static inline void
count(FILE *out, int64_t n, const char *what, msp_style style)
{
    char buf[32];

    msp_term_put(out, n > 0 ? style : MSP_STYLE_PLAIN, "%s %s", msp_format_count(buf, n), what);
}

/* Text from a dump: safe to show, never cut. */
static inline void
put_safe(FILE *out, msp_style style, const char *text)
{
    size_t size = strlen(text) + 1;
    char *buf = malloc(size);

    msp_term_put(out, style, "%s", buf != NULL ? msp_text_safe(buf, size, text) : "?");
    free(buf);
}

#endif
