"""The tool's own verdict on pairs that torch makes here: a broken kernel, another device, other weights, nothing wrong."""
import json
import os
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

# A small model with its backward pass. The second run's kernels are those of another "device": DEVICE is rounding of what products
# take (tf32), a fault in one call, or other weights.
PROGRAM = '''
import json, sys, torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from msprobe.pytorch import PrecisionDebugger
out, task, kind, dtype = sys.argv[1:]
torch.set_num_threads(1)
torch.manual_seed(3)
A = torch.ops.aten
dt = getattr(torch, dtype)

def coarse(t):
    i = A.view.dtype(A.clone.default(t, memory_format=torch.contiguous_format), torch.int32)
    return A.view.dtype(A.bitwise_and.Scalar(A.add.Tensor(i, 1 << 12), -(1 << 13)), torch.float32)

class Device(TorchDispatchMode):
    seen = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name()
        if kind in ("tf32", "tail") and name in ("aten::addmm", "aten::mm") and dt == torch.float32:
            args = tuple(coarse(a) if isinstance(a, torch.Tensor) and a.dim() == 2 else a for a in args)
        result = func(*args, **(kwargs or {}))
        if name == "aten::gelu":
            self.seen += 1
            if kind in ("tail", "twice") and self.seen == 2:
                result = A.clone.default(result)
                if kind == "tail":
                    A.fill_.Scalar(A.slice.Tensor(result, 1, 20, 24), 0)
                else:
                    A.mul_.Scalar(result, 2)
        return result

layers = [torch.randn(24, 24).mul_(0.2).to(dt).requires_grad_() for _ in range(4)]
x = torch.randn(12, 24).to(dt)
if kind == "weights":
    with torch.no_grad():
        layers[2][5] *= 1.25
json.dump({"task": task, "level": "L1", "dump_path": out}, open(out + "/c.json", "w"))
d = PrecisionDebugger(out + "/c.json")

def step():
    y = x
    for w in layers:
        y = y + F.gelu(F.linear(F.layer_norm(y, (24,)), w))
        if kind == "changed" and w is layers[1]:
            y.detach().numpy()[5:7] *= 1.001
    F.softmax(y.float(), dim=-1).pow(2).sum().backward()

d.start()
if kind in ("bench", "weights"):
    step()
else:
    with Device():
        step()
d.stop(); d.step()
'''


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    made = {}

    def run(kind, dtype="float32", task="tensor"):
        if (kind, dtype, task) not in made:
            out = str(tmp_path_factory.mktemp(kind))
            subprocess.run([sys.executable, "-c", PROGRAM, out, task, kind, dtype], check=True, cwd=out)
            made[kind, dtype, task] = os.path.join(out, "step0", "rank")
        return made[kind, dtype, task]
    return run


