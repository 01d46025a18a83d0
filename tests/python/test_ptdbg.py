"""ptdbg_ascend: the calls of its manual, against what the tool itself wrote, and what must never happen to a training script."""
import io
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import time
import zlib

import pytest
from collecting import R, in_process, torch

numpy = pytest.importorskip("numpy")

DATA = pathlib.Path(__file__).parent.parent / "data" / "ptdbg_dump"
MODES = json.loads((DATA / "modes.json").read_text())
F = torch.nn.functional


class Net(torch.nn.Module):
    """The net whose dumps are in tests/data/ptdbg_dump."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)
        given = {k: torch.tensor(v) for k, v in json.loads((DATA / "net.json").read_text()).items()}
        with torch.no_grad():
            for name, p in (("w1", self.fc1.weight), ("b1", self.fc1.bias), ("w2", self.fc2.weight), ("b2", self.fc2.bias)):
                p.copy_(given[name])
        self.x, self.y = given["x"], given["y"]

    def forward(self, x):
        h = torch.relu(self.fc1(x))
        v, idx = torch.sort(h, dim=1)
        return self.fc2(v) + idx.sum(dim=1, keepdim=True) * 0.1

    def step(self):
        loss = F.mse_loss(self(self.x), self.y)
        loss.backward()
        return loss


def record(folder, body, status=0, env=None):
    """body(ptdbg_ascend) in a process of its own, in folder."""

    def run():
        os.chdir(folder)
        import ptdbg_ascend

        return body(ptdbg_ascend)

    got, output, value = in_process(folder, run, env)
    assert got == status, output
    return value, output


def dump(folder, body, hook="acc_cmp_dump", model=None, path="./out/dump.pkl", tag="tag", status=0, **options):
    def run(tool):
        tool.set_dump_path(path, dump_tag=tag)
        net = model() if model else torch.nn.Linear(2, 2)
        tool.register_hook(net, getattr(tool, hook), **options)
        return body(tool, net)

    return record(folder, run, status)


def lines(path):
    with open(path) as f:
        return [json.loads(text) for text in f if text.strip()]


def names(path):
    return [line[0] for line in lines(path)]


def rank_dir(folder, tag="tag", rank=0):
    return folder / "out" / ("%s_v2.3" % tag) / ("rank%s" % rank)


def close(a, b):
    """Statistics to the precision of float32: means are summed in another order."""
    if isinstance(b, list):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(b, float):
        return math.isclose(a, b, rel_tol=2e-5, abs_tol=1e-7)
    return a == b


def check_file(path, golden):
    ours, theirs = lines(path), lines(golden)
    assert [line[0] for line in ours] == [line[0] for line in theirs]
    for a, b in zip(ours, theirs):
        assert len(a) == len(b) and (len(a) == 2 or close(a[1:], b[1:])), (a, b)


# ---- what the tool itself wrote ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_mode_writes_what_the_tool_wrote(tmp_path, mode):
    case = MODES[mode]

    def body(tool, net):
        for _ in range(case["steps"]):
            tool.set_dump_switch("ON", **case["switch"])
            net.step()
            tool.set_dump_switch("OFF", **case["switch"])

    dump(tmp_path, body, model=Net)
    prefix = "api_stack_" if case["switch"]["mode"] == "api_stack" else ""
    folder = rank_dir(tmp_path)
    check_file(folder / (prefix + "dump.pkl"), DATA / (mode + ".pkl"))
    written = sorted(p.name for p in (folder / (prefix + "dump")).glob("*.npy"))
    if mode == "range_2steps":  # the tool deletes the tensors of the first step when the second begins; here they stay
        assert written == MODES["range"]["npy"]
    else:
        assert written == case["npy"]


def test_all_writes_what_the_tool_wrote_and_the_values_of_every_line(tmp_path):
    def body(tool, net):
        tool.set_dump_switch("ON")
        net.step()

    dump(tmp_path, body, model=Net)
    folder = rank_dir(tmp_path)
    check_file(folder / "dump.pkl", DATA / "all.pkl")
    for name, _, _, dtype, shape, stats in lines(folder / "dump.pkl"):
        values = numpy.load(folder / "dump" / (name + ".npy"))
        assert dtype == "torch.%s" % values.dtype and list(values.shape) == shape
        assert close(stats, [float(values.max()), float(values.min()), float(values.mean())])


def test_integers_and_numbers_are_written_as_the_tool_wrote_them(tmp_path):
    """Case p04 of tests/data/legacy: filter_switch "OFF"."""
    folder = "p04_filter_off/bench/tag_v2.3/rank0/"
    with tarfile.open(DATA.parent / "legacy" / "cases.tar.xz") as t:
        (tmp_path / "theirs.pkl").write_bytes(t.extractfile(folder + "dump.pkl").read())
        given = [numpy.load(io.BytesIO(t.extractfile(folder + "dump/Functional_linear_%d_forward_input.%d.npy" % at).read())) for at in
                 ((0, 1), (0, 2), (1, 1), (1, 2))]

    def body(tool, net):
        for p, values in zip(net.parameters(), given):
            p.data.numpy()[...] = values
        tool.set_dump_switch("ON", filter_switch="OFF")
        net.step()

    dump(tmp_path, body, model=Net)
    check_file(rank_dir(tmp_path) / "dump.pkl", tmp_path / "theirs.pkl")


def test_stack_lines_name_the_innermost_frame_first(tmp_path):
    def body(tool, net):
        tool.set_dump_switch("ON", mode="api_stack")
        net.step()

    dump(tmp_path, body, model=Net)
    found = {line[0]: line[1] for line in lines(rank_dir(tmp_path) / "api_stack_dump.pkl") if len(line) == 2}
    path, number, function, source = found["Torch_sort_0_forward_stack_info"][0]
    assert path == __file__ and number.isdigit() and function == "forward" and source == "v, idx = torch.sort(h, dim=1)"
    assert any(frame[2] == "step" and frame[3] == "loss.backward()" for frame in found["Torch_sort_0_backward_stack_info"])


def test_numbers_count_on_while_the_switch_is_off(tmp_path):
    def body(tool, net):
        net.step()
        tool.set_dump_switch("ON", dump_mode="forward")
        net.step()
        tool.set_dump_switch("OFF")
        net.step()
        tool.set_dump_switch("ON", dump_mode="forward")
        net.step()

    dump(tmp_path, body, model=Net)
    found = names(rank_dir(tmp_path) / "dump.pkl")
    assert [n for n in found if "relu" in n] == ["Torch_relu_%d_forward_%s" % (k, what) for k in (1, 3) for what in ("input.0", "output")]


def test_a_backward_is_written_when_the_switch_is_on_by_then(tmp_path):
    def body(tool, net):
        loss = F.mse_loss(net(net.x), net.y)
        tool.set_dump_switch("ON")
        loss.backward()

    dump(tmp_path, body, model=Net)
    assert "Torch_relu_0_backward_output.0" in names(rank_dir(tmp_path) / "dump.pkl")


def test_nested_arguments_numbers_and_types(tmp_path):
    def body(tool, _):
        tool.set_dump_switch("ON", filter_switch="OFF")
        x = torch.tensor([-1.0, 2.0])
        x.relu_()
        a = torch.tensor([1, 2, 3])
        a > 1
        torch.zeros(0, 3).add(1)
        torch.add(torch.tensor(2.0), 3)
        a[0:2]
        torch.cat([x, x])
        x.add(other=torch.ones(2), alpha=2)
        torch.max(torch.ones(2, 2), 1)

    dump(tmp_path, body)
    found = {line[0]: line[1:] for line in lines(rank_dir(tmp_path) / "dump.pkl")}
    f32, i64 = "torch.float32", "torch.int64"
    assert found == {
        "Tensor_relu__0_forward_input.0": [1, [], f32, [2], [2.0, 0.0, 1.0]], "Tensor_relu__0_forward_output": [1, [], f32, [2], [2.0, 0.0, 1.0]],
        "Tensor___gt___0_forward_input.0": [1, [], i64, [3], [3.0, 1.0, 2.0]], "Tensor___gt___0_forward_input.1": [1, [], "<class 'int'>", "[]", [1, 1, 1]],
        "Tensor___gt___0_forward_output": [1, [], "torch.bool", [3], [[], [], []]],
        "Tensor_add_0_forward_input.0": [1, [], f32, [0, 3], [[], [], []]], "Tensor_add_0_forward_input.1": [1, [], "<class 'int'>", "[]", [1, 1, 1]],
        "Tensor_add_0_forward_output": [1, [], f32, [0, 3], [[], [], []]],
        "Torch_add_0_forward_input.0": [1, [], f32, [], [2.0, 2.0, 2.0]], "Torch_add_0_forward_input.1": [1, [], "<class 'int'>", "[]", [3, 3, 3]],
        "Torch_add_0_forward_output": [1, [], f32, [], [5.0, 5.0, 5.0]],
        "Tensor___getitem___0_forward_input.0": [1, [], i64, [3], [3.0, 1.0, 2.0]], "Tensor___getitem___0_forward_output": [1, [], i64, [2], [2.0, 1.0, 1.5]],
        "Torch_cat_0_forward_input.0.0": [1, [], f32, [2], [2.0, 0.0, 1.0]], "Torch_cat_0_forward_input.0.1": [1, [], f32, [2], [2.0, 0.0, 1.0]],
        "Torch_cat_0_forward_output": [1, [], f32, [4], [2.0, 0.0, 1.0]],
        "Tensor_add_1_forward_input.0": [1, [], f32, [2], [2.0, 0.0, 1.0]], "Tensor_add_1_forward_output": [1, [], f32, [2], [4.0, 2.0, 3.0]],
        "Torch_max_0_forward_input.0": [1, [], f32, [2, 2], [1.0, 1.0, 1.0]], "Torch_max_0_forward_input.1": [1, [], "<class 'int'>", "[]", [1, 1, 1]],
        "Torch_max_0_forward_output.0": [1, [], f32, [2], [1.0, 1.0, 1.0]], "Torch_max_0_forward_output.1": [1, [], i64, [2], [0.0, 0.0, 0.0]],
    }
    folder = rank_dir(tmp_path) / "dump"
    assert sorted(p.name for p in folder.iterdir()) == sorted(n + ".npy" for n in found)
    scalar = numpy.load(folder / "Torch_add_0_forward_input.1.npy")
    assert scalar.shape == () and scalar.dtype == numpy.int64 and scalar == 3


def test_inner_calls_stand_before_the_outer_one(tmp_path):
    def body(tool, _):
        tool.set_dump_switch("ON")
        F.relu(R(3))

    dump(tmp_path, body)
    assert [n for n in names(rank_dir(tmp_path) / "dump.pkl") if n.endswith("output")] == ["Torch_relu_0_forward_output", "Functional_relu_0_forward_output"]


# ---- settings -----------------------------------------------------------------------------------------------------------------------------


def test_without_set_dump_path_the_file_is_anonymous_in_the_current_folder(tmp_path):
    def body(tool):
        tool.register_hook(torch.nn.Linear(2, 2), tool.acc_cmp_dump)
        tool.set_dump_switch("ON")
        torch.relu(R(2))

    record(tmp_path, body)
    assert names(tmp_path / "ptdbg_dump_v2.3" / "rank0" / "anonymous.pkl")


def test_dump_step_is_the_second_element_and_rank_names_the_folder(tmp_path):
    def body(tool, _):
        tool.set_dump_switch("ON")
        torch.relu(R(2))

    dump(tmp_path, body, rank="3", dump_step=7)
    assert {line[1] for line in lines(rank_dir(tmp_path, rank=3) / "dump.pkl")} == {7}


def test_a_launcher_says_the_rank_of_a_model_on_the_cpu(tmp_path):
    def body(tool, _):
        tool.set_dump_switch("ON")
        torch.relu(R(2))

    def run(tool):
        tool.set_dump_path("./out/dump.pkl", dump_tag="tag")
        tool.register_hook(torch.nn.Linear(2, 2), tool.acc_cmp_dump)
        body(tool, None)

    record(tmp_path, run, env={"LOCAL_RANK": "5"})
    assert names(rank_dir(tmp_path, rank=5) / "dump.pkl")


def test_an_api_list_selects_names_of_several_words_and_one_letter(tmp_path):
    def body(tool, _):
        tool.set_dump_switch("ON", mode="api_list", api_list=["T", "adaptive_avg_pool2d", "add"])
        F.adaptive_avg_pool2d(R(1, 2, 4, 4), 2)
        torch.t(R(2, 3))
        R(2) + 1
        torch.relu(R(2))
        tool.set_dump_switch("OFF", mode="api_list", api_list=["t"])
        torch.t(R(2, 3))

    dump(tmp_path, body)
    calls = {n.rpartition("_")[0] for n in names(rank_dir(tmp_path) / "dump.pkl")}
    assert calls == {"Functional_adaptive_avg_pool2d_0_forward", "Torch_t_0_forward", "Tensor___add___0_forward"}


WRONG_SWITCHES = [
    dict(switch="on"), dict(switch="ON", mode="some"), dict(switch="ON", filter_switch="no"), dict(switch="ON", dump_mode="input"),
    dict(switch="ON", mode="range", scope=["a"]), dict(switch="ON", mode="list"), dict(switch="ON", mode="stack", scope=["a", "b", "c"]),
    dict(switch="ON", mode="acl"), dict(switch="ON", mode="api_list"), dict(switch="ON", mode="list", scope=[1]),
]


def test_wrong_arguments_are_errors_with_the_code_of_the_tool(tmp_path):
    def body(tool):
        model = torch.nn.Linear(2, 2)

        def code(call):
            try:
                call()
            except tool.CompareException as e:
                return e.code
            except (RuntimeError, AssertionError) as e:
                return type(e).__name__

        switches = [code(lambda: tool.set_dump_switch(**kw)) for kw in WRONG_SWITCHES]
        os.mkdir("folder")
        open("config.txt", "w").close()
        others = [
            code(tool.set_dump_path), code(lambda: tool.set_dump_path("folder")), code(lambda: tool.register_hook(len, tool.acc_cmp_dump)),
            code(lambda: tool.register_hook(model, tool.acc_cmp_dump, dump_mode="both")), code(lambda: tool.register_hook(model, tool.acc_cmp_dump, dump_mode="acl")),
            code(lambda: tool.register_hook(model, tool.acc_cmp_dump, dump_mode="acl", dump_config="./none.json")),
            code(lambda: tool.register_hook(model, tool.acc_cmp_dump, dump_mode="acl", dump_config="config.txt")),
            code(lambda: tool.register_hook(model, print)), code(lambda: tool.set_overflow_check_switch("on")),
            code(lambda: tool.set_overflow_check_switch("ON", "off")),
        ]
        return switches, others

    (switches, others), output = record(tmp_path, body)
    assert switches == [11] * len(WRONG_SWITCHES)
    assert others == ["RuntimeError", 1, "AssertionError", 11, 11, 1, 11, 11, "AssertionError", "AssertionError"]
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\(\d+\)-\[ERROR\]set_dump_switch: mode is 'some'", output, re.M)


def test_an_uncaught_error_is_an_exit_status(tmp_path):
    record(tmp_path, lambda tool: tool.set_dump_switch("on"), status=1)


@pytest.mark.parametrize("how, asked, near", [
    (dict(mode="list", scope=["Torch_rlu_1_forward"]), "mode 'list' selects Torch_rlu_1_forward", "Torch_relu_0_forward"),
    (dict(mode="api_list", api_list=["lineer"]), "mode 'api_list' selects lineer", "Functional_linear_0_forward"),
    (dict(mode="stack", scope=["Torch_sort_7", "Torch_relu_9"]), "mode 'stack' selects Torch_sort_7, Torch_relu_9", "Torch_sort_0_forward")])
def test_a_switch_that_selects_nothing_says_so_with_the_nearest_names(tmp_path, how, asked, near):
    def body(p):
        net = Net()
        p.set_dump_path("dump.pkl")
        p.register_hook(net, p.acc_cmp_dump)
        for _ in range(2):
            p.set_dump_switch("ON", **how)
            net.step()
            p.set_dump_switch("OFF")

    said = [line for line in record(tmp_path, body)[1].splitlines() if "Nothing was recorded" in line]
    assert len(said) == 2, "at the first OFF, and at the end"
    assert asked in said[0] and near in said[0].partition("were called: ")[2].partition(",")[0]


def test_a_switch_that_was_never_turned_on_is_said_at_the_end(tmp_path):
    def body(p):
        net = Net()
        p.set_dump_path("dump.pkl")
        p.register_hook(net, p.acc_cmp_dump)
        net.step()

    output = record(tmp_path, body)[1]
    assert output.count('Nothing was recorded: set_dump_switch("ON") was never called') == 1


def test_what_selects_something_is_silent(tmp_path):
    def body(p):
        net = Net()
        p.set_dump_path("dump.pkl")
        p.register_hook(net, p.acc_cmp_dump)
        p.set_dump_switch("ON", mode="stack", scope=["Torch_relu_0"])
        net.step()
        p.set_dump_switch("OFF")

    assert "Nothing was recorded" not in record(tmp_path, body)[1]


def test_seed_all_fixes_the_random_numbers(tmp_path):
    def body(tool):
        tool.seed_all(seed=7)
        first = torch.randn(3), numpy.random.rand(3)
        tool.seed_all(seed=7, mode=True)
        again = torch.randn(3), numpy.random.rand(3)
        return bool((first[0] == again[0]).all()), bool((first[1] == again[1]).all()), torch.are_deterministic_algorithms_enabled(), os.environ["PYTHONHASHSEED"]

    assert record(tmp_path, body)[0] == (True, True, True, "7")


# ---- nothing is lost, nothing breaks ----------------------------------------------------------------------------------------------------


def test_bfloat16_complex_and_odd_tensors_are_no_reason_to_stop(tmp_path):
    def body(tool, _):
        tool.set_dump_switch("ON", filter_switch="OFF")
        torch.relu(R(4, dtype=torch.bfloat16))
        torch.sum(torch.tensor([3 + 4j, 0j]))
        torch.relu(R(3, dtype=torch.float64))
        torch.neg(R(3, dtype=torch.float16))
        torch.abs(torch.empty(2, device="meta"))
        torch.add(torch.zeros(2, 2), torch.sparse_coo_tensor([[0], [1]], [2.0], (2, 2)))
        torch.relu(R(6)[::2])
        torch.isinf(torch.tensor([float("inf"), float("nan"), 1.0]))
        if hasattr(torch, "vmap"):  # not in torch 1.13
            torch.vmap(torch.relu)(R(2, 2))

    dump(tmp_path, body)
    folder = rank_dir(tmp_path)
    found = {line[0]: line for line in lines(folder / "dump.pkl")}
    wide = numpy.load(folder / "dump" / "Torch_relu_0_forward_input.0.npy")
    assert found["Torch_relu_0_forward_input.0"][3] == "torch.bfloat16" and wide.dtype == numpy.float32
    assert (wide == R(4, dtype=torch.bfloat16).float().numpy()).all()
    assert found["Torch_sum_0_forward_input.0"][3:] == ["torch.complex64", [2], [5.0, 0.0, 2.5]]
    assert numpy.load(folder / "dump" / "Torch_sum_0_forward_input.0.npy").dtype == numpy.complex64
    assert numpy.load(folder / "dump" / "Torch_neg_0_forward_input.0.npy").dtype == numpy.float16
    assert (numpy.load(folder / "dump" / "Torch_relu_2_forward_input.0.npy") == R(6)[::2].numpy()).all()
    stats = found["Torch_isinf_0_forward_input.0"][5]
    assert not all(math.isfinite(v) for v in stats)


def test_large_tensors_have_their_values_too(tmp_path):
    def body(tool, _):
        tool.set_dump_switch("ON")
        torch.relu(R(300, 400))
        torch.relu(R(400, 800, dtype=torch.bfloat16).t())

    dump(tmp_path, body)
    folder = rank_dir(tmp_path) / "dump"
    assert (numpy.load(folder / "Torch_relu_0_forward_input.0.npy") == R(300, 400).numpy()).all()
    assert (numpy.load(folder / "Torch_relu_1_forward_input.0.npy") == R(400, 800, dtype=torch.bfloat16).t().float().numpy()).all()


def test_a_second_pass_over_a_graph_has_names_of_its_own(tmp_path):
    def body(tool, _):
        x = R(3, grad=True)
        tool.set_dump_switch("ON", mode="api_list", api_list=["exp"])
        y = torch.exp(x).sum()
        y.backward(retain_graph=True)
        y.backward()

    dump(tmp_path, body)
    found = names(rank_dir(tmp_path) / "dump.pkl")
    assert len(found) == len(set(found))
    assert {"Torch_exp_0_backward_output.0", "Torch_exp_0_backward_1_output.0"} <= set(found)


def test_a_name_without_extension_gets_one(tmp_path):
    def body(tool, _):
        tool.set_dump_switch("ON")
        torch.relu(R(2))

    _, output = dump(tmp_path, body, path="./out/dump")
    folder = rank_dir(tmp_path)
    assert sorted(p.name for p in folder.iterdir()) == ["dump", "dump.pkl"] and "no extension" in output


def test_an_earlier_dump_is_moved_away_and_not_overwritten(tmp_path):
    def body(tool, _):
        tool.set_dump_switch("ON", mode="api_stack")
        torch.relu(R(2))
        tool.set_dump_switch("ON")
        torch.exp(R(2))

    dump(tmp_path, body)
    before = {p.name: p.read_bytes() for p in rank_dir(tmp_path).rglob("*") if p.is_file()}
    _, output = dump(tmp_path, body)
    assert names(rank_dir(tmp_path) / "dump.pkl") == ["Torch_exp_0_forward_input.0", "Torch_exp_0_forward_output"]
    assert len(names(rank_dir(tmp_path) / "api_stack_dump.pkl")) == 3
    old = {p.name: p.read_bytes() for folder in (tmp_path / "out").glob("tag_v2.3_*") for p in folder.rglob("*") if p.is_file()}
    assert old == before and "was there already" in output
    dump(tmp_path, body)
    assert len([p for p in (tmp_path / "out").rglob("dump.pkl")]) == 3


def test_two_processes_on_one_path_write_two_files(tmp_path):
    def body(tool, _):
        tool.set_dump_switch("ON")
        torch.relu(R(2))
        script = tmp_path / "second.py"
        script.write_text("import torch\nimport ptdbg_ascend as tool\n"
                          "tool.set_dump_path(%r, dump_tag='tag')\n" % str(tmp_path / "out" / "dump.pkl") +
                          "tool.register_hook(torch.nn.Linear(2, 2), tool.acc_cmp_dump)\ntool.set_dump_switch('ON')\ntorch.exp(torch.ones(2))\n")
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=600)
        torch.relu(R(2))
        return done.returncode, done.stdout + done.stderr

    (status, output), _ = dump(tmp_path, body)
    assert status == 0 and "Another process writes" in output, output
    folder = rank_dir(tmp_path)
    files = sorted(p.name for p in folder.glob("*.pkl"))
    assert len(files) == 2 and re.fullmatch(r"dump_pid\d+.pkl", files[1])
    assert names(folder / "dump.pkl") == ["Torch_relu_%d_forward_%s" % (k, w) for k in (0, 1) for w in ("input.0", "output")]
    assert names(folder / files[1]) == ["Torch_exp_0_forward_input.0", "Torch_exp_0_forward_output"]
    assert len(list((folder / files[1][:-4]).glob("*.npy"))) == 2


def test_a_folder_that_cannot_be_made_does_not_end_training(tmp_path):
    (tmp_path / "file").write_text("")

    def body(tool, _):
        tool.set_dump_switch("ON")
        torch.relu(R(2))
        tool.set_dump_switch("OFF")
        tool.set_dump_switch("ON")
        return torch.relu(R(2)).tolist()

    value, output = dump(tmp_path, body, path="./file/dump.pkl")
    assert value == torch.relu(R(2)).tolist() and output.count("recording has ended") == 1


def test_a_failing_call_is_the_programs_own_affair(tmp_path):
    def body(tool, _):
        tool.set_dump_switch("ON")
        with pytest.raises(RuntimeError, match="must match"):
            torch.add(R(2), R(3))
        torch.add(R(2), R(2))

    dump(tmp_path, body)
    assert {n.rpartition("_")[0] for n in names(rank_dir(tmp_path) / "dump.pkl")} == {"Torch_add_1_forward"}


def train_bits(net, steps=3):
    opt = torch.optim.Adam(net.parameters(), lr=0.1)
    drop = torch.nn.Dropout(0.3)
    for _ in range(steps):
        opt.zero_grad()
        F.mse_loss(drop(net(net.x)), net.y).backward()
        opt.step()
    data = b"".join(p.detach().numpy().tobytes() for p in net.parameters())
    return zlib.crc32(data), zlib.crc32(torch.get_rng_state().numpy().tobytes())


@pytest.mark.parametrize("mode", [dict(), dict(mode="api_stack", filter_switch="OFF"), dict(mode="range", scope=["Torch_relu_0", "Torch_sort_1"])])
def test_the_bits_of_training_do_not_change(tmp_path, mode):
    def with_tool(tool, net):
        tool.seed_all()
        tool.set_dump_switch("ON", **mode)
        return train_bits(net)

    def without(tool):
        net = Net()
        tool.seed_all()
        return train_bits(net)

    assert dump(tmp_path, with_tool, model=Net)[0] == record(tmp_path, without)[0]


def test_data_loader_workers_write_nothing(tmp_path):
    def body(tool, _):
        tool.set_dump_switch("ON")
        pid = os.fork()
        if pid == 0:
            torch.exp(R(2))
            os._exit(0)
        os.waitpid(pid, 0)
        torch.relu(R(2))

    dump(tmp_path, body)
    assert {n.rpartition("_")[0] for n in names(rank_dir(tmp_path) / "dump.pkl")} == {"Torch_relu_0_forward"}


def test_what_was_recorded_is_in_the_files_after_a_kill(tmp_path):
    def body(tool, _):
        tool.set_dump_switch("ON")
        for _ in range(50):
            torch.relu(R(3))
        os.kill(os.getpid(), 9)

    dump(tmp_path, body, status=-9)
    path = rank_dir(tmp_path) / "dump.pkl"
    end = time.monotonic() + 20
    while time.monotonic() < end and (not path.exists() or len(names(path)) < 100):
        time.sleep(0.1)
    assert len(names(path)) == 100 and len(list((rank_dir(tmp_path) / "dump").glob("*.npy"))) == 100
