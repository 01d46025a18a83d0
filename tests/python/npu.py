"""A device without hardware: torch's PrivateUse1 backend in Python, renamed npu, and a stand-in for the module torch_npu.

Elements are kept by storage, on the CPU, and every kernel runs there; what is counted is what a real device would make expensive. Limits: a view
does not alias its base, and an operator that resizes its `out` keeps the wrong shape.
"""
import functools
import sys
import types

import pytest
import torch

from msprobe._core import probe

counts = {"kernels": 0, "copies": 0, "waits": 0, "names": []}
_elements = {}  # storage -> the real tensor


def available():
    try:
        from torch.utils import backend_registration
    except ImportError:
        return False
    return hasattr(backend_registration, "_setup_privateuseone_for_python_backend") and hasattr(torch._C, "_acc")


needed = pytest.mark.skipif(not available(), reason="this torch has no Python back end for PrivateUse1")


def reset():
    counts.update(kernels=0, copies=0, waits=0, names=[])


def _kernel(function):
    """What a kernel of this device does with torch's help is no call of the program."""

    @functools.wraps(function)
    def run(*args, **kwargs):
        probe.quiet(True)
        try:
            return function(*args, **kwargs)
        finally:
            probe.quiet(False)

    return run


def _wrap(host):
    host = host.contiguous()  # as what is made says of itself
    made = torch._C._acc.create_empty_tensor(tuple(host.shape), host.dtype)
    _elements[made.untyped_storage()._cdata] = host
    return made


def _host(t):
    if not isinstance(t, torch.Tensor) or t.device.type != "npu":
        return t
    host = _elements[t.untyped_storage()._cdata]
    return host if host.shape == t.shape else host.reshape(-1)[: t.numel()].reshape(t.shape)


def _map(function, value):
    if isinstance(value, (list, tuple)):
        return type(value)(_map(function, v) for v in value)
    return function(value)


@_kernel
def _run(op, *args, **kwargs):
    """Any operator: on the elements, the result wrapped; in-place and out= write back."""
    if op is not torch.ops.aten.as_strided.default:  # only another way to look at the same memory
        counts["kernels"] += 1
        counts["names"].append(str(op))
    host_kwargs = {k: torch.device("cpu") if k == "device" else _map(_host, v) for k, v in kwargs.items()}
    host_args = _map(_host, list(args))
    result = op(*host_args, **host_kwargs)

    def back(value):
        if not isinstance(value, torch.Tensor):
            return value
        for mine, theirs in zip(list(args) + list(kwargs.values()), host_args + list(host_kwargs.values())):
            if theirs is value:
                return mine  # in place
        return _wrap(value)

    return _map(back, result)


@_kernel
def _to_copy(t, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
    host = _host(t).to(dtype or t.dtype, copy=True)
    if device is not None and device.type == "cpu":
        counts["copies"] += 1
        return host
    if t.device.type == "npu":
        counts["kernels"] += 1
    return _wrap(host)


@_kernel
def _copy(to, source, non_blocking=False):
    if to.device.type == "cpu":
        counts["copies"] += 1
        to.copy_(_host(source))
    else:
        _host(to).copy_(_host(source))
    return to


@_kernel
def _empty(size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    return _wrap(torch.empty(size, dtype=dtype))


@_kernel
def _empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):
    return _wrap(torch.empty(size, dtype=dtype))


@_kernel
def _item(t):
    counts["copies"] += 1
    return _host(t).item()


@_kernel
def _view(t, size):
    return _wrap(_host(t).view(size))


_libraries = []


def set_up():
    """Once per process: tensors may be on "npu" from here on, and `import torch_npu` finds a stand-in."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend("npu")
    every = torch.library.Library("_", "IMPL")
    every.fallback(_run, "PrivateUse1")
    aten = torch.library.Library("aten", "IMPL")
    for name, function in (("_to_copy", _to_copy), ("copy_", _copy), ("empty.memory_format", _empty), ("empty_strided", _empty_strided),
                           ("_local_scalar_dense", _item), ("view", _view)):
        aten.impl(name, function, "PrivateUse1")
    _libraries.extend((every, aten))

    def wait(device=None):
        counts["waits"] += 1

    torch.npu.synchronize = wait
    return stand_in()


def stand_in(**functions):
    """A module torch_npu that keeps a list of what was called; functions: more of them."""
    module = types.ModuleType("torch_npu")
    module.calls = []

    def noted(name):
        return lambda *args: module.calls.append((name,) + args)

    module.npu = types.SimpleNamespace(**{n: noted(n) for n in ("synchronize", "init_dump", "set_dump", "finalize_dump", "manual_seed", "manual_seed_all")})
    for name, function in functions.items():
        setattr(module, name, function)
    sys.modules["torch_npu"] = module
    return module
