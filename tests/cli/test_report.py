"""`msprobe report`: the page of an earlier comparison, from its tables."""
import base64
import json
import re
import zlib

import dumps
import pytest


def block(page, name):
    found = re.search(r'data-block="%s">([^<]*)<' % name, page.read_text())
    return json.loads(zlib.decompress(base64.b64decode(found.group(1)), -15))


def raw(page, name):
    found = re.search(r'data-block="%s">([^<]*)<' % name, page.read_text())
    return zlib.decompress(base64.b64decode(found.group(1)), -15)


def head(page):
    return json.loads(re.search(r'id="head">([^<]*)<', page.read_text()).group(1))


@pytest.fixture
def results(run, tmp_path):
    dumps.statistics(tmp_path / "npu", 2, construct={"Functional.relu.0.forward": "Module.act.ReLU.forward.0"})
    dumps.statistics(tmp_path / "bench")
    assert run("compare", "npu", "bench", "-o", "out", "--format", "xlsx,csv,json", "--no-html").rc == 0
    assert list((tmp_path / "out").glob("*.html")) == []
    return tmp_path / "out"


@pytest.mark.parametrize("ext", ["xlsx", "csv", "json"])
def test_every_format_gives_the_page_that_compare_wrote(run, results, tmp_path, ext):
    table, = results.glob("compare_result*." + ext)
    r = run("report", str(table))
    assert r.rc == 0 and "Rows 7 of 1 table, 3 beyond the manual's limits Verdict Wrong: Functional.relu.0.forward: " in " ".join(r.out.split())
    page, = results.glob("*.html")
    assert run("compare", "npu", "bench", "-o", "again").rc == 0
    direct, = (tmp_path / "again").glob("*.html")
    for name in ("names", "columns"):
        assert block(page, name) == block(direct, name)
    mine, theirs = head(page), head(direct)
    assert mine["verdict"]["level"] == theirs["verdict"]["level"] and mine["pairs"][0]["bins"] == theirs["pairs"][0]["bins"]
    assert mine["verdict"]["text"] == theirs["verdict"]["text"] and mine["verdict"]["text"].startswith("Wrong: Functional.relu.0.forward: ")
    assert raw(page, "judged") == raw(direct, "judged") and len(raw(page, "results")) == len(raw(direct, "results")) > 0
    assert mine["pairs"][0]["then"] == theirs["pairs"][0]["then"]
    for key in ("rows", "matched", "wrong"):
        assert mine["pairs"][0]["counts"][key] == theirs["pairs"][0]["counts"][key]
    assert mine["pairs"][0]["suspect"]["stack"] == theirs["pairs"][0]["suspect"]["stack"]


@pytest.mark.parametrize("ext", ["xlsx", "csv", "json"])
def test_several_tables_say_the_same_as_compare_did(run, tmp_path, ext):
    for rank, fault in ((0, 1), (1, 1.002)):
        dumps.statistics(tmp_path / "npu" / ("rank%d" % rank), fault)
        dumps.statistics(tmp_path / "bench" / ("rank%d" % rank))
    assert run("compare", "npu", "bench", "-o", "out", "--format", ext).rc == 0
    direct, = (tmp_path / "out").glob("*.html")
    assert run("report", "out", "-o", "pages").rc == 0
    page, = (tmp_path / "pages").glob("*.html")
    mine, theirs = head(page)["verdict"], head(direct)["verdict"]
    assert mine["text"] == theirs["text"] and mine["pair"] == theirs["pair"] == 1
    assert "(rank1; 1 of 2 pairs are wrong)" in mine["text"]


def test_ranks_stand_in_the_order_of_their_numbers(run, tmp_path):
    for rank in (0, 2, 10):
        dumps.statistics(tmp_path / "npu" / ("rank%d" % rank))
        dumps.statistics(tmp_path / "bench" / ("rank%d" % rank))
    assert run("compare", "npu", "bench", "-o", "out", "--no-html").rc == 0
    assert run("report", "out", "-o", "pages").rc == 0
    page, = (tmp_path / "pages").glob("*.html")
    assert [pair["label"] for pair in head(page)["pairs"]] == ["rank0", "rank2", "rank10"]


def test_a_table_without_a_verdict_is_judged_by_its_limits(run, results):
    table, = results.glob("compare_result*.csv")
    next(results.glob("verdict*.json")).unlink()
    assert run("report", str(table)).rc == 0
    page, = results.glob("*.html")
    assert "is the first call with a row beyond the manual's limits" in head(page)["verdict"]["text"]


