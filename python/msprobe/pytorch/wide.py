"""The wide list of APIs, made from the public functions of the installed torch when a configuration first asks for it."""

import inspect
import os

import torch

from msprobe.core.log import log
from msprobe.core.signals import give_back

# methods that tell about a tensor or manage it, and compute nothing
_NO_COMPUTATION = set("""
    apply_ as_subclass backward coalesce const_data_ptr data_ptr dense_dim detach detach_ dim dim_order dlpack element_size get_device
    grad_dtype has_names index_names indices is_coalesced is_complex is_conj is_contiguous is_distributed is_floating_point is_inference is_neg is_pinned
    is_same_size is_set_to is_shared is_signed item layout map_ map2_ module_load names ndimension nelement new new_tensor numel numpy
    pin_memory q_per_channel_axis q_scale q_zero_point qscheme record_stream refine_names register_hook register_post_accumulate_grad_hook reinforce rename
    rename_ requires_grad_ resize resize_as resolve_conj resolve_neg retain_grad share_memory_ size sparse_dim storage storage_offset storage_type stride
    tolist type_as_size unsafe_chunk untyped_storage values
""".split())
_DUNDERS = set("""
    __abs__ __add__ __and__ __bool__ __eq__ __floordiv__ __ge__ __getitem__ __gt__ __iadd__ __iand__ __idiv__ __ifloordiv__ __ilshift__ __imod__
    __imul__ __invert__ __ior__ __ipow__ __irshift__ __isub__ __itruediv__ __ixor__ __le__ __lshift__ __lt__ __matmul__ __mod__ __mul__ __ne__ __neg__
    __or__ __pow__ __radd__ __rand__ __rfloordiv__ __rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__ __rpow__ __rrshift__ __rshift__ __rsub__
    __rxor__ __setitem__ __sub__ __truediv__ __xor__
""".split())
_NOT_TORCH = set("""
    autocast_decrement_nesting autocast_increment_nesting can_cast clear_autocast_cache get_device is_complex is_conj is_distributed is_floating_point
    is_inference is_neg is_same_size is_signed is_storage is_tensor is_vulkan_available promote_types result_type set_flush_denormal typename
""".split())
_COLLECTIVES = ("all_gather", "all_reduce", "all_to_all", "broadcast", "gather", "irecv", "isend", "recv", "reduce", "scatter", "send", "batch_isend")


def _functions(owner, names):
    return sorted(n for n in names if not n.startswith("_") and callable(getattr(owner, n, None)) and not inspect.isclass(getattr(owner, n)))


def names(default):
    """category -> names, as in support_wrap_ops.yaml; default: the list in that file, for what cannot be found by looking"""
    functional = torch.nn.functional
    plain = [n for n, f in vars(functional).items()
             if getattr(f, "__module__", None) in ("torch.nn.functional", "torch._C._nn", None) or inspect.isbuiltin(f)]
    tensor = [n for n in dir(torch.Tensor) if n not in _NO_COMPUTATION and not isinstance(inspect.getattr_static(torch.Tensor, n), (property, type))]
    torch_names = set(_functions(torch._C._VariableFunctions, dir(torch._C._VariableFunctions))) | set(torch.functional.__all__)
    torch_names = [n for n in torch_names if hasattr(torch, n) and n not in _NOT_TORCH]
    for part in ("linalg", "fft", "special"):
        module = getattr(torch, part, None)
        torch_names += ["%s.%s" % (part, n) for n in _functions(module, getattr(module, "__all__", dir(module)))
                        if inspect.isbuiltin(getattr(module, n))]
    found = {
        "functional": [n for n in _functions(functional, plain) if n not in ("boolean_dispatch", "has_torch_function", "handle_torch_function",
                                                                            "has_torch_function_unary", "has_torch_function_variadic", "assert_int_or_pair")],
        "tensor": sorted(set(_functions(torch.Tensor, tensor)) | {n for n in _DUNDERS if hasattr(torch.Tensor, n)}),
        "torch": sorted(torch_names),
        "_VF": ["gru", "gru_cell", "lstm", "lstm_cell", "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell"],
        "aten": default.get("aten", []),
        "torch_npu": default.get("torch_npu", []),
    }
    if torch.distributed.is_available():
        c10d = torch.distributed.distributed_c10d
        found["distributed"] = [n for n in _functions(torch.distributed, getattr(c10d, "__all__", dir(c10d)))
                                if any(n.lstrip("_").startswith(word) for word in _COLLECTIVES) and not n.endswith("_multigpu")]
    return found


def make(path, default):
    """Write the list to path, so that users can edit it, and return it."""
    listed = names(default)
    text = ["# Every public function of torch %s. Delete this file and it is made anew; remove names that you do not want to see." % torch.__version__]
    for category, members in listed.items():
        text += ["", category + ":"] + ["  - " + n for n in members]
    try:
        with open(path + ".new", "w", encoding="utf-8") as f:
            f.write("\n".join(text) + "\n")
        os.replace(path + ".new", path)
        log.info("the wide list of APIs is %s; it can be edited", path)
    except OSError as e:
        give_back(e)
        log.info("the wide list of APIs cannot be kept as a file (%s); it is made in memory", e)
    return listed
