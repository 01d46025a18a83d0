/* fuzz_ut_versus.c - any bytes as the details of two devices: those before the first NUL, and those behind it; without
 * one, the same ones. */
#include <stdint.h>
#include <string.h>
#include "core/log.h"
#include "precheck/read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size > 0 ? memchr(data, 0, size) : NULL;
    size_t first = end == NULL ? size : (size_t)(end - data);
    msp_str npu = {(const char *)data, first}, gpu = npu;
    static msp_precheck_versus versus;
    msp_error err;

    msp_log_set_sink(MSP_LOG_NONE, NULL, NULL);
    if (end != NULL)
        gpu = (msp_str){(const char *)end + 1, size - first - 1};
    if (msp_precheck_compare_texts(&versus, npu, gpu, &err) != MSP_OK && err.message[0] == '\0')
        __builtin_trap();
    return 0;
}