def test_a_verdict_that_somebody_wrote_by_hand_does_no_harm(run, results):
    """Its file is input like any other: odd cells, missing columns, names that the table has not."""
    verdict = next(results.glob("verdict*.json"))
    table = json.loads(verdict.read_text())
    odd = [None, "", 0, True, 1e308, [], {}, "x" * 5000, "Functional.relu.0.forward", "inf"]
    rows = [[item] + [odd[(i + k) % len(odd)] for k in range(16)] for i in range(40)
            for item in ("verdict", "note", "suspect 1", "suspect 2", "result", None, 7)]
    for columns, lines in ((table["columns"], rows), (["Item"], rows), ([], rows), (table["columns"][::-1], rows),
                           (table["columns"], [[]] + table["rows"] * 3)):
        verdict.write_text(json.dumps({"columns": columns, "rows": lines}))
        r = run("report", str(next(results.glob("compare_result*.csv"))), "-o", "pages")
        assert r.rc in (0, 1) and (r.rc == 0 or "error: " in r.err), r.err
    for text in ("", "{", "[]", '{"columns": 1}', '{"columns": [], "rows": 5}'):
        verdict.write_text(text)
        r = run("report", str(next(results.glob("compare_result*.csv"))), "-o", "pages")
        assert r.rc in (0, 1) and (r.rc == 0 or "verdict" in r.err), r.err


def test_as_many_reasons_as_results_take_no_longer_than_one(run, results):
    verdict = next(results.glob("verdict*.json"))
    table = json.loads(verdict.read_text())
    line = dict.fromkeys(table["columns"])
    rows = [list({**line, "Item": "result", "Call": "f.%d" % i, "Result": "output.0", "Text": "reason %d" % i}.values())
            for i in range(200000)]
    verdict.write_text(json.dumps({"columns": table["columns"], "rows": table["rows"] + rows}))
    r = run("report", str(next(results.glob("compare_result*.csv"))), "-o", "pages")
    assert r.rc == 0, r.err


def test_a_folder_is_one_page_and_nothing_is_written_over(run, results):
    assert run("report", "out").rc == 0 and run("report", "out").rc == 0
    assert len(list(results.glob("*.html"))) == 2


def test_the_dump_adds_the_models_tree(run, results):
    table, = results.glob("*.csv")
    assert run("report", str(table), "npu", "-o", "pages").rc == 0
    page, = (results.parent / "pages").glob("*.html")
    assert block(page, "nodes")["names"] == ["Module.act.ReLU.forward.0"]


@pytest.mark.parametrize("ext", ["xlsx", "csv", "json"])
def test_where_no_page_can_be_written_the_table_is_not_blamed(run, results, ext):
    table, = results.glob("compare_result*." + ext)
    r = run("report", str(table), "-o", "/proc/self/fdinfo")
    assert r.rc == 1 and r.err.startswith("error: /proc/self/fdinfo/compare_result_") and r.err.endswith("; choose another folder with -o\n")


def test_a_dump_that_is_not_there_is_an_error(run, results):
    table, = results.glob("*.csv")
    r = run("report", str(table), "npuu", "-o", "pages")
    assert r.rc == 1 and "npuu: neither a dump.json nor a folder with that of" in r.err
    assert list((results.parent / "pages").glob("*")) == []


def test_the_folder_of_a_step_has_the_dump_of_every_table(run, tmp_path):
    for rank in ("rank0", "rank1"):
        dumps.statistics(tmp_path / "npu" / rank, construct={"Functional.relu.0.forward": "Module.act.ReLU.forward.%s" % rank[-1]})
        dumps.statistics(tmp_path / "bench" / rank)
    assert run("compare", "npu", "bench", "-o", "out", "--no-html").rc == 0
    assert run("report", "out", "npu", "-o", "pages").rc == 0
    page, = (tmp_path / "pages").glob("*.html")
    trees = re.findall(r'data-block="nodes">([^<]*)<', page.read_text())
    assert [json.loads(zlib.decompress(base64.b64decode(t), -15))["names"] for t in trees] == [
        ["Module.act.ReLU.forward.0"], ["Module.act.ReLU.forward.1"]]


@pytest.mark.parametrize("text, what", [("a,b\n1,2\n", 'no column "NPU Name"'), ("", "empty")])
def test_what_is_no_result_is_an_error(run, tmp_path, text, what):
    (tmp_path / "x.csv").write_text(text)
    r = run("report", "x.csv")
    assert r.rc == 1 and what in r.err and list(tmp_path.glob("*.html")) == [] and list(tmp_path.glob("*.tmp")) == []


@pytest.mark.parametrize("text", ["[]", "{}", '{"columns": 1}', '{"columns": ["NPU Name", "Bench Name"], "rows": [1]}', "{"])
def test_a_json_that_is_no_table_is_an_error(run, tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    r = run("report", "x.json")
    assert r.rc == 1 and "x.json" in r.err and list(tmp_path.glob("*.tmp")) == []


def test_nothing_there_is_said(run, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "no such file" in run("report", "nowhere").err
    assert "holds no compare_result_" in run("report", "empty").err
    assert run("report").rc == 2


def test_a_page_is_never_written_over(run, tmp_path):
    """Two runs in the same second, of different ranks: their tables differ in name, their pages must too."""
    for name in ("rank0", "rank1"):
        dumps.statistics(tmp_path / "a" / name)
        dumps.statistics(tmp_path / "b" / name)
    dumps.statistics(tmp_path / "npu")
    dumps.statistics(tmp_path / "bench")
    for words in (("a", "b"), ("npu", "bench"), ("a", "b")):
        assert run("compare", *words, "-o", "out", "--format", "csv", "-c").rc == 0
    assert len(list((tmp_path / "out").glob("*.html"))) == 3
