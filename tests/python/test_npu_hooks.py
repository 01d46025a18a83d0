"""torch_npu.hooks: the calls of its manual, its two example scripts, and its file's form."""
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
from collecting import R, in_process, torch

F = torch.nn.functional


def record(folder, body, status=0):
    def run():
        os.chdir(folder)
        import msprobe.torch_npu_hooks

        return body(msprobe.torch_npu_hooks)

    got, output, value = in_process(folder, run)
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


def test_lines_are_those_of_the_tool_in_its_order(tmp_path):
    def body(tool):
        net = TwoLayers()
        with torch.no_grad():
            net.linear_2.bias.fill_(10.0)
        tool.register_acc_cmp_hook(net)
        tool.seed_all()
        tool.set_dump_path("./out.pkl")
        net(R(2, 2)).sum().backward()

    record(tmp_path, body)
    x = R(2, 2).flatten().tolist()
    found = lines(tmp_path / "out.pkl")
    assert found[0] == ["Functional_linear_forward_input.0", x, "torch.float32", [2, 2]]
    forward = ["Functional_linear_forward", "Module_Linear_forward"] * 2 + ["Torch_sort_forward", "Torch_relu_forward", "Functional_relu_forward",
                                                                          "Module_ReLU_forward", "Tensor_sum_forward", "Torch_ones_like_forward"]
    backward = ["Tensor_sum_backward", "Torch_relu_backward", "Functional_relu_backward", "Module_ReLU_backward", "Torch_sort_backward"] + [
        "Functional_linear_backward", "Module_Linear_backward"] * 2
    calls = [line[0].rpartition("_")[0] for line in found]
    assert [c for i, c in enumerate(calls) if i == 0 or c != calls[i - 1]] == forward + backward
    by_name = {}
    for name, values, dtype, shape in found:
        by_name.setdefault(name, []).append((values, dtype, shape))
    assert by_name["Torch_sort_forward_output.1"][0][1] == "torch.int64" and by_name["Tensor_sum_forward_output"][0][2] == []
    # backward: input is what leaves the call, output what entered it
    assert by_name["Tensor_sum_backward_input.0"][0] == ([1.0, 1.0], "torch.float32", [2, 1])
    assert by_name["Tensor_sum_backward_output.0"][0] == ([1.0], "torch.float32", [])


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


def test_a_path_can_be_switched_and_taken_up_again(tmp_path):
    def body(tool):
        for path, f in (("a.pkl", torch.relu), ("b.pkl", torch.exp), ("a.pkl", torch.tanh)):
            tool.set_dump_path(path)
            f(R(2))

    record(tmp_path, body)
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
    env = dict(os.environ, **({"PYTHONPATH": str(path)} if path else {}))
    return subprocess.run([sys.executable, "-m", "msprobe.torch_npu_hooks", str(script), *args], cwd=folder, capture_output=True, text=True, timeout=240, env=env)


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
