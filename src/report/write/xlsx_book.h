/*
 * xlsx_book.h - the parts of a workbook that are not rows: styles, theme, list of sheets, relations, properties.
 *
 * libxlsxwriter knows them all, so it writes a workbook of empty sheets beside the final file, and every part of it but
 * the sheets is copied into ours. Rows do not go through it: it compresses at a fixed level after a second pass over a
 * temporary file (half of our speed target), and does not notice when that file meets a full disk.
 */
#ifndef MSP_REPORT_XLSX_BOOK_H
#define MSP_REPORT_XLSX_BOOK_H

#include "report/write/zip_out.h"

/* Indices of the cell styles that the book defines, for the attribute s of a cell. */
typedef enum msp_xlsx_style {
    MSP_XLSX_PLAIN = 0,
    MSP_XLSX_HEADER, /* bold, thin border, centred, at the top */
    MSP_XLSX_RED,
    MSP_XLSX_YELLOW
} msp_xlsx_style;

/*
 * Add the parts of a workbook with these sheets to z. The i-th sheet is the entry "xl/worksheets/sheet<i + 1>.xml",
 * which the caller writes. Names must be valid and unlike each other (see msp_xlsx_sheet_name()). path is the final
 * file: what is needed on the way stands beside it and is gone afterwards.
 */
MSP_CHECK msp_status msp_xlsx_book_write(msp_zip_out *z, const char *path, char *const *names, size_t count,
                                         msp_error *err);

/*
 * Append to out a name that Excel accepts for a sheet, as near to wanted followed by suffix (short ASCII) as can be: at
 * most 31 UTF-16 units, none of []:*?/\ and control characters, no apostrophe at either end, not "History", not empty;
 * and unlike the count names given, without regard to case.
 */
void msp_xlsx_sheet_name(msp_buf *out, msp_str wanted, const char *suffix, char *const *names, size_t count);

#endif
