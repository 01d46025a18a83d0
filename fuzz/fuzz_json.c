/*
 * fuzz_json.c - a text that parses is written back and read again as the same value; cut anywhere it is recovered; and
 * recovery agrees with parsing on whole texts.
 */
#include <stdint.h>

#include "json_check.h"

static void
check_recovery(const char *text, size_t size, int keep_depth)
{
    msp_json_doc doc;
    msp_error err;

    if (msp_json_parse_recover(&doc, text, size, keep_depth, &err) != MSP_OK) {
        CHECK(err.message[0] != '\0' && doc.root == NULL);
        return;
    }
    CHECK(doc.cut_at <= size);
    if (doc.root != NULL)
        check_written(doc.root, -1);
    msp_json_doc_release(&doc);
}

static void
check_cut(const char *text, size_t size)
{
    char *part = malloc(size + 1);
    msp_json_doc doc;

    if (part == NULL)
        return;
    memcpy(part, text, size);
    CHECK(msp_json_parse_recover(&doc, part, size, (int)(size % 4), NULL) == MSP_OK);
    if (doc.root != NULL)
        check_written(doc.root, -1);
    msp_json_doc_release(&doc);
    free(part);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    msp_json_doc doc, same;
    msp_error err;

    check_recovery(text, size, size % 3);
    if (msp_json_parse(&doc, text, size, &err) != MSP_OK) {
        CHECK(err.message[0] != '\0' && doc.root == NULL);
        return 0;
    }
    check_written(doc.root, -1);
    check_written(doc.root, 1);
    ask_everything(&doc, doc.root, text);
    CHECK(msp_json_parse_recover(&same, text, size, 1, NULL) == MSP_OK);
    CHECK(!same.cut && values_equal(doc.root, same.root));
    msp_json_doc_release(&same);
    check_cut(text, size / 2);
    check_cut(text, size - 1);
    check_cut(text, (size * 31 + data[0]) % size);
    msp_json_doc_release(&doc);
    return 0;
}
