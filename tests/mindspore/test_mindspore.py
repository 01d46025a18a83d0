"""Collecting from MindSpore: names, values, gradients, and that the run is not changed."""
import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def train(*words, check=True):
    """Run train.py; returns its output."""
    done = subprocess.run([sys.executable, str(HERE / "train.py"), *map(str, words)], capture_output=True, text=True, timeout=500)
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def bits(output):
    return [line for line in output.splitlines() if line.startswith("bits")]


def write_config(folder, task="statistics", level="L1", part=None, **common):
    config = {"task": task, "dump_path": str(folder / "dump"), "rank": [], "step": [], "level": level, task: part or {}}
    config.update(common)
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def read(folder, step=0, file="dump.json"):
    return json.loads((folder / "dump" / ("step%d" % step) / "rank" / file).read_text())


MLP = """Primitive.shape_op.Shape.0.forward Primitive.matmul.MatMul.0.forward Primitive.bias_add.BiasAdd.0.forward Primitive.relu.ReLU.0.forward
Primitive.shape_op.Shape.1.forward Primitive.matmul.MatMul.1.forward Primitive.bias_add.BiasAdd.1.forward Functional.gelu.0.forward Primitive.add.Add.0.forward
Primitive.shape_op.Shape.2.forward Primitive.matmul.MatMul.2.forward Primitive.bias_add.BiasAdd.2.forward Functional.cross_entropy.0.forward
Functional.cross_entropy.0.backward Primitive.bias_add.BiasAdd.2.backward Primitive.matmul.MatMul.2.backward Primitive.add.Add.0.backward
Functional.gelu.0.backward Primitive.bias_add.BiasAdd.1.backward Primitive.matmul.MatMul.1.backward Primitive.relu.ReLU.0.backward
Primitive.bias_add.BiasAdd.0.backward Primitive.matmul.MatMul.0.backward Jit.SGD.0.forward""".split()


def test_level_L1_has_the_names_of_the_original(tmp_path):
    train("mlp", 1, write_config(tmp_path))
    dump = read(tmp_path)
    assert (dump["task"], dump["level"], dump["framework"], dump["dump_data_dir"]) == ("statistics", "L1", "mindspore", None)
    names = list(dump["data"])
    assert [n for n in names if not n.startswith("Jit")] == MLP[:-1]  # later releases of MindSpore compile no optimizer
    assert read(tmp_path, file="construct.json") == {}
    stack = read(tmp_path, file="stack.json")
    assert any("golden_models.py" in frame and "in construct" in frame for _, frames in stack.values() for frame in frames)


def test_gradients_stand_in_argument_order_with_null_where_there_is_none(tmp_path):
    train("mlp", 1, write_config(tmp_path))
    data = read(tmp_path)["data"]
    shapes = [leaf and leaf["shape"] for leaf in data["Primitive.bias_add.BiasAdd.0.backward"]["output"]]
    assert shapes == [[4, 16], [16]]
    x, weight = data["Primitive.matmul.MatMul.0.backward"]["output"]
    assert x is None and weight["shape"] == [16, 8]
    assert [leaf and leaf["shape"] for leaf in data["Functional.cross_entropy.0.backward"]["output"]] == [[4, 4], None]


def test_level_mix_has_cells_their_parameters_and_who_called_whom(tmp_path):
    train("mlp", 1, write_config(tmp_path, level="mix"))
    data, construct = read(tmp_path)["data"], read(tmp_path, file="construct.json")
    cell = data["Cell.fc1.Dense.forward.0"]
    assert sorted(cell) == ["input_args", "input_kwargs", "output", "parameters"] and sorted(cell["parameters"]) == ["bias", "weight"]
    assert [leaf["shape"] for leaf in data["Cell.fc2.Dense.parameters_grad"]["weight"]] == [[16, 16]]
    assert construct["Primitive.matmul.MatMul.1.forward"] == "Cell.fc2.Dense.forward.0"
    assert construct["Primitive.matmul.MatMul.1.backward"] == "Cell.fc2.Dense.backward.0"
    assert construct["Cell.fc2.Dense.forward.0"] is None
    assert data["Cell.fc1.Dense.backward.0"]["output"] == [None]


