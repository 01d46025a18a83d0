/*
 * table.h - one table model and its writers: csv, xlsx, json.
 *
 * A writer takes rows one at a time and keeps none, so that a million rows cost no more memory than ten. The result
 * appears under its final name only when msp_table_finish() has succeeded; until then, and for ever after a failure,
 * there is at most a temporary file that msp_table_close() removes. Files have mode 0640.
 */
#ifndef MSPROBE_TABLE_H
#define MSPROBE_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include "msprobe/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum msp_cell_kind {
    MSP_CELL_EMPTY = 0,
    MSP_CELL_TEXT,
    MSP_CELL_INT,
    MSP_CELL_FLOAT, /* NaN and infinities are written as text: "nan", "inf", "-inf" */
    MSP_CELL_BOOL   /* TRUE and FALSE in xlsx, True and False in csv, true and false in json */
} msp_cell_kind;

typedef struct msp_cell {
    msp_cell_kind kind;
    union {
        struct {
            const char *p; /* UTF-8, need not be terminated; borrowed for the call */
            size_t len;
        } text;
        int64_t i;
        double f;
        bool b;
    } as;
} msp_cell;

static inline msp_cell
msp_cell_text(const char *p, size_t len)
{
    msp_cell c = {MSP_CELL_TEXT, {{p, len}}};
    return c;
}

static inline msp_cell
msp_cell_int(int64_t v)
{
    msp_cell c = {MSP_CELL_INT, {{0, 0}}};
    c.as.i = v;
    return c;
}

static inline msp_cell
msp_cell_float(double v)
{
    msp_cell c = {MSP_CELL_FLOAT, {{0, 0}}};
    c.as.f = v;
    return c;
}

static inline msp_cell
msp_cell_bool(bool v)
{
    msp_cell c = {MSP_CELL_BOOL, {{0, 0}}};
    c.as.b = v;
    return c;
}

typedef enum msp_row_colour {
    MSP_ROW_PLAIN = 0,
    MSP_ROW_RED,   /* FFFF0000 */
    MSP_ROW_YELLOW /* 00FFFF00 */
} msp_row_colour;

typedef enum msp_table_format { MSP_TABLE_CSV = 0, MSP_TABLE_XLSX, MSP_TABLE_JSON } msp_table_format;

typedef struct msp_column {
    const char *title;
    double width; /* in characters, for xlsx; 0: chosen from the title */
} msp_column;

typedef struct msp_table_options {
    const char *sheet;      /* name of the first sheet; NULL: "Sheet1". Names are made valid for Excel if need be */
    int64_t rows_per_sheet; /* xlsx; 0: 1,048,500. A table of so many rows is split into sheets part_0, part_1, ...;
                               one begun by msp_table_sheet() into <name>_part_0, <name>_part_1, ... */
    int64_t total_rows; /* how many rows will come, when known, else 0: lets a split table have sheets of equal size */
    bool plain_header;  /* no bold, border and centring in the header row */
    int threads;        /* xlsx is compressed on so many; 0: one per processor. The bytes are the same */
} msp_table_options;

typedef struct msp_table msp_table;

/*
 * Begin a table at path with these columns (copied). opt may be NULL.
 *
 * csv is UTF-8 with "\n" line ends, fields quoted as RFC 4180 asks, and numbers as Python's repr. json is one object
 * {"columns": [...], "rows": [[...], ...]} with NaN and infinities as strings and null for empty cells; further sheets
 * stand under "sheets" as objects with "name", "columns" and "rows". xlsx has one sheet, more when there are too many
 * rows; numbers keep all digits that tell them apart, text longer than the 32767 characters that a cell can hold is cut
 * with a note, and at most 16384 columns are possible (MSP_E_LIMIT). Text that starts with =, +, -, @, TAB or CR stays
 * text in xlsx; in csv an apostrophe stands before it unless it is a number, and control characters other than TAB and
 * line ends become "\x1b". What is not UTF-8 becomes U+FFFD. Sheets have a frozen header row with a filter.
 *
 * Returns MSP_E_IO (a full disk among others; the message names the path), MSP_E_NOMEM, MSP_E_LIMIT or MSP_E_INVALID
 * (no columns). After a failure of any function here every later call returns the same error again. A table may be used
 * by one thread at a time; xlsx compresses on the library's own threads.
 */
MSP_API MSP_CHECK msp_status msp_table_open(msp_table **out, const char *path, msp_table_format format,
                                            const msp_column *columns, size_t ncolumns, const msp_table_options *opt,
                                            msp_error *err);

/* Add one row of ncolumns cells. Text is borrowed for the call. */
MSP_API MSP_CHECK msp_status msp_table_row(msp_table *t, const msp_cell *cells, msp_row_colour colour, msp_error *err);

/* Begin another sheet with columns of its own (xlsx and json; MSP_E_UNSUPPORTED for csv). */
MSP_API MSP_CHECK msp_status msp_table_sheet(msp_table *t, const char *name, const msp_column *columns, size_t ncolumns,
                                             msp_error *err);

/* Write what is left and put the file in its place. Only msp_table_close() may follow. */
MSP_API MSP_CHECK msp_status msp_table_finish(msp_table *t, msp_error *err);

/* Free t; a table that was not finished leaves nothing behind. Accepts NULL. */
MSP_API void msp_table_close(msp_table *t);

#ifdef __cplusplus
}
#endif
#endif
