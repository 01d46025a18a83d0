"""What the first screen says is true: said only where it was checked, in one vocabulary, and never silent."""
import json
import re

import dumps
import pytest

LINEAR, RELU, GELU = ("Functional.%s.0.forward" % n for n in ("linear", "relu", "gelu"))


def words(text):
    """The screen as one line, so that sentences may be broken anywhere."""
    return " ".join(text.split())


def doc(run, *more):
    return json.loads(run("compare", "npu", "bench", "-o", "out", *more, "--json").raw)


def chain(folder, calls, **options):
    """Calls one after the other, each taking what the one before gave: [(name, value of its result, extra inputs)]."""
    before, records = dumps.tensor(1.0), {}
    for name, value, *extra in calls:
        after = dumps.tensor(value)
        records[name] = dumps.call([before, *extra], [after])
        before = after
    return dumps.write(folder, records, **options)


def plain(value):
    return {"type": type(value).__name__, "value": value}


def test_nan_that_comes_through_calls_without_partner_is_wrong(run, tmp_path):
    chain(tmp_path / "npu", [(LINEAR, 2.0), ("Tensor.__truediv__.0.forward", float("nan")), (GELU, float("nan"))])
    chain(tmp_path / "bench", [(LINEAR, 2.0), (GELU, 1.0)])
    for what in ("no", "any"):
        assert run("compare", "npu", "bench", "-q", "--fail-on", what).rc == 3
    text = words(run("compare", "npu", "bench").out)
    assert ("Wrong: NaN or inf on one side only, first in Functional.gelu.0.forward.input.0 (maximum: NPU nan, bench 2); "
            "without partner before it: Tensor.__truediv__.0.forward") in text
    assert "Nothing wrong" not in text


def test_a_difference_from_calls_without_partner_is_not_within_rounding(run, tmp_path):
    chain(tmp_path / "npu", [(LINEAR, 2.0), (RELU, 3.0), (GELU, 3.0)])
    chain(tmp_path / "bench", [(LINEAR, 2.0), ("Functional.silu.0.forward", 1.0), (GELU, 1.0)])
    text = words(run("compare", "npu", "bench").out)
    assert "Functional.relu.0 does not compute what the bench's Functional.silu.0 does: what comes out differs by 0.67 where what goes in differs by 0" in text
    assert "the NPU run calls Functional.relu where the bench calls Functional.silu" in text


def test_a_difference_that_comes_in_from_one_call_more_is_not_within_rounding(run, tmp_path):
    chain(tmp_path / "npu", [(LINEAR, 2.0), (RELU, 3.0), (GELU, 3.0)])
    chain(tmp_path / "bench", [(LINEAR, 2.0), (GELU, 1.0)])
    text = words(run("compare", "npu", "bench").out)
    assert "Wrong: what Functional.gelu.0.forward takes differs by 0.33" in text
    assert "without partner before it: Functional.relu.0.forward" in text
    assert "1 more Functional.relu in the NPU run" in text


@pytest.mark.parametrize("npu, bench, told", [(1, -1, True), (True, False, True), ("mean", "sum", True), (0.1, 0.2, True),
                                              ("npu:0", "cuda:0", False), (0.1, 0.1001, False)])
def test_another_argument_is_the_verdict_where_the_result_differs_too(run, tmp_path, npu, bench, told):
    for side, value, result in (("npu", npu, 1.0 + 1e-7), ("bench", bench, 1.0)):
        chain(tmp_path / side, [(LINEAR, 2.0), ("Torch.softmax.0.forward", result, plain(value))])
    verdict = doc(run)["pairs"][0]["verdict"]
    sentence = "Wrong: Torch.softmax.0.forward is not given the same argument in both runs (input.1: NPU %s, bench %s)" % (npu, bench)
    assert (verdict["sentence"] == sentence) == told and (verdict["level"] == "wrong") == told


def test_another_argument_that_changes_nothing_is_no_alarm(run, tmp_path):
    for side, value in (("npu", 1), ("bench", 2)):
        chain(tmp_path / side, [("Torch.softmax.0.forward", 1.0, plain(value))])
    assert doc(run)["verdict"]["level"] == "nothing wrong"


