/* call.c - see call.h. */
#include "online/call.h"

#include <string.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"
#include "core/vec.h"
#include "online/wire.h"

static const char MAGIC[8] = "MSPCALL\1";

enum {
    ALIGN = 16,
    LEAST_TENSOR = 16,    /* bytes that a tensor without name, dimensions and elements takes */
    MAX_TENSORS = 1 << 20 /* of a call, as far as its bytes allow */
};

/* ---- building ---------------------------------------------------------------------------------------------------- */

static msp_status
add_piece(msp_call_parts *c, const void *data, size_t at, size_t len, msp_error *err)
{
    if (len == 0)
        return MSP_OK;
    if (!msp_vec_grow((void **)&c->pieces, &c->cap, c->npieces + 1, sizeof(*c->pieces)))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    c->pieces[c->npieces++] = (struct piece){data, at, len};
    c->size += len;
    return MSP_OK;
}

/* The text that was put since the last piece becomes one, filled up with zeros when elements follow. */
static msp_status
end_text(msp_call_parts *c, size_t *done, bool align, msp_error *err)
{
    static const char zeros[ALIGN];
    size_t rest = (size_t)((c->size + (c->text.len - *done)) % ALIGN), at = *done;

    if (align && rest != 0)
        msp_buf_add(&c->text, zeros, ALIGN - rest);
    *done = c->text.len;
    return add_piece(c, NULL, at, c->text.len - at, err);
}

