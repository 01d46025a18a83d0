"""Task free_benchmark: what is found, and that the program gets its own results."""
import csv

from runs import bits, read, run, train, write_config


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


def test_results_are_as_far_apart_as_the_original_finds_them(tmp_path):
    """msprobe 8.3 on mindspore 2.7.0 wrote 7.0 for gelu, whose results change sign, and 0.002309083938598633 for cross_entropy."""
    train("mlp", 1, write_config(tmp_path, task="free_benchmark", part={"pert_mode": "change_value"}))
    with open(tmp_path / "dump/free_benchmark.csv", newline="") as f:
        found = {row["api_name"]: float(row["max_rel"]) for row in csv.DictReader(f)}
    assert found["Functional.gelu.0"] == 7.0
    assert abs(found["Functional.cross_entropy.0"] - 0.002309083938598633) < 1e-6


RANDOM = """
mindspore.set_seed(7)
def draw():
    return [ops.dropout(x, 0.5), ops.rand(2, 3), ops.randn(2, 3), ops.rrelu(-x)]
debugger.start() if len(sys.argv) > 2 else None
for i in range(3):
    print("drawn", [t.asnumpy().tolist() for t in draw()])
debugger.stop()
debugger.step()
"""


def test_random_numbers_are_those_of_a_run_without_it(tmp_path):
    outputs = [run(tmp_path, RANDOM, *words, task="free_benchmark", part={"pert_mode": "no_change"}).stdout for words in ((), ("start",))]
    drawn, again = ([line for line in output.splitlines() if line.startswith("drawn")] for output in outputs)
    assert len(drawn) == 3 and drawn == again


TYPES = """
debugger.start()
for dtype in (mindspore.float16, mindspore.bfloat16, mindspore.float32, mindspore.float64):
    t = Tensor(np.linspace(0.5, 2, 6).reshape(2, 3)).astype(dtype)
    before = t.astype(mindspore.float32).asnumpy().tolist()
    mint.reshape(t, (3, 2))
    assert t.astype(mindspore.float32).asnumpy().tolist() == before
debugger.stop()
debugger.step()
"""


def test_every_perturbation_takes_every_type_and_leaves_the_inputs(tmp_path):
    for mode in ("improve_precision", "add_noise", "bit_noise", "no_change", "change_value"):
        (tmp_path / mode).mkdir()
        done = run(tmp_path / mode, TYPES, task="free_benchmark", part={"pert_mode": mode, "list": ["mindspore.mint.reshape"]})
        assert done.returncode == 0 and "could not be checked" not in done.stdout, done.stdout + done.stderr
        path = tmp_path / mode / "dump/free_benchmark.csv"
        rows = list(csv.DictReader(open(path, newline=""))) if path.exists() else []
        # the last bit of bfloat16 is more than its limit
        expected = {"change_value": ["Float16", "BFloat16", "Float32", "Float64"], "bit_noise": ["BFloat16"]}
        assert [r["dtype"] for r in rows] == expected.get(mode, []), mode


def test_fix_gives_the_program_the_second_result_with_its_gradient(tmp_path):
    script = """
half = Tensor(np.full((4, 4), 0.1, np.float16))
def f(t):
    return mint.matmul(t, half).sum()
debugger.start()
value, gradient = mindspore.value_and_grad(f)(half)
debugger.stop()
print("given", value.dtype, gradient.dtype, float(gradient.astype(mindspore.float32).asnumpy()[0, 0]) > 0.39)
"""
    done = run(tmp_path, script, task="free_benchmark", part={"pert_mode": "improve_precision", "handler_type": "fix"})
    assert "given Float16 Float16 True" in done.stdout, done.stdout + done.stderr
