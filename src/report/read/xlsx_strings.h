/*
 * xlsx_strings.h - a workbook's table of shared strings, and Excel's escapes.
 *
 *     <sst><si><t>text</t></si><si><r><t>te</t></r><r><t>xt</t></r><rPh><t>reading</t></rPh></si>...</sst>
 */
#ifndef MSP_REPORT_XLSX_STRINGS_H
#define MSP_REPORT_XLSX_STRINGS_H

#include "core/arena.h"
#include "io/zip.h"

enum { MSP_XLSX_MAX_CELL = 1 << 20 }; /* bytes of one text; Excel's own limit is 32767 characters */

typedef struct msp_xlsx_strings {
    msp_str *items;
    size_t count;
    size_t cap;
    msp_arena arena;
} msp_xlsx_strings;

/*
 * Read the strings of the workbook; none when it has no such table. MSP_E_LIMIT when they would take more memory than
 * limit. Give them back with msp_xlsx_strings_release() in any case.
 */
MSP_CHECK msp_status msp_xlsx_strings_read(msp_xlsx_strings *out, const msp_zip *zip, size_t limit, msp_error *err);
void msp_xlsx_strings_release(msp_xlsx_strings *s);

/* Append text, or say that the cell gets too long. */
MSP_CHECK msp_status msp_xlsx_text_add(msp_buf *to, msp_str text, msp_error *err);

/* Resolve Excel's escapes in text: _x0041_ is 'A'; half a surrogate becomes U+FFFD. It gets no longer. */
void msp_xlsx_unescape(msp_buf *text);

#endif
