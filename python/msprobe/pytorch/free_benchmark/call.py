"""One call of the program's, and how it is made again without the program noticing.

The second run takes the same way through torch as the first: the same gradient mode, autocast, and inputs that require a gradient where the
first one's do, but inputs of its own, cut off from the program's graph. Random numbers are those of the first run, and the generators are
afterwards as the first run left them.
"""

import contextlib

import torch

from msprobe.core.signals import give_back

IN_PLACE_OPERATORS = {"__iadd__", "__iand__", "__idiv__", "__ifloordiv__", "__ilshift__", "__imod__", "__imul__", "__ior__", "__ipow__", "__irshift__",
                      "__isub__", "__itruediv__", "__ixor__", "__setitem__"}
MUTATING = {"batch_norm", "instance_norm", "native_batch_norm", "_batch_norm_impl_index"}  # running statistics
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_hooks_on_top = getattr(getattr(torch._C, "_autograd", None), "_top_saved_tensors_default_hooks", None)
_any_autocast = getattr(torch._C, "_is_any_autocast_enabled", None)
_functorch_level = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)


def tensors_in(value, into):
    """Append the tensors of nested tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        into.append(value)
    elif isinstance(value, (tuple, list)):
        for v in value:
            tensors_in(v, into)
    elif isinstance(value, dict):
        for v in value.values():
            tensors_in(v, into)
    return into


def rebuilt(value, change):
    """The same structure with change(t) for each tensor t; what holds none stays the object that it is."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        items = [rebuilt(v, change) for v in value]
        if all(a is b for a, b in zip(items, value)):
            return value
        kind = type(value)
        return kind(*items) if hasattr(kind, "_fields") else kind(items)
    if isinstance(value, dict):
        items = {k: rebuilt(v, change) for k, v in value.items()}
        return value if all(items[k] is v for k, v in value.items()) else items
    return value


def once(change):
    """change, made once for each object: one tensor that is passed twice stays one tensor."""
    done = {}

    def changed(t):
        if id(t) not in done:
            done[id(t)] = change(t), t  # t is kept: another object must not get its id
        return done[id(t)][0]

    return changed


def is_ordinary(t):
    """A dense tensor with values, and nobody's own class: what runs a second time must be nothing but arithmetic."""
    return type(t) in _PLAIN and t.layout is torch.strided and not t.is_quantized and not t.is_meta and not t.is_nested


def version_of(t):
    return -1 if t.is_inference() else t._version


def api_of(name):
    return name.split(".")[-3]


def is_in_place(api, kwargs):
    return (api.endswith("_") and not api.endswith("__")) or api in IN_PLACE_OPERATORS or kwargs.get("inplace") is True or kwargs.get("out") is not None


def cannot_repeat():
    """Why nothing can be run twice here, or None."""
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace is running"
    if _functorch_level is not None and _functorch_level() is not None:
        return "vmap or grad of torch.func is running"
    return None


def is_capturing(tensors):
    return any(t.is_cuda for t in tensors) and torch.cuda.is_current_stream_capturing()


class Random:
    """The generators that a call may draw from, and their states when this was made."""

    def __init__(self, tensors, kwargs):
        self._generators = [torch.default_generator]
        own = kwargs.get("generator")
        if isinstance(own, torch.Generator):
            self._generators.append(own)
        self._devices = []
        for device in {t.device for t in tensors if t.device.type != "cpu"}:
            module = getattr(torch, device.type, None)
            if hasattr(module, "get_rng_state") and hasattr(module, "set_rng_state"):
                self._devices.append((module, device))
        self.before = self.now()

    def now(self):
        return [g.get_state() for g in self._generators] + [m.get_rng_state(d) for m, d in self._devices]

    def set(self, states):
        for generator, state in zip(self._generators, states):
            generator.set_state(state)
        for (module, device), state in zip(self._devices, states[len(self._generators):]):
            module.set_rng_state(state, device)


def same_states(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b))


