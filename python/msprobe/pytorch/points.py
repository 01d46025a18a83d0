"""Level debug: save() writes single values, and the gradients of their tensors when they come."""

import torch

from msprobe.pytorch.log import log

_DEPTH = 400


def check(variable, depth=0):
    """What save() takes: tensors, numbers, text, and lists, tuples and dicts of them. Returns the reason when it is something else."""
    if depth > _DEPTH:
        return "nested deeper than %d levels" % _DEPTH
    if isinstance(variable, (torch.Tensor, int, float, str)):
        return None
    if isinstance(variable, (list, tuple)):
        return next((why for v in variable for why in [check(v, depth + 1)] if why), None)
    if isinstance(variable, dict):
        if not all(isinstance(k, str) for k in variable):
            return "keys of a dict must be strings"
        return next((why for v in variable.values() for why in [check(v, depth + 1)] if why), None)
    return "%s is not a tensor, number, string, list, tuple or dict" % type(variable).__name__


class Points:
    """The values saved in one step."""

    def __init__(self, probe):
        self._probe = probe
        self._counts = {}
        self._gradients = []  # (record, its place, a structure like the variable's, with slots for gradients)

    def save(self, variable, name, backward):
        why = check(variable)
        if why or not isinstance(name, str) or not isinstance(backward, bool):
            log.warning("save(%r): nothing is saved: %s", name, why or "name must be a string and save_backward True or False")
            return
        number = self._counts.get(name, 0)
        self._counts[name] = number + 1
        record = "%s.%d.debug" % (name, number)
        self._probe.write(record, variable, record)
        if backward:
            record = "%s_grad.%d.debug" % (name, number)
            with torch._C.DisableTorchFunction():  # the program's own modes do not see it
                self._gradients.append((record, self._probe.reserve(), self._watch(variable, record)))

    def _watch(self, variable, path):
        if isinstance(variable, torch.Tensor):
            slot = _Slot()
            if variable.requires_grad:
                variable.register_hook(lambda grad: self._take(slot, grad, path))
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
