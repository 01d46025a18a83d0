"""What only Python can say about a value: the extension asks for everything that is not a plain tensor, container or number.

describe() returns a structure of plain values, which is written as it is, or a tuple that says how to go on (python/ext/tensor/value.c):
("items", list), ("members", dict), ("tensor", plain tensor, type, further fields, shape), and for statistics that a device computes
("waiting", ticket, copy, type, further fields, shape, dtype).
"""

import contextlib
import dataclasses
import zlib

import torch

from msprobe._core import probe
from msprobe.pytorch import device as devices
from msprobe.core.signals import give_back

_FORMATS = {
    torch.contiguous_format: "contiguous_format",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d",
    torch.preserve_format: "preserve_format",
}


def group_id(ranks):
    return "%08x" % zlib.crc32(str(list(ranks)).encode())


def describe(value, path):
    key = path.rpartition(".")[2]
    if key == "device" and isinstance(value, (str, int, torch.device)):
        return device(value)
    if key == "dtype" and not isinstance(value, torch.Tensor):
        return {"type": "torch.dtype", "value": str(value)}
    if isinstance(value, torch.Tensor):
        return tensor(value, path)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return "members", {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
    for kind, how in _KINDS:
        if isinstance(value, kind):
            return how(value)
    return other(value, path)


def device(value):
    if isinstance(value, torch.device):
        return {"type": "torch.device", "value": "%s:%s" % (value.type, value.index)}
    return {"type": "torch.device", "value": value}


def number(value):
    """A subclass of int, float or str: numpy scalars and enums among them."""
    return {"type": type(value).__name__, "value": value}


def sequence(value):
    fields = getattr(value, "_fields", None)
    if fields is not None:
        return "members", dict(zip(fields, value))
    return "items", list(value)


_KINDS = [
    (torch.Size, lambda v: {"type": "torch.Size", "value": list(v)}),
    (torch.dtype, lambda v: {"type": "torch.dtype", "value": str(v)}),
    (torch.device, device),
    (torch.memory_format, lambda v: {"type": "torch.memory_format", "format": _FORMATS.get(v, str(v))}),
    (bool, lambda v: {"type": "bool", "value": bool(v)}),
    ((int, float, str), lambda v: {"type": _base(v), "value": v}),
    ((tuple, list), sequence),
    (dict, lambda v: ("members", dict(v))),
]


def _base(value):
    module = type(value).__module__
    if module == "numpy":
        return type(value).__name__
    return next(t.__name__ for t in (int, float, str) if isinstance(value, t))


def other(value, path):
    """Things that are known by their module, so that nothing is imported for their sake."""
    module, name = type(value).__module__, type(value).__name__
    if module == "numpy":
        return numpy_value(value, path)
    if name == "P2POp":
        return p2p(value)
    if name.startswith("ProcessGroup") or name == "FakeProcessGroup":
        ranks = group_ranks(value)
        return {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": group_id(ranks)}
    if name in ("ReduceOp", "RedOpType"):
        text = str(value)
        text = str(value.op) if " object at " in text else text  # some have no text of their own
        factor = premul_factor(value) if "PREMUL" in text else None
        return {"type": "torch.distributed.ReduceOp", "value": text, **({} if factor is None else {"factor": factor})}
    return None


def premul_factor(op):
    """By what PREMUL_SUM multiplies: its pickled state says it. None: a tensor, or a torch that does not say."""
    try:
        factor = op.__getstate__()[1]
    except Exception as e:
        give_back(e)
        return None
    return factor if isinstance(factor, float) else None


def group_ranks(group):
    try:
        return torch.distributed.get_process_group_ranks(group)
    except Exception as e:  # a group of another back end, or one that is gone
        give_back(e)
        return []


def p2p(op):
    group = op.group if op.group is not None else torch.distributed.group.WORLD
    return "members", {
        "class_type": Plain("torch.distributed.P2POp"),
        "tensor": op.tensor,
        "op": Plain(op.op.__name__),
        "peer": Plain(op.peer),
        "tag": Plain(op.tag),
        "group_id": Plain(group_id(group_ranks(group))),
    }


class Plain:
    """A value that is written as it is, among others that are written as records."""

    def __init__(self, value):
        self.value = value


_KINDS.insert(0, (Plain, lambda v: v.value))


def array(value, path):
    """NumPy's own precision: integers stay integers."""
    import numpy

    record = {"type": "numpy.ndarray", "dtype": str(value.dtype), "shape": list(value.shape)}
    record.update(dict.fromkeys(("Max", "Min", "Mean", "Norm")))
    try:
        if value.size and value.dtype.kind in "biuf":
            record.update(Max=value.max().item(), Min=value.min().item())
            record.update(Mean=value.mean().item(), Norm=float(numpy.linalg.norm(value.astype(numpy.float64).ravel())))
        name = probe.file(torch.from_numpy(numpy.ascontiguousarray(value)), path)
        if name:
            record["data_name"] = name
    except TypeError as e:  # a type that torch does not have
        give_back(e)
    return record


def numpy_value(value, path):
    import numpy

    if isinstance(value, numpy.ndarray):
        return array(value, path)
    return {"type": type(value).__name__, "value": value.item() if isinstance(value, numpy.generic) else None}


# ---- tensors without plain memory -------------------------------------------------------------------------------------------

_TYPES = {
    "DTensor": "torch.distributed.tensor.DTensor",
    "FakeTensor": "torch._subclasses.fake_tensor.FakeTensor",
    "AsyncCollectiveTensor": "torch.distributed._functional_collectives.AsyncCollectiveTensor",
    "NestedTensor": "torch.nested._internal.nested_tensor.NestedTensor",
}


_is_wrapped = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", lambda t: False)  # not in torch 1.13


def without_values(t, why, kind="torch.Tensor"):
    """The record of a tensor whose elements cannot be read: what is known, and why there is no more."""
    try:
        shape = [int(n) for n in t.shape]
    except Exception as e:  # symbolic sizes
        give_back(e)
        shape = []
    record = {"type": kind, "dtype": str(t.dtype), "shape": shape, "Max": None, "Min": None, "Mean": None, "Norm": None}
    record["requires_grad"] = bool(t.requires_grad)
    record["note"] = why
    return record


def placement(p):
    name = type(p).__name__
    if name in ("Shard", "_StridedShard"):
        return {"Shard": {"dim": p.dim}}
    if name == "Partial":
        return {"Partial": {"reduce_op": str(p.reduce_op)}}
    return {name: {}}


def dtensor(t, path):
    local = t._local_tensor
    extra = {"device_mesh": t.device_mesh.mesh.tolist(), "placements": [placement(p) for p in t.placements]}
    if type(local).__name__ == "AsyncCollectiveTensor":
        if not getattr(local, "completed", False):  # its elements are being written
            return {**without_values(local, "a collective that is not waited for yet", _TYPES["DTensor"]), **extra}
        local = local.elem
    return read(local, path, _TYPES["DTensor"], extra)


def read(t, path, kind, extra=None, shape=None):
    """What describe() says about a tensor that has elements: where they are, or that their statistics come later."""
    t = strided(t)
    if t.device.type == "cpu" and t.numel() > 0 and t.data_ptr() == 0:
        return without_values(t, "its memory was given back", kind)
    if t.device.type == "cpu":
        return "tensor", t.resolve_conj().resolve_neg(), kind, extra, shape
    if devices.is_capturing(t.device):
        return without_values(t, "while a graph of kernels is captured", kind)
    want = probe.wanted(path)
    ticket = 0 if want == devices.NO_VALUES else devices.reducer.reduce(t) if want != devices.ELEMENTS else None
    if ticket is None:
        return "tensor", t.cpu().resolve_conj().resolve_neg(), kind, extra, shape
    copy = t.clone() if want == devices.STATISTICS_AND_COPY else None
    return "waiting", ticket, copy, kind, extra, tuple(t.shape) if shape is None else shape, t.dtype


def strided(t):
    """The same elements as a plain tensor that autograd does not follow."""
    t = t.detach()
    if type(t) is not torch.Tensor:
        t = t.as_subclass(torch.Tensor)
    if t.is_quantized:
        t = t.dequantize()
    if t.layout is torch._mkldnn:
        t = t.to_dense()
    elif t.layout is not torch.strided:
        t = t.coalesce().values() if t.layout is torch.sparse_coo else t.values()
    return t


class own_dispatch_off:
    """Whatever a tensor class of the program's own does at each operation, it does not do for us."""

    def __enter__(self):
        self._guard = torch._C._DisableTorchDispatch()

    def __exit__(self, *_):
        del self._guard


@contextlib.contextmanager
def _modes_off(dispatch):
    """For torch 1.13, which knows all modes by one object."""
    torch._C._set_torch_dispatch_mode(None)
    try:
        yield
    finally:
        torch._C._set_torch_dispatch_mode(dispatch._TorchDispatchStackMode())


def unseen():
    """A context in which the program's own TorchDispatchMode does not see what we do."""
    if hasattr(torch._C, "_len_torch_dispatch_stack") and torch._C._len_torch_dispatch_stack() > 0:
        from torch.utils import _python_dispatch

        off = getattr(_python_dispatch, "_disable_current_modes", None)
        return off() if off is not None else _modes_off(_python_dispatch)
    return contextlib.nullcontext()


def has_own_dispatch(t):
    own = getattr(type(t), "__torch_dispatch__", None)
    return own is not None and own is not getattr(torch._C, "_disabled_torch_dispatch_impl", None)


def own_tensor(t, path, kind):
    with own_dispatch_off():
        inner = strided(t)
        if inner.device.type == "cpu" and inner.numel() and inner.data_ptr() == 0:
            return without_values(t, "%s has no memory of its own" % type(t).__name__, kind)
        return read(inner, path, kind)


_peek = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)


def outside_transforms():
    """A context in which what is done to a plain tensor inside vmap or grad is not part of the transform; None in a torch that has none."""
    if _peek is None or _peek() is None:
        return contextlib.nullcontext()
    from torch._functorch import pyfunctorch

    off = getattr(pyfunctorch, "temporarily_clear_interpreter_stack", None)
    return off() if off is not None else None


def tensor(t, path):
    with unseen(), devices.unprofiled(), torch._C.DisableTorchFunction():
        outside = None if _is_wrapped(t) else outside_transforms()
        if outside is None:
            return without_values(t, "inside a torch.func transform (vmap, grad, ...)", _TYPES.get(type(t).__name__, "torch.Tensor"))
        with outside:
            return tensor_itself(t, path)


def tensor_itself(t, path):
    name = type(t).__name__
    kind = _TYPES.get(name, "torch.Tensor")
    if name == "FakeTensor" or t.device.type == "meta":
        return without_values(t, "a %s tensor has no values" % ("fake" if name == "FakeTensor" else "meta"), kind)
    if name == "DTensor":
        return dtensor(t, path)
    try:
        if name == "AsyncCollectiveTensor":
            return without_values(t, "a collective that is not waited for yet", kind)
        if t.is_nested:
            return read(t.values(), path, kind)
        if has_own_dispatch(t):
            return own_tensor(t, path, kind)
        shape = tuple(t.shape) if t.layout is not torch.strided else None  # the values alone are read
        return read(t, path, kind, None, shape)
    except Exception as e:  # a subclass of its own kind: say so, and go on
        give_back(e)
        return without_values(t, "%s: %s" % (type(e).__name__, str(e).partition("\n")[0]), kind)
