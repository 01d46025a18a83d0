"""run_ut: every API of a dump has a row, on real torch."""
import csv
import glob
import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

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
    return os.path.join(os.path.dirname(sys.executable), "msprobe")


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
    done = run_ut(dump(), tmp_path / "out", "-save_error_data", "--fail-on", "error", env={"PYTHONPATH": str(site)})
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
    done = run_ut(dump(), tmp_path / "out", env={"PYTHONPATH": str(site)})
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


@pytest.mark.parametrize("words, said", [
    ([], "which dump?"), (["-api_info", "no/such.json"], "no/such.json: cannot be read"),
    (["-api_info", __file__, "-csv_path", "x.csv"], "-csv_path takes an accuracy_checking_result_"),
    (["-api_info", __file__, "-d", "x"], "-d takes numbers of devices"),
])
def test_wrong_words_get_a_clear_line(tmp_path, words, said):
    done = subprocess.run([command(), "run_ut", "-o", str(tmp_path), *words], text=True, capture_output=True)
    assert done.returncode in (1, 2) and said in done.stderr


def test_without_a_python_the_way_out_is_said(dump, tmp_path):
    done = run_ut(dump(), tmp_path, env={})
    assert done.returncode == 0
    done = subprocess.run([command(), "run_ut", "-api_info", dump(), "-o", str(tmp_path / "x")], text=True, capture_output=True,
                          env=dict(os.environ, MSPROBE_PYTHON="/no/such/python"))
    assert done.returncode == 1 and "MSPROBE_PYTHON is /no/such/python" in done.stderr
