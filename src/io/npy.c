/*
 * npy.c - NumPy's .npy files.
 *
 * "\x93NUMPY", major and minor version, the header's length (2 bytes in version 1, 4 in versions 2 and 3), the header:
 * a Python dict such as {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, padded with spaces and ended by a
 * newline; then the elements. The header is read by a parser of just this dict. What follows the elements is ignored,
 * as NumPy does: several arrays may be written one after the other.
 */
#include "io/tensor_file.h"

#include <stddef.h>
#include "core/alloc.h"
#include "io/bytes.h"
#include "io/npy.h"

enum { MAGIC_SIZE = 6, PREFIX_V1 = 10, PREFIX_V2 = 12 };

static const char MAGIC[] = "\x93NUMPY";

bool
msp_npy_is(const void *bytes, size_t size)
{
    return size >= MAGIC_SIZE && memcmp(bytes, MAGIC, MAGIC_SIZE) == 0;
}

/* ---- element types ---------------------------------------------------------------------------------------------- */

static const struct code {
    const char *text;
    msp_dtype dtype;
} codes[] = {
    {"f8", MSP_F64}, {"f4", MSP_F32},  {"f2", MSP_F16}, {"i1", MSP_I8},    {"i2", MSP_I16},
    {"i4", MSP_I32}, {"i8", MSP_I64},  {"u1", MSP_U8},  {"u2", MSP_U16},   {"u4", MSP_U32},
    {"u8", MSP_U64}, {"b1", MSP_BOOL}, {"c8", MSP_C64}, {"c16", MSP_C128},
};

/* Types that NumPy itself lacks: packages that add them may write their names. */
static const msp_dtype named[] = {MSP_BF16, MSP_F8_E4M3FN, MSP_F8_E5M2, MSP_F8_E4M3FNUZ, MSP_F8_E5M2FNUZ};

static msp_dtype
dtype_of_code(msp_str code)
{
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (msp_str_eq(code, msp_str_of(codes[i].text)))
            return codes[i].dtype;
    return MSP_DTYPE_NONE;
}

const char *
msp_npy_code(msp_dtype t)
{
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (codes[i].dtype == t)
            return codes[i].text;
    return NULL;
}

static msp_dtype
dtype_of_name(msp_str name)
{
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
        if (msp_str_eq(name, msp_str_of(msp_dtype_torch_name(named[i]) + strlen("torch."))))
            return named[i];
    return MSP_DTYPE_NONE;
}

static msp_status
refuse_descr(msp_str descr, size_t at, msp_error *err)
{
    char kind = descr.len > 1 ? descr.p[1] : '\0';
    const char *hint = kind == 'O'                  ? "objects, which would have to be unpickled"
                       : kind == 'V'                ? "raw bytes; if they are bfloat16, save them as float32"
                       : kind == 'U' || kind == 'S' ? "text"
                       : kind == 'M' || kind == 'm' ? "dates"
                                                    : "of a type that is not read";

    return msp_error_set(err, MSP_E_UNSUPPORTED, "byte %zu: the elements ('%.*s') are %s", at,
                         descr.len > 64 ? 64 : (int)descr.len, descr.p, hint);
}

/* ---- the header's parser ---------------------------------------------------------------------------------------- */

typedef struct parser {
    const char *p; /* the file: positions in messages count from its start */
    size_t at, end;
    msp_error *err;
} parser;

typedef struct header {
    msp_dtype dtype;
    bool big_endian, fortran;
    bool has_descr, has_order, has_shape;
    size_t data_at;
    int32_t ndim;
    int64_t shape[MSP_MAX_NDIM];
} header;

/* The header ends with dozens of them, and there are none nearly everywhere else. */
static inline void
skip_spaces(parser *p)
{
    if (p->at < p->end && p->p[p->at] > ' ')
        return;
    while (p->end - p->at >= 8 && memcmp(p->p + p->at, "        ", 8) == 0)
        p->at += 8;
    while (p->at < p->end && (p->p[p->at] == ' ' || p->p[p->at] == '\n' || p->p[p->at] == '\t'))
        p->at++;
}

/* Take this character if it comes next, after spaces. */
static bool
accept_char(parser *p, char c)
{
    skip_spaces(p);
    if (p->at >= p->end || p->p[p->at] != c)
        return false;
    p->at++;
    return true;
}

static msp_status
expect_char(parser *p, char c)
{
    if (accept_char(p, c))
        return MSP_OK;
    return msp_error_set(p->err, MSP_E_FORMAT, "byte %zu: expected '%c' in the header", p->at, c);
}

/* A string in either kind of quotes, without escapes. */
static msp_status
read_string(msp_str *out, parser *p)
{
    const char *end;
    char quote;

    skip_spaces(p);
    quote = p->at < p->end ? p->p[p->at] : '\0';
    if (quote != '\'' && quote != '"')
        return msp_error_set(p->err, MSP_E_FORMAT, "byte %zu: expected a string in the header", p->at);
    end = memchr(p->p + p->at + 1, quote, p->end - p->at - 1);
    if (end == NULL)
        return msp_error_set(p->err, MSP_E_FORMAT, "byte %zu: a string without an end", p->at);
    *out = (msp_str){p->p + p->at + 1, (size_t)(end - p->p) - p->at - 1};
    p->at += out->len + 2;
    return MSP_OK;
}

