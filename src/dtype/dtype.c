/* dtype.c - names, sizes and classes of element types. */
#include "msprobe/dtype.h"

#include <string.h>
#include "core/str.h"

typedef struct type_info {
    const char *torch, *mindspore;
    uint8_t size;
    uint8_t class_of; /* msp_dtype_class */
} type_info;

static const type_info types[MSP_DTYPE_COUNT] = {
    [MSP_DTYPE_NONE] = {"unknown", NULL, 0, MSP_CLASS_NONE},
    [MSP_F64] = {"torch.float64", "Float64", 8, MSP_CLASS_FLOAT},
    [MSP_F32] = {"torch.float32", "Float32", 4, MSP_CLASS_FLOAT},
    [MSP_F16] = {"torch.float16", "Float16", 2, MSP_CLASS_FLOAT},
    [MSP_BF16] = {"torch.bfloat16", "BFloat16", 2, MSP_CLASS_FLOAT},
    [MSP_F8_E4M3FN] = {"torch.float8_e4m3fn", "Float8E4M3FN", 1, MSP_CLASS_FLOAT},
    [MSP_F8_E5M2] = {"torch.float8_e5m2", "Float8E5M2", 1, MSP_CLASS_FLOAT},
    [MSP_F8_E4M3FNUZ] = {"torch.float8_e4m3fnuz", NULL, 1, MSP_CLASS_FLOAT},
    [MSP_F8_E5M2FNUZ] = {"torch.float8_e5m2fnuz", NULL, 1, MSP_CLASS_FLOAT},
    [MSP_I8] = {"torch.int8", "Int8", 1, MSP_CLASS_INT},
    [MSP_I16] = {"torch.int16", "Int16", 2, MSP_CLASS_INT},
    [MSP_I32] = {"torch.int32", "Int32", 4, MSP_CLASS_INT},
    [MSP_I64] = {"torch.int64", "Int64", 8, MSP_CLASS_INT},
    [MSP_U8] = {"torch.uint8", "UInt8", 1, MSP_CLASS_INT},
    [MSP_U16] = {"torch.uint16", "UInt16", 2, MSP_CLASS_INT},
    [MSP_U32] = {"torch.uint32", "UInt32", 4, MSP_CLASS_INT},
    [MSP_U64] = {"torch.uint64", "UInt64", 8, MSP_CLASS_INT},
    [MSP_BOOL] = {"torch.bool", "Bool", 1, MSP_CLASS_BOOL},
    [MSP_C64] = {"torch.complex64", "Complex64", 8, MSP_CLASS_COMPLEX},
    [MSP_C128] = {"torch.complex128", "Complex128", 16, MSP_CLASS_COMPLEX},
};

typedef struct alias {
    const char *name;
    msp_dtype type;
} alias;

/*
 * Names besides those of the table above, without module ("torch.", "torch.cuda.") and without "Tensor" or "Storage" at
 * the end. Case matters: NumPy's "i8" has eight bytes and safetensors' "I8" eight bits.
 */
static const alias aliases[] = {
    /* torch's short names, and the names of its tensor and storage classes */
    {"float", MSP_F32},
    {"double", MSP_F64},
    {"half", MSP_F16},
    {"long", MSP_I64},
    {"int", MSP_I32},
    {"short", MSP_I16},
    {"char", MSP_I8},
    {"byte", MSP_U8},
    {"cfloat", MSP_C64},
    {"cdouble", MSP_C128},
    {"Float", MSP_F32},
    {"Double", MSP_F64},
    {"Half", MSP_F16},
    {"Long", MSP_I64},
    {"Int", MSP_I32},
    {"Short", MSP_I16},
    {"Char", MSP_I8},
    {"Byte", MSP_U8},
    {"ComplexFloat", MSP_C64},
    {"ComplexDouble", MSP_C128},
    {"Float8_e4m3fn", MSP_F8_E4M3FN},
    {"Float8_e5m2", MSP_F8_E5M2},
    {"Float8_e4m3fnuz", MSP_F8_E4M3FNUZ},
    {"Float8_e5m2fnuz", MSP_F8_E5M2FNUZ},
    /* safetensors */
    {"F64", MSP_F64},
    {"F32", MSP_F32},
    {"F16", MSP_F16},
    {"BF16", MSP_BF16},
    {"F8_E4M3", MSP_F8_E4M3FN},
    {"F8_E5M2", MSP_F8_E5M2},
    {"F8_E4M3FNUZ", MSP_F8_E4M3FNUZ},
    {"F8_E5M2FNUZ", MSP_F8_E5M2FNUZ},
    {"I64", MSP_I64},
    {"I32", MSP_I32},
    {"I16", MSP_I16},
    {"I8", MSP_I8},
    {"U64", MSP_U64},
    {"U32", MSP_U32},
    {"U16", MSP_U16},
    {"U8", MSP_U8},
    {"BOOL", MSP_BOOL},
    {"C64", MSP_C64},
    /* NumPy: type strings without their byte order, and what str(dtype) or older versions say */
    {"f8", MSP_F64},
    {"f4", MSP_F32},
    {"f2", MSP_F16},
    {"i8", MSP_I64},
    {"i4", MSP_I32},
    {"i2", MSP_I16},
    {"i1", MSP_I8},
    {"u8", MSP_U64},
    {"u4", MSP_U32},
    {"u2", MSP_U16},
    {"u1", MSP_U8},
    {"b1", MSP_BOOL},
    {"?", MSP_BOOL},
    {"c8", MSP_C64},
    {"c16", MSP_C128},
    {"bool_", MSP_BOOL},
    {"single", MSP_F32},
};

