"""The life of one recording in PyNative mode: what is called, measured and written.

MindSpore only enqueues an operation; Tensor.data_ptr() waits for its value, so nothing is read before it is there. Whether operations are
launched one by one (mindspore.runtime.launch_blocking()) is the program's to say: it counts only before the first operation, and cannot be
undone, so it is never switched here.

Inputs are measured before the call, outputs after it: what an in-place operation changes later was read before. The gradient of an input
through one call comes from a HookBackward node on that input, the gradient of an output from a hook on it.
"""

import atexit
import os
import shutil
import sysconfig
import threading
import traceback

import mindspore
from mindspore import Tensor, ops
from mindspore._c_expression import TensorPy, typing

from msprobe._core import open_dump
from msprobe.core.common.exceptions import MsprobeException
from msprobe.core.config import check_folder, wrong
from msprobe.core.log import log, set_rank
from msprobe.core.signals import give_back
from msprobe.mindspore.apis import Compiled, Registry
from msprobe.mindspore.cells import Cells, is_cell
from msprobe.mindspore.stacks import Stacks

try:
    from mindspore.graph.api import _pynative_executor
except ImportError:
    from mindspore.common.api import _pynative_executor

DTYPES = {getattr(mindspore, name): name
          for name in ("float64", "float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
                       "complex64", "complex128") if hasattr(mindspore, name)}
DTYPES[mindspore.bool_] = "bool"
FLOATS = tuple(getattr(mindspore, n) for n in ("float64", "float32", "float16", "bfloat16", "complex64", "complex128") if hasattr(mindspore, n))


def version():
    """(2, 10, 0): versions are compared as numbers."""
    parts = mindspore.__version__.split(".")
    return tuple(int("".join(c for c in p if c.isdigit()) or 0) for p in parts[:3])


def _writer_path():
    here = os.path.join(sysconfig.get_path("scripts"), "msprobe")
    return here if os.access(here, os.X_OK) else shutil.which("msprobe")


def current_rank():
    try:
        from mindspore.communication import GlobalComm, get_rank

        return get_rank() if GlobalComm.INITED else None
    except Exception as e:
        give_back(e)
        return None


class _Backward:
    """The gradients of one call, as they arrive."""

    __slots__ = ("name", "number", "inputs", "outputs", "stack", "parent", "is_bad", "held")

    def __init__(self, name, number, inputs, outputs, stack, parent):
        self.name, self.number, self.stack, self.parent = name, number, stack, parent
        self.inputs, self.outputs = [None] * inputs, [None] * outputs
        self.is_bad = False
        self.held = []  # (list, index, gradient): overflow_check writes them once it knows


