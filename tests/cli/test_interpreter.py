"""Which Python the command starts, for what needs torch: $MSPROBE_PYTHON as people write it."""
import os
import stat

import dumps
import pytest


@pytest.fixture
def python(tmp_path):
    """A program that says how it was called."""
    path = tmp_path / "bin" / "my-python"
    path.parent.mkdir()
    path.write_text('#!/bin/sh\necho "$0 $1 $2"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def repro(run, tmp_path):
    dumps.statistics(tmp_path / "dump")

    def runner(wanted, path=""):
        return run("repro", "dump", "Functional.relu.0.forward", "-o", "out",
                   env={"MSPROBE_PYTHON": str(wanted), "PATH": os.pathsep.join([str(path), os.environ["PATH"]])})
    return runner


def test_a_path_is_started_as_it_stands(repro, python):
    r = repro(python)
    assert r.rc == 0 and r.out == "bin/my-python -m msprobe.replay.repro\n"


def test_a_name_is_looked_for_on_the_path(repro, python):
    r = repro("my-python", python.parent)
    assert r.rc == 0 and r.out == "bin/my-python -m msprobe.replay.repro\n"


@pytest.mark.parametrize("wanted", ["no-such-python", "./no-such-python", "bin", "./bin", "x" * 5000])
def test_what_is_no_program_is_named(repro, python, wanted):
    r = repro(wanted, python.parent)
    assert r.rc == 1 and r.err.startswith("error: MSPROBE_PYTHON is " + wanted[:100]), r.err
