"""PrecisionDebugger: a few lines in a training script, and every API and module call is recorded."""

import functools
import os
import sys
import threading

import torch

from msprobe.core.common.exceptions import MsprobeException, _CodedException
from msprobe.core.config import Config, check_folder, whole, wrong
from msprobe.core.log import log
from msprobe.pytorch.recorder import Recorder, TokenRange, may_record
from msprobe.pytorch.seed import remove_dropout, seed_all

_lock = threading.RLock()


def _forked():
    """Another thread of the parent may have held it."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)


def _locked(method):
    @functools.wraps(method)
    def call(*args, **kwargs):
        try:
            with _lock:
                return method(*args, **kwargs)
        except _CodedException as e:
            raise e.with_traceback(None) from None  # the user's line says where; the frames in between say nothing

    return call


def _recorder_of(config):
    if config.task != "free_benchmark":
        return Recorder
    from msprobe.pytorch.free_benchmark import Benchmark

    return Benchmark


class PrecisionDebugger:
    """One per process; the first one that is built stays, and later ones are it.

    config_path: config.json; None takes the one that is installed with the package. task, dump_path, level and step win over the file.
    model: for levels L0 and mix, unless start() gets it.
    """

    _instance = None
    _recorder = None

    def __new__(cls, *args, **kwargs):
        cls._make(super().__new__, *args, **kwargs)
        return cls._instance

    @classmethod
    @_locked
    def _make(cls, new, *args, **kwargs):
        if cls._instance is None:
            instance = new(cls)
            instance._build(*args, **kwargs)
            cls._instance = instance

    def __init__(self, config_path=None, task=None, dump_path=None, level=None, model=None, step=None):
        pass  # everything is done once, in __new__

    def _build(self, config_path=None, task=None, dump_path=None, level=None, model=None, step=None):
        if step is None and isinstance(model, (list, tuple)) and model and all(isinstance(m, (int, str)) for m in model):
            model, step = None, list(model)  # msprobe 26 has step in the fifth place
        config = Config(config_path, task, dump_path, level, step)
        if config.task in ("run_ut", "grad_probe"):
            raise MsprobeException(MsprobeException.INTERFACE_USAGE_ERROR, 'task "%s" is none of PrecisionDebugger; it has statistics, tensor, '
                                   'overflow_check, structure and free_benchmark' % config.task)
        if may_record(config):
            check_folder("dump_path", config.dump_path)
        if config.seed is not None:
            seed_all(config.seed, config.is_deterministic)
        if config.rm_dropout if config.rm_dropout is not None else config.seed is not None:
            remove_dropout()
        self.config = config
        recorder = _recorder_of(config)(config, model)
        PrecisionDebugger._recorder = recorder
        if config.enable_dataloader:
            _follow_data_loaders(recorder)

    @classmethod
    def _current(cls):
        if cls._recorder is None:
            raise Exception("PrecisionDebugger instance is not created.")
        return cls._recorder

    @classmethod
    def _is_automatic(cls, method):
        if cls._current().config.enable_dataloader:
            log.warning("DataLoader is enabled, %s() skipped.", method)
            return True
        return False

    @classmethod
    @_locked
    def start(cls, model=None, token_range=None, rank_id=None, scheduled_tokens=None):
        """Begin to record, or go on. token_range: (first, last) forward of the model to record, from 0. rank_id: what names the folder of a process that
        torch.distributed knows nothing of. scheduled_tokens is accepted for scripts of msprobe 26, whose key request_id needs it."""
        recorder = cls._current()
        if rank_id is not None:
            recorder.take_rank(whole("rank_id", rank_id, 0))
        if token_range is not None:
            TokenRange.check(token_range, model if model is not None else recorder.model)
        if cls._is_automatic("start"):
            recorder.model = model if model is not None else recorder.model
            return
        recorder.start(model, token_range)

    @classmethod
    @_locked
    def stop(cls):
        """Stop recording; what was recorded is on disk when this returns. Gradients of recorded calls are still taken until step()."""
        if not cls._is_automatic("stop"):
            cls._current().stop()

    @classmethod
    @_locked
    def forward_backward_dump_end(cls):
        """Calls from here on are not recorded; gradients of those before are."""
        cls._current().stop()

    @classmethod
    @_locked
    def step(cls):
        """This step is over: the next one goes to a folder of its own, and counters begin anew."""
        if not cls._is_automatic("step"):
            cls._current().step()

    @classmethod
    @_locked
    def save(cls, variable, name, save_backward=True):
        """Level debug: write a value, and the gradients of its tensors, into debug.json."""
        cls._current().save(variable, name, save_backward)

    @classmethod
    @_locked
    def set_init_step(cls, step):
        """The number of the first step."""
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise wrong("step is %r; it must be a whole number, at least 0" % (step,))
        cls._current().init_step = step

    @classmethod
    @_locked
    def register_custom_api(cls, module, api, api_prefix=None):
        """Record module.api too, as <api_prefix>.<api>.<n>; without a prefix the module's name is used, or "Custom"."""
        _check_api(api)
        if api_prefix is not None and not isinstance(api_prefix, str):
            raise wrong("api_prefix is %r; it must be a string" % (api_prefix,))
        cls._current().register_custom_api(module, api, api_prefix or getattr(module, "__name__", None) or "Custom")

    @classmethod
    @_locked
    def restore_custom_api(cls, module, api):
        """The end of register_custom_api()."""
        _check_api(api)
        cls._current().restore_custom_api(module, api)

    @classmethod
    @_locked
    def module_dump(cls, module, dump_name):
        """Record one module alone, under this name, until module_dump_end(): no API, no other module."""
        module_dump(module, dump_name)

    @classmethod
    @_locked
    def module_dump_end(cls):
        module_dump_end()

    @classmethod
    def monitor(cls, model):
        """Task grad_probe."""
        raise MsprobeException(MsprobeException.INTERFACE_USAGE_ERROR, "monitor() belongs to task grad_probe, which PrecisionDebugger does not collect")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        self.step()


