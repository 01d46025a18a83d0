/* show.h - a judged row as the cells of a table, and the tables' columns: the manual's section 3.1. */
#ifndef MSP_COMPARE_SHOW_H
#define MSP_COMPARE_SHOW_H

#include "compare/judge/judged.h"

enum { SHOW_MAX_COLUMNS = 28 };

/* Of a column of a table with this title, in characters; 0: as the title is long. */
double msp_show_width(const char *title);

/* Fills out and returns how many columns there are. */
size_t msp_show_columns(msp_column out[SHOW_MAX_COLUMNS], msp_compare_mode mode, bool stack);

/* Cells that point into the rows and into the buffers here. */
typedef struct msp_shown {
    msp_cell cells[SHOW_MAX_COLUMNS];
    char percent[MSP_NSTATS][40];
    msp_buf stack, files; /* their memory is reused */
    bool failed;          /* no memory */
} msp_shown;

typedef struct msp_show_rule {
    msp_compare_mode mode;
    const msp_rows *npu, *bench;
    bool stack;
    const struct msp_legacy_look *legacy; /* NULL: msprobe's own table */
} msp_show_rule;

/* frames: the call's stack for the first row of a call, else NULL. */
void msp_show_row(msp_shown *out, const msp_show_rule *rule, const msp_judged *j, const msp_json *frames);

void msp_shown_release(msp_shown *s);

/* A value as its cell: None, Nan and infinities as the tables write them. */
msp_cell msp_show_value(const msp_val *v);

/* Append what the cell of a csv would show. */
void msp_show_cell_text(msp_buf *out, msp_cell c);

/* The words of a coloured workbook: everything but finite numbers is text, infinities end in a tab. */
msp_cell msp_show_as_text(msp_cell c);

#endif
