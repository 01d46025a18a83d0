"""Tensors on other devices: changed and compared there, by the rules of src/benchmark.

A result that is the same on both sides never leaves the device; of another three numbers do. Where a device lacks an operator that this takes,
elements are fetched, and changed and compared in C.
"""

import torch

from msprobe import _core
from msprobe.core.log import log
from msprobe.core.signals import give_back

BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
NOISE = {torch.float16: 1e-6, torch.float32: 1e-8, torch.float64: 1e-16}
OTHER_NOISE = 1e-4


_fetched = set()  # kinds of devices on which something failed


def _there(kind, function, otherwise, *args):
    if kind not in _fetched:
        try:
            return function(*args)
        except Exception as e:
            give_back(e)
            log.debug("free_benchmark: %s is fetched from now on: %s", kind, e)
            _fetched.add(kind)
    return otherwise(*args)


def perturb(t, mode, salt):
    """How many elements of t are others now."""
    return _there(t.device.type, perturb_there, _perturb_here, t, mode, salt)


def compare(first, second, backward):
    """(ratio, flips, index) as _core.benchmark_compare has it."""
    kind = second.device.type if first.device.type == "cpu" else first.device.type
    return _there(kind, compare_there, _core.benchmark_compare, first, second, backward)


def _perturb_here(t, mode, salt):
    host = t.cpu()
    changed = _core.perturb(host, mode, salt)
    t.copy_(host)
    return changed


def perturb_there(t, mode, salt):
    """By operators of the device's own."""
    if t.is_complex():
        parts = torch.view_as_real(t).clone()
        changed = perturb_there(parts, mode, salt)
        t.copy_(torch.view_as_complex(parts))
        return changed
    before = t.clone().view(BITS[t.element_size()])
    after = _swapped(before) if mode == "change_value" else _moved(t, before, mode, salt)
    t.copy_(after.view(t.dtype))
    return int((after != before).sum())


def _moved(t, bits, mode, salt):
    """As integers: `sign + magnitude` is a negative number."""
    sign = torch.iinfo(bits.dtype).min
    positive = bits >= 0
    magnitude = torch.where(positive, bits, bits - sign)
    if mode == "bit_noise":
        chosen = t.abs() > torch.finfo(t.dtype).smallest_normal
        other = magnitude + 1 - 2 * torch.remainder(magnitude, 2)
    else:
        noise = NOISE.get(t.dtype, OTHER_NOISE)
        chosen = t.abs() > (0 if mode == "one_ulp" else noise ** 0.5)
        up = None if salt == 0 and mode == "add_noise" else _directions(t, salt)
        further = positive if up is None else up if mode == "one_ulp" else up == positive
        other = torch.where(further, magnitude + 1, magnitude - 1)
    other = torch.where(_is_number(other, positive, t, sign), other, magnitude - 1)  # the largest has none above it
    other = torch.where(positive, other, other + sign)
    if mode == "add_noise":
        added = (t + noise if up is None else torch.where(up, t + noise, t - noise)).to(t.dtype).view(bits.dtype)
        other = torch.where((added == bits) | ~torch.isfinite(added.view(t.dtype)), other, added)
    return torch.where(chosen & torch.isfinite(t), other, bits)


def _is_number(magnitude, positive, t, sign):
    return torch.isfinite(torch.where(positive, magnitude, magnitude + sign).view(t.dtype))


def _directions(t, salt):
    """True where an element goes up: as src/benchmark/perturb.c chooses it, by the element's number."""
    h = (torch.arange(t.numel(), dtype=torch.int64, device=t.device) + salt) * 0x9E3779B1 & 0xFFFFFFFF
    h = h ^ (salt * 0x85EBCA77 & 0xFFFFFFFF)
    h = (h ^ (h >> 15)) * 0x2C1B3C6D & 0xFFFFFFFF
    return ((h >> 31) == 1).reshape(t.shape)


def _swapped(t):
    if t.dim() == 0 or t.numel() < 2 or (t.dim() > 1 and t.shape[0] * t.shape[1] < 2):
        return t
    rows = t if t.dim() == 1 else t.reshape(t.shape[0] * t.shape[1], -1)
    return torch.cat([rows[-1:], rows[1:-1], rows[:1]]).reshape(t.shape)


def compare_there(first, second, backward):
    """By operators of the device's own; the index is not looked for."""
    if first.shape != second.shape:
        raise ValueError("the results have different shapes")
    if first.is_complex():
        return compare_there(torch.view_as_real(first), torch.view_as_real(second), backward)
    floor = _core.benchmark_floor(str(second.dtype), backward)
    wide = torch.float64 if torch.float64 in (first.dtype, second.dtype) else torch.float32
    a, b = first.to(wide), second.to(device=first.device, dtype=wide)
    if a.numel() == 0 or bool(torch.equal(a, b)):
        return 1.0, False, -1
    same = (a == b) | (a.isnan() & b.isnan())
    one_sided = ~same & ~(torch.isfinite(a) & torch.isfinite(b)) & (a != -b)
    x, y = a.abs().clamp(min=floor), b.abs().clamp(min=floor)
    ratio = torch.maximum(x / y, y / x)
    ratio = ratio.masked_fill(one_sided, float("inf")).masked_fill(same, 1.0)
    flips = (a * b < -floor * floor).any()
    return float(ratio.max()), bool(flips), -1