@pytest.mark.parametrize("make", [dumps.statistics, dumps.real, dumps.checksums])
def test_equal_runs_are_identical_in_every_mode(run, tmp_path, make):
    make(tmp_path / "npu")
    make(tmp_path / "bench")
    r = run("compare", "npu", "bench", "-o", "out", "--fail-on", "any")
    assert r.rc == 0 and "  Verdict       Identical" in r.out and doc(run)["verdict"]["level"] == "identical"


def test_identical_is_not_said_of_one_changed_bit(run, tmp_path):
    dumps.real(tmp_path / "npu", 4.76837158203125e-07)
    dumps.real(tmp_path / "bench")
    text = (tmp_path / "bench/dump.json").read_text()
    (tmp_path / "npu/dump.json").write_text(text)  # equal statistics
    r = run("compare", "npu", "bench", "-o", "out")
    assert "dentical to the bit" not in r.out and "Differs first Functional.relu.0.forward.output.0, row 5\n" in r.out


def test_several_equal_pairs_are_identical_in_one_sentence(run, tmp_path):
    for side in ("npu", "bench"):
        for step in (0, 1):
            dumps.statistics(tmp_path / side / ("step%d" % step))
    r = run("compare", "npu", "bench", "-o", "out")
    assert "Verdict Identical to the bit: the statistics of all 14 rows with a partner in 2 pairs" in words(r.out)


def test_rounding_in_several_pairs_is_told_with_the_largest_and_where(run, tmp_path):
    for step, noise in ((0, 0), (1, 1e-8)):
        for side in ("npu", "bench"):
            dumps.statistics(tmp_path / side / ("step%d" % step), 1 + (noise if side == "npu" else 0))
    text = words(run("compare", "npu", "bench", "-o", "out").out)
    assert "Verdict Nothing wrong in 2 pairs: 6 results within rounding, largest" in text
    assert "the expected error at Functional.relu.0.forward (step1)" in text
    assert "Differs first Functional.relu.0.forward.output.0, row 6" in text


def test_a_run_that_was_killed_is_told_by_where_it_ends(run, tmp_path):
    calls = [(LINEAR, 2.0), (RELU, 3.0), (GELU, 1.0)]
    chain(tmp_path / "npu", calls[:2])
    chain(tmp_path / "bench", calls)
    r = run("compare", "npu", "bench", "-o", "out")
    assert "Note 33 % of the rows of the bench have no partner (2 of 6): the NPU dump ends at Functional.relu.0.forward. Was that run stopped?" in words(r.out)
    assert run("compare", "npu", "bench", "--fail-on", "any", "-q").rc == 3
    r = run("compare", "bench", "npu", "-o", "out")
    assert "33 % of the rows of the NPU dump have no partner (2 of 6): the bench's dump ends at Functional.relu.0.forward." in words(r.out)


def test_dumps_that_hardly_match_may_be_of_different_models(run, tmp_path):
    chain(tmp_path / "npu", [(LINEAR, 2.0)] + [("Functional.relu.%d.forward" % i, 2.0) for i in range(4)])
    chain(tmp_path / "bench", [(LINEAR, 2.0)] + [("Functional.gelu.%d.forward" % i, 2.0) for i in range(4)])
    text = words(run("compare", "npu", "bench").out)
    assert "80 % of the rows of the NPU dump have no partner (8 of 10): different models, or levels? The first Functional.relu.0.forward" in text


def test_other_types_are_on_the_first_screen(run, tmp_path):
    for side, dtype in (("npu", "torch.bfloat16"), ("bench", "torch.float32")):
        dumps.write(tmp_path / side, {RELU: dumps.call([dumps.tensor(1.0, dtype)], [dumps.tensor(1.0, dtype)])})
    r = run("compare", "npu", "bench")
    assert "The types are not the same: torch.bfloat16 in the NPU run, torch.float32 in the bench, in 2 of 2 rows" in words(r.out)
    assert "dentical" not in r.out


