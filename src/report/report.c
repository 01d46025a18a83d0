/* report.c - nothing here yet. */
typedef int msp_report_is_empty;
