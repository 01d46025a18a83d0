/* fuzz_csv.c - any bytes as comma-separated values. */
#include <stdint.h>
#include "report/table_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static msp_status
touch(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    volatile unsigned *sum = payload;

    (void)err;
    if (count == 0)
        __builtin_trap();
    for (size_t i = 0; i < count; i++)
        if (cells[i].kind == MSP_CELL_TEXT)
            for (size_t k = 0; k < cells[i].as.text.len; k++)
                *sum += (unsigned char)cells[i].as.text.p[k];
    return MSP_OK;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned sum = 0;
    const msp_table_sink sink = {touch, touch, &sum};
    msp_error err;

    if (msp_csv_read((const char *)data, size, &sink, &err) != MSP_OK && err.message[0] == '\0')
        __builtin_trap();
    return 0;
}
