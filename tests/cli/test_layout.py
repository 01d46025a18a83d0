"""--layout: runs of unequal parallelism, whose tensors are put together before they are compared."""
import csv
import json
import math
import zlib
import struct

import dumps
import pytest
import test_job

LINEAR = "Functional.linear.0.forward"


def stats(values):
    return {"Max": max(values), "Min": min(values), "Mean": sum(values) / len(values),
            "Norm": math.sqrt(sum(v * v for v in values))}


def leaf(rows, name=None, md5=False, **extra):
    """A 2-d tensor's record from its rows of numbers."""
    values = [v for row in rows for v in row]
    record = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [len(rows), len(rows[0])], **stats(values),
              "requires_grad": False, **extra}
    if md5:
        record["md5"] = "%08x" % zlib.crc32(struct.pack("<%df" % len(values), *values))
    if name:
        record["data_name"] = name + ".npy"
    return record


def rank(folder, tensors, task="statistics", md5=False, extra=None):
    """A rank whose linear takes tensors[0] and gives tensors[1]."""
    names = [LINEAR + ".input.0", LINEAR + ".output.0"]
    leaves = [leaf(t, name if task == "tensor" else None, md5, **(extra or {}).get(i, {}))
              for i, (name, t) in enumerate(zip(names, tensors))]
    dumps.write(folder, {LINEAR: dumps.call(leaves[:1], leaves[1:])}, task=task)
    if task == "tensor":
        (folder / "dump_tensor_data").mkdir(exist_ok=True)
        for name, t in zip(names, tensors):
            dumps.npy(folder / "dump_tensor_data" / (name + ".npy"), [v for row in t for v in row], (len(t), len(t[0])))


X = [[1.0, -2.0, 3.5], [0.5, 4.0, -1.25]]
Y = [[float(i * 7 % 11) - 4.5 + j * j for j in range(6)] for i in range(2)]


def columns(rows, start, end):
    return [row[start:end] for row in rows]


def layout(tmp_path, text):
    (tmp_path / "layout.yaml").write_text(text)
    return "layout.yaml"


COLUMN_PARALLEL = """parts:
  - {name: "*.linear.*.input.*", how: replicate}
  - {name: "*.linear.*.output.*", how: concat, axis: -1}
"""


def table(tmp_path):
    path, = (tmp_path / "out").rglob("compare_result*.csv")
    return {row["NPU Name"]: row for row in csv.DictReader(path.open(newline=""))}


def compare(run, *options, rc=0):
    r = run("compare", "npu/step0", "bench/step0", "-o", "out", "--format", "csv", *options)
    assert r.rc == rc, r.err + r.out
    return r


@pytest.fixture(params=["statistics", "tensor"])
def task(request):
    return request.param


def column_parallel(tmp_path, task, parts=None, **options):
    rank(tmp_path / "bench/step0/rank0", [X, Y], task, **options)
    for r, (a, b) in enumerate([(0, 4), (4, 6)]):
        rank(tmp_path / "npu/step0" / ("rank%d" % r), [X, parts[r] if parts else columns(Y, a, b)], task, **options)


def test_columns_on_two_ranks_are_the_whole_of_one(run, tmp_path, task):
    column_parallel(tmp_path, task)
    compare(run, "--layout", layout(tmp_path, COLUMN_PARALLEL), "--fail-on", "any")
    row = table(tmp_path)[LINEAR + ".output.0"]
    assert row["NPU Tensor Shape"] == row["Bench Tensor Shape"] == "[2, 6]"
    if task == "tensor":
        assert float(row["Cosine"]) == 1 and float(row["MaxAbsErr"]) == 0 and row["Accuracy Reached or Not"] == "Yes"
    whole = stats([v for r in Y for v in r])
    assert [float(row[k]) for k in ("NPU max", "NPU min")] == [whole["Max"], whole["Min"]]
    assert float(row["NPU l2norm"]) == pytest.approx(whole["Norm"], rel=1e-14)
    assert float(row["NPU mean"]) == pytest.approx(whole["Mean"], rel=1e-13)


