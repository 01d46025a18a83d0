"""Recording does not change the run, and leaves nothing behind."""
import os
import time

import pytest

from runs import bits, read, run, train, write_config

CASES = [("statistics", "L1", {}), ("statistics", "mix", {"summary_mode": "md5"}), ("tensor", "mix", {}), ("statistics", "L0", {}), ("structure", "mix", {}),
         ("overflow_check", "L1", {})]


@pytest.mark.parametrize("model", ["mlp", "cnn", "enc"])
def test_loss_gradients_and_weights_have_the_same_bits_with_and_without(tmp_path, model):
    steps = int(os.environ.get("MSPROBE_STEPS", 3))
    bare = bits(train(model, steps))
    assert len(bare) == steps
    for number, (task, level, part) in enumerate(CASES):
        folder = tmp_path / str(number)
        folder.mkdir()
        output = train(model, steps, write_config(folder, task, level, part), "check-undo")
        assert bits(output) == bare, (task, level)
        assert "undone" in output


SECOND = """
np.random.seed(1)
class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Dense(3, 5), nn.Dense(5, 1)
        for p in self.trainable_params():
            p.set_data(Tensor(np.random.randn(*p.shape).astype(np.float32)))
    def construct(self, x):
        return (mint.tanh(self.fc1(x)) * mint.exp(self.fc1(x)) + self.fc2(self.fc1(x))).sum()
net = Net()
x = Tensor(np.random.randn(2, 3).astype(np.float32))
def penalty(x):
    outside = mint.exp(net.fc2.weight.sum())
    return (mindspore.grad(net)(x) * outside).pow(2).sum()
step = mindspore.value_and_grad(penalty, None, net.trainable_params())
for i in range(2):
    if len(sys.argv) > 2:
        debugger.start(net)
    loss, gradients = step(x)
    if len(sys.argv) > 2:
        debugger.stop()
        debugger.step()
    print("bits", loss.asnumpy().tobytes().hex(), [g.asnumpy().tobytes().hex() for g in gradients])
"""


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_second_derivative_has_the_same_bits_with_and_without(tmp_path, level):
    bare, recorded = run(tmp_path, SECOND, level=level), run(tmp_path, SECOND, "recorded", level=level)
    assert bare.returncode == 0 and recorded.returncode == 0, bare.stderr + recorded.stderr
    assert len(bits(bare.stdout)) == 2 and bits(recorded.stdout) == bits(bare.stdout)
    names = list(read(tmp_path)["data"])
    assert ("Mint.tanh.0.forward" in names) == (level != "L0") and "Mint.tanh.0.backward" not in names
    assert ("Mint.exp.0.backward" in names) == (level != "L0")  # outside of the inner gradient
    assert "in a grad() inside of a grad()" in recorded.stdout + recorded.stderr


@pytest.mark.parametrize("mode", ["no_change", "add_noise"])
def test_free_benchmark_leaves_gradients_and_weights_as_they_are(tmp_path, mode):
    """Not the loss: on the CPU MindSpore's own kernel for it gives two values for one input, by how often it ran (docs/collect-mindspore.md)."""
    part = {"list": [], "fuzz_device": "npu", "pert_mode": mode, "handler_type": "check", "fuzz_level": "L1", "fuzz_stage": "forward"}
    bare, checked = train("mlp", 12), train("mlp", 12, write_config(tmp_path, "free_benchmark", part=part))
    assert [line.split(" loss")[0] for line in bits(bare)] == [line.split(" loss")[0] for line in bits(checked)]


def test_files_are_valid_after_the_process_was_killed(tmp_path):
    done = run(tmp_path, "debugger.start()\nfor i in range(50):\n    mint.add(x, x)\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert done.returncode == -9
    for _ in range(100):
        data = read(tmp_path)["data"]
        if len(data) == 50:
            break
        time.sleep(0.1)
    assert list(data) == ["Mint.add.%d.forward" % i for i in range(50)]


def test_an_error_of_ours_is_told_once_and_training_goes_on(tmp_path):
    script = """
from msprobe.mindspore import calls
def broken(self, save):
    raise RuntimeError("planted")
calls.Call._measure_inputs = broken
debugger.start()
for i in range(3):
    y = mint.add(x, x)
print("sum", y.sum())
debugger.stop()
"""
    done = run(tmp_path, script)
    assert done.returncode == 0 and "sum 12" in done.stdout
    assert done.stdout.count("could not be recorded (RuntimeError: planted)") == 1
    assert (tmp_path / "dump/step0/rank/dump_error_info.log").read_text().count("planted") >= 3
    assert "output" in read(tmp_path)["data"]["Mint.add.2.forward"]


@pytest.mark.parametrize("place", ["calls.Call._measure_inputs", "calls.Call.conclude", "stacks.Stacks.here", "gradients.Gradients.follow_outputs"])
def test_what_a_handler_of_a_signal_raises_in_our_code_reaches_the_program(tmp_path, place):
    script = """
from msprobe.mindspore import calls, gradients, stacks
def handler(number, frame):
    raise TimeoutError("the program's")
signal.signal(signal.SIGALRM, handler)
def interrupted(*_):
    signal.raise_signal(signal.SIGALRM)
%s = interrupted
debugger.start()
try:
    mindspore.grad(lambda t: mint.exp(t).sum())(x)
    print("nothing came")
except TimeoutError as e:
    print("caught", e)
debugger.stop()
print(mint.exp(x).sum())
"""
    done = run(tmp_path, script % place)
    assert "caught the program's" in done.stdout, done.stdout + done.stderr


def test_a_disk_that_is_full_ends_recording_and_not_training(tmp_path):
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump/step0").write_text("no folder")
    done = run(tmp_path, "debugger.start()\nprint('sum', mint.add(x, x).sum())\ndebugger.stop()\ndebugger.step()\n")
    assert done.returncode == 0 and "sum 12" in done.stdout and "recording has ended" in done.stdout, done.stdout + done.stderr


def test_an_earlier_run_is_moved_aside(tmp_path):
    for name in ("add", "exp"):
        run(tmp_path, "debugger.start()\nmint.%s(*[x] * %d)\ndebugger.stop()\n" % (name, 1 + (name == "add")))
    assert list(read(tmp_path)["data"]) == ["Mint.exp.0.forward"]
    assert (tmp_path / "dump.older-1/step0/rank/dump.json").exists()


def test_hooks_on_parameters_and_launch_mode_are_as_before(tmp_path):
    script = """
from mindspore import Parameter
from mindspore._c_expression import RuntimeConf
w = Parameter(Tensor(np.full((2, 3), 3, np.float32)), name="w")
def hooks():
    return len(w.hooks()) if hasattr(w, "hooks") else 0
before, blocking = hooks(), RuntimeConf.get_instance().is_launch_blocking()
for i in range(3):
    debugger.start()
    mindspore.value_and_grad(lambda a: (a * ops.assign(w, w * 2)).sum(), None, [w])(x)
    debugger.stop()
    debugger.step()
print("hooks", before, hooks(), "blocking", blocking, RuntimeConf.get_instance().is_launch_blocking())
"""
    done = run(tmp_path, script)
    assert "hooks 0 0 blocking False False" in done.stdout, done.stdout + done.stderr
