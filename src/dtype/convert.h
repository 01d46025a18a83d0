/*
 * convert.h - narrow floats bit by bit.
 *
 * 16-bit floats are uint16_t in memory, 8-bit ones uint8_t. Widening is exact, and so is narrowing whatever came from
 * widening: a NaN keeps its sign and the top bits of its payload, signalling or not, which hardware conversions do not
 * promise. Everything works on the bits, so that no CPU and no rounding mode changes a result.
 *
 *            sign exponent mantissa  bias  largest   infinity  NaN
 *   f16         1        5       10    15    65504        yes  exponent all ones
 *   bf16        1        8        7   127   3.39e38       yes  exponent all ones
 *   e5m2        1        5        2    15    57344        yes  exponent all ones
 *   e4m3fn      1        4        3     7      448        no   0x7f and 0xff
 *   e5m2fnuz    1        5        2    16    57344        no   0x80 (there is no -0)
 *   e4m3fnuz    1        4        3     8      240        no   0x80
 */
#ifndef MSP_DTYPE_CONVERT_H
#define MSP_DTYPE_CONVERT_H

#include <stdint.h>
#include <string.h>

static inline float
msp_f32_from_bits(uint32_t bits)
{
    float v;

    memcpy(&v, &bits, sizeof(v));
    return v;
}

static inline uint32_t
msp_f32_bits(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

static inline double
msp_f64_from_bits(uint64_t bits)
{
    double v;

    memcpy(&v, &bits, sizeof(v));
    return v;
}

static inline uint64_t
msp_f64_bits(double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

/*
 * A positive float with an exponent of width ebits and bias, and a mantissa of mbits, as the bits of a float32. Not for
 * infinities and NaN: an exponent of all ones is an exponent like any other here.
 */
static inline uint32_t
msp_narrow_to_f32_bits(uint32_t magnitude, int mbits, int bias)
{
    uint32_t exponent = magnitude >> mbits;
    uint32_t mantissa = magnitude & ((1u << mbits) - 1);

    if (exponent == 0) { /* zero or subnormal: mantissa * 2^(1 - bias - mbits), a product float32 holds exactly */
        float unit = msp_f32_from_bits((uint32_t)(127 + 1 - bias - mbits) << 23);

        return msp_f32_bits((float)mantissa * unit);
    }
    return ((exponent + 127 - (uint32_t)bias) << 23) | (mantissa << (23 - mbits));
}

static inline uint32_t
msp_f16_to_f32_bits(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t magnitude = h & 0x7fff;

    if (magnitude >= 0x7c00)
        return sign | 0x7f800000 | (magnitude & 0x3ff) << 13;
    return sign | msp_narrow_to_f32_bits(magnitude, 10, 15);
}

static inline float
msp_f16_to_f32(uint16_t h)
{
    return msp_f32_from_bits(msp_f16_to_f32_bits(h));
}

static inline float
msp_bf16_to_f32(uint16_t h)
{
    return msp_f32_from_bits((uint32_t)h << 16);
}

static inline uint32_t
msp_f8_e5m2_to_f32_bits(uint8_t b)
{
    return msp_f16_to_f32_bits((uint16_t)(b << 8)); /* the upper half of a float16 */
}

static inline uint32_t
msp_f8_e4m3fn_to_f32_bits(uint8_t b)
{
    uint32_t sign = (uint32_t)(b & 0x80) << 24;

    if ((b & 0x7f) == 0x7f)
        return sign | 0x7fc00000;
    return sign | msp_narrow_to_f32_bits(b & 0x7f, 3, 7);
}

static inline uint32_t
msp_f8_fnuz_to_f32_bits(uint8_t b, int mbits, int bias)
{
    uint32_t sign = (uint32_t)(b & 0x80) << 24;

    if (b == 0x80)
        return 0xffc00000; /* the one NaN carries the sign bit, and so does what it becomes */
    return sign | msp_narrow_to_f32_bits(b & 0x7f, mbits, bias);
}

static inline float
msp_f8_e5m2_to_f32(uint8_t b)
{
    return msp_f32_from_bits(msp_f8_e5m2_to_f32_bits(b));
}

static inline float
msp_f8_e4m3fn_to_f32(uint8_t b)
{
    return msp_f32_from_bits(msp_f8_e4m3fn_to_f32_bits(b));
}

static inline float
msp_f8_e5m2fnuz_to_f32(uint8_t b)
{
    return msp_f32_from_bits(msp_f8_fnuz_to_f32_bits(b, 2, 16));
}

static inline float
msp_f8_e4m3fnuz_to_f32(uint8_t b)
{
    return msp_f32_from_bits(msp_f8_fnuz_to_f32_bits(b, 3, 8));
}

/*
 * float32 to double: as the cast, but a signalling NaN stays what it is, and so does a subnormal in a thread that
 * flushes them (torch.set_flush_denormal).
 */
static inline double
msp_f32_to_f64(uint32_t bits)
{
    uint64_t sign = (uint64_t)(bits & 0x80000000) << 32;
    uint32_t exponent = bits >> 23 & 0xff;
    uint64_t mantissa = bits & 0x7fffff;

    if (exponent == 0)
        return msp_f64_from_bits(sign | msp_f64_bits((double)mantissa * 0x1p-149));
    if (exponent == 0xff)
        return msp_f64_from_bits(sign | 0x7ff0000000000000 | mantissa << 29);
    return msp_f64_from_bits(sign | (uint64_t)(exponent + 1023 - 127) << 52 | mantissa << 29);
}

/* Shift right by 1..31, to the nearest, ties to even. */
static inline uint32_t
msp_shift_right_rne(uint32_t v, int shift)
{
    uint32_t half = 1u << (shift - 1);

    return (v + (half - 1) + ((v >> shift) & 1)) >> shift;
}

/* Round to the nearest float16, ties to even: what IEEE 754 and vcvtps2ph say. Overflow gives infinity. */
static inline uint16_t
msp_f32_to_f16(float v)
{
    uint32_t bits = msp_f32_bits(v);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t exponent = magnitude >> 23;

    if (magnitude > 0x7f800000) { /* a payload that does not reach into the upper bits must not turn into infinity */
        uint16_t payload = (uint16_t)(magnitude >> 13 & 0x3ff);

        return (uint16_t)(sign | 0x7c00 | (payload != 0 ? payload : 0x200));
    }
    if (magnitude >= 0x477ff000) /* 65520, half way from the largest to what would come next */
        return (uint16_t)(sign | 0x7c00);
    if (exponent > 127 - 15) /* rounding up may carry into the exponent: that is the next float16 */
        return (uint16_t)(sign | msp_shift_right_rne(magnitude - ((127u - 15) << 23), 13));
    if (exponent < 127 - 25) /* below half of the smallest subnormal, 2^-24 */
        return sign;
    return (uint16_t)(sign | msp_shift_right_rne((magnitude & 0x7fffff) | 0x800000, (int)(126 - exponent)));
}

/* Round to the nearest bfloat16, ties to even. Overflow gives infinity. */
static inline uint16_t
msp_f32_to_bf16(float v)
{
    uint32_t bits = msp_f32_bits(v);

    if ((bits & 0x7fffffff) > 0x7f800000) {
        uint16_t h = (uint16_t)(bits >> 16);

        return (h & 0x7f) != 0 ? h : (uint16_t)(h | 0x40);
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
