"""torch_npu.hooks: the calls of its manual, its two example scripts, and its file's form."""
import csv
import json
import math
import os
import subprocess
import sys
import tarfile
import textwrap

import pytest
from collecting import IN_PLACE, R, in_process, torch

CASES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "legacy", "cases.tar.xz")


def record(folder, body, status=0, env=None):
    def run():
        os.chdir(folder)
        import msprobe.torch_npu_hooks

        return body(msprobe.torch_npu_hooks)

    got, output, value = in_process(folder, run, env)
    assert got == status, output
    return value, output


def lines(path):
    with open(path) as f:
        return [json.loads(text) for text in f]


def names(path):
    return [line[0] for line in lines(path)]


class TwoLayers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_1 = torch.nn.Linear(2, 2)
        self.linear_2 = torch.nn.Linear(2, 1)
        self.relu = torch.nn.ReLU()

    def forward(self, x):
        return self.relu(torch.sort(self.linear_2(self.linear_1(x)), dim=0)[0])


def test_a_step_is_written_as_the_tool_itself_wrote_it(tmp_path):
    with tarfile.open(CASES) as t:
        theirs = [json.loads(text) for text in t.extractfile("h01_real_small/bench.pkl").read().decode().splitlines()]
    given = [torch.tensor(values).reshape(shape) for name, values, _, shape in theirs if name.startswith("Functional_linear_forward_input")]

    def body(tool):
        net = TwoLayers()
        with torch.no_grad():
            for p, values in zip(net.parameters(), given[1:3] + given[4:6]):
                p.copy_(values)
        tool.register_acc_cmp_hook(net)
        tool.seed_all()
        tool.set_dump_path("./out.pkl")
        net(given[0]).sum().backward()

    record(tmp_path, body)
    ours = lines(tmp_path / "out.pkl")
    assert [line[0] for line in ours] == [line[0] for line in theirs]
    for a, b in zip(ours, theirs):
        assert a[2:] == b[2:] and a[1] == pytest.approx(b[1], rel=1e-6, abs=1e-7), (a, b)


def test_values_of_every_type_are_floats_in_the_line(tmp_path):
    def body(tool):
        tool.set_dump_path("./out.pkl")
        torch.abs(torch.tensor([1, -2]))
        torch.all(torch.tensor([True, False]))
        torch.abs(torch.tensor(0.1, dtype=torch.float64))
        torch.abs(torch.tensor([0.1], dtype=torch.bfloat16))
        torch.isnan(torch.tensor([float("nan"), float("inf"), -float("inf")]))
        torch.abs(torch.zeros(0, 3))
        torch.abs(torch.tensor([3 + 4j]))
        x = torch.tensor([-1.0, 2.0])
        torch.relu_(x)
        R(6)[::2].abs()

    record(tmp_path, body)
    text = (tmp_path / "out.pkl").read_text()
    assert '["Torch_isnan_forward_input.0", [NaN, Infinity, -Infinity], "torch.float32", [3]]' in text
    found = lines(tmp_path / "out.pkl")
    by_name = {}
    for name, *rest in found:
        by_name.setdefault(name, []).append(rest)
    absolute = by_name["Torch_abs_forward_input.0"]
    assert absolute[0] == [[1.0, -2.0], "torch.int64", [2]]
    assert absolute[1] == [[torch.tensor(0.1).item()], "torch.float64", []]
    assert absolute[2] == [[torch.tensor(0.1, dtype=torch.bfloat16).item()], "torch.bfloat16", [1]]
    assert absolute[3] == [[], "torch.float32", [0, 3]]
    assert absolute[4] == [[3.0], "torch.complex64", [1]]
    assert by_name["Torch_all_forward_input.0"] == [[[1.0, 0.0], "torch.bool", [2]]]
    assert by_name["Torch_relu__forward_input.0"] == [[[0.0, 2.0], "torch.float32", [2]]]  # read after the call
    assert by_name["Tensor_abs_forward_input.0"] == [[R(6)[::2].tolist(), "torch.float32", [3]]]


