"""Recorded calls run again: forward, backward, in other precisions, and what cannot be run says why."""
import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from msprobe import _core  # noqa: E402
from msprobe.replay import Dump  # noqa: E402

PROGRAM = '''
import json, sys, torch
import torch.nn.functional as F
from msprobe.pytorch import PrecisionDebugger
out, task, kind = sys.argv[1:]
json.dump({"task": task, "level": "L1", "dump_path": out}, open(out + "/c.json", "w"))
torch.manual_seed(7)
dt = {"f32": torch.float32, "bf16": torch.bfloat16}[kind]
w = torch.randn(16, 8, dtype=dt, requires_grad=True)
x = torch.randn(4, 8, dtype=dt, requires_grad=True)
ids = torch.tensor([0, 3, 3, 1])
table = torch.randn(5, 16, dtype=dt, requires_grad=True)
d = PrecisionDebugger(out + "/c.json")
d.start()
y = F.linear(x, w)
y = F.layer_norm(y, (16,))
y = F.gelu(y)
y = y + F.embedding(ids, table)
y = torch.cat([y, y * 2], dim=1)
y = F.dropout(y, 0.5)
z = y[:, 2:5].clone()
z.add_(1)
v, i = torch.topk(y, 3)
n = torch.randn(3)
s = F.softmax(y.float(), dim=-1)
loss = s.pow(2).sum() + z.float().sum() + v.float().mean()
loss.backward()
d.stop(); d.step()
'''


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    made = {}

    def run(task="tensor", kind="f32"):
        if (task, kind) not in made:
            out = str(tmp_path_factory.mktemp("dump"))
            subprocess.run([sys.executable, "-c", PROGRAM, out, task, kind], check=True, cwd=out)
            made[task, kind] = os.path.join(out, "step0", "rank")
        return made[task, kind]
    return run


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_every_call_that_is_not_random_gives_its_recorded_result_again(record, kind):
    dump = Dump(record(kind=kind))
    forward = backward = 0
    for name in dump.calls():
        done = dump.replay(name, precision="recorded")
        if "randn" in name:
            assert "random" in done.reason
            continue
        assert done.reason is None, (name, done.reason)
        for r in done.outputs:
            assert r.computed.dtype == r.recorded.dtype, name
            assert torch.allclose(r.computed.double(), r.recorded.double(), rtol=1e-2 if kind == "bf16" else 1e-6, atol=1e-6), (name, r.at)
            forward += 1
        for r in done.gradients:
            assert torch.allclose(r.computed.double(), r.recorded.double(), rtol=5e-2 if kind == "bf16" else 1e-5, atol=1e-2 if kind == "bf16" else 1e-6), (name, r.at)
            backward += 1
    assert forward > 15 and backward > 10


def test_raised_precision_is_the_next_wider_type(record):
    assert Dump(record()).replay("Functional.linear.0", precision="raised").outputs[0].computed.dtype == torch.float64
    low = Dump(record(kind="bf16"))
    assert low.replay("Functional.linear.0", precision="raised").outputs[0].computed.dtype == torch.float32
    assert low.replay("Functional.linear.0", precision="double").outputs[0].computed.dtype == torch.float64


def test_inputs_made_from_statistics_have_the_recorded_shape_type_and_range(record):
    dump = Dump(record(task="statistics"))
    a, b = dump.replay("Functional.linear.0"), dump.replay("Functional.linear.0")
    assert a.reason is None and a.outputs[0].recorded is None
    assert torch.equal(a.outputs[0].computed, b.outputs[0].computed)
    assert dump.replay("Functional.embedding.0").reason is None  # ids stay within the table
    assert "mask" in dump.replay("Functional.dropout.0").reason


def test_large_results_are_run_backward_in_another_way_to_the_same_bits(record, monkeypatch):
    dump = Dump(record())
    plain = {n: dump.replay(n).gradients for n in dump.calls() if "randn" not in n}
    monkeypatch.setattr(sys.modules["msprobe.replay.run"], "LARGE", 1)
    large = {n: dump.replay(n).gradients for n in plain}
    assert sum(map(len, plain.values())) > 10
    for n in plain:
        assert [g.at for g in plain[n]] == [g.at for g in large[n]]
        assert all(torch.equal(a.computed, b.computed) for a, b in zip(plain[n], large[n])), n


def test_a_missing_file_a_missing_call_and_an_unknown_function_are_named(record, tmp_path):
    source = record()
    data = json.load(open(os.path.join(source, "dump.json")))
    data["data"]["Torch.no_such_function.0.forward"] = data["data"]["Functional.gelu.0.forward"]
    data["data"]["Distributed.all_reduce.0.forward"] = data["data"]["Functional.gelu.0.forward"]
    (tmp_path / "dump.json").write_text(json.dumps(data))
    dump = Dump(tmp_path)
    assert "unknown function" in dump.replay("Torch.no_such_function.0").reason
    assert "communication" in dump.replay("Distributed.all_reduce.0").reason
    assert "cannot be read" in dump.replay("Functional.gelu.0").reason
    with pytest.raises(KeyError):
        dump.call("Torch.nothing.0")


def test_the_measurements_are_the_same_for_any_number_of_workers(record, tmp_path):
    lines = []
    for workers in (1, 3):
        out = str(tmp_path / ("e%d" % workers))
        subprocess.run([sys.executable, "-m", "msprobe.replay", record(), record(), "-", out, "--workers", str(workers)], check=True, cwd=tmp_path)
        text = "".join(p.read_text() for p in sorted(tmp_path.glob("e%d.*" % workers)))
        lines.append(sorted(set(text.splitlines())))  # each worker's file has the same first line
    assert lines[0] == lines[1] and len(lines[0]) > 20


def test_shapes_of_errors_are_told_in_words():
    torch.manual_seed(0)
    want = torch.randn(8, 20, dtype=torch.float64)
    def told(edit):
        got = want.float().clone()
        got = edit(got)
        return _core.local_error(got.contiguous(), want)["shape"]
    def tail(g):
        g[:, 16:] = 0
        return g
    def one(g):
        g[3, 4] *= 4
        return g
    def rows(g):
        g[2:4] = torch.randn(2, 20) * 30
        return g
    assert told(tail) == "the last 4 of every 20 elements are zero"
    assert told(lambda g: g * 2) == "2 times the expected value"
    assert told(one) == "one element is wrong: number 64"
    assert told(lambda g: g + 3) == "3 more than expected, everywhere"
    assert told(rows) == "rows 2 to 3 are wrong"
    assert told(lambda g: g.flatten().roll(1).reshape(8, 20)) == "every element holds what belongs 1 before it"
    assert told(lambda g: g.flatten()[torch.randperm(160)].reshape(8, 20)) == "the right values in another order"
    assert told(lambda g: g).startswith("exact") or told(lambda g: g).startswith("spread")
