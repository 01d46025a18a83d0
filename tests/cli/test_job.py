"""Many ranks: whose wrong call came first, who only inherited it, and what is missing; and the table that says so."""
import csv
import json
import shutil

import dumps
import pytest

RANKS = 4
WORLD = list(range(RANKS))


def group(ranks):
    return {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": "0"}


def collective(inputs, outputs, ranks=WORLD):
    return {"input_args": inputs, "input_kwargs": {"group": group(ranks)}, "output": outputs}


def message(before, after, kind, peer):
    return {"input_args": [dumps.tensor(before)], "input_kwargs": {kind: {"type": "int", "value": peer}},
            "output": [dumps.tensor(after)]}


def replica(before=1.0, middle=1.0, after=1.0):
    """A rank of a data-parallel step: factors of what its relu, its second all_reduce and its gelu give."""
    t = dumps.tensor
    return {
        "Functional.linear.0.forward": dumps.call([t(1.0)], [t(2.0)]),
        "Distributed.all_reduce.0.forward": collective([t(2.0)], [t(8.0)]),
        "Functional.relu.0.forward": dumps.call([t(8.0)], [t(3.0 * before)]),
        "Distributed.all_reduce.1.forward": collective([t(3.0 * before)], [t(12.0 * middle)]),
        "Functional.gelu.0.forward": dumps.call([t(12.0 * middle)], [t(6.0 * after)]),
    }


def write(root, ranks, step=0, **options):
    for number, records in ranks.items():
        dumps.write(root / ("step%d" % step) / ("rank%d" % number), records, **options)


def compare(run, *options):
    r = run("compare", "npu", "bench", "-o", "out", "--json", *options)
    return r, json.loads(r.raw)


def rows_of(job):
    return {row["label"]: row for row in job["table"]}


@pytest.fixture
def one_fault(tmp_path):
    """rank2's relu gives twice what it should; the second all_reduce brings that to everybody."""
    write(tmp_path / "bench", {r: replica() for r in WORLD})
    write(tmp_path / "npu", {r: replica(2.0 if r == 2 else 1.0, 1.5, 1.5) for r in WORLD})


def test_the_rank_that_went_wrong_first_is_named_and_the_others_only_inherited_it(run, one_fault):
    r, out = compare(run)
    job = out["job"]
    assert r.rc == 0 and job["notes"] == []
    assert (job["first"], job["inherited"], job["alike"], job["own"]) == (2, 3, 0, 0)
    rows = rows_of(job)
    assert [rows["step0 rank%d" % i]["role"] for i in WORLD] == ["inherited", "inherited", "first", "inherited"]
    first = rows["step0 rank2"]
    assert first["first_wrong"] == "Functional.relu.0.forward" and first["order"] == 1
    assert first["waited_for"] == "Distributed.all_reduce.0.forward"
    assert first["stack"] == dumps.frames(12)
    assert rows["step0 rank0"]["inherited_through"] == "Distributed.all_reduce.1.forward"
    assert rows["step0 rank0"]["order"] == rows["step0 rank3"]["order"] > 1


def test_the_first_screen_names_rank_call_and_stack_and_counts_the_others(run, one_fault):
    r = run("compare", "npu", "bench", "-o", "out")
    assert "  Wrong first   step0 rank2: Functional.relu.0.forward\n" in r.out
    assert "  Called at     /home/me/train.py:12 in forward\n" in r.out
    assert "  It waited for Distributed.all_reduce.0.forward\n" in r.out
    assert "  Other ranks   3 only inherited it\n" in r.out


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_the_table_has_a_row_for_every_step_and_rank(run, one_fault, tmp_path, ending):
    assert run("compare", "npu", "bench", "-o", "out", "--format", ending).rc == 0
    path, = (tmp_path / "out").glob("job_table_*." + ending)
    if ending == "csv":
        rows = list(csv.DictReader(path.open(newline="")))
    else:
        table = json.loads(path.read_text())
        rows = [{k: "" if v is None else str(v) for k, v in zip(table["columns"], row)} for row in table["rows"]]
    assert [row["Rank"] for row in rows] == ["0", "1", "2", "3"] and {row["Step"] for row in rows} == {"0"}
    assert rows[2]["Role"] == "first" and rows[2]["Order"] == "1"
    assert rows[2]["First Wrong Call"] == "Functional.relu.0.forward" and rows[2]["Waited For"] == "Distributed.all_reduce.0.forward"
    assert rows[0]["Inherited Through"] == "Distributed.all_reduce.1.forward"
    assert rows[2]["Matched"] == "12" and rows[2]["NPU Calls"] == "5"
    assert "/home/me/train.py, line 12" in rows[2]["Stack"]


def test_the_table_is_a_workbook_where_results_are(run, one_fault, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    assert run("compare", "npu", "bench", "-o", "out").rc == 0
    path, = (tmp_path / "out").glob("job_table_*.xlsx")
    sheet = openpyxl.load_workbook(path)["Job"]
    assert [c.value for c in sheet[1]][:6] == ["Step", "Rank", "File", "Role", "Order", "First Wrong Call"]
    assert sheet.max_row == 5 and sheet.cell(4, 4).value == "first"


def test_a_clean_job_has_no_first_wrong_call(run, tmp_path):
    for side in ("npu", "bench"):
        write(tmp_path / side, {r: replica() for r in WORLD})
    r, out = compare(run)
    assert out["job"]["first"] is None and {row["role"] for row in out["job"]["table"]} == {"clean"}
    assert "Wrong first" not in run("compare", "npu", "bench", "-o", "out").out


def test_the_same_call_wrong_on_every_rank_is_nobodys_inheritance(run, tmp_path):
    write(tmp_path / "bench", {r: replica() for r in WORLD})
    write(tmp_path / "npu", {r: replica(2.0, 2.0, 2.0) for r in WORLD})
    job = compare(run)[1]["job"]
    assert (job["first"], job["inherited"], job["alike"], job["own"]) == (0, 0, 3, 0)
    assert {row["order"] for row in job["table"]} == {1}


def pipeline(rank, fault=0):
    """Three stages hand a value on; what is wrong before stage 1 sends, stage 2 receives."""
    t, value = dumps.tensor, [1.0, 2.0, 4.0][rank] * (fault if rank > 1 and fault else 1)
    out = value * 2 * (fault if rank == 1 and fault else 1)
    records = {}
    if rank > 0:
        records["Distributed.recv.0.forward"] = message(0.0, value, "src", rank - 1)
    records["Functional.linear.0.forward"] = dumps.call([t(value)], [t(out)])
    if rank < 2:
        records["Distributed.send.0.forward"] = message(out, out, "dst", rank + 1)
    return records


def test_messages_carry_what_is_wrong_to_the_receiver_and_not_to_the_sender(run, tmp_path):
    write(tmp_path / "bench", {r: pipeline(r) for r in range(3)})
    write(tmp_path / "npu", {r: pipeline(r, 3) for r in range(3)})
    job = compare(run)[1]["job"]
    rows = rows_of(job)
    assert [rows["step0 rank%d" % i]["role"] for i in range(3)] == ["clean", "first", "inherited"]
    assert rows["step0 rank2"]["inherited_through"] == "Distributed.recv.0.forward"


def test_a_later_step_comes_after_an_earlier_one_on_whatever_rank(run, tmp_path):
    for step in (0, 1):
        write(tmp_path / "bench", {r: replica() for r in WORLD}, step)
    write(tmp_path / "npu", {r: replica(1, 1, 2.0 if r == 3 else 1) for r in WORLD}, 0)
    write(tmp_path / "npu", {r: replica(2.0, 2.0, 2.0) for r in WORLD}, 1)
    rows = rows_of(compare(run)[1]["job"])
    assert rows["step0 rank3"]["role"] == "first" and rows["step0 rank3"]["order"] == 1
    assert {rows["step1 rank%d" % i]["role"] for i in WORLD} == {"inherited"}


def test_nan_on_one_side_is_named_as_the_first_non_finite_call(run, tmp_path):
    write(tmp_path / "bench", {r: replica() for r in WORLD})
    write(tmp_path / "npu", {r: replica(1, 1, float("nan") if r == 1 else 1) for r in WORLD})
    rows = rows_of(compare(run)[1]["job"])
    assert rows["step0 rank1"]["first_nonfinite"] == "Functional.gelu.0.forward"
    assert rows["step0 rank0"]["first_nonfinite"] is None


# ---- what is said first ----------------------------------------------------------------------------------------------

def test_a_rank_that_one_side_lacks_is_said_first(run, one_fault, tmp_path):
    shutil.rmtree(tmp_path / "npu/step0/rank3")
    r, out = compare(run)
    assert r.rc == 1 and out["job"]["notes"] == ["step0 rank3: missing on the NPU side"]
    screen = run("compare", "npu", "bench", "-o", "out").out
    assert screen.index("  Ranks         step0 rank3: missing on the NPU side\n") < screen.index("  Wrong first ")
    assert rows_of(out["job"])["step0 rank3"]["role"] == "not compared"


def test_a_rank_that_both_sides_lack_is_known_by_the_groups_of_the_others(run, one_fault, tmp_path):
    for side in ("npu", "bench"):
        shutil.rmtree(tmp_path / side / "step0/rank3")
    assert compare(run)[1]["job"]["notes"] == [
        "step0 rank3: missing on both sides: Distributed.all_reduce.0.forward of step0 rank0 speaks to it"]


def test_a_rank_that_stopped_early_is_said_with_its_last_call(run, one_fault, tmp_path):
    records = dict(list(replica().items())[:3])
    write(tmp_path / "npu", {1: records})
    r, out = compare(run)
    assert out["job"]["notes"] == [
        "step0 rank1: the NPU side stops early: 3 of the other's 5 calls, the last is Functional.relu.0.forward"]


def test_ranks_with_other_numbers_of_calls_share_a_line(run, one_fault, tmp_path):
    extra = dict(replica())
    extra = {"Functional.dropout.0.forward": dumps.call([dumps.tensor(1.0)], [dumps.tensor(1.0)]), **extra}
    write(tmp_path / "npu", {r: extra for r in (0, 3)})
    assert compare(run)[1]["job"]["notes"] == [
        "step0 rank0, step0 rank3: 6 calls on the NPU side, 5 on the bench side; the first that only the NPU has: "
        "Functional.dropout.0.forward"]


def test_a_single_pair_is_no_job(run, files, tmp_path):
    dumps.statistics(tmp_path / "npu", 2)
    dumps.statistics(tmp_path / "bench")
    assert "job" not in compare(run)[1]
    assert not [name for name in files() if name.startswith("job")]
