"""Never a silent success: what could not be compared is named, counted, and decides the exit status."""
import json
import re
import subprocess

import pytest

import dumps


def cut(path, share=0.5):
    text = path.read_text()
    path.write_text(text[:int(len(text) * share)])


def answer(run, *words):
    r = run("compare", *words, "--json")
    return r, json.loads(r.raw)


# ---- files that end too soon ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["npu", "bench"])
def test_a_file_that_is_cut_off_is_compared_as_far_as_it_goes_and_is_no_success(run, files, tmp_path, side):
    dumps.statistics(tmp_path / "npu")
    dumps.statistics(tmp_path / "bench")
    cut(tmp_path / side / "dump.json", 0.6)
    r = run("compare", "npu", "bench", "-o", "out")
    assert r.rc == 1
    assert ("  Cut off       %s/dump.json\n"
            "                1 complete record of it was compared; collect or copy it again\n" % side) in r.out
    assert "  Rows " in r.out
    assert r.err.splitlines()[-1].startswith("error: %s/dump.json: cut off at byte " % side)
    assert "collect it again, or copy it again" in r.err
    assert files() == ["advisor_TIME.txt", "compare_result_TIME.xlsx"]
    r, doc = answer(run, "npu", "bench", "-o", "out")
    (pair,), (gap,) = doc["pairs"], doc["pairs"][0]["cut_off"]
    assert (r.rc, doc["status"], pair["status"]) == (1, "error", "ok")
    assert gap["path"] == "%s/dump.json" % side and gap["records_read"] == 1 and gap["at_byte"] > 0


@pytest.mark.parametrize("size, calls", [(0, 0), (400, 2)])
def test_a_stack_that_is_cut_off_is_told_and_used_as_far_as_it_goes(run, tmp_path, size, calls):
    dumps.statistics(tmp_path / "npu")
    dumps.statistics(tmp_path / "bench")
    stack = tmp_path / "npu/stack.json"
    stack.write_text(stack.read_text()[:size])
    r = run("compare", "npu", "bench", "-o", "out", "--format", "csv")
    assert r.rc == 0
    assert re.fullmatch(r"warning: npu/stack.json: cut off at byte \d+ of %d; the calls after it have no stack\n" % size, r.err)
    table = next((tmp_path / "out").glob("compare_result*.csv")).read_text()
    assert table.count("train.py") == calls


def test_ranks_beside_one_that_is_cut_off_go_on(run, files, tmp_path):
    for place in ("npu/rank0", "npu/rank1", "bench/rank0", "bench/rank1"):
        dumps.statistics(tmp_path / place)
    cut(tmp_path / "npu/rank1/dump.json", 0.6)
    r = run("compare", "npu", "bench", "-o", "out")
    assert r.rc == 1 and "rank1:\n  Cut off       npu/rank1/dump.json" in r.out
    assert len([f for f in files() if f.endswith(".xlsx")]) == 2


# ---- tensors that cannot be read --------------------------------------------------------------------------------------


def test_a_tensor_that_cannot_be_read_is_named_and_the_others_are_compared(run, tmp_path):
    for side in ("npu", "bench"):
        dumps.real(tmp_path / side)
    (tmp_path / "bench/dump_tensor_data/Functional.relu.0.forward.input.0.npy").unlink()
    r, doc = answer(run, "npu", "bench", "-o", "out")
    assert r.rc == 0 and doc["pairs"][0]["counts"]["unreadable"] == 1 and doc["pairs"][0]["counts"]["yes"] == 3
    assert doc["pairs"][0]["unreadable"].startswith(
        "bench/dump_tensor_data/Functional.relu.0.forward.input.0.npy: cannot open")
    r = run("compare", "npu", "bench", "-o", "out")
    assert r.rc == 0
    assert "  Unreadable    bench/dump_tensor_data/Functional.relu.0.forward.input.0.npy: cannot open" in r.out
    assert "1 row could not be compared: see Err_message" in r.out
    assert run("compare", "npu", "bench", "-q", "--fail-on", "warning").rc == 3


