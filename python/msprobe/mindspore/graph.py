"""A static graph (GRAPH_MODE, level L2): MindSpore's own engine dumps; here its configuration is written.

MindSpore reads the file named by MINDSPORE_DUMP_CONFIG when it compiles its first graph, so start() has to come before that. One file is
written, the one that the mode needs: kernel_kbyk_dump.json for jit_level O0 and O1, kernel_graph_dump.json for O2.
"""

import atexit
import json
import os
import sys

import mindspore
from mindspore import _c_expression

from msprobe.core import older
from msprobe.core.config import check_folder, wrong
from msprobe.core.log import log
from msprobe.mindspore.cells import check_models
from msprobe.mindspore.options import device
from msprobe.mindspore.ranks import current_rank, is_selected

INPUT_OUTPUT = {"all": 0, "input": 1, "output": 2}
OP_DEBUG_MODE = {"all": 3, "aicore": 1, "atomic": 2}
DEVICES = list(range(8))


def jit_level():
    """O0, O1 or O2, as the program has set it; O0 when it has not."""
    try:
        config = mindspore.get_context("jit_config") or {}
    except (KeyError, ValueError):
        config = {}
    return config.get("jit_level") or "O0"


def has_compiled():
    """Whether a graph was compiled in this process."""
    for name in ("mindspore.graph.api", "mindspore.common.api"):
        module = sys.modules.get(name)
        cells = getattr(module, "cells_compile_cache", None) or {}  # every cell's, by id; empty until it is compiled
        if getattr(module, "ms_compile_cache", None) or any(cells.values()):
            return True
    return False


def own_folder(config):
    """Where MindSpore's engine writes what this process dumps."""
    rank = current_rank()
    return os.path.join(config.dump_path, "rank_%s" % (os.environ.get("RANK_ID", "0") if rank is None else rank))


def holds_data(folder):
    """Whether a kernel's values are below it."""
    return any(name.endswith((".npy", ".bin", ".csv")) for path, _, names in os.walk(folder) if os.path.basename(path) != "execution_order" for name in names)


def common_settings(config):
    """common_dump_settings, the part that every mode has."""
    return {"dump_mode": 1 if config.list else 0, "path": config.dump_path, "net_name": "Net",
            "iteration": "|".join(str(s) for s in config.step) if config.step else "all",
            "saved_data": {"statistics": "statistic", "tensor": "tensor", "overflow_check": "full"}[config.task],
            "input_output": INPUT_OUTPUT[config.data_mode[0]], "kernels": config.list, "support_device": config.rank or DEVICES}


def kernel_settings(config):
    """jit_level O0 and O1."""
    common = common_settings(config)
    common["statistic_category"] = ["max", "min", "avg", "l2norm"] if config.task == "statistics" else []
    e2e = {"enable": True, "trans_flag": True}
    if config.file_format != "npy":
        common["file_format"] = config.file_format
        if device() == "CPU":
            log.warning('file_format is "%s"; on the CPU MindSpore writes .npy all the same', config.file_format)
    if config.task == "statistics":
        e2e.update(stat_calc_mode="host", device_stat_precision_mode="high")
    return {"common_dump_settings": common, "e2e_dump_settings": e2e}


def whole_graph_settings(config):
    """jit_level O2."""
    common = common_settings(config)
    common["op_debug_mode"] = OP_DEBUG_MODE[config.check_mode] if config.task == "overflow_check" else 0
    common["file_format"] = config.file_format
    return {"common_dump_settings": common}


def configuration(config, level):
    """(name of the file, its content)"""
    if config.task == "overflow_check":
        if level != "O2":
            raise wrong('task is "overflow_check" and jit_level is "%s"; in a static graph it needs jit_level "O2"' % level)
        return "kernel_graph_overflow_check.json", whole_graph_settings(config)
    if level == "O2" and device() == "Ascend":
        return "kernel_graph_dump.json", whole_graph_settings(config)
    return "kernel_kbyk_dump.json", kernel_settings(config)


class GraphDump:
    """One per process."""

    def __init__(self, config):
        self.config = config
        self._started = self._is_other_rank = False
        check_folder("dump_path", config.dump_path)
        configuration(config, jit_level())  # what is wrong is told now
        atexit.register(self._say_if_empty, os.getpid())

    def start(self, model=None, token_range=None):
        check_models(model)
        if token_range is not None:
            raise wrong("token_range is %r; a static graph has none" % (token_range,))
        if self._is_other_rank:
            return
        if not self._started and device() == "CPU" and not is_selected(self.config.rank, 0):  # elsewhere support_device says it
            self._is_other_rank = True
            log.warning("nothing is recorded here: rank selects %s, and this process is rank %d", self.config.rank, current_rank() or 0)
            return
        if not self._started:
            self._write()
            self._started = True
        self._tell("_dump_start")

    def _write(self):
        if has_compiled():
            raise wrong("start() comes after a graph was compiled; MindSpore reads its dump configuration before: call start() earlier")
        os.makedirs(self.config.dump_path, 0o750, exist_ok=True)
        older.move_folder_aside(self.config.dump_path, os.path.basename(own_folder(self.config)))
        name, content = configuration(self.config, jit_level())
        path = os.path.join(self.config.dump_path, name)
        beside = path + ".tmp"
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640), "w", encoding="utf-8") as f:
            json.dump(content, f, indent=1)
        os.replace(beside, path)
        os.environ["MINDSPORE_DUMP_CONFIG"] = path
        if name == "kernel_kbyk_dump.json":
            os.environ.pop("MS_ACL_DUMP_CFG_PATH", None)
        else:
            os.environ["MS_ACL_DUMP_CFG_PATH"] = path
        self._tell("_dump_set_dynamic")
        log.info("MindSpore's dump configuration is %s", path)

    def stop(self):
        if self._started:
            self._tell("_dump_stop")

    def step(self):
        if self._started:
            self._tell("_dump_step", 1)

    def _say_if_empty(self, pid):
        config = self.config
        if os.getpid() != pid or self._is_other_rank:
            return
        if not self._started:
            log.error("nothing was recorded: start() was never called")
        elif config.task != "overflow_check" and not holds_data(own_folder(config)):
            log.error("nothing was recorded: list is %s, step is %s, data_mode is %s; the names of all kernels are in %s", config.list, config.step or "every one",
                      config.data_mode, os.path.join(own_folder(config), "execution_order"))

    def save(self, variable, name, backward):
        """Belongs to level debug."""

    @staticmethod
    def _tell(name, *args):
        """A function of MindSpore's engine, where it has it."""
        function = getattr(_c_expression, name, None)
        if function is not None:
            function(*args)
