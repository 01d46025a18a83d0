"""Collecting from PyTorch, and comparing what was collected.

    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path="./config.json")
    for data, label in loader:
        debugger.start(model)
        loss = criterion(model(data), label)
        loss.backward()
        debugger.stop()
        debugger.step()

compare() and compare_distributed() are the older way to say what the command `msprobe compare` does.
"""

import dis
import sys

from msprobe.core import config, log, signals

# these three stood here before another framework shared them
sys.modules.update({"msprobe.pytorch.config": config, "msprobe.pytorch.log": log, "msprobe.pytorch.signals": signals})

from msprobe.pytorch.comparing import compare, compare_distributed  # noqa: E402
from msprobe.pytorch.debugger import PrecisionDebugger, module_dump, module_dump_end  # noqa: E402
from msprobe.pytorch.seed import seed_all  # noqa: E402

__all__ = ["PrecisionDebugger", "seed_all", "module_dump", "module_dump_end", "compare", "compare_distributed"]

# What msprobe 8.3 and 26 have under this name: what there is here instead.
_ELSEWHERE = {
    "TrainerMon": "task statistics at level L0 or mix records the gradients of parameters",
    "random_save": "seed_all() makes a run repeat itself",
    "set_fx_dump_config": 'compiled code is recorded with "compiled": "eager" in config.json',
    "set_ge_dump_config": 'compiled code is recorded with "compiled": "eager" in config.json',
    "acl_save": 'PrecisionDebugger.save() records a value at level "debug"',
    "AclGraphDumper": 'compiled code is recorded with "compiled": "eager" in config.json',
}


def __getattr__(name):
    """hasattr() is to be answered, and only an import is told more."""
    frame = sys._getframe(1)
    if name in _ELSEWHERE and frame.f_code.co_code[frame.f_lasti] == dis.opmap["IMPORT_FROM"]:
        raise ImportError("msprobe.pytorch has no %s: it is mindstudio-probe's. Here %s" % (name, _ELSEWHERE[name]), name=__name__)
    raise AttributeError("module %r has no attribute %r" % (__name__, name))