def test_without_a_layout_the_parts_have_no_partner(run, tmp_path, task):
    column_parallel(tmp_path, task)
    assert run("compare", "npu/step0", "bench/step0", "-o", "out").rc == 1


def test_a_wrong_element_of_one_part_is_found_in_its_place(run, tmp_path):
    wrong = [columns(Y, 0, 4), [row[:] for row in columns(Y, 4, 6)]]
    wrong[1][1][0] += 100
    column_parallel(tmp_path, "tensor", wrong)
    r = run("compare", "npu/step0", "bench/step0", "-o", "out", "--layout", layout(tmp_path, COLUMN_PARALLEL), "--json")
    pair, = json.loads(r.raw)["pairs"]
    assert pair["first_wrong"]["npu_name"] == LINEAR + ".output.0"
    assert pair["first_wrong"]["worst_element"]["index"] == [1, 4]
    assert pair["first_wrong"]["metrics"]["max_abs_err"] == 100


def test_the_metrics_are_those_of_the_whole(run, tmp_path):
    off = [[v + 0.25 * (i + j) for j, v in enumerate(row)] for i, row in enumerate(Y)]
    column_parallel(tmp_path, "tensor", [columns(off, 0, 4), columns(off, 4, 6)])
    compare(run, "--layout", layout(tmp_path, COLUMN_PARALLEL))
    row = table(tmp_path)[LINEAR + ".output.0"]
    n, b = [v for r in off for v in r], [v for r in Y for v in r]
    dist = math.sqrt(sum((x - y) ** 2 for x, y in zip(n, b)))
    cosine = sum(x * y for x, y in zip(n, b)) / math.sqrt(sum(x * x for x in n) * sum(y * y for y in b))
    assert float(row["EucDist"]) == pytest.approx(dist, rel=1e-12)
    assert float(row["Cosine"]) == pytest.approx(cosine, abs=1e-11)
    assert float(row["MaxAbsErr"]) == max(abs(x - y) for x, y in zip(n, b))
    relative = [abs((x - y) / y) for x, y in zip(n, b)]
    assert float(row["MaxRelativeErr"]) == pytest.approx(max(relative), rel=1e-6)
    assert float(row["One Thousandth Err Ratio"]) == pytest.approx(sum(x < 0.001 for x in relative) / 12)


def test_rows_on_two_ranks_have_the_checksum_of_the_whole(run, tmp_path):
    rank(tmp_path / "bench/step0/rank0", [X, Y], md5=True)
    for r in (0, 1):
        rank(tmp_path / "npu/step0" / ("rank%d" % r), [X, Y[r:r + 1]], md5=True)
    text = COLUMN_PARALLEL.replace("-1", "0")
    compare(run, "--layout", layout(tmp_path, text))
    row = table(tmp_path)[LINEAR + ".output.0"]
    assert row["Result"] == "Pass" and row["NPU MD5"] == "%08x" % zlib.crc32(struct.pack("<12f", *[v for r in Y for v in r]))


def test_a_checksum_that_does_not_follow_is_not_judged(run, tmp_path):
    column_parallel(tmp_path, "statistics", md5=True)
    compare(run, "--layout", layout(tmp_path, COLUMN_PARALLEL))
    rows = table(tmp_path)
    assert rows[LINEAR + ".output.0"]["NPU MD5"] == "N/A" and rows[LINEAR + ".output.0"]["Result"] == "N/A"
    assert rows[LINEAR + ".input.0"]["Result"] == "Pass"


ROW_PARALLEL = """parts:
  - {name: "*.input.*", how: concat, axis: 1}
  - {name: "*.output.*", how: sum}
"""