def test_nothing_is_written_before_a_path_is_set_and_none_changes_nothing(tmp_path):
    def body(tool):
        net = TwoLayers()
        tool.register_acc_cmp_hook(net)
        net(R(2, 2))
        tool.set_dump_path(None)
        net(R(2, 2))
        tool.set_dump_path("sub/out.pkl")
        torch.relu(R(2))
        tool.set_dump_path(None)
        torch.relu(R(2))
        return os.environ["DUMP_PATH"]

    assert record(tmp_path, body)[0] == "sub/out.pkl"
    assert names(tmp_path / "sub" / "out.pkl") == ["Torch_relu_forward_input.0", "Torch_relu_forward_output"] * 2


def test_a_run_without_a_path_says_at_its_end_that_nothing_was_recorded(tmp_path):
    def body(tool, path):
        net = TwoLayers()
        tool.register_acc_cmp_hook(net)
        tool.set_dump_path(path)
        net(torch.ones(2, 2))

    without_path = {"DUMP_PATH": ""}
    said = "nothing was recorded: set_dump_path() was never called"
    assert record(tmp_path, lambda tool: body(tool, None), env=without_path)[1].count(said) == 1
    assert "nothing was recorded" not in record(tmp_path, lambda tool: body(tool, "dump.pkl"), env=without_path)[1]


def test_a_path_can_be_switched_and_taken_up_again(tmp_path):
    def body(tool):
        for path, f in (("a.pkl", torch.relu), ("b.pkl", torch.exp), ("a.pkl", torch.tanh)):
            tool.set_dump_path(path)
            f(R(2))

    record(tmp_path, body, env=IN_PLACE)  # the functions are held by value
    assert [n.split("_")[1] for n in names(tmp_path / "a.pkl")] == ["relu", "relu", "tanh", "tanh"]
    assert [n.split("_")[1] for n in names(tmp_path / "b.pkl")] == ["exp", "exp"]


def test_a_file_of_an_earlier_run_is_kept_under_another_name(tmp_path):
    def body(tool):
        tool.set_dump_path("a.pkl")
        torch.relu(R(2))

    record(tmp_path, body)
    _, output = record(tmp_path, body)
    assert len(names(tmp_path / "a.pkl")) == 2 and "was there already" in output
    assert len([p for p in tmp_path.glob("a_*.pkl") if len(names(p)) == 2]) == 1


def test_a_model_is_needed(tmp_path):
    def body(tool):
        with pytest.raises(AssertionError):
            tool.register_acc_cmp_hook(len)
        os.mkdir("folder")
        with pytest.raises(RuntimeError, match="directory"):
            tool.set_dump_path("folder")

    record(tmp_path, body)


def test_one_front_end_records_in_a_process(tmp_path):
    def body(tool):
        tool.set_dump_path("a.pkl")
        import ptdbg_ascend

        with pytest.raises(Exception, match="another front end"):
            ptdbg_ascend.register_hook(TwoLayers(), ptdbg_ascend.acc_cmp_dump)

    record(tmp_path, body)


# ---- the old import path -------------------------------------------------------------------------------------------------------------------


def run_script(folder, text, *args, path=None):
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    paths = [str(path)] if path else []
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]))
    return subprocess.run([sys.executable, "-m", "msprobe.torch_npu_hooks", str(script), *args], cwd=folder, capture_output=True, text=True, timeout=600, env=env)


def test_an_old_script_runs_unchanged(tmp_path):
    done = run_script(tmp_path, """
        import sys, torch
        from torch_npu.hooks import set_dump_path, seed_all, register_acc_cmp_hook
        seed_all()
        set_dump_path("a.pkl")
        torch.relu(torch.ones(2))
        import torch_npu
        assert not hasattr(torch_npu, "npu")
        try:
            import torch_npu.other
        except ImportError:
            print(sys.argv[1:])
        """, "one", "two")
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "['one', 'two']", done.stdout + done.stderr
    assert len(names(tmp_path / "a.pkl")) == 2


