"""run_ut: every API of a dump has a row, on real torch."""
import csv
import glob
import json
import os
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")


def is_as_described(said):
    """By docs/schema, where there is something to ask."""
    jsonschema = pytest.importorskip("jsonschema")
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(os.path.join(root, "docs/schema/run_ut.schema.json")) as f:
        jsonschema.Draft202012Validator(json.load(f)).validate(said)


PROGRAM = '''
import json, sys, torch
import torch.nn.functional as F
from msprobe.pytorch import PrecisionDebugger
out, task = sys.argv[1:]
json.dump({"task": task, "level": "L1", "dump_path": out}, open(out + "/c.json", "w"))
torch.manual_seed(7)
w = torch.randn(16, 8, requires_grad=True)
x = torch.randn(4, 8, requires_grad=True)
d = PrecisionDebugger(out + "/c.json")
d.start()
y = F.gelu(F.linear(x, w))
for _ in range(30):
    y = torch.relu(y) + 1
n = torch.bernoulli(torch.full((3,), 0.5))
e = n.to(torch.float64)
loss = F.softmax(y, dim=-1).pow(2).sum()
loss.backward()
d.stop(); d.step()
'''


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    made = {}

    def run(task="tensor"):
        if task not in made:
            out = str(tmp_path_factory.mktemp("dump"))
            subprocess.run([sys.executable, "-c", PROGRAM, out, task], check=True, cwd=out)
            made[task] = os.path.join(out, "step0", "rank", "dump.json")
        return made[task]
    return run


def command():
    return shutil.which("msprobe", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])


def before(site):
    """PYTHONPATH with a folder in front of what it has, where msprobe may be."""
    return os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))


def run_ut(path, out, *words, env=None):
    done = subprocess.run([command(), "-f", "pytorch", "run_ut", "-api_info", path, "-o", str(out), *words], text=True,
                          capture_output=True, env=dict(os.environ, MSPROBE_PYTHON=sys.executable, **(env or {})))
    return done


def rows(out, kind="result"):
    (path,) = glob.glob("%s/accuracy_checking_%s_*.csv" % (out, kind))
    with open(path, encoding="utf-8-sig", newline="") as f:
        return list(csv.DictReader(f))


def recorded_calls(path):
    with open(path) as f:
        names = json.load(f)["data"]
    return list(dict.fromkeys(n.rpartition(".")[0] for n in names))


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_every_call_has_a_row_in_the_order_of_the_dump(dump, tmp_path, task):
    done = run_ut(dump(task), tmp_path)
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path)
    assert [r["API name"] for r in found] == recorded_calls(dump(task))
    by = {r["API name"]: r for r in found}
    assert by["Functional.linear.0"]["Forward Test Success"] == by["Functional.linear.0"]["Backward Test Success"] == "pass"
    assert by["Torch.bernoulli.0"]["Forward Test Success"] == "SKIP" and "random" in by["Torch.bernoulli.0"]["Message"]
    assert "black list" in by["Tensor.to.0"]["Message"]
    details = rows(tmp_path, "details")
    assert {"Functional.linear.0.forward.output.0", "Functional.linear.0.backward.output.1"} <= {r["API Name"] for r in details}
    assert len(details[0]) == 23
    assert "APIs of" in done.stdout and "0 errors" in done.stdout


def test_the_numbers_do_not_depend_on_the_number_of_processes(dump, tmp_path):
    texts = []
    for n in ("1", "3"):
        out = tmp_path / n
        subprocess.run([command(), "multi_run_ut", "-api_info", dump(), "-o", str(out), "-n", n, "-q"], check=True,
                       env=dict(os.environ, MSPROBE_PYTHON=sys.executable))
        texts.append([open(f, "rb").read() for f in sorted(glob.glob("%s/*.csv" % out))])
    assert texts[0] == texts[1] and len(texts[0]) == 2


def test_a_run_that_was_cut_off_goes_on_and_loses_no_row(dump, tmp_path):
    assert run_ut(dump(), tmp_path).returncode == 0
    whole = rows(tmp_path), rows(tmp_path, "details")
    (result,) = glob.glob("%s/accuracy_checking_result_*.csv" % tmp_path)
    with open(result, "rb+") as f:
        f.truncate(len(f.read()) // 2)
    done = run_ut(dump(), tmp_path, "-csv_path", result)
    assert done.returncode == 0, done.stderr
    assert (rows(tmp_path), rows(tmp_path, "details")) == whole


def test_lists_and_f_leave_calls_out_with_a_row(dump, tmp_path):
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"white_list": ["relu"], "black_list": []}))
    assert run_ut(dump(), tmp_path / "out", "-config", str(config), "-f").returncode == 0
    found = rows(tmp_path / "out")
    assert [r["API name"] for r in found] == recorded_calls(dump())
    assert [r["API name"] for r in found if r["Forward Test Success"] == "pass"] == ["Torch.relu.0"]
    assert "earlier call" in {r["API name"]: r for r in found}["Torch.relu.1"]["Message"]