static const char *const modules[] = {"torch.cuda.", "torch.npu.", "torch_npu.npu.", "torch.xpu.", "torch.mlu.",
                                      "torch.",      "mindspore.", "numpy.",         "np."};

static const type_info *
info_of(msp_dtype t)
{
    return &types[(unsigned)t < MSP_DTYPE_COUNT ? t : MSP_DTYPE_NONE];
}

size_t
msp_dtype_size(msp_dtype t)
{
    return info_of(t)->size;
}

msp_dtype_class
msp_dtype_class_of(msp_dtype t)
{
    return (msp_dtype_class)info_of(t)->class_of;
}

bool
msp_dtype_is_signed_int(msp_dtype t)
{
    return t >= MSP_I8 && t <= MSP_I64;
}

const char *
msp_dtype_torch_name(msp_dtype t)
{
    return info_of(t)->torch;
}

const char *
msp_dtype_mindspore_name(msp_dtype t)
{
    return info_of(t)->mindspore;
}

static bool
drop_prefix(msp_str *s, const char *prefix)
{
    size_t n = strlen(prefix);

    if (s->len < n || memcmp(s->p, prefix, n) != 0)
        return false;
    s->p += n;
    s->len -= n;
    return true;
}

static void
drop_suffix(msp_str *s, const char *suffix)
{
    size_t n = strlen(suffix);

    if (s->len > n && memcmp(s->p + s->len - n, suffix, n) == 0)
        s->len -= n;
}

static bool
is_name(msp_str s, const char *name)
{
    return strlen(name) == s.len && memcmp(name, s.p, s.len) == 0;
}

static msp_dtype
parse_bare(msp_str name)
{
    for (int t = 1; t < MSP_DTYPE_COUNT; t++)
        if (is_name(name, types[t].torch + strlen("torch.")) ||
            (types[t].mindspore != NULL && is_name(name, types[t].mindspore)))
            return (msp_dtype)t;
    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
        if (is_name(name, aliases[i].name))
            return aliases[i].type;
    return MSP_DTYPE_NONE;
}

/* "<f4": NumPy's type string in this machine's byte order. Another order is not the type that we have in memory. */
static msp_dtype
parse_numpy(msp_str name)
{
    char order = name.p[0];
    msp_dtype t = MSP_DTYPE_NONE;

    name.p++;
    name.len--;
    if (name.len > 0 && memchr("fiucb?", name.p[0], 6) != NULL && (name.len == 1 || name.p[1] <= '9'))
        t = parse_bare(name);
    return order == '>' && msp_dtype_size(t) > 1 ? MSP_DTYPE_NONE : t;
}

msp_dtype
msp_dtype_parse(const char *name, size_t len)
{
    msp_str s = {name, len};

    if (len == 0)
        return MSP_DTYPE_NONE;
    if (memchr("<>=|", name[0], 4) != NULL)
        return parse_numpy(s);
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
        if (drop_prefix(&s, modules[i]))
            break;
    drop_suffix(&s, "Tensor");
    drop_suffix(&s, "Storage");
    return parse_bare(s);
}