def test_partial_results_are_added_up(run, tmp_path, task):
    rank(tmp_path / "bench/step0/rank0", [X, Y], task)
    halves = [[[v * share for v in row] for row in Y] for share in (0.25, 0.75)]
    for r, (a, b) in enumerate([(0, 2), (2, 3)]):
        rank(tmp_path / "npu/step0" / ("rank%d" % r), [columns(X, a, b), halves[r]], task)
    compare(run, "--layout", layout(tmp_path, ROW_PARALLEL))
    rows = table(tmp_path)
    out = rows[LINEAR + ".output.0"]
    assert rows[LINEAR + ".input.0"]["NPU Tensor Shape"] == "[2, 3]"
    assert float(out["NPU mean"]) == pytest.approx(stats([v for r in Y for v in r])["Mean"], rel=1e-12)
    assert out["NPU max"] == out["NPU min"] == out["NPU l2norm"] == "N/A"
    if task == "tensor":
        assert float(out["Cosine"]) == 1 and float(out["MaxAbsErr"]) < 1e-6
    else:
        assert out["Result"] == ""


def test_parts_may_count_by_a_factor(run, tmp_path, task):
    """Data parallel: each rank's loss is the mean over its half of the batch, so that its gradients are twice those of the whole."""
    rank(tmp_path / "bench/step0/rank0", [X, Y], task)
    for r in (0, 1):
        share = [[v * (1.5, 0.5)[r] for v in row] for row in Y]
        rank(tmp_path / "npu/step0" / ("rank%d" % r), [[[2 * v for v in X[r]]], share], task)
    text = 'parts: [{name: "*.input.*", how: concat, axis: 0, factor: 0.5}, {name: "*.output.*", how: sum, factor: 0.5}]'
    compare(run, "--layout", layout(tmp_path, text), "--fail-on", "no")
    rows, whole = table(tmp_path), stats([v for r in X for v in r])
    row = rows[LINEAR + ".input.0"]
    assert [float(row["NPU " + k]) for k in ("max", "min")] == [whole["Max"], whole["Min"]]
    assert float(row["NPU l2norm"]) == pytest.approx(whole["Norm"]) and float(row["NPU mean"]) == pytest.approx(whole["Mean"])
    assert float(rows[LINEAR + ".output.0"]["NPU mean"]) == pytest.approx(stats([v for r in Y for v in r])["Mean"])
    if task == "tensor":
        assert all(float(row["MaxAbsErr"]) < 1e-6 and row["Accuracy Reached or Not"] == "Yes" for row in rows.values())


def test_replicas_that_are_not_equal_are_said(run, tmp_path, task):
    rank(tmp_path / "bench/step0/rank0", [X, Y], task)
    for r in (0, 1, 2):
        rank(tmp_path / "npu/step0" / ("rank%d" % r), [X if r < 2 else [[9.0, 9.0, 9.0]] * 2, Y], task)
    compare(run, "--layout", layout(tmp_path, 'parts: [{name: "*", how: replicate}]'))
    rows = table(tmp_path)
    assert "Layout, NPU side: the replicas on ranks 0 and 2 are not equal." in rows[LINEAR + ".input.0"]["Err_message"]
    assert "Layout" not in rows[LINEAR + ".output.0"]["Err_message"]


def test_groups_say_which_ranks_belong_together(run, tmp_path, task):
    for d in (0, 1):  # data parallel 2, tensor parallel 2 on the NPU side
        y = [[v + d for v in row] for row in Y]
        rank(tmp_path / "bench/step0" / ("rank%d" % d), [X, y], task)
        for t in (0, 1):
            rank(tmp_path / "npu/step0" / ("rank%d" % (2 * d + t)), [X, columns(y, 3 * t, 3 * t + 3)], task)
    text = COLUMN_PARALLEL + "groups:\n  - {npu: [0, 1], bench: [0]}\n  - {npu: [2, 3], bench: [1]}\n"
    r = run("compare", "npu", "bench", "-o", "out", "--layout", layout(tmp_path, text), "--json", "--fail-on", "any")
    assert r.rc == 0, r.err
    assert [p["label"] for p in json.loads(r.raw)["pairs"]] == ["step0 rank0", "step0 rank2"]