def test_a_missing_tensor_is_a_row_and_the_exit_status_says_so(dump, tmp_path):
    import shutil
    folder = tmp_path / "copy"
    shutil.copytree(os.path.dirname(dump()), folder)
    for name in glob.glob("%s/dump_tensor_data/Functional.gelu.0.forward.input*" % folder):
        os.remove(name)
    done = run_ut(str(folder / "dump.json"), tmp_path / "out", "--json")
    assert done.returncode == 1
    said = json.loads(done.stdout)
    is_as_described(said)
    assert said["failed"] == 1 and said["pass"] > 10
    row = {r["API name"]: r for r in rows(tmp_path / "out")}["Functional.gelu.0"]
    assert row["Forward Test Success"] == "SKIP" and row["Message"].startswith("FAILED: its inputs cannot be read")


def test_a_wrong_result_is_an_error_and_its_data_is_saved(dump, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'msprobe.precheck.check':\n"
        "            sys.meta_path.remove(self)\n"
        "            import torch, torch.nn.functional as F\n"
        "            right = F.gelu\n"
        "            F.gelu = lambda x, *a: right(x, *a) * (1 if x.dtype == torch.float64 else 2)\n"
        "sys.meta_path.insert(0, Finder())\n")
    done = run_ut(dump(), tmp_path / "out", "-save_error_data", "--fail-on", "error", env={"PYTHONPATH": before(site)})
    assert done.returncode == 3, done.stderr
    assert "Functional.gelu.0.forward.output.0: error" in done.stdout
    saved = {os.path.basename(p) for p in glob.glob("%s/out/ut_error_data*/*.pt" % tmp_path)}
    assert {"Functional.gelu.0.forward.input.0.pt", "Functional.gelu.0.forward.output.device.0.pt",
            "Functional.gelu.0.forward.output.bench.0.pt"} <= saved


def test_a_process_that_dies_costs_its_own_call_only(dump, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'msprobe.precheck.check':\n"
        "            sys.meta_path.remove(self)\n"
        "            import os, torch.nn.functional as F\n"
        "            F.gelu = lambda *a, **k: os.kill(os.getpid(), 9)\n"
        "sys.meta_path.insert(0, Finder())\n")
    done = run_ut(dump(), tmp_path / "out", env={"PYTHONPATH": before(site)})
    assert done.returncode == 1
    found = rows(tmp_path / "out")
    assert [r["API name"] for r in found] == recorded_calls(dump())
    bad = [r for r in found if "died" in r["Message"]]
    assert [r["API name"] for r in bad] == ["Functional.gelu.0"]
    assert sum(r["Forward Test Success"] == "pass" for r in found) > 60


def test_two_devices_are_compared(dump, tmp_path):
    assert run_ut(dump(), tmp_path / "a").returncode == 0
    (details,) = glob.glob("%s/a/accuracy_checking_details_*.csv" % tmp_path)
    done = subprocess.run([command(), "-f", "pytorch", "api_precision_compare", "-npu", details, "-gpu", details, "-o",
                           str(tmp_path / "b")], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    (path,) = glob.glob("%s/b/api_precision_compare_details_*.csv" % tmp_path)
    with open(path, encoding="utf-8-sig", newline="") as f:
        table = list(csv.reader(f))
    assert len(table[0]) == 28 and all(len(r) == 28 for r in table)
    assert {r[25] for r in table[1:]} <= {"pass", "SKIP"}


def test_overflows_of_the_numbers_are_normal(dump):
    done = subprocess.run([command(), "run_overflow_check", "-api_info", dump()], text=True, capture_output=True,
                          env=dict(os.environ, MSPROBE_PYTHON=sys.executable))
    assert done.returncode == 0
    assert "The Functional.linear.0.forward overflow is a normal overflow.\n" in done.stdout


def test_lists_that_leave_nothing_are_told(dump, tmp_path):
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"white_list": ["relu"], "black_list": ["relu"]}))
    done = run_ut(dump(), tmp_path / "out", "-config", str(config))
    assert done.returncode == 1 and "white_list and black_list leave no API of" in done.stderr
    assert [r["API name"] for r in rows(tmp_path / "out")] == recorded_calls(dump())
    config.write_text(json.dumps({"white_list": [], "black_list": ["relu"]}))
    assert run_ut(dump(), tmp_path / "most", "-config", str(config)).stderr == ""
    assert run_ut(dump(), tmp_path / "none", "-config", "no/such.json").stderr == "msprobe: no/such.json: No such file or directory\n"


@pytest.mark.parametrize("words, said", [
    ([], "which dump?"), (["-api_info", "no/such.json"], "no/such.json: cannot be read"),
    (["-api_info", __file__, "-csv_path", "x.csv"], "-csv_path takes an accuracy_checking_result_"),
    (["-api_info", __file__, "-d", "x"], "-d takes numbers of devices"),
    (["-api_info", __file__, "-d", "0", "1", "0"], "-d has device 0 twice"),
])
def test_wrong_words_get_a_clear_line(tmp_path, words, said):
    done = subprocess.run([command(), "run_ut", "-o", str(tmp_path), *words], text=True, capture_output=True)
    assert done.returncode in (1, 2) and said in done.stderr


