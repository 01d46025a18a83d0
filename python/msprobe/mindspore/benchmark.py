"""Task free_benchmark: each selected API runs a second time with its inputs changed a little, and results that differ by more than a little
are listed in free_benchmark.csv. The program gets the first result, except with handler_type fix.
"""

import contextlib
import csv
import os
import threading

import mindspore
import numpy
from mindspore import Tensor
from mindspore._c_expression import TensorPy

from msprobe import _core
from msprobe.core.config import check_folder
from msprobe.core.files import make_folder
from msprobe.core.log import log
from msprobe.core.signals import give_back
from msprobe.mindspore.apis import Compiled, Registry
from msprobe.mindspore.calls import sequence
from msprobe.mindspore.cells import check_models
from msprobe.mindspore.ranks import current_rank, is_selected

try:
    from mindspore.graph.api import _no_grad
except ImportError:
    from mindspore.common.api import _no_grad

COLUMNS = ("rank", "pert_mode", "stage", "step", "api_name", "max_rel", "dtype", "shape", "output_index")
PYTHON_PATHS = {"mindspore.ops.": "Functional.", "mindspore.Tensor.": "Tensor.", "mindspore.mint.nn.functional.": "MintFunctional.",
                "mindspore.mint.": "Mint.", "mindspore.communication.comm_func.": "Distributed.", "mindspore.mint.distributed.": "MintDistributed."}
FLOATS = {mindspore.float16: "float16", mindspore.float32: "float32", mindspore.float64: "float64", mindspore.bfloat16: "bfloat16"}
WIDER = {mindspore.float16: mindspore.float32, mindspore.bfloat16: mindspore.float32}
FLIPPED = 8.0  # the ratio that the original gives to results of different signs
# A second run would take random numbers that belong to the program, and many kernels have generators that nobody can set back.
RANDOM = ("dropout", "rand", "normal", "bernoulli", "multinomial", "uniform", "poisson", "gamma", "laplace", "shuffle", "exponential", "cauchy", "geometric",
          "gumbel", "rrelu", "categorical", "random", "sampler", "droppath", "log_normal")


def dump_name(item):
    """mindspore.mint.div -> Mint.div; a name of a dump stays."""
    for path in sorted(PYTHON_PATHS, key=len, reverse=True):
        if item.startswith(path):
            return PYTHON_PATHS[path] + item[len(path):]
    return item


def is_random(api):
    return any(word in api.name.lower() for word in RANDOM)


def _array(tensor):
    """Its elements as numpy has them; bfloat16, which it has not, as two bytes."""
    array = tensor.asnumpy()
    return array.view(numpy.uint16) if tensor.dtype == mindspore.bfloat16 else array


class Perturbation:
    """changed(t): what takes its place, or None when there is nothing to change."""

    def __init__(self, mode):
        self._mode = mode
        self.is_of_one = mode in ("add_noise", "bit_noise", "change_value")  # one tensor of a call is changed, or every one

    def changed(self, tensor):
        if tensor.dtype not in FLOATS:
            return None
        if self._mode == "no_change":
            return tensor
        if self._mode == "improve_precision":
            return tensor.astype(WIDER[tensor.dtype]) if tensor.dtype in WIDER else None
        copy = _array(tensor).copy()
        if copy.size == 0 or _core.perturb(copy, self._mode, 0, FLOATS[tensor.dtype]) == 0:
            return None
        if tensor.dtype == mindspore.bfloat16:  # float32 whose upper half it is
            return Tensor((copy.astype(numpy.uint32) << 16).view(numpy.float32)).astype(mindspore.bfloat16)
        return Tensor(copy)

    def limit(self, result, changed):
        """The largest ratio of two results that is no finding; changed: the tensor that was."""
        if self._mode == "no_change":
            return 1.0
        if self._mode == "add_noise":
            return _core.benchmark_limit(FLOATS[result.dtype], FLOATS[changed.dtype], 1)
        return _core.benchmark_limit(FLOATS[result.dtype])


def ratio(first, second):
    """How far two results are apart: the largest quotient of an element and its other self."""
    if second.dtype != first.dtype:
        second = second.astype(first.dtype)
    far, flips, _ = _core.benchmark_compare(_array(first), _array(second), False, FLOATS[first.dtype])
    return FLIPPED if flips else far


