"""Comparisons of recorded dumps, checked cell by cell and colour by colour: see tests/data/compare."""
import glob
import json
import math
import os
import re
import stat
import subprocess
import tarfile

import openpyxl
import pytest

DATA = os.path.join(os.path.dirname(__file__), "..", "data", "compare")
FILLS = {"red": "FF0000", "yellow": "FFFF00"}

# calls of main/ that exist for their files only
TENSOR_ONLY = {"npu_nodataname", "npu_file_empty", "file_dtype", "parameter", "npu_emptydataname", "strided",
               "reqgrad_file", "n1d_b0d", "bench_file_empty", "transposed", "bench_nodataname", "not_tensor",
               "bench_missing", "npu_missing", "npu_corrupt"}


def without(value, keys):
    if isinstance(value, dict):
        return {k: without(v, keys) for k, v in value.items() if k not in keys}
    return [without(v, keys) for v in value] if isinstance(value, list) else value


@pytest.fixture(scope="session")
def dumps(tmp_path_factory):
    """A folder with main_tensor, main_stat, main_md5, hl_stat, debug_tensor and multi_stat, each npu and bench."""
    root = tmp_path_factory.mktemp("dumps")
    with tarfile.open(os.path.join(DATA, "tensors.tar.xz")) as t:
        t.extractall(root)
    for side in ("npu", "bench"):
        doc = json.load(open(os.path.join(DATA, "main", side + ".json")))
        for mode, drop in (("tensor", {"md5"}), ("stat", {"md5", "data_name"}), ("md5", {"data_name"})):
            form = dict(doc, task="tensor" if mode == "tensor" else "statistics")
            form["data"] = {k: without(v, drop) for k, v in doc["data"].items()
                            if mode == "tensor" or k.split(".")[1] not in TENSOR_ONLY}
            place = root / ("main_" + mode) / side
            place.mkdir(parents=True, exist_ok=True)
            (place / "dump.json").write_text(json.dumps(form, indent=1))
            if side == "npu":
                stack = "grouped" if mode == "stat" else "by_name"
                (place / "stack.json").write_bytes(open(os.path.join(DATA, "main", "stack.%s.json" % stack), "rb").read())
    for case in ("hl_stat", "debug_tensor", "multi_stat"):
        for path in glob.glob(os.path.join(DATA, case, "**", "*.json"), recursive=True):
            copy = root / os.path.relpath(path, DATA)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(open(path, "rb").read())
    return root


