/* json_equal.h - the same value, for unit tests and fuzz targets. */
#ifndef MSP_TESTS_JSON_EQUAL_H
#define MSP_TESTS_JSON_EQUAL_H

#include "text/json.h"

/* Same kinds, texts, keys and order. */
static inline bool
values_equal(const msp_json *a, const msp_json *b)
{
    if (msp_json_kind_of(a) != msp_json_kind_of(b) || msp_json_count(a) != msp_json_count(b) ||
        !msp_str_eq(msp_json_string(a), msp_json_string(b)) ||
        !msp_str_eq(msp_json_number_text(a), msp_json_number_text(b)))
        return false;
    for (size_t i = 0; i < msp_json_count(a); i++)
        if (!msp_str_eq(msp_json_key(a, i), msp_json_key(b, i)) || !values_equal(msp_json_at(a, i), msp_json_at(b, i)))
            return false;
    return true;
}

#endif
