"""Every wrong value in config.json is named before training starts."""
import subprocess
import sys

import pytest

from runs import run, write_config

WRONG = [
    ("graph", dict(level="L2", task="tensor", dump_path="dump"), "dump_path is"),
    ("graph", dict(level="L2", task="tensor", part={"data_mode": ["input", "output"]}), "data_mode is"),
    ("graph", dict(level="L1", task="tensor"), 'level is "L1"'),
    ("graph", dict(level="L2", task="statistics"), 'task is "statistics"'),
    ("graph", dict(level="L2", task="free_benchmark"), 'task is "free_benchmark"'),
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
    ("", dict(enable_dataloader=True), "enable_dataloader"),
]


@pytest.mark.parametrize("mode, wrong, text", WRONG)
def test_a_wrong_value_is_named_before_training(tmp_path, mode, wrong, text):
    config = write_config(tmp_path, **wrong)
    script = """import sys, mindspore


def test_a_model_that_is_no_cell_is_refused(tmp_path):
    script = """import sys
