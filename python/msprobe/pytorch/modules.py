"""Levels L0 and mix: hooks on the modules of a model, there between start() and stop() only.

What the hooks do is in the extension: module_begin() reads the inputs, module_end() the outputs and parameters, and gradients come from hooks on
the autograd nodes, so that no node of ours is in the graph and no gradient is summed in another order.
"""

import sys
import threading

import torch

TORCH2 = tuple(int(x) for x in torch.__version__.split(".")[:2]) >= (2, 0)


def _is_compiling():
    return False


if hasattr(torch, "compiler") and hasattr(torch.compiler, "is_compiling"):
    _is_compiling = torch.compiler.is_compiling


def _depth():
    """How many frames there are below the caller's caller: the same in both hooks of one call."""
    frame, n = sys._getframe(2), 0
    while frame is not None:
        frame, n = frame.f_back, n + 1
    return n


def _nothing(*_args, **_kwargs):
    """What a hook of ours becomes in a copy of the model: pickled and deep-copied models carry none."""


class _Hook:
    """A hook that copies of its module do not inherit, and that a compiler sees doing nothing."""

    def __init__(self, call):
        self.call = call

    def __call__(self, *args):
        if _is_compiling():
            return None
        return self.call(*args)

    def __reduce__(self):
        return _nothing_reference, ()

    def __deepcopy__(self, memo):
        return _nothing


def _nothing_reference():
    return _nothing


def is_compiled(module):
    """Whether torch.compile has been asked to compile it: then neither it nor what is inside is touched."""
    return type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None


def is_left_out(module):
    return isinstance(module, torch.jit.ScriptModule) or type(module).__name__ == "FullyShardedDataParallel"


def modules_of(model):
    """(path, module) of everything below model, each module once, but nothing at or below a compiled one."""
    seen = set()

    def walk(module, path):
        if module is None or id(module) in seen or is_compiled(module):
            return
        seen.add(id(module))
        if path and not is_left_out(module):
            yield path, module
        for name, child in module._modules.items():
            yield from walk(child, "%s.%s" % (path, name) if path else name)

    return walk(model, "")


