"""Task free_benchmark: each selected API runs a second time with its inputs changed a little, and results that differ by more than a little
are listed in free_benchmark.csv. The program gets the first result, except with handler_type fix.
"""

import csv
import os
import threading

import mindspore
import numpy
from mindspore import Tensor
from mindspore._c_expression import TensorPy

from msprobe.core.config import check_folder, wrong
from msprobe.core.log import log
from msprobe.core.signals import give_back
from msprobe.mindspore.apis import Compiled, Registry
from msprobe.mindspore.cells import is_cell
from msprobe.mindspore.recorder import current_rank

COLUMNS = ("rank", "pert_mode", "stage", "step", "api_name", "max_rel", "dtype", "shape", "output_index")
PYTHON_PATHS = {"mindspore.ops.": "Functional.", "mindspore.Tensor.": "Tensor.", "mindspore.mint.nn.functional.": "MintFunctional.",
                "mindspore.mint.": "Mint.", "mindspore.communication.comm_func.": "Distributed.", "mindspore.mint.distributed.": "MintDistributed."}

# per type: what is added, and how far a result may be off; noise is added only where it changes the element
NOISE = {mindspore.float16: 1e-6, mindspore.float32: 1e-8, mindspore.float64: 1e-16, mindspore.bfloat16: 1e-4}
LIMIT = {mindspore.float16: 1.002, mindspore.float32: 1.0002, mindspore.float64: 1.0002, mindspore.bfloat16: 1.004}
WIDER = {mindspore.float16: mindspore.float32, mindspore.bfloat16: mindspore.float32}
SMALLEST = {mindspore.float16: 2.0**-14, mindspore.float32: 2.0**-126, mindspore.float64: 2.0**-1022, mindspore.bfloat16: 2.0**-126}
BITS = {2: numpy.uint16, 4: numpy.uint32, 8: numpy.uint64}


def dump_name(item):
    """mindspore.mint.div -> Mint.div; a name of a dump stays."""
    for path in sorted(PYTHON_PATHS, key=len, reverse=True):
        if item.startswith(path):
            return PYTHON_PATHS[path] + item[len(path):]
    return item


def _values(tensor):
    """A copy as numpy has it, bfloat16 as float32."""
    return (tensor.astype(mindspore.float32) if tensor.dtype == mindspore.bfloat16 else tensor).asnumpy().copy()


class Perturbation:
    """changed(t): the tensor that takes its place, or None when it stays as it is."""

    def __init__(self, mode):
        self._change = getattr(self, "_" + mode)
        self.once = mode != "improve_precision"  # one tensor of a call is changed, or every one

    def changed(self, tensor):
        return self._change(tensor) if tensor.dtype in NOISE else None

    def _improve_precision(self, tensor):
        return tensor.astype(WIDER[tensor.dtype]) if tensor.dtype in WIDER else None

    def _no_change(self, tensor):
        return Tensor(_values(tensor)).astype(tensor.dtype)

    def _add_noise(self, tensor):
        v = _values(tensor)
        if v.size == 0 or not numpy.isfinite(v).any():
            return None
        noise = NOISE[tensor.dtype]
        v = numpy.where(numpy.abs(v) > noise, v + v.dtype.type(noise), v)
        return Tensor(v.astype(v.dtype)).astype(tensor.dtype)

    def _bit_noise(self, tensor):
        """The last bit of every element but zeros, subnormals, infinities and NaN is the other."""
        if tensor.dtype == mindspore.bfloat16:
            v = _values(tensor)
            bits, flip = v.view(numpy.uint32), numpy.uint32(1 << 16)
        else:
            v = _values(tensor)
            bits, flip = v.view(BITS[v.itemsize]), BITS[v.itemsize](1)
        if v.size == 0:
            return None
        chosen = numpy.isfinite(v) & (numpy.abs(v) >= SMALLEST[tensor.dtype])
        flipped = numpy.where(chosen, bits ^ flip, bits).astype(bits.dtype).view(v.dtype).reshape(v.shape)
        return Tensor(flipped).astype(tensor.dtype)

    def _change_value(self, tensor):
        """First and last are exchanged: along the first dimension, or the elements of a vector."""
        v = _values(tensor)
        if v.ndim == 0 or v.shape[0] < 2:
            return None
        v[[0, -1]] = v[[-1, 0]]
        return Tensor(v).astype(tensor.dtype)


def ratio(first, second, dtype):
    """How far two results are apart: the largest quotient of an element and its other self. inf: one has what the other never could."""
    a, b = _values(first).astype(numpy.float64), _values(second).astype(numpy.float64)
    if a.shape != b.shape:
        return float("inf")
    finite = numpy.isfinite(a) & numpy.isfinite(b)
    if (numpy.isfinite(a) != numpy.isfinite(b)).any():
        return float("inf")
    a, b = a[finite], b[finite]
    tiny = {2: 1e-4, 4: 1e-8, 8: 1e-16}[2 if dtype in WIDER else 8 if dtype == mindspore.float64 else 4]
    near = (numpy.abs(a) < tiny) & (numpy.abs(b) < tiny)
    a, b = a[~near], b[~near]
    if a.size == 0:
        return 1.0
    if ((a * b) < 0).any():
        return float("inf")
    floor = tiny
    high, low = numpy.maximum(numpy.abs(a), numpy.abs(b)), numpy.maximum(numpy.minimum(numpy.abs(a), numpy.abs(b)), floor)
    return float((high / low).max())


