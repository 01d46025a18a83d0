"""Every --json is what docs/schema says."""
import copy

import pytest

import dumps
import schemas


@pytest.fixture
def made(tmp_path):
    dumps.statistics(tmp_path / "npu", 2.0)
    dumps.statistics(tmp_path / "bench")
    dumps.real(tmp_path / "real", 0.5)
    dumps.real(tmp_path / "good")
    dumps.checksums(tmp_path / "md5")
    return tmp_path


@pytest.mark.parametrize("words", [["npu"], ["real"], ["md5"], ["npu/dump.json"]])
def test_a_shown_dump_is_as_its_schema_says(run, made, words):
    r = run("show", *words, "--json")
    assert r.rc == 0, r.err
    assert schemas.check(r.out, "show")["kind"] == "dump"


def test_a_dump_that_cannot_be_read_is_as_its_schema_says(run, made):
    dumps.statistics(made / "run/step0/rank0")
    (made / "run/step0/rank1").mkdir()
    (made / "run/step0/rank1/dump.json").write_text("[]")
    r = run("show", "run", "--json")
    assert r.rc == 1
    listed = schemas.check(r.out, "show")["dumps"]
    assert [d["error"] is None for d in listed] == [True, False]


@pytest.mark.parametrize("dump", ["npu", "real", "md5"])
def test_a_shown_call_is_as_its_schema_says(run, made, dump):
    r = run("show", dump, "relu", "--json")
    assert r.rc == 0, r.err
    assert schemas.check(r.out, "show")["calls"][0]["name"] == "Functional.relu.0.forward"


def test_a_shown_tensor_is_as_its_schema_says(run, made):
    r = run("show", "real/dump_tensor_data/Functional.relu.0.forward.output.0.npy", "--json")
    assert r.rc == 0, r.err
    assert schemas.check(r.out, "show")["kind"] == "tensors"


@pytest.mark.parametrize("bench, different", [("real", 0), ("good", 1)])
def test_a_difference_is_as_its_schema_says(run, made, bench, different):
    name = "dump_tensor_data/Functional.relu.0.forward.output.0.npy"
    r = run("diff", "real/" + name, f"{bench}/{name}", "--json")
    assert r.rc == 0, r.err
    assert schemas.check(r.out, "diff")["different"] == different


@pytest.mark.parametrize("words", [["npu", "bench"], ["real", "good"], ["md5", "md5"], ["npu", "bench", "-da"],
                                   ["npu", "real"]])
def test_a_comparison_is_as_its_schema_says(run, made, words):
    r = run("compare", *words, "-o", "out", "--json", "-q")
    assert schemas.check(r.out, "compare")["status"] == ("error" if words == ["npu", "real"] else "ok")


def test_an_audit_is_as_its_schema_says(run, made):
    for rank in (0, 1):
        dumps.write(made / f"job/step0/rank{rank}", {"Distributed.all_reduce.0.forward": dumps.call([dumps.tensor(1.0)], [dumps.tensor(2.0)])})
        dumps.statistics(made / f"silent/step0/rank{rank}")
    r = run("audit", "job", "--json")
    assert r.rc == 0, r.err
    assert schemas.check(r.out, "audit")["matched"] == 1
    dumps.write(made / "job/step0/rank1", {"Distributed.all_reduce.0.forward": dumps.call([dumps.tensor(1.0)], [dumps.tensor(7.0)])})
    r = run("audit", "job", "--json")
    assert r.rc == 3 and schemas.check(r.out, "audit")["findings"][0]["kind"] == "values"
    r = run("audit", "silent", "--json")
    assert r.rc == 1 and "nothing could be checked" in r.err
    schemas.check(r.out, "audit")


def test_a_key_that_the_schema_does_not_know_is_found(run, made):
    import json
    jsonschema = pytest.importorskip("jsonschema")
    value = json.loads(run("show", "npu", "--json").out)
    for path in ("dumps",), ("dumps", 0, "list"):
        wrong = copy.deepcopy(value)
        at = wrong
        for step in path:
            at = at[step]
        at[0]["surprise"] = 1
        with pytest.raises(jsonschema.ValidationError):
            schemas.check(json.dumps(wrong), "show")


@pytest.mark.parametrize("npu, bench", [("npu", "bench"), ("real", "good"), ("md5", "md5")])
def test_an_explained_call_is_as_its_schema_says(run, made, npu, bench):
    r = run("explain", npu, bench, "relu", "--json")
    assert r.rc == 0, r.err
    assert schemas.check(r.out, "explain")["call"] == "Functional.relu.0.forward"


def test_a_report_is_as_its_schema_says(run, made, tmp_path):
    assert run("compare", "npu", "bench", "-o", str(tmp_path / "out"), "--no-html").rc == 0
    r = run("report", str(tmp_path / "out"), "--json")
    assert r.rc == 0, r.err
    said = schemas.check(r.out, "report")
    assert said["level"] == "wrong" and said["sentence"].startswith("Wrong: ") and said["page"].endswith(".html")


def test_every_command_with_json_has_a_schema(run):
    """run_ut's other names print what run_ut does."""
    import os
    import re

    from conftest import ROOT
    other = {"multi_run_ut": "run_ut", "acc_check": "run_ut", "multi_acc_check": "run_ut"}
    text = run("help").out
    commands = re.findall(r"^  (\w+)", text[text.index("\nCommands"):text.index("\nOptions")], re.M)
    printing = [c for c in commands if re.search(r"^  --json\b", run("help", c).out, re.M)]
    assert {"compare", "show", "diff", "report", "repro"} <= set(printing)
    for command in printing:
        assert os.path.exists(os.path.join(ROOT, "docs/schema", other.get(command, command) + ".schema.json")), command
