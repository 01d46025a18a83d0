"""`msprobe explain`: everything that two dumps know of one call."""
import json

import dumps
import pytest

RELU = "Functional.relu.0.forward"


def both(tmp_path, make, fault):
    make(tmp_path / "npu", fault)
    make(tmp_path / "bench")


def explain(run, name, *more):
    r = run("explain", "npu", "bench", name, "--json", *more)
    assert r.rc == 0, r.err
    return json.loads(r.raw)


def test_a_call_of_statistics_is_explained(run, tmp_path):
    both(tmp_path, dumps.statistics, 2)
    d = explain(run, RELU)
    assert (d["call"], d["bench_call"], d["mode"], d["level"]) == (RELU, RELU, "statistics", "wrong")
    took, gave = d["rows"]
    assert (took["at"], took["is_input"], took["error"]) == ("input.0", True, 0)
    assert (gave["at"], gave["is_input"]) == ("output.0", False) and gave["error"] == pytest.approx(0.5)
    assert (gave["npu"]["max"], gave["bench"]["max"]) == ("6.0", "3.0")
    result, = d["results"]
    assert result["at"] == "output.0" and result["ratio"] > 1 and result["verdict"] == "wrong" and result["not_judged"] is None
    assert d["before"] == [{"here": "input.0", "api": "Functional.linear.0.forward", "there": "output.0"}]
    assert d["after"] == [{"here": "output.0", "api": "Functional.gelu.0.forward", "there": "input.0"}]
    assert d["stack"] == dumps.frames(11)


def test_a_call_of_real_data_shows_its_worst_elements(run, tmp_path):
    both(tmp_path, dumps.real, 2)
    gave = explain(run, RELU)["rows"][1]
    assert gave["worst_elements"] == [{"index": [1, 2], "npu": "7.5", "bench": "5.5"}]
    assert gave["max_abs_err"] == 2 and gave["error"] == pytest.approx(2 / (0.5 ** 2 + 1.5 ** 2 + 2.5 ** 2 + 3.5 ** 2 + 4.5 ** 2 + 7.5 ** 2) ** 0.5)
    out = run("explain", "npu", "bench", RELU).out
    assert "  Gave          output.0: torch.float32 [2, 3], differs by " in out and "                  [1, 2]: NPU 7.5, bench 5.5\n" in out
    assert "  Took          input.0: torch.float32 [2, 3], equal to the bit\n" in out
    assert "  Called at     /home/me/train.py:11 in forward\n" in out
    assert "  Next          msprobe repro npu/dump.json Functional.relu.0.forward -o repro\n" in out


def test_up_to_five_elements_the_largest_error_first_nan_before_all(run, tmp_path):
    good = [float(i) for i in range(12)]
    bad = [v + e for v, e in zip(good, [0, 1, 0, 7, 0, 3, 2, 0, 9, 4, 0, 0])]
    bad[11] = float("nan")
    for side, values in (("npu", bad), ("bench", good)):
        (tmp_path / side / "dump_tensor_data").mkdir(parents=True)
        dumps.npy(tmp_path / side / "dump_tensor_data" / (RELU + ".output.0.npy"), values, (3, 4))
        dumps.write(tmp_path / side, {RELU: dumps.call([], [dumps.tensor(11.0, shape=(3, 4), data_name=RELU + ".output.0.npy")])}, task="tensor")
    worst = explain(run, RELU)["rows"][0]["worst_elements"]
    assert [w["index"] for w in worst] == [[2, 3], [2, 0], [0, 3], [2, 1], [1, 1]]
    assert worst[0] == {"index": [2, 3], "npu": "nan", "bench": "11.0"}


def test_checksums_and_plain_arguments_are_told(run, tmp_path):
    both(tmp_path, dumps.checksums, 1)
    assert "  Gave          output.0: torch.float32 [2, 3], another checksum\n" in run("explain", "npu", "bench", RELU).out
    for side, value in (("npu", 1), ("bench", 2)):
        dumps.write(tmp_path / side, {RELU: dumps.call([dumps.tensor(1.0), {"type": "int", "value": value}], [dumps.tensor(1.0)])})
    assert "                input.1: NPU 1, bench 2\n" in run("explain", "npu", "bench", RELU).out


def test_a_call_without_partner_is_explained_all_the_same(run, tmp_path):
    dumps.statistics(tmp_path / "npu")
    dumps.statistics(tmp_path / "bench")
    text = (tmp_path / "bench/dump.json").read_text()
    (tmp_path / "bench/dump.json").write_text(text.replace("relu.0.", "relu.7."))
    assert explain(run, RELU)["bench_call"] == "Functional.relu.7.forward"  # the same call under another number
    (tmp_path / "bench/dump.json").write_text(text.replace("relu.0.", "celu.0."))
    r = run("explain", "npu", "bench", RELU)
    assert r.rc == 0 and "  with          no partner of bench/dump.json\n" in r.out and "output.0: torch.float32 [2, 3], no partner\n" in r.out


@pytest.mark.parametrize("name", ["relu", "Functional.relu.0", RELU + ".output.0"])
def test_a_part_of_the_name_is_enough_where_only_one_call_has_it(run, tmp_path, name):
    both(tmp_path, dumps.statistics, 2)
    assert explain(run, name)["call"] == RELU


def test_of_several_ranks_the_one_that_is_wrong_is_explained(run, tmp_path):
    for rank in range(3):
        dumps.statistics(tmp_path / "npu" / ("rank%d" % rank), 2 if rank == 1 else 1)
        dumps.statistics(tmp_path / "bench" / ("rank%d" % rank))
    assert explain(run, RELU)["npu_path"] == "npu/rank1/dump.json"


def test_what_is_not_there_is_said_with_what_is_near(run, tmp_path):
    both(tmp_path, dumps.statistics, 2)
    r = run("explain", "npu", "bench", "Functional.rely.0.forward")
    assert r.rc == 1 and "did you mean 'Functional.relu.0.forward'" in r.err
    r = run("explain", "npu", "bench", "forward")
    assert r.rc == 1 and "3 calls have 'forward' in their names" in r.err and "which one?" in r.err
    assert run("explain", "npu", "bench").rc == 2 and run("explain", "npu", "nowhere", RELU).rc == 1


def test_nothing_is_written(run, tmp_path):
    both(tmp_path, dumps.real, 2)
    before = sorted(tmp_path.rglob("*"))
    assert run("explain", "npu", "bench", RELU).rc == 0
    assert sorted(tmp_path.rglob("*")) == before