@pytest.mark.parametrize("name", ["run_ut", "multi_run_ut", "acc_check", "multi_acc_check"])
def test_wrong_usage_points_to_the_help_of_the_command_that_was_called(name):
    done = subprocess.run([command(), name], text=True, capture_output=True)
    assert done.returncode == 2 and done.stderr.endswith("try: msprobe help %s\n" % name)


def test_without_a_python_the_way_out_is_said(dump, tmp_path):
    done = run_ut(dump(), tmp_path, env={})
    assert done.returncode == 0
    done = subprocess.run([command(), "run_ut", "-api_info", dump(), "-o", str(tmp_path / "x")], text=True, capture_output=True,
                          env=dict(os.environ, MSPROBE_PYTHON="/no/such/python"))
    assert done.returncode == 1 and "MSPROBE_PYTHON is /no/such/python" in done.stderr


# ---- what is wrong with the input -----------------------------------------------------------------------------------------------------------


def copied(dump, tmp_path):
    import shutil
    folder = tmp_path / "copy"
    shutil.copytree(os.path.dirname(dump()), folder)
    return folder


def by_name(out):
    return {r["API name"]: r for r in rows(out)}


def test_a_cut_tensor_is_a_row_and_the_others_go_on(dump, tmp_path):
    folder = copied(dump, tmp_path)
    (path,) = glob.glob("%s/dump_tensor_data/Functional.gelu.0.forward.input.0.pt" % folder)
    with open(path, "rb+") as f:
        f.truncate(100)
    done = run_ut(str(folder / "dump.json"), tmp_path / "out")
    assert done.returncode == 1
    row = by_name(tmp_path / "out")["Functional.gelu.0"]
    assert row["Forward Test Success"] == "SKIP" and row["Message"].startswith("FAILED: its inputs cannot be read")
    assert sum(r["Forward Test Success"] == "pass" for r in rows(tmp_path / "out")) > 60


def test_a_dump_that_ends_in_the_middle_is_checked_as_far_as_it_goes_and_says_so(dump, tmp_path):
    folder = copied(dump, tmp_path)
    size = os.path.getsize(folder / "dump.json")
    os.truncate(folder / "dump.json", size // 3)
    done = run_ut(str(folder / "dump.json"), tmp_path / "out")
    assert done.returncode == 1 and "dump.json ends in the middle, at byte " in done.stderr
    assert 10 < len(rows(tmp_path / "out")) < len(recorded_calls(dump()))


def test_calls_of_another_torch_and_of_nobody_are_rows_with_the_reason(dump, tmp_path):
    folder = copied(dump, tmp_path)
    content = json.loads((folder / "dump.json").read_text())
    relu = content["data"]["Torch.relu.0.forward"]
    odd = {"Torch.a_function_of_torch_9.0.forward": relu, "Own.anything.0.forward": relu, "Torch.relu.77.forward": {"input_args": [], "input_kwargs": {}, "output": []},
           "Torch.relu.78.forward": {"input_args": [{"type": "torch.Tensor", "dtype": "torch.float3", "shape": [2, 2]}], "input_kwargs": {}, "output": []},
           "Torch.relu.79.forward": [], "nodots": {}, "Torch.relu.80.forward": {"input_args": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [-1, "x"]}]}}
    content["data"].update(odd)
    (folder / "dump.json").write_text(json.dumps(content))
    done = run_ut(str(folder / "dump.json"), tmp_path / "out")
    found = by_name(tmp_path / "out")
    for name in ("Torch.a_function_of_torch_9.0", "Own.anything.0"):
        assert found[name]["Forward Test Success"] == "SKIP" and "unknown function" in found[name]["Message"]
    for n in (77, 78, 79, 80):
        assert found["Torch.relu.%d" % n]["Forward Test Success"] == "SKIP" and found["Torch.relu.%d" % n]["Message"]
    assert "Traceback" not in done.stderr and found["Torch.relu.0"]["Forward Test Success"] == "pass"


def test_a_name_that_is_no_apis_is_told_with_the_nearest_one_and_the_rest_goes_on(dump, tmp_path):
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"run_ut": {"white_list": ["relu", "gelo"], "black_list": ["softmaxx"]}}))
    done = run_ut(dump(), tmp_path / "out", "-config", str(config))
    assert done.returncode == 1
    assert 'white_list has "gelo", which is no API (did you mean "gelu"?)' in done.stderr and 'black_list has "softmaxx"' in done.stderr
    assert by_name(tmp_path / "out")["Torch.relu.0"]["Forward Test Success"] == "pass"


@pytest.mark.parametrize("text, said", [('{"white_list": "relu"}', "white_list is to be a list"), ("[1]", "an object with white_list"), ("{", "not a JSON file")])
def test_a_wrong_config_is_one_line(dump, tmp_path, text, said):
    config = tmp_path / "c.json"
    config.write_text(text)
    done = run_ut(dump(), tmp_path / "out", "-config", str(config))
    assert done.returncode == 1 and said in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_file_that_is_no_dump_is_one_line(tmp_path):
    path = tmp_path / "dump.json"
    path.write_text("garbage")
    done = run_ut(str(path), tmp_path / "out")
    assert done.returncode == 1 and "dump.json: line 1" in done.stderr and len(done.stderr.splitlines()) == 1


