"""Cells, their parameters' gradients, and the Primitives they hold."""

from mindspore import nn, ops


class Cells:
    """Hooks on the cells below the models given to start(); the models themselves are not recorded."""

    def __init__(self, recorder):
        self._recorder = recorder
        self._handles = []
        self._primitives = []  # (object, its class)
        self._classes = {}
        self._gradients = {}  # name -> {parameter: tokens or None}
        self.open = []  # names of the cells that run now, outermost first

    def attach(self, models, cells, primitives, backward):
        for prefix, model in models:
            for path, cell in model.cells_and_names():
                if cells and path:
                    self._attach_cell("Cell.%s%s.%s" % (prefix, path, type(cell).__name__), cell, backward)
                if primitives:
                    self._attach_primitives(cell)

    def detach(self):
        for handle in self._handles:
            handle.remove()
        for primitive, original in self._primitives:
            primitive.__class__ = original
        self._handles, self._primitives = [], []
        self.flush_gradients()
        self.open = []

    # ---- cells ---------------------------------------------------------------------------------------------------------------------

    def _attach_cell(self, name, cell, backward):
        recorder = self._recorder
        before, after = recorder.cell_before(name), recorder.cell_after(name, cell)
        self._handles.append(cell.register_forward_pre_hook(before, with_kwargs=True))
        self._handles.append(cell.register_forward_hook(after, with_kwargs=True))
        if backward:
            enters, leaves = recorder.cell_backward(name)
            self._handles.append(cell.register_backward_pre_hook(enters))
            self._handles.append(cell.register_backward_hook(leaves))
            self._attach_parameters(name, cell)

    def _attach_parameters(self, name, cell):
        """The gradients of a cell's own parameters."""
        own = [(p.name.rpartition(".")[2] if key is None else key, p) for key, p in cell._params.items() if p is not None and p.requires_grad]
        if not own:
            return
        name += ".parameters_grad"
        for key, parameter in own:
            self._handles.append(parameter.register_hook(self._arrival(name, key, [k for k, _ in own])))

    def _arrival(self, name, key, keys):
        def arrived(gradient):
            part = self._recorder.measure("%s.%s" % (name, key), gradient, name)
            got = self._gradients.setdefault(name, dict.fromkeys(keys))
            got[key] = part
            if all(v is not None for v in got.values()):
                self._put_gradients(name)

        return arrived

    def _put_gradients(self, name):
        got = self._gradients.pop(name)
        self._recorder.put(name, [(k, [v]) for k, v in got.items() if v is not None], 0, None)

    def flush_gradients(self):
        for name in list(self._gradients):
            self._put_gradients(name)

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
        in_place = _writes(original)

        def call(self, *args, **kwargs):
            return recorder.call(lambda *a, **k: run(self, *a, **k), name, args, kwargs, in_place)

        return type(original.__name__, (original,), {"__call__": call, "_msprobe_name": name, "__module__": original.__module__})


def _writes(primitive):
    """Whether a Primitive says that it writes to an argument."""
    return any(getattr(s, "rw", None) is not None and "WRITE" in str(s.rw).upper() for s in getattr(primitive, "__mindspore_signature__", ()) or ()
               if not isinstance(s, type))


def is_cell(model):
    return isinstance(model, nn.Cell)
