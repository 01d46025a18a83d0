/* tensor_file.c - files of tensors, whatever their format: recognised by content, opened, listed, closed. */
#include "io/tensor_file.h"

#include <fcntl.h>
#include "core/alloc.h"
#include "core/vec.h"
#include "io/bytes.h"

/* ---- what readers use ------------------------------------------------------------------------------------------- */

msp_status
msp_tensor_file_new_view(msp_tensor **out, msp_tensor_file *f, msp_error *err)
{
    void *p;
    msp_status st = msp_budget_alloc(&p, &f->budget, 1, sizeof(**out), err);

    *out = p;
    return st;
}

/* Room for one more; the first stands in the handle itself. */
static bool
grow_items(msp_tensor_file *f)
{
    msp_tensor_item *many = NULL;

    if (f->count == 0 && f->cap == 0) {
        f->items = &f->first;
        f->cap = 1;
    }
    if (f->count < f->cap)
        return true;
    if (f->items != &f->first)
        return msp_vec_grow((void **)&f->items, &f->cap, f->count + 1, sizeof(*f->items));
    f->cap = 0;
    if (!msp_vec_grow((void **)&many, &f->cap, f->count + 1, sizeof(*many)))
        return false;
    many[0] = f->first;
    f->items = many;
    return true;
}

msp_status
msp_tensor_file_add(msp_tensor_file *f, msp_str name, const msp_tensor *t, msp_error *err)
{
    msp_status st = msp_budget_spend(&f->budget, 1, name.len + 16 + 2 * sizeof(*f->items), err);
    char *text;

    if (st != MSP_OK)
        return st;
    if (name.len > 0 && memchr(name.p, '\0', name.len) != NULL)
        return msp_error_set(err, MSP_E_FORMAT, "the name of tensor %zu has a 0 byte in it", f->count);
    text = msp_arena_text(&f->budget.arena, name.p, name.len);
    if (text == NULL || !grow_items(f))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    f->items[f->count++] = (msp_tensor_item){text, t};
    return MSP_OK;
}

