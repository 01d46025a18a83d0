"""What a comparison says on the screen and to programs."""
import json

import openpyxl
import pytest

import dumps
from screen import spoken

HEAD = """
  Compared      npu/dump.json
  with          bench/dump.json
  by            %s, SIZE in TIME s
  Rows          %d in all, %d matched

"""

TAIL = """
  Written       out/compare_result_TIME.html
                out/compare_result_TIME.xlsx
                out/advisor_TIME.txt
"""

STATISTICS = HEAD % ("statistics", 7, 7) + """  Verdict       Wrong
  Table         3 rows beyond the manual's limits: 3 Warning

  Suspect       Functional.relu.0.forward.output.0
                row 6: torch.float32 [2, 3]
  Errors        max     NPU 6, bench 3, off by 100%
                min     NPU -6, bench -3, off by 100%
                mean    NPU 3, bench 1.5, off by 100%
                l2norm  NPU 12, bench 6, off by 100%
  Its inputs    equal in all their statistics: this call makes the difference
  Called at     /home/me/train.py:11 in forward
                y = self.act(x)
  Expert Advice This is a forward API computation error. Check the computation
                implementation.
""" + TAIL + """  Next          dump its tensors in both runs and compare again (config.json):
                "task": "tensor",
                "tensor": {"list": ["Functional.relu.0.forward"]}
"""

REAL = HEAD % ("real data", 4, 4) + """  Verdict       Wrong
  Table         1 row beyond the manual's limits: 1 No

  Suspect       Functional.relu.0.forward.output.0
                row 5: torch.float32 [2, 3]
  Errors        Cosine 0.988095, MaxAbsErr 2, MaxRelativeErr 0.363636
                83.33% of the elements within 0.001, 83.33% within 0.005
  Worst element [1, 2]: NPU 7.5, bench 5.5
  Its inputs    equal to the bit: this call makes the difference
  Called at     /home/me/train.py:11 in forward
                y = self.act(x)
  Expert Advice This is a forward API computation error. Check the computation
                implementation.
""" + TAIL + """  Next          msprobe explain npu bench Functional.relu.0.forward
"""

MD5 = HEAD % ("md5", 4, 4) + """  Verdict       Wrong: 1 of 4 checksums differ, first that of
  Table         1 row beyond the manual's limits: 1 Different

  Suspect       Functional.relu.0.forward.output.0
                row 5: torch.float32 [2, 3]
  Checksums     NPU 6c1b06c7, bench a7e1d189
  Its inputs    equal by their checksums: this call makes the difference
  Called at     /home/me/train.py:11 in forward
                y = self.act(x)
  Expert Advice This is a forward API computation error. Check the computation
                implementation.
""" + TAIL + """  Next          dump its tensors in both runs and compare again (config.json):
                "task": "tensor",
                "tensor": {"list": ["Functional.relu.0.forward"]}
"""

SAME = HEAD % ("statistics", 7, 7) + """  Verdict       Identical to the bit: the statistics of all 7 rows
  Table         no row beyond the manual's limits
""" + TAIL


def both(tmp_path, make, fault):
    make(tmp_path / "npu", fault)
    make(tmp_path / "bench")


@pytest.mark.parametrize("make, fault, text", [(dumps.statistics, 2, STATISTICS), (dumps.real, 2, REAL),
                                               (dumps.checksums, 1, MD5), (dumps.statistics, 1, SAME)],
                         ids=["statistics", "real", "md5", "same"])
def test_the_summary_answers_the_question(run, tmp_path, make, fault, text):
    both(tmp_path, make, fault)
    r = run("compare", "npu", "bench", "-o", "out")
    assert r.rc == 0 and r.err == ""
    assert spoken(r.out) == text
    verdict = json.loads(run("compare", "npu", "bench", "--json").raw)["pairs"][0]["verdict"]
    assert verdict["sentence"] in " ".join(r.out.split())
    assert max(len(line) for line in r.out.splitlines()) <= 80


def test_the_experts_advice_is_on_the_screen_word_for_word(run, tmp_path):
    both(tmp_path, dumps.statistics, 1)
    path = tmp_path / "npu/dump.json"
    doc = json.loads(path.read_text())
    for call in doc["data"].values():  # other data from the beginning: the advice about an input has three lines
        for leaf in call["input_args"] + call["output"]:
            leaf.update({k: leaf[k] * 3 for k in ("Max", "Min", "Mean", "Norm")})
    path.write_text(json.dumps(doc))
    r = run("compare", "npu", "bench", "-o", "out")
    advice, = (tmp_path / "out").glob("advisor_*.txt")
    told = advice.read_text().partition("Expert Advice: ")[2].partition("\nVerdict: ")[0]
    assert told.count("\n") == 2 and " ".join(told.split()) in " ".join(r.out.split())
    assert "Expert Advice" not in run("compare", "npu", "bench", "-o", "out", "-c").out
    assert "Expert Advice" not in run("compare", "bench", "bench", "-o", "out").out


