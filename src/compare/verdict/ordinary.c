/* ordinary.c - see ordinary.h. Chosen on the groups that bench/truth/README.md names. */
#include "compare/verdict/ordinary.h"

msp_ordinary
msp_ordinary_of(msp_call_class cls, msp_dtype t)
{
    bool matmul = cls == MSP_CALL_MATMUL;

    if (cls == MSP_CALL_MOVE)
        return (msp_ordinary){0, 0, 1, 1};
    switch (t) {
    case MSP_F64: /* the reference is no more exact than the result: it sums in another order, at the least */
        return matmul ? (msp_ordinary){64, 512, 4, 50} : (msp_ordinary){64, 512, 4, 50};
    case MSP_F32: /* products: TF32's 11 bits, 2^-11. Functions: 16 roundoffs, 2^-20 */
        return matmul ? (msp_ordinary){3, 8192, 2.2, 50} : (msp_ordinary){4, 16, 2.2, 60};
    default: /* 16 bits and less: partial sums and intermediate results stored in the type */
        return matmul ? (msp_ordinary){0.5, 1, 1.6, 50} : (msp_ordinary){0.5, 1.4, 1.6, 15};
    }
}

const char *
msp_ordinary_name(msp_dtype t, double bits)
{
    static const struct {
        double least, most;
        const char *name;
    } float32[] = {{7.2, 9.4, "bfloat16 products"},
                   {10.2, 11.7, "TF32"},
                   {11.7, 13.2, "HF32"},
                   {15.0, 18.0, "float32 in two bfloat16 parts"}};

    for (size_t i = 0; t == MSP_F32 && i < sizeof(float32) / sizeof(*float32); i++)
        if (bits >= float32[i].least && bits < float32[i].most)
            return float32[i].name;
    return NULL;
}
