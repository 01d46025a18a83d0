/*
 * json_build.h - puts values together: what the JSON and the YAML reader have in common.
 *
 * Values of containers that are still open wait on one stack, a container in front of its items; closing a container
 * moves its items into the arena as one block. So memory is the tree plus the items of what is open, and nothing
 * recurses. What it may come to is limited; a function that fails has either reached the limit (over) or found no
 * memory.
 */
#ifndef MSP_JSON_JSON_BUILD_H
#define MSP_JSON_JSON_BUILD_H

#include "core/arena.h"
#include "text/json_node.h"

typedef struct msp_json_builder {
    msp_arena arena;
    msp_json *nodes; /* the stack */
    msp_json *lent;  /* the caller's memory with which it began, or NULL */
    size_t n, cap;
    size_t limit; /* bytes that arena and stack may take together */
    bool over;    /* it was reached */
    int depth;
    size_t first[MSP_JSON_MAX_DEPTH]; /* per open container: where its items begin; it stands right before them */
} msp_json_builder;

/* The bytes that a tree may take beyond the size of its text: 128 MiB. */
size_t msp_json_extra(void);

/* Set the limit of a builder that is zeroed or lent, for a text of this size. */
void msp_json_builder_init(msp_json_builder *b, size_t size);

/*
 * Begin with the stack in the caller's memory, which must stay until the builder is released. Sets everything but
 * first, whose zeros would cost as much as parsing a short text. A zeroed builder needs no such call.
 */
static inline void
json_builder_lend(msp_json_builder *b, msp_json *room, size_t cap)
{
    b->arena = (msp_arena){0};
    b->nodes = b->lent = room;
    b->n = 0;
    b->cap = cap;
    b->limit = 0;
    b->over = false;
    b->depth = 0;
}

/* Slow path of json_push(). */
bool msp_json_builder_grow(msp_json_builder *b);

/* Add one value. */
static inline bool
json_push(msp_json_builder *b, msp_json node)
{
    if (b->n == b->cap && !msp_json_builder_grow(b))
        return false;
    b->nodes[b->n++] = node;
    return true;
}

/* Add an empty container and make it the innermost open one. The caller keeps depth below MSP_JSON_MAX_DEPTH. */
static inline bool
json_open(msp_json_builder *b, msp_json node)
{
    if (!json_push(b, node))
        return false;
    b->first[b->depth++] = b->n;
    return true;
}

/* The innermost open container; there must be one. */
static inline msp_json *
json_innermost(const msp_json_builder *b)
{
    return &b->nodes[b->first[b->depth - 1] - 1];
}

/* Close the innermost container. */
MSP_CHECK bool msp_json_builder_close(msp_json_builder *b);

/* The value at the bottom of the stack, moved into the arena; NULL when there is no memory. Nothing may be open. */
const msp_json *msp_json_builder_root(msp_json_builder *b);

/* A copy of len bytes that begins at this byte of the text, as a node with its flag set; u.text NULL: it failed. */
msp_json msp_json_copied(msp_json_builder *b, msp_json_kind kind, uint64_t offset, const char *text, size_t len);

/* What the limit is, for messages: "its 12 bytes and 128 MiB". */
#define MSP_JSON_OVER_TEXT "the values up to here take more memory than the size of the text (%zu bytes) and %zu MiB"

/* Free stack and arena. */
void msp_json_builder_release(msp_json_builder *b);

#endif