class Benchmark:
    """One per process."""

    def __init__(self, config):
        self.config = config
        self.loop = 0
        self.active = False
        self.rank = None
        self.pid = os.getpid()
        self._selected = [dump_name(item) for item in config.list]
        self._perturbation = Perturbation(config.pert_mode)
        # the second run is none of the program's, but where its result takes the place of the first one's
        self._unseen = _no_grad if config.handler_type == "check" else contextlib.nullcontext
        self._counts = {}
        self._local = threading.local()
        self._errors = set()
        self._checked = 0
        self._registry = Registry(self._call)
        self._registry.register()
        self._compiled = Compiled(self._registry)
        self._path = os.path.join(config.dump_path, "free_benchmark.csv")
        check_folder("dump_path", config.dump_path)

    # ---- start, stop, step ---------------------------------------------------------------------------------------------------------

    def start(self, model=None, token_range=None):
        check_models(model)
        if self.active or os.getpid() != self.pid or (self.config.step and self.loop not in self.config.step) or not is_selected(self.config.rank):
            return
        self.rank = current_rank()
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

    def save(self, variable, name, backward):
        """Belongs to level debug."""

    # ---- one call ------------------------------------------------------------------------------------------------------------------

    def _selects(self, name, full):
        return not self._selected or name in self._selected or full in self._selected or full + ".forward" in self._selected

    def _call(self, original, api, args, kwargs):
        if not self.active or getattr(self._local, "busy", False):
            return original(*args, **kwargs)
        self._local.busy = True
        try:
            number = self._counts.get(api.name, 0)
            self._counts[api.name] = number + 1
            full = "%s.%d" % (api.name, number)
            second = None
            if not api.written and not api.is_collective and not is_random(api) and self._selects(api.name, full):
                second = self._changed_arguments(full, args, kwargs)
            result = original(*args, **kwargs)
            return result if second is None else self._check(full, original, second, result)
        finally:
            self._local.busy = False

    def _changed_arguments(self, full, args, kwargs):
        """(args, kwargs, the first tensor that is changed), None: nothing is."""
        first = []

        def change(value):
            if isinstance(value, TensorPy) and not (first and self._perturbation.is_of_one):
                other = self._perturbation.changed(value)
                if other is not None:
                    first.append(value)
                    return other
            if type(value) in (list, tuple):
                return type(value)(change(v) for v in value)
            return value

        try:
            with self._unseen():
                changed = tuple(change(a) for a in args), {k: change(v) for k, v in kwargs.items()}
            return changed + (first[0],) if first else None
        except Exception as e:
            self._failed(full, e)
            return None

    def _check(self, full, original, second, result):
        """What the program gets."""
        args, kwargs, first = second
        try:
            with self._unseen():
                other = original(*args, **kwargs)
            self._checked += 1
            if self.config.handler_type == "fix":
                return self._fixed(result, other)
            with _no_grad():
                is_one = isinstance(result, TensorPy)
                for index, (a, b) in enumerate(zip(sequence(result), sequence(other))):
                    if isinstance(a, TensorPy) and isinstance(b, TensorPy) and a.dtype in FLOATS:
                        far = ratio(a, b)
                        if far > self._perturbation.limit(a, first):
                            self._write(full, far - 1, first, "" if is_one else index)
        except Exception as e:
            self._failed(full, e)
        return result

    def _fixed(self, result, other):
        """other in the types of result."""
        if isinstance(result, (tuple, list)):
            return type(result)(self._fixed(a, b) for a, b in zip(result, other))
        return other.astype(result.dtype) if isinstance(result, TensorPy) and isinstance(other, TensorPy) else result

    def _write(self, full, far, tensor, index):
        make_folder(self.config.dump_path)
        is_new = not os.path.exists(self._path)
        with open(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640), "a", newline="", encoding="utf-8") as f:
            rows = csv.writer(f)
            if is_new:
                rows.writerow(COLUMNS)
            rows.writerow(("" if self.rank is None else self.rank, self.config.pert_mode, "forward", self.loop, full, far,
                           str(tensor.dtype).capitalize().replace("Bf", "BF"), tuple(tensor.shape), index))
        log.warning("free_benchmark: %s: %s changes its result, by a relative error of %.6g", full, self.config.pert_mode, far)

    def _failed(self, name, error):
        give_back(error)
        kind = type(error).__name__
        if kind not in self._errors:
            self._errors.add(kind)
            log.warning("free_benchmark: %s could not be checked (%s: %s); training goes on", name, kind, str(error).partition("\n")[0])
