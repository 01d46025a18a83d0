/* element.c - one element as a double, and as Python prints it. */
#include "msprobe/dtype.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "core/number.h"
#include "dtype/convert.h"

/* Elements need not be aligned. */
#define LOAD(type)                                \
    static inline type load_##type(const void *p) \
    {                                             \
        type v;                                   \
                                                  \
        memcpy(&v, p, sizeof(v));                 \
        return v;                                 \
    }

LOAD(double)
LOAD(uint8_t)
LOAD(uint16_t)
LOAD(uint32_t)
LOAD(uint64_t)
LOAD(int8_t)
LOAD(int16_t)
LOAD(int32_t)
LOAD(int64_t)

static double
load_float(msp_dtype t, const void *p)
{
    switch (t) {
    case MSP_F64:
        return load_double(p);
    case MSP_F32:
        return msp_f32_to_f64(load_uint32_t(p));
    case MSP_F16:
        return msp_f32_to_f64(msp_f16_to_f32_bits(load_uint16_t(p)));
    case MSP_BF16:
        return msp_f32_to_f64((uint32_t)load_uint16_t(p) << 16);
    case MSP_F8_E4M3FN:
        return msp_f32_to_f64(msp_f8_e4m3fn_to_f32_bits(load_uint8_t(p)));
    case MSP_F8_E5M2:
        return msp_f32_to_f64(msp_f8_e5m2_to_f32_bits(load_uint8_t(p)));
    case MSP_F8_E4M3FNUZ:
        return msp_f32_to_f64(msp_f8_fnuz_to_f32_bits(load_uint8_t(p), 3, 8));
    case MSP_F8_E5M2FNUZ:
        return msp_f32_to_f64(msp_f8_fnuz_to_f32_bits(load_uint8_t(p), 2, 16));
    default:
        return NAN;
    }
}

static int64_t
load_signed(msp_dtype t, const void *p)
{
    switch (t) {
    case MSP_I8:
        return load_int8_t(p);
    case MSP_I16:
        return load_int16_t(p);
    case MSP_I32:
        return load_int32_t(p);
    default:
        return load_int64_t(p);
    }
}

static uint64_t
load_unsigned(msp_dtype t, const void *p)
{
    switch (t) {
    case MSP_BOOL:
        return load_uint8_t(p) != 0;
    case MSP_U8:
        return load_uint8_t(p);
    case MSP_U16:
        return load_uint16_t(p);
    case MSP_U32:
        return load_uint32_t(p);
    default:
        return load_uint64_t(p);
    }
}

double
msp_dtype_load_f64(msp_dtype t, const void *p)
{
    switch (msp_dtype_class_of(t)) {
    case MSP_CLASS_FLOAT:
        return load_float(t, p);
    case MSP_CLASS_COMPLEX:
        return load_float(t == MSP_C64 ? MSP_F32 : MSP_F64, p);
    case MSP_CLASS_INT:
    case MSP_CLASS_BOOL:
        return msp_dtype_is_signed_int(t) ? (double)load_signed(t, p) : (double)load_unsigned(t, p);
    default:
        return NAN;
    }
}

static void
add_f32(void *sum, const void *p)
{
    uint32_t bits = msp_f32_bits(msp_f32_from_bits(load_uint32_t(sum)) + msp_f32_from_bits(load_uint32_t(p)));

    memcpy(sum, &bits, sizeof(bits));
}

static void
add_f64(void *sum, const void *p)
{
    double v = load_double(sum) + load_double(p);

    memcpy(sum, &v, sizeof(v));
}

static void
add_16(msp_dtype t, void *sum, const void *p)
{
    float v = (float)load_float(t, sum) + (float)load_float(t, p);
    uint16_t bits = t == MSP_F16 ? msp_f32_to_f16(v) : msp_f32_to_bf16(v);

    memcpy(sum, &bits, sizeof(bits));
}

bool
msp_dtype_add(msp_dtype t, void *sum, const void *p)
{
    switch (t) {
    case MSP_C64:
        add_f32((char *)sum + sizeof(float), (const char *)p + sizeof(float));
        /* fall through */
    case MSP_F32:
        add_f32(sum, p);
        return true;
    case MSP_C128:
        add_f64((char *)sum + sizeof(double), (const char *)p + sizeof(double));
        /* fall through */
    case MSP_F64:
        add_f64(sum, p);
        return true;
    case MSP_F16:
    case MSP_BF16:
        add_16(t, sum, p);
        return true;
    default:
        return false;
    }
}

/* A part of a complex number: repr without the ".0" of whole numbers. */
static size_t
format_part(char buf[32], double v)
{
    size_t n = msp_f64_repr(buf, v);

    if (n > 2 && memcmp(buf + n - 2, ".0", 2) == 0)
        buf[n -= 2] = '\0';
    return n;
}

/* Python: "2j" when the real part is +0, else "(1+2j)". */
static size_t
format_complex(char buf[80], double real, double imag)
{
    char re[32], im[32];

    format_part(re, real);
    format_part(im, imag);
    if (real == 0 && !signbit(real))
        return (size_t)snprintf(buf, 80, "%sj", im);
    return (size_t)snprintf(buf, 80, "(%s%s%sj)", re, im[0] == '-' ? "" : "+", im);
}

size_t
msp_dtype_format(char buf[80], msp_dtype t, const void *p)
{
    msp_dtype part = t == MSP_C64 ? MSP_F32 : MSP_F64;

    switch (msp_dtype_class_of(t)) {
    case MSP_CLASS_FLOAT:
        return msp_f64_repr(buf, load_float(t, p));
    case MSP_CLASS_COMPLEX:
        return format_complex(buf, load_float(part, p), load_float(part, (const char *)p + msp_dtype_size(part)));
    case MSP_CLASS_BOOL:
        return (size_t)snprintf(buf, 80, "%s", load_unsigned(t, p) ? "True" : "False");
    case MSP_CLASS_INT:
        if (msp_dtype_is_signed_int(t))
            return (size_t)snprintf(buf, 80, "%" PRId64, load_signed(t, p));
        return (size_t)snprintf(buf, 80, "%" PRIu64, load_unsigned(t, p));
    default:
        buf[0] = '\0';
        return 0;
    }
}
