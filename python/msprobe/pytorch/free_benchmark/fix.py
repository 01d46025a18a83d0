"""handler_type fix: the program gets the second run's result, in the types of the first one.

The second run is part of the program's graph: its inputs are the program's tensors, cast, so that gradients go through it and not through the first
one. What a call writes to is given its elements where it lies, with the first run's gradients.
"""

import torch

from msprobe.pytorch.free_benchmark.call import once, rebuilt


def is_part_of(result, tensors):
    """Whether a result is memory of an input: a view, or the input itself."""
    pointers = {t.untyped_storage().data_ptr() if hasattr(t, "untyped_storage") else t.storage().data_ptr() for t in tensors}
    storage = result.untyped_storage() if hasattr(result, "untyped_storage") else result.storage()
    return storage.nbytes() > 0 and storage.data_ptr() in pointers


def run(call, change, written):
    """The second run on the program's own tensors; of what the call has written to (ids), on copies from before."""

    def own(t):
        return change(call.element_source(t) if id(t) in written else t)

    return call.repeat(once(own), change, call.grad_mode and not call.in_place)


def cast(value, like):
    return value.to(device=like.device, dtype=like.dtype) if value.dtype != like.dtype or value.device != like.device else value


def replaced(result, fixed, inputs, written):
    """(the result that the program gets, how many tensors are others); ValueError when the second run has returned something else."""
    count = 0
    first, second = [], []
    rebuilt(result, lambda t: first.append(t) or t)
    rebuilt(fixed, lambda t: second.append(t) or t)
    if len(first) != len(second) or any(a.shape != b.shape for a, b in zip(first, second)):
        raise ValueError("the second run returned something else")
    others = iter(second)

    def choose(t):
        nonlocal count
        other = cast(next(others), t)
        if id(t) in written:
            with torch.no_grad():
                t.data.copy_(other)
        elif is_part_of(t, inputs):
            return t
        count += 1
        return t if id(t) in written else other

    return rebuilt(result, choose), count