class Benchmark:
    """One per process."""

    def __init__(self, config):
        self.config = config
        self.loop = 0
        self.active = False
        self.rank = None
        self._selected = [dump_name(item) for item in config.list]
        self._perturbation = Perturbation(config.pert_mode)
        self._counts = {}
        self._local = threading.local()
        self._errors = set()
        self._checked = 0
        self._registry = Registry(self._call)
        self._registry.register()
        self._compiled = Compiled(self._registry)
        self._path = os.path.join(config.dump_path, "free_benchmark.csv")
        check_folder("dump_path", config.dump_path)

    def start(self, model=None, token_range=None):
        models = list(model) if isinstance(model, (list, tuple)) else [] if model is None else [model]
        if not all(is_cell(m) for m in models):
            raise wrong("model is %s; it must be a mindspore.nn.Cell or a list of them" % type(model).__name__)
        if self.active or (self.config.step and self.loop not in self.config.step):
            return
        self.rank = current_rank()
        if self.config.rank and self.rank not in self.config.rank:
            return
        self.active = True
        self._registry.install()
        self._compiled.install()

    def stop(self):
        self._compiled.uninstall()
        self._registry.uninstall()
        self.active = False

    def step(self):
        self.stop()
        self._counts.clear()
        self.loop += 1
        if not self._checked and "none" not in self._errors and (not self.config.step or self.loop > max(self.config.step)):
            self._errors.add("none")
            log.warning("free_benchmark: no call was checked; list is %s and pert_mode is %s", self.config.list, self.config.pert_mode)

    def _selects(self, name, full):
        return not self._selected or name in self._selected or full in self._selected or full + ".forward" in self._selected

    def _call(self, original, name, args, kwargs, in_place):
        if not self.active or getattr(self._local, "busy", False):
            return original(*args, **kwargs)
        self._local.busy = True
        try:
            number = self._counts.get(name, 0)
            self._counts[name] = number + 1
            full = "%s.%d" % (name, number)
            second = None
            if not in_place and self._selects(name, full):
                second = self._changed_arguments(full, args, kwargs)
            result = original(*args, **kwargs)
            if second is None:
                return result
            return self._check(full, original, second, result)
        finally:
            self._local.busy = False

    def _changed_arguments(self, full, args, kwargs):
        """(args, kwargs, the first tensor that is changed), None: nothing is."""
        try:
            first = []
            once = self._perturbation.once

            def change(value):
                if isinstance(value, TensorPy) and not (first and once):
                    other = self._perturbation.changed(value)
                    if other is not None:
                        first.append(value)
                        return other
                if type(value) in (list, tuple):
                    return type(value)(change(v) for v in value)
                return value

            changed = tuple(change(a) for a in args), {k: change(v) for k, v in kwargs.items()}
            return changed + (first[0],) if first else None
        except Exception as e:
            self._failed(full, e)
            return None

    def _check(self, full, original, second, result):
        try:
            args, kwargs, first = second
            with _NoGradient():
                other = original(*args, **kwargs)
            self._checked += 1
            many = isinstance(result, (tuple, list))
            pairs = list(zip(result, other)) if many else [(result, other)]
            for index, (a, b) in enumerate(pairs):
                if isinstance(a, TensorPy) and isinstance(b, TensorPy) and a.dtype in NOISE:
                    far = ratio(a, b, a.dtype)
                    if far > LIMIT[a.dtype]:
                        self._write(full, far, first, index if many else "")
            if self.config.handler_type == "fix":
                fixed = original(*args, **kwargs)
                return self._as(result, fixed)
        except Exception as e:
            self._failed(full, e)
        return result

    def _as(self, result, fixed):
        """The second result in the first one's types."""
        if isinstance(result, (tuple, list)):
            return type(result)(self._as(a, b) for a, b in zip(result, fixed))
        return fixed.astype(result.dtype) if isinstance(result, TensorPy) and isinstance(fixed, TensorPy) else result

    def _write(self, full, far, tensor, index):
        os.makedirs(self.config.dump_path, 0o750, exist_ok=True)
        is_new = not os.path.exists(self._path)
        with open(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640), "a", newline="", encoding="utf-8") as f:
            rows = csv.writer(f)
            if is_new:
                rows.writerow(COLUMNS)
            rows.writerow(("" if self.rank is None else self.rank, self.config.pert_mode, "forward", self.loop, full, far,
                           str(tensor.dtype).capitalize().replace("Bf", "BF"), tuple(tensor.shape), index))
        log.warning("free_benchmark: %s: %s changes its result by a factor of %.6g", full, self.config.pert_mode, far)

    def _failed(self, name, error):
        give_back(error)
        kind = type(error).__name__
        if kind not in self._errors:
            self._errors.add(kind)
            log.warning("free_benchmark: %s could not be checked (%s: %s); training goes on", name, kind, str(error).partition("\n")[0])


class _NoGradient:
    """The second run is none of the program's: no gradient is recorded for it."""

    def __enter__(self):
        self._guard = getattr(mindspore, "_no_grad", None)
        if self._guard is None:
            from mindspore.common.api import _no_grad

            self._guard = _no_grad
        self._guard = self._guard()
        self._guard.__enter__()

    def __exit__(self, *what):
        self._guard.__exit__(*what)
