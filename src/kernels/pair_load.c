/* pair_load.c - see pair_load.h. */
#include "kernels/pair_load.h"

#include <math.h>
#include <string.h>
#include "core/cpu.h"
#include "dtype/convert.h"

static const msp_pair_set *
best_set(void)
{
#if defined(__x86_64__)
    msp_cpu_level level = msp_cpu_best();

    if (level >= MSP_CPU_AVX512)
        return &msp_pair_avx512;
    if (level >= MSP_CPU_AVX2)
        return &msp_pair_avx2;
#elif defined(__aarch64__)
    if (msp_cpu_best() >= MSP_CPU_NEON)
        return &msp_pair_neon;
#endif
    return &msp_pair_scalar;
}

static bool
is_integer(msp_dtype t)
{
    return msp_dtype_class_of(t) == MSP_CLASS_INT || msp_dtype_class_of(t) == MSP_CLASS_BOOL;
}

/* A float that float32 holds exactly. */
static bool
is_small_float(msp_dtype t)
{
    return msp_dtype_class_of(t) == MSP_CLASS_FLOAT && t != MSP_F64;
}

static msp_pair_kind
kind_of(msp_dtype n, msp_dtype b)
{
    if (msp_dtype_class_of(n) == MSP_CLASS_COMPLEX || msp_dtype_class_of(b) == MSP_CLASS_COMPLEX)
        return MSP_PAIR_C128;
    if (is_integer(n) && is_integer(b) && (msp_dtype_size(n) == 8 || msp_dtype_size(b) == 8))
        return MSP_PAIR_I128;
    if (n == b && n == MSP_F16)
        return MSP_PAIR_F16;
    if (n == b && n == MSP_BF16)
        return MSP_PAIR_BF16;
    return is_small_float(n) && is_small_float(b) ? MSP_PAIR_F32 : MSP_PAIR_F64;
}

void
msp_pair_view_init(msp_pair_view *v, const msp_tensor *n, const msp_tensor *b)
{
    v->set = best_set();
    msp_gather_init(&v->n, n);
    msp_gather_init(&v->b, b);
    v->n_type = n->dtype;
    v->b_type = b->dtype;
    v->kind = kind_of(n->dtype, b->dtype);
    v->numel = n->numel;
    v->block = MSP_PAIR_BLOCK;
    if (v->kind == MSP_PAIR_C128 || v->kind == MSP_PAIR_I128)
        v->block = MSP_PAIR_BLOCK / 2;
    else if (v->kind == MSP_PAIR_F16 || v->kind == MSP_PAIR_BF16)
        v->block = 2 * MSP_PAIR_BLOCK;
}

/* ---- conversion -------------------------------------------------------------------------------------------------- */

/* Elements anywhere in memory. */
#define ANYWHERE __attribute__((aligned(1), may_alias))

typedef float any_f32 ANYWHERE;
typedef double any_f64 ANYWHERE;
typedef int8_t any_i8 ANYWHERE;
typedef int16_t any_i16 ANYWHERE;
typedef int32_t any_i32 ANYWHERE;
typedef int64_t any_i64 ANYWHERE;
typedef uint8_t any_u8 ANYWHERE;
typedef uint16_t any_u16 ANYWHERE;
typedef uint32_t any_u32 ANYWHERE;
typedef uint64_t any_u64 ANYWHERE;

#define CONVERT(target, source, expression)  \
    for (size_t i = 0; i < count; i++) {     \
        source x = ((const source *)src)[i]; \
                                             \
        dst[i] = (target)(expression);       \
    }                                        \
    break

static void
to_f32(float *dst, const msp_pair_set *set, msp_dtype t, const void *src, size_t count)
{
    switch (t) {
    case MSP_F16:
        set->f16_to_f32(dst, src, count);
        break;
    case MSP_BF16:
        set->bf16_to_f32(dst, src, count);
        break;
    case MSP_F8_E4M3FN:
        CONVERT(float, any_u8, msp_f8_e4m3fn_to_f32(x));
    case MSP_F8_E5M2:
        CONVERT(float, any_u8, msp_f8_e5m2_to_f32(x));
    case MSP_F8_E4M3FNUZ:
        CONVERT(float, any_u8, msp_f8_e4m3fnuz_to_f32(x));
    case MSP_F8_E5M2FNUZ:
        CONVERT(float, any_u8, msp_f8_e5m2fnuz_to_f32(x));
    default:
        memcpy(dst, src, count * sizeof(float));
    }
}

