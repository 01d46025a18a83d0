"""msprobe.pytorch.compare and compare_distributed: the manual's examples, and what they refuse."""
import glob
import json
import os

import openpyxl
import pytest

from msprobe.pytorch import compare, compare_distributed

LEAF = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.0, "Mean": 0.5, "Norm": 1.0,
        "requires_grad": False}


def dump(folder, scale=1.0):
    folder.mkdir(parents=True)
    data = {"Functional.relu.0.forward": {"input_args": [LEAF], "input_kwargs": {}, "output": [dict(LEAF, Max=scale)]}}
    (folder / "dump.json").write_text(json.dumps({"task": "statistics", "level": "L1", "framework": "pytorch",
                                                  "dump_data_dir": None, "data": data}))
    (folder / "stack.json").write_text(json.dumps({"0": [["Functional.relu.0.forward"], ["File a.py, line 1, in f, \n y"]]}))


def titles(path):
    return [c.value for c in next(openpyxl.load_workbook(path).active.iter_rows(max_row=1))]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("stack, mode, column", [(True, True, True), (True, False, False), (False, False, True)])
def test_the_manuals_example_of_a_single_rank(place, stack, mode, column):
    dump(place / "npu_dump", 3.0)
    dump(place / "bench_dump")
    param = {"npu_json_path": "./npu_dump/dump.json", "bench_json_path": "./bench_dump/dump.json", "is_print_compare_log": True}
    if stack:
        param["stack_json_path"] = "./npu_dump/stack.json"
    table, advice, page = compare(param, output_path="./output", stack_mode=mode)
    assert os.path.basename(table).startswith("compare_result_2") and os.path.basename(advice).startswith("advisor_2")
    assert os.path.basename(page).startswith("compare_result_2") and "relu.0.forward" in open(page, encoding="utf-8").read()
    assert ("NPU_Stack_Info" in titles(table)) == column
    assert compare(param, "./output", auto_analyze=False) != [table]


def test_the_manuals_example_of_many_ranks(place, capsys):
    for rank in ("rank0", "rank1"):
        dump(place / "npu_dump/step0" / rank, 3.0 if rank == "rank1" else 1.0)
        dump(place / "gpu_dump/step0" / rank)
    compare_distributed("./npu_dump/step0", "./gpu_dump/step0", "./output", highlight=True)
    assert sorted(os.path.basename(p).rsplit("_", 1)[0] for p in glob.glob("output/*")) == [
        "advisor_rank0", "advisor_rank1", "compare_result", "compare_result_rank0", "compare_result_rank1", "job_table"]
    said = capsys.readouterr().out
    assert "rank1: the first wrong row is Functional.relu.0.forward.output.0 (Warning)" in said
    assert "[INFO] rank0: 2 rows, 2 matched, 0 wrong" in said


def test_the_log_has_the_verdict_of_the_command(place, capsys):
    dump(place / "npu", 3.0)
    dump(place / "bench")
    compare({"npu_json_path": "npu/dump.json", "bench_json_path": "bench/dump.json"}, "out")
    compare({"npu_json_path": "bench/dump.json", "bench_json_path": "bench/dump.json"}, "out")
    wrong, same = [line for line in capsys.readouterr().out.splitlines() if "Verdict: " in line]
    assert "[WARNING] Verdict: Wrong: Functional.relu.0.forward" in wrong
    assert "[INFO] Verdict: Nothing wrong" in same or "[INFO] Verdict: Identical" in same


def test_a_rank_that_is_missing_is_named_and_the_others_are_written(place):
    dump(place / "npu/rank0")
    dump(place / "npu/rank1")
    dump(place / "bench/rank0")
    with pytest.raises(Exception, match="rank1"):
        compare_distributed("npu", "bench", "output")
    assert len(glob.glob("output/compare_result_rank0_*.xlsx")) == 1


def test_wrong_arguments_are_named(place):
    with pytest.raises(ValueError, match="input_param should be dict"):
        compare("a.json", "out")
    with pytest.raises(ValueError, match="Missing bench_json_path"):
        compare({"npu_json_path": "a"}, "out")
    with pytest.raises(ValueError, match="is_print_compare_log"):
        compare({"npu_json_path": "a", "bench_json_path": "b", "is_print_compare_log": 1}, "out")
    for name in ("stack_mode", "auto_analyze", "fuzzy_match", "highlight", "diff_analyze"):
        with pytest.raises(ValueError, match="%s must be True or False, not 'yes'" % name):
            compare({"npu_json_path": "a", "bench_json_path": "b"}, "out", **{name: "yes"})
    with pytest.raises(ValueError, match="highlight"):
        compare_distributed("a", "b", "out", highlight=1)
    with pytest.raises(TypeError, match="colour"):
        compare_distributed("a", "b", "out", colour=True)
