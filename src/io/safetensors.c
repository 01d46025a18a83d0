/*
 * safetensors.c - Hugging Face's .safetensors files.
 *
 * 8 bytes: the length of the header; the header, JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0,
 * 24]}, ..., "__metadata__": {...}}; then the bytes of all tensors, little-endian. Offsets count from the end of the
 * header. As the format asks, the tensors must cover those bytes without gap or overlap, so that nothing can hide
 * there, and no name may come twice.
 */
#include "io/tensor_file.h"

#include <stdlib.h>
#include "core/alloc.h"
#include "core/map.h"
#include "io/bytes.h"
#include "text/json.h"

enum { LENGTH_SIZE = 8, HEADER_MAX = 100 * 1000 * 1000 /* the format's own bound */ };

enum { NAME_COST = 2 * sizeof(msp_map_entry) }; /* of a name in a map: its entry and slot, with room to grow */

typedef struct range {
    uint64_t begin, end;
    size_t index;
} range;

typedef struct reader {
    msp_tensor_file *file;
    const char *text; /* the header */
    size_t text_size;
    const char *data;
    uint64_t data_size;
    msp_json_doc doc;
    range *ranges;
    size_t nranges;
    msp_map names;
    msp_error *err;
} reader;

bool
msp_safetensors_is(const void *bytes, size_t size)
{
    return size > LENGTH_SIZE && ((const char *)bytes)[LENGTH_SIZE] == '{' && load_u64(bytes) <= HEADER_MAX;
}

static msp_status
bad_tensor(reader *r, msp_str name, const char *what)
{
    return msp_error_set(r->err, MSP_E_FORMAT, "tensor '%.*s': %s", name.len > 200 ? 200 : (int)name.len, name.p, what);
}

/* "dtype" may be a name of other formats too ("float32"): only the names that safetensors writes are taken. */
static msp_status
read_dtype(msp_dtype *out, reader *r, msp_str name, const msp_json *v)
{
    msp_str s = msp_json_string(msp_json_get(v, "dtype"));
    bool upper = s.len > 0 && s.p[0] >= 'A' && s.p[0] <= 'Z';

    for (size_t i = 0; i < s.len; i++)
        upper &= !(s.p[i] >= 'a' && s.p[i] <= 'z');
    *out = upper ? msp_dtype_parse(s.p, s.len) : MSP_DTYPE_NONE;
    if (s.len == 0)
        return bad_tensor(r, name, "no \"dtype\"");
    if (*out == MSP_DTYPE_NONE)
        return msp_error_set(r->err, MSP_E_UNSUPPORTED, "tensor '%.*s': elements of the type '%.*s' are not read",
                             name.len > 200 ? 200 : (int)name.len, name.p, s.len > 64 ? 64 : (int)s.len, s.p);
    return MSP_OK;
}

static msp_status
read_shape(int64_t shape[MSP_MAX_NDIM], int32_t *ndim, reader *r, msp_str name, const msp_json *v)
{
    const msp_json *list = msp_json_get(v, "shape");
    size_t n = msp_json_count(list);

    if (msp_json_kind_of(list) != MSP_JSON_ARRAY)
        return bad_tensor(r, name, "no \"shape\"");
    if (n > MSP_MAX_NDIM)
        return bad_tensor(r, name, "more than 64 dimensions");
    for (size_t i = 0; i < n; i++)
        if (!msp_json_to_i64(msp_json_at(list, i), &shape[i]) || shape[i] < 0)
            return bad_tensor(r, name, "a size that is no number, or is negative");
    *ndim = (int32_t)n;
    return MSP_OK;
}

static msp_status
read_offsets(range *out, reader *r, msp_str name, const msp_json *v)
{
    const msp_json *list = msp_json_get(v, "data_offsets");
    int64_t begin, end;

    if (msp_json_count(list) != 2 || !msp_json_to_i64(msp_json_at(list, 0), &begin) ||
        !msp_json_to_i64(msp_json_at(list, 1), &end))
        return bad_tensor(r, name, "no \"data_offsets\" of two numbers");
    if (begin < 0 || begin > end || (uint64_t)end > r->data_size)
        return msp_error_set(r->err, MSP_E_FORMAT,
                             "tensor '%.*s': data from %lld to %lld, where the file has 0 to %llu",
                             name.len > 200 ? 200 : (int)name.len, name.p, (long long)begin, (long long)end,
                             (unsigned long long)r->data_size);
    *out = (range){(uint64_t)begin, (uint64_t)end, r->nranges};
    return MSP_OK;
}

