"""Names, counters and forward records equal those of mindstudio-probe 8.3.3 on the same programs (tests/data/collect)."""
import gzip
import json
import math
import os

import pytest
from collecting import collect, torch
from original_programs import PROGRAMS

import torch.nn as nn  # noqa: E402

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "collect")

if tuple(int(x) for x in torch.__version__.split(".")[:2]) < (2, 12):
    pytest.skip("the original was recorded on torch 2.13, whose Python functions call other functions inside", allow_module_level=True)


@pytest.fixture(scope="module", autouse=True)
def loaded_once():
    """An optimizer imports torch's compiler, which takes seconds: here, and not in each of the processes."""
    import torch._dynamo  # noqa: F401


class Context:
    def __init__(self, debugger):
        self._debugger = debugger

    def start(self, model=None):
        self._debugger.start(model if model is not None else nn.Sequential(nn.Identity()))

    def end(self):
        self._debugger.stop()
        self._debugger.step()


def expected(name):
    with gzip.open(os.path.join(DATA, name + ".json.gz"), "rt") as f:
        return json.load(f)


def is_forward(name):
    return name.endswith(".forward") or ".forward." in name


def close(a, b, scale):
    """To 1e-5 of the value, or of the tensor's largest element: a mean near zero has no precision of its own."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)) and not isinstance(a, bool):
        return a == b or math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-5 * scale + 1e-7) or a != a and b != b
    return a == b


def differences(ours, theirs, path):
    """What is different, beside more exact statistics of integers and what the original leaves empty."""
    if theirs == {} and ours is not None:
        return []  # a dtype or device by position
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found = ["%s has %s" % (path, sorted(set(ours) ^ set(theirs)))] if set(theirs) - set(ours) else []
        scale = max([abs(theirs[k]) for k in ("Max", "Min") if isinstance(theirs.get(k), (int, float)) and math.isfinite(theirs[k])], default=0.0)
        for key in theirs:
            if key in ("Max", "Min", "Mean", "Norm") and "dtype" in theirs:
                ok = close(theirs[key], ours[key], scale) or theirs[key] is None
                found += [] if ok else ["%s.%s is %s, not %s" % (path, key, ours[key], theirs[key])]
            elif key in ours:
                found += differences(ours[key], theirs[key], "%s.%s" % (path, key))
        return found
    if isinstance(theirs, list) and isinstance(ours, list) and len(ours) == len(theirs):
        return [d for i, (o, t) in enumerate(zip(ours, theirs)) for d in differences(o, t, "%s.%d" % (path, i))]
    return [] if ours == theirs or isinstance(theirs, float) and close(ours, theirs, 0) else ["%s is %s, not %s" % (path, ours, theirs)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_records_are_those_of_the_original(tmp_path, name):
    original = expected(name)

    def body(d):
        torch.manual_seed(7)
        PROGRAMS[name](Context(d))

    result = collect(tmp_path, body, level=original["level"])
    ours, tree = result.data(), result.construct()
    theirs = original["data"]
    assert [n for n in ours if is_forward(n)] == [n for n in theirs if is_forward(n)]
    assert set(theirs) <= set(ours)  # more gradients than the original has are welcome
    for n in theirs:
        if is_forward(n):
            assert differences(ours[n], theirs[n], n) == []
    for n, parent in original["construct"].items():
        if is_forward(n):
            assert tree[n] == parent, n
