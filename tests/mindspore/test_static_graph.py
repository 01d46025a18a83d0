"""The static graph: the configuration that is written, what MindSpore's engine does with it, and comparing what it leaves."""
import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from runs import ROOT, train, write_config


def settings(tmp_path, task, level, target, part=None, **common):
    """The configuration that would be written on another device."""
    config = write_config(tmp_path, task, "L2", part, **common)
    script = """import json, sys, mindspore
mindspore.set_context(mode=mindspore.GRAPH_MODE)
from msprobe.mindspore import graph, options
graph.device = options.device = lambda: sys.argv[3]
print("\\n" + json.dumps(graph.configuration(options.Options(sys.argv[1]), sys.argv[2])))
"""
    done = subprocess.run([sys.executable, "-c", script, str(config), level, target], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_configuration_for_kernels_key_by_key(tmp_path):
    name, content = settings(tmp_path, "statistics", "O0", "Ascend", {"list": ["name-regex(.*fc3.*)"], "data_mode": ["output"]}, step=[0, 1, 5], rank=[2])
    assert name == "kernel_kbyk_dump.json"
    assert content == {
        "common_dump_settings": {"dump_mode": 1, "path": str(tmp_path / "dump"), "net_name": "Net", "iteration": "0|1|5", "saved_data": "statistic",
                                 "input_output": 2, "kernels": ["name-regex(.*fc3.*)"], "support_device": [2],
                                 "statistic_category": ["max", "min", "avg", "l2norm"]},
        "e2e_dump_settings": {"enable": True, "trans_flag": True, "stat_calc_mode": "host", "device_stat_precision_mode": "high"}}



def test_the_configuration_for_the_whole_graph_key_by_key(tmp_path):
    name, content = settings(tmp_path, "tensor", "O2", "Ascend", {"file_format": "bin", "data_mode": ["input"]})
    assert name == "kernel_graph_dump.json"
    assert content == {"common_dump_settings": {"dump_mode": 0, "path": str(tmp_path / "dump"), "net_name": "Net", "iteration": "all", "saved_data": "tensor",
                                                "input_output": 1, "kernels": [], "support_device": list(range(8)), "op_debug_mode": 0, "file_format": "bin"}}



@pytest.mark.parametrize("mode, number", [("all", 3), ("aicore", 1), ("atomic", 2)])
def test_the_configuration_for_overflows_key_by_key(tmp_path, mode, number):
    name, content = settings(tmp_path, "overflow_check", "O2", "Ascend", {"check_mode": mode})
    assert name == "kernel_graph_overflow_check.json"
    assert content["common_dump_settings"]["saved_data"] == "full" and content["common_dump_settings"]["op_debug_mode"] == number



def test_mindspore_dumps_a_static_graph_as_configured(tmp_path):
    train("mlp", 2, write_config(tmp_path, "tensor", "L2", {"list": ["name-regex(.*fc3.*)"], "data_mode": ["output"]}, step=[1]), "graph")
    files = list((tmp_path / "dump").rglob("*.npy"))
    assert files and all(".output." in p.name and "fc3" in p.name for p in files)
    assert os.listdir(next((tmp_path / "dump").glob("rank_0/Net/*"))) == ["1"]



def test_what_mindspore_leaves_of_a_static_graph_is_compared(tmp_path):
    command = ROOT / ".venv/bin/msprobe"
    for side in ("npu", "bench"):
        (tmp_path / side).mkdir()
        train("mlp", 2, write_config(tmp_path / side, "tensor", "L2"), "graph")
    worst = max((tmp_path / "npu/dump/rank_0/Net/0/1").glob("MatMul*fc3*.output.*.npy"))
    values = np.load(worst) + 1
    worst.chmod(0o600)
    np.save(worst, values)
    done = subprocess.run([str(command), "compare", "npu/dump", "bench/dump", "-o", "out", "--format", "csv", "--json", "-q"],
                          capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = (list(csv.DictReader(open(p))) for p in sorted((tmp_path / "out").glob("*.csv")))
    assert len(first) == len(second) > 300
    assert {row["Accuracy Reached or Not"] for row in first} <= {"Yes", "None", ""}
    wrong = [row["NPU Name"] for row in second if row["Accuracy Reached or Not"] == "No"]
    assert len(wrong) == 1 and "fc3" in wrong[0]


def test_start_after_the_first_compilation_is_refused(tmp_path):
    file = tmp_path / "late.py"  # what is compiled must have a source
    file.write_text("""import sys
import numpy as np
import mindspore
from mindspore import Tensor, nn
mindspore.set_context(mode=mindspore.GRAPH_MODE)
from msprobe.mindspore import PrecisionDebugger
debugger = PrecisionDebugger(config_path=sys.argv[1])
net = nn.Dense(2, 2)
net(Tensor(np.ones((2, 2), np.float32)))
try:
    debugger.start()
except Exception as e:
    print("refused:", e)
""")
    done = subprocess.run([sys.executable, str(file), str(write_config(tmp_path, "tensor", "L2"))], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert "refused:" in done.stdout and "start() comes after a graph was compiled" in done.stdout, done.stdout + done.stderr
    assert not (tmp_path / "dump/kernel_kbyk_dump.json").exists()


@pytest.mark.parametrize("level, name, kind", [("O0", "kernel_kbyk_dump.json", None), ("O2", "kernel_graph_dump.json", "MS_ACL_DUMP_CFG_PATH")])
def test_one_configuration_is_written_and_the_environment_names_it(tmp_path, level, name, kind):
    script = """import os, sys, mindspore
mindspore.set_context(mode=mindspore.GRAPH_MODE, jit_config={"jit_level": sys.argv[2]})
os.environ["MS_ACL_DUMP_CFG_PATH"] = "of an earlier run"
from msprobe.mindspore import graph, options
graph.device = options.device = lambda: "Ascend"
graph.GraphDump._tell = lambda *_: None
dump = graph.GraphDump(options.Options(sys.argv[1]))
dump.start()
print("environment", os.environ["MINDSPORE_DUMP_CONFIG"], os.environ.get("MS_ACL_DUMP_CFG_PATH"))
"""
    config = write_config(tmp_path, "tensor", "L2")
    done = subprocess.run([sys.executable, "-c", script, str(config), level], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    path = tmp_path / "dump" / name
    assert "environment %s %s" % (path, path if kind else None) in done.stdout, done.stdout + done.stderr
    assert os.listdir(tmp_path / "dump") == [name] and path.stat().st_mode & 0o777 == 0o640


def test_a_list_that_names_nothing_and_a_rank_that_is_not_there_are_told(tmp_path):
    for number, (config, text) in enumerate(((dict(part={"list": ["no_such"]}), "nothing was recorded: list is ['no_such']"),
                                             (dict(rank=[1]), "nothing is recorded here: rank selects [1], and this process is rank 0"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        output = train("mlp", 1, write_config(folder, "tensor", "L2", **config), "graph")
        assert text in output and output.count("nothing ") == 1
        assert not list((folder / "dump").rglob("*.npy"))


def test_a_static_graphs_earlier_run_is_moved_aside(tmp_path):
    config = write_config(tmp_path, "tensor", "L2", {"list": ["MatMul"]})
    counts = []
    for _ in range(2):
        train("mlp", 1, config, "graph")
        counts.append(len(list((tmp_path / "dump").rglob("*.npy"))))
    assert counts[0] == counts[1] > 0
    assert len(list((tmp_path / "dump.older-1/rank_0").rglob("*.npy"))) == counts[0]
