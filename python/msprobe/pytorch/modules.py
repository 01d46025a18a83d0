"""Levels L0 and mix: which modules of a model are recorded, under which names.

Their calls are seen and recorded by the extension (python/ext/model/module_call.c). Hooks on modules, there between start() and stop() only, do the same
for those that have hooks of the program's own, and for all of them where the other way does not hold. Gradients come from hooks on the
autograd nodes, so that no node of ours is in the graph and no gradient is summed in another order.
"""

import functools
import hashlib
import inspect
import sys
import threading
from collections import OrderedDict

import torch
from torch.nn.parameter import is_lazy

from msprobe.core.log import log

# hooks see keywords, can stand before the program's own, and are called when a module has raised; since 2.0
HOOKS_ARE_ALWAYS_CALLED = "always_call" in inspect.signature(torch.nn.Module.register_forward_hook).parameters
TELLS_OF_GRADIENTS = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")  # since 2.1
LONGEST_NAME = 1000  # bytes: PROBE_MODULE_NAME of python/ext/tensor/tensor.h


def is_compiling():
    return False


if hasattr(torch, "compiler") and hasattr(torch.compiler, "is_compiling"):
    is_compiling = torch.compiler.is_compiling


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
        if is_compiling():
            return None
        return self.call(*args)

    def __reduce__(self):
        return _nothing_reference, ()

    def __deepcopy__(self, memo):
        return _nothing


def _nothing_reference():
    return _nothing


def _move(hooks, number, last):
    """The hook of this number to the end of the module's hooks, or to their beginning."""
    if number in hooks and next(reversed(hooks) if last else iter(hooks)) != number and isinstance(hooks, OrderedDict):
        hooks.move_to_end(number, last)


def is_compiled(module):
    """Whether torch.compile has been asked to compile it."""
    return type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None


def body_of(module):
    """The module that torch.compile was given, or the module itself where it was compiled in place."""
    while type(module).__name__ == "OptimizedModule":
        module = module._orig_mod
    return module


def is_left_out(module):
    return isinstance(module, torch.jit.ScriptModule) or type(module).__name__ == "FullyShardedDataParallel"


@functools.lru_cache(None)
def usable_name(name):
    """The name as a dump can hold it. One that is too long keeps its beginning and its last part, the class, around a checksum of the whole, so that
    no other module has it; the log says so, once."""
    whole = name.encode("utf-8", "backslashreplace")
    if len(whole) <= LONGEST_NAME:
        return whole.decode()
    last = "." + name.rpartition(".")[2]
    if len(last) > 200:
        last = ""
    short = "%s~%s%s" % (whole[:LONGEST_NAME - 400].decode("utf-8", "ignore"), hashlib.sha256(whole).hexdigest()[:16], last)
    log.warning("the name of a module has %d bytes, and %d are allowed; %s is recorded as %s", len(whole), LONGEST_NAME, name, short)
    return short


def modules_of(model):
    """(path, module) of everything below model, each module once, with the paths that they have where nothing is compiled."""
    seen = set()

    def walk(module, path):
        if module is None or id(module) in seen:
            return
        seen.add(id(module))
        if body_of(module) is not module:
            yield from walk(body_of(module), path)
            return
        if path and not is_left_out(module):
            yield path, module
        for name, child in module._modules.items():
            yield from walk(child, "%s.%s" % (path, name) if path else name)

    return walk(model, "")