msp_status
msp_tensor_file_copy_room(void **out, msp_tensor_file *f, size_t n, msp_error *err)
{
    msp_status st = msp_budget_spend(&f->budget, 1, 2 * sizeof(*f->copies), err);

    *out = NULL;
    if (st == MSP_OK)
        st = msp_budget_spend(&f->budget, n, 1, err);
    if (st != MSP_OK)
        return st;
    if (!msp_vec_grow((void **)&f->copies, &f->copies_cap, f->ncopies + 1, sizeof(*f->copies)) ||
        (*out = msp_alloc(n, 1)) == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory for a copy of %zu bytes", n);
    f->copies[f->ncopies++] = *out;
    return MSP_OK;
}

void
msp_swap_copy(void *to, const void *from, size_t n, unsigned width)
{
    const unsigned char *in = from;
    unsigned char *out = to;

    for (; n >= width; n -= width, in += width, out += width)
        for (unsigned k = 0; k < width; k++)
            out[k] = in[width - 1 - k];
    if (n > 0)
        memcpy(out, in, n);
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

typedef msp_status parser(msp_tensor_file *f, const void *bytes, size_t size, msp_error *err);

static msp_status
refuse_file(msp_tensor_file *f, const void *bytes, size_t size, msp_error *err)
{
    (void)f, (void)bytes;
    if (size == 0)
        return msp_error_set(err, MSP_E_FORMAT, "the file is empty");
    return msp_error_set(err, MSP_E_FORMAT,
                         "neither .npy nor .pt nor .safetensors: the first bytes are of none of them");
}

static parser *
parser_of(const void *bytes, size_t size)
{
    if (msp_npy_is(bytes, size))
        return msp_npy_parse;
    if (msp_safetensors_is(bytes, size)) /* before .pt: a header of 640 bytes begins as a pickle does */
        return msp_safetensors_parse;
    return msp_pt_is(bytes, size) ? msp_pt_parse : refuse_file;
}

static msp_status
parse_any(msp_tensor_file *f, const void *bytes, size_t size, msp_error *err)
{
    return parser_of(bytes, size)(f, bytes, size, err);
}

enum { ROOM = 4096 }; /* torch makes 1.5 KB of a scalar */

static msp_status
new_file(msp_tensor_file **out, size_t room, msp_error *err)
{
    *out = msp_alloc(1, sizeof(**out) + room);
    if (*out == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    memset(*out, 0, offsetof(msp_tensor_file, lent));
    return MSP_OK;
}

static msp_status
parse_with(msp_tensor_file *f, const void *bytes, size_t size, parser *parse, msp_error *err)
{
    msp_budget_init(&f->budget, size);
    msp_arena_lend(&f->budget.arena, f->lent, sizeof(f->lent));
    return parse(f, bytes, size, err);
}

static msp_status
open_with(msp_tensor_file **out, int dir, const char *path, parser *parse, msp_error *err)
{
    msp_tensor_file *f;
    msp_status st;

    *out = NULL;
    st = new_file(&f, ROOM, err);
    if (st != MSP_OK)
        return msp_error_prefix(err, st, "%s: ", path);
    st = msp_map_open_in(&f->map, f->room, ROOM, dir, path, err); /* its message names the path */
    if (st == MSP_OK) {
        st = parse_with(f, f->map.addr, f->map.size, parse, err);
        if (st != MSP_OK)
            st = msp_map_blame(&f->map, dir, path, msp_error_prefix(err, st, "%s: ", path), err);
    }
    if (st == MSP_OK)
        *out = f;
    else
        msp_tensor_file_close(f);
    return st;
}

msp_status
msp_tensor_file_open(msp_tensor_file **out, const char *path, msp_error *err)
{
    return open_with(out, AT_FDCWD, path, parse_any, err);
}

static msp_status
parse_new(msp_tensor_file **out, const void *bytes, size_t size, parser *parse, msp_error *err)
{
    msp_status st = new_file(out, 0, err);

    if (st == MSP_OK)
        st = parse_with(*out, bytes, size, parse, err);
    if (st != MSP_OK) {
        msp_tensor_file_close(*out);
        *out = NULL;
    }
    return st;
}

msp_status
msp_tensor_file_parse(msp_tensor_file **out, const void *bytes, size_t size, msp_error *err)
{
    return parse_new(out, bytes, size, parser_of(bytes, size), err);
}

void
msp_tensor_file_close(msp_tensor_file *f)
{
    if (f == NULL)
        return;
    for (size_t i = 0; i < f->ncopies; i++)
        msp_free(f->copies[i]);
    msp_free(f->copies);
    if (f->items != &f->first)
        msp_free(f->items);
    msp_budget_release(&f->budget);
    msp_map_close(&f->map);
    msp_free(f);
}

msp_status
msp_tensor_file_check(const msp_tensor_file *f, const char *path, msp_error *err)
{
    return msp_map_check(&f->map, AT_FDCWD, path, err);
}

size_t
msp_tensor_file_count(const msp_tensor_file *f)
{
    return f->count;
}

const char *
msp_tensor_file_name(const msp_tensor_file *f, size_t i)
{
    return f->items[i].name;
}

const msp_tensor *
msp_tensor_file_at(const msp_tensor_file *f, size_t i)
{
    return f->items[i].tensor;
}

/* ---- one tensor ------------------------------------------------------------------------------------------------- */

static void
close_owner(void *owner)
{
    msp_tensor_file_close(owner);
}

msp_status
msp_tensor_check_at(const msp_tensor *t, int dir, const char *name, msp_error *err)
{
    const msp_tensor_file *f = t->release_owner == close_owner ? t->owner : NULL;

    return f == NULL ? MSP_OK : msp_map_check(&f->map, dir, name, err);
}

/* A tensor has room for 64 dimensions: copying or clearing all of them is felt with small files. */
static void
copy_used(msp_tensor *out, const msp_tensor *t)
{
    memcpy(out, t, offsetof(msp_tensor, shape));
    for (int32_t i = 0; i < t->ndim; i++) {
        out->shape[i] = t->shape[i];
        out->strides[i] = t->strides[i];
    }
}

/* The only tensor of f, which belongs to it from now on; f is closed, and *out empty, when there is none, or another.
 */
static msp_status
take_one(msp_tensor *out, msp_tensor_file *f, msp_error *err)
{
    msp_status st;

    if (f->count == 1) {
        copy_used(out, f->items[0].tensor);
        out->owner = f;
        out->release_owner = close_owner;
        return MSP_OK;
    }
    *out = (msp_tensor){0};
    if (f->count == 0)
        st = msp_error_set(err, MSP_E_NOT_FOUND, "no tensor inside");
    else
        st = msp_error_set(err, MSP_E_INVALID, "%zu tensors inside ('%s', '%s', ...), where one is expected", f->count,
                           f->items[0].name, f->items[1].name);
    msp_tensor_file_close(f);
    return st;
}

static msp_status
open_one(msp_tensor *out, int dir, const char *path, parser *parse, msp_error *err)
{
    msp_tensor_file *f;
    msp_status st = open_with(&f, dir, path, parse, err);

    if (st != MSP_OK) {
        *out = (msp_tensor){0};
        return st;
    }
    st = take_one(out, f, err);
    return st == MSP_OK ? MSP_OK : msp_error_prefix(err, st, "%s: ", path);
}

msp_status
msp_tensor_open(msp_tensor *out, const char *path, msp_error *err)
{
    return open_one(out, AT_FDCWD, path, parse_any, err);
}

msp_status
msp_tensor_open_at(msp_tensor *out, int dir, const char *name, msp_error *err)
{
    return open_one(out, dir, name, parse_any, err);
}

msp_status
msp_tensor_parse(msp_tensor *out, const void *bytes, size_t size, msp_error *err)
{
    parser *parse = parser_of(bytes, size);
    msp_tensor_file *f;
    msp_status st;

    if (parse == msp_npy_parse && msp_npy_borrow(out, bytes, size))
        return MSP_OK;
    st = parse_new(&f, bytes, size, parse, err);
    if (st == MSP_OK)
        return take_one(out, f, err);
    *out = (msp_tensor){0};
    return st;
}

msp_status
msp_npy_open(msp_tensor *out, const char *path, msp_error *err)
{
    return open_one(out, AT_FDCWD, path, msp_npy_parse, err);
}

msp_status
msp_pt_open(msp_tensor *out, const char *path, msp_error *err)
{
    return open_one(out, AT_FDCWD, path, msp_pt_parse, err);
}
