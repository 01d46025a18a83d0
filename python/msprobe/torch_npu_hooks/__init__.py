"""torch_npu.hooks, the oldest front end, so that scripts written for it run unchanged.

    from msprobe.torch_npu_hooks import set_dump_path, seed_all, register_acc_cmp_hook
    from msprobe.torch_npu_hooks.tools import compare

Old scripts import it as torch_npu.hooks. Either run them with

    python -m msprobe.torch_npu_hooks train.py [arguments of train.py]

or call msprobe.torch_npu_hooks.register_import_path() before they import it. Neither hides a torch_npu that is installed. See docs/legacy.md.
"""

import multiprocessing
import os
import weakref

from msprobe.pytorch import legacy
from msprobe.core.files import make_folder
from msprobe.core.log import log
from msprobe.core.signals import give_back
from msprobe.pytorch.modules import _Hook
from msprobe.pytorch.seed import seed_all as _seed_all
from msprobe.torch_npu_hooks.import_path import register_import_path

__all__ = ["set_dump_path", "seed_all", "register_acc_cmp_hook", "register_import_path"]

_hooked = weakref.WeakSet()  # modules
_claims = legacy.Claims()
_names = {}  # file asked for -> file of this process


def seed_all(seed=1234):
    """Fix the random numbers of Python, NumPy and torch."""
    _seed_all(seed)


def set_dump_path(fpath=None):
    """Everything from here on goes to the file fpath: inputs and outputs of functions, and of the modules of registered models. None: no change."""
    if fpath is None:
        return
    path = os.path.realpath(fpath)
    if os.path.isdir(path):
        raise RuntimeError("set_dump_path '%s': it is a directory, and a file is needed" % fpath)
    os.environ["DUMP_PATH"] = str(fpath)
    recorder = legacy.recorder(legacy.HOOKS)
    if recorder.ended or os.getpid() != recorder.pid:
        return
    try:
        make_folder(os.path.dirname(path))
        folder, file = os.path.split(_claim(path))
        recorder.target(folder, folder, file, None, 0)
        recorder.rules()
    except OSError as e:
        give_back(e)
        recorder.give_up(e)


def _claim(path):
    """The file that this process writes when path is asked for. One that was there before is kept under another name."""
    if path not in _names:
        stem, ext = os.path.splitext(path)
        other = "%s_pid%d%s" % (stem, os.getpid(), ext)
        for name in (path, other):
            if _claims.take(name, lambda: _move_away(name)):
                break
            log.warning("another process writes %s: this one writes beside it, with _pid%d in the name", name, os.getpid())
        _names[path] = name
    return _names[path]


def _move_away(path):
    stem, ext = os.path.splitext(path)
    place = legacy.free_name("%s_%s" % (stem, legacy.stamp(path))) + ext
    os.rename(path, place)
    log.warning("%s was there already: it is now %s", path, place)


def register_acc_cmp_hook(model, dump_path=None):
    """Record the modules of model that have none inside, too."""
    assert hasattr(model, "named_modules"), "Please register hooks to nn.Module."
    recorder = legacy.recorder(legacy.HOOKS)
    recorder.on_close = _say_if_empty
    for _, module in model.named_modules():
        if not any(True for _ in module.children()) and module not in _hooked:
            _hooked.add(module)
            module.register_forward_hook(_Hook(_recorder_of("Module_" + type(module).__name__)))
    if dump_path is None and not recorder._opened:
        dump_path = os.environ.get("DUMP_PATH") or None
    set_dump_path(dump_path)


def _say_if_empty():
    recorder = legacy.current()
    if not recorder.recorded() and multiprocessing.parent_process() is None:  # else a worker that has run the top of the script
        log.warning("nothing was recorded: %s", "no listed function was called after set_dump_path()" if _names
                    else "set_dump_path() was never called, and DUMP_PATH is not set")


def _recorder_of(name):
    return lambda _module, args, output: legacy.probe.legacy_module(name, args, output)