def test_nothing_readable_is_an_error(run, files, tmp_path):
    for side in ("npu", "bench"):
        dumps.real(tmp_path / side)
    (tmp_path / "bench/dump_tensor_data").rename(tmp_path / "elsewhere")
    r = run("compare", "npu", "bench", "-o", "out")
    assert r.rc == 1
    assert "nothing could be compared: none of the 4 pairs of tensor files can be read. The first: bench/" in r.err
    assert "Copy dump_tensor_data along with dump.json" in r.err
    advice = next((tmp_path / "out").glob("advisor*")).read_text()
    assert "meets" not in advice and "No data could be judged" in advice
    assert files() == ["advisor_TIME.txt", "compare_result_TIME.xlsx"]


def test_real_data_without_any_tensor_file_is_an_error(run, files, tmp_path):
    for side in ("npu", "bench"):
        dumps.statistics(tmp_path / side, task="tensor")
    r = run("compare", "npu", "bench", "-o", "out")
    assert r.rc == 1
    assert "nothing could be compared: of the 7 rows of npu/dump.json that have a partner none has a tensor file" in r.err
    assert "compare the statistics with -da" in r.err
    assert files() == ["advisor_TIME.txt", "compare_result_TIME.xlsx"]
    assert run("compare", "npu", "bench", "-q", "-da").rc == 0


# ---- which folder is meant --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("npu, bench, advice", [
    ("npu/step0", "bench", "bench/step0 and npu/step0"),
    ("npu/", "bench/step1", "npu/step1 and bench/step1"),
    ("npu/step0/rank1", "bench/step0", "bench/step0/rank1 and npu/step0/rank1"),
])
def test_paths_of_different_levels_are_refused_with_what_to_type(run, tmp_path, npu, bench, advice):
    for side in ("npu", "bench"):
        for step in (0, 1):
            for rank in (0, 1):
                dumps.statistics(tmp_path / side / ("step%d" % step) / ("rank%d" % rank))
    r = run("compare", npu, bench)
    assert r.rc == 1 and "the two paths are of different levels" in r.err and advice in r.err
    assert not (tmp_path / "output").exists()


def test_one_folder_on_the_way_does_no_harm(run, tmp_path):
    dumps.statistics(tmp_path / "npu")
    dumps.statistics(tmp_path / "bench/step0/rank0")
    assert run("compare", "npu", "bench").rc == 0


# ---- where results go -------------------------------------------------------------------------------------------------


def test_runs_at_the_same_moment_do_not_replace_each_others_results(msprobe, tmp_path):
    dumps.statistics(tmp_path / "npu", 2)
    dumps.statistics(tmp_path / "bench")
    count = 12
    command = [msprobe, "compare", "npu", "bench", "-o", "out", "-q", "--format", "csv"]
    processes = [subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL) for _ in range(count)]
    assert [p.wait(timeout=120) for p in processes] == [0] * count
    names = [p.name for p in (tmp_path / "out").iterdir()]
    tables = {n[len("compare_result_"):-4] for n in names if n.endswith(".csv")}
    assert len(names) == 4 * count and len(tables) == count  # page, table, verdict, advice
    assert tables == {n[len("advisor_"):-4] for n in names if n.endswith(".txt")}


def test_a_place_that_cannot_be_written_is_told_before_anything_is_read(run, tmp_path):
    dumps.statistics(tmp_path / "npu")
    (tmp_path / "file").write_text("")
    r = run("compare", "npu", "npu", "-o", "file/out")
    assert r.rc == 1 and r.err.startswith("error: file: cannot create the directory: ")
    assert "choose another folder for the results with -o" in r.err


def test_a_failed_run_leaves_no_empty_folder(run, tmp_path):
    (tmp_path / "npu").mkdir()
    (tmp_path / "npu/dump.json").write_text("{}")
    assert run("compare", "npu", "npu", "-o", "out").rc == 1
    assert not (tmp_path / "out").exists()


# ---- what -v tells ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make, fault, words", [
    (dumps.real, 2, "[Functional.relu.0.forward.output.0] Compare result: cosine "),
    (dumps.statistics, 2, "[Functional.relu.0.forward.output.0] Compare result: Max diff 3.0, "),
    (dumps.checksums, 1, "[Functional.relu.0.forward.output.0] Compare result: NPU MD5 "),
])
def test_verbose_tells_every_row_in_all_modes(run, tmp_path, make, fault, words):
    make(tmp_path / "npu", fault)
    make(tmp_path / "bench")
    assert words in run("compare", "npu", "bench", "-v").err
