"""Which function a recorded name stands for, and which ones cannot simply be run again."""
import functools
import inspect
import sys

import torch

RANDOM = {
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "normal_", "uniform_", "bernoulli",
    "bernoulli_", "multinomial", "poisson", "exponential_", "geometric_", "cauchy_", "log_normal_", "random_", "rrelu", "rrelu_",
    "gumbel_softmax", "fractional_max_pool2d", "fractional_max_pool3d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d_with_indices",
    "alpha_dropout", "alpha_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_", "binomial", "log_normal", "uniform",
    "rrelu_with_noise", "rrelu_with_noise_", "_fused_dropout", "_npu_dropout", "npu_dropout_with_add_softmax", "npu_dropout_add_layer_norm",
    "npu_random_choice_with_mask", "npu_sub_sample",
}
MASKED = {"dropout", "dropout1d", "dropout2d", "dropout3d", "dropout_", "feature_dropout", "feature_dropout_", "native_dropout"}  # the mask can be read off
UNWRITTEN = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "set_", "resize_", "resize_as_"}
CASTS = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16, "double": torch.float64}

# products, which autocast computes in 16 bits: it rounds what they take before
PRODUCTS = {
    "linear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "addr", "mv", "einsum", "chain_matmul", "multi_dot",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "scaled_dot_product_attention",
}


CATEGORIES = {"Functional": "functional", "Torch": "torch", "Tensor": "tensor", "VF": "_VF", "Aten": "aten", "NPU": "torch_npu", "MindSpeed": "mindspeed"}
ALIASES = {"linalg.det", "linalg.matmul", "linalg.matrix_exp", "linalg.matrix_power", "linalg.slogdet"}  # of torch.det, ...; so is all of torch.special
FILES = {"from_file"}  # reads and writes what an argument names


@functools.lru_cache(None)
def listed(prefix):
    """The last part of a function's name -> the whole names, of all functions that recording knows.

    A dump may come from anybody: what stands in it can name a function of these, never torch.os.system.
    """
    from msprobe.pytorch import apis, wide
    category, default = CATEGORIES.get(prefix), apis.read_list("default")
    found = {}
    for lists in (default, wide.names(default)):
        for name in lists.get(category, ()):
            last = name.rpartition(".")[2]
            if last not in FILES and name not in found.setdefault(last, []):
                found[last].append(name)
    return found


def candidates(prefix, api):
    """(name, function) of all that the name may stand for, the likeliest first: torch.norm and torch.linalg.norm are both recorded as Torch.norm."""
    npu = sys.modules.get("torch_npu")
    owner = {"Functional": torch.nn.functional, "Torch": torch, "Tensor": torch.Tensor, "VF": torch._VF, "Aten": torch.ops.aten,
             "NPU": npu, "MindSpeed": sys.modules.get("mindspeed.ops")}.get(prefix)
    found = []
    for name in sorted(listed(prefix).get(api.rpartition(".")[2], ()), key=lambda name: name.count(".")):
        if ("." in api and name != api) or (found and (name.startswith("special.") or name in ALIASES)):
            continue
        function = owner
        for part in name.split("."):
            function = getattr(function, part, None)
        if callable(function):
            found.append((name, function))
    return found


@functools.lru_cache(None)
def position_of(function, name):
    """Of an argument among the positional ones, or None."""
    try:
        return list(inspect.signature(function).parameters).index(name)
    except (TypeError, ValueError):
        return None


def refusal(call):
    """Why the call cannot be run again, or None."""
    if call.prefix == "Distributed":
        return "communication: its result depends on other processes"
    if call.forward is None:
        return "only its gradients were recorded" if call.backward is not None else "nothing of it was recorded"
    if not isinstance(call.forward, dict) or not isinstance(call.backward, (dict, type(None))):
        return "a record that no recording writes"
    if not {"input_args", "input", "input_kwargs"} & call.forward.keys():
        return "its inputs were not recorded"
    if not call.api:
        return "no name of a call, which has a prefix, a function and a number"
    api = call.api.split(".")[-1]
    if api in RANDOM:
        return "random: its numbers cannot be read off the results"
    if api in UNWRITTEN:
        return "its result is memory that nobody has written to"
    if not candidates(call.prefix, call.api):
        return "unknown function: this torch has no API %s.%s" % (call.prefix, call.api)
    return None
