"""Proof, in this process, that private fields of the interpreter and of torch mean what we think they mean.

Functions are recorded by changing the insides of their objects (python/ext/probe_patch.c). Whether that catches every way of calling depends on the
interpreter; so a sample of each kind is patched and called before the first of torch's own is. What does not hold is done the plain way:
attributes are replaced, tensors and autograd's nodes are asked through Python. MSPROBE_PLAIN=builtin,tensor,... or =all chooses that way by hand.
"""

import functools
import os
import threading

import torch

from msprobe.pytorch import stacks
from msprobe.core.log import log

KINDS = ("builtin", "method", "function", "slot")
OTHERS = ("tensor", "sequence", "registrar", "state", "node", "fields", "module", "forward", "frame", "dict")
ROUNDS = 40  # often enough for an adaptive interpreter to specialise the calls


def chosen_plain():
    words = {w.strip() for w in os.environ.get("MSPROBE_PLAIN", "").split(",")} - {""}
    return set(KINDS + OTHERS) if "all" in words else words


def in_place_kinds(probe):
    """The kinds of objects that can be patched where they are; one line in the log for those that cannot."""
    plain = chosen_plain()
    works = {kind for kind in KINDS if kind not in plain and _TESTS[kind](probe)}
    if len(works) < len(KINDS):
        log.info("recording by replaced attributes instead of in place: %s. Functions imported by name before start() are not recorded then.",
                 ", ".join(sorted(set(KINDS) - works)))
    return works


def prove_registrar(probe):
    """Hooks on autograd nodes are registered without torch's Python function where this torch asks it as we think."""
    function = None if "registrar" in chosen_plain() else getattr(torch.autograd.Function, "_register_hook", None)
    with torch.enable_grad():
        node = (torch.zeros(1, requires_grad=True) * 1).grad_fn
    return probe.registrar(function, node)


_KNOWN_NODES = ("2.13.",)  # versions of torch whose nodes were read directly by our tests


def prove_nodes(probe):
    """Whether autograd's nodes are read and hooked without going through Python: see python/ext/probe_node.c."""
    if "node" in chosen_plain() or not torch.__version__.startswith(_KNOWN_NODES):
        return probe.nodes()
    with torch.enable_grad():
        a, b = (torch.zeros(2, device="cpu", requires_grad=True) for _ in range(2))
        parts = (a * 1).unbind()
        results = [a * 2, a + b, a * 3 + b, parts[1] * b, parts[0] + parts[1], torch.stack((b, a, b)), torch.unbind_copy(torch.stack((a, b, a, b)))[3]]
    for result in results:
        result.grad_fn.register_hook(lambda leaving, entering: None)
    kinds = [a, a.detach(), a.detach().to(torch.complex64).conj(), torch.zeros(1, device="meta"), a.detach().to_sparse()]
    return probe.nodes(results, [(t, torch._C._dispatch_keys(t).raw_repr()) for t in kinds])


def prove_fields(probe):
    """Whether a plain tensor's shape, type and memory are read without asking torch's functions: see python/ext/probe_view.c."""
    if "fields" in chosen_plain() or not torch.__version__.startswith(_KNOWN_NODES):
        return probe.fields([])
    a = torch.zeros(3, 5, 7, device="cpu")
    lent = torch.frombuffer(bytearray(64), dtype=torch.int16)  # a storage whose memory is not its own
    return probe.fields([a, a[1:, ::2, 3:].transpose(0, 2), a[2, 3, 4], torch.zeros(2, 3, 4, 5, 6, dtype=torch.float64, device="cpu")[1], lent, lent[9:30:4],
                         torch.zeros(11, dtype=torch.bool, device="cpu"), torch.zeros(4, 2, dtype=torch.bfloat16, device="cpu").t()])


def prove_state(probe):
    """What torch does on this thread is asked of its own functions, where they say in each state what their Python forms say.

    That is tried on another thread: who asks once for its transforms has a list of them, which torch then copies for every part of a backward pass.
    """
    good = []
    thread = threading.Thread(target=lambda: good.append(_prove_state(probe)))
    thread.start()
    thread.join()
    return bool(good) and good[0]


def _prove_state(probe):
    functorch = getattr(torch._C, "_functorch", None)
    said = (getattr(torch._C, "_len_torch_function_stack", None), getattr(functorch, "peek_interpreter_stack", None),
            getattr(torch.autograd, "_get_sequence_nr", None), getattr(torch._C, "_current_graph_task_id", None))
    begin, end = (getattr(functorch, "_vmap_%screment_nesting" % way, None) for way in ("in", "de"))
    mode = getattr(torch.overrides, "BaseTorchFunctionMode", None)

    def agrees():
        modes, level, sequence, task = (function() for function in said)
        return probe.state(False) == (modes, level is not None, sequence, task)

    if "state" in chosen_plain() or not all(said + (begin, end, mode)) or not agrees():
        probe.state(False)
        return False
    with mode():
        good = agrees()
    begin(1, "error")
    try:
        good = good and agrees()
    finally:
        end()
    probe.state(good)
    return good