def test_devices_and_j_are_taken(dump, tmp_path):
    done = run_ut(dump(), tmp_path, "-d", "0", "1", "-j")
    assert done.returncode == 0, done.stderr
    assert [r["API name"] for r in rows(tmp_path)] == recorded_calls(dump())


def test_a_run_that_is_killed_again_and_again_loses_no_row(dump, tmp_path):
    """The group of processes is killed at some moment, and what it left is continued, until one gets to its end."""
    import signal
    import time
    whole = tmp_path / "whole"
    assert run_ut(dump("statistics"), whole).returncode == 0
    out, words, kills = tmp_path / "out", [], 0
    for attempt in range(12):
        process = subprocess.Popen([command(), "multi_run_ut", "-api_info", dump("statistics"), "-o", str(out), "-n", "2", "-q", *words], start_new_session=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ, MSPROBE_PYTHON=sys.executable))
        before, end = sum(map(os.path.getsize, glob.glob("%s/*result*.csv" % out))), time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end and kills < 2:
            if sum(map(os.path.getsize, glob.glob("%s/*result*.csv" % out))) > max(before, 100) + 300:
                os.killpg(process.pid, signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.002)
        if process.wait() == 0:
            break
        words = ["-csv_path", glob.glob("%s/accuracy_checking_result_*.csv" % out)[0]]
    assert kills > 0 and process.returncode == 0
    assert rows(out) == rows(whole) and rows(out, "details") == rows(whole, "details")


def test_what_an_overflow_check_cannot_run_is_told_and_the_exit_status_says_so(dump, tmp_path):
    folder = copied(dump, tmp_path)
    for name in glob.glob("%s/dump_tensor_data/Functional.gelu.0.forward.input*" % folder):
        os.remove(name)
    done = subprocess.run([command(), "-f", "pytorch", "run_overflow_check", "-api_info", str(folder / "dump.json"), "-j", "-d", "0"], text=True, capture_output=True,
                          env=dict(os.environ, MSPROBE_PYTHON=sys.executable))
    assert done.returncode == 1 and "Functional.gelu.0: not checked: its inputs cannot be read" in done.stdout
    assert "The Functional.linear.0.forward overflow is a normal overflow.\n" in done.stdout


def test_an_overflow_that_higher_precision_does_not_have_is_abnormal(tmp_path):
    import torch
    from collecting import collect

    def body(d):
        d.start()
        torch.add(torch.full((4,), 60000.0, dtype=torch.float16), torch.full((4,), 60000.0, dtype=torch.float16))
        torch.div(torch.ones(3), torch.zeros(3))
        d.stop()
        d.step()

    result = collect(tmp_path, body, task="overflow_check", part={"overflow_nums": -1})
    done = subprocess.run([command(), "-f", "pytorch", "run_overflow_check", "-api_info", result.file()], text=True, capture_output=True,
                          env=dict(os.environ, MSPROBE_PYTHON=sys.executable))
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["The Torch.add.0.forward overflow is an abnormal overflow.", "The Torch.div.0.forward overflow is a normal overflow."]


def with_records(dump, tmp_path, records):
    """A copy of the dump with further records."""
    folder = copied(dump, tmp_path)
    content = json.loads((folder / "dump.json").read_text())
    content["data"].update(records)
    (folder / "dump.json").write_text(json.dumps(content))
    return str(folder / "dump.json")


def call_with(*args):
    return {"input_args": list(args), "input_kwargs": {}, "output": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2]}]}


def test_a_dump_runs_no_function_that_recording_does_not_know(dump, tmp_path):
    trace, text = str(tmp_path / "trace"), {"type": "str"}
    names = ["Torch.os.system.0", "Torch.serialization.os.system.0", "Functional.torch.os.system.0", "Torch.save.0", "Torch.from_file.0", "Tensor.__class__.0"]
    path = with_records(dump, tmp_path, {n + ".forward": call_with(dict(text, value="touch " + trace if "system" in n else trace), dict(text, value=trace)) for n in names})
    run_ut(path, tmp_path / "out")
    found = by_name(tmp_path / "out")
    assert not os.path.exists(trace)
    assert all("unknown function" in found[n]["Message"] for n in names)


NAMES = ["=cmd|x.y.0", "Torch.a,b.0", "Torch.\"quo\"te.0", "Torch.new\nline.0", "Torch.<b>.0", "Torch." + "x" * 6000 + ".0", "Torch.ü.0", "Torch.relu", "relu", "..0",
         "Torch.nul\0.0", "Torch.\ud800.0"]


def test_every_record_has_one_row_whatever_its_name_also_after_a_resume(dump, tmp_path):
    path = with_records(dump, tmp_path, {n + ".forward": call_with() for n in NAMES})
    run_ut(path, tmp_path / "out")
    (result,) = glob.glob("%s/out/accuracy_checking_result_*.csv" % tmp_path)
    texts = [open(p, "rb").read() for p in sorted(glob.glob("%s/out/*.csv" % tmp_path))]
    assert len(rows(tmp_path / "out")) == len(recorded_calls(path))
    for size in (0, 10, len(texts[1]) - 3000, len(texts[1])):  # also before its first row, and when it is whole
        with open(result, "rb+") as f:
            f.truncate(size)
        run_ut(path, tmp_path / "out", "-csv_path", result)
        assert [open(p, "rb").read() for p in sorted(glob.glob("%s/out/*.csv" % tmp_path))] == texts


