"""What the tests of the command and of the package share."""
import os
import tarfile

import pytest

# Running calls again takes seconds and a Python with torch: tests of the verdict ask for it themselves (test_verdict.py).
os.environ.setdefault("MSPROBE_NO_REPLAY", "1")


@pytest.fixture(scope="session")
def cases(tmp_path_factory):
    """Dumps of the older tools, a folder for each case."""
    root = tmp_path_factory.mktemp("legacy")
    with tarfile.open(os.path.join(os.path.dirname(__file__), "data", "legacy", "cases.tar.xz")) as t:
        t.extractall(root)
    return root
