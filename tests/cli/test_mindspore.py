"""MindSpore dumps: against each other, against PyTorch's with every mapping, and static graphs."""
import csv
import json
import math
import os
import shutil

import pytest

import dumps
from conftest import ROOT


def ms(value, dtype="Float32", shape=(2, 3)):
    leaf = dumps.tensor(value, dtype, shape)
    del leaf["requires_grad"]
    leaf["type"] = "mindspore.Tensor"
    return leaf


def pt(value, dtype="torch.float32", shape=(2, 3)):
    return dumps.tensor(value, dtype, shape)


def network(leaf, names):
    """One call of each name; dense layers also have a weight, and parameters_grad its gradient."""
    records = {}
    for name in names:
        if name.endswith("parameters_grad"):
            records[name] = {"weight": [leaf(0.5, shape=(3, 2))]}
            continue
        records[name] = dumps.call([leaf(1.0), leaf(2.0), leaf(3.0)], [leaf(4.0)])
        if ".Dense." in name or ".Linear." in name:
            records[name]["parameters"] = {"weight": leaf(0.5, shape=(3, 2))}
    return records


MS = ["Functional.abs.0.forward", "Mint.add.0.forward", "MintFunctional.relu.0.forward", "Functional.own.0.forward",
      "Tensor.reshape.0.forward", "Cell.fc1.Dense.forward.0", "Cell.act.ReLU.forward.0", "Cell.fc1.Dense.parameters_grad"]
PT = ["Torch.abs.0.forward", "Torch.add.0.forward", "Functional.relu.0.forward", "Torch.theirs.0.forward",
      "Tensor.reshape.0.forward", "Module.fc1.Linear.forward.0", "Module.act.ReLU.forward.0",
      "Module.fc1.Linear.parameters_grad"]


@pytest.fixture
def cross(tmp_path):
    inside = {n: "Cell.fc1.Dense.forward.0" for n in MS[:5]}
    dumps.write(tmp_path / "npu", network(ms, MS), framework="mindspore", level="mix", stack=False,
                construct=dict(inside, **{n: None for n in MS[5:]}))
    inside = {n: "Module.fc1.Linear.forward.0" for n in PT[:5]}
    dumps.write(tmp_path / "bench", network(pt, PT), level="mix", stack=False,
                construct=dict(inside, **{n: None for n in PT[5:]}))
    return ["-f", "mindspore", "compare", "npu", "bench", "-o", "out", "-c", "--format", "csv"]


@pytest.fixture
def partners(tmp_path):
    """{NPU Name: Bench Name} of the one csv in out/."""
    def reader():
        path, = (tmp_path / "out").glob("*.csv")
        with open(path, newline="") as f:
            return {row["NPU Name"]: row["Bench Name"] for row in csv.DictReader(f)}
    return reader


def matched(found, calls):
    """For each call the one that its first row met, or None."""
    result = []
    for name in calls:
        bench = next(b for n, b in found.items() if n.startswith(name + "."))
        result.append(None if bench == "N/A" else bench.removesuffix(".input.0").removesuffix(".weight"))
    return result


def test_without_a_mapping_only_equal_names_meet(run, cross, partners):
    r = run(*cross)
    assert r.rc == 0
    assert matched(partners(), MS) == [None] * 4 + [PT[4]] + [None] * 3
    assert r.out.endswith("  Next          msprobe -f mindspore compare npu bench -o out -c --format csv -lm\n")


def test_am_knows_functions(run, cross, partners):
    assert run(*cross, "-am").rc == 0
    assert matched(partners(), MS) == PT[:3] + [None, PT[4], None, None, None]


@pytest.mark.parametrize("text", [
    "- ms_api: Functional.own\n  pt_api: Torch.theirs\n  ms_args: [0, 2]\n  pt_args: [1, 0]\n  ms_outputs: [0]\n"
    "  pt_outputs: [0]\n",
    "ms_api: Functional.own\npt_api: Torch.theirs\nms_args: [0, 2]\npt_args: [1, 0]\nms_output: [0]\npt_output: [0]\n"])
def test_am_with_a_yaml_pairs_arguments(run, cross, partners, tmp_path, text):
    (tmp_path / "am.yaml").write_text(text)
    assert run(*cross, "-am", "am.yaml").rc == 0
    found = partners()
    assert [found["Functional.own.0.forward." + p] for p in ("input.0", "input.1", "input.2", "output.0")] == [
        "Torch.theirs.0.forward.input.1", "N/A", "Torch.theirs.0.forward.input.0", "Torch.theirs.0.forward.output.0"]
    assert found["Functional.abs.0.forward.input.0"] == "Torch.abs.0.forward.input.0"