def test_stages_of_a_pipeline_are_one_run(run, tmp_path, task):
    whole = {"Functional.a.0.forward": 1.0, "Functional.b.0.forward": 2.0}
    dumps.write(tmp_path / "bench/step0/rank0", {n: dumps.call([dumps.tensor(v)], [dumps.tensor(2 * v)]) for n, v in whole.items()})
    for r, (n, v) in enumerate(whole.items()):
        dumps.write(tmp_path / "npu/step0" / ("rank%d" % r), {n: dumps.call([dumps.tensor(v)], [dumps.tensor(2 * v)])})
    compare(run, "--layout", layout(tmp_path, "parts: []"), "--fail-on", "any")
    assert list(table(tmp_path)) == ["Functional.a.0.forward.input.0", "Functional.a.0.forward.output.0",
                                     "Functional.b.0.forward.input.0", "Functional.b.0.forward.output.0"]


def linears(folder, values, first=0, kind="Functional.linear.%d.forward"):
    """One call for each value, which gives its double."""
    dumps.write(folder, {kind % (first + i): dumps.call([dumps.tensor(v)], [dumps.tensor(2 * v)]) for i, v in enumerate(values)})


@pytest.mark.parametrize("npu,text", [([[1.0, 2.0], [3.0]], "stages: {npu: [[0], [1]]}"),
                                      ([[1.0, 2.0], [3.0], [1.0, 2.0], [3.0]], "stages: {npu: [[0, 2], [1, 3]]}\nparts: [{name: '*', how: replicate}]"),
                                      ([[1.0, 1.5, 2.0, 2.5], [3.0, 3.5]], None)], ids=["one", "two", "micro"])
def test_the_calls_of_stages_go_on_counting(run, tmp_path, npu, text):
    """The last: two micro-batches, each with two calls of the first stage and one of the second."""
    whole = [1.0, 2.0, 3.0] if text else [1.0, 1.5, 3.0, 2.0, 2.5, 3.5]
    linears(tmp_path / "bench/step0/rank0", whole)
    for r, values in enumerate(npu):
        linears(tmp_path / "npu/step0" / ("rank%d" % r), values)
    text = text or "stages: {npu: [[0], [1]], micro_batches: 2}"
    compare(run, "--layout", layout(tmp_path, text), "--fail-on", "any")
    assert {name.split(".")[2] for name in table(tmp_path)} == {str(i) for i in range(len(whole))}


def test_paths_that_begin_anew_in_each_stage_go_on_too(run, tmp_path):
    linears(tmp_path / "bench/step0/rank0", [1.0, 2.0, 3.0], 0, "Module.layers.%d.Linear.forward.0")
    linears(tmp_path / "npu/step0/rank0", [1.0, 2.0], 0, "Module.layers.%d.Linear.forward.0")
    linears(tmp_path / "npu/step0/rank1", [3.0], 0, "Module.layers.%d.Linear.forward.0")
    compare(run, "--layout", layout(tmp_path, "stages: {npu: [[0], [1]]}"), "--fail-on", "any")
    assert "Module.layers.2.Linear.forward.0.output.0" in table(tmp_path)


def test_backward_calls_of_later_stages_come_first(run, tmp_path):
    for side, stages in (("bench", [[0, 1]]), ("npu", [[0], [0]])):
        for r, calls in enumerate(stages):
            names = ["Functional.linear.%d.%s" % (i, way) for way in ("forward", "backward") for i in (calls if way == "forward" else calls[::-1])]
            dumps.write(tmp_path / side / "step0" / ("rank%d" % r), {n: dumps.call([dumps.tensor(1.0)], [dumps.tensor(2.0)]) if "forward" in n else
                                                                     {"input": [dumps.tensor(1.0)], "output": [dumps.tensor(2.0)]} for n in names})
    compare(run, "--layout", layout(tmp_path, "stages: {npu: [[0], [1]]}"), "--fail-on", "any")
    assert list(dict.fromkeys(name.rsplit(".", 2)[0] for name in table(tmp_path))) == [
        "Functional.linear.0.forward", "Functional.linear.1.forward", "Functional.linear.1.backward", "Functional.linear.0.backward"]


def test_skipped_rows_are_in_no_table(run, tmp_path, task):
    column_parallel(tmp_path, task)
    text = 'parts: [{name: "*.input.*", how: skip}, {name: "*", how: concat, axis: 1}]'
    compare(run, "--layout", layout(tmp_path, text), "--fail-on", "any")
    assert list(table(tmp_path)) == [LINEAR + ".output.0"]