def _check_api(api):
    if not isinstance(api, str) or not api:
        raise wrong("api is %r; it must be the name of a function" % (api,))


def _instance_needed(method):
    if PrecisionDebugger._recorder is None:
        raise MsprobeException(MsprobeException.INTERFACE_USAGE_ERROR, "%s needs a PrecisionDebugger; build one first" % method)
    return PrecisionDebugger._recorder


def module_dump(module, dump_name):
    """Record one module alone, under this name, until module_dump_end(): no API, no other module."""
    if not isinstance(module, torch.nn.Module):
        raise wrong("module is %s; it must be a torch.nn.Module" % type(module).__name__)
    if not isinstance(dump_name, str) or not dump_name:
        raise wrong("dump_name is %r; it must be a string that is not empty" % (dump_name,))
    _instance_needed("module_dump").module_dump(module, dump_name)


def module_dump_end():
    """The end of module_dump()."""
    _instance_needed("module_dump_end").module_dump_end()


# ---- enable_dataloader --------------------------------------------------------------------------------------------------------------------


def _follow_data_loaders(recorder):
    """A step is what happens between two fetches of a data loader; after the last selected one the process leaves with status 0."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    log.warning("The enable_dataloader feature will be deprecated in the future.")
    fetch = _BaseDataLoaderIter.__next__
    running = []

    @functools.wraps(fetch)
    def next_batch(loader):
        if running:
            recorder.step()
            running.clear()
            if recorder.config.step and recorder.current_step > max(recorder.config.step):
                recorder.close()
                log.info("all selected steps are recorded; enable_dataloader is true, so training ends here")
                sys.exit(0)
        batch = fetch(loader)
        recorder.start()
        running.append(True)
        return batch

    _BaseDataLoaderIter.__next__ = next_batch
    _BaseDataLoaderIter.next = next_batch