class Recorder:
    """One per process."""

    def __init__(self, config):
        self.config = config
        self.model = None
        self.loop = 0
        self.active = False
        self.ended = False
        self.overflows = 0
        self.pid = os.getpid()
        self.rank = None
        self.dump = None
        self._has_unit = False
        self._local = threading.local()
        self._counts = {}
        self._serial = 0
        self._waiting = {}  # number of a call -> its _Backward
        self._errors = set()
        self._tokens = None
        self._in_scope = not config.scope
        self._scope_ends = False
        self._called = {}
        self._cells = Cells(self)
        self._registry = Registry(self.call)
        self._compiled = Compiled(self._registry, self._call_compiled)
        self._files = config.task in ("tensor", "overflow_check")
        self._forward, self._backward = config.axis("forward", "backward")
        self._inputs, self._outputs = config.axis("input", "output")
        self._structure = config.task == "structure"
        self._overflow = config.task == "overflow_check"
        self._construct = config.level in ("L0", "mix")
        if config.level in ("L1", "mix"):
            self._registry.register()
        check_folder("dump_path", config.dump_path)
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self):
        self._pause()
        self.ended = True

    # ---- errors --------------------------------------------------------------------------------------------------------------------

    def _failed(self, name, error):
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
            self.ended = True
            self._pause()
            log.error("recording has ended: %s. Training goes on.", e)

    # ---- what is selected ----------------------------------------------------------------------------------------------------------

    def _selects(self, name):
        self._called[name] = True
        if len(self._called) > 64:
            self._called.pop(next(iter(self._called)))
        config = self.config
        if config.scope:
            if self._scope_ends:
                self._in_scope = self._scope_ends = False
            if name == config.scope[0]:
                self._in_scope = True
            if name == config.scope[1]:
                self._scope_ends = True
        return self._in_scope and (not config.list or any(item in name for item in config.list))

    def count(self, name):
        number = self._counts.get(name, 0)
        self._counts[name] = number + 1
        return number

    def measure(self, name, value, record):
        """Its tokens, now; None: it failed."""
        try:
            return self.dump.part(name, value, self.config.task == "tensor")[0] if self._selects(record) else None
        except Exception as e:
            self._failed(record, e)
            return None

    def put(self, name, members, stack, parent):
        try:
            if members or self._structure:
                self.dump.commit(name, None if self._structure else members, stack, parent)
        except Exception as e:
            self._failed(name, e)

    def _parent(self):
        if not self._construct:
            return None
        return self._cells.open[-1] if self._cells.open else ""

    # ---- a call of an API or a Primitive -------------------------------------------------------------------------------------------

    def call(self, original, name, args, kwargs, in_place):
        """Run original, and record it as name.<n>. What it calls itself is not recorded."""
        local = self._local
        if not self.active or getattr(local, "busy", False):
            return original(*args, **kwargs)
        local.busy = True
        try:
            full = "%s.%d.forward" % (name, self.count(name))
            call = _Call(self, full, args, kwargs, in_place)
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

    def has_gradients(self):
        return self._backward and not self._structure and (_pynative_executor.grad_flag() or _pynative_executor.requires_grad())

    def next_number(self):
        self._serial += 1
        return self._serial

    # ---- gradients -----------------------------------------------------------------------------------------------------------------

    def arrived(self, back, into, index, kind, gradient):
        """A gradient is here. Calls made later than this one have all of theirs by now: the graph is walked backwards."""
        if not self.active:
            return
        self.finish_backward(back.number)
        self._waiting.setdefault(back.number, back)
        try:
            save = self.config.task == "tensor"
            tokens, bad = self.dump.part("%s.%s.%d" % (back.name, kind, index), gradient, save and self._selects(back.name))
            into[index] = tokens
            if self._overflow:
                back.held.append((into, index, kind, gradient))
                back.is_bad = back.is_bad or (bad and kind == "output")
        except Exception as e:
            self._failed(back.name, e)

    def finish_backward(self, above):
        """Write what was collected for calls that came after the one with this number."""
        for number in sorted((n for n in self._waiting if n > above), reverse=True):
            self._put_backward(self._waiting.pop(number))

    def _put_backward(self, back):
        if self._overflow:
            if not back.is_bad:
                return
            for into, index, kind, gradient in back.held:
                into[index] = self.dump.part("%s.%s.%d" % (back.name, kind, index), gradient, True)[0]
        if not self._selects(back.name):
            return
        members = ([("input", back.inputs)] if self._inputs else []) + ([("output", back.outputs)] if self._outputs else [])
        self.put(back.name, members, back.stack, back.parent)
        if self._overflow:
            self.overflowed(back.name)

    def overflowed(self, name):
        """A call's result holds inf or NaN. Raises when the limit is reached; everything is on disk before."""
        self.overflows += 1
        log.warning("[overflow %d] %s: its result holds inf or NaN; its inputs and outputs are in %s", self.overflows, name, self._folder)
        if self.config.overflow_nums == -1 or self.overflows < self.config.overflow_nums:
            return
        self.ended = True
        self._pause()
        self.dump.flush()
        raise MsprobeException(MsprobeException.OVERFLOW_NUMS_ERROR, "%d overflow(s), as many as overflow_nums allows; the last one in %s. See %s"
                               % (self.overflows, name, self._folder))

    # ---- cells ---------------------------------------------------------------------------------------------------------------------

    def cell_before(self, name):
        def before(_, args, kwargs=None):
            if not self.active or getattr(self._local, "busy", False):
                return
            full = "%s.forward.%d" % (name, self.count(name))
            call = _Call(self, full, args, kwargs or {}, False, cell=True)
            call.before()
            self._cells.open.append(full)
            self._calls.append(call)

        return before

    def cell_after(self, name, cell):
        def after(_, args, kwargs, output=None):
            if not self.active or getattr(self._local, "busy", False):
                return
            while self._calls:
                call = self._calls.pop()
                self._cells.open.pop()
                if call.name.startswith(name + ".forward."):
                    self._numbers.setdefault(name, []).append((call.name.rpartition(".")[2], call.parent, self._serial))
                    call.after(output, {k: p for k, p in cell._params.items() if p is not None})
                    return

        return after

    def cell_backward(self, name):
        entered = []

        def enters(_, gradient):
            if self.active and self._numbers.get(name):
                entered.append(self._numbers[name].pop())

        def leaves(_, gradient_in, gradient_out):
            if not self.active or not entered:
                return
            number, parent, serial = entered.pop(0)
            full = "%s.backward.%s" % (name, number)
            self.finish_backward(serial - 1 if serial else 0)
            parent = None if parent is None else parent.replace(".forward.", ".backward.")
            save = self.config.task == "tensor"
            try:
                if self._overflow or not self._selects(full):
                    return
                members = [(key, self.dump.part("%s.%s" % (full, key), _sequence(value), save)[0])
                           for key, value, wanted in (("input", gradient_out, self._inputs), ("output", gradient_in, self._outputs)) if wanted]
                self.put(full, members, 0, parent)
            except Exception as e:
                self._failed(full, e)

        return enters, leaves

    # ---- compiled functions --------------------------------------------------------------------------------------------------------

    def _call_compiled(self, run, executor, args, kwargs):
        if not self.active or getattr(self._local, "busy", False):
            return run(*args, **kwargs)
        owner = getattr(executor, "obj", None)
        name = type(owner).__name__ if is_cell(owner) else getattr(getattr(executor, "fn", None), "__name__", "function")
        return self.call(run, "Jit." + name, args, kwargs, True)

    # ---- start, stop, step ---------------------------------------------------------------------------------------------------------

    def start(self, model=None, token_range=None):
        if model is not None:
            self.model = model
        models = list(self.model) if isinstance(self.model, (list, tuple)) else [] if self.model is None else [self.model]
        if not all(is_cell(m) for m in models):
            raise wrong("model is %s; it must be a mindspore.nn.Cell or a list of them" % type(self.model).__name__)
        if self.config.level in ("L0", "mix") and not models:
            raise wrong("model is None; level %s needs start(model) with a mindspore.nn.Cell or a list of them" % self.config.level)
        if token_range is not None:
            _check_range(token_range, models)
        if self.ended or self.active or self._tokens or os.getpid() != self.pid:
            return
        if self.config.step and self.loop not in self.config.step:
            return
        if not self._has_unit and not self._open_unit():
            return
        if token_range is not None:
            self._tokens = _Tokens(self, models[0], token_range)
        else:
            self._resume()

    def _open_unit(self):
        config = self.config
        if self.rank is None:
            self.rank = current_rank()
            set_rank(self.rank)
        if config.rank and self.rank not in config.rank:
            if self.rank is not None or "rank" not in self._errors:
                self._errors.add("rank")
                log.warning("nothing is recorded here: rank selects %s, and this process %s", config.rank,
                            "has no rank" if self.rank is None else "is rank %d" % self.rank)
            return False
        self._folder = os.path.join(config.dump_path, "step%d" % self.loop, "rank" if self.rank is None else "rank%d" % self.rank)
        data = os.path.join(self._folder, "dump_tensor_data") if self._files else ""
        os.makedirs(data or self._folder, 0o750, exist_ok=True)
        if self.dump is None:
            self.dump = open_dump(config.dump_path, _writer_path(), TensorPy, typing.Type, DTYPES, version() >= (2, 8), 0)
            self._stacks = Stacks(self.dump)
        self.dump.unit(self._folder, config.task, config.level, data or None, data, config.summary_mode == "md5", not self._structure)
        self._has_unit = True
        self._values_before = self.dump.values
        self._in_scope, self._scope_ends = not config.scope, False
        return True

    def _models(self):
        if self.model is None:
            return []
        if is_cell(self.model):
            return [("", self.model)]
        return [("%d." % i, m) for i, m in enumerate(self.model)]

    def _resume(self):
        self._calls, self._numbers = [], {}
        self._local.busy = False
        self.active = True
        level = self.config.level
        self._cells.attach(self._models(), level in ("L0", "mix"), level in ("L1", "mix"), self._backward and not self._structure)
        if level != "L0":
            self._registry.install()
            self._compiled.install()

    def _pause(self):
        self._compiled.uninstall()
        self._registry.uninstall()
        self._cells.detach()
        self.active = False

    def stop(self):
        if os.getpid() != self.pid:
            return
        if self._tokens:
            self._tokens.end()
            self._tokens = None
        if self.active:
            try:
                self.finish_backward(-1)
            finally:
                self._pause()
        if self._has_unit:
            self._flush()
            self._say_if_empty()

    def _flush(self):
        try:
            self.dump.flush()
        except OSError as e:
            give_back(e)
            self.ended = True
            log.error("recording has ended: %s. Training goes on.", e)

    def step(self):
        if os.getpid() != self.pid:
            return
        self.stop()
        if self._has_unit:
            self.dump.end_unit()
            self._flush()
        self._has_unit = False
        self._waiting.clear()
        self._counts.clear()
        self.loop += 1

    def close(self):
        if os.getpid() != self.pid or self.dump is None:
            return
        self.stop()
        self.dump.end_unit()
        self.dump.close()
        self.dump, self._has_unit, self.ended = None, False, True

    def _say_if_empty(self):
        if self._structure or self._overflow or self.dump.values > self._values_before or "empty" in self._errors:
            return
        self._errors.add("empty")
        log.warning("nothing was recorded in step %d; list is %s, scope is %s; names that were called: %s", self.loop, self.config.list,
                    self.config.scope, ", ".join(list(self._called)[:8]) or "none")