def test_records_of_wrong_types_end_neither_f_nor_an_overflow_check(dump, tmp_path):
    odd = {"list": [], "number": 5, "text": "x", "null": None, "deep": call_with(json.loads("[" * 900 + "]" * 900)), "shape": call_with({"type": "torch.Tensor", "dtype": "torch.float32",
           "shape": "abc"}), "range": call_with({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": [1], "Min": {}})}
    path = with_records(dump, tmp_path, {"Torch.relu.%d.forward" % (90 + i): record for i, record in enumerate(odd.values())})
    path = with_records(lambda: path, tmp_path / "more", {"Torch.\x1b[2Jrelu.0.forward": call_with()})
    done = run_ut(path, tmp_path / "out", "-f")
    assert "Traceback" not in done.stderr and done.returncode == 1
    assert all(by_name(tmp_path / "out")["Torch.relu.%d" % (90 + i)]["Message"] for i in range(len(odd)))
    done = subprocess.run([command(), "run_overflow_check", "-api_info", path], text=True, capture_output=True, env=dict(os.environ, MSPROBE_PYTHON=sys.executable))
    assert "Traceback" not in done.stderr and done.returncode == 1 and done.stdout.count("not checked") >= len(odd)
    assert "\x1b" not in done.stdout and "Torch.?[2Jrelu.0: not checked" in done.stdout


def test_two_runs_do_not_write_to_one_file(dump, tmp_path):
    import fcntl
    path = tmp_path / "accuracy_checking_result_20260101000000.csv"
    path.write_bytes(b"")
    with open(path, "rb+") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        done = run_ut(dump(), tmp_path / "out", "-csv_path", str(path))
    assert done.returncode == 1 and "another run_ut writes to it" in done.stderr and len(done.stderr.splitlines()) == 1


def test_nobody_works_on_when_the_command_is_killed(dump, tmp_path):
    import signal
    import time
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'msprobe.precheck.check':\n"
        "            sys.meta_path.remove(self)\n"
        "            import os, time, torch.nn.functional as F\n"
        "            def stuck(*a, **k):\n"
        "                with open(os.environ['PIDS'], 'a') as f:\n"
        "                    f.write('%d %d\\n' % (os.getpid(), os.getppid()))\n"
        "                time.sleep(3600)\n"
        "            F.gelu = stuck\n"
        "sys.meta_path.insert(0, Finder())\n")
    pids = tmp_path / "pids"
    process = subprocess.Popen([command(), "run_ut", "-api_info", dump(), "-o", str(tmp_path / "out"), "-q"], stderr=subprocess.DEVNULL,
                               env=dict(os.environ, MSPROBE_PYTHON=sys.executable, PYTHONPATH=before(site), PIDS=str(pids)))
    while not pids.exists() or "\n" not in pids.read_text():
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    for pid in map(int, pids.read_text().split()):
        while os.path.exists("/proc/%d" % pid) and "(zombie)" not in open("/proc/%d/status" % pid).read():
            time.sleep(0.05)
    assert signal.SIGKILL == -process.returncode


def test_an_inplace_argument_may_stand_by_position(tmp_path):
    from collecting import collect

    def body(d):
        import torch
        import torch.nn.functional as F
        x = torch.randn(4, 5, requires_grad=True)
        d.start()
        F.leaky_relu(x * 1, 0.1, True).sum().backward()
        d.stop()
        d.step()

    path = collect(tmp_path, body, task="tensor").file()
    assert run_ut(path, tmp_path / "out").returncode == 0
    row = by_name(tmp_path / "out")["Functional.leaky_relu.0"]
    assert (row["Forward Test Success"], row["Backward Test Success"]) == ("pass", "pass")


def checked(tmp_path, body, **config):
    """Record body and check it: (exit status, rows by the calls' names)."""
    from collecting import collect
    result = collect(tmp_path, body, **dict({"task": "tensor"}, **config))
    done = run_ut(result.file(), tmp_path / "out")
    return done.returncode, by_name(tmp_path / "out")


def small_model(d):
    import torch.nn.functional as F
    x = torch.linspace(-1, 1, 16).reshape(4, 4).requires_grad_()
    d.start()
    torch.max(F.gelu(torch.relu(x) @ x), 1)[0].sum().backward()
    d.stop()
    d.step()


@pytest.mark.parametrize("mode, backward", [(["input"], True), (["forward", "input"], False)])
def test_inputs_alone_are_enough_to_check_a_call(tmp_path, mode, backward):
    status, found = checked(tmp_path, small_model, part={"data_mode": mode})
    assert status == 0
    for name in ("Torch.relu.0", "Tensor.__matmul__.0", "Functional.gelu.0", "Torch.max.0"):
        assert found[name]["Forward Test Success"] == "pass"
        assert found[name]["Backward Test Success"] == ("pass" if backward else " ")


def test_results_alone_are_not(tmp_path):
    status, found = checked(tmp_path, small_model, part={"data_mode": ["forward", "output"]})
    assert status == 0 and found["Torch.relu.0"]["Message"] == "its inputs were not recorded"


def test_a_call_that_raised_when_it_was_recorded_is_nobodys_fault(tmp_path):
    def body(d):
        d.start()
        try:
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))
        except RuntimeError:
            pass
        torch.relu(torch.ones(3))
        d.stop()
        d.step()

    status, found = checked(tmp_path, body)
    assert status == 0 and found["Torch.relu.0"]["Forward Test Success"] == "pass"
    assert found["Torch.mm.0"]["Message"].startswith("no result of it was recorded, and it cannot be run here: mat1 and mat2")


