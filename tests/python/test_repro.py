"""`msprobe repro`: one call as a script that runs where msprobe is not, and says what was recorded and what is right."""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

COMMAND = shutil.which("msprobe", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
ALONE = """
import runpy, sys
sys.modules["msprobe"] = None  # import msprobe raises ImportError
sys.modules["msprobe._core"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
PROGRAM = """
import torch, torch.nn.functional as F
from msprobe.pytorch import PrecisionDebugger
torch.manual_seed(0)
x = torch.randn(4, 6, requires_grad=True)
w = torch.randn(5, 6, requires_grad=True)
h = torch.randn(3, 8).bfloat16().requires_grad_()
debugger = PrecisionDebugger(%r)
debugger.start()
y = F.softmax(F.linear(x, w), dim=-1)
z = F.layer_norm(h, (8,))
d = F.dropout(y, 0.5, training=True)
u = torch.zeros(4, 5)
u += y
v, _ = torch.topk(u, 2, dim=-1)
torch.randn_like(y)
(d.sum() + z.float().pow(2).sum() + v.sum() * 2).backward()
debugger.stop()
debugger.step()
"""


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    """The command's is this one: another that is first on the PATH may have no torch."""
    monkeypatch.setenv("MSPROBE_PYTHON", sys.executable)


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    base = tmp_path_factory.mktemp("repro")
    found = {}
    for task in ("tensor", "statistics"):
        config = base / (task + ".json")
        config.write_text(json.dumps({"task": task, "level": "L1", "dump_path": str(base / task), "rank": [], "step": [],
                                      task: {"list": [], "data_mode": ["all"]}}))
        subprocess.run([sys.executable, "-c", PROGRAM % str(config)], check=True, cwd=base, stdout=subprocess.DEVNULL, timeout=300)
        found[task] = base / task
    return found


def repro(dump, name, out, *more, rc=0):
    done = subprocess.run([COMMAND, "repro", str(dump), name, "-o", str(out), *more], capture_output=True, text=True, timeout=300)
    assert done.returncode == rc, done.stdout + done.stderr
    return done


def alone(script, *more):
    """The script's output, from an interpreter that cannot import msprobe, in a folder of its own."""
    done = subprocess.run([sys.executable, "-c", ALONE, str(script), *more], capture_output=True, text=True, timeout=300, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def errors(text):
    """{result: {who: largest error}}."""
    out, at = {}, None
    for line in text.splitlines():
        if re.match(r"(output|gradient of)", line):
            at = line.split("  ")[0]
            out[at] = {}
        found = re.match(r"  (this device|recorded) +error \S+ \(root mean square\), (\S+) \(largest\)", line)
        if found:
            out[at][found.group(1)] = float(found.group(2))
    return out


@pytest.mark.parametrize("name, results", [
    ("Functional.linear.0", ["output.0", "gradient of input.0", "gradient of input.1"]),
    ("Functional.layer_norm.0", ["output.0", "gradient of input.0"]),
    ("Functional.dropout.0", ["output.0", "gradient of input.0"]),
    ("Tensor.__iadd__.0", None),
    ("Torch.topk.0", ["output.0", "output.1", "gradient of input.0"])])
def test_the_script_runs_alone_and_measures_what_was_recorded(dump, tmp_path, name, results):
    made = json.loads(repro(dump["tensor"], name, tmp_path, "--json").stdout)
    assert set(made) == {"version", "script", "tensors"}  # docs/schema/repro.schema.json
    found = errors(alone(made["script"]))
    unit = 2 ** -8 if "layer_norm" in name else 2 ** -24
    assert results is None or list(found) == results
    for at, by in found.items():
        assert by["this device"] <= 40 * unit, at
        assert by["recorded"] == pytest.approx(by["this device"], rel=0.01, abs=unit), at  # the same CPU made both


def test_a_planted_fault_is_measured_where_it_is(dump, tmp_path):
    """One element of the recorded result is made zero: its error is its own size, by C's measurement too."""
    folder = tmp_path / "dump"
    shutil.copytree(dump["tensor"], folder)
    path, = folder.rglob("Functional.softmax.0.forward.output.0.pt")
    t = torch.load(path)
    right = t[2, 3].item()
    t[2, 3] = 0
    torch.save(t, path)
    made = json.loads(repro(folder, "Functional.softmax.0", tmp_path / "out", "--json").stdout)
    text = alone(made["script"], "--worst", "1", "--no-backward")
    first = re.search(r"^  (\[.*?\]) +(\S+) +(\S+) +(\S+)$", text, re.M).groups()
    assert first[0] == "[2, 3]" and float(first[2]) == 0 and float(first[1]) == pytest.approx(right) == pytest.approx(float(first[3]), rel=1e-6)
    assert "gradient" not in text
    env = {k: v for k, v in os.environ.items() if k != "MSPROBE_NO_REPLAY"}
    said = subprocess.run([COMMAND, "explain", str(folder), str(dump["tensor"]), "Functional.softmax.0.forward", "--json"], capture_output=True,
                          text=True, env=env, timeout=300)
    measured, = [r for r in json.loads(said.stdout)["results"] if r["at"] == "output.0"]
    assert measured["basis"] == "replay", said.stderr
    largest = measured["local"] * t.numel() ** 0.5  # the root mean square of one error
    assert errors(text)["output.0"]["recorded"] == pytest.approx(largest, rel=0.01)


def test_a_dump_of_statistics_says_that_its_inputs_are_made(dump, tmp_path):
    repro(dump["statistics"], "Functional.linear.0", tmp_path)
    text = alone(tmp_path / "repro_Functional.linear.0.py")
    assert "note: the dump holds statistics only" in text and "  recorded " not in text and errors(text)["output.0"]["this device"] < 1e-5


@pytest.mark.parametrize("name, told", [("Functional.dropout.0", "cannot be run again: random: the mask is not part of the record"),
                                        ("Functional.sofmax.0", "did you mean 'Functional.softmax.0'"),
                                        ("Functional", "which one?")])
def test_what_cannot_be_written_is_an_error_that_says_why(dump, tmp_path, name, told):
    done = repro(dump["statistics"], name, tmp_path / "out", rc=1)
    assert told in done.stderr and done.stderr.startswith("error: ") and not (tmp_path / "out").exists()


def test_nothing_is_written_over(dump, tmp_path):
    assert "  Next          python " in repro(dump["tensor"], "Functional.softmax.0", tmp_path).stdout
    before = (tmp_path / "repro_Functional.softmax.0.py").read_text()
    assert "is there already" in repro(dump["tensor"], "Functional.softmax.0", tmp_path, rc=1).stderr
    assert (tmp_path / "repro_Functional.softmax.0.py").read_text() == before
    assert "msprobe" not in before and oct((tmp_path / "repro_Functional.softmax.0.pt").stat().st_mode & 0o777) == "0o640"


def test_where_there_is_no_room_nothing_is_left_and_the_error_says_so(dump, tmp_path):
    def no_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    out = tmp_path / "out"
    done = subprocess.run([COMMAND, "repro", str(dump["tensor"]), "Functional.softmax.0", "-o", str(out)], capture_output=True, text=True,
                          timeout=300, preexec_fn=no_room)
    assert done.returncode == 1 and "cannot write: File too large; choose another folder with -o" in done.stderr
    assert os.listdir(out) == []


def test_the_tensors_load_with_weights_only(dump, tmp_path):
    repro(dump["tensor"], "Functional.linear.0", tmp_path)
    tensors = torch.load(tmp_path / "repro_Functional.linear.0.pt", weights_only=True)
    assert set(tensors) == {"inputs", "incoming", "recorded"} and tensors["inputs"]["input.0"].shape == (4, 6)
