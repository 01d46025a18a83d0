"""What the comparison does with layouts, generations and inputs that are odd or wrong."""
import csv
import glob
import csv
import json
import os
import resource
import signal
import subprocess
import sys

import openpyxl
import pytest

import dumps

TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.0, "Mean": 0.5,
          "Norm": 1.0, "requires_grad": False}


def leaf(**changes):
    return dict(TENSOR, **changes)


def call(**changes):
    return {"input_args": [leaf()], "input_kwargs": {}, "output": [leaf(**changes)]}


def dump(data=None, **top):
    doc = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None,
           "data": {"Torch.add.0.forward": call()} if data is None else data}
    doc.update(top)
    return {k: v for k, v in doc.items() if v is not ...}


def write(path, doc):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(doc if isinstance(doc, str) else json.dumps(doc, indent=1))
    return path


class Result:
    def __init__(self, process, out):
        self.code, self.text, self.out = process.returncode, process.stdout + process.stderr, out

    def files(self, pattern="**/*"):
        found = glob.glob(str(self.out / pattern), recursive=True)
        return sorted(os.path.relpath(p, self.out) for p in found if os.path.isfile(p))

    def rows(self, pattern="**/*compare_result*.csv"):
        with open(only(glob.glob(str(self.out / pattern), recursive=True)), newline="") as f:
            return list(csv.DictReader(f))


def only(found):
    assert len(found) == 1, found
    return found[0]


@pytest.fixture
def compare(msprobe, tmp_path):
    def run(npu, bench, *args, config=None, **popen):
        cwd = tmp_path / "work"
        cwd.mkdir(exist_ok=True)
        doc = {"npu_path": str(npu), "bench_path": str(bench)} if config is None else config
        write(cwd / "compare.json", doc)
        command = [msprobe, "-f", "pytorch", "compare", "-i", "compare.json", "-o", "out", *args]
        p = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, **popen)
        return Result(p, cwd / "out")

    return run


@pytest.fixture
def pair(compare, tmp_path):
    """Compare two dump.json of these contents."""
    def run(npu, bench=None, *args, name="dump.json", **kw):
        a = write(tmp_path / "npu" / name, npu)
        b = write(tmp_path / "bench" / name, npu if bench is None else bench)
        return compare(a, b, "--format", "csv", *args, **kw)

    return run


# ---- refusals: a reason, exit status 1 or 2, no result -------------------------------------------------------------

