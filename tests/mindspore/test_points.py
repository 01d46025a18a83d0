"""Level debug: save() writes values, and the gradients of their tensors, into debug.json."""
import numpy as np
import pytest

from runs import read, run

SAVE = """
def f(t):
    y = mint.exp(t)
    debugger.save({"y": y, "list": [t, 2.5, "word"]}, "here")
    debugger.save(y, "one")
    debugger.save(y, "one", save_backward=False)
    return y.sum()
for step in range(2):
    mindspore.grad(f)(x * step)
    debugger.step()
"""


def test_values_and_gradients_are_in_debug_json(tmp_path):
    done = run(tmp_path, SAVE, task="tensor", level="debug")
    data = read(tmp_path, 1, "debug.json")["data"]
    assert list(data) == ["here.0.debug", "here_grad.0.debug", "one.0.debug", "one_grad.0.debug", "one.1.debug"], done.stdout + done.stderr
    assert data["here.0.debug"]["y"]["Max"] == pytest.approx(np.e, rel=1e-5) and data["here.0.debug"]["list"][1] == {"type": "float", "value": 2.5}
    assert data["here_grad.0.debug"]["y"]["Max"] == 1.0 and data["here_grad.0.debug"]["list"][1:] == [None, None]
    assert data["one_grad.0.debug"]["Max"] == 1.0
    saved = np.load(tmp_path / "dump/step1/rank/dump_tensor_data" / data["one.0.debug"]["data_name"])
    assert saved.shape == (2, 3) and saved[0, 0] == data["one.0.debug"]["Max"]
    assert read(tmp_path, 0, "debug.json")["data"]["one.1.debug"]["Max"] == 1.0
    assert not (tmp_path / "dump/step0/rank/dump.json").exists()


def test_wrong_arguments_of_save_are_told_at_once(tmp_path):
    script = """
for arguments in ((x, ""), (object(), "a"), ({1: x}, "a"), (x, "a", 1)):
    try:
        debugger.save(*arguments)
    except Exception as e:
        print("refused:", e)
debugger.step()
debugger.save(object(), "a")
print("later it is a line in the log")
"""
    output = run(tmp_path, script, level="debug").stdout
    assert output.count("refused:") == 4 and output.count("nothing is saved") == 1 and "later it is" in output


def test_at_other_levels_nothing_is_saved(tmp_path):
    assert run(tmp_path, "debugger.save(x, 'a')\ndebugger.step()\n").returncode == 0
    assert not (tmp_path / "dump").exists() or not list((tmp_path / "dump").rglob("debug.json"))
