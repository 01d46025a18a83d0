/*
 * xlsx_parts.h - the XML parts of a workbook, and which of them is what.
 *
 * A workbook is a zip archive. xl/workbook.xml lists the sheets by name and relation, and xl/_rels/workbook.xml.rels
 * says which part each relation is. Nothing is kept: a part is inflated and parsed while it is walked through.
 */
#ifndef MSP_REPORT_XLSX_PARTS_H
#define MSP_REPORT_XLSX_PARTS_H

#include "io/zip.h"
#include "report/read/xml.h"

/* What to do with one event of a part; anything but MSP_OK ends the walk and is passed on. */
typedef msp_status msp_xlsx_event(msp_xml *x, msp_xml_event event, void *payload, msp_error *err);

/*
 * All events of the part with this name but the last, MSP_XML_DONE. Errors name the part. Returns what on_event
 * returns, MSP_E_FORMAT (no such part, corrupt, malformed), MSP_E_UNSUPPORTED, MSP_E_LIMIT or MSP_E_NOMEM.
 */
MSP_CHECK msp_status msp_xlsx_walk(const msp_zip *zip, msp_str name, msp_xlsx_event *on_event, void *payload,
                                   msp_error *err);

/*
 * Append to part the name of the part that holds a sheet: the one called name, or the first for "". *found becomes its
 * name (cut to what fits); it is "" and part stays as it is when there is no such sheet.
 */
MSP_CHECK msp_status msp_xlsx_sheet_part(msp_buf *part, char found[64], const msp_zip *zip, const char *name,
                                         msp_error *err);

/* Append to part the name of the workbook's part of this kind ("sharedStrings"), or nothing when it has none. */
MSP_CHECK msp_status msp_xlsx_part_of_kind(msp_buf *part, const msp_zip *zip, const char *kind, msp_error *err);

#endif
