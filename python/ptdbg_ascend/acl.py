"""Mode "acl": the device's own dump of one chosen call."""

from types import SimpleNamespace

import torch

from msprobe._core import probe
from msprobe.pytorch.kernels import KernelDump, _copy
from ptdbg_ascend.common import info, warning


def _dotted(name):
    """"Functional_conv2d_1_backward" as the engine spells it: Functional.conv2d.1.backward"""
    prefix, _, rest = name.partition("_")
    op, number, direction = rest.rsplit("_", 2)
    return ".".join((prefix, op, number, direction))


class AclDump(KernelDump):
    """What the manual says of the calls: init_dump, set_dump(dump_config), the call, finalize_dump. The program's own tensors, graph and random numbers
    are what they would be without it."""

    def __init__(self, npu, scope, dump_config, backward_input):
        scope = scope or "Any_any_0_forward"
        super().__init__(probe, SimpleNamespace(kernel_api=_dotted(scope), acl_config=dump_config, backward_input=backward_input))
        self._npu = npu.npu
        self._scope = scope

    def run(self, function, args, kwargs):
        if self.backward and not self._config.backward_input:
            warning("%s needs set_backward_input([...]), the .npy file of its gradient; its forward is dumped." % self._scope)
            self.backward = False
        return super().run(function, args, kwargs)

    def repeat(self, function, args, kwargs):
        """A call that has run already, once more on copies of its arguments."""
        copies, named = _copy(args), _copy(kwargs)
        with torch.random.fork_rng(devices=[]):
            return super().run(function, copies, named)

    def _repeat_backward(self, function, args, kwargs):
        import numpy

        copies, named = _copy(args), _copy(kwargs)
        with torch.random.fork_rng(devices=[]):
            result = function(*copies, **named)
        if "_sort_" in self._scope and isinstance(result, tuple):
            result = result[0]
        if not isinstance(result, torch.Tensor) or not result.requires_grad:
            warning("The output of %s is not of tensor type and cannot be automatically derived." % self._scope)
            return
        grad = torch.from_numpy(numpy.load(self._config.backward_input[0], allow_pickle=False)).to(result.device)
        with self._context():
            result.backward(grad, retain_graph=True)
        self._say()

    def _say(self):
        info("Dump %s op file." % self._scope)
