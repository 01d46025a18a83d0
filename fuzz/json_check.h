/* json_check.h - for the JSON and YAML targets: what is written reads back. */
#ifndef MSP_FUZZ_JSON_CHECK_H
#define MSP_FUZZ_JSON_CHECK_H

#include "check.h"

#include "../tests/unit/json_equal.h"

/* What is written reads back as the same value, and numbers convert. */
static inline void
check_written(const msp_json *v, int indent)
{
    msp_json_writer w;
    msp_json_doc again;
    msp_buf text = {0};

    msp_json_writer_init(&w, &text, indent);
    msp_json_write_value(&w, v);
    CHECK(!text.failed);
    CHECK(msp_json_parse(&again, text.p, text.len, NULL) == MSP_OK);
    CHECK(values_equal(v, again.root));
    msp_json_doc_release(&again);
    msp_buf_release(&text);
}

/* The last member is found by its key. */
static inline void
check_get(const msp_json *v, size_t last)
{
    msp_str key = msp_json_key(v, last);
    char *name = key.len > 0 && memchr(key.p, '\0', key.len) != NULL ? NULL : strndup(key.p, key.len);

    if (name != NULL)
        CHECK(msp_json_get(v, name) == msp_json_at(v, last));
    free(name);
}

/* Every question that can be asked about a value and its first and last items. */
static inline void
ask_everything(const msp_json_doc *doc, const msp_json *v, const char *text)
{
    size_t line, column, n = msp_json_count(v);
    int64_t i;
    double d;

    msp_json_position(doc, v, text, &line, &column);
    CHECK(line >= 1 && column >= 1);
    msp_json_to_i64(v, &i);
    CHECK(msp_json_to_f64(v, &d) == (msp_json_number_text(v).len > 0));
    CHECK(msp_json_at(v, n) == NULL && msp_json_key(v, n).p == NULL);
    if (n > 0 && msp_json_kind_of(v) == MSP_JSON_OBJECT)
        check_get(v, n - 1);
    if (n > 0)
        ask_everything(doc, msp_json_at(v, 0), text);
    if (n > 1)
        ask_everything(doc, msp_json_at(v, n - 1), text);
}

#endif
