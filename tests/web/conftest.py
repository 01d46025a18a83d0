"""What the page's tests share: the browser."""
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "web"), str(ROOT / "tests" / "cli")]

from browser import Browser  # noqa: E402


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    b = Browser(tmp_path_factory.mktemp("profile"))
    yield b
    b.close()