def test_an_installed_torch_npu_is_not_hidden(tmp_path):
    package = tmp_path / "site" / "torch_npu"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("real = True\n")
    done = run_script(tmp_path, """
        from torch_npu.hooks import set_dump_path
        import torch_npu
        print(torch_npu.real, set_dump_path.__module__)
        """, path=tmp_path / "site")
    assert done.stdout.split() == ["True", "msprobe.torch_npu_hooks"], done.stdout + done.stderr
    (package / "hooks").mkdir()
    (package / "hooks" / "__init__.py").write_text("own = True\n")
    done = run_script(tmp_path, "import torch_npu.hooks; print(torch_npu.hooks.own)", path=tmp_path / "site")
    assert done.stdout.split() == ["True"], done.stdout + done.stderr


# ---- the manual's two scripts: a CPU against a CPU whose weights were touched ----------------------------------------------------------------

TWO_LAYERS = """
    import os
    import torch
    import torch.nn as nn

    from torch_npu.hooks import set_dump_path, seed_all, register_acc_cmp_hook
    from torch_npu.hooks.tools import compare


    class ModuleOP(nn.Module):

        def __init__(self) -> None:
            super().__init__()
            self.linear_1 = nn.Linear(in_features=2, out_features=2)
            self.linear_2 = nn.Linear(in_features=2, out_features=1)
            self.relu = nn.ReLU()

        def forward(self, x):
            x1 = self.linear_1(x)
            x2 = self.linear_2(x1)
            r1 = self.relu(x2)
            return r1


    module = ModuleOP()
    register_acc_cmp_hook(module)
    seed_all()
    x = torch.randn(2, 2)

    set_dump_path("./cpu_module_op.pkl")
    out = module(x)
    loss = out.sum()
    loss.backward()
    set_dump_path("./npu_module_op.pkl")

    for p in module.parameters():  # instead of module.npu() and x.npu(); NumPy, so that it is not recorded
        p.data.numpy()[...] *= 1.001
    out = module(x)
    loss = out.sum()
    loss.backward()

    compare("./npu_module_op.pkl", "./cpu_module_op.pkl", "./module_result.csv")
"""

RESNET = """
    import copy
    import sys
    import torch
    import torch.nn as nn

    from torch_npu.hooks import set_dump_path, seed_all, register_acc_cmp_hook
    from torch_npu.hooks.tools import compare

    WIDTH, SIZE = int(sys.argv[1]), int(sys.argv[2])


    class Bottleneck(nn.Module):
        def __init__(self, channels, width, stride=1, downsample=None):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
            self.conv3, self.bn3 = nn.Conv2d(width, width * 4, 1, bias=False), nn.BatchNorm2d(width * 4)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = downsample

        def forward(self, x):
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.relu(self.bn2(self.conv2(y)))
            y = self.bn3(self.conv3(y))
            y += x if self.downsample is None else self.downsample(x)
            return self.relu(y)


    class ResNet50(nn.Module):
        def __init__(self, width=64, classes=1000):
            super().__init__()
            self.conv1, self.bn1, self.relu = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            self.channels = width
            self.layer1, self.layer2 = self.layer(width, 3), self.layer(width * 2, 4, 2)
            self.layer3, self.layer4 = self.layer(width * 4, 6, 2), self.layer(width * 8, 3, 2)
            self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(width * 32, classes)

        def layer(self, width, blocks, stride=1):
            down = nn.Sequential(nn.Conv2d(self.channels, width * 4, 1, stride, bias=False), nn.BatchNorm2d(width * 4))
            found = [Bottleneck(self.channels, width, stride, down)]
            self.channels = width * 4
            return nn.Sequential(*found, *[Bottleneck(self.channels, width) for _ in range(1, blocks)])

        def forward(self, x):
            x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return self.fc(torch.flatten(self.avgpool(x), 1))


    model_cpu = ResNet50(WIDTH, 1000 * WIDTH // 64)
    model_cpu.eval()
    model_npu = copy.deepcopy(model_cpu)
    model_npu.eval()

    register_acc_cmp_hook(model_cpu)
    register_acc_cmp_hook(model_npu)
    seed_all()

    inputs = torch.randn(1, 3, SIZE, SIZE)
    labels = torch.randn(1).long()
    criterion = nn.CrossEntropyLoss()

    set_dump_path("./cpu_resnet50_op.pkl")
    output = model_cpu(inputs)
    loss = criterion(output, labels)
    loss.backward()

    set_dump_path("./npu_resnet50_op.pkl")
    model_npu.layer2[0].conv1.weight.data.numpy()[...] *= 1.001  # instead of model_npu.npu()
    output = model_npu(inputs)
    loss = criterion(output, labels)
    loss.backward()

    compare("./npu_resnet50_op.pkl", "./cpu_resnet50_op.pkl", "./resnet50_result.csv")
"""


