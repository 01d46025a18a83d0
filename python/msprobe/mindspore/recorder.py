"""The life of one recording in PyNative mode: what is selected, where it goes, start(), stop() and step().

MindSpore only enqueues an operation; Tensor.data_ptr() waits for its value, so nothing is read before it is there. Whether operations are
launched one by one (mindspore.runtime.launch_blocking()) is the program's to say: it counts only before the first operation, and cannot be
undone, so it is never switched here.
"""

import atexit
import contextlib
import itertools
import os
import shutil
import sysconfig
import threading
import traceback

import mindspore
from mindspore._c_expression import TensorPy, typing

from msprobe._core import open_dump
from msprobe.core import older
from msprobe.core.common.exceptions import MsprobeException
from msprobe.core.config import check_folder, wrong
from msprobe.core.files import make_folder
from msprobe.core.log import log, set_rank
from msprobe.core.points import Points
from msprobe.core.points import check as check_point
from msprobe.core.signals import give_back
from msprobe.mindspore.apis import EVERY, Api, Compiled, Registry
from msprobe.mindspore.calls import Call, Pending
from msprobe.mindspore.cells import Cells, Tokens, check_models, check_range, is_cell
from msprobe.mindspore.gradients import Gradients, backward_name, watch
from msprobe.mindspore.options import device
from msprobe.mindspore.ranks import current_rank, is_selected, world_size
from msprobe.mindspore.stacks import Stacks
from msprobe.mindspore.summary import Summary

try:
    from mindspore.graph.api import _pynative_executor
except ImportError:
    from mindspore.common.api import _pynative_executor

DTYPES = {getattr(mindspore, name): name
          for name in ("float64", "float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
                       "complex64", "complex128") if hasattr(mindspore, name)}
DTYPES[mindspore.bool_] = "bool"
SLOW = ("operations run asynchronously, and to wait for each value takes far longer than most operations: mindspore.runtime.launch_blocking() at the top "
        "of the script, before the first operation, makes recording several times faster and changes no number")


def version():
    """(2, 10, 0): versions are compared as numbers."""
    parts = mindspore.__version__.split(".")
    return tuple(int("".join(c for c in p if c.isdigit()) or 0) for p in parts[:3])


def _has_addresses():
    """Whether every tensor has an address in this process's memory: a device's own memory cannot be read by it. Before 2.8 tensors that Python made have
    none until they are used, and to ask prints an error."""
    return version() >= (2, 8) and device() == "CPU"


def _is_blocking():
    try:
        from mindspore._c_expression import RuntimeConf

        return RuntimeConf.get_instance().is_launch_blocking() or mindspore.get_context("pynative_synchronize")
    except Exception as e:
        give_back(e)
        return True  # it cannot be told


def _writer_path():
    here = os.path.join(sysconfig.get_path("scripts"), "msprobe")
    return here if os.access(here, os.X_OK) else shutil.which("msprobe")


