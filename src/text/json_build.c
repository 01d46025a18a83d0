/* json_build.c - see json_build.h. */
#include "text/json_build.h"

#include <stdint.h>
#include <string.h>
#include "core/alloc.h"
#include "core/vec.h"

/* Half of what readers may take beyond the size of a file: those that stand on this one need some themselves. */
size_t
msp_json_extra(void)
{
    return msp_reader_extra() / 2;
}

/* A quarter stays for the arena's last chunk, the root and the parser itself. */
void
msp_json_builder_init(msp_json_builder *b, size_t size)
{
    if (__builtin_add_overflow(size, msp_json_extra() / 4 * 3, &b->limit))
        b->limit = SIZE_MAX;
}

static bool
can_afford(msp_json_builder *b, size_t n, size_t size)
{
    size_t more, used = b->arena.reserved + b->cap * sizeof(*b->nodes);

    if (__builtin_mul_overflow(n, size, &more) || more > b->limit || used > b->limit - more)
        b->over = true;
    return !b->over;
}

bool
msp_json_builder_grow(msp_json_builder *b)
{
    msp_json *own = NULL;
    size_t cap = 0;

    if (!can_afford(b, b->cap / 2, sizeof(*b->nodes)))
        return false;
    if (b->lent == NULL)
        return msp_vec_grow((void **)&b->nodes, &b->cap, b->n + 1, sizeof(*b->nodes));
    if (!msp_vec_grow((void **)&own, &cap, 2 * b->cap, sizeof(*own)))
        return false;
    memcpy(own, b->nodes, b->n * sizeof(*own));
    b->nodes = own;
    b->cap = cap;
    b->lent = NULL;
    return true;
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
    items = can_afford(b, n, sizeof(*items)) ? msp_arena_alloc(&b->arena, n, sizeof(*items)) : NULL;
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
msp_json_copied(msp_json_builder *b, msp_json_kind kind, uint64_t offset, const char *text, size_t len)
{
    char *p = can_afford(b, 1, sizeof(offset) + len) ? msp_arena_alloc(&b->arena, 1, sizeof(offset) + len) : NULL;
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
    if (b->lent == NULL)
        msp_free(b->nodes);
    msp_arena_release(&b->arena);
}
