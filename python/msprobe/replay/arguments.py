"""From a record's values to arguments: tensors from their files, or made from their statistics."""
import math
import zlib

import torch

from msprobe import _core
from msprobe.replay.dump import Recorded


class NotRecorded(Exception):
    """A value that the record does not hold."""


def is_tensor(value):
    return isinstance(value, dict) and "shape" in value and "dtype" in value


def torch_dtype(text):
    found = getattr(torch, str(text).rpartition(".")[2], None)
    if not isinstance(found, torch.dtype):
        raise NotRecorded("a type that this torch does not have: %s" % text)
    return found


def load(recorded):
    """The tensor in the file, checked and read in C, or in memory."""
    view = _core.load(recorded.file()) if isinstance(recorded.path, str) else recorded.path
    dtype = torch_dtype(view.dtype)
    if view.numel == 0:
        return torch.empty(view.shape, dtype=dtype)
    elements = memoryview(view)
    flat = torch.frombuffer(bytearray(elements if elements.c_contiguous else elements.tobytes()), dtype=dtype)
    return flat.reshape(view.shape)


def make(recorded, seed):
    """A tensor of the recorded shape, type, range, sign and integer domain, with the special values that were there."""
    dtype, shape = torch_dtype(recorded.dtype), recorded.shape
    low, high = recorded.min, recorded.max
    n = math.prod(shape)
    if n == 0:
        return torch.zeros(shape, dtype=dtype)
    if low is None or high is None:
        raise NotRecorded(recorded.note or "neither its elements nor its range were recorded")
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        flat = torch.rand(n, generator=generator) < 0.5 if bool(low) != bool(high) else torch.full((n,), bool(high))
        if bool(low) != bool(high):
            flat[0], flat[-1] = bool(low), bool(high)
        return flat.reshape(shape)
    low, high = float(low), float(high)
    if not dtype.is_floating_point and not dtype.is_complex:
        flat = torch.randint(int(low), int(high) + 1, (n,), generator=generator).to(dtype)
        flat[0], flat[-1] = int(low), int(high)
        return flat.reshape(shape)
    largest = torch.finfo(dtype).max
    special = [v for v in (high, low) if not math.isfinite(v)]
    a = low if math.isfinite(low) else -1.0 if math.isnan(low) else math.copysign(largest, low)
    b = high if math.isfinite(high) else 1.0 if math.isnan(high) else math.copysign(largest, high)
    flat = bounded(recorded, a, b, n, generator)
    flat[0], flat[-1] = a, b
    for i, v in enumerate(special):
        flat[i % n] = v
    return flat.to(dtype).reshape(shape)


def bounded(recorded, a, b, n, generator):
    """n numbers from a to b; with the recorded mean and norm where these were recorded and n is large enough to have them."""
    mean, norm = recorded.mean, recorded.norm
    if n > 8 and all(isinstance(v, (int, float)) and math.isfinite(v) for v in (mean, norm)) and b > a:
        variance = norm * norm / n - mean * mean
        if variance > 0:
            flat = torch.randn(n, generator=generator, dtype=torch.float64) * math.sqrt(variance) + mean
            return flat.clamp_(a, b)
    return torch.rand(n, generator=generator, dtype=torch.float64) * (b - a) + a


class Builder:
    """Rebuilds the values of one call. `tensor` is called with each Recorded and gives what stands in for it."""

    def __init__(self, call, tensor):
        self.call, self.tensor = call, tensor

    def value(self, v, key=None):
        if v is None:
            return None
        if isinstance(v, list):
            return [self.value(x) for x in v]
        if not isinstance(v, dict):
            raise NotRecorded("a value that no record should hold")
        if is_tensor(v):
            return self.tensor(Recorded(v, self.call.folder))
        kind = v.get("type")
        if kind is None:
            if not v:
                raise NotRecorded("a positional argument whose value is not part of the record")
            return {k: self.value(x, k) for k, x in v.items()}
        return self.leaf(kind, v)

    def leaf(self, kind, v):
        value = v.get("value")
        if kind in ("bool", "int", "float", "str"):
            return value
        if kind == "slice":
            return slice(*value)
        if kind == "ellipsis":
            return Ellipsis
        if kind == "torch.Size":
            return torch.Size(value)
        if kind == "torch.dtype":
            return torch_dtype(value)
        if kind == "torch.device":
            return torch.device("cpu")
        if kind == "torch.memory_format":
            found = getattr(torch, str(v.get("format")).rpartition(".")[2], None)
            return found if isinstance(found, torch.memory_format) else torch.preserve_format
        if isinstance(value, (bool, int, float)):
            return value
        raise NotRecorded("an argument of type %s" % kind)


def seed_of(text, seed):
    return zlib.crc32(text.encode()) ^ seed
