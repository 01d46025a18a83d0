"""Cells: their calls, their parameters' gradients, the Primitives they hold, and what start() is told of models."""

import contextlib
import copy
import inspect
import sys
import threading

from mindspore import nn, ops

from msprobe.core.config import wrong
from msprobe.mindspore.apis import EVERY, Api
from msprobe.mindspore.calls import Call

CELL = Api("", ())
# where it is offered, a call that an exception ends is told, too
HOOK = {"with_kwargs": True}
if "always_call" in inspect.signature(nn.Cell.register_forward_hook).parameters:
    HOOK["always_call"] = True


def is_cell(model):
    return isinstance(model, nn.Cell)


def check_models(model):
    """The models that start() was given, as a list."""
    models = list(model) if isinstance(model, (list, tuple)) else [] if model is None else [model]
    for one in models:
        if not is_cell(one):
            raise wrong("model is %s; it must be a mindspore.nn.Cell or a list of them"
                        % (type(one).__name__ if one is model else "a list with %s in it" % type(one).__name__))
    return models


def check_range(token_range, models):
    good = isinstance(token_range, (list, tuple)) and len(token_range) == 2
    good = good and all(isinstance(x, int) and not isinstance(x, bool) for x in token_range) and 0 <= token_range[0] <= token_range[1]
    if not good:
        raise wrong("token_range is %r; it must be a list of two whole numbers, the first token and the last, at least 0" % (token_range,))
    if not models:
        raise wrong("token_range needs a model: start(model, token_range=...)")


class Tokens:
    """Recording is on from the beginning of one forward of the model to that of another."""

    def __init__(self, recorder, model, token_range):
        self._recorder, (self._first, self._last), self._token = recorder, token_range, -1
        self._handle = model.register_forward_pre_hook(self._before)

    def _before(self, *_):
        self._token += 1
        if self._token == self._first:
            self._recorder.resume()
        elif self._token == self._last + 1 and self._recorder.active:
            self._recorder.pause()

    def end(self):
        self._handle.remove()


class _Known:
    """A cell of the model: its name and its hooks."""

    __slots__ = ("name", "cell", "handles")

    def __init__(self, name, cell):
        self.name, self.cell = name, cell
        self.handles = []

    def detach(self):
        for handle in self.handles:
            handle.remove()
        self.handles = []


class _Running(threading.local):
    """The calls of a thread that run now, outermost first: (_Known, Call, the exception that was handled when it began)."""

    def __init__(self):
        self.calls = []


class _ParameterGradients:
    """Those of one cell's own parameters, of one backward: parameter -> tokens or None."""

    def __init__(self, name, keys):
        self.name, self.tokens = name, dict.fromkeys(keys)