def test_what_is_said_of_several_ranks_alike_is_said_once(run, tmp_path):
    for rank in range(4):
        for side, dtype in (("npu", "torch.bfloat16"), ("bench", "torch.float32")):
            leaf = dumps.tensor(1.0, dtype)
            dumps.write(tmp_path / side / ("rank%d" % rank), {RELU: dumps.call([leaf], [leaf])})
    r = run("compare", "npu", "bench", "-o", "out")
    assert "  Note          rank0 to rank3:\n" in r.out and r.out.count("types are not the same") == 1


def test_ranks_that_one_side_lacks_are_one_line_in_order(run, tmp_path):
    for rank in range(14):
        dumps.statistics(tmp_path / "npu" / ("rank%d" % rank))
    dumps.statistics(tmp_path / "bench/rank0")
    r = run("compare", "npu", "bench", "-o", "out")
    assert r.rc == 1 and r.err == "error: 13 of 14 pairs could not be compared\n"
    assert "  rank1  not compared: only on the NPU side, and so are the next 12 up to rank13\n" in r.out
    for words_ in (["-q"], ["--json"]):
        quiet = run("compare", "npu", "bench", "-o", "out", *words_)
        assert quiet.err == ("error: rank1 to rank13: there are no such dumps (13) on the bench side; the first of the other is "
                             "npu/rank1/dump.json\nerror: 13 of 14 pairs could not be compared\n")


def test_errors_of_pairs_stand_in_the_order_of_the_pairs(run, tmp_path):
    for rank in range(12):
        for side in ("npu", "bench"):
            dumps.statistics(tmp_path / side / ("rank%d" % rank))
        if rank % 2:
            (tmp_path / "npu" / ("rank%d" % rank) / "dump.json").write_text("{nonsense")
    r = run("compare", "npu", "bench", "-q", "--threads", "2")
    named = [line.split(":")[1].strip() for line in r.err.splitlines()[:-1]]
    assert named == ["rank%d" % k for k in (1, 3, 5, 7, 9, 11)]


@pytest.mark.parametrize("stack, code, own", [
    (["File /x/site-packages/torch/nn/functional.py, line 9, in relu, \n return torch.relu(x)",
      "File /x/lib/python3.11/site-packages/transformers/models/llama/modeling_llama.py, line 231, in forward, \n y = self.act(x)",
      "File /home/me/train.py, line 11, in main, \n loss = model(x)"],
     "/x/lib/python3.11/site-packages/transformers/models/llama/modeling_llama.py:231 in forward", "/home/me/train.py:11 in main"),
    (["File /opt/pytorch/torch/nn/modules/linear.py, line 9, in forward, \n y",
      "File /home/me/torch_tricks/model.py, line 7, in f, \n z"], "/home/me/torch_tricks/model.py:7 in f", None),
    (["File /usr/lib/python3.11/contextlib.py, line 81, in inner, \n y", "File /home/me/a.py, line 7, in f, \n z"], "/home/me/a.py:7 in f", None),
])
def test_the_innermost_line_outside_torch_and_the_users_own_are_shown(run, tmp_path, stack, code, own):
    for side, value in (("npu", 9.0), ("bench", 1.0)):
        chain(tmp_path / side, [(RELU, value)], stack=False)
        (tmp_path / side / "stack.json").write_text(json.dumps({"0": [[RELU], stack]}))
    out = run("compare", "npu", "bench").out
    assert "  Called at     %s\n" % code in out
    assert ("  Your line     %s\n" % own in out) if own else "Your line" not in out


