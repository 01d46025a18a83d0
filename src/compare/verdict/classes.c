/* classes.c - what a call does to its elements, told by its name: "Functional.linear.0.forward" is a matrix product. */
#include "compare/verdict/verdict.h"

static bool
has_any(msp_str word, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (msp_str_find(word, msp_str_of(list[i])) != NULL)
            return true;
    return false;
}

#define HAS(word, list) has_any(word, list, sizeof(list) / sizeof((list)[0]))

/* "linear" of "Functional.linear.0.forward"; of Module.layer1.fc.Linear.forward.0 the class: "Linear". */
msp_str
msp_verdict_operation(msp_str api)
{
    msp_str rest = api, prefix = msp_str_shift(&rest), word = msp_str_shift(&rest), last = word;

    if (!msp_str_eq(prefix, MSP_STR("Module")) && !msp_str_eq(prefix, MSP_STR("Cell"))) {
        while (last.len > 0 && last.p[0] == '_') /* __add__, relu_ */
            last = (msp_str){last.p + 1, last.len - 1};
        while (last.len > 0 && last.p[last.len - 1] == '_')
            last.len--;
        return last.len > 0 ? last : word;
    }
    while (rest.len > 0) {
        word = msp_str_shift(&rest);
        if (msp_str_eq(word, MSP_STR("forward")) || msp_str_eq(word, MSP_STR("backward")))
            break;
        last = word;
    }
    return last;
}

static bool
is_backward(msp_str api)
{
    return msp_str_find(api, MSP_STR(".backward")) != NULL;
}

static msp_call_family
family_of(msp_str op)
{
    static const char *const conv[] = {"conv", "Conv"}, *const attention[] = {"attention", "Attention"},
                             *const recurrent[] = {"lstm", "gru", "rnn_", "LSTM", "GRU", "RNN"},
                             *const product[] = {"linear", "matmul", "einsum", "Linear", "bilinear"},
                             *const whole[] = {"mm",  "bmm", "addmm", "baddbmm",   "addbmm",       "addmv", "mv",
                                               "dot", "ger", "outer", "tensordot", "chain_matmul", "rnn"};

    if (HAS(op, conv))
        return MSP_FAMILY_CONVOLUTION;
    if (HAS(op, attention))
        return MSP_FAMILY_ATTENTION;
    if (HAS(op, recurrent))
        return MSP_FAMILY_RECURRENT;
    return MSP_STR_IS_ONE_OF(op, whole) || HAS(op, product) ? MSP_FAMILY_PRODUCT : MSP_FAMILY_NONE;
}

bool
msp_verdict_is_move(msp_str op)
{
    static const char *const move[] = {"reshape",
                                       "transpose",
                                       "permute",
                                       "view",
                                       "view_as",
                                       "cat",
                                       "concat",
                                       "stack",
                                       "chunk",
                                       "split",
                                       "tensor_split",
                                       "gather",
                                       "expand",
                                       "expand_as",
                                       "flatten",
                                       "unflatten",
                                       "contiguous",
                                       "getitem",
                                       "setitem",
                                       "where",
                                       "masked_fill",
                                       "squeeze",
                                       "unsqueeze",
                                       "index_select",
                                       "select",
                                       "narrow",
                                       "embedding",
                                       "relu",
                                       "relu6",
                                       "hardtanh",
                                       "max_pool1d",
                                       "max_pool2d",
                                       "max_pool3d",
                                       "topk",
                                       "sort",
                                       "scatter",
                                       "repeat",
                                       "repeat_interleave",
                                       "triu",
                                       "tril",
                                       "unfold",
                                       "clone",
                                       "pad",
                                       "roll",
                                       "flip",
                                       "one_hot",
                                       "amax",
                                       "amin",
                                       "max",
                                       "min",
                                       "maximum",
                                       "minimum",
                                       "argmax",
                                       "argmin",
                                       "argsort",
                                       "neg",
                                       "abs",
                                       "clamp",
                                       "clamp_min",
                                       "clamp_max",
                                       "t",
                                       "swapaxes",
                                       "movedim",
                                       "float",
                                       "half",
                                       "bfloat16",
                                       "double",
                                       "type_as",
                                       "to",
                                       "type",
                                       "copy",
                                       "fill",
                                       "zero",
                                       "zeros_like",
                                       "ones_like",
                                       "full_like",
                                       "index_copy",
                                       "masked_select",
                                       "hstack",
                                       "vstack",
                                       "dstack",
                                       "take",
                                       "take_along_dim",
                                       "rot90",
                                       "pixel_shuffle",
                                       "unbind",
                                       "sign",
                                       "detach",
                                       "diagonal",
                                       "diag",
                                       "broadcast_to",
                                       "view_as_real",
                                       "view_as_complex",
                                       "conj",
                                       "real",
                                       "imag",
                                       "ravel",
                                       "tile",
                                       "swapdims",
                                       "moveaxis",
                                       "index_fill",
                                       "masked_scatter",
                                       "diag_embed",
                                       "select_scatter",
                                       "slice_scatter",
                                       "column_stack",
                                       "pixel_unshuffle",
                                       "adaptive_max_pool1d",
                                       "adaptive_max_pool2d",
                                       "adaptive_max_pool3d"};

    return MSP_STR_IS_ONE_OF(op, move);
}

