/* summary_parts.h - what the files of the summary for a person share. */
#ifndef MSP_CLI_SUMMARY_PARTS_H
#define MSP_CLI_SUMMARY_PARTS_H

#include <stdlib.h>
#include <string.h>
#include "progress.h"
#include "shell.h"
#include "summary.h"
#include "terminal.h"

enum { SUMMARY_LABEL = 14, SUMMARY_INDENT = SUMMARY_LABEL + 2 };

/* summary_pair.c: what one pair came to, what is to be known beside it, and the row that is blamed. */
void msp_summary_counts(FILE *out, const msp_compare_counts *c);
void msp_summary_judged(FILE *out, const msp_compare_pair *p);
void msp_summary_notes(FILE *out, const msp_compare_pair *p);
void msp_summary_blamed(FILE *out, const msp_compare_pair *p);
void msp_summary_table(FILE *out, const msp_compare_pair *p);
void msp_summary_first_differs(FILE *out, const msp_compare_pair *p);

/* errors.c: the numbers of a row, and what is known of its call's inputs. */
void msp_summary_errors(FILE *out, const msp_compare_pair *p, const msp_compare_suspect *s);

/* frames.c: the line of code that computes, and the user's own where that is another one. */
void msp_summary_frames(FILE *out, char *const *stack, size_t n);

/*
 * "File /w/train.py, line 10, in main, \n y = f(x)" as "/w/train.py:10 in main" in text, the file as seen from the
 * current folder where that is wanted; another form as it is. Returns the code below, "y = f(x)"; NULL: there is none.
 */
const char *msp_frame_place(char *text, size_t size, const char *frame, bool from_here);

/* summary_job.c: what is to be said about all ranks together; nothing where there is one. */
void msp_summary_job(FILE *out, const msp_compare_result *r);

/* summary_next.c: the command or the setting that tells more. first may be NULL: nothing is wrong. */
void msp_summary_next(FILE *out, const msp_summary *s, const msp_compare_pair *first);

/* "  Suspect       " */
static inline void
print_label(FILE *out, const char *text)
{
    fputs("  ", out);
    msp_term_put(out, MSP_STYLE_DIM, "%-*s", SUMMARY_LABEL, text);
}

static inline const char *
plural_ending(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* "12,345 rows", in a style when it is not zero. */
static inline void
print_count(FILE *out, int64_t n, const char *what, msp_style style)
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

/* A sentence beside a label, broken into lines; names in it stay whole. Ends the line. */
static inline void
put_sentence(FILE *out, const char *title, msp_style style, const char *text)
{
    enum { WIDEST = 80 };
    size_t size = strlen(text) + 1;
    int width = msp_term_width(out) < WIDEST ? msp_term_width(out) : WIDEST;
    char *buf = malloc(size);

    print_label(out, title);
    fputs(msp_term_on(out, style), out);
    msp_text_wrap(out, buf != NULL ? msp_text_safe(buf, size, text) : "?", SUMMARY_INDENT, width);
    fputs(style == MSP_STYLE_PLAIN ? "" : msp_term_off(out), out);
    free(buf);
}

#endif
