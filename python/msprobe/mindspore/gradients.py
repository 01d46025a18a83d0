"""The gradients of calls of APIs, Primitives and cells, as backward brings them.

The gradient of an input through one call comes from a HookBackward node on that input, the gradient of an output from a hook on it. (MindSpore's
own backward hooks of cells would turn a NamedTuple that a cell returns into a tuple.) Calls are walked backwards: when a gradient of one arrives,
all calls made later have theirs, and their records are written. A cell's record stands behind those of the calls inside it.
"""

import mindspore
from mindspore import Parameter, Tensor, ops
from mindspore._c_expression import TensorPy

from msprobe.core.signals import give_back

FLOATS = tuple(getattr(mindspore, n) for n in ("float64", "float32", "float16", "bfloat16", "complex64", "complex128") if hasattr(mindspore, n))

DEEPEST = 24  # of containers in containers that are looked into


def watch(tensor, hook):
    """Call hook with the gradient of a tensor; returns what ends that, None: it gets no gradient, which MindSpore tells in no other way."""
    try:
        return tensor.register_hook(hook)
    except RuntimeError as e:
        give_back(e)
        return None


def _tensors(value, depth=0):
    """Those in a result, in order."""
    if isinstance(value, TensorPy):
        yield value
    elif isinstance(value, (list, tuple, dict)) and depth <= DEEPEST:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part, depth + 1)


def backward_name(name):
    """Of the record of a call's backward."""
    before, _, behind = name.rpartition("forward")
    return before + "backward" + behind


class _Call:
    """The gradients of one call. inputs and outputs are those of its backward: what enter are its results' gradients."""

    __slots__ = ("name", "serial", "last", "inputs", "outputs", "stack", "parent", "is_selected", "is_bad", "held")

    def __init__(self, name, serial, stack, parent):
        self.name, self.serial, self.stack, self.parent = name, serial, stack, parent
        self.last = serial  # of the calls inside it
        self.inputs, self.outputs = [], []
        self.is_selected = self.is_bad = False
        self.held = []  # (list, index, kind, gradient): overflow_check writes them once it knows


class Gradients:
    def __init__(self, recorder):
        self._recorder = recorder
        self._overflow = recorder.config.task == "overflow_check"
        self._waiting = {}  # serial of a call -> the call, whose record is not written yet
        self._handles = []  # hooks on Parameters, which live on
        self._serial = 0  # of the last call

    # ---- before and after a call -----------------------------------------------------------------------------------------------------

    def follow_inputs(self, name, stack, parent, args, kwargs, written, kinds):
        """Returns (call, args, kwargs): a node on each tensor that may have a gradient, but for what the call writes to, by index: that must stay the
        object it is. kinds: the containers that may be others than the program gave; tensors in the rest have none."""
        self._serial += 1
        call = _Call(backward_name(name), self._serial, stack, parent and backward_name(parent))

        def follow(value, is_free, depth=0):
            if isinstance(value, TensorPy):
                index = len(call.outputs)
                call.outputs.append(None)
                if not is_free or value.dtype not in FLOATS:
                    return value
                return ops.HookBackward(self._hook(call, call.outputs, index, "output"))(value)
            if not isinstance(value, (list, tuple, dict)) or depth > DEEPEST:
                return value
            is_free = is_free and (type(value) in kinds or hasattr(value, "_make"))
            parts = value.values() if isinstance(value, dict) else value
            followed = [follow(part, is_free, depth + 1) for part in parts]
            if all(a is b for a, b in zip(followed, parts)):
                return value
            return value._make(followed) if hasattr(value, "_make") else type(value)(followed)

        args = tuple(follow(a, i not in written) for i, a in enumerate(args))
        kwargs = {k: follow(v, len(args) not in written) for k, v in kwargs.items()}  # what comes behind the arguments by position
        return call, args, kwargs

    def follow_outputs(self, call, results):
        call.last = self._serial
        tensors = list(_tensors(results))
        call.inputs = [None] * len(tensors)
        for index, tensor in enumerate(tensors):
            if tensor.dtype in FLOATS and isinstance(tensor, Tensor):
                handle = watch(tensor, self._hook(call, call.inputs, index, "input"))
                if handle is not None and isinstance(tensor, Parameter):
                    self._handles.append(handle)

    def _hook(self, call, into, index, kind):
        def hook(gradient):
            gradient = gradient[0] if isinstance(gradient, tuple) else gradient
            if gradient is not None:
                self._arrived(call, into, index, kind, gradient)

        return hook

    # ---- in backward -----------------------------------------------------------------------------------------------------------------

    def _arrived(self, call, into, index, kind, gradient):
        recorder = self._recorder
        if not recorder.active:
            return
        self.finish(call.last if kind == "input" else call.serial)
        if call.serial not in self._waiting:
            self._waiting[call.serial] = call
            recorder.enter(call.name)
            call.is_selected = recorder.selects(call.name)
        if not call.is_selected:
            return
        try:
            into[index], bad = recorder.measure("%s.%s.%d" % (call.name, kind, index), gradient, recorder.saves(call.name))
            if self._overflow:
                call.held.append((into, index, kind, gradient))
                call.is_bad = call.is_bad or (bad and kind == "output")
        except Exception as e:
            recorder.failed(call.name, e)

    def finish(self, above):
        """Write what was collected for calls that came after the one with this serial."""
        for serial in sorted((n for n in self._waiting if n > above), reverse=True):
            self._put(self._waiting.pop(serial))

    def _put(self, call):
        recorder = self._recorder
        recorder.leave(call.name)
        if not call.is_selected or (self._overflow and not call.is_bad):
            return
        for into, index, kind, gradient in call.held:
            into[index] = recorder.measure("%s.%s.%d" % (call.name, kind, index), gradient, True)[0]
        record = {}
        if recorder.inputs:
            record["input"] = call.inputs
        if recorder.outputs:
            record["output"] = call.outputs
        recorder.put(call.name, record, call.stack, call.parent)
        if self._overflow:
            recorder.overflowed(call.name)

    def clear(self):
        """Nothing that comes now belongs to what is recorded."""
        self._waiting.clear()
        for handle in self._handles:
            handle.remove()
        self._handles = []
