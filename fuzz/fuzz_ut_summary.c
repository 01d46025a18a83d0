/* fuzz_ut_summary.c - any bytes as run_ut's result table, then as its details. */
#include <stdint.h>
#include "precheck/read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    msp_table_sink results, details;
    static msp_precheck_summary summary;
    msp_error err;

    summary = (msp_precheck_summary){0};
    msp_precheck_summary_sinks(&results, &details, &summary);
    if (msp_csv_read((const char *)data, size, &results, &err) != MSP_OK && err.message[0] == '\0')
        __builtin_trap();
    if (msp_csv_read((const char *)data, size, &details, &err) != MSP_OK && err.message[0] == '\0')
        __builtin_trap();
    if (summary.nworst > MSP_PRECHECK_WORST)
        __builtin_trap();
    return 0;
}
