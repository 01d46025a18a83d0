"""Level L2 in PyNative mode: the kernels that one chosen call runs, recorded by the Ascend device's own dump.

The dump of AscendCL (libascendcl.so, a published C interface) is switched on around the call; for its backward, from the gradient of its result
to the gradients of its inputs.
"""

import ctypes
import os

import mindspore
from mindspore import Tensor, ops
from mindspore._c_expression import TensorPy

from msprobe.core.config import check_folder, wrong
from msprobe.core.kernel_config import write_kernel_config
from msprobe.core.log import log
from msprobe.core.signals import give_back
from msprobe.mindspore.apis import Compiled, Registry
from msprobe.mindspore.calls import sequence
from msprobe.mindspore.cells import check_models
from msprobe.mindspore.gradients import FLOATS
from msprobe.mindspore.ranks import current_rank, is_selected

LIBRARY = "libascendcl.so"


class DeviceDump:
    """What AscendCL offers; wrong() when it is not there."""

    def __init__(self):
        try:
            self._acl = ctypes.CDLL(LIBRARY)
            self._functions = {name: getattr(self._acl, name) for name in ("aclmdlInitDump", "aclmdlSetDump", "aclmdlFinalizeDump")}
        except (OSError, AttributeError) as e:
            raise wrong('level is "L2", and the device\'s own dump cannot be used: %s; allowed without it: L0, L1, mix' % e) from None

    def _call(self, name, *args):
        code = self._functions[name](*args)
        if code != 0:
            raise RuntimeError("%s returned %d" % (name, code))

    def begin(self, config_path):
        mindspore.runtime.synchronize()
        self._call("aclmdlInitDump")
        self._call("aclmdlSetDump", os.fsencode(config_path))
        mindspore.runtime.synchronize()

    def end(self):
        mindspore.runtime.synchronize()
        self._call("aclmdlFinalizeDump")
        mindspore.runtime.synchronize()


class KernelDump:
    """One per process, in the place of the recorder."""

    def __init__(self, config):
        self.config = config
        self.loop = 0
        self.active = False
        self._api, number, side = config.kernel_api.rsplit(".", 2)
        self._number, self._is_backward = int(number), side == "backward"
        self._count = 0
        self._is_on = self._done = self._is_step = False
        self._device = DeviceDump()
        self._registry = Registry(self._call)
        self._registry.register()
        self._compiled = Compiled(self._registry)
        check_folder("dump_path", config.dump_path)

    # ---- start, stop, step ---------------------------------------------------------------------------------------------------------

    def start(self, model=None, token_range=None):
        check_models(model)
        if self.active or (self.config.step and self.loop not in self.config.step) or not is_selected(self.config.rank):
            return
        self.active = self._is_step = True
        self._registry.install()
        self._compiled.install()

    def stop(self):
        self._end()
        self._compiled.uninstall()
        self._registry.uninstall()
        self.active = False

    def step(self):
        if self._is_step and not self._done:
            log.warning("no kernels were recorded in step %d: %s was not called", self.loop, self.config.kernel_api)
        self.stop()
        self._count, self._done, self._is_step = 0, False, False
        self.loop += 1

    def save(self, variable, name, backward):
        """Belongs to level debug."""

    # ---- the chosen call -------------------------------------------------------------------------------------------------------------

    def _call(self, original, api, args, kwargs):
        if not self.active or api.name != self._api:
            return original(*args, **kwargs)
        self._count += 1
        if self._count != self._number + 1:
            return original(*args, **kwargs)
        if self._is_backward:
            args = tuple(self._watch_end(a) for a in args)
            result = original(*args, **kwargs)
            for tensor in sequence(result):
                if isinstance(tensor, Tensor) and tensor.dtype in FLOATS:
                    tensor.register_hook(lambda _: self._begin())
            return result
        self._begin()
        try:
            return original(*args, **kwargs)
        finally:
            self._end()

    def _watch_end(self, value):
        return ops.HookBackward(lambda _: self._end())(value) if isinstance(value, TensorPy) and value.dtype in FLOATS else value

    def _begin(self):
        if not self.active or self._is_on or self._done:
            return
        try:
            folder = os.path.join(self.config.dump_path, "step%d" % self.loop)
            self._device.begin(write_kernel_config(folder, current_rank()))
            self._is_on = True
        except Exception as e:
            self._failed(e)

    def _end(self):
        if not self._is_on:
            return
        self._is_on, self._done = False, True
        try:
            self._device.end()
            log.info("The kernel data of %s is dumped successfully.", self.config.kernel_api)
        except Exception as e:
            self._failed(e)

    def _failed(self, error):
        give_back(error)
        self._done = True
        log.error("The kernel dump of %s failed: %s. Training goes on.", self.config.kernel_api, error)
