/* outputs.h - the result files of one pair: tables in several formats at once, or the JSON of -da. */
#ifndef MSP_COMPARE_OUTPUTS_H
#define MSP_COMPARE_OUTPUTS_H

#include "compare/first/analyze.h"
#include "compare/judge/show.h"
#include "compare/run/formats.h"

typedef struct msp_outputs_rule {
    const char *dir, *stem, *timestamp;
    unsigned formats;  /* MSP_COMPARE_* together */
    bool coloured;     /* the workbook has the form of a coloured one */
    bool diff_analyze; /* one JSON instead of tables */
    bool nothing;      /* no files at all */
    int64_t rows, rank;
    int threads;
    msp_compare_mode mode;
    const msp_rows *sides[2];
    const msp_stack *stack;               /* NULL: no such column */
    const struct msp_legacy_look *legacy; /* NULL: msprobe's own table */
    const char *file;                     /* exactly this one, as csv; NULL: a name from the parts above */
} msp_outputs_rule;

/* A zeroed one is closed. */
typedef struct msp_outputs {
    msp_outputs_rule rule;
    msp_column columns[SHOW_MAX_COLUMNS];
    size_t ncolumns;
    msp_table *tables[MSP_OUTPUTS_FORMATS];
    char *paths[MSP_OUTPUTS_FORMATS];
    size_t count;
    size_t xlsx, csv; /* which of the tables; SIZE_MAX: none */
    msp_da_rank *da;
} msp_outputs;

/* Make the directory and begin the files; out is to be closed in any case. */
MSP_CHECK msp_status msp_outputs_open(msp_outputs *out, const msp_outputs_rule *rule, msp_error *err);

/* A row for all files; the second for all but the csv, whose line comes by itself: s may be NULL if it is alone. */
MSP_CHECK msp_status msp_outputs_row(msp_outputs *o, const msp_judged *j, const msp_shown *s, msp_error *err);
MSP_CHECK msp_status msp_outputs_row_no_line(msp_outputs *o, const msp_judged *j, const msp_shown *s, msp_error *err);

/* For the csv, if there is one: the line of a row, from any thread, and lines in their order. */
bool msp_outputs_wants_lines(const msp_outputs *o);
bool msp_outputs_only_lines(const msp_outputs *o); /* and nothing but it */
void msp_outputs_line(const msp_outputs *o, const msp_shown *s, msp_buf *out);
MSP_CHECK msp_status msp_outputs_lines(msp_outputs *o, msp_str lines, msp_error *err);

/* The verdict on the pair as a sheet of workbook and json, before they are finished. Nothing for -da and the older
 * tools. */
MSP_CHECK msp_status msp_outputs_verdict_sheet(msp_outputs *o, const msp_compare_pair *p, msp_error *err);

/* A csv has no sheets: beside it verdict_<...>.json is written, and its name added to the list. */
MSP_CHECK msp_status msp_outputs_verdict_file(const msp_outputs *o, const msp_compare_pair *p, char ***files,
                                              size_t *nfiles, msp_error *err);

/* Put the files in their places and add their names to the list. */
MSP_CHECK msp_status msp_outputs_finish(msp_outputs *o, char ***files, size_t *nfiles, msp_error *err);

/* Files that were not finished leave nothing behind. */
void msp_outputs_close(msp_outputs *o);

#endif
