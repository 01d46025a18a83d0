"""Collecting from PyTorch. Each script runs in a process of its own: the debugger is one per process, and patches torch."""
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest

pytest.importorskip("torch")

TRAIN = """
    import sys, zlib, torch
    import torch.nn.functional as F

    torch.manual_seed(7)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(8, 16)
            self.b = torch.nn.Linear(16, 4)

        def forward(self, x):
            y = F.relu(self.a(x)) * 2
            y += 1
            return self.b(y).sum()

    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(5, 8)

    def step():
        opt.zero_grad()
        loss = net(x)
        loss.backward()
        opt.step()
        return loss

    def bits():
        data = b"".join(p.detach().numpy().tobytes() for p in net.parameters())
        return "%08x %08x" % (zlib.crc32(data), zlib.crc32(torch.get_rng_state().numpy().tobytes()))
"""


def config(folder, **keys):
    path = folder / "config.json"
    path.write_text(json.dumps({"task": "statistics", "dump_path": str(folder / "dump"), "rank": [], "step": [], **keys}))
    return str(path)


def run(folder, script, expect=0, env=None):
    path = folder / "script.py"
    path.write_text(textwrap.dedent(TRAIN) + textwrap.dedent(script))
    done = subprocess.run([sys.executable, str(path)], cwd=folder, capture_output=True, text=True, timeout=600, env=dict(os.environ, **(env or {})))
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout


def read(folder, name, step=0):
    with open(folder / "dump" / ("step%d" % step) / "rank" / name) as f:
        return json.load(f)


BARE = "for i in range(3): step()\nprint(bits())\n"


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("mode", ["statistics", "md5"])
def test_the_run_is_the_same_to_the_bit(tmp_path, level, mode):
    bare = run(tmp_path, BARE).splitlines()[-1]
    path = config(tmp_path, level=level, statistics={"summary_mode": mode})
    recorded = run(tmp_path, """
        from msprobe.pytorch import PrecisionDebugger
        debugger = PrecisionDebugger(%r)
        for i in range(3):
            debugger.start(net)
            step()
            debugger.stop()
            debugger.step()
        print(bits())
    """ % path)
    recorded = [line for line in recorded.splitlines() if " [INFO] " not in line][-1]  # the collector has the last word
    assert recorded == bare
    assert len(read(tmp_path, "dump.json", 2)["data"]) > 3


def test_every_api_has_its_inputs_outputs_and_gradients(tmp_path):
    run(tmp_path, """
        from msprobe.pytorch import PrecisionDebugger
        debugger = PrecisionDebugger(%r)
        debugger.start()
        step()
        debugger.stop()
        debugger.step()
    """ % config(tmp_path, level="L1"))
    dump = read(tmp_path, "dump.json")
    assert (dump["task"], dump["level"], dump["framework"]) == ("statistics", "L1", "pytorch")
    data = dump["data"]
    linear = data["Functional.linear.0.forward"]
    assert [r["shape"] for r in linear["input_args"]] == [[5, 8], [16, 8], [16]]
    assert linear["output"][0]["shape"] == [5, 16] and linear["output"][0]["requires_grad"] is True
    backward = data["Functional.linear.0.backward"]
    assert backward["input"][0]["shape"] == [5, 16]
    shapes = [r["shape"] for r in backward["output"] if r]
    assert [16, 8] in shapes and [16] in shapes  # the weight's and the bias's
    assert data["Tensor.__iadd__.0.forward"]["input_args"][0]["Max"] + 1 == pytest.approx(data["Tensor.__iadd__.0.forward"]["output"][0]["Max"])
    stacks = {name: frames for names, frames in read(tmp_path, "stack.json").values() for name in names}
    assert "script.py" in "".join(stacks["Functional.relu.0.forward"]) and "in forward" in "".join(stacks["Functional.relu.0.forward"])


def test_modules_stand_in_their_tree_with_parameters_and_their_gradients(tmp_path):
    run(tmp_path, """
        from msprobe.pytorch import PrecisionDebugger
        debugger = PrecisionDebugger(%r)
        debugger.start(net)
        step()
        debugger.stop()
        debugger.step()
        import copy, pickle
        pickle.dumps(net), copy.deepcopy(net)
    """ % config(tmp_path, level="mix"))
    data, tree = read(tmp_path, "dump.json")["data"], read(tmp_path, "construct.json")
    assert set(data["Module.a.Linear.forward.0"]["parameters"]) == {"weight", "bias"}
    assert set(data["Module.a.Linear.parameters_grad"]) == {"weight", "bias"}
    assert data["Module.b.Linear.backward.0"]["input"][0]["shape"] == [5, 4]
    assert tree["Functional.linear.0.forward"] == "Module.a.Linear.forward.0"
    assert tree["Module.a.Linear.forward.0"] is None


