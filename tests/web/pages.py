"""Pages that the real command makes."""
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def find_command():
    for path in (os.environ.get("MSPROBE", ""), str(Path(sys.executable).parent / "msprobe"), str(ROOT / "build/dev/src/cli/msprobe")):
        if path and os.access(path, os.X_OK):
            return path
    raise AssertionError("run `make build` first")


def make_page(npu, bench, out, *words):
    done = subprocess.run([find_command(), "compare", str(npu), str(bench), "-o", str(out), *words], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    pages = list(Path(out).glob("*.html"))
    assert len(pages) == 1, done.stdout
    return pages[0]