def test_cm_turns_cells_into_modules(run, cross, partners):
    assert run(*cross, "-cm").rc == 0
    assert matched(partners(), MS) == [None] * 4 + [PT[4], None, PT[6], None]


def test_cm_with_a_yaml_renames_them(run, cross, partners, tmp_path):
    (tmp_path / "cm.yaml").write_text("fc1.Dense: fc1.Linear\n")
    assert run(*cross, "-cm", "cm.yaml").rc == 0
    found = partners()
    assert matched(found, MS) == [None] * 4 + PT[4:]
    assert found["Cell.fc1.Dense.forward.0.parameters.weight"] == "Module.fc1.Linear.forward.0.parameters.weight"


def test_lm_finds_the_same_place_and_writes_the_mapping_down(run, cross, partners, files, tmp_path):
    r = run(*cross, "-lm")
    assert r.rc == 0 and files() == ["compare_result_TIME.csv", "data_mapping_TIME.yaml", "verdict_TIME.json"]
    assert "out/data_mapping_TIME.yaml" in r.out
    found = partners()
    assert matched(found, MS) == PT[:3] + [None] + PT[4:]
    path, = (tmp_path / "out").glob("*.yaml")
    lines = path.read_text().splitlines()
    assert lines[0] == "Functional.abs.0.forward.input.0: Torch.abs.0.forward.input.0"
    assert dict(line.split(": ") for line in lines) == found
    again = run(*cross, "-dm", path)  # what was written can be given back
    assert again.rc == 0


def test_lm_with_a_yaml_renames_layers(run, tmp_path):
    dumps.write(tmp_path / "npu", network(ms, ["Cell.net.attention.Attn.forward.0", "Cell.net.Net.forward.0"]),
                framework="mindspore", level="L0", stack=False, construct={"Cell.net.Net.forward.0": None})
    dumps.write(tmp_path / "bench", network(pt, ["Module.module.self_attention.A.forward.0", "Module.module.M.forward.0"]),
                level="L0", stack=False, construct={"Module.module.M.forward.0": None})
    (tmp_path / "lm.yaml").write_text("Cell:\n  net: module\nNet:\n  attention: self_attention\n")
    r = run("-f", "mindspore", "compare", "npu", "bench", "-o", "out", "-lm", "lm.yaml")
    assert r.rc == 0 and "8 in all, 8 matched" in r.out


def test_lm_pairs_two_layers_with_one_where_a_yaml_says_so(run, partners, tmp_path):
    calls = ["Cell.a.L.forward.0", "Cell.b.L.forward.0", "Cell.a.L.forward.1", "Cell.b.L.forward.1"]
    dumps.write(tmp_path / "npu", network(ms, calls), framework="mindspore", level="L0", stack=False, construct=dict.fromkeys(calls))
    calls = ["Module.c.L.forward.0", "Module.c.L.forward.1"]
    dumps.write(tmp_path / "bench", network(pt, calls), level="L0", stack=False, construct=dict.fromkeys(calls))
    (tmp_path / "lm.yaml").write_text("TopLayer:\n  a: c\n  b: c\n")
    assert run("-f", "mindspore", "compare", "npu", "bench", "-o", "out", "-lm", "lm.yaml", "--format", "csv").rc == 0
    found = partners()
    assert [found["Cell.%s.input.0" % name] for name in ("a.L.forward.0", "b.L.forward.0", "a.L.forward.1", "b.L.forward.1")] == [
        "Module.c.L.forward.%d.input.0" % n for n in (0, 0, 1, 1)]


def test_lm_needs_layers(run, tmp_path):
    for side, leaf, name in (("npu", ms, "Mint.add.0.forward"), ("bench", pt, "Torch.add.0.forward")):
        dumps.write(tmp_path / side, network(leaf, [name]), framework="mindspore" if leaf is ms else "pytorch", construct={})
    r = run("-f", "mindspore", "compare", "npu", "bench", "-lm")
    assert r.rc == 1
    assert r.err == ("error: npu/construct.json holds no layers: layer mapping needs dumps of level L0 or mix\n")


