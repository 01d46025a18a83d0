import os
import sys

import pytest


@pytest.fixture(scope="session")
def msprobe():
    """Path of the command beside the interpreter that runs the tests, or what the variable MSPROBE names."""
    path = os.environ.get("MSPROBE") or os.path.join(os.path.dirname(sys.executable), "msprobe")
    assert os.access(path, os.X_OK), "run `make build` first"
    return path
