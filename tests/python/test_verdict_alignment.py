"""Runs that do not make the same calls: the verdict goes by calls that stand for each other, with real dumps."""
import json
import os
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

COMMAND = shutil.which("msprobe", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
FUSED = hasattr(torch.nn.functional, "scaled_dot_product_attention")
two_ways = pytest.mark.skipif(not FUSED, reason="this torch has no scaled_dot_product_attention")

# Attention written out (matmul, softmax, matmul) or as one call; KIND adds calls, leaves the scale out, or doubles a result.
PROGRAM = '''
import json, sys, torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from msprobe.pytorch import PrecisionDebugger
out, task, level, *kind = sys.argv[1:]
torch.set_num_threads(1)
torch.manual_seed(3)

class Doubled(TorchDispatchMode):
    seen = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if "fault" in kind and func.name() == "aten::gelu":
            self.seen += 1
            if self.seen == 2:
                result = result * 2
        return result

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(32, 32) for _ in range(3))
    def forward(self, x):
        q, k, v = (m(x).view(2, 8, 4, 8).transpose(1, 2) for m in (self.q, self.k, self.v))
        if "eager" in kind:
            w = torch.matmul(q, k.transpose(-2, -1))
            if "unscaled" not in kind:
                w = w * 8 ** -0.5
            y = torch.matmul(F.softmax(w, dim=-1), v)
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).reshape(2, 8, 32)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.f = Attention(), nn.Linear(32, 32)
    def forward(self, x):
        x = x + self.a(F.layer_norm(x, (32,)))
        y = F.layer_norm(x, (32,)) * 0.9
        if "more" in kind:
            for _ in range(3):
                y = y * 1.0 # one more
        return x + F.gelu(self.f(y)) * 1.1

net = nn.Sequential(*[Block() for _ in range(3)])
x = torch.randn(2, 8, 32)
json.dump({"task": task, "level": level, "dump_path": out}, open(out + "/c.json", "w"))
d = PrecisionDebugger(out + "/c.json")
d.start(net) if level != "L1" else d.start()
with Doubled():
    net(x).pow(2).mean().backward()
d.stop(); d.step()
'''
LINE = next(i for i, text in enumerate(PROGRAM.splitlines(), 1) if "# one more" in text)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    made = {}

    def run(*kind, task="tensor", level="L1"):
        kind = kind if FUSED or "eager" in kind else (*kind, "eager")
        key = kind, task, level
        if key not in made:
            out = tmp_path_factory.mktemp("run")
            (out / "model.py").write_text(PROGRAM)
            subprocess.run([sys.executable, str(out / "model.py"), str(out), task, level, *kind], check=True, cwd=out)
            made[key] = os.path.join(str(out), "step0", "rank")
        return made[key]
    return run


def compare(npu, bench, tmp_path, *options):
    done = subprocess.run([COMMAND, "compare", npu, bench, "-o", str(tmp_path / "out"), "--json", "-q", "--no-html", "--format", "csv", *options],
                          capture_output=True, text=True, env={**os.environ, "MSPROBE_PYTHON": sys.executable, "MSPROBE_NO_REPLAY": "0"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["pairs"][0]


WAYS = [("tensor", ()), ("tensor", ("--no-replay",)), ("statistics", ())]


@two_ways
@pytest.mark.parametrize("task,options", WAYS)
@pytest.mark.parametrize("level", ["L1", "mix"])
def test_attention_written_out_is_compared_at_its_ends_and_nothing_is_wrong(record, tmp_path, task, options, level):
    v = compare(record("eager", task=task, level=level), record(task=task, level=level), tmp_path, *options)["verdict"]
    assert v["kind"] == "within rounding", v["sentence"]
    assert len(v["alignment"]) == 1 and v["realigned"] > 0
    assert v["alignment"][0].startswith("the NPU run calls Tensor.transpose, Torch.matmul, Tensor.__mul__, Functional.softmax, Torch.matmul "
                                        "where the bench calls Functional.scaled_dot_product_attention, at model.py:")
    assert v["alignment"][0].endswith(", 3 times")


@two_ways
@pytest.mark.parametrize("task,options", WAYS)
def test_a_block_that_computes_something_else_is_named_as_a_whole(record, tmp_path, task, options):
    v = compare(record("eager", "unscaled", task=task), record(task=task), tmp_path, *options)["verdict"]
    assert v["kind"] == "suspect"
    assert "Tensor.transpose.3 to Torch.matmul.1 do not compute what the bench's Functional.scaled_dot_product_attention.0 does" in v["sentence"]


@pytest.mark.parametrize("task,options", WAYS)
def test_calls_that_one_run_makes_more_are_named_and_shift_nobody(record, tmp_path, task, options):
    pair = compare(record("more", task=task), record(task=task), tmp_path, *options)
    v = pair["verdict"]
    assert v["kind"] in ("within rounding", "identical"), v["sentence"]
    assert v["alignment"] == ["9 more Tensor.__mul__ in the NPU run, at model.py:%d" % LINE]
    assert v["level"] != "wrong" and any("9 more Tensor.__mul__" in n for n in v["notes"])


@pytest.mark.parametrize("task,options", WAYS)
def test_a_call_missing_in_the_npu_run_is_named_as_the_benchs(record, tmp_path, task, options):
    v = compare(record(task=task), record("more", task=task), tmp_path, *options)["verdict"]
    assert v["kind"] in ("within rounding", "identical"), v["sentence"]
    assert v["alignment"] == ["9 more Tensor.__mul__ in the bench, at model.py:%d" % LINE]


@pytest.mark.parametrize("task,options", WAYS)
def test_a_fault_behind_calls_without_partner_is_still_found(record, tmp_path, task, options):
    v = compare(record("more", "eager", "fault", task=task), record(task=task), tmp_path, *options)["verdict"]
    assert v["kind"] == "suspect" and v["suspects"][0]["api"] == "Functional.gelu.1.forward", v["sentence"]


@two_ways
def test_with_replay_calls_of_one_run_alone_are_judged_by_themselves(record, tmp_path):
    pair = compare(record("eager", task="tensor"), record(task="tensor"), tmp_path)
    assert not [u for u in pair["verdict"]["why_not"] if u["reason"] == "no partner"]


def test_the_table_pairs_by_number_as_the_manual_does(record, tmp_path):
    import csv
    import glob
    compare(record("more", task="statistics"), record(task="statistics"), tmp_path)
    with open(glob.glob(str(tmp_path / "out" / "compare_result_*.csv"))[0], encoding="utf-8-sig") as f:
        rows = list(csv.DictReader(f))
    pairs = [(r["NPU Name"], r["Bench Name"]) for r in rows if r["Bench Name"] != "N/A"]
    assert all(n == b for n, b in pairs) and ("Tensor.__mul__.1.forward.output.0",) * 2 in pairs


def test_runs_that_make_the_same_calls_are_not_aligned(record, tmp_path):
    v = compare(record("fault"), record(), tmp_path, "--no-replay")["verdict"]
    assert v["alignment"] == [] and v["realigned"] == 0 and v["suspects"][0]["api"] == "Functional.gelu.1.forward"


@two_ways
def test_explain_says_what_a_calls_numbers_mean(record, tmp_path):
    done = subprocess.run([COMMAND, "explain", record("eager", "unscaled"), record(), "Torch.matmul.1.forward", "--json"], capture_output=True, text=True,
                          env={**os.environ, "MSPROBE_PYTHON": sys.executable, "MSPROBE_NO_REPLAY": "0"})
    assert done.returncode == 0, done.stderr
    own, block = json.loads(done.stdout)["results"]
    assert own["basis"] == "replay" and own["ratio"] < 1 and own["note"] == "the bench makes no such call: torch on this machine stands for it"
    assert block["basis"] == "tensors" and block["ratio"] > 1
    assert block["note"] == "what Tensor.transpose.3 to Torch.matmul.1 give in the place of the bench's Functional.scaled_dot_product_attention.0"
