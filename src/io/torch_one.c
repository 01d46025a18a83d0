/* torch_one.c - see torch_one.h. */
#include "io/torch_one.h"

#include "io/bytes.h"

/* What is left of the pickle; p is NULL once something else stood there than was expected. */
typedef struct cursor {
    const unsigned char *p, *end;
    size_t size;
} cursor;

/* The next n bytes, passed, or NULL. */
static const unsigned char *
take_bytes(cursor *c, size_t n)
{
    const unsigned char *p = c->p;

    if (p == NULL || (size_t)(c->end - p) < n) {
        c->p = NULL;
        return NULL;
    }
    c->p += n;
    return p;
}

#define EXPECT(c, literal) expect_bytes(c, literal, sizeof(literal) - 1)

/* Inline, so that the compiler knows what it compares with. */
static inline void
expect_bytes(cursor *c, const char *text, size_t n)
{
    if (c->p == NULL || (size_t)(c->end - c->p) < n || memcmp(c->p, text, n) != 0)
        c->p = NULL;
    else
        c->p += n;
}

static bool
next_is(const cursor *c, unsigned char op)
{
    return c->p != NULL && c->p < c->end && *c->p == op;
}

/* BINPUT: nothing here is asked for again. The machine refuses numbers that no pickle of this size can have. */
static void
skip_put(cursor *c)
{
    const unsigned char *put = next_is(c, 'q') ? take_bytes(c, 2) : NULL;

    if (put != NULL && put[1] > c->size)
        c->p = NULL;
}

/* BINUNICODE */
static msp_str
take_text(cursor *c)
{
    const unsigned char *head = take_bytes(c, 5), *p;
    size_t n;

    if (head == NULL || head[0] != 'X') {
        c->p = NULL;
        return (msp_str){0};
    }
    n = load_u32(head + 1);
    p = take_bytes(c, n);
    skip_put(c);
    return p == NULL ? (msp_str){0} : (msp_str){(const char *)p, n};
}

/* BININT1, BININT2, BININT, or LONG1 of eight bytes */
static int64_t
take_int(cursor *c)
{
    const unsigned char *op = take_bytes(c, 1), *p;

    switch (op == NULL ? 0 : *op) {
    case 'K':
        return (p = take_bytes(c, 1)) == NULL ? 0 : *p;
    case 'M':
        return (p = take_bytes(c, 2)) == NULL ? 0 : load_u16(p);
    case 'J':
        return (p = take_bytes(c, 4)) == NULL ? 0 : (int32_t)load_u32(p);
    case 0x8a:
        p = take_bytes(c, 9);
        if (p != NULL && *p == 8)
            return (int64_t)load_u64(p + 1);
        /* fall through */
    default:
        c->p = NULL;
        return 0;
    }
}

/*
 * A tuple of integers that are not negative: EMPTY_TUPLE, TUPLE1 to TUPLE3 behind so many of them, or TUPLE behind a
 * mark and any number.
 */
static int32_t
take_dims(cursor *c, int64_t dims[MSP_MAX_NDIM])
{
    bool mark = next_is(c, '(');
    int32_t n = 0;

    if (next_is(c, ')')) {
        c->p++;
        return 0;
    }
    if (mark)
        c->p++;
    while (c->p != NULL && n < MSP_MAX_NDIM && !next_is(c, (unsigned char)(mark ? 't' : 0x84 + n))) {
        dims[n] = take_int(c);
        if (dims[n++] < 0)
            c->p = NULL;
    }
    if (!next_is(c, (unsigned char)(mark ? 't' : 0x84 + n)) || (!mark && (n == 0 || n > 3)))
        c->p = NULL;
    (void)take_bytes(c, 1);
    skip_put(c);
    return n;
}

/* "c" module "\n" name "\n" for a class of module torch; only the name is wanted. */
static msp_str
take_torch_name(cursor *c)
{
    const unsigned char *start, *end;

    EXPECT(c, "ctorch\n");
    start = c->p;
    end = start == NULL ? NULL : memchr(start, '\n', (size_t)(c->end - start));
    c->p = end == NULL ? NULL : end + 1;
    skip_put(c);
    return end == NULL ? (msp_str){0} : (msp_str){(const char *)start, (size_t)(end - start)};
}

/* Returns the number of elements. */
static int64_t
take_storage(msp_torch_blob *out, cursor *c)
{
    int64_t numel;

    EXPECT(c, "(X\x07\0\0\0storage");
    skip_put(c);
    out->dtype = msp_torch_storage_dtype(take_torch_name(c));
    out->key = take_text(c);
    (void)take_text(c); /* the device that it was on */
    numel = take_int(c);
    EXPECT(c, "t");
    skip_put(c);
    EXPECT(c, "Q");
    return numel;
}

/* What stands behind the sizes and strides; returns requires_grad. */
static bool
take_rest(cursor *c)
{
    bool flag = next_is(c, 0x88); /* NEWTRUE */

    if (flag || next_is(c, 0x89))
        c->p++;
    else
        c->p = NULL;
    EXPECT(c, "ccollections\nOrderedDict\n");
    skip_put(c);
    EXPECT(c, ")R");
    skip_put(c);
    EXPECT(c, "t");
    skip_put(c);
    EXPECT(c, "R");
    skip_put(c);
    EXPECT(c, ".");
    return flag;
}

bool
msp_torch_one_read(msp_torch_one *out, const void *bytes, size_t size)
{
    cursor c = {bytes, (const unsigned char *)bytes + size, size};
    msp_torch_tensor *t = &out->tensor;
    msp_torch_blob *b = &out->blob;
    int64_t numel, offset;

    *t = (msp_torch_tensor){.blob = b, .shape = out->shape, .strides = out->strides};
    *b = (msp_torch_blob){0};
    EXPECT(&c, "\x80\x02"
               "ctorch._utils\n_rebuild_tensor_v2\n");
    skip_put(&c);
    EXPECT(&c, "(");
    numel = take_storage(b, &c);
    offset = take_int(&c);
    t->dtype = b->dtype;
    t->ndim = take_dims(&c, out->shape);
    if (take_dims(&c, out->strides) != t->ndim)
        return false;
    t->requires_grad = take_rest(&c);
    return c.p != NULL && b->dtype != MSP_DTYPE_NONE && numel >= 0 && offset >= 0 && b->key.len <= MSP_TORCH_KEY_MAX &&
           !__builtin_mul_overflow((uint64_t)numel, msp_dtype_size(b->dtype), &b->need) &&
           msp_torch_place(t, (uint64_t)offset, (uint64_t)numel, NULL) == MSP_OK;
}
