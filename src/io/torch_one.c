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
take(cursor *c, size_t n)
{
    const unsigned char *p = c->p;

    if (p == NULL || (size_t)(c->end - p) < n) {
        c->p = NULL;
        return NULL;
    }
    c->p += n;
    return p;
}

static void
expect(cursor *c, msp_str text)
{
    const unsigned char *p = take(c, text.len);

    if (p != NULL && memcmp(p, text.p, text.len) != 0)
        c->p = NULL;
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
    const unsigned char *put = next_is(c, 'q') ? take(c, 2) : NULL;

    if (put != NULL && put[1] > c->size)
        c->p = NULL;
}

/* BINUNICODE */
static msp_str
take_text(cursor *c)
{
    const unsigned char *head = take(c, 5), *p;
    size_t n;

    if (head == NULL || head[0] != 'X') {
        c->p = NULL;
        return (msp_str){0};
    }
    n = load_u32(head + 1);
    p = take(c, n);
    skip_put(c);
    return p == NULL ? (msp_str){0} : (msp_str){(const char *)p, n};
}

/* BININT1, BININT2, BININT, or LONG1 of eight bytes */
static int64_t
take_int(cursor *c)
{
    const unsigned char *op = take(c, 1), *p;

    switch (op == NULL ? 0 : *op) {
    case 'K':
        return (p = take(c, 1)) == NULL ? 0 : *p;
    case 'M':
        return (p = take(c, 2)) == NULL ? 0 : load_u16(p);
    case 'J':
        return (p = take(c, 4)) == NULL ? 0 : (int32_t)load_u32(p);
    case 0x8a:
        p = take(c, 9);
        if (p != NULL && *p == 8)
            return (int64_t)load_u64(p + 1);
        /* fall through */
    default:
        c->p = NULL;
        return 0;
    }
}

/* A tuple of integers: EMPTY_TUPLE, TUPLE1 to TUPLE3 behind so many of them, or TUPLE behind a mark and any number. */
static uint32_t
take_dims(cursor *c, int64_t dims[MSP_MAX_NDIM])
{
    bool mark = next_is(c, '(');
    uint32_t n = 0;

    if (next_is(c, ')')) {
        (void)take(c, 1);
        return 0;
    }
    if (mark)
        (void)take(c, 1);
    while (c->p != NULL && n < MSP_MAX_NDIM && !next_is(c, mark ? 't' : (unsigned char)(0x84 + n)))
        dims[n++] = take_int(c);
    if (!next_is(c, mark ? 't' : (unsigned char)(0x84 + n)) || (!mark && (n == 0 || n > 3)))
        c->p = NULL;
    (void)take(c, 1);
    skip_put(c);
    return n;
}

/* "c" module "\n" name "\n" for a class of module torch; only the name is wanted. */
static msp_str
take_torch_name(cursor *c)
{
    const unsigned char *start, *end;

    expect(c, MSP_STR("ctorch\n"));
    start = c->p;
    end = start == NULL ? NULL : memchr(start, '\n', (size_t)(c->end - start));
    c->p = end == NULL ? NULL : end + 1;
    skip_put(c);
    return end == NULL ? (msp_str){0} : (msp_str){(const char *)start, (size_t)(end - start)};
}

static void
take_storage(msp_torch_one *out, cursor *c)
{
    expect(c, MSP_STR("("));
    if (!msp_str_eq(take_text(c), MSP_STR("storage")))
        c->p = NULL;
    out->storage = take_torch_name(c);
    out->key = take_text(c);
    (void)take_text(c); /* the device that it was on */
    out->storage_numel = take_int(c);
    expect(c, MSP_STR("t"));
    skip_put(c);
    expect(c, MSP_STR("Q"));
}

bool
msp_torch_one_read(msp_torch_one *out, const void *bytes, size_t size)
{
    cursor c = {bytes, (const unsigned char *)bytes + size, size};
    const unsigned char *flag;

    expect(&c, MSP_STR("\x80\x02"
                       "ctorch._utils\n_rebuild_tensor_v2\n"));
    skip_put(&c);
    expect(&c, MSP_STR("("));
    take_storage(out, &c);
    out->offset = take_int(&c);
    out->nshape = take_dims(&c, out->shape);
    out->nstrides = take_dims(&c, out->strides);
    flag = take(&c, 1);
    if (flag == NULL || (*flag != 0x88 && *flag != 0x89)) /* NEWTRUE, NEWFALSE */
        return false;
    out->requires_grad = *flag == 0x88;
    expect(&c, MSP_STR("ccollections\nOrderedDict\n"));
    skip_put(&c);
    expect(&c, MSP_STR(")R"));
    skip_put(&c);
    expect(&c, MSP_STR("t"));
    skip_put(&c);
    expect(&c, MSP_STR("R"));
    skip_put(&c);
    expect(&c, MSP_STR("."));
    out->used = c.p == NULL ? 0 : (size_t)(c.p - (const unsigned char *)bytes);
    return c.p != NULL;
}