def test_the_bench_may_be_in_parts_too(run, tmp_path, task):
    column_parallel(tmp_path, task)
    (tmp_path / "npu").rename(tmp_path / "parts")
    (tmp_path / "bench").rename(tmp_path / "npu")
    (tmp_path / "parts").rename(tmp_path / "bench")
    text = COLUMN_PARALLEL.replace("}", ", side: bench}")
    compare(run, "--layout", layout(tmp_path, text), "--fail-on", "any")


def test_both_sides_may_be_in_parts(run, tmp_path):
    for side, cuts in (("npu", [0, 1, 4, 6]), ("bench", [0, 3, 6])):
        for r in range(len(cuts) - 1):
            rank(tmp_path / side / "step0" / ("rank%d" % r), [X, columns(Y, cuts[r], cuts[r + 1])], "tensor")
    text = COLUMN_PARALLEL + COLUMN_PARALLEL.replace("parts:\n", "").replace("}", ", side: bench}")
    compare(run, "--layout", layout(tmp_path, text), "--fail-on", "any")
    assert float(table(tmp_path)[LINEAR + ".output.0"]["MaxAbsErr"]) == 0


def test_dtensors_say_it_themselves(run, tmp_path, task):
    shard = {"device_mesh": [[0, 1], [2, 3]], "placements": [{"Replicate": {}}, {"Shard": {"dim": 1}}]}
    copy = {"device_mesh": [[0, 1], [2, 3]], "placements": [{"Replicate": {}}, {"Replicate": {}}]}
    rank(tmp_path / "bench/step0/rank0", [X, Y], task)
    for r in range(4):
        part = columns(Y, 0, 4) if r % 2 == 0 else columns(Y, 4, 6)
        rank(tmp_path / "npu/step0" / ("rank%d" % r), [X, part], task, extra={0: copy, 1: shard})
    compare(run, "--layout", "records", "--fail-on", "any")
    assert table(tmp_path)[LINEAR + ".output.0"]["NPU Tensor Shape"] == "[2, 6]"


HALVES = {"device_mesh": [0, 1], "placements": [{"Shard": {"dim": 1}}]}, {"device_mesh": [2, 3], "placements": [{"Shard": {"dim": 1}}]}


