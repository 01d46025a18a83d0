"""What the tests share: training runs in processes of their own, because a process has one debugger."""
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

SMALL = """import os, signal, sys, mindspore
import numpy as np
from mindspore import Tensor, mint, nn, ops
from msprobe.mindspore import PrecisionDebugger
debugger = PrecisionDebugger(config_path=sys.argv[1])
x = Tensor(np.ones((2, 3), np.float32))
"""


def train(*words, check=True):
    """Run train.py; returns its output."""
    done = subprocess.run([sys.executable, str(HERE / "train.py"), *map(str, words)], capture_output=True, text=True, timeout=None if "MSPROBE_STEPS" in os.environ else 500)
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def bits(output):
    return [line for line in output.splitlines() if line.startswith("bits")]


def write_config(folder, task="statistics", level="L1", part=None, **common):
    config = {"task": task, "dump_path": str(folder / "dump"), "rank": [], "step": [], "level": level, task: part or {}}
    config.update(common)
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def read(folder, step=0, file="dump.json", rank="rank"):
    return json.loads((folder / "dump" / ("step%d" % step) / rank / file).read_text())


def run(folder, script, *words, **config):
    """Run a script after SMALL, with a debugger of this configuration that is not started yet."""
    return subprocess.run([sys.executable, "-c", SMALL + script, str(write_config(folder, **config)), *words], capture_output=True, text=True, timeout=300, cwd=folder)


def leaves(value):
    """Every tensor's record in a dump."""
    if isinstance(value, dict) and value.get("type") == "mindspore.Tensor":
        yield value
    elif isinstance(value, (dict, list)):
        for v in value.values() if isinstance(value, dict) else value:
            yield from leaves(v)
