"""What is recorded in PyNative mode: names, values, gradients, filters."""
import inspect
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from mindspore import nn

from runs import HERE, ROOT, SMALL, leaves, read, run, train, write_config

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


def test_an_in_place_call_does_not_change_what_was_recorded_before_it(tmp_path):
    run(tmp_path, "debugger.start()\ny = mint.add(x, x)\ny.add_(x)\ndebugger.stop()\n")
    data = read(tmp_path)["data"]
    assert data["Mint.add.0.forward"]["output"][0]["Max"] == 2.0
    assert data["Tensor.add_.0.forward"]["input_args"][0]["Max"] == 2.0 and data["Tensor.add_.0.forward"]["output"][0]["Max"] == 3.0


def test_a_call_that_raises_has_its_inputs_and_no_output(tmp_path):
    done = run(tmp_path, "debugger.start()\ntry:\n    ops.concat((x, Tensor(np.ones((5, 7), np.float32))), axis=0)\nexcept Exception:\n    print('caught')\n"
                         "mint.add(x, x)\ndebugger.stop()\n")
    data = read(tmp_path)["data"]
    assert "Mint.add.0.forward" in data, done.stdout + done.stderr
    if "caught" in done.stdout:
        assert "input_args" in data["Functional.concat.0.forward"]


def test_bfloat16_is_saved_as_float32_and_says_so(tmp_path):
    done = run(tmp_path, "debugger.start()\nz = mint.add(x.astype(mindspore.bfloat16), 1)\ndebugger.stop()\n", task="tensor")
    record = read(tmp_path)["data"].get("Mint.add.0.forward")
    assert record, done.stdout + done.stderr
    leaf = record["input_args"][0]
    assert leaf["dtype"] == "BFloat16" and leaf["Max"] == 1.0 and "Float32" in leaf["note"]
    assert np.load(tmp_path / "dump/step0/rank/dump_tensor_data" / leaf["data_name"]).dtype == np.float32


def test_records_are_those_of_the_original_but_for_its_defects(tmp_path):
    """Recorded by msprobe 8.3 on mindspore 2.7.0. Primitives' gradients are in the order in which they arrived there; optimizers are compiled."""
    theirs = json.loads((ROOT / "tests/data/mindspore/original/dump.json").read_text())
    train("mlp", 1, write_config(tmp_path, level="mix"))
    ours = read(tmp_path)
    assert {k: v for k, v in ours.items() if k != "data"} == {k: v for k, v in theirs.items() if k != "data"}
    theirs, ours = theirs["data"], ours["data"]
    expected = [name for name in theirs if not name.startswith("Jit.") or name in ours]
    assert sorted(ours) == sorted(expected)
    assert [n for n in ours if "parameters_grad" not in n] == [n for n in expected if "parameters_grad" not in n]
    construct = json.loads((ROOT / "tests/data/mindspore/original/construct.json").read_text())
    assert read(tmp_path, file="construct.json") == {name: parent for name, parent in construct.items() if name in ours}
    for name in expected:
        if name.startswith("Primitive.") and name.endswith(".backward"):
            theirs[name].pop("output"), ours[name].pop("output")
        same_record(ours[name], theirs[name], name)


def same_record(ours, theirs, where):
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), where
        for key in theirs:
            same_record(ours[key], theirs[key], "%s %s" % (where, key))
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        for index, (a, b) in enumerate(zip(ours, theirs)):
            same_record(a, b, "%s %d" % (where, index))
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6), where
    else:
        assert ours == theirs, where


ODD = """
class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.d = nn.Dense(3, 3)

    def construct(self, x):
        return ops.tanh(self.d(x))


class Compiled(nn.Cell):
    def __init__(self):
        super().__init__()
        self.d = nn.Dense(3, 3)

    @mindspore.jit
    def construct(self, x):
        return self.d(x) * 2


class Bad(nn.Cell):
    def construct(self, x):
        raise ValueError("the program's own")


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.shared, self.jitted, self.bad, self.last = Block(), Compiled(), Bad(), Block()

    def construct(self, x):
        h = self.shared(x) + self.shared(x * 2)
        try:
            self.bad(h)
        except ValueError:
            pass
        return self.last(self.jitted(h)).sum()


net = Net()
debugger.start(net)
mindspore.value_and_grad(net, None, net.trainable_params())(x)
debugger.stop()
print("trained")
"""


