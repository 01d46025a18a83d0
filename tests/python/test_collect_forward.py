"""A recorded module's forward runs as it would without us: records, exceptions and the program's own tools do not tell."""
import sys
import traceback

import pytest
from collecting import ALWAYS_BY_HOOKS, BY_HOOKS, R, bare, collect, fill, torch

import torch.nn as nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402


def both_ways(tmp_path, body, **config):
    found = []
    for name, env in (("in_place", None), ("by_hooks", {"MSPROBE_PLAIN": "all"})):
        own = tmp_path / name
        own.mkdir()
        found.append(collect(own, body, env=env, **config))
    return found


def run_step(d, m, *args, **kwargs):
    d.start(model=m)
    m(*args, **kwargs).sum().backward()
    d.stop()
    d.step()


class Scale(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = nn.Parameter(torch.full((3,), by))

    def forward(self, x, *rest, shift=0.0, **more):
        return x * self.by + shift + sum(rest) + sum(more.values())


class Hides(nn.Module):
    """What forward is is asked of the object, each time."""

    def __getattribute__(self, name):
        if name == "forward":
            return lambda x: x * 5
        return super().__getattribute__(name)

    def forward(self, x):
        raise AssertionError("not this one")


class Static(nn.Module):
    @staticmethod
    def forward(x):
        return x.exp()


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.hides, self.static, self.own, self.again = Scale(2.0), Hides(), Static(), Scale(3.0), nn.Linear(3, 3)
        self.own.forward = lambda x: x - 1

    def forward(self, x):
        x = self.scale(x, 1.0, shift=0.5, more=2.0)
        x = self.own(self.static(self.hides(x) * 0.01))
        return checkpoint(self.again, x, use_reentrant=False) + self.again(x)


def nested(d):
    m = fill(Nested())
    for _ in range(2):
        run_step(d, m, R(2, 3))
    return [p.grad for p in m.parameters() if p.grad is not None]


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_records_are_the_same_in_both_ways(tmp_path, level):
    in_place, by_hooks = both_ways(tmp_path, nested, level=level)
    for step in range(2):
        for name in ("dump.json", "construct.json"):
            assert in_place.read(name, step) == by_hooks.read(name, step), name
    expected = bare(tmp_path, nested)
    assert len(expected) == len(in_place.value) > 2 and all(torch.equal(a, b) for a, b in zip(expected, in_place.value))


def test_who_watches_the_programs_calls_sees_all_of_them(tmp_path):
    def body(d):
        m, seen = nn.Sequential(Scale(2.0), nn.ReLU()), []
        run_step(d, m, R(2, 3))
        d.start(model=m)
        sys.setprofile(lambda frame, event, arg: event == "call" and seen.append(frame.f_code.co_name))
        m(R(2, 3))
        sys.setprofile(None)
        d.stop()
        d.step()
        return [name for name in seen if name in ("_wrapped_call_impl", "_call_impl", "forward")]

    (tmp_path / "bare").mkdir()
    assert collect(tmp_path, body, level="L0").value == bare(tmp_path / "bare", body)


class Breaks(nn.Module):
    def forward(self, x):
        raise ValueError("no")


def test_an_exception_shows_the_same_places(tmp_path):
    def body(d):
        m = nn.Sequential(nn.ReLU(), nn.Sequential(Breaks()))
        d.start(model=m)
        try:
            m(R(2, 3))
        except ValueError as e:
            places = [(f.name, f.filename, f.lineno, f.line) for f in traceback.extract_tb(e.__traceback__)]
        d.stop()
        d.step()
        return places

    (tmp_path / "bare").mkdir()
    result = collect(tmp_path, body, level="L0")
    assert (BY_HOOKS or result.value == bare(tmp_path / "bare", body)) and [name for name, *_ in result.value].count("_call_impl") == 3
    assert "Module.0.ReLU.forward.0" in result.data()


def test_another_forward_is_called_from_then_on(tmp_path):
    def body(d):
        m, x, results = nn.Sequential(Scale(2.0), Scale(2.0)), torch.ones(3), []
        plain = Scale.forward
        changes = [lambda: None, lambda: setattr(Scale, "forward", lambda self, x: x + 10), lambda: setattr(m[1], "forward", lambda x: x * 100),
                   lambda: setattr(Scale, "forward", plain), lambda: delattr(m[1], "forward"), lambda: setattr(m[0], "__class__", Static)]
        for change in changes:
            change()
            d.start(model=m)
            results.append(m(x)[0].item())
            d.stop()
            d.step()
        return results

    (tmp_path / "bare").mkdir()
    result = collect(tmp_path, body, level="L0")
    assert result.value == bare(tmp_path / "bare", body) and len(set(result.value)) == 5


@pytest.mark.skipif(ALWAYS_BY_HOOKS, reason="a trace names values by the variables of the frames around them, and hooks of this torch have others")
def test_a_trace_is_made_of_what_is_recorded(tmp_path):
    def body(d):
        m = nn.Sequential(Scale(2.0), nn.ReLU())
        run_step(d, m, R(2, 3))
        d.start(model=m)
        text = str(torch.jit.trace(m, R(2, 3)).inlined_graph)
        d.stop()
        d.step()
        return [line.split("#")[0].strip() for line in text.splitlines()], [line for line in text.splitlines() if "scope" in line]

    (tmp_path / "bare").mkdir()
    assert collect(tmp_path, body, level="L0").value == bare(tmp_path / "bare", body)