def test_level_L0_has_cells_and_no_api(tmp_path):
    train("enc", 1, write_config(tmp_path, level="L0"))
    names = list(read(tmp_path)["data"])
    assert names and all(n.startswith("Cell.") for n in names)
    assert "Cell.layers.1.attn.Attention.forward.0" in names and "Cell.layers.1.attn.Attention.backward.0" in names
    assert "Cell.layers.1.attn.qkv.Linear.parameters_grad" in names


def test_saved_tensors_are_what_the_statistics_say(tmp_path):
    train("enc", 1, write_config(tmp_path, task="tensor"))
    leaves = []

    def walk(value):
        if isinstance(value, dict) and "data_name" in value:
            leaves.append(value)
        elif isinstance(value, (dict, list)):
            for v in value.values() if isinstance(value, dict) else value:
                walk(v)

    walk(read(tmp_path)["data"])
    assert len(leaves) > 100
    for leaf in leaves:
        array = np.load(tmp_path / "dump/step0/rank/dump_tensor_data" / leaf["data_name"])
        assert list(array.shape) == leaf["shape"]
        assert leaf["Max"] == array.max() and leaf["Min"] == array.min()
        assert leaf["Norm"] == pytest.approx(np.linalg.norm(array.astype(np.float64).reshape(-1)), rel=1e-6)


def test_checksums_are_those_of_the_bytes(tmp_path):
    import zlib

    sys.path.insert(0, str(HERE))
    import golden_models

    train("mlp", 1, write_config(tmp_path, part={"summary_mode": "md5"}))
    leaf = read(tmp_path)["data"]["Primitive.matmul.MatMul.0.forward"]["input_args"][0]
    assert leaf["md5"] == "%08x" % zlib.crc32(golden_models.batch("mlp", 0)[0].asnumpy().tobytes())


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


@pytest.mark.parametrize("mode", ["no_change", "add_noise"])
def test_free_benchmark_leaves_gradients_and_weights_as_they_are(tmp_path, mode):
    """Not the loss: on the CPU MindSpore's own kernel for it gives two values for one input, by how often it ran (docs/collect-mindspore.md)."""
    part = {"list": [], "fuzz_device": "npu", "pert_mode": mode, "handler_type": "check", "fuzz_level": "L1", "fuzz_stage": "forward"}
    bare, checked = train("mlp", 12), train("mlp", 12, write_config(tmp_path, "free_benchmark", part=part))
    assert [line.split(" loss")[0] for line in bits(bare)] == [line.split(" loss")[0] for line in bits(checked)]


def test_structure_has_no_data(tmp_path):
    train("mlp", 1, write_config(tmp_path, task="structure"))
    assert read(tmp_path)["data"] == {}
    assert read(tmp_path, file="construct.json")["Primitive.matmul.MatMul.1.forward"] == "Cell.fc2.Dense.forward.0"


def test_an_overflow_is_found_where_it_is_produced_and_training_stops(tmp_path):
    output = train("mlp", 1, write_config(tmp_path, task="overflow_check", part={"overflow_nums": 1}), "inf", check=False)
    assert "1 overflow(s)" in output and "bits" not in output
    data = read(tmp_path)["data"]
    assert list(data) == ["Primitive.matmul.MatMul.0.forward"]
    name = data["Primitive.matmul.MatMul.0.forward"]["output"][0]["data_name"]
    assert not np.isfinite(np.load(tmp_path / "dump/step0/rank/dump_tensor_data" / name)).all()


