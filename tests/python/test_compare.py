"""msprobe._core.compare() and parse(): what Python code reaches of the comparison."""
import csv
import glob
import json
import os
import sys

import pytest

import msprobe
from msprobe import _core


def read(path):
    with open(path, newline="") as f:
        return list(csv.reader(f))


def test_a_pair_of_files_with_folders_named_by_the_caller(cases, tmp_path):
    case = cases / "s01_edge_values"
    sides = {side: str(case / side / "tag_v2.3" / "rank0" / "dump") for side in ("npu", "bench")}
    (pair,), _ = _core.compare(sides["npu"] + ".pkl", sides["bench"] + ".pkl", tmp_path, npu_dir=sides["npu"],
                            bench_dir=sides["bench"], suffix="mine", timestamp="20230609000000")
    assert pair["files"] == [str(tmp_path / "compare_result_mine_20230609000000.csv"),
                             str(tmp_path / "advisor_20230609000000.txt")]
    assert (pair["advised"], pair["advised_line"]) == ("Torch_scal_0_forward_input.2", 18)
    assert pair["advice"].startswith("1. Analyze the model to view the input source.\n2. ")
    assert pair["counts"]["no"] == 8 and pair["counts"]["shape_unmatched"] == 2 and pair["error"] is None
    assert len(read(pair["files"][0])) == 37


def test_messages_reach_a_function_of_the_caller(cases, tmp_path):
    case, said = cases / "s01_edge_values", []
    _core.compare(case / "npu", case / "bench", tmp_path, advisor=True, log_rows=True,
                  log=lambda level, text: said.append((level, text)))
    assert ("INFO", "start comapre: Torch_zero_0_forward_input.0") in said
    assert ("INFO", "[Torch_zero_0_forward_input.0] Compare result: cosine 1.0, max_abs_err 0.000000, ") in said
    shapes = [text for level, text in said if level == "WARNING" and text.startswith("The tensor name matches")]
    assert [s.rsplit(" ", 1)[1] for s in shapes] == ["Torch_shape_0_forward_input.0", "Torch_shape_0_forward_output"]


def test_stacks_and_the_advisor_can_be_left_out(cases, tmp_path):
    case = cases / "s15_stack_mode"
    (pair,), _ = _core.compare(case / "npu", case / "bench", tmp_path, stack=False, advisor=False)
    assert read(pair["files"][0])[0][-1] == "Err_message" and len(pair["files"]) == 1
    (pair,), _ = _core.compare(case / "npu", case / "bench", tmp_path)
    assert read(pair["files"][0])[0][-1] == "NPU_Stack_Info"


def test_the_form_of_3_2_and_6_0_can_be_asked_for(cases, tmp_path):
    case = cases / "s01_edge_values"
    (three,), _ = _core.compare(case / "npu", case / "bench", tmp_path, form="3.2")
    (six,), _ = _core.compare(case / "npu", case / "bench", tmp_path, form="6.0")
    rows = {r[0]: dict(zip(read(three["files"][0])[0], r)) for r in read(three["files"][0])[1:]}
    assert read(three["files"][0])[0][6:9] == ["Cosine", "MaxAbsErr", "MaxRelativeErr"]
    assert read(six["files"][0])[0][6:11] == ["Cosine", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio",
                                              "Five Thousandths Err Ratio"]
    scalar = rows["Torch_scal_0_forward_input.0"]
    assert (scalar["Cosine"], scalar["MaxAbsErr"], scalar["Accuracy Reached or Not"]) == ("unsupported", "0.500000", "Nan")
    nan = rows["Torch_nan_0_forward_input.0"]
    assert (nan["Cosine"], nan["Accuracy Reached or Not"]) == ("N/A", "No")
    assert rows["Torch_shape_0_forward_input.0"]["Bench Name"] == "Nan"  # there shapes must agree for a match


def test_torch_npu_hooks_writes_the_very_file_that_is_named(tmp_path):
    def write(name, shape):
        path = tmp_path / name
        path.write_text(json.dumps(["Torch_a_forward_output", [1.0, 2.0], "torch.float32", shape]) + "\n")
        return path
    npu, bench, out, said = write("n.pkl", [2]), write("b.pkl", [1, 2]), tmp_path / "r.csv", []
    _core.compare(npu, bench, output_file=out, log=lambda *a: said.append(a))
    assert read(out)[1][5:] == ["cannot be calculated ", "cannot be calculated", "cannot be calculated"]
    assert not said and sorted(os.listdir(tmp_path)) == ["b.pkl", "n.pkl", "r.csv"]
    with pytest.raises(msprobe.NotFoundError, match="no row matched"):
        _core.compare(npu, bench, output_file=out, shapes=True, log=lambda *a: said.append(a))
    assert said == [("WARNING", "%s is there already and is written over" % out)]
    assert [r[5] for r in read(out)[1:]] == ["unmatched", "unmatched"]


def test_wrong_arguments_and_files_are_exceptions(tmp_path):
    bad = tmp_path / "bad.pkl"
    bad.write_text('["Torch_a_0_forward_output", 1, [], "t", [], [1, 2, 3]]\n["x", }\n')
    with pytest.raises(msprobe.FormatError, match=r"bad\.pkl: line 2, column 7: "):
        _core.compare(bad, bad, tmp_path)
    with pytest.raises(msprobe.FormatError, match=r"bad\.pkl: line 2, column 7: "):
        _core.parse(bad, "Torch")
    with pytest.raises(msprobe.NotFoundError):
        _core.compare(tmp_path / "no.pkl", bad, tmp_path)
    for wrong in ({"form": "9"}, {"formats": "doc"}, {"suffix": "a/b"}, {"timestamp": "now"}):
        with pytest.raises(ValueError):
            _core.compare(bad, bad, tmp_path, **wrong)
    with pytest.raises(TypeError):
        _core.compare(bad)


def test_a_log_function_that_fails_does_not_stop_the_comparison(cases, tmp_path, monkeypatch):
    case, seen = cases / "p01_all_small", []

    def log(level, text):
        raise RuntimeError("from the log")
    monkeypatch.setattr(sys, "unraisablehook", lambda u: seen.append(str(u.exc_value)))
    (pair,), _ = _core.compare(case / "npu", case / "bench", tmp_path, log_rows=True, log=log)
    assert set(seen) == {"from the log"}
    assert pair["counts"]["matched"] == pair["counts"]["rows"]


def test_parse_gives_the_text_that_the_command_prints(tmp_path):
    path = tmp_path / "d.pkl"
    path.write_text(json.dumps(["Torch_ä_0_forward_output", 1, [], "torch.float32", [2], [1.0, 2.0, 3.0]]) + "\n")
    assert _core.parse(path, "Torch_ä") == (
        "\nStatistic Info:\n  [Torch_ä_0_forward_output][dtype: torch.float32][shape: [2]][max: 1.0][min: 2.0][mean: 3.0]\n")
    assert _core.parse(path, "Nope") == ""


def test_no_memory_is_kept(cases, tmp_path):
    case = cases / "p01_all_small"

    def rss():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1])
    for i in range(60):
        _core.compare(case / "npu", case / "bench", tmp_path / str(i), log_rows=True, log=lambda *a: None)
        if i == 20:
            before = rss()
    assert rss() - before < 500  # pages
    assert len(glob.glob(str(tmp_path / "*" / "*.csv"))) == 60