def test_am_on_pytorch_dumps_is_refused(run, tmp_path):
    for side in ("npu", "bench"):
        dumps.statistics(tmp_path / side)
    r = run("compare", "npu", "bench", "-am")
    assert r.rc == 1 and "-cm or -am is not supported in PyTorch framework" in r.err


def test_types_meet_by_class_across_frameworks(run, tmp_path, partners):
    records = {"Tensor.a.0.forward": dumps.call([ms(1.0, "Float16"), ms(1.0, "Int64"), ms(1.0, "Int32")], [])}
    dumps.write(tmp_path / "npu", records, framework="mindspore")
    records = {"Tensor.a.0.forward": dumps.call([pt(1.0, "torch.float64"), pt(1.0, "torch.int32"), pt(1.0, "torch.bool")], [])}
    dumps.write(tmp_path / "bench", records)
    assert run("-f", "mindspore", "compare", "npu", "bench", "-o", "out", "--format", "csv").rc == 0
    assert [b != "N/A" for b in partners().values()] == [True, True, False]


# ---- static graphs -------------------------------------------------------------------------------------------------------

def kernel(folder, op, io, values, time=17, shape=None):
    folder.mkdir(parents=True, exist_ok=True)
    dumps.npy(folder / ("%s.Default_%s-op0.0.0.%d.%s.0.DefaultFormat.Float32.npy" % (op, op, time, io)), values, shape)


@pytest.fixture
def graphs(tmp_path):
    for side, time, fault in (("npu", 100, 2.0), ("bench", 900, 0.0)):
        for rank in (0, 1):
            folder = tmp_path / side / ("rank_%d" % rank) / "Net/0/0"
            kernel(folder, "MatMul", "output", [1.0, 2.0, 3.0], time)
            kernel(folder, "Add", "output", [1.0, 2.0, 3.0 + fault * rank], time)
            kernel(folder, "Add", "output", [7.0, 8.0, 9.0], time + 1)
    return {"npu_path": "npu", "bench_path": "bench", "rank_id": [], "step_id": []}


def rows_of(path):
    with open(path, newline="") as f:
        return list(csv.DictReader(f))


def test_kernels_are_compared_by_rank_and_step(run, files, compare_json, graphs, tmp_path):
    compare_json(**graphs)
    r = run("-f", "mindspore", "compare", "-i", "compare.json", "-o", "out", "--format", "csv")
    assert r.rc == 0, r.err
    assert files() == ["compare_result_0_0_TIME.csv", "compare_result_1_0_TIME.csv"]
    assert "  rank0 step0         3         3  nothing wrong  -\n" in r.out
    assert "Worst element [2]: NPU 5.0, bench 3.0" in r.out
    path, = (tmp_path / "out").glob("compare_result_1_0_*.csv")
    rows = rows_of(path)
    assert list(rows[0])[:6] == ["NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape",
                                 "Bench Tensor Shape"]
    assert [row["Accuracy Reached or Not"] for row in rows] == ["No", "Yes", "Yes"]
    assert rows[0]["NPU Dtype"] == "float32" and rows[0]["NPU Tensor Shape"] == "(3,)" and rows[0]["MaxAbsErr"] == "2.0"
    assert rows[0]["NPU max"] == "5.0" and rows[0]["Bench mean"] == "2.0"


def test_folders_of_a_static_graph_are_known_by_their_layout(run, files, graphs, tmp_path):
    r = run("compare", "npu", "bench", "-o", "out", "--format", "csv")
    assert r.rc == 0, r.err
    assert files() == ["compare_result_0_0_TIME.csv", "compare_result_1_0_TIME.csv"]
    assert "Worst element [2]: NPU 5.0, bench 3.0" in r.out
    r = run("-f", "mindspore", "compare", "npu/rank_1", "bench/rank_1", "-o", "one", "--format", "csv")
    assert r.rc == 0, r.err
    assert [p.name[:20] for p in (tmp_path / "one").iterdir()] == ["compare_result_1_0_2"]
    (tmp_path / "npu/dump.json").write_text("{}")  # a dump of calls, whatever else lies there
    assert "static graph" not in run("compare", "npu", "bench", "-o", "two").err