def test_the_functions_stay_the_same_objects(tmp_path):
    run(tmp_path, """
        from msprobe.pytorch import PrecisionDebugger
        before = F.relu, F.gelu, torch.relu, torch.Tensor.add, torch.Tensor.__add__, hash(torch.relu), F.relu.__code__
        debugger = PrecisionDebugger(%r)
        debugger.start()
        assert (F.relu, F.gelu, torch.relu, torch.Tensor.add, torch.Tensor.__add__, hash(torch.relu)) == before[:6]
        step()
        debugger.stop()
        assert F.relu.__code__ is before[6] and not hasattr(net.a.weight, "_backward_hooks_msprobe")
        debugger.step()
    """ % config(tmp_path, level="L1"), env={"MSPROBE_PLAIN": ""})


def test_an_api_that_raises_keeps_its_inputs_and_recording_goes_on(tmp_path):
    run(tmp_path, """
        from msprobe.pytorch import PrecisionDebugger
        debugger = PrecisionDebugger(%r)
        debugger.start()
        try:
            torch.matmul(x, x)
        except RuntimeError:
            pass
        torch.relu(x)
        debugger.stop()
        debugger.step()
    """ % config(tmp_path, level="L1"))
    data = read(tmp_path, "dump.json")["data"]
    assert "input_args" in data["Torch.matmul.0.forward"] and "output" not in data["Torch.matmul.0.forward"]
    assert "output" in data["Torch.relu.0.forward"]


def test_tensors_are_saved_whole_and_read_by_torch(tmp_path):
    import torch

    run(tmp_path, """
        from msprobe.pytorch import PrecisionDebugger
        debugger = PrecisionDebugger(%r)
        debugger.start()
        torch.relu(x)
        torch.save(x, "x.pt")
        debugger.stop()
        debugger.step()
    """ % config(tmp_path, task="tensor", level="L1"))
    record = read(tmp_path, "dump.json")["data"]["Torch.relu.0.forward"]["input_args"][0]
    saved = torch.load(tmp_path / "dump" / "step0" / "rank" / "dump_tensor_data" / record["data_name"], weights_only=True)
    assert torch.equal(saved, torch.load(tmp_path / "x.pt", weights_only=True))


def test_after_kill_9_the_files_are_valid_and_hold_what_is_older_than_a_second(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(TRAIN) + textwrap.dedent("""
        import time
        from msprobe.pytorch import PrecisionDebugger
        debugger = PrecisionDebugger(%r)
        debugger.start()
        n = 0
        while True:
            torch.relu(x)
            n += 1
            print(n, time.time(), flush=True)
            time.sleep(0.002)
    """ % config(tmp_path, level="L1")))
    process = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    lines = []
    for line in process.stdout:
        if len(line.split()) == 2:  # and not a line of the log
            lines.append(line.split())
        if len(lines) >= 1000:
            break
    killed = time.time()
    process.send_signal(signal.SIGKILL)
    process.wait()
    data = read(tmp_path, "dump.json")["data"]
    old = [n for n, when in lines if killed - float(when) > 1.0]
    assert len(data) >= len(old) > 100 or len(data) == len(lines)
    read(tmp_path, "stack.json"), read(tmp_path, "construct.json")


@pytest.mark.parametrize("keys, words", [
    ({"task": "statistic"}, ["task", "statistic", "did you mean"]),
    ({"level": "L3"}, ["level", "L3", "mix"]),
    ({"step": ["5-3"]}, ["step", "left boundary"]),
    ({"statistics": {"summary_mode": "md6"}}, ["summary_mode", "md6", "md5"]),
    ({"statistics": {"data_mode": ["all", "input"]}}, ["data_mode", "all"]),
])
def test_a_wrong_value_is_named_before_training_starts(tmp_path, keys, words):
    out = run(tmp_path, """
        from msprobe.pytorch import PrecisionDebugger
        try:
            PrecisionDebugger(%r)
        except Exception as e:
            print(e)
    """ % config(tmp_path, **keys))
    for word in words:
        assert word in out, out


def test_nothing_recorded_is_said_with_the_reason(tmp_path):
    out = run(tmp_path, """
        from msprobe.pytorch import PrecisionDebugger
        debugger = PrecisionDebugger(%r)
        debugger.start()
        step()
        debugger.stop()
        debugger.step()
    """ % config(tmp_path, level="L1", statistics={"list": ["no_such_api"]}))
    assert "no_such_api" in out


def test_two_of_our_dumps_can_be_compared_and_the_fault_is_found(tmp_path):
    for side, offset in (("bench", 0.0), ("npu", 50.0)):
        (tmp_path / side).mkdir()
        run(tmp_path / side, """
            from msprobe.pytorch import PrecisionDebugger
            debugger = PrecisionDebugger(%r)
            offset = torch.full((8,), %r)
            debugger.start()
            torch.sqrt(torch.relu(x) * 2 + offset)
            debugger.stop()
            debugger.step()
        """ % (config(tmp_path / side, level="L1"), offset))
    command = shutil.which("msprobe", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
    assert command is not None
    done = subprocess.run([command, "compare", str(tmp_path / "npu" / "dump"), str(tmp_path / "bench" / "dump"), "-o",
                           str(tmp_path / "out")], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Suspect       Tensor.__add__.0.forward" in done.stdout
