"""The older tools on the engine: what ptdbg_ascend and torch_npu.hooks share.

Both record through the extension like PrecisionDebugger does; how a call looks to them is in python/ext/legacy/legacy.c, how their files look in
src/collect/lines.c. Here is only where the files go, and what becomes of files that are there already.
"""

import fcntl
import os
import sys
import time
import traceback
from difflib import SequenceMatcher
from types import SimpleNamespace

from msprobe._core import probe
from msprobe.core.common.exceptions import MsprobeException
from msprobe.core.files import make_folder, status_of
from msprobe.core.log import log
from msprobe.core.signals import give_back
from msprobe.pytorch.recorder import Recorder, _writer_path

PTDBG, HOOKS = 1, 2  # forms of _core.probe.legacy_rules
NO_STACK, STACK_FIRST, STACK_LAST, STACK_ONLY = range(4)

_current = None  # the process's recorder


def recorder(form, overflow_flag=None):
    """The recorder of this process, made at the first call; only one tool can record in a process.

    overflow_flag: () -> bool, asked after each call when overflows are looked for; None: its result is looked at.
    """
    global _current
    from msprobe.pytorch.debugger import PrecisionDebugger

    if PrecisionDebugger._recorder is not None or (_current is not None and _current.form != form):
        raise MsprobeException(MsprobeException.INTERFACE_USAGE_ERROR, "another front end of msprobe records in this process already; use one of them")
    if _current is None:
        _current = LegacyRecorder(form, overflow_flag)
    return _current


def current():
    return _current


class LegacyRecorder(Recorder):
    """Functions are patched, and their calls counted, from the first registration to the end of the process; what is written changes."""

    separator = "_"

    def __init__(self, form, overflow_flag=None):
        self.form = form
        self.on_kernel = None  # (function, args, kwargs) -> result, for the chosen call
        self.on_overflow = None  # (name), after it was written
        self.on_close = None  # (), before the process ends
        self.overflow_flag = overflow_flag
        api_list = "ptdbg" if form == PTDBG else "hooks"
        super().__init__(SimpleNamespace(task="tensor", level="L1", replicas=False, api_list=api_list, risk_level="ALL", list=(), scope=()))
        probe.rules()
        probe.legacy_rules(form, muted=True)
        self._registry.install()
        probe.start(True)

    def _callbacks(self):
        return dict(super()._callbacks(), on_kernel=self._run_kernel, overflow_flag=self.overflow_flag)

    def _run_kernel(self, function, args, kwargs):
        return self.on_kernel(function, args, kwargs)

    def _on_overflow(self, name, _stack):
        self.on_overflow(name)

    def _on_error(self, where, name, error, trace):
        kind = type(error).__name__
        if kind not in self._errors:
            log.warning("%s failed for %s (%s: %s); that value is left out, training and recording go on", where, name, kind, str(error).partition("\n")[0])
            log.debug("%s", "".join(traceback.format_exception(type(error), error, trace)))
        self._errors[kind] = self._errors.get(kind, 0) + 1

    def open(self, ring_dir):
        """Start the writer; stacks of calls are known from then on."""
        if not self._opened:
            probe.open(ring_dir, _writer_path())
            self._opened = True

    def target(self, ring_dir, folder, file, data_dir, mark):
        """Records go to folder/file from now on, elements to data_dir (None: nowhere)."""
        self.open(ring_dir)
        if data_dir:
            make_folder(data_dir)
        probe.legacy_unit(self.form, folder, file, data_dir, mark)

    def give_up(self, error):
        """The files cannot be made: training goes on without them."""
        give_back(error)
        probe.legacy_rules(self.form, muted=True)
        self._on_failure(str(error))

    def rules(self, **rules):
        if os.getpid() == self.pid and not self.ended:
            probe.legacy_rules(self.form, **rules)

    def recorded(self):
        """How many calls have been written so far."""
        return probe.counts()["records"]

    def called(self, like):
        """The first call of each function, as the older tools name it: those most like a name that selected nothing."""
        names = [name.replace(".", self.separator) for name in probe.called()]
        self._names_called = sorted(names, key=lambda name: -SequenceMatcher(None, name.lower(), like.lower()).ratio())
        return self._called()

    def close(self):
        if os.getpid() != self.pid:
            return
        self._pause()
        if self.on_close is not None and not self.ended:
            self.on_close()
        probe.legacy_rules(self.form, muted=True)
        if self._opened:
            self.flush()
            probe.step()
            probe.close()
        self._opened = False


# ---- files that are there already ----------------------------------------------------------------------------------------------------


class Claims:
    """Files of which this process is the only writer: a lock on each is held until the process ends."""

    def __init__(self):
        self._held = {}  # path -> descriptor

    def take(self, path, move_away):
        """Make path this process's own, empty file. What an earlier process left is handed to move_away(); False: another one writes it now."""
        while path not in self._held:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return False
            except OSError as e:  # a file system without locks
                give_back(e)
            if not _is_same_file(fd, path):
                os.close(fd)  # somebody has moved it since it was opened
            elif os.fstat(fd).st_size > 0:
                move_away()
                os.close(fd)
            else:
                self._held[path] = fd
        return True

    def holds(self, path):
        return path in self._held


def _is_same_file(fd, path):
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def stamp(path):
    return time.strftime("%Y%m%d%H%M%S", time.localtime(os.stat(path).st_mtime))


def free_name(path):
    """path, or path_1, path_2, ...: the first that does not exist."""
    number, name = 0, path
    while status_of(name):
        number += 1
        name = "%s_%d" % (path, number)
    return name


def npu():
    """The torch_npu that is installed, or None; a stand-in of ours for its import path is none."""
    module = sys.modules.get("torch_npu")
    if module is None:
        try:
            import torch_npu as module
        except Exception:  # not installed, or without a device
            return None
    return None if getattr(module, "__msprobe_stand_in__", False) else module