class ModuleHooks:
    """The modules of one model, or of a list of models."""

    def __init__(self, probe):
        self._probe = probe
        self.in_place = False  # calls are seen without hooks
        self.eager = False  # compiled modules run as if they were not
        self._named = False  # all modules have their names: no interrupt came in between
        self._handles = {}  # id of the module -> handles
        self._hooked_modules = {}  # id of the module -> the module
        self._hooked = False  # there have been some since the last detach()
        self._calls = threading.local()  # .open: id of the module -> the calls that are open, innermost last
        self._unmet = {}  # parameter that no walk meets -> handle
        self._has_unmet = False  # there are such parameters
        self.compiled = []  # names of modules that torch.compile has
        self._aside = []  # modules without their hooks while compiled code runs

    # ---- in and out --------------------------------------------------------------------------------------------------------

    def attach(self, models, parameters_grad):
        """Record every module below the models. Nothing is to be done when they are the same as the last time."""
        named, self._named = self._named, False
        if not self.in_place or self._has_unmet or self.compiled or not named:
            self._probe.modules_forget()  # hooks are set anew for each step; the extension does not look into compiled modules
        if not self._probe.modules_begin([model for _, model in models], int(parameters_grad)):
            with torch._C.DisableTorchFunction():  # what is asked of parameters is not for the program's own modes
                self._name(models, parameters_grad)
        self._named = True

    def _name(self, models, parameters_grad):
        self.compiled = []
        for prefix, model in models:
            found, body = list(modules_of(model)), body_of(model)
            if not found and not any(True for _ in body.children()):
                found = [(type(body).__name__, body)]  # the model is one single module: nothing else would stand for it
            for path, module in found:
                self._add(module, "Module.%s%s.%s" % (prefix, path, type(module).__name__), parameters_grad)
            if not self.eager and not is_left_out(body) and not self._probe.module_known(body):
                # not recorded for itself, but where it is compiled nothing else would be: so its calls that torch.compile has compiled are
                self._probe.module_add(body, usable_name("Module.%s%s.%s" % (prefix, type(body).__name__, type(body).__name__)), False, True)
            for path, module in model.named_modules():
                if is_compiled(module):
                    self.compiled.append(prefix + path)
                if not self.in_place and body_of(module) is not module:
                    self.hook(module)

    def attach_one(self, module, name):
        """Record one module alone, unless it is recorded already."""
        self._add(module, "Module.%s.%s" % (name, type(module).__name__), False)

    def detach_one(self, module):
        self._probe.module_remove(module)
        self._hooked_modules.pop(id(module), None)
        for handle in self._handles.pop(id(module), ()):
            handle.remove()

    def detach(self):
        if self._hooked:
            self._remove_hooks()
        self._probe.modules_end()

    def _remove_hooks(self):
        self._end_raised(0)
        for handles in self._handles.values():
            for handle in handles:
                handle.remove()
        self._handles.clear()
        self._hooked_modules.clear()
        self._aside.clear()
        self._calls = threading.local()
        self._hooked = False

    # ---- compiled code ---------------------------------------------------------------------------------------------------------

    def make_way(self):
        """Hooks are compiled with their module: ours are not on it while compiled code runs, unless its own call is open."""
        opened = self._open()
        for key, handles in list(self._handles.items()):
            if not opened.get(key):
                self._aside.append(self._hooked_modules[key])
                for handle in handles:
                    handle.remove()
                del self._handles[key], self._hooked_modules[key]

    def come_back(self):
        while self._aside:
            self.hook(self._aside[-1])
            self._aside.pop()

    def is_known(self, module):
        return self._probe.module_known(module)

    def called(self):
        """Names of the modules that were called in this step."""
        return self._probe.modules_called()

    def step(self):
        try:
            self._probe.modules_step()
        finally:
            if self._unmet:
                with torch._C.DisableTorchFunction():
                    self._leave_unmet()

    def _add(self, module, name, parameters_grad):
        if self._probe.module_known(module):
            return
        name = usable_name(name)
        by_hooks = not self.in_place and (self.eager or not is_compiled(module))  # with which they would be compiled
        self._probe.module_add(module, name, by_hooks)
        if by_hooks:
            self.hook(module)
        if parameters_grad:
            self._watch_parameters(module, name)

    def hook(self, module):
        """Set the hooks that record it; those that are there already keep their places."""
        if id(module) in self._handles:
            self._keep_places(module)
            return
        self._hooked = True
        self._hooked_modules[id(module)] = module
        before = _Hook(lambda m, args, kwargs=None: self._before(m, args, kwargs or {}))
        after = _Hook(lambda m, args, *rest: self._after(m, rest[-1]))
        if HOOKS_ARE_ALWAYS_CALLED:
            # behind the program's own hooks, which may change the inputs, and before those that may change the output
            self._handles[id(module)] = (module.register_forward_pre_hook(before, with_kwargs=True),
                                         module.register_forward_hook(after, with_kwargs=True, prepend=True, always_call=True))
        else:
            self._handles[id(module)] = module.register_forward_pre_hook(before), module.register_forward_hook(after)

    def _keep_places(self, module):
        """The program may have set hooks since: ours stand behind those that may change the inputs, and before those that may change the output."""
        before, after = (handle.id for handle in self._handles[id(module)])
        _move(module._forward_pre_hooks, before, True)
        if HOOKS_ARE_ALWAYS_CALLED:
            _move(module._forward_hooks, after, False)

    def _watch_unmet(self, parameter, sharded):
        """For a parameter whose node the walk from a call's outputs may not meet; where it does, the node tells and this hook is not heard. One that
        FSDP2 keeps in shards is in no graph: torch calls the hook when its shard of the gradient has been reduced."""
        self._has_unmet = True
        done = self._probe.parameter_done
        if sharded:
            handle = parameter.register_post_accumulate_grad_hook(_Hook(done))
        else:
            handle = parameter.register_hook(_Hook(functools.partial(done, parameter)))
        self._unmet[parameter] = handle, "_post_accumulate_grad_hooks" if sharded else "_backward_hooks"

    def _leave_unmet(self):
        for parameter, (handle, hooks) in self._unmet.items():
            handle.remove()
            if not getattr(parameter, hooks):
                setattr(parameter, hooks, None)  # as it was before the first hook
        self._unmet.clear()

    def _watch_parameters(self, module, name):
        # the program's own hooks run before the call begins, and may make its weights of its parameters, as weight_norm does
        early = TELLS_OF_GRADIENTS and any(type(h) is not _Hook for h in module._forward_pre_hooks.values())
        for own, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad:
                self._probe.parameter_add(parameter, name, own)
                sharded = type(parameter).__name__ == "DTensor"
                if (sharded or (early and parameter.is_leaf and not is_lazy(parameter))) and parameter not in self._unmet:
                    self._watch_unmet(parameter, sharded)

    # ---- what the hooks do ---------------------------------------------------------------------------------------------------------

    def _open(self):
        if not hasattr(self._calls, "open"):
            self._calls.open = {}
        return self._calls.open

    def _deeper(self):
        """(depth in the call stack, module) of the open modules, for a torch that does not tell about those that raise."""
        if not hasattr(self._calls, "deeper"):
            self._calls.deeper = []
        return self._calls.deeper

    def _end_raised(self, depth):
        """Before 2.0 torch calls no hook when a module raises; one that stands no higher in the call stack than what runs now has ended."""
        opened = self._deeper()
        while opened and opened[-1][0] >= depth:
            self._end(opened.pop()[1], None, True)

    def _before(self, module, args, kwargs):
        if id(module) in self._handles:
            self._keep_places(module)  # from its next call on
        if not HOOKS_ARE_ALWAYS_CALLED:
            self._end_raised(_depth())
            self._deeper().append((_depth(), module))
        call = self._probe.module_begin(module, args, kwargs)
        if call is not None:
            self._open().setdefault(id(module), []).append(call)

    def _after(self, module, output):
        if not HOOKS_ARE_ALWAYS_CALLED:
            self._end_raised(_depth() + 1)
            opened = self._deeper()
            if opened and opened[-1][1] is module:  # else the program has taken out our other hook
                opened.pop()
        self._end(module, output, output is None and sys.exc_info()[0] is not None)

    def _end(self, module, output, raised):
        calls = self._open().get(id(module))
        if calls:
            self._probe.module_end(calls.pop(), output, raised)