def test_numbers_that_a_call_does_not_take_are_told_to_be_made(tmp_path):
    def body(d):
        d.start()
        torch.cholesky(torch.eye(4) * 2 + 1)
        d.stop()
        d.step()

    status, found = checked(tmp_path, body, task="statistics")
    assert status == 0
    assert found["Torch.cholesky.0"]["Message"].startswith("with inputs made from statistics it cannot be run here: ")


def test_a_complex_number_that_no_record_holds_is_told(tmp_path):
    def body(d):
        d.start()
        torch.full_like(torch.ones(2, dtype=torch.complex64), 1 + 2j)
        d.stop()
        d.step()

    status, found = checked(tmp_path, body)
    assert status == 0 and "may be a complex number" in found["Torch.full_like.0"]["Message"]


def test_what_returns_nothing_or_no_plain_tensor_is_compared_too(tmp_path):
    def body(d):
        x = torch.randn(4, 4, requires_grad=True)
        d.start()
        y = x * 1
        y[0] = x[1]
        y.sum().backward()
        torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 2]]), torch.tensor([1.0, 2.0]), (3, 3))
        torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)  # there is none for float64
        d.stop()
        d.step()

    status, found = checked(tmp_path, body, api_list="wide")
    assert status == 0, found
    assert found["Torch.quantize_per_tensor.0"]["Message"].startswith("no benchmark, in higher precision on the CPU it cannot be run here")
    for name in ("Tensor.__setitem__.0", "Torch.sparse_coo_tensor.0"):
        assert found[name]["Forward Test Success"] == "pass", found[name]
    assert found["Tensor.__setitem__.0"]["Backward Test Success"] == "pass"


def test_random_functions_in_place_are_random_too(tmp_path):
    def body(d):
        d.start()
        for f in (torch.feature_dropout_, torch.alpha_dropout_, torch.feature_alpha_dropout_):
            f(torch.ones(64, 64, 2), 0.5, True)
        d.stop()
        d.step()

    status, found = checked(tmp_path, body)
    assert status == 0 and len(found) >= 3
    assert found["Torch.feature_dropout_.0"]["Forward Test Success"] == "pass"  # with the mask that the result shows
    for name in ("Torch.alpha_dropout_.0", "Torch.feature_alpha_dropout_.0"):
        assert found[name]["Forward Test Success"] == "SKIP" and "random" in found[name]["Message"]


def test_what_has_no_elements_is_said(tmp_path):
    def body(d):
        d.start()
        torch.relu(torch.ones(0, 3, requires_grad=True)).sum().backward()
        d.stop()
        d.step()

    status, found = checked(tmp_path, body)
    assert status == 0
    assert found["Torch.relu.0"]["Message"] == "forward: there are no elements to compare; backward: there are no elements to compare"


def test_gradients_that_are_zeros_without_memory_are_compared(tmp_path):
    def body(d):
        d.start()
        torch.sgn(torch.ones(3, requires_grad=True)).sum().backward()
        d.stop()
        d.step()

    status, found = checked(tmp_path, body)
    assert status == 0 and found["Torch.sgn.0"]["Backward Test Success"] == "pass"


def test_of_two_functions_of_one_name_the_recorded_one_is_run(tmp_path):
    from collecting import collect
    from msprobe.replay import Dump
    from msprobe.replay.run import Prepared

    def body(d):
        x = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
        d.start()
        torch.norm(x, 1)
        torch.linalg.norm(x, 1)
        torch.svd(x, some=True)
        torch.linalg.svd(x, full_matrices=False)
        torch.diagonal(torch.ones(2, 3, 4))
        torch.linalg.diagonal(torch.ones(2, 3, 4))
        d.stop()
        d.step()

    dump = Dump(collect(tmp_path, body, task="tensor").file())
    names = {}
    for call in ("Torch.norm.0", "Torch.norm.1", "Torch.svd.0", "Torch.svd.1", "Torch.diagonal.0", "Torch.diagonal.1"):
        prepared = Prepared(dump.call(call))
        run = prepared.run()
        assert run.reason is None
        assert all(torch.allclose(r.recorded.double(), r.computed, atol=1e-5) for r in run.outputs)
        names[call] = prepared.name
    assert names == {"Torch.norm.0": "norm", "Torch.norm.1": "linalg.norm", "Torch.svd.0": "svd", "Torch.svd.1": "linalg.svd",
                     "Torch.diagonal.0": "diagonal", "Torch.diagonal.1": "linalg.diagonal"}