static msp_status
read_descr(header *h, parser *p)
{
    size_t at;
    msp_str s;
    msp_status st;

    skip_spaces(p);
    at = p->at;
    if (at < p->end && p->p[at] == '[')
        return msp_error_set(p->err, MSP_E_UNSUPPORTED, "byte %zu: a structured array: save its fields one by one", at);
    st = read_string(&s, p);
    if (st != MSP_OK)
        return st;
    if (s.len > 1 && memchr("<>|=", s.p[0], 4) != NULL) {
        h->dtype = dtype_of_code((msp_str){s.p + 1, s.len - 1});
        h->big_endian = s.p[0] == '>';
    }
    if (h->dtype == MSP_DTYPE_NONE)
        h->dtype = dtype_of_name(s);
    return h->dtype != MSP_DTYPE_NONE ? MSP_OK : refuse_descr(s, at, p->err);
}

static msp_status
read_bool(bool *out, parser *p)
{
    msp_str rest;

    skip_spaces(p);
    rest = (msp_str){p->p + p->at, p->end - p->at};
    *out = msp_str_starts(rest, MSP_STR("True"));
    if (!*out && !msp_str_starts(rest, MSP_STR("False")))
        return msp_error_set(p->err, MSP_E_FORMAT, "byte %zu: expected True or False in the header", p->at);
    p->at += *out ? 4 : 5;
    return MSP_OK;
}

static msp_status
read_size(int64_t *out, parser *p)
{
    size_t start;
    unsigned long long v;

    skip_spaces(p);
    start = p->at;
    while (p->at < p->end && p->p[p->at] >= '0' && p->p[p->at] <= '9')
        p->at++;
    if (!msp_str_to_u64((msp_str){p->p + start, p->at - start}, &v) || v > INT64_MAX)
        return msp_error_set(p->err, MSP_E_FORMAT, "byte %zu: expected a size in the header", start);
    if (p->at < p->end && p->p[p->at] == 'L') /* Python 2 */
        p->at++;
    *out = (int64_t)v;
    return MSP_OK;
}

/* (), (3,), (2, 3) or (2, 3,) */
static msp_status
read_shape(header *h, parser *p)
{
    msp_status st = expect_char(p, '(');

    h->ndim = 0;
    while (st == MSP_OK && !accept_char(p, ')')) {
        if (h->ndim == MSP_MAX_NDIM)
            return msp_error_set(p->err, MSP_E_UNSUPPORTED, "byte %zu: more than %d dimensions", p->at, MSP_MAX_NDIM);
        st = read_size(&h->shape[h->ndim], p);
        if (st != MSP_OK)
            return st;
        h->ndim++;
        if (!accept_char(p, ','))
            return expect_char(p, ')');
    }
    return st;
}

static msp_status
read_member(header *h, parser *p)
{
    size_t at;
    msp_str key;
    msp_status st;

    skip_spaces(p);
    at = p->at;
    st = read_string(&key, p);
    if (st == MSP_OK)
        st = expect_char(p, ':');
    if (st != MSP_OK)
        return st;
    if (msp_str_eq(key, MSP_STR("descr")) && !h->has_descr) {
        h->has_descr = true;
        return read_descr(h, p);
    }
    if (msp_str_eq(key, MSP_STR("fortran_order")) && !h->has_order) {
        h->has_order = true;
        return read_bool(&h->fortran, p);
    }
    if (msp_str_eq(key, MSP_STR("shape")) && !h->has_shape) {
        h->has_shape = true;
        return read_shape(h, p);
    }
    return msp_error_set(p->err, MSP_E_FORMAT, "byte %zu: an unknown or repeated key in the header", at);
}

/* All up to the shape, as NumPy itself writes it for most arrays. Anything else is left for the parser to read. */
static bool
accept_usual(header *h, parser *p)
{
    static const char before[] = "{'descr': '<", behind[] = "', 'fortran_order': False, 'shape': ";
    enum { BEFORE = sizeof(before) - 1, CODE = 2, BEHIND = sizeof(behind) - 1 };
    const char *at = p->p + p->at;

    if (p->end - p->at < BEFORE + CODE + BEHIND || memcmp(at, before, BEFORE) != 0 ||
        memcmp(at + BEFORE + CODE, behind, BEHIND) != 0)
        return false;
    h->dtype = dtype_of_code((msp_str){at + BEFORE, CODE});
    if (h->dtype == MSP_DTYPE_NONE)
        return false;
    h->has_descr = h->has_order = h->has_shape = true;
    p->at += BEFORE + CODE + BEHIND;
    return true;
}

