/* fuzz_yaml.c - a YAML text that parses is a value that JSON can write, and read again as the same value. */
#include <stdint.h>

#include "text/yaml.h"
#include "json_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    msp_json_doc doc;
    msp_error err;

    if (msp_yaml_parse(&doc, (const char *)data, size, &err) != MSP_OK) {
        CHECK(err.message[0] != '\0' && doc.root == NULL);
        return 0;
    }
    if (doc.root != NULL) {
        check_written(doc.root, -1);
        ask_everything(&doc, doc.root, (const char *)data);
    }
    msp_json_doc_release(&doc);
    return 0;
}
