/* fuzz_npy.c - any bytes as a NumPy file. */
#include <stdint.h>
#include "touch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    touch_file(data, size);
    return 0;
}
