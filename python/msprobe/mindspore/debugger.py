"""PrecisionDebugger: a few lines in a training script, and every API and cell call is recorded."""

import threading

from msprobe.core.common.exceptions import MsprobeException
from msprobe.core.log import log
from msprobe.mindspore.options import Options

_lock = threading.RLock()


def _make(config):
    if config.static:
        from msprobe.mindspore.graph import GraphDump

        return GraphDump(config)
    if config.task == "free_benchmark":
        from msprobe.mindspore.benchmark import Benchmark

        return Benchmark(config)
    if config.level == "L2":
        from msprobe.mindspore.kernels import KernelDump

        return KernelDump(config)
    from msprobe.mindspore.recorder import Recorder

    return Recorder(config)


class PrecisionDebugger:
    """One per process; the first one that is built stays, and later ones are it.

    config_path: config.json; None takes the one that is installed with the package. task, dump_path, level and step win over the file.
    """

    _instance = None
    _recorder = None

    def __new__(cls, *args, **kwargs):
        with _lock:
            if cls._instance is None:
                instance = super().__new__(cls)
                instance._build(*args, **kwargs)
                cls._instance = instance
        return cls._instance

    def __init__(self, config_path=None, task=None, dump_path=None, level=None, step=None):
        pass  # everything is done once, in __new__

    def _build(self, config_path=None, task=None, dump_path=None, level=None, step=None):
        self.config = Options(config_path, task, dump_path, level, step)
        PrecisionDebugger._recorder = _make(self.config)

    @classmethod
    def _current(cls):
        if cls._recorder is None:
            raise MsprobeException(MsprobeException.INTERFACE_USAGE_ERROR, "PrecisionDebugger instance is not created.")
        return cls._recorder

    @classmethod
    def start(cls, model=None, token_range=None):
        """Begin to record, or go on. token_range: (first, last) forward of the model to record, from 0."""
        with _lock:
            cls._current().start(model, token_range)

    @classmethod
    def stop(cls):
        """Stop recording; what was recorded is on disk when this returns, and everything that was replaced is as before."""
        with _lock:
            cls._current().stop()

    @classmethod
    def forward_backward_dump_end(cls):
        cls.stop()

    @classmethod
    def step(cls):
        """This step is over: the next one goes to a folder of its own, and counters begin anew."""
        with _lock:
            cls._current().step()

    @classmethod
    def save(cls, variable, name, save_backward=True):
        """Level debug: write a value, and the gradients of its tensors, into debug.json."""
        with _lock:
            cls._current().save(variable, name, save_backward)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        self.step()
