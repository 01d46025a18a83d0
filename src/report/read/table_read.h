/*
 * table_read.h - result tables read back: our own csv and xlsx, and those that other programs write.
 *
 * Rows stream through; what is kept is one row and, for workbooks that use them, the shared strings. All input is
 * treated as hostile. Cells have the kinds of msprobe/table.h, text is borrowed for the call. Numbers are MSP_CELL_INT
 * when they are written without a point and exponent and fit, else MSP_CELL_FLOAT.
 */
#ifndef MSP_REPORT_TABLE_READ_H
#define MSP_REPORT_TABLE_READ_H

#include "msprobe/table.h"

/* A function that returns anything but MSP_OK ends the reading, and its status and error are passed on. */
typedef msp_status msp_table_row_fn(const msp_cell *cells, size_t count, void *payload, msp_error *err);

typedef struct msp_table_sink {
    msp_table_row_fn *header; /* the first row; NULL: it is passed over */
    msp_table_row_fn *row;    /* every later one that is not empty; count may differ from the header's */
    void *payload;
} msp_table_sink;

/* The table at path, a workbook when it begins like a zip archive, csv otherwise. Errors name the path. */
MSP_CHECK msp_status msp_table_read(const char *path, const msp_table_sink *sink, msp_error *err);

/* The sheet of this name of the workbook at path; nothing where there is none. Errors name the path. */
MSP_CHECK msp_status msp_table_read_sheet(const char *path, const char *name, const msp_table_sink *sink,
                                          msp_error *err);

/*
 * The first sheet of a workbook in memory. When that is called part_0, the sheets part_1, part_2, ... go on with the
 * same table (see msp_table_options.rows_per_sheet), and their header rows are left out.
 *
 * Returns MSP_E_FORMAT, MSP_E_UNSUPPORTED, MSP_E_LIMIT (shared strings larger than 64 MiB plus 32 times the file), the
 * sink's own status, or MSP_E_NOMEM.
 */
MSP_CHECK msp_status msp_xlsx_read(const void *bytes, size_t size, const msp_table_sink *sink, msp_error *err);

/* The sheet of this name alone. */
MSP_CHECK msp_status msp_xlsx_read_sheet(const void *bytes, size_t size, const char *name, const msp_table_sink *sink,
                                         msp_error *err);

/*
 * Comma-separated values as RFC 4180 has them, lines ended by \n or \r\n. A field without quotes is a number or boolean
 * when it reads like one that the csv writer writes ("1", "0.5", "1e-05", "True"), empty, or else text.
 *
 * Returns MSP_E_FORMAT (a quote without its end, or text behind it), MSP_E_LIMIT (more fields in a line than a reader's
 * memory has room for: millions), the sink's own status, or MSP_E_NOMEM.
 */
MSP_CHECK msp_status msp_csv_read(const char *text, size_t size, const msp_table_sink *sink, msp_error *err);

#endif
