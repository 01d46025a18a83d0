/* json_value.c - questions about values: see json.h. */
#include "text/json_node.h"
#include "text/utf8.h"

msp_json_kind
msp_json_kind_of(const msp_json *v)
{
    return v == NULL ? MSP_JSON_NULL : node_kind(v);
}

static bool
is_kind(const msp_json *v, msp_json_kind kind)
{
    return v != NULL && node_kind(v) == kind;
}

size_t
msp_json_count(const msp_json *v)
{
    return is_kind(v, MSP_JSON_ARRAY) || is_kind(v, MSP_JSON_OBJECT) ? node_len(v) : 0;
}

const msp_json *
msp_json_at(const msp_json *v, size_t i)
{
    if (i >= msp_json_count(v))
        return NULL;
    return node_kind(v) == MSP_JSON_ARRAY ? &v->u.items[i] : &v->u.items[2 * i + 1];
}

msp_str
msp_json_key(const msp_json *v, size_t i)
{
    if (!is_kind(v, MSP_JSON_OBJECT) || i >= node_len(v))
        return (msp_str){0};
    return node_text(&v->u.items[2 * i]);
}

const msp_json *
msp_json_get(const msp_json *v, const char *key)
{
    msp_str wanted = msp_str_of(key);

    if (!is_kind(v, MSP_JSON_OBJECT))
        return NULL;
    for (size_t i = node_len(v); i-- > 0;)
        if (msp_str_eq(node_text(&v->u.items[2 * i]), wanted))
            return &v->u.items[2 * i + 1];
    return NULL;
}

msp_str
msp_json_string(const msp_json *v)
{
    return is_kind(v, MSP_JSON_STRING) ? node_text(v) : (msp_str){0};
}

msp_str
msp_json_number_text(const msp_json *v)
{
    return is_kind(v, MSP_JSON_INT) || is_kind(v, MSP_JSON_FLOAT) ? node_text(v) : (msp_str){0};
}

bool
msp_json_to_i64(const msp_json *v, int64_t *out)
{
    return is_kind(v, MSP_JSON_INT) && msp_i64_parse(node_text(v), out);
}

bool
msp_json_to_f64(const msp_json *v, double *out)
{
    msp_str text = msp_json_number_text(v);

    return text.len > 0 && msp_f64_parse(text, out);
}

static size_t
offset_of(const msp_json *v, const char *text)
{
    size_t offset, brackets = 0;

    while (msp_json_count(v) > 0) {
        brackets += !node_flag(v);
        v = &v->u.items[0];
    }
    offset = node_offset(v, text);
    while (brackets > 0 && offset > 0) {
        offset--;
        brackets -= text[offset] == '{' || text[offset] == '[';
    }
    return offset;
}

void
msp_json_position(const msp_json_doc *doc, const msp_json *v, const char *text, size_t *line, size_t *column)
{
    (void)doc;
    msp_utf8_locate(text, v == NULL ? 0 : offset_of(v, text), line, column);
}
