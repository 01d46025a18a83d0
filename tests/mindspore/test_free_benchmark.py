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
