"""Nothing that the extension hands out or takes in is left behind: a fresh interpreter repeats each use, also those that
fail, and its memory must not grow."""
import subprocess
import sys

import pytest

pytest.importorskip("torch")

PREPARE = """
import gc, os, sys, tempfile
import numpy as np, torch, msprobe
folder = tempfile.mkdtemp()
path, table = os.path.join(folder, "t.pt"), os.path.join(folder, "t.csv")
tensor, array, z = torch.randn(300, 40), np.zeros((300, 40)), torch.ones(3, dtype=torch.complex64)
msprobe.save_pt(path, tensor)
torch.save({"a": tensor, "b": tensor}, path + "d")
open(path + "x", "wb").write(b"PK not a tensor")

def fails(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except (TypeError, ValueError, OSError):
        return
    raise AssertionError("no exception")

def write_table():
    with msprobe.open_table(table, ["a", "b"]) as t:
        t.row(["x", 1])
        fails(t.row, ["x"])
        fails(t.row, ["x", object()])

def use():
"""

MEASURE = """
def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

for _ in range(300):
    use()
gc.collect()
before, objects = resident(), len(gc.get_objects())
for _ in range(3000):
    use()
gc.collect()
grown = resident() - before
print(grown, len(gc.get_objects()) - objects)
import shutil; shutil.rmtree(folder)
# 3000 leaks of the smallest object would be 48 KB; of a reference to a type, counted by the objects, none
sys.exit(0 if grown < 2_000_000 and len(gc.get_objects()) - objects < 100 else 1)
"""

USES = {
    "stats": "msprobe.stats(tensor); msprobe.stats(array); msprobe.stats(array[::-1]); repr(msprobe.stats(z.conj()))",
    "metrics": "repr(msprobe.metrics(tensor, array)); fails(msprobe.metrics, tensor, array[1:])",
    "checksums": "msprobe.crc32(tensor); msprobe.fingerprint(array)",
    "load": "t = msprobe.load(path); t.shape, t.strides, t.dtype; memoryview(t).tobytes(); msprobe.stats(t); repr(t)",
    "open": "f = msprobe.open(path + 'd'); list(f); f.keys(); msprobe.stats(f['a']); fails(msprobe.open, path + 'x')",
    "save": "msprobe.save_pt(path, tensor); fails(msprobe.save_npy, '/nowhere/t.npy', array)",
    "table": "write_table()",
    "refusals": "fails(msprobe.stats, [1]); fails(msprobe.stats); fails(msprobe.stats, torch.ones(1, device='meta'))\n"
                "    fails(msprobe.load, folder); fails(msprobe.open_table, 'x.doc', ['a'])",
}


@pytest.mark.parametrize("use", USES)
def test_memory_does_not_grow(use):
    script = PREPARE + "    " + USES[use] + "\n" + MEASURE
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True)
    assert done.returncode == 0, done.stdout