def _sequence(value):
    return value if isinstance(value, (tuple, list)) else (value,)


def _is_pending(result):
    """Whether a collective was only begun: its result is not there before the program waits for it, and is not recorded."""
    return any(callable(getattr(part, "wait", None)) for part in _sequence(result))


class _Call:
    """One call on its way: what is known before it runs, and after."""

    __slots__ = ("recorder", "name", "args", "kwargs", "in_place", "members", "is_selected", "stack", "parent", "cell", "back")

    def __init__(self, recorder, name, args, kwargs, in_place, cell=False):
        self.recorder, self.name, self.args, self.kwargs, self.in_place, self.cell = recorder, name, args, kwargs, in_place, cell
        self.members, self.back, self.is_selected, self.stack, self.parent = [], None, False, 0, None

    def before(self):
        recorder = self.recorder
        try:
            self.is_selected = recorder._selects(self.name)
            self.stack, self.parent = recorder._stacks.here(), recorder._parent()
            if self.is_selected and recorder._forward and recorder._inputs and not recorder._structure and (not recorder._overflow or self.in_place):
                self._measure_inputs(recorder.config.task == "tensor")
            if not self.cell and recorder.has_gradients():
                self._follow_inputs()
        except Exception as e:
            recorder._failed(self.name, e)

    def _measure_inputs(self, save):
        part, name = self.recorder.dump.part, self.name + ".input"
        self.members = [("input_args", part(name, tuple(self.args), save)[0]), ("input_kwargs", part(name, self.kwargs, save)[0])]

    def _follow_inputs(self):
        """A node on each tensor that may have a gradient, but for what the call writes to: that must stay the object it is."""
        slots = []
        back = _Backward(self.name[:-len("forward")] + "backward", self.recorder.next_number(), 0, 0, self.stack,
                         None if self.parent is None else self.parent.replace(".forward.", ".backward."))

        def follow(value, depth=0):
            if isinstance(value, TensorPy):
                index = len(slots)
                slots.append(None)
                if self.in_place or value.dtype not in FLOATS:
                    return value
                return ops.HookBackward(self._hook(back, slots, index, "output"))(value)
            if type(value) in (list, tuple) and depth < 2 and any(isinstance(v, TensorPy) for v in value):
                return type(value)(follow(v, depth + 1) for v in value)
            return value

        self.args = tuple(follow(a) for a in self.args)
        self.kwargs = {k: follow(v) for k, v in self.kwargs.items()}
        back.outputs = slots
        self.back = back

    def _hook(self, back, slots, index, kind):
        recorder = self.recorder

        def hook(gradient):
            gradient = gradient[0] if isinstance(gradient, tuple) else gradient
            if gradient is not None:
                recorder.arrived(back, slots, index, kind, gradient)

        return hook

    def raised(self):
        """The program may catch it: what went in is recorded, and no output."""
        recorder = self.recorder
        if self.is_selected and recorder._forward and self.members and not recorder._overflow:
            recorder.put(self.name, self.members, self.stack, self.parent)

    def after(self, result, parameters=None):
        recorder = self.recorder
        try:
            if self.back is not None:
                self._follow_outputs(_sequence(result))
            if not self.is_selected or not recorder._forward:
                return
            if recorder._structure:
                recorder.put(self.name, [], self.stack, self.parent)
                return
            save, bad = recorder.config.task == "tensor", False
            part = recorder.dump.part
            if recorder._overflow:
                bad = not self.cell and not _is_pending(result) and part(self.name, _sequence(result), False)[1]
                if not bad:
                    return
                save = True
                if not self.members:
                    self._measure_inputs(True)
            if self.cell and recorder._inputs:
                self.members.append(("parameters", part(self.name + ".parameters", parameters, save)[0]))
            if recorder._outputs and not _is_pending(result):
                self.members.append(("output", part(self.name + ".output", _sequence(result), save)[0]))
            recorder.put(self.name, self.members, self.stack, self.parent)
            if bad:
                recorder.overflowed(self.name)
        except Exception as e:
            recorder._failed(self.name, e)

    def _follow_outputs(self, results):
        tensors = [t for t in results if isinstance(t, TensorPy)]
        self.back.inputs = [None] * len(tensors)
        for index, tensor in enumerate(tensors):
            if tensor.dtype in FLOATS and isinstance(tensor, Tensor):
                tensor.register_hook(self._hook(self.back, self.back.inputs, index, "input"))


class _Tokens:
    """Recording is on from the beginning of one forward of the model to that of another."""

    def __init__(self, recorder, model, token_range):
        self._recorder, (self._first, self._last), self._token = recorder, token_range, -1
        self._handle = model.register_forward_pre_hook(self._before)

    def _before(self, *_):
        self._token += 1
        if self._token == self._first:
            self._recorder._resume()
        elif self._token == self._last + 1 and self._recorder.active:
            self._recorder.finish_backward(-1)
            self._recorder._pause()

    def end(self):
        self._handle.remove()


def _check_range(token_range, models):
    good = isinstance(token_range, (list, tuple)) and len(token_range) == 2
    good = good and all(isinstance(x, int) and not isinstance(x, bool) for x in token_range) and 0 <= token_range[0] <= token_range[1]
    if not good:
        raise wrong("token_range is %r; it must be a list of two whole numbers, the first token and the last, at least 0" % (token_range,))
    if not models:
        raise wrong("token_range needs a model: start(model, token_range=...)")
