"""-da: the first call that differs, on one card and over ranks."""
import json

import dumps


def load(path):
    return json.loads(path.read_text())


def test_a_single_card_is_analysed(run, files, tmp_path):
    dumps.statistics(tmp_path / "npu", 2)
    dumps.statistics(tmp_path / "bench")
    r = run("compare", "npu/dump.json", "bench/dump.json", "-o", "out", "-da")
    assert r.rc == 0
    assert files() == ["compare_result_TIME.json", "diff_analyze_NS.json"]
    assert """
  Analysis      Functional.relu.0.forward
                the first that differs by the manual's limits for statistics
  Called at     /home/me/train.py:11 in forward
                y = self.act(x)
""" in r.out
    assert '"tensor": {"list": ["Functional.relu.0.forward"]}' in r.out
    calls = load(next((tmp_path / "out").glob("compare_result_*.json")))
    assert {name: c["is_same"] for name, c in calls.items()} == {
        "Functional.linear.0.forward": True, "Functional.relu.0.forward": False, "Functional.gelu.0.forward": False}
    row = calls["Functional.relu.0.forward"]["op_items"][1]
    assert row["MaxRelativeErr"] == "100.0%" and row["state"] == "output" and row["NPU P2POp op"] == "None"
    found = load(next((tmp_path / "out").glob("diff_analyze_*.json")))
    assert found == {"rank_0": [{"op_name": "Functional.relu.0.forward", "data_info": {
        "input": {"Functional.relu.0.forward.input.0": {"NPU max": 2.0, "NPU min": -2.0, "NPU mean": 1.0, "NPU l2norm": 4.0,
                                                         "NPU P2POp peer": "None"}},
        "output": {"Functional.relu.0.forward.output.0": {"NPU max": 6.0, "NPU min": -6.0, "NPU mean": 3.0,
                                                          "NPU l2norm": 12.0, "NPU P2POp peer": "None"}}},
        "stack_info": dumps.frames(11)}]}


def test_tensor_dumps_are_analysed_by_their_statistics(run, files, tmp_path):
    dumps.real(tmp_path / "npu", 20.0)
    dumps.real(tmp_path / "bench")
    for path in (tmp_path / "npu/dump_tensor_data").iterdir():
        path.unlink()
    r = run("compare", "npu", "bench", "-o", "out", "-da")
    assert r.rc == 0 and "Functional.relu.0.forward" in r.out and r.err == ""
    # the tensors are there already: the next step is to compare them
    assert r.out.endswith("  Next          msprobe compare npu bench -o out -hl\n")


def test_checksums_are_analysed_by_their_result(run, tmp_path):
    dumps.checksums(tmp_path / "npu", 1)
    dumps.checksums(tmp_path / "bench")
    r = run("compare", "npu", "bench", "-o", "out", "-da")
    assert r.rc == 0 and "  Analysis      Functional.relu.0.forward\n" in r.out
    found = load(next((tmp_path / "out").glob("diff_analyze_*.json")))
    output = found["rank_0"][0]["data_info"]["output"]["Functional.relu.0.forward.output.0"]
    assert output == {"NPU MD5": "6c1b06c7", "NPU P2POp peer": "None"}


def test_nothing_that_differs_writes_no_analysis(run, files, tmp_path):
    dumps.statistics(tmp_path / "npu")
    dumps.statistics(tmp_path / "bench")
    r = run("compare", "npu", "bench", "-o", "out", "-da", "--fail-on", "any")
    assert r.rc == 0 and "no call differs" in r.out
    assert files() == ["compare_result_TIME.json"]


def test_ranks_that_could_not_be_analysed_are_not_called_alike(run, tmp_path):
    for side in ("npu", "bench"):
        for rank in ("rank0", "rank1"):
            dumps.statistics(tmp_path / side / rank)
    for rank, told in (("rank0", "none: only 1 of 2 pairs could be compared"), ("rank1", "none: only 0 of 2 pairs could be compared")):
        (tmp_path / "npu" / rank / "dump.json").write_text("[]")
        r = run("compare", "npu", "bench", "-o", "out", "-da")
        assert r.rc == 1 and told in r.out and "no call" not in r.out


def test_fail_on_counts_what_was_found(run, tmp_path):
    dumps.statistics(tmp_path / "npu", 2)
    dumps.statistics(tmp_path / "bench")
    assert run("compare", "npu", "bench", "-q", "-da", "--fail-on", "no").rc == 3


def test_results_of_earlier_runs_are_not_mixed_in(run, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "compare_result_rank7_20250101000000.json").write_text('{"A.b.0.forward": {"is_same": false, "op_items": []}}')
    for rank in (0, 1):
        dumps.statistics(tmp_path / "npu" / ("rank%d" % rank), 2 if rank else 1)
        dumps.statistics(tmp_path / "bench" / ("rank%d" % rank))
    r = run("compare", "npu", "bench", "-o", "out", "-da")
    assert r.rc == 0
    assert list(load(next(out.glob("diff_analyze_*.json")))) == ["rank_1"]
    assert (out / "compare_result_rank7_20250101000000.json").exists()


def group(ranks):
    return {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": "g0"}


def test_a_difference_between_communications_is_found_over_ranks(run, tmp_path):
    for rank in (0, 1):
        for side in ("npu", "bench"):
            bad = side == "npu" and rank == 1
            reduce = dumps.call([dumps.tensor(1.0)], [dumps.tensor(1.0)])
            reduce["input_kwargs"] = {"group": group([0, 1])}
            gather = dumps.call([dumps.tensor(1.0)], [dumps.tensor(5.0 if side == "npu" else 1.0)])
            gather["input_kwargs"] = {"group": group([0, 1])}
            dumps.write(tmp_path / side / ("rank%d" % rank), {
                "Torch.empty.0.forward": dumps.call([], [dumps.tensor(7.0 if side == "npu" else 1.0)]),
                "Distributed.all_reduce.0.forward": reduce,
                "Functional.gelu.0.forward": dumps.call([dumps.tensor(1.0)], [dumps.tensor(3.0 if bad else 1.0)]),
                "Distributed.all_gather.0.forward": gather})
    r = run("compare", "npu", "bench", "-o", "out", "-da")
    assert r.rc == 0
    assert "  Analysis      Functional.gelu.0.forward\n" in r.out and "\n                rank1, during communication\n" in r.out


def test_the_peer_of_a_message_is_a_number(run, tmp_path):
    for rank in (0, 1):
        for side in ("npu", "bench"):
            message = {"class_type": "torch.distributed.P2POp", "op": "irecv" if rank else "isend", "peer": 1 - rank, "tensor": dumps.tensor(1.0)}
            dumps.write(tmp_path / side / ("rank%d" % rank), {
                "Distributed.batch_isend_irecv.0.forward": dumps.call([[message]], [dumps.tensor(2.0 if side == "npu" else 1.0)])})
    assert run("compare", "npu", "bench", "-o", "out", "-da").rc == 0
    rows = load(next((tmp_path / "out").glob("compare_result_rank1_*.json")))["Distributed.batch_isend_irecv.0.forward"]["op_items"]
    assert [(r["NPU P2POp op"], r["NPU P2POp peer"], r["Bench P2POp peer"]) for r in rows] == [("irecv", 0, 0), ("None", "None", "None")]
    found = load(next((tmp_path / "out").glob("diff_analyze_*.json")))
    assert [v["NPU P2POp peer"] for v in found["rank_0"][0]["data_info"]["input"].values()] == [1]
