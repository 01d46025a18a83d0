import os
import sys

import pytest


@pytest.fixture(scope="session")
def msprobe():
    """Path of the command beside the interpreter that runs the tests."""
    path = os.path.join(os.path.dirname(sys.executable), "msprobe")
    assert os.access(path, os.X_OK), "run `make build` first"
    return path
