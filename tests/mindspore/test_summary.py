"""What is said when a step, a list or a program leaves nothing to record, and what there is at the end."""
import pytest

from runs import run

LOOP = """
for step in range(3):
    debugger.start()
    mint.exp(x)
    debugger.stop()
    debugger.step()
"""


@pytest.mark.parametrize("script, config, text", [
    ("", {}, "nothing was recorded: start() was never called"),
    (LOOP, {"step": [7]}, "nothing was recorded: step selects [7], and the steps that ran are 0 to 2"),
    (LOOP, {"part": {"list": ["no_such"]}}, "nothing was recorded: list selects ['no_such']; names that were called: Mint.exp.0.forward"),
    (LOOP, {"part": {"scope": ["Mint.add.0.forward", "Mint.add.1.forward"]}}, "nothing was recorded: scope selects"),
    (LOOP, {"step": [0]}, "msprobe ends successfully."),
    (LOOP, {"step": [0]}, "recorded 1 call, 1 step,"),
    (LOOP, {"task": "overflow_check"}, "no overflow in step 0 to 2"),
    ("debugger.start()\n" + LOOP, {}, "start() was called again before stop()"),
    ("debugger.save(x, 'a')\ndebugger.step()\n", {"level": "debug"}, "recorded 2 calls, 1 step,"),
    (LOOP, {"level": "debug"}, "nothing was recorded: save() was never called"),
    (LOOP, {"dump_enable": False}, "nothing was recorded: dump_enable is false"),
], ids=["no-start", "step", "list", "scope", "ends", "count", "overflow", "twice", "points", "no-save", "off"])
def test_the_log_says_what_there_is_and_why_there_is_nothing(tmp_path, script, config, text):
    done = run(tmp_path, script, **config)
    assert done.returncode == 0 and done.stdout.count(text) == 1, done.stdout + done.stderr
    assert ("nothing was recorded" in done.stdout) == ("nothing" in text), done.stdout