def test_filters_select_steps_names_ranges_and_sides(tmp_path):
    train("mlp", 3, write_config(tmp_path, part={"list": ["MatMul"], "data_mode": ["forward", "output"]}, step=[1]))
    assert sorted(os.listdir(tmp_path / "dump")) == ["step1"]
    data = read(tmp_path, 1)["data"]
    assert list(data) == ["Primitive.matmul.MatMul.%d.forward" % i for i in range(3)]
    assert list(data["Primitive.matmul.MatMul.0.forward"]) == ["output"]
    folder = tmp_path / "scope"
    folder.mkdir()
    train("mlp", 1, write_config(folder, part={"scope": ["Functional.gelu.0.forward", "Primitive.matmul.MatMul.2.forward"]}))
    assert list(read(folder)["data"]) == MLP[7:11]


def test_without_the_model_there_are_no_primitives(tmp_path):
    train("mlp", 1, write_config(tmp_path), "no-model")
    assert not [n for n in read(tmp_path)["data"] if n.startswith("Primitive")]


def test_free_benchmark_lists_what_changes(tmp_path):
    part = {"pert_mode": "change_value", "list": ["mindspore.ops.gelu", "Functional.cross_entropy"]}
    output = train("mlp", 2, write_config(tmp_path, task="free_benchmark", part=part), "check-undo")
    assert bits(output) == bits(train("mlp", 2)) and "undone" in output  # the program gets the first result
    with open(tmp_path / "dump/free_benchmark.csv", newline="") as f:
        rows = list(csv.DictReader(f))
    assert list(rows[0]) == ["rank", "pert_mode", "stage", "step", "api_name", "max_rel", "dtype", "shape", "output_index"]
    first = rows[0]
    assert (first["api_name"], first["stage"], first["step"], first["dtype"], first["shape"]) == ("Functional.gelu.0", "forward", "0", "Float32", "(4, 16)")
    assert {r["step"] for r in rows} == {"0", "1"}


def test_free_benchmark_without_a_difference_writes_nothing(tmp_path):
    train("mlp", 1, write_config(tmp_path, task="free_benchmark", part={"pert_mode": "no_change"}))
    assert not (tmp_path / "dump/free_benchmark.csv").exists()


WRONG = [
    ("graph", dict(level="L2", task="tensor", dump_path="dump"), "dump_path is"),
    ("graph", dict(level="L2", task="tensor", part={"data_mode": ["input", "output"]}), "data_mode is"),
    ("graph", dict(level="L1", task="tensor"), 'level is "L1"'),
    ("graph", dict(level="L2", task="statistics"), 'task is "statistics"'),
    ("graph", dict(level="L2", task="free_benchmark"), 'task is "free_benchmark"'),
    ("", dict(level="L2", task="tensor", part={"list": ["Mint.add.0.forward"]}), 'level is "L2"'),
    ("", dict(level="L7"), 'level is "L7"'),
    ("", dict(task="run_ut"), 'task is "run_ut"'),
    ("", dict(task="free_benchmark", part={"handler_type": "fix", "pert_mode": "add_noise"}), 'handler_type is "fix"'),
    ("", dict(task="free_benchmark", part={"pert_mode": "to_cpu"}), 'pert_mode is "to_cpu"'),
    ("", dict(task="free_benchmark", part={"fuzz_device": "cpu"}), 'fuzz_device is "cpu"'),
    ("", dict(task="free_benchmark", part={"fuzz_stage": "backward"}), 'fuzz_stage is "backward"'),
    ("", dict(task="overflow_check", part={"overflow_nums": 0}), "overflow_nums is 0"),
    ("", dict(part={"summary_mode": "sha1"}), 'summary_mode is "sha1"'),
    ("", dict(part={"scope": ["a"]}), "scope"),
    ("", dict(enable_dataloader=True), "enable_dataloader"),
]