def test_ranks_are_listed_and_the_first_wrong_one_is_described(run, tmp_path):
    for rank in range(3):
        dumps.statistics(tmp_path / "npu/step0" / ("rank%d" % rank), 2 if rank == 1 else 1)
        dumps.statistics(tmp_path / "bench/step0" / ("rank%d" % rank))
    r = run("compare", "npu/step0", "bench/step0", "-o", "out")
    assert r.rc == 0
    assert """
             rows   matched  verdict        suspect
  rank0         7         7  identical      -
  rank1         7         7  wrong          Functional.relu.0.forward.output.0
  rank2         7         7  identical      -
""" in r.out
    assert """
  Suspect       Functional.relu.0.forward.output.0
                rank1, row 6: torch.float32 [2, 3]
""" in r.out and "(rank1; 1 of 3 pairs are wrong)" in " ".join(r.out.split())
    assert r.out.endswith("  Next          msprobe compare npu/step0 bench/step0 -o out -da\n")


def test_a_rank_that_fails_is_named_and_the_others_are_compared(run, files, tmp_path):
    for rank in range(2):
        dumps.statistics(tmp_path / "npu/step0" / ("rank%d" % rank))
        dumps.statistics(tmp_path / "bench/step0" / ("rank%d" % rank))
    (tmp_path / "npu/step0/rank1/dump.json").write_text("{nonsense")
    r = run("compare", "npu/step0", "bench/step0", "-o", "out")
    assert r.rc == 1
    assert "  rank1 not compared: npu/step0/rank1/dump.json: " in r.out
    assert "  rank0         7         7  identical      -\n" in r.out
    assert r.err == "error: 1 of 2 pairs could not be compared\n"  # why stands in the table, once
    assert "compare_result_rank0_TIME.xlsx" in files()


def test_many_rows_without_partner_propose_fuzzy_matching(run, tmp_path):
    dumps.statistics(tmp_path / "npu")
    dumps.statistics(tmp_path / "bench")
    text = (tmp_path / "bench/dump.json").read_text().replace("relu.0.", "relu.1.").replace("gelu.0.", "gelu.3.")
    (tmp_path / "bench/dump.json").write_text(text)
    r = run("compare", "npu", "bench", "-o", "my out")
    assert "3 matched, 4 without partner, 4 in bench only" in r.out
    assert r.out.endswith("  Next          msprobe compare npu bench -o 'my out' -f\n")
    r = run("compare", "npu", "bench", "-o", "my out", "-c", "--format", "csv", "--fail-on", "no")
    assert r.out.endswith("  Next          msprobe compare npu bench -o 'my out' -c --format csv -f\n")
    r = run("compare", "npu", "bench", "-o", "my out", "-f")
    assert "7 in all, 7 matched\n" in r.out


def test_quiet_prints_nothing_when_all_is_well(run, files, tmp_path):
    both(tmp_path, dumps.statistics, 2)
    r = run("compare", "npu", "bench", "-o", "out", "-q")
    assert (r.rc, r.out, r.err) == (0, "", "")
    assert files() == ["advisor_TIME.txt", "compare_result_TIME.xlsx"]


def test_json_is_for_programs(run, tmp_path):
    both(tmp_path, dumps.real, 2)
    r = run("compare", "npu", "bench", "-o", "out", "--json")
    assert r.rc == 0 and r.err == ""
    doc = json.loads(r.raw)
    assert (doc["version"], doc["status"], doc["error"]) == (1, "ok", None)
    pair, = doc["pairs"]
    assert pair["mode"] == "real data" and pair["counts"]["rows"] == 4 and pair["counts"]["no"] == 1
    first = pair["first_wrong"]
    sheet = openpyxl.load_workbook(tmp_path / pair["files"][0]).active
    assert sheet.cell(first["row"], 1).value == first["npu_name"]
    assert first["npu_name"] == "Functional.relu.0.forward.output.0" and first["inputs"] == "equal"
    assert first["worst_element"] == {"index": [1, 2], "npu": "7.5", "bench": "5.5"}
    assert first["metrics"]["max_abs_err"] == 2
    assert first["user_frame"].startswith("File /home/me/train.py, line 11,")
    assert len(pair["files"]) == 2


def test_json_tells_of_failures_too(run, tmp_path):
    dumps.statistics(tmp_path / "npu")
    r = run("compare", "npu", "nowhere", "--json")
    assert r.rc == 1 and r.err.startswith("error: ")
    doc = json.loads(r.raw)
    assert doc["status"] == "error" and "nowhere" in doc["error"] and doc["pairs"] == []


