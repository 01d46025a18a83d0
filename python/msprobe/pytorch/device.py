"""Tensors that are not in host memory: their statistics are computed where they are, and many of them come over in one copy.

reduce() starts a few kernels and gives a ticket; fetch() brings the results of all tickets, one copy for each type of number. Between the two the
program's own kernels run on: nothing here waits for the device but fetch(), which the extension calls when 256 tensors wait, after half a second, and
when a file is to be complete (python/ext/tensor/device.c).
"""

import contextlib

import torch

from msprobe.core.log import log
from msprobe.core.signals import give_back

NO_VALUES, STATISTICS, ELEMENTS, STATISTICS_AND_COPY = range(4)  # answers of _core.probe.wanted()

# what every device has kernels for; the others are fetched whole and read by C
_FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_INTS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_COMPLEX = {torch.complex64, torch.complex128}

_record_functions = getattr(torch.autograd, "_enable_record_function", None)
_is_profiling = getattr(torch.autograd, "_profiler_enabled", lambda: False)


@contextlib.contextmanager
def unprofiled():
    """The program's profiler does not see what is done here."""
    if _record_functions is None or not _is_profiling():
        yield
        return
    _record_functions(False)
    try:
        yield
    finally:
        _record_functions(True)


class Reducer:
    """Statistics on their way. The extension's lock is Python's own: nothing here is called without it."""

    def __init__(self):
        self._tickets = 0
        self._waiting = []  # (ticket, 0-d tensor for Max, Min, Mean, Norm; None: that one is null)
        self._accumulators = {}  # kind of device -> the type in which sums are made

    def reduce(self, t):
        """A ticket for the statistics of t, a plain tensor that needs no gradient; None: fetch it whole."""
        if t.numel() == 0 or t.is_conj() or t.is_neg():
            return None
        try:
            values = self._values(t)
        except Exception as e:  # a kernel that this device does not have
            give_back(e)
            log.debug("%s of %s cannot be reduced on the device: %s", t.dtype, t.device, e)
            values = None
        if values is None:
            return None
        self._tickets += 1
        self._waiting.append((self._tickets, values))
        return self._tickets

    def _values(self, t):
        if t.dim() == 0:
            return self._single(t)
        if t.dtype in _FLOATS:
            low, high = torch.aminmax(t)
            accumulator = self._accumulator(t)
            return high, low, torch.mean(t, dtype=accumulator), torch.linalg.vector_norm(t, dtype=accumulator)
        if t.dtype in _INTS:
            low, high = torch.aminmax(t)
            wide = t.to(self._accumulator(t))
            return high, low, torch.mean(wide), torch.linalg.vector_norm(wide)
        if t.dtype is torch.bool:
            return torch.any(t), torch.all(t), None, None
        if t.dtype in _COMPLEX:
            moduli = torch.abs(t)
            low, high = torch.aminmax(moduli)
            return high, low, torch.mean(moduli), None
        return None

    @staticmethod
    def _single(t):
        """A number: it is its own statistics. A copy, because the program may write over it before it is fetched."""
        if t.dtype in _COMPLEX:
            value = torch.abs(t)
            return value, value, value, None
        if t.dtype in _FLOATS or t.dtype in _INTS:
            value = t.clone()
            return value, value, value, value
        return (t.clone(), t.clone(), None, None) if t.dtype is torch.bool else None

    def _accumulator(self, t):
        """float64, unless the device cannot add in it: then float32, as the original does."""
        if t.dtype is torch.float64:
            return torch.float64
        kind = t.device.type
        if kind not in self._accumulators:
            self._accumulators[kind] = torch.float64 if _adds_in_double(t.device) else torch.float32
        return self._accumulators[kind]

    def fetch(self):
        """{ticket: (Max, Min, Mean, Norm)} of everything that waits; None in the place of what the device could not give."""
        waiting = self._waiting[:]
        if not waiting:
            return {}
        found = self._fetch(waiting)
        del self._waiting[:len(waiting)]  # not before: an exception of the program's own may have come in between
        return found

    def _fetch(self, waiting):
        groups = {}  # (device, type) -> 0-d tensors; one tensor that stands for several statistics is there once
        places = {}  # id of a 0-d tensor -> (group, number)
        for _, values in waiting:
            for value in values:
                if value is not None and id(value) not in places:
                    group = groups.setdefault((value.device, value.dtype), [])
                    places[id(value)] = (value.device, value.dtype), len(group)
                    group.append(value)
        try:
            for device in {device for device, _ in groups}:
                _finish(device)
            numbers = {key: torch.stack(group).cpu().tolist() for key, group in groups.items()}
        except Exception as e:
            give_back(e)
            log.warning("statistics of %d tensors are lost: %s", len(waiting), e)
            return {ticket: None for ticket, _ in waiting}
        return {ticket: tuple(None if v is None else numbers[places[id(v)][0]][places[id(v)][1]] for v in values) for ticket, values in waiting}


def _finish(device):
    """Results may have been made on several streams: one wait for all of them, before they are put together on this one."""
    synchronize = getattr(getattr(torch, device.type, None), "synchronize", None)
    if synchronize is not None:
        synchronize(device)


def _adds_in_double(device):
    """Once per kind of device: whether it sums float32 numbers in float64, told by sums that float32 cannot hold."""
    try:
        probe = torch.full((4,), 1e30, device=device)
        norm = torch.linalg.vector_norm(probe, dtype=torch.float64).cpu().item()
        mean = torch.mean(torch.full((4,), 3e38, device=device), dtype=torch.float64).cpu().item()
        return 1.9e30 < norm < 2.1e30 and 2.9e38 < mean < 3.1e38
    except Exception as e:
        give_back(e)
        log.debug("%s does not add in float64: %s", device.type, e)
        return False


def is_capturing(device):
    """While a graph of kernels is captured nothing may be fetched, and what runs is not what will run."""
    capturing = getattr(getattr(torch, device.type, None), "is_current_stream_capturing", None)
    return capturing is not None and capturing()


def total(tensors, less=()):
    """The sum of gradients, one after the other as autograd accumulates them, without those in less."""
    with unprofiled(), torch.no_grad():
        result = tensors[0]
        for t in tensors[1:]:
            result = result + t
        for t in less:
            result = result - t
        return result


reducer = Reducer()
