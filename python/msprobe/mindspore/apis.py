"""Which functions are recorded: support_wrap_ops.yaml, looked up in the installed mindspore.

A function is replaced where it is found, for as long as recording is on, and put back by uninstall(): an attribute that stood there is
written back, one that was inherited (methods that Tensor has from C++) is deleted.
"""

import functools
import importlib
import os
import types
import typing

from mindspore import Tensor, mint, ops

try:
    from mindspore.graph.api import _JitExecutor
except ImportError:
    from mindspore.common.api import _JitExecutor

EVERY = range(1 << 16)  # of all arguments, by index


class Api(typing.NamedTuple):
    """What is known of a function that is recorded."""

    name: str  # without number
    written: typing.Container = ()  # the arguments that it writes to, by index
    is_collective: bool = False


LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support_wrap_ops.yaml")
_MISSING = object()


def _modules(*names):
    """Those that this mindspore has."""
    found = []
    for name in names:
        try:
            found.append(importlib.import_module(name))
        except ImportError:
            pass
    return tuple(dict.fromkeys(found))


def _places():
    """category -> (prefix, objects whose attributes are replaced)"""
    return {"ops": ("Functional", (ops, ops.functional)), "tensor": ("Tensor", (Tensor,)), "mint.ops": ("Mint", (mint,)),
            "mint.nn.functional": ("MintFunctional", _modules("mindspore.mint.nn.functional")),
            "communication.comm_func": ("Distributed", _modules("mindspore.communication.comm_func", "mindspore.ops.communication")),
            "mint.distributed": ("MintDistributed", _modules("mindspore.mint.distributed"))}


def read_list(path=None):
    """category -> names. The file is as simple as what tools/mindspore-apis writes."""
    found, names = {}, None
    path = path or LIST
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            line = line.split("#")[0].rstrip()
            if not line:
                continue
            if line.endswith(":") and not line.startswith((" ", "-")):
                names = found.setdefault(line[:-1], [])
            elif line.lstrip().startswith("- ") and names is not None:
                names.append(line.lstrip()[2:].strip())
            else:
                raise ValueError('%s, line %d: neither "category:" nor "  - name": %s' % (path, number, line))
    return found


def describe(prefix, name):
    is_collective = prefix in ("Distributed", "MintDistributed")
    written = EVERY if prefix == "MintDistributed" else (0,) if _is_in_place(name) else ()
    return Api("%s.%s" % (prefix, name), written, is_collective)


def _is_in_place(name):
    """Whether it writes to its first argument."""
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in ("__invert__",))
    return name.endswith("_") or name.startswith(("assign", "scatter_update"))


class Registry:
    def __init__(self, call):
        """call(original, api, args, kwargs) is what a replaced function does."""
        self._call = call
        self._found = {}  # owner -> {attribute: replacement}
        self._before = []
        self.installed = False

    def register(self):
        places = _places()
        for category, names in read_list().items():
            prefix, owners = places.get(category, (None, ()))
            for owner in owners:
                for name in dict.fromkeys(names):
                    original = getattr(owner, name, None)
                    if callable(original) and not isinstance(original, type):
                        self._found.setdefault(owner, {})[name] = self._replacement(original, describe(prefix, name))

    def _replacement(self, original, api):
        call = self._call

        def replaced(*args, **kwargs):
            return call(original, api, args, kwargs)

        try:
            functools.update_wrapper(replaced, original)
        except (AttributeError, TypeError):
            replaced.__name__ = api.name.rpartition(".")[2]
        return replaced

    def install(self):
        if self.installed:
            return
        self.installed = True
        for owner, replacements in self._found.items():
            names = vars(owner)
            self._before.append((owner, {name: names.get(name, _MISSING) for name in replacements}))
            if isinstance(owner, types.ModuleType):
                names.update(replacements)  # thousands, at each start(): at once
            else:
                for name, replacement in replacements.items():
                    setattr(owner, name, replacement)

    def uninstall(self):
        if not self.installed:
            return
        for owner, befores in reversed(self._before):
            stood = {name: before for name, before in befores.items() if before is not _MISSING}
            if isinstance(owner, types.ModuleType):
                vars(owner).update(stood)
            else:
                for name, before in stood.items():
                    setattr(owner, name, before)
            for name in befores.keys() - stood.keys():
                delattr(owner, name)
        self._before = []
        self.installed = False


class Compiled:
    """What @jit compiles reads the source of what it calls: it must find the functions as they were."""

    def __init__(self, registry, call=None):
        """call(run, executor, args, kwargs), when given, is what a compiled function does: run(*args, **kwargs) is the function."""
        self._registry, self._call, self._original = registry, call, None

    def install(self):
        if self._original is not None:
            return
        self._original = original = _JitExecutor.__call__
        compiled = self

        def call(executor, *args, **kwargs):
            def run(*a, **k):
                return compiled._run(original, executor, a, k)

            return run(*args, **kwargs) if compiled._call is None else compiled._call(run, executor, args, kwargs)

        _JitExecutor.__call__ = call

    def uninstall(self):
        if self._original is not None:
            _JitExecutor.__call__, self._original = self._original, None

    def _run(self, original, executor, args, kwargs):
        was = self._registry.installed
        if was:
            self._registry.uninstall()
        try:
            return original(executor, *args, **kwargs)
        finally:
            if was and self._original is not None:  # recording may have ended meanwhile
                self._registry.install()
