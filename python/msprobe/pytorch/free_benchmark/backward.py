"""fuzz_stage backward: the gradients of one call alone.

While the program's backward pass goes by, the call's incoming gradients are noted. Then the call is made on inputs of its own and differentiated by
torch.autograd.grad(), once as it is and once with everything changed a little: what other users of an input add to its gradient takes no part.
"""

import torch

from msprobe._core import probe
from msprobe.core.signals import give_back
from msprobe.pytorch.describe import unseen
from msprobe.pytorch.free_benchmark.call import autocast_as, autocast_disabled, autocast_state, once, rebuilt, same_states, version_of
from msprobe.pytorch.free_benchmark.results import outputs

_multi = getattr(torch.autograd.graph, "register_multi_grad_hook", None)


class Kept:
    """A call whose gradients are still to come: its inputs as they were, and its random numbers. It holds nothing of the program's graph, which holds it."""

    def __init__(self, call, drew):
        self.name = call.name.rpartition(".")[0] + ".backward"
        self.call, self.drew = call, drew
        self.autocast = autocast_state(call.tensors)
        own = once(lambda t: call.element_source(t).detach())
        self.needing = {id(own(t)) for t, needs in zip(call.tensors, call.needs_gradient) if needs}
        self.program_inputs = {id(t) for t in call.tensors}
        self.sources = [own(t) for t in call.tensors]
        self.versions = [version_of(t) for t in self.sources]
        self.args, self.kwargs = rebuilt(call.args, own), rebuilt(call.kwargs, own)
        call.args = call.kwargs = call.tensors = call.copies = None

    def is_intact(self):
        return all(version_of(t) == version for t, version in zip(self.sources, self.versions))

    def gradients(self, change, gradients):
        """[(index, gradient of an input)] from the gradients of the results."""
        call, inputs = self.call, []

        def own(t):
            other = change(t)
            if id(t) not in self.needing:
                return other
            leaf = other.detach().requires_grad_()
            inputs.append(leaf)
            return leaf.clone() if call.in_place else leaf

        own = once(own)
        with torch.enable_grad(), autocast_disabled(self.sources) if change.autocast_off else autocast_as(self.autocast):
            args, kwargs = rebuilt(self.args, own), rebuilt(self.kwargs, own)
            results = outputs(call.result_of(call.function(*args, **kwargs), args))
        if len(results) != len(gradients):
            raise ValueError("the second run returned %d tensors and the first one %d" % (len(results), len(gradients)))
        roots = [(t, g) for (_, t), g in zip(results, gradients) if g is not None and t.requires_grad]
        incoming = [change(g.detach()).to(device=t.device, dtype=t.dtype) for t, g in roots]
        found = torch.autograd.grad([t for t, _ in roots], inputs, incoming, allow_unused=True) if roots and inputs else []
        many = len(inputs) > 1
        return [(i if many else -1, g) for i, g in enumerate(found) if g is not None]

    def unnoticed(self):
        return _Unnoticed(self)


class _Unnoticed:
    """Around what is done in the program's backward pass."""

    def __init__(self, kept):
        self._random, self._drew = kept.call.random, kept.drew

    def __enter__(self):
        probe.quiet(True)
        self._state = self._random.now()
        self._contexts = (torch._C.DisableTorchFunction(), unseen())
        for context in self._contexts:
            context.__enter__()
        self.begin_run()

    def begin_run(self):
        if self._drew:
            self._random.set(self._random.before)

    def __exit__(self, *what):
        for context in reversed(self._contexts):
            context.__exit__(*what)
        if not same_states(self._random.now(), self._state):
            self._random.set(self._state)
        probe.quiet(False)


def when_it_comes(t, then):
    """Call then(gradient of t as it is now). A tensor's hooks all stay at the place of the first one: set before an in-place call, also by the
    program, they see the gradient of what was there before it."""
    node, place = t.grad_fn, t.output_nr
    if hasattr(node, "register_prehook"):
        node.register_prehook(lambda gradients: then(gradients[place]))
    else:  # torch 1.13
        t.register_hook(then)


def watch(kept, result, then):
    """Call then(gradients of the results) when the backward pass has them; returns whether it ever can."""
    results = outputs(result)
    inputs = kept.program_inputs if not kept.call.in_place else ()
    watched = [i for i, (_, t) in enumerate(results) if t.requires_grad and t.grad_fn is not None and id(t) not in inputs]
    if not kept.needing or not watched:
        return False
    count = len(results)

    def done(gradients):
        all_of_them = [None] * count
        for i, g in zip(watched, gradients):
            all_of_them[i] = g
        try:
            then(all_of_them)
        except Exception as e:
            give_back(e)
            then(None, e)

    tensors = [results[i][1] for i in watched]
    if len(tensors) == 1:
        when_it_comes(tensors[0], lambda g: done([g]))
    elif _multi is not None:
        _multi(tensors, done)
    else:
        return False
    return True