class Recorder:
    """One per process."""

    def __init__(self, config):
        self.config = config
        self.model = None
        self.loop = 0
        self.active = False
        self.ended = False
        self.overflows, self.first_overflow = 0, None
        self.pid = os.getpid()
        self.rank = None
        self.dump = None
        self._folder = None
        self._has_unit = self._opened = self._closed = False
        self._local = threading.local()
        self._counts = {}
        self._errors = set()
        self._failure = None  # why recording has ended before its time
        self.summary = Summary(config)
        self._tokens = None
        self._in_scope = not config.scope
        self._called = {}
        self.forward, self.backward = config.axis("forward", "backward")
        self.inputs, self.outputs = config.axis("input", "output")
        self.structure = config.task == "structure"
        self.overflow = config.task == "overflow_check"
        self._construct = config.level in ("L0", "mix")
        self.watches_cells = not self.overflow or config.level == "L0"  # elsewhere the call inside is named
        self.gradients = Gradients(self)
        self.pending = Pending(self)
        self.cells = Cells(self)
        self._points = Points(self, TensorPy, watch)
        self._registry = Registry(self.call)
        self._compiled = Compiled(self._registry, self._call_compiled)
        if config.level in ("L1", "mix"):
            self._registry.register()
        check_folder("dump_path", config.dump_path)
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self):
        self._pause()
        self.ended = True

    # ---- errors --------------------------------------------------------------------------------------------------------------------

    def failed(self, name, error):
        """An error of ours: logged once for each kind, and training goes on."""
        if isinstance(error, MsprobeException):
            raise error
        give_back(error)
        kind = type(error).__name__
        if kind not in self._errors:
            self._errors.add(kind)
            log.warning("%s could not be recorded (%s: %s); training and recording go on. See dump_error_info.log", name, kind,
                        str(error).partition("\n")[0])
        try:
            self.dump.note_error("%s failed\n%s" % (name, "".join(traceback.format_exception(type(error), error, error.__traceback__))))
        except Exception as e:
            give_back(e)
            self._end(e)

    def _end(self, error):
        self.ended, self._failure = True, str(error)
        self._pause()
        log.error("recording has ended: %s. Training goes on.", error)

    # ---- what is selected ----------------------------------------------------------------------------------------------------------

    def enter(self, name):
        """A call begins: the range of scope may."""
        self._called[name] = True
        if len(self._called) > 64:
            self._called.pop(next(iter(self._called)))
        if self.config.scope and name == self.config.scope[0]:
            self._in_scope = True

    def leave(self, name):
        """A call is over: the range of scope may be."""
        if self.config.scope and name == self.config.scope[1]:
            self._in_scope = False

    def selects(self, name):
        return self._in_scope and self._lists(name)

    def _lists(self, name):
        return not self.config.list or any(item in name for item in self.config.list)

    def saves(self, name):
        """Whether the tensors of a call go into files."""
        return self.config.task == "tensor" or any(item in name for item in self.config.tensor_list)

    def count(self, name):
        """Its number among the calls of this name, in whatever thread."""
        return next(self._counts.setdefault(name, itertools.count()))

    def follows(self, name, is_nested):
        """Whether the gradients of a call are looked at: nothing is put between calls that list leaves out. A range of scope may begin with any.

        is_nested: a gradient's gradient is being computed. A node in between would change the order in which its terms are added, and MindSpore 2.7
        cannot differentiate such a node.
        """
        if not self.has_gradients() or not (self.config.scope or self._lists(backward_name(name))):
            return False
        if is_nested:
            self.summary.say_once("nested", "%s runs in a grad() inside of a grad(): gradients of such calls are not recorded, for the second derivative "
                                  "keeps its bits only so", name, say=log.info)
        return not is_nested

    def has_gradients(self):
        return self.backward and not self.structure and (_pynative_executor.grad_flag() or _pynative_executor.requires_grad())

    # ---- records -------------------------------------------------------------------------------------------------------------------

    def stack(self):
        """(id, whether a gradient's gradient is being computed there)"""
        return self._stacks.here()

    def parent(self):
        """The cell that runs; None: construct.json says nothing of it."""
        if not self._construct:
            return None
        return self.cells.innermost()

    def measure(self, name, value, save):
        """The tokens of a value, and whether a tensor in it holds inf or NaN. save: its tensors go into files that begin with name.

        MindSpore tells of an operation that has failed when anything is waited for, once: the value itself may be good, and the program may never be told.
        """
        try:
            return self.dump.part(name, value, save)
        except Exception as e:
            give_back(e)
            self.summary.say_once("operation", "while %s was read, MindSpore told that an operation of the program has failed, which it tells only once: %s", name,
                                  str(e).partition("\n")[0], say=log.error)
        return self.dump.part(name, value, save)

    def put(self, name, record, stack, parent, place=0):
        try:
            if not record:
                return
            if place:
                self.dump.fill(place, name, record)
            else:
                self.dump.commit(name, record, stack, parent)
            self.summary.records += 1
        except Exception as e:
            self.failed(name, e)

    @contextlib.contextmanager
    def quiet(self):
        """What is called here is not recorded."""
        was, self._local.busy = getattr(self._local, "busy", False), True
        try:
            yield
        finally:
            self._local.busy = was

    def is_recording(self):
        return self.active and not getattr(self._local, "busy", False)

    # ---- a call of an API or a Primitive -------------------------------------------------------------------------------------------

    def call(self, original, api, args, kwargs):
        """Run original, and record it as <name>.<n>. What it calls itself is not recorded."""
        if not self.is_recording():
            return original(*args, **kwargs)
        local = self._local
        local.busy = True
        try:
            call = Call(self, api, "%s.%d.forward" % (api.name, self.count(api.name)), args, kwargs)
            call.before()
            try:
                result = original(*call.args, **call.kwargs)
            except BaseException:
                call.raised()
                raise
            call.after(result)
            return result
        finally:
            local.busy = False

    def _call_compiled(self, run, executor, args, kwargs):
        """run is called with the functions as they were (Compiled); the cells' hooks are ours to take away."""
        owner = getattr(executor, "obj", None)
        with self.cells.away(owner):
            if self.config.level == "L0" or not self.is_recording():
                return run(*args, **kwargs)
            if not self.has_gradients():  # an optimizer's step, say: backward is over
                self.gradients.finish(-1)
            name = type(owner).__name__ if is_cell(owner) else getattr(getattr(executor, "fn", None), "__name__", "function")
            return self.call(run, Api("Jit." + name, EVERY), args, kwargs)

    def overflowed(self, name):
        """A call's result holds inf or NaN. Raises when the limit is reached; everything is on disk before."""
        self.overflows += 1
        self.first_overflow = self.first_overflow or name
        log.warning("[overflow %d] %s: its result holds inf or NaN; its inputs and outputs are in %s", self.overflows, name, self._folder)
        if self.config.overflow_nums == -1 or self.overflows < self.config.overflow_nums:
            return
        self.ended = True
        self._pause()
        self.dump.flush()
        raise MsprobeException(MsprobeException.OVERFLOW_NUMS_ERROR, "%d overflow(s), as many as overflow_nums allows; the last one in %s. See %s"
                               % (self.overflows, name, self._folder))

    # ---- single values: what Points asks for -----------------------------------------------------------------------------------------

    def save(self, variable, name, backward):
        config = self.config
        self.summary.saves += 1
        why = check_point(variable, name, backward, TensorPy)
        if why and self.loop == 0:
            raise wrong("save(): " + why)
        if why:
            log.warning("save(): nothing is saved: %s", why)
        elif config.level == "debug" and not self.ended and os.getpid() == self.pid and self._is_step() and (self._has_unit or self._open_unit()):
            with self.quiet():
                try:
                    self._points.save(variable, name, backward)
                except Exception as e:
                    self.failed(name, e)

    def snapshot(self, value, name):
        try:
            return self.measure(name, value, self.config.task == "tensor")[0] if self._has_unit else None
        except Exception as e:
            self.failed(name, e)
            return None

    def write(self, record, value, name, place=0):
        if place:
            self.dump.fill(place, record, value)
        else:
            self.dump.commit(record, self.snapshot(value, name), 0, None)
        self.summary.records += 1

    def reserve(self):
        return self.dump.reserve()

    # ---- start, stop, step ---------------------------------------------------------------------------------------------------------

    def start(self, model=None, token_range=None):
        models = check_models(self.model if model is None else model)
        if self.config.level in ("L0", "mix") and not models:
            raise wrong("model is None; level %s needs start(model) with a mindspore.nn.Cell or a list of them" % self.config.level)
        if token_range is not None:
            check_range(token_range, models)
        if model is not None:
            self.model = model
        if not self._begins_a_step() or (not self._has_unit and not self._open_unit()):
            return
        if token_range is not None:
            self._tokens = Tokens(self, models[0], token_range)
        else:
            self.resume()

    def _begins_a_step(self):
        """Whether start() has something to do; what it says when not."""
        if self.ended or self.config.level == "debug" or os.getpid() != self.pid:
            return False
        if self.active or self._tokens:
            self.summary.say_once("twice", "start() was called again before stop(); recording goes on as it was")
            return False
        self.summary.note_start(self.loop)
        if self.config.step and self.loop > max(self.config.step):
            self.ended = True
            log.info("msprobe ends successfully.")
        return self._is_step() and self.config.is_dump_enabled()

    def _is_step(self):
        return not self.config.step or self.loop in self.config.step

    def _open_unit(self):
        """False: this process records nothing."""
        if self.rank is None:
            self.rank = current_rank()
            set_rank(self.rank)
        if not is_selected(self.config.rank):
            self.summary.is_other_rank = True
            self.summary.say_once("rank", "nothing is recorded here: rank selects %s, and this process %s", self.config.rank,
                                  "has no rank" if self.rank is None else "is rank %d" % self.rank)
            return False
        try:
            self._make_unit()
        except OSError as e:  # a full disk, a folder that is gone
            give_back(e)
            self._end(e)
        return self._has_unit

    def _make_unit(self):
        config = self.config
        own = "rank" if self.rank is None else "rank%d" % self.rank
        self._folder = os.path.join(config.dump_path, "step%d" % self.loop, own)
        has_files = config.task in ("tensor", "overflow_check") or config.tensor_list
        data = os.path.join(self._folder, "dump_tensor_data") if has_files else ""
        if not self._opened:
            older.move_aside(config.dump_path, own, self.rank, world_size())
            self._opened = True
        make_folder(data or self._folder)
        if self.dump is None:
            self.dump = open_dump(config.dump_path, _writer_path(), TensorPy, typing.Type, DTYPES, _has_addresses())
            self._stacks = Stacks(self.dump)
            if not self.structure and not _is_blocking():
                self.summary.say_once("slow", SLOW)
        self.dump.unit(self._folder, config.task, config.level, data or None, data, config.summary_mode == "md5", not self.structure, config.level == "debug")
        self._has_unit = True
        self._values_before = self.dump.values
        self._in_scope = not config.scope

    def resume(self):
        self._local.busy = False
        self.active = True
        level = self.config.level
        self.cells.attach(check_models(self.model), isinstance(self.model, (list, tuple)), level in ("L0", "mix"), level in ("L1", "mix"))
        if level != "L0":
            self._registry.install()
        self._compiled.install()

    def _pause(self):
        self._compiled.uninstall()
        self._registry.uninstall()
        self.cells.detach()
        self.gradients.clear()
        self.active = False

    def pause(self):
        """Everything that was replaced is as before, and what was begun is written."""
        try:
            self.cells.end()
            self.gradients.finish(-1)
            self.pending.end()
        finally:
            self._pause()

    def stop(self):
        if os.getpid() != self.pid:
            return
        if self._tokens:
            self._tokens.end()
            self._tokens = None
        if self.active:
            self.pause()
        if self._has_unit and self.config.level != "debug":  # where a flush would give up the places of gradients that are to come
            self._flush()
            self._say_if_empty()

    def _flush(self):
        try:
            self.dump.flush()
        except OSError as e:
            give_back(e)
            self._end(e)

    def step(self):
        if os.getpid() != self.pid:
            return
        self.stop()
        if self._has_unit:
            self._points.step()
            self.dump.end_unit()
            self._flush()
        self._has_unit = False
        self._counts.clear()
        self.loop += 1

    def close(self):
        if os.getpid() != self.pid or self._closed:
            return
        self._closed = True
        if self.dump is not None:
            self.stop()
            if self._has_unit:
                self._points.step()
            self.dump.end_unit()
            self.dump.close()
        self.dump, self._has_unit, self.ended = None, False, True
        self.summary.say_at_the_end(self._names_called(), self._folder and os.path.basename(self._folder), self._failure,
                                    (self.overflows, self.first_overflow))

    def _say_if_empty(self):
        if self.structure or self.overflow or self.dump.values > self._values_before:
            return
        self.summary.say_once("empty", "nothing was recorded in step %d; list is %s, scope is %s; names that were called: %s", self.loop, self.config.list,
                              self.config.scope, self._names_called())

    def _names_called(self):
        return ", ".join(list(self._called)[:8]) or "none"