def test_a_cell_called_twice_one_compiled_and_one_that_raises(tmp_path):
    file = tmp_path / "odd.py"  # what is compiled must have a source
    file.write_text(SMALL + ODD)
    done = subprocess.run([sys.executable, str(file), str(write_config(tmp_path, level="mix"))], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert "trained" in done.stdout, done.stdout + done.stderr
    data, construct = read(tmp_path)["data"], read(tmp_path, file="construct.json")
    assert {"Cell.shared.Block.backward.0", "Cell.shared.Block.backward.1", "Cell.jitted.Compiled.forward.0", "Jit.Compiled.0.forward"} <= set(data)
    assert "output" not in data["Cell.bad.Bad.forward.0"]
    if "always_call" in inspect.signature(nn.Cell.register_forward_hook).parameters:  # before 2.8 nobody is told of the exception
        assert construct["Cell.last.Block.forward.0"] is None
    assert construct["Functional.tanh.1.forward"] == "Cell.shared.Block.forward.1"
    assert construct["Cell.shared.d.Dense.backward.1"] == "Cell.shared.Block.backward.1"
    names = list(data)
    assert len(names) == len(set(names))
    for inner, outer in ((n, construct.get(n)) for n in names if ".backward" in n):
        if outer in names:
            assert names.index(inner) < names.index(outer), (inner, outer)


def test_arguments_beside_the_one_that_is_written_to_have_their_gradients(tmp_path):
    script = """
from mindspore import Parameter
w = Parameter(Tensor(np.full((2, 3), 3, np.float32)), name="w")
def f(a):
    y = a * 1.0
    return y.add_(w).sum()
debugger.start()
mindspore.value_and_grad(f, None, [w])(x)
debugger.stop()
"""
    done = run(tmp_path, script)
    written, other = read(tmp_path)["data"]["Tensor.add_.0.backward"]["output"]
    assert written is None and other["Max"] == 1.0, done.stdout + done.stderr


def test_tensors_of_selected_calls_are_saved_beside_statistics(tmp_path):
    run(tmp_path, "debugger.start()\nmint.add(x, x)\nmint.exp(x)\ndebugger.stop()\n", part={"tensor_list": ["exp"]})
    data = read(tmp_path)["data"]
    assert [("data_name" in leaf) for name in data for leaf in leaves(data[name])] == [False, False, False, True, True]
    assert sorted(os.listdir(tmp_path / "dump/step0/rank/dump_tensor_data")) == ["Mint.exp.0.forward.input.0.npy", "Mint.exp.0.forward.output.0.npy"]


def test_values_of_every_type(tmp_path):
    script = """
arrays = [[True, False], [2**53 + 1, 5], [3 + 4j, 0], [1e300, -1e300], [7]]
values = [Tensor(np.array(a)) for a in arrays] + [Tensor(np.zeros((0, 3), np.float32)), Tensor(3.5), Tensor(np.arange(6).reshape(2, 3)).T]
debugger.start()
for v in values:
    ops.stack([v, v])
mint.sum(x, dim=(0, 1), keepdim=True, dtype=mindspore.float64)
x[0:1, ..., None]
debugger.stop()
"""
    done = run(tmp_path, script, part={"summary_mode": "md5"})
    data = read(tmp_path)["data"]
    assert not os.path.exists(tmp_path / "dump/step0/rank/dump_error_info.log"), done.stdout
    found = {(leaf["dtype"], *leaf["shape"]): [leaf[key] for key in ("Max", "Min", "Mean", "Norm")]
             for name in data if "stack" in name for leaf in leaves(data[name]["input_args"])}
    assert found.pop(("Int64", 2))[0] == 2**53 + 1  # nothing is squeezed through float32
    assert found == {("Bool", 2): [True, False, None, None], ("Complex128", 2): [5.0, 0.0, 2.5, 5.0], ("Float64", 2): [1e300, -1e300, 0.0, 2**0.5 * 1e300],
                     ("Int64", 1): [7, 7, 7, 7], ("Float32", 0, 3): [None] * 4, ("Float32",): [3.5] * 4, ("Int64", 3, 2): [5, 0, 2.5, 55**0.5]}
    assert data["Mint.sum.0.forward"]["input_kwargs"]["dtype"] == {"type": "mindspore.dtype", "value": "Float64"}
    assert data["Tensor.__getitem__.0.forward"]["input_args"][1][0] == {"type": "slice", "value": [0, 1, None]}


def test_the_list_of_functions_is_a_file_that_users_edit(tmp_path):
    script = """
from msprobe.mindspore import apis
known = apis.read_list()
assert all(len(names) == len(set(names)) for names in known.values()), "a name stands twice"
edited = sys.argv[2]
open(edited, "w").write("# mine\\nmint.ops:\\n  - exp\\n  - no_such_function\\n")
apis.LIST = edited
from msprobe.mindspore import debugger as home
recorder = home._make(debugger.config)
recorder.start()
mint.add(x, x), mint.exp(x)
recorder.stop()
"""
    done = run(tmp_path, script, str(tmp_path / "mine.yaml"))
    assert done.returncode == 0, done.stderr
    assert list(read(tmp_path)["data"]) == ["Mint.exp.0.forward"]


def test_what_gets_no_gradient_is_recorded_like_the_rest(tmp_path):
    script = """
def f(a):
    mask = ops.zeros((2, 3)) + 1
    return (a * mask * ops.stop_gradient(a)).sum()
debugger.start()
mindspore.value_and_grad(f)(x)
debugger.stop()
"""
    done = run(tmp_path, script)
    data = read(tmp_path)["data"]
    assert [n for n in data if n.endswith("forward")][:2] == ["Functional.zeros.0.forward", "Tensor.__add__.0.forward"], done.stdout
    assert all("output" in record for record in data.values()) and not os.path.exists(tmp_path / "dump/step0/rank/dump_error_info.log"), done.stdout


FAILS = """
debugger.start()
mint.exp(x)
y = mint.matmul(x, x)  # which has no such shapes: MindSpore tells when something waits
z = mint.exp(x)
debugger.stop()
try:
    print(y.asnumpy())
except Exception:
    print("the program is told")
"""


@pytest.mark.parametrize("part, names", [({}, ["exp.0", "matmul.0", "exp.1"]), ({"list": ["exp"]}, ["exp.0", "exp.1"])], ids=["all", "one"])
def test_an_operation_that_fails_later_costs_its_own_output_only(tmp_path, part, names):
    done = run(tmp_path, FAILS, part=part)
    data = read(tmp_path)["data"]
    assert list(data) == ["Mint.%s.forward" % name for name in names], done.stdout + done.stderr
    assert all("output" in data["Mint.%s.forward" % name] and "input_args" in data["Mint.%s.forward" % name] for name in names if name.startswith("exp"))
    assert "the program is told" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("MindSpore told that an operation of the program has failed") == 1, done.stdout
    if "matmul.0" in names:
        record = data["Mint.matmul.0.forward"]
        assert "output" not in record and record["input_args"][0]["Max"] == 1.0 and "outputs could not be read: " in record["note"]


def test_a_devices_memory_is_not_read_by_its_address(tmp_path):
    script = """
from msprobe.mindspore import recorder
recorder.device = lambda: "Ascend"
def address(self):
    raise RuntimeError("an address in the device's memory")
Tensor.data_ptr = address
debugger.start()
mint.exp(x * 0)
debugger.stop()
"""
    done = run(tmp_path, script)
    assert read(tmp_path)["data"]["Mint.exp.0.forward"]["output"][0]["Max"] == 1.0, done.stdout + done.stderr