def table(path):
    with open(path, newline="") as f:
        return list(csv.DictReader(f))


def test_the_manuals_first_script(tmp_path):
    done = run_script(tmp_path, TWO_LAYERS)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = table(tmp_path / "module_result.csv")
    assert list(rows[0]) == ["Name", "NPU Tensor Dtype", "Bench Tensor Dtype", "NPU Tensor Shape", "Bench Tensor Shape", "Cosine", "RMSE", "MAPE"]
    assert rows[0]["Name"] == "Functional_linear_forward_input.0" and float(rows[0]["RMSE"]) == 0
    weight = rows[1]
    assert abs(float(weight["Cosine"]) - 1) < 1e-6 and abs(float(weight["MAPE"].rstrip("%")) - 0.1) < 1e-3


def test_the_manuals_second_script(tmp_path):
    """ResNet-50 with an eighth of its channels: with all of them the two files of text have 3.7 GB."""
    done = run_script(tmp_path, RESNET, "8", "64")
    assert done.returncode == 0, done.stdout + done.stderr
    cpu, npu = names(tmp_path / "cpu_resnet50_op.pkl"), names(tmp_path / "npu_resnet50_op.pkl")
    assert cpu == npu and cpu.count("Functional_conv2d_forward_output") == 53 and cpu.count("Module_Bottleneck_forward_output") == 0
    rows = table(tmp_path / "resnet50_result.csv")
    assert len(rows) == len(cpu)
    wrong = next(i for i, row in enumerate(rows) if row["RMSE"] not in ("0.0", "cannot be calculated"))
    assert rows[wrong]["Name"] == "Functional_conv2d_forward_input.1"  # the weight that was touched
    assert sum(row["Name"] == "Functional_conv2d_forward_output" for row in rows[:wrong]) == 11


def test_compare_has_a_command_line(tmp_path):
    (tmp_path / "npu.pkl").write_text('["A_forward_input.0", [1.0, 2.0], "torch.float32", [2]]\n["A_forward_output", [1.0], "torch.float32", [1]]\n')
    (tmp_path / "bench.pkl").write_text('["A_forward_input.0", [1.0, 1.0], "torch.float32", [2]]\n["A_forward_output", [1.0], "torch.float32", [1]]\n')
    command = [sys.executable, "-m", "msprobe.torch_npu_hooks.tools", "--npu_pkl", "npu.pkl", "--bench_pkl", "bench.pkl", "--out_path", "out.csv"]
    for extra in ([], ["--shape"]):
        done = subprocess.run(command + extra, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = table(tmp_path / "out.csv")
        assert [row["MAPE"] for row in rows] == ["50.0%", "0.0%"] and math.isclose(float(rows[0]["RMSE"]), math.sqrt(0.5))
    done = subprocess.run(command[:5], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
