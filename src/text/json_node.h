/*
 * json_node.h - how a value lies in memory: 16 bytes, whatever it is.
 *
 * word is (n << 4) | flag << 3 | kind. What u and n are depends on the kind:
 *
 *     string, number   the text and its length. Flag clear: a view into the text that was parsed, a string's without
 *                      its quotes. Flag set: a copy in the arena, with a uint64_t in front of it that says at which
 *                      byte of the text the value begins.
 *     array            n elements, one after the other.
 *     object           n members, 2n nodes: key, value, key, value, ... Keys are string nodes.
 *     all others       the byte at which the value begins; n is 0. These are null, bool, an array or object without
 *                      items, and one that is still being read.
 *
 * A container with items does not know where it begins. In JSON its first item does: the bracket stands before that,
 * with only white space between. In YAML there need not be one: a container with its flag set begins at its first item.
 */
#ifndef MSP_JSON_JSON_NODE_H
#define MSP_JSON_JSON_NODE_H

#include "text/json.h"

struct msp_json {
    union {
        const char *text;
        const msp_json *items;
        uint64_t offset;
    } u;
    uint64_t word;
};

enum { NODE_KIND_BITS = 3, NODE_FLAG = 1 << NODE_KIND_BITS, NODE_KIND_MASK = NODE_FLAG - 1, NODE_SHIFT = 4 };

static inline msp_json
node_of_text(msp_json_kind kind, const char *text, size_t len)
{
    return (msp_json){{.text = text}, (uint64_t)len << NODE_SHIFT | (unsigned)kind};
}

static inline msp_json
node_at(msp_json_kind kind, uint64_t offset)
{
    return (msp_json){{.offset = offset}, (unsigned)kind};
}

static inline msp_json_kind
node_kind(const msp_json *v)
{
    return (msp_json_kind)(v->word & NODE_KIND_MASK);
}

static inline bool
node_flag(const msp_json *v)
{
    return (v->word & NODE_FLAG) != 0;
}

static inline size_t
node_len(const msp_json *v)
{
    return (size_t)(v->word >> NODE_SHIFT);
}

static inline msp_str
node_text(const msp_json *v)
{
    return (msp_str){v->u.text, node_len(v)};
}

/* Strings and numbers. */
static inline bool
node_has_text(const msp_json *v)
{
    msp_json_kind kind = node_kind(v);

    return kind == MSP_JSON_STRING || kind == MSP_JSON_INT || kind == MSP_JSON_FLOAT;
}

/* The byte of the text at which a value begins that is not a container with items. */
static inline size_t
node_offset(const msp_json *v, const char *text)
{
    uint64_t offset = v->u.offset;

    if (!node_has_text(v))
        return (size_t)offset;
    if (node_flag(v))
        memcpy(&offset, v->u.text - sizeof(offset), sizeof(offset));
    else
        offset = (uint64_t)(v->u.text - text) - (node_kind(v) == MSP_JSON_STRING); /* its quote */
    return (size_t)offset;
}

#endif