def prove_frames(probe):
    """Whether the interpreter's own frames are those that it shows: in a function, in one that C calls, in a generator. None: they are not read."""
    if "frame" in chosen_plain():
        return probe.frames(False)

    def same(_=None):
        return probe.frames(True)

    found = [same(), *map(same, [0]), *(same() for _ in range(1))]
    return found[0] if all(f == found[0] for f in found) else probe.frames(False)


def prove_versions(probe):
    """Whether a dict's version tells every change of it, made through the dict or through its object. None: this interpreter keeps none."""
    class Sample:
        pass

    sample = Sample()
    own = vars(sample)
    changes = (lambda: setattr(sample, "a", {}), lambda: own.update(a={}), lambda: own.__setitem__("a", {}), lambda: delattr(sample, "a"),
               lambda: own.setdefault("b", {}), lambda: own.pop("b"), lambda: own.update(b={}), lambda: own.clear())
    seen = []
    for _ in range(ROUNDS):
        sample.a = 1  # stored by bytecode, which comes to specialise it
        seen.append(probe.version(own))
        for change in changes:
            change()
            seen.append(probe.version(own))
    if not any(seen):
        return None
    seen.append(probe.version(vars(Sample())))
    return probe.versions("dict" not in chosen_plain() and len(set(seen)) == len(seen))


def prove_modules(probe):
    """Whether all ways to call a module lead from C to the function that runs its forward between its hooks."""
    function = None if "module" in chosen_plain() else getattr(torch.nn.Module, "_call_impl", None)
    module = torch.nn.Identity()
    if not hasattr(module, "_forward_pre_hooks"):
        function = None
    calls = (lambda: module(1), lambda: module.__call__(1), lambda: module(input=1), lambda: torch.nn.Module.__call__(module, 1),
             lambda: list(map(module, [1])))

    def run():
        for _ in range(ROUNDS):
            for call in calls:
                call()

    return probe.module_function(function, run, ROUNDS * len(calls))


# what Module._call_impl names, in the order of the source: it asks for a trace and for hooks, and calls forward when there are none
_LOOKS_FOR = ("torch", "_C", "_get_tracing_state", "_slow_forward", "forward", "_backward_hooks", "_backward_pre_hooks", "_forward_hooks",
              "_forward_pre_hooks", "_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_hooks", "_global_forward_pre_hooks")


def prove_forward(probe):
    """Whether a module without hooks has its forward called at once: see python/ext/probe_forward.c. None: this interpreter does not tell what it has."""
    if not probe.version({}):
        return None
    place, code = stacks.line_of(r"^\s+return forward_call\("), stacks.CALL_IMPL
    known = torch.__version__.startswith(_KNOWN_NODES) and torch.nn.Module._call_impl.__code__ is code and code.co_names[:len(_LOOKS_FOR)] == _LOOKS_FOR
    if "forward" in chosen_plain() or place is None or not known:
        return probe.forward_function(None, 0, None)
    return probe.forward_function(code.co_filename, place[0], torch.nn.Identity())


def _holds(probe, target, calls, check):
    """Whether every one of calls, repeated, goes through us while target is patched, none after, and check() sees the same before and after."""
    good = [True]

    def run():
        for _ in range(ROUNDS):
            for call, expected in calls:
                good[0] = good[0] and call() == expected

    before = check()
    count = probe.trial(target, run)
    run()
    return good[0] and count == ROUNDS * len(calls) and check() == before


def _builtin(probe):
    f = probe.sample
    one, key = ((1,), None), ((), {"k": 2})
    calls = [
        (lambda: f(1), one), (lambda: f(k=2), key), (lambda: f(*[1]), one), (lambda: f(**{"k": 2}), key),
        (lambda: list(map(f, [1]))[0], one), (lambda: functools.partial(f, 1)(), one),
    ]
    return _holds(probe, f, calls, lambda: (hash(f), f.__name__))


def _method(probe):
    s = probe.Sample()
    one, key = ((1,), None), ((), {"k": 2})
    calls = [
        (lambda: s.echo(1), one), (lambda: s.echo(k=2), key), (lambda: s.echo(*[1]), one), (lambda: list(map(s.echo, [1]))[0], one),
        (lambda: type(s).echo(s, 1), one),
    ]
    echo, nothing = vars(probe.Sample)["echo"], vars(probe.Sample)["nothing"]
    plain = [(lambda: s.nothing(), s), (lambda: s.nothing(*[]), s), (lambda: type(s).nothing(s), s)]
    return _holds(probe, echo, calls, lambda: hash(echo)) and _holds(probe, nothing, plain, lambda: hash(nothing))


def _function(probe):
    offset = 1

    def f(a, b=10, *, c=100):
        return a + b + c + offset

    calls = [
        (lambda: f(1), 112), (lambda: f(1, 2), 104), (lambda: f(1, c=5), 17), (lambda: f(*[1, 2]), 104), (lambda: f(**{"a": 1}), 112),
        (lambda: list(map(f, [1]))[0], 112),
    ]
    return _holds(probe, f, calls, lambda: (f.__code__, f.__name__, f.__defaults__))


def _slot(probe):
    t = torch.zeros(2)

    def store():
        t[0] = 1.0

    return _holds(probe, torch.Tensor.__setitem__, [(store, None)], lambda: hash(torch.Tensor.__setitem__))


_TESTS = {"builtin": _builtin, "method": _method, "function": _function, "slot": _slot}
