"""Which function a recorded name stands for, and which ones cannot simply be run again."""
import sys

import torch

RANDOM = {
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "normal_", "uniform_", "bernoulli",
    "bernoulli_", "multinomial", "poisson", "exponential_", "geometric_", "cauchy_", "log_normal_", "random_", "rrelu", "rrelu_",
    "gumbel_softmax", "fractional_max_pool2d", "fractional_max_pool3d", "alpha_dropout", "feature_alpha_dropout", "binomial",
}
MASKED = {"dropout", "dropout1d", "dropout2d", "dropout3d", "dropout_", "feature_dropout", "native_dropout"}  # the mask can be read off
UNWRITTEN = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "set_", "resize_", "resize_as_"}
CASTS = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16, "double": torch.float64}


def find(prefix, api):
    """The function, or None."""
    npu = sys.modules.get("torch_npu")
    owner = {"Functional": torch.nn.functional, "Torch": torch, "Tensor": torch.Tensor, "VF": torch._VF, "Aten": torch.ops.aten,
             "NPU": npu, "MindSpeed": sys.modules.get("mindspeed.ops")}.get(prefix)
    for part in api.split("."):
        owner = getattr(owner, part, None)
    return owner if callable(owner) else None


def refusal(call):
    """Why the call cannot be run again, or None."""
    if call.prefix == "Distributed":
        return "communication: its result depends on other processes"
    if call.forward is None:
        return "only its gradients were recorded"
    api = call.api.split(".")[-1]
    if api in RANDOM:
        return "random: its numbers cannot be read off the results"
    if api in UNWRITTEN:
        return "its result is memory that nobody has written to"
    if find(call.prefix, call.api) is None:
        return "unknown function: this torch has no %s.%s" % (call.prefix, call.api)
    return None