class Cells:
    """Hooks on the cells below the models given to start(); the models themselves are not recorded."""

    def __init__(self, recorder):
        self._recorder = recorder
        self._cells = []
        self._primitives = []  # (object, its class)
        self._classes = {}
        self._gradients = {}  # name of a cell's record -> _ParameterGradients that are not all there yet
        self._running = _Running()

    def attach(self, models, has_numbers, cells, primitives):
        """has_numbers: names begin with the place of the model in the list that start() was given."""
        for index, model in enumerate(models):
            prefix = "%d." % index if has_numbers else ""
            for path, cell in model.cells_and_names():
                if cells and path:
                    self._cells.append(_Known("Cell.%s%s.%s" % (prefix, path, type(cell).__name__), cell))
                    self._attach_cell(self._cells[-1])
                if primitives:
                    self._attach_primitives(cell)

    def detach(self):
        for known in self._cells:
            known.detach()
        for primitive, original in self._primitives:
            primitive.__class__ = original
        self._cells, self._primitives = [], []
        for name in list(self._gradients):
            self._put_gradients(name)
        self._running = _Running()

    def end(self):
        """Calls that an exception has ended, of which nobody was told: what went in is recorded."""
        while self._running.calls:
            self._running.calls.pop()[1].raised()

    def innermost(self):
        """The name of the call that runs, "" for none."""
        return self._running.calls[-1][1].name if self._running.calls else ""

    @contextlib.contextmanager
    def away(self, owner):
        """While a function of owner is compiled (None: any): MindSpore would compile our hooks, too. Cells that run now are outside of it."""
        running = {id(known) for known, _, _ in self._running.calls}
        inside = {id(cell) for _, cell in owner.cells_and_names()} if is_cell(owner) else None
        away = [known for known in self._cells if known.handles and id(known) not in running and (inside is None or id(known.cell) in inside)]
        for known in away:
            known.detach()
        try:
            yield
        finally:
            if self._recorder.active:  # recording may have ended meanwhile
                for known in away:
                    self._attach_cell(known)

    # ---- forward -------------------------------------------------------------------------------------------------------------------

    def _attach_cell(self, known):
        cell, handles = known.cell, known.handles
        handles.append(cell.register_forward_pre_hook(lambda called, args, kwargs=None: self._before(known, called, args, kwargs or {}), with_kwargs=True))
        has_bprop = cell.has_bprop
        if has_bprop:
            cell.has_bprop = False  # MindSpore takes no such hook for cells with a bprop(), and calls it if there is one
        try:
            handles.append(cell.register_forward_hook(lambda called, args, kwargs, output=None: self._after(known, called, output), **HOOK))
        finally:
            if has_bprop:
                cell.has_bprop = True
        if self._recorder.backward and not self._recorder.structure:
            self._attach_parameters(known)

    def _before(self, known, called, args, kwargs):
        recorder = self._recorder
        if not recorder.is_recording() or called is not known.cell:  # a copy of the model that was made while it was recorded has the hooks, too
            return None
        call = Call(recorder, CELL, "%s.forward.%d" % (known.name, recorder.count(known.name)), args, kwargs, known.cell)
        call.before()
        self._running.calls.append((known, call, sys.exc_info()[1]))
        return call.args, call.kwargs

    def _after(self, known, called, output):
        if not self._recorder.is_recording() or called is not known.cell:
            return
        while self._running.calls:
            other, call, error = self._running.calls.pop()
            if other is not known:  # an exception has ended it, and nobody was told
                call.raised()
            elif sys.exc_info()[1] is not error:
                call.raised()
                return
            else:
                call.after(output, {k: p for k, p in known.cell._params.items() if p is not None})
                return

    # ---- parameters ----------------------------------------------------------------------------------------------------------------

    def _attach_parameters(self, known):
        """The gradients of a cell's own parameters."""
        own = {key: p for key, p in known.cell._params.items() if p is not None and p.requires_grad}
        name = known.name + ".parameters_grad"
        for key, parameter in own.items():
            known.handles.append(parameter.register_hook(lambda gradient, key=key: self._parameter_gradient(name, key, gradient, own)))

    def _parameter_gradient(self, name, key, gradient, keys):
        recorder = self._recorder
        if not recorder.selects(name) or recorder.overflow:
            return
        got = self._gradients.get(name)
        if got is not None and got.tokens[key] is not None:  # of another backward
            self._put_gradients(name)
            got = None
        if got is None:
            number = recorder.count(name)
            got = self._gradients[name] = _ParameterGradients("%s.%d" % (name, number) if number else name, keys)
        try:
            got.tokens[key] = recorder.measure("%s.%s" % (got.name, key), gradient, recorder.saves(name))[0]
        except Exception as e:
            recorder.failed(name, e)
            return
        if None not in got.tokens.values():
            self._put_gradients(name)

    def _put_gradients(self, name):
        got = self._gradients.pop(name)
        self._recorder.put(got.name, {key: [tokens] for key, tokens in got.tokens.items() if tokens is not None}, 0, None)

    # ---- Primitives ----------------------------------------------------------------------------------------------------------------

    def _attach_primitives(self, cell):
        """The object keeps its identity and gets a class that records: a subclass of its own, put back by detach()."""
        for attribute, primitive in list(getattr(cell, "_primitives", {}).items()):
            if not isinstance(primitive, ops.Primitive) or hasattr(type(primitive), "_msprobe_name") or attribute.startswith("_cell_backward"):
                continue
            original = type(primitive)
            key = (original, attribute)
            if key not in self._classes:
                self._classes[key] = self._make_class(original, "Primitive.%s.%s" % (attribute, original.__name__))
            try:
                primitive.__class__ = self._classes[key]
            except TypeError:
                continue
            self._primitives.append((primitive, original))

    def _make_class(self, original, name):
        recorder, run = self._recorder, original.__call__
        api = Api(name, EVERY if _writes(original) else ())

        def call(self, *args, **kwargs):
            return recorder.call(lambda *a, **k: run(self, *a, **k), api, args, kwargs)

        def deepcopy(self, memo):
            """The copy is a plain one."""
            self.__class__ = original
            try:
                return copy.deepcopy(self, memo)
            finally:
                self.__class__ = recording

        recording = type(original.__name__, (original,), {"__call__": call, "__deepcopy__": deepcopy, "_msprobe_name": name,
                                                          "__module__": original.__module__})
        return recording


def _writes(primitive):
    """Whether a Primitive says that it writes to an argument."""
    return any(getattr(s, "rw", None) is not None and "WRITE" in str(s.rw).upper() for s in getattr(primitive, "__mindspore_signature__", ()) or ()
               if not isinstance(s, type))
