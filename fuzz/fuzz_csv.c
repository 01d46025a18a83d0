/* fuzz_csv.c - any bytes as comma-separated values. */
#include <stdint.h>
#include "touch_cells.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned sum = 0;
    const msp_table_sink sink = {touch_cells, touch_cells, &sum};
    msp_error err;

    if (msp_csv_read((const char *)data, size, &sink, &err) != MSP_OK && err.message[0] == '\0')
        __builtin_trap();
    return 0;
}
