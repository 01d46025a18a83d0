/* dtype.h - element types, their names in every framework, and single-element conversion. */
#ifndef MSPROBE_DTYPE_H
#define MSPROBE_DTYPE_H

#include <stdbool.h>
#include <stdint.h>
#include "msprobe/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The order is part of the ABI: add at the end only. */
typedef enum msp_dtype {
    MSP_DTYPE_NONE = 0,
    MSP_F64,
    MSP_F32,
    MSP_F16,
    MSP_BF16,
    MSP_F8_E4M3FN,
    MSP_F8_E5M2,
    MSP_F8_E4M3FNUZ,
    MSP_F8_E5M2FNUZ,
    MSP_I8,
    MSP_I16,
    MSP_I32,
    MSP_I64,
    MSP_U8,
    MSP_U16,
    MSP_U32,
    MSP_U64,
    MSP_BOOL,
    MSP_C64,  /* two float32: real, imaginary */
    MSP_C128, /* two float64 */
    MSP_DTYPE_COUNT
} msp_dtype;

typedef enum msp_dtype_class {
    MSP_CLASS_NONE = 0,
    MSP_CLASS_FLOAT,
    MSP_CLASS_INT, /* signed and unsigned */
    MSP_CLASS_BOOL,
    MSP_CLASS_COMPLEX
} msp_dtype_class;

/* Bytes per element; 0 for MSP_DTYPE_NONE. */
MSP_API size_t msp_dtype_size(msp_dtype t);

/* MSP_CLASS_NONE for MSP_DTYPE_NONE. */
MSP_API msp_dtype_class msp_dtype_class_of(msp_dtype t);

/* int8 to int64; false for all others. */
MSP_API bool msp_dtype_is_signed_int(msp_dtype t);

/* "torch.float32", "torch.bfloat16", ...: what dump.json holds. Never NULL. */
MSP_API const char *msp_dtype_torch_name(msp_dtype t);

/* "Float32", "BFloat16", ...: MindSpore's name, or NULL where MindSpore has no such type. */
MSP_API const char *msp_dtype_mindspore_name(msp_dtype t);

/*
 * Recognise a type by any name that dumps hold: "torch.float32", "float32", "torch.float", "Float32", "F32", "<f4",
 * "half", "torch.HalfTensor", "torch.cuda.HalfTensor", "torch.npu.HalfTensor", "torch.FloatStorage", ... Case matters.
 * MSP_DTYPE_NONE when unknown; ">f4" is: it names bytes in an order that is not ours.
 */
MSP_API msp_dtype msp_dtype_parse(const char *name, size_t len);

/*
 * One element as a double: exact for every type but int64/uint64 beyond 2^53 (rounded to nearest, ties to even) and
 * complex (the real part). A NaN keeps its sign and the top bits of its payload. p need not be aligned.
 */
MSP_API double msp_dtype_load_f64(msp_dtype t, const void *p);

/*
 * *sum += *p, rounded to the type after each addition as frameworks do it. Returns false, and does nothing, for types
 * other than float16, bfloat16, float32, float64 and complex.
 */
MSP_API bool msp_dtype_add(msp_dtype t, void *sum, const void *p);

/*
 * Write the element at p as Python would print it after .item(): "0.10000000149011612", "-3", "True", "nan", "(1+2j)".
 * buf is always terminated; returns the length, at most 79.
 */
MSP_API size_t msp_dtype_format(char buf[80], msp_dtype t, const void *p);

#ifdef __cplusplus
}
#endif
#endif
