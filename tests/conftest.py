"""What the tests of the command and of the package share."""
import os
import tarfile

import pytest


@pytest.fixture(scope="session")
def cases(tmp_path_factory):
    """Dumps of the older tools, a folder for each case."""
    root = tmp_path_factory.mktemp("legacy")
    with tarfile.open(os.path.join(os.path.dirname(__file__), "data", "legacy", "cases.tar.xz")) as t:
        t.extractall(root)
    return root
