/*
 * writer.h - what the table writers share: the file they write into, and the few functions that differ between them.
 */
#ifndef MSP_REPORT_WRITER_H
#define MSP_REPORT_WRITER_H

#include "core/file.h"
#include "core/str.h"
#include "msprobe/table.h"

typedef struct msp_table_kind {
    size_t size;      /* of the writer's struct, which begins with a msp_table */
    bool many_sheets; /* begin_sheet may be called again */

    /* Take what is needed from opt, never NULL. The function may be NULL. */
    msp_status (*init)(msp_table *t, const msp_table_options *opt, msp_error *err);
    msp_status (*begin_sheet)(msp_table *t, const char *name, const msp_column *columns, msp_error *err);
    msp_status (*row)(msp_table *t, const msp_cell *cells, msp_row_colour colour, msp_error *err);
    msp_status (*end_sheet)(msp_table *t, msp_error *err); /* may be NULL */
    msp_status (*end)(msp_table *t, msp_error *err);       /* all that is left, into t->file; may be NULL */
    void (*release)(msp_table *t);                         /* may be NULL */
} msp_table_kind;

extern const msp_table_kind msp_csv_table, msp_json_table, msp_xlsx_table;

struct msp_table {
    const msp_table_kind *kind;
    msp_file file;
    size_t ncolumns; /* of the current sheet */
    size_t sheets;   /* begun so far */
    msp_buf out;     /* text not yet written */
    bool finished;
    msp_error failure; /* the first one; status MSP_OK when there was none */
};

/* Write t->out to the file when it holds more than least bytes. */
MSP_CHECK msp_status msp_table_flush(msp_table *t, size_t least, msp_error *err);

/*
 * A csv table's rows in two steps, so that many threads can share the first: the line of a row, and lines put where the
 * next rows would stand.
 */
void msp_csv_line(msp_buf *out, const msp_cell *cells, size_t ncolumns);
MSP_CHECK msp_status msp_table_lines(msp_table *t, msp_str lines, msp_error *err);

/* How much text csv and json collect before they write it. */
enum { MSP_TABLE_CHUNK = 256 * 1024 };

#endif