def run(msprobe, cwd, config, *args):
    (cwd / "compare.json").write_text(json.dumps(config))
    command = [msprobe, "-f", "pytorch", "compare", "-i", "compare.json", "-o", "out", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


def single(dumps, case, name="dump.json"):
    return {"npu_path": str(dumps / case / "npu" / name), "bench_path": str(dumps / case / "bench" / name)}


def expectation(name):
    doc = json.load(open(os.path.join(DATA, "expected", name + ".json")))
    if "base" not in doc:
        return doc
    base = expectation(doc["base"])
    for row, cells in doc["cells"].items():
        for column, value in cells.items():
            base["rows"][int(row)][base["columns"].index(column)] = value
    return dict(base, fills=doc["fills"])


def close(a, b):
    """Text exactly; numbers, and numbers followed by %, to nine digits."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, str) and isinstance(b, str) and a != b and a.endswith("%") and b.endswith("%"):
        try:
            return math.isclose(float(a[:-1]), float(b[:-1]), rel_tol=1e-9)
        except ValueError:
            return False
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-13)
    return a == b


def shown(value, coloured):
    """How a cell of an expectation looks in a workbook: a coloured one has text only."""
    if coloured and isinstance(value, bool):
        return str(value)
    return value + "\t" if coloured and value in ("inf", "-inf") else value


def check_table(path, want, coloured, skip=()):
    sheet = openpyxl.load_workbook(path).worksheets[0]
    rows = list(sheet.iter_rows())
    columns = [c for c in want["columns"] if c not in skip]
    assert sheet.title == "Sheet1"
    assert [c.value for c in rows[0]] == columns
    assert rows[0][0].font.b and sheet.freeze_panes == "A2"
    assert sheet.auto_filter.ref == sheet.dimensions
    assert sheet.column_dimensions["A"].width > 50
    assert len(rows) - 1 == len(want["rows"])
    wrong = []
    for i, (cells, values) in enumerate(zip(rows[1:], want["rows"])):
        expected = [shown(v, coloured) for c, v in zip(want["columns"], values) if c not in skip]
        for column, cell, value in zip(columns, cells, expected):
            got = "" if cell.value is None else cell.value
            if not close(got, value):
                wrong.append("row %d %s [%s]: expected %r, got %r" % (i, values[0], column, value, got))
        fills = {c.fill.start_color.rgb[2:] if c.fill.fill_type else None for c in cells}
        if fills != {FILLS.get(want["fills"].get(str(i)))}:
            wrong.append("row %d %s: colour %s" % (i, values[0], fills))
    assert not wrong, "%d differences:\n%s" % (len(wrong), "\n".join(wrong[:20]))


def results(cwd, pattern):
    found = sorted(p for p in glob.glob(str(cwd / "out" / "**" / "*"), recursive=True) if re.search(pattern, p))
    for p in found:
        assert stat.S_IMODE(os.stat(p).st_mode) == 0o640
    return found


def only(found):
    assert len(found) == 1, found
    return found[0]


CASES = [(m, v) for m in ("tensor", "stat", "md5") for v in ("", "_s", "_nostack", "_hl", "_f", "_f_hl", "_dm")]


@pytest.mark.parametrize("mode,variant", CASES, ids=["main_" + m + v for m, v in CASES])
def test_every_row_of_a_whole_network(msprobe, dumps, tmp_path, mode, variant):
    config = single(dumps, "main_" + mode)
    args = {"": [], "_s": ["-s"], "_nostack": [], "_hl": ["-hl", "-c"], "_f": ["-f", "-c"], "_f_hl": ["-f", "-c", "-hl"],
            "_dm": ["-c", "-dm", os.path.join(DATA, "data_mapping.yaml")]}[variant]
    if variant in ("_s", "_nostack"):
        config["stack_path"] = str(dumps / ("main_" + mode) / "npu" / "stack.json")
    p = run(msprobe, tmp_path, config, *args)
    assert p.returncode == 0, p.stderr
    want = expectation("main_" + mode + (variant if variant not in ("_s", "_nostack") else ""))
    skip = ["NPU_Stack_Info"] if variant == "_nostack" else []
    check_table(only(results(tmp_path, r"/compare_result_\d{14}\.xlsx$")), want, "_hl" in variant, skip)
    assert len(results(tmp_path, r"/advisor_\d{14}\.txt$")) == (0 if "-c" in args else 1)


def test_each_rule_of_the_colours(msprobe, dumps, tmp_path):
    assert run(msprobe, tmp_path, single(dumps, "hl_stat"), "-hl", "-c").returncode == 0
    check_table(only(results(tmp_path, "xlsx$")), expectation("hl_stat"), True)


@pytest.mark.parametrize("args", [[], ["-hl", "-c"]], ids=["plain", "hl"])
def test_single_values(msprobe, dumps, tmp_path, args):
    assert run(msprobe, tmp_path, single(dumps, "debug_tensor", "debug.json"), *args).returncode == 0
    check_table(only(results(tmp_path, r"/debug_compare_result_\d{14}\.xlsx$")), expectation("debug_tensor"), bool(args))


def test_two_ranks(msprobe, dumps, tmp_path):
    config = {"npu_path": str(dumps / "multi_stat/npu/step0"), "bench_path": str(dumps / "multi_stat/bench/step0")}
    assert run(msprobe, tmp_path, config, "-hl").returncode == 0
    for rank in (0, 1):
        path = only(results(tmp_path, r"/compare_result_rank%d_\d{14}\.xlsx$" % rank))
        check_table(path, expectation("multi_stat.rank%d" % rank), True)
        only(results(tmp_path, r"/advisor_rank%d_\d{14}\.txt$" % rank))


def test_the_advisor_names_the_first_row_that_is_wrong(msprobe, dumps, tmp_path):
    run(msprobe, tmp_path, single(dumps, "main_stat"))
    text = open(only(results(tmp_path, r"/advisor_"))).read()
    line, nodes, advice, verdict = text.splitlines()
    name = nodes.split(": ")[1]
    assert line == "Line: 3" and name == "Functional.rel5em4.0.forward.output.0" and verdict.startswith("Verdict: Wrong: " + name[:-9])
    assert advice == "Expert Advice: This is a forward API computation error. Check the computation implementation."
    assert "Calls that differ: the NPU run calls NPU.npu_only_op" in verdict


def test_a_dump_against_itself_is_all_right(msprobe, dumps, tmp_path):
    path = str(dumps / "hl_stat" / "npu" / "dump.json")
    assert run(msprobe, tmp_path, {"npu_path": path, "bench_path": path}).returncode == 0
    assert open(only(results(tmp_path, r"/advisor_"))).read().startswith("Line: NA\nSuspect Nodes: NA\n")


def test_results_are_never_written_over(msprobe, dumps, tmp_path):
    for _ in range(3):
        assert run(msprobe, tmp_path, single(dumps, "hl_stat"), "-c").returncode == 0
    assert len(results(tmp_path, "xlsx$")) == 3