static msp_status
open_tensor(msp_call_parts *c, const char *dir, msp_str name, msp_error *err)
{
    char *file = msp_alloc(name.len + 1, 1), *path;
    msp_status st = MSP_OK;

    if (file == NULL || !msp_vec_grow((void **)&c->tensors, &c->tensors_cap, c->ntensors + 1, sizeof(*c->tensors))) {
        msp_free(file);
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    memcpy(file, name.p, name.len);
    file[name.len] = '\0';
    path = msp_path_join(dir, file);
    msp_free(file);
    if (path == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    st = msp_tensor_open(&c->tensors[c->ntensors], path, err);
    if (st == MSP_OK && !msp_tensor_is_contiguous(&c->tensors[c->ntensors])) {
        msp_tensor_release(&c->tensors[c->ntensors]);
        st = msp_error_set(err, MSP_E_UNSUPPORTED, "%s: its elements do not lie in order", path);
    }
    msp_free(path);
    c->ntensors += st == MSP_OK;
    return st;
}

static msp_status
add_tensor(msp_call_parts *c, size_t *done, const char *dir, msp_str name, msp_error *err)
{
    msp_status st = open_tensor(c, dir, name, err);
    const msp_tensor *t;
    size_t nbytes;

    if (st != MSP_OK)
        return st;
    t = &c->tensors[c->ntensors - 1];
    nbytes = (size_t)t->numel * msp_dtype_size(t->dtype);
    msp_wire_put_text(&c->text, name);
    msp_wire_put_u(&c->text, t->dtype, 1);
    msp_wire_put_u(&c->text, (uint64_t)t->ndim, 1);
    msp_wire_put_u(&c->text, 0, 2);
    for (int i = 0; i < t->ndim; i++)
        msp_wire_put_u(&c->text, (uint64_t)t->shape[i], 8);
    msp_wire_put_u(&c->text, nbytes, 8);
    st = end_text(c, done, true, err);
    return st == MSP_OK ? add_piece(c, t->data, 0, nbytes, err) : st;
}

msp_status
msp_call_build(msp_call_parts *out, const msp_call_head *head, const char *dir, const msp_str *names, size_t nnames,
               msp_error *err)
{
    msp_status st = MSP_OK;
    size_t done = 0;

    *out = (msp_call_parts){0};
    msp_buf_add(&out->text, MAGIC, sizeof(MAGIC));
    msp_wire_put_u(&out->text, head->number, 8);
    msp_wire_put_u(&out->text, head->step, 8);
    msp_wire_put_u(&out->text, head->rank, 8);
    msp_wire_put_text(&out->text, head->name);
    msp_wire_put_text(&out->text, head->reason);
    msp_wire_put_text(&out->text, head->forward);
    msp_wire_put_text(&out->text, head->backward);
    msp_wire_put_u(&out->text, nnames, 4);
    for (size_t i = 0; i < nnames && st == MSP_OK; i++)
        st = add_tensor(out, &done, dir, names[i], err);
    if (st == MSP_OK)
        st = end_text(out, &done, false, err);
    if (st == MSP_OK)
        st = msp_buf_status(&out->text, err);
    if (st != MSP_OK)
        msp_call_release(out);
    return st;
}

void
msp_call_release(msp_call_parts *c)
{
    for (size_t i = 0; i < c->ntensors; i++)
        msp_tensor_release(&c->tensors[i]);
    msp_free(c->tensors);
    msp_free(c->pieces);
    msp_buf_release(&c->text);
    *c = (msp_call_parts){0};
}

size_t
msp_call_span(const msp_call_parts *c, uint64_t at, size_t room, const void **p)
{
    for (size_t i = 0; i < c->npieces; i++) {
        const struct piece *piece = &c->pieces[i];
        const char *data = piece->data != NULL ? piece->data : c->text.p + piece->at;

        if (at < piece->len) {
            *p = data + at;
            return piece->len - (size_t)at < room ? piece->len - (size_t)at : room;
        }
        at -= piece->len;
    }
    *p = NULL;
    return 0;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static msp_status
damaged(const char *what, msp_error *err)
{
    return msp_error_set(err, MSP_E_FORMAT, "a damaged call: %s", what);
}

/* Names go into file names and csv lines: printable, without a slash, three parts or more with dots between. */
static bool
is_name(msp_str s)
{
    int dots = 0;

    if (s.len == 0 || s.len > MSP_CALL_NAME || s.p[0] == '.')
        return false;
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.p[i];

        if (c < ' ' || c == 0x7f || c == '/' || c == '"' || c == ',')
            return false;
        dots += c == '.';
    }
    return dots >= 2;
}

static msp_online_text
text_of(msp_str s)
{
    return (msp_online_text){s.p, s.len};
}

/* The elements stand where the alignment puts them, and there are as many as the shape says. */
static msp_status
read_tensor(msp_online_tensor *out, msp_wire_reader *r, const unsigned char *begin, msp_error *err)
{
    int64_t shape[MSP_MAX_NDIM];
    msp_str name = msp_wire_text(r);
    msp_dtype dtype = (msp_dtype)msp_wire_u(r, 1);
    int ndim = (int)msp_wire_u(r, 1);
    bool good = msp_wire_u(r, 2) == 0 && ndim <= MSP_MAX_NDIM && dtype > MSP_DTYPE_NONE && dtype < MSP_DTYPE_COUNT;
    const unsigned char *zeros;
    const void *data;
    uint64_t nbytes;
    size_t rest;

    for (int i = 0; i < ndim && good && !r->bad; i++) {
        shape[i] = (int64_t)msp_wire_u(r, 8);
        good = shape[i] >= 0;
    }
    nbytes = msp_wire_u(r, 8);
    if (r->bad || !good || name.len > MSP_CALL_NAME)
        return damaged("the description of a tensor", err);
    rest = (size_t)(r->p - begin) % ALIGN;
    zeros = msp_wire_bytes(r, rest != 0 ? ALIGN - rest : 0);
    for (size_t i = rest; i < ALIGN && rest != 0 && zeros != NULL; i++)
        good = good && zeros[i - rest] == 0;
    data = nbytes <= SIZE_MAX ? msp_wire_bytes(r, (size_t)nbytes) : NULL;
    if (r->bad || !good || data == NULL)
        return damaged("a tensor is cut short", err);
    out->name = text_of(name);
    if (msp_tensor_view(&out->view, data, dtype, ndim, shape, NULL) != MSP_OK || nbytes % msp_dtype_size(dtype) != 0 ||
        nbytes / msp_dtype_size(dtype) != (uint64_t)out->view.numel)
        return damaged("a tensor has not as many elements as its shape says", err);
    return MSP_OK;
}

msp_status
msp_online_call_parse(msp_online_call *out, const void *bytes, size_t size, msp_error *err)
{
    msp_wire_reader r = msp_wire_read((msp_str){bytes, size});
    const void *magic = msp_wire_bytes(&r, sizeof(MAGIC));
    msp_status st = MSP_OK;
    msp_str texts[4];
    size_t n;

    *out = (msp_online_call){0};
    if (magic == NULL || memcmp(magic, MAGIC, sizeof(MAGIC)) != 0)
        return damaged("it begins otherwise", err);
    out->number = msp_wire_u(&r, 8);
    out->step = msp_wire_u(&r, 8);
    out->rank = msp_wire_u(&r, 8);
    for (int i = 0; i < 4; i++)
        texts[i] = msp_wire_text(&r);
    n = (size_t)msp_wire_u(&r, 4);
    if (r.bad || !is_name(texts[0]) || n > MAX_TENSORS || n > (size_t)(r.end - r.p) / LEAST_TENSOR)
        return damaged("its head", err);
    out->name = text_of(texts[0]);
    out->reason = text_of(texts[1]);
    out->forward = text_of(texts[2]);
    out->backward = text_of(texts[3]);
    out->tensors = msp_alloc_zero(n, sizeof(*out->tensors));
    if (out->tensors == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    while (out->ntensors < n && st == MSP_OK)
        st = read_tensor(&out->tensors[out->ntensors++], &r, bytes, err);
    if (st == MSP_OK && !msp_wire_is_whole(&r))
        st = damaged("bytes follow its end", err);
    if (st != MSP_OK)
        msp_online_call_release(out);
    return st;
}

msp_status
msp_online_call_open(msp_online_call *out, const char *path, msp_error *err)
{
    msp_mapping *map = msp_alloc_zero(1, sizeof(*map));
    msp_status st = map == NULL ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;

    *out = (msp_online_call){0};
    if (st == MSP_OK)
        st = msp_map_open(map, path, err);
    if (st == MSP_OK) {
        st = msp_online_call_parse(out, map->addr, map->size, err);
        if (st != MSP_OK)
            msp_error_prefix(err, st, "%s: ", path);
    }
    if (st == MSP_OK) {
        out->owner = map;
        return MSP_OK;
    }
    if (map != NULL)
        msp_map_close(map);
    msp_free(map);
    return st;
}

void
msp_online_call_release(msp_online_call *c)
{
    msp_mapping *map = c->owner;

    msp_free(c->tensors);
    if (map != NULL)
        msp_map_close(map);
    msp_free(map);
    *c = (msp_online_call){0};
}