def test_json_names_the_first_failure_once(run, tmp_path):
    for place in ("npu/rank0", "npu/rank1", "npu/rank2", "bench/rank0", "bench/rank2"):
        dumps.statistics(tmp_path / place)
    doc = json.loads(run("compare", "npu", "bench", "--json").raw)
    assert doc["error"].startswith("1 of 3 could not be compared; the first: rank1: there is no such dump")
    (tmp_path / "npu/rank0/dump.json").write_text("{nonsense")
    doc = json.loads(run("compare", "npu", "bench", "--json").raw)
    assert doc["error"].startswith("2 of 3 could not be compared; the first: rank0: npu/rank0/dump.json: line 1")


@pytest.mark.parametrize("make, fault, what, rc", [
    (dumps.real, 2, "no", 3), (dumps.real, 2, "warning", 3), (dumps.real, 2, "any", 3),
    (dumps.statistics, 2, "no", 3), (dumps.statistics, 2, "warning", 3), (dumps.statistics, 2, "any", 3),
    (dumps.checksums, 1, "no", 3), (dumps.real, 0, "any", 0), (dumps.statistics, 1, "any", 0)])
def test_fail_on_decides_the_exit_status(run, tmp_path, make, fault, what, rc):
    both(tmp_path, make, fault)
    assert run("compare", "npu", "bench", "-o", "out", "-q", "--fail-on", what).rc == rc


def test_fail_on_any_counts_rows_without_partner(run, tmp_path):
    dumps.statistics(tmp_path / "npu")
    dumps.write(tmp_path / "bench", {"Functional.linear.0.forward": dumps.call([dumps.tensor(1.0)], [dumps.tensor(2.0)])})
    assert run("compare", "npu", "bench", "-q", "--fail-on", "warning").rc == 0
    assert run("compare", "npu", "bench", "-q", "--fail-on", "any").rc == 3


@pytest.mark.parametrize("formats, names", [("csv", ["csv"]), ("xlsx,csv,json", ["csv", "json", "xlsx"]), ("json", ["json"])])
def test_formats_are_written_as_asked(run, files, tmp_path, formats, names):
    both(tmp_path, dumps.statistics, 2)
    assert run("compare", "npu", "bench", "-o", "out", "-c", "--format", formats).rc == 0
    assert files() == ["compare_result_TIME." + n for n in names] + (["verdict_TIME.json"] if "csv" in names else [])


def test_the_compare_file_asks_for_a_line_per_row(run, compare_json, tmp_path):
    both(tmp_path, dumps.real, 2)
    for wanted in (True, False):
        compare_json(npu_path="npu/dump.json", bench_path="bench/dump.json", is_print_compare_log=wanted)
        r = run("compare", "-i", "compare.json", "-o", "out")
        assert r.rc == 0
        assert ("[Functional.relu.0.forward.output.0]" in r.err) == wanted
    r = run("compare", "-i", "compare.json", "-o", "out", "-v")
    assert r.rc == 0


def test_verbose_gives_a_line_per_row_in_the_short_way_too(run, tmp_path):
    both(tmp_path, dumps.real, 2)
    for words, wanted in ((["-v"], True), ([], False)):
        r = run("compare", "npu", "bench", "-o", "out", *words)
        assert r.rc == 0
        assert ("[Functional.relu.0.forward.output.0] Compare result: cosine " in r.err) == wanted


def test_the_log_level_is_honoured(run, tmp_path):
    both(tmp_path, dumps.real, 2)
    (tmp_path / "npu/dump_tensor_data/Functional.linear.0.forward.output.0.npy").unlink()
    for level, there in (("2", True), ("3", False), ("4", False), ("1", True)):
        r = run("compare", "npu", "bench", "-o", "out", env={"MSPROBE_LOG_LEVEL": level})
        assert ("warning: " in r.err) == there, level
    r = run("compare", "npu", "bench", "-o", "out", env={"MSPROBE_LOG_LEVEL": "loud"})
    assert "warning: MSPROBE_LOG_LEVEL is none of 0, 1, 2, 3, 4 and is ignored\n" in r.err


def test_names_from_a_dump_cannot_reach_the_terminal(run, tmp_path):
    evil = "Functional.re\x1b[2Jlu\r.0.forward"
    for side, value in (("npu", 9.0), ("bench", 1.0)):
        dumps.write(tmp_path / side, {evil: dumps.call([dumps.tensor(1.0)], [dumps.tensor(value)])})
    r = run("compare", "npu", "bench", "-o", "out")
    assert r.rc == 0 and "\x1b" not in r.out + r.err and "\r" not in r.out + r.err
    assert "Functional.re?[2Jlu?.0.forward.output.0" in r.out