static msp_status
read_dict(header *h, parser *p)
{
    bool usual = accept_usual(h, p);
    msp_status st = usual ? MSP_OK : expect_char(p, '{');

    while (st == MSP_OK && (usual || !accept_char(p, '}'))) {
        st = usual ? read_shape(h, p) : read_member(h, p);
        usual = false;
        if (st == MSP_OK && !accept_char(p, ',')) {
            st = expect_char(p, '}');
            break;
        }
    }
    skip_spaces(p);
    if (st == MSP_OK && p->at != p->end)
        return msp_error_set(p->err, MSP_E_FORMAT, "byte %zu: something follows the dict in the header", p->at);
    if (st == MSP_OK && !(h->has_descr && h->has_order && h->has_shape))
        return msp_error_set(p->err, MSP_E_FORMAT, "the header lacks %s",
                             !h->has_descr   ? "'descr'"
                             : !h->has_shape ? "'shape'"
                                             : "'fortran_order'");
    return st;
}

static msp_status
read_header(header *h, const char *bytes, size_t size, msp_error *err)
{
    size_t prefix, len;
    parser p;

    memset(h, 0, offsetof(header, shape));
    if (!msp_npy_is(bytes, size))
        return msp_error_set(err, MSP_E_FORMAT, "not a .npy file: it does not begin with \\x93NUMPY");
    if (size < PREFIX_V1)
        return msp_error_set(err, MSP_E_FORMAT, "header cut short at byte %zu", size);
    if (bytes[6] < 1 || bytes[6] > 3)
        return msp_error_set(err, MSP_E_UNSUPPORTED, ".npy version %u.%u; 1.0 to 3.0 are read", (unsigned char)bytes[6],
                             (unsigned char)bytes[7]);
    prefix = bytes[6] == 1 ? PREFIX_V1 : PREFIX_V2;
    if (size < prefix)
        return msp_error_set(err, MSP_E_FORMAT, "header cut short at byte %zu", size);
    len = bytes[6] == 1 ? load_u16(bytes + 8) : load_u32(bytes + 8);
    if (len > size - prefix)
        return msp_error_set(err, MSP_E_FORMAT, "header of %zu bytes cut short at byte %zu", len, size);
    p = (parser){bytes, prefix, prefix + len, err};
    h->data_at = prefix + len;
    return read_dict(h, &p);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static void
set_column_major_strides(msp_tensor *t)
{
    int64_t step = 1;

    for (int32_t i = 0; i < t->ndim; i++) {
        t->strides[i] = step;
        if (t->numel > 0)
            step *= t->shape[i];
    }
}

/* The tensor in place. *swapped: its elements are of the other byte order and have to be copied before they are used.
 */
static msp_status
read_view(msp_tensor *t, bool *swapped, const void *bytes, size_t size, msp_error *err)
{
    const uint16_t one = 1;
    bool host_is_big = *(const unsigned char *)&one == 0;
    msp_status st;
    size_t nbytes;
    header h;

    st = read_header(&h, bytes, size, err);
    if (st != MSP_OK)
        return st;
    if (msp_tensor_view(t, (const char *)bytes + h.data_at, h.dtype, h.ndim, h.shape, err) != MSP_OK)
        return msp_error_set(err, MSP_E_FORMAT, "the header's shape has more elements than any memory");
    nbytes = (size_t)t->numel * msp_dtype_size(h.dtype);
    if (nbytes > size - h.data_at)
        return msp_error_set(err, MSP_E_FORMAT, "the header promises %zu bytes of data from byte %zu on, %zu are there",
                             nbytes, h.data_at, size - h.data_at);
    if (h.fortran)
        set_column_major_strides(t);
    if (t->numel == 0)
        t->data = NULL;
    *swapped = h.big_endian != host_is_big && msp_dtype_size(h.dtype) > 1 && t->numel > 0;
    return MSP_OK;
}

static msp_status
copy_swapped(msp_tensor *t, msp_tensor_file *f, msp_error *err)
{
    size_t element = msp_dtype_size(t->dtype), nbytes = (size_t)t->numel * element;
    size_t width = msp_dtype_class_of(t->dtype) == MSP_CLASS_COMPLEX ? element / 2 : element;
    void *room;
    msp_status st = msp_tensor_file_copy_room(&room, f, nbytes, err);

    if (st != MSP_OK)
        return st;
    msp_swap_copy(room, t->data, nbytes, (unsigned)width);
    t->data = room;
    return MSP_OK;
}

msp_status
msp_npy_parse(msp_tensor_file *f, const void *bytes, size_t size, msp_error *err)
{
    msp_tensor *t;
    bool swapped;
    msp_status st = msp_tensor_file_new_view(&t, f, err);

    if (st == MSP_OK)
        st = read_view(t, &swapped, bytes, size, err);
    if (st == MSP_OK && swapped)
        st = copy_swapped(t, f, err);
    return st == MSP_OK ? msp_tensor_file_add(f, (msp_str){0}, t, err) : st;
}

bool
msp_npy_borrow(msp_tensor *out, const void *bytes, size_t size)
{
    bool swapped;

    return read_view(out, &swapped, bytes, size, NULL) == MSP_OK && !swapped;
}