static void
integer_to_f64(double *dst, msp_dtype t, const void *src, size_t count)
{
    switch (t) {
    case MSP_I8:
        CONVERT(double, any_i8, x);
    case MSP_I16:
        CONVERT(double, any_i16, x);
    case MSP_I32:
        CONVERT(double, any_i32, x);
    case MSP_I64:
        CONVERT(double, any_i64, x);
    case MSP_U8:
        CONVERT(double, any_u8, x);
    case MSP_U16:
        CONVERT(double, any_u16, x);
    case MSP_U32:
        CONVERT(double, any_u32, x);
    case MSP_U64:
        CONVERT(double, any_u64, x);
    default: /* bool: whatever is not 0 is 1 */
        CONVERT(double, any_u8, x != 0);
    }
}

static void
to_f64(double *dst, const msp_pair_set *set, msp_dtype t, const void *src, size_t count)
{
    if (t == MSP_F64) {
        memcpy(dst, src, count * sizeof(double));
    } else if (t == MSP_F32) {
        for (size_t i = 0; i < count; i++)
            dst[i] = ((const any_f32 *)src)[i];
    } else if (is_integer(t)) {
        integer_to_f64(dst, t, src, count);
    } else {
        float small[256];

        for (size_t done = 0; done < count; done += 256) {
            size_t n = count - done < 256 ? count - done : 256;

            to_f32(small, set, t, (const char *)src + done * msp_dtype_size(t), n);
            for (size_t i = 0; i < n; i++)
                dst[done + i] = small[i];
        }
    }
}

static void
to_c128(msp_c128 *dst, const msp_pair_set *set, msp_dtype t, const void *src, size_t count)
{
    double real[MSP_PAIR_BLOCK / 2];

    switch (t) {
    case MSP_C64:
        to_f64((double *)dst, set, MSP_F32, src, 2 * count);
        break;
    case MSP_C128:
        memcpy(dst, src, count * sizeof(*dst));
        break;
    default:
        to_f64(real, set, t, src, count);
        for (size_t i = 0; i < count; i++)
            dst[i] = (msp_c128){real[i], 0};
    }
}

static void
to_i128(msp_i128 *dst, msp_dtype t, const void *src, size_t count)
{
    switch (t) {
    case MSP_I64:
        CONVERT(msp_i128, any_i64, x);
    case MSP_U64:
        CONVERT(msp_i128, any_u64, x);
    default: {
        double small[MSP_PAIR_BLOCK / 2]; /* at most 32 bits: a double holds them */

        integer_to_f64(small, t, src, count);
        for (size_t i = 0; i < count; i++)
            dst[i] = (msp_i128)small[i];
    }
    }
}

/* True when a double holds every element. Differences of such integers are as exact as they can be in double too. */
static bool
fits_f64(msp_dtype t, const void *src, size_t count)
{
    uint64_t above = 0; /* the highest bits of the magnitudes, or'ed */

    if (t == MSP_U64) {
        for (size_t i = 0; i < count; i++)
            above |= ((const any_u64 *)src)[i];
    } else if (t == MSP_I64) {
        for (size_t i = 0; i < count; i++) {
            int64_t x = ((const any_i64 *)src)[i];

            above |= (uint64_t)(x ^ x >> 63);
        }
    }
    return above >> 53 == 0;
}

/* One side as the block's kind, in place where it is that already. */
static const void *
convert_side(void *buf, const msp_pair_view *v, msp_pair_kind kind, msp_dtype t, const void *src, size_t count)
{
    switch (kind) {
    case MSP_PAIR_F32:
        if (t == MSP_F32)
            return src;
        to_f32(buf, v->set, t, src, count);
        return buf;
    case MSP_PAIR_F64:
        if (t == MSP_F64)
            return src;
        to_f64(buf, v->set, t, src, count);
        return buf;
    case MSP_PAIR_C128:
        to_c128(buf, v->set, t, src, count);
        return buf;
    case MSP_PAIR_I128:
        to_i128(buf, t, src, count);
        return buf;
    default:
        return src;
    }
}

void
msp_pair_load(msp_pair_block *out, const msp_pair_view *v, msp_pair_scratch *s, int64_t start, size_t count)
{
    const void *n = msp_gather_block(&v->n, start, (int64_t)count, s->raw_n);
    const void *b = msp_gather_block(&v->b, start, (int64_t)count, s->raw_b);

    out->kind = v->kind;
    if (v->kind == MSP_PAIR_I128 && fits_f64(v->n_type, n, count) && fits_f64(v->b_type, b, count))
        out->kind = MSP_PAIR_F64;
    out->flags = 0;
    out->count = count;
    out->n = convert_side(s->n, v, out->kind, v->n_type, n, count);
    out->b = convert_side(s->b, v, out->kind, v->b_type, b, count);
}