class Call:
    """Made before the call, with copies of what it is going to change."""

    def __init__(self, name, function, args, kwargs, tensors, mutating):
        self.name, self.api, self.function = name, api_of(name), function
        self.args, self.kwargs, self.tensors = args, kwargs, tensors
        self.in_place = is_in_place(self.api, kwargs)
        self.copies = None  # id of a tensor -> its elements before the call
        if self.in_place or mutating:
            self.copies = {id(t): t.detach().clone() for t in tensors}
        self.versions = [version_of(t) for t in tensors]
        self.needs_gradient = [t.requires_grad for t in tensors]
        self.grad_mode = torch.is_grad_enabled()
        self.random = Random(tensors, kwargs)
        self.autocast = has_autocast()

    # ---- after the call ----------------------------------------------------------------------------------------------------------------

    def changed_tensors(self):
        """The inputs that the call has written to, as far as torch's counters tell."""
        return [t for t, v in zip(self.tensors, self.versions) if version_of(t) != v]

    def draws(self):
        """Whether the call has drawn random numbers; to be asked before anything else runs."""
        self.after = self.random.now()
        return not same_states(self.random.before, self.after)

    def element_source(self, t):
        """A tensor with the elements that t had when it was called."""
        return t if self.copies is None else self.copies.get(id(t), t)

    # ---- again -------------------------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def unnoticed(self, drew):
        """Around the second run: its random numbers are those of the first one, and nothing is left of it."""
        if drew:
            self.random.set(self.random.before)
        try:
            with without_autocast_cache():
                yield
        finally:
            if drew or not same_states(self.random.now(), self.after):
                self.random.set(self.after)

    def run(self, change):
        """What the function returns for change(elements) of each tensor; None where that changes nothing."""
        with_graph = self.grad_mode and not self.in_place and not has_saved_tensor_hooks()

        def own(t):
            other = change(self.element_source(t))
            if other.requires_grad or other is t:
                other = other.detach()
            if self.copies is not None and other is self.copies.get(id(t)):
                other = other.clone()  # a run may write to what it is given
            return other.requires_grad_() if with_graph and t.requires_grad and is_differentiable(other) else other

        return self.repeat(once(own), change, with_graph)

    def repeat(self, own, change, with_graph):
        args, kwargs = rebuilt(self.args, own), rebuilt(self.kwargs, own)
        if not change.touched:
            return None
        modes = autocast_disabled(self.tensors) if change.autocast_off else contextlib.nullcontext()
        with torch.set_grad_enabled(with_graph), modes:
            result = self.function(*args, **kwargs)
        return self.result_of(result, args)

    def result_of(self, result, args=None):
        """What a call is judged by: its result, or what it wrote to where it returns nothing."""
        return (self.args if args is None else args)[0] if result is None and self.in_place else result


def is_differentiable(t):
    return t.is_floating_point() or t.is_complex()


def has_saved_tensor_hooks():
    """Whether the program wants to see what is saved for backward: activation checkpoints count it."""
    if _hooks_on_top is None:
        return False
    try:
        return _hooks_on_top(False) is not None
    except TypeError:  # an older torch asks for nothing
        return _hooks_on_top() is not None
    except RuntimeError as e:
        give_back(e)
        return True


def has_autocast():
    if _any_autocast is not None:
        return _any_autocast()
    return torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled()


@contextlib.contextmanager
def without_autocast_cache():
    """What autocast has cast is kept for the program's weights, not for ours."""
    if not has_autocast() or not torch.is_autocast_cache_enabled():
        yield
        return
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(True)


@contextlib.contextmanager
def autocast_disabled(tensors):
    with contextlib.ExitStack() as stack:
        for kind in {t.device.type for t in tensors}:
            stack.enter_context(torch.autocast(kind, enabled=False, cache_enabled=False))
        yield


def autocast_state(tensors):
    """What enters autocast again as it is now: (kind of device, type) for those where it is on."""
    found = []
    for kind in {t.device.type for t in tensors}:
        try:
            if torch.is_autocast_enabled(kind):
                found.append((kind, torch.get_autocast_dtype(kind)))
        except TypeError:  # an older torch knows two kinds
            if kind == "cpu" and torch.is_autocast_cpu_enabled():
                found.append((kind, torch.get_autocast_cpu_dtype()))
            elif kind != "cpu" and torch.is_autocast_enabled():
                found.append((kind, torch.get_autocast_gpu_dtype()))
    return found


@contextlib.contextmanager
def autocast_as(state):
    with contextlib.ExitStack() as stack:
        for kind, dtype in state:
            stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=True, cache_enabled=False))
        yield
