"""What the command's tests share: where it is, how to run it, and small dumps made by hand."""
import json
import os
import re
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def find_command():
    """$MSPROBE, the command beside the interpreter that runs the tests, or that of the debug build."""
    candidates = [os.environ.get("MSPROBE", ""), os.path.join(os.path.dirname(sys.executable), "msprobe"),
                  os.path.join(ROOT, "build/dev/src/cli/msprobe")]
    for path in candidates:
        if path and os.access(path, os.X_OK):
            return path
    raise AssertionError("run `make build` first")


class Result:
    def __init__(self, done, cwd):
        self.rc = done.returncode
        self.out, self.err = (neutral(t, cwd) for t in (done.stdout, done.stderr))
        self.raw = done.stdout


def neutral(text, cwd):
    """Text with what differs between runs replaced: times, durations, the scratch folder."""
    text = text.replace(str(cwd) + "/", "")
    text = re.sub(r"_20\d{12}\b", "_TIME", text)
    text = re.sub(r"_1\d{18}\b", "_NS", text)
    return re.sub(r"[\d.]+ k?B in \d+\.\d\d s", "SIZE in TIME s", text)


@pytest.fixture(scope="session")
def msprobe():
    return find_command()


@pytest.fixture
def run(msprobe, tmp_path):
    """run(*words, env={...}) in a folder of its own; colours and levels of the environment do not reach it."""
    def runner(*words, env=None, cwd=None, stdin=subprocess.DEVNULL):
        clean = {k: v for k, v in os.environ.items()
                 if k not in ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "MSPROBE_LOG_LEVEL", "LC_ALL", "LANG")}
        clean.update(env or {})
        done = subprocess.run([msprobe, *map(str, words)], cwd=cwd or tmp_path, env=clean, stdin=stdin, text=True,
                              errors="surrogateescape", stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        return Result(done, cwd or tmp_path)
    return runner


@pytest.fixture
def files(tmp_path):
    """files("out") lists what is there, with neutral names; what every comparison adds, the page and the job's table, is left out."""
    def lister(name="out"):
        base = tmp_path / name
        return sorted(neutral(str(p.relative_to(base)), tmp_path) for p in base.rglob("*")
                      if p.is_file() and p.suffix != ".html" and not p.name.startswith("job_table_"))
    return lister


@pytest.fixture
def compare_json(tmp_path):
    def writer(name="compare.json", **keys):
        (tmp_path / name).write_text(json.dumps(keys))
        return name
    return writer
