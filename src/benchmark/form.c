/*
 * form.c - see form.h. The constants of noise are the original tool's; float8, which it does not know, has bfloat16's.
 */
#include "benchmark/form.h"
#include "msprobe/benchmark.h"
#include <string.h>

/* bytes, parts, digits, nonfinite, normal, noisy, doubled, noise. For the narrow types the magnitudes of `noisy` are
 * the largest that are at most the root: 0x1418 in float16 for 0.001, 0x3c23 in bfloat16 for 0.01. */
static const float_form none = {0};
static const float_form f64 = {8, 1,    53, UINT64_C(0x7ff) << 52, UINT64_C(1) << 52, UINT64_C(0x3e45798ee2308c3a),
                               0, 1e-16};
static const float_form f32 = {4, 1, 24, 0x7f800000, 0x00800000, 0x38d1b717, 0, 1e-8};
static const float_form f16 = {2, 1, 11, 0x7c00, 0x0400, 0x1418, 0, 1e-6};
static const float_form bf16 = {2, 1, 8, 0x7f80, 0x0080, 0x3c23, 0x3c7f, 1e-4};
static const float_form e4m3fn = {1, 1, 4, 0x7f, 0x08, 0x05, 0, 1e-4};
static const float_form e5m2 = {1, 1, 3, 0x7c, 0x04, 0x21, 0, 1e-4};
static const float_form e4m3fnuz = {1, 1, 4, 0x80, 0x08, 0x0a, 0, 1e-4};
static const float_form e5m2fnuz = {1, 1, 3, 0x80, 0x04, 0x25, 0, 1e-4};
static const float_form c64 = {4, 2, 24, 0x7f800000, 0x00800000, 0x38d1b717, 0, 1e-8};
static const float_form c128 = {8, 2,    53, UINT64_C(0x7ff) << 52, UINT64_C(1) << 52, UINT64_C(0x3e45798ee2308c3a),
                                0, 1e-16};

const float_form *
msp_float_form(msp_dtype t)
{
    static const float_form *const forms[MSP_DTYPE_COUNT] = {
        [MSP_F64] = &f64,
        [MSP_F32] = &f32,
        [MSP_F16] = &f16,
        [MSP_BF16] = &bf16,
        [MSP_F8_E4M3FN] = &e4m3fn,
        [MSP_F8_E5M2] = &e5m2,
        [MSP_C64] = &c64,
        [MSP_F8_E4M3FNUZ] = &e4m3fnuz,
        [MSP_F8_E5M2FNUZ] = &e5m2fnuz,
        [MSP_C128] = &c128,
    };

    return (unsigned)t < MSP_DTYPE_COUNT && forms[t] != NULL ? forms[t] : &none;
}

bool
msp_perturbation_parse(msp_perturbation *out, const char *word)
{
    static const char *const words[] = {[MSP_PERTURB_NOISE] = "add_noise",
                                        [MSP_PERTURB_BIT] = "bit_noise",
                                        [MSP_PERTURB_SWAP] = "change_value",
                                        [MSP_PERTURB_ULP] = "one_ulp"};

    for (int i = 0; i <= MSP_PERTURB_ULP; i++)
        if (strcmp(word, words[i]) == 0) {
            *out = (msp_perturbation)i;
            return true;
        }
    return false;
}
