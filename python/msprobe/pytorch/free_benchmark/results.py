"""Two results of a call beside each other."""

import torch

from msprobe import _core
from msprobe.pytorch.free_benchmark import away


def outputs(result):
    """[(index, tensor)]: the index of a tuple's or list's element, -1 where the result is one tensor."""
    if isinstance(result, torch.Tensor):
        return [(-1, result)]
    found = []
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (tuple, list)):
        for i, v in enumerate(result):
            found += [(i, t) for _, t in outputs(v)]
    return found


def has_floats(pairs):
    return any(t.is_floating_point() or t.is_complex() for _, t in pairs)


def on_host(*tensors):
    return all(t.device.type == "cpu" for t in tensors)


class Difference:
    """How far one output is from its other self."""

    __slots__ = ("index", "output", "ratio", "flips", "bits")

    def __init__(self, index, output, ratio, flips):
        self.index, self.output, self.ratio, self.flips, self.bits = index, output, ratio, flips, None

    def exceeds(self, limit):
        return self.flips or not self.ratio <= limit


def differences(first, second, backward):
    """One for each pair of outputs; ValueError when the second run has returned something else."""
    if len(first) != len(second):
        raise ValueError("the second run returned %d tensors and the first one %d" % (len(second), len(first)))
    found = []
    for (index, a), (_, b) in zip(first, second):
        a, b = a.detach(), b.detach()
        compare = _core.benchmark_compare if on_host(a, b) else away.compare
        ratio, flips, _ = compare(a, b, backward)
        found.append(Difference(index, a, ratio, flips))
    return found


def is_right(actual, golden):
    """Whether the CPU, in higher precision, agrees."""
    return all(_core.benchmark_judge_cpu(a.detach(), g.detach()) for (_, a), (_, g) in zip(actual, golden))


def bits_kept(first, second):
    """For each output (bits kept, of the worst element, of the type)."""
    return [_core.benchmark_bits(a.detach(), b.detach()) for (_, a), (_, b) in zip(first, second)]