REFUSED = {
    "no task": (dump(task=...), None, 'no "task"'),
    "no data": (dump(data=...), None, 'no "data"'),
    "data is a list": (dump(data=[1]), None, '"data" must be an object'),
    "no json": ("{not json", None, "line 1"),
    "an empty file": ("", None, "empty"),
    "nothing collected": (dump({}), None, "holds no inputs or outputs"),
    "NPU side empty": (dump({}), dump(), "holds no inputs or outputs"),
    "shape is text": (dump({"T.a.0.forward": call(shape="2")}), None, '"shape"'),
    "requires_grad is text": (dump({"T.a.0.forward": call(requires_grad="True")}), None, '"requires_grad"'),
    "task structure": (dump({"T.a.0.forward": {}}, task="structure"), None, "structure"),
    "task overflow_check": (dump(task="overflow_check"), None, "Compare applies only to task is tensor or statistics"),
    "unequal tasks": (dump(), dump(task="tensor"), "the tasks differ"),
    "md5 against statistics": (dump({"T.a.0.forward": call(md5="00")}), dump(), "checksums"),
    "damaged JSON": ('{"task": "statistics", "data": {"a": {} "b": 1}}', None, "collect it again, or copy it again"),
    "a record that is broken inside": ('{"task": "statistics", "data": {\n"a": {"input": [1 2]}\n}}', None, "line 2"),
    "values that nest too deep": (dump({"T.a.0.forward": {"input_args": json.loads("[" * 450 + "]" * 450)}}), None,
                                  "deeper"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_with_the_reason(pair, what):
    npu, bench, reason = REFUSED[what]
    r = pair(npu, bench)
    assert r.code in (1, 2)
    assert reason in r.text
    assert r.files() == []


@pytest.mark.parametrize("key", ["npu_path", "bench_path"])
def test_a_missing_key_of_compare_json_is_named(compare, tmp_path, key):
    config = {"npu_path": "a", "bench_path": "b"}
    del config[key]
    r = compare(None, None, config=config)
    assert r.code in (1, 2)
    assert "Missing %s in input configuration file, please check!" % key in r.text


def test_a_path_that_is_not_there_is_named(compare, tmp_path):
    good = write(tmp_path / "dump.json", dump())
    r = compare(tmp_path / "none" / "dump.json", good)
    assert r.code == 1
    assert str(tmp_path / "none" / "dump.json") in r.text


def test_a_file_against_a_folder_is_refused(compare, tmp_path):
    good = write(tmp_path / "d" / "dump.json", dump())
    r = compare(good, tmp_path / "d")
    assert r.code in (1, 2)
    assert "The npu_path and bench_path need to be of the same type." in r.text


def test_a_pipe_or_device_in_the_place_of_a_dump_is_named(compare, tmp_path):
    good = write(tmp_path / "d" / "dump.json", dump())
    os.mkfifo(tmp_path / "dump.json")
    for npu, bench, odd in ((tmp_path / "dump.json", good, tmp_path / "dump.json"), (good, "/dev/zero", "/dev/zero")):
        r = compare(npu, bench)
        assert r.code == 1 and "%s: is a device or pipe, not a regular file" % odd in r.text


def test_a_file_of_another_name_is_refused(compare, tmp_path):
    other = write(tmp_path / "stack.json", {})
    r = compare(other, other)
    assert r.code in (1, 2)
    assert "dump.json or debug.json" in r.text


def test_a_missing_stack_json_matters_only_when_it_is_asked_for(compare, tmp_path):
    good = write(tmp_path / "dump.json", dump())
    config = {"npu_path": str(good), "bench_path": str(good), "stack_path": str(tmp_path / "none.json")}
    r = compare(None, None, "-s", config=config)
    assert r.code == 1 and "none.json" in r.text
    assert compare(None, None, config=config).code == 0


# ---- nothing in common ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bench", [{"Torch.mul.0.forward": call()}, {}], ids=["other names", "empty"])
def test_nothing_matched_is_an_error_and_the_table_shows_it(pair, bench):
    r = pair(dump(), dump(bench))
    assert r.code == 1
    assert "no row matched" in r.text
    assert [row["Bench Name"] for row in r.rows()] == ["N/A", "N/A"]


# ---- odd but well ---------------------------------------------------------------------------------------------------


def test_text_that_looks_like_a_formula_stays_text(compare, tmp_path):
    doc = dump({"=cmd|calc!A1.0.forward": {"input_args": [{"type": "str", "value": v} for v in
                                                         ("=1+1", "+a", "-b", "@c", ";=d")], "output": [leaf(Min="-inf")]}})
    path = write(tmp_path / "dump.json", doc)
    r = compare(path, path, "-hl")
    assert r.code == 0
    sheet = openpyxl.load_workbook(r.out / only(r.files("*.xlsx"))).active
    cells = [c for row in sheet.iter_rows() for c in row]
    assert all(c.data_type != "f" for c in cells)
    assert {"=1+1", "+a", "-b", "@c", ";=d", "-inf\t"} <= {c.value for c in cells}


@pytest.mark.parametrize("value", ["inf", float("inf")], ids=["text", "number"])
def test_infinity_is_coloured_and_shown_alike_as_text_and_as_number(compare, tmp_path, value):
    path = write(tmp_path / "dump.json", dump({"Torch.add.0.forward": call(Max=value)}))
    r = compare(path, path, "-hl")
    assert r.code == 0
    output = list(openpyxl.load_workbook(r.out / only(r.files("*.xlsx"))).active.iter_rows())[-1]
    assert [c.value for c in output if str(c.value).startswith("inf")] == ["inf\t", "inf\t"]
    assert output[0].fill.start_color.rgb == "FFFF0000"


def test_leaves_without_type_or_statistics_are_no_trouble(pair):
    r = pair(dump({"Torch.add.0.forward": {"input_args": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2]},
                                                          {"dtype": "torch.float32", "shape": [2]}],
                                           "output": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2],
                                                       "Max": 1}]}}))
    assert r.code == 0
    assert [row["NPU Name"].rsplit("forward.")[1] for row in r.rows()] == ["input.0", "output.0"]
    assert [row["NPU max"] for row in r.rows()] == ["None", "1"]