static msp_status
read_tensor(reader *r, msp_str name, const msp_json *v)
{
    int64_t shape[MSP_MAX_NDIM];
    int32_t ndim = 0;
    msp_dtype dtype;
    msp_tensor *t;
    range at = {0};
    bool added;
    msp_status st = read_dtype(&dtype, r, name, v);

    if (st == MSP_OK)
        st = read_shape(shape, &ndim, r, name, v);
    if (st == MSP_OK)
        st = read_offsets(&at, r, name, v);
    if (st == MSP_OK)
        st = msp_tensor_file_new_view(&t, r->file, r->err);
    if (st != MSP_OK)
        return st;
    if (msp_tensor_view(t, r->data + at.begin, dtype, ndim, shape, NULL) != MSP_OK ||
        (uint64_t)t->numel * msp_dtype_size(dtype) != at.end - at.begin)
        return bad_tensor(r, name, "shape and dtype do not give the number of bytes that \"data_offsets\" say");
    if (t->numel == 0)
        t->data = NULL;
    if (msp_map_put(&r->names, name, 0, &added) == NULL)
        return msp_error_set(r->err, MSP_E_NOMEM, "out of memory");
    if (!added)
        return bad_tensor(r, name, "the name is there twice");
    r->ranges[r->nranges++] = at;
    return msp_tensor_file_add(r->file, name, t, r->err);
}

static int
compare_range(const void *a, const void *b)
{
    const range *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end; /* empty ones first */
}

static msp_status
check_coverage(reader *r)
{
    uint64_t at = 0;

    qsort(r->ranges, r->nranges, sizeof(*r->ranges), compare_range);
    for (size_t i = 0; i < r->nranges; i++) {
        if (r->ranges[i].begin != at)
            return msp_error_set(r->err, MSP_E_FORMAT, "tensor '%s': its data begins at %llu and should at %llu: %s",
                                 r->file->items[r->ranges[i].index].name, (unsigned long long)r->ranges[i].begin,
                                 (unsigned long long)at, r->ranges[i].begin < at ? "two tensors overlap" : "a gap");
        at = r->ranges[i].end;
    }
    if (at != r->data_size)
        return msp_error_set(r->err, MSP_E_FORMAT, "%llu bytes at the end of the file belong to no tensor",
                             (unsigned long long)(r->data_size - at));
    return MSP_OK;
}

static msp_status
read_tensors(reader *r)
{
    size_t n = msp_json_count(r->doc.root);
    msp_status st = MSP_OK;

    if (msp_json_kind_of(r->doc.root) != MSP_JSON_OBJECT)
        return msp_error_set(r->err, MSP_E_FORMAT, "the header is no JSON object");
    st = msp_budget_spend(&r->file->budget, n, sizeof(*r->ranges) + NAME_COST, r->err);
    if (st != MSP_OK)
        return st;
    r->ranges = msp_alloc(n, sizeof(*r->ranges));
    if (r->ranges == NULL)
        return msp_error_set(r->err, MSP_E_NOMEM, "out of memory");
    for (size_t i = 0; st == MSP_OK && i < n; i++) {
        msp_str name = msp_json_key(r->doc.root, i);

        if (!msp_str_eq(name, MSP_STR("__metadata__")))
            st = read_tensor(r, name, msp_json_at(r->doc.root, i));
    }
    return st == MSP_OK ? check_coverage(r) : st;
}

msp_status
msp_safetensors_parse(msp_tensor_file *f, const void *bytes, size_t size, msp_error *err)
{
    reader r = {.file = f, .err = err};
    uint64_t len = size >= LENGTH_SIZE ? load_u64(bytes) : 0;
    msp_status st;

    if (size < LENGTH_SIZE || len > size - LENGTH_SIZE)
        return msp_error_set(err, MSP_E_FORMAT, "header of %llu bytes cut short at byte %zu", (unsigned long long)len,
                             size);
    if (len > HEADER_MAX)
        return msp_error_set(err, MSP_E_LIMIT, "a header of %llu bytes; the format allows %d", (unsigned long long)len,
                             HEADER_MAX);
    r.text = (const char *)bytes + LENGTH_SIZE;
    r.text_size = len;
    r.data = r.text + len;
    r.data_size = size - LENGTH_SIZE - len;
    st = msp_json_parse(&r.doc, r.text, r.text_size, err);
    if (st != MSP_OK)
        msp_error_prefix(err, st, "header: ");
    else
        st = msp_budget_spend(&f->budget, r.doc.arena.reserved, 1, err);
    if (st == MSP_OK)
        st = read_tensors(&r);
    msp_json_doc_release(&r.doc);
    msp_map_release(&r.names);
    msp_free(r.ranges);
    return st;
}
