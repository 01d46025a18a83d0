"""Proof, in this process, that the interpreter's function objects are what we think they are.

Functions are recorded by changing the insides of their objects (python/ext/patch/patch.c), in fields that CPython publishes in its headers. Whether that
catches every way of calling depends on the interpreter; so a sample of each kind is patched and called before the first of torch's own is. Where it does
not hold, attributes are replaced instead, and modules get hooks. MSPROBE_PLAIN=all chooses that way by hand.
"""

import functools
import os

import torch

from msprobe.core.log import log

KINDS = ("builtin", "method", "function", "slot")
ROUNDS = 40  # often enough for an adaptive interpreter to specialise the calls


def is_plain():
    """Whether attributes are to be replaced whatever holds here."""
    chosen = os.environ.get("MSPROBE_PLAIN", "")
    if chosen not in ("", "all"):
        log.warning("MSPROBE_PLAIN is %r, which means nothing; \"all\" records by replaced attributes", chosen)
    return chosen == "all"


def in_place_kinds(probe):
    """The kinds of objects that can be patched where they are; one line in the log for those that cannot."""
    works = set() if is_plain() else {kind for kind in KINDS if _TESTS[kind](probe)}
    if len(works) < len(KINDS):
        log.info("recording by replaced attributes instead of in place: %s. Functions imported by name before start() are not recorded then.",
                 ", ".join(sorted(set(KINDS) - works)))
    return works


def prove_modules(probe):
    """Whether all ways to call a module lead from C to the function that runs its forward between its hooks."""
    function = None if is_plain() else getattr(torch.nn.Module, "_call_impl", None)
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


def prove_compiled(probe):
    """Whether compiled code is told by torch's function that has this thread compiled; None: this torch compiles nothing."""
    function = getattr(getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None), "set_eval_frame", None)
    if function is None:
        return None
    calls = (lambda: function(None), lambda: list(map(function, [None])), lambda: function(*[None]))

    def run():
        for _ in range(ROUNDS):
            for call in calls:
                call()

    return probe.compiled_function(function, run, ROUNDS * len(calls))


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