@pytest.mark.parametrize("mode, wrong, text", WRONG)
def test_a_wrong_value_is_named_before_training(tmp_path, mode, wrong, text):
    config = write_config(tmp_path, **wrong)
    script = """import sys, mindspore
mindspore.set_context(mode=mindspore.GRAPH_MODE if sys.argv[2] else mindspore.PYNATIVE_MODE)
from msprobe.mindspore import PrecisionDebugger
from msprobe.core.common.exceptions import MsprobeException, ScopeException
try:
    PrecisionDebugger(config_path=sys.argv[1])
except (MsprobeException, ScopeException) as e:
    print("refused:", e)
"""
    done = subprocess.run([sys.executable, "-c", script, str(config), mode], capture_output=True, text=True, timeout=300)
    assert "refused:" in done.stdout and text in done.stdout, done.stdout + done.stderr


def test_a_model_that_is_no_cell_is_refused(tmp_path):
    script = """import sys
from msprobe.mindspore import PrecisionDebugger
try:
    PrecisionDebugger(config_path=sys.argv[1]).start("model")
except Exception as e:
    print("refused:", e)
"""
    done = subprocess.run([sys.executable, "-c", script, str(write_config(tmp_path))], capture_output=True, text=True, timeout=300)
    assert "refused:" in done.stdout and "model is str" in done.stdout


SMALL = """import os, signal, sys, mindspore
import numpy as np
from mindspore import Tensor, mint, ops
from msprobe.mindspore import PrecisionDebugger
debugger = PrecisionDebugger(config_path=sys.argv[1])
x = Tensor(np.ones((2, 3), np.float32))
debugger.start()
"""


def run(tmp_path, script, *words):
    return subprocess.run([sys.executable, "-c", SMALL + script, str(write_config(tmp_path)), *words], capture_output=True, text=True, timeout=300)


def test_an_in_place_call_does_not_change_what_was_recorded_before_it(tmp_path):
    run(tmp_path, "y = mint.add(x, x)\ny.add_(x)\ndebugger.stop()\n")
    data = read(tmp_path)["data"]
    assert data["Mint.add.0.forward"]["output"][0]["Max"] == 2.0
    assert data["Tensor.add_.0.forward"]["input_args"][0]["Max"] == 2.0 and data["Tensor.add_.0.forward"]["output"][0]["Max"] == 3.0


def test_a_call_that_raises_has_its_inputs_and_no_output(tmp_path):
    done = run(tmp_path, "try:\n    ops.concat((x, Tensor(np.ones((5, 7), np.float32))), axis=0)\nexcept Exception:\n    print('caught')\n"
                         "mint.add(x, x)\ndebugger.stop()\n")
    data = read(tmp_path)["data"]
    assert "Mint.add.0.forward" in data, done.stdout + done.stderr
    if "caught" in done.stdout:
        assert "input_args" in data["Functional.concat.0.forward"]