def test_inputs_are_not_called_fine_when_they_are_off_as_much_as_the_result(run, tmp_path):
    """A doubled input has cosine 1 and small errors: the call that hands it on is not to blame."""
    good = [0.0001, 0.0002, 0.0003, 0.0004]
    for side, values in (("npu", [2 * v for v in good]), ("bench", good)):
        folder = tmp_path / side
        (folder / "dump_tensor_data").mkdir(parents=True)
        for name in ("input.0", "output.0"):
            dumps.npy(folder / "dump_tensor_data" / ("Torch.conv2d.0.forward.%s.npy" % name),
                      values if name == "input.0" else [1e4 * v for v in values])
        leaf = lambda name, v: dumps.tensor(v, shape=(4,), data_name="Torch.conv2d.0.forward.%s.npy" % name)
        dumps.write(folder, {"Torch.conv2d.0.forward": dumps.call([leaf("input.0", max(values))], [leaf("output.0", 1e4 * max(values))])},
                    task="tensor")
    r = run("compare", "npu", "bench", "-o", "out")
    assert "this call makes the difference" not in r.out
    first = doc(run)["pairs"][0]["first_wrong"]
    assert (first["npu_name"], first["inputs"], first["worst_input"]) == ("Torch.conv2d.0.forward.output.0", "wrong", "input.0")
    assert first["input_error"] == pytest.approx(0.5) and first["error"] == pytest.approx(0.5)


def test_inputs_without_partner_leave_it_open_whose_difference_it_is(run, tmp_path):
    for side, value in (("npu", 9.0), ("bench", 1.0)):
        extra = [dumps.tensor(5.0, shape=(4,))] if side == "npu" else []
        dumps.write(tmp_path / side, {RELU: dumps.call([dumps.tensor(1.0)] + extra, [dumps.tensor(value)])})
    r = run("compare", "npu", "bench", "-o", "out")
    assert "  Its inputs    could not all be compared\n" in r.out and "this call makes the difference" not in r.out


def test_a_plain_argument_has_no_missing_file(run, tmp_path):
    for side, value in (("npu", 2), ("bench", 3)):
        dumps.real(tmp_path / side)
        path = tmp_path / side / "dump.json"
        text = json.loads(path.read_text())
        text["data"][RELU]["input_args"] += [plain(1), plain(value)]
        path.write_text(json.dumps(text))
    assert run("compare", "npu", "bench", "-o", "out", "--format", "csv").rc == 0
    table, = (tmp_path / "out").glob("compare_result_*.csv")
    rows = [line for line in table.read_text().splitlines() if "<class 'int'>" in line]
    assert "No tensor but a plain value, the same on both sides." in rows[0]
    assert "No tensor but a plain value, another one on either side." in rows[1] and "data file" not in table.read_text()


def test_the_analysis_of_real_data_says_that_it_looks_at_statistics(run, tmp_path):
    dumps.real(tmp_path / "npu", 2)
    dumps.real(tmp_path / "bench")
    r = run("compare", "npu", "bench", "-o", "out", "-da")
    assert "by            statistics, " in r.out and "-da looks at statistics alone; leave it out to compare the tensors\n" in r.out
    assert "  Table" not in r.out


def test_screen_json_page_and_advisor_say_the_same(run, tmp_path):
    dumps.statistics(tmp_path / "npu", 2)
    dumps.statistics(tmp_path / "bench")
    r = run("compare", "npu", "bench", "-o", "out")
    sentence = doc(run)["verdict"]["sentence"]
    assert sentence in words(r.out)
    advisor = next((tmp_path / "out").glob("advisor_*.txt")).read_text()
    assert "Verdict: %s.\n" % sentence in advisor and "Suspect Nodes: Functional.relu.0.forward.output.0\n" in advisor
    page = next((tmp_path / "out").glob("*.html")).read_text()
    head = json.loads(re.search(r'id="head">([^<]*)<', page).group(1))
    assert head["verdict"]["text"] == sentence + "." and head["pairs"][0]["suspect"]["call"] == RELU
    assert run("compare", "npu", "bench", "--fail-on", "no", "-q").rc == 3


def test_the_table_beyond_the_limits_is_no_alarm_where_rounding_explains_it(run, tmp_path):
    """A mean of 1.5e-05 against 5.3e-06 in bfloat16: "off by 190 %", and the norm agrees."""
    for side, mean in (("npu", 1.5e-05), ("bench", 5.3e-06)):
        leaf = lambda m: dict(dumps.tensor(3.0, "torch.bfloat16", (64, 64)), Mean=m, Norm=64.0)
        dumps.write(tmp_path / side, {"Functional.layer_norm.0.forward": dumps.call([leaf(0.0)], [leaf(mean)])})
    r = run("compare", "npu", "bench", "-o", "out", "--fail-on", "warning")
    assert r.rc == 0 and "Verdict       Nothing wrong: " in r.out and "Table         1 row beyond the manual's limits: 1 Warning\n" in r.out
    assert next((tmp_path / "out").glob("advisor_*.txt")).read_text().startswith("Line: NA\nSuspect Nodes: NA\n")


