/* standard.c - which standard judges an API: the lists of the original tool, sorted for bsearch(). */
#include <stdlib.h>
#include <string.h>
#include "msprobe/precheck.h"

static const char *const absolute[] = {
    "__add__",    "__div__",     "__iadd__", "__idiv__", "__imul__", "__isub__",   "__mul__",     "__radd__",
    "__rmul__",   "__sub__",     "add",      "add_",     "div",      "div_",       "divide",      "divide_",
    "leaky_relu", "leaky_relu_", "mul",      "mul_",     "prelu",    "reciprocal", "reciprocal_", "rsqrt",
    "rsqrt_",     "rsub",        "square",   "square_",  "sub",      "sub_",
};

static const char *const binary[] = {
    "abs",          "abs_",        "absolute",     "absolute_",  "argmin",        "bitwise_and",    "bitwise_and_",
    "broadcast_to", "ceil",        "ceil_",        "equal",      "fill_",         "flatten",        "floor",
    "floor_",       "gather",      "greater",      "greater_",   "greater_equal", "greater_equal_", "histc",
    "isfinite",     "isnan",       "less",         "less_",      "less_equal",    "less_equal_",    "logical_and",
    "logical_and_", "logical_not", "logical_not_", "logical_or", "logical_or_",   "masked_fill",    "masked_fill_",
    "max_pool3d",   "maximum",     "minimum",      "neg",        "neg_",          "nonzero",        "not_equal",
    "not_equal_",   "one_hot",     "pad",          "relu",       "reshape",       "round",          "round_",
    "select",       "sign",        "sign_",        "sort",       "tile",          "topk",           "transpose",
    "transpose_",   "tril",        "tril_",        "triu",       "triu_",         "type_as",
};

static const char *const ulp[] = {
    "__matmul__",   "addbmm", "addbmm_", "addmm",  "addmm_", "baddbmm", "baddbmm_", "bilinear", "bmm",
    "chain_matmul", "hspmm",  "linear",  "matmul", "mm",     "mv",      "smm",      "sspaddmm",
};

static const char *const thousandth[] = {"conv1d", "conv2d"};

static int
compare_name(const void *key, const void *item)
{
    return strcmp(key, *(const char *const *)item);
}

#define IN(list, name) (bsearch(name, list, sizeof(list) / sizeof(*(list)), sizeof(*(list)), compare_name) != NULL)

msp_precheck_standard
msp_precheck_standard_of(const char *api, msp_dtype dtype)
{
    switch (dtype) {
    case MSP_F8_E4M3FN:
    case MSP_F8_E5M2:
    case MSP_F8_E4M3FNUZ:
    case MSP_F8_E5M2FNUZ:
        return MSP_PRECHECK_ULP;
    case MSP_F16:
    case MSP_BF16:
    case MSP_F32:
    case MSP_F64:
    case MSP_C64:
    case MSP_C128:
        break;
    default:
        return MSP_PRECHECK_BINARY;
    }
    return IN(absolute, api)     ? MSP_PRECHECK_ABSOLUTE
           : IN(binary, api)     ? MSP_PRECHECK_BINARY
           : IN(ulp, api)        ? MSP_PRECHECK_ULP
           : IN(thousandth, api) ? MSP_PRECHECK_THOUSANDTH
                                 : MSP_PRECHECK_BENCHMARK;
}
