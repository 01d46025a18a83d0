"""Level L2: the kernels that one chosen call runs.

On an NPU the device's own dump is switched on around the call, with acl_config (manual 001) or a kernel_config.json of our own. Elsewhere the ATen
kernels are recorded, by a dispatch mode that is there during that call only.
"""

import os
import sys

import torch

from msprobe.core.config import wrong
from msprobe.core.log import log
from msprobe.core.kernel_config import write_kernel_config
from msprobe.core.signals import give_back


def npu_module():
    """torch_npu.npu when it can dump kernels, else None."""
    npu = getattr(sys.modules.get("torch_npu"), "npu", None)
    return npu if hasattr(npu, "init_dump") and hasattr(npu, "set_dump") and hasattr(npu, "finalize_dump") else None


class _DeviceDump:
    """The device's own dump, as a context."""

    def __init__(self, npu, config_path):
        self._npu, self._config_path = npu, config_path

    def __enter__(self):
        self._npu.synchronize()
        self._npu.init_dump()
        self._npu.set_dump(self._config_path)
        self._npu.synchronize()

    def __exit__(self, *_):
        self._npu.synchronize()
        self._npu.finalize_dump()
        self._npu.synchronize()


def _make_mode(probe):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Kernels(TorchDispatchMode):
        """Records every ATen kernel under Aten.<name>.<n>.forward."""

        def __init__(self):
            super().__init__()
            self.counts = {}

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            base = "Aten.%s" % func._schema.name.rpartition("::")[2]
            number = self.counts.get(base, 0)
            self.counts[base] = number + 1
            name = "%s.%d.forward" % (base, number)
            record = {"input_args": probe.snapshot(list(args), name + ".input"), "input_kwargs": probe.snapshot(dict(kwargs), name + ".kwargs")}
            result = func(*args, **kwargs)
            values = list(result) if isinstance(result, (tuple, list)) else [result]
            record["output"] = probe.snapshot(values, name + ".output")
            probe.write(name, record, name)
            return result

    return Kernels()


class KernelDump:
    """What happens around the chosen call."""

    def __init__(self, probe, config):
        self.name = config.kernel_api
        self.backward = self.name.endswith(".backward")
        self.api = self.name.rsplit(".", 2)[0]  # "Functional.conv2d"
        self.number = int(self.name.split(".")[-2])
        self._probe = probe
        self._config = config
        self._npu = npu_module()
        self._folder = None
        self._rank = None
        self.done = False

    def begin_step(self, folder, rank):
        self._folder, self._rank, self.done = folder, rank, False

    def _context(self):
        if self._npu is None:
            return _make_mode(self._probe)
        return _DeviceDump(self._npu, self._config.acl_config or write_kernel_config(os.path.dirname(self._folder), self._rank))

    def check(self):
        """Told by the first start(), whatever the step: the file may be made after the debugger was built."""
        for path in self._config.backward_input if self.backward else ():
            if not os.path.isfile(path):
                raise wrong('backward_input is "%s", which is no file; it must name gradients of an earlier dump, such as %s.input.0.pt' % (path, self.name))

    def run(self, function, args, kwargs):
        """The chosen call, made by the extension instead of the function itself."""
        if not self.backward:
            with self._context():
                result = function(*args, **kwargs)
            self._say()
            return result
        if self._config.backward_input:
            try:
                self._repeat_backward(function, args, kwargs)
            except Exception as e:  # gradients of another shape, a file that is none: the program has no part in it
                give_back(e)
                log.error("The kernel dump of %s with the gradients of %s failed: %s", self.name, self._config.backward_input[0], e)
            return function(*args, **kwargs)
        before = {t.grad_fn for t in _tensors([args, list(kwargs.values())])}
        result = function(*args, **kwargs)
        self._watch(result, before)
        return result

    # ---- backward --------------------------------------------------------------------------------------------------------------------

    def _watch(self, result, before):
        """The dump is on while a node of the call runs, from its pre-hook to its hook."""
        mode = self._context() if self._npu is None else None
        nodes = _new_nodes(result, before)
        for node in nodes:
            open_ones = []

            def before(_grads, open_ones=open_ones):
                context = mode or self._context()
                context.__enter__()
                open_ones.append(context)

            def after(_inputs, _outputs, open_ones=open_ones):
                if open_ones:
                    open_ones.pop().__exit__(None, None, None)
                    self._say()

            node.register_prehook(before)
            node.register_hook(after)
        if not nodes:
            log.warning("The kernel dump does not support the %s API: it has no backward here.", self.name)

    def _repeat_backward(self, function, args, kwargs):
        """Manual 001: the gradient comes from a file, and the call is repeated on copies so that the program's own graph stays untouched."""
        grad = torch.load(self._config.backward_input[0], map_location="cpu")
        copies, named = _copy(args), _copy(kwargs)
        with torch.random.fork_rng(devices=[]):
            result = function(*copies, **named)
        while isinstance(result, (tuple, list)):
            result = result[0]
        if not isinstance(result, torch.Tensor) or not result.requires_grad:
            log.warning("The kernel dump does not support the %s API: its result needs no gradient.", self.name)
            return
        with self._context():
            result.backward(grad.to(result.device), retain_graph=True)
        self._say()

    def _say(self):
        if not self.done:
            self.done = True
            log.info("The kernel data of %s is dumped successfully.", self.name)


def _copy(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, (tuple, list)):
        return type(value)(_copy(v) for v in value)
    if isinstance(value, dict):
        return {k: _copy(v) for k, v in value.items()}
    return value


def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from _tensors(v)


def _new_nodes(result, before):
    """The autograd nodes of a call: what lies between its result and the nodes that its inputs had before."""
    todo = [t.grad_fn for t in _tensors(result) if t.grad_fn is not None]
    found = []
    while todo:
        node = todo.pop()
        if node in found or node in before or "AccumulateGrad" in type(node).__name__:
            continue
        found.append(node)
        todo += [n for n, _ in node.next_functions if n is not None]
    return found
