/* fuzz_zip.c - any bytes as an archive: open it, find and read every entry. */
#include <stdint.h>
#include "core/alloc.h"
#include "io/zip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    msp_error err;
    msp_zip z;

    if (msp_zip_open(&z, data, size, &err) != MSP_OK)
        return 0;
    for (size_t i = 0; i < z.count; i++) {
        char *p;

        if (msp_zip_find(&z, msp_zip_name(&z.entries[i])) != &z.entries[i])
            __builtin_trap();
        if (msp_zip_read(&p, &z, &z.entries[i], 1 << 24, &err) == MSP_OK && p[z.entries[i].size] != '\0')
            __builtin_trap();
        msp_free(p);
    }
    msp_zip_close(&z);
    return 0;
}
