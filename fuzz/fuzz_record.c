/* fuzz_record.c - a record's tokens as JSON: the ring of a killed process is input like any other. */
#include <stdint.h>
#include <stdlib.h>
#include "collect/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    record_reader r = {data, data + size, false};
    msp_json_writer w;
    msp_json_doc doc;
    msp_buf out = {0};

    msp_json_writer_init(&w, &out, 1);
    if (msp_record_to_json(&r, &w)) {
        if (msp_json_parse(&doc, out.p, out.len, NULL) != MSP_OK)
            abort(); /* whatever is accepted must be valid JSON */
        msp_json_doc_release(&doc);
    }
    msp_buf_release(&out);
    return 0;
}