def test_a_missing_gradient_is_told_by_the_exit_status(dump, tmp_path):
    folder = copied(dump, tmp_path)
    for name in glob.glob("%s/dump_tensor_data/Functional.gelu.0.backward.input*" % folder):
        os.remove(name)
    done = run_ut(str(folder / "dump.json"), tmp_path / "out", "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["failed"] == 1
    row = by_name(tmp_path / "out")["Functional.gelu.0"]
    assert (row["Forward Test Success"], row["Backward Test Success"]) == ("pass", "SKIP")
    assert row["Message"].startswith("FAILED: backward: its inputs cannot be read")


def test_what_torch_warns_of_stays_off_the_screen(tmp_path):
    def body(d):
        d.start()
        torch.cross(torch.ones(3, 3), torch.ones(3, 3))
        d.stop()
        d.step()

    from collecting import collect
    result = collect(tmp_path, body, task="tensor")
    done = run_ut(result.file(), tmp_path / "out")
    assert done.returncode == 0 and done.stderr == ""


def test_numbers_are_results_and_inputs_without_gradient_are_said(tmp_path):
    from collecting import collect

    def body(d):
        import torch
        import torch.nn.functional as F
        x, w = torch.randn(4, 5), torch.randn(3, 5, requires_grad=True)
        d.start()
        torch.equal(x, x)
        F.linear(x, w).sum().backward()
        d.stop()
        d.step()

    path = collect(tmp_path, body, task="tensor").file()
    assert run_ut(path, tmp_path / "out").returncode == 0
    assert by_name(tmp_path / "out")["Torch.equal.0"]["Forward Test Success"] == "pass"
    row = {r["API Name"]: r for r in rows(tmp_path / "out", "details")}["Functional.linear.0.backward.output.0"]
    assert (row["Status"], row["Message"]) == ("SKIP", "Bench output is None, skip this test.")
    assert row["Shape"] == row["Bench Dtype"] == " "


def test_data_of_errors_goes_where_the_config_says_and_only_when_asked_for(dump, tmp_path):
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"acc_check": {"error_data_path": str(tmp_path / "errors")}}))  # as msprobe 26 calls the part
    from msprobe.precheck.calls import Choice
    choice = Choice(None, str(config))
    assert choice.folder_of_errors(None) is None
    assert choice.folder_of_errors("out/ut_error_data1") == str(tmp_path / "errors/ut_error_data1")
    assert Choice(None).folder_of_errors("out/ut_error_data1") == "out/ut_error_data1"


def test_a_call_that_does_not_fit_into_memory_is_a_row_and_not_the_end(dump, tmp_path):
    huge = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1 << 20, 1 << 16], "Max": 1.0, "Min": -1.0, "Mean": 0.0, "Norm": 1.0}
    path = with_records(dump, tmp_path, {"Torch.relu.99.forward": {"input_args": [huge], "input_kwargs": {}, "output": [huge]}})
    assert run_ut(path, tmp_path / "out").returncode == 1
    assert by_name(tmp_path / "out")["Torch.relu.99"]["Message"].startswith("FAILED: too large: it takes about ")


def overflow_check(path, env=None):
    return subprocess.run([command(), "-f", "pytorch", "run_overflow_check", "-api_info", path], text=True, capture_output=True,
                          env=dict(os.environ, MSPROBE_PYTHON=sys.executable, **(env or {})))


def test_an_overflow_check_goes_on_after_a_call_that_does_not_fit_into_memory(dump, tmp_path):
    huge = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1 << 20, 1 << 16], "Max": 1.0, "Min": -1.0, "Mean": 0.0, "Norm": 1.0}
    path = with_records(dump, tmp_path, {"Torch.relu.99.forward": {"input_args": [huge], "input_kwargs": {}, "output": [huge]},
                                         "Torch.relu.100.forward": call_with({"type": "float", "value": 1.0})})
    done = overflow_check(path)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[-2].startswith("Torch.relu.99: not checked: too large: it takes about ")
    assert lines[-1].startswith("Torch.relu.100: not checked: it cannot be run here")
    assert len(lines) == len(recorded_calls(path))


def test_an_overflow_check_goes_on_after_a_call_whose_process_dies(dump, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'msprobe.precheck.check':\n"
        "            sys.meta_path.remove(self)\n"
        "            import os, torch.nn.functional as F\n"
        "            F.gelu = lambda *a, **k: os.kill(os.getpid(), 9)\n"
        "sys.meta_path.insert(0, Finder())\n")
    done = overflow_check(dump(), {"PYTHONPATH": before(site)})
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert len(lines) == len(recorded_calls(dump()))
    assert [line for line in lines if "died" in line] == ["Functional.gelu.0: not checked: the process that ran it died (exit status -9)"]


@pytest.mark.parametrize("way", ["absolute", "above", "link"])
def test_a_data_name_that_leads_out_of_the_dump_is_a_row_and_nothing_is_read(dump, tmp_path, way):
    folder = copied(dump, tmp_path)
    content = json.loads((folder / "dump.json").read_text())
    leaf = content["data"]["Functional.gelu.0.forward"]["input_args"][0]
    own = folder / "dump_tensor_data" / leaf["data_name"]
    outside = tmp_path / "outside.pt"
    shutil.move(own, outside)
    if way == "link":
        os.symlink(outside, own)
    else:
        leaf["data_name"] = str(outside) if way == "absolute" else "../../outside.pt"
        (folder / "dump.json").write_text(json.dumps(content))
    assert run_ut(str(folder / "dump.json"), tmp_path / "out").returncode == 1
    found = by_name(tmp_path / "out")
    assert found["Functional.gelu.0"]["Forward Test Success"] == "SKIP"
    assert "data_name leads out of" in found["Functional.gelu.0"]["Message"]
    assert sum(r["Forward Test Success"] == "pass" for r in found.values()) > 60