def test_kernels_that_one_side_lacks_are_named(run, compare_json, graphs, tmp_path):
    shutil.rmtree(tmp_path / "bench/rank_1")
    next((tmp_path / "bench/rank_0/Net/0/0").glob("MatMul*")).unlink()
    compare_json(**graphs)
    r = run("-f", "mindspore", "compare", "-i", "compare.json", "-o", "out", "--format", "csv")
    assert r.rc == 1 and "rank1 step0 not compared: there is no such dump on the bench side" in r.out
    rows = rows_of(next((tmp_path / "out").glob("compare_result_0_0_*.csv")))
    assert [row["Err_message"] for row in rows] == ["", "", "Dump file is not ndarray.\n"]


def test_kernels_of_another_type_or_shape_are_not_compared(run, compare_json, tmp_path):
    for side, shape in (("npu", (1, 3)), ("bench", (3,))):
        kernel(tmp_path / side / "rank_0/Net/0/0", "Add", "output", [1.0, 2.0, 3.0], shape=shape)
        kernel(tmp_path / side / "rank_0/Net/0/0", "Mul", "output", [1.0, 2.0, 3.0])
    compare_json(npu_path="npu", bench_path="bench", step_id=[0])
    assert run("-f", "mindspore", "compare", "-i", "compare.json", "-o", "out", "--format", "csv").rc == 0
    rows = rows_of(next((tmp_path / "out").glob("*.csv")))
    assert [(row["Accuracy Reached or Not"], row["Err_message"]) for row in rows] == [
        ("", "Shape of NPU and bench Tensor do not match.\n"), ("Yes", "")]


def test_every_message_of_kernels_ends_its_line(run, compare_json, tmp_path):
    for side, value in (("npu", math.nan), ("bench", 1.0)):
        kernel(tmp_path / side / "rank_0/Net/0/0", "Add", "output", [value, 2.0, 3.0])
    compare_json(npu_path="npu", bench_path="bench", step_id=[0])
    assert run("-f", "mindspore", "compare", "-i", "compare.json", "-o", "out", "--format", "csv").rc == 0
    row, = rows_of(next((tmp_path / "out").glob("*.csv")))
    assert row["Err_message"] == "The Position of inf or nan in NPU and bench Tensor do not match.\n"


def test_statistic_tables_are_compared(run, compare_json, tmp_path):
    head = ("Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,Avg Value,"
            "L2Norm Value\n")
    for side, value in (("npu", "-1"), ("bench", "-10")):
        folder = tmp_path / side / "rank_0/Net/0/0"
        folder.mkdir(parents=True)
        (folder / "statistic.csv").write_text(head + 'Add,op,0,0,5,output,0,4,float32,"(2,3)",%s,-20,0.5,2\n' % value
                                              + 'Add,op,0,0,4,output,0,4,float32,"(2,3)",1,-20,0.5,2\n')
    compare_json(npu_path="npu", bench_path="bench", rank_id=[0])
    assert run("-f", "mindspore", "compare", "-i", "compare.json", "-o", "out", "--format", "csv").rc == 0
    rows = rows_of(next((tmp_path / "out").glob("*.csv")))
    assert [row["Accuracy Reached or Not"] for row in rows] == ["No", "Yes"]  # as the table has them
    assert rows[0]["Max diff"] == "9.0" and rows[0]["MaxRelativeErr"] == "90.0%"
    assert list(rows[0])[-2:] == ["NPU CSV File", "Bench CSV File"]


def test_words_in_statistic_tables_are_numbers_and_rows_keep_their_order(run, compare_json, tmp_path):
    """A truth value is True or False, and an empty tensor's numbers are null."""
    head = ("Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,Avg Value,"
            "L2Norm Value\n")
    line = '%s,%s,0,0,%d,output,0,4,bool,"(2)",%s,%s,%s,%s\n'
    shared = [("Less", "z", 1, "True", "False", "0.5", "1"), ("Cast", "b", 2, "null", "null", "null", "null")]
    for side, own in (("npu", ("Add", "c", 3, "1", "1", "1", "1")), ("bench", ("Add", "a", 3, "1", "1", "1", "1"))):
        folder = tmp_path / side / "rank_0/Net/0/0"
        folder.mkdir(parents=True)
        (folder / "statistic.csv").write_text(head + "".join(line % row for row in shared + [own]))
    compare_json(npu_path="npu", bench_path="bench", rank_id=[0])
    assert run("-f", "mindspore", "compare", "-i", "compare.json", "-o", "out", "--format", "csv").rc == 0
    rows = rows_of(next((tmp_path / "out").glob("*.csv")))
    assert [row["NPU Name"] or row["Bench Name"] for row in rows] == ["%s.0.output.0" % name for name in "zbca"]
    assert [(row["NPU max"], row["NPU min"], row["Accuracy Reached or Not"]) for row in rows[:2]] == [("1", "0", "Yes"), ("0", "0", "Yes")]


