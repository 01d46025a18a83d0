/* json_data.h - for the tests of src/json: files of tests/data/json. */
#ifndef MSP_TESTS_JSON_DATA_H
#define MSP_TESTS_JSON_DATA_H

#include "unit.h"
#include "core/alloc.h"
#include "core/file.h"
#include "json_equal.h"

/* A file of tests/data/json; msp_free() gives it back. */
static inline msp_str
read_data(const char *name)
{
    char path[512], *text = NULL;
    size_t size = 0;
    msp_error err;

    snprintf(path, sizeof(path), "%s/json/%s", MSP_TEST_DATA, name);
    if (msp_file_read(&text, &size, path, 1 << 20, &err) != MSP_OK)
        fail_msg("%s", err.message);
    return (msp_str){text, size};
}

static inline msp_json_doc
parse_data(const char *name, msp_str *text)
{
    msp_json_doc doc;
    msp_error err;

    *text = read_data(name);
    if (msp_json_parse(&doc, text->p, text->len, &err) != MSP_OK)
        fail_msg("%s: %s", name, err.message);
    return doc;
}

/* The value as text, in one of two rotating buffers. */
static inline const char *
written(const msp_json *v, int indent)
{
    static msp_buf bufs[2];
    static unsigned next;
    msp_buf *b = &bufs[next++ % 2];
    msp_json_writer w;

    msp_buf_clear(b);
    msp_json_writer_init(&w, b, indent);
    msp_json_write_value(&w, v);
    assert_false(b->failed);
    return b->p;
}

#endif