def test_files_are_valid_after_the_process_was_killed(tmp_path):
    done = run(tmp_path, "for i in range(50):\n    mint.add(x, x)\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert done.returncode == -9
    for _ in range(100):
        data = read(tmp_path)["data"]
        if len(data) == 50:
            break
        import time

        time.sleep(0.1)
    assert list(data) == ["Mint.add.%d.forward" % i for i in range(50)]


def test_bfloat16_is_saved_as_float32_and_says_so(tmp_path):
    config = write_config(tmp_path, "tensor")
    done = subprocess.run([sys.executable, "-c", SMALL + "z = mint.add(x.astype(mindspore.bfloat16), 1)\ndebugger.stop()\n", str(config)],
                          capture_output=True, text=True, timeout=300)
    record = read(tmp_path)["data"].get("Mint.add.0.forward")
    assert record, done.stdout + done.stderr
    leaf = record["input_args"][0]
    assert leaf["dtype"] == "BFloat16" and leaf["Max"] == 1.0 and "Float32" in leaf["note"]
    assert np.load(tmp_path / "dump/step0/rank/dump_tensor_data" / leaf["data_name"]).dtype == np.float32


# ---- static graph ---------------------------------------------------------------------------------------------------------------------

def settings(tmp_path, task, level, target, part=None, **common):
    """The configuration that would be written on another device."""
    config = write_config(tmp_path, task, "L2", part, **common)
    script = """import json, sys, mindspore
mindspore.set_context(mode=mindspore.GRAPH_MODE)
from msprobe.mindspore import graph, options
graph.device = options.device = lambda: sys.argv[3]
print("\\n" + json.dumps(graph.configuration(options.Options(sys.argv[1]), sys.argv[2])))
"""
    done = subprocess.run([sys.executable, "-c", script, str(config), level, target], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_configuration_for_kernels_key_by_key(tmp_path):
    name, content = settings(tmp_path, "statistics", "O0", "Ascend", {"list": ["name-regex(.*fc3.*)"], "data_mode": ["output"]}, step=[0, 1, 5], rank=[2])
    assert name == "kernel_kbyk_dump.json"
    assert content == {
        "common_dump_settings": {"dump_mode": 1, "path": str(tmp_path / "dump"), "net_name": "Net", "iteration": "0|1|5", "saved_data": "statistic",
                                 "input_output": 2, "kernels": ["name-regex(.*fc3.*)"], "support_device": [2],
                                 "statistic_category": ["max", "min", "avg", "l2norm"]},
        "e2e_dump_settings": {"enable": True, "trans_flag": True, "stat_calc_mode": "host", "device_stat_precision_mode": "high"}}


def test_the_configuration_for_the_whole_graph_key_by_key(tmp_path):
    name, content = settings(tmp_path, "tensor", "O2", "Ascend", {"file_format": "bin", "data_mode": ["input"]})
    assert name == "kernel_graph_dump.json"
    assert content == {"common_dump_settings": {"dump_mode": 0, "path": str(tmp_path / "dump"), "net_name": "Net", "iteration": "all", "saved_data": "tensor",
                                                "input_output": 1, "kernels": [], "support_device": list(range(8)), "op_debug_mode": 0, "file_format": "bin"}}


@pytest.mark.parametrize("mode, number", [("all", 3), ("aicore", 1), ("atomic", 2)])
def test_the_configuration_for_overflows_key_by_key(tmp_path, mode, number):
    name, content = settings(tmp_path, "overflow_check", "O2", "Ascend", {"check_mode": mode})
    assert name == "kernel_graph_overflow_check.json"
    assert content["common_dump_settings"]["saved_data"] == "full" and content["common_dump_settings"]["op_debug_mode"] == number


def test_mindspore_dumps_a_static_graph_as_configured(tmp_path):
    train("mlp", 2, write_config(tmp_path, "tensor", "L2", {"list": ["name-regex(.*fc3.*)"], "data_mode": ["output"]}, step=[1]), "graph")
    files = list((tmp_path / "dump").rglob("*.npy"))
    assert files and all(".output." in p.name and "fc3" in p.name for p in files)
    assert os.listdir(next((tmp_path / "dump").glob("rank_0/Net/*"))) == ["1"]


def test_what_mindspore_leaves_of_a_static_graph_is_compared(tmp_path):
    command = ROOT / ".venv/bin/msprobe"
    for side in ("npu", "bench"):
        (tmp_path / side).mkdir()
        train("mlp", 2, write_config(tmp_path / side, "tensor", "L2"), "graph")
    worst = max((tmp_path / "npu/dump/rank_0/Net/0/1").glob("MatMul*fc3*.output.*.npy"))
    values = np.load(worst) + 1
    worst.chmod(0o600)
    np.save(worst, values)
    done = subprocess.run([str(command), "compare", "npu/dump", "bench/dump", "-o", "out", "--format", "csv", "--json", "-q"],
                          capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = (list(csv.DictReader(open(p))) for p in sorted((tmp_path / "out").glob("*.csv")))
    assert len(first) == len(second) > 300
    assert {row["Accuracy Reached or Not"] for row in first} <= {"Yes", "None", ""}
    wrong = [row["NPU Name"] for row in second if row["Accuracy Reached or Not"] == "No"]
    assert len(wrong) == 1 and "fc3" in wrong[0]