def test_lines_of_a_mapping_that_name_no_row_are_told(compare, tmp_path):
    path = write(tmp_path / "dump.json", dump({"Torch.add.0.forward": call(), "Torch.mul.0.forward": call()}))
    lines = ["Torch.add.0.forward.input.0: Torch.mul.0.forward.input.0", "Torch.add.0.forward: Torch.mul.0.forward",
             "Torch.add.0.forward.output.0: Torch.mul.1.forward.output.0", "Torch.mul.0.forward.output.0: N/A"]
    mapping = write(tmp_path / "names.yaml", "\n".join(lines))
    r = compare(path, path, "-c", "-q", "-dm", mapping)
    assert r.code == 0
    assert r.text == ("warning: {m}: Torch.add.0.forward is no row of {p}: its line has no effect\n"
                      "warning: {m}: Torch.mul.1.forward.output.0 is no row of {p}: Torch.add.0.forward.output.0 stays "
                      "without partner\n").format(m=mapping, p=path)
    write(mapping, "\n".join("no.%d: other" % i for i in range(9)))
    r = compare(path, path, "-c", "-q", "-dm", mapping)
    assert r.text.endswith("no.4 is no row of %s: its line has no effect\n"
                           "warning: %s: 4 more lines name rows that are not there\n" % (path, mapping))


def test_any_path_will_do(compare, tmp_path):
    path = write(tmp_path / "dumps of März, 100 % + more" / "步骤" / "dump.json", dump())
    assert compare(path, path).code == 0