def test_a_dump_whose_folder_of_tensors_is_a_link_is_read(dump, tmp_path):
    folder = copied(dump, tmp_path)
    shutil.move(folder / "dump_tensor_data", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", folder / "dump_tensor_data")
    assert run_ut(str(folder / "dump.json"), tmp_path / "out").returncode == 0


def test_a_dump_of_mindspore_and_another_framework_are_refused(dump, tmp_path):
    folder = copied(dump, tmp_path)
    content = json.loads((folder / "dump.json").read_text())
    content["framework"] = "mindspore"
    (folder / "dump.json").write_text(json.dumps(content))
    done = run_ut(str(folder / "dump.json"), tmp_path / "out")
    assert done.returncode == 1 and "a dump of mindspore" in done.stderr
    done = overflow_check(str(folder / "dump.json"))
    assert done.returncode == 1 and "a dump of mindspore" in done.stderr and done.stdout == ""
    done = subprocess.run([command(), "-f", "mindspore", "run_ut", "-api_info", dump(), "-o", str(tmp_path)], text=True, capture_output=True)
    assert done.returncode == 2 and "dumps of PyTorch" in done.stderr


def test_convolutions_of_other_devices_have_inputs_that_hf32_holds():
    import torch
    from msprobe.replay import Call
    from msprobe.replay.run import Prepared, hf32
    assert hf32(torch.tensor([1 + 2.0 ** -11, 1 + 2.0 ** -13, -3.0, float("inf")])).tolist() == [1 + 2.0 ** -11, 1.0, -3.0, float("inf")]
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "Max": 1.0, "Min": -1.0}
    from msprobe.replay.dump import Recorded
    for device, differs in (("cpu", True), ("npu:0", False)):
        t = Prepared(Call("Functional.conv2d.0", {}, None, "."), device).tensor(Recorded(tensor, "."), "input 0")
        assert (t != hf32(t)).any() == differs


def test_details_have_the_originals_rows_cells_and_messages(tmp_path):
    from collecting import collect

    def body(d):
        import torch
        import torch.nn.functional as F

        def numbers(seed):
            return torch.randn(4, 5, generator=torch.Generator().manual_seed(seed))

        w = numbers(0).requires_grad_()
        d.start()
        x = w * 2
        x.add_(1.0)
        x.mul_(numbers(1))
        x.sub_(0.5).div_(2)
        torch.relu_(x)
        y = F.relu(x * 3, inplace=True)
        y = F.leaky_relu(y - 1, 0.1, True) + 0
        y.clamp_(min=-0.5)
        y += 1
        y -= 0.25
        y *= 2
        y = y + 0
        y.tanh_()
        y = y + 0
        y.addcmul_(numbers(2), numbers(3), value=0.1)
        y.masked_fill_(numbers(4) > 0, 0.25)
        y.transpose(0, 1).contiguous().t_().squeeze_().sum().backward()
        d.stop()
        d.step()

    path = collect(tmp_path, body, task="statistics").file()
    run_ut(path, tmp_path / "out")
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with open(os.path.join(root, "data/run_ut/inplace_details.csv"), encoding="utf-8", newline="") as f:
        theirs = {r.pop("API Name"): r for r in csv.DictReader(f)}
    ours = {}
    for r in rows(tmp_path / "out", "details"):
        name, *types = (r[k] for k in list(r)[:4])
        ours[name] = dict(zip(("Bench Dtype", "DEVICE Dtype", "Shape"), types), Status=r["Status"], Message=r["Message"],
                          **{"cells with a number": " ".join(k for k in list(r)[4:21] if r[k] != " ")})
    assert len(theirs) > 50
    assert {n: ours.get(n) for n in theirs if n in ours} == {n: t for n, t in theirs.items() if n in ours}
    assert set(theirs) - set(ours) <= {"Tensor.to.%d.forward.output.0" % n for n in range(9)}


def test_the_folder_of_a_step_stands_for_its_only_rank(dump, tmp_path):
    path = dump()
    rank = tmp_path / "whole/step0/rank0"
    shutil.copytree(os.path.dirname(path), rank)
    for folder in (rank, rank.parent, rank.parent.parent):
        assert run_ut(str(folder), tmp_path / ("out%d" % len(str(folder)))).returncode == 0
    shutil.copytree(rank, rank.parent / "rank1")
    done = run_ut(str(rank.parent), tmp_path / "out")
    assert done.returncode == 1 and "2 dumps; name one of them, such as %s" % (rank / "dump.json") in done.stderr
    (tmp_path / "none").mkdir()
    assert "none: no dump.json here" in run_ut(str(tmp_path / "none"), tmp_path / "out").stderr
