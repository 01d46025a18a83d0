"""Every wrong value in config.json, or given to start(), is named before training starts."""
import pytest

from runs import run, write_config

WRONG = [
    ("graph", dict(level="L2", task="tensor", dump_path="dump"), "dump_path is"),
    ("graph", dict(level="L2", task="tensor", part={"data_mode": ["input", "output"]}), "data_mode is"),
    ("graph", dict(level="L1", task="tensor"), 'level is "L1"'),
    ("graph", dict(level="L2", task="statistics"), 'task is "statistics"'),
    ("graph", dict(level="L2", task="free_benchmark"), 'task is "free_benchmark"'),
    ("graph", dict(level="mix", task="tensor"), 'level is "mix"'),
    ("graph", dict(level="L0", task="tensor"), 'level is "L0"'),
    ("graph", dict(level="L2", task="tensor", part={"data_mode": ["forward"]}), "data_mode is"),
    ("graph", dict(level="L2", task="tensor", part={"scope": ["a", "b"]}), "scope is"),
    ("graph", dict(level="L2", task="tensor", part={"file_format": "pt"}), 'file_format is "pt"'),
    ("graph", dict(level="L2", task="tensor", part={"list": ["MatMul", "name-regex((fc"]}), 'list has "name-regex((fc"'),
    ("graph", dict(level="L2", task="tensor", part={"list": ["name-regex(*fc)"]}), 'list has "name-regex(*fc)"'),
    ("graph", dict(level="L2", task="tensor", part={"list": [""]}), 'list has ""'),
    ("graph", dict(level="L2", task="statistics", part={"tensor_list": ["MatMul"]}), "tensor_list is ['MatMul']"),
    ("graph", dict(level="L2", task="overflow_check"), 'task is "overflow_check"'),
    ("graph", dict(level="L2", task="overflow_check", part={"check_mode": "some"}), 'check_mode is "some"'),
    ("", dict(level="L2", task="tensor", part={"list": ["Mint.add.0.forward"]}), 'level is "L2"'),
    ("", dict(level="L7"), 'level is "L7"'),
    ("", dict(task="run_ut"), 'task is "run_ut"'),
    ("", dict(task="free_benchmark", part={"handler_type": "fix", "pert_mode": "add_noise"}), 'handler_type is "fix"'),
    ("", dict(task="free_benchmark", part={"pert_mode": "to_cpu"}), 'pert_mode is "to_cpu"'),
    ("", dict(task="free_benchmark", part={"fuzz_device": "cpu"}), 'fuzz_device is "cpu"'),
    ("", dict(task="free_benchmark", part={"fuzz_stage": "backward"}), 'fuzz_stage is "backward"'),
    ("", dict(task="overflow_check", part={"overflow_nums": 0}), "overflow_nums is 0"),
    ("", dict(part={"summary_mode": "sha1"}), 'summary_mode is "sha1"'),
    ("", dict(part={"scope": ["a"]}), "scope"),
    ("", dict(part={"scope": ["Cell.a.B.forward.0", "Mint.add.0.forward"]}), "scope has"),
    ("", dict(enable_dataloader=True), "enable_dataloader"),
    ("", dict(task="tensor", part={"file_format": "bin"}), 'file_format is "bin"'),
    ("", dict(task="overflow_check", level="debug"), 'task is "overflow_check"'),
    ("", dict(task="free_benchmark", level="L0"), 'level is "L0"'),
    ("", dict(task="free_benchmark", part={"scope": ["Mint.add.0"]}), "scope is"),
    ("", dict(task="free_benchmark", part={"if_preheat": True}), "if_preheat is"),
    ("", dict(task="free_benchmark", part={"preheat_step": -1}), "preheat_step is -1"),
    ("", dict(task="free_benchmark", part={"max_sample": "many"}), "max_sample is 'many'"),
    ("", dict(part={"data_mode": ["inputs"]}), "data_mode"),
    ("", dict(rank=[-1]), "rank"),
    ("", dict(step="x"), "step"),
    ("", dict(dump_path=""), "dump_path"),
]


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """What each of WRONG is answered with, from two processes: one for each mode of MindSpore."""
    answers = {}
    for mode in ("", "graph"):
        folder = tmp_path_factory.mktemp("wrong")
        paths = []
        for number, (where, config, _) in enumerate(WRONG):
            if where == mode:
                (folder / str(number)).mkdir()
                paths.append(str(write_config(folder / str(number), **config)))
        done = run(folder, SCRIPT, mode, *paths)
        assert done.returncode == 0, done.stderr
        lines = [line for line in done.stdout.splitlines() if line.startswith("answer ")]
        numbers = [n for n, (where, _, _) in enumerate(WRONG) if where == mode]
        assert len(lines) == len(numbers)
        answers.update(zip(numbers, lines))
    return answers


SCRIPT = """
from msprobe.core.common.exceptions import MsprobeException, ScopeException
mindspore.set_context(mode=mindspore.GRAPH_MODE if sys.argv[2] else mindspore.PYNATIVE_MODE)
for path in sys.argv[3:]:
    PrecisionDebugger._instance = None
    try:
        PrecisionDebugger(config_path=path)
        print("answer accepted")
    except (MsprobeException, ScopeException) as e:
        print("answer refused:", str(e).replace("\\n", " "))
"""


@pytest.mark.parametrize("number", range(len(WRONG)), ids=[text for _, _, text in WRONG])
def test_a_wrong_value_is_named_before_training(refused, number):
    assert refused[number].startswith("answer refused:") and WRONG[number][2] in refused[number]


def test_a_model_that_is_no_cell_is_refused(tmp_path):
    script = """
for model in ("model", [nn.ReLU(), 3]):
    try:
        debugger.start(model)
    except Exception as e:
        print("refused:", e)
for level, given in ((None, (0, 1)), (None, (3, 1))):
    try:
        debugger.start(nn.ReLU() if given[0] else None, token_range=given)
    except Exception as e:
        print("refused:", e)
"""
    output = run(tmp_path, script).stdout
    for text in ("model is str; it must be a mindspore.nn.Cell", "a list with int in it", "token_range needs a model", "token_range is (3, 1)"):
        assert "refused:" in output and text in output, output


def test_keys_that_are_for_pytorch_only_are_told(tmp_path):
    output = run(tmp_path, "", seed=1234, is_deterministic=True).stdout
    assert output.count("is for PyTorch only and not used; call seed_all()") == 2
    output = run(tmp_path, "", task="free_benchmark", part={"preheat_step": 3, "max_sample": 20}).stdout
    assert '"preheat_step" is for PyTorch only' in output and "max_sample" not in output
    assert "PyTorch only" not in run(tmp_path, "").stdout


def test_level_L0_without_a_model_is_told(tmp_path):
    output = run(tmp_path, "try:\n    debugger.start()\nexcept Exception as e:\n    print('refused:', e)\n", level="L0").stdout
    assert "refused:" in output and "model is None; level L0 needs start(model)" in output
