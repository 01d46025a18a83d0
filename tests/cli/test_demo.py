"""`make demo`, step by step: two trainings, and the command names the call that was broken on purpose. What README.md
shows of it is what the command prints."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def dumped(tmp_path_factory):
    """The folder with the demo's two dumps."""
    pytest.importorskip("torch")
    out = tmp_path_factory.mktemp("demo")
    for name, *fault in (("bench",), ("npu", "--fault")):
        subprocess.run([sys.executable, "examples/demo/train.py", str(out / name), *fault], cwd=ROOT, check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=300)
    return out


@pytest.fixture(scope="module")
def session(msprobe, dumped):
    """The command's output for them."""
    out = dumped
    done = subprocess.run([msprobe, "compare", str(out / "npu" / "step0"), str(out / "bench" / "step0"),
                           "-o", str(out / "result")], env={**os.environ, "MSPROBE_NO_REPLAY": "0", "MSPROBE_PYTHON": sys.executable},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, check=True,
                          universal_newlines=True, timeout=300)
    assert len(list((out / "result").glob("compare_result_*.xlsx"))) == 1
    return done.stdout


def test_the_broken_softmax_is_named(session):
    assert re.search(r"Verdict +Wrong: Functional\.softmax\.2\.forward\b", session)
    assert re.search(r"Suspect +Functional\.softmax\.2\.forward\.output\.0\n", session)
    assert re.search(r"Its inputs +equal to the bit", session)
    assert re.search(r"Called at +examples/demo/train\.py:\d+ in forward\n +weights = F\.softmax", session)


@pytest.mark.parametrize("document", ["README.md", "README.zh-CN.md"])
def test_the_readme_shows_what_is_printed(session, document):
    lines = [" ".join(line.split()) for line in (ROOT / document).read_text(encoding="utf-8").splitlines()]
    # the lines of the session that depend neither on paths nor on the time, nor on the processor's rounding
    for line in (" ".join(line.split()) for line in session.splitlines()):
        if line.startswith(("Rows", "Verdict", "Table", "Suspect", "rank,", "80%", "Its inputs", "Called at", "weights =")):
            assert line in lines


def one_space(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_tutorial_shows_what_is_printed(msprobe, session, dumped):
    shown = one_space((ROOT / "docs/tutorial.md").read_text(encoding="utf-8"))
    files = [str(dumped / side / "step0/rank/dump_tensor_data/Functional.softmax.2.forward.output.0.pt") for side in ("npu", "bench")]
    diff = subprocess.run([msprobe, "diff", *files], stdout=subprocess.PIPE, check=True, universal_newlines=True).stdout
    told = [line for line in one_space(session) if line.startswith(("Suspect ", "80%", "Its inputs ", "Called at ", "weights ="))]
    told += [line for line in one_space(diff) if line.startswith(("Verdict ", "Pattern ", "Where the errors are"))]
    assert len(told) == 8
    for line in told:
        assert line in shown