@pytest.mark.parametrize("rule,ranks", [("how: concat, axis: 0", ""), ("how: sum, factor: 0.5", ", ranks: [0, 2]")], ids=["rows", "mean"])
def test_a_rule_for_dtensors_of_several_meshes_is_for_what_each_makes(run, tmp_path, task, rule, ranks):
    """Two replicas with two shards each, over the columns: the replicas have a row each, or a share of a mean."""
    rank(tmp_path / "bench/step0/rank0", [X, Y], task)
    for r in range(4):
        rows = [Y[r // 2]] if "concat" in rule else [[v * (1.5, 0.5)[r // 2] for v in row] for row in Y]
        rank(tmp_path / "npu/step0" / ("rank%d" % r), [X, columns(rows, 3 * (r % 2), 3 * (r % 2) + 3)], task, extra={1: HALVES[r // 2]})
    compare(run, "--layout", layout(tmp_path, 'parts: [{name: "*.output.*", %s%s}]' % (rule, ranks)), "--fail-on", "no")
    row = table(tmp_path)[LINEAR + ".output.0"]
    assert row["NPU Tensor Shape"] == "[2, 6]" and "Layout" not in row["Err_message"]
    assert float(row["NPU mean"]) == pytest.approx(stats([v for r in Y for v in r])["Mean"])
    if task == "tensor":
        assert float(row["MaxAbsErr"]) < 1e-6
    elif "concat" in rule:
        assert float(row["NPU l2norm"]) == pytest.approx(stats([v for r in Y for v in r])["Norm"])


@pytest.mark.parametrize("text, why", [
    ("parts: [{name: 'a', how: cut}]", "part 1: 'how' is concat, sum, replicate or skip"),
    ("parts: [{name: 'a', how: concat}]", "part 1: concat needs an 'axis'"),
    ("parts: [{how: sum}]", "part 1: 'name' is a pattern"),
    ("parts: [{name: 'a', how: sum, axes: 1}]", "part 1: there is no key 'axes'"),
    ("parts: [{name: 'a', how: sum, ranks: [0, 0]}]", "rank 0 stands twice"),
    ("parts: [{name: 'a', how: replicate, factor: 2}]", "part 1: only concat and sum have a factor"),
    ("parts: [{name: 'a', how: sum, factor: -1}]", "part 1: 'factor' is a number above 0"),
    ("parts: 3", "'parts' and 'groups' are lists"),
    ("groups: [{npu: [0], bench: [0]}, {npu: [0], bench: [1]}]", "rank 0 of the NPU side stands in two groups"),
    ("groups: [{npu: [7], bench: [0]}]", "names rank 7, of which the NPU side has no dump.json"),
    ("stages: [[0], [1]]", "'stages' are a mapping with 'npu', 'bench' and 'micro_batches'"),
    ("stages: {npu: [0, 1]}", "stage 1: ranks are a list of numbers"),
    ("stages: {npu: 1}", "'stages' of a side are a list of lists of ranks"),
    ("stages: {npu: [[0], [0]]}", "stage 2: rank 0 stands in another one, too"),
    ("stages: {npu: [[0]], micro_batches: 0}", "'micro_batches' is a number from 1 on"),
    ("stages: {npu: [[0]]}", "the layout's stages leave out rank 1 of the NPU side"),
    ("- a", "a layout has 'parts', 'groups' and 'stages'"),
    ("parts: [", "layout.yaml: "),
])
def test_a_layout_that_means_nothing_is_an_error_that_says_where(run, tmp_path, text, why):
    column_parallel(tmp_path, "statistics")
    assert why in compare(run, "--layout", layout(tmp_path, text), rc=1).err


@pytest.mark.parametrize("rule, why", [
    ("how: concat, axis: 5", "it has no axis 5"),
    ("how: sum", "the shapes of its parts do not go together"),
    ("how: concat, axis: 1, ranks: [0, 1, 2]", "rank 2 has no part of it"),
])
def test_parts_that_do_not_go_together_are_said_in_their_row(run, tmp_path, rule, why):
    column_parallel(tmp_path, "statistics")
    text = 'parts: [{name: "*.output.*", %s}]' % rule
    compare(run, "--layout", layout(tmp_path, text))
    assert why in table(tmp_path)[LINEAR + ".output.0"]["Err_message"]


def test_a_rule_that_fits_nothing_and_parts_that_do_not_go_together_are_said_on_the_screen(run, tmp_path):
    column_parallel(tmp_path, "statistics")
    text = COLUMN_PARALLEL.replace("axis: -1", "axis: 4") + '  - {name: "*.lniear.*", how: sum}\n'
    r = compare(run, "--layout", layout(tmp_path, text))
    assert r.err == "warning: layout.yaml: part 3 (*.lniear.*) is the rule of no row\n"
    said = " ".join(r.out.split())
    assert "The layout does not hold for 1 row of the NPU side; the first is Functional.linear.0.forward.output.0: it has no axis 4" in said
    assert compare(run, "--layout", layout(tmp_path, COLUMN_PARALLEL)).err == ""


@pytest.mark.parametrize("text", ["a: &a [x, x]\nb: [*a, *a]\nparts: []\n", "a: &a [*a]\n", "[" * 5000 + "]" * 5000, "parts:\0\1"],
                         ids=["anchors", "itself", "deep", "bytes"])
def test_a_hostile_layout_is_an_error_with_its_line(run, tmp_path, text):
    column_parallel(tmp_path, "statistics")
    r = compare(run, "--layout", layout(tmp_path, text), rc=1)
    assert r.err.startswith("error: layout.yaml: line ") and r.err.count("\n") == 1


def test_a_layout_and_a_mapping_do_not_go_together(run, tmp_path):
    column_parallel(tmp_path, "statistics")
    (tmp_path / "map.yaml").write_text("a: b\n")
    assert "cannot be used together" in compare(run, "--layout", layout(tmp_path, COLUMN_PARALLEL), "-dm", "map.yaml", rc=1).err


# ---- auto ------------------------------------------------------------------------------------------------------------

def mlp(folder, tensors, task):
    """Two linear layers: each takes tensors[i] and gives tensors[i + 1]."""
    records = {}
    for i in range(2):
        names = ["Functional.linear.%d.forward.%s" % (i, at) for at in ("input.0", "output.0")]
        leaves = [leaf(t, name if task == "tensor" else None) for name, t in zip(names, tensors[2 * i:2 * i + 2])]
        records["Functional.linear.%d.forward" % i] = dumps.call(leaves[:1], leaves[1:])
    dumps.write(folder, records, task=task)
    if task == "tensor":
        (folder / "dump_tensor_data").mkdir(exist_ok=True)
        for i, (name, record) in enumerate((n, r) for n, r in records.items()):
            for k, at in enumerate(("input.0", "output.0")):
                t = tensors[2 * i + k]
                dumps.npy(folder / "dump_tensor_data" / ("%s.%s.npy" % (name, at)), [v for row in t for v in row], (len(t), len(t[0])))


def megatron(tmp_path, task, fault=0.0):
    """The first layer in columns, the second in rows, whose results are summands."""
    out = [[3.0, -1.0], [2.5, 0.75]]
    mlp(tmp_path / "bench/step0/rank0", [X, Y, Y, out], task)
    for r, (a, b) in enumerate([(0, 4), (4, 6)]):
        part = columns(Y, a, b)
        if r == 1:
            part[0][0] += fault
        share = [[v * (0.75, 0.25)[r] for v in row] for row in out]
        mlp(tmp_path / "npu/step0" / ("rank%d" % r), [X, part, part, share], task)


def test_auto_finds_out_how_the_parts_make_the_whole_and_writes_it(run, tmp_path, task):
    megatron(tmp_path, task)
    compare(run, "--layout", "auto", "--fail-on", "no")
    path, = (tmp_path / "out").glob("layout_*.yaml")
    assert [line for line in path.read_text().splitlines() if not line.startswith("#")] == [
        "parts:",
        '  - {name: "Functional.linear.0.forward.input.0", how: replicate}',
        '  - {name: "Functional.linear.0.forward.output.0", how: concat, axis: 1}',
        '  - {name: "Functional.linear.1.forward.input.0", how: concat, axis: 1}',
        '  - {name: "Functional.linear.1.forward.output.0", how: sum}']
    rows = table(tmp_path)
    assert {row["NPU Tensor Shape"] for row in rows.values()} == {"[2, 3]", "[2, 6]", "[2, 2]"}
    if task == "tensor":
        assert all(float(row["MaxAbsErr"]) < 1e-6 for row in rows.values())
    # what was written is what was used
    first = {name: dict(row) for name, row in rows.items()}
    (tmp_path / "out").rename(tmp_path / "before")
    compare(run, "--layout", next((tmp_path / "before").glob("layout_*.yaml")), "--fail-on", "no")
    assert table(tmp_path) == first


def test_auto_takes_calls_that_are_alike_together(run, tmp_path):
    for side, cut in (("bench", lambda r: Y), ("npu", lambda r: columns(Y, 3 * r, 3 * r + 3))):
        for r in range(1 if side == "bench" else 2):
            dumps.write(tmp_path / side / "step0" / ("rank%d" % r), {
                "Functional.gelu.%d.forward" % i: dumps.call([leaf(cut(r))], [leaf(cut(r))]) for i in range(5)})
    compare(run, "--layout", "auto", "--fail-on", "any")
    text = next((tmp_path / "out").glob("layout_*.yaml")).read_text()
    assert text.count("how:") == 2 and '{name: "Functional.gelu.*.forward.output.0", how: concat, axis: 1}' in text


def test_a_fault_does_not_keep_auto_from_finding_the_layout(run, tmp_path, task):
    megatron(tmp_path, task, 50.0)
    r = run("compare", "npu/step0", "bench/step0", "-o", "out", "--layout", "auto", "--json")
    pair, = json.loads(r.raw)["pairs"]
    assert pair["first_wrong"]["npu_name"] == "Functional.linear.0.forward.output.0"


def test_auto_works_with_the_parts_on_the_bench_side(run, tmp_path, task):
    megatron(tmp_path, task)
    (tmp_path / "npu").rename(tmp_path / "parts")
    (tmp_path / "bench").rename(tmp_path / "npu")
    (tmp_path / "parts").rename(tmp_path / "bench")
    compare(run, "--layout", "auto", "--fail-on", "no")
    assert ", side: bench}" in next((tmp_path / "out").glob("layout_*.yaml")).read_text()


def test_auto_takes_ranks_among_which_the_calls_are_divided_for_stages(run, tmp_path):
    linears(tmp_path / "bench/step0/rank0", [1.0, 5.0, 30.0, 2.0, 7.0, 45.0])
    for r, values in enumerate([[1.0, 5.0, 2.0, 7.0], [30.0, 45.0]]):
        linears(tmp_path / "npu/step0" / ("rank%d" % r), values)
    compare(run, "--layout", "auto", "--fail-on", "any")
    text = next((tmp_path / "out").glob("layout_*.yaml")).read_text()
    assert text.split("\n", 1)[1] == "stages:\n  npu: [[0], [1]]\n  micro_batches: 2\nparts:\n  []\n"


SHARD = {"device_mesh": [0, 1], "placements": [{"Shard": {"dim": 1}}]}


def test_auto_leaves_dtensors_to_their_records_and_says_what_they_say(run, tmp_path, task):
    """The input is no DTensor: shapes and numbers say that it is a replica."""
    rank(tmp_path / "bench/step0/rank0", [X, Y], task)
    for r, (a, b) in enumerate([(0, 4), (4, 6)]):
        rank(tmp_path / "npu/step0" / ("rank%d" % r), [X, columns(Y, a, b)], task, extra={1: SHARD})
    compare(run, "--layout", "auto", "--fail-on", "any")
    text = next((tmp_path / "out").glob("layout_*.yaml")).read_text()
    assert "#   Functional.linear.*.forward.output.0: [Shard(1)] over ranks [0, 1]\n" in text
    assert text.split("parts:\n")[1] == '  - {name: "Functional.linear.*.forward.input.0", how: replicate}\n'
    assert table(tmp_path)[LINEAR + ".output.0"]["NPU Tensor Shape"] == "[2, 6]"


def test_auto_of_dtensors_on_both_sides_is_what_their_records_say(run, tmp_path, task):
    for side in ("npu", "bench"):
        for r, (a, b) in enumerate([(0, 4), (4, 6)] if side == "npu" else [(0, 3), (3, 6)]):
            rank(tmp_path / side / "step0" / ("rank%d" % r), [X, columns(Y, a, b)], task, extra={1: SHARD})
    compare(run, "--layout", "auto", "--fail-on", "any")
    assert table(tmp_path)[LINEAR + ".output.0"]["Bench Tensor Shape"] == "[2, 6]"


def test_auto_needs_one_rank_on_one_side(run, tmp_path):
    megatron(tmp_path, "statistics")
    r = run("compare", "npu/step0", "npu/step0", "-o", "out", "--layout", "auto")
    assert r.rc == 1 and "needs one rank on one side and several on the other; here are 2 on the NPU side and 2" in r.err


def test_auto_that_finds_nothing_is_an_error(run, tmp_path):
    mlp(tmp_path / "bench/step0/rank0", [X, Y, Y, X], "statistics")
    for r in (0, 1):
        mlp(tmp_path / "npu/step0" / ("rank%d" % r), [[[1.0] * 7], [[2.0] * 7], [[3.0] * 7], [[4.0] * 7]], "statistics")
    r = run("compare", "npu/step0", "bench/step0", "-o", "out", "--layout", "auto")
    assert r.rc == 1 and "no layout can be proposed" in r.err