msp_call_nature
msp_verdict_nature(msp_str api, msp_str at)
{
    static const char *const ieee[] = {"add", "sub", "mul", "iadd", "isub", "imul", "radd", "rsub", "rmul"};
    static const char *const chance[] = {"rand",       "randn",       "randint",        "randperm",     "rand_like",
                                         "randn_like", "normal",      "uniform",        "bernoulli",    "multinomial",
                                         "poisson",    "exponential", "empty",          "empty_like",   "new_empty",
                                         "random",     "rrelu",       "gumbel_softmax", "randint_like", "geometric",
                                         "cauchy",     "log_normal",  "empty_strided"};
    static const char *const casts[] = {"float", "half", "bfloat16", "double", "to", "type_as", "type", "contiguous"};
    static const char *const added[] = {"addmm", "baddbmm", "addbmm", "addmv", "addr"}; /* to their first operand */
    static const char *const sums[] = {"add", "sub", "iadd", "isub", "radd", "rsub", "sum"};
    static const char *const exponential[] = {"softmax", "log_softmax", "logsumexp", "cross_entropy", "exp", "sigmoid"};
    static const char *const from_result[] = {"rsqrt", "sqrt", "reciprocal", "exp", "exp2", "expm1", "tanh", "tan",
                                              "sigmoid", "softmax", "log_softmax", "logsumexp", "norm", "std", "prod",
                                              "elu", "cumprod",
                                              /* they keep the mean and the deviation */
                                              "layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm"};
    msp_str op = msp_verdict_operation(api);
    msp_call_nature n = {.family = family_of(op), .backward = is_backward(api)};
    /* a bias's gradient is a sum, not a product */
    bool bias = n.backward && (msp_str_eq(op, MSP_STR("linear")) || n.family == MSP_FAMILY_CONVOLUTION) &&
                msp_str_ends(at, MSP_STR(".2"));

    bias = bias || (n.backward && MSP_STR_IS_ONE_OF(op, added) && msp_str_ends(at, MSP_STR(".0"))) ||
           (n.backward && msp_str_eq(op, MSP_STR("bilinear")) && msp_str_ends(at, MSP_STR(".3")));
    if (n.family != MSP_FAMILY_NONE)
        n.cls = bias ? MSP_CALL_VECTOR : MSP_CALL_MATMUL;
    else /* what a copy takes from one place it may give back as a sum */
        n.cls = msp_verdict_is_move(op) && !n.backward ? MSP_CALL_MOVE : MSP_CALL_VECTOR;
    if (bias)
        n.family = MSP_FAMILY_NONE;
    n.hands_on = MSP_STR_IS_ONE_OF(op, casts);
    n.from_result = MSP_STR_IS_ONE_OF(op, from_result);
    n.chance = MSP_STR_IS_ONE_OF(op, chance) || msp_str_find(op, MSP_STR("dropout")) != NULL ||
               msp_str_find(op, MSP_STR("Dropout")) != NULL;
    n.rounds_once = !n.backward && MSP_STR_IS_ONE_OF(op, ieee);
    n.sums = !MSP_STR_IS_ONE_OF(op, exponential) && (n.backward || msp_str_eq(op, MSP_STR("parameters_grad")) ||
                                                     n.family != MSP_FAMILY_NONE || MSP_STR_IS_ONE_OF(op, sums));
    return n;
}

msp_call_class
msp_verdict_class(msp_str api)
{
    return msp_verdict_nature(api, MSP_STR("")).cls;
}