def test_a_rank_that_one_side_lacks_is_named_even_in_silence(run, tmp_path):
    for rank in range(3):
        dumps.statistics(tmp_path / "npu" / ("rank%d" % rank))
    for rank in (0, 2):
        dumps.statistics(tmp_path / "bench" / ("rank%d" % rank))
    r = run("compare", "npu", "bench", "-o", "out", "-q")
    assert r.rc == 1 and r.out == ""
    assert r.err == ("error: rank1: there is no such dump on the bench side (the other is npu/rank1/dump.json)\n"
                     "error: 1 of 3 pairs could not be compared\n")


@pytest.mark.parametrize("values, told", [((0.5, 0.1), "input.1: NPU 0.5, bench 0.1"), ((1, 1.0), None),
                                          (("mean", "sum"), "input.1: NPU mean, bench sum")])
def test_an_argument_that_differs_is_told_beside_the_wrong_output(run, tmp_path, values, told):
    for side, value, scale in (("npu", values[0], 3.0), ("bench", values[1], 1.0)):
        plain = {"type": type(value).__name__, "value": value}
        dumps.write(tmp_path / side, {"Functional.dropout.0.forward": dumps.call([dumps.tensor(1.0), plain],
                                                                                 [dumps.tensor(scale)])})
    doc = json.loads(run("compare", "npu", "bench", "--json").raw)
    assert doc["pairs"][0]["first_wrong"]["argument"] == told
    text = run("compare", "npu", "bench").out
    assert ("  Argument      %s\n" % told in text) if told else "Argument" not in text


@pytest.mark.parametrize("values, told", [((0.2, 0.3), "Functional.dropout.0.forward.input.1: NPU 0.2, bench 0.3"),
                                          ((True, False), "Functional.dropout.0.forward.input.1: NPU True, bench False"),
                                          (("npu:0", "cuda:0"), None)])
def test_an_argument_of_an_earlier_call_is_told_where_the_call_itself_has_none(run, tmp_path, values, told):
    for side, value, scale in (("npu", values[0], 3.0), ("bench", values[1], 1.0)):
        plain = {"type": type(value).__name__, "value": value}
        dumps.write(tmp_path / side, {
            "Functional.dropout.0.forward": dumps.call([dumps.tensor(1.0), plain], [dumps.tensor(1.0)]),
            "Functional.relu.0.forward": dumps.call([dumps.tensor(1.0)], [dumps.tensor(scale)]),
            "Functional.dropout.1.forward": dumps.call([dumps.tensor(1.0), plain], [dumps.tensor(1.0)])})
    first = json.loads(run("compare", "npu", "bench", "--json").raw)["pairs"][0]["first_wrong"]
    assert (first["npu_name"], first["argument"]) == ("Functional.relu.0.forward.output.0", told)
    text = run("compare", "npu", "bench").out
    assert ("  Argument      %s\n  Its inputs    equal in all their statistics\n" % told in text) == (told is not None)
    assert ("this call makes the difference" in text) == (told is None)


def test_the_analysis_of_several_steps_says_which(run, tmp_path):
    for step in (0, 1):
        dumps.statistics(tmp_path / "npu" / ("step%d" % step), 1 + step)
        dumps.statistics(tmp_path / "bench" / ("step%d" % step))
    r = run("compare", "npu", "bench", "-da", "-o", "out")
    assert "  Analysis      Functional.relu.0.forward\n                the first that differs by the manual's limits for statistics\n                step1\n" in r.out
    first, = json.loads(run("compare", "npu", "bench", "-da", "--json").raw)["first_to_differ"]
    assert (first["step"], first["op_name"]) == (1, "Functional.relu.0.forward")


def test_the_analysis_of_saved_points_does_not_sound_like_success(run, tmp_path):
    for side, value in (("npu", 3.0), ("bench", 1.0)):
        (tmp_path / side).mkdir()
        (tmp_path / side / "debug.json").write_text(json.dumps(
            {"task": "statistics", "level": "debug", "framework": "pytorch", "dump_data_dir": None,
             "data": {"y.0.debug": dumps.tensor(value)}}))
    r = run("compare", "npu", "bench")
    assert r.rc == 0 and "Suspect       y.0.debug" in r.out and "Its inputs" not in r.out and "-da" not in r.out
    assert "saved points are no calls: nothing to analyse; leave out -da" in run("compare", "npu", "bench", "-da").out


def test_an_input_that_differs_is_not_lost_in_the_analysis(run, tmp_path):
    for side, value in (("npu", 3.0), ("bench", 1.0)):
        dumps.write(tmp_path / side, {"Functional.relu.0.forward": dumps.call([dumps.tensor(value)], [dumps.tensor(1.0)])})
    assert "no call's output differs, but 1 row does: leave out -da to see" in run("compare", "npu", "bench", "-da").out
