/* json_build.c - see json_build.h. */
#include "json/json_build.h"

#include <string.h>
#include "core/alloc.h"
#include "core/vec.h"

bool
msp_json_builder_grow(msp_json_builder *b)
{
    return msp_vec_grow((void **)&b->nodes, &b->cap, b->n + 1, sizeof(*b->nodes));
}

bool
msp_json_builder_close(msp_json_builder *b)
{
    msp_json *container = json_innermost(b);
    size_t n = b->n - b->first[b->depth - 1];
    msp_json *items;

    b->depth--;
    if (n == 0)
        return true; /* it goes on saying where it begins */
    items = msp_arena_alloc(&b->arena, n, sizeof(*items));
    if (items == NULL)
        return false;
    memcpy(items, container + 1, n * sizeof(*items));
    b->n -= n;
    container->u.items = items;
    if (node_kind(container) == MSP_JSON_OBJECT)
        n /= 2;
    container->word |= (uint64_t)n << NODE_SHIFT;
    return true;
}

const msp_json *
msp_json_builder_root(msp_json_builder *b)
{
    msp_json *root = msp_arena_alloc(&b->arena, 1, sizeof(*root));

    if (root != NULL)
        *root = b->nodes[0];
    return root;
}

msp_json
msp_json_copied(msp_arena *a, msp_json_kind kind, uint64_t offset, const char *text, size_t len)
{
    char *p = msp_arena_alloc(a, 1, sizeof(offset) + len);
    msp_json node;

    if (p == NULL)
        return (msp_json){0};
    memcpy(p, &offset, sizeof(offset));
    if (len > 0)
        memcpy(p + sizeof(offset), text, len);
    node = node_of_text(kind, p + sizeof(offset), len);
    node.word |= NODE_FLAG;
    return node;
}

void
msp_json_builder_release(msp_json_builder *b)
{
    msp_free(b->nodes);
    msp_arena_release(&b->arena);
}