@pytest.mark.parametrize("make", [dumps.statistics, dumps.real, dumps.checksums])
def test_the_verdict_is_a_sheet_of_workbook_and_json_and_a_json_beside_csv(run, tmp_path, make):
    openpyxl = pytest.importorskip("openpyxl")
    make(tmp_path / "npu", 2)
    make(tmp_path / "bench")
    r = run("compare", "npu", "bench", "-o", "out", "--format", "xlsx,csv,json", "--json")
    pair, = json.loads(r.raw)["pairs"]
    assert [name.rsplit("/")[-1].split("_")[0] for name in pair["files"]] == ["compare"] * 3 + ["verdict", "advisor"]
    book = openpyxl.load_workbook(tmp_path / pair["files"][0])
    assert book.sheetnames == ["Sheet1", "Verdict"] and book.active.title == "Sheet1"
    sheet = [list(row) for row in book["Verdict"].iter_rows(values_only=True)]
    table = json.loads((tmp_path / pair["files"][3]).read_text())
    second, = json.loads((tmp_path / pair["files"][2]).read_text())["sheets"]
    assert sheet[0] == table["columns"] and (second["name"], second["rows"]) == ("Verdict", table["rows"])
    items = [row[0] for row in sheet[1:]]
    assert items[0] == "verdict" and sheet[1][4] == pair["verdict"]["sentence"]
    if make is not dumps.checksums:
        suspect = sheet[1 + items.index("suspect 1")]
        assert suspect[1] == RELU and suspect[3] == "output.0"
        assert items.count("result") == pair["verdict"]["judged"] + pair["verdict"]["not_judged"]
    assert len(table["rows"]) == len(items)


def test_the_workbook_shows_results_nearest_to_the_limit_and_the_json_all(run, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    for side in ("npu", "bench"):
        records = {"Torch.mul.%d.forward" % i: dumps.call([dumps.tensor(1.0)], [dumps.tensor(2.0 if i != 1234 or side == "bench" else 3.0)])
                   for i in range(2500)}
        dumps.write(tmp_path / side, records, stack=False)
    pair, = json.loads(run("compare", "npu", "bench", "-o", "out", "--format", "xlsx,csv", "--no-html", "--json").raw)["pairs"]
    sheet = [row[:2] for row in openpyxl.load_workbook(tmp_path / pair["files"][0])["Verdict"].iter_rows(values_only=True)]
    assert len(sheet) < 2100 and ("result", "Torch.mul.1234.forward") in sheet
    assert sum(row[0] == "result" for row in json.loads((tmp_path / pair["files"][2]).read_text())["rows"]) == 2500


def test_the_advisor_says_what_the_verdict_says_where_rows_are_beyond_the_manuals_limits(run, tmp_path):
    """A mean of almost zero is off by half of itself by rounding alone."""
    for side, mean in (("npu", 2e-8), ("bench", 1e-8)):
        dumps.write(tmp_path / side, {LINEAR: dumps.call([dumps.tensor(1.0)], [dumps.tensor(2.0, Mean=mean)])})
    d = doc(run)
    pair, = d["pairs"]
    assert pair["counts"]["warning"] == 1 and pair["verdict"]["level"] == "nothing wrong"
    assert pair["advice"] == "Nothing is wrong by the verdict; the manual's limits, which some rows are beyond, know nothing of rounding."
    advice, = tmp_path.glob("out/advisor_*.txt")
    line, nodes, expert, verdict = advice.read_text().splitlines()
    assert (line, nodes, expert) == ("Line: NA", "Suspect Nodes: NA", "Expert Advice: " + pair["advice"])
    assert verdict == "Verdict: %s." % pair["verdict"]["sentence"]
