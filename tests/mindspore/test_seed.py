"""seed_all()."""
from runs import run

SCRIPT = """
import random
from msprobe.mindspore import seed_all
def draw():
    return random.random(), np.random.rand(), mindspore.ops.rand(2).asnumpy().tolist()
drawn = []
for mode in (False, True, False):
    seed_all(7, mode)
    drawn.append(draw())
    print("hccl", os.environ.get("HCCL_DETERMINISTIC", "unset"))
mindspore.set_deterministic(True)  # which the program may call once
seed_all(7, True)
drawn.append(draw())
print("alike", all(one == drawn[0] for one in drawn))
for wrong in (dict(seed=-1), dict(seed="a"), dict(mode=1), dict(rm_dropout=None)):
    try:
        seed_all(**wrong)
    except Exception as e:
        print("refused", e)
print("kept", int((mindspore.ops.dropout(x, 0.5).asnumpy() == 1).all()))
seed_all(rm_dropout=True)
print("removed", [int((f(x).asnumpy() == 1).all()) for f in (lambda t: mindspore.ops.dropout(t, 0.5), nn.Dropout(p=0.5).set_train())])
"""


def test_seed_all_may_be_called_again_and_beside_what_the_program_sets(tmp_path):
    done = run(tmp_path, SCRIPT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "alike True" in done.stdout and "kept 0" in done.stdout and "removed [1, 1]" in done.stdout, done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("hccl")] == ["hccl false", "hccl true", "hccl false"]
    for text in ("seed is -1", "seed is 'a'", "mode is 1", "rm_dropout is None"):
        assert "refused [msprobe] Invalid parameter: " + text in done.stdout
    assert "but got 'True'" not in done.stdout + done.stderr and "but got 'False'" not in done.stdout + done.stderr
