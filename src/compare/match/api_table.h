/*
 * api_table.h - which PyTorch function a function of mindspore.ops is.
 *
 * Names that both frameworks give to the same function need no entry where their prefix agrees too: Functional.gelu is
 * mindspore.ops.gelu and torch.nn.functional.gelu, Tensor.add is Tensor.add. What is listed: functions that PyTorch has
 * in the torch module and not among its functionals (Functional.abs is Torch.abs), and functions of another name.
 * mindspore.mint follows PyTorch's own names and needs a prefix only. What has no single counterpart (scatter_nd,
 * segment sums, MindSpore's gather) is left out: a yaml file pairs those argument by argument.
 *
 * The tables are sorted by bytes.
 */
#ifndef MSP_COMPARE_API_TABLE_H
#define MSP_COMPARE_API_TABLE_H

/* Functional.<name> of MindSpore is Torch.<name>. */
/* clang-format off */
static const char *const torch_functions[] = {
    "abs", "absolute", "acos", "acosh", "add", "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "adjoint",
    "all", "amax", "amin", "aminmax", "angle", "any", "arange", "arccos", "arccosh", "arcsin", "arcsinh", "arctan",
    "arctan2", "arctanh", "argmax", "argmin", "argsort", "argwhere", "asin", "asinh", "atan", "atan2", "atanh",
    "atleast_1d", "atleast_2d", "atleast_3d", "baddbmm", "bartlett_window", "bernoulli", "bincount", "bitwise_and",
    "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "blackman_window", "block_diag", "bmm",
    "broadcast_to", "cat", "cdist", "ceil", "cholesky", "cholesky_solve", "chunk", "clamp", "clip", "column_stack",
    "combinations", "conj", "copysign", "cos", "cosh", "count_nonzero", "cov", "cross", "cummax", "cummin",
    "cumprod", "cumsum", "deg2rad", "diag", "diag_embed", "diagflat", "diagonal", "diagonal_scatter", "diff",
    "digamma", "dist", "div", "divide", "dot", "dsplit", "dstack", "eig", "einsum", "eq", "erf", "erfc", "erfinv",
    "exp", "exp2", "expm1", "eye", "flatten", "flip", "fliplr", "flipud", "float_power", "floor", "floor_divide",
    "fmax", "fmod", "frac", "full", "full_like", "gcd", "ge", "geqrf", "ger", "greater", "greater_equal", "gt",
    "hamming_window", "hann_window", "heaviside", "histc", "hsplit", "hstack", "hypot", "i0", "igamma", "igammac",
    "imag", "index_add", "index_fill", "index_select", "inner", "inverse", "is_nonzero", "is_tensor", "isclose",
    "isfinite", "isinf", "isnan", "isneginf", "isposinf", "isreal", "kaiser_window", "kron", "lcm", "ldexp", "le",
    "lerp", "less", "less_equal", "linspace", "log", "log10", "log1p", "log2", "logaddexp", "logaddexp2", "logdet",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logit", "logspace", "logsumexp", "lt", "lu_solve",
    "lu_unpack", "masked_fill", "masked_select", "matmul", "max", "maximum", "mean", "median", "meshgrid", "min",
    "minimum", "mm", "moveaxis", "movedim", "msort", "mul", "multinomial", "multiply", "mv", "mvlgamma",
    "nan_to_num", "nanmean", "nansum", "narrow", "ne", "neg", "negative", "nextafter", "nonzero", "norm", "normal",
    "not_equal", "numel", "ones", "ones_like", "orgqr", "ormqr", "outer", "permute", "polar", "polygamma",
    "positive", "pow", "prod", "qr", "rad2deg", "rand", "rand_like", "randn", "randn_like", "range", "ravel", "real",
    "reciprocal", "remainder", "renorm", "repeat_interleave", "reshape", "roll", "rot90", "round", "row_stack",
    "rsqrt", "scatter", "scatter_add", "searchsorted", "select", "select_scatter", "sgn", "sign", "signbit", "sin",
    "sinc", "sinh", "slice_scatter", "slogdet", "sort", "split", "sqrt", "square", "squeeze", "stack", "std",
    "std_mean", "sub", "subtract", "sum", "svd", "swapdims", "t", "tan", "tensor_split", "tile", "topk", "trace",
    "transpose", "trapz", "tril", "tril_indices", "triu", "triu_indices", "true_divide", "trunc", "unbind", "unique",
    "unique_consecutive", "unsqueeze", "vander", "var", "var_mean", "view_as_real", "vsplit", "vstack", "where",
    "xlogy", "zeros", "zeros_like"};
