"""Level debug: save() writes single values, and the gradients of their tensors when they come."""

import contextlib

_DEPTH = 400
_ALLOWED = "it must be a tensor, a number, a string, or a list, tuple or dict (with strings as keys) of these"


def check(variable, name, backward, tensor):
    """Returns what is wrong with the arguments of save(), None: nothing is. tensor: the framework's type."""
    if not isinstance(name, str) or not name:
        return "name is %s; it must be a string that is not empty" % _shown(name)
    if not isinstance(backward, bool):
        return "save_backward is %s; it must be True or False" % _shown(backward)
    return _check_value(variable, "variable", 0, (tensor, int, float, str))


def _check_value(value, place, depth, plain):
    if depth > _DEPTH:
        return "variable is nested deeper than %d levels; at most so many are allowed" % _DEPTH
    if isinstance(value, plain):
        return None
    if isinstance(value, (list, tuple)):
        members = enumerate(value)
    elif isinstance(value, dict):
        wrong = [k for k in value if not isinstance(k, str)]
        if wrong:
            return "%s has %s as a key; %s" % (place, _shown(wrong[0]), _ALLOWED)
        members = value.items()
    else:
        return "%s is %s; %s" % (place, _shown(value), _ALLOWED)
    return next((why for k, v in members for why in [_check_value(v, "%s[%.50r]" % (place, k) if depth < 10 else place, depth + 1, plain)] if why), None)


def _shown(value):
    """Other objects' texts are theirs to make: that may take long, fail, or compute with tensors."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return "%.200r" % (value,)
    return "an object of %s.%s" % (type(value).__module__, type(value).__qualname__)


class Points:
    """The values saved in one step. probe: write(record, value, name, place=0), snapshot(value, name) and reserve(), see _core.pyi.

    hook(tensor, function): have function called with the tensor's gradient; returns a handle, None for a tensor that gets none.
    """

    def __init__(self, probe, tensor, hook=lambda t, f: t.register_hook(f) if t.requires_grad else None, unseen=contextlib.nullcontext):
        self._probe, self._tensor, self._hook, self._unseen = probe, tensor, hook, unseen
        self._handles = []
        self._counts = {}
        self._gradients = []  # (record, its place, a structure like the variable's, with slots for gradients)

    def save(self, variable, name, backward):
        """The arguments are such that check() finds nothing."""
        name = name.encode("utf-8", "backslashreplace").decode()  # a lone surrogate is no text
        number = self._counts.get(name, 0)
        self._counts[name] = number + 1
        record = "%s.%d.debug" % (name, number)
        self._probe.write(record, variable, record)
        if backward:
            record = "%s_grad.%d.debug" % (name, number)
            with self._unseen():  # the program's own modes do not see it
                self._gradients.append((record, self._probe.reserve(), self._watch(variable, record)))

    def _watch(self, variable, path):
        if isinstance(variable, self._tensor):
            slot = _Slot()
            handle = self._hook(variable, lambda grad: self._take(slot, grad, path))
            if handle is not None:
                self._handles.append(handle)
            return slot
        if isinstance(variable, (list, tuple)):
            return [self._watch(v, "%s.%d" % (path, i)) for i, v in enumerate(variable)]
        if isinstance(variable, dict):
            return {k: self._watch(v, "%s.%s" % (path, k)) for k, v in variable.items()}
        return _Slot()

    def _take(self, slot, grad, path):
        if slot.open:
            slot.value = self._probe.snapshot(grad, path)

    def step(self):
        """Write the gradients' records; later ones are not this step's."""
        for record, place, tree in self._gradients:
            self._probe.write(record, _close(tree), record, place)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._gradients.clear()
        self._counts.clear()


class _Slot:
    """Where a gradient is put; closed at the end of its step."""

    def __init__(self):
        self.value = None
        self.open = True


def _close(tree):
    if isinstance(tree, _Slot):
        tree.open = False
        return tree.value
    if isinstance(tree, list):
        return [_close(v) for v in tree]
    return {k: _close(v) for k, v in tree.items()}