class ModuleHooks:
    """The hooks on one model, or on a list of models."""

    def __init__(self, probe):
        self._probe = probe
        self._handles = {}  # id of the module -> handles
        self._calls = threading.local()  # .open: id of the module -> the calls that are open, innermost last
        self._counts = {}
        self._gradients = {}  # parameter -> [(its module's name, its own name)]: tied weights have several
        self._expected = {}  # module's name -> how many of its parameters get gradients
        self._watched = {}  # parameter -> [node, handle, ...] of the hooks that await its gradient
        self._shards = {}  # parameter of FSDP2 -> handle
        self._waiting = {}  # module's name -> {parameter's name: snapshot}
        self._written = {}
        self.only_overflows = False  # task overflow_check
        self.compiled = []  # names of modules that were left alone because torch.compile has them

    # ---- in and out --------------------------------------------------------------------------------------------------------

    def attach(self, models, parameters_grad):
        """Hook every module below the models; what is hooked already stays."""
        for prefix, model in models:
            found = list(modules_of(model))
            if not found and not is_compiled(model) and not any(True for _ in model.children()):
                found = [(type(model).__name__, model)]  # the model is one single module: nothing else would stand for it
            for path, module in found:
                self._hook(module, "Module.%s%s.%s" % (prefix, path, type(module).__name__), parameters_grad)
            self.compiled += [prefix + path for path, m in model.named_modules() if is_compiled(m)]
        self._probe.watch(self._watched if parameters_grad else None)

    def attach_one(self, module, name):
        """Hook one module alone, unless it is hooked already."""
        self._hook(module, "Module.%s.%s" % (name, type(module).__name__), False)

    def detach_one(self, module):
        for handle in self._handles.pop(id(module), ()):
            handle.remove()

    def detach(self):
        self._end_raised(0)
        for handles in self._handles.values():
            for handle in handles:
                handle.remove()
        self._handles.clear()
        self._calls = threading.local()

    def is_hooked(self, module):
        return id(module) in self._handles

    def called(self):
        """Names of the modules that were called in this step."""
        return ["%s.forward.0" % name for name in self._counts]

    def step(self):
        self.flush_gradients()
        for hooked in self._watched.values():
            for handle in hooked[1::2]:
                handle.remove()
        self._watched.clear()
        self._leave_shards()
        self._gradients.clear()
        self._expected.clear()
        self._probe.watch(None)
        self._counts.clear()
        self._written.clear()

    def _hook(self, module, name, parameters_grad):
        if id(module) in self._handles:
            return
        before = _Hook(lambda m, args, kwargs=None: self._before(m, name, args, kwargs or {}))
        after = _Hook(lambda m, args, *rest: self._after(m, name, rest[-1]))
        if TORCH2:
            # behind the program's own hooks, which may change the inputs, and before those that may change the output
            self._handles[id(module)] = (module.register_forward_pre_hook(before, with_kwargs=True),
                                         module.register_forward_hook(after, with_kwargs=True, prepend=True, always_call=True))
        else:
            self._handles[id(module)] = module.register_forward_pre_hook(before), module.register_forward_hook(after)
        if parameters_grad:
            self._watch_parameters(module, name)

    def _watch_shard(self, parameter):
        """A parameter that FSDP2 keeps in shards is in no graph: torch calls this hook when its shard of the gradient has been reduced. One of tensor
        parallelism is in the graph, and is known by its node."""
        def take(shard):
            if not self._watched.get(shard):
                self.on_parameter(shard)

        self._shards[parameter] = parameter.register_post_accumulate_grad_hook(_Hook(take))

    def _leave_shards(self):
        for parameter, handle in self._shards.items():
            handle.remove()
            if not parameter._post_accumulate_grad_hooks:
                parameter._post_accumulate_grad_hooks = None  # as it was before the first hook
        self._shards.clear()

    def _watch_parameters(self, module, name):
        for own, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and (name, own) not in self._gradients.setdefault(parameter, []):
                self._gradients[parameter].append((name, own))
                self._expected[name] = self._expected.get(name, 0) + 1
                self._watched.setdefault(parameter, [])
                if type(parameter).__name__ == "DTensor" and parameter not in self._shards:
                    self._watch_shard(parameter)

    # ---- forward -----------------------------------------------------------------------------------------------------------------

    def _open(self):
        if not hasattr(self._calls, "open"):
            self._calls.open = {}
        return self._calls.open

    def _deeper(self):
        """(depth in the call stack, module, name) of the open modules, for a torch that does not tell about those that raise."""
        if not hasattr(self._calls, "deeper"):
            self._calls.deeper = []
        return self._calls.deeper

    def _end_raised(self, depth):
        """Before 2.0 torch calls no hook when a module raises; one that stands no higher in the call stack than what runs now has ended."""
        opened = self._deeper()
        while opened and opened[-1][0] >= depth:
            _, module, name = opened.pop()
            self._end(module, name, None, True)

    def _before(self, module, name, args, kwargs):
        if not TORCH2:
            self._end_raised(_depth())
            self._deeper().append((_depth(), module, name))
        number = self._counts.get(name, 0)
        call = self._probe.module_begin("%s.forward.%d" % (name, number), args, kwargs)
        if call is None:
            return
        self._counts[name] = number + 1
        self._open().setdefault(id(module), []).append((call, number))

    def _after(self, module, name, output):
        if not TORCH2:
            self._end_raised(_depth() + 1)
            self._deeper().pop()
        self._end(module, name, output, output is None and sys.exc_info()[0] is not None)

    def _end(self, module, name, output, raised):
        calls = self._open().get(id(module))
        if not calls:
            return
        call, number = calls.pop()
        parameters = {n: p for n, p in module._parameters.items() if p is not None}
        self._probe.module_end(call, output, parameters, "%s.backward.%d" % (name, number), raised)

    # ---- gradients of parameters ----------------------------------------------------------------------------------------------------

    def on_parameter(self, parameter):
        """The gradient of a parameter has been accumulated. A module's record is written when all of its parameters have theirs."""
        gradient = getattr(parameter, "main_grad", None)
        gradient = parameter.grad if gradient is None else gradient
        if gradient is None:
            return
        overflowed = None
        for name, own in self._gradients.get(parameter, ()):
            if not self._probe.selects(name + ".parameters_grad"):
                continue
            part = self._waiting.setdefault(name, {})
            if own in part:
                overflowed = self._write(name) or overflowed
                part = self._waiting.setdefault(name, {})
            path = "%s.%s" % (self._record(name), own)
            snapshot = self._probe.snapshot(gradient, path)
            if snapshot.overflowed:
                self._probe.save(gradient, path)
            part[own] = [snapshot]
            if len(part) == self._expected[name]:
                overflowed = self._write(name) or overflowed
        return overflowed

    def _record(self, name):
        """The first of a step has no number; where gradients accumulate, the later ones are numbered from 1."""
        number = self._written.get(name, 0)
        return "%s.parameters_grad%s" % (name, ".%d" % number if number else "")

    def _write(self, name):
        """Returns the record's name when it holds inf or NaN and task overflow_check looks for that."""
        record, part = self._record(name), self._waiting.pop(name)
        overflowed = any(snapshot.overflowed for snapshot, in part.values())
        if self.only_overflows and not overflowed:
            return None
        self._written[name] = self._written.get(name, 0) + 1
        self._probe.write(record, part, record)
        return record if overflowed else None

    def flush_gradients(self):
        for name in list(self._waiting):
            self._write(name)
