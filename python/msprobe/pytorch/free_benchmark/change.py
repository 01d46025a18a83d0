"""The perturbations: what a call is given in its second run.

A perturbation is made anew for each run and called with every tensor of the call; `touched` tells afterwards whether there was anything to change.
"""

import torch

from msprobe import _core
from msprobe.pytorch.free_benchmark import away

NARROW = (torch.float64, torch.float32)  # and wider: everything else that is a float is raised to float32


def _is_low(dtype):
    return dtype.is_floating_point and dtype not in NARROW


class ImprovePrecision:
    """Every float16, bfloat16 and float8 tensor in float32, and no autocast."""

    def __init__(self, autocast):
        self.autocast_off = self.touched = autocast

    def __call__(self, t):
        if not _is_low(t.dtype):
            return t
        self.touched = True
        return t.to(torch.float32)


class ToCpu:
    """Everything on the CPU, in float32 at least."""

    def __init__(self, autocast):
        self.autocast_off = self.touched = autocast

    def __call__(self, t):
        low = _is_low(t.dtype)
        if not low and t.device.type == "cpu":
            return t
        self.touched = True
        return t.to("cpu", torch.float32 if low else t.dtype)


class NoChange:
    """The call is made again with its inputs as they are."""

    touched, autocast_off = True, False

    def __init__(self, autocast):
        pass

    def __call__(self, t):
        return t


class Elements:
    """Elements of every floating-point tensor are changed, in a copy. Of the first one noise goes up, of the others up or down: of `a - b` it would cancel out."""

    mode, autocast_off = "", False

    def __init__(self, autocast):
        self.touched = False
        self.inputs = 0
        self.narrowest = self._bytes = None

    def __call__(self, t):
        if not (t.is_floating_point() or t.is_complex()) or t.numel() == 0:
            return t
        copy = t.detach().clone().resolve_conj().resolve_neg()
        change = _core.perturb if copy.device.type == "cpu" else away.perturb
        if change(copy, self.mode, self.inputs) == 0:
            return t
        self.touched = True
        self.inputs += 1
        if self.narrowest is None or t.element_size() < self._bytes:
            self.narrowest, self._bytes = t.dtype, t.element_size()
        return copy


class AddNoise(Elements):
    mode = "add_noise"


class BitNoise(Elements):
    mode = "bit_noise"


class ChangeValue(Elements):
    mode = "change_value"


class OneUlp(Elements):
    mode = "one_ulp"


KINDS = {"improve_precision": ImprovePrecision, "to_cpu": ToCpu, "no_change": NoChange, "add_noise": AddNoise, "bit_noise": BitNoise,
         "change_value": ChangeValue}


def limit(change, dtype):
    """The largest ratio of results that is no finding."""
    if isinstance(change, NoChange):
        return 1.0
    if isinstance(change, AddNoise):
        return _core.benchmark_limit(str(dtype), str(change.narrowest), change.inputs)
    return _core.benchmark_limit(str(dtype))