/* clang-format on */

/* Functional.<name> of MindSpore is this. */
static const struct {
    const char *name, *is;
} renamed_functions[] = {
    {"assign", "Tensor.copy_"},
    {"assign_add", "Tensor.add_"},
    {"assign_sub", "Tensor.sub_"},
    {"bessel_i0", "Torch.i0"},
    {"bidense", "Functional.bilinear"},
    {"cast", "Tensor.to"},
    {"clip_by_value", "Torch.clamp"},
    {"col2im", "Functional.fold"},
    {"concat", "Torch.cat"},
    {"cond", "Torch.linalg.cond"},
    {"dense", "Functional.linear"},
    {"equal", "Torch.eq"},
    {"expand", "Tensor.expand"},
    {"expand_dims", "Torch.unsqueeze"},
    {"fast_gelu", "NPU.fast_gelu"},
    {"fill", "Torch.full"},
    {"flash_attention_score", "NPU.npu_fusion_attention"},
    {"floor_div", "Torch.floor_divide"},
    {"floor_mod", "Torch.remainder"},
    {"gather_d", "Torch.gather"},
    {"gather_elements", "Torch.gather"},
    {"inv", "Torch.reciprocal"},
    {"invert", "Torch.bitwise_not"},
    {"lrn", "Functional.local_response_norm"},
    {"matrix_diag", "Torch.diag_embed"},
    {"matrix_solve", "Torch.linalg.solve"},
    {"pinv", "Torch.pinverse"},
    {"repeat_elements", "Torch.repeat_interleave"},
    {"reverse", "Torch.flip"},
    {"rms_norm", "NPU.npu_rms_norm"},
    {"rotary_position_embedding", "NPU.npu_rotary_mul"},
    {"scalar_to_tensor", "Torch.scalar_tensor"},
    {"swapaxes", "Torch.transpose"},
    {"tensor_dot", "Torch.tensordot"},
    {"tensor_scatter_elements", "Torch.scatter"},
    {"truncate_mod", "Torch.fmod"},
    {"unstack", "Torch.unbind"},
};

/* Names outside mindspore.ops: methods, and functions that mint offers at another place than PyTorch. */
static const struct {
    const char *name, *is;
} renamed_others[] = {
    {"Distributed.all_to_all_single_with_output_shape", "Distributed.all_to_all_single"},
    {"Distributed.all_to_all_with_output_shape", "Distributed.all_to_all"},
    {"Mint.avg_pool2d", "Functional.avg_pool2d"},
    {"Mint.batch_norm", "Functional.batch_norm"},
    {"Mint.fold", "Functional.fold"},
    {"Mint.gelu", "Functional.gelu"},
    {"Mint.grid_sample", "Functional.grid_sample"},
    {"Mint.interpolate", "Functional.interpolate"},
    {"Mint.leaky_relu", "Functional.leaky_relu"},
    {"Mint.linear", "Functional.linear"},
    {"Mint.one_hot", "Functional.one_hot"},
    {"Mint.pad", "Functional.pad"},
    {"Mint.silu", "Functional.silu"},
    {"Mint.softplus", "Functional.softplus"},
    {"Mint.unfold", "Functional.unfold"},
    {"MintFunctional.bce_with_logits", "Functional.binary_cross_entropy_with_logits"},
    {"MintFunctional.dense", "Functional.linear"},
    {"Tensor.asnumpy", "Tensor.numpy"},
    {"Tensor.astype", "Tensor.to"},
    {"Tensor.cauchy", "Tensor.cauchy_"},
    {"Tensor.equal", "Tensor.eq"},
    {"Tensor.fill_diagonal", "Tensor.fill_diagonal_"},
    {"Tensor.gather_elements", "Tensor.gather"},
    {"Tensor.swapaxes", "Tensor.transpose"},
};

#endif