def test_a_file_that_was_cut_off_is_used_as_far_as_it_goes(pair):
    text = json.dumps(dump({"Torch.add.%d.forward" % i: call() for i in range(10)}), indent=1)
    r = pair(text[:len(text) // 2], text)
    assert r.code == 1
    assert "cut off" in r.text
    assert 0 < len(r.rows()) < 20


def test_a_dump_of_1_0_4_meets_one_of_26(pair):
    old = dump({"Module.m.Linear.forward.0": {"input_args": [leaf(Max=float("inf"), Max_except_inf_nan=2.0)]},
                "Module.m.Linear.parameters_grad": {"weight": [leaf()]}}, framework=...)
    new = dump({"Module.m.Linear.forward.0": {"input_args": [leaf(Max=float("inf"))], "is_recompute": False},
                "Module.m.Linear.parameters_grad.0": {"weight": [leaf()]}})
    for npu, bench in ((old, new), (new, old)):
        r = pair(npu, bench)
        assert r.code == 0
        assert all(row["Bench Name"] != "N/A" for row in r.rows("*%s*.csv" % max(f[-18:-4] for f in r.files("*.csv"))))


def test_every_format_says_the_same(compare, tmp_path):
    path = write(tmp_path / "npu" / "dump.json", dump({"T.a.0.forward": call(Max=float("nan"), Norm=3)}))
    other = write(tmp_path / "bench" / "dump.json", dump({"T.a.0.forward": call()}))
    r = compare(path, other, "-c", "--format", "xlsx,csv,json")
    assert r.code == 0
    with open(r.out / only(r.files("*.csv")), newline="") as f:
        as_csv = list(csv.reader(f))
    as_json = json.load(open(r.out / only(r.files("compare_result*.json"))))
    as_xlsx = [[c.value for c in row] for row in openpyxl.load_workbook(r.out / only(r.files("*.xlsx"))).active.iter_rows()]
    assert as_csv[0] == as_json["columns"] == as_xlsx[0]
    for a, b, c in zip(as_csv[1:], as_json["rows"], as_xlsx[1:]):
        for x, y, z in zip(a, b, c):
            assert x == str(y) or float(x) == float(y)
            assert (z is None and x == "") or x == str(z) or float(x) == float(z)


# ---- folders --------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path):
    def make(side, *places, doc=None):
        for p in places:
            write(tmp_path / side / p, dump() if doc is None else doc)
        return tmp_path / side

    return make


def names(r):
    return [f.rsplit("_", 1)[0] for f in r.files("**/*.csv") if not f.startswith("job_table_")]


def test_steps_and_ranks_are_found_from_any_level(compare, tree):
    places = ["step0/rank0/dump.json", "step0/rank1/dump.json", "step1/rank0/dump.json"]
    npu, bench = tree("npu", *places), tree("bench", *places)
    r = compare(npu, bench, "-c", "--format", "csv")
    assert r.code == 0
    assert names(r) == ["step0/compare_result_rank0", "step0/compare_result_rank1", "step1/compare_result_rank0"]


def test_a_step_folder_gives_one_result_per_rank(compare, tree):
    places = ["rank%d/dump.json" % i for i in (0, 2, 10)]
    r = compare(tree("npu", *places), tree("bench", *places), "-c", "--format", "csv")
    assert sorted(names(r)) == ["compare_result_rank0", "compare_result_rank10", "compare_result_rank2"]


def test_a_rank_folder_is_compared_like_its_file(compare, tree):
    r = compare(tree("npu", "rank3/dump.json") / "rank3", tree("bench", "rank3/dump.json") / "rank3", "-c", "--format", "csv")
    assert names(r) == ["compare_result"]


def test_ranks_with_other_numbers_are_paired_in_order_with_a_warning(compare, tree):
    npu, bench = tree("npu", "rank0/dump.json", "rank1/dump.json"), tree("bench", "rank2/dump.json", "rank3/dump.json")
    r = compare(npu, bench, "-c", "--format", "csv")
    assert r.code == 0
    assert "warning: rank0 of the NPU side is compared with rank2 of the bench side: their numbers differ" in r.text
    assert names(r) == ["compare_result_rank0", "compare_result_rank1"]


def test_the_folder_of_a_rank_meets_the_only_rank_of_the_other_side_without_a_warning(compare, tree):
    npu, bench = tree("npu", "rank0/dump.json") / "rank0", tree("bench", "rank0/dump.json")
    r = compare(npu, bench, "-c", "--format", "csv")
    assert r.code == 0 and "numbers differ" not in r.text


def test_a_rank_that_only_one_side_has_is_named_and_the_others_go_on(compare, tree):
    npu, bench = tree("npu", "rank0/dump.json", "rank1/dump.json"), tree("bench", "rank0/dump.json")
    r = compare(npu, bench, "-c", "--format", "csv")
    assert r.code == 1
    assert "rank1" in r.text
    assert names(r) == ["compare_result_rank0"]


def test_a_rank_that_cannot_be_read_is_named_and_the_others_go_on(compare, tree, tmp_path):
    npu, bench = tree("npu", "rank0/dump.json", "rank1/dump.json"), tree("bench", "rank0/dump.json", "rank1/dump.json")
    write(tmp_path / "npu" / "rank0" / "dump.json", "{broken")
    r = compare(npu, bench, "-c", "--format", "csv")
    assert r.code == 1
    assert "rank0" in r.text
    assert names(r) == ["compare_result_rank1"]


def test_a_rank_without_files_is_named_and_the_others_keep_their_partners(compare, tree, tmp_path):
    places = ["rank%d/dump.json" % i for i in range(3)]
    npu, bench = tree("npu", *places), tree("bench", *places)
    (npu / places[0]).unlink()
    (bench / places[2]).unlink()
    r = compare(npu, bench, "-c", "--format", "csv")
    assert r.code == 1 and "numbers differ" not in r.text
    for folder in (npu / "rank0", bench / "rank2"):
        assert "  %s not compared: %s: holds no dump.json" % (folder.name, folder) in r.text
    assert names(r) == ["compare_result_rank1"]


@pytest.mark.parametrize("other", ["rank4", "rank"])
def test_a_rank_without_files_leaves_the_order_of_the_others(compare, tree, other):
    npu, bench = tree("npu", "rank0/dump.json", "rank1/dump.json"), tree("bench", other + "/dump.json")
    (npu / "rank1/dump.json").unlink()
    r = compare(npu, bench, "-c", "--format", "csv")
    assert r.code == 1 and "  rank1 not compared: %s: holds no dump.json" % (npu / "rank1") in r.text
    assert len(names(r)) == 1 and "could not be compared" not in r.text.partition("rank1")[0]


def test_a_mapping_that_covers_several_ranks_is_told_of_once(compare, tree, tmp_path):
    npu, bench = tree("npu", "rank0/dump.json", "rank1/dump.json"), tree("bench", "rank0/dump.json", "rank1/dump.json")
    for side in (npu, bench):
        write(side / "rank1/dump.json", dump({"Torch.mul.0.forward": call()}))
        write(side / "rank0/dump.json", dump({"Torch.add.0.forward": call()}))
    lines = ["Torch.%s.0.forward.input.0: Torch.%s.0.forward.input.0" % (n, n) for n in ("add", "mul")] + ["no: other"]
    r = compare(npu, bench, "-c", "-q", "-dm", write(tmp_path / "names.yaml", "\n".join(lines)))
    assert r.code == 0 and r.text.count("warning: ") == 1 and "no is no row of %s" % npu in r.text


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away")
@pytest.mark.parametrize("folder, left", [("step0/rank1", ["step0/compare_result_rank0", "step1/compare_result_rank0"]),
                                          ("step0", ["step1/compare_result_rank0"])])
def test_a_folder_that_must_not_be_read_is_named_and_the_others_go_on(compare, tree, folder, left):
    places = ["step0/rank0/dump.json", "step0/rank1/dump.json", "step1/rank0/dump.json"]
    npu, bench = tree("npu", *places), tree("bench", *places)
    os.chown(npu / folder, 12345, 12345)
    (npu / folder).chmod(0o777)
    r = compare(npu, bench, "-c", "--format", "csv")
    assert r.code == 1
    assert "not compared: %s: everybody may write to it" % (npu / folder) in r.text
    assert names(r) == left


def test_a_stray_file_is_a_warning(compare, tree, tmp_path):
    npu, bench = tree("npu", "rank0/dump.json"), tree("bench", "rank0/dump.json")
    write(tmp_path / "npu" / "train.log", "x")
    r = compare(npu, bench, "-c", "--format", "csv")
    assert r.code == 0
    assert "train.log" in r.text


def test_a_rank_without_number_may_have_both_kinds(compare, tree):
    places = ["rank/dump.json", "rank/debug.json"]
    r = compare(tree("npu", *places), tree("bench", *places), "--format", "csv")
    assert r.code == 0
    assert names(r) == ["compare_result_rank", "debug_compare_result_rank"]
    assert len(r.files("*advisor*")) == 2


def test_graph_and_pynative_are_compared_each_with_itself(compare, tree):
    places = ["graph/step0/rank/dump.json", "pynative/step0/rank/dump.json"]
    r = compare(tree("npu", *places), tree("bench", *places), "-c", "--format", "csv")
    assert r.code == 0
    assert names(r) == ["graph/step0/compare_result_rank", "pynative/step0/compare_result_rank"]


def test_folders_named_after_processes_are_ranks(compare, tree):
    r = compare(tree("npu", "step0/proc17/dump.json"), tree("bench", "step0/proc99/dump.json"), "-c", "--format", "csv")
    assert r.code == 0
    assert names(r) == ["step0/compare_result_proc17"]


def test_a_folder_without_dumps_is_told_with_what_it_holds(compare, tree, tmp_path):
    write(tmp_path / "npu" / "train.log", "x")
    r = compare(tmp_path / "npu", tree("bench", "rank0/dump.json"))
    assert r.code == 1
    assert "train.log" in r.text


def test_many_ranks_beside_each_other_are_all_compared(compare, tree):
    places = ["rank%d/dump.json" % i for i in range(24)]
    r = compare(tree("npu", *places), tree("bench", *places), "-c", "--format", "csv", "--threads", "4")
    assert r.code == 0
    assert len(names(r)) == 24


# ---- where results go -----------------------------------------------------------------------------------------------


def limit_files():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


@pytest.mark.parametrize("form", ["xlsx", "csv", "json"])
def test_a_full_disk_is_an_error_that_leaves_nothing_behind(compare, tmp_path, form):
    path = write(tmp_path / "dump.json", dump({"Torch.add.%d.forward" % i: call() for i in range(2000)}))
    r = compare(path, path, "-c", "--format", form, preexec_fn=limit_files)
    assert r.code == 1
    assert r.files() == []


def test_an_output_path_that_is_a_file_is_refused(compare, tmp_path):
    path = write(tmp_path / "dump.json", dump())
    write(tmp_path / "work" / "out", "a file")
    r = compare(path, path)
    assert r.code == 1
    assert (tmp_path / "work" / "out").read_text() == "a file"


def test_a_link_inside_the_output_folder_is_not_followed(compare, tree, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "work" / "out").mkdir(parents=True)
    (tmp_path / "work" / "out" / "step0").symlink_to(elsewhere)
    r = compare(tree("npu", "step0/rank0/dump.json"), tree("bench", "step0/rank0/dump.json"), "-c")
    assert r.code in (1, 2)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_what_everybody_may_write_and_somebody_else_owns_is_not_read(compare, tmp_path):
    path = write(tmp_path / "dump.json", dump())
    os.chown(path, 12345, 12345)
    path.chmod(0o666)
    r = compare(path, path)
    assert r.code in (1, 2)
    assert "everybody may write" in r.text


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_tensor_file_of_somebody_else_that_everybody_may_write_is_not_read(run, tmp_path):
    npu, bench = dumps.real(tmp_path / "npu"), dumps.real(tmp_path / "bench")
    path = sorted((npu / "dump_tensor_data").iterdir())[0]
    os.chown(path, 12345, 12345)
    assert run("compare", npu, bench, "-o", "out", "--fail-on", "any").rc == 0
    path.chmod(0o666)
    r = run("compare", npu, bench, "-o", "out", "--fail-on", "any")
    assert r.rc == 3
    assert "%s: everybody may write to it" % path.relative_to(tmp_path) in r.err
    assert "1 unreadable" in r.out


@pytest.mark.parametrize("name", ["dump.json", "debug.json"])
def test_in_the_short_way_a_file_meets_the_folder_of_a_rank(run, tmp_path, name):
    for side in ("npu", "bench"):
        write(tmp_path / side / "rank0" / name, dump())
    for npu, bench in (("npu/rank0/" + name, "bench/rank0"), ("npu/rank0/", "bench/rank0/" + name)):
        r = run("compare", npu, bench, "-o", "out")
        assert r.rc == 0 and "bench/rank0/" + name in r.out
    r = run("compare", "npu/rank0/" + name, "bench", "-o", "out")
    assert r.rc == 1 and "need to be of the same type" in r.err


def test_a_tensor_that_has_lost_its_type_is_compared_by_its_file(run, tmp_path):
    for side, fault in (("npu", 2.0), ("bench", 0.0)):
        path = dumps.real(tmp_path / side, fault) / "dump.json"
        doc = json.loads(path.read_text())
        del doc["data"]["Functional.relu.0.forward"]["output"][0]["dtype"]
        path.write_text(json.dumps(doc))
    r = run("compare", "npu", "bench", "-o", "out", "--format", "csv", "--no-html", "-q")
    assert r.rc == 0, r.err
    table, = (tmp_path / "out").glob("compare_result*.csv")
    last = list(csv.DictReader(table.open(encoding="utf-8-sig")))[-1]
    assert (last["NPU Name"], last["NPU Dtype"]) == ("Functional.relu.0.forward.output.0", "<class 'NoneType'>")
    assert (last["MaxAbsErr"], last["Accuracy Reached or Not"]) == ("2.0", "No")