void
msp_pair_widen(msp_pair_block *block, const msp_pair_view *v, msp_pair_scratch *s)
{
    msp_dtype t = block->kind == MSP_PAIR_F16 ? MSP_F16 : MSP_BF16;

    if (block->kind > MSP_PAIR_BF16)
        return;
    to_f32((float *)s->n, v->set, t, block->n, block->count);
    to_f32((float *)s->b, v->set, t, block->b, block->count);
    block->flags = block->kind == MSP_PAIR_F16 ? MSP_PAIR_HALF : 0;
    block->kind = MSP_PAIR_F32;
    block->n = s->n;
    block->b = s->b;
}

/* ---- what is not finite ------------------------------------------------------------------------------------------ */

typedef enum number_class { FINITE, NOT_A_NUMBER, PLUS_INFINITY, MINUS_INFINITY, OTHER_INFINITY } number_class;

static number_class
class_of(double x)
{
    if (isfinite(x))
        return FINITE;
    if (isnan(x))
        return NOT_A_NUMBER;
    return x > 0 ? PLUS_INFINITY : MINUS_INFINITY;
}

static void
note_bad(msp_pair_bad *out, number_class n, number_class b, bool same_infinity, size_t i)
{
    out->nonfinite++;
    if ((n == NOT_A_NUMBER) != (b == NOT_A_NUMBER) || (n >= PLUS_INFINITY) != (b >= PLUS_INFINITY)) {
        if (out->mismatches++ == 0)
            out->first_mismatch = i;
    } else if (n >= PLUS_INFINITY && !same_infinity) {
        out->inf_sign++;
    }
}

#define CLEAN_REAL(type)                                                     \
    for (size_t i = 0; i < block->count; i++) {                              \
        type *pn = (type *)s->n + i, *pb = (type *)s->b + i;                 \
        number_class cn = class_of((double)*pn), cb = class_of((double)*pb); \
                                                                             \
        if (cn != FINITE || cb != FINITE) {                                  \
            note_bad(out, cn, cb, cn == cb, i);                              \
            *pn = *pb = 0;                                                   \
        }                                                                    \
    }

/* NaN in either part makes a complex number NaN, else infinity in either part makes it infinite. */
static number_class
class_of_complex(msp_c128 x)
{
    if (isnan(x.re) || isnan(x.im))
        return NOT_A_NUMBER;
    return isfinite(x.re) && isfinite(x.im) ? FINITE : OTHER_INFINITY;
}

/* The infinite parts are the same, whatever the finite ones are. */
static bool
same_direction(msp_c128 n, msp_c128 b)
{
    return isinf(n.re) == isinf(b.re) && isinf(n.im) == isinf(b.im) && (!isinf(n.re) || n.re == b.re) &&
           (!isinf(n.im) || n.im == b.im);
}

static void
clean_complex(msp_c128 *n, msp_c128 *b, size_t count, msp_pair_bad *out)
{
    for (size_t i = 0; i < count; i++) {
        number_class cn = class_of_complex(n[i]), cb = class_of_complex(b[i]);

        if (cn != FINITE || cb != FINITE) {
            note_bad(out, cn, cb, same_direction(n[i], b[i]), i);
            n[i] = b[i] = (msp_c128){0, 0};
        }
    }
}

void
msp_pair_clean(msp_pair_block *block, msp_pair_bad *out, const msp_pair_view *v, msp_pair_scratch *s)
{
    size_t size;

    *out = (msp_pair_bad){0};
    msp_pair_widen(block, v, s);
    size = block->kind == MSP_PAIR_F32 ? 4 : block->kind == MSP_PAIR_F64 ? 8 : 16;
    memmove(s->n, block->n, block->count * size);
    memmove(s->b, block->b, block->count * size);
    block->n = s->n;
    block->b = s->b;
    if (block->kind == MSP_PAIR_F32) {
        CLEAN_REAL(float)
    } else if (block->kind == MSP_PAIR_F64) {
        CLEAN_REAL(double)
    } else if (block->kind == MSP_PAIR_C128) {
        clean_complex((msp_c128 *)s->n, (msp_c128 *)s->b, block->count, out);
    }
}
