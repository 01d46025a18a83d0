/* verdict_table.h - the verdict on a pair as a table: a sheet of the workbook, a csv or json of its own beside others.
 */
#ifndef MSP_COMPARE_VERDICT_TABLE_H
#define MSP_COMPARE_VERDICT_TABLE_H

#include "msprobe/compare.h"
#include "msprobe/table.h"

/* In a workbook of a run with 100,000 calls nobody reads them all: those nearest to the limit, in the run's order. */
enum { VERDICT_SHEET_RESULTS = 2000 };

/* Begin the sheet "Verdict" of an open table and write it, with no more than most results. */
MSP_CHECK msp_status msp_verdict_sheet(msp_table *table, const msp_compare_pair *p, size_t most, msp_error *err);

/* A json of its own with all results. */
MSP_CHECK msp_status msp_verdict_file(const char *path, const msp_compare_pair *p, msp_error *err);

#endif
