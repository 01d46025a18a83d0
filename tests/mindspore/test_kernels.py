"""Level L2 of one API: what the Ascend device's own dump is told. A library with the same functions stands in for AscendCL."""
import json
import subprocess

import pytest

from runs import run

ACL = """
#include <stdio.h>
#include <stdlib.h>
static int say(const char *what)
{
    FILE *f = fopen(getenv("ACL_LOG"), "a");
    fprintf(f, "%s\\n", what);
    return fclose(f);
}
int aclmdlInitDump(void) { return say("init"); }
int aclmdlSetDump(const char *path) { return say(path); }
int aclmdlFinalizeDump(void) { return say("end"); }
"""

SCRIPT = """
os.environ["ACL_LOG"] = sys.argv[2]
from msprobe.mindspore import kernels, options
options.device = lambda: "Ascend"
kernels.LIBRARY = sys.argv[3]
mindspore.runtime.synchronize = lambda: None
def say(text):
    with open(sys.argv[2], "a") as f:
        print(text, file=f)
PrecisionDebugger._instance = None
debugger = PrecisionDebugger(config_path=sys.argv[4])
debugger.start()
def f(t):
    a = mint.exp(t)
    say("first call")
    b = mint.exp(t)
    say("second call")
    b.register_hook(lambda g: say("gradient enters"))
    return (a * b).sum()
mindspore.value_and_grad(f)(x)
say("backward is over")
debugger.stop()
debugger.step()
"""


@pytest.fixture
def library(tmp_path):
    (tmp_path / "acl.c").write_text(ACL)
    path = tmp_path / "libascendcl.so"
    try:
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(path), str(tmp_path / "acl.c")], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as e:
        pytest.skip("no C compiler: %s" % e)
    return path


def lines_of(tmp_path, library, name):
    folder = tmp_path / "of"
    folder.mkdir()
    config = folder / "kernels.json"
    config.write_text(json.dumps({"task": "tensor", "level": "L2", "dump_path": str(folder / "dump"), "tensor": {"list": [name]}}))
    done = run(folder, SCRIPT, str(folder / "log"), str(library), str(config))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, (folder / "log").read_text().splitlines(), done.stdout


def test_the_dump_is_on_during_the_chosen_call_alone(tmp_path, library):
    folder, lines, output = lines_of(tmp_path, library, "Mint.exp.1.forward")
    path = folder / "dump/step0/kernel_config.json"
    assert lines[:5] == ["first call", "init", str(path), "end", "second call"] and "init" not in lines[5:]
    assert json.loads(path.read_text()) == {"dump": {"dump_list": [], "dump_path": str(folder / "dump/step0"), "dump_mode": "all", "dump_op_switch": "on"}}
    assert "The kernel data of Mint.exp.1.forward is dumped successfully." in output


def test_the_dump_is_on_during_backward_of_the_chosen_call(tmp_path, library):
    folder, lines, _ = lines_of(tmp_path, library, "Mint.exp.1.backward")
    at = lines.index("init")
    assert "gradient enters" in lines and lines.index("second call") < at < lines.index("end") < lines.index("backward is over")


def test_a_call_that_never_came_is_told(tmp_path, library):
    _, lines, output = lines_of(tmp_path, library, "Mint.log.0.forward")
    assert "init" not in lines and "Mint.log.0.forward was not called" in output