def test_plain_folders_are_mirrored(run, files, compare_json, tmp_path):
    for side, name in (("npu", "left"), ("bench", "right")):
        for sub in ("", "deep/er"):
            (tmp_path / side / sub).mkdir(parents=True, exist_ok=True)
            dumps.npy(tmp_path / side / sub / "loss_0_0.npy", [1.0, 2.0])
        dumps.npy(tmp_path / side / "deep/er" / (name + "_0_0.npy"), [1.0, 2.0])
    compare_json(npu_path="npu", bench_path="bench", common=True, map_dict={"left": "right"})
    assert run("-f", "mindspore", "compare", "-i", "compare.json", "-o", "out").rc == 0
    assert files() == ["deep/er/result.csv", "result.csv"]
    rows = rows_of(tmp_path / "out/deep/er/result.csv")
    assert len(rows[0]) == 22 and list(rows[0])[0] == "Name" and list(rows[0])[-1] == "Data_Name"
    assert sorted(row["Name"] for row in rows) == ["left_0", "loss_0"]
    assert run("-f", "mindspore", "compare", "-i", "compare.json", "-o", "out").rc == 0
    assert files() == ["deep/er/result.csv", "deep/er/result_TIME.csv", "result.csv", "result_TIME.csv"]


def test_mindspore_ranks_are_analysed_too(run, files, tmp_path):
    for rank in (0, 1):
        for side, value in (("npu", 9.0 if rank else 1.0), ("bench", 1.0)):
            records = {"Mint.add.0.forward": dumps.call([ms(1.0)], [ms(1.0)]),
                       "MintDistributed.all_reduce.0.forward": dumps.call([ms(1.0)], [ms(1.0)]),
                       "Mint.mul.0.forward": dumps.call([ms(1.0)], [ms(value)]),
                       "MintDistributed.all_reduce.1.forward": dumps.call([ms(1.0)], [ms(value)])}
            dumps.write(tmp_path / side / "step0" / ("rank%d" % rank), records, framework="mindspore")
    r = run("-f", "mindspore", "compare", "npu/step0", "bench/step0", "-o", "out", "-da")
    assert r.rc == 0
    assert "  Analysis      Mint.mul.0.forward\n" in r.out and "\n                rank1, during communication\n" in r.out
    assert files() == ["compare_result_rank0_TIME.json", "compare_result_rank1_TIME.json", "diff_analyze_NS.json"]
    doc = json.loads(next((tmp_path / "out").glob("diff_analyze_*.json")).read_text())
    assert list(doc) == ["rank_1"] and doc["rank_1"][0]["op_name"] == "Mint.mul.0.forward"


# ---- tables of the original ------------------------------------------------------------------------------------------------

DATA = os.path.join(ROOT, "tests/data/mindspore")
with open(os.path.join(DATA, "expected.json")) as f:
    RECORDED = json.load(f)


def same_cell(got, expected):
    if isinstance(expected, bool) or expected is None:
        return got == {True: "True", False: "False", None: ""}[expected]
    try:
        return math.isclose(float(got.rstrip("%")), float(str(expected).rstrip("%")), rel_tol=1e-9, abs_tol=1e-13)
    except ValueError:
        return got == expected


@pytest.mark.parametrize("case", RECORDED)
def test_recorded_tables_agree_cell_by_cell(run, tmp_path, case):
    recorded = RECORDED[case]
    options = [os.path.join(DATA, o) if o.endswith(".yaml") else o for o in recorded["options"]]
    r = run("-f", "mindspore", "compare", os.path.join(DATA, "ms_npu"), os.path.join(DATA, recorded["bench"]), "-o", "out",
            "--format", "csv", *options)
    assert r.rc == 0, r.err
    path, = (tmp_path / "out").glob("*.csv")
    with open(path, newline="") as f:
        header, *rows = csv.reader(f)
    assert header == recorded["header"] and len(rows) == len(recorded["rows"])
    wrong = [(row[0], title, got, expected) for row, expect in zip(rows, recorded["rows"])
             for title, got, expected in zip(header, row, expect) if not same_cell(got, expected)]
    assert wrong == []