def verdict(npu, bench, tmp_path, *options, **env):
    msprobe = shutil.which("msprobe", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
    done = subprocess.run([msprobe, "compare", npu, bench, "-o", str(tmp_path / "out"), "--json", "-q", "--no-html", "--format", "csv", *options],
                          capture_output=True, text=True, env={**os.environ, "MSPROBE_PYTHON": sys.executable, "MSPROBE_NO_REPLAY": "0", **env})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["pairs"][0]["verdict"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_kernel_that_leaves_a_tail_unwritten_is_named_with_the_shape_of_its_error(record, tmp_path, dtype):
    v = verdict(record("tail", dtype), record("bench", dtype), tmp_path)
    assert v["kind"] == "suspect" and v["basis"] == "replay"
    assert v["suspects"][0]["api"] == "Functional.gelu.1.forward"
    assert "the last 4 of every 24 elements are zero" in v["sentence"]
    assert len(v["suspects"]) == 1, "what the others inherit is not their fault"


def test_a_doubled_result_is_told_as_a_factor(record, tmp_path):
    v = verdict(record("twice"), record("bench"), tmp_path)
    assert v["suspects"][0]["api"] == "Functional.gelu.1.forward" and "2 times the expected value" in v["sentence"]


def test_a_device_that_computes_all_products_with_11_bits_is_a_fact_and_no_alarm(record, tmp_path):
    v = verdict(record("tf32"), record("bench"), tmp_path)
    assert v["kind"] == "within rounding" and v["suspects"] == []
    assert len(v["facts"]) == 1 and "about 11 significant bits" in v["facts"][0] and "TF32" in v["facts"][0]


def test_the_same_run_twice_is_identical(record, tmp_path):
    v = verdict(record("bench"), record("bench"), tmp_path)
    assert v["kind"] == "identical" and v["suspects"] == [] and v["replayed"] == 0


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_other_weights_are_the_verdict_and_no_call_is_blamed(record, tmp_path, task):
    v = verdict(record("weights", task=task), record("bench", task=task), tmp_path)
    assert v["kind"] == "different start"
    assert v["suspects"][0]["api"] == "Functional.linear.2.forward"
    assert "do not start from the same weights" in v["sentence"] and "input.1" in v["sentence"]


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_what_code_that_is_not_recorded_changed_between_two_calls_is_named(record, tmp_path, task):
    v = verdict(record("changed", task=task), record("bench", task=task), tmp_path)
    assert v["kind"] == "different start" and v["suspects"][0]["api"] == "Functional.layer_norm.2.forward"
    assert v["sentence"].startswith("Wrong: Tensor.__add__.1.forward.output.0 was changed before Functional.layer_norm.2.forward took it as input.0"), v["sentence"]


def test_without_replay_or_without_torch_the_verdict_says_so(record, tmp_path):
    v = verdict(record("tail"), record("bench"), tmp_path, "--no-replay")
    assert v["basis"] == "tensors" and v["no_replay"] == "it was not asked for"
    assert v["suspects"][0]["api"] == "Functional.gelu.1.forward"
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho \"No module named 'torch'\" >&2\nexit 3\n")
    other.chmod(0o755)
    v = verdict(record("tail"), record("bench"), tmp_path, MSPROBE_PYTHON=str(other))
    assert v["basis"] == "tensors" and "has no torch" in v["no_replay"] and "MSPROBE_PYTHON" in v["no_replay"]
    assert v["suspects"][0]["api"] == "Functional.gelu.1.forward"


@pytest.mark.parametrize("took, found", [(0.0, True), (0.5, False)])
def test_a_result_that_no_run_gives_is_judged_where_what_the_call_took_is_equal(tmp_path, took, found):
    """As of a function that gives another shape in this torch."""
    import msprobe

    for side in ("npu", "bench"):
        folder = tmp_path / side / "dump_tensor_data"
        folder.mkdir(parents=True)
        torch.manual_seed(3)
        tensors = {"input.0": torch.randn(4, 4), "output.0": torch.randn(8, 8)}
        if side == "npu":
            tensors["input.0"][1, 1] += took
            tensors["output.0"][5] = 0
        record = {"input_args": [], "input_kwargs": {}, "output": []}
        for at, t in tensors.items():
            name = "Functional.relu.0.forward.%s.pt" % at
            msprobe.save_pt(folder / name, t)
            record["input_args" if at == "input.0" else "output"].append(
                {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(t.shape), "Max": t.max().item(), "Min": t.min().item(),
                 "Mean": t.mean().item(), "Norm": t.norm().item(), "requires_grad": False, "data_name": name})
        (tmp_path / side / "dump.json").write_text(json.dumps({"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": None,
                                                               "data": {"Functional.relu.0.forward": record}}))
    v = verdict(str(tmp_path / "npu"), str(tmp_path / "bench"), tmp_path)
    assert v["replayed"] == 1 and (v["judged"] == 1) == found
    assert v["level"] == "wrong" and v["kind"] == ("suspect" if found else "different start")
    assert v["suspects"][0]["api"] == "Functional.relu.0.forward"


def test_the_function_comes_to_the_verdict_of_the_command(record, tmp_path, capsys, monkeypatch):
    from msprobe.pytorch import compare

    monkeypatch.setenv("MSPROBE_NO_REPLAY", "0")
    npu, bench = record("tail"), record("bench")
    told = verdict(npu, bench, tmp_path)
    written = compare({"npu_json_path": npu + "/dump.json", "bench_json_path": bench + "/dump.json"}, str(tmp_path / "function"))
    assert "Verdict: " + told["sentence"] in capsys.readouterr().out and told["basis"] == "replay"
    assert [p.rsplit(".", 1)[1] for p in written] == ["xlsx", "txt", "html"] and all(os.path.exists(p) for p in written)
    monkeypatch.setattr(sys, "executable", "")
    compare({"npu_json_path": npu + "/dump.json", "bench_json_path": bench + "/dump.json"}, str(tmp_path / "function"))
    assert "Verdict: Wrong: Functional.gelu.1.forward" in capsys.readouterr().out  # by the tensors


def test_only_the_calls_that_were_named_are_run_again(record, tmp_path):
    v = verdict(record("tail"), record("bench"), tmp_path, "--replay-only", "Functional.gelu.1.forward")
    assert v["replayed"] == 2  # forward and backward
    assert v["suspects"][0]["api"] == "Functional.gelu.1.forward"


def test_the_verdict_is_the_same_for_any_number_of_threads(record, tmp_path):
    told = [verdict(record("tail"), record("bench"), tmp_path, "--threads", n) for n in ("1", "2", "8")]
    for v in told:
        v.pop("replay_seconds")
    assert told[0] == told[1] == told[2]


def test_statistics_say_what_they_cannot_tell(record, tmp_path):
    v = verdict(record("tf32", task="statistics"), record("bench", task="statistics"), tmp_path)
    assert v["basis"] == "statistics" and v["suspects"] == []
    assert "task" in v["untold"][0] and "tensor" in v["untold"][0]
