"""Parameters and their gradients as the optimizer gets them: what the replicas of a model must have in common.

DistributedDataParallel, FSDP and others reduce gradients behind everything that a backward pass lets us see. What came of it is looked at where an
optimizer's step begins. Where that is not seen (an optimizer of another library; a program that calls step() of the debugger first) the gradients are those
that there are at stop() or step(): in a step that only accumulates they are not reduced yet, and "applied" says so.

replicas.json stands beside dump.json, whose records and counters stay those of other tools:
    "groups": {"0fd3c1b6": [0, 1]}
    "Module.module.fc.Linear.weight": {"applied": true, "group": "0fd3c1b6", "parameter": {a tensor's record}, "grad": {another, or null}}
group: the ranks that hold this parameter too, where a DistributedDataParallel says so. Parameters that no model is known for are named by their optimizer and
their place in it: "Optimizer.0.SGD.0.3".
"""

import sys
import weakref

import torch

from msprobe.core.signals import give_back
from msprobe.pytorch.describe import Plain, group_id, group_ranks
from msprobe.pytorch.modules import is_compiling, modules_of, usable_name

try:
    from torch.optim.optimizer import register_optimizer_step_pre_hook
except ImportError:  # before 2.0
    register_optimizer_step_pre_hook = None

FILE = "replicas.json"


def _gradient(parameter):
    """Megatron keeps the one that counts beside torch's own."""
    own = getattr(parameter, "main_grad", None)
    return own if isinstance(own, torch.Tensor) else parameter.grad


def _parameters_of(optimizer, number):
    """(name, parameter) of all; of an optimizer that is gone there are none."""
    for i, group in enumerate(getattr(optimizer, "param_groups", ())):
        for k, parameter in enumerate(group["params"]):
            yield "Optimizer.%d.%s.%d.%d" % (number, type(optimizer).__name__, i, k), parameter


class Replicas:
    """One per process. recorder: whose model, folder and steps these are."""

    def __init__(self, probe, recorder, on_error):
        self._probe, self._recorder, self._on_error = probe, recorder, on_error
        self._handle = None
        self._comes = False  # an optimizer's step was seen in a recorded step
        self._optimizers = []  # references to those that were seen
        self._begin()

    def _begin(self):
        self._taken = {}  # name -> members of its record
        self._groups = {}  # id -> ranks
        self._applied = set()  # ids of parameters that an optimizer's step was about to change

    def begin(self):
        """A step is going to be recorded."""
        if self._handle is None and register_optimizer_step_pre_hook is not None:
            self._handle = register_optimizer_step_pre_hook(self._before)

    def close(self):
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _before(self, optimizer, args, kwargs):
        if not is_compiling():
            self._try(self._see, optimizer)

    def stop(self):
        if not self._comes:
            self._try(self._take_all)

    def step(self, folder):
        """Write what there is to the folder of the step that ends."""
        if not self._taken:
            self._try(self._take_all)
        if self._taken:
            self._try(self._write, folder)
        self._begin()

    def _try(self, function, *args):
        try:
            with torch._C.DisableTorchFunction():  # the program's own modes do not see it
                function(*args)
        except Exception as e:
            give_back(e)
            self._on_error("recording what replicas share", FILE, *sys.exc_info()[1:])

    def _see(self, optimizer):
        """An optimizer's step begins."""
        number = next((i for i, known in enumerate(self._optimizers) if known() is optimizer), None)
        if number is None:
            number = len(self._optimizers)
            self._optimizers.append(weakref.ref(optimizer))
        if not self._recorder.is_recording_step():
            return
        names, groups = self._names()
        self._comes = True
        for name, parameter in _parameters_of(optimizer, number):
            if id(parameter) not in self._applied:  # an optimizer inside another one has the same
                self._applied.add(id(parameter))
                self._take(names.get(id(parameter), name), parameter, groups, True)

    def _take_all(self):
        """What there is of the model and of the optimizers that were seen until now."""
        names, groups = self._names()
        seen = set()
        found = [(names.get(id(p)), p) for model in self._models() for p in model.parameters()]
        found += [pair for i, known in enumerate(self._optimizers) for pair in _parameters_of(known(), i)]
        for name, parameter in found:
            if parameter.requires_grad and name and id(parameter) not in seen:
                seen.add(id(parameter))
                self._take(name, parameter, groups, False)

    def _take(self, name, parameter, groups, applied):
        gradient = _gradient(parameter)
        if gradient is None and name in self._taken:
            return
        record = {"applied": Plain(applied)}
        group = groups.get(id(parameter))
        if group:
            record["group"] = Plain(group)
        for what, tensor in (("parameter", parameter), ("grad", gradient)):
            record[what] = Plain(None) if tensor is None else self._probe.snapshot(tensor, "%s.%s" % (name, what), False)
        self._taken[name] = record

    def _models(self):
        model = self._recorder.model
        return [m for m in (model if isinstance(model, (list, tuple)) else [model]) if isinstance(m, torch.nn.Module)]

    def _names(self):
        """(id -> name of a parameter, id -> id of the group of its replicas) of the model's parameters. Built anew each time: a program may change its model."""
        names, groups = {}, {}
        models = self._models()
        for i, model in enumerate(models):
            prefix = "Module.%s" % ("%d." % i if isinstance(self._recorder.model, (list, tuple)) else "")
            for path, module in modules_of(model):
                start = usable_name("%s%s.%s" % (prefix, path, type(module).__name__))
                for own, parameter in module.named_parameters(recurse=False):
                    names.setdefault(id(parameter), "%s.%s" % (start, own))
            for own, parameter in model.named_parameters(recurse=False):
                names.setdefault(id(parameter), "%s%s.%s" % (prefix, type(model).__name__, own))
            for module in model.modules():
                if isinstance(module, torch.nn.parallel.DistributedDataParallel):
                    self._note_group(groups, module)
        return names, groups

    def _note_group(self, groups, module):
        ranks = group_ranks(module.process_group)
        ignored = getattr(module, "parameters_to_ignore", ())
        if len(ranks) < 2:
            return
        key = group_id(ranks)
        self._groups[key] = Plain(list(ranks))
        for own, parameter in module.module.named_parameters():
            if own not in ignored:
                groups[id(parameter)] = key

    def _write(self, folder):
        config = self._recorder.config
        members = {"groups": self._groups} if self._groups else {}
        self._probe.aside(folder, config.task, config.level, "pytorch", FILE, {**members, **self._taken})
