/* read.h - what run_ut's tables say, from whatever bytes: the readers of files and the fuzz targets share it. */
#ifndef MSP_PRECHECK_READ_H
#define MSP_PRECHECK_READ_H

#include "core/str.h"
#include "msprobe/precheck.h"
#include "report/read/table_read.h"

/* Sinks that add to *sum what stands in a result table and a details table. */
void msp_precheck_summary_sinks(msp_table_sink *results, msp_table_sink *details, msp_precheck_summary *sum);

/* api_precision_compare without files: only out's counts. */
MSP_CHECK msp_status msp_precheck_compare_texts(msp_precheck_versus *out, msp_str npu, msp_str gpu, msp_error *err);

#endif
