"""Collecting from MindSpore.

    from msprobe.mindspore import PrecisionDebugger, seed_all

    debugger = PrecisionDebugger(config_path="./config.json")
    for data, label in loader:
        debugger.start(model)
        loss, gradients = grad(data, label)
        optimizer(gradients)
        debugger.stop()
        debugger.step()
"""

from msprobe.mindspore.debugger import PrecisionDebugger
from msprobe.mindspore.seed import seed_all

__all__ = ["PrecisionDebugger", "seed_all"]
